"""Reductions, softmax and normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from amaranth.hdl import Elaboratable, Module, signed
from amaranth.lib import wiring
from numpy.typing import NDArray

from dla_sim.rtl.arithmetic import rows as arithmetic
from dla_sim.rtl.building import stage
from isa import numerics
from isa.numerics import rows
from isa.numerics.requantising import rint_to_int64
from tests.dla_sim.rtl.lanes.case import (
    Bits,
    Case,
    Drawn,
    Generator,
    alone,
    bits_of,
    finite_float,
    integers,
    limits,
    near_float,
    real,
)
from tests.dla_sim.rtl.lanes.commanded import (
    Registers,
    named,
    scales_of,
)
from tests.dla_sim.rtl.vectors import Component, Vectors, ports


class _Rows(wiring.Component):
    """A state of a row, where there is one, and the lane behind it."""

    def __init__(self, state: Component, lane: Component) -> None:
        self._parts = (state, lane)
        self.latency = state.latency + lane.latency
        self._inputs = [
            {name: shape for name, shape in ports(part, wiring.In).items() if name != "state"}
            for part in self._parts
        ]
        members = self._inputs[0] | self._inputs[1]
        super().__init__(
            {name: wiring.In(shape) for name, shape in members.items()}
            | {"result": wiring.Out(signed(8))}
        )

    def elaborate(self, platform: object) -> Elaboratable:
        """Connect both parts; delay the lane's other inputs by the latency of the state."""
        m = Module()
        m.submodules.state, m.submodules.lane = state, lane = self._parts
        m.d.comb += lane.state.eq(state.state), self.result.eq(lane.result)
        for part, names in zip(self._parts, self._inputs, strict=True):
            for name in names:
                value = getattr(self, name)
                for _ in range(state.latency if part is lane and name not in lane.registers else 0):
                    value = stage(m, value, pipelined=True)
                m.d.comb += getattr(part, name).eq(value)
        return m


def _part(kind: Any, fixed: bool) -> Callable[[bool], Component]:
    return lambda pipelined: kind(is_fixed=fixed, pipelined=pipelined)


def _registers_of(drawn: Registers, names: tuple[str, ...], count: int) -> Drawn:
    return {name: np.full(count, drawn[f"EX_{name.upper()}"]) for name in names}


def _reduce(fixed: bool) -> Case:
    def draw(rng: Generator, count: int) -> Drawn:
        lane = arithmetic.ReduceLane.registers
        groups = [
            scales_of(fixed, "AY")(rng) | ({} if fixed else {"EX_SHIFT_A": 0}) for _ in range(10)
        ]
        parts = [_registers_of(one, lane, count) for one in groups]
        number = rng.integers(0, 10, count)
        registers = {name: np.choose(number, [part[name] for part in parts]) for name in lane}
        value = integers(33)(rng, count) >> rng.integers(0, 20, count)
        return {"value": value, "sums": rng.integers(0, 2, count)} | registers

    def expected(inputs: Vectors) -> Bits:
        value = inputs["value"]
        zero = inputs["output_zero_point"]
        if fixed:
            multiplier = inputs["scale_a"].astype(np.int32)
            found = numerics.multiply_by_quantised_multiplier(value, multiplier, inputs["shift_a"])
        else:
            scaled = value.astype(np.float32) * real(inputs["scale_a"])
            found = rint_to_int64(
                np.where(inputs["sums"], scaled, scaled / real(inputs["scale_y"]))
            )
        return np.clip(found + zero, inputs["clamp_low"], inputs["clamp_high"])

    lane = arithmetic.ReduceLane
    return Case(
        named("reduce", fixed), _part(lane, fixed), draw, alone(expected), ("sums", *lane.registers)
    )


def _softmax_sum(fixed: bool) -> Case:
    def draw(rng: Generator, count: int) -> Drawn:
        if fixed:
            return {
                "total": rng.integers(0, 1 << 30, count),
                "entry": rng.integers(0, 1 << 31, count),
            }
        total = finite_float(rng, count) & 0x7FFFFFFF
        return {"total": total, "entry": near_float(rng, total) & 0x7FFFFFFF}

    def expected(inputs: Vectors) -> Bits:
        if fixed:
            return inputs["total"] + numerics.rounding_divide_by_power_of_two(inputs["entry"], 12)
        return bits_of(real(inputs["total"]) + real(inputs["entry"]))

    return Case(
        named("softmax_sum", fixed), _part(arithmetic.SoftmaxSum, fixed), draw, alone(expected)
    )


def _shares(fixed: bool) -> Callable[[Generator, int], Drawn]:
    """Exponentials and sums, which need not be those of one row."""

    def draw(rng: Generator, count: int) -> Drawn:
        share = rng.uniform(0, 1, count)
        zeros = limits(rng, count)["zero_point"]
        if fixed:
            total = rng.integers(1, 1 << rng.integers(1, 32, count))
            entry = np.where(rng.integers(0, 2, count) == 0, share * total * 4096, share * 2.0**31)
            factor = np.where(
                rng.integers(0, 2, count) == 0, 1 << 16, rng.integers(0, 1 << 24, count)
            )
            entry = np.minimum(entry, 2**31 - 1).astype(np.int64)
            return {"total": total, "entry": entry, "scale_y": factor, "output_zero_point": zeros}
        sums = np.abs(real(finite_float(rng, count)))
        sums = np.where(sums == 0, np.float32(1), sums)
        ties = (rng.integers(0, 256, count) + 0.5) / 256
        part = bits_of(
            (sums * np.where(rng.integers(0, 2, count) == 0, share, ties)).astype(np.float32)
        )
        factor = bits_of(rng.choice([256, 255, 100, 1024], count).astype(np.float32))
        return {
            "total": bits_of(sums),
            "entry": part,
            "scale_y": factor,
            "output_zero_point": zeros,
        }

    return draw


