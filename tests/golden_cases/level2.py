"""Level 2, the corners: values, shapes, large operands, and programs that must be rejected.

Values saturate at both ends, tie in rounding, sum up to the edge of int32. Shapes are the smallest,
have odd strides, wide padding, odd channels, the largest fields, gaps. Large operands are of sizes
at which an implementation that works in blocks takes another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa.arch import Arch
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE
from tests.golden_cases.builder import Builder
from tests.golden_cases.machines import BALANCED, FIXED, GROUPED, TABLES, machine
from tests.golden_cases.operations import (
    Convolution,
    Pooling,
    Resizing,
    Window,
    generator,
    int8,
    packed,
)
from tests.golden_cases.tensor_operations import (
    Addition,
    LookUp,
    Permutation,
    Product,
    Repeating,
    Requantisation,
    Unary,
    pair_case,
)

NONE = (0, 0, 0, 0)
EVERY = np.arange(-128, 128).astype(np.int8)
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


def shapes() -> Iterator[GoldenCase]:
    """Shapes, on both numerics where they round."""
    for suffix, arch, grouped in (
        ("", BALANCED, GROUPED),
        ("-fixed", FIXED, machine("v3", "fixed")),
    ):
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
        yield Pooling(window=window).case(
            f"L2/max-{name}{suffix}", f"OP_POOL maximum, {name}", arch
        )
        average = Pooling(AVERAGE, window, (0.05, 0.03), (17, -6), count_include_pad=True)
        yield average.case(f"L2/average-{name}{suffix}", f"OP_POOL average, {name}", arch)


def _channels() -> Iterator[GoldenCase]:
    """Channels that are no multiple of the array's sides."""
    for inputs, outputs in CHANNELS:
        arch = machine("v3", "onnxruntime")
        name = f"{inputs}-to-{outputs}"
        window = Window((inputs, 4, 5))
        yield Convolution(window, outputs).case(
            f"L2/conv-{name}", f"{inputs} to {outputs} channels", arch
        )
        same = Convolution(window, inputs, -1, relu=True)
        yield same.case(f"L2/depth-{inputs}-of-{name}", f"{inputs} channels", arch)
        yield Pooling(window=window).case(f"L2/max-{inputs}-of-{name}", f"{inputs} channels", arch)
        yield Product((3, inputs, outputs)).case(
            f"L2/matmul-{name}", f"{inputs} by {outputs}", arch
        )
    for groups, inputs, outputs in ((3, 9, 15), (5, 5, 10), (7, 21, 7), (2, 34, 2)):
        arch = Arch.model_validate({"isa": "v3", "pe": {"ic": 6, "oc": 4, "ow": 2}})
        grouped = Convolution(Window((inputs, 4, 5)), outputs, groups)
        yield grouped.case(
            f"L2/group-{groups}-{inputs}-to-{outputs}", "groups that leave the array idle", arch
        )


