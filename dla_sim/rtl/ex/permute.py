"""Engine of ``OP_PERMUTE``: copies bytes in another order, up to one per lane and step."""

from amaranth.hdl import Cat, Module, Mux, Value

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.building import Library, gated_clock
from dla_sim.rtl.ex.counting import Level, Nest, NestWalk, accumulate_strides, delayed, multiples
from dla_sim.rtl.ex.engine import Engine, Steps
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, CommandView, ReadPort, Stream, WritePort, drive_clocks
from isa.ops.movement import DIMENSIONS


class Permute(Engine):
    """Engine of permutations: four nested loops, the innermost over groups of lanes.

    If the bytes of a step are not adjacent, each of them uses another bank. Stages: 0 counts; 1
    computes addresses and starts the read; 2 writes.
    """

    mnemonics = ("OP_PERMUTE",)

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        super().__init__(limits, configuration, command, library)
        self.latency = 2 if limits.pipelined else 0
        domain = self.name if limits.pipelined else None
        self.read = ReadPort(f"{self.name}_read", limits.lanes, 1, domain, {"EX_INPUT_ADDRESS": ()})
        self.write = WritePort(
            f"{self.name}_write", limits.lanes, 1, f"{self.name}_write", {"EX_OUTPUT_ADDRESS": ()}
        )
        self.read_ports, self.write_ports = [self.read], [self.write]
        self.fill = command.field("OP_PERMUTE", "fill")
        self.counts = [command.register(f"EX_COUNT_{number}") for number in DIMENSIONS]
        self.none = Cat(*(count == 0 for count in self.counts)).any()
        self.streams = [self._stream("INPUT", write=False), self._stream("OUTPUT", write=True)]

    def _stream(self, side: str, *, write: bool) -> Stream:
        """Return a permutation's input or output as the scratchpad banks see it.

        A byte that is read or written repeatedly counts once.
        """
        first = self.command.register(f"EX_{side}_ADDRESS")
        last = first
        nbytes = Value.cast(1)
        for count, stride in zip(self.counts, self._strides(side), strict=True):
            last = (last + (count - 1) * stride)[:ADDRESS_BITS]
            nbytes = (nbytes * Mux(stride == 0, 1, count))[:ADDRESS_BITS]
        return Stream(~self.none if write else ~self.none & ~self.fill, first, last, nbytes, write)

    def _strides(self, side: str) -> list[Value]:
        return [self.command.register(f"EX_{side}_STRIDE_{number}") for number in DIMENSIONS]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipelined = self.limits.pipelined
        steps = Steps(m, self.advance, 2, pipelined=pipelined)
        gated_clock(m, self.name, steps.between(0, 1), cleared=True)
        gated_clock(m, self.write.domain, steps.valid[2])
        drive_clocks(m, (self.read, self.write))
        inputs = self._strides("INPUT")
        outputs = self._strides("OUTPUT")
        dense = (inputs[0] <= 1) & (outputs[0] <= 1)
        lanes = self.configuration.lanes
        banks = self.configuration.banks
        parallel = wire(m, Mux(dense | (lanes < banks), lanes, banks)[: len(lanes)], "parallel")
        nest = Nest(
            m, self.name, self.advance,
            [Level(self.counts[0], parallel), *map(Level, self.counts[1:])],
            domain=self.name,
        )  # fmt: skip
        m.d.comb += [self.empty.eq(self.none), self.last.eq(nest.last)]
        left = self.counts[0] - nest.index[0]
        number = wire(m, Mux(left < parallel, left, parallel)[: len(parallel)], "number")
        number = delayed(m, number, 1, pipelined=pipelined, domain=self.name, name="number")
        there = wire(m, Cat(*(lane < number for lane in range(self.limits.lanes))), "there")
        walk = NestWalk(self.advance, nest.first, nest.ends).later(
            m, 1, pipelined=pipelined, domain=self.name
        )
        at = {
            side: accumulate_strides(
                m, side.lower(), walk, [parallel * strides[0], *strides[1:]],
                self.command.register(f"EX_{side}_ADDRESS"), domain=self.name,
            )
            for side, strides in (("INPUT", inputs), ("OUTPUT", outputs))
        }  # fmt: skip
        m.d.comb += self.read.enable.eq(there)
        apart = multiples(m, inputs[0], self.limits.lanes, "input_apart")
        m.d.comb += [
            place.eq(at["INPUT"] + more)
            for place, more in zip(self.read.address, apart, strict=True)
        ]
        self._write(
            m,
            delayed(
                m, Cat(at["OUTPUT"], there), 1, pipelined=pipelined, domain=self.name, name="target"
            ),
        )
        return m

    def _write(self, m: Module, target: Value) -> None:
        """Write permuted bytes to the address in ``target``; its upper bits enable the lanes."""
        apart = multiples(m, self._strides("OUTPUT")[0], self.limits.lanes, "output_apart")
        filling = self.command.register("EX_INPUT_ZERO_POINT")[:8]
        for lane, more in enumerate(apart):
            m.d.comb += [
                self.write.enable[lane].eq(target[ADDRESS_BITS + lane]),
                self.write.address[lane].eq(target[:ADDRESS_BITS] + more),
                self.write.data[lane].eq(Mux(self.fill, filling, self.read.data[lane])),
            ]
