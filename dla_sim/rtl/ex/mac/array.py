"""The array: operands of each processing element, sums along i, and the accumulators.

Sums along i are taken within blocks, and the lane where a block begins has the accumulator. Stages:
1 finds the window positions of the lanes along i; 2 computes addresses and starts the reads; 3
registers the data; 4 multiplies.
"""

import itertools
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.building import stage
from dla_sim.rtl.ex.counting import Group, Odometer, Position
from dla_sim.rtl.ex.mac.work import COUNT_BITS, ArrayStep, Groups, Mapping, Work
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, ReadPort

PRODUCT_BITS = 32
"""Bits of products and of their factors: the word of a host processor."""


class ArrayLane(NamedTuple):
    """Operands of one input-channel lane i of the array, for j = 0 and k = 0.

    The values are those of the first group.

    Attributes:
        address: address of its input.
        column: column of its input.
        there: 1 if the lane has a product.
        row_inside: 1 if its row is within the input.
        weight: address of its weight.
    """

    address: Value
    column: Value
    there: Value
    row_inside: Value
    weight: Value


class Tap(NamedTuple):
    """Kernel tap: its column and row in the kernel, and the offset of the input channel."""

    column: Value
    row: Value
    channel: Value


@dataclass(frozen=True, eq=False)
class Multiplied:
    """Factors that the multipliers of the array receive at pipeline stage 4.

    ``inputs`` by (i, j, k) have their zero point subtracted, and are 0 if there is no product;
    ``weights`` are by (i, j). ``excess`` by k is the amount that the zero point of the weights adds
    to a column's sum.
    """

    inputs: Table[tuple[int, int, int], Value]
    weights: Table[tuple[int, int], Value]
    excess: Sequence[Value]


