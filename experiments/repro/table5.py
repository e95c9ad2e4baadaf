"""Table 5 of Li et al.

(2022): an autonomous-driving application on one device under five scheduling methods.

The networks and the board of the publication are not available. Its modules are replaced by
stand-ins with the same ratio of work to deadline: the lidar networks alone need more than one
accelerator, and the camera network one more. Compared are the table's statements about the
scheduling methods, never its milliseconds (docs/validation.md).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from dla_sim.systems.policies import CO_OPTIMISED
from dla_sim.systems.spec import System, SystemConditions, parse_system
from dla_sim.systems.work import Plans
from experiments.models.detection import point_pillars, ssd_mobilenet_v1, yolo_v8n
from experiments.repro import Claim, ClaimFigure, claim_lines
from experiments.systems.plans import PlanMaker
from experiments.systems.report import SystemReport, TaskResult
from experiments.systems.running import run_system
from isa.files import write_atomically
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from onnx import ModelProto

NAME = "li2022-table5"
DETECTORS: Mapping[str, Callable[[int, int], ModelProto]] = {
    "ADy": yolo_v8n,
    "ADs": ssd_mobilenet_v1,
}
"""Applications by the detector of their camera: YOLO or SSD."""
Size = TypeVar("Size")
SIZES = {288: (288, 224, 160), 416: (416, 320, 224), 608: (608, 320, 224)}
"""Image sides of the detector and of its smaller variants, which detect less."""
PILLARS = ((112, 88), (96, 72), (72, 56))
"""Grid sizes of the lidar networks and of their smaller variants."""
SEGMENTS: tuple[tuple[str, str, Literal["none", "layer"]], ...] = (
    ("1 default, no preemption", "priority", "none"),
    ("2 time sharing", "round-robin", "layer"),
    ("3 just-in-time priorities", "jit", "layer"),
    ("4 and migration", "migration", "layer"),
    ("5 and co-optimisation", CO_OPTIMISED, "layer"),
)
"""Scheduling methods: name, policy and preemption points."""
LIDARS = ("3D percept a", "3D percept b", "3D percept c")
CAMERA = "2D percept"
_SYSTEM = """# Stand-in for {application} of table 5 of Li et al. (2022): {detector}, \
{size} x {size}. By dla repro.
name = "{application}"
clock_hz = 130_000_000

[[accelerator]]
name = "gpu"
settings = {{ "pe.ic" = 16, "pe.oc" = 16 }}

[[accelerator]]
name = "dla"

[cpu]
cores = 4
speed = 8

[run]
quantum = "1ms"
until = "2s"

[[task]]
name = "sensing"
cpu = "70.4ms"     # 8.8 ms at the cores' speed
period = "100ms"
deadline = "100ms"
priority = 9

[[task]]
name = "planning"
cpu = "8ms"
period = "100ms"
deadline = "10ms"
priority = 8

[[task]]
name = "localization"
cpu = "360ms"
period = "100ms"
deadline = "100ms"
overrun = "skip"
priority = 3
{networks}
[[task]]
name = "tracking"
cpu = "7.2ms"
after = ["{camera}", "{lidar}", "localization"]
deadline = "100ms"
priority = 2

[[task]]
name = "prediction"
cpu = "4ms"
after = "tracking"
deadline = "100ms"
priority = 1
"""
_NETWORK = """
[[task]]
name = "{name}"
variants = [
{variants}
]
period = "100ms"
deadline = "100ms"
overrun = "skip"
on = ["gpu", "dla"]
priority = {priority}
"""


@dataclass(frozen=True)
class Run:
    """Simulated run of one application of table 5 under one scheduling method."""

    application: str
    segment: str
    report: SystemReport

    def task(self, name: str) -> TaskResult:
        """Return the simulated result of the application's module ``name``."""
        return next(task for task in self.report.tasks if task.name == name)

    @property
    def miss_rate(self) -> float:
        """Share of frames, over all modules, that were late, dropped, or never ended."""
        in_time = sum(task.ended - task.late for task in self.report.tasks)
        return 1 - in_time / (FRAMES * len(self.report.tasks))

    @property
    def starved(self) -> tuple[str, ...]:
        """Names of the application's modules without a completed job."""
        return tuple(task.name for task in self.report.tasks if not task.ended)


FRAMES = 20
"""Frames of every module in the two seconds of a run."""


@dataclass(frozen=True)
class Table5:
    """Result of reproducing table 5: runs in the table's order, claims, and written files."""

    runs: tuple[Run, ...]
    claims: tuple[Claim, ...]
    files: tuple[Path, ...]

    @property
    def holds(self) -> bool:
        return all(claim.holds for claim in self.claims)


def applications() -> tuple[str, ...]:
    """Return the names of table 5's applications (detector and size), in the table's order."""
    return tuple(f"{detector}{size}" for detector in DETECTORS for size in SIZES)


def reproduce(
    folder: Path, *, only: Iterable[str] | None = None, progress: Progress = silent
) -> Table5:
    """Run the applications of table 5, and write files, table and claims to ``folder``.

    ``only`` limits the run to some applications.

    Raises InputError if the folder cannot be written.
    """
    runs: list[Run] = []
    files: list[Path] = []
    for application in only or applications():
        file = write_system(folder, application)
        files.append(file)
        system = parse_system(file.read_text(encoding="utf-8"), folder, str(file))
        runs += run_application(system, PlanMaker(progress).plans(system), progress)
    claims = evaluate(runs)
    texts = {"csv": table(runs), "txt": "\n".join(claim_lines(claims))}
    for ending, text in texts.items():
        write_atomically(folder / f"{NAME}.{ending}", text)
    return Table5(tuple(runs), claims, (*files, *(folder / f"{NAME}.{ending}" for ending in texts)))


