"""The schedule of the published system.

The whole input of a convolution is resident, output channels are tiled by the largest tile that fits, every operation
goes through system memory, and the units run strictly one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc.emission.steps import Step
from byoc.layers.layer import Layer
from byoc.layers.nest import allowed_channels
from byoc.scheduling.schedule import Scheduled, place
from byoc.scheduling.stream import Memory, stream_layer
from byoc.tiling.shortage import shortage_message
from byoc.tiling.tiling import Tiling, streamed, working_set
from isa.arch import Arch
from isa.errors import InputError


def smallest_seed_tiling(layer: Layer) -> Tiling:
    """One output channel; one element of an element-wise operation."""
    return Tiling(1, 1 if layer.flat else layer.nest.rows)


def seed_tiling(layer: Layer, arch: Arch) -> Tiling:
    """The largest tile that fits; raises InputError where not even the smallest does."""
    message = shortage_message(layer, smallest_seed_tiling(layer), arch)
    if message is not None:
        raise InputError(f"layer '{layer.operation.name}' {message}")
    low, high = 1, layer.nest.rows if layer.flat else layer.nest.channels
    while low < high:  # the working set grows with the tile
        middle = (low + high + 1) // 2
        if _fits(layer, _tiling(layer, middle), arch):
            low = middle
        else:
            high = middle - 1
    return _tiling(layer, low)


def _tiling(layer: Layer, size: int) -> Tiling:
    if layer.flat:
        return Tiling(1, size)
    return Tiling(allowed_channels(layer.nest, size), layer.nest.rows)


def _fits(layer: Layer, tiling: Tiling, arch: Arch) -> bool:
    return working_set(layer, tiling, streamed(layer), arch.alignment) <= arch.sram_bytes


def schedule_seed(layers: Sequence[Layer], memory: Memory) -> Scheduled:
    """All steps, tile after tile: loads, computation, store."""
    steps: list[Step] = []
    for layer in layers:
        for loads, computes, stores in stream_layer(layer, seed_tiling(layer, memory.arch), memory):
            steps += (*loads, *computes, *stores)
    scheduled = place(list(enumerate(steps)), memory)
    if scheduled is None:  # a layer's buffers fit together, and no two layers have live buffers at a time
        raise InputError(f"the region finds no place in {memory.arch.sram_bytes} bytes of SRAM; give it more memory")
    return scheduled
