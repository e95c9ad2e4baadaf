"""``OP_MAT_MUL`` as float32 matrix products; exactness as in `convolution`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt
from dla_sim.kernels.overlaps import all_apart, highest
from dla_sim.kernels.products import CHUNK, add_chunks
from dla_sim.kernels.results import Finish, finish
from dla_sim.kernels.scratch import Scratch
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.convolution import element_bytes
from isa.ops.matmul import shape


def matrix_product(command: Command, arch: Arch) -> Attempt | None:
    """Prepares an ``OP_MAT_MUL``; None for what is left to the semantics."""
    m, k, n = shape(command)
    ending = finish(command, arch, n, k)
    if ending is None or not m * k * n:
        return None
    output, left, right = (command[f"EX_{name}_ADDRESS"] for name in ("OUTPUT", "INPUT", "OPERAND"))
    result = output, output + m * n * element_bytes(command)
    reads = (left, left + m * k), (right, right + k * n), (ending.address, ending.end)
    if not all_apart(result, reads):
        return None
    return _MatrixProduct((m, k, n), ending, left, right, output, highest(result, *reads)).run


@dataclass(frozen=True, eq=False)
class _MatrixProduct:
    """A prepared matrix product. ``end`` is one past the highest byte that it touches."""

    shape: tuple[int, int, int]
    finish: Finish
    left: int
    right: int
    output: int
    end: int

    def run(self, machine: Machine, scratch: Scratch) -> bool:
        """Executes the command: an attempt."""
        if self.end > machine.sram.size:
            return False
        results = self.finish.load(machine)
        if results is None:
            return False
        m, k, n = self.shape
        left = np.ndarray((m, k), np.int8, machine.sram, self.left)
        right = np.ndarray((k, n), np.int8, machine.sram, self.right)
        sums: NDArray[Any] = scratch.array("sums", (m, n), np.float32)
        if k <= CHUNK:
            _product(left, right, scratch, sums)
        else:
            parts = (
                _product(left[:, first : first + CHUNK], right[first : first + CHUNK], scratch, sums)
                for first in range(0, k, CHUNK)
            )
            sums = add_chunks(parts, sums.shape, scratch)
        results.store(sums, np.ndarray((m, n), self.finish.dtype, machine.sram, self.output), 0, 1)
        return True


def _product(
    left: NDArray[np.int8], right: NDArray[np.int8], scratch: Scratch, out: NDArray[np.float32]
) -> NDArray[np.float32]:
    wide = scratch.array("weights", right.shape, np.float32)
    np.copyto(wide, right)
    return np.matmul(left.astype(np.float32), wide, out=out)
