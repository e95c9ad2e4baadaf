"""Bit fields of 64-bit command words: placement, range checks, and the proof that a layout uses every bit once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa.errors import InputError

WORD_BITS = 64


@dataclass(frozen=True)
class Field:
    """Bits ``[low, low + width)`` of a word. ``constant`` fixes the value (reserved bits are the constant 0).

    ``defined`` is the number of values from 0 on that mean something, None where all that fit do.
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
        """Smallest value that fits."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        """Largest value that means something."""
        return self.maximum if self.defined is None else self.defined - 1

    @property
    def maximum(self) -> int:
        """Largest value that fits."""
        return (1 << (self.width - int(self.signed))) - 1

    def check(self, value: int, owner: str) -> int:
        """The value itself; raises InputError naming field and value when it does not fit or means nothing."""
        if not self.minimum <= value <= self.maximum:
            sign = "signed " if self.signed else ""
            raise InputError(
                f"{owner}: {self.name} = {value} does not fit its {sign}field of {self.width} bits "
                f"({self.minimum} to {self.maximum})"
            )
        if value > self.highest:
            raise InputError(f"{owner}: field {self.name} is {value}, which is undefined; {self.description}")
        return value

    def place(self, value: int, owner: str) -> int:
        """The word with only this field set to ``value``."""
        return (self.check(value, owner) & ((1 << self.width) - 1)) << self.low

    def extract(self, word: int) -> int:
        """The field's value in ``word``."""
        raw = (word >> self.low) & ((1 << self.width) - 1)
        return raw - (1 << self.width) if self.signed and raw >> (self.width - 1) else raw


def prove_layout(owner: str, fields: Sequence[Field]) -> tuple[Field, ...]:
    """``fields`` sorted from the top bit down, after proving that each of the 64 bits belongs to exactly one.

    Raises ValueError naming the first bit that none or two of the fields cover.
    """
    owners: dict[int, str] = {}
    for field in fields:
        for bit in range(field.low, field.low + field.width):
            if bit in owners:
                raise ValueError(f"{owner}: bit {bit} belongs to both {owners[bit]} and {field.name}")
            owners[bit] = field.name
    missing = [bit for bit in range(WORD_BITS) if bit not in owners]
    if missing or len(owners) != WORD_BITS:
        raise ValueError(f"{owner}: bits {missing} belong to no field")
    return tuple(sorted(fields, key=lambda field: -field.low))


def encode_fields(owner: str, fields: Sequence[Field], values: dict[str, int]) -> int:
    """A word from field values; constants fill themselves in, absent fields are 0, unknown names are errors."""
    word = 0
    for field in fields:
        value = field.constant if field.constant is not None else values.get(field.name, 0)
        word |= field.place(value, owner)
    unknown = values.keys() - {field.name for field in fields if field.constant is None}
    if unknown:
        raise InputError(f"{owner}: no field is named {sorted(unknown)[0]}")
    return word


def decode_fields(owner: str, fields: Sequence[Field], word: int) -> dict[str, int]:
    """Field values of a word; another value of a constant field, or one without meaning, is an error."""
    values: dict[str, int] = {}
    for field in fields:
        value = field.extract(word)
        if field.constant is None:
            values[field.name] = field.check(value, owner)
        elif value != field.constant:
            raise InputError(f"{owner}: field {field.name} is {value:#x}, it must be {field.constant:#x}")
    return values
