"""Channel records, requantisation with them, and ``OP_REQUANT``.

A channel record has the bias and the scale of one output channel. ``OP_REQUANT`` converts int32
accumulators to int8 with one channel record per channel; it may work in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.access import strided
from isa.arch import Arch
from isa.instruction import (
    INT8,
    INT32,
    Command,
    Instruction,
    Machine,
    Operands,
    Unit,
    formula,
    view,
)
from isa.ops.lookup import OP_LUT, add_tables, elements, shape


@dataclass(frozen=True, eq=False)
class ChannelScales:
    """Factors by which each channel's accumulators are multiplied to requantise them.

    The shape is (OC,).

    ``rounded`` is float32, as in ONNX Runtime. ``exact`` is float64, for numerics ``fixed``: it is
    converted to a multiplier and a shift, or kept as float64 if ``once`` is set (the product is
    rounded only once).
    """

    rounded: NDArray[np.float32]
    exact: NDArray[np.float64]
    once: bool = False

    @classmethod
    def make_exact(cls, scale: NDArray[np.float32]) -> ChannelScales:
        """Return channel factors that are exactly float32 numbers."""
        return cls(scale, scale.astype(np.float64))

    def select_channels(self, channels: slice) -> ChannelScales:
        return ChannelScales(self.rounded[channels], self.exact[channels], self.once)


@dataclass(frozen=True, eq=False)
class ChannelRecords:
    """Bias and requantisation factor of each output channel.

    The bias is int32 (OC,). The factor is ``scale``, float32 (OC,), or ``multiplier`` and
    ``shift``, int32 (OC,). A ``shift`` above 30 is not a shift: then ``multiplier`` and ``shift``
    are the two halves of the float64 ``factor``.
    """

    bias: NDArray[np.int32]
    scale: NDArray[np.float32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    factor: NDArray[np.float64]

    def select_channels(self, channels: slice) -> ChannelRecords:
        integers = (
            self.bias[channels],
            self.scale[channels],
            self.multiplier[channels],
            self.shift[channels],
        )
        return ChannelRecords(*integers, self.factor[channels])


def pack_records(bias: NDArray[np.int32], scales: ChannelScales, arch: Arch) -> bytes:
    """Return channel records as bytes in memory, little-endian.

    A record is (int32, float32); with numerics ``fixed`` (int32, int32, int32), or (int32, float64)
    for products that are rounded only once.
    """
    if arch.numerics == "onnxruntime":
        return np.stack(
            [bias.astype("<i4").view("<u4"), scales.rounded.astype("<f4").view("<u4")], axis=1
        ).tobytes()
    if scales.once:
        return np.column_stack(
            [bias.astype("<i4"), scales.exact.astype("<f8").view("<i4").reshape(-1, 2)]
        ).tobytes()
    columns = [bias.astype("<i4"), *numerics.quantise_multipliers(scales.exact)]
    return np.stack(columns, axis=1).astype("<i4").tobytes()


def load_records(machine: Machine, address: int, channels: int) -> ChannelRecords:
    """Read the records of ``channels`` output channels from scratchpad byte ``address``."""
    words = machine.arch.channel_record_bytes // 4
    end = address + channels * words * 4
    raw = machine.sram[address:end].copy().view("<i4").reshape(channels, words)
    last = raw[:, words - 1]
    factor = np.ascontiguousarray(raw[:, words - 2 :]).view("<f8")[:, 0]
    return ChannelRecords(raw[:, 0], raw[:, 1].copy().view("<f4"), raw[:, 1], last, factor)


def requantise_channels(
    accumulator: NDArray[Any],
    records: ChannelRecords,
    axis: int,
    command: Command,
    machine: Machine,
    low: int,
) -> NDArray[np.int8]:
    """Requantise an int32-range accumulator to int8, with one record per index of ``axis``.

    Results are clamped to [``low``, EX_CLAMP_HIGH].
    """
    shape = [1] * accumulator.ndim
    shape[axis] = -1
    zero_point = command["EX_OUTPUT_ZERO_POINT"]
    high = command["EX_CLAMP_HIGH"]
    if machine.arch.numerics == "onnxruntime":
        return numerics.requantise(accumulator, records.scale.reshape(shape), zero_point, low, high)
    once = records.shift > numerics.LARGEST_SHIFT
    if once.all():
        return numerics.requantise_once(
            accumulator, records.factor.reshape(shape), zero_point, low, high
        )
    multiplier, shift = (
        np.where(once, 0, part).reshape(shape) for part in (records.multiplier, records.shift)
    )
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
        strided(
            "sram",
            command["EX_CHANNEL_ADDRESS"],
            command["EX_OUTPUT_CHANNELS"] * arch.channel_record_bytes,
        ),
    )
    return Operands(reads, (strided("sram", command["EX_OUTPUT_ADDRESS"], count),))


@formula(
    """
    y = clip(rint(float32(x) · scale[channel]) + EX_OUTPUT_ZERO_POINT).

    With numerics fixed, the multiplier and shift of the channel record scale x. If the record
    contains a float64 factor, y = clip(round(float64(x) · factor[channel]) + EX_OUTPUT_ZERO_POINT),
    with ties away from zero.

    x is int32 with the shape (rows, OC, length), and y is int8 with the same shape. clip limits y
    to EX_CLAMP_LOW and EX_CLAMP_HIGH.
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
    description="Scales, rounds, offsets and clamps int32 to int8; it does not use the bias of the "
                "channel record.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH",
        "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW", "EX_CLAMP_HIGH",
    ),
    operands=_operands, semantics=_requant,
    cycles=OP_LUT.cycles,
    inputs=(INT32,), outputs=(INT8,), streamed=(0,),
)  # fmt: skip
INSTRUCTIONS = (add_tables(OP_REQUANT),)
