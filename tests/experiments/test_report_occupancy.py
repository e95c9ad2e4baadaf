"""The series of the scratchpad's occupancy against a count cycle by cycle."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from dla_sim.device import Device
from dla_sim.engine.times import completion_order
from dla_sim.inspection import live_bytes
from dla_sim.prepared import HazardError
from dla_sim.timing import Timing
from experiments.report import figures as module
from experiments.report.activity import OCCUPANCY_POINTS
from experiments.report.figures import RegionRun, occupancy
from experiments.report.schema import RunReport
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import random_case
from tests.experiments.reporting import tiny_run


def random_run(seed: int) -> RegionRun:
    """A run of the first random program from ``seed`` on in steps of 100 that has no collisions."""
    case = random_case(seed)
    program = build_program(case)
    try:
        trace = Device(program.arch, Timing(**case.timing)).run(program, {}, timing_only=True).trace
    except HazardError:
        return random_run(seed + 100)
    return RegionRun(0, program, trace)


def levels(run: RegionRun) -> np.ndarray:
    """Live bytes in every cycle."""
    operands = [
        command.instruction.operands(command, run.program.arch) for command in run.trace.commands
    ]
    order = completion_order(run.trace.workload, run.trace.times)
    found = np.zeros(run.trace.cycles, dtype=np.int64)
    for cycle, count in zip(*live_bytes(operands, order, run.trace.times), strict=True):
        found[cycle:] = count
    return found


@pytest.mark.parametrize("points", [1, 7, 512])
@pytest.mark.parametrize("seeds", [(0, 1), (2, 3), (5, 12), (14, 20, 7), (30,)])
def test_points_are_the_peaks_and_means_of_their_cycles(
    seeds: tuple[int, ...], points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OCCUPANCY_POINTS", points)
    runs = [random_run(seed) for seed in seeds]
    every = np.concatenate([levels(run) for run in runs])
    found = occupancy(runs)
    assert found is not None
    width = found.cycles_per_point
    parts = [every[start : start + width] for start in range(0, len(every), width)]
    assert len(parts) <= points
    assert found.peak_bytes == tuple(int(part.max()) for part in parts)
    assert found.mean_bytes == tuple(int(part.sum()) // len(part) for part in parts)


def test_without_a_run_there_is_none() -> None:
    assert occupancy([]) is None


def test_the_report_has_it_and_refuses_one_of_another_length() -> None:
    report = tiny_run()
    found = report.occupancy
    assert found is not None
    assert len(found.peak_bytes) <= OCCUPANCY_POINTS
    assert 0 < max(found.peak_bytes) <= report.totals.sram_peak_bytes
    content = report.model_dump(mode="json", by_alias=True)
    content["occupancy"]["peak_bytes"].append(0)
    with pytest.raises(ValidationError, match="the number of points of peak_bytes"):
        RunReport.model_validate(content)
