"""Cases as files that ``harness.cpp`` reads: 64-bit little-endian numbers, and bytes padded to multiples of eight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.rtl.simulator.case import COUNTED, Bytes, Case, Run, Write, layers_of
from isa.access import Access
from isa.program import Program

_MAGIC = int.from_bytes(b"DLACASE1", "little")
_NONE = (1 << 64) - 1
SLACK = 4096
"""Cycles that the hardware may take more than expected before it is given up, beside as many as expected."""
UNKNOWN_LIMIT = 1 << 33
"""Cycles after which a program is given up of which nothing is expected."""


def case_bytes(case: Case, straps: Mapping[str, int], order: Sequence[str]) -> bytes:
    """The file of ``case`` for an executable whose open straps are ``order``."""
    return b"".join(_parts(case, [straps[name] for name in order]))


def _parts(case: Case, straps: Sequence[int]) -> Iterator[bytes]:
    program, expected = case.program, case.expected
    limit = UNKNOWN_LIMIT if expected is None else 2 * expected.trace.cycles + SLACK
    used = program.arch.sram_bytes
    yield _numbers(_MAGIC, len(straps), *straps)
    yield _numbers(program.command_address, len(program.words), program.dram_bytes, used, limit)
    yield from _runs(_images(case))
    yield from _runs(case.before.sram)
    yield _pairs(constant_ranges(program))
    yield _pairs((tensor.address, tensor.address + tensor.nbytes) for tensor in program.outputs)
    if expected is None:
        yield _numbers(_NONE, _NONE, _NONE, *[0] * (3 * len(COUNTED)), 0)
        return
    stopper = _NONE if expected.stopper is None else expected.stopper
    until = _NONE if expected.until is None else expected.until
    yield _numbers(expected.trace.cycles, stopper, until, *expected.causes.reshape(-1).tolist())
    yield from _commands(case)


def _commands(case: Case) -> Iterator[bytes]:
    expected = case.expected
    assert expected is not None
    trace, numbers = expected.trace, {name: number for number, name in enumerate(layers_of(case.program))}
    starts, ends = trace.times.start.tolist(), trace.times.end.tolist()
    yield _numbers(len(trace.commands))
    for number, command in enumerate(trace.commands):
        source = trace.sources[number]
        layer = (1 << 32) - 1 if source is None else numbers[source.layer]
        yield _numbers(command.unit.value, command.index, layer, starts[number], ends[number])
        yield _numbers(len(expected.writes[number]))
        for write in expected.writes[number]:
            yield from _write(write)


def _write(write: Write) -> Iterator[bytes]:
    access: Access = write.access
    yield _numbers(int(access.space == "dram"), access.address, access.nbytes)
    yield _pairs(access.dims)
    yield from _bytes(write.content)


def _images(case: Case) -> Iterator[Run]:
    """What the system memory holds before, later ones over earlier ones."""
    program = case.program
    yield from ((segment.address, segment.data) for segment in program.segments)
    yield program.command_address, program.words.astype("<u8").view(np.uint8)
    for tensor in program.inputs:
        yield tensor.address, np.ascontiguousarray(case.inputs[tensor.name]).view(np.uint8).reshape(-1)
    yield from case.before.dram


def constant_ranges(program: Program) -> list[tuple[int, int]]:
    """Half-open ranges of system memory that hold constants: segments of the program, less its tensors."""
    edges = {address for first, end in _segments(program) + _tensors(program) for address in (first, end)}
    found: list[tuple[int, int]] = []
    ordered = sorted(edges)
    for first, end in pairwise(ordered):
        inside = [
            any(low <= first < high for low, high in ranges) for ranges in (_segments(program), _tensors(program))
        ]
        if inside == [True, False]:
            found.append((first, end))
    return found


def _segments(program: Program) -> list[tuple[int, int]]:
    return [(segment.address, segment.address + segment.data.size) for segment in program.segments]


def _tensors(program: Program) -> list[tuple[int, int]]:
    return [(tensor.address, tensor.address + tensor.nbytes) for tensor in program.tensors]


def _numbers(*values: int) -> bytes:
    return np.array(values, dtype="<u8").tobytes()


def _pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    listed = list(pairs)
    return _numbers(len(listed), *(number for pair in listed for number in pair))


def _runs(runs: Iterable[Run]) -> Iterator[bytes]:
    listed = list(runs)
    yield _numbers(len(listed))
    for address, content in listed:
        yield _numbers(address)
        yield from _bytes(content)


def _bytes(content: Bytes | NDArray[Any]) -> Iterator[bytes]:
    yield _numbers(content.size)
    yield np.ascontiguousarray(content).tobytes()
    yield bytes(-content.size % 8)
