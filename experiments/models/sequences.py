"""Networks over time with seeded weights.

The stack of LSTMs is the sequence-to-sequence network of Baghdadi et al. (2020): four layers, 1,024 hidden, 100 steps.
The dilated convolutions are WaveNet's (van den Oord et al., 2016): two series of ten gated layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto


def lstm(seed: int = 0, layers: int = 4, hidden: int = 1024, steps: int = 100) -> ModelProto:
    """Input ``sequence`` (``steps``, 1, ``hidden``), output ``translated`` of that shape."""
    net = NetworkBuilder("lstm", "sequence", (steps, 1, hidden), seed)
    value = "sequence"
    for index in range(layers):
        name = f"lstm{index}"
        # The state is about a third of the inputs; recurrence stays weak enough to forget errors.
        weights = net.weights(f"{name}_weight", (1, 4 * hidden, hidden), hidden, 4.0 if index else 1.0)
        recurrent = net.weights(f"{name}_recurrent", (1, 4 * hidden, hidden), hidden, 1.0)
        biases = net.biases(f"{name}_bias", (1, 8 * hidden))
        net.node("LSTM", name, value, weights, recurrent, biases, outputs=[f"{name}_all"], hidden_size=hidden)
        output = "translated" if index == layers - 1 else f"{name}_rows"
        value = net.node("Squeeze", output, f"{name}_all", net.constant("directions", np.array([1], np.int64)))
    return net.model("translated", (steps, 1, hidden))


def wavenet(seed: int = 0, channels: int = 64, doublings: int = 10, length: int = 2048) -> ModelProto:
    """Input ``wave`` (1, 1, ``length``), output ``logits`` (1, 256, ``length``); every convolution looks back only.

    Two series of ``doublings`` layers; the last of each reaches ``2 ** (doublings - 1)`` samples back.
    """
    net = NetworkBuilder("wavenet", "wave", (1, 1, length), seed)
    value = net.convolution("first", "wave", (1, channels), (2,), gain=1.0, bias=0.0, pads=[1, 0])
    skips = ""
    for index in range(2 * doublings):
        dilation, name = 1 << index % doublings, f"layer{index}"
        wave, gate = (
            net.node(
                kind,
                f"{name}_{kind.lower()}",
                net.convolution(
                    f"{name}_for_{kind.lower()}",
                    value,
                    (channels, channels),
                    (2,),
                    gain=2.0,
                    bias=0.0,
                    pads=[dilation, 0],
                    dilations=[dilation],
                ),
            )
            for kind in ("Tanh", "Sigmoid")
        )
        gated = net.node("Mul", f"{name}_gated", wave, gate)
        skip = net.convolution(f"{name}_skip", gated, (channels, 2 * channels), (1,), gain=1.0, bias=0.0)
        skips = net.node("Add", f"{name}_skips", skips, skip) if skips else skip
        if index < 2 * doublings - 1:
            passed = net.convolution(f"{name}_pass", gated, (channels, channels), (1,), gain=1.0, bias=0.0)
            value = net.node("Add", f"{name}_add", value, passed)
    value = net.relu("end_relu", skips)
    value = net.relu("end1_relu", net.convolution("end1", value, (2 * channels, 2 * channels), (1,), bias=0.0))
    return net.model(net.convolution("logits", value, (2 * channels, 256), (1,), bias=0.0), (1, 256, length))
