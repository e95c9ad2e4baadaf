"""What partitioning needs to know about the machine: which instructions it has and how far their fields reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from byoc.options import DEFAULTS, CompileOptions, Grouped
from isa.arch import Arch
from isa.plugins import variant


@dataclass(frozen=True)
class Target:
    """A machine as patterns see it. ``instructions`` are mnemonics; limits are exclusive upper bounds."""

    instructions: frozenset[str]
    isa: str
    emulate_depthwise: bool = False
    grouped: Grouped = "auto"
    numerics: Literal["onnxruntime", "fixed"] = "onnxruntime"
    channel_limit: int = 1 << 20
    spatial_limit: int = 1 << 16
    window_limit: int = 1 << 8
    group_limit: int = 1 << 16


def target_of(arch: Arch, options: CompileOptions = DEFAULTS) -> Target:
    """The target that ``arch`` is; raises InputError for an ISA variant that does not exist."""
    isa, choices = variant(arch.isa), (options.emulate_depthwise, options.grouped, arch.numerics)
    window = isa.register_file.by_name["EX_KERNEL_WIDTH"].maximum + 1
    return Target(isa.mnemonics, arch.isa, *choices, window_limit=window)
