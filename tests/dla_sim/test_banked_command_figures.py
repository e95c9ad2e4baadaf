"""Compute cycles and words of single commands on banked memory, worked out by hand.

The rules are those of docs/machine.md, section 12.
"""

from __future__ import annotations

import json

import pytest

from isa.assembler import assemble
from isa.program import Program

LAYERS = (
    (
        "CONV: 1 x 1, 32 to 64 channels, 14 x 14. 196 steps, 6 stripes of 32 and one of 4, 4 * 8 "
        "blocks of w = 2, each "
        "196 cycles: 2 + 32 * 196; lanes 392",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 32, "OUTPUT_CHANNELS": 64, "INPUT_HEIGHT": 14, "INPUT_WIDTH": 14,
        "OUTPUT_HEIGHT": 14, "OUTPUT_WIDTH": 14}, {}, 6274,
    ),
    (
        "CONV: 3 x 3, 16 to 24, 7 x 7. 49 steps, 2 * 3 * 9 = 54 blocks: 2 + 54 * 49",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 16, "OUTPUT_CHANNELS": 24, "INPUT_HEIGHT": 9, "INPUT_WIDTH": 9,
        "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 7, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3}, {}, 2648,
    ),
    (
        "CONV: 3 x 3, stride 2, 8 to 8, 6 x 5, array 8 x 8 x 2, words of 16. 18 steps of two "
        "columns read (2 + 1) * 8 "
        "bytes, 2 words, 30 of one column 1 word; w = 4; 9 blocks: 4 + 9 * 30",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 8, "INPUT_HEIGHT": 13, "INPUT_WIDTH": 11,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 5, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3,
        "STRIDE_HEIGHT": 2,
        "STRIDE_WIDTH": 2}, {"pe": {"ow": 2}, "word_bytes": 16}, 274,
    ),
    (
        "CONV on an array of 32 x 32, whose blocks lie in two atoms of 16: 1 x 1, 64 to 32, 8 x 8. "
        "Words of 128: "
        "a step of both takes one; w = 8: 8 + 2 stripes * 2 blocks * 32",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 64, "OUTPUT_CHANNELS": 32, "INPUT_HEIGHT": 8, "INPUT_WIDTH": 8,
        "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8}, {"pe": {"ic": 32, "oc": 32}, "atom": 16}, 136,
    ),
    (
        "CONV on an array of 32 x 8 with words of 32: 1 x 1, 48 to 8, 4 x 4. A step of two atoms "
        "takes one word, "
        "a block of 8 * 32 weights 8, that of 8 * 16 4: 8 + 16 + 16",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 48, "OUTPUT_CHANNELS": 8, "INPUT_HEIGHT": 4, "INPUT_WIDTH": 4,
        "OUTPUT_HEIGHT": 4, "OUTPUT_WIDTH": 4},
        {"pe": {"ic": 32, "oc": 8}, "atom": 16, "word_bytes": 32}, 40,
    ),
    (
        "CONV on an array of 32 x 32 with atoms of 8: 1 x 1, 40 to 32, 4 x 4, words of 16. Blocks "
        "of 32 and 8; "
        "a step reads four atoms, two words, and one atom, one word; w = 64, 16: 64 + 64 + 16",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 40, "OUTPUT_CHANNELS": 32, "INPUT_HEIGHT": 4, "INPUT_WIDTH": 4,
        "OUTPUT_HEIGHT": 4, "OUTPUT_WIDTH": 4}, {"pe": {"ic": 32, "oc": 32}, "atom": 8,
        "word_bytes": 16}, 144,
    ),
    (
        "CONV on an array of 16 x 16, 2 groups of 20 to 8 channels: 1 x 1, 8 x 8, words of 16. "
        "Blocks of 16 and 4; channels 20 to 35 are in three atoms of 8, two words, others in one; "
        "w = 8, 2: 8 + 64 * (1 + 1 + 2 + 1)",
        "OP_GROUP_CONV requantise=1",
        {"INPUT_CHANNELS": 40, "OUTPUT_CHANNELS": 16, "INPUT_HEIGHT": 8, "INPUT_WIDTH": 8,
        "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8, "GROUPS": 2},
        {"pe": {"ic": 16, "oc": 16}, "atom": 8, "word_bytes": 16}, 328,
    ),
    (
        "CONV, a first layer: 3 x 3, 3 to 16, 16 x 16, taps side by side. 9 taps of a row are "
        "blocks of 8 and 1, times "
        "3 rows and 2 blocks of outputs: 2 + 12 * 256",
        "OP_CONV requantise=1 mapping=1",
        {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 16, "INPUT_HEIGHT": 18,
        "INPUT_WIDTH": 18, "OUTPUT_HEIGHT": 16, "OUTPUT_WIDTH": 16, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3}, {}, 3074,
    ),
    (
        "CONV, 4 groups of 2 to 2 channels, 3 x 3, 8 x 8: all groups are one block of 16 weights, "
        "w = 1: 1 + 9 * 64",
        "OP_GROUP_CONV requantise=1",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 8, "INPUT_HEIGHT": 10, "INPUT_WIDTH": 10,
        "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3,
        "GROUPS": 4}, {}, 577,
    ),
    (
        "CONV, 2 groups of 12 to 8 channels, 1 x 1, 8 x 8: the second begins within an atom, "
        "channels 12 to 19 lie in "
        "two, of which a step takes 16 bytes: v = 1. Blocks of 8 and 4 channels: 2 + 4 * 64",
        "OP_GROUP_CONV requantise=1",
        {"INPUT_CHANNELS": 24, "OUTPUT_CHANNELS": 16, "INPUT_HEIGHT": 8, "INPUT_WIDTH": 8,
        "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8, "GROUPS": 2}, {}, 258,
    ),
    (
        "MATMUL: a row of 64 by 64 x 64. 64 blocks of one step: w = 2 is longer: 2 + 64 * 2",
        "OP_MAT_MUL requantise=1", {"INPUT_CHANNELS": 64, "OUTPUT_CHANNELS": 64}, {}, 130,
    ),
    (
        "MATMUL: 50 rows of 20 by 20 x 10, array 4 x 16. 5 blocks of 40 weights, w = 2, stripes of "
        "32 and 18: 2 + 250",
        "OP_MAT_MUL requantise=1", {"ROWS": 50, "INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 10},
        {"pe": {"ic": 4, "oc": 16}}, 252,
    ),
    (
        "MATMUL with 4 lanes: 20 rows of 8 by 8 x 8. One block, 20 steps, but 160 results are 40 "
        "turns: 2 + 40",
        "OP_MAT_MUL requantise=1", {"ROWS": 20, "INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 8},
        {"post_lanes": 4}, 42,
    ),
    (
        "DEPTH: 3 x 3, 12 channels, 6 x 6. 6 of 8 windows in a row: 6 * 9 = 54 an atom; 72 weights "
        "of the first are 3 "
        "words: 3 + 108; lanes 14",
        "OP_DEPTH_CONV requantise=1",
        {"INPUT_CHANNELS": 12, "OUTPUT_CHANNELS": 12, "INPUT_HEIGHT": 6, "INPUT_WIDTH": 6,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 6, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3, "PAD_TOP": 1,
        "PAD_LEFT": 1},
        {}, 111,
    ),
    (
        "DEPTH: 5 x 5, stride 2, 20 channels, 7 x 7, array 16 x 16: atoms of 16, 16 windows, 7 by "
        "2 of them: 4 * 25 an "
        "atom; words of 64, so that 400 weights are 7: 7 + 200; lanes 16",
        "OP_DEPTH_CONV requantise=1",
        {"INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 20, "INPUT_HEIGHT": 17,
        "INPUT_WIDTH": 17, "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 7, "KERNEL_HEIGHT": 5,
        "KERNEL_WIDTH": 5,
        "STRIDE_HEIGHT": 2, "STRIDE_WIDTH": 2}, {"pe": {"ic": 16, "oc": 16}, "atom": 16}, 207,
    ),
    (
        "DEPTH: the same with atoms of 8: 32 windows, 7 by 4 of them: 2 * 25 an atom; 200 weights "
        "are 4 words: 4 + 3 * 50; lanes 19",
        "OP_DEPTH_CONV requantise=1",
        {"INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 20, "INPUT_HEIGHT": 17, "INPUT_WIDTH": 17,
        "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 7, "KERNEL_HEIGHT": 5, "KERNEL_WIDTH": 5,
        "STRIDE_HEIGHT": 2, "STRIDE_WIDTH": 2}, {"pe": {"ic": 16, "oc": 16}, "atom": 8}, 154,
    ),
    (
        "DEPTH on an array of 2 x 2, less than an atom: a tap of a window takes 2 cycles: 3 + 36 * "
        "9 * 2; 4 lanes 72",
        "OP_DEPTH_CONV requantise=1",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 8, "INPUT_HEIGHT": 6, "INPUT_WIDTH": 6,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 6, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3, "PAD_TOP": 1,
        "PAD_LEFT": 1},
        {"pe": {"ic": 2, "oc": 2}}, 651,
    ),
    (
        "POOL: the average of 3 x 3 windows, 8 channels, 4 x 4. 9 counts and a scale are 10 "
        "divisors, 3 turns of 4 "
        "dividers: 48; 4 windows by 2: 2 * 9",
        "OP_POOL mode=1",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 8, "INPUT_HEIGHT": 6, "INPUT_WIDTH": 6,
        "OUTPUT_HEIGHT": 4, "OUTPUT_WIDTH": 4, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3}, {}, 66,
    ),
    (
        "POOL: the average of whole planes of 7 x 7, 64 channels: 8 atoms of 392 bytes, 13 words "
        "each",
        "OP_POOL mode=2",
        {"INPUT_CHANNELS": 64, "OUTPUT_CHANNELS": 64, "INPUT_HEIGHT": 7, "INPUT_WIDTH": 7,
        "KERNEL_HEIGHT": 7, "KERNEL_WIDTH": 7}, {}, 104,
    ),
    (
        "POOL: 20 channels resized to 6 x 10: 3 atoms of 8 bytes at 60 positions, 4 neighbours "
        "each, and a reciprocal of the scale: 16 + 3 * 60 * 4",
        "OP_RESIZE",
        {"INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 20, "INPUT_HEIGHT": 3, "INPUT_WIDTH": 5,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 10}, {}, 736,
    ),
    (
        "POOL: the same on 3 lanes: an atom of 8 takes 3 turns: 16 + 3 * 60 * 4 * 3",
        "OP_RESIZE",
        {"INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 20, "INPUT_HEIGHT": 3, "INPUT_WIDTH": 5,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 10}, {"post_lanes": 3}, 2176,
    ),
    (
        "ELTWISE: 20 channels of 49 times a value each: 3 atoms of 8 * 49 elements on 32 lanes: "
        "1176 / 32",
        "OP_E_MUL repeat_b=1", {"OUTPUT_CHANNELS": 20, "LENGTH": 49}, {}, 37,
    ),
    (
        "ELTWISE: 20 channels divided by a value each: a reciprocal of the scale, 20 more on 4 "
        "dividers: 16 + 5 * 16",
        "OP_E_DIV repeat_b=1", {"OUTPUT_CHANNELS": 20, "LENGTH": 49}, {}, 96,
    ),
    (
        "ACT: 20 channels of 49 looked up in a table each: 160 words of tables, then 37",
        "OP_LUT", {"OUTPUT_CHANNELS": 20, "LENGTH": 49, "ROWS": 1}, {}, 197,
    ),
    (
        "CONV, a picture: 3 x 3, stride 2, 3 to 16, 8 x 8. 27 taps are blocks of 8, 8, 8 and 3, of "
        "taps in 2 rows at "
        "most: 2 * 2 * 4 bytes a step, v = 1; w = 2, 2 blocks of outputs, 64 steps: 2 + 8 * 64",
        "OP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 16, "INPUT_HEIGHT": 17,
        "INPUT_WIDTH": 17, "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3,
        "STRIDE_HEIGHT": 2, "STRIDE_WIDTH": 2}, {}, 514,
    ),
    (
        "CONV, a picture: 7 x 7, stride 2, 3 to 8, 4 x 4, array 16 x 8 x 2, words of 32. 147 taps "
        "are 10 blocks, 21 a "
        "row, so of taps in 2 rows at most: 2 * 2 * 2 * 4 bytes, v = 1; w = 4, and 3 of the last; "
        "8 steps: 4 + 10 * 8",
        "OP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 8, "INPUT_HEIGHT": 13,
        "INPUT_WIDTH": 13, "OUTPUT_HEIGHT": 4, "OUTPUT_WIDTH": 4, "KERNEL_HEIGHT": 7,
        "KERNEL_WIDTH": 7,
        "STRIDE_HEIGHT": 2, "STRIDE_WIDTH": 2}, {"pe": {"ic": 16, "oc": 8, "ow": 2},
        "word_bytes": 32}, 84,
    ),
    (
        "CONV, columns side by side: 3 x 3, 8 to 4, 6 x 10. 24 taps of a row are 3 blocks of 8, w "
        "= 1; p = 2, so 6 * 5 "
        "= 30 steps, each reads 2 * 8 bytes, v = 1: 1 + 3 * 3 * 30",
        "OP_CONV requantise=1 mapping=2",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 4, "INPUT_HEIGHT": 8,
        "INPUT_WIDTH": 12, "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 10, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3}, {}, 271,
    ),
    (
        "CONV, more parts than columns: 1 x 1, 8 to 1, 9 x 4. p = 4 of 8, each row a step of 32 "
        "bytes, v = 1: 1 + 9",
        "OP_CONV requantise=1 mapping=2",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 1, "INPUT_HEIGHT": 9,
        "INPUT_WIDTH": 4, "OUTPUT_HEIGHT": 9, "OUTPUT_WIDTH": 4}, {}, 10,
    ),
    (
        "CONV, groups apart: 4 groups of 4 to 4 channels, 3 x 3, 8 x 8. 2 groups at once, which "
        "leave no part: p = 1; "
        "36 taps are blocks of 8, 8, 8, 8 and 4, of taps in 2 rows at most and one atom: 2 * 8 "
        "bytes a step, v = 1; w "
        "= 2, and 1 of the last: 2 + 2 * 5 * 64",
        "OP_GROUP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 16, "OUTPUT_CHANNELS": 16, "INPUT_HEIGHT": 10,
        "INPUT_WIDTH": 10, "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3, "GROUPS": 4},
        {}, 642,
    ),
    (
        "CONV, columns of a picture: 3 x 3, 3 to 4, 6 x 10. 27 taps are 4 blocks, of taps in 2 "
        "rows at most; p = 2, so "
        "2 * 2 * 4 bytes a step, v = 1, of 6 * 5; w = 1: 1 + 4 * 30",
        "OP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 4, "INPUT_HEIGHT": 8,
        "INPUT_WIDTH": 12, "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 10, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3}, {}, 121,
    ),
    (
        "CONV, a picture of one channel: 3 x 3, 1 to 1, 6 x 10. 9 taps are blocks of 8 and 1, of "
        "taps in 3 rows; "
        "p = 8, so 3 * 8 bytes a step, v = 1, of 6 * 2; w = 1: 1 + 2 * 12",
        "OP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 1, "OUTPUT_CHANNELS": 1, "INPUT_HEIGHT": 8,
        "INPUT_WIDTH": 12, "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 10, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3}, {}, 25,
    ),
    (
        "CONV, a picture of two channels: 1 x 1, 2 to 1, 6 x 8. 2 taps; p = 8, so 8 * 2 bytes a "
        "step, v = 1: 1 + 6",
        "OP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 2, "OUTPUT_CHANNELS": 1, "INPUT_HEIGHT": 6,
        "INPUT_WIDTH": 8, "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 8}, {"word_bytes": 16}, 7,
    ),
    ("ACT: 1000 elements on 32 lanes, and a reciprocal of the scale: 16 + "
     "32", "OP_ACT_RELU", {"LENGTH": 1000}, {}, 48),
    (
        "ELTWISE: 3 copies of 100 bytes of atoms of 8, which lie in 25 words, become dense: 3 * 25",
        "OP_PERMUTE",
        {"COUNT_1": 100, "COUNT_2": 3, "INPUT_STRIDE_1": 8, "INPUT_STRIDE_2": 800,
         "OUTPUT_STRIDE_1": 1, "OUTPUT_STRIDE_2": 100}, {}, 75,
    ),
    (
        "ELTWISE: 100 dense bytes become one of every 64, a word each: 100",
        "OP_PERMUTE", {"COUNT_1": 100, "INPUT_STRIDE_1": 1, "OUTPUT_STRIDE_1": 64}, {}, 100,
    ),
    (
        "ELTWISE: 8 channels of 8 positions change places: 64 bytes are 2 words, each meets each: "
        "4",
        "OP_PERMUTE",
        {"COUNT_1": 8, "COUNT_2": 8, "INPUT_STRIDE_1": 1, "INPUT_STRIDE_2": 8, "OUTPUT_STRIDE_1": 8,
        "OUTPUT_STRIDE_2": 1}, {}, 4,
    ),
    (
        "ELTWISE: one of two groups is shuffled: 16 positions of 4 of 8 channels, 4 words, into "
        "two atoms: 2 * 4",
        "OP_PERMUTE",
        {"COUNT_1": 4, "COUNT_2": 16, "COUNT_3": 2, "INPUT_STRIDE_1": 1, "INPUT_STRIDE_2": 8,
        "INPUT_STRIDE_3": 4, "OUTPUT_STRIDE_1": 2, "OUTPUT_STRIDE_2": 8,
        "OUTPUT_STRIDE_3": 128}, {}, 8,
    ),
    (
        "ELTWISE: 3 rows of 30 bytes, 100 apart, begin anywhere in a word and lie in 2 at most: 3 "
        "* 2",
        "OP_PERMUTE",
        {"COUNT_1": 30, "COUNT_2": 3, "INPUT_STRIDE_1": 1, "INPUT_STRIDE_2": 100,
         "OUTPUT_STRIDE_1": 1, "OUTPUT_STRIDE_2": 64}, {}, 6,
    ),
    (
        "ACT: softmax of a row of 100: 2 * 4 on 32 lanes, and 100 sums in order; its one quotient "
        "takes 16",
        "OP_SOFTMAX", {"INPUT_CHANNELS": 100, "LENGTH": 1}, {}, 108,
    ),
    (
        "ACT: 10 rows of 16 normalised: 2 * 5 + 10, but 20 quotients on 4 dividers: 5 * 16",
        "OP_NORM", {"ROWS": 10, "INPUT_CHANNELS": 16, "LENGTH": 1}, {}, 80,
    ),
    (
        "POOL: the mean of 100 elements: 4 on 32 lanes, but a reciprocal: 16",
        "OP_REDUCE", {"INPUT_CHANNELS": 100, "LENGTH": 1}, {}, 16,
    ),
    (
        "POOL: the mean of 20 channels of 49: 3 atoms of 8 * 49 on 32 lanes, 1176 / 32",
        "OP_REDUCE", {"INPUT_CHANNELS": 20, "LENGTH": 49}, {}, 37,
    ),
    (
        "ACT: softmax of 40 rows of 12, 16 dividers: 2 atoms of 8 * 40 are 20 turns of 32 lanes, "
        "twice; 12 sums of 40 "
        "rows, 2 turns each: 40 + 24; 40 quotients are 3 * 16",
        "OP_SOFTMAX", {"ROWS": 40, "INPUT_CHANNELS": 12, "LENGTH": 1}, {"dividers": 16}, 64,
    ),
    (
        "ACT: the same with 4 dividers: 40 quotients are 10 * 16",
        "OP_SOFTMAX", {"ROWS": 1, "INPUT_CHANNELS": 12, "LENGTH": 40}, {}, 160,
    ),
    (
        "ACT: 6 rows of 4 by 5 normalised, quotients of a cycle: 3 atoms of 8 * 6 are 5 turns, "
        "twice, and 6 roots",
        "OP_NORM", {"ROWS": 6, "INPUT_CHANNELS": 4, "LENGTH": 5}, {"divide_cycles": 1}, 16,
    ),
    (
        "MATMUL of two tensors: 50 rows of 20 by 20 x 10, array 4 x 16. 5 blocks of 4 positions in "
        "2 atoms, w = 2, "
        "stripes of 32 and 18: 2 + 250",
        "OP_DYN_MAT_MUL requantise=1", {"ROWS": 50, "INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 10},
        {"pe": {"ic": 4, "oc": 16}}, 252,
    ),
    (
        "MATMUL of two tensors: the second 10 x 20, transposed. 10 positions of an atom, w = 3: 3 "
        "+ 250",
        "OP_DYN_MAT_MUL requantise=1 transposed=1",
        {"ROWS": 50, "INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 10},
        {"pe": {"ic": 4, "oc": 16}}, 253,
    ),
    (
        "MATMUL of two tensors: a row of 64 by 64 x 30. 8 * 4 blocks of one step, 8 positions of "
        "an atom, w = 2, of "
        "the 6 last outputs as well: 2 + 32 * 2",
        "OP_DYN_MAT_MUL", {"INPUT_CHANNELS": 64, "OUTPUT_CHANNELS": 30}, {}, 66,
    ),
    (
        "MATMUL of two tensors: a row of 20 by 4 x 20, transposed. The last block has 4 inputs; 4 "
        "positions of an atom "
        "are w = 1: 1 + 3",
        "OP_DYN_MAT_MUL transposed=1", {"INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 4}, {}, 4,
    ),
)  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer[0].split(".")[0])
def test_compute_cycles(layer: tuple[str, str, dict[str, int], dict[str, object], int]) -> None:
    """Worked out in the words of each layer.

    Registers that are not named keep their reset values.
    """
    _, operation, registers, machine, cycles = layer
    program = _program(
        "\n".join(f"SET EX_{name}, {value}" for name, value in registers.items()),
        operation,
        machine,
    )
    command = program.commands[0]
    assert command.instruction.cycles(command, program.arch) == cycles


def _program(settings: str, operation: str, machine: dict[str, object]) -> Program:
    arch = json.dumps({"isa": "v5", **machine})
    return assemble(f".arch {arch}\n.memory 0x4000 commands 0x0\n{settings}\n{operation}\nOP_END\n")


WORDS = (
    (
        "20 channels resized to 6 x 10: 3 atoms at 60 positions, 4 neighbours each; 40 bytes of "
        "columns, 2 words, for each of 6 rows of 3 surfaces; 24 bytes of rows, from any byte of a "
        "word, for each surface; results 3 * 480 bytes",
        "OP_RESIZE",
        {"INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 20, "INPUT_HEIGHT": 3, "INPUT_WIDTH": 5,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 10, "FIRST_ROW": 5}, {}, (720, 36, 6, 45),
    ),
    (
        "CONV on an array of 32 x 32, two atoms a block: 1 x 1, 64 to 32, 8 x 8. Of each atom 4 + "
        "1 words a stripe and "
        "block, 2 * 5 * 4; weights 8 * 4; records of 8 bytes; results of two atoms 2 * 4 a stripe",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 64, "OUTPUT_CHANNELS": 32, "INPUT_HEIGHT": 8, "INPUT_WIDTH": 8,
        "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8},
        {"pe": {"ic": 32, "oc": 32}, "atom": 16}, (40, 32, 2, 16),
    ),
    (
        "the same CONV with four atoms of 8 a block. Of each atom 2 + 1 words a stripe and block, "
        "4 * 3 * 4; weights and records as before; results of four atoms 4 * 2 a stripe",
        "OP_CONV requantise=1",
        {"INPUT_CHANNELS": 64, "OUTPUT_CHANNELS": 32, "INPUT_HEIGHT": 8, "INPUT_WIDTH": 8,
        "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8},
        {"pe": {"ic": 32, "oc": 32}, "atom": 8}, (48, 32, 2, 16),
    ),
    (
        "5 x 5, stride 2, 20 channels, 7 x 7, array 16 x 16, words of 64: 17 rows of 136 bytes, "
        "3 words, for 3 atoms; weights 500 bytes, records 160, results 3 * 392 bytes",
        "OP_DEPTH_CONV requantise=1",
        {"INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 20, "INPUT_HEIGHT": 17, "INPUT_WIDTH": 17,
        "OUTPUT_HEIGHT": 7, "OUTPUT_WIDTH": 7, "KERNEL_HEIGHT": 5, "KERNEL_WIDTH": 5,
        "STRIDE_HEIGHT": 2, "STRIDE_WIDTH": 2},
        {"pe": {"ic": 16, "oc": 16}, "atom": 8}, (153, 8, 3, 21),
    ),
    (
        "3 x 3, a picture, stride 2, 8 x 8: 1, 2, 2 and 1 rows of the kernel, each 32 * 2 * 4 "
        "bytes and 4 rows a stripe, 12, of "
        "2 stripes and blocks of outputs; weights 2 + 2 + 2 + 1 a stripe and block of outputs; "
        "records 64 bytes a block; "
        "results 8 a stripe and atom",
        "OP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 3, "OUTPUT_CHANNELS": 16, "INPUT_HEIGHT": 17,
        "INPUT_WIDTH": 17, "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3,
        "STRIDE_HEIGHT": 2, "STRIDE_WIDTH": 2}, {}, (288, 28, 4, 32),
    ),
    (
        "3 x 3, 8 to 4, columns side by side: a stripe of 30 steps of 16 bytes, 15, and 6 rows, of "
        "9 blocks of a word; "
        "records 32 bytes; results 15",
        "OP_CONV requantise=1 mapping=2",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 4, "INPUT_HEIGHT": 8,
        "INPUT_WIDTH": 12, "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 10, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3}, {},
        (189, 9, 1, 15),
    ),
    (
        "1 x 1, 8 to 4, 4 rows of 3, on 16 columns of the array: 3 columns a step, though 4 fit; "
        "4 words of activations, results 4 * 3 * 8 bytes",
        "OP_CONV requantise=1 mapping=2",
        {"INPUT_CHANNELS": 8, "OUTPUT_CHANNELS": 4, "INPUT_HEIGHT": 4, "INPUT_WIDTH": 3,
        "OUTPUT_HEIGHT": 4, "OUTPUT_WIDTH": 3}, {"pe": {"oc": 16}}, (4, 1, 1, 3),
    ),
    (
        "3 x 3, 4 groups of 4 to 4, apart: 1, 2, 1, 1 and 1 streams of 8 and 4 rows a stripe, of "
        "2 stripes, twice; weights "
        "4 * 2 + 1 of each stripe; records 64 bytes, twice; results 8 a stripe and atom",
        "OP_GROUP_CONV requantise=1 mapping=3",
        {"INPUT_CHANNELS": 16, "OUTPUT_CHANNELS": 16, "INPUT_HEIGHT": 10,
        "INPUT_WIDTH": 10, "OUTPUT_HEIGHT": 8, "OUTPUT_WIDTH": 8, "KERNEL_HEIGHT": 3,
        "KERNEL_WIDTH": 3, "GROUPS": 4},
        {}, (288, 36, 4, 32),
    ),
    (
        "3 copies of 100 bytes of atoms of 8, one behind the other: 299 * 8 + 1 bytes are 75 "
        "words, 300 dense ones 10",
        "OP_PERMUTE",
        {"COUNT_1": 100, "COUNT_2": 3, "INPUT_STRIDE_1": 8, "INPUT_STRIDE_2": 800,
         "OUTPUT_STRIDE_1": 1, "OUTPUT_STRIDE_2": 100}, {}, (75, 10),
    ),
    (
        "100 dense bytes are 4 words, and become one of every 64, a word each",
        "OP_PERMUTE", {"COUNT_1": 100, "INPUT_STRIDE_1": 1, "OUTPUT_STRIDE_1": 64}, {}, (4, 100),
    ),
    (
        "softmax of a row of 100: an atom of 8 in a word each, 13, three times; 256 numbers of 4 "
        "bytes",
        "OP_SOFTMAX", {"INPUT_CHANNELS": 100, "LENGTH": 1}, {}, (39, 32, 13),
    ),
    (
        "softmax of 40 rows of 12: 2 surfaces of 40 * 8 bytes, 10 words each, three times",
        "OP_SOFTMAX", {"ROWS": 40, "INPUT_CHANNELS": 12, "LENGTH": 1}, {}, (60, 32, 20),
    ),
    (
        "the mean of 20 channels of 49, 3 surfaces of 392 bytes, is 49 dense bytes",
        "OP_REDUCE", {"INPUT_CHANNELS": 20, "LENGTH": 49}, {}, (39, 2),
    ),
    (
        "6 rows of 4 by 5 normalised: 3 atoms of 20 channels, 48 bytes each, twice; 4 pairs of 8 "
        "bytes",
        "OP_NORM", {"ROWS": 6, "INPUT_CHANNELS": 4, "LENGTH": 5}, {}, (12, 1, 6),
    ),
    (
        "with pairs of each row 24",
        "OP_NORM by_row=1", {"ROWS": 6, "INPUT_CHANNELS": 4, "LENGTH": 5}, {}, (12, 6, 6),
    ),
    (
        "50 rows of 20 by a tensor of 20 x 10, array 4 x 16: as by weights, but a block is 4 "
        "positions of 2 atoms",
        "OP_DYN_MAT_MUL requantise=1", {"ROWS": 50, "INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 10},
        {"pe": {"ic": 4, "oc": 16}}, (75, 20, 26),
    ),
    (
        "the same of 10 x 20, transposed, looked up: 10 positions of an atom a block, 3 words; 256 "
        "bytes of table",
        "OP_DYN_MAT_MUL requantise=1 transposed=1 look_up=1",
        {"ROWS": 50, "INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 10},
        {"pe": {"ic": 4, "oc": 16}}, (75, 30, 8, 26),
    ),
    (
        "50 rows of 20 by 20 x 10, array 4 x 16, stripes of 32 and 18: activations 8 + 1 and 5 + "
        "1, of 5 blocks; "
        "weights 200 bytes a stripe; records 80 bytes; results 2 atoms, 8 and 5",
        "OP_MAT_MUL requantise=1", {"ROWS": 50, "INPUT_CHANNELS": 20, "OUTPUT_CHANNELS": 10},
        {"pe": {"ic": 4, "oc": 16}}, (75, 14, 3, 26),
    ),
    (
        "40 x 3 bytes are transposed: each row of 40 is read from 118 bytes, 4 words, and written "
        "into 40, up to 2",
        "OP_PERMUTE",
        {"COUNT_1": 40, "COUNT_2": 3, "INPUT_STRIDE_1": 3, "INPUT_STRIDE_2": 1,
         "OUTPUT_STRIDE_1": 1, "OUTPUT_STRIDE_2": 40}, {}, (12, 6),
    ),
    (
        "8 channels of 8 positions change places: 2 words are read, and each is written into 2",
        "OP_PERMUTE",
        {"COUNT_1": 8, "COUNT_2": 8, "INPUT_STRIDE_1": 1, "INPUT_STRIDE_2": 8, "OUTPUT_STRIDE_1": 8,
        "OUTPUT_STRIDE_2": 1}, {}, (2, 4),
    ),
    (
        "a fill of 100 bytes of atoms of 8 asks for none of a source",
        "OP_PERMUTE fill=1", {"COUNT_1": 100, "INPUT_STRIDE_1": 1, "OUTPUT_STRIDE_1": 8}, {},
        (0, 25),
    ),
    (
        "3 x 3, 12 channels, 6 x 6: 6 rows of 48 bytes, 2 words, for 2 atoms; weights 108 bytes, "
        "records 96, "
        "results 2 * 288 bytes",
        "OP_DEPTH_CONV requantise=1",
        {"INPUT_CHANNELS": 12, "OUTPUT_CHANNELS": 12, "INPUT_HEIGHT": 6, "INPUT_WIDTH": 6,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 6, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3, "PAD_TOP": 1,
        "PAD_LEFT": 1},
        {}, (24, 4, 3, 18),
    ),
    (
        "the same in int32: four times the results",
        "OP_DEPTH_CONV",
        {"INPUT_CHANNELS": 12, "OUTPUT_CHANNELS": 12, "INPUT_HEIGHT": 6, "INPUT_WIDTH": 6,
        "OUTPUT_HEIGHT": 6, "OUTPUT_WIDTH": 6, "KERNEL_HEIGHT": 3, "KERNEL_WIDTH": 3, "PAD_TOP": 1,
        "PAD_LEFT": 1},
        {}, (24, 4, 3, 72),
    ),
    (
        "a row of 64 by 64 x 64 goes on from sums and is looked up: a word of activations a block, "
        "8 words of sums, "
        "256 bytes of table",
        "OP_MAT_MUL requantise=1 accumulate=1 look_up=1",
        {"INPUT_CHANNELS": 64, "OUTPUT_CHANNELS": 64}, {},
        (64, 128, 16, 8, 8, 8),
    ),
    (
        "20 channels of 49, 3 surfaces of 392 bytes, times a value each, a word of each surface",
        "OP_E_MUL repeat_b=1", {"OUTPUT_CHANNELS": 20, "LENGTH": 49}, {}, (39, 3, 39),
    ),
    (
        "20 channels of 49 times one row, again for each surface",
        "OP_E_MUL repeat_b=2", {"OUTPUT_CHANNELS": 20, "LENGTH": 49}, {}, (39, 39, 39),
    ),
    (
        "20 channels of 49 looked up in a table each",
        "OP_LUT", {"OUTPUT_CHANNELS": 20, "LENGTH": 49, "ROWS": 1}, {}, (39, 160, 39),
    ),
)  # fmt: skip


@pytest.mark.parametrize("layer", WORDS, ids=lambda layer: layer[0].split(",")[0])
def test_words(layer: tuple[str, str, dict[str, int], dict[str, object], tuple[int, ...]]) -> None:
    """The words of each operand, worked out in the words of the layer."""
    _, operation, registers, machine, words = layer
    program = _program(
        "\n".join(f"SET EX_{name}, {value}" for name, value in registers.items()),
        operation,
        machine,
    )
    command = program.commands[0]
    assert command.instruction.packed is not None
    assert command.instruction.packed.words(command, program.arch) == words
