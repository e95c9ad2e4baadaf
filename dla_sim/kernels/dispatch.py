"""Which kernel executes which instruction; what a kernel declines, or has none, runs on the instruction's semantics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dla_sim.kernels.addition import addition
from dla_sim.kernels.convolution import convolution
from dla_sim.kernels.depthwise import depthwise
from dla_sim.kernels.elementwise import comparison, unary
from dla_sim.kernels.matmul import matrix_product
from dla_sim.kernels.movement import read, write
from dla_sim.kernels.pooling import pooling
from dla_sim.kernels.requantisation import requantisation
from dla_sim.kernels.scratch import Scratch
from isa.arch import Arch
from isa.instruction import Command, Machine

Kernel = Callable[[Command, Machine], None]
"""Executes one command on a machine: reads its operands and writes its results at once."""
Attempt = Callable[[Command, Machine, Scratch], bool]
"""A kernel that returns False, having written nothing, for a command that it leaves to the semantics."""

ATTEMPTS: Mapping[str, Attempt] = {
    "OP_CONV": convolution,
    "OP_DEPTH_CONV": depthwise,
    "OP_MAT_MUL": matrix_product,
    "OP_REQUANT": requantisation,
    "OP_POOL": pooling,
    "OP_ACT_RELU": unary("relu"),
    "OP_ACT_LRELU": unary("leaky_relu"),
    "OP_E_ABS": unary("absolute"),
    "OP_C_MIN": comparison(np.minimum),
    "OP_C_MAX": comparison(np.maximum),
    "OP_E_ADD": addition,
    "OP_DMA_READ": read,
    "OP_DMA_WRITE": write,
}
"""Kernels by mnemonic."""


def _semantics(command: Command, machine: Machine) -> None:
    command.instruction.semantics(command, machine)


class Kernels:
    """The kernels of one device, and their scratch memory. Not thread-safe: one for each thread.

    No result depends on earlier commands: only buffers are kept, never values.
    """

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self.scratch = Scratch()

    def kernel_for(self, mnemonic: str) -> Kernel:
        """What executes commands of the instruction ``mnemonic``: its kernel, or its semantics where there is none."""
        attempt = ATTEMPTS.get(mnemonic)
        if attempt is None:
            return _semantics

        def kernel(command: Command, machine: Machine) -> None:
            if not attempt(command, machine, self.scratch):
                command.instruction.semantics(command, machine)

        return kernel

    def run(self, command: Command, machine: Machine) -> None:
        """Executes ``command``, whatever its instruction, on ``machine``."""
        attempt = ATTEMPTS.get(command.instruction.mnemonic)
        if attempt is None or not attempt(command, machine, self.scratch):
            command.instruction.semantics(command, machine)


def kernel_for(mnemonic: str, arch: Arch) -> Kernel:
    """`Kernels.kernel_for` of kernels with a scratch memory of their own."""
    return Kernels(arch).kernel_for(mnemonic)
