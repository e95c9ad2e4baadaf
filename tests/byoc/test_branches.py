"""Conditions of results, on random graphs with selections by flags."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc.graph import Graph, Node, Value
from byoc.partitioning import branches
from byoc.partitioning.branches import find_guards
from byoc.partitioning.partition import merge


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of up to 24 nodes; a third of them select one of two results by a flag."""
    nodes = list[Node]()
    values = {"x": Value("x", (4,), "int8"), "f": Value("f", (), "bool")}
    for index in range(draw(st.integers(1, 24))):
        made = f"y{index}"
        flags = [name for name, value in values.items() if value.dtype == "bool"]
        numbers = [name for name, value in values.items() if value.dtype == "int8"]
        recent = st.sampled_from(numbers[-5:])
        way = draw(st.sampled_from(["Where", "Any", "Flag"]))
        if way == "Where":
            inputs = draw(st.sampled_from(flags)), draw(recent), draw(recent)
        else:
            inputs = tuple(draw(st.lists(recent, min_size=1, max_size=2)))
        values[made] = Value(made, (), "bool") if way == "Flag" else Value(made, (4,), "int8")
        nodes.append(Node(f"n{index}", way, inputs, (made,)))
    outputs = draw(st.lists(st.sampled_from([*values][2:]), min_size=1, max_size=2, unique=True))
    return Graph("drawn", ("x", "f"), tuple(outputs), values, tuple(nodes))


def _find_needed(graph: Graph, flags: Mapping[str, bool]) -> set[str]:
    """Return the nodes that outputs depend on if conditions have the given values."""
    maker = {node.outputs[0]: node for node in graph.nodes}
    waiting, needed = [*graph.outputs], set[str]()
    while waiting:
        node = maker.get(waiting.pop())
        if node is None or node.name in needed:
            continue
        needed.add(node.name)
        read = list(node.inputs)
        if node.op_type == "Where":
            del read[2 if flags[read[0]] else 1]
        waiting += read
    return needed


@settings(max_examples=400, deadline=None, derandomize=True)
@given(graphs(), st.integers(0, 1 << 25))
def test_nodes_without_their_conditions_are_not_needed(graph: Graph, drawn: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branches, "MACS_PER_BYTE", 0)
        guards = find_guards(graph)
    flags = {name: bool(drawn >> place & 1) for place, name in enumerate(graph.values)}
    needed = _find_needed(graph, flags)
    for name, own in guards.items():
        if any(flags[condition] != wanted for condition, wanted in own):
            assert name not in needed
    groups = merge(graph.nodes, [node.name for node in graph.nodes], guards)
    assert sum(len(group.nodes) for group in groups) == len(graph.nodes)
    done = {"x", "f"}
    for group in groups:
        assert {guards.get(node.name, frozenset()) for node in group.nodes} == {group.guards}
        assert done.issuperset(condition for condition, _ in group.guards)
        for node in group.nodes:
            assert done.issuperset(node.inputs)
            done.update(node.outputs)


def test_result_of_one_branch_has_the_condition_of_the_branch() -> None:
    values = {name: Value(name, (4,), "int8") for name in ("x", "a", "b", "y")}
    values["f"] = Value("f", (), "bool")
    nodes = (
        Node("left", "Any", ("x",), ("a",), macs=4096),
        Node("right", "Any", ("x",), ("b",), macs=16),
        Node("choice", "Where", ("f", "a", "b"), ("y",)),
    )
    graph = Graph("drawn", ("x", "f"), ("y",), values, nodes)
    assert find_guards(graph) == {"left": {("f", True)}}  # the other computes too little
