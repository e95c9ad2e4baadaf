"""Partition topologies: what merges, what must not, and where every tensor goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc.compiled import HostPart, Partition, Region
from byoc.estimate.constants import MAX_OPERATIONS
from byoc.frontend.onnx.importer import import_graph
from byoc.graph import Graph, Node
from byoc.importing import package_of
from byoc.operators.convolution import Convolution
from byoc.operators.layer import Shortage
from byoc.operators.operator import Operator
from byoc.partitioning.partition import merge, partition
from tests.byoc.oracle_check import V2, check_against_onnxruntime, placed
from tests.byoc.small_models import ModelBuilder, convolution_unit

Q = (0.05, 0)


class Network(ModelBuilder):
    """Integer tensors between units: ``acc`` adds on the accelerator, ``cpu`` is a Hardmax.

    The Hardmax computes in float.
    """

    def __init__(self, *inputs: str) -> None:
        super().__init__()
        for name in inputs:
            self.input(name, (1, 4), "int8")

    def acc(self, name: str, *sources: str) -> str:
        sources = sources if len(sources) == 2 else (sources[0], sources[0])
        operands = [self.dequantize(source, *Q) for source in sources]
        return self.quantize(self.node("Add", *operands, name=name), *Q, result=f"{name}_y")

    def cpu(self, name: str, source: str) -> str:
        return self.quantize(
            self.node("Hardmax", self.dequantize(source, *Q), name=name), *Q, result=f"{name}_y"
        )

    def finish(self, *outputs: str) -> onnx.ModelProto:
        for name in outputs:
            self.output(name, "int8")
        return self.model()


def _regions(parts: Partition) -> list[list[str]]:
    return [[node.name for node in region.nodes] for region in parts.regions]


def test_diamond_is_one_region() -> None:
    net = Network("x")
    a = net.acc("a", "x")
    parts = check_against_onnxruntime(net.finish(net.acc("d", net.acc("b", a), net.acc("c", a))))
    assert _regions(parts) == [["a", "b", "c", "d"]]
    assert (parts.regions[0].inputs, parts.regions[0].outputs) == (("x",), ("d_y",))


def test_diamond_around_the_cpu_is_two_regions() -> None:
    net = Network("x")
    a = net.acc("a", "x")
    parts = check_against_onnxruntime(net.finish(net.acc("d", net.cpu("b", a), net.acc("c", a))))
    assert _regions(parts) == [["a", "c"], ["d"]]
    assert parts.regions[0].outputs == ("a_y", "c_y")
    assert parts.regions[1].inputs == ("b_y", "c_y")


def test_shared_dequantize_serves_both_units() -> None:
    builder = Network("x")
    shared = builder.dequantize("x", *Q)
    outputs = [
        builder.quantize(builder.node(op, shared, name=op), *Q, result=f"{op}_y")
        for op in ("Relu", "Abs", "Hardmax")
    ]
    parts = check_against_onnxruntime(builder.finish(*outputs))
    assert _regions(parts) == [["Relu", "Abs"]]
    assert placed(parts)["Hardmax"] == "Hardmax is not supported on the accelerator"
    assert [place.op_type for place in parts.placement].count("DequantizeLinear") == 1


def test_several_outputs_are_ordered_by_production() -> None:
    net = Network("x")
    a = net.acc("a", "x")
    b = net.acc("b", a)
    c = net.acc("c", a)
    parts = check_against_onnxruntime(net.finish(c, b))
    assert parts.regions[0].outputs == ("b_y", "c_y")


def test_intermediate_that_is_also_an_output_of_the_model() -> None:
    net = Network("x")
    a = net.acc("a", "x")
    parts = check_against_onnxruntime(net.finish(net.acc("b", a), a))
    assert parts.regions[0].outputs == ("a_y", "b_y")


def test_unconnected_nodes_of_one_wave_are_one_region_component_by_component() -> None:
    net = Network("x", "z")
    a = net.acc("a", "x")
    b = net.acc("b", "z")
    parts = check_against_onnxruntime(net.finish(net.acc("c", a), net.acc("d", b)))
    assert _regions(parts) == [["a", "c", "b", "d"]]
    assert (parts.regions[0].inputs, parts.regions[0].outputs) == (("x", "z"), ("c_y", "d_y"))


def test_siblings_that_read_one_tensor_are_one_region_of_several_outputs() -> None:
    net = Network("x")
    parts = check_against_onnxruntime(net.finish(net.acc("a", "x"), net.acc("b", "x")))
    assert _regions(parts) == [["a", "b"]]
    assert (parts.regions[0].inputs, parts.regions[0].outputs) == (("x",), ("a_y", "b_y"))


def test_siblings_of_which_one_needs_the_other_through_the_cpu_are_two_regions() -> None:
    net = Network("x")
    a = net.acc("a", "x")
    parts = check_against_onnxruntime(net.finish(a, net.acc("b", "x", net.cpu("h", a))))
    assert _regions(parts) == [["a"], ["b"]]


def test_seven_nodes_that_greedy_merging_makes_cyclic() -> None:
    net = Network("x", "z")
    a = net.acc("a", "x")
    big_x = net.cpu("X", a)
    b = net.acc("b", "z")
    big_y = net.cpu("Y", b)
    c = net.acc("c", a, big_y)
    e = net.acc("e", big_x)
    d = net.acc("d", e, b)
    parts = check_against_onnxruntime(net.finish(c, d))
    assert _regions(parts) == [["a", "b"], ["c", "e", "d"]]
    assert [
        [node.name for node in part.nodes if "Linear" not in node.op_type]
        for part in parts.host_parts
    ] == [["X", "Y"]]


def test_placement_lists_every_node_with_its_onnx_nodes() -> None:
    net = Network("x")
    parts = partition(import_graph(net.finish(net.cpu("b", net.acc("a", "x")))), V2)
    rows = [(p.node, p.op_type, p.on, p.region, p.reason) for p in parts.placement]
    edge = "is at the border between float and integer tensors"
    assert rows == [
        ("a", "Add", "dla", 0, None),
        ("dequantizelinear4", "DequantizeLinear", "cpu", None, f"DequantizeLinear {edge}"),
        ("b", "Hardmax", "cpu", None, "Hardmax is not supported on the accelerator"),
        ("quantizelinear6", "QuantizeLinear", "cpu", None, f"QuantizeLinear {edge}"),
    ]
    assert parts.placement[0].onnx_nodes == (
        "dequantizelinear0",
        "dequantizelinear1",
        "a",
        "quantizelinear3",
    )


def test_what_does_not_fit_falls_back_with_the_message_of_the_back_end() -> None:
    missing = Shortage((("input", 8),), 5)

    def fit(operations: tuple[Operator, ...]) -> tuple[Operator, ...] | Shortage:
        return missing if operations[0].name == "b" else operations

    net = Network("x")
    graph = import_graph(net.finish(net.acc("c", net.acc("b", net.acc("a", "x")))))
    parts = partition(graph, V2, fit)
    assert placed(parts) == {"a": "dla", "b": str(missing), "c": "dla"}
    assert [type(part) for part in parts.parts] == [Region, HostPart, Region]


def _with_reshape(*, between_cpu: bool) -> onnx.ModelProto:
    net = Network("x")
    source = net.cpu("s", "x") if between_cpu else "x"
    shape = net.constant([2, 2], "int64")
    return net.finish(
        net.quantize(
            net.node("Reshape", net.dequantize(source, *Q), shape, name="r"), *Q, result="y"
        )
    )


def test_a_network_of_one_free_operator_belongs_to_the_accelerator() -> None:
    assert placed(check_against_onnxruntime(_with_reshape(between_cpu=False))) == {"r": "dla"}


def test_a_free_operator_beside_the_cpu_stays_there() -> None:
    parts = check_against_onnxruntime(_with_reshape(between_cpu=True))
    assert placed(parts)["r"] == "it only moves data next to operators that run on the CPU"
    assert len(parts.parts) == 1


def test_a_free_operator_beside_the_cpu_stays_there_when_another_component_computes() -> None:
    net = Network("x", "z")
    shape = net.constant([2, 2], "int64")
    moved = net.quantize(
        net.node("Reshape", net.dequantize(net.cpu("s", "x"), *Q), shape, name="r"), *Q, result="y"
    )
    parts = check_against_onnxruntime(net.finish(moved, net.acc("a", "z")))
    assert _regions(parts) == [["a"]]
    assert placed(parts)["r"] == "it only moves data next to operators that run on the CPU"


def test_a_group_a_convolution() -> None:
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (2, 4, 3, 3), "int8"), *Q)
    weights = builder.weights(np.ones((6, 2, 1, 1), np.int8), np.linspace(0.1, 0.2, 6))
    builder.quantize(builder.node("Conv", x, weights, name="op", group=2), *Q, result="y")
    builder.output("y", "int8")
    operations = partition(import_graph(builder.model()), V2).regions[0].operations
    assert [operation.inputs[0].offset for operation in operations] == [0, 18, 36, 54]
    assert [operation.output.offset for operation in operations] == [0, 27, 54, 81]
    for operation in operations:
        assert isinstance(operation, Convolution)
        assert operation.requantise is not None
        assert operation.weights.shape == (3, 2, 1, 1)
        assert operation.requantise.scales.rounded.shape == (3,)


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[Node], frozenset[str]]:
    """Random graphs of up to 14 nodes in topological order, some of them the accelerator's."""
    count = draw(st.integers(1, 14))
    nodes = []
    chosen = set()
    for index in range(count):
        sources = draw(st.lists(st.integers(-1, index - 1), max_size=3, unique=True))
        inputs = tuple("x" if source < 0 else f"y{source}" for source in sources)
        nodes.append(Node(f"n{index}", "Any", inputs, (f"y{index}",)))
        if draw(st.booleans()):
            chosen.add(f"n{index}")
    return nodes, frozenset(chosen)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(dags())
