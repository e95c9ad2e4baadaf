"""Lanes that read constants of a command: they are drawn as registers of EX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from amaranth.hdl import Const, Elaboratable, Module, Shape, Value, signed, unsigned
from amaranth.lib import wiring
from numpy.typing import NDArray

from dla_sim.rtl.arithmetic.lane import command_constants
from isa import numerics
from isa.arch import Arch
from isa.registers import BY_NAME, float_value
from tests.dla_sim.rtl.lanes.case import (
    Bits,
    Case,
    Drawn,
    Generator,
    alone,
    finite_float,
    limits,
    real,
)
from tests.dla_sim.rtl.vectors import Component, Vectors, ports

FIXED = Arch(numerics="fixed")
ONNXRUNTIME = Arch()


class Commanded(wiring.Component):
    """A lane with the unit that prepares its constants from the registers of EX.

    Its inputs are these registers and the lane's operands.
    """

    def __init__(self, lane: Component, registers: tuple[str, ...]) -> None:
        self.lane = lane
        self._registers = registers
        self.latency = lane.latency
        self._operands = [name for name in ports(lane, wiring.In) if name not in lane.constants]
        members = {name: wiring.In(_register_shape(name)) for name in registers}
        members |= {
            name: lane.signature.members[name]
            for name in (*self._operands, *ports(lane, wiring.Out))
        }
        super().__init__(members)

    def elaborate(self, platform: object) -> Elaboratable:
        """Both."""
        m = Module()
        m.submodules.lane = self.lane

        def register(name: str) -> Value:
            return (
                getattr(self, name) if name in self._registers else Const(0, _register_shape(name))
            )

        constants = command_constants(m, register, fixed=self.lane.fixed)
        m.d.comb += [getattr(self.lane, name).eq(constants[name]) for name in self.lane.constants]
        m.d.comb += [getattr(self.lane, name).eq(getattr(self, name)) for name in self._operands]
        m.d.comb += [
            getattr(self, name).eq(getattr(self.lane, name))
            for name in ports(self.lane, wiring.Out)
        ]
        return m


def _register_shape(name: str) -> Shape:
    register = BY_NAME[name]
    return signed(register.width) if register.form == "signed" else unsigned(register.width)


class Command:
    """The part of isa.instruction.Command that the formulas of lanes read."""

    def __init__(self, registers: Mapping[str, int], fields: Mapping[str, int]) -> None:
        self.registers = registers
        self.fields = fields

    def __getitem__(self, name: str) -> int:
        return self.registers[name]


Registers = dict[str, int]
GROUP = 250
"""Vectors with one set of registers, at most."""


def commanded(
    name: str,
    lane: Callable[[bool], Component],
    registers: Callable[[Generator], Registers],
    operands: Callable[[Generator, int], Drawn],
    expected: Callable[[Drawn, Any], NDArray[Any]],
    fields: tuple[str, ...] = (),
) -> Case:
    """A lane with the constants of a command.

    ``fields`` are operands that belong to a command as well.
    """

    def draw(rng: Generator, count: int) -> Drawn:
        groups = max(count // GROUP, min(count, 10))
        commands = [registers(rng) for _ in range(groups)]
        drawn = operands(rng, count)
        number = np.sort(np.arange(count) % groups)
        steady = {name: drawn[name][number] for name in fields}
        return (
            drawn
            | steady
            | {key: np.array([one[key] for one in commands])[number] for key in commands[0]}
        )

    names = tuple(registers(np.random.default_rng(0)))
    steady = (*names, *fields)

    def wanted(inputs: Vectors) -> Bits:
        table = np.stack([inputs[name] for name in steady])
        starts = np.flatnonzero(np.r_[True, (table[:, 1:] != table[:, :-1]).any(axis=0), True])
        found = []
        for start, end in pairwise(starts):
            values = {name: int(inputs[name][start]) for name in steady}
            part = {key: inputs[key][start:end] for key in inputs if key not in steady}
            found.append(expected(part, Command(values, values)))
        return np.concatenate(found).astype(np.int64)

    return Case(
        name, lambda pipelined: Commanded(lane(pipelined), names), draw, alone(wanted), steady
    )


def common(rng: Generator) -> Registers:
    """Zero points, limits and offset."""
    found = {name: int(values[0]) for name, values in limits(rng, 1).items()}
    byte = rng.integers(0, 4) > 0
    zeros = rng.integers(-128, 256, 2) if byte else rng.integers(-1 << 15, 1 << 15, 2)
    return {
        "EX_INPUT_ZERO_POINT": int(zeros[0]), "EX_OPERAND_ZERO_POINT": int(zeros[1]),
        "EX_OUTPUT_ZERO_POINT": found["zero_point"], "EX_CLAMP_LOW": found["low"],
        "EX_CLAMP_HIGH": found["high"],
        "EX_OFFSET": int(rng.choice([0, 0, 128, 255])),
    }  # fmt: skip


def positive_scale(rng: Generator, *, wild: bool = True) -> float:
    """Draw a scale: a power of two, one that makes ties, a usual one, or any positive float32."""
    kind = rng.integers(0, 4 if wild else 3)
    if kind == 0:
        return float(2.0 ** rng.integers(-12, 3))
    if kind == 1:
        return float(np.float32(rng.integers(1, 64) / 64))
    if kind == 2:
        return float(np.float32(np.exp(rng.uniform(-8, 2))))
    return float(max(np.abs(real(finite_float(rng, 1))[0]), np.float32(2.0**-149)))


def float_registers(**scales: float) -> Registers:
    """Registers of scales, as float32 bits."""
    return {f"EX_SCALE_{name}": numerics.float32_bits(value) for name, value in scales.items()}


def fixed_registers(**factors: float | tuple[int, int]) -> Registers:
    """Registers of factors, as multipliers and shifts."""
    found: Registers = {}
    for name, factor in factors.items():
        multiplier, shift = (
            factor if isinstance(factor, tuple) else numerics.quantise_multiplier(factor)
        )
        found |= {f"EX_SCALE_{name}": multiplier & 0xFFFFFFFF, f"EX_SHIFT_{name}": shift}
    return found


def _factor(rng: Generator) -> float | tuple[int, int]:
    if rng.integers(0, 4) == 0:
        return int(rng.integers(0, 1 << 31)), int(rng.integers(-31, 31))
    return positive_scale(rng, wild=False)


def scales_of(fixed: bool, names: str) -> Callable[[Generator], Registers]:
    """Draws of common registers and of the scales with these letters."""

    def draw(rng: Generator) -> Registers:
        if fixed:
            return common(rng) | fixed_registers(**{name: _factor(rng) for name in names})
        wild = bool(rng.integers(0, 4) == 0)
        return common(rng) | float_registers(
            **{name: positive_scale(rng, wild=wild) for name in names}
        )

    return draw


def made(kind: Any, fixed: bool, pipelined: bool) -> Component:
    """A lane of that kind."""
    return kind(fixed=fixed, pipelined=pipelined)


def named(name: str, fixed: bool) -> str:
    """The name of a case."""
    return f"{name}_fixed" if fixed else name


def zero_points(command: Any) -> tuple[int, int]:
    """Return the zero points of the input and of the result."""
    return command["EX_INPUT_ZERO_POINT"], command["EX_OUTPUT_ZERO_POINT"]


def floats_of(command: Any, names: str) -> list[np.float32]:
    """The scales with these letters."""
    return [np.float32(float_value(command[f"EX_SCALE_{name}"])) for name in names]
