"""The methods of ``--quantise``: each on a network that it helps, and networks of low accuracy.

The oracle is the float model in ONNX Runtime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

import dla
from byoc.importing import LEFT_FLOAT, NamedSamples, import_model
from byoc.quantisation.calibrate import Feeds
from byoc.quantisation.search import TARGET
from byoc.quantisation.wide import MOST_FLOAT_MACS
from isa.errors import InputError
from tests.byoc import low_accuracy
from tests.byoc.low_accuracy import Builder


def run_float(model: ModelProto, feeds: list[Any]) -> list[list[NDArray[Any]]]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [session.run(None, feed) for feed in feeds]


def decibels(model: ModelProto, feeds: list[Any], method: Any) -> float:
    """Return the ratio of the worst output of the quantised package, computed here."""
    package = import_model(model, "low", calibration=NamedSamples(feeds, method=method))
    wanted = run_float(model, feeds)
    assert isinstance(package.model, ModelProto)
    found = run_float(package.model, feeds)
    levels = []
    for number in range(len(wanted[0])):
        signal = np.concatenate([one[number].ravel() for one in wanted])
        noise = signal - np.concatenate([one[number].ravel() for one in found])
        levels.append(10 * np.log10(np.square(signal).sum() / np.square(noise).sum()))
    return float(min(levels))


def draw(shape: list[int], count: int, scale: object = 1.0) -> list[Feeds]:
    random = np.random.default_rng(7)
    factors = np.asarray(scale)
    return [
        {"x": (random.standard_normal(shape) * factors).astype(np.float32)} for _ in range(count)
    ]


@pytest.mark.parametrize("method", ["percentile", "mse"])
def test_narrower_ranges_ignore_a_rare_large_value(method: Any) -> None:
    b = Builder(0)
    b.add("Relu", b.add("Conv", "x", b.normal(2, 1, 3, 3), pads=[1] * 4), name="y")
    model = b.model({"x": [1, 1, 256, 256]}, {"y": [1, 2, 256, 256]})
    feeds = draw([1, 1, 256, 256], 16)
    usual = [dict(feed) for feed in feeds]
    feeds[0]["x"][0, 0, 5, 5] = 60
    wanted = run_float(model, usual[1:])
    levels = []
    for each in ("minmax", method):
        package = import_model(model, "low", calibration=NamedSamples(feeds, method=each))
        assert isinstance(package.model, ModelProto)
        found = run_float(package.model, usual[1:])
        noise = sum(np.square(a[0] - b[0]).sum() for a, b in zip(wanted, found, strict=True))
        levels.append(-10 * np.log10(noise))
    assert levels[1] > levels[0] + 6


def outlier(kind: str) -> tuple[ModelProto, list[Feeds]]:
    """Return a product of the given kind with one large channel, and samples."""
    b = Builder(0)
    large = np.ones(8)
    large[3] = 1000
    if kind == "Conv":
        weights = b.random.standard_normal((6, 8, 3, 3)) / large.reshape(1, 8, 1, 1)
        x = b.add("Conv", "x", b.constant(weights), b.normal(6, scale=0.1), pads=[1, 0, 2, 1])
        b.add("Relu", x, name="y")
        model = b.model({"x": [1, 8, 9, 9]}, {"y": [1, 6, 10, 8]})
        return model, draw([1, 8, 9, 9], 8, large.reshape(1, 8, 1, 1))
    weights = b.random.standard_normal((8, 6)) / large[:, np.newaxis]
    turned = {"transB": 1} if kind == "turned" else {}
    array = b.constant(weights.T if turned else weights)
    if kind == "MatMul":
        b.add("MatMul", "x", array, name="y")
    else:
        b.add("Gemm", "x", array, b.normal(6, scale=0.1), name="y", **turned)
    model = b.model({"x": [4, 8]}, {"y": [4, 6]})
    return model, draw([4, 8], 8, large)


@pytest.mark.parametrize("kind", ["Conv", "Gemm", "turned", "MatMul"])
@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_products_of_float_tensors_run_in_integers(kind: str, isa: str) -> None:
    model, feeds = outlier(kind)
    assert decibels(model, feeds, "minmax") < 15
    package = import_model(model, "low", calibration=NamedSamples(feeds, method="auto"))
    assert package.fidelity is not None
    assert min(package.fidelity.noise.values()) > TARGET
    report = dla.run(package, inputs=feeds[0], isa=isa).report
    assert report.check.mismatches == 0
    assert report.end_to_end is not None
    assert report.end_to_end.cpu_macs == 0


@pytest.mark.parametrize(
    "make",
    [low_accuracy.text_encoder, low_accuracy.log_mel, low_accuracy.voice_activity],
    ids=lambda make: make.__name__,
)
def test_auto_gains_twelve_decibels_and_keeps_products_on_the_accelerator(make: Any) -> None:
    model, feeds = make()
    before = decibels(model, feeds, "minmax")
    package = import_model(model, "low", calibration=NamedSamples(feeds, method="auto"))
    fidelity = package.fidelity
    assert fidelity is not None
    assert fidelity.calibration is not None
    trials = fidelity.calibration.trials
    assert [one.method for one in trials] == ["minmax", "percentile", "mse", "minmax + float"]
    (chosen,) = (one for one in trials if one.chosen)
    assert chosen.decibels == max(one.decibels for one in trials) >= TARGET
    kept = [node for node in package.graph.nodes if node.remark == LEFT_FLOAT]
    assert 0 < len(kept) <= chosen.in_float
    assert decibels(model, feeds, "auto") >= before + 12
    lossy = fidelity.calibration.lossy
    assert list(lossy.values()) == sorted(lossy.values())
    assert fidelity.calibration.list_trials()[-1].startswith(f"alone in int8: {next(iter(lossy))} ")
    for isa in ("v4", "v5"):
        report = dla.run(package, inputs=feeds[0], isa=isa).report
        assert report.check.mismatches == 0
        cost = report.end_to_end
        assert cost is not None
        assert cost.cpu_macs <= MOST_FLOAT_MACS * (cost.cpu_macs + cost.dla_macs)


def test_auto_is_deterministic() -> None:
    model, feeds = low_accuracy.log_mel()
    one, other = (
        import_model(model, "low", calibration=NamedSamples(feeds, method="auto")) for _ in range(2)
    )
    assert one.digest == other.digest


def test_a_quantised_file_refuses_the_option() -> None:
    model, feeds = low_accuracy.log_mel()
    package = import_model(model, "low", calibration=feeds)
    assert isinstance(package.model, ModelProto)
    with pytest.raises(InputError, match="leave --quantise out"):
        import_model(package.model, "low", calibration=NamedSamples(feeds, method="mse"))


def test_the_default_and_minmax_are_equal() -> None:
    model, feeds = low_accuracy.log_mel()
    default = import_model(model, "low", calibration=feeds)
    assert (
        default.digest
        == import_model(model, "low", calibration=NamedSamples(feeds, method="minmax")).digest
    )
