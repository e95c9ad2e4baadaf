"""Rewrite Fourier transforms as products by constants or one-dimensional convolutions."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.runtimes.protobuf import attributes


@write_operators("STFT", "DFT")
def convolve_spectra(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite a float32 STFT as a convolution and a DFT as a matrix product.

    Constants must be folded.
    """
    if graph.types.get(node.input[0]) != TensorProto.FLOAT:
        return None
    return _rewrite_stft(graph, node) if node.op_type == "STFT" else _whole(graph, node)


def _rewrite_stft(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite a short-time Fourier transform (STFT) as a Conv.

    Its channels are the real parts of all bins, then the imaginary parts. Returns None if the
    window, the step or the frame length is computed at run time, or if shapes are unknown.
    """
    signal, step, window, length = (*node.input, "", "")[:4]
    shape = graph.shapes.get(signal)
    if shape is None or any(
        name and name not in graph.constants for name in (step, window, length)
    ):
        return None
    if not window and not length:
        return None
    size = int(graph.constants[length].item()) if length else len(graph.constants[window])
    taps = np.asarray(graph.constants[window], np.float64) if window else np.ones(size)
    hop = int(graph.constants[step].item())
    parts = shape[2] if len(shape) == 3 else 1
    if len(taps) != size or not 0 < size <= shape[1] or hop < 1 or parts > 2:
        return None
    bins = size // 2 + 1 if attributes(node).get("onesided", 1) else size
    frames = (shape[1] - size) // hop + 1
    w = NodeWriter(graph, node)
    source = (
        w.add("Transpose", signal, perm=[0, 2, 1])
        if parts == 2
        else w.add("Reshape", signal, w.constant([shape[0], 1, shape[1]], np.int64))
    )
    weights = w.constant(_weights(taps, bins, parts), np.float32)
    spectra = w.add("Conv", source, weights, kernel_shape=[size], strides=[hop], label=node.name)
    apart = w.add("Reshape", spectra, w.constant([shape[0], 2, bins, frames], np.int64))
    w.add("Transpose", apart, perm=[0, 3, 2, 1])
    return w.finish()


def _whole(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite a discrete Fourier transform (DFT) as a MatMul.

    Its columns are the real parts of all bins, then the imaginary parts. Returns None if the length
    or the axis is computed at run time, if the length is not that of the axis, or for the inverse
    of half a spectrum.
    """
    signal, length, axis = (*node.input, "", "")[:3]
    shape = graph.shapes.get(signal)
    options = attributes(node)
    if (
        not shape
        or 0 in shape
        or any(name and name not in graph.constants for name in (length, axis))
    ):
        return None
    last = len(shape) - 1
    given = (
        graph.constants[axis].item()
        if axis
        else options.get("axis", -2 if graph.opset >= _AXIS_INPUT else 1)
    )
    along = int(given) % len(shape)
    onesided = options.get("onesided", 0)
    inverse = options.get("inverse", 0)
    size = shape[along]
    parts = shape[last]
    if (
        along == last
        or parts > 2
        or (onesided and inverse)
        or (length and graph.constants[length].item() != size)
    ):
        return None
    bins = size // 2 + 1 if onesided else size
    weights = _weights(np.ones(size), bins, parts)
    if inverse:
        weights = weights.reshape(2, bins, parts, size)[:, -np.arange(bins) % size] / size
    order = [other for other in range(last) if other != along] + [last, along]
    w = NodeWriter(graph, node)
    rows = w.add(
        "Reshape", w.add("Transpose", signal, perm=order), w.constant([-1, parts * size], np.int64)
    )
    columns = w.constant(weights.reshape(2 * bins, parts * size).T, np.float32)
    spectra = w.add("MatMul", rows, columns, label=node.name)
    apart = w.add(
        "Reshape", spectra, w.constant([*(shape[other] for other in order[:-2]), 2, bins], np.int64)
    )
    w.add("Transpose", apart, perm=np.argsort(order).tolist())
    return w.finish()


_AXIS_INPUT = 20
"""First opset in which a DFT has its axis as an input."""


def _weights(window: NDArray[np.float64], bins: int, parts: int) -> NDArray[np.float64]:
    """Return the cosines and sines of a Fourier transform as (2 · bins, parts, taps) weights.

    ``parts`` is 1 for real signals, 2 for real and imaginary parts.
    """
    taps = len(window)
    angles = 2 * np.pi * (np.outer(np.arange(bins), np.arange(taps)) % taps) / taps
    cosine = np.cos(angles) * window
    sine = np.sin(angles) * window
    real = np.concatenate([cosine, -sine])[:, np.newaxis]
    imaginary = np.concatenate([sine, cosine])[:, np.newaxis]
    return np.concatenate([real, imaginary][:parts], axis=1)
