"""Common lane interface, with port names and a command's constants, and the lane that requantises.

A lane is a stateless component. It accepts operands every cycle and outputs ``result`` after
``latency`` cycles. It reads values of the command from *constants*: ports that are stable from the
command's first operand to its last result. Many lanes share them, so scales and shifts are split
once, outside the lanes:

    constants = command_constants(m, command.register, fixed=limits.fixed)
    addition = Addition(fixed=limits.fixed, pipelined=limits.pipelined)
    m.d.comb += [getattr(addition, name).eq(constants[name]) for name in addition.constants]
"""

from collections.abc import Callable, Mapping

from amaranth.hdl import (
    Cat,
    Const,
    Elaboratable,
    Module,
    Mux,
    Shape,
    Signal,
    Value,
    signed,
    unsigned,
)
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dla_sim.rtl.arithmetic import fixed, floats
from dla_sim.rtl.arithmetic import fixed as integers_only
from dla_sim.rtl.arithmetic.floats import Float, Number
from dla_sim.rtl.arithmetic.integers import clamp_signed, wire
from dla_sim.rtl.building import stage
from isa import numerics

INT8 = signed(8)
NUMBER = unsigned(floats.MANTISSA + 10 + 1)
"""Layout of a normalised, finite float32: significand, exponent, sign."""
SCALING = unsigned(32 + 5 + 6)
"""Layout of a fixed-point scale: int32 multiplier, places to the left, places to the right."""


FRACTION_BITS = 20
"""Fraction bits of means and interpolated values with fixed numerics, before scaling."""


def constant_shapes(*, fixed: bool) -> dict[str, Shape]:
    """Return the shapes of a command's constants by port; with fixed numerics a scale is a SCALING.

    ``zero_number`` is ``zero_point`` as a float. ``scale_down`` is ``scale_a`` for values with 20
    fraction bits. ``kept`` is 1 if input and result have the same quantisation.
    """
    scale = SCALING if fixed else NUMBER
    return {
        "input_zero": signed(16),
        "operand_zero": signed(16),
        "zero_point": signed(16),
        "zero_number": NUMBER,
        "low": signed(8),
        "high": signed(8),
        "offset": unsigned(8),
        "scale_a": scale,
        "scale_b": scale,
        "scale_y": scale,
    } | ({"scale_down": SCALING, "kept": unsigned(1)} if fixed else {})


def command_constants(
    m: Module, register: Callable[[str], Value], *, fixed: bool
) -> dict[str, Value]:
    """Return all constants by port, computed from the registers of EX (by declared name)."""
    plain = {
        "input_zero": "INPUT_ZERO_POINT", "operand_zero": "OPERAND_ZERO_POINT",
        "zero_point": "OUTPUT_ZERO_POINT",
        "low": "CLAMP_LOW", "high": "CLAMP_HIGH", "offset": "OFFSET",
    }  # fmt: skip
    found = {port: register(f"EX_{name}") for port, name in plain.items()}
    for name in "ABY":
        scale = register(f"EX_SCALE_{name}")
        shift = register(f"EX_SHIFT_{name}")
        found[f"scale_{name.lower()}"] = (
            scaling(m, scale, shift) if fixed else number(m, floats.finite(m, scale))
        )
    if fixed:
        scale = register("EX_SCALE_A")
        shift = register("EX_SHIFT_A")
        found["scale_down"] = scaling(m, scale, wire(m, shift - FRACTION_BITS))
        multiplier, place = numerics.quantise_multiplier(1.0)
        same = found["input_zero"] == found["zero_point"]
        found["kept"] = wire(m, (scale == multiplier) & (shift == place) & same)
    found["zero_number"] = number(m, floats.from_integer(m, found["zero_point"]))
    return found


def number(m: Module, x: Float) -> Value:
    """Return a finite float in the lanes' stored form (NUMBER).

    0 keeps the lowest exponent, as sums require.
    """
    full = floats.normalise_number(m, x)
    exponent = Signal(signed(10))
    m.d.comb += exponent.eq(Mux(full.significand[floats.FIRST], full.exponent, floats.LOWEST))
    return Cat(full.significand, exponent, full.negative)


def to_float(constant: Value) -> Float:
    exponent = constant[floats.MANTISSA : -1].as_signed()
    return Float(constant[-1], exponent, constant[: floats.MANTISSA], floats.NEVER, floats.NEVER)


def scaling(m: Module, multiplier: Value, shift: Value) -> Value:
    parts = integers_only.places(m, shift)
    return Cat(multiplier, parts.left, parts.right)


def split_scaling(constant: Value) -> tuple[Value, integers_only.Places]:
    """Split a packed fixed-point scale (SCALING) into its multiplier and its shift."""
    return constant[:32].as_signed(), integers_only.Places(constant[32:37], constant[37:43])


