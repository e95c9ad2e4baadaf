"""Operators on rows as wholes: what reductions, softmax and normalisations share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.elementwise import SINGLE
from byoc.operators.forms import Kinds, integer, several
from byoc.operators.nest import Nest, Tile
from byoc.operators.operator import Geometry, Operand, Operator, Registers
from byoc.operators.rules import Finding, finding, rule
from byoc.target import Target


def folded(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """(outer, elements of a row, inner) of rows along ``axes``; None where other long axes lie between them."""
    rows = [axis for axis in axes if shape[axis] > 1] or list(axes[:1])
    if not rows:
        return math.prod(shape), 1, 1
    first, last = min(rows), max(rows)
    if any(shape[axis] > 1 and axis not in axes for axis in range(first, last + 1)):
        return None
    return math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])


@rule("the axes of a row lie side by side")
def adjacent_axes(graph: Graph, node: Node) -> Finding | None:
    """A row's elements lie evenly apart."""
    shape, axes = graph.values[node.inputs[0]].shape, node.attributes["axes"]
    return None if folded(shape, axes) else finding("axes {axes} of shape {shape}", axes=axes, shape=shape)


@rule("rows and their elements fit the instruction's fields")
def fits_fields(record: Rows | tuple[Rows, ...], target: Target) -> Finding | None:
    """Every count fits its register."""
    first = record[0] if isinstance(record, tuple) else record
    nest = first.nest()
    sizes = {"rows": nest.rows, "elements": nest.input_columns, "channels": nest.channels}
    sizes["elements"] = max(sizes["elements"], nest.input_channels)
    found = (domain.oversized(label, size, target.channel_limit) for label, size in sizes.items())
    return next((one for one in found if one is not None), None)


def misfit_axes(graph: Graph, node: Node) -> str | None:
    """What is wrong with the axes of a node that anybody may have written."""
    shape, axes = graph.values[node.inputs[0]].shape, node.attributes["axes"]
    right = len(set(axes)) == len(axes) and all(axis < len(shape) for axis in axes)
    return None if right else f"'{node.name}' has the axes {axes} for shape {shape}"


AXES: Kinds = {"axes": several(integer(0))}
"""What nodes have whose rows lie along axes."""
REQUIREMENTS = (*SINGLE, adjacent_axes)
"""What every operator of one operand requires whose rows lie along axes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows(Operator):
    """Dense rows (rows, elements): tiles are rows."""

    banded: ClassVar[bool] = True

    def nest(self) -> Nest:
        """One channel; a row of the matrix is a row."""
        rows, elements = self.inputs[0].shape
        return Nest(1, rows, self.output.shape[1], 1, rows, elements)

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Rows of the tile, and their elements."""
        return {"EX_ROWS": tile.output.rows.size, "EX_INPUT_CHANNELS": geometry.nest.input_columns, "EX_LENGTH": 1}

    @property
    def spacing(self) -> dict[str, int]:
        """The registers of the planes that are the same for all tiles: rows lie dense."""
        return {"EX_INPUT_PLANE": 0, "EX_OUTPUT_PLANE": 0}


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns(Operator):
    """Rows that stand across: (elements, rows), a row's elements in as many planes; tiles are rows."""

    banded: ClassVar[bool] = True
    planes: ClassVar[bool] = True

    def nest(self) -> Nest:
        """Planes of one column, all in a tile."""
        elements, rows = self.inputs[0].shape
        return Nest(self.output.shape[0], rows, 1, elements, rows, 1, whole=True)

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Elements of a row, and rows of the tile."""
        return {
            "EX_ROWS": 1,
            "EX_INPUT_CHANNELS": geometry.nest.input_channels,
            "EX_LENGTH": tile.output.rows.size,
        }

    @property
    def spacing(self) -> dict[str, int]:
        """Every tile says how far its planes lie apart."""
        return {}


def slices(
    node: Node, source: str, target: str, shape: tuple[int, int, int], kind: str, results: int
) -> tuple[dict[str, Any], ...]:
    """The fields of every operation that makes ``target`` of rows of ``shape`` of ``source``, ``results`` of each.

    Dense rows are one operation; those that stand across are one an outer index.
    """
    outer, count, inner = shape
    common = {"name": node.name, "kind": kind, "onnx_nodes": node.onnx_nodes}
    if inner == 1:
        return ({**common, "inputs": (Operand(source, (outer, count)),), "output": Operand(target, (outer, results))},)
    found = []
    for index in range(outer):
        operand = Operand(source, (count, inner), index * count * inner)
        result = Operand(target, (results, inner), index * results * inner)
        found.append({**common, "inputs": (operand,), "output": result})
    return tuple(found)


def shared_constants(data: NDArray[Any], channels: int) -> NDArray[np.int8]:
    """Bytes that every tile needs, spread over ``channels`` channels, of which every tile has all."""
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
    padded = np.zeros((channels, -(-raw.size // channels)), np.uint8)
    padded.reshape(-1)[: raw.size] = raw
    return padded.view(np.int8)
