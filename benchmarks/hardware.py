"""Measure how long each tool takes to build a machine's executable, and its simulation speed.

The speed is in cycles per second.

    python -m benchmarks.hardware [--preset balanced-64] [--network mobilenet-v1]

Everything is made anew, in a cache of its own. Processor time is that of all processes, which a
loaded computer changes less than the time that passes.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time

from benchmarks import measuring  # before NumPy, whose number of threads it sets

# isort: split
from dla_sim.presets import load_hardware
from dla_sim.rtl.parameters import limits_of, strap_values
from dla_sim.rtl.simulator.case import Case, Straps, run_cases
from dla_sim.rtl.simulator.executable import COMPILERS, Executable, build_executable, find_tools
from dla_sim.rtl.simulator.machine_text import machine_text
from dla_sim.timing import Timing
from experiments.rtl.hardware import is_pipelined
from experiments.running.inference import infer
from experiments.running.network import load_network, network_feeds
from isa.arch import Arch
from tests.dla_sim.rtl.compare import network_cases


class Phases:
    """Progress callback that measures the seconds of consecutive build phases.

    A phase lasts until the next one is reported.

    It is a ``Progress``: a phase lasts until the next one is told.
    """

    def __init__(self) -> None:
        self._name, self._before = "", self._now()

    def __call__(self, said: str, done: int = 0, total: int = 0) -> None:
        now = self._now()
        if self._name:
            passed, own, others = (
                after - before for after, before in zip(now, self._before, strict=True)
            )
            print(
                f"{self._name:24} {passed:8.1f} s    processor: {own:.1f} s here, {others:.1f} s "
                "of tools",
                flush=True,
            )
        self._name = said
        self._before = now

    @staticmethod
    def _now() -> tuple[float, float, float]:
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        own, others = (item.ru_utime + item.ru_stime for item in used)
        return time.perf_counter(), own, others


def build(arch: Arch, timing: Timing) -> Executable:
    """Build the hardware executable of one machine and print the seconds of each phase."""
    phases = Phases()
    phases("Amaranth and Yosys")
    verilog = machine_text(
        limits_of(arch, timing, pipelined=is_pipelined(timing)), strap_values(arch, timing)
    )
    executable = build_executable(verilog, progress=phases)
    phases("the same from the cache")
    build_executable(verilog)
    phases("")
    return executable


def main() -> None:
    """Print the settings, the seconds of each build phase and the speed of the hardware model.

    Exits with status 1 where the hardware differs from the simulator.
    """
    parser = argparse.ArgumentParser(description="Time of making and running hardware.")
    parser.add_argument("--preset", default="balanced-64")
    parser.add_argument("--network", default="mobilenet-v1")
    chosen = parser.parse_args()
    preset = load_hardware(chosen.preset, isa="v4")
    network = load_network(chosen.network)
    tools = find_tools().identity.splitlines()[0].rsplit(", ", 1)[0]  # without the processor
    print(f"{measuring.settings()}\ntools      {tools}, {COMPILERS[False]}")
    print(f"machine    {measuring.machine(preset)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DLA_CACHE_DIR"] = folder
        executable = build(preset.arch, preset.timing)
        done = infer(network, preset, network_feeds(network))
        cases: list[tuple[Case, Straps]] = [(case, {}) for case in network_cases(done)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        outcomes = run_cases(executable, cases)
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    cycles = sum(item.cycles for item in outcomes)
    seconds = sum(item.seconds for item in outcomes)
    differences = sum(item.count for item in outcomes)
    print(
        f"{network.name}: {cycles:,} cycles, {differences} differences; {cycles / used / 1e6:.2f} "
        "M cycles/s of "
        f"processor time, {cycles / seconds / 1e6:.2f} M cycles/s by the clock"
    )
    raise SystemExit(differences > 0)


if __name__ == "__main__":
    main()
