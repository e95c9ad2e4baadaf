"""The unit EX: passes a command to an engine and times the command (docs/machine.md, section 5).

A command that starts in cycle s takes its first step in cycle s + ``PREPARATION`` (in cycle s
without pipeline registers). By then the unit knows how many cycles the scratchpad banks need per
step. Fill and drain are the time that remains after the last step; they hide the time from the
start to the first step and from the last step to its results.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value

from dla_sim.rtl.building import gated_clock, stage
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import Cause, ReadPort, Stream, WritePort

PREPARATION = 2
"""Cycles from a command's start to its first step, with pipeline registers."""
COUNT_BITS = 40
"""Bits of the byte and element counts of a command."""
_DOMAIN = "ex_prepare"


@dataclass(frozen=True, eq=False)
class Prepared:
    """Properties of a command that the unit EX computes before the first step.

    Attributes:
        factor: cycles per step.
        results: elements that pass the lanes.
        reads: bytes read.
        writes: bytes written.
        empty: 1 if the command has no step.
    """

    factor: Value
    results: Value
    reads: Value
    writes: Value
    empty: Value


class ExUnit(Elaboratable):
    """The execution unit EX without its command queue.

    - ``start``: first cycle of a command.
    - ``done``: last cycle of a command.
    - ``cause``: cause of this cycle while a command executes.
    - ``fault``: a result did not fit; stays 1 until reset.
    """

    def __init__(
        self, limits: Limits, configuration: Configuration, engines: Sequence[Engine]
    ) -> None:
        self.limits = limits
        self.configuration = configuration
        self.engines = engines
        self.start = Signal(name="ex_start")
        self.done = Signal(name="ex_done")
        self.cause = Signal(4, name="ex_cause")
        self.fault = Signal(name="ex_fault")

    @property
    def read_ports(self) -> list[ReadPort]:
        """Read ports of all engines on the scratchpad."""
        return [port for engine in self.engines for port in engine.read_ports]

    @property
    def write_ports(self) -> list[WritePort]:
        return [port for engine in self.engines for port in engine.write_ports]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for engine in self.engines:
            m.submodules[engine.name] = engine
        m.d.comb += self.fault.eq(Cat(*(engine.fault for engine in self.engines)).any())
        preparing = Signal()
        if self.limits.pipelined:
            m.d.sync += preparing.eq(self.start)
            gated_clock(m, _DOMAIN, self.start | preparing)
        self._sequence(m, self._prepare(m), preparing)
        return m

    # Properties of the command

    def _select_engine(self, values: Sequence[Value]) -> Value:
        """Return the entry of ``values`` for the engine that executes the command."""
        found: Value = Const(0, 1)
        for engine, value in zip(self.engines, values, strict=True):
            found = Mux(engine.selected, value, found)
        return found

    def _streams(self) -> list[tuple[Stream, Value]]:
        """Return the command's operands and results, and for each whether it is written."""
        nothing = Stream(Const(0, 1), Const(0, 1), Const(0, 1), Const(0, 1))
        found = []
        for number in range(max((len(engine.streams) for engine in self.engines), default=0)):
            each = [
                engine.streams[number] if number < len(engine.streams) else nothing
                for engine in self.engines
            ]
            valid, first, last, nbytes = (
                self._select_engine([getattr(one, part) for one in each])
                for part in ("valid", "first", "last", "nbytes")
            )
            found.append(
                (
                    Stream(valid, first, last, nbytes),
                    self._select_engine([Const(int(one.write), 1) for one in each]),
                )
            )
        return found

    def _prepare(self, m: Module) -> Prepared:
        """Compute the properties of a command before its first step, in two pipeline stages.

        The first stage computes the banks and bytes of its streams, the second the streams per
        bank.

        A stream is a range of banks, so the largest number of streams meets in the first bank of
        one of them.
        """

        def later(value: Value, name: str) -> Signal:
            return stage(m, value, pipelined=self.limits.pipelined, domain=_DOMAIN, name=name)

        banks: list[tuple[Signal, Signal, Signal]] = []
        reads: Value = Const(0, 1)
        writes: Value = Const(0, 1)
        for number, (stream, write) in enumerate(self._streams()):
            first, last = (
                place >> self.configuration.bank_shift for place in (stream.first, stream.last)
            )
            parts = {"valid": stream.valid, "first_bank": first, "last_bank": last}
            valid, first, last = (
                later(value, f"stream_{number}_{name}") for name, value in parts.items()
            )
            banks.append((valid, first, last))
            reads += Mux(stream.valid & ~write, stream.nbytes, 0)
            writes += Mux(stream.valid & write, stream.nbytes, 0)
        factor: Value = Const(1, 1)
        crowds = [
            Mux(
                valid,
                sum(
                    (there & (low <= first) & (first <= high) for there, low, high in banks),
                    Const(0, 1),
                ),
                0,
            )
            for valid, first, _ in banks
        ]
        for full in range(1, len(banks)):
            factor += Cat(*(crowd > full * self.configuration.bank_ports for crowd in crowds)).any()
        results = self._select_engine([engine.results for engine in self.engines])
        empty = self._select_engine([engine.empty for engine in self.engines])
        counts = {"results": results, "reads": reads, "writes": writes}
        held = {
            name: later(later(value[:COUNT_BITS], f"{name}_first"), name)
            for name, value in counts.items()
        }
        return Prepared(
            later(factor, "factor"), **held, empty=later(later(empty, "empty_first"), "empty")
        )

    # Timing

    def _sequence(self, m: Module, prepared: Prepared, preparing: Value) -> None:
        """Time a command: preparation, a window of steps and waits, rest of fill and drain."""
        config = self.configuration
        pipelined = self.limits.pipelined
        begins = Signal()
        opened = Signal()
        resting = Signal()
        window = Signal()
        over = Signal()
        nothing = Signal()
        # the window may open at the next edge, or now without pipeline registers
        m.d.comb += begins.eq(preparing if pipelined else self.start)
        hidden = PREPARATION if pipelined else 0
        rest = Signal(23, name="rest")
        left = Signal(23, name="rest_left")
        m.d.comb += rest.eq(config.ex_fill + config.ex_drain - hidden)
        slot = self._slots(m, prepared, window, over, nothing)
        if pipelined:
            opening = Signal()
            m.d.sync += opening.eq(begins)
            m.d.comb += window.eq(opened | (opening & ~nothing))
            begins = opening
        else:
            m.d.comb += window.eq(opened | (begins & ~nothing))
        with m.If(window):
            m.d.sync += opened.eq(~over)
        # the remaining time begins: after this cycle, or in it if the command has no window
        ends = (window & over) | (begins & nothing)
        with m.If(window & over):
            m.d.sync += [resting.eq(rest != 0), left.eq(rest)]
        with m.Elif(begins & nothing):
            m.d.sync += [resting.eq(rest > 1), left.eq(rest - 1)]
        with m.Elif(resting):
            m.d.sync += [resting.eq(left != 1), left.eq(left - 1)]
        at_once = Mux(begins & nothing, rest <= 1, rest == 0)
        m.d.comb += self.done.eq(Mux(ends, at_once, resting & (left == 1)))
        m.d.comb += self.cause.eq(Mux(window & ~slot, Cause.SRAM, Cause.BUSY))

    def _slots(
        self, m: Module, prepared: Prepared, window: Value, over: Signal, nothing: Signal
    ) -> Signal:
        """Grant a step to the engine every ``factor`` cycles until all steps are done.

        The window also lasts until the lanes had time for all results.

        Drives ``over`` in the last cycle of the window and ``nothing`` if the command needs no
        window. Returns the slot.
        """
        config = self.configuration
        slot = Signal(name="slot")
        stepping = Signal(name="stepping")
        stepped = Signal()
        computed = Signal()
        phase = Signal(4)
        passed = Signal(COUNT_BITS + 8)
        with m.If(window):
            m.d.sync += phase.eq(Mux(phase + 1 == prepared.factor, 0, phase + 1))
        without = computed | (prepared.empty & (prepared.results == 0))
        m.d.comb += slot.eq(window & ~without & (phase == 0))
        m.d.comb += stepping.eq(slot & ~stepped & ~prepared.empty)
        for engine in self.engines:
            m.d.comb += engine.advance.eq(stepping & engine.selected)
        now_stepped = Signal()
        now_passed = Signal(COUNT_BITS + 8)
        last = self._select_engine([engine.last for engine in self.engines])
        m.d.comb += now_stepped.eq(stepped | prepared.empty | (stepping & last))
        m.d.comb += now_passed.eq(passed + Mux(slot, config.lanes, 0))
        computes = Signal()  # this cycle is the last one of the last slot, or later
        enough = now_stepped & (now_passed >= prepared.results)
        m.d.comb += computes.eq(without | (enough & (phase + 1 == prepared.factor)))
        waits = [
            (prepared.reads, config.sram_read_bytes),
            (prepared.writes, config.sram_write_bytes),
        ]
        enough_bytes: Value = Const(1, 1)
        for count, width in waits:
            moved = Signal(COUNT_BITS + 8)
            with m.If(window):
                m.d.sync += moved.eq(Mux(over, 0, moved + width))
            enough_bytes &= (width == 0) | (moved + width >= count)
        m.d.comb += over.eq(window & computes & enough_bytes)
        with m.If(window):
            m.d.sync += [
                stepped.eq(now_stepped & ~over),
                passed.eq(Mux(over, 0, now_passed)),
                computed.eq(computes & ~over),
            ]
            with m.If(over):
                m.d.sync += phase.eq(0)
        no_wait = [(count == 0) | (width == 0) for count, width in waits]
        m.d.comb += nothing.eq(prepared.empty & Cat(*no_wait).all())
        return slot
