"""How figures are written for people: sizes in powers of 1,024, everything else in powers of 1,000.

Pages do the same in ``charts/words.js``; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

BYTES = "bytes"
"""The unit whose figures are sizes."""
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LETTERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def size_text(nbytes: float, exact: bool = False) -> str:
    """``1.25 MiB``: four significant digits; with ``exact`` bytes where two decimals do not say it all."""
    for size, name in _SIZES:
        if abs(nbytes) >= size:
            share = nbytes / size
            if not exact:
                return f"{_significant(share, 4)} {name}"
            if round(share, 2) == share:
                return f"{share:,.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{nbytes:,.4g} bytes" if isinstance(nbytes, float) and not nbytes.is_integer() else f"{int(nbytes):,} bytes"


def measure(sizes: Iterable[float]) -> tuple[int, str]:
    """The bytes and the name of the unit in which numbers on an axis of such sizes are short."""
    largest = max(map(abs, sizes), default=0)
    return next(((size, name) for size, name in _SIZES if largest >= 2 * size), (1, BYTES))


def brief(value: float, unit: str = "") -> str:
    """Few characters: three significant digits and a letter for the size, or a size in bytes."""
    if unit == BYTES:
        return size_text(value)
    for size, letter in _LETTERS:
        if abs(value) >= size and abs(value) >= 1e4:
            return f"{_significant(value / size, 3)}{letter}"
    return f"{int(value):,}" if float(value).is_integer() else _significant(value, 3)


def shown(value: Any, unit: str = "", exact: bool = True) -> str:
    """A value as people read it: whole numbers with separators, four digits of others; None is nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if unit == BYTES:
        return size_text(value, exact)
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.4g}"


def _significant(value: float, digits: int) -> str:
    """Without an exponent, however large."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"
