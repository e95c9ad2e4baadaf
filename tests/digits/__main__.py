"""Train ``digits-cnn`` in plain NumPy and write the network and its data.

The files go to ``experiments/models``. Run ``python -m tests.digits`` (needs the ``train`` extra:
scikit-learn, for its handwritten digits only, and ``tflite``). Everything is drawn from one seed.
The result, ``digits-cnn.onnx``, the same network quantised as ``digits-cnn.tflite``, and
``digits-data.npz``, is committed, so nothing here is needed to run the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from experiments.models import digits as stored
from experiments.models.digits import DATA_FILE, MODEL_FILE, TFLITE_FILE
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

CHANNELS = 16
FEATURES = 32
CLASSES = 10

Array = NDArray[np.float32]
Parameters = dict[str, Array]


def initial_parameters(generator: np.random.Generator) -> Parameters:
    """He-normal weights and zero biases, by the names that the ONNX initialisers carry."""
    shapes = {
        "conv": (CHANNELS, 1, 3, 3),
        "depthwise": (CHANNELS, 1, 3, 3),
        "pointwise": (FEATURES, CHANNELS, 1, 1),
        "classifier": (CLASSES, FEATURES * 4 * 4),
    }
    parameters: Parameters = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2.0 / np.prod(shape[1:]))
        parameters[f"{name}_weight"] = (generator.standard_normal(shape) * deviation).astype(
            np.float32
        )
        parameters[f"{name}_bias"] = np.zeros(shape[0], np.float32)
    return parameters


def windows(images: Array) -> Array:
    """All 3×3 windows of (N, C, H, W) padded by one zero: a view (N, C, H, W, 3, 3)."""
    return sliding_window_view(
        np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
    )


def forward(parameters: Parameters, images: Array) -> dict[str, Any]:
    """All intermediate results by name; ``logits`` is (N, 10)."""
    p = parameters
    patches = windows(images)
    conv = np.einsum("nchwyx,kcyx->nkhw", patches, p["conv_weight"], optimize=True)
    conv = np.maximum(conv + p["conv_bias"][:, None, None], 0)
    depth = np.einsum("nchwyx,cyx->nchw", windows(conv), p["depthwise_weight"][:, 0], optimize=True)
    depth = np.maximum(depth + p["depthwise_bias"][:, None, None], 0)
    point = np.einsum("nchw,kc->nkhw", depth, p["pointwise_weight"][:, :, 0, 0], optimize=True)
    point = np.maximum(point + p["pointwise_bias"][:, None, None], 0)
    cells = point.reshape(len(images), FEATURES, 4, 2, 4, 2)
    pooled = cells.max(axis=(3, 5))
    logits = pooled.reshape(len(images), -1) @ p["classifier_weight"].T + p["classifier_bias"]
    return {
        "patches": patches,
        "conv": conv,
        "depth": depth,
        "cells": cells,
        "pooled": pooled,
        "logits": logits,
    }


def loss_and_gradients(
    parameters: Parameters, images: Array, labels: NDArray[np.int64]
) -> tuple[float, Parameters]:
    """Mean cross entropy of a batch and its gradient by every parameter."""
    p = parameters
    count = len(images)
    f = forward(parameters, images)
    shifted = f["logits"] - f["logits"].max(axis=1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    loss = float(-np.log(probabilities[np.arange(count), labels]).mean())
    logits = (probabilities - np.eye(CLASSES, dtype=np.float32)[labels]) / count
    gradients = {
        "classifier_weight": logits.T @ f["pooled"].reshape(count, -1),
        "classifier_bias": logits.sum(axis=0),
    }
    pooled = (logits @ p["classifier_weight"]).reshape(f["pooled"].shape)
    gradients |= feature_gradients(p, f, pooled)
    return loss, {name: value.astype(np.float32) for name, value in gradients.items()}


def feature_gradients(p: Parameters, f: dict[str, Any], pooled: Array) -> Parameters:
    """Return the gradients of the three convolutions.

    ``pooled`` is the gradient (N, 32, 4, 4) by the pooled features.
    """
    # The gradient goes to every maximum of a cell; ties only happen at zero, where ReLU stops it.
    cells = (f["cells"] == f["pooled"][:, :, :, None, :, None]) * (f["cells"] > 0)
    point = (cells * pooled[:, :, :, None, :, None]).reshape(len(pooled), FEATURES, 8, 8)
    depth = np.einsum("nkhw,kc->nchw", point, p["pointwise_weight"][:, :, 0, 0], optimize=True) * (
        f["depth"] > 0
    )
    # The gradient by the input of a convolution is the convolution with the filter turned by 180
    # degrees.
    turned = p["depthwise_weight"][:, 0, ::-1, ::-1]
    conv = np.einsum("nchwyx,cyx->nchw", windows(depth), turned, optimize=True) * (f["conv"] > 0)
    return {
        "pointwise_weight": np.einsum("nkhw,nchw->kc", point, f["depth"], optimize=True)[
            :, :, None, None
        ],
        "pointwise_bias": point.sum(axis=(0, 2, 3)),
        "depthwise_weight": np.einsum("nchw,nchwyx->cyx", depth, windows(f["conv"]), optimize=True)[
            :, None
        ],
        "depthwise_bias": depth.sum(axis=(0, 2, 3)),
        "conv_weight": np.einsum("nkhw,nchwyx->kcyx", conv, f["patches"], optimize=True),
        "conv_bias": conv.sum(axis=(0, 2, 3)),
    }


def accuracy(parameters: Parameters, images: Array, labels: NDArray[np.int64]) -> float:
    """Share of images whose largest logit is the label."""
    return float((forward(parameters, images)["logits"].argmax(axis=1) == labels).mean())


def digits_graph(parameters: Mapping[str, NDArray[np.float32]]) -> ModelProto:
    """The ONNX network (opset 21) that holds ``parameters`` as named by ``initial_parameters``."""
    graph = helper.make_graph(
        _digits_nodes(),
        "digits-cnn",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 1, 8, 8))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, 10))],
        [
            numpy_helper.from_array(np.ascontiguousarray(value), name)
            for name, value in parameters.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _digits_nodes() -> list[NodeProto]:
    def node(
        op_type: str, name: str, inputs: list[str], output: str, **attributes: Any
    ) -> NodeProto:
        return helper.make_node(op_type, inputs, [output], name=name, **attributes)

    def weighted(name: str) -> list[str]:
        return [f"{name}_weight", f"{name}_bias"]

    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    return [
        node("Conv", "conv", ["image", *weighted("conv")], "conv_out", **same),
        node("Relu", "conv_relu", ["conv_out"], "conv_act"),
        node(
            "Conv",
            "depthwise",
            ["conv_act", *weighted("depthwise")],
            "depthwise_out",
            group=16,
            **same,
        ),
        node("Relu", "depthwise_relu", ["depthwise_out"], "depthwise_act"),
        node(
            "Conv",
            "pointwise",
            ["depthwise_act", *weighted("pointwise")],
            "pointwise_out",
            kernel_shape=[1, 1],
        ),
        node("Relu", "pointwise_relu", ["pointwise_out"], "pointwise_act"),
        node("MaxPool", "pool", ["pointwise_act"], "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "flatten", ["pooled"], "features", axis=1),
        node("Gemm", "classifier", ["features", *weighted("classifier")], "logits", transB=1),
    ]


HELD_OUT = 450
CALIBRATION = 64


@dataclass(frozen=True)
class Digits:
    """scikit-learn's 1797 digits, shuffled and split.

    Images are uint8 (N, 8, 8) with values 0..16, labels are int64 (N,).
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def load_digits(seed: int) -> Digits:
    """The data set with the last 450 images of a seeded permutation held out."""
    from sklearn.datasets import load_digits as sklearn_digits

    bunch = sklearn_digits()
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    images = bunch.images.astype(np.uint8)[order]
    labels = bunch.target.astype(np.int64)[order]
    return Digits(images[:-HELD_OUT], labels[:-HELD_OUT], images[-HELD_OUT:], labels[-HELD_OUT:])


