"""Layouts on machines with packed tensors: does a consumer read bytes in the layout in which a producer wrote them?

Every byte of both memories carries a tag: the part of a tensor that its last producer wrote, and the byte's place there
in the order surfaces, positions, channels of an atom. Transfers and element-wise commands carry tags along. A consumer
reads its operand in the same order, so that the bytes of one producer are a few runs of consecutive tags: the checks
compare runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, Space, row_starts
from isa.instruction import Atoms, Command, Layout, Operands, Packed, Plain, Unit
from isa.ops.movement import side
from isa.ops.pairs import REPEAT_A, REPEAT_B
from isa.program import Tensor
from isa.sanitizer.findings import Finding, Stream, ranges_text
from isa.sanitizer.order import Order

Int64 = NDArray[np.int64]
_PLACE_BITS = 32
_PLACES = (1 << _PLACE_BITS) - 1
_UNKNOWN, _CONSTANT = 0, 1
"""The first two parts: bytes of which nothing is known, and constants, whose place is their address."""
_TENSOR, _DATA, _PADDING, _EITHER = 1, 2, 3, 4
"""Kinds of parts: a tensor in atoms, or single bytes that were moved; what a fill writes may be data or padding."""
_SMALLEST_ATOM = 8
"""Bytes; all operands but pictures consist of whole ones in all surfaces."""
_VALUES = "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS"


class _Part(NamedTuple):
    """Bytes that one producer writes: ``positions`` of ``atom`` bytes each.

    ``data`` counts the data bytes of a position over all surfaces; the others are padding. With 0 the padding is not
    known. ``producer`` is the number of the command, or of the input, counted down from -1.
    """

    kind: int
    producer: int
    atom: int = 1
    positions: int = 1
    data: int = 0
    line: bool = False


class _Operand(NamedTuple):
    """An operand as its consumer reads it; ``consumer`` is a command, or an output counted down from -1."""

    consumer: int
    access: Access
    atom: int
    positions: int
    data: int


def check_layouts(stream: Stream, operands: Sequence[Operands], order: Order) -> list[Finding]:
    """Return a finding for each read whose layout contradicts the write; none on machines without packed tensors."""
    if stream.program.arch.words is None:
        return []
    return _Layouts(stream, operands).check(order)


class _Layouts:
    """Tags of both memories, while commands are followed."""

    def __init__(self, stream: Stream, operands: Sequence[Operands]) -> None:
        program, words = stream.program, stream.program.arch.words
        assert words is not None
        self._stream, self._operands, self._words = stream, operands, words
        self._unit = _granularity(stream, operands)
        ends: dict[Space, int] = {"sram": program.arch.sram_bytes, "dram": program.dram_bytes}
        self._tags = {space: np.zeros(-(-end // self._unit), np.int64) for space, end in ends.items()}
        self._parts = np.ones((64, len(_Part._fields)), np.int64)
        self._parts[:2] = _Part(_UNKNOWN, 0)
        self._count = 2
        self._findings: list[Finding] = []
        self._constants: dict[tuple[int, int], int] = {}
        segments = sorted((one.address, one.address + one.data.size) for one in program.segments)
        self._segments = np.array(segments, np.int64).reshape(-1, 2).T

    def check(self, order: Order) -> list[Finding]:
        """Follow all commands from the inputs to the outputs."""
        program = self._stream.program
        for number, tensor in enumerate(program.inputs, start=1):
            if _is_packed(tensor):
                surfaces, positions, _ = tensor.shape
                part = _Part(_TENSOR, -number, _atom_bytes(tensor), positions, line=1 in (surfaces, positions))
                self._write(_whole(tensor), self._new(part, tensor.nbytes))
        for number in order.linear:
            self._follow(number)
        for number, tensor in enumerate(program.outputs, start=1):
            if _is_packed(tensor) and len(order.linear) == len(self._stream.commands):
                self._compare(_Operand(-number, _whole(tensor), _atom_bytes(tensor), tensor.shape[1], 0))
        self._compare_constants()
        return self._findings

    # Tags ------------------------------------------------------------------------------------------------------------

    def _new(self, part: _Part, nbytes: int) -> Int64:
        if self._count == len(self._parts):
            self._parts = np.concatenate((self._parts, np.ones_like(self._parts)))
        self._parts[self._count] = part
        self._count += 1
        begin = self._count - 1 << _PLACE_BITS
        return np.arange(begin, begin + nbytes, self._unit, dtype=np.int64)

    def _columns(self, numbers: Int64) -> Any:
        """The fields of some parts as arrays."""
        return _Part(*self._parts[numbers].T)

    def _view(self, access: Access) -> Int64:
        unit, memory = self._unit, self._tags[access.space]
        if not access.dims:
            return memory[access.address // unit : access.end // unit]
        shape, strides = zip(*access.dims, strict=True)
        steps = (*(stride // unit * 8 for stride in strides), 8)
        return np.ndarray((*shape, access.nbytes // unit), np.int64, memory, access.address // unit * 8, steps)

    def _write(self, access: Access, tags: Int64) -> None:
        view = self._view(access)
        view[...] = tags.reshape(view.shape)

    def _read(self, access: Access) -> Int64:
        if access.space == "dram":
            begins, ends = self._segments
            place = int(np.searchsorted(begins, access.address, "right")) - 1
            if place >= 0 and access.end <= ends[place]:
                starts = row_starts(access) + (_CONSTANT << _PLACE_BITS)
                return (starts[:, np.newaxis] + np.arange(0, access.nbytes, self._unit)).reshape(-1)
        return self._view(access).reshape(-1)

    # Commands --------------------------------------------------------------------------------------------------------

    def _follow(self, number: int) -> None:
        command, found = self._stream.commands[number], self._operands[number]
        packed, declared = command.instruction.packed, self._stream.operands[number]
        inside = all(
            sum(one.total > 0 for one in all_of) == len(kept)
            for all_of, kept in ((declared.reads, found.reads), (declared.writes, found.writes))
        )
        if inside and packed is not None and found.writes:
            if packed.raw:
                self._move(number, command, found)
            else:
                self._compute(number, command, packed)
        elif inside and command.unit is not Unit.EX and len(found.reads) == len(found.writes) == 1:
            self._write(found.writes[0], self._read(found.reads[0]))
        else:
            for access in found.writes:
                self._view(access)[...] = _UNKNOWN

    def _move(self, number: int, command: Command, found: Operands) -> None:
        """Single bytes in another order: what they are is known, not where in a tensor."""
        if command.fields["fill"]:
            self._write(found.writes[0], self._new(_Part(_EITHER, number), found.writes[0].total))
            return
        sources, targets = (row_starts(side(command, name)) for name in ("INPUT", "OUTPUT"))
        if len(np.unique(targets)) < len(targets):
            self._report(number, found.writes[0], "writes a byte twice in {bytes}")
        memory = self._tags["sram"]
        tags = memory[sources]
        kinds, result = self._kinds(tags), np.zeros_like(tags)
        for kind in (_DATA, _PADDING, _EITHER):
            mine = kinds == kind
            if mine.any():
                result[mine] = self._new(_Part(kind, number), 1)[0] + targets[mine]
        memory[targets] = result

    def _kinds(self, tags: Int64) -> Int64:
        """The kind of each byte once it is moved."""
        numbers, place = tags >> _PLACE_BITS, tags & _PLACES
        part = self._columns(numbers)
        held = _held(part.data, place // (part.atom * part.positions), part.atom)
        found = np.where(place % part.atom < held, _DATA, _PADDING)
        found = np.where(part.kind == _TENSOR, np.where(part.data == 0, _EITHER, found), part.kind)
        return np.where(numbers == _CONSTANT, _DATA, found)

    def _compute(self, number: int, command: Command, packed: Packed) -> None:
        arch, operands = self._stream.program.arch, self._stream.operands[number]
        layouts = packed.layouts(command, arch)
        count, (result,) = len(operands.reads), operands.writes
        same = _carrier(command, layouts, self._words.atom)
        for layout, access in zip(layouts[:count], operands.reads, strict=True):
            if not access.total:
                continue
            if not isinstance(layout, Atoms):
                if not (isinstance(layouts[0], Plain) and layout.register in _VALUES):
                    self._constant(number, access)
            elif same is None:
                atom = (layout.narrow or self._words.atom) * layout.element
                self._compare(_Operand(number, access, atom, layout.positions, layout.channels * layout.element))
        if same is not None:
            source = operands.reads[same]
            fits = source.total == result.total
            self._write(result, self._read(source) if fits else np.zeros(result.total // self._unit, np.int64))
            return
        part = _Part(_DATA, number)  # dense, from any byte on
        if isinstance(layouts[-1], Atoms):
            layout = layouts[-1]
            atom, data = (layout.narrow or self._words.atom) * layout.element, layout.channels * layout.element
            line = layout.positions == 1 or data <= atom
            part = _Part(_TENSOR, number, atom, layout.positions, data, line)
        self._write(result, self._new(part, result.total))

    # Checks ----------------------------------------------------------------------------------------------------------

    def _compare(self, operand: _Operand) -> None:
        """Report the first run of an operand that contradicts what its producer wrote."""
        tags = self._read(operand.access)
        apart = np.empty(len(tags), np.bool_)
        np.not_equal(tags[1:], tags[:-1] + self._unit, out=apart[1:])
        apart[:: operand.positions * operand.atom // self._unit] = True
        starts = np.flatnonzero(apart)
        first = tags[starts]
        length = np.diff(starts, append=len(tags)) * self._unit
        runs = _Runs(starts * self._unit, length, first >> _PLACE_BITS, first & _PLACES)
        if self._is_one_part(operand, runs):
            return
        parts = self._columns(runs.part)
        for text, wrong in (*_geometry(operand, runs, parts), *_padding(operand, runs, parts)):
            if wrong.any():
                at = int(np.flatnonzero(wrong)[0])
                row, byte = divmod(int(runs.begin[at]), operand.access.nbytes)
                begin = int(row_starts(operand.access)[row]) + byte
                found = Access(operand.access.space, begin, min(int(length[at]), operand.access.nbytes - byte))
                self._report(operand.consumer, found, text, int(parts.producer[at]))
                return

    def _is_one_part(self, operand: _Operand, runs: _Runs) -> bool:
        """Return whether one producer wrote the whole operand in its layout: a quick answer for most operands."""
        part = _Part(*self._parts[runs.part[0]].tolist())
        row, theirs, place = operand.positions * operand.atom, part.positions * part.atom, int(runs.place[0])
        surface, inside = divmod(place, theirs)
        if part.kind != _TENSOR or part.atom != operand.atom or place % part.atom or inside + row > theirs:
            return False
        same = not part.data or not operand.data or part.data - surface * part.atom == operand.data
        steps = np.arange(0, operand.access.total // row * theirs, theirs) + (int(runs.part[0]) << _PLACE_BITS) + place
        return same and np.array_equal((runs.part << _PLACE_BITS) + runs.place, steps)

    def _constant(self, number: int, access: Access) -> None:
        """Weights, records and tables are constants, one after another as in system memory."""
        tags = self._read(access)
        part, last = int(tags[0]) >> _PLACE_BITS, int(tags[-1]) >> _PLACE_BITS
        if part == last == _UNKNOWN:
            return
        if max(part, last) > _CONSTANT:
            producer = int(self._parts[max(part, last)][1])
            self._report(number, access, "reads {bytes}, which {producer} wrote, as constants", producer)
        elif (tags[1:] - tags[:-1] != self._unit).any():
            self._report(number, access, "reads constants in {bytes} that are apart in system memory")
        else:
            self._constants.setdefault((int(tags[0]) & _PLACES, int(tags[-1]) & _PLACES), number)

    def _compare_constants(self) -> None:
        """Report constants of which two operands read different parts that overlap."""
        ranges = sorted(self._constants)
        for one, other in pairwise(ranges):
            if other[0] <= one[1]:
                number, earlier = (self._constants[both] for both in (other, one))
                found = Access("dram", other[0], one[1] + self._unit - other[0])
                text = "reads constants of {bytes} in other pieces than {producer}"
                self._report(max(number, earlier), found, text, min(number, earlier))

    def _report(self, consumer: int, access: Access, text: str, producer: int | None = None) -> None:
        stream, found = self._stream, ((access.address, access.end),)
        sites = [
            stream.site(number)
            for number in sorted({consumer, consumer if producer is None else producer})
            if number >= 0
        ]
        message = text.format(
            bytes=ranges_text(access.space, found), producer=self._name(producer, stream.program.inputs)
        )
        message = f"{self._name(consumer, stream.program.outputs)} {message}"
        self._findings.append(Finding("layout mismatch", message, tuple(sites), access.space, found))

    def _name(self, number: int | None, tensors: Sequence[Tensor]) -> str:
        if number is None or number >= 0:
            return "" if number is None else str(self._stream.site(number))
        tensor = tensors[-1 - number]
        return f"{tensor.role} '{tensor.name}'"


class _Runs(NamedTuple):
    """Bytes of an operand with consecutive tags: offset in the operand, length, part, and place in the part."""

    begin: Int64
    length: Int64
    part: Int64
    place: Int64


Contradictions = Iterator[tuple[str, NDArray[np.bool_]]]


def _geometry(operand: _Operand, runs: _Runs, parts: Any) -> Contradictions:
    """Atoms, channels of an atom, surfaces and positions: what a finding says, and the runs that it is about.

    An operand may read a surface of its producer again, but not skip one, and all surfaces in the same positions.
    """
    row, atom, tensor = operand.positions * operand.atom, operand.atom, parts.kind == _TENSOR
    yield "reads {bytes} in other atoms than {producer} wrote", tensor & (parts.atom != atom)
    yield (
        "reads {bytes} as other channels of an atom than {producer} wrote",
        tensor & ((runs.begin - runs.place) % atom != 0),
    )
    surface, last = (one // (parts.positions * parts.atom) for one in (runs.place, runs.place + runs.length - 1))
    line = (parts.line != 0) & (operand.positions == 1 or operand.access.total == row)
    shift = np.where(line, runs.begin - runs.place, runs.begin // row - surface)
    across = np.where(line, 0, runs.begin % row - runs.place % (parts.positions * parts.atom))
    first = _first_of_part(runs.part)
    moved = ~line & (surface != last) | (shift < shift[first]) | (across != across[first])
    yield "reads {bytes} as other surfaces or positions than {producer} wrote", tensor & moved


def _first_of_part(parts: Int64) -> Int64:
    """The first run of each run's part."""
    numbers = parts - parts.min()
    first = np.empty(numbers.max() + 1, np.int64)
    first[numbers[::-1]] = np.arange(len(parts))[::-1]
    found: Int64 = first[numbers]
    return found


