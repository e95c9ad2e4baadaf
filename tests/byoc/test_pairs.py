"""Sums, differences, products, minima and maxima of two tensors: dense, broadcast, constant.

Exact in any tiling.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest

from byoc.importing import import_model
from byoc.operators.verify import verify_graph
from isa.arch import Arch
from isa.errors import InputError
from tests.byoc.oracle_check import random_feeds
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import Comparison, compare
from tests.rotation import rotate_parts

V4 = Arch(isa="v4")
TINY = Arch(isa="v4", sram_bytes=1024, sram_banks=1)
SMALL = Arch(isa="v4", sram_bytes=8192)
BANKED = Arch(isa="v5", sram_bytes=65536, sram_banks=4)
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "equal": ((2, 3, 7, 11), (2, 3, 7, 11)),
    "value a channel": ((1, 24, 9, 11), (1, 24, 1, 1)),
    "channels first": ((24, 1, 1), (1, 24, 9, 11)),
    "channels of images": ((3, 5, 4, 6), (1, 5, 1, 1)),
    "row": ((9, 40), (40,)),
    "plane": ((3, 7, 11), (1, 7, 11)),
    "scalar": ((3, 7, 30), ()),
    "one value first": ((1, 1), (3, 7, 30)),
    "columns": ((2, 6, 8, 5), (2, 6, 1, 5)),
    "outer product": ((6, 1), (1, 50)),
    "outer product turned": ((1, 50), (6, 1)),
    "in turns": ((3, 1, 4, 1, 5), (1, 6, 4, 2, 1)),
    "long rows": ((2, 1500), (2, 1)),
    "one element": ((1,), (1, 1)),
    "ranks": ((1, 4, 5), (4, 5)),
}
OPERATORS = {
    "Add": {"OP_E_ADD", "OP_B_ADD"},
    "Sub": {"OP_E_SUB"},
    "Mul": {"OP_E_MUL"},
    "Min": {"OP_C_MIN", "OP_B_MIN"},
}
OPERATORS |= {"Div": {"OP_E_DIV"}}


def _quantisation(op_type: str, dtype: str, rng: np.random.Generator) -> list[tuple[float, int]]:
    """Scales and zero points of both operands and the result, half of them full of ties."""
    moved = 128 if dtype == "uint8" else 0
    a, b = (
        float(2.0 ** rng.integers(-6, -2) * rng.choice([1, 1.5, rng.uniform(1, 2)]))
        for _ in range(2)
    )
    y = max(a, b) * float(rng.choice([1, 1.5, rng.uniform(0.5, 2)]))
    y = {"Mul": a * b * 40, "Div": a / b / float(rng.choice([1, 3, 8]))}.get(op_type, y)
    scales = (a, b, y) if op_type != "Min" else (a, a, a)
    zeros = rng.integers(-100, 100, 3) if op_type != "Min" else np.array([3, 3, 3])
    return [(scale, int(zero) + moved) for scale, zero in zip(scales, zeros, strict=True)]


def _pair(
    op_type: str,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    seed: int,
    constant: int = -1,
    relu: bool = False,
) -> onnx.ModelProto:
    """Both tensors between DequantizeLinear and QuantizeLinear.

    Operand number ``constant`` is one.
    """
    builder = ModelBuilder()
    rng = np.random.default_rng(seed)
    numbers = _quantisation(op_type, dtype, rng)
    operands = []
    for number, (shape, (scale, zero)) in enumerate(zip(shapes, numbers, strict=False)):
        if number == constant:
            name = builder.constant(
                rng.integers(0, 256, shape, np.uint8).view(dtype), dtype, "ab"[number]
            )
        else:
            name = builder.input("ab"[number], shape, dtype)
        operands.append(builder.dequantize(name, scale, zero, dtype))
    result = builder.node(op_type, *operands, name="op")
    result = builder.node("Relu", result) if relu else result
    builder.quantize(result, *numbers[2], dtype, result="y")
    builder.output("y", dtype)
    return builder.model()


def mnemonics(found: Comparison) -> set[str]:
    """The instructions of its programs."""
    return {
        command.instruction.mnemonic
        for p in found.network.programs.values()
        for command in p.commands
    }


def exact(model: onnx.ModelProto, *machines: tuple[Arch, str]) -> set[str]:
    """Check that every machine agrees with ONNX Runtime; return the mnemonics of its programs.

    Transfers are left out.
    """
    package = import_model(model, "pair")
    feeds = random_feeds(model, 3)
    used: set[str] = set()
    for arch, schedule in machines:
        found = compare(package, feeds, arch, schedule)
        assert [place.on for place in found.partition.placement] == ["dla"]
        assert (found.mismatches, found.elements > 0) == (0, True)
        used |= mnemonics(found)
    return used - {"OP_DMA_READ", "OP_DMA_WRITE", "OP_SYNC", "OP_END"}


@pytest.mark.parametrize(
    ("case", "op_type", "dtype"), rotate_parts([*product(SHAPES, OPERATORS, ["int8", "uint8"])], 3)
)
def test_operands_of_any_shapes(case: str, op_type: str, dtype: str) -> None:
    """Both computed; by script 0 of 60,000,000 results of additions differ, ties included."""
    machines = (V4, "default"), (TINY if case != "in turns" else SMALL, "default"), (SMALL, "seed")
    for seed in range(2):
        model = _pair(op_type, SHAPES[case], dtype, seed)
        assert exact(model, *machines) <= OPERATORS[op_type]
        assert exact(model, (BANKED, "default")) <= OPERATORS[op_type] | {"OP_PERMUTE"}


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize(
    "case", ["equal", "value a channel", "channels of images", "row", "outer product", "long rows"]
)
def test_constant_operands(case: str, constant: int, op_type: str) -> None:
    machines = (V4, "default"), (TINY, "default"), (SMALL, "seed"), (BANKED, "default")
    exact(_pair(op_type, SHAPES[case], "uint8", 5, constant), *machines)


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_relu_behind_it_is_a_clamp(op_type: str, dtype: str) -> None:
    """A following Relu is a clamp, even if the range exceeds it.

    The oracle gets it as an integer clamp.
    """
    for seed in range(4):
        exact(_pair(op_type, SHAPES["columns"], dtype, seed, relu=True), (V4, "default"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op_type", ["Min", "Max"])
def test_comparisons_of_several_tensors_of_any_scales(op_type: str, dtype: str) -> None:
    """Comparisons equal ONNX Runtime's in float, because rounding keeps the order."""
    shapes = (1, 6, 5, 7), (6, 1, 1), (5, 7), (1, 6, 5, 7), (), (7,)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        builder = ModelBuilder()
        operands = []
        for number, shape in enumerate(shapes[: 2 + seed]):
            scale = float(rng.uniform(0.02, 0.2))
            zero = int(rng.integers(0, 100))
            if number in (2, 4):
                data = builder.constant(rng.integers(0, 100, shape), dtype)
            else:
                data = builder.input(f"x{number}", shape, dtype)
            operands.append(builder.dequantize(data, scale, zero, dtype))
        result = builder.node(op_type, *operands, operands[0], name="op")
        builder.quantize(result, 0.05, 60, dtype, result="y")
        builder.output("y", dtype)
        exact(builder.model(), (V4, "default"), (TINY, "default"), (SMALL, "seed"))


