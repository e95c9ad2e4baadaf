"""Data movement on the device equals ONNX Runtime to the bit in large and small scratchpads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from byoc.importing import import_model, package_of
from byoc.operators.onnx_view import BOUNDARIES
from experiments.running import inference
from isa.arch import Arch, PeArray
from tests.byoc.float_models import make_model
from tests.byoc.oracle_check import random_feeds
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare
from tests.e2e.movements import ARCHS, KINDS, reasons, run


@pytest.mark.parametrize("schedule", ["default", "seed"])
@pytest.mark.parametrize("kind", KINDS)
def test_movements_equal_onnx_runtime(kind: str, schedule: str) -> None:
    for seed, arch in enumerate(ARCHS):
        found = run(seed, kind, arch, schedule)
        assert found.mismatches == 0, (seed, arch)
        assert found.elements > 0
        assert reasons(found) == [] or arch == "small", (seed, arch)


def float_network() -> onnx.ModelProto:
    """Return a network with the movements of detectors and light classifiers.

    It has a split whose parts are concatenated again, a shuffle of channels, an enlarged plane
    beside a smaller one, channels that become rows and columns, and a final permutation of rows.
    """
    builder = ModelBuilder()
    rng = np.random.default_rng(0)

    def convolution(x: str, inputs: int, outputs: int) -> str:
        weights = rng.standard_normal((outputs, inputs, 3, 3)) * 0.3
        return builder.node("Conv", x, builder.constant(weights, "float32"), pads=[1, 1, 1, 1])

    def numbers(*values: int) -> str:
        return builder.constant(values, "int64")

    stem = convolution(builder.input("x", (1, 3, 12, 10)), 3, 8)
    builder.nodes.append(
        onnx.helper.make_node("Split", [stem, numbers(3, 5)], ["left", "right"], "split", axis=1)
    )
    joined = builder.node("Concat", "left", "right", convolution("right", 5, 4), axis=1)
    apart = builder.node("Reshape", joined, numbers(1, 3, 4, 12, 10))
    shuffled = builder.node(
        "Reshape", builder.node("Transpose", apart, perm=[0, 2, 1, 3, 4]), numbers(1, 12, 12, 10)
    )
    small = convolution(
        builder.node("MaxPool", shuffled, kernel_shape=[2, 2], strides=[2, 2]), 12, 8
    )
    large = builder.node(
        "Resize", small, "", builder.constant([1, 1, 2, 2], "float32"), mode="nearest"
    )
    wide = builder.node("DepthToSpace", convolution(small, 8, 8), blocksize=2)
    planes = convolution(builder.node("Concat", large, wide, stem, axis=1), 18, 6)
    rows = builder.node(
        "Reshape", builder.node("Transpose", planes, perm=[0, 2, 3, 1]), numbers(1, 120, 6)
    )
    weights = builder.constant(rng.standard_normal((6, 5)), "float32")
    builder.node("Concat", builder.node("MatMul", rows, weights), rows, axis=2, result="y")
    builder.output("y")
    return builder.model()


def test_a_network_of_movements_is_one_region() -> None:
    package = import_model(float_network(), "movements")
    feed = {"x": np.random.default_rng(1).standard_normal((1, 3, 12, 10)).astype(np.float32)}
    for arch in ARCHS.values():
        for schedule in ("default", "seed"):
            found = compare(package, feed, arch, schedule)
            regions = len(found.partition.regions)
            assert (found.mismatches, regions if arch.sram_bytes > 1024 else 1) == (0, 1)


def test_an_output_that_is_a_slice_counts_for_no_more() -> None:
    """Half of the channels leave the region; the other half needs not move at all."""
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (1, 4, 3, 8), "int8"), 0.5)
    whole = builder.quantize(builder.node("LeakyRelu", x), 0.5)
    bounds = [builder.constant([number], "int64") for number in (1, 3, 1)]
    builder.node("Slice", whole, *bounds, result="y")
    builder.output("y", "int8")
    feed = {"x": np.random.default_rng(1).integers(-128, 128, (1, 4, 3, 8), np.int8)}
    found = compare(package_of(builder.model(), "slice"), feed, ARCHS["ample"])
    assert found.mismatches == 0
    (report,) = found.network.reports.values()
    assert report.compulsory_bytes == 4 * 24 + 2 * 24


def scattering(
    rng: np.random.Generator, op_type: str, scales: tuple[float, ...], repeated: bool = False
) -> onnx.ModelProto:
    """Return a scatter into planes at known places, some of them negative.

    It is between quantised values of ``scales``; without scales it is in float.
    """
    builder = ModelBuilder()
    shape = (3, 6, 5)
    if op_type == "ScatterND":
        rows = np.sort(rng.choice(18, 4, replace=False))
        indices = np.stack([rows // 6 - 3 * (rows % 2), rows % 6], axis=-1)
        updates = (4, 5)
    else:
        indices = (
            np.stack([rng.permutation(6)[:3] for _ in range(10)])
            .reshape(2, 5, 3)
            .transpose(0, 2, 1)
            - 6
        )
        updates = (2, 3, 5)
    if repeated:
        indices[:, 1] = indices[:, 0]
    kind = "int8" if scales else "float32"
    names = [builder.input("x", shape, kind), builder.input("u", updates, kind)]
    if scales:
        names = [
            builder.dequantize(name, scale, 3) for name, scale in zip(names, scales, strict=False)
        ]
    axis = {} if op_type == "ScatterND" else {"axis": -2}
    made = builder.node(
        op_type, names[0], builder.constant(indices, "int64"), names[1], name="op", **axis
    )
    if scales:
        builder.quantize(made, scales[2], 7, result="y")
    else:
        builder.node("Relu", made, result="y")
    builder.output("y", kind)
    return builder.model()


@pytest.mark.parametrize("scales", [(), (0.05, 0.05, 0.05), (0.05, 0.03, 0.07)])
@pytest.mark.parametrize("op_type", ["ScatterND", "ScatterElements"])
def test_scatterings_to_known_places_are_movement(op_type: str, scales: tuple[float, ...]) -> None:
    for seed in range(3):
        model = scattering(np.random.default_rng(seed), op_type, scales)
        feeds = random_feeds(model, seed)
        package = import_model(model, "scattering", calibration=None if scales else [feeds])
        for arch, schedule in ((ARCHS["ample"], "default"), (ARCHS["small"], "seed")):
            found = compare(package, feeds, arch, schedule)
            assert found.mismatches == 0
            assert found.elements > 0
            assert {
                place.op_type for place in found.partition.placement if place.on == "cpu"
            } <= BOUNDARIES


def test_scatterings_twice_to_one_place_stay_as_they_are() -> None:
    model = scattering(
        np.random.default_rng(0), "ScatterElements", (0.05, 0.05, 0.05), repeated=True
    )
    placement = compare(
        import_model(model, "scattering"), random_feeds(model, 1), ARCHS["ample"]
    ).partition.placement
    assert [place.on for place in placement if place.op_type == "ScatterElements"] == ["cpu"]


def test_rows_of_what_is_planes_of_another_shape_to_others(tmp_path: Path) -> None:
    """A tensor pooled along its channels is multiplied by its own planes.

    The pool reads it as one plane of (channels, pixels).
    """
    shapes = {
        "plane": np.array([1, 1, 48, 1600], np.int64),
        "channels": np.array([1, 48, 40, 40], np.int64),
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "plane"], ["a"]),
        helper.make_node("AveragePool", ["a"], ["p"], kernel_shape=[5, 1], pads=[2, 0, 2, 0]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("Reshape", ["s", "channels"], ["b"]),
        helper.make_node("Mul", ["r", "b"], ["u"]),
        helper.make_node("MaxPool", ["u"], ["y"], kernel_shape=[3, 3], strides=[2, 2]),
    ]
    onnx.save(make_model(nodes, [1, 48, 40, 40], shapes), tmp_path / "model.onnx")
    report = inference.run(tmp_path / "model.onnx", isa="v4", settings=["sram_bytes=32768"]).report
    assert report.check.mismatches == 0
    assert report.totals.cycles >= report.totals.lower_bound_cycles


@pytest.mark.parametrize("sram_bytes", [1 << 13, 1 << 16])
@pytest.mark.parametrize(("channels", "blocksize"), [(9, 3), (8, 2), (27, 3)])
def test_channels_of_padded_atoms_become_space(
    channels: int, blocksize: int, sram_bytes: int
) -> None:
    """Copies load 9 channels from atoms of 16, and 27 from two, with the padding.

    8 channels of 16 have as much padding as data.
    """
    builder = ModelBuilder()
    random = np.random.default_rng(channels)
    x = builder.dequantize(builder.input("x", (1, 8, 13, 17), "int8"), 0.05, 3)
    weights = random.integers(-127, 128, (channels, 8, 1, 1)).astype(np.int8)
    convolved = builder.quantize(builder.node("Conv", x, builder.weights(weights, 0.01)), 0.1)
    result = builder.node(
        "DepthToSpace", builder.dequantize(convolved, 0.1), blocksize=blocksize, mode="CRD"
    )
    builder.output(builder.quantize(result, 0.1), "int8")
    feed = {"x": random.integers(-128, 128, (1, 8, 13, 17)).astype(np.int8)}
    arch = Arch(isa="v5", pe=PeArray(ic=16, oc=16), sram_bytes=sram_bytes)
    assert compare(import_model(builder.model()), feed, arch).mismatches == 0
