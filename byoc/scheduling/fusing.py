"""Order a region's operations by image and fuse functions before memory is assigned.

In a batch, each image passes through all layers before the next image. Tensors between two layers
are then as small as for a single image and can stay in the scratchpad. A function of one int8
tensor becomes a look-up table of the operation that produces the tensor, if the tensor has no other
consumer.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from byoc.estimate.constants import MAX_INTERLEAVED, MAX_OPERATIONS
from byoc.graph import Value
from byoc.operators.layer import make_layer
from byoc.operators.operator import Operator
from byoc.operators.records import Operand
from byoc.operators.table import TableOperator, channel_tables
from isa.arch import Arch
from isa.instruction import Command, Machine, Unit
from isa.ops.lookup import LOOK_UP, TABLE_BYTES
from isa.plugins import variant

ALL: Final = -1
"""Image number that stands for all images."""


def order_by_image(
    operations: Sequence[Operator], values: Mapping[str, Value], boundary: Collection[str]
) -> tuple[Operator, ...]:
    """Return the operations of a region, reordered image by image where possible.

    Results are the same.

    An operation on all images is split into one per image if it treats all images alike. Others,
    such as matrix products whose rows are images, stay whole and follow the operations that they
    need. A tensor that no such operation uses is divided into one tensor per image.

    Args:
        operations: the region's operations in execution order.
        values: shapes and types by tensor name.
        boundary: the region's inputs and outputs; their first dimension counts the images.

    Returns:
        The operations in the new order, or unchanged if there is one image or the new order would
        have too many.
    """
    counts = {values[name].shape[0] if values[name].shape else 1 for name in boundary}
    images = counts.pop()
    if counts or not 2 <= images <= MAX_OPERATIONS:
        return tuple(operations)
    batch = _Batch(operations, boundary, images)
    found = tuple(batch.order_operations())
    most = MAX_OPERATIONS if batch.has_values_of_images else MAX_INTERLEAVED
    return found if len(found) <= most else tuple(operations)


class _Batch:
    """Operations of a batch, split by image, and the image that each belongs to."""

    def __init__(
        self, operations: Sequence[Operator], boundary: Collection[str], images: int
    ) -> None:
        self._images = images
        self._sizes: dict[str, int] = {}
        for operation in operations:
            for operand in _variable(operation):
                end = operand.offset + operand.elements
                self._sizes[operand.value] = max(self._sizes.get(operand.value, 0), end)
        self._operations = [part for operation in operations for part in self._parts(operation)]
        self._whole = set(boundary)
        segment: dict[str, int] = {}
        number = 0
        for operation in self._operations:
            alone = self._image(operation) == ALL
            number += alone
            for operand in _variable(operation):
                if alone or segment.setdefault(operand.value, number) != number:
                    self._whole.add(operand.value)

    @property
    def has_values_of_images(self) -> bool:
        """True if any tensor between two operations is divided into one tensor per image."""
        return not self._whole.issuperset(self._sizes)

    def order_operations(self) -> Iterator[Operator]:
        """Yield a batch's operations, sorted by image between two operations on all images."""
        waiting: list[Operator] = []
        for operation in self._operations:
            if self._image(operation) == ALL:
                yield from map(self._rename_tensors, sorted(waiting, key=self._image))
                waiting = []
                yield operation
            else:
                waiting.append(operation)
        yield from map(self._rename_tensors, sorted(waiting, key=self._image))

    def _image_of(self, operand: Operand) -> int:
        """Return the number of the batch image that contains an operand, or ALL."""
        size, rest = divmod(self._sizes[operand.value], self._images)
        first = operand.offset // max(size, 1)
        last = (operand.offset + operand.elements - 1) // max(size, 1)
        return first if first == last and not rest else ALL

    def _image(self, operation: Operator) -> int:
        """Return the number of the image that contains all operands of an operation, or ALL."""
        found = {self._image_of(operand) for operand in _variable(operation)}
        return found.pop() if len(found) == 1 else ALL

    def _parts(self, operation: Operator) -> tuple[Operator, ...]:
        """Split an operation into one operation per image, if it treats all images alike.

        Otherwise return the operation itself.
        """
        operands = tuple(_variable(operation))
        same = operation.loops.images and not operation.constant_operands
        whole = all(
            operand.offset == 0 and operand.elements == self._sizes[operand.value]
            for operand in operands
        )
        if not same or not whole or any(operand.shape[0] % self._images for operand in operands):
            return (operation,)
        return tuple(
            replace(
                operation,
                inputs=tuple(self._slice(operand, image) for operand in operation.inputs),
                output=self._slice(operation.output, image),
            )
            for image in range(self._images)
        )

    def _slice(self, operand: Operand, image: int) -> Operand:
        shape = operand.shape[0] // self._images, *operand.shape[1:]
        # The layout counts images as channels.
        each = operand.change_layout(channels=operand.layout.channels // self._images)
        return replace(
            operand, shape=shape, offset=image * operand.elements // self._images, assigned=each
        )

    def _rename_tensors(self, operation: Operator) -> Operator:
        """Return an operation whose operands are the tensors of its image."""
        inputs = tuple(
            operand if operand.value in operation.constant_operands else self._own(operand)
            for operand in operation.inputs
        )
        return replace(operation, inputs=inputs, output=self._own(operation.output))

    def _own(self, operand: Operand) -> Operand:
        if operand.value in self._whole:
            return operand
        image = self._image_of(operand)
        start = image * (self._sizes[operand.value] // self._images)
        return replace(operand, value=f"{operand.value}[{image}]", offset=operand.offset - start)


def _variable(operation: Operator) -> Iterator[Operand]:
    """Yield the non-constant inputs of an operation, then its result."""
    for operand in operation.inputs:
        if operand.value not in operation.constant_operands:
            yield operand
    yield operation.output


Tables = NDArray[np.int8]


def fuse(
    operations: Iterable[Operator],
    outputs: Collection[str],
    arch: Arch,
    fits: Callable[[Operator], bool],
) -> tuple[Operator, ...]:
    """Return the operations of a region with functions of one tensor fused into their producers.

    The order is kept. A fused operation keeps the producer's name and lists the ONNX nodes of both.

    Args:
        operations: the region's operations in execution order.
        outputs: names of the region's outputs; these tensors are never fused away.
        arch: the machine.
        fits: predicate, true if a fused operation can be tiled.
    """
    listed = tuple(operations)
    if not variant(arch.isa).mnemonics.issuperset(TableOperator.instructions):
        return listed
    kept: list[Operator | None] = list(listed)
    makers, readers = _find_uses(listed)
    for index, operation in enumerate(kept):
        tables = None if operation is None else _function(operation, arch)
        if operation is None or tables is None:
            continue
        source = operation.inputs[0]
        before = [(number, kept[number]) for number in makers.get(source.value, ())]
        made = [(number, maker) for number, maker in before if maker is not None]
        alone = source.value not in outputs and readers[source.value] == [index]
        if not made or not alone or not _is_covered(source, [maker for _, maker in made]):
            continue
        fused = [_fuse_tables(maker, operation, tables, arch) for _, maker in made]
        chosen = [maker for maker in fused if maker is not None and fits(maker)]
        if len(chosen) < len(made):
            continue
        for (number, _), maker in zip(made, chosen, strict=True):
            kept[number] = maker
        kept[index] = None
        makers[operation.output.value] = [
            *(number for number in makers[operation.output.value] if number != index),
            *(number for number, _ in made),
        ]
    return tuple(operation for operation in kept if operation is not None)


def _find_uses(operations: Sequence[Operator]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return the positions of each tensor's producers and consumers in the operations."""
    makers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for index, operation in enumerate(operations):
        makers.setdefault(operation.output.value, []).append(index)
        for name in dict.fromkeys(operand.value for operand in operation.inputs):
            readers.setdefault(name, []).append(index)
    return makers, readers


def _is_covered(source: Operand, makers: Sequence[Operator]) -> bool:
    """Return True if results of the producers ``makers`` cover all of ``source`` exactly."""
    ends = [maker.output.offset + maker.output.elements for maker in makers]
    return source.offset == 0 and max(ends) == source.elements == sum(
        maker.output.elements for maker in makers
    )


def _fuse_tables(
    maker: Operator, operation: Operator, tables: Tables, arch: Arch
) -> Operator | None:
    """Fuse the table look-up ``operation`` into its producer ``maker``.

    Return None if the instruction of ``maker`` cannot look up.
    """
    own = _function(maker, arch)
    place = operation.output.offset + maker.output.offset
    names = dict.fromkeys((*maker.onnx_nodes, *operation.onnx_nodes))
    output = replace(maker.output, value=operation.output.value, offset=place, dtype="int8")
    if own is not None and len(own) == len(tables) == 1:
        return TableOperator(
            name=maker.name, kind="ACT", inputs=maker.inputs, output=output,
            onnx_nodes=tuple(names),
            table=_compose_tables(own, tables)[0],
        )  # fmt: skip
    if len(tables) > 1 and not _has_channels(maker, len(tables), operation.output.elements):
        return None
    if maker.mnemonic is None or maker.output.element_bytes != 1:
        return None
    instruction = variant(arch.isa).by_mnemonic[maker.mnemonic][0]
    if LOOK_UP not in instruction.fields:
        return None
    composed = tables if maker.tables is None else _compose_tables(maker.tables, tables)
    return replace(maker, output=output, tables=composed, onnx_nodes=tuple(names))


def _has_channels(maker: Operator, channels: int, elements: int) -> bool:
    """Return True if ``maker`` computes all ``elements``, in ``channels`` contiguous channels.

    The channels of a matrix of several rows are its columns, for which tables per channel are not
    defined.
    """
    loops = maker.loops
    nest = loops.nest
    dense = not loops.single and not maker.traits.flat and (not nest.matrix or nest.rows == 1)
    return dense and nest.channels == channels and maker.output.elements == elements


def _compose_tables(first: Tables, second: Tables) -> Tables:
    """Return tables equal to a look-up in ``first`` followed by one in ``second``."""
    channels = max(len(first), len(second))
    entries = np.broadcast_to(first, (channels, TABLE_BYTES)).view(np.uint8)
    return np.take_along_axis(
        np.broadcast_to(second, (channels, TABLE_BYTES)), entries.astype(np.int64), axis=1
    )


def _function(operation: Operator, arch: Arch) -> Tables | None:
    """Return the look-up table of an operation on one int8 tensor, or None.

    Entries are in the order of the input bytes. The shape is (1, 256), or (channels, 256) if
    channels have different functions.
    """
    if (several := channel_tables(operation)) is not None:
        return several
    whole = operation.traits.flat and len(operation.inputs) == 1 and operation.mnemonic is not None
    if not whole or operation.inputs[0].element_bytes != 1 or operation.output.element_bytes != 1:
        return None
    layer = make_layer(operation, arch)
    instruction = layer.geometry.instruction
    constants = operation.constants()
    if instruction is None or operation.tables is not None:
        return None
    weights = 2 * TABLE_BYTES  # after the operand and the result
    sram = np.zeros(weights + TABLE_BYTES, np.uint8)
    sram[:TABLE_BYTES] = np.arange(TABLE_BYTES)
    if constants is not None and constants.weights is not None:
        sram[weights:] = constants.weights.reshape(-1).view(np.uint8)
    reset = variant(arch.isa).register_file.reset
    registers = {name: reset[name] for name in instruction.registers} | dict(layer.registers)
    registers |= {"EX_OUTPUT_ADDRESS": TABLE_BYTES, "EX_LENGTH": TABLE_BYTES}
    if "EX_OPERAND_ADDRESS" in registers:
        registers["EX_OPERAND_ADDRESS"] = weights
    command = Command(0, instruction, Unit.EX, False, False, False, False, layer.fields, registers)
    instruction.semantics(command, Machine(arch, sram, np.zeros(0, np.uint8)))
    return sram[TABLE_BYTES : 2 * TABLE_BYTES].view(np.int8)[np.newaxis].copy()
