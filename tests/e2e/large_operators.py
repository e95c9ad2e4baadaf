"""Draw single operators with operands larger than the scratchpad.

They are reductions, products and convolutions.

``python -m tests.e2e.large_operators --count N --seed S`` draws N models and runs each on four
machines. A run must end without a traceback or a refusal of the network, and every tensor that
leaves a region must equal the oracle's.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.compiler import compile
from byoc.host.runtime import Runtime
from byoc.host.sessions import Oracle
from byoc.importing import import_model
from dla_sim.device import Device
from dla_sim.presets import load_hardware
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder

Random = np.random.Generator
Settings = Mapping[str, str | int]

REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin") * 3,
    *("ReduceL1", "ReduceL2", "ReduceSumSquare"),  # in a quantised file, these run on the CPU
)
FOLLOWERS = ("", "", "Relu", "Clip", "Sigmoid", "Add")
ARRAYS = ((4, 16), (8, 8), (16, 16), (16, 4), (3, 5), (32, 32), (1, 64), (64, 1))
PACKED_ARRAYS = ((4, 16), (8, 8), (16, 16), (16, 4), (8, 32), (32, 8))
SCRATCHPADS = (512, 1024, 1024, 2048, 2048, 4096, 8192, 16384)
"""Sizes in bytes."""
SMALL_PACKED = 2048
"""A smaller scratchpad of v5 has four banks, so that each can hold a word."""
RATIOS = (1.1, 20.0)
"""Sizes of the largest operand, in scratchpads; half of those drawn are below 1.6."""
LARGE_RATIOS = (20.0, 100.0)
"""The same of one drawn operator in ``1 / LARGE_SHARE``."""
LARGE_SHARE = 0.02
LONG_SHARE = 0.1
"""Drawn shapes that may have one dimension of nearly all elements: thousands of tiles of a few
bytes.
"""


@dataclass(frozen=True)
class DrawnOperator:
    """A model and a line that describes it."""

    model: onnx.ModelProto
    text: str


@dataclass(frozen=True)
class Machine:
    """An instruction set and changes of the preset."""

    isa: str
    settings: Settings

    def __str__(self) -> str:
        return " ".join([self.isa, *(f"{key}={value}" for key, value in self.settings.items())])


GOOD = ("accelerator", "cpu")


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run: on the accelerator, partly on the CPU with a reason, or an error."""

    kind: str
    detail: str

    @property
    def good(self) -> bool:
        """True if nothing went wrong."""
        return self.kind in GOOD


