"""Parameters of the hardware: sizes fixed at build time, and a configuration that may stay open.

One build runs every machine that its :class:`Limits` cover; the configuration selects the machine.
With all straps tied to constants the build is the hardware of one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from amaranth.hdl import Const, Signal, Value

from dla_sim.presets import setting_texts
from dla_sim.timing import MemoryTiming, Timing
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Instruction
from isa.plugins import variant
from isa.variants import VARIANTS, Variant, extend

NEWEST = "v4"
"""Instruction set of all hardware.

Programs of earlier sets have the same results and cycles in it.
"""
LARGEST = 4096
"""Maximum number of processing elements or lanes.

Each takes a millisecond even before elaboration.
"""


@dataclass(frozen=True)
class Limits:
    """Physical sizes of a hardware build.

    Attributes:
        ic: input channels of the array.
        oc: output channels of the array.
        ow: output columns of the array.
        lanes: post-processing lanes.
        sram_bytes: scratchpad size.
        bus_bytes: bus width.
        queue_depth: commands per queue.
        fetch_bytes: bytes per chunk of the command fetch.
        fetch_buffers: chunks that the command fetch buffers.
        numerics: rounding of ONNX Runtime, or fixed point.
        pipelined: False omits all pipeline registers, for machines with no fill and drain cycles.
        isa: variant of an installed package whose instructions the hardware has in addition to the
            newest ones.
        engines: names of the built-in engines that EX has, for hardware of some instructions; None
            means all.
    """

    ic: int
    oc: int
    ow: int
    lanes: int
    sram_bytes: int
    bus_bytes: int
    queue_depth: int
    fetch_bytes: int
    fetch_buffers: int
    numerics: Literal["onnxruntime", "fixed"] = "onnxruntime"
    pipelined: bool = True
    isa: str = NEWEST
    engines: tuple[str, ...] | None = None

    @property
    def variant(self) -> Variant:
        """Instructions that the hardware decodes."""
        newest = VARIANTS[NEWEST]
        further = further_instructions(self.isa)
        text = f"{NEWEST} and what {self.isa} has beside"
        return extend(newest, f"{self.isa}.hardware", text, *further) if further else newest

    @property
    def fixed(self) -> bool:
        """True if the numerics use integers only."""
        return self.numerics == "fixed"


def further_instructions(isa: str) -> tuple[Instruction, ...]:
    """Return the instructions that a variant of an installed package adds to the newest variant.

    Raises InputError listing the existing variants if ``isa`` is unknown.
    """
    known = VARIANTS[NEWEST].mnemonics
    return tuple(one for one in variant(isa).instructions if one.mnemonic not in known)


def has_hardware(arch: Arch) -> bool:
    """Return True if hardware exists for the machine; it exists only for ideal memory."""
    return arch.memory.has_rtl


def limits_of(arch: Arch, timing: Timing, *, pipelined: bool = True) -> Limits:
    """Return the hardware sizes of a build that fits exactly one machine.

    Raise InputError if it has too many elements or lanes, or a memory with a rate, rows or refresh.
    """
    if not has_hardware(arch):
        raise InputError(
            f"isa {arch.isa}: dla writes hardware only for machines with ideal memory; use --isa "
            f"{NEWEST} or --preset nvdla-small-like"
        )
    for key in ("dram_rate", "flash_rate", "dram_row_bytes", "dram_refresh_interval"):
        value = getattr(timing, key)
        if value:
            (without,) = setting_texts({key: Timing.model_fields[key].default})
            raise InputError(
                f"{key} is {value}: the hardware's bus takes one slot a beat; use --set {without}"
            )
    for what, count in (
        ("processing elements", arch.pe.count),
        ("post-processing lanes", arch.lanes),
    ):
        if count > LARGEST:
            raise InputError(
                f"the machine has {count:,} {what}; hardware is written of at most {LARGEST:,}"
            )
    return Limits(
        arch.pe.ic, arch.pe.oc, arch.pe.ow, arch.lanes, arch.sram_bytes, timing.bus_bytes,
        timing.queue_depth,
        timing.fetch_bytes, timing.fetch_buffers, arch.numerics, pipelined,
        arch.isa if further_instructions(arch.isa) else NEWEST,
    )  # fmt: skip


@dataclass(frozen=True)
class Strap:
    """A configuration value: its width and how to derive it from a machine.

    ``bits`` 0 means the width of the limit with the same name.
    """

    bits: int
    value: Callable[[Arch, Timing], int]


def _make_timing_strap(bits: int, name: str) -> Strap:
    return Strap(bits, lambda arch, timing: int(getattr(timing, name)))


def _make_memory_strap(
    bits: int, value: Callable[[MemoryTiming], int], *, flash: bool = False
) -> Strap:
    """Return a configuration value derived from a memory's timing.

    Without flash its unused value comes from a dummy.
    """
    return Strap(
        bits,
        lambda arch, timing: value(
            timing.flash or MemoryTiming(1, 1, 0, 1) if flash else timing.main
        ),
    )


_BITS = 21
"""Bits of latencies and of bytes per cycle."""
STRAPS: Mapping[str, Strap] = {
    "ic": Strap(0, lambda arch, timing: arch.pe.ic),
    "oc": Strap(0, lambda arch, timing: arch.pe.oc),
    "ow": Strap(0, lambda arch, timing: arch.pe.ow),
    "lanes": Strap(0, lambda arch, timing: arch.lanes),
    "bank_shift": Strap(6, lambda arch, timing: _log2(_bank_bytes(arch))),
    "banks": Strap(11, lambda arch, timing: arch.sram_banks),
    "bus_shift": _make_memory_strap(4, lambda memory: _log2(memory.width)),
    "burst_shift": _make_memory_strap(5, lambda memory: _log2(memory.burst_bytes)),
    "dram_latency": _make_timing_strap(_BITS, "dram_latency"),
    "burst_gap": _make_memory_strap(_BITS, lambda memory: memory.burst_gap),
    "flash": Strap(1, lambda arch, timing: int(timing.flash is not None)),
    "flash_shift": _make_memory_strap(4, lambda memory: _log2(memory.width), flash=True),
    "flash_burst_shift": _make_memory_strap(
        5, lambda memory: _log2(memory.burst_bytes), flash=True
    ),
    "flash_latency": _make_memory_strap(_BITS, lambda memory: memory.latency, flash=True),
    "flash_gap": _make_memory_strap(_BITS, lambda memory: memory.burst_gap, flash=True),
    **{
        name: _make_timing_strap(0, name)
        for name in ("queue_depth", "fetch_bytes", "fetch_buffers")
    },
    **{
        name: _make_timing_strap(_BITS, name)
        for name in ("dma_setup", "dma_drain", "ex_fill", "ex_drain", "sync_cycles")
    },
    **{name: _make_timing_strap(_BITS, name) for name in ("sram_read_bytes", "sram_write_bytes")},
    "bank_ports": _make_timing_strap(11, "bank_ports"),
}
"""All configuration values, in the order of the top level's ports.

