"""Kernels of all instructions but convolutions equal the semantics to the bit.

Commands are random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dla_sim.kernels.dispatch import KERNELS
from dla_sim.kernels.pairs import exact_in_float64
from isa import numerics
from isa.ops import ALL
from isa.ops.pooling import GLOBAL_AVERAGE
from isa.registers import RESET
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

FLOAT = ARCHS["onnxruntime"]
EXACT = settings(max_examples=80, deadline=None, derandomize=True)
SEEDS = st.integers(0, 1 << 32)
INT8 = st.integers(-128, 127)
ZERO_POINTS = st.one_of(INT8, st.sampled_from([-32768, 32767]))


def clamps(data: Any) -> dict[str, int]:
    """Zero point and clamp limits, now and then in the wrong order."""
    return {
        "EX_OUTPUT_ZERO_POINT": data.draw(st.one_of(INT8, st.sampled_from([-32768, 32767]))),
        "EX_CLAMP_LOW": data.draw(st.one_of(st.just(-128), INT8)),
        "EX_CLAMP_HIGH": data.draw(st.one_of(st.just(127), INT8)),
    }


def bits(value: float) -> int:
    """Raw float32 bits of a number that float32 rounds."""
    return numerics.float32_bits(np.float32(value))


def looks(data: Any) -> int:
    """The field look_up."""
    return int(data.draw(st.sampled_from([0, 0, 1, 2])))


@EXACT
@given(
    data=st.data(),
    seed=SEEDS,
    arch=st.sampled_from(list(ARCHS.values())),
    way=st.sampled_from(PRODUCT_WAYS),
)
def test_matrix_products(data: Any, seed: int, arch: Any, way: str) -> None:
    m = data.draw(st.integers(1, 5))
    n = data.draw(st.integers(1, 9))
    k = data.draw(st.integers(1, 40))
    if data.draw(st.booleans()):
        k = data.draw(st.sampled_from([1024, 1025, 2100]))
    fields = {"requantise": data.draw(st.integers(0, 1)), "relu": data.draw(st.integers(0, 1))}
    fields["look_up"] = looks(data) * fields["requantise"]
    fields["accumulate"] = data.draw(st.integers(0, 1))
    places = {
        "EX_PARTIAL_ADDRESS": data.draw(st.sampled_from([34000, 35000, 34004])),
        "EX_TABLE_ADDRESS": data.draw(st.sampled_from([3, 32000, 33990])),
        "EX_INPUT_ADDRESS": 5,
        "EX_OPERAND_ADDRESS": 12000,
        "EX_CHANNEL_ADDRESS": 33002,
        "EX_OUTPUT_ADDRESS": 34000,
    }
    registers = {
        "EX_ROWS": m,
        "EX_INPUT_CHANNELS": k,
        "EX_OUTPUT_CHANNELS": n,
        **places,
        **clamps(data),
    }
    sram = random_bytes(36400, seed)
    biases = data.draw(st.lists(BIASES, min_size=n, max_size=n))
    scales = data.draw(st.lists(SCALES, min_size=n, max_size=n))
    write_records(sram, 33002, biases, scales, arch)
    with product_way(way):
        compare("OP_MAT_MUL", registers, fields, sram, arch, compiled=data.draw(st.booleans()))


@EXACT
@given(
    data=st.data(),
    seed=SEEDS,
    arch=st.sampled_from(list(ARCHS.values())),
    way=st.sampled_from(PRODUCT_WAYS),
)
def test_dynamic_matrix_products(data: Any, seed: int, arch: Any, way: str) -> None:
    """Also sums of several parts, and results that lie over an operand."""
    m = data.draw(st.integers(1, 5))
    n = data.draw(st.integers(1, 9))
    k = data.draw(st.integers(1, 40))
    if data.draw(st.booleans()):
        k = data.draw(st.sampled_from([257, 258, 259, 1024, 1100]))
    fields = {
        "requantise": data.draw(st.integers(0, 1)),
        "transposed": data.draw(st.integers(0, 1)),
    }
    zero_point = st.one_of(INT8, st.sampled_from([-128, 127, 300, -32768]))
    registers = {
        "EX_ROWS": m, "EX_INPUT_CHANNELS": k, "EX_OUTPUT_CHANNELS": n, **clamps(data),
        "EX_INPUT_ADDRESS": 5, "EX_OPERAND_ADDRESS": 6000,
        "EX_OUTPUT_ADDRESS": data.draw(st.sampled_from([16000, 4])),
        "EX_INPUT_ZERO_POINT": data.draw(zero_point),
        "EX_OPERAND_ZERO_POINT": data.draw(zero_point),
        "EX_SCALE_A": bits(data.draw(SCALES)), "EX_SHIFT_A": 0,
    }  # fmt: skip
    if arch is not FLOAT:
        registers["EX_SCALE_A"] = data.draw(st.integers(0, 2**31 - 1))
        registers["EX_SHIFT_A"] = data.draw(st.integers(-31, 0))
    with product_way(way):
        compare("OP_DYN_MAT_MUL", registers, fields, random_bytes(17000, seed), arch)


@EXACT
@given(
    data=st.data(), seed=SEEDS, arch=st.sampled_from(list(ARCHS.values())), mode=st.integers(0, 2)
)
def test_pooling(data: Any, seed: int, arch: Any, mode: int) -> None:
    small = st.integers(1, 3)
    size = st.integers(1, 12)
    registers = {f"EX_{name}": data.draw(small) for name in (
        "KERNEL_HEIGHT", "KERNEL_WIDTH", "STRIDE_HEIGHT", "STRIDE_WIDTH", "DILATION_HEIGHT",
        "DILATION_WIDTH",
    )}  # fmt: skip
    channels = data.draw(st.integers(1, 5))
    height = data.draw(size)
    width = data.draw(size)
    registers |= {
        "EX_INPUT_CHANNELS": channels, "EX_OUTPUT_CHANNELS": channels,
        "EX_INPUT_HEIGHT": height, "EX_INPUT_WIDTH": width,
        "EX_OUTPUT_HEIGHT": data.draw(st.integers(1, 6)),
        "EX_OUTPUT_WIDTH": data.draw(st.integers(1, 6)),
        "EX_PAD_TOP": data.draw(st.integers(0, 3)), "EX_PAD_LEFT": data.draw(st.integers(0, 3)),
        "EX_INPUT_PLANE": data.draw(st.sampled_from([0, 200])),
        "EX_OUTPUT_PLANE": data.draw(st.sampled_from([0, 50])),
        "EX_INPUT_ZERO_POINT": data.draw(INT8), "EX_OFFSET": data.draw(st.sampled_from([0, 128])),
        "EX_SCALE_A": bits(data.draw(SCALES)), "EX_SCALE_Y": bits(data.draw(SCALES)),
        "EX_INPUT_ADDRESS": 3, "EX_OUTPUT_ADDRESS": 4001, **clamps(data),
    }  # fmt: skip
    if mode == GLOBAL_AVERAGE:
        registers |= {
            "EX_OUTPUT_HEIGHT": 1,
            "EX_OUTPUT_WIDTH": 1,
            "EX_KERNEL_HEIGHT": height,
            "EX_KERNEL_WIDTH": width,
        }
    if arch.numerics == "fixed":
        multiplier, shift = numerics.quantise_multiplier(data.draw(st.floats(0.01, 1.0)))
        registers |= {"EX_SCALE_A": multiplier, "EX_SHIFT_A": shift}
    fields = {
        "mode": mode,
        "count_include_pad": data.draw(st.integers(0, 1)),
        "look_up": looks(data),
    }
    registers["EX_TABLE_ADDRESS"] = data.draw(st.sampled_from([1, 4100, 6000]))
    compare("OP_POOL", registers, fields, random_bytes(8192, seed), arch)


@pytest.mark.parametrize(
    ("mode", "size", "kernel", "stride"), [(0, 20, 3, 2), (0, 8, 2, 2), (1, 14, 3, 1), (2, 7, 1, 1)]
)
def test_pooling_is_taken_by_the_kernel(mode: int, size: int, kernel: int, stride: int) -> None:
    out = (size - kernel) // stride + 1
    registers = {
        "EX_INPUT_CHANNELS": 20, "EX_INPUT_HEIGHT": size, "EX_INPUT_WIDTH": size,
        "EX_OUTPUT_CHANNELS": 20,
        "EX_OUTPUT_HEIGHT": out, "EX_OUTPUT_WIDTH": out, "EX_KERNEL_HEIGHT": kernel,
        "EX_KERNEL_WIDTH": kernel,
        "EX_STRIDE_HEIGHT": stride, "EX_STRIDE_WIDTH": stride, "EX_OUTPUT_ADDRESS": 10000,
        "EX_SCALE_A": bits(0.013), "EX_SCALE_Y": bits(0.011), "EX_INPUT_ZERO_POINT": -7,
    }  # fmt: skip
    assert compare(
        "OP_POOL", registers, {"mode": mode, "count_include_pad": 0}, random_bytes(20000, 9), FLOAT
    )


@EXACT
@given(data=st.data(), seed=SEEDS, arch=st.sampled_from(list(ARCHS.values())))
@pytest.mark.parametrize("mnemonic", ["OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS", "OP_E_ADD"])
def test_elementwise(mnemonic: str, data: Any, seed: int, arch: Any) -> None:
    """Element-wise kernels equal the semantics for results apart, in place, or shifted."""
    registers = {
        "EX_LENGTH": data.draw(st.sampled_from([0, 1, 33, 700, 17000])),
        "EX_INPUT_ADDRESS": 1000, "EX_OPERAND_ADDRESS": 41000,
        "EX_OUTPUT_ADDRESS": data.draw(st.sampled_from([0, 999, 1000, 1001, 41000, 81003])),
        **clamps(data),
        "EX_INPUT_ZERO_POINT": data.draw(INT8), "EX_OPERAND_ZERO_POINT": data.draw(INT8),
        "EX_OFFSET": data.draw(st.sampled_from([0, 128])),
        "EX_SHIFT_A": data.draw(st.integers(-4, 0)),
        "EX_SHIFT_B": data.draw(st.integers(-4, 0)), "EX_SHIFT_Y": data.draw(st.integers(-20, -16)),
    }  # fmt: skip
    for name in "ABY":
        fixed = st.integers(1 << 30, (1 << 31) - 1)
        registers[f"EX_SCALE_{name}"] = data.draw(
            fixed if arch.numerics == "fixed" else SCALES.map(bits)
        )
    fields = {"look_up": looks(data)} if mnemonic == "OP_E_ADD" else {}
    registers["EX_TABLE_ADDRESS"] = data.draw(st.sampled_from([0, 81000]))
    compare(mnemonic, registers, fields, random_bytes(122000, seed), arch)


@EXACT
@given(data=st.data(), seed=SEEDS, arch=st.sampled_from(list(ARCHS.values())))
def test_look_ups(data: Any, seed: int, arch: Any) -> None:
    """One table or several, planes or a matrix.

    Results apart, in place, over operand or tables, beyond the end.
    """
    rows = data.draw(st.integers(0, 3))
    channels = data.draw(st.sampled_from([0, 1, 1, 2, 5]))
    registers = {
        "EX_ROWS": rows, "EX_OUTPUT_CHANNELS": channels,
        "EX_LENGTH": data.draw(st.sampled_from([0, 1, 33, 255, 256, 700])),
        "EX_INPUT_ADDRESS": 1000,
        "EX_OPERAND_ADDRESS": data.draw(st.sampled_from([12000, 1200, 22000])),
        "EX_OUTPUT_ADDRESS": data.draw(st.sampled_from([0, 999, 1000, 1001, 12000, 23000])),
    }  # fmt: skip
    compare("OP_LUT", registers, {}, random_bytes(23168, seed), arch)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 5000), (2, 3, 256), (1, 7, 400)])
def test_look_ups_are_taken_by_the_kernel(shape: tuple[int, int, int]) -> None:
    registers = dict(zip(("EX_ROWS", "EX_OUTPUT_CHANNELS", "EX_LENGTH"), shape, strict=True))
    registers |= {"EX_OPERAND_ADDRESS": 8000, "EX_OUTPUT_ADDRESS": 10000}
    assert compare("OP_LUT", registers, {}, random_bytes(20000, 3), FLOAT)


@EXACT
@given(data=st.data(), seed=SEEDS)
def test_permutations(data: Any, seed: int) -> None:
    """Any strides: repeated sources, results at one address, over sources, beyond the end."""
    strides = st.sampled_from([0, 1, 1, 2, 5, 12, 60])
    registers = {"EX_INPUT_ZERO_POINT": data.draw(INT8), "EX_INPUT_ADDRESS": 3000}
    registers["EX_OUTPUT_ADDRESS"] = data.draw(
        st.sampled_from([0, 1500, 2999, 3000, 3001, 6000, 11900])
    )
    for number in (1, 2, 3, 4):
        registers[f"EX_COUNT_{number}"] = data.draw(st.sampled_from([0, 1, 1, 2, 3, 5, 12]))
        registers[f"EX_INPUT_STRIDE_{number}"] = data.draw(strides)
        registers[f"EX_OUTPUT_STRIDE_{number}"] = data.draw(strides)
    fields = {"fill": data.draw(st.sampled_from([0, 0, 1]))}
    compare("OP_PERMUTE", registers, fields, random_bytes(12000, seed), FLOAT)


@pytest.mark.parametrize("fill", [0, 1])
def test_permutations_are_taken_by_the_kernel(fill: int) -> None:
    registers = {
        "EX_OUTPUT_ADDRESS": 4000,
        "EX_COUNT_1": 50,
        "EX_INPUT_STRIDE_1": 40,
        "EX_OUTPUT_STRIDE_1": 1,
    }
    registers |= {"EX_COUNT_2": 40, "EX_INPUT_STRIDE_2": 1, "EX_OUTPUT_STRIDE_2": 50}
    assert compare("OP_PERMUTE", registers, {"fill": fill}, random_bytes(8000, 3), FLOAT)


NOTHING = (0, 4, 1), (1, 3, 0), (2, 0, 3)


ROWS = st.sampled_from(
    [(1, 1, 1), (3, 40, 1), (1, 9, 30), (2, 5, 7), (2, 1, 6), (1, 700, 1), *NOTHING]
)


def rows(data: Any, **more: int) -> dict[str, int]:
    """Shape, places and planes of a command on rows.

    Results apart, in place, over the operand, beyond the end.
    """
    shape = data.draw(ROWS)
    plane = st.sampled_from([0, 0, shape[2], shape[2] + 3])
    return {
        **dict(zip(("EX_ROWS", "EX_INPUT_CHANNELS", "EX_LENGTH"), shape, strict=True)),
        "EX_INPUT_ADDRESS": data.draw(st.sampled_from([0, 1000])), "EX_OPERAND_ADDRESS": 4001,
        "EX_OUTPUT_ADDRESS": data.draw(st.sampled_from([0, 999, 1000, 1001, 12000, 15990])),
        "EX_INPUT_ZERO_POINT": data.draw(ZERO_POINTS),
        "EX_OUTPUT_ZERO_POINT": data.draw(ZERO_POINTS),
        **{f"EX_{name}_PLANE": data.draw(plane) for name in more.pop("planes", ())}, **more,
    }  # fmt: skip


@EXACT
@given(
    data=st.data(),
    seed=SEEDS,
    arch=st.sampled_from(list(ARCHS.values())),
    scale=st.floats(1e-4, 1.5),
)
def test_softmax(data: Any, seed: int, arch: Any, scale: float) -> None:
    """Softmax kernels equal the semantics for any table.

    Tables are computed for fewer or more elements than the row has, falling, or random bytes.
    """
    registers = rows(data, planes=("INPUT", "OUTPUT"))
    count = data.draw(st.sampled_from([max(registers["EX_INPUT_CHANNELS"], 1), 1, 5000]))
    sram = random_bytes(16000, seed)
    fixed = arch.numerics == "fixed"
    kind = data.draw(st.sampled_from(["made", "made", "falling", "random"]))
    table = numerics.softmax_table_fixed(scale) if fixed else numerics.softmax_table(scale, count)
    if kind != "random":
        sram[4001 : 4001 + 1024] = np.ascontiguousarray(
            table[::-1] if kind == "falling" else table
        ).view(np.uint8)
    factor = data.draw(st.sampled_from([0, 1, 255, 256, 1000, 1 << 24]))
    compare(
        "OP_SOFTMAX", {**registers, "EX_SCALE_Y": factor if fixed else bits(factor)}, {}, sram, arch
    )


@pytest.mark.parametrize("lowest", [float("nan"), -1e30, -np.inf])
def test_tables_of_exponentials_that_are_none_are_left_to_the_semantics(lowest: float) -> None:
    sram = random_bytes(8000, 1)
    table = numerics.softmax_table(0.05, 20)
    table[0] = lowest
    sram[:1000] = 127
    sram[0] = 128
    sram[4000:5024] = table.view(np.uint8)
    registers = {"EX_ROWS": 1, "EX_INPUT_CHANNELS": 20, "EX_LENGTH": 1, "EX_OPERAND_ADDRESS": 4000}
    assert not compare(
        "OP_SOFTMAX",
        registers | {"EX_OUTPUT_ADDRESS": 6000, "EX_SCALE_Y": bits(255)},
        {},
        sram,
        FLOAT,
    )


@EXACT
@given(data=st.data(), seed=SEEDS, arch=st.sampled_from(list(ARCHS.values())))
def test_normalisations(data: Any, seed: int, arch: Any) -> None:
    registers = rows(data)
    sram = random_bytes(16000, seed)
    fields = {"centred": data.draw(st.integers(0, 1)), "by_row": data.draw(st.integers(0, 1))}
    if data.draw(st.integers(0, 3)):
        rng = np.random.default_rng(seed)
        unit = 1 << 15 if arch.numerics == "fixed" else 1
        pairs = rng.normal(0, 9, 1400) * unit
        sram[4001:9601] = pairs.astype(np.int32 if unit > 1 else np.float32).view(np.uint8)
    epsilon = data.draw(st.sampled_from([0.0, 1e-3, 0.5, 300.0]))
    registers["EX_SCALE_A"] = int(epsilon) if arch.numerics == "fixed" else bits(epsilon)
    compare("OP_NORM", registers, fields, sram, arch)


def test_rows_are_taken_by_the_kernels() -> None:
    for shape in ((128, 128, 1), (1, 16, 400), (3, 5, 7)):
        registers = dict(zip(("EX_ROWS", "EX_INPUT_CHANNELS", "EX_LENGTH"), shape, strict=True))
        registers |= {
            "EX_OPERAND_ADDRESS": 20000,
            "EX_OUTPUT_ADDRESS": 30000,
            "EX_SCALE_A": bits(0.5),
        }
        sram = random_bytes(50000, 3)
        sram[20000:21024] = numerics.softmax_table(0.05, shape[1]).view(np.uint8)
        assert compare("OP_SOFTMAX", registers | {"EX_SCALE_Y": bits(255)}, {}, sram, FLOAT)
        sram[20000:30000] = np.full(2500, 0.75, np.float32).view(np.uint8)
        assert compare("OP_NORM", registers, {"centred": 1}, sram, FLOAT)


@EXACT
@given(data=st.data(), seed=SEEDS, arch=st.sampled_from(list(ARCHS.values())))
@pytest.mark.parametrize("mnemonic", ["OP_E_MUL", "OP_B_ADD"])
def test_pairs_that_repeat(mnemonic: str, data: Any, seed: int, arch: Any) -> None:
    """Either operand dense, a value a channel, a row or one value.

    Results apart, or over an operand.
    """
    registers = {
        "EX_OUTPUT_CHANNELS": data.draw(st.sampled_from([0, 1, 2, 7, 40])),
        "EX_LENGTH": data.draw(st.sampled_from([0, 1, 33, 700])),
        "EX_INPUT_ADDRESS": 1000, "EX_OPERAND_ADDRESS": data.draw(st.sampled_from([1001, 31000])),
        "EX_OUTPUT_ADDRESS": data.draw(st.sampled_from([0, 1000, 31001, 60000])), **clamps(data),
        "EX_INPUT_ZERO_POINT": data.draw(INT8),
        "EX_OPERAND_ZERO_POINT": data.draw(st.one_of(INT8, st.just(999))),
        "EX_OFFSET": data.draw(st.sampled_from([0, 128])),
        "EX_SHIFT_A": data.draw(st.integers(-4, 0)),
        "EX_SHIFT_B": data.draw(st.integers(-4, 0)), "EX_SHIFT_Y": data.draw(st.integers(-20, -16)),
    }  # fmt: skip
    for name in "ABY":
        fixed = st.integers(1 << 30, (1 << 31) - 1)
        registers[f"EX_SCALE_{name}"] = data.draw(
            fixed if arch.numerics == "fixed" else SCALES.map(bits)
        )
    repeats = st.integers(0, 3)
    fields = {
        "repeat_a": data.draw(repeats),
        "repeat_b": data.draw(repeats),
    }
    fields["look_up"] = looks(data)
    registers["EX_TABLE_ADDRESS"] = 61000
    compare(mnemonic, registers, fields, random_bytes(90000, seed), arch)


@pytest.mark.parametrize("mnemonic", ["OP_E_MUL", "OP_B_ADD"])
@pytest.mark.parametrize("shape", [(1, 40000), (3, 256), (400, 7)])
def test_pairs_are_taken_by_the_kernel(mnemonic: str, shape: tuple[int, int]) -> None:
    registers = {"EX_OUTPUT_CHANNELS": shape[0], "EX_LENGTH": shape[1], "EX_OPERAND_ADDRESS": 40000}
    registers |= {"EX_OUTPUT_ADDRESS": 80000, **{f"EX_SCALE_{name}": bits(0.013) for name in "ABY"}}
    registers |= {
        "EX_INPUT_ZERO_POINT": -7,
        "EX_OPERAND_ZERO_POINT": 100,
        "EX_OUTPUT_ZERO_POINT": 3,
    }
    fields = {"repeat_a": 0, "repeat_b": 1}
    assert compare(mnemonic, registers, fields, random_bytes(120000, 3), FLOAT)


@EXACT
@given(
    ratios=st.tuples(SCALES, SCALES),
    zeros=st.tuples(*[st.integers(0, 255)] * 3),
    offset=st.sampled_from([0, 128]),
)
def test_addition_of_all_pairs(
    ratios: tuple[float, float], zeros: tuple[int, int, int], offset: int
) -> None:
    """All 65,536 pairs, with constants as the compiler makes them, on ties too."""
    if min(ratios) <= 0 or max(ratios) > 100:
        return
    constants = numerics.add_constants(ratios[0], zeros[0], ratios[1], zeros[1], 1.0, zeros[2])
    sram = np.empty(3 << 16, np.uint8)
    sram[: 1 << 16] = np.repeat(np.arange(256), 256)
    sram[1 << 16 : 2 << 16] = np.tile(np.arange(256), 256)
    registers = {
        "EX_LENGTH": 1 << 16,
        "EX_OPERAND_ADDRESS": 1 << 16,
        "EX_OUTPUT_ADDRESS": 2 << 16,
        "EX_OFFSET": offset,
    }
    registers |= {
        f"EX_SCALE_{name}": bits(float(value)) for name, value in zip("ABY", constants, strict=True)
    }
    took = compare(
        "OP_E_ADD", registers | {"EX_CLAMP_LOW": -128, "EX_CLAMP_HIGH": 127}, {}, sram, FLOAT
    )
    assert took == exact_in_float64(*(float(value) for value in constants))


@EXACT
@given(data=st.data(), seed=SEEDS, unit=st.sampled_from(["LD", "ST"]))
def test_transfers(data: Any, seed: int, unit: str) -> None:
    """Rows dense, apart, overlapping or repeated on either side."""
    registers = {name: RESET[name] for name in RESET if name.startswith(f"{unit}_")}
    registers |= {
        f"{unit}_BYTES": data.draw(st.integers(0, 40)),
        f"{unit}_DRAM_ADDRESS": data.draw(st.integers(0, 9)),
    }
    registers[f"{unit}_SRAM_ADDRESS"] = data.draw(st.integers(0, 9))
    for dimension in (1, 2, 3):
        registers[f"{unit}_COUNT_{dimension}"] = data.draw(st.integers(1, 4))
        for side in ("DRAM", "SRAM"):
            stride = data.draw(st.one_of(st.integers(0, 60), st.sampled_from([40, 160, 640])))
            registers[f"{unit}_{side}_STRIDE_{dimension}"] = stride
    dram = random_bytes(8192, seed)
    sram = random_bytes(8192, seed + 1)
    compare("OP_DMA_READ" if unit == "LD" else "OP_DMA_WRITE", registers, {}, sram, FLOAT, dram)


def test_transfer_of_planes_is_taken_by_the_kernel() -> None:
    registers = {name: RESET[name] for name in RESET if name.startswith("LD_")}
    registers |= {"LD_BYTES": 28, "LD_COUNT_1": 7, "LD_DRAM_STRIDE_1": 56, "LD_SRAM_STRIDE_1": 28}
    registers |= {"LD_COUNT_2": 5, "LD_DRAM_STRIDE_2": 900, "LD_SRAM_STRIDE_2": 200}
    assert compare(
        "OP_DMA_READ", registers, {}, random_bytes(1024, 1), FLOAT, random_bytes(8192, 2)
    )
    registers["LD_COUNT_1"] = 1
    registers["LD_COUNT_2"] = 1
    assert compare(
        "OP_DMA_READ", registers, {}, random_bytes(1024, 1), FLOAT, random_bytes(8192, 2)
    )


def test_every_kernel_belongs_to_an_instruction() -> None:
    assert KERNELS.keys() <= ALL.keys()


def test_an_instruction_without_a_kernel_runs_on_its_semantics() -> None:
    assert "OP_E32_ADD" not in KERNELS
    registers = {"EX_LENGTH": 9, "EX_OPERAND_ADDRESS": 40, "EX_OUTPUT_ADDRESS": 80}
    sram = np.zeros(160, np.uint8)
    sram[:80] = random_bytes(80, 3) >> 2
    assert not compare("OP_E32_ADD", registers, {}, sram, FLOAT)
