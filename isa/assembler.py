"""Assembly text: a readable form of a Program that round-trips exactly.

Images and provenance are included. Each line has one statement; ``#`` starts a comment. Directives
start with a dot and contain JSON. ``SET register, value`` and operations ``MNEMONIC field=value
pop.LD push.ST`` are the words, in order.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from isa.arch import Arch
from isa.encoding import decode_operation, decode_set, encode_operation, encode_set
from isa.errors import InputError
from isa.instruction import NEXT, PREVIOUS, Command, Unit
from isa.plugins import variant
from isa.program import Program, Segment
from isa.program_file import MAXIMUM_BYTES, header_of, program_from_header
from isa.reading import json_of, read_bytes, text_of
from isa.variants import SET_OPCODE, Variant

_DATA_BYTES_A_LINE = 96


def disassemble(program: Program) -> str:
    """Return the assembly text of a program, ending in a newline."""
    header = header_of(program)
    lines = [f".program {json.dumps(header['name'])}", f".arch {_dump(header['arch'])}"]
    lines.append(f".memory {header['dram_bytes']} commands {header['command_address']}")
    lines += [f".tensor {_dump(tensor)}" for tensor in header["tensors"]]
    if "dataflow" in header:
        lines.append(f".dataflow {_dump(header['dataflow'])}")
    for segment in program.segments:
        lines += _segment_lines(segment)
    starts = {entry[0]: entry for entry in header["provenance"]}
    for index, text in enumerate(disassemble_words(program.words.tolist(), program.variant)):
        if index in starts:
            lines.append(f".source {_dump(starts[index][1:])}")
        lines.append(text)
    return "\n".join(lines) + "\n"


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _segment_lines(segment: Segment) -> list[str]:
    raw = segment.data.tobytes()
    pieces = [raw[i : i + _DATA_BYTES_A_LINE] for i in range(0, len(raw), _DATA_BYTES_A_LINE)]
    return [f".image {segment.address:#x}"] + [
        f".data {base64.b64encode(piece).decode()}" for piece in pieces
    ]


def disassemble_words(words: list[int], isa: Variant) -> list[str]:
    """Return one line of assembly text per command word."""
    lines = []
    file = isa.register_file
    for index, word in enumerate(words):
        if word >> 56 == SET_OPCODE:
            name, value = decode_set(word, index, file)
            lines.append(f"    SET {name}, {file.by_name[name].format(value)}")
        else:
            lines.append(command_text(decode_operation(word, index, isa, file.reset)))
    return lines


def command_text(command: Command) -> str:
    """Return the assembly line of an operation.

    It has the mnemonic, the non-zero fields, and the token flags by neighbour.
    """
    mnemonic = command.instruction.mnemonic_for(command.fields)
    implied = command.instruction.aliases.get(mnemonic, {})
    parts = [mnemonic]
    for name, value in command.fields.items():
        if name == "unit":
            parts.append(f"unit={Unit(value).name}")
        elif value and name not in implied:
            parts.append(f"{name}={value}")
    for flag, sides in (
        ("pop", (command.pop_previous, command.pop_next)),
        ("push", (command.push_previous, command.push_next)),
    ):
        for present, neighbours in zip(sides, (PREVIOUS, NEXT), strict=True):
            if present:
                parts.append(f"{flag}.{neighbours[command.unit].name}")
    return " ".join(parts)


def assemble(text: str, source: str = "assembly") -> Program:
    """Return the program that ``text`` describes.

    Raise InputError with the line number of any error.
    """
    return _Assembler(source).run(text)


def load_text(path: Path) -> Program:
    """Load a program from a file of assembly text.

    Raises InputError like :func:`assemble`, and for a file that is not text.
    """
    remedy = f"'dla disasm PROGRAM -o {path}' makes one"
    content = read_bytes(path, MAXIMUM_BYTES, "a program", remedy)
    return assemble(text_of(content, str(path), remedy), str(path))


class _Assembler:
    """Parser state: the header values, words and images of one text."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.header: dict[str, Any] = {
            "name": "",
            "arch": {},
            "dram_bytes": 0,
            "command_address": 0,
        }
        self.header |= {"tensors": [], "provenance": []}
        self.words: list[int] = []
        self.images: list[tuple[int, list[bytes]]] = []

    def run(self, text: str) -> Program:
        for number, line in enumerate(text.splitlines(), start=1):
            statement = _strip_comment(line)
            if not statement:
                continue
            try:
                self.statement(statement)
            except InputError as error:
                raise InputError(f"{self.source} line {number}: {error}", line=number) from error
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise InputError(
                    f"{self.source} line {number}: cannot read '{statement[:60]}'", line=number
                ) from error
        for address, _ in self.images:
            if address < 0:
                raise InputError(f"{self.source}: an image at {address}; addresses start at 0")
        segments = tuple(
            Segment(address, np.frombuffer(b"".join(data), np.uint8))
            for address, data in self.images
        )
        if not self.header["dram_bytes"]:
            self.header["dram_bytes"] = self.header["command_address"] + 8 * len(self.words)
        return program_from_header(
            self.header, np.array(self.words, dtype=np.uint64), segments, self.source
        )

    def statement(self, text: str) -> None:
        head, _, rest = text.partition(" ")
        if head.startswith("."):
            self.directive(head, rest.strip())
        elif head == "SET":
            name, _, value = rest.partition(",")
            self.words.append(
                encode_set(name.strip(), int(value.strip(), 0), self.isa().register_file)
            )
        else:
            self.words.append(_operation_word(head, rest.split(), self.isa()))

    def isa(self) -> Variant:
        return variant(self.header["arch"].get("isa", "v2"))

    def directive(self, head: str, rest: str) -> None:
        if head in (".program", ".arch"):
            value = json_of(rest, "the directive", "one")
            self.header["name" if head == ".program" else "arch"] = value
            if head == ".arch":
                _check_arch(value)
        elif head == ".memory":
            size, _, address = rest.split()
            self.header |= {"dram_bytes": int(size, 0), "command_address": int(address, 0)}
        elif head == ".tensor":
            self.header["tensors"].append(json_of(rest, "the directive", "one"))
        elif head == ".dataflow":
            self.header["dataflow"] = json_of(rest, "the directive", "one")
        elif head == ".image":
            self.images.append((int(rest, 0), []))
        elif head == ".data":
            self.images[-1][1].append(base64.b64decode(rest, validate=True))
        elif head == ".source":
            self.header["provenance"].append(
                [len(self.words), *json_of(rest, "the directive", "one")]
            )
        else:
            raise InputError(f"unknown directive '{head}'")