class OperandReader:
    """Driver of the array's read ports for inputs (i, j, k) and weights (i, j).

    The inputs of j = 0 have a port of their own.
    """

    def __init__(
        self,
        limits: Limits,
        configuration: Configuration,
        work: Work,
        ports: tuple[ReadPort, ReadPort | None, ReadPort],
    ) -> None:
        self.limits = limits
        self.configuration = configuration
        self.work = work
        self.inputs, self.more_inputs, self.weights = ports
        self._present: dict[tuple[int, int], Value] = {}
        self._inside: dict[tuple[int, int, int], Value] = {}

    def _stage(self, m: Module, value: Value, domain: str, name: str) -> Signal:
        return stage(m, value, pipelined=self.limits.pipelined, domain=domain, name=name)

    def address(
        self, m: Module, step: ArrayStep, mapping: Mapping, groups: Groups, domains: tuple[str, str]
    ) -> None:
        """Drive the read addresses of inputs and weights in pipeline stages 1 and 2.

        ``domains`` are the clock domains of the elements with j = 0 and of the others.
        """
        taps = self._taps(m, step, mapping, domains[0])
        lanes = [self._lane(m, step, mapping, i, tap) for i, tap in enumerate(taps)]
        held = [self._register_lane(m, lane, domains[0]) for lane in lanes]
        self._read_inputs(m, self.inputs, held, [0], mapping, groups, domains[0])
        if self.more_inputs is not None:
            others = [self._register_lane(m, lane, domains[1]) for lane in lanes]
            behind = list(range(1, self.limits.oc))
            self._read_inputs(m, self.more_inputs, others, behind, mapping, groups, domains[1])
        addresses = iter(self.weights.address)
        m.d.comb += self.weights.enable.eq(-1)
        for i, lane in enumerate(held):
            for j in range(self.limits.oc):
                own = wire(
                    m,
                    (mapping.channel[i, j] * self.work.weight_out)[:ADDRESS_BITS],
                    f"own_weights_{i}_{j}",
                )
                m.d.comb += next(addresses).eq(lane.weight + own)

    def _register_lane(self, m: Module, lane: ArrayLane, domain: str) -> ArrayLane:
        return ArrayLane(*(self._stage(m, value, domain, "lane") for value in lane))

    def _read_inputs(
        self, m: Module, port: ReadPort, lanes: Sequence[ArrayLane], across: Sequence[int],
        mapping: Mapping, groups: Groups, domain: str,
    ) -> None:  # fmt: skip
        """Drive the reads of the inputs of processing elements whose j is in ``across``."""
        work = self.work
        width = self.work.command.register("EX_INPUT_WIDTH")
        m.d.comb += port.enable.eq(-1)
        addresses = iter(port.address)
        for i, lane in enumerate(lanes):
            for j in across:
                self._present[i, j] = self._stage(m, lane.there, domain, f"present_{i}_{j}")
                start = wire(
                    m, (lane.address + groups.offset[i, j])[:ADDRESS_BITS], f"start_{i}_{j}"
                )
                for k in range(self.limits.ow):
                    own = wire(
                        m,
                        (mapping.column[i, j, k] * work.input_column)[:ADDRESS_BITS],
                        "own_column",
                    )
                    m.d.comb += next(addresses).eq(start + own)
                    inside = lane.row_inside & (
                        ((lane.column + own)[:ADDRESS_BITS] < width) | ~work.convolution
                    )
                    self._inside[i, j, k] = self._stage(m, inside, domain, f"inside_{i}_{j}_{k}")

    def _taps(self, m: Module, step: ArrayStep, mapping: Mapping, domain: str) -> list[Tap]:
        """Return the kernel tap of each lane along i.

        The channel is only valid if taps are side by side.
        """
        work = self.work
        pipelined = self.limits.pipelined
        odometer = Odometer(list(reversed(work.kernel)), COUNT_BITS, [work.input_channel])
        group = Group.build_group(
            m, odometer, self.configuration.ic, pipelined=pipelined, domain=domain
        )
        places = group.positions(m, self.limits.ic, step.valid, step.first, domain=domain)
        return [self._tap(m, step, mapping, i, places) for i in range(self.limits.ic)]

    def _tap(
        self, m: Module, step: ArrayStep, mapping: Mapping, i: int, places: Sequence[Position]
    ) -> Tap:
        """Return the kernel tap of lane i of the array.

        With taps side by side, its position is that of the lane whose number equals its index
        within its block.
        """
        work = self.work
        place = places[i]
        parts = [place.digits[0], place.digits[1], place.offsets[0]]
        for number in sorted({i % size for size in range(1, i + 1)}):
            other = places[number]
            own = mapping.deep.within[i] == number
            others = [other.digits[0], other.digits[1], other.offsets[0]]
            parts = [Mux(own, there, here) for there, here in zip(others, parts, strict=True)]
        column = wire(m, Mux(work.side_by_side, parts[0], step.tap_column), f"tap_column_{i}")
        row = wire(m, Mux(work.side_by_side, parts[1], step.tap_row), f"tap_row_{i}")
        return Tap(column, row, wire(m, parts[2], f"tap_channel_{i}"))

    def _lane(self, m: Module, step: ArrayStep, mapping: Mapping, i: int, tap: Tap) -> ArrayLane:
        work = self.work
        register = self.work.command.register
        within = mapping.deep.within[i]
        width = register("EX_INPUT_WIDTH")
        columns = wire(m, tap.column * register("EX_DILATION_WIDTH"), f"dilated_column_{i}")
        rows = wire(m, tap.row * register("EX_DILATION_HEIGHT"), f"dilated_row_{i}")
        columns, rows = (Mux(work.convolution, value, 0) for value in (columns, rows))
        channel = Mux(work.side_by_side, tap.channel, step.channel + within * work.input_channel)
        base = work.origin + step.column + step.row_offset + channel + rows * width + columns
        column = step.column + columns - work.left
        row = (step.row + rows - work.top)[:ADDRESS_BITS]
        there = (within < step.left) & mapping.used[i, 0]
        inside = (row < register("EX_INPUT_HEIGHT")) | ~work.convolution
        weight = step.weight + within * work.weight_in
        return ArrayLane(
            base[:ADDRESS_BITS], column[:ADDRESS_BITS], there, inside, weight[:ADDRESS_BITS]
        )

    def values(self, m: Module, several: Value, domains: tuple[str, str]) -> Multiplied:
        """Return the inputs and weights that are multiplied at pipeline stage 4.

        With ``several``, elements with j > 0 have inputs of their own. ``domains`` is as in
        :meth:`address`.
        """
        inputs = self._inputs(m, several, domains)
        weights = {}
        stored = iter(self.weights.data)
        for i in range(self.limits.ic):
            for j in range(self.limits.oc):
                held = self._stage(m, next(stored), domains[0], f"weight_{i}_{j}")
                weights[i, j] = Signal(signed(PRODUCT_BITS), name=f"wide_weight_{i}_{j}")
                m.d.comb += weights[i, j].eq(held.as_signed())
        return Multiplied(
            inputs, weights, [self._excess(m, inputs, k) for k in range(self.limits.ow)]
        )

    def _inputs(
        self, m: Module, several: Value, domains: tuple[str, str]
    ) -> dict[tuple[int, int, int], Value]:
        zero = wire(m, self.work.command.register("EX_INPUT_ZERO_POINT")[:8], "padding")
        taken = Signal(signed(PRODUCT_BITS), name="input_zero")
        m.d.comb += taken.eq(Mux(self.work.dynamic, zero.as_signed(), 0))
        inputs: dict[tuple[int, int, int], Value] = {}
        data = [iter(port.data) for port in (self.inputs, self.more_inputs) if port is not None]
        for i, j, k in itertools.product(
            range(self.limits.ic), range(self.limits.oc), range(self.limits.ow)
        ):
            stored = wire(
                m, Mux(self._inside[i, j, k], next(data[int(j > 0)]), zero), "stored"
            ).as_signed()
            value = Mux(self._present[i, j], (stored - taken)[:PRODUCT_BITS], 0)
            own = self._stage(m, value, domains[int(j > 0)], f"input_{i}_{j}_{k}").as_signed()
            inputs[i, j, k] = wire(m, Mux(several, own, inputs[i, 0, k]), "shared") if j else own
        return inputs

    def _excess(self, m: Module, inputs: Table[tuple[int, int, int], Value], k: int) -> Value:
        other = self.work.command.register("EX_OPERAND_ZERO_POINT")[:8].as_signed()
        total = sum((inputs[i, 0, k] for i in range(1, self.limits.ic)), inputs[0, 0, k])[
            :COUNT_BITS
        ].as_signed()
        excess = Signal(signed(PRODUCT_BITS), name=f"excess_{k}")
        m.d.comb += excess.eq(Mux(self.work.dynamic, wire(m, total, f"all_inputs_{k}") * other, 0))
        return excess


