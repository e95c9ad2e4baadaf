"""Rounding and saturation: the only copy in the project. Plain NumPy, one rule a function, every rule with its source.

Two families live here, chosen by ``Arch.numerics``:

- ``onnxruntime``: every function equals ONNX Runtime's integer operator to the bit (`requantise`, `add`,
  `average_taps`, `global_average`, `unary`, `softmax`). The tests compare with ONNX Runtime itself, zero tolerance.
  `normalise`, and `global_average` where it reduces along any axes, are definitions of their own: there ONNX Runtime
  sums in float32, in an order that depends on the processor.
- ``fixed``: LiteRT's reference kernels to the bit, wherever those define a rule (names ending in ``_fixed``, and
  `requantise_once`): integers only but for fully connected layers, whose accumulators meet a float64 factor.
  docs/numerics.md has every rule with its source; the tests compare with LiteRT itself, zero tolerance.

Conventions of every function:

- Tensors are stored as int8. A uint8 ONNX tensor is stored moved by 128, its zero point with it: ``x - zero`` stays
  what it was, so convolution, matrix product, requantising, unary functions and global average need nothing more.
- Addition, multiplication and average pooling round the value and the zero point together, in float32, so the move is
  not exact on ties. They take ``offset`` (0 for int8, 128 for uint8), put it back, and compute with the
  **original** zero points (0..255 for uint8). ``low`` and ``high`` always bound the **stored** int8 result.
- ``float32`` in a formula means: rounded to float32 there, to nearest, ties to even. ``rint`` rounds ties to even.

Rules of ONNX Runtime (1.31, CPU) that its documentation does not state, found by measurement:

- `QLinearConv`, `QLinearMatMul`, `QGemm` multiply by ``float32(float32(xs * ws) / ys)``; the zero point is added after
  rounding, as an integer.
- `QLinearAdd` is two fused multiply-adds on a constant that already holds the zero points, which are so rounded with
  the value.
  The constant treats the operands differently: where the first one has a single element along the innermost dimension
  in which the operands differ from 1 (or both have one element altogether), ONNX Runtime swaps them.
- `QLinearAveragePool` sums dequantised float32 values row by row and rounds ``v + zero`` together. With
  ``count_include_pad`` it always divides by KH * KW, with ``ceil_mode`` too, where ONNX and the float operator count
  only the taps inside the padded input: a window that sticks out at the end differs. It refuses the attribute
  ``dilations``, even [1, 1]: such a model (DequantizeLinear, AveragePool, QuantizeLinear) fails to load at EXTENDED.
- `QLinearGlobalAveragePool` sums integers and multiplies by ``float32(xs / float32(ys * count))``. So does
  `QLinearAveragePool` where the window is the whole plane and there is no padding. `ReduceMean` over
  the plane is not fused: it stays in float.
- `QLinearSoftmax` sums float32 exponentials in order, scaled to near the largest float32; it multiplies by
  floor(1 / scale) before it divides.
- `QLinearLeakyRelu` is a table of 256 entries of ``rint(float32(g(float32((x - zx) * xs)) / ys)) + zy``; `Relu` and
  `Abs` alone between DequantizeLinear and QuantizeLinear stay in float and give the same formula. `Clip` alone
  is the same with the identity for g (``leaky_relu`` with alpha 1), ``low`` and ``high`` being the quantised limits,
  clip(rint(float32(limit / ys)) + zy); DequantizeLinear directly before QuantizeLinear is that without limits.
- `Gemm` becomes `QGemm` only with alpha = beta = 1; otherwise it stays in float.
"""

from isa.numerics.addition import AddFixedConstants as AddFixedConstants
from isa.numerics.addition import add as add
from isa.numerics.addition import add_constants as add_constants
from isa.numerics.addition import add_fixed as add_fixed
from isa.numerics.addition import add_fixed_constants as add_fixed_constants
from isa.numerics.addition import add_table as add_table
from isa.numerics.addition import divide as divide
from isa.numerics.addition import divide_fixed as divide_fixed
from isa.numerics.addition import multiply as multiply
from isa.numerics.addition import multiply_fixed as multiply_fixed
from isa.numerics.addition import squared_difference_constants as squared_difference_constants
from isa.numerics.addition import squared_difference_fixed as squared_difference_fixed
from isa.numerics.addition import subtract as subtract
from isa.numerics.pooling import average_fixed as average_fixed
from isa.numerics.pooling import average_taps as average_taps
from isa.numerics.pooling import global_average as global_average
from isa.numerics.pooling import global_average_scale as global_average_scale
from isa.numerics.pooling import interpolate as interpolate
from isa.numerics.pooling import interpolate_fixed as interpolate_fixed
from isa.numerics.pooling import mean_multiplier as mean_multiplier
from isa.numerics.pooling import resize_coordinates as resize_coordinates
from isa.numerics.requantising import LARGEST_SHIFT as LARGEST_SHIFT
from isa.numerics.requantising import accumulator_bound as accumulator_bound
from isa.numerics.requantising import activation_steps as activation_steps
from isa.numerics.requantising import add_int32 as add_int32
from isa.numerics.requantising import bits_float32 as bits_float32
from isa.numerics.requantising import check_int32 as check_int32
from isa.numerics.requantising import float32_bits as float32_bits
from isa.numerics.requantising import fused_multiply_add as fused_multiply_add
from isa.numerics.requantising import multiply_by_quantised_multiplier as multiply_by_quantised_multiplier
from isa.numerics.requantising import product_multiplier as product_multiplier
from isa.numerics.requantising import quantise_multiplier as quantise_multiplier
from isa.numerics.requantising import quantise_multipliers as quantise_multipliers
from isa.numerics.requantising import real_multiplier as real_multiplier
from isa.numerics.requantising import requantise as requantise
from isa.numerics.requantising import requantise_fixed as requantise_fixed
from isa.numerics.requantising import requantise_float32 as requantise_float32
from isa.numerics.requantising import requantise_once as requantise_once
from isa.numerics.requantising import requantise_scale as requantise_scale
from isa.numerics.requantising import rounded_multiplier as rounded_multiplier
from isa.numerics.requantising import rounding_divide_by_power_of_two as rounding_divide_by_power_of_two
from isa.numerics.requantising import saturate as saturate
from isa.numerics.requantising import saturate_int8 as saturate_int8
from isa.numerics.requantising import (
    saturating_rounding_doubling_high_multiply as saturating_rounding_doubling_high_multiply,
)
from isa.numerics.requantising import shift_int32 as shift_int32
from isa.numerics.requantising import steps as steps
from isa.numerics.rows import normalisation_scales as normalisation_scales
from isa.numerics.rows import normalise as normalise
from isa.numerics.rows import normalise_fixed as normalise_fixed
from isa.numerics.rows import softmax as softmax
from isa.numerics.rows import softmax_factor as softmax_factor
from isa.numerics.rows import softmax_factor_fixed as softmax_factor_fixed
from isa.numerics.rows import softmax_fixed as softmax_fixed
from isa.numerics.rows import softmax_table as softmax_table
from isa.numerics.rows import softmax_table_fixed as softmax_table_fixed
from isa.numerics.unary import unary as unary
from isa.numerics.unary import unary_fixed as unary_fixed