def _softmax(fixed: bool) -> Case:
    def expected(inputs: Vectors) -> Bits:
        """The last lines of isa.numerics.softmax and softmax_fixed."""
        total = inputs["total"]
        entry = inputs["entry"]
        factor = inputs["scale_y"]
        if fixed:
            reciprocal, bits = rows._reciprocal(total)
            quotient = numerics.multiply_high_doubled(entry, reciprocal) * factor
            result = (quotient + (np.int64(1) << (bits + 18))) >> (bits + 19)
        else:
            result = rint_to_int64(real(entry) * real(factor) / real(total))
        return numerics.saturate_int8(result + inputs["output_zero_point"]).astype(np.int64)

    state, lane = _part(arithmetic.SoftmaxRow, fixed), _part(arithmetic.SoftmaxLane, fixed)
    steady = arithmetic.SoftmaxLane.registers
    make = lambda pipelined: _Rows(state(pipelined), lane(pipelined))  # noqa: E731
    return Case(named("softmax", fixed), make, _shares(fixed), alone(expected), steady)


def _row_totals(fixed: bool) -> Callable[[Generator, int], Drawn]:
    """Sums and sums of squares of rows of ``count`` elements, constant ones among them."""

    def draw(rng: Generator, count: int) -> Drawn:
        number = rng.integers(1, 1 << rng.integers(1, 21, count))
        mean = rng.integers(-128, 128, count) * (rng.integers(0, 3, count) > 0)
        total = number * mean + rng.integers(-number // 2, number // 2 + 1)
        spread = rng.integers(0, 128, count) ** 2 * (rng.integers(0, 3, count) > 0)
        squares = np.maximum(-(-(total**2) // number), number * mean**2) + number * spread
        epsilon = np.where(
            rng.integers(0, 2, count) == 0, 1, rng.integers(1, 1 << rng.integers(1, 33, count))
        )
        small = bits_of(np.exp(rng.uniform(-30, 10, count)).astype(np.float32))
        centred = rng.integers(0, 2, count)
        scale = epsilon if fixed else small
        return {
            "total": total,
            "squares": squares,
            "count": number,
            "centred": centred,
            "scale_a": scale,
        }

    return draw


def _root(fixed: bool) -> Case:
    def expected(inputs: Vectors) -> Mapping[str, NDArray[Any]]:
        total = inputs["total"]
        squares = inputs["squares"]
        epsilon = inputs["scale_a"]
        spread = np.where(inputs["centred"], inputs["count"] * squares - total**2, squares)
        if fixed:
            sums = zip(spread.tolist(), epsilon.tolist(), strict=True)
            return {"state": np.array([max(math.isqrt(one + more), 1) for one, more in sums])}
        return {"state": bits_of(np.sqrt(spread.astype(np.float32) + real(epsilon)))}

    steady = ("centred", "scale_a")
    return Case(
        named("norm_row", fixed),
        _part(arithmetic.NormRow, fixed),
        _row_totals(fixed),
        expected,
        steady,
    )


def _elements(fixed: bool) -> Callable[[Generator, int], Drawn]:
    """Deviations of up to the thousandfold of their roots."""

    def draw(rng: Generator, count: int) -> Drawn:
        root = rng.integers(1, 1 << rng.integers(1, 25, count))
        deviation = np.rint(
            root * rng.uniform(-8, 8, count) ** rng.choice([1, 1, 3], count)
        ).astype(np.int64)
        gain = rng.uniform(-300, 300, count)
        bias = rng.uniform(-200, 200, count)
        zeros = {"output_zero_point": limits(rng, count)["zero_point"]}
        if fixed:
            gain = np.rint(gain * 2**15).astype(np.int64)
            bias = np.rint(bias * 2**16).astype(np.int64)
            return {
                "deviation": deviation,
                "state": root,
                "gain": gain & 0xFFFFFFFF,
                "bias": bias & 0xFFFFFFFF,
            } | zeros
        bias = np.where(rng.integers(0, 2, count) == 0, np.rint(bias * 2) / 2, bias)
        near = {"state": np.sqrt(root + 0.5) * np.sqrt(root), "gain": gain, "bias": bias}
        return (
            {"deviation": deviation}
            | {name: bits_of(each.astype(np.float32)) for name, each in near.items()}
            | zeros
        )

    return draw


def _normalised(fixed: bool) -> Case:
    def expected(inputs: Vectors) -> Bits:
        deviation, root, gain, bias = (
            inputs[name] for name in ("deviation", "state", "gain", "bias")
        )
        if fixed:
            gain, bias = (values.astype(np.int32).astype(np.int64) for values in (gain, bias))
            result = ((deviation << 16) // root * gain + (bias << 15) + (1 << 30)) >> 31
        else:
            result = rint_to_int64(
                deviation.astype(np.float32) / real(root) * real(gain) + real(bias)
            )
        return numerics.saturate_int8(result + inputs["output_zero_point"]).astype(np.int64)

    lane = arithmetic.NormLane
    return Case(
        named("norm_lane", fixed),
        _part(lane, fixed),
        _elements(fixed),
        alone(expected),
        lane.registers,
    )


CASES = tuple(
    make(fixed)
    for fixed in (False, True)
    for make in (_reduce, _softmax_sum, _softmax, _root, _normalised)
)
