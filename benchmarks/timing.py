"""Speed of the timing engines on MobileNetV1 1.0/224 for the recommended machine, one thread.

    python -m benchmarks.timing [--schedule seed|default] [--network NAME]

Command words, operations and simulated cycles a second of both engines, alone and with the
accounts; growth from 1 to 64 inferences in one stream; points a second of a sweep in which only the
Timing changes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product

from benchmarks import measuring  # before NumPy, whose number of threads it sets
from benchmarks.repetition import repeated
from byoc.compiler import compile as compile_network
from dla_sim.device import Device, Engine
from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import compute_times
from dla_sim.presets import load_hardware
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from experiments.running.network import load_network
from isa.program import Program

ENGINES: dict[str, Engine] = {"event (SimPy)": simulate, "recurrence": compute_times}


def accounted(device: Device, program: Program) -> Mapping[str, int]:
    """Run a program timing-only and return its cycles by kind."""
    return device.run(program, {}, timing_only=True).trace.kinds


def speed(program: Program) -> None:
    """Print the speed of both timing engines, alone and in whole timing-only runs.

    Whole runs include causes, accounts and hazards.
    """
    words = len(program.words)
    operations = len(program.commands)
    print(measuring.measured())
    print(
        f"{'':24s} {'ms':>8s} {'words/s':>11s} {'operations/s':>13s} {'Mcycles/s':>10s} "
        f"{'us/operation':>13s}"
    )
    for name, engine in ENGINES.items():
        device = Device(program.arch, engine=engine)
        workload = device.load(program).workload
        found, schedule = measuring.shortest(partial(engine, workload))
        whole, _ = measuring.shortest(partial(accounted, device, program))
        for label, seconds in ((name, found), ("  with accounts", whole)):
            print(
                f"{label:24s} {seconds * 1e3:8.2f} {words / seconds:11,.0f} "
                f"{operations / seconds:13,.0f} "
                f"{schedule.total / seconds / 1e6:10,.0f} {seconds / operations * 1e6:13.2f}"
            )


def growth(program: Program, counts: Iterable[int]) -> None:
    """Print cycles and time of streams of many inferences.

    Both must be proportional to the number of inferences.
    """
    names = "".join(f"{name + ', ms/inference':>30s}" for name in ENGINES)
    print(f"\n{measuring.measured(3, 1)}")
    print(f"{'inferences':>10s} {'words':>9s} {'cycles':>14s} {'cycles/inference':>17s}{names}")
    for count in counts:
        stream = repeated(program, count)
        workload = Device(stream.arch).load(stream).workload
        measured = [
            measuring.shortest(partial(engine, workload), 3, 1) for engine in ENGINES.values()
        ]
        (total,) = {schedule.total for _, schedule in measured}
        times = "".join(f"{seconds / count * 1e3:30.2f}" for seconds, _ in measured)
        print(f"{count:10d} {len(stream.words):9,d} {total:14,d} {total / count:17,.0f}{times}")


def sweep(program: Program) -> None:
    """Print the speed of a sweep over timing settings in points per second.

    The settings are bus, latency, outstanding bursts and queue depth.
    """
    axes = ((4, 8, 16, 32), (20, 50, 100, 200), (1, 4, 16), (1, 2, 4))
    timings = [
        Timing(bus_bytes=bus, dram_latency=latency, outstanding_bursts=bursts, queue_depth=depth)
        for bus, latency, bursts, depth in product(*axes)
    ]
    prepared, timed = measuring.shortest(lambda: ProgramTiming(program), 3, 1)
    seconds, points = measuring.shortest(
        lambda: [timed.run(timing).cycles for timing in timings], 3, 1
    )
    print(f"\n{measuring.measured(3, 1)}")
    print(
        f"sweep: prepared in {prepared * 1e3:.1f} ms, {len(timings)} points, "
        f"{len(timings) / seconds:,.0f} points/s, "
        f"{min(points):,d} to {max(points):,d} cycles"
    )


def main() -> None:
    """Compile a network, then print engine speed, growth with length and sweep speed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="mobilenet-v1")
    parser.add_argument("--schedule", choices=("seed", "default"), default="default")
    options = parser.parse_args()
    hardware = load_hardware()
    print(f"{measuring.settings()}\nmachine    {measuring.machine(hardware)}")
    package = load_network(options.network).package
    programs = compile_network(
        package, hardware.arch, timing=hardware.timing, schedule=options.schedule
    ).programs
    for region, program in programs.items():
        print(
            f"\n{options.network}, region {region}, schedule {options.schedule}: "
            f"{len(program.words)} command words"
        )
        speed(program)
        growth(program, (1, 2, 4, 8, 16, 32, 64))
        sweep(program)


if __name__ == "__main__":
    main()
