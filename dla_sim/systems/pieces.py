"""A program in pieces: what runs before a command, what keeps the scratchpad meanwhile, and what goes on from there.

When a program gives way before a command (docs/systems.md, 4), its machine drains. The bytes of the scratchpad that are
still to be read are *live*: the program ``save`` stores them behind the program's system memory. ``resume`` loads them
again, sets the registers, counts the tokens that were there, and goes on with the words that are left. All three are
programs like any other: any executor runs them, on data as on time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isa.access import Access
from isa.encoding import decode_set, encode_operation, encode_set
from isa.instruction import Operands, Unit
from isa.ops.control import OP_END, OP_SYNC
from isa.ops.dma import OP_DMA_READ, OP_DMA_WRITE
from isa.program import Program, Provenance, Tensor
from isa.variants import SET_OPCODE

CONTEXT = "context"
"""The layer of what saves and restores the scratchpad."""
_ROLES: tuple[Literal["input"], Literal["output"]] = ("input", "output")
_LINE = 64
"""Bytes to which live ranges are widened, and gaps that are not worth a command of their own."""


@dataclass(frozen=True)
class Piece:
    """How a program gives way before command ``stop`` and goes on.

    ``live`` are half-open byte ranges of the scratchpad. ``first`` is the command of ``resume`` that is the program's
    command ``stop``; ``save`` and ``resume`` use ``program.dram_bytes`` and more of the program's system memory.
    """

    stop: int
    live: tuple[tuple[int, int], ...]
    save: Program
    resume: Program
    first: int


def boundaries(program: Program, *, tiles: bool) -> tuple[int, ...]:
    """The commands before which EX goes on to another layer or, with ``tiles``, to another tile; not the first one."""
    found: list[int] = []
    before: tuple[str, int] | None = None
    for number, (command, source) in enumerate(zip(program.commands, program.sources, strict=True)):
        if command.unit is not Unit.EX or source is None or command.instruction.unit is None:
            continue
        here = (source.layer, source.tile if tiles else 0)
        if before is not None and here != before:
            found.append(number)
        before = here
    return tuple(found)


class Interruptible:
    """A program and the commands before which it may give way, ``stops``, ascending; pieces are made when asked for."""

    def __init__(self, program: Program, stops: Sequence[int]) -> None:
        self.program, self.stops = program, tuple(stops)
        self._made: dict[int, Piece] = {}

    @cached_property
    def _live(self) -> dict[int, tuple[tuple[int, int], ...]]:
        commands, arch = self.program.commands[:-1], self.program.arch
        operands = [command.instruction.operands(command, arch) for command in commands]
        return _live_ranges(operands, self.stops, arch.sram_bytes)

    def live_bytes(self, stop: int) -> int:
        """Bytes of the scratchpad that giving way before ``stop`` saves, and going on restores."""
        return sum(high - low for low, high in self._live[stop])

    def piece(self, stop: int) -> Piece:
        """The piece of one of :attr:`stops`."""
        if stop not in self._made:
            registers = _registers_before(self.program, stop)
            self._made[stop] = _piece(self.program, stop, self._live[stop], registers, _tokens_left(self.program, stop))
        return self._made[stop]


def on_memory(program: Program, dram_bytes: int) -> Program:
    """``program`` on ``dram_bytes`` of system memory that it is given and gives back, as the tensors of that name.

    The input tensor ``memory`` and the output tensor ``memory`` are all of it, int8; the program has no images.
    """
    tensors = tuple(Tensor("memory", role, "int8", (dram_bytes,), 0) for role in _ROLES)
    address = _up(dram_bytes)  # of the words, which are not for the program to see
    return replace(
        program, tensors=tensors, segments=(), command_address=address, dram_bytes=address + 8 * len(program.words)
    )


def leave(program: Program, piece: Piece) -> Program:
    """The commands before ``piece.stop`` and those of ``piece.save`` in one program, for executors that keep no
    scratchpad between programs: ST saves once LD and EX have done everything.
    """
    stop = piece.stop
    last = _word_after(program, stop)
    left = _tokens_left(program, stop)
    from_ld, from_ex = left[Unit.LD, "next"], left[Unit.EX, "next"]
    drain = [
        _sync(Unit.LD, push_next=1),
        *[_sync(Unit.EX, pop_previous=1)] * (from_ld + 1),
        _sync(Unit.EX, push_next=1),
        *[_sync(Unit.ST, pop_previous=1)] * (from_ex + 1),
    ]
    reset = program.variant.register_file.reset
    drain += [encode_set(name, reset[name]) for name in OP_DMA_WRITE.registers]
    words = np.concatenate([program.words[:last], np.array(drain, dtype=np.uint64), piece.save.words])
    provenance = tuple(replace(one, last=min(one.last, last)) for one in program.provenance if one.first < last)
    return replace(program, words=words, provenance=provenance)


def _word_after(program: Program, stop: int) -> int:
    """The first word that the command before ``stop`` leaves over."""
    return program.commands[stop - 1].index + 1 if stop else 0


def _up(address: int) -> int:
    return -(-address // _LINE) * _LINE


def _live_ranges(
    operands: Sequence[Operands], stops: Sequence[int], sram_bytes: int
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Ranges of the scratchpad that commands from each stop on read before they write them, in lines."""
    wanted, found = set(stops), {}
    mask = np.zeros(_up(sram_bytes), dtype=np.bool_)
    for number in range(len(operands) - 1, min(stops, default=0) - 1, -1):
        for accesses, value in ((operands[number].writes, False), (operands[number].reads, True)):
            for access in accesses:
                if access.space == "sram" and access.total:
                    _bytes_of(mask, access)[...] = value
        if number in wanted:
            lines: NDArray[np.bool_] = np.any(mask.reshape(-1, _LINE), axis=1)
            found[number] = _ranges(lines, sram_bytes)
    return found


