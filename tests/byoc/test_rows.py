"""Softmax, reductions and normalisations run on the accelerator in any tiling.

They equal the oracle to the bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from byoc.compiler import compile
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.frontend.onnx.rewriting.reductions import PLAIN, WRITTEN
from byoc.host.runtime import Runtime
from byoc.host.sessions import (
    DefinedUnits,
    Oracle,
    compare_defined_units,
    open_definitions,
    oracle_text,
)
from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from dla_sim.device import Device
from dla_sim.timing import Timing
from isa.arch import Arch
from tests.byoc.oracle_check import random_feeds
from tests.byoc.small_models import ModelBuilder, unary_unit
from tests.byoc.written_normalisations import written_out
from tests.e2e.harness import compare

MACHINES = {
    "small": Arch(isa="v4", sram_bytes=8192, sram_banks=4),
    "large": Arch(isa="v4"),
    "banked": Arch(isa="v5", sram_bytes=65536, sram_banks=4),
}
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")


def exact(
    model: onnx.ModelProto, seed: int, schedules: tuple[str, ...] = ("default", "seed")
) -> None:
    """Check that a model runs as one region on the accelerator and equals the oracle.

    It is run on three machines with each of the schedules.
    """
    package = import_model(model, "rows")
    feeds = random_feeds(model, seed)
    for arch in MACHINES.values():
        for schedule in schedules:
            compared = compare(package, feeds, arch, schedule)
            assert [place.on for place in compared.partition.placement] == ["dla"], (
                compared.partition.placement
            )
            assert compared.mismatches == 0, (arch.sram_bytes, schedule)


def drawn(rng: np.random.Generator, dtype: str) -> dict[str, Any]:
    """Quantisations of a unit."""
    limits = np.iinfo(dtype)
    zeros = [int(zero) for zero in rng.integers(limits.min, limits.max + 1, 2)]
    return {
        "dtype": dtype,
        "before": (float(rng.uniform(0.005, 0.2)), zeros[0]),
        "after": (float(rng.uniform(0.004, 0.1)), zeros[1]),
    }


SHAPES = [
    ((1, 40), -1),
    ((3, 5, 7), 1),
    ((1, 16, 4, 700), 1),
    ((2, 6, 128, 33), -1),
    ((2, 3, 90), 0),
    ((1, 3000), 1),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_softmax_equals_onnx_runtime(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    rng = np.random.default_rng(len(shape) + shape[-1])
    low = np.iinfo(dtype).min
    for unit in ({**drawn(rng, dtype), "after": (1 / 256, low)}, drawn(rng, dtype)):
        exact(unary_unit("Softmax", shape, axis=axis, **unit), 3)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 5, 9), (2,)), ((2, 24, 7, 7), (2, 3)), ((4, 90, 50), (1,)), ((3, 4), (0, 1))],
)
@pytest.mark.parametrize("op_type", REDUCTIONS)
def test_reductions_equal_their_definitions(
    op_type: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    for dtype in ("int8", "uint8"):
        unit = drawn(np.random.default_rng(len(op_type)), dtype)
        exact(
            unary_unit(op_type, shape, extra=[(axes, "int64")], keepdims=len(shape) % 2, **unit), 5
        )


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_extrema_of_bare_integers(op_type: str, dtype: str) -> None:
    for axes in ((2,), (1,), (0, 1, 2)):
        builder = ModelBuilder()
        x = builder.input("x", (3, 24, 7), dtype)
        builder.node(op_type, x, builder.constant(axes, "int64"), result="y")
        builder.output("y", dtype)
        exact(builder.model(), 5)


def searched(
    op_type: str,
    shape: tuple[int, ...],
    dtype: str,
    last: bool,
    scale: float = 0.05,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return the index of an extreme of a dequantised input.

    With ``scale`` 0 the input is plain integers.
    """
    builder = ModelBuilder()
    data = builder.input("x", shape, dtype)
    data = builder.dequantize(data, scale, 5, dtype) if scale else data
    builder.node(op_type, data, name="op", result="y", select_last_index=int(last), **attributes)
    builder.output("y", "int64")
    return builder.model()


