"""The sanitizer on addresses and contents: unwritten bytes, ranges, alignment and registers.

It also finds writes to protected bytes and unused results.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from isa.program import Program
from isa.sanitizer import sanitize
from isa.sanitizer.addresses import word_registers
from tests.isa.sanitizer_programs import CHAIN, HEADER, findings, program


def test_bytes_that_nobody_wrote() -> None:
    found = findings(CHAIN, ("SET LD_BYTES, 64", "SET LD_BYTES, 60"))
    assert found == [
        "error: read of unwritten bytes: OP_ACT_RELU at word 5 on EX (layer 'relu', tile 1) reads "
        "scratchpad bytes "
        "0x3c to 0x40 that nothing has written"
    ]


def test_every_unwritten_range_is_named_once() -> None:
    rows = (
        "SET LD_BYTES, 4\nSET LD_COUNT_1, 8\nSET LD_DRAM_STRIDE_1, 4\nSET LD_SRAM_STRIDE_1, "
        "8\nOP_DMA_READ push.EX\n"
    )
    reads = "SET EX_LENGTH, 64\nSET EX_OUTPUT_ADDRESS, 64\nOP_ACT_RELU pop.LD\nOP_ACT_RELU\n"
    found = [line for line in findings(rows + reads) if "unwritten" in line]
    assert found == [
        "error: read of unwritten bytes: OP_ACT_RELU at word 7 on EX reads scratchpad bytes 0x4 to "
        "0x8, 0xc to 0x10, "
        "0x14 to 0x18 and 5 more ranges, 32 bytes in all that nothing has written"
    ]


def test_system_memory_holds_inputs_constants_and_commands_only() -> None:
    assert (
        "reads system memory bytes 0x40 to 0x80 that nothing"
        in findings(CHAIN, ("LD_DRAM_ADDRESS, 0", "LD_DRAM_ADDRESS, 64"))[0]
    )
    assert findings(CHAIN, ("LD_DRAM_ADDRESS, 0", "LD_DRAM_ADDRESS, 0x1000")) == []
    image = HEADER + ".image 0x40\n.data " + "AAAA" * 22 + "\n"  # 66 bytes
    assert findings(CHAIN, ("LD_DRAM_ADDRESS, 0", "LD_DRAM_ADDRESS, 64"), header=image) == []


def test_outputs_must_be_written_whole() -> None:
    found = findings(CHAIN, ("SET ST_BYTES, 64", "SET ST_BYTES, 48"))
    assert found == [
        "error: output not written: output 'y': nothing writes system memory bytes 0x230 to 0x240"
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            ("EX_OUTPUT_ADDRESS, 64", "EX_OUTPUT_ADDRESS, 4033"),
            "writes 64 bytes of scratchpad from 0xfc1 to 0x1001; it has 0x1000 bytes",
        ),
        (
            ("LD_DRAM_ADDRESS, 0", "LD_DRAM_ADDRESS, 0x1fc1"),
            "reads 64 bytes of system memory from 0x1fc1 to 0x2001; it has 0x2000",
        ),
    ],
)
def test_addresses_outside_the_memories(change: tuple[str, str], text: str) -> None:
    assert text in findings(CHAIN, change)[0]
    assert "out of range" in findings(CHAIN, change)[0]


def texts(changed: Program) -> list[str]:
    return [finding.text for finding in sanitize(changed)]


def test_the_image_lies_in_the_memory_and_clear_of_the_commands() -> None:
    given, result = program().tensors
    assert texts(replace(program(), tensors=(given, replace(result, address=8160))))[0] == (
        "error: out of range: output 'y': bytes 0x1fe0 to 0x2020 leave the system memory of 0x2000 "
        "bytes"
    )
    assert (
        "error: protected write: input 'x' and the command words share system memory bytes 0x1004 "
        "to 0x1044"
    ) in texts(replace(program(), tensors=(replace(given, address=4100), result)))


@pytest.mark.parametrize(
    ("address", "what"), [(0x1000, "the command words"), (0, "input 'x'"), (0x800, "constants")]
)
def test_stores_over_what_must_stay(address: int, what: str) -> None:
    image = HEADER + ".image 0x800\n.data AAAAAAAAAAAA\n"
    found = findings(CHAIN, ("ST_DRAM_ADDRESS, 512", f"ST_DRAM_ADDRESS, {address}"), header=image)
    assert any(
        "protected write: OP_DMA_WRITE at word 9" in line and line.endswith(f"over {what}")
        for line in found
    )


def test_an_output_may_lie_over_the_input() -> None:
    changes = ("ST_DRAM_ADDRESS, 512", "ST_DRAM_ADDRESS, 0"), ("[64],512", "[64],0")
    assert not [line for line in findings(CHAIN, *changes) if "protected" in line]


WORDS = """
SET EX_OUTPUT_CHANNELS, 2
SET EX_CHANNEL_ADDRESS, {channel}
SET EX_OUTPUT_ADDRESS, {output}
SET EX_OUTPUT_PLANE, {plane}
OP_CONV requantise={requantise}
"""


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, []),
        ({"channel": 66}, ["EX_CHANNEL_ADDRESS = 0x42"]),
        ({"output": 258}, ["EX_OUTPUT_ADDRESS = 0x102"]),
        ({"plane": 6}, ["EX_OUTPUT_PLANE = 0x6"]),
        ({"output": 258, "plane": 6, "requantise": 1}, []),
        ({"channel": 65, "requantise": 1}, ["EX_CHANNEL_ADDRESS = 0x41"]),
    ],
)
def test_words_are_aligned_and_bytes_are_free(values: dict[str, int], named: list[str]) -> None:
    body = WORDS.format(**{"channel": 64, "output": 256, "plane": 0, "requantise": 0, **values})
    found = [line for line in findings(body) if "misaligned" in line]
    assert len(found) == len(named)
    for line, register in zip(found, named, strict=True):
        assert f"has {register}, no multiple of 4 bytes; words lie there" in line


def test_a_machine_of_finer_alignment_asks_for_less() -> None:
    body = WORDS.format(channel=66, output=258, plane=6, requantise=0)
    assert not [
        line for line in findings(body, ('"alignment":8', '"alignment":2')) if "misaligned" in line
    ]
    assert [
        line for line in findings(body, ('"alignment":8', '"alignment":4')) if "misaligned" in line
    ]


@pytest.mark.parametrize(
    ("line", "registers"),
    [
        ("OP_REQUANT", {"EX_CHANNEL_ADDRESS", "EX_INPUT_ADDRESS"}),
        ("OP_E32_ADD", {"EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS"}),
        ("OP_E32_SHIFT", {"EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS"}),
        ("OP_MAT_MUL", {"EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS"}),
        ("OP_MAT_MUL requantise=1", {"EX_CHANNEL_ADDRESS"}),
        ("OP_E_ADD", set()),
        ("OP_POOL", set()),
        ("OP_DMA_READ", set()),
    ],
)
def test_which_registers_place_words(line: str, registers: set[str]) -> None:
    assert set(word_registers(program(line + "\n").commands[0])) == registers


def test_command_words_are_aligned() -> None:
    assert texts(replace(program(), command_address=4100)) == [
        "error: misaligned: the command words lie at 0x1004, which is no multiple of 8 bytes"
    ]


def test_a_size_that_was_never_set() -> None:
    found = findings(CHAIN, ("SET EX_LENGTH, 64\n", ""), ("[6,", "[5,"), ("[10,", "[9,"))
    assert (
        "warning: unset register: OP_ACT_RELU at word 4 on EX (layer 'relu', tile 1) reads "
        "EX_LENGTH, which no SET has "
        "written; its reset value 0 makes it do nothing"
    ) in found
    assert not [
        line
        for line in findings(CHAIN, ("SET EX_LENGTH, 64", "SET EX_LENGTH, 0"))
        if "unset" in line
    ]


def test_results_that_nobody_reads() -> None:
    """The first ReLU's result is overwritten by the second's.

    The last load's is never looked at.
    """
    twice = CHAIN.replace("OP_ACT_RELU pop.LD", "OP_ACT_RELU pop.LD\nOP_ACT_RELU").replace(
        "[10,", "[11,"
    )
    assert findings(twice.replace("[6,", "[7,")) == [
        "warning: unused result: nothing reads what OP_ACT_RELU at word 5 on EX (layer 'relu', "
        "tile 1) writes to "
        "scratchpad bytes 0x40 to 0x80"
    ]
    assert findings(CHAIN + "SET LD_SRAM_ADDRESS, 512\nOP_DMA_READ\n") == [
        "warning: unused result: nothing reads what OP_DMA_READ at word 11 on LD writes to "
        "scratchpad bytes 0x200 to "
        "0x240"
    ]
