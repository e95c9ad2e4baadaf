"""Rewrite models before a session is made to avoid known errors of ONNX Runtime; no value changes.

Products: without VNNI instructions it adds pairs of uint8 × int8 products in 16 bits, with
saturation. Products of two uint8 or two int8 operands are exact on every processor. The int8
operand of each mixed product is therefore replaced by the same operand plus 128, as uint8, with a
zero point that is 128 higher. Every processor then computes the same.

Averages: QLinearAveragePool counts padding wrongly if windows end beyond it. Such a pool stays in
float. With channels last, an empty result ends the process; such a pool is computed with channels
first, where it raises an error.

Float weights that multiply a quantised tensor are rounded to int8. They stay in float.

Dequantised tensors without a zero point: their products stay in float, which rounds some ties
differently. They get a zero point of 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.runtimes.protobuf import (
    all_nodes,
    array_of,
    attributes,
    bodies,
    copy_node,
    keep_nodes,
    make_unused_name,
    names_of,
    set_attributes,
    set_items,
    shapes_of,
    types_of,
    use_counts,
)

SIGNED = TensorProto.INT8
UNSIGNED = TensorProto.UINT8
OFFSET = 128


def has_ending_pool(graph: GraphProto) -> bool:
    """Return True if a graph has a pool that could end the process with channels last.

    An optimiser might move its channels.
    """
    return any(node.op_type == "QLinearAveragePool" for node in all_nodes(graph))


class MixedProduct(NamedTuple):
    """Input positions of an operator whose int8 products saturate in ONNX Runtime.

    ``unsigned`` is the uint8 operand, None if the operator itself quantises it to uint8. ``signed``
    is the int8 operand. Operators with integer operands also have its ``zero`` point and ``scale``.
    """

    unsigned: int | None
    signed: int
    zero: int | None = None
    scale: int | None = None


PRODUCTS = {
    **dict.fromkeys(("Conv", "MatMul", "Gemm"), (MixedProduct(0, 1),)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm"), (MixedProduct(0, 3, 5, 4),)),
    "MatMulInteger": (MixedProduct(0, 1, 3),),
    "MatMulIntegerToFloat": (MixedProduct(0, 1, 5, 3),),
    "ConvInteger": (MixedProduct(1, 0, 2),),  # its kernel multiplies the filters by the data
    "DynamicQuantizeMatMul": (MixedProduct(None, 1, 3, 2),),
    "DynamicQuantizeLSTM": (MixedProduct(None, 1, 9, 8), MixedProduct(None, 2, 11, 10)),
    "QAttention": (MixedProduct(0, 1, 7, 4),),
}
"""Operators whose mixed products saturate.

Measured with onnxruntime 1.32 on a processor with AVX2 and without VNNI.
"""

VIEWS = frozenset(
    {
        "Identity",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Slice",
        "Gather",
        "MaxPool",
        "Expand",
    }
)
"""Operators that only select elements of one operand.

ONNX Runtime moves a DequantizeLinear past some of them.
"""
TYPE_KEEPING = VIEWS | {
    *(
        "Concat",
        "Split",
        "Pad",
        "Tile",
        "Where",
        "Max",
        "Min",
        "Clip",
        "Resize",
        "DepthToSpace",
        "SpaceToDepth",
    ),
    *("GatherND", "GatherElements", "ScatterND", "ScatterElements", "ReverseSequence"),
    *("NhwcMaxPool", "QGemm", DEQUANTIZE),
}
"""Operators whose result has the 8-bit type of their operand.

A dequantised tensor counts as its integers' type.
"""


def avoid_saturation(
    graph: GraphProto, constants: Mapping[str, TensorProto], *, every: bool = False
) -> list[TensorProto]:
    """Replace the int8 operands of mixed products in ``graph`` with uint8 ones.

    Args:
        graph: the graph that is changed, bodies included.
        constants: initialisers by name that the graph reads and does not contain.
        every: also replace constants multiplied by int8 data, for sessions that make that uint8.

    Returns:
        The constants that the changed graph reads in addition.
    """
    rewriter = _Rewriter(graph, every)
    rewriter.rewrite(
        graph, constants, {name: tensor.data_type for name, tensor in constants.items()}, {}
    )
    return rewriter.added


def consumers_against_fusion(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield nodes whose results must become outputs, to prevent fusion of their operands."""
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    taken = names_of(graph)
    shapes = shapes_of(graph)
    producers: dict[str, NodeProto] = {}
    for node in graph.node:
        producers |= dict.fromkeys(node.output, node)
        if _is_padding_miscounted(node, shapes, producers) or _has_float_weights(
            node, types, producers
        ):
            yield helper.make_node(
                "Identity",
                [node.output[0]],
                [make_unused_name(f"{node.output[0]}_in_float", taken)],
            )


