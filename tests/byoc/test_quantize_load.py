"""Reading model files: the exact line for everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from byoc.frontend.onnx.file import load_model
from isa.errors import InputError
from tests.byoc.float_models import make_model, random_arrays, run


def model() -> onnx.ModelProto:
    return make_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [2, 64], random_arrays(1, w=[64, 64])
    )


def message(path: Path) -> str:
    with pytest.raises(InputError) as error:
        load_model(path)
    return str(error.value)


def test_loads_what_was_saved(tmp_path: Path) -> None:
    onnx.save_model(model(), tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx") == model()


def test_loads_external_data(tmp_path: Path) -> None:
    onnx.save_model(model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin")
    feeds = random_arrays(2, x=[2, 64])
    np.testing.assert_array_equal(
        run(load_model(tmp_path / "m.onnx"), feeds)[0], run(model(), feeds)[0]
    )


def test_missing_external_data(tmp_path: Path) -> None:
    onnx.save_model(model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin")
    (tmp_path / "m.bin").unlink()
    text = message(tmp_path / "m.onnx")
    assert text.startswith(f"{tmp_path / 'm.onnx'}: external data cannot be read (")
    assert text.endswith("); keep it beside the model")
    assert "\n" not in text


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    assert message(path) == f"{path}: no such file; 'dla models' lists the built-in names"


def test_directory(tmp_path: Path) -> None:
    assert message(tmp_path) == f"{tmp_path}: a directory; 'dla models' lists the built-in names"


@pytest.mark.parametrize("content", [b"", b"hello, world", bytes(range(256)) * 8])
def test_not_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert (
        message(path) == f"{path}: not an ONNX model, or a truncated one; export or copy it again"
    )


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.999])
def test_truncated(tmp_path: Path, share: float) -> None:
    path = tmp_path / "m.onnx"
    content = model().SerializeToString()
    path.write_bytes(content[: int(len(content) * share)])
    assert (
        message(path) == f"{path}: not an ONNX model, or a truncated one; export or copy it again"
    )


def test_inconsistent(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    broken = model()
    broken.graph.node[0].input[1] = "nowhere"
    path.write_bytes(broken.SerializeToString())
    text = message(path)
    assert text.startswith(f"{path}: inconsistent ONNX model (")
    assert "nowhere" in text
    assert "\n" not in text
