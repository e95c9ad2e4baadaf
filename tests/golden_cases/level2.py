"""Level 2, the corners: values, shapes, large operands, and what a machine must refuse.

Values saturate at both ends, tie in rounding, sum up to the edge of int32. Shapes are the smallest, have odd strides,
wide padding, odd channels, the largest fields, gaps. Large operands are of sizes at which an implementation that works
in blocks takes another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa.arch import Arch
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE
from isa.ops.requant import ChannelScales, pack_records
from tests.golden_cases.builder import Builder
from tests.golden_cases.machines import BALANCED, FIXED, GROUPED, TABLES, machine
from tests.golden_cases.operations import (
    Addition,
    Convolution,
    DynamicProduct,
    LookUp,
    OnRows,
    Permutation,
    Pooling,
    Product,
    Repeating,
    Requantisation,
    Resizing,
    Unary,
    Window,
    generator,
    int8,
    packed,
    pair_case,
    shift_case,
)

NONE = (0, 0, 0, 0)
EVERY = np.arange(-128, 128).astype(np.int8)
LIMITS = np.array([-(2**31), -(2**31) + 1, -(2**24) - 1, -(2**24), -1, 0, 1, 2**24, 2**24 + 1, 2**31 - 1], np.int32)
ODD = np.arange(-23, 25, dtype=np.int32)


POINT = Window((1, 1, 1), (1, 1), padding=NONE)
WINDOWS: Mapping[str, Window] = {
    "stride-3-5": Window((3, 11, 14), (3, 3), (3, 5)),
    "stride-5-3-kernel-2-4": Window((3, 13, 9), (2, 4), (5, 3), padding=(1, 2, 0, 1)),
    "stride-over-kernel": Window((4, 9, 9), (1, 1), (4, 3), padding=NONE),
    "padding-over-half": Window((3, 4, 4), padding=(4, 5, 3, 4)),
    "padding-one-side": Window((3, 5, 4), padding=(2, 0, 0, 2)),
    "padding-only-bottom": Window((3, 5, 4), (4, 3), padding=(0, 0, 3, 1)),
    "dilation-3-1": Window((3, 9, 6), dilation=(3, 1), padding=(3, 1, 3, 1)),
    "dilation-over-input": Window((3, 4, 4), dilation=(4, 5), padding=(4, 5, 4, 5)),
    "column": Window((5, 12, 1), (5, 1), (2, 1), padding=(2, 0, 2, 0)),
    "row": Window((5, 1, 12), (1, 4), (1, 3), padding=(0, 1, 0, 1)),
    "whole-plane": Window((6, 5, 4), (5, 4), padding=NONE),
}
CHANNELS = ((9, 13), (7, 1), (1, 17), (65, 3), (8, 8))
LARGEST: Mapping[str, Window] = {
    "kernel-255": Window((1, 255, 2), (255, 1), padding=NONE),
    "stride-255": Window((1, 256, 256), (1, 1), (255, 255), padding=NONE),
    "dilation-255": Window((1, 256, 256), (2, 2), dilation=(255, 255), padding=NONE),
    "padding-255-rows": Window((2, 2, 2), (255, 1), padding=(255, 0, 0, 0)),
    "padding-255-columns": Window((2, 2, 2), (1, 255), padding=(0, 255, 0, 0)),
    "width-65535": Window((1, 1, 65535), (1, 3), (1, 255), padding=NONE),
}


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
    yield from _rows()
    yield from _resizes()


def _requantisation(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    """Scales of a half and a quarter make ties of every second value."""
    ties = Requantisation((1, 2, 24), 0, input=ODD.reshape(1, 2, 24), scale=np.array([0.5, 0.5]))
    yield ties.case(f"L2/requant-ties{suffix}", "ties to even, or away from zero", arch)
    shifted = Requantisation((1, 2, 24), -3, input=ODD.reshape(1, 2, 24), scale=np.array([0.5, 0.25]))
    yield shifted.case(f"L2/requant-ties-odd-zero{suffix}", "the zero point is added after rounding", arch)
    fives = np.arange(-255, 260, 10, dtype=np.int32)
    almost = Requantisation((1, 2, fives.size), 0, input=np.tile(fives, (1, 2, 1)), scale=np.array([0.1, 0.3]))
    yield almost.case(f"L2/requant-ties-of-float32{suffix}", "ties in float32 that are none in real numbers", arch)
    twice = np.array([[[3 * 2**23 - 1, 3 * 2**23, 3 * 2**23 + 1, -3 * 2**23 + 1]]], np.int32)
    carried = Requantisation((1, 1, 4), 0, input=twice, scale=np.array([2.0**-24]))
    yield carried.case(f"L2/requant-accumulator-rounds{suffix}", "float32 of the accumulator makes the tie", arch)
    big = ODD.reshape(1, 2, 24) * 50000
    for name, limits in (("both-ends", (-128, 127)), ("narrow", (-1, 1)), ("one-value", (5, 5))):
        saturated = Requantisation((1, 2, 24), 0, limits, big, np.array([0.01, 0.0001]))
        yield saturated.case(f"L2/requant-saturates-{name}{suffix}", f"clamped to {limits}", arch)
    for name, zero in (("highest", 32767), ("lowest", -32768), ("high", 127), ("low", -128)):
        far = Requantisation((1, 1, 48), zero, input=ODD.reshape(1, 1, 48) * 900, scale=np.array([0.7]))
        yield far.case(f"L2/requant-zero-{name}{suffix}", f"output zero point {zero}", arch)
    scales = np.array([2.0**-31, 1.0 / 3.0, 2.0**-24, 5.9e-8, 1.5e-38 if arch.numerics == "onnxruntime" else 1e-9])
    edge = Requantisation((1, 5, 10), 1, input=np.tile(LIMITS, (1, 5, 1)), scale=scales)
    yield edge.case(f"L2/requant-limits-of-int32{suffix}", "accumulators at the limits of int32 and of float32", arch)
    if arch.numerics == "fixed":
        yield _raw_multipliers(arch)
        yield _saturating_shifts(arch)
        yield from _rounded_once(arch)


def _raw_multipliers(arch: Arch) -> GoldenCase:
    """Multipliers and shifts at their limits; a product of exactly half, of either sign; both roundings at once."""
    multipliers = [1 << 30, (1 << 31) - 1, 0, 1 << 30, 1 << 30, (1 << 30) + 1, -(1 << 31)]
    shifts = [1, 0, 5, -1, -31, -3, 0]
    raw = np.array([[0, m, s] for m, s in zip(multipliers, shifts, strict=True)], "<i4")
    data = np.tile(np.array([-6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6, 2**25, -(2**25)], np.int32), (1, 7, 1))
    data[0, 6, 0] = -(2**31)
    case = Requantisation((1, 7, 13), 0, input=data, raw=np.frombuffer(raw.tobytes(), np.uint8))
    return case.case("L2/requant-multipliers-fixed", "limits of multiplier and shift; ties of both roundings", arch)


def _saturating_shifts(arch: Arch) -> GoldenCase:
    """Shifts to the left that take accumulators beyond int32, and some just not."""
    raw = np.array([[0, (1 << 30) + 12345, shift] for shift in (1, 7, 12, 20, 24, 29, 30)], "<i4")
    powers = np.array([0, 1, 2, 6, 7, 8, 11, 18, 19, 24, 28, 30])
    data = np.tile(np.concatenate([1 << powers, -(1 << powers), [2**31 - 1, -(2**31)]]).astype(np.int32), (1, 7, 1))
    case = Requantisation((1, 7, data.shape[2]), 2, input=data, raw=np.frombuffer(raw.tobytes(), np.uint8))
    return case.case("L2/requant-shifts-saturate-fixed", "accumulators that a left shift takes beyond int32", arch)


def _rounded_once(arch: Arch) -> Iterator[GoldenCase]:
    """Records that hold a float64 factor: ties, products that float64 rounds to a tie, both ends; some that do not."""
    factors = np.array([0.5, 0.5 / 3, 5.5 / 3, np.nextafter(0.5, 0), 3.7, 2.0**-23, 2.0**-40, 1e-12])
    scales = ChannelScales(factors.astype(np.float32), factors, once=True)
    raw = np.frombuffer(pack_records(np.zeros(8, np.int32), scales, arch), np.uint8)
    small = np.array([-9, -6, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6, 9], np.int32)
    large = np.array([2**31 - 1, -(2**31), 3 * 2**22, -3 * 2**22, 3 * 2**22 - 1, 2**30 + 1], np.int32)
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
    yield average.case(f"L2/average-ties{suffix}", "means that end in a half, same quantisation", arch)
    rescaled = Pooling(AVERAGE, window, (0.1, 0.2), (3, -5), input=pairs)
    yield rescaled.case(f"L2/average-ties-rescaled{suffix}", "means that end in a half, another quantisation", arch)
    ends = np.where(pairs < 0, np.int8(-128), np.int8(127))
    loud = Pooling(AVERAGE, Window((4, 4, 4), (3, 3)), (0.4, 0.1), (-20, 11), input=ends)
    yield loud.case(f"L2/average-saturates{suffix}", "averages beyond both ends", arch)
    tie = Pooling(
        GLOBAL_AVERAGE, Window((8, 1, 2), (1, 2), padding=NONE), (0.1, 0.1), input=EVERY[:16].reshape(8, 1, 2)
    )
    yield tie.case(f"L2/global-average-ties{suffix}", "global means that end in a half", arch)
    top = Pooling(limits=(-20, 20), window=Window((4, 4, 4), (2, 2), (2, 2), padding=NONE), input=pairs)
    yield top.case(f"L2/max-clamped{suffix}", "maximum between limits", arch)
    yield Pooling(window=Window((2, 3, 3), (3, 3)), input=np.full((2, 3, 3), -128, np.int8)).case(
        f"L2/max-of-lowest{suffix}", "maximum of the lowest value, next to padding", arch
    )


def _elementwise(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    for short, mnemonic in (("relu", "OP_ACT_RELU"), ("leaky", "OP_ACT_LRELU"), ("abs", "OP_E_ABS")):
        for name, scales, zeros in (("ties", (0.5, 1.0), (0, 0)), ("saturates", (0.5, 0.125), (-7, 3))):
            unary = Unary(mnemonic, scales=scales, slope=0.5, zeros=zeros, input=EVERY)
            yield unary.case(f"L2/{short}-{name}{suffix}", f"{mnemonic} of every value, {name}", arch)
        if mnemonic == "OP_ACT_LRELU":
            falling = Unary(mnemonic, scales=(0.5, 0.5), slope=-0.5, zeros=(-1, 3), input=EVERY)
            yield falling.case(f"L2/leaky-relu-falls{suffix}", "a negative slope, ties", arch)
        clamped = Unary(mnemonic, scales=(0.1, 0.1), zeros=(128, -129), limits=(-60, 60), input=EVERY)
        yield clamped.case(f"L2/{short}-far-zero{suffix}", f"{mnemonic}, zero points beyond int8", arch)
    others = np.roll(EVERY[::-1], 37).copy()
    for name, three, points in (
        ("ties", (0.5, 0.5, 1.0), (0, 0, 0)),
        ("ties-odd-zero", (0.25, 0.5, 0.5), (1, -1, 1)),
        ("saturates", (0.5, 0.5, 0.1), (10, -10, 5)),
    ):
        added = Addition(scales=three, zeros=points, pair=(EVERY, others))
        yield added.case(f"L2/add-{name}{suffix}", f"OP_E_ADD of every value, {name}", arch)
    unsigned = Addition(
        scales=(0.5, 0.25, 0.5), zeros=(128, 3, 128), offset=128, limits=(-100, 90), pair=(EVERY, others)
    )
    yield unsigned.case(f"L2/add-uint8-ties{suffix}", "OP_E_ADD of uint8 tensors, ties, clamped", arch)
    grid = np.repeat(EVERY, 256), np.tile(EVERY, 256)
    fused = Addition(scales=(0.1, 0.7, 0.6), zeros=(3, -5, 7), pair=grid)
    yield fused.case(f"L2/add-every-pair{suffix}", "all pairs, with scales that need each rounding done once", arch)
    for short, mnemonic in (("min", "OP_C_MIN"), ("max", "OP_C_MAX")):
        yield pair_case(f"L2/{short}-every{suffix}", f"{mnemonic} of every value", arch, mnemonic, (EVERY, others))


def _accumulators(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    """Long sums of extreme products: beyond 2**24, where float32 rounds, and up to the last int32."""
    low = np.full((128, 3, 3), -128, np.int8)
    for name, weight in (("highest", -128), ("lowest", 127)):
        weights = np.full((3, 128, 3, 3), weight, np.int8)
        channels = packed(np.array([-7, 0, 9]), np.array([6e-6, 1e-6, 3e-9]), arch)
        window = Window((128, 3, 3), padding=NONE)
        convolution = Convolution(window, 3, input=low, weights=weights, channels=channels)
        yield convolution.case(f"L2/conv-sums-{name}{suffix}", "sums of 1152 extreme products", arch)
    crossed = Convolution(Window((2, 3, 3)), 2, relu=True, zeros=(0, 50), limits=(-128, 20))
    yield crossed.case(f"L2/conv-relu-over-limit{suffix}", "ReLU's zero point lies above the upper limit: a stop", arch)
    odd = Product((2, 2047, 2), False, left=np.full((2, 2047), 127, np.int8), right=np.full((2047, 2), 127, np.int8))
    yield odd.case(f"L2/matmul-odd-sum{suffix}", "an odd sum beyond 2**24, kept as accumulators", arch)
    wide = machine(arch.isa, arch.numerics, sram_bytes=1 << 20)
    left, right = np.full((1, 131071), -128, np.int8), np.full((131071, 1), -128, np.int8)
    for name, bias in (("last-int32", 16383), ("overflow", 16384)):
        record = packed(np.array([bias]), np.array([5e-8]), arch)
        product = Product((1, 131071, 1), name != "last-int32", left=left, right=right, channels=record)
        yield product.case(f"L2/matmul-{name}{suffix}", f"131071 products of 2**14 and {bias}", wide)


def _wide(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    data = np.concatenate([LIMITS, ODD])
    for rounding, word in enumerate(("floor", "even", "away")):
        for amount in (0, 1, 3, 31):
            name = f"L2/wide-shift-{word}-{amount}{suffix}"
            yield shift_case(name, f"right by {amount}, {word}", arch, data, amount, 1, rounding)
    yield shift_case(f"L2/wide-left-30{suffix}", "left to the ends of int32", arch, ODD[22:25], 30, 0, 0)
    yield shift_case(f"L2/wide-left-overflow{suffix}", "a shift that stops the machine", arch, ODD, 30, 0, 0)
    ends = np.array([-(2**31), 2**31 - 1, 5], np.int32), np.array([0, 0, -5], np.int32)
    yield pair_case(f"L2/wide-add-ends{suffix}", "sums at the ends of int32", arch, "OP_E32_ADD", ends)
    over = ends[0], np.array([-1, 0, 0], np.int32)
    yield pair_case(f"L2/wide-add-overflow{suffix}", "a sum that stops the machine", arch, "OP_E32_ADD", over)


def shapes() -> Iterator[GoldenCase]:
    """Shapes, on both numerics where they round."""
    for suffix, arch, grouped in (("", BALANCED, GROUPED), ("-fixed", FIXED, machine("v3", "fixed"))):
        yield from _smallest(suffix, arch, grouped)
        yield from _windows(suffix, arch)
    yield from _channels()
    yield from _largest()
    yield from _gaps()
    yield from _nothing()
    yield _overlap()


def _smallest(suffix: str, arch: Arch, grouped: Arch) -> Iterator[GoldenCase]:
    for groups, name in ((0, "conv"), (-1, "depth"), (1, "group")):
        one = Convolution(POINT, 1, groups)
        yield one.case(f"L2/{name}-1x1x1{suffix}", "one element", grouped if groups == 1 else arch)
    for mode, name in ((0, "max"), (AVERAGE, "average"), (GLOBAL_AVERAGE, "global-average")):
        yield Pooling(mode, POINT).case(f"L2/{name}-1x1x1{suffix}", "one element", arch)
    yield Product((1, 1, 1)).case(f"L2/matmul-1x1x1{suffix}", "one element", arch)
    yield Requantisation((1, 1, 1)).case(f"L2/requant-1x1x1{suffix}", "one element", arch)
    yield Unary(length=1).case(f"L2/relu-1{suffix}", "one element", arch)
    yield Addition(1).case(f"L2/add-1{suffix}", "one element", arch)


def _windows(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    for name, window in WINDOWS.items():
        channels = window.shape[0]
        convolution = Convolution(window, 5, zeros=(-77, 9))
        yield convolution.case(f"L2/conv-{name}{suffix}", f"OP_CONV, {name}", arch)
        depth = Convolution(window, channels, -1, zeros=(55, -3))
        yield depth.case(f"L2/depth-{name}{suffix}", f"OP_DEPTH_CONV, {name}", arch)
        yield Pooling(window=window).case(f"L2/max-{name}{suffix}", f"OP_POOL maximum, {name}", arch)
        average = Pooling(AVERAGE, window, (0.05, 0.03), (17, -6), count_include_pad=True)
        yield average.case(f"L2/average-{name}{suffix}", f"OP_POOL average, {name}", arch)


def _channels() -> Iterator[GoldenCase]:
    """Channels that are no multiple of the array's sides."""
    for inputs, outputs in CHANNELS:
        arch = machine("v3", "onnxruntime")
        name = f"{inputs}-to-{outputs}"
        window = Window((inputs, 4, 5))
        yield Convolution(window, outputs).case(f"L2/conv-{name}", f"{inputs} to {outputs} channels", arch)
        same = Convolution(window, inputs, -1, relu=True)
        yield same.case(f"L2/depth-{inputs}-of-{name}", f"{inputs} channels", arch)
        yield Pooling(window=window).case(f"L2/max-{inputs}-of-{name}", f"{inputs} channels", arch)
        yield Product((3, inputs, outputs)).case(f"L2/matmul-{name}", f"{inputs} by {outputs}", arch)
    for groups, inputs, outputs in ((3, 9, 15), (5, 5, 10), (7, 21, 7), (2, 34, 2)):
        arch = Arch.model_validate({"isa": "v3", "pe": {"ic": 6, "oc": 4, "ow": 2}})
        grouped = Convolution(Window((inputs, 4, 5)), outputs, groups)
        yield grouped.case(f"L2/group-{groups}-{inputs}-to-{outputs}", "groups that leave the array idle", arch)


