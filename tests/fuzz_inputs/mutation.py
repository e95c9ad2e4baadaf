"""Mutations: of bytes, of protobuf messages, of JSON values, and of TOML and other text."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from onnx import ModelProto

NUMBERS = (
    0, 1, -1, 2, 3, 7, 16, 127, 255, 256, 65535, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 32,
    (1 << 63) - 1, -(1 << 63),
)  # fmt: skip
TEXTS = (
    "", "é", "\x00", "a\nb", "[/b]", "<script>", "../x", "/dev/zero", "Loop", "Conv",
    "com.microsoft", "nan", "1e999",
    "y" * 300, "\ud800", "x\u202e",
)  # fmt: skip
_WORDS = (
    "0", "-1", "1", "3", "99999999999999999999", "9" * 5000, "0x" + "f" * 5000, "1e999", "-1e999",
    "nan", "inf", "true",
    '"x"', '""', "[]", "{}", "[" * 3000, "[[[1]]]", "1979-05-27", '"\\u0000"', "'''", "é", "\x00",
    "\ufeff",
)  # fmt: skip
_TOKEN = re.compile(r'"[^"\n]*"|[-+]?[\w.]+|[^\s\w]')


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut off, left out, put twice or replaced."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not content:
            break
        at = rng.randrange(len(content))
        length = rng.choice((1, 1, 2, 4, 8, 64))
        match rng.randrange(6):
            case 0:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                del content[at:]
            case 2:
                del content[at : at + length]
            case 3:
                content[at:at] = content[at : at + length]
            case 4:
                content[at : at + length] = (
                    rng.choice((b"\xff", b"\x00", b"\x7f", b"\x80")) * length
                )
            case _:
                content[at : at + length] = rng.randbytes(length)
    return bytes(content)


def mutate_words(data: bytes, rng: random.Random) -> bytes:
    """Replace words of four bytes by numbers and by one another.

    They are offsets, lengths or indices of a flatbuffer.
    """
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, other = (4 * rng.randrange(len(content) // 4) for _ in range(2))
        number = rng.choice((*NUMBERS, int.from_bytes(content[other : other + 4], "little")))
        content[at : at + 4] = (number & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(content)


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """Values replaced by others, lines left out, doubled or exchanged."""
    text = data.decode("latin-1" if data.startswith(b"\x93NUMPY") else "utf-8")
    for _ in range(rng.choice((1, 1, 2, 3))):
        lines = text.split("\n")
        line = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                del lines[line]
            case 1:
                lines.insert(line, lines[rng.randrange(len(lines))])
            case _:
                tokens = list(_TOKEN.finditer(lines[line]))
                if tokens:
                    token = rng.choice(tokens)
                    new = rng.choice(
                        (*_WORDS, str(rng.choice(NUMBERS)), str(rng.randrange(-5, 100)))
                    )
                    lines[line] = lines[line][: token.start()] + new + lines[line][token.end() :]
        text = "\n".join(lines)
    return (
        text.encode("latin-1", "replace")
        if data.startswith(b"\x93NUMPY")
        else text.encode(errors="surrogatepass")
    )


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """Values replaced, removed or exchanged; nested deeply now and then."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places: list[tuple[Any, Any]] = []
        _places(value, places)
        if not places:
            break
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = rng.choice(NUMBERS)
            case 2:
                holder[key] = rng.choice(TEXTS)
            case 3:
                other, index = rng.choice(places)
                try:
                    holder[key] = json.loads(json.dumps(other[index]))
                except (LookupError, TypeError):
                    holder[key] = None
            case 4:
                holder[key] = rng.choice(
                    (None, True, [], {}, [holder[key]], 1.5, float("nan"), float("inf"), -1)
                )
            case _:
                holder[key] = (
                    json.loads("[" * 200 + "]" * 200)
                    if rng.random() < 0.2
                    else rng.randrange(-4, 300)
                )
    return json.dumps(value).encode(errors="surrogatepass")


def _places(value: Any, found: list[tuple[Any, Any]]) -> None:
    """(list or table, index or key) of everything in ``value``."""
    keys = (
        value.keys()
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        found.append((value, key))
        _places(value[key], found)


def mutate_model(data: bytes, rng: random.Random) -> bytes:
    """Fields of a protobuf message changed, cleared, doubled; messages exchanged."""
    model = ModelProto()
    model.ParseFromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        messages: list[Any] = []
        _messages(model, messages)
        message = rng.choice(messages)
        field = rng.choice(message.DESCRIPTOR.fields)
        set_fields = [item for item, _ in message.ListFields()]
        if set_fields and rng.random() < 0.8:
            field = rng.choice(set_fields)
        _mutate_field(message, field, rng)
    return bytes(model.SerializeToString())


def _messages(message: Any, found: list[Any]) -> None:
    found.append(message)
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in value if _repeated(field) else (value,):
                _messages(item, found)


def _repeated(field: Any) -> bool:
    return bool(
        field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    )


def _mutate_field(message: Any, field: Any, rng: random.Random) -> None:
    if rng.random() < 0.1:
        message.ClearField(field.name)
        return
    if not _repeated(field):
        if field.type == field.TYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
        else:
            _set(
                lambda value: setattr(message, field.name, value),
                field,
                getattr(message, field.name),
                rng,
            )
        return
    items = getattr(message, field.name)
    at = rng.randrange(len(items)) if items else 0
    what = rng.randrange(4)
    if items and what == 0:
        del items[at]
    elif items and what == 1:
        items.extend([items[at]])
    elif field.type == field.TYPE_MESSAGE:
        if len(items) > 1:
            items[at].CopyFrom(items[rng.randrange(len(items))])
        else:
            items.add()
    elif items:
        _set(lambda value: items.__setitem__(at, value), field, items[at], rng)
    else:
        _set(items.append, field, None, rng)


def _set(assign: Callable[[Any], None], field: Any, old: Any, rng: random.Random) -> None:
    """Assign a value of the field's type; one that it cannot hold is left."""
    value: Any
    if field.type == field.TYPE_STRING:
        value = rng.choice((*TEXTS, *(["w", "x", "c", "r", "Relu", "Add", "Reshape", "MatMul"])))
    elif field.type == field.TYPE_BYTES:
        value = mutate_bytes(old or b"x", rng)
    elif field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        value = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e-40, 3e38, 1.5))
    elif field.type == field.TYPE_ENUM:
        value = rng.choice([item.number for item in field.enum_type.values])
    else:
        value = rng.choice(
            (
                *NUMBERS,
                *((old + rng.randint(-2, 2)) if isinstance(old, int) else 0 for _ in range(8)),
            )
        )
    try:
        assign(value)
    except (ValueError, TypeError, UnicodeError):
        return
