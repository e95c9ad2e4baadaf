"""How operands lie in a scratchpad of words (docs/machine.md, section 12): plain bytes, atoms, blocks of weights.

``registers`` are those of a command, and ``words`` its machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, strided
from isa.arch import Words

Bytes = NDArray[np.uint8]
Elements = NDArray[np.unsignedinteger[Any]]


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
    read: Callable[[Bytes, Bytes], None]

    @property
    def places(self) -> NDArray[np.int64]:
        """The plain place of each byte, :data:`GAP` for none."""
        return self.order()


GAP = -1
"""In the places of a block: a byte that holds no weight, and is 0."""
Layout = Plain | Atoms | Blocks


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
