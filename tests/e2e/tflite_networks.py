"""Whole networks as TensorFlow Lite models, with drawn weights and scales that use the range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

PROBABILITY = Quantisation(1 / 256, -128)


class Maker:
    """A network that is being made: layers with weights drawn from a seed."""

    def __init__(self, name: str, seed: int) -> None:
        self.builder = TfliteBuilder(name)
        self.random = np.random.default_rng(seed)
        self._made = 0

    def input(self, shape: tuple[int, ...]) -> Tensor:
        """The input, of numbers between -1 and 1."""
        return self.builder.input("image", shape, Quantisation(1 / 127.5, -1))

    def quantisation(self, scale: float, *, relu: bool = False) -> Quantisation:
        """A scale near the given one, of a result that is cut off at zero or not."""
        zero_point = -128 if relu else int(self.random.integers(-20, 20))
        return Quantisation(float(np.float32(scale * self.random.uniform(0.8, 1.25))), zero_point)

    def _weighted(
        self,
        kind: str,
        x: Tensor,
        shape: tuple[int, ...],
        axis: int,
        scale: float = 0.0,
        **options: object,
    ) -> Tensor:
        """An operator with weights of a scale an output channel.

        Sums of many products have the spread of one.
        """
        number = self.count()
        count = shape[axis]
        weights = self.random.integers(-127, 128, shape, np.int8)
        spread = np.sqrt(weights.size / count) * 73
        scales = tuple(map(float, (self.random.uniform(0.5, 2, count) / spread).astype(np.float32)))
        assert x.quantisation is not None
        bias = self.random.integers(-2000, 2000, count).astype(np.int32)
        relu = options.get("fused_activation_function") is not None
        accumulators = tuple(
            float(np.float32(x.quantisation.scales[0]) * np.float32(scale)) for scale in scales
        )
        operands = [
            x,
            self.builder.constant(f"w{number}", weights, Quantisation(scales, 0, axis)),
            self.builder.constant(f"b{number}", bias, Quantisation(accumulators)),
        ]
        scale = scale or (6 / 255 if relu else x.quantisation.scales[0])
        return self.builder.operator(kind, operands, self.quantisation(scale, relu=relu), **options)

    def convolution(
        self, x: Tensor, channels: int, kernel: int = 1, stride: int = 1, relu: bool = True
    ) -> Tensor:
        """CONV_2D, with RELU6 or without."""
        options = {"padding": "SAME", "stride_w": stride, "stride_h": stride}
        options |= {"fused_activation_function": "RELU6"} if relu else {}
        return self._weighted("CONV_2D", x, (channels, kernel, kernel, x.shape[3]), 0, **options)

    def depthwise(self, x: Tensor, stride: int = 1, kernel: int = 3, multiplier: int = 1) -> Tensor:
        """DEPTHWISE_CONV_2D with RELU6."""
        options = {
            "padding": "SAME",
            "stride_w": stride,
            "stride_h": stride,
            "depth_multiplier": multiplier,
        }
        options |= {"fused_activation_function": "RELU6"}
        return self._weighted(
            "DEPTHWISE_CONV_2D", x, (1, kernel, kernel, x.shape[3] * multiplier), 3, **options
        )

    def dense(
        self,
        x: Tensor,
        features: int,
        relu: bool = False,
        scale: float = 0.0,
        *,
        keep: bool = False,
    ) -> Tensor:
        """FULLY_CONNECTED of rows; ``keep`` the leading dimensions."""
        options: dict[str, object] = {"fused_activation_function": "RELU"} if relu else {}
        options |= {"keep_num_dims": True} if keep else {}
        depth = int(np.prod(x.shape[1:])) if len(x.shape) != 3 else x.shape[-1]
        return self._weighted("FULLY_CONNECTED", x, (features, depth), 0, scale, **options)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of every channel."""
        axes = self.builder.constant(f"axes{self.count()}", np.array([1, 2], np.int32))
        return self.builder.operator("MEAN", [x, axes], x.quantisation)

    def lstm(self, x: Tensor, hidden: int) -> Tensor:
        """Add a UNIDIRECTIONAL_SEQUENCE_LSTM without projection and normalisation.

        Its gates are not coupled.
        """
        make = self.builder
        random = self.random
        scale = Quantisation(1 / 127)
        features = x.shape[2]
        inputs = [
            make.constant(f"i{n}", random.integers(-40, 41, (hidden, features), np.int8), scale)
            for n in range(4)
        ]
        states = [
            make.constant(f"s{n}", random.integers(-40, 41, (hidden, hidden), np.int8), scale)
            for n in range(4)
        ]
        assert x.quantisation is not None
        accumulators = Quantisation(
            float(np.float32(x.quantisation.scales[0]) * np.float32(1 / 127))
        )
        biases = [
            make.constant(f"o{n}", random.integers(-99, 100, hidden).astype(np.int32), accumulators)
            for n in range(4)
        ]
        out = Quantisation(1 / 128, 0)
        kept = make.variable("kept", (1, hidden), out)
        cell = make.variable("cell", (1, hidden), Quantisation(2.0**-11), np.int16)
        operands = [x, *inputs, *states, None, None, None, *biases, None, None, kept, cell]
        inside = [
            make.variable(f"g{n}", (1, hidden), Quantisation(2.0**-12), np.int16) for n in range(4)
        ]
        inside.append(make.variable("h", (1, hidden), out))
        options = {"fused_activation_function": "TANH", "time_major": False}
        return make.operator(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", operands, out, intermediates=inside, **options
        )

    def count(self) -> int:
        """A number that no constant has yet."""
        self._made += 1
        return self._made

    def softmax(self, x: Tensor) -> Tensor:
        """SOFTMAX of logits."""
        return self.builder.operator("SOFTMAX", [x], PROBABILITY)


