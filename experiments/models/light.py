"""The nine ``light`` networks of the onnx package, with seeded weights.

The package ships them at opset 9 with every weight made by a ConstantOfShape node of 0.02, so that
all elements of an output are equal. Here initialisers with seeded contents replace those nodes; the
graphs are otherwise unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

# Name → file name without prefix, and description.
LIGHT_NETWORKS = {
    "alexnet": ("bvlc_alexnet", "AlexNet, 0.66 GMAC, local response normalisation, grouped"),
    "densenet121": ("densenet121", "DenseNet-121, 2.8 GMAC, concatenations"),
    "inception-v1": ("inception_v1", "Inception v1 (GoogLeNet), 1.4 GMAC"),
    "inception-v2": ("inception_v2", "Inception v2, 2.0 GMAC"),
    "resnet50": ("resnet50", "ResNet-50, 4.1 GMAC, residual sums"),
    "shufflenet": ("shufflenet", "ShuffleNet v1, 0.13 GMAC, grouped, channel shuffles"),
    "squeezenet": ("squeezenet", "SqueezeNet 1.0, 0.35 GMAC"),
    "vgg19": ("vgg19", "VGG-19, 19.6 GMAC, 144 M weights"),
    "zfnet512": ("zfnet512", "ZFNet-512, 1.5 GMAC, local response normalisation"),
}

Fill = Callable[["np.random.Generator", tuple[int, ...]], NDArray[np.float32]]


def light_model(name: str, seed: int = 0) -> ModelProto:
    """Return the light network ``name`` (a key of ``LIGHT_NETWORKS``) with seeded weights.

    The model has opset 9 and IR version 3. Conv and Gemm weights are He-normal, biases 0 ± 0.05.
    BatchNormalization has mean 0 ± 0.1, variance 1.6..2.4 (the variance after He-normal weights and
    inputs of mean square one), gamma 0.9..1.1 and beta 0.1 ± 0.1. A Mul after it has 0.9..1.1, an
    Add 0 ± 0.1.
    """
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{LIGHT_NETWORKS[name][0]}.onnx")
    _give_weights(model.graph, np.random.default_rng(seed))
    return model


def _give_weights(graph: GraphProto, random: np.random.Generator) -> None:
    from onnx import numpy_helper

    dims = {
        t.name: tuple(int(d) for d in numpy_helper.to_array(t))
        for t in graph.initializer
        if t.data_type == t.INT64
    }
    readers = {name: (node, index) for node in graph.node for index, name in enumerate(node.input)}
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    _drop(graph, made)
    for node in made:
        name = node.output[0]
        shape = dims[node.input[0]]
        _add_weight(graph, name, _fill(*_reader(name, readers))(random, shape))


def _reader(name: str, readers: dict[str, tuple[NodeProto, int]]) -> tuple[str, int]:
    """Return the operator type and the operand index of a constant's consumer.

    An Unsqueeze in between is skipped.
    """
    node, index = readers[name]
    return (
        _reader(node.output[0], readers) if node.op_type == "Unsqueeze" else (node.op_type, index)
    )


def _fill(op_type: str, index: int) -> Fill:
    """Return the random distribution for the constants of an operator's operand."""
    if op_type in ("Conv", "Gemm"):
        return _he_normal if index == 1 else _normal(0.0, 0.05)
    if op_type == "BatchNormalization":
        return (_uniform(0.9, 1.1), _normal(0.1, 0.1), _normal(0.0, 0.1), _uniform(1.6, 2.4))[
            index - 1
        ]
    return _uniform(0.9, 1.1) if op_type == "Mul" else _normal(0.0, 0.1)


def _he_normal(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw He-normal weights; the fan-in is the product of all axes but the first.

    The first axis is the output axis in Conv and in these Gemms.
    """
    weights = random.standard_normal(shape, np.float32)
    weights *= np.float32(np.sqrt(2.0 / np.prod(shape[1:])))
    return weights


def _normal(mean: float, deviation: float) -> Fill:
    return lambda random, shape: random.normal(mean, deviation, shape).astype(np.float32)


def _uniform(low: float, high: float) -> Fill:
    return lambda random, shape: random.uniform(low, high, shape).astype(np.float32)


def _drop(graph: GraphProto, made: list[NodeProto]) -> None:
    """Remove the ConstantOfShape nodes and their operands from a graph.

    IR version 3 lists these operands as graph inputs too.
    """
    shapes = {node.input[0] for node in made}
    outputs = {node.output[0] for node in made}
    for field, kept in (
        (graph.node, [node for node in graph.node if node.output[0] not in outputs]),
        (graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in shapes]),
        (graph.input, [value for value in graph.input if value.name not in shapes]),
    ):
        del field[:]
        field.extend(kept)


def _add_weight(graph: GraphProto, name: str, array: NDArray[np.float32]) -> None:
    from onnx import TensorProto, helper

    from byoc.runtimes.protobuf import make_tensor

    graph.initializer.append(make_tensor(array, name))
    graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape))
