"""Rounding and saturation on values worked out by hand; the arithmetic is in the comments."""

import numpy as np
import pytest

from isa import numerics
from isa.errors import InputError


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def int8(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int8)


class TestSaturation:
    def test_both_ends(self):
        assert numerics.saturate_int8(int32(-129, -128, 0, 127, 128)).tolist() == [
            -128,
            -128,
            0,
            127,
            127,
        ]
        assert numerics.saturate(int32(-5, 5, 300), -3, 255).tolist() == [-3, 5, 255]

    def test_limits_are_checked(self):
        with pytest.raises(InputError, match="low 3 and high 2 are in the wrong order"):
            numerics.saturate(int32(0), 3, 2)
        with pytest.raises(InputError, match=r"0\.\.255 are outside int8"):
            numerics.saturate_int8(int32(0), 0, 255)


class TestRequantise:
    def test_ties_go_to_even_then_the_zero_point_is_added(self):
        # halves: 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, -0.5 -> 0, -1.5 -> -2; plus 1
        result = numerics.requantise(int32(1, 3, 5, -1, -3), np.float32(0.5), 1)
        assert result.dtype == np.int8
        assert result.tolist() == [1, 3, 3, 1, -1]

    def test_saturates_and_clamps(self):
        accumulator = int32(2**31 - 1, -(2**31), 10, -10)
        assert numerics.requantise(accumulator, np.float32(1), 0).tolist() == [127, -128, 10, -10]
        assert numerics.requantise(accumulator, np.float32(1), -3, low=-3, high=5).tolist() == [
            5,
            -3,
            5,
            -3,
        ]

    def test_accumulator_is_rounded_to_float32_first(self):
        # float32(2**24 + 1) = 2**24, times 2**-25 is the tie 0.5 -> 0; unrounded it would be above
        # the tie -> 1
        assert numerics.requantise(int32(2**24 + 1), np.float32(2.0**-25), 0).tolist() == [0]

    def test_per_channel_scale_broadcasts(self):
        scale = np.array([1, 0.25], np.float32).reshape(2, 1, 1)
        assert numerics.requantise(np.full((2, 1, 2), 10, np.int32), scale, 0).tolist() == [
            [[10, 10]],
            [[2, 2]],
        ]

    def test_scale_is_rounded_step_by_step(self):
        # float32(0.1 * 0.1) = 0.010000001 is rounded up, so / 0.1 gives 0x3DCCCCCE; rounded once it
        # would be 0x3DCCCCCD
        tenth = np.float32(0.1)
        assert (
            numerics.float32_bits(
                np.float32(np.float64(tenth) * np.float64(tenth) / np.float64(tenth))
            )
            == 0x3DCCCCCD
        )
        scales = numerics.requantise_scale(tenth, np.array([tenth, tenth]), tenth)
        assert [numerics.float32_bits(scale) for scale in scales] == [0x3DCCCCCE, 0x3DCCCCCE]

    @pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
    def test_bad_scales_are_named(self, bad: float):
        with pytest.raises(InputError, match=r"weight scale .* is not a positive finite float32"):
            numerics.requantise_scale(1.0, np.array([1.0, bad], np.float32), 1.0)


class TestFusedMultiplyAdd:
    def test_rounds_once_where_float64_alone_rounds_twice(self):
        # 65 * 16519105 = 2**30 + 1, so a * b = 2**-24 + 2**-54: 1 + a * b is just above the tie of
        # 1 and 1 + 2**-23. In float64 the 2**-54 is lost, the tie remains, and ties to even would
        # give 1.
        b = np.float32(16519105 * 2.0**-54)
        assert np.float32(np.float64(65) * np.float64(b) + 1.0) == 1.0
        assert numerics.multiply_add_once_rounded(int8(65, -65), b, np.float32(1)).tolist() == [
            1 + 2.0**-23,
            # below 1 the spacing is 2**-24; the rest, 2**-54, is far below half of it
            1 - 2.0**-24,
        ]

    def test_bits_round_trip(self):
        assert numerics.float32_bits(1.0) == 0x3F800000
        assert numerics.float32_bits(-0.0) == 0x80000000


