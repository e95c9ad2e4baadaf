"""Evaluation of a network on a described machine: layers, placement and cycles.

Takes the integer graph of a package, a description and its parameters. Operations match chains of
nodes in graph order, the longest chain first. Nodes that match nothing, or break a limit, run on
the CPU with the reason. Matching and shapes are prepared once for any number of parameters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from byoc.compiled import HostPart, Partition, Placement, Region
from byoc.graph import Annotation, Graph, Node
from byoc.host.sessions import estimate_cycles
from byoc.operators.rules import make_unknown_operator
from byoc.partitioning.forcing import FORCED
from byoc.partitioning.partition import NodeGroup, boundary, merge, readers
from dla_sim.engine.breakdown import PARTS
from experiments.machines.description import (
    CyclePart,
    LayerWork,
    MachineDescription,
    MachineDescriptionError,
    MachineOperation,
    MachineParameters,
    NetworkLimit,
    SimulatedTasks,
    UnitTask,
    check_unit,
)
from experiments.machines.work import describe_work
from experiments.report.tables import LAYER_COLUMNS
from isa.errors import InputError

AFTER_NETWORK = "after the network"
"""Name of the layer with the cycles that a run takes once."""
NO_OPERATION = "operation"
"""Rule of nodes that no operation of the machine matches."""
LATE = "issue"
"""Part of a layer's cycles in which the next task of the critical path is not issued yet."""
RESERVED = {*LAYER_COLUMNS} - {*PARTS}
"""Columns of the layers in reports, besides those of the parts of their cycles."""
MAX_COUNT = 1 << 48
"""Largest number of cycles of a part, and of cycles or bytes of a task."""
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class MatchedOperation:
    """Operation whose pattern matches a layer; it runs the layer if its limits hold."""

    operation: MachineOperation
    work: LayerWork
    names: frozenset[str]
    place: int
    """Index of the last node in the graph."""


@dataclass(frozen=True, eq=False)
class EvaluatedLayer:
    """Layer of a network on a machine: its operation, its cycles and their parts.

    ``parts`` are the cycles that count, by part, and add up to ``cycles``. For event-driven
    machines they are units on the critical path. ``work`` is None for the cycles that a run takes
    once.
    """

    name: str
    operation: str
    cycles: int
    parts: Mapping[str, int] = field(default_factory=dict)
    work: LayerWork | None = None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Cycles of a network on a machine with certain parameters.

    Attributes:
        machine: the machine.
        parameters: its parameters.
        layers: layers in order of execution.
        cycles: total cycles of the machine, which are the sum over the layers.
        host_cycles: estimated cycles of the nodes on the CPU.
        refused: for the nodes on the CPU, the reason and the name of the broken rule.
        units: cycles of each unit by cause, for event-driven machines.
    """

    machine: MachineDescription
    parameters: MachineParameters
    layers: tuple[EvaluatedLayer, ...]
    cycles: int
    host_cycles: int
    refused: Mapping[str, tuple[str, str]]
    units: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        """Time of the machine's cycles in milliseconds."""
        return 1e3 * self.cycles / float(getattr(self.parameters, self.machine.clock))


