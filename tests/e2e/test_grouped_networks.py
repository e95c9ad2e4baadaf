"""Grouped convolutions in three lowerings: CPU, one OP_CONV a group, and OP_GROUP_CONV.

Results are exact, commands are counted, and cycles are compared.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from byoc.importing import import_model
from experiments.models import MODELS
from experiments.models.builder import NetworkBuilder
from isa.arch import Arch, PeArray
from tests.byoc.small_models import convolution_unit
from tests.e2e.harness import Comparison, compare, package
from tests.rotation import choose_cases

LOWERINGS = {"cpu": ("v2", "cpu"), "per-group": ("v2", "auto"), "native": ("v3", "auto")}
GROUPED = ("block1_grouped", "block2_grouped", "block3_grouped")


def ran(
    lowering: str, schedule: str = "default", name: str = "resnext-11", **arch: object
) -> Comparison:
    isa, grouped = LOWERINGS[lowering]
    machine = Arch.model_validate({"isa": isa, "sram_bytes": 1 << 19, **arch})
    return compare(package(name), MODELS[name].sample_input(), machine, schedule, grouped=grouped)


def commands(found: Comparison, layer: str) -> list[str]:
    """Mnemonics of the commands of a layer on EX."""
    return [
        command.instruction.mnemonic
        for program in found.network.programs.values()
        for command, source in zip(program.commands, program.sources, strict=True)
        if source is not None
        and source.layer == layer
        and "DMA" not in command.instruction.mnemonic
    ]


def compute(found: Comparison, layer: str) -> int:
    """Compute cycles of the convolutions of a layer."""
    return sum(
        command.instruction.cycles(command, program.arch)
        for program in found.network.programs.values()
        for command, source in zip(program.commands, program.sources, strict=True)
        if source is not None and source.layer == layer and command.instruction.kind == "CONV"
    )


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["seed", "default"])
@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("sram", [1 << 14, 1 << 19])
def test_a_residual_network_of_grouped_convolutions_is_exact(
    lowering: str, schedule: str, sram: int
) -> None:
    found = ran(lowering, schedule, sram_bytes=sram)
    places = {place.node: place.on for place in found.partition.placement}
    assert {places[name] for name in GROUPED} == ({"cpu"} if lowering == "cpu" else {"dla"})
    assert found.mismatches == 0


def test_native_takes_one_command_and_the_cycles_of_the_groups_in_parallel() -> None:
    """OP_GROUP_CONV computes 16 groups on 8 by 8 elements in parallel where they fit.

    It computes four groups of 4 by 4 channels at once, one of 8 by 8, and one of 16 by 16 in four
    steps.
    """
    split = ran("per-group", pe=PeArray(ic=8, oc=8))
    native = ran("native", pe=PeArray(ic=8, oc=8))
    for name, size, steps in zip(GROUPED, (32, 16, 8), (1, 1, 4), strict=True):
        assert commands(split, name) == ["OP_CONV"] * 16
        assert set(commands(native, name)) == {"OP_GROUP_CONV"}
        assert compute(split, name) == 16 * steps * size * size * 9
        assert (
            compute(native, name)
            == (4 if name == "block1_grouped" else 16) * steps * size * size * 9
        )
    assert native.cycles < split.cycles
    words = [
        sum(len(program.words) for program in found.network.programs.values())
        for found in (split, native)
    ]
    assert words[1] < words[0]


@pytest.mark.parametrize(
    "pe", [PeArray(ic=64, oc=1), PeArray(ic=1, oc=64), PeArray(ic=3, oc=5, ow=2)]
)
def test_native_is_never_slower_to_compute(pe: PeArray) -> None:
    split = ran("per-group", pe=pe)
    native = ran("native", pe=pe)
    assert split.mismatches == native.mismatches == 0
    for name in GROUPED:
        assert compute(native, name) <= compute(split, name)


@pytest.mark.parametrize("schedule", ["seed", "default"])
def test_depthwise_runs_on_group_convolutions_where_nothing_else_does(schedule: str) -> None:
    net = NetworkBuilder("depthwise", "x", (1, 16, 9, 9), seed=0)
    model = net.model(net.convolution("y", "x", (16, 16), 3, groups=16), (1, 16, 9, 9))
    feed = {
        "x": MODELS["resnext-11"]
        .sample_input()["image"]
        .reshape(-1)[: 16 * 81]
        .reshape(1, 16, 9, 9)
    }
    found = compare(
        import_model(model, calibration=[feed]), feed, Arch(isa="v1+OP_GROUP_CONV"), schedule
    )
    assert commands(found, "y")[0] == "OP_GROUP_CONV"
    assert found.mismatches == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lowering", "schedule"),
    choose_cases(
        [*product(("light-alexnet", "light-shufflenet"), LOWERINGS, ("seed", "default"))], 3
    ),
)
def test_light_networks_are_exact_in_all_lowerings(name: str, lowering: str, schedule: str) -> None:
    assert ran(lowering, schedule, name, sram_bytes=1 << 22).mismatches == 0


@pytest.mark.parametrize(
    "groups", [(17, 2, 1), (5, 3, 1), (11, 1, 3), (3, 1, 8), (6, 3, 2), (4, 8, 8)]
)
@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_groups_of_any_size_run_on_packed_tensors(groups: tuple[int, int, int], isa: str) -> None:
    """Groups that share atoms of v5 are exact.

    They have one output a group, several filters a channel, or parts of an atom.
    """
    count, inputs, outputs = groups
    random = np.random.default_rng(count)
    weights = random.integers(-128, 128, (count * outputs, inputs, 2, 3)).astype(np.int8)
    model = convolution_unit(weights, (1, count * inputs, 6, 7), after=(2.0, 5), group=count)
    images = random.integers(-128, 128, (1, count * inputs, 6, 7)).astype(np.int8)
    found = compare(
        import_model(model, "grouped"), {"x": images}, Arch.model_validate({"isa": isa})
    )
    assert {place.on for place in found.partition.placement if place.op_type == "Conv"} == {"dla"}
    assert found.mismatches == 0


@pytest.mark.parametrize("groups", [2, 4, 6])
def test_groups_that_share_atoms_are_tiled_together(groups: int) -> None:
    """Two groups of 24 channels have atoms of 16 of their own.

    Their weights fit where those of all groups do not.
    """
    random = np.random.default_rng(groups)
    channels = 24 * groups
    weights = random.integers(-128, 128, (channels, 24, 3, 3)).astype(np.int8)
    model = convolution_unit(weights, (1, channels, 6, 7), after=(2.0, 5), group=groups)
    images = random.integers(-128, 128, (1, channels, 6, 7)).astype(np.int8)
    machine = Arch(isa="v5", pe=PeArray(ic=16, oc=16), sram_bytes=20 << 10, sram_banks=4)
    found = compare(import_model(model, "grouped"), {"x": images}, machine)
    assert {place.on for place in found.partition.placement if place.op_type == "Conv"} == {"dla"}
    assert found.mismatches == 0


def test_a_shuffle_of_channels_is_computed_in_bands_on_packed_tensors() -> None:
    """Convolution, shuffle and depthwise convolution run in bands in a small scratchpad.

    Only the network's output is stored.
    """
    net = NetworkBuilder("shuffled", "image", (1, 24, 40, 40), 0)
    value = net.layer("expand", "image", (24, 56), 1)
    value = net.reshape("split", value, (1, 4, 14, 40, 40))
    value = net.node("Transpose", "shuffle", value, perm=[0, 2, 1, 3, 4])
    value = net.reshape("join", value, (1, 56, 40, 40))
    model = net.model(net.layer("filter", value, (56, 56), 3, groups=56), (1, 56, 40, 40))
    random = np.random.default_rng(0)
    samples = [{"image": random.standard_normal((1, 24, 40, 40), np.float32)} for _ in range(2)]
    machine = Arch(isa="v5", sram_bytes=64 << 10)
    found = compare(import_model(model, "shuffled", calibration=iter(samples)), samples[0], machine)
    assert found.mismatches == 0
    (program,) = found.network.programs.values()
    stored = [
        one.registers for one in program.commands if one.instruction.mnemonic == "OP_DMA_WRITE"
    ]
    counts = ("ST_BYTES", "ST_COUNT_1", "ST_COUNT_2", "ST_COUNT_3")
    assert sum(prod(one[name] for name in counts) for one in stored) == 56 * 40 * 40
