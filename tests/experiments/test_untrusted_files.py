"""Malicious files: one line with file and place and exit status 2, for any content."""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from byoc.package.package import load_package
from experiments import run
from experiments.cli.main import main
from isa import memory, reading
from isa.errors import InputError
from tests.experiments.command_line import dla, save_tiny, tiny_model
from tests.experiments.test_bad_input import refused

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]


def _unknown_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 255


def _opset_twice(model: onnx.ModelProto) -> None:
    model.opset_import.add(domain="ai.onnx", version=20)


def _too_little_data(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]


def _negative_size(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -4


def _constant_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _made_twice(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = "sums"


def _read_before_made(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "result"


def _no_default_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].domain = "com.example"


def _axis_of_33_bits(model: onnx.ModelProto) -> None:
    node = helper.make_node("Softmax", ["result"], ["shares"], name="softmax", axis=(1 << 32) + 1)
    model.graph.node.append(node)
    model.graph.output[0].name = "shares"


def _attribute_of_a_function(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute[0].ref_attr_name = "pads"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_unknown_type, "constant 'weights' has element type 255, which is not known"),
        (_opset_twice, "operator set 'ai.onnx' is imported 2 times"),
        (
            _too_little_data,
            "constant 'weights' of shape [4, 3, 3, 3] has 428 of 432 bytes or entries",
        ),
        (_negative_size, "constant 'weights' has shape [-4, 3, 3, 3]"),
        (_constant_twice, "constant 'weights' is there 2 times"),
        (_made_twice, "value 'sums' is made twice, the second time by node 'relu'"),
        (_read_before_made, "node 'conv' reads 'result', which nothing before it makes"),
        (_no_default_opset, "operator set 'ai.onnx' is used and not imported"),
        (_axis_of_33_bits, "node 'softmax': axis has 4294967297, which no tensor has"),
        (_attribute_of_a_function, "attribute pads of node 'conv' is that of a function, not here"),
    ],
)
def test_inconsistent_models(
    capsys: Capture, damage: Callable[[onnx.ModelProto], None], message: str
) -> None:
    model = tiny_model()
    damage(model)
    Path("m.onnx").write_bytes(model.SerializeToString())
    assert (
        refused(capsys, "run", "m.onnx")
        == f"m.onnx: inconsistent ONNX model ({message}); export it again"
    )


def test_a_name_that_is_no_text(capsys: Capture) -> None:
    content = tiny_model().SerializeToString()
    Path("m.onnx").write_bytes(content.replace(b"sums", b"\xff\xfe\xfd\xfc"))
    assert "is not text in UTF-8" in refused(capsys, "run", "m.onnx")


LOOP = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,3,8,8] x) => (float[1,3,8,8] y)
  <int64 n = {4611686018427387904}, bool go = {1}, float[1] s = {0}>
{
  l = Loop (LIMIT, GO, s) <body: graph = b (int64 i, bool c, float[1] v) => (bool c2, float[1] v2) {
    v2 = Identity (v)
    c2 = Identity (c)
  }>
  y = Add (x, l)
}"""


@pytest.mark.parametrize(("limit", "go"), [("n", '""'), ("n", "go"), ('""', "go")])
def test_endless_loops(capsys: Capture, limit: str, go: str) -> None:
    onnx.save(parser.parse_model(LOOP.replace("LIMIT", limit).replace("GO", go)), "m.onnx")
    assert "loop 'Loop:l' runs more than 1048576 times, or endlessly" in refused(
        capsys, "run", "m.onnx"
    )


def test_an_input_larger_than_all_memory(capsys: Capture) -> None:
    line = refused(capsys, "run", save_tiny(Path(), dims=(1, 3, 1 << 20, 1 << 20)))
    assert line.startswith(
        "the values of the network, the largest of them 'image': too large, it takes about 288.0 "
        "TiB"
    )


PADDED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,3,8,8] x) => (float[1,3,8,8] y) <float[3,1,3,3] w = {%s}>
{ y = Conv <group = 3, kernel_shape = [3, 3], pads = [1, 1048576, 0, 1]> (x, w) }"""


def test_a_result_that_is_larger_than_declared(capsys: Capture) -> None:
    """The sizes of computed values count, not the declared ones.

    Here they are 1 x 3 x 7 x 1,048,583 numbers.
    """
    onnx.save(parser.parse_model(PADDED % ", ".join(["1"] * 27)), "m.onnx")
    line = refused(capsys, "run", "m.onnx", "--max-memory", "1G")
    assert line.startswith(
        "the values of the network, the largest of them 'y': too large, it takes about 2.0 GiB"
    )


def test_inputs_are_held_for_every_sample(capsys: Capture) -> None:
    """37.7 M numbers took 3.6 GB."""
    line = refused(
        capsys, "partition", save_tiny(Path(), dims=(1, 3, 3545, 3545)), "--max-memory", "1G"
    )
    assert "the largest of them 'image': too large, it takes about 3.4 GiB" in line


