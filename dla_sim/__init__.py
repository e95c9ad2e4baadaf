"""The simulated device: executes a Program on data, counts its cycles and explains them.

``Device(arch, timing).run(program, inputs)`` is the whole interface; ``load_preset(name)`` returns
a machine. The package imports only ``isa``. Public names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dla_sim.device import Device, Trace
    from dla_sim.presets import Preset, apply_settings, load_hardware, load_preset, preset_names
    from dla_sim.timing import Timing
else:
    from isa.exports import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Device": "dla_sim.device",
            "Preset": "dla_sim.presets",
            "Timing": "dla_sim.timing",
            "Trace": "dla_sim.device",
            "apply_settings": "dla_sim.presets",
            "load_hardware": "dla_sim.presets",
            "load_preset": "dla_sim.presets",
            "preset_names": "dla_sim.presets",
        },
    )

__all__ = [
    "Device", "Preset", "Timing", "Trace", "apply_settings", "load_hardware", "load_preset",
    "preset_names",
]  # fmt: skip
