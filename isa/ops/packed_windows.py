"""Layouts, cycles and words of depthwise convolutions, pooling and resizing on banked memory."""

from functools import partial
from typing import NamedTuple

from isa.arch import Arch, BankedMemory, words_of
from isa.instruction import Blocks, Command, OperandLayout, Plain, ceil_div, formula
from isa.ops import pooling
from isa.ops.convolution import MAPPING
from isa.ops.packed_operands import (
    compute_finishing_cycles,
    input_atoms,
    list_planes,
    list_table_words,
    list_tables,
    output_atoms,
)
from isa.ops.windows import element_bytes, make_refusal, taps
from isa.packing import (
    depthwise_places,
    read_depthwise,
)


class Windows(NamedTuple):
    """Array steps and input words for the pooling or depthwise windows of one atom."""

    steps: int
    words: int


def windows(command: Command, arch: Arch) -> Windows:
    """Return the array steps and input words for all kernel windows of one atom of channels.

    The array computes ⌊N/A⌋ windows at a time: first along a row, then over rows. An array of fewer
    than A elements computes one window at a time and needs ⌈A/N⌉ cycles per tap. Registers keep the
    rows that the windows of a step need, so each input row is read once for every piece of columns,
    plus one word if there are several pieces.
    """
    words = words_of(arch)
    at = command.registers
    rows = at["EX_OUTPUT_HEIGHT"]
    columns = at["EX_OUTPUT_WIDTH"]
    together = max(1, arch.pe.count // words.atom)
    across = max(1, min(together, columns))
    down = max(1, min(rows, together // across))
    pieces = ceil_div(columns, across)
    reached = (
        (across - 1) * at["EX_STRIDE_WIDTH"]
        + (at["EX_KERNEL_WIDTH"] - 1) * at["EX_DILATION_WIDTH"]
        + 1
    )
    read = (
        (rows - 1) * at["EX_STRIDE_HEIGHT"]
        + (at["EX_KERNEL_HEIGHT"] - 1) * at["EX_DILATION_HEIGHT"]
        + 1
    )
    row = words.count(min(reached, at["EX_INPUT_WIDTH"]) * words.atom) + (pieces > 1)
    steps = (
        pieces
        * ceil_div(rows, down)
        * taps(command)
        * ceil_div(words.atom, together * arch.pe.count)
    )
    return Windows(steps, pieces * min(read, at["EX_INPUT_HEIGHT"]) * row)


def _results(command: Command, arch: Arch, element: int) -> tuple[int, int]:
    """Return the number of results of a window command, and their memory words."""
    words = words_of(arch)
    positions = command["EX_OUTPUT_HEIGHT"] * command["EX_OUTPUT_WIDTH"]
    channels = command["EX_OUTPUT_CHANNELS"]
    return channels * positions, words.surfaces(channels) * words.count(
        positions * words.atom * element
    )


def _depth_channels(command: Command) -> int:
    if command["EX_INPUT_CHANNELS"] != command["EX_OUTPUT_CHANNELS"]:
        raise make_refusal(
            command, "with banked memory EX_INPUT_CHANNELS and EX_OUTPUT_CHANNELS must be equal"
        )
    if command.fields.get(MAPPING.name, 0):
        raise make_refusal(command, "mapping is for machines without words; give 0")
    return command["EX_OUTPUT_CHANNELS"]


def _depth_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    channels = _depth_channels(command)
    words = words_of(arch)
    count = taps(command)
    order = partial(depthwise_places, channels, count, words.atom)
    read = partial(read_depthwise, channels, count, words.atom)
    weights = Blocks("EX_OPERAND_ADDRESS", channels * count, order, read)
    records = Plain("EX_CHANNEL_ADDRESS", channels * arch.channel_record_bytes)
    source, result = list_planes(command)
    return source, weights, records, *list_tables(command), result


@formula(
    """
    w + max(⌈C/A⌉ · s, ⌈results / L⌉) with s = ⌈OW/x⌉ · ⌈OH/y⌉ · KH · KW. The term ⌈results / L⌉
    applies if the lanes requantise or look up results.

    w is the number of memory words of the first atom's weights. Loading the weights of the next
    atom takes no longer than s.

    The array computes ⌊N/A⌋ windows in parallel: x ≤ OW of them in a row and y in a column. If N <
    A, it computes one window at a time, and s is ⌈A/N⌉ times as long.
    """
)
def _depth_cycles(command: Command, arch: Arch) -> int:
    words = words_of(arch)
    channels = _depth_channels(command)
    first = words.count(min(channels, words.atom) * taps(command))
    array = words.surfaces(channels) * windows(command, arch).steps
    return first + max(
        array, compute_finishing_cycles(command, _results(command, arch, 1)[0], arch)
    )


def _depth_words(command: Command, arch: Arch) -> tuple[int, ...]:
    words = words_of(arch)
    channels = _depth_channels(command)
    weights = words.count(channels * taps(command))
    records = words.count(channels * arch.channel_record_bytes)
    source = words.surfaces(channels) * windows(command, arch).words
    return (
        source,
        weights,
        records,
        *list_table_words(command, arch),
        _results(command, arch, element_bytes(command))[1],
    )


def _pool_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    return input_atoms(command), *list_tables(command), output_atoms(command, 1)


def _resize_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    columns, rows = (
        pooling.COORDINATE_BYTES * command[f"EX_OUTPUT_{name}"] for name in ("WIDTH", "HEIGHT")
    )
    begin = columns + pooling.COORDINATE_BYTES * command["EX_FIRST_ROW"]
    tables = Plain("EX_OPERAND_ADDRESS", columns), Plain("EX_OPERAND_ADDRESS", rows, begin)
    return input_atoms(command), *tables, output_atoms(command, 1)


def _result_atoms(command: Command, words: BankedMemory) -> int:
    """Return the number of atoms in the result of a resize command."""
    positions = command["EX_OUTPUT_HEIGHT"] * command["EX_OUTPUT_WIDTH"]
    return words.surfaces(command["EX_OUTPUT_CHANNELS"]) * positions


@formula(
    """
    4 · ⌈C/A⌉·OH·OW · ⌈A / L⌉ + divide_cycles for the reciprocal of SCALE_Y. The lanes process the
    four neighbours of an atom of the result one after the other.
    """
)
def _resize_cycles(command: Command, arch: Arch) -> int:
    words = words_of(arch)
    each = pooling.NEIGHBOURS * ceil_div(words.atom, arch.lanes)
    return words.divide_cycles + each * _result_atoms(command, words)


def _resize_words(command: Command, arch: Arch) -> tuple[int, ...]:
    """Return the words of a resize command: a word per neighbour of an atom of the result.

    The coordinates of columns are read for every row of every surface, those of rows once for every
    surface, from any byte of a word.
    """
    words = words_of(arch)
    surfaces = words.surfaces(command["EX_OUTPUT_CHANNELS"])
    rows, columns = command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]
    along, down = (words.count(pooling.COORDINATE_BYTES * size) for size in (columns, rows))
    return (
        pooling.NEIGHBOURS * _result_atoms(command, words),
        surfaces * rows * along,
        surfaces * (down + 1),
        _results(command, arch, 1)[1],
    )


def _whole_plane(command: Command) -> bool:
    return command.fields["mode"] == pooling.GLOBAL_AVERAGE


@formula(
    """
    max(⌈C/A⌉ · s, ⌈results / L⌉ with look_up), with the cycles s of one atom as in OP_DEPTH_CONV.
    For the average of a whole plane, s is the number of memory words of the plane of an atom.

    The average of windows takes ⌈(KH·KW + 1) / dividers⌉ · divide_cycles more, for the reciprocals
    of the counts and of SCALE_Y.
    """
)
def _pool_cycles(command: Command, arch: Arch) -> int:
    words = words_of(arch)
    results, _ = _results(command, arch, 1)
    steps = _pool_source(command, arch) if _whole_plane(command) else windows(command, arch).steps
    lead = 0
    if command.fields["mode"] == pooling.AVERAGE:
        lead = ceil_div(taps(command) + 1, words.dividers) * words.divide_cycles
    return lead + max(
        words.surfaces(command["EX_OUTPUT_CHANNELS"]) * steps,
        compute_finishing_cycles(command, results, arch),
    )


def _pool_source(command: Command, arch: Arch) -> int:
    """Return the input words that a pooling command reads for one atom of channels."""
    words = words_of(arch)
    if _whole_plane(command):
        return words.count(command["EX_INPUT_HEIGHT"] * command["EX_INPUT_WIDTH"] * words.atom)
    return windows(command, arch).words


def _pool_words(command: Command, arch: Arch) -> tuple[int, ...]:
    source = words_of(arch).surfaces(command["EX_OUTPUT_CHANNELS"]) * _pool_source(command, arch)
    return source, *list_table_words(command, arch), _results(command, arch, 1)[1]
