"""Work of a job, stage by stage: programs on one machine, cut into pieces where they are preempted.

When a program is preempted before a command (docs/systems.md, 4), its machine drains. Scratchpad
bytes that later commands still read are *live*. The program ``save`` stores them after the
program's system memory. The program ``resume`` loads them again, restores registers and tokens, and
continues with the remaining words. The piece before the command, ``save`` and ``resume`` are
ordinary programs, so that any executor runs them, with data or for timing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.times import compute_times
from dla_sim.engine.workload import Workload, continue_demands
from dla_sim.prepared import prepare
from dla_sim.presets import Preset
from dla_sim.systems.spec import Preemption
from isa.encoding import decode_set, encode_operation, encode_set
from isa.instruction import Operands, Unit
from isa.ops.control import OP_END, OP_SYNC
from isa.ops.dma import OP_DMA_READ, OP_DMA_WRITE
from isa.program import Program, Provenance, Tensor
from isa.variants import SET_OPCODE

CONTEXT = "context"
"""Layer name of the commands that save and restore the scratchpad."""
_ROLES: tuple[Literal["input"], Literal["output"]] = ("input", "output")
_LINE = 64
"""Granularity of live ranges in bytes: skipping a shorter gap is not worth a separate command."""


@dataclass(frozen=True, eq=False)
class PreemptedProgram:
    """Preemption of ``program`` before command ``stop``, and the programs that continue it.

    ``live`` are half-open byte ranges of the scratchpad. ``save`` and ``resume`` use system memory
    from ``program.dram_bytes`` on. ``restore`` is the beginning of ``resume`` as a separate
    program.
    """

    program: Program
    stop: int
    live: tuple[tuple[int, int], ...]
    save: Program
    restore: Program

    @property
    def first(self) -> int:
        """Number in ``resume`` of the command at which the program was preempted."""
        return len(self.restore.commands) - 1

    @cached_property
    def resume(self) -> Program:
        """Program that restores the scratchpad and runs the commands from ``stop`` on."""
        begun = _word_after(self.program, self.stop)
        restore = self.restore
        lead = len(restore.words) - 1
        provenance = tuple(
            replace(one, first=max(one.first - begun, 0) + lead, last=one.last - begun + lead)
            for one in self.program.provenance
            if one.last > begun
        )
        words = np.concatenate([restore.words[:-1], self.program.words[begun:]])
        return replace(
            restore, words=words, provenance=(*restore.provenance, *provenance),
            dram_bytes=restore.command_address + 8 * len(words),
        )  # fmt: skip


def boundaries(program: Program, *, tiles: bool) -> tuple[int, ...]:
    """Return the EX commands that begin another layer or, with ``tiles``, another tile.

    The first command is not among them.
    """
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


class Preemptible:
    """Program with the commands before which it may be preempted, in ascending order."""

    def __init__(self, program: Program, stops: Sequence[int]) -> None:
        self.program = program
        self.stops = tuple(stops)

    @cached_property
    def _live(self) -> dict[int, tuple[tuple[int, int], ...]]:
        commands = self.program.commands[:-1]
        arch = self.program.arch
        operands = [command.instruction.operands(command, arch) for command in commands]
        return _live_ranges(operands, self.stops, arch.sram_bytes)

    def piece(self, stop: int) -> PreemptedProgram:
        """Return a program preempted before command ``stop``, with its continuation.

        ``stop`` must be one of :attr:`stops`; the result is not cached here.
        """
        registers = _registers_before(self.program, stop)
        return _piece(
            self.program, stop, self._live[stop], registers, _count_tokens_left(self.program, stop)
        )


def expose_memory(program: Program, dram_bytes: int) -> Program:
    """Return ``program`` with all of its system memory as its input and output tensor.

    Both tensors are named ``memory``. The tensors have ``dram_bytes`` elements of int8; the program
    has no memory images.
    """
    tensors = tuple(Tensor("memory", role, "int8", (dram_bytes,), 0) for role in _ROLES)
    address = _align_up(dram_bytes)  # the command words follow the memory that the program sees
    return replace(
        program,
        tensors=tensors,
        segments=(),
        command_address=address,
        dram_bytes=address + 8 * len(program.words),
    )


def leave(program: Program, stop: int, save: Program) -> Program:
    """Return one program that runs the commands before ``stop`` and then saves the scratchpad.

    ST saves after LD and EX have finished. It is for executors that do not keep the scratchpad
    between programs.
    """
    last = _word_after(program, stop)
    left = _count_tokens_left(program, stop)
    from_ld = left[Unit.LD, "next"]
    from_ex = left[Unit.EX, "next"]
    drain = [
        _sync(Unit.LD, push_next=1),
        *[_sync(Unit.EX, pop_previous=1)] * (from_ld + 1),
        _sync(Unit.EX, push_next=1),
        *[_sync(Unit.ST, pop_previous=1)] * (from_ex + 1),
    ]
    reset = program.variant.register_file.reset
    drain += [encode_set(name, reset[name]) for name in OP_DMA_WRITE.registers]
    words = np.concatenate([program.words[:last], np.array(drain, dtype=np.uint64), save.words])
    provenance = tuple(
        replace(one, last=min(one.last, last)) for one in program.provenance if one.first < last
    )
    return replace(program, words=words, provenance=provenance)


def _word_after(program: Program, stop: int) -> int:
    """Return the index of the first word after the command before ``stop``."""
    return program.commands[stop - 1].index + 1 if stop else 0


def _align_up(address: int) -> int:
    return -(-address // _LINE) * _LINE


def _live_ranges(
    operands: Sequence[Operands], stops: Sequence[int], sram_bytes: int
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the live scratchpad ranges at each command where a program may be preempted.

    Later commands read these ranges before they write them. Ranges are whole lines.
    """
    wanted = set(stops)
    found = {}
    mask = np.zeros(_align_up(sram_bytes), dtype=np.bool_)
    for number in range(len(operands) - 1, min(stops, default=0) - 1, -1):
        for accesses, value in ((operands[number].writes, False), (operands[number].reads, True)):
            for access in accesses:
                if access.space == "sram" and access.total:
                    access.view(mask)[...] = value
        if number in wanted:
            lines: NDArray[np.bool_] = np.any(mask.reshape(-1, _LINE), axis=1)
            found[number] = _ranges(lines, sram_bytes)
    return found


