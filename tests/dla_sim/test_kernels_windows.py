"""Convolution kernels equal the semantics to the bit on random windows and records.

Strides, planes and padding are random too.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.arch import Arch
from tests.dla_sim.kernel_bench import (
    ARCHS,
    BIASES,
    PRODUCT_WAYS,
    SCALES,
    compare,
    product_way,
    random_bytes,
    write_records,
)

SIZE = 1 << 17


def place(registers: dict[str, int], sizes: dict[str, int]) -> int:
    """Puts the operands one behind another at unaligned distances; returns the end."""
    address = 64
    for name, size in sizes.items():
        registers[f"EX_{name}_ADDRESS"] = address
        address += size + 3 - size % 4 + 5
    return address


@st.composite
def windows(draw: Any, kind: str) -> tuple[dict[str, int], dict[str, int], int, str]:
    """Draw (registers, fields, output channels, numerics) of a random window.

    All of its taps may be in the padding.
    """
    small = st.integers(1, 3)
    ic = draw(st.integers(1, 6))
    multiplier = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([n for n in range(1, ic + 1) if ic % n == 0]))
    oc = {
        "depth": ic * multiplier,
        "single": 1,
        "dense": draw(st.integers(1, 9)),
        "grouped": groups * multiplier,
    }[kind]
    ic = 1 if kind == "single" else ic
    kh = draw(small)
    kw = draw(small)
    oh = draw(st.integers(1, 6))
    ow = draw(st.integers(1, 6))
    values = {
        "KERNEL_HEIGHT": kh, "KERNEL_WIDTH": kw, "OUTPUT_HEIGHT": oh, "OUTPUT_WIDTH": ow,
        "STRIDE_HEIGHT": draw(small), "STRIDE_WIDTH": draw(small),
        "DILATION_HEIGHT": draw(small), "DILATION_WIDTH": draw(small),
        "PAD_TOP": draw(st.integers(0, 3)), "PAD_LEFT": draw(st.integers(0, 3)),
        "INPUT_CHANNELS": ic, "INPUT_HEIGHT": draw(st.integers(1, 14)),
        "INPUT_WIDTH": draw(st.integers(1, 14)),
        "OUTPUT_CHANNELS": oc,
        "INPUT_ZERO_POINT": draw(st.one_of(st.integers(-128, 127), st.just(200))),
        "OUTPUT_ZERO_POINT": draw(
            st.one_of(st.integers(-128, 127), st.sampled_from([-32768, 32767]))
        ),
        "CLAMP_LOW": draw(st.integers(-128, 0)), "CLAMP_HIGH": draw(st.integers(-20, 127)),
    }  # fmt: skip
    fields = {"requantise": draw(st.integers(0, 1)), "relu": draw(st.integers(0, 1))}
    fields["look_up"] = draw(st.sampled_from([0, 0, 1, 2])) if fields["requantise"] else 0
    fields["mapping"] = draw(st.integers(0, 3))
    if kind in ("dense", "single"):
        fields["accumulate"] = draw(st.sampled_from([0, 0, 1]))
    element = 1 if fields["requantise"] else 4
    planes = values["INPUT_HEIGHT"] * values["INPUT_WIDTH"], oh * ow * element
    gaps = draw(st.sampled_from([0, 0, 1, 7])), draw(st.sampled_from([0, 0, 4, 9]))
    for side, plane, gap in zip(("INPUT", "OUTPUT"), planes, gaps, strict=True):
        values[f"{side}_PLANE"] = plane + gap if gap else 0
    registers = {f"EX_{name}": value for name, value in values.items()}
    if kind == "grouped":
        registers["EX_GROUPS"] = groups
    weights = oc * kh * kw * {"depth": 1, "grouped": ic // groups}.get(kind, ic)
    numerics = draw(st.sampled_from(sorted(ARCHS)))
    sizes = {
        "INPUT": ic * (planes[0] + gaps[0]), "OPERAND": weights,
        "CHANNEL": oc * ARCHS[numerics].channel_record_bytes, "OUTPUT": oc * (planes[1] + gaps[1]),
    }  # fmt: skip
    sizes["TABLE"] = 256 * oc
    if "accumulate" in fields:
        sizes["PARTIAL"] = 4 * oc * oh * ow
    assert place(registers, sizes) < SIZE
    move_operands(draw, registers, fields)
    return registers, fields, oc, numerics


def move_operands(draw: Any, registers: dict[str, int], fields: dict[str, int]) -> None:
    """Move some operands of a window onto others, or off their alignment."""
    registers["EX_CHANNEL_ADDRESS"] += draw(st.sampled_from([0, 0, 0, 1]))
    if draw(st.booleans()):  # the results lie over the tables
        registers["EX_TABLE_ADDRESS"] = registers["EX_OUTPUT_ADDRESS"] - 100
    # sums take the place of those from which they start, or lie over some of them
    if fields.get("accumulate"):
        apart = registers["EX_PARTIAL_ADDRESS"]
        registers["EX_PARTIAL_ADDRESS"] = draw(
            st.sampled_from([apart, apart, registers["EX_OUTPUT_ADDRESS"]])
        )


SIDES = ("HEIGHT", "WIDTH")
MNEMONICS = {
    "dense": "OP_CONV",
    "single": "OP_CONV",
    "depth": "OP_DEPTH_CONV",
    "grouped": "OP_GROUP_CONV",
}
WAYS: dict[str, dict[str, int]] = {
    "as it is": {},
    "by planes": {"convolution._FEW_PIXELS": 0},
    "by pixels": {
        "convolution._FEW_PIXELS": 1 << 30,
        "convolution._NARROW": 1 << 30,
        "convolution._MANY_CHANNELS": 1,
    },
    "small blocks": {
        f"{name}_ELEMENTS": 60
        for name in ("convolution._BLOCK", "convolution._PLANE", "convolution._PIXEL")
    }
    | {"results._FEW": 2},
    "integer products": {"products._SMALL": -1},
    "compiled": {},
}
"""Settings of the kernels' own choices, which otherwise depend on sizes that a test can hardly
reach.
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", MNEMONICS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_random_windows(kind: str, way: str, data: Any, seed: int) -> None:
    registers, fields, channels, numerics = data.draw(windows(kind))
    sram = random_bytes(SIZE, seed)
    arch = ARCHS[numerics]
    biases = data.draw(st.lists(BIASES, min_size=channels, max_size=channels))
    scales = data.draw(st.lists(SCALES, min_size=channels, max_size=channels))
    write_records(sram, registers["EX_CHANNEL_ADDRESS"], biases, scales, arch)
    in_the_way = False
    if fields.get("accumulate"):
        first = registers["EX_PARTIAL_ADDRESS"]
        shape = (channels, *(registers[f"EX_OUTPUT_{s}"] for s in SIDES))
        sums = np.random.default_rng(seed).integers(-(2**20), 2**20, shape, np.int32)
        sram[first : first + sums.nbytes] = sums.reshape(-1).view(np.uint8)
        over = first == registers["EX_OUTPUT_ADDRESS"]
        in_the_way = over and bool(fields["requantise"] or registers["EX_OUTPUT_PLANE"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(f"dla_sim.kernels.{name}", value)
        took = compare(MNEMONICS[kind], registers, fields, sram, arch, compiled=way == "compiled")
    in_order = registers["EX_CLAMP_HIGH"] >= max(
        registers["EX_CLAMP_LOW"], registers["EX_OUTPUT_ZERO_POINT"]
    )
    if registers["EX_INPUT_ZERO_POINT"] < 128 and in_order and not in_the_way:
        assert took


def convolution(
    ic: int,
    oc: int,
    size: int,
    kernel: int,
    bias: int,
    scale: float,
    weight: int | None,
    arch: Arch,
    compiled: bool = False,
    **fields: int,
) -> bool:
    """Compares one dense convolution; ``weight`` None means random weights."""
    out = size - kernel + 1
    registers = {
        "EX_INPUT_CHANNELS": ic, "EX_INPUT_HEIGHT": size, "EX_INPUT_WIDTH": size,
        "EX_OUTPUT_CHANNELS": oc,
        "EX_OUTPUT_HEIGHT": out, "EX_OUTPUT_WIDTH": out, "EX_KERNEL_HEIGHT": kernel,
        "EX_KERNEL_WIDTH": kernel,
    }  # fmt: skip
    weights = oc * ic * kernel**2
    sizes = {
        "INPUT": ic * size**2,
        "OPERAND": weights,
        "CHANNEL": oc * 12,
        "OUTPUT": oc * out**2 * 4,
    }
    sram = random_bytes(place(registers, sizes) + 64, ic)
    if weight is not None:
        start = registers["EX_OPERAND_ADDRESS"]
        sram[start : start + weights] = weight & 255
        start = registers["EX_INPUT_ADDRESS"]
        sram[start : start + ic * size**2 : 2] = weight & 255
    write_records(sram, registers["EX_CHANNEL_ADDRESS"], [bias] * oc, [scale] * oc, arch)
    return compare("OP_CONV", registers, fields, sram, arch, compiled=compiled)


@pytest.mark.parametrize("arch", ARCHS.values(), ids=list(ARCHS))
@pytest.mark.parametrize("bias", [0, 12345, (1 << 24) + 1, -(1 << 30)])
@pytest.mark.parametrize("way", PRODUCT_WAYS)
def test_sums_around_and_beyond_float32(arch: Arch, way: str, bias: int) -> None:
    """Sums of about and far more than 2**24, which float32 cannot hold, are rounded once.

    The exact integer is rounded.
    """
    for ic, kernel in ((1023, 1), (1024, 1), (1025, 1), (2500, 1), (120, 3), (300, 2)):
        for weight, requantise in product((None, -128, 127), (0, 1)):
            with product_way(way):
                given = ic, 3, 4, kernel, bias, 1e-5, weight, arch, way == "chosen"
                assert convolution(*given, requantise=requantise)


def test_sum_that_leaves_int32_is_the_error_of_the_semantics() -> None:
    assert not convolution(2, 1, 4, 3, (1 << 31) - 1, 1.0, -128, ARCHS["onnxruntime"], requantise=1)


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("compiled", [False, True])
def test_scales_that_are_no_numbers(scale: float, compiled: bool) -> None:
    assert not convolution(
        4, 2, 5, 3, 77, scale, None, ARCHS["onnxruntime"], compiled, requantise=1
    )


@pytest.mark.parametrize(
    ("ic", "oc", "size", "kernel"),
    [(64, 130, 57, 1), (8, 16, 61, 3), (3, 32, 113, 3), (40, 700, 20, 1)],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_blocks(ic: int, oc: int, size: int, kernel: int, compiled: bool) -> None:
    """Planes and channels that are computed in several blocks."""
    assert convolution(
        ic, oc, size, kernel, -999, 3e-4, None, ARCHS["onnxruntime"], compiled, requantise=1, relu=1
    )


@pytest.mark.parametrize("mnemonic", ["OP_CONV", "OP_DEPTH_CONV"])
@pytest.mark.parametrize("output", ["INPUT", "OPERAND", "CHANNEL"])
def test_result_over_an_operand(mnemonic: str, output: str) -> None:
    """A result that overwrites an operand is computed from the operand as it was."""
    registers = {"EX_INPUT_CHANNELS": 3, "EX_INPUT_HEIGHT": 6, "EX_INPUT_WIDTH": 6,
                 "EX_OUTPUT_CHANNELS": 3, "EX_OUTPUT_HEIGHT": 6, "EX_OUTPUT_WIDTH": 6}  # fmt: skip
    place(registers, {"INPUT": 108, "OPERAND": 9, "CHANNEL": 24})
    registers["EX_OUTPUT_ADDRESS"] = registers[f"EX_{output}_ADDRESS"]
    sram = random_bytes(1024, 5)
    write_records(
        sram, registers["EX_CHANNEL_ADDRESS"], [1, -2, 3], [0.01, 0.02, 0.5], ARCHS["onnxruntime"]
    )
    compare(mnemonic, registers, {"requantise": 1}, sram, ARCHS["onnxruntime"])


def test_operand_past_the_end_is_the_error_of_the_semantics() -> None:
    registers = {
        "EX_INPUT_ADDRESS": 1000,
        "EX_INPUT_HEIGHT": 6,
        "EX_INPUT_WIDTH": 6,
        "EX_OUTPUT_HEIGHT": 6,
        "EX_OUTPUT_WIDTH": 6,
    }
    for mnemonic in ("OP_CONV", "OP_DEPTH_CONV"):
        compare(
            mnemonic, registers, {"requantise": 1}, np.zeros(1024, np.uint8), ARCHS["onnxruntime"]
        )
