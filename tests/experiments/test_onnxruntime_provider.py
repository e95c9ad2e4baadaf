"""The execution provider of ONNX Runtime: placement, bits, contexts, profiles and errors."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest

from experiments.models import MODELS
from experiments.running.given import Given
from experiments.running.inference import run
from experiments.running.network import load
from tests.onnxruntime_networks import compare, open_session


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The file of the network of digits, and its integer model."""
    folder = tmp_path_factory.mktemp("digits")
    onnx.save(MODELS["digits-cnn"].build(0), folder / "digits.onnx")
    package = load(Given(str(folder / "digits.onnx"))).package
    onnx.save(package.model, folder / "integer.onnx")
    return folder


@pytest.mark.parametrize(
    ("file", "machine"),
    [
        ("digits.onnx", {}),
        ("integer.onnx", {}),
        ("integer.onnx", {"isa": "v1"}),  # runs some operators between regions on the CPU
    ],
)
def test_a_session_places_and_computes_what_dla_does(digits, file, machine):
    words = compare(digits / file, machine, file == "integer.onnx")
    assert "ours 0 of 10 differ" in words
    assert "missing 0, extra 0" in words
    assert ("CPU 0 of 10 differ" in words) == (file == "integer.onnx")


def test_two_sessions_on_two_machines_run_in_threads(digits):
    path = str(digits / "digits.onnx")
    sessions = [open_session(path, {"isa": "v4"}), open_session(path, {"schedule": "seed"})]
    (name,) = [one.name for one in sessions[0].get_inputs()]
    feeds = [{name: np.full((1, 1, 8, 8), number, np.float32)} for number in range(8)]
    expected = [run(path, inputs=feed).outputs["logits"] for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        for session in sessions:
            found = pool.map(lambda feed, one=session: one.run(None, feed)[0], feeds)
            assert all(map(np.array_equal, found, expected))
