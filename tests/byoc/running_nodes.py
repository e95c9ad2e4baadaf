"""Nodes that run: those of ONNX's own tests, and nodes drawn from the operator's schema."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

from byoc.frontend.onnx.rewriting.reasons import support_rows
from byoc.operators.forms import QLinear
from byoc.operators.registry import load_installed_families
from tests.byoc.node_cases import (
    FLOAT,
    MICROSOFT,
    Case,
    Schema,
    place,
    runtime_schemas,
)


@cache
def backend_cases() -> Mapping[str, Sequence[Case]]:
    """The onnx package's node tests of one node each, by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        testcases = collect_testcases(None)
    found: dict[str, list[Case]] = defaultdict(list)
    for testcase in testcases:
        assert testcase.model is not None
        nodes = testcase.model.graph.node
        # without its reduction, indices that repeat have no defined result
        sums = any(item.name == "reduction" for item in nodes[0].attribute)
        if len(nodes) == 1 and not nodes[0].domain and testcase.data_sets and not sums:
            case = _case(testcase.model, testcase.data_sets[0][0])
            if case is not None:
                found[nodes[0].op_type].append(case)
    return found


def _case(model: ModelProto, data: Sequence[Any]) -> Case | None:
    """A node test with the integers that only choose as constants, and all numbers as float32."""
    (node,) = model.graph.node
    opset = max(13, min(model.opset_import[0].version, 24))
    try:
        schema = Schema.of(node.op_type, "", opset)
    except defs.SchemaError:
        return None
    feeds: dict[str, NDArray[Any]] = {}
    constants: dict[str, NDArray[Any]] = {}
    given = {value.name: array for value, array in zip(model.graph.input, data, strict=True)}
    for index, name in enumerate(node.input):
        if not name or name in feeds:
            continue
        array = given.get(name)
        if isinstance(array, TensorProto):
            array = numpy_helper.to_array(array)
        if not isinstance(array, np.ndarray | np.generic):
            return None
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        numbers = array.dtype.kind == "f" or formal.kind in {item.kind for item in schema.outputs}
        if FLOAT in formal.types and numbers and array.dtype.kind in "fiu":
            feeds[name] = np.asarray(
                np.nan_to_num(np.asarray(array, np.float32), posinf=9, neginf=-9)
            )
        elif array.dtype in (np.float32, np.int8, np.uint8, np.bool_):
            feeds[name] = np.asarray(array)
        else:
            constants[name] = np.asarray(array)
    named = NodeProto()
    named.CopyFrom(node)
    named.name = "op"
    return Case(node.op_type, named, feeds, constants, opset)


def listed() -> tuple[str, ...]:
    """Every operator that the support table lists, but for those that are not drawn."""
    names = dict.fromkeys(name for row in support_rows() for name in (*row.operators, *row.closes))
    return tuple(name for name in names if name not in UNDRAWN)


MOST_TRIED = 12


@cache
def running_nodes(operator: str, count: int = 2) -> tuple[Case, ...]:
    """Return running nodes of an operator, the one with the most attributes and operands first.

    Each has another set of attributes and operands. Each appears twice if both variants run: with
    as few constant operands as possible and with as many.
    """
    found: dict[Any, list[Case]] = {}
    for case in islice(_candidates(operator), 40):
        key = (
            frozenset(item.name for item in case.node.attribute),
            len(case.node.input),
            len(case.node.output),
        )
        if key in found:
            continue
        choices = list(_constant_operands(case))
        first = next((other for other in choices if place(other).kind == "runs"), None)
        if first is not None:
            last = next(
                other
                for other in reversed(choices)
                if other is first or place(other).kind == "runs"
            )
            found[key] = [first] if first is last else [first, last]
    ranked = sorted(
        found.values(), key=lambda cases: -len(cases[0].node.attribute) - len(cases[0].node.input)
    )
    return tuple(case for cases in ranked[:count] for case in cases)


