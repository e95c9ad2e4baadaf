"""Convert a float ONNX model to int8 QDQ form: plan the quantisation, then write it.

Tests compare every scale and every integer with ONNX Runtime's static quantiser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto
from onnx.helper import make_node

from byoc.frontend.onnx.reading import list_captured_names, read_node
from byoc.operators.forms import Form
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.operators.operator import Operator
from byoc.operators.registry import load_installed_families
from byoc.quantisation.calibrate import (
    NO_FEEDS,
    NO_STATE,
    Feeds,
    Pairs,
    Ranges,
    default_feeds,
    has_floats,
    observe_ranges,
    share_ranges,
    useful_limits,
)
from byoc.quantisation.float_nodes import find_quantised_closures, list_float_nodes
from byoc.runtimes.protobuf import (
    ConstantArrays,
    add_tensor,
    all_nodes,
    copy_model,
    is_float32,
    make_unused_name,
    names_of,
    remove_initializers,
    sort_nodes_in_waves,
    use_counts,
)
from isa.numerics import steps
from isa.numerics.requantising import INT8_LOW, INT32_HIGH

Scale = NDArray[np.float32]
GivenScale = tuple[Scale, NDArray[np.int8]]
"""Scale and zero point that a file gives a tensor."""


def quantise(
    model: ModelProto, calibration: Iterable[Feeds] | None = None, seed: int = 0
) -> ModelProto:
    """Quantise a prepared float model to int8 QDQ form.

    ``byoc.frontend.onnx.rewriting.prepare.prepare`` prepares it. Activations are int8, per tensor
    and asymmetric, with the range observed on ``calibration`` (one mapping from input name to array
    per sample). Operands and results of Concat, Min and Max share one quantisation unless that
    prevents removing an activation. Weights are int8, symmetric, per output channel. Biases are
    int32. Without ``calibration`` the samples are four draws of standard-normal numbers from
    ``seed``.

    A Relu or Clip after another quantised operator is removed: the range of that operator's output
    implies it. A chain of element-wise operators on one quantised tensor is quantised only at its
    end. Operators that the accelerator cannot run stay float. The function does not change its
    argument. A model whose operators compute and read no float value is returned as a copy.
    """
    return quantise_within(model, find_ranges(model, calibration, seed))


def find_ranges(
    model: ModelProto,
    calibration: Iterable[Feeds] | None = None,
    seed: int = 0,
    heard: Callable[[Feeds], None] = lambda outputs: None,
    state: Pairs = NO_STATE,
    initial: Feeds = NO_FEEDS,
) -> Ranges:
    """Return the ranges of a float model's tensors, the first half of :func:`quantise`.

    ``heard`` receives the model's outputs per sample. An input that is ``state`` has the range of
    its output and of its ``initial`` value.
    """
    if not has_floats(model):
        return {}
    feeds = default_feeds(model, seed) if calibration is None else calibration
    return share_ranges(model, observe_ranges(model, feeds, heard), state, initial)


def quantise_within(
    model: ModelProto,
    ranges: Ranges,
    given: Mapping[str, GivenScale] | None = None,
    on_grids: bool = False,
    state: Pairs = NO_STATE,
    writer: Callable[..., BoundaryWriter] | None = None,
) -> ModelProto:
    """Quantise a model with known ranges, the second half of :func:`quantise`.

    Tensors in ``given`` keep those scales, and ``state`` inputs have the scales of their outputs.
    With ``on_grids``, constants that are multiples of a step, because they were integers in the
    file, keep that step. ``writer`` replaces :class:`BoundaryWriter`. The function releases
    ``model`` early, which can free its memory.
    """
    if not has_floats(model):
        return copy_model(model)
    made = (writer or BoundaryWriter)(model, ranges, given or {}, on_grids, state)
    del model
    return made.write_model()


@dataclass(frozen=True)
class Scaling:
    """Quantisation of a constant: one scale or one per position of ``axis``, symmetric or not."""

    axis: int | None = None
    symmetric: bool = True


class _Plan:
    """Quantisation plan of a float model's tensors, made in one pass in execution order."""

    def __init__(
        self,
        model: ModelProto,
        ranges: Ranges,
        given: Mapping[str, GivenScale],
        in_float: Collection[str] = (),
        wide: Collection[str] = (),
    ) -> None:
        graph = model.graph
        self.ranges = dict(ranges)
        self.given = given
        self.roots: dict[str, str] = {}
        """Quantised tensors, mapped to the tensor whose scale they use (or themselves)."""
        self.absorbed: dict[str, str] = {}
        """Operand of every removed clamp, mapped to the clamp's result, which replaces it."""
        self.scalings: dict[tuple[str, int], Scaling] = {}
        """Quantisation of constant operands, by the node's name and operand position."""
        self.biases: set[str] = set()
        """Names of nodes whose third operand is a constant bias, and whose factors are quantised.

        The bias has the scale of the node's products. A factor of unknown type stays float.
        """
        self.constants = ConstantArrays(graph, is_float32)
        self.inputs = {value.name for value in graph.input}
        self.shown = {value.name for value in graph.output} | {
            n for node in graph.node for n in list_captured_names(node)
        }
        self._readers = Counter(name for node in graph.node for name in node.input)
        kept = {name for node in graph.node if node.name in in_float for name in node.output}
        self.in_float = in_float
        self.wide = wide
        self.real = {*kept, *wide, *self.inputs}
        """Tensors that exist in float, for nodes in float to read."""
        closures = [
            closure
            for closure in find_quantised_closures(model)
            if kept.isdisjoint(node.outputs[0] for node in closure.nodes)
        ]
        inside = {node.outputs[0] for closure in closures for node in closure.nodes}
        closed = {closure.result for closure in closures}
        stay_float = {*list_float_nodes(model, closed), *in_float}
        for closure in closures:
            self._mark(closure.result, *([closure.source] if closure.source in self.inputs else []))
        for node in graph.node:
            found = load_installed_families().forms.get(node.op_type)
            if (
                found is not None
                and found[1].quantise
                and not (node.name in stay_float or node.output[0] in inside)
            ):
                self._visit(node, *found)

    def share_state(self, state: Pairs) -> None:
        """Use the scale of each state output for its input, and for tensors with that scale."""
        for old, new in ((self.roots.get(one), self.roots.get(two)) for one, two in state.items()):
            self.roots |= {name: new for name, root in self.roots.items() if new and root == old}

    def find_result(self, name: str) -> str:
        """Return the tensor that replaces the operand of removed clamps, or ``name`` itself."""
        while name in self.absorbed:
            name = self.absorbed[name]
        return name

    def _visit(self, node: NodeProto, family: type[Operator], form: Form) -> None:
        result = node.output[0]
        if form.limits is not None and result in self.ranges:
            self.ranges[result] = np.float32(form.limits[0]), np.float32(form.limits[1])
        if form.weights:
            self._product(node, form)
        elif form.clamps:
            self._clamp(node)
        else:
            data = node.input if form.operands is None else node.input[: form.operands]
            for position, name in enumerate(data):
                if name in self.constants:
                    self.scalings[node.name, position] = Scaling(symmetric=False)
            self._mark(*data)
        self._mark(*(name for name in node.output if name not in self.wide))
        if form.ranges == "first" and result in self.roots and node.input[0] in self.roots:
            self.roots[result] = self.roots[node.input[0]]

    def _mark(self, *names: str) -> None:
        self.roots.update(
            (name, name) for name in names if name in self.ranges and name not in self.roots
        )

    def _product(self, node: NodeProto, form: Form) -> None:
        """Plan a product: symmetric constants, weights with a scale per channel if possible."""
        view = read_node(node, node.name)
        for position, name in enumerate(node.input[:2]):
            if name in self.constants:
                axis = form.channel_axis(view, self.constants[name].ndim) if position else None
                self.scalings[node.name, position] = Scaling(axis)
        self._mark(*node.input[:2])
        known = all(name in self.roots or name in self.constants for name in node.input[:2])
        if known and view.input(2) in self.constants:
            self.biases.add(node.name)

    def _clamp(self, node: NodeProto) -> None:
        """Plan a clamp node: remove the node if it is its operand's only consumer.

        The operand then gets the result's range. A given scale may not imply the clamp.
        """
        operand = node.input[0]
        result = node.output[0]
        self._mark(operand)
        if operand not in self.ranges or result not in self.ranges or result in self.given:
            return
        if self._readers[operand] == 1 and operand not in self.shown:
            self.ranges[operand] = self.ranges[result]
            if operand not in self.inputs:
                self.absorbed[operand] = result
                del self.roots[operand]


