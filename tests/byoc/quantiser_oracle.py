"""Quantise a model with ONNX Runtime's static quantiser, the oracle of all scales and integers.

It gets the same instructions as the project's quantiser.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, numpy_helper
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from byoc.frontend.onnx.reading import list_captured_names
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.operators.registry import load_installed_families
from byoc.quantisation import quantize
from byoc.quantisation.calibrate import Ranges, has_floats
from byoc.quantisation.float_nodes import find_quantised_closures, list_float_nodes
from byoc.runtimes.protobuf import copy_model
from experiments.models import MODELS

Step = tuple[str, ...]
"""How something is computed, as texts that can be compared."""


def quantise_by_onnxruntime(model: ModelProto, ranges: Ranges) -> ModelProto:
    """Do the work of :func:`byoc.quantisation.quantize.quantise_within` with ONNX Runtime."""
    if not has_floats(model):
        return copy_model(model)
    with _quiet():
        quantizer = _instructed(model, ranges)
        outputs = len(model.graph.output)
        quantizer.quantize_model()
    result: ModelProto = quantizer.model.model
    del result.graph.output[outputs:]
    return result


def differences(name: str) -> list[str]:
    """Return nodes of a built-in network whose inputs differ from ONNX Runtime's quantiser."""
    model = prepare(MODELS[name].build(0))
    ranges = quantize.find_ranges(model, islice(MODELS[name].calibration(0), 1))
    theirs = described(quantise_by_onnxruntime(model, ranges))
    ours = described(quantize.quantise_within(model, ranges))
    return sorted(
        node for node in ours.keys() | theirs.keys() if ours.get(node) != theirs.get(node)
    )


def described(model: ModelProto) -> dict[str, tuple[Step, ...]]:
    """Return the inputs of every node except QuantizeLinear and DequantizeLinear, by node name.

    Names of tensors do not matter. The key ``outputs`` has the model's outputs. Scales, zero points
    and integers are given with all their bits.
    """
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    boundaries = (QUANTIZE, DEQUANTIZE)

    def source(name: str) -> Step:
        if name in constants:
            array = constants[name]
            return array.dtype.name, str(array.size), array.tobytes().hex()
        node = makers.get(name)
        if node is None:
            return (name,)
        if node.op_type in boundaries:
            axis = [str(item.i) for item in node.attribute if item.name == "axis"]
            return (
                node.op_type,
                *axis,
                *(text for operand in node.input for text in source(operand)),
            )
        return node.name, str(list(node.output).index(name))

    nodes = [node for node in model.graph.node if node.op_type not in boundaries]
    found = {node.name: tuple(source(name) for name in node.input) for node in nodes}
    return found | {"outputs": tuple(source(value.name) for value in model.graph.output)}


def _instructed(model: ModelProto, ranges: Ranges) -> QDQQuantizer:
    """ONNX Runtime's quantiser, told what to quantise."""
    forms = load_installed_families().forms
    closures = find_quantised_closures(model)
    stay_float = list_float_nodes(model, {closure.result for closure in closures})
    makers = {output: node for node in model.graph.node for output in node.output}
    stay_float += [makers[node.outputs[0]].name for closure in closures for node in closure.nodes]
    bordered = [
        node for node in model.graph.node if _has_parameters(node) and node.name not in stay_float
    ]
    stay_float += [node.name for node in bordered]
    quantizer = _quantizer(model, ranges, stay_float)
    # The quantiser skips activations whose operand is not quantised yet.
    clamps = {name for name, (_, form) in forms.items() if form.clamps}
    for node in model.graph.node:
        if node.op_type in clamps and node.name not in stay_float:
            quantizer.quantize_activation_tensor(node.input[0])
    for node in bordered:
        quantizer.quantize_activation_tensor(node.input[0])
        quantizer.quantize_activation_tensor(node.output[0])
    inputs = {value.name for value in model.graph.input}
    for closure in closures:
        for name in (
            (closure.source, closure.result) if closure.source in inputs else (closure.result,)
        ):
            quantizer.quantize_activation_tensor(name)
    return quantizer


def _has_parameters(node: NodeProto) -> bool:
    """Return True if only the data of a node are quantised.

    Its other operands stay real numbers.
    """
    found = load_installed_families().forms.get(node.op_type)
    return found is not None and found[1].quantise and bool(found[1].parameters)


def _quantizer(model: ModelProto, ranges: Ranges, stay_float: list[str]) -> QDQQuantizer:
    source = copy_model(quantize._clip_constants(model, ranges, ()))
    # The quantiser does not see who reads a tensor inside a body; it leaves alone what the model
    # shows.
    outputs = {value.name for value in model.graph.output}
    captured = {name for node in model.graph.node for name in list_captured_names(node)} - outputs
    source.graph.output.extend(value for value in model.graph.value_info if value.name in captured)
    source.metadata_props.add(key="onnx.infer", value="onnxruntime.quant")  # shapes are there
    forms = load_installed_families().forms
    clamps = {name for name, (_, form) in forms.items() if form.clamps}
    known = (outputs | captured) & ranges.keys()
    shown = {node.input[0] for node in model.graph.node if node.op_type in clamps} & known
    overrides: dict[str, list[dict[str, Any]]] = {
        name: [dict(zip(("rmin", "rmax"), ranges[name], strict=True))] for name in sorted(shown)
    }
    quantizer = QDQQuantizer(
        source,
        True,  # per channel
        False,  # full 8-bit range
        QuantType.QInt8,
        QuantType.QInt8,
        TensorsData(CalibrationMethod.MinMax, dict(ranges)),
        [],
        stay_float,
        [name for name, (_, form) in forms.items() if form.quantise],
        {
            "ForceQuantizeNoInputCheck": True,
            "WeightSymmetric": True,
            "TensorQuantOverrides": {**overrides, **_single_scales(model)},
        },
    )
    adjust = quantizer._adjust_weight_scale_for_int32_bias

    def adjusted(
        input_scale: Any, weight_scale: Any, weight_name: str, bias: Any, is_per_channel: bool
    ) -> Any:
        doubled = numpy_helper.from_array(2 * numpy_helper.to_array(bias), bias.name)
        return adjust(input_scale, weight_scale, weight_name, doubled, is_per_channel)

    quantizer._adjust_weight_scale_for_int32_bias = adjusted
    return quantizer


def _single_scales(model: ModelProto) -> dict[str, list[dict[str, Any]]]:
    """Overrides for the constant operands of products that can have one scale only."""
    dims = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    found = set()
    for node in model.graph.node:
        if node.op_type == "MatMul":
            found.update(
                node.input[position] for position in range(2) if node.input[position] in dims
            )
            found -= {node.input[1]} if len(dims.get(node.input[1], ())) == 2 else set()
    return {name: [{"symmetric": True}] for name in sorted(found)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantiser's messages from the root logger.

    ``logging.warning`` does not configure the root logger either.
    """
    root = logging.getLogger()
    handler = logging.NullHandler()
    level: Any = logging.root.manager.disable
    root.addHandler(handler)
    logging.disable(logging.CRITICAL)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        logging.disable(level)
        root.removeHandler(handler)


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        print(each, "differs at", differences(each), flush=True)
