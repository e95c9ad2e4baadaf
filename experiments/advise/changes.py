"""Changes to try: one key of the machine, the array or one option at a time, or combinations."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

from byoc.options import OPTIONS, PROGRAM_OPTIONS, CompileOptions
from dla_sim.presets import Preset, apply_settings, spell_setting
from isa.errors import InputError
from isa.plugins import get_built_in_table

SIZES = tuple(map(Fraction, ("1/4", "1/2", "3/4", "5/4", "3/2", "2", "3", "4", "8")))
"""Factors for the scratchpad size."""
WIDTHS = tuple(map(Fraction, ("1/2", "2", "4", "8")))
"""Factors for the width of the bus, the lanes, the banks and the bursts in flight."""
DELAYS = tuple(map(Fraction, ("1/2", "1/4", "1/8")))
"""Factors for the latency, smallest change first."""
Arrays = tuple[tuple[str, str, str], ...]
ARRAYS: Arrays = (
    ("1/2", "1", "1"), ("1", "1/2", "1"), ("1/2", "2", "1"), ("2", "1/2", "1"), ("2", "1", "1"),
    ("1", "2", "1"), ("1", "1", "2"), ("2", "2", "1"), ("4", "1", "1"), ("1", "4", "1"),
    ("1", "1", "4"), ("4", "2", "1"), ("2", "4", "1"), ("8", "1", "1"), ("1", "8", "1"),
    ("1", "1", "8"), ("4", "4", "1"),
)  # fmt: skip
"""Factors for the array's input channels, output channels and output columns."""
FIRST_ARRAYS: Arrays = (("2", "1", "1"), ("1", "2", "1"), ("2", "2", "1"))
"""Factors that the first advice tries, part of :data:`ARRAYS`."""


@dataclass(frozen=True)
class Change:
    """Change of a machine's settings, of the compiler's options or of nodes on the CPU.

    ``what`` names its kind; changes of one kind are compared with one another. ``measurements``
    is the number of schedules that a tuning measures; ``frees_cpu`` omits the option ``--cpu``.
    """

    what: str
    settings: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    measurements: int = 0
    frees_cpu: bool = False

    @property
    def words(self) -> str:
        """The change as command-line options, such as ``--set KEY=VALUE``."""
        words = [f"--set {setting}" for setting in self.settings]
        values = dict(self.options)
        for option in OPTIONS:
            if option.name in values:
                found = option.words(values[option.name])
                words.append(" ".join(found) or f"without --{option.word}")
        if self.measurements:
            words.append(f"--tuned, {self.measurements} schedules measured")
        return " ".join([*words, *(["without --cpu"] if self.frees_cpu else [])])


def list_changes(hardware: Preset) -> Iterator[Change]:
    """Yield the changes of a machine to try, smallest first in each kind.

    :func:`apply_change` rejects machines that cannot exist.
    """
    arch = hardware.arch
    timing = hardware.timing
    yield from _scale_key("scratchpad", "sram_bytes", arch.sram_bytes, SIZES)
    yield from _scale_key("banks", "sram_banks", arch.sram_banks, WIDTHS)
    yield from _arrays(hardware)
    yield from _scale_key("bus", "bus_bytes", timing.bus_bytes, WIDTHS)
    bursts = timing.outstanding_bursts
    yield from _scale_key("bursts in flight", "outstanding_bursts", bursts, WIDTHS[1:])
    yield from _scale_key("burst", "burst_bytes", timing.burst_bytes, WIDTHS)
    yield from _scale_key("queues", "queue_depth", timing.queue_depth, WIDTHS[1:])
    yield from _scale_key("fetch", "fetch_bytes", timing.fetch_bytes, WIDTHS)
    yield from _scale_key("latency", "dram_latency", timing.dram_latency, DELAYS)
    if timing.flash_bytes:
        yield from _scale_key("flash", "flash_bytes", timing.flash_bytes, WIDTHS)
        yield from _scale_key("flash latency", "flash_latency", timing.flash_latency, DELAYS)
    if arch.post_lanes is not None:
        yield from _scale_key("lanes", "post_lanes", arch.post_lanes, WIDTHS)
    for variant in get_built_in_table().variants:
        if variant.name > arch.isa:  # later instruction sets run more operators
            yield Change("instruction set", (f"isa={variant.name}",))
    other = "fixed" if arch.numerics == "onnxruntime" else "onnxruntime"
    yield Change("numerics", (f"numerics={other}",))


def list_option_changes(options: CompileOptions) -> Iterator[Change]:
    """Yield a change for each compiler option and each value other than the option's present one.

    Only options that programs depend on are changed.
    """
    for option in PROGRAM_OPTIONS:
        for value in option.values:
            if value != getattr(options, option.name):
                yield Change(option.word, options=((option.name, value),))


def list_first_changes(hardware: Preset, options: CompileOptions) -> Iterator[Change]:
    """Yield one step of each kind that often helps, so that a run can end with advice."""
    timing = hardware.timing
    yield from _scale_key("scratchpad", "sram_bytes", hardware.arch.sram_bytes, WIDTHS[1:2])
    yield from _arrays(hardware, FIRST_ARRAYS)
    yield from _scale_key("bus", "bus_bytes", timing.bus_bytes, WIDTHS[1:2])
    yield from _scale_key("latency", "dram_latency", timing.dram_latency, DELAYS[:1])
    if hardware.arch.post_lanes is not None:
        yield from _scale_key("lanes", "post_lanes", hardware.arch.post_lanes, WIDTHS[1:2])
    if not options.integer_io:
        yield Change("integer-io", options=(("integer_io", True),))


def _scale_key(what: str, key: str, now: int, factors: tuple[Fraction, ...]) -> Iterator[Change]:
    for factor in factors:
        value = ceil(now * factor)
        if value != now:
            yield Change(what, (f"{key}={spell_setting(key, value)}",))


def _arrays(hardware: Preset, tried: Arrays = ARRAYS) -> Iterator[Change]:
    now = {f"pe.{name}": value for name, value in hardware.arch.pe}
    for factors in tried:
        sizes = dict(zip(now, map(Fraction, factors), strict=True))
        wanted = {key: now[key] * factor for key, factor in sizes.items() if factor != 1}
        if all(value.denominator == 1 and value for value in wanted.values()):
            yield Change("array", tuple(f"{key}={value}" for key, value in wanted.items()))


def combine_changes(hardware: Preset) -> Iterator[Change]:
    """Yield every combination of scratchpad, array and bus, including the present ones."""
    kinds: dict[str, list[tuple[str, ...]]] = {"scratchpad": [()], "array": [()], "bus": [()]}
    for change in list_changes(hardware):
        if change.what in kinds:
            kinds[change.what].append(change.settings)
    for settings in product(*kinds.values()):
        yield Change("machine", tuple(text for part in settings for text in part))


def apply_change(hardware: Preset, change: Change) -> Preset | None:
    """Return the machine with a change applied.

    Return None if the result is not valid, or if an instruction set needs another memory.
    """
    try:
        machine = apply_settings(hardware, change.settings)
    except InputError:
        return None
    return machine if type(machine.arch.memory) is type(hardware.arch.memory) else None
