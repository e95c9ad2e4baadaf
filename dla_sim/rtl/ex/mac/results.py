"""Engine of multiply-accumulates, and its post-processing from finished sums to results.

Stages: 4 finds result positions and reads the initial values of the sums; 5 adds them; 6
requantises; then tables are read, and results are written one stage later. int32 results are
written at stage 7.
"""

from collections.abc import Mapping as Table
from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.arithmetic.lane import STAGES, Requantise
from dla_sim.rtl.building import Library, gated_clock, stage
from dla_sim.rtl.ex.counting import Nest, delayed
from dla_sim.rtl.ex.engine import Engine, Steps
from dla_sim.rtl.ex.mac.array import Array, OperandReader
from dla_sim.rtl.ex.mac.work import (
    MNEMONICS,
    OUTER,
    Groups,
    Mapping,
    Work,
    begin,
    loops,
    outer_levels,
)
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, CommandView, ReadPort, WritePort, drive_clocks

FINISHED = 4
"""Stage at whose end sums are complete."""
SUMMED = 6
"""Stage at which int32 results are available."""
STAGE_OF = {"finished": FINISHED, "summed": SUMMED, "last": SUMMED + STAGES}
INT32 = 1 << 31


def stages(limits: Limits) -> int:
    """Return the number of pipeline stages from a step to the write of its results."""
    return SUMMED + 1 + STAGES if limits.pipelined else 0


