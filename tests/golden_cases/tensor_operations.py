"""Golden cases of one command: products, element-wise operations, movements, row operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa import numerics
from isa.arch import Arch
from isa.numerics import add_constants, add_fixed_constants, float32_bits
from isa.numerics.addition import LEFT_SHIFT
from isa.ops.lookup import TABLE_BYTES
from isa.ops.rows import SUM
from isa.program import TensorType
from tests.golden_cases.builder import single
from tests.golden_cases.operations import (
    FULL,
    Pair,
    earlier_sums,
    generator,
    int8,
    limits_of,
    looked_up,
    packed,
    records,
    scale_registers,
)


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
    tables: NDArray[np.int8] | None = None
    accumulate: bool = False

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        (m, k, n) = self.shape
        drawn = int8(rng, m, k), int8(rng, k, n)
        operands = {
            "EX_INPUT_ADDRESS": drawn[0] if self.left is None else self.left,
            "EX_OPERAND_ADDRESS": drawn[1] if self.right is None else self.right,
            "EX_CHANNEL_ADDRESS": records(rng, n, k, arch)
            if self.channels is None
            else self.channels,
        }
        registers = {
            "EX_ROWS": m,
            "EX_INPUT_CHANNELS": k,
            "EX_OUTPUT_CHANNELS": n,
            **limits_of(*self.limits, self.zero),
        }
        dtype: TensorType = "int8" if self.requantise else "int32"
        more, looks = looked_up(self.tables)
        more |= earlier_sums(rng, (m, n)) if self.accumulate else {}
        fields = {"requantise": int(self.requantise), "relu": int(self.relu), **looks}
        fields |= {"accumulate": 1} if self.accumulate else {}
        result = dtype, (m, n)
        return single(
            name,
            description,
            arch,
            "OP_MAT_MUL",
            operands | more,
            result,
            registers,
            timing,
            **fields,
        )


@dataclass(frozen=True)
class DynamicProduct:
    """A matrix product of two activations, (M, K) and (K, N).

    If ``transposed``, the second is stored as (N, K).
    """

    shape: tuple[int, int, int] = (3, 16, 8)
    transposed: bool = False
    requantise: bool = True
    scale: float = 0.002
    zeros: tuple[int, int, int] = (0, 0, 0)
    limits: Pair = FULL
    left: NDArray[np.int8] | None = None
    right: NDArray[np.int8] | None = None
    tables: NDArray[np.int8] | None = None

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        (m, k, n) = self.shape
        drawn = int8(rng, m, k), int8(rng, *((n, k) if self.transposed else (k, n)))
        operands = {
            "EX_INPUT_ADDRESS": drawn[0] if self.left is None else self.left,
            "EX_OPERAND_ADDRESS": drawn[1] if self.right is None else self.right,
        }
        registers = {"EX_ROWS": m, "EX_INPUT_CHANNELS": k, "EX_OUTPUT_CHANNELS": n}
        registers |= {"EX_INPUT_ZERO_POINT": self.zeros[0], "EX_OPERAND_ZERO_POINT": self.zeros[1]}
        registers |= {
            **scale_registers(arch, A=self.scale),
            **limits_of(*self.limits, self.zeros[2]),
        }
        result: tuple[TensorType, tuple[int, int]] = (
            "int8" if self.requantise else "int32",
            (m, n),
        )
        more, looks = looked_up(self.tables)
        fields = {"requantise": int(self.requantise), "transposed": int(self.transposed), **looks}
        return single(
            name,
            description,
            arch,
            "OP_DYN_MAT_MUL",
            operands | more,
            result,
            registers,
            timing,
            **fields,
        )


@dataclass(frozen=True)
class Requantisation:
    """int32 (rows, channels, length) to int8."""

    shape: tuple[int, int, int] = (1, 4, 16)
    zero: int = 0
    limits: Pair = FULL
    input: NDArray[np.int32] | None = None
    scale: NDArray[Any] | None = None
    raw: NDArray[np.uint8] | None = None
    tables: NDArray[np.int8] | None = None

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        (rows, channels, length) = self.shape
        data = (
            rng.integers(-20000, 20001, self.shape, dtype=np.int32)
            if self.input is None
            else self.input
        )
        scale = rng.uniform(0.002, 0.01, channels) if self.scale is None else self.scale
        made = packed(np.zeros(channels, np.int32), scale, arch) if self.raw is None else self.raw
        operands: dict[str, NDArray[Any]] = {"EX_INPUT_ADDRESS": data, "EX_CHANNEL_ADDRESS": made}
        registers = {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length}
        registers |= limits_of(*self.limits, self.zero)
        more, looks = looked_up(self.tables)
        result: tuple[TensorType, tuple[int, ...]] = ("int8", self.shape)
        return single(
            name,
            description,
            arch,
            "OP_REQUANT",
            operands | more,
            result,
            registers,
            timing,
            **looks,
        )


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

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
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
        return single(
            name,
            description,
            arch,
            self.mnemonic,
            operands,
            ("int8", data.shape),
            registers,
            timing,
        )


@dataclass(frozen=True)
class LookUp:
    """A look-up of (rows, channels, elements) int8 values, in one table a channel."""

    shape: tuple[int, int, int] = (1, 1, 40)
    input: NDArray[np.int8] | None = None
    tables: NDArray[np.int8] | None = None

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        (rows, channels, length) = self.shape
        drawn = int8(rng, *self.shape), int8(rng, channels, TABLE_BYTES)
        operands = {
            "EX_INPUT_ADDRESS": drawn[0] if self.input is None else self.input,
            "EX_OPERAND_ADDRESS": drawn[1] if self.tables is None else self.tables,
        }
        registers = {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length}
        return single(
            name, description, arch, "OP_LUT", operands, ("int8", self.shape), registers, timing
        )


@dataclass(frozen=True)
class Permutation:
    """A copy of ``source`` bytes to ``result`` bytes.

    ``dims`` are (count, input stride, output stride), fastest first. ``fill`` is the byte that is
    written without reading, or None.
    """

    source: int
    result: int
    dims: tuple[tuple[int, int, int], ...]
    fill: int | None = None
    input: NDArray[np.int8] | None = None

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; an input that is not given is drawn."""
        data = int8(generator(name), self.source) if self.input is None else self.input
        registers = {"EX_INPUT_ZERO_POINT": self.fill or 0}
        for number, (count, step, leap) in enumerate(self.dims, start=1):
            registers[f"EX_COUNT_{number}"] = count
            registers[f"EX_INPUT_STRIDE_{number}"] = step
            registers[f"EX_OUTPUT_STRIDE_{number}"] = leap
        operands = {"EX_INPUT_ADDRESS": data}
        result: tuple[TensorType, tuple[int, ...]] = ("int8", (self.result,))
        fields = {"fill": int(self.fill is not None)}
        return single(
            name, description, arch, "OP_PERMUTE", operands, result, registers, timing, **fields
        )