@dataclass(eq=False)
class TensorParameters:
    """Scale and zero point of a tensor, their names once they are written, and bits of a number."""

    scale: Scale
    zero_point: NDArray[np.int8]
    names: tuple[str, str] | None = None
    bits: int = 8


class BoundaryWriter:
    """Writer of a quantised model.

    Every new tensor and node gets a name that the model does not use. The nodes named ``in_float``
    stay float. Consumers that are quantised use the tensors ``wide`` in int8; others in float.
    """

    def __init__(
        self,
        model: ModelProto,
        ranges: Ranges,
        given: Mapping[str, GivenScale],
        on_grids: bool,
        state: Pairs,
        in_float: Collection[str] = (),
        wide: Collection[str] = (),
    ) -> None:
        model = _clip_constants(model, ranges, in_float)
        self._plan = plan = _Plan(model, ranges, given, in_float, wide)
        plan.share_state(state)
        self._given = model
        self._model = remove_initializers(model)
        self._graph = self._model.graph
        nodes = list(all_nodes(model.graph))
        self._taken = names_of(model.graph) | {
            name for node in nodes for name in (*node.input, *node.output)
        }
        self._node_names = {node.name for node in nodes}
        self._nodes: list[NodeProto] = []
        self._integers: dict[str, str] = {}
        # dequantised tensor that consumers of a quantised tensor read
        self._real: dict[str, str] = {}
        self._constants: dict[tuple[str, Scaling], str] = {}
        self._tensors = {
            name: TensorParameters(*plan.given[name])
            if name in plan.given
            else _make_parameters(*map(np.asarray, plan.ranges[name]), symmetric=False)
            for name in {*plan.roots.values()}
        }
        self._weights = {
            (node.input[position], scaling): _constant_parameters(
                plan.constants[node.input[position]], scaling, on_grids
            )
            for node in model.graph.node
            for position in range(len(node.input))
            if (scaling := plan.scalings.get((node.name, position))) is not None
        }

    def write_model(self) -> ModelProto:
        given = list(self._graph.node)
        del self._graph.node[:]
        for node in given:
            self._leave_room(node)
        for value in self._graph.input:
            if value.name in self._plan.roots:
                self._pair(value.name, value.name)
        gone = {self._plan.absorbed[name]: name for name in self._plan.absorbed}
        for node in given:
            if [gone.get(node.output[0])] != node.input[:1]:
                self._write(node)
        self._graph.node.extend(self._nodes)
        sort_nodes_in_waves(self._graph)
        used = use_counts(self._graph)
        for tensor in self._given.graph.initializer:
            if used[tensor.name]:
                self._graph.initializer.add().CopyFrom(tensor)
        return self._model

    def _write(self, node: NodeProto) -> None:
        """Write a node that reads dequantised tensors, and quantise its results."""
        operands = list(node.input)
        exact = self._plan.real if node.name in self._plan.in_float else ()
        for position, name in enumerate(operands):
            scaling = self._plan.scalings.get((node.name, position))
            if scaling is not None:
                node.input[position] = self._constant(name, scaling)
            elif position == BIAS and node.name in self._plan.biases:
                node.input[position] = self._bias(name, self._product_scale(node, operands))
            else:
                node.input[position] = name if name in exact else self._real.get(name, name)
        results = []
        for position, name in enumerate(node.output):
            source = name = self._plan.find_result(name)
            if name in self._plan.roots:
                source = (
                    self._name(f"{name}_QuantizeLinear_Input") if name in self._plan.shown else name
                )
                results.append((name, source))
            node.output[position] = source
        self._nodes.append(node)
        for name, source in results:
            self._pair(name, source)

    def _pair(self, name: str, source: str) -> None:
        """Add a QuantizeLinear and a DequantizeLinear after ``source``.

        The result is named ``name``, or gets a new name if ``name`` is ``source``.
        """
        parameters = self._tensors[root := self._plan.roots[name]]
        scale, zero_point = self._write_parameters(parameters, root)
        self._integers[name] = steps_name = self._name(f"{name}_QuantizeLinear_Output")
        self._real[name] = name if source != name else self._name(f"{name}_DequantizeLinear_Output")
        self._add(QUANTIZE, name, [source, scale, zero_point], steps_name)
        self._add(DEQUANTIZE, name, [steps_name, scale, zero_point], self._real[name])

    def _constant(self, name: str, scaling: Scaling) -> str:
        if (name, scaling) not in self._constants:
            parameters = self._weights[name, scaling]
            array = self._plan.constants[name]
            scale, zero_point = (
                broadcast_along(part, array, scaling.axis)
                for part in (parameters.scale, parameters.zero_point)
            )
            half = 1 << parameters.bits - 1
            integers = np.clip(steps(array, scale, zero_point, np.int8), -half, half - 1)
            inputs = [
                self._tensor(f"{name}_quantized", integers),
                *self._write_parameters(parameters, name),
            ]
            self._constants[name, scaling] = self._add_dequantised(name, inputs, scaling.axis)
        return self._constants[name, scaling]

    def _bias(self, name: str, scale: Scale) -> str:
        bias = self._plan.constants[name]
        scale = scale.reshape(-1)
        integers = self._round_bias(bias, scale)
        zeros = np.zeros(scale.shape if scale.size > 1 else (), np.int32)
        labels = f"{name}_quantized", f"{name}_quantized_scale", f"{name}_quantized_zero_point"
        inputs = [
            self._tensor(*pair) for pair in zip(labels, (integers, scale, zeros), strict=True)
        ]
        return self._add_dequantised(name, inputs, 0 if scale.size > 1 else None)

    def _round_bias(self, bias: NDArray[np.float32], scale: Scale) -> NDArray[np.int32]:
        """Return a bias in steps of ``scale``."""
        return steps(bias.astype(np.float64), scale.astype(np.float64), 0, np.int32)

    def _add_dequantised(self, name: str, inputs: Sequence[str], axis: int | None) -> str:
        result = self._name(f"{name}_DequantizeLinear_Output")
        self._add(DEQUANTIZE, name, inputs, result, **({} if axis is None else {"axis": axis}))
        return result

    def _product_scale(self, node: NodeProto, operands: Sequence[str]) -> Scale:
        """Return the scale of a node's products: the product of its operands' scales."""
        first, second = (
            self._parameters(node, position, operands[position]).scale for position in range(2)
        )
        return np.asarray(first * second)

    def _parameters(self, node: NodeProto, position: int, name: str) -> TensorParameters:
        scaling = self._plan.scalings.get((node.name, position))
        return (
            self._tensors[self._plan.roots[name]]
            if scaling is None
            else self._weights[name, scaling]
        )

    def _leave_room(self, node: NodeProto) -> None:
        """Coarsen a weight scale if the bias would take more than half of the accumulator."""
        if node.name not in self._plan.biases or (node.name, 1) not in self._plan.scalings:
            return
        weights = self._parameters(node, 1, node.input[1])
        first = self._parameters(node, 0, node.input[0]).scale.astype(np.float64)
        weights.scale = _coarser(weights.scale, first, self._plan.constants[node.input[BIAS]])

    def _write_parameters(self, parameters: TensorParameters, name: str) -> tuple[str, str]:
        """Return the names of a tensor's scale and zero point; write both on the first call."""
        if parameters.names is None:
            zero_point = self._tensor(f"{name}_zero_point", parameters.zero_point)
            parameters.names = self._tensor(f"{name}_scale", parameters.scale), zero_point
        return parameters.names

    def _tensor(self, name: str, array: NDArray[np.generic]) -> str:
        return add_tensor(self._graph, self._name(name), array)

    def _name(self, name: str) -> str:
        return make_unused_name(name, self._taken)

    def _add(
        self, op_type: str, name: str, inputs: Sequence[str], result: str, **options: Any
    ) -> None:
        label = make_unused_name(f"{name}_{op_type}", self._node_names)
        self._nodes.append(make_node(op_type, list(inputs), [result], label, **options))


