"""Commands on a scratchpad of words, step by step: docs/machine.md, section 12.

Windows, passes and copies are counted as the machine processes them, where the formulas of ``isa``
multiply. Nothing of ``isa.ops`` is used, only registers, fields, and the machine's keys.
``tick.product_words`` counts products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from isa.arch import Arch
from isa.instruction import Command
from tests.dla_sim.tick.product_words import count_product
from tests.dla_sim.tick.word_counts import (
    TABLE,
    Counted,
    add_lanes_and_tables,
    count_tables,
    lane_cycles,
    split_range,
    words_of,
)

GLOBAL = 2
AVERAGE = 1
ALONG_LENGTH = 1
ALONG_CHANNELS = 2
PAIRS = ("OP_E_MUL", "OP_E_SUB", "OP_B_ADD", "OP_B_MIN", "OP_E_DIV")
DENSE = ("OP_E_ADD", "OP_C_MIN", "OP_C_MAX")
BY_A_SCALE = ("OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS")
ROWS = ("OP_REDUCE", "OP_SOFTMAX", "OP_NORM")
PARAMETERS = 8
COORDINATE = 4
NEIGHBOURS = ("upper left", "upper right", "lower left", "lower right")
WINDOWS = ("OP_DEPTH_CONV", "OP_POOL")
SHARING = ("records", "sums", "tables", "rows")
"""Operands that come by one port, one word a cycle of all of them."""


def count(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    """The cycles and words of an instruction of EX; what it exercises is counted in ``events``."""
    mnemonic = command.instruction.mnemonic
    if mnemonic in WINDOWS:
        return _windows(command, arch, events)
    if mnemonic == "OP_RESIZE":
        return _resized(command, arch)
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
    return count_product(command, arch, events)


# Windows.


@dataclass(frozen=True)
class WindowPlan:
    """Windows that the array computes at once.

    There are ``across`` windows in a row and ``down`` rows of them. The columns are computed in
    ``pieces``, each of which reads ``input_rows`` rows of ``input_columns`` columns. A tap takes
    ``cycles``.
    """

    across: int
    down: int
    pieces: int
    input_rows: int
    input_columns: int
    cycles: int


def _plan_windows(command: Command, arch: Arch) -> WindowPlan:
    assert arch.words is not None
    at = command.registers
    rows = at["EX_OUTPUT_HEIGHT"]
    columns = at["EX_OUTPUT_WIDTH"]
    at_once = arch.pe.count // arch.words.atom
    across = min(max(at_once, 1), columns)
    down = 1
    while down < rows and across * (down + 1) <= at_once:
        down += 1
    last_row = (rows - 1) * at["EX_STRIDE_HEIGHT"] + (at["EX_KERNEL_HEIGHT"] - 1) * at[
        "EX_DILATION_HEIGHT"
    ]
    last_column = (across - 1) * at["EX_STRIDE_WIDTH"] + (at["EX_KERNEL_WIDTH"] - 1) * at[
        "EX_DILATION_WIDTH"
    ]
    return WindowPlan(
        across=across,
        down=down,
        pieces=len(split_range(columns, across)),
        input_rows=len([row for row in range(last_row + 1) if row < at["EX_INPUT_HEIGHT"]]),
        input_columns=len(
            [column for column in range(last_column + 1) if column < at["EX_INPUT_WIDTH"]]
        ),
        cycles=1 if at_once else len(split_range(arch.words.atom, arch.pe.count)),
    )


def _window_steps(counted: Counted, command: Command, plan: WindowPlan, arch: Arch) -> int:
    """Return the cycles of an atom's windows and add the words of its activations."""
    assert arch.words is not None
    at = command.registers
    if command.fields.get("mode") == GLOBAL:
        plane = words_of(at["EX_INPUT_HEIGHT"] * at["EX_INPUT_WIDTH"] * arch.words.atom, arch)
        counted.add("activations", plane)
        return plane
    steps = 0
    for _ in range(plan.pieces):
        for _ in range(plan.input_rows):
            row = words_of(plan.input_columns * arch.words.atom, arch)
            counted.add("activations", row + (plan.pieces > 1))
        for _ in split_range(at["EX_OUTPUT_HEIGHT"], plan.down):
            for _ in range(at["EX_KERNEL_HEIGHT"] * at["EX_KERNEL_WIDTH"]):
                steps += plan.cycles
    return steps


