"""Declarations of instructions: words, operands, layouts, semantics and cycles.

Encoder, decoder, assembler, documentation and checks derive from them.
"""

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
    """Execution units of the accelerator: load, execute and store.

    The value is the unit's number in ``OP_SYNC``; in a cycle, the lower number comes first.
    """

    LD = 0
    EX = 1
    ST = 2


PREVIOUS = {Unit.EX: Unit.LD, Unit.ST: Unit.EX}
NEXT = {Unit.LD: Unit.EX, Unit.EX: Unit.ST}

KINDS = ("CONV", "DEPTH", "REQUANT", "MATMUL", "POOL", "ELTWISE", "ACT", "DMA", "ISSUE")
"""Kinds of cycles in the accounts, in the order of the run report."""

OPCODE = Field("opcode", 56, 8, description="number of the instruction")
TOKENS = (
    Field(
        "pop_previous",
        55,
        1,
        description="wait for a token from the unit before this one (LD before EX before ST)",
    ),
    Field("pop_next", 54, 1, description="wait for a token from the unit after this one"),
    Field(
        "push_previous", 53, 1, description="on completion give a token to the unit before this one"
    ),
    Field("push_next", 52, 1, description="on completion give a token to the unit after this one"),
)


@dataclass(frozen=True)
class Machine:
    """State that instruction semantics operate on: scratchpad, system memory and the Arch.

    The memories are bytes; the Arch has the numerics.
    """

    arch: Arch
    sram: NDArray[np.uint8]
    dram: NDArray[np.uint8]

    def read(self, access: Access) -> NDArray[np.uint8]:
        """Return a copy of the bytes of ``access``, row by row in address-generation order."""
        memory = self.sram if access.space == "sram" else self.dram
        return access.view(memory).flatten() if access.total else memory[:0].copy()


@dataclass(frozen=True, eq=False, init=False)
class Command:
    """A decoded operation word with a snapshot of its registers.

    ``index`` is the position of the word in the program.
    """

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
        """Set all fields of the command at once.

        The initialiser of a frozen dataclass takes longer than decoding a word.
        """
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
        """Return the value of a register in the snapshot, by its full name."""
        return self.registers[name]


@dataclass(frozen=True)
class ElementType:
    """Type of an operand's elements: ``name``, or ``other`` if ``field`` of the word is not 0."""

    name: str
    field: str = ""
    other: str = ""

    def read_from(self, command: Command) -> str:
        """Return the element type in ``command``."""
        return self.other if self.field and command.fields[self.field] else self.name

    def __str__(self) -> str:
        return f"{self.name}, or {self.other} with {self.field}" if self.field else self.name


INT8, INT32, BYTES = ElementType("int8"), ElementType("int32"), ElementType("bytes")
FLOAT32 = ElementType("float32")
"""Type of parameters that are float32, or int32 with numerics ``fixed``."""


@dataclass(frozen=True)
class Operands:
    """Byte ranges that a command reads and writes.

    ``layouts`` are those of packed operands, reads first.
    """

    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    layouts: tuple[OperandLayout, ...] = field(default=(), compare=False)


def formula(text: str) -> Callable[[Documented], Documented]:
    """Return a decorator that attaches the documenting formula to semantics or a cycle count.

    The formula is not a docstring, because Python may omit docstrings.
    """

    def decorate(function: Documented) -> Documented:
        vars(function)["formula"] = cleandoc(text)
        return function

    return decorate


def formula_of(function: Callable[..., Any]) -> str:
    """Return the text that :func:`formula` attached to ``function``, or ""."""
    return str(getattr(function, "formula", ""))


# Layouts of an operand in banked memory (docs/machine.md, section 12); ``register`` holds its
# address -----------------


class Plain(NamedTuple):
    """Layout of an operand of ``nbytes`` dense bytes, such as records and tables.

    Also of tensors that are used byte by byte. The operand begins ``offset`` bytes after the
    address in its register: it is then part of a table, of which other commands read other parts.
    """

    register: str
    nbytes: int
    offset: int = 0


class Atoms(NamedTuple):
    """Layout of a tensor of ``channels`` by ``positions`` elements, stored in atoms of channels.

    Element (c, p) is at base + (c // A) · surface + (p · A + c % A) · element. The channels after
    the last one in its atom are zeros.

    Attributes:
        register: register of the address.
        channels: number of channels.
        positions: number of positions.
        element: bytes per element.
        plane: register of the bytes per surface; "" or a value of 0 means dense, positions · A ·
            element.
        rows: the dense tensor is a matrix stored position by position, not channel by channel.
        narrow: A of a tensor with other atoms than the machine's, otherwise 0.
    """

    register: str
    channels: int
    positions: int
    element: int = 1
    plane: str = ""
    rows: bool = False
    narrow: int = 0


