"""Layouts that the compiler assigns to tensors in banked memory.

Copies contain the same elements and are made once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from byoc.compiler import compile, partition_package
from byoc.emission.region import layers_of
from byoc.importing import import_model
from byoc.layout.assign import assign_layouts
from byoc.layout.boundary import default_layout
from byoc.layout.copying import (
    Assignment,
    add_fill,
    copy_elements,
    describe_tensors,
    read_operand,
    slice_layout,
    write_result,
)
from byoc.operators.convolution import Convolution
from byoc.operators.copies import StridedCopy, fills, get_filled_byte
from byoc.operators.gather import MAX_PIECES_PER_MOVE
from byoc.operators.geometry import Geometry
from byoc.operators.matmul import DynamicMatMul
from byoc.operators.operator import Operator
from byoc.operators.pieces import Dim, Piece
from byoc.operators.records import Operand
from byoc.options import CompileOptions
from byoc.package.package import Package
from isa.arch import Arch, PeArray
from isa.layout import Layout
from isa.program import Program
from tests.byoc.small_models import ModelBuilder
from tests.byoc.test_merging import run_moves
from tests.e2e.large_operators import DrawnOperator, Machine, Outcome, Subject
from tests.e2e.test_entry_layouts import rescaled_image

ATOM = 8
ARCH = Arch(isa="v5", pe=PeArray(ic=8, oc=8), sram_bytes=1 << 16)
READER = StridedCopy(
    name="r", kind="DMA", onnx_nodes=(), inputs=(Operand("x", (1,)),), output=Operand("y", (1,)),
    channels=Dim(1, 1, 1), rows=Dim(1, 0, 0), inner=(),
)  # fmt: skip


def holding(**layouts: Layout) -> Assignment:
    """Return an assignment of tensors with given layouts."""
    region = describe_tensors((), {}, (), ATOM, lambda _: True)
    elements = {name: layout.elements for name, layout in layouts.items()}
    return Assignment(replace(region, elements=elements), {**layouts})


def stored(layout: Layout, elements: NDArray[np.uint8], padding: int = 0xEE) -> NDArray[np.uint8]:
    memory = np.full(4096, padding, np.uint8)
    memory[layout.places(np.arange(elements.size))] = elements
    return memory


def drawn_layout(random: np.random.Generator, elements: int) -> Layout:
    """Draw a layout of so many elements."""
    sizes = [size for size in range(1, elements + 1) if elements % size == 0]
    images = int(random.choice([size for size in sizes if size <= 3]))
    channels = int(random.choice([size for size in sizes if elements % (images * size) == 0]))
    by_row = bool(random.integers(2))
    return Layout(
        channels, elements // images // channels, ATOM, by_row=by_row, images=images
    ).canonical


def test_a_consumer_reads_the_elements_of_its_operand_in_the_layout_that_it_needs() -> None:
    """A part of a tensor is a slice if the bytes are equal, else a zero-padded copy.

    The tensor has any layout.
    """
    random = np.random.default_rng(0)
    slices = 0
    for _ in range(300):
        elements = int(random.choice([24, 40, 60, 96]))
        layout = drawn_layout(random, elements)
        part = int(random.choice([size for size in range(1, elements + 1) if elements % size == 0]))
        offset = part * int(random.integers(elements // part))
        required = drawn_layout(random, part)
        if part % layout.positions == 0 and random.random() < 0.7:
            required = Layout(
                part // layout.positions, layout.positions, ATOM, by_row=layout.by_row
            ).canonical
        state = holding(x=layout)
        operand = read_operand(state, READER, Operand("x", (part,), offset), required)
        values = random.integers(0, 256, elements, dtype=np.uint8)
        memories = run_moves(state.operations, {"x": stored(layout, values)})
        assert operand.assigned is not None
        found = memories[operand.value][operand.assigned.places(np.arange(part))]
        assert found.tolist() == values[offset : offset + part].tolist(), (layout, required, offset)
        slices += operand.value == "x"
        if operand.value != "x":
            size = required.images * required.image_bytes
            assert memories[operand.value][:size].sum() == found.sum(), "padding holds zeros"
    assert 20 < slices < 200


def test_slices_begin_and_end_with_atoms() -> None:
    wide = Layout(24, 4, ATOM)
    narrow = Layout(8, 4, ATOM)
    assert slice_layout(wide, 8 * 4, narrow) == narrow._replace(begin=8 * 4)
    assert slice_layout(wide, 4 * 4, narrow) is None
    assert slice_layout(wide, 8 * 4, Layout(4, 4, ATOM)) is None
    assert slice_layout(Layout(5, 4, ATOM, images=3), 2 * 4, Layout(5, 4, ATOM)) is None
    assert slice_layout(Layout(5, 4, ATOM, images=3), 2 * 5 * 4, Layout(5, 4, ATOM)) == Layout(
        5, 4, ATOM, begin=64
    )


def test_consumers_that_need_one_layout_share_a_copy() -> None:
    state = holding(x=Layout(5, 8, ATOM))
    required = Layout(5, 8, ATOM, by_row=True)
    first = read_operand(state, READER, Operand("x", (40,)), required)
    count = len(state.operations)
    assert read_operand(state, READER, Operand("x", (40,)), required) == first
    assert len(state.operations) == count
    assert read_operand(state, READER, Operand("x", (40,)), Layout(40, 1, ATOM)) != first


def test_padding_is_written_once() -> None:
    state = holding(x=Layout(40, 1, ATOM), y=Layout(5, 8, ATOM))
    for first in (0, 20):
        copy_elements(state, READER, "y", {"x": (Piece(first, first, (Dim(20, 1, 1),)),)})
    assert sum(get_filled_byte(one) == 0 for one in state.operations) == 1


def test_filled_elements_are_filled_where_they_are_stored() -> None:
    layout = Layout(5, 8, ATOM)
    state = holding(y=layout)
    (fill,) = fills("n", (), "y", (Piece(0, 16, (Dim(8, 1, 1),)),), 7)
    add_fill(state, replace(fill, output=Operand("y", (8,), 16)), 7)
    memory = run_moves(state.operations, {"y": np.zeros(4096, np.uint8)})["y"]
    assert memory[layout.places(np.arange(40))].tolist() == [0] * 16 + [7] * 8 + [0] * 16
    assert memory.sum() == 7 * 8


def test_a_result_without_padding_is_copied_to_its_atoms() -> None:
    """A consumer of the copy with padding does not read the one without."""
    state = holding(x=Layout(5, 8, ATOM), z=Layout(5, 2, ATOM))

    class Dense(StridedCopy):
        omits_padding = True

    required = Layout(10, 1, ATOM)
    dense = Dense(
        name="d", kind="DMA", onnx_nodes=(), inputs=(Operand("x", (10,)),),
        output=Operand("z", (10,)),
        channels=Dim(10, 8, 1), rows=Dim(1, 0, 0), inner=(),
    )  # fmt: skip
    write_result(state, dense, required)
    made = state.operations[0].output.value
    assert made != "z"
    read = read_operand(state, READER, Operand("z", (10,)), required)
    assert read.value not in ("z", made)


def test_a_movement_of_many_pieces_takes_few_copies() -> None:
    """A movement from rows of 7 channels to channels of other rows uses dense tensors.

    Its pieces are single bytes.
    """
    shape = (7, 11, 13)
    shapes = dict.fromkeys(("x", "y"), (1, *shape))
    index = np.arange(np.prod(shape)).reshape(shape)
    copy = StridedCopy(
        name="c", kind="DMA", onnx_nodes=(), inputs=(Operand("x", (index.size,)),),
        output=Operand("y", (index.size,)),
        channels=Dim(13, 1, 77), rows=Dim(11, 13, 7), inner=(Dim(7, 143, 1),),
    )  # fmt: skip
    found, layouts = assign_layouts((copy,), shapes, ("x", "y"), ATOM)
    memory = run_moves(
        found, {"x": stored(layouts["x"], (index.reshape(-1) % 251).astype(np.uint8))}
    )["y"]
    moved = memory[layouts["y"].places(np.arange(index.size))]
    assert moved.tolist() == (index.transpose(2, 1, 0).reshape(-1) % 251).tolist()
    assert len(found) < MAX_PIECES_PER_MOVE


def test_a_tensor_that_is_only_moved_enters_without_half_empty_atoms() -> None:
    shapes = dict.fromkeys(("x", "y"), (1, 1, 10, 10))
    copy = StridedCopy(
        name="c", kind="DMA", onnx_nodes=(), inputs=(Operand("x", (100,)),),
        output=Operand("y", (100,)),
        channels=Dim(10, 10, 1), rows=Dim(10, 1, 10), inner=(),
    )  # fmt: skip
    _, layouts = assign_layouts((copy,), shapes, ("x", "y"), ATOM)
    assert layouts["x"] == Layout(100, 1, ATOM)


def test_a_matrix_has_its_columns_as_channels() -> None:
    assert default_layout((12, 16), ATOM) == Layout(16, 12, ATOM, by_row=True)


# Small networks.
# --------------------------------------------------------------------------------------------------


def program_of(builder: ModelBuilder, result: str) -> Program:
    builder.output(builder.quantize(result, 0.1), "int8")
    (program,) = compile(import_model(builder.model()), ARCH).programs.values()
    return program


def matrices(*, activation: bool) -> Program:
    """Return the program of a product of rows with weights, behind an activation or not."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 12, 16), "int8"), 0.05)
    if activation:
        x = builder.dequantize(builder.quantize(builder.node("Sigmoid", x), 0.01), 0.01)
    weights = builder.weights(
        np.random.default_rng(0).integers(-127, 128, (16, 24)).astype(np.int8), 0.01
    )
    return program_of(builder, builder.node("MatMul", x, weights))


