"""The units LD and ST: transfers between system memory and scratchpad (docs/machine.md, 5 to 7).

Both sides of a transfer are rows in three strided dimensions (isa/ops/dma.py). If a dimension is
dense, ``isa.access.strided`` merges its rows of system memory into one row, and bursts cross them.

The scratchpad address advances byte by byte, as many bytes per cycle as a beat has. The same
counters show after which byte a row or a dimension ends, and the system-memory side follows them.
The hardware needs no multiplication and no preparation: the first beat is ready with the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Elaboratable, Module, Mux, Signal, Value

from dla_sim.rtl.building import gated_clock
from dla_sim.rtl.bus import Slots
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import (
    ADDRESS_BITS,
    Cause,
    CommandView,
    Lookup,
    ReadPort,
    WritePort,
    drive_clocks,
)
from isa.access import Space
from isa.instruction import Unit
from isa.ops.dma import side_registers


@dataclass(frozen=True, eq=False)
class Side:
    """Registers that describe the source or the destination of a DMA transfer.

    ``address`` is its first byte and ``nbytes`` the bytes of a row. ``counts`` and ``strides`` give
    the number of rows and their distance in bytes, by dimension, innermost first.
    """

    address: Value
    nbytes: Value
    counts: tuple[Value, ...]
    strides: tuple[Value, ...]


def side_of(command: CommandView, unit: Unit, space: Space) -> Side:
    """Return the registers that an instruction declares for one memory of a DMA transfer."""
    address, nbytes, dimensions = side_registers(unit, space)
    value = command.register
    pairs = [(value(count), value(stride)) for count, stride in dimensions[::-1]]
    return Side(
        value(address),
        value(nbytes),
        tuple(count for count, _ in pairs),
        tuple(stride for _, stride in pairs),
    )


def advance_begins(
    begins: Sequence[Value], strides: Sequence[Value], over: Sequence[Value]
) -> list[Value]:
    """Return each dimension's next start address, innermost first, with a single adder.

    The innermost unfinished dimension advances by its stride; the dimensions within it restart at
    the new address.

    Args:
        begins: each dimension's current start address.
        strides: each dimension's stride.
        over: entry d is 1 if dimensions 0 to d are all at their ends.
    """
    begin = begins[0]
    stride = strides[0]
    for number, ended in enumerate(over[: len(begins) - 1], start=1):
        begin = Mux(ended, begins[number], begin)
        stride = Mux(ended, strides[number], stride)
    next_begin = (begin + stride)[: len(begins[0])]
    moves = [Const(1, 1), *over]
    return [Mux(moving, next_begin, begin) for moving, begin in zip(moves, begins, strict=False)]


@dataclass(frozen=True, eq=False)
class Walk:
    """Position of a byte in a transfer.

    Each field has one entry per dimension, the bytes of a row first.

    ``begins`` holds start addresses in the scratchpad; the first one is the byte's own address.
    ``left`` counts the remaining positions, including this one. ``renewed`` tells whether the
    dimension restarted within this beat.
    """

    begins: tuple[Value, ...]
    left: tuple[Value, ...]
    renewed: tuple[Value, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return *self.begins, *self.left, *self.renewed

    def advance_by_byte(
        self, counts: Sequence[Value], strides: Sequence[Value]
    ) -> tuple[Walk, list[Value]]:
        """Return the position of the transfer's next byte, and the dimensions that end here.

        Entry d of the list is 1 if dimensions 0 to d all end at this byte.
        """
        over: list[Value] = []
        left: list[Value] = []
        renewed: list[Value] = []
        moves: Value = Const(1, 1)
        for places, again, count in zip(self.left, self.renewed, counts, strict=True):
            ends = moves & (places == 1)
            left.append(Mux(moves, Mux(places == 1, count, places - 1), places)[: len(places)])
            renewed.append(again | ends)
            over.append(ends)
            moves = ends
        return Walk(
            tuple(advance_begins(self.begins, strides, over)), tuple(left), tuple(renewed)
        ), over


class Transfer(Elaboratable):
    """Bus slots of a command's transfer; each granted slot (``step``) advances it.

    The outputs of a ``Transfer`` component are combinational. Its clock domain ``domain`` has a
    reset and ticks at least at the end of every slot.

    - ``shift``, ``burst_shift``, ``gap``: word size, burst size and burst gap of the memory, as in
      :class:`Slots`.
    - ``step``: the slot of this cycle is granted.
    - ``empty``: the transfer has no slot.
    - ``last``: this slot is the last slot of the transfer.
    - ``beat``: this slot is a beat.
    - ``address``, ``count``: first byte in system memory, and number of bytes, of the beat.
    - ``lanes``: scratchpad address of each byte of the beat.
    """

    def __init__(
        self, bus_bytes: int, sram_bytes: int, command: CommandView, unit: Unit, domain: str
    ) -> None:
        self.domain = domain
        self.most = bus_bytes + 1
        self.memory = side_of(command, unit, "dram")
        self.scratchpad = side_of(command, unit, "sram")
        self.sram_bits = max(1, (sram_bytes - 1).bit_length())
        self.slots = Slots(bus_bytes, f"{unit.name.lower()}_slots", domain)
        self.shift, self.burst_shift, self.gap = (
            self.slots.shift,
            self.slots.burst_shift,
            self.slots.gap,
        )
        self.step, self.beat, self.count = self.slots.step, self.slots.beat, self.slots.count
        self.address = self.slots.address
        self.empty = Signal()
        self.last = Signal()
        self.lanes = [Signal(self.sram_bits, name=f"lane_{lane}") for lane in range(bus_bytes)]
        self._under_way = Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.slots = self.slots
        over = self._walk(m)
        self._rows(m, over)
        side = self.memory
        ended = Signal()
        all_over = self._select_last_byte(m, [ends[-1] for ends in over], "all_over")
        m.d.comb += [
            self.empty.eq(Cat(nothing == 0 for nothing in (side.nbytes, *side.counts)).any()),
            self.last.eq(self.slots.last & (all_over | ended)),
        ]
        with m.If(self.step):
            m.d[self.domain] += [
                self._under_way.eq(~self.last),
                ended.eq((ended | all_over) & ~self.last),
            ]
        return m

    def _hold_value(self, first: Value, name: str) -> tuple[Value, Signal]:
        """Return a value that is ``first`` until the first step, and its register.

        After the first step the value is that of the register.
        """
        register = Signal(first.shape(), reset_less=True, name=name)
        return Mux(self._under_way, register, first), register

    def _select_last_byte(self, m: Module, values: Sequence[Value], name: str) -> Signal:
        """Return the entry of ``values`` (one per lane) for the last byte of the beat.

        The result is 0 in a wait slot.
        """
        chosen = Signal(values[0].shape(), name=name)
        with m.Switch(self.count):
            for lane, value in enumerate(values):
                with m.Case(lane + 1):
                    m.d.comb += chosen.eq(value)
        return chosen

    # Scratchpad side

    def _walk(self, m: Module) -> list[list[Value]]:
        """Advance the scratchpad position of a transfer through every byte of a beat.

        Return for each lane and dimension d whether dimensions 0 to d end there.

        Counters within a beat are clamped to ``most``, because a larger remainder cannot end within
        the beat.
        """
        side = self.scratchpad
        bits = self.sram_bits
        counts = [side.nbytes[: bits + 1], *side.counts]
        strides = [Const(1, 1), *(stride[:bits] for stride in side.strides)]
        begins = [
            self._hold_value(side.address[:bits], f"begin_{number}")
            for number in range(len(counts))
        ]
        left = [self._hold_value(count, f"left_{number}") for number, count in enumerate(counts)]
        few = [self._clamp_count(count) for count in counts]
        place = Walk(
            tuple(now for now, _ in begins),
            tuple(self._clamp_count(now) for now, _ in left),
            (Const(0, 1),) * 4,
        )
        places = [place]
        over = []
        for number, lane in enumerate(self.lanes):
            m.d.comb += lane.eq(place.begins[0])
            following, ends = place.advance_by_byte(few, strides)
            place = self._name_walk(m, following, number + 1)
            places.append(place)
            over.append(ends)
        last = self._advance_by_beat(m, places)
        with m.If(self.step):
            m.d[self.domain] += [
                register.eq(now) for (_, register), now in zip(begins, last.begins, strict=True)
            ]
            for number, (now, register) in enumerate(left):
                beyond, again_beyond = (
                    many - self._clamp_count(many) for many in (now, counts[number])
                )
                m.d[self.domain] += register.eq(
                    Mux(last.renewed[number], again_beyond, beyond) + last.left[number]
                )
        return over

    def _clamp_count(self, value: Value) -> Value:
        """Return the smaller of a count and the largest number of bytes in a beat."""
        return Mux(value < self.most, value, self.most)[: self.most.bit_length()]

    def _name_walk(self, m: Module, walk: Walk, number: int) -> Walk:
        signals = [
            Signal(value.shape(), name=f"walk_{number}_{place}")
            for place, value in enumerate(walk.values)
        ]
        m.d.comb += [signal.eq(value) for signal, value in zip(signals, walk.values, strict=True)]
        return Walk(tuple(signals[:4]), tuple(signals[4:8]), tuple(signals[8:]))

    def _advance_by_beat(self, m: Module, places: Sequence[Walk]) -> Walk:
        """Return the transfer's position after this beat; a wait slot does not change it."""
        behind = self._name_walk(m, places[0], len(places))
        with m.Switch(self.count):
            for count, place in enumerate(places[1:], start=1):
                with m.Case(count):
                    m.d.comb += [
                        signal.eq(value)
                        for signal, value in zip(behind.values, place.values, strict=True)
                    ]
        return behind

    # System memory side

    def _rows(self, m: Module, over: Sequence[Sequence[Value]]) -> None:
        """Track the start of each row of bursts and how many of the row's bytes have been moved."""
        side = self.memory
        begins = [
            self._hold_value(side.address, f"row_begin_{number}")
            for number in range(len(side.strides))
        ]
        moved = Signal(ADDRESS_BITS + 1)
        breaks = self._find_breaks(m, over, moved)
        left = Signal(range(self.most + 1))
        m.d.comb += [
            left.eq(self._first(breaks)),
            self.slots.left.eq(left),
            self.slots.address.eq(begins[0][0] + moved),
        ]
        crossed = self._select_last_byte(m, [Cat(ends[1:]) for ends in over], "crossed")
        following = advance_begins([now for now, _ in begins], side.strides, list(crossed))
        with m.If(self.step & self.beat):
            m.d[self.domain] += moved.eq(Mux(self.slots.closes, 0, moved + self.count))
            with m.If(self.slots.closes):
                m.d[self.domain] += [
                    register.eq(now) for (_, register), now in zip(begins, following, strict=True)
                ]
            with m.Else():
                m.d[self.domain] += [register.eq(now) for now, register in begins]

    def _first(self, lanes: Sequence[Value]) -> Value:
        """Return the number of lanes up to and including the first whose flag is 1.

        The result is ``most`` if no lane is 1.
        """
        found: Value = Const(self.most, self.most.bit_length())
        for number, lane in reversed(list(enumerate(lanes, start=1))):
            found = Mux(lane, number, found)
        return found

    def _find_breaks(
        self, m: Module, over: Sequence[Sequence[Value]], moved: Signal
    ) -> list[Value]:
        """Return for each lane of a beat whether its byte is the last of a row of bursts.

        The row continues if the advancing dimension and all dimensions within it are dense. A
        dimension is dense if its stride equals the bytes moved of the row when the inner dimensions
        end for the first time. A dimension with a count of one never advances.
        """
        side = self.memory
        ends: list[Value] = [lane[-1] for lane in over]
        for number, (count, stride) in enumerate(zip(side.counts, side.strides, strict=True)):
            within = [lane[number] for lane in over]
            first = self._first(within)
            dense = Signal()
            known = Signal()
            known_dense = Signal()
            # computed in parallel with the lanes, not after them
            missing = (stride - moved)[: len(moved)]
            m.d.comb += dense.eq((count == 1) | Mux(known, known_dense, missing == first))
            with m.If(self.step):
                m.d[self.domain] += known.eq((known | (first <= self.count)) & ~self.last)
                m.d[self.domain] += known_dense.eq(dense)
            ends = [end | (lane & ~dense) for end, lane in zip(ends, within, strict=True)]
        return ends


