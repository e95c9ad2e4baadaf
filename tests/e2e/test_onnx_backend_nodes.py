"""The onnx package's node tests of supported operators, quantised, equal ONNX Runtime.

They agree to the bit. Operands that are weights become symmetric constants; activations stay
inputs. A list below names each case that does not run on the accelerator, with its reason. Another
such case fails the test, and so does a listed one that runs. A turn runs a part of the cases; the
test prints which case ran where.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from byoc.frontend.onnx.rewriting.reductions import WRITTEN
from byoc.frontend.onnx.rewriting.splits import SCATTERINGS
from byoc.importing import import_model
from byoc.operators.forms import QLinear
from byoc.operators.registry import load_installed_families
from isa.arch import Arch
from isa.errors import InputError
from tests.e2e.harness import compare
from tests.rotation import choose_cases

pytestmark = pytest.mark.slow

# Operator → which of its inputs are weights, and so become constants.
WEIGHTS = {
    "Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (1,),
    "QLinearConv": (3, 8), "QLinearMatMul": (3,), "ConvInteger": (1,), "MatMulInteger": (1,),
    "LayerNormalization": (1, 2), "RMSNormalization": (1,), "InstanceNormalization": (1, 2),
    "GroupNormalization": (1, 2), "BatchNormalization": (1, 2, 3, 4), "PRelu": (1,), "Pow": (1,),
    **dict.fromkeys((*SCATTERINGS, *(name for name in WRITTEN if name.startswith("Reduce"))), (1,)),
}  # fmt: skip
OFF_THE_DLA: dict[str, tuple[str, ...]] = {
    "bare integers wrap around, and are no real numbers": (
        "add_int8", "add_uint8", "div_int8", "div_uint8", "mul_int8", "mul_uint8", "sub_int8",
        "sub_uint8",
    ),
    "statistics are of training, and go "
    "on": ("batchnorm_example_training_mode", "batchnorm_epsilon_training_mode"),
    "what is dropped in training is random": (
        "training_dropout", "training_dropout_default", "training_dropout_default_mask",
        "training_dropout_mask",
    ),
    "the value is no tensor": ("identity_opt", "identity_sequence"),
    "where a maximum stands is a number of 64 bits": (
        "maxpool_with_argmax_2d_precomputed_pads", "maxpool_with_argmax_2d_precomputed_strides",
    ),
    "the exponent is another one for every element": ("pow",),
    "the divisor is another one for every element": (
        "mod_mixed_sign_float16", "mod_mixed_sign_float32", "mod_mixed_sign_int8", "mod_uint8",
    ),
    "ONNX Runtime does not run it": (
        "pow_types_float32_uint32", "pow_types_float32_uint64",
        *(f"mod_{name}_mixed_sign_fmod_0" for name in ("float16", "float32")),
        *(f"mod_float_edge_cases_fmod_0_{name}" for name in ("float16", "float32")),
        "spacetodepth_crd_mode_example", "spacetodepth_dcr_mode_example",
    ),
    "updates are combined with what is there, or with others at one place": (
        "scatter_elements_with_duplicate_indices",
        *(f"scatter_elements_with_reduction_{name}" for name in ("mul", "max", "min")),
        *(f"scatternd_{name}" for name in ("multiply", "max", "min")),
        *(f"scatternd_{name}_with_element_indices" for name in ("max", "min")),
    ),
    "a tensor has no elements": (
        *(
            f"reduce_{name}_empty_set"
            for name in ("l1", "l2", "log_sum", "log_sum_exp", "max", "min", "sum", "sum_square")
        ),
        "reduce_max_empty_set_bool", "reduce_sum_empty_set_non_reduced_axis_zero",
        "reshape_allowzero_reordered",
        "slice_start_out_of_bounds",
    ),
}  # fmt: skip
"""Reason → cases that do not run on the accelerator, without the "test_" before each."""
CASES = 565
"""Cases of the onnx package whose data are real numbers, of 8 bits, or flags."""
SHARE = 4
"""One case in four runs at a turn."""
OTHER_TYPES = {
    "bfloat16": 2, "bool, int64": 1, "float64": 13, "int16": 12, "int32": 14, "int64": 24,
    "object": 118,
    "uint16": 12, "uint32": 12, "uint64": 12,
}  # fmt: skip
"""Types of the others, which no quantiser makes 8 bits, and how many there are.