@dataclass(frozen=True)
class OnRows:
    """A reduction, softmax or normalisation of (outer, count, inner) int8 values.

    ``planes`` are the distances between planes (0: dense), ``scales`` those of input and result,
    ``table`` is the table of softmax, ``pairs`` are gains and biases as real numbers, and ``more``
    are further registers.
    """

    mnemonic: str
    shape: tuple[int, int, int] = (4, 12, 1)
    fields: Mapping[str, int] = field(default_factory=dict)
    scales: tuple[float, float] = (0.05, 0.04)
    zeros: Pair = (3, -9)
    limits: Pair = FULL
    planes: Pair = (0, 0)
    input: NDArray[np.int8] | None = None
    table: NDArray[Any] | None = None
    pairs: NDArray[np.float64] | None = None
    more: Mapping[str, int] = field(default_factory=dict)

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        (outer, count, inner) = self.shape
        reduces = self.mnemonic == "OP_REDUCE"
        planar = self.mnemonic != "OP_NORM"
        drawn = int8(rng, outer * count, self.planes[0] or inner)
        operands: dict[str, NDArray[Any]] = {
            "EX_INPUT_ADDRESS": drawn if self.input is None else self.input
        }
        registers = dict(
            zip(("EX_ROWS", "EX_INPUT_CHANNELS", "EX_LENGTH"), self.shape, strict=True)
        )
        registers["EX_OUTPUT_ZERO_POINT"] = self.zeros[1]
        registers |= {} if self.mnemonic == "OP_SOFTMAX" else {"EX_INPUT_ZERO_POINT": self.zeros[0]}
        registers |= {
            f"EX_{side}_PLANE": plane
            for side, plane in zip(("INPUT", "OUTPUT"), self.planes, strict=True)
            if planar
        }
        if reduces:
            registers |= self._reduction(arch)
        else:
            words, numbers = self._softmax(arch) if planar else self._normalisation(rng, arch)
            operands["EX_OPERAND_ADDRESS"] = words
            registers = registers | numbers
        registers |= self.more
        rows = outer if reduces else outer * count
        result: tuple[TensorType, tuple[int, ...]] = ("int8", (rows, self.planes[1] or inner))
        return single(
            name,
            description,
            arch,
            self.mnemonic,
            operands,
            result,
            registers,
            timing,
            **self.fields,
        )

    def _reduction(self, arch: Arch) -> dict[str, int]:
        limits = {"EX_CLAMP_LOW": self.limits[0], "EX_CLAMP_HIGH": self.limits[1]}
        before, after = self.scales
        mean = (
            before / (after * self.shape[1])
            if self.fields.get("mode", SUM) == SUM
            else before / after
        )
        if arch.numerics == "fixed" or self.fields.get("mode", SUM) == SUM:
            return limits | scale_registers(arch, A=mean)
        return limits | scale_registers(arch, A=before, Y=after)

    def _softmax(self, arch: Arch) -> tuple[NDArray[Any], dict[str, int]]:
        fixed = arch.numerics == "fixed"
        (before, after) = self.scales
        factor = (
            numerics.softmax_factor_fixed(after)
            if fixed
            else float32_bits(numerics.softmax_factor(after))
        )
        if self.table is not None:
            return self.table.view(np.uint8), {"EX_SCALE_Y": factor}
        table = (
            numerics.softmax_table_fixed(before)
            if fixed
            else numerics.softmax_table(before, self.shape[1])
        )
        return table.view(np.uint8), {"EX_SCALE_Y": factor}

    def _normalisation(
        self, rng: np.random.Generator, arch: Arch
    ) -> tuple[NDArray[Any], dict[str, int]]:
        outer, count, inner = self.shape
        pairs = (outer if self.fields.get("by_row") else 1) * count
        drawn = np.stack([rng.normal(1, 0.3, pairs), rng.normal(0, 0.3, pairs)], axis=1)
        real = drawn if self.pairs is None else self.pairs
        centred = bool(self.fields.get("centred"))
        gain, bias, factor = numerics.normalisation_scales(
            real[:, 0], real[:, 1], self.scales, count * inner, centred
        )
        if arch.numerics == "fixed":
            both = np.rint(np.stack([gain * (1 << 15), bias * (1 << 16)], axis=1)).astype("<i4")
            return both.view(np.uint8), {"EX_SCALE_A": int(1e-5 * factor)}
        floats = np.ascontiguousarray(np.stack([gain, bias], axis=1).astype("<f4"))
        return floats.view(np.uint8), {"EX_SCALE_A": float32_bits(np.float32(1e-5 * factor))}


