"""Tiles: they cover every output once, and their input boxes hold every tap that is not padding."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc.emission.region import layers_of
from byoc.estimate.bus import DEFAULT_BUS
from byoc.operators.geometry import Geometry
from byoc.operators.layer import (
    BufferSlots,
    OperatorLayer,
    Resident,
    Tiling,
    buffers_of,
    compute_working_set,
    make_layer,
    make_streamed,
    sizes,
    tiles,
)
from byoc.operators.nest import (
    LoopNest,
    RowTransfer,
    Span,
    TransferAxis,
    band_rows,
    find_allowed_channels,
    make_tile,
    matrix_transfer,
    plane_transfer,
    split,
)
from byoc.scheduling.layer_stream import stream_layer
from byoc.scheduling.tile_search import TileSearch
from byoc.scheduling.tiling import Answers, Budget, list_buffered, shapes, smallest_tiling, tilings
from byoc.tuning.subject import bare_memory
from isa.arch import Arch, PeArray
from tests.byoc import region_cases as cases


def _nest(
    channels: int, rows: int, depth: int, kernel: int, stride: int, dilation: int, pad: int
) -> LoopNest:
    """A convolution with just enough input rows for its output rows."""
    extent = (kernel - 1) * dilation + 1
    needed = (rows - 1) * stride + extent - pad
    return LoopNest(
        channels, rows, 5, depth, max(1, needed), 7, kernel, stride, dilation, min(pad, extent - 1)
    )


NESTS = st.builds(
    _nest,
    st.integers(1, 9), st.integers(1, 20), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 3),
)  # fmt: skip


@given(NESTS, st.integers(1, 9), st.integers(1, 20))
def test_input_rows_hold_every_tap(nest: LoopNest, channels: int, rows: int) -> None:
    rows = rows if nest.splits_rows else nest.rows
    for part in split(nest.channels, channels):
        for band in split(nest.rows, rows):
            tile = make_tile(nest, part, band)
            assert tile.input.rows.size <= band_rows(nest, band.size) or band.size == nest.rows
            first = tile.input.rows.start - tile.pad_top
            for row in range(band.start, band.stop):
                for position in range(nest.kernel):
                    wanted = row * nest.stride - nest.pad_top + position * nest.dilation
                    at = first + (row - band.start) * nest.stride + position * nest.dilation
                    assert at == wanted
                    inside = tile.input.rows.start <= wanted < tile.input.rows.stop
                    assert inside == (0 <= wanted < nest.input_rows)


@given(st.integers(1, 30), st.integers(1, 40))
def test_split_covers_once(size: int, step: int) -> None:
    covered = Counter(index for span in split(size, step) for index in range(span.start, span.stop))
    assert covered == Counter(range(size))


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 40))
def test_channel_tiles_never_cut_a_group_unevenly(depth: int, multiplier: int, wanted: int) -> None:
    nest = LoopNest(depth * multiplier, 3, 3, depth, 3, 3, groups=depth)
    size = find_allowed_channels(nest, wanted)
    assert 1 <= size <= max(wanted, 1)
    for span in split(nest.channels, size):
        source = make_tile(nest, span, Span(0, 3)).input.channels
        outputs = [channel // multiplier - source.start for channel in range(span.start, span.stop)]
        assert outputs == [index // (span.size // source.size) for index in range(span.size)]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 40))
def test_channel_tiles_never_cut_a_group_that_is_whole(
    depth: int, groups: int, wanted: int
) -> None:
    nest = LoopNest(depth * groups, 3, 3, depth * groups, 3, 3, groups=groups, channel_step=depth)
    size = find_allowed_channels(nest, wanted)
    assert size % depth == 0
    assert size == depth or size <= wanted


def test_tiles_run_in_the_order_of_the_loops() -> None:
    layer = make_layer(
        cases.convolution(np.random.default_rng(0), cases.operand("x", 2, 6, 6), "y", 4), Arch()
    )
    inner = [
        (t.output.channels.start, t.output.rows.start) for t in tiles(layer.geometry, Tiling(2, 2))
    ]
    outer = [
        (t.output.channels.start, t.output.rows.start)
        for t in tiles(layer.geometry, Tiling(2, 2, True))
    ]
    assert inner == [(0, 0), (2, 0), (0, 2), (2, 2)]
    assert outer == [(0, 0), (0, 2), (2, 0), (2, 2)]


def test_transfers_pick_the_bytes_of_the_box() -> None:
    data = np.arange(4 * 6 * 5, dtype=np.int64).reshape(4, 6, 5)
    nest = LoopNest(4, 6, 5, 4, 6, 5)
    tile = make_tile(nest, Span(1, 3), Span(2, 5))
    found = plane_transfer(tile.output, 6, 5, 1)
    assert found == RowTransfer(40, 15, (TransferAxis(2, 30, 15),))
    assert _bytes(found) == data[1:3, 2:5].reshape(-1).tolist()
    assert plane_transfer(make_tile(nest, Span(1, 3), Span(0, 6)).output, 6, 5, 4) == RowTransfer(
        120, 240
    )
    matrix = np.arange(7 * 9).reshape(7, 9)
    box = make_tile(LoopNest(9, 7, 1, 9, 7, 1, matrix=True), Span(3, 5), Span(1, 4)).output
    assert _bytes(matrix_transfer(box, 9, 1)) == matrix[1:4, 3:5].reshape(-1).tolist()


def _bytes(transfer: RowTransfer) -> list[int]:
    return [
        transfer.offset + row * axis.tensor + byte
        for axis in transfer.dims
        for row in range(axis.size)
        for byte in range(transfer.nbytes)
    ]


LAYERS = {
    "convolution": cases.convolution(
        np.random.default_rng(0), cases.operand("x", 9, 20, 20), "y", 24, pads=(1, 1, 1, 1)
    ),
    "depthwise": cases.convolution(
        np.random.default_rng(0),
        cases.operand("x", 12, 20, 20),
        "y",
        24,
        pads=(1, 1, 1, 1),
        depthwise=True,
    ),
    "matmul": cases.matmul(np.random.default_rng(0), cases.operand("x", 6, 40), "y", 30),
    "pool": cases.pool(cases.operand("x", 12, 20, 20), "y", "max"),
    "add": cases.add(cases.operand("a", 999), cases.operand("b", 999), "y"),
}


def _layer(name: str, arch: Arch) -> OperatorLayer:
    return make_layer(LAYERS[name], arch)


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_what_the_search_finds_fits_the_budget(name: str) -> None:
    """And where something smaller takes as long, that."""
    arch = Arch(pe=PeArray(ic=2, oc=4, ow=1))
    layer = _layer(name, arch)
    search = TileSearch(layer.geometry, arch)
    residents = [
        Resident((False,) * len(layer.operation.inputs)),
        Resident((True,) * len(layer.operation.inputs), True),
    ]
    for resident in residents:
        for budget in (100_000, 20_000, 6_000, 2_500, 1_200):
            choice = search.best(resident, budget)
            if name == "matmul" and resident.output and budget == 1_200:
                assert choice is None, (
                    "columns of a resident matrix are not cut: 1,440 bytes of weights and records"
                )
                continue
            assert choice is not None
            assert (
                compute_working_set(layer.geometry, choice.tiling, resident, arch.alignment)
                <= budget
            )
            taken = compute_working_set(layer.geometry, choice.tiling, resident, 8)
            thrifty = search.thriftiest_beside(choice, resident, Budget(budget), 0)
            assert compute_working_set(layer.geometry, thrifty, resident, 8) <= taken
            assert search.cost.estimate(thrifty, resident) <= 1.01 * choice.cycles


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("tables", [0, 1, 2])
def test_the_working_set_is_what_the_steps_reserve(name: str, tables: int) -> None:
    """The working set equals the bytes of the buffers that the steps reserve.

    This holds for all tilings, with the largest number of buffers and with tables.
    """
    arch = Arch(pe=PeArray(ic=2, oc=4, ow=1), isa="v4")
    channels = LAYERS[name].loops.nest.channels
    looked_up = np.zeros((1 if tables < 2 else channels, 256), np.int8) if tables else None
    operation = replace(LAYERS[name], tables=looked_up)
    region, values = cases.region(
        (operation,), tuple(one.value for one in operation.inputs), (operation.output.value,)
    )
    lowered, (layer,) = layers_of(region, values, arch, "default")
    everything = make_streamed(layer.geometry)
    geometry = layer.geometry
    drawn = list(shapes(geometry, everything))[
        :: max(1, len(list(shapes(geometry, everything))) // 9)
    ]
    for tiling in (
        one
        for shape in drawn
        for one in tuple(list_buffered(geometry, arch, everything, 1 << 20, shape))[::7]
    ):
        memory = bare_memory(arch, lowered, ())
        stream_layer(layer, tiling, memory)
        reserved = sum(
            -(-nbytes // arch.alignment) * arch.alignment for _, nbytes in memory.scratch
        )
        assert reserved == compute_working_set(geometry, tiling, everything, arch.alignment), tiling


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("tables", [0, 1, 2])
def test_slots_that_no_tile_fills_change_nothing(name: str, tables: int) -> None:
    """Slots that no tile fills do not change the steps and buffers of a tiling.

    This holds for all sets of resident tensors. The search of tilings relies on it.
    """
    arch = Arch(pe=PeArray(ic=2, oc=4, ow=1), isa="v4")
    channels = LAYERS[name].loops.nest.channels
    looked_up = np.zeros((1 if tables < 2 else channels, 256), np.int8) if tables else None
    operation = replace(LAYERS[name], tables=looked_up)
    region, values = cases.region(
        (operation,), tuple(one.value for one in operation.inputs), (operation.output.value,)
    )
    lowered, (layer,) = layers_of(region, values, arch, "default")
    cost = TileSearch(layer.geometry, arch).cost
    places = [lowered.place(one).buffer for one in operation.inputs]
    target = lowered.place(operation.output).buffer
    alike = 0
    for residents in (
        (),
        (target,),
        tuple(dict.fromkeys(places)),
        tuple(dict.fromkeys((*places, target))),
    ):
        resident = Resident(tuple(place in residents for place in places), target in residents)
        drawn = list(shapes(layer.geometry, resident))
        for shape in drawn[:: max(1, len(drawn) // 5)]:
            for slots in (
                BufferSlots(1, 1, 1),
                BufferSlots(2, 2, 2),
                BufferSlots(1, 2, 2),
                BufferSlots(5, 3, 2),
                BufferSlots(99, 99, 99),
            ):
                made = []
                for tiling in (
                    shape._replace(slots=slots),
                    cost.drop_surplus_buffers(shape._replace(slots=slots), resident),
                ):
                    memory = bare_memory(arch, lowered, residents)
                    made.append((stream_layer(layer, tiling, memory), memory.scratch, memory.apart))
                assert made[0] == made[1], (shape, slots)
                alike += tiling.slots != slots
    assert alike > 10


SMALL = {
    "convolution": cases.convolution(
        np.random.default_rng(0), cases.operand("x", 3, 6, 6), "y", 8, pads=(1, 1, 1, 1)
    ),
    "depthwise": cases.convolution(
        np.random.default_rng(0), cases.operand("x", 6, 8, 8), "y", 12, depthwise=True
    ),
    "matmul": cases.matmul(np.random.default_rng(0), cases.operand("x", 3, 8), "y", 12),
    "pool": cases.pool(cases.operand("x", 6, 8, 8), "y", "max"),
    "add": cases.add(cases.operand("a", 999), cases.operand("b", 999), "y"),
}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_the_search_finds_is_in_the_complete_space(name: str) -> None:
    """No tiling is there twice, all fit, and the search's is one of them."""
    arch = Arch(pe=PeArray(ic=2, oc=4, ow=1), isa="v4")
    geometry = make_layer(SMALL[name], arch).geometry
    resident = make_streamed(geometry)
    budget = (
        compute_working_set(
            geometry, Tiling(geometry.nest.channels, geometry.nest.rows), resident, arch.alignment
        )
        // 2
    )
    space = list(tilings(geometry, arch, resident, budget))
    assert len(space) == len(set(space)) > 10
    assert (
        max(compute_working_set(geometry, item, resident, arch.alignment) for item in space)
        <= budget
    )
    choice = TileSearch(geometry, arch).best(resident, budget)
    assert choice is not None
    assert choice.tiling._replace(slots=_needed(geometry, choice.tiling)) in space


