"""Exact sums of int8 products, their conversion to results, and the kernels of matrix products.

The conversion adds the bias, requantises or keeps int32, and stores.

Two implementations give the same integers.

- :class:`IntegerProducts`: ONNX Runtime's ``MatMulInteger``, integer arithmetic only. Used for all
  but small products, if ONNX Runtime passes the exactness test on this processor.
- :class:`FloatProducts`: float32 by NumPy's BLAS. A sum of at most 1024 int8 products (2**24 /
  2**14) is exact in any order, so neither the order of summation nor the number of threads can
  change a bit.

Longer sums are split, and the parts are added in int32.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product as combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace, disjoint, highest
from dla_sim.kernels.results import EXACT, LARGEST_SQUARES, PRODUCT, Finish, ResultConverter
from isa import numerics
from isa.access import Range
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.matmul import requantise_sums, second_shape, shape
from isa.ops.windows import ACCUMULATE, EX_PARTIAL_ADDRESS, element_bytes, lower_limit
from isa.registers import float_value

CHUNK = EXACT // PRODUCT
"""Number of products whose float32 sum is exact in any order.

Every partial sum is an integer of at most 2**24.
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
        """Return a matrix in the form that :meth:`multiply` needs as its left operand.

        Valid until the next call.
        """
        return _copy_to(values, scratch.array("left", values.shape, np.float32))

    def right(self, values: NDArray[np.int8], scratch: Workspace) -> NDArray[Any]:
        """Return a matrix in the form that :meth:`multiply` needs as its right operand.

        Valid until the next call.
        """
        return _copy_to(values, scratch.array("columns", values.shape, np.float32))

    def prepare_right(self, values: NDArray[np.int8]) -> NDArray[Any]:
        """Return a right operand for :meth:`multiply` in a form that stays valid."""
        return values.astype(np.float32)

    def multiply(self, left: NDArray[Any], right: NDArray[Any], scratch: Workspace) -> NDArray[Any]:
        """Return the float32 sums (M, N) of (M, K) by (K, N), valid until the next call.

        K is at most ``longest``.
        """
        out: NDArray[np.float32] = scratch.array(
            "sums", (left.shape[0], right.shape[1]), np.float32
        )
        return float_product(left, right, out)


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
        """Element type of the right operands of matrix products."""
        return "uint8" if self._flipped else "int8"

    def prepare_left(self, values: NDArray[np.int8], scratch: Workspace) -> NDArray[Any]:
        """Return a matrix in the form that :meth:`multiply` needs as its left operand.

        Valid until the next call.
        """
        flipped: NDArray[np.uint8] = scratch.array("left", values.shape, np.uint8)
        return np.bitwise_xor(values.view(np.uint8), _FLIP, out=flipped)

    def right(self, values: NDArray[np.int8], scratch: Workspace) -> NDArray[Any]:
        """Return a matrix in the form that :meth:`multiply` needs as its right operand.

        It is ``values`` itself if these are dense.
        """
        if values.flags.c_contiguous:
            return values
        return _copy_to(values, scratch.array("columns", values.shape, np.int8))

    def prepare_right(self, values: NDArray[np.int8]) -> NDArray[Any]:
        """Return a right operand for :meth:`multiply` in a form that stays valid."""
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
    """Return the faster way to multiply int8 matrices with ``macs`` multiply-accumulates."""
    return (integer_products() if macs > _SMALL else None) or _BLAS


@cache
def integer_products() -> IntegerProducts | None:
    """Return int8 matrix products by ONNX Runtime; None if they are not exact.

    ONNX Runtime's kernels for uint8 by int8 add pairs of products in 16 bits on processors that
    only have AVX2, and this addition saturates. Kernels for uint8 by uint8 never saturate, but take
    twice as long on other processors.
    """
    for kind in ("int8", "uint8"):
        found = IntegerProducts(session(kind), kind == "uint8")
        if is_exact(found):
            return found
    return None


