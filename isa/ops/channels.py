"""Channel records (bias and scale of an output channel) and the requantisation that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.arch import Arch
from isa.instruction import Command, Machine


@dataclass(frozen=True, eq=False)
class ChannelRecords:
    """``bias`` int32 (OC,) and either ``scale`` float32 (OC,) or ``multiplier`` and ``shift`` int32 (OC,)."""

    bias: NDArray[np.int32]
    scale: NDArray[np.float32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]


def pack_records(bias: NDArray[np.int32], scale: NDArray[np.float32], arch: Arch) -> bytes:
    """The bytes of the records in memory: little-endian (int32, float32), or (int32, int32, int32) when fixed."""
    if arch.numerics == "onnxruntime":
        return np.stack([bias.astype("<i4").view("<u4"), scale.astype("<f4").view("<u4")], axis=1).tobytes()
    pairs = [numerics.quantise_multiplier(float(value)) for value in scale]
    columns = [bias.astype("<i4"), np.array([m for m, _ in pairs], "<i4"), np.array([s for _, s in pairs], "<i4")]
    return np.stack(columns, axis=1).tobytes()


def load_records(machine: Machine, address: int, channels: int) -> ChannelRecords:
    """The records of ``channels`` output channels that start at scratchpad byte ``address``."""
    words = machine.arch.channel_record_bytes // 4
    end = address + channels * words * 4
    raw = machine.sram[address:end].copy().view("<i4").reshape(channels, words)
    last = raw[:, words - 1]
    return ChannelRecords(raw[:, 0], raw[:, 1].copy().view("<f4"), raw[:, 1], last)


def requantise_channels(
    accumulator: NDArray[Any], records: ChannelRecords, axis: int, command: Command, machine: Machine, low: int
) -> NDArray[np.int8]:
    """int8 of int32-range ``accumulator`` with one record an index of ``axis``; clamps to [low, EX_CLAMP_HIGH]."""
    shape = [1] * accumulator.ndim
    shape[axis] = -1
    zero_point, high = command["EX_OUTPUT_ZERO_POINT"], command["EX_CLAMP_HIGH"]
    if machine.arch.numerics == "onnxruntime":
        return numerics.requantise(accumulator, records.scale.reshape(shape), zero_point, low, high)
    multiplier, shift = records.multiplier.reshape(shape), records.shift.reshape(shape)
    return numerics.requantise_fixed(accumulator, multiplier, shift, zero_point, low, high)
