"""Measure the speed of sweeps of MobileNetV1-224 in points per second, with 1 to 2 workers.

Compilation is included; all points must end ok.

    python -m benchmarks.sweep [--plot sweep.png] [--growth]

First 200 mixed machines (20 arrays of 64 and 128 processing elements, 512 KiB to 256 MiB), each
compiled; then one machine under 40,000 Timings. With --growth the same for 100, 1,000 and 10,000
points with the peak memory of all processes, which must stay. Import and quantisation, once a
network, stand beside; the workers start meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import measuring

if TYPE_CHECKING:
    from experiments.sweep.driver import Tally

SIDES = ((1, 64), (2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1))
ARRAYS = [
    *(f"{{ ic = {ic}, oc = {oc} }}" for ic, oc in SIDES),
    *(f"{{ ic = {ic}, oc = {2 * oc} }}" for ic, oc in SIDES),
    *(f"{{ ic = {ic}, oc = {oc}, ow = 2 }}" for ic, oc in SIDES[1:]),
]
MACHINES = f"""
networks = "mobilenet-v1"
[arch]
pe = [{", ".join(ARRAYS)}]
sram_bytes = {{ from = "512 KiB", to = "256 MiB", times = 2 }}
"""


def timings(points: int) -> str:
    """Return a sweep specification of one machine with ``points`` different timings.

    The compiler reads none of them, so the network is compiled once. ``points`` is a multiple of
    20.
    """
    return f"""
networks = "mobilenet-v1"
[timing]
queue_depth = [1, 2, 3, 4]
dram_latency = [20, 40, 60, 80, 100]
dma_setup = {{ from = 1, to = {points // 20}, step = 1 }}
"""


@dataclass(frozen=True)
class Measured:
    """Seconds, processor time and memory of one sweep.

    ``seconds`` starts when the networks are ready; ``preparing`` is the time before.

    ``processor`` are the seconds that all processes computed meanwhile: on a busy machine
    ``seconds`` says little. Memory is in MiB, all processes together.
    """

    workers: int
    points: int
    seconds: float
    processor: float
    preparing: float
    memory: float

    @property
    def rate(self) -> float:
        """Points per second of the sweep."""
        return self.points / self.seconds


class Meter:
    """Sweep listener that measures when points start to run and the memory of all processes."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.ready = self.begun
        self.before: dict[int, float] = {}
        self.processor: dict[int, float] = {}
        self.memory: dict[int, float] = {}

    def stage(self, stage: str) -> None:
        """Restart the clock at the start of a stage; the last stage runs the points."""
        self.ready = time.perf_counter()
        self._look()
        self.before = dict(self.processor)

    def report(self, tally: Tally) -> None:
        """Measure the memory and processor time of all processes when results are written."""
        self._look()

    def _look(self) -> None:
        for pid in (os.getpid(), *(child.pid or 0 for child in multiprocessing.active_children())):
            with contextlib.suppress(OSError):  # it is gone
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.processor[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                self.memory[pid] = int(found[1]) / 1024 if found else 0.0

    def processor_seconds(self) -> float:
        """Processor seconds of all processes since the start of the last stage."""
        return sum(seconds - self.before.get(pid, 0.0) for pid, seconds in self.processor.items())


def measure(text: str, workers: int) -> Measured:
    """Run a sweep specification into a new file and return its measurements.

    Every point must end ok.
    """
    from experiments.sweep.session import SweepSession
    from experiments.sweep.spec import parse_spec

    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.sqlite"
        with SweepSession(parse_spec(text), output, workers=workers, stage=meter.stage) as session:
            tally = session.run_all(stage=meter.stage, report=meter.report)
    end = time.perf_counter()
    if tally.new["ok"] != tally.done:
        raise SystemExit(f"not every point ended ok: {tally}")
    preparing = meter.ready - meter.begun
    processor = meter.processor_seconds()
    memory = sum(meter.memory.values())
    return Measured(workers, tally.done, end - meter.ready, processor, preparing, memory)


def show(title: str, found: Sequence[Measured]) -> None:
    """Print a title and a table row for each measured sweep."""
    heads = ("workers", "points", "seconds", "points/s", "CPU ms/point", "MiB peak", "import s")
    print(f"\n{title}\n" + " ".join(f"{head:>12}" for head in heads))
    for item in found:
        processor = 1e3 * item.processor / item.points
        figures = (item.seconds, item.rate, processor, item.memory, item.preparing)
        print(
            f"{item.workers:12} "
            f"{item.points:12} " + " ".join(f"{figure:12.2f}" for figure in figures)
        )


def plot(path: Path, machines: Sequence[Measured], timed: Sequence[Measured]) -> None:
    """Plot points per second by number of workers, with ideal scaling."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    for axes, found, title in zip(
        figure.subplots(1, 2),
        (machines, timed),
        ("200 machines, each compiled", f"{timed[0].points:,} Timings of one machine"),
        strict=True,
    ):
        workers = [item.workers for item in found]
        axes.bar(
            workers, [item.rate for item in found], width=0.5, color="#0072b2", label="measured"
        )
        axes.plot(
            workers,
            [found[0].rate * count for count in workers],
            "o--",
            color="#d55e00",
            label="linear",
        )
        axes.set(
            title=title,
            xlabel="workers (processes)",
            ylabel="points that end ok (1/s)",
            xticks=workers,
        )
        axes.legend()
    figure.savefig(path, dpi=150)
    print(f"\n{path}")


def main() -> None:
    """Measure the sweeps, print their tables and draw the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", type=Path, help="where the scaling plot goes (PNG)")
    parser.add_argument(
        "--growth", action="store_true", help="100, 1,000 and 10,000 Timings as well"
    )
    parser.add_argument("--workers", type=int, default=2, help="most workers")
    options = parser.parse_args()
    print(f"{measuring.settings()}\nmeasured   {measuring.measured(1)}: a sweep takes seconds")
    counts = range(1, options.workers + 1)
    machines = [measure(MACHINES, workers) for workers in counts]
    show(
        f"{machines[0].points} mixed machines of 64 and 128 PEs, 512 KiB to 256 MiB, each compiled",
        machines,
    )
    timed = [measure(timings(40_000), workers) for workers in counts]
    show("only Timing changes, on the recommended machine", timed)
    if options.growth:
        show(
            "growth", [measure(timings(points), options.workers) for points in (100, 1000, 10_000)]
        )
    if options.plot:
        plot(options.plot, machines, timed)


if __name__ == "__main__":
    main()