def _check_arch(value: Any) -> None:
    """Raise InputError with the first problem if ``value`` is not a valid machine."""
    try:
        Arch.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        what = problem["msg"].removeprefix("Value error, ")
        raise InputError(f".arch: {f'{key}: ' if key else ''}{what}") from error


def _strip_comment(line: str) -> str:
    """Return a line of assembly text without its comment.

    ``#`` inside a JSON directive is data: only operations and SETs can have comments.
    """
    stripped = line.strip()
    if stripped.startswith("."):
        return stripped
    return stripped.partition("#")[0].strip()


def _operation_word(mnemonic: str, parts: list[str], isa: Variant) -> int:
    if mnemonic not in isa.by_mnemonic:
        raise InputError(f"{mnemonic} is not an instruction of ISA {isa.name}")
    instruction, implied = isa.by_mnemonic[mnemonic]
    values = dict(implied)
    for part in parts:
        if "=" in part:
            name, _, value = part.partition("=")
            values[name] = (
                Unit[value].value if name == "unit" and value in Unit.__members__ else int(value, 0)
            )
    unit = instruction.unit or Unit(values.get("unit", Unit.EX.value))
    for part in parts:
        if "=" not in part:
            values[_token_flag(part, unit)] = 1
    return encode_operation(instruction, values)


def _token_flag(part: str, unit: Unit) -> str:
    flag, _, neighbour = part.partition(".")
    for side, neighbours in (("previous", PREVIOUS), ("next", NEXT)):
        if unit in neighbours and neighbours[unit].name == neighbour and flag in ("pop", "push"):
            return f"{flag}_{side}"
    raise InputError(f"'{part}' is not a token flag of unit {unit.name}")
