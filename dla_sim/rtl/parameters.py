"""What hardware is built for: its sizes, which are in the wires, and its configuration, which may be tied or left open.

One build runs every machine that its :class:`Limits` cover: the configuration says which. With all of it tied to
constants it is the hardware of one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from amaranth.hdl import Const, Signal, Value

from dla_sim.timing import MemoryTiming, Timing
from isa.arch import IDEAL, Arch
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
    return tuple(one for one in variant(isa).instructions if one.mnemonic not in known)


def has_hardware(arch: Arch) -> bool:
    """Return whether hardware is written of the machine: of ideal memory alone."""
    return arch.memory == IDEAL


def limits_of(arch: Arch, timing: Timing, *, pipelined: bool = True) -> Limits:
    """The sizes of exactly that machine. Raises InputError where there are too many to write its wires down."""
    if not has_hardware(arch):
        raise InputError(f"isa {arch.isa}: there is no hardware of words yet; choose v1 to {NEWEST}")
    for what, count in (("processing elements", arch.pe.count), ("post-processing lanes", arch.lanes)):
        if count > LARGEST:
            raise InputError(f"the machine has {count:,} {what}; hardware is written of at most {LARGEST:,}")
    return Limits(
        arch.pe.ic, arch.pe.oc, arch.pe.ow, arch.lanes, arch.sram_bytes, timing.bus_bytes, timing.queue_depth,
        timing.fetch_bytes, timing.fetch_buffers, arch.numerics, pipelined,
        arch.isa if further_instructions(arch.isa) else NEWEST,
    )  # fmt: skip


@dataclass(frozen=True)
class Strap:
    """A value of the configuration: its ``bits``, 0 for those of the limit of its name, and what it is of a machine."""

    bits: int
    value: Callable[[Arch, Timing], int]


def _timed(bits: int, name: str) -> Strap:
    return Strap(bits, lambda arch, timing: int(getattr(timing, name)))


def _of_memory(bits: int, value: Callable[[MemoryTiming], int], *, flash: bool = False) -> Strap:
    """What follows from the timing of a memory; a machine without flash has one that nobody reads."""
    return Strap(bits, lambda arch, timing: value(timing.flash or MemoryTiming(1, 1, 0, 1) if flash else timing.main))


_BITS = 21
"""Of latencies and bytes a cycle."""
STRAPS: Mapping[str, Strap] = {
    "ic": Strap(0, lambda arch, timing: arch.pe.ic),
    "oc": Strap(0, lambda arch, timing: arch.pe.oc),
    "ow": Strap(0, lambda arch, timing: arch.pe.ow),
    "lanes": Strap(0, lambda arch, timing: arch.lanes),
    "bank_shift": Strap(6, lambda arch, timing: _log2(_bank_bytes(arch))),
    "banks": Strap(11, lambda arch, timing: arch.sram_banks),
    "bus_shift": _of_memory(4, lambda memory: _log2(memory.width)),
    "burst_shift": _of_memory(5, lambda memory: _log2(memory.burst_bytes)),
    "dram_latency": _timed(_BITS, "dram_latency"),
    "burst_gap": _of_memory(_BITS, lambda memory: memory.burst_gap),
    "flash": Strap(1, lambda arch, timing: int(timing.flash is not None)),
    "flash_shift": _of_memory(4, lambda memory: _log2(memory.width), flash=True),
    "flash_burst_shift": _of_memory(5, lambda memory: _log2(memory.burst_bytes), flash=True),
    "flash_latency": _of_memory(_BITS, lambda memory: memory.latency, flash=True),
    "flash_gap": _of_memory(_BITS, lambda memory: memory.burst_gap, flash=True),
    **{name: _timed(0, name) for name in ("queue_depth", "fetch_bytes", "fetch_buffers")},
    **{name: _timed(_BITS, name) for name in ("dma_setup", "dma_drain", "ex_fill", "ex_drain", "sync_cycles")},
    **{name: _timed(_BITS, name) for name in ("sram_read_bytes", "sram_write_bytes")},
    "bank_ports": _timed(11, "bank_ports"),
}
"""All values of the configuration, in the order of the top level's ports.

``*_shift`` are logarithms to base 2. ``burst_gap`` is derived (docs/machine.md, section 2).
"""


def strap_values(arch: Arch, timing: Timing) -> dict[str, int]:
    """The configuration that makes hardware the machine of ``arch`` and ``timing``, by name as in :data:`STRAPS`.

    Raises InputError where a bank's bytes are no power of two: hardware selects a bank by bits of the address.
    """
    return {name: strap.value(arch, timing) for name, strap in STRAPS.items()}


def _bank_bytes(arch: Arch) -> int:
    bank_bytes = arch.sram_bytes // arch.sram_banks
    if bank_bytes & (bank_bytes - 1):
        raise InputError(
            f"sram_bytes / sram_banks is {bank_bytes}; hardware selects a bank by bits of the address, so choose a "
            "power of two"
        )
    return bank_bytes


def _log2(power: int) -> int:
    return power.bit_length() - 1


class Configuration:
    """The values of :data:`STRAPS` as Amaranth values, one attribute each: constants, or signals left open."""

    def __init__(self, limits: Limits, values: Mapping[str, int] | None = None, prefix: str = "configuration_") -> None:
        """Tied to ``values`` (:func:`strap_values`); signals called ``prefix`` and name where there are none."""
        widths = {name: strap.bits or getattr(limits, name).bit_length() for name, strap in STRAPS.items()}
        self.straps: dict[str, Value] = {
            name: Signal(width, name=f"{prefix}{name}", reset_less=True)
            if values is None
            else Const(values[name], width)
            for name, width in widths.items()
        }
        vars(self).update(self.straps)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Value:
            """A strap by its name."""

    @property
    def open(self) -> dict[str, Value]:
        """The straps that are inputs of the hardware."""
        return {name: value for name, value in self.straps.items() if isinstance(value, Signal)}
