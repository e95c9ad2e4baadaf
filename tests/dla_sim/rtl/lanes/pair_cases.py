"""Lanes of pairs, of one value, and of int32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.rtl.arithmetic import elementwise as lanes
from dla_sim.rtl.arithmetic.elementwise import AddShift
from isa import numerics
from isa.arch import Arch
from isa.numerics.unary import Function
from isa.ops import elementwise
from isa.ops import pairs as isa_pairs
from tests.dla_sim.rtl.lanes.case import (
    Case,
    Drawn,
    Generator,
    finite_float,
    integers,
)
from tests.dla_sim.rtl.lanes.commanded import (
    FIXED,
    ONNXRUNTIME,
    Registers,
    commanded,
    common,
    fixed_registers,
    float_registers,
    made,
    positive_scale,
    scales_of,
)
from tests.dla_sim.rtl.vectors import Vectors


def _slopes(fixed: bool) -> Callable[[Generator], Registers]:
    """Scales of leaky ReLU: B may be negative."""

    def draw(rng: Generator) -> Registers:
        registers = scales_of(fixed, "ABY")(rng)
        slope = float(rng.uniform(-2, 2))
        return registers | (fixed_registers(B=slope) if fixed else float_registers(B=slope))

    return draw


def _sums(rng: Generator) -> Registers:
    """Constants as a compiler makes them."""
    scales = [positive_scale(rng, wild=False) for _ in range(3)]
    if rng.integers(0, 2):
        found = numerics.add_fixed_constants(*scales)
    else:
        found = numerics.compute_squared_difference_constants(*scales)
    pairs = {
        name: (
            getattr(found, f"multiplier_{name.lower()}"),
            getattr(found, f"shift_{name.lower()}"),
        )
        for name in "ABY"
    }
    return common(rng) | fixed_registers(**pairs)


def _addition_constants(rng: Generator) -> Registers:
    if rng.integers(0, 4) == 0:
        return common(rng) | {f"EX_SCALE_{name}": int(finite_float(rng, 1)[0]) for name in "ABY"}
    scales = [positive_scale(rng, wild=False) for _ in range(3)]
    zeros = rng.integers(0, 256, 3)
    found = numerics.add_constants(scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2])
    return common(rng) | float_registers(**dict(zip("ABY", map(float, found), strict=True)))


def _int8_pair(rng: Generator, count: int) -> Drawn:
    return {"a": rng.integers(-128, 128, count), "b": rng.integers(-128, 128, count)}


def _int8_pair_squared(rng: Generator, count: int) -> Drawn:
    return _int8_pair(rng, count) | {"squared": rng.integers(0, 2, count)}


def _of_pair(
    function: Callable[..., NDArray[Any]], arch: Arch
) -> Callable[[Drawn, Any], NDArray[Any]]:
    return lambda operands, command: function(
        operands["a"].astype(np.int8), operands["b"].astype(np.int8), command, arch
    )  # fmt: skip


_FUNCTIONS: dict[int, Function] = {
    lanes.UnaryFunction.RELU: "relu",
    lanes.UnaryFunction.LEAKY_RELU: "leaky_relu",
    lanes.UnaryFunction.ABSOLUTE: "absolute",
}  # fmt: skip


def _of_one(arch: Arch) -> Callable[[Drawn, Any], NDArray[Any]]:
    def expected(operands: Drawn, command: Any) -> NDArray[Any]:
        function = _FUNCTIONS[command["function"]]
        return elementwise.unary_result(operands["value"].astype(np.int8), function, command, arch)

    return expected


def _unary_operands(rng: Generator, count: int) -> Drawn:
    return {"value": rng.integers(-128, 128, count), "function": rng.integers(1, 4, count)}


def lane_cases(arch: Arch) -> Iterator[Case]:
    fixed = arch.numerics == "fixed"
    ending = "_fixed" if fixed else ""

    def pair(
        name: str,
        kind: Any,
        registers: Callable[[Generator], Registers],
        function: Any,
        **more: Any,
    ) -> Case:
        operands = _int8_pair_squared if "fields" in more else _int8_pair
        make = partial(made, kind, fixed)
        return commanded(name + ending, make, registers, operands, _of_pair(function, arch), **more)

    both = _sums if fixed else scales_of(fixed, "ABY")
    yield pair(
        "addition", lanes.Addition, _sums if fixed else _addition_constants, elementwise.add_result
    )
    yield pair(
        "subtraction", lanes.Subtraction, both, isa_pairs.subtract_result, fields=("squared",)
    )
    yield pair(
        "multiplication", lanes.Multiplication, scales_of(fixed, "A"), isa_pairs.multiply_result
    )
    yield pair("division", lanes.Division, scales_of(fixed, "ABY"), isa_pairs.divide_result)
    yield commanded(
        "unary" + ending,
        partial(made, lanes.Unary, fixed),
        _slopes(fixed),
        _unary_operands,
        _of_one(arch),
        ("function",),
    )


# Integers of 32 bits.


def _wide_operands(rng: Generator, count: int) -> Drawn:
    fields = {"shifts": 2, "right": 2, "amount": 32, "rounding": 3}
    drawn = {name: rng.integers(0, end, count) for name, end in fields.items()}
    ties = (integers(32)(rng, count) >> (drawn["amount"] + 1)) * 2 + 1 << drawn["amount"] >> 1
    a = np.where(
        rng.integers(0, 3, count) == 0,
        np.clip(ties, -1 << 31, (1 << 31) - 1),
        integers(32)(rng, count),
    )
    return {"a": a, "b": integers(32)(rng, count)} | drawn


def _wide_expected(inputs: Vectors) -> Mapping[str, NDArray[Any]]:
    directions: tuple[Any, ...] = ("left", "right")
    roundings: tuple[Any, ...] = ("floor", "nearest_even", "half_away")
    names = ("a", "b", "shifts", "right", "amount", "rounding")
    found = []
    overflows = []
    for a, b, shifts, right, amount, rounding in zip(
        *(inputs[name].tolist() for name in names), strict=True
    ):
        one = np.array([a])
        overflow = False
        try:
            if shifts:
                one = numerics.shift_int32(one, int(amount), directions[right], roundings[rounding])
            else:
                one = numerics.add_int32(one, np.array([b]))
        except OverflowError:  # the result is the low bits, and not looked at
            one = np.array([a << amount if shifts else a + b]).astype(np.int32)
            overflow = True
        found.append(one[0])
        overflows.append(overflow)
    return {"result": np.array(found, np.int64), "overflow": np.array(overflows, np.int64)}


_WIDE = Case(
    "wide",
    lambda pipelined: AddShift(pipelined=pipelined),
    _wide_operands,
    _wide_expected,
    ("shifts", "right", "amount", "rounding"),
)

CASES = (*lane_cases(ONNXRUNTIME), *lane_cases(FIXED), _WIDE)
