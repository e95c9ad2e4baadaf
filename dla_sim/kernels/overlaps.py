"""Whether a command's result may be written while its operands are still being read."""

from __future__ import annotations

from collections.abc import Sequence

Range = tuple[int, int]
"""First byte and one past the last."""


def all_apart(output: Range, reads: Sequence[Range]) -> bool:
    """Whether no byte of ``output`` is in any of ``reads``."""
    return all(end <= output[0] or output[1] <= first for first, end in reads)


def highest(*ranges: Range) -> int:
    """One past the highest byte of the ranges."""
    return max(end for _, end in ranges)
