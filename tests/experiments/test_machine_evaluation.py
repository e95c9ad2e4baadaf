"""Evaluation of networks on described machines: matching, limits, placement and cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from byoc.package.package import Package
from byoc.partitioning.forcing import keep_on_cpu
from experiments.machines.description import (
    CyclePart,
    LayerWork,
    MachineDescription,
    MachineOperation,
    MachineUnit,
    OperationLimit,
    UnitTask,
)
from experiments.machines.discovery import find_machine
from experiments.machines.evaluate import Evaluation, Evaluator, partition_evaluated
from experiments.machines.events import SharedPort, TaskTimes, simulate_tasks
from experiments.machines.report import find_peak
from experiments.running.given import Given
from experiments.running.network import load
from isa.errors import InputError

EXAMPLE = Path(__file__).parents[2] / "examples" / "systolic_array.py"


@cache
def _package(name: str) -> Package:
    return load(Given(name, cache=False)).package


@pytest.fixture(scope="module")
def machine() -> MachineDescription:
    return find_machine(str(EXAMPLE))


def _evaluate(machine: MachineDescription, name: str = "digits-cnn", **keys: int) -> Evaluation:
    package = _package(name)
    evaluator = Evaluator(package.graph, package.annotations, machine)
    return evaluator.evaluate(machine.parameters(**keys))


def test_cycles_follow_the_formula_of_scale_sim(machine: MachineDescription) -> None:
    """The first convolution: 9 products of 16 outputs at 64 positions fit the array once."""
    found = _evaluate(machine)
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name["conv"].cycles == 2 * 16 + 16 + 64 - 2
    assert by_name["pointwise"].cycles == 2 * by_name["conv"].cycles  # 32 outputs
    assert by_name["pool"].cycles == 32 * 8 * 8 // 16
    assert found.cycles == sum(layer.cycles for layer in found.layers)
    assert found.milliseconds == 1e3 * found.cycles / 200e6


def test_of_units_that_overlap_the_longest_counts(machine: MachineDescription) -> None:
    slow = {layer.name: layer for layer in _evaluate(machine, memory_bytes=1).layers}
    assert slow["classifier"].parts == {"weights": 5120}
    assert slow["conv"].parts == {"weights": 144}
    assert slow["pool"].parts == {"compute": 128}
    alone = replace(machine, overlaps=())
    added = {layer.name: layer for layer in _evaluate(alone, memory_bytes=1).layers}
    assert added["conv"].parts == {"compute": 110, "weights": 144}


def test_a_broken_limit_sends_the_node_to_the_cpu(machine: MachineDescription) -> None:
    found = _evaluate(machine)
    reason, rule = found.refused["depthwise"]
    assert (rule, reason) == ("one_group", "16 groups; the array sums over all channels")
    assert found.refused["logits_DequantizeLinear"][1] == "boundary"
    whole = partition_evaluated(_package("digits-cnn").graph, found)
    places = {place.node: (place.on, place.region) for place in whole.placement}
    assert places["conv"] == ("dla", 0)
    assert places["depthwise"] == ("cpu", None)
    assert {places[name] for name in ("pointwise", "pool", "classifier")} == {("dla", 1)}
    small = _evaluate(machine, buffer_bytes=2048)
    assert small.refused["pointwise"] == (
        "activations of 3,072 bytes exceed the buffer of 2,048", "buffer"
    )  # fmt: skip


def test_the_longest_chain_wins_and_stays_in_one_region(machine: MachineDescription) -> None:
    fused = replace(
        machine.operations[0],
        name="fused",
        patterns=(("Conv", "Add"), ("Conv", "MaxPool", "Flatten")),
        cycles=lambda work, parameters: [CyclePart("compute", "array", 1)],
    )
    both = replace(machine, operations=(*machine.operations, fused))
    layers = {layer.name: layer for layer in _evaluate(both).layers}
    assert layers["pointwise"].operation == "fused"
    work = layers["pointwise"].work
    assert work is not None
    assert work.op_types == ("Conv", "MaxPool", "Flatten")
    assert (work.inputs, work.output) == (((16, 8, 8),), (512,))
    assert work.pool is not None
    assert (work.pool.kernel, work.pool.output) == ((2, 2), (32, 4, 4))
    sums = _evaluate(both, "resnet-8")
    placed = partition_evaluated(_package("resnet-8").graph, sums)
    regions = {place.node: place.region for place in placed.placement}
    for layer in sums.layers:
        if layer.work is not None:
            assert len({regions[node.name] for node in layer.work.nodes}) == 1
    assert {layer.work.op_types for layer in sums.layers if layer.operation == "fused"} == {
        ("Conv", "Add")
    }


def test_an_operator_that_the_machine_lacks_says_so(machine: MachineDescription) -> None:
    without = replace(machine, operations=machine.operations[:1])
    found = _evaluate(without).refused
    assert found["pool"] == ("systolic-array has no operation for MaxPool", "operation")
    chain = replace(machine.operations[0], patterns=(("MaxPool", "Conv"),))
    only = replace(machine, operations=(chain,))
    assert (
        _evaluate(only).refused["pool"][0] == "systolic-array runs MaxPool only in: MaxPool, Conv"
    )


def test_nodes_that_the_user_keeps_on_the_cpu(machine: MachineDescription) -> None:
    package = keep_on_cpu(_package("digits-cnn"), ["pool"])
    evaluator = Evaluator(package.graph, package.annotations, machine)
    found = evaluator.evaluate(machine.parameters())
    assert found.refused["pool"] == ("kept on the CPU by --cpu pool", "forced")


def test_cycles_that_a_run_takes_once(machine: MachineDescription) -> None:
    once = replace(machine, after_network=lambda keys: [CyclePart("start", "memory", 100)])
    found = _evaluate(once)
    assert found.layers[-1].name == "after the network"
    assert found.cycles == _evaluate(machine).cycles + 100


FORMULAS: dict[str, tuple[Any, str]] = {
    "negative": ([CyclePart("compute", "array", -1)], "part 'compute' is -1; it must be 0 or more"),
    "fraction": ([CyclePart("compute", "array", 1.5)], "part 'compute' is 1.5; give an int"),  # type: ignore[arg-type]
    "no unit": ([CyclePart("compute", "mac", 1)], "names the unit 'mac', which is not declared"),
    "no name": ([CyclePart(7, "array", 1)], "the name of a part is 7; give a text"),  # type: ignore[arg-type]
    "no part": ([7], "found 7; give a list of CyclePart"),
    "number": (5, "found 5; give a list of CyclePart"),
    "nothing": (None, "found None; give a list of CyclePart"),
    "empty name": ([CyclePart("", "array", 1)], "the name of a part is ''; give a text"),
    "huge": ([CyclePart("compute", "array", 10**30)], "is 1.000e+30; it must be at most 281,47"),
}


@pytest.mark.parametrize("fault", FORMULAS)
def test_a_bad_result_of_a_formula_gives_one_line(fault: str, machine: MachineDescription) -> None:
    result, message = FORMULAS[fault]
    bad = replace(machine.operations[0], cycles=lambda work, parameters: result)
    with pytest.raises(InputError) as caught:
        _evaluate(replace(machine, operations=(bad,)))
    told = str(caught.value)
    assert told.startswith("machine systolic-array: operation product, layer conv")
    assert message in told


def test_a_formula_that_fails_is_named(machine: MachineDescription) -> None:
    bad = replace(machine.operations[0], cycles=lambda work, parameters: 1 // 0)
    with pytest.raises(InputError, match=r"^machine systolic-array: operation product, layer conv: "
                       r"ZeroDivisionError: .*; correct the description$"):  # fmt: skip
        _evaluate(replace(machine, operations=(bad,)))


@pytest.mark.parametrize(
    ("field", "function", "message"),
    [
        ("after_network", lambda keys: 40, "after_network: found 40; give a list of CyclePart"),
        ("peak_macs", lambda keys: 0, "peak_macs is 0; return at least 1, or leave it out"),
        ("peak_macs", lambda keys: 1.5, "peak_macs is 1.5; give an int"),
        ("peak_macs", 256, "peak_macs: TypeError: 'int' object is not callable; correct the des"),
    ],
)
def test_a_bad_function_of_the_machine_gives_one_line(
    field: str, function: Any, message: str, machine: MachineDescription
) -> None:
    with pytest.raises(InputError) as caught:
        find_peak(_evaluate(replace(machine, **{field: function})))
    assert str(caught.value).startswith(f"machine systolic-array: {message}")


@pytest.mark.parametrize("result", [True, ""])
def test_a_limit_returns_none_or_a_reason(result: Any, machine: MachineDescription) -> None:
    limit = OperationLimit("size", "small", lambda work, keys: result)
    bad = replace(machine.operations[0], limits=(limit,))
    with pytest.raises(
        InputError, match=r"limit size of operation product, layer conv returns .*; return None"
    ):
        _evaluate(replace(machine, operations=(bad,)))


def _simulate(tasks: Sequence[UnitTask], parameters: object) -> TaskTimes:
    return simulate_tasks(tasks, {"array": 2, "memory": 4}, SharedPort(1))


def _tasks(work: LayerWork, parameters: object) -> list[UnitTask]:
    return [UnitTask("memory", 10), UnitTask("array", 4, needs=(0, -1))]


def _event_driven(machine: MachineDescription, tasks: Any = _tasks) -> MachineDescription:
    operation = MachineOperation("product", (("Conv",), ("MatMul",)), (), tasks=tasks)
    return replace(
        machine, kind="event-driven", operations=(operation,), simulate=_simulate, overlaps=()
    )


def test_an_event_driven_layer_takes_its_cycles_on_the_critical_path(
    machine: MachineDescription,
) -> None:
    """The memory loads while the array computes, except that the last layer reads a CPU result."""
    found = _evaluate(_event_driven(machine))
    assert [layer.cycles for layer in found.layers] == [10, 10, 14, 14]
    assert found.layers[0].parts == {"memory": 10}
    assert found.layers[-1].parts == {"memory": 10, "array": 4}
    assert found.units["array"] == {"busy": 16, "memory": 32}


def test_a_layer_after_a_cpu_part_waits_for_all_units(machine: MachineDescription) -> None:
    """No task names a need. The array ends before the memory and waits for it after a CPU part."""

    def list_tasks(work: LayerWork, parameters: object) -> list[UnitTask]:
        cycles = 50 if work.name == "classifier" else 4
        return [UnitTask("memory", 10), UnitTask("array", cycles)]

    described = _event_driven(machine, list_tasks)
    assert (
        _evaluate(described).cycles == 3 * 10 + 50
    )  # the pool before the classifier is a CPU part
    more = (("Conv",), ("MaxPool",), ("Flatten",), ("MatMul",))
    whole = replace(described, operations=(replace(described.operations[0], patterns=more),))
    found = _evaluate(whole)
    assert "pool" not in found.refused
    assert found.cycles == (len(found.layers) - 1) * 4 + 50


TASKS: dict[str, tuple[list[UnitTask], str]] = {
    "cyclic": ([UnitTask("array", 1, needs=(1,)), UnitTask("array", 1, needs=(0,))],
               "task 0 needs task 1, which is not before it; needs must not be cyclic"),
    "negative": ([UnitTask("array", -1)], "cycles of task 0 is -1"),
    "bytes": ([UnitTask("memory", 1, bytes=-4)], "bytes of task 0 is -4"),
    "port": ([UnitTask("memory", 1, port_cycles=-3)], "port_cycles of task 0 is -3"),
    "unit": ([UnitTask("mac", 1)], "names the unit 'mac', which is not declared"),
    "no task": ([7], "layer conv: found 7; give a list of UnitTask"),  # type: ignore[list-item]
    "needs": ([UnitTask("array", 1, needs=0)], "needs of task 0: found 0; give a list of int"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kind", "part 'kind' of a layer's cycles has the name of a column of reports; rename it"),
        ("port", "unit 'port' has the name of a cause of waiting; rename it"),
    ],
)
def test_units_of_an_event_driven_machine_are_columns_of_reports(
    name: str, message: str, machine: MachineDescription
) -> None:
    units = (*machine.units, MachineUnit(name, ""))
    with pytest.raises(InputError, match=message):
        _evaluate(replace(_event_driven(machine), units=units))


def test_simulate_must_return_times(machine: MachineDescription) -> None:
    bad = replace(_event_driven(machine), simulate=lambda tasks, keys: 5)
    with pytest.raises(InputError, match="simulate returns 5; return the result of simulate_tasks"):
        _evaluate(bad)
    short = replace(bad, simulate=lambda tasks, keys: _simulate(tasks[:2], keys))
    with pytest.raises(InputError, match="simulate returns times of 2 tasks; simulate all 8"):
        _evaluate(short)
    with pytest.raises(InputError, match="SharedPort: width is 0; use an integer of 1 or more"):
        SharedPort(0)


@pytest.mark.parametrize("fault", TASKS)
def test_bad_tasks_give_one_line(fault: str, machine: MachineDescription) -> None:
    tasks, message = TASKS[fault]
    with pytest.raises(InputError) as caught:
        _evaluate(_event_driven(machine, lambda work, parameters: tasks))
    assert message in str(caught.value)
