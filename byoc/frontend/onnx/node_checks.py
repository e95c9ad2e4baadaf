"""Check what ``onnx.checker`` does not test in nodes: parameters, scales, windows and loops."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from byoc.operators.forms import QLinear
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.operators.registry import load_installed_families
from byoc.runtimes.protobuf import array_of, bodies, node_label
from isa.errors import InputError

MAXIMUM_TRIPS = 1 << 20
"""Maximum number of iterations of a loop with a constant count, including the loops around it."""
REAL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
DEFAULT_DOMAIN = ("", "ai.onnx")
RUNTIME_DOMAIN = "com.microsoft"


def check_scales(graph: GraphProto) -> None:
    """Raise InputError for a constant quantisation scale that is not positive and finite.

    Apart from the first operand, which may be data, every real operand is a scale. Those of
    constants may be negative: ONNX Runtime's quantiser of 4 bits writes such ones.
    """
    known = constants_of(graph)
    for node in graph.node:
        for body in bodies(node):
            check_scales(body)
        if node.op_type not in (QUANTIZE, DEQUANTIZE) and not node.op_type.startswith(
            ("QLinear", "QGemm")
        ):
            continue
        named = node.input if node.op_type == "QLinearConcat" else node.input[1:]
        for name in (name for name in named if name in known and known[name].data_type in REAL):
            numbers = array_of(known[name]).astype(np.float64)
            if node.op_type == DEQUANTIZE and node.input[0] in known:
                numbers = np.abs(numbers)
            wrong = numbers[~(np.isfinite(numbers) & (numbers > 0))]
            if wrong.size:
                raise InputError(
                    f"scale '{name}' of node '{node_label(node)}' is {wrong.flat[0]:g}; scales are "
                    "positive and finite"
                )


def check_nodes(nodes: Iterable[NodeProto]) -> None:
    """Raise InputError for nodes that onnx or ONNX Runtime misread, or that end the process."""
    for node in nodes:
        label = node_label(node)
        for item in node.attribute:
            wrong = [axis for axis in (item.i, *item.ints) if not -(1 << 31) <= axis < 1 << 31]
            if wrong and item.name in ("axis", "axes"):
                raise InputError(f"node '{label}': {item.name} has {wrong[0]}, which no tensor has")
            if item.ref_attr_name or node.domain not in (*DEFAULT_DOMAIN, RUNTIME_DOMAIN):
                continue  # the number comes from a function call, or the operator is unknown
            if item.name in _WINDOWS and min(item.ints, default=1) < 1:
                raise InputError(
                    f"node '{label}': {item.name} has {min(item.ints)}; windows have "
                    "positive numbers"
                )
            if (node.op_type, item.name) == ("Split", "num_outputs") and item.i != len(node.output):
                raise InputError(
                    f"node '{label}': num_outputs is {item.i}, and the node has {len(node.output)} "
                    "outputs"
                )
        least = _LEAST_INPUTS.get(node.op_type, 0)
        if len(node.input) < least:
            raise InputError(
                f"node '{label}' has {len(node.input)} inputs; ONNX Runtime reads "
                f"{least}, '' is one"
            )


def check_parameters(graph: GraphProto, outer: Mapping[str, TensorProto]) -> None:
    """Raise InputError for scales, zero points and frames that end ONNX Runtime's process.

    ``outer`` are the constants of the graphs around it. A constant that is also an input is only a
    default.
    """
    given = {value.name for value in graph.input}
    fixed = {
        **outer,
        **{name: tensor for name, tensor in constants_of(graph).items() if name not in given},
    }
    for node in graph.node:
        label = f"node '{node_label(node)}'"
        places = _parameter_places(node)
        names = {place: "".join(node.input[place : place + 1]) for place in places}
        if node.op_type in ("QLinearConcat", "QMoE") and "" in names.values():
            raise InputError(f"{label} lacks a scale or zero point")
        if node.op_type == "QMoE" and any(
            len(fixed[name].dims) != 3 for name in node.input[2:6:3] if name in fixed
        ):
            raise InputError(f"{label} has weights of other than 3 dimensions")
        empty = next(
            (name for name in names.values() if name in fixed and 0 in fixed[name].dims), None
        )
        if empty is not None:
            raise InputError(f"{label}: scale or zero point '{empty}' has no elements")
        if node.op_type == "STFT":
            _check_frames(label, (*node.input, "", "")[2:4], fixed)
        if node.op_type == "QLinearWhere" and all(
            names.get(place) in fixed for place in _RESULT_OF_WHERE
        ):
            computed = next(
                (names[place] for place in _ZEROS_OF_WHERE if names.get(place, "") not in fixed),
                None,
            )
            if computed is not None:
                raise InputError(
                    f"{label}: ONNX Runtime needs zero point '{computed}' as a constant"
                )
        for body in bodies(node):
            check_parameters(body, fixed)


def _check_frames(label: str, names: Sequence[str], fixed: Mapping[str, TensorProto]) -> None:
    """Raise InputError for an STFT whose frames are or may be empty.

    ``names`` are window and length.
    """
    window, length = names
    if not window and length not in fixed:
        raise InputError(f"{label}: ONNX Runtime needs a window, or frame_length as a constant")
    empty = window in fixed and 0 in fixed[window].dims
    if empty or (length in fixed and not numpy_helper.to_array(fixed[length]).any()):
        raise InputError(f"{label}: its frames have no samples")


def _parameter_places(node: NodeProto) -> tuple[int, ...]:
    """Return the input positions of an operator's scales and zero points."""
    *_, form = load_installed_families().integer_forms.get(node.op_type, (None,))
    if not isinstance(form, QLinear):
        return (3, 6) if node.op_type == "QMoE" else ()
    return (*form.result, *chain(*(pair for _, *pair in form.triples(len(node.input)))))


