"""Golden cases of single operations: convolutions, pooling and resizing.

The other operations are in tensor_operations. Operands that are not given are drawn from the case's
name: the same name gives the same values.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits
from isa.ops.pooling import GLOBAL_AVERAGE, MAX
from isa.ops.requant import ChannelScales, pack_records
from isa.program import TensorType
from tests.golden_cases.builder import single

Pair = tuple[int, int]
FULL = (-128, 127)


def generator(name: str) -> np.random.Generator:
    """Random numbers that belong to a case."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def int8(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    """All values of int8, equally likely."""
    return rng.integers(-128, 128, shape, dtype=np.int8)


def records(
    rng: np.random.Generator, channels: int, terms: int, arch: Arch, bias: int = 3000
) -> NDArray[np.uint8]:
    """Return channel records whose scales bring sums of ``terms`` products to the int8 range.

    Some results are a little beyond it.
    """
    scale = rng.uniform(0.5, 1.5, channels) / (48.0 * np.sqrt(terms))
    biases = rng.integers(-bias, bias + 1, channels, dtype=np.int32)
    return packed(biases, scale.astype(np.float32), arch)


def packed(bias: NDArray[Any], scale: NDArray[Any], arch: Arch) -> NDArray[np.uint8]:
    """The bytes of channel records with exactly these scales."""
    scales = ChannelScales.make_exact(scale.astype(np.float32))
    return np.frombuffer(pack_records(bias.astype(np.int32), scales, arch), np.uint8)


def scale_registers(arch: Arch, **scales: float) -> dict[str, int]:
    """Return the registers ``EX_SCALE_A`` and so on for real scales.

    They are float32 bits, or multiplier and shift if numerics = fixed.
    """
    values: dict[str, int] = {}
    for name, scale in scales.items():
        if arch.numerics == "fixed":
            multiplier, shift = numerics.quantise_multiplier(scale)
            values |= {f"EX_SCALE_{name}": multiplier & 0xFFFFFFFF, f"EX_SHIFT_{name}": shift}
        else:
            values[f"EX_SCALE_{name}"] = float32_bits(scale)
    return values


def looked_up(tables: NDArray[np.int8] | None) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
    """Return operand and field of a look-up in ``tables`` of (256,) or (channels, 256).

    None: there is no look-up.
    """
    return ({}, {}) if tables is None else ({"EX_TABLE_ADDRESS": tables}, {"look_up": tables.ndim})


def earlier_sums(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """The operand of a command that starts from the sums of an earlier one, of ``shape``."""
    return {"EX_PARTIAL_ADDRESS": rng.integers(-40000, 40000, shape, dtype=np.int32)}


@dataclass(frozen=True)
class Window:
    """Input (channels, rows, columns), the window, and padding (top, left, bottom, right)."""

    shape: tuple[int, int, int] = (4, 6, 6)
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)

    @property
    def output(self) -> Pair:
        """OH and OW: all windows inside the padded input."""
        top, left, bottom, right = self.padding
        rows = self.shape[1] + top + bottom - (self.kernel[0] - 1) * self.dilation[0] - 1
        columns = self.shape[2] + left + right - (self.kernel[1] - 1) * self.dilation[1] - 1
        return rows // self.stride[0] + 1, columns // self.stride[1] + 1

    def registers(self, outputs: int) -> dict[str, int]:
        """Return the registers of a command with this window and ``outputs`` channels."""
        pairs = {
            "KERNEL": self.kernel,
            "STRIDE": self.stride,
            "DILATION": self.dilation,
            "OUTPUT": self.output,
        }
        values = {"EX_INPUT_CHANNELS": self.shape[0], "EX_OUTPUT_CHANNELS": outputs}
        values |= {"EX_INPUT_HEIGHT": self.shape[1], "EX_INPUT_WIDTH": self.shape[2]}
        for name, (rows, columns) in pairs.items():
            values |= {f"EX_{name}_HEIGHT": rows, f"EX_{name}_WIDTH": columns}
        return values | {"EX_PAD_TOP": self.padding[0], "EX_PAD_LEFT": self.padding[1]}


@dataclass(frozen=True)
class Convolution:
    """One convolution.

    It is ``OP_CONV`` if ``groups`` is 0, ``OP_DEPTH_CONV`` if -1, otherwise ``OP_GROUP_CONV``.
    """

    window: Window = Window()
    outputs: int = 8
    groups: int = 0
    requantise: bool = True
    relu: bool = False
    zeros: Pair = (0, 0)
    limits: Pair = (-128, 127)
    more: dict[str, int] = field(default_factory=dict)
    input: NDArray[np.int8] | None = None
    weights: NDArray[np.int8] | None = None
    channels: NDArray[np.uint8] | None = None
    tables: NDArray[np.int8] | None = None
    mapping: int = 0
    accumulate: bool = False

    @property
    def mnemonic(self) -> str:
        """The instruction."""
        if self.groups == 0:
            return "OP_CONV_RELU" if self.relu and self.requantise else "OP_CONV"
        return "OP_DEPTH_CONV" if self.groups == -1 else "OP_GROUP_CONV"

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; operands that are not given are drawn."""
        rng = generator(name)
        window = self.window
        depth = {0: window.shape[0], -1: 1}.get(self.groups) or window.shape[0] // self.groups
        taps = depth * window.kernel[0] * window.kernel[1]
        drawn = int8(rng, *window.shape), int8(rng, self.outputs, depth, *window.kernel)
        operands = {
            "EX_INPUT_ADDRESS": drawn[0] if self.input is None else self.input,
            "EX_OPERAND_ADDRESS": drawn[1] if self.weights is None else self.weights,
            "EX_CHANNEL_ADDRESS": records(rng, self.outputs, taps, arch)
            if self.channels is None
            else self.channels,
        }
        registers = window.registers(self.outputs) | (
            {"EX_GROUPS": self.groups} if self.groups > 0 else {}
        )
        registers |= {"EX_INPUT_ZERO_POINT": self.zeros[0], "EX_OUTPUT_ZERO_POINT": self.zeros[1]}
        registers |= {"EX_CLAMP_LOW": self.limits[0], "EX_CLAMP_HIGH": self.limits[1], **self.more}
        dtype: TensorType = "int8" if self.requantise else "int32"
        result = dtype, (self.outputs, *window.output)
        more, looks = looked_up(self.tables)
        more |= earlier_sums(rng, (self.outputs, *window.output)) if self.accumulate else {}
        fields = {"requantise": int(self.requantise), "relu": int(self.relu), **looks}
        fields |= {
            name: value
            for name, value in (("mapping", self.mapping), ("accumulate", self.accumulate))
            if value
        }
        return single(
            name,
            description,
            arch,
            self.mnemonic,
            operands | more,
            result,
            registers,
            timing,
            **fields,
        )


