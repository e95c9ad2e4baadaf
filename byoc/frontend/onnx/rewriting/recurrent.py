"""Unroll LSTM, GRU and RNN into their steps: matrix products and element-wise operators.

The products of the inputs are computed once for the whole sequence. Corresponding tensors of all
steps have one name plus the step number (:func:`byoc.runtimes.protobuf.step_family`). The quantiser
then gives them one scale, so all steps are equal and get equal tilings.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import NodeProto, helper

from byoc.frontend.onnx.rewriting.law import GraphView, write_operators
from byoc.runtimes.protobuf import attributes, make_unused_step_name

MOST_STEPS = 1024
"""Maximum number of steps of one direction; more would give an unmanageably large graph."""
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_FACTORS: Mapping[str, Mapping[str, float]] = {
    "Affine": {"alpha": 0.0, "beta": 0.0},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "ScaledTanh": {"alpha": 0.0, "beta": 0.0},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 0.0},
}
"""Activations and their factors, with ONNX Runtime's defaults for factors that the node omits."""


@write_operators(*_GATES)
def unroll(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Unroll LSTM, GRU and RNN layers that have constant weights into their time steps.

    Supports both directions, initial states, all activations, clipping, both layouts, and both
    forms of GRU. Layers with peepholes, coupled gates, lengths that differ from the sequence's, or
    more than MOST_STEPS steps stay unchanged.
    """
    return _RecurrentWriter(graph, node).write() or None


class _RecurrentWriter:
    """Writer of the nodes that replace one LSTM, GRU or RNN node."""

    def __init__(self, graph: GraphView, node: NodeProto) -> None:
        self._graph = graph
        self._node = node
        self._arrays = graph.constants
        self._shapes = graph.shapes
        self._known: dict[str, str] = {}
        """Constants that are shared, by name."""
        self._options: dict[str, Any] = attributes(node)
        self._nodes: list[NodeProto] = []
        self._inputs = [*node.input, *[""] * (8 - len(node.input))]
        self._base = node.name or next(name for name in node.output if name)
        self._step = 0

    def write(self) -> list[NodeProto]:
        """Return the nodes that replace a recurrent layer; none for a layer that must stay."""
        data, weights, recurrent, bias, lengths, *states = self._inputs
        shape = self._shapes.get(data, ())
        known = all(
            name in self._arrays and is_float(self._arrays[name]) for name in (weights, recurrent)
        )
        if len(shape) != 3 or not known or (bias and bias not in self._arrays):
            return []
        turned = bool(self._options.get("layout", 0))
        batch, steps = (shape[0], shape[1]) if turned else (shape[1], shape[0])
        whole = not lengths or (lengths in self._arrays and (self._arrays[lengths] == steps).all())
        if (
            not whole
            or states[2]
            or self._options.get("input_forget", 0)
            or not 0 < steps <= MOST_STEPS
        ):
            return []
        directions = self._arrays[weights].shape[0]
        functions = self._functions(directions)
        if functions is None:
            return []
        self._sizes = steps, batch, self._arrays[recurrent].shape[2]
        if turned:
            data = self._make("Transpose", data, what="sequence", perm=[1, 0, 2])
        flat = self._reshape(data, (steps * batch, shape[2]))
        reverse = self._options.get("direction", b"forward") == b"reverse"
        ends = [
            self._direction(number, flat, functions[number], reverse or number == 1)
            for number in range(directions)
        ]
        self._outputs(ends, turned)
        return self._nodes

    def _functions(self, directions: int) -> list[list[Callable[[str, str], str]]] | None:
        """Return the activations of a recurrent layer by direction; None if one is unknown."""
        names = [text.decode() for text in self._options.get("activations", ())]
        names = names or list(_DEFAULTS[self._node.op_type]) * directions
        known = {name.lower(): name for name in _FACTORS}
        if any(name.lower() not in known for name in names):
            return None
        given = {key: list(self._options.get(f"activation_{key}", ())) for key in ("alpha", "beta")}
        found = []
        for name in (known[name.lower()] for name in names):
            factors = {
                key: given[key].pop(0) if given[key] else default
                for key, default in _FACTORS[name].items()
            }
            found.append(self._function(name, factors))
        each = len(found) // directions
        return [found[number * each : (number + 1) * each] for number in range(directions)]

    def _function(self, name: str, factors: Mapping[str, Any]) -> Callable[[str, str], str]:
        clip = self._options.get("clip", 0.0)

        def apply(x: str, what: str) -> str:
            if clip and what != "cell":  # ONNX Runtime does not clip the cell
                limits = self._constant(-clip), self._constant(clip)
                x = self._make("Clip", x, *limits, what=f"{what}_clipped")
            if name == "Affine":
                x = self._make("Mul", x, self._constant(factors["alpha"]), what=f"{what}_scaled")
                return self._make("Add", x, self._constant(factors["beta"]), what=what)
            if name == "ScaledTanh":
                x = self._make("Mul", x, self._constant(factors["beta"]), what=f"{what}_scaled")
                x = self._make("Tanh", x, what=f"{what}_tanh")
                return self._make("Mul", x, self._constant(factors["alpha"]), what=what)
            return self._make(name, x, what=what, **factors)

        return apply

    def _direction(
        self, number: int, flat: str, functions: Sequence[Callable[[str, str], str]], reverse: bool
    ) -> tuple[list[str], str]:
        """Write one direction of a recurrent layer; return its states and last cell state.

        The states are in sequence order, followed by the last one.
        """
        steps, batch, hidden = self._sizes
        weights, recurrent = (self._arrays[name][number] for name in self._inputs[1:3])
        gates = _GATES[self._node.op_type]
        kind = self._node.op_type
        biases = np.zeros((2, gates * hidden), np.float32)
        if self._inputs[3]:
            biases = self._arrays[self._inputs[3]][number].reshape(2, -1)
        apart = np.zeros(gates * hidden, bool)
        if kind == "GRU" and self._options.get("linear_before_reset", 0):
            apart[2 * hidden :] = True
        inner = np.where(apart, biases[1], 0).astype(np.float32)
        row = self._constant(biases[0] + np.where(apart, 0, biases[1]))
        self._label = f"{self._base}_{number}"
        all_inputs = self._make("Gemm", flat, self._constant(weights), row, what="inputs", transB=1)
        h, c = (self._initial(self._inputs[index], number) for index in (5, 6))
        turned = self._constant(np.ascontiguousarray(recurrent.T))
        found = [""] * steps
        for position in range(steps):
            place = steps - 1 - position if reverse else position
            self._step = position
            x = self._slice_axis(all_inputs, place * batch, (place + 1) * batch, 0, "x")
            if kind == "RNN":
                h = functions[0](self._add_products(x, h, turned), "h")
            elif kind == "GRU":
                h = self._gru(x, h, recurrent, inner[2 * hidden :], functions)
            else:
                h, c = self._lstm(x, h, c, turned, functions)
            found[place] = h
        return [*found, h], c

    def _lstm(
        self, x: str, h: str, c: str, recurrent: str, functions: Sequence[Callable[[str, str], str]]
    ) -> tuple[str, str]:
        hidden = self._sizes[2]
        sums = self._add_products(x, h, recurrent)
        gates = functions[0](self._slice_axis(sums, 0, 3 * hidden, 1, "gate_sums"), "gates")
        new = functions[1](self._slice_axis(sums, 3 * hidden, 4 * hidden, 1, "cell_sums"), "new")
        into, out, keep = (
            self._slice_axis(gates, part * hidden, (part + 1) * hidden, 1, what)
            for part, what in enumerate(("input_gate", "output_gate", "forget_gate"))
        )
        cell = self._make("Mul", into, new, what="added")
        if c:
            cell = self._make("Add", self._make("Mul", keep, c, what="kept"), cell, what="c")
        return self._make("Mul", out, functions[2](cell, "cell"), what="h"), cell

    def _gru(
        self,
        x: str,
        h: str,
        recurrent: NDArray[np.float32],
        inner: NDArray[np.float32],
        functions: Sequence[Callable[[str, str], str]],
    ) -> str:
        hidden = self._sizes[2]
        first, last = (np.ascontiguousarray(part.T) for part in np.split(recurrent, [2 * hidden]))
        own = self._slice_axis(x, 2 * hidden, 3 * hidden, 1, "x_new")
        sums = self._add_products(
            self._slice_axis(x, 0, 2 * hidden, 1, "x_gates"), h, self._add_shared("gates", first)
        )
        gates = functions[0](sums, "gates")
        update, reset = (
            self._slice_axis(gates, p * hidden, (p + 1) * hidden, 1, w)
            for p, w in enumerate(("z", "r"))
        )
        if self._options.get("linear_before_reset", 0):
            if h:
                row = self._add_shared("inner", inner)
                other = self._make(
                    "Gemm", h, self._add_shared("new", last), row, what="recurrent_new"
                )
            else:
                zeros = np.broadcast_to(inner, (self._sizes[1], hidden))
                other = self._add_shared("inner rows", np.ascontiguousarray(zeros))
            own = self._make(
                "Add", own, self._make("Mul", reset, other, what="reset"), what="new_sums"
            )
        elif h:
            kept = self._make("Mul", reset, h, what="reset")
            other = self._make("MatMul", kept, self._add_shared("new", last), what="recurrent_new")
            own = self._make("Add", own, other, what="new_sums")
        new = functions[1](own, "new")
        if not h:
            return self._make("Sub", new, self._make("Mul", update, new, what="left"), what="h")
        left = self._make("Mul", update, self._make("Sub", h, new, what="difference"), what="left")
        return self._make("Add", new, left, what="h")

    def _add_products(self, x: str, h: str, recurrent: str) -> str:
        """Add a time step's recurrent product to the input's; a zero state adds nothing."""
        if not h:
            return x
        return self._make(
            "Add", x, self._make("MatMul", h, recurrent, what="recurrent"), what="sums"
        )

    def _initial(self, name: str, number: int) -> str:
        """Return a recurrent layer's initial state (batch, hidden) for one direction.

        The name is empty if the state is 0.
        """
        _, batch, hidden = self._sizes
        if not name or (name in self._arrays and not self._arrays[name].any()):
            return ""
        self._label = f"{self._base}_{number}"
        self._step = 0
        states = name
        if self._options.get("layout", 0):
            states = self._make("Transpose", states, what="states", perm=[1, 0, 2])
        own = self._slice_axis(states, number, number + 1, 0, "initial")
        return self._reshape(own, (batch, hidden))

    def _outputs(self, ends: Sequence[tuple[list[str], str]], turned: bool) -> None:
        steps, batch, hidden = self._sizes
        names = [*self._node.output, "", "", ""][:3]
        directions = len(ends)
        listed = [ends[number][0][step] for step in range(steps) for number in range(directions)]
        lasts = [[found[-1] for found, _ in ends], [cell for _, cell in ends]]
        if names[0]:
            parts = [self._reshape(name, (1, batch, hidden)) for name in listed]
            joined = (
                self._make("Concat", *parts, what="states", axis=0) if len(parts) > 1 else parts[0]
            )
            if turned:
                apart = self._reshape(joined, (steps, directions, batch, hidden))
                self._make("Transpose", apart, result=names[0], perm=[2, 0, 1, 3])
            else:
                self._reshape(joined, (steps, directions, batch, hidden), names[0])
        for name, states in zip(names[1:], lasts, strict=True):
            if name:
                own = "" if turned or directions > 1 else name
                parts = [self._reshape(state, (1, batch, hidden), own) for state in states]
                whole = "" if turned else name
                joined = (
                    parts[0]
                    if directions == 1
                    else self._make("Concat", *parts, result=whole, what="last", axis=0)
                )
                if turned:
                    self._make("Transpose", joined, result=name, perm=[1, 0, 2])

    def _constant(self, array: ArrayLike) -> str:
        return self._graph.constant(f"{self._base}_constant", np.asarray(array, np.float32))

    def _add_once(self, name: str, array: NDArray[Any]) -> str:
        if name not in self._known:
            self._known[name] = self._graph.constant(name, array)
        return self._known[name]

    def _add_shared(self, what: str, array: NDArray[np.float32]) -> str:
        """Add a constant that all time steps of a direction share, once; return its name."""
        return self._add_once(f"{self._label}_{what.replace(' ', '_')}_weights", array)

    def _make(
        self, op_type: str, *inputs: str, what: str = "", result: str = "", **options: Any
    ) -> str:
        label = getattr(self, "_label", self._base)
        name = result or make_unused_step_name(f"{label}_{what}", self._step, self._graph.taken)
        self._nodes.append(helper.make_node(op_type, list(inputs), [name], name, **options))
        return name

    def _slice_axis(self, name: str, first: int, last: int, axis: int, what: str) -> str:
        bounds = (self._integers(value) for value in (first, last, axis))
        return self._make("Slice", name, *bounds, what=what)

    def _integers(self, *values: int) -> str:
        return self._add_once(
            f"{self._base}_integers_{'_'.join(map(str, values))}", np.array(values, np.int64)
        )

    def _reshape(self, name: str, shape: tuple[int, ...], result: str = "") -> str:
        return self._make("Reshape", name, self._integers(*shape), what="flat", result=result)


def is_float(array: NDArray[Any]) -> bool:
    """Return True if constant weights are float32, the type that is quantised."""
    return bool(array.dtype == np.float32)
