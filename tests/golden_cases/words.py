"""Level 1 on machines of words: one case a mechanism, its operands laid out in atoms and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa.arch import Arch, PeArray
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE
from tests.golden_cases.machines import machine
from tests.golden_cases.operations import Convolution, Pooling, Window, generator, int8
from tests.golden_cases.tensor_operations import (
    Addition,
    DynamicProduct,
    LookUp,
    OnRows,
    Product,
    Repeating,
)

NONE = (0, 0, 0, 0)
TABLES = int8(generator("words"), 13, 256)


class Operation(Protocol):
    """A maker of a case of one instruction."""

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case."""


OPERATIONS: Mapping[str, Operation] = {
    "conv-one-stripe": Convolution(Window((8, 4, 8), (1, 1), padding=NONE), 8),
    "conv-two-stripes": Convolution(Window((8, 3, 11), (1, 1), padding=NONE), 8, zeros=(0, -3)),
    "conv-partial-atoms": Convolution(Window((11, 5, 4)), 13, zeros=(-5, 7)),
    "conv-stride-2": Convolution(Window((9, 7, 8), stride=(2, 2)), 8, zeros=(4, 0), relu=True),
    "conv-accumulators": Convolution(Window((4, 3, 5)), 9, requantise=False),
    "conv-partial-sums": Convolution(Window((4, 3, 5)), 9, requantise=False, accumulate=True),
    "conv-last-sums": Convolution(Window((4, 3, 5)), 9, accumulate=True, zeros=(2, -2)),
    "conv-tables": Convolution(Window((5, 3, 3)), 13, tables=TABLES),
    "conv-mapping-1": Convolution(
        Window((3, 9, 10), (7, 7), (2, 2), padding=(3, 3, 3, 3)), 8, mapping=1
    ),
    "conv-mapping-1-wide": Convolution(
        Window((3, 5, 5), (5, 5), padding=(2, 2, 2, 2)), 20, mapping=1
    ),
    "conv-mapping-1-groups": Convolution(Window((6, 4, 5), (2, 2), padding=NONE), 6, 3, mapping=1),
    "conv-mapping-2": Convolution(Window((8, 5, 7)), 3, mapping=2),
    "conv-mapping-2-sums": Convolution(
        Window((19, 3, 5)), 2, mapping=2, requantise=False, accumulate=True
    ),
    "conv-mapping-2-groups": Convolution(
        Window((12, 4, 9), stride=(2, 2)), 6, 3, mapping=2, zeros=(4, -1)
    ),
    "conv-mapping-3": Convolution(
        Window((3, 9, 10), (7, 7), (2, 2), padding=(3, 3, 3, 3)), 8, mapping=3
    ),
    "conv-mapping-3-one-channel": Convolution(Window((1, 6, 6)), 10, mapping=3, relu=True),
    "conv-mapping-3-deep": Convolution(Window((11, 5, 6)), 4, mapping=3, tables=TABLES[:4]),
    "conv-mapping-3-groups": Convolution(
        Window((20, 4, 5), stride=(1, 2)), 10, 5, mapping=3, relu=True
    ),
    "conv-planes-apart": Convolution(
        Window((11, 4, 4)),
        10,
        more={"EX_INPUT_PLANE": 4 * 4 * 8 + 64, "EX_OUTPUT_PLANE": 4 * 4 * 8 + 32},
    ),
    "depth-partial-atom": Convolution(Window((13, 5, 6)), 13, -1, zeros=(-8, 2)),
    "depth-stride-2": Convolution(Window((8, 9, 9), stride=(2, 2)), 8, -1, tables=TABLES[:8]),
    "depth-accumulators": Convolution(Window((10, 4, 4)), 10, -1, requantise=False),
    "groups-in-an-atom": Convolution(Window((8, 4, 5)), 8, 4),
    "groups-across-atoms": Convolution(Window((12, 4, 3)), 8, 4, zeros=(1, 1)),
    "groups-of-atoms": Convolution(Window((16, 3, 3)), 6, 2),
    "matmul-one-row": Product((1, 30, 21)),
    "matmul-stripes": Product((35, 9, 10), relu=True, zero=-4),
    "matmul-partial-sums": Product((5, 12, 9), requantise=False, accumulate=True),
    "pool-maximum": Pooling(window=Window((13, 7, 7), (3, 3), (2, 2), padding=(1, 1, 1, 1))),
    "pool-average": Pooling(
        AVERAGE, Window((9, 5, 6), (3, 3), padding=(1, 1, 1, 1)), scales=(0.05, 0.04)
    ),
    "pool-average-tables": Pooling(
        AVERAGE, Window((8, 4, 4), (2, 2), (2, 2), padding=NONE), tables=TABLES[:1].ravel()
    ),
    "pool-plane": Pooling(GLOBAL_AVERAGE, Window((13, 5, 5), (5, 5), padding=NONE), zeros=(3, -7)),
    "add": Addition(96, zeros=(3, -4, 5)),
    "look-up-channels": LookUp((1, 11, 12)),
    "look-up-one": LookUp((3, 1, 40)),
    "multiply-a-value-a-channel": Repeating("OP_E_MUL", (11, 12), (0, 1)),
    "subtract-a-row": Repeating("OP_E_SUB", (11, 12), (2, 0), zeros=(1, 2, 3)),
    "divide-by-values": Repeating("OP_E_DIV", (5, 7), (0, 0)),
    "divide-by-one": Repeating("OP_E_DIV", (5, 7), (0, 3)),
    "product-of-two": DynamicProduct((35, 20, 13), scale=0.001, zeros=(3, -5, 7)),
    "product-of-two-transposed": DynamicProduct(
        (35, 20, 13), transposed=True, scale=0.001, zeros=(-3, 5, 0)
    ),
    "product-of-two-one-row": DynamicProduct((1, 30, 21), requantise=False),
    "product-of-two-tables": DynamicProduct((5, 9, 13), scale=0.001, tables=TABLES),
    "sums-of-rows": OnRows("OP_REDUCE", (35, 20, 1)),
    "sums-of-planes": OnRows("OP_REDUCE", (1, 13, 40)),
    "maxima-of-planes-apart": OnRows(
        "OP_REDUCE", (1, 13, 12), {"mode": 1}, more={"EX_INPUT_PLANE": 12 * 8 + 64}
    ),
    "minima-of-rows": OnRows("OP_REDUCE", (5, 9, 1), {"mode": 2}),
    "softmax-of-rows": OnRows("OP_SOFTMAX", (35, 20, 1), scales=(0.1, 1 / 256), zeros=(0, -128)),
    "softmax-of-planes": OnRows("OP_SOFTMAX", (1, 13, 40), scales=(0.1, 1 / 256), zeros=(0, -128)),
    "softmax-of-planes-apart": OnRows(
        "OP_SOFTMAX",
        (1, 11, 12),
        scales=(0.1, 1 / 256),
        zeros=(0, -128),
        more={"EX_INPUT_PLANE": 12 * 8 + 64, "EX_OUTPUT_PLANE": 12 * 8 + 32},
    ),
    "norm-of-rows": OnRows("OP_NORM", (35, 20, 1), {"centred": 1}),
    "norm-of-groups": OnRows("OP_NORM", (4, 5, 7), {"centred": 1, "by_row": 1}),
    "norm-by-root-mean-square": OnRows("OP_NORM", (9, 13, 1)),
}
"""On the array of 8 by 8 with words that fit it."""
CONV = OPERATIONS["conv-partial-atoms"]
SHORT = OPERATIONS["conv-one-stripe"]
MACHINES: Mapping[str, tuple[Operation, dict[str, object], dict[str, int]]] = {
    "atom-16": (CONV, {"atom": 16}, {}),
    "two-atoms-a-block": (CONV, {"pe": PeArray(ic=16, oc=8), "atom": 8}, {}),
    "two-atoms-of-two": (
        OPERATIONS["product-of-two"],
        {"pe": PeArray(ic=16, oc=16), "atom": 8},
        {},
    ),
    "word-64": (OPERATIONS["pool-maximum"], {"word_bytes": 64}, {}),
    "accumulators-5": (SHORT, {"accumulators": 5}, {}),
    "one-divider": (OPERATIONS["divide-by-values"], {"dividers": 1, "divide_cycles": 9}, {}),
    "one-divider-for-rows": (OPERATIONS["norm-of-rows"], {"dividers": 1}, {}),
    "many-dividers-for-rows": (OPERATIONS["softmax-of-rows"], {"dividers": 64}, {}),
    "one-bank-of-rows": (OPERATIONS["softmax-of-rows"], {"sram_banks": 1, "dividers": 64}, {}),
    "wide-array-of-two": (
        OPERATIONS["product-of-two-transposed"],
        {"pe": PeArray(ic=4, oc=16)},
        {},
    ),
    "columns-of-two": (OPERATIONS["product-of-two"], {"pe": PeArray(ic=3, oc=5, ow=2)}, {}),
    "few-lanes": (OPERATIONS["add"], {"post_lanes": 4}, {}),
    "wide-array": (CONV, {"pe": PeArray(ic=4, oc=16)}, {}),
    "columns": (OPERATIONS["conv-stride-2"], {"pe": PeArray(ic=3, oc=5, ow=2)}, {}),
    "one-element": (OPERATIONS["depth-partial-atom"], {"pe": PeArray(ic=1, oc=1)}, {}),
    "one-bank": (OPERATIONS["add"], {"sram_banks": 1}, {}),
    "one-bank-half-the-bus": (OPERATIONS["matmul-one-row"], {"sram_banks": 1}, {"bus_bytes": 16}),
}
"""Mechanisms that the machine shows: operation, keys of Arch, keys of Timing."""


def cases() -> Iterator[GoldenCase]:
    """Every operation in one of both numerics in turn, and every machine."""
    for number, (name, operation) in enumerate(OPERATIONS.items()):
        numerics = ("onnxruntime", "fixed")[number % 2]
        yield operation.case(
            f"L1/words-{name}", f"{name} on words, numerics {numerics}", machine("v5", numerics)
        )
    for name, (operation, keys, constants) in MACHINES.items():
        arch = Arch.model_validate({"isa": "v5", **keys})
        text = (
            f"words, {name}: "
            f"{', '.join(f'{key} {value}' for key, value in (keys | constants).items())}"
        )
        yield operation.case(f"L1/words-on-{name}", text, arch, Timing.model_validate(constants))
