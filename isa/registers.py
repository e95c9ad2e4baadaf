"""Bit fields of 64-bit command words, and the register file with each register's index and width.

Fields have a position and check their range; a layout is proved to use every bit once. ``SET``
writes a register, whose value persists until it is written again. Addresses and sizes are bytes
unless stated otherwise.
"""

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from isa.errors import InputError

WORD_BITS = 64


@dataclass(frozen=True)
class Field:
    """Bit field of a command word: bits ``[low, low + width)``.

    ``constant`` fixes the value; reserved bits are the constant 0. ``defined`` is the number of
    values from 0 on that have a meaning; None means all values that fit.
    """

    name: str
    low: int
    width: int
    signed: bool = False
    constant: int | None = None
    description: str = ""
    defined: int | None = None

    @property
    def minimum(self) -> int:
        """Smallest value that fits in the field."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        """Largest defined value of the field; larger values are errors even if they fit."""
        return self.maximum if self.defined is None else self.defined - 1

    @property
    def maximum(self) -> int:
        """Largest value that fits in the field."""
        return (1 << (self.width - int(self.signed))) - 1

    def check(self, value: int, owner: str) -> int:
        """Return ``value`` if the field can hold it; otherwise raise InputError.

        Raise InputError naming field and value if it does not fit or has no meaning.
        """
        if not self.minimum <= value <= self.maximum:
            sign = "signed " if self.signed else ""
            raise InputError(
                f"{owner}: {self.name} = {value} does not fit its {sign}field of {self.width} bits "
                f"({self.minimum} to {self.maximum})"
            )
        if value > self.highest:
            raise InputError(
                f"{owner}: field {self.name} is {value}, which is undefined; {self.description}"
            )
        return value

    def place(self, value: int, owner: str) -> int:
        """Return the word that has ``value`` in this field and zeros elsewhere."""
        return (self.check(value, owner) & ((1 << self.width) - 1)) << self.low

    def extract(self, word: int) -> int:
        """Return the field's value in a command word."""
        raw = (word >> self.low) & ((1 << self.width) - 1)
        return raw - (1 << self.width) if self.signed and raw >> (self.width - 1) else raw


def prove_layout(owner: str, fields: Sequence[Field]) -> tuple[Field, ...]:
    """Return a command word's fields from the top bit down after proving that they fill it.

    Each of the 64 bits must belong to exactly one field.

    Raises ValueError naming the first bit in no field or in two.
    """
    owners: dict[int, str] = {}
    for field in fields:
        for bit in range(field.low, field.low + field.width):
            if bit in owners:
                raise ValueError(
                    f"{owner}: bit {bit} belongs to both {owners[bit]} and {field.name}"
                )
            owners[bit] = field.name
    missing = [bit for bit in range(WORD_BITS) if bit not in owners]
    if missing or len(owners) != WORD_BITS:
        raise ValueError(f"{owner}: bits {missing} belong to no field")
    return tuple(sorted(fields, key=lambda field: -field.low))


def encode_fields(owner: str, fields: Sequence[Field], values: dict[str, int]) -> int:
    """Return a command word from field values; constants are added, absent fields are 0.

    Raises InputError for an unknown name.
    """
    word = 0
    for field in fields:
        value = field.constant if field.constant is not None else values.get(field.name, 0)
        word |= field.place(value, owner)
    unknown = values.keys() - {field.name for field in fields if field.constant is None}
    if unknown:
        raise InputError(f"{owner}: no field is named {sorted(unknown)[0]}")
    return word


def decode_fields(owner: str, fields: Sequence[Field], word: int) -> dict[str, int]:
    """Return the field values of a command word.

    Raise InputError for a wrong constant or an undefined value.
    """
    values: dict[str, int] = {}
    for field in fields:
        value = field.extract(word)
        if field.constant is None:
            values[field.name] = field.check(value, owner)
        elif value != field.constant:
            raise InputError(
                f"{owner}: field {field.name} is {value:#x}, it must be {field.constant:#x}"
            )
    return values


Form = Literal["unsigned", "signed", "float32"]
_NAME = re.compile(r"(LD|EX|ST)_[A-Z0-9_]+")


