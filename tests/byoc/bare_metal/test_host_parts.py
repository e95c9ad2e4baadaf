"""Host parts in C give the bits of the runtime, node type by node type, on drawn inputs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from byoc.bare_metal.bundle import FIXED
from byoc.bare_metal.calls import C_TYPES
from byoc.bare_metal.host_parts import _copy_pieces, _find_table
from byoc.graph import Value
from byoc.layout.boundary import boundary_layouts, from_atoms, to_atoms
from byoc.runtimes.session import OnnxRuntimeSession
from experiments.cli.main import main
from tests.byoc.bare_metal.images import build_bundle, build_library
from tests.byoc.bare_metal.served import Served

DRAWN = 20_000


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The host parts as a library, with the sanitizer of undefined behaviour."""
    folder = tmp_path_factory.mktemp("host")
    return ctypes.CDLL(str(build_library(folder, [FIXED / "dla_host.c"])))


def number_of(dtype: str) -> int:
    """Value of ``enum dla_type``."""
    return list(C_TYPES).index(dtype)


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantise_and_dequantise_equal_onnx_runtime(host: ctypes.CDLL, dtype: str) -> None:
    rng = np.random.default_rng(7)
    for scale in (np.float32(0.03), np.float32(2.0**-6), np.float32(1.7e-12), np.float32(9e8)):
        zero = np.array(rng.integers(-128, 128) + 128 * (dtype == "uint8"), dtype)
        ties = (rng.integers(-400, 400, DRAWN // 2) + 0.5) * scale
        drawn = rng.normal(0, 100, DRAWN // 2) * scale
        given = np.concatenate([ties, drawn, [0.0, -0.0, 3e38, -3e38]]).astype(np.float32)
        wanted = run_operator("QuantizeLinear", given, scale, zero)
        found = np.zeros(given.size, dtype)
        scales = np.array([scale])
        zeros = np.array([zero], np.int32)
        steps = (pointer(scales), pointer(zeros), 1, 1)
        host.dla_quantize(pointer(found), number_of(dtype), pointer(given), given.size, *steps, 0)
        np.testing.assert_array_equal(found, wanted)
        real = run_operator("DequantizeLinear", wanted, scale, zero)
        again = np.zeros(given.size, np.float32)
        host.dla_dequantize(pointer(again), pointer(found), number_of(dtype), given.size, *steps)
        np.testing.assert_array_equal(again.view(np.int32), real.view(np.int32))


def test_several_scales_equal_onnx_runtime_channel_by_channel(host: ctypes.CDLL) -> None:
    rng = np.random.default_rng(9)
    given = rng.normal(0, 2, (4, 3, 50)).astype(np.float32)
    scales = np.array([0.03, 0.01, 2.0**-5], np.float32)
    zeros = np.array([3, -128, 0], np.int32)
    steps = (pointer(scales), pointer(zeros), 3, 50)
    found = np.zeros(given.shape, np.int8)
    again = np.zeros(given.shape, np.float32)
    host.dla_quantize(pointer(found), number_of("int8"), pointer(given), given.size, *steps, 0)
    host.dla_dequantize(pointer(again), pointer(found), number_of("int8"), given.size, *steps)
    for channel, (scale, zero) in enumerate(zip(scales, zeros.astype(np.int8), strict=True)):
        wanted = run_operator("QuantizeLinear", given[:, channel], scale, zero)
        np.testing.assert_array_equal(found[:, channel], wanted)
        real = run_operator("DequantizeLinear", wanted, scale, zero)
        np.testing.assert_array_equal(again[:, channel], real)


def run_operator(
    op_type: str, given: NDArray[Any], scale: np.float32, zero: NDArray[Any]
) -> NDArray[Any]:
    """Run QuantizeLinear or DequantizeLinear on ONNX Runtime."""
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in (given, zero)]
    result = kinds[1] if op_type == "QuantizeLinear" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "scale", "zero"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", kinds[0], given.shape)],
        [helper.make_tensor_value_info("y", result, given.shape)],
        [numpy_helper.from_array(np.array(scale), "scale"), numpy_helper.from_array(zero, "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return OnnxRuntimeSession(model).run(["y"], {"x": given})["y"]


class LayoutFields(ctypes.Structure):
    """``struct dla_layout``."""

    _fields_ = (
        ("images", ctypes.c_uint32), ("channels", ctypes.c_uint32),
        ("positions", ctypes.c_uint32), ("atom", ctypes.c_uint32), ("by_row", ctypes.c_uint8),
        ("item_bytes", ctypes.c_uint8), ("flip", ctypes.c_uint8),
    )  # fmt: skip


def drawn_shapes() -> Iterator[tuple[tuple[int, ...], int]]:
    rng = np.random.default_rng(3)
    for _ in range(40):
        rank = int(rng.integers(1, 5))
        yield tuple(rng.integers(1, 12, rank).tolist()), int(rng.choice([1, 4, 8, 16]))


def test_layouts_equal_the_runtimes(host: ctypes.CDLL) -> None:
    rng = np.random.default_rng(5)
    for shape, atom in drawn_shapes():
        for layout in boundary_layouts(shape, atom):
            given = rng.integers(-128, 128, shape).astype(np.int8)
            wanted = to_atoms(given, layout)
            by_row = int(layout.by_row)
            fields = LayoutFields(
                layout.images, layout.channels, layout.positions, layout.atom, by_row, 1, 0
            )
            found = np.full(wanted.shape, 99, np.int8)
            host.dla_pack(pointer(found), pointer(given), ctypes.byref(fields))
            np.testing.assert_array_equal(found, wanted)
            back = np.zeros(given.size, np.int8)
            host.dla_unpack(pointer(back), pointer(found), ctypes.byref(fields))
            np.testing.assert_array_equal(back, from_atoms(wanted, layout))


def test_gather_refuses_an_index_out_of_range(host: ctypes.CDLL) -> None:
    rows = np.arange(24, dtype=np.int16).reshape(2, 4, 3)
    indices = np.array([3, -4, 0], np.int64)
    found = np.zeros((2, 3, 3), np.int16)

    def gather() -> int:
        return int(
            host.dla_gather(pointer(found), pointer(rows), pointer(indices), number_of("int64"),
                            3, 2, 4, 6)
        )  # fmt: skip

    assert gather() == 0
    np.testing.assert_array_equal(found, np.take(rows, indices, 1))
    for wrong in (4, -5, 2**40):
        indices[0] = wrong
        assert gather() == -1


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [("+", np.add), ("-", np.subtract), ("*", np.multiply), ("/", np.divide)],
)
def test_float_operations_equal_numpy(host: ctypes.CDLL, operation: str, wanted: Any) -> None:
    rng = np.random.default_rng(2)
    one = rng.normal(size=(5, 1, 70)).astype(np.float32)
    other = rng.normal(size=(1, 9, 70)).astype(np.float32)
    dims = np.array([[5, 70, 0], [9, 0, 70], [70, 1, 1]], np.int32)
    found = np.zeros((5, 9, 70), np.float32)
    host.dla_combine(
        pointer(found), pointer(one), pointer(other), ctypes.c_char(operation.encode()),
        pointer(dims), 3,
    )  # fmt: skip
    np.testing.assert_array_equal(found, wanted(one, other))


def save_model(path: Path) -> None:
    """Save a network with a look-up of rows, an activation and movements between products."""
    rng = np.random.default_rng(1)
    constants = {
        "rows": rng.normal(size=(10, 16)), "first": rng.normal(size=(16, 12)),
        "second": rng.normal(size=(10, 6)),
    }  # fmt: skip
    integers = {"begin": [1], "end": [12], "axis": [2]}
    nodes = [
        ("Gather", ["words", "index"], ["word"]), ("MatMul", ["word", "first"], ["a"]),
        ("Sigmoid", ["a"], ["b"]), ("Concat", ["b", "a"], ["c"]),
        ("Slice", ["c", "begin", "end", "axis"], ["d"]), ("Pad", ["d", "padding"], ["e"]),
        ("Transpose", ["e"], ["f"]), ("MatMul", ["f", "second"], ["y"]),
    ]  # fmt: skip
    made = [
        helper.make_node(op, ["rows" if one == "words" else one for one in given], out, name=out[0],
                         **({"axis": 1} if op == "Concat" else {}),
                         **({"perm": [0, 2, 1]} if op == "Transpose" else {}))
        for op, given, out in nodes
    ]  # fmt: skip
    integers["padding"] = [0, 0, 0, 0, 0, 1]
    graph = helper.make_graph(
        made,
        "parts",
        [helper.make_tensor_value_info("index", TensorProto.INT64, [1, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 12, 6])],
        [numpy_helper.from_array(a.astype(np.float32), name) for name, a in constants.items()]
        + [numpy_helper.from_array(np.array(a), name) for name, a in integers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def test_parts_between_regions_give_the_runtimes_bits(tmp_path: Path) -> None:
    save_model(tmp_path / "parts.onnx")
    np.save(tmp_path / "index.npy", np.array([[0, 9, -1, 3, 3]]))
    words = ["export", "--bare-metal", str(tmp_path / "parts.onnx"), "-o", str(tmp_path / "made")]
    words += ["--input", str(tmp_path / "index.npy"), "--quiet"]
    for node in ("op:Table", "op:Concat", "op:Slice", "op:Pad", "op:Transpose"):
        words += ["--cpu", node]
    assert main(words) == 0
    source = (tmp_path / "made" / "network_parts.c").read_text()
    for function in ("dla_gather", "dla_look_up", "dla_copy", "dla_fill"):
        assert f"{function}(arena" in source
    found = Served().run_library(build_bundle(tmp_path / "made"))
    assert found.status == 0, found.text


def save_tail(path: Path, *tail: onnx.NodeProto, **constants: NDArray[Any]) -> None:
    """Save a quantised product with integers ``p`` and floats ``a``, and nodes after it."""
    scales = ["scale", "zero"]
    head = [
        helper.make_node("QuantizeLinear", ["x", *scales], ["q"]),
        helper.make_node("DequantizeLinear", ["q", *scales], ["d"]),
        helper.make_node("DequantizeLinear", ["weights", *scales], ["w"]),
        helper.make_node("MatMul", ["d", "w"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", *scales], ["p"]),
        helper.make_node("DequantizeLinear", ["p", *scales], ["a"]),
    ]
    weights = np.random.default_rng(1).integers(-127, 128, (8, 8)).astype(np.int8)
    constants |= {"scale": np.float32(0.03), "zero": np.int8(0), "weights": weights}
    graph = helper.make_graph(
        [*head, *tail],
        "tail",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def test_an_index_out_of_range_has_a_status_in_words(tmp_path: Path) -> None:
    save_model(tmp_path / "parts.onnx")
    np.save(tmp_path / "index.npy", np.array([[0, 9, -1, 3, 3]]))
    words = ["export", "--bare-metal", str(tmp_path / "parts.onnx"), "-o", str(tmp_path / "made")]
    assert main([*words, "--input", str(tmp_path / "index.npy"), "--quiet"]) == 0
    source = tmp_path / "made" / "network_parts.c"
    text = source.read_text()
    index = "".join(f"\\{byte:03o}" for byte in np.array([0, 9, -1], "<i8").tobytes())
    assert text.count(index) == 1
    source.write_text(text.replace(index, index.replace("\\011", "\\012")))
    found = Served().run_library(build_bundle(tmp_path / "made"))
    assert found.status == 1
    assert found.text == "parts, sample 0: an index of a look-up is out of range\n"


@pytest.mark.parametrize("op_type", ["Floor", "Round", "Clip"])
def test_a_float_function_that_keeps_small_integers_is_no_copy(
    op_type: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = ["low", "high"] if op_type == "Clip" else []
    node = helper.make_node(op_type, ["a", *ends], ["y"], name="after")
    limits = {name: np.float32(end) for name, end in zip(ends, (-9, 9), strict=False)}
    save_tail(tmp_path / "tail.onnx", node, **limits)
    words = ["export", "--bare-metal", str(tmp_path / "tail.onnx"), "-o", str(tmp_path / "made")]
    assert main(words) == 2
    assert f"node 'after' ({op_type}) runs on the CPU" in capsys.readouterr().err


def test_a_function_that_differs_by_place_is_neither_table_nor_copy() -> None:
    limits = np.array([-128, -100], np.int8)
    source = Value("x", (2,), "int8")

    def run(given: NDArray[Any]) -> NDArray[Any]:
        return np.maximum(given, limits)

    assert _find_table(run, source) is None
    assert _copy_pieces(run, [source], source) == ()
    found = _find_table(lambda given: np.maximum(given, limits[1]), source)
    assert found is not None
    np.testing.assert_array_equal(found[128:].view(np.int8), [-100] * 28 + list(range(-100, 0)))


def test_a_row_look_up_of_the_indices_type_is_a_gather(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["order", "index"], ["row"], name="row"),
        helper.make_node("Gather", ["rows", "row"], ["v"], name="v"),
        helper.make_node("MatMul", ["v", "w"], ["y"], name="y"),
    ]
    rng = np.random.default_rng(1)
    constants = {
        "order": np.array([2, 0, 1]), "rows": rng.normal(size=(3, 8)).astype(np.float32),
        "w": rng.normal(size=(8, 8)).astype(np.float32),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("index", TensorProto.INT64, [1, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 8])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, tmp_path / "rows.onnx")
    np.save(tmp_path / "index.npy", np.array([[0, 2, -1, 1, 1]]))
    words = ["export", "--bare-metal", str(tmp_path / "rows.onnx"), "-o", str(tmp_path / "made")]
    assert main([*words, "--input", str(tmp_path / "index.npy"), "--quiet"]) == 0
    found = Served().run_library(build_bundle(tmp_path / "made"))
    assert found.status == 0, found.text