class TestAdd:
    def test_ties_to_even(self):
        constants = numerics.add_constants(0.5, 0, 0.5, 0, 1.0, 0)
        assert [float(c) for c in constants] == [0.5, 0.5, 0.0]
        # (1 + 0) / 2 = 0.5 -> 0, (3 + 0) / 2 = 1.5 -> 2, (-1) / 2 -> 0, (127 + 127) / 2 = 127
        assert numerics.add(int8(1, 3, -1, 127), int8(0, 0, 0, 127), *constants).tolist() == [
            0,
            2,
            0,
            127,
        ]

    def test_uint8_ties_are_rounded_around_the_original_zero_point(self):
        # scales 0.5, 0.5 -> 1; zero points 0, 0 -> 1 of uint8: a = 1 gives 0.5 + 1 = 1.5 -> 2,
        # stored 2 - 128.
        constants = numerics.add_constants(0.5, 0, 0.5, 0, 1.0, 1)
        assert numerics.add(int8(1 - 128), int8(0 - 128), *constants, offset=128).tolist() == [
            2 - 128
        ]
        assert numerics.add(int8(127), int8(127), *constants, offset=128, high=100).tolist() == [
            100
        ]

    def test_absurd_ratio_is_an_error(self):
        with pytest.raises(InputError, match="leave float32"):
            numerics.add_constants(1e38, 0, 1.0, 0, 1e-38, 0)


class TestAverage:
    def test_padding_adds_nothing_and_ties_round_with_the_zero_point(self):
        taps = [(int8(5, 7), np.array([True, True])), (int8(6, 99), np.array([True, False]))]
        # zero 4: (1 + 2) / 2 = 1.5, plus zero 1 = 2.5 -> 2 (rounding first would give 2 + 1); 3 / 1
        # + 1 = 4
        assert numerics.average_taps(taps, int32(2, 1), (1.0, 1.0), (4, 1)).tolist() == [2, 4]
        # the same with the divisor 2 everywhere: 3 / 2 + 1 = 2.5 -> 2
        assert numerics.average_taps(taps, 2, (1.0, 1.0), (4, 1)).tolist() == [2, 2]

    def test_offset_and_clamp(self):
        tap = [(int8(127, -128), np.array(True))]  # 255 and 0 of uint8
        assert numerics.average_taps(tap, 1, (1.0, 1.0), (0, 0), offset=128).tolist() == [127, -128]
        assert numerics.average_taps(
            tap, 1, (1.0, 1.0), (0, 0), offset=128, low=-100, high=100
        ).tolist() == [100, -100]

    def test_global_average_adds_the_zero_point_after_rounding(self):
        scale = numerics.global_average_scale(1.0, 1.0, 2)
        assert scale == np.float32(0.5)
        assert numerics.global_average(int32(3, 5, -3), scale, 1).tolist() == [3, 3, -1]


class TestUnary:
    def test_relu(self):
        assert numerics.unary(int8(-128, 3, 4, 5), "relu", (0.5, 1.0), (3, -2)).tolist() == [
            -2,
            -2,
            -2,
            -1,
        ]

    def test_leaky_relu(self):
        # x - 0 = -10, times 0.25 = -2.5 -> -2; 10 stays
        assert numerics.unary(
            int8(-10, 10), "leaky_relu", (1.0, 1.0), (0, 0), alpha=0.25
        ).tolist() == [-2, 10]

    def test_absolute_saturates(self):
        assert numerics.unary(int8(-128, -5, 5), "absolute", (1.0, 1.0), (0, 0)).tolist() == [
            127,
            5,
            5,
        ]

    def test_unknown_function(self):
        with pytest.raises(InputError, match="function 'sine' is unknown"):
            numerics.unary(int8(0), "sine", (1.0, 1.0), (0, 0))
        with pytest.raises(InputError, match="function 'sine' is unknown"):
            numerics.unary_fixed(int8(0), "sine", (0, 0), (0, 0), 0, 0)


