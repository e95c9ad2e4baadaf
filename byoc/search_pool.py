"""Tile searches by all that their answers depend on, so that equal layers share one, and compilations if they wish."""

from __future__ import annotations

from collections.abc import Sequence

from byoc.layer import Layer
from byoc.operations import ConvOperation, MatMulOperation, PoolOperation
from byoc.tile_search import TileSearch
from isa.arch import Arch

_ONE_SIZE = {"sram_bytes": Arch.model_fields["sram_bytes"].default, "sram_banks": 1}


class SearchPool:
    """The searches of layers on machines, made when first asked for.

    The size of the scratchpad is a question to a search, not a part of it: machines that differ in nothing else share
    their searches. A pool grows with every layer shape and machine that it meets; drop it when these change.
    """

    def __init__(self) -> None:
        self._known: dict[object, TileSearch] = {}

    def searches(self, layers: Sequence[Layer], arch: Arch) -> list[TileSearch]:
        """A search for every layer."""
        machine = arch.model_copy(update=_ONE_SIZE)
        found: list[TileSearch] = []
        for layer in layers:
            key = machine, _shape(layer)
            if key not in self._known:
                self._known[key] = TileSearch(layer, machine)
            found.append(self._known[key])
        return found


def _shape(layer: Layer) -> object:
    """All that tilings and their costs depend on."""
    operation = layer.operation
    kernel: object = None
    if isinstance(operation, ConvOperation):
        kernel = operation.weights.shape, operation.requantise is None
    elif isinstance(operation, MatMulOperation):
        kernel = operation.requantise is None
    elif isinstance(operation, PoolOperation):
        kernel = operation.kernel
    sizes = layer.weight_bytes, layer.record_bytes, layer.input_bytes, layer.output_bytes
    via = operation.via and (operation.via.mnemonic, *operation.via.registers.items())
    return layer.family, via, layer.nest, sizes, len(operation.inputs), kernel
