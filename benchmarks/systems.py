"""Measure the speed and memory of simulating several networks on several accelerators.

See docs/systems.md.

    python -m benchmarks.systems [--markdown docs/systems.md]

First a second at 1 GHz of four networks on two accelerators, timing only: seconds under each policy
and preemption, the networks compiled before. Then ``dla system`` in processes of its own, with more
and more jobs, jitter and preemption at tiles: programs give way in ever new places, and the peak of
the process (as in ``benchmarks.memory``) must stay.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from benchmarks import measuring  # before NumPy, whose number of threads it sets
from benchmarks.compiler import write_markdown
from benchmarks.inference import DLA, cold
from dla_sim.systems.policies import POLICIES
from dla_sim.systems.spec import Preemption, parse_system
from experiments.systems.plans import PlanMaker
from experiments.systems.report import SystemReport
from experiments.systems.running import run_system

MARKS = "<!-- benchmarks.systems -->", "<!-- /benchmarks.systems -->"
RUNS = 3

FOUR = """
[[accelerator]]
name = "npu"
count = 2

[cpu]
cores = 2

[run]
until = "1s"

[[task]]
name = "camera"
model = "mobilenet-v1"
period = "12ms"
deadline = "12ms"
priority = 1

[[task]]
name = "person"
model = "visual-wake-words"
period = "5ms"
jitter = "1ms"
deadline = "5ms"
priority = 2

[[task]]
name = "voice"
model = "keyword-spotting"
period = "2ms"
jitter = "500us"
deadline = "2ms"
priority = 3

[[task]]
name = "tracker"
model = "resnet-8"
period = "1ms"
jitter = "200us"
deadline = "1ms"
priority = 4
"""

MANY = """
[[accelerator]]
name = "npu"
count = 2
settings = { sram_bytes = "16KiB" }

[run]
policy = "priority"
preempt = "tile"

[[task]]
name = "slow"
model = "resnet-8"
period = 160_000
jitter = 60_000
priority = 1

[[task]]
name = "quick"
model = "digits-cnn"
period = 40_000
jitter = 39_000
priority = 2

[[task]]
name = "quicker"
model = "digits-cnn"
period = 25_000
jitter = 9_000
priority = 3

[[task]]
name = "control"
cpu = 3_000
period = 60_000
jitter = 9_000
"""
CYCLES_A_JOB = 11_374
"""Of all tasks of MANY together: 1 / (1/160,000 + 1/40,000 + 1/25,000 + 1/60,000)."""


def speed() -> Iterator[str]:
    """Yield a Markdown table of simulation seconds by scheduling policy and preemption."""
    system = parse_system(FOUR)
    plans = PlanMaker().plans(system)

    def work(policy: str, preemption: Preemption) -> Callable[[], SystemReport]:
        conditions = replace(system.conditions, policy=policy, preemption=preemption)
        return partial(run_system, replace(system, conditions=conditions), plans)

    first, report = measuring.shortest(work("priority", "tile"), 1, 0)
    jobs = sum(task.released for task in report.tasks)
    words = {"none": "not preempted, s", "layer": "at layers, s", "tile": "at tiles, s"}
    heads = [words[preemption] for preemption in get_args(Preemption)]
    yield (
        "This table has the seconds that the simulator takes to simulate one second of four "
        f"networks on two accelerators ({jobs:,} jobs). Each figure is the shortest wall-clock "
        f"time of {RUNS} runs after one warm-up run:"
    )
    yield ""
    yield f"| policy | {' | '.join(heads)} | preemptions at tiles |"
    yield "|---|" + "---|" * (len(heads) + 1)
    for policy in POLICIES:
        cells = []
        for preemption in get_args(Preemption):
            seconds, report = measuring.shortest(work(policy, preemption), RUNS, 1)
            cells.append(f"{seconds:.2f}")
        yield (
            f"| `{policy}` | {' | '.join(cells)} | "
            f"{sum(task.preemptions for task in report.tasks):,} |"
        )
    yield ""
    yield (
        "The first simulation of the four networks takes longer: with `priority` and preemption at "
        f"tiles it took {first:.2f} s. That simulation also computes how each program continues "
        "after each boundary. Later simulations reuse this result."
    )


def memory() -> Iterator[str]:
    """Yield a Markdown table of the peak memory of ``dla system`` by number of jobs."""
    yield (
        "This table has the processor time and peak memory of `dla system` for three lengths "
        "of a run. Each row is one run in its own process; its networks were imported before:"
    )
    yield ""
    yield "| jobs that ended | preemptions | processor time, s | peak, MiB |"
    yield "|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DLA_CACHE_DIR"] = folder
        file = Path(folder) / "many.toml"
        written = Path(folder) / "many.json"
        file.write_text(MANY)
        for jobs in (1, 1_000, 10_000, 40_000):
            until = str(jobs * CYCLES_A_JOB)
            processor, mebibytes = cold(
                *DLA, "system", str(file), "--until", until, "--json", str(written)
            )
            tasks = json.loads(written.read_text())["tasks"]
            ended, preemptions = (
                sum(task[key] for task in tasks) for key in ("ended", "preemptions")
            )
            if jobs > 1:  # the first one imports
                yield f"| {ended:,} | {preemptions:,} | {processor:.1f} | {mebibytes:.0f} |"


def main() -> None:
    """Measure speed and memory of system simulations and print the tables.

    Memory comes first, because a child's peak counts from its parent's, which is still small.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--markdown", type=Path, help="document that has the tables between two marks"
    )
    chosen = parser.parse_args()
    print(measuring.settings(), end="\n\n")
    processes = [*memory()]
    lines = [*speed(), "", *processes]
    print(*lines, sep="\n")
    if chosen.markdown:
        write_markdown(chosen.markdown, lines, MARKS)


if __name__ == "__main__":
    main()
