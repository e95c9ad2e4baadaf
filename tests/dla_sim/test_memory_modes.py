"""Memory modes: their settings, above presets and below settings, and the error for others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import compute_times
from dla_sim.presets import (
    MEMORY_MODES,
    apply_memory_mode,
    load_hardware,
    load_preset,
    preset_names,
    preset_toml,
)
from dla_sim.timing import MemoryTiming, Timing
from isa.errors import InputError
from tests.dla_sim.comparison import differences, expectation
from tests.dla_sim.compiled import compiled_program
from tests.dla_sim.tick import run_ticks

MACHINE = Path(__file__).parents[2] / "docs" / "machine.md"
NAMES = tuple(mode.name for mode in MEMORY_MODES)


def test_the_memories_of_each_mode() -> None:
    dram, flash, sram = (load_hardware(memory_mode=name) for name in NAMES)
    assert (dram.timing, dram.main_memory) == (Timing(), "DRAM")
    assert (sram.timing, sram.main_memory) == (Timing(dram_latency=32), "SRAM")
    assert (flash.timing.main, flash.main_memory) == (sram.timing.main, "SRAM")
    assert flash.timing.constants == MemoryTiming(
        width=1, burst_bytes=128, latency=64, outstanding=2
    )
    # programs are the same
    assert {one.arch for one in (dram, flash, sram)} == {load_preset().arch}
    for machine in (flash, sram):  # and no memory is narrower than it says
        assert machine.timing.constants.sustained_bytes == machine.timing.constants.width
        assert machine.timing.main.sustained_bytes == machine.timing.main.width


@pytest.mark.parametrize(
    "preset", [name for name in preset_names() if load_preset(name).timing.flash is None]
)
@pytest.mark.parametrize("name", NAMES)
def test_every_mode_fits_every_preset_and_is_replaced_by_the_next(preset: str, name: str) -> None:
    machine = load_preset(preset)
    chosen = apply_memory_mode(machine, name)
    assert chosen.memory_mode == name
    assert apply_memory_mode(apply_memory_mode(machine, "flash"), name) == chosen
    assert apply_memory_mode(machine, None) is machine


def test_a_slow_dram_does_not_stay_in_an_sram(tmp_path: Path) -> None:
    path = tmp_path / "slow.toml"
    slow = "dram_rate = 0.44\ndram_row_bytes = 2048\ndram_refresh_interval = 3904\nflash_rate = 0.2"
    path.write_text(f"[timing]\n{slow}\n", "utf-8")
    dram, flash, sram = (load_hardware(str(path), memory_mode=name) for name in NAMES)
    assert (str(dram.timing.main_rate), dram.timing.has_rows_or_refresh) == ("11/25", True)
    for machine, name in ((flash, "flash"), (sram, "sram")):
        assert machine.timing.main == load_hardware(memory_mode=name).timing.main
        assert not machine.timing.has_rows_or_refresh
    assert flash.timing.constants == load_hardware(memory_mode="flash").timing.constants


def test_settings_are_on_top_whatever_the_order() -> None:
    machine = load_hardware(None, ["flash_latency=200", "dram_latency=10"], memory_mode="flash")
    assert (
        machine.timing.flash_latency,
        machine.timing.dram_latency,
        machine.timing.flash_bytes,
    ) == (200, 10, 1)
    assert load_hardware(None, ["flash_bytes=0"], memory_mode="flash").timing.flash is None


def test_a_preset_file_names_a_mode_below_its_own_timing(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text('memory_mode = "flash"\n[timing]\nbus_bytes = 4\nflash_latency = 20\n', "utf-8")
    machine = load_preset(str(path))
    assert (machine.memory_mode, machine.main_memory, machine.timing.bus_bytes) == (
        "flash",
        "SRAM",
        4,
    )
    assert machine.timing.constants == MemoryTiming(
        width=1, burst_bytes=128, latency=20, outstanding=2
    )
    again = tmp_path / "again" / "small.toml"
    again.parent.mkdir()
    again.write_text(preset_toml(machine), "utf-8")
    assert load_preset(str(again)) == machine


def test_a_mode_that_there_is_not(tmp_path: Path) -> None:
    known = "unknown memory mode 'flsh'; did you mean flash? choose one of dram, flash, sram"
    with pytest.raises(InputError, match=f"^{re.escape(known)}$"):
        load_hardware(memory_mode="flsh")
    path = tmp_path / "small.toml"
    path.write_text('memory_mode = "flsh"\n', "utf-8")
    with pytest.raises(InputError, match=re.escape(f"preset {path}: {known}")):
        load_preset(str(path))


def test_the_document_has_the_modes() -> None:
    text = MACHINE.read_text(encoding="utf-8").partition("## 10. Memory modes")[2]
    rows = re.findall(r"^\| `(\w+)` \(`\w+`\) \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    found = {
        name: {
            key: None if value == "none" else int(value)
            for key, value in re.findall(r"`(\w+)` = (\d+|none)", said)
        }
        for name, said in rows
    }
    assert found == {mode.name: dict(mode.timing) for mode in MEMORY_MODES}


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_network_in_every_mode(name: str) -> None:
    """Both engines and the tick model.

    Command words and weights are the flash's, nothing else is.
    """
    program = compiled_program("digits-cnn", "default")
    timing = load_hardware(memory_mode=name).timing
    result = run_ticks(program, timing)
    for engine in (simulate, compute_times):
        assert differences(engine, program, timing, expectation(result)) == []
    assert ("flash" in result.causes["LD"]) == (name == "flash")
    assert "flash" not in result.causes["ST"]
