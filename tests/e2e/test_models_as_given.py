"""Models found from outside, each once wrong, silent or a traceback: what runs is held to the file, the rest one line.

``tests/cases/second`` has them. The file is what ONNX Runtime makes of it with nothing optimised.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import experiments
from byoc.importing import import_model
from byoc.package.package import FileCheck
from experiments.report.schema import RunReport
from isa.errors import InputError
from tests.e2e.given_models import run_unfused

CASES = Path(__file__).parents[1] / "cases" / "second"


def report_of(name: str, given: Path | None = None) -> RunReport:
    """The report of a run that is right as far as it was checked."""
    report = experiments.run(CASES / f"{name}.onnx", inputs=given).report
    assert report.check.mismatches == 0
    return report


def file_check(report: RunReport) -> FileCheck:
    """What it says of the file."""
    assert report.fidelity is not None
    assert report.fidelity.file is not None
    assert report.fidelity.file.samples >= 3
    return report.fidelity.file


RIGHT = (
    "batchnorm_training_mode", "if_sparse_same_name", "maxpool_only_padding", "q_clip_nan", "q_maxpool_allpad",
    "q_avg_dil", "q_w_axis1", "q_fp16cast", "q_bf16cast", "half_softmax_overflow", "half_float_overflow",
    "onnx_bits_130", "onnx_proto_771", "add_conv1x1s2_output",
)  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_they_run_and_are_within_a_step_of_their_file(name: str) -> None:
    """They were tracebacks, not compared, refused, or wrong in silence."""
    report = report_of(name)
    found = file_check(report)
    assert (found.beyond, found.optimiser) == (0, "")
    assert found.elements > 0
    assert "file" not in {suspicion.kind for suspicion in report.warnings}


@pytest.mark.parametrize(
    ("name", "optimiser"),
    [
        ("q_bias_overflow2", "WeightBiasQuantization"),
        ("q_bias_nan", "WeightBiasQuantization"),
        ("q_avg_ceil", "QDQSelectorActionTransformer"),
        ("half_cast_fp16", ""),
        ("half_cast_bf16", ""),
    ],
)
def test_what_is_more_than_a_step_from_the_file_is_said(name: str, optimiser: str) -> None:
    """With the place, both values and whose it is: ONNX Runtime's fusions, or float32 in place of half precision."""
    report = report_of(name)
    found = file_check(report)
    assert 0 < found.beyond <= found.elements
    assert found.optimiser == optimiser
    assert found.tensor == "y"
    assert len(found.coordinates) == 4
    assert found.file != found.ours
    (warning,) = (suspicion for suspicion in report.warnings if suspicion.kind == "file")
    assert (
        f"{found.beyond} of {found.elements} elements are more than a step off the file as it is" in warning.message()
    )


@pytest.mark.parametrize("name", ["half_qdq_overflow", "half_qdq_conv", "half_qdq_matmul"])
def test_quantised_models_in_half_precision_give_what_their_file_says(name: str) -> None:
    path = CASES / f"{name}.onnx"
    found = experiments.run(path, inputs=CASES / f"{name}.npz")
    feeds = dict(np.load(CASES / f"{name}.npz"))
    for array, wanted in zip(found.outputs.values(), run_unfused(onnx.load(path), feeds).values(), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_a_widened_model_takes_inputs_in_half_precision() -> None:
    assert report_of("half_float_overflow", CASES / "half_float_overflow.npz").check.elements > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("q_inf_scale", "scale 's' of node 'q_xq' is inf; scales are positive and finite"),
        ("q_nan_scale", "scale 'sy' of node 'q_rq' is nan; scales are positive and finite"),
        ("q_argmax_negscale", "scale 's' of node 'q_xq' is -1; scales are positive and finite"),
        ("no_inputs", "the model has no input, its outputs are constants"),
        ("onnx_bits_343", "Node (bn) Op (BatchNormalization) [ShapeInferenceError] Input 4 expected to have rank 1"),
        ("onnx_proto_296", "bias must be a 1D tensor of size output_channels (4)"),
        ("onnx_spec_392", "value 's' has the shape [9223372036854775807]"),
        ("onnx_spec_568", "Unrecognized attribute: kernel_shape for operator QLinearGlobalAveragePool"),
        ("onnx_spec_601", "has input size 0 not in range [min=7, max=8]"),
    ],
)
def test_what_is_no_model_is_refused_in_a_line(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        import_model(CASES / f"{name}.onnx")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["dla_graph_268", "dla_graph_329"])
def test_packages_with_another_graph_are_refused_in_a_line(name: str) -> None:
    with pytest.raises(InputError) as caught:
        experiments.run(CASES / f"{name}.dla")
    assert "\n" not in str(caught.value)
