"""Layers: operations on one machine, with tilings and properties for scheduling and emission.

A tiling says how an operation is divided into tiles and in which order they run. It determines the
scratchpad bytes that the layer needs, which may exceed the scratchpad.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Span, Tile, make_tile, split
from byoc.operators.operator import Operator
from byoc.operators.packing import make_packed_geometry
from byoc.operators.records import ChannelConstants
from byoc.options import Order
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Instruction, ceil_div
from isa.ops.lookup import EX_TABLE_ADDRESS, LOOK_UP
from isa.plugins import variant


@dataclass(frozen=True, eq=False)
class OperatorLayer:
    """Operation on one machine, with its tile geometry and its registers.

    ``registers`` and ``fields`` are common to all tiles.
    """

    operation: Operator
    geometry: Geometry
    registers: Mapping[str, int]
    fields: Mapping[str, int]

    @property
    def name(self) -> str:
        return self.operation.name

    @cached_property
    def constants(self) -> ChannelConstants | None:
        """Channel records and weights of the operation.

        They are cached because every candidate tiling needs them.
        """
        return self.operation.constants()

    @property
    def nest(self) -> LoopNest:
        return self.geometry.nest

    @property
    def mnemonic(self) -> str:
        """Mnemonic of the instruction, or COPY if there is none."""
        instruction = self.geometry.instruction
        return "COPY" if instruction is None else instruction.mnemonic


def make_layer(operation: Operator, arch: Arch) -> OperatorLayer:
    """Return an operation as a layer of one machine.

    Raises InputError for an instruction that the machine's ISA lacks, and for a register or field
    that the operator sets and the instruction lacks.
    """
    mnemonic = operation.mnemonic
    loops = operation.loops
    isa = variant(arch.isa)
    if mnemonic is not None and mnemonic not in isa.mnemonics:
        raise InputError(
            f"layer '{operation.name}' needs {mnemonic}, which ISA {arch.isa} does not have; "
            "choose another ISA"
        )
    registers, fields = operation.settings(arch)
    if operation.tables is not None:
        fields = {**fields, LOOK_UP.name: 1 if len(operation.tables) == 1 else 2}
    constants = operation.constants()
    weights = constants.weights if constants is not None else None
    records = constants is not None and constants.bias is not None
    weight_bytes = 0 if weights is None else weights[0].size
    apart = loops.second != "alike"
    if apart:
        weight_bytes = operation.inputs[1].nbytes // loops.nest.channels
    plain = Geometry(
        operator=type(operation),
        instruction=isa.by_mnemonic[mnemonic][0] if mnemonic is not None else None,
        nest=loops.nest,
        inputs=1 if apart else len(operation.inputs),
        weight_bytes=weight_bytes,
        record_bytes=arch.channel_record_bytes if records else 0,
        input_bytes=operation.inputs[0].element_bytes if operation.inputs else 1,
        output_bytes=operation.output.element_bytes,
        single=loops.single,
        registers=tuple(
            (name, value) for name, value in registers.items() if name not in operation.numbers
        ),
        fields=tuple(
            (name, value) for name, value in fields.items() if name not in operation.numbers
        ),
        second=loops.second,
        tables="none"
        if operation.tables is None
        else "one"
        if len(operation.tables) == 1
        else "each",
        repeats=loops.repeats,
        dims=loops.dims,
        depths=loops.depths,
        planes=loops.planes,
    )
    geometry = make_packed_geometry(plain, operation, arch)
    layer = OperatorLayer(operation, geometry, registers, fields)
    if geometry.instruction is not None:
        _prove_settings(layer, geometry.instruction)
    return layer


def _prove_settings(layer: OperatorLayer, instruction: Instruction) -> None:
    """Raise InputError if ``instruction`` lacks a register or field that the operator sets."""
    geometry = layer.geometry
    nest = layer.nest
    whole = make_tile(nest, Span(0, nest.channels), Span(0, nest.rows))
    shaped = geometry.tile_registers(whole)
    wanted = (*address_registers(geometry), *layer.registers, *shaped)
    missing = [name for name in wanted if name not in instruction.registers]
    declared = {field.name for field in instruction.fields}
    missing += [f"field {name}" for name in layer.fields if name not in declared]
    if missing:
        raise InputError(
            f"layer '{layer.name}': {instruction.mnemonic} does not have {missing[0]}; "
            f"correct the operator {type(layer.operation).__name__}"
        )


def address_registers(geometry: Geometry) -> tuple[str, ...]:
    """Return the names of the registers that locate a tile's operands and result.

    An instruction without them cannot compute the tile.
    """
    names = ["EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS"]
    several = geometry.inputs > 1 and not geometry.operator.traits.gathers
    names += ["EX_OPERAND_ADDRESS"] if geometry.weight_bytes or several else []
    names += ["EX_CHANNEL_ADDRESS"] if geometry.record_bytes else []
    names += [EX_TABLE_ADDRESS.name] if geometry.tables != "none" else []
    return (*names, *(("EX_INPUT_PLANE", "EX_OUTPUT_PLANE") if geometry.planes else ()))


class BufferSlots(NamedTuple):
    """Number of copies of each tile buffer.

    1: single; 2: double-buffered; more if every tile has its own buffer.
    """

    input: int = 1
    constants: int = 1
    output: int = 1


class Resident(NamedTuple):
    """Operands that stay in the scratchpad as whole tensors and need no tile buffers.

    ``follows``: the layer runs after others, whose work can hide the first load of its constants.
    ``beside``: operands as large as the result that are loaded tile by tile for the element-wise
    layer fused into this one.
    """

    inputs: tuple[bool, ...]
    output: bool = False
    follows: bool = False
    beside: int = 0


class Tiling(NamedTuple):
    """Tile size, ``channels`` by ``rows`` of the output, and the order of the loops.

    The outer loop runs over channels or rows. ``depth`` is the number of input channels per tile;
    the next tiles add to its sums, in the innermost loop. 0: all input channels in one tile.
    """

    channels: int
    rows: int
    channels_outer: bool = False
    slots: BufferSlots = BufferSlots()
    depth: int = 0


def order_of(tiling: Tiling) -> Order:
    """Return whether a tiling's outer loop runs over channels or over rows."""
    return "channels" if tiling.channels_outer else "rows"


