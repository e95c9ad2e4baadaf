"""Ways to quantise a float graph: this project, other scales, and tools with integer operators."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from byoc.frontend.onnx.rewriting.prepare import apply, passes
from byoc.frontend.onnx.rewriting.resizes import expand_resizes
from byoc.importing import import_model
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.package.package import Package
from byoc.quantisation.quantize import quantise
from byoc.runtimes.session import OnnxRuntimeSession

Feeds = Mapping[str, NDArray[Any]]


def random_package(model: onnx.ModelProto, feeds: Feeds, seed: int) -> Package:
    """The package of a float model, quantised on ``feeds`` in a way drawn from ``seed``."""
    rng = np.random.default_rng([seed, 1])
    name = model.graph.name
    way = rng.random()
    if way < 0.4:
        return import_model(model, name, calibration=[feeds])
    # Tools that write quantised models do not change interpolations.
    steps = [step for step in passes(model) if step.__name__ != expand_resizes.__name__]
    quantised = quantise(apply(steps, model), [feeds])
    other = Requantiser(quantised, rng).model() if way < 0.85 else quantised
    # ONNX Runtime writes a GroupNormalization as the elementary operators that its standard says.
    plain = all(node.op_type != "GroupNormalization" for node in other.graph.node)
    return import_model(_integer_operators(other) if plain and way > 0.75 else other, name)


def _integer_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return ONNX Runtime's optimised model: QLinear operators and movement of integers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "integer.onnx"
        OnnxRuntimeSession(model, str(path))
        return onnx.load(str(path))


class Requantiser:
    """Gives tensors of a quantised model other scales, zero points and element types.

    The model stays a model.
    """

    def __init__(self, model: onnx.ModelProto, rng: np.random.Generator) -> None:
        self._rng = rng
        self._model = onnx.ModelProto()
        self._model.CopyFrom(model)
        self._tensors = {tensor.name: tensor for tensor in self._model.graph.initializer}
        self._boundaries = [
            node for node in self._model.graph.node if node.op_type in (QUANTIZE, DEQUANTIZE)
        ]
        self._dtypes = str(rng.choice(["int8", "uint8", "mixed"], p=[0.45, 0.45, 0.1]))

    def model(self) -> onnx.ModelProto:
        """The model with its new numbers."""
        biases = [node for node in self._boundaries if self._dtype(node.input[0]) == np.int32]
        for node in self._boundaries:
            if node.op_type == QUANTIZE and self._dtype(node.input[2]) == np.int8:
                self._change_activation(node)
        for node in self._boundaries:
            if self._dtype(node.input[0]) == np.int8 and self._rng.random() < 0.1:
                self._change_weights(node)
        for node in biases:
            self._follow(node)
        return self._model

    def _dtype(self, name: str) -> Any:
        tensor = self._tensors.get(name)
        return None if tensor is None else onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)

    def _array(self, name: str) -> NDArray[Any]:
        return numpy_helper.to_array(self._tensors[name])

    def _put(self, name: str, array: NDArray[Any]) -> None:
        self._tensors[name].CopyFrom(numpy_helper.from_array(array, name))

    def _change_activation(self, node: onnx.NodeProto) -> None:
        _, scale, zero = node.input
        changed = self._rng.random() < 0.3
        factor = self._rng.random()
        point = int(self._array(zero))
        if changed and factor < 0.8:
            self._put(
                scale, (self._array(scale) * np.exp2(self._rng.uniform(-2, 2))).astype(np.float32)
            )
        elif changed:
            self._put(scale, np.exp2(self._rng.integers(-20, 6)).astype(np.float32))
        if changed:
            point = int(
                self._rng.choice([-128, -127, -1, 0, 1, 127, self._rng.integers(-128, 128)])
            )
        unsigned = self._dtypes == "uint8" or (self._dtypes == "mixed" and self._rng.random() < 0.3)
        self._put(zero, np.array(point + 128, np.uint8) if unsigned else np.array(point, np.int8))

    def _change_weights(self, node: onnx.NodeProto) -> None:
        """Weights of a zero point, and scales far apart."""
        scale = self._array(node.input[1])
        zero = self._array(node.input[2])
        if self._rng.random() < 0.5:
            self._put(node.input[2], self._rng.integers(-128, 128, zero.shape).astype(np.int8))
        else:
            self._put(
                node.input[1],
                (scale * np.exp2(self._rng.uniform(-4, 4, scale.shape))).astype(np.float32),
            )

    def _follow(self, bias: onnx.NodeProto) -> None:
        """The scale of a bias is the product of those of data and weights."""
        made = {node.output[0]: node for node in self._boundaries}
        for reader in self._model.graph.node:
            if bias.output[0] in reader.input[2:] and all(
                name in made for name in reader.input[:2]
            ):
                scales = [self._array(made[name].input[1]) for name in reader.input[:2]]
                self._put(bias.input[1], np.asarray(scales[0] * scales[1], np.float32))
                return