def session(right: str) -> Any:
    """Return ONNX Runtime's session of one ``MatMulInteger`` for matrices of any shapes.

    Input ``a`` is uint8, and ``b`` has the type ``right``. The inputs ``za`` and ``zb`` are zero
    points; their defaults represent an int8 zero.
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
    """Return True if a matrix product of the most extreme int8 values is exact.

    The shapes that it tests use every kernel and remainder.
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
    """Split the range of ``count`` products into slices of at most ``longest``."""
    return [slice(first, min(first + longest, count)) for first in range(0, count, longest)]


def add_chunks(
    parts: Iterable[NDArray[Any]], shape: tuple[int, ...], scratch: Workspace
) -> NDArray[np.int32]:
    """Return the int32 sum of the partial sums ``parts``, which may share one buffer.

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


class Sums(NamedTuple):
    """Sizes of a product command: output channels, results, and products per sum."""

    channels: int
    results: int
    products: int


Compute = Callable[[ResultConverter, Workspace], None]
"""Computes the exact sums of a command and stores their results."""


class Initial(NamedTuple):
    """Packed sums of an earlier command, as their byte range and a function that reads them."""

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
    """Prepare a kernel that runs ``compute`` with the result converter of a command.

    Args:
        command: the command to prepare.
        arch: the machine.
        sums: size of the result.
        output: byte range of the result.
        reads: ranges of the operands, except channel records and dense earlier sums.
        compute: computes the sums and stores the results.
        initial: earlier sums if they are packed.

    Returns: None if the kernel cannot execute the command: clamp limits in the wrong order, or
        results that overlap operands.
    """
    finish = finish_of(command, arch, sums)
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
    last: tuple[Machine, Workspace, bytes, ResultConverter | None] | None = None

    def attempt(machine: Machine, scratch: Workspace) -> bool:
        nonlocal last
        if end > machine.sram.size:
            return False
        if finish.partial is None:
            stored = machine.sram[finish.address : finish.end].tobytes()
            if last is None or last[0] is not machine or last[1:3] != (scratch, stored):
                last = machine, scratch, stored, finish.load(machine, scratch)
            results = last[3]
        else:
            results = finish.load(
                machine, scratch, None if initial is None else initial.read(machine.sram)
            )
        if results is None:
            return False
        compute(results, scratch)
        return True

    return attempt


def finish_of(command: Command, arch: Arch, sums: Sums) -> Finish | None:
    """Return how a convolution or matrix product converts its sums.

    Returns None if no kernel can execute the command: clamp limits in the wrong order.
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


