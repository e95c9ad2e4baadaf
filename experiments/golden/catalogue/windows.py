"""Cases of the instructions that slide a window: convolutions of all kinds, and pooling."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from experiments.golden.build import single
from experiments.golden.case import Case
from experiments.golden.catalogue.draws import generator, int8, records, scale_registers
from isa.arch import Arch
from isa.ops.pooling import GLOBAL_AVERAGE, MAX
from isa.program import TensorType

Pair = tuple[int, int]


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
        """OH and OW: all windows that lie in the padded input."""
        top, left, bottom, right = self.padding
        rows = self.shape[1] + top + bottom - (self.kernel[0] - 1) * self.dilation[0] - 1
        columns = self.shape[2] + left + right - (self.kernel[1] - 1) * self.dilation[1] - 1
        return rows // self.stride[0] + 1, columns // self.stride[1] + 1

    def registers(self, outputs: int) -> dict[str, int]:
        """What a command with this window and ``outputs`` channels needs."""
        pairs = {"KERNEL": self.kernel, "STRIDE": self.stride, "DILATION": self.dilation, "OUTPUT": self.output}
        values = {"EX_INPUT_CHANNELS": self.shape[0], "EX_OUTPUT_CHANNELS": outputs}
        values |= {"EX_INPUT_HEIGHT": self.shape[1], "EX_INPUT_WIDTH": self.shape[2]}
        for name, (rows, columns) in pairs.items():
            values |= {f"EX_{name}_HEIGHT": rows, f"EX_{name}_WIDTH": columns}
        return values | {"EX_PAD_TOP": self.padding[0], "EX_PAD_LEFT": self.padding[1]}


@dataclass(frozen=True)
class Convolution:
    """One convolution: ``groups`` 0 is ``OP_CONV``, -1 ``OP_DEPTH_CONV``, otherwise ``OP_GROUP_CONV``."""

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

    @property
    def mnemonic(self) -> str:
        """The instruction."""
        if self.groups == 0:
            return "OP_CONV_RELU" if self.relu and self.requantise else "OP_CONV"
        return "OP_DEPTH_CONV" if self.groups == -1 else "OP_GROUP_CONV"

    def case(self, name: str, description: str, arch: Arch, timing: Timing | None = None) -> Case:
        """The case; operands that are not given are drawn."""
        rng, window = generator(name), self.window
        depth = {0: window.shape[0], -1: 1}.get(self.groups) or window.shape[0] // self.groups
        taps = depth * window.kernel[0] * window.kernel[1]
        drawn = int8(rng, *window.shape), int8(rng, self.outputs, depth, *window.kernel)
        operands = {
            "EX_INPUT_ADDRESS": drawn[0] if self.input is None else self.input,
            "EX_OPERAND_ADDRESS": drawn[1] if self.weights is None else self.weights,
            "EX_CHANNEL_ADDRESS": records(rng, self.outputs, taps, arch) if self.channels is None else self.channels,
        }
        registers = window.registers(self.outputs) | ({"EX_GROUPS": self.groups} if self.groups > 0 else {})
        registers |= {"EX_INPUT_ZERO_POINT": self.zeros[0], "EX_OUTPUT_ZERO_POINT": self.zeros[1]}
        registers |= {"EX_CLAMP_LOW": self.limits[0], "EX_CLAMP_HIGH": self.limits[1], **self.more}
        dtype: TensorType = "int8" if self.requantise else "int32"
        result = dtype, (self.outputs, *window.output)
        fields = {"requantise": int(self.requantise), "relu": int(self.relu)}
        return single(name, description, arch, self.mnemonic, operands, result, registers, timing, **fields)


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

    def case(self, name: str, description: str, arch: Arch, timing: Timing | None = None) -> Case:
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
        fields = {"mode": self.mode, "count_include_pad": int(self.count_include_pad)}
        result: tuple[TensorType, tuple[int, ...]] = ("int8", (window.shape[0], *window.output))
        return single(
            name, description, arch, "OP_POOL", {"EX_INPUT_ADDRESS": data}, result, registers, timing, **fields
        )

    def _scales(self, arch: Arch) -> dict[str, int]:
        source, result = self.scales
        if arch.numerics == "fixed":
            return scale_registers(arch, A=source / result)
        if self.mode == GLOBAL_AVERAGE:
            taps = self.window.kernel[0] * self.window.kernel[1]
            return scale_registers(arch, A=source / (result * taps))
        return scale_registers(arch, A=source, Y=result)
