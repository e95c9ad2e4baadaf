"""A processor's view of the device: memory, and the registers of a program in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import byoc
from dla_sim.device import Device
from dla_sim.mapped import MappedDevice, make_bus
from dla_sim.presets import load_hardware
from dla_sim.timing import Timing
from experiments.models import MODELS
from isa.device import DEVICE_REGISTERS, FaultReason, ProgramImage, to_image
from isa.program import Program
from tests.isa.sanitizer_programs import CHAIN
from tests.isa.sanitizer_programs import program as make_program

BASE = 0x2000_0000
GUARD = 0xA5
"""Value of all bytes of memory that no window has."""
ONE = "0x3f800000"
BODY = CHAIN.replace(
    "SET EX_OUTPUT", f"SET EX_SCALE_A, {ONE}\nSET EX_SCALE_Y, {ONE}\nSET EX_OUTPUT"
)
"""A load that ends with word 2, a ReLU with word 7 and a store with word 11."""
RELU = "OP_ACT_RELU pop.LD push.ST"
LENGTH = "SET EX_LENGTH, 64"


def offset(name: str) -> int:
    return DEVICE_REGISTERS[name].offset


class System:
    """A device, its memory, and one program whose windows are in that memory.

    Words, constants and activations follow one another from bus address :data:`BASE`, with 64
    bytes between them.
    """

    def __init__(self, program: Program, timing: Timing | None = None, **options: Any) -> None:
        self.program = program
        self.image = image = to_image(program)
        self.words = BASE
        self.constants = _align(self.words + 8 * len(image.words))
        self.activations = _align(self.constants + image.constants.size)
        end = _align(self.activations + image.activation_bytes)
        self.memory = bytearray([GUARD]) * (end - BASE)
        self.put(self.words, image.words.astype("<u8").tobytes())
        self.put(self.constants, image.constants.tobytes())
        self.put(self.activations, bytes(image.activation_bytes))
        self.simulator = Device(program.arch, timing)
        self.device = MappedDevice(self.simulator, make_bus(self.memory, BASE), **options)

    def put(self, address: int, content: bytes) -> None:
        at = address - BASE
        self.memory[at : at + len(content)] = content

    def take(self, address: int, count: int) -> bytes:
        return bytes(self.memory[address - BASE : address - BASE + count])

    def settings(self) -> dict[str, int]:
        """Values of the registers that describe the program."""
        return registers_of(self.image, self.words, self.constants, self.activations)

    def write(self, name: str, value: int) -> None:
        self.device.write32(offset(name), value)

    def read(self, name: str) -> int:
        return self.device.read32(offset(name))

    def counter(self, name: str) -> int:
        return self.read(f"{name}_LOW") + (self.read(f"{name}_HIGH") << 32)

    def start(self, inputs: Mapping[str, NDArray[Any]], **changes: int) -> None:
        """Write the inputs and the registers, with ``changes`` to them, and start the run."""
        for tensor in self.program.inputs:
            self.put(self.activations + tensor.address, inputs[tensor.name].tobytes())
        for name, value in (self.settings() | changes).items():
            self.write(name, value)
        self.write("CONTROL", 1)

    def outputs(self) -> dict[str, NDArray[Any]]:
        return {
            tensor.name: np.frombuffer(
                self.take(self.activations + tensor.address, tensor.nbytes), tensor.dtype
            ).reshape(tensor.shape)
            for tensor in self.program.outputs
        }

    def fault(self) -> tuple[FaultReason, int, int]:
        """The values of the fault registers."""
        return (
            FaultReason(self.read("FAULT_REASON")),
            self.read("FAULT_WORD"),
            self.read("FAULT_ADDRESS"),
        )


def registers_of(
    image: ProgramImage, words: int, constants: int, activations: int
) -> dict[str, int]:
    """Values of the registers for a program whose windows are at three bus addresses."""
    return {
        **{f"PROGRAM_HASH{number}": word for number, word in enumerate(image.arch_hash)},
        "COMMAND_BASE": words,
        "COMMAND_WORDS": len(image.words),
        "COMMAND_START": image.command_start,
        "CONSTANT_BASE": constants,
        "CONSTANT_BYTES": image.constants.size,
        "CONSTANT_START": image.constant_start,
        "ACTIVATION_BASE": activations,
        "ACTIVATION_BYTES": image.activation_bytes,
        "ACTIVATION_START": image.activation_start,
    }


def random_inputs(program: Program, seed: int = 0) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return {
        tensor.name: rng.integers(-128, 128, tensor.shape).astype(tensor.dtype)
        for tensor in program.inputs
    }


def _align(address: int) -> int:
    return -(-address // 64) * 64 + 64


def small_program(*changes: tuple[str, str]) -> Program:
    return make_program(BODY, *changes)


def compile_digits(isa: str = "v5") -> Program:
    model = MODELS["digits-cnn"]
    package = byoc.import_model(model.build(0), "digits", calibration=model.calibration(0))
    (program,) = byoc.compile(package, load_hardware("balanced-64", isa=isa).arch).programs.values()
    return program
