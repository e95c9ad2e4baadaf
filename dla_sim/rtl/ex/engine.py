"""What every engine of EX has in common: how the unit drives it, and what it says of the command at hand."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Const, Elaboratable, Signal, Value

from dla_sim.rtl.building import Library
from dla_sim.rtl.commands import CommandView
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ReadPort, Stream, WritePort

LARGEST_LATENCY = 14
"""Cycles from the step of an engine to its results in the scratchpad, at most."""


class Engine(Elaboratable):
    """Executes some instructions, one step in each cycle with ``advance`` while the command is its own.

    The unit drives ``advance``. The engine drives ``last`` (a step taken now is the last one; then all counters are
    at their beginning again in the next cycle) and ``fault`` (a result does not fit; stays until reset). Combinational
    from the command: ``selected``, ``empty`` (no step at all), ``results`` (elements that go through the lanes of
    post-processing: compute takes no fewer than ⌈results / lanes⌉ steps' time; 0 is no bound) and ``streams``, which
    subclasses set in their constructor. ``latency``: cycles from a step to its effects, 0 without pipeline registers.
    """

    latency: int = 0
    mnemonics: tuple[str, ...] = ()
    """Instructions that it executes."""

    def __init__(self, limits: Limits, configuration: Configuration, command: CommandView, library: Library) -> None:
        self.limits, self.configuration, self.command, self.modules = limits, configuration, command, library
        self.advance = Signal(name=f"{self.name}_advance")
        self.last = Signal(name=f"{self.name}_last")
        self.empty = Signal(name=f"{self.name}_empty")
        self.fault = Signal(name=f"{self.name}_fault")
        self.results: Value = Const(0, 1)
        self.streams: Sequence[Stream] = ()
        self.read_ports: list[ReadPort] = []
        self.write_ports: list[WritePort] = []

    @property
    def name(self) -> str:
        """Prefix of its signals, its clock domains and its ports on the scratchpad."""
        return type(self).__name__.lower()

    @property
    def selected(self) -> Value:
        """1 where the command is its own."""
        return self.command.is_(*self.mnemonics)
