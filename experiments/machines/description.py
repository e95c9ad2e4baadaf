"""Records of a machine description: units, memories, operations with limits, and cycles.

A description is a Python module that assigns a :class:`MachineDescription` to ``MACHINE``.
:mod:`experiments.machines.evaluate` matches its operations to a network and counts cycles. The
constructor of the description checks all records; an error is one line that names the machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from byoc.graph import Graph, Node
from byoc.operators.registry import load_installed_families
from isa.errors import InputError, suggest_name

Shape = tuple[int, ...]
Kind = Literal["closed form", "event-driven", "preset"]
Role = Literal["asserted", "fitted", "held out", "not comparable"]
UNIT_CAUSES = ("busy", "issue", "port", "finished")
"""Causes of a unit's cycles in reports, besides the names of other units."""
_NAME = re.compile(r"[a-z][a-z0-9]*([-.][a-z0-9]+)*")


class MachineDescriptionError(InputError):
    """Fault of a machine description; the message names the machine and the place."""


class MachineParameters(BaseModel):
    """Numeric parameters of a machine, which ``--set`` and the axes of sweeps change.

    A description derives a class from it and declares each field with
    :func:`isa.arch.declare_key`. The field that :attr:`MachineDescription.clock` names is the
    machine's clock in Hz.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class PoolWork:
    """Pooling of a layer: height and width of its window, as in :class:`LayerWork`.

    ``op_type`` is the operator's type in the graph, ``output`` the shape of its result. The window
    of a global pool is the whole plane.
    """

    op_type: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    output: Shape


@dataclass(frozen=True, eq=False)
class LayerWork:
    """One layer of a network: the argument of limits and formulas.

    Shapes are those of the graph without a leading axis of one: (C, H, W), (C, L) or (C,).
    A layer without a convolution has kernel, stride and dilation (1, 1), no padding and one group.

    Attributes:
        name: name of the layer, equal to the name of its first node.
        op_types: operator types of the matched pattern, in execution order.
        nodes: nodes of the graph, in execution order.
        inputs: shapes of the tensors that the layer reads, without constants.
        output: shape of the layer's result.
        kernel: height and width of the convolution's kernel; (1, K) in one dimension.
        stride: vertical and horizontal stride of the convolution.
        padding: rows and columns of padding: top, left, bottom, right.
        dilation: vertical and horizontal dilation of the convolution.
        groups: groups of the convolution.
        macs: multiply-accumulates, including multiplications by padding.
        weight_bytes: bytes of weights in the graph, without biases.
        weight_bits: bits of a weight minus its zero point, the smallest power of two that holds
            all weights of the layer.
        pool: pooling in the layer, or None.
    """

    name: str
    op_types: tuple[str, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[Shape, ...]
    output: Shape
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    macs: int = 0
    weight_bytes: int = 0
    weight_bits: int = 8
    pool: PoolWork | None = None


@dataclass(frozen=True)
class OperationLimit:
    """Limit of an operation.

    Attributes:
        name: short name, which groups nodes on the CPU in reports.
        text: the limit as a sentence.
        check: takes the layer and the machine's parameters; returns None, or the reason with its
            values: "96 channels are more than the 64 processors".
    """

    name: str
    text: str
    check: Callable[[LayerWork, Any], str | None]


@dataclass(frozen=True)
class NetworkLimit:
    """Limit of all layers together, such as a memory that they share.

    Attributes:
        name: short name, as in :class:`OperationLimit`.
        text: the limit as a sentence.
        check: takes the layers in order of execution and the machine's parameters; returns the
            reasons of the layers that do not fit, by layer. Their nodes run on the CPU.
    """

    name: str
    text: str
    check: Callable[[Sequence[LayerWork], Any], Mapping[str, str]]


@dataclass(frozen=True)
class CyclePart:
    """Part of a layer's cycles in closed form: what it is, and the unit that works."""

    name: str
    unit: str
    cycles: int


@dataclass(frozen=True)
class UnitTask:
    """Entry of a unit's queue in an event-driven machine.

    A unit executes its tasks in order. A task starts when its unit is free and the tasks in
    ``needs`` have ended. In the result of :attr:`MachineOperation.tasks`, ``needs`` are indices
    into the same layer's tasks; -1 is the last task of the previous layer, -2 the last but one.
    The evaluator converts them into indices of the whole run, which ``simulate_tasks`` takes.

    Attributes:
        unit: name of the unit.
        cycles: cycles in which the unit works.
        bytes: bytes that the task moves, 0 for computation.
        needs: indices of the tasks that must end first.
        port_cycles: cycles of the memory port; None for ``bytes`` at the width of the port.
        layer: name of the layer.
    """

    unit: str
    cycles: int
    bytes: int = 0
    needs: tuple[int, ...] = ()
    layer: str = ""
    port_cycles: int | None = None