def pair_case(
    name: str,
    description: str,
    arch: Arch,
    mnemonic: str,
    pair: tuple[NDArray[Any], NDArray[Any]],
    registers: dict[str, int] | None = None,
    timing: Timing | None = None,
    tables: NDArray[np.int8] | None = None,
) -> GoldenCase:
    """An instruction of two operands of one length."""
    more, looks = looked_up(tables)
    dtype: TensorType = "int32" if pair[0].dtype == np.int32 else "int8"
    operands = {"EX_INPUT_ADDRESS": pair[0], "EX_OPERAND_ADDRESS": pair[1], **more}
    values = {"EX_LENGTH": pair[0].size, **(registers or {})}
    return single(
        name, description, arch, mnemonic, operands, (dtype, pair[0].shape), values, timing, **looks
    )


@dataclass(frozen=True)
class Addition:
    """A rescaling addition: scales and zero points of a, b and the result.

    With ``offset`` they are those of uint8.
    """

    length: int = 40
    scales: tuple[float, float, float] = (0.05, 0.03, 0.07)
    zeros: tuple[int, int, int] = (0, 0, 0)
    offset: int = 0
    limits: Pair = FULL
    pair: tuple[NDArray[np.int8], NDArray[np.int8]] | None = None
    tables: NDArray[np.int8] | None = None

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        pair = self.pair or (int8(rng, self.length), int8(rng, self.length))
        registers = {
            "EX_CLAMP_LOW": self.limits[0],
            "EX_CLAMP_HIGH": self.limits[1],
            **self.constants(arch),
        }
        return pair_case(name, description, arch, "OP_E_ADD", pair, registers, timing, self.tables)

    def constants(self, arch: Arch) -> dict[str, int]:
        """The registers of scales, zero points and offset."""
        a, b, y = self.scales
        zero_a, zero_b, zero_y = self.zeros
        if arch.numerics == "onnxruntime":
            found = add_constants(a, zero_a, b, zero_b, y, zero_y)
            values = {
                f"EX_SCALE_{name}": float32_bits(value)
                for name, value in zip("ABY", found, strict=True)
            }
            return values | {"EX_OFFSET": self.offset}
        fixed = add_fixed_constants(a, b, y)
        values = {
            f"EX_SCALE_{name}": getattr(fixed, f"multiplier_{name.lower()}") for name in "ABY"
        }
        values |= {f"EX_SHIFT_{name}": getattr(fixed, f"shift_{name.lower()}") for name in "ABY"}
        names = ("EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT")
        return values | dict(zip(names, (zero - self.offset for zero in self.zeros), strict=True))


