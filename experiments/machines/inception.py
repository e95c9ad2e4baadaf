"""Inception V3 (Szegedy et al., 2016) with seeded weights, for comparison with a published time.

The layers are those of torchvision's ``inception_v3`` without its auxiliary classifier: 23.8 M
parameters and 5.7 G multiply-accumulates for a picture of 299 x 299 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

Layer = tuple[int | tuple[int, int], int]
"""Kernel and output channels of a convolution; stride 1, padded to keep the plane."""


class InceptionNetwork(NetworkBuilder):
    """Builder of the blocks of Inception V3; it knows the channels of every tensor."""

    def __init__(self, seed: int) -> None:
        super().__init__("inception-v3", "image", (1, 3, 299, 299), seed)
        self._channels = {"image": 3}

    def unit(self, source: str, layer: Layer, stride: int = 1, *, padded: bool = True) -> str:
        """Add a convolution with batch normalisation and ReLU; return its output."""
        kernel, outputs = layer
        name = f"conv{len(self._channels)}"
        channels = self._channels[source], outputs
        pads: dict[str, Any] = {} if padded else {"auto_pad": "VALID"}
        value = self.convolution(name, source, channels, kernel, stride, **pads)
        value = self.relu(f"{name}_relu", self.batch_norm(f"{name}_bn", value, outputs))
        self._channels[value] = outputs
        return value

    def chain(self, source: str, *layers: Layer) -> str:
        """Add convolutions one after the other; return the last output."""
        for layer in layers:
            source = self.unit(source, layer)
        return source

    def pool(self, source: str, *, shrink: bool) -> str:
        """Add a maximum of 3 x 3 with stride 2, or an average of 3 x 3 that keeps the plane."""
        name = f"pool{len(self._channels)}"
        if shrink:
            value = self.max_pool(name, source, (0, 0), 3)
        else:
            window: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4}
            value = self.node("AveragePool", name, source, **window, count_include_pad=1)
        self._channels[value] = self._channels[source]
        return value

    def join(self, *sources: str) -> str:
        """Concatenate tensors along the channels."""
        value = self.concat(f"concat{len(self._channels)}", *sources)
        self._channels[value] = sum(self._channels[source] for source in sources)
        return value

    def add_mixed(self, source: str, *branches: Sequence[Layer], pooled: int) -> str:
        """Add a block of branches and a pooled branch with ``pooled`` channels."""
        ends = [self.chain(source, *branch) for branch in branches]
        return self.join(*ends, self.unit(self.pool(source, shrink=False), (1, pooled)))

    def add_split(self, source: str, *layers: Layer) -> str:
        """Add a branch that ends in 1 x 3 and 3 x 1 convolutions side by side."""
        value = self.chain(source, *layers)
        return self.join(*(self.unit(value, (kernel, 384)) for kernel in ((1, 3), (3, 1))))

    def add_reduction(self, source: str, *branches: Sequence[Layer]) -> str:
        """Add a block that halves the plane; the last layer of a branch has stride 2."""
        ends = [
            self.unit(self.chain(source, *branch[:-1]), branch[-1], 2, padded=False)
            for branch in branches
        ]
        return self.join(*ends, self.pool(source, shrink=True))


def _sevens(inner: int, *outputs: int) -> tuple[Layer, ...]:
    """Return 1 x 7 and 7 x 1 convolutions in turn, the last as wide as the last of ``outputs``."""
    kernels = ((1, 7), (7, 1)) if len(outputs) == 2 else ((7, 1), (1, 7)) * 2
    return ((1, inner), *zip(kernels, outputs, strict=True))


def build_inception_v3(seed: int = 0) -> ModelProto:
    """Return the network; its input is ``image`` (1, 3, 299, 299), its output ``logits``."""
    net = InceptionNetwork(seed)
    value = net.unit("image", (3, 32), 2, padded=False)
    value = net.unit(net.unit(value, (3, 32), padded=False), (3, 64))
    value = net.unit(net.pool(value, shrink=True), (1, 80))
    value = net.pool(net.unit(value, (3, 192), padded=False), shrink=True)
    for pooled in (32, 64, 64):
        deep: Sequence[Layer] = ((1, 64), (3, 96), (3, 96))
        value = net.add_mixed(value, ((1, 64),), ((1, 48), (5, 64)), deep, pooled=pooled)
    value = net.add_reduction(value, ((3, 384),), ((1, 64), (3, 96), (3, 96)))
    for inner in (128, 160, 160, 192):
        two = _sevens(inner, inner, 192)
        four = _sevens(inner, inner, inner, inner, 192)
        value = net.add_mixed(value, ((1, 192),), two, four, pooled=192)
    value = net.add_reduction(value, ((1, 192), (3, 320)), (*_sevens(192, 192, 192), (3, 192)))
    for _ in range(2):
        ends = [
            net.unit(value, (1, 320)),
            net.add_split(value, (1, 384)),
            net.add_split(value, (1, 448), (3, 384)),
        ]
        value = net.join(*ends, net.unit(net.pool(value, shrink=False), (1, 192)))
    return net.classifier(value, (2048, 1000))
