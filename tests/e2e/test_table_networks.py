"""Networks with activations after 2017 become one exact region on a machine with tables."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from byoc.importing import import_model
from isa.arch import Arch
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

ARCHS = {
    "ample": Arch(isa="v4"),
    "small": Arch(isa="v4", sram_bytes=4096, sram_banks=2),
    "odd": Arch.model_validate(
        {"isa": "v4", "pe": {"ic": 3, "oc": 5, "ow": 2}, "sram_bytes": 16384}
    ),
}


class Float(ModelBuilder):
    """Convolutions and activations in float."""

    def number(self, value: float) -> str:
        return self.constant(value, "float32")

    def convolution(self, x: str, inputs: int, outputs: int) -> str:
        weights = (
            np.random.default_rng(len(self.nodes)).standard_normal((outputs, inputs, 3, 3)) * 0.3
        )
        return self.node("Conv", x, self.constant(weights, "float32"), pads=[1, 1, 1, 1])

    def activation(self, kind: str, x: str) -> str:
        if kind == "silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        if kind == "hard-swish-of-four":
            inside = self.node(
                "Clip", self.node("Add", x, self.number(3)), self.number(0), self.number(6)
            )
            return self.node("Div", self.node("Mul", x, inside), self.number(6))
        if kind == "hard-swish-of-two":
            return self.node("Mul", x, self.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        if kind == "gelu-of-five":
            erf = self.node("Erf", self.node("Div", x, self.number(2**0.5)))
            return self.node(
                "Mul", self.node("Mul", x, self.node("Add", erf, self.number(1))), self.number(0.5)
            )
        return self.node(
            {"hard-swish": "HardSwish", "gelu": "Gelu", "mish": "Mish", "tanh": "Tanh"}[kind], x
        )


KINDS = (
    "silu",
    "hard-swish",
    "hard-swish-of-two",
    "hard-swish-of-four",
    "gelu",
    "gelu-of-five",
    "mish",
    "tanh",
)


def network(kind: str) -> onnx.ModelProto:
    """Convolutions with an activation each, a residual addition, a pool, and scalars at the end."""
    builder = Float()
    x = builder.input("x", (1, 3, 14, 15))
    first = builder.activation(kind, builder.convolution(x, 3, 8))
    second = builder.activation(kind, builder.convolution(first, 8, 8))
    joined = builder.activation(kind, builder.node("Add", first, second))
    pooled = builder.node("MaxPool", joined, kernel_shape=[2, 2], strides=[2, 2])
    last = builder.convolution(pooled, 8, 4)
    builder.node(
        "Add",
        builder.node("Mul", builder.node("Sigmoid", last), builder.number(2)),
        builder.number(-0.5),
        result="y",
    )
    builder.output("y")
    return builder.model()


@pytest.mark.parametrize("kind", KINDS)
def test_one_region_and_one_table_an_activation(kind: str) -> None:
    package = import_model(network(kind), kind)
    assert [node.op_type for node in package.graph.nodes].count("Table") == 4
    quantizers = [node for node in package.model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantizers) <= 11, (
        "borders only: the input, four products, a sum, a pool, four tables"
    )
    feed = {"x": np.random.default_rng(1).standard_normal((1, 3, 14, 15)).astype(np.float32)}
    for arch in ARCHS.values():
        for schedule in ("default", "seed"):
            found = compare(package, feed, arch, schedule)
            assert (found.mismatches, len(found.partition.regions)) == (0, 1)
    without = compare(package, feed, Arch(isa="v3"))
    assert without.mismatches == 0
    assert len(without.partition.regions) > 1


def test_what_nothing_quantised_feeds_stays_float() -> None:
    builder = Float()
    soft = builder.node("Hardmax", builder.convolution(builder.input("x", (1, 3, 6, 6)), 3, 4))
    builder.node("Mul", soft, builder.number(3), result="y")
    builder.output("y")
    assert "Table" not in [
        node.op_type for node in import_model(builder.model(), "float").graph.nodes
    ]
