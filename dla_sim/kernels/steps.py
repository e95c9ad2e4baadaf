"""Tables of steps: the commands of a program, prepared for few compiled calls.

A command's weights, channel records and look-up tables are known before the program runs if
transfers copy them from constant bytes of the system memory. Such a command becomes rows of
integers, which `dla_sim.kernels.stepping` executes. All other commands keep their kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.atoms import (
    PackedTensor,
    arrange_by_pixels,
    describe_packed_tensor,
    has_few_groups,
)
from dla_sim.kernels.attempt import disjoint
from dla_sim.kernels.compiled import Compiled
from dla_sim.kernels.dispatch import Kernels, Step, carry_out
from dla_sim.kernels.elementwise import describe_transfer, is_written_once
from dla_sim.kernels.pairs import exact_in_float64
from dla_sim.kernels.products import CHUNK, Sums, finish_of
from dla_sim.kernels.results import LARGEST_SQUARES, PRODUCT, Finish
from dla_sim.kernels.windows import WindowRegisters, window
from isa.access import Range
from isa.arch import Arch
from isa.instruction import Atoms, Blocks, Command, Machine
from isa.ops import movement
from isa.ops.lookup import TABLE_BYTES, elements, table_count
from isa.ops.pooling import GLOBAL_AVERAGE
from isa.ops.windows import ACCUMULATE
from isa.packing import Bytes, operand_layouts
from isa.registers import float_value

Row = tuple[int, ...]
_COLUMNS = 27
_HALF = 8
"""Channels that a tile stores together; atoms are a multiple of them."""
_LINE = 64


class KnownBytes:
    """Scratchpad bytes that are the same in every run, at one point of the order of commands."""

    def __init__(self, arch: Arch, sram_bytes: int, dram: Bytes, written: Iterable[Range]) -> None:
        constant = np.ones(dram.size, np.uint8)
        for first, end in written:
            constant[first:end] = 0
        self._values = Machine(arch, np.zeros(sram_bytes, np.uint8), dram)
        self._known = Machine(arch, np.zeros(sram_bytes, np.uint8), constant)

    def apply(self, command: Command) -> None:
        """Account for the writes of a command."""
        reads = command.instruction.mnemonic == "OP_DMA_READ"
        copy = describe_transfer(command) if reads else None
        if copy is not None:
            copy.move(self._values)
            copy.move(self._known)
            return
        for access in command.instruction.operands(command, self._values.arch).writes:
            if access.space == "sram":
                self._known.sram[access.address : access.end] = 0

    def read(self, first: int, count: int) -> Bytes | None:
        """Return ``count`` bytes from address ``first``, or None if any of them is unknown."""
        place = slice(first, first + count)
        return self._values.sram[place].copy() if self._known.sram[place].all() else None


class _Constants:
    """Constant arrays of a table in one buffer; equal arrays share their bytes."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}
        self._size = 0

    def add(self, values: NDArray[Any]) -> int:
        """Return the offset of an array in the buffer."""
        data = values.tobytes() + bytes(-values.nbytes % _LINE)
        if data not in self._offsets:
            self._offsets[data] = self._size
            self._size += len(data)
        return self._offsets[data]

    def join(self) -> NDArray[np.int8]:
        return np.frombuffer(bytearray().join(self._offsets) or bytearray(_LINE), np.int8)


def prepare_steps(
    commands: Sequence[Command],
    kernels: Kernels,
    sram_bytes: int,
    dram: Bytes,
    written: Iterable[Range],
) -> tuple[Step, ...]:
    """Return functions that execute ``commands`` in order.

    Args:
        commands: commands of a program, checked, in order of completion.
        kernels: execute single commands; their compiled code executes tables.
        sram_bytes: size of the scratchpad that the commands use.
        dram: the system memory before a run.
        written: ranges of ``dram`` that differ between runs.
    """
    compiled = kernels.compiled
    assert compiled is not None
    known = KnownBytes(kernels.arch, sram_bytes, dram, written)
    builder = _RowBuilder(kernels.arch, known, compiled)
    found: list[Step | list[Row]] = []
    for command in commands:
        rows = builder.rows(command)
        known.apply(command)
        if rows is None:
            found.append(partial(carry_out, kernels.run, command))
        elif found and isinstance(found[-1], list):
            found[-1] += rows
        else:
            found.append(rows)
    constants = builder.constants.join()
    buffers = [np.zeros(n, np.int8) for n in (builder.packed_bytes, builder.scratch_bytes)]

    def run(table: NDArray[np.int64], machine: Machine) -> None:
        memories = machine.sram.view(np.int8), machine.dram.view(np.int8)
        compiled.run_steps(table, *memories, *buffers, constants)

    return tuple(partial(run, _make_table(one)) if isinstance(one, list) else one for one in found)