def _windows(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    """Count windows: atom by atom, piece of columns by piece, some rows at once, tap by tap."""
    assert arch.words is not None
    at = command.registers
    depthwise = command.instruction.mnemonic == "OP_DEPTH_CONV"
    channels = at["EX_OUTPUT_CHANNELS"]
    windows = at["EX_OUTPUT_HEIGHT"] * at["EX_OUTPUT_WIDTH"]
    taps = at["EX_KERNEL_HEIGHT"] * at["EX_KERNEL_WIDTH"]
    plan = _plan_windows(command, arch)
    counted = Counted(
        words={"activations": 0} | ({"weights": 0, "records": 0} if depthwise else {})
    )
    first = 0
    results = 0
    lead = 0
    written = 0
    for atom in split_range(channels, arch.words.atom):
        steps = _window_steps(counted, command, plan, arch)
        if depthwise:
            load = words_of(len(atom) * taps, arch)
            assert load <= steps  # so that the next atom's weights are always there
            first = first or load
        counted.cycles += steps
        results += len(atom) * windows
        element = 1 if command.fields.get("requantise", 1) else 4
        written += words_of(windows * arch.words.atom * element, arch)
    if depthwise:
        counted.add("weights", words_of(channels * taps, arch))
        counted.add("records", words_of(channels * arch.channel_record_bytes, arch))
    elif command.fields["mode"] == AVERAGE:
        lead = _divisions(taps + 1, arch)
    counted.add("results", written)
    events["words: several windows in a row"] += plan.across > 1
    events["words: several rows of windows"] += plan.down > 1
    events["words: several pieces of columns"] += plan.pieces > 1
    events["words: an array of less than an atom"] += plan.cycles > 1
    return add_lanes_and_tables(
        counted, first + lead, lane_cycles(command, results, arch), command, arch, events
    )


def _resized(command: Command, arch: Arch) -> Counted:
    """Count a resize surface by surface, row by row and atom by atom.

    Each atom reads a word of each of four neighbours, and takes as many turns of the lanes as it
    needs.
    """
    assert arch.words is not None
    at = command.registers
    columns = range(at["EX_OUTPUT_WIDTH"])
    counted = Counted(_divisions(1, arch), {"activations": 0, "columns": 0, "rows": 0})
    written = 0
    for _ in split_range(at["EX_OUTPUT_CHANNELS"], arch.words.atom):
        for _ in range(at["EX_OUTPUT_HEIGHT"]):
            counted.add("columns", words_of(COORDINATE * len(columns), arch))
            for _ in columns:
                for _ in NEIGHBOURS:
                    counted.add("activations", 1)
                    counted.cycles += len(split_range(arch.words.atom, arch.lanes))
        counted.add("rows", words_of(COORDINATE * at["EX_OUTPUT_HEIGHT"], arch) + 1)
        written += words_of(at["EX_OUTPUT_HEIGHT"] * len(columns) * arch.words.atom, arch)
    counted.add("results", written)
    return counted


# Element by element.


def _divisions(divisors: int, arch: Arch) -> int:
    """Each divider makes one reciprocal after the other."""
    assert arch.words is not None
    return sum(arch.words.divide_cycles for _ in split_range(divisors, arch.words.dividers))


def _alike(command: Command, arch: Arch) -> Counted:
    length = command["EX_LENGTH"]
    scaled = command.instruction.mnemonic in BY_A_SCALE
    words = {name: words_of(length, arch) for name in ("a" if scaled else "ab")}
    if count_tables(command):
        words["tables"] = words_of(TABLE * count_tables(command), arch)
    first = _divisions(1, arch) if scaled else 0
    return Counted(
        first + len(split_range(length, arch.lanes)), {**words, "results": words_of(length, arch)}
    )


def _tensor(channels: int, length: int, arch: Arch) -> tuple[int, int]:
    """(elements, words) of a tensor in atoms: surface after surface."""
    assert arch.words is not None
    elements = words = 0
    if length:
        for _ in split_range(channels, arch.words.atom):
            elements += arch.words.atom * length
            words += words_of(arch.words.atom * length, arch)
    return elements, words


def _pair(command: Command, arch: Arch, events: Counter[str]) -> Counted:
    assert arch.words is not None
    channels = command["EX_OUTPUT_CHANNELS"]
    length = command["EX_LENGTH"]
    elements, written = _tensor(channels, length, arch)
    counted = Counted(len(split_range(elements, arch.lanes)))
    divisors = 0
    for name in "ab":
        repeat = command.fields[f"repeat_{name}"]
        along = 1 if repeat & ALONG_LENGTH else length
        counted.add(name, 0)
        if length:
            # a row for all channels is read again for each surface
            for _ in split_range(channels, arch.words.atom):
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
    if count_tables(command):
        counted.add("tables", words_of(TABLE * count_tables(command), arch))
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
        tables + len(split_range(elements, arch.lanes)),
        {"input": words, "tables": tables, "results": words},
    )


# Copies of bytes.


def _most_words(span: int, address: int, others: Sequence[tuple[int, int]], word: int) -> int:
    """Return the largest number of words that ``span`` bytes can touch.

    The steps (count, stride) of the other dimensions move the bytes within a word.
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
    a_pass = len(split_range(elements, arch.lanes))
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
            counted.cycles += len(split_range(positions, arch.lanes))
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
    if count_tables(command):
        counted.add("tables", words_of(TABLE * count_tables(command), arch))
    counted.add("results", written)
    return counted
