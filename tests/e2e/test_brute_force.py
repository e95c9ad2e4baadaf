"""The search against the complete space: tiny layers, every tiling measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.brute_force import (
    Bound,
    addition,
    brute_force,
    convolution,
    measured,
    pooling,
    product_of,
)
from byoc.operators.layer import make_layer, make_streamed
from byoc.scheduling.tiling import tilings
from isa.arch import Arch, PeArray

TINY = {
    "convolution": convolution((2, 4, 4), 4, 3),
    "depthwise": convolution((4, 4, 4), 4, 3, groups=4),
    "matrix": product_of(2, 6, 8),
    "connected": product_of(1, 16, 12),
    "pooling": pooling((4, 6, 6)),
    "addition": addition((4, 16, 16)),
}


def machine(kib: int) -> Arch:
    """Few elements, so that computing takes about as long as loading."""
    return Arch(isa="v4", pe=PeArray(ic=2, oc=4), sram_bytes=kib * 1024)


@pytest.mark.parametrize("name", sorted(TINY))
def test_no_tiling_takes_less_than_its_bound(name: str) -> None:
    """No tiling of a sample of the complete space takes fewer cycles than its bound.

    The benchmark skips tilings whose bound shows that they cannot be better.
    """
    arch = machine(2)
    operation = TINY[name]
    layer = make_layer(operation, arch)
    space = list(tilings(layer.geometry, arch, make_streamed(layer.geometry), arch.sram_bytes))
    bound = Bound(layer, arch)
    for index in np.random.default_rng(3).choice(len(space), min(40, len(space)), replace=False):
        cycles = measured(operation, arch, space[index])
        assert cycles is None or cycles >= bound(space[index])


@pytest.mark.parametrize("name", sorted(TINY))
def test_the_search_finds_the_optimum_of_a_tiny_layer(name: str) -> None:
    """None of all tilings takes less: those not measured by their bounds."""
    gap = brute_force(TINY[name], machine(2), 1 << 30)
    assert gap.chosen == gap.best == gap.proved


def test_a_mapping_of_ones_own_is_measured() -> None:
    """A layer's own mapping is measured: idle lanes take longer than taps of the kernel.

    One input channel is mapped to four lanes.
    """
    arch = Arch(isa="v4", pe=PeArray(ic=16, oc=4), sram_bytes=8192)
    layer = convolution((1, 16, 16), 4, 3)
    chosen, idle = (measured(replace(layer, mapping=mapping), arch) for mapping in (None, 0))
    assert chosen is not None
    assert idle is not None
    assert chosen < idle
