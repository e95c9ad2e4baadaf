"""Hardware of a run: a preset or a TOML file, settings on top, and the ISA variant."""

from __future__ import annotations

from collections.abc import Iterable

from dla_sim.presets import DEFAULT_PRESET, Preset, apply_settings, load_preset
from isa.plugins import variant


def load_hardware(preset: str | None = None, settings: Iterable[str] = (), isa: str | None = None) -> Preset:
    """The machine called ``preset`` (a name or a TOML file), ``settings`` ("key=value") and ``isa`` on top.

    Raises InputError: unknown preset, ISA or key, a value that does not fit, a file that cannot be read.
    """
    hardware = apply_settings(load_preset(preset or DEFAULT_PRESET), settings)
    if isa is None:
        return hardware
    return apply_settings(hardware, [f"isa={variant(isa).name}"])
