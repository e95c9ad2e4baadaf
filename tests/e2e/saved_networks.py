"""Small quantised networks that ONNX Runtime optimised and saved, each drawn from a generator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from tests.byoc.small_models import ModelBuilder

Block = Callable[[str], str]
SAMPLES = 4
LEVELS = ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


class _Network:
    """A float network of convolutional blocks, which keep the size of their planes or halve it."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._builder = ModelBuilder(opset=17)
        self.shape = [1, int(random.integers(1, 5)), 12, 12]
        self._channels = self.shape[1]

    def draw(self) -> onnx.ModelProto:
        """Return the network: a stem, two to four blocks, and a head on vectors or none."""
        name = self._convolution(self._builder.input("x", self.shape), self._size(), activated=True)
        blocks: list[Block] = [
            self._residual,
            self._depthwise,
            self._branches,
            self._pool,
            self._function,
        ]
        for index in self._random.choice(
            len(blocks), int(self._random.integers(2, 5)), replace=False
        ):
            name = blocks[index](name)
        self._builder.output(self._head(name) if self._random.random() < 0.6 else name)
        return self._builder.model()

    def _size(self) -> int:
        return int(self._random.integers(3, 13))

    def _weights(self, *shape: int) -> str:
        return self._builder.constant(self._random.normal(0, 0.3, shape), "float32")

    def _convolution(
        self, name: str, channels: int, kernel: int = 3, activated: bool = False, group: int = 1
    ) -> str:
        weights = self._weights(channels, self._channels // group, kernel, kernel)
        bias = [self._weights(channels)] if self._random.random() < 0.7 else []
        self._channels = channels
        name = self._builder.node("Conv", name, weights, *bias, group=group, pads=[kernel // 2] * 4)
        return self._activation(name) if activated else name

    def _activation(self, name: str) -> str:
        if self._random.random() < 0.6:
            return self._builder.node("Relu", name)
        limits = [self._builder.constant(limit, "float32") for limit in (0, 6)]
        return self._builder.node("Clip", name, *limits)

    def _residual(self, name: str) -> str:
        channels = self._channels
        inner = self._convolution(name, self._size(), activated=True)
        name = self._builder.node("Add", self._convolution(inner, channels), name)
        return self._builder.node("Relu", name) if self._random.random() < 0.5 else name

    def _depthwise(self, name: str) -> str:
        name = self._convolution(name, self._channels, activated=True, group=self._channels)
        return self._convolution(name, self._size(), 1)

    def _branches(self, name: str) -> str:
        given = self._channels
        ends = []
        total = 0
        for _ in range(int(self._random.integers(2, 4))):
            self._channels = given
            pooled = self._random.random() < 0.3
            branch = (
                self._builder.node("MaxPool", name, kernel_shape=[3, 3], pads=[1] * 4)
                if pooled
                else name
            )
            ends.append(
                self._convolution(
                    branch, self._size(), int(self._random.choice([1, 3])), activated=not pooled
                )
            )
            total += self._channels
        self._channels = total
        return self._builder.node("Concat", *ends, axis=1)

    def _pool(self, name: str) -> str:
        kind = str(self._random.choice(["MaxPool", "AveragePool"]))
        return self._builder.node(kind, name, kernel_shape=[2, 2], strides=[2, 2])

    def _function(self, name: str) -> str:
        kind = str(self._random.choice(["LeakyRelu", "Sigmoid", "HardSwish"]))
        return self._convolution(
            self._builder.node(kind, self._convolution(name, self._size())), self._size(), 1
        )

    def _head(self, name: str) -> str:
        outputs = self._size()
        vectors = self._builder.node("Flatten", self._builder.node("GlobalAveragePool", name))
        name = self._builder.node(
            "Gemm", vectors, self._weights(self._channels, outputs), self._weights(outputs)
        )
        return self._builder.node("Relu", name) if self._random.random() < 0.5 else name


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: list[int], random: np.random.Generator) -> None:
        self._left = [{"x": random.normal(size=shape).astype(np.float32)} for _ in range(SAMPLES)]

    def get_next(self) -> dict[str, Any] | None:
        return self._left.pop() if self._left else None


def saved_network(random: np.random.Generator) -> onnx.ModelProto:
    """Return a uint8 or int8 network as ONNX Runtime saves it at level EXTENDED or ALL."""
    network = _Network(random)
    kind = QuantType.QUInt8 if random.random() < 0.5 else QuantType.QInt8
    form = QuantFormat.QDQ if random.random() < 0.7 else QuantFormat.QOperator
    with tempfile.TemporaryDirectory() as folder:
        given, quantised, saved = (
            Path(folder) / f"{name}.onnx" for name in ("given", "quantised", "saved")
        )
        onnx.save(network.draw(), given)
        quantize_static(
            given,
            quantised,
            _Samples(network.shape, random),
            quant_format=form,
            per_channel=bool(random.random() < 0.5),
            activation_type=kind,
            weight_type=QuantType.QInt8,
        )
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, str(random.choice(LEVELS))
        )
        options.add_session_config_entry("session.qdqisint8allowed", str(random.integers(2)))
        options.optimized_model_filepath = str(saved)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(quantised, options, ["CPUExecutionProvider"])
        return onnx.load(saved)
