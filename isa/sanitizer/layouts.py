"""Check that every command reads and writes the bytes that the program's data flow states.

:mod:`isa.dataflow` has the statements.

Every byte of both memories has a tag: the number of a byte of a value, or of a constant. Transfers
and movements copy tags. A computation must find the tags of its stated inputs, in the order in
which it reads them, and writes those of its result. Stated movements say which bytes are copies of
others.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

import numpy as np

from isa.access import Access, Space, row_starts
from isa.dataflow import CONSTANT, FILL, ByteMovement, Computation, Dataflow, Extent
from isa.instruction import Atoms, Command, OperandLayout, Plain, Unit
from isa.ops.convolution import MAPPING
from isa.ops.movement import DIMENSIONS
from isa.program import Program
from isa.sanitizer.findings import CommandStream, SanitizerFinding, ranges_text
from isa.sanitizer.order import Order
from isa.sanitizer.tags import TaggedBytes, Tags, all_tags

_TOTAL = attrgetter("total")
_LARGEST_UNIT = 64
"""Maximum bytes per tag."""
_UNKNOWN = 0
_FILLS = 1
"""Tag of a byte 0 that a movement writes; the tags of the 255 other values follow."""
_CONSTANTS = _FILLS + 256
"""Tag of a constant at address 0."""


def check_layouts(stream: CommandStream, order: Order) -> list[SanitizerFinding]:
    """Return a finding for each command that reads other bytes than the data flow states.

    None without statements.

    All operands must be inside their memories.
    """
    flow = stream.program.dataflow
    return (
        []
        if flow is None or stream.program.arch.words is None
        else _Layouts(stream, flow).check(order)
    )


def is_unchecked(program: Program) -> bool:
    """Return True if a program has layouts but states no data flow.

    Its layouts cannot be checked then.
    """
    return program.arch.words is not None and program.dataflow is None


class _Layouts:
    """Simulated memory that records, command by command, which tensor byte each address holds."""

    def __init__(self, stream: CommandStream, flow: Dataflow) -> None:
        program = stream.program
        self._stream = stream
        self._flow = flow
        self._stated = {one.command: one for one in flow.computations}
        self._unit = unit = _granularity(stream, flow)
        sizes = np.array([_CONSTANTS * unit + program.dram_bytes, *flow.values], np.int64)
        self._first: list[int] = np.cumsum(-(-sizes // unit)).tolist()
        self._type = np.dtype(np.int32 if self._first[-1] < 1 << 31 else np.int64)
        ends: dict[Space, int] = {"sram": program.arch.sram_bytes, "dram": program.dram_bytes}
        self._memories = {space: TaggedBytes(end, unit, self._type) for space, end in ends.items()}
        self._values = {CONSTANT: TaggedBytes(program.dram_bytes, unit, self._type, _CONSTANTS)}
        for number, (nbytes, first) in enumerate(zip(flow.values, self._first, strict=False)):
            self._values[number] = TaggedBytes(nbytes, unit, self._type, first)
        self._writers: dict[int, int] = {}
        self._constants: dict[tuple[int, int], int] = {}
        self._findings: list[SanitizerFinding] = []

    def check(self, order: Order) -> list[SanitizerFinding]:
        """Follow all commands from the inputs to the outputs and return the findings."""
        program = self._stream.program
        unit = self._unit
        for one in self._flow.movements:
            self._state_movement(one)
        places = [
            (
                tensor,
                Access("dram", tensor.address, tensor.nbytes),
                Extent(value, begin, tensor.nbytes),
            )
            for tensor, (value, begin) in zip(program.tensors, self._flow.tensors, strict=True)
        ]
        for tensor, access, extent in places:
            if tensor.role == "input":
                self._write(access, self._list_expected_tags(extent))
        for segment in program.segments:
            begin = -(-segment.address // unit) * unit
            end = (segment.address + segment.data.size) // unit * unit
            self._memories["dram"].put(begin, end, _CONSTANTS + begin // unit)
        for number in order.linear:
            self._follow(number)
        for tensor, access, extent in places:
            if tensor.role == "output" and len(order.linear) == len(self._stream.commands):
                self._compare(None, access, extent, f"output '{tensor.name}'")
        self._compare_constants()
        return self._findings

    # Tags

    def _state_movement(self, one: ByteMovement) -> None:
        """Copy the tags of the source value to the target value, as ``one`` copies their bytes."""
        run, dims = _runs_of(one)
        target = one.target_begin, run, tuple((count, step) for count, _, step in dims)
        if one.source == FILL:
            self._values[one.target].fill(*target, _FILLS + (one.source_begin & 0xFF))
            return
        source = one.source_begin, run, tuple((count, step) for count, step, _ in dims)
        self._values[one.target].write(*target, self._values[one.source].read(*source))

    def _list_expected_tags(self, extent: Extent) -> Tags:
        """Return the tags of the bytes of ``extent``, in the order that the data flow states."""
        return self._values[extent.value].read(extent.begin, extent.nbytes, extent.dims)

    def _read(self, access: Access) -> Tags:
        return self._memories[access.space].read(access.address, access.nbytes, access.dims)

    def _write(self, access: Access, tags: Tags) -> None:
        self._memories[access.space].write(access.address, access.nbytes, access.dims, tags)

    def _fill(self, access: Access, tag: int) -> None:
        self._memories[access.space].fill(access.address, access.nbytes, access.dims, tag)

    # Commands

    def _follow(self, number: int) -> None:
        command = self._stream.commands[number]
        operands = self._stream.operands[number]
        packed = command.instruction.packed
        stated = self._stated.get(number)
        if not any(map(_TOTAL, operands.writes)):
            return
        if command.unit is not Unit.EX:
            self._write(operands.writes[0], self._read(operands.reads[0]))
        elif packed is not None and packed.raw:
            self._move(number, command)
        elif packed is not None and stated is not None:
            self._compute(number, command, stated)
        else:
            for access in operands.writes:
                self._fill(access, _UNKNOWN)

    def _move(self, number: int, command: Command) -> None:
        run, dims = _split_copy(command)
        target = Access(
            "sram",
            command["EX_OUTPUT_ADDRESS"],
            run,
            tuple((count, step) for count, _, step in dims),
        )
        if _has_overlapping_rows(target):
            self._report(number, target, "writes a byte twice in {bytes}")
        if command.fields["fill"]:
            self._fill(target, _FILLS + (command["EX_INPUT_ZERO_POINT"] & 0xFF))
            return
        source = Access(
            "sram",
            command["EX_INPUT_ADDRESS"],
            run,
            tuple((count, step) for count, step, _ in dims),
        )
        self._write(target, self._read(source))

    def _compute(self, number: int, command: Command, stated: Computation) -> None:
        operands = self._stream.operands[number]
        reads = dict(stated.reads)
        (result,) = operands.writes
        for layout, access in zip(operands.layouts[:-1], operands.reads, strict=True):
            if layout.register in reads:
                self._compare(number, access, reads[layout.register])
            elif access.total:
                overlaps = isinstance(layout, Plain) and layout.offset > 0
                self._constant(number, access, overlaps=overlaps)
        for text in _contradictions(command, stated, operands.layouts):
            self._report(number, result, text)
        if stated.result.total == result.total:
            self._writers.setdefault(stated.result.value, number)
            self._write(result, self._list_expected_tags(stated.result))
        else:
            self._report(
                number,
                result,
                f"writes {{bytes}}, where the program states {stated.result.total} bytes",
            )
            self._fill(result, _UNKNOWN)

    # Checks

    def _compare(self, number: int | None, access: Access, extent: Extent, who: str = "") -> None:
        """Report the first bytes of an operand that differ from the stated data flow."""
        if access.total != extent.total:
            self._report(
                number,
                access,
                f"reads {{bytes}}, where the program states {extent.total} bytes",
                who=who,
            )
            return
        found = self._read(access)
        stated = self._list_expected_tags(extent)
        if isinstance(found, int) and isinstance(stated, int) and found == stated:
            return
        tags, expected = (
            all_tags(one, access.total // self._unit, self._type) for one in (found, stated)
        )
        if np.array_equal(tags, expected):
            return
        wrong = np.flatnonzero(tags != expected)
        row, place = divmod(int(wrong[0]) * self._unit, access.nbytes)
        begin = access.address + place
        for count, stride in reversed(access.dims):
            row, step = divmod(row, count)
            begin += step * stride
        there = int(tags[wrong[0]])
        wanted = int(expected[wrong[0]])
        text = (
            f"reads {{bytes}}, {self._format_tag(there)}, where the program states "
            f"{self._format_tag(wanted)}"
        )
        self._report(
            number, Access(access.space, begin, self._unit), text, self._writer(there), who
        )

    def _constant(self, number: int, access: Access, *, overlaps: bool) -> None:
        """Check that an operand with weights, records or tables has constants.

        Their addresses in system memory must be consecutive. With ``overlaps``, the operand is part
        of a table, and the parts that commands read may overlap.
        """
        count = access.total // self._unit
        tags = self._read(access)
        single = None if isinstance(tags, int) else tags.reshape(-1)
        first, last = (
            (tags, tags + count - 1) if isinstance(tags, int) else map(int, tags.flat[[0, -1]])
        )
        if not _CONSTANTS <= min(first, last) <= max(first, last) < self._first[0]:
            text = f"reads {{bytes}} as constants, which begin with {self._format_tag(first)}"
            self._report(number, access, text, self._writer(first))
        elif single is not None and (single[1:] - single[:-1] != 1).any():
            self._report(
                number, access, "reads constants in {bytes} that are apart in system memory"
            )
        elif not overlaps:
            self._constants.setdefault((first, last), number)

    def _compare_constants(self) -> None:
        """Report constants that two operands divide into different, overlapping parts."""
        for one, other in pairwise(sorted(self._constants)):
            if other[0] <= one[1]:
                number, earlier = (self._constants[both] for both in (other, one))
                begin = (other[0] - _CONSTANTS) * self._unit
                found = Access("dram", begin, (one[1] + 1 - other[0]) * self._unit)
                text = "reads constants of {bytes} in other pieces than another command"
                self._report(number, found, text, earlier)

    # Messages

    def _value(self, tag: int) -> tuple[int, int]:
        """Return the value that a byte's tag stands for, and the byte's position in the value."""
        value = int(np.searchsorted(self._first, tag, "right")) - 1
        return value, (tag - self._first[value]) * self._unit

    def _writer(self, tag: int) -> int | None:
        """Return the first command that writes the value for which a byte's tag stands, or None."""
        return self._writers.get(self._value(tag)[0]) if tag >= self._first[0] else None

    def _format_tag(self, tag: int) -> str:
        """Return a byte's tag as text for a message."""
        if tag < _FILLS:
            return "bytes of no value"
        if tag < _CONSTANTS:
            return "bytes that OP_PERMUTE fills"
        if tag < self._first[0]:
            return f"the constant at {(tag - _CONSTANTS) * self._unit:#x}"
        value, byte = self._value(tag)
        for tensor, (number, begin) in zip(
            self._stream.program.tensors, self._flow.tensors, strict=True
        ):
            if number == value and 0 <= byte - begin < tensor.nbytes:
                return f"byte {byte - begin} of {tensor.role} '{tensor.name}'"
        writer = self._writers.get(value)
        return f"byte {byte} of " + (
            f"value {value}" if writer is None else f"what {self._stream.site(writer)} writes"
        )

    def _report(
        self, number: int | None, access: Access, text: str, other: int | None = None, who: str = ""
    ) -> None:
        found = ((access.address, access.end),)
        sites = tuple(
            self._stream.site(one)
            for one in sorted({one for one in (number, other) if one is not None})
        )
        reporter = who if number is None else str(self._stream.site(number))
        message = f"{reporter} {text.format(bytes=ranges_text(access.space, found))}"
        self._findings.append(
            SanitizerFinding("layout mismatch", message, sites, access.space, found)
        )


