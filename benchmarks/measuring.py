"""Timing functions and thread settings that all benchmarks share.

Import this first, because NumPy reads some settings only once.

A time is the shortest of some runs back to back, after runs that do not count: the work alone with
warm caches, without what else the computer did meanwhile. Where actions take turns, each begins
with the caches of another, which costs the shortest one most and makes ratios to it look small.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
    """Call ``work`` repeatedly; return the shortest time, the median time and the last result.

    Times are in seconds of ``runs`` calls after ``warm_up`` calls that do not count.
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
    """Call ``work`` repeatedly and return the shortest time in seconds and the last result.

    ``warm_up`` calls come first and do not count.
    """
    best, _, result = timed(work, runs, warm_up)
    return best, result


def in_turns(works: Sequence[Callable[[], Any]], rounds: int) -> tuple[float, ...]:
    """Call functions in turns; return the shortest processor seconds of each over all rounds.

    The ratios hold on a computer that does other work, too.
    """
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, times in zip(works, taken, strict=True):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    return tuple(map(min, taken))


class RatioRow(NamedTuple):
    """A row of the table of ratios: what is measured, its reference, and their ratio."""

    measured: str
    reference: str
    ratio: float


def measured(runs: int = RUNS, warm_up: int = WARM_UP) -> str:
    """Return a text for reports that says how :func:`shortest` measures."""
    if runs == 1:
        return "once, wall clock"
    return f"shortest of {runs} runs back to back after {warm_up} to warm up, wall clock"


def settings() -> str:
    """Return the head of a benchmark's output: processor, versions, BLAS and threads."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "onnxruntime", "simpy"))
    return "\n".join(
        (
            f"processor  {processor()}, "
            f"{len(os.sched_getaffinity(0))} cores, "
            f"load {os.getloadavg()[0]:.1f} before",
            f"software   Python {platform.python_version()}, {versions}",
            f"BLAS       {blas()}; {' '.join(f'{name}={os.environ[name]}' for name in THREADS)}",
            f"products   {products()}",
        )
    )


def processor() -> str:
    """Return the processor's name, and whether it has VNNI, the instructions for int8 products."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return f"{found[1] if found else platform.machine()}, {'' if 'vnni' in text else 'no '}VNNI"


def machine(preset: Preset) -> str:
    """Return a one-line description of the simulated machine."""
    arch = preset.arch
    array = preset.arch.pe
    return (
        f"{preset.name}: {{ic = {array.ic}, oc = {array.oc}, ow = {array.ow}}}, "
        f"{arch.sram_bytes // 1024} KiB SRAM, "
        f"{preset.timing.bus_bytes} bytes/cycle, ISA {arch.isa}"
    )
