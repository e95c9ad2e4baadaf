"""Streaming wake words of seven kinds, with variables as TensorFlow Lite's converter writes them.

Each network is built with its state as inputs and outputs; :func:`with_variables` then replaces
these by variables and the subgraph that initialises them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.runtimes import litert
from tests.e2e.tflite_networks import Maker
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

INPUT = Quantisation(0.1, -128)
"""Scale of the spectrogram's features."""
MEL = 8
"""Features in a time step."""


class State(NamedTuple):
    """A variable: its value before and after an inference, and its initial value."""

    name: str
    before: Tensor
    after: Tensor
    initial: NDArray[Any]


class Network:
    """A streaming network while it is built; weights are drawn from ``seed``."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.builder = TfliteBuilder(name)
        self.random = np.random.default_rng(seed)
        self.states: list[State] = []

    def numbers(self, *values: int) -> Tensor:
        """A constant of an operator's integer parameters."""
        return self.builder.constant(
            f"numbers_{self.random.integers(1 << 40)}", np.array(values, np.int32)
        )

    def state(self, name: str, shape: tuple[int, ...], how: Quantisation) -> Tensor:
        """The value of a variable before the inference."""
        return self.builder.input(name, shape, how)

    def assign(self, name: str, before: Tensor, after: Tensor) -> None:
        """Set the value after the inference."""
        shape = before.shape
        initial = self.random.integers(-128, 128, shape).astype(np.int8)
        self.states.append(State(name, before, after, initial))

    def ring(self, x: Tensor, frames: int) -> Tensor:
        """The last ``frames`` frames of a stream, of which ``x`` has the newest."""
        how = x.quantisation
        assert how is not None
        shape = (1, frames - x.shape[1], 1, x.shape[3])
        name = f"ring{len(self.states)}"
        before = self.state(f"{name}/read", shape, how)
        whole = self.builder.operator(
            "CONCATENATION", [before, x], how, name=f"{name}/concat", axis=1
        )
        begin, end, ones = (
            self.numbers(0, x.shape[1], 0, 0),
            self.numbers(1, frames, 1, shape[3]),
            self.numbers(1, 1, 1, 1),
        )
        after = self.builder.operator(
            "STRIDED_SLICE", [whole, begin, end, ones], how, name=f"{name}/new"
        )
        self.assign(name, before, after)
        return whole

    def weights(self, name: str, shape: Sequence[int], axis: int) -> Tensor:
        """Drawn weights with a scale for each channel."""
        scales = tuple(float(one) for one in self.random.uniform(0.004, 0.01, shape[axis]))
        data = self.random.integers(-127, 128, tuple(shape)).astype(np.int8)
        return self.builder.constant(name, data, Quantisation(scales, 0, axis))

    def conv(self, x: Tensor, channels: int, kind: str = "CONV_2D") -> Tensor:
        """A convolution over all frames, fused with ReLU."""
        assert x.quantisation is not None
        name = f"{kind.lower()}{self.random.integers(1 << 30)}"
        deep = kind == "DEPTHWISE_CONV_2D"
        shape = (1, x.shape[1], 1, channels) if deep else (channels, *x.shape[1:])
        weights = self.weights(f"{name}/weights", shape, 3 if deep else 0)
        assert weights.quantisation is not None
        scales = tuple(x.quantisation.scale * one for one in weights.quantisation.scales)  # type: ignore[operator]
        bias = self.builder.constant(
            f"{name}/bias",
            self.random.integers(-2000, 2000, channels).astype(np.int32),
            Quantisation(scales),
        )
        return self.builder.operator(
            kind,
            [x, weights, bias],
            Quantisation(0.08, -128),
            padding="VALID",
            fused_activation_function="RELU",
        )

    def dense(self, x: Tensor, units: int, how: Quantisation) -> Tensor:
        """A fully connected layer without an activation."""
        assert x.quantisation is not None
        name = f"dense{self.random.integers(1 << 30)}"
        weights = self.builder.constant(
            f"{name}/weights",
            self.random.integers(-127, 128, (units, x.shape[-1])).astype(np.int8),
            Quantisation(0.01),
        )
        bias = self.builder.constant(
            f"{name}/bias",
            self.random.integers(-500, 500, units).astype(np.int32),
            Quantisation(x.quantisation.scales[0] * 0.01),
        )
        return self.builder.operator("FULLY_CONNECTED", [x, weights, bias], how)

    def score(self, x: Tensor) -> bytes:
        """The file, with a probability as its output."""
        flat = self.builder.operator(
            "RESHAPE", [x, self.numbers(1, int(np.prod(x.shape)))], x.quantisation
        )
        logits = self.dense(flat, 2, Quantisation(0.5, 3))
        found = self.builder.operator(
            "LOGISTIC", [logits], Quantisation(1 / 256, -128), name="score"
        )
        outputs = dict.fromkeys([found, *(one.after for one in self.states)])
        return with_variables(self.builder.model(*outputs), self.states)

    def features(self, frames: int = 1) -> Tensor:
        """The input: new frames of the spectrogram."""
        return self.builder.input("features", (1, frames, 1, MEL), INPUT)


