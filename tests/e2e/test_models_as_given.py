"""Outside models that once failed: results agree with the file, other models get one line.

A failure was a wrong result, silence or a traceback. ``tests/cases/second`` has the models. The
file is what ONNX Runtime makes of it with nothing optimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import experiments
from byoc.checking.fidelity import PassError
from byoc.importing import import_model
from byoc.package.package import FileCheck
from byoc.runtimes.protobuf import copy_model
from byoc.runtimes.session import OnnxRuntimeSession
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
    """Return the report's comparison with the file."""
    assert report.fidelity is not None
    assert report.fidelity.file is not None
    assert report.fidelity.file.samples >= 3
    return report.fidelity.file


RIGHT = (
    "batchnorm_training_mode", "if_sparse_same_name", "maxpool_only_padding", "q_clip_nan",
    "q_maxpool_allpad",
    "q_avg_ceil", "q_avg_dil", "q_w_axis1", "q_fp16cast", "q_bf16cast", "half_softmax_overflow",
    "half_float_overflow",
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
        ("half_cast_fp16", ""),
        ("half_cast_bf16", ""),
    ],
)
def test_what_is_more_than_a_step_from_the_file_is_said(name: str, optimiser: str) -> None:
    """A difference of more than a step from the file names the place, both values and the cause.

    The cause is a fusion of ONNX Runtime, or float32 in place of half precision.
    """
    report = report_of(name)
    found = file_check(report)
    assert 0 < found.beyond <= found.elements
    assert found.optimiser == optimiser
    assert found.tensor == "y"
    assert len(found.coordinates) == 4
    assert found.file != found.ours
    (warning,) = (suspicion for suspicion in report.warnings if suspicion.kind == "file")
    assert (
        f"{found.beyond} of {found.elements} elements differ from the file by more than one "
        "step" in warning.message()
    )


@pytest.mark.parametrize("name", ["half_qdq_overflow", "half_qdq_conv", "half_qdq_matmul"])
def test_quantised_models_in_half_precision_give_what_their_file_says(name: str) -> None:
    path = CASES / f"{name}.onnx"
    found = experiments.run(path, inputs=CASES / f"{name}.npz")
    feeds = dict(np.load(CASES / f"{name}.npz"))
    for array, wanted in zip(
        found.outputs.values(), run_unfused(onnx.load(path), feeds).values(), strict=True
    ):
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
        (
            "onnx_bits_343",
            "Node (bn) Op (BatchNormalization) [ShapeInferenceError] Input 4 "
            "expected to have rank 1",
        ),
        ("onnx_proto_296", "bias must be a 1D tensor of size output_channels (4)"),
        ("onnx_spec_392", "value 's' has the shape [9223372036854775807]"),
        (
            "onnx_spec_568",
            "Unrecognized attribute: kernel_shape for operator QLinearGlobalAveragePool",
        ),
        ("onnx_spec_601", "has input size 0 not in range [min=7, max=8]"),
    ],
)
def test_what_is_no_model_is_refused_in_a_line(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        import_model(CASES / f"{name}.onnx")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "dla_graph_268",
            "the package's graph has input 'x' of shape [3, 1, 6, 6], its model of [1, 3, 6, 6]",
        ),
        ("dla_graph_329", "-6912 is a negative count"),
    ],
)
def test_packages_with_another_graph_are_refused_in_a_line(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        experiments.run(CASES / f"{name}.dla")
    assert message in str(caught.value)
    assert str(caught.value).endswith("; compile the model again")


@pytest.mark.parametrize("name", ["onnx_bits_130", "onnx_proto_771"])
def test_text_passes_the_cpu_unchanged(name: str) -> None:
    """Drawn text once was whole numbers, so a difference of one element could not be seen."""
    report = experiments.run(CASES / f"{name}.onnx").report
    assert report.check.outputs is not None
    assert (report.check.mismatches, report.check.outputs.differences) == (0, 0)


@pytest.mark.parametrize("name", ["b0", "b_quantized", "w2_quantized", "x_scale", "x_zero_point"])
def test_tensors_have_any_name(name: str) -> None:
    """They were those that the quantiser gave to its own."""
    found = experiments.run(
        CASES / f"name_Conv_{name}.onnx", calibration=CASES / "name_cal_Conv.npz"
    ).report
    assert (found.check.mismatches, file_check(found).beyond) == (0, 0)
    assert found.fidelity is not None
    assert min(found.fidelity.noise.values()) > 35


def test_what_only_the_optimisers_make_of_half_precision_is_said() -> None:
    """Two factors folded into one are beyond it: not a number, anywhere."""
    assert file_check(report_of("half_float_overflow")).message() == (
        "within one step of the file without optimiser (768 elements, 3 random inputs); "
        "ONNX Runtime's optimisers change 768 of them"
    )


@pytest.mark.parametrize("name", ["q_bias_overflow2", "q_bias_nan"])
def test_sums_that_may_wrap_around_are_said(name: str) -> None:
    (warning,) = (suspicion for suspicion in report_of(name).warnings if suspicion.kind == "wraps")
    assert warning.message().startswith("sums of 'conv' may pass int32 (such operators in all: 1)")


def small(
    nodes: Sequence[onnx.NodeProto], *, shape: Sequence[int] = (1, 3, 8, 8), **constants: object
) -> ModelProto:
    """A model of ``nodes`` that read x and ``constants``; what nothing reads are outputs."""
    read = {name for node in nodes for name in node.input}
    ends = [name for node in nodes for name in node.output if name not in read]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ends],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHTS = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
