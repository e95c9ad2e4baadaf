"""How all benchmarks measure, and under which settings: import this first, for NumPy reads some of them once.

A time is the shortest of some runs back to back, after runs that do not count: the work alone with warm caches, without
what else the computer did meanwhile. Where actions take turns, each begins with the caches of another, which costs the
shortest one most and makes ratios to it look small.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dla_sim.presets import Preset

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
for _name in THREADS:
    os.environ[_name] = "1"

WARM_UP = 3
RUNS = 30

Result = TypeVar("Result")


def timed(work: Callable[[], Result], runs: int = RUNS, warm_up: int = WARM_UP) -> tuple[float, float, Result]:
    """Seconds of the shortest and of the middle one of ``runs`` runs after ``warm_up``, and the last result."""
    taken = []
    for _ in range(warm_up + runs):
        start = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - start)
    return min(taken[warm_up:]), median(taken[warm_up:]), result


def shortest(work: Callable[[], Result], runs: int = RUNS, warm_up: int = WARM_UP) -> tuple[float, Result]:
    """Seconds of the shortest of ``runs`` runs after ``warm_up`` that do not count, and the last result."""
    best, _, result = timed(work, runs, warm_up)
    return best, result


def measured(runs: int = RUNS, warm_up: int = WARM_UP) -> str:
    """How :func:`shortest` measures, for print."""
    if runs == 1:
        return "once, wall clock"
    return f"shortest of {runs} runs back to back after {warm_up} to warm up, wall clock"


def settings() -> str:
    """Processor, versions, BLAS with its core, and threads: the head of every benchmark's output."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "onnxruntime", "simpy"))
    return "\n".join(
        (
            f"processor  {found[1] if found else platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
            f"load {os.getloadavg()[0]:.1f} before",
            f"software   Python {platform.python_version()}, {versions}",
            f"BLAS       {blas()}; {' '.join(f'{name}={os.environ[name]}' for name in THREADS)}",
            f"products   {products()}",
        )
    )


def blas() -> str:
    """Name, version and core of NumPy's BLAS: kernels differ by the core that OpenBLAS took this processor for."""
    import numpy as np

    build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{build['name']} {build['version']}, core {_core() or 'unknown'}"


def products() -> str:
    """How kernels multiply integers here, and whether some of them can be compiled."""
    from dla_sim.kernels.products import integer_products

    found = integer_products()
    how = "float32 by BLAS alone" if found is None else f"MatMulInteger of uint8 by {found.kind} on ONNX Runtime"
    try:
        return f"{how}; numba {version('numba')}"
    except PackageNotFoundError:
        return f"{how}; no numba"


def _core() -> str | None:
    """What the OpenBLAS library in this process calls the processor."""
    for path in sorted(set(re.findall(r"/\S*blas\S*", Path("/proc/self/maps").read_text()))):
        library = ctypes.CDLL(path)
        for symbol in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
            if hasattr(library, symbol):
                function = getattr(library, symbol)
                function.restype = ctypes.c_char_p
                return str(function().decode())
    return None


def machine(preset: Preset) -> str:
    """The simulated machine in a line."""
    arch, array = preset.arch, preset.arch.pe
    return (
        f"{preset.name}: {{ic = {array.ic}, oc = {array.oc}, ow = {array.ow}}}, {arch.sram_bytes // 1024} KiB SRAM, "
        f"{preset.timing.bus_bytes} bytes/cycle, ISA {arch.isa}"
    )