SEARCHED = [
    ((1, 40), 1),
    ((3, 5, 7), 1),
    ((1, 21, 30, 40), 1),
    ((2, 6, 128, 33), -1),
    ((2, 3, 90), 0),
    ((1, 256), 1),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [*SEARCHED, ((7,), 0), ((4, 1), 1)])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_where_the_largest_is(op_type: str, shape: tuple[int, ...], axis: int, last: bool) -> None:
    """Indices of the largest elements are exact, even if several elements are the largest.

    The inputs have few values. Integers without a scale are tested too.
    """
    dtype = "uint8" if last else "int8"
    for scale in (0.05, 0.0):
        model = searched(op_type, shape, dtype, last, scale, axis=axis, keepdims=len(shape) % 2)
        package = import_model(model, "searched")
        rng = np.random.default_rng(len(shape))
        for high in (2, 256):
            data = rng.integers(256 - high, 256, shape).astype(np.uint8).view(dtype)
            fixed = Arch(isa="v4", numerics="fixed")
            for arch, schedule in (
                (MACHINES["small"], "default"),
                (MACHINES["large"], "seed"),
                (fixed, "default"),
            ):
                compared = compare(package, {"x": data}, arch, schedule)
                assert [place.on for place in compared.partition.placement] == ["dla"]
                assert compared.mismatches == 0


def normal(
    op_type: str, shape: tuple[int, ...], extra: tuple[int, ...], opset: int = 17, **attributes: Any
) -> onnx.ModelProto:
    """A normalisation with drawn gains and biases of the shapes in ``extra``."""
    rng = np.random.default_rng(len(shape) + shape[-1])
    numbers = [
        (rng.normal(float(not index), 0.3, extra), "float32")
        for index in range(1 if op_type[0] == "R" else 2)
    ]
    dtype = ("int8", "uint8")[shape[0] % 2]
    low = np.iinfo(dtype).min
    model = unary_unit(
        op_type, shape, dtype, (0.06, low + 90), (0.03, low + 120), numbers, **attributes
    )
    model.opset_import[0].version = opset
    return model


NORMALS = [
    normal("LayerNormalization", (1, 128, 64), (64,)),
    normal("LayerNormalization", (2, 30, 4, 50), (4, 50), axis=2, epsilon=1e-3),
    normal("LayerNormalization", (1, 7, 768), (1,)),
    normal("RMSNormalization", (1, 20, 96), (96,), 23),
    normal("RMSNormalization", (2, 3, 8, 40), (40,), 23, axis=-1),
    normal("InstanceNormalization", (2, 12, 9, 11), (12,)),
    normal("InstanceNormalization", (1, 5, 200), (5,), epsilon=1e-2),
    normal("GroupNormalization", (2, 12, 8, 8), (12,), 21, num_groups=4),
]


@pytest.mark.parametrize("model", NORMALS, ids=lambda model: model.graph.node[1].op_type)
def test_normalisations_equal_their_definitions(model: onnx.ModelProto) -> None:
    exact(model, 7)