def _is_padding_miscounted(
    node: NodeProto, shapes: Mapping[str, tuple[int, ...]], producers: Mapping[str, NodeProto]
) -> bool:
    """Return True if a pool that counts padding has windows that end beyond its padding.

    Rounding the pool's size up makes such windows.
    """
    options = attributes(node) if node.op_type == "AveragePool" else {}
    if not (options.get("ceil_mode") and options.get("count_include_pad")):
        return False
    name = node.input[0]
    if name in producers and producers[name].op_type == DEQUANTIZE:
        name = producers[name].input[0]
    sizes = shapes.get(name, ())[2:]
    kernel = options["kernel_shape"]
    if len(sizes) != len(kernel) or options.get("auto_pad", b"NOTSET") != b"NOTSET":
        return True
    ones = [1] * len(kernel)
    windows = zip(
        sizes,
        kernel,
        options.get("strides", ones),
        options.get("dilations", ones),
        np.sum(np.reshape(options.get("pads", [0, 0] * len(kernel)), (2, -1)), axis=0),
        strict=True,
    )
    return any(
        (size + pad - dilation * (taps - 1) - 1) % stride
        for size, taps, stride, dilation, pad in windows
    )


def _has_float_weights(
    node: NodeProto, types: Mapping[str, int], producers: Mapping[str, NodeProto]
) -> bool:
    if (
        node.op_type not in ("Conv", "ConvTranspose", "Gemm")
        or types.get(node.input[1]) != TensorProto.FLOAT
    ):
        return False
    return any(origin.op_type == DEQUANTIZE for origin in _path(node.input[0], producers))