@dataclass(frozen=True)
class MachineOperation:
    """Operation of a machine: patterns of graph operators, limits and cycles.

    Attributes:
        name: name of the operation in reports.
        patterns: chains of operator types; each operator is the only consumer of the previous one.
        limits: conditions of the layer; if one does not hold, the nodes run on the CPU.
        cycles: closed form: parts of a layer's cycles. An empty result means that the layer takes
            no time.
        tasks: event-driven: the layer's tasks in order of issue.
        source: document that the formula comes from.
    """

    name: str
    patterns: tuple[tuple[str, ...], ...]
    limits: tuple[OperationLimit, ...] = ()
    cycles: Callable[[LayerWork, Any], Sequence[CyclePart]] | None = None
    tasks: Callable[[LayerWork, Any], Iterable[UnitTask]] | None = None
    source: str = ""


@dataclass(frozen=True)
class MachineUnit:
    """Unit of a machine, with its size in words: "16 x 16 multiply-accumulates"."""

    name: str
    text: str


@dataclass(frozen=True)
class MachineMemory:
    """Memory of a machine.

    ``capacity`` is in bytes and ``rate`` in bytes per cycle. A text is the name of the parameter
    with the value; None is an unknown value. ``unit`` is the unit that moves the memory's data.
    """

    name: str
    capacity: int | str | None = None
    rate: float | str | None = None
    unit: str = ""


@dataclass(frozen=True)
class PublishedFigure:
    """Published figure of a machine on a network, and the function that predicts it.

    Attributes:
        network: network of the publication.
        condition: further conditions of the measurement.
        value: published value.
        unit: "cycles", "us" or "ms".
        source: document or page with the figure.
        role: whether the vendor asserts it, a parameter was fitted to it, or it was held out.
        claim: largest relative error that docs/validation.md claims.
        predict: returns the description's value in ``unit``.
        note: cause of the error: behaviour that the description does not model.
        slow: whether the prediction compiles a network; ``dla validate --quick`` leaves it out.
    """

    network: str
    condition: str
    value: float
    unit: Literal["cycles", "us", "ms"]
    source: str
    role: Role
    claim: float
    predict: Callable[[], float]
    note: str = ""
    slow: bool = False


@runtime_checkable
class SimulatedTasks(Protocol):
    """Result of an event-driven machine's simulation.

    ``start`` and ``end`` have the times of each task in cycles. ``critical_path`` has the tasks
    that determine the end of the run. ``units`` has, by unit, an account with ``busy`` cycles and
    ``waiting`` cycles by cause, which add up to the run's cycles.
    """

    @property
    def start(self) -> Sequence[int]: ...
    @property
    def end(self) -> Sequence[int]: ...
    @property
    def critical_path(self) -> Sequence[int]: ...
    @property
    def units(self) -> Mapping[str, Any]: ...


Arithmetic = Callable[
    [Graph, Sequence[Node], Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]
]
"""A machine's own arithmetic: results of a region's nodes by name.

It takes the graph, the nodes and the values computed before, and raises InputError for a node that
it does not apply to.
"""