@dataclass(frozen=True)
class Register:
    """Register of the accelerator: name, index, width and interpretation of its value.

    ``form`` is the interpretation of the low ``width`` bits of a SET value.

    float32 values are kept as raw bits.
    """

    name: str
    index: int
    width: int
    reset: int
    form: Form
    description: str

    def __post_init__(self) -> None:
        """Check that the declaration can be encoded; raise ValueError naming the register."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"register name '{self.name}' must be LD_, EX_ or ST_ and capitals, "
                "digits or underscores"
            )
        if self.form not in get_args(Form):
            forms = ", ".join(get_args(Form))
            raise ValueError(
                f"{self.name}: form '{self.form}' does not exist; choose one of {forms}"
            )
        if not 0 <= self.index <= 0xFF or not 1 <= self.width <= 32:
            raise ValueError(
                f"{self.name}: index {self.index} must fit 8 bits, width {self.width} "
                "must be 1 to 32"
            )
        if not self.minimum <= self.reset <= self.maximum:
            raise ValueError(
                f"{self.name}: the reset value {self.reset} does not fit its {self.width} bits"
            )

    @property
    def minimum(self) -> int:
        """Smallest value that fits in the register."""
        return -(1 << (self.width - 1)) if self.form == "signed" else 0

    @property
    def maximum(self) -> int:
        """Largest value that fits in the register."""
        return (1 << (self.width - int(self.form == "signed"))) - 1

    def to_raw(self, value: int) -> int:
        """Return the 32 value bits of a SET word.

        Raise InputError naming register, width and value.
        """
        if not self.minimum <= value <= self.maximum:
            raise InputError(
                f"SET: {self.name} = {value} does not fit its {self.form} register of {self.width} "
                "bits "
                f"({self.minimum} to {self.maximum})"
            )
        return value & 0xFFFF_FFFF

    def from_raw(self, raw: int) -> int:
        """Return the register's value from the 32 value bits of a SET word.

        Raise InputError if it does not fit.
        """
        value = raw - (1 << 32) if self.form == "signed" and raw >> 31 else raw
        self.to_raw(value)
        return value

    def format(self, value: int) -> str:
        """Return a register value as assembly text.

        It is hexadecimal for float32 bits and addresses, otherwise decimal.
        """
        if self.form == "float32" or self.name.endswith("ADDRESS"):
            return f"{value:#010x}"
        return str(value)


@dataclass(frozen=True, eq=False)
class RegisterFile:
    """Registers of an ISA variant; raises ValueError if two share a name or an index."""

    registers: tuple[Register, ...]

    def __post_init__(self) -> None:
        """Check that names and indices of the registers are unique."""
        names: dict[str, Register] = {}
        indices: dict[int, Register] = {}
        for register in self.registers:
            if names.setdefault(register.name, register) != register:
                raise ValueError(f"register {register.name} is declared twice, differently")
            other = indices.setdefault(register.index, register)
            if other != register:
                raise ValueError(
                    f"register index {register.index:#04x} of {register.name} is "
                    f"taken by {other.name}"
                )

    @cached_property
    def by_name(self) -> Mapping[str, Register]:
        return {register.name: register for register in self.registers}

    @cached_property
    def by_index(self) -> Mapping[int, Register]:
        return {register.index: register for register in self.registers}

    @cached_property
    def reset(self) -> Mapping[str, int]:
        """Reset value of each register, by name."""
        return {register.name: register.reset for register in self.registers}


def widest(registers: Iterable[Register]) -> tuple[Register, ...]:
    """Return each register once, with its largest width in any declaration."""
    found: dict[str, Register] = {}
    others: dict[Register, None] = {}
    for register in registers:
        held = found.setdefault(register.name, register)
        if (held.index, held.reset, held.form) != (register.index, register.reset, register.form):
            others[register] = None
        elif register.width > held.width:
            found[register.name] = register
    return (*found.values(), *others)


def to_signed(value: int) -> int:
    """Return the two's complement number in the 32 bits of a register."""
    return value - (1 << 32) if value >= 1 << 31 else value


def float_value(raw: int) -> float:
    """Return the real number with the float32 bits ``raw``."""
    return float(struct.unpack("<f", struct.pack("<I", raw & 0xFFFF_FFFF))[0])


def _dma(unit: str, base: int) -> list[Register]:
    names: list[tuple[str, int, int, Form, str]] = [
        ("DRAM_ADDRESS", 32, 0, "unsigned", "first byte in system memory"),
        ("SRAM_ADDRESS", 32, 0, "unsigned", "first byte in the scratchpad"),
        ("BYTES", 32, 0, "unsigned", "contiguous bytes of a row"),
    ]
    for dimension in (1, 2, 3):
        names += [
            (f"COUNT_{dimension}", 20, 1, "unsigned", f"rows along strided dimension {dimension}"),
            (
                f"DRAM_STRIDE_{dimension}",
                32,
                0,
                "unsigned",
                f"bytes between rows of dimension {dimension}, system memory",
            ),
            (
                f"SRAM_STRIDE_{dimension}",
                32,
                0,
                "unsigned",
                f"bytes between rows of dimension {dimension}, scratchpad",
            ),
        ]
    return [
        Register(f"{unit}_{name}", base + offset, width, reset, form, text)
        for offset, (name, width, reset, form, text) in enumerate(names)
    ]


