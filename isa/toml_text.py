"""What stands in a TOML file, given as a dict: as the text of that file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from numbers import Integral
from typing import Any

from isa.errors import InputError


def toml_text(values: Mapping[str, Any], source: str) -> str:
    """A key a line, tables within it inline; numbers may be NumPy's, lists also tuples and ranges.

    Raises InputError, which begins with ``source``, for what TOML does not have.
    """
    try:
        return "".join(f"{json.dumps(key)} = {_value(key, value, source)}\n" for key, value in values.items())
    except RecursionError as error:
        raise InputError(f"{source}: lists or tables are nested too deep, or in themselves") from error


def _value(key: str, value: Any, source: str) -> str:
    if isinstance(value, Mapping):
        inside = (f"{json.dumps(name)} = {_value(name, inner, source)}" for name, inner in value.items())
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, str | bool | float):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, list | tuple | range):
        return f"[{', '.join(_value(key, inner, source) for inner in value)}]"
    raise InputError(f"{source}: {key} is a {type(value).__name__}; give a text, a number, a list or a table of them")
