"""Exact sums of int8 products, and their conversion to results: bias, requantisation or int32, and
store.

Two implementations give the same integers.

- :class:`IntegerProducts`: ONNX Runtime's ``MatMulInteger``, integer arithmetic only. Used for all
  but small products, if ONNX Runtime is installed and passes the exactness test on this processor.
- :class:`FloatProducts`: float32 by NumPy's BLAS. A sum of at most 1024 int8 products (2**24 /
  2**14) is exact in any order, so neither the order of summation nor the number of threads can
  change a bit.

Longer sums are split, and the parts are added in int32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product as combinations
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace, disjoint, highest
from dla_sim.kernels.compiled import Limits
from isa import numerics
from isa.access import Range
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.requant import load_records, requantise_channels
from isa.ops.windows import ACCUMULATE, EX_PARTIAL_ADDRESS, lower_limit

EXACT = 1 << 24
"""Float32 represents every integer up to this magnitude."""
PRODUCT = 1 << 14
"""Largest magnitude of a product of two int8 values."""
CHUNK = EXACT // PRODUCT
"""Products whose float32 sum is exact: 1024, in any order, because every partial sum is an
integer of at most 2**24.
"""
_NARROW = 64, 128
_COLUMNS = 448
"""Columns per BLAS call for at most ``_NARROW`` rows and products.

