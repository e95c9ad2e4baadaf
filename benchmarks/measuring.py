"""How all benchmarks measure, and under which settings: import this first, for NumPy reads some of
them once.

A time is the shortest of some runs back to back, after runs that do not count: the work alone with
warm caches, without what else the computer did meanwhile. Where actions take turns, each begins
with the caches of another, which costs the shortest one most and makes ratios to it look small.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

# which load NumPy when they are called
from experiments.installation import THREADS, blas, products

if TYPE_CHECKING:
    from dla_sim.presets import Preset

for _name in THREADS:
    os.environ[_name] = "1"

WARM_UP = 3
RUNS = 30

Result = TypeVar("Result")


def timed(
    work: Callable[[], Result], runs: int = RUNS, warm_up: int = WARM_UP
) -> tuple[float, float, Result]:
    """Seconds of the shortest and of the middle one of ``runs`` runs after ``warm_up``, and the
    last result.
    """
    taken = []
    for _ in range(warm_up + runs):
        start = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - start)
    return min(taken[warm_up:]), median(taken[warm_up:]), result


def shortest(
    work: Callable[[], Result], runs: int = RUNS, warm_up: int = WARM_UP
) -> tuple[float, Result]:
    """Seconds of the shortest of ``runs`` runs after ``warm_up`` that do not count, and the last
    result.
    """
    best, _, result = timed(work, runs, warm_up)
    return best, result


def measured(runs: int = RUNS, warm_up: int = WARM_UP) -> str:
    """How :func:`shortest` measures, for print."""
    if runs == 1:
        return "once, wall clock"
    return f"shortest of {runs} runs back to back after {warm_up} to warm up, wall clock"


def settings() -> str:
    """Processor, versions, BLAS with its core, and threads: the head of every benchmark's
    output.
    """
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "onnxruntime", "simpy"))
    return "\n".join(
        (
            f"processor  {found[1] if found else platform.machine()}, "
            f"{len(os.sched_getaffinity(0))} cores, "
            f"load {os.getloadavg()[0]:.1f} before",
            f"software   Python {platform.python_version()}, {versions}",
            f"BLAS       {blas()}; {' '.join(f'{name}={os.environ[name]}' for name in THREADS)}",
            f"products   {products()}",
        )
    )


def machine(preset: Preset) -> str:
    """The simulated machine in a line."""
    arch = preset.arch
    array = preset.arch.pe
    return (
        f"{preset.name}: {{ic = {array.ic}, oc = {array.oc}, ow = {array.ow}}}, "
        f"{arch.sram_bytes // 1024} KiB SRAM, "
        f"{preset.timing.bus_bytes} bytes/cycle, ISA {arch.isa}"
    )