class Results:
    """Post-processing of the sums of blocks that begin in the lanes ``along`` i of the array.

    Another instance has the rest.
    """

    def __init__(
        self,
        name: str,
        limits: Limits,
        configuration: Configuration,
        work: Work,
        library: Library,
        along: Sequence[int],
    ) -> None:
        self.name = name
        self.limits = limits
        self.configuration = configuration
        self.work = work
        self.modules = library
        self.along = along
        pairs = len(along) * limits.oc
        results = len(along) * limits.oc * limits.ow
        pipelined = limits.pipelined
        self.lanes = f"{name}_lanes"
        self._one = int(pipelined)
        self.records = ReadPort(
            f"{name}_records",
            pairs,
            work.record_bytes,
            name if pipelined else None,
            {"EX_CHANNEL_ADDRESS": ()},
        )
        self.partial = ReadPort(
            f"{name}_partial",
            results,
            4,
            f"{name}_partial" if pipelined else None,
            {"EX_PARTIAL_ADDRESS": ()},
        )
        self.tables = ReadPort(
            f"{name}_tables",
            results,
            1,
            f"{name}_tables" if pipelined else None,
            {"EX_TABLE_ADDRESS": ()},
        )
        self.write = WritePort(
            f"{name}_write", results, 4, f"{name}_write", {"EX_OUTPUT_ADDRESS": ()}
        )
        self.fault = Signal(name=f"{name}_fault")

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """Positions (i, j, k) in the array whose sums are results, in order of port lanes."""
        limits = self.limits
        return [(i, j, k) for i in self.along for j in range(limits.oc) for k in range(limits.ow)]

    def gate(self, m: Module, steps: Steps) -> None:
        """Declare the clocks of post-processing; each ticks only when its stage has work.

        ``steps`` are the steps that finish results, by stage.
        """
        work = self.work
        stage_of = STAGE_OF if self.limits.pipelined else dict.fromkeys(STAGE_OF, 0)
        ends = Mux(work.requantise, steps.valid[stage_of["last"]], steps.valid[stage_of["summed"]])
        write = ends
        if self.limits.pipelined:
            gated_clock(m, f"{self.name}_partial", steps.valid[FINISHED] & work.accumulate)
            gated_clock(
                m, f"{self.name}_tables", steps.valid[stage_of["last"]] & work.look_up.any()
            )
            write = Mux(
                work.requantise,
                steps.valid[stage_of["last"] + 1],
                steps.valid[stage_of["summed"] + 1],
            )
        gated_clock(m, self.name, steps.valid[stage_of["finished"]], cleared=True)
        gated_clock(
            m, f"{self.name}_sums", steps.valid[stage_of["finished"] + self._one], cleared=True
        )
        gated_clock(m, self.lanes, steps.between(stage_of["summed"], stage_of["last"] - self._one))
        gated_clock(m, f"{self.name}_ends", ends, cleared=True)
        gated_clock(m, f"{self.name}_write", write)

    def _later(self, m: Module, value: Value, domain: str, name: str, number: int = 1) -> Value:
        return delayed(
            m,
            value,
            number,
            pipelined=self.limits.pipelined,
            domain=domain,
            name=f"{self.name}_{name}",
        )

    def finish(self, m: Module, mapping: Mapping, sums: Table[tuple[int, int, int], Value]) -> None:
        """Build the post-processing of finished sums, from requantisation to the write.

        The sums are complete at stage 5 after their last step at stage 4.
        """
        nest = self._nest(m, mapping, "begins", self.name)
        there = self._later(m, self._there(m, mapping, nest), self.name, "there")
        self._read_records(m, mapping, nest)
        self._read_partial(m, mapping, nest)
        totals = self._totals(m, there, sums)
        requantised = self._requantise(m, totals)
        early = self._later(m, there, f"{self.name}_sums", "early")
        late = self._later(m, early, self.lanes, "late", STAGES)
        ends = self._nest(m, mapping, "ends", f"{self.name}_ends")
        self._look_up(m, mapping, ends, requantised)
        self._write(m, mapping, ends, Mux(self.work.requantise, late, early), totals, requantised)

    def _nest(self, m: Module, mapping: Mapping, name: str, domain: str) -> Nest:
        levels = outer_levels(self.work, mapping, self.configuration)
        return Nest(m, f"{self.name}_{name}", Const(1), levels, domain=domain)

    def _there(self, m: Module, mapping: Mapping, nest: Nest) -> Value:
        """Return one bit per lane of post-processing, 1 if the lane has a result."""
        work = self.work
        columns, outputs, groups = (
            wire(m, count - nest.index[level], f"{self.name}_left_{level}")
            for level, count in ((0, work.columns), (2, work.outputs), (3, work.groups))
        )
        bits = []
        for i, j, k in self.places:
            begins = (
                (mapping.deep.within[i] == 0) & mapping.used[i, j] & (k < self.configuration.ow)
            )
            there = (mapping.column[i, j, k] < columns) & (mapping.wide.within[j] < outputs)
            bits.append(begins & there & (mapping.group[i, j] < groups))
        return wire(m, Cat(*bits), f"{self.name}_there")

    def _channel(self, m: Module, mapping: Mapping, nest: Nest, name: str) -> Value:
        """Return the output channel of processing element (0, 0)."""
        strides = [
            None,
            None,
            self.configuration.oc,
            (mapping.parallel * self.work.outputs)[:ADDRESS_BITS],
        ]
        return nest.offset(m, f"{self.name}_{name}_channel", strides)

    def _read_records(self, m: Module, mapping: Mapping, nest: Nest) -> None:
        start = self.work.command.register("EX_CHANNEL_ADDRESS")
        channel = self._channel(m, mapping, nest, "record")
        m.d.comb += self.records.enable.eq(-1)
        places = [(i, j) for i in self.along for j in range(self.limits.oc)]
        for (i, j), address in zip(places, self.records.address, strict=True):
            m.d.comb += address.eq(
                start + (channel + mapping.channel[i, j]) * self.work.record_bytes
            )

    def _read_partial(self, m: Module, mapping: Mapping, nest: Nest) -> None:
        work = self.work
        channels = (self.configuration.oc * work.partial_channel)[:ADDRESS_BITS]
        strides = [
            (mapping.columns * work.partial_column)[:ADDRESS_BITS],
            work.partial_row,
            channels,
            None,
        ]
        start = nest.offset(m, f"{self.name}_partial_at", strides) + work.command.register(
            "EX_PARTIAL_ADDRESS"
        )
        start = wire(m, start[:ADDRESS_BITS], f"{self.name}_partial_start")
        m.d.comb += self.partial.enable.eq(-1)
        for (i, j, k), address in zip(self.places, self.partial.address, strict=True):
            own = (
                mapping.wide.within[j] * work.partial_channel
                + mapping.column[i, j, k] * work.partial_column
            )
            m.d.comb += address.eq(start + wire(m, own[:ADDRESS_BITS], "own_partial"))

    def _totals(
        self, m: Module, there: Value, sums: Table[tuple[int, int, int], Value]
    ) -> list[Value]:
        """Return the int32 results after a register; drive ``fault`` to 1 if one overflows."""
        work = self.work
        totals = []
        wrong = []
        for number, place in enumerate(self.places):
            bias = self.records.data[number // self.limits.ow][:32].as_signed()
            begin = Mux(
                work.accumulate, self.partial.data[number].as_signed(), Mux(work.dynamic, 0, bias)
            )
            total = wire(m, sums[place] + begin, f"{self.name}_exact_{number}")
            wrong.append(there[number] & ((total >= INT32) | (total <= -INT32)))
            totals.append(
                self._later(m, total[:32].as_signed(), f"{self.name}_sums", f"total_{number}")
            )
        m.d[f"{self.name}_sums"] += self.fault.eq(self.fault | Cat(*wrong).any())
        return totals

    def _requantise(self, m: Module, totals: Sequence[Value]) -> list[Value]:
        """Return the sums requantised to int8, after STAGES pipeline stages."""
        work = self.work
        register = self.work.command.register
        low = register("EX_CLAMP_LOW")
        zero = register("EX_OUTPUT_ZERO_POINT")
        raised = wire(
            m, Mux(work.relu & (zero > low), zero, low)[:8].as_signed(), f"{self.name}_low"
        )
        fixed = self.limits.fixed
        pipelined = self.limits.pipelined
        found = []
        shift = Signal(signed(32), name=f"{self.name}_shift")
        m.d.comb += shift.eq(register("EX_SHIFT_A"))
        for number, total in enumerate(totals):
            record = self.records.data[number // self.limits.ow]
            scale = Mux(work.dynamic, register("EX_SCALE_A"), record[32:64])
            inputs = {
                "accumulator": total,
                "scale": self._later(m, scale, f"{self.name}_sums", f"scale_{number}"),
                "zero_point": zero,
                "low": raised,
                "high": register("EX_CLAMP_HIGH"),
            }
            if fixed:
                own = Mux(work.dynamic, shift, record[64:].as_signed())
                inputs["shift"] = self._later(m, own, f"{self.name}_sums", f"shift_{number}")
            made = self.modules.instance(
                m,
                "mac_requantise",
                lambda: Requantise(fixed=fixed, pipelined=pipelined),
                inputs,
                domain=self.lanes,
            )
            found.append(made["result"])
        return found

    def _look_up(self, m: Module, mapping: Mapping, nest: Nest, results: Sequence[Value]) -> None:
        work = self.work
        start = work.command.register("EX_TABLE_ADDRESS")
        channel = self._channel(m, mapping, nest, "table")
        m.d.comb += self.tables.enable.eq(-1)
        for (i, j, _), result, address in zip(
            self.places, results, self.tables.address, strict=True
        ):
            table = Mux(work.look_up[1], (channel + mapping.channel[i, j]) << 8, 0)
            m.d.comb += address.eq(start + table + result.as_unsigned())

    def _write(
        self,
        m: Module,
        mapping: Mapping,
        nest: Nest,
        there: Value,
        wide: Sequence[Value],
        narrow: Sequence[Value],
    ) -> None:
        """Write the results of active lanes, one stage after ``nest``."""
        there, *held = (
            self._later(m, value, f"{self.name}_ends", name)
            for name, values in (("writes", [there]), ("wide", wide), ("narrow", narrow))
            for value in values
        )
        wide, narrow = held[: len(wide)], held[len(wide) :]
        work = self.work
        config = self.configuration
        groups = (mapping.parallel * work.outputs * work.output_channel)[:ADDRESS_BITS]
        channels = (config.oc * work.output_channel)[:ADDRESS_BITS]
        strides = [
            (mapping.columns * work.output_column)[:ADDRESS_BITS],
            work.output_row,
            channels,
            groups,
        ]
        start = nest.offset(m, f"{self.name}_output_at", strides) + work.command.register(
            "EX_OUTPUT_ADDRESS"
        )
        start = self._later(m, start[:ADDRESS_BITS], f"{self.name}_ends", "output_start")
        for number, (i, j, k) in enumerate(self.places):
            own = (
                mapping.channel[i, j] * work.output_channel
                + mapping.column[i, j, k] * work.output_column
            )
            found = Mux(work.look_up.any(), self.tables.data[number], narrow[number])
            m.d.comb += [
                self.write.enable[number].eq(
                    Mux(work.requantise, 1, 15) & there[number].replicate(4)
                ),
                self.write.address[number].eq(start + wire(m, own[:ADDRESS_BITS], "own_output")),
                self.write.data[number].eq(Mux(work.requantise, found, wide[number])),
            ]


class Mac(Engine):
    """Output-stationary engine: each sum of products is complete before the next ones begin.

    Clock domains:

    - ``mac_steps``: the loops.
    - ``mac``: the data path of blocks that begin in lane 0.
    - ``mac_several``: inputs of elements that do not share those of j = 0.
    - ``mac_split``: sums that begin in other lanes.
    - ``mac_groups``: offsets of the groups.
    - ``mac_results``, ``mac_others``: post-processing of blocks that begin in lane 0 and of the
      others.
    """

    mnemonics = MNEMONICS

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        super().__init__(limits, configuration, command, library)
        self.latency = stages(limits)
        self.work = Work(limits, command)
        self.results = self.work.results
        self.streams = self.work.streams
        domain = "mac" if limits.pipelined else None
        own = limits.ic * limits.ow
        others = limits.ic * (limits.oc - 1) * limits.ow
        inputs = ReadPort("mac_input", own, 1, domain, {"EX_INPUT_ADDRESS": ()})
        several = "mac_several" if limits.pipelined else None
        more = (
            ReadPort("mac_more_input", others, 1, several, {"EX_INPUT_ADDRESS": ()})
            if others
            else None
        )
        weights = ReadPort(
            "mac_weight", limits.ic * limits.oc, 1, domain, {"EX_OPERAND_ADDRESS": ()}
        )
        self.operands = OperandReader(limits, configuration, self.work, (inputs, more, weights))
        lanes = [("mac_results", [0]), ("mac_others", list(range(1, limits.ic)))]
        self.parts = [
            Results(name, limits, configuration, self.work, library, along)
            for name, along in lanes
            if along
        ]
        self.read_ports = [port for port in (inputs, more, weights) if port is not None]
        for part in self.parts:
            self.read_ports += [part.records, part.partial, part.tables]
            self.write_ports.append(part.write)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.work.drive(m)
        mapping = Mapping(m, self.limits, self.configuration, self.work)
        gated_clock(m, "mac_steps", self.advance, cleared=True)
        nest = loops(m, self.work, mapping, self.configuration, self.advance, "mac_steps")
        m.d.comb += [self.empty.eq(self.work.empty), self.last.eq(nest.last)]
        steps = self._gate(m, mapping, nest)
        step = begin(
            m,
            self.work,
            mapping,
            self.configuration,
            nest,
            pipelined=self.limits.pipelined,
            domain="mac",
        )
        groups = self._groups(m, mapping, nest, steps)
        self.operands.address(m, step, mapping, groups, ("mac", "mac_several"))
        operands = self.operands.values(m, mapping.several, ("mac", "mac_several"))
        array = Array(self.limits)
        valid, first = (
            self._later(m, value, FINISHED - 1, "of_sums") for value in (step.valid, step.first)
        )
        array.accumulate(m, operands, mapping, valid, first, ("mac", "mac_split"))
        for part in self.parts:
            part.finish(m, mapping, array.sums)
        m.d.comb += self.fault.eq(Cat(*(part.fault for part in self.parts)).any())
        drive_clocks(m, (*self.read_ports, *self.write_ports))
        return m

    def _later(self, m: Module, value: Value, number: int, name: str) -> Value:
        return delayed(
            m, value, number, pipelined=self.limits.pipelined, domain="mac", name=f"mac_{name}"
        )

    def _gate(self, m: Module, mapping: Mapping, nest: Nest) -> Steps:
        """Declare the clocks of the data path and of post-processing; return the steps by stage."""
        pipelined = self.limits.pipelined
        steps = Steps(m, self.advance, FINISHED, pipelined=pipelined)
        gated_clock(m, "mac", steps.between(0, FINISHED))
        gated_clock(m, "mac_several", steps.between(1, 3) & mapping.several)
        gated_clock(m, "mac_split", steps.valid[FINISHED] & mapping.split)
        for number, part in enumerate(self.parts):
            finishes = self.advance & nest.ends[OUTER - 1] & (mapping.split if number else 1)
            part.gate(m, Steps(m, finishes, self.latency, pipelined=pipelined))
        return steps

    def _groups(self, m: Module, mapping: Mapping, nest: Nest, steps: Steps) -> Groups:
        fresh = Signal(name="groups_begin", init=1)
        with m.If(self.advance):
            m.d.mac_steps += fresh.eq(nest.ends[-2])
        final = nest.index[-1] + mapping.parallel >= self.work.groups
        fresh_later, final_later = (
            stage(m, value, pipelined=self.limits.pipelined, domain="mac", name="groups_flag")
            for value in (fresh, final)
        )
        gated_clock(m, "mac_groups", steps.valid[1] & fresh_later, cleared=True)
        return Groups(m, self.limits, self.work, mapping, "mac_groups", fresh_later, final_later)