BIAS = 2
"""Operand position of the bias of a product."""


def _constant_parameters(
    array: NDArray[np.float32], scaling: Scaling, on_grids: bool
) -> TensorParameters:
    """Return scale and zero point of a constant, per tensor or per channel."""
    others = (
        None
        if scaling.axis is None
        else tuple(axis for axis in range(array.ndim) if axis != scaling.axis)
    )
    low = array.min(axis=others, initial=0)
    high = array.max(axis=others, initial=0)
    if scaling.symmetric:
        high = np.maximum(-low, high)
        low = -high
    found = _make_parameters(np.asarray(low), np.asarray(high), symmetric=scaling.symmetric)
    if on_grids and scaling.symmetric and array.size:
        rows = array.reshape(1, -1) if others is None else np.moveaxis(array, scaling.axis or 0, 0)
        pairs = zip(rows.reshape(len(rows), -1), found.scale.reshape(-1), strict=True)
        steps_found = [_find_step(row, scale) for row, scale in pairs]
        found.scale = np.asarray(steps_found, np.float32).reshape(found.scale.shape)
    return found


_GRID = 1e-3
"""Largest distance from a multiple of a step, in steps, of a number that was an integer."""


def _find_step(row: NDArray[np.float32], otherwise: np.float32) -> np.float32:
    """Return the largest step that divides each number of a row into at most 128 whole steps.

    Returns ``otherwise`` if there is no such step.
    """
    top = row[np.abs(row).argmax()].astype(np.float64)
    counts = np.arange(1, 129 if top < 0 else 128)
    found = abs(top) / counts if top else np.empty(0)
    for part in (row[:16], row[:256], row):
        multiples = part.astype(np.float64) / found[:, np.newaxis]
        near = (np.abs(multiples - np.rint(multiples)) < _GRID).all(1)
        found = found[near]
        if not found.size:
            return otherwise
    return np.float32(found[0])