class _Unit:
    """Quantised inputs, one operator, an optional follower, and a quantised output."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.builder = ModelBuilder(opset=18)

    def scale(self, largest: float = 0.1) -> float:
        return float(np.float32(self.random.uniform(0.01, largest)))

    def input(self, shape: Sequence[int]) -> str:
        name = f"x{len(self.builder.inputs)}"
        zero_point = int(self.random.integers(-20, 20))
        return self.builder.dequantize(
            self.builder.input(name, shape, "int8"), self.scale(), zero_point
        )

    def weights(self, shape: Sequence[int]) -> str:
        return self.builder.weights(
            self.random.integers(-127, 128, shape).astype(np.int8), self.scale()
        )

    def finish(self, result: str, after: float) -> onnx.ModelProto:
        """Append the follower of the operator.

        The intermediate tensor is an output where there is one.
        """
        builder = self.builder
        follower = FOLLOWERS[int(self.random.integers(len(FOLLOWERS)))]
        if follower:
            result = builder.dequantize(builder.quantize(result, after, 5, result="t"), after, 5)
            operands = {"Clip": [builder.constant(-1.7, "float32")], "Add": [result]}.get(
                follower, []
            )
            result = builder.node(follower, result, *operands)
            if self.random.random() < 0.5:
                builder.output("t", "int8")
        builder.quantize(result, after, -3, result="y")
        builder.output("y", "int8")
        return builder.model()


def _shares(random: Random, rank: int) -> NDArray[np.float64]:
    """Draw the share of each dimension in the logarithm of a size.

    The shares are usually about equal; sometimes one dimension has most.
    """
    return random.dirichlet(np.full(rank, 1.0 if random.random() < LONG_SHARE else 5.0))


def _sizes(random: Random, rank: int, elements: int) -> tuple[int, ...]:
    """Draw a shape of about so many elements."""
    shares = _shares(random, rank)
    return tuple(max(1, round(elements**share)) for share in shares)


def reduction(random: Random, elements: int) -> DrawnOperator:
    """Draw a reduction over any set of axes."""
    unit = _Unit(random)
    shape = (1, *_sizes(random, int(random.choice([1, 2, 2, 3, 3])), elements))
    shape = shape[int(random.integers(2)) :]
    kind = REDUCTIONS[int(random.integers(len(REDUCTIONS)))]
    chosen = [axis for axis in range(len(shape)) if random.random() < 0.5] or [
        int(random.integers(len(shape)))
    ]
    keep = int(random.integers(2))
    axes = unit.builder.constant(chosen, "int64")
    result = unit.builder.node(kind, unit.input(shape), axes, keepdims=keep)
    count = float(np.prod([shape[axis] for axis in chosen]))
    largest = 0.1 if kind[6:] in ("Mean", "Max", "Min") else 0.02 * np.sqrt(count)
    return DrawnOperator(
        unit.finish(result, unit.scale(0.02 + largest)),
        f"{kind} {shape} over {chosen}, keep {keep}",
    )


def product(random: Random, elements: int) -> DrawnOperator:
    """Draw a MatMul or Gemm with constant weights, or a product of two activations."""
    unit = _Unit(random)
    shares = _shares(random, 3)
    rows, depth, columns = (
        max(1, round(elements ** (share / (1 - shares.min())))) for share in shares
    )
    kind = ("MatMul", "batched", "two activations", "Gemm")[int(random.integers(4))]
    text = f"{kind} {rows} x {depth} x {columns}"
    batch = (
        (int(random.integers(2, 5)),)
        if kind == "batched" or (kind[:3] == "two" and random.random() < 0.5)
        else ()
    )
    first = unit.input((*batch, rows, depth))
    if kind == "Gemm":
        transposed = int(random.integers(2))
        second = unit.weights((columns, depth) if transposed else (depth, columns))
        result = unit.builder.node("Gemm", first, second, transB=transposed)
    else:
        second = (
            unit.input((*batch, depth, columns))
            if kind[:3] == "two"
            else unit.weights((depth, columns))
        )
        result = unit.builder.node("MatMul", first, second)
    return DrawnOperator(
        unit.finish(result, unit.scale(0.1 * np.sqrt(depth))), f"{text}, batch {batch}"
    )


def convolution(random: Random, elements: int) -> DrawnOperator:
    """Draw a Conv or ConvTranspose of one or two dimensions.

    It has any groups, strides, dilations and padding. The largest operand is the input, the weights
    or the result.
    """
    unit = _Unit(random)
    rank = int(random.integers(1, 3))
    transposed = bool(random.random() < 0.25)
    large_input = bool(random.random() < 0.6)
    inputs = elements if large_input else round(elements ** random.uniform(0.3, 0.9))
    channels, *plane = _sizes(random, 1 + rank, inputs)
    kernel = [int(random.integers(1, min(6, size + 1))) for size in plane]
    wide = [(taps - 1) * 2 < size for taps, size in zip(kernel, plane, strict=True)]
    window = {
        "kernel_shape": kernel,
        "dilations": [int(random.integers(1, 3)) if fits else 1 for fits in wide],
        "strides": [int(random.integers(1, 4)) for _ in plane],
        "pads": [int(random.integers(0, taps)) for taps in (*kernel, *kernel)],
    }
    if transposed and any(size < 3 for size in plane):
        window["pads"] = [0] * 2 * rank
    groups = [size for size in range(1, channels + 1) if channels % size == 0]
    group = int(random.choice([1, 1, channels, int(random.choice(groups))]))
    growth = np.prod(window["strides"]) if transposed else 1 / np.prod(window["strides"])
    most = max(1, int(elements / max(np.prod(plane) * growth, channels / group * np.prod(kernel))))
    filters = int(random.integers(1, min(most, channels + 8) + 1)) if large_input else most
    outputs = max(1, round(filters / group))
    shape = (
        (channels, outputs, *kernel)
        if transposed
        else (group * outputs, channels // group, *kernel)
    )
    kind = "ConvTranspose" if transposed else "Conv"
    operands = [unit.input((1, channels, *plane)), unit.weights(shape)]
    result = unit.builder.node(kind, *operands, group=group, **window)
    text = f"{kind} {(channels, *plane)} -> {group * outputs}, {group} groups, {window}"
    return DrawnOperator(
        unit.finish(result, unit.scale(0.1 * np.sqrt(np.prod(kernel) * channels / group))), text
    )


KINDS: tuple[Callable[[Random, int], DrawnOperator], ...] = (reduction, product, convolution)


def machines(random: Random, isas: Sequence[str]) -> Iterator[Machine]:
    """Draw a machine for each instruction set, all with scratchpads of one size."""
    size = int(random.choice(SCRATCHPADS))
    for isa in isas:
        packed = isa == "v5"
        arrays = PACKED_ARRAYS if packed else ARRAYS
        inputs, outputs = arrays[int(random.integers(len(arrays)))]
        settings = {"pe.ic": inputs, "pe.oc": outputs, "sram_bytes": size}
        yield Machine(isa, settings | ({"sram_banks": 4} if packed and size < SMALL_PACKED else {}))


def draw(seed: int, isa: str | None = None) -> tuple[DrawnOperator, list[Machine]]:
    """Draw an operator larger than the scratchpads of four machines.

    The machines have all instruction sets, or only ``isa``.
    """
    random = np.random.default_rng([seed, 43])
    isas = [isa] * 4 if isa else ["v1", str(random.choice(["v2", "v3"])), "v4", "v5"]
    found = list(machines(random, isas))
    size = int(found[0].settings["sram_bytes"])
    least, most = LARGE_RATIOS if random.random() < LARGE_SHARE else RATIOS
    ratio = least * (most / least) ** (random.random() ** 3)
    return KINDS[seed % len(KINDS)](random, int(size * ratio)), found


class Subject:
    """A drawn operator, imported once, with its inputs and the oracle's values for all machines."""

    def __init__(self, drawn: DrawnOperator, seed: int) -> None:
        self.package = import_model(drawn.model)
        graph = self.package.graph
        random = np.random.default_rng([seed, 44])
        self.feeds = {
            name: random.integers(-128, 128, graph.values[name].in_model.shape).astype(np.int8)
            for name in graph.inputs
        }
        arranged = {name: graph.values[name].arrange(array) for name, array in self.feeds.items()}
        made = [
            name
            for node in graph.nodes
            for name in node.outputs
            if graph.values[name].dtype == "int8"
        ]
        self.expected = Oracle(self.package.model, graph, made).values(arranged)

    def outcome(self, machine: Machine) -> Outcome:
        """Return what came of a run on one machine."""
        try:
            return self._run(machine)
        except InputError as error:
            return Outcome("refused", str(error))
        except Exception:
            return Outcome("traceback", traceback.format_exc())

    def _run(self, machine: Machine) -> Outcome:
        hardware = load_hardware("balanced-64", machine.settings, machine.isa)
        network = compile(self.package, hardware.arch)
        run = Runtime(network, Device(hardware.arch, hardware.timing)).run(self.feeds)
        wrong = [
            text
            for name, array in self.expected.items()
            if (text := difference(run.values.get(name), array))
        ]
        if wrong:
            return Outcome("wrong", ", ".join(wrong))
        reasons = {place.reason or "" for place in network.partition.placement if place.on == "cpu"}
        return Outcome("cpu" if reasons else "accelerator", "; ".join(sorted(reasons)))


def difference(found: NDArray[Any] | None, expected: NDArray[Any]) -> str:
    """Return how many elements differ, or nothing where none does or the run has no such tensor."""
    count = 0 if found is None else int(np.count_nonzero(found != expected))
    return f"{count} of {expected.size}" if count else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run drawn operators on all machines; exit status 1 where one fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.large_operators", description=main.__doc__
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--isa", help="draw four machines of this instruction set")
    parser.add_argument("--reasons", action="store_true", help="print why operators run on the CPU")
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for number, seed in enumerate(range(given.seed, given.seed + given.count)):
        if number and number % 20 == 0:
            print(f"{number} of {given.count}: {dict(counts)}", flush=True)
        drawn, found = draw(seed, given.isa)
        subject = Subject(drawn, seed)
        for machine in found:
            result = subject.outcome(machine)
            counts[f"{machine.isa} {result.kind}"] += 1
            if not result.good or (given.reasons and result.kind == "cpu"):
                print(
                    f"{seed} {drawn.text} on {machine}: {result.kind}: {result.detail}", flush=True
                )
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 0 if all(name.endswith(GOOD) for name in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
