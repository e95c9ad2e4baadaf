"""Libraries of extras: imported when something needs them, with one line that says what to install."""

from __future__ import annotations

from typing import Any

from isa.errors import InputError


def require_pandas() -> Any:
    """pandas; raises InputError where it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise InputError(
            "tables of results need pandas; install it with: pip install 'dla-byoc-simulator[sweep]'"
        ) from error
    return pandas