def matrix_product(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_MAT_MUL``; None if the kernel cannot execute the command."""
    m, k, n = shape(command)
    if not m * k * n:
        return None
    output, left, right = (command[f"EX_{name}_ADDRESS"] for name in ("OUTPUT", "INPUT", "OPERAND"))
    result = output, output + m * n * element_bytes(command)
    run = _MatrixProduct((m, k, n), left, right, output, products(m * k * n)).run
    return prepare_sums(
        command,
        arch,
        Sums(n, m * n, k),
        result,
        ((left, left + m * k), (right, right + k * n)),
        run,
    )


@dataclass(frozen=True, eq=False)
class _MatrixProduct:
    """Matrix product with the shape (M, K, N).

    ``left``, ``right`` and ``output`` are addresses; ``way`` is the implementation of the product.
    """

    shape: tuple[int, int, int]
    left: int
    right: int
    output: int
    way: Products

    def run(self, results: ResultConverter, scratch: Workspace) -> None:
        m, k, n = self.shape
        sram = results.machine.sram
        left = np.ndarray((m, k), np.int8, sram, self.left)
        right = np.ndarray((k, n), np.int8, sram, self.right)
        parts = (
            self.way.multiply(
                self.way.prepare_left(left[:, some], scratch),
                self.way.right(right[some], scratch),
                scratch,
            )
            for some in spans(k, self.way.longest)
        )
        sums = next(parts) if k <= self.way.longest else add_chunks(parts, (m, n), scratch)
        results.store(sums, self.output, n * np.dtype(results.finish.dtype).itemsize, 0, 1)


def dynamic_product(command: Command, arch: Arch) -> Attempt | None:
    """Prepare a kernel for ``OP_DYN_MAT_MUL``; None if the kernel cannot execute the command."""
    m, k, n = shape(command)
    largest = _largest(command["EX_INPUT_ZERO_POINT"]) * _largest(command["EX_OPERAND_ZERO_POINT"])
    if not m * k * n or largest > EXACT or largest * k >= 1 << 31:
        return None
    if command["EX_CLAMP_LOW"] > command["EX_CLAMP_HIGH"]:
        return None
    output, left, right = (command[f"EX_{name}_ADDRESS"] for name in ("OUTPUT", "INPUT", "OPERAND"))
    result = (output, output + m * n * element_bytes(command))
    reads = ((left, left + m * k), (right, right + k * n))
    scale = np.array(float_value(command["EX_SCALE_A"]), np.float32)
    is_float = arch.numerics == "onnxruntime"
    if not disjoint(result, reads) or (is_float and not float(scale) ** 2 <= LARGEST_SQUARES):
        return None
    end, way = highest(result, *reads), products(m * k * n)

    def attempt(machine: Machine, scratch: Workspace) -> bool:
        if end > machine.sram.size:
            return False
        sums = _dynamic_sums(command, machine, scratch, way)
        out = np.ndarray(
            (m, n), np.int8 if command.fields["requantise"] else np.int32, machine.sram, output
        )
        if not command.fields["requantise"]:
            np.copyto(out, sums, casting="unsafe")
        elif is_float:
            limits = (
                command["EX_OUTPUT_ZERO_POINT"],
                command["EX_CLAMP_LOW"],
                command["EX_CLAMP_HIGH"],
            )
            numerics.requantise_float32(
                sums.astype(np.float32, copy=False), scale, *limits, out=out
            )
        else:
            out[...] = requantise_sums(sums.astype(np.int64), command, arch)
        return True

    return attempt


def _largest(zero_point: int) -> int:
    """Return the largest magnitude of an int8 minus its zero point."""
    return max(abs(-128 - zero_point), abs(127 - zero_point))


def _dynamic_sums(
    command: Command, machine: Machine, scratch: Workspace, way: Products
) -> NDArray[Any]:
    m, k, n = shape(command)
    left = np.ndarray((m, k), np.int8, machine.sram, command["EX_INPUT_ADDRESS"])
    right = np.ndarray(second_shape(command), np.int8, machine.sram, command["EX_OPERAND_ADDRESS"])
    zero_points = command["EX_INPUT_ZERO_POINT"], command["EX_OPERAND_ZERO_POINT"]
    right = right.T if command.fields["transposed"] else right
    if (
        isinstance(way, IntegerProducts)
        and k <= way.longest
        and all(-128 <= zero <= 127 for zero in zero_points)
    ):
        return way.multiply(
            way.prepare_left(left, scratch), way.right(right, scratch), scratch, zero_points
        )
    first = scratch.array("left", (m, k), np.float32)
    second = scratch.array("columns", (k, n), np.float32)
    np.subtract(left, np.float32(zero_points[0]), out=first)
    np.subtract(right, np.float32(zero_points[1]), out=second)
    sums: NDArray[Any] = scratch.array("sums", (m, n), np.float32)
    chunk = EXACT // (_largest(zero_points[0]) * _largest(zero_points[1]))
    if k <= chunk:
        return float_product(first, second, sums)
    parts = (float_product(first[:, some], second[some], sums) for some in spans(k, chunk))
    return add_chunks(parts, sums.shape, scratch)