def convolutional() -> bytes:
    """Dense convolutions over rings."""
    net = Network("convolutional", 1)
    x = net.conv(net.ring(net.features(), 5), 16)
    return net.score(net.conv(net.ring(x, 4), 12))


def separable() -> bytes:
    """Depthwise convolutions over rings, three new frames in each step."""
    net = Network("separable", 2)
    x = net.conv(net.ring(net.features(3), 5), 16)
    x = net.conv(net.ring(x, 9), 16, "DEPTHWISE_CONV_2D")
    return net.score(net.conv(x, 16))


def residual() -> bytes:
    """A temporal residual block: the addition reads the newest frame of the ring."""
    net = Network("residual", 3)
    x = net.conv(net.ring(net.features(), 3), 16)
    y = net.conv(net.ring(x, 6), 16)
    return net.score(net.builder.operator("ADD", [x, y], Quantisation(0.1, -128)))


def recurrent() -> bytes:
    """A gated cell: the new state is g * h + (1 - g) * tanh(...)."""
    net = Network("recurrent", 4)
    build = net.builder
    x = build.operator("RESHAPE", [net.features(), net.numbers(1, MEL)], INPUT)
    unit = Quantisation(1 / 128)
    h = net.state("cell/read", (1, 12), unit)
    both = build.operator("CONCATENATION", [h, build.operator("QUANTIZE", [x], unit)], unit, axis=1)
    gate = build.operator(
        "LOGISTIC", [net.dense(both, 12, Quantisation(0.05))], Quantisation(1 / 256, -128)
    )
    new = build.operator("TANH", [net.dense(both, 12, Quantisation(0.03))], unit)
    change = build.operator("MUL", [gate, build.operator("SUB", [new, h], Quantisation(1 / 64))],
                            Quantisation(1 / 64))  # fmt: skip
    after = build.operator("ADD", [h, change], unit)
    net.assign("cell", h, after)
    return net.score(after)


def pooled() -> bytes:
    """Averages over a ring of embeddings, and a ring of scores."""
    net = Network("pooled", 5)
    x = net.ring(net.conv(net.ring(net.features(2), 4), 16), 8)
    mean = net.builder.operator(
        "AVERAGE_POOL_2D", [x], x.quantisation, padding="VALID", filter_height=8, filter_width=1
    )
    return net.score(net.ring(mean, 3))


def filtered() -> bytes:
    """An SVDF of rank 2 after a ring: its own state is in int16, in the operator."""
    net = Network("filtered", 6)
    build = net.builder
    x = net.conv(net.ring(net.features(), 4), 12)
    x = build.operator("RESHAPE", [x, net.numbers(1, 12)], x.quantisation)
    time = net.random.integers(-32767, 32768, (16, 5)).astype(np.int16)
    units = Quantisation(1 / 512)
    operands = [
        x,
        build.constant("w", net.random.integers(-127, 128, (16, 12)).astype(np.int8),
                       Quantisation(0.01)),
        build.constant("time", time, Quantisation(2.0**-15)),
        build.constant("b", net.random.integers(-500, 500, 8).astype(np.int32),
                       Quantisation(2.0**-24)),
        build.variable("frames", (1, 16 * 5), units, np.int16),
    ]  # fmt: skip
    options = {"rank": 2, "fused_activation_function": "RELU"}
    return net.score(build.operator("SVDF", operands, Quantisation(0.05, -100), **options))


