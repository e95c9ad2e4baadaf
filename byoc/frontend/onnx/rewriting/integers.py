"""Extend integer arithmetic to the operators that ONNX Runtime computes in integers.

A DequantizeLinear moves down through operators that only move elements, and a QuantizeLinear moves
up. The movement is then of integers, and the operator next to it becomes an integer operator. Float
biases of quantised products become int32.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.law import (
    GraphView,
    NodeWriter,
    look_at,
    walk_model,
    write_operators,
)
from byoc.operators.elementwise import equal_types
from byoc.operators.movement import FORMS
from byoc.operators.onnx_view import CARRIERS, DEQUANTIZE, QUANTIZE
from byoc.operators.registry import load_installed_families
from byoc.runtimes.protobuf import ConstantArrays, attributes, copy_node, set_attributes, standard
from isa.numerics import steps

_MOVERS = frozenset(form.onnx for form in FORMS if form.carried == "integers")
_BYTES = (TensorProto.INT8, TensorProto.UINT8)
_UNPACKED: Mapping[int, type[np.integer[Any]]] = {
    **dict.fromkeys((TensorProto.INT4, TensorProto.INT2), np.int8),
    **dict.fromkeys((TensorProto.UINT4, TensorProto.UINT2), np.uint8),
}
_COPIERS = frozenset(form.onnx for form in FORMS if form.carried == "reals")
_SELECTORS = ("Gather", "GatherElements", "GatherND")
_CHOOSERS = (*_SELECTORS, "TopK")
"""Operators that select elements of their first operand at run time."""
_BIASED = {"Conv": (2, 0), "Gemm": (2, 1)}
"""Operators with a bias: its input position, and the weights' channel axis."""


_FUNCTIONS = {"QLinearSigmoid": ("Sigmoid", (0,)), "QLinearWhere": ("Where", (1, 4))}
"""ONNX Runtime's functions of integers: the ONNX operator, and where quantised operands begin.

Each quantised operand is followed by its scale and zero point. The parameters of the result come
last.
"""


