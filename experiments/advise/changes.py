"""Changes of a machine that are tried: one key or the array at a time, and for a target their combinations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from dla_sim.presets import Preset, apply_settings
from isa.errors import InputError

SIZES = tuple(map(Fraction, ("1/4", "1/2", "3/4", "5/4", "3/2", "2", "3", "4", "8")))
"""Of the scratchpad, beside the one that is there."""
WIDTHS = tuple(map(Fraction, ("1/2", "2", "4")))
"""Of bus and lanes."""
ARRAYS = (
    ("1/2", "1"), ("1", "1/2"), ("1/2", "2"), ("2", "1/2"), ("2", "1"), ("1", "2"), ("2", "2"), ("4", "2"), ("2", "4"),
    ("4", "4"),
)  # fmt: skip
"""Of the inputs and of the outputs that the array has a step."""


@dataclass(frozen=True)
class Change:
    """Settings on top of a machine's. ``what`` is changed: steps of one kind are compared with one another."""

    what: str
    settings: tuple[str, ...]

    @property
    def words(self) -> str:
        """The options of a command line."""
        return " ".join(f"--set {setting}" for setting in self.settings)


def changes(hardware: Preset) -> Iterator[Change]:
    """What is tried of a machine, smallest first in each kind. Whether there is such a machine is seen later."""
    arch, timing = hardware.arch, hardware.timing
    yield from _scaled("scratchpad", "sram_bytes", arch.sram_bytes, SIZES)
    yield from _arrays(hardware)
    yield from _scaled("bus", "bus_bytes", timing.bus_bytes, WIDTHS)
    yield from _scaled("bursts in flight", "outstanding_bursts", timing.outstanding_bursts, WIDTHS[1:])
    yield from _scaled("latency", "dram_latency", timing.dram_latency, WIDTHS[:1])
    if arch.post_lanes is not None:
        yield from _scaled("lanes", "post_lanes", arch.post_lanes, WIDTHS)


def _scaled(what: str, key: str, now: int, factors: tuple[Fraction, ...]) -> Iterator[Change]:
    for factor in factors:
        value = now * factor
        if value.denominator == 1 and value:
            yield Change(what, (f"{key}={_spelled(key, int(value))}",))


def _spelled(key: str, value: int) -> str:
    return f"{value // 1024}KiB" if key == "sram_bytes" and value % 1024 == 0 else str(value)


def _arrays(hardware: Preset) -> Iterator[Change]:
    pe = hardware.arch.pe
    for inputs, outputs in ARRAYS:
        ic, oc = pe.ic * Fraction(inputs), pe.oc * Fraction(outputs)
        if ic.denominator == oc.denominator == 1 and ic and oc:
            texts = (f"pe.ic={ic}", pe.ic != ic), (f"pe.oc={oc}", pe.oc != oc)
            yield Change("array", tuple(text for text, differs in texts if differs))


def combined(hardware: Preset) -> Iterator[Change]:
    """Every scratchpad with every array and every bus, those of the machine among them."""
    kinds: dict[str, list[tuple[str, ...]]] = {"scratchpad": [()], "array": [()], "bus": [()]}
    for change in changes(hardware):
        if change.what in kinds:
            kinds[change.what].append(change.settings)
    for settings in product(*kinds.values()):
        yield Change("machine", tuple(text for part in settings for text in part))


def changed(hardware: Preset, change: Change) -> Preset | None:
    """The machine with a change; None where there is no such machine."""
    try:
        return apply_settings(hardware, change.settings)
    except InputError:
        return None
