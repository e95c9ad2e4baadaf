"""Networks from image to image, and an autoencoder, with seeded weights.

U-Net (Ronneberger et al., 2015) has padding and a quarter of the channels, similar to the one with
2.1 M parameters in table 3 of Li et al. (2022). Sub-pixel super-resolution (Shi et al., 2016) is as
in the ONNX model zoo. The anomaly detector of MLPerf Tiny (Banbury et al., 2021) is an autoencoder
of spectrograms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto


def unet(seed: int = 0, size: int = 256, width: int = 16) -> ModelProto:
    """Return U-Net: ``image`` (1, 3, ``size``, ``size``) to ``mask`` (1, 2, ``size``, ``size``).

    ``size`` is a multiple of 16.
    """
    net = NetworkBuilder("unet", "image", (1, 3, size, size), seed)
    value = "image"
    channels = 3
    passed = []
    for level in range(5):
        outputs = width << level
        value = _twice(net, f"down{level}", value, (channels, outputs))
        channels = outputs
        if level < 4:
            passed.append(value)
            value = net.node(
                "MaxPool", f"down{level}_pool", value, kernel_shape=[2, 2], strides=[2, 2]
            )
    for level in reversed(range(4)):
        outputs = width << level
        value = net.add_transposed(f"up{level}", value, (channels, outputs), 2, gain=1.0, bias=0.1)
        value = net.concat(f"up{level}_concat", passed[level], value)
        value = _twice(net, f"up{level}_conv", value, (channels, outputs))
        channels = outputs
    net.convolution("mask", value, (channels, 2), 1, bias=0.0)
    return net.model("mask", (1, 2, size, size))


def _twice(net: NetworkBuilder, name: str, source: str, channels: tuple[int, int]) -> str:
    value = net.layer(f"{name}_a", source, channels, 3, gain=1.0 if source == "image" else 2.0)
    return net.layer(f"{name}_b", value, (channels[1], channels[1]), 3)


def super_resolution(seed: int = 0, size: int = 224, times: int = 3) -> ModelProto:
    """Return super-resolution: luminance ``image`` (1, 1, ``size``, ``size``) to ``large``.

    ``large`` is ``times`` as wide and ``times`` as high.
    """
    net = NetworkBuilder("super-resolution", "image", (1, 1, size, size), seed)
    value = net.convolution("conv1", "image", (1, 64), 5, bias=0.1)
    value = net.convolution("conv2", net.relu("conv1_relu", value), (64, 64), 3, bias=0.1)
    value = net.convolution("conv3", net.relu("conv2_relu", value), (64, 32), 3, bias=0.1)
    value = net.convolution(
        "conv4", net.relu("conv3_relu", value), (32, times * times), 3, bias=0.1
    )
    net.node("DepthToSpace", "large", value, blocksize=times, mode="CRD")
    return net.model("large", (1, 1, times * size, times * size))


def autoencoder(seed: int = 0) -> ModelProto:
    """Return an autoencoder of ten fully connected layers.

    It maps ``spectrum`` (1, 640) to ``rebuilt`` (1, 640). It has 264,192 MACs; its narrowest layer
    has eight outputs.
    """
    net = NetworkBuilder("autoencoder", "spectrum", (1, 640), seed)
    value = "spectrum"
    features = 640
    for index, outputs in enumerate((128, 128, 128, 128, 8, 128, 128, 128, 128)):
        value = net.add_fully_connected(
            f"dense{index}", value, (features, outputs), 2.0 if index else 1.0
        )
        value = net.relu(f"dense{index}_relu", net.batch_norm(f"dense{index}_bn", value, outputs))
        features = outputs
    return net.model(net.add_fully_connected("rebuilt", value, (features, 640)), (1, 640))
