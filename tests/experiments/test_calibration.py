"""``--calibration``: the user's samples determine the ranges; bad files give one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import experiments
from byoc.importing import import_model
from byoc.package.package import Calibration
from experiments.models import MODELS
from experiments.report.schema import RunReport
from experiments.report.tables import total_lines
from experiments.running.network import load_network
from isa.errors import InputError
from tests.experiments.command_line import dla, save_tiny

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
    report = experiments.run(model, calibration=samples).report
    assert report.check.mismatches == 0
    assert f"--calibration {samples}" in report.command


def test_fixed_inputs_of_a_built_in_network_are_none_of_its_samples() -> None:
    report = experiments.run("digits-cnn", fixed={"image": 0.5}).report
    assert report.check.mismatches == 0
    assert report.accuracy is None
    assert calibrated(report).samples == 64


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "it has no array for 'image'; the inputs are image"),
        (
            {"image": FLOATS, "x": FLOATS},
            "it has an array for something that is no input: 'x'; the inputs are image",
        ),
        (
            {"image": FLOATS[:0]},
            "the arrays have {'image': 0} samples; give all of them the same number",
        ),
        (
            {"image": FLOATS[:, 0, 0]},
            "'image' is of shape [8, 8] and type float32; "
            "the model wants shape [1, 1, 8, 8] and type float32",
        ),
        (
            {"image": FLOATS.astype(np.float64)},
            "'image' is of shape [1, 1, 8, 8] and type float64; "
            "the model wants shape [1, 1, 8, 8] and type float32",
        ),
    ],
)
def test_bad_samples(
    model: Path, tmp_path: Path, arrays: dict[str, NDArray[Any]], message: str
) -> None:
    samples = tmp_path / "samples.npz"
    np.savez(samples, **arrays)
    with pytest.raises(InputError) as caught:
        load_network(str(model), calibration=samples)
    assert str(caught.value) == f"calibration {samples}: {message}"


def test_samples_may_lack_the_axis_of_a_batch_of_one(model: Path, tmp_path: Path) -> None:
    for name, array in (("own", FLOATS), ("batch", FLOATS[:, 0])):
        np.savez(tmp_path / f"{name}.npz", image=array)
    own, batch = (
        load_network(str(model), calibration=tmp_path / f"{name}.npz", cache=False).package
        for name in ("own", "batch")
    )
    assert own.sha256["weights.bin"] == batch.sha256["weights.bin"]
    assert own.fidelity is not None
    assert batch.fidelity is not None
    assert own.fidelity.noise == batch.fidelity.noise


def test_bad_files(model: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.npz"
    text = tmp_path / "text.npz"
    text.write_text("no archive")
    for path, message in (
        (missing, "no such file"),
        (text, "not a readable .npz file of plain numbers"),
    ):
        with pytest.raises(InputError) as caught:
            load_network(str(model), calibration=path)
        assert str(caught.value).startswith(f"calibration {path}: {message}")


def calibrated(report: RunReport) -> Calibration:
    assert report.fidelity is not None
    assert report.fidelity.calibration is not None
    return report.fidelity.calibration


def shown(report: RunReport) -> dict[str, str]:
    return {name: str(text) for name, text in total_lines(report)}


def test_a_run_says_what_it_was_calibrated_on(model: Path, tmp_path: Path) -> None:
    samples = tmp_path / "samples.npz"
    np.savez(
        samples, image=np.stack([feed["image"] for feed in MODELS["digits-cnn"].calibration(0)])
    )
    own = experiments.run(model, calibration=samples).report
    builtin = experiments.run("digits-cnn").report
    found = calibrated(own)
    assert (found.samples, found.random, found.origin) == (64, False, "samples.npz")
    assert calibrated(builtin).origin == "the network's own samples"
    assert found.agreement == calibrated(builtin).agreement
    assert found.agreement["logits"] >= 0.95
    assert shown(own)["calibration"].startswith(
        "quantised on 64 inputs of samples.npz; int8 and float have the same top-1"
    )
    assert not [item for item in own.warnings if item.kind == "uncalibrated"]


def test_random_numbers_are_warned_of_wherever_the_package_goes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = dla(capsys, "compile", model, "-o", tmp_path / "digits.dla")
    assert made.out.startswith(
        "quantised on 4 inputs of random numbers; int8 and float have the same top-1 in "
    )
    warned = (
        "warning: quantised on 4 inputs of random numbers; give samples with --calibration "
        "FILE.npz\n"
    )
    assert made.err == dla(capsys, "partition", model).err == warned
    assert dla(capsys, "emit", model, "-o", tmp_path / "digits.prog").err == warned
    for given in (model, tmp_path / "digits.dla"):
        report = experiments.run(given).report
        assert (calibrated(report).samples, calibrated(report).random) == (4, True)
        (warning,) = (item for item in report.warnings if item.kind == "uncalibrated")
        wanted = "quantised on 4 inputs of random numbers; give samples with --calibration FILE.npz"
        assert warning.message() == wanted
        assert wanted in [str(text) for name, text in total_lines(report) if name == "warning"]


def test_the_error_of_int8_is_that_over_all_samples(model: Path) -> None:
    """The int8 error covers all samples.

    The range grows a hundredfold between two samples. The quiet sample alone would have a much
    larger error.
    """
    source = onnx.load(model)
    quiet = next(iter(MODELS["digits-cnn"].calibration(0)))
    loud = {"image": quiet["image"] * np.float32(100)}
    levels = []
    for feeds in ([quiet, loud], [loud, quiet], [quiet]):
        fidelity = import_model(source, calibration=iter(feeds)).fidelity
        assert fidelity is not None
        assert fidelity.calibration is not None
        assert fidelity.calibration.samples == len(feeds)
        levels.append(fidelity.noise["logits"])
    assert levels[0] == levels[1]


def test_outputs_that_tell_no_classes_have_no_agreement(tmp_path: Path) -> None:
    report = experiments.run(save_tiny(tmp_path)).report
    assert calibrated(report).agreement == {}
    assert shown(report)["calibration"] == "quantised on 4 inputs of random numbers"


def test_a_model_that_came_quantised_was_calibrated_elsewhere(tmp_path: Path) -> None:
    onnx.save(load_network("digits-cnn").package.model, tmp_path / "quantised.onnx")
    report = experiments.run(tmp_path / "quantised.onnx").report
    assert report.fidelity is not None
    assert report.fidelity.calibration is None
    assert "calibration" not in shown(report)
