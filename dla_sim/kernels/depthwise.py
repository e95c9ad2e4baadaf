"""``OP_DEPTH_CONV``, and ``OP_CONV`` with one input and one output channel (an emulated depthwise filter).

Two ways, chosen by the shape: by planes (here and in `depthwise_planes`) and by pixels (`depthwise_pixels`). Sums of at
most 1024 products are exact in float32 in any order (see `convolution`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dla_sim.kernels.attempt import Attempt
from dla_sim.kernels.depthwise_pixels import by_pixels
from dla_sim.kernels.depthwise_planes import by_planes
from dla_sim.kernels.overlaps import all_apart, highest
from dla_sim.kernels.products import CHUNK
from dla_sim.kernels.results import Finish, finish
from dla_sim.kernels.scratch import Scratch
from dla_sim.kernels.windows import Window, window
from isa.arch import Arch
from isa.instruction import Command, Machine
from isa.ops.convolution import element_bytes

_FEW_PIXELS = 400
_NARROW = 28
_MANY_CHANNELS = 16
"""Up to so many outputs a plane and a row, from so many channels on, it is faster with the channels innermost."""


def depthwise(command: Command, arch: Arch) -> Attempt | None:
    """Prepares an ``OP_DEPTH_CONV``; None for what is left to the semantics."""
    element = element_bytes(command)
    shape = window(command, element)
    return None if shape is None else depthwise_window(shape, element, command, arch)


def depthwise_window(shape: Window, element: int, command: Command, arch: Arch) -> Attempt | None:
    """Prepares a depthwise convolution of a known window with outputs of ``element`` bytes."""
    taps, fill = shape.kh * shape.kw, command["EX_INPUT_ZERO_POINT"]
    ending = finish(command, arch, shape.oc, taps)
    if ending is None or shape.oc % shape.ic or taps > CHUNK or (shape.padded and not -128 <= fill <= 127):
        return None
    weights = command["EX_OPERAND_ADDRESS"]
    output = shape.output, shape.output + shape.output_bytes(element)
    reads = (
        (shape.input, shape.input + shape.input_bytes),
        (weights, weights + shape.oc * taps),
        (ending.address, ending.end),
    )
    if not all_apart(output, reads):
        return None
    return _Depthwise(shape, ending, weights, fill, highest(output, *reads)).run


@dataclass(frozen=True, eq=False)
class _Depthwise:
    """A prepared depthwise convolution. ``end`` is one past the highest byte that it touches."""

    shape: Window
    finish: Finish
    weights: int
    fill: int
    end: int

    def run(self, machine: Machine, scratch: Scratch) -> bool:
        """Executes the command: an attempt."""
        if self.end > machine.sram.size:
            return False
        results = self.finish.load(machine)
        if results is None:
            return False
        shape = self.shape
        weights = np.ndarray((shape.oc, shape.kh, shape.kw), np.int8, machine.sram, self.weights)
        few = shape.pixels <= _FEW_PIXELS and shape.ow <= _NARROW and shape.oc >= _MANY_CHANNELS
        (by_pixels if few else by_planes)(shape, self.fill, weights, results, scratch)
        return True
