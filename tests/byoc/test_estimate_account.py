"""Accounts of layers and groups, against the steps of their tiles and against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest

from byoc.emission.region import layers_of
from byoc.estimate import constants
from byoc.estimate.account import Carried, GroupAccount, GroupFloor, LayerCost, least_cycles
from byoc.estimate.bus import DEFAULT_BUS
from byoc.estimate.constants import EXPOSED, TRAFFIC
from byoc.operators.layer import BufferSlots, Tiling, make_streamed
from isa.arch import Arch, PeArray
from isa.instruction import Command, Unit
from tests.byoc import region_cases as cases
from tests.byoc.test_estimate import ARCH, OPERATIONS, steps_of


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_tiles_compute_what_their_commands_take(name: str) -> None:
    """Estimated compute cycles equal the formulas of the instructions for every tiling.

    The last tiles of channels, rows and depth are smaller.
    """
    for cost, tiling, steps in steps_of(OPERATIONS[name], 10):
        total = 0
        for step in (step for tile in steps for step in tile.computes):
            registers = {**dict.fromkeys(step.instruction.registers, 0), **step.registers}
            command = Command(
                0, step.instruction, Unit.EX, False, False, False, False, step.fields, registers
            )
            total += step.instruction.cycles(command, ARCH) + constants.COMMAND_OVERHEAD
        assert cost.shape_of(tiling).compute == total, tiling


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_the_first_loads_and_the_last_store_are_those_of_the_tiles(name: str) -> None:
    """The last tile has what is left of channels and rows."""
    smaller = 0
    for cost, tiling, steps in steps_of(OPERATIONS[name], 10):
        shape = cost.shape_of(tiling)
        stores = [tile.stores for tile in steps if tile.stores]
        first, last = (sum(step.slots for step in part) for part in (steps[0].loads, stores[-1]))
        found = sum(shape.input_slots) + shape.constant_slots + shape.table_slots
        assert found == pytest.approx(first, rel=0.1, abs=6 * len(steps[0].loads)), tiling
        assert shape.last_slots == pytest.approx(last, rel=0.1, abs=6 * len(stores[-1])), tiling
        smaller += 2 * last < sum(step.slots for step in stores[0])
    assert smaller


def layer(name: str) -> LayerCost:
    """The cost of an operation, without its steps."""
    return next(steps_of(OPERATIONS[name], 1))[0]


def test_what_is_stored_beside_the_computation_costs_only_its_bus_slots() -> None:
    """A result that stays resident is not stored.

    A layer that follows others hides most of its first constants.
    """
    cost = layer("convolution")
    everything = make_streamed(layer("convolution").geometry)
    tiling = Tiling(8, 6, slots=BufferSlots(2, 2, 2))
    shape = cost.shape_of(tiling)
    assert cost.compute_waits(tiling, everything) < 0  # it computes longer than it moves
    resident = cost.estimate(tiling, everything._replace(output=True))
    last = DEFAULT_BUS.transfer_cycles(shape.last_slots)
    assert cost.estimate(tiling, everything) - resident == pytest.approx(
        last + TRAFFIC * shape.output_all
    )
    alone, follows = (
        cost.estimate(tiling, everything._replace(follows=after)) for after in (False, True)
    )
    hidden = constants.HIDDEN * min(
        DEFAULT_BUS.transfer_cycles(shape.constant_slots), shape.compute
    )
    overheads = (constants.TILE_OVERHEAD - constants.FIRST_OVERHEAD) * shape.tiles
    assert alone - follows == pytest.approx(hidden - overheads)


def test_a_result_with_one_buffer_is_stored_between_tiles() -> None:
    """All stores but the last stop the computation; with two buffers none does."""
    cost = layer("convolution")
    everything = make_streamed(cost.geometry)
    one, two = (Tiling(8, 6, slots=BufferSlots(2, 2, outputs)) for outputs in (1, 2))
    shape = cost.shape_of(one)
    stores = DEFAULT_BUS.transfer_cycles(
        shape.output_all, shape.parts * shape.bands
    ) - DEFAULT_BUS.transfer_cycles(shape.last_slots)
    assert cost.estimate(one, everything) - cost.estimate(two, everything) == pytest.approx(stores)


def test_an_operand_and_a_result_with_one_buffer_share_the_bus() -> None:
    """All slots but those of the first loads and of the last store stop the computation."""
    cost = layer("convolution")
    everything = make_streamed(cost.geometry)
    one, two = (Tiling(24, 9, slots=BufferSlots(buffers, 2, buffers)) for buffers in (1, 2))
    shape = cost.shape_of(one)
    moved = sum(shape.input_all) - sum(shape.input_slots) + shape.output_all - shape.last_slots
    assert cost.estimate(one, everything) - cost.estimate(two, everything) == pytest.approx(moved)


def test_operands_of_a_fused_layer_are_loaded_tile_by_tile() -> None:
    cost = layer("convolution")
    everything = make_streamed(cost.geometry)
    tiling = Tiling(8, 6, slots=BufferSlots(2, 2, 2))
    beside = everything._replace(beside=1)
    assert (
        cost.traffic(tiling, beside) - cost.traffic(tiling, everything)
        == cost.shape_of(tiling).output_all
    )
    shape = cost.shape_of(tiling)
    edge = DEFAULT_BUS.transfer_cycles(0)
    more = cost.least(shape, beside) - cost.least(shape, everything)
    assert more == pytest.approx(edge + TRAFFIC * shape.output_all)


def test_constants_that_do_not_fit_are_loaded_after_the_layers_before_them() -> None:
    """A layer of few constants computes long.

    Of the constants of the next one, the memory holds a part by then.
    """
    random = np.random.default_rng(0)
    arch = Arch(pe=PeArray(ic=32, oc=64), isa="v4")
    operations = (
        cases.convolution(random, cases.operand("x", 9, 40, 40), "y", 24),
        cases.matmul(random, cases.operand("z", 1, 4000), "w", 64),
    )
    costs = []
    for operation in operations:
        region, values = cases.region(
            (operation,), (operation.inputs[0].value,), (operation.output.value,)
        )
        costs.append(LayerCost(layers_of(region, values, arch)[1][0].geometry, arch))
    nests = [cost.geometry.nest for cost in costs]
    computed = [
        cost.shape(nest.channels, nest.rows).compute
        for cost, nest in zip(costs, nests, strict=True)
    ]
    sizes = [
        cost.geometry.constant_bytes(nest.channels) for cost, nest in zip(costs, nests, strict=True)
    ]
    cycles = DEFAULT_BUS.cycles_of
    assert cycles(sizes[1]) > 2 * computed[1]
    own = (None, None)
    assert least_cycles(costs, own, sum(computed), 1 << 20) == sum(computed)
    for nbytes in (0, 8000, 64000):
        least = least_cycles(costs, own, sum(computed), nbytes)
        assert least == computed[0] + cycles(sizes[1] - nbytes)
    assert least_cycles(costs[1:], own[1:], computed[1], 8000) == cycles(sizes[1] - 8000)
    least = least_cycles(costs[::-1], own, sum(computed), 0)
    assert least == max(sum(computed), cycles(sum(sizes)))
    twice = least_cycles([costs[1]] * 2, ("same", "same"), 2 * computed[1], 0)
    assert twice == max(2 * computed[1], computed[1] + cycles(sizes[1])), "loaded only once"


def test_a_group_takes_as_long_as_its_longest_part() -> None:
    """Computation, loads, stores and the bus run at once.

    Edges, a part of the constants and tiles are added.
    """
    account = GroupAccount(DEFAULT_BUS, [0, 0])
    account.load(1000, 4)
    account.store(600, 2)
    loads = DEFAULT_BUS.transfer_cycles(1000, 4)
    stores = DEFAULT_BUS.transfer_cycles(600, 2)
    assert (account.loads, account.stores, account.traffic) == (loads, stores, 1600)
    price = TRAFFIC * 1600
    assert account.cycles((9000, 500), 30) == pytest.approx(9500 + price + 30)
    assert account.cycles((10, 10), 30) == pytest.approx(max(loads, stores, 1600) + price + 30)
    account.edge = 70
    account.constants = 200
    assert account.cycles((9000, 500), 30) == pytest.approx(9500 + 70 + EXPOSED * 200 + price + 30)


def test_loads_that_few_layers_can_hide_are_added_to_their_computation() -> None:
    """Layers 4 to 6 form the group.

    Those from 5 to 6 read a buffer whose loads take longer than layer 4 computes.
    """
    account = GroupAccount(DEFAULT_BUS, [0, 0, 0])
    moves = Carried(
        kept=False, near=(4, 5, 640), traffic=800, loads=900, edge=20, apart=(5,), alone=(5, 6, 900)
    )
    account.enter("x", moves, 4)
    account.enter("y", Carried(kept=True, fixed=64, stores=30, apart=(5, 6)), 4)
    assert account.near == [640, 640, 0]
    assert (account.kept, account.fixed, account.apart) == (["y"], 64, {5: 2, 6: 1})
    assert (account.traffic, account.loads, account.stores, account.edge) == (800, 900, 30, 20)
    compute = 100, 400, 500
    assert account.cycles(compute, 0) == pytest.approx(400 + 500 + 900 + 20 + TRAFFIC * 800)
    assert account.cycles((2000, 400, 500), 0) == pytest.approx(2900 + 20 + TRAFFIC * 800)


def test_the_bound_of_a_group_has_what_any_plan_moves() -> None:
    """Constants wait once or are loaded in every band, whichever is cheaper.

    The bus or the computation is busy.
    """
    constants_cycles = DEFAULT_BUS.cycles_of(6400)
    for bands in (2, 3, 8):
        floor = GroupFloor(DEFAULT_BUS, bands)
        floor.store(50)
        floor.compute(1000, 110.0, 6400)
        again = min(EXPOSED, TRAFFIC * (bands - 1)) * constants_cycles
        least = TRAFFIC * 50 * bands + 1000 + 110 + TRAFFIC * constants_cycles + again
        assert floor.least == pytest.approx(least)
        slots = 2000
        waits = slots + 50 * bands + constants_cycles - 1000
        assert floor.add_slots(slots) == pytest.approx(least + TRAFFIC * slots + waits)
        assert floor.add_slots(0) == pytest.approx(least + max(0, waits - slots))
