"""Every key of a machine as its declaration has it: table, values, default, unit and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from dla_sim.timing import Timing
from isa.arch import Arch

Table = Literal["arch", "timing"]


@dataclass(frozen=True)
class Setting:
    """One key: what programs depend on is in table ``arch``, what changes only cycles in ``timing``.

    ``values`` says what it may be, ``unit`` is empty for words, ``words`` are its name in plain words.
    """

    key: str
    table: Table
    values: str
    default: int | str | None
    unit: str
    meaning: str
    words: str


def declared_settings() -> tuple[Setting, ...]:
    """Every key that a setting or a preset's file can have, in the order of the declarations."""
    return (*_declared(Arch, "arch"), *_declared(Timing, "timing"))


def _declared(model: type[BaseModel], table: Table, prefix: str = "") -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        kind, extra = field.annotation, field.json_schema_extra
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _declared(kind, table, f"{prefix}{name}.")
            continue
        rules = {end: getattr(rule, end) for rule in field.metadata for end in ("ge", "le") if hasattr(rule, end)}
        unit = str(extra["unit"]) if isinstance(extra, dict) else ""
        values, meaning = _values(kind, rules), field.description or ""
        yield Setting(f"{prefix}{name}", table, values, field.default, unit, meaning, field.title or "")


def _values(kind: Any, rules: Mapping[str, Any]) -> str:
    """What a key of that type may be, in words."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if kind is str:
        return "text"
    limits = f"integer, {rules['ge']} to {rules['le']}"
    return f"{limits}, or none" if NoneType in get_args(kind) else limits