Place = tuple[int, int, int]
LARGEST_PRODUCT = 255 * 255
"""Largest product of two int8 values minus their zero points."""


class Array:
    """Accumulators of the products of a convolution or matrix product.

    ``sums`` by (i, j, k) are valid after the step at stage 4, for lanes i where a block begins.

    Sums are wide enough for as many products as the scratchpad has bytes. Products and their sums
    within a step have PRODUCT_BITS, so that simulators need no sign extension; synthesis removes
    the copies of the sign bit.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sums: dict[Place, Value] = {}
        self.bits = LARGEST_PRODUCT.bit_length() + limits.sram_bytes.bit_length() + 1

    def accumulate(
        self,
        m: Module,
        operands: Multiplied,
        mapping: Mapping,
        valid: Value,
        first: Value,
        domains: tuple[str, str],
    ) -> None:
        """Add the products of a step at stage 4 to the sums.

        Args:
            m: the module to extend.
            operands: factors of the products.
            mapping: assignment of lanes to blocks.
            valid: a step is at stage 4.
            first: it is the first step of its sums.
            domains: clock domains of the sums that begin in lane 0, and of those that begin in
                other lanes.
        """
        limits = self.limits
        for j in range(limits.oc):
            for k in range(limits.ow):
                products: list[Value] = [
                    wire(
                        m,
                        (operands.inputs[i, j, k] * operands.weights[i, j])[:PRODUCT_BITS],
                        f"product_{i}_{j}_{k}",
                    )
                    for i in range(limits.ic)
                ]
                totals = self._totals(m, products)
                for i in range(limits.ic):
                    held = Signal(signed(self.bits), name=f"sum_{i}_{j}_{k}")
                    segment = self._segment(m, totals, i, mapping)
                    if not i:
                        segment = (segment - operands.excess[k])[:PRODUCT_BITS]
                    total = Mux(first, 0, held) + wire(m, segment, "addend").as_signed()
                    now = wire(m, total[: self.bits].as_signed(), f"now_{i}_{j}_{k}")
                    with m.If(valid):
                        m.d[domains[int(i > 0)]] += held.eq(now)
                    self.sums[i, j, k] = held if limits.pipelined else now

    def _totals(self, m: Module, products: list[Value]) -> list[Value]:
        """Return the running sums of ``products``: of the first 0, 1, 2, … of them."""
        totals: list[Value] = [Const(0, PRODUCT_BITS)]
        for product in products:
            totals.append(
                wire(m, (totals[-1] + product)[:PRODUCT_BITS], "total")
                if len(totals) > 1
                else product
            )
        return totals

    def _segment(self, m: Module, totals: list[Value], i: int, mapping: Mapping) -> Value:
        """Return the sum of the products of the block that begins in lane i.

        Lanes that are not used contribute 0.
        """
        size = mapping.deep.size
        lanes = self.limits.ic
        if not i:
            found = totals[-1]
            for length in range(1, lanes // 2 + 1):
                found = Mux(mapping.split & (size == length), totals[length], found)
            return found
        found = Const(0, PRODUCT_BITS)
        for length in range(1, lanes - i + 1):
            if not i % length:
                found = Mux(size == length, (totals[i + length] - totals[i])[:PRODUCT_BITS], found)
        return wire(m, found, "segment")
