"""Converters of TensorFlow Lite operators on floats to ONNX nodes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import np_dtype_to_tensor_dtype

from byoc.frontend.tflite.float_graph import CHANNELS_FIRST, FloatOperation
from byoc.frontend.tflite.products import SAME, pad_window
from isa.errors import InputError

Convert = Callable[[FloatOperation], None]
Window = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Kernel, strides and dilations of a window."""


def _pads(one: FloatOperation, window: Window) -> list[int]:
    begins, ends = pad_window(
        one.shape(0)[1:3], one.result()[1:3], window, one.options.padding == SAME
    )
    return [*begins, *ends]


def _convert_convolution(order: tuple[int, int, int, int], one: FloatOperation) -> None:
    """Convert a convolution; ``order`` transposes the filters to (outputs, inputs, rows, columns).

    Inputs are those of a group.
    """
    filters = one.parameter(1, "filter").transpose(order)
    options = one.options
    window = (
        (filters.shape[2], filters.shape[3]),
        (options.strideH, options.strideW),
        (options.dilationHFactor, options.dilationWFactor),
    )
    inputs = [one.planes(0), one.constant(filters)]
    if one.is_given(2):
        inputs.append(one.natural(2))
    made = one.add(
        "Conv", inputs, pads=_pads(one, window), strides=window[1], dilations=window[2],
        group=one.shape(0)[3] // filters.shape[1],
    )  # fmt: skip
    one.finish(one.activate(made), planes=True)


