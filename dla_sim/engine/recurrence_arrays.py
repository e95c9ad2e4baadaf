"""Arrays that describe a program, its Timings and its runs to :mod:`dla_sim.engine.recurrence`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import CAUSES
from isa.instruction import KINDS

Int64 = NDArray[np.int64]

WINDOW = 128
"""Largest distance in the stream of two commands whose overlap in time can be recorded."""
PORTS = 4


class ProgramArrays(NamedTuple):
    """Properties of a program's commands under all Timings of a bus width.

    Attributes:
        commands: rows ``UNIT`` to ``TOUCHED`` of the commands and of ``OP_END``. ``PLACE`` is a
            command's number among those of its unit. ``MEMBER`` lists the commands by unit.
            ``BANK_LOAD`` is the index of a bank load, or -1. ``TOUCHED`` are the words of a
            transfer in the banks ``LOW_BANK`` to ``HIGH_BANK``; 0 if it delays nothing.
        loads: rows ``CYCLES`` (minimum) and ``BEGIN`` (in ``banks``) of the bank loads.
        banks: rows ``BANK`` and ``NEEDED`` (words) of the banks of the loads.
        near: commands that access memory, by unit.
        bounds: where each unit begins in ``MEMBER`` and in ``near``, and the end.
    """

    commands: Int64
    loads: Int64
    banks: Int64
    near: Int64
    bounds: Int64


class BatchResult(NamedTuple):
    """Result of a program under many Timings.

    Attributes:
        totals: cycles and cycles in which a unit executes; -1 if a Timing must run by itself.
        kinds: cycles in which EX executes, by kind.
        causes: cycles by unit and cause.
        times: arrival, start and end of each command.
        changed: 1 for commands that execute at the same time as another one for the first time.
    """

    totals: Int64
    kinds: Int64
    causes: Int64
    times: Int64
    changed: NDArray[np.uint8]


class RunState(NamedTuple):
    """State of one run: processor and bus, units, bus ports, chunks, and needs of EX by bank."""

    machine: Int64
    units: Int64
    ports: Int64
    chunks: Int64
    needs: Int64


def make_result(timings: int, commands: int) -> BatchResult:
    """Return an empty result."""
    return BatchResult(
        np.zeros((timings, 2), dtype=np.int64),
        np.zeros((timings, len(KINDS)), dtype=np.int64),
        np.zeros((timings, 3, len(CAUSES)), dtype=np.int64),
        np.zeros((timings, 3, commands), dtype=np.int64),
        np.zeros(commands, dtype=np.uint8),
    )


def make_state(program: ProgramArrays, chunks: int) -> RunState:
    """Return the state of a run with at most ``chunks`` chunks of command words."""
    sizes = (16, (3, 6), (PORTS, 12), (2, chunks + 1), program.banks.shape[1])
    return RunState(*(np.zeros(size, dtype=np.int64) for size in sizes))
