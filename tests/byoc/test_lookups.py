"""Rows of constant tables that integers select at run time.

The tests cover functions of rows, one-hot encodings and quantisation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from byoc.compiler import compile
from byoc.frontend.onnx.rewriting.integers import quantise_tables
from byoc.frontend.onnx.rewriting.lookups import tabulate_rows
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.quantisation.calibrate import default_feeds
from byoc.quantisation.quantize import quantise
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from tests.byoc.float_models import operators
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

V4 = Arch(isa="v4")


def random_tokens(
    model: onnx.ModelProto, seed: int, least: int, most: int
) -> dict[str, np.ndarray]:
    """Integers from ``least`` to ``most`` for every input."""
    feeds = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = (
            np.random.default_rng(seed).integers(least, most + 1, shape).astype(dtype)
        )
    return feeds


def encoded(b: ModelBuilder, way: str, shape: tuple[int, ...], depth: int, kind: str) -> str:
    """A one-hot encoding of the tokens ``ids``, (*shape, depth)."""
    ids = b.input("ids", shape, kind)
    if way == "OneHot":
        depth_and_values = b.constant(depth, kind), b.constant([0, 1], "float32")
        return b.node("OneHot", ids, *depth_and_values, axis=-1)
    apart = b.node("Reshape", ids, b.constant((*shape, 1), "int64"))
    apart = b.node("Expand", apart, b.constant((*shape, 1), "int64"))
    numbers = b.constant(np.arange(depth).reshape((1,) * len(shape) + (depth,)), kind)
    equal = b.node("Equal", *((apart, numbers) if way == "Equal" else (numbers, apart)))
    return b.node("Cast", equal, to=TensorProto.FLOAT)


def gelu_behind(b: ModelBuilder, x: str) -> str:
    """A bias, and Gelu as JAX writes it: a diamond of single numbers."""
    x = b.node("Add", x, b.constant(np.random.default_rng(3).normal(0, 1, (1, 1, 12)), "float32"))
    number = lambda value: b.constant(value, "float32")  # noqa: E731
    cube = b.node("Mul", x, b.node("Mul", x, b.node("Mul", number(0.0447), x)))
    inner = b.node("Tanh", b.node("Mul", b.node("Add", x, cube), number(0.7978)))
    return b.node("Mul", x, b.node("Mul", number(0.5), b.node("Add", number([[1.0]]), inner)))


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("way", ["OneHot", "Equal", "Equal, numbers first"])
def test_a_one_hot_product_is_rows_of_its_weights(way: str, kind: str) -> None:
    """Tokens beyond the encoding choose nothing.

    Those below 0 count from the end for OneHot, and for it alone.
    """
    b = ModelBuilder()
    rng = np.random.default_rng(0)
    one_hot = encoded(b, way, (2, 30), 9, kind)
    x = gelu_behind(b, b.node("MatMul", one_hot, b.constant(rng.normal(0, 1, (9, 12)), "float32")))
    b.node("MatMul", x, b.constant(rng.normal(0, 1, (12, 4)), "float32"), result="y")
    b.output("y")
    model = b.model()
    prepared = prepare(model)
    # the products at both ends, too, are of 9 rows each
    assert operators(prepared).keys() <= {"Clip", "Gather"}
    for seed in range(4):
        feeds = random_tokens(model, seed, -20, 20)
        found, expected = (
            OnnxRuntimeSession(one, optimised=False).run(["y"], feeds)["y"]
            for one in (prepared, model)
        )
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_encoding_itself_is_rows_of_a_unit_matrix_unless_that_is_large() -> None:
    for depth, found in ((7, "Gather"), (40, "OneHot")):
        b = ModelBuilder()
        one_hot = encoded(b, "OneHot", (1, 8), depth, "int64")
        b.node("Transpose", one_hot, result="y", perm=[0, 2, 1])
        b.output("y")
        prepared = prepare(b.model())
        assert operators(prepared)[found] == 1
        feeds = random_tokens(b.model(), 1, -2 * depth, 2 * depth)
        ways = (OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (prepared, b.model()))
        np.testing.assert_array_equal(*ways)


def embedding(depth: int, shape: tuple[int, ...]) -> tuple[ModelBuilder, str]:
    b = ModelBuilder()
    table = b.constant(np.random.default_rng(1).normal(0, 1, (depth, 12)), "float32", "table")
    return b, b.node("Gather", table, b.input("ids", shape, "int64"))


def test_only_functions_of_single_rows_move_to_the_table() -> None:
    """Functions of single rows are folded into the table, others are not.

    Others differ from row to row, compute between rows, or have a table larger than the selected
    rows.
    """
    per_row = np.random.default_rng(2).normal(0, 1, (1, 30, 1))
    for depth, constant, folded in ((9, 2.0, True), (9, per_row, False), (900, 2.0, False)):
        b, rows = embedding(depth, (2, 30))
        b.node("Mul", rows, b.constant(constant, "float32"), result="y")
        b.output("y")
        model = prepare(b.model())
        assert operators(model).total() == (1 if folded else 2)
    b, rows = embedding(9, (2, 30))
    b.node("Add", rows, b.node("Gather", "table", b.input("others", (2, 30), "int64")), result="y")
    b.output("y")
    assert operators(prepare(b.model())) == {"Gather": 2, "Add": 1}
    plain = ModelBuilder()
    plain.node("Relu", plain.input("x", (3,)), result="y")
    plain.output("y")
    model = plain.model()
    assert tabulate_rows(model) is model


def sentence(moved: bool) -> onnx.ModelProto:
    """Words and their places, summed, reshaped where ``moved``, and multiplied."""
    b, rows = embedding(50, (1, 6))
    if moved:
        rows = b.node(
            "Transpose", b.node("Reshape", rows, b.constant((1, 12, 6), "int64")), perm=[0, 2, 1]
        )
    x = b.node(
        "Add", rows, b.constant(np.random.default_rng(4).normal(0, 1, (1, 6, 12)), "float32")
    )
    b.node(
        "MatMul",
        x,
        b.constant(np.random.default_rng(5).normal(0, 1, (12, 4)), "float32"),
        result="y",
    )
    b.output("y")
    return b.model()


@pytest.mark.parametrize("moved", [False, True])
def test_tables_of_words_are_stored_quantised(moved: bool) -> None:
    model = sentence(moved)
    samples = [random_tokens(model, seed, 0, 49) for seed in range(3)]
    before = quantise(prepare(model), samples)
    after = quantise_tables(before)
    assert (
        sum(
            tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2
            for tensor in after.graph.initializer
        )
        == 0
    )
    package = import_model(model, "words", calibration=samples)
    for feeds in samples:
        ways = (OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (before, after))
        np.testing.assert_array_equal(*ways)
        compared = compare(package, feeds, V4)
        assert compared.mismatches == 0
        assert len(compared.partition.regions) == 1
        on_the_cpu = {place.op_type for place in compared.partition.placement if place.on == "cpu"}
        assert on_the_cpu <= {"Gather", "DequantizeLinear", "Reshape", "Transpose"}


def test_without_samples_words_are_drawn_from_those_there_are() -> None:
    """Behind a Clip, too, and from the smallest of several tables; what chooses no rows is zero."""
    b, rows = embedding(50, (1, 6))
    b.node("Gather", "table", b.node("Clip", "ids", *(b.constant(end, "int64") for end in (0, 49))))
    fewer = b.constant(np.ones((9, 12)), "float32")
    b.node(
        "Add",
        rows,
        b.node(
            "Gather", fewer, b.node("Cast", b.input("few", (1, 6), "int32"), to=TensorProto.INT64)
        ),
    )
    b.node("Gather", "table", "few")
    b.input("flags", (4,), "int64")
    feeds = list(default_feeds(b.model(), 0, 20))
    drawn = {name: np.concatenate([feed[name].reshape(-1) for feed in feeds]) for name in feeds[0]}
    assert set(drawn["few"].tolist()) == set(range(9))
    assert 40 < drawn["ids"].max() < 50
    assert not drawn["flags"].any()


def test_rows_that_others_read_in_float_stay_so() -> None:
    """Rows with consumers other than a QuantizeLinear stay unchanged."""
    before = quantise(prepare(sentence(False)))
    (rows,) = (node for node in before.graph.node if node.op_type == "Gather")
    before.graph.output.append(onnx.ValueInfoProto(name=rows.output[0]))
    assert quantise_tables(before) is before


def quantised_words(dtype: str, after: tuple[float, int], indices: Any = None) -> onnx.ModelProto:
    """Return a product of rows of a quantised table.

    The rows are between DequantizeLinear and QuantizeLinear.
    """
    b = ModelBuilder()
    rng = np.random.default_rng(6)
    low = np.iinfo(dtype).min
    steps = rng.integers(low, low + 256, (50, 12)).astype(dtype)
    ids = b.input("ids", (1, 6), "int64")
    rows = b.node("Gather", b.weights(steps, 0.05, low + 120), ids)
    x = b.dequantize(b.quantize(rows, *after, dtype), *after, dtype)
    y = b.node("MatMul", x, b.weights(rng.integers(-127, 128, (12, 4)).astype(np.int8), 0.02))
    b.quantize(y, 0.1, low + 128, dtype, result="y")
    b.output("y", dtype)
    return b.model()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [0.05, 0.03])
def test_rows_of_quantised_tables_stay_integers(dtype: str, scale: float) -> None:
    """No whole table is dequantised for the rows of one sentence.

    Another scale behind them is the accelerator's.
    """
    model = quantised_words(dtype, (scale, np.iinfo(dtype).min + 120))
    feeds = random_tokens(model, 2, 0, 49)
    compared = compare(import_model(model, "words"), feeds, V4)
    assert compared.mismatches == 0
    assert [place.op_type for place in compared.partition.placement if place.on == "cpu"] == [
        "Gather"
    ]
    ways = (
        OnnxRuntimeSession(one).run(["y"], feeds)["y"]
        for one in (model, import_model(model, "words").model)
    )
    np.testing.assert_array_equal(*ways)


def test_global_maxima_of_float_models_run_on_the_accelerator() -> None:
    b = ModelBuilder()
    x = b.node("Relu", b.input("x", (1, 6, 50)))
    x = b.node("Squeeze", b.node("GlobalMaxPool", x), b.constant([2], "int64"))
    b.node(
        "MatMul",
        x,
        b.constant(np.random.default_rng(0).normal(0, 1, (6, 4)), "float32"),
        result="y",
    )
    b.output("y")
    network = compile(import_model(b.model(), "maxima"), V4)
    assert {place.op_type for place in network.partition.placement if place.on == "cpu"} == {
        "QuantizeLinear",
        "DequantizeLinear",
    }
