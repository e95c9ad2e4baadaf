"""Execution provider of ONNX Runtime: places nodes, compiles regions and runs them.

A :class:`ProviderSession` answers the requests of one ``InferenceSession``, which ``dla.ort``
receives from the library. A region covers the nodes of ONNX Runtime's graph that lie between its
input and output tensors.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock, get_native_id
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from pydantic import TypeAdapter

from byoc.compiled import CompiledNetwork
from byoc.compiler import compile as compile_network
from byoc.graph import Quantization, Value
from byoc.host.runtime import from_device, to_device
from byoc.operators.onnx_view import BOUNDARIES, QUANTIZE
from byoc.package.interface import NetworkPort
from dla_sim.device import Device
from dla_sim.timing import Timing
from experiments.running.given import Compiling
from experiments.running.inference import hardware_of
from experiments.running.network import load
from isa import program_file
from isa.errors import InputError
from isa.files import write_atomically
from isa.program import Program
from isa.reading import read_bytes

NAME = "DlaExecutionProvider"
MAXIMUM_BYTES = 1 << 31
DIGEST_BYTES = hashlib.sha256().digest_size
RECORD, FIELD, ITEM = "\x1e", "\x1f", "\x1d"
_EMBEDDED = "data:"


@dataclass(frozen=True)
class GraphNode:
    """Node of ONNX Runtime's graph; ``content`` is the context of an EPContext node of dla."""

    name: str
    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    content: str = ""


@dataclass(frozen=True)
class RegionTensor:
    """Input or output of a region, at ``position`` of the inputs or outputs of the fused node.

    With a ``scale`` the fused node has the float tensor instead of the quantised one.
    """

    name: str
    position: int
    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int = 0

    @cached_property
    def port(self) -> NetworkPort:
        how = Quantization(np.array(self.scale, np.float32), np.array(self.zero_point, np.int32))
        return NetworkPort(self.name, Value(self.name, self.shape, self.dtype, how), (self.name,))

    @property
    def outer_dtype(self) -> np.dtype[Any]:
        """Element type at the fused node."""
        return np.dtype(self.dtype if self.scale is None else np.float32)


@dataclass(frozen=True)
class RegionHead:
    """Timing and tensors of a region, which an EPContext node stores before the program."""

    name: str
    timing: Timing
    inputs: tuple[RegionTensor, ...]
    outputs: tuple[RegionTensor, ...]


_HEAD = TypeAdapter(RegionHead)


def read_context(content: bytes, source: str) -> tuple[RegionHead, Program]:
    """Return head and program of an exported region; raise InputError if a byte has changed."""
    stored = content[DIGEST_BYTES:]
    if content[:DIGEST_BYTES] != hashlib.sha256(stored).digest():
        raise InputError(
            f"{source}: no context of dla, truncated or corrupted; export the model again"
        )
    head, _, program = stored.partition(b"\n")
    try:
        found = _HEAD.validate_json(head)
    except ValueError as error:
        raise InputError(f"{source}: written by another dla; export the model again") from error
    return found, program_file.from_bytes(program, source)


@dataclass(frozen=True, eq=False)
class FusedRegion:
    """Region that a fused node runs on a device."""

    head: RegionHead
    program: Program
    device: Device
    lock: Lock = field(default_factory=Lock)

    def run(self, arrays: Sequence[NDArray[np.uint8]]) -> int:
        """Run the region and return its cycles.

        ``arrays`` are the inputs and outputs; the last dimension is that of an element's bytes.
        """
        tensors = {tensor.name: tensor for tensor in self.program.inputs}
        feeds = dict[str, NDArray[Any]]()
        for one in self.head.inputs:
            given = arrays[one.position]
            if given.shape != (*one.shape, one.outer_dtype.itemsize):
                raise InputError(
                    f"'{one.name}' has the shape {list(given.shape[:-1])}; the session was "
                    f"compiled for {list(one.shape)}: give that shape, or the provider option shape"
                )
            array = given.view(one.outer_dtype).reshape(one.shape)
            array = array if one.scale is None else one.port.quantise(array)
            feeds[one.name] = to_device(array, tensors[one.name], self.program.arch)
        with self.lock:
            execution = self.device.run(self.program, feeds)
        for one in self.head.outputs:
            array = from_device(execution.outputs[one.name], one.port.value, self.program.arch)
            array = array if one.scale is None else one.port.dequantise(array)
            place = arrays[len(arrays) - len(self.head.outputs) + one.position]
            place.reshape(-1)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return execution.trace.cycles


def read_nodes(text: str) -> tuple[str, Sequence[str], list[GraphNode]]:
    """Return the model's file, the graph's outputs and the nodes of the library's text."""
    head, *records = text.split(RECORD)[:-1]
    path, outputs = head.split(FIELD)
    nodes = list[GraphNode]()
    for record in records:
        name, kind, inputs, results, *context = record.split(FIELD)
        content = context[1] if context[:1] == [NAME] else ""
        nodes.append(GraphNode(name, kind, _split(inputs), _split(results), content))
    return path, _split(outputs), nodes