def geometry_of(package: Package, kind: type[Operator]) -> Geometry:
    """Return the geometry of the layer of one kind."""
    partition = partition_package(package, ARCH, CompileOptions())
    layers = [
        layer
        for one in partition.regions
        for layer in layers_of(one, partition.graph.values, ARCH)[1]
    ]
    (found,) = (layer.geometry for layer in layers if isinstance(layer.operation, kind))
    return found


def test_a_narrow_image_takes_narrow_atoms_of_the_scratchpad() -> None:
    geometry = geometry_of(rescaled_image(), Convolution)
    assert geometry.input_bytes == 4
    assert geometry.output_bytes == ATOM


def test_an_atom_of_a_second_tensor_has_all_that_is_summed() -> None:
    builder = ModelBuilder()
    builder.output(builder.quantize(_activations(builder, images=1), 0.1), "int8")
    geometry = geometry_of(import_model(builder.model()), DynamicMatMul)
    assert geometry.weight_bytes == 24 * ATOM


@pytest.mark.parametrize("activation", [False, True])
def test_products_read_and_write_rows_at_the_boundary(activation: bool) -> None:
    """The host packs 12 rows of channels; channels of 16 positions would be copied."""
    program = matrices(activation=activation)
    assert [tensor.shape for tensor in program.inputs] == [(2, 12, 8)]
    assert [tensor.shape for tensor in program.outputs] == [(3, 12, 8)]


