"""Builder of networks with seeded weights, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 21
IR_VERSION = 10
BATCH_NORM_EPSILON = 1e-3

GAINS = {"relu": 2.0, "relu6": 2.0, "hardswish": 3.0, "silu": 3.0, "linear": 1.0}
"""Variance of weights times fan-in that roughly keeps the variance after an activation."""


Row = tuple[str, Callable[..., str], int]
"""A layer or block of a stack: name, function that adds it, and output channels."""


class NetworkBuilder:
    """Builder of an ONNX graph that collects nodes and constant tensors.

    Each method adds one layer and returns the name of its output.

    Weights are He-normal (standard deviation ``sqrt(gain / fan_in)``, gain 2 by default), drawn
    from ``seed`` in the order of the calls. Each filter that reads more than one channel has mean
    zero: inputs after a ReLU are positive, and otherwise deep layers would mainly see their mean.
    Batch normalisation then receives a variance near one, and its statistics match: mean 0 ± 0.1,
    variance 0.8..1.25, gamma 0.9..1.1, beta 0.1 ± 0.1.
    """

    def __init__(
        self,
        name: str,
        input_name: str,
        shape: Sequence[int | str],
        seed: int,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self._name = name
        self._random = np.random.default_rng(seed)
        self._inputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self.input(input_name, shape, dtype)

    def input(self, name: str, shape: Sequence[int | str], dtype: DTypeLike = np.float32) -> str:
        from onnx import helper

        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant tensor and return its name.

        Integers keep their type, floats become float32.

        If the name exists, its first constant stays.
        """
        from byoc.runtimes.protobuf import make_tensor

        if name not in self._constants:
            stored = (
                array
                if np.issubdtype(array.dtype, np.integer)
                else array.astype(np.float32, copy=False)
            )
            self._constants[name] = make_tensor(stored, name)
        return name

    def weights(
        self, name: str, shape: tuple[int, ...], fan_in: int, gain: float = 1.0, *, centred: int = 0
    ) -> str:
        """Add a constant tensor of normally distributed weights.

        With ``centred``, their mean over that many last axes is zero.
        """
        weights = self._random.standard_normal(shape, np.float32)
        if centred:
            weights -= weights.mean(axis=tuple(range(-centred, 0)), keepdims=True)
        weights *= np.sqrt(gain / fan_in)
        return self.constant(name, weights)

    def biases(self, name: str, size: int | tuple[int, ...], mean: float = 0.0) -> str:
        """Add a constant tensor of biases, ``mean`` ± 0.1."""
        return self.constant(name, self._random.normal(mean, 0.1, size))

    def node(
        self, op_type: str, name: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add an ONNX node and return the name of its output.

        The node's output has the same name unless ``outputs`` is given.
        """
        from onnx import helper

        self._nodes.append(
            helper.make_node(
                op_type, list(inputs), list(outputs or [name]), name=name, **attributes
            )
        )
        return name

    def reshape(self, name: str, source: str, shape: Sequence[int]) -> str:
        return self.node(
            "Reshape", name, source, self.constant(f"{name}_shape", np.array(shape, np.int64))
        )

    def split(self, name: str, source: str, sizes: Sequence[int], axis: int = 1) -> list[str]:
        parts = [f"{name}_{index}" for index in range(len(sizes))]
        self.node(
            "Split",
            name,
            source,
            self.constant(f"{name}_sizes", np.array(sizes, np.int64)),
            outputs=parts,
            axis=axis,
        )
        return parts

    def concat(self, name: str, *sources: str, axis: int = 1) -> str:
        return self.node("Concat", name, *sources, axis=axis)

    def convolution(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        kernel: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        *,
        groups: int = 1,
        gain: float = 2.0,
        bias: float | None = None,
        **attributes: Any,
    ) -> str:
        """Add a Conv with ``channels`` (in, out), padded by ``kernel // 2`` on every side.

        ``bias`` is the mean of its biases; without ``bias`` the Conv has no biases. An integer
        ``kernel`` or ``stride`` applies to both axes of a plane.
        """
        inputs, outputs = channels
        sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
        strides = (stride,) * len(sizes) if isinstance(stride, int) else stride
        taps = inputs // groups * int(np.prod(sizes))
        shape = (outputs, inputs // groups, *sizes)
        centred = len(sizes) + 1 if inputs > groups else 0
        operands = [source, self.weights(f"{name}_weight", shape, taps, gain, centred=centred)]
        if bias is not None:
            operands.append(self.biases(f"{name}_bias", outputs, bias))
        pads = {} if "auto_pad" in attributes else {"pads": [size // 2 for size in sizes] * 2}
        fields = {
            "kernel_shape": list(sizes),
            "strides": list(strides),
            **pads,
            "group": groups,
            **attributes,
        }
        return self.node("Conv", name, *operands, **fields)

    def add_transposed(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        stride: int,
        gain: float = 2.0,
        bias: float | None = None,
    ) -> str:
        """Add a ConvTranspose with ``channels`` (in, out) whose kernel is as large as its stride.

        Its output windows therefore do not overlap.
        """
        operands = [
            source,
            self.weights(f"{name}_weight", (*channels, stride, stride), channels[0], gain),
        ]
        if bias is not None:
            operands.append(self.biases(f"{name}_bias", channels[1], bias))
        sizes = [stride, stride]
        return self.node("ConvTranspose", name, *operands, kernel_shape=sizes, strides=sizes)

    def batch_norm(self, name: str, source: str, channels: int, gain: float = 1.0) -> str:
        """Add batch normalisation for inference, with gamma scaled by ``gain``.

        A ``gain`` below 1 keeps residual sums small.
        """
        uniform = self._random.uniform
        normal = self._random.normal
        parameters = {
            "gamma": gain * uniform(0.9, 1.1, channels),
            "beta": normal(0.1, 0.1, channels),
            "mean": normal(0.0, 0.1, channels),
            "variance": uniform(0.8, 1.25, channels),
        }
        names = [self.constant(f"{name}_{key}", value) for key, value in parameters.items()]
        return self.node("BatchNormalization", name, source, *names, epsilon=BATCH_NORM_EPSILON)

    def layer_norm(self, name: str, source: str, width: int) -> str:
        """Add layer normalisation over the last axis."""
        gamma = self.constant(f"{name}_gamma", self._random.uniform(0.9, 1.1, width))
        return self.node(
            "LayerNormalization", name, source, gamma, self.biases(f"{name}_beta", width), axis=-1
        )

    def relu(self, name: str, source: str) -> str:
        return self.node("Relu", name, source)

    def activation(self, kind: str, name: str, source: str) -> str:
        """Add an activation function as the ONNX nodes that exporters write.

        ReLU6 is a Clip; SiLU is a Sigmoid and a Mul.
        """
        if kind == "linear":
            return source
        if kind == "relu6":
            low, high = (
                self.constant(key, np.array(value)) for key, value in (("zero", 0.0), ("six", 6.0))
            )
            return self.node("Clip", name, source, low, high)
        if kind == "silu":
            return self.node("Mul", name, source, self.node("Sigmoid", f"{name}_sigmoid", source))
        return self.node({"relu": "Relu", "hardswish": "HardSwish"}[kind], name, source)

    def layer(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        kernel: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        groups: int = 1,
        *,
        activation: str = "relu",
        gain: float = 2.0,
        scale: float = 1.0,
    ) -> str:
        """Add a convolution, batch normalisation with gain ``scale``, and an activation."""
        value = self.convolution(name, source, channels, kernel, stride, groups=groups, gain=gain)
        value = self.batch_norm(f"{name}_bn", value, channels[1], scale)
        return self.activation(activation, f"{name}_{activation}", value)

    def add_biased(
        self,
        name: str,
        source: str,
        channels: tuple[int, int],
        kernel: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        activation: str = "relu",
        **options: Any,
    ) -> str:
        """Add a convolution with biases, in place of batch normalisation, and an activation."""
        value = self.convolution(name, source, channels, kernel, stride, bias=0.1, **options)
        return self.activation(activation, f"{name}_{activation}", value)

    def max_pool(
        self, name: str, source: str, channels: tuple[int, int], kernel: int, **attributes: Any
    ) -> str:
        """Add a maximum over windows of ``kernel`` by ``kernel``, two apart unless told."""
        how = {"strides": [2, 2], **attributes}
        return self.node("MaxPool", name, source, kernel_shape=[kernel, kernel], **how)

    def stack(self, source: str, channels: int, rows: Iterable[Row]) -> list[str]:
        """Add layers and blocks, each on the result of the one before; return all results.

        ``channels`` are those of ``source``. Each function takes the builder, its row's name, the
        source and the channels (in, out).
        """
        values = []
        for name, add, outputs in rows:
            source = add(self, name, source, (channels, outputs))
            channels = outputs
            values.append(source)
        return values

    def add_fully_connected(
        self, name: str, source: str, features: tuple[int, int], gain: float = 2.0
    ) -> str:
        """Add a Gemm with transposed weights (out, in) and a bias; ``features`` (in, out)."""
        inputs, outputs = features
        weights = self.weights(f"{name}_weight", (outputs, inputs), inputs, gain, centred=1)
        return self.node(
            "Gemm", name, source, weights, self.biases(f"{name}_bias", outputs), transB=1
        )

    def linear(self, name: str, source: str, features: tuple[int, int], gain: float = 1.0) -> str:
        """Add a MatMul with weights (in, out) and an Add of the bias.

        Both work on the last axis of a tensor of any rank.
        """
        weights = self.weights(f"{name}_weight", features, features[0], gain)
        product = self.node("MatMul", f"{name}_product", source, weights)
        return self.node("Add", name, product, self.biases(f"{name}_bias", features[1]))

    def classifier(
        self, source: str, features: tuple[int, int], activation: str = "relu", hidden: int = 0
    ) -> ModelProto:
        """Add global average pooling and a fully connected ``logits``, and return the network.

        ``activation`` is that of ``source``; a layer of ``hidden`` features with it can precede.
        """
        gain = GAINS[activation]
        value = self.node(
            "Flatten", "flatten", self.node("GlobalAveragePool", "pool", source), axis=1
        )
        inputs, classes = features
        if hidden:
            value = self.add_fully_connected("hidden", value, (inputs, hidden), gain)
            value = self.activation(activation, "hidden_activation", value)
        return self.logits(value, (hidden or inputs, classes), gain)

    def logits(self, source: str, features: tuple[int, int], gain: float = 2.0) -> ModelProto:
        """Add the fully connected layer ``logits`` and return the network with it as output."""
        value = self.add_fully_connected("logits", source, features, gain)
        return self.model(value, (1, features[1]))

    def model(
        self, output: str, shape: Sequence[int | str], **others: Sequence[int | str]
    ) -> ModelProto:
        """Return the finished network (opset 21) with float outputs of the given shapes.

        The outputs are ``output`` and the names in ``others``.
        """
        from onnx import TensorProto, helper

        shapes = {output: shape, **others}
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
        ]
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, values, list(self._constants.values())
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
