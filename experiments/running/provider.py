"""Execution provider of ONNX Runtime: places nodes, compiles regions and runs them.

A :class:`ProviderSession` answers the requests of one ``InferenceSession``, which ``dla.ort``
receives from the library. It maps the regions of a compiled network to nodes of ONNX Runtime's
graph by the tensors between which a region lies.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, get_native_id
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.compiler import CompiledNetwork
from byoc.compiler import compile as compile_network
from byoc.graph import Quantization, Value
from byoc.host.runtime import from_device, to_device
from byoc.operators.onnx_view import BOUNDARIES, DEQUANTIZE, QUANTIZE
from byoc.options import DEFAULTS, OPTIONS, load_pins
from byoc.package.interface import NetworkPort
from byoc.tuning.log import load_tuned
from dla_sim.device import Device
from dla_sim.engine.times import compute_times
from dla_sim.timing import Timing
from experiments.running.declared import list_declared
from experiments.running.given import Compiling, MachineChoice
from experiments.running.inference import cache_times, hardware_of
from experiments.running.network import load
from experiments.version import compiler_version
from isa import program_file
from isa.errors import InputError, suggest_name
from isa.files import write_atomically
from isa.program import Program
from isa.reading import read_bytes

NAME = "DlaExecutionProvider"
PREFIX = f"ep.{NAME.lower()}."
MAXIMUM_BYTES = 1 << 31
RECORD, FIELD, ITEM = "\x1e", "\x1f", "\x1d"
_MODEL = "model"


@dataclass(frozen=True)
class GraphNode:
    """Node of ONNX Runtime's graph; ``content`` is the context of an EPContext node of ours."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    content: str = ""


@dataclass(frozen=True, eq=False)
class RegionTensor:
    """Input or output of a region: the program's tensor and its place at the fused node.

    ``real`` is True if the fused node has the float tensor instead of the quantised one.
    """

    position: int
    port: NetworkPort
    real: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.real else self.port.value.dtype)

    def to_json(self) -> dict[str, Any]:
        """Return the tensor as JSON."""
        value = self.port.value
        how = value.quantization if self.real else None
        scale = None if how is None else [float(how.scale), int(how.zero_point)]
        return {
            "name": value.name,
            "shape": list(value.shape),
            "dtype": value.dtype,
            "position": self.position,
            "scale": scale,
        }


def _make_scale(scale: float, zero_point: int) -> Quantization:
    return Quantization(np.array(scale, np.float32), np.array(zero_point, np.int32))


def make_tensor(content: Mapping[str, Any]) -> RegionTensor:
    """Return the tensor that :meth:`RegionTensor.to_json` wrote."""
    scale = content["scale"]
    how = None if scale is None else _make_scale(*scale)
    value = Value(content["name"], tuple(content["shape"]), content["dtype"], how)
    port = NetworkPort(value.name, value, (value.name,), integer=how is not None)
    return RegionTensor(content["position"], port, how is not None)


@dataclass(frozen=True, eq=False)
class FusedRegion:
    """Region that one fused node runs: its program, machine and tensors."""

    name: str
    program: Program
    timing: Timing
    inputs: tuple[RegionTensor, ...]
    outputs: tuple[RegionTensor, ...]

    def to_bytes(self) -> bytes:
        """Return the context that an EPContext node stores: a line of JSON and the program."""
        sides = {"inputs": self.inputs, "outputs": self.outputs}
        head = {side: [one.to_json() for one in tensors] for side, tensors in sides.items()}
        content = {**head, "timing": self.timing.model_dump(mode="json")}
        return json.dumps(content).encode() + b"\n" + program_file.to_bytes(self.program)


