"""A small builder of float convolutional networks with seeded weights, on ``onnx.helper``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 21
IR_VERSION = 10
BATCH_NORM_EPSILON = 1e-3


class NetworkBuilder:
    """Collects nodes and initialisers; each method adds one layer and returns the name of its output.

    Weights are He-normal (standard deviation ``sqrt(2 / fan_in)``), drawn from ``seed`` in the order of the calls. Each
    filter that reads more than one channel has mean zero: the inputs behind a ReLU are positive, and without this
    deep layers would see little but their mean. Batch normalisation then finds a variance near one, and its statistics
    say so: mean 0 ± 0.1, variance 0.8..1.25, gamma 0.9..1.1, beta 0.1 ± 0.1.
    """

    def __init__(self, name: str, input_name: str, shape: tuple[int, ...], seed: int) -> None:
        from onnx import TensorProto, helper

        self._name = name
        self._random = np.random.default_rng(seed)
        self._input = helper.make_tensor_value_info(input_name, TensorProto.FLOAT, shape)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def _constant(self, name: str, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self._constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, op_type: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Add one ONNX node called ``name`` whose output is ``name`` too."""
        from onnx import helper

        self._nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def convolution(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
    ) -> str:
        """A Conv without bias, ``channels`` (in, out), padded by ``kernel // 2``."""
        inputs, outputs = channels
        weights = self._random.standard_normal((outputs, inputs // groups, kernel, kernel), np.float32)
        if inputs > groups:
            weights -= weights.mean(axis=(1, 2, 3), keepdims=True)
        weights *= np.sqrt(2.0 / weights[0].size)
        return self.node(
            "Conv",
            name,
            source,
            self._constant(f"{name}_weight", weights),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def batch_norm(self, name: str, source: str, channels: int, gain: float = 1.0) -> str:
        """Batch normalisation in inference form; ``gain`` scales gamma (below 1 it keeps residual sums small)."""
        uniform, normal = self._random.uniform, self._random.normal
        parameters = {
            "gamma": gain * uniform(0.9, 1.1, channels),
            "beta": normal(0.1, 0.1, channels),
            "mean": normal(0.0, 0.1, channels),
            "variance": uniform(0.8, 1.25, channels),
        }
        names = [self._constant(f"{name}_{key}", value) for key, value in parameters.items()]
        return self.node("BatchNormalization", name, source, *names, epsilon=BATCH_NORM_EPSILON)

    def relu(self, name: str, source: str) -> str:
        """ReLU."""
        return self.node("Relu", name, source)

    def fully_connected(self, name: str, source: str, features: tuple[int, int]) -> str:
        """Gemm with transposed weights (out, in) and a bias; ``features`` (in, out)."""
        inputs, outputs = features
        weights = self._random.standard_normal((outputs, inputs), np.float32)
        weights -= weights.mean(axis=1, keepdims=True)
        return self.node(
            "Gemm",
            name,
            source,
            self._constant(f"{name}_weight", weights * np.sqrt(2.0 / inputs)),
            self._constant(f"{name}_bias", self._random.normal(0.0, 0.1, outputs)),
            transB=1,
        )

    def model(self, output: str, shape: tuple[int, ...]) -> ModelProto:
        """The finished network (opset 21) with one output."""
        from onnx import TensorProto, helper

        value = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, self._name, [self._input], [value], self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