@pytest.mark.parametrize("scale", [0.05, 0.03])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("axis", [1, 3])
def test_constants_are_joined_to_tensors(axis: int, place: int, scale: float) -> None:
    """Constants are concatenated before, between and after tensors, like a class token.

    Their scale equals that of the tensors or differs.
    """
    builder = ModelBuilder()
    rng = np.random.default_rng(place)
    operands = [
        builder.dequantize(builder.input(name, (1, 6, 5, 7), "uint8"), 0.05, 131, "uint8")
        for name in "ab"
    ]
    data = builder.constant(
        rng.integers(0, 256, (1, 2, 5, 7) if axis == 1 else (1, 6, 5, 3)), "uint8", "k"
    )
    operands.insert(place, builder.dequantize(data, scale, 131 if scale == 0.05 else 100, "uint8"))
    builder.quantize(
        builder.node("Concat", *operands, name="op", axis=axis), 0.05, 131, "uint8", result="y"
    )
    builder.output("y", "uint8")
    exact(builder.model(), (V4, "default"), (TINY, "default"), (SMALL, "seed"))


def test_constants_of_float_models_are_quantised_whichever_operand_they_are() -> None:
    rng = np.random.default_rng(0)
    builder = ModelBuilder(17)
    channels, token = (
        builder.constant(rng.standard_normal(shape), "float32")
        for shape in ((4, 1, 1), (1, 1, 6, 5))
    )
    weights = builder.constant(rng.standard_normal((4, 3, 1, 1)), "float32")
    x = builder.node("Conv", builder.input("x", (1, 3, 6, 5)), weights)
    scaled = builder.node("Mul", channels, builder.node("Sub", channels, x))
    builder.node("Concat", token, scaled, axis=1, result="y")
    builder.output("y")
    feed = {"x": rng.standard_normal((1, 3, 6, 5)).astype(np.float32)}
    found = compare(import_model(builder.model(), "first", calibration=[feed]), feed, V4)
    assert {place.op_type for place in found.partition.placement if place.on == "cpu"} == {
        "QuantizeLinear", "DequantizeLinear"
    }  # fmt: skip
    assert found.mismatches == 0


