"""2-D convolutions of int8 with int32 accumulators.

``OP_CONV`` (``OP_CONV_RELU`` is a setting of it) is dense, ``OP_DEPTH_CONV`` is depthwise.
``OP_GROUP_CONV`` computes a grouped convolution in one command, with several groups in parallel on
the processing elements.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from isa.access import strided
from isa.arch import Arch
from isa.instruction import (
    INT8,
    Command,
    Instruction,
    Machine,
    Operands,
    Unit,
    ceil_div,
    formula,
    formula_of,
    view,
)
from isa.ops.lookup import add_tables
from isa.ops.windows import (
    ACCUMULATE,
    EX_PARTIAL_ADDRESS,
    REGISTERS,
    RELU,
    REQUANTISE,
    RESULT,
    WIDER,
    element_bytes,
    finish,
    fused_cycles,
    make_refusal,
    output_count,
    padded_input,
    plane_operands,
    tap,
    taps,
)
from isa.registers import Field, Register


def _conv_operands(command: Command, arch: Arch) -> Operands:
    return plane_operands(
        command, arch, command["EX_OUTPUT_CHANNELS"] * command["EX_INPUT_CHANNELS"] * taps(command)
    )


def _depth_operands(command: Command, arch: Arch) -> Operands:
    inputs = command["EX_INPUT_CHANNELS"]
    outputs = command["EX_OUTPUT_CHANNELS"]
    if not inputs or outputs % inputs:
        raise make_refusal(
            command,
            f"EX_OUTPUT_CHANNELS = {outputs} must be a multiple of EX_INPUT_CHANNELS = {inputs}",
        )
    return plane_operands(command, arch, command["EX_OUTPUT_CHANNELS"] * taps(command))


@formula(
    """
    y[o, r, c] = bias[o] + Σ over i, kr, kc of w[o, i, kr, kc] · x[i, r·SH + kr·DH - PT, c·SW +
    kc·DW - PL].

    The weights w have the shape (OC, IC, KH, KW). Inside the input, x is the stored value. Outside
    the input, x is EX_INPUT_ZERO_POINT.
    """
)
def _conv(command: Command, machine: Machine) -> None:
    padded = padded_input(command, machine, command["EX_INPUT_ZERO_POINT"])
    oc = command["EX_OUTPUT_CHANNELS"]
    ic = command["EX_INPUT_CHANNELS"]
    kh = command["EX_KERNEL_HEIGHT"]
    kw = command["EX_KERNEL_WIDTH"]
    weights = view(machine.sram, command["EX_OPERAND_ADDRESS"], (oc, ic, kh, kw), np.int8).astype(
        np.int64
    )
    accumulator = np.zeros(
        (oc, command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]), dtype=np.int64
    )
    for row in range(kh):
        for column in range(kw):
            accumulator += np.tensordot(
                weights[:, :, row, column], tap(command, padded, row, column), axes=1
            )
    finish(command, machine, accumulator)


@formula(
    """
    as OP_CONV, with weights of the shape (OC, KH, KW) and i = o // (OC / IC) instead of the sum
    over i.
    """
)
def _depth(command: Command, machine: Machine) -> None:
    padded = padded_input(command, machine, command["EX_INPUT_ZERO_POINT"])
    oc = command["EX_OUTPUT_CHANNELS"]
    ic = command["EX_INPUT_CHANNELS"]
    kh = command["EX_KERNEL_HEIGHT"]
    kw = command["EX_KERNEL_WIDTH"]
    weights = view(machine.sram, command["EX_OPERAND_ADDRESS"], (oc, kh, kw), np.int8).astype(
        np.int64
    )
    source = np.arange(oc) // (oc // ic)
    accumulator = np.zeros(
        (oc, command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]), dtype=np.int64
    )
    for row in range(kh):
        for column in range(kw):
            accumulator += (
                weights[:, row, column, None, None] * tap(command, padded, row, column)[source]
            )
    finish(command, machine, accumulator)


@formula(
    "⌈IC/a⌉ · ⌈OC/b⌉ · OH · ⌈OW/c⌉ · KH · KW; with requantise at least ⌈OC·OH·OW / post_lanes⌉."
)
def _conv_cycles(command: Command, arch: Arch) -> int:
    pe = arch.pe
    blocks = ceil_div(command["EX_INPUT_CHANNELS"], pe.ic) * ceil_div(
        command["EX_OUTPUT_CHANNELS"], pe.oc
    )
    columns = ceil_div(command["EX_OUTPUT_WIDTH"], pe.ow)
    macs = blocks * command["EX_OUTPUT_HEIGHT"] * columns * taps(command)
    return fused_cycles(macs, output_count(command), command, arch)


@formula("⌈OC/(a·b)⌉ · OH · ⌈OW/c⌉ · KH · KW; with requantise at least ⌈OC·OH·OW / post_lanes⌉.")
def _depth_cycles(command: Command, arch: Arch) -> int:
    pe = arch.pe
    blocks = ceil_div(command["EX_OUTPUT_CHANNELS"], pe.ic * pe.oc)
    columns = ceil_div(command["EX_OUTPUT_WIDTH"], pe.ow)
    macs = blocks * command["EX_OUTPUT_HEIGHT"] * columns * taps(command)
    return fused_cycles(macs, output_count(command), command, arch)


OP_CONV = Instruction(
    mnemonic="OP_CONV", opcode=0x20, unit=Unit.EX, kind="CONV",
    description="2-D convolution with bias, stride, dilation and padding; the result is int32 "
                "accumulators or requantised int8.",
    registers=REGISTERS, fields=(REQUANTISE, RELU),
    operands=_conv_operands, semantics=_conv, cycles=_conv_cycles,
    macs=lambda command: output_count(command) * command["EX_INPUT_CHANNELS"] * taps(command),
    aliases={"OP_CONV_RELU": {"requantise": 1, "relu": 1}},
    inputs=(INT8,), outputs=(RESULT,),
)  # fmt: skip
OP_DEPTH_CONV = Instruction(
    mnemonic="OP_DEPTH_CONV", opcode=0x21, unit=Unit.EX, kind="DEPTH",
    description="Depthwise 2-D convolution: output channel o reads input channel o // (OC / IC).",
    registers=REGISTERS, fields=(REQUANTISE, RELU),
    operands=_depth_operands, semantics=_depth, cycles=_depth_cycles,
    macs=lambda command: output_count(command) * taps(command),
    inputs=(INT8,), outputs=(RESULT,),
)  # fmt: skip


EX_GROUPS = Register(
    "EX_GROUPS", 0x42, 16, 1, "unsigned", "G, groups of a convolution; divides IC and OC"
)


def group_shape(command: Command) -> tuple[int, int, int]:
    """Return the shape of a convolution as (G, IC/G, OC/G); OP_CONV has one group.

    Raises InputError if EX_GROUPS does not divide the channels.
    """
    groups = command.registers.get(EX_GROUPS.name, 1)
    ic = command["EX_INPUT_CHANNELS"]
    oc = command["EX_OUTPUT_CHANNELS"]
    if not groups or ic % groups or oc % groups:
        raise make_refusal(
            command,
            f"EX_GROUPS = {groups} does not divide EX_INPUT_CHANNELS = {ic} and EX_OUTPUT_CHANNELS "
            f"= {oc}; "
            "all groups must be of one size",
        )
    return groups, ic // groups, oc // groups


def _group_operands(command: Command, arch: Arch) -> Operands:
    _, inputs, _ = group_shape(command)
    return plane_operands(command, arch, command["EX_OUTPUT_CHANNELS"] * inputs * taps(command))


@formula(
    """
    as OP_CONV, with weights of the shape (OC, IC/G, KH, KW). Output channel o sums only over the
    input channels of group o // (OC/G).
    """
)
def _group_conv(command: Command, machine: Machine) -> None:
    padded = padded_input(command, machine, command["EX_INPUT_ZERO_POINT"])
    groups, inputs, outputs = group_shape(command)
    shape = (groups * outputs, inputs, command["EX_KERNEL_HEIGHT"], command["EX_KERNEL_WIDTH"])
    weights = view(machine.sram, command["EX_OPERAND_ADDRESS"], shape, np.int8).astype(np.int64)
    accumulator = np.zeros(
        (shape[0], command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]), dtype=np.int64
    )
    for row, column in np.ndindex(shape[2:]):
        data = tap(command, padded, row, column)
        for group in range(groups):
            own = slice(group * outputs, (group + 1) * outputs)
            source = data[group * inputs : (group + 1) * inputs]
            accumulator[own] += np.tensordot(weights[own, :, row, column], source, axes=1)
    finish(command, machine, accumulator)


def parallel_groups(groups: int, inputs: int, outputs: int, arch: Arch) -> int:
    """Return the number of groups that the array computes in parallel, 1 to ``groups``.

    The array has a·b elements for one output column. A group of ``inputs`` by ``outputs`` channels
    occupies a block of min(a, inputs) by min(b, outputs) elements. The array computes as many whole
    blocks as fit along each axis. One element computes one depthwise channel, as in
    ``OP_DEPTH_CONV``; a group that fills the array leaves no room for a second.
    """
    pe = arch.pe
    return min(groups, (pe.ic // min(pe.ic, inputs)) * (pe.oc // min(pe.oc, outputs)))


@formula(
    """
    ⌈G/P⌉ · ⌈(IC/G)/a⌉ · ⌈(OC/G)/b⌉ · OH · ⌈OW/c⌉ · KH · KW;
    with requantise at least ⌈OC·OH·OW / post_lanes⌉.

    P = min(G, ⌊a / min(a, IC/G)⌋ · ⌊b / min(b, OC/G)⌋) groups are computed in parallel.
    This is OP_CONV for G = 1 and OP_DEPTH_CONV for G = IC = OC; it is never less than ⌈MACs / N⌉.
    """
)
def _group_cycles(command: Command, arch: Arch) -> int:
    groups, inputs, outputs = group_shape(command)
    rounds = ceil_div(groups, parallel_groups(groups, inputs, outputs, arch))
    blocks = rounds * ceil_div(inputs, arch.pe.ic) * ceil_div(outputs, arch.pe.oc)
    columns = ceil_div(command["EX_OUTPUT_WIDTH"], arch.pe.ow)
    macs = blocks * command["EX_OUTPUT_HEIGHT"] * columns * taps(command)
    return fused_cycles(macs, output_count(command), command, arch)


def _group_macs(command: Command) -> int:
    _, inputs, _ = group_shape(command)
    return output_count(command) * inputs * taps(command)


OP_GROUP_CONV = Instruction(
    mnemonic="OP_GROUP_CONV", opcode=0x24, unit=Unit.EX, kind="CONV",
    description="Grouped 2-D convolution: EX_GROUPS independent convolutions of IC/G by OC/G "
                "channels in one command.",
    registers=(*REGISTERS, "EX_GROUPS"), adds_registers=(EX_GROUPS,), fields=(REQUANTISE, RELU),
    operands=_group_operands, semantics=_group_conv, cycles=_group_cycles, macs=_group_macs,
    inputs=(INT8,), outputs=(RESULT,),
)  # fmt: skip


# Mappings that use idle lanes

MAPPING = Field(
    "mapping", 42, 2,
    description="work of lanes that input and output channels leave idle: 0 nothing, 1 kernel "
                "taps, 2 output columns, 3 both",
)  # fmt: skip
_MAPPED_CYCLES = """
⌈G/P⌉ · ⌈S/a⌉ · T · ⌈(OC/G)/b⌉ · OH · ⌈OW / (c·p)⌉;
with requantise at least ⌈OC·OH·OW / post_lanes⌉.

