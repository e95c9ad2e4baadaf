"""``OP_CONV`` and ``OP_GROUP_CONV`` as exact matrix products of raw int8 values, one a group.

The zero point stays in the bias, as the instruction has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Scratch
from dla_sim.kernels.depthwise import depthwise_window
from dla_sim.kernels.products import Products, add_chunks, products
from dla_sim.kernels.results import Results, prepare_window
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
    taps = shape.ic // groups * shape.kh * shape.kw
    weights, fill = command["EX_OPERAND_ADDRESS"], command["EX_INPUT_ZERO_POINT"]
    way = products(shape.oc // groups * taps * shape.pixels)
    run = _Convolution(_groups(shape, groups), weights, fill, way).run
    return prepare_window(shape, taps, element, command, arch, run)


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
    """A convolution: the window of each group, where the weights are, what the padding reads, the way to multiply."""

    groups: tuple[Window, ...]
    weights: int
    fill: int
    way: Products

    def run(self, results: Results, scratch: Scratch) -> None:
        """Computes all groups."""
        machine = results.machine
        for number, shape in enumerate(self.groups):
            size = shape.oc, shape.ic * shape.kh * shape.kw
            stored = np.ndarray(size, np.int8, machine.sram, self.weights + number * size[0] * size[1])
            weights = self.way.left(stored, scratch)
            planes = source(shape, machine, scratch, self.fill, shape.split)
            _Group(planes, weights, self.way, scratch).run(shape, number * shape.oc, results)


@dataclass(frozen=True, eq=False)
class _Group:
    """One group of a running convolution: what its taps read, and its weights as ``way`` wants them."""

    planes: Source
    weights: NDArray[Any]
    way: Products
    scratch: Scratch

    def run(self, shape: Window, first: int, results: Results) -> None:
        """Computes a window, whose first channel is ``first`` of the command, in blocks of outputs of a good size."""
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
                    output=shape.output + (top * shape.ow + left) * np.dtype(results.finish.dtype).itemsize,
                )
                sums = self._sums(part, top * shape.sy * self.planes.row + left * self.planes.step)
                results.store(sums, part.output, part.output_plane, first, 0, top * shape.ow + left)

    def _sums(self, part: Window, skip: int) -> NDArray[Any]:
        """(OC, OH * OW) exact sums of products of one block."""
        taps = part.kh * part.kw
        chunk = self.way.longest // taps
        if part.ic <= chunk:
            return self._product(part, 0, part.ic, skip)
        parts = (self._product(part, first, min(chunk, part.ic - first), skip) for first in range(0, part.ic, chunk))
        return add_chunks(parts, (part.oc, part.pixels), self.scratch)

    def _product(self, part: Window, first: int, channels: int, skip: int) -> NDArray[Any]:
        """(OC, OH * OW) sums over some input channels."""
        planes, taps = self.planes, part.kh * part.kw
        skip += first * planes.plane
        weights = self.weights if channels == part.ic else self.weights[:, first * taps : (first + channels) * taps]
        if taps == 1 and part.sy == 1 and planes.step == 1 and planes.row == part.ow:
            stored = planes.view((channels, part.pixels), (planes.plane, 1), skip)
            return self.way.multiply(weights, self.way.right(stored, self.scratch), self.scratch)
        size = channels, part.kh, part.kw, part.oh, part.ow
        columns = self.scratch.array("columns", size, self.way.dtype)
        strides = (planes.plane, part.dy * planes.row, part.sy * planes.row, planes.step)
        planes.copy_taps(columns.transpose(2, 0, 1, 3, 4), strides, skip, part.dx)
        return self.way.multiply(weights, columns.reshape(-1, part.pixels), self.scratch)
