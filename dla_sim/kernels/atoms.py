"""Convolutions and products on packed tensors, without transposing them.

Pixels are gathered and scattered atom by atom. The pixels (positions, channels) are the left
operand of an exact product, the weights (channels, outputs) the right one. Weights are reordered
once and kept while their bytes in the scratchpad do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.attempt import Attempt, Workspace, bind_once
from dla_sim.kernels.convolution import bind_sums_by_pixels
from dla_sim.kernels.products import (
    CHUNK,
    Initial,
    Products,
    Sums,
    add_chunks,
    prepare_sums,
    products,
    spans,
)
from dla_sim.kernels.results import ResultConverter
from dla_sim.kernels.windows import WindowRegisters, window
from isa.arch import Arch, words_of
from isa.instruction import Atoms, Blocks, Command
from isa.ops.convolution import MAPPING
from isa.ops.lookup import TABLE_BYTES, table_count
from isa.ops.windows import element_bytes
from isa.packing import Bytes, operand_layouts

_BLOCK_ELEMENTS = 1 << 20
"""Maximum elements of the two large operands of one matrix product."""
_WIDE = 1024
"""Elements up to which the sums of several positions are requantised as one row."""
_PIXEL_ELEMENTS = 1 << 19
"""Elements of the float32 pixels of one band of a depthwise convolution."""
_MOST_GROUPS = 16
_GROUPED_WEIGHTS = 1 << 22
"""Groups and weights up to which one product with zeros between groups is faster than one
product per group.
"""


Reader = Callable[[Bytes], NDArray[Any]]


@dataclass(eq=False)
class KeptWeights:
    """Cached weights: the bytes as stored in the scratchpad, and the array made from them."""

    stored: bytes
    made: NDArray[Any]


class WeightStore:
    """Cache of reordered weights; equal bytes with equal use share one entry."""

    def __init__(self) -> None:
        self._kept: WeakValueDictionary[tuple[Any, bytes], KeptWeights] = WeakValueDictionary()

    def reader(
        self, start: int, nbytes: int, use: Any, make: Callable[[Bytes], NDArray[Any]]
    ) -> Reader:
        """Return a function that reads stored weights and reorders them with ``make``.

        These are the ``nbytes`` bytes at ``start``. Every call compares the bytes with the cached
        ones: the result depends only on the bytes in the scratchpad and on ``use``.
        """
        last: KeptWeights | None = None

        def read(sram: Bytes) -> NDArray[Any]:
            nonlocal last
            # bytes objects are compared faster than arrays
            stored = sram[start : start + nbytes].tobytes()
            if last is None or stored != last.stored:
                key = use, stored
                last = self._kept.get(key)
                if last is None:
                    made = make(np.frombuffer(stored, np.uint8))
                    last = self._kept[key] = KeptWeights(stored, made)
            return last.made

        return read


@dataclass(frozen=True, eq=False)
class PackedTensor:
    """Tensor stored in atoms at an address.

    ``surface`` are the bytes between two of its ``surfaces``, ``atom`` the bytes of an atom. The
    tensor has ``positions`` times ``channels`` elements.
    """

    address: int
    surface: int
    surfaces: int
    atom: int
    positions: int
    channels: int

    def atoms(self, memory: Bytes, first: int, positions: int) -> NDArray[np.void]:
        """Return a tensor's atoms (positions, surfaces) for positions from ``first`` on."""
        strides = (self.atom, self.surface)
        start = self.address + first * self.atom
        return np.ndarray((positions, self.surfaces), f"V{self.atom}", memory, start, strides)

    def elements(self, memory: Bytes) -> NDArray[np.int32]:
        """Return a tensor's int32 elements by position, including padding channels."""
        return np.ascontiguousarray(self.atoms(memory, 0, self.positions)).view("<i4").reshape(-1)


