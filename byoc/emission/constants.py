"""Constants: channel records and weights of each channel tile, packed so that one transfer brings all of a tile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from byoc.layers.layer import Layer, weights_offset
from byoc.operations import ConvOperation, MatMulOperation, RequantiseOperation
from byoc.tile import Span
from isa.arch import Arch
from isa.ops.requant import pack_records

ALIGNMENT = 64
"""Every packed tile begins at a multiple of this, so that its bursts are whole."""


class ConstantPool:
    """Packed constants of one program, in order of use, from byte ``address`` of system memory on.

    Without ``data`` everything has its place and nothing a value: the image is all zeros and takes no memory.
    """

    def __init__(self, address: int, arch: Arch, *, data: bool = True) -> None:
        self.address = address
        self.nbytes = 0
        self._arch = arch
        self._data = data
        self._pieces: list[tuple[int, bytes | NDArray[np.uint8]]] = []

    def packer(self, layer: Layer) -> Callable[[Span], int]:
        """A function that packs the constants of a span of the layer's channels, once, and returns their address."""
        records = _records(layer, self._arch) if self._data else b""
        weights = _weights(layer) if self._data else None
        packed: dict[Span, int] = {}

        def pack(channels: Span) -> int:
            if channels not in packed:
                packed[channels] = self._append(layer, channels, records, weights)
            return packed[channels]

        return pack

    def _append(self, layer: Layer, channels: Span, records: bytes, weights: NDArray[np.int8] | None) -> int:
        start = -(-self.nbytes // ALIGNMENT) * ALIGNMENT
        if self._data:
            width = layer.record_bytes
            self._pieces.append((start, records[channels.start * width : channels.stop * width]))
        if weights is not None:
            offset = start + weights_offset(layer, channels.size)
            part = weights[channels.start : channels.stop]
            if layer.family == "matmul":
                part = part.T  # in memory (K, columns of the tile), row by row
            self._pieces.append((offset, np.ascontiguousarray(part).reshape(-1).view(np.uint8)))
        self.nbytes = start + layer.constant_bytes(channels.size)
        return self.address + start

    def image(self) -> NDArray[np.uint8]:
        """The bytes of the pool; gaps are 0."""
        if not self._data:
            return np.broadcast_to(np.uint8(0), (self.nbytes,))
        data = np.zeros(self.nbytes, dtype=np.uint8)
        for start, piece in self._pieces:
            content = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
            data[start : start + content.size] = content
        return data


def _records(layer: Layer, arch: Arch) -> bytes:
    operation = layer.operation
    if isinstance(operation, RequantiseOperation):
        scale = operation.requantise.scale
        channels = layer.nest.channels
        return pack_records(np.zeros(channels, np.int32), _scales(scale, channels), arch)
    if not isinstance(operation, ConvOperation | MatMulOperation):
        return b""
    # An int32 result needs no scale; 1 is as good as any.
    scale = np.ones(1, np.float32) if operation.requantise is None else operation.requantise.scale
    return pack_records(operation.bias.astype(np.int32), _scales(scale, operation.bias.size), arch)


def _scales(scale: NDArray[np.float32], channels: int) -> NDArray[np.float32]:
    """One scale a channel."""
    return np.ascontiguousarray(np.broadcast_to(scale.astype(np.float32).reshape(-1), (channels,)))


def _weights(layer: Layer) -> NDArray[np.int8] | None:
    """Weights with the output channels first."""
    operation = layer.operation
    if isinstance(operation, ConvOperation):
        return operation.weights
    if isinstance(operation, MatMulOperation):
        return operation.weights.T
    return None