class Blocks(NamedTuple):
    """Layout of ``nbytes`` of constant weights in the order of their use.

    ``order`` computes :attr:`places`. ``read`` converts weights in this layout (first argument) to
    their dense order (second argument).
    """

    register: str
    nbytes: int
    order: Callable[[], NDArray[np.int64]]
    read: Callable[[NDArray[np.uint8], NDArray[np.uint8]], None]

    @property
    def places(self) -> NDArray[np.int64]:
        """Position in the dense tensor of each stored weight byte, or -1 for padding."""
        return self.order()


OperandLayout = Plain | Atoms | Blocks


@dataclass(frozen=True)
class Packed:
    """Properties of an instruction in banked memory: operand layouts, cycles and words.

    Attributes:
        layouts: layouts of its operands, reads before writes, as in its dense form.
        cycles: its compute cycles without waiting for the scratchpad.
        words: words of each operand, in the same order.
        raw: operands are plain bytes as in ideal memory; ``layouts`` is not used.
    """

    layouts: Callable[[Command, Arch], tuple[OperandLayout, ...]]
    cycles: Callable[[Command, Arch], int]
    words: Callable[[Command, Arch], tuple[int, ...]]
    raw: bool = False


@dataclass(frozen=True, eq=False)
class Instruction:
    """Declaration of one instruction: encoding, semantics, operands and cycles.

    Attributes:
        mnemonic: its name.
        opcode: its opcode.
        unit: the unit that executes it; None if the field ``unit`` of the word names it.
        kind: the account of its cycles.
        description: its description in the documentation.
        registers: registers that it reads.
        fields: bits of the word in addition to opcode and token flags.
        operands: byte ranges that it reads and writes.
        semantics: its executable specification.
        cycles: compute cycles (design, section 5) without fill and drain, for the unit EX.
        macs: its multiply-accumulates, including padded taps.
        aliases: further mnemonics that stand for settings of the fields.
        inputs: element types of the tensors at EX_INPUT_ADDRESS and EX_OPERAND_ADDRESS.
        outputs: element types of the tensor at EX_OUTPUT_ADDRESS.
        adds_registers: those of ``registers`` that not every variant has; they come with the
            instruction.
        earlier: the form in earlier variants, with fewer fields and registers; its words have the
            same meaning in both.
        least: minimum compute cycles of any commands that together do the same work, for all shapes
            and fields; None if a single command is the minimum.
        streamed: positions in the operands' reads that the result may overwrite as it is computed
            (:func:`find_overwritten`).
        replaced: positions in the operands' reads that the result may replace exactly. All other
            reads must not overlap the result.
        packed: its properties in banked memory, or None.
        plain: the instruction without ``packed`` (:mod:`isa.packing`).

    ``semantics`` and ``cycles`` have a :func:`formula` for ``docs/isa.md``.
    """

    mnemonic: str
    opcode: int
    unit: Unit | None
    kind: str
    description: str
    registers: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    operands: Callable[[Command, Arch], Operands] = lambda command, arch: Operands()
    semantics: Callable[[Command, Machine], None] = lambda command, machine: None
    cycles: Callable[[Command, Arch], int] = lambda command, arch: 0
    macs: Callable[[Command], int] = lambda command: 0
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
        """Check the instruction's names, kind, registers and layout once at import.

        Raise ValueError naming the instruction.
        """
        for name in (self.mnemonic, *self.aliases):
            if not _MNEMONIC.fullmatch(name):
                raise ValueError(
                    f"mnemonic '{name}' must be OP_ and capitals, digits or underscores"
                )
        if self.kind not in KINDS:
            raise ValueError(
                f"{self.mnemonic}: kind '{self.kind}' does not exist; choose one of "
                f"{', '.join(KINDS)}"
            )
        if not 0x02 <= self.opcode <= 0xFF:
            raise ValueError(
                f"{self.mnemonic}: opcode {self.opcode:#04x} must be 0x02 to 0xff; 0x01 is SET"
            )
        self.register_declarations()
        names = [item.name for item in self.layout]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.mnemonic}: two fields share a name")
        for item in (*self.inputs, *self.outputs):
            if not isinstance(item, ElementType):
                raise ValueError(
                    f"{self.mnemonic}: inputs and outputs are tuples of element "
                    "types, as (INT8, INT8)"
                )
            if item.field and item.field not in names:
                raise ValueError(
                    f"{self.mnemonic}: the type of an operand depends on "
                    f"{item.field}, which is no field"
                )

    def least_cycles(self, command: Command, arch: Arch) -> int:
        """Return the minimum compute cycles for the work of ``command``.

        No other commands that together do this work take fewer compute cycles.
        """
        return (self.least or self.cycles)(command, arch)

    @property
    def forms(self) -> tuple[Instruction, ...]:
        """Versions of the instruction's declaration, newest first."""
        return (self,) if self.earlier is None else (self, *self.earlier.forms)

    @property
    def layout(self) -> tuple[Field, ...]:
        """Fields of the instruction's word from the top bit down, including reserved zeros."""
        declared = (Field("opcode", 56, 8, constant=self.opcode), *TOKENS, *self.fields)
        used = {bit for item in declared for bit in range(item.low, item.low + item.width)}
        reserved = tuple(_make_reserved_fields(sorted(set(range(64)) - used)))
        return prove_layout(self.mnemonic, (*declared, *reserved))

    def register_declarations(self) -> tuple[Register, ...]:
        """Return the declarations of the registers that the instruction reads.

        Raise ValueError for a register that does not exist.
        """
        known = {**BY_NAME, **{register.name: register for register in self.adds_registers}}
        unread = [item.name for item in self.adds_registers if item.name not in self.registers]
        if unread:
            raise ValueError(
                f"{self.mnemonic} declares the register {unread[0]} and does not read it; list it "
                "in registers, or remove it"
            )
        for name in self.registers:
            if name not in known:
                raise ValueError(
                    f"{self.mnemonic} reads the unknown register {name}; declare it "
                    "in adds_registers"
                )
        return tuple(known[name] for name in self.registers)

    def mnemonic_for(self, fields: Mapping[str, int]) -> str:
        """Return the most specific mnemonic whose settings match ``fields``."""
        for alias, settings in self.aliases.items():
            if all(fields.get(name) == value for name, value in settings.items()):
                return alias
        return self.mnemonic