def _bytes_of(mask: NDArray[np.bool_], access: Access) -> NDArray[np.bool_]:
    """A view of the bytes that an access touches."""
    shape = (*(count for count, _ in access.dims), access.nbytes)
    strides = (*(stride for _, stride in access.dims), 1)
    return np.lib.stride_tricks.as_strided(mask[access.address :], shape, strides)


def _ranges(lines: NDArray[np.bool_], sram_bytes: int) -> tuple[tuple[int, int], ...]:
    """Half-open byte ranges of the lines that are True."""
    edges = np.flatnonzero(np.diff(lines.astype(np.int8), prepend=0, append=0)) * _LINE
    return tuple((low, min(high, sram_bytes)) for low, high in edges.reshape(-1, 2).tolist())


def _registers_before(program: Program, stop: int) -> dict[str, int]:
    """The registers that differ from their reset values."""
    file = program.variant.register_file
    words = enumerate(program.words[: _word_after(program, stop)].tolist())
    registers = dict(decode_set(word, index, file) for index, word in words if word >> 56 == SET_OPCODE)
    return {name: value for name, value in registers.items() if value != file.reset[name]}


_GIVER = {
    (Unit.EX, "previous"): (Unit.LD, "next"), (Unit.LD, "next"): (Unit.EX, "previous"),
    (Unit.ST, "previous"): (Unit.EX, "next"), (Unit.EX, "next"): (Unit.ST, "previous"),
}  # fmt: skip
"""Whose push, and to which side, a pop from a side takes."""


def _tokens_left(program: Program, stop: int) -> Counter[tuple[Unit, str]]:
    """How often each unit has pushed to the side named what no command before ``stop`` has popped."""
    tokens: Counter[tuple[Unit, str]] = Counter()
    for command in program.commands[:stop]:
        for side, pops, pushes in (
            ("previous", command.pop_previous, command.push_previous),
            ("next", command.pop_next, command.push_next),
        ):
            if pops:
                tokens[_GIVER[command.unit, side]] -= 1
            if pushes:
                tokens[command.unit, side] += 1
    return +tokens


