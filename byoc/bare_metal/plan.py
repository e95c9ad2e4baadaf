"""Plan of a network on a processor: calls in order, and the place of every buffer in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from byoc.bare_metal.calls import BufferArgument, CCall, StructArgument, c_type, count_bytes
from byoc.bare_metal.host_parts import HostTranslator, copy_call
from byoc.compiled import CompiledNetwork, Region
from byoc.graph import StatePair, Value
from byoc.layout.boundary import get_boundary_layout
from byoc.operators import domain
from byoc.operators.layer import align
from byoc.package.interface import NetworkPort
from byoc.scheduling.memplan import Request, peak_bytes, plan
from isa.device import WINDOW_ALIGNMENT, ProgramImage, to_image
from isa.errors import InputError
from isa.program import Program, Tensor

MAX_DIMENSIONS = 8
"""Dimensions of ``shape`` in ``struct dla_tensor``."""


@dataclass(frozen=True, eq=False)
class RegionCall:
    """A region on the device: its image, the buffer of its window, and the layout changes.

    ``window`` is the buffer of the activations. ``guards`` are flags that must have a value for
    the region to run; ``skipped`` are the outputs that are filled with zeros otherwise.
    """

    index: int
    name: str
    image: ProgramImage
    window: str
    packs: tuple[CCall, ...]
    unpacks: tuple[CCall, ...]
    guards: tuple[tuple[BufferArgument, int, bool], ...]
    skipped: tuple[tuple[BufferArgument, int], ...]


PlannedCall = CCall | RegionCall


@dataclass(frozen=True, eq=False)
class PlannedPort:
    """Input or output of the network: the application's tensor and its buffer in the arena."""

    name: str
    value: Value
    buffer: str


@dataclass(frozen=True, eq=False)
class NetworkPlan:
    """Calls of one inference in order, and the arena.

    ``offsets`` are the places of the buffers in bytes. ``state`` has (buffer, value) of the state
    before the first inference.
    """

    calls: tuple[PlannedCall, ...]
    inputs: tuple[PlannedPort, ...]
    outputs: tuple[PlannedPort, ...]
    state: tuple[tuple[StatePair, str], ...]
    offsets: Mapping[str, int]
    arena_bytes: int

    @property
    def regions(self) -> tuple[RegionCall, ...]:
        return tuple(call for call in self.calls if isinstance(call, RegionCall))


def plan_network(network: CompiledNetwork) -> NetworkPlan:
    """Plan a compiled network for a processor without an operating system.

    Raises InputError for a node on the CPU whose bits C cannot reproduce.
    """
    graph = network.graph
    sizes: dict[str, int] = {}
    interface = network.interface
    inputs = [_plan_port(port, graph.values, sizes) for port in interface.inputs]
    calls: list[PlannedCall] = [
        call for port in interface.inputs for call in _view_port(port, graph.values, arrange=True)
    ]
    translator = HostTranslator(network.package.model, graph, network.arch.numerics)
    for part in network.partition.parts:
        if isinstance(part, Region):
            calls.append(_plan_region(part, network.programs[part.index], graph.values, sizes))
        else:
            calls += translator.translate_part(part)
    outputs = [_plan_port(port, graph.values, sizes) for port in interface.outputs]
    for port in interface.outputs:
        calls += _view_port(port, graph.values, arrange=False)
    ports = {port.name: port.buffer for port in (*inputs, *outputs)}
    calls += _pass_state(network, ports, sizes)
    for name in (buffer.name for call in calls for buffer in _list_buffers(call)):
        if name not in sizes:
            sizes[name] = count_bytes(graph.values[name])
    kept = [ports[state.input] for state in graph.state]
    offsets, total = _place_buffers(
        calls, sizes, [one.buffer for one in inputs], [*kept, *(one.buffer for one in outputs)]
    )
    pairs = tuple((state, ports[state.input]) for state in graph.state)
    return NetworkPlan(tuple(calls), tuple(inputs), tuple(outputs), pairs, offsets, total)


