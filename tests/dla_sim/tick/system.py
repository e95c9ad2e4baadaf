"""Several machines on one memory, one step per clock cycle: docs/systems.md, sections 1 to 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from isa.program import Program
from tests.dla_sim.tick.constants import TimingConstants
from tests.dla_sim.tick.model import REQUESTERS, TickModel


@dataclass(frozen=True)
class Turn:
    """A program that a machine runs after the one before, from cycle ``release`` on.

    ``cut``: it ends before that command.
    """

    program: Program
    release: int
    cut: int | None = None


@dataclass(frozen=True)
class TurnResult:
    """``spans`` by command number, of those that were executed."""

    start: int
    end: int
    spans: dict[int, tuple[int, int]]


class TickSystem:
    """Machines on the ports of a memory that serves ``grants`` ports in a cycle.

    ``ports[p]`` are the machines on port p.
    """

    def __init__(
        self,
        turns: Sequence[Sequence[Turn]],
        timings: Sequence[TimingConstants],
        ports: Sequence[Sequence[int]],
        grants: int,
    ) -> None:
        self.turns = [list(mine) for mine in turns]
        self.timings = timings
        self.grants = grants
        self.ports = [
            [(machine, name) for machine in machines for name in REQUESTERS] for machines in ports
        ]
        self.last_port = len(ports) - 1
        self.last_served = [members[-1] for members in self.ports]
        self.models: list[TickModel | None] = [None] * len(turns)
        self.starts = [0] * len(turns)
        self.results: list[list[TurnResult]] = [[] for _ in turns]
        self.cycle = 0

    def run(self, until: float = inf) -> list[list[TurnResult]]:
        """The results of every machine's turns, those that have ended at ``until``."""
        while self.cycle < until and (any(self.turns) or any(self.models)):
            for machine in range(len(self.models)):
                self.begin(machine)
            for model in self.models:
                if model:
                    model.complete()
                    model.start()
            self.grant()
            for machine, model in enumerate(self.models):
                if model:
                    model.finish_cycle()
                    if model.total:
                        self.results[machine].append(
                            TurnResult(self.starts[machine], model.total, model.spans)
                        )
                        self.models[machine] = None
            self.cycle += 1
        return self.results

    def begin(self, machine: int) -> None:
        """Start the machine's next turn if it is free and the program is there."""
        mine = self.turns[machine]
        if self.models[machine] or not mine or mine[0].release > self.cycle:
            return
        turn = mine.pop(0)
        self.starts[machine] = self.cycle
        self.models[machine] = TickModel(turn.program, self.timings[machine], self.cycle, turn.cut)

    def grant(self) -> None:
        """A slot to each of the next ports with requesters, as many as the memory serves."""
        asking = {
            (machine, name)
            for machine, model in enumerate(self.models)
            if model
            for name in model.requesters()
        }
        for model in self.models:
            if model:
                model.granted = None
        served = 0
        before = self.last_port
        for step in range(1, len(self.ports) + 1):
            port = (before + step) % len(self.ports)
            members = self.ports[port]
            first = members.index(self.last_served[port]) + 1
            waiting = [member for member in members[first:] + members[:first] if member in asking]
            if not waiting or served == self.grants:
                continue
            machine, name = self.last_served[port] = waiting[0]
            model = self.models[machine]
            assert model is not None
            model.granted = name
            self.last_port = port
            served += 1