def _make_parameters(
    low: NDArray[np.float32], high: NDArray[np.float32], *, symmetric: bool
) -> TensorParameters:
    """Return scale and zero point that divide a range into 255 steps, or 254 if symmetric.

    The range is ``low`` to ``high``. 0 is one of the steps. An empty range gets steps of 1.
    Computed in float64 and rounded once, as by ``compute_scale_zp`` in
    onnxruntime/python/tools/quantization/quant_utils.py.
    """
    low = np.minimum(low, np.float32(0))
    high = np.maximum(high, np.float32(0))
    exact = (high.astype(np.float64) - low) / (254 if symmetric else 255)
    empty = exact < np.finfo(np.float32).tiny
    exact = np.where(empty, 1.0, exact)
    zero_point = (
        np.zeros(exact.shape) if symmetric else np.where(empty, 0, np.rint(INT8_LOW - low / exact))
    )
    return TensorParameters(exact.astype(np.float32), zero_point.astype(np.int8))


def broadcast_along(values: NDArray[Any], array: NDArray[Any], axis: int | None) -> NDArray[Any]:
    """Reshape one value per position of ``axis`` so that it broadcasts against ``array``."""
    return (
        values
        if axis is None
        else values.reshape([-1 if number == axis else 1 for number in range(array.ndim)])
    )