REFUSED = {
    "many rows": (
        searched("ArgMax", (1 << 20, 2), "int8", False, axis=1),
        "rows and their elements fit",
    ),
    "many indices": (
        searched("ArgMax", (3, 257), "int8", False, axis=1),
        "at most 256 elements",
    ),
    "one element": (unary_unit("Softmax", (5, 1), after=(1 / 256, -128)), "is finite in float32"),
    "no epsilon": (
        normal("RMSNormalization", (2, 8), (8,), 23, epsilon=0.0),
        "epsilon is positive",
    ),
    "fixed gains": (
        unary_unit("LayerNormalization", (2, 8), extra=[(np.full(8, 1e9), "float32")]),
        "a gain",
    ),
    "fine results": (unary_unit("Softmax", (5, 9), after=(1e-9, -128)), "above 2^-16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_register_holds_stays_on_the_cpu(name: str) -> None:
    model, reason = REFUSED[name]
    fixed = name.startswith("f")
    network = compile(
        import_model(model, "rows"), Arch(isa="v4", numerics="fixed" if fixed else "onnxruntime")
    )
    (place,) = network.partition.placement
    assert place.on == "cpu"
    assert reason in str(place.reason)


def test_fixed_numerics_agree_within_a_step_and_older_machines_leave_rows_to_the_cpu() -> None:
    for model in (
        NORMALS[0],
        unary_unit("Softmax", (40, 30), after=(1 / 256, -128)),
        unary_unit("ReduceMean", (9, 8)),
    ):
        package = import_model(model, "rows")
        feeds = random_feeds(model, 1)
        arch = Arch(isa="v4", numerics="fixed")
        (value,) = (
            Runtime(compile(package, arch), Device(arch, Timing())).run(feeds).outputs.values()
        )
        (wanted,) = (
            Oracle(package.model, package.graph, package.graph.outputs).values(feeds).values()
        )
        assert np.abs(value.astype(int) - wanted.astype(int)).max() <= 1
        (place,) = compile(package, Arch(isa="v3")).partition.placement
        assert "is not in ISA v3" in str(place.reason)


def test_differences_to_onnx_runtime_are_counted() -> None:
    """Means of two elements are ties half of the time.

    What ONNX Runtime's float sums make of them, it says.
    """
    model = unary_unit(
        "ReduceMean", (500, 4), before=(0.1, 3), after=(0.1, 3), extra=[((1,), "int64")]
    )
    package = import_model(model, "rows")
    feeds = random_feeds(model, 1)
    values = open_definitions(package).values(feeds)
    (found,) = compare_defined_units(package, feeds, open_definitions(package))
    gaps = np.abs(values["y"].astype(int) - values["y:onnxruntime"])
    differ = np.count_nonzero(gaps)
    assert found == DefinedUnits("ReduceMean", 1, 500, differ, gaps.max())
    by = f" by at most {gaps.max()}" if differ else ""
    assert oracle_text(package, [found]).endswith(
        "; 1 unit held to the definition of the instruction, from which ONNX Runtime's float "
        "operator of "
        f"the same operands differs in {differ} of 500 elements{by}"
    )
    several = replace(found, units=2, differences=3, max_abs_diff=1)
    assert oracle_text(package, [found, several]).endswith(
        f" differ in {differ + 3} of 1,000 elements by at most 1"
    )
    assert "definition" not in oracle_text(package)


def test_a_tensor_may_have_the_name_of_what_onnx_runtime_makes_of_a_unit() -> None:
    model = unary_unit(
        "ReduceMean", (500, 4), before=(0.1, 3), after=(0.1, 3), extra=[((1,), "int64")]
    )
    feeds = random_feeds(model, 1)
    given = model.graph.input[0].name
    package = import_model(model, "rows")
    (found,) = compare_defined_units(package, feeds, open_definitions(package))
    for node in model.graph.node:
        node.input[:] = ["y:onnxruntime" if name == given else name for name in node.input]
    model.graph.input[0].name = "y:onnxruntime"
    package = import_model(model, "rows")
    oracle = open_definitions(package)
    feeds = {"y:onnxruntime": feeds[given]}
    assert compare_defined_units(package, feeds, oracle) == (found,)
    assert "y:onnxruntime" not in oracle.values(feeds)


@pytest.mark.parametrize("centred", [True, False])
def test_normalisations_that_are_written_out_are_found(centred: bool) -> None:
    for seed in range(16):
        model = written_out(np.random.default_rng(seed), centred)
        prepared = prepare(model)
        wanted = {"LayerNormalization" if centred else "RMSNormalization"}
        assert {node.op_type for node in prepared.graph.node} - {
            "Identity",
            "Transpose",
        } == wanted, seed
        feeds = random_feeds(model, seed)
        found, expected = (
            OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (prepared, model)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        package = import_model(model, "rows")
        compared = compare(package, feeds, MACHINES["large"])
        assert compared.mismatches == 0
        assert sum(place.on == "cpu" for place in compared.partition.placement) == 2  # the edges


def test_what_only_resembles_a_normalisation_is_left_alone() -> None:
    """Subgraphs that only resemble a normalisation are not rewritten.

    They have means of other axes, deviations of other data, or powers other than a half.
    """
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = written_out(rng, bool(seed % 2))
        node = model.graph.node[rng.integers(len(model.graph.node))]
        constants = [
            tensor
            for tensor in model.graph.initializer
            if tensor.name in node.input and not tensor.dims
        ]
        if node.op_type in ("ReduceMean", "Pow") and constants:
            constants[0].CopyFrom(numpy_helper.from_array(np.float32(3), constants[0].name))
        elif len(node.input) == 2 and node.op_type in ("Sub", "Div"):
            node.input[:] = list(node.input)[::-1]
        prepared = prepare(model)
        feeds = random_feeds(model, seed)
        with np.errstate(all="ignore"):
            found, expected = (
                OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (prepared, model)
            )
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def written_softmax(rng: np.random.Generator) -> onnx.ModelProto:
    """A Softmax in elementary operators, along any axis."""
    builder, shape = (
        ModelBuilder(),
        tuple(int(size) for size in rng.integers(2, 9, rng.integers(2, 5))),
    )
    axis = int(rng.integers(len(shape)))
    along = builder.constant([axis - len(shape) * int(rng.integers(2))], "int64")
    stays = builder.constant(
        [1 if place == axis else size for place, size in enumerate(shape)], "int64"
    )
    x = builder.input("x", shape)

    def reduced(op_type: str, data: str, joined: tuple[float, ...] = ()) -> str:
        keepdims = int(rng.integers(2))
        total = builder.node(op_type, data, along, keepdims=keepdims)
        for number in joined:
            total = builder.node("Max", builder.constant(number, "float32"), total)
        return total if keepdims else builder.node("Reshape", total, stays)

    joined = ((), (-np.inf,), (np.finfo(np.float32).min,))[rng.integers(3)]
    exponential = builder.node("Exp", builder.node("Sub", x, reduced("ReduceMax", x, joined)))
    total = reduced("ReduceSum", exponential)
    if rng.integers(2):
        builder.node("Div", exponential, total, result="y")
    else:
        builder.node("Mul", builder.node("Reciprocal", total), exponential, result="y")
    builder.output("y")
    return builder.model()


def test_softmax_that_is_written_out_is_found() -> None:
    for seed in range(12):
        model = written_softmax(np.random.default_rng(seed))
        prepared = prepare(model)
        feeds = random_feeds(model, seed)
        assert [node.op_type for node in prepared.graph.node] == ["Softmax"], seed
        found, expected = (
            OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (prepared, model)
        )
        np.testing.assert_allclose(found, expected, atol=1e-6)
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        node = next(node for node in model.graph.node if node.op_type == "ReduceMax")
        constants[node.input[1]].CopyFrom(numpy_helper.from_array(np.array([0, 1]), node.input[1]))
        if len(model.graph.input[0].type.tensor_type.shape.dim) > 2 and node.attribute[0].i:
            assert "Softmax" not in {node.op_type for node in prepare(model).graph.node}


def attention(rng: np.random.Generator) -> onnx.ModelProto:
    """Normalise, attend, add, normalise, average: rows between products, in float."""
    builder = ModelBuilder()
    (count, width) = (24, 32)
    number = lambda *shape: builder.constant(rng.normal(0, width**-0.5, shape), "float32")  # noqa: E731

    def ones():
        return (
            builder.constant(np.ones(width), "float32"),
            builder.constant(np.zeros(width), "float32"),
        )

    x = builder.input("x", (1, count, width))
    y = builder.node("LayerNormalization", x, *ones())
    queries, keys, values = (builder.node("MatMul", y, number(width, width)) for _ in range(3))
    scores = builder.node("MatMul", queries, builder.node("Transpose", keys, perm=[0, 2, 1]))
    mixed = builder.node("MatMul", builder.node("Softmax", scores, axis=-1), values)
    total = builder.node("LayerNormalization", builder.node("Add", x, mixed), *ones())
    builder.node("ReduceMean", total, builder.constant([1], "int64"), result="y", keepdims=0)
    builder.output("y")
    return builder.model()


def test_rows_between_products_are_one_region_in_any_scratchpad() -> None:
    model = attention(np.random.default_rng(4))
    package = import_model(model, "attention")
    feeds = random_feeds(model, 2)
    for sram in (8192, 65536, 1 << 19):
        for schedule in ("default", "seed"):
            compared = compare(package, feeds, Arch(isa="v4", sram_bytes=sram), schedule)
            assert compared.mismatches == 0
            assert len(compared.partition.regions) == 1


@pytest.mark.parametrize(
    "op_type", sorted(WRITTEN.keys() - {"PRelu", "LayerNormalization", *PLAIN})
)
def test_reductions_of_functions_are_written_out_and_run(op_type: str) -> None:
    shapes = [(3, 9), (2, 4, 6)]
    shapes = {"GlobalLpPool": [(2, 3, 4, 5), (1, 6, 20)], "LRN": [(2, 3, 4, 5), (1, 12, 6, 7)]}.get(
        op_type, shapes
    )
    options = {"size": 5, "alpha": 0.5, "bias": 1.5} if op_type == "LRN" else {}
    for shape in shapes:
        builder = ModelBuilder()
        # logarithms of negative sums are no numbers
        ends = (0.5, 2) if op_type == "ReduceLogSum" else (-2, 2)
        x = builder.node(
            "Clip", builder.input("x", shape), *(builder.constant(end, "float32") for end in ends)
        )
        axes = [builder.constant([len(shape) - 1], "int64")] if op_type.startswith("Reduce") else []
        builder.node(op_type, x, *axes, result="y", **options)
        builder.output("y")
        model = builder.model()
        feeds = random_feeds(model, 1)
        found, expected = (
            OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (prepare(model), model)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        package = import_model(model, "rows", calibration=[feeds])
        compared = compare(package, feeds, MACHINES["large"])
        assert compared.mismatches == 0
        assert sum(place.on == "cpu" for place in compared.partition.placement) == 2  # the edges
        run = Runtime(compile(package, MACHINES["large"]), Device(MACHINES["large"], Timing())).run(
            feeds
        )
        assert np.abs(run.outputs["y"] - expected).max() < 0.05 * np.ptp(expected)


@pytest.mark.parametrize("shape", [(4, 1, 1), (6,), (5, 1), (2, 4, 5, 6)])
def test_a_slope_an_element_is_written_out_where_it_is_no_table(shape: tuple[int, ...]) -> None:
    builder = ModelBuilder()
    slope = builder.constant(np.random.default_rng(1).uniform(-1, 1, shape), "float32")
    builder.node("PRelu", builder.input("x", (2, 4, 5, 6)), slope, result="y")
    builder.output("y")
    model = builder.model()
    feeds = random_feeds(model, 1)
    found, expected = (
        OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (prepare(model), model)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    package = import_model(model, "slopes", calibration=[feeds])
    compared = compare(package, feeds, MACHINES["large"])
    assert (compared.mismatches, len(compared.partition.regions)) == (0, 1)
    assert ("Mul" in [node.op_type for node in package.graph.nodes]) == (shape != (4, 1, 1))


@pytest.mark.parametrize("wanted", [("m",), ("m", "d"), ("", "d")])
def test_what_a_normalisation_tells_besides_runs_too(wanted: tuple[str, ...]) -> None:
    builder = ModelBuilder()
    gain = builder.constant(np.linspace(0.5, 2, 6), "float32")
    node = helper.make_node(
        "LayerNormalization", [builder.input("x", (3, 4, 6)), gain], ["y", *wanted], epsilon=0.1
    )
    builder.nodes.append(node)
    for name in ("y", *filter(None, wanted)):
        builder.output(name)
    model = builder.model()
    feeds = random_feeds(model, 1)
    names = [value.name for value in model.graph.output]
    results = [OnnxRuntimeSession(one).run(names, feeds) for one in (prepare(model), model)]
    for name in names:
        np.testing.assert_allclose(results[0][name], results[1][name], atol=1e-5)
    compared = compare(import_model(model, "norm", calibration=[feeds]), feeds, MACHINES["large"])
    assert compared.mismatches == 0
    assert {p.op_type for p in compared.partition.placement if p.on == "cpu"} <= {
        "QuantizeLinear",
        "DequantizeLinear",
    }
