"""Instructions on packed tensors: operand bytes, order of constant weights, semantics.

An instruction computes the same values in every layout: its result on packed operands equals that
on the same tensors in dense layout, channels outermost (docs/machine.md, section 12). An
instruction is therefore declared once, for dense tensors; :class:`isa.instruction.Packed` adds
operand layouts, words per operand, and compute cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa.arch import IDEAL, Arch, BankedMemory
from isa.instruction import (
    Atoms,
    Blocks,
    Command,
    Instruction,
    Machine,
    OperandLayout,
    Operands,
    Packed,
    Plain,
    formula,
    formula_of,
)
from isa.shapes import find_own_words, find_shape, find_surface_stride

Bytes = NDArray[np.uint8]
Elements = NDArray[np.unsignedinteger[Any]]
GAP = -1
"""Position that marks a padding byte; the byte contains no weight and is 0."""

# Bytes of operands. ``registers`` are a command's registers, ``words`` the machine's banked memory.


class PackingCopy(NamedTuple):
    """Elements of a tensor in packed and in dense layout.

    Each layout is a first byte and the strides in bytes.
    """

    shape: tuple[int, ...]
    element: type[np.unsignedinteger[Any]]
    packed: tuple[int, tuple[int, ...]]
    plain: tuple[int, tuple[int, ...]]

    def views(self, memory: Bytes, plain: Bytes) -> tuple[Elements, Elements]:
        """Return views of a tensor's elements in packed memory and in the dense buffer.

        Raise IndexError if they exceed the end of either.
        """
        try:
            return (
                np.ndarray(self.shape, self.element, memory, *self.packed),
                np.ndarray(self.shape, self.element, plain, *self.plain),
            )
        except (TypeError, ValueError) as error:
            raise IndexError(
                f"a tensor at {self.packed[0]:#x} reaches past the end of the memory "
                f"({memory.size:#x})"
            ) from error


_ELEMENTS: Mapping[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 4: np.uint32}


def copies(
    layout: Atoms | Plain, registers: Mapping[str, int], words: BankedMemory, start: int
) -> list[PackingCopy]:
    """Return the copies that unpack an operand into a dense buffer at byte ``start``.

    They copy whole atoms, then a partial last one.
    """
    at = registers[layout.register]
    if isinstance(layout, Plain):
        place = at + layout.offset, (1,)
        copy = PackingCopy((layout.nbytes,), np.uint8, place, (start, (1,)))
        return [copy] if layout.nbytes else []
    words = find_own_words(layout, words)
    element = layout.element
    kind = _ELEMENTS[layout.element]
    surface = find_surface_stride(layout, registers, words)
    positions = layout.positions
    inner = element, words.atom * element
    channel, position = (1, layout.channels) if layout.rows else (positions, 1)
    outer = channel * element, position * element
    whole, rest = divmod(layout.channels, words.atom)
    found = [
        PackingCopy(
            (whole, words.atom, positions), kind,
            (at, (surface, *inner)), (start, (words.atom * outer[0], *outer)),
        ),
        PackingCopy(
            (rest, positions), kind,
            (at + whole * surface, inner), (start + whole * words.atom * outer[0], outer),
        ),
    ]  # fmt: skip
    return [copy for copy in found if 0 not in copy.shape]


def _find_padding(
    layout: OperandLayout, registers: Mapping[str, int], words: BankedMemory
) -> PackingCopy | None:
    """Return the bytes of padding after a result's last channel, or None if there are none.

    The dense side has stride 0: all padding maps to one element.
    """
    if not isinstance(layout, Atoms):
        return None
    words = find_own_words(layout, words)
    whole, rest = divmod(layout.channels, words.atom)
    if not rest or not layout.positions:
        return None
    at = (
        registers[layout.register]
        + whole * find_surface_stride(layout, registers, words)
        + rest * layout.element
    )
    steps = words.atom * layout.element, layout.element
    return PackingCopy(
        (layout.positions, words.atom - rest), _ELEMENTS[layout.element], (at, steps), (0, (0, 0))
    )  # fmt: skip


def atoms_of(tensor: NDArray[np.generic], atom: int) -> NDArray[np.generic]:
    """Return a tensor (channels, positions, ...) divided into atoms of channels.

    The shape is (surfaces, positions, atom, ...).

    Zeros fill the last atom after the last channel.
    """
    channels, positions, *rest = tensor.shape
    filled = np.zeros((-(-channels // atom) * atom, positions, *rest), dtype=tensor.dtype)
    filled[:channels] = tensor
    return filled.reshape(-1, atom, positions, *rest).swapaxes(1, 2)


def block_weights(weights: Bytes, places: NDArray[np.int64]) -> Bytes:
    """Reorder a product's dense weights to the order in which the array uses them."""
    return np.append(weights, np.uint8(0))[places]  # a gap reads the last byte, the added 0


