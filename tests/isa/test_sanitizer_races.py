"""Races between units: all three kinds, exact ranges, and how two commands are ordered."""

from __future__ import annotations

from isa.sanitizer import sanitize
from tests.isa.sanitizer_programs import CHAIN, findings, program

NO_TOKENS = ((" push.EX", ""), (" pop.LD", ""), (" push.ST", ""), (" pop.EX", ""))


def test_a_program_whose_tokens_order_everything_has_no_findings() -> None:
    assert findings() == []


def test_a_read_without_a_token_races_with_the_write() -> None:
    assert findings(CHAIN, (" push.EX", ""), (" pop.LD", "")) == [
        "error: read-after-write race: OP_ACT_RELU at word 5 on EX (layer 'relu', tile 1) reads "
        "scratchpad bytes 0x0 "
        "to 0x40 that OP_DMA_READ at word 2 on LD (layer 'in', tile 0) writes; neither waits for "
        "the other"
    ]


def test_a_finding_holds_its_commands_and_bytes_as_data() -> None:
    (finding,) = sanitize(program(CHAIN, (" push.ST", ""), (" pop.EX", "")))
    assert finding.kind == "read-after-write race"
    assert [
        (site.word, site.mnemonic, site.unit, site.layer, site.tile) for site in finding.sites
    ] == [
        (5, "OP_ACT_RELU", "EX", "relu", 1),
        (9, "OP_DMA_WRITE", "ST", "out", 2),
    ]
    assert (finding.space, finding.ranges, finding.level) == ("sram", ((64, 128),), "error")


def test_a_write_over_what_another_unit_still_reads() -> None:
    """The second load comes after the ReLU in the stream only: nothing makes it wait."""
    again = (
        CHAIN
        + "SET LD_SRAM_ADDRESS, 32\nOP_DMA_READ push.EX\nSET EX_INPUT_ADDRESS, 32\nOP_ACT_RELU "
        "pop.LD\n"
    )
    found = findings(again)
    assert (
        "error: write-after-read race: OP_DMA_READ at word 11 on LD writes scratchpad bytes 0x20 "
        "to 0x40 that "
        "OP_ACT_RELU at word 5 on EX (layer 'relu', tile 1) reads; neither waits for the other"
    ) in found
    ordered = [
        ("OP_ACT_RELU pop.LD push.ST", "OP_ACT_RELU pop.LD push.ST push.LD"),
        ("OP_DMA_READ push.EX\nSET EX_IN", "OP_DMA_READ pop.EX push.EX\nSET EX_IN"),
    ]
    assert not [
        line for line in findings(again, *ordered) if "reads; neither" in line and "5 on EX" in line
    ]


def test_two_writes_of_one_byte() -> None:
    """The load ends in the byte at which the result begins."""
    changes = ("SET LD_BYTES, 64", "SET LD_BYTES, 65"), (" pop.LD", ""), (" push.EX", "")
    races = [finding for finding in sanitize(program(CHAIN, *changes)) if "race" in finding.kind]
    assert [(race.kind, [site.word for site in race.sites], race.ranges) for race in races] == [
        ("read-after-write race", [2, 5], ((0, 64),)),
        ("write-after-write race", [2, 5], ((64, 65),)),
        ("read-after-write race", [2, 9], ((64, 65),)),
    ]


def test_races_in_system_memory() -> None:
    """The store writes what a load reads back at once."""
    back = (
        "SET LD_DRAM_ADDRESS, 512\nSET LD_SRAM_ADDRESS, 256\nOP_DMA_READ push.EX\nSET "
        "EX_INPUT_ADDRESS, 256\n"
    )
    back += "SET EX_OUTPUT_ADDRESS, 384\nOP_ACT_RELU pop.LD push.ST\n"
    back += "SET ST_SRAM_ADDRESS, 384\nSET ST_DRAM_ADDRESS, 640\nOP_DMA_WRITE pop.EX\n"
    found = findings(CHAIN + back)
    assert found[0] == (
        "error: read-after-write race: OP_DMA_READ at word 12 on LD reads system memory bytes "
        "0x200 to 0x240 that "
        "OP_DMA_WRITE at word 9 on ST (layer 'out', tile 2) writes; neither waits for the other"
    )


def test_interleaved_rows_do_not_race() -> None:
    """Interleaved rows do not race although their address ranges overlap.

    The load fills the even rows of 8 bytes and the computation reads odd ones.
    """
    rows = """
    SET LD_BYTES, 8
    SET LD_COUNT_1, 4
    SET LD_DRAM_STRIDE_1, 8
    SET LD_SRAM_STRIDE_1, 16
    OP_DMA_READ push.EX
    SET LD_SRAM_ADDRESS, {}
    OP_DMA_READ push.EX
    SET EX_INPUT_CHANNELS, 4
    SET EX_INPUT_HEIGHT, 8
    SET EX_INPUT_PLANE, 16
    SET EX_OUTPUT_CHANNELS, 4
    SET EX_OUTPUT_HEIGHT, 8
    SET EX_OUTPUT_ADDRESS, 512
    OP_POOL pop.LD
    OP_SYNC unit=EX pop.LD
    """
    assert not [line for line in findings(rows.format(8)) if "race" in line]
    (race,) = [line for line in findings(rows.format(7)) if "race" in line]
    assert (
        "OP_POOL at word 13 on EX reads scratchpad bytes 0x7 to 0x8 that OP_DMA_READ at word 6"
        in race
    )


def test_the_order_of_the_stream_orders_nothing_but_one_unit() -> None:
    found = findings(CHAIN, *NO_TOKENS)
    assert [line.partition(": ")[2].partition(":")[0] for line in found] == [
        "read-after-write race"
    ] * 2


def test_an_order_through_a_third_unit_counts() -> None:
    """ST waits for EX, which waited for LD: ST and LD are ordered without a token between them."""
    through = "OP_DMA_READ push.EX\nOP_SYNC unit=EX pop.LD push.ST\n"
    body = (
        "SET LD_BYTES, 64\n"
        + through
        + "SET ST_BYTES, 64\nSET ST_DRAM_ADDRESS, 512\nOP_DMA_WRITE pop.EX\n"
    )
    assert findings(body) == []
    assert "race: OP_DMA_WRITE" in findings(body, (" push.ST", ""), (" pop.EX", ""))[0]


def test_races_that_end_with_another_are_left_out() -> None:
    """Two loads into the input of one computation: waiting for the second waits for both."""
    body = CHAIN.replace("OP_DMA_READ push.EX", "OP_DMA_READ\nOP_DMA_READ").replace(" pop.LD", "")
    body = "\n".join(line for line in body.splitlines() if not line.startswith(".source")) + "\n"
    races = [line for line in findings(body) if "race" in line]
    assert len(races) == 1
    assert "that OP_DMA_READ at word 3 on LD writes" in races[0]
