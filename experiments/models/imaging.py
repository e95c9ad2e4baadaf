"""Networks from image to image, and an autoencoder, with seeded weights.

U-Net (Ronneberger et al., 2015) has padding and a quarter of the channels, similar to the one with
2.1 M parameters in table 3 of Li et al. (2022). Sub-pixel super-resolution (Shi et al., 2016) is as
in the ONNX model zoo. The anomaly detector of MLPerf Tiny (Banbury et al., 2021) is an autoencoder
of spectrograms.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder, Row

if TYPE_CHECKING:
    from onnx import ModelProto


def unet(seed: int = 0, size: int = 256, width: int = 16) -> ModelProto:
    """Return U-Net: ``image`` (1, 3, ``size``, ``size``) to ``mask`` (1, 2, ``size``, ``size``).

    ``size`` is a multiple of 16.
    """
    net = NetworkBuilder("unet", "image", (1, 3, size, size), seed)
    passed = [net.stack("image", 3, _twice("down0", width, gain=1.0))[-1]]
    for level in range(1, 5):
        value = net.max_pool(f"down{level - 1}_pool", passed[-1], (0, 0), 2)
        rows = _twice(f"down{level}", width << level)
        passed.append(net.stack(value, width << level - 1, rows)[-1])
    value = passed.pop()
    for level in reversed(range(4)):
        channels = 2 * width << level, width << level
        value = net.add_transposed(f"up{level}", value, channels, 2, gain=1.0, bias=0.1)
        value = net.concat(f"up{level}_concat", passed[level], value)
        value = net.stack(value, channels[0], _twice(f"up{level}_conv", channels[1]))[-1]
    net.convolution("mask", value, (width, 2), 1, bias=0.0)
    return net.model("mask", (1, 2, size, size))


def _twice(name: str, channels: int, gain: float = 2.0) -> tuple[Row, Row]:
    """Return the two layers of one level; ``gain`` is the weight gain of the first."""
    return (
        (f"{name}_a", partial(NetworkBuilder.layer, kernel=3, gain=gain), channels),
        (f"{name}_b", partial(NetworkBuilder.layer, kernel=3), channels),
    )


def super_resolution(seed: int = 0, size: int = 224, times: int = 3) -> ModelProto:
    """Return super-resolution: luminance ``image`` (1, 1, ``size``, ``size``) to ``large``.

    ``large`` is ``times`` as wide and ``times`` as high.
    """
    net = NetworkBuilder("super-resolution", "image", (1, 1, size, size), seed)
    rows = [
        ("conv1", partial(NetworkBuilder.add_biased, kernel=5), 64),
        ("conv2", partial(NetworkBuilder.add_biased, kernel=3), 64),
        ("conv3", partial(NetworkBuilder.add_biased, kernel=3), 32),
    ]
    value = net.stack("image", 1, rows)[-1]
    value = net.convolution("conv4", value, (32, times * times), 3, bias=0.1)
    net.node("DepthToSpace", "large", value, blocksize=times, mode="CRD")
    return net.model("large", (1, 1, times * size, times * size))


def autoencoder(seed: int = 0) -> ModelProto:
    """Return an autoencoder of ten fully connected layers.

    It maps ``spectrum`` (1, 640) to ``rebuilt`` (1, 640). It has 264,192 MACs; its narrowest layer
    has eight outputs.
    """
    net = NetworkBuilder("autoencoder", "spectrum", (1, 640), seed)
    value = "spectrum"
    sizes = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    for index, features in enumerate(pairwise(sizes)):
        name = f"dense{index}"
        value = net.add_fully_connected(name, value, features, 2.0 if index else 1.0)
        value = net.relu(f"{name}_relu", net.batch_norm(f"{name}_bn", value, features[1]))
    return net.model(net.add_fully_connected("rebuilt", value, (128, 640)), (1, 640))
