"""Integers that are lines of unknown changes, so that an engine computes its own derivative.

A :class:`Line` is an int with a slope for each of several changes. Sums and differences have exact
slopes. Each comparison, and each quotient, keeps only the changes that do not alter its result
(:class:`Validity`). An engine that runs on lines thus takes the same decisions for every change
that is left, and its times are exact for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_FAR = 1 << 48
"""Difference of two times, one of which is unknown and has no slope."""


class Validity:
    """Range of each change within which all lines of a computation are exact.

    ``low`` and ``high`` are inclusive. They round to the right integers, because times are below
    ``_FAR``.
    """

    __slots__ = ("high", "low")

    def __init__(self, low: Float64, high: Float64) -> None:
        self.low = low
        self.high = high

    def keep(self, value: int, slope: Int64) -> None:
        """Keep the changes d with ``value + d * slope >= 0``; ``value`` is at least 0.

        The caller lets NumPy ignore divisions by a slope of 0.
        """
        if value >= _FAR:
            return
        bound = -value / slope
        np.maximum(self.low, bound, out=self.low, where=slope > 0)
        np.minimum(self.high, bound, out=self.high, where=slope < 0)


class Line(int):
    """Integer with a slope for each change; ``valid`` is common to all lines of a computation."""

    slope: Int64
    valid: Validity

    def __new__(cls, value: int, slope: Int64, valid: Validity) -> Line:
        """Make a line; the slopes are int64."""
        line = super().__new__(cls, value)
        line.slope = slope
        line.valid = valid
        return line

    def _combine(self, value: int, other: int, sign: int) -> Line:
        slope = self.slope + sign * other.slope if isinstance(other, Line) else self.slope
        return Line(value, slope, self.valid)

    def __add__(self, other: int) -> Line:
        """Return the sum; its slope is the sum of the slopes."""
        return self._combine(int(self) + int(other), other, 1)

    __radd__ = __add__

    def __sub__(self, other: int) -> Line:
        """Return the difference; its slope is the difference of the slopes."""
        return self._combine(int(self) - int(other), other, -1)

    def __rsub__(self, other: int) -> Line:
        """Return the difference from a number without slope."""
        return Line(int(other) - int(self), -self.slope, self.valid)

    def __mul__(self, other: int) -> Line:
        """Return the product with a number without slope."""
        return Line(int(self) * other, self.slope * other, self.valid)

    __rmul__ = __mul__

    def __divmod__(self, other: int) -> tuple[Line, Line]:
        """Return quotient and remainder by a number without slope.

        If the slope is no multiple of the divisor, the quotient stays the same.
        """
        whole, rest = divmod(int(self), other)
        slopes = np.where(self.slope % other == 0, self.slope // other, 0)
        remaining = self.slope - slopes * other
        self.valid.keep(rest, remaining)
        self.valid.keep(other - 1 - rest, -remaining)
        return Line(whole, slopes, self.valid), Line(rest, remaining, self.valid)

    def __floordiv__(self, other: int) -> Line:
        """Return the quotient of :meth:`__divmod__`."""
        return divmod(self, other)[0]

    def _is_beyond(self, other: int, least: int, sign: int = 1) -> bool:
        """Return whether ``sign`` times the difference is at least ``least``."""
        value = sign * (int(self) - int(other))
        slope = self.slope - other.slope if isinstance(other, Line) else self.slope
        found = value >= least
        beyond = value - least if found else least - 1 - value
        self.valid.keep(beyond, slope if found == (sign > 0) else -slope)
        return found

    def __gt__(self, other: int) -> bool:
        """Compare, and keep the changes with the same result."""
        return self._is_beyond(other, 1)

    def __ge__(self, other: int) -> bool:
        """Compare, and keep the changes with the same result."""
        return self._is_beyond(other, 0)

    def __lt__(self, other: int) -> bool:
        """Compare, and keep the changes with the same result."""
        return self._is_beyond(other, 1, -1)

    def __le__(self, other: int) -> bool:
        """Compare, and keep the changes with the same result."""
        return self._is_beyond(other, 0, -1)

    def __eq__(self, other: Any) -> bool:
        """Compare, and keep the changes with the same result."""
        gap = int(self) - int(other)
        if gap:
            return not self._is_beyond(other, 1, 1 if gap > 0 else -1)
        return self._is_beyond(other, 0) and self._is_beyond(other, 0, -1)

    def __ne__(self, other: Any) -> bool:
        """Compare, and keep the changes with the same result."""
        return not self == other

    def __bool__(self) -> bool:
        """Return whether the number is not 0, and keep the changes with the same result."""
        return self != 0

    __hash__ = int.__hash__