G is the number of groups: 1 for OP_CONV, and OC for OP_DEPTH_CONV, where IC/G is 1. The input lanes
of the array sum S products in parallel, and repeat this T times for each result:

| mapping | S | T |
| --- | --- | --- |
| 0 and 2 | IC/G | KH·KW |
| 1 and 3 | (IC/G)·KH·KW: all taps of the kernel in parallel | 1 |

The array has room for n = ⌊a / min(a, S)⌋ · ⌊b / min(b, OC/G)⌋ blocks of products. It computes
P = min(G, n) groups in parallel. With mapping 2 and 3 it also computes p = max(1, ⌊n/G⌋) times as
many output columns in parallel; with mapping 0 and 1, p = 1.

The compute cycles are never less than ⌈MACs / N⌉. With mapping 0 they are the compute cycles of the
instruction in a variant without the field mapping.
"""


class ConvolutionWork(NamedTuple):
    """Loop sizes of a convolution.

    ``inputs`` and ``outputs`` are channels of a group, ``rows`` and ``columns`` those of the
    output, ``taps`` those of the kernel.
    """

    groups: int
    inputs: int
    outputs: int
    rows: int
    columns: int
    taps: int


def compute_mapped_cycles(work: ConvolutionWork, mapping: int, arch: Arch) -> int:
    """Return the cycles that the array takes for the multiply-accumulates of a convolution.

    ``mapping`` is the value of the field of this name.
    """
    pe = arch.pe
    together, apart = (work.inputs * work.taps, 1) if mapping & 1 else (work.inputs, work.taps)
    blocks = (pe.ic // min(pe.ic, together)) * (pe.oc // min(pe.oc, work.outputs))
    columns = max(1, blocks // work.groups) if mapping & 2 else 1
    sums = ceil_div(together, pe.ic) * apart
    rounds = ceil_div(work.groups, min(work.groups, blocks)) * ceil_div(work.outputs, pe.oc)
    return rounds * sums * work.rows * ceil_div(work.columns, pe.ow * columns)


def best_mapping(work: ConvolutionWork, arch: Arch) -> int:
    """Return the mapping of a convolution onto the array with the fewest cycles.

    Ties go to the highest value, which can be faster for tiles.
    """
    return min(
        reversed(range(MAPPING.maximum + 1)),
        key=lambda mapping: compute_mapped_cycles(work, mapping, arch),
    )


def least_mapped_cycles(work: ConvolutionWork, arch: Arch) -> int:
    """Return a lower bound of the cycles of a convolution with the loop sizes ``work``.

    It applies to any division of the work into commands and to any mapping of each command. The
    bound divides the products by the most that the array can multiply per cycle for any part of the
    work. The array is divided into blocks of summed products by output channels; smaller blocks
    allow more groups and columns in parallel.
    """
    pe = arch.pe
    products = work.inputs * work.taps
    most = max(
        deep * wide * groups * min(pe.ow * columns, work.columns)
        for deep, across in _pieces(pe.ic, products)
        for wide, down in _pieces(pe.oc, work.outputs)
        for groups, columns in _pieces(across * down, work.groups)
    )
    return work.rows * ceil_div(work.groups * products * work.outputs * work.columns, most)


def _pieces(lanes: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the ways to divide array lanes into equal parts, as (size of a part, count of parts).

    ``size`` is the largest size for this count, up to ``most``.
    """
    size = min(lanes, most)
    while size:
        count = lanes // size
        yield size, count
        size = lanes // (count + 1)


