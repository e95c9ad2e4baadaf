"""One valid input of every kind, and the commands that read it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from byoc.package.package import load_package
from experiments.cli.main import main
from tests.e2e.random_networks import random_network
from tests.experiments.golden_corpora import small_corpus
from tests.tflite.builder import Quantisation, TfliteBuilder

Command = tuple[str, ...]
PROGRAM_BYTES = 1 << 16

QOPERATOR = """
<ir_version: 10, opset_import: ["" : 21]>
integer (int8[1,3,8,8] x) => (int8[1,4,8,8] y)
<float s = {0.1}, int8 z = {3}, float t = {0.02}, int8 zero = {0}, float u = {0.3}>
{
  y = QLinearConv <pads = [1,1,1,1]> (x, s, z, w, t, zero, u, z)
}
"""

PRESET = """
name = "mine"
description = "a machine"
[arch]
isa = "v3"
sram_bytes = 65536
sram_banks = 16
alignment = 8
numerics = "onnxruntime"
[arch.pe]
ic = 8
oc = 4
ow = 2
[timing]
bus_bytes = 8
dram_latency = 20
queue_depth = 4
"""

SYSTEM = """
[memory]
bus_bytes = 4
[[accelerator]]
name = "npu"
count = 2
settings = { sram_bytes = "64KiB" }
[cpu]
cores = 2
speed = 2.5
[run]
policy = "edf"
preempt = "tile"
quantum = "2us"
until = "50us"
[[task]]
name = "net"
variants = [{ model = "tiny.dla", quality = 2.0 }, { model = "float.dla" }]
period = "5us"
jitter = 300
deadline = "20us"
on = ["npu", "cpu"]
[[task]]
name = "plan"
cpu = 700
after = ["net"]
overrun = "skip"
priority = 2
"""
SPEC = """
networks = ["tiny.dla"]
presets = ["preset.toml"]
schedules = ["default", "seed"]
isa = ["v1", "v2"]
seed = 1
constraints = ["pe.count <= 64"]
[arch]
sram_bytes = [32768, 65536]
pe = [{ ic = 8, oc = 8 }, { ic = 4, oc = 4, ow = 2 }]
[timing]
bus_bytes = [8, 16]
"""

PLUGIN = """
from dataclasses import replace
from tests.tflite.builder import Quantisation, TfliteBuilder
from isa.ops import ALL
from isa.plugins import Extension
EXTENSION = Extension((replace(ALL["OP_POOL"], mnemonic="OP_THEIRS", opcode=0x90, aliases={}),))
def made():
    return EXTENSION
