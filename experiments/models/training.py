"""Forward and backward passes of ``digits-cnn`` by hand, in plain NumPy float32; used only to train it.

The network: 3×3 convolution, ReLU, 3×3 depthwise convolution, ReLU, 1×1 convolution, ReLU, 2×2 max pooling, fully
connected. Arrays are NCHW.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

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
        parameters[f"{name}_weight"] = (generator.standard_normal(shape) * deviation).astype(np.float32)
        parameters[f"{name}_bias"] = np.zeros(shape[0], np.float32)
    return parameters


def windows(images: Array) -> Array:
    """All 3×3 windows of (N, C, H, W) padded by one zero: a view (N, C, H, W, 3, 3)."""
    return sliding_window_view(np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))


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
    return {"patches": patches, "conv": conv, "depth": depth, "cells": cells, "pooled": pooled, "logits": logits}


def loss_and_gradients(parameters: Parameters, images: Array, labels: NDArray[np.int64]) -> tuple[float, Parameters]:
    """Mean cross entropy of a batch and its gradient by every parameter."""
    p, count = parameters, len(images)
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
    """Gradients of the three convolutions, given the gradient (N, 32, 4, 4) by the pooled features."""
    # The gradient goes to every maximum of a cell; ties only happen at zero, where ReLU stops it.
    cells = (f["cells"] == f["pooled"][:, :, :, None, :, None]) * (f["cells"] > 0)
    point = (cells * pooled[:, :, :, None, :, None]).reshape(len(pooled), FEATURES, 8, 8)
    depth = np.einsum("nkhw,kc->nchw", point, p["pointwise_weight"][:, :, 0, 0], optimize=True) * (f["depth"] > 0)
    # The gradient by the input of a convolution is the convolution with the filter turned by 180 degrees.
    turned = p["depthwise_weight"][:, 0, ::-1, ::-1]
    conv = np.einsum("nchwyx,cyx->nchw", windows(depth), turned, optimize=True) * (f["conv"] > 0)
    return {
        "pointwise_weight": np.einsum("nkhw,nchw->kc", point, f["depth"], optimize=True)[:, :, None, None],
        "pointwise_bias": point.sum(axis=(0, 2, 3)),
        "depthwise_weight": np.einsum("nchw,nchwyx->cyx", depth, windows(f["conv"]), optimize=True)[:, None],
        "depthwise_bias": depth.sum(axis=(0, 2, 3)),
        "conv_weight": np.einsum("nkhw,nchwyx->kcyx", conv, f["patches"], optimize=True),
        "conv_bias": conv.sum(axis=(0, 2, 3)),
    }


def accuracy(parameters: Parameters, images: Array, labels: NDArray[np.int64]) -> float:
    """Share of images whose largest logit is the label."""
    return float((forward(parameters, images)["logits"].argmax(axis=1) == labels).mean())