def _make_reserved_fields(bits: list[int]) -> list[Field]:
    """Return constant-zero fields that cover ``bits``, one per contiguous run."""
    runs: list[list[int]] = []
    for bit in bits:
        if runs and runs[-1][-1] + 1 == bit:
            runs[-1].append(bit)
        else:
            runs.append([bit])
    return [Field(f"reserved_{run[0]}", run[0], len(run), constant=0) for run in runs]


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the quotient of two integers, rounded up.

    ``numerator`` is not negative.
    """
    return -(-numerator // denominator)


def view(
    memory: NDArray[np.uint8], address: int, shape: tuple[int, ...], dtype: Any, plane: int = 0
) -> NDArray[Any]:
    """Return a NumPy view of memory bytes with a tensor's shape and type.

    ``plane`` is the distance in bytes between outermost indices; 0 means dense. Raises IndexError
    if the tensor extends past the end of the memory.
    """
    element = np.dtype(dtype).itemsize
    row = int(np.prod(shape[1:], dtype=np.int64)) * element
    plane = plane or row
    end = address + (shape[0] - 1) * plane + row if shape[0] else address
    if end > memory.size:
        raise IndexError(
            f"bytes {address:#x} to {end:#x} reach past the end of the memory ({memory.size:#x})"
        )
    if plane == row:
        dense: NDArray[Any] = memory[address:end].view(dtype).reshape(shape)
        return dense
    inner = np.zeros(shape[1:], dtype=dtype).strides
    window: NDArray[Any] = np.ndarray(shape, dtype, memory, address, (plane, *inner))
    return window


# Results over operands
#
# A command's result may overlap its own operands only if hardware that reads and writes
# continuously gives the same result. The semantics read everything before they write. Hardware
# writes the first result before it reads the last element, so it agrees only if no result
# overwrites an element that is still to be read.


def find_overwritten(command: Command, operands: Operands) -> Range | None:
    """Return the first operand bytes that ``command`` must not overwrite with its result.

    Return None if there are none.

    An operand in ``Instruction.streamed`` may start at or after the start of the result, if both
    are dense and it has at least as many bytes. Element by element, it is read before a result is
    written there. An operand in ``Instruction.replaced`` may have exactly the range of the result.
    """
    for result in operands.writes:
        for position, operand in enumerate(operands.reads):
            if (
                operand.address < result.end
                and result.address < operand.end
                and operand.total
                and result.total
            ):
                found = overlap(operand, result)
                if found is not None and not _harmless(command, position, operand, result):
                    return found
    return None


def _harmless(command: Command, position: int, operand: Access, result: Access) -> bool:
    if position in command.instruction.replaced:
        return operand == result
    dense = not operand.dims and not result.dims and operand.total >= result.total
    return position in command.instruction.streamed and dense and operand.address >= result.address
