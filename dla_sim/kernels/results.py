"""From exact sums of int8 products to the results of a command: bias, requantisation or int32, and the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Scratch, all_apart, highest
from dla_sim.kernels.compiled import Limits
from dla_sim.kernels.products import CHUNK, EXACT, PRODUCT
from dla_sim.kernels.windows import Window
from isa import numerics
from isa.access import Range
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.convolution import ACCUMULATE, EX_PARTIAL_ADDRESS, lower_limit
from isa.ops.requant import load_records, requantise_channels

_INT32 = 1 << 31
_WORD, _FLOAT = np.dtype("<i4"), np.dtype("<f4")
LARGEST_SQUARES = 1e36
"""Sum of squared scales up to which no accumulator times a scale leaves float32; not so if a scale is not a number."""
_FEW, _MANY = 256, 8192
_BUFFER = 512
"""NumPy copies rows of up to ``_MANY`` elements through a buffer when one operand is broadcast, unless the buffer is
small; for shorter rows than ``_FEW`` the copy is the faster way."""


@dataclass(frozen=True, eq=False)
class Finish:
    """What is known of the results of a command before it runs: ``products`` products a sum, and how it ends.

    ``partial``: where the int32 sums lie from which it starts; None: it starts from the biases.
    """

    command: Command
    channels: int
    products: int
    low: int
    high: int
    zero_point: int
    requantise: bool
    is_float: bool
    address: int
    end: int
    partial: Range | None = None

    @property
    def dtype(self) -> type[np.int8] | type[np.int32]:
        """Type of the result's elements."""
        return np.int8 if self.requantise else np.int32

    @cached_property
    def compilable(self) -> bool:
        """Whether compiled kernels may end the sums; they read whole words."""
        fit = self.partial is None and abs(self.zero_point) < 1 << 15 and self.address % 4 == 0
        return self.requantise and self.is_float and fit

    @cached_property
    def limits(self) -> Limits:
        """As compiled kernels take them."""
        return float(self.low - self.zero_point), float(self.high - self.zero_point), self.zero_point

    def load(self, machine: Machine, scratch: Scratch) -> Results | None:
        """The results with the channel records in the scratchpad.

        None for what is left to the semantics: sums that might leave int32, scales that are not finite or so large that
        a product could overflow float32.
        """
        records = np.ndarray((self.channels, machine.arch.channel_record_bytes // 4), _WORD, machine.sram, self.address)
        bias = records[:, 0]
        if scratch.compiled is not None and self.compilable:
            room = _INT32 - 1 - self.products * PRODUCT
            fit = scratch.compiled.records_fit(records, room, LARGEST_SQUARES)
            return Results(self, machine, scratch, records, bias, None) if fit else None
        scale = _scales(records)
        if self.partial is not None:
            return self._continued(machine, scratch, records, scale)
        bias_float = bias.astype(np.float32)
        if self.requantise and self.is_float and not np.vdot(scale, scale) <= LARGEST_SQUARES:
            return None
        room = EXACT - self.products * PRODUCT
        if sqrt(np.vdot(bias_float, bias_float)) <= 0.99 * room:
            return Results(self, machine, scratch, records, bias, bias_float)
        largest = max(int(bias.max()), -int(bias.min()))
        if largest + self.products * PRODUCT >= _INT32:
            return None
        rounded_once = self.requantise and self.is_float and largest <= EXACT
        added = bias_float if rounded_once or largest <= room else None
        return Results(self, machine, scratch, records, bias, added)

    def _continued(
        self, machine: Machine, scratch: Scratch, records: NDArray[np.int32], scale: NDArray[np.float32]
    ) -> Results | None:
        """The results of a command that starts from the sums of an earlier one."""
        assert self.partial is not None
        first, last = self.partial
        sums = np.ndarray((last - first) // 4, "<i4", machine.sram, first)
        largest = max(int(sums.max()), -int(sums.min()))
        scales_fit = not (self.requantise and self.is_float) or np.vdot(scale, scale) <= LARGEST_SQUARES
        if not scales_fit or largest + self.products * PRODUCT >= _INT32:
            return None
        return Results(self, machine, scratch, records, sums, None)


@dataclass(frozen=True, eq=False)
class Results:
    """How a running command turns sums of products into its results.

    ``bias_float`` is there where adding it in float32 is right: sum and bias are exact in float32, so that their sum
    is rounded once, as the conversion of the exact int32 sum is; and where the result is an integer, it is exact.
    ``records`` (channels, words) and ``bias`` lie in the scratchpad; where a command starts from earlier sums, all of
    these take the place of ``bias``.
    """

    finish: Finish
    machine: Machine
    scratch: Scratch
    records: NDArray[np.int32]
    bias: NDArray[np.int32]
    bias_float: NDArray[np.float32] | None

    def store(self, sums: NDArray[Any], address: int, step: int, first: int, axis: int, start: int = 0) -> None:
        """Writes the results of exact ``sums`` (two axes, float32 or int32, DESTROYED) to the scratchpad.

        Rows are dense and ``step`` bytes apart, the first is at ``address``. ``sums`` lack the bias; ``axis`` is their
        axis of channels, of which the first is ``first``; along the other they are those from ``start`` on.
        """
        finish, compiled = self.finish, self.scratch.compiled
        memory = self.machine.sram
        if compiled is None or sums.dtype != np.int32 or not finish.compilable or (axis and step != sums.shape[1]):
            strides = step, np.dtype(finish.dtype).itemsize
            self.write(sums, np.ndarray(sums.shape, finish.dtype, memory, address, strides), first, axis, start)
            return
        records = self.records[first : first + sums.shape[axis]]
        if axis == 0:
            compiled.requantise_rows(sums, records, finish.limits, memory.view(np.int8), address, step)
        else:
            compiled.requantise_columns(sums, records, finish.limits, memory.view(np.int8), address)

    def write(self, sums: NDArray[Any], output: NDArray[Any], first: int, axis: int, start: int = 0) -> None:
        """As :meth:`store`, to ``output`` (same shape)."""
        if _FEW <= sums.shape[1] <= _MANY and sums.shape[0] > 1:
            with np.errstate():
                np.setbufsize(_BUFFER)
                self._write(sums, output, first, axis, start)
        else:
            self._write(sums, output, first, axis, start)

    def _write(self, sums: NDArray[Any], output: NDArray[Any], first: int, axis: int, start: int) -> None:
        channels = slice(first, first + sums.shape[axis])
        if sums.dtype == np.float32 and self.bias_float is not None:
            np.add(sums, _along(self.bias_float[channels, None], axis), out=sums)
        else:
            sums = sums.astype(np.int32, copy=False)
            np.add(sums, self._initial(channels, axis, slice(start, start + sums.shape[1 - axis])), out=sums)
        finish = self.finish
        if not finish.requantise:
            np.copyto(output, sums, casting="unsafe")
        elif finish.is_float:
            wide = sums if sums.dtype == np.float32 else self.scratch.array("wide", sums.shape, np.float32)
            if wide is not sums:
                np.copyto(wide, sums, casting="unsafe")
            scale = _along(_scales(self.records)[channels], axis)
            numerics.requantise_float32(wide, scale, finish.zero_point, finish.low, finish.high, out=output)
        else:
            self._store_fixed(sums.astype(np.int32, copy=False), output, channels, axis)

    def _initial(self, channels: slice, axis: int, others: slice) -> NDArray[np.int32]:
        """What the sums of some channels start from."""
        if self.finish.partial is None:
            return _along(self.bias[channels, None], axis)
        if axis == 0:
            return self.bias.reshape(self.finish.channels, -1)[channels, others]
        return self.bias.reshape(-1, self.finish.channels)[others, channels]

    def _store_fixed(self, sums: NDArray[np.int32], output: NDArray[np.int8], channels: slice, axis: int) -> None:
        records = load_records(self.machine, self.finish.address, self.finish.channels)
        output[...] = requantise_channels(
            sums, records.chosen(channels), axis, self.finish.command, self.machine, self.finish.low
        )


def _scales(records: NDArray[np.int32]) -> NDArray[np.float32]:
    """The scales (channels, 1) of channel records."""
    return records.view(_FLOAT)[:, 1:2]


def _along(column: NDArray[Any], axis: int) -> NDArray[Any]:
    """A column (channels, 1) as it stands beside sums whose channels are ``axis``."""
    return column if axis == 0 else column.T


class Sums(NamedTuple):
    """What a command computes: output channels, results, products a sum."""

    channels: int
    results: int
    products: int


Compute = Callable[[Results, Scratch], None]
"""Computes the exact sums of a command and stores their results."""


def prepare_sums(
    command: Command, arch: Arch, sums: Sums, output: Range, reads: Sequence[Range], compute: Compute
) -> Attempt | None:
    """The attempt of a command with such ``sums``: ``compute``, with the results it is to store.

    ``reads`` are the ranges of its operands but for the channel records. None for what is left to the semantics: clamp
    limits in the wrong order, and results over operands.
    """
    finish = _finish(command, arch, sums)
    if finish is None:
        return None
    reads = (*reads, (finish.address, finish.end))
    if not all_apart(output, reads if finish.partial in (None, output) else (*reads, finish.partial)):
        return None
    end = highest(output, *reads, *(() if finish.partial is None else (finish.partial,)))

    def attempt(machine: Machine, scratch: Scratch) -> bool:
        results = finish.load(machine, scratch) if end <= machine.sram.size else None
        if results is None:
            return False
        compute(results, scratch)
        return True

    return attempt


def prepare_window(
    shape: Window, products: int, element: int, command: Command, arch: Arch, compute: Compute
) -> Attempt | None:
    """:func:`prepare_sums` of a sliding window: ``products`` weights an output channel, outputs of ``element`` bytes.

    None also where a channel has more taps than an exact sum, or the padding reads what is no int8.
    """
    fill, weights = command["EX_INPUT_ZERO_POINT"], command["EX_OPERAND_ADDRESS"]
    if shape.kh * shape.kw > CHUNK or (shape.padded and not -128 <= fill <= 127):
        return None
    output = shape.output, shape.output + shape.output_bytes(element)
    reads = (shape.input, shape.input + shape.input_bytes), (weights, weights + shape.oc * products)
    return prepare_sums(command, arch, Sums(shape.oc, shape.oc * shape.pixels, products), output, reads, compute)


def _finish(command: Command, arch: Arch, sums: Sums) -> Finish | None:
    """How a convolution or matrix product ends.

    None for what is left to the semantics: clamp limits in the wrong order.
    """
    low, high = lower_limit(command), command["EX_CLAMP_HIGH"]
    requantise = bool(command.fields["requantise"])
    if requantise and low > high:
        return None
    address, partial = command["EX_CHANNEL_ADDRESS"], None
    if command.fields.get(ACCUMULATE.name, 0):
        first = command[EX_PARTIAL_ADDRESS.name]
        partial = first, first + 4 * sums.results
    return Finish(
        command, sums.channels, sums.products, low, high, command["EX_OUTPUT_ZERO_POINT"], requantise,
        arch.numerics == "onnxruntime", address, address + sums.channels * arch.channel_record_bytes, partial,
    )  # fmt: skip
