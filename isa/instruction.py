"""What an instruction is: one declaration from which encoder, decoder, assembler, documentation and checks derive."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from inspect import cleandoc
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, Range, overlap
from isa.arch import Arch
from isa.registers import BY_NAME, Field, Register, prove_layout

Documented = TypeVar("Documented", bound=Callable[..., Any])
_MNEMONIC = re.compile(r"OP_[A-Z0-9_]+")


class Unit(Enum):
    """The three decoupled units. The value is the number in ``OP_SYNC`` and the order in which ties are broken."""

    LD = 0
    EX = 1
    ST = 2


PREVIOUS = {Unit.EX: Unit.LD, Unit.ST: Unit.EX}
NEXT = {Unit.LD: Unit.EX, Unit.EX: Unit.ST}

KINDS = ("CONV", "DEPTH", "REQUANT", "MATMUL", "POOL", "ELTWISE", "ACT", "DMA", "ISSUE")
"""The accounts that cycles belong to, in the order of the run report."""

OPCODE = Field("opcode", 56, 8, description="which instruction")
TOKENS = (
    Field("pop_previous", 55, 1, description="wait for a token from the unit before this one (LD before EX before ST)"),
    Field("pop_next", 54, 1, description="wait for a token from the unit after this one"),
    Field("push_previous", 53, 1, description="on completion give a token to the unit before this one"),
    Field("push_next", 52, 1, description="on completion give a token to the unit after this one"),
)


@dataclass(frozen=True)
class Machine:
    """What semantics act on: byte arrays of the two memories, and the Arch that chooses the numerics."""

    arch: Arch
    sram: NDArray[np.uint8]
    dram: NDArray[np.uint8]


@dataclass(frozen=True, eq=False, init=False)
class Command:
    """A decoded operation word with the snapshot of its registers. ``index`` is its position in the command words."""

    index: int
    instruction: Instruction
    unit: Unit
    pop_previous: bool
    pop_next: bool
    push_previous: bool
    push_next: bool
    fields: Mapping[str, int]
    registers: Mapping[str, int]

    def __init__(
        self,
        index: int,
        instruction: Instruction,
        unit: Unit,
        pop_previous: bool,
        pop_next: bool,
        push_previous: bool,
        push_next: bool,
        fields: Mapping[str, int],
        registers: Mapping[str, int],
    ) -> None:
        """All at once: field by field, as frozen dataclasses do it, takes longer than decoding."""
        vars(self).update(
            index=index,
            instruction=instruction,
            unit=unit,
            pop_previous=pop_previous,
            pop_next=pop_next,
            push_previous=push_previous,
            push_next=push_next,
            fields=fields,
            registers=registers,
        )

    def __getitem__(self, name: str) -> int:
        """Value of a register in the snapshot, by its full name."""
        return self.registers[name]


@dataclass(frozen=True)
class ElementType:
    """The type of an operand's elements: ``name``, or ``other`` where ``field`` of the word is not 0."""

    name: str
    field: str = ""
    other: str = ""

    def of(self, command: Command) -> str:
        """The type in ``command``."""
        return self.other if self.field and command.fields[self.field] else self.name

    def __str__(self) -> str:
        return f"{self.name}, or {self.other} with {self.field}" if self.field else self.name


INT8, INT32, BYTES = ElementType("int8"), ElementType("int32"), ElementType("bytes")
FLOAT32 = ElementType("float32")
"""Words: int32 with numerics fixed."""


@dataclass(frozen=True)
class Operands:
    """The byte ranges that a command reads and writes."""

    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()


def formula(text: str) -> Callable[[Documented], Documented]:
    """Decorates a semantics or a number of cycles with the formula that documents it.

    It is no docstring, because Python may leave those out.
    """

    def decorate(function: Documented) -> Documented:
        vars(function)["formula"] = cleandoc(text)
        return function

    return decorate


def formula_of(function: Callable[..., Any]) -> str:
    """The text that :func:`formula` gave to ``function``; empty without."""
    return str(getattr(function, "formula", ""))


def _nothing(command: Command, arch: Arch) -> Operands:
    return Operands()


def _no_effect(command: Command, machine: Machine) -> None:
    return None


def _no_cycles(command: Command, arch: Arch) -> int:
    return 0


def _no_macs(command: Command) -> int:
    return 0


# How an operand lies on a machine of words (docs/machine.md, section 12); ``register`` holds its address -------------


class Plain(NamedTuple):
    """``nbytes`` dense bytes as they are: records, tables, and tensors that are looked at byte by byte."""

    register: str
    nbytes: int


