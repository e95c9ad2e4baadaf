"""The lower bound is one: random layers on random machines never take fewer cycles.

``python -m tests.e2e.lower_bounds --count N --seed S`` tries many more than the tests do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from byoc.emission.region import compile_region, shortage
from byoc.operators.operator import Operator
from byoc.options import SCHEDULES, Schedule
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.instruction import ceil_div
from tests.byoc import region_cases as cases

Random = np.random.Generator


@dataclass(frozen=True)
class Bounded:
    """A layer on a machine: its cycles and its bound, and what it was."""

    cycles: int
    bound: int
    layer: str


def random_layer(random: Random) -> Operator:
    """A convolution, pool, product or addition of random shape; strides are often longer than the window."""
    kind = random.choice(["conv", "depthwise", "max", "average", "global_average", "matmul", "add"])
    channels, height, width = (int(size) for size in random.integers(1, (17, 40, 40)))
    x = cases.operand("x", channels, height, width)
    kernel = tuple(int(min(size, random.integers(1, 5))) for size in (height, width))
    strides = tuple(int(size) for size in random.integers(1, 10, 2))
    pads = tuple(int(random.integers(0, size)) for size in (*kernel, *kernel))
    window = {"kernel": kernel, "strides": strides, "pads": pads}
    if kind in ("conv", "depthwise"):
        depthwise = kind == "depthwise" and channels > 1
        outputs = channels if depthwise else int(random.integers(1, 33))
        return cases.convolution(random, x, "y", outputs, **window, depthwise=depthwise)
    if kind == "matmul":
        return cases.matmul(random, cases.operand("x", height, channels), "y", width)
    if kind == "add":
        return cases.add(x, cases.operand("z", channels, height, width), "y")
    return cases.pool(x, "y", kind, **({} if kind == "global_average" else window))


def random_machine(random: Random) -> tuple[Arch, Timing]:
    """Small and large arrays, scratchpads and buses."""
    pe = PeArray(ic=int(random.choice([1, 4, 16])), oc=int(random.choice([1, 8, 32])), ow=int(random.choice([1, 2])))
    sram = int(random.choice([2, 8, 64, 512])) * 1024
    return Arch(pe=pe, sram_bytes=sram), Timing(bus_bytes=int(random.choice([1, 4, 8, 64])))


def bounds(count: int, seed: int) -> Iterator[Bounded]:
    """The cycles and bounds of ``count`` random layers; what fits no machine does not count."""
    random = np.random.default_rng(seed)
    done = 0
    while done < count:
        operation = random_layer(random)
        arch, timing = random_machine(random)
        schedule: Schedule = SCHEDULES[int(random.integers(2))]
        if shortage(operation, arch, schedule) is not None:
            continue
        done += 1
        inputs = tuple(dict.fromkeys(item.value for item in operation.inputs))
        region, values = cases.region((operation,), inputs, ("y",))
        program, report = compile_region(region, values, arch, schedule, data=False)
        found = ProgramTiming(program)
        work = ceil_div(found.macs, arch.pe.count)
        bound = max(work, ceil_div(report.compulsory_bytes, timing.bus_bytes))
        text = f"{type(operation).__name__} {operation.inputs[0].shape} on {arch.pe} {arch.sram_bytes} {schedule}"
        yield Bounded(found.run(timing).total, bound, text)


def main() -> None:
    """Print the number of layers below their bound, and how near the others come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    found = list(bounds(chosen.count, chosen.seed))
    below = [item for item in found if item.cycles < item.bound]
    for item in below[:10]:
        print(f"{item.cycles} cycles are below the bound of {item.bound}: {item.layer}")
    nearest = min(item.cycles / item.bound for item in found if item.bound)
    print(f"{len(below)} of {len(found)} layers below their bound; the nearest takes {nearest:.3f} times it")
    raise SystemExit(bool(below))


if __name__ == "__main__":
    main()