def _held(data: Any, surface: Int64, atom: Any) -> Int64:
    """Bytes of a position that hold data in a surface."""
    found: Int64 = np.maximum(np.minimum(data - surface * atom, atom), 0)
    return found


def _padding(operand: _Operand, runs: _Runs, parts: Any) -> Contradictions:
    """Padding that is read as data, and data as padding."""
    if not operand.data:
        return
    atom, inside = operand.atom, runs.begin % operand.atom
    row, ends = operand.positions * atom, inside + runs.length
    mine = _held(operand.data, runs.begin // row, atom)
    surfaces = (one // (parts.positions * parts.atom) for one in (runs.place, runs.place + runs.length - 1))
    held = [_held(parts.data, one, atom) for one in surfaces]
    known = (parts.kind == _TENSOR) & (parts.data > 0)
    less = known & (np.minimum(*held) < mine)
    yield (
        "reads {bytes}, padding of {producer}, as data",
        less | (parts.kind == _PADDING) & ((inside < mine) | (ends > atom)),
    )
    more = known & (np.maximum(*held) > mine)
    yield "reads {bytes}, data of {producer}, as padding", more | (parts.kind == _DATA) & (mine < atom) & (ends > mine)


def _carrier(command: Command, layouts: Sequence[Layout], atom: int) -> int | None:
    """Return the number of the operand whose layout the result of an element-wise command has; None if no operand."""
    if isinstance(layouts[0], Plain):
        return 0
    a, b = (command.fields.get(field.name) for field in (REPEAT_A, REPEAT_B))
    if a is None or b is None or not ({a, b} <= {0, 3} or command["EX_OUTPUT_CHANNELS"] <= atom):
        return None
    return 0 if a == 0 else 1 if b == 0 else None


def _granularity(stream: Stream, operands: Sequence[Operands]) -> int:
    """Return the largest common divisor, in bytes, of all addresses, rows and strides; 1 if a command moves bytes."""
    found = gcd(
        _SMALLEST_ATOM, *(size for tensor in stream.program.tensors for size in (tensor.address, tensor.nbytes))
    )
    for command, item in zip(stream.commands, operands, strict=True):
        if command.instruction.packed is not None and command.instruction.packed.raw:
            return 1
        for access in (*item.reads, *item.writes):
            found = gcd(found, access.address, access.nbytes, *(stride for _, stride in access.dims))
    return found


def _is_packed(tensor: Tensor) -> bool:
    return len(tensor.shape) == 3 and tensor.nbytes > 0


def _atom_bytes(tensor: Tensor) -> int:
    return tensor.shape[2] * np.dtype(tensor.dtype).itemsize


def _whole(tensor: Tensor) -> Access:
    return Access("dram", tensor.address, tensor.nbytes)
