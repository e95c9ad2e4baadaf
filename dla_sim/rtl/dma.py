"""The units LD and ST: transfers between system memory and scratchpad (docs/machine.md, sections 5 to 7)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value

from dla_sim.rtl.building import gated_clock
from dla_sim.rtl.commands import CommandView
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, Cause, Lookup, ReadPort, WritePort, drive_clocks
from dla_sim.rtl.transfers import Transfer
from isa.instruction import Unit
from isa.ops.dma import side_registers

PHASES = {Unit.LD: ("setup", "latency", "data", "drain"), Unit.ST: ("setup", "data", "latency", "drain")}
"""What a command consists of, in order."""


class DmaUnit(Elaboratable):
    """LD or ST without its queue. ``start``: in the command's first cycle; ``done``: in its last; ``cause`` of a cycle
    between them.

    ``wants_slot`` in its data phase, answered by ``granted``. If it is granted and ``beat``, ``count`` bytes from
    ``address`` of the system memory on move in that cycle: to LD from ``data``, from ST to ``data``. The bytes go
    through ``port`` on the scratchpad. ``lookup`` asks which memory it is.
    """

    def __init__(self, limits: Limits, configuration: Configuration, command: CommandView, unit: Unit) -> None:
        name = unit.name.lower()
        self.configuration, self.command, self.unit = configuration, command, unit
        self.domain = f"{name}_transfer"
        self.start = Signal(name=f"{name}_start")
        self.done = Signal(name=f"{name}_done")
        self.cause = Signal(4, name=f"{name}_cause")
        self.wants_slot = Signal(name=f"{name}_wants_slot")
        self.granted = Signal(name=f"{name}_granted")
        self.lookup = Lookup(unit.name)
        self.transfer = Transfer(limits.bus_bytes, limits.sram_bytes, command, unit, self.domain)
        self.beat, self.count = self.transfer.beat, self.transfer.count
        self.address = Signal(ADDRESS_BITS, name=f"{name}_beat_address")
        self.data = Signal(8 * limits.bus_bytes, name=f"{name}_data")
        self.port: ReadPort | WritePort = (
            WritePort(name, limits.bus_bytes, 1, self.domain)
            if unit is Unit.LD
            else ReadPort(name, limits.bus_bytes, 1, None)
        )

    def elaborate(self, platform: object) -> Module:
        """The hardware. What moves on with every slot ticks with slots only."""
        m = Module()
        gated_clock(m, self.domain, self.granted, cleared=True)
        drive_clocks(m, [self.port])
        m.submodules.transfer = self.transfer
        flash, latency = self._memory(m)
        now = self._sequence(m, latency)
        m.d.comb += [
            self.wants_slot.eq(now["data"]),
            self.transfer.step.eq(self.granted),
            self.address.eq(self.transfer.address),
        ]
        waits = now["latency"] | (now["data"] & ~self.beat)
        cause = Mux(waits, Mux(flash, Cause.FLASH, Cause.DRAM), Cause.BUSY)
        m.d.comb += self.cause.eq(Mux(now["data"] & ~self.granted, Cause.BUS, cause))
        self._move(m)
        return m

    def _memory(self, m: Module) -> tuple[Value, Value]:
        """Whether the transfer is one of the flash, and the latency of its memory, whose constants the slots get."""
        config, transfer = self.configuration, self.transfer
        address, _, _ = side_registers(self.unit, "dram")
        flash = Signal()
        m.d.comb += [
            self.lookup.address.eq(self.command.register(address)),
            flash.eq(config.flash & self.lookup.constant),
            transfer.shift.eq(Mux(flash, config.flash_shift, config.bus_shift)),
            transfer.burst_shift.eq(Mux(flash, config.flash_burst_shift, config.burst_shift)),
            transfer.gap.eq(Mux(flash, config.flash_gap, config.burst_gap)),
        ]
        return flash, Mux(flash, config.flash_latency, config.dram_latency)

    def _sequence(self, m: Module, latency: Value) -> dict[str, Value]:
        """From phase to phase, past those of no cycles. Returns which of them this cycle belongs to, by name."""
        timed = {"setup": self.configuration.dma_setup, "latency": latency, "drain": self.configuration.dma_drain}
        there = {name: length != 0 for name, length in timed.items()} | {"data": ~self.transfer.empty}
        entered = {name: Signal(name=f"in_{name}") for name in there}
        now = {name: Signal(name=f"now_{name}") for name in there}
        elapsed, length = Signal(21), Signal(21)
        ends = Signal(name="phase_ends")
        arrives, leaves = self.start, Const(0, 1)
        for name in PHASES[self.unit]:
            m.d.comb += now[name].eq(entered[name] | (arrives & there[name]))
            m.d.sync += entered[name].eq(Mux(ends, leaves & there[name], now[name]))
            arrives = arrives & ~there[name]
            leaves = (leaves & ~there[name]) | now[name]
        m.d.comb += [
            length.eq(Mux(now["setup"], timed["setup"], Mux(now["drain"], timed["drain"], latency))),
            ends.eq(Mux(now["data"], self.granted & self.transfer.last, elapsed + 1 == length)),
            self.done.eq(arrives | (ends & leaves)),
        ]
        counting = Cat(now[name] for name in timed).any()
        m.d.sync += elapsed.eq(Mux(counting & ~ends, elapsed + 1, 0))
        return dict(now)

    def _move(self, m: Module) -> None:
        """The bytes of a beat, between the port on the scratchpad and the bus."""
        moves = Cat(lane < self.count for lane in range(len(self.port.address)))
        pairs = zip(self.port.address, self.transfer.lanes, strict=True)
        m.d.comb += [address.eq(lane) for address, lane in pairs]
        if isinstance(self.port, ReadPort):
            m.d.comb += [self.port.enable.eq(moves), self.data.eq(Cat(*self.port.data))]
        else:
            moved = Mux(self.wants_slot, moves, 0)
            m.d.comb += [enable.eq(bit) for enable, bit in zip(self.port.enable, moved, strict=True)]
            m.d.comb += Cat(*self.port.data).eq(self.data)
