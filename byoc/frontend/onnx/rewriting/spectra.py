"""Short-time Fourier transforms of constant windows, written as one-dimensional convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from byoc.frontend.onnx.rewriting.law import View, Writer, written
from byoc.runtimes.protobuf import attributes


@written("STFT")
def convolve_spectra(graph: View, node: NodeProto) -> Sequence[NodeProto] | None:
    """Return an STFT as a Conv whose channels are the real parts of all bins, then the imaginary parts.

    None where the window, the step or the length of a frame is computed at run time, or shapes are unknown. Wants
    constants folded.
    """
    signal, step, window, length = (*node.input, "", "")[:4]
    shape = graph.shapes.get(signal)
    if shape is None or any(name and name not in graph.constants for name in (step, window, length)):
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
    w = Writer(graph, node)
    source = (
        w.add("Transpose", signal, perm=[0, 2, 1])
        if parts == 2
        else w.add("Reshape", signal, w.constant([shape[0], 1, shape[1]], np.int64))
    )
    weights = w.constant(_weights(taps, bins, parts), np.float32)
    spectra = w.add("Conv", source, weights, kernel_shape=[size], strides=[hop], label=node.name)
    apart = w.add("Reshape", spectra, w.constant([shape[0], 2, bins, frames], np.int64))
    w.add("Transpose", apart, perm=[0, 3, 2, 1])
    return w.finished()


def _weights(window: NDArray[np.float64], bins: int, parts: int) -> NDArray[np.float64]:
    """Return the (2 · bins, parts, taps) weights of a transform of real signals, or of real and imaginary parts."""
    taps = len(window)
    angles = 2 * np.pi * (np.outer(np.arange(bins), np.arange(taps)) % taps) / taps
    cosine, sine = np.cos(angles) * window, np.sin(angles) * window
    real = np.concatenate([cosine, -sine])[:, np.newaxis]
    imaginary = np.concatenate([sine, cosine])[:, np.newaxis]
    return np.concatenate([real, imaginary][:parts], axis=1)