def _largest() -> Iterator[GoldenCase]:
    """Fields at their largest values, as far as a scratchpad can hold what they mean."""
    arch = machine("v2", "onnxruntime", sram_bytes=1 << 23)
    for name, window in LARGEST.items():
        data = np.resize(np.arange(-100, 101, dtype=np.int8), window.shape)
        weights = np.resize(np.arange(-3, 4, dtype=np.int8), (2, window.shape[0], *window.kernel))
        convolution = Convolution(window, 2, zeros=(-128, 3), input=data, weights=weights)
        yield convolution.case(f"L2/conv-{name}", f"OP_CONV, {name}", arch)
        yield Pooling(window=window, input=data).case(f"L2/max-{name}", f"OP_POOL maximum, {name}", arch)
    many = (1 << 20) - 1
    row = np.resize(np.arange(-5, 6, dtype=np.int8), (1, many))
    thin = Product((1, many, 1), left=row, right=np.resize(np.array([1, -1, 0], np.int8), (many, 1)))
    yield thin.case("L2/matmul-k-1048575", "the longest product", arch)
    tall = Product((many, 1, 1), left=row.T.copy(), right=np.array([[7]], np.int8))
    yield tall.case("L2/matmul-m-1048575", "the tallest product", arch)
    counts = {"count_1": many, "dram_stride_1": 0, "sram_stride_1": 0}
    builder = Builder(arch, "count")
    source, target = builder.input("input", np.arange(8, dtype=np.int8)), builder.output("result", "int8", (8,))
    builder.read(source + 2, builder.scratch(8), 1, "push.EX", **counts)
    builder.operation("OP_SYNC", {}, "pop.LD push.ST", unit=1)
    builder.write(target, 0, 8, "pop.EX")
    yield builder.case("L2/read-count-1048575", "the same byte a million times")