def mobilenet_v1(seed: int = 0, size: int = 96) -> bytes:
    """Return MobileNetV1 of width 0.25, with pool, class convolution, reshape and softmax."""
    net = Maker("mobilenet-v1", seed)
    x = net.convolution(net.input((1, size, size, 3)), 8, 3, 2)
    plan = [
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    ]
    for channels, stride in plan:
        x = net.convolution(net.depthwise(x, stride), channels)
    plane = {"filter_width": x.shape[2], "filter_height": x.shape[1], "padding": "VALID"}
    x = net.builder.operator(
        "AVERAGE_POOL_2D", [x], x.quantisation, stride_w=1, stride_h=1, **plane
    )
    x = net.convolution(x, 100, relu=False)
    shape = net.builder.constant("shape", np.array([1, 100], np.int32))
    x = net.builder.operator("RESHAPE", [x, shape], x.quantisation)
    return net.builder.model(net.softmax(x))


def mobilenet_v2(seed: int = 0, size: int = 64) -> bytes:
    """MobileNetV2 of width 0.25: inverted residuals, mean and a fully connected layer."""
    net = Maker("mobilenet-v2", seed)
    x = net.convolution(net.input((1, size, size, 3)), 8, 3, 2)
    x = net.convolution(net.depthwise(x), 8, relu=False)
    for channels, count, stride in ((8, 2, 2), (8, 2, 2), (16, 2, 2), (24, 2, 1), (40, 2, 2)):
        for number in range(count):
            step = stride if number == 0 else 1
            y = net.depthwise(net.convolution(x, 6 * x.shape[3]), step)
            y = net.convolution(y, channels, relu=False)
            x = (
                net.builder.operator("ADD", [x, y], net.quantisation(1.4 / 127))
                if y.shape == x.shape
                else y
            )
    return net.builder.model(net.softmax(net.dense(net.mean(net.convolution(x, 320)), 10)))


