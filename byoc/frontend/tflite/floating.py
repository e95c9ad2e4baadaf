"""Convert a float TensorFlow Lite model to an ONNX model, which is then quantised like any other.

Weights may be float32, float16, or integers with scales (dynamic-range quantisation), which become
the floats that they represent.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.frontend.tflite.file import TfliteModel, read_tflite
from byoc.frontend.tflite.float_graph import FloatGraph, find_fixed
from byoc.frontend.tflite.float_operators import CONVERTERS
from byoc.runtimes import litert
from byoc.runtimes.litert_process import LiteRTModel
from isa.errors import InputError

FLOATS = ("float32", "float16")
Feeds = Mapping[str, NDArray[Any]]
TRANSPOSED = "Convolution2DTransposeBias"
"""MediaPipe's custom operator that computes what TRANSPOSE_CONV with a bias computes."""


def is_float(model: TfliteModel) -> bool:
    """Return True if a model computes floats, and no tensor that it computes or reads has a scale.

    Constant weights may have scales.
    """
    numbers = {n for operator in model.operators for n in (*operator.inputs, *operator.outputs)}
    computed = [model.tensors[n] for n in numbers - find_fixed(model) if n >= 0]
    return any(tensor.dtype in FLOATS for tensor in computed) and not any(
        tensor.dtype not in FLOATS and tensor.quantization is not None for tensor in computed
    )


def run_float(model: TfliteModel, feeds: Sequence[Feeds]) -> list[list[NDArray[Any]]] | None:
    """Return the outputs of LiteRT for each feed of inputs, by name; None if it cannot run them."""
    try:
        session = LiteRTModel(model.content, "builtin")
        given = [{model.numbers[name]: array for name, array in feed.items()} for feed in feeds]
        made = [session.run(one, model.outputs) for one in given]
    except InputError:
        return None
    return [[arrays[number] for number in model.outputs] for arrays in made]


def write_builtins(model: TfliteModel) -> TfliteModel:
    """Return a model with TRANSPOSE_CONV in place of MediaPipe's ``TRANSPOSED``.

    LiteRT has only the builtin operator. The custom one's options are padding and strides, three
    integers. An operator with other options or operands stays.
    """
    schema = litert.schema()
    whole = schema.ModelT.InitFromPackedBuf(model.content, 0)
    graph = whole.subgraphs[0]
    chosen = [graph.operators[n] for n, o in enumerate(model.operators) if o.kind == TRANSPOSED]
    texts = [bytes(one.customOptions if one.customOptions is not None else ()) for one in chosen]
    if not chosen or any(len(text) < 12 for text in texts):
        return model
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.TRANSPOSE_CONV
    code.version = 3
    whole.operatorCodes.append(code)
    for one, text in zip(chosen, texts, strict=True):
        options = one.builtinOptions = schema.TransposeConvOptionsT()
        padding, options.strideW, options.strideH = struct.unpack("<3i", text[:12])
        options.padding = padding - 1
        one.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
        one.customOptions, one.opcodeIndex = None, len(whole.operatorCodes) - 1
        sizes = np.array(graph.tensors[one.outputs[0]].shape, "<i4")
        shape = schema.TensorT()
        shape.name, shape.type, shape.shape = "", schema.TensorType.INT32, [4]
        shape.buffer = len(whole.buffers)
        whole.buffers.append(schema.BufferT(data=sizes.view(np.uint8)))
        data, *weights = one.inputs
        one.inputs = [len(graph.tensors), weights[0], data, *weights[1:]]
        graph.tensors.append(shape)
    return read_tflite(litert.pack_model(whole), model.name)


def to_onnx(model: TfliteModel) -> ModelProto:
    """Return the float ONNX model that computes what a float TensorFlow Lite model computes.

    Inputs and outputs keep their names, shapes and order. Raises InputError that names every
    operator without an ONNX form.
    """
    graph = FloatGraph(model)
    graph.convert(CONVERTERS)
    return graph.finish()