def test_random_graphs_lose_nothing_run_in_order_and_stay_convex(
    case: tuple[list[Node], frozenset[str]],
) -> None:
    nodes, chosen = case
    groups = merge(nodes, chosen)
    assert sorted(node.name for group in groups for node in group.nodes) == sorted(
        node.name for node in nodes
    )
    for group in groups:
        assert all((node.name in chosen) == group.accelerated for node in group.nodes)
    done = {"x"}
    for group in groups:
        for node in group.nodes:
            assert done.issuperset(node.inputs), "an operand is not made before it is read"
            done.update(node.outputs)
    ancestors = _ancestors(nodes)
    for group in groups:
        _assert_convex([node.name for node in group.nodes], ancestors)
    assert sum(group.accelerated for group in groups) == _fewest_regions(nodes, chosen)


def _fewest_regions(nodes: Sequence[Node], chosen: frozenset[str]) -> int:
    """Return the lower bound on the number of regions of any partition.

    It is the largest number of times that a path enters nodes of the accelerator.
    """
    maker = {node.outputs[0]: node.name for node in nodes}
    entries: dict[str, int] = {}
    for node in nodes:
        own = node.name in chosen
        before = [maker[name] for name in node.inputs if name in maker]
        entries[node.name] = max(
            (entries[name] + (own and name not in chosen) for name in before), default=int(own)
        )
    return max(entries.values())


