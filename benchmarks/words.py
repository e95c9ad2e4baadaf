"""Compare compile time, simulation time and cycles of ISA v5 (banked memory) with v4.

    python -m benchmarks.words [--networks A,B] [--arrays 4x16,16x16] [--sizes 64,512] [--rounds 3]
    python -m benchmarks.words --cycles [--networks A,B] [--arrays 4x16,1x256] [--sizes 64,512]

Of each network, on each machine: the seconds that v4 and v5 take from the imported network to its
programs, and those of an inference, bits and cycles, which is the sum over its regions. v4 and v5
take turns, each the shortest of its rounds, processor time of one thread: so the ratio holds on a
computer that does other work, too. A simulation is timed warm, its programs decoded; of both its
values come from the same inputs. Last the geometric means of the ratios.

``--cycles`` prints the cycles of timing-only runs of both, by default for 31 networks, four arrays
and two sizes, then the geometric mean of their ratios, the largest one, and the points above 1.2.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from statistics import geometric_mean
from typing import NamedTuple

from benchmarks import measuring  # before NumPy, whose number of threads it sets
from benchmarks.compiler import BUS_BYTES
from benchmarks.compiler import arch as machine_of
from byoc.compiler import compile
from byoc.host.runtime import Runtime, region_inputs
from byoc.options import DEFAULTS
from dla_sim.device import Device
from dla_sim.timing import Timing
from experiments.models import MODELS
from experiments.running.network import load_network
from experiments.sweep.store import FIGURE_COLUMNS, canonical
from experiments.sweep.tasks import Preparation
from experiments.sweep.worker import MachineJob, NetworkJob, outcome_of
from experiments.version import compiler_version
from isa.arch import Arch

VARIANTS = "v4", "v5"
NETWORKS = (
    "mobilenet-v1", "resnet-8", "resnet-18", "light-shufflenet", "light-alexnet",
    "mobilenet-v3-small",
    "light-squeezenet", "visual-wake-words", "keyword-spotting", "bert-2-128", "lstm-small",
    "super-resolution",
)  # fmt: skip

SLOW = frozenset(
    ("light-alexnet", "light-densenet121", "light-vgg19", "light-zfnet512", "bert-2-256",
     "bert-12-128", "bert-12-256", "gpt2-12", "c3d", "r2plus1d", "yolo-v8n", "point-pillars",
     "lstm")
)  # fmt: skip
"""Networks that ``--cycles`` leaves out unless they are named: the largest ones, which take
minutes to compile.
"""
ARRAYS = "4x16,16x16,32x32,1x256"
SIZES = "64,512"
NOTABLE = 1.2
"""Ratios of cycles above this are listed again."""


class Seconds(NamedTuple):
    """Processor seconds of compiling a network and of simulating one inference."""

    compiling: float
    simulating: float


def measure(network: str, array: str, kib: int, rounds: int) -> tuple[Seconds, ...]:
    """Return the compile and simulation times of a network for each of :data:`VARIANTS`."""
    package = load_network(network).package
    feed = MODELS[network].sample_input()
    machines = [machine_of(array, kib).model_copy(update={"isa": isa}) for isa in VARIANTS]
    compiling = measuring.in_turns(
        tuple(partial(compile, package, machine) for machine in machines), rounds
    )
    runs = []
    for machine in machines:
        compiled = compile(package, machine)
        device = Device(machine, Timing())
        values = Runtime(compiled, device).run(feed).values
        programs = [
            (program, region_inputs(program, values)) for program in compiled.programs.values()
        ]
        runs.append(
            lambda programs=programs, device=device: [device.run(*given) for given in programs]
        )
    for run in runs:
        run()
    return tuple(map(Seconds, compiling, measuring.in_turns(tuple(runs), rounds)))


def rows(
    networks: list[str], arrays: list[str], sizes: list[int], rounds: int
) -> Iterator[tuple[Seconds, ...]]:
    """Measure compile and simulation times; print a row per network and machine."""
    for network in networks:
        for array in arrays:
            for kib in sizes:
                plain, packed = found = measure(network, array, kib, rounds)
                times = (
                    f"{1e3 * a:9.1f} {1e3 * b:9.1f} {b / a:5.2f} x"
                    for a, b in zip(plain, packed, strict=True)
                )
                print(f"{network:20} {array:>5} {kib:5} {'    '.join(times)}", flush=True)
                yield found


def cycles_of(preparation: Preparation, machine: Arch) -> tuple[int, int]:
    """Return a network's cycles on a machine, and the number of its nodes on the CPU."""
    prepared = preparation.prepare(machine, DEFAULTS)
    job = NetworkJob(
        compiler_version(),
        prepared.regions,
        DEFAULTS,
        (MachineJob(machine, (canonical({"bus_bytes": BUS_BYTES}),)),),
    )
    ((outcome,),) = outcome_of(job).outcomes
    if outcome.figures is None:
        raise SystemExit(f"{machine.isa}: {outcome.message}")
    return dict(zip(FIGURE_COLUMNS, outcome.figures, strict=True))["cycles"], prepared.host_nodes


