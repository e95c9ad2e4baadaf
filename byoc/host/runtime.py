"""The host runtime: executes the parts of a compiled network in order, regions on an Executor, the rest on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from byoc.compiler import CompiledNetwork
from byoc.emission.region import Region
from byoc.graph import Graph, Value
from byoc.host.sessions import Engine, opener
from byoc.layout.region import from_stored, to_stored
from byoc.operators import domain
from byoc.partitioning.partition import HostPart
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Executor, Program, Tensor

TraceT = TypeVar("TraceT")
Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class NetworkRun(Generic[TraceT]):
    """Results of one inference: ``outputs`` by port, every tensor at a part's boundary by its name, a trace a region.

    Integer ports (:class:`byoc.package.interface.Port`) carry integers; ``values`` have the layout of the graph.
    """

    outputs: Tensors
    values: Tensors
    traces: Mapping[int, TraceT]


class Runtime(Generic[TraceT]):
    """A compiled network bound to an executor. Host sessions are made once and serve every inference."""

    def __init__(self, network: CompiledNetwork, executor: Executor[TraceT], host: Engine = "onnxruntime") -> None:
        self._network = network
        self._executor = executor
        parts = {n: part for n, part in enumerate(network.partition.parts) if isinstance(part, HostPart)}
        # A network without such parts needs no model.
        opened = opener(network.package.model, network.graph, host, network.arch.numerics) if parts else None
        self._host = {n: opened(part.inputs, part.outputs) for n, part in parts.items()} if opened else {}

    def run(self, inputs: Tensors) -> NetworkRun[TraceT]:
        """Run one inference.

        Raises InputError for inputs that :meth:`byoc.package.interface.Interface.taken` refuses.
        """
        graph, interface = self._network.graph, self._network.interface
        values = interface.arranged(interface.taken(inputs))
        traces: dict[int, TraceT] = {}
        for index, part in enumerate(self._network.partition.parts):
            if isinstance(part, Region):
                traces[part.index] = self._run_region(part, values)
            else:
                values |= _as_declared(graph, self._host[index].run(values))
        for name in graph.outputs:
            if name not in values:
                constant = graph.values[name].constant
                if constant is not None:
                    values[name] = constant
        return NetworkRun(interface.handed_over(values), values, traces)

    def _run_region(self, region: Region, values: dict[str, NDArray[Any]]) -> TraceT:
        program = self._network.programs[region.index]
        execution = self._executor.run(program, region_inputs(program, values))
        graph = self._network.graph
        for tensor in program.outputs:
            values[tensor.name] = from_device(execution.outputs[tensor.name], graph.values[tensor.name], program.arch)
        return execution.trace


def region_inputs(program: Program, values: Tensors) -> dict[str, NDArray[Any]]:
    """The input tensors of a region's program, in the accelerator's domain, from model tensors by name."""
    return {tensor.name: to_device(values[tensor.name], tensor, program.arch) for tensor in program.inputs}


def _as_declared(graph: Graph, found: Tensors) -> Tensors:
    """``found``; raises InputError where the embedded model computes another tensor than the graph says."""
    for name, array in found.items():
        value = graph.values.get(name)
        if value is not None and not value.open and (array.shape != value.shape or array.dtype.name != value.dtype):
            raise InputError(
                f"the model makes '{name}' of shape {list(array.shape)} and type {array.dtype.name}, and declares "
                f"shape {list(value.shape)} and type {value.dtype}; correct its shapes, or report it where they are "
                "right"
            )
    return found


def to_device(array: NDArray[Any], tensor: Tensor, arch: Arch) -> NDArray[Any]:
    """A model tensor in the accelerator's domain: uint8 moved by 128 to int8, flags 0 and 1, in the layout of the
    program.
    """
    if array.dtype == np.uint8:
        array = (array ^ np.uint8(0x80)).view(np.int8)
    elif array.dtype == np.bool_:
        array = array.astype(np.int8)
    return to_stored(array, tensor, arch)


def from_device(array: NDArray[Any], value: Value, arch: Arch) -> NDArray[Any]:
    """An accelerator tensor as the model's: moved back to uint8, or made flags or indices, where the model says so."""
    array = from_stored(array, value.shape, arch)
    if value.dtype == "uint8":
        array = array.view(np.uint8) ^ np.uint8(0x80)
    elif value.dtype == domain.FLAGS:
        array = array.astype(np.bool_)
    elif value.dtype == domain.INDEX:
        array = array.astype(np.int64) + domain.INDEX_OFFSET
    return array.reshape(value.shape)
