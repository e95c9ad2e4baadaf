"""Estimates agree with the documented machine and the emitted steps, and keep their bounds."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import byoc
from byoc.emission.region import layers_of
from byoc.estimate import constants
from byoc.estimate.account import LayerCost
from byoc.estimate.bus import DEFAULT_BUS, bus_of
from byoc.operators.copies import StridedCopy
from byoc.operators.layer import Resident, Tiling, make_streamed, tile_count
from byoc.operators.operator import Operator
from byoc.operators.pieces import Dim
from byoc.operators.records import Operand
from byoc.scheduling.layer_stream import stream_layer
from byoc.scheduling.region_context import RegionContext
from byoc.scheduling.residency import plan_layers
from byoc.scheduling.stream import TileSteps
from byoc.scheduling.tile_search import TileSearch
from byoc.scheduling.tiling import list_buffered, shapes
from byoc.tuning.subject import bare_memory
from dla_sim.presets import load_hardware
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.instruction import Command, Unit
from tests.byoc import region_cases as cases

ROOT = Path(byoc.__file__).parent
MOST = 40
"""Tiles of a tiling that is looked at, at most."""
PLAIN = (0, 1, 2, 100)
"""Numbers that any code may have: nothing, one, a pair, per cent."""


def test_the_estimates_are_for_the_documented_machine() -> None:
    """Constants that are called as those of a Timing are its defaults.

    What follows from them does so there, too.
    """
    timing = Timing()
    known = vars(constants)
    restated = {
        name.lower(): value for name, value in known.items() if name.lower() in Timing.model_fields
    }
    assert restated == {name: getattr(timing, name) for name in restated}
    assert len(restated) == 11
    assert bus_of(timing) == DEFAULT_BUS
    assert timing.main.burst_gap == DEFAULT_BUS.burst_gap
    assert timing.main.burst_beats == DEFAULT_BUS.burst_beats
    assert timing.dma_setup + timing.dram_latency + timing.dma_drain == DEFAULT_BUS.transfer_cycles(
        0
    )


@pytest.mark.parametrize(
    "settings", [{}, {"bus_bytes": 32}, {"bus_bytes": 4}, {"dram_latency": 500}, {"dram_rate": 0.5}]
)
def test_a_bus_has_the_rate_of_its_timing(settings: dict[str, float]) -> None:
    for preset in ("balanced-64", "balanced-256"):
        timing = load_hardware(preset, settings).timing
        bus = bus_of(timing)
        nbytes = 1 << 20
        assert (
            bus.cycles_of(nbytes) == bus.dense_slots(nbytes) == nbytes / timing.main.sustained_bytes
        )
        assert bus.bytes_in(bus.cycles_of(nbytes)) == nbytes


def numbers(text: str) -> Iterator[tuple[int, complex]]:
    """Every number in a file that is not plain, with its line."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Constant)
            and type(node.value) in (int, float, complex)
            and node.value not in PLAIN
        ):
            yield node.lineno, node.value


def test_numbers_that_choices_go_by_stand_in_one_file() -> None:
    """No other file of scheduling, partitioning and estimates has a number of its own."""
    folders = [
        path
        for room in ("scheduling", "partitioning", "estimate")
        for path in sorted((ROOT / room).glob("*.py"))
    ]
    files = [path for path in folders if path.name != "constants.py"]
    found = {
        f"{path.relative_to(ROOT)}:{line}": value
        for path in files
        for line, value in numbers(path.read_text())
    }
    assert found == {}
    assert len(files) > 15
    assert dict(numbers("GAIN = 0.98\ndef f(x=3):\n    return x[1:-7] * 2 // 100")) == {
        1: 0.98,
        2: 3,
        3: 7,
    }


