"""``OP_MAT_MUL`` as float32 matrix products; exactness as in `convolution`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Scratch
from dla_sim.kernels.results import CHUNK, Results, add_chunks, prepare_sums
from isa.arch import Arch
from isa.instruction import Command
from isa.ops.convolution import element_bytes
from isa.ops.matmul import shape


def matrix_product(command: Command, arch: Arch) -> Attempt | None:
    """Prepares an ``OP_MAT_MUL``; None for what is left to the semantics."""
    m, k, n = shape(command)
    if not m * k * n:
        return None
    output, left, right = (command[f"EX_{name}_ADDRESS"] for name in ("OUTPUT", "INPUT", "OPERAND"))
    result = output, output + m * n * element_bytes(command)
    run = _MatrixProduct((m, k, n), left, right, output).run
    return prepare_sums(command, arch, n, k, result, ((left, left + m * k), (right, right + k * n)), run)


@dataclass(frozen=True, eq=False)
class _MatrixProduct:
    """A matrix product: (M, K, N) and where the operands and the result are."""

    shape: tuple[int, int, int]
    left: int
    right: int
    output: int

    def run(self, results: Results, scratch: Scratch) -> None:
        """Computes the product."""
        m, k, n = self.shape
        sram = results.machine.sram
        left = np.ndarray((m, k), np.int8, sram, self.left)
        right = np.ndarray((k, n), np.int8, sram, self.right)
        sums: NDArray[Any] = scratch.array("sums", (m, n), np.float32)
        if k <= CHUNK:
            _product(left, right, scratch, sums)
        else:
            parts = (
                _product(left[:, first : first + CHUNK], right[first : first + CHUNK], scratch, sums)
                for first in range(0, k, CHUNK)
            )
            sums = add_chunks(parts, sums.shape, scratch)
        results.store(sums, np.ndarray((m, n), results.finish.dtype, sram, self.output), 0, 1)


def _product(
    left: NDArray[np.int8], right: NDArray[np.int8], scratch: Scratch, out: NDArray[np.float32]
) -> NDArray[np.float32]:
    wide = scratch.array("weights", right.shape, np.float32)
    np.copyto(wide, right)
    return np.matmul(left.astype(np.float32), wide, out=out)
