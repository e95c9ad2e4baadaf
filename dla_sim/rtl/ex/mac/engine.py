"""Engine of the convolutions and matrix products (``OP_CONV`` … ``OP_DYN_MAT_MUL``)."""

from amaranth.hdl import Cat, Module, Signal, Value

from dla_sim.rtl.building import Library, gated_clock, stage
from dla_sim.rtl.ex.counting import Nest, delayed
from dla_sim.rtl.ex.engine import Engine, Steps
from dla_sim.rtl.ex.mac.array import Array, OperandReader
from dla_sim.rtl.ex.mac.results import FINISHED, Results, stages
from dla_sim.rtl.ex.mac.work import MNEMONICS, OUTER, Groups, Mapping, Work, begin, loops
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import CommandView, ReadPort, drive_clocks


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
