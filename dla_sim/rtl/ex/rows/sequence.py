"""In which order the elements of rows are read: passes over groups of as many rows as there are lanes.

OP_REDUCE goes over all elements once. OP_SOFTMAX and OP_NORM go over the elements of a group twice, and between that
over its rows: the sums in order, a row a lane and an element a step; or a root a step. A whole group has as many
elements as lanes times those of a row, so that no lane idles but in the last step of the last group, and all groups
together take the steps of docs/isa.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal, Value

from dla_sim.rtl.ex.rows.odometer import DIGIT_BITS, Place, Radix, add, held


class Pass(IntEnum):
    """What a step does."""

    FIRST = 0
    BETWEEN = 1
    LAST = 2


@dataclass(frozen=True, eq=False)
class Task:
    """A command: ``radix`` of its elements and ``outer`` groups of them; which instruction; whether it has elements."""

    radix: Radix
    outer: Value
    reduce: Value
    norm: Value
    elements: Value


@dataclass(frozen=True, eq=False)
class Step:
    """A step: its pass, whether it is the pass's first or last one, the first row of its group as the two outer digits,
    and the number of the step between the passes.
    """

    kind: Signal
    opens: Signal
    closes: Signal
    middle: Signal
    outer: Signal
    number: Signal


def sequence(m: Module, task: Task, lanes: Value, width: Place, advance: Value, last: Signal, row_bits: int) -> Step:
    """The step of this cycle, and registers of ``sync`` that go on with ``advance``. Drives ``last``.

    ``width``: the place that is as many elements on as there are lanes.
    """
    kind, opens, closes = Signal(2), Signal(init=1), Signal()
    base_middle, base_outer = Signal(DIGIT_BITS - 1), Signal(DIGIT_BITS)
    number, now = Signal(32), Signal(2)
    place, registers = held("sync", "leader", row_bits)
    m.d.comb += now.eq(Mux(task.norm & ~task.elements, Pass.BETWEEN, kind))
    base = Place(
        *(
            Mux(opens, value, held_)
            for value, held_ in zip((0, base_middle, base_outer, 0), place.values(), strict=True)
        )
    )
    following = add(m, task.radix, base, width, "leader_next")
    ends, group_ends = Signal(), Signal()
    m.d.comb += [
        ends.eq(following.outer >= task.outer),
        group_ends.eq(ends | (~task.reduce & (following.row >= lanes))),
    ]
    between = Mux(
        task.norm,
        ((number + 1 == lanes) & task.elements) | (base_outer + number + 1 == task.outer),
        number + 1 == task.radix.inner,
    )
    m.d.comb += [
        closes.eq(Mux(now == Pass.BETWEEN, between, group_ends)),
        last.eq(Mux(now == Pass.BETWEEN, between & ~task.elements, ends & ((now == Pass.LAST) | task.reduce))),
    ]
    with m.If(advance):
        _go_on(m, (now, closes, last), (kind, opens, number), registers, following)
        with m.If(closes & (now == Pass.LAST)):
            m.d.sync += [base_middle.eq(following.middle), base_outer.eq(following.outer)]
        with m.If(last):
            m.d.sync += [base_middle.eq(0), base_outer.eq(0)]
    return Step(now, opens, closes, base_middle, base_outer, number)


def _go_on(
    m: Module,
    flags: tuple[Value, Value, Value],
    state: tuple[Signal, Signal, Signal],
    registers: Sequence[Signal],
    following: Place,
) -> None:
    """The next step of the pass, or the first one of the next pass, or all as it was in the beginning."""
    now, closes, last = flags
    kind, opens, number = state
    m.d.sync += [register.eq(value) for register, value in zip(registers, following.values(), strict=True)]
    m.d.sync += [opens.eq(closes), number.eq(Mux(closes, 0, number + 1))]
    with m.If(last):
        m.d.sync += kind.eq(Pass.FIRST)
    with m.Elif(closes):
        m.d.sync += kind.eq(Mux(now == Pass.LAST, Pass.FIRST, now + 1))