_WINDOWS = frozenset({"kernel_shape", "strides", "dilations"})
_LEAST_INPUTS = {"QLinearLeakyRelu": 5, "QLinearSigmoid": 5}
"""Number of inputs that ONNX Runtime reads even if the node has fewer; an empty name suffices."""
_ZEROS_OF_WHERE = (3, 6)
_RESULT_OF_WHERE = (7, 8)
"""Inputs of QLinearWhere.

With constant parameters of the result, ONNX Runtime reads the zero points of the operands at once.
"""


def constants_of(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the constants of a graph by name, from initialisers and Constant nodes."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAIN:
            found |= {
                name: item.t
                for item in node.attribute
                if item.name == "value"
                for name in node.output
            }
    return found


def check_loops(nodes: Iterable[NodeProto], constants: dict[str, TensorProto], around: int) -> None:
    """Raise InputError for a loop whose constant count or condition makes it run too long."""
    for node in nodes:
        for body in bodies(node):
            known = constants | constants_of(body)
            trips = around
            if node.op_type == "Loop" and node.domain in DEFAULT_DOMAIN:
                trips *= _trips(node, body, known)
                if trips > MAXIMUM_TRIPS:
                    raise InputError(
                        f"loop '{node_label(node)}' runs more than {MAXIMUM_TRIPS} times, or "
                        "endlessly"
                    )
            check_loops(body.node, known, trips)


def _trips(node: NodeProto, body: GraphProto, constants: dict[str, TensorProto]) -> int:
    """Return the maximum number of iterations of a loop; 1 if it depends on data."""
    limit, start = (*node.input, "", "")[:2]
    if _can_end(body):
        return 1
    if limit in constants:
        count = numpy_helper.to_array(constants[limit])
        return (
            max(int(count.reshape(-1)[0]), 0) if count.size == 1 and count.dtype.kind in "iu" else 1
        )
    return 1 if limit or (start and start not in constants) else MAXIMUM_TRIPS + 1


def _can_end(body: GraphProto) -> bool:
    """Return True if a loop's condition can become false.

    It cannot if it is passed on unchanged or constant.
    """
    if not body.output or len(body.input) < 2:
        return False
    makers = {name: item for item in body.node for name in item.output}
    condition = body.output[0].name
    while (
        condition in makers and makers[condition].op_type == "Identity" and makers[condition].input
    ):
        condition = makers[condition].input[0]
    return condition in makers and makers[condition].op_type != "Constant"
