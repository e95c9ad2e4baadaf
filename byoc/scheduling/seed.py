"""Schedule of the published system.

The whole input of a convolution is resident. Output channels are tiled by the largest tile that
fits. Every operation loads its inputs from system memory and stores its result there, and the units
run strictly one after another.
"""

from collections.abc import Sequence

from byoc.operators.geometry import Geometry
from byoc.operators.layer import (
    OperatorLayer,
    Tiling,
    compute_working_set,
    find_shortage,
    make_streamed,
)
from byoc.operators.nest import find_allowed_channels
from byoc.scheduling.layer_stream import stream_layer
from byoc.scheduling.memplan import Request, check_plan, plan
from byoc.scheduling.stream import CommandStep, Memory, Scheduled, lifetimes
from byoc.scheduling.tiling import smallest_tiling
from isa.arch import Arch
from isa.errors import InputError


def smallest_seed_tiling(geometry: Geometry) -> Tiling:
    """Return the smallest tile: one output channel, or one row (one element if element-wise)."""
    return Tiling(
        find_allowed_channels(geometry.nest, 1), 1 if _can_band(geometry) else geometry.nest.rows
    )


def _can_band(geometry: Geometry) -> bool:
    return geometry.flat or geometry.operator.traits.banded


def seed_tiling(layer: OperatorLayer, arch: Arch) -> Tiling:
    """Return the largest published tile that fits, or the smallest tile of any kind if none does.

    On banked memory, a layer may need more bytes than the operation that was checked when the
    network was partitioned.

    Raises:
        InputError: if no tile fits.
    """
    geometry = layer.geometry
    if find_shortage(geometry, smallest_seed_tiling(geometry), arch) is not None:
        smallest = smallest_tiling(geometry, arch)
        shortage = find_shortage(geometry, smallest, arch)
        if shortage is not None:
            raise InputError(f"layer '{layer.name}' {shortage}")
        return smallest
    low = 1
    high = geometry.nest.rows if _can_band(geometry) else geometry.nest.channels
    while low < high:  # the working set grows with the tile
        middle = (low + high + 1) // 2
        if (
            compute_working_set(
                geometry, _tiling(geometry, middle), make_streamed(geometry), arch.granule
            )
            <= arch.sram_bytes
        ):
            low = middle
        else:
            high = middle - 1
    return _tiling(geometry, low)


def _tiling(geometry: Geometry, size: int) -> Tiling:
    if _can_band(geometry):
        return Tiling(find_allowed_channels(geometry.nest, 1), size)
    return Tiling(find_allowed_channels(geometry.nest, size), geometry.nest.rows)


def schedule_seed(layers: Sequence[OperatorLayer], memory: Memory) -> Scheduled:
    """Return the steps of the published schedule: loads, computation and store of each tile."""
    arch = memory.arch
    steps = list[CommandStep]()
    for layer in layers:
        for loads, computes, stores in stream_layer(layer, seed_tiling(layer, arch), memory):
            steps += (*loads, *computes, *stores)
    lives = lifetimes([[step]] for step in steps)
    requests = tuple(
        Request(*buffer, *lives.get(number, (0, 0))) for number, buffer in enumerate(memory.scratch)
    )
    addresses = plan(requests, arch.sram_bytes, arch.granule)
    # a layer's buffers fit together, and no two layers have live buffers at a time
    if addresses is None:
        raise InputError(
            f"the region finds no place in {arch.sram_bytes} bytes of SRAM; give it more memory"
        )
    check_plan(requests, addresses, arch.sram_bytes, arch.granule)
    return Scheduled(tuple(steps), memory, requests, addresses)
