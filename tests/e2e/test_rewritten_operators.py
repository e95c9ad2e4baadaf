"""Operators that run as others, or as a table, are one exact region.

Others stay with a true reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.e2e.field_files import failure_of

RANDOM = np.random.default_rng(0)
BETWEEN = {
    "scale": np.float32(0.02),
    "zero": np.int8(3),
    "scale_y": np.float32(0.05),
    "zero_y": np.int8(-3),
}
INSIDE = (
    "it runs in another form in float models alone: this file gives no scales for the tensors "
    "inside"
)


def _model(
    nodes: Iterable[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, np.ndarray],
    opset: int,
) -> onnx.ModelProto:
    given = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in inputs.items()
    ]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    ]
    graph = helper.make_graph(list(nodes), "rewritten", given, results, tensors)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def float_model(
    op_type: str,
    shapes: Iterable[tuple[int, ...]],
    constants: Mapping[str, Any],
    opset: int,
    **options: Any,
) -> onnx.ModelProto:
    """Return a model of one operator behind a Sigmoid of each input."""
    inputs = {f"x{number}": shape for number, shape in enumerate(shapes)}
    nodes = [helper.make_node("Sigmoid", [name], [f"{name}_s"], f"{name}_s") for name in inputs]
    operands = [*(f"{name}_s" for name in inputs), *constants]
    nodes.append(helper.make_node(op_type, operands, ["y"], "op", **options))
    return _model(nodes, inputs, constants, opset)


def quantised_model(
    op_type: str,
    shapes: Iterable[tuple[int, ...]],
    constants: Mapping[str, Any],
    opset: int,
    **options: Any,
) -> onnx.ModelProto:
    """Return a model of one operator between dequantised operands and a quantised result."""
    inputs = {f"x{number}": shape for number, shape in enumerate(shapes)}
    nodes = []
    for name in inputs:
        nodes.append(
            helper.make_node("QuantizeLinear", [name, "scale", "zero"], [f"{name}_q"], f"{name}_q")
        )
        nodes.append(
            helper.make_node(
                "DequantizeLinear", [f"{name}_q", "scale", "zero"], [f"{name}_f"], f"{name}_f"
            )
        )
    operands = [*(f"{name}_f" for name in inputs), *constants]
    nodes.append(helper.make_node(op_type, operands, ["r"], "op", **options))
    nodes.append(helper.make_node("QuantizeLinear", ["r", "scale_y", "zero_y"], ["r_q"], "r_q"))
    nodes.append(helper.make_node("DequantizeLinear", ["r_q", "scale_y", "zero_y"], ["y"], "y"))
    return _model(nodes, inputs, {**constants, **BETWEEN}, opset)


Build = Callable[..., onnx.ModelProto]
BOTH = (float_model, quantised_model)


@pytest.mark.parametrize("opset", [13, 18, 21, 23])
@pytest.mark.parametrize("build", BOTH)
def test_mod_of_a_constant_is_a_table(build: Build, opset: int) -> None:
    for divisor in (0.3, -0.4):
        constants = {"divisor": np.float32(divisor)}
        assert failure_of(build("Mod", [(1, 4, 6)], constants, opset, fmod=1)) == ""


def test_mod_of_two_computed_tensors_stays_with_a_reason() -> None:
    assert "Mod" in failure_of(float_model("Mod", [(1, 4, 6), (1, 4, 6)], {}, 18, fmod=1))


EQUATIONS = {
    "bqhd,bkhd->bhqk": ((1, 5, 3, 4), (1, 6, 3, 4)),
    "bhqk,bkhd->bqhd": ((1, 3, 5, 6), (1, 6, 3, 4)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "bchw,bc->bchw": ((1, 3, 4, 5), (1, 3)),
    "nctv,vw->nctw": ((1, 3, 4, 5), (5, 5)),
    "bij,bij->bi": ((1, 3, 4), (1, 3, 4)),
    "bi,bj->bij": ((1, 4), (1, 5)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("build", BOTH)
def test_an_einsum_of_one_product_runs(build: Build, equation: str) -> None:
    assert failure_of(build("Einsum", EQUATIONS[equation], {}, 18, equation=equation)) == ""


def test_an_einsum_of_dequantised_weights_runs() -> None:
    model = quantised_model("Einsum", [(1, 3, 4, 5), (5, 6)], {}, 18, equation="nctv,vw->nctw")
    kept = [node for node in model.graph.node if node.name != "x1_q"]
    next(node for node in kept if node.name == "x1_f").input[2] = ""
    del model.graph.node[:]
    model.graph.node.extend(kept)
    del model.graph.input[1:]
    weights = RANDOM.integers(-128, 128, (5, 6)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(weights, "x1_q"))
    assert failure_of(model) == ""


@pytest.mark.parametrize(
    "equation", ["ij,jk->", "ij,jk,kl->il", "ij->ji", "ij->", "ij", "ba", "i...->..."]
)
def test_an_einsum_of_several_steps_runs_in_float_models(equation: str) -> None:
    sizes = {"i": 3, "j": 4, "k": 5, "l": 2, "a": 3, "b": 4}
    operands = equation.partition("->")[0].replace("...", "j").split(",")
    shapes = [tuple(sizes[letter] for letter in letters) for letters in operands]
    assert failure_of(float_model("Einsum", shapes, {}, 18, equation=equation)) == ""


@pytest.mark.parametrize("equation", ["ij,jk->", "ij,jk->ik"])
def test_a_quantised_einsum_with_tensors_inside_stays_one_node(equation: str) -> None:
    """Its result is the file's own: no inner tensor is rounded."""
    found = failure_of(quantised_model("Einsum", [(3, 4), (4, 5)], {}, 18, equation=equation))
    assert found == "" if equation.endswith("k") else "Einsum: Einsum stays in float" in found


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("size", [0, 4])
@pytest.mark.parametrize("rank", [3, 4])
def test_a_rotary_embedding_runs(rank: int, size: int, interleaved: int) -> None:
    heads = 2
    tokens = 5
    width = 8
    angles = RANDOM.standard_normal((16, (size or width) // 2)).astype(np.float32)
    constants = {
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "positions": np.arange(tokens)[None] + 2,
    }
    shape = (1, heads, tokens, width) if rank == 4 else (1, tokens, heads * width)
    options = {"num_heads": heads, "rotary_embedding_dim": size, "interleaved": interleaved}
    assert failure_of(float_model("RotaryEmbedding", [shape], constants, 23, **options)) == ""
    token = {"cos": constants["cos"][None, :tokens], "sin": constants["sin"][None, :tokens]}
    assert failure_of(float_model("RotaryEmbedding", [shape], token, 23, **options)) == ""


@pytest.mark.parametrize(
    "op_type", ["LogSoftmax", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"]
)
@pytest.mark.parametrize("opset", [13, 18, 23])
def test_reductions_of_functions_run_in_float_models_alone(op_type: str, opset: int) -> None:
    reduces = op_type != "LogSoftmax"
    for axis in (-1, 1):
        options: dict[str, Any] = {"keepdims": int(axis > 0)} if reduces else {"axis": axis}
        constants = {"axes": np.array([axis])} if reduces and opset >= 18 else {}
        if reduces and opset < 18:
            options["axes"] = [axis]
        assert failure_of(float_model(op_type, [(1, 4, 6)], constants, opset, **options)) == ""
        assert INSIDE in failure_of(
            quantised_model(op_type, [(1, 4, 6)], constants, opset, **options)
        )


def test_a_quantised_rotary_embedding_stays_with_the_reason() -> None:
    angles = RANDOM.standard_normal((1, 5, 4)).astype(np.float32)
    constants = {"cos": np.cos(angles), "sin": np.sin(angles)}
    assert INSIDE in failure_of(quantised_model("RotaryEmbedding", [(1, 2, 5, 8)], constants, 23))
