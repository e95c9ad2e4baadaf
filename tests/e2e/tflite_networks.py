"""Whole networks as TensorFlow Lite models, with drawn weights, and scales in which results fill their range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.models.tflite import Quantisation, Tensor, TfliteBuilder

PROBABILITY = Quantisation(1 / 256, -128)


class Maker:
    """A network that is being made: layers with weights drawn from a seed."""

    def __init__(self, name: str, seed: int) -> None:
        self.builder = TfliteBuilder(name)
        self.random = np.random.default_rng(seed)

    def input(self, shape: tuple[int, ...]) -> Tensor:
        """The input, of numbers between -1 and 1."""
        return self.builder.input("image", shape, Quantisation(1 / 127.5, -1))

    def quantisation(self, scale: float, *, relu: bool = False) -> Quantisation:
        """A scale near the given one, of a result that is cut off at zero or not."""
        zero_point = -128 if relu else int(self.random.integers(-20, 20))
        return Quantisation(float(np.float32(scale * self.random.uniform(0.8, 1.25))), zero_point)

    def _weighted(self, kind: str, x: Tensor, shape: tuple[int, ...], axis: int, **options: object) -> Tensor:
        """An operator with weights of a scale an output channel; sums of many products have the spread of one."""
        number, count = len(self.builder.model(x)), shape[axis]
        weights = self.random.integers(-127, 128, shape, np.int8)
        spread = np.sqrt(weights.size / count) * 73
        scales = tuple(map(float, (self.random.uniform(0.5, 2, count) / spread).astype(np.float32)))
        assert x.quantisation is not None
        bias = self.random.integers(-2000, 2000, count).astype(np.int32)
        relu = options.get("fused_activation_function") is not None
        accumulators = tuple(float(np.float32(x.quantisation.scales[0]) * np.float32(scale)) for scale in scales)
        operands = [
            x,
            self.builder.constant(f"w{number}", weights, Quantisation(scales, 0, axis)),
            self.builder.constant(f"b{number}", bias, Quantisation(accumulators)),
        ]
        scale = 6 / 255 if relu else x.quantisation.scales[0]
        return self.builder.operator(kind, operands, self.quantisation(scale, relu=relu), **options)

    def convolution(self, x: Tensor, channels: int, kernel: int = 1, stride: int = 1, relu: bool = True) -> Tensor:
        """CONV_2D, with RELU6 or without."""
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride}
        options |= {"fused_activation_function": "RELU6"} if relu else {}
        return self._weighted("CONV_2D", x, (channels, kernel, kernel, x.shape[3]), 0, **options)

    def depthwise(self, x: Tensor, stride: int = 1, kernel: int = 3, multiplier: int = 1) -> Tensor:
        """DEPTHWISE_CONV_2D with RELU6."""
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride, "depth_multiplier": multiplier}
        options |= {"fused_activation_function": "RELU6"}
        return self._weighted("DEPTHWISE_CONV_2D", x, (1, kernel, kernel, x.shape[3] * multiplier), 3, **options)

    def dense(self, x: Tensor, features: int, relu: bool = False) -> Tensor:
        """FULLY_CONNECTED."""
        options = {"fused_activation_function": "RELU"} if relu else {}
        return self._weighted("FULLY_CONNECTED", x, (features, int(np.prod(x.shape[1:]))), 0, **options)

    def softmax(self, x: Tensor) -> Tensor:
        """SOFTMAX of logits."""
        return self.builder.operator("SOFTMAX", [x], PROBABILITY)


def mobilenet_v1(seed: int = 0, size: int = 96) -> bytes:
    """MobileNetV1 of width 0.25, with its average pool, convolution to classes, reshape and softmax."""
    net = Maker("mobilenet-v1", seed)
    x = net.convolution(net.input((1, size, size, 3)), 8, 3, 2)
    plan = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)]
    for channels, stride in plan:
        x = net.convolution(net.depthwise(x, stride), channels)
    plane = {"filter_width": x.shape[2], "filter_height": x.shape[1], "padding": "VALID"}
    x = net.builder.operator("AVERAGE_POOL_2D", [x], x.quantisation, stride_w=1, stride_h=1, **plane)
    x = net.convolution(x, 100, relu=False)
    shape = net.builder.constant("shape", np.array([1, 100], np.int32))
    x = net.builder.operator("RESHAPE", [x, shape], x.quantisation)
    return net.builder.model(net.softmax(x))


NETWORKS: dict[str, Callable[[int], bytes]] = {"mobilenet-v1": mobilenet_v1}
"""Makers by name."""
