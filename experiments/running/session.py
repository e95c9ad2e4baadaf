"""Session of a network with state: one step after another on a simulated machine."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from numpy.typing import ArrayLike, NDArray

from dla_sim.device import Trace
from experiments.running.door import door
from experiments.running.given import RunKeywords, RunRequest
from experiments.running.in_memory import Model, batch_of
from experiments.running.inference import MANY_COMMANDS, hardware_of, open_runtime
from experiments.running.network import load
from experiments.running.wording import speak_python
from isa.errors import InputError

_make_request = door("Session", RunKeywords, RunRequest, lambda request: request)
_OF_RUNS = (
    "inputs", "steps", "step_ms", "accuracy", "timeline", "sensitivity", "cost", "engine",
)  # fmt: skip


class Session:
    """Compiled network that runs step by step and carries its state.

    The arguments are those of :func:`dla.run`, except those of a whole run, such as ``inputs`` and
    ``steps``. Results are not compared with an oracle; ``dla.run(..., steps=N)`` compares them.
    """

    def __init__(self, model: Model, **keywords: Any) -> None:
        """Import and compile a network. Raises InputError for invalid arguments."""
        for name in _OF_RUNS:
            if name in keywords:
                raise InputError(f"{name} is no option of a session; give it to dla.run")
        request = _make_request(model, **keywords)
        with speak_python(RunRequest):
            network = load(request, request.progress)
            self._compiled, self._runtime = open_runtime(
                network, hardware_of(request), request.options, request.progress, runs=MANY_COMMANDS
            )
        self._initial = network.package.graph.initial_state
        self.inputs = tuple(port.name for port in self._compiled.interface.inputs)
        """Names of the inputs, with those that are state."""
        self.reset()

    def reset(self) -> None:
        """Set the state to its initial values."""
        self.state: Mapping[str, NDArray[Any]] = deepcopy(self._initial)
        """Inputs of the next step that are state, in the element types of the model."""
        self.steps = 0
        """Number of steps since the start or the last reset."""
        self.traces: Mapping[int, Trace] = {}
        """Traces of the regions in the last step, by the region's index."""

    def step(self, inputs: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Run the next step and return the network's outputs by name.

        ``inputs`` is an array for the only input that is not state, or arrays by input name. An
        array for a state replaces its value. Raises InputError for invalid inputs.
        """
        interface = self._compiled.interface
        with speak_python(RunRequest):
            wanted = {
                port.name: port.value.shape
                for port in interface.inputs
                if port.name not in self._initial
            }
            batch = batch_of(inputs, wanted)
            if batch.many:
                raise InputError(f"inputs: they are {len(batch.feeds)} steps; give one at a time")
            feeds = {**self.state, **batch.feeds[0]}
            result = self._runtime.run(feeds)
        self.state = deepcopy(interface.next_state(feeds, result.outputs))
        self.steps += 1
        self.traces = result.traces
        return dict(result.outputs)
