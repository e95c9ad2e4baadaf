"""Ethos-U as our machines: the network of the comparison, the scaled rate, and the fit."""

from __future__ import annotations

from math import prod

import pytest

from dla_sim.presets import load_preset
from experiments.machines.discovery import find_machine
from experiments.machines.inception import build_inception_v3
from experiments.machines.preset_times import scale_flash_rate
from experiments.machines.validate import compare_machines


def test_inception_v3_has_the_published_sizes() -> None:
    # torchvision's page: 27,161,264 parameters, 3,326,696 of them in the auxiliary classifier, and
    # 5.71 GFLOPS, which count a multiply-accumulate once.
    from onnx import shape_inference

    model = shape_inference.infer_shapes(build_inception_v3())
    shapes = {
        value.name: [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.value_info, *model.graph.output)
    }
    weights = {one.name: list(one.dims) for one in model.graph.initializer}
    trained = sum(prod(dims) for name, dims in weights.items() if "shape" not in name)
    statistics = sum(
        prod(dims) for name, dims in weights.items() if name.endswith(("_mean", "_variance"))
    )
    assert trained - statistics == 27_161_264 - 3_326_696
    products = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    macs = sum(prod(weights[node.input[1]]) * prod(shapes[node.output[0]][2:]) for node in products)
    assert macs == pytest.approx(5.713e9, rel=1e-3)


def test_each_machine_has_256_multipliers_at_400_mhz() -> None:
    for name in ("ethos-u55-256", "ethos-u85-256"):
        preset = load_preset(find_machine(name).preset)
        assert (preset.arch.pe.count, preset.timing.clock_hz) == (256, 400_000_000)


def test_a_file_of_half_the_bytes_doubles_the_rate() -> None:
    timing = load_preset("ethos-u85-256").timing
    scaled = scale_flash_rate(timing, 2.0)
    assert scaled.flash_rate == pytest.approx(2 * float(timing.flash_rate or 0))
    assert scaled.model_dump(exclude={"flash_rate"}) == timing.model_dump(exclude={"flash_rate"})


@pytest.mark.slow
def test_the_fitted_rate_balances_the_two_rows_that_it_was_fitted_to() -> None:
    rows = list(compare_machines([find_machine("ethos-u85-256")]))
    errors = [row.error for row in rows if row.figure.role == "fitted"]
    assert None not in errors
    assert len(errors) == 2
    assert abs(sum(error or 0.0 for error in errors)) < 0.003