def _gaps() -> Iterator[GoldenCase]:
    """Planes farther apart than they are long, of inputs and of results."""
    for name, mnemonic, fields in (
        ("conv", "OP_CONV", {"requantise": 1}),
        ("conv-accumulators", "OP_CONV", {}),
        ("depth", "OP_DEPTH_CONV", {"requantise": 1}),
        ("max", "OP_POOL", {}),
    ):
        builder, rng, window = Builder(BALANCED, f"gaps-{name}"), generator(name), Window((3, 4, 4))
        source, weights = builder.input("input", int8(rng, 3, 40)), builder.image(int8(rng, 3, 27))
        channels = builder.image(packed(np.array([5, -9, 0]), np.array([2.0**-8, 2.0**-9, 2.0**-10]), BALANCED))
        target = builder.output("result", "int8", (240,))
        places = [builder.scratch(size) for size in (120, 81, 24, 240)]
        for here, there, size in zip((source, weights, channels), places, (120, 81, 24), strict=False):
            builder.read(here, there, size, "push.EX" if size == 24 else "")
        names = ("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS")
        registers = {**window.registers(3), **dict(zip(names, places, strict=True))}
        registers |= {"EX_INPUT_PLANE": 40, "EX_OUTPUT_PLANE": 80}
        builder.operation(mnemonic, registers, "pop.LD push.ST", **fields)
        builder.write(target, places[3], 240, "pop.EX")
        yield builder.case(f"L2/gaps-{name}", f"{mnemonic} between planes with gaps")


