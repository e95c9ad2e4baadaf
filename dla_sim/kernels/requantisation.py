"""``OP_REQUANT`` in blocks of float32, also in place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dla_sim.kernels.attempt import Scratch, all_apart
from dla_sim.kernels.results import LARGEST_SQUARES
from isa import numerics
from isa.instruction import Command, Machine
from isa.ops.requant import load_records, shape

_BLOCK_ELEMENTS = 64 * 1024


def requantisation(command: Command, machine: Machine, scratch: Scratch) -> bool:
    """Executes the command; False, with nothing written, for what is left to the semantics."""
    outer, channels, inner = shape(command)
    low, high = command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]
    if machine.arch.numerics != "onnxruntime" or not outer * channels * inner or low > high:
        return False
    if not _safe(command, machine, outer * channels * inner):
        return False
    scale = load_records(machine, command["EX_CHANNEL_ADDRESS"], channels).scale
    if not np.vdot(scale, scale) <= LARGEST_SQUARES:
        return False
    accumulator = np.ndarray((outer, channels, inner), np.int32, machine.sram, command["EX_INPUT_ADDRESS"])
    output = np.ndarray((outer, channels, inner), np.int8, machine.sram, command["EX_OUTPUT_ADDRESS"])
    for block in _blocks(outer, channels, inner):
        wide = scratch.array("sums", accumulator[block].shape, np.float32)
        np.copyto(wide, accumulator[block], casting="unsafe")
        factors = scale[block[1], None]
        numerics.requantise_float32(wide, factors, command["EX_OUTPUT_ZERO_POINT"], low, high, out=output[block])
    return True


def _safe(command: Command, machine: Machine, elements: int) -> bool:
    """Whether blocks in ascending order overwrite nothing that is still to be read.

    In place is safe: the byte of result i lies at or below the first byte of accumulator i, which has been read.
    """
    source, target = command["EX_INPUT_ADDRESS"], command["EX_OUTPUT_ADDRESS"]
    records = command["EX_CHANNEL_ADDRESS"]
    records_end = records + command["EX_OUTPUT_CHANNELS"] * machine.arch.channel_record_bytes
    ends = target + elements, source + 4 * elements, records_end
    if max(ends) > machine.sram.size or not all_apart((target, ends[0]), ((records, records_end),)):
        return False
    return target <= source or target >= ends[1]


def _blocks(outer: int, channels: int, inner: int) -> Iterator[tuple[slice, slice, slice]]:
    """Blocks of at most about 64 Ki elements in the order of memory: several matrices, or channels, or part of one."""
    matrices = max(_BLOCK_ELEMENTS // (channels * inner), 1)
    planes = min(max(_BLOCK_ELEMENTS // inner, 1), channels)
    elements = min(_BLOCK_ELEMENTS, inner)
    for first in range(0, outer, matrices):
        for channel in range(0, channels, planes):
            for element in range(0, inner, elements):
                yield (
                    slice(first, min(first + matrices, outer)),
                    slice(channel, min(channel + planes, channels)),
                    slice(element, min(element + elements, inner)),
                )