def _ranges(lines: NDArray[np.bool_], sram_bytes: int) -> tuple[tuple[int, int], ...]:
    """Return the half-open byte ranges of the scratchpad lines that are True in a mask."""
    edges = np.flatnonzero(np.diff(lines.astype(np.int8), prepend=0, append=0)) * _LINE
    return tuple((low, min(high, sram_bytes)) for low, high in edges.reshape(-1, 2).tolist())


def _registers_before(program: Program, stop: int) -> dict[str, int]:
    """Return the registers that differ from their reset values before command ``stop``."""
    file = program.variant.register_file
    words = program.words[: _word_after(program, stop)]
    sets = words[words >> np.uint64(56) == SET_OPCODE]
    # by opcode and register
    last = dict(zip((sets >> np.uint64(48)).tolist(), sets.tolist(), strict=True))
    registers = dict(decode_set(word, index, file) for index, word in enumerate(last.values()))
    return {name: value for name, value in registers.items() if value != file.reset[name]}


_GIVER = {
    (Unit.EX, "previous"): (Unit.LD, "next"), (Unit.LD, "next"): (Unit.EX, "previous"),
    (Unit.ST, "previous"): (Unit.EX, "next"), (Unit.EX, "next"): (Unit.ST, "previous"),
}  # fmt: skip
"""For the unit and side of a pop, the unit and side of the push that supplies its token."""


def _count_tokens_left(program: Program, stop: int) -> Counter[tuple[Unit, str]]:
    """Return the tokens that the commands before ``stop`` push and do not pop.

    They are counted by unit and side of the push.
    """
    flags = attrgetter("unit", "pop_previous", "push_previous", "pop_next", "push_next")
    tokens: Counter[tuple[Unit, str]] = Counter()
    for (unit, *moves), count in Counter(map(flags, program.commands[:stop])).items():
        for side, pops, pushes in (("previous", *moves[:2]), ("next", *moves[2:])):
            if pops:
                tokens[_GIVER[unit, side]] -= count
            if pushes:
                tokens[unit, side] += count
    return +tokens


def _piece(
    program: Program,
    stop: int,
    live: tuple[tuple[int, int], ...],
    registers: dict[str, int],
    tokens: Counter[tuple[Unit, str]],
) -> PreemptedProgram:
    context = _align_up(program.dram_bytes)
    end = _align_up(context + sum(high - low for low, high in live))
    save = _program(program, [*_moves(Unit.ST, live, context)], end)
    restore = _program(program, _prologue(program, live, registers, tokens, context), end)
    return PreemptedProgram(program, stop, live, save, restore)


def _program(program: Program, words: Sequence[int], address: int) -> Program:
    """Return ``program`` with its command words replaced by ``words`` and ``OP_END``.

    It uses the system memory of ``program``.
    """
    stream = np.array([*words, encode_operation(OP_END, {})], dtype=np.uint64)
    provenance = (
        (Provenance(0, len(words), CONTEXT, OP_DMA_READ.kind, CONTEXT, 0),) if words else ()
    )
    return replace(
        program,
        words=stream,
        provenance=provenance,
        command_address=address,
        dram_bytes=address + 8 * len(stream),
    )


