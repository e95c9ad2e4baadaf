"""Tilings of an operation: all legal ones, their costs, and the search for the cheapest.

The space contains every legal tile size, loop order and useful number of buffers, from coarse to
fine. The search tries few of them, chosen by scratchpad size and estimated cycles. An answer that
depends on a budget only through tests of the form "does it hold n bytes" is valid for a whole range
of budgets. The search caches answers with these ranges.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from itertools import product
from typing import Generic, TypeVar

from byoc.estimate.constants import (
    CUTS,
    FEWER,
    FLAT_BAND,
    FULL,
    FULL_CHOICE,
    MOST_OUTPUTS,
    ROW_CUTS,
)
from byoc.operators.geometry import Geometry
from byoc.operators.layer import (
    BufferSlots,
    Resident,
    Tiling,
    chunk_count,
    compute_working_set,
    counts,
    has_loaded_constants,
    make_streamed,
    streams,
)
from byoc.operators.nest import find_allowed_channels
from isa.arch import Arch
from isa.instruction import ceil_div
from isa.ops.convolution import MAPPING

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


class Budget:
    """Scratchpad budget in bytes; records the budgets for which a search result is valid.

    The range ``least`` to ``most`` (exclusive) has the same result so far.
    """

    __slots__ = ("_nbytes", "least", "most")

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self.least = -math.inf
        self.most = math.inf

    def has_room_for(self, nbytes: int) -> bool:
        if nbytes <= self._nbytes:
            if nbytes > self.least:
                self.least = nbytes
            return True
        if nbytes < self.most:
            self.most = nbytes
        return False

    def count_left(self, taken: int) -> int:
        """Return how many bytes of the budget remain after ``taken`` bytes.

        The caller must record the valid range with :meth:`narrow`.
        """
        return self._nbytes - taken

    def all(self) -> int:
        """Return the whole budget in bytes; the result of a search then holds only for it."""
        self.narrow(self._nbytes, self._nbytes + 1)
        return self._nbytes

    def narrow(self, least: float, most: float) -> None:
        """Limit the recorded range to at least ``least`` and fewer than ``most`` bytes."""
        self.least, self.most = max(self.least, least), min(self.most, most)


class Room:
    """Remainder of a scratchpad budget after ``taken`` bytes."""

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: Budget, taken: int) -> None:
        self._budget = budget
        self._taken = taken

    def has_room_for(self, nbytes: int) -> bool:
        return self._budget.has_room_for(nbytes + self._taken)


class Answers(Generic[Question, Answer]):
    """Cache of search results, each with the scratchpad budgets for which it is valid."""

    def __init__(self) -> None:
        self._known: dict[Question, list[tuple[float, float, Answer]]] = {}

    def find(self, question: Question, budget: int, ask: Callable[[Budget], Answer]) -> Answer:
        """Return the cached search result for a budget, or compute the result with ``ask``."""
        return self._find(question, budget, ask)[2]

    def get_answer(
        self, question: Question, budget: Budget, taken: int, ask: Callable[[Budget], Answer]
    ) -> Answer:
        """Return the search result for the bytes that ``taken`` bytes leave of ``budget``.

        The range of ``budget`` narrows to the budgets with the same answer.
        """
        least, most, answer = self._find(question, budget.count_left(taken), ask)
        budget.narrow(least + taken, most + taken)
        return answer

    def _find(
        self, question: Question, budget: int, ask: Callable[[Budget], Answer]
    ) -> tuple[float, float, Answer]:
        known = self._known.setdefault(question, [])
        for found in known:
            if found[0] <= budget < found[1]:
                return found
        asked = Budget(budget)
        answer = ask(asked)
        known.append((asked.least, asked.most, answer))
        return known[-1]


def tilings(geometry: Geometry, arch: Arch, resident: Resident, budget: int) -> Iterator[Tiling]:
    """Yield every legal tiling whose tile buffers need at most ``budget`` bytes, shape by shape.

    A small layer has thousands of tilings, a large one too many to try. For a large one, draw some
    of :func:`shapes` and call :func:`list_buffered` for those.
    """
    for shape in shapes(geometry, resident):
        yield from list_buffered(geometry, arch, resident, budget, shape)


def smallest_tiling(geometry: Geometry, arch: Arch) -> Tiling:
    """Return the tiling with the smallest working set if all operands are streamed.

    Its tiles have one output channel, one output row if rows can be cut, and one input channel if
    that needs fewer bytes including the sums.
    """
    channels = find_allowed_channels(geometry.nest, 1)
    resident = make_streamed(geometry)
    whole = Tiling(channels, 1 if may_cut_rows(geometry, channels) else geometry.nest.rows)
    cuts = geometry.nest.input_channels > 1 and may_cut_depth(geometry, resident)
    tilings = (whole, whole._replace(depth=1)) if cuts else (whole,)
    return min(
        tilings, key=lambda tiling: compute_working_set(geometry, tiling, resident, arch.granule)
    )


def shapes(geometry: Geometry, resident: Resident) -> Iterator[Tiling]:
    """Yield every legal tile shape with one buffer each, ordered by depth, channels and rows."""
    for depth, channels in product(depths(geometry, resident), channel_tiles(geometry, resident)):
        for rows in row_bands(geometry, channels):
            yield Tiling(channels, rows, depth=depth)


def list_buffered(
    geometry: Geometry, arch: Arch, resident: Resident, budget: int, shape: Tiling
) -> Iterator[Tiling]:
    """Yield fitting tilings of one shape with each loop order and useful number of buffers."""
    if compute_working_set(geometry, shape, resident, arch.granule) > budget:
        return
    parts, bands = counts(geometry, shape)
    operands = streams(geometry, resident)
    chunks = chunk_count(geometry, shape)
    different = (
        max((geometry.input_tiles(index, parts, bands) for index in operands), default=0) * chunks
    )
    constants = (
        parts * chunks
        if has_loaded_constants(geometry, resident) or geometry.tables == "each"
        else 0
    )
    outputs = 0 if resident.output or geometry.in_place else min(parts * bands, MOST_OUTPUTS)
    orders = (False, True) if parts > 1 and bands > 1 else (False,)
    for inputs, kept in product(useful(different, chunks), useful(constants, chunks)):
        for output in useful(outputs):
            tiling = shape._replace(slots=BufferSlots(inputs, kept, output))
            if compute_working_set(geometry, tiling, resident, arch.granule) > budget:
                break
            yield from (tiling._replace(channels_outer=outer) for outer in orders)


def useful(different: int, chunks: int = 1) -> tuple[int, ...]:
    """Return the buffer counts worth trying for ``different`` tiles, from 1 up.

    The loop repeats ``chunks`` of them.

    All numbers up to :data:`FULL_CHOICE` are included, then powers of two, ``chunks`` and
    ``different``.
    """
    powers = (1 << exponent for exponent in range(different.bit_length()))
    return tuple(
        sorted(
            {
                1,
                *(
                    n
                    for n in (*range(FULL_CHOICE + 1), *powers, chunks, different)
                    if 1 < n <= different
                ),
            }
        )
    )


def channel_tiles(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Return every legal channel tile, from large to small."""
    nest = geometry.nest
    return tuple(
        size
        for size in range(nest.channels, 0, -1)
        if find_allowed_channels(nest, size) == size and is_dense(geometry, size, resident)
    )