def test_squeeze_and_excite_is_one_region() -> None:
    """A squeeze-and-excite block of MobileNetV3, quantised by the project, is one region.

    It runs with default and small scratchpads and with the published schedule.
    """
    rng, builder = np.random.default_rng(0), ModelBuilder(17)

    def convolution(x: str, inputs: int, outputs: int, **attributes: Any) -> str:
        size = 3 if "pads" in attributes else 1
        weights = (
            rng.standard_normal((outputs, inputs // attributes.get("group", 1), size, size)) * 0.4
        )
        bias = rng.standard_normal(outputs)
        return builder.node(
            "Conv",
            x,
            builder.constant(weights, "float32"),
            builder.constant(bias, "float32"),
            **attributes,
        )

    image = builder.input("x", (1, 8, 13, 11))
    wide = builder.node("HardSwish", convolution(image, 8, 24))
    deep = builder.node("HardSwish", convolution(wide, 24, 24, pads=[1, 1, 1, 1], group=24))
    squeezed = builder.node("Relu", convolution(builder.node("GlobalAveragePool", deep), 24, 6))
    gate = builder.node("HardSigmoid", convolution(squeezed, 6, 24), alpha=1 / 6, beta=0.5)
    narrow = convolution(builder.node("Mul", deep, gate), 24, 8)
    builder.node("Add", image, narrow, result="y")
    builder.output("y")
    feed = {"x": rng.standard_normal((1, 8, 13, 11)).astype(np.float32)}
    package = import_model(builder.model(), "block", calibration=[feed])
    for arch, schedule in (
        (V4, "default"),
        (SMALL, "default"),
        (Arch(isa="v4", sram_bytes=4096), "seed"),
    ):
        found = compare(package, feed, arch, schedule)
        assert (found.mismatches, len(found.partition.regions)) == (0, 1)
        assert "OP_E_MUL" in mnemonics(found)


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shape", [(), (24, 1, 1), (1, 24, 5, 6)])
def test_operators_that_carry_their_quantisation(operator: str, shape: tuple[int, ...]) -> None:
    """With a computed operand, and with a constant one."""
    for constant in (False, True):
        builder = ModelBuilder()
        a = builder.input("a", (1, 24, 5, 6), "uint8")
        rng = np.random.default_rng(1)
        data = rng.integers(0, 256, shape, np.uint8)
        b = builder.constant(data, "uint8", "b") if constant else builder.input("b", shape, "uint8")
        numbers = [builder.constant(value, "float32") for value in (0.05, 0.02, 0.07)]
        zeros = [builder.constant(value, "uint8") for value in (3, 200, 100)]
        operands = a, numbers[0], zeros[0], b, numbers[1], zeros[1], numbers[2], zeros[2]
        builder.node(operator, *operands, name="op", domain="com.microsoft", result="y")
        builder.output("y", "uint8")
        exact(builder.model(), (V4, "default"), (TINY, "default"))


@pytest.mark.parametrize("op_type", ["Add", "Mul"])
def test_an_operand_that_is_both_and_that_comes_from_one_tensor(op_type: str) -> None:
    """x with itself is a function of one value; x with a row of it is not."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 6, 4, 5), "int8"), 0.05, 3)
    twice = builder.dequantize(
        builder.quantize(builder.node(op_type, x, x, name="op"), 0.1, 3), 0.1, 3
    )
    row = builder.dequantize(
        builder.quantize(builder.node("MaxPool", twice, kernel_shape=[4, 1]), 0.1, 3), 0.1, 3
    )
    builder.quantize(builder.node(op_type, row, twice, name="again"), 0.2, -5, result="y")
    builder.output("y", "int8")
    package = import_model(builder.model(), "both")
    found = compare(package, random_feeds(builder.model(), 1), V4)
    assert {place.on for place in found.partition.placement} == {"dla"}
    assert found.mismatches == 0


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
def test_integers_alone(op_type: str) -> None:
    """With numerics fixed: within one step of ONNX Runtime on every pair of values."""
    builder = ModelBuilder()
    every = np.arange(-128, 128, dtype=np.int8)
    a = builder.dequantize(builder.input("a", (256, 1), "int8"), 0.05, 3)
    b = builder.dequantize(builder.input("b", (1, 256), "int8"), 0.03, -7)
    builder.quantize(builder.node(op_type, a, b), 0.2, 11, result="y")
    builder.output("y", "int8")
    package = import_model(builder.model(), "fixed")
    feeds = {"a": every[:, None], "b": every[None]}
    values = {
        numerics: _result(package, feeds, Arch(isa="v4", numerics=numerics))
        for numerics in ("onnxruntime", "fixed")
    }
    difference = np.abs(values["fixed"].astype(np.int64) - values["onnxruntime"])
    assert difference.max() <= 1
    assert np.mean(difference) < 0.03


def _result(package: Any, feeds: dict[str, Any], arch: Arch) -> Any:
    from byoc.compiler import compile
    from byoc.host.runtime import Runtime
    from dla_sim.device import Device

    network = compile(package, arch)
    assert [place.on for place in network.partition.placement] == ["dla"]
    return Runtime(network, Device(arch)).run(feeds).values["y"]


def test_machines_without_the_instructions_say_so() -> None:
    for op_type, reason in (
        ("Mul", "OP_E_MUL is not in ISA v3; choose an ISA that has it (dla isa)"),
        ("Sub", "OP_E_SUB is not in ISA v3; choose an ISA that has it (dla isa)"),
        (
            "Add",
            "OP_B_ADD is not in ISA v3; broadcast operands need instructions of their own: use "
            "--isa v4",
        ),
    ):
        model = _pair(op_type, SHAPES["row"], "int8", 0)
        found = compare(import_model(model, "old"), random_feeds(model, 1), Arch(isa="v3"))
        assert [place.reason for place in found.partition.placement] == [reason]
    dense = _pair("Add", SHAPES["equal"], "int8", 0, constant=1)
    assert compare(import_model(dense, "old"), random_feeds(dense, 1), Arch(isa="v1")).cycles > 0


@pytest.mark.parametrize("op_type", OPERATORS)
@pytest.mark.parametrize("shape", [(9, 41), (9, 1), (1, 9, 40), (40,)])
def test_results_of_other_shapes_are_refused(op_type: str, shape: tuple[int, ...]) -> None:
    """A package with a wrong shape of a result is rejected."""
    graph = import_model(_pair(op_type, SHAPES["row"], "int8", 0), "pair").graph
    value = replace(graph.values["y"], shape=shape)
    with pytest.raises(InputError, match="'op' makes "):
        verify_graph(replace(graph, values={**graph.values, "y": value}))


def test_a_minimum_of_one_operand_is_no_package_of_ours() -> None:
    """It would be made of no step: nothing would make its result."""
    builder = ModelBuilder()
    operands = [builder.dequantize(builder.input(name, (2, 3), "int8"), 0.1, 3) for name in "ab"]
    builder.output(
        builder.quantize(builder.node("Min", *operands, name="op"), 0.1, 3, result="y"), "int8"
    )
    graph = import_model(builder.model(), "m").graph
    (node,) = graph.nodes
    with pytest.raises(InputError, match="Min 'op' has 1 operands"):
        verify_graph(replace(graph, nodes=(replace(node, inputs=node.inputs[:1]),)))
