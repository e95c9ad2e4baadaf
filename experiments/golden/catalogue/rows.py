"""Cases of the other instructions: matrix products, requantisation, element-wise, 32-bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from experiments.golden.build import single
from experiments.golden.case import Case
from experiments.golden.catalogue.draws import generator, int8, packed, records, scale_registers
from isa.arch import Arch
from isa.numerics import add_constants, add_fixed_constants, float32_bits
from isa.program import TensorType

Pair = tuple[int, int]
FULL = (-128, 127)


def limits_of(low: int, high: int, zero: int = 0) -> dict[str, int]:
    """Output zero point and clamp limits."""
    return {"EX_OUTPUT_ZERO_POINT": zero, "EX_CLAMP_LOW": low, "EX_CLAMP_HIGH": high}


@dataclass(frozen=True)
class Product:
    """A matrix product of (M, K) and (K, N)."""

    shape: tuple[int, int, int] = (1, 16, 8)
    requantise: bool = True
    relu: bool = False
    zero: int = 0
    limits: Pair = FULL
    left: NDArray[np.int8] | None = None
    right: NDArray[np.int8] | None = None
    channels: NDArray[np.uint8] | None = None

    def case(self, name: str, description: str, arch: Arch, timing: Timing | None = None) -> Case:
        """The case; operands that are not given are drawn."""
        rng, (m, k, n) = generator(name), self.shape
        drawn = int8(rng, m, k), int8(rng, k, n)
        operands = {
            "EX_INPUT_ADDRESS": drawn[0] if self.left is None else self.left,
            "EX_OPERAND_ADDRESS": drawn[1] if self.right is None else self.right,
            "EX_CHANNEL_ADDRESS": records(rng, n, k, arch) if self.channels is None else self.channels,
        }
        registers = {
            "EX_ROWS": m,
            "EX_INPUT_CHANNELS": k,
            "EX_OUTPUT_CHANNELS": n,
            **limits_of(*self.limits, self.zero),
        }
        dtype: TensorType = "int8" if self.requantise else "int32"
        fields = {"requantise": int(self.requantise), "relu": int(self.relu)}
        return single(name, description, arch, "OP_MAT_MUL", operands, (dtype, (m, n)), registers, timing, **fields)


@dataclass(frozen=True)
class Requantisation:
    """int32 (rows, channels, length) to int8."""

    shape: tuple[int, int, int] = (1, 4, 16)
    zero: int = 0
    limits: Pair = FULL
    input: NDArray[np.int32] | None = None
    scale: NDArray[Any] | None = None
    raw: NDArray[np.uint8] | None = None

    def case(self, name: str, description: str, arch: Arch, timing: Timing | None = None) -> Case:
        """The case; operands that are not given are drawn."""
        rng, (rows, channels, length) = generator(name), self.shape
        data = rng.integers(-20000, 20001, self.shape, dtype=np.int32) if self.input is None else self.input
        scale = rng.uniform(0.002, 0.01, channels) if self.scale is None else self.scale
        made = packed(np.zeros(channels, np.int32), scale, arch) if self.raw is None else self.raw
        operands: dict[str, NDArray[Any]] = {"EX_INPUT_ADDRESS": data, "EX_CHANNEL_ADDRESS": made}
        registers = {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length}
        registers |= limits_of(*self.limits, self.zero)
        return single(name, description, arch, "OP_REQUANT", operands, ("int8", self.shape), registers, timing)


@dataclass(frozen=True)
class Unary:
    """ReLU, leaky ReLU or absolute value between two quantisations."""

    mnemonic: str = "OP_ACT_RELU"
    length: int = 40
    scales: tuple[float, float] = (0.05, 0.04)
    slope: float = 0.1
    zeros: Pair = (0, 0)
    limits: Pair = FULL
    input: NDArray[np.int8] | None = None

    def case(self, name: str, description: str, arch: Arch, timing: Timing | None = None) -> Case:
        """The case; an input that is not given is drawn."""
        data = int8(generator(name), self.length) if self.input is None else self.input
        source, result = self.scales
        if arch.numerics == "fixed":
            registers = scale_registers(arch, A=source / result)
            registers |= scale_registers(arch, B=source / result * self.slope)
        else:
            registers = scale_registers(arch, A=source, B=self.slope, Y=result)
        registers |= {"EX_LENGTH": data.size, "EX_INPUT_ZERO_POINT": self.zeros[0]}
        registers |= limits_of(*self.limits, self.zeros[1])
        operands = {"EX_INPUT_ADDRESS": data}
        return single(name, description, arch, self.mnemonic, operands, ("int8", data.shape), registers, timing)


def pair_case(
    name: str,
    description: str,
    arch: Arch,
    mnemonic: str,
    pair: tuple[NDArray[Any], NDArray[Any]],
    registers: dict[str, int] | None = None,
    timing: Timing | None = None,
) -> Case:
    """An instruction of two operands of one length."""
    dtype: TensorType = "int32" if pair[0].dtype == np.int32 else "int8"
    operands = {"EX_INPUT_ADDRESS": pair[0], "EX_OPERAND_ADDRESS": pair[1]}
    values = {"EX_LENGTH": pair[0].size, **(registers or {})}
    return single(name, description, arch, mnemonic, operands, (dtype, pair[0].shape), values, timing)


@dataclass(frozen=True)
class Addition:
    """A rescaling addition: scales and zero points of a, b and the result. With ``offset`` they are those of uint8."""

    length: int = 40
    scales: tuple[float, float, float] = (0.05, 0.03, 0.07)
    zeros: tuple[int, int, int] = (0, 0, 0)
    offset: int = 0
    limits: Pair = FULL
    pair: tuple[NDArray[np.int8], NDArray[np.int8]] | None = None

    def case(self, name: str, description: str, arch: Arch, timing: Timing | None = None) -> Case:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        pair = self.pair or (int8(rng, self.length), int8(rng, self.length))
        registers = {"EX_CLAMP_LOW": self.limits[0], "EX_CLAMP_HIGH": self.limits[1], **self._constants(arch)}
        return pair_case(name, description, arch, "OP_E_ADD", pair, registers, timing)

    def _constants(self, arch: Arch) -> dict[str, int]:
        a, b, y = self.scales
        zero_a, zero_b, zero_y = self.zeros
        if arch.numerics == "onnxruntime":
            found = add_constants(a, zero_a, b, zero_b, y, zero_y)
            values = {f"EX_SCALE_{name}": float32_bits(value) for name, value in zip("ABY", found, strict=True)}
            return values | {"EX_OFFSET": self.offset}
        fixed = add_fixed_constants(a, b, y)
        values = {f"EX_SCALE_{name}": getattr(fixed, f"multiplier_{name.lower()}") for name in "ABY"}
        values |= {f"EX_SHIFT_{name}": getattr(fixed, f"shift_{name.lower()}") for name in "ABY"}
        names = ("EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT")
        return values | dict(zip(names, (zero - self.offset for zero in self.zeros), strict=True))


def shift_case(
    name: str,
    description: str,
    arch: Arch,
    data: NDArray[np.int32],
    amount: int,
    direction: int = 1,
    rounding: int = 1,
) -> Case:
    """``OP_E32_SHIFT``: direction 0 left, 1 right; rounding 0 floor, 1 nearest even, 2 half away from zero."""
    registers = {"EX_LENGTH": data.size, "EX_SHIFT_A": amount}
    operands = {"EX_INPUT_ADDRESS": data}
    result: tuple[TensorType, tuple[int, ...]] = ("int32", data.shape)
    fields = {"direction": direction, "rounding": rounding}
    return single(name, description, arch, "OP_E32_SHIFT", operands, result, registers, None, **fields)
