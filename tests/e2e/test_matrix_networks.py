"""Matrix products in all forms of models run on the accelerator.

They do so if ONNX Runtime makes them integer operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from byoc.importing import import_model
from isa.arch import Arch
from tests.byoc.oracle_check import placed, random_feeds
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

SMALL = Arch(isa="v4", sram_bytes=8192, sram_banks=2)
ODD = Arch.model_validate({"isa": "v4", "pe": {"ic": 3, "oc": 5, "ow": 2}, "sram_bytes": 65536})


class Products(ModelBuilder):
    """Values between quantisations, and constants drawn one after another."""

    def __init__(self) -> None:
        super().__init__(17)
        self.random = np.random.default_rng(3)

    def data(self, *shape: int, name: str = "x", scale: float = 0.05, zero: int = 3) -> str:
        return self.dequantize(self.quantize(self.input(name, shape), scale, zero), scale, zero)

    def matrix(self, *shape: int, scale: Any = 0.02, zero: Any = 0, axis: int = 0) -> str:
        return self.weights(
            self.random.integers(-127, 128, shape).astype(np.int8), scale, zero, axis
        )

    def asymmetric(self, *shape: int, axis: int = 0) -> str:
        """Weights with a scale and a zero point an output channel."""
        count = shape[axis]
        return self.matrix(
            *shape,
            scale=[0.01 * n for n in range(1, count + 1)],
            zero=[3, -5, 0, 99][:count],
            axis=axis,
        )

    def padded(self, mode: str, *pads: int) -> str:
        """Images, with something around them."""
        return self.node(
            "Pad", self.data(2, 5, 6, 6), self.constant(pads, "int64"), name="pad", mode=mode
        )

    def real(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape), "float32")

    def finish(self, result: str) -> onnx.ModelProto:
        self.output(self.dequantize(self.quantize(result, 0.2, -5), 0.2, -5))
        return self.model()


def _padded(mode: str) -> Callable[[Products], str]:
    return lambda b: b.node(
        "Conv", b.padded(mode, 0, 0, 1, 2, 0, 0, 0, 1), b.matrix(4, 5, 3, 3), name="op"
    )


def _joined(axis: int, shape: tuple[int, ...]) -> Callable[[Products], str]:
    return lambda b: b.node(
        "Concat",
        b.data(3, 4, 5, 6),
        b.data(*shape, name="z", scale=0.03, zero=-9),
        name="op",
        axis=axis,
    )


SCALES = [0.01, 0.02, 0.03, 0.04]
QUANTISED: dict[str, Callable[[Products], str]] = {
    "row added": lambda b: b.node(
        "Add", b.node("MatMul", b.data(5, 7), b.matrix(7, 4), name="op"), b.real(4)
    ),
    "row added to matrices": lambda b: b.node(
        "Add", b.real(4), b.node("MatMul", b.data(2, 5, 7), b.matrix(7, 4), name="op")
    ),
    "weights transposed": lambda b: b.node(
        "MatMul",
        b.data(5, 7),
        b.node("Transpose", b.matrix(4, 7, scale=SCALES), perm=[1, 0]),
        name="op",
    ),
    "reshaped": lambda b: b.node(
        "Gemm",
        b.node("Reshape", b.data(5, 2, 7), b.constant([5, 14], "int64")),
        b.matrix(14, 4),
        name="op",
    ),
    "reshaped twice": lambda b: b.node(
        "MatMul",
        b.node(
            "Squeeze",
            b.node("Unsqueeze", b.data(5, 7), b.constant([0], "int64")),
            b.constant([0], "int64"),
        ),
        b.matrix(7, 4),
        name="op",
    ),
    "result reshaped": lambda b: b.node(
        "Reshape",
        b.node("MatMul", b.data(6, 7), b.matrix(7, 4), name="op"),
        b.constant([2, 3, 4], "int64"),
    ),
    "float bias": lambda b: b.node("Gemm", b.data(5, 7), b.matrix(7, 4), b.real(4), name="op"),
    "float bias, columns": lambda b: b.node(
        "Gemm", b.data(5, 7), b.matrix(4, 7, scale=SCALES), b.real(4), name="op", transB=1
    ),
    "float bias of filters": lambda b: b.node(
        "Conv", b.data(1, 7, 6, 6), b.matrix(4, 7, 3, 3, scale=SCALES), b.real(4), name="op"
    ),
    "padded": lambda b: b.node(
        "Conv",
        b.node("Pad", b.data(1, 7, 6, 6), b.constant([0, 0, 1, 2, 0, 0, 0, 1], "int64")),
        b.matrix(4, 7, 3, 3),
        name="op",
        pads=[1, 0, 0, 0],
    ),
    "padded between quantisations": lambda b: b.node(
        "Conv",
        b.dequantize(
            b.quantize(
                b.node("Pad", b.data(1, 7, 6, 6), b.constant([0, 0, 1, 2, 0, 0, 0, 1], "int64")),
                0.05,
                3,
            ),
            0.05,
            3,
        ),
        b.matrix(4, 7, 3, 3),
        name="op",
    ),
    "alpha": lambda b: b.node("Gemm", b.data(5, 7), b.matrix(7, 4), name="op", alpha=0.3),
    "two activations": lambda b: b.node(
        "Gemm", b.data(5, 7), b.data(4, 7, name="z", scale=0.03, zero=-9), name="op", transB=1
    ),
    "row of a matrix added": lambda b: b.node(
        "Add", b.node("MatMul", b.data(2, 5, 7), b.matrix(7, 4), name="op"), b.real(1, 1, 4)
    ),
    "number added": lambda b: b.node(
        "Add", b.node("MatMul", b.data(5, 7), b.matrix(7, 4), name="op"), b.real(1)
    ),
    "row added, asymmetric": lambda b: b.node(
        "Add", b.node("MatMul", b.data(2, 5, 7), b.asymmetric(7, 4, axis=1), name="op"), b.real(4)
    ),
    "weights of three dimensions": lambda b: b.node(
        "MatMul", b.data(2, 5, 7), b.matrix(1, 7, 4), name="op"
    ),
    "weights of three dimensions, row added": lambda b: b.node(
        "Add", b.node("MatMul", b.data(2, 5, 7), b.matrix(1, 7, 4), name="op"), b.real(4)
    ),
    "a stack of weights": lambda b: b.node("MatMul", b.data(2, 5, 7), b.matrix(2, 7, 4), name="op"),
    "weights transposed, asymmetric": lambda b: b.node(
        "MatMul", b.data(5, 7), b.node("Transpose", b.asymmetric(4, 7), perm=[1, 0]), name="op"
    ),
    "weights reshaped": lambda b: b.node(
        "Conv",
        b.data(2, 7, 6, 6),
        b.node("Reshape", b.matrix(4, 63), b.constant([4, 7, 3, 3], "int64")),
        name="op",
    ),
    "alpha, beta and bias": lambda b: b.node(
        "Gemm", b.data(5, 7), b.matrix(7, 4), b.real(1, 4), name="op", alpha=0.3, beta=2.0
    ),
    "data transposed": lambda b: b.node(
        "Gemm", b.data(7, 5), b.matrix(4, 7, scale=SCALES), b.real(4), name="op", transA=1, transB=1
    ),
    "flattened": lambda b: b.node(
        "Gemm", b.node("Flatten", b.data(5, 2, 7)), b.matrix(14, 4), b.real(4), name="op"
    ),
    "filters asymmetric": lambda b: b.node(
        "Conv", b.data(2, 7, 6, 6), b.asymmetric(4, 7, 3, 3), name="op"
    ),
    "filters asymmetric, float bias": lambda b: b.node(
        "Conv", b.data(2, 7, 6, 6), b.asymmetric(4, 7, 3, 3), b.real(4), name="op"
    ),
    "filters asymmetric, depthwise": lambda b: b.node(
        "Conv", b.data(2, 4, 6, 6), b.asymmetric(4, 1, 3, 3), name="op", group=4
    ),
    "float bias of a line's filters": lambda b: b.node(
        "Conv", b.data(2, 7, 16), b.matrix(4, 7, 3, scale=SCALES), b.real(4), name="op"
    ),
    "channels first": lambda b: b.node(
        "Conv",
        b.node("Transpose", b.data(2, 6, 6, 7), perm=[0, 3, 1, 2]),
        b.matrix(4, 7, 3, 3),
        name="op",
    ),
    **{f"padded, {mode}": _padded(mode) for mode in ("constant", "edge", "reflect", "wrap")},
    "channels padded": lambda b: b.node(
        "Conv", b.padded("constant", 0, 2, 1, 2, 0, 0, 0, 1), b.matrix(4, 7, 3, 3), name="op"
    ),
    "channels added": lambda b: b.node("Add", b.data(2, 4, 5, 6), b.matrix(1, 4, 1, 1), name="op"),
    "float channels added": lambda b: b.node("Add", b.real(4, 1, 1), b.data(2, 4, 5, 6), name="op"),
    "float channels multiplied": lambda b: b.node(
        "Mul", b.data(2, 4, 5, 6), b.real(1, 4, 1, 1), name="op"
    ),
    "computed channels added": lambda b: b.node(
        "Add", b.data(2, 4, 5, 6), b.data(2, 4, 1, 1, name="z", scale=0.03, zero=-9), name="op"
    ),
    "a constant added": lambda b: b.node(
        "Add", b.data(2, 4, 5, 6), b.matrix(2, 4, 5, 6), name="op"
    ),
    **{
        f"joined along {axis}": _joined(axis, shape)
        for axis, shape in ((0, (2, 4, 5, 6)), (1, (3, 2, 5, 6)), (-1, (3, 4, 5, 3)))
    },
    "images averaged": lambda b: b.node(
        "AveragePool", b.data(3, 4, 5, 6), kernel_shape=[2, 2], name="op"
    ),
    "planes averaged": lambda b: b.node("GlobalAveragePool", b.data(3, 4, 5, 6), name="op"),
    "relu": lambda b: b.node(
        "Relu", b.node("MatMul", b.data(5, 7), b.data(7, 4, name="z"), name="op")
    ),
}


IN_FLOAT = {"relu", "padded, edge", "padded, reflect", "padded, wrap", "channels padded"}
"""What ONNX Runtime would make integers but for the activation, or the padding, that stands beside:
of these, a number of the model as given differs."""


@pytest.mark.parametrize("case", QUANTISED)
def test_what_onnx_runtime_makes_integers_does_not_fall_back(case: str) -> None:
    """A product that ONNX Runtime makes integer runs on the accelerator with equal integers.

    So does a product that ONNX Runtime would make integer if its neighbours did not prevent it.
    """
    builder = Products()
    model = builder.finish(QUANTISED[case](builder))
    package = import_model(model, case)
    assert package.fidelity is not None
    assert package.fidelity.integer == 0.0 or case in IN_FLOAT
    for arch in (Arch(isa="v4"), SMALL):
        for schedule in ("default", "seed"):
            found = compare(package, random_feeds(model, 1), arch, schedule)
            assert placed(found.partition)["op"] == "dla"
            assert (found.mismatches, len(found.partition.regions)) == (0, 1)


FLOAT: dict[str, Callable[[Products], str]] = {
    "layers of three dimensions": lambda b: b.node(
        "Add",
        b.node(
            "MatMul",
            b.node(
                "Relu",
                b.node(
                    "Add", b.node("MatMul", b.input("x", (2, 6, 16)), b.real(16, 24)), b.real(24)
                ),
            ),
            b.real(24, 8),
        ),
        b.real(1, 1, 8),
    ),
    "weights of three dimensions": lambda b: b.node(
        "MatMul", b.input("x", (2, 6, 16)), b.real(1, 16, 24)
    ),
    "a stack of weights": lambda b: b.node("MatMul", b.input("x", (3, 6, 16)), b.real(3, 16, 4)),
    "weights first": lambda b: b.node("MatMul", b.real(5, 16), b.input("x", (2, 16, 6))),
    "alpha and beta": lambda b: b.node(
        "Gemm", b.input("x", (6, 16)), b.real(4, 16), b.real(1, 4), alpha=0.5, beta=2.0, transB=1
    ),
    "beta alone": lambda b: b.node(
        "Gemm", b.input("x", (6, 16)), b.real(16, 4), alpha=0.5, beta=2.0
    ),
    "scores": lambda b: b.node("MatMul", b.input("x", (2, 3, 6, 16)), b.input("z", (2, 3, 16, 7))),
    "padded": lambda b: b.node(
        "Conv",
        b.node("Pad", b.input("x", (1, 3, 8)), b.constant([0, 0, 2, 0, 0, 1], "int64")),
        b.real(4, 3, 3),
        b.real(4),
    ),
    "row of planes": lambda b: b.node(
        "Add", b.node("Conv", b.input("x", (1, 3, 8)), b.real(4, 3, 3), b.real(4)), b.real(4, 1)
    ),
}


@pytest.mark.parametrize("case", FLOAT)
def test_float_products_are_one_region_of_products(case: str) -> None:
    builder = Products()
    builder.output(FLOAT[case](builder))
    model = builder.model()
    package = import_model(model, case)
    for arch in (Arch(isa="v4"), SMALL, ODD):
        found = compare(package, random_feeds(model, 1), arch)
        assert (found.mismatches, len(found.partition.regions)) == (0, 1)
        assert {place.op_type for place in found.partition.placement if place.on == "cpu"} <= {
            "QuantizeLinear",
            "DequantizeLinear",
        }


SIZES = [
    # batches, M, K, N, transposed: each larger than the scratchpad, alone and together
    (1, 200, 30, 20, False), (1, 20, 1500, 9, False), (1, 20, 30, 300, False),
    (1, 20, 30, 300, True), (2, 130, 140, 150, False), (1, 130, 140, 150, True),
    (3, 1, 64, 70, False), (1, 1, 1, 3900, False),
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("schedule", ["default", "seed"])
def test_products_of_activations_are_cut_to_the_scratchpad(
    size: tuple[int, int, int, int, bool], schedule: str
) -> None:
    """A product that reads what another one makes: resident, or through system memory."""
    batches, m, k, n, transposed = size
    builder = Products()
    x = builder.data(*((m, k) if transposed else (batches, m, k)))
    z = builder.data(*((n, k) if transposed else (batches, k, n)), name="z", scale=0.03, zero=-77)
    operator = {"transB": 1} if transposed else {}
    first = builder.node("Gemm" if transposed else "MatMul", x, z, name="op", **operator)
    scores = builder.dequantize(builder.quantize(first, 0.3, 9), 0.3, 9)
    y = builder.data(*((n, 5) if transposed else (batches, n, 5)), name="v", scale=0.04, zero=127)
    model = builder.finish(builder.node("MatMul", scores, y, name="second"))
    package = import_model(model, "product")
    for arch in (SMALL, ODD):
        found = compare(package, random_feeds(model, 2), arch, schedule)
        whole = schedule == "default" or max(m * k, k * n, m * n) < 6000
        assert found.mismatches == 0
        assert not whole or (placed(found.partition)["op"], placed(found.partition)["second"]) == (
            "dla",
            "dla",
        )
