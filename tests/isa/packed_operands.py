"""Operands of one command on banked memory, stored as the layout requires."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa.arch import Arch, PeArray
from isa.instruction import Command
from isa.variants import VARIANTS
from tests.isa.bench import command_of

Bytes = NDArray[np.uint8]
ARRAYS = (
    (8, 8, 1),
    (4, 16, 1),
    (16, 16, 1),
    (7, 13, 1),
    (1, 256, 1),
    (3, 5, 2),
    (16, 4, 4),
    (1, 1, 1),
)
ATOMS = (8, 16, 32)
WORDS = (None, 32, 64, 256)
SRAM = 1 << 20
PIXELS = (1, 2, 4, 4)
"""Bytes of an atom of a picture of 1 to 4 channels."""


def machines(numerics: str) -> list[Arch]:
    """Every array with every atom and word that fit one another.

    Wide words only where a block is some of them.
    """
    found = []
    for ic, oc, ow in ARRAYS:
        for atom in ATOMS:
            for word in WORDS:
                across = atom << (ow - 1).bit_length()
                small = (word or 32) <= 4 * ic * oc + 28
                if small and across <= (word or 1 << 30):
                    keys = {
                        "isa": "v5",
                        "atom": atom,
                        "word_bytes": word,
                        "numerics": numerics,
                        "sram_bytes": SRAM,
                    }
                    found.append(Arch.model_validate({**keys, "pe": PeArray(ic=ic, oc=oc, ow=ow)}))
    return found


class Atoms(NamedTuple):
    """A tensor (channels, positions) in atoms.

    ``plane`` is the register with a surface's bytes, if there is one. ``pixels`` is the number of
    channels of an image, whose atoms do not depend on the machine; 0 for other tensors.
    """

    plane: str = ""
    pixels: int = 0

    def atom(self, machine: int) -> int:
        """Bytes of an atom, on a machine of atoms of so many."""
        return PIXELS[self.pixels - 1] if self.pixels else machine


class Weights(NamedTuple):
    """Weights (groups, outputs, inputs, rows, columns) in the order in which they are used.

    The order depends on ``mapping``.
    """

    mapping: int = 0


class Depthwise(NamedTuple):
    """Depthwise weights (channels, taps)."""


class Dense(NamedTuple):
    """Bytes in their given order."""


How = Atoms | Weights | Depthwise | Dense
PLANES = Atoms("EX_OUTPUT_PLANE")


class Operand(NamedTuple):
    """``data`` in the documented layout, and ``plain`` in the order of ideal memory.

    ``unread``: bytes of dense data that the command does not read.
    """

    data: NDArray[Any]
    how: How = Dense()
    plain: NDArray[Any] | None = None
    unread: slice = slice(0)

    @property
    def plainly(self) -> NDArray[Any]:
        """Data that a machine with ideal memory reads."""
        return self.data if self.plain is None else self.plain


@dataclass
class Drawn:
    """A command: registers and fields without addresses and planes, operands by register.

    ``result``: channels, positions and element type; ``how`` it lies, with ``rows`` plainly
    position by position.
    """

    mnemonic: str
    registers: dict[str, int]
    operands: dict[str, Operand]
    result: tuple[int, int, type[np.generic]]
    how: How = PLANES
    fields: dict[str, int] = field(default_factory=dict)
    rows: bool = False


def in_atoms(data: NDArray[Any], atom: int, surface: int) -> tuple[Bytes, NDArray[np.bool_]]:
    """(bytes, which of them hold an element).

    Channel ch of position p is at ⌊ch/A⌋ · surface + (p·A + ch mod A) · size.
    """
    channels, positions = data.shape
    size = data.dtype.itemsize
    total = (-(-channels // atom) - 1) * surface + positions * atom * size if data.size else 0
    found = np.zeros(total, np.uint8)
    held = np.zeros(total, np.bool_)
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(channels, positions, size)
    for channel in range(channels):
        for position in range(positions):
            at = channel // atom * surface + (position * atom + channel % atom) * size
            found[at : at + size] = raw[channel, position]
            held[at : at + size] = True
    return found, held


def behind_last(shape: tuple[int, int], size: int, atom: int, surface: int) -> NDArray[np.int64]:
    """Return the places of a result's padding: the unused channels of the last atom."""
    channels, positions = shape
    if not channels or not positions:
        return np.zeros(0, np.int64)
    places = [
        channel // atom * surface + (position * atom + channel % atom) * size + byte
        for channel in range(channels, -(-channels // atom) * atom)
        for position in range(positions)
        for byte in range(size)
    ]
    return np.array(places, np.int64)


def in_blocks(weights: NDArray[np.int8], arch: Arch, mapping: int) -> Bytes:
    """Groups, as many as the array takes at once.

    Output channels by b; input channels by a; rows, columns.

    Blocks [groups][outputs][inputs] of the same output channels follow one another; the first
    begins with a word. With ``mapping`` 1 and 2 rows come before blocks of (column, input), with 3
    there are blocks of (row, column, input). With 2 and 3 groups stand beside one another whatever
    their inputs.
    """
    words = arch.words
    (ic, oc) = (arch.pe.ic, arch.pe.oc)
    assert words is not None
    groups, outputs, inputs, rows, columns = weights.shape
    deep = inputs * columns if mapping == 1 else inputs
    together = 1 if words.atom % inputs else max(1, min(groups, ic // deep, oc // outputs))
    if mapping > 1:
        together = max(1, min(groups, oc // outputs))
    out = bytearray()
    for g in range(0, groups, together):
        for o in range(0, outputs, oc):
            some = weights[g : g + together, o : o + oc]
            blocks = []
            if mapping:
                lines = [
                    [some[:, :, i, row, column] for column in range(columns) for i in range(inputs)]
                    for row in range(rows)
                ]
                for line in lines if mapping < 3 else [[tap for row in lines for tap in row]]:
                    blocks += [line[first : first + ic] for first in range(0, len(line), ic)]
            else:
                for first in range(0, inputs, ic):
                    for row in range(rows):
                        for column in range(columns):
                            blocks.append(
                                [
                                    some[:, :, i, row, column]
                                    for i in range(first, min(first + ic, inputs))
                                ]
                            )
            for block in blocks:
                out += np.stack(block, axis=-1).tobytes()
            out += bytes(-len(out) % words.word)
    return np.frombuffer(bytes(out), np.uint8)


def atom_by_atom(weights: NDArray[np.int8], arch: Arch) -> Bytes:
    """Depthwise weights (channels, taps): atom by atom, in it tap by tap, without gaps."""
    assert arch.words is not None
    out = bytearray()
    for first in range(0, len(weights), arch.words.atom):
        out += weights[first : first + arch.words.atom].T.tobytes()
    return np.frombuffer(bytes(out), np.uint8)


def bytes_of(operand: Operand, arch: Arch) -> Bytes:
    """Those of an operand that is no tensor in atoms."""
    if isinstance(operand.how, Weights):
        return in_blocks(operand.data, arch, operand.how.mapping)
    if isinstance(operand.how, Depthwise):
        return atom_by_atom(operand.data, arch)
    return np.frombuffer(operand.data.tobytes(), np.uint8)


class Placed(NamedTuple):
    """A command with its operands in a scratchpad, and the expected scratchpad afterwards.

    ``read`` are the bytes that it must read and ``written`` those that it may change.
    """

    command: Command
    before: Bytes
    after: Bytes
    read: tuple[NDArray[np.int64], ...]
    written: NDArray[np.int64]


ORDER = (
    "EX_INPUT_ADDRESS",
    "EX_OPERAND_ADDRESS",
    "EX_CHANNEL_ADDRESS",
    "EX_PARTIAL_ADDRESS",
    "EX_TABLE_ADDRESS",
)


def placed(drawn: Drawn, result: NDArray[Any], arch: Arch, rng: np.random.Generator) -> Placed:
    """Place a command's operands in banked memory, with random bytes elsewhere.

    ``result`` has (channels, positions).
    """
    words = arch.words
    assert words is not None
    before = rng.integers(0, 256, SRAM, dtype=np.uint8)
    registers, at, read = dict(drawn.registers), words.word * int(rng.integers(0, 4)), []

    def surface(how: Atoms, positions: int, size: int) -> int:
        dense = positions * how.atom(words.atom) * size
        if not how.plane or rng.integers(2):
            return dense
        registers[how.plane] = dense + 8 * int(rng.integers(0, 20))
        return registers[how.plane]

    for name in (name for name in ORDER if name in drawn.operands):
        operand = drawn.operands[name]
        if isinstance(operand.how, Atoms):
            step = surface(operand.how, operand.data.shape[1], operand.data.dtype.itemsize)
            raw, held = in_atoms(operand.data, operand.how.atom(words.atom), step)
        else:
            raw = bytes_of(operand, arch)
            held = np.ones(raw.size, np.bool_)
            held[operand.unread] = False
        places = at + np.flatnonzero(held)
        before[places] = raw[held]
        registers[name] = at
        read.append(places)
        at = -(-(at + raw.size) // words.word) * words.word + words.word * int(rng.integers(0, 3))
    size = result.dtype.itemsize
    in_place = "EX_PARTIAL_ADDRESS" in registers and size == 4 and rng.integers(2)
    registers["EX_OUTPUT_ADDRESS"] = at = registers["EX_PARTIAL_ADDRESS"] if in_place else at
    after = before.copy()
    if isinstance(drawn.how, Atoms):
        step = (
            result.shape[1] * words.atom * size
            if in_place
            else surface(drawn.how, result.shape[1], size)
        )
        raw, held = in_atoms(result, words.atom, step)
        zeros = behind_last((result.shape[0], result.shape[1]), size, words.atom, step)
        after[at + np.flatnonzero(held)] = raw[held]
        after[at + zeros] = 0
        written = np.sort(np.concatenate([at + np.flatnonzero(held), at + zeros]))
    else:
        written = at + np.arange(result.nbytes)
        after[written] = np.frombuffer(result.tobytes(), np.uint8)
    assert int(written.max(initial=0)) < SRAM
    command = command_of(*VARIANTS["v5"].by_mnemonic[drawn.mnemonic], registers, drawn.fields)
    return Placed(command, before, after, tuple(read), written)


def draw_integer(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))
