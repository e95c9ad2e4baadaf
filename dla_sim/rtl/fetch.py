"""Command fetch: reads chunks of command words from system memory (docs/machine.md, 4 and 6)."""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from dla_sim.rtl.bus import Slots
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, WORD_BITS

WORD_BYTES = WORD_BITS // 8
TIME_BITS = 32
"""Bits of the clock that measures latencies; no request waits longer than the clock counts."""


class ChunkBuffer(Component):
    """Ring buffer for all chunks of command words that are stored or requested.

    The chunk buffer stores a byte at its system memory address modulo the size of the ring. It
    therefore needs no table of chunks, and no beat crosses two rows of the buffer.

    - ``put``: write ``count`` bytes at the end of this cycle.
    - ``address``, ``count``: first byte and number of the bytes to write.
    - ``data``: bytes to write.
    - ``word_address``: address of the command word to read.
    - ``word``: command word at ``word_address``, in the same cycle.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__({
            "put": In(1), "address": In(ADDRESS_BITS), "count": In(range(limits.bus_bytes + 1)),
            "data": In(8 * limits.bus_bytes), "word_address": In(ADDRESS_BITS),
            "word": Out(WORD_BITS),
        })  # fmt: skip
        self._row_bytes = max(limits.bus_bytes, WORD_BYTES)
        self._rows = max(1, -(-limits.fetch_bytes * limits.fetch_buffers // self._row_bytes))
        self._rows = 1 << (self._rows - 1).bit_length()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = self._row_bytes.bit_length() - 1
        m.submodules.memory = memory = Memory(shape=8 * self._row_bytes, depth=self._rows, init=[])
        write = memory.write_port(domain="control", granularity=8)
        read = memory.read_port(domain="comb")
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
    """Command fetch: reads chunks of command words in order and delivers the words.

    The command fetch requests the next chunk while it stores fewer than ``fetch_buffers`` chunks.
    The array ``asked`` stores the cycle of each request; the first requests are in cycle 0. The
    command fetch is in the clock domain ``control``, whose clock must tick while ``active`` is 1.

    - ``command_address``: first byte of the program's command words; constant after reset.
    - ``command_words``: number of command words of the program; constant after reset.
    - ``number``: index of the word to deliver.
    - ``word``: word with the index ``number``, in the same cycle.
    - ``ready``: this word has arrived and is the next to execute.
    - ``executes``: this word is executed in this cycle.
    - ``active``: a chunk is expected: the clock of ``control`` must tick.
    - ``wants_slot``: the fetch is in a data phase.
    - ``granted``: the fetch gets the bus slot of this cycle.
    - ``beat``: in a granted slot: the slot is a beat.
    - ``address``, ``count``: first byte and number of bytes of the beat.
    - ``read_data``: answer of the memory in the same cycle.
    """

    def __init__(self, limits: Limits, configuration: Configuration) -> None:
        count = range(limits.bus_bytes + 1)
        super().__init__({
            "command_address": In(ADDRESS_BITS), "command_words": In(32),
            "number": In(32), "word": Out(WORD_BITS), "ready": Out(1), "executes": In(1),
            "active": Out(1),
            "wants_slot": Out(1), "granted": In(1), "beat": Out(1), "address": Out(ADDRESS_BITS),
            "count": Out(count),
            "read_data": In(8 * limits.bus_bytes),
        })  # fmt: skip
        self._limits = limits
        self._configuration = configuration

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arrived = Signal()
        freed = Signal()
        requested = Signal()
        due = Signal()
        self._times(m, arrived, freed, requested, due)
        moved_words = self._data_phase(m, arrived, requested, due)
        self._words(m, arrived, moved_words, freed)
        return m

    def _next(self, number: Signal) -> Value:
        """Return the index of the fetch buffer after ``number``, modulo ``fetch_buffers``."""
        return Mux(number + 1 == self._configuration.fetch_buffers, 0, number + 1)

    def _times(
        self, m: Module, arrived: Signal, freed: Signal, requested: Signal, due: Signal
    ) -> None:
        """Drive flags that tell whether the next command chunk is requested and has arrived.

        ``requested``: the next chunk, if any, is requested. ``due``: its latency is over.
        """
        config = self._configuration
        buffers = self._limits.fetch_buffers
        time = Signal(TIME_BITS)
        asked = Array(Signal(TIME_BITS, name=f"asked_{place}") for place in range(buffers))
        coming = Signal(range(buffers))
        executing = Signal(range(buffers))
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
        """Divide the next chunk, one row of system memory, into slots.

        Returns the number of its words that have arrived, including this slot's.
        """
        config = self._configuration
        m.submodules.slots = slots = Slots(self._limits.bus_bytes, "slot", "control")
        # bytes moved, of the program and of this chunk
        total = Signal(ADDRESS_BITS)
        moved = Signal(range(self._limits.fetch_bytes + 1))
        of_program = Signal(ADDRESS_BITS)
        of_chunk = Signal.like(moved)
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
            m.d.control += [
                total.eq(total + slots.count),
                moved.eq(Mux(slots.last, 0, moved + slots.count)),
            ]
        return (moved + slots.count) >> 3

    def _words(self, m: Module, arrived: Signal, moved_words: Value, freed: Signal) -> None:
        """Deliver the command words of fetched chunks to the processor.

        Drive ``freed`` in the cycle that executes the last word of a chunk.
        """
        m.submodules.buffer = buffer = ChunkBuffer(self._limits)
        there = Signal(32)  # words of arrived chunks, not executed yet
        # executed words of this chunk
        done = Signal(range(self._limits.fetch_bytes // WORD_BYTES + 1))
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