Objects are text and odd numbers.
"""
OLDEST_OPSET = 9
NEWEST_OPSET = 24
"""What is read; some cases say a newer one, or an older one, although nothing in them is."""


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
    registry = load_installed_families()
    known = (
        registry.forms.keys()
        | registry.integer_forms.keys()
        | registry.closes.operators
        | WRITTEN.keys()
        | {*SCATTERINGS}
    )
    for testcase in testcases:
        nodes = testcase.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in known or nodes[0].domain:
            continue
        data = testcase.data_sets[0][0]
        yield _constant_weights(testcase.name, testcase.model, data)


def _constant_weights(name: str, model: onnx.ModelProto, data: list[Any]) -> Case:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.opset_import[0].version = max(
        OLDEST_OPSET, min(copy.opset_import[0].version, NEWEST_OPSET)
    )
    node = copy.graph.node[0]
    given = {value.name: array for value, array in zip(copy.graph.input, data, strict=True)}
    for value in list(copy.graph.input):
        if value.name in _constants(node):
            copy.graph.input.remove(value)
            array = _symmetric(node, value.name, np.asarray(given.pop(value.name)))
            copy.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return Case(
        name, node.op_type, copy, {key: _single(np.asarray(array)) for key, array in given.items()}
    )


def _single(array: NDArray[Any]) -> NDArray[Any]:
    """Half precision becomes float32, as it does in the model."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _constants(node: onnx.NodeProto) -> set[str]:
    """Return the inputs that are weights or parameters in the operator's form."""
    registry = load_installed_families()
    positions = set(WEIGHTS.get(node.op_type, ()))
    count = len(node.input)
    if node.op_type in registry.integer_forms:
        integer = registry.integer_forms[node.op_type][2]
        triples = integer.triples(count) if isinstance(integer, QLinear) else ((0, 0, 0), (1, 1, 1))
        positions |= set(range(count)) - {triple[0] for triple in triples}
    elif node.op_type in registry.forms:
        operands = registry.forms[node.op_type][1].operands
        positions |= set(range(count if operands is None else operands, count))
    elif node.op_type == "Clip":
        positions |= {1, 2}
    return {name for position, name in enumerate(node.input) if name and position in positions}


def _symmetric(node: onnx.NodeProto, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return weights of integer operators as the accelerator needs them.

    They are int8 with zero point 0, or uint8 with zero point 128.
    """
    position = list(node.input).index(name)
    zero_point_at = {
        "QLinearConv": 5,
        "QLinearMatMul": 5,
        "ConvInteger": 3,
        "MatMulInteger": 3,
    }.get(node.op_type)
    if position != zero_point_at:
        return array
    middle = 128 if array.dtype == np.uint8 else 0
    # ONNX Runtime's ConvInteger knows one zero point for all weights only.
    return (
        np.array(middle, array.dtype)
        if node.op_type == "ConvInteger"
        else np.full_like(array, middle)
    )


def _quantisable(case: Case) -> bool:
    return all(
        array.dtype in (np.float32, np.int8, np.uint8, np.bool_) for array in case.inputs.values()
    )


def test_node_cases_agree_with_onnx_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {f"test_{name}": reason for reason, names in OFF_THE_DLA.items() for name in names}
    lines: list[str] = []
    off: set[str] = set()
    cases = [*_cases()]
    quantisable = [case for case in cases if _quantisable(case)]
    others = Counter(
        ", ".join(sorted({array.dtype.name for array in case.inputs.values()}))
        for case in cases
        if not _quantisable(case)
    )
    assert (len(quantisable), others) == (CASES, OTHER_TYPES)
    assert expected.keys() <= {case.name for case in quantisable}
    chosen = choose_cases(quantisable, SHARE)
    for case in chosen:
        outcome, ran = _run(case)
        off |= set() if ran else {case.name}
        why = f" ({expected[case.name]})" if case.name in expected else ""
        lines.append(f"{case.name:55} {outcome}{why}")
    with capsys.disabled():
        print(
            "\n".join(["", *lines, f"{len(lines) - len(off)} of {len(lines)} cases ran on the DLA"])
        )
        print(
            f"{others.total()} more have data of types that nobody quantises to int8: "
            f"{dict(others)}"
        )
    assert off == {case.name for case in chosen if case.name in expected}


def _run(case: Case) -> tuple[str, bool]:
    """Run a case; return where it ran and why, and True if one of its operators ran on the DLA.

    Assert that every bit agrees.
    """
    try:
        package = import_model(case.model, case.name, calibration=[case.inputs])
    except InputError as error:
        return f"not imported: {error}", False
    comparison = compare(package, case.inputs, Arch(isa="v4", sram_bytes=1 << 22))
    assert comparison.mismatches == 0, case.name
    fallen = [
        p for p in comparison.partition.placement if p.on == "cpu" and "Linear" not in p.op_type
    ]
    if comparison.tensors and not fallen:
        return f"dla, {comparison.elements} elements equal", True
    return f"cpu: {'; '.join(f'{p.op_type}: {p.reason}' for p in fallen) or 'nothing to do'}", bool(
        comparison.tensors
    )