def make_streamed(geometry: Geometry) -> Resident:
    """Return a :class:`Resident` for a layer whose operands all pass through tile buffers."""
    return Resident((False,) * geometry.inputs)


def streams(geometry: Geometry, resident: Resident) -> tuple[int, ...]:
    """Return the numbers of the operands that a layer loads into tile buffers."""
    return tuple(index for index in range(geometry.inputs) if not resident.inputs[index])


def has_loaded_constants(geometry: Geometry, resident: Resident) -> bool:
    """Return True if weights and records, or an operand used as weights, need tile buffers."""
    return geometry.has_constants and not any(resident.inputs[geometry.inputs :])


def tiles(geometry: Geometry, tiling: Tiling) -> tuple[Tile, ...]:
    nest = geometry.nest
    channels = split(nest.channels, tiling.channels)
    rows = split(nest.rows, tiling.rows)
    chunks = split(nest.input_channels, tiling.depth) if tiling.depth else (None,)
    if tiling.channels_outer:
        return tuple(
            make_tile(nest, part, band, depth)
            for part in channels
            for band in rows
            for depth in chunks
        )
    return tuple(
        make_tile(nest, part, band, depth) for band in rows for part in channels for depth in chunks
    )


def sizes(tile: Tile) -> tuple[int, int, int]:
    """Return the numbers of output channels, rows and input channels of a tile.

    The number of input channels is 0 if the tile has all of them.
    """
    return tile.output.channels.size, tile.output.rows.size, tile.depth.size if tile.depth else 0


def counts(geometry: Geometry, tiling: Tiling) -> tuple[int, int]:
    """Return the number of channel tiles and of row bands of a tiling."""
    return ceil_div(geometry.nest.channels, tiling.channels), ceil_div(
        geometry.nest.rows, tiling.rows
    )


def chunk_count(geometry: Geometry, tiling: Tiling) -> int:
    """Return the number of tiles whose partial sums add up to one result."""
    return ceil_div(geometry.nest.input_channels, tiling.depth) if tiling.depth else 1


def tile_count(geometry: Geometry, tiling: Tiling) -> int:
    parts, bands = counts(geometry, tiling)
    return parts * bands * chunk_count(geometry, tiling)


