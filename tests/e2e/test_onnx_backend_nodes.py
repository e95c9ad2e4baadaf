"""The onnx package's node tests: every case of a supported operator, quantised, agrees with ONNX Runtime to the bit.

Operands that are weights become constants, symmetric; activations stay inputs. What falls back does so with a reason,
and the test prints which case ran where and why.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from byoc.importing import import_model
from isa.arch import Arch
from isa.errors import InputError
from tests.e2e.harness import compare

pytestmark = pytest.mark.slow

# Operator → which of its inputs are weights, and so become constants.
WEIGHTS = {
    "Conv": (1, 2), "Gemm": (1, 2), "MatMul": (1,),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8), "QLinearMatMul": (1, 2, 3, 4, 5, 6, 7),
    "ConvInteger": (1, 2, 3), "MatMulInteger": (1, 2, 3),
}  # fmt: skip
ACTIVATIONS = {
    "Add", "Sum", "Relu", "Clip", "LeakyRelu", "Abs", "Min", "Max", "MaxPool", "AveragePool", "GlobalAveragePool",
    "Concat", "Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "BatchNormalization", "Dropout",
}  # fmt: skip
# Inputs that are parameters of the operator rather than data.
PARAMETERS = {
    "Clip": (1, 2), "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "BatchNormalization": (1, 2, 3, 4),
    "Dropout": (1, 2),
}  # fmt: skip
LEAST_ON_THE_DLA = 80


@dataclass(frozen=True, eq=False)
class Case:
    """One node test with its weights made constant."""

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: dict[str, NDArray[Any]]


def _cases() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        testcases = collect_testcases(None)
    for testcase in testcases:
        nodes = testcase.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in WEIGHTS.keys() | ACTIVATIONS or nodes[0].domain:
            continue
        data = testcase.data_sets[0][0]
        yield _constant_weights(testcase.name, testcase.model, data)


def _constant_weights(name: str, model: onnx.ModelProto, data: list[Any]) -> Case:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    node = copy.graph.node[0]
    given = {value.name: array for value, array in zip(copy.graph.input, data, strict=True)}
    constant = {
        node.input[index]
        for index in (*WEIGHTS.get(node.op_type, ()), *PARAMETERS.get(node.op_type, ()))
        if index < len(node.input) and node.input[index]
    }
    for value in list(copy.graph.input):
        if value.name in constant:
            copy.graph.input.remove(value)
            array = _symmetric(node, value.name, np.asarray(given.pop(value.name)))
            copy.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return Case(name, node.op_type, copy, {key: np.asarray(array) for key, array in given.items()})


def _symmetric(node: onnx.NodeProto, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Weights of integer operators as the accelerator wants them: int8 with zero point 0 (uint8: 128)."""
    position = list(node.input).index(name)
    zero_point_at = {"QLinearConv": 5, "QLinearMatMul": 5, "ConvInteger": 3, "MatMulInteger": 3}.get(node.op_type)
    if position != zero_point_at:
        return array
    middle = 128 if array.dtype == np.uint8 else 0
    # ONNX Runtime's ConvInteger knows one zero point for all weights only.
    return np.array(middle, array.dtype) if node.op_type == "ConvInteger" else np.full_like(array, middle)


def _float_or_integer(case: Case) -> bool:
    return all(array.dtype in (np.float32, np.int8, np.uint8) for array in case.inputs.values())


def test_node_cases_agree_with_onnx_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    on_the_dla = 0
    for case in _cases():
        outcome, ran = _run(case)
        lines.append(f"{case.name:55} {outcome}")
        on_the_dla += ran
    with capsys.disabled():
        print("\n".join(["", *lines, f"{on_the_dla} of {len(lines)} cases ran on the DLA"]))
    assert on_the_dla >= LEAST_ON_THE_DLA


def _run(case: Case) -> tuple[str, bool]:
    """Where the case ran and why, and whether an operator of it ran on the DLA; asserts that every bit agrees."""
    if not _float_or_integer(case):
        kinds = sorted({str(array.dtype) for array in case.inputs.values()})
        return f"not run: data of type {', '.join(kinds)}; only float32, int8 and uint8 quantise to int8", False
    try:
        package = import_model(case.model, case.name, calibration=[case.inputs])
    except InputError as error:
        return f"not imported: {error}", False
    comparison = compare(package, case.inputs, Arch(sram_bytes=1 << 22))
    assert comparison.mismatches == 0, case.name
    fallen = [p for p in comparison.partition.placement if p.on == "cpu" and "Linear" not in p.op_type]
    if comparison.tensors and not fallen:
        return f"dla, {comparison.elements} elements equal", True
    return f"cpu: {'; '.join(f'{p.op_type}: {p.reason}' for p in fallen) or 'nothing to do'}", bool(comparison.tensors)