def _make_table(rows: Sequence[Row]) -> NDArray[np.int64]:
    """Return rows as one array, filled with zeros."""
    table = np.zeros((len(rows), _COLUMNS), np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


@dataclass(frozen=True)
class _KnownProduct:
    """Operands of a convolution on packed tensors, as far as its row needs them."""

    command: Command
    shape: WindowRegisters
    source: PackedTensor
    result: PackedTensor
    weights: NDArray[np.int8]
    finish: Finish
    records: NDArray[np.int32]
    table: Bytes | None


class _RowBuilder:
    """Builder of the rows of commands.

    ``scratch_bytes`` and ``packed_bytes`` are the sizes of the two buffers that the rows need.
    """

    def __init__(self, arch: Arch, known: KnownBytes, compiled: Compiled) -> None:
        self.known = known
        self.constants = _Constants()
        self.scratch_bytes = _LINE
        self.packed_bytes = _LINE
        self._arch = arch
        self._compiled = compiled
        self._element = 4 // compiled.group
        self._rows = {
            "OP_CONV": self._convolution,
            "OP_GROUP_CONV": self._convolution,
            "OP_DEPTH_CONV": self._depthwise,
            "OP_DMA_READ": self._transfer,
            "OP_DMA_WRITE": self._transfer,
            "OP_SYNC": lambda command: [],
            "OP_E_ADD": self._addition,
            "OP_POOL": self._pooling,
            "OP_PERMUTE": self._permutation,
            "OP_LUT": self._look_up,
        }

    def rows(self, command: Command) -> list[Row] | None:
        """Return the rows of a command, or None if its kernel must execute it."""
        make = self._rows.get(command.instruction.mnemonic)
        return None if make is None else make(command)

    def _transfer(self, command: Command) -> list[Row] | None:
        copy = describe_transfer(command)
        if copy is None:
            return None
        *counts, nbytes = (*(1,) * (4 - len(copy.size)), *copy.size)
        strides = [
            (*(0,) * (3 - len(one)), *one)
            for one in (copy.sram_strides[:-1], copy.dram_strides[:-1])
        ]
        reading = int(copy.reading)
        return [(0, reading, copy.sram, copy.dram, *counts, nbytes, *strides[0], *strides[1])]

    def _permutation(self, command: Command) -> list[Row] | None:
        """Return the row of a copy, with dimensions that are dense on both sides merged."""
        if not is_written_once(command) or not self._is_disjoint(command):
            return None
        filled = command.fields["fill"]
        source, target = (movement.side(command, name) for name in ("INPUT", "OUTPUT"))
        dims: list[tuple[int, int, int]] = []
        for (count, written), (_, stride) in zip(target.dims, source.dims, strict=True):
            if count > 1:
                dims.append((written, 0 if filled else stride, count))
        merged = [(0, 0, 1)] * (4 - len(dims))
        for written, read, count in sorted(dims, reverse=True):
            if merged and merged[-1][:2] == (written * count, read * count):
                count *= merged.pop()[2]
                merged.insert(0, (0, 0, 1))
            merged.append((written, read, count))
        results, reads, counts = zip(*merged, strict=True)
        value = command["EX_INPUT_ZERO_POINT"]
        return [(9, filled, value, source.address, target.address, *counts, *reads, *results)]

    def _look_up(self, command: Command) -> list[Row] | None:
        """Return the row of a look-up in one known table."""
        source, operand, target = (
            command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT")
        )
        count = elements(command)
        table = self.known.read(operand, TABLE_BYTES)
        apart = source >= target or source + count <= target
        if command["EX_OUTPUT_CHANNELS"] != 1 or not count or table is None or not apart:
            return None
        at = self.constants.add(table)
        return [(5, target, 1, 0, 1, count, count, at, source - target)]

    def _product(self, command: Command, groups: int) -> _KnownProduct | None:
        """Return the operands of a convolution, or None if no row can execute it.

        ``groups`` is 0 for a depthwise convolution.
        """
        shape = window(command, 1)
        fill = command["EX_INPUT_ZERO_POINT"]
        tables = table_count(command)
        layouts = operand_layouts(command, self._arch)
        if (
            shape is None or tables > 1 or not -128 <= fill <= 127
            or command.fields.get(ACCUMULATE.name, 0) or not command.fields["requantise"]
            or shape.kh * shape.kw > CHUNK or self._arch.numerics != "onnxruntime"
            or (groups and (shape.ic % groups or shape.oc % groups))
        ):  # fmt: skip
            return None
        count = shape.kh * shape.kw * (shape.ic // groups if groups else 1)
        plain = np.empty(shape.oc * count, np.uint8)
        if not layouts:
            read, written = self._describe_copies(shape)
        elif isinstance(layouts[0], Atoms) and isinstance(layouts[-1], Atoms):
            read, written = (
                describe_packed_tensor(one, command, self._arch)
                for one in (layouts[0], layouts[-1])
            )
        else:
            return None
        blocks = layouts[1] if layouts else None
        if layouts and not isinstance(blocks, Blocks):
            return None
        nbytes = blocks.nbytes if isinstance(blocks, Blocks) else plain.size
        finish = finish_of(command, self._arch, Sums(shape.oc, shape.oc * shape.pixels, count))
        stored = self.known.read(command["EX_OPERAND_ADDRESS"], nbytes)
        if finish is None or stored is None:
            return None
        sizes = shape.kh, shape.kw, read.surfaces * read.atom, written.surfaces * written.atom
        if groups > 1 and not has_few_groups(groups, sizes):
            return None
        held = self.known.read(finish.address, finish.end - finish.address)
        table = self.known.read(command["EX_TABLE_ADDRESS"], TABLE_BYTES) if tables else None
        records = None if held is None else held.view("<i4").reshape(finish.channels, -1)
        if (
            records is None or (tables and table is None) or written.atom % _HALF
            or not self._is_disjoint(command) or not _fit(records, count)
        ):  # fmt: skip
            return None
        if isinstance(blocks, Blocks):
            blocks.read(stored, plain)
        else:
            plain = stored
        dense = plain.view(np.int8)
        weights = arrange_by_pixels(dense, shape, groups, sizes) if groups else dense
        return _KnownProduct(command, shape, read, written, weights, finish, records, table)

    def _is_disjoint(self, command: Command) -> bool:
        """Return True if the result of a command overlaps none of its operands."""
        found = command.instruction.operands(command, self._arch)
        result, *reads = [(one.address, one.end) for one in (*found.writes, *found.reads)]
        return disjoint(result, reads)

    def _convolution(self, command: Command) -> list[Row] | None:
        """Return the rows of a convolution.

        A step multiplies consecutive elements of one tap or, if one surface has all channels, of a
        kernel row.
        """
        groups = command.registers.get("EX_GROUPS", 1)
        channels = {command["EX_INPUT_CHANNELS"], command["EX_OUTPUT_CHANNELS"]}
        if channels == {groups} and not operand_layouts(command, self._arch):
            return self._depthwise(command)
        found = self._product(command, groups)
        if found is None:
            return None
        shape, source = found.shape, found.source
        rows, columns = _extend_size(shape)
        across, run = (1, shape.kw) if source.surfaces == 1 and shape.dx == 1 else (shape.kw, 1)
        size = source.atom * run
        deep = -(-size // self._compiled.group)
        tap, column, surface, group = np.ogrid[: shape.kh, :across, : source.surfaces, :deep]
        pixel = source.atom * self._element
        plane = rows * columns * pixel
        row = columns * pixel
        steps = surface * plane + tap * shape.dy * row + column * shape.dx * pixel + 4 * group
        kernel = found.weights.reshape(shape.kh, across, run, source.surfaces, source.atom, -1)
        deeper = np.zeros(
            (shape.kh, across, source.surfaces, deep * self._compiled.group, kernel.shape[-1]),
            np.int8,
        )
        deeper[:, :, :, :size] = kernel.swapaxes(2, 3).reshape(*deeper.shape[:3], size, -1)
        y, x = np.ogrid[: shape.oh, : shape.ow]
        places = y * shape.sy * row + x * shape.sx * pixel
        self.scratch_bytes = max(self.scratch_bytes, source.surfaces * plane + size * 4 + _LINE)
        kernels = deeper.reshape(steps.size, self._compiled.group, -1)
        image = self._describe_image(found, rows, columns)
        return self._finish_rows(
            found, (1, *image, *self._describe_tiles(found, places, steps, kernels))
        )

    def _depthwise(self, command: Command) -> list[Row] | None:
        """Return the rows of a depthwise convolution.

        A step multiplies consecutive taps of a kernel row. The scratch buffer first holds the
        padded input, then for every input row and output column the taps in the order of steps.
        """
        found = self._product(command, 0)
        if found is None or found.source.atom % _HALF or found.shape.ic != found.shape.oc:
            return None
        shape = found.shape
        rows, columns = _extend_size(shape)
        each = self._compiled.group
        groups = -(-shape.kw // each)
        channels = found.result.surfaces * found.result.atom
        tap, group = np.ogrid[: shape.kh, :groups]
        line = shape.ow * groups * _LINE
        y, x = np.ogrid[: shape.oh, : shape.ow]
        kernels = np.zeros((shape.kh, groups * each, channels), np.int8)
        kernels[:, : shape.kw, : shape.oc] = found.weights.reshape(
            shape.oc, shape.kh, shape.kw
        ).transpose(1, 2, 0)
        tiles = self._describe_tiles(
            found,
            y * shape.sy * line + x * groups * _LINE,
            tap * shape.dy * line + group * _LINE,
            kernels.reshape(shape.kh * groups, each, channels),
        )
        taps = (rows * columns + groups * each * shape.dx) * 16 * self._element
        taps += -taps % _LINE
        self.scratch_bytes = max(self.scratch_bytes, taps + rows * line + _LINE)
        sources = self._halves(found.source)
        image = self._describe_image(found, rows, columns)
        return self._finish_rows(
            found, (2, *image, *tiles, sources, groups, shape.sx, shape.dx, shape.ow, taps)
        )

    def _describe_image(self, found: _KnownProduct, rows: int, columns: int) -> Row:
        """Return the columns that describe the input of a convolution and its padding."""
        shape, source = found.shape, found.source
        fill = found.command["EX_INPUT_ZERO_POINT"]
        return (
            source.address, source.surfaces, source.surface, shape.ih, shape.iw, source.atom, rows,
            columns, shape.top, shape.left, fill ^ -128 if self._element == 1 else fill,
        )  # fmt: skip

    def _describe_tiles(
        self,
        found: _KnownProduct,
        places: NDArray[np.int64],
        steps: NDArray[np.int64],
        kernels: NDArray[np.int8],
    ) -> Row:
        """Return the columns that describe the tiles of a product.

        ``places`` are the offsets of the positions in the input, ``steps`` those of the steps, and
        ``kernels`` the weights (steps, elements, channels). Positions at the end are repeated to
        fill the last tile.
        """
        shape, result, finish = found.shape, found.result, found.finish
        steps_count, each, channels = kernels.shape
        vectors = -(-channels // 16)
        kind = np.int8 if self._element == 1 else np.int16
        weights = np.zeros((steps_count, each, 16 * vectors), kind)
        weights[:, :, :channels] = kernels
        records = np.zeros((5, 16 * vectors), np.int32)
        records[0, : shape.oc] = found.records[:, 0]
        if self._element == 1:
            records[0] -= 128 * weights.sum(axis=(0, 1), dtype=np.int32)
        records[1, : shape.oc] = found.records[:, 1]
        limits = np.array([finish.low, finish.high]) - finish.zero_point
        low, high = limits.astype(np.float32).view(np.int32)
        records[2:4] = np.float32(-finish.zero_point).view(np.int32)
        records[2, : shape.oc] = low
        records[3, : shape.oc] = high
        records[4] = finish.zero_point
        add = self.constants.add
        filled = [
            np.pad(one.reshape(-1), (0, self._compiled.positions), mode="edge").astype(np.int64)
            for one in (places, np.arange(shape.pixels) * result.atom)
        ]
        tiled = weights.reshape(steps_count, each, vectors, 16).transpose(2, 0, 3, 1)
        return (
            add(filled[0]), shape.pixels, add(steps.astype(np.int64)), steps_count, add(tiled),
            add(records.reshape(5, vectors, 16).swapaxes(0, 1)), self._halves(result),
            add(filled[1]), vectors,
        )  # fmt: skip

    def _halves(self, tensor: PackedTensor) -> int:
        """Return the offset of a table: the addresses of 8 channels, twice for every vector.

        A missing second half of the last vector has the address of the first.
        """
        number = np.arange(tensor.surfaces * tensor.atom // _HALF)
        surface, half = np.divmod(number, tensor.atom // _HALF)
        places = tensor.address + surface * tensor.surface + half * _HALF
        return self.constants.add(np.pad(places, (0, number.size % 2), mode="edge"))

    def _describe_copies(self, shape: WindowRegisters) -> list[PackedTensor]:
        """Return the packed copies of a dense input and result, one after the other."""
        found: list[PackedTensor] = []
        end = 0
        for channels, positions in ((shape.ic, shape.ih * shape.iw), (shape.oc, shape.pixels)):
            atom = channels + -channels % 16
            found.append(PackedTensor(end, 0, 1, atom, positions, channels))
            end += atom * positions
        self.packed_bytes = max(self.packed_bytes, end)
        return found

    def _finish_rows(self, found: _KnownProduct, row: Row) -> list[Row]:
        """Return the rows of a product: copies of dense tensors, the product, and its look-up."""
        shape, source, result = found.shape, found.source, found.result
        rows = [row]
        if not operand_layouts(found.command, self._arch):
            planes = (shape.input, shape.input_plane), (shape.output, shape.output_plane)
            copies = [
                (6, back, *plane, one.channels, one.positions, one.address, one.atom)
                for back, (plane, one) in enumerate(zip(planes, (source, result), strict=True))
            ]
            rows = [copies[0], (row[0] + 6, *row[1:]), copies[1]]
            result = PackedTensor(*planes[1], shape.oc, 1, shape.pixels, shape.oc)
        if found.table is not None:
            rows.append((
                5, result.address, result.surfaces, result.surface, result.positions, result.atom,
                result.channels, self.constants.add(found.table),
            ))  # fmt: skip
        return rows

    def _addition(self, command: Command) -> list[Row] | None:
        floats = [float_value(command[f"EX_SCALE_{name}"]) for name in "ABY"]
        first, second, result = (
            command[f"EX_{name}_ADDRESS"] for name in ("INPUT", "OPERAND", "OUTPUT")
        )
        count, offset = command["EX_LENGTH"], command["EX_OFFSET"]
        limits = command["EX_CLAMP_LOW"], command["EX_CLAMP_HIGH"]
        apart = min(first, second) >= result or disjoint(
            (result, result + count), [(one, one + count) for one in (first, second)]
        )
        if (
            self._arch.numerics != "onnxruntime" or limits[0] > limits[1] or table_count(command)
            or not exact_in_float64(*floats) or not apart
        ):  # fmt: skip
            return None
        at = self.constants.add(np.array([*floats, *(one + offset for one in limits)], np.float64))
        return [(3, count, first, second, result, offset, at // 8)]

    def _pooling(self, command: Command) -> list[Row] | None:
        """Return the row of a global average pooling on packed tensors."""
        shape = window(command, 1)
        layouts = operand_layouts(command, self._arch)
        low, high, zero_in, zero = (
            command[f"EX_{name}"]
            for name in ("CLAMP_LOW", "CLAMP_HIGH", "INPUT_ZERO_POINT", "OUTPUT_ZERO_POINT")
        )
        scale = np.float32(float_value(command["EX_SCALE_A"]))
        if (
            command.fields["mode"] != GLOBAL_AVERAGE or self._arch.numerics != "onnxruntime"
            or shape is None or low > high or shape.ih * shape.iw * 128 > 1 << 24
            or not 0 < scale < 1e20 or table_count(command) or not self._is_disjoint(command)
        ):  # fmt: skip
            return None
        step = command["EX_OUTPUT_PLANE"] or 1
        data = PackedTensor(
            shape.input, shape.input_plane, shape.ic, 1, shape.ih * shape.iw, shape.ic
        )
        result = PackedTensor(shape.output, step, shape.ic, 1, 1, shape.ic)
        if layouts:
            data, result = (
                describe_packed_tensor(one, command, self._arch)
                for one in layouts
                if isinstance(one, Atoms)
            )
        at = self.constants.add(np.array([scale, low - zero, high - zero], np.float64))
        return [
            (
                4, data.address, data.surfaces, data.surface, data.positions, data.atom,
                data.channels, result.address, result.surface, zero_in, zero, at // 8,
            )
        ]  # fmt: skip


def _fit(records: NDArray[np.int32], products: int) -> bool:
    """Return True if sums fit int32 and no scaled sum exceeds float32."""
    scales = records[:, 1].view(np.float32).astype(np.float64)
    largest = np.abs(records[:, 0].astype(np.int64)).max()
    return bool(
        largest + products * PRODUCT < 1 << 31 and np.vdot(scales, scales) <= LARGEST_SQUARES
    )


def _extend_size(shape: WindowRegisters) -> tuple[int, int]:
    """Return the rows and columns of the input with the padding that its windows cover."""
    if not shape.padded:
        return shape.ih, shape.iw
    return max(shape.rows, shape.top + shape.ih), max(shape.columns, shape.left + shape.iw)
