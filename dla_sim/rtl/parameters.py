"""What hardware is built for: its sizes, which are in the wires, and its configuration, which may be tied or left open.

One build runs every machine that its :class:`Limits` cover: the configuration says which. With all of it tied to
constants it is the hardware of one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from amaranth.hdl import Const, Signal, Value

from dla_sim.timing import MemoryTiming, Timing
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Instruction
from isa.plugins import variant
from isa.variants import VARIANTS, Variant, extend

NEWEST = "v4"
"""The instruction set of all hardware: programs of earlier ones mean the same in it, cycles included."""
LARGEST = 4096
"""Processing elements, or lanes, whose wires are written down; each takes a millisecond before anything is built."""


@dataclass(frozen=True)
class Limits:
    """Physical sizes. ``ic``, ``oc``, ``ow``: the array; ``lanes`` of post-processing; memories and queues in bytes and
    entries, as the keys of a machine of the same names.

    ``pipelined`` False leaves all pipeline registers out: for machines that give a command no cycles to fill and drain.
    ``isa``: the variant of an installed package whose further instructions the hardware has beside the newest ones.
    ``engines``: the project's engines that EX has, by name, for hardware of some instructions; None is all.
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
        """The instructions that the hardware decodes."""
        newest, further = VARIANTS[NEWEST], further_instructions(self.isa)
        text = f"{NEWEST} and what {self.isa} has beside"
        return extend(newest, f"{self.isa}.hardware", text, *further) if further else newest

    @property
    def fixed(self) -> bool:
        """Whether the numerics are integers alone."""
        return self.numerics == "fixed"


def further_instructions(isa: str) -> tuple[Instruction, ...]:
    """Those of a variant that the newest one does not have: an installed package's.

    Raises InputError listing the variants that exist.
    """
    known = VARIANTS[NEWEST].mnemonics
    return () if isa in VARIANTS else tuple(one for one in variant(isa).instructions if one.mnemonic not in known)


def limits_of(arch: Arch, timing: Timing, *, pipelined: bool = True) -> Limits:
    """The sizes of exactly that machine. Raises InputError where there are too many to write its wires down."""
    for what, count in (("processing elements", arch.pe.count), ("post-processing lanes", arch.lanes)):
        if count > LARGEST:
            raise InputError(f"the machine has {count:,} {what}; hardware is written of at most {LARGEST:,}")
    return Limits(
        arch.pe.ic, arch.pe.oc, arch.pe.ow, arch.lanes, arch.sram_bytes, timing.bus_bytes, timing.queue_depth,
        timing.fetch_bytes, timing.fetch_buffers, arch.numerics, pipelined,
        arch.isa if further_instructions(arch.isa) else NEWEST,
    )  # fmt: skip


def strap_widths(limits: Limits) -> dict[str, int]:
    """Bits of every value of the configuration, by name, in the order of the top level's ports.

    ``*_shift`` are logarithms to base 2. ``burst_gap`` is derived (docs/machine.md, section 2).
    """
    return {
        "ic": limits.ic.bit_length(),
        "oc": limits.oc.bit_length(),
        "ow": limits.ow.bit_length(),
        "lanes": limits.lanes.bit_length(),
        "bank_shift": 6,
        "banks": 11,
        "bus_shift": 4,
        "burst_shift": 5,
        "dram_latency": 21,
        "burst_gap": 21,
        "flash": 1,
        "flash_shift": 4,
        "flash_burst_shift": 5,
        "flash_latency": 21,
        "flash_gap": 21,
        "queue_depth": limits.queue_depth.bit_length(),
        "fetch_bytes": limits.fetch_bytes.bit_length(),
        "fetch_buffers": limits.fetch_buffers.bit_length(),
        "dma_setup": 21,
        "dma_drain": 21,
        "ex_fill": 21,
        "ex_drain": 21,
        "sync_cycles": 21,
        "sram_read_bytes": 21,
        "sram_write_bytes": 21,
        "bank_ports": 11,
    }


def strap_values(arch: Arch, timing: Timing) -> dict[str, int]:
    """The configuration that makes hardware the machine of ``arch`` and ``timing``, by name as in :func:`strap_widths`.

    Raises InputError where a bank's bytes are no power of two: hardware selects a bank by bits of the address.
    """
    bank_bytes = arch.sram_bytes // arch.sram_banks
    if bank_bytes & (bank_bytes - 1):
        raise InputError(
            f"sram_bytes / sram_banks is {bank_bytes}; hardware selects a bank by bits of the address, so choose a "
            "power of two"
        )
    flash = timing.flash or MemoryTiming(1, 1, 0, 1)
    return {
        "ic": arch.pe.ic,
        "oc": arch.pe.oc,
        "ow": arch.pe.ow,
        "lanes": arch.lanes,
        "bank_shift": _log2(bank_bytes),
        "banks": arch.sram_banks,
        "bus_shift": _log2(timing.bus_bytes),
        "burst_shift": _log2(timing.burst_bytes),
        "dram_latency": timing.dram_latency,
        "burst_gap": timing.main.burst_gap,
        "flash": int(timing.flash is not None),
        "flash_shift": _log2(flash.width),
        "flash_burst_shift": _log2(flash.burst_bytes),
        "flash_latency": flash.latency,
        "flash_gap": flash.burst_gap,
        **{
            name: int(getattr(timing, name))
            for name in (
                "queue_depth", "fetch_bytes", "fetch_buffers", "dma_setup", "dma_drain", "ex_fill", "ex_drain",
                "sync_cycles", "sram_read_bytes", "sram_write_bytes", "bank_ports",
            )
        },
    }  # fmt: skip


def _log2(power: int) -> int:
    return power.bit_length() - 1


class Configuration:
    """The values of :func:`strap_widths` as Amaranth values, one attribute each: constants, or signals left open."""

    ic: Value
    oc: Value
    ow: Value
    lanes: Value
    bank_shift: Value
    banks: Value
    bus_shift: Value
    burst_shift: Value
    dram_latency: Value
    burst_gap: Value
    flash: Value
    flash_shift: Value
    flash_burst_shift: Value
    flash_latency: Value
    flash_gap: Value
    queue_depth: Value
    fetch_bytes: Value
    fetch_buffers: Value
    dma_setup: Value
    dma_drain: Value
    ex_fill: Value
    ex_drain: Value
    sync_cycles: Value
    sram_read_bytes: Value
    sram_write_bytes: Value
    bank_ports: Value

    def __init__(self, limits: Limits, values: Mapping[str, int] | None = None, prefix: str = "configuration_") -> None:
        """Tied to ``values`` (:func:`strap_values`); signals called ``prefix`` and name where there are none."""
        widths = strap_widths(limits)
        self.straps: dict[str, Value] = {
            name: Signal(width, name=f"{prefix}{name}", reset_less=True)
            if values is None
            else Const(values[name], width)
            for name, width in widths.items()
        }
        vars(self).update(self.straps)

    @property
    def open(self) -> dict[str, Value]:
        """The straps that are inputs of the hardware."""
        return {name: value for name, value in self.straps.items() if isinstance(value, Signal)}