def _ancestors(nodes: Sequence[Node]) -> Mapping[str, set[str]]:
    maker = {node.outputs[0]: node.name for node in nodes}
    found: dict[str, set[str]] = {}
    for node in nodes:
        parents = {maker[name] for name in node.inputs if name in maker}
        found[node.name] = parents.union(*(found[parent] for parent in parents))
    return found


def _assert_convex(group: Sequence[str], ancestors: Mapping[str, set[str]]) -> None:
    """No path leaves the group and comes back."""
    inside = set(group)
    for name, above in ancestors.items():
        if name not in inside and above & inside:
            assert not any(name in ancestors[member] for member in group), (
                f"a path through {name} leaves and returns"
            )


@pytest.mark.parametrize("seed", range(6))
def test_random_networks_equal_onnxruntime(seed: int) -> None:
    generator = np.random.default_rng(seed)
    net = Network("x", "z")
    tensors = ["x", "z"]
    for index in range(9):
        first, second = (tensors[i] for i in generator.integers(0, len(tensors), 2))
        accelerated = generator.random() < 0.6
        tensors.append(
            net.acc(f"n{index}", first, second) if accelerated else net.cpu(f"n{index}", first)
        )
    parts = check_against_onnxruntime(net.finish(*tensors[-2:]), seed)
    assert isinstance(parts.graph, Graph)


def test_a_node_of_too_many_operations_runs_on_the_cpu_and_is_not_tiled() -> None:
    images = MAX_OPERATIONS + 1
    weights = np.ones((1, 1, 1, 1), np.int8)
    package = package_of(convolution_unit(weights, (images, 1, 1, 1)), "test")
    tiled: list[tuple[Operator, ...]] = []

    def fit(operations: tuple[Operator, ...]) -> tuple[Operator, ...]:
        tiled.append(operations)
        return operations

    parts = partition(package.graph, V2, fit, package.annotations)
    (reason,) = (place.reason for place in parts.placement if place.op_type == "Conv")
    assert reason is not None
    assert reason.startswith("it takes 10,001 operations and a region has at most 10,000")
    assert parts.regions == ()
    assert max(map(len, tiled), default=0) < images


def test_a_long_chain_becomes_several_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc.partitioning.partition.MAX_OPERATIONS", 3)
    net = Network("x", "z")
    tensors = ["x", "z"]
    for index in range(7):
        tensors.append(net.acc(f"n{index}", *tensors[-2:]))
    parts = check_against_onnxruntime(net.finish(tensors[-1]))
    assert [len(region.operations) for region in parts.regions] == [3, 3, 1]
    assert [node for region in _regions(parts) for node in region] == [
        f"n{index}" for index in range(7)
    ]