@dataclass(frozen=True)
class Repeating:
    """An instruction of two tensors (channels, elements) that may repeat.

    Numbers are as in :class:`Addition`.
    """

    mnemonic: str = "OP_E_MUL"
    shape: Pair = (4, 12)
    repeats: Pair = (0, 1)
    scales: tuple[float, float, float] = (0.05, 0.03, 0.07)
    zeros: tuple[int, int, int] = (0, 0, 0)
    offset: int = 0
    limits: Pair = FULL
    pair: tuple[NDArray[np.int8], NDArray[np.int8]] | None = None
    squared: bool = False

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        (channels, length) = self.shape
        shapes = [(1 if bits & 2 else channels, 1 if bits & 1 else length) for bits in self.repeats]
        first, second = self.pair or (int8(rng, *shapes[0]), int8(rng, *shapes[1]))
        fields = dict(zip(("repeat_a", "repeat_b"), self.repeats, strict=True))
        registers = {"EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length}
        mnemonic = self.mnemonic
        if self.squared:
            fields["squared"] = 1
        if mnemonic.startswith("OP_B_M"):
            mnemonic, fields["maximum"] = "OP_B_MIN", int(mnemonic == "OP_B_MAX")
        else:
            registers |= {
                "EX_CLAMP_LOW": self.limits[0],
                "EX_CLAMP_HIGH": self.limits[1],
                **self._constants(arch),
            }
        operands = {"EX_INPUT_ADDRESS": first, "EX_OPERAND_ADDRESS": second.reshape(-1)}
        return single(
            name,
            description,
            arch,
            mnemonic,
            operands,
            ("int8", self.shape),
            registers,
            timing,
            **fields,
        )

    def _constants(self, arch: Arch) -> dict[str, int]:
        if self.mnemonic == "OP_B_ADD":
            return Addition(scales=self.scales, zeros=self.zeros, offset=self.offset).constants(
                arch
            )
        names = ("EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT")
        values = dict(zip(names, (zero - self.offset for zero in self.zeros), strict=True))
        a, b, y = self.scales
        if self.mnemonic == "OP_E_MUL":
            rounded = arch.numerics == "onnxruntime"
            values |= (
                {"EX_OFFSET": self.offset, "EX_OUTPUT_ZERO_POINT": self.zeros[2]} if rounded else {}
            )
            return values | scale_registers(arch, A=a * b / y)
        if arch.numerics == "onnxruntime":
            return values | scale_registers(arch, A=a, B=b, Y=y)
        if self.mnemonic == "OP_E_DIV":
            return values | scale_registers(arch, A=a / b / y / (1 << LEFT_SHIFT))
        if self.squared:
            fixed = numerics.compute_squared_difference_constants(*self.scales)
            values |= {
                f"EX_SCALE_{name}": getattr(fixed, f"multiplier_{name.lower()}") for name in "ABY"
            }
            return values | {
                f"EX_SHIFT_{name}": getattr(fixed, f"shift_{name.lower()}") for name in "ABY"
            }
        return Addition(scales=self.scales).constants(arch) | values


def shift_case(
    name: str,
    description: str,
    arch: Arch,
    data: NDArray[np.int32],
    amount: int,
    direction: int = 1,
    rounding: int = 1,
) -> GoldenCase:
    """``OP_E32_SHIFT``: direction 0 left, 1 right.

    Rounding 0 floor, 1 nearest even, 2 half away from zero.
    """
    registers = {"EX_LENGTH": data.size, "EX_SHIFT_A": amount}
    operands = {"EX_INPUT_ADDRESS": data}
    result: tuple[TensorType, tuple[int, ...]] = ("int32", data.shape)
    fields = {"direction": direction, "rounding": rounding}
    return single(
        name, description, arch, "OP_E32_SHIFT", operands, result, registers, None, **fields
    )
