"""Bad input: one clear line on standard error, exit status 2, never a traceback."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import onnx
import pytest

from isa.variants import VARIANTS
from tests.experiments.command_line import dla, save_tiny, tiny_model

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]


def refused(capsys: Capture, *arguments: str | Path) -> str:
    """The line that a command line is refused with."""
    found = dla(capsys, *arguments)
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("error: ")
    assert found.err.count("\n") == 1
    return found.err.removeprefix("error: ").rstrip("\n")


def test_missing_model_file(capsys: Capture) -> None:
    expected = "nowhere.onnx: no such file; 'dla models' lists the built-in names"
    assert refused(capsys, "run", "nowhere.onnx") == expected


def test_unknown_model_name(capsys: Capture) -> None:
    expected = (
        "unknown model 'mobilnet'; did you mean mobilenet-v2? give a file, or a name that 'dla "
        "models' lists"
    )
    assert refused(capsys, "run", "mobilnet") == expected


@pytest.mark.parametrize(
    "content", [b"", b"no model at all", tiny_model().SerializeToString()[:100]]
)
def test_file_that_is_no_onnx_model(capsys: Capture, content: bytes) -> None:
    Path("model.onnx").write_bytes(content)
    expected = "model.onnx: not an ONNX model, or a truncated one; export or copy it again"
    assert refused(capsys, "run", "model.onnx") == expected


@pytest.mark.parametrize("command", ["run", "partition", "emit", "simulate"])
def test_truncated_package(capsys: Capture, command: str) -> None:
    package = _package(capsys)
    package.write_bytes(package.read_bytes()[:-200])
    expected = "tiny.dla: not a package, or a truncated or damaged one; compile the model again"
    assert refused(capsys, command, package) == expected


def test_a_program_for_a_package(capsys: Capture) -> None:
    assert dla(capsys, "emit", _package(capsys), "-o", "program.dla").status == 0
    expected = (
        "program.dla: a program, which 'dla simulate' runs, and no package; compile the model again"
    )
    assert refused(capsys, "run", "program.dla") == expected


def test_corrupted_package(capsys: Capture) -> None:
    package = _package(capsys)
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 0x10
    package.write_bytes(content)
    expected = "tiny.dla: not a package, or a truncated or damaged one; compile the model again"
    assert refused(capsys, "run", package) == expected


def _package(capsys: Capture) -> Path:
    assert dla(capsys, "compile", save_tiny(Path()), "-o", "tiny.dla").status == 0
    return Path("tiny.dla")


def _program(capsys: Capture) -> Path:
    assert dla(capsys, "emit", save_tiny(Path()), "-o", "tiny.prog").status == 0
    return Path("tiny.prog")


@pytest.mark.parametrize("command", ["disasm", "simulate"])
def test_truncated_program(capsys: Capture, command: str) -> None:
    program = _program(capsys)
    program.write_bytes(program.read_bytes()[:-9])
    expected = (
        "tiny.prog: the program is truncated or corrupted (its CRC-32 does not match); emit it "
        "again"
    )
    assert refused(capsys, command, program) == expected


def test_corrupted_program(capsys: Capture) -> None:
    program = _program(capsys)
    content = bytearray(program.read_bytes())
    content[len(content) // 2] ^= 0x10
    program.write_bytes(content)
    expected = (
        "tiny.prog: the program is truncated or corrupted (its CRC-32 does not match); emit it "
        "again"
    )
    assert refused(capsys, "simulate", program) == expected


def test_file_that_is_no_program(capsys: Capture) -> None:
    Path("notes.txt").write_text("hello")
    expected = (
        "notes.txt: not a DLA program (it does not start with the magic bytes); make one with 'dla "
        "emit'"
    )
    assert refused(capsys, "disasm", "notes.txt") == expected
    assert refused(capsys, "simulate", "notes.txt") == expected


def test_unknown_preset(capsys: Capture) -> None:
    expected = (
        "unknown preset 'huge'; choose one of balanced-256, balanced-64, ethos-u55-256, "
        "ethos-u85-256, nvdla-small-like, seed-i128, seed-i64, "
        "seed-o128, seed-o64, or a .toml file"
    )
    assert refused(capsys, "run", "digits-cnn", "--preset", "huge") == expected


def test_a_model_without_a_name(capsys: Capture) -> None:
    assert (
        refused(capsys, "run", "")
        == "the model is an empty text; give a file, or a name that 'dla models' lists"
    )


def test_unknown_key(capsys: Capture) -> None:
    line = refused(capsys, "run", "digits-cnn", "--set", "sram=5")
    assert line.startswith(
        "unknown setting 'sram'; did you mean sram_bytes? choose one of isa, sram_bytes, "
    )


def test_value_that_is_no_number(capsys: Capture) -> None:
    expected = "setting sram_bytes=big: 'big' is not an integer; write one: 8, or 64KiB"
    assert refused(capsys, "run", "digits-cnn", "--set", "sram_bytes=big") == expected
    line = refused(
        capsys, "run", "digits-cnn", "--set", "burst_bytes=" + "9" * 5000
    )  # Python itself takes 4,300 digits
    assert line.endswith("is not an integer; write one: 8, or 64KiB")


def test_unknown_isa(capsys: Capture) -> None:
    names = ", ".join(sorted(VARIANTS))
    expected = (
        f"unknown ISA variant 'v9'; choose one of {names} or install the package that adds it"
    )
    assert refused(capsys, "run", "digits-cnn", "--isa", "v9") == expected


def test_arch_that_does_not_match_the_program(capsys: Capture) -> None:
    program = _program(capsys)
    np.save("image.npy", np.zeros((3, 8, 8), np.int8))
    expected = (
        "tiny.prog: the program was made for another Arch: isa is v5 there and v2 here, pe.ic is 4 "
        "there and 64 here, "
        "pe.oc is 16 there and 1 here; emit it again for this machine"
    )
    assert refused(capsys, "simulate", program, "--preset", "seed-i64") == expected


def test_dynamic_shape(capsys: Capture) -> None:
    model = save_tiny(Path(), dims=("batch", 3, "height", "width"))
    expected = (
        "input 'image' has the dynamic shape (batch, 3, height, width): fix it, for example with "
        "--shape image=1,3,224,224"
    )
    assert refused(capsys, "run", model) == expected
    assert dla(capsys, "partition", model, "--shape", "image=1,3,8,8").status == 0


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("image", "--shape image: write it as NAME=1,3,224,224"),
        ("image=1,x", "--shape image=1,x: write it as NAME=1,3,224,224"),
        ("picture=1,3,8,8", "--shape names 'picture', which is no input: the inputs are image"),
        ("image=1,4,8,8", "--shape image=1,4,8,8 does not fit: the model's shape is (1, 3, 8, 8)"),
    ],
)
def test_shapes_that_do_not_fit(capsys: Capture, shape: str, message: str) -> None:
    assert refused(capsys, "run", save_tiny(Path()), "--shape", shape) == message


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 3, 4, 4), np.float32), "expected shape (1, 3, 8, 8), got (1, 3, 4, 4)"),
        (np.zeros((1, 3, 8, 8), np.float64), "expected element type float32, got float64"),
    ],
)
def test_input_of_wrong_shape_or_type(capsys: Capture, array: np.ndarray, message: str) -> None:
    np.save("given.npy", array)
    assert (
        refused(capsys, "run", save_tiny(Path()), "--input", "given.npy")
        == f"input given.npy: {message}"
    )


def test_missing_and_unreadable_input(capsys: Capture) -> None:
    model = save_tiny(Path())
    assert refused(capsys, "run", model, "--input", "given.npy") == "input given.npy: no such file"
    Path("given.npy").write_bytes(b"no array")
    expected = "input given.npy: not a readable .npy file of plain numbers"
    assert refused(capsys, "run", model, "--input", "given.npy").startswith(expected)


@pytest.mark.parametrize("group", ["new", "golden", "rtl"])
def test_a_group_without_a_command(capsys: Capture, group: str) -> None:
    found = dla(capsys, group)
    assert (found.status, found.err) == (2, f"error: no command given (see dla {group} --help)\n")


@pytest.mark.parametrize("opset", [8, 1000])
def test_unsupported_opset(capsys: Capture, opset: int) -> None:
    model = save_tiny(Path())
    changed = onnx.load(model)
    changed.opset_import[0].version = opset
    onnx.save(changed, model)
    newest = onnx.defs.onnx_opset_version()
    expected = f"unsupported opset {opset}: export the model with an opset from 9 to {newest}"
    assert refused(capsys, "run", model) == expected


def test_strict_refuses_a_fallback(capsys: Capture) -> None:
    reason = "Hardmax is not supported on the accelerator"
    expected = f"--strict: 1 of 4 nodes run on the CPU; the first is Hardmax 'softmax': {reason}"
    assert refused(capsys, "run", save_tiny(Path(), softmax=True), "--strict") == expected


def test_assembly_that_cannot_be_read(capsys: Capture) -> None:
    Path("bad.s").write_text("OP_NOPE\n")
    assert (
        refused(capsys, "asm", "bad.s") == "bad.s line 1: OP_NOPE is not an instruction of ISA v2"
    )
    assert (
        refused(capsys, "asm", "none.s")
        == "none.s: no such file; 'dla disasm PROGRAM -o none.s' makes one"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command. (see dla --help)"),
        (["nope"], "No such command 'nope'. (see dla --help)"),
        (["run"], "Missing argument 'MODEL'. (see dla run --help)"),
        (["run", "digits-cnn", "--nope"], "No such option: --nope"),
        (
            ["run", "digits-cnn", "--schedule", "x"],
            "Invalid value for '--schedule': 'x' is not one of 'seed', 'default'. (see",
        ),
    ],
)
def test_wrong_usage(capsys: Capture, arguments: list[str], message: str) -> None:
    assert refused(capsys, *arguments).startswith(message)


def test_result_that_cannot_be_written(capsys: Capture) -> None:
    Path("taken").write_text("a file")
    line = refused(capsys, "models", "--json", "taken/list.json")
    assert line.startswith("taken/list.json: cannot be written (")


def test_results_without_a_place_are_refused_before_the_work(capsys: Capture) -> None:
    """No model is looked for, no folder made."""
    Path("taken").write_text("a file")
    assert refused(capsys, "run", "no.onnx", "--csv", "taken/x.csv").startswith(
        "taken/x.csv: cannot be written ("
    )
    assert refused(capsys, "run", "no.onnx", "--json", "new/x.json").startswith(
        "no.onnx: no such file"
    )
    assert not Path("new").exists()


def _model(node: onnx.NodeProto, *constants: onnx.TensorProto, domain: str = "") -> Path:
    """Save a float model of one node from ``x`` (1, 3, 8, 8) to ``y``.

    The model also imports the operators of ``domain``.
    """
    source = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 8, 8))
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "one", [source], [result], list(constants))
    opsets = [
        onnx.helper.make_opsetid("", 21),
        *([onnx.helper.make_opsetid(domain, 1)] if domain else []),
    ]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), "one.onnx")
    return Path("one.onnx")


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pt2"])
def test_a_file_of_pytorch_gets_the_recipe_of_an_export(capsys: Capture, suffix: str) -> None:
    Path(f"my net{suffix}").write_bytes(b"PK\x03\x04 of torch.save")
    said = dla(capsys, "run", f"my net{suffix}")
    first, *recipe = said.err.splitlines()
    assert (said.status, len(recipe)) == (2, 3)
    assert first.startswith(f"error: my net{suffix}: a PyTorch file; dla reads ONNX: ")
    calls = [node for node in ast.walk(ast.parse("\n".join(recipe))) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func) for call in calls}
    assert {"torch.load", "torch.onnx.export"} <= names


def test_operator_that_nobody_knows(capsys: Capture) -> None:
    model = _model(onnx.helper.make_node("Foo", ["x"], ["y"], domain="my.ops"), domain="my.ops")
    assert refused(capsys, "run", model) == (
        "ONNX Runtime cannot run the model (Fatal error: my.ops:Foo(-1) is not a registered "
        "function/op); "
        "correct or export it again"
    )


def test_shapes_that_contradict_one_another(capsys: Capture) -> None:
    weights = onnx.numpy_helper.from_array(np.ones((4, 5, 3, 3), np.float32), "w")
    line = refused(capsys, "run", _model(onnx.helper.make_node("Conv", ["x", "w"], ["y"]), weights))
    assert line.startswith("ONNX Runtime cannot run the model (")


def test_weights_that_are_not_numbers(capsys: Capture) -> None:
    weights = onnx.numpy_helper.from_array(np.full((4, 3, 3, 3), np.nan, np.float32), "w")
    line = refused(capsys, "run", _model(onnx.helper.make_node("Conv", ["x", "w"], ["y"]), weights))
    assert line == (
        "tensor 'y' ranges from nan to nan on the calibration data, which int8 cannot hold: "
        "correct the constant 'w'"
    )