def test_a_large_input_and_a_limit_of_its_own(capsys: Capture) -> None:
    model = save_tiny(Path(), dims=(1, 3, 2000, 2000))
    line = refused(capsys, "run", model, "--max-memory", "64M")
    assert "and 64.0 MiB are allowed; give something smaller or a higher --max-memory" in line
    assert dla(capsys, "partition", save_tiny(Path()), "--max-memory", "64M").status == 0
    assert (
        refused(capsys, "run", model, "--max-memory", "much") == "--max-memory much: not a size; "
        "write it as 512M or 4G"
    )


def test_a_constant_that_is_small_in_the_file_alone(capsys: Capture) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1] x) => (float[20000,20000] y) '
        "<float[1] s = {1}, int64[2] n = {20000, 20000}> { e = Expand (s, n)\n t = Tile (e, r)\n y "
        "= Add (x, t) }"
    )
    onnx.save(
        parser.parse_model(text.replace("int64[2] n", "int64[2] r = {1, 1}, int64[2] n")), "m.onnx"
    )
    assert "too large" in refused(capsys, "run", "m.onnx", "--max-memory", "1G")


def test_a_bomb_of_zeros(capsys: Capture) -> None:
    with (
        zipfile.ZipFile("x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("image.npy", "w") as member,
    ):
        for _ in range(64):
            member.write(bytes(1 << 20))
    assert Path("x.npz").stat().st_size < 1 << 17
    assert "too large" in refused(
        capsys, "run", save_tiny(Path()), "--input", "x.npz", "--max-memory", "32M"
    )


def test_a_picture_of_too_many_pixels(capsys: Capture) -> None:
    header = b"IHDR" + struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(100))
    chunks = (
        struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c))
        for c in (header, data, b"IEND")
    )
    Path("x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    line = refused(capsys, "run", save_tiny(Path()), "--input", "x.png")
    assert line == "input x.png: 10000x10000 pixels are too many; make it smaller"


@pytest.mark.parametrize("option", ["--input", "--calibration"])
def test_an_archive_of_something_else(capsys: Capture, option: str) -> None:
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("image", b"no array")
    assert "not a readable .npy file of plain numbers" in refused(
        capsys, "run", save_tiny(Path()), option, "x.npz"
    )


DEEP = "[" * 2000 + "]" * 2000
LONG = "9" * 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"x = {DEEP}", "lists or tables are nested more than 64 deep"),
        (f"x = {'[' * 70}{']' * 70}", "lists or tables are nested more than 64 deep"),
        (f"x = {LONG}", "a number of too many digits"),
        (f"x = 0x{'f' * 5000}", "an integer has more than 64 bits"),
    ],
)
def test_presets_without_bounds(capsys: Capture, text: str, message: str) -> None:
    Path("p.toml").write_text(text, encoding="utf-8")
    line = refused(capsys, "run", save_tiny(Path()), "--preset", "p.toml")
    assert line.startswith("preset p.toml: ")
    assert message in line


@pytest.mark.parametrize("number", [LONG, "99999999999999999999999", DEEP, '"\\ud800"'])
def test_reports_without_bounds(capsys: Capture, number: str) -> None:
    Path("r.json").write_text(f'{{"schema": "dla-run/1", "seed": {number}}}', encoding="utf-8")
    assert refused(capsys, "report", "r.json").startswith("r.json: ")


def test_a_report_whose_command_does_not_end(capsys: Capture) -> None:
    assert dla(capsys, "run", save_tiny(Path()), "--json", "r.json").status == 0
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    Path("r.json").write_text(
        json.dumps(report | {"command": "dla run 'tiny.onnx"}), encoding="utf-8"
    )
    assert refused(capsys, "repro", "r.json").startswith("r.json: ")


def _assembly(capsys: Capture) -> str:
    model = save_tiny(Path())
    assert dla(capsys, "emit", model, "-o", "t.prog").status == 0
    return dla(capsys, "disasm", "t.prog").out


def test_a_field_value_that_means_nothing(capsys: Capture) -> None:
    text = _assembly(capsys).replace("OP_CONV_RELU", "OP_POOL mode=3")
    Path("t.s").write_text(text, encoding="utf-8")
    message = "OP_POOL: field mode is 3, which is undefined; 0 maximum, 1 average, 2 global average"
    assert refused(capsys, "asm", "t.s").endswith(message)


@pytest.mark.parametrize(
    ("operation", "register", "message"),
    [
        (
            "OP_CONV_RELU",
            "EX_STRIDE_WIDTH, 0",
            "OP_CONV: EX_STRIDE_WIDTH is 0; it must be 1 or more",
        ),
        (
            "OP_DEPTH_CONV requantise=1",
            "EX_PAD_TOP, 1",
            "OP_DEPTH_CONV: EX_OUTPUT_CHANNELS = 4 must be a multiple of EX_INPUT_CHANNELS = 3",
        ),
        (
            "OP_POOL",
            "EX_PAD_TOP, 1",
            "OP_POOL: EX_INPUT_CHANNELS = 3 and EX_OUTPUT_CHANNELS = 4 must be equal",
        ),
    ],
)
def test_registers_without_meaning_together(
    capsys: Capture, operation: str, register: str, message: str
) -> None:
    text = re.sub(
        r"OP_CONV_RELU( mapping=\d)?", f"    SET {register}\n{operation}", _assembly(capsys)
    )
    text = re.sub(
        r"^\.memory (\d+)", lambda found: f".memory {int(found[1]) + 64}", text, flags=re.MULTILINE
    )
    Path("t.s").write_text(text, encoding="utf-8")
    Path("zeros.bin").write_bytes(bytes(256))
    assert dla(capsys, "asm", "t.s").status == 0
    for words in (("--image", "0=zeros.bin"), ("--sanitize",)):
        assert message in refused(capsys, "simulate", "t.prog", *words)


