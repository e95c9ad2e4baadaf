"""``dla run --accuracy``: top-1 over the user's held-out samples, float, int8 and accelerated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from experiments.models import digits
from experiments.report.checks import Accuracy
from experiments.running.inference import run
from isa.errors import InputError
from tests.experiments.command_line import dla

FOLDER = Path(digits.__file__).parent


def _saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def test_a_file_of_the_digits_says_what_the_built_in_network_does(tmp_path: Path) -> None:
    images, labels = digits.held_out_digits()
    held_out = _saved(tmp_path / "digits.npz", image=images[:, None], labels=labels)
    calibration = _saved(tmp_path / "samples.npz", image=digits.calibration_digits()[:, None])
    found = run(FOLDER / digits.MODEL_FILE, accuracy=held_out, calibration=calibration).report
    assert found.accuracy == run("digits-cnn").report.accuracy
    assert f"--accuracy {held_out}" in found.command


@pytest.mark.parametrize("numerics", ["onnxruntime", "fixed"])
def test_int8_digits_on_litert_and_on_the_accelerator(numerics: str, tmp_path: Path) -> None:
    """LiteRT's kernels of that rounding and the accelerator agree in every bit.

    They run all 450 images.
    """
    images, labels = digits.held_out_digits()
    stored = (np.rint(images * 255) - 128).astype(np.int8).transpose(0, 2, 3, 1)[:, None]
    held_out = _saved(tmp_path / "digits.npz", image=stored, labels=labels)
    found = run(
        FOLDER / digits.TFLITE_FILE, settings=[f"numerics={numerics}"], accuracy=held_out
    ).report
    assert found.check.mismatches == 0
    assert found.accuracy == Accuracy(
        float_=None, int8=442 / 450, dla=442 / 450, images=450, differences=0
    )


IMAGES = np.zeros((3, 1, 1, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"image": IMAGES}, "it has no array 'labels'; add one, with an entry for each sample"),
        ({"labels": np.zeros(3, int)}, "it has no array for 'image'; the inputs are image"),
        (
            {"image": IMAGES, "labels": np.zeros(2, int)},
            "the arrays have {'image': 3, 'labels': 2} samples",
        ),
        (
            {"image": IMAGES, "labels": np.zeros((3, 10), int)},
            "'labels' is of shape [3, 10] and type int64; give the",
        ),
        (
            {"image": IMAGES, "labels": np.zeros(3)},
            "'labels' is of shape [3] and type float64; give the class of",
        ),
        (
            {"image": IMAGES[:, 0, 0], "labels": np.zeros(3, int)},
            "'image' is of shape [8, 8] and type",
        ),
    ],
)
def test_files_that_do_not_fit(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    file = _saved(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(InputError) as caught:
        run("digits-cnn", accuracy=file)
    assert str(caught.value).startswith(f"accuracy {file}: {message}")


def test_the_first_output_of_several_is_judged(tmp_path: Path) -> None:
    model = onnx.load(FOLDER / digits.MODEL_FILE)
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, None)
    )
    onnx.save(model, tmp_path / "two.onnx")
    images, labels = digits.held_out_digits()
    held_out = _saved(tmp_path / "digits.npz", image=images[:20, None], labels=labels[:20])
    found = run(tmp_path / "two.onnx", accuracy=held_out).report.accuracy
    assert found is not None
    assert (found.images, found.differences) == (20, 0)
    assert found.float_ >= 0.9


@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_images_that_round_otherwise_on_purpose_are_counted_and_no_failure(
    isa: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images that round differently from ONNX Runtime under fixed numerics are no failure.

    No oracle computes the fixed rounding of an ONNX model.
    """
    found = dla(capsys, "run", "digits-cnn", "--isa", isa, "--set", "numerics=fixed", "--json", "-")
    assert (found.status, "difference:" in found.err) == (0, False)
    found = dla(capsys, "run", "digits-cnn", "--isa", isa, "--set", "numerics=fixed", "--all")
    assert "; int8 and DLA round differently and differ on " in found.out
