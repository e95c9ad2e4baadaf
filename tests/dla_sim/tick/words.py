"""Commands on a scratchpad of words, step by step: docs/machine.md, section 12.

Block after block, stripe after stripe, window after window: counted as the machine goes, where the
formulas of ``isa`` multiply. Nothing of ``isa.ops`` is used, only registers, fields, and the
machine's keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from isa.arch import Arch
from isa.instruction import Command

TABLE = 256
GLOBAL = 2
AVERAGE = 1
ALONG_LENGTH = 1
ALONG_CHANNELS = 2
PAIRS = ("OP_E_MUL", "OP_E_SUB", "OP_B_ADD", "OP_B_MIN", "OP_E_DIV")
DENSE = ("OP_E_ADD", "OP_C_MIN", "OP_C_MAX")
BY_A_SCALE = ("OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS")
ROWS = ("OP_REDUCE", "OP_SOFTMAX", "OP_NORM")
PARAMETERS = 8
PIXELS = (1, 2, 4, 4)
"""Bytes of an atom of a picture of 1 to 4 channels."""
WINDOWS = ("OP_DEPTH_CONV", "OP_POOL")
SHARING = ("records", "sums", "tables")
"""Operands that come by one port, one word a cycle of all of them."""


@dataclass
class Counted:
    """What a command takes: compute cycles, and the words of each requester, in the order of its
    operands.
    """

    cycles: int = 0
    words: dict[str, int] = field(default_factory=dict)

    def add(self, requester: str, words: int) -> None:
        """``words`` more of a requester."""
        self.words[requester] = self.words.get(requester, 0) + words


def words_of(nbytes: int, arch: Arch) -> int:
    """Aligned words that so many bytes touch which begin with a word."""
    assert arch.words is not None
    return (nbytes + arch.words.word - 1) // arch.words.word


def count(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    """The cycles and words of an instruction of EX; what it exercises is counted in ``events``."""
    mnemonic = command.instruction.mnemonic
    if mnemonic in WINDOWS:
        return _windows(command, arch, events)
    if mnemonic in PAIRS:
        return _pair(command, arch, events)
    if mnemonic in DENSE + BY_A_SCALE:
        return _alike(command, arch)
    if mnemonic == "OP_PERMUTE":
        return _copied(command, arch, events)
    if mnemonic in ROWS:
        return _rows(command, arch, events)
    if mnemonic == "OP_LUT":
        return _look_up(command, arch, events)
    return _product(command, arch, events)


def _pieces(size: int, step: int) -> list[list[int]]:
    """0 to ``size`` - 1 in lists of ``step``, the last one shorter."""
    return [list(range(first, min(first + step, size))) for first in range(0, size, step)]


def _atoms(channels: int, arch: Arch) -> int:
    assert arch.words is not None
    return len(_pieces(channels, arch.words.atom))


def _tables(command: Command) -> int:
    """Tables of a look-up as last step."""
    return [0, 1, command.registers.get("EX_OUTPUT_CHANNELS", 1)][command.fields.get("look_up", 0)]


def _behind(command: Command, results: int, arch: Arch) -> int:
    """Cycles of the lanes behind the array, L results each, where they have anything to do."""
    fields = command.fields
    if not (fields.get("requantise") or fields.get("accumulate") or fields.get("look_up")):
        return 0
    return len(_pieces(results, arch.lanes))


def _finish(
    counted: Counted, first: int, behind: int, command: Command, arch: Arch, events: Counter[str]
) -> Counted:
    """The lanes beside the array, the first weights before it, and the tables."""
    events["words: the lanes take longer than the array"] += behind > counted.cycles
    counted.cycles = first + max(counted.cycles, behind)
    results = counted.words.pop("results")
    if _tables(command):
        counted.add("tables", words_of(TABLE * _tables(command), arch))
    counted.add("results", results)
    return counted


# Products.


@dataclass(frozen=True)
class Products:
    """Groups, their output and input channels, rows and columns of kernel and output, and the
    stride of columns.

    ``taps``: those of a row of the kernel side by side; ``whole``: all of them; ``apart``: parts of
    the array's columns have activations of their own; ``atom``: bytes of a position of the input.
    ``computed``: the weights are a tensor in atoms, its channels the "outputs" or the "inputs".
    ``gap``: between the positions that rows of results begin with others lie than those of the
    results before.
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
    """(row of the kernel, input channel) of each product that may be summed at once, the row
    slowest, then the column.

    Where the rows come one after another it is the first.
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
    """Groups in one block: as many as fit beside one another, where the input channels of a group
    divide an atom.

    Where each has activations of its own, as many as there are parts of the columns.
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
    """How often the array holds a block: for other output columns, as long as there are any."""
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
        (row, piece[0]) for row in range(shape.rows) for piece in _pieces(shape.columns, width)
    ]
    return [
        [steps[number] for number in numbers]
        for numbers in _pieces(len(steps), arch.words.accumulators)
    ]