class Atoms(NamedTuple):
    """A tensor of ``channels`` by ``positions`` elements of ``element`` bytes, in atoms.

    Element (c, p) is at base + (c // A) · surface + (p · A + c % A) · element; ``plane`` names the register of the
    surface's bytes, 0 in it or no name being the dense positions · A · element. Behind the last channel lie zeros.
    Plainly it lies channel by channel, or with ``rows``, a matrix, position by position. ``narrow`` is the A of a
    tensor that has other atoms than the machine's, 0 else.
    """

    register: str
    channels: int
    positions: int
    element: int = 1
    plane: str = ""
    rows: bool = False
    narrow: int = 0


class Blocks(NamedTuple):
    """``nbytes`` of constant weights in the order of their use; :attr:`places` is worked out by ``order``.

    ``read`` writes what lies so (first argument) plainly into as many bytes as there are weights (second).
    """

    register: str
    nbytes: int
    order: Callable[[], NDArray[np.int64]]
    read: Callable[[NDArray[np.uint8], NDArray[np.uint8]], None]

    @property
    def places(self) -> NDArray[np.int64]:
        """The plain place of each byte, -1 for none."""
        return self.order()


Layout = Plain | Atoms | Blocks


@dataclass(frozen=True)
class Packed:
    """An instruction on a machine of words.

    ``layouts`` has how its operands lie, parallel to reads and then writes of its plain operands; ``cycles`` its
    compute cycles without waiting for the scratchpad; ``words`` the words of each operand, in the same order.
    ``raw``: operands are bytes where they lie, as on other machines; ``layouts`` is not asked.
    """

    layouts: Callable[[Command, Arch], tuple[Layout, ...]]
    cycles: Callable[[Command, Arch], int]
    words: Callable[[Command, Arch], tuple[int, ...]]
    raw: bool = False


@dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction.

    ``fields`` are the bits of the word beside opcode and token flags; ``registers`` what it reads from the register
    file; ``operands`` the byte ranges it reads and writes; ``semantics`` its executable specification; ``cycles`` the
    compute cycles of design section 5, without fill and drain, for instructions of unit EX; ``macs`` the
    multiply-accumulates, padded taps included; ``kind`` the account it belongs to. ``aliases`` are further mnemonics
    that stand for settings of the fields. ``unit`` None means that the field ``unit`` of the word names it.
    ``adds_registers`` are those of ``registers`` that are not part of every variant: they come with the instruction.
    ``inputs`` are the elements of the tensors at EX_INPUT_ADDRESS and EX_OPERAND_ADDRESS, ``outputs`` of that at
    EX_OUTPUT_ADDRESS. ``semantics`` and ``cycles`` carry their :func:`formula` for ``docs/isa.md``. ``earlier`` is the
    form that variants before have, with fewer fields and registers: words of that mean the same in both. ``least`` are
    the compute cycles that no commands take fewer that together do what one does, whatever their shapes and fields;
    None where that one takes the fewest itself. ``streamed`` and ``replaced`` are positions in the ``reads`` of the
    operands on which the result may lie (:func:`overwritten`); on others it may not. ``packed`` is how it finds its
    operands on a machine of words, and ``plain`` the instruction without that (:mod:`isa.packing`).
    """

    mnemonic: str
    opcode: int
    unit: Unit | None
    kind: str
    description: str
    registers: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    operands: Callable[[Command, Arch], Operands] = _nothing
    semantics: Callable[[Command, Machine], None] = _no_effect
    cycles: Callable[[Command, Arch], int] = _no_cycles
    macs: Callable[[Command], int] = _no_macs
    aliases: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    inputs: tuple[ElementType, ...] = ()
    outputs: tuple[ElementType, ...] = ()
    adds_registers: tuple[Register, ...] = ()
    earlier: Instruction | None = None
    least: Callable[[Command, Arch], int] | None = None
    streamed: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    packed: Packed | None = None
    plain: Instruction | None = None

    def __post_init__(self) -> None:
        """Prove names, kind, registers and layout, once, at import; raises ValueError naming the instruction."""
        for name in (self.mnemonic, *self.aliases):
            if not _MNEMONIC.fullmatch(name):
                raise ValueError(f"mnemonic '{name}' must be OP_ and capitals, digits or underscores")
        if self.kind not in KINDS:
            raise ValueError(f"{self.mnemonic}: kind '{self.kind}' does not exist; choose one of {', '.join(KINDS)}")
        if not 0x02 <= self.opcode <= 0xFF:
            raise ValueError(f"{self.mnemonic}: opcode {self.opcode:#04x} must be 0x02 to 0xff; 0x01 is SET")
        self.register_declarations()
        names = [item.name for item in self.layout]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.mnemonic}: two fields share a name")
        for item in (*self.inputs, *self.outputs):
            if not isinstance(item, ElementType):
                raise ValueError(f"{self.mnemonic}: inputs and outputs are tuples of element types, as (INT8, INT8)")
            if item.field and item.field not in names:
                raise ValueError(f"{self.mnemonic}: the type of an operand depends on {item.field}, which is no field")

    def least_cycles(self, command: Command, arch: Arch) -> int:
        """Compute cycles that no commands take fewer that together do what ``command`` does."""
        return (self.least or self.cycles)(command, arch)

    @property
    def forms(self) -> tuple[Instruction, ...]:
        """This form and all earlier ones, the first one last."""
        return (self,) if self.earlier is None else (self, *self.earlier.forms)

    @property
    def layout(self) -> tuple[Field, ...]:
        """All fields of the word, from the top bit down, reserved zeros included."""
        declared = (Field("opcode", 56, 8, constant=self.opcode), *TOKENS, *self.fields)
        used = {bit for item in declared for bit in range(item.low, item.low + item.width)}
        reserved = tuple(_reserved(sorted(set(range(64)) - used)))
        return prove_layout(self.mnemonic, (*declared, *reserved))

    def register_declarations(self) -> tuple[Register, ...]:
        """The declarations of the registers that it reads; raises ValueError for a register that does not exist."""
        known = {**BY_NAME, **{register.name: register for register in self.adds_registers}}
        for name in self.registers:
            if name not in known:
                raise ValueError(f"{self.mnemonic} reads the unknown register {name}; declare it in adds_registers")
        return tuple(known[name] for name in self.registers)

    def mnemonic_for(self, fields: Mapping[str, int]) -> str:
        """The most specific mnemonic whose settings all hold in ``fields``."""
        for alias, settings in self.aliases.items():
            if all(fields.get(name) == value for name, value in settings.items()):
                return alias
        return self.mnemonic


def _reserved(bits: list[int]) -> list[Field]:
    """Constant-zero fields covering ``bits``, one a contiguous run."""
    runs: list[list[int]] = []
    for bit in bits:
        if runs and runs[-1][-1] + 1 == bit:
            runs[-1].append(bit)
        else:
            runs.append([bit])
    return [Field(f"reserved_{run[0]}", run[0], len(run), constant=0) for run in runs]


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest integer not below the quotient, for non-negative ``numerator``."""
    return -(-numerator // denominator)


def view(memory: NDArray[np.uint8], address: int, shape: tuple[int, ...], dtype: Any, plane: int = 0) -> NDArray[Any]:
    """A tensor view on memory bytes: dense, except that ``plane`` (bytes, 0 = dense) separates the outermost index.

    Raises IndexError when the tensor reaches past the end of the memory.
    """
    element = np.dtype(dtype).itemsize
    row = int(np.prod(shape[1:], dtype=np.int64)) * element
    plane = plane or row
    end = address + (shape[0] - 1) * plane + row if shape[0] else address
    if end > memory.size:
        raise IndexError(f"bytes {address:#x} to {end:#x} reach past the end of the memory ({memory.size:#x})")
    if plane == row:
        dense: NDArray[Any] = memory[address:end].view(dtype).reshape(shape)
        return dense
    inner = np.zeros(shape[1:], dtype=dtype).strides
    window: NDArray[Any] = np.ndarray(shape, dtype, memory, address, (plane, *inner))
    return window


# Results over operands -----------------------------------------------------------------------------------------------
# Where a command's result may lie on its own operands: where a machine that reads and writes as it goes cannot tell.
#
# The semantics read everything before they write anything. Hardware does not wait for the last element before it writes
# the first result, so it gives the same only where no result takes the place of an element that is still to be read.


def overwritten(command: Command, operands: Operands) -> Range | None:
    """The first bytes that ``command`` writes over an operand of its own and must not, or None.

    An operand in ``Instruction.streamed`` may begin at the result or behind it, if both are dense and it has as many
    bytes at least: element by element, each is read before a result is written there. One in
    ``Instruction.replaced`` may be exactly where the result is.
    """
    for result in operands.writes:
        for position, operand in enumerate(operands.reads):
            if operand.address < result.end and result.address < operand.end and operand.total and result.total:
                found = overlap(operand, result)
                if found is not None and not _harmless(command, position, operand, result):
                    return found
    return None


def _harmless(command: Command, position: int, operand: Access, result: Access) -> bool:
    if position in command.instruction.replaced:
        return operand == result
    dense = not operand.dims and not result.dims and operand.total >= result.total
    return position in command.instruction.streamed and dense and operand.address >= result.address
