"""Transfers: which bytes of a dense tensor in system memory make up a box of it, and how they lie in the scratchpad."""

from __future__ import annotations

from typing import NamedTuple

from byoc.tile import Box


class Transfer(NamedTuple):
    """``repeats`` rows of ``nbytes`` bytes from byte ``offset`` of the tensor; strides are bytes from row to row."""

    offset: int
    nbytes: int
    repeats: int = 1
    dram_stride: int = 0
    sram_stride: int = 0

    @property
    def total(self) -> int:
        """Bytes moved."""
        return self.nbytes * self.repeats


def plane_transfer(box: Box, rows: int, columns: int, element: int, plane: int = 0) -> Transfer:
    """The box of a tensor (C, rows, columns) of ``element`` bytes; all columns.

    In the scratchpad the channels are ``plane`` bytes apart, or dense where ``plane`` is 0.
    """
    row = columns * element
    nbytes, stride = box.rows.size * row, rows * row
    offset = (box.channels.start * rows + box.rows.start) * row
    return _strided(offset, nbytes, box.channels.size, stride, plane or nbytes)


def matrix_transfer(box: Box, channels: int, element: int) -> Transfer:
    """The box of a matrix (rows, channels) stored row by row; dense in the scratchpad."""
    nbytes = box.channels.size * element
    offset = (box.rows.start * channels + box.channels.start) * element
    return _strided(offset, nbytes, box.rows.size, channels * element, nbytes)


def _strided(offset: int, nbytes: int, repeats: int, dram_stride: int, sram_stride: int) -> Transfer:
    if repeats == 1 or dram_stride == sram_stride == nbytes:
        return Transfer(offset, nbytes * repeats)
    return Transfer(offset, nbytes, repeats, dram_stride, sram_stride)