@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_is_near_a_tiling_is_in_the_complete_space(name: str) -> None:
    """Every neighbour of the search's choice fits, and most of them have other tiles."""
    arch = Arch(pe=PeArray(ic=2, oc=4, ow=1), isa="v4")
    geometry = make_layer(SMALL[name], arch).geometry
    resident = make_streamed(geometry)
    search = TileSearch(geometry, arch)
    budget = (
        compute_working_set(
            geometry, Tiling(geometry.nest.channels, geometry.nest.rows), resident, arch.alignment
        )
        // 2
    )
    space = {
        tiling._replace(slots=BufferSlots()) for tiling in tilings(geometry, arch, resident, budget)
    }
    choice = search.best(resident, budget)
    assert choice is not None
    near = list(search.list_near(choice.tiling, resident, budget))
    assert {tiling._replace(slots=BufferSlots()) for tiling in near} <= space
    assert (
        max(compute_working_set(geometry, tiling, resident, arch.alignment) for tiling in near)
        <= budget
    )
    assert len({tiling[:2] for tiling in near}) > 1


def _needed(geometry: Geometry, tiling: Tiling) -> BufferSlots:
    """The slots less those that hold nothing."""
    buffers = buffers_of(geometry, tiling, 1)
    slots = tiling.slots
    constants = min(slots.constants, buffers.constant_tiles) if geometry.has_constants else 1
    output = 1 if geometry.in_place else min(slots.output, buffers.output_tiles)
    return BufferSlots(min(slots.input, max(buffers.input_tiles, default=1)), constants, output)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_partition_admits_the_search_can_tile(name: str) -> None:
    """The search tiles a layer in the smallest working set, and finds none with one byte less."""
    arch = Arch(pe=PeArray(ic=2, oc=4, ow=1), isa="v4")
    geometry = make_layer(SMALL[name], arch).geometry
    resident = make_streamed(geometry)
    least = compute_working_set(geometry, smallest_tiling(geometry, arch), resident, arch.alignment)
    search = TileSearch(geometry, arch)
    assert search.best(resident, least) is not None
    assert search.best(resident, least - 1) is None
    assert next(tilings(geometry, arch, resident, least - 1), None) is None


