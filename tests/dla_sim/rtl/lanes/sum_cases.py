"""Averages, running sums and interpolation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from amaranth.hdl import Elaboratable, Module, signed
from amaranth.lib import wiring
from numpy.typing import NDArray

from dla_sim.rtl.arithmetic.pooling import (
    COUNT,
    AverageResult,
    AverageTerm,
    InterpolationResult,
    InterpolationTerm,
    Neighbours,
    RunningSum,
    mean_multiplier,
)
from isa import numerics
from isa.numerics.pooling import neighbours
from isa.numerics.requantising import rint_to_int64
from isa.registers import to_signed
from tests.dla_sim.rtl.lanes.case import (
    Bits,
    Case,
    Drawn,
    Generator,
    alone,
    bits_of,
    finite_float,
    integers,
    near_float,
    real,
)
from tests.dla_sim.rtl.lanes.commanded import (
    Registers,
    commanded,
    fixed_registers,
    floats_of,
    made,
    scales_of,
    zero_points,
)
from tests.dla_sim.rtl.vectors import Vectors


def _sum_draw(rng: Generator, count: int) -> Drawn:
    total = finite_float(rng, count)
    return {"total": total, "term": near_float(rng, total)}


def _integer_sum(rng: Generator, count: int) -> Drawn:
    return {"total": integers(38)(rng, count), "term": integers(38)(rng, count)}


def _running_sum(fixed: bool) -> Case:
    def expected(inputs: Vectors) -> Bits:
        if fixed:
            return inputs["total"] + inputs["term"]
        return bits_of(real(inputs["total"]) + real(inputs["term"]))

    name = "running_sum_fixed" if fixed else "running_sum"
    return Case(
        name,
        lambda pipelined: RunningSum(fixed=fixed),
        _integer_sum if fixed else _sum_draw,
        alone(expected),
    )


def _taps(rng: Generator, count: int) -> Drawn:
    return {"value": rng.integers(-128, 128, count), "valid": rng.integers(0, 2, count)}


def _average_term(fixed: bool) -> Callable[[Drawn, Any], NDArray[Any]]:
    def expected(operands: Drawn, command: Any) -> NDArray[Any]:
        zero = command["EX_INPUT_ZERO_POINT"]
        offset = command["EX_OFFSET"]
        if fixed:
            return np.where(operands["valid"], operands["value"] - zero, -offset)
        value = np.where(operands["valid"], operands["value"] + offset - zero, 0).astype(np.float32)
        return bits_of(value * floats_of(command, "A")[0])

    return expected


def _averages(fixed: bool) -> Callable[[Generator], Registers]:
    """Constants of an average; with fixed numerics sometimes those of one quantisation."""

    def draw(rng: Generator) -> Registers:
        registers = scales_of(fixed, "AY")(rng)
        if fixed and rng.integers(0, 3) == 0:
            registers |= fixed_registers(A=1.0) | {
                "EX_OUTPUT_ZERO_POINT": registers["EX_INPUT_ZERO_POINT"]
            }
        return registers

    return draw


def _totals(fixed: bool) -> Callable[[Generator, int], Drawn]:
    """Sums of so many taps."""

    def draw(rng: Generator, count: int) -> Drawn:
        taps = np.where(
            rng.integers(0, 4, count) == 0,
            rng.integers(1, 1 << 22, count),
            rng.integers(1, 50, count),
        )
        mean = rng.uniform(-384, 384, count)
        total = np.rint(taps * mean).astype(np.int64)
        if not fixed:
            scale = np.float32(np.exp(rng.uniform(-8, 2, count)))
            total = np.where(
                rng.integers(0, 4, count) == 0, finite_float(rng, count), bits_of(total * scale)
            )
        return {"total": total, "count": taps}

    return draw


def _average_result(fixed: bool) -> Callable[[Drawn, Any], NDArray[Any]]:
    def expected(operands: Drawn, command: Any) -> NDArray[Any]:
        total = operands["total"]
        count = operands["count"]
        low = command["EX_CLAMP_LOW"]
        high = command["EX_CLAMP_HIGH"]
        before, after = zero_points(command)
        if fixed:
            scale = command["EX_SCALE_A"], command["EX_SHIFT_A"]
            return numerics.average_fixed(
                total + count * before, count, *scale, before, after, low, high
            )
        steps = real(total) / count.astype(np.float32) / floats_of(command, "Y")[0] + np.float32(
            after
        )
        return numerics.saturate_int8(rint_to_int64(steps) - command["EX_OFFSET"], low, high)

    return expected


class _MeanMultiplier(wiring.Component):
    """The logic that `mean_multiplier` adds to a module."""

    def __init__(self) -> None:
        inputs = {
            "multiplier": wiring.In(32),
            "shift": wiring.In(signed(8)),
            "count": wiring.In(COUNT),
        }
        super().__init__(inputs | {"result": wiring.Out(32), "place": wiring.Out(signed(8))})

    def elaborate(self, platform: object) -> Elaboratable:
        """The gates."""
        m = Module()
        result, place = mean_multiplier(m, self.multiplier, self.shift, self.count)
        m.d.comb += self.result.eq(result), self.place.eq(place)
        return m


def _means(rng: Generator, count: int) -> Drawn:
    multiplier = rng.integers(1 << 30, 1 << 31, count)
    counts = rng.integers(1, 1 << rng.integers(1, 23, count))
    return {"multiplier": multiplier, "shift": rng.integers(-31, 31, count), "count": counts}


def _mean_expected(inputs: Vectors) -> Mapping[str, NDArray[Any]]:
    columns = zip(*(inputs[name] for name in ("multiplier", "shift", "count")), strict=True)
    found = np.array([numerics.mean_multiplier(*map(int, row)) for row in columns])
    return {"result": found[:, 0], "place": found[:, 1]}


# Interpolation.


def _coordinates(rng: Generator, count: int) -> Drawn:
    size = rng.integers(1, 1 << rng.integers(1, 16, count))
    kind = rng.integers(0, 5, count)
    inside = rng.uniform(-2, size + 2)
    steps = np.rint(inside * 1024) / 1024
    tiny = inside * 2.0 ** -rng.integers(0, 40, count)
    choices = [kind == 0, kind == 1, kind == 2]
    place = np.select(
        choices, [steps, tiny, real(finite_float(rng, count)).astype(np.float64)], inside
    )
    first = np.where(rng.integers(0, 2, count) == 0, 0, rng.integers(0, 1 << 16, count))
    with np.errstate(all="ignore"):
        coordinate = bits_of((np.where(kind == 2, 0, first) + place).astype(np.float32))
    return {"coordinate": coordinate, "first": first, "size": size}


def _neighbours(fixed: bool) -> Case:
    def expected(inputs: Vectors) -> Mapping[str, NDArray[Any]]:
        moved = real(inputs["coordinate"]) - inputs["first"].astype(np.float32)
        each = (
            neighbours(one[np.newaxis], int(size))
            for one, size in zip(moved, inputs["size"], strict=True)
        )
        columns: list[Any] = [np.concatenate(parts) for parts in zip(*each, strict=True)]
        found = dict(zip(("below", "above", "of_below", "of_above"), columns, strict=True))
        if not fixed:
            return found | {name: bits_of(found[name]) for name in ("of_below", "of_above")}
        above = np.rint(found["of_above"] * np.float32(1024)).astype(np.int64)
        return found | {"of_below": 1024 - above, "of_above": above}

    name = "neighbours_fixed" if fixed else "neighbours"
    return Case(
        name, lambda pipelined: Neighbours(fixed=fixed, pipelined=pipelined), _coordinates, expected
    )


def _weights(fixed: bool) -> Callable[[Generator, int], Drawn]:
    def draw(rng: Generator, count: int) -> Drawn:
        drawn: Drawn = {"value": rng.integers(-128, 128, count)}
        for name in ("row_weight", "column_weight"):
            weight = rng.uniform(0, 1, count) * 2.0 ** -(
                rng.integers(0, 2, count) * rng.integers(0, 149, count)
            )
            drawn[name] = (
                rng.integers(0, 1025, count) if fixed else bits_of(weight.astype(np.float32))
            )
        return drawn

    return draw


def _kept(command: Any) -> bool:
    before, after = zero_points(command)
    return (command["EX_SCALE_A"], command["EX_SHIFT_A"]) == numerics.quantise_multiplier(
        1.0
    ) and before == after


def _interpolation_term(fixed: bool) -> Callable[[Drawn, Any], NDArray[Any]]:
    def expected(operands: Drawn, command: Any) -> NDArray[Any]:
        zero = zero_points(command)[0]
        row = operands["row_weight"]
        column = operands["column_weight"]
        if fixed:
            return (operands["value"] - (0 if _kept(command) else zero)) * row * column
        value = (operands["value"] - zero).astype(np.float32) * floats_of(command, "A")[0]
        return bits_of(real(row) * real(column) * value)

    return expected


def _interpolated(fixed: bool) -> Callable[[Generator, int], Drawn]:
    def draw(rng: Generator, count: int) -> Drawn:
        if fixed:
            return {"total": integers(36)(rng, count) >> rng.integers(0, 9, count)}
        return {"total": _totals(False)(rng, count)["total"]}

    return draw


def _interpolation_result(fixed: bool) -> Callable[[Drawn, Any], NDArray[Any]]:
    def expected(operands: Drawn, command: Any) -> NDArray[Any]:
        total = operands["total"]
        after = zero_points(command)[1]
        if not fixed:
            return numerics.saturate_int8(
                rint_to_int64(real(total) / floats_of(command, "Y")[0]) + after
            )
        if _kept(command):
            halves = (np.abs(total) + (1 << 19)) >> 20
            return numerics.saturate_int8(np.sign(total) * halves)
        multiplier = to_signed(command["EX_SCALE_A"])
        shift = command["EX_SHIFT_A"]
        return numerics.saturate_int8(
            numerics.multiply_by_quantised_multiplier(total, multiplier, shift - 20) + after
        )

    return expected


def _cases(fixed: bool) -> Iterator[Case]:
    ending = "_fixed" if fixed else ""

    def lane(name: str, kind: Any, registers: Any, operands: Any, expected: Any) -> Case:
        return commanded(name + ending, partial(made, kind, fixed), registers, operands, expected)

    yield _running_sum(fixed)
    yield lane("average_term", AverageTerm, scales_of(fixed, "A"), _taps, _average_term(fixed))
    yield lane(
        "average_result", AverageResult, _averages(fixed), _totals(fixed), _average_result(fixed)
    )
    yield _neighbours(fixed)
    terms = InterpolationTerm, _averages(fixed), _weights(fixed), _interpolation_term(fixed)
    yield lane("interpolation_term", *terms)
    totals = (
        InterpolationResult,
        _averages(fixed),
        _interpolated(fixed),
        _interpolation_result(fixed),
    )
    yield lane("interpolation_result", *totals)
    if fixed:
        yield Case("mean_multiplier", lambda pipelined: _MeanMultiplier(), _means, _mean_expected)


CASES = (*_cases(False), *_cases(True))