def row_bands(geometry: Geometry, channels: int) -> tuple[int, ...]:
    """Return every legal band height for ``channels`` channels, from high to low."""
    rows = geometry.nest.rows
    if not may_cut_rows(geometry, channels):
        return (rows,)
    if is_flat(geometry):
        return (rows, *range((rows - 1) // FLAT_BAND * FLAT_BAND, 0, -FLAT_BAND))
    return tuple(range(rows, 0, -1))


def depths(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Return every legal number of input channels per tile, from many to few.

    The first is 0, which means all input channels.
    """
    inputs = geometry.nest.input_channels
    return (0, *(range(inputs - 1, 0, -1) if may_cut_depth(geometry, resident) else ()))


def is_flat(geometry: Geometry) -> bool:
    """Return True if each row of an operation is one element or one atom of elements."""
    nest = geometry.nest
    return geometry.channels.plain.flat or (not nest.matrix and nest.columns == nest.channels == 1)


def may_cut_rows(geometry: Geometry, channels: int, resident: Resident | None = None) -> bool:
    """Return True if bands of rows are possible.

    An instruction that needs dense channels allows bands only for a single channel or a matrix.
    Atoms of a band are not contiguous in a ``resident`` tensor.
    """
    nest = geometry.nest
    traits = geometry.operator.traits
    apart = geometry.channels.apart and not (geometry.planes or traits.flat or nest.grouped)
    if (
        apart
        and resident is not None
        and (resident.output or any(resident.inputs[: geometry.inputs]))
    ):
        return False
    return nest.splits_rows and not (traits.whole_planes and channels > 1 and not nest.matrix)


def may_cut_depth(geometry: Geometry, resident: Resident) -> bool:
    """Return True if several commands can accumulate sums over input channels.

    A subset of a resident matrix's columns is not dense.
    """
    nest = geometry.nest
    return geometry.splits_depth and not (nest.matrix and nest.rows > 1 and any(resident.inputs))


def is_dense(geometry: Geometry, channels: int, resident: Resident) -> bool:
    """Return True if a tile's operands and result are as dense as the instruction requires.

    A subset of a resident matrix's columns is not dense.
    """
    nest = geometry.nest
    if channels == nest.channels:
        return True
    if (
        geometry.second == "columns"
        and any(resident.inputs[geometry.inputs :])
        and nest.input_channels > 1
    ):
        return False
    reads_columns = nest.grouped and any(resident.inputs)
    return not (nest.matrix and nest.rows > 1 and (resident.output or reads_columns))


def _channel_tiles(geometry: Geometry, arch: Arch) -> Iterator[int]:
    """Yield channel tiles from large to small, multiples of the parallel width of the array.

    For layers of a single row, cuts into three times a power of two are included: such layers wait
    for their weights and have no bands with which to fill the scratchpad.
    """
    nest = geometry.nest
    parallel = geometry.parallel_channels(arch)
    seen = set()
    for cuts in CUTS if nest.rows > 1 else ROW_CUTS:
        size = ceil_div(ceil_div(nest.channels, cuts), parallel) * parallel
        size = find_allowed_channels(nest, size)
        if size not in seen:
            seen.add(size)
            yield size


def _narrow_tiles(geometry: Geometry, arch: Arch) -> Iterator[int]:
    """Yield channel tiles that use a half, a quarter and so on of the array.

    The last is the smallest legal tile.
    """
    parallel = geometry.parallel_channels(arch)
    halved = (
        find_allowed_channels(geometry.nest, parallel >> halves)
        for halves in range(1, parallel.bit_length())
    )
    yield from dict.fromkeys((*halved, find_allowed_channels(geometry.nest, 1)))


def _input_chunks(geometry: Geometry, arch: Arch) -> Iterator[int]:
    """Yield numbers of input channels per tile, from many to few.

    They are multiples of the parallel width, and 1. If the mapping places several kernel taps on
    the lanes, numbers between them that leave few lanes idle are included.
    """
    if not geometry.splits_depth:
        return
    inputs = geometry.nest.input_channels
    parallel = geometry.parallel_inputs(arch)
    seen = {inputs}
    for cuts in CUTS[1:]:
        size = min(ceil_div(ceil_div(inputs, cuts), parallel) * parallel, inputs)
        if size not in seen:
            seen.add(size)
            yield size
    for size in () if geometry.channels.apart else _full_chunks(geometry, parallel):
        if size < inputs and size not in seen:
            seen.add(size)
            yield size
    if 1 not in seen:
        yield 1


def _full_chunks(geometry: Geometry, lanes: int) -> Iterator[int]:
    """Yield numbers of input channels, below ``lanes``, whose products leave few lanes idle.

    The numbers descend.
    """
    taps = geometry.weight_bytes // geometry.nest.input_channels
    last = lanes
    if taps == 1 or not dict(geometry.fields).get(MAPPING.name, 0) & 1:
        return
    for size in range(lanes - 1, 0, -1):
        if size <= FEWER * last and size * taps >= FULL * ceil_div(size * taps, lanes) * lanes:
            last = size
            yield size


def _row_bands(geometry: Geometry) -> Iterator[int]:
    """Yield heights of row bands, from high to low.

    Heights of element-wise operations are multiples of 64 elements.
    """
    nest = geometry.nest
    if not nest.splits_rows:
        yield nest.rows
        return
    flat = is_flat(geometry)
    seen = set()
    for cuts in CUTS:
        rows = ceil_div(nest.rows, cuts)
        rows = min(nest.rows, ceil_div(rows, FLAT_BAND) * FLAT_BAND) if flat else rows
        if rows not in seen:
            seen.add(rows)
            yield rows
    if 1 not in seen:
        yield 1
