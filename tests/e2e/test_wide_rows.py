"""Windows over rows wider than the scratchpad run on v5 in parts of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from byoc.compiler import partition_package
from byoc.importing import import_model
from byoc.package.package import Package
from isa.arch import Arch, PeArray
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

CHANNELS = 24
WIDTH = 90
SRAM_BYTES = 2048

Window = dict[str, Any]

CONVOLUTIONS: dict[str, Window] = {
    "one column wide": {"kernel": (3, 1), "pads": (1, 0, 1, 0)},
    "depthwise": {"kernel": (3, 1), "pads": (1, 0, 1, 0), "group": CHANNELS},
    "grouped": {"kernel": (2, 1), "pads": (0, 0, 1, 0), "group": 3},
    "three columns wide": {"kernel": (3, 3), "pads": (1, 1, 1, 1)},
    "strides and dilations": {
        "kernel": (2, 3), "pads": (0, 3, 1, 2), "strides": (1, 2), "dilations": (1, 2)
    },
}  # fmt: skip
POOLS: dict[str, Window] = {
    "MaxPool": {"kernel": (3, 1), "pads": (1, 0, 1, 0), "strides": (2, 1)},
    "AveragePool": {"kernel": (2, 1), "pads": (0, 0, 1, 0), "count_include_pad": 1},
}


def convolve(window: Window, *, twice: bool = False) -> Package:
    """Return a convolution of an image with wide rows, and another one with ``twice``."""
    builder = ModelBuilder()
    random = np.random.default_rng(len(window))
    real = builder.dequantize(builder.input("x", (1, CHANNELS, 4, WIDTH), "int8"), 0.05, 3)
    kernel = window["kernel"]
    others = {name: value for name, value in window.items() if name != "kernel"}
    for number in range(1 + twice):
        shape = (CHANNELS, CHANNELS // others.get("group", 1), *kernel)
        weights = builder.weights(random.integers(-127, 128, shape).astype(np.int8), 0.01)
        result = builder.quantize(
            builder.node("Conv", real, weights, **others), 0.5, 2, result=f"y{number}"
        )
        builder.output(result, "int8")
        real = builder.dequantize(result, 0.5, 2)
    return import_model(builder.model())


def pool(kind: str, columns: int) -> Package:
    """Return a pool of an image with wide rows; its window is ``columns`` wide."""
    builder = ModelBuilder()
    real = builder.dequantize(builder.input("x", (1, CHANNELS, 4, WIDTH), "int8"), 0.05, 3)
    others = {("kernel_shape" if key == "kernel" else key): one for key, one in POOLS[kind].items()}
    others["kernel_shape"] = others["kernel_shape"][0], columns
    builder.output(builder.quantize(builder.node(kind, real, **others), 0.05, 3), "int8")
    return import_model(builder.model())


def machine(sram_bytes: int = SRAM_BYTES) -> Arch:
    return Arch(isa="v5", pe=PeArray(ic=8, oc=8), sram_bytes=sram_bytes)


def check(package: Package) -> None:
    """Run a package whose operators are cut into parts, and compare its tensors."""
    (region,) = partition_package(package, machine()).regions
    assert {place.on for place in partition_package(package, machine()).placement} == {"dla"}
    assert any(operation.traits.moves for operation in region.operations)
    feed = np.random.default_rng(1).integers(-128, 128, (1, CHANNELS, 4, WIDTH)).astype(np.int8)
    found = compare(package, {"x": feed}, machine())
    assert found.elements
    assert found.mismatches == 0


@pytest.mark.parametrize("window", CONVOLUTIONS)
def test_a_convolution_of_wide_rows(window: str) -> None:
    check(convolve(CONVOLUTIONS[window]))


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("kind", POOLS)
def test_a_pool_of_wide_rows(kind: str, columns: int) -> None:
    check(pool(kind, columns))


def test_two_convolutions_of_wide_rows() -> None:
    """The parts of both have tensors of their own."""
    check(convolve(CONVOLUTIONS["one column wide"], twice=True))


def test_parts_of_unequal_widths_have_weights_of_their_own() -> None:
    """Parts of 19 and 20 columns map weights to different lanes, so their weights differ."""
    builder = ModelBuilder()
    random = np.random.default_rng(79)
    real = builder.dequantize(builder.input("x", (1, 15, 2, 79), "int8"), 0.05, 3)
    weights = builder.weights(random.integers(-127, 128, (15, 15, 3, 1)).astype(np.int8), 0.01)
    result = builder.node("Conv", real, weights, pads=[1, 0, 1, 0])
    builder.output(builder.quantize(result, 0.9), "int8")
    arch = Arch(isa="v5", pe=PeArray(ic=8, oc=32), sram_bytes=512, sram_banks=4)
    feed = {"x": random.integers(-128, 128, (1, 15, 2, 79)).astype(np.int8)}
    found = compare(import_model(builder.model()), feed, arch)
    assert {place.on for place in found.partition.placement} == {"dla"}
    assert found.mismatches == 0


def test_a_convolution_that_fits_is_not_cut() -> None:
    package = convolve(CONVOLUTIONS["one column wide"])
    (region,) = partition_package(package, machine(1 << 16)).regions
    assert len(region.operations) == 1
