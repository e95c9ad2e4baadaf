"""Counters of engines: nested loops, values that advance with them, and the positions of lanes.

No divider is used: the quotient and remainder of a lane's number are sums of those of powers of
two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.building import stage
from dla_sim.rtl.ports import ADDRESS_BITS


def delayed(
    m: Module, value: ValueLike, stages: int, *, pipelined: bool, domain: str, name: str
) -> Value:
    """Return ``value`` delayed by ``stages`` pipeline registers."""
    held = Value.cast(value)
    for number in range(stages):
        held = stage(m, held, pipelined=pipelined, domain=domain, name=f"{name}_{number}")
    return held


def multiples(m: Module, value: Value, count: int, name: str) -> list[Value]:
    """Return the first ``count`` multiples of ``value`` (0, value, 2 · value, …).

    They are modulo 2^32; each costs one adder.
    """
    found: list[Value] = [Const(0, ADDRESS_BITS)]
    for number in range(1, count):
        power = number.bit_length() - 1
        total = found[number - (1 << power)] + (value << power)
        found.append(wire(m, total[:ADDRESS_BITS], f"{name}_{number}"))
    return found


@dataclass(frozen=True, eq=False)
class Level:
    """A loop from 0 in steps of ``step`` while below ``count``, which is at least 1."""

    count: Value
    step: ValueLike = 1


class Nest:
    """Nested loops, innermost first, that advance one step per cycle with ``advance``.

    - ``index``: the current value of each level.
    - ``ends``: entry n is 1 if levels 0 to n are all at their last step.
    - ``last``: all levels are at their last step; after it all loops restart.
    - ``first``: no step has been taken since the start.

    ``domain`` must have a reset.
    """

    def __init__(
        self, m: Module, name: str, advance: Value, levels: Sequence[Level], *, domain: str = "sync"
    ) -> None:
        self.advance = advance
        self.domain = domain
        self.index = [
            Signal(len(level.count), name=f"{name}_index_{n}") for n, level in enumerate(levels)
        ]
        self.ends: list[Signal] = []
        begun = Signal(name=f"{name}_begun")
        inner: Value = Const(1, 1)
        for number, (index, level) in enumerate(zip(self.index, levels, strict=True)):
            following = wire(m, index + level.step, f"{name}_following_{number}")
            end = wire(m, inner & (following >= level.count), f"{name}_end_{number}")
            with m.If(advance & inner):
                m.d[domain] += index.eq(Mux(end, 0, following))
            self.ends.append(end)
            inner = end
        self.last = self.ends[-1]
        self.first = wire(m, ~begun, f"{name}_first")
        with m.If(advance):
            m.d[domain] += begun.eq(~self.last)

    def offset(self, m: Module, name: str, strides: Sequence[Value | None]) -> Value:
        """Return the sum over nested loops of stride · steps taken, modulo 2^32.

        A stride of None counts as 0.
        """
        total: Value = Const(0, ADDRESS_BITS)
        for number, (stride, end) in enumerate(zip(strides, self.ends, strict=True)):
            if stride is None:
                continue
            part = Signal(ADDRESS_BITS, name=f"{name}_{number}")
            inner = self.ends[number - 1] if number else Const(1, 1)
            with m.If(self.advance & inner):
                m.d[self.domain] += part.eq(Mux(end, 0, part + stride))
            total = (total + part)[:ADDRESS_BITS]
        return wire(m, total, name)


@dataclass(frozen=True, eq=False)
class NestWalk:
    """Step signals of nested loops as a later pipeline stage sees them.

    ``valid`` marks a step, ``first`` the first one of the command; ``ends`` are those of the nest.
    """

    valid: Value
    first: Value
    ends: Sequence[Value]

    def later(self, m: Module, stages: int, *, pipelined: bool, domain: str) -> NestWalk:
        """Return the step signals of nested loops, delayed by ``stages`` pipeline stages."""
        packed = Cat(self.valid, self.first, *self.ends)
        held = delayed(m, packed, stages, pipelined=pipelined, domain=domain, name="walk")
        return NestWalk(held[0], held[1], [held[2 + number] for number in range(len(self.ends))])


def accumulate_strides(
    m: Module,
    name: str,
    walk: NestWalk,
    strides: Sequence[ValueLike],
    start: ValueLike = 0,
    *,
    domain: str,
) -> Signal:
    """Return an address that follows the counters of ``walk``.

    It is start + the sum over levels of stride · steps taken, modulo 2^32, for the step of
    ``walk``.

    Each level has a register that stores the value at which its current step began.
    """
    registers = [
        Signal(ADDRESS_BITS, name=f"{name}_{number}", reset_less=True)
        for number in range(len(strides))
    ]
    current = [
        wire(m, Mux(walk.first, start, held)[:ADDRESS_BITS], f"{name}_at_{number}")
        for number, held in enumerate(registers)
    ]
    with m.If(walk.valid):
        advanced: list[Value] = []
        for at, stride in zip(current, strides, strict=True):
            advanced.append(wire(m, (at + stride)[:ADDRESS_BITS], f"{name}_advanced"))
        for number, held in enumerate(registers):
            value: Value = advanced[number]
            for level in range(number + 1, len(strides)):
                value = Mux(walk.ends[level - 1], advanced[level], value)
            inner = walk.ends[number - 1] if number else Const(1, 1)
            m.d[domain] += held.eq(Mux(inner, value, current[number]))
    return current[0]


@dataclass(frozen=True, eq=False)
class Position:
    """Position of an element as mixed-radix digits.

    ``digits`` are ordered fastest first; ``offsets`` advance with the last digit.
    """

    digits: tuple[Value, ...]
    offsets: tuple[Value, ...] = ()


class Odometer:
    """Arithmetic on positions in a tensor whose inner dimensions have ``radices`` elements.

    The outermost digit has ``outer_bits`` and never wraps; each of its steps adds ``weights`` to
    the offsets. With ``outer_bits`` 0 there is no such digit, and the last radix wraps around.
    """

    def __init__(
        self, radices: Sequence[Value], outer_bits: int = 0, weights: Sequence[Value] = ()
    ) -> None:
        self.radices = radices
        self.outer_bits = outer_bits
        self.weights = weights

    def sum(self, m: Module, a: Position, b: Position) -> Position:
        """Return the sum of two element positions: n elements after position ``a``.

        ``b`` is n elements after the first element.
        """
        carry: Value = Const(0, 1)
        digits: list[Value] = []
        for radix, left, right in zip(self.radices, a.digits, b.digits, strict=False):
            total = wire(m, left + right + carry, "total")
            wraps = wire(m, total >= radix, "wraps")
            digits.append(wire(m, Mux(wraps, total - radix, total)[: len(radix)], "digit"))
            carry = wraps
        if self.outer_bits:
            digits.append(
                wire(m, (a.digits[-1] + b.digits[-1] + carry)[: self.outer_bits], "digit")
            )
        offsets = [
            wire(m, (left + right + Mux(carry, weight, 0))[:ADDRESS_BITS], "offset")
            for left, right, weight in zip(a.offsets, b.offsets, self.weights, strict=True)
        ]
        return Position(tuple(digits), tuple(offsets))

    def zero(self) -> Position:
        """Return the position of a tensor's first element."""
        widths = [len(radix) for radix in self.radices] + [self.outer_bits] * bool(self.outer_bits)
        return Position(
            tuple(Const(0, width) for width in widths),
            tuple(Const(0, ADDRESS_BITS) for _ in self.weights),
        )

    def power(self, m: Module, bits: int) -> list[Position]:
        """Return the positions of the elements 1, 2, 4, … 2^(bits - 1)."""
        zero = self.zero()
        found = [
            self.sum(
                m,
                zero,
                Position((Const(1, 1), *(Const(0, 1) for _ in zero.digits[1:])), zero.offsets),
            )
        ]
        for _ in range(bits - 1):
            found.append(self.sum(m, found[-1], found[-1]))
        return found

    def register_position(
        self, m: Module, position: Position, *, pipelined: bool, domain: str
    ) -> Position:
        """Return an element position delayed by one pipeline register."""
        keep = [
            [stage(m, part, pipelined=pipelined, domain=domain, name="held") for part in parts]
            for parts in (position.digits, position.offsets)
        ]
        return Position(tuple(keep[0]), tuple(keep[1]))


