"""Errors of the Python interface name keywords; those of commands name options."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper, save

import dla
from experiments.cli.main import main
from experiments.running.given import RunRequest
from experiments.running.wording import to_python
from isa.ops import ALL
from isa.registers import Register
from tests.e2e.user_tasks import own_network
from tests.experiments.command_line import save_tiny
from tests.plugins import installation


@pytest.mark.parametrize(
    ("command", "python"),
    [
        ("fix it with --shape image=1,3,8,8", "fix it with shapes={'image': (1, 3, 8, 8)}"),
        ("--shape names 'x', which is no input", "shapes names 'x', which is no input"),
        ("--fix rate=16000: no", "fixed={'rate': 16000.0}: no"),
        ("use --isa v4, or", "use isa='v4', or"),
        ("with --grouped cpu, they", "with grouped='cpu', they"),
        ("--strict: 3 of 4 nodes", "strict=True: 3 of 4 nodes"),
        ("give --no-cache", "give cache=False"),
        ("use --set sram_bytes=2KiB; or", "use settings={'sram_bytes': '2KiB'}; or"),
        ("a higher --max-memory", "a higher DLA_MAX_MEMORY"),
        ("'dla run MODEL --shape x=1' shows", "'dla run MODEL --shape x=1' shows"),
        ("pip install --unknown", "pip install --unknown"),
    ],
)
def test_options_become_keywords(command: str, python: str) -> None:
    assert to_python(command, RunRequest) == python


def test_one_mistake_is_told_in_the_words_of_each_interface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_network(tmp_path, shape=(1, 3, "height", 16))
    assert main(["run", "mine.onnx"]) == 2
    assert "with --shape image=1,3,224,16" in capsys.readouterr().err
    with pytest.raises(dla.InputError, match=r"with shapes=\{'image': \(1, 3, 224, 16\)\}$"):
        dla.run("mine.onnx")
    assert main(["run", "digits-cnn", "--isa", "v1", "--strict"]) == 2
    assert "--strict: 1 of 8 nodes" in capsys.readouterr().err
    with pytest.raises(dla.InputError, match=r"^strict=True: .* use isa='v2' or emulate_depthwise"):
        dla.run("digits-cnn", isa="v1", strict=True)


def sum_of_two() -> ModelProto:
    """Return a network that adds two inputs."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2, 4, 4)) for name in "aby"
    ]
    node = helper.make_node("Add", ["a", "b"], ["y"], "sum")
    graph = helper.make_graph([node], "sum", values[:2], values[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_every_error_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [
        dla.DeadlockError, dla.DoesNotFitError, dla.HazardError, dla.MissingExtraError,
        dla.PluginError,
    ]  # fmt: skip
    assert all(issubclass(kind, dla.InputError) for kind in kinds)
    system = {
        "accelerator": [{"name": "npu", "settings": {"isa": "v1", "sram_bytes": 64}}],
        "task": [{"name": "one", "model": "tiny.onnx", "period": "20us"}],
    }
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path)
    with pytest.raises(dla.DoesNotFitError, match=r"nothing of tiny\.onnx runs on"):
        dla.system(system)


def test_a_missing_extra_has_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(dla.MissingExtraError, match="pip install"):
        _ = dla.run("digits-cnn").layers


_OPERATOR = """\
from byoc.operators.arithmetic import Add
from byoc.operators.rules import rule
class Plus(Add):
    family = 'plus'
    instructions = ('OP_E_ADD',)
"""
_INSTRUCTION = """\
from dataclasses import replace
from isa.ops import ALL
from isa.plugins import Extension
def cycles(command, arch):
    {body}
def operands(command, arch):
    return ALL['OP_E_ADD'].operands(command, arch)
OP_PLUS = replace(ALL['OP_E_ADD'], mnemonic='OP_PLUS', opcode=0x95, cycles=cycles, earlier=None,
    operands=operands)
EXTENSION = Extension((OP_PLUS,))
"""
_USER = """
class Plus(Add):
    family = 'plus'
    instructions = ('OP_PLUS',)
    dense = 'OP_PLUS'
    inner_types = ()
"""
MISTAKES: dict[str, tuple[str, str, str]] = {
    "a method": (
        _OPERATOR + "    @classmethod\n    def parse(cls, graph, node): return graph.nothing\n",
        "",
        "Plus.parse ends with AttributeError",
    ),
    "a result": (
        _OPERATOR + "    @classmethod\n    def operations(cls, record, target): return 3\n",
        "",
        "Plus ends with TypeError: operations returned 3, ",
    ),
    "a rule": (
        _OPERATOR + "    requirements = (rule('never')(lambda graph, node: 1 / 0),)\n",
        "",
        "Plus.<lambda> ends with ZeroDivisionError",
    ),
    "a file": (
        _OPERATOR + "    @classmethod\n    def parse(cls, graph, node): open('/nothing/here')\n",
        "",
        "Plus.parse ends with FileNotFoundError",
    ),
    "an instruction": (
        _OPERATOR.partition("class")[0] + _USER,
        _INSTRUCTION.format(body="return 1 // 0"),
        "ends with ZeroDivisionError",
    ),
    "an instruction's result": (
        _OPERATOR.partition("class")[0] + _USER,
        _INSTRUCTION.format(body="return None"),
        "OP_PLUS ends with TypeError: cycles returned None, ",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_exception_in_a_package_names_package_class_and_hook(
    mistake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    operator, instruction, told = MISTAKES[mistake]
    modules = {"dla_wrong": operator}
    entry_points = {"dla.operators": {"wrong": "dla_wrong:Plus"}}
    if instruction:
        modules["dla_wrong_isa"] = instruction
        entry_points["dla.isa"] = {"wrong": "dla_wrong_isa:EXTENSION"}
    installation.write_distribution(tmp_path, "dla-wrong", modules, entry_points)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    isa = "v4+OP_PLUS" if instruction else "v4"
    save(sum_of_two(), tmp_path / "m.onnx")
    model = str(tmp_path / "m.onnx")
    with installation.installed(tmp_path):
        assert main(["run", model, "--isa", isa, "--json", str(tmp_path / "r.json")]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("error: package dla-wrong 1.0 (entry point wrong): ")
        assert told in line
        assert "bug of dla" not in line
        with pytest.raises(dla.PluginError, match=r"^package dla-wrong 1.0 ") as caught:
            dla.run(model, isa=isa)
        assert told in str(caught.value)


def test_a_group_of_entry_points_that_nobody_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry_points = {"dla.operator": {"plus": "dla_plus:Plus"}}
    installation.write_distribution(tmp_path, "dla-plus", {"dla_plus": _OPERATOR}, entry_points)
    with installation.installed(tmp_path):
        assert main(["isa"]) == 2
    assert capsys.readouterr().err == (
        "error: package dla-plus: nothing reads entry points of dla.operator; "
        "did you mean dla.operators?\n"
    )


def test_an_unread_register_is_rejected() -> None:
    unread = Register("EX_MINE", 0x90, 16, 1, "unsigned", "unread")
    with pytest.raises(ValueError, match=r"^OP_E_ADD declares the register EX_MINE and does not "):
        replace(ALL["OP_E_ADD"], adds_registers=(unread,))