class Evaluator:
    """Evaluator of one network on one machine for any parameters."""

    def __init__(
        self, graph: Graph, annotations: Sequence[Annotation], machine: MachineDescription
    ) -> None:
        for name in machine.unit_names if machine.kind == "event-driven" else ():
            _check_part_name(machine, name)
        self._graph = graph
        self._machine = machine
        self._reasons = {
            node.name: (one.reason, one.rule)
            for node, one in zip(graph.nodes, annotations, strict=True)
            if one.reason is not None
        }
        self._host = dict[str, int]()
        self._places = {node.name: number for number, node in enumerate(graph.nodes)}
        self._nodes = [
            (node.name, self._explain(node), tuple(self._find_candidates(node)))
            for node in graph.nodes
        ]

    def evaluate(self, parameters: MachineParameters) -> Evaluation:
        """Return layers and cycles of the network with certain parameters.

        Raises:
            InputError: a limit or a formula fails, or its result is not valid.
        """
        chosen, refused = self._choose(parameters)
        # layers run in the order of their last nodes
        ordered = sorted(chosen, key=lambda one: one.place)
        host = sum(self._estimate_host(name) for name in refused)
        if self._machine.kind == "event-driven":
            layers, units = self._simulate(ordered, parameters)
        else:
            layers = [self._count(one, parameters) for one in ordered]
            units = {}
        once = self._machine.after_network
        if once is not None and layers:
            where = "after_network"
            parts = call_description(
                self._machine,
                where,
                lambda: check_parts(self._machine, where, once(parameters)),
            )
            layers.append(_make_layer(self._machine, AFTER_NETWORK, AFTER_NETWORK, parts))
        total = sum(layer.cycles for layer in layers)
        return Evaluation(self._machine, parameters, tuple(layers), total, host, refused, units)

    def _find_candidates(self, node: Node) -> Iterator[MatchedOperation]:
        """Yield the operations that match a chain beginning at ``node``, longest chain first."""
        if self._reasons.get(node.name, ("", ""))[1] == FORCED:
            return
        found = [
            (operation, chain)
            for operation in self._machine.operations
            for pattern in operation.patterns
            if (chain := self._match(node, pattern)) is not None
        ]
        for operation, chain in sorted(found, key=lambda one: -len(one[1])):
            names = frozenset(member.name for member in chain)
            work = describe_work(self._graph, chain)
            yield MatchedOperation(operation, work, names, self._places[chain[-1].name])

    def _match(self, node: Node, pattern: tuple[str, ...]) -> tuple[Node, ...] | None:
        """Return the chain of nodes from ``node`` that a pattern matches, or None."""
        chain: list[Node] = []
        following: Node | None = node
        for op_type in pattern:
            if following is None or following.op_type != op_type or not following.integer:
                return None
            chain.append(following)
            following = self._only_consumer(following)
        return tuple(chain)

    def _only_consumer(self, node: Node) -> Node | None:
        """Return the only consumer of the only output of ``node``, or None."""
        found = self._graph.consumers.get(node.outputs[0], ())
        alone = len(node.outputs) == 1 and node.outputs[0] not in self._graph.outputs
        return found[0] if alone and len(found) == 1 else None

    def _choose(
        self, parameters: MachineParameters
    ) -> tuple[list[MatchedOperation], dict[str, tuple[str, str]]]:
        """Return the operations that run, and the reasons of the nodes on the CPU."""
        chosen: list[MatchedOperation] = []
        covered = set[str]()
        refused = dict[str, tuple[str, str]]()
        for name, reason, candidates in self._nodes:
            if name in covered:
                continue
            for one in candidates:
                if one.names & covered:
                    continue
                broken = self._find_broken_limit(one, parameters)
                if broken is None:
                    chosen.append(one)
                    covered |= one.names
                    break
                reason = broken
            else:
                refused[name] = reason
        for limit in self._machine.network_limits:
            where = f"network limit {limit.name}"
            works = [one.work for one in chosen]
            found = call_description(self._machine, where, _list_reasons, limit, works, parameters)
            for work in (work for work in works if work.name in found):
                refused |= {node.name: (found[work.name], limit.name) for node in work.nodes}
            chosen = [one for one in chosen if one.work.name not in found]
        return chosen, refused

    def _explain(self, node: Node) -> tuple[str, str]:
        """Return reason and rule of a node that no operation matches."""
        if not node.integer or self._reasons.get(node.name, ("", ""))[1] == FORCED:
            unknown = make_unknown_operator(node)
            return self._reasons.get(node.name, (str(unknown), unknown.rule))
        chains = [
            pattern
            for operation in self._machine.operations
            for pattern in operation.patterns
            if node.op_type in pattern
        ]
        if chains:
            known = " or ".join(dict.fromkeys(", ".join(pattern) for pattern in chains))
            return f"{self._machine.name} runs {node.op_type} only in: {known}", NO_OPERATION
        return f"{self._machine.name} has no operation for {node.op_type}", NO_OPERATION

    def _find_broken_limit(
        self, one: MatchedOperation, parameters: MachineParameters
    ) -> tuple[str, str] | None:
        for limit in one.operation.limits:
            where = f"limit {limit.name} of operation {one.operation.name}, layer {one.work.name}"
            reason = call_description(self._machine, where, limit.check, one.work, parameters)
            if reason is None:
                continue
            if not isinstance(reason, str) or not reason:
                raise self._machine.fault(
                    f"{where} returns {reason!r:.40}; return None or the reason as a text"
                )
            return reason, limit.name
        return None

    def _estimate_host(self, name: str) -> int:
        if name not in self._host:
            node = self._graph.nodes[self._places[name]]
            self._host[name] = estimate_cycles(self._graph, HostPart((node,), (), ()))
        return self._host[name]

    def _count(self, one: MatchedOperation, parameters: MachineParameters) -> EvaluatedLayer:
        """Return a layer with its cycles in closed form."""
        formula = one.operation.cycles
        assert formula is not None
        where = f"operation {one.operation.name}, layer {one.work.name}"
        parts = call_description(
            self._machine,
            where,
            lambda: check_parts(self._machine, where, formula(one.work, parameters)),
        )
        return _make_layer(self._machine, one.work.name, one.operation.name, parts, one.work)

    def _simulate(
        self, ordered: Sequence[MatchedOperation], parameters: MachineParameters
    ) -> tuple[list[EvaluatedLayer], dict[str, dict[str, int]]]:
        """Return the layers and unit accounts of an event-driven machine.

        A region begins when the previous region has ended, because the CPU works between them. The
        cycles of a layer are those of its tasks on the critical path, and its parts are the units
        of these tasks.
        """
        regions = self._divide_layers(ordered)
        ordered = [one for region in regions for one in region]
        tasks: list[UnitTask] = []
        bounds = []
        latest: dict[str, int] = {}
        for region in regions:
            # a unit works in order, so the first task that it has in a region waits for all units
            barrier = dict.fromkeys(self._machine.unit_names, tuple(latest.values()))
            for one in region:
                where = f"operation {one.operation.name}, layer {one.work.name}"
                for task in call_description(
                    self._machine, where, self._list_tasks, one, parameters, len(tasks), where
                ):
                    needs = (*task.needs, *barrier.pop(task.unit, ()))
                    latest[task.unit] = len(tasks)
                    tasks.append(replace(task, needs=needs))
                bounds.append(len(tasks))
        simulate = self._machine.simulate
        assert simulate is not None
        times = call_description(self._machine, "simulate", simulate, tasks, parameters)
        if not isinstance(times, SimulatedTasks):
            raise self._machine.fault(
                f"simulate returns {times!r:.40}; return the result of simulate_tasks"
            )
        if len(times.end) != len(tasks):
            raise self._machine.fault(
                f"simulate returns times of {len(times.end)} tasks; simulate all {len(tasks)}"
            )
        parts: list[Counter[str]] = [Counter() for _ in ordered]
        last = 0
        for number in times.critical_path:
            counted = parts[bisect_right(bounds, number)]
            counted[tasks[number].unit] += times.end[number] - times.start[number]
            counted[LATE] += times.start[number] - last
            last = times.end[number]
        layers = [
            EvaluatedLayer(one.work.name, one.operation.name, found.total(), dict(+found), one.work)
            for one, found in zip(ordered, parts, strict=True)
        ]
        units = {
            name: {"busy": account.busy, **account.waiting} for name, account in times.units.items()
        }
        return layers, units

    def _divide_layers(self, ordered: Sequence[MatchedOperation]) -> list[list[MatchedOperation]]:
        """Return the layers of each region in order; the CPU works between two regions."""
        groups = _merge_layers(self._graph, [one.work for one in ordered])
        regions = [{node.name for node in group.nodes} for group in groups if group.accelerated]
        return [[one for one in ordered if one.work.nodes[-1].name in names] for names in regions]

    def _list_tasks(
        self, one: MatchedOperation, parameters: MachineParameters, first: int, where: str
    ) -> list[UnitTask]:
        """Return a layer's tasks with indices of the whole run, in which ``first`` is the first."""
        assert one.operation.tasks is not None
        found = []
        tasks = one.operation.tasks(one.work, parameters)
        for number, task in enumerate(_check_items(self._machine, where, tasks, UnitTask)):
            check_unit(self._machine, where, task.unit)
            _check_items(self._machine, f"{where}: needs of task {number}", task.needs, int)
            port_cycles = 0 if task.port_cycles is None else task.port_cycles
            counts = {"cycles": task.cycles, "bytes": task.bytes, "port_cycles": port_cycles}
            for name, count in counts.items():
                check_count(self._machine, f"{where}: {name} of task {number}", count)
            late = [need for need in task.needs if need >= number]
            if late:
                raise self._machine.fault(
                    f"{where}: task {number} needs task {late[0]}, which is not before it; "
                    "needs must not be cyclic"
                )
            needs = tuple(first + need for need in task.needs if first + need >= 0)
            found.append(replace(task, needs=needs, layer=one.work.name))
        return found