def residual(seed: int = 0) -> bytes:
    """Return a residual network: additions with fused RELU, explicit padding, and a global pool."""
    net = Maker("residual", seed)
    pads = net.builder.constant("pads", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    x = net.input((1, 32, 32, 3))
    x = net.builder.operator("PAD", [x, pads], x.quantisation)
    x = net.convolution(x, 16, 3)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = net.convolution(net.convolution(x, channels, 3, stride), channels, 3, relu=False)
        x = x if stride == 1 else net.convolution(x, channels, 1, stride, relu=False)
        both = net.quantisation(1.5 / 255, relu=True)
        x = net.builder.operator("ADD", [x, y], both, fused_activation_function="RELU")
    return net.builder.model(net.softmax(net.dense(net.mean(x), 10)))


def autoencoder(seed: int = 0) -> bytes:
    """Fully connected layers alone, as for finding anomalies."""
    net = Maker("autoencoder", seed)
    x = net.input((1, 640))
    for features in (128, 128, 8, 128, 128):
        x = net.dense(x, features, relu=True)
    return net.builder.model(net.dense(x, 640))


def keyword_spotting(seed: int = 0) -> bytes:
    """DS-CNN on 49 × 10 coefficients, from real numbers to real numbers."""
    net = Maker("keyword-spotting", seed)
    x = net.builder.input("sound", (1, 49, 10, 1), dtype=np.float32)
    x = net.builder.operator("QUANTIZE", [x], Quantisation(1 / 32, 3))
    x = net.depthwise(x, 2, 4, 64)
    for _ in range(4):
        x = net.convolution(net.depthwise(x), 64)
    plane = {"filter_width": x.shape[2], "filter_height": x.shape[1], "padding": "VALID"}
    x = net.builder.operator(
        "AVERAGE_POOL_2D", [x], x.quantisation, stride_w=1, stride_h=1, **plane
    )
    x = net.softmax(net.dense(x, 12))
    return net.builder.model(net.builder.operator("DEQUANTIZE", [x], dtype=np.float32))


def gated(seed: int = 0) -> bytes:
    """Return an unrolled LSTM in elementary operators, as converters write it.

    They do so without the fused operator.
    """
    net = Maker("gated", seed)
    steps = 4
    features = 16
    hidden = 24
    x = net.builder.input("sound", (1, steps, features), Quantisation(1 / 64, 2))
    columns = net.builder.operators("UNPACK", [x], [x.quantisation] * steps, num=steps, axis=1)
    state = net.builder.input("state", (1, hidden), Quantisation(1 / 128, 0))
    cell = net.builder.input("cell", (1, hidden), Quantisation(1 / 32, 0))
    axis = net.builder.constant("axis", np.array(1, np.int32))
    outputs = []
    for column in columns:
        column = net.builder.operator("QUANTIZE", [column], state.quantisation)
        both = net.builder.operator("CONCATENATION", [column, state], state.quantisation, axis=1)
        every = net.dense(both, 4 * hidden, scale=8 / 127)
        gates = net.builder.operators(
            "SPLIT", [axis, every], [every.quantisation] * 4, num_splits=4
        )
        opened = [net.builder.operator("LOGISTIC", [gate], PROBABILITY) for gate in gates[:3]]
        new = net.builder.operator("TANH", [gates[3]], Quantisation(1 / 128, 0))
        kept = net.builder.operator("MUL", [cell, opened[0]], Quantisation(1 / 32, 0))
        added = net.builder.operator("MUL", [new, opened[1]], Quantisation(1 / 128, 0))
        cell = net.builder.operator("ADD", [kept, added], Quantisation(1 / 32, 0))
        shown = net.builder.operator("TANH", [cell], Quantisation(1 / 128, 0))
        state = net.builder.operator("MUL", [shown, opened[2]], Quantisation(1 / 128, 0))
        outputs.append(state)
    return net.builder.model(
        net.builder.operator("PACK", outputs, state.quantisation, values_count=steps, axis=1)
    )


def fused_lstm(seed: int = 0) -> bytes:
    """Return a UNIDIRECTIONAL_SEQUENCE_LSTM between other layers.

    It has an int16 state and stays on the CPU; the others do not.
    """
    net = Maker("lstm", seed)
    steps = 5
    features = 16
    hidden = 12
    x = net.dense(net.input((steps, 8)), features)
    shape = net.builder.constant("shape", np.array([1, steps, features], np.int32))
    x = net.builder.operator("RESHAPE", [x, shape], x.quantisation)
    x = net.lstm(x, hidden)
    return net.builder.model(net.softmax(net.dense(x, 6)))


def unsigned_ends(seed: int = 0) -> bytes:
    """Return a network with uint8 inputs and outputs, as converters write it for cameras.

    The values are those inside plus 128, so nothing is computed for them.
    """
    net = Maker("unsigned-ends", seed)
    x = net.builder.input("image", (1, 16, 16, 3), Quantisation(1 / 127.5, 127), np.uint8)
    x = net.builder.operator("QUANTIZE", [x], Quantisation(1 / 127.5, -1))
    x = net.dense(net.mean(net.convolution(net.convolution(x, 8, 3, 2), 16)), 5)
    assert x.quantisation is not None
    ends = Quantisation(x.quantisation.scale, x.quantisation.zero_point + 128)
    return net.builder.model(net.builder.operator("QUANTIZE", [x], ends, np.uint8))


def attention(seed: int = 0, heads: int = 2, width: int = 16) -> bytes:
    """Return a vision transformer's patches, one attention layer with normalisation, and a mean.

    The mean is that of all tokens.
    """
    net = Maker("attention", seed)
    make = net.builder

    def integers(*numbers: int) -> Tensor:
        return make.constant(f"integers{net.count()}", np.array(numbers, np.int32))

    patches = net.convolution(net.input((1, 16, 16, 3)), width, 4, 4, relu=False)
    tokens = patches.shape[1] * patches.shape[2]
    x = make.operator("RESHAPE", [patches, integers(1, tokens, width)], patches.quantisation)

    def split(x: Tensor) -> Tensor:
        x = net.dense(x, width, keep=True)
        x = make.operator(
            "RESHAPE", [x, integers(1, tokens, heads, width // heads)], x.quantisation
        )
        return make.operator("TRANSPOSE", [x, integers(0, 2, 1, 3)], x.quantisation)

    scores = make.operator(
        "BATCH_MATMUL", [split(x), split(x)], Quantisation(4 / 127, 3), adj_y=True
    )
    mixed = make.operator(
        "BATCH_MATMUL", [net.softmax(scores), split(x)], Quantisation(1 / 100, -2)
    )
    mixed = make.operator("TRANSPOSE", [mixed, integers(0, 2, 1, 3)], mixed.quantisation)
    mixed = make.operator("RESHAPE", [mixed, integers(1, tokens, width)], mixed.quantisation)
    x = make.operator("ADD", [x, net.dense(mixed, width, keep=True)], Quantisation(1 / 80, 1))
    middle = make.operator("MEAN", [x, integers(2)], Quantisation(1 / 200, 4), keep_dims=True)
    apart = make.operator("SUB", [x, middle], Quantisation(1 / 70, 0))
    square = make.operator("MUL", [apart, apart], Quantisation(1 / 60, -128))
    spread = make.operator(
        "MEAN", [square, integers(2)], Quantisation(1 / 90, -128), keep_dims=True
    )
    small = make.constant("small", np.array(-127, np.int8), Quantisation(1e-3, -128))
    spread = make.operator("ADD", [spread, small], Quantisation(1 / 90, -128))
    x = make.operator(
        "MUL",
        [apart, make.operator("RSQRT", [spread], Quantisation(1 / 20, -128))],
        Quantisation(1 / 40),
    )
    x = make.operator("MEAN", [x, integers(1)], Quantisation(1 / 60, 0))
    return make.model(net.softmax(net.dense(x, 5)))


NETWORKS: dict[str, Callable[[int], bytes]] = {
    "mobilenet-v1": mobilenet_v1,
    "mobilenet-v2": mobilenet_v2,
    "residual": residual,
    "autoencoder": autoencoder,
    "keyword-spotting": keyword_spotting,
    "gated": gated,
    "lstm": fused_lstm,
    "unsigned-ends": unsigned_ends,
    "attention": attention,
}
"""Makers by name."""
