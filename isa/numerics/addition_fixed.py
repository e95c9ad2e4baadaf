"""Addition of two quantised int8 tensors with integers only (TensorFlow Lite's rule)."""

from dataclasses import dataclass

import numpy as np

from isa.errors import InputError
from isa.numerics.fixed import multiply_by_quantised_multiplier, quantise_multiplier
from isa.numerics.floats import checked_scale
from isa.numerics.integers import INT8_HIGH, INT8_LOW, Int8Array, IntegerArray, saturate_int8

LEFT_SHIFT = 20  # TensorFlow Lite's headroom for int8: |x - zero| < 2**8, so the operands stay below 2**28


@dataclass(frozen=True)
class AddFixedConstants:
    """The six integers of `add_fixed`: a 31-bit multiplier and a shift for each operand and for the result."""

    multiplier_a: int
    shift_a: int
    multiplier_b: int
    shift_b: int
    multiplier_y: int
    shift_y: int


def add_fixed_constants(scale_a: float, scale_b: float, scale_y: float) -> AddFixedConstants:
    """Return the constants of `add_fixed`: factors sa/t, sb/t, t/(2**20 * sy), t = 2 * max(sa, sb), in float64.

    Source: TensorFlow Lite ``kernels/add.cc``. Raises InputError for a bad scale, or if the output scale is so small
    that the last factor is not below 1.
    """
    a, b, y = (
        float(checked_scale(scale, f"scale of {name}"))
        for scale, name in ((scale_a, "a"), (scale_b, "b"), (scale_y, "y"))
    )
    twice_largest = 2.0 * max(a, b)
    result = twice_largest / (2.0**LEFT_SHIFT * y)
    if result >= 1.0:
        raise InputError(f"output scale {y} is too small for input scales {a} and {b}; quantise the tensor again")
    return AddFixedConstants(
        *quantise_multiplier(a / twice_largest), *quantise_multiplier(b / twice_largest), *quantise_multiplier(result)
    )


def add_fixed(
    a: IntegerArray,
    b: IntegerArray,
    constants: AddFixedConstants,
    zero_a: int,
    zero_b: int,
    zero_y: int,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> Int8Array:
    """Return int8 ``clip(M_y(M_a((a - za) << 20) + M_b((b - zb) << 20)) + zy, low, high)``.

    M_a, M_b, M_y: the quantised multipliers of `add_fixed_constants`.
    a, b: int8 (broadcast); zero points are those of the stored int8 tensors: moving all by 128 changes nothing here.
    Source: TensorFlow Lite ``reference/integer_ops/add.h``.
    """
    scaled_a = multiply_by_quantised_multiplier(
        (a.astype(np.int64) - zero_a) << LEFT_SHIFT, constants.multiplier_a, constants.shift_a
    )
    scaled_b = multiply_by_quantised_multiplier(
        (b.astype(np.int64) - zero_b) << LEFT_SHIFT, constants.multiplier_b, constants.shift_b
    )
    total = multiply_by_quantised_multiplier(scaled_a + scaled_b, constants.multiplier_y, constants.shift_y)
    return saturate_int8(total + zero_y, low, high)
