"""``OP_GROUP_CONV``: grouped 2-D convolution as one command, its groups in parallel across the processing elements."""

from __future__ import annotations

import numpy as np

from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Instruction, Machine, Operands, Unit, ceil_div, view
from isa.ops.convolution import (
    REGISTERS,
    RELU,
    REQUANTISE,
    finish,
    fused_cycles,
    output_count,
    padded_input,
    plane_operands,
    tap,
    taps,
)
from isa.registers import Register

EX_GROUPS = Register("EX_GROUPS", 0x42, 16, 1, "unsigned", "G, groups of a convolution; divides IC and OC")


def group_shape(command: Command) -> tuple[int, int, int]:
    """(G, IC/G, OC/G); raises InputError when EX_GROUPS does not divide the channels."""
    groups, ic, oc = command["EX_GROUPS"], command["EX_INPUT_CHANNELS"], command["EX_OUTPUT_CHANNELS"]
    if not groups or ic % groups or oc % groups:
        raise InputError(
            f"word {command.index}: {command.instruction.mnemonic}: EX_GROUPS = {groups} does not divide "
            f"EX_INPUT_CHANNELS = {ic} and EX_OUTPUT_CHANNELS = {oc}; all groups must be of one size",
            words=(command.index,),
        )
    return groups, ic // groups, oc // groups


def _operands(command: Command, arch: Arch) -> Operands:
    _, inputs, _ = group_shape(command)
    return plane_operands(command, arch, command["EX_OUTPUT_CHANNELS"] * inputs * taps(command))


def _group_conv(command: Command, machine: Machine) -> None:
    """As OP_CONV with weights (OC, IC/G, KH, KW): channel o sums over the input channels of group o // (OC/G) only."""
    padded = padded_input(command, machine, command["EX_INPUT_ZERO_POINT"])
    groups, inputs, outputs = group_shape(command)
    shape = (groups * outputs, inputs, command["EX_KERNEL_HEIGHT"], command["EX_KERNEL_WIDTH"])
    weights = view(machine.sram, command["EX_OPERAND_ADDRESS"], shape, np.int8).astype(np.int64)
    accumulator = np.zeros((shape[0], command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]), dtype=np.int64)
    for row, column in np.ndindex(shape[2:]):
        data = tap(command, padded, row, column)
        for group in range(groups):
            own = slice(group * outputs, (group + 1) * outputs)
            source = data[group * inputs : (group + 1) * inputs]
            accumulator[own] += np.tensordot(weights[own, :, row, column], source, axes=1)
    finish(command, machine, accumulator)


def parallel_groups(groups: int, inputs: int, outputs: int, arch: Arch) -> int:
    """Groups that the array of a·b elements (one output column) computes at once, at least 1 and at most ``groups``.

    A group of ``inputs`` by ``outputs`` channels occupies a block of min(a, inputs) by min(b, outputs) elements; the
    array holds as many whole blocks as fit along each axis. One element computes one depthwise channel, as in
    ``OP_DEPTH_CONV``; a group that fills the array leaves no room for a second.
    """
    pe = arch.pe
    return min(groups, (pe.ic // min(pe.ic, inputs)) * (pe.oc // min(pe.oc, outputs)))


def _cycles(command: Command, arch: Arch) -> int:
    """⌈G/P⌉ · ⌈(IC/G)/a⌉ · ⌈(OC/G)/b⌉ · OH · ⌈OW/c⌉ · KH · KW; with requantise at least ⌈OC·OH·OW / post_lanes⌉.

    P = min(G, ⌊a / min(a, IC/G)⌋ · ⌊b / min(b, OC/G)⌋) groups are computed in parallel. This is OP_CONV for G = 1 and
    OP_DEPTH_CONV for G = IC = OC; it is never less than ⌈MACs / N⌉.
    """
    groups, inputs, outputs = group_shape(command)
    rounds = ceil_div(groups, parallel_groups(groups, inputs, outputs, arch))
    blocks = rounds * ceil_div(inputs, arch.pe.ic) * ceil_div(outputs, arch.pe.oc)
    columns = ceil_div(command["EX_OUTPUT_WIDTH"], arch.pe.ow)
    macs = blocks * command["EX_OUTPUT_HEIGHT"] * columns * taps(command)
    return fused_cycles(macs, output_count(command), command, arch)


def _macs(command: Command) -> int:
    _, inputs, _ = group_shape(command)
    return output_count(command) * inputs * taps(command)


OP_GROUP_CONV = Instruction(
    mnemonic="OP_GROUP_CONV", opcode=0x24, unit=Unit.EX, kind="CONV",
    description="Grouped 2-D convolution: EX_GROUPS independent convolutions of IC/G by OC/G channels in one command.",
    registers=(*REGISTERS, "EX_GROUPS"), adds_registers=(EX_GROUPS,), fields=(REQUANTISE, RELU),
    operands=_operands, semantics=_group_conv, cycles=_cycles, macs=_macs,
    inputs="int8", outputs="int32, or int8 with requantise",
)  # fmt: skip
INSTRUCTIONS = (OP_GROUP_CONV,)
