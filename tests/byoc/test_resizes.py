"""Interpolation as products: what a Resize makes, made by matrices or a grouped convolution, and all on integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.session import OnnxRuntimeSession
from isa.arch import Arch
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

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
    resized = builder.node("Resize", x, region, "", sizes, name="resize", **{"mode": "linear", **how})
    builder.node("Relu", resized, result="y")
    builder.output("y")
    model, feed = builder.model(), {"x": np.random.default_rng(0).standard_normal((1, 5, 7, 9)).astype(np.float32)}
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
    builder.node("Resize", builder.input("x", (1, 2, 7, 9, 3)), "", "", sizes, result="y", mode="linear")
    builder.output("y")
    assert [node.op_type for node in prepare(builder.model()).graph.node] == ["Resize"]
