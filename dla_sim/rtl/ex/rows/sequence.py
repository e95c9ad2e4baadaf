"""Order in which the elements of rows are read: passes over groups with one row per lane.

OP_REDUCE reads all elements once. OP_SOFTMAX and OP_NORM read the elements of a group twice. In
between, softmax sums its entries in order (one row per lane, one element per step), and norms
compute one root per step. A whole group has lanes × row length elements, so lanes only idle in the
last step of the last group. All groups together take the steps given in docs/isa.md. Each lane has
its position as a three-digit number; all positions advance by the number of lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from amaranth.hdl import Const, Module, Mux, Signal, Value

DIGIT_BITS = 33
"""Bits of a digit and its overflow."""


@dataclass(frozen=True, eq=False)
class Place:
    """Position of an element in a group of rows, as digits, innermost first, and a row number.

    The outermost digit never wraps.
    """

    inner: Value
    middle: Value
    outer: Value
    row: Value

    def values(self) -> tuple[Value, ...]:
        """Return the digits of an element's position and the number of its row."""
        return self.inner, self.middle, self.outer, self.row


@dataclass(frozen=True, eq=False)
class Radix:
    """Sizes of the two inner digits of a position.

    A row ends when the innermost digit wraps or, with ``deep``, when the middle one does.
    """

    inner: Value
    middle: Value
    deep: Value


ZERO = Place(Const(0, 1), Const(0, 1), Const(0, 1), Const(0, 1))


def make_registers(domain: str, name: str, row_bits: int) -> tuple[Place, list[Signal]]:
    """Return registers for a position, as a position and as a list; nothing drives them yet."""
    widths = (DIGIT_BITS - 1, DIGIT_BITS - 1, DIGIT_BITS, row_bits)
    names = ("inner", "middle", "outer", "row")
    signals = [
        Signal(width, name=f"{name}_{digit}", reset_less=domain != "sync")
        for width, digit in zip(widths, names, strict=True)
    ]
    return Place(*signals), signals


def add(m: Module, radix: Radix, a: Place, b: Place, name: str) -> Place:
    """Return the sum of two positions and of their rows; each digit wraps at most once."""
    inner, over = _digit(m, a.inner + b.inner, radix.inner, f"{name}_inner")
    middle, beyond = _digit(m, a.middle + b.middle + over, radix.middle, f"{name}_middle")
    row = a.row + b.row + Mux(radix.deep, beyond, over)
    return Place(inner, middle, a.outer + b.outer + beyond, row)


def _digit(m: Module, total: Value, size: Value, name: str) -> tuple[Signal, Signal]:
    """Return remainder and carry of a digit whose value is below twice its size."""
    rest = Signal(DIGIT_BITS, name=name)
    carry = Signal(name=f"{name}_carry")
    difference = Signal(DIGIT_BITS + 2, name=f"{name}_less")
    m.d.comb += [
        difference.eq(total - size),
        carry.eq(~difference[-1]),
        rest.eq(Mux(carry, difference, total)),
    ]
    return rest, carry


def small_places(m: Module, radix: Radix, count: int) -> list[Place]:
    """Return the positions of elements 0 to ``count``, each computed from the previous one."""
    bits = count.bit_length()
    places = [ZERO]
    for number in range(count):
        before = places[-1]
        signals = [Signal(bits, name=f"element_{number + 1}_{digit}") for digit in range(4)]
        inner, middle, outer, row = signals
        over = before.inner + 1 == radix.inner
        beyond = over & (before.middle + 1 == radix.middle)
        m.d.comb += [
            inner.eq(Mux(over, 0, before.inner + 1)),
            middle.eq(Mux(beyond, 0, before.middle + over)),
            outer.eq(before.outer + beyond),
            row.eq(before.row + Mux(radix.deep, beyond, over)),
        ]
        places.append(Place(*signals))
    return places


def choose_place(m: Module, places: list[Place], number: Value, name: str) -> Place:
    """Return the position of element ``number``, by which all lanes advance.

    A constant number needs no logic.
    """
    if isinstance(number, Const):
        return places[int(number.value)]
    digits: list[Value] = [Const(0, 1)] * 4
    for index, place in enumerate(places):
        digits = [
            old | Mux(number == index, digit, 0)
            for old, digit in zip(digits, place.values(), strict=True)
        ]
    signals = [
        Signal(digit.shape(), name=f"{name}_{position}") for position, digit in enumerate(digits)
    ]
    m.d.comb += [signal.eq(digit) for signal, digit in zip(signals, digits, strict=True)]
    return Place(*signals)


class Pass(IntEnum):
    """Pass of a row instruction: first pass, work between the passes, or last pass."""

    FIRST = 0
    BETWEEN = 1
    LAST = 2


@dataclass(frozen=True, eq=False)
class Task:
    """A row command: sizes of its element digits, its instruction, and whether it has elements."""

    radix: Radix
    outer: Value
    reduce: Value
    norm: Value
    elements: Value


@dataclass(frozen=True, eq=False)
class Step:
    """State of one step in the passes over rows.

    Attributes:
        kind: the pass.
        opens: the step is the first of its pass.
        closes: the step is the last of its pass.
        middle: middle digit of the first row of the group.
        outer: outer digit of the first row of the group.
        number: index of the step between the passes.
    """

    kind: Signal
    opens: Signal
    closes: Signal
    middle: Signal
    outer: Signal
    number: Signal


def sequence(
    m: Module, task: Task, lanes: Value, width: Place, advance: Value, last: Signal, row_bits: int
) -> Step:
    """Return this cycle's step, whose registers of ``sync`` advance with ``advance``.

    Drive ``last``.

    ``width`` is the position that is one element per lane ahead.
    """
    kind = Signal(2)
    opens = Signal(init=1)
    closes = Signal()
    base_middle = Signal(DIGIT_BITS - 1)
    base_outer = Signal(DIGIT_BITS)
    number = Signal(32)
    now = Signal(2)
    place, registers = make_registers("sync", "leader", row_bits)
    m.d.comb += now.eq(Mux(task.norm & ~task.elements, Pass.BETWEEN, kind))
    base = Place(
        *(
            Mux(opens, value, held_)
            for value, held_ in zip((0, base_middle, base_outer, 0), place.values(), strict=True)
        )
    )
    following = add(m, task.radix, base, width, "leader_next")
    ends = Signal()
    group_ends = Signal()
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
        last.eq(
            Mux(
                now == Pass.BETWEEN,
                between & ~task.elements,
                ends & ((now == Pass.LAST) | task.reduce),
            )
        ),
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
    """Advance the passes over rows to the next step or pass; restart after the last step."""
    now, closes, last = flags
    kind, opens, number = state
    m.d.sync += [
        register.eq(value) for register, value in zip(registers, following.values(), strict=True)
    ]
    m.d.sync += [opens.eq(closes), number.eq(Mux(closes, 0, number + 1))]
    with m.If(last):
        m.d.sync += kind.eq(Pass.FIRST)
    with m.Elif(closes):
        m.d.sync += kind.eq(Mux(now == Pass.LAST, Pass.FIRST, now + 1))
