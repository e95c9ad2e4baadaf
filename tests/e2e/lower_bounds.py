"""Check that random layers on random machines never take fewer cycles than their bounds.

Chains have up to three layers.

``python -m tests.e2e.lower_bounds --count N --seed S`` tries many more than the tests do.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from byoc.emission.region import compile_region, shortage
from byoc.operators.operator import Operator
from byoc.operators.records import Operand
from byoc.options import SCHEDULES, Schedule
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from tests.byoc import region_cases as cases

Random = np.random.Generator


@dataclass(frozen=True)
class Bounded:
    """Layers on a machine: cycles, lower bound, roofline and a description."""

    cycles: int
    bound: int
    roofline: int
    layer: str

    @property
    def below(self) -> bool:
        """True if the cycles are fewer than a bound allows."""
        return self.cycles < max(self.bound, self.roofline)


def random_layers(random: Random) -> tuple[Operator, ...]:
    """A layer, or some that go on with each other's results."""
    found = [
        random_layer(
            random,
            cases.operand("x", *(int(size) for size in random.integers(1, (17, 40, 40)))),
            "y0",
        )
    ]
    for number in range(1, int(random.integers(1, 4))):
        before = found[-1].output
        if len(before.shape) == 3:
            found.append(random_layer(random, before, f"y{number}"))
    return tuple(found)


def random_layer(random: Random, x: Operand, target: str) -> Operator:
    """A convolution, pool, product or addition of random shape.

    Strides are often longer than the window.
    """
    kind = random.choice(["conv", "depthwise", "max", "average", "global_average", "matmul", "add"])
    channels, height, width = x.shape
    kernel = tuple(int(min(size, random.integers(1, 5))) for size in (height, width))
    strides = tuple(int(size) for size in random.integers(1, 10, 2))
    pads = tuple(int(random.integers(0, size)) for size in (*kernel, *kernel))
    window = {"kernel": kernel, "strides": strides, "pads": pads}
    outputs = int(random.integers(1, 33))
    if kind in ("conv", "depthwise"):
        depthwise = kind == "depthwise" and channels > 1
        outputs = channels if depthwise else outputs
        return cases.convolution(random, x, target, outputs, **window, depthwise=depthwise)
    if kind == "matmul":
        return cases.matmul(
            random, cases.operand(x.value, channels, height * width), target, outputs
        )
    if kind == "add":
        return cases.add(x, cases.operand(f"z{target}", channels, height, width), target)
    return cases.pool(x, target, kind, **({} if kind == "global_average" else window))


def random_machine(random: Random) -> tuple[Arch, Timing]:
    """Small and large arrays and scratchpads.

    Buses and memories of any kind, the best ones among them.
    """
    pe = PeArray(
        ic=int(random.choice([1, 4, 16, 24])),
        oc=int(random.choice([1, 8, 20, 32])),
        ow=int(random.choice([1, 1, 2])),
    )
    sram = int(random.choice([2, 8, 64, 512])) * 1024
    bus = int(random.choice([1, 4, 8, 32, 64]))
    flash = int(random.choice([0, 0, *(width for width in (1, 4, 32) if width <= bus)]))
    timing = Timing(
        bus_bytes=bus,
        burst_bytes=bus * int(random.choice([1, 2, 8])),
        dram_latency=int(random.choice([0, 10, 100])),
        outstanding_bursts=int(random.choice([1, 4, 16, 256])),
        flash_bytes=flash,
        flash_burst_bytes=max(flash, 1) * int(random.choice([1, 8, 64])),
        flash_latency=int(random.choice([0, 30])),
        flash_outstanding_bursts=int(random.choice([1, 2, 64])),
        dram_rate=random.choice([None, None, 0.44, 1]),
        flash_rate=random.choice([None, 0.3]),
        queue_depth=int(random.choice([1, 2, 8])),
        dma_setup=int(random.choice([0, 4])),
        dma_drain=int(random.choice([0, 4])),
        ex_fill=int(random.choice([0, 8])),
        ex_drain=int(random.choice([0, 8])),
        sram_read_bytes=int(random.choice([0, 0, 16])),
    )
    lanes = random.choice([None, None, 1, 8])
    arch = Arch(
        isa=str(random.choice(["v2", "v3", "v4", "v4"])), pe=pe, sram_bytes=sram,
        post_lanes=None if lanes is None else int(lanes),
    )  # fmt: skip
    return arch, timing


def bounds(count: int, seed: int) -> Iterator[Bounded]:
    """The cycles and bounds of ``count`` random chains of layers.

    What does not fit its machine does not count.
    """
    random = np.random.default_rng(seed)
    done = 0
    while done < count:
        layers = random_layers(random)
        arch, timing = random_machine(random)
        schedule: Schedule = SCHEDULES[int(random.integers(2))]
        if any(shortage(layer, arch, schedule) is not None for layer in layers):
            continue
        done += 1
        made = {layer.output.value for layer in layers}
        inputs = dict.fromkeys(
            item.value for layer in layers for item in layer.inputs if item.value not in made
        )
        region, values = cases.region(layers, tuple(inputs), (layers[-1].output.value,))
        program, report = compile_region(region, values, arch, schedule, data=False)
        found = ProgramTiming(program)
        demand = report.demand
        bound = timing.lower_bound(found.macs, arch.pe.count, report.compulsory_bytes, demand.apart)
        roofline = timing.least_cycles(demand.compute_cycles, demand.commands, demand.apart)
        shapes = ", ".join(f"{type(layer).__name__} {layer.inputs[0].shape}" for layer in layers)
        text = f"{shapes} on {arch.pe} {arch.isa} {arch.sram_bytes} {schedule} {timing}"
        yield Bounded(found.run(timing).cycles, bound, roofline, text)


def main() -> None:
    """Print the number of chains below a bound of theirs, and how near the others come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    found = list(bounds(chosen.count, chosen.seed))
    below = [item for item in found if item.below]
    for item in below[:10]:
        print(f"{item.cycles} cycles are below {item.bound} or {item.roofline}: {item.layer}")
    for name in ("bound", "roofline"):
        ratios = sorted(item.cycles / getattr(item, name) for item in found if getattr(item, name))
        print(
            f"the nearest takes {ratios[0]:.3f} times its {name}, the median "
            f"{ratios[len(ratios) // 2]:.3f} times"
        )
    print(f"{len(below)} of {len(found)} chains of layers below a bound")
    raise SystemExit(bool(below))


if __name__ == "__main__":
    main()
