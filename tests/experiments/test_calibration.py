"""``--calibration``: the user's own samples decide the ranges, and bad files give one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import experiments
from experiments.models import MODELS
from experiments.running.network import load_network
from isa.errors import InputError

FLOATS = np.zeros((2, 1, 1, 8, 8), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "digits.onnx"
    onnx.save(MODELS["digits-cnn"].build(0), path)
    return path


def test_samples_decide_the_ranges(model: Path, tmp_path: Path) -> None:
    feeds = list(MODELS["digits-cnn"].calibration(0))
    samples = tmp_path / "samples.npz"
    np.savez(samples, image=np.stack([feed["image"] for feed in feeds]))
    own = load_network(str(model), calibration=samples).package
    builtin = load_network("digits-cnn").package
    assert own.graph.values["logits_QuantizeLinear_Output"].quantization is not None
    for name, value in builtin.graph.values.items():
        found = own.graph.values[name].quantization
        if value.quantization is None:
            assert found is None
        else:
            assert found is not None
            np.testing.assert_array_equal(found.scale, value.quantization.scale)
    report = experiments.run(model, calibration=samples)
    assert report.check.mismatches == 0
    assert f"--calibration {samples}" in report.command


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "it has no array for 'image'; the inputs are image"),
        ({"image": FLOATS, "x": FLOATS}, "it has an array for something that is no input: 'x'; the inputs are image"),
        ({"image": FLOATS[:0]}, "the arrays have {'image': 0} samples; give all of them the same number"),
        (
            {"image": FLOATS[:, 0]},
            "'image' has samples of shape [1, 8, 8] and type float32; "
            "the model wants shape [1, 1, 8, 8] and type float32",
        ),
        (
            {"image": FLOATS.astype(np.float64)},
            "'image' has samples of shape [1, 1, 8, 8] and type float64; "
            "the model wants shape [1, 1, 8, 8] and type float32",
        ),
    ],
)
def test_bad_samples(model: Path, tmp_path: Path, arrays: dict[str, NDArray[Any]], message: str) -> None:
    samples = tmp_path / "samples.npz"
    np.savez(samples, **arrays)
    with pytest.raises(InputError) as caught:
        load_network(str(model), calibration=samples)
    assert str(caught.value) == f"--calibration {samples}: {message}"


def test_bad_files(model: Path, tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.npz", tmp_path / "text.npz"
    text.write_text("no archive")
    for path, message in ((missing, "no such file"), (text, "not a readable .npz file of plain numbers")):
        with pytest.raises(InputError) as caught:
            load_network(str(model), calibration=path)
        assert str(caught.value).startswith(f"--calibration {path}: {message}")