@write_operators(*_FUNCTIONS, foreign=True)
def write_out_functions(graph: GraphView, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite functions of integers as DequantizeLinear, function and QuantizeLinear.

    ONNX Runtime fuses these into the same functions of integers again.
    """
    op_type, starts = _FUNCTIONS[node.op_type]
    end = starts[-1] + 3
    # Without a zero point, QuantizeLinear produces uint8.
    if standard(node) or (
        not any(node.input[end + 1 :]) and graph.types.get(node.input[starts[0]]) != _BYTES[1]
    ):
        return None
    w = NodeWriter(graph, node)
    inputs = list(node.input[: starts[0]])
    for start in starts:
        inputs.append(w.add(DEQUANTIZE, *(name for name in node.input[start : start + 3] if name)))
    made = w.add(op_type, *inputs, label=node.name)
    w.add(QUANTIZE, made, *(name for name in node.input[end:] if name))
    return w.finish()


@write_operators(DEQUANTIZE)
def dequantise_constants(graph: GraphView, node: NodeProto) -> list[NodeProto] | None:
    """Replace dequantised constants by their real numbers, as ONNX Runtime computes them.

    With one scale, this also holds for rows of a table selected at run time: they are selected from
    the real numbers. Exact.
    """
    movers = list[NodeProto]()
    source = node.input[0]
    while source not in graph.constants:
        maker = graph.maker(source)
        if maker is None or maker.op_type not in CARRIERS or not standard(maker):
            return None
        movers.append(maker)
        source = maker.input[0]
    if any(name not in graph.constants for name in node.input if name):
        return None
    stored = graph.constants[source]
    scale = graph.constants[node.input[1]]
    zeros = (
        graph.constants[name]
        if (name := "".join(node.input[2:]))
        else np.zeros(scale.shape, np.int32)
    )
    if (
        scale.dtype != np.float32
        or stored.dtype.name.startswith("float")
        or (movers and scale.size > 1)
    ):
        return None
    spread = partial(_spread, shape=stored.shape, options=attributes(node))
    whole = stored.astype(np.int32) - spread(zeros.astype(np.int32))
    real = graph.constant(f"{source}_real", whole.astype(np.float32) * spread(scale))
    if movers:
        return _copy_movers(graph, movers[::-1], real, node.output[0])
    return [helper.make_node("Identity", [real], node.output, node.name)]


@write_operators(DEQUANTIZE)
def unpack_integers(graph: GraphView, node: NodeProto) -> list[NodeProto] | None:
    """Store dequantised constants of 2 or 4 bits in 8 bits; constants with blocks stay.

    ONNX Runtime keeps a product with such a constant in float. Exact.
    """
    wide = _UNPACKED.get(graph.types.get(node.input[0], 0))
    positions = [position for position in (0, 2) if any(node.input[position : position + 1])]
    constant = all(node.input[position] in graph.constants for position in positions)
    if wide is None or not constant or attributes(node).get("block_size"):
        return None
    made = copy_node(node)
    for position in positions:  # the integers and their zero point
        name = node.input[position]
        integers = graph.constants[name].astype(wide)
        made.input[position] = graph.constant(f"{name}_unpacked", integers)
    return [made]


def _spread(
    values: NDArray[Any], shape: tuple[int, ...], options: Mapping[str, Any]
) -> NDArray[Any]:
    """Reshape scales or zero points so that they broadcast to the tensor they quantise.

    There is one, one per channel, or one per block.
    """
    if values.size == 1:
        return values.reshape(())
    axis = int(options.get("axis", 1))
    if values.ndim > 1:
        return np.repeat(values, options.get("block_size", 1), axis).take(range(shape[axis]), axis)
    around = [1] * len(shape)
    around[axis] = values.size
    return values.reshape(around)


@look_at(QUANTIZE, DEQUANTIZE)
def move_integers(model: ModelProto) -> ModelProto:
    """Make data movement next to DequantizeLinear or QuantizeLinear copy integers, not floats.

    The pass rewrites movement between a DequantizeLinear and an operator or output, and between an
    operator or input and a QuantizeLinear. Movement between DequantizeLinear and QuantizeLinear
    stays unchanged, except for rows selected at run time. The rewrite is exact, because movement
    does not change elements. It applies to 8-bit integers with one scale, or to transposed weights.
    """
    return _raise(_sink(model))


@write_operators("Cast")
def move_casts(graph: GraphView, node: NodeProto) -> None:
    """Move the Cast of an 8-bit input to float32 behind the data movement that follows it.

    The movement then copies bytes, which is exact. Networks that read images as bytes, row by row,
    start like this. The Cast is then adjacent to the operators that become one table with it.
    """
    source = node.input[0]
    movers, _ = _find_followers(graph, node)
    given = (
        graph.maker(source) is None
        and source not in graph.constants
        and graph.types.get(source) in _BYTES
    )
    if movers and given and attributes(node)["to"] == TensorProto.FLOAT:
        moved = _copy_movers(graph, movers, source)
        back = copy_node(node)
        back.input[0] = moved[-1].output[0]
        back.output[0] = movers[-1].output[0]
        graph.replace(movers[-1], [*moved, back])


def _find_followers(graph: GraphView, node: NodeProto) -> tuple[list[NodeProto], NodeProto | None]:
    """Return the chain of data movement nodes that follows a node, and the chain's consumer."""
    movers = list[NodeProto]()
    reader = _reader(graph, node)
    while reader is not None and reader.op_type in _MOVERS:
        movers.append(reader)
        reader = _reader(graph, reader)
    return movers, reader


def _reader(graph: GraphView, node: NodeProto) -> NodeProto | None:
    """Return the only node that reads a node's result, if its operator is standard."""
    reader = None if graph.is_shown(node.output[0]) else graph.only_reader(node.output[0])
    return reader if reader is not None and standard(reader) else None


def _copy_movers(
    graph: GraphView, movers: Sequence[NodeProto], source: str, result: str = ""
) -> list[NodeProto]:
    """Copy the data movement nodes ``movers``, in order, to move the integers ``source``.

    The last produces ``result``.
    """
    nodes = [copy_node(mover) for mover in movers]
    for node in nodes:
        node.input[0] = source
        source = node.output[0] = graph.name(f"{node.output[0]}_integers")
    nodes[-1].output[0] = result or source
    return nodes


@write_operators(*_MOVERS, *_COPIERS, *_CHOOSERS)
def _sink(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Move a DequantizeLinear from before a data movement node to after it."""
    source = graph.maker(node.input[0], DEQUANTIZE)
    chooses = node.op_type == "TopK" or _is_row_selection(node, graph.constants)
    if source is None or not (
        node.op_type in _MOVERS or chooses or _is_copy(node, graph.constants)
    ):
        return None
    kind = _kind(graph, source)
    axis = _find_moved_axis(node, source, graph.constants)
    behind = graph.readers(node.output[0])
    between = behind and all(reader.op_type == QUANTIZE for reader in behind)
    # ONNX Runtime does not move other integers.
    if kind not in _BYTES or axis is None or (between and not chooses):
        return None
    (mover,) = _copy_movers(graph, [node], source.input[0])
    graph.types[mover.output[0]] = kind
    if node.op_type == "Pad":
        del mover.input[2:]
        mover.input.extend(source.input[2:3])
    back = copy_node(source)
    back.name = ""
    back.input[0] = mover.output[0]
    back.output[0] = node.output[0]
    set_attributes(back, "axis", **({"axis": axis} if axis >= 0 else {}))
    return [mover, back]


def _kind(graph: GraphView, node: NodeProto) -> int:
    """Return the integer type that a QuantizeLinear produces or a DequantizeLinear reads.

    The default is uint8.
    """
    if any(node.input[2:]):
        return graph.types.get(node.input[2], 0)
    if node.op_type == QUANTIZE:
        return attributes(node).get("output_dtype", 0) or TensorProto.UINT8
    maker = graph.maker(node.input[0], QUANTIZE)
    return graph.types.get(node.input[0], 0) if maker is None else _kind(graph, maker)


def _is_copy(node: NodeProto, constants: ConstantArrays) -> bool:
    """Return True if a node only copies elements, or pads all dimensions with 0."""
    if node.op_type not in _COPIERS:
        return False
    value, axes = (*node.input[2:], "", "")[:2]
    return node.op_type != "Pad" or (
        not axes and (not value or (value in constants and not constants[value].any()))
    )


def _is_row_selection(node: NodeProto, constants: ConstantArrays) -> bool:
    """Return True if a node selects rows of its operand by integers known only at run time."""
    return node.op_type in _SELECTORS and node.input[1] not in constants


def _find_moved_axis(node: NodeProto, source: NodeProto, constants: ConstantArrays) -> int | None:
    """Return the axis of the quantisation scales after a data movement node.

    It is -1 for one scale, None if the scales cannot move.
    """
    scale = constants.get(source.input[1])
    if scale is None or attributes(source).get("block_size", 0):
        return None
    if scale.size == 1:
        return -1
    weights = constants.get(source.input[0])
    if node.op_type != "Transpose" or weights is None:
        return None
    order = list(attributes(node).get("perm", range(weights.ndim)[::-1]))
    return order.index(int(attributes(source).get("axis", 1)) % weights.ndim)


@write_operators(QUANTIZE)
def _raise_fixed(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Move every QuantizeLinear of a tensor with a static shape as :func:`_move_before` does."""
    return _move_before(graph, node) if node.input[0] in graph.shapes else None


def _move_before(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Move a QuantizeLinear from after a data movement node to before it.

    The result of the movement must have no other consumers.
    """
    movers = list[NodeProto]()
    source = node.input[0]
    reader = node
    while graph.alone(source, reader) and (mover := graph.maker(source, *_MOVERS)) is not None:
        known = (
            mover.input[0] in graph.constants or graph.maker(mover.input[0], DEQUANTIZE) is not None
        )
        if known or not graph.alone(mover.input[0], mover):
            break
        movers.insert(0, mover)
        source = mover.input[0]
        reader = mover
    single = node.input[1] in graph.constants and graph.shapes[node.input[1]] in ((), (1,))
    if not single or _kind(graph, node) not in _BYTES:
        return None
    if not movers:
        return _move_before_concat(graph, node)
    quantize = copy_node(node)
    quantize.input[0] = source
    quantize.output[0] = graph.name(f"{source}_integers")
    return [quantize, *_copy_movers(graph, movers, quantize.output[0], node.output[0])]


_raise = write_operators(QUANTIZE)(_move_before)


def _move_before_concat(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Move a QuantizeLinear before a Concat of clamped dequantised tensors without other consumers.

    Each clamp then becomes a table. Exact, because both compute every element separately.
    """
    concat = graph.maker(node.input[0], "Concat")
    if concat is None or not graph.alone(node.input[0], node):
        return None
    clamps = [graph.maker(name, "Relu", "Clip") for name in concat.input]
    if any(clamp is None or graph.maker(clamp.input[0], DEQUANTIZE) is None for clamp in clamps):
        return None
    nodes = list[NodeProto]()
    joined = copy_node(concat)
    for position, name in enumerate(concat.input):
        made = copy_node(node)
        made.name, made.input[0], made.output[0] = "", name, graph.name(f"{name}_integers")
        joined.input[position] = made.output[0]
        nodes.append(made)
    joined.output[0] = node.output[0]
    return [*nodes, joined]


def select_integers(model: ModelProto) -> ModelProto:
    """Select and move integers on the CPU, not real numbers, between tensors that are quantised.

    Exact: a QuantizeLinear with the parameters of the DequantizeLinear gives the same integers, and
    integers have the order of the real numbers.
    """
    return _raise_fixed(_choose_integers(model))


@write_operators(*_CHOOSERS)
def _choose_integers(graph: GraphView, node: NodeProto) -> None:
    """Move a DequantizeLinear behind the run-time selection that reads it."""
    source = graph.maker(node.input[0], DEQUANTIZE)
    chooses = node.op_type == "TopK" or _is_row_selection(node, graph.constants)
    if source is None or not chooses:
        return
    scale = graph.constants.get(source.input[1])
    if scale is None or scale.size != 1 or _kind(graph, source) not in _BYTES:
        return
    (mover,) = _copy_movers(graph, [node], source.input[0])
    graph.types[mover.output[0]] = _kind(graph, source)
    back = copy_node(source)
    back.name = f"{node.name}_{DEQUANTIZE}"
    back.input[0] = mover.output[0]
    back.output[0] = node.output[0]
    graph.replace(node, [mover, back])
    for reader in list(graph.readers(back.output[0])):
        same = reader.op_type == QUANTIZE and len(reader.input) == len(source.input)
        pairs = zip(reader.input[1:], source.input[1:], strict=False)
        if same and all(one == other or graph.same_numbers(one, other) for one, other in pairs):
            rename = helper.make_node("Identity", [mover.output[0]], reader.output)
            graph.replace(reader, [rename])


@write_operators(*_SELECTORS)
def quantise_tables(graph: GraphView, node: NodeProto) -> None:
    """Quantise constant tables if the rows selected at run time are only used quantised.

    The rewrite is exact. Data movement may precede the quantisation of the rows.
    """
    table = graph.constants.get(node.input[0])
    movers, reader = _find_followers(graph, node)
    if (
        table is None
        or not _is_row_selection(node, graph.constants)
        or reader is None
        or reader.op_type != QUANTIZE
    ):
        return
    scale, zero_point = (graph.constants.get(name) for name in (*reader.input[1:], "", "")[:2])
    if scale is None or zero_point is None or scale.size != 1 or scale.dtype != np.float32:
        return
    if zero_point.dtype.kind in "iu" and table.dtype == np.float32 and np.isfinite(table).all():
        integers = steps(table, scale.reshape(()), zero_point.reshape(()), zero_point.dtype)
        name = graph.constant(f"{node.input[0]}_integers", integers)
        graph.replace(reader, _copy_movers(graph, [node, *movers], name, reader.output[0]))


@write_operators(*_BIASED)
def integer_biases(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Convert float biases of quantised products to int32 behind a DequantizeLinear.

    Each integer is ``rint(bias / float32(xs * ws))``, as in ONNX Runtime (0 of 9,600 differ). The
    bias has one number per channel, and the product's only consumer is a QuantizeLinear, possibly
    after a Relu or Clip. Model outputs do not count as consumers.
    """
    w = NodeWriter(graph, node)
    position, axis = _BIASED[node.op_type]
    data, weights = (graph.maker(name, DEQUANTIZE) for name in node.input[:2])
    bias = graph.constants.get(w.input(position))
    if data is None or weights is None or bias is None or _only_quantize(graph, node) is None:
        return None
    if w.options.get("transB", 0):
        axis = 0
    first, second = (graph.constants.get(operand.input[1]) for operand in (data, weights))
    if first is None or second is None or first.size != 1 or max(first.ndim, second.ndim) > 1:
        return None
    along = int(attributes(weights).get("axis", 1)) == axis or second.size == 1
    if bias.ndim != 1 or bias.dtype != np.float32 or not along:
        return None
    scale = np.asarray(
        first.reshape(()) * (second.reshape(()) if second.size == 1 else second), np.float32
    )
    operands = [
        w.constant(steps(bias, scale, 0, np.int32), part="bias_integers"),
        w.constant(scale, part="bias_scale"),
        w.constant(np.zeros(scale.shape, np.int32), part="bias_zero_point"),
    ]
    made = copy_node(node)
    made.input[position] = w.add(DEQUANTIZE, *operands, result=w.tensor("bias_dequantized"), axis=0)
    return [*w.nodes, made]


def _only_quantize(graph: GraphView, node: NodeProto) -> NodeProto | None:
    """Return the QuantizeLinear that alone reads a node's result, directly or after a clamp."""
    behind = list(graph.readers(node.output[0]))
    if len(behind) == 1 and behind[0].op_type in ("Relu", "Clip") and standard(behind[0]):
        behind = list(graph.readers(behind[0].output[0]))
    return behind[0] if len(behind) == 1 and behind[0].op_type == QUANTIZE else None


@look_at(QUANTIZE)
def match_types(model: ModelProto) -> ModelProto:
    """Give operators between int8 and uint8 tensors operands of the result's element type.

    ONNX Runtime computes such operators in float. Shifting integers and their zero point by 128 is
    exact, and free on the accelerator; ONNX Runtime then computes them on integers too.
    """
    return walk_model(model, lambda graph: _TypeMatcher(graph).write, _has_equal_types)


def _has_equal_types(node: NodeProto) -> bool:
    if not standard(node) or node.op_type not in load_installed_families().forms:
        return False
    family, form = load_installed_families().forms[node.op_type]
    return bool(form.weights) or equal_types in family.requirements


class _TypeMatcher:
    """Converter of 8-bit operands between int8 and uint8, to match an operator's result.

    An operand with several consumers is shifted once.
    """

    def __init__(self, graph: GraphView) -> None:
        self._graph = graph
        self._moved: dict[Hashable, str] = {}

    def write(self, node: NodeProto) -> list[NodeProto] | None:
        """Return a node with 8-bit operands converted to the element type of its result.

        Returns None if they already match.
        """
        graph = self._graph
        quantize = _only_quantize(self._graph, node)
        kind = 0 if quantize is None else _kind(graph, quantize)
        form = load_installed_families().forms[node.op_type][1]
        names = [name for name in node.input[: form.operands] if name]
        sources = {
            name: source for name in names if (source := graph.maker(name, DEQUANTIZE)) is not None
        }
        computed = {source.input[0] for source in sources.values()}.difference(graph.constants)
        is_table = (
            len(computed) < 2 and node.op_type in load_installed_families().closes.elementwise
        )
        if (
            is_table
            or kind not in _BYTES
            or any(name not in sources and name not in graph.constants for name in names)
        ):
            return None
        nodes = list[NodeProto]()
        result = copy_node(node)
        for position, name in enumerate(node.input[: form.operands]):
            # ONNX Runtime multiplies uint8 by integers of either type.
            fits = bool(form.weights) and position == 1 and kind == TensorProto.UINT8
            if name in sources and not fits and self._is_other(sources[name], kind):
                nodes += self._dequantize(sources[name], kind)
                result.input[position] = nodes[-1].output[0]
        return [*nodes, result] if nodes else None

    def _is_other(self, source: NodeProto, kind: int) -> bool:
        """Return True if a DequantizeLinear reads 8-bit integers of another type than ``kind``.

        Its scale and zero point must be constant.
        """
        constant = all(name in self._graph.constants for name in source.input[1:] if name)
        return constant and _kind(self._graph, source) in set(_BYTES) - {kind}

    def _dequantize(self, source: NodeProto, kind: int) -> list[NodeProto]:
        """Return nodes that compute the result of ``source`` from integers of type ``kind``.

        ``source`` is a DequantizeLinear.
        """
        graph = self._graph
        integers, scale, *rest = source.input
        zero = (
            graph.constants[rest[0]]
            if any(rest)
            else np.zeros(graph.constants[scale].shape, np.int8)
        )
        key = integers, kind, graph.numbers(scale), zero.tobytes()
        parameters = [scale, self._constant(f"{integers}_zero_point", zero, kind)]
        nodes = []
        if integers in graph.constants:
            self._moved[key] = self._constant(integers, graph.constants[integers], kind)
        elif key not in self._moved:
            self._moved[key] = graph.name(f"{integers}_moved")
            nodes.append(
                helper.make_node(QUANTIZE, [source.output[0], *parameters], [self._moved[key]])
            )
        back = copy_node(source)
        back.name, back.output[0] = "", graph.name(f"{source.output[0]}_moved")
        back.input[:] = [self._moved[key], *parameters]
        return [*nodes, back]

    def _constant(self, name: str, array: NDArray[Any], kind: int) -> str:
        """Convert 8-bit constants between int8 and uint8 by a shift of 128; return the name."""
        moved = (array.view(np.uint8) ^ np.uint8(128)).view(helper.tensor_dtype_to_np_dtype(kind))
        made = self._graph.constant(f"{name}_moved", moved)
        self._graph.types[made] = kind
        return made
