"""Level 2, shapes: the smallest, odd strides, wide padding, odd channels, largest fields, gaps, large operands.

Large operands are of sizes at which an implementation that works in blocks takes another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from experiments.golden.build import Builder
from experiments.golden.case import Case
from experiments.golden.catalogue.machines import BALANCED, FIXED, GROUPED, machine
from experiments.golden.catalogue.operations import (
    Addition,
    Convolution,
    Pooling,
    Product,
    Requantisation,
    Unary,
    Window,
    generator,
    int8,
    packed,
    pair_case,
)
from isa.arch import Arch
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE

NONE = (0, 0, 0, 0)
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


def cases() -> Iterator[Case]:
    """Shapes, on both numerics where they round."""
    for suffix, arch, grouped in (("", BALANCED, GROUPED), ("-fixed", FIXED, machine("v3", "fixed"))):
        yield from _smallest(suffix, arch, grouped)
        yield from _windows(suffix, arch)
    yield from _channels()
    yield from _largest()
    yield from _gaps()
    yield from _nothing()
    yield _overlap()


def _smallest(suffix: str, arch: Arch, grouped: Arch) -> Iterator[Case]:
    for groups, name in ((0, "conv"), (-1, "depth"), (1, "group")):
        one = Convolution(POINT, 1, groups)
        yield one.case(f"L2/{name}-1x1x1{suffix}", "one element", grouped if groups == 1 else arch)
    for mode, name in ((0, "max"), (AVERAGE, "average"), (GLOBAL_AVERAGE, "global-average")):
        yield Pooling(mode, POINT).case(f"L2/{name}-1x1x1{suffix}", "one element", arch)
    yield Product((1, 1, 1)).case(f"L2/matmul-1x1x1{suffix}", "one element", arch)
    yield Requantisation((1, 1, 1)).case(f"L2/requant-1x1x1{suffix}", "one element", arch)
    yield Unary(length=1).case(f"L2/relu-1{suffix}", "one element", arch)
    yield Addition(1).case(f"L2/add-1{suffix}", "one element", arch)


def _windows(suffix: str, arch: Arch) -> Iterator[Case]:
    for name, window in WINDOWS.items():
        channels = window.shape[0]
        convolution = Convolution(window, 5, zeros=(-77, 9))
        yield convolution.case(f"L2/conv-{name}{suffix}", f"OP_CONV, {name}", arch)
        depth = Convolution(window, channels, -1, zeros=(55, -3))
        yield depth.case(f"L2/depth-{name}{suffix}", f"OP_DEPTH_CONV, {name}", arch)
        yield Pooling(window=window).case(f"L2/max-{name}{suffix}", f"OP_POOL maximum, {name}", arch)
        average = Pooling(AVERAGE, window, (0.05, 0.03), (17, -6), count_include_pad=True)
        yield average.case(f"L2/average-{name}{suffix}", f"OP_POOL average, {name}", arch)


def _channels() -> Iterator[Case]:
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


def _largest() -> Iterator[Case]:
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


def _gaps() -> Iterator[Case]:
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


def _nothing() -> Iterator[Case]:
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


def _overlap() -> Case:
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


def large() -> Iterator[Case]:
    """Windows of many pixels and products, element-wise operations of many elements; the operands repeat."""
    yield from _large_windows()
    yield from _large_rows()


def pattern(*shape: int, period: int = 251) -> NDArray[np.int8]:
    """Values of int8 that repeat, so that they are stored in little space."""
    return np.resize((np.arange(period) * 37 % 256 - 128).astype(np.int8), shape)


def _large_windows() -> Iterator[Case]:
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
    }
    for name, convolution in convolutions.items():
        window, groups = convolution.window, convolution.groups
        depth = {0: window.shape[0], -1: 1}.get(groups) or window.shape[0] // groups
        weights = pattern(convolution.outputs, depth, *window.kernel, period=101)
        given = {**vars(convolution), "input": pattern(*window.shape), "weights": weights}
        yield Convolution(**given).case(f"L2/large-{name}", f"{convolution.mnemonic}, {name}", arch)
    for name, pooling in {
        "max": Pooling(window=Window((9, 40, 41), (3, 3), (2, 2)), input=pattern(9, 40, 41)),
        "average": Pooling(AVERAGE, Window((9, 30, 31)), zeros=(3, -4), input=pattern(9, 30, 31)),
        "global": Pooling(GLOBAL_AVERAGE, Window((5, 40, 40), (40, 40), padding=NONE), input=pattern(5, 40, 40)),
    }.items():
        yield pooling.case(f"L2/large-{name}", f"OP_POOL, {name} of many pixels", arch)


def _large_rows() -> Iterator[Case]:
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
