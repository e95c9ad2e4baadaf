"""Functions of one tensor become last steps of its producer: same bits, fewer commands.

This holds for every instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest

from byoc.importing import import_model
from isa.arch import Arch
from isa.instruction import Unit
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import Comparison, compare

V4 = Arch(isa="v4")
SMALL = Arch(isa="v4", sram_bytes=8192, sram_banks=4)
SHAPE = (1, 8, 9, 10)
Draw = Callable[["Network", str], str]


class Network(ModelBuilder):
    """Layers that are quantised behind every one; what a layer gets is dequantised."""

    dtype = "int8"
    rng = np.random.default_rng(4)

    def quantised(self, x: str, scale: float = 0.05, zero_point: int = 3, result: str = "") -> str:
        zero_point += 128 if self.dtype == "uint8" else 0
        made = self.quantize(x, scale, zero_point, self.dtype, result=result)
        return self.dequantize(made, scale, zero_point, self.dtype)

    def filters(self, *shape: int) -> str:
        drawn = self.rng.integers(-127, 128, shape).astype(np.int8)
        return self.weights(drawn, 0.01)

    def conv(self, x: str, outputs: int, inputs: int, kernel: int = 3, **attributes: object) -> str:
        pads = [kernel // 2] * 4
        return self.node(
            "Conv", x, self.filters(outputs, inputs, kernel, kernel), pads=pads, **attributes
        )

    def silu(self, x: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))


MAKERS: dict[str, Draw] = {
    "convolution": lambda b, x: b.conv(x, 12, 8),
    "relu": lambda b, x: b.node("Relu", b.conv(x, 12, 8)),
    "depthwise": lambda b, x: b.conv(x, 8, 1, group=8),
    "grouped": lambda b, x: b.conv(x, 8, 4, group=2, strides=[2, 2]),
    "product": lambda b, x: b.node("MatMul", x, b.filters(10, 7)),
    "average": lambda b, x: b.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2]),
    "global": lambda b, x: b.node("GlobalAveragePool", x),
    "addition": lambda b, x: b.node("Add", x, b.quantised(b.node("Relu", x), 0.04, -128)),
    "table": lambda b, x: b.node("Tanh", x),
    "activation": lambda b, x: b.node("Abs", x),
}  # fmt: skip


def run(
    draw: Draw,
    arch: Arch = V4,
    schedule: str = "default",
    dtype: str = "int8",
    shape: tuple[int, ...] = SHAPE,
    **more: Any,
) -> Comparison:
    """``draw`` between a quantised input and a quantised result ``y``."""
    builder = Network()
    builder.dtype = dtype
    builder.rng = np.random.default_rng(5)
    x = builder.dequantize(
        builder.input("x", shape, dtype), 0.05, 128 if dtype == "uint8" else 0, dtype
    )
    builder.quantised(draw(builder, x), 0.03, -20, result="y")
    builder.output("y", dtype)
    kind = onnx.helper.tensor_dtype_to_np_dtype(builder.inputs[0].type.tensor_type.elem_type)
    data = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8).view(kind)
    return compare(import_model(builder.model(), "fused"), {"x": data}, arch, schedule, **more)


def looks(found: Comparison) -> list[int]:
    """The field ``look_up`` of every computing command; -1 of an OP_LUT."""
    commands = [
        command for program in found.network.programs.values() for command in program.commands
    ]
    kinds = [
        -1 if c.instruction.mnemonic == "OP_LUT" else c.fields.get("look_up", 0)
        for c in commands
        if c.instruction.unit is Unit.EX
    ]
    return sorted(set(kinds))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", MAKERS)
def test_what_makes_a_tensor_looks_it_up_last(name: str, dtype: str) -> None:
    def draw(b: Network, x: str) -> str:
        return b.silu(b.quantised(MAKERS[name](b, x)))

    for arch, schedule in ((V4, "default"), (SMALL, "default"), (SMALL, "seed")):
        found = run(draw, arch, schedule, dtype)
        assert found.mismatches == 0
        unfused = schedule == "seed" or name in ("table", "activation")
        assert (-1 in looks(found)) == unfused
        assert (1 in looks(found)) == (not unfused)


def test_a_chain_of_functions_is_one_table() -> None:
    def draw(b: Network, x: str) -> str:
        first = b.quantised(b.node("Tanh", b.quantised(b.conv(x, 12, 8))), 0.01)
        return b.silu(b.quantised(b.node("LeakyRelu", first, alpha=0.3), 0.02, -7))

    found = run(draw)
    assert found.mismatches == 0
    assert looks(found) == [1]
    assert found.cycles < run(draw, schedule="seed").cycles


def test_two_readers_and_outputs_need_what_is_not_looked_up() -> None:
    def two(b: Network, x: str) -> str:
        made = b.quantised(b.conv(x, 8, 8))
        return b.node(
            "Add",
            b.quantised(b.silu(made)),
            b.quantised(b.node("MaxPool", made, kernel_shape=[1, 1])),
        )

    def output(b: Network, x: str) -> str:
        made = b.quantised(b.conv(x, 8, 8), result="z")
        b.output("z", "int8")
        return b.silu(made)

    for draw in (two, output):
        found = run(draw)
        assert found.mismatches == 0
        assert looks(found)[0] == -1


def test_every_operand_of_a_concatenation_is_looked_up_into_its_place() -> None:
    """A change of scale, and a function before it, at both ends of one result.

    Images of a batch one by one.
    """

    def draw(b: Network, x: str) -> str:
        first = b.quantised(b.conv(x, 12, 8), 0.04)
        second = b.quantised(b.silu(b.quantised(b.conv(x, 4, 8))), 0.02)
        return b.node("Concat", first, second, axis=1)

    assert looks(run(draw)) == [1]
    assert run(draw).mismatches == run(draw, SMALL).mismatches == 0
    batch = run(lambda b, x: b.silu(b.quantised(b.conv(x, 12, 8))), shape=(3, 8, 5, 6))
    assert (batch.mismatches, -1 in looks(batch)) == (0, False)


@pytest.mark.parametrize("numerics", ["onnxruntime", "fixed"])
def test_one_filter_or_group_at_a_time(numerics: str) -> None:
    arch = Arch(isa="v4", numerics=numerics)
    depth = run(
        lambda b, x: b.silu(b.quantised(MAKERS["depthwise"](b, x))), arch, emulate_depthwise=True
    )
    group = run(
        lambda b, x: b.silu(b.quantised(MAKERS["grouped"](b, x))), arch, grouped="per-group"
    )
    assert (-1 in looks(depth), -1 in looks(group)) == (False, False)
    if numerics == "onnxruntime":
        assert depth.mismatches == group.mismatches == 0


def test_no_room_for_the_table_leaves_it_apart() -> None:
    """A scratchpad that the product alone fills to the last bytes."""
    draw: Draw = lambda b, x: b.silu(b.quantised(b.node("MatMul", x, b.filters(600, 4))))  # noqa: E731
    found = run(draw, Arch(isa="v4", sram_bytes=1280, sram_banks=1), shape=(3, 600))
    assert found.mismatches == 0
    assert -1 in looks(found)


def test_variants_without_the_field_leave_it_to_others() -> None:
    found = run(
        lambda b, x: b.node("LeakyRelu", b.quantised(b.conv(x, 8, 8)), alpha=0.3), Arch(isa="v3")
    )
    assert found.mismatches == 0
    assert looks(found) == [0]


@pytest.mark.parametrize("name", ["convolution", "depthwise", "grouped", "average"])
def test_a_slope_a_channel_is_looked_up_last(name: str) -> None:
    """In a table a channel, in tiles of channels and rows.

    Also behind a function of all channels.
    """
    channels = 12 if name == "convolution" else 8

    def draw(b: Network, x: str, before: bool) -> str:
        made = b.quantised(MAKERS[name](b, x))
        made = b.quantised(b.node("Tanh", made), 0.01) if before else made
        return b.node("PRelu", made, b.constant(b.rng.uniform(-1, 1, (channels, 1, 1)), "float32"))

    for before in (False, True):
        for arch in (V4, SMALL):
            found = run(partial(draw, before=before), arch)
            assert (found.mismatches, looks(found)) == (0, [2])
    assert run(lambda b, x: draw(b, x, False), SMALL, "seed").mismatches == 0
    batch = run(lambda b, x: draw(b, x, False), shape=(2, *SHAPE[1:]))
    assert batch.mismatches == 0


@pytest.mark.parametrize(
    ("name", "shape", "slopes"),
    [("columns", (1, 6, 7), (6, 1)), ("matrices", (1, 3, 4, 4), (3, 1, 1))],
)
def test_channels_that_are_as_many_as_those_of_the_maker_but_others_stay_apart(
    name: str, shape: tuple[int, ...], slopes: tuple[int, ...]
) -> None:
    """A slope per row is not fused into a producer that has as many channels.

    Columns of a product are not the rows that a slope is for, nor are rows of each of several
    products.
    """

    def draw(b: Network, x: str) -> str:
        if name == "columns":
            made = b.node("MatMul", x, b.filters(7, 6))
        else:
            made = b.node(
                "MatMul",
                x,
                b.quantised(b.node("Relu", b.node("MatMul", x, b.filters(4, 3))), 0.04, 0),
            )
        return b.node(
            "PRelu", b.quantised(made), b.constant(b.rng.uniform(-1, 1, slopes), "float32")
        )

    for arch, schedule in ((V4, "default"), (SMALL, "default"), (SMALL, "seed")):
        assert run(draw, arch, schedule, shape=shape).mismatches == 0