def normalise(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 (N, 8, 8) with values 0..16 to the network's float32 (N, 1, 8, 8) with values 0..1."""
    return (images.astype(np.float32) / 16.0)[:, np.newaxis]


def shifted(images: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float32]:
    """Move each image (N, 1, 8, 8) by -1, 0 or 1 pixels in both directions.

    This is the only augmentation.
    """
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = generator.integers(0, 3, size=(2, len(images)))
    return np.stack(
        [p[:, r : r + 8, c : c + 8] for p, r, c in zip(padded, rows, columns, strict=True)]
    )


def train(digits: Digits, seed: int, epochs: int = 40, batch: int = 32) -> Parameters:
    """Adam on the cross entropy with a cosine learning rate from 0.003 to 0.

    Returns the trained parameters.
    """
    generator = np.random.default_rng(seed)
    parameters = initial_parameters(generator)
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    images = normalise(digits.train_images)
    steps_per_epoch = len(images) // batch
    for step in range(epochs * steps_per_epoch):
        if step % steps_per_epoch == 0:
            order = generator.permutation(len(images))
        chosen = order[step % steps_per_epoch * batch :][:batch]
        _, gradients = loss_and_gradients(
            parameters, shifted(images[chosen], generator), digits.train_labels[chosen]
        )
        rate = 0.0015 * (1 + np.cos(np.pi * step / (epochs * steps_per_epoch)))
        adam_step(parameters, gradients, first, second, step + 1, float(rate))
    return parameters


def adam_step(
    parameters: Parameters,
    gradients: Parameters,
    first: Parameters,
    second: Parameters,
    step: int,
    rate: float,
) -> None:
    """Update the parameters in place by Adam (Kingma and Ba, 2015) with its default moments.

    ``step`` counts from 1.
    """
    for name, gradient in gradients.items():
        first[name] = 0.9 * first[name] + 0.1 * gradient
        second[name] = 0.999 * second[name] + 0.001 * gradient**2
        unbiased = first[name] / (1 - 0.9**step)
        spread = np.sqrt(second[name] / (1 - 0.999**step))
        parameters[name] = (parameters[name] - rate * unbiased / (spread + 1e-8)).astype(np.float32)


def tflite_content(parameters: Parameters, images: Array) -> bytes:
    """The network as an int8 TensorFlow Lite model.

    Activations have the ranges that they have on ``images``.

    Input ``image`` int8 (1, 8, 8, 1), of which 0 to 255 steps stand for 0..1; output ``logits``
    int8 (1, 10). Weights have a scale a channel, the classifier's one for all.
    """
    seen = forward(parameters, images)
    builder = TfliteBuilder("digits-cnn")
    same: dict[str, Any] = {"padding": "SAME", "fused_activation_function": "RELU"}
    x = builder.input("image", (1, 8, 8, 1), Quantisation(1 / 255, -128))
    x = _weighted(
        builder, "CONV_2D", "conv", x, parameters, ((0, 2, 3, 1), 0), seen["conv"], **same
    )
    x = _weighted(
        builder,
        "DEPTHWISE_CONV_2D",
        "depthwise",
        x,
        parameters,
        ((1, 2, 3, 0), 3),
        seen["depth"],
        **same,
    )
    x = _weighted(
        builder, "CONV_2D", "pointwise", x, parameters, ((0, 2, 3, 1), 0), seen["cells"], **same
    )
    halves: dict[str, Any] = {
        "filter_width": 2,
        "filter_height": 2,
        "stride_w": 2,
        "stride_h": 2,
        "padding": "VALID",
    }
    x = builder.operator("MAX_POOL_2D", [x], x.quantisation, name="pool", **halves)
    # Features lie channel after channel in the float network, pixel after pixel here.
    planes = parameters["classifier_weight"].reshape(CLASSES, FEATURES, 4, 4).transpose(0, 2, 3, 1)
    dense = {**parameters, "classifier_weight": planes.reshape(CLASSES, -1)}
    x = _weighted(
        builder,
        "FULLY_CONNECTED",
        "classifier",
        x,
        dense,
        ((0, 1), None),
        seen["logits"],
        result="logits",
    )
    return builder.model(x)


def _weighted(
    builder: TfliteBuilder,
    kind: str,
    name: str,
    x: Tensor,
    parameters: Parameters,
    layout: tuple[tuple[int, ...], int | None],
    seen: Array,
    result: str = "",
    **options: Any,
) -> Tensor:
    """An operator with the weights and biases called ``name``: symmetric int8 and int32.

    ``layout``: the order of the weights' axes, and along which of them they have scales of their
    own.
    """
    order, axis = layout
    weights = np.ascontiguousarray(parameters[f"{name}_weight"].transpose(order))
    others = (
        None if axis is None else tuple(number for number in range(weights.ndim) if number != axis)
    )
    scales = np.abs(weights).max(axis=others, keepdims=True) / np.float32(127)
    stored = np.rint(weights / scales).astype(np.int8)
    assert x.quantisation is not None
    products = np.float32(x.quantisation.scales[0]) * scales.ravel()
    bias = np.rint(parameters[f"{name}_bias"] / products).astype(np.int32)
    low = min(float(seen.min()), 0.0)
    high = float(seen.max())
    scale = float(np.float32((high - low) / 255))
    operands = [
        x,
        builder.constant(f"{name}_weight", stored, _quantised(scales, axis or 0)),
        builder.constant(f"{name}_bias", bias, _quantised(products, 0)),
    ]
    quantisation = Quantisation(scale, -128 - round(low / scale))
    return builder.operator(kind, operands, quantisation, name=result or name, **options)


def _quantised(scales: Array, axis: int) -> Quantisation:
    """Symmetric, by one scale or one a channel."""
    found = tuple(map(float, scales.ravel()))
    return Quantisation(found if len(found) > 1 else found[0], 0, axis)


def main(seed: int = 1) -> None:
    """Train, print the held-out accuracy, write the files."""
    digits = load_digits(seed)
    parameters = train(digits, seed)
    print(
        "held-out accuracy "
        f"{accuracy(parameters, normalise(digits.test_images), digits.test_labels):.4f}"
    )
    folder = Path(stored.__file__).parent
    onnx.save_model(digits_graph(parameters), folder / MODEL_FILE)
    calibration = normalise(digits.train_images[:CALIBRATION])
    (folder / TFLITE_FILE).write_bytes(tflite_content(parameters, calibration))
    np.savez_compressed(
        folder / DATA_FILE,
        images=digits.test_images,
        labels=digits.test_labels.astype(np.uint8),
        calibration=digits.train_images[:CALIBRATION],
    )


if __name__ == "__main__":
    main()
