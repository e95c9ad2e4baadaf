"""Every requirement and constraint: the rule and values that a refusal names, and its text."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import onnx
import pytest

from byoc.frontend.onnx.importer import import_graph
from byoc.operators.onnx_view import OnnxNode, OnnxView
from byoc.operators.registry import (
    check,
    get_built_in_families,
    load_installed_families,
    lower,
    support_table,
)
from byoc.operators.rules import Refusal, make_unknown_operator
from byoc.options import Grouped, Target
from byoc.partitioning.partition import partition
from isa.arch import IDEAL
from tests.byoc.oracle_check import V1, V2, placed
from tests.byoc.refusal_sentences import SENTENCES
from tests.byoc.refused_models import REFUSALS, _conv, _pair
from tests.byoc.small_models import unary_unit


def _reason(model: onnx.ModelProto, target: Target = V2, node: str = "op") -> str:
    return placed(partition(import_graph(model), target))[node]


def _refusal(model: onnx.ModelProto) -> Refusal:
    """Why the last family asked does not run the node ``op``."""
    graph = import_graph(model)
    node = next(node for node in graph.nodes if node.name == "op")
    outcome: object = make_unknown_operator(node)
    for family in load_installed_families().by_operator.get(node.op_type, ()):
        outcome = check(family, graph, node) or lower(family, graph, node, V2)
    assert isinstance(outcome, Refusal)
    return outcome


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_the_rule_and_the_values(case: str) -> None:
    build, rule, values = REFUSALS[case]
    refusal = _refusal(build())
    assert (refusal.node, refusal.rule, dict(refusal.values)) == ("op", rule, values)
    assert str(refusal) == _reason(build())


@pytest.mark.parametrize("case", SENTENCES)
def test_the_sentence_of_a_rule(case: str) -> None:
    assert _reason(REFUSALS[case][0]()) == SENTENCES[case]


def test_every_rule_has_a_case_and_a_sentence() -> None:
    rules = {
        rule.name for family in get_built_in_families().families for rule in family.requirements
    }
    rules |= {
        rule.name for family in get_built_in_families().families for rule in family.constraints
    }
    tested_below = {
        "depthwise_available",
        "grouped_wanted",
        "grouped_available",
        "scales_in_int32",
        "product_in_int32",
    }
    tested_below |= {"quotient_in_int32"}
    # Their nodes have scales, or computed data and a table, or the importer would not have
    # recognised them.
    only_of_packages = {"quantised", "constant_table", "whole_indices"}
    tested_below |= {"one_scale"}  # tests/byoc/test_flags.py
    tested_below |= {"short_axis", "searched_rows_fit"}  # tests/byoc/test_rows.py
    tested_below |= {"finite_numerators", "small_sums", "finite_numbers"}  # tests/byoc/test_rows.py
    assert rules - tested_below - only_of_packages == {rule for _, rule, _ in REFUSALS.values()} - {
        "known"
    }
    assert {REFUSALS[case][1] for case in SENTENCES} == {rule for _, rule, _ in REFUSALS.values()}


def test_depthwise_needs_its_instruction_or_emulation() -> None:
    model = _conv(weights=np.ones((4, 1, 3, 3), np.int8), group=4)
    assert _reason(model, V1) == (
        "OP_DEPTH_CONV is not in ISA v1; "
        "a depthwise convolution runs on it or is emulated: use --isa v2 or --emulate-depthwise"
    )
    assert _reason(model, Target(frozenset(), "v1", IDEAL, emulate_depthwise=True)) == "dla"
    assert _reason(model, V2) == "dla"


def test_grouped_convolutions_run_as_they_are_told() -> None:
    model = _conv(weights=np.ones((4, 2, 3, 3), np.int8), group=2)
    machine = {
        name: Target(frozenset(names), name, IDEAL)
        for name, names in (("v1", ()), ("v3", ("OP_GROUP_CONV",)))
    }
    outcomes = {
        (name, grouped): _reason(model, replace(target, grouped=grouped))
        for name, target in machine.items()
        for grouped in get_args(Grouped)
    }
    kept = "it has 2 groups; with --grouped cpu, grouped convolutions stay on the CPU"
    missing = (
        "OP_GROUP_CONV is not in ISA v1; with --grouped native, grouped "
        "convolutions run on OP_GROUP_CONV: use --isa v3"
    )
    reasons = {("v1", "cpu"): kept, ("v3", "cpu"): kept, ("v1", "native"): missing}
    assert outcomes == {key: reasons.get(key, "dla") for key in outcomes}
    assert _reason(model, replace(machine["v3"], group_limit=2)) == (
        "groups 2 does not fit a field below 2; sizes, kernel, strides, dilations and pads fit the "
        "instruction's fields"
    )


def test_every_rule_is_one_line_and_in_the_support_table() -> None:
    rows = support_table()
    assert [row.family for row in rows] == [
        family.family for family in get_built_in_families().families
    ]
    products = next(row for row in rows if row.family == "matmul")
    assert products.operators == ("MatMul", "Gemm", "QLinearMatMul", "MatMulInteger", "QGemm")
    for row in rows:
        assert row.operators or row.closes
        assert all(rule and "\n" not in rule and not rule.endswith(".") for rule in row.rules), (
            row.family
        )


FIXED = replace(
    V2, numerics="fixed", instructions=V2.instructions | {"OP_E_SUB", "OP_E_MUL", "OP_E_DIV"}
)
TOO_LARGE = {
    "Relu": lambda: unary_unit("Relu", (3, 7), before=(0.5, 0), after=(1e-8, 0)),
    "LeakyRelu": lambda: unary_unit("LeakyRelu", (3, 7), alpha=-1e8),
    "Conv": lambda: _conv(before=(5.0, 0), after=(1e-9, 0)),
    "Add": lambda: _pair("Add", (3, 7), (3, 7), scales=(8.0, 0.1, 2.0**-19)),
    "Flatten": lambda: unary_unit("Flatten", (3, 7), before=(0.5, 0), after=(1e-8, 0)),
    "Concat": lambda: _pair("Concat", (1, 3), (1, 4), scales=(1e3, 0.1, 1e-5)),
    "Sub": lambda: _pair("Sub", (3, 7), (3, 7), scales=(8.0, 0.1, 2.0**-19)),
    "Mul": lambda: _pair("Mul", (3, 7), (3, 7), scales=(32.0, 1.0, 2.0**-10)),
    "Div": lambda: _pair("Div", (3, 7), (3, 7), scales=(1e3, 0.1, 1e-5)),
    "Max": lambda: _pair("Max", (3, 7), (3, 7), scales=(1e3, 0.1, 1e-5)),
}


@pytest.mark.parametrize("operator", TOO_LARGE)
def test_integers_alone_scale_no_further_than_int32(operator: str) -> None:
    """With fixed numerics, a factor that is too large is a reason, not a run-time error.

    This holds for every operator family.
    """
    model = TOO_LARGE[operator]()
    assert _reason(model, replace(FIXED, numerics="onnxruntime")) == "dla"
    assert _reason(model, FIXED).endswith(
        "; with numerics fixed, no value overflows int32 when its scale "
        "changes: choose numerics onnxruntime"
    )


@pytest.mark.parametrize(("axis", "there"), [(1, True), (-2, True), (3, False), (-9, False)])
def test_an_axis_that_is_none_of_the_tensor(axis: int, there: bool) -> None:
    """ONNX Runtime refuses such a file; reading it before must not fail otherwise."""
    constants = {"scale": np.ones(3, np.float32), "zero": np.zeros(3, np.int8)}
    view = OnnxView("view", (), constants, ("x",), ("y",), {"x": ((2, 3, 4), "int8")})
    node = OnnxNode("node", "DequantizeLinear", ("x", "scale", "zero"), ("y",), {"axis": axis})
    assert (view.quantization_of(node) is not None) == there
