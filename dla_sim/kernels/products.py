"""Exact sums of int8 products, in one of two ways that give the same integers.

- :class:`IntegerProducts`: ONNX Runtime's ``MatMulInteger``, integer arithmetic alone. For all but small products,
  where ONNX Runtime is installed and has been seen to be exact on this processor.
- :class:`FloatProducts`: float32 by NumPy's BLAS. Sums of int8 products are exact while there are at most 1024 of them
  (2**24 / 2**14), in any order: so neither the order of summation nor the number of threads can change a bit.

Longer sums are cut and added up in int32.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Scratch

EXACT = 1 << 24
"""Float32 holds every integer up to this magnitude."""
PRODUCT = 1 << 14
"""Largest magnitude of a product of two int8."""
CHUNK = EXACT // PRODUCT
"""Products whose float32 sum is exact: 1024. In any order, for every partial sum is an integer of at most 2**24."""
_NARROW = 64, 128
_COLUMNS = 448
"""For at most so many rows and products BLAS is up to 1.4 times faster on so many columns at a time."""
_SMALL = 1 << 16
"""Multiply-accumulates up to which a call of ONNX Runtime costs more than it saves."""
_FLIP = 128
"""An int8 plus this is a uint8: 128 is its zero point."""
_RESULT = ["y"]


class FloatProducts:
    """Products of float32 copies of int8 matrices. ``longest`` products a sum are exact."""

    longest = CHUNK
    dtype = np.float32

    def left(self, values: NDArray[np.int8], scratch: Scratch) -> NDArray[Any]:
        """A left operand, as :meth:`multiply` wants it; valid until the next one."""
        return _copied(values, scratch.array("left", values.shape, np.float32))

    def right(self, values: NDArray[np.int8], scratch: Scratch) -> NDArray[Any]:
        """A right operand, as :meth:`multiply` wants it; valid until the next one."""
        return _copied(values, scratch.array("columns", values.shape, np.float32))

    def multiply(self, left: NDArray[Any], right: NDArray[Any], scratch: Scratch) -> NDArray[Any]:
        """The float32 (M, N) sums of (M, K) by (K, N), K at most ``longest``; valid until the next."""
        out: NDArray[np.float32] = scratch.array("sums", (left.shape[0], right.shape[1]), np.float32)
        rows, products = left.shape
        columns = right.shape[1]
        if rows > _NARROW[0] or products > _NARROW[1] or columns < 2 * _COLUMNS:
            return float_product(left, right, out)
        for first in range(0, columns, _COLUMNS):
            last = first + _COLUMNS
            float_product(left, right[:, first:last], out[:, first:last])
        return out


class IntegerProducts:
    """Products of int8 matrices by ``session``, ``MatMulInteger`` of uint8 by int8 or, if ``flipped``, uint8 by uint8.

    An int8 goes in as uint8 by adding 128, its zero point. No sum inside leaves int32 while there are at most
    ``longest`` products: the sum of raw products and the three corrections by zero points are at most 255 * 128 a
    product each.
    """

    longest = 1 << 14
    dtype = np.int8

    def __init__(self, session: Any, flipped: bool) -> None:
        self._session = session
        self._flipped = flipped

    @property
    def kind(self) -> str:
        """The type of right operands."""
        return "uint8" if self._flipped else "int8"

    def left(self, values: NDArray[np.int8], scratch: Scratch) -> NDArray[Any]:
        """A left operand, as :meth:`multiply` wants it; valid until the next one."""
        flipped: NDArray[np.uint8] = scratch.array("left", values.shape, np.uint8)
        return np.bitwise_xor(values.view(np.uint8), _FLIP, out=flipped)

    def right(self, values: NDArray[np.int8], scratch: Scratch) -> NDArray[Any]:
        """A right operand, as :meth:`multiply` wants it: ``values`` themselves, where they are dense."""
        if values.flags.c_contiguous:
            return values
        return _copied(values, scratch.array("columns", values.shape, np.int8))

    def multiply(
        self, left: NDArray[Any], right: NDArray[Any], scratch: Scratch, zero_points: tuple[int, int] = (0, 0)
    ) -> NDArray[Any]:
        """The int32 (..., M, N) sums of (..., M, K) by (..., K, N), less their int8 ``zero_points``; a new array."""
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
_FLOAT = FloatProducts()


def products(macs: int) -> Products:
    """The faster way for a product of so many multiply-accumulates."""
    return (integer_products() if macs > _SMALL else None) or _FLOAT


@cache
def integer_products() -> IntegerProducts | None:
    """ONNX Runtime's integer product; None where it is not installed or not exact.

    Kernels for uint8 by int8 without the processor's instructions for that (AVX2) add pairs of products in 16 bits,
    which saturates; those for uint8 by uint8 never do, but take twice as long on others.
    """
    for kind in ("int8", "uint8"):
        try:
            found = IntegerProducts(session(kind), kind == "uint8")
        except ImportError:
            return None
        if _exact(found):
            return found
    return None


def session(right: str) -> Any:
    """ONNX Runtime's session of one ``MatMulInteger`` of uint8 ``a`` and ``b`` of type ``right``, of any shapes.

    Their zero points ``za`` and ``zb``, if they are not given, are those of int8 that are 0.
    """
    import onnxruntime
    from onnx import TensorProto, helper

    kinds = {"a": TensorProto.UINT8, "b": {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}[right]}
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
    options.log_severity_level = 3  # of inputs with defaults it would warn
    options.enable_cpu_mem_arena = False  # it would keep room for the largest sums of all
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _exact(ways: IntegerProducts) -> bool:
    """Whether products of the most extreme values are right, in shapes that take every kind of kernel and remainder."""
    scratch = Scratch()
    for rows, count, columns in combinations((1, 2, 5, 13), (1, 2, 3, 64, 67), (1, 16, 17, 49)):
        left = np.where(np.arange(rows)[:, np.newaxis] % 3, np.int8(127), np.int8(-128)) * np.ones(count, np.int8)
        right = np.where(np.arange(columns) % 2, np.int8(127), np.int8(-128)) * np.ones((count, 1), np.int8)
        expected = left.astype(np.int64) @ right.astype(np.int64)
        if not np.array_equal(ways.multiply(ways.left(left, scratch), ways.right(right, scratch), scratch), expected):
            return False
    return True


def float_product(
    left: NDArray[np.float32], right: NDArray[np.float32], out: NDArray[np.float32]
) -> NDArray[np.float32]:
    """``out = left @ right`` of finite numbers whose sums are finite.

    Nothing of that is an invalid operation, but lanes that BLAS does not use may be: the processor reports those, too.
    """
    with np.errstate(invalid="ignore"):
        return np.matmul(left, right, out=out)


def spans(count: int, longest: int) -> list[slice]:
    """``count`` products cut into sums of at most ``longest``."""
    return [slice(first, min(first + longest, count)) for first in range(0, count, longest)]


def add_chunks(parts: Iterable[NDArray[Any]], shape: tuple[int, ...], scratch: Scratch) -> NDArray[np.int32]:
    """int32 sum of exact ``parts``, which may share one buffer; the caller knows that it fits int32."""
    total: NDArray[np.int32] = scratch.array("int32 sums", shape, np.int32)
    total.fill(0)
    for part in parts:
        np.add(total, part.astype(np.int32, copy=False), out=total)
    return total


def _copied(values: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    np.copyto(target, values)
    return target