def _pass_state(
    network: CompiledNetwork, ports: Mapping[str, str], sizes: dict[str, int]
) -> Iterator[CCall]:
    """Yield the calls that copy outputs of a run to the state inputs of the next run.

    ``ports`` are the buffers by port. A state that takes the value of another one reads a copy.
    """
    integers = {port.name for port in network.interface.ports if port.integer}
    state = network.graph.state
    held = {ports[one.input] for one in state}
    sources = {}
    for one in state:
        if integers & {one.input, one.output}:
            raise InputError(
                f"state '{one.name}' has integers of two scales with --integer-io; export the "
                "network without it"
            )
        source = sources[one.input] = ports[one.output]
        if source in held:
            sources[one.input] = f"next {one.name}"
            size = sizes[sources[one.input]] = sizes[source]
            yield copy_call(sources[one.input], source, ((size, 1, 1),), 1)
    for one in state:
        target = ports[one.input]
        yield copy_call(target, sources[one.input], ((sizes[target], 1, 1),), 1)


def _plan_port(
    port: NetworkPort, values: Mapping[str, Value], sizes: dict[str, int]
) -> PlannedPort:
    """Return the buffer of a network port; a port in the graph's own layout shares its tensor."""
    value = values[port.tensors[0]]
    if value.constant is not None:
        raise InputError(f"output '{port.name}' is a constant; leave it out of a bare-metal bundle")
    if len(port.value.shape) > MAX_DIMENSIONS:
        raise InputError(
            f"tensor '{port.name}' has {len(port.value.shape)} dimensions, a bare-metal bundle "
            f"supports {MAX_DIMENSIONS}; reshape it"
        )
    buffer = value.name if _is_direct(port, values) else f"port {port.name}"
    sizes[buffer] = count_bytes(port.value)
    return PlannedPort(port.name, port.value, buffer)


def _is_direct(port: NetworkPort, values: Mapping[str, Value]) -> bool:
    return len(port.tensors) == 1 and values[port.tensors[0]].layout is None


def _view_port(port: NetworkPort, values: Mapping[str, Value], arrange: bool) -> Iterator[CCall]:
    """Yield the calls that convert a port from the model's layout to the graph's, or back."""
    if not _is_direct(port, values):
        for name in port.tensors if arrange else port.tensors[:1]:
            yield _view_call(f"port {port.name}", port.value, values[name], arrange)


def _view_call(buffer: str, outside: Value, value: Value, arrange: bool) -> CCall:
    """Return the call that applies a tensor's view, or its inverse."""
    if outside.dtype != value.dtype:
        raise InputError(
            f"tensor '{value.name}' is {outside.dtype} in the model and {value.dtype} in the "
            "graph; a bare-metal bundle needs one type"
        )
    factors = value.layout.factors if value.layout else value.shape
    order = value.layout.order if value.layout else tuple(range(len(factors)))
    model = np.cumprod((1, *factors[:0:-1]))[::-1].tolist() if factors else []
    shape = [factors[axis] for axis in order]
    graph = np.cumprod((1, *shape[:0:-1]))[::-1].tolist() if factors else []
    dims = tuple(
        (size, model[axis], step) if arrange else (size, step, model[axis])
        for size, axis, step in zip(shape, order, graph, strict=True)
    )
    item = np.dtype(value.dtype).itemsize
    names = (value.name, buffer) if arrange else (buffer, value.name)
    return copy_call(*names, dims, item)


