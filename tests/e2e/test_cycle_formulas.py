"""Compute cycles of MobileNetV1 equal the closed formulas of the design.

The formulas only use the shapes of the layers.
"""

from __future__ import annotations

from itertools import product
from math import ceil

import pytest

from byoc.compiler import compile
from dla_sim.device import Device
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from tests.e2e.harness import package
from tests.rotation import choose_cases

pytestmark = pytest.mark.slow

BIG = 256 << 20
N = 64
TIMING = Timing()
FILL_AND_DRAIN = TIMING.ex_fill + TIMING.ex_drain

# Dense convolutions: input channels, output channels, output side, kernel. Depthwise: channels,
# output side.
SIDES = (112, 56, 56, 28, 28, 14, 14, 14, 14, 14, 14, 7, 7)
WIDTHS = (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
POINTWISE = [(WIDTHS[index], WIDTHS[index + 1], SIDES[index], 1) for index in range(13)]
DENSE = [(3, 32, 112, 3), *POINTWISE]
DEPTHWISE = [(WIDTHS[index], SIDES[index]) for index in range(13)]


def input_parallel(ic: int, oc: int, side: int, kernel: int) -> int:
    """I: OC·OH·OW·KH·KW·⌈IC/N⌉."""
    return oc * side * side * kernel * kernel * ceil(ic / N)


def output_parallel(ic: int, oc: int, side: int, kernel: int) -> int:
    """O: ⌈OC/N⌉·OH·OW·KH·KW·IC."""
    return ceil(oc / N) * side * side * kernel * kernel * ic


@pytest.mark.parametrize(
    ("parallel", "emulated"), choose_cases([*product(["I", "O"], [False, True])], 4)
)
def test_untiled_mobilenet_costs_what_the_formulas_say(parallel: str, emulated: bool) -> None:
    pe = PeArray(ic=N, oc=1) if parallel == "I" else PeArray(ic=1, oc=N)
    arch = Arch(isa="v1" if emulated else "v2", pe=pe, sram_bytes=BIG)
    network = compile(package("mobilenet-v1"), arch, schedule="seed", emulate_depthwise=emulated)
    program = network.programs[0]
    trace = Device(arch, TIMING).run(program, {}, timing_only=True).trace

    formula = input_parallel if parallel == "I" else output_parallel
    dense = sum(formula(*layer) for layer in DENSE) + FILL_AND_DRAIN * len(DENSE)
    assert trace.ex_cycles["CONV"] == dense

    if emulated:  # C·OH·OW·KH·KW, one command a channel
        depth = sum(c * side * side * 9 + c * FILL_AND_DRAIN for c, side in DEPTHWISE)
    else:  # ⌈C/N⌉·OH·OW·KH·KW
        depth = sum(ceil(c / N) * side * side * 9 + FILL_AND_DRAIN for c, side in DEPTHWISE)
    assert trace.ex_cycles["DEPTH"] == depth

    # ⌈K/a⌉·⌈N'/b⌉·⌈M/c⌉ of the classifier: 1024 × 1000.
    classifier = ceil(1024 / pe.ic) * ceil(1000 / pe.oc) + FILL_AND_DRAIN
    assert trace.ex_cycles["MATMUL"] == classifier

    # ⌈elements / post_lanes⌉ of every requantisation: 14 dense, 13 depthwise, the classifier.
    elements = (
        [oc * side * side for _, oc, side, _ in DENSE]
        + [c * side * side for c, side in DEPTHWISE]
        + [1000]
    )
    assert trace.ex_cycles["REQUANT"] == sum(ceil(count / N) + FILL_AND_DRAIN for count in elements)


@pytest.mark.parametrize(
    ("schedule", "sram"), choose_cases([*product(["seed", "default"], [512 << 10, 1 << 20])], 4)
)
def test_tiled_mobilenet_follows_the_formula_of_every_command(schedule: str, sram: int) -> None:
    """Each command of any tiling costs ⌈IC/a⌉·⌈OC/b⌉·OH·OW·KH·KW cycles.

    If requantisation takes longer, the command costs that.
    """
    arch = Arch(pe=PeArray(ic=4, oc=16), sram_bytes=sram)
    program = compile(package("mobilenet-v1"), arch, schedule=schedule).programs[0]
    trace = Device(arch, TIMING).run(program, {}, timing_only=True).trace
    expected = 0
    for command in program.commands:
        if command.instruction.mnemonic != "OP_CONV":
            continue
        size = command["EX_OUTPUT_HEIGHT"] * command["EX_OUTPUT_WIDTH"]
        taps = command["EX_KERNEL_HEIGHT"] * command["EX_KERNEL_WIDTH"]
        blocks = ceil(command["EX_INPUT_CHANNELS"] / 4) * ceil(command["EX_OUTPUT_CHANNELS"] / 16)
        post = ceil(command["EX_OUTPUT_CHANNELS"] * size / N) if command.fields["requantise"] else 0
        expected += max(blocks * size * taps, post) + FILL_AND_DRAIN
    assert trace.ex_cycles["CONV"] == expected
    assert trace.macs == 568_740_352
