"""The array: a product of each element, sums along i within blocks, and an accumulator where a block begins."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.ex.mac.mapping import Mapping
from dla_sim.rtl.ex.mac.operands import PRODUCT_BITS, Multiplied
from dla_sim.rtl.parameters import Limits

Place = tuple[int, int, int]
LARGEST_PRODUCT = 255 * 255
"""Of two int8 less their zero points."""


class Array:
    """``sums`` by (i, j, k) after the step at stage 4, where a block begins in lane i.

    Stage 4 alone. As wide as the sum of as many products as there are bytes in the scratchpad. Products and what is
    added at once have PRODUCT_BITS, so that simulators extend no signs: synthesis knows which bits are copies.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sums: dict[Place, Value] = {}
        self.bits = LARGEST_PRODUCT.bit_length() + limits.sram_bytes.bit_length() + 1

    def accumulate(
        self, m: Module, operands: Multiplied, mapping: Mapping, valid: Value, first: Value, domains: tuple[str, str]
    ) -> None:
        """``valid``: there is a step at stage 4; ``first``: it is that of its sums.

        ``domains``: of the sums that begin in lane 0, and of those that begin in other lanes.
        """
        limits = self.limits
        for j in range(limits.oc):
            for k in range(limits.ow):
                products: list[Value] = [
                    wire(m, (operands.inputs[i, j, k] * operands.weights[i, j])[:PRODUCT_BITS], f"product_{i}_{j}_{k}")
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
        """The sums of the first 0, 1, 2, … products."""
        totals: list[Value] = [Const(0, PRODUCT_BITS)]
        for product in products:
            totals.append(wire(m, (totals[-1] + product)[:PRODUCT_BITS], "total") if len(totals) > 1 else product)
        return totals

    def _segment(self, m: Module, totals: list[Value], i: int, mapping: Mapping) -> Value:
        """The sum of the products of a block that begins in lane i: what is behind all others' lanes is 0."""
        size, lanes = mapping.deep.size, self.limits.ic
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