"""

METADATA = {
    "METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n",
    "entry_points.txt": "[dla.isa]\ntheirs = theirs_module:EXTENSION\nmade = theirs_module:made\n",
}


def float_model() -> onnx.ModelProto:
    """Most operators that the compiler knows, in float, on (1, 3, 8, 8)."""
    generator = np.random.default_rng(3)

    def constant(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]
        ),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node(
            "AveragePool",
            ["r"],
            ["a"],
            name="mean",
            kernel_shape=[2, 2],
            strides=[2, 2],
            ceil_mode=1,
        ),
        helper.make_node("Add", ["p", "a"], ["s"], name="add"),
        helper.make_node("Concat", ["s", "a"], ["k"], name="concat", axis=1),
        helper.make_node("Conv", ["k", "d"], ["e"], name="depthwise", group=8, strides=[2, 2]),
        helper.make_node("Clip", ["e", "low", "high"], ["f"], name="clip"),
        helper.make_node("GlobalAveragePool", ["f"], ["h"], name="global"),
        helper.make_node("Flatten", ["h"], ["i"], name="flatten"),
        helper.make_node("Gemm", ["i", "q", "o"], ["j"], name="gemm", transB=1),
        helper.make_node("Softmax", ["j"], ["y"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "float",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 5))],
        [
            constant("w", 4, 3, 3, 3), constant("b", 4), constant("g", 4), constant("m", 4),
            numpy_helper.from_array(np.ones(4, np.float32), "v"), constant("d", 8, 1, 2, 2),
            numpy_helper.from_array(np.float32(0), "low"),
            numpy_helper.from_array(np.float32(6), "high"),
            constant("q", 5, 8), constant("o", 5),
        ],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def tiny_model() -> onnx.ModelProto:
    """A convolution, quick to compile."""
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,3,8,8] x) => (float[1,2,8,8] y) '
        "<float[2,3,1,1] w = {1, 2, 3, 4, 5, -6}> { c = Conv (x, w)\n y = Relu (c) }"
    )


def tflite_model() -> bytes:
    """A few layers of a TensorFlow Lite network, one of them for the CPU."""
    random = np.random.default_rng(0)
    builder = TfliteBuilder("net")
    scales = (0.01, 0.02, 0.03, 0.01)
    filters = builder.constant(
        "w", random.integers(-127, 128, (4, 3, 3, 3), np.int8), Quantisation(scales)
    )
    biases = Quantisation(tuple(0.02 * scale for scale in scales))
    bias = builder.constant("b", random.integers(-100, 100, 4).astype(np.int32), biases)
    x = builder.input("image", (1, 6, 6, 3), Quantisation(0.02, 3))
    x = builder.operator("CONV_2D", [x, filters, bias], Quantisation(0.05, -5), padding="SAME")
    pads = builder.constant("p", np.array([[0, 0], [1, 0], [0, 1], [0, 0]], np.int32))
    x = builder.operator("PAD", [x, pads], x.quantisation)
    y = builder.operator("LOGISTIC", [x], Quantisation(1 / 256, -128))
    x = builder.operator("MUL", [x, y], Quantisation(0.05))
    x = builder.operator("LOG_SOFTMAX", [x], Quantisation(16 / 256, 127))
    x = builder.operator(
        "MEAN", [x, builder.constant("a", np.array([1, 2], np.int32))], Quantisation(0.05)
    )
    weights = builder.constant("f", random.integers(-127, 128, (5, 4), np.int8), Quantisation(0.01))
    return builder.model(builder.operator("FULLY_CONNECTED", [x, weights, None], Quantisation(0.1)))


def write_all(folder: Path) -> None:
    """Write the materials to ``folder`` in a process of its own.

    Running networks and sweeps then leaves nothing in this process.
    """
    child = multiprocessing.get_context("spawn").Process(target=_write, args=(folder,))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError("the materials cannot be made")


def _write(folder: Path) -> None:
    os.chdir(folder)
    onnx.save(float_model(), "float.onnx")
    onnx.save(tiny_model(), "tiny.onnx")
    Path("net.tflite").write_bytes(tflite_model())
    onnx.save(parser.parse_model(QOPERATOR
                                 .replace("int8 zero",
                                          "int8[2,3,1,1] w = {1,2,3,4,5,6}, int8 zero")
                                 .replace("int8[1,4,8,8] y", "int8[1,2,8,8] y")
                                 .replace("<pads = [1,1,1,1]>", "")),
              "qoperator.onnx")  # fmt: skip
    onnx.save(random_network(5)[0], "random.onnx")
    Path("preset.toml").write_text(PRESET, encoding="utf-8")
    Path("spec.toml").write_text(SPEC, encoding="utf-8")
    Path("system.toml").write_text(SYSTEM, encoding="utf-8")
    generator = np.random.default_rng(0)
    image = generator.standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save("x.npy", image)
    np.savez("x.npz", x=image)
    np.savez_compressed("samples.npz", x=np.stack([image, image]))
    Path("image.bin").write_bytes(bytes(PROGRAM_BYTES))
    _picture(Path("x.png"))
    for words in (
        ("compile", "float.onnx", "-o", "float.dla"),
        ("compile", "tiny.onnx", "-o", "tiny.dla"),
        ("emit", "float.dla", "-o", "net.prog"),
        ("emit", "tiny.dla", "-o", "tiny.prog"),
        ("disasm", "tiny.prog", "-o", "tiny.s"),
        ("run", "tiny.dla", "--json", "run.json", "--cost", "horowitz-45nm"),
        ("golden", "snapshot", "tiny.dla", "-o", "net.snapshot"),
        ("simulate", "tiny.prog", "--image", "0=zeros.bin", "--log", "net.log"),
        ("sweep", "spec.toml", "--workers", "1", "--output", "net.sqlite"),
        ("tune", "tiny.dla", "--measurements", "3", "--no-model", "--log", "tuning.jsonl"),
    ):
        if words[0] == "simulate":
            from isa import program_file

            program = program_file.load(Path("tiny.prog"))
            size = max(tensor.address + tensor.nbytes for tensor in program.inputs)
            Path("zeros.bin").write_bytes(bytes(size))
        _done(words)
    os.environ["DLA_CACHE_DIR"] = "cache"
    os.environ.pop("DLA_NO_CACHE", None)
    _done(("run", "tiny.onnx", "--json", "cached.json"))
    os.environ["DLA_NO_CACHE"] = "1"
    layer = json.loads(Path("tuning.jsonl").read_text(encoding="utf-8").splitlines()[0])["layers"][
        0
    ]["layer"]
    pins = (
        f'residents = []\ngroups = []\n[layers."{layer}"]\nrows = 4\nslots = [1, 1, 2]\norder = '
        '"rows"\n'
    )
    Path("pins.toml").write_text(pins, encoding="utf-8")
    onnx.save(load_package("float.dla").model, "qdq.onnx")
    small_corpus(Path("corpus"))
    folder = Path("plugin") / "theirs-1.0.dist-info"
    folder.mkdir(parents=True)
    Path("plugin/theirs_module.py").write_text(PLUGIN, encoding="utf-8")
    for name, text in METADATA.items():
        (folder / name).write_text(text, encoding="utf-8")


def _done(words: Command) -> None:
    place, sys.stdout = sys.stdout, open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - the child ends soon
    status = main(words)
    sys.stdout = place
    if status:
        raise RuntimeError(f"dla {' '.join(words)} ends with {status}")


def _picture(path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.arange(768, dtype=np.uint32).astype(np.uint8).reshape(16, 16, 3)).save(path)


def cost_table() -> bytes:
    """The text of the first cost table that comes with the project."""
    from experiments.cost.table import FOLDER

    return min(FOLDER.glob("*.toml")).read_bytes()


def fault_file() -> bytes:
    """One file of the seeded faults."""
    return (Path(__file__).parents[1] / "faults" / "numerics.toml").read_bytes()


def members(path: Path) -> dict[str, bytes]:
    """The members of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def resummed(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The members of a package with a manifest that has their sums again.

    A manifest without any stays as it is.
    """
    try:
        manifest = json.loads(contents["manifest.json"])
    except ValueError:
        return contents
    if not isinstance(manifest, dict):
        return contents
    manifest["sha256"] = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in contents.items()
        if name != "manifest.json"
    }
    return contents | {"manifest.json": json.dumps(manifest).encode()}
