"""Engine of OP_REDUCE, OP_SOFTMAX and OP_NORM; the lanes process consecutive elements of rows.

Stages after a step, each one cycle with pipeline registers: positions of the lanes' elements; the
elements, their scan and their row's maximum; table entries, or gains and biases; the stages of a
row's state; the result lanes; the write. Sums and extremes come from a scan that restarts at every
row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed
from amaranth.lib.memory import Memory

from dla_sim.rtl.arithmetic import rows as arithmetic
from dla_sim.rtl.building import Library, gated_clock, stage
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.ex.rows.sequence import (
    Pass,
    Place,
    Radix,
    Step,
    Task,
    add,
    choose_place,
    make_registers,
    sequence,
    small_places,
)
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, CommandView, ReadPort, Stream, WritePort, drive_clocks
from isa.ops.rows import MAXIMUM, MINIMUM, PARAMETER_BYTES, SUM, TABLE_BYTES, TABLE_ENTRIES


@dataclass(frozen=True, eq=False)
class Totals:
    """Signed sum, sum of squares, and maximum (signed, 8 bits) of some elements of a row."""

    total: Value
    squares: Value
    largest: Value

    @staticmethod
    def make_totals(value: Value, key: Value) -> Totals:
        """Return the sum, sum of squares and maximum of a row that has one element only.

        ``value`` is used in the sums, ``key`` for the largest.
        """
        return Totals(value, value * value, key)

    def register(self, name: str, *, reset_less: bool = True) -> tuple[Totals, list[Signal]]:
        """Return new signals for totals, as totals and as a list."""
        shapes = {
            "total": signed(arithmetic.SUM_BITS),
            "squares": arithmetic.SQUARE_BITS,
            "largest": signed(8),
        }
        signals = [
            Signal(shape, name=f"{name}_{part}", reset_less=reset_less)
            for part, shape in shapes.items()
        ]
        return Totals(*signals), signals

    def values(self) -> tuple[Value, Value, Value]:
        return self.total, self.squares, self.largest


def join_totals(m: Module, first: Totals, second: Totals, name: str) -> Totals:
    """Return the totals of the elements of ``first`` and ``second`` together."""
    totals, signals = first.register(name)
    larger = Mux(first.largest > second.largest, first.largest, second.largest)
    values = (first.total + second.total, first.squares + second.squares, larger)
    m.d.comb += [signal.eq(value) for signal, value in zip(signals, values, strict=True)]
    return totals


def accumulate_totals(m: Module, fresh: Value, old: Totals, new: Totals, name: str) -> Totals:
    """Return the totals of a row so far.

    These are ``new`` if it starts a row (``fresh``), otherwise the totals of ``old`` and ``new``.
    """
    totals, signals = old.register(name)
    both = join_totals(m, old, new, f"{name}_both").values()
    choices = zip(signals, new.values(), both, strict=True)
    m.d.comb += [signal.eq(Mux(fresh, alone, together)) for signal, alone, together in choices]
    return totals


def scan(
    m: Module, elements: Sequence[Totals], begins: Sequence[Value], carry: Totals, name: str
) -> list[Totals]:
    """Return for each lane the totals of its row up to and including its element.

    ``begins`` marks lanes with the first element of a row. ``carry`` holds the totals of a row that
    began before lane 0. The scan takes log2(lanes) steps (Hillis and Steele, "Data parallel
    algorithms", Communications of the ACM 29(12), 1986).
    """
    running = [accumulate_totals(m, begins[0], carry, elements[0], f"{name}_0"), *elements[1:]]
    stops: list[Value] = [Const(1, 1), *begins[1:]]  # lane 0 already includes the carry
    distance = 1
    while distance < len(running):
        lower = list(zip(running, stops, strict=True))
        for lane in range(distance, len(running)):
            own, stop = lower[lane]
            before, earlier = lower[lane - distance]
            running[lane] = accumulate_totals(m, stop, before, own, f"{name}_{distance}_{lane}")
            stops[lane] = Signal(name=f"{name}_{distance}_{lane}_stop")
            m.d.comb += stops[lane].eq(stop | earlier)
        distance *= 2
    return running


ENTRY_BYTES = TABLE_BYTES // TABLE_ENTRIES
TABLE_CENTRE = TABLE_ENTRIES - 1
_PLACE = 1
_DATA = 2
_ENTRY = 3
"""Stages after the step: positions, elements, table entries."""


@dataclass(frozen=True, eq=False)
class RowLane:
    """State of a lane in one step of a row instruction: its element and addresses.

    Attributes:
        place: position of its element.
        valid: 1 if the lane has an element.
        begins: the element is the first of its row.
        ends: the element is the last of its row.
        output: address of its result.
        parameter: address of its gain and bias.
    """

    place: Place
    valid: Value
    begins: Value
    ends: Value
    output: Value
    parameter: Value


class Rows(Engine):
    """Engine of reductions, softmax and norms.

    Its passes are those of :mod:`~dla_sim.rtl.ex.rows.sequence`.

    The module's docstring lists the stages. Memories with one word per row and one port per lane
    keep the state of rows between passes.
    """

    mnemonics = ("OP_REDUCE", "OP_SOFTMAX", "OP_NORM")

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        super().__init__(limits, configuration, command, library)
        self.reduce, self.softmax, self.norm = (command.is_(name) for name in self.mnemonics)
        self.latency = self._stage(arithmetic.STATE_LATENCY + arithmetic.LANE_LATENCY) + _ENTRY
        self.latency = self.latency if limits.pipelined else 0
        domain = self.name if limits.pipelined else None
        self.elements_in = ReadPort(
            f"{self.name}_input", limits.lanes, 1, domain, {"EX_INPUT_ADDRESS": ()}
        )
        self.entries_in = ReadPort(
            f"{self.name}_entry", limits.lanes, PARAMETER_BYTES, domain, {"EX_OPERAND_ADDRESS": ()}
        )
        self.out = WritePort(
            f"{self.name}_output", limits.lanes, 1, f"{self.name}_write", {"EX_OUTPUT_ADDRESS": ()}
        )
        self.read_ports, self.write_ports = [self.elements_in, self.entries_in], [self.out]
        self.row_bits = limits.lanes.bit_length() + 1
        self.streams = self._declare_streams()

    def _stage(self, number: int) -> int:
        return number if self.limits.pipelined else 0

    # Properties of the command

    def _plane(self, name: str) -> Value:
        """Return the distance in bytes between planes; planes of OP_NORM are adjacent."""
        plane = self._register(f"{name}_PLANE")
        dense = self._register("LENGTH")
        return Mux(self.norm | (plane == 0), dense, plane)

    def _task(self) -> Task:
        count = self._register("INPUT_CHANNELS")
        inner = self._register("LENGTH")
        radix = Radix(Mux(self.norm, inner, count), Mux(self.norm, count, inner), self.norm)
        return Task(
            radix, self._register("ROWS"), self.reduce, self.norm, (count != 0) & (inner != 0)
        )

    def _declare_streams(self) -> Sequence[Stream]:
        outer, count, inner = (
            self._register(name) for name in ("ROWS", "INPUT_CHANNELS", "LENGTH")
        )
        planes = outer * count
        places = (outer != 0) & (inner != 0)
        parameters = (
            count * Mux(self.command.field("OP_NORM", "by_row"), outer, 1) * PARAMETER_BYTES
        )
        table = Mux(self.softmax, TABLE_BYTES, Mux(self.norm, parameters, 0))
        some = places & (count != 0)
        return [
            self._make_strided_stream("INPUT", planes, inner, some),
            _stream(table != 0, self._register("OPERAND_ADDRESS"), table, table),
            self._make_strided_stream(
                "OUTPUT",
                Mux(self.reduce, outer, planes),
                inner,
                places & (self.reduce | some),
                write=True,
            ),
        ]

    def _make_strided_stream(
        self, name: str, planes: Value, inner: Value, some: Value, *, write: bool = False
    ) -> Stream:
        size = (planes - 1) * self._plane(name) + inner
        return _stream(some, self._register(f"{name}_ADDRESS"), size, planes * inner, write=write)

    # Hardware

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.configuration
        task = self._task()
        numbers = small_places(m, task.radix, self.limits.lanes)
        width = choose_place(m, numbers, config.lanes, "width")
        step = sequence(m, task, config.lanes, width, self.advance, self.last, self.row_bits)
        m.d.comb += self.empty.eq((task.outer == 0) | (~self.norm & ~task.elements))
        valid = self._valid(m)
        self._clocks(m, valid, step)
        placed = {name: self._later(m, value, 1) for name, value in vars(step).items()}
        step = Step(**placed)
        lanes = self._places(m, task, step, numbers, width, valid[self._stage(_PLACE)])
        self._data(m, task, step, lanes, valid)
        return m

    def _later(self, m: Module, value: ValueLike, stages: int) -> Value:
        held_: Value = Value.cast(value)
        for _ in range(stages):
            held_ = stage(m, held_, pipelined=self.limits.pipelined, domain=self.name)
        return held_

    def _valid(self, m: Module) -> list[Value]:
        """Return bits that mark a valid step in each pipeline stage.

        They are registers of ``sync`` with a reset.
        """
        found: list[Value] = [self.advance]
        for number in range(self.latency):
            found.append(Signal(name=f"{self.name}_valid_{number + 1}"))
            m.d.sync += found[-1].eq(found[-2])
        return found if self.limits.pipelined else [self.advance] * (_ENTRY + 1)

    def _clocks(self, m: Module, valid: Sequence[Value], step: Step) -> None:
        gated_clock(m, self.name, Cat(*valid).any())
        writes: Value = self.reduce | (step.kind == Pass.LAST)
        for _ in range(self.latency):
            later = Signal()
            m.d.sync += later.eq(writes)
            writes = later
        gated_clock(m, f"{self.name}_write", writes & valid[-1])
        drive_clocks(m, [*self.read_ports, *self.write_ports])

    def _places(
        self, m: Module, task: Task, step: Step, numbers: list[Place], width: Place, valid: Value
    ) -> list[RowLane]:
        """Return the row elements that the lanes process, and drive their addresses."""
        between = step.kind == Pass.BETWEEN
        # positions of rows: advancing by one row adds one
        down = Radix(task.radix.middle, Const(0, 1), Const(0, 1))
        rows = small_places(m, Radix(down.inner, Const(0, 1), Const(0, 1)), self.limits.lanes - 1)
        lanes = []
        for lane in range(self.limits.lanes):
            before, registers = make_registers(self.name, f"lane_{lane}", self.row_bits)
            first = Place(
                Mux(between, step.number, 0), step.middle, step.outer, Mux(between, lane, 0)
            )
            start = [
                Mux(between | step.opens, a, b)
                for a, b in zip(first.values(), before.values(), strict=True)
            ]
            row = rows[lane]
            across = (Const(0, 1), row.inner, row.middle, Const(0, 1))
            along = [
                Mux(step.opens, a, b)
                for a, b in zip(numbers[lane].values(), width.values(), strict=True)
            ]
            moved = [Mux(between, a, b) for a, b in zip(across, along, strict=True)]
            place = add(m, task.radix, Place(*start), Place(*moved), f"place_{lane}")
            with m.If(valid):
                m.d[self.name] += [
                    register.eq(value)
                    for register, value in zip(registers, place.values(), strict=True)
                ]
            lanes.append(self._lane(m, task, place, lane))
        return lanes

    def _lane(self, m: Module, task: Task, place: Place, lane: int) -> RowLane:
        """Return the row element that one lane processes, with its addresses."""
        number = Mux(self.norm, place.middle, place.inner)
        inner = Mux(self.norm, place.inner, place.middle)
        count = self._register("INPUT_CHANNELS")
        plane = Signal(ADDRESS_BITS, name=f"plane_{lane}")
        valid = Signal(name=f"valid_{lane}")
        begins = Signal()
        ends = Signal()
        output = Signal(ADDRESS_BITS)
        parameter = Signal(ADDRESS_BITS)
        by_row = self.command.field("OP_NORM", "by_row")
        deep = task.radix.deep
        m.d.comb += [
            plane.eq(place.outer * count + number),
            valid.eq((place.outer < task.outer) & (lane < self.configuration.lanes)),
            begins.eq((place.inner == 0) & ((place.middle == 0) | ~deep)),
            ends.eq(
                (place.inner + 1 == task.radix.inner)
                & ((place.middle + 1 == task.radix.middle) | ~deep)
            ),
            output.eq(
                self._register("OUTPUT_ADDRESS") + inner
                + Mux(self.reduce, place.outer, plane) * self._plane("OUTPUT")
            ),
            parameter.eq(
                self._register("OPERAND_ADDRESS") + PARAMETER_BYTES * Mux(by_row, plane, number)
            ),
            self.elements_in.address[lane].eq(
                self._register("INPUT_ADDRESS") + plane * self._plane("INPUT") + inner
            ),
            self.elements_in.enable[lane].eq(valid),
        ]  # fmt: skip
        return RowLane(Place(*place.values()), valid, begins, ends, output, parameter)

    def _data(
        self, m: Module, task: Task, step: Step, placed: list[RowLane], valid: Sequence[Value]
    ) -> None:
        step = Step(**{name: self._later(m, value, 1) for name, value in vars(step).items()})
        lanes = [self._delay_lane(m, lane, 1) for lane in placed]
        first = step.kind == Pass.FIRST
        data = [port.as_signed() for port in self.elements_in.data]
        zero = Mux(self.norm & self._centred, 0, self._register("INPUT_ZERO_POINT"))
        values = [
            self._wire(m, element - zero, signed(18), f"value_{n}")
            for n, element in enumerate(data)
        ]
        totals = self._scan(m, step, lanes, data, values, valid[self._stage(_DATA)])
        largest, row_totals = self._row_memories(
            m, lanes, totals, first & valid[self._stage(_DATA)], step
        )
        self._look_up(m, lanes, data, largest)
        entries = [Value.cast(port) for port in self.entries_in.data]
        behind = Step(**{name: self._later(m, value, 1) for name, value in vars(step).items()})
        states = self._states(m, behind, entries, row_totals, valid[self._stage(_ENTRY)])
        delay = arithmetic.STATE_LATENCY if self.limits.pipelined else 0
        for number, lane in enumerate(lanes):
            late = self._delay_lane(m, lane, 1 + delay)
            entry = self._later(m, entries[number], delay)
            value = self._later(m, values[number], 1 + delay)
            total = self._later(m, self._select_reduction(totals[number]), 1 + delay)
            results = self._results(
                m, late, self._read(m, states, late.place.row), entry, value, total
            )
            after = self._delay_lane(m, late, arithmetic.LANE_LATENCY)
            m.d.comb += [
                self.out.address[number].eq(after.output),
                self.out.enable[number].eq(after.valid & (after.ends | ~self.reduce)),
                self.out.data[number].eq(results),
            ]

    def _wire(self, m: Module, value: ValueLike, shape: object, name: str) -> Signal:
        wire = Signal(shape, name=name)
        m.d.comb += wire.eq(value)
        return wire

    def _delay_lane(self, m: Module, lane: RowLane, stages: int) -> RowLane:
        """Return the signals of a lane that later stages use, ``stages`` stages later."""
        place = Place(
            lane.place.inner,
            lane.place.middle,
            lane.place.outer,
            self._later(m, lane.place.row, stages),
        )
        rest = (
            self._later(m, value, stages)
            for value in (lane.valid, lane.begins, lane.ends, lane.output, lane.parameter)
        )
        return RowLane(place, *rest)

    def _scan(
        self,
        m: Module,
        step: Step,
        lanes: Sequence[RowLane],
        data: Sequence[Value],
        values: Sequence[Value],
        valid: Value,
    ) -> list[Totals]:
        """Return each lane's totals of its row.

        The last lane's totals carry over to the next step.
        """
        least = self.reduce & (self.command.field("OP_REDUCE", "mode") == MINIMUM)
        keys = [Mux(least, ~element, element).as_signed() for element in data]
        elements = [Totals.make_totals(value, key) for value, key in zip(values, keys, strict=True)]
        carry, registers = elements[0].register("carry")
        running = scan(m, elements, [lane.begins for lane in lanes], carry, "scan")
        final = _select_each([one.values() for one in running], self.configuration.lanes - 1)
        with m.If(valid):
            m.d[self.name] += [
                register.eq(value) for register, value in zip(registers, final, strict=True)
            ]
        return running

    def _select_reduction(self, totals: Totals) -> Value:
        """Return the integer that OP_REDUCE converts to a result."""
        mode = self.command.field("OP_REDUCE", "mode")
        extreme = Mux(mode == MAXIMUM, totals.largest, ~totals.largest).as_signed()
        return Mux(mode == SUM, totals.total, extreme - self._register("INPUT_ZERO_POINT"))

    def _memory(self, m: Module, name: str, bits: int) -> Memory:
        """Return a memory with one entry for each row of a group of rows."""
        memory = Memory(
            shape=bits, depth=max(2, 1 << (self.limits.lanes - 1).bit_length()), init=[]
        )
        m.submodules[name] = memory
        return memory

    def _write(self, m: Module, memory: Memory, address: Value, data: Value, enable: Value) -> None:
        port = memory.write_port(domain=self.name)
        m.d.comb += [port.addr.eq(address), port.data.eq(data), port.en.eq(enable)]

    def _read(self, m: Module, memory: Memory, address: Value) -> Value:
        port = memory.read_port(domain="comb")
        m.d.comb += port.addr.eq(address)
        return port.data

    def _row_memories(
        self,
        m: Module,
        lanes: Sequence[RowLane],
        totals: Sequence[Totals],
        enable: Value,
        step: Step,
    ) -> tuple[list[Value], Totals]:
        """Return the maximum of each lane's row, and the totals of the row that the step names."""
        largest = self._memory(m, "largest", 8)
        sums = self._memory(m, "sums", arithmetic.SUM_BITS + arithmetic.SQUARE_BITS)
        for lane, row in zip(lanes, totals, strict=True):
            written = enable & ~self.reduce & lane.valid & lane.ends
            self._write(m, largest, lane.place.row, row.largest, written)
            self._write(m, sums, lane.place.row, Cat(row.total, row.squares), written)
        read = self._read(m, sums, step.number)
        totals_ = Totals(
            read[: arithmetic.SUM_BITS].as_signed(), read[arithmetic.SUM_BITS :], Const(0, 1)
        )
        return [self._read(m, largest, lane.place.row).as_signed() for lane in lanes], totals_

    def _look_up(
        self, m: Module, lanes: Sequence[RowLane], data: Sequence[Value], largest: Sequence[Value]
    ) -> None:
        """Drive the addresses of table entries, or of gains and biases."""
        table = self._register("OPERAND_ADDRESS")
        for number, lane in enumerate(lanes):
            index = (TABLE_CENTRE + data[number] - largest[number])[:8]
            address = Mux(self.softmax, table + ENTRY_BYTES * index, lane.parameter)
            m.d.comb += [
                self.entries_in.address[number].eq(address),
                self.entries_in.enable[number].eq(lane.valid),
            ]

    def _states(
        self, m: Module, step: Step, entries: Sequence[Value], sums: Totals, valid: Value
    ) -> Memory:
        """Return a memory of the rows' divisors, from sums of entries or totals of elements."""
        between = valid & (step.kind == Pass.BETWEEN)
        memory = self._memory(m, "states", arithmetic.STATE_BITS + arithmetic.SUM_BITS)
        sums = Totals(*(self._later(m, value, 1) for value in sums.values()))
        count = self._register("INPUT_CHANNELS") * self._register("LENGTH")
        inputs = {
            "total": sums.total,
            "squares": sums.squares,
            "count": count,
            "centred": self._centred,
        }
        root = self._part(m, "NormRow", inputs)["state"]
        late = arithmetic.STATE_LATENCY
        rooted_state = Cat(root, self._later(m, sums.total, late))
        number = self._later(m, step.number, late)
        rooted = self._later(m, between & self.norm, late)
        summed = self._later(m, between & step.closes & self.softmax, late)
        for lane, entry in enumerate(entries):
            total = Signal(32, name=f"exponentials_{lane}", reset_less=True)
            before = Mux(step.number == 0, 0, total)
            following = self._part(m, "SoftmaxSum", {"total": before, "entry": entry[:32]})[
                "result"
            ]
            with m.If(between & self.softmax):
                m.d[self.name] += total.eq(following)
            state = self._part(m, "SoftmaxRow", {"total": following})["state"]
            if lane == 0:
                choice = Mux(rooted, number, 0), Mux(rooted, rooted_state, state), rooted | summed
            else:
                choice = Const(lane), state, summed
            self._write(m, memory, *choice)
        return memory

    def _results(
        self, m: Module, lane: RowLane, state: Value, entry: Value, value: Value, total: Value
    ) -> Value:
        count = self._register("INPUT_CHANNELS") * self._register("LENGTH")
        mean = Signal(signed(arithmetic.SUM_BITS + 2))
        m.d.comb += mean.eq(
            Mux(self._centred, count * value - state[arithmetic.STATE_BITS :].as_signed(), value)
        )
        own = state[: arithmetic.STATE_BITS]
        reduced = self._part(
            m,
            "ReduceLane",
            {"value": total, "sums": (self.command.field("OP_REDUCE", "mode") == SUM)},
        )
        share = self._part(m, "SoftmaxLane", {"entry": entry[:32], "state": own})
        moved = self._part(
            m, "NormLane", {"deviation": mean, "state": own, "gain": entry[:32], "bias": entry[32:]}
        )
        return Mux(
            self.reduce, reduced["result"], Mux(self.softmax, share["result"], moved["result"])
        )

    @property
    def _centred(self) -> Value:
        return self.command.field("OP_NORM", "centred")

    def _part(self, m: Module, name: str, inputs: dict[str, ValueLike]) -> dict[str, Signal]:
        """Add an instance of the arithmetic component ``name`` for row instructions.

        Ports named like a register of the command are connected to it.
        """
        part = arithmetic.PARTS[name]
        make = functools.partial(part, is_fixed=self.limits.fixed, pipelined=self.limits.pipelined)
        known = {port: self._register(port.upper()) for port in part.registers}
        return self.modules.instance(
            m, f"rows_{name.lower()}", make, {**known, **inputs}, domain=self.name
        )


def _stream(
    some: Value, first: Value, size: Value, nbytes: Value, *, write: bool = False
) -> Stream:
    """Return the operand or result in ``size`` bytes from ``first`` on, as the banks see it."""
    return Stream(some, first, (first + size - 1)[:ADDRESS_BITS], nbytes[:ADDRESS_BITS], write)


def _select_each(choices: Sequence[Sequence[Value]], number: Value) -> list[Value]:
    if isinstance(number, Const):
        return list(choices[int(number.value)])
    found = list(choices[0])
    for index, values in enumerate(choices[1:], start=1):
        found = [Mux(number == index, value, old) for value, old in zip(values, found, strict=True)]
    return found