def _candidates(operator: str) -> Iterator[Case]:
    known = load_installed_families().integer_forms.get(operator)
    if operator in _GIVEN:
        yield _given(operator)
    elif operator == "If":
        yield _branches()
    elif operator in backend_cases():
        yield from backend_cases()[operator]
    elif known is not None and isinstance(known[2], QLinear):
        for case in running_nodes(known[1].onnx, 4):
            yield from _quantised(operator, case, known[2])
    elif operator.startswith("QLinear"):
        for case in running_nodes(operator.removeprefix("QLinear"), 4):
            yield from _quantised(operator, case, QLinear(operator, ((0, 1, 2),), (3, 4)))
    else:
        yield from _drawn(operator)


_GIVEN: Mapping[
    str, tuple[int, Mapping[str, tuple[int, ...]], Mapping[str, NDArray[Any]], Mapping[str, Any]]
] = {
    "Mod": (21, {"x": (4, 5)}, {"y": np.array(1.5, np.float32)}, {"fmod": 1}),
    "FusedGemm": (21, {"A": (4, 5)}, {"B": np.eye(5, 3, dtype=np.float32)}, {"activation": "Relu"}),
    "MatMulNBits": (
        21,
        {"A": (4, 16)},
        {
            "B": np.arange(40, dtype=np.uint8).reshape(5, 1, 8) * 6,
            "scales": np.linspace(0.1, 0.2, 5, dtype=np.float32),
        },
        {"K": 16, "N": 5, "bits": 4, "block_size": 16},
    ),
    "NhwcMaxPool": (21, {"x": (1, 6, 6, 4)}, {}, {"kernel_shape": [2, 2]}),
    "SimplifiedLayerNormalization": (
        21,
        {"X": (2, 3, 8)},
        {"scale": np.ones(8, np.float32)},
        {"axis": -1},
    ),
    "Upsample": (
        9,
        {"X": (1, 2, 3, 3)},
        {"scales": np.array([1, 1, 2, 2], np.float32)},
        {"mode": "nearest"},
    ),
}
"""Opsets, computed operands, constants and attributes of nodes that no node test has and that
are not drawn.
"""
UNDRAWN = dict.fromkeys(
    ("ReorderInput", "ReorderOutput"), "it computes nothing alone: ONNX Runtime writes it in pairs"
) | {"GatherBlockQuantized": "the CPU selects rows of a table"}
"""Operators of which no single node runs, and why."""


def _given(operator: str) -> Case:
    opset, shapes, constants, options = _GIVEN[operator]
    feeds: dict[str, NDArray[Any]] = {}
    for name, shape in shapes.items():
        numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        bytes_only = FLOAT not in Schema.of(operator, _domain_of(operator), opset).inputs[0].types
        feeds[name] = (
            np.clip(np.rint(40 * numbers) + 128, 0, 255).astype(np.uint8) if bytes_only else numbers
        )
    node = helper.make_node(
        operator, [*feeds, *constants], ["result"], "op", domain=_domain_of(operator), **options
    )
    return Case(operator, node, feeds, constants, opset)


def _domain_of(operator: str) -> str:
    """Return ONNX's domain, or that in which ONNX Runtime has an operator that ONNX has not."""
    return "" if defs.has(operator) else str(runtime_schemas()[operator].domain)


def _branches() -> Case:
    """A condition about two bodies, which read the one operand."""
    bodies = {
        name: helper.make_graph(
            [helper.make_node(kind, ["x"], ["z"])],
            name,
            [],
            [helper.make_tensor_value_info("z", 1, [4, 5])],
        )
        for name, kind in (("then_branch", "Relu"), ("else_branch", "Sigmoid"))
    }
    node = helper.make_node("If", ["cond"], ["y"], "op", **bodies)
    numbers = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    return Case("If", node, {"x": numbers, "cond": np.array(True)}, {}, 21)


