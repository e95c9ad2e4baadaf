"""Float ONNX model → int8 QDQ model, by ONNX Runtime's static quantiser."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto

from byoc.frontend.onnx_file import load_model
from byoc.passes.onnx_edit import array_of, constants, copy_model
from byoc.passes.onnx_pools import dilated
from byoc.patterns.registry import installed
from byoc.quantisation.calibrate import Feeds, Ranges, default_feeds, has_float_results, observe_ranges, share_ranges

__all__ = ["is_quantised", "load_model", "quantise"]

# What the accelerator can run, and what merely passes values on between such operators.
QUANTISED_OPERATORS = (
    *("Conv", "Gemm", "MatMul", "Add", "Relu", "Clip", "LeakyRelu", "Abs", "Min", "Max"),
    *("MaxPool", "AveragePool", "GlobalAveragePool"),
    *("Concat", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"),
)
_CLAMPS = frozenset({"Relu", "Clip"})
_PASSIVE_OPERATORS = frozenset({"Concat", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

_INTEGER_OPERATORS = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}
)


def quantised_operators() -> tuple[str, ...]:
    """``QUANTISED_OPERATORS`` and what the families of installed packages want quantised."""
    return tuple(dict.fromkeys((*QUANTISED_OPERATORS, *installed().quantised)))


def is_quantised(model: ModelProto) -> bool:
    """Whether the model already has integer operators: QDQ, QLinear*, *Integer, QGemm."""
    return any(
        node.op_type in _INTEGER_OPERATORS or node.op_type.startswith("QLinear") or node.op_type == "QGemm"
        for node in model.graph.node
    )


def quantise(model: ModelProto, calibration: Iterable[Feeds] | None = None, seed: int = 0) -> ModelProto:
    """The int8 QDQ form of a prepared float model (``byoc.passes.onnx_prepare.prepare``).

    Activations: int8, per tensor, asymmetric, from the smallest and largest value seen on ``calibration`` (one mapping
    from input name to array a step); operands and results of Concat, Min and Max share one quantisation where
    that costs no activation. Weights: int8, symmetric, per output channel. Biases: int32. Without ``calibration`` the
    inputs are four draws of standard-normal numbers from ``seed``. Relu and Clip behind another quantised operator
    vanish into its output's range. Operators that the accelerator cannot run stay float. Deterministic; writes no
    file; the argument is not changed. A model whose operators compute no float value is returned as it is.
    """
    if not has_float_results(model):
        return copy_model(model)
    feeds = default_feeds(model, seed) if calibration is None else calibration
    ranges = share_ranges(model, observe_ranges(model, feeds))
    with _quiet():
        return _quantised(model, ranges)


def _quantised(model: ModelProto, ranges: Ranges) -> ModelProto:
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    stay_float = _float_nodes(model)
    source = copy_model(model)
    # The quantiser writes the model to a file and infers shapes again unless it finds this mark.
    mark = source.metadata_props.add()
    mark.key, mark.value = "onnx.infer", "onnxruntime.quant"
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
        {"ForceQuantizeNoInputCheck": True, "WeightSymmetric": True},
    )
    # The quantiser skips activations whose operand nobody else has quantised.
    for node in model.graph.node:
        if node.op_type in _CLAMPS and node.name not in stay_float:
            quantizer.quantize_activation_tensor(node.input[0])
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    result: ModelProto = quantizer.model.model
    kept = [entry for entry in result.metadata_props if entry.key != "onnx.infer"]
    del result.metadata_props[:]
    result.metadata_props.extend(kept)
    return result


def _float_nodes(model: ModelProto) -> list[str]:
    """Names of nodes that stay float.

    Dilated average pools, which ONNX Runtime has no integer operator for; products of two computed values, or with
    a matrix for a bias; reshapes among float operators only; Clip with computed limits or limits on one side of
    zero, which no quantised range can express.
    """
    constant = constants(model.graph)
    producers = {output: node for node in model.graph.node for output in node.output}
    return [node.name for node in model.graph.node if _stays_float(node, constant, producers)]


def _stays_float(node: NodeProto, constant: Mapping[str, TensorProto], producers: dict[str, NodeProto]) -> bool:
    if node.op_type in ("Conv", "Gemm", "MatMul"):
        return any(name not in constant for name in node.input[1:] if name) or _matrix_bias(node, constant)
    if node.op_type in _PASSIVE_OPERATORS:
        made_by = [producers.get(name) for name in node.input if name not in constant]
        return all(maker is not None and maker.op_type not in quantised_operators() for maker in made_by)
    if node.op_type == "AveragePool":
        return dilated(node)
    return node.op_type == "Clip" and not _straddles_zero(node, constant)


def _matrix_bias(node: NodeProto, constant: Mapping[str, TensorProto]) -> bool:
    """Whether a Gemm adds a matrix of several rows, which is no bias of its channels."""
    bias = constant.get(node.input[2]) if node.op_type == "Gemm" and len(node.input) > 2 else None
    return bias is not None and len(bias.dims) > 1 and bias.dims[0] > 1


def _straddles_zero(node: NodeProto, constant: Mapping[str, TensorProto]) -> bool:
    """Whether the limits of a Clip are constant and zero lies between them or on one of them."""
    limits = [*node.input[1:], "", ""][:2]
    if any(name and name not in constant for name in limits):
        return False
    low, high = (float(array_of(constant[name])) if name else 0.0 for name in limits)
    return low <= 0 <= high


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
