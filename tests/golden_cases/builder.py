"""Build the programs of golden cases: operations, tensors and images in system memory.

Operations have registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa.arch import Arch
from isa.encoding import encode_operation, encode_set
from isa.instruction import NEXT, PREVIOUS, Atoms, Blocks, Command, OperandLayout, Plain, Unit
from isa.packing import block_weights, copies
from isa.plugins import variant
from isa.program import Program, Provenance, Segment, Tensor, TensorType
from isa.shapes import access

DMA_REGISTERS = ("DRAM_ADDRESS", "SRAM_ADDRESS", "BYTES")
PLACE = 64


class Builder:
    """Collects the commands of one program and the contents of its memories.

    Registers are written when they change. Every operation gets a provenance whose layer is
    ``layer`` at that time.
    """

    def __init__(self, arch: Arch, layer: str = "case") -> None:
        self.arch = arch
        self.layer = layer
        self.isa = variant(arch.isa)
        self.inputs: dict[str, bytes] = {}
        self._registers = dict(self.isa.register_file.reset)
        self._words: list[int] = []
        self._tensors: list[Tensor] = []
        self._segments: list[Segment] = []
        self._sources: list[Provenance] = []
        self._dram = 0
        self._sram = 0

    def scratch(self, nbytes: int) -> int:
        """A free place in the scratchpad."""
        place = max(PLACE, self.arch.granule)
        address = self._sram
        self._sram = self._sram + -(-nbytes // place) * place
        return address

    def memory(self, nbytes: int) -> int:
        """A free place in system memory."""
        address = self._dram
        self._dram = self._dram + -(-nbytes // PLACE) * PLACE
        return address

    def input(self, name: str, data: NDArray[Any]) -> int:
        """An input tensor that holds ``data``; its address."""
        address = self.memory(data.nbytes)
        kind: TensorType = "int32" if data.dtype == np.int32 else "int8"
        self._tensors.append(Tensor(name, "input", kind, data.shape, address))
        self.inputs[name] = np.ascontiguousarray(data).tobytes()
        return address

    def image(self, data: NDArray[Any]) -> int:
        """Constant bytes in system memory; their address."""
        address = self.memory(data.nbytes)
        self._segments.append(
            Segment(address, np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8))
        )
        return address

    def output(self, name: str, dtype: TensorType, shape: tuple[int, ...]) -> int:
        """An output tensor; its address."""
        tensor = Tensor(name, "output", dtype, shape, 0)
        address = self.memory(tensor.nbytes)
        self._tensors.append(Tensor(name, "output", dtype, shape, address))
        return address

    def operation(
        self, mnemonic: str, registers: Mapping[str, int], flags: str = "", **fields: int
    ) -> None:
        """Registers that change, then the operation.

        ``flags`` are as in assembly: ``pop.LD push.ST``.
        """
        instruction, implied = self.isa.by_mnemonic[mnemonic]
        first = len(self._words)
        for name, value in registers.items():
            if self._registers[name] != value:
                self._registers[name] = value
                self._words.append(encode_set(name, value, self.isa.register_file))
        unit = instruction.unit or Unit(fields.get("unit", Unit.EX.value))
        tokens = {_flag(flag, unit): 1 for flag in flags.split()}
        self._words.append(encode_operation(instruction, {**implied, **fields, **tokens}))
        nodes = (f"{self.layer}_node",)
        last = len(self._words)
        self._sources.append(
            Provenance(first, last, self.layer, instruction.kind, mnemonic, 0, nodes)
        )

    def read(self, dram: int, sram: int, nbytes: int, flags: str = "", **strides: int) -> None:
        """Add ``OP_DMA_READ``; ``strides`` are further registers, as in ``count_1=2``.

        Their names omit the unit.
        """
        self._dma("OP_DMA_READ", "LD", dram, sram, nbytes, flags, strides)

    def write(self, dram: int, sram: int, nbytes: int, flags: str = "", **strides: int) -> None:
        """``OP_DMA_WRITE``, likewise."""
        self._dma("OP_DMA_WRITE", "ST", dram, sram, nbytes, flags, strides)

    def _dma(
        self,
        mnemonic: str,
        unit: str,
        dram: int,
        sram: int,
        nbytes: int,
        flags: str,
        strides: Mapping[str, int],
    ) -> None:
        values = dict(zip(DMA_REGISTERS, (dram, sram, nbytes), strict=True))
        values |= {name.upper(): value for name, value in strides.items()}
        self.operation(mnemonic, {f"{unit}_{name}": value for name, value in values.items()}, flags)

    def program(self, name: str) -> Program:
        """Return the program so far, ended by ``OP_END``; the command words follow all data."""
        words = [*self._words, encode_operation(self.isa.by_mnemonic["OP_END"][0], {})]
        return Program(
            name, self.arch, np.array(words, np.uint64), tuple(self._tensors),
            tuple(self._segments),
            tuple(self._sources), self._dram + 8 * len(words), self._dram,
        )  # fmt: skip

    def case(
        self, name: str, description: str, timing: Timing | None = None, *, contents: bool = True
    ) -> GoldenCase:
        """The case of the program so far."""
        values = (timing or Timing()).model_dump()
        return GoldenCase(
            name, description, self.program(name), dict(self.inputs), values, contents
        )


def _flag(text: str, unit: Unit) -> str:
    flag, _, neighbour = text.partition(".")
    sides: dict[str, Literal["previous", "next"]] = {}
    if unit in PREVIOUS:
        sides[PREVIOUS[unit].name] = "previous"
    if unit in NEXT:
        sides[NEXT[unit].name] = "next"
    return f"{flag}_{sides[neighbour]}"


def single(
    name: str,
    description: str,
    arch: Arch,
    mnemonic: str,
    operands: Mapping[str, NDArray[Any]],
    result: tuple[TensorType, tuple[int, ...]],
    registers: Mapping[str, int] | None = None,
    timing: Timing | None = None,
    **fields: int,
) -> GoldenCase:
    """One instruction of EX: its operands loaded, the command, its result stored.

    ``operands`` maps the address register of each operand to its contents: activations become input
    tensors, weights and channel records images. They and ``result`` are laid out plainly here,
    whatever the machine does.
    """
    builder = Builder(arch, name.rpartition("/")[2])
    values = dict(registers or {})
    last = list(operands)[-1]
    constants = {
        register
        for register, data in operands.items()
        if register in ("EX_CHANNEL_ADDRESS", "EX_TABLE_ADDRESS")
        or (register == "EX_OPERAND_ADDRESS" and data.ndim > 1)
    }
    if arch.words is not None:
        operands, result = packed_operands(builder, mnemonic, operands, values, fields)
    for register, data in operands.items():
        constant = register in constants
        label = register.removeprefix("EX_").removesuffix("_ADDRESS").lower()
        source = builder.image(data) if constant else builder.input(label, data)
        values[register] = builder.scratch(data.nbytes)
        builder.read(source, values[register], data.nbytes, "push.EX" if register == last else "")
    target = builder.output("result", *result)
    nbytes = int(np.prod(result[1], dtype=np.int64)) * (4 if result[0] == "int32" else 1)
    values["EX_OUTPUT_ADDRESS"] = builder.scratch(nbytes)
    builder.operation(mnemonic, values, "pop.LD push.ST", **fields)
    builder.write(target, values["EX_OUTPUT_ADDRESS"], nbytes, "pop.EX")
    return builder.case(name, description, timing)


def packed_operands(
    builder: Builder,
    mnemonic: str,
    operands: Mapping[str, NDArray[Any]],
    registers: Mapping[str, int],
    fields: Mapping[str, int],
) -> tuple[dict[str, NDArray[Any]], tuple[TensorType, tuple[int, ...]]]:
    """Return operands laid out for banked memory, and type and shape of the result.

    The shape is (surfaces, positions, atom) for tensors with consecutive surfaces, else the number
    of elements.
    """
    instruction, implied = builder.isa.by_mnemonic[mnemonic]
    values = {item.name: item.reset for item in instruction.register_declarations()} | dict(
        registers
    )
    given = {item.name: 0 for item in instruction.fields} | dict(implied) | dict(fields)
    command = Command(0, instruction, Unit.EX, False, False, False, False, given, values)
    assert instruction.packed is not None
    *reads, written = instruction.packed.layouts(command, builder.arch)
    found = {
        layout.register: _laid_out(layout, values, builder.arch, operands[layout.register])
        for layout in sorted(reads, key=lambda layout: list(operands).index(layout.register))
    }
    empty = np.zeros(_plain_bytes(written), np.uint8)
    shaped = _laid_out(written, values, builder.arch, empty)
    return found, ("int32" if shaped.dtype == np.int32 else "int8", shaped.shape)


def _plain_bytes(layout: OperandLayout) -> int:
    return (
        layout.channels * layout.positions * layout.element
        if isinstance(layout, Atoms)
        else layout.nbytes
    )


def _laid_out(
    layout: OperandLayout, registers: Mapping[str, int], arch: Arch, data: NDArray[Any]
) -> NDArray[Any]:
    plain = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
    if isinstance(layout, Blocks):
        return block_weights(plain, layout.places)
    if isinstance(layout, Plain):
        return data
    words = arch.words
    at_zero = {**registers, layout.register: 0}
    assert words is not None
    raw = np.zeros(access(layout, at_zero, words).end, np.uint8)
    for copy in copies(layout, at_zero, words, 0):
        packed, found = copy.views(raw, plain)
        packed[...] = found
    elements = raw.view(np.int32 if layout.element == 4 else np.int8)
    shape = words.surfaces(layout.channels), layout.positions, words.atom
    return elements.reshape(shape) if elements.size == np.prod(shape) else elements