def gated() -> bytes:
    """A fused LSTM, whose two states are in the operator."""
    maker = Maker("gated", 7)
    net = Network("gated", 7)
    maker.builder = net.builder
    x = net.conv(net.ring(net.features(), 4), 16)
    x = net.builder.operator("RESHAPE", [x, net.numbers(1, 1, 16)], x.quantisation)
    return net.score(maker.lstm(x, 12))


KINDS: dict[str, Callable[[], bytes]] = {
    one.__name__: one
    for one in (convolutional, separable, residual, recurrent, pooled, filtered, gated)
}


def with_variables(content: bytes, states: Sequence[State]) -> bytes:
    """The model with its state in variables, which a subgraph initialises."""
    schema = litert.schema()
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    main = model.subgraphs[0]
    once = schema.SubGraphT()
    once.name, once.tensors, once.operators, once.inputs, once.outputs = "once", [], [], [], []
    opening = [_operator(model, "CALL_ONCE", [], [])]
    opening[0].builtinOptionsType = schema.BuiltinOptions.CallOnceOptions
    opening[0].builtinOptions = schema.CallOnceOptionsT()
    opening[0].builtinOptions.initSubgraphIndex = 1
    closing = []
    for one in states:
        handle = _handle(model, main, opening, one.name)
        opening.append(_operator(model, "READ_VARIABLE", [handle], [one.before.index]))
        closing.append(_operator(model, "ASSIGN_VARIABLE", [handle, one.after.index], []))
        first = _handle(model, once, once.operators, one.name)
        value = schema.TensorT()
        value.name, value.shape = f"{one.name}/initial", np.array(one.before.shape, np.int32)
        value.type, value.buffer = main.tensors[one.before.index].type, len(model.buffers)
        value.quantization = main.tensors[one.before.index].quantization
        model.buffers.append(schema.BufferT(data=np.frombuffer(one.initial.tobytes(), np.uint8)))
        once.tensors.append(value)
        once.operators.append(
            _operator(model, "ASSIGN_VARIABLE", [first, len(once.tensors) - 1], [])
        )
    main.operators = [*opening, *main.operators, *closing]
    before = {one.before.index for one in states}
    after = {one.after.index for one in states}
    main.inputs = [int(n) for n in main.inputs if int(n) not in before]
    # an output that is state as well stays if it is the first one: the network's own result
    main.outputs = [int(n) for n in main.outputs if int(n) not in after or n == main.outputs[0]]
    model.subgraphs.append(once)
    return litert.pack_model(model)


def _handle(model: Any, graph: Any, operators: list[Any], name: str) -> int:
    """A tensor with the handle of the variable ``name``, made by a new operator."""
    schema = litert.schema()
    tensor = schema.TensorT()
    tensor.name, tensor.shape = f"{name}/handle", np.zeros(0, np.int32)
    tensor.type = schema.TensorType.RESOURCE
    graph.tensors.append(tensor)
    made = _operator(model, "VAR_HANDLE", [], [len(graph.tensors) - 1])
    made.builtinOptionsType = schema.BuiltinOptions.VarHandleOptions
    made.builtinOptions = schema.VarHandleOptionsT()
    made.builtinOptions.sharedName = name
    operators.append(made)
    return len(graph.tensors) - 1


def _operator(model: Any, kind: str, inputs: list[int], outputs: list[int]) -> Any:
    schema = litert.schema()
    number = getattr(schema.BuiltinOperator, kind)
    numbers = [one.builtinCode for one in model.operatorCodes]
    if number not in numbers:
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, 127, 1
        model.operatorCodes.append(code)
        numbers.append(number)
    made = schema.OperatorT()
    made.opcodeIndex, made.inputs, made.outputs = numbers.index(number), inputs, outputs
    return made