def _work(command: Command) -> ConvolutionWork:
    """Return the loop sizes of a convolution command.

    OP_DEPTH_CONV has one group per output channel.
    """
    is_depthwise = command.instruction.mnemonic == OP_DEPTH_CONV.mnemonic
    groups = (command["EX_OUTPUT_CHANNELS"], 1, 1) if is_depthwise else group_shape(command)
    return ConvolutionWork(
        *groups, command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"], taps(command)
    )


def add_mapping(base: Instruction) -> Instruction:
    """Add the field :data:`MAPPING` to ``base``; the mapping changes cycles, not results."""

    @formula(_MAPPED_CYCLES)
    def cycles(command: Command, arch: Arch) -> int:
        macs = compute_mapped_cycles(_work(command), command.fields.get(MAPPING.name, 0), arch)
        return fused_cycles(macs, output_count(command), command, arch)

    def least(command: Command, arch: Arch) -> int:
        return fused_cycles(
            least_mapped_cycles(_work(command), arch), output_count(command), command, arch
        )

    return replace(base, fields=(*base.fields, MAPPING), cycles=cycles, earlier=base, least=least)


# Sums computed by several commands


_PARTIAL = 3
"""Position of the partial sums among the operands: after inputs, weights and records."""


def add_partial_sums(base: Instruction) -> Instruction:
    """Add the field :data:`ACCUMULATE` (continue partial sums) to a product instruction.

    Field value 0 changes nothing.

    The first command writes int32 sums over some of the input channels, later commands add theirs,
    and the last one requantises.
    """

    def partial(command: Command, arch: Arch) -> int:
        """Return the bytes of the partial sums that a command continues.

        Return 0 if it starts from the biases.
        """
        if not command.fields.get(ACCUMULATE.name, 0):
            return 0
        return 4 * (base.operands(command, arch).writes[0].total // element_bytes(command))

    def operands(command: Command, arch: Arch) -> Operands:
        found = base.operands(command, arch)
        nbytes = partial(command, arch)
        if not nbytes:
            return found
        return Operands(
            (*found.reads, strided("sram", command[EX_PARTIAL_ADDRESS.name], nbytes)), found.writes
        )

    @formula(
        f"{formula_of(base.semantics)}\n\nWith accumulate, the sums start from the dense int32 "
        "tensor at EX_PARTIAL_ADDRESS instead of from the biases. An int32 result may have the "
        "address of this tensor."
    )
    def semantics(command: Command, machine: Machine) -> None:
        base.semantics(command, machine)

    @formula(
        f"{formula_of(base.cycles)}\n\nWith accumulate, the command takes at least "
        "⌈results / post_lanes⌉ cycles."
    )
    def cycles(command: Command, arch: Arch) -> int:
        return max(base.cycles(command, arch), ceil_div(partial(command, arch), 4 * arch.lanes))

    return replace(
        base, fields=(*base.fields, ACCUMULATE),
        registers=(*base.registers, EX_PARTIAL_ADDRESS.name),
        adds_registers=(*base.adds_registers, EX_PARTIAL_ADDRESS), earlier=base.earlier or base,
        operands=operands, semantics=semantics, cycles=cycles, replaced=(_PARTIAL,),
    )  # fmt: skip


INSTRUCTIONS = (
    add_tables(add_partial_sums(add_mapping(OP_CONV)), *WIDER),
    add_tables(add_mapping(OP_DEPTH_CONV), *WIDER),
    add_tables(add_mapping(OP_GROUP_CONV), *WIDER),
)
