"""Roles: what part of a layer's cycles each command is, by what it moves or computes. Independent of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isa.instruction import Command, Operands, Unit
from isa.program import Program

PARTS = ("compute", "scratchpad", "weights", "input", "bus", "store", "issue")
"""Parts of a layer's cycles (docs/machine.md, section 7)."""
COMPUTE, SCRATCHPAD, WEIGHTS, INPUT, BUS, STORE, ISSUE = range(len(PARTS))


def roles(program: Program, commands: Sequence[Command], operands: Sequence[Operands]) -> NDArray[np.int64]:
    """The part of each command: ``COMPUTE``, ``WEIGHTS``, ``INPUT``, ``STORE``, or ``ISSUE`` for ``OP_SYNC``.

    A load is one of weights (or other constants) if its first byte lies in a segment of the program and in no tensor.
    """
    units = np.array([command.unit.value for command in commands], dtype=np.int64)
    found = np.where(units == Unit.EX.value, COMPUTE, STORE)
    found[np.array([command.instruction.unit is None for command in commands], dtype=np.bool_)] = ISSUE
    loads = np.flatnonzero((units == Unit.LD.value) & (found != ISSUE))
    first = np.array([operands[number].reads[0].address for number in loads.tolist()], dtype=np.int64)
    constants = _within(first, [(segment.address, segment.data.size) for segment in program.segments])
    tensors = _within(first, [(tensor.address, tensor.nbytes) for tensor in program.tensors])
    found[loads] = np.where(constants & ~tensors, WEIGHTS, INPUT)
    return found


def _within(addresses: NDArray[np.int64], ranges: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Whether each address lies in one of the ranges (address, bytes)."""
    start, size = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    offset = addresses[:, None] - start
    return np.asarray(((offset >= 0) & (offset < size)).any(axis=1), dtype=np.bool_)
