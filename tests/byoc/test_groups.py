"""Groups of layers in bands of rows: bits, bytes and cycles.

What may be a group; how the search chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
import pytest

from byoc.compiler import compile
from byoc.emission.region import Region, compile_region, layers_of
from byoc.graph import Value
from byoc.importing import import_model
from byoc.operators.copies import StridedCopy
from byoc.operators.layer import BufferSlots, OperatorLayer, make_streamed
from byoc.operators.nest import find_allowed_channels
from byoc.operators.operator import Operator
from byoc.operators.pieces import Dim
from byoc.operators.records import COMBINED, MappingType, Operand
from byoc.options import Choices, GroupChoice, LayerChoice
from byoc.scheduling.groups import (
    BandedGroup,
    fusion_graph,
    is_needed_after,
    lawful,
    list_fused_buffers,
    mapping_allows,
    may_ride,
    members_of,
)
from byoc.scheduling.lowering import Lowered
from byoc.scheduling.region_context import Rooms
from byoc.scheduling.residency import choice_of, group_choice_of
from byoc.scheduling.tiling import shapes
from dla_sim.device import Device
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.errors import InputError
from isa.instruction import Unit
from isa.program import Program
from tests.byoc import region_cases as cases
from tests.byoc.ordering import unordered_conflicts
from tests.byoc.small_models import ModelBuilder
from tests.isa.legality import check_legality

KINDS = (
    "conv",
    "strided",
    "depthwise",
    "pool",
    "average",
    "add",
    "relu",
    "concat",
    "wide",
    "skip",
    "shuffle",
)
Random = np.random.Generator
Drawn = tuple[tuple[Operator, ...], tuple[str, ...]]
"""Operations, and the values that leave."""


def single(made: Region, values: dict[str, Value]) -> tuple[Region, dict[str, Value]]:
    """The region with values that are batches of one."""
    return made, {name: replace(value, shape=(1, *value.shape)) for name, value in values.items()}


def next_operation(kind: str, earlier: Sequence[Operand], name: str, random: Random) -> Operator:
    """Return an operation on the last tensor with a window that fits its shape."""
    source = earlier[-1]
    channels = int(random.integers(1, 9))
    if kind == "strided":
        return cases.convolution(
            random, source, name, channels, kernel=(2, 1), strides=(2, 2), pads=(1, 0, 1, 0)
        )
    if kind == "skip":
        return cases.convolution(
            random, source, name, channels, kernel=(1, 1), strides=(3, 1), pads=(0, 0, 0, 0)
        )
    if kind == "wide":
        top, bottom = (int(pad) for pad in random.integers(2, 6, 2))
        pads = (top, 1, bottom, 0)
        return cases.convolution(
            random, source, name, channels, kernel=(3, 2), dilations=(2, 1), pads=pads
        )
    if kind == "depthwise":
        many = source.shape[0] * int(random.integers(1, 3))
        return cases.convolution(random, source, name, many, pads=(1, 1, 1, 1), depthwise=True)
    if kind in ("pool", "average"):
        mode: Literal["max", "average"] = "max" if kind == "pool" else "average"
        return cases.pool(
            source, name, mode, kernel=(2, 2), strides=(1, 2), pads=(1, 1, 0, 0), offset=128
        )
    same = [operand for operand in earlier if operand.shape == source.shape]
    if kind == "add":
        return cases.add(source, same[int(random.integers(len(same)))], name)
    if kind == "shuffle":
        return shuffle(source, name, int(random.integers(1, 4)))
    if kind == "relu":
        return cases.unary(source, name, "relu")
    if kind == "concat":
        other = next(operand for operand in earlier if operand.shape[1:] == source.shape[1:])
        depth, *plane = other.shape[0] + source.shape[0], *source.shape[1:]
        return cases.alias((other, source), cases.operand(name, depth, *plane), (0, other.elements))
    return cases.convolution(random, source, name, channels, pads=(1, 1, 1, 1))


def shuffle(source: Operand, name: str, groups: int) -> StridedCopy:
    """Return a copy that interleaves the channels of ``groups`` groups.

    The channels stay in order if their number is no multiple.
    """
    channels = source.shape[0]
    plane = source.shape[1] * source.shape[2]
    groups = groups if channels % groups == 0 else 1
    size = channels // groups
    dims = Dim(size, plane, groups * plane), Dim(groups, size * plane, plane)
    return StridedCopy(
        name=name,
        kind="ELTWISE",
        inputs=(Operand(source.value, (1, source.elements)),),
        output=Operand(name, (source.elements,)),
        channels=dims[0],
        rows=dims[1],
        inner=(Dim(plane, 1, 1),),
    )


def drawn_groups(
    layers: Sequence[OperatorLayer], lowered: Lowered, random: Random
) -> tuple[BandedGroup, ...]:
    """Lawful groups one behind the other, everything about them drawn."""
    graph = fusion_graph(layers, lowered)
    groups = []
    first = 0
    while first < len(layers) - 1:
        lasts = [last for last in range(first + 1, len(layers)) if lawful(graph, first, last)]
        if not lasts or random.random() < 0.15:
            first += 1
            continue
        if may_ride(layers, graph, first + 1) and random.random() < 0.6:
            groups.append(BandedGroup(first, first + 1, 0, (), (), ()))
            first += 2
            continue
        last = lasts[int(random.integers(len(lasts)))]
        members = [member for member in graph.members[first : last + 1] if member is not None]
        rows = graph.planes[members[-1].writes.buffer].rows
        made = {member.writes.buffer for member in members}
        read = dict.fromkeys(piece.buffer for member in members for piece in member.reads)
        always = [
            name for name in read if name in made and is_needed_after(graph.planes[name], last)
        ]
        kept = [*(name for name in read if name not in always and random.random() < 0.5), *always]
        channels = tuple(drawn_channels(layer, random) for layer in layers[first : last + 1])
        held = tuple(bool(random.random() < 0.5) for _ in members)
        height = int(random.integers(1, rows + 1))
        slots = int(random.integers(1, 4))
        groups.append(BandedGroup(first, last, height, tuple(kept), channels, held, slots))
        first = last + 1
    return tuple(groups)


def drawn_tilings(
    layers: Sequence[OperatorLayer], groups: Sequence[BandedGroup], random: Random
) -> tuple[LayerChoice, ...]:
    """Any tiling for each layer that another rides on."""
    found = []
    for layer in (layers[group.first] for group in groups if group.rides):
        possible = list(shapes(layer.geometry, make_streamed(layer.geometry)))
        shape = possible[int(random.integers(len(possible)))]
        buffers = BufferSlots(*(int(number) for number in random.integers(1, 4, 3)))
        found.append(
            choice_of(
                layer.name,
                shape._replace(channels_outer=bool(random.random() < 0.5), slots=buffers),
            )
        )
    return tuple(found)


def drawn_channels(layer: OperatorLayer, random: Random) -> int:
    """A tile of channels: all, or as many as there may be."""
    nest = layer.nest
    return find_allowed_channels(
        nest, nest.channels if random.random() < 0.5 else int(random.integers(1, nest.channels + 1))
    )


def drawn_region(seed: int) -> Drawn:
    """A chain with branches of two to ten operations, and the values that leave it."""
    random = np.random.default_rng(seed)
    earlier = [cases.operand("x", *(int(size) for size in random.integers((1, 3, 1), (6, 20, 9))))]
    operations: list[Operator] = []
    for number in range(int(random.integers(2, 11))):
        made = next_operation(str(random.choice(KINDS)), earlier, f"v{number}", random)
        operations.append(made)
        moves = isinstance(made, StridedCopy)  # it knows nothing of shapes
        earlier.append(replace(made.output, shape=earlier[-1].shape) if moves else made.output)
    return tuple(operations), (
        earlier[-1].value,
        earlier[int(random.integers(1, len(earlier)))].value,
    )


def drawn_pairs(seed: int) -> Drawn:
    """Draw one to four convolutions, each followed by an addition to an earlier tensor.

    The sum of the last pair is the region's output.
    """
    random = np.random.default_rng(seed)
    earlier = [cases.operand("x", *(int(size) for size in random.integers((1, 3, 1), (6, 20, 9))))]
    operations: list[Operator] = []
    for number in range(int(random.integers(1, 5))):
        source = earlier[-1]
        many = source.shape[0]
        deep = bool(random.random() < 0.3)
        made = cases.convolution(
            random, source, f"v{number}", many, pads=(1, 1, 1, 1), depthwise=deep
        )
        before = earlier[int(random.integers(len(earlier)))]
        pair = (before, made.output) if random.random() < 0.5 else (made.output, before)
        operations += [made, cases.add(*pair, f"s{number}")]
        earlier.append(operations[-1].output)
    return tuple(operations), (earlier[-1].value,)


def drawn_shared(seed: int) -> Drawn:
    """Draw operations on any earlier tensor, with large tensors first.

    A tensor may have several consumers, and one tensor in two is an output.
    """
    random = np.random.default_rng(seed)
    earlier = [
        cases.operand("x", *(int(size) for size in random.integers((2, 12, 8), (24, 40, 40))))
    ]
    operations: list[Operator] = []
    kinds = [kind for kind in KINDS if kind not in ("concat", "shuffle")]
    for number in range(int(random.integers(3, 9))):
        chosen = (
            earlier[int(random.integers(len(earlier)))] if random.random() < 0.5 else earlier[-1]
        )
        before = [operand for operand in earlier if operand is not chosen]
        kind = str(random.choice(["add", "skip"] if random.random() < 0.5 else kinds))
        operations.append(next_operation(kind, (*before, chosen), f"v{number}", random))
        earlier.append(operations[-1].output)
    made = [operation.output.value for operation in operations]
    read = {operand.value for operation in operations for operand in operation.inputs}
    return tuple(operations), tuple(
        name for name in made if name not in read or random.random() < 0.5
    )


def drawn_residents(
    layers: Sequence[OperatorLayer], lowered: Lowered, groups: Sequence[BandedGroup], random: Random
) -> tuple[str, ...]:
    """Draw tensors that may stay in the scratchpad and are not private to a group."""
    graph = fusion_graph(layers, lowered)
    ridden = {
        name for group in groups if group.rides for name in list_fused_buffers(graph, group.last)
    }
    inside = {
        member.writes.buffer
        for group in groups
        for member in members_of(graph, group.first, group.last)
    }
    free = (name for name in Rooms(layers, lowered, Arch()).lives if name not in ridden)
    return tuple(name for name in free if name not in inside or random.random() < 0.3)


def run_drawn(seed: int, draw: Callable[[int], Drawn] = drawn_region) -> int:
    """Compile a drawn region with drawn groups, run it, hold it to plain execution.

    How many groups it had.
    """
    random = np.random.default_rng(seed)
    operations, outputs = draw(seed)
    arch = Arch(
        isa="v4"
        if any(isinstance(one, StridedCopy) for one in operations)
        else str(random.choice(["v2", "v4"])),
        pe=PeArray(ic=int(random.choice([1, 2, 8])), oc=int(random.choice([1, 4, 64]))),
        sram_bytes=1 << 17,
        alignment=int(random.choice([4, 8, 64])),
    )
    made, values = single(*cases.region(operations, ("x",), tuple(sorted(set(outputs)))))
    lowered, layers = layers_of(made, values, arch)
    groups = drawn_groups(layers, lowered, random)
    names = [layer.name for layer in layers]
    residents = drawn_residents(layers, lowered, groups, random)
    chosen = tuple(group_choice_of(names, group) for group in groups)
    choices = Choices(drawn_tilings(layers, groups, random), residents, chosen)
    program, report = compile_region(made, values, arch, choices=choices)
    assert report.choices.groups == choices.groups
    again, _ = compile_region(made, values, arch, choices=report.choices)
    np.testing.assert_array_equal(again.words, program.words)
    check_legality(program.commands)
    assert unordered_conflicts(program.commands, arch) == []
    inputs = cases.random_inputs(made, values, seed)
    wanted = cases.expected(made, values, inputs)
    results = cases.execute(program, inputs, seed)
    for name in made.outputs:
        np.testing.assert_array_equal(results[name], wanted[name], err_msg=f"{name} of seed {seed}")
    return len(groups)


@pytest.mark.parametrize("start", [0, 1000, 2000])
def test_bands_compute_what_layers_do(start: int) -> None:
    assert sum(run_drawn(seed) for seed in range(start, start + 30)) > 30


def test_element_wise_layers_ride() -> None:
    assert sum(run_drawn(seed, drawn_pairs) for seed in range(40)) > 50


def run_chosen(seed: int) -> int:
    """Compile a drawn region, run the program and compare it with plain execution.

    The compiler makes all choices. Return the number of outputs that a group computes.
    """
    random = np.random.default_rng(seed)
    operations, outputs = drawn_shared(seed)
    array = PeArray(ic=int(random.choice([2, 4, 8, 16])), oc=int(random.choice([4, 16, 64])))
    arch = Arch(
        isa=str(random.choice(["v2", "v4"])), pe=array, sram_bytes=1 << int(random.integers(13, 20))
    )
    made, values = single(*cases.region(operations, ("x",), tuple(sorted(outputs))))
    program, report = compile_region(made, values, arch)
    again, _ = compile_region(made, values, arch, choices=report.choices)
    np.testing.assert_array_equal(
        again.words, program.words, err_msg=f"what was chosen, chosen again, of seed {seed}"
    )
    inputs = cases.random_inputs(made, values, seed)
    wanted = cases.expected(made, values, inputs)
    results = cases.execute(program, inputs, seed)
    for name in made.outputs:
        np.testing.assert_array_equal(results[name], wanted[name], err_msg=f"{name} of seed {seed}")
    together = [
        layer for group in report.choices.groups or () if group.rows for layer in group.layers
    ]
    return sum(name in together for name in made.outputs)


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_bands_make_every_row_that_anybody_wants(start: int) -> None:
    """Consumers that skip rows get all their rows, next to other consumers and region outputs.

    The schedule, chosen again, is the same.
    """
    assert sum(run_chosen(seed) for seed in range(start, start + 40)) > 10


# A small group, worked out by hand.
# ----------------------------------------------------------------------------------


def small_network() -> tuple[Region, dict[str, Value]]:
    """A depthwise and a pointwise convolution of 4 planes of 6 rows of 8 bytes."""
    random = np.random.default_rng(0)
    x = cases.operand("x", 4, 6, 8)
    deep = cases.convolution(random, x, "deep", 4, pads=(1, 1, 1, 1), depthwise=True)
    point = cases.convolution(random, deep.output, "point", 4, kernel=(1, 1))
    return single(*cases.region((deep, point), ("x",), ("point",)))


def moved(program: Program, unit: Unit) -> list[int]:
    """Bytes of every transfer of a unit."""
    return [
        command.instruction.operands(command, program.arch).reads[0].total
        for command in program.commands
        if command.unit == unit
    ]


def output_rows(program: Program) -> list[int]:
    """Rows that every convolution makes."""
    return [
        command["EX_OUTPUT_HEIGHT"]
        for command in program.commands
        if "EX_OUTPUT_HEIGHT" in command.registers
    ]


@pytest.mark.parametrize(
    ("kept", "inputs"),
    [
        # Bands of 2 of 6 rows read rows 0-2, 1-4 and 3-5 of 4 planes of 8 bytes. Kept, each row
        # comes once.
        (("x",), [3 * 32, 2 * 32, 32]),
        ((), [3 * 32, 4 * 32, 3 * 32]),
    ],
)
def test_bytes_of_a_small_group(kept: tuple[str, ...], inputs: list[int]) -> None:
    made, values = small_network()
    group = GroupChoice(("deep", "point"), 2, kept)
    program, _ = compile_region(
        made, values, Arch(isa="v4"), choices=Choices(residents=(), groups=(group,))
    )
    # Records of 8 bytes and weights of 9 and of 4 bytes for each of 4 channels, held.
    assert sorted(moved(program, Unit.LD)) == sorted([*inputs, 4 * 8 + 4 * 9, 4 * 8 + 4 * 4])
    assert moved(program, Unit.ST) == [2 * 32] * 3, "the result alone is stored"
    assert output_rows(program) == [2] * 6, (
        "no row is computed twice: the pointwise convolution reads what the band has made"
    )


def test_a_kept_halo_is_computed_once() -> None:
    """Two depthwise convolutions: rows of the first that two bands read are kept, or made again."""
    random = np.random.default_rng(0)
    first = cases.convolution(
        random, cases.operand("x", 4, 6, 8), "first", 4, pads=(1, 1, 1, 1), depthwise=True
    )
    second = cases.convolution(random, first.output, "second", 4, pads=(1, 1, 1, 1), depthwise=True)
    made, values = single(*cases.region((first, second), ("x",), ("second",)))
    heights = {}
    for kept in (("first",), ()):
        choices = Choices(residents=(), groups=(GroupChoice(("first", "second"), 2, kept),))
        program, _ = compile_region(made, values, Arch(isa="v4"), choices=choices)
        heights[kept] = output_rows(program)
    # The first runs ahead of the second by the row that its window reaches beyond: rows 0, 1-2,
    # 3-4, 5.
    assert heights["first",] == [1, 2, 2, 2, 2, 1, 2]
    # Without: rows 0-2, 1-4 and 3-5 for bands of two.
    assert heights[()] == [3, 2, 4, 2, 3, 2]


def test_rows_that_strides_skip_are_there_for_another_layer() -> None:
    """A convolution with strides of 3 runs bands ahead, because the next layer reads all its rows.

    The last layer reads the rows of ``x`` between those, each from the same window.
    """
    random = np.random.default_rng(0)
    x = cases.operand("x", 4, 10, 6)
    skips = cases.convolution(random, x, "skips", 4, kernel=(1, 1), strides=(3, 3))
    whole = cases.convolution(random, skips.output, "whole", 4, kernel=(4, 1))
    reads = cases.convolution(random, x, "reads", 4, kernel=(1, 1))
    outputs = "whole", "reads"
    made, values = single(*cases.region((skips, whole, reads), ("x",), outputs))
    group = GroupChoice(("skips", "whole", "reads"), 2, ("x", "skips"))
    program, _ = compile_region(
        made, values, Arch(isa="v4"), choices=Choices(residents=(), groups=(group,))
    )
    inputs = cases.random_inputs(made, values, 1)
    wanted = cases.expected(made, values, inputs)
    results = cases.execute(program, inputs, 1)
    for name in outputs:
        np.testing.assert_array_equal(results[name], wanted[name], err_msg=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"layers": ("deep",)},
            "group 'deep' to 'deep': bands of rows cannot pass all of these layers",
        ),
        ({"rows": 7}, "rows is 7; it is 1 to 6"),
        ({"channels": (4,)}, "channels has 1 entries for 2 layers"),
        ({"channels": (4, 5)}, "layer 'point': channels is 5; it is 1 to 4"),
        ({"held": (True, True, True)}, "held has 3 entries for 2 layers"),
    ],
)
def test_groups_that_are_refused(change: dict[str, Any], message: str) -> None:
    made, values = small_network()
    group = replace(GroupChoice(("deep", "point"), 2), **change)
    with pytest.raises(InputError) as caught:
        compile_region(made, values, Arch(isa="v4"), choices=Choices(residents=(), groups=(group,)))
    assert message in str(caught.value)


def residual() -> tuple[Region, dict[str, Value]]:
    """A convolution of 4 planes of 6 rows of 8 bytes, to whose result its operand is added."""
    random = np.random.default_rng(0)
    x = cases.operand("x", 4, 6, 8)
    first = cases.convolution(random, x, "first", 4, kernel=(1, 1))
    return single(*cases.region((first, cases.add(x, first.output, "sum")), ("x",), ("sum",)))


def test_a_layer_rides_on_the_tiles_of_the_one_before_it() -> None:
    made, values = residual()
    tiling = LayerChoice("first", 2, 3, 0, "rows", (1, 1, 1))
    choices = Choices((tiling,), (), (GroupChoice(("first", "sum"), 0),))
    program, report = compile_region(made, values, Arch(isa="v4"), choices=choices)
    # For 2 channels at a time records of 8 and weights of 4 bytes, which stay; bands of 3 rows of 8
    # bytes, 4 planes to the convolution and 2 to the sum.
    assert sorted(moved(program, Unit.LD)) == sorted([*[2 * 12] * 2, *[4 * 24] * 2, *[2 * 24] * 4])
    assert moved(program, Unit.ST) == [2 * 24] * 4, "the sum alone is stored"
    assert report.choices.groups == choices.groups
    inputs = cases.random_inputs(made, values, 0)
    wanted = cases.expected(made, values, inputs)
    results = cases.execute(program, inputs, 0)
    np.testing.assert_array_equal(results["sum"], wanted["sum"])


@pytest.mark.parametrize(
    ("residents", "layers", "message"),
    [
        ((), ("sum",), "bands of rows cannot pass all of these layers"),
        (
            ("first",),
            ("first", "sum"),
            "rows is 0, tile by tile, so that 'first' is no resident; leave one of both out",
        ),
    ],
)
def test_what_cannot_ride(
    residents: tuple[str, ...], layers: tuple[str, ...], message: str
) -> None:
    made, values = residual()
    with pytest.raises(InputError) as caught:
        compile_region(
            made,
            values,
            Arch(isa="v4"),
            choices=Choices(residents=residents, groups=(GroupChoice(layers, 0),)),
        )
    assert message in str(caught.value)


def test_no_convolution_rides() -> None:
    made, values = small_network()
    with pytest.raises(InputError, match="an element-wise layer that alone reads what it makes"):
        compile_region(
            made,
            values,
            Arch(isa="v4"),
            choices=Choices(residents=(), groups=(GroupChoice(("deep", "point"), 0),)),
        )


def test_types_of_mapping_combine_as_published() -> None:
    types = get_args(MappingType)
    assert {pair for pair in product(types, types) if COMBINED[pair] is None} == {
        ("many-to-many", "one-to-many"),
        ("many-to-many", "many-to-many"),
    }
    assert mapping_allows("many-to-many", "many-to-many"), (
        "line buffers hold what several results read"
    )
    assert not mapping_allows("many-to-many", "one-to-many")
    assert COMBINED["one-to-one", "shuffle"] == "shuffle"
    assert COMBINED["shuffle", "reorganise"] == "reorganise"


def test_the_search_takes_what_pays() -> None:
    """Depthwise and pointwise layers of which no tensor fits the scratchpad go together."""
    random = np.random.default_rng(0)
    x = cases.operand("x", 16, 64, 64)
    operations: list[Operator] = []
    for number in range(3):
        source = operations[-1].output if operations else x
        operations.append(
            cases.convolution(random, source, f"d{number}", 16, pads=(1, 1, 1, 1), depthwise=True)
        )
        operations.append(
            cases.convolution(random, operations[-1].output, f"p{number}", 16, kernel=(1, 1))
        )
    made, values = single(*cases.region(tuple(operations), ("x",), ("p2",)))
    arch = Arch(isa="v4", pe=PeArray(ic=16, oc=16), sram_bytes=1 << 14)
    together, report = compile_region(made, values, arch)
    alone, _ = compile_region(made, values, arch, choices=Choices(groups=()))
    assert report.choices.groups
    assert sum(moved(together, Unit.LD)) < sum(moved(alone, Unit.LD))


def test_bands_of_one_row_load_their_operand_where_constants_follow() -> None:
    """Two convolutions on packed tensors fit in one row a band if image rows are freed.

    The image's rows are freed between bands.
    """
    builder = ModelBuilder()
    random = np.random.default_rng(0)
    value = builder.dequantize(builder.input("x", (1, 1, 16, 224), "int8"), 0.05)
    for number, (inputs, kernel) in enumerate(((1, 5), (64, 3))):
        weights = random.integers(-127, 128, (64, inputs, kernel, kernel)).astype(np.int8)
        value = builder.node("Conv", value, builder.weights(weights, 0.01), pads=[kernel // 2] * 4)
        value = builder.quantize(value, 0.1 * (1 + number))
        value = value if number else builder.dequantize(value, 0.1)
    builder.output(value, "int8")
    arch = Arch(isa="v5", pe=PeArray(ic=32, oc=32), sram_bytes=1 << 16)
    (program,) = compile(import_model(builder.model()), arch, data=False).programs.values()
    first, *_ = Device(arch, Timing()).run(program, {}, timing_only=True).trace.layers
    assert first.dram_write_bytes == 0
