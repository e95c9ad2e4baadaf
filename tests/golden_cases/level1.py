"""Level 1: shapes of instructions in networks, and streams of cooperating commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from experiments.golden.case import GoldenCase
from isa.arch import Arch, PeArray
from isa.ops.lookup import TABLE_BYTES
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE
from isa.ops.rows import MAXIMUM, MINIMUM
from tests.golden_cases.machines import ARRAYS, BALANCED, FIXED, GROUPED, TABLES, TIMINGS, machine
from tests.golden_cases.operations import (
    Convolution,
    Pooling,
    Resizing,
    Window,
    generator,
    int8,
)
from tests.golden_cases.tensor_operations import (
    Addition,
    DynamicProduct,
    LookUp,
    OnRows,
    Permutation,
    Product,
    Repeating,
    Requantisation,
    Unary,
    pair_case,
    shift_case,
)

NONE = (0, 0, 0, 0)
CONVOLUTIONS: Mapping[str, Convolution] = {
    "conv-1x1": Convolution(Window((16, 4, 4), (1, 1), padding=NONE), 16, zeros=(0, -3)),
    "conv-3x3": Convolution(Window((4, 6, 7)), 8, zeros=(-5, 7)),
    "conv-3x3-relu": Convolution(Window((4, 6, 6)), 8, relu=True, zeros=(3, -128)),
    "conv-3x3-accumulators": Convolution(Window((4, 6, 6)), 8, requantise=False, zeros=(9, 0)),
    "conv-3x3-stride-2": Convolution(Window((4, 9, 8), stride=(2, 2)), 8, zeros=(-128, 0)),
    "conv-3x3-dilation-2": Convolution(Window((3, 9, 9), dilation=(2, 2), padding=(2, 2, 2, 2)), 4),
    "conv-5x5": Convolution(Window((3, 8, 8), (5, 5), padding=(2, 2, 2, 2)), 4, zeros=(1, 1)),
    "conv-7x7-stride-2": Convolution(
        Window((3, 14, 14), (7, 7), (2, 2), padding=(3, 3, 2, 2)), 8, zeros=(-14, -128)
    ),
    "conv-1x7": Convolution(Window((4, 5, 9), (1, 7), padding=(0, 3, 0, 3)), 4),
    "conv-relu6": Convolution(Window((8, 5, 5)), 8, zeros=(-128, -100), limits=(-100, 20)),
}
SEPARATE: Mapping[str, Convolution] = {
    "depth-3x3": Convolution(Window((16, 6, 6)), 16, -1, zeros=(-8, 2)),
    "depth-3x3-stride-2": Convolution(
        Window((16, 9, 9), stride=(2, 2), padding=(0, 0, 1, 1)), 16, -1, zeros=(4, 4)
    ),
    "depth-5x5-relu": Convolution(
        Window((8, 8, 8), (5, 5), padding=(2, 2, 2, 2)), 8, -1, relu=True, zeros=(0, -20)
    ),
    "depth-multiplier-2": Convolution(Window((6, 5, 5)), 12, -1),
    "depth-accumulators": Convolution(Window((8, 4, 4)), 8, -1, requantise=False, zeros=(-3, 0)),
}
GROUPS: Mapping[str, Convolution] = {
    "group-2": Convolution(Window((8, 5, 5)), 8, 2, zeros=(-4, 6)),
    "group-4-1x1": Convolution(Window((16, 4, 4), (1, 1), padding=NONE), 32, 4),
    "group-all": Convolution(Window((12, 5, 5), stride=(2, 2)), 12, 12, relu=True, zeros=(2, -9)),
    "group-1-accumulators": Convolution(Window((6, 4, 4)), 10, 1, requantise=False),
}
POOLS: Mapping[str, Pooling] = {
    "max-2x2": Pooling(),
    "max-3x3-stride-2-padded": Pooling(window=Window((8, 7, 7), (3, 3), (2, 2))),
    "average-2x2": Pooling(AVERAGE, zeros=(-7, -7)),
    "average-3x3-padded": Pooling(AVERAGE, Window((4, 6, 6)), (0.05, 0.04), (12, -3)),
    "average-3x3-padded-all-taps": Pooling(
        AVERAGE, Window((4, 6, 6)), (0.05, 0.04), (12, -3), count_include_pad=True
    ),
    "average-3x3-uint8": Pooling(AVERAGE, Window((4, 6, 6)), (0.05, 0.06), (131, 120), offset=128),
    "global-average-7x7": Pooling(
        GLOBAL_AVERAGE, Window((16, 7, 7), (7, 7), padding=NONE), (0.04, 0.02), (-9, 5)
    ),
}
PRODUCTS: Mapping[str, Product] = {
    "matmul-vector": Product((1, 64, 10), zero=5),
    "matmul-matrix": Product((6, 24, 12), zero=-9),
    "matmul-relu": Product((5, 16, 8), relu=True, zero=-40),
    "matmul-accumulators": Product((3, 20, 7), requantise=False),
}


STRIDES: dict[str, dict[str, int]] = {
    "rows": {"count_1": 5, "dram_stride_1": 19, "sram_stride_1": 11},
    "planes": {"count_1": 3, "dram_stride_1": 17, "sram_stride_1": 8, "count_2": 4,
               "dram_stride_2": 71, "sram_stride_2": 40},
    "boxes": {"count_1": 2, "dram_stride_1": 13, "sram_stride_1": 9, "count_2": 3,
              "dram_stride_2": 70, "sram_stride_2": 33, "count_3": 2, "dram_stride_3": 300,
              "sram_stride_3": 128},
    "bursts": {"count_1": 7, "dram_stride_1": 64, "sram_stride_1": 16},
    "same-row": {"count_1": 4, "dram_stride_1": 0, "sram_stride_1": 7},
}  # fmt: skip


def instructions() -> Iterator[GoldenCase]:
    """All instructions on both numerics.

    Convolutions, pools and products on every array and timing too.
    """
    yield from _windows("", BALANCED, GROUPED)
    yield from _windows("-fixed", FIXED, machine("v3", "fixed"))
    for suffix, arch in (("", BALANCED), ("-fixed", FIXED)):
        yield from _elementwise(suffix, arch)
    yield from _machines()
    yield from _look_ups()
    yield from _permutations()
    yield from _dynamic_products()
    for suffix, arch in (("", TABLES), ("-fixed", machine("v4", "fixed"))):
        yield from _pairs(suffix, arch)
    yield from _last_look_ups()
    yield from _rows()
    yield from _idle_lanes()
    yield from _sums()
    yield from _resizes()


def _windows(suffix: str, arch: Arch, grouped: Arch) -> Iterator[GoldenCase]:
    for name, convolution in {**CONVOLUTIONS, **SEPARATE}.items():
        yield convolution.case(f"L1/{name}{suffix}", f"{convolution.mnemonic}, {name}", arch)
    for name, convolution in GROUPS.items():
        yield convolution.case(f"L1/{name}{suffix}", f"{convolution.mnemonic}, {name}", grouped)
    for name, pooling in POOLS.items():
        yield pooling.case(f"L1/{name}{suffix}", f"OP_POOL, {name}", arch)
    for name, product in PRODUCTS.items():
        yield product.case(f"L1/{name}{suffix}", f"OP_MAT_MUL, {name}", arch)


def _elementwise(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    shapes = {"requant-planes": (1, 6, 20), "requant-matrix": (5, 8, 1)}
    for name, shape in shapes.items():
        yield Requantisation(shape, zero=-4).case(
            f"L1/{name}{suffix}", f"OP_REQUANT of {shape}", arch
        )
    for short, mnemonic in (
        ("relu", "OP_ACT_RELU"),
        ("leaky", "OP_ACT_LRELU"),
        ("abs", "OP_E_ABS"),
    ):
        unary = Unary(mnemonic, 100, zeros=(10, -20))
        yield unary.case(f"L1/{short}{suffix}", f"{mnemonic} between two quantisations", arch)
    for short, mnemonic in (("min", "OP_C_MIN"), ("max", "OP_C_MAX")):
        rng = generator(f"L1/{short}")
        pair = int8(rng, 100), int8(rng, 100)
        yield pair_case(f"L1/{short}{suffix}", f"{mnemonic} of random values", arch, mnemonic, pair)
    yield Addition(100, zeros=(4, -7, 3)).case(f"L1/add{suffix}", "OP_E_ADD of int8 tensors", arch)
    yield Addition(100, zeros=(120, 131, 99), offset=128).case(
        f"L1/add-uint8{suffix}", "OP_E_ADD, uint8", arch
    )
    rng = generator("L1/wide")
    wide = rng.integers(-(2**30), 2**30, (2, 60), dtype=np.int32)
    yield pair_case(
        f"L1/wide-add{suffix}", "OP_E32_ADD of large values", arch, "OP_E32_ADD", (wide[0], wide[1])
    )
    for rounding, word in enumerate(("floor", "even", "away")):
        yield shift_case(
            f"L1/wide-shift-{word}{suffix}", f"OP_E32_SHIFT, {word}", arch, wide[0], 7, 1, rounding
        )
    small = wide[0] >> 12
    yield shift_case(
        f"L1/wide-shift-left{suffix}", "OP_E32_SHIFT to the left", arch, small, 9, 0, 0
    )


def _machines() -> Iterator[GoldenCase]:
    """Yield the same work for every array shape and timing: same values, other cycles."""
    chosen = {
        name: CONVOLUTIONS[name]
        for name in ("conv-1x1", "conv-3x3-stride-2", "conv-3x3-accumulators")
    }
    for place, arch in ARRAYS.items():
        own = {**chosen, "depth-3x3": SEPARATE["depth-3x3"]} if arch.isa != "v1" else chosen
        for name, convolution in {**own, **(GROUPS if arch.isa == "v3" else {})}.items():
            yield convolution.case(f"L1/{place}-{name}", f"{name} on the array {place}", arch)
        for name in ("max-3x3-stride-2-padded", "average-2x2"):
            yield POOLS[name].case(f"L1/{place}-{name}", f"{name} on the array {place}", arch)
        yield PRODUCTS["matmul-matrix"].case(
            f"L1/{place}-matmul", f"OP_MAT_MUL on the array {place}", arch
        )
        yield Requantisation((1, 5, 13)).case(
            f"L1/{place}-requant", f"OP_REQUANT on the array {place}", arch
        )
        yield Addition(77).case(f"L1/{place}-add", f"OP_E_ADD on the array {place}", arch)
    for place, timing in TIMINGS.items():
        for name, convolution in chosen.items():
            yield convolution.case(
                f"L1/{place}-{name}", f"{name}, timing {place}", BALANCED, timing
            )
        yield Addition(333).case(f"L1/{place}-add", f"OP_E_ADD, timing {place}", BALANCED, timing)


PAIRS: Mapping[str, Repeating] = {
    "mul": Repeating(shape=(1, 100), repeats=(0, 0), zeros=(4, -7, 3), scales=(0.05, 0.03, 0.06)),
    "mul-channels": Repeating(shape=(7, 20), zeros=(-128, 0, 5), scales=(0.05, 0.03, 0.06)),
    "mul-uint8": Repeating(
        shape=(5, 20), repeats=(2, 1), zeros=(120, 131, 99), offset=128, scales=(0.05, 0.03, 0.06)
    ),
    "sub": Repeating("OP_E_SUB", (1, 100), (0, 0), zeros=(4, -7, 3)),
    "sub-row": Repeating("OP_E_SUB", (6, 20), (0, 2), zeros=(11, 0, -3), limits=(-90, 60)),
    "sub-of-one-value": Repeating("OP_E_SUB", (4, 20), (3, 0), zeros=(1, 2, 3)),
    "square-of-sub": Repeating(
        "OP_E_SUB", (1, 100), (0, 0), zeros=(4, -7, -128), scales=(0.05, 0.03, 0.2), squared=True
    ),
    "square-of-sub-row": Repeating(
        "OP_E_SUB", (6, 20), (0, 2), (0.05, 0.05, 0.5), (11, 0, -3), limits=(-9, 60), squared=True
    ),
    "div": Repeating("OP_E_DIV", (1, 100), (0, 0), zeros=(4, -7, 3)),
    "div-channels": Repeating("OP_E_DIV", (7, 20), (0, 1), zeros=(0, -128, -128), limits=(-90, 60)),
    "div-of-one-value": Repeating("OP_E_DIV", (4, 20), (3, 0), zeros=(1, 2, 3)),
    "b-add-channels": Repeating("OP_B_ADD", (7, 20), (0, 1), zeros=(4, -7, 3)),
    "b-add-uint8": Repeating("OP_B_ADD", (5, 20), (1, 2), zeros=(120, 131, 99), offset=128),
    "b-min-row": Repeating("OP_B_MIN", (6, 20), (2, 0)),
    "b-max-one-value": Repeating("OP_B_MAX", (6, 20), (0, 3)),
}


def _pairs(suffix: str, arch: Arch) -> Iterator[GoldenCase]:
    for name, pair in PAIRS.items():
        yield pair.case(
            f"L1/{name}{suffix}", f"{pair.mnemonic} of {pair.shape}, repeats {pair.repeats}", arch
        )


def _look_ups() -> Iterator[GoldenCase]:
    for name, shape in {
        "": (1, 1, 100),
        "-planes": (1, 6, 20),
        "-matrix": (5, 8, 1),
        "-rows": (2, 3, 300),
    }.items():
        yield LookUp(shape).case(f"L1/lut{name}", f"OP_LUT of {shape}", TABLES)
    few = machine("v4", "onnxruntime", post_lanes=3)
    yield LookUp((1, 1, 77)).case("L1/few-lanes-lut", "OP_LUT on 3 lanes", few)
    for place, timing in TIMINGS.items():
        yield LookUp((1, 1, 333)).case(f"L1/{place}-lut", f"OP_LUT, timing {place}", TABLES, timing)


def _dynamic_products() -> Iterator[GoldenCase]:
    shapes = {"vector": (1, 64, 10), "scores": (6, 24, 12), "column": (9, 7, 1)}
    for numerics in ("onnxruntime", "fixed"):
        arch = machine("v4", numerics)
        suffix = "-fixed" if numerics == "fixed" else ""
        for name, shape in shapes.items():
            for transposed in (False, True):
                product = DynamicProduct(shape, transposed, zeros=(-128, 5, -9))
                place = f"L1/product-{name}{'-transposed' if transposed else ''}{suffix}"
                yield product.case(place, f"OP_DYN_MAT_MUL of {shape}", arch)
        wide = DynamicProduct((3, 20, 7), requantise=False, zeros=(127, -128, 0))
        yield wide.case(f"L1/product-accumulators{suffix}", "OP_DYN_MAT_MUL to int32", arch)
    odd = machine("v4", "onnxruntime", post_lanes=3).model_copy(
        update={"pe": PeArray(ic=3, oc=5, ow=2)}
    )
    yield DynamicProduct((5, 10, 11)).case(
        "L1/odd-array-product", "OP_DYN_MAT_MUL on an odd array", odd
    )
    for place, timing in TIMINGS.items():
        yield DynamicProduct((5, 10, 11)).case(
            f"L1/{place}-product", f"OP_DYN_MAT_MUL, timing {place}", TABLES, timing
        )


def _permutations() -> Iterator[GoldenCase]:
    moves = {
        "dense": Permutation(200, 100, ((100, 1, 1),)),
        "transposed": Permutation(300, 300, ((20, 15, 1), (15, 1, 20))),
        "planes-last": Permutation(6 * 35, 6 * 35, ((35, 1, 6), (6, 35, 1))),
        "sliced": Permutation(6 * 64, 6 * 12, ((4, 2, 1), (3, 16, 4), (6, 64, 12))),
        "twice": Permutation(60, 240, ((10, 1, 2), (2, 0, 1), (2, 0, 20), (6, 10, 40))),
        "shuffled": Permutation(144, 144, ((3, 24, 1), (6, 1, 3), (2, 72, 18), (4, 6, 36))),
        "filled": Permutation(8, 96, ((10, 0, 1), (8, 0, 12)), fill=-7),
    }
    for name, move in moves.items():
        yield move.case(f"L1/permute-{name}", f"OP_PERMUTE of {move.dims}", TABLES)
    few = machine("v4", "onnxruntime", post_lanes=3)
    yield moves["sliced"].case("L1/few-lanes-permute", "OP_PERMUTE on 3 lanes", few)
    banks = machine("v4", "onnxruntime", sram_banks=4)
    yield moves["transposed"].case("L1/few-banks-permute", "OP_PERMUTE of 4 banks", banks)
    for place, timing in TIMINGS.items():
        yield moves["shuffled"].case(
            f"L1/{place}-permute", f"OP_PERMUTE, timing {place}", TABLES, timing
        )


def _last_look_ups() -> Iterator[GoldenCase]:
    """Every instruction that looks its results up, in one table and in one a channel."""
    tables = int8(generator("tables"), 8, TABLE_BYTES)
    depth = Convolution(Window((4, 6, 6)), groups=-1)
    operations: dict[str, Convolution | Pooling | Product | Requantisation | Addition] = {
        "conv": Convolution(), "conv-plane": Convolution(Window((4, 18, 18))), "depth": depth,
        "group": Convolution(groups=2), "pool": Pooling(), "average": Pooling(AVERAGE),
        "matmul": Product((3, 16, 8)),
        "requant": Requantisation((2, 8, 9)), "add": Addition(300),
    }  # fmt: skip
    for suffix, arch in (("", TABLES), ("-fixed", machine("v4", "fixed"))):
        for name, operation in operations.items():
            text = f"{name} with results looked up in"
            yield replace(operation, tables=tables[0]).case(
                f"L1/{name}-table{suffix}", f"{text} a table", arch
            )
            if name != "add":
                own = replace(operation, tables=tables)
                yield own.case(f"L1/{name}-tables{suffix}", f"{text} a table a channel", arch)
    few = machine("v4", "onnxruntime", post_lanes=3)
    yield Pooling(tables=tables[0]).case(
        "L1/few-lanes-pool-table", "results of a pool looked up by 3 lanes", few
    )
    one = machine("v4", "onnxruntime", post_lanes=1)
    yield Pooling(tables=tables[0]).case(
        "L1/one-lane-pool-table", "results of a pool looked up by 1 lane", one
    )


def _idle_lanes() -> Iterator[GoldenCase]:
    """Yield every mapping of convolutions that leave lanes idle: same values, other cycles."""
    operations = {
        "conv": Convolution(Window((3, 7, 21)), 8),
        "depth": Convolution(Window((5, 6, 10)), 5, -1),
        "group": Convolution(Window((8, 4, 9)), 12, 4),
    }
    arrays = {
        "square": PeArray(ic=16, oc=16),
        "odd": PeArray(ic=20, oc=7, ow=2),
        "flat": PeArray(ic=1, oc=64),
    }
    for place, array in arrays.items():
        arch = machine("v4", "onnxruntime").model_copy(update={"pe": array})
        for name, operation in operations.items():
            for mapping in range(4):
                mapped = replace(operation, mapping=mapping)
                text = f"{name} with mapping {mapping} on {array}"
                yield mapped.case(f"L1/{place}-{name}-mapping-{mapping}", text, arch)


def _sums() -> Iterator[GoldenCase]:
    """Yield commands that start from earlier sums, to int8 and int32.

    Some machines have fewer lanes than products.
    """
    few = machine("v4", "onnxruntime", post_lanes=3)
    for suffix, arch in (("", TABLES), ("-fixed", machine("v4", "fixed")), ("-few-lanes", few)):
        for name, requantise in (("", True), ("-accumulators", False)):
            convolution = Convolution(requantise=requantise, accumulate=True)
            yield convolution.case(f"L1/conv-sums{name}{suffix}", "OP_CONV of earlier sums", arch)
            product = Product((5, 16, 7), requantise=requantise, accumulate=True)
            yield product.case(f"L1/matmul-sums{name}{suffix}", "OP_MAT_MUL of earlier sums", arch)


ROWS: Mapping[str, OnRows] = {
    "mean": OnRows("OP_REDUCE", (6, 30, 1)),
    "mean-strided": OnRows("OP_REDUCE", (2, 7, 20), planes=(23, 25)),
    "sum": OnRows("OP_REDUCE", (6, 5, 1), scales=(0.05, 0.01)),
    "largest": OnRows("OP_REDUCE", (3, 9, 11), {"mode": MAXIMUM}),
    "smallest": OnRows("OP_REDUCE", (9, 11, 1), {"mode": MINIMUM}, limits=(-60, 20)),
    "softmax": OnRows("OP_SOFTMAX", (7, 20, 1), scales=(0.04, 1 / 255), zeros=(0, -128)),
    "softmax-strided": OnRows(
        "OP_SOFTMAX", (1, 16, 25), scales=(0.02, 1 / 255), zeros=(0, -128), planes=(30, 27)
    ),
    "softmax-outer": OnRows("OP_SOFTMAX", (3, 4, 5), scales=(0.01, 1 / 256), zeros=(0, 0)),
    "layer-norm": OnRows("OP_NORM", (6, 48, 1), {"centred": 1}),
    "rms-norm": OnRows("OP_NORM", (6, 48, 1)),
    "instance-norm": OnRows("OP_NORM", (5, 1, 36), {"centred": 1, "by_row": 1}),
    "group-norm": OnRows("OP_NORM", (3, 4, 9), {"centred": 1, "by_row": 1}),
    "rms-norm-by-row": OnRows("OP_NORM", (3, 4, 9), {"by_row": 1}),
}


def _rows() -> Iterator[GoldenCase]:
    fixed = machine("v4", "fixed")
    few = machine("v4", "onnxruntime", post_lanes=3)
    for name, on_rows in ROWS.items():
        text = f"{on_rows.mnemonic} of {on_rows.shape}"
        yield on_rows.case(f"L1/{name}", text, TABLES)
        yield on_rows.case(f"L1/{name}-fixed", f"{text}, integers only", fixed)
    for name in ("mean", "softmax", "layer-norm"):
        yield ROWS[name].case(f"L1/few-lanes-{name}", f"{ROWS[name].mnemonic} on 3 lanes", few)
    for place, timing in TIMINGS.items():
        yield ROWS["softmax-strided"].case(
            f"L1/{place}-softmax", f"OP_SOFTMAX, timing {place}", TABLES, timing
        )


RESIZES: Mapping[str, Resizing] = {
    "twice": Resizing(),
    "smaller": Resizing((3, 9, 7), (0.75, 3.25, 5.75, 8.0), (0.3, 3.0, 5.7), (0.05, 0.03)),
    "band": Resizing(
        (2, 3, 4), (4.4, 5.1, 5.8, 6.5), (0.0, 1.5, 3.0), first=(5, 4), planes=(20, 15)
    ),
    "line": Resizing((5, 1, 6), (0.0, 0.0), (0.1, 2.2, 4.3, 5.0), (0.02, 0.04), (-128, 127)),
}


def _resizes() -> Iterator[GoldenCase]:
    for name, resizing in RESIZES.items():
        text = f"planes {resizing.shape} at {len(resizing.rows)} by {len(resizing.columns)} places"
        yield resizing.case(f"L1/resize-{name}", text, TABLES)
        yield resizing.case(
            f"L1/resize-{name}-fixed", f"{text}, integers only", machine("v4", "fixed")
        )
    few = machine("v4", "onnxruntime", post_lanes=3)
    yield RESIZES["smaller"].case("L1/few-lanes-resize", "interpolation on 3 lanes", few)