def read_context(content: bytes, source: str) -> FusedRegion:
    """Return the region of a context; raise InputError if it is damaged."""
    head, _, program = content.partition(b"\n")
    try:
        known = json.loads(head)
        inputs, outputs = (tuple(map(make_tensor, known[side])) for side in ("inputs", "outputs"))
        timing = Timing.model_validate(known["timing"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{source}: no context of dla; export the model again") from error
    return FusedRegion(source, program_file.from_bytes(program, source), timing, inputs, outputs)


def parse_options(given: Mapping[str, str]) -> Compiling:
    """Return the request that provider options state; they have the names of ``dla``'s options.

    An option that may be repeated has its values in one text, separated by spaces. Raises
    InputError for an unknown option or value.
    """
    declared = list_declared(Compiling).items()
    known = {one.word.lstrip("-").split("/")[0]: (name, one) for name, one in declared}
    compiling = {option.word: option for option in OPTIONS}
    found = dict[str, Any]()
    chosen = dict[str, Any]()
    for word, text in given.items():
        if word in compiling:
            chosen[compiling[word].name] = compiling[word].parse(text)
        elif word == "pins":
            chosen["chosen"] = load_pins(Path(text))
        elif word == "tuned":
            plain = DEFAULTS.replace_fields(chosen)
            chosen["chosen"] = load_tuned(Path(text), plain, compiler_version())
        elif word in known and word:
            name, one = known[word]
            found[name] = _parse_value(word, text, one.kind)
            found[name] = found[name] if one.parse is None else one.parse(found[name])
        elif word != _MODEL:
            words = [*filter(None, known), *compiling, "pins", "tuned", _MODEL]
            raise InputError(
                f"provider option '{word}' is unknown; {suggest_name(word, words)}the options are "
                f"{', '.join(sorted(words))}"
            )
    made = Compiling(given.get(_MODEL, ""), **found)
    return replace(made, options=made.options.replace_fields(chosen))


def _parse_value(word: str, text: str, kind: Any) -> Any:
    if isinstance(kind, tuple):
        if text not in kind:
            raise InputError(f"provider option {word} is '{text}'; it is {' or '.join(kind)}")
        return text
    try:
        if kind == list[str]:
            return shlex.split(text)
        return {"yes": True, "no": False}[text] if kind is bool else kind(text)
    except (KeyError, ValueError):
        kinds = {bool: "yes or no", int: "a number"}
        right = kinds.get(kind, "values with spaces between them")
        raise InputError(f"provider option {word} is '{text}'; give {right}") from None


def read_nodes(text: str) -> tuple[str, frozenset[str], list[GraphNode]]:
    """Return the model's file, the graph's outputs and the nodes of the library's text."""
    head, *records = text.split(RECORD)[:-1]
    path, outputs = head.split(FIELD)
    nodes = list[GraphNode]()
    for record in records:
        name, kind, inputs, results, *context = record.split(FIELD)
        content = context[1] if context and context[0] == NAME else ""
        nodes.append(GraphNode(name, kind, _split(inputs), _split(results), content))
    return path, frozenset(_split(outputs)), nodes


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split(ITEM)[:-1])


class RegionMap:
    """Nodes of ONNX Runtime's graph that each region of a compiled network covers.

    A tensor at the edge of a region has the model's name. Where a float model has no quantised
    tensor, the float tensor that is quantised or dequantised replaces it.
    """

    def __init__(
        self, network: CompiledNetwork, nodes: Sequence[GraphNode], outputs: frozenset[str]
    ) -> None:
        self._nodes = nodes
        self._producers = {name: at for at, one in enumerate(nodes) for name in one.outputs if name}
        self._consumers = dict[str, set[int]]()
        for at, node in enumerate(nodes):
            for name in filter(None, node.inputs):
                self._consumers.setdefault(name, set()).add(at)
        for name in outputs:
            self._consumers.setdefault(name, set()).add(len(nodes))
        self._floats = dict[str, list[str]]()
        model = network.package.model
        for node in model.graph.node if isinstance(model, ModelProto) else ():
            self._note_floats(node.op_type, node.input, node.output)
        for one in nodes:
            self._note_floats(one.kind, one.inputs, one.outputs)
        self.edges = dict[str, tuple[int, str]]()
        self.groups = [
            self._find_nodes(index, program) for index, program in network.programs.items()
        ]

    def _note_floats(self, kind: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        if kind in BOUNDARIES:
            pair = {QUANTIZE: (outputs[0], inputs[0]), DEQUANTIZE: (inputs[0], outputs[0])}[kind]
            self._floats.setdefault(pair[0], []).append(pair[1])

    def list_names(self, tensor: str) -> Iterator[str]:
        """Yield the names that a region's tensor may have in ONNX Runtime's graph."""
        yield tensor
        yield from self._floats.get(tensor, ())

    def _find_edge(self, tensor: str, known: Iterable[str]) -> str | None:
        return next((name for name in self.list_names(tensor) if name in known), None)

    def _find_nodes(self, index: int, program: Program) -> list[int]:
        """Return the nodes between the inputs and the outputs of a region."""
        stops = {self._find_edge(one.name, self._consumers) for one in program.inputs}
        wanted = set[str]()
        for tensor in program.outputs:
            name = self._find_edge(tensor.name, self._producers)
            if name is not None:
                self.edges[name] = index, tensor.name
                wanted.add(name)
        found = set[int]()
        open_names = list(wanted)
        while open_names:
            at = self._producers.get(open_names.pop())
            if at is not None and at not in found:
                found.add(at)
                open_names += [name for name in self._nodes[at].inputs if name not in stops]
        return self._drop_shared(found, wanted)

    def _drop_shared(self, found: set[int], wanted: set[str]) -> list[int]:
        """Remove nodes with other consumers, which the CPU also needs, and return the rest."""
        shared = [
            at
            for at in found
            for name in self._nodes[at].outputs
            if name not in wanted and self._consumers.get(name, found) - found
        ]
        return self._drop_shared(found - {*shared}, wanted) if shared else sorted(found)


class ProviderSession:
    """Answers to the requests of one ``InferenceSession``; ``settings`` is its configuration."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._given = {
            key.removeprefix(PREFIX): text
            for key, text in settings.items()
            if key.startswith(PREFIX)
        }
        self._request = parse_options(self._given)
        self._network: CompiledNetwork | None = None
        self._map: RegionMap | None = None
        self._hardware = hardware_of(self._request)
        self._devices = dict[str, Device]()
        self._lock = Lock()
        self._contexts = 0
        self._failure: Exception | None = None
        self._started: int | None = None
        self._events = list[tuple[str | int, ...]]()

    def place(self, text: str) -> str:
        """Return the numbers of the nodes of each fused node: ``0 1 2;5 6;``.

        ONNX Runtime ignores an error here and runs all nodes on the CPU. So an error claims the
        first node, and :meth:`compile` raises it.
        """
        try:
            return self._place(text)
        except Exception as error:
            self._failure = error
            return _spell_groups([[0]])

    def _place(self, text: str) -> str:
        path, outputs, nodes = read_nodes(text)
        contexts = [[at] for at, node in enumerate(nodes) if node.content]
        if contexts:
            return _spell_groups(contexts)
        if self._network is None:
            self._network = self._compile_file(path)
        self._map = RegionMap(self._network, nodes, outputs)
        return _spell_groups(self._map.groups)

    def _compile_file(self, path: str) -> CompiledNetwork:
        model = self._given.get(_MODEL, path)
        if not model:
            raise InputError(
                "dla compiles the model's file, and the session got bytes; give InferenceSession "
                f"the file's name, or the provider option {_MODEL}"
            )
        package = load(replace(self._request, model=model)).package
        machine, options = self._hardware, self._request.options
        return compile_network(package, machine.arch, options, timing=machine.timing)

    def compile(self, text: str) -> tuple[FusedRegion, str]:
        """Return the region of a fused node, and the reply that describes it to the library."""
        if self._failure is not None:
            raise self._failure
        path, _, (fused, *nodes) = read_nodes(text)
        content = next((node.content for node in nodes if node.content), "")
        region = self._open_context(path, content) if content else self._fuse(fused)
        self._find_device(region)
        shapes = "".join(
            " ".join(map(str, one.port.value.shape)) + ";"
            for one in sorted(region.outputs, key=lambda one: one.position)
        )
        context = "" if content else self._write_context(region)
        return region, f"{len(region.outputs)};{shapes}{context}"

    def _fuse(self, fused: GraphNode) -> FusedRegion:
        network, regions = self._network, self._map
        assert network is not None
        assert regions is not None
        index = next(regions.edges[name][0] for name in fused.outputs if name in regions.edges)
        program = network.programs[index]
        outputs = [
            _find_tensor(network, regions.edges[name][1], name, at)
            for at, name in enumerate(fused.outputs)
        ]
        inputs = list[RegionTensor]()
        for tensor in program.inputs:
            name = next((one for one in regions.list_names(tensor.name) if one in fused.inputs), "")
            if not name:
                raise InputError(
                    f"region {index} reads '{tensor.name}', which ONNX Runtime's optimiser removed;"
                    " set graph_optimization_level to ORT_DISABLE_ALL"
                )
            position = fused.inputs.index(name)
            inputs.append(_find_tensor(network, tensor.name, name, position))
        timing = self._hardware.timing
        return FusedRegion(fused.name, program, timing, tuple(inputs), tuple(outputs))

    def _find_device(self, region: FusedRegion) -> Device:
        """Return the machine that runs a region: the session's, or that of its context."""
        chosen = {one.word.lstrip("-") for one in list_declared(MachineChoice).values()}
        arch, timing = region.program.arch, region.timing
        if self._network is None and chosen & self._given.keys():
            arch, timing = self._hardware.arch, self._hardware.timing
        key = f"{arch.digest()} {timing.model_dump_json()}"
        if key not in self._devices:
            self._devices[key] = Device(arch, timing, engine=cache_times(compute_times))
        self._devices[key].load(region.program)
        return self._devices[key]

    def _open_context(self, path: str, content: str) -> FusedRegion:
        if content.startswith("data:"):
            return read_context(base64.b64decode(content[5:]), path or "EPContext")
        place = Path(path).parent / content
        return read_context(read_bytes(place, MAXIMUM_BYTES, "a context"), str(place))

    def _write_context(self, region: FusedRegion) -> str:
        """Return mode and content of an EPContext node if the session exports contexts."""
        if self._settings.get("ep.context_enable") != "1":
            return ""
        content = region.to_bytes()
        if self._settings.get("ep.context_embed_mode", "0") == "1":
            return f"1;data:{base64.b64encode(content).decode()}"
        assert self._network is not None
        given = self._settings.get("ep.context_file_path", "")
        place = Path(given or f"{self._network.package.source}_ctx.onnx")
        file = place.with_name(f"{place.stem}_{self._contexts}.bin")
        self._contexts += 1
        write_atomically(file, content)
        return f"0;{file.name}"

    def run(self, region: FusedRegion, arrays: Sequence[NDArray[np.uint8]]) -> None:
        """Run a region on the bytes of its inputs, and write the bytes of its outputs."""
        outputs = arrays[len(arrays) - len(region.outputs) :]
        tensors = {tensor.name: tensor for tensor in region.program.inputs}
        feeds = dict[str, NDArray[Any]]()
        for one in region.inputs:
            value = one.port.value
            given = arrays[one.position]
            if given.size != value.elements * one.dtype.itemsize:
                raise InputError(
                    f"'{value.name}' has {given.size:,} bytes; the session was compiled for shape "
                    f"{list(value.shape)}: give that shape, or the provider option shape"
                )
            array = given.view(one.dtype).reshape(value.shape)
            array = one.port.quantise(array) if one.real else array
            feeds[value.name] = to_device(array, tensors[value.name], region.program.arch)
        with self._lock:
            start = time.perf_counter_ns()
            execution = self._find_device(region).run(region.program, feeds)
            if self._started is not None:
                times = (start - self._started) // 1000, (time.perf_counter_ns() - start) // 1000
                where = os.getpid(), get_native_id()
                self._events.append((region.name, *where, *times, execution.trace.cycles))
        for one in region.outputs:
            value = one.port.value
            array = from_device(execution.outputs[value.name], value, region.program.arch)
            array = one.port.dequantise(array) if one.real else array
            outputs[one.position][:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def start_profiling(self, offset_ns: int) -> None:
        """Record an event for every run; times count from ``offset_ns`` before now."""
        self._started = time.perf_counter_ns() - offset_ns
        self._events.clear()

    def end_profiling(self) -> str:
        """Return the events: name, process, thread, start and duration in microseconds, cycles."""
        return "".join(FIELD.join(map(str, event)) + RECORD for event in self._events)


def _spell_groups(groups: Iterable[Sequence[int]]) -> str:
    return "".join(" ".join(map(str, group)) + ";" for group in groups if group)


def _find_tensor(network: CompiledNetwork, tensor: str, name: str, position: int) -> RegionTensor:
    value = network.graph.values[tensor].in_model
    real = name != tensor
    return RegionTensor(position, NetworkPort(tensor, value, (tensor,), integer=real), real)
