"""Common base of the engines of EX: control interface, step pipeline and table look-up."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value

from dla_sim.rtl.building import Library, stage
from dla_sim.rtl.ex.counting import delayed
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import CommandView, ReadPort, Serves, Stream, WritePort
from isa.ops.lookup import TABLE_BYTES


class Steps:
    """Valid bits of an engine's pipeline, one per stage.

    They are registers of ``sync`` and gate the clocks of the data path.
    """

    def __init__(self, m: Module, advance: Value, stages: int, *, pipelined: bool) -> None:
        self.valid: list[Value] = [advance] * (stages + 1)
        if pipelined and stages:
            held = Signal(stages, name="valid")
            m.d.sync += held.eq(Cat(advance, held))
            self.valid[1:] = list(held)

    def between(self, first: int, last: int) -> Value:
        """Return 1 if a step is at any pipeline stage from ``first`` to ``last``."""
        return Cat(*self.valid[first : last + 1]).any()


TABLE_SHIFT = TABLE_BYTES.bit_length() - 1


class Tables:
    """Table look-up of one byte per lane; it takes one pipeline stage whether or not it is used."""

    def __init__(self, name: str, lanes: int, domain: str | None, serves: Serves) -> None:
        self.port = ReadPort(f"{name}_table", lanes, 1, domain, serves)

    def look_up(
        self,
        m: Module,
        results: Sequence[Value],
        there: Value,
        tables: Sequence[Value],
        wanted: Value,
        domain: str,
    ) -> list[Value]:
        """Return the table entries for ``results``, or the results if not ``wanted``.

        The values are valid one stage later.

        Args:
            m: the module to extend.
            results: one result per lane.
            there: one bit per lane, 1 if the lane has a result.
            tables: address of each lane's table.
            wanted: 1 if results are looked up.
            domain: clock domain of the stage.
        """
        m.d.comb += self.port.enable.eq(Mux(wanted, there, 0))
        found = []
        for lane, (result, table) in enumerate(zip(results, tables, strict=True)):
            m.d.comb += self.port.address[lane].eq(table + result[:8].as_unsigned())
            held = stage(
                m, result, pipelined=self.port.domain is not None, domain=domain, name="result"
            )
            found.append(Mux(wanted, self.port.data[lane], held))
        return found


LARGEST_LATENCY = 14
"""Maximum cycles from an engine's step to its results in the scratchpad."""


class Engine(Elaboratable):
    """Base class of engines, which execute instructions one step per cycle with ``advance``.

    EX reads the outputs and the attributes of an engine. A subclass sets ``results`` and
    ``streams`` in its constructor. The values of ``last``, ``empty``, ``selected``, ``results`` and
    ``streams`` depend on the command combinationally.

    - ``advance``: input: take a step; 1 only while the command belongs to the engine.
    - ``last``: a step taken now is the last one; all counters restart in the next cycle.
    - ``empty``: the command has no step.
    - ``fault``: a result did not fit; stays 1 until reset.
    - ``selected``: attribute: the command belongs to this engine.
    - ``results``: attribute: number of elements that pass the post-processing lanes. The command
      takes at least the time of ⌈results / lanes⌉ steps; 0 sets no bound.
    - ``streams``: attribute: operands and result of the command.
    - ``latency``: attribute: cycles from a step to its effects; 0 without pipeline registers.
    """

    latency: int = 0
    mnemonics: tuple[str, ...] = ()
    """Instructions that the engine executes."""

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        self.limits = limits
        self.configuration = configuration
        self.command = command
        self.modules = library
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
        """Prefix of the engine's signals, clock domains and scratchpad ports."""
        return type(self).__name__.lower()

    def _register(self, name: str) -> Value:
        return self.command.register(f"EX_{name}")

    def _delay_value(self, m: Module, value: Value, stages: int) -> Value:
        return delayed(
            m, value, stages, pipelined=self.limits.pipelined, domain=self.name, name="later"
        )

    @property
    def selected(self) -> Value:
        """1 if the command belongs to this engine."""
        return self.command.is_(*self.mnemonics)
