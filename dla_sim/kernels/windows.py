"""Geometry of a sliding window command and views of its input: no index arrays, strides only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Scratch
from isa.instruction import Command, Machine

_REGISTERS = itemgetter(
    "EX_INPUT_CHANNELS", "EX_INPUT_HEIGHT", "EX_INPUT_WIDTH",
    "EX_OUTPUT_CHANNELS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH",
    "EX_KERNEL_HEIGHT", "EX_KERNEL_WIDTH", "EX_STRIDE_HEIGHT", "EX_STRIDE_WIDTH",
    "EX_DILATION_HEIGHT", "EX_DILATION_WIDTH", "EX_PAD_TOP", "EX_PAD_LEFT",
    "EX_INPUT_ADDRESS", "EX_INPUT_PLANE", "EX_OUTPUT_ADDRESS", "EX_OUTPUT_PLANE",
)  # fmt: skip
_WORTH_SPLITTING = 1 << 14
"""Bytes of input from which splitting even and odd columns pays."""


@dataclass(frozen=True)
class Window:
    """The registers of a sliding window, by short names; planes are in bytes and never 0 (a dense one is its size)."""

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
        """Rows, padding included, that the windows of all outputs reach over."""
        return (self.oh - 1) * self.sy + (self.kh - 1) * self.dy + 1

    @cached_property
    def columns(self) -> int:
        """Columns, padding included, that the windows of all outputs reach over."""
        return (self.ow - 1) * self.sx + (self.kw - 1) * self.dx + 1

    @cached_property
    def padded(self) -> bool:
        """Whether any tap of any output lies outside the input."""
        return bool(self.top or self.left or self.rows > self.ih or self.columns > self.iw)

    @cached_property
    def split(self) -> bool:
        """Whether it pays to part even and odd columns: see :class:`Source`."""
        return self.sx == 2 and self.ic * self.rows * self.columns >= _WORTH_SPLITTING

    @property
    def pixels(self) -> int:
        """Outputs of a channel."""
        return self.oh * self.ow

    @property
    def input_bytes(self) -> int:
        """Bytes from the first to one past the last input byte."""
        return (self.ic - 1) * self.input_plane + self.ih * self.iw

    def output_bytes(self, element: int) -> int:
        """Bytes from the first to one past the last output byte, elements of ``element`` bytes."""
        return (self.oc - 1) * self.output_plane + self.pixels * element

    def output_view(self, memory: NDArray[np.uint8], dtype: Any, first: int, channels: int) -> NDArray[Any]:
        """The outputs of some channels in the scratchpad: (channels, OH * OW)."""
        strides = self.output_plane, np.dtype(dtype).itemsize
        return np.ndarray(
            (channels, self.oh * self.ow), dtype, memory, self.output + first * self.output_plane, strides
        )


def window(command: Command, element: int) -> Window | None:
    """The window of a command whose output elements have ``element`` bytes.

    None for what the kernels leave to the semantics: a size or stride of 0, and output planes that overlap.
    """
    values = list(_REGISTERS(command.registers))
    if 0 in values[:12]:
        return None
    dense = values[4] * values[5] * element
    values[15] = values[15] or values[1] * values[2]
    values[17] = values[17] or dense
    found = Window(*values)
    return None if found.output_plane < dense and found.oc > 1 else found


class Source(NamedTuple):
    """int8 planes in ``buffer`` from byte ``offset``, ``plane`` bytes apart, of rows ``row`` bytes apart.

    What the tap at row r and column c (dilation included) reads for output (y, x) of channel i lies at
    ``offset + i*plane + (y*sy + r)*row + x*step + tap_skip(c)``. If ``split`` is not 0, even and odd columns are that
    many bytes apart: then the outputs of a row are contiguous in spite of a column stride of 2.
    """

    buffer: NDArray[Any]
    offset: int
    plane: int
    row: int
    step: int
    split: int = 0

    def copy_taps(self, target: NDArray[Any], strides: tuple[int, ...], skip: int, dilation: int) -> None:
        """Fills ``target`` (KW, ...) with what each kernel column reads, ``skip`` bytes further.

        ``strides`` are the byte strides of the axes of ``target`` behind the first.
        """
        if not self.split:
            np.copyto(target, self.view(target.shape, (dilation, *strides), skip))
            return
        for column, part in enumerate(target):
            np.copyto(part, self.view(part.shape, strides, skip + self.tap_skip(column * dilation)))

    def tap_skip(self, column: int) -> int:
        """Bytes from the first column to the one that tap ``column`` reads for the first output."""
        return (column & 1) * self.split + (column >> 1) if self.split else column

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], skip: int = 0) -> NDArray[np.int8]:
        """A view with any shape and byte strides, from ``skip`` bytes after the first element."""
        return np.ndarray(shape, np.int8, self.buffer, self.offset + skip, strides)


def source(shape: Window, machine: Machine, scratch: Scratch, fill: int, split: bool) -> Source:
    """Where the taps are read: the scratchpad itself, or a copy extended by ``fill`` where the window has padding.

    With ``split`` (for a column stride of 2) even and odd columns are parted. The caller has checked that the input
    lies inside the scratchpad and that ``fill`` is an int8 if the window has padding.
    """
    if not shape.padded and not split:
        return Source(machine.sram, shape.input, shape.input_plane, shape.iw, shape.sx)
    rows, columns = shape.rows, shape.columns + (shape.columns & 1 if split else 0)
    extended: NDArray[np.int8] = scratch.array("padded", (shape.ic, rows, columns), np.int8)
    if shape.padded:
        extended.fill(fill)
    bottom, right = min(rows, shape.top + shape.ih), min(shape.columns, shape.left + shape.iw)
    if bottom > shape.top and right > shape.left:
        size = (shape.ic, bottom - shape.top, right - shape.left)
        inner = np.ndarray(size, np.int8, machine.sram, shape.input, (shape.input_plane, shape.iw, 1))
        np.copyto(extended[:, shape.top : bottom, shape.left : right], inner)
    return _split(extended, scratch) if split else Source(extended, 0, rows * columns, columns, shape.sx)


def _split(extended: NDArray[np.int8], scratch: Scratch) -> Source:
    """Even and odd columns apart. Each is cut out of little-endian 16-bit words, which is fast; DESTROYS its input."""
    channels, rows, columns = extended.shape
    half = columns // 2
    words = extended.view("<i2")
    halves = scratch.array("halves", (2, channels, rows, half), np.int8)
    np.copyto(halves[0], words, casting="unsafe")
    np.right_shift(words, 8, out=words)
    np.copyto(halves[1], words, casting="unsafe")
    return Source(halves, 0, rows * half, half, 1, channels * rows * half)
