"""Scaling registers of pools, additions and unary functions under both numerics.

``onnxruntime`` wants float32 bits, ``fixed`` 31-bit multipliers and shifts in the same registers (``isa.numerics``).
"""

from __future__ import annotations

from byoc.layers.nest import pool_kernel
from byoc.operations import AddOperation, PoolOperation, UnaryOperation
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits


def pool_registers(operation: PoolOperation, arch: Arch) -> dict[str, int]:
    """Clamp, zero points and scales of a pool; a maximum has no scales."""
    registers = {"EX_CLAMP_LOW": operation.low, "EX_CLAMP_HIGH": operation.high}
    if operation.mode == "max":
        return registers
    # Only ONNX Runtime's window average computes with the zero points of the model; the others take the stored ones.
    original = operation.mode == "average" and arch.numerics == "onnxruntime"
    moved = 0 if original else operation.offset
    registers |= {
        "EX_INPUT_ZERO_POINT": operation.input_zero_point - moved,
        "EX_OUTPUT_ZERO_POINT": operation.output_zero_point - moved,
        "EX_OFFSET": operation.offset - moved,
    }
    if arch.numerics == "fixed":
        ratio = operation.input_scale / operation.output_scale
        registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(ratio)
    elif operation.mode == "average":
        registers["EX_SCALE_A"] = float32_bits(operation.input_scale)
        registers["EX_SCALE_Y"] = float32_bits(operation.output_scale)
    else:
        height, width = pool_kernel(operation)
        scale = numerics.global_average_scale(operation.input_scale, operation.output_scale, height * width)
        registers["EX_SCALE_A"] = float32_bits(scale)
    return registers


def add_registers(operation: AddOperation, arch: Arch) -> dict[str, int]:
    """Clamp and constants of a rescaling addition."""
    registers = {"EX_CLAMP_LOW": operation.low, "EX_CLAMP_HIGH": operation.high}
    (scale_a, scale_b, scale_y), (zero_a, zero_b, zero_y) = operation.scales, operation.zero_points
    if arch.numerics == "onnxruntime":
        constants = numerics.add_constants(scale_a, zero_a, scale_b, zero_b, scale_y, zero_y)
        bits = [float32_bits(constant) for constant in constants]
        return {
            **registers,
            "EX_OFFSET": operation.offset,
            "EX_SCALE_A": bits[0],
            "EX_SCALE_B": bits[1],
            "EX_SCALE_Y": bits[2],
        }
    fixed = numerics.add_fixed_constants(scale_a, scale_b, scale_y)
    return {
        **registers,
        "EX_SCALE_A": fixed.multiplier_a,
        "EX_SHIFT_A": fixed.shift_a,
        "EX_SCALE_B": fixed.multiplier_b,
        "EX_SHIFT_B": fixed.shift_b,
        "EX_SCALE_Y": fixed.multiplier_y,
        "EX_SHIFT_Y": fixed.shift_y,
        "EX_INPUT_ZERO_POINT": zero_a - operation.offset,
        "EX_OPERAND_ZERO_POINT": zero_b - operation.offset,
        "EX_OUTPUT_ZERO_POINT": zero_y - operation.offset,
    }


def unary_registers(operation: UnaryOperation, arch: Arch) -> dict[str, int]:
    """Clamp, zero points and scales of a function of one value."""
    registers = {
        "EX_CLAMP_LOW": operation.low,
        "EX_CLAMP_HIGH": operation.high,
        "EX_INPUT_ZERO_POINT": operation.input_zero_point,
        "EX_OUTPUT_ZERO_POINT": operation.output_zero_point,
    }
    if arch.numerics == "onnxruntime":
        registers["EX_SCALE_A"] = float32_bits(operation.input_scale)
        registers["EX_SCALE_B"] = float32_bits(operation.alpha)
        registers["EX_SCALE_Y"] = float32_bits(operation.output_scale)
        return registers
    ratio = operation.input_scale / operation.output_scale
    registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(ratio)
    slope = operation.alpha if operation.function == "leaky_relu" else 0.0
    registers["EX_SCALE_B"], registers["EX_SHIFT_B"] = numerics.quantise_multiplier(ratio * slope)
    return registers
