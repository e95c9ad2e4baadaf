"""Built-in networks, quantised, partitioned and executed operation by operation: ONNX Runtime to the bit."""

from __future__ import annotations

import pytest

from byoc.passes.onnx_prepare import prepare
from byoc.quantize import quantise
from experiments.models.registry import MODELS
from tests.byoc.oracle_check import check_against_onnxruntime


@pytest.mark.parametrize("name", ["digits-cnn", "resnet-8", pytest.param("mobilenet-v1", marks=pytest.mark.slow)])
def test_network_is_one_region_and_exact(name: str) -> None:
    network = MODELS[name]
    model = quantise(prepare(network.build(0)), network.calibration(0))
    parts = check_against_onnxruntime(model)
    assert len(parts.regions) == 1
    assert {place.op_type for place in parts.placement if place.on == "cpu"} == {"QuantizeLinear", "DequantizeLinear"}