def _largest() -> Iterator[GoldenCase]:
    """Fields at their largest values, as far as a scratchpad can hold what they mean."""
    arch = machine("v2", "onnxruntime", sram_bytes=1 << 23)
    for name, window in LARGEST.items():
        data = np.resize(np.arange(-100, 101, dtype=np.int8), window.shape)
        weights = np.resize(np.arange(-3, 4, dtype=np.int8), (2, window.shape[0], *window.kernel))
        convolution = Convolution(window, 2, zeros=(-128, 3), input=data, weights=weights)
        yield convolution.case(f"L2/conv-{name}", f"OP_CONV, {name}", arch)
        yield Pooling(window=window, input=data).case(
            f"L2/max-{name}", f"OP_POOL maximum, {name}", arch
        )
    many = (1 << 20) - 1
    row = np.resize(np.arange(-5, 6, dtype=np.int8), (1, many))
    thin = Product(
        (1, many, 1), left=row, right=np.resize(np.array([1, -1, 0], np.int8), (many, 1))
    )
    yield thin.case("L2/matmul-k-1048575", "the longest product", arch)
    tall = Product((many, 1, 1), left=row.T.copy(), right=np.array([[7]], np.int8))
    yield tall.case("L2/matmul-m-1048575", "the tallest product", arch)
    counts = {"count_1": many, "dram_stride_1": 0, "sram_stride_1": 0}
    builder = Builder(arch, "count")
    source = builder.input("input", np.arange(8, dtype=np.int8))
    target = builder.output("result", "int8", (8,))
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
        builder = Builder(BALANCED, f"gaps-{name}")
        rng = generator(name)
        window = Window((3, 4, 4))
        source = builder.input("input", int8(rng, 3, 40))
        weights = builder.image(int8(rng, 3, 27))
        channels = builder.image(
            packed(np.array([5, -9, 0]), np.array([2.0**-8, 2.0**-9, 2.0**-10]), BALANCED)
        )
        target = builder.output("result", "int8", (240,))
        places = [builder.scratch(size) for size in (120, 81, 24, 240)]
        for here, there, size in zip(
            (source, weights, channels), places, (120, 81, 24), strict=False
        ):
            builder.read(here, there, size, "push.EX" if size == 24 else "")
        names = (
            "EX_INPUT_ADDRESS",
            "EX_OPERAND_ADDRESS",
            "EX_CHANNEL_ADDRESS",
            "EX_OUTPUT_ADDRESS",
        )
        registers = {**window.registers(3), **dict(zip(names, places, strict=True))}
        registers |= {"EX_INPUT_PLANE": 40, "EX_OUTPUT_PLANE": 80}
        builder.operation(mnemonic, registers, "pop.LD push.ST", **fields)
        builder.write(target, places[3], 240, "pop.EX")
        yield builder.case(f"L2/gaps-{name}", f"{mnemonic} between planes with gaps")


def _nothing() -> Iterator[GoldenCase]:
    """Commands without work, on a machine whose overheads are 0: each still takes a cycle."""
    lean = Timing(
        dma_setup=0, dma_drain=0, ex_fill=0, ex_drain=0, dram_latency=0, outstanding_bursts=1
    )
    builder = Builder(BALANCED, "nothing")
    source = builder.input("input", np.arange(8, dtype=np.int8))
    target = builder.output("result", "int8", (8,))
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
    """Every value with some, full of ties.

    Ends that saturate; nothing; every field of repeats on a few values.
    """
    some = np.array([[-128], [-127], [-3], [-1], [0], [1], [2], [126], [127]], np.int8)
    for name, mnemonic in (
        ("mul", "OP_E_MUL"),
        ("sub", "OP_E_SUB"),
        ("b-add", "OP_B_ADD"),
        ("div", "OP_E_DIV"),
    ):
        scales = (0.5, 0.25, 0.25 if name == "mul" else 0.5)
        every = Repeating(mnemonic, (9, 256), (2, 1), scales, (3, -1, 7), pair=(EVERY, some))
        yield every.case(f"L2/{name}-ties{suffix}", f"{mnemonic} of every value, ties", arch)
        unsigned = Repeating(
            mnemonic, (9, 256), (2, 1), scales, (131, 127, 1), 128, (-100, 90), (EVERY, some)
        )
        yield unsigned.case(
            f"L2/{name}-uint8-ties{suffix}", f"{mnemonic} of uint8 tensors, ties, clamped", arch
        )
        yield Repeating(mnemonic, (0, 7)).case(
            f"L2/{name}-no-channels{suffix}", "no channels", arch
        )
        yield Repeating(mnemonic, (7, 0)).case(f"L2/{name}-0{suffix}", "no elements", arch)
    for repeats in np.ndindex(4, 4):
        name = f"L2/sub-repeats-{repeats[0]}-{repeats[1]}{suffix}"
        yield Repeating("OP_E_SUB", (3, 5), (repeats[0], repeats[1])).case(
            name, f"repeats {repeats}", arch
        )


