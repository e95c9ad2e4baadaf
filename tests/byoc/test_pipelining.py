"""Loads ahead: where they go by hand, and that they go nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from byoc.estimate.bus import DEFAULT_BUS
from byoc.operators.nest import RowTransfer
from byoc.scheduling.memplan import check_plan
from byoc.scheduling.pipelining import TIGHT, Pipelined, Spread, find_splits, pipeline_tiles
from byoc.scheduling.stream import CommandStep, Pointer, StepSource, TileSteps, load, store
from isa.arch import Arch
from isa.instruction import Unit
from isa.ops.lookup import OP_LUT

SOURCE = StepSource("layer", "ACT", "OP_LUT", 0, ())
WEIGHTS = 8000
"""Bytes of a tile's weights: 1,001 bus cycles, and 108 that a load takes beside them."""
STORED = 1 << 24
"""Behind what tiles store."""


def _compute(*buffers: int) -> CommandStep:
    names = ("EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS")
    pointers = {name: Pointer(buffer) for name, buffer in zip(names, buffers, strict=False)}
    return CommandStep(OP_LUT, Unit.EX, {}, pointers, SOURCE)


def test_buffers_with_operands_at_two_offsets_are_split_at_the_second() -> None:
    """Buffer 0: one offset; buffer 1: records and weights; buffer 2: three offsets."""
    names = ("EX_INPUT_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS")

    def step(*pointers: Pointer) -> TileSteps:
        own = dict(zip(names, pointers, strict=True))
        return TileSteps((), (CommandStep(OP_LUT, Unit.EX, {}, own, SOURCE),), ())

    tiles = [
        step(Pointer(0), Pointer(1), Pointer(1, 128), Pointer(2)),
        step(Pointer(2, 64), Pointer(1), Pointer(1, 128), Pointer(2, 8)),
    ]
    assert find_splits(tiles) == {1: 128}


def _tiles(count: int, slots: int) -> list[TileSteps]:
    """Return a tile that computes on 800 bytes and ``count`` tiles with weights.

    The weights use ``slots`` buffers in turn.
    """
    first = TileSteps(
        (load(0, Pointer(0), RowTransfer(0, 800), SOURCE, DEFAULT_BUS),), (_compute(0),), ()
    )
    rest = [
        TileSteps(
            (
                load(
                    1_000_000 + 64 * number,
                    Pointer(1 + number % slots),
                    RowTransfer(0, WEIGHTS),
                    SOURCE,
                    DEFAULT_BUS,
                ),
            ),
            (_compute(1 + number % slots),),
            (),
        )
        for number in range(count)
    ]
    return [first, *rest]


def _run(sram_bytes: int) -> Pipelined:
    """Pipeline a tile of 10,000 cycles and four of 10 whose weights use two buffers."""
    scratch = [("input", 800), ("weights 0", WEIGHTS), ("weights 1", WEIGHTS)]
    arch = Arch(sram_bytes=sram_bytes, sram_banks=1, alignment=8)
    (found,) = pipeline_tiles(_tiles(4, 2), [10_000, 10, 10, 10, 10], scratch, arch, DEFAULT_BUS)
    return found


def _order(found: Pipelined) -> list[tuple[str, int]]:
    """Unit and buffer of every step."""
    return [(step.unit.name, next(iter(step.pointers.values())).buffer) for step in found.steps]


def test_what_has_room_is_loaded_beside_the_computation_before() -> None:
    """All weights that have room are loaded while the first tile computes.

    The input is there at 100 + 1 + 108 = 209, EX computes until 10,209, and the loads end at 209 +
    4 · 1,109.
    """
    found = _run(800 + 4 * WEIGHTS)
    assert _order(found) == [
        ("LD", 0), ("EX", 0), ("LD", 1), ("LD", 2), ("LD", 3), ("LD", 4), ("EX", 1), ("EX", 2),
        ("EX", 3), ("EX", 4),
    ]  # fmt: skip
    assert found.cycles == 209 + 10_000 + 4 * 10
    assert [request.name for request in found.requests[3:]] == [
        "weights 0 ahead",
        "weights 1 ahead",
    ]


def test_what_has_no_room_waits_for_the_last_use_of_its_buffer() -> None:
    """Three tiles' weights fit.

    The fourth's replace the second's behind tile 2, which begins at 10,219.
    """
    found = _run(800 + 3 * WEIGHTS)
    assert _order(found) == [
        ("LD", 0), ("EX", 0), ("LD", 1), ("LD", 2), ("LD", 3), ("EX", 1), ("EX", 2), ("EX", 3),
        ("LD", 2), ("EX", 2),
    ]  # fmt: skip
    assert found.cycles == 10_229 + 1_109 + 10


def _computed(*reads: int) -> TileSteps:
    """Compute on buffers without loads and stores."""
    return TileSteps((), (_compute(*reads),), ())


@pytest.mark.parametrize(("unused", "address"), [(0, 0), (1, 800), (2, 800)])
def test_bytes_that_were_just_used_are_not_taken(unused: int, address: int) -> None:
    """The second tile's buffer takes the first one's bytes only if no tile must pass before."""
    tiles = [_computed(0), _computed(1), _computed(2)]
    scratch = [("a", 800), ("b", 800), ("c", 800)]
    arch = Arch(sram_bytes=4096, sram_banks=1, alignment=8)
    (found,) = pipeline_tiles(
        tiles, [10, 10, 10], scratch, arch, DEFAULT_BUS, spread=Spread(unused)
    )
    assert found.addresses[:2] == (0, address)
    assert found.addresses[2] == (1600 if unused == 2 else 0)