def write_system(folder: Path, application: str) -> Path:
    """Write the system file of an application and the models that it names, and return the file."""
    detector = application[:3]
    size = int(application[3:])
    build = DETECTORS[detector]
    cameras = [_model(folder, f"{detector}-{side}", build, side) for side in SIZES[size]]
    lidars = [
        _model(folder, f"pillars-{width}x{height}", point_pillars, (width, height))
        for width, height in PILLARS
    ]
    networks = "".join(_network(name, lidars, 5) for name in LIDARS) + _network(CAMERA, cameras, 4)
    text = _SYSTEM.format(
        application=application, detector=DETECTORS[detector].__name__, size=size,
        networks=networks, camera=CAMERA,
        lidar=LIDARS[0],
    )  # fmt: skip
    file = folder / f"{application}.toml"
    write_atomically(file, text)
    return file


def _model(folder: Path, name: str, build: Callable[[int, Size], ModelProto], size: Size) -> str:
    """Write an ONNX model with weights of seed 0, if missing, and return its file name."""
    file = folder / f"{name}.onnx"
    if not file.is_file():
        write_atomically(file, build(0, size).SerializeToString())
    return file.name


def _network(name: str, models: list[str], priority: int) -> str:
    lines = (
        f'  {{ model = "{model}", quality = {3 - place}.0 }},' for place, model in enumerate(models)
    )
    return _NETWORK.format(name=name, variants="\n".join(lines), priority=priority)


def run_application(system: System, plans: Plans, progress: Progress = silent) -> list[Run]:
    """Simulate one application of table 5 under every scheduling method."""
    found = []
    for segment, policy, preempt in SEGMENTS:
        progress(f"{system.name} under {policy}")
        now = system.conditions
        chosen = replace(
            system, conditions=SystemConditions(policy, preempt, now.quantum, now.until)
        )
        found.append(Run(system.name, segment, run_system(chosen, plans)))
    return found


def evaluate(runs: Iterable[Run]) -> tuple[Claim, ...]:
    """Decide the statements of table 5 and of section 3.2.3 on our runs."""
    by: dict[str, list[Run]] = {}
    for run in runs:
        by.setdefault(run.application, []).append(run)
    steps = by.values()
    return (
        Claim(
            "default-starves",
            "by default, without preemption, modules make no progress at all",
            "in every application no job of some module ends",
            tuple(
                ClaimFigure(
                    bool(one[0].starved), f"{one[0].application}: {', '.join(one[0].starved)}"
                )
                for one in steps
            ),
        ),
        Claim(
            "time-sharing-misses-2d",
            "time sharing resolves it, but the 2-D perception misses its deadline",
            "jobs of every module end, and those of the 2-D perception in the mean behind their "
            "deadline",
            tuple(_compute_sharing(one[1]) for one in steps),
        ),
        Claim(
            "each-step-lowers-misses",
            "from time sharing on, each step of the runtime lowers the misses",
            "of all frames of all modules and applications, fewer are late or dropped than one "
            "step before",
            tuple(
                _compute_fall([one[before] for one in steps], [one[before + 1] for one in steps])
                for before in (1, 2, 3)
            ),
        ),
        Claim(
            "co-optimisation-meets-all",
            "with migration and models chosen together with the schedule, all deadlines are met",
            "no frame is late or dropped",
            tuple(
                ClaimFigure(
                    not one[4].miss_rate, f"{one[4].application}: {one[4].miss_rate:.1%} missed"
                )
                for one in steps
            ),
        ),
    )


def _compute_sharing(run: Run) -> ClaimFigure:
    camera = run.task(CAMERA)
    clock = run.report.clock_hz
    if camera.response is None or camera.deadline is None:
        return ClaimFigure(False, f"{run.application}: no job of the {CAMERA} ends")
    mean = camera.response.mean / clock * 1e3
    deadline = camera.deadline / clock * 1e3
    late = f"{camera.late} of {camera.ended} late"
    return ClaimFigure(
        not run.starved and mean > deadline,
        f"{run.application}: {mean:.1f} ms of {deadline:.0f}, {late}",
    )


def _compute_fall(before: list[Run], after: list[Run]) -> ClaimFigure:
    rates = [[run.miss_rate for run in runs] for runs in (before, after)]
    earlier, later = (sum(each) / len(each) for each in rates)
    lower = sum(second < first for first, second in zip(*rates, strict=True))
    text = (
        f"{after[0].segment}: {earlier:.1%} before, {later:.1%}; lower in {lower} of {len(after)} "
        "applications"
    )
    return ClaimFigure(later < earlier, text)


COLUMNS = (
    "application",
    "scheduling",
    "module",
    "model",
    "mean_ms",
    "deviation_ms",
    "ended",
    "late",
    "skipped",
)


def table(runs: Iterable[Run]) -> str:
    """Return table 5 as CSV text with the columns :data:`COLUMNS`.

    A module without an ended job has no times.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        ms = 1e3 / run.report.clock_hz
        for task in run.report.tasks:
            times = (
                (f"{task.response.mean * ms:.2f}", f"{task.response.deviation * ms:.2f}")
                if task.response
                else ("", "")
            )
            counts = task.ended, task.late, task.skipped
            writer.writerow(
                (run.application, run.segment, task.name, task.model or "", *times, *counts)
            )
    return stream.getvalue()
