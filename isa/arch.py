"""Arch: all properties of a machine that affect the programs compiled for it.

Properties that affect only cycles (latencies, bandwidths, queue depths) are in
``dla_sim.timing.Timing``. The compiler uses only its bus, to choose schedules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

CHANNEL_RECORD_BYTES = {"onnxruntime": 8, "fixed": 12}
"""Bytes of a channel record: int32 bias and float32 scale, or int32 bias, int32 multiplier,
int32 shift.
"""


def declare_key(
    default: Any,
    unit: str,
    words: str,
    meaning: str,
    least: int | None = None,
    most: int | None = None,
) -> Any:
    """Declare a configuration key of a machine.

    Args:
        default: its default value.
        unit: its unit; "" if the value is text.
        words: its name in plain words.
        meaning: its description.
        least: smallest allowed value.
        most: largest allowed value.
    """
    return Field(
        default,
        ge=least,
        le=most,
        title=words,
        description=meaning,
        json_schema_extra={"unit": unit},
    )


class PeArray(BaseModel):
    """The array of processing elements (PEs); each computes one int8 multiply-accumulate per cycle.

    It processes ``ic`` input channels, ``oc`` output channels and ``ow`` output columns in
    parallel.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ic: int = declare_key(
        8, "elements", "PEs over input channels", "input channels in parallel", 1, 65536
    )
    oc: int = declare_key(
        8, "elements", "PEs over output channels", "output channels in parallel", 1, 65536
    )
    ow: int = declare_key(
        1, "elements", "PEs over output columns", "output columns in parallel", 1, 65536
    )

    @property
    def count(self) -> int:
        """Number of processing elements N."""
        return self.ic * self.oc * self.ow


PACKED = "v5"
"""Variant of machines with banked memory; with further instructions it is ``v5+OP_NAME``."""


@dataclass(frozen=True)
class IdealMemory:
    """A scratchpad that serves any byte in any cycle; it has no words, and tensors are dense.

    ``one_operand`` tells whether a bank serves one operand at a time. ``multiplier_limit`` is the
    exclusive limit of the number of filters that OP_DEPTH_CONV applies to a channel. ``has_rtl``
    tells whether hardware is written for machines with this memory.
    """

    atom: ClassVar[int] = 1
    word: ClassVar[int] = 0
    one_operand: ClassVar[bool] = False
    multiplier_limit: ClassVar[int] = 1 << 20
    has_rtl: ClassVar[bool] = True
    keys: ClassVar[Mapping[str, int]] = MappingProxyType({})
    note: ClassVar[str] = ""

    def bank_conflicts(self, accesses: Iterable[frozenset[int]]) -> dict[int, frozenset[int]]:
        """Return no bank conflicts, because ideal memory serves all operands at once."""
        return {}


IDEAL = IdealMemory()


