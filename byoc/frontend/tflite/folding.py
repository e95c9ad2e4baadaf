"""Fold the shape arithmetic of a TensorFlow Lite model into constants.

Converters of networks with a dynamic batch write SHAPE, STRIDED_SLICE and PACK before a RESHAPE.
All shapes are fixed when the model is imported.
"""

from dataclasses import replace

import numpy as np

from byoc.frontend.tflite.file import TfliteModel, TFLiteOperator, read_tflite
from byoc.frontend.tflite.float_graph import find_fixed
from byoc.frontend.tflite.variables import select_operators
from byoc.runtimes import litert
from byoc.runtimes.litert_process import LiteRTModel

_INTEGERS = frozenset({"int32", "int64"})


def fold_shapes(model: TfliteModel) -> TfliteModel:
    """Return a model without the integer operators that depend only on shapes and constants.

    LiteRT computes their results. A model without SHAPE is returned unchanged. Tensors keep their
    indices.
    """
    if not any(one.kind == "SHAPE" for one in model.operators):
        return model
    fixed = find_fixed(model)

    def is_folded(one: TFLiteOperator) -> bool:
        return fixed.issuperset(one.outputs) and all(
            model.tensors[number].dtype in _INTEGERS and number not in model.outputs
            for number in one.outputs
        )

    kept = [number for number, one in enumerate(model.operators) if not is_folded(one)]
    read = {number for place in kept for number in model.operators[place].inputs if number >= 0}
    made = {number for one in model.operators if is_folded(one) for number in one.outputs}
    zeros = {
        number: np.zeros(model.tensors[number].shape, model.tensors[number].dtype)
        for number in model.inputs
    }
    wanted = sorted(read & made)
    values = LiteRTModel(model.content, "builtin", keep=True).run(zeros, wanted)
    whole = select_operators(model.content, kept, model.inputs, model.outputs)
    for number, value in values.items():
        buffer = litert.schema().BufferT()
        buffer.data = np.frombuffer(value.tobytes(), np.uint8)
        whole.subgraphs[0].tensors[number].buffer = len(whole.buffers)
        whole.buffers.append(buffer)
    folded = read_tflite(litert.pack_model(whole), model.name)
    operators = tuple(
        replace(one, name=model.operators[place].name)  # keeps its number in the file
        for place, one in zip(kept, folded.operators, strict=True)
    )
    return replace(folded, operators=operators, variables=model.variables, given=model.file)