``*_shift`` are base-2 logarithms. ``burst_gap`` is derived (docs/machine.md, section 2).
"""


def strap_values(arch: Arch, timing: Timing) -> dict[str, int]:
    """Return the configuration of the machine ``arch`` with ``timing``.

    The names are those of :data:`STRAPS`. Raises InputError if the bytes of a bank are not a power
    of two, because hardware selects a bank by address bits.
    """
    return {name: strap.value(arch, timing) for name, strap in STRAPS.items()}


def _bank_bytes(arch: Arch) -> int:
    bank_bytes = arch.sram_bytes // arch.sram_banks
    if bank_bytes & (bank_bytes - 1):
        raise InputError(
            f"sram_bytes / sram_banks is {bank_bytes}; hardware selects a bank by bits of the "
            "address, so choose a "
            "power of two"
        )
    return bank_bytes


def _log2(power: int) -> int:
    return power.bit_length() - 1


class Configuration:
    """Values of :data:`STRAPS` as Amaranth values, one attribute each.

    They are constants or open signals.
    """

    def __init__(
        self,
        limits: Limits,
        values: Mapping[str, int] | None = None,
        prefix: str = "configuration_",
    ) -> None:
        """Tie configuration inputs of the hardware to ``values`` (:func:`strap_values`).

        If None, create signals named ``prefix`` + name.
        """
        widths = {
            name: strap.bits or getattr(limits, name).bit_length() for name, strap in STRAPS.items()
        }
        self.straps: dict[str, Value] = {
            name: Signal(width, name=f"{prefix}{name}", reset_less=True)
            if values is None
            else Const(values[name], width)
            for name, width in widths.items()
        }
        vars(self).update(self.straps)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Value:
            """Return the configuration value ``name``."""

    @property
    def open(self) -> dict[str, Value]:
        """Configuration values that are inputs of the hardware."""
        return {name: value for name, value in self.straps.items() if isinstance(value, Signal)}
