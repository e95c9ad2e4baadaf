"""``OP_CONV`` as float32 matrix products on raw int8 values.

Float32 sums of int8 products are exact while there are at most 1024 of them (2**24 / 2**14), in any order: so neither
the order of summation in BLAS nor its number of threads can change a bit. Longer sums are cut and added up in int32.
The zero point stays in the bias, as the instruction has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.depthwise import depthwise_window
from dla_sim.kernels.overlaps import operands_apart
from dla_sim.kernels.products import CHUNK, add_chunks
from dla_sim.kernels.results import Results, results
from dla_sim.kernels.scratch import Scratch
from dla_sim.kernels.windows import Source, Window, source, window
from isa.instruction import Command, Machine
from isa.ops.convolution import element_bytes, lower_limit

_BLOCK_ELEMENTS = 1 << 20
"""Elements of the two large operands of one matrix product: with them the second-level cache is about half full."""


def convolution(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes the command; False, with nothing written, for what is left to the semantics."""
    element = element_bytes(command)
    shape = window(command, element)
    if shape is None:
        return False
    if shape.ic == 1 and shape.oc == 1:
        return depthwise_window(shape, element, command, machine, scratch)
    taps = shape.kh * shape.kw
    if taps > CHUNK or not operands_apart(shape, element, shape.oc * shape.ic * taps, command, machine):
        return False
    found = results(command, machine, shape.oc, shape.ic * taps, lower_limit(command))
    planes = source(shape, command, machine, scratch, command["EX_INPUT_ZERO_POINT"])
    if found is None or planes is None:
        return False
    size = shape.oc, shape.ic * taps
    raw = np.ndarray(size, np.int8, machine.sram, command["EX_OPERAND_ADDRESS"])
    weights = scratch.array("weights", size, np.float32)
    np.copyto(weights, raw)
    if taps == 1 and shape.sx == 1 and shape.sy == 1 and planes.row == shape.ow:
        # A pointwise convolution on whole rows: one row of OH * OW columns, cut anywhere.
        shape = shape._replace(oh=1, ow=shape.oh * shape.ow)
    _blocks(shape, element, planes, weights, found, scratch)
    return True


def _blocks(
    shape: Window, element: int, planes: Source, weights: NDArray[np.float32], found: Results, scratch: Scratch
) -> None:
    """Cuts the output into rows, or pieces of a row, whose matrices fit the cache, and computes them one by one."""
    products = shape.ic * shape.kh * shape.kw
    budget = max(_BLOCK_ELEMENTS // (products + shape.oc), 1)
    rows = min(max(budget // shape.ow, 1), shape.oh)
    columns = shape.ow if shape.oh > 1 or budget >= shape.ow else _even(shape.ow, budget)
    command, dtype = found.command, np.int8 if element == 1 else np.int32
    for top in range(0, shape.oh, rows):
        for left in range(0, shape.ow, columns):
            part = shape._replace(oh=min(rows, shape.oh - top), ow=min(columns, shape.ow - left))
            skip = top * shape.sy * planes.row + left * planes.step
            sums = _sums(part, planes, skip, weights, scratch)
            address = command["EX_OUTPUT_ADDRESS"] + (top * shape.ow + left) * element
            strides = (shape.output_plane, element)
            output: NDArray[Any] = np.ndarray(sums.shape, dtype, found.machine.sram, address, strides)
            found.store(sums, output, 0, 0)


def _even(total: int, limit: int) -> int:
    """The size of pieces of ``total``, nearly equal, none above ``limit``, a multiple of 16."""
    pieces = -(-total // limit)
    return -(-total // pieces // 16) * 16 if limit >= 16 else limit


def _sums(part: Window, planes: Source, skip: int, weights: NDArray[np.float32], scratch: Scratch) -> NDArray[Any]:
    """(OC, OH * OW) sums of products of one block: float32 where that is exact, otherwise int32."""
    taps = part.kh * part.kw
    chunk = CHUNK // taps
    if part.ic <= chunk:
        return _product(part, planes, skip, weights, scratch)
    parts = (
        _product(
            part._replace(ic=min(chunk, part.ic - first)),
            planes,
            skip + first * planes.plane,
            weights[:, first * taps : (first + chunk) * taps],
            scratch,
        )
        for first in range(0, part.ic, chunk)
    )
    return add_chunks(parts, (part.oc, part.oh * part.ow), scratch)


def _product(
    part: Window, planes: Source, skip: int, weights: NDArray[np.float32], scratch: Scratch
) -> NDArray[np.float32]:
    """(OC, OH * OW) float32 sums of at most 1024 products each."""
    matrix: NDArray[np.float32] = scratch.array("columns", (part.ic, part.kh, part.kw, part.oh, part.ow), np.float32)
    strides = (planes.plane, part.dy * planes.row, part.sy * planes.row, planes.step)
    planes.copy_taps(matrix.transpose(2, 0, 1, 3, 4), strides, skip, part.dx)
    sums: NDArray[np.float32] = scratch.array("sums", (part.oc, part.oh * part.ow), np.float32)
    np.matmul(weights, matrix.reshape(part.ic * part.kh * part.kw, -1), out=sums)
    return sums