def _blocks(
    shape: Products, groups: Sequence[int], arch: Arch
) -> Iterator[tuple[int, set[tuple[int, int]]]]:
    """Of what the array holds one after the other for an output channel: its products, and whence
    they come.

    That is (row of the kernel, atom of the input).
    """
    depths = _depths(shape)
    one_by_one = (
        1 if shape.whole else shape.kernel_rows * (1 if shape.taps else shape.kernel_columns)
    )
    for numbers in _pieces(len(depths), arch.pe.ic):
        found = [depths[number] for number in numbers]
        whence = {
            (row, (group * shape.inputs + channel) // shape.atom)
            for group in groups
            for row, channel in found
        }
        for _ in range(one_by_one):
            yield len(numbers), whence


def _word_span(positions: int, atom: int, arch: Arch) -> int:
    """Words that so many positions beside one another touch, in atoms of so many bytes."""
    assert arch.words is not None
    return len({byte // arch.words.word for byte in range(positions * atom)})


def _load(shape: Products, depth: int, channels: int, arch: Arch) -> int:
    """Words of a block of weights: dense, or the positions of each of the atoms that its output
    channels lie in.
    """
    assert arch.words is not None
    if not shape.computed:
        return words_of(depth * channels, arch)
    channels, positions = (channels, depth) if shape.computed == "outputs" else (depth, channels)
    return sum(_word_span(positions, arch.words.atom, arch) for _ in range(_atoms(channels, arch)))


def _product(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    assert arch.words is not None
    shape = _shape(command, arch)
    counted = Counted()
    element = 1 if command.fields["requantise"] else 4
    together = _together(shape, arch)
    held = _held(shape, together, arch)
    width = held * arch.pe.ow
    reach = width * shape.stride if shape.taps or shape.whole else (width - 1) * shape.stride + 1
    whences = [
        whence
        for groups in _pieces(shape.groups, together)
        for _, whence in _blocks(shape, groups, arch)
    ]
    streams = max(map(len, whences), default=1)
    alone = _word_span(reach, shape.atom, arch)
    step = _word_span(streams * reach, shape.atom, arch)
    a_row = len(_pieces(shape.columns, width))
    first = 0
    results = 0
    sums = 0
    written = 0
    counted.words = (
        {"activations": 0, "weights": 0}
        if shape.computed
        else {"activations": 0, "weights": 0, "records": 0}
    )
    for groups in _pieces(shape.groups, together):
        for outputs in _pieces(shape.outputs, arch.pe.oc):
            channels = len(groups) * len(outputs)
            if not shape.computed:
                counted.add("records", words_of(channels * arch.channel_record_bytes, arch))
            weights = sum(depth * channels for depth, _ in _blocks(shape, groups, arch))
            blocks = [
                (_load(shape, depth, channels, arch), atoms)
                for depth, atoms in _blocks(shape, groups, arch)
            ]
            first = first or blocks[0][0]
            results += channels * shape.rows * shape.columns
            for stripe in _stripes(shape, width, arch):
                steps = len(stripe)
                events["words: a stripe that fills the accumulators"] += (
                    steps == arch.words.accumulators
                )
                rows = len(_pieces(steps, a_row)) if shape.gap else 1
                events["words: rows of a stripe in one stream"] += not shape.gap and steps > a_row
                fresh = _word_span(steps * width * shape.stride, shape.atom, arch)
                for load, _ in blocks:
                    passing = sum(step for _ in stripe)
                    events["words: a block bound by its weights"] += load > passing
                    events["words: a block bound by its steps"] += passing > load
                    events["words: activations of a step each"] += steps * alone < fresh + rows
                    events["words: activations in a stream"] += steps * alone > fresh + rows
                    counted.cycles += max(passing, load)
                    counted.add("activations", streams * min(steps * alone, fresh + rows))
                loads = (
                    sum(load for load, _ in blocks) if shape.computed else words_of(weights, arch)
                )
                counted.add("weights", loads)
                positions = steps * width * arch.words.atom
                written += _atoms(channels, arch) * words_of(positions * element, arch)
                sums += _atoms(channels, arch) * words_of(positions * 4, arch)
    events["words: several words a step"] += alone > 1
    events["words: a block in several atoms"] += any(
        len({atom for _, atom in whence}) > 1 for whence in whences
    )
    events["words: a block of taps of several rows"] += any(
        len({row for row, _ in whence}) > 1 for whence in whences
    )
    events["words: streams that share words"] += step < streams * alone
    events["words: several groups in a block"] += together > 1
    events["words: groups with activations of their own"] += together > 1 and shape.apart
    events["words: several output columns side by side"] += held > 1
    events["words: more parts than output columns"] += (
        shape.apart
        and (held + 1) * together * shape.outputs <= arch.pe.oc
        and width >= shape.columns
    )
    if command.fields.get("accumulate") and results:
        counted.add("sums", sums)
    counted.add("results", written)
    return _finish(counted, first, _behind(command, results, arch), command, arch, events)


# Windows.


def _windows(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    """One atom after the other, piece of columns after piece, some rows at once, tap after tap."""
    assert arch.words is not None
    at = command.registers
    counted = Counted()
    words = arch.words
    depthwise = command.instruction.mnemonic == "OP_DEPTH_CONV"
    channels = at["EX_OUTPUT_CHANNELS"]
    rows = at["EX_OUTPUT_HEIGHT"]
    columns = at["EX_OUTPUT_WIDTH"]
    kernel = [
        (row, column)
        for row in range(at["EX_KERNEL_HEIGHT"])
        for column in range(at["EX_KERNEL_WIDTH"])
    ]
    whole = command.fields.get("mode") == GLOBAL
    at_once = arch.pe.count // words.atom
    slower = 1 if at_once else len(_pieces(words.atom, arch.pe.count))
    across = min(max(at_once, 1), columns)
    down = 1
    while down < rows and across * (down + 1) <= at_once:
        down += 1
    pieces = _pieces(columns, across)
    last_row = (rows - 1) * at["EX_STRIDE_HEIGHT"] + (at["EX_KERNEL_HEIGHT"] - 1) * at[
        "EX_DILATION_HEIGHT"
    ]
    last_column = (across - 1) * at["EX_STRIDE_WIDTH"] + (at["EX_KERNEL_WIDTH"] - 1) * at[
        "EX_DILATION_WIDTH"
    ]
    input_rows = [row for row in range(last_row + 1) if row < at["EX_INPUT_HEIGHT"]]
    input_columns = [column for column in range(last_column + 1) if column < at["EX_INPUT_WIDTH"]]
    counted.words = (
        {"activations": 0, "weights": 0, "records": 0} if depthwise else {"activations": 0}
    )
    first = 0
    results = 0
    lead = 0
    written = 0
    for atom in _pieces(channels, words.atom):
        if whole:
            plane = words_of(at["EX_INPUT_HEIGHT"] * at["EX_INPUT_WIDTH"] * words.atom, arch)
            counted.add("activations", plane)
            steps = plane
        else:
            steps = 0
            for _ in pieces:
                for _ in input_rows:
                    counted.add(
                        "activations",
                        words_of(len(input_columns) * words.atom, arch) + (len(pieces) > 1),
                    )
                for _ in _pieces(rows, down):
                    for _ in kernel:
                        steps += slower
        if depthwise:
            load = words_of(len(atom) * len(kernel), arch)
            assert load <= steps  # so that the next atom's weights are always there
            first = first or load
        counted.cycles += steps
        results += len(atom) * rows * columns
        element = 1 if command.fields.get("requantise", 1) else 4
        written += words_of(rows * columns * words.atom * element, arch)
    if depthwise:
        counted.add("weights", words_of(channels * len(kernel), arch))
        counted.add("records", words_of(channels * arch.channel_record_bytes, arch))
    elif command.fields["mode"] == AVERAGE:
        lead = _divisions(len(kernel) + 1, arch)
    counted.add("results", written)
    events["words: several windows in a row"] += across > 1
    events["words: several rows of windows"] += down > 1
    events["words: several pieces of columns"] += len(pieces) > 1
    events["words: an array of less than an atom"] += slower > 1
    return _finish(counted, first + lead, _behind(command, results, arch), command, arch, events)


# Element by element.


def _divisions(divisors: int, arch: Arch) -> int:
    """Each divider makes one reciprocal after the other."""
    assert arch.words is not None
    return sum(arch.words.divide_cycles for _ in _pieces(divisors, arch.words.dividers))


def _alike(command: Command, arch: Arch) -> Counted:
    length = command["EX_LENGTH"]
    scaled = command.instruction.mnemonic in BY_A_SCALE
    words = {name: words_of(length, arch) for name in ("a" if scaled else "ab")}
    if _tables(command):
        words["tables"] = words_of(TABLE * _tables(command), arch)
    first = _divisions(1, arch) if scaled else 0
    return Counted(
        first + len(_pieces(length, arch.lanes)), {**words, "results": words_of(length, arch)}
    )


def _tensor(channels: int, length: int, arch: Arch) -> tuple[int, int]:
    """(elements, words) of a tensor in atoms: surface after surface."""
    assert arch.words is not None
    elements = words = 0
    if length:
        for _ in _pieces(channels, arch.words.atom):
            elements += arch.words.atom * length
            words += words_of(arch.words.atom * length, arch)
    return elements, words


def _pair(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    assert arch.words is not None
    channels = command["EX_OUTPUT_CHANNELS"]
    length = command["EX_LENGTH"]
    elements, written = _tensor(channels, length, arch)
    counted = Counted(len(_pieces(elements, arch.lanes)))
    divisors = 0
    for name in "ab":
        repeat = command.fields[f"repeat_{name}"]
        along = 1 if repeat & ALONG_LENGTH else length
        counted.add(name, 0)
        if length:
            # a row for all channels is read again for each surface
            for _ in _pieces(channels, arch.words.atom):
                counted.add(name, words_of(along * arch.words.atom, arch))
            divisors = along * (1 if channels and repeat & ALONG_CHANNELS else channels)
    if command.instruction.mnemonic == "OP_E_SUB":
        counted.cycles += arch.words.divide_cycles
    if command.instruction.mnemonic == "OP_E_DIV":
        events["words: divisions bound by the dividers"] += (
            _divisions(divisors, arch) > counted.cycles
        )
        events["words: divisions bound by the lanes"] += _divisions(divisors, arch) < counted.cycles
        counted.cycles = arch.words.divide_cycles + max(counted.cycles, _divisions(divisors, arch))
    if _tables(command):
        counted.add("tables", words_of(TABLE * _tables(command), arch))
    counted.add("results", written)
    return counted


def _look_up(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    channels = command["EX_OUTPUT_CHANNELS"]
    rows = command["EX_ROWS"]
    length = command["EX_LENGTH"]
    events["words: tables of channels"] += channels > 1
    elements = rows * length
    words = words_of(elements, arch)
    if channels != 1:
        elements, words = _tensor(channels, length, arch)
    tables = words_of(TABLE * channels, arch)
    return Counted(
        tables + len(_pieces(elements, arch.lanes)),
        {"input": words, "tables": tables, "results": words},
    )


# Copies of bytes.


def _most_words(span: int, address: int, others: Sequence[tuple[int, int]], word: int) -> int:
    """Words that so many bytes touch at most, wherever in a word the steps (count, stride) of
    the others bring them.
    """
    grain = word
    last = address % word
    for count, stride in others:
        while stride % grain:
            grain //= 2
        for _ in range(count - 1 if stride % word else 0):
            last += stride
    begins = [begin for begin in range(address % grain, word, grain) if begin <= last]
    return max((begin + span - 1) // word + 1 for begin in begins)


def _copied(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    """A copy, block in block: every place that the innermost ones have is looked at."""
    assert arch.words is not None
    at = command.registers
    word = arch.words.word
    fill = command.fields["fill"]
    dims = [n for n in (1, 2, 3, 4) if at[f"EX_COUNT_{n}"] != 1]
    if any(not at[f"EX_COUNT_{n}"] for n in dims):
        return Counted(0, {"input": 0, "results": 0})
    sides = ("OUTPUT",) if fill else ("INPUT", "OUTPUT")
    places: dict[str, list[int]] = {side: [0] for side in sides}
    touched = dict.fromkeys(sides, 1)
    asked = dict.fromkeys(sides, 1)
    rising = True
    for position, n in enumerate(dims):
        steps = at[f"EX_COUNT_{n}"]
        again = dict.fromkeys(sides, 0)
        most = dict.fromkeys(sides, 0)
        for side in sides:
            stride = at[f"EX_{side}_STRIDE_{n}"]
            block = places[side]
            first = min(block)
            last = max(block)
            rising = rising and (first + stride > last or (first == last and not stride))
            places[side] = sorted(
                {place + step * stride for step in range(steps) for place in block}
            )
            others = [
                (at[f"EX_COUNT_{m}"], at[f"EX_{side}_STRIDE_{m}"]) for m in dims[position + 1 :]
            ]
            span = max(places[side]) - min(places[side]) + 1
            for _ in range(steps):
                again[side] += asked[side]
                most[side] += touched[side]
            most[side] = min(most[side], _most_words(span, at[f"EX_{side}_ADDRESS"], others, word))
        touched = most
        ways = {"again": again}
        if fill:
            ways["pairs"] = {"OUTPUT": most["OUTPUT"]}
        else:
            pairs = sum(1 for _ in range(most["INPUT"]) for _ in range(most["OUTPUT"]))
            ways["pairs"] = {
                **most,
                "OUTPUT" if most["INPUT"] <= most["OUTPUT"] else "INPUT": pairs,
            }
        if rising:
            ways["in a stream"] = dict(most)
        best = min(ways, key=lambda way: (max(ways[way].values()), sum(ways[way].values())))
        events[f"words: a copy {best}"] += 1
        asked = ways[best]
    return Counted(
        max(asked.values()), {"input": asked.get("INPUT", 0), "results": asked["OUTPUT"]}
    )


# Instructions on whole rows.


def _rows(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    """Pass after pass over all atoms; a row is a position, its elements the channels."""
    mnemonic = command.instruction.mnemonic
    at = command.registers
    outer = at["EX_ROWS"]
    channels = at["EX_INPUT_CHANNELS"]
    inner = at["EX_LENGTH"]
    positions = outer * inner
    if mnemonic == "OP_NORM":
        channels = channels * inner
        positions = outer
    elements, words = _tensor(channels, positions, arch)
    a_pass = len(_pieces(elements, arch.lanes))
    written = words
    counted = Counted(words={"input": words})
    if mnemonic == "OP_REDUCE":
        counted.cycles = a_pass
        quotients = 1
        written = words_of(positions, arch)
    elif mnemonic == "OP_SOFTMAX":
        counted.cycles = a_pass + a_pass
        quotients = positions
        for _ in range(channels):  # the next element of each row is added, a row a lane
            counted.cycles += len(_pieces(positions, arch.lanes))
        for _ in ("sums", "quotients"):
            counted.add("input", words)
        counted.add("exponentials", words_of(4 * TABLE, arch))
    else:
        counted.cycles = a_pass + a_pass + positions
        quotients = 2 * positions
        counted.add("input", words)
        pairs = at["EX_INPUT_CHANNELS"] * (outer if command.fields["by_row"] else 1)
        counted.add("parameters", words_of(PARAMETERS * pairs, arch))
    events["words: divisions bound by the dividers"] += _divisions(quotients, arch) > counted.cycles
    counted.cycles = max(counted.cycles, _divisions(quotients, arch))
    if _tables(command):
        counted.add("tables", words_of(TABLE * _tables(command), arch))
    counted.add("results", written)
    return counted
