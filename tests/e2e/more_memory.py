"""Lone layers of 24 kinds on every preset and every ISA: a larger scratchpad must not cost cycles.

``python -m tests.e2e.more_memory`` compiles and times every layer on every machine with scratchpads
of 16 KiB to 2 MiB. It prints each pair of sizes of which the larger takes over 0.5 % more cycles,
worst first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc import import_model
from byoc.compiler import CompilerPool, compile
from byoc.package.package import Package
from dla_sim.presets import DEFAULT_PRESET, Preset, load_hardware, preset_names
from dla_sim.program_timing import ProgramTiming
from tests.byoc.small_models import ModelBuilder

Shape = tuple[int, ...]
Layer = Callable[[ModelBuilder], str]
"""Appends a layer to a model and returns its result."""

MEMORIES = tuple(1 << power for power in range(14, 22))
"""Bytes of the scratchpads."""
OTHER_ISAS = ("v1", "v2", "v3", "v4")
"""ISAs of the default machine beside its own."""
SCALE = 0.05
"""Scale of inputs and outputs: layers that move elements need no requantisation."""
LIMIT = 0.005
"""What a larger scratchpad may cost, as a share of the cycles with the smaller one."""


def _weights(builder: ModelBuilder, *shape: int) -> str:
    values: NDArray[np.int8] = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
    return builder.weights(values, 0.01)


def _input(builder: ModelBuilder, shape: Shape) -> str:
    return builder.dequantize(builder.input(f"x{len(builder.inputs)}", shape, "int8"), SCALE)


def _convolution(
    builder: ModelBuilder,
    shape: Shape,
    outputs: int,
    kernel: int,
    *,
    group: int = 1,
    **attributes: Any,
) -> str:
    spatial = [kernel] * (len(shape) - 1)
    attributes = {"pads": [kernel // 2] * 2 * len(spatial), **attributes}
    weights = _weights(builder, outputs, shape[0] // group, *spatial)
    return builder.node("Conv", _input(builder, (1, *shape)), weights, group=group, **attributes)


def _transposed(builder: ModelBuilder, shape: Shape, outputs: int, kernel: int) -> str:
    weights = _weights(builder, shape[0], outputs, kernel, kernel)
    return builder.node("ConvTranspose", _input(builder, (1, *shape)), weights, strides=[2, 2])


def _gemm(builder: ModelBuilder, rows: int, depth: int, columns: int) -> str:
    return builder.node("Gemm", _input(builder, (rows, depth)), _weights(builder, depth, columns))


def _node(builder: ModelBuilder, kind: str, *shapes: Shape, **attributes: Any) -> str:
    return builder.node(kind, *(_input(builder, shape) for shape in shapes), **attributes)


def _pool(builder: ModelBuilder, kind: str, shape: Shape, kernel: int) -> str:
    return _node(builder, kind, (1, *shape), kernel_shape=[kernel] * 2, strides=[2, 2])


def _clip(builder: ModelBuilder, shape: Shape) -> str:
    bounds = [builder.constant(bound, "float32") for bound in (0, 6)]
    return builder.node("Clip", _input(builder, shape), *bounds)


def _resize(builder: ModelBuilder, shape: Shape, mode: str) -> str:
    scales = builder.constant([1, 1, 2, 2], "float32")
    return builder.node("Resize", _input(builder, (1, *shape)), "", scales, mode=mode)


def _maximum(builder: ModelBuilder, shape: Shape, *axes: int) -> str:
    return builder.node("ReduceMax", _input(builder, shape), builder.constant(axes, "int64"))


def _normalization(builder: ModelBuilder, *shape: int) -> str:
    scale, bias = (builder.constant([value] * shape[-1], "float32") for value in (1.0, 0.1))
    return builder.node("LayerNormalization", _input(builder, shape), scale, bias, axis=-1)


def _each(make: Callable[..., str], *cases: Sequence[Any], **attributes: Any) -> tuple[Layer, ...]:
    return tuple(partial(_appended, make, case, attributes) for case in cases)


def _appended(
    make: Callable[..., str], case: Sequence[Any], attributes: Mapping[str, Any], to: ModelBuilder
) -> str:
    return make(to, *case, **attributes)


KINDS: Mapping[str, tuple[Layer, ...]] = {
    "conv-3x3": _each(
        _convolution, ((3, 96, 96), 16, 3), ((64, 56, 56), 64, 3), ((128, 14, 14), 256, 3)
    ),
    "conv-1x1": _each(
        _convolution, ((64, 16, 30), 64, 1), ((24, 28, 28), 144, 1), ((256, 14, 14), 512, 1)
    ),
    "conv-strided": _each(
        _convolution, ((3, 112, 112), 64, 7), ((64, 56, 56), 128, 3), strides=[2, 2]
    ),
    "conv-dilated": _each(
        _convolution, ((16, 64, 64), 16, 3), ((96, 14, 14), 96, 3), dilations=[2, 2], pads=[2] * 4
    ),
    "conv-depthwise": (
        *_each(_convolution, ((32, 112, 112), 32, 3), group=32),
        *_each(_convolution, ((240, 14, 14), 240, 5), group=240),
    ),
    "conv-grouped": _each(_convolution, ((128, 28, 28), 128, 3), ((64, 56, 56), 64, 3), group=16),
    "conv-1d": _each(
        _convolution,
        ((32, 250), 64, 9),
        ((40, 300), 96, 3),
        ((1, 8000), 32, 80),
        ((64, 1000), 64, 1),
    ),
    "conv-transposed": _each(
        _transposed, ((48, 24, 24), 24, 2), ((64, 32, 32), 32, 2), ((32, 16, 16), 32, 3)
    ),
    "gemm-one-row": _each(_gemm, (1, 256, 10), (1, 1024, 1000), (1, 4096, 64)),
    "gemm-many-rows": _each(_gemm, (197, 192, 576), (4000, 24, 48), (16, 128, 512)),
    "matmul-activations": _each(
        _node,
        ("MatMul", (4, 64, 32), (4, 32, 64)),
        ("MatMul", (2, 197, 64), (2, 64, 197)),
        ("MatMul", (128, 256), (256, 128)),
    ),
    "max-pool": _each(_pool, ("MaxPool", (24, 56, 56), 3), ("MaxPool", (64, 112, 112), 2)),
    "average-pool": _each(
        _pool, ("AveragePool", (32, 56, 56), 2), ("AveragePool", (96, 28, 28), 3)
    ),
    "global-mean": _each(
        _node, ("GlobalAveragePool", (1, 160, 7, 7)), ("GlobalAveragePool", (1, 64, 56, 56))
    ),
    "add": _each(_node, ("Add", *2 * ((1, 64, 56, 56),)), ("Add", *2 * ((1, 24, 28, 28),))),
    "mul": _each(_node, ("Mul", *2 * ((1, 64, 56, 56),)), ("Mul", *2 * ((197, 192),))),
    "clip": _each(_clip, ((1, 64, 56, 56),), ((1, 32, 16, 16),), ((1, 50000),)),
    "sigmoid": _each(_node, ("Sigmoid", (1, 64, 56, 56)), ("Sigmoid", (1, 96, 14, 14))),
    "softmax": _each(_node, ("Softmax", (1, 1000)), ("Softmax", (3, 197, 197))),
    "resize": _each(
        _resize, ((24, 28, 28), "nearest"), ((64, 14, 14), "linear"), ((8, 56, 56), "linear")
    ),
    "concat": _each(
        _node,
        ("Concat", (1, 24, 48, 48), (1, 48, 48, 48)),
        ("Concat", *2 * ((1, 64, 14, 14),)),
        axis=1,
    ),
    "transpose": _each(
        _node, ("Transpose", (1, 64, 28, 28)), ("Transpose", (1, 24, 56, 56)), perm=[0, 2, 3, 1]
    ),
    "reduce-max": _each(_maximum, ((1, 64, 28, 28), 2, 3), ((1, 128, 200), 2)),
    "layer-norm": _each(_normalization, (197, 192), (64, 768)),
}
"""A few sizes of each kind, as networks have them."""


@dataclass(frozen=True)
class SizeSeries:
    """Cycles of a layer on a machine by bytes of the scratchpad."""

    layer: str
    machine: str
    cycles: Mapping[int, int]

    def costs(self) -> Iterator[tuple[float, str]]:
        """Yield the costs of the larger of every two sizes, with a text.

        Costs are shares of the cycles at the smaller size.
        """
        for smaller, larger in combinations(sorted(self.cycles), 2):
            before = self.cycles[smaller]
            after = self.cycles[larger]
            sizes = f"{smaller >> 10} -> {larger >> 10} KiB: {before:,} -> {after:,} cycles"
            yield (
                after / before - 1,
                f"{after / before - 1:+.2%} {self.layer} on {self.machine}, {sizes}",
            )


def machines() -> Mapping[str, Preset]:
    """Return every preset of our machines, and the default one with each other ISA."""
    ours = (name for name in preset_names() if not name.startswith("ethos-"))
    presets = {name: load_hardware(name) for name in ours}
    return presets | {f"{DEFAULT_PRESET}-{isa}": load_hardware(isa=isa) for isa in OTHER_ISAS}


def package_of(layer: Layer) -> Package:
    """Return the package of a quantised layer between int8 inputs and an int8 output."""
    builder = ModelBuilder(opset=18)
    builder.quantize(layer(builder), SCALE, result="y")
    builder.output("y", "int8")
    return import_model(builder.model())


def cycles_by_size(
    package: Package, hardware: Preset, memories: Sequence[int], pool: CompilerPool
) -> Mapping[tuple[str, ...], Mapping[int, int]]:
    """Return the cycles by bytes of the scratchpad, for each set of nodes on the accelerator."""
    found: dict[tuple[str, ...], dict[int, int]] = {}
    for nbytes in memories:
        arch = hardware.arch.model_copy(update={"sram_bytes": nbytes})
        compiled = compile(package, arch, timing=hardware.timing, data=False, pool=pool)
        nodes = tuple(node.name for region in compiled.partition.regions for node in region.nodes)
        cycles = sum(
            ProgramTiming(program).run(hardware.timing).cycles
            for program in compiled.programs.values()
        )
        if cycles:
            found.setdefault(nodes, {})[nbytes] = cycles
    return found


def series(
    kinds: Sequence[str], chosen: Mapping[str, Preset], memories: Sequence[int] = MEMORIES
) -> Iterator[SizeSeries]:
    """Yield the cycles of all layers of these kinds on these machines."""
    for kind in kinds:
        for number, layer in enumerate(KINDS[kind]):
            package = package_of(layer)
            pool = CompilerPool()
            for name, hardware in chosen.items():
                for cycles in cycles_by_size(package, hardware, memories, pool).values():
                    yield SizeSeries(f"{kind} {number}", name, cycles)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare cycles with less and with more memory.

    Exit status 1 where more memory costs too many cycles.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.more_memory", description=main.__doc__
    )
    parser.add_argument(
        "--kind", action="append", choices=tuple(KINDS), help="only this kind; repeatable"
    )
    parser.add_argument(
        "--machine",
        action="append",
        choices=tuple(machines()),
        help="only this machine; repeatable",
    )
    given = parser.parse_args(arguments)
    chosen = {
        name: machine
        for name, machine in machines().items()
        if name in (given.machine or machines())
    }
    found = list(series(given.kind or tuple(KINDS), chosen))
    costs = sorted((cost for one in found for cost in one.costs()), reverse=True)
    for cost, text in costs:
        if cost > LIMIT:
            print(text)
    worst = costs[0][0] if costs else 0.0
    print(f"{sum(len(one.cycles) for one in found)} points, worst {worst:+.2%}")
    return 1 if worst > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