def call_description(
    machine: MachineDescription, where: str, function: Callable[..., Found], *given: Any
) -> Found:
    """Call a function of a description; raise InputError that names it if it fails."""
    try:
        return function(*given)
    except MachineDescriptionError:
        raise
    except InputError as error:
        raise machine.fault(f"{where}: {error}") from error
    except Exception as error:  # any exception of the description: the message names the place
        reason = (str(error).splitlines() or [""])[0]
        raise machine.fault(
            f"{where}: {type(error).__name__}: {reason}; correct the description"
        ) from error


def _list_reasons(
    limit: NetworkLimit, works: Sequence[LayerWork], parameters: MachineParameters
) -> dict[str, str]:
    """Return, by layer, the reasons of the layers that break a limit of the whole network."""
    return {name: str(reason) for name, reason in limit.check(works, parameters).items()}


def check_count(machine: MachineDescription, where: str, value: object) -> None:
    """Raise InputError if the number of a formula is not a whole number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise machine.fault(f"{where} is {value!r}; give an int")
    if value < 0:
        raise machine.fault(f"{where} is {value}; it must be 0 or more")
    if value > MAX_COUNT:
        raise machine.fault(f"{where} is {value:.3e}; it must be at most {MAX_COUNT:,}")


def _check_part_name(machine: MachineDescription, name: str) -> None:
    """Raise InputError if a part of the cycles has the name of another column of reports."""
    if name in RESERVED:
        raise machine.fault(
            f"part '{name}' of a layer's cycles has the name of a column of reports; rename it"
        )


def _check_items(
    machine: MachineDescription, where: str, found: Iterable[Found], kind: type[Found]
) -> tuple[Found, ...]:
    """Return the items of a list; raise InputError for no list or an item of another class."""
    items = tuple(found) if isinstance(found, Iterable) else None
    wrong = [found] if items is None else [one for one in items if not isinstance(one, kind)]
    if items is None or wrong:
        raise machine.fault(f"{where}: found {wrong[0]!r:.40}; give a list of {kind.__name__}")
    return items


def check_parts(
    machine: MachineDescription, where: str, parts: Iterable[CyclePart]
) -> tuple[CyclePart, ...]:
    """Return the parts of a formula; raise InputError for a wrong unit or number."""
    found = _check_items(machine, where, parts, CyclePart)
    for part in found:
        check_unit(machine, where, part.unit)
        if not isinstance(part.name, str) or not part.name:
            raise machine.fault(f"{where}: the name of a part is {part.name!r:.40}; give a text")
        _check_part_name(machine, part.name)
        check_count(machine, f"{where}: part '{part.name}'", part.cycles)
    return found


def count_parts(machine: MachineDescription, parts: Sequence[CyclePart]) -> dict[str, int]:
    """Return cycles by part; if units overlap, only the slowest unit counts."""
    by_unit = Counter[str]()
    for part in parts:
        by_unit[part.unit] += part.cycles
    hidden = set[str]()
    for group in machine.overlaps:
        longest = max(group, key=lambda unit: by_unit[unit])
        hidden |= {unit for unit in group if unit != longest}
    counted = Counter[str]()
    for part in parts:
        if part.unit not in hidden:
            counted[part.name] += part.cycles
    return dict(counted)


def _make_layer(
    machine: MachineDescription,
    name: str,
    operation: str,
    parts: Sequence[CyclePart],
    work: LayerWork | None = None,
) -> EvaluatedLayer:
    counted = count_parts(machine, parts)
    return EvaluatedLayer(name, operation, sum(counted.values()), counted, work)


def partition_evaluated(graph: Graph, found: Evaluation) -> Partition:
    """Return parts and placement of an evaluated network; a layer stays in one region."""
    layers = [layer.work for layer in found.layers if layer.work is not None]
    members = {work.nodes[-1].name: work.nodes for work in layers}
    read_by = readers(graph)
    parts: list[Region | HostPart] = []
    regions: dict[str, int] = {}
    for group in _merge_layers(graph, layers):
        nodes = tuple(one for node in group.nodes for one in members.get(node.name, (node,)))
        ports = boundary(graph, nodes, read_by)
        if group.accelerated:
            index = len({*regions.values()})
            regions |= {node.name: index for node in nodes}
            parts.append(Region(index, f"region{index}", nodes, *ports, ()))
        else:
            parts.append(HostPart(nodes, *ports))
    placement = tuple(_place_node(node, regions, found.refused) for node in graph.nodes)
    return Partition(graph, tuple(parts), placement)


def _merge_layers(graph: Graph, layers: Sequence[LayerWork]) -> tuple[NodeGroup, ...]:
    """Divide a graph into groups for CPU and machine; its last node represents a layer."""
    ends = {work.nodes[-1].name: work for work in layers}
    inside = {node.name for work in layers for node in work.nodes}
    merged = [
        _join_nodes(ends[node.name]) if node.name in ends else node
        for node in graph.nodes
        if node.name in ends or node.name not in inside
    ]
    return merge(merged, ends)


def _join_nodes(work: LayerWork) -> Node:
    """Return a node with the inputs of a whole layer and the name of its last node."""
    made = {name for node in work.nodes for name in node.outputs}
    inputs = tuple(name for node in work.nodes for name in node.inputs if name not in made)
    return replace(work.nodes[-1], inputs=inputs)


def _place_node(
    node: Node, regions: Mapping[str, int], refused: Mapping[str, tuple[str, str]]
) -> Placement:
    region = regions.get(node.name)
    on: Literal["dla", "cpu"] = "cpu" if region is None else "dla"
    reason, rule = refused.get(node.name, (None, None))
    return Placement(node.name, node.op_type, on, region, reason, node.onnx_nodes, rule)