class TestInt32:
    def test_add_overflow_names_the_first_coordinate(self):
        a = np.array([[0, 2**31 - 1], [-(2**31), 0]], np.int32)
        assert numerics.add_int32(a, np.zeros_like(a)).tolist() == a.tolist()
        with pytest.raises(
            OverflowError, match=r"int32 addition overflows int32 at \(0, 1\): 2147483648"
        ):
            numerics.add_int32(a, np.ones_like(a))
        with pytest.raises(OverflowError, match=r"at \(1, 0\): -2147483649"):
            numerics.add_int32(a, -np.ones_like(a))

    @pytest.mark.parametrize(
        ("rounding", "expected"),
        [
            ("floor", [1, 2, 0, -1, -2, -3]),
            ("nearest_even", [2, 2, 0, 0, -2, -2]),
            ("half_away", [2, 3, 1, -1, -2, -3]),
        ],
    )
    def test_right_shift_rounding(self, rounding: str, expected: list[int]):
        # by 1: 3 -> 1.5, 5 -> 2.5, 1 -> 0.5, -1 -> -0.5, -3 -> -1.5, -5 -> -2.5
        assert (
            numerics.shift_int32(int32(3, 5, 1, -1, -3, -5), 1, "right", rounding).tolist()
            == expected
        )

    def test_shift_limits(self):
        lowest = int32(-(2**31))
        assert numerics.shift_int32(lowest, 31, "right").tolist() == [-1]
        assert numerics.shift_int32(lowest, 0, "left").tolist() == [-(2**31)]
        with pytest.raises(
            OverflowError, match=r"shift left by 1 overflows int32 at \(1,\): 2147483648"
        ):
            numerics.shift_int32(int32(-(2**30), 2**30), 1, "left")

    def test_shift_arguments_are_checked(self):
        with pytest.raises(InputError, match=r"shift amount 32 is outside 0\.\.31"):
            numerics.shift_int32(int32(0), 32, "left")
        with pytest.raises(InputError, match="direction 'up' is unknown"):
            numerics.shift_int32(int32(0), 1, "up")
        with pytest.raises(InputError, match="rounding 'odd' is unknown"):
            numerics.shift_int32(int32(0), 1, "right", "odd")

    def test_accumulator_bound(self):
        weights = np.array([[[1, -2]], [[-128, 127]]], np.int8)
        # 100 + 128 * 3 and |-7| + 128 * 255
        assert numerics.accumulator_bound(weights, int32(100, -7)).tolist() == [484, 32647]
        assert numerics.accumulator_bound(np.zeros((1, 0), np.int8), int32(-(2**31))).tolist() == [
            2**31
        ]
        assert (
            numerics.accumulator_bound(np.zeros((0, 9), np.int8), np.zeros(0, np.int32)).tolist()
            == []
        )


