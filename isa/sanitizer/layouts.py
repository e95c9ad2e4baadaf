"""Check that every command reads and writes the bytes of its values that the program states (:mod:`isa.dataflow`).

Every byte of both memories has a tag: the number of a byte of a value, or of a constant. Transfers and movements copy
tags. A computation must find the tags of its stated inputs, in the order in which it reads them, and writes those of
its result. Stated movements say which bytes are copies of others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, Space, row_starts
from isa.dataflow import CONSTANT, FILL, Computation, Dataflow, Extent, Movement
from isa.instruction import Atoms, Command, OperandLayout, Packed, Unit
from isa.ops.convolution import MAPPING
from isa.ops.movement import DIMENSIONS
from isa.sanitizer.findings import Finding, Stream, ranges_text
from isa.sanitizer.order import Order

Tags = NDArray[Any]
_LARGEST_UNIT = 64
"""Maximum bytes per tag."""
_UNKNOWN = 0
_FILLS = 1
"""Tag of a byte 0 that a movement writes; the tags of the 255 other values follow."""
_CONSTANTS = _FILLS + 256
"""Tag of a constant at address 0."""


def check_layouts(stream: Stream, order: Order) -> list[Finding]:
    """Return a finding for each command that reads other bytes than the program states; none without statements.

    All operands must be inside their memories.
    """
    flow = stream.program.dataflow
    return [] if flow is None or stream.program.arch.words is None else _Layouts(stream, flow).check(order)


class _Layouts:
    """Tags of both memories while commands are followed."""

    def __init__(self, stream: Stream, flow: Dataflow) -> None:
        program = stream.program
        self._stream, self._flow = stream, flow
        self._stated = {one.command: one for one in flow.computations}
        self._unit = _granularity(stream, flow)
        ends: dict[Space, int] = {"sram": program.arch.sram_bytes, "dram": program.dram_bytes}
        sizes = np.array([_CONSTANTS * self._unit + program.dram_bytes, *flow.values], np.int64)
        self._first = np.cumsum(-(-sizes // self._unit)).tolist()
        self._type = np.dtype(np.int32 if self._first[-1] < 1 << 31 else np.int64)
        self._tags = {space: np.zeros(-(-end // self._unit), self._type) for space, end in ends.items()}
        segments = sorted((one.address, one.address + one.data.size) for one in program.segments)
        self._segments = [begin for begin, _ in segments], [end for _, end in segments]
        self._writers: dict[int, int] = {}
        self._moved = self._find_moved()
        self._constants: dict[tuple[int, int], int] = {}
        self._findings: list[Finding] = []

    def check(self, order: Order) -> list[Finding]:
        """Follow all commands from the inputs to the outputs and return the findings."""
        program = self._stream.program
        places = [
            (tensor, Access("dram", tensor.address, tensor.nbytes), Extent(value, begin, tensor.nbytes))
            for tensor, (value, begin) in zip(program.tensors, self._flow.tensors, strict=True)
        ]
        for tensor, access, extent in places:
            if tensor.role == "input":
                self._view(access)[...] = self._expected(extent)
        for number in order.linear:
            self._follow(number)
        for tensor, access, extent in places:
            if tensor.role == "output" and len(order.linear) == len(self._stream.commands):
                self._compare(f"output '{tensor.name}'", None, access, extent)
        self._compare_constants()
        return self._findings

    # Tags ------------------------------------------------------------------------------------------------------------

    def _find_moved(self) -> dict[int, Tags]:
        """Return the tags of values that movements write: the tags of the bytes that they copy."""
        found: dict[int, Tags] = {}
        for one in self._flow.movements:
            if one.target not in found:
                found[one.target] = self._numbers(one.target, self._flow.values[one.target])
            runs, unit = _runs_of(one), self._unit
            if one.source == FILL:
                tags = np.array(_FILLS + (one.source_begin & 0xFF))
            elif one.source == CONSTANT:
                tags = _CONSTANTS + _places(one.source_begin, runs, 0, unit)
            else:
                source = found.get(one.source)
                places = _places(one.source_begin, runs, 0, unit)
                tags = self._first[one.source] + places if source is None else source[places]
            found[one.target][_places(one.target_begin, runs, 1, unit)] = tags
        return found

    def _numbers(self, value: int, nbytes: int) -> Tags:
        return np.arange(self._first[value], self._first[value] - -nbytes // self._unit, dtype=self._type)

    def _expected(self, extent: Extent) -> Tags:
        """Return the tags of stated bytes, in order."""
        unit, moved = self._unit, self._moved.get(extent.value)
        first = 0 if moved is not None else _CONSTANTS if extent.value == CONSTANT else self._first[extent.value]
        begin = first + extent.begin // unit
        places = np.arange(begin, begin + extent.nbytes // unit, dtype=self._type)
        for count, stride in reversed(extent.dims):
            steps = np.arange(count, dtype=self._type) * (stride // unit)
            places = (steps[:, np.newaxis] + places).reshape(-1)
        return places if moved is None else moved[places]

    def _view(self, access: Access) -> Tags:
        unit, memory, size = self._unit, self._tags[access.space], self._type.itemsize
        if not access.dims:
            return memory[access.address // unit : access.end // unit]
        shape, strides = zip(*access.dims, strict=True)
        steps = (*(stride // unit * size for stride in strides), size)
        return np.ndarray((*shape, access.nbytes // unit), self._type, memory, access.address // unit * size, steps)

    def _loaded(self, access: Access) -> Tags:
        """Return the tags that a transfer reads; for a constant, the tags of its address."""
        begins, ends = self._segments
        place = bisect_right(begins, access.address) - 1
        if access.space == "dram" and place >= 0 and access.end <= ends[place]:
            return self._expected(Extent(CONSTANT, access.address, access.nbytes, access.dims))
        return self._view(access)

    # Commands --------------------------------------------------------------------------------------------------------

    def _follow(self, number: int) -> None:
        command, operands = self._stream.commands[number], self._stream.operands[number]
        packed, stated = command.instruction.packed, self._stated.get(number)
        if not any(access.total for access in operands.writes):
            return
        if command.unit is not Unit.EX:
            view = self._view(operands.writes[0])
            view[...] = self._loaded(operands.reads[0]).reshape(view.shape)
        elif packed is not None and packed.raw:
            self._move(number, command)
        elif packed is not None and stated is not None:
            self._compute(number, command, packed, stated)
        else:
            for access in operands.writes:
                self._view(access)[...] = _UNKNOWN

    def _move(self, number: int, command: Command) -> None:
        run, dims = _copied(command)
        target = Access("sram", command["EX_OUTPUT_ADDRESS"], run, tuple((count, step) for count, _, step in dims))
        if _meets_itself(target):
            self._report(str(self._stream.site(number)), number, target, "writes a byte twice in {bytes}")
        if command.fields["fill"]:
            self._view(target)[...] = _FILLS + (command["EX_INPUT_ZERO_POINT"] & 0xFF)
            return
        source = Access("sram", command["EX_INPUT_ADDRESS"], run, tuple((count, step) for count, step, _ in dims))
        self._view(target)[...] = self._view(source)

    def _compute(self, number: int, command: Command, packed: Packed, stated: Computation) -> None:
        declared, reads = self._stream.operands[number], dict(stated.reads)
        layouts = packed.layouts(command, self._stream.program.arch)
        who, (result,) = str(self._stream.site(number)), declared.writes
        for layout, access in zip(layouts[: len(declared.reads)], declared.reads, strict=True):
            if layout.register in reads:
                self._compare(who, number, access, reads[layout.register])
            elif access.total:
                self._constant(who, number, access)
        for text in _contradictions(command, stated, layouts):
            self._report(who, number, result, text)
        expected = self._expected(stated.result)
        if expected.size * self._unit == result.total:
            self._writers.setdefault(stated.result.value, number)
            view = self._view(result)
            view[...] = expected.reshape(view.shape)
        else:
            self._report(who, number, result, f"writes {{bytes}}, where the program states {expected.size} bytes")
            self._view(result)[...] = _UNKNOWN

    # Checks ----------------------------------------------------------------------------------------------------------

    def _compare(self, who: str, number: int | None, access: Access, extent: Extent) -> None:
        """Report the first bytes of an operand that differ from the stated ones."""
        tags, expected = self._view(access).reshape(-1), self._expected(extent)
        if np.array_equal(tags, expected):
            return
        if tags.size != expected.size:
            text = f"reads {{bytes}}, where the program states {expected.size * self._unit} bytes"
            self._report(who, number, access, text)
            return
        wrong = np.flatnonzero(tags != expected)
        row, place = divmod(int(wrong[0]) * self._unit, access.nbytes)
        begin = access.address + place
        for count, stride in reversed(access.dims):
            row, step = divmod(row, count)
            begin += step * stride
        there, wanted = int(tags[wrong[0]]), int(expected[wrong[0]])
        text = f"reads {{bytes}}, {self._named(there)}, where the program states {self._named(wanted)}"
        self._report(who, number, Access(access.space, begin, self._unit), text, self._writer(there))

    def _constant(self, who: str, number: int, access: Access) -> None:
        """Check that weights, records or tables are constants with consecutive addresses in system memory."""
        tags = self._view(access).reshape(-1)
        first, last = int(tags[0]), int(tags[-1])
        if not _CONSTANTS <= min(first, last) <= max(first, last) < self._first[0]:
            text = f"reads {{bytes}} as constants, which begin with {self._named(first)}"
            self._report(who, number, access, text, self._writer(first))
        elif (tags[1:] - tags[:-1] != 1).any():
            self._report(who, number, access, "reads constants in {bytes} that are apart in system memory")
        else:
            self._constants.setdefault((first, last), number)

    def _compare_constants(self) -> None:
        """Report constants that two operands divide into different, overlapping parts."""
        for one, other in pairwise(sorted(self._constants)):
            if other[0] <= one[1]:
                number, earlier = (self._constants[both] for both in (other, one))
                begin = (other[0] - _CONSTANTS) * self._unit
                found = Access("dram", begin, (one[1] + 1 - other[0]) * self._unit)
                text = "reads constants of {bytes} in other pieces than another command"
                self._report(str(self._stream.site(number)), number, found, text, earlier)

    # Messages --------------------------------------------------------------------------------------------------------

    def _value(self, tag: int) -> tuple[int, int]:
        """Return the value of a tag, and the byte in it."""
        value = int(np.searchsorted(self._first, tag, "right")) - 1
        return value, (tag - self._first[value]) * self._unit

    def _writer(self, tag: int) -> int | None:
        """Return the first command that writes the value of a tag, or None."""
        return self._writers.get(self._value(tag)[0]) if tag >= self._first[0] else None

    def _named(self, tag: int) -> str:
        """Return a tag as text for a message."""
        if tag < _FILLS:
            return "bytes of no value"
        if tag < _CONSTANTS:
            return "bytes that OP_PERMUTE fills"
        if tag < self._first[0]:
            return f"the constant at {(tag - _CONSTANTS) * self._unit:#x}"
        value, byte = self._value(tag)
        for tensor, (number, begin) in zip(self._stream.program.tensors, self._flow.tensors, strict=True):
            if number == value and 0 <= byte - begin < tensor.nbytes:
                return f"byte {byte - begin} of {tensor.role} '{tensor.name}'"
        writer = self._writers.get(value)
        return f"byte {byte} of " + (f"value {value}" if writer is None else f"what {self._stream.site(writer)} writes")

    def _report(self, who: str, number: int | None, access: Access, text: str, other: int | None = None) -> None:
        found = ((access.address, access.end),)
        sites = tuple(self._stream.site(one) for one in sorted({one for one in (number, other) if one is not None}))
        message = f"{who} {text.format(bytes=ranges_text(access.space, found))}"
        self._findings.append(Finding("layout mismatch", message, sites, access.space, found))


def _contradictions(command: Command, stated: Computation, layouts: Sequence[OperandLayout]) -> Iterator[str]:
    """Yield the differences between a command and the program's statements about its channels and weights."""
    for layout, channels in zip((layouts[0], layouts[-1]), stated.channels, strict=True):
        if isinstance(layout, Atoms) and channels and layout.channels != channels:
            name = "reads" if layout is layouts[0] else "writes"
            yield f"{name} {layout.channels} channels, where the program states {channels}, to {{bytes}}"
    if command.fields.get(MAPPING.name, 0) != stated.mapping:
        yield f"has another mapping than its weights, which are in the order of {stated.mapping}, and writes {{bytes}}"


