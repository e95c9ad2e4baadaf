"""Random commands on banked memory, with operands laid out as in docs/machine.md, section 12.

This side of the comparison does not use ``isa.packing``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.arch import Arch
from isa.instruction import Command
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE, MAX
from isa.ops.requant import ChannelScales, pack_records
from isa.variants import VARIANTS
from tests.golden_cases.operations import scale_registers
from tests.golden_cases.tensor_operations import Addition
from tests.isa.bench import command_of
from tests.isa.packed_operands import (
    ORDER,
    PLANES,
    Atoms,
    Bytes,
    Dense,
    Depthwise,
    Drawn,
    Operand,
    Weights,
    draw_integer,
)

# Draws: one a family
# -------------------------------------------------------------------------------------------------


def _int8(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def _records(rng: np.random.Generator, channels: int, terms: int, arch: Arch) -> Operand:
    scale = (rng.uniform(0.5, 1.5, channels) / (48.0 * np.sqrt(terms))).astype(np.float32)
    bias = rng.integers(-3000, 3001, channels, dtype=np.int32)
    return Operand(
        np.frombuffer(pack_records(bias, ChannelScales.make_exact(scale), arch), np.uint8)
    )


def _limits(rng: np.random.Generator) -> dict[str, int]:
    low, high = sorted(rng.integers(-128, 128, 2).tolist()) if rng.integers(4) == 0 else (-128, 127)
    return {
        "EX_CLAMP_LOW": low,
        "EX_CLAMP_HIGH": high,
        "EX_OUTPUT_ZERO_POINT": draw_integer(rng, low, high),
    }


def _tables(rng: np.random.Generator, drawn: Drawn, channels: int) -> Drawn:
    """Half the time with a look-up as the last step: one table, or one a channel."""
    if rng.integers(2):
        drawn.fields["look_up"] = draw_integer(rng, 1, 2)
        drawn.operands["EX_TABLE_ADDRESS"] = Operand(
            _int8(rng, channels if drawn.fields["look_up"] > 1 else 1, 256)
        )
    return drawn


def _window(
    rng: np.random.Generator, channels: int, outputs: int, widest: int = 2
) -> dict[str, int]:
    """Draw registers of a window: small planes, kernels, strides, dilations and padding.

    Dilations are at most ``widest``.
    """
    registers = {"EX_INPUT_CHANNELS": channels, "EX_OUTPUT_CHANNELS": outputs}
    for side, pad in (("HEIGHT", "EX_PAD_TOP"), ("WIDTH", "EX_PAD_LEFT")):
        kernel = draw_integer(rng, 1, 3)
        stride = draw_integer(rng, 1, 2)
        dilation = draw_integer(rng, 1, widest)
        reach = (kernel - 1) * dilation + 1
        before = draw_integer(rng, 0, reach - 1)
        behind = draw_integer(rng, 0, reach - 1)
        size = max(draw_integer(rng, 1, 9), reach - before - behind, 1)
        sizes = {"KERNEL": kernel, "STRIDE": stride, "DILATION": dilation, "INPUT": size}
        registers |= {f"EX_{name}_{side}": value for name, value in sizes.items()}
        registers |= {
            f"EX_OUTPUT_{side}": (size + before + behind - reach) // stride + 1,
            pad: before,
        }
    return registers


def _plane(registers: Mapping[str, int], name: str) -> int:
    return registers[f"EX_{name}_HEIGHT"] * registers[f"EX_{name}_WIDTH"]


def _partial(
    rng: np.random.Generator, drawn: Drawn, plainly: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    if rng.integers(2):
        sums = rng.integers(-40000, 40000, drawn.result[:2], dtype=np.int32)
        drawn.fields["accumulate"] = 1
        drawn.operands["EX_PARTIAL_ADDRESS"] = Operand(sums, Atoms(), plainly(sums))


def _convolution(rng: np.random.Generator, arch: Arch, grouped: bool) -> Drawn:
    words = arch.words
    assert words is not None
    groups = draw_integer(rng, 1, 6) if grouped else 1
    inputs, outputs = (
        (draw_integer(rng, 1, 12), draw_integer(rng, 1, 9))
        if grouped
        else (draw_integer(rng, 1, 40), draw_integer(rng, 1, 40))
    )
    if groups == 1 and rng.integers(3) == 0:
        inputs = draw_integer(rng, 1, 4)
    registers = _window(rng, groups * inputs, groups * outputs)
    registers |= {"EX_GROUPS": groups} if grouped else {}
    registers |= {"EX_INPUT_ZERO_POINT": draw_integer(rng, -20, 20), **_limits(rng)}
    mapping = draw_integer(rng, 0, 3)
    kernel = registers["EX_KERNEL_HEIGHT"], registers["EX_KERNEL_WIDTH"]
    weights = _int8(rng, groups, outputs, inputs, *kernel)
    data = _int8(rng, groups * inputs, _plane(registers, "INPUT"))
    requantise = draw_integer(rng, 0, 1)
    pixels = inputs * (mapping == 3 and groups == 1 and inputs <= 4)
    drawn = Drawn(
        "OP_GROUP_CONV" if grouped else "OP_CONV", registers,
        {
            "EX_INPUT_ADDRESS": Operand(data, Atoms("EX_INPUT_PLANE", pixels)),
            "EX_OPERAND_ADDRESS": Operand(weights, Weights(mapping)),
            "EX_CHANNEL_ADDRESS": _records(rng, groups * outputs, weights[0, 0].size, arch),
        },
        (groups * outputs, _plane(registers, "OUTPUT"), np.int8 if requantise else np.int32),
        fields={"requantise": requantise, "relu": draw_integer(rng, 0, 1), "mapping": mapping},
    )  # fmt: skip
    if not grouped:
        _partial(rng, drawn, lambda sums: sums)
    return _tables(rng, drawn, groups * outputs) if requantise else drawn


def _depthwise(rng: np.random.Generator, arch: Arch) -> Drawn:
    channels = draw_integer(rng, 1, 40)
    registers = _window(rng, channels, channels) | {
        "EX_INPUT_ZERO_POINT": draw_integer(rng, -20, 20),
        **_limits(rng),
    }
    taps = _plane(registers, "KERNEL")
    requantise = draw_integer(rng, 0, 1)
    operands = {
        "EX_INPUT_ADDRESS": Operand(
            _int8(rng, channels, _plane(registers, "INPUT")), Atoms("EX_INPUT_PLANE")
        ),
        "EX_OPERAND_ADDRESS": Operand(_int8(rng, channels, taps), Depthwise()),
        "EX_CHANNEL_ADDRESS": _records(rng, channels, taps, arch),
    }
    result = channels, _plane(registers, "OUTPUT"), np.int8 if requantise else np.int32
    fields = {"requantise": requantise, "relu": draw_integer(rng, 0, 1)}
    drawn = Drawn("OP_DEPTH_CONV", registers, operands, result, fields=fields)
    return _tables(rng, drawn, channels) if requantise else drawn


def _matrices(rng: np.random.Generator, arch: Arch) -> Drawn:
    rows = draw_integer(rng, 1, 20)
    inputs = draw_integer(rng, 1, 60)
    outputs = draw_integer(rng, 1, 60)
    left = _int8(rng, rows, inputs)
    right = _int8(rng, inputs, outputs)
    requantise = draw_integer(rng, 0, 1)
    registers = {
        "EX_ROWS": rows,
        "EX_INPUT_CHANNELS": inputs,
        "EX_OUTPUT_CHANNELS": outputs,
        **_limits(rng),
    }
    drawn = Drawn(
        "OP_MAT_MUL", registers,
        {
            "EX_INPUT_ADDRESS": Operand(left.T, Atoms(), left),
            "EX_OPERAND_ADDRESS": Operand(right.T.reshape(1, outputs, inputs, 1, 1), Weights(),
                                          right),
            "EX_CHANNEL_ADDRESS": _records(rng, outputs, inputs, arch),
        },
        (outputs, rows, np.int8 if requantise else np.int32), Atoms(),
        {"requantise": requantise, "relu": draw_integer(rng, 0, 1)}, rows=True,
    )  # fmt: skip
    _partial(rng, drawn, lambda sums: sums.T)
    return _tables(rng, drawn, outputs) if requantise else drawn


def _pooling(rng: np.random.Generator, arch: Arch) -> Drawn:
    channels = draw_integer(rng, 1, 40)
    mode = int(rng.choice([MAX, AVERAGE, GLOBAL_AVERAGE]))
    registers = _window(rng, channels, channels, 1 if mode == AVERAGE else 2)
    scales = (0.05, 0.04)
    if mode == GLOBAL_AVERAGE:
        for side in ("HEIGHT", "WIDTH"):
            registers |= {
                f"EX_KERNEL_{side}": registers[f"EX_INPUT_{side}"],
                f"EX_OUTPUT_{side}": 1,
            }
            registers |= {f"EX_STRIDE_{side}": 1, f"EX_DILATION_{side}": 1}
        registers |= {"EX_PAD_TOP": 0, "EX_PAD_LEFT": 0}
    if arch.numerics == "fixed":
        registers |= scale_registers(arch, A=scales[0] / scales[1])
    elif mode == GLOBAL_AVERAGE:
        registers |= scale_registers(arch, A=scales[0] / (scales[1] * _plane(registers, "KERNEL")))
    else:
        registers |= scale_registers(arch, A=scales[0], Y=scales[1])
    registers |= {"EX_INPUT_ZERO_POINT": draw_integer(rng, -20, 20), **_limits(rng)}
    registers["EX_OFFSET"] = 128 if arch.numerics == "onnxruntime" and rng.integers(2) else 0
    data = Operand(_int8(rng, channels, _plane(registers, "INPUT")), Atoms("EX_INPUT_PLANE"))
    fields = {"mode": mode, "count_include_pad": draw_integer(rng, 0, 1)}
    result = channels, _plane(registers, "OUTPUT"), np.int8
    drawn = Drawn("OP_POOL", registers, {"EX_INPUT_ADDRESS": data}, result, fields=fields)
    return _tables(rng, drawn, channels)


def _resizing(rng: np.random.Generator, arch: Arch) -> Drawn:
    """A part of the rows of a resized tensor; places in any order, some beyond the ends."""
    channels = draw_integer(rng, 1, 40)
    first = draw_integer(rng, 0, 3)
    sizes = {
        f"EX_{side}_{name}": draw_integer(rng, 1, 9)
        for side in ("INPUT", "OUTPUT")
        for name in ("HEIGHT", "WIDTH")
    }
    registers = {"EX_INPUT_CHANNELS": channels, "EX_OUTPUT_CHANNELS": channels, **sizes}
    registers |= {"EX_FIRST_ROW": first, "EX_FIRST_INPUT_ROW": draw_integer(rng, 0, 2)}
    registers |= {f"EX_{side}_ZERO_POINT": draw_integer(rng, -9, 9) for side in ("INPUT", "OUTPUT")}
    scales = {"A": 0.05 / 0.04} if arch.numerics == "fixed" else {"A": 0.05, "Y": 0.04}
    registers |= scale_registers(arch, **scales)
    columns = registers["EX_OUTPUT_WIDTH"]
    places = rng.uniform(-1, 10, columns + first + registers["EX_OUTPUT_HEIGHT"]).astype("<f4")
    unread = slice(4 * columns, 4 * (columns + first))
    reads = {
        "EX_INPUT_ADDRESS": Operand(
            _int8(rng, channels, _plane(registers, "INPUT")), Atoms("EX_INPUT_PLANE")
        ),
        "EX_OPERAND_ADDRESS": Operand(places, unread=unread),
    }
    return Drawn("OP_RESIZE", registers, reads, (channels, _plane(registers, "OUTPUT"), np.int8))


def _scales(rng: np.random.Generator, arch: Arch) -> dict[str, int]:
    return Addition(
        scales=(0.05, 0.03, 0.07),
        zeros=(draw_integer(rng, -9, 9), draw_integer(rng, -9, 9), draw_integer(rng, -9, 9)),
    ).constants(arch)


def _alike(mnemonic: str, operands: int) -> Callable[[np.random.Generator, Arch], Drawn]:
    """Return a function that draws a command on dense bytes of any meaning."""

    def draw(rng: np.random.Generator, arch: Arch) -> Drawn:
        length = draw_integer(rng, 1, 700)
        names = ORDER[:operands]
        registers = {"EX_LENGTH": length, "EX_CLAMP_LOW": -100, "EX_CLAMP_HIGH": 90}
        registers |= {} if mnemonic.startswith("OP_C_M") else _scales(rng, arch)
        if operands == 1:
            scales = (
                {"A": 0.7, "B": 0.2}
                if arch.numerics == "fixed"
                else {"A": 0.05, "B": 0.2, "Y": 0.07}
            )
            registers |= scale_registers(arch, **scales)
        reads = {name: Operand(_int8(rng, length)) for name in names}
        drawn = Drawn(mnemonic, registers, reads, (1, length, np.int8), Dense())
        fields = {one.name for one in VARIANTS["v5"].by_mnemonic[mnemonic][0].fields}
        return _tables(rng, drawn, 1) if "look_up" in fields else drawn

    return draw


def _pair(mnemonic: str) -> Callable[[np.random.Generator, Arch], Drawn]:
    """Two tensors of which either may repeat."""

    def draw(rng: np.random.Generator, arch: Arch) -> Drawn:
        channels = draw_integer(rng, 1, 40)
        length = draw_integer(rng, 1, 50)
        registers = {
            "EX_OUTPUT_CHANNELS": channels,
            "EX_LENGTH": length,
            **_limits(rng),
            **_scales(rng, arch),
        }
        if mnemonic == "OP_E_MUL" or (
            mnemonic in ("OP_E_SUB", "OP_E_DIV") and arch.numerics == "onnxruntime"
        ):
            registers |= scale_registers(arch, A=0.021, B=0.03, Y=0.07)
        if mnemonic == "OP_E_DIV" and arch.numerics == "fixed":
            registers |= scale_registers(arch, A=0.05 / 0.03 / 0.07 / (1 << 20))
        fields = {"repeat_a": draw_integer(rng, 0, 3), "repeat_b": draw_integer(rng, 0, 3)}
        reads = {}
        for name, repeat in zip(ORDER, fields.values(), strict=False):
            shape = 1 if repeat & 2 else channels, 1 if repeat & 1 else length
            reads[name] = Operand(_int8(rng, *shape), Atoms())
        known = {one.name for one in VARIANTS["v5"].by_mnemonic[mnemonic][0].fields}
        fields |= {name: draw_integer(rng, 0, 1) for name in ("maximum",) if name in known}
        if mnemonic == "OP_E_SUB" and rng.integers(2):
            fields["squared"] = 1
            if arch.numerics == "fixed":
                fixed = numerics.compute_squared_difference_constants(0.05, 0.03, 0.07)
                registers |= {
                    f"EX_SCALE_{one}": getattr(fixed, f"multiplier_{one.lower()}") for one in "ABY"
                }
                registers |= {
                    f"EX_SHIFT_{one}": getattr(fixed, f"shift_{one.lower()}") for one in "ABY"
                }
        drawn = Drawn(mnemonic, registers, reads, (channels, length, np.int8), Atoms(), fields)
        return _tables(rng, drawn, channels) if "look_up" in known else drawn

    return draw


def _look_up(rng: np.random.Generator, arch: Arch) -> Drawn:
    channels = draw_integer(rng, 1, 1 if rng.integers(3) == 0 else 40)
    rows = draw_integer(rng, 1, 4) if channels == 1 else 1
    length = draw_integer(rng, 1, 60)
    registers = {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length}
    how = Dense() if channels == 1 else Atoms()
    reads = {
        "EX_INPUT_ADDRESS": Operand(_int8(rng, channels, rows * length), how),
        "EX_OPERAND_ADDRESS": Operand(_int8(rng, channels, 256)),
    }
    return Drawn("OP_LUT", registers, reads, (channels, rows * length, np.int8), how)


def _of_two(rng: np.random.Generator, arch: Arch) -> Drawn:
    """Draw a product of two tensors whose columns are channels and whose rows are positions."""
    rows = draw_integer(rng, 1, 20)
    inputs = draw_integer(rng, 1, 60)
    outputs = draw_integer(rng, 1, 60)
    transposed = draw_integer(rng, 0, 1)
    requantise = draw_integer(rng, 0, 1)
    left = _int8(rng, rows, inputs)
    right = _int8(rng, *((outputs, inputs) if transposed else (inputs, outputs)))
    registers = {
        "EX_ROWS": rows,
        "EX_INPUT_CHANNELS": inputs,
        "EX_OUTPUT_CHANNELS": outputs,
        **_limits(rng),
    }
    registers |= {
        f"EX_{name}_ZERO_POINT": draw_integer(rng, -20, 20) for name in ("INPUT", "OPERAND")
    }
    registers |= scale_registers(arch, A=0.01 / np.sqrt(inputs))
    drawn = Drawn(
        "OP_DYN_MAT_MUL", registers,
        {
            "EX_INPUT_ADDRESS": Operand(left.T, Atoms(), left),
            "EX_OPERAND_ADDRESS": Operand(right.T, Atoms(), right),
        },
        (outputs, rows, np.int8 if requantise else np.int32), Atoms(),
        {"requantise": requantise, "transposed": transposed}, rows=True,
    )  # fmt: skip
    return _tables(rng, drawn, outputs) if requantise else drawn


def _zeros(rng: np.random.Generator) -> dict[str, int]:
    return {f"EX_{side}_ZERO_POINT": draw_integer(rng, -9, 9) for side in ("INPUT", "OUTPUT")}


def _elements_of_rows(rng: np.random.Generator) -> tuple[dict[str, int], Operand]:
    """Draw a tensor (channels, positions) and its registers.

    In plain layout its rows are dense, or its channels are planes.
    """
    channels = draw_integer(rng, 1, 40)
    positions = draw_integer(rng, 1, 30)
    dense = bool(rng.integers(2))
    data = _int8(rng, channels, positions)
    shape = {"EX_ROWS": positions if dense else 1, "EX_LENGTH": 1 if dense else positions}
    operand = Operand(data, Atoms("EX_INPUT_PLANE"), data.T if dense else data)
    return {**shape, "EX_INPUT_CHANNELS": channels}, operand


def _reduction(rng: np.random.Generator, arch: Arch) -> Drawn:
    shape, operand = _elements_of_rows(rng)
    fixed = arch.numerics == "fixed"
    positions = operand.data.shape[1]
    scales = scale_registers(arch, A=0.3) if fixed else scale_registers(arch, A=0.3, Y=0.7)
    reads = {"EX_INPUT_ADDRESS": operand}
    result = (1, positions, np.int8)
    registers = {
        **shape,
        **_limits(rng),
        **scales,
        "EX_INPUT_ZERO_POINT": draw_integer(rng, -20, 20),
    }
    return Drawn("OP_REDUCE", registers, reads, result, Dense(), {"mode": draw_integer(rng, 0, 2)})


def _softmax(rng: np.random.Generator, arch: Arch) -> Drawn:
    shape, operand = _elements_of_rows(rng)
    fixed = arch.numerics == "fixed"
    table = np.exp(np.arange(-255, 1) / 20)
    registers = shape | ({"EX_SCALE_Y": 1 << 20} if fixed else scale_registers(arch, Y=256.0))
    numbers = (table * (2**31 - 1)).astype("<u4") if fixed else table.astype("<f4")
    reads = {"EX_INPUT_ADDRESS": operand, "EX_OPERAND_ADDRESS": Operand(numbers)}
    result = (*operand.data.shape, np.int8)
    registers["EX_OUTPUT_ZERO_POINT"] = -128
    return Drawn("OP_SOFTMAX", registers, reads, result, PLANES, rows=shape["EX_LENGTH"] == 1)


def _normalisation(rng: np.random.Generator, arch: Arch) -> Drawn:
    """Draw a normalisation, in which a row is a position for every EX_LENGTH.

    EX_LENGTH elements of a row share a gain and a bias.
    """
    rows = draw_integer(rng, 1, 20)
    channels = draw_integer(rng, 1, 12)
    length = int(rng.choice([1, 1, 2, 5, 9]))
    fixed = arch.numerics == "fixed"
    fields = {"centred": draw_integer(rng, 0, 1), "by_row": draw_integer(rng, 0, 1)}
    data = _int8(rng, rows, channels * length)
    pairs = rng.uniform(-2, 2, 2 * channels * (rows if fields["by_row"] else 1)) * np.sqrt(
        channels * length
    )
    numbers = (pairs * (1 << 15)).astype("<i4") if fixed else (30 * pairs).astype("<f4")
    registers = {"EX_ROWS": rows, "EX_INPUT_CHANNELS": channels, "EX_LENGTH": length, **_zeros(rng)}
    registers |= {"EX_SCALE_A": 5} if fixed else scale_registers(arch, A=0.5)
    reads = {
        "EX_INPUT_ADDRESS": Operand(data.T, Atoms(), data),
        "EX_OPERAND_ADDRESS": Operand(numbers),
    }
    result = channels * length, rows, np.int8
    return Drawn("OP_NORM", registers, reads, result, Atoms(), fields, rows=True)


DRAWS: Mapping[str, Callable[[np.random.Generator, Arch], Drawn]] = {
    "OP_CONV": lambda rng, arch: _convolution(rng, arch, grouped=False),
    "OP_GROUP_CONV": lambda rng, arch: _convolution(rng, arch, grouped=True),
    "OP_DEPTH_CONV": _depthwise,
    "OP_MAT_MUL": _matrices,
    "OP_POOL": _pooling,
    "OP_RESIZE": _resizing,
    **{name: _alike(name, 1) for name in ("OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS")},
    **{name: _alike(name, 2) for name in ("OP_E_ADD", "OP_C_MIN", "OP_C_MAX")},
    **{name: _pair(name) for name in ("OP_E_MUL", "OP_E_SUB", "OP_E_DIV", "OP_B_ADD", "OP_B_MIN")},
    "OP_LUT": _look_up,
    "OP_DYN_MAT_MUL": _of_two,
    "OP_REDUCE": _reduction,
    "OP_SOFTMAX": _softmax,
    "OP_NORM": _normalisation,
}
"""How a random command of each instruction is drawn whose operands are packed."""


# Bytes where they lie
# ------------------------------------------------------------------------------------------------


def _strided(rng: np.random.Generator) -> tuple[dict[str, int], dict[str, int]]:
    """A copy of four dimensions: no two results at one byte, and none on a source."""
    registers = {"EX_INPUT_ZERO_POINT": draw_integer(rng, -128, 127)}
    extent = 1
    for number in rng.permutation(4) + 1:
        count = draw_integer(rng, 1, 6)
        registers[f"EX_COUNT_{number}"] = count
        registers[f"EX_OUTPUT_STRIDE_{number}"] = extent + int(rng.choice([0, 0, 1, 8, 40]))
        registers[f"EX_INPUT_STRIDE_{number}"] = int(rng.choice([0, 1, 2, 8, 32, 100]))
        extent += (count - 1) * registers[f"EX_OUTPUT_STRIDE_{number}"]
    return registers, {"fill": draw_integer(rng, 0, 1)}


def bytes_where_they_lie(rng: np.random.Generator) -> tuple[Command, Bytes]:
    """A random OP_PERMUTE, whose operands are bytes, and a scratchpad of random ones for it."""
    sram = rng.integers(0, 256, 1 << 17, dtype=np.uint8)
    at = {
        "EX_INPUT_ADDRESS": draw_integer(rng, 0, 999),
        "EX_OUTPUT_ADDRESS": draw_integer(rng, 30000, 30999),
    }
    registers, fields = _strided(rng)
    return command_of(*VARIANTS["v5"].by_mnemonic["OP_PERMUTE"], registers | at, fields), sram
