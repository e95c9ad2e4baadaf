"""The device: executes a Program on data, counts cycles, explains every one of them. Imports only ``isa``.

``Device(arch, timing).run(program, inputs)`` is the whole interface; ``load_preset(name)`` has machines to choose from.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dla_sim.device import Device
    from dla_sim.presets import Preset, apply_settings, load_preset
    from dla_sim.timing import Timing
    from dla_sim.trace import Trace

__all__ = ["Device", "Preset", "Timing", "Trace", "apply_settings", "load_preset"]

_HOMES = {
    "Device": "device", "Timing": "timing", "Trace": "trace",
    "Preset": "presets", "apply_settings": "presets", "load_preset": "presets",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use, so that naming the package costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dla_sim' has no attribute '{name}'")
    return getattr(import_module(f"dla_sim.{_HOMES[name]}"), name)