def _contradictions(
    command: Command, stated: Computation, layouts: Sequence[OperandLayout]
) -> Iterator[str]:
    """Yield the differences between a command and the program's data flow.

    They are about channels and weights.

    The statements are about channels and weights.
    """
    for layout, channels in zip((layouts[0], layouts[-1]), stated.channels, strict=True):
        if isinstance(layout, Atoms) and channels and layout.channels != channels:
            name = "reads" if layout is layouts[0] else "writes"
            yield (
                f"{name} {layout.channels} channels, where the program states {channels}, to "
                f"{{bytes}}"
            )
    if command.fields.get(MAPPING.name, 0) != stated.mapping:
        yield (
            f"has another mapping than its weights, which are in the order of {stated.mapping}, "
            f"and writes {{bytes}}"
        )


def _runs_of(one: ByteMovement) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the contiguous bytes and other dimensions of a copy that the data flow states.

    For a fill, source and target are both the result's bytes.
    """
    return _runs(
        [(count, target, target) for count, _, target in one.dims]
        if one.source == FILL
        else one.dims
    )


def _split_copy(command: Command) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the contiguous bytes of a copy command, and its other dimensions.

    A dimension is (count, source stride, result stride).
    """
    read = "OUTPUT" if command.fields["fill"] else "INPUT"
    dims = [
        (
            command[f"EX_COUNT_{n}"],
            command[f"EX_{read}_STRIDE_{n}"],
            command[f"EX_OUTPUT_STRIDE_{n}"],
        )
        for n in reversed(DIMENSIONS)
        if command[f"EX_COUNT_{n}"] != 1
    ]
    return _runs(tuple(dims))