def _look_ups() -> Iterator[GoldenCase]:
    """Every value and every entry.

    No elements; results over the operand and over the tables themselves.
    """
    mixed = (np.arange(256) * 77 % 256).astype(np.uint8).view(np.int8)
    every = LookUp((1, 1, 256), EVERY.reshape(1, 1, 256), mixed.reshape(1, 256))
    yield every.case("L2/lut-every", "OP_LUT of every value, every entry another", TABLES)
    own = np.stack([np.roll(mixed, channel) for channel in range(5)])
    planes = LookUp((1, 5, 256), np.tile(EVERY, (1, 5, 1)), own)
    yield planes.case(
        "L2/lut-every-planes", "every value in five channels with a table each", TABLES
    )
    matrix = LookUp((256, 5, 1), np.repeat(EVERY, 5).reshape(256, 5, 1), own)
    yield matrix.case(
        "L2/lut-every-matrix", "every value in five columns with a table each", TABLES
    )
    yield LookUp((1, 1, 0)).case("L2/lut-0", "no elements", TABLES)
    yield LookUp((1, 1, 1)).case("L2/lut-1", "one element", TABLES)
    for name, shape, shift in (
        ("operand", (1, 1, 600), 64),
        ("tables", (1, 2, 300), 700),
        ("same", (1, 2, 300), 0),
    ):
        yield _over(name, shape, shift)
    yield _over_last_tables()


def _permutations() -> Iterator[GoldenCase]:
    """Yield edge cases of copies: no bytes, one byte, and overlapping sources and results.

    Some have results at one address, or gaps whose bytes stay.
    """
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


def _resizes() -> Iterator[GoldenCase]:
    """Yield edge cases of resizing: ties, coordinates on elements and beyond the ends, all values.

    Some sums depend on their order.
    """
    thirds = tuple(float(np.float32(index / 3)) for index in range(46))
    halves = tuple(index / 2 for index in range(-2, 35))
    every = EVERY.reshape(1, 16, 16)
    cases = {
        "ties": Resizing((1, 16, 16), halves, halves, (0.25, 0.25), (0, 0), input=every),
        "thirds": Resizing((1, 16, 16), thirds, thirds, (0.05, 0.05), (-128, 1), input=every),
        "finer": Resizing((1, 16, 16), halves, thirds, (0.1, 0.05), (7, -3), input=every),
        "coarse": Resizing((1, 16, 16), thirds, halves, (0.013, 0.1), (127, 127), input=every),
        "saturates": Resizing(
            (1, 16, 16), (0.5, 14.5), (0.0, 15.0), (1.0, 0.001), (0, 0), input=every
        ),
        "of-one": Resizing(
            (256, 1, 1), (0.0, 0.4), (0.0,), (0.1, 0.3), (5, 6), input=EVERY.reshape(256, 1)
        ),
    }
    for name, resizing in cases.items():
        for suffix, numerics in (("", "onnxruntime"), ("-fixed", "fixed")):
            text = f"interpolation: {name.replace('-', ' ')}"
            yield resizing.case(f"L2/resize-{name}{suffix}", text, machine("v4", numerics))
    yield Resizing(rows=(0.0, float("nan"))).case(
        "L2/resize-nowhere", "a coordinate that is no number", TABLES
    )


def _over(name: str, shape: tuple[int, int, int], shift: int) -> GoldenCase:
    """A look-up whose result begins ``shift`` bytes behind the operand.

    The tables lie right behind the operand.
    """
    count = shape[0] * shape[1] * shape[2]
    channels = shape[1]
    builder = Builder(TABLES, f"lut-over-{name}")
    rng = generator(f"L2/lut-over-{name}")
    data = builder.input("input", int8(rng, count))
    tables = builder.image(int8(rng, channels, 256))
    target = builder.output("result", "int8", (count,))
    places = {
        "EX_INPUT_ADDRESS": builder.scratch(count),
        "EX_OPERAND_ADDRESS": builder.scratch(256 * channels),
    }
    builder.read(data, places["EX_INPUT_ADDRESS"], count)
    builder.read(tables, places["EX_OPERAND_ADDRESS"], 256 * channels, "push.EX")
    result = places["EX_INPUT_ADDRESS"] + shift
    registers = dict(zip(("EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH"), shape, strict=True))
    builder.operation(
        "OP_LUT", {**places, "EX_OUTPUT_ADDRESS": result, **registers}, "pop.LD push.ST"
    )
    builder.write(target, result, count, "pop.EX")
    return builder.case(f"L2/lut-over-{name}", f"OP_LUT, results over the {name}")


