"""Rounding and saturation of drawn values equal Python's exact integers and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa import numerics

INT32 = st.integers(-(2**31), 2**31 - 1)
INT8 = st.integers(-128, 127)
SCALES = st.floats(2.0**-20, 2.0**10, width=32)
FLOATS = st.floats(-(2.0**40), 2.0**40, width=32)


def nearest_float32(value: Fraction) -> np.float32:
    """Round a fraction to float32, ties to even, by comparing exact distances."""
    guess = np.float32(float(value))
    around = [
        np.nextafter(guess, np.float32(-np.inf)),
        guess,
        np.nextafter(guess, np.float32(np.inf)),
    ]
    return min(around, key=lambda f: (abs(Fraction(float(f)) - value), int(f.view(np.uint32)) & 1))


@given(INT8, FLOATS, FLOATS)
def test_fused_multiply_add_rounds_the_exact_value_once(a: int, b: float, c: float):
    result = numerics.multiply_add_once_rounded(np.array(a), np.float32(b), np.float32(c))
    assert result == nearest_float32(a * Fraction(b) + Fraction(c))


@given(
    st.integers(1, 127),
    st.integers(2**23, 2**24 - 1),
    st.integers(20, 60),
    st.integers(2**23, 2**24 - 1),
)
def test_fused_multiply_add_with_far_apart_operands(
    a: int, mantissa: int, exponent: int, addend: int
):
    b = mantissa * 2.0**-exponent
    result = numerics.multiply_add_once_rounded(np.array(a), np.float32(b), np.float32(addend))
    assert result == nearest_float32(a * Fraction(b) + addend)


@given(
    st.lists(INT32, min_size=1, max_size=20),
    st.floats(2.0**-20, 2.0**10, width=32),
    INT8,
    INT8,
    INT8,
)
def test_fast_requantise_equals_the_plain_one(
    accumulators: list[int], scale: float, zero: int, low: int, high: int
):
    low, high = min(low, high), max(low, high)
    exact = np.array(accumulators, np.int32)
    out = np.empty(exact.shape, np.int8)
    numerics.requantise_float32(
        exact.astype(np.float32), np.array(scale, np.float32), zero, low, high, out=out
    )
    assert out.tolist() == numerics.requantise(exact, np.float32(scale), zero, low, high).tolist()
    assert low <= out.min() <= out.max() <= high


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=20), st.integers(1, 12), INT8)
def test_both_ways_to_requantise_round_ties_to_even_before_the_zero_point(
    steps: list[int], power: int, zero: int
):
    """Every draw is a tie, half a step above one.

    With a zero point added first, an odd one would turn them.
    """
    exact = np.array([(2 * step + 1) << (power - 1) for step in steps], np.int32)
    expected = [min(max(round(Fraction(2 * step + 1, 2)) + zero, -128), 127) for step in steps]
    scale = np.float32(2.0**-power)
    out = np.empty(exact.shape, np.int8)
    numerics.requantise_float32(exact.astype(np.float32), np.array(scale), zero, out=out)
    assert out.tolist() == numerics.requantise(exact, scale, zero).tolist() == expected


@given(st.lists(INT32, min_size=2, max_size=20), SCALES, INT8)
def test_requantise_is_monotone(accumulators: list[int], scale: float, zero: int):
    result = numerics.requantise(np.array(sorted(accumulators), np.int32), np.float32(scale), zero)
    assert (np.diff(result.astype(np.int64)) >= 0).all()


@given(INT32, st.integers(0, 31), st.sampled_from(["floor", "nearest_even", "half_away"]))
def test_right_shift_equals_exact_rounding(value: int, amount: int, rounding: str):
    quotient = Fraction(value, 2**amount)
    half_away = math.floor(abs(quotient) + Fraction(1, 2)) * (1 if value >= 0 else -1)
    expected = {
        "floor": math.floor(quotient),
        "nearest_even": round(quotient),
        "half_away": half_away,
    }[rounding]
    assert numerics.shift_int32(
        np.array([value], np.int32), amount, "right", rounding
    ).tolist() == [expected]


@given(INT32, st.integers(0, 31))
def test_left_shift_is_exact_or_an_error(value: int, amount: int):
    shifted = value * 2**amount
    if -(2**31) <= shifted < 2**31:
        assert numerics.shift_int32(np.array([value], np.int32), amount, "left").tolist() == [
            shifted
        ]
    else:
        with pytest.raises(
            OverflowError, match=f"left by {amount} overflows int32 at \\(0,\\): {shifted}$"
        ):
            numerics.shift_int32(np.array([value], np.int32), amount, "left")


@given(INT32, INT32)
def test_high_multiply_rounds_to_nearest_ties_up(a: int, b: int):
    expected = min(math.floor(Fraction(a * b, 2**31) + Fraction(1, 2)), 2**31 - 1)
    assert numerics.multiply_high_doubled(np.array([a]), b).tolist() == [expected]


@given(st.floats(2.0**-30, 2.0**29))
def test_quantised_multiplier_is_close(real: float):
    multiplier, shift = numerics.quantise_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    assert abs(Fraction(multiplier) * Fraction(2) ** (shift - 31) / Fraction(real) - 1) <= Fraction(
        1, 2**31
    )


@given(st.integers(0, 2**32 - 1).filter(lambda u: (u >> 23) & 255 != 255 or u & 0x7FFFFF == 0))
def test_float32_bits_round_trip(bits: int):
    assert numerics.float32_bits(np.uint32(bits).view(np.float32)) == bits


@given(st.lists(st.tuples(INT8, INT8), min_size=1, max_size=30), INT32)
def test_accumulator_never_exceeds_its_bound(terms: list[tuple[int, int]], bias: int):
    weights = np.array([[w for w, _ in terms]], np.int8)
    bound = int(numerics.accumulator_bound(weights, np.array([bias], np.int32))[0])
    partial = 0
    for w, x in terms:
        partial += w * x
        assert abs(partial) <= bound
        assert abs(partial + bias) <= bound
