"""What a machine of words costs its user: compile time and simulation time of ISA v5 over v4, paired.

    python -m benchmarks.words [--networks A,B] [--arrays 4x16,16x16] [--sizes 64,512] [--rounds 3]

Of each network, on each machine: the seconds that v4 and v5 take from the imported network to its programs, and those
of an inference, bits and cycles, which is the sum over its regions. v4 and v5 take turns, each the shortest of its
rounds, processor time of one thread: so the ratio holds on a computer that does other work, too. A simulation is timed
warm, its programs decoded; of both its values come from the same inputs. Last the geometric means of the ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import geometric_mean
from typing import Any, NamedTuple

from benchmarks import measuring  # before NumPy, whose number of threads it sets
from benchmarks.compiler import arch as machine_of
from byoc.compiler import compile
from byoc.host.runtime import Runtime, region_inputs
from dla_sim.device import Device
from dla_sim.timing import Timing
from experiments.models import MODELS
from experiments.running.network import load_network

VARIANTS = "v4", "v5"
NETWORKS = (
    "mobilenet-v1", "resnet-8", "resnet-18", "light-shufflenet", "light-alexnet", "mobilenet-v3-small",
    "light-squeezenet", "visual-wake-words", "keyword-spotting", "bert-2-128", "lstm-small", "super-resolution",
)  # fmt: skip


class Seconds(NamedTuple):
    """Processor time of compilation and of one simulation."""

    compiling: float
    simulating: float


def shortest_in_turns(works: tuple[Callable[[], Any], ...], rounds: int) -> tuple[float, ...]:
    """Seconds of processor time of each, the shortest of ``rounds`` turns."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, times in zip(works, taken, strict=True):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    return tuple(map(min, taken))


def measure(network: str, array: str, kib: int, rounds: int) -> tuple[Seconds, ...]:
    """What each of :data:`VARIANTS` takes."""
    package, feed = load_network(network).package, MODELS[network].sample_input()
    machines = [machine_of(array, kib).model_copy(update={"isa": isa}) for isa in VARIANTS]
    compiling = shortest_in_turns(tuple(partial(compile, package, machine) for machine in machines), rounds)
    runs = []
    for machine in machines:
        compiled, device = compile(package, machine), Device(machine, Timing())
        values = Runtime(compiled, device).run(feed).values
        programs = [(program, region_inputs(program, values)) for program in compiled.programs.values()]
        runs.append(lambda programs=programs, device=device: [device.run(*given) for given in programs])
    for run in runs:
        run()
    return tuple(map(Seconds, compiling, shortest_in_turns(tuple(runs), rounds)))


def rows(networks: list[str], arrays: list[str], sizes: list[int], rounds: int) -> Iterator[tuple[Seconds, ...]]:
    """Prints a line a point and has what it took."""
    for network in networks:
        for array in arrays:
            for kib in sizes:
                plain, packed = found = measure(network, array, kib, rounds)
                times = (f"{1e3 * a:9.1f} {1e3 * b:9.1f} {b / a:5.2f} x" for a, b in zip(plain, packed, strict=True))
                print(f"{network:20} {array:>5} {kib:5} {'    '.join(times)}", flush=True)
                yield found


def main() -> None:
    """A line a point, then the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--arrays", default="4x16,16x16")
    parser.add_argument("--sizes", default="512", help="KiB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{measuring.settings()}\nmeasured   shortest of {options.rounds} rounds in turns, processor time\n")
    print(f"{'network':20} array   KiB  compile v4     v5 ms   ratio     simulate v4   v5 ms   ratio")
    sizes = [int(size) for size in options.sizes.split(",")]
    found = list(rows(options.networks.split(","), options.arrays.split(","), sizes, options.rounds))
    for name, column in zip(("compilation", "simulation"), range(2), strict=True):
        ratio = geometric_mean(packed[column] / plain[column] for plain, packed in found)
        print(f"{name:11} {ratio:.3f} x, geometric mean of {len(found)} points")


if __name__ == "__main__":
    main()
