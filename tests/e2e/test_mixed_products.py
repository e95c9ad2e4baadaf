"""Products of uint8 and int8 operands are right on every processor, without false alarms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from tests.e2e.mixed_products import MixedNetwork, wrong_values

ZERO_POINTS = {
    "QLinearConv": (2, 5),
    "QLinearMatMul": (2, 5),
    "QGemm": (2, 5),
    "MatMulInteger": (2, 3),
}
"""Inputs of operators that saturate where the first zero point is uint8 and the second int8."""


def _saturating(model: onnx.ModelProto) -> list[str]:
    """The products of a model whose operands are uint8 and int8; of ConvInteger int8 and uint8."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    places = {**ZERO_POINTS, "ConvInteger": (3, 2)}
    return [
        node.op_type
        for node in model.graph.node
        if node.op_type in places
        and [types[node.input[place]] for place in places[node.op_type]]
        == [TensorProto.UINT8, TensorProto.INT8]
    ]


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_drawn_networks_equal_their_definitions(first: int) -> None:
    """``python -m tests.e2e.mixed_products --count 2000`` draws many more."""
    assert {seed: wrong for seed in range(first, first + 8) if (wrong := wrong_values(seed))} == {}


def test_no_processor_runs_a_product_that_saturates_on_some(tmp_path: Path) -> None:
    """ONNX Runtime makes no product of the models that saturates on some processors.

    The test inspects the optimised models, so it holds on processors with VNNI too.
    """
    given = 0
    fused = 0
    for seed in range(40):
        network = MixedNetwork(seed)
        given += len(_saturating(network.model))
        path = tmp_path / f"{seed}.onnx"
        session = OnnxRuntimeSession(network.model, str(path))
        made = onnx.load(path)
        assert _saturating(made) == [], seed
        fused += sum(node.op_type in ZERO_POINTS for node in made.graph.node)
        names = [value.name for value in network.model.graph.output]
        for name, array in session.run(names, network.feeds).items():
            if name in network.expected:
                np.testing.assert_array_equal(array, network.expected[name])
    assert given > 5
    assert fused > 20


def test_a_tie_that_a_later_product_makes_large_is_no_alarm() -> None:
    """A float Gemm ends halfway between two steps; the next product makes 254 of that step."""
    fidelity = import_model(MixedNetwork(200873).model, "tie").fidelity
    assert fidelity is not None
    file = fidelity.file
    assert file is not None
    assert (file.beyond, file.steps, file.ties) == (3, 254.0, True)
    assert wrong_values(200873) == []
