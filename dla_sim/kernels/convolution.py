"""Sliding windows: their geometry, views of their input, and convolutions.

There are no index arrays, only strides.

``OP_CONV`` and ``OP_GROUP_CONV`` are exact matrix products of raw int8 values, one per group; the
zero point is part of the bias, as in the instruction. ``OP_DEPTH_CONV``, and ``OP_CONV`` with one
input and one output channel (an emulated depthwise filter), are computed by a compiled kernel or in
one of two ways, chosen by shape. Sums of at most 1024 products are exact in float32 in any order
(see `products`).

- By planes, for large planes or few channels. The input is copied to float32 once per kernel
  column. Each copy contains exactly the columns of the outputs, and its rows are split by their
  phase under the stride. All outputs of a channel are then one contiguous run for every tap, and
  ``einsum`` multiplies and adds them in one pass.
- By pixels, for small planes. These are transposed to float32 (rows, phases, columns, channels),
  columns split by their phase under the stride. A tap of a whole row of outputs is then one
  contiguous run of OW * C elements; so are its weights, repeated OW times.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace
from dla_sim.kernels.depthwise import depthwise_window
from dla_sim.kernels.products import Products, add_chunks, products
from dla_sim.kernels.results import ResultConverter
from dla_sim.kernels.windows import PlaneSource, WindowRegisters, prepare_window, source, window
from isa.arch import Arch
from isa.instruction import Command
from isa.ops.windows import ACCUMULATE, element_bytes

_BLOCK_ELEMENTS = 1 << 20
"""Maximum elements of the two large operands of one matrix product.

Few calls matter more than cache sizes, which BLAS handles.
"""


def convolution(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_CONV``; None if the kernel cannot execute the command."""
    element = element_bytes(command)
    shape = window(command, element)
    if shape is None:
        return None
    return _prepare(shape, 1, element, command, arch)


def prepare_grouped(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_GROUP_CONV``; None if the kernel cannot execute the command."""
    element = element_bytes(command)
    shape = window(command, element)
    groups = command["EX_GROUPS"]
    if shape is None or not groups or shape.ic % groups or shape.oc % groups:
        return None
    return _prepare(shape, groups, element, command, arch)


def _prepare(
    shape: WindowRegisters, groups: int, element: int, command: Command, arch: Arch
) -> Attempt | None:
    alone = not command.fields.get(ACCUMULATE.name, 0)
    if shape.ic == groups and (groups > 1 or shape.oc == 1) and alone:
        return depthwise_window(shape, element, command, arch)
    taps = shape.ic // groups * shape.kh * shape.kw
    weights = command["EX_OPERAND_ADDRESS"]
    fill = command["EX_INPUT_ZERO_POINT"]
    way = products(shape.oc // groups * taps * shape.pixels)
    run = _Convolution(_groups(shape, groups), weights, fill, way).run
    return prepare_window(shape, taps, element, command, arch, run)


def _groups(shape: WindowRegisters, groups: int) -> tuple[WindowRegisters, ...]:
    if groups == 1:
        return (shape,)
    inputs = shape.ic // groups
    outputs = shape.oc // groups
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
    """Convolution prepared from a command: sliding windows, weight address and padding value.

    It also holds the address of the weights and the padding value.
    """

    groups: tuple[WindowRegisters, ...]
    weights: int
    fill: int
    way: Products

    def run(self, results: ResultConverter, scratch: Workspace) -> None:
        machine = results.machine
        for number, shape in enumerate(self.groups):
            size = shape.oc, shape.ic * shape.kh * shape.kw
            stored = np.ndarray(
                size, np.int8, machine.sram, self.weights + number * size[0] * size[1]
            )
            weights = self.way.prepare_left(stored, scratch)
            planes = source(shape, machine, scratch, self.fill)
            _Group(planes, weights, self.way, scratch).run(shape, number * shape.oc, results)


@dataclass(frozen=True, eq=False)
class _Group:
    """Inputs and weights of one group of a running convolution.

    The weights are in the form that ``way`` needs.
    """

    planes: PlaneSource
    weights: NDArray[Any]
    way: Products
    scratch: Workspace

    def run(self, shape: WindowRegisters, first: int, results: ResultConverter) -> None:
        """Compute a convolution group in blocks of outputs.

        ``first`` is the number of the window's first channel in the command.
        """
        budget = max(_BLOCK_ELEMENTS // (self.weights.shape[1] + shape.oc), 1)
        if budget >= shape.pixels:
            results.store(self._sums(shape, 0), shape.output, shape.output_plane, first, 0)
            return
        rows, columns = (budget // shape.ow, shape.ow) if budget >= shape.ow else (1, budget)
        for top in range(0, shape.oh, rows):
            for left in range(0, shape.ow, columns):
                part = replace(
                    shape,
                    oh=min(rows, shape.oh - top),
                    ow=min(columns, shape.ow - left),
                    output=shape.output
                    + (top * shape.ow + left) * np.dtype(results.finish.dtype).itemsize,
                )
                sums = self._sums(part, top * shape.sy * self.planes.row + left * self.planes.step)
                results.store(sums, part.output, part.output_plane, first, 0, top * shape.ow + left)

    def _sums(self, part: WindowRegisters, skip: int) -> NDArray[Any]:
        """Return the exact convolution sums (OC, OH * OW) of one block of outputs."""
        taps = part.kh * part.kw
        chunk = self.way.longest // taps
        if part.ic <= chunk:
            return self._product(part, 0, part.ic, skip)
        parts = (
            self._product(part, first, min(chunk, part.ic - first), skip)
            for first in range(0, part.ic, chunk)
        )
        return add_chunks(parts, (part.oc, part.pixels), self.scratch)

    def _product(self, part: WindowRegisters, first: int, channels: int, skip: int) -> NDArray[Any]:
        """Return the convolution sums (OC, OH * OW) over some input channels."""
        planes = self.planes
        taps = part.kh * part.kw
        skip += first * planes.plane
        weights = (
            self.weights
            if channels == part.ic
            else self.weights[:, first * taps : (first + channels) * taps]
        )
        if taps == 1 and part.sy == 1 and planes.step == 1 and planes.row == part.ow:
            stored = planes.view((channels, part.pixels), (planes.plane, 1), skip)
            return self.way.multiply(weights, self.way.right(stored, self.scratch), self.scratch)
        size = channels, part.kh, part.kw, part.oh, part.ow
        columns = self.scratch.array("columns", size, self.way.dtype)
        strides = (part.dx, planes.plane, part.dy * planes.row, part.sy * planes.row, planes.step)
        target = columns.transpose(2, 0, 1, 3, 4)
        np.copyto(target, planes.view(target.shape, strides, skip))
        return self.way.multiply(weights, columns.reshape(-1, part.pixels), self.scratch)
