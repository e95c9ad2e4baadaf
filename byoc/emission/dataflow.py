"""State the data flow of a region's program (:mod:`isa.dataflow`).

It is derived from operators, layouts and tiles, not from the commands.
"""

from collections.abc import Iterator, Sequence

from byoc.operators.gather import list_moved_pieces
from byoc.operators.geometry import Geometry
from byoc.operators.nest import RowTransfer, Tile
from byoc.operators.records import Operand
from byoc.scheduling.stream import CommandStep, ComputedTile, Memory
from isa.dataflow import CONSTANT, FILL, ByteMovement, Computation, Dataflow, Extent
from isa.ops.windows import EX_PARTIAL_ADDRESS
from isa.program import Tensor

_READS = "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS"


def dataflow_of(
    steps: Sequence[tuple[int, CommandStep]], memory: Memory, tensors: Sequence[Tensor]
) -> Dataflow:
    """Return the data flow of a region.

    ``steps`` pairs command numbers with steps.
    """
    return _Dataflow(memory).make_dataflow(steps, tensors)


class _Dataflow:
    """Builder of a region's data flow, which gives each value a number.

    The partial sums of a tile are values of their own.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._values = {buffer.name: number for number, buffer in enumerate(memory.lowered.buffers)}
        self._sizes = [buffer.nbytes for buffer in memory.lowered.buffers]
        self._sums: dict[tuple[int, int, int], int] = {}

    def make_dataflow(
        self, steps: Sequence[tuple[int, CommandStep]], tensors: Sequence[Tensor]
    ) -> Dataflow:
        computations = tuple(
            self._computation(number, step.computed, step)
            for number, step in steps
            if step.computed is not None and not step.computed.layer.operation.traits.moves
        )
        places = [self._memory.lowered.places[tensor.name] for tensor in tensors]
        return Dataflow(
            values=tuple(self._sizes),
            tensors=tuple((self._values[place.buffer], place.offset) for place in places),
            movements=tuple(self._movements()),
            computations=computations,
        )

    def _place(self, operand: Operand) -> tuple[int, int]:
        """Return the data-flow value that contains an operand, and the operand's first byte."""
        place = self._memory.lowered.place(operand)
        if place.buffer in self._memory.lowered.constants:
            return CONSTANT, self._memory.address(place)
        return self._values[place.buffer], place.offset

    def _movements(self) -> Iterator[ByteMovement]:
        for operation in self._memory.lowered.operations:
            if not operation.traits.moves and operation.mnemonic is not None:
                continue
            target, begin = self._place(operation.output)
            for number, byte, piece in list_moved_pieces(operation):
                source, first = (
                    (FILL, byte) if number is None else self._place(operation.inputs[number])
                )
                moved = 0 if number is None else piece.source
                yield ByteMovement(
                    target,
                    begin + piece.target,
                    source,
                    first + moved,
                    tuple((dim.size, dim.source, dim.target) for dim in piece.dims),
                )

    def _computation(self, number: int, computed: ComputedTile, step: CommandStep) -> Computation:
        layer, tile, given = computed
        geometry = layer.geometry
        operation = layer.operation
        parts = given or (
            *(geometry.input_transfer(tile, index) for index in range(geometry.inputs)),
            *(
                geometry.weight_transfer(tile.output.channels)
                for _ in operation.inputs[geometry.inputs :]
            ),
            geometry.output_transfer(tile),
        )
        reads = [
            (register, self._extent(operand, part))
            for register, operand, part in zip(_READS, operation.inputs, parts, strict=False)
        ]
        result = self._extent(operation.output, parts[-1])
        if EX_PARTIAL_ADDRESS.name in step.pointers:
            reads.append((EX_PARTIAL_ADDRESS.name, self._partial(computed)))
        if not tile.last:
            result = self._partial(computed)
        return Computation(
            number, _channels(geometry, tile), geometry.channels.mapping, tuple(reads), result
        )

    def _extent(self, operand: Operand, part: RowTransfer) -> Extent:
        """Return the extent of a part of an operand: its bytes in a command's access order."""
        value, begin = self._place(operand)
        return Extent(
            value,
            begin + part.offset,
            part.nbytes,
            tuple((axis.size, axis.tensor) for axis in reversed(part.dims)),
        )

    def _partial(self, computed: ComputedTile) -> Extent:
        """Return the data-flow extent of a tile's int32 partial sums.

        The sums are a value of their own.
        """
        layer, tile, _ = computed
        key = id(layer), tile.output.channels.start, tile.output.rows.start
        nbytes = layer.geometry.sums_bytes(tile.output.channels.size, tile.output.rows.size)
        if key not in self._sums:
            self._sums[key] = len(self._sizes)
            self._sizes.append(nbytes)
        return Extent(self._sums[key], 0, nbytes)


def _channels(geometry: Geometry, tile: Tile) -> tuple[int, int]:
    """Return how many channels a tile's first operand and its result have.

    The result is 0 for elements without channels.
    """
    counted = geometry.channels
    plain = geometry.channels.plain
    if plain.flat:
        return 0, 0
    source = counted.channels(tile.input.channels, plain.nest.input_channels).size
    return 0 if geometry.repeats else source, counted.channels(
        tile.output.channels, plain.nest.channels
    ).size
