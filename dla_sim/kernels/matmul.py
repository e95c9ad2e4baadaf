"""``OP_MAT_MUL`` and ``OP_DYN_MAT_MUL`` as exact matrix products."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace, disjoint, highest
from dla_sim.kernels.products import (
    IntegerProducts,
    Products,
    Sums,
    add_chunks,
    float_product,
    prepare_sums,
    products,
    spans,
)
from dla_sim.kernels.results import EXACT, LARGEST_SQUARES, ResultConverter
from isa import numerics
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.matmul import requantise_sums, second_shape, shape
from isa.ops.windows import element_bytes
from isa.registers import float_value


def matrix_product(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_MAT_MUL``; None if the kernel cannot execute the command."""
    m, k, n = shape(command)
    if not m * k * n:
        return None
    output, left, right = (command[f"EX_{name}_ADDRESS"] for name in ("OUTPUT", "INPUT", "OPERAND"))
    result = output, output + m * n * element_bytes(command)
    run = _MatrixProduct((m, k, n), left, right, output, products(m * k * n)).run
    return prepare_sums(
        command,
        arch,
        Sums(n, m * n, k),
        result,
        ((left, left + m * k), (right, right + k * n)),
        run,
    )


@dataclass(frozen=True, eq=False)
class _MatrixProduct:
    """Matrix product with the shape (M, K, N).

    ``left``, ``right`` and ``output`` are addresses; ``way`` is the implementation of the product.
    """

    shape: tuple[int, int, int]
    left: int
    right: int
    output: int
    way: Products

    def run(self, results: ResultConverter, scratch: Workspace) -> None:
        m, k, n = self.shape
        sram = results.machine.sram
        left = np.ndarray((m, k), np.int8, sram, self.left)
        right = np.ndarray((k, n), np.int8, sram, self.right)
        parts = (
            self.way.multiply(
                self.way.prepare_left(left[:, some], scratch),
                self.way.right(right[some], scratch),
                scratch,
            )
            for some in spans(k, self.way.longest)
        )
        sums = next(parts) if k <= self.way.longest else add_chunks(parts, (m, n), scratch)
        results.store(sums, self.output, n * np.dtype(results.finish.dtype).itemsize, 0, 1)


def dynamic_product(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_DYN_MAT_MUL``; None if the kernel cannot execute the command."""
    m, k, n = shape(command)
    largest = _largest(command["EX_INPUT_ZERO_POINT"]) * _largest(command["EX_OPERAND_ZERO_POINT"])
    if not m * k * n or largest > EXACT or largest * k >= 1 << 31:
        return None
    if command["EX_CLAMP_LOW"] > command["EX_CLAMP_HIGH"]:
        return None
    output, left, right = (command[f"EX_{name}_ADDRESS"] for name in ("OUTPUT", "INPUT", "OPERAND"))
    result = (output, output + m * n * element_bytes(command))
    reads = ((left, left + m * k), (right, right + k * n))
    scale = np.array(float_value(command["EX_SCALE_A"]), np.float32)
    is_float = arch.numerics == "onnxruntime"
    if not disjoint(result, reads) or (is_float and not float(scale) ** 2 <= LARGEST_SQUARES):
        return None
    end, way = highest(result, *reads), products(m * k * n)

    def attempt(machine: Machine, scratch: Workspace) -> bool:
        if end > machine.sram.size:
            return False
        sums = _dynamic_sums(command, machine, scratch, way)
        out = np.ndarray(
            (m, n), np.int8 if command.fields["requantise"] else np.int32, machine.sram, output
        )
        if not command.fields["requantise"]:
            np.copyto(out, sums, casting="unsafe")
        elif is_float:
            limits = (
                command["EX_OUTPUT_ZERO_POINT"],
                command["EX_CLAMP_LOW"],
                command["EX_CLAMP_HIGH"],
            )
            numerics.requantise_float32(
                sums.astype(np.float32, copy=False), scale, *limits, out=out
            )
        else:
            out[...] = requantise_sums(sums.astype(np.int64), command, arch)
        return True

    return attempt


def _largest(zero_point: int) -> int:
    """Return the largest magnitude of an int8 minus its zero point."""
    return max(abs(-128 - zero_point), abs(127 - zero_point))


def _dynamic_sums(
    command: Command, machine: Machine, scratch: Workspace, way: Products
) -> NDArray[Any]:
    m, k, n = shape(command)
    left = np.ndarray((m, k), np.int8, machine.sram, command["EX_INPUT_ADDRESS"])
    right = np.ndarray(second_shape(command), np.int8, machine.sram, command["EX_OPERAND_ADDRESS"])
    zero_points = command["EX_INPUT_ZERO_POINT"], command["EX_OPERAND_ZERO_POINT"]
    right = right.T if command.fields["transposed"] else right
    if (
        isinstance(way, IntegerProducts)
        and k <= way.longest
        and all(-128 <= zero <= 127 for zero in zero_points)
    ):
        return way.multiply(
            way.prepare_left(left, scratch), way.right(right, scratch), scratch, zero_points
        )
    first = scratch.array("left", (m, k), np.float32)
    second = scratch.array("columns", (k, n), np.float32)
    np.subtract(left, np.float32(zero_points[0]), out=first)
    np.subtract(right, np.float32(zero_points[1]), out=second)
    sums: NDArray[Any] = scratch.array("sums", (m, n), np.float32)
    chunk = EXACT // (_largest(zero_points[0]) * _largest(zero_points[1]))
    if k <= chunk:
        return float_product(first, second, sums)
    parts = (float_product(first[:, some], second[some], sums) for some in spans(k, chunk))
    return add_chunks(parts, sums.shape, scratch)