def align(nbytes: int, alignment: int) -> int:
    """Round ``nbytes`` up to a multiple of ``alignment``."""
    return -(-nbytes // alignment) * alignment


class Buffers(NamedTuple):
    """Aligned sizes in bytes of the tile buffers of a tiling, and the numbers of its tiles.

    The bytes are listed for each kind of buffer. ``inputs`` has one entry per operand that tiles
    divide, resident or not. ``sums`` has a single buffer. 0 bytes: no such buffer.
    """

    inputs: tuple[int, ...]
    constants: int
    tables: int
    output: int
    sums: int
    input_tiles: tuple[int, ...]
    constant_tiles: int
    table_tiles: int
    output_tiles: int

    def count_taken(self, slots: BufferSlots, resident: Resident, *, constants: bool) -> int:
        """Return the total size in bytes of all tile buffers with these numbers of copies.

        There is at most one copy per tile. With ``constants`` the buffers of loaded constants are
        included.
        """
        total = self.sums + min(slots.constants, self.table_tiles) * self.tables
        for nbytes, count, near in zip(
            self.inputs, self.input_tiles, resident.inputs, strict=False
        ):
            if not near:
                total += min(slots.input, count) * nbytes
        if constants:
            total += min(slots.constants, self.constant_tiles) * self.constants
        if not resident.output:
            total += (1 + resident.beside) * min(slots.output, self.output_tiles) * self.output
        return total

    def limit_slots(
        self, slots: BufferSlots, resident: Resident, *, constants: bool
    ) -> BufferSlots:
        """Return the numbers of buffer copies, limited to the number of tiles.

        Tilings with equal results need equal buffers.
        """
        inputs = [
            count
            for count, near in zip(self.input_tiles, resident.inputs, strict=False)
            if not near
        ]
        kept = max(self.table_tiles if self.tables else 1, self.constant_tiles if constants else 1)
        outputs = 1 if resident.output or not self.output else self.output_tiles
        return BufferSlots(
            min(slots.input, max(inputs, default=1)),
            min(slots.constants, kept),
            min(slots.output, outputs),
        )


def buffers_of(geometry: Geometry, tiling: Tiling, alignment: int) -> Buffers:
    """Return the sizes of the tile buffers of a tiling, each rounded up to ``alignment``.

    The slots of the tiling are ignored.
    """
    channels = tiling.channels
    rows = tiling.rows
    depth = tiling.depth
    parts, bands = counts(geometry, tiling)
    chunks = chunk_count(geometry, tiling)
    inputs = range(geometry.inputs)
    return Buffers(
        inputs=tuple(
            [
                align(geometry.input_tile_bytes(channels, rows, index, depth), alignment)
                for index in inputs
            ]
        ),
        constants=align(geometry.constant_bytes(channels, depth), alignment)
        if geometry.has_constants
        else 0,
        tables=align(geometry.table_bytes(channels), alignment),
        output=0
        if geometry.in_place
        else align(geometry.output_tile_bytes(channels, rows), alignment),
        sums=align(geometry.sums_bytes(channels, rows), alignment) if depth else 0,
        input_tiles=tuple([geometry.input_tiles(index, parts, bands) * chunks for index in inputs]),
        constant_tiles=parts * chunks,
        table_tiles=parts if geometry.tables == "each" else 1,
        output_tiles=parts * bands,
    )


def compute_working_set(
    geometry: Geometry, tiling: Tiling, resident: Resident, alignment: int
) -> int:
    """Return the size in bytes of all tile buffers, each rounded up to ``alignment``.

    Resident tensors are not counted.
    """
    found = buffers_of(geometry, tiling, alignment)
    return found.count_taken(
        tiling.slots, resident, constants=has_loaded_constants(geometry, resident)
    )


@dataclass(frozen=True)
class Shortage:
    """Working set of a tiling that exceeds the capacity of the scratchpad.

    The working set exceeds ``capacity`` bytes; ``buffers`` lists its buffers as (name, bytes).
    """

    buffers: tuple[tuple[str, int], ...]
    capacity: int

    @property
    def needed(self) -> int:
        """Size in bytes of the working set."""
        return sum(nbytes for _, nbytes in self.buffers)

    @property
    def missing(self) -> int:
        """Bytes by which the working set exceeds the capacity."""
        return self.needed - self.capacity

    def __str__(self) -> str:
        """List every buffer of the working set, their sum and the missing bytes."""
        listed = " + ".join(f"{name} {nbytes}" for name, nbytes in self.buffers)
        return (
            f"does not fit in {self.capacity} bytes of SRAM: {listed} = {self.needed} bytes, "
            f"{self.missing} missing"
        )


def find_shortage(geometry: Geometry, tiling: Tiling, arch: Arch) -> Shortage | None:
    """Return the tile buffers of ``tiling`` if together they exceed the scratchpad, or None.

    All operands pass through tile buffers; none stays in the scratchpad as a whole tensor.
    """
    needed = compute_working_set(geometry, tiling, make_streamed(geometry), arch.granule)
    if needed <= arch.sram_bytes:
        return None
    buffers = list(buffer_sizes(geometry, tiling).items())
    padding = needed - sum(nbytes for _, nbytes in buffers)
    if padding:
        buffers.append(("alignment", padding))
    return Shortage(tuple(buffers), arch.sram_bytes)


def buffer_sizes(geometry: Geometry, tiling: Tiling) -> dict[str, int]:
    """Return the size in bytes of each tile buffer, by descriptive name."""
    nest = geometry.nest
    channels = tiling.channels
    unit = "column" if nest.matrix else "channel"
    many = "s" if channels > 1 else ""
    band = "" if tiling.rows == nest.rows else " rows"
    sizes = {}
    whole = "group" if nest.group_inputs > 1 else unit
    source = f"input {whole}{band}" if nest.grouped else f"input{band}"
    for number in range(geometry.inputs):
        nbytes = geometry.input_tile_bytes(channels, tiling.rows, number, tiling.depth)
        sizes[source if number == 0 else f"second {source}"] = nbytes
    if not geometry.in_place:
        kind = " (int32)" if geometry.output_bytes == 4 else ""
        name = f"output {unit}{many}{kind}" if not band else f"output row{kind}"
        sizes[name] = geometry.output_tile_bytes(channels, tiling.rows)
    if geometry.weight_bytes:
        sizes[
            geometry.operator.traits.constants_name
            if geometry.second == "alike"
            else "second input"
        ] = geometry.constant_bytes(channels, tiling.depth) - geometry.weights_offset(channels)
    if geometry.record_bytes:
        sizes["channel record" + many] = channels * geometry.record_bytes
    if geometry.tables != "none":
        sizes["look-up tables"] = geometry.table_bytes(channels)
    if tiling.depth:
        sizes["sums (int32)"] = geometry.sums_bytes(channels, tiling.rows)
    return sizes
