"""Timing: defaults of docs/machine.md, derived values, limits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from dla_sim.timing import Timing

MACHINE = Path(__file__).parents[2] / "docs" / "machine.md"


def test_defaults_are_those_of_the_machine_description() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", MACHINE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: int(value) for name, value in rows} == Timing().model_dump()


def test_derived_values() -> None:
    assert (Timing().burst_beats, Timing().burst_gap) == (8, 7)
    assert Timing(bus_bytes=16, dram_latency=0).burst_beats == 4
    assert Timing(dram_latency=0).burst_gap == 1
    assert Timing(outstanding_bursts=1).burst_gap == 108


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bus_bytes", 12, "bus_bytes is 12; it must be a power of two"),
        ("burst_bytes", 48, "burst_bytes is 48; it must be a power of two"),
        ("burst_bytes", 4, "burst_bytes 4 must be at least bus_bytes 8"),
        ("fetch_bytes", 12, "fetch_bytes is 12; it must be a multiple of the 8 bytes of a command word"),
        ("queue_depth", 0, "greater than or equal to 1"),
        ("sync_cycles", 0, "greater than or equal to 1"),
        ("dram_latency", -1, "greater than or equal to 0"),
        ("no_such_key", 1, "Extra inputs are not permitted"),
    ],
)
def test_limits(key: str, value: int, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        Timing.model_validate({key: value})


@pytest.mark.parametrize("name", Timing.model_fields)
def test_frozen(name: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Timing(), name, 16)