def _piece(
    program: Program,
    stop: int,
    live: tuple[tuple[int, int], ...],
    registers: dict[str, int],
    tokens: Counter[tuple[Unit, str]],
) -> Piece:
    context = _up(program.dram_bytes)
    end = _up(context + sum(high - low for low, high in live))
    save = _program(program, [*_moves(Unit.ST, live, context)], (), end)
    prologue, first = _prologue(program, live, registers, tokens, context)
    return Piece(stop, live, save, _program(program, prologue, _rest(program, stop), end), first)


def _rest(program: Program, stop: int) -> tuple[NDArray[np.uint64], tuple[Provenance, ...]]:
    """The words from ``stop`` on, and their provenance, counted from the first of them."""
    first = _word_after(program, stop)
    provenance = tuple(
        replace(one, first=max(one.first - first, 0), last=one.last - first)
        for one in program.provenance
        if one.last > first
    )
    return program.words[first:], provenance


def _program(
    program: Program,
    prologue: Sequence[int],
    rest: tuple[()] | tuple[NDArray[np.uint64], tuple[Provenance, ...]],
    address: int,
) -> Program:
    """``prologue`` and what is left of ``program``, or ``OP_END``; the words lie at ``address``."""
    words, provenance = rest or (np.array([encode_operation(OP_END, {})], dtype=np.uint64), ())
    moved = tuple(replace(one, first=one.first + len(prologue), last=one.last + len(prologue)) for one in provenance)
    mine = Provenance(0, len(prologue), CONTEXT, OP_DMA_READ.kind, CONTEXT, 0)
    stream = np.concatenate([np.array(prologue, dtype=np.uint64), words])
    return replace(
        program, words=stream, provenance=(mine, *moved) if prologue else moved,
        command_address=address, dram_bytes=address + 8 * len(stream),
    )  # fmt: skip


def _moves(unit: Unit, live: Iterable[tuple[int, int]], context: int) -> Iterable[int]:
    """The words that move the live ranges between scratchpad and context: LD restores, ST saves."""
    for low, high in live:
        yield encode_set(f"{unit.name}_DRAM_ADDRESS", context)
        yield encode_set(f"{unit.name}_SRAM_ADDRESS", low)
        yield encode_set(f"{unit.name}_BYTES", high - low)
        yield encode_operation(OP_DMA_READ if unit is Unit.LD else OP_DMA_WRITE, {})
        context += high - low


def _prologue(
    program: Program,
    live: tuple[tuple[int, int], ...],
    registers: dict[str, int],
    tokens: Counter[tuple[Unit, str]],
    context: int,
) -> tuple[list[int], int]:
    """The words before the rest, and how many commands they are.

    EX and ST must not start before the scratchpad is as it was: a token from LD goes through EX to ST.
    """
    words = list(_moves(Unit.LD, live, context))
    commands = len(live)
    syncs: list[int] = []
    if live:
        syncs = [
            _sync(Unit.LD, push_next=1),
            _sync(Unit.EX, pop_previous=1, push_next=1),
            _sync(Unit.ST, pop_previous=1),
        ]
        file = program.variant.register_file
        used = {f"LD_{name}" for name in ("DRAM_ADDRESS", "SRAM_ADDRESS", "BYTES")}
        registers = {name: file.reset[name] for name in sorted(used)} | registers
    for (unit, side), count in sorted(tokens.items(), key=lambda item: (item[0][0].value, item[0][1])):
        syncs += [_sync(unit, **{f"push_{side}": 1})] * count
    words += syncs
    words += [encode_set(name, value, program.variant.register_file) for name, value in registers.items()]
    return words, commands + len(syncs)


def _sync(unit: Unit, **flags: int) -> int:
    return encode_operation(OP_SYNC, {"unit": unit.value, **flags})