class _Rewriter:
    """State while one model is rewritten: names in use and constants that were added."""

    def __init__(self, graph: GraphProto, every: bool) -> None:
        self.added: list[TensorProto] = []
        self._every = every
        self._moved: dict[str, str] = {}
        self._constants: dict[str, TensorProto] = {}
        self._names = names_of(graph)

    def rewrite(
        self,
        graph: GraphProto,
        constants: Mapping[str, TensorProto],
        types: Mapping[str, int],
        producers: Mapping[str, NodeProto],
    ) -> None:
        """Rewrite a graph or body, given ``types`` and ``producers`` of the graphs around it."""
        types = {**types, **types_of(graph)}
        producers = dict(producers)
        given = {value.name for value in graph.input}
        local = {**constants, **{tensor.name: tensor for tensor in graph.initializer}}
        self._constants |= {name: tensor for name, tensor in local.items() if name not in given}
        self._names.update(local)
        nodes: list[NodeProto] = []
        for node in graph.node:
            for body in bodies(node):
                self.rewrite(body, {}, types, producers)
            self._add_zero_point(node, types)
            for product in PRODUCTS.get(node.op_type, ()):
                if self._is_mixed(node, product, types):
                    nodes += self._replace(node, product, producers)
            nodes += self._move_channels_first(node)
            producers |= dict.fromkeys(node.output, node)
            self._note_types(node, types)
        if len(nodes) > len(graph.node):
            set_items(graph.node, nodes)
            _remove_unread(graph)

    def _move_channels_first(self, node: NodeProto) -> Sequence[NodeProto]:
        """Convert a QLinearAveragePool with channels last to one between two Transposes."""
        options = attributes(node)
        if node.op_type != "QLinearAveragePool" or not options.get("channels_last"):
            return (node,)
        pool = copy_node(node)
        rank = len(options["kernel_shape"]) + 2
        names = [
            make_unused_name(f"{name}_channels_first", self._names)
            for name in (node.input[0], node.output[0])
        ]
        pool.input[0], pool.output[0] = names
        set_attributes(pool, "channels_last")
        first = [0, rank - 1, *range(1, rank - 1)]
        last = [0, *range(2, rank), 1]
        return (
            helper.make_node("Transpose", node.input[:1], names[:1], perm=first),
            pool,
            helper.make_node("Transpose", names[1:], node.output[:1], perm=last),
        )

    def _is_mixed(self, node: NodeProto, product: MixedProduct, types: Mapping[str, int]) -> bool:
        unsigned, signed, zero, _ = product
        if types.get(_input(node, signed)) != SIGNED:
            return False
        if unsigned is None or types.get(_input(node, unsigned)) == UNSIGNED:
            return True
        return self._every and zero is None and types.get(_input(node, unsigned)) == SIGNED

    def _add_zero_point(self, node: NodeProto, types: Mapping[str, int]) -> None:
        """Give a DequantizeLinear of 8-bit integers without a zero point the zero point 0."""
        if (
            node.op_type != DEQUANTIZE
            or _input(node, 2)
            or types.get(node.input[0]) not in (SIGNED, UNSIGNED)
        ):
            return
        scale = self._constants.get(node.input[1])
        if scale is not None:
            dtype = np.int8 if types[node.input[0]] == SIGNED else np.uint8
            node.input[:] = [
                *node.input[:2],
                self._add("zero_point", np.zeros(tuple(scale.dims), dtype)),
            ]

    def _note_types(self, node: NodeProto, types: dict[str, int]) -> None:
        """Record the 8-bit types of a node's results, and its result if it is a constant."""
        found = [types[name] for name in node.input if types.get(name) in (SIGNED, UNSIGNED)]
        kind = None
        if node.op_type == QUANTIZE:
            zero = _input(node, 2)
            kind = types.get(zero) if zero else attributes(node).get("output_dtype") or UNSIGNED
        elif node.op_type == "DynamicQuantizeLinear":
            kind = UNSIGNED
        elif node.op_type == "Cast":
            kind = attributes(node)["to"]
        elif node.op_type == "Constant":
            tensor = attributes(node).get("value")
            if isinstance(tensor, TensorProto):
                kind = tensor.data_type
                self._constants[node.output[0]] = tensor
        elif found and (node.op_type in TYPE_KEEPING or node.op_type.startswith("QLinear")):
            kind = found[0]
        if kind is not None:
            types |= dict.fromkeys(node.output, kind)

    def _replace(
        self, node: NodeProto, product: MixedProduct, producers: Mapping[str, NodeProto]
    ) -> Iterator[NodeProto]:
        """Make the int8 operand of ``node`` uint8; yield the nodes to insert before it."""
        if product.zero is not None:
            yield from self._move_input(node, product.signed, product.zero, product.scale)
            return
        path = list(_path(node.input[product.signed], producers))
        if not path or path[-1].op_type != DEQUANTIZE:
            return
        name = ""
        for origin in reversed(path):
            copy = copy_node(origin)
            if name:
                copy.input[0] = name
            else:
                yield from self._move_input(copy, 0, 2, 1)
            name = copy.output[0] = make_unused_name(f"{origin.output[0]}_uint8", self._names)
            copy.name = make_unused_name(f"{origin.name}_uint8", self._names) if origin.name else ""
            yield copy
        node.input[product.signed] = name

    def _move_input(
        self, node: NodeProto, position: int, zero: int, scale: int | None
    ) -> Iterator[NodeProto]:
        """Convert an int8 input of a node and its zero point to uint8.

        Yields the nodes that compute them.
        """
        node.input.extend([""] * (zero + 1 - len(node.input)))
        if not node.input[zero]:
            of_scale = None if scale is None else self._constants.get(node.input[scale])
            shape = () if of_scale is None else tuple(of_scale.dims)
            node.input[zero] = self._add("zero_point_uint8", np.full(shape, OFFSET, np.uint8))
        else:
            yield from self._move(node, zero)
        yield from self._move(node, position)

    def _move(self, node: NodeProto, position: int) -> Iterator[NodeProto]:
        """Convert an int8 input of a node to uint8 by adding 128.

        A constant is replaced; for other inputs, the nodes that convert are yielded.
        """
        name = node.input[position]
        tensor = self._constants.get(name)
        if tensor is None:
            signed, offset, moved = (
                make_unused_name(f"{name}_{kind}", self._names)
                for kind in ("int32", "offset", "uint8")
            )
            yield helper.make_node("Cast", [name], [signed], to=TensorProto.INT32)
            yield helper.make_node("Add", [signed, self._add("offset", np.int32(OFFSET))], [offset])
            yield helper.make_node("Cast", [offset], [moved], to=UNSIGNED)
            node.input[position] = moved
            return
        if name not in self._moved:
            self._moved[name] = self._add(
                f"{name}_uint8", array_of(tensor).view(np.uint8) ^ np.uint8(OFFSET)
            )
        node.input[position] = self._moved[name]

    def _add(self, name: str, array: NDArray[np.generic] | np.generic) -> str:
        tensor = numpy_helper.from_array(np.asarray(array), make_unused_name(name, self._names))
        self.added.append(tensor)
        return tensor.name


def _input(node: NodeProto, position: int) -> str:
    return node.input[position] if position < len(node.input) else ""


def _path(name: str, producers: Mapping[str, NodeProto]) -> Iterator[NodeProto]:
    """Yield the nodes from a tensor's producer back to the first node that is not a view.

    That node is included.
    """
    while name in producers:
        yield producers[name]
        if producers[name].op_type not in VIEWS:
            return
        name = producers[name].input[0]


def _remove_unread(graph: GraphProto) -> None:
    """Remove dequantised operands that no node reads any more."""
    uses = use_counts(graph)
    for node in reversed(graph.node):
        if node.op_type in VIEWS | {DEQUANTIZE} and not any(uses[name] for name in node.output):
            uses.subtract(node.input)
    keep_nodes(
        graph,
        lambda node: (
            node.op_type not in VIEWS | {DEQUANTIZE} or any(uses[name] for name in node.output)
        ),
    )