def _constant_operands(case: Case) -> Iterator[Case]:
    """Yield the case with as many computed operands as possible, then with fewer.

    The last variants compute only one operand.
    """
    arrays = {**case.feeds, **case.constants}
    names = [name for name in dict.fromkeys((*case.node.input, *case.feeds)) if name in arrays]
    feeds = [name for name in names if name in case.feeds]
    count = len(case.feeds)
    choices = [feeds, *(feeds[:kept] for kept in range(count - 1, 1, -1)), names[:1], names[-1:]]
    for computed in choices:
        yield replace(
            case,
            feeds={name: arrays[name] for name in computed},
            constants={name: arrays[name] for name in arrays if name not in computed},
        )


def _quantised(operator: str, case: Case, form: QLinear) -> Iterator[Case]:
    """The integer operator that computes what a float node does."""
    schema = runtime_schemas().get(operator)
    domain = MICROSOFT if schema is not None else ""
    for dtype in (np.uint8, np.int8):
        arrays: dict[int, NDArray[Any]] = {}
        operands = [
            (name, case.feeds.get(name, case.constants.get(name))) for name in case.node.input
        ]
        count = len(operands)
        flags = sum(1 for _, array in operands if array is not None and array.dtype == np.bool_)
        places = form.triples(flags + 3 * (count - flags) + 2)
        if flags + len(places) != count and form.bias is None:
            continue
        for index in range(flags):
            arrays[index] = operands[index][1]  # type: ignore[assignment]
        computed = set(range(flags))
        for (_, array), (tensor, scale, zero_point) in zip(operands[flags:], places, strict=False):
            if array is None:
                break
            arrays[tensor] = np.clip(np.rint(array / 0.05), 0, 100).astype(dtype)
            arrays[scale] = np.array(0.05, np.float32)
            arrays[zero_point] = np.array(0, dtype)
            computed.add(tensor)
        arrays[form.result[0]] = np.array(0.1, np.float32)
        arrays[form.result[1]] = np.array(3, dtype)
        names = {index: f"i{index}" for index in arrays}
        attributes = (
            {item.name for item in schema.attributes.values()} if schema is not None else set()
        )
        node = helper.make_node(
            operator,
            [names.get(index, "") for index in range(max(names) + 1)],
            ["y"],
            "op",
            domain=domain,
            **{
                item.name: helper.get_attribute_value(item)
                for item in case.node.attribute
                if item.name in attributes
            },
        )
        feeds = {names[index]: arrays[index] for index in sorted(computed)}
        constants = {names[index]: arrays[index] for index in arrays if index not in computed}
        for extra in _required(operator, domain, case.opset, node):
            yield Case(operator, extra, feeds, constants, case.opset)


def _required(operator: str, domain: str, opset: int, node: NodeProto) -> Iterator[NodeProto]:
    """The node with a few values of the attributes that it must have and has not."""
    schema = Schema.of(operator, domain, opset)
    missing = [
        item
        for item in schema.attributes.values()
        if item.required and item.name not in {attribute.name for attribute in node.attribute}
    ]
    for values in product((1, 2, 0), repeat=len(missing)):
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.attribute.extend(
            helper.make_attribute(item.name, float(value) if "FLOAT" in str(item.type) else value)
            for item, value in zip(missing, values, strict=True)
        )
        yield copy


SHAPES = ((1, 4, 8), (8,), (8, 8), (8, 8, 8), (1, 8, 4))


def _drawn(operator: str) -> Iterator[Case]:
    """Yield nodes of all shapes that ONNX Runtime accepts."""
    domain = _domain_of(operator)
    schema = Schema.of(operator, domain, 21)
    random = np.random.default_rng(0)
    required = [item for item in schema.inputs if not item.optional]
    count = max(len(required), 1)
    for number in range(count, min(count + 3, len(schema.inputs) + 1)):
        found = 0
        for shapes in product(SHAPES, repeat=number):
            names = [item.name for item in schema.inputs[:number]]
            arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
            plain = helper.make_node(operator, names, ["y"], "op", domain=domain)
            for node in _required(operator, domain, 21, plain):
                case = Case(operator, node, dict(zip(names, arrays, strict=True)), {}, 21)
                if case.outputs is not None:
                    found += 1
                    yield case
                    break
            if found == 4:
                break