def _plan_region(
    region: Region, program: Program, values: Mapping[str, Value], sizes: dict[str, int]
) -> RegionCall:
    image = to_image(program)
    image = replace(image, activation_bytes=_count_activations(program, image))
    window = f"window {region.index}"
    sizes[window] = image.activation_bytes
    packs = [_move_call(one, values[one.name], program, window) for one in program.inputs]
    unpacks = []
    for one in program.outputs:
        unpacks.append(_move_call(one, values[one.name], program, window))
        if values[one.name].dtype == domain.INDEX:
            count = sizes[f"index {one.name}"] = values[one.name].elements
            target = BufferArgument(one.name, "int64_t", written=True)
            source = BufferArgument(f"index {one.name}", "int8_t")
            numbers = (f"{count}u", str(domain.INDEX_OFFSET))
            unpacks.append(CCall("dla_widen_index", (target, source, *numbers)))
    guards = [
        (BufferArgument(name), count_bytes(values[name]), wanted) for name, wanted in region.guards
    ]
    skipped = [
        (BufferArgument(name, written=True), count_bytes(values[name])) for name in region.outputs
    ]
    return RegionCall(
        region.index, program.name, image, window, tuple(packs), tuple(unpacks), tuple(guards),
        tuple(skipped if guards else ()),
    )  # fmt: skip


def _move_call(tensor: Tensor, value: Value, program: Program, window: str) -> CCall:
    """Return the call that packs an input of a program, or unpacks an output."""
    c_type(value)
    at = BufferArgument(window, written=tensor.role == "input", offset=tensor.address)
    is_index = value.dtype == domain.INDEX and tensor.role == "output"
    name = f"index {value.name}" if is_index else value.name
    host = BufferArgument(name, written=tensor.role == "output")
    item = np.dtype(tensor.dtype).itemsize
    flip = 0x80 if value.dtype == "uint8" else 0
    layout = get_boundary_layout(value.shape, tensor, program.arch)
    by_row = int(layout.by_row)
    fields = (layout.images, layout.channels, layout.positions, layout.atom, by_row)
    described = StructArgument("dla_layout", (*fields, item, flip))
    if tensor.role == "input":
        return CCall("dla_pack", (at, host, described))
    return CCall("dla_unpack", (host, at, described))


def _count_activations(program: Program, image: ProgramImage) -> int:
    """Return the bytes of the activation window that a program uses.

    The compiler also reserves memory for tensors that stay in the scratchpad.
    """
    end = max((one.address + one.nbytes for one in program.tensors), default=0)
    for command in program.commands:
        operands = command.instruction.operands(command, program.arch)
        for access in (*operands.reads, *operands.writes):
            if access.space == "dram" and access.total and access.address < image.constant_start:
                end = max(end, access.end)
    return end


def _list_buffers(call: PlannedCall) -> Iterator[BufferArgument]:
    if isinstance(call, CCall):
        yield from call.buffers
        return
    for one in (*call.packs, *call.unpacks):
        yield from one.buffers
    yield from (guard[0] for guard in call.guards)
    yield from (output[0] for output in call.skipped)
    yield BufferArgument(call.window)


def _place_buffers(
    calls: Iterable[PlannedCall],
    sizes: Mapping[str, int],
    first: Iterable[str],
    last: Iterable[str],
) -> tuple[dict[str, int], int]:
    """Return the offsets of buffers in the arena, and its size.

    Buffers that are in use at the same time do not overlap. ``first`` are in use from the start,
    ``last`` until the end.
    """
    steps: dict[str, list[int]] = {name: [0] for name in first}
    end = 1
    for call in calls:
        for buffer in _list_buffers(call):
            steps.setdefault(buffer.name, []).append(end)
        end += 1
    for name in last:
        steps.setdefault(name, [0]).append(end)
    requests = [
        Request(name, align(max(sizes[name], 1), WINDOW_ALIGNMENT), used[0], used[-1])
        for name, used in steps.items()
    ]
    places = plan(requests, sum(one.nbytes for one in requests), WINDOW_ALIGNMENT)
    assert places is not None  # each buffer has room of its own
    return dict(zip(steps, places, strict=True)), peak_bytes(requests, places)
