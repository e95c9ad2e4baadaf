"""Training of ``digits-cnn``: gradients against finite differences, and the exported network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.models import digits
from experiments.models.digits import TFLITE_FILE, calibration_digits, digits_model, held_out_digits
from tests.byoc.float_models import run
from tests.digits.__main__ import (
    accuracy,
    digits_graph,
    forward,
    initial_parameters,
    loss_and_gradients,
    tflite_content,
)


def batch() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.uniform(0, 1, (4, 1, 8, 8)), generator.integers(0, 10, 4)


@pytest.mark.parametrize("layer", ["conv", "depthwise", "pointwise", "classifier"])
@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_gradients_are_finite_differences(layer: str, kind: str) -> None:
    name = f"{layer}_{kind}"
    images, labels = batch()
    # In float64, so that differences are exact enough; biases of zero would put dark pixels on the
    # kink of a ReLU.
    generator = np.random.default_rng(1)
    initial = initial_parameters(generator)
    parameters = {
        key: value + generator.uniform(0.01, 0.1, value.shape) for key, value in initial.items()
    }
    _, gradients = loss_and_gradients(parameters, images, labels)
    step = 1e-6
    for index in np.random.default_rng(2).integers(0, parameters[name].size, 4):
        changed = [dict(parameters, **{name: parameters[name].copy()}) for _ in range(2)]
        for sign, candidate in zip((1, -1), changed, strict=True):
            candidate[name].reshape(-1)[index] += sign * step
        high, low = (loss_and_gradients(candidate, images, labels)[0] for candidate in changed)
        assert gradients[name].reshape(-1)[index] == pytest.approx(
            (high - low) / (2 * step), rel=1e-3, abs=1e-6
        )


def test_exported_network_computes_the_same() -> None:
    parameters = initial_parameters(np.random.default_rng(1))
    image = batch()[0][:1].astype(np.float32)
    exported = run(digits_graph(parameters), {"image": image})[0]
    np.testing.assert_allclose(exported, forward(parameters, image)["logits"], rtol=1e-5, atol=1e-5)


def test_committed_network_holds_trained_parameters() -> None:
    import onnx

    parameters = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in digits_model().graph.initializer
    }
    assert set(parameters) == set(initial_parameters(np.random.default_rng(1)))
    assert accuracy(parameters, *held_out_digits()) >= 0.97


def test_committed_int8_network_holds_the_same_parameters_quantised() -> None:
    import onnx

    from byoc.frontend.tflite.file import load_tflite, read_tflite

    parameters = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in digits_model().graph.initializer
    }
    made = read_tflite(tflite_content(parameters, calibration_digits()), "made")
    committed = load_tflite(Path(digits.__file__).with_name(TFLITE_FILE))
    for found, wanted in zip(committed.tensors, made.tensors, strict=True):
        assert (found.name, found.shape, found.dtype) == (wanted.name, wanted.shape, wanted.dtype)
        # Ranges are sums of floats, which every computer may add in another order.
        np.testing.assert_allclose(found.quantization.scale, wanted.quantization.scale, rtol=1e-5)
        np.testing.assert_array_equal(found.quantization.zero_point, wanted.quantization.zero_point)
        if found.dtype == "int8" or found.data is None:
            np.testing.assert_array_equal(found.data, wanted.data)
        else:
            # biases, in steps of the products
            np.testing.assert_allclose(found.data, wanted.data, atol=1)