def _runs_of(one: Movement) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the stated copy; for a fill, source and target are both the result's bytes."""
    return _runs([(count, target, target) for count, _, target in one.dims] if one.source == FILL else one.dims)


def _copied(command: Command) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the contiguous bytes of a movement, and its other dimensions (count, source stride, result stride)."""
    read = "OUTPUT" if command.fields["fill"] else "INPUT"
    dims = [
        (command[f"EX_COUNT_{n}"], command[f"EX_{read}_STRIDE_{n}"], command[f"EX_OUTPUT_STRIDE_{n}"])
        for n in reversed(DIMENSIONS)
        if command[f"EX_COUNT_{n}"] != 1
    ]
    return _runs(tuple(dims))


def _runs(dims: Sequence[Sequence[int]]) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the bytes that are contiguous on both sides of a copy, and the other dimensions, outermost first."""
    run, others = 1, [(count, source, target) for count, source, target in dims if count != 1]
    while True:
        dense = next((dim for dim in others if dim[1] == dim[2] == run), None)
        if dense is None:
            return run, others
        others.remove(dense)
        run *= dense[0]


def _places(begin: int, runs: tuple[int, list[tuple[int, int, int]]], side: int, unit: int) -> Tags:
    """Return the units of one side of a copy, in copy order."""
    run, dims = runs
    places = np.arange(begin // unit, (begin + run) // unit, dtype=np.int64)
    for dim in reversed(dims):
        places = (np.arange(dim[0])[:, np.newaxis] * (dim[1 + side] // unit) + places).reshape(-1)
    return places


def _meets_itself(access: Access) -> bool:
    """Return True if rows of an access overlap."""
    extent = access.nbytes
    for count, stride in sorted(access.dims, key=lambda dim: dim[1]):
        if stride < extent:
            starts = np.sort(row_starts(access))
            return bool((np.diff(starts) < access.nbytes).any())
        extent += (count - 1) * stride
    return False


def _granularity(stream: Stream, flow: Dataflow) -> int:
    """Return the greatest common divisor, in bytes, of all addresses, runs and strides, including stated ones."""
    found = _LARGEST_UNIT
    for tensor, (_, begin) in zip(stream.program.tensors, flow.tensors, strict=True):
        found = gcd(found, tensor.address, tensor.nbytes, begin)
    for one in flow.movements:
        run, dims = _runs_of(one)
        begins = (one.target_begin,) if one.source == FILL else (one.target_begin, one.source_begin)
        found = gcd(found, run, *begins, *(side for dim in dims for side in dim[1:]))
    for stated in flow.computations:
        for extent in (stated.result, *(extent for _, extent in stated.reads)):
            found = gcd(found, extent.begin, extent.nbytes, *(stride for _, stride in extent.dims))
    for command, item in zip(stream.commands, stream.operands, strict=True):
        if command.instruction.packed is not None and command.instruction.packed.raw:
            run, dims = _copied(command)
            found = gcd(found, run, *(side for dim in dims for side in dim[1:]))
            found = gcd(found, *(access.address for access in (*item.reads, *item.writes)))
            continue
        for access in (*item.reads, *item.writes):
            found = gcd(found, access.address, access.nbytes, *(stride for _, stride in access.dims))
    return found
