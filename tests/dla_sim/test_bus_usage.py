"""The replay of the bus against the tick model's grants, cycle by cycle, on random programs."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from dla_sim.device import Device
from dla_sim.engine.bus import PORTS
from dla_sim.inspection import BusUsage, bus_usage
from dla_sim.timing import Timing
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import COMPUTE, random_case
from tests.dla_sim.tick.model import TickModel, TickResult
from tests.rotation import rotate_parts


class _Recording(TickModel):
    """The tick model with a record of its grants."""

    def run(self) -> TickResult:
        self.grants: list[str | None] = []
        return super().run()

    def grant(self) -> None:
        super().grant()
        self.grants.append(self.granted)


def _granted_by_ticks(
    program: Program, timing: Timing
) -> tuple[list[str | None], list[int | None]]:
    model = _Recording(program, timing)
    model.run()
    return model.grants, model.ready


def _usage(program: Program, timing: Timing) -> BusUsage:
    return bus_usage(Device(program.arch, timing).load(program).workload)


@pytest.mark.parametrize(("first", "isa"), rotate_parts([*product(range(0, 200, 25), COMPUTE)], 3))
def test_grants_are_those_of_the_tick_model(first: int, isa: str) -> None:
    shared = 0
    for seed in range(first, first + 25):
        case = random_case(seed, isa)
        program = build_program(case)
        timing = Timing(**case.timing)
        grants, ready = _granted_by_ticks(program, timing)
        usage = _usage(program, timing)
        busy = 0
        for stretch in usage.stretches:
            found = Counter(name for name in grants[stretch.begin : stretch.end] if name)
            assert {name: n for name, n in zip(PORTS, stretch.granted, strict=True) if n} == found
            busy += sum(stretch.granted)
            shared += len(found) > 1
        assert busy == len(grants) - grants.count(None)
        assert [end for _, end in usage.chunks] == ready
    assert shared