def _nothing() -> Iterator[GoldenCase]:
    """Commands without work, on a machine whose overheads are 0: each still takes a cycle."""
    lean = Timing(dma_setup=0, dma_drain=0, ex_fill=0, ex_drain=0, dram_latency=0, outstanding_bursts=1)
    builder = Builder(BALANCED, "nothing")
    source, target = builder.input("input", np.arange(8, dtype=np.int8)), builder.output("result", "int8", (8,))
    builder.read(source, 0, 0)
    builder.read(source, 0, 4, count_2=0)
    builder.read(source, 0, 8, "push.EX", count_2=1)
    builder.operation("OP_C_MAX", {"EX_LENGTH": 0}, "pop.LD")
    builder.operation("OP_C_MIN", {"EX_LENGTH": 8, "EX_OUTPUT_ADDRESS": 64}, "push.ST")
    builder.write(target, 64, 8, "pop.EX")
    yield builder.case("L2/nothing", "commands without bytes or elements, no overhead", lean)
    empty = np.zeros(0, np.int8)
    yield pair_case("L2/max-0", "no elements", BALANCED, "OP_C_MAX", (empty, empty))


def _pairs(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    """Every value with some, full of ties; ends that saturate; nothing; every field of repeats on a few values."""
    some = np.array([[-128], [-127], [-3], [-1], [0], [1], [2], [126], [127]], np.int8)
    for name, mnemonic in (("mul", "OP_E_MUL"), ("sub", "OP_E_SUB"), ("b-add", "OP_B_ADD"), ("div", "OP_E_DIV")):
        scales = (0.5, 0.25, 0.25 if name == "mul" else 0.5)
        every = Repeating(mnemonic, (9, 256), (2, 1), scales, (3, -1, 7), pair=(EVERY, some))
        yield every.case(f"L2/{name}-ties{suffix}", f"{mnemonic} of every value, ties", arch)
        unsigned = Repeating(mnemonic, (9, 256), (2, 1), scales, (131, 127, 1), 128, (-100, 90), (EVERY, some))
        yield unsigned.case(f"L2/{name}-uint8-ties{suffix}", f"{mnemonic} of uint8 tensors, ties, clamped", arch)
        yield Repeating(mnemonic, (0, 7)).case(f"L2/{name}-no-channels{suffix}", "no channels", arch)
        yield Repeating(mnemonic, (7, 0)).case(f"L2/{name}-0{suffix}", "no elements", arch)
    for repeats in np.ndindex(4, 4):
        name = f"L2/sub-repeats-{repeats[0]}-{repeats[1]}{suffix}"
        yield Repeating("OP_E_SUB", (3, 5), (repeats[0], repeats[1])).case(name, f"repeats {repeats}", arch)


def _look_ups() -> Iterator[GoldenCase]:
    """Every value and every entry; no elements; results over the operand and over the tables themselves."""
    mixed = (np.arange(256) * 77 % 256).astype(np.uint8).view(np.int8)
    every = LookUp((1, 1, 256), EVERY.reshape(1, 1, 256), mixed.reshape(1, 256))
    yield every.case("L2/lut-every", "OP_LUT of every value, every entry another", TABLES)
    own = np.stack([np.roll(mixed, channel) for channel in range(5)])
    planes = LookUp((1, 5, 256), np.tile(EVERY, (1, 5, 1)), own)
    yield planes.case("L2/lut-every-planes", "every value in five channels with a table each", TABLES)
    matrix = LookUp((256, 5, 1), np.repeat(EVERY, 5).reshape(256, 5, 1), own)
    yield matrix.case("L2/lut-every-matrix", "every value in five columns with a table each", TABLES)
    yield LookUp((1, 1, 0)).case("L2/lut-0", "no elements", TABLES)
    yield LookUp((1, 1, 1)).case("L2/lut-1", "one element", TABLES)
    for name, shape, shift in (("operand", (1, 1, 600), 64), ("tables", (1, 2, 300), 700), ("same", (1, 2, 300), 0)):
        yield _over(name, shape, shift)
    yield _over_last_tables()


def _permutations() -> Iterator[GoldenCase]:
    """No bytes, one byte, results at one address, results over sources, gaps that keep what is there."""
    edges = {
        "none": Permutation(8, 8, ((4, 1, 1), (0, 4, 4))),
        "one": Permutation(1, 1, ((1, 9, 9), (1, 7, 7))),
        "last-remains": Permutation(12, 8, ((4, 1, 2), (3, 4, 0))),
        "overlapping-rows": Permutation(12, 8, ((4, 1, 1), (3, 4, 2))),
        "gaps": Permutation(40, 40, ((5, 1, 2), (4, 10, 10))),
        "one-byte-everywhere": Permutation(1, 60, ((10, 0, 1), (6, 0, 10))),
        "fill-low-byte": Permutation(4, 30, ((30, 0, 1),), fill=0x17F),
    }
    for name, move in edges.items():
        yield move.case(f"L2/permute-{name}", f"OP_PERMUTE of {move.dims}", TABLES)
    for name, shift in (("behind", 3), ("before", -3), ("same", 0)):
        count = 60
        builder = Builder(TABLES, f"permute-over-{name}")
        data = builder.input("input", int8(generator(f"L2/permute-over-{name}"), count))
        target = builder.output("result", "int8", (count,))
        place = builder.scratch(3 * count) + count
        builder.read(data, place, count, "push.EX")
        dims = {"EX_COUNT_1": 6, "EX_INPUT_STRIDE_1": 10, "EX_OUTPUT_STRIDE_1": 1}
        dims |= {"EX_COUNT_2": 10, "EX_INPUT_STRIDE_2": 1, "EX_OUTPUT_STRIDE_2": 6}
        places = {"EX_INPUT_ADDRESS": place, "EX_OUTPUT_ADDRESS": place + shift}
        builder.operation("OP_PERMUTE", {**places, **dims}, "pop.LD push.ST")
        builder.write(place + shift, target, count, "pop.EX")
        yield builder.case(f"L2/permute-over-{name}", "OP_PERMUTE, results over the sources")


def _rows() -> Iterator[GoldenCase]:
    """Ties, every value, rows of one element and of equal elements, long rows whose sum depends on its order."""
    ties = np.array([[0, 1], [0, 3], [0, -1], [-1, -2], [5, 6], [-7, 0]], np.int8)
    low, steps = np.full((1, 40), -128, np.int8), np.tile(EVERY, (4, 1))
    uneven, even = np.tile(np.arange(-128, 127, 3, dtype=np.int8), (1, 20)), np.array([[9] * 6, [-128] * 6], np.int8)
    unit = np.array([[1.0, 0.0]])
    halves = np.repeat(np.array([[0], [9], [-50]], np.int8), 2, axis=1)
    late, lowest = np.full((1, 20001), -100, np.int8), np.arange(-128, -88, dtype=np.int8).reshape(2, 20)
    late[0, 0] = 0  # a sum of one large and many small numbers depends on its order
    close = np.where(np.arange(600) % 7 < 2, 127, 126).astype(np.int8)[np.newaxis]
    mean: dict[str, Any] = {"scales": (0.5, 0.5), "zeros": (0, 0)}
    soft: dict[str, Any] = {"scales": (0.03, 1 / 256), "zeros": (0, -128)}
    normal: dict[str, Any] = {"fields": {"centred": 1}, "scales": (0.1, 2.0**-6), "zeros": (0, 0)}
    root: dict[str, Any] = {**normal, "fields": {}, "zeros": (-128, 7)}
    fine: dict[str, Any] = {**normal, "scales": (0.1, 1 / 8000), "zeros": (0, -12620)}
    narrow = {**soft, "scales": (2.0**-10, 0.5)}
    cases = {
        "mean-ties": OnRows("OP_REDUCE", (6, 2, 1), input=ties, **mean),
        "mean-saturates": OnRows("OP_REDUCE", (1, 40, 1), scales=(0.5, 0.01), zeros=(127, 0), input=low),
        "mean-of-one": OnRows("OP_REDUCE", (256, 1, 1), input=EVERY.reshape(256, 1), **mean),
        "sum-far-zeros": OnRows("OP_REDUCE", (4, 256, 1), scales=(1.0, 256.0), zeros=(-32768, 32767), input=steps),
        "largest-of-one": OnRows("OP_REDUCE", (256, 1, 1), {"mode": 1}, (0.5, 0.2), input=EVERY.reshape(256, 1)),
        "smallest-ties": OnRows("OP_REDUCE", (1, 1, 256), {"mode": 2}, (0.5, 1.0), (0, 0), input=EVERY[np.newaxis]),
        "softmax-every": OnRows("OP_SOFTMAX", (1, 256, 1), input=EVERY[np.newaxis], **soft),
        "softmax-equal": OnRows("OP_SOFTMAX", (2, 6, 1), input=even, **soft),
        "softmax-ties": OnRows("OP_SOFTMAX", (2, 6, 1), input=np.zeros((2, 6), np.int8), **narrow),
        "softmax-long": OnRows("OP_SOFTMAX", (1, uneven.size, 1), input=uneven, **{**soft, "scales": (0.0003, 2e-5)}),
        "softmax-order": OnRows("OP_SOFTMAX", (1, 20001, 1), scales=(0.105, 3e-5), zeros=(0, -21500), input=late),
        "softmax-low": OnRows("OP_SOFTMAX", (2, 20, 1), input=lowest, **{**soft, "scales": (1.5, 1 / 256)}),
        "softmax-halves": OnRows("OP_SOFTMAX", (3, 2, 1), scales=(0.03, 1 / 43.5), zeros=(0, 0), input=halves),
        "softmax-two": OnRows("OP_SOFTMAX", (1, 2, 256), input=np.stack([EVERY, EVERY[::-1]]), **soft),
        "layer-norm-constant": OnRows("OP_NORM", (2, 6, 1), input=even, pairs=np.ones((6, 2)), **normal),
        "layer-norm-ties": OnRows("OP_NORM", (6, 2, 1), input=ties, pairs=np.repeat(unit, 2, 0) / 128, **normal),
        "layer-norm-cancels": OnRows("OP_NORM", (1, 600, 1), input=close, pairs=np.repeat(unit, 600, 0), **fine),
        "layer-norm-every": OnRows("OP_NORM", (4, 256, 1), input=steps, pairs=np.repeat(unit, 256, 0), **normal),
        "rms-norm-every": OnRows("OP_NORM", (4, 256, 1), input=steps, pairs=np.repeat(unit, 256, 0), **root),
        "rms-norm-zero": OnRows("OP_NORM", (1, 40, 1), input=low, pairs=np.ones((40, 2)), **root),
    }
    for name, on_rows in cases.items():
        for suffix, numerics in (("", "onnxruntime"), ("-fixed", "fixed")):
            arch = machine("v4", numerics)
            yield on_rows.case(f"L2/{name}{suffix}", f"{on_rows.mnemonic}: {name.replace('-', ' ')}", arch)
    bad = OnRows("OP_SOFTMAX", (1, 4, 1), table=np.zeros(256, np.float32), **soft)
    yield bad.case("L2/softmax-of-nothing", "exponentials that are all 0", TABLES)
    flat = {**normal, "scales": (1e30, 1.0)}  # epsilon on integers is then 0
    yield OnRows("OP_NORM", (2, 6, 1), input=even, **flat).case("L2/layer-norm-without-epsilon", "no variance", TABLES)


def _resizes() -> Iterator[GoldenCase]:
    """Ties, coordinates on elements and beyond the ends, sums that depend on their order, all values."""
    thirds = tuple(float(np.float32(index / 3)) for index in range(46))
    halves = tuple(index / 2 for index in range(-2, 35))
    every = EVERY.reshape(1, 16, 16)
    cases = {
        "ties": Resizing((1, 16, 16), halves, halves, (0.25, 0.25), (0, 0), input=every),
        "thirds": Resizing((1, 16, 16), thirds, thirds, (0.05, 0.05), (-128, 1), input=every),
        "finer": Resizing((1, 16, 16), halves, thirds, (0.1, 0.05), (7, -3), input=every),
        "coarse": Resizing((1, 16, 16), thirds, halves, (0.013, 0.1), (127, 127), input=every),
        "saturates": Resizing((1, 16, 16), (0.5, 14.5), (0.0, 15.0), (1.0, 0.001), (0, 0), input=every),
        "of-one": Resizing((256, 1, 1), (0.0, 0.4), (0.0,), (0.1, 0.3), (5, 6), input=EVERY.reshape(256, 1)),
    }
    for name, resizing in cases.items():
        for suffix, numerics in (("", "onnxruntime"), ("-fixed", "fixed")):
            text = f"interpolation: {name.replace('-', ' ')}"
            yield resizing.case(f"L2/resize-{name}{suffix}", text, machine("v4", numerics))
    yield Resizing(rows=(0.0, float("nan"))).case("L2/resize-nowhere", "a coordinate that is no number", TABLES)


def _over(name: str, shape: tuple[int, int, int], shift: int) -> GoldenCase:
    """A look-up whose result begins ``shift`` bytes behind the operand; the tables lie right behind the operand."""
    count, channels = shape[0] * shape[1] * shape[2], shape[1]
    builder = Builder(TABLES, f"lut-over-{name}")
    rng = generator(f"L2/lut-over-{name}")
    data, tables = builder.input("input", int8(rng, count)), builder.image(int8(rng, channels, 256))
    target = builder.output("result", "int8", (count,))
    places = {"EX_INPUT_ADDRESS": builder.scratch(count), "EX_OPERAND_ADDRESS": builder.scratch(256 * channels)}
    builder.read(data, places["EX_INPUT_ADDRESS"], count)
    builder.read(tables, places["EX_OPERAND_ADDRESS"], 256 * channels, "push.EX")
    result = places["EX_INPUT_ADDRESS"] + shift
    registers = dict(zip(("EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH"), shape, strict=True))
    builder.operation("OP_LUT", {**places, "EX_OUTPUT_ADDRESS": result, **registers}, "pop.LD push.ST")
    builder.write(target, result, count, "pop.EX")
    return builder.case(f"L2/lut-over-{name}", f"OP_LUT, results over the {name}")


def _over_last_tables() -> GoldenCase:
    """An addition whose results lie over the table in which they are looked up: that is read before."""
    name, count = "L2/add-over-its-table", 400
    rng, builder = generator(name), Builder(TABLES, "add-over-its-table")
    operands = {"EX_INPUT_ADDRESS": int8(rng, count), "EX_OPERAND_ADDRESS": int8(rng, count)}
    registers = {"EX_LENGTH": count, **Addition().constants(TABLES)}
    for register, data in operands.items():
        registers[register] = builder.scratch(count)
        builder.read(builder.input(register[3:10].lower(), data), registers[register], count)
    registers["EX_TABLE_ADDRESS"] = builder.scratch(count)
    builder.read(builder.image(int8(rng, 256)), registers["EX_TABLE_ADDRESS"], 256, "push.EX")
    result = registers["EX_OUTPUT_ADDRESS"] = registers["EX_TABLE_ADDRESS"]
    target = builder.output("result", "int8", (count,))
    builder.operation("OP_E_ADD", registers, "pop.LD push.ST", look_up=1)
    builder.write(target, result, count, "pop.EX")
    return builder.case(name, "OP_E_ADD, results over the table of its look-up")


def _overlap() -> GoldenCase:
    """A requantisation whose results lie over the far end of its operand: all is read before anything is written."""
    arch, count = machine("v2", "onnxruntime", sram_bytes=1 << 19), 70000
    builder = Builder(arch, "overlap")
    source = builder.input("input", np.resize(np.arange(-400, 401, dtype=np.int32) * 25, count))
    channel = builder.image(packed(np.zeros(1), np.array([0.013]), arch))
    target = builder.output("result", "int8", (count,))
    places = {"EX_INPUT_ADDRESS": builder.scratch(4 * count), "EX_CHANNEL_ADDRESS": builder.scratch(8)}
    builder.read(source, places["EX_INPUT_ADDRESS"], 4 * count)
    builder.read(channel, places["EX_CHANNEL_ADDRESS"], 8, "push.EX")
    result = places["EX_INPUT_ADDRESS"] + 200000
    builder.operation("OP_REQUANT", {**places, "EX_OUTPUT_ADDRESS": result, "EX_LENGTH": count}, "pop.LD push.ST")
    builder.write(target, result, count, "pop.EX")
    return builder.case("L2/requant-over-its-operand", "results over the far end of the operand")


def large() -> Iterator[GoldenCase]:
    """Windows of many pixels and products, element-wise operations of many elements; the operands repeat."""
    yield from _large_windows()
    yield from _large_rows()
    yield from _large_look_ups()
    yield from _large_products()
    yield from _large_pairs()
    yield from _large_on_rows()


def pattern(*shape: int, period: int = 251) -> NDArray[np.int8]:
    """Values of int8 that repeat, so that they are stored in little space."""
    return np.resize((np.arange(period) * 37 % 256 - 128).astype(np.int8), shape)


def _large_windows() -> Iterator[GoldenCase]:
    arch = machine("v3", "onnxruntime", sram_bytes=1 << 20)
    convolutions = {
        "conv-many-pixels": Convolution(Window((3, 31, 33)), 8, zeros=(-9, 4)),
        "conv-many-products": Convolution(Window((256, 47, 24), stride=(2, 1)), 16, zeros=(7, 0)),
        "conv-stride-2": Convolution(Window((8, 47, 50), stride=(2, 2)), 6, zeros=(-128, 0)),
        "conv-stride-2-dilated": Convolution(Window((8, 48, 51), stride=(1, 2), dilation=(1, 3)), 6, zeros=(5, 0)),
        "depth-few-pixels": Convolution(Window((20, 13, 14), stride=(3, 2), dilation=(2, 3)), 20, -1, zeros=(-9, 1)),
        "depth-few-pixels-multiplied": Convolution(Window((17, 9, 9), (5, 3)), 34, -1, requantise=False),
        "depth-many-pixels": Convolution(Window((18, 31, 30), stride=(1, 2), dilation=(3, 1)), 18, -1, zeros=(-9, 1)),
        "depth-stride-2": Convolution(Window((9, 45, 44), stride=(2, 2)), 9, -1, relu=True, zeros=(99, -8)),
        "depth-blocks": Convolution(Window((40, 100, 100)), 40, -1, zeros=(-3, 3)),
        "group-many": Convolution(Window((24, 20, 20), stride=(2, 1)), 18, 6, zeros=(3, -3)),
        "conv-many-sums": Convolution(Window((128, 31, 33)), 2, zeros=(-3, 5), accumulate=True),
    }
    for name, convolution in convolutions.items():
        window, groups = convolution.window, convolution.groups
        depth = {0: window.shape[0], -1: 1}.get(groups) or window.shape[0] // groups
        weights = pattern(convolution.outputs, depth, *window.kernel, period=101)
        given = {**vars(convolution), "input": pattern(*window.shape), "weights": weights}
        own = arch.model_copy(update={"isa": "v4"}) if convolution.accumulate else arch
        yield Convolution(**given).case(f"L2/large-{name}", f"{convolution.mnemonic}, {name}", own)
    for name, pooling in {
        "max": Pooling(window=Window((9, 40, 41), (3, 3), (2, 2)), input=pattern(9, 40, 41)),
        "average": Pooling(AVERAGE, Window((9, 30, 31)), zeros=(3, -4), input=pattern(9, 30, 31)),
        "global": Pooling(GLOBAL_AVERAGE, Window((5, 40, 40), (40, 40), padding=NONE), input=pattern(5, 40, 40)),
    }.items():
        yield pooling.case(f"L2/large-{name}", f"OP_POOL, {name} of many pixels", arch)


def _large_rows() -> Iterator[GoldenCase]:
    arch = machine("v3", "onnxruntime", sram_bytes=1 << 20)
    product = Product((33, 1500, 40), zero=-2, left=pattern(33, 1500), right=pattern(1500, 40, period=97))
    yield product.case("L2/large-matmul", "sums of 1500 products", arch)
    for shape in ((40, 8, 300), (1, 300, 300), (1, 2, 70000)):
        wide = pattern(*shape).astype(np.int32) * 1009
        requantisation = Requantisation(shape, 5, input=wide, scale=np.linspace(0.0005, 0.002, shape[1]))
        yield requantisation.case(f"L2/large-requant-{'-'.join(map(str, shape))}", "many elements", arch)
    for short, mnemonic in (("relu", "OP_ACT_RELU"), ("leaky", "OP_ACT_LRELU"), ("abs", "OP_E_ABS")):
        for suffix, own in (("", arch), ("-fixed", FIXED)):
            unary = Unary(mnemonic, zeros=(-30, 8), input=pattern(1300))
            yield unary.case(f"L2/large-{short}{suffix}", f"{mnemonic} of many elements", own)
    pair = pattern(40000), pattern(40000, period=131)
    yield Addition(zeros=(9, -9, 1), pair=pair).case("L2/large-add", "OP_E_ADD of many elements", arch)


def _large_products() -> Iterator[GoldenCase]:
    """Sums of more products than float32 adds exactly, and of the largest products there are."""
    for name, zeros in {"": (3, -4, -2), "-ends": (127, -128, 0)}.items():
        for transposed in (False, True):
            right = pattern(*((40, 700) if transposed else (700, 40)), period=97)
            product = DynamicProduct((33, 700, 40), transposed, True, 1e-5, zeros, left=pattern(33, 700), right=right)
            place = f"L2/large-product{name}{'-transposed' if transposed else ''}"
            yield product.case(place, "OP_DYN_MAT_MUL, sums of 700 products", TABLES)
    left, right = np.full((2, 600), -128, np.int8), np.full((600, 3), 127, np.int8)
    largest = DynamicProduct((2, 600, 3), requantise=False, zeros=(127, -128, 0), left=left, right=right)
    yield largest.case("L2/largest-products", "600 products of -255 and 255", TABLES)


def _large_pairs() -> Iterator[GoldenCase]:
    """Over the ends of the kernels' blocks."""
    shapes = {"rows": ((3, 20000), (0, 2)), "channels": ((700, 30), (0, 1)), "first": ((700, 30), (1, 0))}
    for name, (shape, repeats) in shapes.items():
        sizes = [(1 if bits & 2 else shape[0], 1 if bits & 1 else shape[1]) for bits in repeats]
        pair = pattern(*sizes[0]), pattern(*sizes[1], period=241)
        for mnemonic in ("OP_E_MUL", "OP_E_SUB", "OP_E_DIV", "OP_B_ADD", "OP_B_MAX"):
            short = mnemonic.removeprefix("OP_").lower().replace("_", "-")
            made = Repeating(mnemonic, shape, repeats, zeros=(9, -9, 1), pair=pair)
            yield made.case(f"L2/large-{short}-{name}", f"{mnemonic} of many elements", TABLES)


def _large_look_ups() -> Iterator[GoldenCase]:
    tables = pattern(7, 256, period=249)
    for name, shape in {"": (1, 1, 40000), "-planes": (2, 7, 1300), "-matrix": (900, 7, 1)}.items():
        look_up = LookUp(shape, pattern(*shape), tables[: shape[1]])
        yield look_up.case(f"L2/large-lut{name}", "OP_LUT of many elements", TABLES)


def _large_on_rows() -> Iterator[GoldenCase]:
    soft: dict[str, Any] = {"scales": (0.02, 1 / 255), "zeros": (0, -128)}
    cases = {
        "mean": OnRows("OP_REDUCE", (90, 400, 1), input=pattern(90, 400)),
        "mean-strided": OnRows("OP_REDUCE", (1, 400, 90), input=pattern(400, 90)),
        "softmax": OnRows("OP_SOFTMAX", (128, 128, 1), input=pattern(128, 128), **soft),
        "softmax-strided": OnRows("OP_SOFTMAX", (2, 16, 500), input=pattern(32, 500), **soft),
        "layer-norm": OnRows("OP_NORM", (64, 256, 1), {"centred": 1}, input=pattern(64, 256)),
    }
    for name, on_rows in cases.items():
        yield on_rows.case(f"L2/large-{name}", f"{on_rows.mnemonic} of many elements", TABLES)


def refusals() -> Iterator[GoldenCase]:
    """Illegal words, illegal streams, addresses outside, missing tokens."""
    yield from _words()
    yield from _tokens()
    yield from _addresses()
    yield _groups()


def _base(arch: Arch, name: str) -> Builder:
    builder = Builder(arch, name)
    builder.input("input", np.arange(64, dtype=np.int8))
    builder.output("result", "int8", (64,))
    return builder


def _words() -> Iterator[GoldenCase]:
    end = 0x03 << 56
    forbidden = {
        "unknown-opcode": (0x7F << 56, end),
        "depth-conv-in-v1": (0x21 << 56, end),
        "reserved-bit": ((0x20 << 56) | 1, end),
        "reserved-bit-of-sync": ((0x02 << 56) | 1 << 49, end),
        "reserved-bit-of-end": (end | 1 << 3,),
        "set-reserved-bit": ((0x01 << 56) | (0x20 << 48) | 1 << 32, end),
        "set-unknown-register": ((0x01 << 56) | (0xFF << 48), end),
        "set-too-large": ((0x01 << 56) | (0x2C << 48) | 256, end),
        "set-negative-too-low": ((0x01 << 56) | (0x39 << 48) | 0xFFFF_FF7F, end),
        "no-end": (0x02 << 56 | 1 << 50,),
        "end-twice": (end, end),
        "nothing-at-all": (),
        "load-pops-previous": ((0x10 << 56) | 1 << 55, end),
        "store-pushes-next": ((0x11 << 56) | 1 << 52, end),
        "sync-of-unit-3": ((0x02 << 56) | 3 << 50, end),
    }
    for name, words in forbidden.items():
        case = _base(machine("v1", "onnxruntime"), name).case(f"L2/refuse-{name}", f"words that mean nothing: {name}")
        yield replace(case, words=np.array(words, np.uint64))


def _tokens() -> Iterator[GoldenCase]:
    alone = _base(BALANCED, "pop")
    alone.operation("OP_C_MAX", {"EX_LENGTH": 8, "EX_OUTPUT_ADDRESS": 64}, "pop.LD")
    yield alone.case("L2/refuse-pop-without-push", "EX waits for a token that never comes")
    cycle = _base(BALANCED, "cycle")
    cycle.read(0, 0, 8, "pop.EX push.EX")
    cycle.operation("OP_C_MAX", {"EX_LENGTH": 8, "EX_OUTPUT_ADDRESS": 64}, "pop.LD push.LD")
    yield cycle.case("L2/refuse-circular-wait", "LD and EX wait for one another")
    race = _base(BALANCED, "race")
    race.read(0, 0, 64)
    race.operation("OP_C_MAX", {"EX_LENGTH": 64, "EX_OUTPUT_ADDRESS": 128}, "push.ST")
    race.write(64, 128, 64, "pop.EX")
    yield race.case("L2/refuse-read-while-loading", "a missing token: EX reads what LD is writing")
    store = _base(BALANCED, "overwrite")
    store.write(64, 0, 64)
    store.operation("OP_C_MAX", {"EX_LENGTH": 64, "EX_OUTPUT_ADDRESS": 0, "EX_INPUT_ADDRESS": 64})
    yield store.case("L2/refuse-overwrite-while-storing", "a missing token: EX writes what ST is reading")
    memory = _base(BALANCED, "through-memory")
    memory.write(0, 64, 64)
    memory.read(0, 0, 64)
    yield memory.case("L2/refuse-load-while-storing", "a missing token: LD reads system memory that ST writes")


def _addresses() -> Iterator[GoldenCase]:
    small = machine("v2", "onnxruntime", sram_bytes=1024, sram_banks=1)
    beyond = _base(small, "scratchpad")
    beyond.read(0, 1000, 32)
    yield beyond.case("L2/refuse-beyond-scratchpad", "a load that reaches past the scratchpad")
    result = _base(small, "result")
    result.operation("OP_C_MAX", {"EX_LENGTH": 100, "EX_OUTPUT_ADDRESS": 1000})
    yield result.case("L2/refuse-result-beyond-scratchpad", "a result that reaches past the scratchpad")
    outside = _base(BALANCED, "memory")
    outside.read(0, 0, 64, count_3=3, dram_stride_3=4096, sram_stride_3=64)
    yield outside.case("L2/refuse-beyond-memory", "rows that lie outside system memory")
    words = _base(BALANCED, "words")
    words.write(128, 0, 8)
    yield words.case("L2/refuse-write-on-words", "a store onto the command words")


def _groups() -> GoldenCase:
    builder = _base(GROUPED, "groups")
    registers = {"EX_INPUT_CHANNELS": 4, "EX_OUTPUT_CHANNELS": 6, "EX_GROUPS": 4, "EX_OUTPUT_ADDRESS": 256}
    builder.operation("OP_GROUP_CONV", registers, requantise=1)
    return builder.case("L2/refuse-groups-that-do-not-divide", "EX_GROUPS 4 of 6 output channels")
