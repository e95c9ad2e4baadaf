"""The programs of ``examples`` run, and the packages among them work once installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from experiments.cli.main import main
from tests.docs.session import ROOT
from tests.plugins.installation import installed, write_information

EXAMPLES = ROOT / "examples"


def test_import_to_report(tmp_path: Path) -> None:
    program = [sys.executable, EXAMPLES / "import_to_report.py"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "42 of 44 nodes on the accelerator" in done.stdout
    assert "equal to ONNX Runtime" in done.stdout
    assert (tmp_path / "run.json").is_file()


def _model(operator: str, inputs: list[str], **constants: list[float]) -> ModelProto:
    """Return a network of one node; its other inputs are constants."""
    names = [*inputs, "y"]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 6, 6)) for name in names
    ]
    tensors = [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in constants.items()
    ]
    node = helper.make_node(operator, [*inputs, *constants], ["y"], "only")
    graph = helper.make_graph([node], "one", values[:-1], values[-1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("name", "isa", "model"),
    [
        ("operator-plugin", "v2", _model("PRelu", ["x"], slope=[0.25])),
        ("instruction-plugin", "my-sub", _model("Sub", ["a", "b"])),
    ],
)
def test_the_node_runs_on_the_accelerator_only_with_the_package(
    name: str, isa: str, model: ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(model, tmp_path / "one.onnx")
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    project = tomllib.loads((tmp_path / name / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    write_information(tmp_path / name, project["name"], project["version"], project["entry-points"])
    words = ["run", str(tmp_path / "one.onnx"), "--json", str(tmp_path / "run.json"), "--csv", "-"]

    assert main([*words, "--isa", "v2"]) == 0
    assert "\nonly,cpu," in capsys.readouterr().out
    with installed(tmp_path / name):
        assert main([*words, "--isa", isa]) == 0
        assert "\nonly,dla," in capsys.readouterr().out
