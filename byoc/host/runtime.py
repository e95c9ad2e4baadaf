"""Run the parts of a compiled network in order: regions on an Executor, host parts on the CPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from byoc.compiled import CompiledNetwork, HostPart, Region
from byoc.graph import Graph, Value
from byoc.host.sessions import PartSession, opener
from byoc.layout.boundary import from_stored, to_stored
from byoc.operators import domain
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Executor, Program, Tensor

TraceT = TypeVar("TraceT")
Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class NetworkRun(Generic[TraceT]):
    """Results of one inference: outputs by port, tensors by name, traces by region.

    The tensors are those at part boundaries. A region without a trace did not run, because a
    condition selects another branch; its tensors are zeros. Integer ports
    (:class:`byoc.package.interface.NetworkPort`) return integers. ``values`` have the layout of the
    graph.
    """

    outputs: Tensors
    values: Tensors
    traces: Mapping[int, TraceT]


class Runtime(Generic[TraceT]):
    """Compiled network bound to an executor.

    Host sessions are created once and serve every inference. ``opened`` opens a host part between
    its inputs and outputs, by default a part of the package's model on its
    runtime.
    """

    def __init__(
        self,
        network: CompiledNetwork,
        executor: Executor[TraceT],
        opened: Callable[[Sequence[str], Sequence[str]], PartSession] | None = None,
    ) -> None:
        self._network = network
        self._executor = executor
        parts = {
            n: part for n, part in enumerate(network.partition.parts) if isinstance(part, HostPart)
        }
        # a network without host parts never parses the embedded model
        if parts and opened is None:
            opened = opener(network.package.shared_model, network.graph, network.arch.numerics)
        self._host = (
            {n: opened(part.inputs, part.outputs) for n, part in parts.items()} if opened else {}
        )

    def run(self, inputs: Tensors) -> NetworkRun[TraceT]:
        """Run one inference of the compiled network.

        Raises InputError if :meth:`byoc.package.interface.Interface.take_arrays` rejects an input.
        """
        graph = self._network.graph
        interface = self._network.interface
        values = interface.arrange_arrays(interface.take_arrays(inputs))
        traces: dict[int, TraceT] = {}
        for index, part in enumerate(self._network.partition.parts):
            if isinstance(part, Region):
                if all(bool(values[name].any()) == wanted for name, wanted in part.guards):
                    traces[part.index] = self._run_region(part, values)
                else:
                    values |= _fill_unused(graph, part)
            else:
                values |= _check_declared(graph, self._host[index].run(values))
        for name in graph.outputs:
            if name not in values:
                constant = graph.values[name].constant
                if constant is not None:
                    values[name] = constant
        return NetworkRun(interface.restore_arrays(values), values, traces)

    def _run_region(self, region: Region, values: dict[str, NDArray[Any]]) -> TraceT:
        program = self._network.programs[region.index]
        execution = self._executor.run(program, region_inputs(program, values))
        graph = self._network.graph
        for tensor in program.outputs:
            values[tensor.name] = from_device(
                execution.outputs[tensor.name], graph.values[tensor.name], program.arch
            )
        return execution.trace


def _fill_unused(graph: Graph, region: Region) -> Tensors:
    """Return zeros for the results of a region that does not run; nothing uses the numbers."""
    results = [graph.values[name] for name in region.outputs]
    return {value.name: np.zeros(value.shape, value.dtype) for value in results}


def region_inputs(program: Program, values: Tensors) -> dict[str, NDArray[Any]]:
    """Convert model tensors to a program's input tensors.

    They get the accelerator's element types and the program's layouts.
    """
    return {
        tensor.name: to_device(values[tensor.name], tensor, program.arch)
        for tensor in program.inputs
    }


def _check_declared(graph: Graph, found: Tensors) -> Tensors:
    """Check the shapes and types of ``found`` against the graph and return it.

    Raises InputError if the embedded model computed another shape or type than declared.
    """
    for name, array in found.items():
        value = graph.values.get(name)
        if (
            value is not None
            and not value.open
            and (array.shape != value.shape or array.dtype.name != value.dtype)
        ):
            raise InputError(
                f"the model makes '{name}' of shape {list(array.shape)} and type "
                f"{array.dtype.name}, and declares shape {list(value.shape)} and type "
                f"{value.dtype}; correct its shapes, or report it where they are right"
            )
    return found


def to_device(array: NDArray[Any], tensor: Tensor, arch: Arch) -> NDArray[Any]:
    """Convert a model tensor to the accelerator's element type and the program's layout.

    uint8 is shifted by -128 to int8; flags become 0 and 1.
    """
    if array.dtype == np.uint8:
        array = (array ^ np.uint8(0x80)).view(np.int8)
    elif array.dtype == np.bool_:
        array = array.astype(np.int8)
    return to_stored(array, tensor, arch)


def from_device(array: NDArray[Any], value: Value, arch: Arch) -> NDArray[Any]:
    """Convert an accelerator tensor to the model's type (uint8, flags or indices) and shape."""
    array = from_stored(array, value.shape, arch)
    if value.dtype == "uint8":
        array = array.view(np.uint8) ^ np.uint8(0x80)
    elif value.dtype == domain.FLAGS:
        array = array.astype(np.bool_)
    elif value.dtype == domain.INDEX:
        array = array.astype(np.int64) + domain.INDEX_OFFSET
    return array.reshape(value.shape)