@dataclass(frozen=True)
class MachineDescription:
    """A machine as limits and cycle formulas.

    Attributes:
        name: name for ``--machine``, in lower case with hyphens.
        summary: one line for ``dla presets``.
        kind: how time is counted. A "preset" is one of our own machines with published figures.
        parameters: class of the parameters; its defaults describe the machine.
        units: units to which the operations attribute their cycles and tasks.
        memories: memories with capacity and rate.
        operations: if several patterns match, the longest is used; of equally long ones, the first.
        network_limits: limits for all layers on the machine together.
        transfer_memory: memory that the CPU shares with the machine. Every tensor that passes
            between the two takes its bytes at the rate of this memory; without a name, transfers
            are not counted.
        clock: parameter with the clock in Hz.
        overlaps: closed form: groups of units that work at the same time in a layer. Only the unit
            of a group with the most cycles counts; the cycles of other units are added.
        simulate: event-driven: takes all tasks in order of issue, with indices of the whole run in
            ``needs``, and the parameters; returns their times.
        peak_macs: largest number of multiply-accumulates per cycle, for the utilisation.
        layouts: layouts of tensors, one sentence each.
        quantisation: types and rounding, one sentence each.
        after_network: closed form: cycles of each run, besides those of its layers.
        arithmetic: the machine's own arithmetic; None if it computes as the integer model.
        preset: name of the preset, if the kind is "preset".
        sources: documents that the description comes from.
        published: published figures that the description is compared with.
        fitted: parameters that were fitted to the figures with the role "fitted"; ``dla advise``
            does not change them.
        validated: whether figures that were held out agree within their claims.
    """

    name: str
    summary: str
    kind: Kind
    parameters: type[MachineParameters] = MachineParameters
    units: tuple[MachineUnit, ...] = ()
    memories: tuple[MachineMemory, ...] = ()
    operations: tuple[MachineOperation, ...] = ()
    network_limits: tuple[NetworkLimit, ...] = ()
    transfer_memory: str = ""
    clock: str = "clock_hz"
    overlaps: tuple[tuple[str, ...], ...] = ()
    simulate: Callable[[Sequence[UnitTask], Any], SimulatedTasks] | None = None
    peak_macs: Callable[[Any], int] | None = None
    layouts: tuple[str, ...] = ()
    quantisation: tuple[str, ...] = ()
    after_network: Callable[[Any], Sequence[CyclePart]] | None = None
    arithmetic: Arithmetic | None = None
    preset: str = ""
    sources: tuple[str, ...] = ()
    published: tuple[PublishedFigure, ...] = ()
    fitted: tuple[str, ...] = ()
    validated: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"machine '{self.name}': the name is not lower-case words with hyphens; "
                "write it as in my-machine-2"
            )
        if self.kind not in get_args(Kind):
            kinds = ", ".join(get_args(Kind))
            raise self.fault(f"unknown kind '{self.kind}'; choose one of {kinds}")
        if self.kind == "preset":
            if not self.preset:
                raise self.fault("kind is 'preset' and preset is empty; name the preset")
            return
        if self.kind == "event-driven" and self.simulate is None:
            raise self.fault("kind is 'event-driven' and simulate is empty; give the function")
        if self.kind != "event-driven" and self.simulate is not None:
            raise self.fault(f"simulate is given and kind is '{self.kind}'; leave simulate out")
        if self.kind == "event-driven" and self.after_network is not None:
            raise self.fault("after_network is for kind 'closed form'; give a task instead")
        _check_types(self)
        _check_parameters(self)
        _check_units(self)
        for operation in self.operations:
            _check_operation(self, operation)

    @property
    def unit_names(self) -> tuple[str, ...]:
        """Names of the units, in order."""
        return tuple(unit.name for unit in self.units)

    def fault(self, text: str) -> MachineDescriptionError:
        """Return the error of a fault in this description."""
        return MachineDescriptionError(f"machine {self.name}: {text}")


def _check_types(machine: MachineDescription) -> None:
    """Raise InputError if a tuple of records or of tuples contains anything else."""
    limits = [limit for one in machine.operations for limit in getattr(one, "limits", ())]
    patterns = [part for one in machine.operations for part in getattr(one, "patterns", ())]
    for field, members, kind in (
        ("units", machine.units, MachineUnit),
        ("memories", machine.memories, MachineMemory),
        ("operations", machine.operations, MachineOperation),
        ("limits of an operation", limits, OperationLimit),
        ("network_limits", machine.network_limits, NetworkLimit),
        ("overlaps", machine.overlaps, tuple),
        ("patterns of an operation", patterns, tuple),
    ):
        wrong = [member for member in members if not isinstance(member, kind)]
        if wrong:
            raise machine.fault(
                f"{field} contains {wrong[0]!r:.40}; give a tuple of {kind.__name__} objects "
                "(a tuple of one ends with a comma)"
            )


