"""Golden cases of level 2 that test values: rounding, saturation, zero points, accumulators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments.golden.case import GoldenCase
from isa.arch import Arch
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE
from isa.ops.requant import ChannelScales, pack_records
from tests.golden_cases.level2 import (
    EVERY,
    NONE,
    ODD,
    _look_ups,
    _pairs,
    _permutations,
    _resizes,
)
from tests.golden_cases.level2_rows import rows
from tests.golden_cases.machines import BALANCED, FIXED, TABLES, machine
from tests.golden_cases.operations import Convolution, Pooling, Window, packed
from tests.golden_cases.tensor_operations import (
    Addition,
    Product,
    Requantisation,
    Unary,
    pair_case,
    shift_case,
)

LIMITS = np.array(
    [-(2**31), -(2**31) + 1, -(2**24) - 1, -(2**24), -1, 0, 1, 2**24, 2**24 + 1, 2**31 - 1],
    np.int32,
)


def values() -> Iterator[GoldenCase]:
    """Values, on both numerics."""
    for suffix, arch in (("", BALANCED), ("-fixed", FIXED)):
        yield from _requantisation(suffix, arch)
        yield from _pools(suffix, arch)
        yield from _elementwise(suffix, arch)
        yield from _accumulators(suffix, arch)
        yield from _wide(suffix, arch)
    yield from _look_ups()
    yield from _permutations()
    for suffix, arch in (("", TABLES), ("-fixed", machine("v4", "fixed"))):
        yield from _pairs(suffix, arch)
    yield from rows()
    yield from _resizes()


def _requantisation(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    """Scales of a half and a quarter make ties of every second value."""
    ties = Requantisation((1, 2, 24), 0, input=ODD.reshape(1, 2, 24), scale=np.array([0.5, 0.5]))
    yield ties.case(f"L2/requant-ties{suffix}", "ties to even, or away from zero", arch)
    shifted = Requantisation(
        (1, 2, 24), -3, input=ODD.reshape(1, 2, 24), scale=np.array([0.5, 0.25])
    )
    yield shifted.case(
        f"L2/requant-ties-odd-zero{suffix}", "the zero point is added after rounding", arch
    )
    fives = np.arange(-255, 260, 10, dtype=np.int32)
    almost = Requantisation(
        (1, 2, fives.size), 0, input=np.tile(fives, (1, 2, 1)), scale=np.array([0.1, 0.3])
    )
    yield almost.case(
        f"L2/requant-ties-of-float32{suffix}", "ties in float32 that are none in real numbers", arch
    )
    twice = np.array([[[3 * 2**23 - 1, 3 * 2**23, 3 * 2**23 + 1, -3 * 2**23 + 1]]], np.int32)
    carried = Requantisation((1, 1, 4), 0, input=twice, scale=np.array([2.0**-24]))
    yield carried.case(
        f"L2/requant-accumulator-rounds{suffix}", "float32 of the accumulator makes the tie", arch
    )
    big = ODD.reshape(1, 2, 24) * 50000
    for name, limits in (("both-ends", (-128, 127)), ("narrow", (-1, 1)), ("one-value", (5, 5))):
        saturated = Requantisation((1, 2, 24), 0, limits, big, np.array([0.01, 0.0001]))
        yield saturated.case(f"L2/requant-saturates-{name}{suffix}", f"clamped to {limits}", arch)
    for name, zero in (("highest", 32767), ("lowest", -32768), ("high", 127), ("low", -128)):
        far = Requantisation(
            (1, 1, 48), zero, input=ODD.reshape(1, 1, 48) * 900, scale=np.array([0.7])
        )
        yield far.case(f"L2/requant-zero-{name}{suffix}", f"output zero point {zero}", arch)
    scales = np.array(
        [2.0**-31, 1.0 / 3.0, 2.0**-24, 5.9e-8, 1.5e-38 if arch.numerics == "onnxruntime" else 1e-9]
    )
    edge = Requantisation((1, 5, 10), 1, input=np.tile(LIMITS, (1, 5, 1)), scale=scales)
    yield edge.case(
        f"L2/requant-limits-of-int32{suffix}",
        "accumulators at the limits of int32 and of float32",
        arch,
    )
    if arch.numerics == "fixed":
        yield _raw_multipliers(arch)
        yield _saturating_shifts(arch)
        yield from _rounded_once(arch)


def _raw_multipliers(arch: Arch) -> GoldenCase:
    """Multipliers and shifts at their limits.

    A product of exactly half, of either sign; both roundings at once.
    """
    multipliers = [1 << 30, (1 << 31) - 1, 0, 1 << 30, 1 << 30, (1 << 30) + 1, -(1 << 31)]
    shifts = [1, 0, 5, -1, -31, -3, 0]
    raw = np.array([[0, m, s] for m, s in zip(multipliers, shifts, strict=True)], "<i4")
    data = np.tile(
        np.array([-6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6, 2**25, -(2**25)], np.int32), (1, 7, 1)
    )
    data[0, 6, 0] = -(2**31)
    case = Requantisation((1, 7, 13), 0, input=data, raw=np.frombuffer(raw.tobytes(), np.uint8))
    return case.case(
        "L2/requant-multipliers-fixed",
        "limits of multiplier and shift; ties of both roundings",
        arch,
    )


def _saturating_shifts(arch: Arch) -> GoldenCase:
    """Shifts to the left that take accumulators beyond int32, and some just not."""
    raw = np.array([[0, (1 << 30) + 12345, shift] for shift in (1, 7, 12, 20, 24, 29, 30)], "<i4")
    powers = np.array([0, 1, 2, 6, 7, 8, 11, 18, 19, 24, 28, 30])
    data = np.tile(
        np.concatenate([1 << powers, -(1 << powers), [2**31 - 1, -(2**31)]]).astype(np.int32),
        (1, 7, 1),
    )
    case = Requantisation(
        (1, 7, data.shape[2]), 2, input=data, raw=np.frombuffer(raw.tobytes(), np.uint8)
    )
    return case.case(
        "L2/requant-shifts-saturate-fixed",
        "accumulators that a left shift takes beyond int32",
        arch,
    )


def _rounded_once(arch: Arch) -> Iterator[GoldenCase]:
    """Records that hold a float64 factor: ties, products that float64 rounds to a tie, both ends.

    Some that do not.
    """
    factors = np.array(
        [0.5, 0.5 / 3, 5.5 / 3, np.nextafter(0.5, 0), 3.7, 2.0**-23, 2.0**-40, 1e-12]
    )
    scales = ChannelScales(factors.astype(np.float32), factors, once=True)
    raw = np.frombuffer(pack_records(np.zeros(8, np.int32), scales, arch), np.uint8)
    small = np.array([-9, -6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6, 9], np.int32)
    large = np.array(
        [2**31 - 1, -(2**31), 3 * 2**22, -3 * 2**22, 3 * 2**22 - 1, 2**30 + 1], np.int32
    )
    data = np.tile(np.concatenate([small, large]), (1, 8, 1))
    case = Requantisation((1, 8, data.shape[2]), -3, input=data, raw=raw)
    yield case.case("L2/requant-once-fixed", "products with float64 factors, rounded once", arch)
    mixed = raw.view("<i4").reshape(8, 3).copy()
    mixed[1::2, 1:] = (1 << 30, -7)
    mixed[::2, 1:] = np.array([1 / 128, 1 / 300, 1 / 7.5, 1 / 1000]).view("<i4").reshape(4, 2)
    product = Product((9, 16, 8), zero=4, channels=np.frombuffer(mixed.tobytes(), np.uint8))
    yield product.case("L2/matmul-once-fixed", "a factor in every second channel record", arch)


def _pools(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    pairs = np.arange(-32, 32, dtype=np.int8).reshape(4, 4, 4)
    window = Window((4, 4, 4), (1, 2), (1, 1), padding=NONE)
    average = Pooling(AVERAGE, window, (0.1, 0.1), input=pairs)
    yield average.case(
        f"L2/average-ties{suffix}", "means that end in a half, same quantisation", arch
    )
    rescaled = Pooling(AVERAGE, window, (0.1, 0.2), (3, -5), input=pairs)
    yield rescaled.case(
        f"L2/average-ties-rescaled{suffix}", "means that end in a half, another quantisation", arch
    )
    ends = np.where(pairs < 0, np.int8(-128), np.int8(127))
    loud = Pooling(AVERAGE, Window((4, 4, 4), (3, 3)), (0.4, 0.1), (-20, 11), input=ends)
    yield loud.case(f"L2/average-saturates{suffix}", "averages beyond both ends", arch)
    tie = Pooling(
        GLOBAL_AVERAGE,
        Window((8, 1, 2), (1, 2), padding=NONE),
        (0.1, 0.1),
        input=EVERY[:16].reshape(8, 1, 2),
    )
    yield tie.case(f"L2/global-average-ties{suffix}", "global means that end in a half", arch)
    top = Pooling(
        limits=(-20, 20), window=Window((4, 4, 4), (2, 2), (2, 2), padding=NONE), input=pairs
    )
    yield top.case(f"L2/max-clamped{suffix}", "maximum between limits", arch)
    yield Pooling(window=Window((2, 3, 3), (3, 3)), input=np.full((2, 3, 3), -128, np.int8)).case(
        f"L2/max-of-lowest{suffix}", "maximum of the lowest value, next to padding", arch
    )


def _elementwise(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    for short, mnemonic in (
        ("relu", "OP_ACT_RELU"),
        ("leaky", "OP_ACT_LRELU"),
        ("abs", "OP_E_ABS"),
    ):
        for name, scales, zeros in (
            ("ties", (0.5, 1.0), (0, 0)),
            ("saturates", (0.5, 0.125), (-7, 3)),
        ):
            unary = Unary(mnemonic, scales=scales, slope=0.5, zeros=zeros, input=EVERY)
            yield unary.case(
                f"L2/{short}-{name}{suffix}", f"{mnemonic} of every value, {name}", arch
            )
        if mnemonic == "OP_ACT_LRELU":
            falling = Unary(mnemonic, scales=(0.5, 0.5), slope=-0.5, zeros=(-1, 3), input=EVERY)
            yield falling.case(f"L2/leaky-relu-falls{suffix}", "a negative slope, ties", arch)
        clamped = Unary(
            mnemonic, scales=(0.1, 0.1), zeros=(128, -129), limits=(-60, 60), input=EVERY
        )
        yield clamped.case(
            f"L2/{short}-far-zero{suffix}", f"{mnemonic}, zero points beyond int8", arch
        )
    others = np.roll(EVERY[::-1], 37).copy()
    for name, three, points in (
        ("ties", (0.5, 0.5, 1.0), (0, 0, 0)),
        ("ties-odd-zero", (0.25, 0.5, 0.5), (1, -1, 1)),
        ("saturates", (0.5, 0.5, 0.1), (10, -10, 5)),
    ):
        added = Addition(scales=three, zeros=points, pair=(EVERY, others))
        yield added.case(f"L2/add-{name}{suffix}", f"OP_E_ADD of every value, {name}", arch)
    unsigned = Addition(
        scales=(0.5, 0.25, 0.5),
        zeros=(128, 3, 128),
        offset=128,
        limits=(-100, 90),
        pair=(EVERY, others),
    )
    yield unsigned.case(
        f"L2/add-uint8-ties{suffix}", "OP_E_ADD of uint8 tensors, ties, clamped", arch
    )
    grid = np.repeat(EVERY, 256), np.tile(EVERY, 256)
    fused = Addition(scales=(0.1, 0.7, 0.6), zeros=(3, -5, 7), pair=grid)
    yield fused.case(
        f"L2/add-every-pair{suffix}",
        "all pairs, with scales that need each rounding done once",
        arch,
    )
    for short, mnemonic in (("min", "OP_C_MIN"), ("max", "OP_C_MAX")):
        yield pair_case(
            f"L2/{short}-every{suffix}",
            f"{mnemonic} of every value",
            arch,
            mnemonic,
            (EVERY, others),
        )


def _accumulators(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    """Yield long sums of extreme products, up to the last int32.

    Beyond 2**24 float32 rounds.
    """
    low = np.full((128, 3, 3), -128, np.int8)
    for name, weight in (("highest", -128), ("lowest", 127)):
        weights = np.full((3, 128, 3, 3), weight, np.int8)
        channels = packed(np.array([-7, 0, 9]), np.array([6e-6, 1e-6, 3e-9]), arch)
        window = Window((128, 3, 3), padding=NONE)
        convolution = Convolution(window, 3, input=low, weights=weights, channels=channels)
        yield convolution.case(
            f"L2/conv-sums-{name}{suffix}", "sums of 1152 extreme products", arch
        )
    crossed = Convolution(Window((2, 3, 3)), 2, relu=True, zeros=(0, 50), limits=(-128, 20))
    yield crossed.case(
        f"L2/conv-relu-over-limit{suffix}",
        "ReLU's zero point lies above the upper limit: a stop",
        arch,
    )
    odd = Product(
        (2, 2047, 2),
        False,
        left=np.full((2, 2047), 127, np.int8),
        right=np.full((2047, 2), 127, np.int8),
    )
    yield odd.case(
        f"L2/matmul-odd-sum{suffix}", "an odd sum beyond 2**24, kept as accumulators", arch
    )
    wide = machine(arch.isa, arch.numerics, sram_bytes=1 << 20)
    left = np.full((1, 131071), -128, np.int8)
    right = np.full((131071, 1), -128, np.int8)
    for name, bias in (("last-int32", 16383), ("overflow", 16384)):
        record = packed(np.array([bias]), np.array([5e-8]), arch)
        product = Product(
            (1, 131071, 1), name != "last-int32", left=left, right=right, channels=record
        )
        yield product.case(
            f"L2/matmul-{name}{suffix}", f"131071 products of 2**14 and {bias}", wide
        )


def _wide(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    data = np.concatenate([LIMITS, ODD])
    for rounding, word in enumerate(("floor", "even", "away")):
        for amount in (0, 1, 3, 31):
            name = f"L2/wide-shift-{word}-{amount}{suffix}"
            yield shift_case(name, f"right by {amount}, {word}", arch, data, amount, 1, rounding)
    yield shift_case(
        f"L2/wide-left-30{suffix}", "left to the ends of int32", arch, ODD[22:25], 30, 0, 0
    )
    yield shift_case(
        f"L2/wide-left-overflow{suffix}", "a shift that stops the machine", arch, ODD, 30, 0, 0
    )
    ends = np.array([-(2**31), 2**31 - 1, 5], np.int32), np.array([0, 0, -5], np.int32)
    yield pair_case(
        f"L2/wide-add-ends{suffix}", "sums at the ends of int32", arch, "OP_E32_ADD", ends
    )
    over = ends[0], np.array([-1, 0, 0], np.int32)
    yield pair_case(
        f"L2/wide-add-overflow{suffix}", "a sum that stops the machine", arch, "OP_E32_ADD", over
    )
