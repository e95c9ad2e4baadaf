"""Float32 in logic, and the lane that requantises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from amaranth.hdl import Module, Shape, Value, signed, unsigned
from numpy.typing import NDArray

from dla_sim.rtl.arithmetic import floats
from dla_sim.rtl.arithmetic.lane import REDUCED_BITS, Requantise
from isa import numerics
from isa.numerics.requantising import rint_to_int64, round_half_away
from tests.dla_sim.rtl.lanes.case import (
    LIMITS,
    Bits,
    Case,
    Drawn,
    Gates,
    Generator,
    alone,
    any_float,
    bits_of,
    finite_float,
    held,
    integers,
    limits,
    multipliers,
    near_float,
    real,
)
from tests.dla_sim.rtl.vectors import Vectors

FLOAT = unsigned(32)


def _float_case(
    name: str,
    draws: dict[str, Any],
    function: Callable[..., Value],
    expected: Callable[..., Any],
    result: Shape = FLOAT,
) -> Case:
    """Return a case of a function of float32 bits, or of integers.

    An operand is an integer if ``draws`` has a width instead of a function.
    """
    shapes = {name: signed(way) if isinstance(way, int) else FLOAT for name, way in draws.items()}

    def draw(rng: Generator, count: int) -> Drawn:
        drawn: Drawn = {}
        for operand, way in draws.items():
            if way is near_float:
                drawn[operand] = near_float(rng, next(iter(drawn.values())))
            else:
                drawn[operand] = (integers(way) if isinstance(way, int) else way)(rng, count)
        return drawn

    def wanted(inputs: Vectors) -> NDArray[Any]:
        numbers = (
            inputs[name] if isinstance(way, int) else real(inputs[name])
            for name, way in draws.items()
        )
        found = np.asarray(expected(*numbers))
        return bits_of(found) if found.dtype == np.float32 else found.astype(np.int64)

    return Case(name, lambda pipelined: Gates(shapes, result, function), draw, alone(wanted))


def _of_normalised(
    operation: Callable[..., floats.Exact],
) -> Callable[[Module, Value, Value], Value]:
    def function(m: Module, a: Value, b: Value) -> Value:
        first, second = (floats.normalise_number(m, floats.unpack(m, bits)) for bits in (a, b))
        return floats.pack(m, floats.round_number(m, operation(m, first, second)))

    return function


def _add(m: Module, a: Value, b: Value) -> Value:
    return floats.pack(m, floats.add(m, floats.unpack(m, a), floats.unpack(m, b)))


def _fused(m: Module, value: Value, factor: Value, addend: Value) -> Value:
    terms = floats.finite(m, factor), floats.finite(m, addend)
    return floats.pack(m, floats.round_number(m, floats.multiply_add(m, value, *terms)))


def _fused_operands(rng: Generator, count: int) -> Drawn:
    value = integers(10)(rng, count)
    factor = finite_float(rng, count)
    addend = finite_float(rng, count)
    near = rng.choice([1, 1, 0.5, 2, 1 + 2.0**-23, 2.0**-24, 2.0**24, 2.0**25, 2.0**-12], count)
    with np.errstate(all="ignore"):
        against = (-value * real(factor).astype(np.float64) * near).astype(np.float32)
    use = np.isfinite(against) & (rng.integers(0, 2, count) == 0)
    return {"value": value, "factor": factor, "addend": np.where(use, bits_of(against), addend)}


def _fused_expected(inputs: Vectors) -> Bits:
    factor: Any = real(inputs["factor"])
    return bits_of(
        numerics.multiply_add_once_rounded(inputs["value"], factor, real(inputs["addend"]))
    )


def _roundable(rng: Generator, count: int) -> Bits:
    """Numbers around those that integers are made of, ties among them."""
    scaled = rng.integers(-1 << 24, 1 << 24, count) * 2.0 ** rng.integers(-26, 3, count)
    ties = rng.integers(-2000, 2000, count) + 0.5
    kind = rng.integers(0, 3, count)
    return np.select(
        [kind == 0, kind == 1],
        [any_float(rng, count), bits_of(ties.astype(np.float32))],
        bits_of(scaled.astype(np.float32)),
    )


def _nearest(numbers: NDArray[np.float32]) -> Bits:
    limit = float(1 << floats.FIRST)
    return np.asarray(np.clip(np.nan_to_num(np.rint(numbers), nan=-limit), -limit, limit)).astype(
        np.int64
    )


FLOAT_CASES = (
    _float_case(
        "unpack", {"a": any_float}, lambda m, a: floats.pack(m, floats.unpack(m, a)), lambda a: a
    ),
    *(
        _float_case(
            f"from_integer_{bits}", {"a": bits},
            lambda m, a: floats.pack(m, floats.from_integer(m, a)),
            lambda a: a.astype(np.float32),
        )
        for bits in (8, 24, 25, 32, 40)
    ),
    _float_case(
        "multiply", {"a": any_float, "b": any_float}, _of_normalised(floats.product), np.multiply
    ),
    _float_case(
        "divide", {"a": any_float, "b": any_float}, _of_normalised(floats.quotient), np.divide
    ),
    _float_case("add", {"a": any_float, "b": near_float}, _add, np.add),
    _float_case(
        "to_integer", {"a": _roundable}, lambda m, a: floats.to_integer(m, floats.unpack(m, a)),
        _nearest,
        signed(floats.INTEGER_BITS),
    ),
    Case(
        "fused_multiply_add",
        lambda pipelined: Gates(
            {"value": signed(10), "factor": FLOAT, "addend": FLOAT}, FLOAT, _fused
        ),
        _fused_operands, alone(_fused_expected),
    ),
)  # fmt: skip


# Requantising.


def _wanted(rng: Generator, count: int) -> NDArray[np.float64]:
    """Results around those of int8, half of them ties."""
    ties = rng.integers(-600, 600, count) + 0.5
    return np.where(rng.integers(0, 2, count) == 0, ties, rng.uniform(-512, 512, count))


def _scales(rng: Generator, values: Bits) -> NDArray[np.float64]:
    """Factors that bring the values near int8, and some others."""
    count = len(values)
    fitting = _wanted(rng, count) / np.where(values == 0, 100, values)
    kind = rng.integers(0, 8, count)
    next_to = np.nextafter(fitting, rng.choice([-np.inf, np.inf], count))
    power = 2.0 ** rng.integers(-40, 40, count)
    fraction = rng.integers(1, 1 << 31, count) / 2.0 ** rng.integers(20, 60, count)
    return np.select([kind == 0, kind == 1, kind == 2], [next_to, power, fraction], fitting)


def _requantise_float(bits: int) -> Case:
    def draw(rng: Generator, count: int) -> Drawn:
        values = integers(bits)(rng, count)
        other = rng.integers(0, 6, count) == 0
        scale = np.where(
            other, finite_float(rng, count), bits_of(_scales(rng, values).astype(np.float32))
        )
        return {"accumulator": values, "scale": scale, **limits(rng, count)}

    def expected(inputs: Vectors) -> Bits:
        return held(
            rint_to_int64(inputs["accumulator"].astype(np.float32) * real(inputs["scale"])), inputs
        )

    return Case(
        f"requantise_{bits}",
        lambda pipelined: Requantise(fixed=False, pipelined=pipelined, bits=bits), draw,
        alone(expected), LIMITS,
    )  # fmt: skip


def _requantise_fixed(bits: int, shift_bits: int) -> Case:
    def draw(rng: Generator, count: int) -> Drawn:
        # times 2^30 it must fit the int64 of the reference
        values = integers(min(bits, 33))(rng, count)
        factor = np.abs(_scales(rng, values))
        once = (rng.integers(0, 2, count) == 0) & (shift_bits == 32) & (factor >= 2.0**-1000)
        halves = factor.view(np.int64)
        scale = np.where(once, halves & 0xFFFFFFFF, multipliers(rng, count))
        shift = np.where(once, halves >> 32, rng.integers(-60, 31, count))
        return {"accumulator": values, "scale": scale, "shift": shift, **limits(rng, count)}

    def expected(inputs: Vectors) -> Bits:
        values = inputs["accumulator"]
        scale = inputs["scale"]
        shift = inputs["shift"]
        once = shift > numerics.LARGEST_SHIFT
        factor = np.where(once, scale + (shift << 32), 0).view(np.float64)
        multiplier = np.where(once, 0, scale.astype(np.int32))
        twice = numerics.multiply_by_quantised_multiplier(
            values, multiplier, np.where(once, 0, shift)
        )
        return held(np.where(once, round_half_away(values * factor), twice), inputs)

    return Case(
        f"requantise_fixed_{bits}_{shift_bits}",
        lambda pipelined: Requantise(
            fixed=True, pipelined=pipelined, bits=bits, shift_bits=shift_bits
        ),
        draw, alone(expected), LIMITS,
    )  # fmt: skip


CASES = (
    *FLOAT_CASES,
    _requantise_float(32),
    _requantise_float(REDUCED_BITS),
    _requantise_fixed(32, 32),
    _requantise_fixed(REDUCED_BITS, 8),
)