class TestFixed:
    @pytest.mark.parametrize(
        ("real", "expected"),
        [
            (0.0, (0, 0)),
            (1.0, (2**30, 1)),
            (0.75, (3 * 2**29, 0)),
            (0.1, (1717986918, -3)),  # 0.8 * 2**31 = 1717986918.4
            (1 - 2.0**-40, (2**30, 1)),  # the fraction rounds up to 2**31
            (2.0**-32, (2**30, -31)),
            (2.0**-33, (0, 0)),
        ],
    )
    def test_quantise_multiplier(self, real: float, expected: tuple[int, int]):
        assert numerics.quantise_multiplier(real) == expected

    def test_bad_multipliers(self):
        with pytest.raises(InputError, match="not a finite number"):
            numerics.quantise_multiplier(float("nan"))

    def test_the_largest_multiplier_stands_for_all_beyond(self):
        """Any step but 0 leaves int8 then."""
        assert numerics.quantise_multiplier(2.0**29) == (2**30, 30)
        assert {numerics.quantise_multiplier(2.0**power) for power in (30, 31, 100, 1000)} == {
            (2**31 - 1, 30)
        }
        assert numerics.requantise_fixed(int32(-1, 0, 1), 2**31 - 1, 30, 5).tolist() == [
            -128,
            5,
            127,
        ]

    def test_negative_multipliers_are_those_of_the_magnitude(self):
        """Only the slope of a leaky ReLU is ever negative."""
        for real in (0.5, 0.3, 1e-7, 3.7):
            multiplier, shift = numerics.quantise_multiplier(real)
            assert numerics.quantise_multiplier(-real) == (-multiplier, shift)

    def test_high_multiply(self):
        multiply = numerics.multiply_high_doubled
        lowest = -(2**31)
        assert multiply(int32(lowest), lowest).tolist() == [2**31 - 1]
        # halves: 0.5 -> 1, 1.5 -> 2, -0.5 -> 0, -1.5 -> -1: ties upwards
        assert multiply(int32(1, 3, -1, -3), 2**30).tolist() == [1, 2, 0, -1]

    def test_divide_by_power_of_two(self):
        divide = numerics.rounding_divide_by_power_of_two
        assert divide(int32(1, 3, -1, -3, -2, 2), 1).tolist() == [1, 2, -1, -2, -1, 1]
        assert divide(int32(2**31 - 1, -(2**31)), 31).tolist() == [1, -1]
        assert divide(int32(7), 0).tolist() == [7]

    def test_double_rounding_is_kept(self):
        # 1 * 0.25: the high multiply by 0.5 gives 0.5 -> 1, halved and rounded away: 1, though 0.25
        # rounds to 0. -2: -1, then -0.5 -> -1. -3: -1.5 -> -1, then -0.5 -> -1.
        assert numerics.requantise_fixed(int32(1, -1, -2, -3), 2**30, -1, 0).tolist() == [
            1,
            0,
            -1,
            -1,
        ]

    def test_requantise_fixed_per_channel(self):
        factors = numerics.real_multiplier(0.5, np.array([1.0, 0.25], np.float32), 1.0)
        multipliers, shifts = numerics.quantise_multipliers(factors)
        assert (multipliers.tolist(), shifts.tolist()) == ([2**30, 2**30], [0, -2])
        result = numerics.requantise_fixed(int32(100, 80), multipliers, shifts, 5, low=-10, high=50)
        assert result.tolist() == [50, 15]  # 50 + 5 clamped, 10 + 5

    def test_a_left_shift_saturates_as_the_exact_product_would(self):
        """The int8 result equals exact arithmetic if the shifted value leaves int32.

        This holds for any int32 and any multiplier.
        """
        random = np.random.default_rng(3)
        x = random.integers(-(2**31), 2**31, 4000)
        multipliers = random.integers(2**29, 2**31, 4000)
        shifts = random.integers(0, 31, 4000)
        beyond = np.abs(x.astype(object) << shifts.astype(object)) >= 2**31
        assert beyond.sum() > 3000
        found = numerics.requantise_fixed(x, multipliers, shifts, 7)
        assert (found[beyond] == np.where(x < 0, -128, 127)[beyond]).all()

    def test_rounded_once(self):
        """Ties go away from zero, and 1 * 0.25 is 0.

        The halves that float64 can just not hold stay below.
        """
        assert numerics.requantise_once(int32(1, 2, -2, 6, -6), 0.25, 0).tolist() == [
            0,
            1,
            -1,
            2,
            -2,
        ]
        assert numerics.requantise_once(int32(1, -1), 0.49999999999999994, 3).tolist() == [3, 3]
        assert numerics.requantise_once(int32(2**31 - 1, -(2**31)), 1e30, 3).tolist() == [127, -128]

    def test_factors_are_exact_or_rounded(self):
        """The scales are float32 numbers; the product of the first two is no float32 number."""
        a = np.float32(0.1)
        b = np.float32(0.3)
        y = np.float32(0.7)
        exact = np.float64(a) * np.float64(b) / np.float64(y)
        assert numerics.real_multiplier(a, b, y) == exact
        assert numerics.compute_rounded_multiplier(a, b, output_scale=y) == np.float32(
            np.float32(a * b) / y
        )
        assert numerics.product_multiplier(a, b, y) == np.float64(np.float32(a * b)) / np.float64(y)
        assert (
            len(
                {
                    exact,
                    float(np.float32(np.float32(a * b) / y)),
                    numerics.product_multiplier(a, b, y),
                }
            )
            == 3
        )

    def test_activation_steps(self):
        """ReLU6 with a scale of 12 ends at a half, which goes away from zero."""
        assert numerics.activation_steps((0.0, 6.0), 12.0) == (0, 1)
        assert numerics.activation_steps((-1.0, 1.0), 2.0) == (-1, 1)
        assert numerics.activation_steps((0.0, 6.0), 0.01) == (0, 600)
        assert numerics.activation_steps((-np.inf, np.inf), 0.01) == (-np.inf, np.inf)

    def test_mean_multiplier(self):
        """For 6 elements, 2 bits of the count go to the multiplier, and the shift is 2 less.

        The multiplier is 2^30 * 4 // 6.
        """
        assert numerics.mean_multiplier(2**30, 1, 6) == (2**32 // 6, -1)
        assert numerics.mean_multiplier(2**30, 1, 1) == (2**30, 1)
        assert numerics.mean_multiplier(2**30, -30, 64) == (2**31 // 64, -31)

    def test_squared_difference_fixed(self):
        """t = 2: operands halved, times 2^7; (64 * 3)^2 * 4 / 2^14 = 9."""
        constants = numerics.compute_squared_difference_constants(1.0, 1.0, 1.0)
        assert constants == numerics.AddFixedConstants(2**30, 0, 2**30, 0, 2**30, -11)
        assert numerics.subtract_squared_fixed(
            int8(5, 0), int8(2, 0), constants, (0, 0, -1)
        ).tolist() == [8, -1]

    def test_resize_coordinates(self):
        of = numerics.resize_coordinates
        assert of(3, 6, False, True).tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2]
        assert of(3, 5, True, False).tolist() == [0, 0.5, 1, 1.5, 2]

    def test_softmax_fixed(self):
        """Two equal elements have a half each, 128 steps; one that is far below has none."""
        table = numerics.softmax_table_fixed(1.0)
        factor = numerics.softmax_factor_fixed(1 / 256)
        assert (int(table[255]), int(table[0]), factor) == (2**31 - 1, 0, 2**16)
        x = int8(3, 3, -100).reshape(1, 3, 1)
        assert numerics.softmax_fixed(x, table, factor, -128).reshape(-1).tolist() == [0, 0, -128]
        with pytest.raises(InputError, match="2\\^12 or more"):
            numerics.softmax_fixed(np.zeros((1, 4096, 1), np.int8), table, factor, -128)

    def test_add_fixed(self):
        # t = 2: operands times 0.5, result times 2 / (2**20 * 2) = 2**-20, as 0.5 * 2**-19
        constants = numerics.add_fixed_constants(1.0, 1.0, 2.0)
        assert constants == numerics.AddFixedConstants(2**30, 0, 2**30, 0, 2**30, -19)
        # (3 + 4) / 2 = 3.5 -> 4, -3.5 -> -4 (away from zero), (127 + 127) / 2 = 127 plus 1
        # saturates
        result = numerics.add_fixed(int8(3, -3, 127), int8(4, -4, 127), constants, (0, 0, 1))
        assert result.tolist() == [5, -3, 127]

    def test_average_fixed(self):
        # equal quantisation: 2.5 -> 3, -2.5 -> -3, 4 / 3 -> 1, of the raw values
        assert numerics.average_fixed(
            int32(5, -5, 4), int32(2, 2, 3), 2**30, 1, -7, -7
        ).tolist() == [3, -3, 1]
        # otherwise: (46 - 4 * 10) / 4 = 1.5, times 0.5 = 0.75 -> 1, plus -5
        assert numerics.average_fixed(int32(46), 4, 2**30, 0, 10, -5).tolist() == [-4]

    def test_unary_fixed(self):
        one = numerics.quantise_multiplier(1.0)
        tenth = numerics.quantise_multiplier(0.1)
        x = int8(-8, 2, 12)  # minus zero 2: -10, 0, 10
        assert numerics.unary_fixed(x, "leaky_relu", one, tenth, 2, 0).tolist() == [-1, 0, 10]
        assert numerics.unary_fixed(x, "relu", one, (0, 0), 2, -1).tolist() == [-1, -1, 9]
        assert numerics.unary_fixed(x, "absolute", one, (0, 0), 2, 120).tolist() == [127, 120, 127]