def test_memory_for_half_of_the_processing_elements_is_used() -> None:
    """With less memory, a tile has fewer output channels: eight, four, two or one.

    A tile of one channel takes as long as one of eight.
    """
    arch = Arch(pe=PeArray(ic=4, oc=8, ow=1))
    weights = 32 * 9
    layer = make_layer(
        cases.convolution(np.random.default_rng(0), cases.operand("x", 32, 6, 6), "y", 64), arch
    )
    resident = Resident((True,), True)
    chosen = [
        TileSearch(layer.geometry, arch).best(resident, count * (weights + 8))
        for count in (8, 7, 4, 3, 2, 1)
    ]
    assert [choice.tiling.channels for choice in chosen if choice] == [8, 4, 4, 2, 2, 1]


def test_input_channels_are_cut_where_whole_filters_do_not_fit() -> None:
    """Input channels are split if whole filters do not fit.

    Sixteen filters of 512 · 9 bytes are 72 KiB. In 64 KiB, v4 accumulates sums and uses the whole
    array.
    """
    operation = cases.convolution(
        np.random.default_rng(0), cases.operand("x", 512, 7, 7), "y", 512, pads=(1, 1, 1, 1)
    )
    compute = 512 * 512 * 9 * 49 // 64
    for isa, least, most in (("v4", 1, 1.1), ("v3", 2, 2.2)):
        arch = Arch(pe=PeArray(ic=4, oc=16, ow=1), sram_bytes=1 << 16, isa=isa)
        geometry = make_layer(operation, arch).geometry
        search = TileSearch(geometry, arch)
        choice = search.best(make_streamed(geometry), arch.sram_bytes)
        assert choice is not None
        assert bool(choice.tiling.depth) == (isa == "v4")
        made = tiles(geometry, choice.tiling)
        cycles = sum(search.cost.compute.tile(*sizes(tile)) for tile in made)
        assert least * compute <= cycles <= most * compute
        assert sum(tile.output.elements for tile in made if tile.last) == operation.output.elements
        assert sum(tile.first for tile in made) == sum(tile.last for tile in made)


