"""Comparison with the oracle: every element counts, and the first difference is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import experiments
from byoc.compiler import compile
from byoc.host.runtime import Runtime
from byoc.importing import import_model
from dla_sim.device import Device
from dla_sim.timing import Timing
from experiments.report.checks import FirstDifference
from experiments.running.check import (
    TensorComparison,
    check_values,
    compare_tensors,
)
from isa.arch import Arch
from tests.e2e.modern_network import modern_network


def test_equal_tensors_have_no_mismatch() -> None:
    tensors = {"a": np.arange(6, dtype=np.int8).reshape(2, 3), "b": np.zeros((1, 4), np.float32)}
    assert compare_tensors(tensors, tensors) == TensorComparison(tensors=2, elements=10)


def test_first_difference_is_named_with_coordinates_and_both_values() -> None:
    expected = {"a": np.zeros((2, 2), np.int8), "b": np.zeros((2, 3), np.int8)}
    actual = {"a": np.zeros((2, 2), np.int8), "b": np.array([[0, 0, 0], [0, -128, 3]], np.int8)}
    found = compare_tensors(actual, expected)
    assert (found.mismatches, found.max_abs_diff) == (2, 128)
    wrong = FirstDifference(tensor="b", coordinates=(1, 1), dla=-128, oracle=0)
    assert found.first == wrong
    assert wrong.message() == "tensor 'b' at [1, 1]: the DLA has -128, the oracle has 0"


def test_difference_of_extreme_values_does_not_wrap() -> None:
    found = compare_tensors({"a": np.array([-128], np.int8)}, {"a": np.array([127], np.int8)})
    assert found.max_abs_diff == 255


def test_not_a_number_equals_itself_and_nothing_else() -> None:
    nan = np.array([np.nan, 1.0], np.float32)
    assert compare_tensors({"a": nan}, {"a": nan}).mismatches == 0
    assert compare_tensors({"a": nan}, {"a": np.ones(2, np.float32)}).mismatches == 1


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        ({}, "no value for tensor 'a'"),
        ({"a": np.zeros(3, np.int8)}, "tensor 'a' is int8[3], expected int8[2]: "),
        ({"a": np.zeros(2, np.uint8)}, "tensor 'a' is uint8[2], expected int8[2]: "),
    ],
)
def test_missing_tensors_and_other_shapes_are_bugs(
    actual: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ValueError, match="tensor 'a'") as caught:
        compare_tensors(actual, {"a": np.zeros(2, np.int8)})
    assert str(caught.value).startswith(message)


def test_units_that_definitions_compute_are_counted_as_data() -> None:
    model, feed = modern_network()
    network = compile(import_model(model, "modern", calibration=[feed]), Arch(isa="v4"))
    check = check_values(
        network, feed, Runtime(network, Device(Arch(isa="v4"), Timing())).run(feed)
    )
    assert check.definitions is not None
    units = {found.op_type: found.units for found in check.definitions}
    assert units == {"LayerNormalization": 1, "ReduceMean": 1, "Softmax": 1}
    assert f"; {len(check.definitions)} units held to the definition" in check.oracle
    assert sum(found.elements for found in check.definitions) > 0 == check.mismatches


@pytest.mark.parametrize(("divisor", "kind"), [(0.0, "infinite"), (2.0, "constant")])
def test_outputs_that_are_the_same_everywhere_are_warned_of(
    divisor: float, kind: str, tmp_path: Path
) -> None:
    """Infinite ones too, which have no number in a report.

    Text that is the same everywhere is not.
    """
    source = f"""<ir_version: 9, opset_import: ["" : 17]>
        same (int8[1, 4] x, string[2] s) => (float[1, 4] y, string[2] t)
        <float scale = {{0.5}}, int8 zero = {{0}}, float one = {{1}}, float divisor = {{{divisor}}}>
        {{ r = DequantizeLinear(x, scale, zero)  z = Sub(r, r)  o = Add(z, one)  y = Div(o, divisor)
           t = Identity(s) }}"""
    onnx.save(onnx.parser.parse_model(source), tmp_path / "same.onnx")
    report = experiments.run(tmp_path / "same.onnx").report
    found = {
        warning.tensor: warning
        for warning in report.warnings
        if warning.kind in ("constant", "infinite")
    }
    assert {name: warning.kind for name, warning in found.items()} == {"y": kind}
    assert "all 4 elements of output 'y' are" in found["y"].message()
