"""Compute cycles of single commands on ideal memory equal the formulas of docs/machine.md."""

from __future__ import annotations

import pytest

from isa.arch import Arch, PeArray
from tests.isa.bench import make_command

FORMULAS = [
    # pe (ic, oc, ow), mnemonic, registers, cycles worked out by hand from design section 5
    ((64, 1, 1), "OP_CONV", {"INPUT_CHANNELS": 65, "OUTPUT_CHANNELS": 3, "OUTPUT_HEIGHT": 4,
                             "OUTPUT_WIDTH": 5, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 2},
     2 * 3 * 4 * 5 * 6),
    ((1, 64, 1), "OP_CONV", {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 65, "OUTPUT_HEIGHT": 4,
                             "OUTPUT_WIDTH": 5, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3},
     3 * 2 * 4 * 5 * 9),
    ((8, 4, 2), "OP_CONV", {"INPUT_CHANNELS": 9, "OUTPUT_CHANNELS": 9, "OUTPUT_HEIGHT": 7,
                            "OUTPUT_WIDTH": 5},
     2 * 3 * 7 * 3),
    ((8, 4, 2), "OP_DEPTH_CONV", {"INPUT_CHANNELS": 33, "OUTPUT_CHANNELS": 33, "OUTPUT_HEIGHT": 7,
                                  "OUTPUT_WIDTH": 5, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3},
     2 * 7 * 3 * 9),
    ((8, 4, 2), "OP_MAT_MUL", {"ROWS": 3, "INPUT_CHANNELS": 17, "OUTPUT_CHANNELS": 5}, 3 * 2 * 2),
    ((8, 4, 2), "OP_DYN_MAT_MUL", {"ROWS": 3, "INPUT_CHANNELS": 17, "OUTPUT_CHANNELS": 5},
     3 * 2 * 2),
    ((8, 4, 2), "OP_POOL", {"OUTPUT_CHANNELS": 33, "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 5,
                            "KERNEL_HEIGHT": 2},
     2 * 7 * 3 * 2),
    ((8, 4, 2), "OP_E_ADD", {"LENGTH": 65}, 2),
    ((8, 4, 2), "OP_REQUANT", {"OUTPUT_CHANNELS": 5, "LENGTH": 13}, 2),
    ((8, 4, 2), "OP_E_MUL", {"OUTPUT_CHANNELS": 3, "LENGTH": 43}, 3),
    ((8, 4, 2), "OP_B_ADD", {"OUTPUT_CHANNELS": 64, "LENGTH": 1}, 1),
    ((8, 4, 2), "OP_LUT", {"LENGTH": 129}, 3),
    ((8, 4, 2), "OP_PERMUTE", {"COUNT_1": 129, "INPUT_STRIDE_1": 1, "OUTPUT_STRIDE_1": 1,
                               "COUNT_3": 2}, 2 * 3),
    ((8, 4, 2), "OP_PERMUTE", {"COUNT_1": 17, "INPUT_STRIDE_1": 2, "OUTPUT_STRIDE_1": 1,
                               "COUNT_2": 3, "COUNT_4": 5},
     3 * 5 * 2),
    ((1, 4, 2), "OP_PERMUTE", {"COUNT_1": 17, "INPUT_STRIDE_1": 0, "OUTPUT_STRIDE_1": 2}, 3),
    ((8, 4, 2), "OP_LUT", {"ROWS": 3, "OUTPUT_CHANNELS": 5, "LENGTH": 13}, 4),
    # 64 lanes: 5 rows of 70 elements are 350, six times the lanes; a lane a row sums 70 elements.
    ((8, 4, 2), "OP_REDUCE", {"ROWS": 5, "INPUT_CHANNELS": 70, "LENGTH": 1}, 6),
    ((8, 4, 2), "OP_SOFTMAX", {"ROWS": 5, "INPUT_CHANNELS": 70, "LENGTH": 1}, 6 + 70 + 6),
    ((8, 4, 2), "OP_NORM", {"ROWS": 5, "INPUT_CHANNELS": 70, "LENGTH": 1}, 6 + 6 + 5),
    # 3 planes of 5 by 7 are 105 elements, twice the lanes, four neighbours each.
    ((8, 4, 2), "OP_RESIZE", {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 3, "OUTPUT_HEIGHT": 5,
                              "OUTPUT_WIDTH": 7}, 4 * 2),
    # 2 · 33 = 66 rows of 16 elements: 1056 elements, 17 times the lanes, and two rows a lane.
    ((8, 4, 2), "OP_REDUCE", {"ROWS": 2, "INPUT_CHANNELS": 16, "LENGTH": 33}, 17),
    ((8, 4, 2), "OP_SOFTMAX", {"ROWS": 2, "INPUT_CHANNELS": 16, "LENGTH": 33}, 17 + 2 * 16 + 17),
    ((8, 4, 2), "OP_NORM", {"ROWS": 2, "INPUT_CHANNELS": 16, "LENGTH": 33}, 17 + 17 + 2),
]  # fmt: skip


