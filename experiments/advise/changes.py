"""Machine changes to try: one key or the array at a time, or combinations for a target time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from dla_sim.presets import Preset, apply_settings
from isa.errors import InputError

SIZES = tuple(map(Fraction, ("1/4", "1/2", "3/4", "5/4", "3/2", "2", "3", "4", "8")))
"""Factors for the scratchpad size."""
WIDTHS = tuple(map(Fraction, ("1/2", "2", "4")))
"""Factors for the width of the bus and the number of lanes."""
ARRAYS = (
    ("1/2", "1"), ("1", "1/2"), ("1/2", "2"), ("2", "1/2"), ("2", "1"), ("1", "2"), ("2", "2"),
    ("4", "2"), ("2", "4"),
    ("4", "4"),
)  # fmt: skip
"""Factors for the array's input and output channels."""


@dataclass(frozen=True)
class Change:
    """Settings that change a machine.

    ``what`` names their kind; changes of one kind are compared with one another.
    """

    what: str
    settings: tuple[str, ...]

    @property
    def words(self) -> str:
        """The settings of a machine change as command-line options (``--set KEY=VALUE``)."""
        return " ".join(f"--set {setting}" for setting in self.settings)


def list_changes(hardware: Preset) -> Iterator[Change]:
    """Yield the changes to try, smallest first in each kind.

    :func:`apply_change` rejects machines that cannot exist.
    """
    arch = hardware.arch
    timing = hardware.timing
    yield from _scale_key("scratchpad", "sram_bytes", arch.sram_bytes, SIZES)
    yield from _arrays(hardware)
    yield from _scale_key("bus", "bus_bytes", timing.bus_bytes, WIDTHS)
    yield from _scale_key(
        "bursts in flight", "outstanding_bursts", timing.outstanding_bursts, WIDTHS[1:]
    )
    yield from _scale_key("latency", "dram_latency", timing.dram_latency, WIDTHS[:1])
    if arch.post_lanes is not None:
        yield from _scale_key("lanes", "post_lanes", arch.post_lanes, WIDTHS)


def _scale_key(what: str, key: str, now: int, factors: tuple[Fraction, ...]) -> Iterator[Change]:
    for factor in factors:
        value = now * factor
        if value.denominator == 1 and value:
            yield Change(what, (f"{key}={_format_value(key, int(value))}",))


def _format_value(key: str, value: int) -> str:
    return f"{value // 1024}KiB" if key == "sram_bytes" and value % 1024 == 0 else str(value)


def _arrays(hardware: Preset) -> Iterator[Change]:
    pe = hardware.arch.pe
    for inputs, outputs in ARRAYS:
        ic = pe.ic * Fraction(inputs)
        oc = pe.oc * Fraction(outputs)
        if ic.denominator == oc.denominator == 1 and ic and oc:
            texts = (f"pe.ic={ic}", pe.ic != ic), (f"pe.oc={oc}", pe.oc != oc)
            yield Change("array", tuple(text for text, differs in texts if differs))


def combine_changes(hardware: Preset) -> Iterator[Change]:
    """Yield every combination of scratchpad, array and bus, including the present ones."""
    kinds: dict[str, list[tuple[str, ...]]] = {"scratchpad": [()], "array": [()], "bus": [()]}
    for change in list_changes(hardware):
        if change.what in kinds:
            kinds[change.what].append(change.settings)
    for settings in product(*kinds.values()):
        yield Change("machine", tuple(text for part in settings for text in part))


def apply_change(hardware: Preset, change: Change) -> Preset | None:
    """Return the machine with a change applied, or None if the result is not valid."""
    try:
        return apply_settings(hardware, change.settings)
    except InputError:
        return None