ROOM = 1.0001
"""Factor that makes a step slightly larger, so that rounding cannot exceed the integer range."""


def _coarser(scale: Scale, first: NDArray[np.float64], bias: NDArray[np.float32]) -> Scale:
    """Coarsen weight scales until no quantised bias takes more than half of int32.

    The rest is room for the sums. Follows ``_adjust_weight_scale_for_int32_bias`` in
    onnxruntime/python/tools/quantization/qdq_quantizer.py, which allows all of int32. A single
    scale is computed in float64, channel scales in float32.
    """
    doubled = 2 * np.abs(bias.reshape(-1))
    largest = doubled if scale.ndim else np.asarray(doubled.max(initial=0), np.float64)
    smallest = ROOM * (2.0 * largest) / np.float64(2 * INT32_HIGH)
    products = first * scale.astype(np.float64)
    short = (products < smallest) & (products > 0)
    wanted = scale * (smallest / np.where(short, products, 1))
    return np.where(short, wanted, scale).astype(np.float32)


# Float nodes.


def _clip_constants(model: ModelProto, ranges: Ranges, in_float: Collection[str]) -> ModelProto:
    """Clip constant operands to the limits beyond which they do not change the result.

    Constants of nodes that stay float are not clipped, because no quantisation clips their results.
    """
    constants = ConstantArrays(model.graph, is_float32)
    cut: dict[tuple[int, int], NDArray[np.float32]] = {}
    for index, node in enumerate(model.graph.node):
        for position, limits in useful_limits(node, ranges, constants):
            array = constants.get(node.input[position], np.empty(0))
            if array.size and (array.min() < limits[0] or array.max() > limits[1]):
                cut[index, position] = np.clip(array, np.float32(limits[0]), np.float32(limits[1]))
    if cut:
        closed = {closure.result for closure in find_quantised_closures(model)}
        kept = {*list_float_nodes(model, closed), *in_float}
        cut = {at: cut[at] for at in cut if model.graph.node[at[0]].name not in kept}
    if not cut:
        return model
    result = copy_model(model)
    taken = names_of(result.graph)
    for (index, position), array in cut.items():
        node = result.graph.node[index]
        name = make_unused_name(f"{node.output[0]}_within{position}", taken)
        node.input[position] = add_tensor(result.graph, name, array)
    return result
