"""Functions of one 8-bit tensor become one table, exact to the bit, in any place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from byoc.graph import Graph
from byoc.importing import import_model
from byoc.operators.registry import check, load_installed_families
from byoc.operators.rules import Refusal
from byoc.operators.table import TABLE
from byoc.operators.verify import verify_graph
from byoc.package.package import Package, load_package, save_package
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare, simulate

V4 = Arch(isa="v4")
TINY = Arch(isa="v4", sram_bytes=1024, sram_banks=1)
Draw = Callable[["Chain", str], str]


class Chain(ModelBuilder):
    """Element-wise nodes with constants of one element."""

    def number(self, value: float) -> str:
        return self.constant(value, "float32")

    def pair(self, op_type: str, x: str, value: float, swapped: bool = False) -> str:
        operands = (self.number(value), x) if swapped else (x, self.number(value))
        return self.node(op_type, *operands)

    def requantised(self, x: str, scale: float, zero_point: int, dtype: str = "int8") -> str:
        return self.dequantize(self.quantize(x, scale, zero_point, dtype), scale, zero_point, dtype)


def _unary(op_type: str, domain: str = "", **attributes: float | str) -> Draw:
    return lambda b, x: b.node(op_type, x, domain=domain, **attributes)


def _hard_swish(b: Chain, x: str) -> str:
    inside = b.node("Clip", b.pair("Add", x, 3), b.number(0), b.number(6))
    return b.pair("Div", b.node("Mul", x, inside), 6)


def _quantised_hard_swish(b: Chain, x: str) -> str:
    """Write a hard swish like quantisers that do not know closures."""
    shifted = b.requantised(b.pair("Add", x, 3), 0.07, -20)
    inside = b.requantised(b.node("Clip", shifted, b.number(0), b.number(6)), 0.03, -128)
    return b.pair("Div", b.requantised(b.node("Mul", x, inside), 0.2, -100), 6)


def _gelu(b: Chain, x: str) -> str:
    doubled = b.pair("Add", b.node("Erf", b.pair("Div", x, 2**0.5)), 1)
    return b.pair("Mul", b.node("Mul", x, doubled), 0.5)


def _where(b: Chain, x: str) -> str:
    return b.node("Where", b.pair("Greater", x, 0.5), b.pair("Mul", x, 2), b.number(-1))


FUNCTIONS: dict[str, Draw] = {
    **{
        name.lower(): _unary(name)
        for name in (
            "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "Elu", "Selu", "Softplus",
            "Softsign", "Mish", "Exp",
            "Erf", "Neg", "Celu", "Floor", "Sign",
        )
    },
    "gelu-tanh": _unary("Gelu", approximate="tanh"),
    "fast-gelu": _unary("FastGelu", "com.microsoft"),
    "quick-gelu": _unary("QuickGelu", "com.microsoft", alpha=1.5),
    "log": lambda b, x: b.node("Log", b.pair("Add", b.node("Abs", x), 0.25)),
    "sqrt": lambda b, x: b.node("Sqrt", b.node("Abs", x)),
    "reciprocal": lambda b, x: b.node("Reciprocal", b.pair("Add", x, 100)),
    "square": lambda b, x: b.pair("Pow", x, 2),
    "cube": lambda b, x: b.pair("Pow", x, 3),
    "multiply": lambda b, x: b.pair("Mul", x, -0.37),
    "add": lambda b, x: b.pair("Add", x, 1.25),
    "subtract": lambda b, x: b.pair("Sub", x, 2.5, swapped=True),
    "divide": lambda b, x: b.pair("Div", x, 3),
    "divided": lambda b, x: b.pair("Div", b.node("Tanh", x), 3, swapped=True),
    "clip": lambda b, x: b.node("Clip", b.pair("Mul", x, 2), b.number(-1), b.number(2)),
    "prelu": lambda b, x: b.node("PRelu", x, b.constant([[[0.3]]], "float32")),
    "minimum": lambda b, x: b.pair("Min", x, 0.7),
    "where": _where,
    "silu": lambda b, x: b.node("Mul", x, b.node("Sigmoid", x)),
    "hard-swish-of-four": _hard_swish,
    "hard-swish-quantised": _quantised_hard_swish,
    "gelu-of-five": _gelu,
    "mish-of-three": lambda b, x: b.node("Mul", x, b.node("Tanh", b.node("Softplus", x))),
    "requantised": lambda b,
    x: b.node("Sigmoid", b.requantised(b.pair("Mul", x, 1.5), 0.11, 5, "uint8")),
    "twice": lambda b, x: b.node("Mul", x, x),
}  # fmt: skip
PARAMETERS = (
    ((0.04, 3), (0.02, -7)),
    ((0.3, -128), (0.25, 0)),
    ((0.0078125, 0), (0.0039062, -128)),
)


def _model(
    draw: Draw, dtype: str, numbers: tuple[tuple[float, int], ...], shape: tuple[int, ...]
) -> onnx.ModelProto:
    builder = Chain()
    moved = 128 if dtype == "uint8" else 0
    (before, source), (after, result) = numbers
    x = builder.dequantize(builder.input("x", shape, dtype), before, source + moved, dtype)
    builder.quantize(draw(builder, x), after, result + moved, dtype, result="y")
    builder.output("y", dtype)
    return builder.model()


def _every(shape: tuple[int, ...], dtype: str) -> dict[str, np.ndarray]:
    return {"x": np.resize(np.arange(256, dtype=np.uint8), shape).view(dtype)}


def _tables(package: Package) -> list[str]:
    return [node.name for node in package.graph.nodes if node.op_type == TABLE]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_one_table_and_exact_on_every_value(name: str, dtype: str) -> None:
    for numbers in PARAMETERS:
        package = import_model(_model(FUNCTIONS[name], dtype, numbers, (1, 3, 10, 29)), name)
        assert len(package.graph.nodes) == len(_tables(package)) == 1
        for arch, schedule in ((V4, "default"), (TINY, "default"), (TINY, "seed")):
            found = compare(package, _every((1, 3, 10, 29), dtype), arch, schedule)
            assert (found.mismatches, found.elements) == (0, 870)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (2, 3, 4, 5, 6)])
def test_tensors_of_any_rank(shape: tuple[int, ...]) -> None:
    package = import_model(_model(FUNCTIONS["silu"], "int8", PARAMETERS[0], shape), "silu")
    assert compare(package, _every(shape, "int8"), V4).mismatches == 0
    assert len(_tables(package)) == 1


def test_another_element_type_of_the_result() -> None:
    builder = Chain()
    x = builder.dequantize(builder.input("x", (4, 100), "uint8"), 0.05, 128, "uint8")
    builder.quantize(builder.node("Tanh", x), 0.008, 1, "int8", result="y")
    builder.output("y", "int8")
    package = import_model(builder.model(), "types")
    assert len(_tables(package)) == 1
    assert compare(package, _every((4, 100), "uint8"), V4).mismatches == 0


def test_numerics_of_the_machine_change_nothing() -> None:
    package = import_model(_model(FUNCTIONS["gelu"], "int8", PARAMETERS[0], (2, 128)), "fixed")
    assert (
        compare(package, _every((2, 128), "int8"), Arch(isa="v4", numerics="fixed")).mismatches == 0
    )


@pytest.mark.parametrize("isa", ["v1", "v3"])
def test_a_machine_without_tables_leaves_it_to_the_cpu(isa: str) -> None:
    package = import_model(_model(FUNCTIONS["silu"], "int8", PARAMETERS[0], (4, 64)), "silu")
    found = compare(package, _every((4, 64), "int8"), Arch(isa=isa))
    (place,) = found.partition.placement
    assert (place.on, place.reason) == (
        "cpu",
        f"OP_LUT is not in ISA {isa}; choose an ISA that has it (dla isa)",
    )


def test_what_other_families_run_alone_they_run() -> None:
    """In front of a table, behind one, and two in a row.

    Inside a diamond they are part of the table.
    """
    builder = Chain()
    x = builder.dequantize(builder.input("x", (4, 64), "int8"), 0.05, 3)
    front = builder.requantised(builder.node("Relu", x, name="front"), 0.03, -128)
    middle = builder.requantised(builder.node("Sigmoid", front, name="middle"), 0.004, -128)
    builder.quantize(builder.node("LeakyRelu", middle, name="behind"), 0.004, -128, result="y")
    builder.output("y", "int8")
    package = import_model(builder.model(), "chain")
    types = [(node.name, node.op_type) for node in package.graph.nodes]
    assert types == [("front", "Relu"), ("middle", TABLE), ("behind", "LeakyRelu")]
    assert compare(package, _every((4, 64), "int8"), V4).mismatches == 0


def test_results_that_others_read_are_made_and_the_rest_is_not() -> None:
    """Two ends of one source, one of them on the way to the other."""
    builder = Chain()
    x = builder.dequantize(builder.input("x", (4, 64), "int8"), 0.05, 3)
    quantised = builder.quantize(builder.node("Sigmoid", x, name="first"), 0.004, -128, result="a")
    first = builder.dequantize(quantised, 0.004, -128)
    builder.quantize(builder.node("Mul", x, first, name="second"), 0.03, -100, result="b")
    for name in "ab":
        builder.output(name, "int8")
    package = import_model(builder.model(), "ends")
    assert _tables(package) == ["first", "second"]
    assert {node.inputs[0] for node in package.graph.nodes} == {"x"}
    assert compare(package, _every((4, 64), "int8"), V4).mismatches == 0


@pytest.mark.parametrize("kind", ["columns", "broadcast", "two tensors", "two quantisations"])
def test_what_is_no_function_of_one_value_is_none(kind: str) -> None:
    builder = Chain()
    x = builder.dequantize(builder.input("x", (1, 3, 4, 4), "int8"), 0.05, 3)
    if kind == "columns":
        y = builder.node("Mul", x, builder.constant(np.ones(4), "float32"))
    elif kind == "broadcast":
        y = builder.node("Mul", x, builder.constant(np.ones((2, 1, 1, 1)), "float32"))
    elif kind == "two tensors":
        other = builder.dequantize(builder.input("z", (1, 3, 4, 4), "int8"), 0.05, 3)
        y = builder.node("Mul", x, other)
    else:
        y = builder.node("Mul", x, builder.dequantize("x", 0.04, 3))
    builder.quantize(y, 0.05, 0, result="y")
    builder.output("y", "int8")
    assert _tables(import_model(builder.model(), kind)) == []


def test_packages_keep_their_tables_and_a_wrong_one_is_refused(tmp_path: object) -> None:
    package = import_model(_model(FUNCTIONS["silu"], "uint8", PARAMETERS[0], (4, 64)), "silu")
    path = f"{tmp_path}/silu.dla"
    save_package(package, path)
    again = load_package(path)
    assert compare(again, _every((4, 64), "uint8"), V4).mismatches == 0

    def with_table(graph: Graph, table: np.ndarray) -> Graph:
        name = graph.nodes[0].inputs[1]
        value = replace(
            graph.values[name], constant=table, shape=table.shape, dtype=table.dtype.name
        )
        return replace(graph, values={**graph.values, name: value})

    for table in (np.zeros(255, np.uint8), np.zeros(256, np.int8)):
        with pytest.raises(InputError, match="has a table of"):
            verify_graph(with_table(again.graph, table))
    computed = replace(again.graph.values["y:table"], constant=None)
    graph = replace(again.graph, values={**again.graph.values, "y:table": computed})
    (family,) = load_installed_families().by_operator[TABLE]
    refusal = check(family, graph, graph.nodes[0])
    assert isinstance(refusal, Refusal)
    assert (
        str(refusal)
        == "table 'y:table' is computed; the data is computed at run time, the table is constant"
    )


def _random(seed: int) -> onnx.ModelProto:
    """Return a random chain with side branches that join again, with one input.

    It has one or two results, and some tensors are requantised.
    """
    rng = np.random.default_rng(seed)
    builder = Chain()
    dtypes = [("int8", "uint8")[rng.integers(2)] for _ in range(4)]

    def parameters(dtype: str) -> tuple[float, int]:
        return float(np.float32(2.0 ** rng.uniform(-7, -1))), int(rng.integers(-30, 30)) + 128 * (
            dtype == "uint8"
        )

    source = builder.input("x", (2, 3, 7, 13), dtypes[0])
    known = [builder.dequantize(source, *parameters(dtypes[0]), dtypes[0])]
    for _ in range(int(rng.integers(2, 9))):
        x = known[rng.integers(max(0, len(known) - 3), len(known))]
        kind = rng.integers(4)
        if kind == 0:
            made = builder.node(
                str(rng.choice(["Add", "Mul", "Sub", "Max"])), x, known[rng.integers(len(known))]
            )
        elif kind == 1:
            made = builder.pair(
                str(rng.choice(["Add", "Mul", "Sub", "Div", "Min"])), x, float(rng.uniform(0.2, 3))
            )
        else:
            names = [
                "Sigmoid",
                "Tanh",
                "HardSwish",
                "Elu",
                "Softplus",
                "Neg",
                "Relu",
                "Abs",
                "Erf",
                "LeakyRelu",
            ]
            made = builder.node(str(rng.choice(names)), x)
        if rng.integers(3) == 0:
            made = builder.requantised(made, *parameters(dtypes[1]), dtypes[1])
        known.append(made)
    for number, dtype in enumerate(dtypes[2 : 3 + int(rng.integers(2))]):
        builder.quantize(known[-1 - number], *parameters(dtype), dtype, result=f"y{number}")
        builder.output(f"y{number}", dtype)
    return builder.model()


@pytest.mark.parametrize("seed", range(60))
def test_random_chains_and_diamonds(seed: int) -> None:
    model = _random(seed)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    feed = {"x": np.resize(np.arange(256, dtype=np.uint8), (2, 3, 7, 13)).view(dtype)}
    found = compare(
        import_model(model, f"random-{seed}"),
        feed,
        TINY if seed % 2 else V4,
        ("default", "seed")[seed % 3 == 0],
    )
    assert found.mismatches == 0


CHANNELS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "planes": ((2, 5, 7, 9), (5, 1, 1)),
    "rows": ((3, 40), (40,)),
    "line": ((1, 6, 50), (6, 1)),
    "volume": ((1, 3, 2, 4, 5), (3, 1, 1, 1)),
    "vector": ((7,), (7,)),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", CHANNELS)
def test_a_slope_a_channel_is_a_table_a_channel(name: str, dtype: str) -> None:
    """A function with constants per channel becomes one table per channel.

    It has a slope, a divisor and an exponent per channel, and a summand that is not quantised.
    """
    shape, slopes = CHANNELS[name]
    rng = np.random.default_rng(2)
    numbers = rng.uniform(-1, 1, slopes), rng.uniform(0.5, 2, slopes), rng.integers(1, 4, slopes)

    def draw(b: Chain, x: str) -> str:
        slope, divisor, exponent = (b.constant(found, "float32") for found in numbers)
        raised = b.node(
            "Pow", b.node("Div", b.node("PRelu", b.pair("Mul", x, 1.5), slope), divisor), exponent
        )
        return b.node("Sub", divisor, raised)

    package = import_model(_model(draw, dtype, PARAMETERS[0], shape), name)
    assert len(package.graph.nodes) == len(_tables(package)) == 1
    data = rng.integers(0, 256, shape).astype(np.uint8).view(dtype)
    for arch, schedule in ((V4, "default"), (TINY, "default"), (TINY, "seed")):
        found = compare(package, {"x": data}, arch, schedule)
        assert found.mismatches == 0
        assert [place.on for place in found.partition.placement] == ["dla"]


def test_a_function_beside_one_of_channels_is_one_table() -> None:
    builder = Chain()
    x = builder.dequantize(builder.input("x", (1, 3, 4, 64), "int8"), 0.05, 3)
    slope = builder.constant(np.array([[[0.1]], [[-0.5]], [[2.0]]]), "float32")
    builder.quantize(builder.node("Tanh", x), 0.01, 0, result="a")
    builder.quantize(builder.node("PRelu", x, slope), 0.05, 0, result="b")
    for name in "ab":
        builder.output(name, "int8")
    package = import_model(builder.model(), "beside")
    assert [package.graph.values[f"{name}:table"].shape for name in "ab"] == [(256,), (3, 256)]
    assert compare(package, _every((1, 3, 4, 64), "int8"), V4).mismatches == 0


@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (3, 40), (1, 6, 50)])
def test_a_normalisation_of_known_numbers_is_a_table_a_channel(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    numbers = [rng.uniform(0.3, 2, shape[1]) for _ in range(4)]

    def draw(b: Chain, x: str) -> str:
        return b.node(
            "Relu",
            b.node("BatchNormalization", x, *(b.constant(found, "float32") for found in numbers)),
        )

    package = import_model(_model(draw, "int8", PARAMETERS[0], shape), "normalised")
    assert len(package.graph.nodes) == len(_tables(package)) == 1
    data = rng.integers(0, 256, shape).astype(np.uint8).view(np.int8)
    found = compare(package, {"x": data}, V4)
    assert (found.mismatches, [place.on for place in found.partition.placement]) == (0, ["dla"])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sigmoids_of_integers_are_tables(dtype: str) -> None:
    """Those that ONNX Runtime writes: the operator as given is the oracle."""
    low = int(np.iinfo(dtype).min)
    builder = ModelBuilder()
    x = builder.input("x", (2, 128), dtype)
    pairs = ((0.05, low + 131), (1 / 256, low))
    inputs = [
        builder.constant(value, kind)
        for pair in pairs
        for value, kind in zip(pair, ("float32", dtype), strict=True)
    ]
    builder.node("QLinearSigmoid", x, *inputs, result="y", domain="com.microsoft")
    builder.output("y", dtype)
    model = builder.model()
    feeds = _every((2, 128), dtype)
    package = import_model(model, "sigmoid")
    assert len(package.graph.nodes) == len(_tables(package)) == 1
    found = simulate(package, feeds, V4).run.outputs["y"]
    np.testing.assert_array_equal(found, OnnxRuntimeSession(model).run(["y"], feeds)["y"])