def test_a_package_that_reads_files_beside_it(capsys: Capture) -> None:
    assert dla(capsys, "compile", save_tiny(Path()), "-o", "t.dla").status == 0
    with zipfile.ZipFile("t.dla") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    model = onnx.load_model_from_string(contents["model.onnx"])
    tensor = next(tensor for tensor in model.graph.initializer if tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    from tests.fuzz_inputs.materials import resummed

    contents["model.onnx"] = model.SerializeToString()
    contents = resummed(contents)
    with zipfile.ZipFile("t.dla", "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    Path("secret.bin").write_bytes(bytes(4096))
    assert f"the data of constant '{tensor.name}' is not in the model" in refused(
        capsys, "run", "t.dla"
    )
    with pytest.raises(InputError, match="is not in the model"):
        load_package("t.dla").model  # noqa: B018 - it is read when it is asked for


def test_a_window_on_a_vector(capsys: Capture) -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[8] x) => (float[8] y) '
        "<float[1,1,3] w = {1, 2, 3}> { y = Conv <pads = [1, 1]> (x, w) }"
    )
    Path("m.onnx").write_bytes(model.SerializeToString())
    refused(capsys, "run", "m.onnx")


def test_a_bug_of_ours_is_one_line_and_a_file(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("experiments.running.inference.load_hardware", broken)
    monkeypatch.setattr("tempfile.tempdir", str(Path.cwd()))
    assert main(["run", str(save_tiny(Path()))]) == 3
    line = capsys.readouterr().err
    place = Path(line.partition("its traceback is in ")[2].partition(": please")[0])
    assert line.startswith("error: this is a bug of dla itself (KeyError)")
    assert line.count("\n") == 1
    assert place.read_text(encoding="utf-8").endswith("KeyError: 'surprise'\n")


def test_a_terminal_that_knows_few_characters() -> None:
    code = "import sys; from experiments.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "isa", "--format", "markdown"]
    done = subprocess.run(
        words, env={"PYTHONIOENCODING": "cp1252"}, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"ceil(" in done.stdout
    assert b"bytes -> bytes" in done.stdout


def test_a_model_of_no_kind() -> None:
    given = "a text or a path or an ONNX model or a package or an exported program"
    with pytest.raises(
        InputError, match=rf"^model is GraphProto\(.*\) \(GraphProto\); give {given}$"
    ):
        run(tiny_model().graph)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 3), np.int8), np.float32(3), np.ones((3, 4), order="F"), np.zeros((0, 3))],
)
def test_arrays_are_read_as_numpy_writes_them(array: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, array)
    found = reading.array_of(content.getvalue(), "x")
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("4K", 4096), ("64M", 1 << 26), ("2GiB", 2 << 30), ("1tb", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert memory.size(text, "--max-memory") == size


@pytest.mark.parametrize("field", ["input", "output"])
@pytest.mark.parametrize("kind", ["INT4", "UINT2", "FLOAT8E4M3FN"])
def test_inputs_and_outputs_have_types_of_numpy(field: str, kind: str) -> None:
    from byoc.frontend.onnx.file import check_model

    model = tiny_model()
    (value,) = getattr(model.graph, field)
    value.type.tensor_type.elem_type = TensorProto.DataType.Value(kind)
    with pytest.raises(InputError, match=f"m.onnx: '{value.name}' has type {kind}, and inputs"):
        check_model(model, "m.onnx")


def test_types_of_constants_are_as_onnx_stores_them() -> None:
    from byoc.frontend.onnx.file import check_model

    tensors = [
        numpy_helper.from_array(np.zeros((3, 5), dtype), f"c{number}")
        for number, dtype in enumerate(
            (np.float32, np.float16, np.int8, np.bool_, np.int64, np.complex64)
        )
    ]
    tensors += [
        helper.make_tensor(f"m{kind}", kind, (3, 5), [1] * 15)
        for kind in (
            TensorProto.INT4,
            TensorProto.UINT4,
            TensorProto.BFLOAT16,
            TensorProto.FLOAT16,
            TensorProto.DOUBLE,
        )
    ]
    tensors += [helper.make_tensor(f"u{TensorProto.UINT64}", TensorProto.UINT64, (2,), [1, 2])]
    model = tiny_model()
    model.graph.initializer.extend(tensors)
    check_model(model, "m.onnx")
