"""Selection of the kernel for each instruction.

If no kernel can execute a command, the semantics of its instruction execute it.
"""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Self

import numpy as np

from dla_sim.kernels import atoms, pairs
from dla_sim.kernels.attempt import Attempt, Prepare, Workspace, bind_once, prepare_whole
from dla_sim.kernels.compiled import Compiled
from dla_sim.kernels.convolution import convolution, depthwise, prepare_grouped
from dla_sim.kernels.elementwise import add_look_up, look_up_tensor, permutation, transfer, unary
from dla_sim.kernels.pooling import pooling
from dla_sim.kernels.products import dynamic_product, matrix_product
from dla_sim.kernels.rows import normalisation, softmax
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Machine
from isa.ops.lookup import table_count
from isa.packing import Unpacked, unpack_command

Kernel = Callable[[Command, Machine], None]
"""Executes one command on a machine: reads its operands and writes its results immediately."""
Step = Callable[[Machine], None]
"""Applies the effects of one or more consecutive commands to the memories."""

KERNELS: Mapping[str, Prepare] = {
    "OP_CONV": convolution,
    "OP_DEPTH_CONV": depthwise,
    "OP_GROUP_CONV": prepare_grouped,
    "OP_MAT_MUL": matrix_product,
    "OP_DYN_MAT_MUL": dynamic_product,
    "OP_POOL": pooling,
    "OP_ACT_RELU": prepare_whole(unary("relu")),
    "OP_ACT_LRELU": prepare_whole(unary("leaky_relu")),
    "OP_E_ABS": prepare_whole(unary("absolute")),
    "OP_LUT": prepare_whole(look_up_tensor),
    "OP_PERMUTE": permutation,
    "OP_E_MUL": pairs.prepare_pairs(pairs.product),
    "OP_E_ADD": pairs.prepare_pairs(pairs.addition),
    "OP_B_ADD": pairs.prepare_pairs(pairs.addition),
    "OP_SOFTMAX": prepare_whole(softmax),
    "OP_NORM": prepare_whole(normalisation),
    "OP_DMA_READ": transfer,
    "OP_DMA_WRITE": transfer,
}
"""Kernels by mnemonic, for instructions whose semantics are measurably slower."""

ON_ATOMS: Mapping[str, Callable[[Command, Arch, atoms.WeightStore], Attempt | None]] = {
    "OP_CONV": atoms.convolution,
    "OP_GROUP_CONV": atoms.convolution,
    "OP_DEPTH_CONV": atoms.depthwise,
}
"""Kernels that work on packed tensors directly, by mnemonic."""


class Kernels:
    """Kernels of one device and their scratch memory. Not thread-safe: each thread needs its own.

    Results never depend on earlier commands. The object caches buffers, the prepared kernels of its
    commands, which keep the last machine, and reordered weights, which are compared with those in
    the scratchpad in every run. ``compiled`` code executes tables of steps
    (`dla_sim.kernels.steps`), not single commands.
    """

    def __init__(self, arch: Arch, compiled: Compiled | None = None) -> None:
        self.arch = arch
        self.compiled = compiled
        self.scratch = Workspace()
        self._weights = atoms.WeightStore()
        self._prepared: dict[Command, Attempt | None] = {}

    def copy_for_program(self) -> Self:
        """Return kernels that share buffers and weights, but keep no commands of this object."""
        found = copy(self)
        found._prepared = {}
        return found

    def attempt(self, command: Command) -> Attempt | None:
        """Return the prepared kernel of ``command``; None if no kernel can execute it."""
        try:
            return self._prepared[command]
        except KeyError:
            plain = unpack_command(command, self.arch)
            found = self._prepared[command] = (
                self._plain(command) if plain is None else self._prepare_packed(command, plain)
            )
            return found

    def _prepare_packed(self, command: Command, plain: Unpacked) -> Attempt | None:
        """Return the kernel for packed tensors, with the kernel for dense tensors as a fallback."""
        prepare = ON_ATOMS.get(command.instruction.mnemonic)
        found = prepare(command, self.arch, self._weights) if prepare else None
        other = self._prepare_unpacked(plain)
        if found is None:
            return other
        return lambda machine, scratch: found(machine, scratch) or other(machine, scratch)

    def _plain(self, command: Command) -> Attempt | None:
        prepare = KERNELS.get(command.instruction.mnemonic)
        found = prepare(command, self.arch) if prepare else None
        return (
            add_look_up(found, command, self.arch)
            if found is not None and table_count(command)
            else found
        )

    def _prepare_unpacked(self, unpacked: Unpacked) -> Attempt:
        """Return a kernel that runs a dense kernel on unpacked operands.

        It unpacks the operands, runs the dense kernel or the semantics, and packs the results.
        """
        found = self._plain(unpacked.command)

        def bind(machine: Machine, scratch: Workspace) -> Callable[[], bool]:
            def effect(plain: Command, memory: Machine) -> None:
                if found is None or not found(memory, scratch):
                    plain.instruction.semantics(plain, memory)

            buffer = scratch.array("unpacked", (unpacked.nbytes,), np.uint8)
            run = unpacked.bind(effect, machine, buffer)

            def attempt() -> bool:
                run()
                return True

            return attempt

        return bind_once(bind)

    def run(self, command: Command, machine: Machine) -> None:
        """Execute ``command`` by its kernel, or else by the semantics of its instruction."""
        attempt = self.attempt(command)
        if attempt is None or not attempt(machine, self.scratch):
            command.instruction.semantics(command, machine)


def carry_out(effect: Kernel, command: Command, machine: Machine) -> None:
    """Execute one command by the kernel ``effect``; errors name the command.

    Name its word and assembly text in an InputError or OverflowError.
    """
    try:
        effect(command, machine)
    except (InputError, OverflowError) as error:
        # imported here because only error messages need the disassembler
        from isa.assembler import command_text

        told = f"word {command.index}, {command_text(command)}: {error}"
        if isinstance(error, InputError):
            raise InputError(told, words=(command.index,)) from error
        raise CommandOverflowError(told, command.index) from error


class CommandOverflowError(OverflowError):
    """A result of the command at ``word`` does not fit its type."""

    def __init__(self, message: str, word: int) -> None:
        super().__init__(message)
        self.word = word