Up to 1.4 times faster than one call.
"""
_SMALL = 1 << 16
"""Multiply-accumulates up to which a call of ONNX Runtime costs more than it saves."""
_FLIP = 128
"""Offset that converts int8 to uint8; the uint8 zero point is 128."""
_RESULT = ["y"]


class FloatProducts:
    """Products of float32 copies of int8 matrices.

    A sum of at most ``longest`` products is exact.
    """

    longest = CHUNK
    dtype = np.float32

    def prepare_left(self, values: NDArray[np.int8], scratch: Workspace) -> NDArray[Any]:
        """Return a left operand in the form that :meth:`multiply` needs.

        Valid until the next call.
        """
        return _copy_to(values, scratch.array("left", values.shape, np.float32))

    def right(self, values: NDArray[np.int8], scratch: Workspace) -> NDArray[Any]:
        """Return a right operand in the form that :meth:`multiply` needs.

        Valid until the next call.
        """
        return _copy_to(values, scratch.array("columns", values.shape, np.float32))

    def prepare_right(self, values: NDArray[np.int8]) -> NDArray[Any]:
        """Return a right operand in the form that :meth:`multiply` needs, valid permanently."""
        return values.astype(np.float32)

    def multiply(self, left: NDArray[Any], right: NDArray[Any], scratch: Workspace) -> NDArray[Any]:
        """Return the float32 sums (M, N) of (M, K) by (K, N), K at most ``longest``; valid until
        the next call.
        """
        out: NDArray[np.float32] = scratch.array(
            "sums", (left.shape[0], right.shape[1]), np.float32
        )
        rows, products = left.shape
        columns = right.shape[1]
        if rows > _NARROW[0] or products > _NARROW[1] or columns < 2 * _COLUMNS:
            return float_product(left, right, out)
        for first in range(0, columns, _COLUMNS):
            last = first + _COLUMNS
            float_product(left, right[:, first:last], out[:, first:last])
        return out


class IntegerProducts:
    """Products of int8 matrices by ONNX Runtime's ``MatMulInteger``, called through ``session``.

    The left operand is uint8, the right one int8 or, if ``flipped``, uint8. Adding 128, its zero
    point, converts an int8 to uint8. With at most ``longest`` products no internal sum exceeds
    int32: the sum of raw products and the three zero-point corrections are at most 255 * 128 per
    product each.
    """

    longest = 1 << 14
    dtype = np.int8

    def __init__(self, session: Any, flipped: bool) -> None:
        self._session = session
        self._flipped = flipped

    @property
    def kind(self) -> str:
        """Type of right operands."""
        return "uint8" if self._flipped else "int8"

    def prepare_left(self, values: NDArray[np.int8], scratch: Workspace) -> NDArray[Any]:
        """Return a left operand in the form that :meth:`multiply` needs.

        Valid until the next call.
        """
        flipped: NDArray[np.uint8] = scratch.array("left", values.shape, np.uint8)
        return np.bitwise_xor(values.view(np.uint8), _FLIP, out=flipped)

    def right(self, values: NDArray[np.int8], scratch: Workspace) -> NDArray[Any]:
        """Return a right operand in the form that :meth:`multiply` needs: ``values`` itself if
        it is dense.
        """
        if values.flags.c_contiguous:
            return values
        return _copy_to(values, scratch.array("columns", values.shape, np.int8))

    def prepare_right(self, values: NDArray[np.int8]) -> NDArray[Any]:
        """Return a right operand in the form that :meth:`multiply` needs, valid permanently."""
        return np.ascontiguousarray(values)

    def multiply(
        self,
        left: NDArray[Any],
        right: NDArray[Any],
        scratch: Workspace,
        zero_points: tuple[int, int] = (0, 0),
    ) -> NDArray[Any]:
        """Return the int32 sums (..., M, N) of (..., M, K) by (..., K, N) in a new array.

        ``zero_points``, two int8 values, are subtracted from the left and the right operand.
        """
        if self._flipped:
            flipped = scratch.array("right", right.shape, np.uint8)
            right = np.bitwise_xor(right.view(np.uint8), _FLIP, out=flipped)
        feed = {"a": left, "b": right}
        if zero_points != (0, 0):
            own = np.dtype(self.kind).type(zero_points[1] + _FLIP * self._flipped)
            feed |= {"za": np.array(zero_points[0] + _FLIP, np.uint8), "zb": np.array(own)}
        found: NDArray[np.int32] = self._session.run(_RESULT, feed)[0]
        return found


Products = FloatProducts | IntegerProducts
_BLAS = FloatProducts()


def products(macs: int) -> Products:
    """Return the faster implementation for a product of ``macs`` multiply-accumulates."""
    return (integer_products() if macs > _SMALL else None) or _BLAS


@cache
def integer_products() -> IntegerProducts | None:
    """Return ONNX Runtime's integer products; None if it is not installed or not exact.

    ONNX Runtime's kernels for uint8 by int8 add pairs of products in 16 bits on processors that
    only have AVX2, and this addition saturates. Kernels for uint8 by uint8 never saturate, but take
    twice as long on other processors.
    """
    for kind in ("int8", "uint8"):
        try:
            found = IntegerProducts(session(kind), kind == "uint8")
        except ImportError:
            return None
        if is_exact(found):
            return found
    return None


def session(right: str) -> Any:
    """Return ONNX Runtime's session of one ``MatMulInteger`` of uint8 ``a`` and ``b`` of type
    ``right``, of any shapes.

    The inputs ``za`` and ``zb`` are zero points; their defaults represent an int8 zero.
    """
    import onnxruntime
    from onnx import TensorProto, helper

    kinds = {
        "a": TensorProto.UINT8,
        "b": {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}[right],
    }
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    inputs += [helper.make_tensor_value_info(f"z{name}", kind, []) for name, kind in kinds.items()]
    zeros = [
        helper.make_tensor(f"z{name}", kind, [], [_FLIP if kind == TensorProto.UINT8 else 0])
        for name, kind in kinds.items()
    ]
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], _RESULT)
    result = helper.make_tensor_value_info(_RESULT[0], TensorProto.INT32, None)
    graph = helper.make_graph([node], "product", inputs, [result], zeros)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # it would warn about inputs with defaults
    options.enable_cpu_mem_arena = False  # the arena would keep the memory of the largest sums
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def is_exact(ways: IntegerProducts) -> bool:
    """Return True if products of the most extreme values are exact, for shapes that use every
    kernel and remainder.
    """
    scratch = Workspace()
    for rows, count, columns in combinations((1, 2, 5, 13), (1, 2, 3, 64, 67), (1, 16, 17, 49)):
        left = np.where(np.arange(rows)[:, np.newaxis] % 3, np.int8(127), np.int8(-128)) * np.ones(
            count, np.int8
        )
        right = np.where(np.arange(columns) % 2, np.int8(127), np.int8(-128)) * np.ones(
            (count, 1), np.int8
        )
        expected = left.astype(np.int64) @ right.astype(np.int64)
        if not np.array_equal(
            ways.multiply(ways.prepare_left(left, scratch), ways.right(right, scratch), scratch),
            expected,
        ):
            return False
    return True


def float_product(
    left: NDArray[np.float32], right: NDArray[np.float32], out: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Compute ``out = left @ right`` of finite numbers whose sums are finite.

    Warnings about invalid operations are off: BLAS may compute with unused lanes, and the processor
    reports those too.
    """
    with np.errstate(invalid="ignore"):
        return np.matmul(left, right, out=out)


