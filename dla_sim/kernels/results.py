"""From exact sums of products to the result of a command: bias, requantisation or int32, and the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.instruction import Command, Machine
from isa.ops.channels import ChannelRecords, load_records, requantise_channels

EXACT = 1 << 24
"""Float32 holds every integer up to this magnitude."""
PRODUCT = 1 << 14
"""Largest magnitude of a product of two int8."""
_INT32 = 1 << 31
LARGEST_SCALE = 1e20


def magnitude(values: NDArray[Any]) -> float:
    """Largest magnitude of a non-empty array, as a Python number; NaN if there is one."""
    if values.size == 1:
        return abs(float(values[0]))
    return max(float(values.max()), -float(values.min()))


@dataclass(frozen=True, eq=False)
class Results:
    """How a command turns sums of products into its results. ``low`` is the lower clamp limit.

    ``bias`` is there where adding it in float32 is right: sum and bias are exact in float32, so that their float32 sum
    is rounded once, as the conversion of the exact int32 sum is; and where the result is an integer, it is exact.
    """

    command: Command
    machine: Machine
    records: ChannelRecords
    bias: NDArray[np.float32] | None
    low: int

    def store(self, sums: NDArray[Any], output: NDArray[Any], first: int, axis: int) -> None:
        """Writes the results of exact ``sums`` (two axes, float32 or int32, DESTROYED) to ``output`` (same shape).

        ``sums`` lack the bias; ``axis`` is their axis of channels, of which the first is ``first``.
        """
        channels = slice(first, first + sums.shape[axis])
        column = (slice(None), None) if axis == 0 else (None, slice(None))
        if sums.dtype == np.float32 and self.bias is not None:
            np.add(sums, self.bias[channels][column], out=sums)
        else:
            sums = sums.astype(np.int32)
            np.add(sums, self.records.bias[channels][column], out=sums)
        if not self.command.fields["requantise"]:
            np.copyto(output, sums, casting="unsafe")
        elif self._is_float:
            self._requantise(sums.astype(np.float32, copy=False), output, channels, column)
        else:
            self._requantise_fixed(sums.astype(np.int32), output, channels, axis)

    @property
    def _is_float(self) -> bool:
        return self.machine.arch.numerics == "onnxruntime"

    def _requantise(self, sums: NDArray[Any], output: NDArray[np.int8], channels: slice, column: Any) -> None:
        zero_point, high = self.command["EX_OUTPUT_ZERO_POINT"], self.command["EX_CLAMP_HIGH"]
        scale = self.records.scale[channels][column]
        numerics.requantise_float32(sums, scale, zero_point, self.low, high, out=output)

    def _requantise_fixed(self, sums: NDArray[Any], output: NDArray[np.int8], channels: slice, axis: int) -> None:
        all_of = self.records
        some = ChannelRecords(
            all_of.bias[channels], all_of.scale[channels], all_of.multiplier[channels], all_of.shift[channels]
        )
        output[...] = requantise_channels(sums, some, axis, self.command, self.machine, self.low)


def results(command: Command, machine: Machine, channels: int, products: int, low: int) -> Results | None:
    """The :class:`Results` of a command whose sums have ``products`` products each.

    None for what is left to the semantics: sums that might leave int32, clamp limits in the wrong order, scales that
    are not finite or so large that a product could overflow float32, records past the end of the scratchpad.
    """
    address = command["EX_CHANNEL_ADDRESS"]
    if address + channels * machine.arch.channel_record_bytes > machine.sram.size:
        return None
    records = load_records(machine, address, channels)
    largest = magnitude(records.bias)
    bound = largest + products * PRODUCT
    if bound >= _INT32 or (command.fields["requantise"] and low > command["EX_CLAMP_HIGH"]):
        return None
    is_float = machine.arch.numerics == "onnxruntime"
    if is_float and command.fields["requantise"] and not magnitude(records.scale) <= LARGEST_SCALE:
        return None
    rounded_once = is_float and bool(command.fields["requantise"]) and largest <= EXACT
    bias = records.bias.astype(np.float32) if rounded_once or bound <= EXACT else None
    return Results(command, machine, records, bias, low)
