"""``OP_GROUP_CONV`` equals ONNX Runtime's grouped QLinearConv to the bit.

Its cycles equal hand counts and are never fewer than those of a depthwise convolution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from isa import numerics
from isa.arch import Arch, PeArray
from isa.errors import InputError
from isa.instruction import ceil_div
from isa.ops.convolution import parallel_groups
from tests.isa.bench import make_command, run
from tests.isa.onnx_results import onnx_result, records, scalar, zero

CASES = [
    # groups, ic, oc, (ih, iw), kernel, strides, dilations, pads (top, left, bottom, right)
    (2, 6, 4, (8, 5), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (3, 6, 9, (7, 9), (3, 2), (2, 1), (1, 2), (0, 2, 2, 1)),
    (4, 8, 8, (5, 5), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    (5, 5, 5, (6, 4), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),  # depthwise
    # three output channels an input channel
    (4, 4, 12, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (1, 3, 5, (6, 6), (3, 3), (1, 1), (1, 1), (2, 2, 2, 2)),  # one group is OP_CONV
    (2, 4, 2, (1, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
]


def settings_of(case: tuple[Any, ...], output: tuple[int, ...]) -> dict[str, int]:
    """The geometry registers of a case whose result is ``output`` (OC, OH, OW)."""
    groups, ic, oc, (ih, iw), (kh, kw), strides, dilations, pads = case
    return {
        "EX_INPUT_CHANNELS": ic, "EX_INPUT_HEIGHT": ih, "EX_INPUT_WIDTH": iw, "EX_GROUPS": groups,
        "EX_OUTPUT_CHANNELS": oc, "EX_OUTPUT_HEIGHT": output[1], "EX_OUTPUT_WIDTH": output[2],
        "EX_KERNEL_HEIGHT": kh, "EX_KERNEL_WIDTH": kw, "EX_STRIDE_HEIGHT": strides[0],
        "EX_STRIDE_WIDTH": strides[1],
        "EX_DILATION_HEIGHT": dilations[0], "EX_DILATION_WIDTH": dilations[1],
        "EX_PAD_TOP": pads[0], "EX_PAD_LEFT": pads[1],
    }  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_grouped_convolution_equals_onnx_runtime(case: tuple[Any, ...]) -> None:
    groups, ic, oc, (ih, iw), kernel, strides, dilations, pads = case
    rng = np.random.default_rng(ic * 100 + oc)
    x = rng.integers(-128, 128, (1, ic, ih, iw), dtype=np.int8)
    w = rng.integers(-127, 128, (oc, ic // groups, *kernel), dtype=np.int8)
    bias = rng.integers(-4000, 4000, oc, dtype=np.int32)
    xs = scalar(rng.uniform(0.01, 0.1))
    ys = scalar(rng.uniform(0.3, 2))
    ws = rng.uniform(0.001, 0.02, oc).astype(np.float32)
    zx = int(rng.integers(-128, 128))
    zy = int(rng.integers(-20, 20))
    expected = onnx_result(
        "QLinearConv",
        {"x": x, "xs": xs, "xz": zero(zx), "w": w, "ws": ws, "wz": np.zeros(oc, np.int8)}
        | {"ys": ys, "yz": zero(zy), "b": bias},
        group=groups, strides=strides, dilations=dilations, pads=pads,
    )[0]  # fmt: skip
    folded = (bias - zx * w.reshape(oc, -1).sum(axis=1, dtype=np.int64)).astype(np.int32)
    registers = settings_of(case, expected.shape) | {
        "EX_INPUT_ZERO_POINT": zx,
        "EX_OUTPUT_ZERO_POINT": zy,
    }
    operands: list[NDArray[Any]] = [x, w, records(folded, numerics.requantise_scale(xs, ws, ys))]
    found = run("OP_GROUP_CONV", registers, operands, (expected.shape, np.int8), {"requantise": 1})
    np.testing.assert_array_equal(found, expected)
    relu = run(
        "OP_GROUP_CONV",
        registers,
        operands,
        (expected.shape, np.int8),
        {"requantise": 1, "relu": 1},
    )
    np.testing.assert_array_equal(relu, np.maximum(expected, zy))
    wide = run("OP_GROUP_CONV", registers, operands, (expected.shape, np.int32))
    np.testing.assert_array_equal(
        numerics.requantise(wide, numerics.requantise_scale(xs, ws, ys)[:, None, None], zy),
        expected,
    )


@pytest.mark.parametrize(
    ("groups", "ic", "oc", "parallel", "cycles"),
    [
        # pe = {ic = 8, oc = 4, ow = 2}, output 7 rows of 5 columns (3 column blocks), kernel 3×3: ×
        # 7 · 3 · 9 = 189
        (1, 9, 9, 1, 1 * 2 * 3 * 189),  # one group: OP_CONV
        # 4 by 2 channels a group: 2 · 2 blocks of the array, three of them used
        (3, 12, 6, 3, 1 * 189),
        (8, 32, 16, 4, 2 * 189),  # the same groups, eight: two rounds of four
        (2, 10, 4, 2, 1 * 189),  # 5 by 2: the input axis holds one block, the output axis two
        # 12 by 3 channels: a group fills the input axis, one at a time, two passes
        (2, 24, 6, 1, 2 * 2 * 1 * 189),
        (33, 33, 33, 32, 2 * 189),  # depthwise: OP_DEPTH_CONV's 33 channels on 32 elements
        (4, 4, 12, 4, 1 * 189),  # 1 by 3: eight blocks, four groups
    ],
)
def test_cycles_by_hand(groups: int, ic: int, oc: int, parallel: int, cycles: int) -> None:
    arch = Arch(pe=PeArray(ic=8, oc=4, ow=2))
    registers = {
        "EX_INPUT_CHANNELS": ic,
        "EX_OUTPUT_CHANNELS": oc,
        "EX_GROUPS": groups,
        "EX_OUTPUT_HEIGHT": 7,
    }
    registers |= {"EX_OUTPUT_WIDTH": 5, "EX_KERNEL_HEIGHT": 3, "EX_KERNEL_WIDTH": 3}
    command = make_command("OP_GROUP_CONV", registers)
    assert parallel_groups(groups, ic // groups, oc // groups, arch) == parallel
    assert command.instruction.cycles(command, arch) == cycles
    assert command.instruction.macs(command) == oc * 7 * 5 * (ic // groups) * 9


@settings(max_examples=200, deadline=None)
@given(
    *[st.integers(1, 9) for _ in range(3)],
    st.tuples(st.integers(1, 16), st.integers(1, 16), st.integers(1, 3)),
)
def test_never_cheaper_than_the_array_allows(
    groups: int, inputs: int, outputs: int, pe: tuple[int, int, int]
) -> None:
    """Cycles are at least ⌈MACs / N⌉ and OP_DEPTH_CONV's, at most those of one OP_CONV a group.

    For one group they are OP_CONV's.
    """
    arch = Arch(pe=PeArray(ic=pe[0], oc=pe[1], ow=pe[2]))
    plane = {"EX_OUTPUT_HEIGHT": 2, "EX_OUTPUT_WIDTH": 4, "EX_KERNEL_WIDTH": 3}
    registers = plane | {
        "EX_INPUT_CHANNELS": groups * inputs,
        "EX_OUTPUT_CHANNELS": groups * outputs,
    }
    grouped = make_command("OP_GROUP_CONV", registers | {"EX_GROUPS": groups})
    single = make_command(
        "OP_CONV", plane | {"EX_INPUT_CHANNELS": inputs, "EX_OUTPUT_CHANNELS": outputs}
    )
    cycles = grouped.instruction.cycles(grouped, arch)
    assert ceil_div(grouped.instruction.macs(grouped), arch.pe.count) <= cycles
    assert cycles <= groups * single.instruction.cycles(single, arch)
    if groups == 1:
        assert cycles == single.instruction.cycles(single, arch)
    if inputs == 1:
        depth = make_command("OP_DEPTH_CONV", registers)
        assert cycles >= depth.instruction.cycles(depth, arch)
        assert outputs > 1 or cycles == depth.instruction.cycles(depth, arch)


@pytest.mark.parametrize("groups", [0, 3])
def test_groups_that_do_not_divide_the_channels_are_refused(groups: int) -> None:
    command = make_command(
        "OP_GROUP_CONV", {"EX_INPUT_CHANNELS": 8, "EX_OUTPUT_CHANNELS": 6, "EX_GROUPS": groups}
    )
    with pytest.raises(InputError) as caught:
        command.instruction.operands(command, Arch())
    assert str(caught.value) == (
        f"word 0: OP_GROUP_CONV: EX_GROUPS = {groups} does not divide EX_INPUT_CHANNELS = 8 and "
        "EX_OUTPUT_CHANNELS = 6; all groups must be of one size"
    )
