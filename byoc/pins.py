"""Choices of schedules as files have them: pins that somebody writes in TOML, and plain values in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from byoc.choices import ORDERS, Choices, GroupChoice, LayerChoice
from isa.errors import InputError
from isa.reading import read_bytes, toml_of

KEYS = tuple(item.name for item in fields(LayerChoice) if item.name != "layer")
"""What can be chosen of a layer."""
GROUP_KEYS = tuple(item.name for item in fields(GroupChoice))
"""What is chosen of a group."""
OPERANDS = ("input", "constants", "output")
"""What ``slots`` counts the buffers of, in this order."""
MAXIMUM_BYTES = 1 << 20
MOST = 1 << 20
"""The largest number in a file."""
_REMEDY = "docs/tuning.md shows such a file"


def of_json(value: Any, source: str) -> Choices:
    """What :func:`byoc.choices.as_json` made; raises InputError for anything else, which messages call ``source``."""
    if not isinstance(value, dict) or not isinstance(value.get("layers"), list):
        raise InputError(f"{source}: no schedule; {_REMEDY}")
    layers = []
    for entry in value["layers"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("layer"), str):
            raise InputError(f"{source}: a layer without a name; {_REMEDY}")
        layers.append(_layer(entry["layer"], {key: item for key, item in entry.items() if key != "layer"}, source))
    return Choices(tuple(layers), _residents(value, source), _groups(value, source))


def load_pins(path: Path) -> Choices:
    """The choices in a TOML file: a table ``[layers.NAME]`` for each layer, a table ``[[groups]]`` for each group, and
    ``residents`` if they are chosen, too.

    Raises InputError naming layer, key and value for whatever is wrong.
    """
    source = f"--pins {path}"
    content = toml_of(read_bytes(path, MAXIMUM_BYTES, "a file of pins", _REMEDY), source, _REMEDY)
    for name in content.keys() - {"layers", "residents", "groups"}:
        raise InputError(f"{source}: unknown key '{name}'; the keys are layers, residents and groups ({_REMEDY})")
    tables = content.get("layers", {})
    if not isinstance(tables, dict):
        raise InputError(f"{source}: layers is {tables!r}; write a table [layers.NAME] for each layer")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InputError(f"{source}: layer '{name}' is {table!r}; write a table [layers.{name}] with {_keys()}")
    layers = tuple(_layer(name, table, source) for name, table in tables.items())
    return Choices(layers, _residents(content, source), _groups(content, source), words=("--pins", str(path)))


def _residents(content: Mapping[str, Any], source: str) -> tuple[str, ...] | None:
    names = content.get("residents")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{source}: residents is {names!r}; write a list of names of tensors")
    return tuple(names)


def _groups(content: Mapping[str, Any], source: str) -> tuple[GroupChoice, ...] | None:
    tables = content.get("groups")
    if tables is None:
        return None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{source}: groups is {tables!r}; write a table [[groups]] for each group")
    return tuple(_group(table, source) for table in tables)


_GROUP_LISTS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "layers": ("names of layers", lambda value: isinstance(value, str)),
    "kept": ("names of tensors", lambda value: isinstance(value, str)),
    "channels": ("numbers from 1 up, one a layer", lambda value: _is_count(value)),
    "held": ("true or false, one a layer", lambda value: isinstance(value, bool)),
}


def _group(values: Mapping[str, Any], source: str) -> GroupChoice:
    for key, value in values.items():
        if key not in GROUP_KEYS:
            raise InputError(f"{source}: a group: unknown key '{key}'; the keys are {', '.join(GROUP_KEYS)}")
        if key in ("rows", "slots"):
            least = 0 if key == "rows" else 1
            if not _is_count(value, least):
                raise InputError(f"{source}: a group: {key} is {value!r}; write a number from {least} to {MOST}")
            continue
        what, right = _GROUP_LISTS[key]
        if not isinstance(value, list | tuple) or not all(map(right, value)):
            raise InputError(f"{source}: a group: {key} is {value!r}; write a list of {what}")
    if not values.get("layers") or "rows" not in values:
        raise InputError(f"{source}: a group without layers or rows; {_REMEDY}")
    rest = {key: tuple(value) for key, value in values.items() if key in _GROUP_LISTS and key != "layers"}
    return GroupChoice(tuple(values["layers"]), values["rows"], **rest, slots=values.get("slots"))


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