def _split(names: str) -> Sequence[str]:
    return names.split(ITEM)[:-1]


class RegionMap:
    """Nodes of ONNX Runtime's graph that each region of a compiled network covers.

    An input or output of a region has the model's name. Where a float model has no quantised
    tensor, the float tensor that is quantised or dequantised replaces it. ``edges`` has region and
    tensor by name of a region's output.
    """

    def __init__(
        self, network: CompiledNetwork, nodes: Sequence[GraphNode], outputs: Sequence[str]
    ) -> None:
        self._nodes = nodes
        self._producers = {name: at for at, node in enumerate(nodes) for name in node.outputs}
        self._consumers = {name: {len(nodes)} for name in outputs}
        used = self._find_producers(outputs, ())
        self._unused = [at for at in range(len(nodes)) if at not in used]
        for at in used:
            for name in nodes[at].inputs:
                self._consumers.setdefault(name, set()).add(at)
        self._floats = dict[str, list[str]]()
        model = network.package.model
        file = model.graph.node if isinstance(model, ModelProto) else ()
        sides = [(one.op_type, one.input, one.output) for one in file]
        sides += [(one.kind, one.inputs, one.outputs) for one in nodes]
        for kind, (first, *_), (second, *_) in (one for one in sides if one[0] in BOUNDARIES):
            pair = (second, first) if kind == QUANTIZE else (first, second)
            self._floats.setdefault(pair[0], []).append(pair[1])
        self.edges = dict[str, tuple[int, str]]()
        self.groups = [self._find_nodes(*item) for item in network.programs.items()]

    def find_name(self, tensor: str, known: Iterable[str]) -> str:
        """Return the first name of a region's tensor that is in ``known``; empty if none is."""
        names = (tensor, *self._floats.get(tensor, ()))
        return next((name for name in names if name in known), "")

    def _find_nodes(self, index: int, program: Program) -> list[int]:
        """Return the nodes between the inputs and the outputs of a region."""
        stops = {self.find_name(one.name, self._consumers) for one in program.inputs}
        wanted = {self.find_name(one.name, self._producers): one.name for one in program.outputs}
        self.edges |= {name: (index, tensor) for name, tensor in wanted.items()}
        found = self._drop_shared(self._find_producers(wanted, stops), wanted)
        for at in self._unused:  # on the CPU it could not read the tensors inside the region
            if any(self._producers.get(name) in found for name in self._nodes[at].inputs):
                found.add(at)
        return sorted(found)

    def _find_producers(self, tensors: Iterable[str], stops: Collection[str]) -> set[int]:
        """Return the nodes that compute ``tensors`` from the tensors ``stops``."""
        found = set[int]()
        names = list(tensors)
        while names:
            at = self._producers.get(names.pop())
            if at is not None and at not in found:
                found.add(at)
                names += [name for name in self._nodes[at].inputs if name not in stops]
        return found

    def _drop_shared(self, found: set[int], wanted: Mapping[str, str]) -> set[int]:
        """Return ``found`` without the nodes that other nodes outside the region also need."""
        while shared := {
            at
            for at in found
            for name in self._nodes[at].outputs
            if name not in wanted and self._consumers.get(name, found) - found
        }:
            found = found - shared
        return found


