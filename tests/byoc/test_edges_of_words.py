"""Layouts of tensors at the boundary of a region in banked memory, which their shape determines."""

import numpy as np
import pytest

from byoc.layout.assign import assign_layouts
from byoc.layout.boundary import (
    boundary_layout,
    boundary_layouts,
    default_layout,
    from_atoms,
    to_atoms,
)
from byoc.operators.copies import StridedCopy
from byoc.operators.pieces import Dim
from byoc.operators.records import Operand
from isa.layout import Layout

SHAPES = (
    (),
    (10,),
    (1, 1),
    (3, 20),
    (20, 3),
    (1, 1, 6, 6),
    (2, 3, 4),
    (1, 19, 4),
    (1, 8, 8),
    (2, 16, 3, 5),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_shape_says_how_a_tensor_lies(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype=np.int64).reshape(shape)
    layouts = boundary_layouts(shape, 8)
    assert layouts[0] == default_layout(shape, 8)
    for layout in layouts:
        assert boundary_layout(shape, layout.stored) == layout
        packed = to_atoms(values, layout)
        assert packed.shape == layout.stored
        assert (from_atoms(packed, layout) == values.reshape(-1)).all()


def test_what_two_ways_would_say_is_the_first() -> None:
    """A square of channels by positions and of positions by channels have one shape."""
    assert [one.by_row for one in boundary_layouts((1, 8, 8), 8)] == [False, False]
    assert boundary_layouts((1, 19, 4), 8) == (
        Layout(19, 4, 8), Layout(4, 19, 8, by_row=True), Layout(76, 1, 8),
    )  # fmt: skip


def test_a_picture_of_one_channel_leaves_element_after_element() -> None:
    """4 channels of 5 by 5 become one of 10 by 10, which is stored densely.

    Atoms would take 8 bytes for each of the 100 elements.
    """
    shapes = {"x": (1, 4, 5, 5), "y": (1, 1, 10, 10)}
    copy = StridedCopy(
        name="c", kind="DMA", onnx_nodes=(), inputs=(Operand("x", (100,)),),
        output=Operand("y", (100,)),
        channels=Dim(5, 5, 20), rows=Dim(2, 50, 10), inner=(Dim(5, 1, 2), Dim(2, 25, 1)),
    )  # fmt: skip
    _, layouts = assign_layouts((copy,), shapes, ("x", "y"), 8)
    assert layouts["x"] == Layout(4, 25, 8)
    assert layouts["y"] == Layout(100, 1, 8)
