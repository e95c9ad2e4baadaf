"""Sliding windows over planes in memory, as views that kernels read."""

from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace
from dla_sim.kernels.products import (
    CHUNK,
    Compute,
    Sums,
    prepare_sums,
)
from isa.arch import Arch
from isa.instruction import Command, Machine

_REGISTERS = itemgetter(
    "EX_INPUT_CHANNELS", "EX_INPUT_HEIGHT", "EX_INPUT_WIDTH",
    "EX_OUTPUT_CHANNELS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH",
    "EX_KERNEL_HEIGHT", "EX_KERNEL_WIDTH", "EX_STRIDE_HEIGHT", "EX_STRIDE_WIDTH",
    "EX_DILATION_HEIGHT", "EX_DILATION_WIDTH", "EX_PAD_TOP", "EX_PAD_LEFT",
    "EX_INPUT_ADDRESS", "EX_INPUT_PLANE", "EX_OUTPUT_ADDRESS", "EX_OUTPUT_PLANE",
)  # fmt: skip


@dataclass(frozen=True)
class WindowRegisters:
    """Registers that describe a sliding window, by short names.

    Plane strides are in bytes and never 0: a dense plane has its size as stride.
    """

    ic: int
    ih: int
    iw: int
    oc: int
    oh: int
    ow: int
    kh: int
    kw: int
    sy: int
    sx: int
    dy: int
    dx: int
    top: int
    left: int
    input: int
    input_plane: int
    output: int
    output_plane: int

    @cached_property
    def rows(self) -> int:
        """Input rows, including padding, that the windows of all outputs cover."""
        return (self.oh - 1) * self.sy + (self.kh - 1) * self.dy + 1

    @cached_property
    def columns(self) -> int:
        """Input columns, including padding, that the windows of all outputs cover."""
        return (self.ow - 1) * self.sx + (self.kw - 1) * self.dx + 1

    @cached_property
    def padded(self) -> bool:
        """True if any tap of any output is outside the input."""
        return bool(self.top or self.left or self.rows > self.ih or self.columns > self.iw)

    @property
    def pixels(self) -> int:
        """Number of outputs of a sliding window per channel."""
        return self.oh * self.ow

    @property
    def input_bytes(self) -> int:
        """Bytes from the first input byte to one past the last."""
        return (self.ic - 1) * self.input_plane + self.ih * self.iw

    def output_bytes(self, element: int) -> int:
        """Return the bytes from the first output byte to one past the last.

        Elements have ``element`` bytes.
        """
        return (self.oc - 1) * self.output_plane + self.pixels * element

    def output_view(
        self, memory: NDArray[np.uint8], dtype: Any, first: int, channels: int
    ) -> NDArray[Any]:
        """Return a view (channels, OH * OW) of some channels' outputs in the scratchpad."""
        strides = self.output_plane, np.dtype(dtype).itemsize
        return np.ndarray(
            (channels, self.oh * self.ow),
            dtype,
            memory,
            self.output + first * self.output_plane,
            strides,
        )


def window(command: Command, element: int) -> WindowRegisters | None:
    """Return the sliding window of a command, or None if no kernel can execute the command.

    The instruction's semantics then execute it: a size or stride is 0, or output planes overlap.
    """
    values = list(_REGISTERS(command.registers))
    if 0 in values[:12]:
        return None
    dense = values[4] * values[5] * element
    values[15] = values[15] or values[1] * values[2]
    values[17] = values[17] or dense
    found = WindowRegisters(*values)
    return None if found.output_plane < dense and found.oc > 1 else found


class PlaneSource(NamedTuple):
    """Source of a sliding window: int8 planes in ``buffer`` from byte ``offset`` on.

    Planes are ``plane`` bytes apart, their rows ``row`` bytes.

    The tap at row r and column c (dilation included) reads, for output (y, x) of channel i, the
    byte at ``offset + i*plane + (y*sy + r)*row + x*step + c``.
    """

    buffer: NDArray[Any]
    offset: int
    plane: int
    row: int
    step: int

    def view(
        self, shape: tuple[int, ...], strides: tuple[int, ...], skip: int = 0
    ) -> NDArray[np.int8]:
        """Return a view of the planes in memory with any shape and byte strides.

        It begins ``skip`` bytes after the first element.
        """
        return np.ndarray(shape, np.int8, self.buffer, self.offset + skip, strides)


def source(shape: WindowRegisters, machine: Machine, scratch: Workspace, fill: int) -> PlaneSource:
    """Return the planes that a sliding window reads: the scratchpad, or a copy with padding.

    The caller has checked that the input is inside the scratchpad, and that ``fill`` is an int8 if
    the window has padding.
    """
    if not shape.padded:
        return PlaneSource(machine.sram, shape.input, shape.input_plane, shape.iw, shape.sx)
    rows = shape.rows
    columns = shape.columns
    extended: NDArray[np.int8] = scratch.array("padded", (shape.ic, rows, columns), np.int8)
    extended.fill(fill)
    bottom = min(rows, shape.top + shape.ih)
    right = min(columns, shape.left + shape.iw)
    if bottom > shape.top and right > shape.left:
        size = (shape.ic, bottom - shape.top, right - shape.left)
        inner = np.ndarray(
            size, np.int8, machine.sram, shape.input, (shape.input_plane, shape.iw, 1)
        )
        np.copyto(extended[:, shape.top : bottom, shape.left : right], inner)
    return PlaneSource(extended, 0, rows * columns, columns, shape.sx)


def prepare_window(
    shape: WindowRegisters,
    products: int,
    element: int,
    command: Command,
    arch: Arch,
    compute: Compute,
) -> Attempt | None:
    """Prepare a kernel that sums products over a sliding window.

    Args:
        shape: the window.
        products: weights per output channel.
        element: bytes of an output element.
        command: the command to prepare.
        arch: the machine.
        compute: computes the sums and stores the results.

    Returns: None also if a channel has more taps than an exact sum can have, or the padding value
        is not an int8.
    """
    fill = command["EX_INPUT_ZERO_POINT"]
    weights = command["EX_OPERAND_ADDRESS"]
    if shape.kh * shape.kw > CHUNK or (shape.padded and not -128 <= fill <= 127):
        return None
    output = shape.output, shape.output + shape.output_bytes(element)
    reads = (shape.input, shape.input + shape.input_bytes), (weights, weights + shape.oc * products)
    return prepare_sums(
        command, arch, Sums(shape.oc, shape.oc * shape.pixels, products), output, reads, compute
    )