def _convert_transposed_convolution(one: FloatOperation) -> None:
    """Convert TRANSPOSE_CONV, whose filters have axes (outputs, rows, columns, inputs)."""
    filters = one.parameter(1, "filter").transpose(3, 0, 1, 2)
    strides = one.options.strideH, one.options.strideW
    reach = [
        (size - 1) * stride + kernel
        for size, stride, kernel in zip(one.shape(2)[1:3], strides, filters.shape[2:], strict=True)
    ]
    excess = [size - wanted for size, wanted in zip(reach, one.result()[1:3], strict=True)]
    begins = [max(size, 0) // 2 for size in excess]
    ends = [max(size, 0) - begin for size, begin in zip(excess, begins, strict=True)]
    inputs = [one.planes(2), one.constant(filters)]
    if one.is_given(3):
        inputs.append(one.natural(3))
    made = one.add(
        "ConvTranspose", inputs, strides=strides, pads=[*begins, *ends],
        output_padding=[max(-size, 0) for size in excess],
    )  # fmt: skip
    one.finish(one.activate(made), planes=True)


def _convert_pool(kind: str, one: FloatOperation) -> None:
    options = one.options
    kernel = options.filterHeight, options.filterWidth
    strides = options.strideH, options.strideW
    pads = _pads(one, (kernel, strides, (1, 1)))
    made = one.add(kind, [one.planes(0)], kernel_shape=kernel, strides=strides, pads=pads)
    one.finish(one.activate(made), planes=True)


def _convert_resize(mode: str, one: FloatOperation) -> None:
    options = one.options
    coordinates = (
        "align_corners"
        if options.alignCorners
        else "half_pixel"
        if options.halfPixelCenters
        else "asymmetric"
    )
    exact = options.alignCorners or options.halfPixelCenters
    height, width = one.result()[1:3]
    sizes = np.array([one.shape(0)[0], one.shape(0)[3], height, width], np.int64)
    made = one.add(
        "Resize", [one.planes(0), "", "", one.constant(sizes)], mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode="round_prefer_ceil" if exact else "floor",
    )  # fmt: skip
    one.finish(made, planes=True)


def _convert_blocks(kind: str, one: FloatOperation) -> None:
    made = one.add(kind, [one.planes(0)], blocksize=one.options.blockSize)
    one.finish(made, planes=True)


def _convert_unary(kind: str, one: FloatOperation, *limits: float, **attributes: Any) -> None:
    planes = one.is_planar([0])
    operands = one.operands([0], planes=planes)
    operands += [one.constant(np.array(limit, np.float32)) for limit in limits]
    one.finish(one.add(kind, operands, **attributes), planes=planes)


def _convert_binary(kind: str, one: FloatOperation) -> None:
    planes = one.is_planar([0, 1])
    made = one.add(kind, one.operands([0, 1], planes=planes))
    one.finish(one.activate(made), planes=planes)


def _convert_squared_difference(one: FloatOperation) -> None:
    planes = one.is_planar([0, 1])
    difference = one.add("Sub", one.operands([0, 1], planes=planes))
    one.finish(one.add("Mul", [difference, difference]), planes=planes)


def _convert_square(one: FloatOperation) -> None:
    planes = one.is_planar([0])
    name = one.operands([0], planes=planes)[0]
    one.finish(one.add("Mul", [name, name]), planes=planes)


def _convert_inverse_root(one: FloatOperation) -> None:
    planes = one.is_planar([0])
    root = one.add("Sqrt", one.operands([0], planes=planes))
    one.finish(one.add("Reciprocal", [root]), planes=planes)


def _convert_leaky_relu(one: FloatOperation) -> None:
    _convert_unary("LeakyRelu", one, alpha=one.options.alpha)


def _convert_gelu(one: FloatOperation) -> None:
    _convert_unary("Gelu", one, approximate="tanh" if one.options.approximate else "none")


def _convert_softmax(one: FloatOperation) -> None:
    name = one.natural(0)
    if one.options.beta != 1:
        name = one.add("Mul", [name, one.constant(np.array(one.options.beta, np.float32))])
    one.finish(one.add("Softmax", [name], axis=-1))


def _convert_cast(one: FloatOperation) -> None:
    _convert_unary("Cast", one, to=np_dtype_to_tensor_dtype(one.result_dtype()))


def _convert_widening(one: FloatOperation) -> None:
    """Convert DEQUANTIZE of a computed float16 tensor."""
    _convert_unary("Cast", one, to=TensorProto.FLOAT)


def _convert_shape(kind: str, one: FloatOperation) -> None:
    shape = one.constant(np.array(one.result(), np.int64))
    one.finish(one.add(kind, [one.natural(0), shape]))


def _convert_transpose(one: FloatOperation) -> None:
    order = [int(axis) for axis in one.parameter(1, "permutation").reshape(-1)]
    one.finish(one.add("Transpose", [one.natural(0)], perm=order))


def _convert_pad(one: FloatOperation) -> None:
    pads = one.parameter(1, "padding").astype(np.int64)
    planes = one.is_planar([0])
    ordered = pads[list(CHANNELS_FIRST)] if planes else pads
    inputs = [*one.operands([0], planes=planes), one.constant(ordered.transpose().reshape(-1))]
    if one.kind == "PADV2":
        inputs.append(one.constant(one.parameter(2, "filling").reshape(())))
    mode = "constant"
    if one.kind == "MIRROR_PAD":
        mode = "reflect"
        if one.options.mode:
            raise InputError("MIRROR_PAD with mode SYMMETRIC has no ONNX form; use REFLECT")
    one.finish(one.add("Pad", inputs, mode=mode), planes=planes)


def _convert_concatenation(one: FloatOperation) -> None:
    positions = range(one.count)
    planes = one.is_planar(positions)
    axis = one.options.axis % len(one.result())
    axis = CHANNELS_FIRST.index(axis) if planes else axis
    made = one.add("Concat", one.operands(positions, planes=planes), axis=axis)
    one.finish(one.activate(made), planes=planes)


def _convert_pack(one: FloatOperation) -> None:
    axis = one.options.axis % len(one.result())
    shape = list(one.result())
    shape[axis] = 1
    parts = [
        one.add("Reshape", [one.natural(position), one.constant(np.array(shape, np.int64))])
        for position in range(one.count)
    ]
    one.finish(one.add("Concat", parts, axis=axis))


def _slice(one: FloatOperation, source: str, bounds: Sequence[tuple[int, int, int, int]]) -> str:
    """Add a Slice with bounds (axis, start, end, step)."""
    axes, starts, ends, steps = (
        one.constant(np.array(column, np.int64)) for column in zip(*bounds, strict=True)
    )
    return one.add("Slice", [source, starts, ends, axes, steps])


def _convert_unpack(one: FloatOperation) -> None:
    axis = one.options.axis % len(one.shape(0))
    shape = one.constant(np.array(one.result(), np.int64))
    for number in range(one.results):
        part = _slice(one, one.natural(0), [(axis, number, number + 1, 1)])
        one.finish(one.add("Reshape", [part, shape]), number=number)


def _convert_slice(one: FloatOperation) -> None:
    begins = one.parameter(1, "begin").reshape(-1).tolist()
    bounds = [
        (axis, begin, begin + size, 1)
        for axis, (begin, size) in enumerate(zip(begins, one.result(), strict=True))
    ]
    one.finish(_slice(one, one.natural(0), bounds))


def _convert_strided_slice(one: FloatOperation) -> None:
    begins, ends, steps = (
        one.parameter(position, "bound").reshape(-1).tolist() for position in (1, 2, 3)
    )
    options = one.options
    if options.ellipsisMask or options.newAxisMask:
        raise InputError("STRIDED_SLICE with an ellipsis or a new axis cannot be converted to ONNX")
    bounds = []
    for axis, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        bit = 1 << axis
        if options.shrinkAxisMask & bit:
            last = begin + 1 if begin != -1 else _FAR
            bounds.append((axis, begin, last, 1))
            continue
        far = _FAR if step > 0 else -_FAR
        bounds.append(
            (
                axis,
                -far if options.beginMask & bit else begin,
                far if options.endMask & bit else end,
                step,
            )
        )
    made = _slice(one, one.natural(0), bounds)
    shape = one.constant(np.array(one.result(), np.int64))
    one.finish(one.add("Reshape", [made, shape]))


_FAR = 1 << 40
"""Bound of a slice beyond every tensor."""


def _convert_split(operand: int, one: FloatOperation) -> None:
    """Convert SPLIT or SPLIT_V, whose axis is operand 0 or 2."""
    axis = int(one.parameter(0 if operand else 2, "axis").reshape(-1)[0])
    axis %= len(one.shape(operand))
    sizes = [one.result(number)[axis] for number in range(one.results)]
    name = one.add(
        "Split", [one.natural(operand), one.constant(np.array(sizes, np.int64))], one.results,
        axis=axis,
    )  # fmt: skip
    for number in range(one.results):
        one.finish(f"{name}_{number}" if number else name, number=number)


def _convert_tile(one: FloatOperation) -> None:
    repeats = one.constant(one.parameter(1, "repeats").astype(np.int64))
    one.finish(one.add("Tile", [one.natural(0), repeats]))


def _convert_gather(one: FloatOperation) -> None:
    if one.options.batchDims:
        raise InputError("GATHER with batch dimensions cannot be converted to ONNX")
    axis = one.options.axis % len(one.shape(0))
    one.finish(one.add("Gather", [one.natural(0), one.natural(1)], axis=axis))


def _convert_reduction(kind: str, one: FloatOperation) -> None:
    axes = [int(axis) % len(one.shape(0)) for axis in one.parameter(1, "axes").reshape(-1).tolist()]
    keep = bool(one.options.keepDims)
    planes = keep and one.is_planar([0])
    ordered = [CHANNELS_FIRST.index(axis) for axis in axes] if planes else axes
    names = [*one.operands([0], planes=planes), one.constant(np.array(ordered, np.int64))]
    one.finish(one.add(kind, names, keepdims=int(keep)), planes=planes)


def _convert_search(kind: str, one: FloatOperation) -> None:
    axis = int(one.parameter(1, "axis").reshape(-1)[0])
    found = one.add(kind, [one.natural(0)], axis=axis, keepdims=0)
    one.finish(one.add("Cast", [found], to=np_dtype_to_tensor_dtype(one.result_dtype())))


def _convert_inequality(one: FloatOperation) -> None:
    planes = one.is_planar([0, 1])
    equal = one.add("Equal", one.operands([0, 1], planes=planes))
    one.finish(one.add("Not", [equal]), planes=planes)


def _convert_selection(one: FloatOperation) -> None:
    """Convert SELECT or SELECT_V2; a condition of rank one in SELECT selects slices."""
    if one.kind == "SELECT" and len(one.shape(0)) == 1 < len(one.result()):
        shape = np.array([one.shape(0)[0]] + [1] * (len(one.result()) - 1), np.int64)
        condition = one.add("Reshape", [one.natural(0), one.constant(shape)])
        one.finish(one.add("Where", [condition, *one.operands([1, 2], planes=False)]))
        return
    planes = one.is_planar([0, 1, 2])
    one.finish(one.add("Where", one.operands([0, 1, 2], planes=planes)), planes=planes)


def _convert_branches(one: FloatOperation) -> None:
    """Convert IF to the operators of both branches, and Where."""
    branches = [
        one.branch(number, CONVERTERS)
        for number in (one.options.thenSubgraphIndex, one.options.elseSubgraphIndex)
    ]
    for number, names in enumerate(zip(*branches, strict=True)):
        one.finish(one.add("Where", [one.natural(0), *names]), number=number)


def _convert_fully_connected(one: FloatOperation) -> None:
    weights = one.parameter(1, "weights")
    name = one.natural(0)
    rows = prod(one.shape(0)) // weights.shape[1]
    if one.shape(0) != (rows, weights.shape[1]):
        shape = one.constant(np.array([rows, weights.shape[1]], np.int64))
        name = one.add("Reshape", [name, shape])
    inputs = [name, one.constant(weights)]
    if one.is_given(2):
        inputs.append(one.natural(2))
    made = one.activate(one.add("Gemm", inputs, transB=1))
    if one.result() != (rows, weights.shape[0]):
        made = one.add("Reshape", [made, one.constant(np.array(one.result(), np.int64))])
    one.finish(made)


def _convert_product(one: FloatOperation) -> None:
    """Convert BATCH_MATMUL; either operand may be transposed."""
    names = []
    for position, turned in enumerate((one.options.adjX, one.options.adjY)):
        name = one.natural(position)
        if turned:
            order = list(range(len(one.shape(position))))
            order[-2:] = order[-1], order[-2]
            name = one.add("Transpose", [name], perm=order)
        names.append(name)
    one.finish(one.add("MatMul", names))


CONVERTERS: Mapping[str, Convert] = {
    **{
        kind: partial(_convert_unary, operator)
        for kind, operator in {
            "RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "ELU": "Elu", "ABS": "Abs",
            "HARD_SWISH": "HardSwish", "NEG": "Neg", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt",
            "SIN": "Sin", "COS": "Cos", "FLOOR": "Floor", "CEIL": "Ceil", "ROUND": "Round",
            "LOGICAL_NOT": "Not",
        }.items()
    },
    **{
        kind: partial(_convert_binary, operator)
        for kind, operator in {
            "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "POW": "Pow",
            "MAXIMUM": "Max", "MINIMUM": "Min", "PRELU": "PRelu",
            "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual",
            "LESS": "Less", "LESS_EQUAL": "LessOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or",
        }.items()
    },
    **{
        kind: partial(_convert_reduction, operator)
        for kind, operator in {
            "MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_MAX": "ReduceMax",
            "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd",
        }.items()
    },
    "RELU6": lambda one: _convert_unary("Clip", one, 0.0, 6.0),
    "RELU_N1_TO_1": lambda one: _convert_unary("Clip", one, -1.0, 1.0),
    "RELU_0_TO_1": lambda one: _convert_unary("Clip", one, 0.0, 1.0),
    "LEAKY_RELU": _convert_leaky_relu,
    "GELU": _convert_gelu,
    "SQUARE": _convert_square,
    "RSQRT": _convert_inverse_root,
    "SQUARED_DIFFERENCE": _convert_squared_difference,
    "SOFTMAX": _convert_softmax,
    "LOG_SOFTMAX": lambda one: one.finish(one.add("LogSoftmax", [one.natural(0)], axis=-1)),
    "CAST": _convert_cast,
    "DEQUANTIZE": _convert_widening,
    "CONV_2D": partial(_convert_convolution, (0, 3, 1, 2)),
    "DEPTHWISE_CONV_2D": partial(_convert_convolution, (3, 0, 1, 2)),
    "TRANSPOSE_CONV": _convert_transposed_convolution,
    "AVERAGE_POOL_2D": partial(_convert_pool, "AveragePool"),
    "MAX_POOL_2D": partial(_convert_pool, "MaxPool"),
    "RESIZE_BILINEAR": partial(_convert_resize, "linear"),
    "RESIZE_NEAREST_NEIGHBOR": partial(_convert_resize, "nearest"),
    "DEPTH_TO_SPACE": partial(_convert_blocks, "DepthToSpace"),
    "SPACE_TO_DEPTH": partial(_convert_blocks, "SpaceToDepth"),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), partial(_convert_shape, "Reshape")),
    "TRANSPOSE": _convert_transpose,
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), _convert_pad),
    "CONCATENATION": _convert_concatenation,
    "PACK": _convert_pack,
    "UNPACK": _convert_unpack,
    "SLICE": _convert_slice,
    "STRIDED_SLICE": _convert_strided_slice,
    "SPLIT": partial(_convert_split, 1),
    "SPLIT_V": partial(_convert_split, 0),
    "TILE": _convert_tile,
    "BROADCAST_TO": partial(_convert_shape, "Expand"),
    "GATHER": _convert_gather,
    "ARG_MAX": partial(_convert_search, "ArgMax"),
    "ARG_MIN": partial(_convert_search, "ArgMin"),
    "NOT_EQUAL": _convert_inequality,
    **dict.fromkeys(("SELECT", "SELECT_V2"), _convert_selection),
    "IF": _convert_branches,
    "FULLY_CONNECTED": _convert_fully_connected,
    "BATCH_MATMUL": _convert_product,
}  # fmt: skip
"""Conversion to ONNX nodes by TensorFlow Lite operator."""