def test_the_estimate_uses_the_formula_of_the_instruction() -> None:
    """24 output and 9 input channels with 3x3 taps on a 2 by 4 array take 108,000 cycles.

    5 · 6 · 20 · 20 · 9 = 108,000, and overhead.
    """
    arch = Arch(pe=PeArray(ic=2, oc=4, ow=1))
    cost = TileSearch(_layer("convolution", arch).geometry, arch).cost
    assert cost.compute.tile(24, 20) - cost.compute.tile(24, 10) == 54_000
    overhead = cost.compute.tile(24, 20) - 108_000
    assert cost.shape(8, 20).compute == 108_000 + 3 * overhead


@pytest.mark.parametrize(
    ("count", "nbytes", "pitch", "slots"),
    [
        (3, 64, 64, 24),  # whole bursts of 8 beats
        (3, 32, 64, 21),  # half a burst takes the gap of 7
        (2, 96, 64, 30),  # 8 and 7
        (4, 64, 32, 44),  # every other row is 4 and 4 beats, 7 and 7: (8 + 14) / 2
        (8, 8, 8, 56),  # never cut
        (8, 16, 8, 63),  # cut in one of eight starts
    ],
)
def test_rows_take_the_bursts_that_they_touch(
    count: int, nbytes: int, pitch: int, slots: int
) -> None:
    assert DEFAULT_BUS.rows_slots(count, nbytes, pitch) == slots


def test_a_remembered_answer_is_the_one_that_the_budget_gets() -> None:
    generator = random.Random(5)
    answers = Answers[int, list[bool]]()
    asked = 0

    def ask(sizes: list[int], budget: Budget) -> list[bool]:
        nonlocal asked
        asked += 1
        return [budget.has_room_for(size) for size in sizes]

    questions = [
        [generator.randrange(100) for _ in range(generator.randrange(6))] for _ in range(20)
    ]
    for _ in range(2000):
        question = generator.randrange(20)
        budget = generator.randrange(100)
        found = answers.find(question, budget, partial(ask, questions[question]))
        assert found == [size <= budget for size in questions[question]]
    assert asked <= sum(len(sizes) + 1 for sizes in questions)
