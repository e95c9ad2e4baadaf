"""The reproduction of table 5: how claims are decided, and systems that ``dla system`` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from dla_sim.systems.simulate import CAUSES
from dla_sim.systems.spec import parse_system
from experiments.repro import table5
from experiments.systems.report import MemoryResult, Response, SystemReport, TaskResult

MODULES = ("sensing", *table5.LIDARS, table5.CAMERA)


def _task(name: str, ended: int, late: int, mean: float = 13e6) -> TaskResult:
    response = Response(mean=mean, deviation=0, p50=1, p95=1, p99=1, worst=1) if ended else None
    return TaskResult(
        name=name, model=None, quality=1.0, released=20, skipped=0, ended=ended, late=late,
        missed=late,
        deadline=13_000_000, alone=1, response=response, preemptions=0,
        causes=dict.fromkeys(CAUSES, 0),
    )  # fmt: skip


def _run(segment: int, *tasks: TaskResult) -> table5.Run:
    report = SystemReport(
        command="", name="ADy288", policy="fcfs", preemption="none", quantum=1, seed=0,
        clock_hz=130_000_000, cycles=1,
        unfinished=0, tasks=tasks, units=(), check=None,
        memory=MemoryResult(slots=0, grants=1, utilization=0, traffic=(0,)),
    )  # fmt: skip
    return table5.Run("ADy288", table5.SEGMENTS[segment][0], report)


def _runs(camera: list[tuple[int, int, float]]) -> list[table5.Run]:
    others = [_task(name, 20, 0) for name in MODULES[:-1]]
    return [_run(number, *others, _task(table5.CAMERA, *one)) for number, one in enumerate(camera)]


AS_PUBLISHED = [(0, 0, 0.0), (10, 9, 25e6), (12, 8, 20e6), (16, 8, 15e6), (20, 0, 12e6)]
"""Jobs of the 2-D perception that ended, late ones, and mean response in cycles, of the five
segments.
"""


def test_the_claims_hold_where_the_runs_are_as_published() -> None:
    claims = {claim.name: claim for claim in table5.evaluate(_runs(AS_PUBLISHED))}
    assert all(claim.holds for claim in claims.values())
    # 20 frames of 5 modules: all but the camera's in time, and of its 1, 4, 8 and 20
    assert [figure.text for figure in claims["each-step-lowers-misses"].figures] == [
        "3 just-in-time priorities: 19.0% before, 16.0%; lower in 1 of 1 applications",
        "4 and migration: 16.0% before, 12.0%; lower in 1 of 1 applications",
        "5 and co-optimisation: 12.0% before, 0.0%; lower in 1 of 1 applications",
    ]


@pytest.mark.parametrize(
    ("segment", "camera", "fails"),
    [
        (0, (1, 1, 25e6), {"default-starves"}),
        (1, (10, 9, 12e6), {"time-sharing-misses-2d"}),
        (2, (12, 12, 20e6), {"each-step-lowers-misses"}),
        (3, (12, 9, 15e6), {"each-step-lowers-misses"}),
        (4, (20, 1, 12e6), {"co-optimisation-meets-all"}),
    ],
)
def test_every_claim_can_fail(
    segment: int, camera: tuple[int, int, float], fails: set[str]
) -> None:
    runs = _runs([*AS_PUBLISHED[:segment], camera, *AS_PUBLISHED[segment + 1 :]])
    assert {claim.name for claim in table5.evaluate(runs) if not claim.holds} == fails


def test_systems_are_read_back_and_name_models_that_are_there(tmp_path: Path) -> None:
    file = table5.write_system(tmp_path, "ADs288")
    system = parse_system(file.read_text(encoding="utf-8"), tmp_path, str(file))
    assert [task.name for task in system.tasks if task.variants] == [*table5.LIDARS, table5.CAMERA]
    models = {variant.model for task in system.tasks for variant in task.variants}
    assert all((tmp_path / model).is_file() for model in models)
    assert len(table5.applications()) == 6
