"""What a job does, stage by stage: programs on one machine, and what is left of them after giving way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from dla_sim.engine.recurrence import compute_times
from dla_sim.engine.workload import EX, Workload, continued
from dla_sim.prepared import prepare
from dla_sim.presets import Preset
from dla_sim.systems.pieces import Interruptible, boundaries
from dla_sim.systems.spec import Preemption
from isa.program import Program

MOST_KEPT = 1 << 17
"""Commands of what is left after giving way that are kept for the next time: of each program, some 50 MB."""


class Piecework:
    """A program on one machine: its workload, what it takes alone, and the same of what is left after giving way."""

    def __init__(self, program: Program, hardware: Preset) -> None:
        self._timing = hardware.timing
        self.program = program
        self.workload = self._load(program)
        self.alone = compute_times(self.workload).total
        self._stops: dict[Preemption, Interruptible] = {}
        self._left: OrderedDict[tuple[Preemption, int], Left] = OrderedDict()
        self._kept = 0

    def _load(self, program: Program) -> Workload:
        return Workload(prepare(program).demands, self._timing)

    def stops(self, preemption: Preemption) -> Interruptible:
        """The commands before which it may give way."""
        if preemption not in self._stops:
            found = boundaries(self.program, tiles=preemption == "tile") if preemption != "none" else ()
            self._stops[preemption] = Interruptible(self.program, found)
        return self._stops[preemption]

    def left(self, preemption: Preemption, stop: int) -> Left:
        """What follows when it has given way before command ``stop``; :data:`MOST_KEPT` are kept, the latest ones."""
        key = preemption, stop
        if key not in self._left:
            self._left[key] = self._make_left(self.stops(preemption), stop)
            self._kept += len(self._left[key].resume)
        self._left.move_to_end(key)
        found = self._left[key]
        while self._kept > MOST_KEPT:
            _, oldest = self._left.popitem(last=False)
            self._kept -= len(oldest.resume)
        return found

    def _make_left(self, interruptible: Interruptible, stop: int) -> Left:
        piece = interruptible.piece(stop)
        shift = stop - piece.first
        later = tuple(other - shift for other in interruptible.stops if other > stop)
        save = self._load(piece.save) if piece.live else None
        resume = continued(prepare(piece.restore).demands, self.workload.demands, stop)
        return Left(shift, save, Workload(resume, self._timing), later)


@dataclass(frozen=True, eq=False)
class Left:
    """``save`` the scratchpad, if anything of it is needed; ``resume`` later, which may give way before ``stops``.

    Command n of ``resume`` is the program's command ``shift`` + n, but for those that restore.
    """

    shift: int
    save: Workload | None
    resume: Workload
    stops: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Stage:
    """A part of a job: a program (``work``), or ``cycles`` of a core of speed 1, an estimate (``cpu``, ``transfer``).

    ``cycles`` of a program are those that it takes alone.
    """

    on: Literal["dla", "cpu", "transfer"]
    cycles: int
    work: Piecework | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """A network, or fixed work of the CPU, on one kind of accelerator, or on the cores alone: its stages in order."""

    kind: str
    stages: tuple[Stage, ...]

    @cached_property
    def cycles(self) -> int:
        """What all stages take alone, one after another."""
        return sum(stage.cycles for stage in self.stages)

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """What the stages behind each one take alone."""
        ends = np.cumsum([stage.cycles for stage in self.stages]).tolist()
        return tuple(self.cycles - end for end in ends)


Plans = Mapping[tuple[int, int, str], Plan]
"""By task and variant, counted, and kind of accelerator or :data:`CPU`."""


def compute_cycles(workload: Workload, commands: int) -> int:
    """Cycles in which EX executes one of the first ``commands``: they depend on nobody else."""
    members = workload.demands.by_unit[EX]
    lead: int = workload.columns["lead"][members[: np.searchsorted(members, commands)]].sum().item()
    return lead
