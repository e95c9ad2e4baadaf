"""Float networks that lose most of their signal in int8 with ranges from minimum to maximum.

Weights and samples are seeded. The samples are time signals of harmonics with pauses, and tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array = NDArray[np.float32]
Feeds = list[dict[str, Array]]


class Builder:
    """Nodes and constants of a network under construction."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[TensorProto] = []

    def constant(self, array: object, kind: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, kind), name))
        return name

    def normal(self, *shape: int, scale: float | None = None) -> str:
        factor = shape[-2] ** -0.5 if scale is None else scale
        return self.constant(self.random.standard_normal(shape) * factor)

    def add(self, kind: str, *inputs: str, outputs: int = 1, name: str = "", **more: Any) -> Any:
        label = name or f"{kind.lower()}{len(self.nodes)}"
        names = [label, *(f"{label}_{one}" for one in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, list(inputs), names, f"n_{label}", **more))
        return names[0] if outputs == 1 else names

    def model(self, inputs: dict[str, list[int]], outputs: dict[str, list[int]]) -> ModelProto:
        ends, results = (
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in each]
            for each in (inputs.items(), outputs.items())
        )
        graph = helper.make_graph(self.nodes, "low", ends, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def text_encoder(layers: int = 2, hidden: int = 64, tokens: int = 32) -> tuple[ModelProto, Feeds]:
    """Return an encoder as MiniLM's: outlier channels after each LayerNorm, and a mask."""
    b = Builder(1)
    heads = 4
    width = hidden // heads
    mask = b.add("Mul", b.add("Sub", b.constant(1), "mask"), b.constant(-10000))
    x = "tokens"

    def norm(x: str, last: bool) -> str:
        gain = 1 + 0.2 * b.random.standard_normal(hidden)
        if not last:
            gain[[5, 41]] = 40, 25
        shift = 0.1 * b.random.standard_normal(hidden)
        return str(b.add("LayerNormalization", x, b.constant(gain), b.constant(shift), axis=-1))

    def linear(x: str, rows: int, columns: int) -> str:
        weights = b.random.standard_normal((rows, columns)) * rows**-0.5
        if rows == hidden:
            weights[[5, 41]] /= 20
        product = b.add("MatMul", x, b.constant(weights))
        return str(b.add("Add", product, b.normal(columns, scale=0.1)))

    def split(x: str, order: list[int]) -> str:
        shape = b.constant([1, tokens, heads, width], np.int64)
        return str(b.add("Transpose", b.add("Reshape", x, shape), perm=order))

    for layer in range(layers):
        q, v = (split(linear(x, hidden, hidden), [0, 2, 1, 3]) for _ in range(2))
        k = split(linear(x, hidden, hidden), [0, 2, 3, 1])
        scores = b.add("Div", b.add("MatMul", q, k), b.constant(width**0.5))
        shares = b.add("Softmax", b.add("Add", scores, mask), axis=-1)
        mixed = b.add("Transpose", b.add("MatMul", shares, v), perm=[0, 2, 1, 3])
        joined = b.add("Reshape", mixed, b.constant([1, tokens, hidden], np.int64))
        x = norm(b.add("Add", x, linear(joined, hidden, hidden)), False)
        wide = linear(x, hidden, 4 * hidden)
        erf = b.add("Erf", b.add("Div", wide, b.constant(2**0.5)))
        gelu = b.add("Mul", b.add("Mul", wide, b.add("Add", erf, b.constant(1))), b.constant(0.5))
        x = norm(b.add("Add", x, linear(gelu, 4 * hidden, hidden)), layer == layers - 1)
    first = b.add(
        "Squeeze",
        b.add("Slice", x, *(b.constant([n], np.int64) for n in (0, 1, 1))),
        b.constant([1], np.int64),
    )
    pooled = b.add("Tanh", linear(first, hidden, hidden))
    b.add(
        "Add", b.add("MatMul", pooled, b.normal(hidden, 8)), b.normal(8, scale=0.1), name="scores"
    )
    model = b.model({"tokens": [1, tokens, hidden], "mask": [1, 1, 1, tokens]}, {"scores": [1, 8]})
    random = np.random.default_rng(2)
    feeds = []
    for _ in range(16):
        mask_of = np.ones((1, 1, 1, tokens), np.float32)
        mask_of[..., random.integers(8, tokens) :] = 0
        values = random.standard_normal((1, tokens, hidden)).astype(np.float32)
        feeds.append({"tokens": values, "mask": mask_of})
    return model, feeds


def sound(samples: int, seed: int) -> Array:
    """Return harmonics of a voice with pauses between them, and weak noise."""
    random = np.random.default_rng(seed)
    time = np.arange(samples) / 16000
    pitch = random.uniform(90, 250)
    parts = [
        np.sin(2 * np.pi * pitch * n * time + random.uniform(0, 6)) / n**1.5 for n in range(1, 25)
    ]
    loudness = np.clip(np.sin(2 * np.pi * random.uniform(3, 8) * time + random.uniform(0, 6)), 0, 1)
    voice = 0.2 * random.uniform(0.1, 1) * sum(parts) * loudness**2
    return np.asarray(voice + 1e-3 * random.standard_normal(samples), np.float32)


def fourier(b: Builder, x: str, size: int, step: int) -> tuple[str, str]:
    """Add a short-time Fourier transform as a convolution; return real and imaginary parts."""
    angles = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
    window = np.hanning(size)
    weights = np.concatenate([np.cos(angles) * window, -np.sin(angles) * window])[:, np.newaxis]
    both = b.add("Conv", x, b.constant(weights), strides=[step])
    parts = b.constant([size // 2 + 1] * 2, np.int64)
    real, imaginary = b.add("Split", both, parts, outputs=2, axis=1)
    return real, imaginary


def log_mel() -> tuple[ModelProto, Feeds]:
    """Return a log-mel front end with a small classifier."""
    b = Builder(3)
    real, imaginary = fourier(b, "sound", 256, 128)
    power = b.add("Add", b.add("Mul", real, real), b.add("Mul", imaginary, imaginary))
    centres = np.linspace(0, 128, 34)
    mel = np.maximum(0, 1 - np.abs(np.arange(129) - centres[1:-1, np.newaxis]) / centres[1])
    energy = b.add("MatMul", b.constant(mel), power)
    b.add("Log", b.add("Add", energy, b.constant(1e-6)), name="features")
    hidden = b.add("Relu", b.add("Conv", "features", b.normal(16, 32, 3, scale=0.1)))
    mean = b.add("ReduceMean", hidden, axes=[2], keepdims=0)
    b.add("Gemm", mean, b.normal(16, 6), b.normal(6, scale=0.1), name="scores")
    model = b.model({"sound": [1, 1, 4096]}, {"features": [1, 32, 31], "scores": [1, 6]})
    return model, [{"sound": sound(4096, seed)[np.newaxis, np.newaxis]} for seed in range(16)]


def voice_activity() -> tuple[ModelProto, Feeds]:
    """Return a voice detector: a magnitude spectrum, convolutions, an LSTM with its state."""
    b = Builder(4)
    real, imaginary = fourier(b, "sound", 256, 128)
    power = b.add("Add", b.add("Mul", real, real), b.add("Mul", imaginary, imaginary))
    x = b.add("Sqrt", power)
    for rows, columns in ((129, 64), (64, 32), (32, 64)):
        weights = b.normal(columns, rows, 3, scale=(2 / (3 * rows)) ** 0.5)
        x = b.add("Relu", b.add("Conv", x, weights, b.normal(columns, scale=0.1), pads=[1, 1]))
    steps = b.add("Transpose", x, perm=[2, 0, 1])
    size = 64
    outputs = b.add(
        "LSTM",
        steps,
        b.normal(1, 4 * size, 64, scale=0.2),
        b.normal(1, 4 * size, size, scale=0.2),
        b.normal(1, 8 * size, scale=0.2),
        "",
        "h",
        "c",
        outputs=3,
        hidden_size=size,
    )
    last = b.add("Squeeze", outputs[1], b.constant([0], np.int64))
    b.add("Sigmoid", b.add("Gemm", b.add("Relu", last), b.normal(size, 1, scale=0.4)), name="voice")
    b.add("Identity", outputs[1], name="h_next")
    b.add("Identity", outputs[2], name="c_next")
    shape = [1, 1, size]
    model = b.model(
        {"sound": [1, 1, 640], "h": shape, "c": shape},
        {"voice": [1, 1], "h_next": shape, "c_next": shape},
    )
    random = np.random.default_rng(5)
    return model, [
        {
            "sound": sound(4096, seed)[np.newaxis, np.newaxis, 1024:1664],
            "h": (random.standard_normal(shape) * 0.3).astype(np.float32),
            "c": (random.standard_normal(shape) * 0.6).astype(np.float32),
        }
        for seed in range(16)
    ]
