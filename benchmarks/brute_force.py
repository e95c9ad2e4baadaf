"""Compare the tilings that the compiler chooses with the best of all legal tilings.

Ten small layers are measured on three machines.

    python -m benchmarks.brute_force [--layers A,B] [--machines 4x16/8,8x8/8] [--most N] [--markdown
    docs/compiler.md]

The space is complete: every legal tile of output channels, rows and input channels, both loop
orders, every useful number of buffers (:mod:`byoc.scheduling.tiling`), every mapping of the
instruction. Each tiling is compiled as a program of one layer and timed by the engine, unless a
bound that no schedule of it beats (computing, loading, storing, with what must come before and
after) is no less than the best that was measured. With ``--most`` the rest stays unmeasured: then
the table's bound says how much better than the best measured one a tiling could be. ISA v4, a bus
of 8 bytes a cycle.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import measuring  # before NumPy, whose number of threads it sets
from benchmarks.compiler import arch as machine_of
from benchmarks.compiler import write_markdown
from byoc.compiled import Region
from byoc.compiler import compile_regions
from byoc.estimate.account import pieces
from byoc.estimate.commands import Compute
from byoc.estimate.constants import COMMAND_OVERHEAD
from byoc.graph import Value
from byoc.operators.arithmetic import Add
from byoc.operators.convolution import Convolution
from byoc.operators.layer import (
    OperatorLayer,
    Tiling,
    chunk_count,
    compute_working_set,
    counts,
    make_layer,
    make_streamed,
    sizes,
)
from byoc.operators.matmul import MatMul
from byoc.operators.nest import RowTransfer, Tile, make_tile, split
from byoc.operators.operator import Operator
from byoc.operators.pooling import MaxPool
from byoc.operators.products import RequantiseConstants
from byoc.operators.records import Operand, Settings
from byoc.options import NOTHING, Choices, CompileOptions
from byoc.scheduling.residency import choice_of
from byoc.scheduling.tiling import list_buffered, shapes
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import ceil_div
from isa.ops.convolution import MAPPING

import numpy as np  # isort: skip

MACHINES = ("4x16/8", "16x16/16", "32x32/32")
"""Arrays of input by output channels, and KiB of scratchpad: less than the layers, about as
much, more.
"""
NEAR = 1.01
"""Points that take at most so many times the best's cycles are counted."""
MARKS = "<!-- benchmarks.brute_force -->", "<!-- /benchmarks.brute_force -->"
TIMING = Timing()


@dataclass(frozen=True, eq=False, kw_only=True)
class Mapped(Convolution):
    """Convolution with a chosen ``mapping`` field, or the compiler's mapping if it is None."""

    mapping: int | None = None

    def settings(self, arch: Arch) -> Settings:
        """Return the convolution's registers and fields, with ``mapping`` if given."""
        registers, fields = super().settings(arch)
        return Settings(
            registers, fields if self.mapping is None else {**fields, MAPPING.name: self.mapping}
        )