@pytest.mark.parametrize(("pe", "mnemonic", "registers", "cycles"), FORMULAS)
def test_cycle_formulas(
    pe: tuple[int, int, int], mnemonic: str, registers: dict[str, int], cycles: int
) -> None:
    arch = Arch(pe=PeArray(ic=pe[0], oc=pe[1], ow=pe[2]))
    command = make_command(mnemonic, {f"EX_{name}": value for name, value in registers.items()})
    assert command.instruction.cycles(command, arch) == cycles


MAPPINGS = [
    # pe (ic, oc, ow), mnemonic, (G, IC, OC), (OH, OW), (KH, KW), cycles of mapping 0, 1, 2, 3 by
    # hand 3 channels on 16 lanes: 9 taps one by one; 27 products in two rounds; 5 blocks of 3
    # lanes, 2 of 8: 10 columns at once; 2 columns of 27 products each.
    ((16, 16, 1), "OP_CONV", (1, 3, 8), (4, 20), (3, 3), (9 * 80, 2 * 80, 9 * 4 * 2, 2 * 4 * 10)),
    # Enough channels: nothing is idle, and 64 · 9 products divide as evenly.
    ((16, 16, 1), "OP_CONV", (1, 64, 64), (4, 20), (3, 3),
     (4 * 9 * 4 * 80, 36 * 4 * 80, 4 * 9 * 4 * 80, 36 * 4 * 80)),
    # 40 depthwise channels on 64 lanes: one by one; 9 taps in two rounds of 8 lanes, 8 channels at
    # once: 5 rounds; with 5 channels 12 columns at once, of which 10 are there, or 5 of their taps
    # side by side.
    ((8, 8, 1), "OP_DEPTH_CONV", (40, 40, 40), (6, 10), (3, 3),
     (9 * 60, 5 * 2 * 60, 9 * 60, 5 * 2 * 60)),
    ((8, 8, 1), "OP_DEPTH_CONV", (5, 5, 5), (6, 10), (3, 3), (9 * 60, 2 * 60, 9 * 6, 2 * 60)),
    # 4 groups of 2 by 3 on 8 by 6 lanes, two output columns in parallel: 4 · 2 blocks, so 2 columns
    # a group at once; with both taps side by side 2 · 2 blocks, one a group, which sum 4 products
    # at once.
    ((8, 6, 2), "OP_GROUP_CONV", (4, 8, 12), (3, 8), (1, 2),
     (2 * 3 * 4, 1 * 3 * 4, 2 * 3 * 2, 1 * 3 * 4)),
]  # fmt: skip


@pytest.mark.parametrize(("pe", "mnemonic", "channels", "output", "kernel", "cycles"), MAPPINGS)
def test_idle_lanes_save_the_cycles_of_their_formula(
    pe: tuple[int, int, int],
    mnemonic: str,
    channels: tuple[int, int, int],
    output: tuple[int, int],
    kernel: tuple[int, int],
    cycles: tuple[int, ...],
) -> None:
    arch = Arch(pe=PeArray(ic=pe[0], oc=pe[1], ow=pe[2]))
    registers = {"EX_INPUT_CHANNELS": channels[1], "EX_OUTPUT_CHANNELS": channels[2]}
    registers |= {"EX_OUTPUT_HEIGHT": output[0], "EX_OUTPUT_WIDTH": output[1]}
    registers |= {"EX_KERNEL_HEIGHT": kernel[0], "EX_KERNEL_WIDTH": kernel[1]}
    registers |= {"EX_GROUPS": channels[0]} if mnemonic == "OP_GROUP_CONV" else {}
    commands = [make_command(mnemonic, registers, {"mapping": mapping}) for mapping in range(4)]
    assert tuple(command.instruction.cycles(command, arch) for command in commands) == cycles


def test_adding_to_earlier_sums_takes_a_pass_of_the_post_lanes() -> None:
    registers = {"EX_OUTPUT_CHANNELS": 64, "EX_OUTPUT_HEIGHT": 10, "EX_OUTPUT_WIDTH": 10}
    for lanes, fields, cycles in (
        (4, {}, 800),
        (4, {"accumulate": 1}, 1600),
        (64, {"accumulate": 1}, 800),
    ):
        command = make_command("OP_CONV", registers, fields)
        assert command.instruction.cycles(command, Arch(post_lanes=lanes)) == cycles


def test_fused_post_processing_costs_the_larger_of_the_two() -> None:
    registers = {"EX_OUTPUT_CHANNELS": 64, "EX_OUTPUT_HEIGHT": 10, "EX_OUTPUT_WIDTH": 10}
    arch = Arch(post_lanes=4)
    fused = make_command("OP_CONV", registers, {"requantise": 1})
    assert fused.instruction.cycles(fused, arch) == 6400 // 4
    wide = make_command("OP_CONV", registers)
    assert wide.instruction.cycles(wide, arch) == 8 * 100
    pool = {**registers, "EX_INPUT_CHANNELS": 64}
    for fields, cycles in (({}, 100), ({"look_up": 1}, 6400 // 4), ({"look_up": 2}, 6400 // 4)):
        command = make_command("OP_POOL", pool, fields)
        assert command.instruction.cycles(command, arch) == cycles
