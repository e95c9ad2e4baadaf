"""Sums and extremes of rows whose elements lie side by side in the lanes: a scan that begins anew at every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed

SUM_BITS, SQUARE_BITS = 40, 48
"""Of the sum of a row's elements, signed, and of their squares."""


@dataclass(frozen=True, eq=False)
class Totals:
    """Of some elements: their sum (signed), the sum of their squares, and the largest one (signed, 8 bits)."""

    total: Value
    squares: Value
    largest: Value

    @staticmethod
    def of(value: Value, key: Value) -> Totals:
        """Of one element: ``value`` for the sums, ``key`` for the largest."""
        return Totals(value, value * value, key)

    def register(self, name: str, *, reset_less: bool = True) -> tuple[Totals, list[Signal]]:
        """Signals for totals, as totals and as a list."""
        shapes = {"total": signed(SUM_BITS), "squares": SQUARE_BITS, "largest": signed(8)}
        signals = [Signal(shape, name=f"{name}_{part}", reset_less=reset_less) for part, shape in shapes.items()]
        return Totals(*signals), signals

    def values(self) -> tuple[Value, Value, Value]:
        """All of it."""
        return self.total, self.squares, self.largest


def joined(m: Module, first: Totals, second: Totals, name: str) -> Totals:
    """Of the elements of both."""
    totals, signals = first.register(name)
    larger = Mux(first.largest > second.largest, first.largest, second.largest)
    values = (first.total + second.total, first.squares + second.squares, larger)
    m.d.comb += [signal.eq(value) for signal, value in zip(signals, values, strict=True)]
    return totals


def kept(m: Module, fresh: Value, old: Totals, new: Totals, name: str) -> Totals:
    """``new`` where ``fresh``, else of both."""
    totals, signals = old.register(name)
    both = joined(m, old, new, f"{name}_both").values()
    choices = zip(signals, new.values(), both, strict=True)
    m.d.comb += [signal.eq(Mux(fresh, alone, together)) for signal, alone, together in choices]
    return totals


def scan(m: Module, elements: Sequence[Totals], begins: Sequence[Value], carry: Totals, name: str) -> list[Totals]:
    """Of each lane, the totals of its row's elements up to it; ``carry`` are those of a row that began before lane 0.

    ``begins``: the lane has the first element of a row. In log2(lanes) steps (Hillis and Steele, "Data parallel
    algorithms", Communications of the ACM 29(12), 1986).
    """
    running = [kept(m, begins[0], carry, elements[0], f"{name}_0"), *elements[1:]]
    stops: list[Value] = [Const(1, 1), *begins[1:]]  # lane 0 has what is before it
    distance = 1
    while distance < len(running):
        lower = list(zip(running, stops, strict=True))
        for lane in range(distance, len(running)):
            (own, stop), (before, earlier) = lower[lane], lower[lane - distance]
            running[lane] = kept(m, stop, before, own, f"{name}_{distance}_{lane}")
            stops[lane] = Signal(name=f"{name}_{distance}_{lane}_stop")
            m.d.comb += stops[lane].eq(stop | earlier)
        distance *= 2
    return running
