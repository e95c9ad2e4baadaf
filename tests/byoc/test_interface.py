"""Integer inputs and outputs: which ports can have them, the reason for others, and equal bits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc
from byoc.host.runtime import NetworkRun, Runtime
from byoc.importing import import_model
from byoc.options import CompileOptions
from byoc.package.interface import Interface, NetworkPort, connect
from byoc.package.package import Package, load_package, save_package
from byoc.runtimes.session import OnnxRuntimeSession
from dla_sim.device import Device
from experiments.running.check import check_values
from isa.arch import Arch
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder

INTEGER = CompileOptions(integer_io=True)
ARCH = Arch(isa="v4")


def _unit(
    builder: ModelBuilder, q: str, scale: float, zero: int, dtype: str, result: str = "r"
) -> str:
    """A Relu between quantisations of ``scale`` and ``zero``."""
    relu = builder.node("Relu", builder.dequantize(q, scale, zero, dtype))
    return builder.quantize(relu, scale, zero, dtype, result=result)


def _model(dtype: str = "int8", zero: int = 5) -> onnx.ModelProto:
    """x → Q → Relu → DQ → y, all of one scale."""
    builder = ModelBuilder()
    q = builder.quantize(builder.input("x", (2, 3)), 0.1, zero, dtype, result="q")
    builder.output(
        builder.dequantize(_unit(builder, q, 0.1, zero, dtype), 0.1, zero, dtype, result="y")
    )
    return builder.model()


def _reasons(model: onnx.ModelProto | Package) -> dict[str, str]:
    """Return the reasons for ports that stay float, by name; an empty text for integer ones."""
    package = model if isinstance(model, Package) else import_model(model, "m")
    return {
        port.name: "" if port.reason is None else str(port.reason)
        for port in connect(package, INTEGER).ports
    }


def _run(
    package: Package, feeds: dict[str, Any], **choices: Any
) -> tuple[Interface, NetworkRun[Any]]:
    network = byoc.compile(package, ARCH, **choices)
    run = Runtime(network, Device(ARCH)).run(feeds)
    assert check_values(network, feeds, run).mismatches == 0
    return network.interface, run


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 5), ("uint8", 128)])
def test_ports_of_a_quantised_model(dtype: str, zero: int, tmp_path: Path) -> None:
    package = import_model(_model(dtype, zero), "m")
    save_package(package, tmp_path / "m.dla")
    for one in (package, load_package(tmp_path / "m.dla")):
        interface = connect(one, INTEGER)
        assert [
            (p.name, p.value.dtype, p.value.shape, p.tensors, p.integer) for p in interface.ports
        ] == [
            ("x", dtype, (2, 3), ("q",), True),
            ("y", dtype, (2, 3), ("r",), True),
        ]
        assert [
            (float(p.quantization.scale), int(p.quantization.zero_point)) for p in interface.ports
        ] == [(float(np.float32(0.1)), zero)] * 2
        assert [node.op_type for node in interface.graph.nodes] == ["Relu"]
        assert set(interface.graph.values) == {"q", "r"}
        plain = connect(one)
        assert plain.graph is one.graph
        assert [(p.name, p.value.dtype, p.tensors, p.integer, p.reason) for p in plain.ports] == [
            ("x", "float32", ("x",), False, None),
            ("y", "float32", ("y",), False, None),
        ]


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 5), ("uint8", 100)])
def test_integers_in_and_out_are_those_of_the_float_run(dtype: str, zero: int) -> None:
    package = import_model(_model(dtype, zero), "m")
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32) * 9
    _, float_run = _run(package, {"x": x})
    interface, run = _run(package, {"x": x}, integer_io=True)
    (port,) = interface.inputs
    (result,) = interface.outputs
    np.testing.assert_array_equal(run.values["q"], float_run.values["q"])
    np.testing.assert_array_equal(run.outputs["y"], float_run.values["r"])
    np.testing.assert_array_equal(result.dequantise(run.outputs["y"]), float_run.outputs["y"])
    _, given = _run(package, {"x": port.quantise(x)}, integer_io=True)
    np.testing.assert_array_equal(given.outputs["y"], run.outputs["y"])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantising_is_that_of_onnx_runtime(dtype: str) -> None:
    """Quantisation and dequantisation of 614,400 numbers equal ONNX Runtime's.

    They are random numbers, ties and large ones, with scales of all magnitudes.
    """
    random = np.random.default_rng(1)
    limits = np.iinfo(dtype)
    for _ in range(12):
        scale = np.float32(2.0 ** random.uniform(-20, 20))
        zero = int(random.integers(limits.min, limits.max + 1))
        port = _port_of(dtype, scale, zero)
        halves = (random.integers(-400, 400, (64, 100)).astype(np.float32) / 2) * scale
        numbers = random.standard_normal((192, 100)).astype(np.float32) * 100 * scale
        x = np.concatenate([halves, numbers]) * np.float32(10.0 ** random.integers(0, 3))
        builder = ModelBuilder()
        q = builder.quantize(builder.input("x", x.shape), scale, zero, dtype, result="q")
        builder.output(q, dtype)
        builder.output(builder.dequantize(q, scale, zero, dtype, name="dq"))
        session = OnnxRuntimeSession(builder.model())
        names = [value.name for value in builder.outputs]
        wanted, real = session.run(names, {"x": x}).values()
        np.testing.assert_array_equal(port.quantise(x), wanted)
        np.testing.assert_array_equal(port.dequantise(wanted), real)
        np.testing.assert_array_equal(port.quantise(real), wanted)  # what the check rests on


def _port_of(dtype: str, scale: np.float32, zero: int) -> NetworkPort:
    builder = ModelBuilder()
    q = builder.quantize(builder.input("x", (1, 2)), scale, zero, dtype, result="q")
    builder.output(builder.dequantize(_unit(builder, q, scale, zero, dtype), scale, zero, dtype))
    return connect(import_model(builder.model(), "m"), INTEGER).inputs[0]


def test_what_cannot_be_integer_says_why() -> None:
    builder = ModelBuilder()
    for name in ("two", "both", "unused"):
        builder.input(name, (1, 4))
    ids = builder.input("ids", (1, 4), "int64")
    whole = builder.input("bytes", (1, 4), "uint8")
    first = builder.quantize("two", 0.1, 0)
    second = builder.quantize("two", 0.2, 0)
    third = builder.quantize("both", 0.1, 0)
    results = [
        _unit(builder, q, scale, 0, "int8", "")
        for q, scale in ((first, 0.1), (second, 0.2), (third, 0.1))
    ]
    for index, (result, scale) in enumerate(zip(results, (0.1, 0.2, 0.1), strict=True)):
        builder.output(builder.dequantize(result, scale, 0, result=f"y{index}"))
    builder.output(builder.node("Softmax", "both", name="softmax", result="s"))
    builder.output(builder.node("Neg", ids, name="neg", result="n"), "int64")
    builder.output(
        builder.dequantize(_unit(builder, whole, 0.5, 3, "uint8", ""), 0.5, 3, "uint8", result="b")
    )
    assert _reasons(builder.model()) == {
        "two": "'quantizelinear0' and 'quantizelinear1' quantise it differently",
        "both": "Softmax 'softmax' reads it",
        "unused": "nothing reads it",
        "ids": "the model has int64, which is not quantised",
        "bytes": "",
        "y0": "",
        "y1": "",
        "y2": "",
        "s": "Softmax 'softmax' makes it",
        "n": "the model has int64, which is not quantised",
        "b": "",
    }


def test_wide_and_several_scales_stay_float() -> None:
    builder = ModelBuilder()
    builder.output(builder.quantize(builder.input("wide", (1, 4)), 0.1, 0, "int16"), "int16")
    stored = builder.input("stored", (1, 4), "int16")
    builder.output(builder.dequantize(stored, 0.1, 0, "int16", result="y"))
    rows = builder.quantize(builder.input("rows", (2, 2)), [0.1, 0.2], [0, 0], result="q")
    builder.output(builder.dequantize(rows, [0.1, 0.2], [0, 0], result="z"))
    found = _reasons(builder.model())
    assert found["wide"] == "QuantizeLinear 'quantizelinear0' has int16, which are not 8 bits"
    assert found["y"] == "DequantizeLinear 'dequantizelinear1' has int16, which are not 8 bits"
    assert (
        found["rows"]
        == "QuantizeLinear 'quantizelinear2' has int8 of scales that are several, or computed"
    )
    assert (
        found["z"]
        == "DequantizeLinear 'dequantizelinear3' has int8 of scales that are several, or computed"
    )


@pytest.mark.parametrize("scale", [0.0, -0.5, np.inf])
def test_scales_that_nobody_can_divide_by_are_refused(scale: float) -> None:
    builder = ModelBuilder()
    q = builder.quantize(builder.input("x", (1, 4)), scale, 3)
    builder.output(builder.dequantize(_unit(builder, q, scale, 3, "int8"), scale, 3, result="y"))
    with pytest.raises(
        InputError,
        match=rf"^scale '\w+' of node '\w+' is {scale:g}; scales are positive and finite$",
    ):
        import_model(builder.model(), "m")


def test_an_output_in_another_scale_than_its_tensor_has_stays_float() -> None:
    builder = ModelBuilder()
    q = builder.quantize(builder.input("x", (1, 4)), 0.1, 0)
    builder.output(builder.dequantize(_unit(builder, q, 0.1, 0, "int8"), 0.3, 0, result="y"))
    assert _reasons(builder.model()) == {
        "x": "",
        "y": "DequantizeLinear 'dequantizelinear4': it gives 'r' another quantisation than the "
        "rest of the model does",
    }


def test_an_input_that_is_quantised_twice_alike_is_one_port() -> None:
    builder = ModelBuilder()
    x = builder.input("x", (1, 4))
    for index in range(2):
        q = builder.quantize(x, 0.1, 5, result=f"q{index}")
        builder.output(
            builder.dequantize(_unit(builder, q, 0.1, 5, "int8", ""), 0.1, 5, result=f"y{index}")
        )
    package = import_model(builder.model(), "m")
    numbers = np.asarray([[-3, 2, 0.4, 99]], np.float32)
    interface, run = _run(package, {"x": numbers}, integer_io=True)
    assert [port.tensors for port in interface.inputs] == [("q0", "q1")]
    np.testing.assert_array_equal(run.outputs["y0"], run.outputs["y1"])
    np.testing.assert_array_equal(run.outputs["y0"], [[5, 25, 9, 127]])


def test_an_output_that_others_read_as_real_numbers_is_still_integer() -> None:
    builder = ModelBuilder()
    q = builder.quantize(builder.input("x", (2, 3)), 0.1, 5, result="q")
    y = builder.dequantize(_unit(builder, q, 0.1, 5, "int8"), 0.1, 5, result="y")
    builder.output(y)
    builder.output(builder.node("Softmax", y, result="s"))
    package = import_model(builder.model(), "m")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    _, float_run = _run(package, {"x": x})
    interface, run = _run(package, {"x": x}, integer_io=True)
    assert [port.integer for port in interface.outputs] == [True, False]
    np.testing.assert_array_equal(run.outputs["s"], float_run.outputs["s"])
    np.testing.assert_array_equal(interface.real(run.outputs)["y"], float_run.outputs["y"])


def test_quantisation_alone_leaves_nothing_to_run() -> None:
    builder = ModelBuilder()
    builder.output(
        builder.dequantize(builder.quantize(builder.input("x", (1, 3)), 0.1, 5), 0.1, 5, result="y")
    )
    _, run = _run(
        import_model(builder.model(), "m"), {"x": np.ones((1, 3), np.float32)}, integer_io=True
    )
    assert run.outputs["y"].tolist() == [[15, 15, 15]]


_WANTED = "; the model wants shape [2, 3] and type int8, or float32 to be quantised"


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "input 'x' is missing; it has shape [2, 3] and type int8"),
        ({"z": np.zeros(1)}, "the model has no input 'z'; its inputs are x"),
        ({"x": np.zeros((2, 3), np.uint8)}, f"input 'x' has shape [2, 3] and type uint8{_WANTED}"),
        ({"x": np.zeros((2, 2), np.int8)}, f"input 'x' has shape [2, 2] and type int8{_WANTED}"),
        ({"x": [[1, 2, 3], [4, 5, 6]]}, f"input 'x' has shape [2, 3] and type int64{_WANTED}"),
        ({"x": None}, f"input 'x' has shape [] and type object{_WANTED}"),
        (
            {"x": np.full((2, 3), np.nan, np.float32)},
            "input 'x' has 6 elements that are infinite or no number, the first at [0, 0]; correct "
            "the input",
        ),
    ],
)
def test_wrong_inputs(feeds: dict[str, Any], message: str) -> None:
    interface = connect(import_model(_model(), "m"), INTEGER)
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        interface.take_arrays(feeds)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("kind", ["<f4", ">f4"])
def test_numbers_of_any_size_order_and_dimensions_are_taken(
    shape: tuple[int, ...], kind: str
) -> None:
    """Such as are infinite in steps of the scale, no dimensions, the bytes of other machines."""
    builder = ModelBuilder()
    q = builder.quantize(builder.input("x", shape), 0.001, 5, result="q")
    builder.output(builder.dequantize(_unit(builder, q, 0.001, 5, "int8"), 0.001, 5, result="y"))
    package = import_model(builder.model(), "m")
    for number, expected in ((3e38, 127), (-3e38, 5), (0.05, 55)):
        _, run = _run(package, {"x": np.full(shape, number, kind)}, integer_io=True)
        assert (run.outputs["y"].shape, set(run.outputs["y"].reshape(-1).tolist())) == (
            shape,
            {expected},
        )


def test_real_numbers_of_a_float_model_that_was_given(tmp_path: Path) -> None:
    """A quantised float model gets dequantised integers; its float graph gives close results."""
    weight = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])],
        "float",
        [helper.make_tensor_value_info("x", 1, [2, 3])],
        [helper.make_tensor_value_info("y", 1, [2, 4])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    package = import_model(model, "float")
    integers = np.random.default_rng(3).integers(-128, 128, (2, 3)).astype(np.int8)
    interface, run = _run(package, {"x": integers}, integer_io=True)
    assert [port.integer for port in interface.ports] == [True, True]
    given = interface.real({"x": integers})
    wanted = OnnxRuntimeSession(model).run(["y"], given)["y"]
    assert np.abs(interface.real(run.outputs)["y"] - wanted).max() < 0.05


_ROWS = {"perm": [0, 3, 1, 2]}
_BACK = {"perm": [0, 2, 3, 1]}
_Step = tuple[str, tuple[float, ...], dict[str, Any]]


def _photographic(
    before: list[_Step], after: list[_Step], dtype: str, shape: tuple[int, ...]
) -> onnx.ModelProto:
    """Return a quantised convolution of three channels between operators on real numbers.

    ``before`` and ``after`` list these operators.
    """
    builder = ModelBuilder()
    value = builder.input("x", shape, dtype)
    for kind, constants, attributes in before:
        value = builder.node(
            kind, value, *(builder.constant(c, "float32") for c in constants), **attributes
        )
    value = builder.dequantize(builder.quantize(value, 0.05, 3), 0.05, 3)
    weights = builder.constant(np.random.default_rng(5).integers(-128, 128, (4, 3, 3, 3)), "int8")
    value = builder.node("Conv", value, builder.dequantize(weights, 0.01, 0))
    value = builder.dequantize(builder.quantize(value, 0.1, 1), 0.1, 1)
    for kind, constants, attributes in after:
        value = builder.node(
            kind, value, *(builder.constant(c, "float32") for c in constants), **attributes
        )
    builder.output(value)
    return builder.model()


_TO = ("Cast", (), {"to": 1})
_TRANSPOSE = ("Transpose", (), _ROWS)
_SCALE = ("Mul", (0.02,), {})


@pytest.mark.parametrize(
    ("before", "dtype"),
    [
        ([_TRANSPOSE], "float32"),
        ([_TO, _TRANSPOSE, _SCALE], "uint8"),
        ([_TO, _SCALE, _TRANSPOSE], "uint8"),
        ([_TRANSPOSE, _TO, _SCALE], "uint8"),
        ([_TO, _TRANSPOSE, _SCALE], "int8"),
    ],
    ids=["real", "cast-first", "cast-and-scale-first", "cast-last", "int8"],
)
@pytest.mark.parametrize(
    "after",
    [[("Transpose", (), _BACK)], [("Flatten", (), {})], [("Identity", (), {})]],
    ids=["rows-out", "flat-out", "as-it-is"],
)
def test_pictures_row_by_row_are_moved_and_scaled_on_the_accelerator(
    before: list[_Step], after: list[_Step], dtype: str
) -> None:
    """Operators that move elements at a model's boundary move integers.

    Operators behind a Cast of bytes become a table.
    """
    model = _photographic(before, after, dtype, (1, 8, 8, 3))
    random = np.random.default_rng(6)
    if dtype == "float32":
        x = random.standard_normal((1, 8, 8, 3)).astype(np.float32) * 3
    else:
        x = random.integers(0, 256, (1, 8, 8, 3)).astype(np.uint8).view(dtype)
    package = import_model(model, "m")
    interface, run = _run(package, {"x": x}, integer_io=True)
    assert byoc.compile(package, ARCH, integer_io=True).partition.host_parts == ()
    (name,) = run.outputs
    wanted = OnnxRuntimeSession(model).run([name], {"x": x})[name]
    np.testing.assert_array_equal(interface.real(run.outputs)[name], wanted)


def test_bytes_that_a_float_model_casts_first() -> None:
    """A float model that casts image bytes in row-major order runs on the accelerator.

    The project quantises it. No operator stays on the CPU.
    """
    weights = np.random.default_rng(2).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["real"], to=1),
        helper.make_node("Transpose", ["real"], ["planes"], **_ROWS),
        helper.make_node("Div", ["planes", "most"], ["n"]),
        helper.make_node("Conv", ["n", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "float",
        [helper.make_tensor_value_info("x", 2, [1, 8, 8, 3])],
        [helper.make_tensor_value_info("y", 1, [1, 4, 6, 6])],
        [
            onnx.numpy_helper.from_array(weights, "w"),
            onnx.numpy_helper.from_array(np.float32(255), "most"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    pictures = np.random.default_rng(3).integers(0, 256, (4, 1, 8, 8, 3)).astype(np.uint8)
    package = import_model(model, "float", calibration=[{"x": picture} for picture in pictures])
    assert byoc.compile(package, ARCH, integer_io=True).partition.host_parts == ()
    interface, run = _run(package, {"x": pictures[0]}, integer_io=True)
    wanted = OnnxRuntimeSession(model).run(["y"], {"x": pictures[0]})["y"]
    assert np.abs(interface.real(run.outputs)["y"] - wanted).max() < 0.1


def test_a_cache_and_what_is_appended_to_it_share_a_scale() -> None:
    """The application can append the integers to the cache without a conversion.

    It passes the cache back for the next run.
    """
    weights = np.random.default_rng(4).standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["new"]),
        helper.make_node("Concat", ["past", "new"], ["all"], axis=0),
        helper.make_node("MatMul", ["all", "w"], ["y"]),
    ]
    shapes = {"x": [1, 8], "past": [3, 8], "new": [1, 8], "y": [4, 8]}
    values = {name: helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()}
    graph = helper.make_graph(
        nodes,
        "cache",
        [values["x"], values["past"]],
        [values["y"], values["new"]],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    package = import_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "m"
    )
    ports = {port.name: port for port in connect(package, INTEGER).ports}
    assert all(port.integer for port in ports.values())
    assert ports["past"].quantization.same_as(ports["new"].quantization)
    assert not ports["x"].quantization.same_as(ports["new"].quantization)