def _runs(dims: Sequence[Sequence[int]]) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the bytes of a copy that are contiguous on both sides, and its other dimensions.

    The outermost dimension is first.
    """
    run = 1
    others = [(count, source, target) for count, source, target in dims if count != 1]
    while True:
        dense = next((dim for dim in others if dim[1] == dim[2] == run), None)
        if dense is None:
            return run, others
        others.remove(dense)
        run *= dense[0]


def _has_overlapping_rows(access: Access) -> bool:
    """Return True if rows of an access overlap."""
    extent = access.nbytes
    for count, stride in sorted(access.dims, key=lambda dim: dim[1]):
        if stride < extent:
            starts = np.sort(row_starts(access))
            return bool((np.diff(starts) < access.nbytes).any())
        extent += (count - 1) * stride
    return False


def _granularity(stream: CommandStream, flow: Dataflow) -> int:
    """Return the largest power of two that divides all addresses and strides of a program.

    Runs count as strides.

    Those that the program states are included.
    """
    bits = _LARGEST_UNIT
    for tensor, (_, begin) in zip(stream.program.tensors, flow.tensors, strict=True):
        bits |= tensor.address | tensor.nbytes | begin
    for one in flow.movements:
        run, dims = _runs_of(one)
        bits |= run | one.target_begin | (0 if one.source == FILL else one.source_begin)
        for _, source, target in dims:
            bits |= source | target
    for stated in flow.computations:
        for extent in (stated.result, *(extent for _, extent in stated.reads)):
            bits |= extent.begin | extent.nbytes
            for _, stride in extent.dims:
                bits |= stride
    for command, item in zip(stream.commands, stream.operands, strict=True):
        for access in (*item.reads, *item.writes):
            bits |= access.address | access.nbytes
            for _, stride in access.dims:
                bits |= stride
        if command.instruction.packed is not None and command.instruction.packed.raw:
            run, dims = _split_copy(command)
            bits |= run
    return bits & -bits
