"""Constants: channel records and weights of each channel tile, packed so that one transfer brings all of a tile; and
operands that are constant tensors, as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from byoc.estimate.constants import PIECE_ALIGNMENT
from byoc.operators.layer import Layer
from byoc.operators.nest import Span
from byoc.operators.operator import ChannelConstants
from byoc.operators.tiling import aligned
from isa.arch import Arch
from isa.ops.requant import ChannelScales, pack_records

_Part = tuple[Span, Span | None]
"""Output channels, and the input channels that they are of; None: all."""


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
        self._tensors: dict[str, int] = {}
        self._shared: dict[Hashable, dict[_Part, int]] = {}

    def packer(self, layer: Layer) -> Callable[[Span, Span | None], int]:
        """A function that packs the constants of a span of the layer's channels, once, and returns their address.

        Its second argument is the span of input channels, None for all.
        """
        constants = layer.operation.constants()
        shared = None if constants is None else constants.shared
        packed: dict[_Part, int] = {} if shared is None else self._shared.setdefault(shared, {})
        constants = constants if self._data else None
        records = b"" if constants is None else _records(constants, self._arch)

        def pack(channels: Span, depth: Span | None = None) -> int:
            part = channels, depth
            if part not in packed:
                packed[part] = self._append(layer, part, records, constants)
            return packed[part]

        return pack

    def table_packer(self, layer: Layer) -> Callable[[Span], int]:
        """A function that packs the tables of a span of the layer's channels, once, and returns their address."""
        tables, geometry = layer.operation.tables, layer.geometry
        packed: dict[Span, int] = {}

        def pack(channels: Span) -> int:
            if channels not in packed:
                start = self._begin(geometry.table_bytes(channels.size))
                if tables is not None and self._data:
                    chosen = np.ascontiguousarray(tables[channels.start : channels.stop])
                    self._pieces.append((start, chosen.reshape(-1).view(np.uint8)))
                packed[channels] = self.address + start
            return packed[channels]

        return pack

    def tensor(self, name: str, data: NDArray[np.int8]) -> int:
        """The address of a constant operand, packed once, dense."""
        if name not in self._tensors:
            start = self._begin(data.size)
            if self._data:
                self._pieces.append((start, np.ascontiguousarray(data).reshape(-1).view(np.uint8)))
            self._tensors[name] = self.address + start
        return self._tensors[name]

    def _begin(self, nbytes: int) -> int:
        """Where so many bytes more begin."""
        start = aligned(self.nbytes, PIECE_ALIGNMENT)
        self.nbytes = start + nbytes
        return start

    def _append(self, layer: Layer, which: _Part, records: bytes, constants: ChannelConstants | None) -> int:
        geometry, (channels, depth) = layer.geometry, which
        start = self._begin(geometry.constant_bytes(channels.size, depth.size if depth else 0))
        if constants is not None:
            width = geometry.record_bytes
            self._pieces.append((start, records[channels.start * width : channels.stop * width]))
        if constants is not None and constants.weights is not None:
            offset = start + geometry.weights_offset(channels.size)
            part = constants.weights[channels.start : channels.stop]
            part = part[:, depth.start : depth.stop] if depth else part
            part = part.T if constants.by_row else part
            self._pieces.append((offset, np.ascontiguousarray(part).reshape(-1).view(np.uint8)))
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


def _records(constants: ChannelConstants, arch: Arch) -> bytes:
    """The channel records: one scale a channel, also where one serves all; nothing where there are none."""
    if constants.bias is None or constants.scale is None:
        return b""
    bias, scale = constants.bias.astype(np.int32), constants.scale
    rounded, exact = (np.ascontiguousarray(np.broadcast_to(one, bias.shape)) for one in (scale.rounded, scale.exact))
    return pack_records(bias, ChannelScales(rounded, exact, scale.once), arch)
