"""The command fetch: chunks of command words, from the memory that holds them (docs/machine.md, sections 4 and 6)."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.bus import Slots
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, WORD_BITS

WORD_BYTES = WORD_BITS // 8
TIME_BITS = 32
"""Of the clock that measures latencies: nothing waits that long."""


class ChunkBuffer(Component):
    """A ring of bytes as large as all chunks that are held or requested: a byte's place is its address in system
    memory, modulo the size of the ring. So chunks need no places of their own, and no beat lies in two rows.

    ``put``: at the end of this cycle ``data`` is written, ``count`` bytes from ``address`` on. ``word`` is the one at
    ``word_address``, in this cycle.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__({
            "put": In(1), "address": In(ADDRESS_BITS), "count": In(range(limits.bus_bytes + 1)),
            "data": In(8 * limits.bus_bytes), "word_address": In(ADDRESS_BITS), "word": Out(WORD_BITS),
        })  # fmt: skip
        self._row_bytes = max(limits.bus_bytes, WORD_BYTES)
        self._rows = max(1, -(-limits.fetch_bytes * limits.fetch_buffers // self._row_bytes))
        self._rows = 1 << (self._rows - 1).bit_length()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = self._row_bytes.bit_length() - 1
        m.submodules.memory = memory = Memory(shape=8 * self._row_bytes, depth=self._rows, init=[])
        write, read = memory.write_port(domain="control", granularity=8), memory.read_port(domain="comb")
        place = self.address[:shift]
        m.d.comb += [
            write.addr.eq(self.address >> shift),
            write.data.eq(self.data << (place << 3)),
            write.en.eq(Mux(self.put, ((1 << self.count) - 1) << place, 0)),
            read.addr.eq(self.word_address >> shift),
            self.word.eq(read.data.word_select(self.word_address[3:shift], WORD_BITS)),
        ]
        return m


class Fetch(Component):
    """Brings chunks of command words, in order, and hands out the words.

    The program is ``command_words`` words from ``command_address`` on, both steady from reset on. ``word`` is the one
    with the number ``number``, in this cycle; with ``ready`` it is the next to be executed, and there. ``executes``: it
    is executed. On the bus: ``wants_slot`` (in a data phase), ``granted``, and in a slot that is granted ``beat`` (it
    is one), ``address``, ``count`` and the answer ``read_data``.

    What is known of chunk k: whether it was requested (it is, if fewer than ``fetch_buffers`` chunks are ahead of the
    one that executes), and when (``asked``, a time for each of as many chunks; the first ones in cycle 0).
    In the domain ``control``; while a chunk is to come, ``active``, its clock must tick.
    """

    def __init__(self, limits: Limits, configuration: Configuration) -> None:
        count = range(limits.bus_bytes + 1)
        super().__init__({
            "command_address": In(ADDRESS_BITS), "command_words": In(32),
            "number": In(32), "word": Out(WORD_BITS), "ready": Out(1), "executes": In(1), "active": Out(1),
            "wants_slot": Out(1), "granted": In(1), "beat": Out(1), "address": Out(ADDRESS_BITS), "count": Out(count),
            "read_data": In(8 * limits.bus_bytes),
        })  # fmt: skip
        self._limits, self._configuration = limits, configuration

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arrived, freed, requested, due = Signal(), Signal(), Signal(), Signal()
        self._times(m, arrived, freed, requested, due)
        moved_words = self._data_phase(m, arrived, requested, due)
        self._words(m, arrived, moved_words, freed)
        return m

    def _next(self, number: Signal) -> Value:
        """The place after ``number`` in a round of ``fetch_buffers``."""
        return Mux(number + 1 == self._configuration.fetch_buffers, 0, number + 1)

    def _times(self, m: Module, arrived: Signal, freed: Signal, requested: Signal, due: Signal) -> None:
        """``requested``: if there is a chunk to come, it was requested; ``due``: its latency is over."""
        config, buffers = self._configuration, self._limits.fetch_buffers
        time = Signal(TIME_BITS)
        asked = Array(Signal(TIME_BITS, name=f"asked_{place}") for place in range(buffers))
        coming, executing = Signal(range(buffers)), Signal(range(buffers))
        ahead = Signal(range(buffers + 1))
        latency = Mux(config.flash, config.flash_latency, config.dram_latency)
        waited = Signal(TIME_BITS)
        m.d.comb += [
            waited.eq(time - asked[coming]),
            requested.eq(ahead < config.fetch_buffers),
            due.eq(waited >= latency),
        ]
        m.d.control += [time.eq(time + 1), ahead.eq(ahead + arrived - freed)]
        with m.If(arrived):
            m.d.control += coming.eq(self._next(coming))
        with m.If(freed):
            m.d.control += [asked[executing].eq(time + 1), executing.eq(self._next(executing))]

    def _data_phase(self, m: Module, arrived: Signal, requested: Signal, due: Signal) -> Value:
        """Slots of the chunk that comes, one row of system memory. Returns its words up to this slot, this included."""
        config = self._configuration
        m.submodules.slots = slots = Slots(self._limits.bus_bytes, "slot", "control")
        total, moved = Signal(ADDRESS_BITS), Signal(range(self._limits.fetch_bytes + 1))  # bytes, of all and of it
        of_program, of_chunk = Signal(ADDRESS_BITS), Signal.like(moved)
        m.d.comb += [
            of_program.eq((self.command_words << 3) - total),
            of_chunk.eq(config.fetch_bytes - moved),
            slots.address.eq(self.command_address + total),
            slots.left.eq(Mux(of_program < of_chunk, of_program, of_chunk)),
            slots.shift.eq(Mux(config.flash, config.flash_shift, config.bus_shift)),
            slots.burst_shift.eq(Mux(config.flash, config.flash_burst_shift, config.burst_shift)),
            slots.gap.eq(Mux(config.flash, config.flash_gap, config.burst_gap)),
            slots.step.eq(self.granted),
            self.active.eq(requested & (of_program.any() | moved.any())),
            self.wants_slot.eq(self.active & due),
            arrived.eq(self.granted & slots.last),
            self.beat.eq(slots.beat),
            self.address.eq(slots.address),
            self.count.eq(slots.count),
        ]
        with m.If(self.granted):
            m.d.control += [total.eq(total + slots.count), moved.eq(Mux(slots.last, 0, moved + slots.count))]
        return (moved + slots.count) >> 3

    def _words(self, m: Module, arrived: Signal, moved_words: Value, freed: Signal) -> None:
        """``freed``: the last word of a chunk is executed in this cycle."""
        m.submodules.buffer = buffer = ChunkBuffer(self._limits)
        there = Signal(32)  # words of chunks that have arrived, not executed yet
        done = Signal(range(self._limits.fetch_bytes // WORD_BYTES + 1))  # words of this chunk, executed
        m.d.comb += [
            buffer.put.eq(self.granted & self.beat),
            buffer.address.eq(self.address),
            buffer.count.eq(self.count),
            buffer.data.eq(self.read_data),
            buffer.word_address.eq(self.command_address + (self.number << 3)),
            self.word.eq(buffer.word),
            self.ready.eq(there != 0),
            freed.eq(self.executes & (done + 1 == self._configuration.fetch_bytes >> 3)),
        ]
        m.d.control += there.eq(there + Mux(arrived, moved_words, 0) - self.executes)
        with m.If(self.executes):
            m.d.control += done.eq(Mux(freed, 0, done + 1))
