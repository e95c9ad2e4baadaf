"""A golden case: one program on given inputs under one Timing, and everything that was observed when it ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from isa.program import Program, Segment

LEVELS: Mapping[str, str] = {
    "L0": "passthrough: each instruction alone, on values that can be followed by hand",
    "L1": "common shapes of networks, on every shape of the array, and common streams of commands",
    "L2": "corners: smallest and largest values, odd strides, wide padding, saturation, ties, what must be refused",
    "L10": "seeded random instructions on random machines",
    "networks": "whole networks as the compiler has emitted them",
}
"""The levels of a corpus, in the order in which they are checked."""


@dataclass(frozen=True, eq=False)
class Case:
    """What is to run. ``name`` is ``LEVEL/words-with-hyphens``; ``inputs`` are the bytes of each input tensor.

    ``timing`` are the values of a ``dla_sim.timing.Timing``. With ``contents`` the bytes that each command writes are
    kept, without it only their CRC-32 and the outputs. ``words`` replace those of the program: they need not be legal,
    for a case of what the machine must refuse.
    """

    name: str
    description: str
    program: Program
    inputs: Mapping[str, bytes]
    timing: Mapping[str, int] = field(default_factory=dict)
    contents: bool = True
    words: NDArray[np.uint64] | None = None

    @property
    def level(self) -> str:
        """The level that the case belongs to."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class CommandRecord:
    """One operation as it ran. Cycles are ``[start, end)``.

    ``reads`` and ``writes`` are the CRC-32 of its operands as in a commit log (``dla simulate --log``): with commas
    between them, ``-`` for none; None where the command never executed, or stopped the machine. ``content`` are the
    bytes written, None where only their sum is kept; ``written`` counts them.
    """

    word: int
    text: str
    start: int
    end: int
    reads: str | None
    writes: str | None
    written: int
    content: bytes | None


@dataclass(frozen=True)
class Cycles:
    """The cycles of a whole run: ``units`` by cause and ``kinds`` both sum to ``total``, unit by unit."""

    total: int
    units: Mapping[str, Mapping[str, int]]
    kinds: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Record:
    """What was observed.

    ``refused`` is the reason why the machine did not run the program; then there is nothing else. ``stopped`` says
    which command raised what where an instruction stopped the machine; then there are no ``outputs``. ``totals`` are
    multiply-accumulates, bytes, words and operations.
    """

    refused: str | None = None
    stopped: str | None = None
    commands: tuple[CommandRecord, ...] = ()
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    cycles: Cycles = field(default_factory=lambda: Cycles(0, {}, {}))
    totals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StoredCase:
    """A case as it lies in a corpus, before anything of it is assembled or decoded.

    ``assembly`` is the program's text without memory images, ``words`` its command words as they were encoded when it
    was recorded.
    """

    name: str
    description: str
    isa: str
    assembly: str
    words: NDArray[np.uint64]
    images: tuple[Segment, ...]
    inputs: Mapping[str, bytes]
    timing: Mapping[str, int]
    contents: bool
    record: Record

    @property
    def level(self) -> str:
        """The level that the case belongs to."""
        return self.name.partition("/")[0]
