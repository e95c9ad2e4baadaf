"""Convert sums of products to results: requantisation, look-up and stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Workspace
from isa import numerics
from isa.access import Range
from isa.instruction import Command, Machine
from isa.ops.requant import load_records, requantise_channels

EXACT = 1 << 24
"""Float32 represents every integer up to this magnitude."""
PRODUCT = 1 << 14
"""Largest magnitude of a product of two int8 values."""
_INT32 = 1 << 31
_WORD, _FLOAT = np.dtype("<i4"), np.dtype("<f4")
LARGEST_SQUARES = 1e36
"""Limit for the sum of squared scales.

Below it, no accumulator times a scale exceeds float32, and no scale is NaN.
"""
_FEW = 256
_MANY = 8192
_LARGE = 1 << 15
_BUFFER = 512
"""Buffer size in elements for ``_LARGE`` results in rows of ``_FEW`` to ``_MANY`` elements.

With a broadcast operand NumPy copies rows of up to ``_MANY`` elements through a buffer unless the
buffer is small. For rows shorter than ``_FEW`` the copy is faster. For fewer results a change of
the size takes longer than it saves.
"""


@dataclass(frozen=True, eq=False)
class Finish:
    """Conversion of a command's sums to results, as far as known before the command runs.

    Each sum has ``products`` products.

    ``partial`` is the range of int32 sums that the command starts from; None if it starts from the
    biases.
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
        """Type of a result's elements: int8 after requantisation, otherwise int32."""
        return np.int8 if self.requantise else np.int32

    def load(
        self, machine: Machine, scratch: Workspace, initial: NDArray[np.int32] | None = None
    ) -> ResultConverter | None:
        """Return the converter for the channel records in the scratchpad.

        ``initial`` are the sums to start from. Returns None if the command must run on its
        semantics: sums could exceed int32, or scales are not finite or so large that a product
        could overflow float32.
        """
        records = np.ndarray(
            (self.channels, machine.arch.channel_record_bytes // 4),
            _WORD,
            machine.sram,
            self.address,
        )
        bias = records[:, 0]
        scale = _scales(records)
        if self.partial is not None:
            first, last = self.partial
            sums = (
                np.ndarray((last - first) // 4, "<i4", machine.sram, first)
                if initial is None
                else initial
            )
            return self._continue_sums(machine, scratch, records, scale, sums)
        bias_float = bias.astype(np.float32)
        if self.requantise and self.is_float and not np.vdot(scale, scale) <= LARGEST_SQUARES:
            return None
        room = EXACT - self.products * PRODUCT
        if sqrt(np.vdot(bias_float, bias_float)) <= 0.99 * room:
            return ResultConverter(self, machine, scratch, records, bias, bias_float)
        largest = max(int(bias.max()), -int(bias.min()))
        if largest + self.products * PRODUCT >= _INT32:
            return None
        rounded_once = self.requantise and self.is_float and largest <= EXACT
        added = bias_float if rounded_once or largest <= room else None
        return ResultConverter(self, machine, scratch, records, bias, added)

    def _continue_sums(
        self,
        machine: Machine,
        scratch: Workspace,
        records: NDArray[np.int32],
        scale: NDArray[np.float32],
        sums: NDArray[np.int32],
    ) -> ResultConverter | None:
        """Return the converter of a command that starts from the ``sums`` of an earlier one."""
        largest = max(int(sums.max()), -int(sums.min()))
        scales_fit = (
            not (self.requantise and self.is_float) or np.vdot(scale, scale) <= LARGEST_SQUARES
        )
        if not scales_fit or largest + self.products * PRODUCT >= _INT32:
            return None
        return ResultConverter(self, machine, scratch, records, sums, None)


@dataclass(frozen=True, eq=False)
class ResultConverter:
    """Converter of a running command from sums of products to results.

    ``bias_float`` is set if adding the bias in float32 is correct: sum and bias are exact in
    float32, so their sum is rounded once, like the conversion of the exact int32 sum; an integer
    result is exact. ``records`` (channels, words) and ``bias`` are views of the scratchpad. If a
    command starts from earlier sums, ``bias`` contains those instead.
    """

    finish: Finish
    machine: Machine
    scratch: Workspace
    records: NDArray[np.int32]
    bias: NDArray[np.int32]
    bias_float: NDArray[np.float32] | None

    def store(
        self, sums: NDArray[Any], address: int, step: int, first: int, axis: int, start: int = 0
    ) -> None:
        """Convert exact ``sums`` to results and write them to the scratchpad.

        ``sums`` has two axes, is float32 or int32, and is overwritten.

        Args:
            sums: sums without the bias.
            address: byte address of the first row of results; rows are dense.
            step: bytes from one row of results to the next.
            first: number of the first channel in ``sums``.
            axis: axis of the channels in ``sums``.
            start: position of the first sum along the other axis.
        """
        dtype = np.dtype(self.finish.dtype)
        output = np.ndarray(sums.shape, dtype, self.machine.sram, address, (step, dtype.itemsize))
        self.write(sums, output, first, axis, start)

    def write(
        self, sums: NDArray[Any], output: NDArray[Any], first: int, axis: int, start: int = 0
    ) -> None:
        """Convert exact sums to results in the array ``output`` of the same shape."""
        self.bind(output, first, axis, start)(sums)

    def bind(
        self, output: NDArray[Any], first: int, axis: int, start: int = 0
    ) -> Callable[[NDArray[Any]], None]:
        """Return a function that converts exact sums to results in the array ``output``."""
        channels = slice(first, first + output.shape[axis])
        initial = self._initial(channels, axis, slice(start, start + output.shape[1 - axis]))
        added = (
            None
            if self.bias_float is None
            else _orient_column(self.bias_float[channels, None], axis)
        )
        scale = _orient_column(_scales(self.records)[channels], axis)
        finish = self.finish

        def convert(sums: NDArray[Any]) -> None:
            if sums.dtype == np.float32 and added is not None:
                np.add(sums, added, out=sums)
            else:
                sums = sums.astype(np.int32, copy=False)
                np.add(sums, initial, out=sums)
            if not finish.requantise:
                np.copyto(output, sums, casting="unsafe")
            elif finish.is_float:
                if sums.dtype != np.float32:
                    wide = self.scratch.array("wide", sums.shape, np.float32)
                    np.copyto(wide, sums, casting="unsafe")
                    sums = wide
                numerics.requantise_float32(
                    sums, scale, finish.zero_point, finish.low, finish.high, out=output
                )
            else:
                self._store_fixed(sums.astype(np.int32, copy=False), output, channels, axis)

        def convert_many(sums: NDArray[Any]) -> None:
            with np.errstate():
                np.setbufsize(_BUFFER)
                convert(sums)

        many = output.size >= _LARGE and _FEW <= output.shape[1] <= _MANY
        return convert_many if many else convert

    def _initial(self, channels: slice, axis: int, others: slice) -> NDArray[np.int32]:
        if self.finish.partial is None:
            return _orient_column(self.bias[channels, None], axis)
        if axis == 0:
            return self.bias.reshape(self.finish.channels, -1)[channels, others]
        return self.bias.reshape(-1, self.finish.channels)[others, channels]

    def _store_fixed(
        self, sums: NDArray[np.int32], output: NDArray[np.int8], channels: slice, axis: int
    ) -> None:
        records = load_records(self.machine, self.finish.address, self.finish.channels)
        output[...] = requantise_channels(
            sums,
            records.select_channels(channels),
            axis,
            self.finish.command,
            self.machine,
            self.finish.low,
        )


def _scales(records: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the scales (channels, 1) of channel records."""
    return records.view(_FLOAT)[:, 1:2]


def _orient_column(column: NDArray[Any], axis: int) -> NDArray[Any]:
    """Orient a column (channels, 1) so that it broadcasts with sums whose channels are ``axis``."""
    return column if axis == 0 else column.T
