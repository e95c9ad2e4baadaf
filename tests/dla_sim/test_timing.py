"""Timing: defaults of docs/machine.md, derived values, limits."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from pydantic import ValidationError

from dla_sim.timing import MemoryTiming, Timing

MACHINE = Path(__file__).parents[2] / "docs" / "machine.md"


def test_defaults_are_those_of_the_machine_description() -> None:
    text = MACHINE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+|none) \|", text, re.MULTILINE)
    assert {name: None if value == "none" else int(value) for name, value in rows} == dict(Timing())


def test_derived_values() -> None:
    assert (Timing().main.burst_beats, Timing().main.burst_gap) == (8, 7)
    assert Timing(bus_bytes=16, dram_latency=0).main.burst_beats == 4
    assert Timing(dram_latency=0).main.burst_gap == 1
    assert Timing(outstanding_bursts=1).main.burst_gap == 108


def test_a_flash_is_a_second_memory() -> None:
    assert Timing().flash is None
    assert Timing().constants == Timing().main == MemoryTiming(8, 64, 100, 16)
    slow = Timing(flash_bytes=1)
    assert slow.constants == slow.flash == MemoryTiming(1, 128, 64, 2)
    # so that whole bursts, of 128 beats, are bound by these
    assert slow.flash.burst_gap == (64 + 128) // 2
    assert slow.flash.sustained_bytes == 1


def test_a_machine_without_a_flash_is_written_as_ever() -> None:
    """And what was chosen of one that is not there is kept."""
    assert [name for name in Timing().model_dump() if "flash" in name] == []
    for timing in (
        Timing(),
        Timing(flash_latency=9),
        Timing(flash_bytes=2),
        Timing(flash_bytes=4, flash_latency=9),
    ):
        assert Timing.model_validate(timing.model_dump()) == timing
    assert Timing(flash_latency=9).model_dump().keys() - Timing().model_dump().keys() == {
        "flash_latency"
    }
    assert len(Timing(flash_bytes=2).model_dump()) == len(Timing.model_fields) - 7  # no rates, rows


@pytest.mark.parametrize(
    ("given", "stored", "exact"),
    [
        ("0.44", 0.44, Fraction(11, 25)),
        (0.44, 0.44, Fraction(11, 25)),
        ("11/25", 0.44, Fraction(11, 25)),
        ("1/3", "1/3", Fraction(1, 3)),
        ("6/2", 3, Fraction(3)),
        (2.0, 2, Fraction(2)),
        (1e-3, 0.001, Fraction(1, 1000)),
        ("3.999999999", 3.999999999, Fraction(3999999999, 10**9)),
        (8, 8, None),
        (None, None, None),
    ],
)
def test_a_rate_is_exact(given: object, stored: object, exact: Fraction | None) -> None:
    timing = Timing.model_validate({"dram_rate": given})
    assert timing.dram_rate == stored
    assert type(timing.dram_rate) is type(stored)
    assert timing.main.rate == exact
    assert Timing.model_validate_json(timing.model_dump_json()) == timing


@pytest.mark.parametrize(
    "given",
    [0, "0", -1, "-0.5", "fast", "1/0", "1e3", "0.0009", 0.1 + 0.2, True, float("nan"),
     float("inf"), "9" * 5000, "1/", ".5", [1]],
)  # fmt: skip
def test_bad_rates(given: object) -> None:
    with pytest.raises(ValidationError, match="write a decimal or a fraction of bytes per cycle"):
        Timing.model_validate({"dram_rate": given})


def test_a_memory_is_no_faster_than_its_bus() -> None:
    message = "dram_rate 8.5 must be at most bus_bytes 8; leave dram_rate out for a memory that"
    with pytest.raises(ValidationError, match=message):
        Timing.model_validate({"dram_rate": 8.5})
    with pytest.raises(ValidationError, match="flash_rate 2 must be at most flash_bytes 1"):
        Timing.model_validate({"flash_bytes": 1, "flash_rate": 2})
    assert Timing.model_validate({"flash_rate": 2}).flash is None  # not used


def test_a_slow_memory_by_hand() -> None:
    """64 bytes take 64 / 0.44 = 145.45 cycles, so 146; the gap of 2 bursts is (100 + 146) / 2."""
    slow = Timing(dram_rate=0.44).main
    assert (slow.burst_beats, slow.burst_cycles, slow.burst_gap) == (8, 146, 16)
    assert Timing(dram_rate=0.44, outstanding_bursts=2).main.burst_gap == 123
    assert slow.sustained_bytes == 64 / 146
    assert slow.least_slots(1000) == -(-1000 * 25 // 11)
    assert Timing(dram_rate=0.44).lower_bound(0, 64, 1000, (0, 0)) == 2273
    assert Timing(dram_rate=0.44, flash_bytes=1).lower_bound(0, 64, 0, (11, 7)) == 25 + 7


def test_bounds_by_hand() -> None:
    """1000 bytes of tensors, 999 of constants, 640 multiply-accumulates on 64 elements."""
    apart = 1000, 999
    assert Timing().lower_bound(640, 64, 2048, apart) == 2048 // 8
    assert Timing().least_cycles(10, 1, apart) == -(-1999 // 8)  # 32 bursts of 7 slots take less
    assert Timing().least_cycles(250, 1, apart) == 250 + 16
    slow = Timing(flash_bytes=2, flash_latency=300)
    assert slow.lower_bound(640, 64, 2048, apart) == 125 + 500
    # 8 bursts of the flash, max(64 beats, ceil((300 + 64) / 2) = 182) slots each
    assert slow.least_cycles(10, 1, apart) == 125 + 8 * 182


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bus_bytes", 12, "bus_bytes is 12; it must be a power of two"),
        ("burst_bytes", 48, "burst_bytes is 48; it must be a power of two"),
        ("burst_bytes", 4, "burst_bytes 4 must be at least bus_bytes 8"),
        ("flash_bytes", 3, "flash_bytes is 3; it must be a power of two"),
        ("flash_bytes", 16, "flash_bytes 16 must be at most bus_bytes 8"),
        (
            "fetch_bytes",
            12,
            "fetch_bytes is 12; it must be a multiple of the 8 bytes of a command word",
        ),
        ("queue_depth", 0, "greater than or equal to 1"),
        ("sync_cycles", 0, "greater than or equal to 1"),
        ("dram_latency", -1, "greater than or equal to 0"),
        ("no_such_key", 1, "Extra inputs are not permitted"),
    ],
)
def test_limits(key: str, value: int, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Timing.model_validate({key: value})


def test_bursts_of_a_flash_have_a_beat() -> None:
    with pytest.raises(ValidationError, match="flash_burst_bytes 4 must be at least flash_bytes 8"):
        Timing(flash_bytes=8, flash_burst_bytes=4)
    with pytest.raises(ValidationError, match="flash_burst_bytes is 48; it must be a power of two"):
        Timing(flash_bytes=8, flash_burst_bytes=48)
    assert Timing(flash_burst_bytes=48).flash is None  # not used


@pytest.mark.parametrize("name", Timing.model_fields)
def test_frozen(name: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Timing(), name, 16)