def test_every_number_has_a_reason_and_a_reader() -> None:
    """Every constant has a text that explains it, and some code reads it.

    The machine's document explains some of them.
    """
    body = ast.parse(Path(str(constants.__file__)).read_text()).body
    read = {
        node.id
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    declared = {}
    for statement, after in zip(body, (*body[1:], None), strict=True):
        if isinstance(statement, ast.Assign):
            declared[ast.unparse(statement.targets[0])] = isinstance(after, ast.Expr)
    assert {
        name
        for name, told in declared.items()
        if not told and name.lower() not in Timing.model_fields
    } == set()
    assert set(declared) - read == set()
    assert len(declared) > 40


ARCH = Arch(pe=PeArray(ic=2, oc=4, ow=1), isa="v4")
OPERATIONS: dict[str, Operator] = {
    "convolution": cases.convolution(
        np.random.default_rng(0), cases.operand("x", 9, 20, 20), "y", 24
    ),
    "depthwise": cases.convolution(
        np.random.default_rng(0), cases.operand("x", 12, 20, 20), "y", 12, depthwise=True
    ),
    "matmul": cases.matmul(np.random.default_rng(0), cases.operand("x", 60, 40), "y", 30),
    "add": cases.add(cases.operand("a", 9999), cases.operand("b", 9999), "y"),
}


def copy_of(shape: tuple[int, ...], order: tuple[int, ...]) -> StridedCopy:
    """Return a copy that permutes the axes of a tensor of ``shape``.

    The first two axes of the result are channels and rows.
    """
    dims = [
        Dim(
            shape[axis],
            math.prod(shape[axis + 1 :]),
            math.prod(shape[other] for other in order[place + 1 :]),
        )
        for place, axis in enumerate(order)
    ]
    size = math.prod(shape)
    return StridedCopy(
        name="copy",
        kind="ELTWISE",
        inputs=(Operand("x", (1, size)),),
        output=Operand("y", (size,)),
        channels=dims[0],
        rows=dims[1],
        inner=tuple(dims[2:]),
    )


COPIES = {
    "transposed": copy_of((64, 300), (1, 0)),
    "to rows": copy_of((24, 14, 10), (1, 2, 0)),
    "to planes": copy_of((14, 10, 24), (2, 0, 1)),
    "heads": copy_of((6, 50, 16), (1, 0, 2)),
    "shuffled": copy_of((4, 12, 49), (1, 0, 2)),
}


def steps_of(
    operation: Operator, count: int
) -> Iterator[tuple[LayerCost, Tiling, list[TileSteps]]]:
    """Some tilings of an operation, with the steps that they are, everything streamed."""
    inputs = tuple(one.value for one in operation.inputs)
    region, values = cases.region((operation,), inputs, (operation.output.value,))
    lowered, (layer,) = layers_of(region, values, ARCH)
    geometry = layer.geometry
    everything = make_streamed(layer.geometry)
    cost = LayerCost(geometry, ARCH)
    known = [shape for shape in shapes(geometry, everything) if tile_count(geometry, shape) <= MOST]
    for shape in known[:: max(1, len(known) // count)]:
        for tiling in tuple(list_buffered(geometry, ARCH, everything, 1 << 20, shape))[::5]:
            yield cost, tiling, stream_layer(layer, tiling, bare_memory(ARCH, lowered, ()))


@pytest.mark.parametrize("name", sorted(COPIES))
def test_copies_take_what_their_commands_take(name: str) -> None:
    """The estimated compute cycles and bus slots of copies are exact for every tiling.

    Cycles follow the formula of OP_PERMUTE for this machine's banks.
    """
    for cost, tiling, steps in steps_of(COPIES[name], 8):
        computed = [
            step.instruction.cycles(
                Command(
                    0,
                    step.instruction,
                    Unit.EX,
                    False,
                    False,
                    False,
                    False,
                    step.fields,
                    step.registers,
                ),
                ARCH,
            )
            for tile in steps
            for step in tile.computes
        ]
        overhead = constants.COMMAND_OVERHEAD * len(computed)
        assert cost.shape_of(tiling).compute == sum(computed) + overhead, tiling
        slots = sum(step.slots for tile in steps for step in (*tile.loads, *tile.stores))
        transfers = sum(len(tile.loads) + len(tile.stores) for tile in steps)
        found = cost.traffic(tiling, make_streamed(cost.geometry))
        assert found == pytest.approx(slots, rel=0.2, abs=6 * transfers), tiling


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_what_is_kept_is_loaded_once_and_what_is_not_again(name: str) -> None:
    """The account's bus slots equal those of the steps for any order and buffers."""
    several = 0
    for cost, tiling, steps in steps_of(OPERATIONS[name], 10):
        slots = sum(step.slots for tile in steps for step in (*tile.loads, *tile.stores))
        transfers = sum(len(tile.loads) + len(tile.stores) for tile in steps)
        found = cost.traffic(tiling, make_streamed(cost.geometry))
        assert found == pytest.approx(slots, rel=0.2, abs=6 * transfers), tiling
        several += tiling.slots.input > 2 or tiling.slots.constants > 2
    assert several or name == "add"


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_no_tiling_is_below_the_least(name: str) -> None:
    """Neither of a shape nor of the layer: where it is, the search stops too early."""
    for cost, tiling, _ in steps_of(OPERATIONS[name], 10):
        everything = make_streamed(cost.geometry)
        found = cost.estimate(tiling, everything)
        assert cost.least(cost.shape_of(tiling), everything) <= found
        assert cost.floor(everything) <= found


def test_layers_leave_room_for_what_is_loaded_long_after_them() -> None:
    """Loads of the last layer's weights run ahead during all earlier layers.

    They do not run during the adjacent layer only.
    """
    random = np.random.default_rng(0)
    arch = Arch(isa="v4", pe=PeArray(ic=8, oc=8), sram_bytes=1 << 18)
    first = cases.convolution(random, cases.operand("x", 16, 16, 16), "a", 32, pads=(1, 1, 1, 1))
    second = cases.convolution(random, first.output, "b", 16, pads=(1, 1, 1, 1))
    third = cases.convolution(random, second.output, "c", 16, pads=(1, 1, 1, 1))
    last = cases.matmul(random, Operand("c", (1, third.output.elements)), "d", 64)
    region, values = cases.region((first, second, third, last), ("x",), ("d",))
    lowered, layers = layers_of(region, values, arch)
    searches = [TileSearch(layer.geometry, arch) for layer in layers]
    tilings = plan_layers(
        RegionContext(layers, searches, lowered, arch, DEFAULT_BUS), arch, 0
    ).tilings
    resident = Resident((False,), follows=True)
    assert searches[3].cost.compute_waits(tilings[3], resident) > 10_000
    assert searches[2].cost.compute_waits(tilings[2], resident) < 0
    alone = searches[1].best(resident, arch.sram_bytes)
    assert alone is not None
    taken = [
        searches[1].cost.compute_working_set(tiling, resident)
        for tiling in (tilings[1], alone.tiling)
    ]
    assert taken[0] < 0.7 * taken[1]


@pytest.mark.parametrize(("kib", "together"), [(32, True), (64, False)])
def test_groups_are_for_what_gains_by_them(kib: int, together: bool) -> None:
    """Bands save no bytes if the tensor between two convolutions fits as a whole.

    Otherwise they save its bytes.
    """
    random = np.random.default_rng(0)
    arch = Arch(isa="v4", pe=PeArray(ic=8, oc=8), sram_bytes=kib << 10)
    first = cases.convolution(random, cases.operand("x", 16, 48, 48), "a", 16, pads=(1, 1, 1, 1))
    second = cases.convolution(random, first.output, "b", 16, pads=(1, 1, 1, 1))
    region, values = cases.region((first, second), ("x",), ("b",))
    lowered, layers = layers_of(region, values, arch)
    searches = [TileSearch(layer.geometry, arch) for layer in layers]
    plan = plan_layers(
        RegionContext(layers, searches, lowered, arch, DEFAULT_BUS), arch, arch.sram_bytes
    )
    assert bool(plan.groups) == together
    assert plan.residents == (() if together else ("a",))
