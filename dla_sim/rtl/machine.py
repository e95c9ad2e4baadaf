"""The complete machine as the module ``dla_machine``, with one memory port and one interrupt.

It is clocked by ``clk``; ``rst`` is synchronous and lasts at least two cycles. **Cycle 0** is the
first cycle with ``rst`` 0: it begins with the last rising edge of ``clk`` that sees ``rst`` 1 and
ends with the first one that sees ``rst`` 0. All inputs of a cycle, including answers of the memory,
must be valid before its falling edge, because gated clocks use it. Reset does not clear the
scratchpad.

Fetch, processor, queues, tokens and the start and end of commands share the clock domain
``control``. It ticks only in cycles in which one of them changes, because commands execute
undisturbed in most cycles.
"""

import warnings
from collections.abc import Mapping

from amaranth.hdl import Elaboratable, Module, ResetSignal, Signal, UnusedElaboratable, Value

from dla_sim.rtl.building import Library, gated_clock, verilog_text
from dla_sim.rtl.control import REQUESTERS, Control
from dla_sim.rtl.dma import DmaUnit
from dla_sim.rtl.ex.engines import engines
from dla_sim.rtl.ex.unit import ExUnit
from dla_sim.rtl.fetch import Fetch
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, Lookup, MemoryPort, Probe, ReadPort, WritePort
from dla_sim.rtl.scratchpad import add_scratchpad, scratchpad_verilog
from isa.errors import InputError
from isa.instruction import Unit

NAME = "dla_machine"
"""Name of the top module."""


class HardwareMachine(Elaboratable):
    """The machine: control, LD, EX, ST, scratchpad and the memory port.

    Inputs:

    - ``command_address``, ``command_words`` and the open straps, sampled in the last cycle of
      reset;
    - the answers of ``memory`` and of the ``lookups`` of LD and ST, in the same cycle.

    Outputs:

    - the beats of ``memory``;
    - ``interrupt``: 1 from the cycle after ``OP_END`` on, so its first cycle number is the
      program's total;
    - ``fault``: 1 after a result did not fit or a word was no instruction; then no command starts
      or completes;
    - ``probes`` of the units, for comparing cycles with a simulation.
    """

    def __init__(self, limits: Limits, values: Mapping[str, int] | None = None) -> None:
        """Build one machine with the configuration ``values`` (``parameters.strap_values``).

        The configuration values are inputs of the machine if ``values`` is None.
        """
        self.limits = limits
        self.modules = Library()
        self.inputs = Configuration(limits, values)
        self.configuration = Configuration(limits, values, "held_")
        self.command_address = Signal(ADDRESS_BITS)
        self.command_words = Signal(32)
        self.interrupt = Signal()
        self.fault = Signal()
        self.memory = MemoryPort(limits.bus_bytes)
        self.probes = {unit: Probe(unit.name) for unit in Unit}
        self._control = Control(limits, self.configuration)
        heads = {unit: queue.head for unit, queue in self._control.queues.items()}
        self._dma = {
            unit: DmaUnit(limits, self.configuration, heads[unit], unit) for unit in REQUESTERS
        }
        self._ex = ExUnit(
            limits,
            self.configuration,
            engines(limits, self.configuration, heads[Unit.EX], self.modules),
        )

    @property
    def lookups(self) -> list[Lookup]:
        """Address decoder interfaces of the units LD and ST."""
        return [unit.lookup for unit in self._dma.values()]

    @property
    def ports(self) -> list[Value]:
        """All ports of the module except clock and reset."""
        lookups = [
            signal for lookup in self.lookups for signal in (lookup.address, lookup.constant)
        ]
        probes = [signal for probe in self.probes.values() for signal in probe.outputs]
        return [
            self.command_address, self.command_words, *self.inputs.open.values(),
            *self.memory.outputs,
            self.memory.read_data, *lookups, self.interrupt, self.fault, *probes,
        ]  # fmt: skip

    @property
    def scratchpad_ports(self) -> tuple[list[ReadPort], list[WritePort]]:
        """All scratchpad ports, of the engines, ST and LD, as read ports and write ports."""
        ports = [
            *self._ex.read_ports,
            *self._ex.write_ports,
            *(unit.port for unit in self._dma.values()),
        ]
        reads = [port for port in ports if isinstance(port, ReadPort)]
        return reads, [port for port in ports if isinstance(port, WritePort)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.control = self._control
        gated_clock(m, "control", self._control.active, cleared=True)
        self._hold(m)
        self._units(m)
        self._bus(m)
        add_scratchpad(m, *self.scratchpad_ports)
        return m

    def _hold(self, m: Module) -> None:
        """Register the machine's inputs that are constant during a run.

        Simulators evaluate logic that depends on an input at every edge.
        """
        pairs = [
            (getattr(self.configuration, name), value) for name, value in self.inputs.open.items()
        ]
        for taken, given in (
            (self._control.fetch.command_address, self.command_address),
            (self._control.fetch.command_words, self.command_words),
        ):
            held = Signal.like(given, reset_less=True)
            m.d.comb += taken.eq(held)
            pairs.append((held, given))
        with m.If(ResetSignal()):
            m.d.control += [held.eq(given) for held, given in pairs]

    def _units(self, m: Module) -> None:
        """Connect each hardware unit with its controller and its probe."""
        for unit, control in self._control.units.items():
            probe = self.probes[unit]
            works = self._ex if unit is Unit.EX else self._dma[unit]
            m.submodules[unit.name.lower()] = works
            m.d.comb += [
                works.start.eq(control.start),
                control.done.eq(works.done),
                control.cause.eq(works.cause),
                probe.start.eq(control.starts),
                probe.done.eq(control.over),
                probe.cause.eq(control.accounted),
            ]
        m.d.comb += [
            self.fault.eq(self._ex.fault | self._control.processor.fault),
            self._control.halt.eq(self.fault),
            self.interrupt.eq(self._control.processor.interrupt),
        ]

    def _bus(self, m: Module) -> None:
        """Connect the bus beat of the granted unit with the memory port."""
        control = self._control
        fetch = self._control.fetch
        requesters: tuple[Fetch | DmaUnit, ...] = (fetch, *self._dma.values())
        for unit, dma in self._dma.items():
            m.d.comb += [
                control.wants[unit].eq(dma.wants_slot),
                dma.granted.eq(control.granted[unit]),
            ]
        for requester in requesters:
            with m.If(requester.granted):
                m.d.comb += [
                    self.memory.valid.eq(requester.beat),
                    self.memory.address.eq(requester.address),
                    self.memory.count.eq(requester.count),
                ]
        store = self._dma[Unit.ST]
        m.d.comb += [
            self.memory.write.eq(store.granted),
            self.memory.write_data.eq(store.data),
            fetch.read_data.eq(self.memory.read_data),
            self._dma[Unit.LD].data.eq(self.memory.read_data),
        ]


def machine_verilog(limits: Limits, values: Mapping[str, int] | None = None) -> str:
    """Return complete Verilog: the machine, its shared modules and the scratchpad model.

    Raises:
        InputError: the machine is too large for the tools, or an instruction has no engine.
    """
    try:
        machine = HardwareMachine(limits, values)
        top = verilog_text(machine, NAME, machine.ports)
    except InputError:
        warnings.simplefilter("ignore", UnusedElaboratable)  # a rejected machine is not elaborated
        raise
    return "\n".join(
        (
            top,
            machine.modules.text,
            scratchpad_verilog(limits.sram_bytes, *machine.scratchpad_ports),
        )
    )
