"""Shapes and sizes of a region's tensors, and the layouts that consumers need.

These facts are collected before layouts are assigned.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from byoc.operators.operator import Operator
from byoc.operators.packing import default_layout
from byoc.operators.records import Operand
from isa.layout import Layout


@dataclass(frozen=True)
class RegionTensors:
    """Shapes, sizes, preferred layouts and uses of a region's tensors.

    Attributes:
        atom: channels stored together, one byte each.
        fits: whether an operation has a tiling in the scratchpad.
        shapes: shapes of the model's tensors by name.
        elements: number of elements of every tensor.
        preferred: the layout that the first consumer needs, directly or after element-wise
            operations.
        results: region outputs, and tensors used only to compute region outputs element by element.
        read: tensors with consumers in the region.
    """

    atom: int
    fits: Callable[[Operator], bool]
    shapes: Mapping[str, tuple[int, ...]]
    elements: Mapping[str, int]
    preferred: Mapping[str, Layout]
    results: frozenset[str]
    read: frozenset[str]

    def dense(self, elements: int) -> Layout:
        """Return the layout of ``elements`` consecutive elements at a single position."""
        return Layout(elements, 1, self.atom)

    def default(self, name: str) -> Layout:
        """Return the layout of a tensor for which no operation needs a particular layout."""
        return default_layout(self.shapes.get(name, (self.elements[name],)), self.atom)

    def is_whole(self, operand: Operand) -> bool:
        """Return whether an operand is a whole tensor."""
        return not operand.offset and operand.elements == self.elements[operand.value]

    def is_order_kept(self, operation: Operator) -> bool:
        """Return whether an operation copies a whole tensor with its elements in the same order."""
        operands = *operation.inputs, operation.output
        return bool(operation.slices) and len(operands) == 2 and all(map(self.is_whole, operands))

    def extend(self, operand: Operand, layout: Layout) -> Layout | None:
        """Return the layout of a tensor as images of ``operand``, which has ``layout``.

        Return None if an image would be incomplete.
        """
        images, rest = divmod(self.elements[operand.value], max(operand.elements, 1))
        if rest or not operand.elements or operand.offset % operand.elements:
            return None
        return layout._replace(images=layout.images * images, begin=0).canonical


def describe_tensors(
    operations: Sequence[Operator],
    shapes: Mapping[str, tuple[int, ...]],
    boundary: Iterable[str],
    atom: int,
    fits: Callable[[Operator], bool],
) -> RegionTensors:
    """Collect the shapes, sizes, preferred layouts and uses of a region's tensors.

    Arguments as for :func:`byoc.layout.assign.assign_layouts`.
    """
    elements: dict[str, int] = {}
    for operation in operations:
        for operand in (*operation.inputs, operation.output):
            most = max(elements.get(operand.value, 0), operand.offset + operand.elements)
            elements[operand.value] = (
                prod(shapes[operand.value]) if operand.value in shapes else most
            )
    results, read = _find_results(operations, boundary)
    region = RegionTensors(atom, fits, shapes, elements, {}, results, read)
    return replace(region, preferred=_find_preferences(operations, region))


def _find_results(
    operations: Sequence[Operator], boundary: Iterable[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Find the tensors that only lead to region outputs, and the tensors with consumers."""
    results = {*boundary}
    read = set[str]()
    for operation in reversed(operations):
        names = {operand.value for operand in operation.inputs}
        if operation.elementwise and operation.output.value in results and not names & read:
            results |= names
        else:
            results -= names
        read |= names
    return frozenset(results), frozenset(read)


def _find_preferences(operations: Sequence[Operator], region: RegionTensors) -> dict[str, Layout]:
    """Return the layouts that consumers need, found from the last consumer to the first."""
    preferred: dict[str, Layout] = {}
    for operation in reversed(operations):
        passed = preferred.get(operation.output.value)
        if passed is not None and (operation.elementwise or region.is_order_kept(operation)):
            alike = (
                one.value
                for one in operation.inputs
                if region.elements[one.value] == passed.elements
            )
            preferred.update(dict.fromkeys(alike, passed))
        for operand in operation.inputs:
            if operand.assigned is not None and operand.value not in operation.constant_operands:
                whole = region.extend(operand, operand.assigned)
                if whole is not None:
                    preferred[operand.value] = whole
    return preferred
