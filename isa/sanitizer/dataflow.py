"""Check for reads of unwritten bytes and for results that no command reads.

Commands are followed in an order that respects happens-before. Without races every such order gives
the same findings; a race is a finding itself.

- Unwritten bytes: one flag per byte says whether it contains data.
- Unused results: no byte of a write is read before it is overwritten, or ever. Such a stream
  probably reads a wrong address elsewhere. The check is one-sided: a result counts as unused only
  if a single access overwrites it entirely, so every reported result is unused, but some unused
  results are not reported.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, Range, Space, overlap
from isa.encoding import decode_set
from isa.instruction import Operands
from isa.program import Tensor
from isa.sanitizer.findings import CommandStream, SanitizerFinding, ranges_text
from isa.sanitizer.order import Order

Flags = NDArray[np.bool_]


def check_unwritten(
    stream: CommandStream, operands: Sequence[Operands], order: Order
) -> list[SanitizerFinding]:
    """Return findings for reads of bytes without data and for outputs that are never written.

    Each byte is reported once. Inputs, constants, given bytes and command words contain data from
    the start; the scratchpad contains none. Outputs are checked only if all commands complete. All
    accesses must be inside the memories.
    """
    written = _initial(stream, operands)
    findings: list[SanitizerFinding] = []
    for number in order.linear:
        for access in operands[number].reads:
            flags = access.view(written[access.space])
            if not flags.all():
                findings.append(
                    _make_unwritten_finding(
                        stream, number, access, _find_missing(written[access.space], access)
                    )
                )
                flags[...] = True
        for access in operands[number].writes:
            access.view(written[access.space])[...] = True
    if len(order.linear) == len(stream.commands):
        findings += _check_unwritten_outputs(stream.program.outputs, written["dram"])
    return findings


def _initial(stream: CommandStream, operands: Sequence[Operands]) -> dict[Space, Flags]:
    program = stream.program
    accesses = (
        access
        for item in operands
        for access in (*item.reads, *item.writes)
        if access.space == "sram"
    )
    highest = max((access.end for access in accesses), default=0)
    dram = np.zeros(program.dram_bytes, dtype=np.bool_)
    parts = [(tensor.address, tensor.nbytes) for tensor in program.inputs]
    parts += [
        (segment.address, segment.data.size) for segment in (*program.segments, *stream.given)
    ]
    for address, nbytes in [*parts, (program.command_address, 8 * len(program.words))]:
        dram[address : address + nbytes] = True
    return {"sram": np.zeros(highest, dtype=np.bool_), "dram": dram}


def _find_missing(memory: Flags, access: Access) -> tuple[Range, ...]:
    """Return the byte ranges that an access touches and that have no data yet."""
    touched = np.zeros(access.end, dtype=np.bool_)
    access.view(touched)[...] = True
    return _runs(touched[access.address :] & ~memory[access.address : access.end], access.address)


def _runs(flags: Flags, base: int) -> tuple[Range, ...]:
    """Return maximal runs of true flags as half-open byte ranges.

    Flag 0 is byte ``base``.
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))) + base
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _make_unwritten_finding(
    stream: CommandStream, number: int, access: Access, missing: tuple[Range, ...]
) -> SanitizerFinding:
    site = stream.site(number)
    message = f"{site} reads {ranges_text(access.space, missing)} that nothing has written"
    return SanitizerFinding("read of unwritten bytes", message, (site,), access.space, missing)


def _check_unwritten_outputs(outputs: Sequence[Tensor], dram: Flags) -> list[SanitizerFinding]:
    findings = []
    for tensor in outputs:
        missing = _runs(~dram[tensor.address : tensor.address + tensor.nbytes], tensor.address)
        if missing:
            message = f"output '{tensor.name}': nothing writes {ranges_text('dram', missing)}"
            findings.append(SanitizerFinding("output not written", message, (), "dram", missing))
    return findings


def check_unused(
    stream: CommandStream, operands: Sequence[Operands], order: Order
) -> list[SanitizerFinding]:
    """Return a finding for each result that no command reads.

    ``order`` is the order of the commands.

    The host reads the outputs at the end.
    """
    memories: dict[Space, _Pending] = {"sram": _Pending(), "dram": _Pending()}
    unused: list[tuple[int, Access]] = []
    for number in order.linear:
        for access in operands[number].reads:
            memories[access.space].read(access)
        for access in operands[number].writes:
            unused += memories[access.space].write(number, access)
    for tensor in stream.program.outputs:
        memories["dram"].read(Access("dram", tensor.address, tensor.nbytes))
    if len(order.linear) == len(stream.commands):
        unused += [item for memory in memories.values() for item in memory.list_remaining()]
    return [
        _make_unused_finding(stream, number, access)
        for number, access in sorted(unused, key=lambda item: item[0])
    ]


