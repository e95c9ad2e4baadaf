"""Networks with run-time indices, conditions and masks, against ONNX Runtime on the file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import dla
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.host.sessions import estimate_cycles
from byoc.importing import import_model
from byoc.package.package import Package
from byoc.quantisation.calibrate import default_feeds
from experiments.report.tables import total_lines
from isa.arch import Arch
from tests.e2e.harness import Comparison, compare
from tests.e2e.index_files import Outcome, check_network, run_file
from tests.e2e.index_networks import FLOAT, INT64, NETWORKS, IndexNetwork

MACHINE = Arch(isa="v4")
Tensors = dict[str, NDArray[Any]]


def feeds_of(model: onnx.ModelProto, count: int = 4) -> list[Tensors]:
    return [dict(feed) for feed in default_feeds(prepare(model), 7, count)]


def run_on_device(model: onnx.ModelProto, feed: Tensors) -> Comparison:
    found = compare(import_model(model, calibration=iter(feeds_of(model))), feed, MACHINE)
    assert found.elements
    assert found.mismatches == 0
    return found


@cache
def compare_network(name: str) -> Comparison:
    """Compare a network of the list with the oracle, once for all tests."""
    model = NETWORKS[name]()
    return run_on_device(model, feeds_of(model, 1)[0])


def on_cpu(found: Comparison) -> set[str]:
    """Operators on the CPU except for the quantisation of inputs and outputs."""
    edges = {"QuantizeLinear", "DequantizeLinear"}
    return {place.op_type for place in found.partition.placement if place.on == "cpu"} - edges


@pytest.mark.parametrize("name", NETWORKS)
def test_device_equals_integer_model_and_passes_keep_the_file(name: str) -> None:
    model = NETWORKS[name]()
    for feed in feeds_of(model, 2):
        for one, other in zip(run_file(model, feed), run_file(prepare(model), feed), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    compare_network(name)


@pytest.mark.parametrize("name", ["masked-attention", "guarded-division"])
def test_masks_and_divisions_take_one_region(name: str) -> None:
    found = compare_network(name)
    assert len(found.partition.regions) == 1
    assert on_cpu(found) <= {"Cast", "Reshape", "ReduceSum"}


def test_mask_of_zeros_and_ones_equals_file() -> None:
    model = NETWORKS["masked-attention"]()
    feed = feeds_of(model, 1)[0]
    feed["mask"] = (np.arange(24) < 15).astype(np.int64)[np.newaxis]
    np.testing.assert_allclose(
        run_file(model, feed)[0], run_file(prepare(model), feed)[0], rtol=1e-4, atol=1e-5
    )
    run_on_device(model, feed)


@pytest.mark.parametrize("way", ["equal", "greater", "not"])
def test_quotients_of_silence_do_not_reject_the_model(way: str) -> None:
    w = IndexNetwork(3)
    x = w.input("x", (4, 16))
    total = w.add("ReduceSum", w.add("Abs", x), w.ints(1), keepdims=1)
    quotient = w.add("Div", x, total)
    if way == "greater":
        condition, ways = w.add("Greater", total, w.constant(0.0)), [quotient, w.constant(0.5)]
    else:
        condition, ways = w.add("Equal", total, w.constant(0.0)), [w.constant(0.5), quotient]
    if way == "not":
        condition, ways = w.add("Not", condition), ways[::-1]
    model = w.model(w.linear(w.add("Where", condition, *ways), 16, 4))
    silent: Tensors = {"x": np.zeros((4, 16), np.float32)}
    loud: Tensors = {"x": w.random.standard_normal((4, 16)).astype(np.float32)}
    loud["x"][2] = 0
    package = import_model(model, calibration=iter([silent, loud]))
    for feed in (silent, loud):
        found = compare(package, feed, MACHINE)
        assert (found.mismatches, len(found.partition.regions)) == (0, 1)
        (one,), (other,) = run_file(model, feed), run_file(package.model, feed)
        assert np.abs(one - other).max() < 0.05 * np.abs(one).max()


@cache
def import_conditional() -> tuple[onnx.ModelProto, Package, NDArray[np.float32]]:
    """Return the network with a condition, its package and an image."""
    model = NETWORKS["conditional"]()
    shown = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    feeds: list[Tensors] = [{"image": shown * scale} for scale in (0.2, 3.0)]
    return model, import_model(model, calibration=iter(feeds)), shown


@pytest.mark.parametrize(("brightness", "taken"), [(0.2, "else_branch"), (3.0, "then_branch")])
@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_only_the_branch_that_the_file_takes_runs(brightness: float, taken: str, isa: str) -> None:
    model, package, shown = import_conditional()
    feed: Tensors = {"image": shown * brightness}
    found = compare(package, feed, Arch(isa=isa))
    assert found.mismatches == 0
    (one,), (other,) = run_file(model, feed), run_file(package.model, feed)
    assert np.abs(one - other).max() < 0.1 * np.abs(one).max()
    np.testing.assert_array_equal(next(iter(found.run.outputs.values())), other)
    regions = found.network.partition.regions
    ran = [region for region in regions if region.index in found.run.traces]
    convolutions = sum(node.op_type == "Conv" for region in ran for node in region.nodes)
    assert convolutions == {"then_branch": 2, "else_branch": 4}[taken]
    assert len(regions) == len(ran) + 1 == 4


def test_report_names_the_branch_and_counts_only_its_cycles(tmp_path: Path) -> None:
    onnx.save(NETWORKS["conditional"](), tmp_path / "conditional.onnx")
    shown = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", image=np.concatenate([shown * 0.2, shown * 3]))
    reports = []
    for number in range(2):
        np.save(tmp_path / "image.npy", shown * (0.2, 3.0)[number])
        reports.append(
            dla.run(
                str(tmp_path / "conditional.onnx"),
                calibration=str(tmp_path / "samples.npz"),
                inputs=str(tmp_path / "image.npy"),
            ).report
        )
    dark, light = reports
    ran = [[(branch.conditions, branch.ran) for branch in one.branches] for one in reports]
    conditions = {"Greater6": True}, {"Greater6": False}
    assert ran[0] == [(conditions[0], False), (conditions[1], True)]
    assert ran[1] == [(conditions[0], True), (conditions[1], False)]
    macs = 16 * 16 * 16 * 16 * 9
    assert dark.totals.macs - light.totals.macs == 2 * macs
    assert dark.totals.cycles - light.totals.cycles > 1.9 * macs / 64
    assert [one.check.regions for one in reports] == [3, 3]
    assert [one.check.mismatches for one in reports] == [0, 0]
    text = "\n".join(str(line) for _, line in total_lines(light))
    assert "region 2 did not run: it runs if 'Greater6' is false" in text


def nested_conditions(wide: int) -> onnx.ModelProto:
    """Return a network with an If in a branch of an If; the outer condition is an input."""
    w = IndexNetwork(5)
    x = w.linear(w.input("x", (8, 16)), 16, 16)
    outer = w.input("outer", (1,), onnx.TensorProto.BOOL)
    inner = w.add("Greater", w.add("ReduceMean", x, keepdims=0), w.constant(0.0))

    def branch(number: int, other: onnx.NodeProto | None = None) -> onnx.GraphProto:
        body = IndexNetwork(number)
        body.start(1000 * number)
        y = body.linear(body.add("Relu", body.linear(x, 16, wide)), wide, 16)
        if other is not None:
            body.nodes.append(other)
            y = body.add("Add", y, other.output[0])
        result = onnx.helper.make_tensor_value_info(y, FLOAT, [8, 16])
        return onnx.helper.make_graph(body.nodes, f"b{number}", [], [result], body.constants)

    def choose(condition: str, name: str, *bodies: onnx.GraphProto) -> onnx.NodeProto:
        named = dict(zip(("then_branch", "else_branch"), bodies, strict=True))
        return onnx.helper.make_node("If", [condition], [name], name, **named)

    w.nodes.append(
        choose(outer, "y", branch(1, choose(inner, "z", branch(2), branch(3))), branch(4))
    )
    return w.model(w.linear("y", 16, 4))


@cache
def import_nested() -> tuple[onnx.ModelProto, Package, NDArray[np.float32]]:
    """Return the network with nested conditions, its package and its rows."""
    model = nested_conditions(64)
    drawn = np.random.default_rng(3).standard_normal((8, 16)).astype(np.float32)
    feeds: list[Tensors] = [
        {"x": drawn * scale, "outer": np.array([flag])}
        for scale in (-2.0, 2.0)
        for flag in (False, True)
    ]
    return model, import_model(model, calibration=iter(feeds)), drawn


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("shift", [-2.0, 2.0])
def test_condition_in_a_branch_runs_one_branch_of_each(outer: bool, shift: float) -> None:
    model, package, drawn = import_nested()
    feed: Tensors = {"x": drawn * shift, "outer": np.array([outer])}
    found = compare(package, feed, MACHINE)
    assert found.mismatches == 0
    (one,), (other,) = run_file(model, feed), run_file(package.model, feed)
    assert np.abs(one - other).max() < 0.1 * np.abs(one).max()
    np.testing.assert_array_equal(next(iter(found.run.outputs.values())), other)
    guarded = [region for region in found.network.partition.regions if region.guards]
    ran = [region for region in guarded if region.index in found.run.traces]
    assert len(guarded) == 5  # the outer branch computes before and after the inner one
    assert len(ran) == (3 if outer else 1)


@pytest.mark.parametrize("mode", [0, 1])
def test_condition_of_the_cpu_chooses_between_two_results_and_a_copy(mode: int) -> None:
    w = IndexNetwork(11)
    x = w.linear(w.input("x", (8, 16)), 16, 16)
    chosen = w.add("Equal", w.input("mode", (1,), INT64), w.ints(1))
    bodies = []
    for number in range(2):
        body = IndexNetwork(number)
        body.start(1000 * (number + 1))
        y = body.linear(body.add("Relu", body.linear(x, 16, 64)), 64, 16)
        z = body.add("Sigmoid", y) if number else body.add("Identity", x)
        results = [onnx.helper.make_tensor_value_info(name, FLOAT, [8, 16]) for name in (y, z)]
        bodies.append(onnx.helper.make_graph(body.nodes, f"b{number}", [], results, body.constants))
    y, z = w.add_many("If", 2, chosen, then_branch=bodies[0], else_branch=bodies[1])
    model = w.model(w.linear(w.add("Concat", y, z, axis=1), 32, 4), z)
    drawn = np.random.default_rng(3).standard_normal((8, 16)).astype(np.float32)
    feeds: list[Tensors] = [{"x": drawn, "mode": np.array([number])} for number in range(2)]
    package = import_model(model, calibration=iter(feeds))
    found = compare(package, feeds[mode], MACHINE)
    assert found.mismatches == 0
    for one, other in zip(
        run_file(package.model, feeds[mode]), found.run.outputs.values(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    regions = found.network.partition.regions
    guarded = [region for region in regions if region.guards]
    assert [region.index in found.run.traces for region in guarded] == [mode == 1, mode == 0]


def test_only_rows_that_are_selected_cross_the_bus() -> None:
    cycles = []
    for rows in (1000, 30_000):
        w = IndexNetwork(1)
        x = w.add("Gather", w.weights(rows, 64), w.input("ids", (1, 32), INT64), axis=0)
        model = w.model(w.linear(x, 64, 8))
        found = run_on_device(model, feeds_of(model, 1)[0])
        assert on_cpu(found) == {"Gather"}
        (part,) = (one for one in found.partition.host_parts if one.nodes[0].op_type == "Gather")
        cycles.append((found.cycles, estimate_cycles(found.partition.graph, part)))
    selected = 32 * 64  # read, and written
    assert cycles[0] == cycles[1] == (cycles[0][0], 1000 + (32 * 8 + 2 * selected) // 4)


def test_small_branches_stay_in_one_region() -> None:
    model = nested_conditions(2)
    found = run_on_device(model, feeds_of(model, 1)[0])
    assert [region.guards for region in found.partition.regions] == [()]


def test_if_with_a_branch_of_another_shape_stays_on_the_cpu() -> None:
    w = IndexNetwork()
    x = w.conv(w.input("image", (1, 3, 8, 8)), 4, 3)
    condition = w.add("Greater", w.add("ReduceMean", x, keepdims=0), w.constant(0.4))
    bodies = []
    for size in (2, 4):
        body = IndexNetwork()
        body.start(100 * size)
        y = body.add("MaxPool", x, kernel_shape=[size, size], strides=[size, size])
        result = onnx.helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, None)
        bodies.append(onnx.helper.make_graph(body.nodes, f"b{size}", [], [result], body.constants))
    y = w.add("If", condition, then_branch=bodies[0], else_branch=bodies[1])
    model = w.model(w.add("ReduceMax", y, keepdims=1))
    found = run_on_device(model, feeds_of(model, 1)[0])
    reasons = [p.reason for p in found.partition.placement if p.op_type == "If"]
    assert len(reasons) == 1
    assert "computed at run time" in str(reasons[0])


def test_if_that_guards_a_division_is_not_computed_both_ways() -> None:
    """The quotient is infinite where the file takes the other branch, also in calibration."""
    w = IndexNetwork()
    a, b = w.input("a", (1, 8)), w.input("b", (1, 8))
    condition = w.add("Greater", w.add("ReduceMax", b, keepdims=0), w.constant(0.0))
    bodies = []
    for number, (op_type, operands) in enumerate((("Div", (a, b)), ("Relu", (a,)))):
        body = IndexNetwork()
        body.start(100 * (number + 1))
        y = body.add(op_type, *operands)
        result = onnx.helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, [1, 8])
        bodies.append(onnx.helper.make_graph(body.nodes, f"b{number}", [], [result], []))
    y = w.add("If", condition, then_branch=bodies[0], else_branch=bodies[1])
    model = w.model(w.add("MatMul", y, w.constant(np.eye(8, 4))))
    random = np.random.default_rng(2)
    feeds: list[Tensors] = [
        {"a": random.normal(0, 1, (1, 8)).astype(np.float32), "b": np.full((1, 8), b, np.float32)}
        for b in (0.5, 0.0, 2.0)
    ]
    package = import_model(model, calibration=iter(feeds))
    for feed in feeds:
        assert compare(package, feed, MACHINE).mismatches == 0
        (one,), (other,) = run_file(model, feed), run_file(package.model, feed)
        assert np.abs(one - other).max() < 0.05 * np.abs(one).max()


@pytest.mark.parametrize("name", ["graph-network", "mixture-of-experts"])
def test_few_rows_and_gates_take_one_region(name: str) -> None:
    found = compare_network(name)
    assert len(found.partition.regions) == 1
    assert on_cpu(found) <= {"Gather"}


def test_edges_of_a_graph_take_one_look_up() -> None:
    found = compare_network("graph-network")
    on_host = [node.op_type for part in found.partition.host_parts for node in part.nodes]
    assert on_host.count("Gather") == 1


def test_cpu_of_a_detector_selects_and_sorts_integers() -> None:
    found = compare_network("yolo-head")
    assert on_cpu(found) == {"TopK", "Gather", "Mod", "Div", "Cast"}
    values = found.partition.graph.values
    nodes = [node for part in found.partition.host_parts for node in part.nodes]
    kinds = [values[node.inputs[0]].dtype for node in nodes if node.op_type == "TopK"]
    assert kinds == ["int8", "int8"]
    assert len(nodes) == 10  # two of them quantise the image and dequantise the boxes


def detector_with_suppression() -> onnx.ModelProto:
    w = IndexNetwork(8)
    x = w.conv(w.input("image", (1, 3, 16, 16)), 8, 3, stride=2)
    boxes = w.add(
        "Transpose", w.add("Reshape", w.conv(x, 4, 8, 1), w.ints(1, 4, 64)), perm=[0, 2, 1]
    )
    scores = w.add("Sigmoid", w.add("Reshape", w.conv(x, 3, 8, 1), w.ints(1, 3, 64)))
    limits = [w.ints(5), w.constant([0.5]), w.constant([0.1])]
    chosen = w.add("NonMaxSuppression", boxes, scores, *limits)
    return w.model(boxes, scores, chosen, kinds=[FLOAT, FLOAT, INT64])


def one_operator(op: str) -> onnx.ModelProto:
    w = IndexNetwork(9)
    columns = 300 if op == "ArgMax" else 12
    x = w.linear(w.input("x", (400, 16)), 16, columns)
    if op == "ArgMax":
        return w.model(w.add(op, x, axis=1, keepdims=0), kinds=[INT64])
    if op == "OneHot":
        ids = w.input("ids", (400,), INT64)
        y = w.add("Mul", x, w.add(op, ids, w.constant(12, np.int64), w.constant([-0.5, 1.5])))
    elif op == "CumSum":
        y = w.add(op, x, w.constant(0, np.int64), reverse=1)
    else:
        ids = w.input("ids", (400, 1), INT64)
        y = w.add(op, x, ids, w.linear(x, 12, 1), axis=1, reduction="max")
    return w.model(w.linear(y, 12, 4))


@pytest.mark.parametrize(
    "op", ["NonMaxSuppression", "ArgMax", "OneHot", "CumSum", "ScatterElements"]
)
def test_cpu_runs_other_searches_and_scatters_and_says_why(op: str) -> None:
    model = detector_with_suppression() if op == "NonMaxSuppression" else one_operator(op)
    feed = feeds_of(model, 1)[0]
    for one, other in zip(run_file(model, feed), run_file(prepare(model), feed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    found = run_on_device(model, feed)
    assert op in on_cpu(found)
    assert on_cpu(found) <= {op, "Mul"}
    assert all(place.reason for place in found.partition.placement if place.on == "cpu")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("corners", [0, 1])
def test_cpu_samples_integers(mode: str, padding: str, corners: int) -> None:
    w = IndexNetwork(corners)
    image = w.conv(w.input("image", (2, 3, 9, 7)), 8, 3)
    grid = w.add("Tanh", w.linear(w.input("x", (2, 30)), 30, 40))
    grid = w.add("Mul", w.add("Reshape", grid, w.ints(2, 4, 5, 2)), w.constant(1.17))
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    y = w.add("GridSample", image, grid, **options)
    model = w.model(w.conv(y, 4, 8))
    feed = feeds_of(model, 1)[0]
    found = run_on_device(model, feed)
    assert on_cpu(found) == {"GridSample"}
    assert len(found.partition.regions) == 2
    values = found.partition.graph.values
    (node,) = (one for one in found.partition.graph.nodes if one.op_type == "GridSample")
    assert [values[name].dtype for name in (*node.inputs, *node.outputs)] == ["int8"] * 3
    (place,) = (one for one in found.partition.placement if one.op_type == "GridSample")
    assert place.reason == "GridSample is not supported on the accelerator"


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("ties", [False, True])
def test_topk_of_integers_keeps_the_order_of_equal_numbers(ties: bool, largest: int) -> None:
    w = IndexNetwork(6)
    x = w.linear(w.input("x", (4, 80)), 80, 80)
    x = w.add("Relu", x) if ties else x
    values, places = w.add_many("TopK", 2, x, w.ints(70), axis=-1, largest=largest)
    model = w.model(w.linear(values, 70, 8), places, kinds=[FLOAT, INT64])
    found = run_on_device(model, feeds_of(model, 1)[0])
    assert on_cpu(found) == {"TopK"}


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_search_in_turn_equals_topk_with_ties(ranks: int, ties: bool) -> None:
    w = IndexNetwork(ranks)
    x = w.input("x", (6, 7))
    values, places = w.add_many("TopK", 2, x, w.ints(ranks), axis=-1)
    zeros = w.constant(np.zeros((6, 7)))
    model = w.model(w.add("ScatterElements", zeros, places, values, axis=1), values)
    drawn = w.random.standard_normal((6, 7))
    feed: Tensors = {"x": (np.round(drawn) if ties else drawn).astype(np.float32)}
    feed["x"][3] = 1.0
    prepared = prepare(model)
    assert not {node.op_type for node in prepared.graph.node} & {"TopK", "ScatterElements"}
    for one, other in zip(run_file(model, feed), run_file(prepared, feed), strict=True):
        np.testing.assert_array_equal(one, other)
    run_on_device(model, feed)


@pytest.mark.parametrize("rows", [5, 100])
@pytest.mark.parametrize("op", ["Expand", "Tile", "constant", "ScatterND"])
def test_scatter_that_adds_is_a_product(op: str, rows: int) -> None:
    w = IndexNetwork(rows)
    x = w.linear(w.input("x", (9, 4)), 4, 4)
    ids = w.input("ids", (9,), onnx.TensorProto.INT64)
    column = w.add("Unsqueeze", ids, w.ints(1))
    data = w.weights(rows, 4)
    if op == "ScatterND":
        y = w.add("ScatterND", data, column, x, reduction="add")
    else:
        sizes = w.ints(1, 4) if op == "Tile" else w.ints(9, 4)
        spread = w.add(op if op != "constant" else "Expand", column, sizes)
        if op == "constant":
            spread = w.constant(np.tile(np.arange(9)[:, None] % rows, (1, 4)), np.int64)
        y = w.add("ScatterElements", data, spread, x, axis=0, reduction="add")
    model = w.model(w.linear(y, 4, 3))
    feed = feeds_of(model, 1)[0]
    if op != "constant":
        feed["ids"][:3] = -1  # indices may repeat, and count from the end
    for one, other in zip(run_file(model, feed), run_file(prepare(model), feed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert on_cpu(run_on_device(model, feed)) <= {"Gather", "Reshape"}


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
def test_cpu_selects_integers_of_a_large_table(op: str) -> None:
    w = IndexNetwork(4)
    x = w.linear(w.input("x", (100, 8)), 8, 8)
    shape = {"Gather": (30,), "GatherElements": (30, 8), "GatherND": (30, 1)}[op]
    ids = w.input("ids", shape, onnx.TensorProto.INT64)
    model = w.model(w.linear(w.add(op, x, ids), 8, 4))
    feed = feeds_of(model, 1)[0]
    found = run_on_device(model, feed)
    assert len(found.partition.regions) == 2
    assert on_cpu(found) == {op}
    (selection,) = (node for part in found.partition.host_parts for node in part.nodes
                    if node.op_type == op)  # fmt: skip
    values = found.partition.graph.values
    assert {values[name].dtype for name in (selection.inputs[0], *selection.outputs)} == {"int8"}
    assert all(place.reason for place in found.partition.placement if place.on == "cpu")


# 200006: rows that two gathers select one after the other are copied once
@pytest.mark.parametrize("seed", [*range(12), 200006])
def test_random_indices(seed: int) -> None:
    assert check_network(seed) == Outcome(0, 0, 0)
