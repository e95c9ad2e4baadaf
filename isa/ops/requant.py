"""Channel records (bias and scale of an output channel), the requantisation that uses them, and ``OP_REQUANT``.

``OP_REQUANT`` takes int32 accumulators to int8 with one channel record a channel; it may work in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.access import strided
from isa.arch import Arch
from isa.instruction import INT8, INT32, Command, Instruction, Machine, Operands, Unit, formula, view
from isa.ops.lookup import OP_LUT, elements, shape, with_tables


@dataclass(frozen=True, eq=False)
class ChannelScales:
    """What the accumulators of each channel are multiplied by, (OC,).

    ``rounded``: float32, as ONNX Runtime has it. ``exact``: float64, for numerics fixed, where it becomes a multiplier
    and a shift, or, where the product is to be rounded ``once``, stays what it is.
    """

    rounded: NDArray[np.float32]
    exact: NDArray[np.float64]
    once: bool = False

    @classmethod
    def of(cls, scale: NDArray[np.float32]) -> ChannelScales:
        """Those that are float32 numbers themselves."""
        return cls(scale, scale.astype(np.float64))

    def chosen(self, channels: slice) -> ChannelScales:
        return ChannelScales(self.rounded[channels], self.exact[channels], self.once)


@dataclass(frozen=True, eq=False)
class ChannelRecords:
    """``bias`` int32 (OC,) and either ``scale`` float32 (OC,), or ``multiplier`` and ``shift`` int32 (OC,).

    The latter are the halves of a float64 ``factor`` where ``shift`` is above 30, which is no shift.
    """

    bias: NDArray[np.int32]
    scale: NDArray[np.float32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    factor: NDArray[np.float64]

    def chosen(self, channels: slice) -> ChannelRecords:
        integers = self.bias[channels], self.scale[channels], self.multiplier[channels], self.shift[channels]
        return ChannelRecords(*integers, self.factor[channels])


def pack_records(bias: NDArray[np.int32], scales: ChannelScales, arch: Arch) -> bytes:
    """The bytes of the records in memory: little-endian (int32, float32); when fixed (int32, int32, int32), or (int32,
    float64) of products that are rounded once.
    """
    if arch.numerics == "onnxruntime":
        return np.stack([bias.astype("<i4").view("<u4"), scales.rounded.astype("<f4").view("<u4")], axis=1).tobytes()
    if scales.once:
        return np.column_stack([bias.astype("<i4"), scales.exact.astype("<f8").view("<i4").reshape(-1, 2)]).tobytes()
    columns = [bias.astype("<i4"), *numerics.quantise_multipliers(scales.exact)]
    return np.stack(columns, axis=1).astype("<i4").tobytes()


def load_records(machine: Machine, address: int, channels: int) -> ChannelRecords:
    """The records of ``channels`` output channels that start at scratchpad byte ``address``."""
    words = machine.arch.channel_record_bytes // 4
    end = address + channels * words * 4
    raw = machine.sram[address:end].copy().view("<i4").reshape(channels, words)
    last = raw[:, words - 1]
    factor = np.ascontiguousarray(raw[:, words - 2 :]).view("<f8")[:, 0]
    return ChannelRecords(raw[:, 0], raw[:, 1].copy().view("<f4"), raw[:, 1], last, factor)


def requantise_channels(
    accumulator: NDArray[Any], records: ChannelRecords, axis: int, command: Command, machine: Machine, low: int
) -> NDArray[np.int8]:
    """int8 of int32-range ``accumulator`` with one record an index of ``axis``; clamps to [low, EX_CLAMP_HIGH]."""
    shape = [1] * accumulator.ndim
    shape[axis] = -1
    zero_point, high = command["EX_OUTPUT_ZERO_POINT"], command["EX_CLAMP_HIGH"]
    if machine.arch.numerics == "onnxruntime":
        return numerics.requantise(accumulator, records.scale.reshape(shape), zero_point, low, high)
    once = records.shift > numerics.LARGEST_SHIFT
    if once.all():
        return numerics.requantise_once(accumulator, records.factor.reshape(shape), zero_point, low, high)
    multiplier, shift = (np.where(once, 0, part).reshape(shape) for part in (records.multiplier, records.shift))
    twice = numerics.requantise_fixed(accumulator, multiplier, shift, zero_point, low, high)
    if not once.any():
        return twice
    factor = np.where(once, records.factor, 0.0).reshape(shape)
    single = numerics.requantise_once(accumulator, factor, zero_point, low, high)
    return np.where(once.reshape(shape), single, twice)


def _operands(command: Command, arch: Arch) -> Operands:
    count = elements(command)
    reads = (
        strided("sram", command["EX_INPUT_ADDRESS"], 4 * count),
        strided("sram", command["EX_CHANNEL_ADDRESS"], command["EX_OUTPUT_CHANNELS"] * arch.channel_record_bytes),
    )
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], count),))


@formula(
    """
    y = clip(rint(float32(x) · scale[channel]) + EX_OUTPUT_ZERO_POINT). With numerics fixed: by multiplier and shift, or
    clip(round(float64(x) · factor[channel]) + EX_OUTPUT_ZERO_POINT), ties away from zero, where it holds a factor.

    x is int32 (rows, OC, length), y int8 of the same shape, clamped to EX_CLAMP_LOW and EX_CLAMP_HIGH.
    """
)
def _requant(command: Command, machine: Machine) -> None:
    dimensions = shape(command)
    accumulator = view(machine.sram, command["EX_INPUT_ADDRESS"], dimensions, np.int32)
    records = load_records(machine, command["EX_CHANNEL_ADDRESS"], dimensions[1])
    low = command["EX_CLAMP_LOW"]
    result = requantise_channels(accumulator, records, 1, command, machine, low)
    view(machine.sram, command["EX_OUTPUT_ADDRESS"], dimensions, np.int8)[...] = result


OP_REQUANT = Instruction(
    mnemonic="OP_REQUANT", opcode=0x23, unit=Unit.EX, kind="REQUANT",
    description="Scales, rounds, offsets and clamps int32 to int8; the bias of the channel record is not used.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH",
        "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW", "EX_CLAMP_HIGH",
    ),
    operands=_operands, semantics=_requant,
    cycles=OP_LUT.cycles,
    inputs=(INT32,), outputs=(INT8,), streamed=(0,),
)  # fmt: skip
INSTRUCTIONS = (with_tables(OP_REQUANT),)
