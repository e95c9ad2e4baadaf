"""Functions that call one another: what they come to is counted before it is written out."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper

from byoc.frontend.onnx.file import MAXIMUM_CALLED, check_model, load_model
from isa.errors import InputError

CASES = Path(__file__).parents[1] / "cases"


def doubling(depth: int) -> ModelProto:
    """A call of a function that calls another twice, and so on: 2**depth nodes."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    functions = [
        helper.make_function(
            "my", "f0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets
        )
    ]
    for number in range(1, depth + 1):
        nodes = [
            helper.make_node(f"f{number - 1}", [source], [target], domain="my")
            for source, target in ("am", "mb")
        ]
        functions.append(helper.make_function("my", f"f{number}", ["a"], ["b"], nodes, opsets))
    value = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node(f"f{depth}", ["x"], ["y"], domain="my")],
        "g",
        [next(value)],
        [next(value)],
    )
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)


def test_what_they_come_to_is_refused_before_it_is_written_out() -> None:
    """Refuse by the count: the 25 million nodes themselves would need more memory than there is."""
    with pytest.raises(
        InputError,
        match=r"functions that call one another make 25,165,822 nodes, and 131,072 are allo",
    ):
        load_model(CASES / "funcbomb.onnx")


def test_few_are_taken_and_many_are_not() -> None:
    check_model(doubling(3), "few")
    most = MAXIMUM_CALLED.bit_length() - 3
    check_model(doubling(most), "most")
    with pytest.raises(
        InputError, match=r"more: inconsistent ONNX model \(functions that call one another make"
    ):
        check_model(doubling(most + 2), "more")


def test_one_that_calls_itself_is_refused() -> None:
    model = doubling(2)
    model.functions[0].node[0].CopyFrom(helper.make_node("f2", ["a"], ["b"], domain="my"))
    with pytest.raises(InputError, match=r"function 'f\d' calls itself"):
        check_model(model, "endless")