@dataclass(frozen=True, eq=False)
class Group:
    """Constants of a command from which the element position of every lane is computed.

    ``powers`` are the positions of elements 1, 2, 4, …; ``step`` is the position by which all lanes
    advance.
    """

    odometer: Odometer
    powers: Sequence[Position]
    step: Position

    @classmethod
    def build_group(
        cls, m: Module, odometer: Odometer, step: Value, *, pipelined: bool, domain: str
    ) -> Group:
        """Build the constants for a group of ``step`` lanes, behind a pipeline register."""
        powers = odometer.power(m, len(step))
        total = odometer.zero()
        for number, power in enumerate(powers):
            more = odometer.sum(m, total, power)
            parts = zip((*more.digits, *more.offsets), (*total.digits, *total.offsets), strict=True)
            chosen = [wire(m, Mux(step[number], new, old), "chosen") for new, old in parts]
            total = Position(tuple(chosen[: len(more.digits)]), tuple(chosen[len(more.digits) :]))
        powers = [
            odometer.register_position(m, one, pipelined=pipelined, domain=domain) for one in powers
        ]
        total = odometer.register_position(m, total, pipelined=pipelined, domain=domain)
        return cls(odometer, powers, total)

    def positions(
        self, m: Module, lanes: int, valid: Value, first: Value, *, domain: str
    ) -> list[Position]:
        """Return the element positions of all lanes in this step.

        The positions advance with ``valid``; with ``first`` they are the initial ones.
        """
        initial = [self.odometer.zero()]
        found = []
        for lane in range(lanes):
            if lane:
                power = lane.bit_length() - 1
                initial.append(
                    self.odometer.sum(m, initial[lane - (1 << power)], self.powers[power])
                )
            begin = (*initial[lane].digits, *initial[lane].offsets)
            registers = [
                Signal(part.shape(), name=f"lane_{lane}", reset_less=True) for part in begin
            ]
            now = [
                wire(m, Mux(first, a, b), f"at_{lane}")
                for a, b in zip(begin, registers, strict=True)
            ]
            places = len(initial[lane].digits)
            at = Position(tuple(now[:places]), tuple(now[places:]))
            following = self.odometer.sum(m, at, self.step)
            with m.If(valid):
                parts = zip(registers, (*following.digits, *following.offsets), strict=True)
                m.d[domain] += [held.eq(part) for held, part in parts]
            found.append(at)
        return found
