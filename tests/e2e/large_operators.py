"""Lone operators with operands larger than the scratchpad: reductions, products and convolutions, drawn at random.

``python -m tests.e2e.large_operators --count N --seed S`` draws N models and runs each on one machine of every ISA. A
run must end without a traceback or a refusal of the network, and every output must equal the oracle's.
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

from experiments import run
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder

Random = np.random.Generator
Settings = Mapping[str, str | int]

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2")
FOLLOWERS = ("", "", "Relu", "Clip", "Sigmoid", "Add")
ARRAYS = ((4, 16), (8, 8), (16, 16), (16, 4), (3, 5), (32, 32), (1, 64), (64, 1))
PACKED_ARRAYS = ((4, 16), (8, 8), (16, 16), (16, 4), (8, 32), (32, 8))
KIB = 1024


@dataclass(frozen=True)
class DrawnOperator:
    """A model and a line that describes it."""

    model: onnx.ModelProto
    text: str


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
        return self.builder.dequantize(self.builder.input(name, shape, "int8"), self.scale(), zero_point)

    def weights(self, shape: Sequence[int]) -> str:
        return self.builder.weights(self.random.integers(-127, 128, shape).astype(np.int8), self.scale())

    def finish(self, result: str, after: float) -> onnx.ModelProto:
        """Append the follower of the operator; the intermediate tensor is an output where there is one."""
        builder, follower = self.builder, FOLLOWERS[int(self.random.integers(len(FOLLOWERS)))]
        if follower:
            result = builder.dequantize(builder.quantize(result, after, 5, result="t"), after, 5)
            operands = {"Clip": [builder.constant(-1.7, "float32")], "Add": [result]}.get(follower, [])
            result = builder.node(follower, result, *operands)
            if self.random.random() < 0.5:
                builder.output("t", "int8")
        builder.quantize(result, after, -3, result="y")
        builder.output("y", "int8")
        return builder.model()


def _sizes(random: Random, rank: int, elements: int) -> tuple[int, ...]:
    """Draw a shape of about so many elements."""
    shares = random.dirichlet(np.ones(rank))
    return tuple(max(1, round(elements**share)) for share in shares)


def reduction(random: Random, elements: int) -> DrawnOperator:
    """Draw a reduction over any set of axes."""
    unit = _Unit(random)
    shape = (1, *_sizes(random, int(random.integers(1, 4)), elements))
    shape = shape[int(random.integers(2)) :]
    kind = REDUCTIONS[int(random.integers(len(REDUCTIONS)))]
    chosen = [axis for axis in range(len(shape)) if random.random() < 0.5] or [int(random.integers(len(shape)))]
    keep = int(random.integers(2))
    axes = unit.builder.constant(chosen, "int64")
    result = unit.builder.node(kind, unit.input(shape), axes, keepdims=keep)
    count = float(np.prod([shape[axis] for axis in chosen]))
    largest = 0.1 if kind[6:] in ("Mean", "Max", "Min") else 0.02 * np.sqrt(count)
    return DrawnOperator(unit.finish(result, unit.scale(0.02 + largest)), f"{kind} {shape} over {chosen}, keep {keep}")


def product(random: Random, elements: int) -> DrawnOperator:
    """Draw a MatMul or Gemm with constant weights, or a product of two activations."""
    unit = _Unit(random)
    rows, depth, columns = _sizes(random, 3, int(elements**1.5))
    kind = ("MatMul", "batched", "two activations", "Gemm")[int(random.integers(4))]
    text = f"{kind} {rows} x {depth} x {columns}"
    batch = (int(random.integers(2, 5)),) if kind == "batched" or (kind[:3] == "two" and random.random() < 0.5) else ()
    first = unit.input((*batch, rows, depth))
    if kind == "Gemm":
        transposed = int(random.integers(2))
        second = unit.weights((columns, depth) if transposed else (depth, columns))
        result = unit.builder.node("Gemm", first, second, transB=transposed)
    else:
        second = unit.input((*batch, depth, columns)) if kind[:3] == "two" else unit.weights((depth, columns))
        result = unit.builder.node("MatMul", first, second)
    return DrawnOperator(unit.finish(result, unit.scale(0.1 * np.sqrt(depth))), f"{text}, batch {batch}")


def convolution(random: Random, elements: int) -> DrawnOperator:
    """Draw a convolution of one or two dimensions with any groups, strides, dilations and padding."""
    unit, rank = _Unit(random), int(random.integers(1, 3))
    channels, *plane = _sizes(random, 1 + rank, elements)
    group = 1
    if random.random() < 0.5:
        group = int(random.choice([size for size in range(1, channels + 1) if channels % size == 0]))
    outputs = group * max(1, round(int(random.integers(1, 2 * channels + 2)) / group))
    kernel = [int(random.integers(1, min(6, size + 1))) for size in plane]
    wide = [(taps - 1) * 2 < size for taps, size in zip(kernel, plane, strict=True)]
    dilations = [int(random.integers(1, 3)) if fits else 1 for fits in wide]
    strides = [int(random.integers(1, 4)) for _ in plane]
    pads = [int(random.integers(0, taps)) for taps in (*kernel, *kernel)]
    operands = [unit.input((1, channels, *plane)), unit.weights((outputs, channels // group, *kernel))]
    result = unit.builder.node(
        "Conv", *operands, group=group, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads
    )
    text = f"Conv {(channels, *plane)} -> {outputs}, {group} groups, kernel {kernel}, strides {strides}"
    after = unit.scale(0.1 * np.sqrt(np.prod(kernel) * channels / group))
    return DrawnOperator(unit.finish(result, after), f"{text}, dilations {dilations}, pads {pads}")


KINDS: tuple[Callable[[Random, int], DrawnOperator], ...] = (reduction, product, convolution)


def machines(random: Random) -> Iterator[tuple[str, Settings]]:
    """Draw one machine of every ISA, all with one scratchpad of 16 to 64 KiB."""
    size = int(random.choice([16, 32, 64])) * KIB
    for isa in ("v1", str(random.choice(["v2", "v3"])), "v4", "v5"):
        arrays = PACKED_ARRAYS if isa == "v5" else ARRAYS
        inputs, outputs = arrays[int(random.integers(len(arrays)))]
        yield isa, {"pe.ic": inputs, "pe.oc": outputs, "sram_bytes": size}


def draw(seed: int) -> tuple[DrawnOperator, list[tuple[str, Settings]]]:
    """Draw the operator of a seed, larger than the scratchpads of its machines."""
    random = np.random.default_rng([seed, 43])
    found = list(machines(random))
    size = int(found[0][1]["sram_bytes"])
    elements = int(size * random.uniform(1.05, 4))
    return KINDS[seed % len(KINDS)](random, elements), found


def outcome(model: onnx.ModelProto, isa: str, settings: Settings) -> str:
    """Return what went wrong in a run on one machine, or how many nodes ran on the accelerator."""
    try:
        result: Any = run(model, preset="balanced-64", isa=isa, settings=settings, cache=False)
    except InputError as error:
        return f"refused: {error}"
    except Exception:
        return f"traceback: {traceback.format_exc()}"
    check = result.report.check
    if check.mismatches:
        return f"wrong: {check.mismatches} of {check.elements}"
    return "accelerator" if result.report.totals.cycles else "cpu"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run drawn operators on all machines; exit status 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.large_operators", description=main.__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        drawn, found = draw(seed)
        for isa, settings in found:
            result = outcome(drawn.model, isa, settings)
            counts[f"{isa} {result.split(':')[0]}"] += 1
            if ":" in result:
                print(f"{seed} {drawn.text} on {isa} {dict(settings)}: {result}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if any(name.split()[1] not in ("accelerator", "cpu") for name in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
