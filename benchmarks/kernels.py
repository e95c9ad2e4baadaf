"""Measure the simulator's kernels on the layers of MobileNetV1 1.0/224, on one thread.

Each layer is one untiled command.

    python -m benchmarks.kernels [--check]

Values are random: the kernels' time does not depend on them. ``--check`` compares each layer with
the semantics (slow). The number of BLAS threads changes no bit: all float32 sums are of integers
and exact in any order.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

from benchmarks import measuring  # before NumPy, whose number of threads it sets

# isort: split
import numpy as np

from dla_sim.kernels.dispatch import Kernels
from isa.arch import Arch
from isa.instruction import Command, Machine, Unit
from isa.ops import ALL

SRAM_BYTES = 16 << 20
SHAPES = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)
"""(output channels, stride of the depthwise layer) of the 13 blocks."""


@dataclass(frozen=True, eq=False)
class Layer:
    """Name and command of one layer."""

    name: str
    command: Command

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the layer, including those of padding."""
        return self.command.instruction.macs(self.command)


def make(mnemonic: str, **registers: int) -> Command:
    """Return a command with the given registers, requantisation and ReLU.

    Names in ``registers`` are without EX_; other registers have their reset values.
    """
    instruction = ALL[mnemonic]
    snapshot = {item.name: item.reset for item in instruction.register_declarations()}
    snapshot |= {f"EX_{name}": value for name, value in registers.items()}
    fields = {field.name: 0 for field in instruction.fields}
    fields.update({name: 1 for name in ("requantise", "relu") if name in fields})
    return Command(0, instruction, Unit.EX, False, False, False, False, fields, snapshot)


def convolution(mnemonic: str, ic: int, oc: int, size: int, kernel: int, stride: int) -> Layer:
    """Return a convolution layer with the "same" padding of the ONNX export.

    This is 1 on all sides of a 3×3 window.
    """
    out = size // stride
    command = make(
        mnemonic, INPUT_ADDRESS=0, OPERAND_ADDRESS=4 << 20, CHANNEL_ADDRESS=8 << 20,
        OUTPUT_ADDRESS=12 << 20,
        INPUT_CHANNELS=ic, INPUT_HEIGHT=size, INPUT_WIDTH=size, OUTPUT_CHANNELS=oc,
        OUTPUT_HEIGHT=out, OUTPUT_WIDTH=out,
        KERNEL_HEIGHT=kernel, KERNEL_WIDTH=kernel, STRIDE_HEIGHT=stride, STRIDE_WIDTH=stride,
        PAD_TOP=kernel // 2, PAD_LEFT=kernel // 2, INPUT_ZERO_POINT=-128, OUTPUT_ZERO_POINT=-128,
    )  # fmt: skip
    kind = "depth" if mnemonic == "OP_DEPTH_CONV" else "conv"
    return Layer(f"{kind} {kernel}x{kernel}/{stride} {ic}x{size}x{size} -> {oc}", command)


def layers() -> list[Layer]:
    """Return all layers of MobileNetV1 except the pooling, in order."""
    found = [convolution("OP_CONV", 3, 32, 224, 3, 2)]
    channels = 32
    size = 112
    for output, stride in SHAPES:
        found.append(convolution("OP_DEPTH_CONV", channels, channels, size, 3, stride))
        size //= stride
        found.append(convolution("OP_CONV", channels, output, size, 1, 1))
        channels = output
    dense = make("OP_MAT_MUL", OPERAND_ADDRESS=4 << 20, CHANNEL_ADDRESS=8 << 20,
                 OUTPUT_ADDRESS=12 << 20, INPUT_CHANNELS=1024, OUTPUT_CHANNELS=1000)  # fmt: skip
    return [*found, Layer("matmul 1x1024 by 1024x1000", dense)]


def machine() -> Machine:
    """Return a machine with a large scratchpad of random bytes and channel records."""
    generator = np.random.default_rng(0)
    memory = generator.integers(0, 256, SRAM_BYTES, dtype=np.uint8)
    records = memory[8 << 20 : (8 << 20) + 1024 * 8].view("<i4").reshape(-1, 2)
    records[:, 0] = generator.integers(-60000, 60000, 1024)
    records[:, 1] = generator.uniform(1e-4, 1e-2, 1024).astype("<f4").view("<i4")
    return Machine(Arch(sram_bytes=SRAM_BYTES), memory, np.zeros(0, np.uint8))


def check(command: Command, device: Machine) -> str:
    """Compare the scratchpad after a kernel with that after the instruction's semantics."""
    expected = Machine(device.arch, device.sram.copy(), device.dram)
    command.instruction.semantics(command, expected)
    Kernels(device.arch).run(command, device)
    return "equal" if np.array_equal(device.sram, expected.sram) else "DIFFERENT"


def main() -> None:
    """Print the kernel times of all layers, the totals by kind, and one emulated filter.

    It is a depthwise filter.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the semantics")
    options = parser.parse_args()
    device = machine()
    totals = {"conv": 0.0, "depth": 0.0, "matmul": 0.0}
    kernels = Kernels(device.arch)
    print(measuring.settings())
    print(
        "machine    none: kernels do the same whatever the processing elements; 16 MiB SRAM, "
        "every layer in one tile"
    )
    print(f"measured   {measuring.measured()}\n")
    for layer in layers():
        seconds, _ = measuring.shortest(partial(kernels.run, layer.command, device))
        totals[layer.name.split()[0]] += seconds
        verdict = check(layer.command, device) if options.check else ""
        print(
            f"{layer.name:36s} {seconds * 1e3:8.3f} ms {layer.macs / seconds / 1e9:7.2f} GMAC/s "
            f"{verdict}"
        )
    print(", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in totals.items()))
    print(f"total {sum(totals.values()) * 1e3:.2f} ms")
    print(f"\nmeasured   {measuring.measured(200)}")
    for size in (112, 28, 14, 7):
        single = convolution("OP_CONV", 1, 1, size, 3, 1)
        seconds, _ = measuring.shortest(partial(kernels.run, single.command, device), runs=200)
        print(f"one emulated filter {size}x{size}: {seconds * 1e6:.1f} us")


if __name__ == "__main__":
    main()