class Lane(wiring.Component):
    """Base class of lanes with the ports ``operands``, ``constants`` and ``result``.

    The result is clamped to int8.
    """

    def __init__(
        self,
        operands: Mapping[str, Shape | int],
        constants: tuple[str, ...],
        *,
        fixed: bool,
        pipelined: bool,
        stages: int,
        result: Shape = INT8,
    ) -> None:
        self.constants = constants
        self.fixed = fixed
        self.pipelined = pipelined
        self.latency = stages if pipelined else 0
        shapes = constant_shapes(fixed=fixed)
        inputs = dict(operands) | {name: shapes[name] for name in constants}
        super().__init__(
            {name: In(shape) for name, shape in inputs.items()} | {"result": Out(result)}
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        self.clamp_result(m, self._build_fixed(m) if self.fixed else self._float(m))
        return m

    def _build_fixed(self, m: Module) -> Value:
        raise NotImplementedError

    def _float(self, m: Module) -> Value:
        raise NotImplementedError

    def clamp_result(self, m: Module, value: Value) -> None:
        """Clamp a signed ``value`` to the command's output limits and drive ``result`` with it.

        The limits are those of the command or, without them, those of int8.
        """
        has_limits = "low" in self.constants
        low, high = (self.low, self.high) if has_limits else (Const(-128, INT8), Const(127, INT8))
        m.d.comb += self.result.eq(clamp_signed(m, wire(m, value), low, high))

    def delay_value(self, m: Module, value: Value, stages: int = 1) -> Value:
        """Return ``value`` delayed by ``stages`` pipeline registers."""
        for _ in range(stages):
            value = stage(m, value, pipelined=self.pipelined, name="held")
        return value

    def delay_number(self, m: Module, x: Number) -> Number:
        """Return the float ``x`` delayed by one pipeline register."""
        return floats.stage_number(m, x, pipelined=self.pipelined)


STAGES = 3
"""Pipeline stages of the lane."""
RECORD_SHIFT = 32
"""Bits of a channel record's shift, which may be half of a float64 factor.

A register's shift has 8.
"""
REDUCED_BITS = 37
"""Bits of a sum of 2^20 int8 values minus a 16-bit zero point each."""


class Requantise(wiring.Component):
    """Requantiser: clip(rint(float32(accumulator) · scale) + zero_point, low, high).

    The rule is isa.numerics.requantise. With ``fixed`` numerics ``scale`` is an integer multiplier
    used with ``shift`` (requantise_fixed). A 32-bit ``shift`` above 30 and ``scale`` are the halves
    of a float64 factor (requantise_once); an 8-bit ``shift`` is always a shift. ``bits`` is the
    accumulator's width, which must be 32 if float64 factors are possible.

    ``accumulator``, ``scale`` and ``shift`` are new every cycle; ``scale`` is finite.
    ``zero_point``, ``low`` and ``high`` are constant during a command and used after the last
    stage. The three stages convert to a float (or shift left), multiply, and round. Approximate
    operators: float32 60 with one multiplier; fixed 30 with one; fixed with float64 70 with three.
    """

    def __init__(
        self, *, fixed: bool, pipelined: bool, bits: int = 32, shift_bits: int = RECORD_SHIFT
    ) -> None:
        self.fixed = fixed
        self.pipelined = pipelined
        self.shift_bits = shift_bits
        self.latency = STAGES if pipelined else 0
        ports = {
            "accumulator": In(signed(bits)),
            "scale": In(32),
            "zero_point": In(signed(16)),
            "low": In(signed(8)),
            "high": In(signed(8)),
            "result": Out(signed(8)),
        }
        super().__init__(ports | ({"shift": In(signed(shift_bits))} if fixed else {}))

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        scaled = self._build_fixed(m) if self.fixed else self._float(m)
        m.d.comb += self.result.eq(
            clamp_signed(m, wire(m, scaled + self.zero_point), self.low, self.high)
        )
        return m

    def _float(self, m: Module) -> Value:
        value = floats.stage_number(
            m, floats.from_integer(m, self.accumulator), pipelined=self.pipelined
        )
        scale = floats.finite(m, stage(m, self.scale, pipelined=self.pipelined))
        product = floats.stage_number(m, floats.product(m, value, scale), pipelined=self.pipelined)
        nearest = floats.to_integer(m, floats.round_number(m, product, tiny=False))
        return stage(m, nearest, pipelined=self.pipelined)

    def _build_fixed(self, m: Module) -> Value:
        """Scale by multiplier and shift and by a float64 factor, then select one result.

        Both scalings run in parallel.
        """
        multiplier = self.scale.as_signed()
        shift = self.shift
        halves = self.shift_bits == RECORD_SHIFT
        parts = fixed.places(m, shift)
        twice = fixed.scale_value(m, self.accumulator, multiplier, parts, pipelined=self.pipelined)
        if halves:
            factor = Cat(self.scale, shift)
            once = fixed.multiply_once(m, self.accumulator, factor, pipelined=self.pipelined)
            choice: Value = shift > fixed.LARGEST_SHIFT
            for _ in range(2):
                choice = stage(m, choice, pipelined=self.pipelined, name="is_once")
            twice = wire(m, Mux(choice, once, twice))
        return stage(m, twice, pipelined=self.pipelined)
