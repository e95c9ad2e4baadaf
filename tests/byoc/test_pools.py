"""Pools of float models in every form run quantised on the accelerator.

They equal the oracle to the bit and are close to the float results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from byoc.compiler import compile
from byoc.frontend.onnx.rewriting.convolutions import convolve_pools
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.host.runtime import Runtime
from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from dla_sim.device import Device
from dla_sim.timing import Timing
from isa.arch import Arch
from tests.byoc.float_models import operators
from tests.byoc.oracle_check import random_feeds
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import compare

MACHINES = {"small": Arch(isa="v4", sram_bytes=8192, sram_banks=4), "large": Arch(isa="v4")}
APART = {"kernel_shape": [3, 2], "dilations": [2, 3]}
POOLS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "apart": ("AveragePool", (1, 5, 12, 13), APART),
    "apart, padded": ("AveragePool", (2, 3, 12, 13), {**APART, "pads": [2, 1, 1, 0]}),
    "apart, padding counts": (
        "AveragePool",
        (1, 3, 12, 13),
        {**APART, "pads": [2, 1, 1, 0], "count_include_pad": 1},
    ),
    "apart, line": (
        "AveragePool",
        (1, 4, 40),
        {"kernel_shape": [4], "dilations": [5], "strides": [2], "ceil_mode": 1},
    ),
    "apart, volume": (
        "AveragePool",
        (1, 2, 6, 7, 8),
        {"kernel_shape": [2, 2, 2], "dilations": [2, 3, 1]},
    ),
    "rounded up, padding counts": (
        "AveragePool",
        (1, 3, 10, 12),
        {
            "kernel_shape": [3, 3],
            "pads": [1, 1, 1, 1],
            "strides": [2, 2],
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
    ),
    "norm": ("LpPool", (1, 3, 12, 13), {"kernel_shape": [3, 2]}),
    "norm, padded": (
        "LpPool",
        (2, 3, 12, 13),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
    ),
    "norm, first": (
        "LpPool",
        (1, 3, 12, 13),
        {"kernel_shape": [3, 2], "p": 1, "auto_pad": "SAME_LOWER"},
    ),
    "norm, third": ("LpPool", (1, 3, 20), {"kernel_shape": [3], "p": 3}),
    "global norm": ("GlobalLpPool", (1, 3, 5, 6), {}),
    "global norm, first": ("GlobalLpPool", (2, 3, 5, 6), {"p": 1}),
    "global norm, third": ("GlobalLpPool", (1, 3, 30), {"p": 3}),
    "global maximum": ("GlobalMaxPool", (2, 3, 5, 6), {}),
    "global maximum of a line": ("GlobalMaxPool", (1, 8, 300), {}),
}


def pooled(op_type: str, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    """Return a pool behind a Clip, followed by a function that may be fused into it."""
    b = ModelBuilder()
    x = b.node("Clip", b.input("x", shape), b.constant(-2, "float32"), b.constant(2, "float32"))
    b.node("Neg", b.node(op_type, x, **attributes), result="y")
    b.output("y")
    return b.model()


@pytest.mark.parametrize("case", POOLS)
def test_pools_run_on_the_accelerator(case: str) -> None:
    op_type, shape, attributes = POOLS[case]
    model = pooled(op_type, shape, **attributes)
    feeds = random_feeds(model, 1)
    found, expected = (
        OnnxRuntimeSession(one).run(["y"], feeds)["y"] for one in (prepare(model), model)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    package = import_model(model, "pool", calibration=[feeds])
    for arch in MACHINES.values():
        for schedule in ("default", "seed"):
            compared = compare(package, feeds, arch, schedule)
            assert compared.mismatches == 0
            # the edges
            assert sum(place.on == "cpu" for place in compared.partition.placement) == 2
    run = Runtime(compile(package, MACHINES["large"]), Device(MACHINES["large"], Timing())).run(
        feeds
    )
    assert np.abs(run.outputs["y"] - expected).max() < 0.05 * np.abs(expected).max()


LEFT: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "side by side": ("AveragePool", (1, 3, 9, 9), {"kernel_shape": [3, 3]}),
    "in the padding alone": (
        "AveragePool",
        (1, 3, 9, 9),
        {**APART, "pads": [0, 3, 0, 3], "kernel_shape": [1, 1]},
    ),
    "whole planes": ("GlobalAveragePool", (1, 3, 9, 9), {}),
}


@pytest.mark.parametrize("case", LEFT)
def test_pools_that_are_no_convolutions_are_left_alone(case: str) -> None:
    op_type, shape, attributes = LEFT[case]
    model = onnx.shape_inference.infer_shapes(pooled(op_type, shape, **attributes))
    assert operators(convolve_pools(model)) == operators(model)


def test_places_of_maxima_matter_only_where_somebody_reads_them() -> None:
    for read in (False, True):
        b = ModelBuilder()
        b.nodes.append(
            onnx.helper.make_node("MaxPool", [b.input("x", (1, 2, 6, 6))], ["y", "places"], "op")
        )
        b.nodes[0].attribute.append(onnx.helper.make_attribute("kernel_shape", [2, 2]))
        b.output("y")
        if read:
            b.output("places", "int64")
        network = compile(import_model(b.model(), "maxima"), MACHINES["large"])
        assert {place.node: place.on for place in network.partition.placement}["op"] == (
            "cpu" if read else "dla"
        )