@dataclass(frozen=True)
class Pooling:
    """One pooling: ``scales`` are those of input and output."""

    mode: int = MAX
    window: Window = Window((8, 6, 6), (2, 2), (2, 2), padding=(0, 0, 0, 0))
    scales: tuple[float, float] = (0.05, 0.05)
    zeros: Pair = (0, 0)
    limits: Pair = (-128, 127)
    count_include_pad: bool = False
    offset: int = 0
    input: NDArray[np.int8] | None = None
    tables: NDArray[np.int8] | None = None

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; an input that is not given is drawn."""
        window = self.window
        data = int8(generator(name), *window.shape) if self.input is None else self.input
        registers = window.registers(window.shape[0])
        registers |= {"EX_INPUT_ZERO_POINT": self.zeros[0], "EX_OUTPUT_ZERO_POINT": self.zeros[1]}
        registers |= {"EX_CLAMP_LOW": self.limits[0], "EX_CLAMP_HIGH": self.limits[1]}
        if self.mode != MAX:
            registers |= self._scales(arch)
        if self.offset and arch.numerics == "onnxruntime":
            registers["EX_OFFSET"] = self.offset
        more, looks = looked_up(self.tables)
        fields = {"mode": self.mode, "count_include_pad": int(self.count_include_pad), **looks}
        result: tuple[TensorType, tuple[int, ...]] = ("int8", (window.shape[0], *window.output))
        return single(
            name,
            description,
            arch,
            "OP_POOL",
            {"EX_INPUT_ADDRESS": data, **more},
            result,
            registers,
            timing,
            **fields,
        )

    def _scales(self, arch: Arch) -> dict[str, int]:
        source, result = self.scales
        if arch.numerics == "fixed":
            return scale_registers(arch, A=source / result)
        if self.mode == GLOBAL_AVERAGE:
            taps = self.window.kernel[0] * self.window.kernel[1]
            return scale_registers(arch, A=source / (result * taps))
        return scale_registers(arch, A=source, Y=result)


@dataclass(frozen=True)
class Resizing:
    """Planes (C, H, W) interpolated at the coordinates ``rows`` and ``columns``.

    ``first``: the first row among the coordinates, and that of the input; ``planes``: how far they
    lie apart, 0: dense.
    """

    shape: tuple[int, int, int] = (2, 4, 5)
    rows: tuple[float, ...] = (0.0, 0.375, 1.125, 1.875, 2.625, 3.0)
    columns: tuple[float, ...] = (0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4.0)
    scales: tuple[float, float] = (0.05, 0.05)
    zeros: Pair = (3, -9)
    first: Pair = (0, 0)
    planes: Pair = (0, 0)
    input: NDArray[np.int8] | None = None

    def case(
        self, name: str, description: str, arch: Arch, timing: Timing | None = None
    ) -> GoldenCase:
        """The case; an input that is not given is drawn."""
        (channels, height, width) = self.shape
        made = (len(self.rows), len(self.columns))
        drawn = int8(generator(name), channels, self.planes[0] or height * width)
        before, after = self.scales
        scales = scale_registers(arch, A=before / after) if arch.numerics == "fixed" else {}
        registers = {
            **dict(
                zip(
                    ("EX_INPUT_CHANNELS", "EX_INPUT_HEIGHT", "EX_INPUT_WIDTH"),
                    self.shape,
                    strict=True,
                )
            ),
            **dict(
                zip(
                    ("EX_OUTPUT_CHANNELS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH"),
                    (channels, *made),
                    strict=True,
                )
            ),
            **dict(zip(("EX_FIRST_ROW", "EX_FIRST_INPUT_ROW"), self.first, strict=True)),
            **dict(zip(("EX_INPUT_PLANE", "EX_OUTPUT_PLANE"), self.planes, strict=True)),
            **dict(zip(("EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT"), self.zeros, strict=True)),
            **(scales or scale_registers(arch, A=before, Y=after)),
        }
        lines = [*self.columns, *[0.0] * self.first[0], *self.rows]
        operands: dict[str, NDArray[Any]] = {
            "EX_INPUT_ADDRESS": drawn if self.input is None else self.input
        }
        operands["EX_OPERAND_ADDRESS"] = np.array(lines, "<f4").view(np.uint8)
        result: tuple[TensorType, tuple[int, ...]] = (
            "int8",
            (channels, self.planes[1] or made[0] * made[1]),
        )
        return single(name, description, arch, "OP_RESIZE", operands, result, registers, timing)


def limits_of(low: int, high: int, zero: int = 0) -> dict[str, int]:
    """Output zero point and clamp limits."""
    return {"EX_OUTPUT_ZERO_POINT": zero, "EX_CLAMP_LOW": low, "EX_CLAMP_HIGH": high}
