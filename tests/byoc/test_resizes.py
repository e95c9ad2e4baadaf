"""Interpolation of float models as matrices or grouped convolutions, of quantised ones exactly.

Quantised interpolation uses an instruction.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from byoc.compiler import compile
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.host.runtime import Runtime
from byoc.importing import import_model
from byoc.operators.verify import verify_graph
from byoc.options import target_of
from byoc.partitioning.partition import partition
from byoc.runtimes.session import OnnxRuntimeSession
from dla_sim.device import Device
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare
from tests.rotation import rotate_parts

CASES: dict[str, tuple[tuple[int, int], dict[str, Any], bool]] = {
    "twice": ((14, 18), {}, True),
    "twice, from the corner": ((14, 18), {"coordinate_transformation_mode": "asymmetric"}, True),
    "twice, corners kept": ((14, 18), {"coordinate_transformation_mode": "align_corners"}, False),
    "three times": ((21, 27), {"coordinate_transformation_mode": "pytorch_half_pixel"}, True),
    "larger": ((11, 13), {"coordinate_transformation_mode": "half_pixel_symmetric"}, False),
    "smaller": ((5, 4), {"antialias": 1}, False),
    "cubic": ((14, 18), {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}, False),
    "wider": ((7, 18), {}, False),
    "cropped": ((6, 9), {"coordinate_transformation_mode": "tf_crop_and_resize"}, False),
    "cropped, something beyond": (
        (6, 9),
        {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 2.5},
        False,
    ),
    "two axes": ((14, 18), {"axes": [2, 3]}, True),
}
REGION = [0, 0.2, 0, 0.5, 1, 0.9, 1, 1.3]


@pytest.mark.parametrize("case", CASES)
def test_interpolation_runs_on_integers(case: str) -> None:
    size, how, convolved = CASES[case]
    builder = ModelBuilder()
    x = builder.node("Relu", builder.input("x", (1, 5, 7, 9)))
    sizes = builder.constant(size if "axes" in how else [1, 5, *size], "int64")
    region = builder.constant(REGION, "float32") if "tf_crop" in str(how) else ""
    resized = builder.node(
        "Resize", x, region, "", sizes, name="resize", **{"mode": "linear", **how}
    )
    builder.node("Relu", resized, result="y")
    builder.output("y")
    model = builder.model()
    feed = {"x": np.random.default_rng(0).standard_normal((1, 5, 7, 9)).astype(np.float32)}
    prepared = prepare(model)
    found, expected = (OnnxRuntimeSession(one).run(["y"], feed)["y"] for one in (prepared, model))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [node.op_type for node in prepared.graph.node].count("Conv") == convolved
    for sram in (4096, 65536):
        run = compare(import_model(model, "resize"), feed, Arch(isa="v4", sram_bytes=sram))
        assert (run.mismatches, len(run.partition.regions)) == (0, 1)


def test_what_is_no_matrix_is_left_alone() -> None:
    builder = ModelBuilder()
    sizes = builder.constant([1, 2, 5, 5, 5], "int64")
    builder.node(
        "Resize", builder.input("x", (1, 2, 7, 9, 3)), "", "", sizes, result="y", mode="linear"
    )
    builder.output("y")
    assert [node.op_type for node in prepare(builder.model()).graph.node] == ["Resize"]


MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "tf_crop_and_resize",
)
WHERE = ("sizes", "scales", "axes")
Numbers = tuple[float, int]


def quantised(
    shape: tuple[int, ...], size: tuple[int, int], place: str, where: str = "sizes", *,
    dtype: str = "int8", before: Numbers = (0.05, 3), after: Numbers = (0.05, 3), **how: Any,
) -> ModelProto:  # fmt: skip
    """A linear Resize, node ``resize``, between quantised values.

    To ``size``, by scales of about that.
    """
    builder = ModelBuilder()
    axes = [2, 3] if where == "axes" else []
    x = builder.dequantize(builder.input("x", shape, dtype), *before, dtype)
    scales = [(new + 0.4) / old for old, new in zip(shape[2:], size, strict=True)]
    parameters = ["", builder.constant([*([] if axes else shape[:2]), *size], "int64")]
    if where == "scales":
        parameters = [builder.constant([1, 1, *scales], "float32")]
    region = [0.1, 0.25, 0.9, 0.6] if axes else [0, 0, 0.1, 0.25, 1, 1, 0.9, 0.6]
    cropped = builder.constant(region, "float32") if place == MODES[-1] else ""
    how = {
        "mode": "linear",
        "coordinate_transformation_mode": place,
        **({"axes": axes} if axes else {}),
        **how,
    }
    builder.quantize(
        builder.node("Resize", x, cropped, *parameters, name="resize", **how),
        *after,
        dtype,
        result="y",
    )
    builder.output("y", dtype)
    return builder.model()


@pytest.mark.parametrize(
    ("mode", "where", "dtype"), rotate_parts([*product(MODES, WHERE, ["int8", "uint8"])], 5)
)
def test_between_quantised_values_it_is_exact(mode: str, where: str, dtype: str) -> None:
    """Larger and smaller, by factors that are no whole numbers, ties included."""
    cases: list[tuple[tuple[int, ...], tuple[int, int], Numbers]] = [
        ((2, 5, 7, 9), (15, 13), (0.05, 3)), ((1, 3, 12, 10), (5, 7), (0.1, 9)),
        ((1, 40, 3, 4), (6, 8), (0.03, 0)),
        ((1, 2, 5, 1), (9, 1), (0.05, 3)), ((1, 1, 1, 6), (4, 6), (0.025, 127)),
    ]  # fmt: skip
    for shape, size, after in cases:
        package = import_model(quantised(shape, size, mode, where, dtype=dtype, after=after), mode)
        assert package.fidelity is not None
        assert package.fidelity.integer == 0.0
        data = np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8).view(dtype)
        for isa, sram, schedule in (
            ("v4", 4096, "default"), ("v4", 1 << 19, "default"), ("v4", 4096, "seed"),
            ("v5", 8192, "default"), ("v5", 1 << 19, "default"), ("v5", 8192, "seed"),
        ):  # fmt: skip
            found = compare(
                package, {"x": data}, Arch(isa=isa, sram_bytes=sram, sram_banks=2), schedule
            )
            assert (found.mismatches, [place.on for place in found.partition.placement]) == (
                0,
                ["dla"],
            )


def test_planes_larger_than_the_scratchpad_are_cut_into_bands() -> None:
    shape = (1, 3, 60, 70)
    size = (150, 133)
    package = import_model(quantised(shape, size, "half_pixel", after=(0.06, -9)), "bands")
    data = {"x": np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)}
    for isa, schedule in product(("v4", "v5"), ("default", "seed")):
        found = compare(package, data, Arch(isa=isa, sram_bytes=8192), schedule)
        assert (found.mismatches, len(found.partition.regions)) == (0, 1)


def test_with_integers_only_it_is_within_a_step() -> None:
    package = import_model(
        quantised((1, 4, 7, 9), (15, 13), "align_corners", after=(0.07, 1)), "fixed"
    )
    data = {"x": np.random.default_rng(3).integers(-128, 128, (1, 4, 7, 9)).astype(np.int8)}
    results = []
    for isa, numerics in product(("v4", "v5"), ("onnxruntime", "fixed")):
        arch = Arch.model_validate({"isa": isa, "numerics": numerics})
        run = Runtime(compile(package, arch), Device(arch, Timing())).run(data)
        results.append(run.outputs["y"].astype(int))
    assert 0 < np.abs(results[0] - results[1]).max() <= 1
    assert np.array_equal(results[:2], results[2:])


@pytest.mark.parametrize(
    "how", [{"antialias": 1}, {"mode": "cubic"}, {"keep_aspect_ratio_policy": "not_larger"}]
)
def test_what_no_rule_covers_stays_on_the_cpu(how: dict[str, Any]) -> None:
    package = import_model(quantised((1, 4, 7, 9), (15, 13), "half_pixel", "axes", **how), "other")
    assert (
        "other than linearly"
        in {node.op_type: node.remark for node in package.graph.nodes}["Resize"]
    )


def test_older_machines_and_regions_beyond_the_plane_leave_it_to_the_cpu() -> None:
    package = import_model(quantised((1, 4, 7, 9), (15, 13), "asymmetric"), "old")
    (place,) = partition(package.graph, target_of(Arch(isa="v3"))).placement
    assert "OP_RESIZE is not in ISA v3" in str(place.reason)
    model = quantised((1, 4, 7, 9), (15, 13), "tf_crop_and_resize", extrapolation_value=1.0)
    region = next(tensor for tensor in model.graph.initializer if tensor.dims == [8])
    region.CopyFrom(
        numpy_helper.from_array(np.array([0, 0, 0, 0, 1, 1, 1, 1.5], np.float32), region.name)
    )
    assert (
        "reaches beyond"
        in {n.op_type: n.remark for n in import_model(model, "far").graph.nodes}["Resize"]
    )


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("mode", MODES[:-1])
def test_the_nearest_of_any_factor_is_movement(mode: str, rounding: str) -> None:
    for size in ((15, 13), (3, 20)):
        how = {"mode": "nearest", "nearest_mode": rounding}
        package = import_model(
            quantised((2, 3, 7, 9), size, mode, after=(0.07, 1), **how), "nearest"
        )
        data = np.random.default_rng(3).integers(-128, 128, (2, 3, 7, 9)).astype(np.int8)
        found = compare(package, {"x": data}, Arch(isa="v4", sram_bytes=8192))
        assert (found.mismatches, [place.on for place in found.partition.placement]) == (0, ["dla"])


def test_a_damaged_package_is_refused() -> None:
    graph = import_model(quantised((1, 4, 7, 9), (15, 13), "asymmetric"), "whole").graph
    (node,) = graph.nodes
    for name, line in (
        ("rows", node.attributes["rows"][:-1]),
        ("columns", (*node.attributes["columns"][:-1], 9.5)),
    ):
        broken = replace(node, attributes={**node.attributes, name: line})
        with pytest.raises(InputError, match=r"places|reads beyond"):
            verify_graph(replace(graph, nodes=(broken,)))


def test_a_plane_that_grows_along_one_dimension_only_by_its_size_is_still_interpolated() -> None:
    """Columns keep their number, not their places: 6 * 1.1 columns are 6."""
    builder = ModelBuilder()
    scales = builder.constant([1, 1, 2.5, 1.1], "float32")
    builder.node(
        "Resize",
        builder.node("Relu", builder.input("x", (1, 2, 5, 6))),
        "",
        scales,
        result="y",
        mode="linear",
    )
    builder.output("y")
    feed = {"x": np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype(np.float32)}
    prepared = prepare(builder.model())
    found, expected = (
        OnnxRuntimeSession(one).run(["y"], feed)["y"] for one in (prepared, builder.model())
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert "Resize" not in [node.op_type for node in prepared.graph.node]


OLD = [
    (9, "Upsample", [1, 1, 2, 1.7]),
    (10, "Resize", [1, 1, 2, 1.7]),
    (10, "Resize", [1, 1, 0.5, 0.3]),
]


@pytest.mark.parametrize(("opset", "op_type", "scales"), OLD)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_what_older_opsets_place_by_their_first_elements(
    mode: str, opset: int, op_type: str, scales: list[float]
) -> None:
    builder = ModelBuilder(opset)
    x = builder.node("Relu", builder.input("x", (1, 5, 7, 9)))
    builder.node(op_type, x, builder.constant(scales, "float32"), result="y", mode=mode)
    builder.output("y")
    model = builder.model()
    feed = {"x": np.random.default_rng(0).standard_normal((1, 5, 7, 9)).astype(np.float32)}
    found, expected = (
        OnnxRuntimeSession(one).run(["y"], feed)["y"] for one in (prepare(model), model)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    run = compare(import_model(model, "old", calibration=[feed]), feed, Arch(isa="v4"))
    assert (run.mismatches, len(run.partition.regions)) == (0, 1)
