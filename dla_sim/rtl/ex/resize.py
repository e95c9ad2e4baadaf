"""Engine of ``OP_RESIZE``: resizes the planes of a tensor by interpolation.

Each group of lanes takes four steps, one per neighbour.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.arithmetic.lane import command_constants
from dla_sim.rtl.arithmetic.pooling import (
    InterpolationResult,
    InterpolationTerm,
    Neighbours,
    RunningSum,
)
from dla_sim.rtl.building import Library, gated_clock
from dla_sim.rtl.ex.counting import Group, Level, Nest, NestWalk, Odometer, Position
from dla_sim.rtl.ex.engine import Engine, Steps
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, CommandView, ReadPort, Stream, WritePort, drive_clocks
from isa.ops.pooling import COORDINATE_BYTES

CORNERS = 4
COLUMN = 0
ROW = 1
"""Digits of a position.

In a corner's number, bit COLUMN selects the right neighbour, bit ROW the lower.
"""


class Resize(Engine):
    """Engine of resizing: for each group of lanes, a loop over the four neighbours.

    Stages: 0 counts; 1 computes the lanes' positions and reads their coordinates; 2 finds the
    neighbours; then each step reads one neighbour, computes its term and adds it. The sum of four
    continues to the result and the write.
    """

    mnemonics = ("OP_RESIZE",)

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        super().__init__(limits, configuration, command, library)
        self.pipelined = limits.pipelined
        self.lanes = limits.lanes
        kind = {"fixed": limits.fixed, "pipelined": limits.pipelined}
        self.makes: dict[str, Any] = {
            "neighbours": partial(Neighbours, **kind),
            "interpolation_term": partial(InterpolationTerm, **kind),
            "running_sum": partial(RunningSum, fixed=limits.fixed),
            "interpolation_result": partial(InterpolationResult, **kind),
        }
        self.made = {name: library.component(name, make) for name, make in self.makes.items()}
        neighbours = self.made["neighbours"]
        self.addressed = 2 + neighbours.latency - neighbours.early.get("below", 0)
        self.weighed = 2 + neighbours.latency
        self.terms = max(self.addressed + 1, self.weighed)
        """Stage at which an element is multiplied by its weights."""
        self.sums = self.terms + self.made["interpolation_term"].latency
        self.writes = self.sums + self.made["interpolation_result"].latency
        self.latency = self.writes if self.pipelined else 0
        domain = self.name if self.pipelined else None
        self.coordinates = [
            ReadPort(
                f"{self.name}_{of}",
                self.lanes,
                COORDINATE_BYTES,
                domain,
                {"EX_OPERAND_ADDRESS": ()},
            )
            for of in ("column", "row")
        ]
        self.read = ReadPort(f"{self.name}_read", self.lanes, 1, domain, {"EX_INPUT_ADDRESS": ()})
        self.write = WritePort(
            f"{self.name}_write", self.lanes, 1, f"{self.name}_write", {"EX_OUTPUT_ADDRESS": ()}
        )
        self.read_ports, self.write_ports = [*self.coordinates, self.read], [self.write]
        self._understand()

    # Properties of the command

    def _understand(self) -> None:
        """Derive all signals of a resize command that are constant during its execution."""
        dense = {}
        plane = {}
        for side in ("INPUT", "OUTPUT"):
            dense[side] = (self._register(f"{side}_HEIGHT") * self._register(f"{side}_WIDTH"))[
                :ADDRESS_BITS
            ]
            plane[side] = Mux(
                self._register(f"{side}_PLANE") == 0, dense[side], self._register(f"{side}_PLANE")
            )
        self.count = (self._register("INPUT_CHANNELS") * dense["OUTPUT"])[:ADDRESS_BITS]
        self.input_plane = plane["INPUT"]
        self.between = (plane["OUTPUT"] - dense["OUTPUT"])[:ADDRESS_BITS]
        """Bytes between the end of an output plane and the start of the next one."""
        columns = self._register("OPERAND_ADDRESS")
        rows = columns + COORDINATE_BYTES * (
            self._register("OUTPUT_WIDTH") + self._register("FIRST_ROW")
        )
        self.tables = [columns, rows[:ADDRESS_BITS]]
        self.streams = [
            self._planes("INPUT", dense["INPUT"], plane["INPUT"]),
            self._table(self.tables[COLUMN], self._register("OUTPUT_WIDTH")),
            self._table(self.tables[ROW], self._register("OUTPUT_HEIGHT")),
            self._planes("OUTPUT", dense["OUTPUT"], plane["OUTPUT"], write=True),
        ]

    def _planes(self, side: str, used: Value, plane: Value, *, write: bool = False) -> Stream:
        first = self._register(f"{side}_ADDRESS")
        channels = self._register(f"{side}_CHANNELS")
        nbytes = (channels * used)[:ADDRESS_BITS]
        last = (first + (channels - 1) * plane + used - 1)[:ADDRESS_BITS]
        return Stream(nbytes != 0, first, last, nbytes, write)

    def _table(self, first: Value, count: Value) -> Stream:
        nbytes = count * COORDINATE_BYTES
        return Stream(nbytes != 0, first, (first + nbytes - 1)[:ADDRESS_BITS], nbytes)

    # Hardware

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.configuration.lanes
        levels = [Level(Const(CORNERS, 3)), Level(self.count, lanes)]
        nest = Nest(m, self.name, self.advance, levels, domain=self.name)
        m.d.comb += [self.empty.eq(self.count == 0), self.last.eq(nest.last)]
        taken = Steps(m, self.advance, self.sums, pipelined=self.pipelined)
        done = Steps(m, self.advance & nest.ends[0], self.writes, pipelined=self.pipelined)
        going = taken.between(0, self.sums) | done.between(0, self.writes)
        gated_clock(m, self.name, going, cleared=True)
        gated_clock(m, f"{self.name}_begin", self.advance & nest.first)
        gated_clock(m, self.write.domain, done.valid[self.writes])
        drive_clocks(m, (*self.read_ports, *self.write_ports))
        radices = [self._register("OUTPUT_WIDTH"), self._register("OUTPUT_HEIGHT")]
        odometer = Odometer(
            radices, len(self._register("INPUT_CHANNELS")), [self.input_plane, self.between]
        )
        group = Group.build_group(
            m, odometer, lanes, pipelined=self.pipelined, domain=f"{self.name}_begin"
        )
        walk = NestWalk(self.advance, nest.index[1] == 0, nest.ends)
        base, corner = (
            self._delay_value(m, index, 1) for index in (nest.index[1], nest.index[0][:2])
        )
        left = self.count - nest.index[1]
        number = self._delay_value(
            m, wire(m, Mux(left < lanes, left, lanes)[: len(lanes)], "number"), 1
        )
        there = wire(m, Cat(*(lane < number for lane in range(self.lanes))), "there")
        values, weights = self._neighbours(m, self._positions(m, group, walk, 1), corner, there)
        totals = self._sums(
            m,
            values,
            weights,
            self._delay_value(m, Cat(self.advance, nest.index[0] == 0), self.sums),
        )
        at = self._delay_value(m, Cat(there, base), self.writes - 1)
        self._write(m, totals, self._positions(m, group, walk, self.writes), at)
        return m

    def _instance(self, m: Module, name: str, inputs: Mapping[str, ValueLike]) -> dict[str, Signal]:
        wanted = getattr(self.made[name], "constants", ())
        inputs = dict(inputs) | {port: self.constants[port] for port in wanted}
        return self.modules.instance(m, name, self.makes[name], inputs, domain=self.name)

    def _positions(self, m: Module, group: Group, walk: NestWalk, at: int) -> list[Position]:
        """Return the lanes' positions at stage ``at``; they advance after the last neighbour."""
        walk = walk.later(m, at, pipelined=self.pipelined, domain=self.name)
        return group.positions(
            m, self.lanes, walk.valid & walk.ends[0], walk.first, domain=self.name
        )

    def _neighbours(
        self, m: Module, positions: Sequence[Position], corner: Value, there: Value
    ) -> tuple[list[Value], list[dict[str, Value]]]:
        """Return neighbouring elements and their interpolation weights, of the same stage.

        ``corner`` and ``there`` belong to stage 1.
        """
        self.constants = command_constants(m, self.command.register, fixed=self.limits.fixed)
        sizes = [self._register("INPUT_WIDTH"), self._register("INPUT_HEIGHT")]
        firsts: list[Value] = [Const(0, 16), self._register("FIRST_INPUT_ROW")]
        addressing = self._delay_value(m, corner, self.addressed - 1)
        weighing = self._delay_value(m, addressing, self.weighed - self.addressed)
        m.d.comb += self.read.enable.eq(self._delay_value(m, there, self.addressed - 1))
        values = []
        weights = []
        for lane, position in enumerate(positions):
            places = []
            found = {}
            for digit, name in ((COLUMN, "column_weight"), (ROW, "row_weight")):
                port = self.coordinates[digit]
                m.d.comb += port.enable[lane].eq(there[lane])
                m.d.comb += port.address[lane].eq(
                    self.tables[digit] + position.digits[digit] * COORDINATE_BYTES
                )
                inputs = {
                    "coordinate": port.data[lane],
                    "first": firsts[digit],
                    "size": sizes[digit],
                }
                both = self._instance(m, "neighbours", inputs)
                places.append(
                    wire(m, Mux(addressing[digit], both["above"], both["below"]), "place")
                )
                weight = wire(m, Mux(weighing[digit], both["of_above"], both["of_below"]), name)
                found[name] = self._delay_value(m, weight, self.terms - self.weighed)
            plane = self._delay_value(m, position.offsets[0], self.addressed - 1)
            at = (
                self._register("INPUT_ADDRESS")
                + plane
                + places[ROW] * self._register("INPUT_WIDTH")
                + places[COLUMN]
            )
            m.d.comb += self.read.address[lane].eq(at)
            values.append(
                self._delay_value(
                    m, self.read.data[lane].as_signed(), self.terms - self.addressed - 1
                )
            )
            weights.append(found)
        return values, weights

    def _sums(
        self,
        m: Module,
        values: Sequence[Value],
        weights: Sequence[Mapping[str, Value]],
        step: Value,
    ) -> list[Value]:
        """Return for each lane its interpolation sum, up to the current neighbour.

        ``step`` has two bits: a step is present, and it is the first of its four.
        """
        found = []
        for value, weight in zip(values, weights, strict=True):
            term = self._instance(m, "interpolation_term", {"value": value, **weight})["result"]
            held = Signal(term.shape(), name="so_far", reset_less=True)
            total = self._instance(
                m, "running_sum", {"total": Mux(step[1], 0, held), "term": term}
            )["result"]
            with m.If(step[0]):
                m.d[self.name] += held.eq(total)
            found.append(total)
        return found

    def _write(
        self, m: Module, totals: Sequence[Value], positions: Sequence[Position], at: Value
    ) -> None:
        """Compute results from interpolation sums and write them to their ``positions``.

        ``at`` consists of the bits of active lanes, followed by the first element.
        """
        there = at[: self.lanes]
        base = at[self.lanes :]
        first = wire(m, self._register("OUTPUT_ADDRESS") + base, "target")
        for lane, (total, position) in enumerate(zip(totals, positions, strict=True)):
            result = self._instance(m, "interpolation_result", {"total": total})["result"]
            m.d.comb += [
                self.write.enable[lane].eq(there[lane]),
                self.write.address[lane].eq(first + lane + position.offsets[1]),
                self.write.data[lane].eq(result),
            ]