@pytest.mark.parametrize(
    ("images", "channels", "group", "pooled", "atom"),
    [(1, 1, 1, False, 1), (1, 2, 1, False, 2), (1, 3, 1, False, 4), (1, 4, 1, False, 4),
     (2, 3, 1, False, 8), (1, 3, 3, False, 8), (1, 5, 1, False, 8), (1, 3, 1, True, 8)],
)  # fmt: skip
def test_images_of_few_channels_have_narrow_atoms(
    images: int, channels: int, group: int, pooled: bool, atom: int
) -> None:
    """One image that only convolutions of one group read."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (images, channels, 12, 12), "int8"), 0.05)
    weights = (
        np.random.default_rng(0)
        .integers(-127, 128, (8 - 8 % group, channels // group, 3, 3))
        .astype(np.int8)
    )
    if pooled:
        builder.output(
            builder.quantize(builder.node("MaxPool", x, kernel_shape=[2, 2]), 0.05), "int8"
        )
    program = program_of(
        builder, builder.node("Conv", x, builder.weights(weights, 0.01), group=group)
    )
    assert {tensor.shape[-1] for tensor in program.inputs} == {atom}


@pytest.mark.parametrize(("output", "atom"), [(False, 4), (True, ATOM)])
def test_a_rescaled_image_that_leaves_the_region_has_whole_atoms(output: bool, atom: int) -> None:
    (program,) = compile(rescaled_image(output=output), ARCH).programs.values()
    assert {tensor.shape[-1] for tensor in program.inputs} == {atom}


def _rows(builder: ModelBuilder) -> str:
    x = builder.dequantize(builder.input("x", (3, 5, 12), "int8"), 0.05)
    weights = builder.weights(
        np.random.default_rng(0).integers(-127, 128, (12, 9)).astype(np.int8), 0.01
    )
    product = builder.dequantize(builder.quantize(builder.node("MatMul", x, weights), 0.1), 0.1)
    mean = builder.node("ReduceMean", product, builder.constant([2], "int64"), keepdims=1)
    return builder.node("Add", product, builder.dequantize(builder.quantize(mean, 0.1), 0.1))


def _activations(builder: ModelBuilder, images: int = 2) -> str:
    x = builder.dequantize(builder.input("x", (images, 13, 24), "int8"), 0.05)
    y = builder.dequantize(builder.input("y", (images, 24, 17), "int8"), 0.05)
    return builder.node("MatMul", x, y)


def _rows_of_images(builder: ModelBuilder) -> str:
    product = builder.dequantize(builder.quantize(_activations(builder), 0.1), 0.1)
    return builder.node("Softmax", product, axis=-1)


def _groups(builder: ModelBuilder) -> str:
    x = builder.dequantize(builder.input("x", (1, 16, 9, 9), "int8"), 0.05)
    weights = np.random.default_rng(0).integers(-127, 128, (10, 8, 3, 3)).astype(np.int8)
    found = builder.dequantize(
        builder.quantize(builder.node("Conv", x, builder.weights(weights, 0.01), group=2), 1), 1
    )
    return builder.node("Concat", found, found, axis=1)


@pytest.mark.parametrize("size", [2048, 1 << 16])
@pytest.mark.parametrize("make", [_rows, _activations, _rows_of_images, _groups])
def test_small_networks_are_exact_in_any_scratchpad(
    make: Callable[[ModelBuilder], str], size: int
) -> None:
    builder = ModelBuilder(opset=18)
    builder.output(builder.quantize(make(builder), 0.05), "int8")
    subject = Subject(DrawnOperator(builder.model(), make.__name__), 0)
    settings = {"pe.ic": 8, "pe.oc": 8, "sram_bytes": size, "sram_banks": 4}
    assert subject.outcome(Machine("v5", settings)) == Outcome("accelerator", "")