def convolution(
    shape: tuple[int, int, int], channels: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> Mapped:
    """Return a convolution layer with a square kernel, padded so that every tap touches data.

    Weights, which change no cycle, are zeros.
    """
    depth, height, width = shape
    pad = kernel // 2
    plane = ((height + 2 * pad - kernel) // stride + 1, (width + 2 * pad - kernel) // stride + 1)
    depthwise = groups == depth
    return Mapped(
        name="layer",
        kind="DEPTH" if depthwise else "CONV",
        inputs=(Operand("x", shape),),
        output=Operand("y", (channels, *plane)),
        weights=np.zeros((channels, depth // groups, kernel, kernel), np.int8),
        bias=np.zeros(channels, np.int32),
        requantise=RequantiseConstants(np.ones(channels, np.float32), 0, -128, 127),
        input_zero_point=0,
        strides=(stride, stride),
        dilations=(1, 1),
        pads=(pad, pad, pad, pad),
        groups=groups,
        on_groups=groups > 1 and not depthwise,
    )


def product_of(rows: int, depth: int, columns: int) -> MatMul:
    """Return a matrix product layer; with one row it is a fully connected layer."""
    return MatMul(
        name="layer",
        kind="MATMUL",
        inputs=(Operand("x", (rows, depth)),),
        output=Operand("y", (rows, columns)),
        weights=np.zeros((depth, columns), np.int8),
        bias=np.zeros(columns, np.int32),
        requantise=RequantiseConstants(np.ones(columns, np.float32), 0, -128, 127),
    )


def pooling(shape: tuple[int, int, int]) -> MaxPool:
    """Return a max-pooling layer with a 2 by 2 window."""
    channels, height, width = shape
    source = Operand("x", shape)
    target = Operand("y", (channels, height // 2, width // 2))
    window: dict[str, Any] = {
        "mode": "max",
        "kernel": (2, 2),
        "strides": (2, 2),
        "pads": (0, 0, 0, 0),
    }
    return MaxPool(name="layer", kind="POOL", inputs=(source,), output=target, **window)


def addition(shape: tuple[int, int, int]) -> Add:
    """Return a layer that adds two tensors."""
    return Add(
        name="layer",
        kind="ELTWISE",
        inputs=(Operand("x", shape), Operand("z", shape)),
        output=Operand("y", shape),
        scales=(1.0, 1.0, 1.0),
        zero_points=(0, 0, 0),
        offset=0,
        low=-128,
        high=127,
    )


LAYERS: Mapping[str, Operator] = {
    "3x3": convolution((16, 14, 14), 32, 3),
    "pointwise": convolution((24, 10, 10), 48, 1),
    "depthwise": convolution((32, 16, 16), 32, 3, groups=32),
    "grouped": convolution((32, 12, 12), 32, 3, groups=4),
    "first": convolution((3, 32, 32), 16, 3, stride=2),
    "deep": convolution((256, 7, 7), 16, 5),
    "matrix": product_of(24, 48, 48),
    "connected": product_of(1, 192, 80),
    "pooling": pooling((32, 16, 16)),
    "addition": addition((32, 16, 16)),
}
"""``deep`` fits into the smallest scratchpad only by some of its input channels at a time."""


# Cycles of a tiling.
# ---------------------------------------------------------------------------------------------


def measured(operation: Operator, arch: Arch, tiling: Tiling | None = None) -> int | None:
    """Return the cycles of a program of one layer with a given or the compiler's tiling.

    None where the buffers of ``tiling`` find no place.
    """
    tensors = (*operation.inputs, operation.output)
    values = {tensor.value: Value(tensor.value, tensor.shape, tensor.dtype) for tensor in tensors}
    names = tuple(values)
    region = Region(0, "region", (), names[:-1], names[-1:], (operation,))
    choices = (
        NOTHING
        if tiling is None
        else Choices((choice_of(operation.name, tiling),), residents=(), groups=())
    )
    try:
        ((program, _),) = compile_regions(
            [region], values, arch, CompileOptions(chosen=choices), data=False
        )
    except InputError:
        return None
    return ProgramTiming(program).run(TIMING).cycles


def mappings(operation: Operator, arch: Arch) -> Iterator[Operator]:
    """Yield a layer with each value of its instruction's ``mapping`` field.

    The family's own choice is one of them.
    """
    instruction = make_layer(operation, arch).geometry.instruction
    if isinstance(operation, Mapped) and instruction is not None and MAPPING in instruction.fields:
        yield from (replace(operation, mapping=mapping) for mapping in range(MAPPING.maximum + 1))
    else:
        yield operation


# A bound for every tiling.
# ------------------------------------------------------------------------------------------

EDGE = TIMING.dma_setup + TIMING.dram_latency + TIMING.dma_drain
"""Cycles of a transfer beside its slots."""
FIRST = TIMING.dram_latency
"""No word is there earlier."""


class Bound:
    """Lower bound of the cycles of one layer, for any tiling (docs/machine.md).

    Everything streamed, every byte read.
    """

    def __init__(self, layer: OperatorLayer, arch: Arch) -> None:
        self._layer = layer
        self._geometry = layer.geometry
        self._tiles = Compute(layer.geometry, arch)
        operation = layer.operation
        self._input_slots = [
            ceil_div(operand.nbytes, TIMING.bus_bytes) for operand in operation.inputs
        ]
        self._output_slots = ceil_div(operation.output.nbytes, TIMING.bus_bytes)

    def __call__(self, shape: Tiling) -> int:
        """Return a lower bound of the cycles of all tilings with the tile shape ``shape``.

        Each unit executes its commands one after another, and each tile is loaded once.

        Before EX can begin all of the first tile is loaded, after it has ended the last result is
        stored.
        """
        parts, bands = counts(self._geometry, shape)
        first = self._corner(shape, 0)
        last = self._corner(shape, -1)
        transfers, slots = self._loading(shape)
        loading = EDGE * transfers + slots
        storing = EDGE * parts * bands + self._output_slots
        return FIRST + max(
            self._loads(first) + self._compute(shape) + self._stores(last),
            loading + self._ex(*sizes(last)) + self._stores(last),
            self._loads(first) + self._ex(*sizes(first)) + storing,
            EDGE + slots + self._output_slots + EDGE,
        )

    def _compute(self, shape: Tiling) -> int:
        """Return the cycles of all compute (EX) commands of a layer for one tile shape."""
        nest = self._geometry.nest
        return sum(
            many * often * frequent * self._ex(size, height, deep)
            for size, many in pieces(nest.channels, shape.channels)
            for height, often in pieces(nest.rows, shape.rows)
            for deep, frequent in self._chunks(shape)
        )

    def _chunks(self, shape: Tiling) -> tuple[tuple[int, int], ...]:
        """Return the pieces of a layer's input channels as (size, count) pairs.

        The size is 0 if they are not cut.
        """
        return pieces(self._geometry.nest.input_channels, shape.depth) if shape.depth else ((0, 1),)

    def _loading(self, shape: Tiling) -> tuple[int, int]:
        """Return the number of load transfers and bus slots if every tile is loaded once."""
        geometry = self._geometry
        nest = self._geometry.nest
        parts, bands = counts(geometry, shape)
        chunks = chunk_count(geometry, shape)
        transfers = sum(
            geometry.input_tiles(index, parts, bands) * chunks for index in range(geometry.inputs)
        )
        if not geometry.has_constants:
            return transfers, sum(self._input_slots)
        constants = sum(
            geometry.constant_bytes(size, deep) * many * often // TIMING.bus_bytes
            for size, many in pieces(nest.channels, shape.channels)
            for deep, often in self._chunks(shape)
        )
        return transfers + parts * chunks, sum(self._input_slots) + constants

    def _corner(self, shape: Tiling, index: int) -> Tile:
        """Return the first or the last tile of a layer.

        It is the same in every loop order.
        """
        nest = self._geometry.nest
        depths = split(nest.input_channels, shape.depth) if shape.depth else (None,)
        return make_tile(
            nest,
            split(nest.channels, shape.channels)[index],
            split(nest.rows, shape.rows)[index],
            depths[index],
        )

    def _loads(self, tile: Tile) -> int:
        """Return the cycles for loading all operands of one tile."""
        geometry = self._geometry
        channels, _, depth = sizes(tile)
        total = (
            EDGE + geometry.constant_bytes(channels, depth) // TIMING.bus_bytes
            if geometry.has_constants
            else 0
        )
        for index in range(geometry.inputs):
            for transfer in geometry.transfers(tile, index):
                total += EDGE + _slots(transfer)
        return total

    def _stores(self, tile: Tile) -> int:
        """Return the cycles for storing the result of one tile."""
        return sum(EDGE + _slots(transfer) for transfer in self._geometry.transfers(tile, None))

    def _ex(self, channels: int, rows: int, depth: int) -> int:
        """Return the cycles of one compute (EX) command of a tile of the given size."""
        overhead = TIMING.ex_fill + TIMING.ex_drain - COMMAND_OVERHEAD
        return self._tiles.tile(channels, rows, depth) + overhead


def _slots(transfer: RowTransfer) -> int:
    """Return the least number of bus slots that a transfer takes.

    Each row begins its own burst at best, and no burst takes less than the gap.
    """
    rows = transfer.total // transfer.nbytes
    gaps = ceil_div(transfer.nbytes, TIMING.burst_bytes) * TIMING.main.burst_gap
    return rows * max(ceil_div(transfer.nbytes, TIMING.bus_bytes), gaps)


# The benchmark.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    """Cycles of one layer on one machine: as compiled, the fewest measured, and a lower bound.

    ``tiling`` and ``mapping`` are those of the fewest, None: the compiler's. So many tile
    ``shapes`` there are, and so many tilings were ``tried``.
    """

    chosen: int
    best: int
    proved: int
    shapes: int
    tried: int
    tiling: Tiling | None = None
    mapping: int | None = None

    @property
    def ratio(self) -> float:
        """Ratio of the cycles as compiled to the fewest cycles measured."""
        return self.chosen / self.best


def brute_force(operation: Operator, arch: Arch, most: int) -> Gap:
    """Measure a layer's tilings in order of their lower bounds until none can be better.

    Stops after ``most`` measurements.
    """
    chosen = measured(operation, arch)
    if chosen is None:
        raise SystemExit(
            f"layer '{operation.name}' does not fit in {arch.sram_bytes} bytes of SRAM"
        )
    candidates = sorted(_bounded(operation, arch), key=lambda item: item[:3])
    found = Gap(chosen, chosen, chosen, len(candidates), 0)
    for bound, mapping, shape, mapped in candidates:
        if bound >= found.best or found.tried >= most:
            return replace(found, proved=min(bound, found.best))
        geometry = make_layer(mapped, arch).geometry
        for tiling in list_buffered(
            geometry, arch, make_streamed(geometry), arch.sram_bytes, shape
        ):
            cycles = measured(mapped, arch, tiling)
            found = replace(found, tried=found.tried + 1)
            if cycles is not None and cycles < found.best:
                found = replace(found, best=cycles, tiling=tiling, mapping=mapping)
    return replace(found, proved=found.best)


def _bounded(operation: Operator, arch: Arch) -> Iterator[tuple[int, int, Tiling, Operator]]:
    """Yield the lower bound of each tile shape that fits, under every mapping."""
    for number, mapped in enumerate(mappings(operation, arch)):
        layer = make_layer(mapped, arch)
        bound = Bound(layer, arch)
        resident = make_streamed(layer.geometry)
        for shape in shapes(layer.geometry, resident):
            if (
                compute_working_set(layer.geometry, shape, resident, arch.alignment)
                <= arch.sram_bytes
            ):
                yield bound(shape), number, shape, mapped


def table(gaps: Mapping[tuple[str, str], Gap]) -> Iterator[str]:
    """Yield a Markdown table with a row per layer and machine, and the totals."""
    yield (
        "| layer | PEs/KiB | chosen | best measured | chosen/best | lower bound | candidates | "
        "measured |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for (name, machine), gap in gaps.items():
        yield (
            f"| {name} | "
            f"{{{machine.replace('x', ', ').replace('/', '}/')} | {gap.chosen:,} | {gap.best:,} "
            f"| {gap.ratio:.3f} | {gap.proved:,} | {gap.shapes:,} | {gap.tried:,} |"
        )
    ratios = sorted(gap.ratio for gap in gaps.values())
    yield ""
    yield (
        f"{sum(ratio <= NEAR for ratio in ratios)} of {len(ratios)} choices of the compiler take "
        f"at most {NEAR - 1:.0%} more cycles than the best measured tiling. The median ratio is "
        f"{statistics.median(ratios):.3f}, and the largest is {ratios[-1]:.3f}. For "
        f"{sum(gap.proved == gap.best for gap in gaps.values())} layers and machines, the best "
        "measured tiling is proved optimal."
    )


def main() -> None:
    """Run the benchmark for the layers and machines on the command line and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument(
        "--machines", default=",".join(MACHINES), help="input by output channels/KiB"
    )
    parser.add_argument(
        "--most", type=int, default=1 << 30, help="tilings measured of a layer on a machine at most"
    )
    parser.add_argument(
        "--markdown", type=Path, help="document that has the table between two marks"
    )
    chosen = parser.parse_args()
    print(measuring.settings(), end="\n\n")
    gaps: dict[tuple[str, str], Gap] = {}
    for name, machine in product(chosen.layers.split(","), chosen.machines.split(",")):
        array, _, kib = machine.partition("/")
        start = time.perf_counter()
        gap = gaps[name, machine] = brute_force(
            LAYERS[name], machine_of(array, int(kib)), chosen.most
        )
        print(f"{name} {machine}: {gap}, {time.perf_counter() - start:.1f} s", flush=True)
    lines = tuple(table(gaps))
    print(*lines, sep="\n")
    if chosen.markdown:
        write_markdown(chosen.markdown, lines, MARKS)


if __name__ == "__main__":
    main()