def unblock_weights(data: Bytes, places: NDArray[np.int64]) -> Bytes:
    """Reorder a product's stored weights, which are in the array's order, to dense order."""
    kept = places != GAP
    weights = np.zeros(int(np.count_nonzero(kept)), dtype=np.uint8)
    weights[places[kept]] = data[kept]
    return weights


# Storage order of weights


class WeightShape(NamedTuple):
    """Shape of the weights of a product.

    There are ``groups`` of ``outputs`` by ``inputs`` channels with a kernel of ``rows`` by
    ``columns``.
    """

    groups: int
    outputs: int
    inputs: int
    rows: int = 1
    columns: int = 1


class Block(NamedTuple):
    """Block of weights that the array stores at a time: groups, outputs and inputs.

    It stores ``groups`` in parallel, of ``outputs`` by ``inputs`` channels each. With ``taps`` the
    taps of a kernel row act as further input channels.
    """

    groups: int
    outputs: int
    inputs: int
    taps: bool = False


@lru_cache(maxsize=256)
def block_places(shape: WeightShape, block: Block, word: int) -> NDArray[np.int64]:
    """Return the dense position of each byte of a product's stored weights.

    Stored weights are in the order of their use.

    Dense weights are (groups, outputs, inputs, rows, columns). The order of use is: groups by
    ``block.groups``, then output channels, then input channels, then rows and columns of the
    kernel. With ``block.taps`` rows come before input channels; a row then has columns · inputs
    channels, the column slower. Blocks of (groups, outputs, inputs) follow one another without
    gaps; the first block of further output channels begins with a new word.
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
            chunks = [
                some[..., first : first + block.inputs]
                for first in range(0, some.shape[-1], block.inputs)
            ]
            if block.taps:  # row by row; in each row, channel block by channel block
                chunks = [chunk[row] for row in range(len(some)) for chunk in chunks]
            size = sum(chunk.size for chunk in chunks)
            parts += [
                *(chunk.reshape(-1) for chunk in chunks),
                np.full(-size % word, GAP, dtype=np.int64),
            ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


@lru_cache(maxsize=256)
def depthwise_places(channels: int, taps: int, atom: int) -> NDArray[np.int64]:
    """Return the dense position of each byte of stored depthwise weights.

    Stored weights are in the order of their use.

    The dense weights are (channels, taps). The order is atom by atom and, within an atom, tap by
    tap, without gaps.
    """
    places = np.arange(channels * taps, dtype=np.int64).reshape(channels, taps).T
    parts = [places[:, first : first + atom].reshape(-1) for first in range(0, channels, atom)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def read_blocks(shape: WeightShape, block: Block, word: int, blocks: Bytes, weights: Bytes) -> None:
    """Convert stored weights to dense ones, written into ``weights``.

    Stored weights are in the order of :func:`block_places`; ``weights`` is an array of ``shape``.

    Consecutive blocks of one size are copied at once, which takes a tenth of the time of a copy by
    single positions.
    """
    if shape.groups > _ROUNDS * block.groups:
        places = block_places(shape, block, word)
        weights[...] = unblock_weights(blocks, places).reshape(shape)
        return
    begin = 0
    for group in range(0, shape.groups, block.groups):
        some = weights[group : group + block.groups]
        if block.taps:
            sizes = len(some), shape.outputs, shape.rows, shape.columns * shape.inputs
            deep = np.empty(sizes, np.uint8).swapaxes(2, 3)
        else:
            deep = some.reshape(len(some), shape.outputs, shape.inputs, -1)
        for dense, stored in _pair_views(deep, block, word, blocks[begin:]):
            dense[...] = stored
        if block.taps:
            apart = deep.reshape(len(some), shape.outputs, shape.columns, shape.inputs, shape.rows)
            some[...] = apart.transpose(0, 1, 3, 4, 2)
        begin += _group_bytes(deep.shape, block, word)


def write_blocks(
    shape: WeightShape, block: Block, word: int, weights: Bytes, blocks: Bytes
) -> None:
    """Convert dense weights to their stored order, written into ``blocks``.

    The order is that of :func:`block_places`.

    ``weights`` is an array of ``shape``; ``blocks`` must be 0 before.
    """
    if shape.groups > _ROUNDS * block.groups:
        blocks[...] = block_weights(weights, block_places(shape, block, word))
        return
    if weights.strides[1] < weights.strides[2]:
        # Columns of a large matrix share few cache sets. The copy stores adjacent columns together.
        weights = weights.copy(order="K")
    begin = 0
    for group in range(0, shape.groups, block.groups):
        some = weights[group : group + block.groups]
        if block.taps:
            apart = np.ascontiguousarray(some.transpose(0, 1, 3, 4, 2))
            deep = apart.reshape(*apart.shape[:3], shape.columns * shape.inputs).swapaxes(2, 3)
        else:
            deep = some.reshape(len(some), shape.outputs, shape.inputs, -1)
        for dense, stored in _pair_views(deep, block, word, blocks[begin:]):
            stored[...] = dense
        begin += _group_bytes(deep.shape, block, word)


_ROUNDS = 8
"""Number of group blocks above which a copy by single positions is faster than a copy by blocks."""


def _group_bytes(deep: tuple[int, ...], block: Block, word: int) -> int:
    """Return the stored bytes of the weights of the groups that share a block.

    ``deep`` is their shape (groups, outputs, depth, taps or rows).
    """
    groups, outputs, depth, taps = deep
    return sum(
        wide * (-(-groups * size * depth * taps // word) * word)
        for _, wide, size in divide_size(outputs, block.outputs)
    )


def _pair_views(
    deep: Bytes, block: Block, word: int, blocks: Bytes
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield pairs of views of dense and of stored weights with the same elements.

    The arrays are ``deep`` and ``blocks``.

    ``deep`` is (groups, outputs, depth, taps or rows).
    """
    groups, outputs, depth, taps = deep.shape
    begin = 0
    for output, wide, size in divide_size(outputs, block.outputs):
        chunks = [(*piece, groups * size * piece[2]) for piece in divide_size(depth, block.inputs)]
        line = groups * size * depth
        at = begin
        each = -(-line * taps // word) * word
        for first, count, inputs, nbytes in chunks:
            across, down = (nbytes, line) if block.taps else (nbytes * taps, nbytes)
            dense = deep[:, output : output + wide * size, first : first + count * inputs]
            dense = dense.reshape(groups, wide, size, count, inputs, taps)
            shape = (wide, count, taps, groups, size)
            steps = (each, across, down, size * inputs, inputs)
            # the input channels of a block are contiguous on both sides
            if dense.strides[4] == 1:
                row = np.dtype((np.void, inputs))
                yield (
                    dense.swapaxes(4, 5).view(row)[..., 0],
                    np.ndarray(shape, row, blocks, at, steps).transpose(3, 0, 4, 1, 2),
                )
            else:
                found = np.ndarray((*shape, inputs), np.uint8, blocks, at, (*steps, 1))
                yield dense, found.transpose(3, 0, 4, 1, 5, 2)
            at += count * across
        begin += wide * each


def divide_size(size: int, step: int) -> Iterator[tuple[int, int, int]]:
    """Divide a size into parts of at most ``step``; yield (first, number, size) of equal parts.

    Full parts come first, then the remainder.
    """
    whole, rest = divmod(size, step)
    if whole:
        yield 0, whole, step
    if rest:
        yield whole * step, 1, rest


def read_depthwise(channels: int, taps: int, atom: int, blocks: Bytes, weights: Bytes) -> None:
    """Convert stored depthwise weights to dense ones, written into ``weights``.

    ``weights`` has channels · taps bytes.

    ``blocks`` has them in the order of :func:`depthwise_places`.
    """
    weights[...] = unblock_weights(blocks, depthwise_places(channels, taps, atom))


@lru_cache(maxsize=64)
def compute_transposed_places(shape: WeightShape, block: Block, word: int) -> NDArray[np.int64]:
    """Return the dense position of each stored byte of transposed weights.

    As :func:`block_places`, for dense weights that are stored as (inputs, outputs).
    """
    places = block_places(shape, block, word)
    return np.where(
        places == GAP, GAP, places % shape.inputs * shape.outputs + places // shape.inputs
    )


# Semantics on packed operands


def add_packing(plain: Instruction, packed: Packed) -> Instruction:
    """Return the instruction ``plain`` with packed operands in banked memory.

    Their layouts are those of ``packed``.
    """

    def operands(command: Command, arch: Arch) -> Operands:
        if arch.words is None or packed.raw:
            return plain.operands(command, arch)
        shape = find_shape(packed, command, arch)
        if not shape.is_legal:
            plain.operands(_move_command(command, {}), arch)  # raises the errors of the dense form
            shape.is_legal = True
        return shape.operands(command)

    def semantics(command: Command, machine: Machine) -> None:
        found = unpack_command(command, machine.arch)
        if found is None:
            plain.semantics(command, machine)
        else:
            found.bind(plain.semantics, machine, np.empty(found.nbytes, np.uint8))()

    @formula(
        f"{formula_of(plain.cycles)}\n\nWith banked memory ([machine.md](machine.md), section 12): "
        f"{formula_of(packed.cycles)}"
    )
    def cycles(command: Command, arch: Arch) -> int:
        return plain.cycles(command, arch) if arch.words is None else packed.cycles(command, arch)

    def least(command: Command, arch: Arch) -> int:
        if arch.words is None:
            return plain.least_cycles(command, arch)
        return -(-plain.macs(command) // arch.pe.count)

    vars(semantics)["formula"] = formula_of(plain.semantics)
    return replace(
        plain, operands=operands, semantics=semantics, cycles=cycles, least=least, packed=packed,
        plain=plain
    )  # fmt: skip


def get_legal_operands(command: Command, arch: Arch) -> Operands:
    """Return the operands of a command that is known to be legal, without checks."""
    if arch.words is None or (packed := command.instruction.packed) is None or packed.raw:
        return command.instruction.operands(command, arch)
    return find_shape(packed, command, arch).operands(command)


def unpack_command(command: Command, arch: Arch) -> Unpacked | None:
    """Return a command on packed operands as a command on dense operands.

    None if the operands are stored densely.
    """
    packed = command.instruction.packed
    if arch.memory == IDEAL or packed is None or packed.raw:
        return None
    plain = all(isinstance(layout, Plain) for layout in packed.layouts(command, arch))
    return None if plain else Unpacked(command, arch)


def operand_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    """Return the layouts of a command's operands in banked memory, reads first.

    Return () if the instruction has none.
    """
    packed = command.instruction.packed
    return () if arch.memory == IDEAL or packed is None else packed.layouts(command, arch)


def operand_loads(command: Command, operands: Operands, arch: Arch) -> tuple[int, ...]:
    """Return how many words each operand of a command requests from its bank, reads first.

    The load is the operand's words, or 1 in ideal memory.
    """
    accesses = (*operands.reads, *operands.writes)
    packed = command.instruction.packed
    words = arch.words
    if words is None:
        return (1,) * len(accesses)
    if packed is None:
        return tuple(words.count(one.total) for one in accesses)
    return packed.words(command, arch) if packed.raw else find_shape(packed, command, arch).words


def get_cycles(command: Command, arch: Arch) -> int:
    """Return the compute cycles of a command, cached in banked memory."""
    packed = command.instruction.packed
    if arch.words is None or packed is None or packed.raw:
        return command.instruction.cycles(command, arch)
    return find_shape(packed, command, arch).cycles


def compute_serving_cycles(command: Command, arch: Arch) -> int:
    """Return the compute cycles of a command, limited by the access rate of one bank.

    In banked memory at least the words of its largest operand.
    """
    instruction = command.instruction
    cycles = instruction.cycles(command, arch)
    if arch.memory == IDEAL or instruction.packed is None or instruction.packed.raw:
        return cycles
    return max(cycles, *instruction.packed.words(command, arch))


_DENSE = {"EX_INPUT_PLANE": 0, "EX_OUTPUT_PLANE": 0}


def _move_command(command: Command, moved: Mapping[str, int]) -> Command:
    """Return ``command`` for dense operands at the addresses in ``moved``."""
    instruction = command.instruction.plain or command.instruction
    dense = {name: 0 for name in _DENSE if name in command.registers}
    flags = command.pop_previous, command.pop_next, command.push_previous, command.push_next
    registers = {**command.registers, **dense, **moved}
    return Command(command.index, instruction, command.unit, *flags, command.fields, registers)


def _place_operands(
    layouts: Sequence[OperandLayout], sizes: Sequence[int]
) -> tuple[list[int], dict[str, int], int]:
    """Return the start of each unpacked operand in a buffer that holds them one after another.

    Operands have ``sizes`` bytes. Operands of one address register share a start; the next start is
    a multiple of 8 bytes. Also return the addresses by register, and the size of the buffer.
    """
    starts: list[int] = []
    moved: dict[str, int] = {}
    end = 0
    for layout, size in zip(layouts, sizes, strict=True):
        offset = layout.offset if isinstance(layout, Plain) else 0
        starts.append(moved.setdefault(layout.register, end) + offset)
        end = max(end, -(-(starts[-1] + size) // 8) * 8)
    return starts, moved, end


class Unpacked:
    """Command on packed operands, executed on dense copies in a separate buffer.

    The buffer has the operands one after the other. ``command`` is the dense command, ``nbytes``
    the size of the buffer.
    """

    def __init__(self, command: Command, arch: Arch) -> None:
        packed = command.instruction.packed
        words = arch.words
        assert packed is not None
        assert words is not None
        self._arch = arch
        layouts: Sequence[OperandLayout] = packed.layouts(command, arch)
        plain = _move_command(command, {})
        registers = command.registers
        operands = plain.instruction.operands(plain, arch)
        sizes = [operand.total for operand in (*operands.reads, *operands.writes)]
        starts, moved, self.nbytes = _place_operands(layouts, sizes)
        self.command = _move_command(command, moved)
        self._blocks: list[tuple[Blocks, slice, slice]] = []
        self._reads = list[PackingCopy]()
        self._writes = list[PackingCopy]()
        for number, (layout, start, size) in enumerate(zip(layouts, starts, sizes, strict=True)):
            if isinstance(layout, Blocks):
                at = registers[layout.register]
                self._blocks.append(
                    (layout, slice(at, at + layout.nbytes), slice(start, start + size))
                )
            else:
                side = self._reads if number < len(operands.reads) else self._writes
                side += copies(layout, registers, words, start)
        results = layouts[len(operands.reads) :]
        behind = (_find_padding(layout, registers, words) for layout in results)
        self._behind = [copy for copy in behind if copy is not None]

    def bind(
        self, effect: Callable[[Command, Machine], None], machine: Machine, plain: Bytes
    ) -> Callable[[], None]:
        """Return a function that applies ``effect`` to dense operands and stores the result.

        ``plain`` is a buffer of ``nbytes`` for the dense copies of the operands.
        """
        dense = Machine(self._arch, plain, machine.dram)
        blocks = [(one, machine.sram[at], plain[target]) for one, at, target in self._blocks]
        lists = self._reads, self._writes, self._behind
        views = [[one.views(machine.sram, plain) for one in each] for each in lists]
        reads, writes, padding = views

        def run() -> None:
            for layout, stored, weights in blocks:
                layout.read(stored, weights)
            for packed, found in reads:
                np.copyto(found, packed)
            effect(self.command, dense)
            for packed, found in writes:
                np.copyto(packed, found)
            for packed, _ in padding:
                packed.fill(0)

        return run