def _moves(unit: Unit, live: Iterable[tuple[int, int]], context: int) -> Iterable[int]:
    """Yield command words that move live scratchpad ranges to or from a saved context.

    LD restores, ST saves.
    """
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
) -> list[int]:
    """Return the command words that restore scratchpad, tokens and registers after preemption.

    EX and ST must not start before the scratchpad is restored: a token from LD passes through EX to
    ST.
    """
    words = list(_moves(Unit.LD, live, context))
    if live:
        words += [
            _sync(Unit.LD, push_next=1),
            _sync(Unit.EX, pop_previous=1, push_next=1),
            _sync(Unit.ST, pop_previous=1),
        ]
        file = program.variant.register_file
        used = {f"LD_{name}" for name in ("DRAM_ADDRESS", "SRAM_ADDRESS", "BYTES")}
        registers = {name: file.reset[name] for name in sorted(used)} | registers
    for (unit, side), count in sorted(
        tokens.items(), key=lambda item: (item[0][0].value, item[0][1])
    ):
        words += [_sync(unit, **{f"push_{side}": 1})] * count
    return words + [
        encode_set(name, value, program.variant.register_file) for name, value in registers.items()
    ]


def _sync(unit: Unit, **flags: int) -> int:
    return encode_operation(OP_SYNC, {"unit": unit.value, **flags})


MOST_KEPT = 1 << 17
"""Most commands in the cached remainders of each program, about 50 MB."""


class ProgramWork:
    """Program on one machine, with its workload and the cycles that it takes alone.

    It computes the remainders after preemption.
    """

    def __init__(self, program: Program, hardware: Preset) -> None:
        self._timing = hardware.timing
        self.program = program
        self.workload = self._load(program)
        self.alone = compute_times(self.workload).total
        self._stops: dict[Preemption, Preemptible] = {}
        self._left: OrderedDict[tuple[Preemption, int], Remainder] = OrderedDict()
        self._kept = 0

    def _load(self, program: Program) -> Workload:
        return Workload(prepare(program).demands, self._timing)

    def stops(self, preemption: Preemption) -> Preemptible:
        """Return the program and the commands before which preemption is allowed."""
        if preemption not in self._stops:
            found = (
                boundaries(self.program, tiles=preemption == "tile") if preemption != "none" else ()
            )
            self._stops[preemption] = Preemptible(self.program, found)
        return self._stops[preemption]

    def make_remainder(self, preemption: Preemption, stop: int) -> Remainder:
        """Return the rest of a program that was preempted before command ``stop``.

        Remainders with :data:`MOST_KEPT` commands in total are cached.
        """
        key = preemption, stop
        if key not in self._left:
            self._left[key] = self._make_remainder(self.stops(preemption), stop)
            self._kept += len(self._left[key].resume)
        self._left.move_to_end(key)
        found = self._left[key]
        while self._kept > MOST_KEPT:
            _, oldest = self._left.popitem(last=False)
            self._kept -= len(oldest.resume)
        return found

    def _make_remainder(self, preemptible: Preemptible, stop: int) -> Remainder:
        piece = preemptible.piece(stop)
        shift = stop - piece.first
        later = tuple(other - shift for other in preemptible.stops if other > stop)
        save = self._load(piece.save) if piece.live else None
        resume = continue_demands(prepare(piece.restore).demands, self.workload.demands, stop)
        return Remainder(shift, save, Workload(resume, self._timing), later)


@dataclass(frozen=True, eq=False)
class Remainder:
    """Rest of a program after a preemption.

    ``save`` stores live scratchpad bytes, if any, and ``resume`` continues later. ``resume`` may be
    preempted before ``stops``. Its command n is the program's command ``shift`` + n, except for the
    commands that restore.
    """

    shift: int
    save: Workload | None
    resume: Workload
    stops: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class JobStage:
    """Stage of a job: a program on an accelerator, or an estimated time on a CPU core.

    ``on`` is ``dla`` for a program (``work``), otherwise ``cpu`` or ``transfer``. ``cycles`` of a
    program are those that it takes alone.
    """

    on: Literal["dla", "cpu", "transfer"]
    cycles: int
    work: ProgramWork | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """Plan of a job: its network's stages on one kind of accelerator, or on CPU cores only.

    The stages are in order. Fixed CPU work has a plan, too.
    """

    kind: str
    stages: tuple[JobStage, ...]

    @cached_property
    def cycles(self) -> int:
        """Sum of the cycles of all stages of a plan, each running alone."""
        return sum(stage.cycles for stage in self.stages)

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """For each stage of a plan, the cycles of all stages after it."""
        ends = np.cumsum([stage.cycles for stage in self.stages]).tolist()
        return tuple(self.cycles - end for end in ends)


Plans = Mapping[tuple[int, int, str], Plan]
"""Plans by index of task, index of variant, and kind of accelerator or :data:`CPU`."""