def test_loads_wait_in_the_queue_of_a_busy_unit() -> None:
    """The second weights arrive after 10 cycles of the first tile, but are loaded beside it."""
    scratch = [("input", 800), ("weights 0", WEIGHTS), ("weights 1", WEIGHTS)]
    arch = Arch(sram_bytes=800 + 4 * WEIGHTS, sram_banks=1, alignment=8)
    for spread, expected in (
        (TIGHT, [("LD", 0), ("EX", 0), ("LD", 1), ("EX", 1), ("LD", 2), ("EX", 2)]),
        (Spread(0, 1), [("LD", 0), ("EX", 0), ("LD", 1), ("LD", 2), ("EX", 1), ("EX", 2)]),
    ):
        (found,) = pipeline_tiles(
            _tiles(2, 2), [10, 10, 10], scratch, arch, DEFAULT_BUS, spread=spread
        )
        assert _order(found) == expected


def test_a_load_follows_the_store_of_what_it_reads() -> None:
    """Tile 1 waits for its load of the 800 bytes that tile 0 stores.

    The store ends at 10,209 + 101 + 108. Tile 1 computes 209 cycles later.
    """
    written = store(4096, Pointer(1), RowTransfer(0, 800), SOURCE, DEFAULT_BUS)
    tiles = [
        TileSteps(
            (load(0, Pointer(0), RowTransfer(0, 800), SOURCE, DEFAULT_BUS),),
            (_compute(0, 1),),
            (written,),
        ),
        TileSteps(
            (load(4096, Pointer(2), RowTransfer(0, 800), SOURCE, DEFAULT_BUS),), (_compute(2),), ()
        ),
    ]
    (found,) = pipeline_tiles(
        tiles,
        [10_000, 10],
        [("a", 800), ("b", 800), ("c", 800)],
        Arch(sram_bytes=8192, sram_banks=1),
        DEFAULT_BUS,
    )
    assert _order(found) == [("LD", 0), ("EX", 0), ("ST", 1), ("LD", 2), ("EX", 2)]
    assert found.cycles == 10_209 + 101 + 108 + 209 + 10


def _drawn_tiles(
    random: np.random.Generator, count: int, sizes: Sequence[int]
) -> tuple[list[TileSteps], list[tuple[int, ...]]]:
    """Draw tiles that load some of the buffers of ``sizes``, compute on all, and store.

    Also return the addresses of the data that each tile's computations must find.
    """
    slots = len(sizes)
    tiles: list[TileSteps] = []
    wanted: list[tuple[int, ...]] = []
    held = [-1] * slots
    for _ in range(count):
        loads = []
        for buffer in range(slots):
            if held[buffer] < 0 or random.random() < 0.6:
                stored = (
                    int(random.integers(len(wanted))) if wanted and random.random() < 0.4 else None
                )
                address = 8192 * (len(wanted) * slots + buffer + 1) + STORED
                held[buffer] = address = address if stored is None else 8192 * stored
                loads.append(
                    load(
                        address, Pointer(buffer), RowTransfer(0, sizes[buffer]), SOURCE, DEFAULT_BUS
                    )
                )
        result = store(
            8192 * len(wanted), Pointer(slots), RowTransfer(0, 4000), SOURCE, DEFAULT_BUS
        )
        wanted.append(tuple(held))
        tiles.append(
            TileSteps(tuple(loads), tuple(_compute(buffer) for buffer in range(slots)), (result,))
        )
    return tiles, wanted


@pytest.mark.parametrize("seed", range(20))
def test_contents_are_what_they_would_be_without_loading_ahead(seed: int) -> None:
    """Every computation of a random stream finds its own tile's loads in all buffers.

    Some loads read what an earlier tile has stored, and follow that store.
    """
    random = np.random.default_rng(seed)
    count = int(random.integers(5, 60))
    slots = int(random.integers(1, 4))
    sizes = [int(size) for size in random.integers(64, 4000, slots)]
    tiles, wanted = _drawn_tiles(random, count, sizes)
    sizes.append(4000)
    spread = Spread(seed % 3, seed % 4, alone=bool(seed % 2))
    arch = Arch(
        sram_bytes=(sum(sizes) + int(random.integers(100, 30_000))) // 8 * 8,
        sram_banks=1,
        alignment=8,
    )
    scratch = [(str(buffer), size) for buffer, size in enumerate(sizes)]
    (found,) = pipeline_tiles(
        tiles, random.integers(10, 4000, count).tolist(), scratch, arch, DEFAULT_BUS, spread=spread
    )
    check_plan(found.requests, found.addresses, arch.sram_bytes, arch.alignment)
    memory = np.full(arch.sram_bytes, -1)
    seen = []
    written = set[int]()
    for step in found.steps:
        buffer = next(iter(step.pointers.values())).buffer
        place = slice(
            found.addresses[buffer], found.addresses[buffer] + found.requests[buffer].nbytes
        )
        if step.unit is Unit.LD:
            address = step.registers["LD_DRAM_ADDRESS"]
            assert address >= STORED or address in written
            memory[place] = address
        elif step.unit is Unit.ST:
            written.add(step.registers["ST_DRAM_ADDRESS"])
        else:
            assert len(set(memory[place].tolist())) == 1
            seen.append(int(memory[place.start]))
    assert seen == [address for row in wanted for address in row]
