"""Presets and settings: what they hold, and the exact message for everything that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dla_sim.presets import DEFAULT_PRESET, apply_settings, load_preset, preset_names
from dla_sim.timing import Timing
from isa.errors import InputError
from isa.variants import VARIANTS

NAMES = (
    "balanced-256",
    "balanced-64",
    "nvdla-small-like",
    "seed-i128",
    "seed-i64",
    "seed-o128",
    "seed-o64",
)
OF_OTHERS = ("ethos-u55-256", "ethos-u85-256")
"""Presets with the sizes and memories of other machines (docs/validation.md)."""


def test_every_preset_loads() -> None:
    assert preset_names() == tuple(sorted((*NAMES, *OF_OTHERS)))
    for name in NAMES:
        preset = load_preset(name)
        wide = preset.arch.pe.count > 128
        assert (preset.name, preset.arch.sram_bytes) == (name, (1024 if wide else 512) * 1024)
        assert preset.description
        assert wide or preset.timing == Timing()
        assert (
            preset.timing.main.sustained_bytes == preset.timing.bus_bytes
        )  # no preset pays for a width that it cannot use


def test_the_published_machines_are_the_edges_of_the_array() -> None:
    arrays = {name: load_preset(name).arch.pe for name in NAMES}
    assert {
        name: (pe.ic, pe.oc, pe.ow) for name, pe in arrays.items() if name.startswith("seed")
    } == {
        "seed-i64": (64, 1, 1),
        "seed-o64": (1, 64, 1),
        "seed-i128": (128, 1, 1),
        "seed-o128": (1, 128, 1),
    }
    assert load_preset("nvdla-small-like").arch.lanes < 64
    assert load_preset() == load_preset(DEFAULT_PRESET)
    assert load_preset().arch.pe.count == 64


def test_a_file_is_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "wide.toml"
    path.write_text("[arch]\nsram_bytes = '1 MiB'\npe.oc = 32\n[timing]\nbus_bytes = 32\n")
    preset = load_preset(str(path))
    assert (preset.name, preset.arch.pe.oc, preset.arch.sram_bytes, preset.timing.bus_bytes) == (
        "wide", 32, 1 << 20, 32,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[arch", "not a TOML file"),
        (
            "[arch]\nsram = 5\n",
            "unknown key 'arch.sram'; did you mean sram_bytes? choose one of isa, pe, sram_bytes, ",
        ),
        ("[arch.pe]\nx = 5\n", "unknown key 'arch.pe.x'; choose one of ic, oc, ow"),
        (
            "[timings]\n",
            "unknown key 'timings'; did you mean timing? choose one of name, description, "
            "memory_mode, arch, timing",
        ),
        ("[timing]\nbus_bytes = 'x'\n", "bus_bytes is 'x': should be a valid integer"),
        (
            "[timing]\nclock_hz = '1 THz'\n",
            "clock_hz is '1 THz': 'THz' is no unit; choose one of k, M, G, KiB, MiB, GiB",
        ),
        ("[timing]\nbus_bytes = 24\n", "bus_bytes is 24; it must be a power of two"),
        ("[arch.pe]\nic = 0\n", "pe.ic is 0: should be greater than or equal to 1"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(f'preset {path}: {message}')}"):
        load_preset(str(path))


def test_unknown_presets() -> None:
    known = ", ".join(preset_names())
    message = (
        f"unknown preset 'seed-x64'; did you mean seed-o64? choose one of {known}, or a .toml file"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        load_preset("seed-x64")
    with pytest.raises(InputError, match=r"^preset nowhere/x\.toml: no such file$"):
        load_preset("nowhere/x.toml")


def test_settings_change_arch_and_timing() -> None:
    settings = [
        "sram_bytes=1048576",
        "pe.oc=64",
        "pe.ic = 0x2",
        "bus_bytes=128",
        "burst_bytes=256",
        "numerics=fixed",
    ]
    preset = apply_settings(
        load_preset(), [*settings, "isa=v1", "post_lanes=16", "post_lanes=none"]
    )
    assert (preset.arch.sram_bytes, preset.arch.pe.oc, preset.arch.pe.ic) == (1 << 20, 64, 2)
    assert (preset.timing.bus_bytes, preset.timing.burst_bytes) == (128, 256)
    assert (preset.arch.numerics, preset.arch.isa, preset.arch.post_lanes) == ("fixed", "v1", None)
    assert apply_settings(load_preset(), []) == load_preset()


def test_settings_have_units_and_may_be_values_by_key() -> None:
    texts = [
        "sram_bytes=64KiB",
        "bus_bytes=16",
        "clock_hz=800MHz",
        "dram_latency=1k",
        "post_lanes=none",
    ]
    values = {
        "sram_bytes": "64 KiB", "bus_bytes": 16, "clock_hz": "800 MHz", "dram_latency": "1 k",
        "post_lanes": None,
    }  # fmt: skip
    preset = apply_settings(load_preset(), values)
    assert preset == apply_settings(load_preset(), texts)
    assert (preset.arch.sram_bytes, preset.timing.clock_hz, preset.timing.dram_latency) == (
        65536,
        800_000_000,
        1000,
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("bus_bytes", "setting 'bus_bytes' is not of the form key=value"),
        (
            "bus_bytes=wide",
            "setting bus_bytes=wide: 'wide' is not an integer; write one: 8, or 64KiB",
        ),
        (
            "sram_bytes=64Kb",
            "sram_bytes is '64Kb': 'Kb' is no unit; choose one of k, M, G, KiB, MiB, GiB",
        ),
        (
            "sram_bytes=1GHz",
            "sram_bytes is '1GHz': 'GHz' is no unit; choose one of k, M, G, KiB, MiB, GiB",
        ),
        ("bus_bytes=12", "setting bus_bytes=12: bus_bytes is 12; it must be a power of two"),
        ("pe.oc=0", "setting pe.oc=0: pe.oc is 0: should be greater than or equal to 1"),
        (
            "numerics=exact",
            "setting numerics=exact: numerics is 'exact': should be 'onnxruntime' or 'fixed'",
        ),
        (
            "isa=v9",
            f"unknown ISA variant 'v9'; choose one of {', '.join(sorted(VARIANTS))} "
            "or install the package that adds it",
        ),
        (
            "sram_bytes=1000001",
            "setting sram_bytes=1000001: sram_bytes 1000001 is not a multiple of sram_banks 16 of "
            "word_bytes 32; sram_bytes 1000448 would do",
        ),
        (
            "sram_bytes=1000001 isa=v4",
            "setting sram_bytes=1000001, isa=v4: sram_bytes 1000001 is not a multiple of "
            "sram_banks 16",
        ),
    ],
)
def test_bad_settings(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        apply_settings(load_preset(), setting.split())


def test_settings_are_several() -> None:
    with pytest.raises(
        InputError, match=r"^settings are 'a=1'; give a list of such texts, or values by key$"
    ):
        apply_settings(load_preset(), "a=1")


def test_unknown_settings_list_the_known() -> None:
    with pytest.raises(
        InputError,
        match=(
            r"^unknown setting 'sram'; did you mean sram_bytes\? "
            r"choose one of isa, sram_bytes, .*pe\.ic.*bus_bytes"
        ),
    ):
        apply_settings(load_preset(), ["sram=1"])