PHASES = {
    Unit.LD: ("setup", "latency", "data", "drain"),
    Unit.ST: ("setup", "data", "latency", "drain"),
}
"""Phases of a command, in order."""


class DmaUnit(Elaboratable):
    """The unit LD or ST without its command queue.

    A ``DmaUnit`` accesses the scratchpad through its ``port``. With ``lookup`` it asks whether the
    flash or the main memory contains the bytes of a transfer.

    - ``start``: first cycle of a command.
    - ``done``: last cycle of a command.
    - ``cause``: cause of this cycle while a command executes.
    - ``wants_slot``: the unit is in its data phase.
    - ``granted``: the unit gets the bus slot of this cycle.
    - ``beat``: in a granted slot: bytes move in this slot.
    - ``address``, ``count``: first byte in system memory, and number of bytes, of the beat.
    - ``data``: bytes of the beat: an input of LD, an output of ST.
    """

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, unit: Unit
    ) -> None:
        name = unit.name.lower()
        self.configuration = configuration
        self.command = command
        self.unit = unit
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
        """Build the logic of the DMA unit LD or ST.

        Registers that only change with slots are clocked only by granted slots.
        """
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
        """Return whether a DMA transfer uses the flash, and the latency of the memory it uses.

        Set the slots' constants.
        """
        config = self.configuration
        transfer = self.transfer
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
        """Step through setup, latency, data and drain of a DMA transfer, skipping empty phases.

        Return by name which phase this cycle is in.
        """
        timed = {
            "setup": self.configuration.dma_setup,
            "latency": latency,
            "drain": self.configuration.dma_drain,
        }
        there = {name: length != 0 for name, length in timed.items()} | {
            "data": ~self.transfer.empty
        }
        entered = {name: Signal(name=f"in_{name}") for name in there}
        now = {name: Signal(name=f"now_{name}") for name in there}
        elapsed = Signal(21)
        length = Signal(21)
        ends = Signal(name="phase_ends")
        arrives = self.start
        leaves = Const(0, 1)
        for name in PHASES[self.unit]:
            m.d.comb += now[name].eq(entered[name] | (arrives & there[name]))
            m.d.sync += entered[name].eq(Mux(ends, leaves & there[name], now[name]))
            arrives = arrives & ~there[name]
            leaves = (leaves & ~there[name]) | now[name]
        m.d.comb += [
            length.eq(
                Mux(now["setup"], timed["setup"], Mux(now["drain"], timed["drain"], latency))
            ),
            ends.eq(Mux(now["data"], self.granted & self.transfer.last, elapsed + 1 == length)),
            self.done.eq(arrives | (ends & leaves)),
        ]
        counting = Cat(now[name] for name in timed).any()
        m.d.sync += elapsed.eq(Mux(counting & ~ends, elapsed + 1, 0))
        return dict(now)

    def _move(self, m: Module) -> None:
        """Connect the bytes of a beat between the scratchpad port and the bus."""
        moves = Cat(lane < self.count for lane in range(len(self.port.address)))
        pairs = zip(self.port.address, self.transfer.lanes, strict=True)
        m.d.comb += [address.eq(lane) for address, lane in pairs]
        if isinstance(self.port, ReadPort):
            m.d.comb += [self.port.enable.eq(moves), self.data.eq(Cat(*self.port.data))]
        else:
            moved = Mux(self.wants_slot, moves, 0)
            m.d.comb += [
                enable.eq(bit) for enable, bit in zip(self.port.enable, moved, strict=True)
            ]
            m.d.comb += Cat(*self.port.data).eq(self.data)