@dataclass(frozen=True)
class BankedMemory:
    """A scratchpad whose banks serve one word per cycle (docs/machine.md, section 12).

    Attributes:
        atom: channels of one position that are stored together, in bytes (A).
        word: bytes that a bank serves per cycle (W).
        accumulators: output positions whose sums the array holds (P).
        dividers: number of dividers.
        divide_cycles: cycles per quotient of a divider.
    """

    one_operand: ClassVar[bool] = True
    multiplier_limit: ClassVar[int] = 2
    has_rtl: ClassVar[bool] = False

    atom: int
    word: int
    accumulators: int
    dividers: int
    divide_cycles: int

    @property
    def keys(self) -> Mapping[str, int]:
        """Sizes of the banked memory by their keys of ``--set``."""
        return dict(zip(WORD_KEYS, astuple(self), strict=True))

    @property
    def note(self) -> str:
        """Text with the sizes of words and atoms, for the machine line of a report."""
        return f" (words of {self.word} bytes, atoms of {self.atom})"

    def surfaces(self, channels: int) -> int:
        """Return the number of atoms that store ``channels`` channels of a position: ⌈C/A⌉."""
        return -(-channels // self.atom)

    def bank_conflicts(self, accesses: Iterable[frozenset[int]]) -> dict[int, frozenset[int]]:
        """Return for each buffer the buffers that must not share its bank.

        Buffers must not share a bank if one command accesses both. ``accesses`` has the buffers of
        each command.
        """
        found: dict[int, set[int]] = {}
        for buffers in {*accesses}:
            for buffer in buffers:
                found.setdefault(buffer, set()).update(buffers - {buffer})
        return {buffer: frozenset(others) for buffer, others in found.items() if others}

    def count(self, nbytes: int) -> int:
        """Return the number of memory words that ``nbytes`` dense bytes occupy: ⌈n/W⌉."""
        return -(-nbytes // self.word)


Memory = IdealMemory | BankedMemory


class Arch(BaseModel):
    """A machine as the compiler sees it; sizes are in bytes.

    ``post_lanes`` None means one lane per processing element. ``atom`` to ``divide_cycles`` only
    apply to banked memory; None selects a value that fits the array (:attr:`memory`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    isa: str = declare_key("v2", "", "instruction set", "instruction set (dla isa)")
    pe: PeArray = PeArray()
    sram_bytes: int = declare_key(512 * 1024, "bytes", "SRAM", "the scratchpad", 64, 1 << 32)
    sram_banks: int = declare_key(
        16, "banks", "SRAM banks", "equal parts of the scratchpad", 1, 1024
    )
    alignment: int = declare_key(
        8,
        "bytes",
        "alignment of buffers",
        "granularity of every buffer's address, a power of two",
        1,
        4096,
    )
    row_alignment: int = declare_key(
        1, "bytes", "alignment of rows", "rows are dense in version 0", 1, 1
    )
    numerics: Literal["onnxruntime", "fixed"] = declare_key(
        "onnxruntime",
        "",
        "numerics",
        "rounding: as ONNX Runtime's operators, or in integers alone (LiteRT)",
    )
    post_lanes: int | None = declare_key(
        None, "elements/cycle", "post-processing lanes",
        "requantised, added or compared; none: one a processing element", 1, 65536,
    )  # fmt: skip

    atom: int | None = declare_key(
        None, "bytes", "atom",
        "v5: channels of a position that lie together, a power of two; none: 8",
        8, 1 << 16,
    )  # fmt: skip
    word_bytes: int | None = declare_key(
        None, "bytes", "word of the scratchpad",
        "v5: what a bank serves in a cycle, a power of two; none: 32, what 4 steps of the array "
        "read, or pe.oc / 2",
        8, 1 << 22,
    )  # fmt: skip
    accumulators: int | None = declare_key(
        None,
        "positions",
        "accumulators",
        "v5: output positions whose sums the array holds; none: 32",
        1,
        65536,
    )
    dividers: int | None = declare_key(
        None, "dividers", "dividers", "v5: shared iterative dividers; none: 4", 1, 65536
    )
    divide_cycles: int | None = declare_key(
        None, "cycles", "cycles of a division", "v5: of one divider, a quotient; none: 16", 1, 1024
    )

    @model_validator(mode="after")
    def _consistent(self) -> Arch:
        if self.alignment & (self.alignment - 1):
            raise ValueError(f"alignment is {self.alignment}; it must be a power of two")
        memory = self.memory
        if isinstance(memory, BankedMemory):
            self._check_words(memory)
        if self.sram_bytes % self.sram_banks:
            raise ValueError(
                f"sram_bytes {self.sram_bytes} is not a multiple of sram_banks {self.sram_banks}"
            )
        for key in WORD_KEYS:
            if memory == IDEAL and getattr(self, key) is not None:
                raise ValueError(
                    f"{key} is a key of {PACKED}, not of {self.isa}; leave it out or "
                    f"choose isa {PACKED}"
                )
        return self

    def _check_words(self, words: BankedMemory) -> None:
        """Raise ValueError if an atom, a word or a bank has a size that is not allowed.

        The message has a value that would be allowed.
        """
        array = self.pe
        for key, value in (("atom", words.atom), ("word_bytes", words.word)):
            if value & (value - 1):
                raise ValueError(
                    f"{key} is {value}; it must be a power of two, {_power(value)} would do"
                )
        least = words.atom * _power(array.ow)
        if words.word < least:
            raise ValueError(
                f"word_bytes {words.word} is less than the atoms of pe.ow columns; {least} would do"
            )
        whole = self.sram_banks * words.word
        if self.sram_bytes % whole:
            able = [
                banks
                for banks in range(1, self.sram_banks)
                if self.sram_bytes % (banks * words.word) == 0
            ]
            fewer = f" or sram_banks {able[-1]}" if able else ""
            raise ValueError(
                f"sram_bytes {self.sram_bytes} is not a multiple of sram_banks {self.sram_banks} "
                "of word_bytes "
                f"{words.word}; sram_bytes {-(-self.sram_bytes // whole) * whole}{fewer} would do"
            )

    @model_serializer(mode="wrap")
    def _omit_banked_keys(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit keys of banked memory that are None, so that v1 to v4 are written without them."""
        return {
            key: value
            for key, value in dump(self).items()
            if value is not None or key not in WORD_KEYS
        }

    @property
    def memory(self) -> Memory:
        """Scratchpad of the machine: ideal, or banked for ``v5``.

        Defaults fit the array.

        An atom has 8 channels for every array, so that tensors with few channels waste little
        space; a larger array reads several atoms in a step. A word holds the data of four array
        steps, and at least 32 bytes. The activation stream then leaves three of four bank cycles
        to others. A word also holds at least half of the array's output channels. An array with
        many outputs computes columns side by side, and their activations and results need words
        too.
        """
        return self._words or IDEAL

    @property
    def words(self) -> BankedMemory | None:
        """Banked memory of the machine, or None if its memory is ideal."""
        return self._words

    @property
    def operand_key(self) -> str:
        """Key that is equal for machines that differ only in the size and banks of the SRAM."""
        return self._operand_key

    @cached_property
    def _operand_key(self) -> str:
        return self.model_copy(update={"sram_bytes": 0, "sram_banks": 0}).to_json()

    @cached_property
    def _words(self) -> BankedMemory | None:
        if not _is_banked(self.isa):
            return None
        chosen = self.atom, self.word_bytes, self.accumulators, self.dividers, self.divide_cycles
        return _fit_banked_memory(self.pe.ic, self.pe.oc, self.pe.ow, *chosen)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy of the machine with the values in ``update``.

        Its memory and keys are computed anew.
        """
        copy = super().model_copy(update=update, deep=deep)
        for cached in ("_words", "_operand_key"):
            vars(copy).pop(cached, None)
        return copy

    def list_settled_values(self) -> dict[str, Any]:
        """Return every value of the machine, defaults included, by its key of ``--set``.

        Sizes of banked memory that are None get their defaults.
        """
        return {**flat(dict(self)), **self.memory.keys}

    def same_machine(self, other: Arch) -> bool:
        """Return True if two machines are the same, whether values are chosen or defaults."""
        return self.list_settled_values() == other.list_settled_values()

    def differences(self, other: Arch) -> dict[str, tuple[Any, Any]]:
        """Return the keys with different values in the two machines, and both values.

        If both memories are banked, their default sizes are compared too."""
        both = type(self.memory) is type(other.memory)
        mine, theirs = (
            arch.list_settled_values() if both else flat(dict(arch)) for arch in (self, other)
        )
        return {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]}

    @property
    def lanes(self) -> int:
        """Post-processing lanes: elements requantised, added or compared per cycle."""
        return self.post_lanes or min(self.pe.count, self.memory.word or self.pe.count)

    @property
    def granule(self) -> int:
        """Alignment of every buffer address in bytes: ``alignment``, but at least a word."""
        return max(self.alignment, self.memory.word)

    @property
    def channel_record_bytes(self) -> int:
        """Bytes of a channel record in memory with this machine's numerics."""
        return CHANNEL_RECORD_BYTES[self.numerics]

    def to_json(self) -> str:
        """Return the machine as canonical JSON text: sorted keys, no spaces."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """Return a 16-digit hexadecimal hash of the machine.

        It is from the SHA-256 of the canonical JSON.

        Equal machines, and only they, have equal ones.
        """
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


WORD_KEYS = ("atom", "word_bytes", "accumulators", "dividers", "divide_cycles")
"""Keys that only banked memory has."""
DEFAULT_ATOM = 8
"""Default channels per atom for every array, so that a larger array never stores more padding."""


@cache
def _fit_banked_memory(
    inputs: int,
    outputs: int,
    columns: int,
    atom: int | None,
    word: int | None,
    accumulators: int | None,
    dividers: int | None,
    divide_cycles: int | None,
) -> BankedMemory:
    """Return banked memory with word and atom sizes that fit an array.

    Sizes that are None get the value that fits the array.
    """
    across = 4 * _power(inputs) * _power(columns)
    atom = atom or DEFAULT_ATOM
    word = word or max(32, across, 4 * atom * _power(columns), _power(outputs) // 2)
    return BankedMemory(atom, word, accumulators or 32, dividers or 4, divide_cycles or 16)


def _is_banked(isa: str) -> bool:
    return isa.split("+", 1)[0] == PACKED


def memory_of(arch: Mapping[str, Any]) -> Memory:
    """Return the scratchpad memory that a machine description of any version declares.

    Only keys of banked memory are validated.
    """
    return Arch.model_validate(arch).memory if _is_banked(arch["isa"]) else IDEAL


def _power(value: int) -> int:
    """Return the smallest power of two that is at least ``value``."""
    return 1 << (value - 1).bit_length()


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return all plain values of a nested table by dotted keys.

    Keys are such as ``pe.ic`` and ``layers.0.cycles``.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = (
            {str(number): item for number, item in enumerate(value)}
            if isinstance(value, list)
            else value
        )
        inner = dict(inner) if isinstance(inner, BaseModel) else inner
        found |= (
            flat(inner, f"{prefix}{key}.")
            if isinstance(inner, Mapping)
            else {f"{prefix}{key}": value}
        )
    return found


def words_of(arch: Arch) -> BankedMemory:
    """Return the banked memory of a machine; raise ValueError if its memory is ideal."""
    words = arch.words
    if words is None:
        raise ValueError(f"a machine of isa {arch.isa} has no words")
    return words