def describe_packed_tensor(layout: Atoms, command: Command, arch: Arch) -> PackedTensor:
    """Return an operand as a packed tensor with its address, strides and sizes."""
    channels = layout.narrow or words_of(arch).atom
    atom = channels * layout.element
    surface = (command.registers[layout.plane] if layout.plane else 0) or layout.positions * atom
    surfaces = -(-layout.channels // channels)
    return PackedTensor(
        command.registers[layout.register], surface, surfaces, atom, layout.positions,
        layout.channels
    )  # fmt: skip


def convolution(command: Command, arch: Arch, kept: WeightStore) -> Attempt | None:
    """Prepare an ``OP_CONV`` or ``OP_GROUP_CONV`` on packed tensors.

    Returns None if the command must run on dense tensors.
    """
    element = element_bytes(command)
    fill = command["EX_INPUT_ZERO_POINT"]
    tables = table_count(command)
    shape, groups = window(command, element), command.registers.get("EX_GROUPS", 1)
    if shape is None or tables > 1 or (shape.padded and not -128 <= fill <= 127):
        return None
    source, blocks, _, *others, result = operand_layouts(command, arch)
    if not (isinstance(source, Atoms) and isinstance(blocks, Blocks) and isinstance(result, Atoms)):
        return None
    pixels, results = (describe_packed_tensor(layout, command, arch) for layout in (source, result))
    size = (
        shape.kh,
        shape.kw,
        pixels.surfaces * pixels.atom,
        results.surfaces * results.atom // element,
    )
    way = products(prod(size) * shape.pixels)
    if not has_few_groups(groups, size):
        return None

    def make(stored: Bytes) -> NDArray[Any]:
        plain = np.empty(shape.oc * shape.ic // groups * shape.kh * shape.kw, np.uint8)
        blocks.read(stored, plain)
        return way.prepare_right(arrange_by_pixels(plain.view(np.int8), shape, groups, size))

    use = (
        command.fields.get(MAPPING.name, 0),
        size,
        shape.oc,
        shape.ic,
        groups,
        blocks.nbytes,
        type(way),
    )
    weights = kept.reader(command["EX_OPERAND_ADDRESS"], blocks.nbytes, use, make)
    initial = (
        describe_packed_tensor(others[0], command, arch)
        if others and isinstance(others[0], Atoms)
        else None
    )
    bands = _bands(shape, _BLOCK_ELEMENTS // (prod(size[:3]) + size[3]), size[3])
    run = _PixelProduct(_Ending(results, bands, command, tables), shape, pixels, fill, way, weights)
    count = prod(size[:2]) * shape.ic // groups
    return _prepare_product(command, arch, shape, count, bind_once(run.bind), initial)


def has_few_groups(groups: int, sizes: tuple[int, ...]) -> bool:
    """Return True if one product is faster than one per group; ``sizes`` are its weights."""
    return groups == 1 or (groups <= _MOST_GROUPS and prod(sizes) <= _GROUPED_WEIGHTS)


def _prepare_product(
    command: Command,
    arch: Arch,
    shape: WindowRegisters,
    weights: int,
    run: Callable[[ResultConverter, Workspace], None],
    sums: PackedTensor | None = None,
) -> Attempt | None:
    """Prepare the kernel of a command that sums ``weights`` products per result.

    It may start from packed ``sums``.
    """
    operands = command.instruction.operands(command, arch)
    written, *reads = [(one.address, one.end) for one in (*operands.writes, *operands.reads)]
    initial = None if sums is None else Initial(reads.pop(3), sums.elements)
    return prepare_sums(
        command,
        arch,
        Sums(shape.oc, shape.oc * shape.pixels, weights),
        written,
        reads,
        run,
        initial,
    )


def _bands(shape: WindowRegisters, positions: int, channels: int) -> tuple[_Band, ...]:
    """Divide the results into bands of whole rows with about ``positions`` positions each."""
    rows = min(max(positions // shape.ow, 1), shape.oh)
    found = []
    for top in range(0, shape.oh, rows):
        count = min(rows, shape.oh - top)
        most = max(_WIDE // channels, 1)
        wide = max(times for times in range(1, most + 1) if count * shape.ow % times == 0)
        found.append(_Band(top, count, top * shape.ow, wide))
    return tuple(found)


class _Band(NamedTuple):
    """Band of result rows that are converted together.

    ``top`` is the first row, ``rows`` their number, ``first`` the first position; ``wide``
    positions are requantised as one row.
    """

    top: int
    rows: int
    first: int
    wide: int


def arrange_by_pixels(
    plain: NDArray[np.int8], shape: WindowRegisters, groups: int, size: tuple[int, ...]
) -> NDArray[np.int8]:
    """Return weights (KH * KW * channels, outputs) as the right operand of the product.

    Weights are 0 for padding channels and for channels of other groups.
    """
    found = np.zeros(size, np.int8)
    inputs = shape.ic // groups
    outputs = shape.oc // groups
    weights = plain.reshape(groups, outputs, inputs, shape.kh, shape.kw)
    for group in range(groups):
        column = group * outputs
        row = group * inputs
        found[:, :, row : row + inputs, column : column + outputs] = weights[group].transpose(
            2, 3, 1, 0
        )
    return found.reshape(-1, size[3])


class _Ending:
    """Conversion of sums of products to packed results, with an optional look-up table.

    It stores the place of the results, their bands, and the table that looks them up.
    """

    def __init__(
        self, result: PackedTensor, bands: tuple[_Band, ...], command: Command, tables: int
    ) -> None:
        self.result = result
        self.bands = bands
        self._table = command["EX_TABLE_ADDRESS"] if tables else None
        self._kept: dict[int, tuple[ResultConverter, ResultConverter]] = {}

    def table(self, sram: Bytes) -> bytes | None:
        """Return a copy of the look-up table, because results may overwrite it."""
        return (
            None if self._table is None else sram[self._table : self._table + TABLE_BYTES].tobytes()
        )

    def bind(
        self, results: ResultConverter, scratch: Workspace, band: _Band, shape: tuple[int, int]
    ) -> Callable[[NDArray[Any], bytes | None], None]:
        """Return a function that converts sums and writes the results to the scratchpad.

        The sums have the ``shape`` (positions, channels). Zeros follow the last channel.
        """
        result = self.result
        positions, channels = shape
        found = scratch.array("result", shape, results.finish.dtype)
        if results.finish.requantise and not results.finish.is_float:
            outputs = slice(result.channels)
            if results.finish.partial is not None and result.channels < channels:
                bias = results.bias.reshape(-1, channels)[:, outputs].reshape(-1)
                results = replace(results, bias=bias)
            size = shape
            convert = results.bind(found[:, outputs], 0, 1, band.first)
        else:
            outputs = slice(None)
            size = positions // band.wide, band.wide * channels
            repeated = self._repeat_results(results, band.wide, channels)
            convert = repeated.bind(found.reshape(size), 0, 1, band.first // band.wide)
        padding = found[:, result.channels :]
        target = result.atoms(results.machine.sram, band.first, positions)
        packed = found.view(target.dtype)

        def store(sums: NDArray[Any], table: bytes | None) -> None:
            convert(sums.reshape(size)[:, outputs])
            if table is not None:
                found[...] = np.frombuffer(found.tobytes().translate(table), np.int8).reshape(shape)
            if padding.size:
                padding.fill(0)
            np.copyto(target, packed)

        return store

    def _repeat_results(
        self, results: ResultConverter, times: int, channels: int
    ) -> ResultConverter:
        """Return a converter whose channel records are repeated for ``times`` positions.

        Conversion of longer rows is cheaper. The records include padding channels.
        """
        kept = self._kept.get(times)
        if kept is None or kept[0] is not results:
            kept = self._kept[times] = results, _repeat_records(results, times, channels)
        return kept[1]


def _repeat_records(results: ResultConverter, times: int, channels: int) -> ResultConverter:
    """Return a converter for rows of ``times`` positions with ``channels`` each."""
    given = results.records
    records = np.zeros((given.shape[1], times, channels), given.dtype)
    records[:, :, : len(given)] = given.T[:, np.newaxis]
    wide = records.reshape(len(records), -1).T
    finish = replace(results.finish, channels=len(wide))
    bias = wide[:, 0] if finish.partial is None else results.bias
    added = None if results.bias_float is None else bias.astype(np.float32)
    return ResultConverter(finish, results.machine, results.scratch, wide, bias, added)


@dataclass(frozen=True, eq=False)
class _PixelProduct:
    """Convolution computed as a product of pixels and weights.

    ``fill`` is the value of padding; ``way`` is the implementation of the product.
    """

    ending: _Ending
    shape: WindowRegisters
    source: PackedTensor
    fill: int
    way: Products
    weights: Reader

    def bind(self, results: ResultConverter, scratch: Workspace) -> Callable[[], None]:
        """Return a function that computes and stores the results, band by band."""
        sram = results.machine.sram
        channels = self.ending.result.surfaces * self.ending.result.atom
        channels //= np.dtype(results.finish.dtype).itemsize
        read, image = bind_image(self.shape, self.source, self.fill, sram, scratch)
        left = self.way.prepare_left(image, scratch)
        bands = []
        for band in self.ending.bands:
            gather, columns = self._bind_columns(left, band, scratch)
            size = len(columns), channels
            bands.append((gather, columns, self.ending.bind(results, scratch, band, size)))

        def run() -> None:
            weights = self.weights(sram)
            table = self.ending.table(sram)
            read()
            self.way.prepare_left(image, scratch)
            for gather, columns, store in bands:
                gather()
                store(self._sums(columns, weights, scratch), table)

        return run

    def _bind_columns(
        self, image: NDArray[Any], band: _Band, scratch: Workspace
    ) -> tuple[Callable[[], None], NDArray[Any]]:
        """Return the inputs of a band's kernel taps, and a function that copies them.

        Their shape is (results, KH * KW * channels). The input pixels ``image`` have the shape
        (rows, columns, channels).
        """
        shape = self.shape
        _, columns, channels = image.shape
        first = image[band.top * shape.sy :]
        if shape.kh == shape.kw == shape.sx == shape.sy == 1 and columns == shape.ow:
            return _do_nothing, first[: band.rows].reshape(-1, channels)
        side = shape.kw if shape.dx == 1 else 1
        pixel = channels * image.itemsize
        item = f"V{side * pixel}"
        size = (band.rows, shape.ow, shape.kh, shape.kw // side)
        row = columns * pixel
        strides = (shape.sy * row, shape.sx * pixel, shape.dy * row, shape.dx * pixel)
        found = scratch.array(
            "columns", (band.rows * shape.ow, shape.kh * shape.kw * channels), image.dtype
        )
        taps = np.ndarray(size, item, first, 0, strides)
        return partial(np.copyto, found.view(item).reshape(size), taps), found

    def _sums(self, left: NDArray[Any], right: NDArray[Any], scratch: Workspace) -> NDArray[Any]:
        longest = self.way.longest
        if len(right) <= longest:
            return self.way.multiply(left, right, scratch)
        parts = (
            self.way.multiply(np.ascontiguousarray(left[:, some]), right[some], scratch)
            for some in spans(len(right), longest)
        )
        return add_chunks(parts, (len(left), right.shape[1]), scratch)


def _do_nothing() -> None:
    """Do nothing: the data is where it is needed."""


def bind_image(
    shape: WindowRegisters, source: PackedTensor, fill: int, sram: Bytes, scratch: Workspace
) -> tuple[Callable[[], None], NDArray[np.int8]]:
    """Return the input pixels that the sliding windows read, and a function that copies them.

    Their shape is (rows, columns, channels). Pixels in the padding have the value ``fill``.
    """
    channels = source.surfaces * source.atom
    if not shape.padded and source.surfaces == 1:
        size = shape.ih, shape.iw, channels
        return _do_nothing, np.ndarray(size, np.int8, sram, source.address)
    stored = source.atoms(sram, 0, source.positions)
    rows = max(shape.rows, shape.top + shape.ih)
    columns = max(shape.columns, shape.left + shape.iw)
    if not shape.padded:
        rows = shape.ih
        columns = shape.iw
    image: NDArray[np.int8] = scratch.array("image", (rows, columns, channels), np.int8)
    inner = image.view(stored.dtype)[
        shape.top : shape.top + shape.ih, shape.left : shape.left + shape.iw
    ]
    pixels = stored.reshape(shape.ih, shape.iw, source.surfaces)

    def read() -> None:
        if shape.padded:
            image.fill(fill)
        np.copyto(inner, pixels)

    return read, image


def depthwise(command: Command, arch: Arch, kept: WeightStore) -> Attempt | None:
    """Prepare an ``OP_DEPTH_CONV`` on packed tensors; None if it must run on dense tensors."""
    element = element_bytes(command)
    fill = command["EX_INPUT_ZERO_POINT"]
    tables = table_count(command)
    shape = window(command, element)
    if shape is None or tables > 1 or shape.kh * shape.kw > CHUNK or not -128 <= fill <= 127:
        return None
    source, blocks, *_, result = operand_layouts(command, arch)
    assert isinstance(source, Atoms)
    assert isinstance(blocks, Blocks)
    assert isinstance(result, Atoms)
    pixels, results = (describe_packed_tensor(layout, command, arch) for layout in (source, result))
    channels = pixels.surfaces * pixels.atom
    size = shape.kw, shape.kh, shape.ow, channels

    def make(stored: Bytes) -> NDArray[Any]:
        plain = np.empty(shape.oc * shape.kh * shape.kw, np.uint8)
        found = np.zeros(size, np.float32)
        blocks.read(stored, plain)
        found[..., : shape.oc] = plain.view(np.int8).reshape(shape.oc, 1, shape.kh, shape.kw).T
        return found.reshape(*size[:2], -1)

    use = depthwise, size, shape.oc, blocks.nbytes
    weights = kept.reader(command["EX_OPERAND_ADDRESS"], blocks.nbytes, use, make)
    bands = _bands(shape, _PIXEL_ELEMENTS // (channels * shape.sy * shape.sx), channels)
    run = _PixelWindows(_Ending(results, bands, command, tables), shape, pixels, fill, weights)
    return _prepare_product(command, arch, shape, shape.kh * shape.kw, bind_once(run.bind))


@dataclass(frozen=True, eq=False)
class _PixelWindows:
    """Depthwise convolution of packed tensors, computed pixel by pixel."""

    ending: _Ending
    shape: WindowRegisters
    source: PackedTensor
    fill: int
    weights: Reader

    def bind(self, results: ResultConverter, scratch: Workspace) -> Callable[[], None]:
        """Return a function that computes and stores the results, band by band."""
        sram = results.machine.sram
        shape = self.shape
        read, image = bind_image(shape, self.source, self.fill, sram, scratch)
        channels = image.shape[2]
        weights_size = shape.kw, shape.kh, shape.ow * channels
        bands = []
        for band in self.ending.bands:
            part = shape if band.rows == shape.oh else replace(shape, oh=band.rows)
            rows = image[band.top * shape.sy :][: part.rows]
            copies, pixels = _bind_phases(rows, shape.sx, scratch)
            add = bind_sums_by_pixels(part, pixels, weights_size, scratch)
            size = part.pixels, channels
            bands.append((copies, add, self.ending.bind(results, scratch, band, size)))

        def run() -> None:
            weights = self.weights(sram)
            table = self.ending.table(sram)
            read()
            for copies, add, store in bands:
                for target, taken in copies:
                    np.copyto(target, taken)
                store(add(weights), table)

        return run


def _bind_phases(
    rows: NDArray[np.int8], stride: int, scratch: Workspace
) -> tuple[list[tuple[NDArray[np.float32], NDArray[np.int8]]], NDArray[np.float32]]:
    """Return pixels as float32, with columns grouped by their phase of the stride.

    ``rows`` has the shape (rows, columns, channels), the pixels (rows, phases, columns, channels).
    The list has the target and the source of each copy.
    """
    height, columns, channels = rows.shape
    size = (height, stride, -(-columns // stride), channels)
    found: NDArray[np.float32] = scratch.array("pixels", size, np.float32)
    taken = [rows[:, phase::stride] for phase in range(stride)]
    copies = [(found[:, phase, : one.shape[1]], one) for phase, one in enumerate(taken)]
    return copies, found