class ProviderSession:
    """Answers to the requests of one ``InferenceSession``.

    ``request`` states network, machine and options; the model's file if it names none.
    ``own_machine`` is True if a machine was chosen. ``settings`` is the session's configuration.
    """

    def __init__(self, request: Compiling, own_machine: bool, settings: Mapping[str, str]) -> None:
        self._request = request
        self._own_machine = own_machine
        self._settings = settings
        self._hardware = hardware_of(request)
        self._network: CompiledNetwork | None = None
        self._map: RegionMap | None = None
        self._file = ""
        self._failure: BaseException | None = None
        self._started: int | None = None
        self._events = list[str]()

    def place(self, text: str) -> str:
        """Return the numbers of the nodes of each fused node: ``0 1 2;5 6;``.

        ONNX Runtime ignores an error here and runs all nodes on the CPU. So an error claims the
        first node, and :meth:`compile` raises it.
        """
        try:
            groups = self._place(*read_nodes(text))
        except BaseException as error:
            self._failure = error
            groups = [[0]]
        return "".join(" ".join(map(str, group)) + ";" for group in groups if group)

    def _place(self, file: str, outputs: Sequence[str], nodes: list[GraphNode]) -> list[list[int]]:
        self._file = file
        contexts = [[at] for at, node in enumerate(nodes) if node.content]
        if contexts:
            return contexts
        if self._network is None:
            model = self._request.model or file
            if not model:
                raise InputError(
                    "dla compiles the model's file, and the session got bytes; give "
                    "InferenceSession the file's name, or the provider option model"
                )
            package = load(replace(self._request, model=model)).package
            machine, options = self._hardware, self._request.options
            self._network = compile_network(package, machine.arch, options, timing=machine.timing)
        self._map = RegionMap(self._network, nodes, outputs)
        return self._map.groups

    def compile(self, text: str) -> tuple[FusedRegion, str]:
        """Return the region of a fused node, and the reply that describes it to the library."""
        if self._failure is not None:
            raise self._failure
        _, _, (fused, *nodes) = read_nodes(text)
        content = next((node.content for node in nodes if node.content), "")
        head, program = self._read_context(content) if content else self._fuse(fused)
        arch, timing = program.arch, head.timing
        if content and self._own_machine:
            arch, timing = self._hardware.arch, self._hardware.timing
        device = Device(arch, timing)
        device.load(program)
        context = "" if content else self._write_context(head, program)
        shapes = [" ".join(map(str, one.shape)) + ";" for one in head.outputs]
        return FusedRegion(head, program, device), f"{len(shapes)};{''.join(shapes)}{context}"

    def _fuse(self, fused: GraphNode) -> tuple[RegionHead, Program]:
        network, regions = self._network, self._map
        assert network is not None
        assert regions is not None
        tensors = [regions.edges[name][1] for name in fused.outputs]
        program = network.programs[regions.edges[fused.outputs[0]][0]]
        inputs = list[RegionTensor]()
        for tensor in program.inputs:
            name = regions.find_name(tensor.name, fused.inputs)
            if not name:
                raise InputError(
                    f"{program.name} reads '{tensor.name}', which ONNX Runtime's optimiser removed;"
                    " set graph_optimization_level to ORT_DISABLE_ALL"
                )
            inputs.append(_describe_tensor(network, tensor.name, fused.inputs, name))
        outputs = [
            _describe_tensor(network, tensor, fused.outputs, name)
            for tensor, name in zip(tensors, fused.outputs, strict=True)
        ]
        head = RegionHead(fused.name, self._hardware.timing, tuple(inputs), tuple(outputs))
        return head, program

    def _read_context(self, content: str) -> tuple[RegionHead, Program]:
        if content.startswith(_EMBEDDED):
            decoded = b""
            with suppress(ValueError):  # no base64: the checksum rejects it
                decoded = base64.b64decode(content.removeprefix(_EMBEDDED))
            return read_context(decoded, self._file)
        place = Path(self._file).parent / content
        if Path(content).is_absolute() or ".." in Path(content).parts:
            raise InputError(
                f"{self._file}: the context '{content}' is outside of the model's folder; export "
                "the model again, or move the file beside it"
            )
        return read_context(read_bytes(place, MAXIMUM_BYTES, "a context"), str(place))

    def _write_context(self, head: RegionHead, program: Program) -> str:
        """Return mode and content of an EPContext node if the session exports contexts."""
        if self._settings.get("ep.context_enable") != "1":
            return ""
        stored = _HEAD.dump_json(head) + b"\n" + program_file.to_bytes(program)
        digest = hashlib.sha256(stored).digest()
        content = digest + stored
        if self._settings.get("ep.context_embed_mode", "0") == "1":
            return f"1;{_EMBEDDED}{base64.b64encode(content).decode()}"
        place = Path(  # else ONNX Runtime's default
            self._settings.get("ep.context_file_path") or f"{Path(self._file).with_suffix('')}_ctx"
        )
        # a name of its own, because ONNX Runtime may keep an older model of that name
        file = place.with_name(f"{place.stem}_{digest.hex()[:16]}.bin")
        write_atomically(file, content)
        return f"0;{file.name}"

    def run(self, region: FusedRegion, arrays: Sequence[NDArray[np.uint8]]) -> None:
        """Run a region on the bytes of its inputs, and write the bytes of its outputs."""
        start = time.perf_counter_ns()
        cycles = region.run(arrays)
        if self._started is not None:
            times = (start - self._started) // 1000, (time.perf_counter_ns() - start) // 1000
            event = (region.head.name, os.getpid(), get_native_id(), *times, cycles)
            self._events.append(FIELD.join(map(str, event)) + RECORD)

    def start_profiling(self, offset_ns: str) -> str:
        """Record an event for every run; times count from ``offset_ns`` before now."""
        self._started = time.perf_counter_ns() - int(offset_ns)
        self._events.clear()
        return ""

    def end_profiling(self, _: str) -> str:
        """Return the events: name, process, thread, start and duration in microseconds, cycles."""
        self._started = None
        return "".join(self._events)


def _describe_tensor(
    network: CompiledNetwork, tensor: str, names: Sequence[str], name: str
) -> RegionTensor:
    value = network.graph.values[tensor].in_model
    how = value.quantization
    place = (tensor, names.index(name), value.shape, value.dtype)
    if name == tensor or how is None:
        return RegionTensor(*place)
    return RegionTensor(*place, float(how.scale), int(how.zero_point))