def cycle_rows(
    networks: list[str], arrays: list[str], sizes: list[int]
) -> Iterator[tuple[str, float]]:
    """Print the cycles of v4 and v5 and their ratio for each network and machine.

    Yield the point and the ratio.
    """
    for network in networks:
        preparation = Preparation(load_network(network).package)
        for array in arrays:
            for kib in sizes:
                machines = (
                    machine_of(array, kib).model_copy(update={"isa": isa}) for isa in VARIANTS
                )
                (plain, host), (packed, packed_host) = (
                    cycles_of(preparation, machine) for machine in machines
                )
                more = f"    {packed_host - host:+} nodes on the CPU" if packed_host != host else ""
                point = f"{network:20} {array:>5} {kib:5}"
                print(f"{point} {plain:12,} {packed:12,} {packed / plain:6.3f}{more}", flush=True)
                yield point, packed / plain


def print_cycles(networks: list[str], arrays: list[str], sizes: list[int]) -> None:
    """Print cycles of v4 and v5, the mean and largest ratio, and those above :data:`NOTABLE`."""
    print(f"{'network':20} array   KiB           v4           v5  ratio")
    found = sorted(cycle_rows(networks, arrays, sizes), key=lambda row: -row[1])
    print(
        f"\n{len(found)} points: geometric mean "
        f"{geometric_mean(ratio for _, ratio in found):.3f}, ",
        end="",
    )
    print(f"largest {found[0][1]:.3f}; above {NOTABLE}:")
    for point, ratio in found:
        if ratio > NOTABLE:
            print(f"{point} {ratio:6.3f}")


def main() -> None:
    """Print compile and simulation times, or cycles, of v4 and v5 and their mean ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", help="names with commas between them")
    parser.add_argument("--arrays", help="input by output channels")
    parser.add_argument("--sizes", help="KiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cycles", action="store_true", help="print cycles in place of seconds")
    options = parser.parse_args()
    if options.cycles:
        names = (
            options.networks.split(",")
            if options.networks
            else [name for name in MODELS if name not in SLOW]
        )
        sizes = [int(size) for size in (options.sizes or SIZES).split(",")]
        print_cycles(names, (options.arrays or ARRAYS).split(","), sizes)
        return
    print(
        f"{measuring.settings()}\nmeasured   shortest of {options.rounds} rounds in turns, "
        "processor time\n"
    )
    print(
        f"{'network':20} array   KiB  compile v4     v5 ms   ratio     simulate v4   v5 ms   ratio"
    )
    sizes = [int(size) for size in (options.sizes or "512").split(",")]
    networks = options.networks.split(",") if options.networks else list(NETWORKS)
    found = list(rows(networks, (options.arrays or "4x16,16x16").split(","), sizes, options.rounds))
    for name, column in zip(("compilation", "simulation"), range(2), strict=True):
        ratio = geometric_mean(packed[column] / plain[column] for plain, packed in found)
        print(f"{name:11} {ratio:.3f} x, geometric mean of {len(found)} points")


if __name__ == "__main__":
    main()