def _over_last_tables() -> GoldenCase:
    """Return an addition that writes over its look-up table, which it reads before."""
    name = "L2/add-over-its-table"
    count = 400
    rng = generator(name)
    builder = Builder(TABLES, "add-over-its-table")
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
    """Return a requantisation that writes over the end of its operand, which it reads before."""
    arch = machine("v2", "onnxruntime", sram_bytes=1 << 19)
    count = 70000
    builder = Builder(arch, "overlap")
    source = builder.input("input", np.resize(np.arange(-400, 401, dtype=np.int32) * 25, count))
    channel = builder.image(packed(np.zeros(1), np.array([0.013]), arch))
    target = builder.output("result", "int8", (count,))
    places = {
        "EX_INPUT_ADDRESS": builder.scratch(4 * count),
        "EX_CHANNEL_ADDRESS": builder.scratch(8),
    }
    builder.read(source, places["EX_INPUT_ADDRESS"], 4 * count)
    builder.read(channel, places["EX_CHANNEL_ADDRESS"], 8, "push.EX")
    result = places["EX_INPUT_ADDRESS"] + 200000
    builder.operation(
        "OP_REQUANT", {**places, "EX_OUTPUT_ADDRESS": result, "EX_LENGTH": count}, "pop.LD push.ST"
    )
    builder.write(target, result, count, "pop.EX")
    return builder.case("L2/requant-over-its-operand", "results over the far end of the operand")


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
        case = _base(machine("v1", "onnxruntime"), name).case(
            f"L2/refuse-{name}", f"words that mean nothing: {name}"
        )
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
    yield store.case(
        "L2/refuse-overwrite-while-storing", "a missing token: EX writes what ST is reading"
    )
    memory = _base(BALANCED, "through-memory")
    memory.write(0, 64, 64)
    memory.read(0, 0, 64)
    yield memory.case(
        "L2/refuse-load-while-storing", "a missing token: LD reads system memory that ST writes"
    )


def _addresses() -> Iterator[GoldenCase]:
    small = machine("v2", "onnxruntime", sram_bytes=1024, sram_banks=1)
    beyond = _base(small, "scratchpad")
    beyond.read(0, 1000, 32)
    yield beyond.case("L2/refuse-beyond-scratchpad", "a load that reaches past the scratchpad")
    result = _base(small, "result")
    result.operation("OP_C_MAX", {"EX_LENGTH": 100, "EX_OUTPUT_ADDRESS": 1000})
    yield result.case(
        "L2/refuse-result-beyond-scratchpad", "a result that reaches past the scratchpad"
    )
    outside = _base(BALANCED, "memory")
    outside.read(0, 0, 64, count_3=3, dram_stride_3=4096, sram_stride_3=64)
    yield outside.case("L2/refuse-beyond-memory", "rows that lie outside system memory")
    words = _base(BALANCED, "words")
    words.write(128, 0, 8)
    yield words.case("L2/refuse-write-on-words", "a store onto the command words")


def _groups() -> GoldenCase:
    builder = _base(GROUPED, "groups")
    registers = {
        "EX_INPUT_CHANNELS": 4,
        "EX_OUTPUT_CHANNELS": 6,
        "EX_GROUPS": 4,
        "EX_OUTPUT_ADDRESS": 256,
    }
    builder.operation("OP_GROUP_CONV", registers, requantise=1)
    return builder.case("L2/refuse-groups-that-do-not-divide", "EX_GROUPS 4 of 6 output channels")
