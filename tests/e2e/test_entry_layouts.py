"""Images of few channels at the entry of a region with banked memory keep narrow atoms.

A change of scale does not widen them.
"""

from __future__ import annotations

import numpy as np
import pytest

from byoc.compiler import compile
from byoc.importing import import_model
from byoc.package.package import Package
from dla_sim.device import Device
from dla_sim.presets import load_hardware
from isa.arch import Arch, PeArray
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

SIZE = 32
CHANNELS = 3


def rescaled_image(*, output: bool = False, pooled: bool = False) -> Package:
    """Return an image, a change of its scale, and a convolution of the result.

    ``output``: the rescaled image is an output of the model; ``pooled``: a pool reads it too.
    """
    builder = ModelBuilder()
    image = builder.dequantize(builder.input("x", (1, CHANNELS, SIZE, SIZE), "int8"), 0.05, 3)
    rescaled = builder.quantize(image, 0.051, -2)
    real = builder.dequantize(rescaled, 0.051, -2)
    weights = np.random.default_rng(0).integers(-127, 128, (8, CHANNELS, 3, 3)).astype(np.int8)
    results = [
        builder.node(
            "Conv", real, builder.weights(weights, 0.01), strides=[2, 2], pads=[0, 0, 1, 1]
        )
    ]
    results += [builder.node("MaxPool", real, kernel_shape=[2, 2])] if pooled else []
    for result in results:
        builder.output(builder.quantize(result, 0.1), "int8")
    if output:
        builder.output(rescaled, "int8")
    return import_model(builder.model())


def machine(isa: str) -> Arch:
    return Arch(isa=isa, pe=PeArray(ic=16, oc=16), sram_bytes=1 << 16)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("output", [False, True])
def test_a_rescaled_image_is_exact(output: bool, pooled: bool) -> None:
    feed = {
        "x": np.random.default_rng(1).integers(-128, 128, (1, CHANNELS, SIZE, SIZE)).astype(np.int8)
    }
    assert (
        compare(rescaled_image(output=output, pooled=pooled), feed, machine("v5")).mismatches == 0
    )


def test_a_rescaled_image_loads_atoms_of_four_bytes() -> None:
    """Atoms of 16 bytes would load more than five times the bytes of the image."""
    network = compile(rescaled_image(), machine("v5"))
    device = Device(machine("v5"), load_hardware().timing)
    traces = [
        device.run(program, {}, timing_only=True).trace for program in network.programs.values()
    ]
    loaded = sum(
        layer.dram_read_bytes for trace in traces for layer in trace.layers if layer.kind == "ACT"
    )
    assert CHANNELS * SIZE * SIZE <= loaded < 2 * CHANNELS * SIZE * SIZE


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("kib", [16, 64])
def test_a_result_of_few_channels_is_stored_in_narrow_atoms(channels: int, kib: int) -> None:
    """The result is exact, and stored in atoms of 4 or 8 bytes.

    Atoms of 16 bytes double the bytes at least.
    """
    builder = ModelBuilder()
    size = 48
    random = np.random.default_rng(channels)
    real = builder.dequantize(builder.input("x", (1, 16, size, size), "int8"), 0.05, 3)
    weights = random.integers(-127, 128, (channels, 16, 3, 3)).astype(np.int8)
    result = builder.node("Conv", real, builder.weights(weights, 0.01), pads=[1, 1, 1, 1])
    builder.output(builder.quantize(result, 0.1), "int8")
    arch = Arch(isa="v5", pe=PeArray(ic=16, oc=16), sram_bytes=kib << 10)
    feed = {"x": random.integers(-128, 128, (1, 16, size, size)).astype(np.int8)}
    found = compare(import_model(builder.model()), feed, arch)
    assert found.mismatches == 0
    (program,) = found.network.programs.values()
    trace = Device(arch, load_hardware().timing).run(program, {}, timing_only=True).trace
    assert trace.dram_write_bytes == (4 if channels < 8 else 8) * size * size


@pytest.mark.parametrize(("channels", "kernel"), [(8, (5, 3)), (24, (6, 7)), (16, (1, 1))])
def test_a_product_reads_flattened_channels_where_they_are(
    channels: int, kernel: tuple[int, int]
) -> None:
    """A plane of channels is flattened and multiplied by weights without copying bytes.

    The result is exact.
    """
    builder = ModelBuilder()
    random = np.random.default_rng(channels)
    real = builder.dequantize(builder.input("x", (1, channels, *kernel), "int8"), 0.05, 3)
    first = builder.weights(
        random.integers(-127, 128, (channels, channels, 1, 1)).astype(np.int8), 0.01
    )
    plane = builder.dequantize(builder.quantize(builder.node("Conv", real, first), 0.1), 0.1)
    weights = random.integers(-127, 128, (channels * kernel[0] * kernel[1], 10)).astype(np.int8)
    flat = builder.node("Flatten", plane)
    builder.output(
        builder.quantize(builder.node("MatMul", flat, builder.weights(weights, 0.01)), 0.1), "int8"
    )
    feed = {"x": random.integers(-128, 128, (1, channels, *kernel)).astype(np.int8)}
    found = compare(import_model(builder.model()), feed, machine("v5"))
    assert found.mismatches == 0
    (program,) = found.network.programs.values()
    assert "OP_PERMUTE" not in {command.instruction.mnemonic for command in program.commands}


def test_an_element_wise_result_of_few_channels_keeps_the_atoms_of_its_operands() -> None:
    """Commands that take elements one by one count atoms of the machine's size."""
    builder = ModelBuilder()
    random = np.random.default_rng(0)
    shape = (1, CHANNELS, SIZE, SIZE)
    inputs = [
        builder.dequantize(builder.input(name, shape, "int8"), 0.05, 3) for name in ("a", "b")
    ]
    halves = [
        builder.dequantize(builder.quantize(builder.node("Relu", one), 0.04), 0.04)
        for one in inputs
    ]
    builder.output(builder.quantize(builder.node("Mul", *halves), 0.1), "int8")
    feed = {name: random.integers(-128, 128, shape).astype(np.int8) for name in ("a", "b")}
    assert compare(import_model(builder.model()), feed, machine("v5")).mismatches == 0