def spans(count: int, longest: int) -> list[slice]:
    """Split ``count`` products into slices of at most ``longest``."""
    return [slice(first, min(first + longest, count)) for first in range(0, count, longest)]


def add_chunks(
    parts: Iterable[NDArray[Any]], shape: tuple[int, ...], scratch: Workspace
) -> NDArray[np.int32]:
    """Return the int32 sum of exact ``parts``, which may share one buffer.

    The caller ensures that it fits int32.
    """
    total: NDArray[np.int32] = scratch.array("int32 sums", shape, np.int32)
    total.fill(0)
    for part in parts:
        np.add(total, part.astype(np.int32, copy=False), out=total)
    return total


def _copy_to(values: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    np.copyto(target, values)
    return target


_INT32 = 1 << 31
_WORD, _FLOAT = np.dtype("<i4"), np.dtype("<f4")
LARGEST_SQUARES = 1e36
"""Limit for the sum of squared scales: below it, no accumulator times a scale exceeds float32,
and no scale is NaN.
"""
_FEW = 256
_MANY = 8192
_BUFFER = 512
"""Buffer size in elements for rows of ``_FEW`` to ``_MANY`` elements.

With a broadcast operand NumPy copies rows of up to ``_MANY`` elements through a buffer unless the
buffer is small. For rows shorter than ``_FEW`` the copy is faster.
"""


@dataclass(frozen=True, eq=False)
class Finish:
    """Conversion of a command's sums to results, as far as known before it runs.

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
        """Type of the result's elements."""
        return np.int8 if self.requantise else np.int32

    @cached_property
    def compilable(self) -> bool:
        """True if compiled kernels can convert the sums; they read whole words."""
        fit = self.partial is None and abs(self.zero_point) < 1 << 15 and self.address % 4 == 0
        return self.requantise and self.is_float and fit

    @cached_property
    def limits(self) -> Limits:
        """Limits in the form that compiled kernels need."""
        return (
            float(self.low - self.zero_point),
            float(self.high - self.zero_point),
            self.zero_point,
        )

    def load(
        self, machine: Machine, scratch: Workspace, initial: NDArray[np.int32] | None = None
    ) -> ResultConverter | None:
        """Return the converter for the channel records in the scratchpad; ``initial`` are the sums
        to start from.

        Returns None if the command must run on its semantics: sums could exceed int32, or scales
        are not finite or so large that a product could overflow float32.
        """
        records = np.ndarray(
            (self.channels, machine.arch.channel_record_bytes // 4),
            _WORD,
            machine.sram,
            self.address,
        )
        bias = records[:, 0]
        if scratch.compiled is not None and self.compilable:
            room = _INT32 - 1 - self.products * PRODUCT
            fit = scratch.compiled.records_fit(records, room, LARGEST_SQUARES)
            return ResultConverter(self, machine, scratch, records, bias, None) if fit else None
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
        """Write the results of exact ``sums`` (two axes, float32 or int32; overwritten) to the
        scratchpad.

        Args:
            sums: sums without the bias.
            address: byte address of the first row of results; rows are dense.
            step: bytes from one row of results to the next.
            first: number of the first channel in ``sums``.
            axis: axis of the channels in ``sums``.
            start: position of the first sum along the other axis.
        """
        finish = self.finish
        compiled = self.scratch.compiled
        memory = self.machine.sram
        if (
            compiled is None
            or sums.dtype != np.int32
            or not finish.compilable
            or (axis and step != sums.shape[1])
        ):
            strides = step, np.dtype(finish.dtype).itemsize
            self.write(
                sums,
                np.ndarray(sums.shape, finish.dtype, memory, address, strides),
                first,
                axis,
                start,
            )
            return
        records = self.records[first : first + sums.shape[axis]]
        if axis == 0:
            compiled.requantise_rows(
                sums, records, finish.limits, memory.view(np.int8), address, step
            )
        else:
            compiled.requantise_columns(sums, records, finish.limits, memory.view(np.int8), address)

    def write(
        self, sums: NDArray[Any], output: NDArray[Any], first: int, axis: int, start: int = 0
    ) -> None:
        """Write results as :meth:`store` does, to the array ``output`` of the same shape."""
        if _FEW <= sums.shape[1] <= _MANY and sums.shape[0] > 1:
            with np.errstate():
                np.setbufsize(_BUFFER)
                self._write(sums, output, first, axis, start)
        else:
            self._write(sums, output, first, axis, start)

    def _write(
        self, sums: NDArray[Any], output: NDArray[Any], first: int, axis: int, start: int
    ) -> None:
        channels = slice(first, first + sums.shape[axis])
        if sums.dtype == np.float32 and self.bias_float is not None:
            np.add(sums, _orient_column(self.bias_float[channels, None], axis), out=sums)
        else:
            sums = sums.astype(np.int32, copy=False)
            np.add(
                sums,
                self._initial(channels, axis, slice(start, start + sums.shape[1 - axis])),
                out=sums,
            )
        finish = self.finish
        if not finish.requantise:
            np.copyto(output, sums, casting="unsafe")
        elif finish.is_float:
            wide = (
                sums
                if sums.dtype == np.float32
                else self.scratch.array("wide", sums.shape, np.float32)
            )
            if wide is not sums:
                np.copyto(wide, sums, casting="unsafe")
            scale = _orient_column(_scales(self.records)[channels], axis)
            numerics.requantise_float32(
                wide, scale, finish.zero_point, finish.low, finish.high, out=output
            )
        else:
            self._store_fixed(sums.astype(np.int32, copy=False), output, channels, axis)

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


class Sums(NamedTuple):
    """Size of a command's result: output channels, results, and products per sum."""

    channels: int
    results: int
    products: int


Compute = Callable[[ResultConverter, Workspace], None]
"""Computes the exact sums of a command and stores their results."""


class Initial(NamedTuple):
    """Packed sums of an earlier command: their byte range, and a function that reads them."""

    place: Range
    read: Callable[[NDArray[np.uint8]], NDArray[np.int32]]


def prepare_sums(
    command: Command,
    arch: Arch,
    sums: Sums,
    output: Range,
    reads: Sequence[Range],
    compute: Compute,
    initial: Initial | None = None,
) -> Attempt | None:
    """Return an attempt that loads the converter of a command and runs ``compute`` with it.

    Args:
        command: the command to prepare.
        arch: the machine.
        sums: size of the result.
        output: byte range of the result.
        reads: ranges of the operands, except channel records and dense earlier sums.
        compute: computes the sums and stores the results.
        initial: earlier sums if they are packed.

    Returns: None if the command must run on its semantics: clamp limits in the wrong order, or
        results that overlap operands.
    """
    finish = _finish(command, arch, sums)
    if finish is None:
        return None
    if initial is not None:
        finish = replace(finish, partial=initial.place)
    reads = (*reads, (finish.address, finish.end))
    if not disjoint(
        output, reads if finish.partial in (None, output) else (*reads, finish.partial)
    ):
        return None
    end = highest(output, *reads, *(() if finish.partial is None else (finish.partial,)))

    def attempt(machine: Machine, scratch: Workspace) -> bool:
        if end > machine.sram.size:
            return False
        results = finish.load(
            machine, scratch, None if initial is None else initial.read(machine.sram)
        )
        if results is None:
            return False
        compute(results, scratch)
        return True

    return attempt


def _finish(command: Command, arch: Arch, sums: Sums) -> Finish | None:
    """Return how a convolution or matrix product converts its sums.

    Returns None if the command must run on its semantics: clamp limits in the wrong order.
    """
    low = lower_limit(command)
    high = command["EX_CLAMP_HIGH"]
    requantise = bool(command.fields["requantise"])
    if requantise and low > high:
        return None
    address = command["EX_CHANNEL_ADDRESS"]
    partial = None
    if command.fields.get(ACCUMULATE.name, 0):
        first = command[EX_PARTIAL_ADDRESS.name]
        partial = first, first + 4 * sums.results
    return Finish(
        command, sums.channels, sums.products, low, high, command["EX_OUTPUT_ZERO_POINT"],
        requantise,
        arch.numerics == "onnxruntime", address,
        address + sums.channels * arch.channel_record_bytes, partial,
    )  # fmt: skip
