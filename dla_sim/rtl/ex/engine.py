"""What every engine of EX has in common: how the unit drives it, what it says of the command, pipelines, tables."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value

from dla_sim.rtl.building import Library, stage
from dla_sim.rtl.ex.counting import delayed
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import CommandView, ReadPort, Serves, Stream, WritePort
from isa.ops.lookup import TABLE_BYTES


class Steps:
    """``valid``: by stage, whether a step is there. Registers of ``sync``, which gate the clocks of the data path."""

    def __init__(self, m: Module, advance: Value, stages: int, *, pipelined: bool) -> None:
        self.valid: list[Value] = [advance] * (stages + 1)
        if pipelined and stages:
            held = Signal(stages, name="valid")
            m.d.sync += held.eq(Cat(advance, held))
            self.valid[1:] = list(held)

    def between(self, first: int, last: int) -> Value:
        """1 where a step is at one of these stages."""
        return Cat(*self.valid[first : last + 1]).any()


TABLE_SHIFT = TABLE_BYTES.bit_length() - 1


class Tables:
    """A read of a byte a lane: one stage of the pipeline, whether or not results are looked up."""

    def __init__(self, name: str, lanes: int, domain: str | None, serves: Serves) -> None:
        self.port = ReadPort(f"{name}_table", lanes, 1, domain, serves)

    def looked_up(
        self, m: Module, results: Sequence[Value], there: Value, tables: Sequence[Value], wanted: Value, domain: str
    ) -> list[Value]:
        """What the tables that begin at the addresses ``tables`` have for ``results``, a stage later.

        The results themselves where they are not ``wanted`` looked up. ``there``: a bit a lane.
        """
        m.d.comb += self.port.enable.eq(Mux(wanted, there, 0))
        found = []
        for lane, (result, table) in enumerate(zip(results, tables, strict=True)):
            m.d.comb += self.port.address[lane].eq(table + result[:8].as_unsigned())
            held = stage(m, result, pipelined=self.port.domain is not None, domain=domain, name="result")
            found.append(Mux(wanted, self.port.data[lane], held))
        return found


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

    def _register(self, name: str) -> Value:
        return self.command.register(f"EX_{name}")

    def _delayed(self, m: Module, value: Value, stages: int) -> Value:
        return delayed(m, value, stages, pipelined=self.limits.pipelined, domain=self.name, name="later")

    @property
    def selected(self) -> Value:
        """1 where the command is its own."""
        return self.command.is_(*self.mnemonics)
