"""Built-in networks, quantised, partitioned and run operation by operation, equal ONNX Runtime.

They are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.quantisation.quantize import quantise
from experiments.models import MODELS
from tests.byoc.oracle_check import check_against_onnxruntime


@pytest.mark.parametrize(
    "name", ["digits-cnn", "resnet-8", pytest.param("mobilenet-v1", marks=pytest.mark.slow)]
)
def test_network_is_one_region_and_exact(name: str) -> None:
    network = MODELS[name]
    model = quantise(prepare(network.build(0)), network.calibration(0))
    parts = check_against_onnxruntime(model)
    assert len(parts.regions) == 1
    assert {place.op_type for place in parts.placement if place.on == "cpu"} == {
        "QuantizeLinear",
        "DequantizeLinear",
    }


class Feeds(CalibrationDataReader):
    """A calibration reader over ready-made feeds."""

    def __init__(self, feeds: Iterable[dict[str, Any]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_models_of_onnxruntimes_quantiser(
    form: QuantFormat, activations: QuantType, per_channel: bool, tmp_path: Path
) -> None:
    network = MODELS["resnet-8"]
    onnx.save(prepare(network.build(0)), tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "quantised.onnx",
        Feeds(network.calibration(0)),
        quant_format=form,
        per_channel=per_channel,
        activation_type=activations,
        weight_type=QuantType.QInt8,
        extra_options={"WeightSymmetric": True},
    )
    parts = check_against_onnxruntime(prepare(onnx.load(tmp_path / "quantised.onnx")))
    accelerated = sum(node.macs for region in parts.regions for node in region.nodes)
    assert accelerated == sum(node.macs for node in parts.graph.nodes) > 12_000_000