def _check_parameters(machine: MachineDescription) -> None:
    """Raise InputError if a parameter has no unit or no valid default, or none is the clock."""
    if not (isinstance(machine.parameters, type) and issubclass(machine.parameters, BaseModel)):
        raise machine.fault(
            f"parameters is {machine.parameters!r:.60}; give a class derived from MachineParameters"
        )
    known = machine.parameters.model_fields
    for name, field in known.items():
        if field.is_required():
            raise machine.fault(f"parameter {name} has no default; give one with declare_key")
        if not isinstance(field.json_schema_extra, dict) or not field.description:
            raise machine.fault(
                f"parameter {name} has no unit and meaning; declare it with isa.arch.declare_key"
            )
    if machine.clock not in known:
        raise machine.fault(
            f"no parameter '{machine.clock}' for the clock; "
            f"{suggest_name(machine.clock, known)}declare it in Hz"
        )
    defaults = {name: one.default for name, one in known.items()}
    try:
        machine.parameters.model_validate(defaults)
    except ValidationError as error:
        setting, reason = describe_invalid(error)
        raise machine.fault(f"default {setting} {reason}; correct the default") from error
    for name, value in defaults.items():
        if not isinstance(value, int | float):
            raise machine.fault(f"parameter {name} is {value!r:.40}; a parameter is a number")


def describe_invalid(error: ValidationError) -> tuple[str, str]:
    """Return the first invalid parameter as ``key=value``, and the reason."""
    problem = error.errors(include_url=False)[0]
    reason = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"{'.'.join(map(str, problem['loc']))}={problem['input']!s:.40}", reason


def _check_units(machine: MachineDescription) -> None:
    """Raise InputError if a name is declared twice, or a memory or overlap names no unit."""
    if not machine.units:
        raise machine.fault("no units; declare at least one MachineUnit")
    for kind, declared in (
        ("unit", [*machine.unit_names]),
        ("operation", [one.name for one in machine.operations]),
        ("memory", [one.name for one in machine.memories]),
        ("unit in overlaps", [unit for group in machine.overlaps for unit in group]),
    ):
        twice = [name for name in declared if declared.count(name) > 1]
        if twice:
            raise machine.fault(f"{kind} '{twice[0]}' is declared twice; rename or remove one")
    reserved = [name for name in machine.unit_names if name in UNIT_CAUSES]
    if machine.kind == "event-driven" and reserved:
        raise machine.fault(f"unit '{reserved[0]}' has the name of a cause of waiting; rename it")
    for memory in machine.memories:
        if memory.unit:
            check_unit(machine, f"memory {memory.name}", memory.unit)
        for value in (memory.capacity, memory.rate):
            if isinstance(value, str) and value not in machine.parameters.model_fields:
                raise machine.fault(
                    f"memory {memory.name} names the parameter '{value}', which does not exist; "
                    f"{suggest_name(value, machine.parameters.model_fields)}declare it"
                )
            if not isinstance(value, str | None) and not value > 0:
                raise machine.fault(f"memory {memory.name} has {value}; give a number above 0")
    rates = {memory.name: memory.rate for memory in machine.memories}
    if machine.transfer_memory and rates.get(machine.transfer_memory) is None:
        raise machine.fault(
            f"transfer_memory '{machine.transfer_memory}' is no memory with a rate; declare one"
        )
    for unit in (unit for group in machine.overlaps for unit in group):
        check_unit(machine, "overlaps", unit)


def check_unit(machine: MachineDescription, user: str, unit: str) -> None:
    """Raise InputError if ``unit``, which ``user`` names, is no unit of the machine."""
    if unit not in machine.unit_names:
        raise machine.fault(
            f"{user} names the unit '{unit}', which is not declared; "
            f"{suggest_name(unit, machine.unit_names)}units are {', '.join(machine.unit_names)}"
        )


def _check_operation(machine: MachineDescription, operation: MachineOperation) -> None:
    """Raise InputError if an operation lacks its cycles or names an unknown operator type."""
    form = {"closed form": operation.cycles, "event-driven": operation.tasks}
    other = operation.tasks if machine.kind == "closed form" else operation.cycles
    if form[machine.kind] is None or other is not None:
        needed = "cycles" if machine.kind == "closed form" else "tasks"
        raise machine.fault(
            f"operation {operation.name}: a machine of kind '{machine.kind}' gives {needed} and "
            "nothing else"
        )
    if not operation.patterns or not all(operation.patterns):
        raise machine.fault(f"operation {operation.name} has an empty pattern; name operators")
    known = load_installed_families().by_operator
    for op_type in (name for pattern in operation.patterns for name in pattern):
        if op_type not in known:
            raise machine.fault(
                f"operation {operation.name}: unknown operator type '{op_type}'; "
                f"{suggest_name(op_type, known)}'dla support' lists them"
            )
