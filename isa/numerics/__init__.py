"""Rounding and saturation rules of quantised arithmetic in NumPy, each with its source.

``Arch.numerics`` chooses between two families:

- ``onnxruntime``: every function equals ONNX Runtime's integer operator bit for bit (`requantise`,
  `add`, `average_taps`, `global_average`, `unary`, `softmax`). The tests compare with ONNX Runtime
  itself without tolerance. `normalise`, and `global_average` over arbitrary axes, have definitions
  of this project, because ONNX Runtime sums them in float32 in a processor-dependent order.
- ``fixed``: LiteRT's reference kernels bit for bit, wherever they define a rule (names ending in
  ``_fixed``, and `requantise_once`). They use integers only, except for fully connected layers,
  whose accumulators are multiplied by a float64 factor. docs/numerics.md gives every rule with its
  source; the tests compare with LiteRT itself without tolerance.

Conventions of all functions:

- Tensors are stored as int8. A uint8 ONNX tensor is stored minus 128, and its zero point too.
  ``x - zero`` does not change, so convolution, matrix product, requantisation, unary functions and
  global average need no other treatment.
- Addition, multiplication and average pooling round the value and the zero point together in
  float32, so the shift by 128 is not exact on ties. These functions take ``offset`` (0 for int8,
  128 for uint8), add it back, and compute with the **original** zero points (0..255 for uint8).
  ``low`` and ``high`` always bound the **stored** int8 result.
- ``float32`` in a formula means rounding to float32 at that point, to nearest, ties to even.
  ``rint`` rounds ties to even.

Rules of ONNX Runtime (1.31, CPU) that its documentation omits, found by measurement:

- `QLinearConv`, `QLinearMatMul`, `QGemm` multiply by ``float32(float32(xs * ws) / ys)``; the zero
  point is added after rounding, as an integer.
- `QLinearAdd` is two fused multiply-adds on a constant that already contains the zero points, which
  are therefore rounded together with the value. The constant treats the operands differently. ONNX
  Runtime swaps them if the first operand has a single element along the innermost dimension in
  which the operands differ from 1, or if both have a single element altogether.
- `QLinearAveragePool` sums dequantised float32 values row by row and rounds ``v + zero`` together.
  With ``count_include_pad`` it always divides by KH * KW, also with ``ceil_mode``. ONNX and the
  float operator count only the taps inside the padded input, so a window that extends beyond the
  end differs. The operator rejects the attribute ``dilations``, even [1, 1]: such a model
  (DequantizeLinear, AveragePool, QuantizeLinear) fails to load at EXTENDED.
- `QLinearGlobalAveragePool` sums integers and multiplies by ``float32(xs / float32(ys * count))``.
  So does `QLinearAveragePool` if the window is the whole plane and there is no padding.
  `ReduceMean` over the plane is not fused and stays in float.
- `QLinearSoftmax` sums float32 exponentials in order, scaled to near the largest float32; it
  multiplies by floor(1 / scale) before it divides.
- `QLinearLeakyRelu` is a table of 256 entries of ``rint(float32(g(float32((x - zx) * xs)) / ys)) +
  zy``. `Relu` and `Abs` alone between DequantizeLinear and QuantizeLinear stay in float and give
  the same formula. `Clip` alone is the same with the identity for g (``leaky_relu`` with alpha 1),
  and with the quantised limits clip(rint(float32(limit / ys)) + zy) for ``low`` and ``high``.
  DequantizeLinear directly before QuantizeLinear is the same without limits.
- `Gemm` becomes `QGemm` only with alpha = beta = 1; otherwise it stays in float.
"""

from isa.numerics.addition import (
    AddFixedConstants,
    add,
    add_constants,
    add_fixed,
    add_fixed_constants,
    compute_squared_difference_constants,
    divide,
    divide_fixed,
    multiply,
    multiply_fixed,
    subtract,
    subtract_squared_fixed,
)
from isa.numerics.pooling import (
    average_fixed,
    average_taps,
    global_average,
    global_average_scale,
    interpolate,
    interpolate_fixed,
    mean_multiplier,
    resize_coordinates,
)
from isa.numerics.requantising import (
    LARGEST_SHIFT,
    accumulator_bound,
    activation_steps,
    add_int32,
    check_int32,
    compute_rounded_multiplier,
    float32_bits,
    multiply_add_once_rounded,
    multiply_by_quantised_multiplier,
    multiply_high_doubled,
    product_multiplier,
    quantise_multiplier,
    quantise_multipliers,
    real_multiplier,
    requantise,
    requantise_fixed,
    requantise_float32,
    requantise_once,
    requantise_scale,
    rounding_divide_by_power_of_two,
    saturate,
    saturate_int8,
    shift_int32,
    steps,
)
from isa.numerics.rows import (
    normalisation_scales,
    normalise,
    normalise_fixed,
    softmax,
    softmax_factor,
    softmax_factor_fixed,
    softmax_fixed,
    softmax_table,
    softmax_table_fixed,
)
from isa.numerics.unary import unary, unary_fixed

__all__ = [
    "LARGEST_SHIFT",
    "AddFixedConstants",
    "accumulator_bound",
    "activation_steps",
    "add",
    "add_constants",
    "add_fixed",
    "add_fixed_constants",
    "add_int32",
    "average_fixed",
    "average_taps",
    "check_int32",
    "compute_rounded_multiplier",
    "compute_squared_difference_constants",
    "divide",
    "divide_fixed",
    "float32_bits",
    "global_average",
    "global_average_scale",
    "interpolate",
    "interpolate_fixed",
    "mean_multiplier",
    "multiply",
    "multiply_add_once_rounded",
    "multiply_by_quantised_multiplier",
    "multiply_fixed",
    "multiply_high_doubled",
    "normalisation_scales",
    "normalise",
    "normalise_fixed",
    "product_multiplier",
    "quantise_multiplier",
    "quantise_multipliers",
    "real_multiplier",
    "requantise",
    "requantise_fixed",
    "requantise_float32",
    "requantise_once",
    "requantise_scale",
    "resize_coordinates",
    "rounding_divide_by_power_of_two",
    "saturate",
    "saturate_int8",
    "shift_int32",
    "softmax",
    "softmax_factor",
    "softmax_factor_fixed",
    "softmax_fixed",
    "softmax_table",
    "softmax_table_fixed",
    "steps",
    "subtract",
    "subtract_squared_fixed",
    "unary",
    "unary_fixed",
]
