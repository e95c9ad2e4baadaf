"""A better machine is not slower, except for the anomalies of docs/machine.md, section 8.

They come from the shared bus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import pytest

from dla_sim.device import Device
from dla_sim.engine.banks import BankLoad, PassingWords
from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import CommandTimes, Sequences, Times, collect_times, compute_times
from dla_sim.engine.workload import Workload
from dla_sim.timing import Timing
from isa.arch import PACKED, words_of
from tests.dla_sim.anomalies import ANOMALIES, Anomaly
from tests.dla_sim.cases import build_program
from tests.dla_sim.compiled import COMPILED, compiled_program
from tests.dla_sim.program_generator import COMPUTE, random_case
from tests.dla_sim.tick import run_ticks

MACHINE = Path(__file__).parents[2] / "docs" / "machine.md"

CYCLE_COSTS = (
    "dram_latency",
    "flash_latency",
    "dma_setup",
    "dma_drain",
    "ex_fill",
    "ex_drain",
    "sync_cycles",
)
MORE_IS_BETTER = (
    "outstanding_bursts",
    "flash_outstanding_bursts",
    "queue_depth",
    "fetch_buffers",
    "bank_ports",
)


class OwnBuses:
    """A bus for every port, which removes contention; no machine of the document has it.

    All times are then sums and maxima of others, so that no cost that falls makes any of them
    later.
    """

    def __init__(self, known: list[int]) -> None:
        self.known = known

    def announce(
        self,
        port: int,
        time: int,
        slots: int,
        result: int,
        tail: int,
        passing: PassingWords | None = None,
    ) -> None:
        """A data phase of ``slots`` begins at ``time`` and ends as many cycles later."""
        self.known[result] = time + slots + tail

    def compute(self, time: int, load: BankLoad, result: int, tail: int) -> None:
        """EX has the banks for itself."""
        self.known[result] = time + load.cycles + tail


def times_without_sharing(workload: Workload) -> CommandTimes:
    """When commands end if fetch, LD and ST have a bus each (docs/machine.md, section 8)."""
    times = Times(workload)
    Sequences(workload, times, OwnBuses(times.known)).settle()
    return collect_times(workload, times)


def better_machines(timing: Mapping[str, Any]) -> Iterator[tuple[str, Timing]]:
    """Machines that are better than ``timing`` in one constant, by a little and by much."""
    for name in MORE_IS_BETTER:
        for value in (timing[name] + 1, 3 * timing[name]):
            yield name, Timing(**{**timing, name: value})
    for name in CYCLE_COSTS:
        least = int(name == "sync_cycles")
        for value in {max(least, timing[name] - 1), least} - {timing[name]}:
            yield name, Timing(**{**timing, name: value})
    for name, most in (
        ("bus_bytes", timing["burst_bytes"]),
        ("flash_bytes", timing["flash_burst_bytes"]),
    ):
        wider = 2 * timing[name]
        if 0 < wider <= most and (name == "bus_bytes" or wider <= timing["bus_bytes"]):
            yield name, Timing(**{**timing, name: wider})
    for name, width in (("dram_rate", "bus_bytes"), ("flash_rate", "flash_bytes")):
        if timing[name] is not None:
            faster = min(2 * Fraction(timing[name]), timing[width])
            for value in {None, str(faster)}:
                yield name, Timing(**{**timing, name: value})
    for name in ("sram_read_bytes", "sram_write_bytes"):
        if timing[name]:
            yield name, Timing(**{**timing, name: 0})


@pytest.mark.parametrize("isa", COMPUTE)
def test_random_programs_are_never_slower_without_sharing(isa: str) -> None:
    """So that with sharing none is slower by more than sharing costs it."""
    for seed in range(250):
        case = random_case(seed, isa)
        demands = (
            Device(case.arch, Timing(**case.timing)).load(build_program(case)).workload.demands
        )
        workload = Workload(demands, Timing(**case.timing))
        total = compute_times(workload).total
        alone = times_without_sharing(workload).total
        assert alone <= total, f"seed {seed}"
        for name, timing in better_machines(case.timing):
            if (
                isa == PACKED
                and name == "bus_bytes"
                and 2 * timing.bus_bytes > words_of(case.arch).word
            ):
                continue  # a machine that is refused
            assert times_without_sharing(Workload(demands, timing)).total <= alone, (
                f"seed {seed}, {name}"
            )


@pytest.mark.parametrize("anomaly", ANOMALIES, ids=lambda anomaly: anomaly.name)
def test_anomalies_are_as_documented(anomaly: Anomaly) -> None:
    """By both engines and the tick model; without sharing the better machine is not slower."""
    program = anomaly.program
    worse = Timing(**anomaly.timing)
    better = Timing(**{**anomaly.timing, **anomaly.better})
    for timing, expected in ((worse, anomaly.before), (better, anomaly.after)):
        assert run_ticks(program, timing).total == expected
        for engine in (simulate, compute_times):
            run = Device(program.arch, timing, engine=engine).run(program, {}, timing_only=True)
            assert run.trace.cycles == expected
    alone = [
        times_without_sharing(Device(program.arch, timing).load(program).workload).total
        for timing in (worse, better)
    ]
    assert alone[1] <= alone[0]
    assert anomaly.before < anomaly.after


def test_the_document_lists_the_anomalies() -> None:
    text = MACHINE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| \d+ → (\d+) \| (\d+) → (\d+) \|", text, re.MULTILINE)
    assert [(name, int(value), int(before), int(after)) for name, value, before, after in rows] == [
        (anomaly.name, anomaly.better[anomaly.name], anomaly.before, anomaly.after)
        for anomaly in ANOMALIES
    ]


TOLERANCE = 200
"""A compiled network may be slower by one cycle in so many on a better machine."""


@pytest.mark.parametrize(("network", "schedule"), COMPILED)
def test_compiled_networks_are_not_slower(
    network: str, schedule: Literal["seed", "default"]
) -> None:
    program = compiled_program(network, schedule)
    demands = Device(program.arch).load(program).workload.demands
    wide = Timing(bus_bytes=32, outstanding_bursts=4)
    far = Timing(dram_latency=300, queue_depth=1)
    for base in (Timing(), wide, far, Timing(dram_latency=32, flash_bytes=1)):
        total = compute_times(Workload(demands, base)).total
        for name, timing in better_machines(dict(base)):
            better = compute_times(Workload(demands, timing)).total
            assert (better - total) * TOLERANCE <= total, f"{name}, {base}"
