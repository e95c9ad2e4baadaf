"""``OP_CONV`` and ``OP_GROUP_CONV`` as float32 matrix products on raw int8 values, one a group.

Float32 sums of int8 products are exact while there are at most 1024 of them (2**24 / 2**14), in any order: so neither
the order of summation in BLAS nor its number of threads can change a bit. Longer sums are cut and added up in int32.
The zero point stays in the bias, as the instruction has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Scratch
from dla_sim.kernels.depthwise import depthwise_window
from dla_sim.kernels.results import CHUNK, Results, add_chunks, multiply, prepare_window
from dla_sim.kernels.windows import Source, Window, source, window
from isa.arch import Arch
from isa.instruction import Command
from isa.ops.convolution import ACCUMULATE, element_bytes

_BLOCK_ELEMENTS = 1 << 20
"""Elements of the two large operands of one matrix product: few calls matter more than the caches, which BLAS minds."""


def convolution(command: Command, arch: Arch) -> Attempt | None:
    """Prepares an ``OP_CONV``; None for what is left to the semantics."""
    element = element_bytes(command)
    shape = window(command, element)
    if shape is None:
        return None
    return _prepare(shape, 1, element, command, arch)


def grouped(command: Command, arch: Arch) -> Attempt | None:
    """Prepares an ``OP_GROUP_CONV``; None for what is left to the semantics."""
    element = element_bytes(command)
    shape, groups = window(command, element), command["EX_GROUPS"]
    if shape is None or not groups or shape.ic % groups or shape.oc % groups:
        return None
    return _prepare(shape, groups, element, command, arch)


def _prepare(shape: Window, groups: int, element: int, command: Command, arch: Arch) -> Attempt | None:
    alone = not command.fields.get(ACCUMULATE.name, 0)
    if shape.ic == groups and (groups > 1 or shape.oc == 1) and alone:
        return depthwise_window(shape, element, command, arch)
    products = shape.ic // groups * shape.kh * shape.kw
    weights, fill = command["EX_OPERAND_ADDRESS"], command["EX_INPUT_ZERO_POINT"]
    run = _Convolution(_groups(shape, groups), weights, fill).run
    return prepare_window(shape, products, element, command, arch, run)


def _groups(shape: Window, groups: int) -> tuple[Window, ...]:
    """The window of each group."""
    if groups == 1:
        return (shape,)
    inputs, outputs = shape.ic // groups, shape.oc // groups
    return tuple(
        replace(
            shape,
            ic=inputs,
            oc=outputs,
            input=shape.input + group * inputs * shape.input_plane,
            output=shape.output + group * outputs * shape.output_plane,
        )
        for group in range(groups)
    )


@dataclass(frozen=True, eq=False)
class _Convolution:
    """A convolution: the window of each group, where the weights are, and what the padding reads."""

    groups: tuple[Window, ...]
    weights: int
    fill: int

    def run(self, results: Results, scratch: Scratch) -> None:
        """Computes all groups."""
        machine = results.machine
        for number, shape in enumerate(self.groups):
            size = shape.oc, shape.ic * shape.kh * shape.kw
            weights: NDArray[np.float32] = scratch.array("weights", size, np.float32)
            np.copyto(weights, np.ndarray(size, np.int8, machine.sram, self.weights + number * size[0] * size[1]))
            planes = source(shape, machine, scratch, self.fill, shape.split)
            _blocks(shape, number * shape.oc, planes, weights, results, scratch)


def _blocks(
    shape: Window, first: int, planes: Source, weights: NDArray[np.float32], results: Results, scratch: Scratch
) -> None:
    """Computes a window, whose first channel is ``first`` of the command, in blocks of outputs of a good size."""
    budget = max(_BLOCK_ELEMENTS // (weights.shape[1] + shape.oc), 1)
    dtype, sram = results.finish.dtype, results.machine.sram
    if budget >= shape.pixels:
        sums = _sums(shape, planes, 0, weights, scratch)
        results.store(sums, shape.output_view(sram, dtype, 0, shape.oc), first, 0)
        return
    rows, columns = (budget // shape.ow, shape.ow) if budget >= shape.ow else (1, budget)
    for top in range(0, shape.oh, rows):
        for left in range(0, shape.ow, columns):
            part = replace(
                shape,
                oh=min(rows, shape.oh - top),
                ow=min(columns, shape.ow - left),
                output=shape.output + (top * shape.ow + left) * np.dtype(dtype).itemsize,
            )
            sums = _sums(part, planes, top * shape.sy * planes.row + left * planes.step, weights, scratch)
            results.store(sums, part.output_view(sram, dtype, 0, shape.oc), first, 0, top * shape.ow + left)


def _sums(part: Window, planes: Source, skip: int, weights: NDArray[np.float32], scratch: Scratch) -> NDArray[Any]:
    """(OC, OH * OW) sums of products of one block: float32 where that is exact, otherwise int32."""
    taps = part.kh * part.kw
    chunk = CHUNK // taps
    if part.ic <= chunk:
        return _product(part, part.ic, planes, skip, weights, scratch)
    parts = (
        _product(
            part,
            min(chunk, part.ic - first),
            planes,
            skip + first * planes.plane,
            weights[:, first * taps : (first + chunk) * taps],
            scratch,
        )
        for first in range(0, part.ic, chunk)
    )
    return add_chunks(parts, (part.oc, part.pixels), scratch)


def _product(
    part: Window, channels: int, planes: Source, skip: int, weights: NDArray[np.float32], scratch: Scratch
) -> NDArray[np.float32]:
    """(OC, OH * OW) float32 sums of at most 1024 products each, over some input channels."""
    if part.kh * part.kw == 1 and part.sy == 1 and planes.step == 1 and planes.row == part.ow:
        matrix: NDArray[np.float32] = scratch.array("columns", (channels, part.pixels), np.float32)
        np.copyto(matrix, planes.view(matrix.shape, (planes.plane, 1), skip))
    else:
        taps = scratch.array("columns", (channels, part.kh, part.kw, part.oh, part.ow), np.float32)
        strides = (planes.plane, part.dy * planes.row, part.sy * planes.row, planes.step)
        planes.copy_taps(taps.transpose(2, 0, 1, 3, 4), strides, skip, part.dx)
        matrix = taps.reshape(-1, part.pixels)
    sums: NDArray[np.float32] = scratch.array("sums", (part.oc, part.pixels), np.float32)
    multiply(weights, matrix, sums)
    return sums