_COMPUTE: tuple[tuple[str, int, int, Form, str], ...] = (
    ("INPUT_ADDRESS", 32, 0, "unsigned", "first operand"),
    ("OPERAND_ADDRESS", 32, 0, "unsigned", "weights, or second operand"),
    (
        "CHANNEL_ADDRESS",
        32,
        0,
        "unsigned",
        "channel records (bias and scale), one an output channel",
    ),
    ("OUTPUT_ADDRESS", 32, 0, "unsigned", "result"),
    ("INPUT_CHANNELS", 20, 1, "unsigned", "IC; K of a matrix product"),
    ("INPUT_HEIGHT", 16, 1, "unsigned", "IH, rows present in the scratchpad"),
    ("INPUT_WIDTH", 16, 1, "unsigned", "IW"),
    (
        "INPUT_PLANE",
        32,
        0,
        "unsigned",
        "bytes from one input channel to the next; 0 means dense",
    ),
    ("OUTPUT_CHANNELS", 20, 1, "unsigned", "OC; columns of a matrix product"),
    ("OUTPUT_HEIGHT", 16, 1, "unsigned", "OH"),
    ("OUTPUT_WIDTH", 16, 1, "unsigned", "OW"),
    (
        "OUTPUT_PLANE",
        32,
        0,
        "unsigned",
        "bytes from one output channel to the next; 0 means dense",
    ),
    ("KERNEL_HEIGHT", 8, 1, "unsigned", "KH"),
    ("KERNEL_WIDTH", 8, 1, "unsigned", "KW"),
    ("STRIDE_HEIGHT", 8, 1, "unsigned", "rows between windows"),
    ("STRIDE_WIDTH", 8, 1, "unsigned", "columns between windows"),
    ("DILATION_HEIGHT", 8, 1, "unsigned", "rows between taps"),
    ("DILATION_WIDTH", 8, 1, "unsigned", "columns between taps"),
    ("PAD_TOP", 8, 0, "unsigned", "padding rows above the first input row"),
    ("PAD_LEFT", 8, 0, "unsigned", "padding columns left of the first input column"),
    ("ROWS", 20, 1, "unsigned", "M of a matrix product; outer count of a requantisation"),
    (
        "LENGTH",
        32,
        0,
        "unsigned",
        "elements of an element-wise operation; elements a channel of a requantisation",
    ),
    (
        "INPUT_ZERO_POINT",
        16,
        0,
        "signed",
        "what convolution padding reads; zero point of operand A elsewhere",
    ),
    ("OPERAND_ZERO_POINT", 16, 0, "signed", "zero point of operand B"),
    ("OUTPUT_ZERO_POINT", 16, 0, "signed", "added after scaling"),
    ("CLAMP_LOW", 8, -128, "signed", "smallest result"),
    ("CLAMP_HIGH", 8, 127, "signed", "largest result"),
    (
        "OFFSET",
        8,
        0,
        "unsigned",
        "0, or 128 for tensors that are uint8 in the model: added to operands, taken off the "
        "result",
    ),
    (
        "SCALE_A",
        32,
        0,
        "float32",
        "scale or ratio of operand A; a multiplier under numerics = fixed",
    ),
    ("SCALE_B", 32, 0, "float32", "scale or ratio of operand B, or the slope of LeakyRelu"),
    ("SCALE_Y", 32, 0, "float32", "scale of the result, or the constant term of an addition"),
    (
        "SHIFT_A",
        8,
        0,
        "signed",
        "shift of operand A (numerics = fixed), or the amount of OP_E32_SHIFT",
    ),
    ("SHIFT_B", 8, 0, "signed", "shift of operand B (numerics = fixed)"),
    ("SHIFT_Y", 8, 0, "signed", "shift of the result (numerics = fixed)"),
)
"""Registers of EX: name, bits, reset value, form, meaning."""


def _compute(base: int) -> list[Register]:
    return [
        Register(f"EX_{name}", base + offset, width, reset, form, text)
        for offset, (name, width, reset, form, text) in enumerate(_COMPUTE)
    ]


REGISTERS: tuple[Register, ...] = (*_dma("LD", 0x00), *_dma("ST", 0x10), *_compute(0x20))
COMMON = RegisterFile(REGISTERS)
"""Registers of every variant; instructions add others (``Instruction.adds_registers``)."""
BY_NAME = COMMON.by_name
RESET = COMMON.reset
