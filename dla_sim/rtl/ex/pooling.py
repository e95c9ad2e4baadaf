"""Engine of ``OP_POOL``: one channel per (ic, oc) pair of the array and one column per ow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike, signed

from dla_sim.rtl.arithmetic.elementwise import extreme
from dla_sim.rtl.arithmetic.integers import clamp_signed, wire
from dla_sim.rtl.arithmetic.lane import Requantise, command_constants
from dla_sim.rtl.arithmetic.pooling import AverageResult, AverageTerm, RunningSum, mean_multiplier
from dla_sim.rtl.building import Library, choose_clock, gated_clock, stage
from dla_sim.rtl.ex.counting import Level, Nest, NestWalk, accumulate_strides, delayed, multiples
from dla_sim.rtl.ex.engine import TABLE_SHIFT, Engine, Steps, Tables
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, CommandView, ReadPort, Stream, WritePort, drive_clocks
from isa.ops.lookup import LOOK_UP
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE, MAX

NAME = "OP_POOL"
COLUMN_OF_KERNEL, ROW_OF_KERNEL, COLUMN, ROW, BLOCK = range(5)
"""Loop levels, innermost first."""
COUNT_BITS = 22
SUM_BITS = 40
"""Bits of a window's tap count and of the sum of its values."""
LOWEST = -128


Fold = Callable[[Module, Value, Value], Value]


@dataclass(frozen=True, eq=False)
class Taps:
    """Elements that pooling lanes of one ``kind`` process in a step, with their flags.

    The kind has its own clock. ``values`` (one per lane) and ``inside`` (one bit per column, 1
    within the plane) are those of stage 3. The others belong to the stage of the sums: ``counted``
    equals ``inside``, ``first`` marks the first tap of a window, and ``valid`` marks a step.
    """

    kind: str
    values: Sequence[Value]
    inside: Value
    counted: Value
    first: Value
    valid: Value


