"""A component, the draws of its operands, and its expected results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth.hdl import Elaboratable, Module, Shape, Value
from amaranth.lib import wiring
from numpy.typing import NDArray

from tests.dla_sim.rtl.vectors import Component, Vectors

Bits = NDArray[np.int64]
Drawn = dict[str, Bits]
Generator = np.random.Generator


def alone(
    expected: Callable[[Vectors], NDArray[Any]],
) -> Callable[[Vectors], Mapping[str, NDArray[Any]]]:
    """Return the expectation of a component whose only output is ``result``."""
    return lambda inputs: {"result": expected(inputs)}


@dataclass(frozen=True)
class Case:
    """A component, the draws of its operands, and its expected results.

    ``steady`` operands belong to a command, so a component with pipeline registers has one of each
    in a run.
    """

    name: str
    make: Callable[[bool], Component]
    draw: Callable[[Generator, int], Drawn]
    expected: Callable[[Vectors], Mapping[str, NDArray[Any]]]
    steady: tuple[str, ...] = ()

    def vectors(self, seed: int, count: int, *, pipelined: bool) -> Drawn:
        """Operands; with ``pipelined`` the steady ones are all the same."""
        drawn = self.draw(np.random.default_rng(seed), count)
        kept = self.steady if pipelined else ()
        return {
            name: np.full_like(values, values[0]) if name in kept else values
            for name, values in drawn.items()
        }

    def wrong(self, inputs: Drawn, found: Mapping[str, Bits]) -> list[str]:
        """Return operands and results, one line each, of differing vectors."""
        with np.errstate(all="ignore"):
            expected = self.expected(inputs)
        names = list(expected)
        bad = np.any([found[name] != expected[name] for name in names], axis=0)
        lines = [
            f"{ {name: int(values[place]) for name, values in inputs.items()} }: "
            f"{ {name: int(found[name][place]) for name in names} } instead of "
            f"{ {name: int(expected[name][place]) for name in names} }"
            for place in np.flatnonzero(bad)[:5]
        ]
        return [*lines, f"{bad.sum()} of {len(bad)}"] if lines else []


class Gates(wiring.Component):
    """The logic that a function adds to a module, as a component of float32 bits or integers."""

    def __init__(
        self, shapes: Mapping[str, Shape], result: Shape, function: Callable[..., Value]
    ) -> None:
        self._names = tuple(shapes)
        self._function = function
        super().__init__(
            {name: wiring.In(shape) for name, shape in shapes.items()}
            | {"result": wiring.Out(result)}
        )

    def elaborate(self, platform: object) -> Elaboratable:
        """The gates."""
        m = Module()
        m.d.comb += self.result.eq(
            self._function(m, *(getattr(self, name) for name in self._names))
        )
        return m


def real(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers whose float32 bits these are."""
    return np.asarray(bits).astype(np.uint32).view(np.float32)


def bits_of(numbers: NDArray[np.float32]) -> Bits:
    """Return the float32 bits of numbers, 0x7FC00000 for NaN."""
    held = np.where(
        np.isnan(numbers), np.uint32(0x7FC00000), np.asarray(numbers, np.float32).view(np.uint32)
    )
    return held.astype(np.int64)


_SPECIAL = (0, 1, 0x007FFFFF, 0x00800000, 0x3F000000, 0x7F7FFFFF, 0x7F800000)


def any_float(rng: Generator, count: int) -> Bits:
    """Draw bits of float32 numbers of all kinds.

    They are usual ones, subnormal ones, extreme significands, and infinities.
    """
    bits = rng.integers(0, 1 << 32, count)
    kind = rng.integers(0, 8, count)
    everyday = (bits & 0x807FFFFF) | (rng.integers(90, 160, count) << 23)
    ends = (bits & 0xFF800000) | rng.choice([0, 1, 0x3FFFFF, 0x400000, 0x7FFFFE, 0x7FFFFF], count)
    special = rng.choice(_SPECIAL, count) | (bits & 0x80000000)
    choices = [kind < 4, kind == 4, kind == 5, kind == 6]
    return np.select(choices, [everyday, bits & 0x807FFFFF, ends, special], bits)


def finite_float(rng: Generator, count: int) -> Bits:
    """Draw bits like `any_float`, without infinities and NaN."""
    bits = any_float(rng, count)
    return np.where((bits & 0x7F800000) == 0x7F800000, bits & 0x807FFFFF, bits)


def near_float(rng: Generator, bits: Bits) -> Bits:
    """Draw numbers that nearly cancel the given ones, or are some binary places away."""
    count = len(bits)
    exponent = np.clip((bits & 0x7F800000) + (rng.integers(-30, 31, count) << 23), 0, 0x7F000000)
    neighbour = ((bits ^ 0x80000000) + rng.integers(-3, 4, count)) & 0xFFFFFFFF
    kind = rng.integers(0, 4, count)
    other = any_float(rng, count)
    return np.select([kind == 0, kind == 1], [other, neighbour], (other & 0x807FFFFF) | exponent)


def integers(bits: int) -> Callable[[Generator, int], Bits]:
    """Signed integers of any size within ``bits``, the ends among them."""

    def draw(rng: Generator, count: int) -> Bits:
        ends = np.array([0, 1, -1, (1 << (bits - 1)) - 1, -1 << (bits - 1)])
        values = rng.integers(-1 << (bits - 1), 1 << (bits - 1), count) >> rng.integers(
            0, bits, count
        )
        return np.where(rng.integers(0, 50, count) == 0, rng.choice(ends, count), values)

    return draw


def limits(rng: Generator, count: int) -> Drawn:
    """Zero points, mostly of bytes, and limits, mostly wide."""
    wide = rng.integers(0, 2, count) == 0
    ends = np.sort(rng.integers(-128, 128, (2, count)), axis=0)
    kind = rng.integers(0, 4, count)
    zeros = np.select(
        [kind == 0, kind == 1], [integers(16)(rng, count), 0], rng.integers(-128, 256, count)
    )
    return {
        "zero_point": zeros,
        "low": np.where(wide, -128, ends[0]),
        "high": np.where(wide, 127, ends[1]),
    }


LIMITS = "zero_point", "low", "high"


def held(values: NDArray[Any], inputs: Vectors) -> Bits:
    """Integers plus the zero point, within the limits."""
    return np.clip(values + inputs["zero_point"], inputs["low"], inputs["high"]).astype(np.int64)


def multipliers(rng: Generator, count: int) -> Bits:
    """Multipliers of int32: mostly those that `quantise_multiplier` makes."""
    return np.where(
        rng.integers(0, 8, count) == 0,
        integers(32)(rng, count),
        rng.integers(1 << 30, 1 << 31, count),
    )