class _Pending:
    """Command results in one memory that no command has read yet."""

    def __init__(self) -> None:
        self._items: list[tuple[int, Access]] = []
        self._hulls = np.zeros((2, 64), dtype=np.int64)
        self._count = 0

    def read(self, access: Access) -> None:
        """Remove the results that overlap the bytes of a read."""
        for place in self._find_near(access):
            other = self._items[place][1]
            if (not access.dims and not other.dims) or overlap(access, other):
                self._hulls[:, place] = 0

    def write(self, number: int, access: Access) -> list[tuple[int, Access]]:
        """Add a result; remove and return the earlier results that it overwrites entirely."""
        covered = [
            place
            for place in self._find_near(access)
            if _has_all_bytes_of(access, self._items[place][1])
        ]
        self._hulls[:, covered] = 0
        lost = [self._items[place] for place in covered]
        self._put(number, access)
        return lost

    def list_remaining(self) -> list[tuple[int, Access]]:
        return [
            self._items[place] for place in np.flatnonzero(self._hulls[1, : self._count]).tolist()
        ]

    def _find_near(self, access: Access) -> list[int]:
        low, high = self._hulls[:, : self._count]
        places: list[int] = np.flatnonzero((low < access.end) & (high > access.address)).tolist()
        return places

    def _put(self, number: int, access: Access) -> None:
        if self._count == self._hulls.shape[1]:
            self._compact()
        self._hulls[:, self._count] = access.address, access.end
        self._items.append((number, access))
        self._count += 1

    def _compact(self) -> None:
        """Drop removed results; double the capacity if more than half of the entries remain."""
        kept = np.flatnonzero(self._hulls[1, : self._count])
        room = self._hulls.shape[1] * (2 if 2 * len(kept) > self._count else 1)
        hulls = np.zeros((2, room), dtype=np.int64)
        hulls[:, : len(kept)] = self._hulls[:, kept]
        self._items = [self._items[place] for place in kept.tolist()]
        self._hulls = hulls
        self._count = len(kept)


def _has_all_bytes_of(access: Access, other: Access) -> bool:
    """Return True if one access certainly covers every byte of another."""
    if (access.address, access.nbytes, access.dims) == (other.address, other.nbytes, other.dims):
        return True
    return not access.dims and access.address <= other.address and other.end <= access.end


def _make_unused_finding(stream: CommandStream, number: int, access: Access) -> SanitizerFinding:
    site = stream.site(number)
    hull = (access.address, access.end)
    message = f"nothing reads what {site} writes to {ranges_text(access.space, [hull])}"
    return SanitizerFinding("unused result", message, (site,), access.space, (hull,))


# Registers
# An operation on a size that no SET has written is suspicious. A stream omits a SET of a value that
# a register already contains, including its reset value: address 0 and one channel are valid
# without a SET. A size of 0 is not, because the operation then does nothing.

SIZES = ("LD_BYTES", "ST_BYTES", "EX_LENGTH")
"""Registers whose reset value is not useful: bytes per row, elements of an operation."""


def check_registers(stream: CommandStream) -> list[SanitizerFinding]:
    """Return a finding for each command that reads a size register before its first SET.

    :data:`SIZES` has the size registers.
    """
    readers = [
        (number, register)
        for number, command in enumerate(stream.commands)
        for register in SIZES
        if command.registers.get(register) == 0
    ]
    if not readers:
        return []
    first = _first_sets(stream)
    findings = []
    for number, register in readers:
        site = stream.site(number)
        if site.word < first.get(register, len(stream.program.words)):
            message = (
                f"{site} reads {register}, which no SET has written; its reset value 0 makes it do "
                "nothing"
            )
            findings.append(SanitizerFinding("unset register", message, (site,)))
    return findings


def _first_sets(stream: CommandStream) -> dict[str, int]:
    """Return for each register the position of the SET word that sets it first."""
    first: dict[str, int] = {}
    operations = {command.index for command in stream.program.commands}
    file = stream.program.variant.register_file
    for index, word in enumerate(stream.program.words.tolist()):
        if index not in operations:
            first.setdefault(decode_set(word, index, file)[0], index)
    return first
