"""Products on a scratchpad of words, step by step: docs/machine.md, section 12.

Block after block and stripe after stripe are counted as the machine processes them, where the
formulas of ``isa`` multiply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isa.arch import Arch
from isa.instruction import Command
from tests.dla_sim.tick.word_counts import (
    Counted,
    add_lanes_and_tables,
    count_atoms,
    lane_cycles,
    split_range,
    words_of,
)

PIXELS = (1, 2, 4, 4)
"""Bytes of an atom of a picture of 1 to 4 channels."""


@dataclass(frozen=True)
class Products:
    """Sizes of a product: groups, channels of a group, rows, columns, and the stride of columns.

    ``taps``: the taps of a row of the kernel are side by side in a block; ``whole``: all taps are.
    ``apart``: parts of the array's columns have activations of their own. ``atom``: bytes of a
    position of the input. ``computed``: the weights are a tensor in atoms, whose channels are the
    "outputs" or the "inputs". ``gap``: there are other positions between those that consecutive
    rows of results read.
    """

    groups: int
    outputs: int
    inputs: int
    kernel_rows: int
    kernel_columns: int
    rows: int
    columns: int
    stride: int
    atom: int
    taps: bool = False
    whole: bool = False
    apart: bool = False
    computed: str = ""
    gap: bool = True


def _shape(command: Command, arch: Arch) -> Products:
    assert arch.words is not None
    at = command.registers
    atom = arch.words.atom
    if command.instruction.mnemonic in ("OP_MAT_MUL", "OP_DYN_MAT_MUL"):
        channels = at["EX_OUTPUT_CHANNELS"], at["EX_INPUT_CHANNELS"]
        computed = ""
        if command.instruction.mnemonic == "OP_DYN_MAT_MUL":
            computed = "inputs" if command.fields["transposed"] else "outputs"
        return Products(1, *channels, 1, 1, 1, at["EX_ROWS"], 1, atom, computed=computed)
    groups = at.get("EX_GROUPS", 1)
    mapping = command.fields.get("mapping", 0)
    picture = mapping == 3 and groups == 1 and at["EX_INPUT_CHANNELS"] <= len(PIXELS)
    own = PIXELS[at["EX_INPUT_CHANNELS"] - 1] if picture else atom
    return Products(
        groups, at["EX_OUTPUT_CHANNELS"] // groups, at["EX_INPUT_CHANNELS"] // groups,
        at["EX_KERNEL_HEIGHT"], at["EX_KERNEL_WIDTH"], at["EX_OUTPUT_HEIGHT"],
        at["EX_OUTPUT_WIDTH"],
        at["EX_STRIDE_WIDTH"], own, mapping in (1, 2), mapping == 3, mapping in (2, 3),
        gap=at["EX_STRIDE_HEIGHT"] * at["EX_INPUT_WIDTH"]
        != at["EX_OUTPUT_WIDTH"] * at["EX_STRIDE_WIDTH"],
    )  # fmt: skip


def _depths(shape: Products) -> list[tuple[int, int]]:
    """Return (kernel row, input channel) of the products that may be summed at once.

    The row is the slowest, then the column. If rows come one after another it is the first.
    """
    columns = shape.kernel_columns if shape.taps or shape.whole else 1
    rows = shape.kernel_rows if shape.whole else 1
    return [
        (row, channel)
        for row in range(rows)
        for _ in range(columns)
        for channel in range(shape.inputs)
    ]


def _together(shape: Products, arch: Arch) -> int:
    """Return the number of groups in one block.

    As many groups as possible are side by side if the input channels of a group divide an atom. If
    each has activations of its own, there are as many as parts of the columns.
    """
    assert arch.words is not None
    groups = 1
    while groups < shape.groups and (groups + 1) * shape.outputs <= arch.pe.oc:
        deep = (groups + 1) * len(_depths(shape)) > arch.pe.ic or arch.words.atom % shape.inputs
        if deep and not shape.apart:
            break
        groups += 1
    return groups


def _held(shape: Products, groups: int, arch: Arch) -> int:
    """Return the number of times that the array holds a block.

    Copies compute other output columns, as long as there are any.
    """
    times = 1
    while (
        shape.apart
        and (times + 1) * groups * shape.outputs <= arch.pe.oc
        and times * arch.pe.ow < shape.columns
    ):
        times += 1
    return times


def _stripes(shape: Products, width: int, arch: Arch) -> list[list[tuple[int, int]]]:
    """Steps (row, first column), P at a time."""
    assert arch.words is not None
    steps = [
        (row, piece[0]) for row in range(shape.rows) for piece in split_range(shape.columns, width)
    ]
    return [
        [steps[number] for number in numbers]
        for numbers in split_range(len(steps), arch.words.accumulators)
    ]


def _blocks(
    shape: Products, groups: Sequence[int], arch: Arch
) -> Iterator[tuple[int, set[tuple[int, int]]]]:
    """Yield the blocks that the array holds for an output channel.

    Each has its number of products and their sources: (row of the kernel, atom of the input).
    """
    depths = _depths(shape)
    one_by_one = (
        1 if shape.whole else shape.kernel_rows * (1 if shape.taps else shape.kernel_columns)
    )
    for numbers in split_range(len(depths), arch.pe.ic):
        found = [depths[number] for number in numbers]
        whence = {
            (row, (group * shape.inputs + channel) // shape.atom)
            for group in groups
            for row, channel in found
        }
        for _ in range(one_by_one):
            yield len(numbers), whence


def _word_span(positions: int, atom: int, arch: Arch) -> int:
    """Return the words that adjacent positions in atoms of ``atom`` bytes touch."""
    assert arch.words is not None
    return len({byte // arch.words.word for byte in range(positions * atom)})


def _load(shape: Products, depth: int, channels: int, arch: Arch) -> int:
    """Return the words of a block of weights.

    They are dense, or the positions of each atom that has its output channels.
    """
    assert arch.words is not None
    if not shape.computed:
        return words_of(depth * channels, arch)
    channels, positions = (channels, depth) if shape.computed == "outputs" else (depth, channels)
    return sum(
        _word_span(positions, arch.words.atom, arch) for _ in range(count_atoms(channels, arch))
    )


@dataclass(frozen=True)
class ProductStreams:
    """Words of activations that a product reads.

    ``width`` columns are computed in a step, and each row of results takes ``row_steps``. A stream
    of a block is ``reach`` positions a step, in ``alone`` words.
    """

    width: int
    row_steps: int
    reach: int
    alone: int


def _product_streams(shape: Products, width: int, arch: Arch) -> ProductStreams:
    reach = width * shape.stride if shape.taps or shape.whole else (width - 1) * shape.stride + 1
    return ProductStreams(
        width=width,
        row_steps=len(split_range(shape.columns, width)),
        reach=reach,
        alone=_word_span(reach, shape.atom, arch),
    )


def _count_stripe(
    counted: Counted,
    steps: int,
    blocks: Sequence[tuple[int, int]],
    shape: Products,
    found: ProductStreams,
    arch: Arch,
    events: Counter[str],
) -> None:
    """Add the cycles and activations of a stripe.

    ``blocks`` has the words and the activation streams of each of its blocks.
    """
    assert arch.words is not None
    events["words: a stripe that fills the accumulators"] += steps == arch.words.accumulators
    rows = len(split_range(steps, found.row_steps)) if shape.gap else 1
    events["words: rows of a stripe in one stream"] += not shape.gap and steps > found.row_steps
    fresh = _word_span(steps * found.width * shape.stride, shape.atom, arch)
    words = {
        streams: _word_span(streams * found.reach, shape.atom, arch)
        for streams in {streams for _, streams in blocks}
    }
    for load, streams in blocks:
        step = words[streams]
        events["words: streams that share words"] += step < streams * found.alone
        passing = sum(step for _ in range(steps))
        events["words: a block bound by its weights"] += load > passing
        events["words: a block bound by its steps"] += passing > load
        events["words: activations of a step each"] += steps * found.alone < fresh + rows
        events["words: activations in a stream"] += steps * found.alone > fresh + rows
        counted.cycles += max(passing, load)
        counted.add("activations", streams * min(steps * found.alone, fresh + rows))


def _note_product(
    shape: Products,
    together: int,
    held: int,
    whences: Sequence[set[tuple[int, int]]],
    found: ProductStreams,
    arch: Arch,
    events: Counter[str],
) -> None:
    """Count in ``events`` the layouts and mappings that a product exercises."""
    events["words: several words a step"] += found.alone > 1
    events["words: a block in several atoms"] += any(
        len({atom for _, atom in whence}) > 1 for whence in whences
    )
    events["words: a block of taps of several rows"] += any(
        len({row for row, _ in whence}) > 1 for whence in whences
    )
    events["words: several groups in a block"] += together > 1
    events["words: groups with activations of their own"] += together > 1 and shape.apart
    events["words: several output columns side by side"] += held > 1
    events["words: more parts than output columns"] += (
        shape.apart
        and (held + 1) * together * shape.outputs <= arch.pe.oc
        and found.width >= shape.columns
    )


@dataclass(frozen=True)
class WidthTrial:
    """A product counted with a number of output columns a step.

    ``first``: words of the first block; ``results``: number of results; ``bound``: cycles with int8
    results if no operand waits for another.
    """

    found: ProductStreams
    counted: Counted
    events: Counter[str]
    first: int
    results: int
    bound: int


def _count_width(
    command: Command, shape: Products, together: int, width: int, arch: Arch
) -> WidthTrial:
    """Count the cycles and words of a product that computes ``width`` columns a step."""
    assert arch.words is not None
    events: Counter[str] = Counter()
    found = _product_streams(shape, width, arch)
    counted = Counted(
        words={"activations": 0, "weights": 0} | ({} if shape.computed else {"records": 0})
    )
    first = results = 0
    written = dict.fromkeys((1, 4), 0)
    for groups in split_range(shape.groups, together):
        for outputs in split_range(shape.outputs, arch.pe.oc):
            channels = len(groups) * len(outputs)
            if not shape.computed:
                counted.add("records", words_of(channels * arch.channel_record_bytes, arch))
            whole = list(_blocks(shape, groups, arch))
            blocks = [(_load(shape, depth, channels, arch), len(read)) for depth, read in whole]
            dense = words_of(sum(depth * channels for depth, _ in whole), arch)
            first = first or blocks[0][0]
            results += channels * shape.rows * shape.columns
            for stripe in _stripes(shape, width, arch):
                _count_stripe(counted, len(stripe), blocks, shape, found, arch, events)
                loads = sum(load for load, _ in blocks)
                counted.add("weights", loads if shape.computed else dense)
                positions = len(stripe) * width * arch.words.atom
                for element in written:
                    words = words_of(positions * element, arch)
                    written[element] += count_atoms(channels, arch) * words
    moved = counted.words["activations"], counted.words["weights"], written[1]
    bound = max(first + counted.cycles, *moved)
    if command.fields.get("accumulate") and results:
        counted.add("sums", written[4])
    counted.add("results", written[1 if command.fields["requantise"] else 4])
    return WidthTrial(found, counted, events, first, results, bound)


def count_product(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    """Return the cycles and words of a product; count what it exercises in ``events``."""
    assert arch.words is not None
    shape = _shape(command, arch)
    together = _together(shape, arch)
    held = _held(shape, together, arch)
    widths = [held * arch.pe.ow]
    while widths[-1] > 1:
        widths.append(widths[-1] // 2)
    trials = [_count_width(command, shape, together, width, arch) for width in widths]
    costs = [trial.bound for trial in trials]
    best = trials[costs.index(min(costs))]
    found, counted = best.found, best.counted
    events.update(best.events)
    events["words: fewer output columns than possible"] += found.width < widths[0]
    whences = [
        whence
        for groups in split_range(shape.groups, together)
        for _, whence in _blocks(shape, groups, arch)
    ]
    _note_product(shape, together, held, whences, found, arch, events)
    return add_lanes_and_tables(
        counted, best.first, lane_cycles(command, best.results, arch), command, arch, events
    )
