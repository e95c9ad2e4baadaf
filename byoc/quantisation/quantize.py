"""Float ONNX model → int8 QDQ model, by ONNX Runtime's static quantiser."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import proxy

import numpy as np
from onnx import ModelProto, NodeProto

from byoc.frontend.onnx.closures import Closure, float_closures
from byoc.frontend.onnx.reading import build_view, captured_names, read_node
from byoc.frontend.onnx.rewriting.edit import ConstantArrays, add_constant, copy_model, is_float32, sort_nodes
from byoc.frontend.onnx.shapes import tensor_types
from byoc.operators.registry import installed
from byoc.quantisation.calibrate import (
    Feeds,
    Ranges,
    default_feeds,
    has_floats,
    observe_ranges,
    share_ranges,
    useful_limits,
)


def quantised_operators() -> tuple[str, ...]:
    """What the operator families want quantised: what the accelerator can run, and what merely passes values on."""
    return tuple(name for name, (_, form) in installed().forms.items() if form.quantise)


def quantise(model: ModelProto, calibration: Iterable[Feeds] | None = None, seed: int = 0) -> ModelProto:
    """The int8 QDQ form of a prepared float model (``byoc.frontend.onnx.rewriting.prepare.prepare``).

    Activations: int8, per tensor, asymmetric, from the smallest and largest value seen on ``calibration`` (one mapping
    from input name to array a step); operands and results of Concat, Min and Max share one quantisation where that
    costs no activation. Weights: int8, symmetric, per output channel. Biases: int32. Without ``calibration`` the inputs
    are four draws of standard-normal numbers from ``seed``. Relu and Clip behind another quantised operator vanish into
    its output's range. What is computed element by element from one quantised tensor is quantised where it ends and
    nowhere inside. Operators that the accelerator cannot run stay float. Deterministic; writes no file; the argument is
    not changed. A model whose operators compute and read no float value is returned as it is.
    """
    return quantise_within(model, find_ranges(model, calibration, seed))


def find_ranges(model: ModelProto, calibration: Iterable[Feeds] | None = None, seed: int = 0) -> Ranges:
    """The first half of :func:`quantise`: the ranges that tensors are quantised in; none where nothing is float."""
    if not has_floats(model):
        return {}
    feeds = default_feeds(model, seed) if calibration is None else calibration
    return share_ranges(model, observe_ranges(model, feeds))


def quantise_within(model: ModelProto, ranges: Ranges) -> ModelProto:
    """The second half of :func:`quantise`: a ``model`` that its caller does not keep is gone while it runs."""
    if not has_floats(model):
        return copy_model(model)
    with _quiet():
        quantizer, outputs = _instructed(model, ranges), len(model.graph.output)
        del model
        quantizer.quantize_model()
        quantizer.model.topological_sort()
    result: ModelProto = quantizer.model.model
    sort_nodes(result.graph)  # the quantiser's order does not mind what bodies read
    del result.graph.output[outputs:]
    kept = [entry for entry in result.metadata_props if entry.key != _MARK]
    del result.metadata_props[:]
    result.metadata_props.extend(kept)
    return copy_model(result)  # without the memory of all that the quantiser replaced


def _instructed(model: ModelProto, ranges: Ranges) -> Any:
    """ONNX Runtime's quantiser, told what to quantise."""
    closures = _quantised_closures(model)
    stay_float = _float_nodes(model, {closure.result for closure in closures})
    makers = {output: node for node in model.graph.node for output in node.output}
    stay_float += [makers[node.outputs[0]].name for closure in closures for node in closure.nodes]
    bordered = [node for node in model.graph.node if _has_parameters(node) and node.name not in stay_float]
    stay_float += [node.name for node in bordered]
    quantizer = _quantizer(model, ranges, stay_float)
    # The quantiser skips activations whose operand nobody else has quantised.
    clamps = {name for name, (_, form) in installed().forms.items() if form.clamps}
    for node in model.graph.node:
        if node.op_type in clamps and node.name not in stay_float:
            quantizer.quantize_activation_tensor(node.input[0])
    for node in bordered:
        quantizer.quantize_activation_tensor(node.input[0])
        quantizer.quantize_activation_tensor(node.output[0])
    inputs = {value.name for value in model.graph.input}
    for closure in closures:
        for name in (closure.source, closure.result) if closure.source in inputs else (closure.result,):
            quantizer.quantize_activation_tensor(name)
    return quantizer


_MARK = "onnx.infer"
"""The quantiser writes the model to a file and infers shapes again unless it finds this mark."""


def _quantizer(model: ModelProto, ranges: Ranges, stay_float: list[str]) -> Any:
    """ONNX Runtime's quantiser on a copy of the model, to whose outputs are added what bodies read of it."""
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    source = copy_model(model)
    _cut_constants(source, ranges)
    # The quantiser does not see who reads a tensor inside a body; it leaves alone what the model shows.
    captured = _captured(model) - {value.name for value in model.graph.output}
    source.graph.output.extend(value for value in model.graph.value_info if value.name in captured)
    source.metadata_props.add(key=_MARK, value="onnxruntime.quant")
    quantizer = QDQQuantizer(
        source,
        True,  # per channel
        False,  # full 8-bit range
        QuantType.QInt8,
        QuantType.QInt8,
        TensorsData(CalibrationMethod.MinMax, dict(ranges)),
        [],
        stay_float,
        list(quantised_operators()),
        {
            "ForceQuantizeNoInputCheck": True,
            "WeightSymmetric": True,
            "TensorQuantOverrides": {**_own_ranges(model, ranges), **_single_scales(model)},
        },
    )
    _leave_room(quantizer)
    _remember_readers(quantizer.model)
    return quantizer


