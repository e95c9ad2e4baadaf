"""``OP_MAT_MUL`` as float32 matrix products; exactness as in `convolution`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.overlaps import all_apart
from dla_sim.kernels.products import CHUNK, add_chunks
from dla_sim.kernels.results import results
from dla_sim.kernels.scratch import Scratch
from isa.instruction import Command, Machine
from isa.ops.convolution import element_bytes, lower_limit
from isa.ops.matmul import shape


def matrix_product(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes the command; False, with nothing written, for what is left to the semantics."""
    m, k, n = shape(command)
    element = element_bytes(command)
    output = command["EX_OUTPUT_ADDRESS"]
    reads = (
        (command["EX_INPUT_ADDRESS"], m * k),
        (command["EX_OPERAND_ADDRESS"], k * n),
        (command["EX_CHANNEL_ADDRESS"], n * machine.arch.channel_record_bytes),
    )
    if not m * k * n or not all_apart((output, m * n * element), reads, machine.sram.size):
        return False
    found = results(command, machine, n, k, lower_limit(command))
    if found is None:
        return False
    left = np.ndarray((m, k), np.int8, machine.sram, reads[0][0])
    right = np.ndarray((k, n), np.int8, machine.sram, reads[1][0])
    sums: NDArray[Any] = scratch.array("sums", (m, n), np.float32)
    if k <= CHUNK:
        _product(left, right, scratch, sums)
    else:
        parts = (
            _product(left[:, first : first + CHUNK], right[first : first + CHUNK], scratch, sums)
            for first in range(0, k, CHUNK)
        )
        sums = add_chunks(parts, sums.shape, scratch)
    target: NDArray[Any] = np.ndarray((m, n), np.int8 if element == 1 else np.int32, machine.sram, output)
    found.store(sums, target, 0, 1)
    return True


def _product(
    left: NDArray[np.int8], right: NDArray[np.int8], scratch: Scratch, out: NDArray[np.float32]
) -> NDArray[np.float32]:
    wide = scratch.array("weights", right.shape, np.float32)
    np.copyto(wide, right)
    return np.matmul(left.astype(np.float32), wide, out=out)
