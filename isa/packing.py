"""Instructions on packed tensors: where operands lie, the order of constant weights, and what is made of them.

An instruction means the same whatever the layout: what it makes of packed operands is what it makes of the same tensors
laid out plainly, channels outermost (docs/machine.md, section 12). So an instruction is declared once, for plain
tensors; :class:`isa.instruction.Packed` adds how each operand lies, the words that it takes, and the compute cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, strided
from isa.arch import Arch, Words
from isa.instruction import (
    Atoms,
    Blocks,
    Command,
    Instruction,
    Layout,
    Machine,
    Operands,
    Packed,
    Plain,
    formula,
    formula_of,
)

Bytes = NDArray[np.uint8]
Elements = NDArray[np.unsignedinteger[Any]]
GAP = -1
"""In the places of a block: a byte that holds no weight, and is 0."""

# Where operands lie: ``registers`` are those of a command, ``words`` its machine's ------------------------------------


def access(layout: Layout, registers: Mapping[str, int], words: Words) -> Access:
    """The bytes of an operand that lies as ``layout`` says."""
    at = registers[layout.register]
    if not isinstance(layout, Atoms):
        return strided("sram", at, layout.nbytes)
    words = _own(layout, words)
    surfaces = words.surfaces(layout.channels), _surface(layout, registers, words)
    return strided("sram", at, _dense(layout, words), surfaces)


def _own(layout: Atoms, words: Words) -> Words:
    """``words`` with the atoms of a tensor."""
    return replace(words, atom=layout.narrow) if layout.narrow else words


def _dense(layout: Atoms, words: Words) -> int:
    return layout.positions * words.atom * layout.element


def _surface(layout: Atoms, registers: Mapping[str, int], words: Words) -> int:
    return (registers[layout.plane] if layout.plane else 0) or _dense(layout, words)


def _surfaces(layout: Atoms, registers: Mapping[str, int], words: Words, memory: Bytes) -> Elements:
    """A view (surfaces, positions, A) of the elements of a tensor."""
    begin, step = registers[layout.register], _surface(layout, registers, words)
    shape = words.surfaces(layout.channels), layout.positions, words.atom
    if shape[0] and begin + (shape[0] - 1) * step + _dense(layout, words) > memory.size:
        raise IndexError(f"a tensor at {begin:#x} reaches past the end of the memory ({memory.size:#x})")
    inner = words.atom * layout.element, layout.element
    return np.ndarray(shape, _ELEMENTS[layout.element], memory, begin if shape[0] * shape[1] else 0, (step, *inner))


_ELEMENTS = {1: np.uint8, 4: np.uint32}


def _both(
    layout: Atoms, registers: Mapping[str, int], words: Words, memory: Bytes, plain: Bytes
) -> tuple[Elements, Elements, Elements]:
    """Views of a tensor in memory and laid out plainly: its surfaces, the channels (surfaces, A, positions) of whole
    ones, and those of the last one if it is not whole.
    """
    elements = plain.view(_ELEMENTS[layout.element])
    if layout.rows:
        channels = elements.reshape(layout.positions, layout.channels).T
    else:
        channels = elements.reshape(layout.channels, layout.positions)
    whole = layout.channels // words.atom
    full = channels[: whole * words.atom].reshape(whole, words.atom, layout.positions)
    return _surfaces(layout, registers, words, memory), full, channels[whole * words.atom :]


def unpack(layout: Layout, registers: Mapping[str, int], words: Words, memory: Bytes, plain: Bytes) -> None:
    """Write an operand into ``plain`` as it would lie plainly."""
    at = registers[layout.register]
    if isinstance(layout, Plain):
        plain[...] = memory[at : at + layout.nbytes]
        return
    if isinstance(layout, Blocks):
        layout.read(memory[at : at + layout.nbytes], plain)
        return
    surfaces, whole, rest = _both(layout, registers, _own(layout, words), memory, plain)
    whole[...] = surfaces[: len(whole)].swapaxes(1, 2)
    if len(rest):
        rest[...] = surfaces[-1].T[: len(rest)]


def put(layout: Atoms | Plain, registers: Mapping[str, int], words: Words, memory: Bytes, data: Bytes) -> None:
    """Write what lies plainly in ``data`` where ``layout`` says, zeros behind the last channel."""
    if isinstance(layout, Plain):
        memory[registers[layout.register] :][: layout.nbytes] = data
        return
    surfaces, whole, rest = _both(layout, registers, _own(layout, words), memory, data)
    surfaces[: len(whole)] = whole.swapaxes(1, 2)
    if len(rest):
        surfaces[-1].T[: len(rest)] = rest
        surfaces[-1].T[len(rest) :] = 0


def atoms_of(tensor: NDArray[np.generic], atom: int) -> NDArray[np.generic]:
    """(channels, positions, ...) as (surfaces, positions, atom, ...), zeros behind the last channel."""
    channels, positions, *rest = tensor.shape
    filled = np.zeros((-(-channels // atom) * atom, positions, *rest), dtype=tensor.dtype)
    filled[:channels] = tensor
    return filled.reshape(-1, atom, positions, *rest).swapaxes(1, 2)


def blocked(weights: Bytes, places: NDArray[np.int64]) -> Bytes:
    """Plain weights in the order of their use."""
    return np.where(places == GAP, np.uint8(0), weights.reshape(-1)[places])


def unblocked(data: Bytes, places: NDArray[np.int64]) -> Bytes:
    """Weights in the order of their use as they lie plainly."""
    kept = places != GAP
    weights = np.zeros(int(np.count_nonzero(kept)), dtype=np.uint8)
    weights[places[kept]] = data[kept]
    return weights


# The order in which weights lie ---------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """Weights of a product: ``groups`` of ``outputs`` by ``inputs`` channels, a kernel of ``rows`` by ``columns``."""

    groups: int
    outputs: int
    inputs: int
    rows: int = 1
    columns: int = 1


class Block(NamedTuple):
    """What the array holds at once: ``groups`` side by side, of ``outputs`` by ``inputs`` channels each.

    ``taps``: the taps of a kernel's row stand side by side, as further input channels.
    """

    groups: int
    outputs: int
    inputs: int
    taps: bool = False


@lru_cache(maxsize=256)
def block_places(shape: Shape, block: Block, word: int) -> NDArray[np.int64]:
    """The plain place of every byte of weights (groups, outputs, inputs, rows, columns) in the order of their use.

    Groups by ``block.groups``, then output channels, then input channels, then rows and columns of the kernel; each
    block (groups, outputs, inputs) begins with a word. With ``block.taps`` rows come before input channels, of which
    there are columns · inputs, the column slower.
    """
    places: NDArray[np.int64] = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    ordered: NDArray[np.int64]
    if block.taps:  # (rows, groups, outputs, columns · inputs)
        ordered = places.transpose(3, 0, 1, 4, 2).reshape(shape.rows, *shape[:2], -1)
    else:
        ordered = places.transpose(3, 4, 0, 1, 2).reshape(shape.rows * shape.columns, *shape[:3])
    parts: list[NDArray[np.int64]] = []
    for group in range(0, shape.groups, block.groups):
        for output in range(0, shape.outputs, block.outputs):
            some = ordered[:, group : group + block.groups, output : output + block.outputs]
            chunks = [some[..., first : first + block.inputs] for first in range(0, some.shape[-1], block.inputs)]
            if block.taps:  # row by row, in each row channel block by channel block
                parts += [_padded(chunk[row][np.newaxis], word) for row in range(len(some)) for chunk in chunks]
            else:
                parts += [_padded(chunk, word) for chunk in chunks]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


@lru_cache(maxsize=256)
def depthwise_places(channels: int, taps: int, atom: int, word: int) -> NDArray[np.int64]:
    """The same of depthwise weights (channels, taps): atom by atom, in it tap by tap; an atom begins with a word."""
    places = np.arange(channels * taps, dtype=np.int64).reshape(channels, taps).T
    parts = [_padded(places[:, first : first + atom][np.newaxis], word) for first in range(0, channels, atom)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def read_blocks(shape: Shape, block: Block, word: int, blocks: Bytes, weights: Bytes) -> None:
    """Write weights that lie as :func:`block_places` says into ``weights``, of ``shape``.

    Blocks of one size one after another are one copy, so that it takes a tenth of the time that the places would.
    """
    if shape.groups > _ROUNDS * block.groups:
        places = block_places(shape, block, word)
        weights[...] = unblocked(blocks, places).reshape(shape)
        return
    begin = 0
    for group in range(0, shape.groups, block.groups):
        some = weights[group : group + block.groups]
        if not block.taps:
            deep = some.reshape(len(some), shape.outputs, shape.inputs, -1)
            begin += _read_group(deep, block, word, blocks[begin:])
            continue
        deep = np.empty((len(some), shape.outputs, shape.columns * shape.inputs, shape.rows), np.uint8)
        begin += _read_group(deep, block, word, blocks[begin:])
        apart = deep.reshape(len(some), shape.outputs, shape.columns, shape.inputs, shape.rows)
        some[...] = apart.transpose(0, 1, 3, 4, 2)


_ROUNDS = 8
"""Groups one after the other from which on single places take less time than blocks."""


def _read_group(deep: Bytes, block: Block, word: int, blocks: Bytes) -> int:
    """The same of the groups of one block (groups, outputs, depth, taps or rows); bytes that they take."""
    groups, outputs, depth, taps = deep.shape
    begin = 0
    for output, wide, size in _pieces(outputs, block.outputs):
        chunks = [(*piece, -(-groups * size * piece[2] // word) * word) for piece in _pieces(depth, block.inputs)]
        line, at = sum(count * nbytes for _, count, _, nbytes in chunks), begin
        for first, count, inputs, nbytes in chunks:
            across, down = (nbytes, line) if block.taps else (nbytes * taps, nbytes)
            steps = line * taps, across, down, size * inputs, inputs, 1
            found = np.ndarray((wide, count, taps, groups, size, inputs), np.uint8, blocks, at, steps)
            target = deep[:, output : output + wide * size, first : first + count * inputs]
            target.reshape(groups, wide, size, count, inputs, taps)[...] = found.transpose(3, 0, 4, 1, 5, 2)
            at += count * across
        begin += wide * line * taps
    return begin


def _pieces(size: int, step: int) -> Iterator[tuple[int, int, int]]:
    """(first, count, size) of the pieces of ``size`` by ``step``: whole ones, then the rest."""
    whole, rest = divmod(size, step)
    if whole:
        yield 0, whole, step
    if rest:
        yield whole * step, 1, rest


def read_depthwise(channels: int, taps: int, atom: int, word: int, blocks: Bytes, weights: Bytes) -> None:
    """Write depthwise weights that lie as :func:`depthwise_places` says into ``weights`` (channels · taps)."""
    weights[...] = unblocked(blocks, depthwise_places(channels, taps, atom, word))


def transposed(places: NDArray[np.int64], inputs: int, outputs: int) -> NDArray[np.int64]:
    """``places`` in weights (outputs, inputs) as those in weights that lie plainly as (inputs, outputs)."""
    return np.where(places == GAP, GAP, places % inputs * outputs + places // inputs)


def _padded(places: NDArray[np.int64], word: int) -> NDArray[np.int64]:
    """Every one of ``places`` along the first axis as a whole number of words."""
    rows = places.reshape(len(places), -1)
    filled = np.full((len(rows), -(-rows.shape[1] // word) * word), GAP, dtype=np.int64)
    filled[:, : rows.shape[1]] = rows
    return filled.reshape(-1)


# What an instruction makes of packed operands ------------------------------------------------------------------------


def with_words(plain: Instruction, packed: Packed) -> Instruction:
    """``plain``, which on machines of words finds its operands as ``packed`` says."""

    def operands(command: Command, arch: Arch) -> Operands:
        words = arch.words
        if words is None or packed.raw:
            return plain.operands(command, arch)
        reads = len(plain.operands(_at(command, {}), arch).reads)  # what has no meaning is refused as ever
        found = [access(layout, command.registers, words) for layout in packed.layouts(command, arch)]
        return Operands(tuple(found[:reads]), tuple(found[reads:]))

    def semantics(command: Command, machine: Machine) -> None:
        if machine.arch.words is None or packed.raw:
            plain.semantics(command, machine)
        else:
            Unpacked(command, machine.arch).run(plain.semantics, machine)

    @formula(f"{formula_of(plain.cycles)}\n\nOn a machine of words: {formula_of(packed.cycles)}")
    def cycles(command: Command, arch: Arch) -> int:
        return plain.cycles(command, arch) if arch.words is None else packed.cycles(command, arch)

    def least(command: Command, arch: Arch) -> int:
        if arch.words is None:
            return plain.least_cycles(command, arch)
        return -(-plain.macs(command) // arch.pe.count)

    vars(semantics)["formula"] = formula_of(plain.semantics)
    return replace(
        plain, operands=operands, semantics=semantics, cycles=cycles, least=least, packed=packed, plain=plain
    )  # fmt: skip


_DENSE = {"EX_INPUT_PLANE": 0, "EX_OUTPUT_PLANE": 0}


def _at(command: Command, moved: Mapping[str, int]) -> Command:
    """The command on plain operands at the addresses of ``moved``."""
    instruction = command.instruction.plain or command.instruction
    dense = {name: 0 for name in _DENSE if name in command.registers}
    flags = command.pop_previous, command.pop_next, command.push_previous, command.push_next
    registers = {**command.registers, **dense, **moved}
    return Command(command.index, instruction, command.unit, *flags, command.fields, registers)


class Unpacked:
    """A command on packed operands as one on plain ones, one behind the other in a memory of their own.

    ``command`` is the plain one, and ``nbytes`` the size of that memory.
    """

    def __init__(self, command: Command, arch: Arch) -> None:
        packed, words = command.instruction.packed, arch.words
        assert packed is not None
        assert words is not None
        self._packed, self._words, self._arch = command, words, arch
        self._layouts: Sequence[Layout] = packed.layouts(command, arch)
        plain = _at(command, {})
        operands = plain.instruction.operands(plain, arch)
        sizes = [operand.total for operand in (*operands.reads, *operands.writes)]
        starts = np.concatenate([[0], np.cumsum([-(-size // 8) * 8 for size in sizes])]).tolist()
        self._places = [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]
        moved = {layout.register: start for layout, start in zip(self._layouts, starts, strict=False)}
        self.command, self.nbytes = _at(command, moved), int(starts[-1])
        self._reads = len(operands.reads)

    def run(
        self,
        effect: Callable[[Command, Machine], None],
        machine: Machine,
        memory: NDArray[np.uint8] | None = None,
    ) -> None:
        """Carry ``effect`` out on the operands in ``machine``.

        ``memory``: ``nbytes`` for the plain operands, whatever is in them; one of its own without.
        """
        plain = np.empty(self.nbytes, dtype=np.uint8) if memory is None else memory
        for layout, place in zip(self._layouts[: self._reads], self._places, strict=False):
            unpack(layout, self._packed.registers, self._words, machine.sram, plain[place])
        effect(self.command, Machine(self._arch, plain, machine.dram))
        for layout, place in zip(self._layouts[self._reads :], self._places[self._reads :], strict=False):
            assert not isinstance(layout, Blocks)
            put(layout, self._packed.registers, self._words, machine.sram, plain[place])
