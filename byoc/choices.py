"""Schedules as data: what is chosen of a network's schedules beforehand, by hand in a small TOML file or by a search.

Whatever a record leaves open the compiler chooses as ever; a record that leaves nothing open is the whole schedule, and
the compiler streams it as it is. Bits never depend on it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from isa.errors import InputError
from isa.reading import read_bytes, toml_of

Order = Literal["rows", "channels"]
ORDERS: tuple[Order, ...] = get_args(Order)
OPERANDS = ("input", "constants", "output")
"""What ``slots`` counts the buffers of, in this order."""
MAXIMUM_BYTES = 1 << 20
MOST = 1 << 20
"""The largest number in a file."""
_REMEDY = "docs/tuning.md shows such a file"


@dataclass(frozen=True)
class LayerChoice:
    """What is chosen of the tiling of one layer; None is left to the compiler.

    A tile makes ``channels`` by ``rows`` of the output from ``depth`` input channels (0: from all at once). The outer
    loop runs over ``order``; ``slots`` are the buffers of inputs, constants and outputs: 1 single, 2 double-buffered.
    """

    layer: str
    channels: int | None = None
    rows: int | None = None
    depth: int | None = None
    order: Order | None = None
    slots: tuple[int, int, int] | None = None


KEYS = tuple(item.name for item in fields(LayerChoice) if item.name != "layer")
"""What can be chosen of a layer."""


@dataclass(frozen=True)
class Choices:
    """What is chosen of a network. Falsy where that is nothing.

    Of several choices for layers of one name the first is for the first of them, and so on, the last for all that
    follow. ``residents``: exactly the tensors that stay in the scratchpad; None: the compiler chooses. ``package`` and
    ``machine`` are the digests that the choices were made for, empty for any. ``words`` choose them on a command line.
    """

    layers: tuple[LayerChoice, ...] = ()
    residents: tuple[str, ...] | None = None
    package: str = ""
    machine: str = ""
    words: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.layers) or self.residents is not None

    @property
    def source(self) -> str:
        """What messages call them."""
        return " ".join(self.words) or "the choices"

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of what is chosen: equal for equal choices."""
        text = json.dumps(as_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def of(self, names: Sequence[str]) -> list[LayerChoice | None]:
        """The choice for each of some layers, by their names in order."""
        by_name: dict[str, list[LayerChoice]] = {}
        for choice in self.layers:
            by_name.setdefault(choice.layer, []).append(choice)
        seen: Counter[str] = Counter()
        found: list[LayerChoice | None] = []
        for name in names:
            own = by_name.get(name)
            found.append(own[min(seen[name], len(own) - 1)] if own else None)
            seen[name] += 1
        return found

    def check_made_for(self, package: str, machine: str) -> None:
        """Raises InputError where they were made for another package or machine."""
        for what, wanted, found in (("network", self.package, package), ("machine", self.machine, machine)):
            if wanted and wanted != found:
                raise InputError(
                    f"{self.source}: made for another {what} (digest {wanted[:16]}, this one has {found[:16]}); "
                    "give the same model, seed, preset and settings, or tune this one with --from"
                )

    def check_names(self, layers: Iterable[str], tensors: Iterable[str]) -> None:
        """Raises InputError for a choice about a layer that is none of these, or a resident that is no such tensor."""
        _check_known(self.source, "layer of the accelerator", (choice.layer for choice in self.layers), tuple(layers))
        _check_known(self.source, "tensor that can stay in the scratchpad", self.residents or (), tuple(tensors))


NOTHING = Choices()


def _check_known(source: str, what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean '{close[0]}'?" if close else "'dla explain MODEL' lists them"
            raise InputError(f"{source}: '{name}' is no {what}; {meant}")


def as_json(choices: Choices) -> dict[str, Any]:
    """What is chosen, as plain values; :func:`of_json` reads them."""
    layers = [{name: value for name, value in asdict(one).items() if value is not None} for one in choices.layers]
    return {"layers": layers} | ({} if choices.residents is None else {"residents": list(choices.residents)})


def of_json(value: Any, source: str) -> Choices:
    """What :func:`as_json` made; raises InputError for anything else, ``source`` being what messages call it."""
    if not isinstance(value, dict) or not isinstance(value.get("layers"), list):
        raise InputError(f"{source}: no schedule; {_REMEDY}")
    layers = []
    for entry in value["layers"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("layer"), str):
            raise InputError(f"{source}: a layer without a name; {_REMEDY}")
        layers.append(_layer(entry["layer"], {key: item for key, item in entry.items() if key != "layer"}, source))
    return Choices(tuple(layers), _residents(value, source))


def load_pins(path: Path) -> Choices:
    """The choices in a TOML file: a table ``[layers.NAME]`` for each layer, and ``residents`` if they are chosen, too.

    Raises InputError naming layer, key and value for whatever is wrong.
    """
    source = f"--pins {path}"
    content = toml_of(read_bytes(path, MAXIMUM_BYTES, "a file of pins", _REMEDY), source, _REMEDY)
    for name in content.keys() - {"layers", "residents"}:
        raise InputError(f"{source}: unknown key '{name}'; the keys are layers and residents ({_REMEDY})")
    tables = content.get("layers", {})
    if not isinstance(tables, dict):
        raise InputError(f"{source}: layers is {tables!r}; write a table [layers.NAME] for each layer")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InputError(f"{source}: layer '{name}' is {table!r}; write a table [layers.{name}] with {_keys()}")
    layers = tuple(_layer(name, table, source) for name, table in tables.items())
    return Choices(layers, _residents(content, source), words=("--pins", str(path)))


def _residents(content: Mapping[str, Any], source: str) -> tuple[str, ...] | None:
    names = content.get("residents")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{source}: residents is {names!r}; write a list of names of tensors")
    return tuple(names)


def _layer(name: str, values: Mapping[str, Any], source: str) -> LayerChoice:
    for key, value in values.items():
        if key not in KEYS:
            raise InputError(f"{source}: layer '{name}': unknown key '{key}'; the keys are {_keys()}")
        wrong = _wrong(key, value)
        if wrong:
            raise InputError(f"{source}: layer '{name}': {key} is {value!r}; {wrong}")
    slots = values.get("slots")
    return LayerChoice(name, **{**values, **({} if slots is None else {"slots": tuple(slots)})})


def _wrong(key: str, value: Any) -> str:
    """What a value of a key should have been; empty where it is that."""
    if key == "order":
        return "" if value in ORDERS else f"write {' or '.join(ORDERS)}: what the outer loop runs over"
    if key == "slots":
        right = isinstance(value, list | tuple) and len(value) == len(OPERANDS) and all(map(_is_count, value))
        return "" if right else f"write three numbers from 1 up, buffers of {', '.join(OPERANDS)}"
    least = 0 if key == "depth" else 1
    return "" if _is_count(value, least) else f"write a number from {least} to {MOST}"


def _is_count(value: Any, least: int = 1) -> bool:
    return type(value) is int and least <= value <= MOST


def _keys() -> str:
    return ", ".join(KEYS)
