"""Layouts in small programs of v5: a consumer that reads what a producer wrote in another layout is a finding."""

from __future__ import annotations

import pytest

from isa.assembler import assemble
from isa.sanitizer import sanitize

KIND = "layout mismatch"
PROGRAM = """
.arch {{"isa": "v5", "atom": 8}}
.memory 0x4000 commands 0x0
SET EX_INPUT_CHANNELS, 12
SET EX_OUTPUT_CHANNELS, 12
SET EX_OPERAND_ADDRESS, 0x8000
SET EX_OUTPUT_ADDRESS, 0x800
SET EX_ROWS, 40
SET EX_LENGTH, 1
{producer}
SET EX_INPUT_ADDRESS, 0x800
SET EX_OUTPUT_ADDRESS, 0x1000
{change}
{consumer}
OP_END
"""
"""40 positions of 12 channels: two atoms of 8, with four bytes of padding behind the last channel."""


def mismatches(change: str = "", producer: str = "OP_SOFTMAX", consumer: str = "OP_SOFTMAX") -> list[str]:
    """The layout mismatches of the program."""
    program = assemble(PROGRAM.format(producer=producer, change=change, consumer=consumer))
    return [finding.text for finding in sanitize(program) if finding.kind == KIND]


def test_a_consumer_in_the_layout_of_its_producer_has_no_finding() -> None:
    assert mismatches() == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("SET EX_INPUT_CHANNELS, 13", "bytes 0x940 to 0xa80, padding of OP_SOFTMAX at word 6 on EX, as data"),
        ("SET EX_INPUT_CHANNELS, 11", "bytes 0x940 to 0xa80, data of OP_SOFTMAX at word 6 on EX, as padding"),
        ("SET EX_INPUT_CHANNELS, 8", ""),
        ("SET EX_ROWS, 39", "as other surfaces or positions than OP_SOFTMAX at word 6 on EX wrote"),
        ("SET EX_INPUT_ADDRESS, 0x801", "as other channels of an atom than OP_SOFTMAX at word 6 on EX wrote"),
        ("SET EX_INPUT_ADDRESS, 0x808", "as other surfaces or positions than OP_SOFTMAX at word 6 on EX wrote"),
    ],
)  # fmt: skip
def test_a_consumer_in_another_layout_is_found(change: str, text: str) -> None:
    """A consumer of fewer whole atoms is legal: it may be one of several."""
    found = mismatches(change)
    assert (text in found[0]) if text else (found == [])


@pytest.mark.parametrize(("plane", "found"), [(0, False), (320, False), (328, True), (160, True)])
def test_a_wrong_stride_of_surfaces_is_found(plane: int, found: bool) -> None:
    change = f"SET EX_ROWS, 1\nSET EX_LENGTH, 40\nSET EX_INPUT_PLANE, {plane}"
    assert bool(mismatches(change)) == found


def test_atoms_of_int32_are_not_those_of_int8() -> None:
    assert "in other atoms than OP_DYN_MAT_MUL" in mismatches(producer="OP_DYN_MAT_MUL")[0]


COPY = """
SET EX_INPUT_ADDRESS, {source}
SET EX_COUNT_1, 320
SET EX_INPUT_STRIDE_1, 1
SET EX_OUTPUT_STRIDE_1, 1
SET EX_COUNT_2, 2
SET EX_INPUT_STRIDE_2, {step}
SET EX_OUTPUT_STRIDE_2, {target}
OP_PERMUTE
SET EX_INPUT_ADDRESS, 0x1000
SET EX_OUTPUT_ADDRESS, 0x2000
"""
"""Copies surfaces of 320 bytes to 0x1000."""


@pytest.mark.parametrize(
    ("source", "step", "target", "text"),
    [
        (0x800, 320, 320, ""),
        (0x940, 0, 320, "padding of OP_PERMUTE at word 16 on EX, as data"),
        (0x800, 0, 320, "data of OP_PERMUTE at word 16 on EX, as padding"),
        (0x800, 320, 319, "OP_PERMUTE at word 16 on EX writes a byte twice in"),
    ],
)
def test_moved_bytes_remain_data_or_padding(source: int, step: int, target: int, text: str) -> None:
    """The second surface has four bytes of padding a position, the first has none."""
    found = mismatches(COPY.format(source=source, step=step, target=target))
    assert (text in found[0]) if text else (found == [])


def test_dense_results_begin_at_any_byte() -> None:
    """Two tiles of a reduction, 13 results each, are a row of 26 elements."""
    tiles = "SET EX_ROWS, 13\nOP_REDUCE\nSET EX_OUTPUT_ADDRESS, 0x80d\nOP_REDUCE"
    assert mismatches("SET EX_ROWS, 1\nSET EX_INPUT_CHANNELS, 26", tiles) == []
    assert "of OP_REDUCE" in mismatches("SET EX_ROWS, 1\nSET EX_INPUT_CHANNELS, 25", tiles)[0]
