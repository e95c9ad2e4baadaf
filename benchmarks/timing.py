"""Speed of the timing engines on MobileNetV1 1.0/224, 64 PEs, 512 KiB, one thread.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.timing [--schedule seed|default] [--network NAME]

Command words, operations and simulated cycles a second of both engines, alone and with the accounts; growth from 1 to
64 inferences in one stream; points a second of a sweep in which only the Timing changes. Times are processor times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from typing import TypeVar

from benchmarks.repetition import repeated
from byoc.pipeline import compile as compile_network
from dla_sim.device import Device, Engine
from dla_sim.engine.recurrence import compute_schedule
from dla_sim.engine.simulation import simulate
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from experiments.running.network import load_network
from isa.arch import Arch
from isa.program import Program

ENGINES: dict[str, Engine] = {"event (SimPy)": simulate, "recurrence": compute_schedule}
Result = TypeVar("Result")


def best_of(repeats: int, work: Callable[[], Result]) -> tuple[float, Result]:
    """Shortest processor time of ``repeats`` runs in seconds, and the last result."""
    seconds = []
    for _ in range(repeats):
        begun = time.process_time()
        result = work()
        seconds.append(time.process_time() - begun)
    return min(seconds), result


def accounted(device: Device, program: Program) -> Mapping[str, int]:
    """A whole timing-only run, down to the cycles by kind."""
    return device.run(program, {}, timing_only=True).trace.kinds


def speed(program: Program) -> None:
    """Both engines alone, then whole timing-only runs with causes, accounts and hazards."""
    words, operations = len(program.words), len(program.commands)
    print(f"{'':24s} {'ms':>8s} {'words/s':>11s} {'operations/s':>13s} {'Mcycles/s':>10s} {'us/operation':>13s}")
    for name, engine in ENGINES.items():
        device = Device(program.arch, engine=engine)
        workload = device.load(program).workload
        found, schedule = best_of(20, partial(engine, workload))
        whole, _ = best_of(20, partial(accounted, device, program))
        for label, seconds in ((name, found), ("  with accounts", whole)):
            print(
                f"{label:24s} {seconds * 1e3:8.2f} {words / seconds:11,.0f} {operations / seconds:13,.0f} "
                f"{schedule.total / seconds / 1e6:10,.0f} {seconds / operations * 1e6:13.2f}"
            )


def growth(program: Program, counts: Iterable[int]) -> None:
    """Cycles and time of streams of many inferences: both must be proportional to their number."""
    names = "".join(f"{name + ', ms/inference':>30s}" for name in ENGINES)
    print(f"\n{'inferences':>10s} {'words':>9s} {'cycles':>14s} {'cycles/inference':>17s}{names}")
    for count in counts:
        stream = repeated(program, count)
        workload = Device(stream.arch).load(stream).workload
        measured = [best_of(3, partial(engine, workload)) for engine in ENGINES.values()]
        (total,) = {schedule.total for _, schedule in measured}
        times = "".join(f"{seconds / count * 1e3:30.2f}" for seconds, _ in measured)
        print(f"{count:10d} {len(stream.words):9,d} {total:14,d} {total / count:17,.0f}{times}")


def sweep(program: Program) -> None:
    """Points a second of a sweep over bus, latency, outstanding bursts and queue depth."""
    axes = ((4, 8, 16, 32), (20, 50, 100, 200), (1, 4, 16), (1, 2, 4))
    timings = [
        Timing(bus_bytes=bus, dram_latency=latency, outstanding_bursts=bursts, queue_depth=depth)
        for bus, latency, bursts, depth in product(*axes)
    ]
    prepared, timed = best_of(1, lambda: ProgramTiming(program))
    seconds, points = best_of(3, lambda: [timed.run(timing).total for timing in timings])
    print(
        f"\nsweep: prepared in {prepared * 1e3:.1f} ms, {len(timings)} points, {len(timings) / seconds:,.0f} points/s, "
        f"{min(points):,d} to {max(points):,d} cycles"
    )


def main() -> None:
    """Compile, then print the three parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mobilenet-v1")
    parser.add_argument("--schedule", choices=("seed", "default"), default="default")
    options = parser.parse_args()
    arch = Arch(sram_bytes=512 * 1024)
    programs = compile_network(load_network(options.network).package, arch, schedule=options.schedule).programs
    for region, program in programs.items():
        print(f"{options.network}, region {region}, schedule {options.schedule}: {len(program.words)} command words")
        speed(program)
        growth(program, (1, 2, 4, 8, 16, 32, 64))
        sweep(program)


if __name__ == "__main__":
    main()