class Pool(Engine):
    """Engine of pooling instructions.

    It runs five nested loops over channel blocks, rows, groups of columns and window taps.

    Stages: 0 counts; 1 computes addresses and starts the read; 2 routes taps to the lanes of their
    mode; 3 computes terms; then the taps are combined. The last taps continue to results, tables
    and the write.
    """

    mnemonics = (NAME,)

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        super().__init__(limits, configuration, command, library)
        self.pipelined = limits.pipelined
        self.fixed = limits.fixed
        self.channels = limits.ic * limits.oc
        self.columns = limits.ow
        self.lanes = self.channels * self.columns
        kind = {"fixed": limits.fixed, "pipelined": limits.pipelined}
        self.makes: dict[str, Any] = {
            "average_term": partial(AverageTerm, **kind),
            "average_result": partial(AverageResult, **kind),
            "pool_requantise": partial(Requantise, **kind, bits=SUM_BITS, shift_bits=8),
        }
        if not limits.fixed:
            self.makes["running_sum"] = partial(RunningSum, fixed=False)
        self.made = {name: library.component(name, make) for name, make in self.makes.items()}
        self.term = self.made["average_term"].latency
        self.work = max(self.made[name].latency for name in ("average_result", "pool_requantise"))
        self.sums = 3 + self.term
        """Stage of the sums, at which taps are combined."""
        self.writes = self.sums + self.work + 2
        self.latency = self.writes if self.pipelined else 0
        domain = self.name if self.pipelined else None
        self.read = ReadPort(f"{self.name}_read", self.lanes, 1, domain, {"EX_INPUT_ADDRESS": ()})
        self.tables = Tables(self.name, self.lanes, domain, {"EX_TABLE_ADDRESS": ()})
        self.write = WritePort(
            f"{self.name}_write", self.lanes, 1, f"{self.name}_write", {"EX_OUTPUT_ADDRESS": ()}
        )
        self.read_ports, self.write_ports = [self.read, self.tables.port], [self.write]
        self._understand()

    # Properties of the command

    def _understand(self) -> None:
        """Derive all signals of a pooling command that are constant during its execution."""
        mode = self.command.field(NAME, "mode")
        self.is_max = mode == MAX
        self.is_average = mode == AVERAGE
        self.is_global = mode == GLOBAL_AVERAGE
        self.look_up = self.command.field(NAME, LOOK_UP.name)
        planes = {}
        for side in ("INPUT", "OUTPUT"):
            dense = (self._register(f"{side}_HEIGHT") * self._register(f"{side}_WIDTH"))[
                :ADDRESS_BITS
            ]
            plane = self._register(f"{side}_PLANE")
            planes[side] = dense, Mux(plane == 0, dense, plane)
        (inputs, self.input_plane), (outputs, self.output_plane) = planes["INPUT"], planes["OUTPUT"]
        self.elements = inputs
        tables = Mux(
            self.look_up == 2, self._register("OUTPUT_CHANNELS") << TABLE_SHIFT, 1 << TABLE_SHIFT
        )
        table = self._register("TABLE_ADDRESS")
        self.streams = [
            self._planes("INPUT", inputs, self.input_plane),
            Stream(self.look_up != 0, table, (table + tables - 1)[:ADDRESS_BITS], tables),
            self._planes("OUTPUT", outputs, self.output_plane, write=True),
        ]
        self.results = Mux(
            self.look_up == 0, 0, (outputs * self._register("OUTPUT_CHANNELS"))[:ADDRESS_BITS]
        )

    def _planes(self, side: str, used: Value, plane: Value, *, write: bool = False) -> Stream:
        first = self._register(f"{side}_ADDRESS")
        channels = self._register(f"{side}_CHANNELS")
        last = (first + (channels - 1) * plane + used - 1)[:ADDRESS_BITS]
        return Stream(Const(1, 1), first, last, (channels * used)[:ADDRESS_BITS], write)

    # Hardware

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.configuration
        block = wire(m, config.ic * config.oc, "block")
        sizes = [
            self._register("KERNEL_WIDTH"),
            self._register("KERNEL_HEIGHT"),
            self._register("OUTPUT_WIDTH"),
            self._register("OUTPUT_HEIGHT"),
        ]
        steps: list[ValueLike] = [1, 1, config.ow, 1, block]
        levels = [
            Level(size, step)
            for size, step in zip([*sizes, self._register("OUTPUT_CHANNELS")], steps, strict=True)
        ]
        nest = Nest(m, self.name, self.advance, levels, domain=self.name)
        m.d.comb += self.last.eq(nest.last)
        self._clocks(m, nest)
        walk = NestWalk(self.advance, nest.first, nest.ends).later(
            m, 1, pipelined=self.pipelined, domain=self.name
        )
        number_of = {
            ROW_OF_KERNEL: Cat(
                nest.index[COLUMN_OF_KERNEL] == 0, nest.index[ROW_OF_KERNEL] == 0
            ).all(),
            COLUMN: self._count_lanes_within(m, levels[COLUMN], nest.index[COLUMN], self.columns),
            BLOCK: self._count_lanes_within(m, levels[BLOCK], nest.index[BLOCK], self.channels),
        }
        first, columns, channels = (self._delay_value(m, value, 1) for value in number_of.values())
        there = wire(
            m,
            Cat(
                *(c < channels for c in range(self.channels)),
                *(w < columns for w in range(self.columns)),
            ),
        )
        inside = self._read(m, walk, steps, there)
        taps = self._delay_value(m, Cat(walk.valid, first, inside), 1)
        results = self._pool(m, taps)
        self._finish(m, results, walk, steps, there, self._delay_value(m, nest.index[BLOCK], 1))
        return m

    def _count_lanes_within(self, m: Module, level: Level, index: Value, most: int) -> Value:
        """Return how many lanes along a level are within the tensor."""
        left = wire(m, level.count - index, "left")
        return wire(m, Mux(left < level.step, left, level.step)[: most.bit_length()], "number")

    def _clocks(self, m: Module, nest: Nest) -> None:
        """Declare the clocks that send each step only to the lanes of its pooling mode.

        Later stages are clocked for a window's last tap only.
        """
        taken = Steps(m, self.advance, self.sums, pipelined=self.pipelined)
        self.done = Steps(
            m, self.advance & nest.ends[ROW_OF_KERNEL], self.writes, pipelined=self.pipelined
        )
        going = taken.between(0, self.sums) | self.done.between(0, self.writes - 1)
        gated_clock(m, self.name, going, cleared=True)
        gated_clock(m, f"{self.name}_begin", self.advance & nest.first)
        gated_clock(m, self.write.domain, self.done.valid[self.writes])
        gated_clock(m, f"{self.name}_ended", self.done.between(self.sums, self.writes - 2))
        real = Const(0, 1) if self.fixed else self.is_average
        for name, chosen in (("max", self.is_max), ("real", real), ("whole", ~self.is_max & ~real)):
            choose_clock(m, f"{self.name}_{name}", self.name, chosen)
        for name, chosen in (
            ("largest", self.is_max),
            ("average", self.is_average),
            ("global", self.is_global),
        ):
            choose_clock(m, f"{self.name}_{name}", f"{self.name}_ended", chosen)
        drive_clocks(m, (*self.read_ports, *self.write_ports))

    def _read(self, m: Module, walk: NestWalk, steps: Sequence[ValueLike], there: Value) -> Value:
        """Drive the read addresses of the taps of pooling windows.

        Return one bit per column, 1 if its tap is inside the plane.
        """
        down, along = (
            Mux(self.is_global, 1, self._register(f"DILATION_{name}"))
            for name in ("HEIGHT", "WIDTH")
        )
        top, left = (
            Mux(self.is_global, 0, self._register(f"PAD_{name}")) for name in ("TOP", "LEFT")
        )
        next_row = self._register("STRIDE_HEIGHT")
        next_column = self._register("STRIDE_WIDTH")
        next_group = wire(m, (next_column * steps[COLUMN])[:ADDRESS_BITS], "next_group")
        width = self._register("INPUT_WIDTH")
        ahead = {
            "row": ((0, down, 0, next_row, 0), -top),
            "column": ((along, 0, next_group, 0, 0), -left),
            "input": (
                (
                    along,
                    down * width,
                    next_group,
                    next_row * width,
                    self.input_plane * steps[BLOCK],
                ),
                self._register("INPUT_ADDRESS") - top * width - left,
            ),
        }
        row, column, at = (
            accumulate_strides(m, name, walk, strides, start, domain=self.name)
            for name, (strides, start) in ahead.items()
        )
        columns = [
            wire(m, column + more, "column")
            for more in multiples(m, next_column, self.columns, "columns")
        ]
        height = wire(m, row < self._register("INPUT_HEIGHT"), "in_rows")
        inside = wire(
            m, Cat(*(height & (place[:ADDRESS_BITS] < width) for place in columns)), "inside"
        )
        planes = multiples(m, self.input_plane, self.channels, "planes")
        apart = multiples(m, next_column, self.columns, "apart")
        enable = []
        for lane in range(self.lanes):
            channel, place = divmod(lane, self.columns)
            enable.append(there[channel] & there[self.channels + place] & inside[place])
            more = wire(m, planes[channel] + apart[place], "more")
            m.d.comb += self.read.address[lane].eq(at + more)
        m.d.comb += self.read.enable.eq(Cat(*enable))
        return inside

    # Taps and their combination

    def _pool(self, m: Module, taps: Value) -> list[Value]:
        """Return the results of the selected pooling mode, ``work`` stages after the sums."""
        constants = command_constants(m, self.command.register, fixed=self.fixed)
        largest = self._taps(m, taps, "max")
        whole = self._taps(m, taps, "whole")
        values = [
            self._delay_until_sums(m, Mux(inside, value, LOWEST), largest.kind)
            for value, inside in self._lanes(largest)
        ]
        found = [self._largest(m, self._fold(m, largest, values, 8, _larger, LOWEST))]
        if self.fixed:
            terms = self._terms(m, whole, constants)
        else:
            terms = [
                self._delay_until_sums(m, value - self._register("INPUT_ZERO_POINT"), whole.kind)
                for value in whole.values
            ]
        integers = self._fold(m, whole, terms, SUM_BITS, lambda m, total, term: total + term)
        if self.fixed:
            averaged = whole
            sums = integers
        else:
            averaged = self._taps(m, taps, "real")
            sums = self._fold(m, averaged, self._terms(m, averaged, constants), 32, self._float_sum)
        found.append(self._averages(m, sums, self._counts(m, averaged), constants))
        found.append(self._globals(m, integers))
        chosen = zip(*found, strict=True)
        return [
            wire(m, Mux(self.is_max, a, Mux(self.is_average, b, c)), "result") for a, b, c in chosen
        ]

    def _taps(self, m: Module, taps: Value, kind: str) -> Taps:
        """Return the taps of pooling windows at stage 3, with flags at the stage of the sums.

        The taps are in the clock domain of their kind.
        """
        domain = f"{self.name}_{kind}"
        held = stage(m, taps, pipelined=self.pipelined, domain=domain, name="taps")
        values = [
            stage(m, data.as_signed(), pipelined=self.pipelined, domain=domain, name="tap")
            for data in self.read.data
        ]
        later = self._delay_until_sums(m, held, kind)
        return Taps(kind, values, held[2:], later[2:], later[1], later[0])

    def _lanes(self, taps: Taps) -> Iterator[tuple[Value, Value]]:
        """Yield for each lane the value of its tap, and whether the tap is inside the plane."""
        for lane, value in enumerate(taps.values):
            yield value, taps.inside[lane % self.columns]

    def _delay_until_sums(self, m: Module, value: ValueLike, kind: str) -> Value:
        domain = f"{self.name}_{kind}"
        return delayed(m, value, self.term, pipelined=self.pipelined, domain=domain, name="term")

    def _terms(self, m: Module, taps: Taps, constants: Mapping[str, Value]) -> list[Value]:
        """Return the terms that the taps of average pooling add to its sums."""
        found = []
        for value, inside in self._lanes(taps):
            inputs = {"value": value, "valid": inside}
            found.append(self._instance(m, "average_term", inputs, constants, taps.kind)["result"])
        return found

    def _instance(
        self,
        m: Module,
        name: str,
        inputs: Mapping[str, ValueLike],
        constants: Mapping[str, Value],
        kind: str,
    ) -> dict[str, Signal]:
        """Add a lane of arithmetic, connected to the ``constants`` that it uses.

        The lane has the clock of ``kind``.
        """
        wanted = getattr(self.made[name], "constants", ())
        inputs = dict(inputs) | {port: constants[port] for port in wanted}
        return self.modules.instance(
            m, name, self.makes[name], inputs, domain=f"{self.name}_{kind}"
        )

    def _float_sum(self, m: Module, total: Value, term: Value) -> Value:
        return self._instance(m, "running_sum", {"total": total, "term": term}, {}, "real")[
            "result"
        ]

    def _fold(
        self, m: Module, taps: Taps, terms: Sequence[Value], width: int, both: Fold, start: int = 0
    ) -> list[Signal]:
        """Return for each lane its pooling window's ``terms``, combined over the taps so far.

        It includes the terms of this step.
        """
        found = []
        for term in terms:
            held = Signal(signed(width), name=f"{taps.kind}_so_far", reset_less=True)
            now = Signal(signed(width), name=f"{taps.kind}_now")
            m.d.comb += now.eq(both(m, Mux(taps.first, start, held), term))
            with m.If(taps.valid):
                m.d[f"{self.name}_{taps.kind}"] += held.eq(now)
            found.append(now)
        return found

    def _counts(self, m: Module, taps: Taps) -> list[Signal]:
        """Return for each column the number of taps by which an average is divided."""
        counted = taps.counted | self.command.field(NAME, "count_include_pad").replicate(
            self.columns
        )
        pairs = self._fold(
            m, taps, list(counted), COUNT_BITS + 1, lambda m, total, one: total + one
        )
        return [pair[:COUNT_BITS] for pair in pairs]

    def _register_last_taps(self, m: Module, value: Value, kind: str) -> Signal:
        """Register a value of the last taps of windows, in the clock that ticks only for them."""
        return stage(m, value, pipelined=self.pipelined, domain=f"{self.name}_{kind}", name="ended")

    def _delay_result(self, m: Module, value: Value, taken: int, kind: str) -> Value:
        """Delay a pooling result to the latency of the slowest mode.

        It took ``taken`` stages.
        """
        wait = self.work - taken
        domain = f"{self.name}_{kind}"
        return delayed(m, value, wait, pipelined=self.pipelined, domain=domain, name=kind)

    def _largest(self, m: Module, found: Sequence[Value]) -> list[Value]:
        low = self._register("CLAMP_LOW")
        high = self._register("CLAMP_HIGH")
        return [
            self._delay_result(
                m,
                clamp_signed(m, self._register_last_taps(m, one, "largest"), low, high),
                0,
                "largest",
            )
            for one in found
        ]

    def _averages(
        self,
        m: Module,
        sums: Sequence[Value],
        counts: Sequence[Value],
        constants: Mapping[str, Value],
    ) -> list[Value]:
        name = "average_result"
        found = []
        counts = [self._register_last_taps(m, count, "average") for count in counts]
        for lane, total in enumerate(sums):
            inputs = {
                "total": self._register_last_taps(m, total, "average"),
                "count": counts[lane % self.columns],
            }
            result = self._instance(m, name, inputs, constants, "average")["result"]
            found.append(self._delay_result(m, result, self.made[name].latency, "average"))
        return found

    def _globals(self, m: Module, sums: Sequence[Value]) -> list[Value]:
        """Return each channel's average over its plane; all channels share one scale factor."""
        inputs: dict[str, ValueLike] = {
            "zero_point": self._register("OUTPUT_ZERO_POINT"),
            "low": self._register("CLAMP_LOW"),
            "high": self._register("CLAMP_HIGH"),
            "scale": self._register("SCALE_A"),
        }
        if self.fixed:
            factor = mean_multiplier(
                m, self._register("SCALE_A"), self._register("SHIFT_A"), self.elements[:COUNT_BITS]
            )
            parts = [
                stage(m, part, pipelined=self.pipelined, domain=f"{self.name}_begin", name="factor")
                for part in factor
            ]
            inputs |= {"scale": parts[0], "shift": parts[1]}
        name = "pool_requantise"
        found = []
        for total in sums:
            lane = inputs | {"accumulator": self._register_last_taps(m, total, "global")}
            result = self._instance(m, name, lane, {}, "global")["result"]
            found.append(self._delay_result(m, result, self.made[name].latency, "global"))
        return found

    # Results

    def _finish(
        self,
        m: Module,
        results: Sequence[Value],
        walk: NestWalk,
        steps: Sequence[ValueLike],
        there: Value,
        block: Value,
    ) -> None:
        """Apply the table look-up to pooling results and write them to the scratchpad.

        ``there``, ``block`` and ``walk`` belong to stage 1.
        """
        tabled = self.writes - 1
        width = self._register("OUTPUT_WIDTH")
        plane = self.output_plane
        strides = (0, 0, steps[COLUMN], width, plane * steps[BLOCK])
        at = accumulate_strides(
            m, "output", walk, strides, self._register("OUTPUT_ADDRESS"), domain=self.name
        )
        held = self._delay_value(m, Cat(at, there, block), tabled - 1)
        at = held[:ADDRESS_BITS]
        there = held[ADDRESS_BITS : ADDRESS_BITS + len(there)]
        block = held[-len(block) :]
        places = [divmod(lane, self.columns) for lane in range(self.lanes)]
        there = Cat(*(there[channel] & there[self.channels + column] for channel, column in places))
        start = self._register("TABLE_ADDRESS") + Mux(self.look_up == 2, block << TABLE_SHIFT, 0)
        start = wire(m, start[:ADDRESS_BITS], "tables")
        tables = [
            start + Mux(self.look_up == 2, channel << TABLE_SHIFT, 0) for channel, _ in places
        ]
        found = self.tables.look_up(m, results, there, tables, self.look_up != 0, self.name)
        at = self._delay_value(m, at, 1)
        there = self._delay_value(m, there, 1)
        planes = multiples(m, plane, self.channels, "output_planes")
        for lane, ((channel, column), value) in enumerate(zip(places, found, strict=True)):
            m.d.comb += [
                self.write.enable[lane].eq(there[lane]),
                self.write.address[lane].eq(at + planes[channel] + column),
                self.write.data[lane].eq(value),
            ]


def _larger(m: Module, total: Value, value: Value) -> Value:
    return extreme(m, total, value, Const(1, 1))