def _remember_readers(model: Any) -> None:
    """Let the quantiser's model know who reads what: it asks all nodes for each tensor, which takes their square.

    It renames what the nodes read that are there when it begins, each name before any other node reads it.
    """
    readers: dict[str, list[NodeProto]] = {}
    rename = type(model).replace_node_input  # not of itself, for the same reason as below
    for node in model.model.graph.node:
        for name in set(node.input):
            readers.setdefault(name, []).append(node)

    def replace(old: str, new: str) -> None:
        moved = readers.pop(old, [])
        for node in moved:
            rename(node, old, new)
        readers.setdefault(new, []).extend(moved)

    model.replace_input_of_all_nodes = replace


def _leave_room(quantizer: Any) -> None:
    """Let biases be at most 2**30: the sums of a product need room beside them.

    Where a bias would not fit int32 the quantiser gives the weights a coarser scale; now, where its double would not.
    """
    from onnx import numpy_helper

    # A reference to itself would keep it and all its weights.
    adjust = partial(type(quantizer)._adjust_weight_scale_for_int32_bias, proxy(quantizer))

    def adjusted(input_scale: Any, weight_scale: Any, weight_name: str, bias: Any, is_per_channel: bool) -> Any:
        doubled = numpy_helper.from_array(2 * numpy_helper.to_array(bias), bias.name)
        return adjust(input_scale, weight_scale, weight_name, doubled, is_per_channel)

    quantizer._adjust_weight_scale_for_int32_bias = adjusted


def _captured(model: ModelProto) -> set[str]:
    """Tensors that the bodies of control flow read from outside."""
    return {name for node in model.graph.node for name in captured_names(node)}


def _own_ranges(model: ModelProto, ranges: Ranges) -> dict[str, list[dict[str, Any]]]:
    """Ranges that the quantiser must not take from the clamp behind them, for the model's outputs show them, too."""
    outputs = {value.name for value in model.graph.output} | _captured(model)
    clamps = {name for name, (_, form) in installed().forms.items() if form.clamps}
    shown = {node.input[0] for node in model.graph.node if node.op_type in clamps} & outputs & ranges.keys()
    return {name: [dict(zip(("rmin", "rmax"), ranges[name], strict=True))] for name in sorted(shown)}


def _cut_constants(model: ModelProto, ranges: Ranges) -> None:
    """Bring constant operands into the limits beyond which they make no difference to the result, in place.

    Not those of nodes that stay float, where results are not cut.
    """
    constants = ConstantArrays(model.graph, is_float32)
    float_nodes = set(_float_nodes(model, ()))
    for node in model.graph.node:
        if node.name in float_nodes:
            continue
        for position, limits in useful_limits(node, ranges, constants):
            array = constants.get(node.input[position])
            if array is not None and array.size and (array.min() < limits[0] or array.max() > limits[1]):
                within = np.clip(array, np.float32(limits[0]), np.float32(limits[1]))
                node.input[position] = add_constant(model.graph, f"{node.output[0]}_within{position}", within)


def _single_scales(model: ModelProto) -> dict[str, list[dict[str, Any]]]:
    """Overrides for the constant operands that can have one scale only."""
    constants = ConstantArrays(model.graph, lambda tensor: True)
    forms = installed().forms
    known = [(forms[node.op_type][0], node) for node in model.graph.node if node.op_type in forms]
    found = {name for family, node in known for name in family.single_scales(read_node(node, node.name), constants)}
    return {name: [{"symmetric": True}] for name in sorted(found)}


def _quantised_closures(model: ModelProto) -> tuple[Closure, ...]:
    """Closures that begin at a quantised tensor, at an input of the model, or where another of them ends."""
    found = float_closures(build_view(model, *tensor_types(model)))
    results = set(found)
    while True:
        stay_float = set(_float_nodes(model, results))
        known = {value.name for value in model.graph.input} | results
        for node in model.graph.node:
            if _is_quantised_operator(node) and node.name not in stay_float:
                known.update(node.output)
        kept = {name for name in results if found[name].source in known}
        if kept == results:
            return tuple(closure for name, closure in found.items() if name in kept)
        results = kept


def _float_nodes(model: ModelProto, closed: Collection[str]) -> list[str]:
    """Names of nodes that stay float: those whose family says so, and those that pass on what float operators make.

    ``closed`` are results of closures, which are quantised.
    """
    constants = ConstantArrays(model.graph, lambda tensor: True)
    producers = {output: node for node in model.graph.node for output in node.output if output not in closed}
    return [node.name for node in model.graph.node if _stays_float(node, constants, producers)]


def _stays_float(node: NodeProto, constants: ConstantArrays, producers: Mapping[str, NodeProto]) -> bool:
    forms = installed().forms
    if node.op_type not in forms:
        return False
    if all(name in constants for name in node.input if name):
        return True
    family, form = forms[node.op_type]
    if form.passive:
        if form.operands == 1 and node.input[0] in constants:
            return True  # rows of a table by run-time indices: nothing that is quantised passes through
        made_by = [producers.get(name) for name in node.input if name not in constants]
        if all(maker is not None and not _is_quantised_operator(maker) for maker in made_by):
            return True
    return family.stays_float(read_node(node, node.name), constants)


def _has_parameters(node: NodeProto) -> bool:
    """Whether a node is quantised at its data only: its other operands stay real numbers."""
    found = installed().forms.get(node.op_type)
    return found is not None and found[1].quantise and bool(found[1].parameters)


def _is_quantised_operator(node: NodeProto) -> bool:
    found = installed().forms.get(node.op_type)
    return found is not None and found[1].quantise


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the quantiser's messages from the root logger, and ``logging.warning`` from configuring it."""
    root, handler = logging.getLogger(), logging.NullHandler()
    level: Any = logging.root.manager.disable
    root.addHandler(handler)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        root.removeHandler(handler)