CONV = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
NOTHING = helper.make_node("Slice", ["c", "s", "s", "a"], ["e"])


@pytest.mark.parametrize(
    ("weights", "others"),
    [
        (WEIGHTS, []),
        (WEIGHTS, [helper.make_node("Concat", ["e", "c"], ["y"], axis=1)]),
        (WEIGHTS, [helper.make_node("Sigmoid", ["e"], ["y"])]),
        (WEIGHTS, [helper.make_node("ReduceSum", ["e", "a"], ["y"])]),
        (WEIGHTS, [helper.make_node("Conv", ["e", "none"], ["y"])]),
        (WEIGHTS[:0], []),
    ],
)
def test_tensors_without_elements_stay_in_float(
    weights: np.ndarray, others: list[onnx.NodeProto]
) -> None:
    """They had no range, for which the model's constants were blamed.

    Integer weights without any end ONNX Runtime.
    """
    none = (
        {"none": np.zeros((2, 0, 1, 1), np.float32)}
        if "none" in [n for node in others for n in node.input]
        else {}
    )
    model = small([CONV, NOTHING, *others], w=weights, s=np.array([0]), a=np.array([1]), **none)
    found = experiments.run(model, cache=False).report
    assert (found.check.mismatches, file_check(found).beyond) == (0, 0)


def test_what_is_masked_afterwards_is_said() -> None:
    nodes = [
        CONV,
        helper.make_node("Div", ["c", "zero"], ["d"]),
        helper.make_node("Greater", ["c", "zero"], ["m"]),
        helper.make_node("Where", ["m", "zero", "d"], ["y"]),
    ]
    with pytest.raises(InputError) as caught:
        import_model(small(nodes, w=WEIGHTS, zero=np.float32(0)))
    assert str(caught.value) == (
        "tensor 'd' ranges from -inf to inf on the calibration data, which int8 cannot hold: mask "
        "what its Div reads "
        "rather than what it makes, or give finite samples with --calibration"
    )


@pytest.mark.parametrize("place", [-1, 12])
def test_sparse_constants_with_places_that_there_are_not(place: int) -> None:
    """A sparse constant with a place outside its shape is rejected.

    The model is in memory, so onnx's checker has not seen it. NumPy counts negative places from the
    end.
    """
    model = small([helper.make_node("Add", ["x", "k"], ["y"])], shape=(3, 4))
    values = numpy_helper.from_array(np.ones(1, np.float32), "k")
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            values, numpy_helper.from_array(np.array([place]), "k_indices"), [3, 4]
        )
    )
    with pytest.raises(InputError, match="sparse constant 'k' has a place outside of its shape"):
        import_model(model)


def test_a_model_of_our_own_making_is_a_bug_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file runs, so the error is the project's and the user has nothing to correct."""

    def wrong(steps: object, model: ModelProto) -> ModelProto:
        result = copy_model(model)
        result.graph.node[0].input[0] = "nothing"
        OnnxRuntimeSession(result)
        return result

    monkeypatch.setattr("byoc.importing.apply", wrong)
    with pytest.raises(PassError, match="ONNX Runtime does not run what passes make of the model"):
        import_model(small([CONV], w=WEIGHTS))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
def test_hardmax_of_older_opsets_is_over_all_dimensions_from_its_axis_on(axis: int | None) -> None:
    """Hardmax of older opsets covers all dimensions from its axis on.

    onnx's converter handles only Softmax this way. The project's converting pass was once wrong.
    """
    axes = {} if axis is None else {"axis": axis}
    model = small([helper.make_node("Hardmax", ["x"], ["y"], **axes)], shape=(6, 2, 8))
    model.opset_import[0].version = 12
    found = experiments.run(model, cache=False)
    x = np.random.default_rng(0).normal(size=(6, 2, 8)).astype(np.float32)
    (made,) = experiments.run(model, inputs=x, cache=False).outputs.values()
    np.testing.assert_array_equal(made, run_unfused(model, {"x": x})["y"])
    assert file_check(found.report).beyond == 0
