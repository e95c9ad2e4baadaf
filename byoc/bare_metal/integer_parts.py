"""C calls for integer nodes that the accelerator could compute but the CPU does.

They are convolutions, matrix products and softmax. Their numbers come from the operator's record in
the int8 domain, so that C computes what the accelerator would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.bare_metal.calls import (
    BufferArgument,
    CArgument,
    CCall,
    ConstantArgument,
    StructArgument,
    c_float,
    to_bytes,
)
from byoc.graph import Graph, Node
from byoc.operators.convolution import ConvRecord
from byoc.operators.matmul_rules import MatMulRecord
from byoc.operators.products import RequantiseConstants
from byoc.operators.registry import find_family
from byoc.operators.rows import Softmax, fold_axes
from byoc.operators.rules import Refusal
from isa import numerics
from isa.errors import InputError


def translate_integer_node(graph: Graph, node: Node) -> tuple[CCall, ...]:
    """Return the calls of a product or softmax node, or none for other nodes.

    Raises InputError with the reason if a number of the node is too wide.
    """
    family = find_family(graph, node)
    if isinstance(family, Refusal) or family.family not in _TRANSLATORS:
        return ()
    return _TRANSLATORS[family.family](graph, node, family.parse(graph, node))


def _convolve(graph: Graph, node: Node, record: ConvRecord) -> tuple[CCall, ...]:
    kernels = record.weights.reshape(len(record.weights), -1)
    bias = record.bias + record.input_zero_point * kernels.sum(1, dtype=np.int64)
    window = record.weights.shape[2:]
    fields = (
        record.batch, record.group, record.weights.shape[1], len(kernels) // record.group,
        *record.source_plane[1:], *record.result_plane[1:], *window, *record.strides,
        *record.dilations, *record.pads[:2], kernels.shape[1], math.prod(window),
        record.input_zero_point, 0,
    )  # fmt: skip
    ends = (BufferArgument(record.source), BufferArgument(record.result, written=True))
    return (_call_product(graph, ends, kernels, bias, record.requantise, fields),)


def _multiply(graph: Graph, node: Node, record: MatMulRecord) -> tuple[CCall, ...]:
    if record.left is not None or len(record.bias) > 1:
        return ()
    m, k, n = record.sizes
    calls: list[CCall] = []
    for number, (first, second) in enumerate(record.matrices):
        weights: NDArray[Any] | BufferArgument
        weights = BufferArgument(record.sources[1], offset=second * k * n)
        if record.right is not None:
            weights = record.right.stack[second].T
        dense = record.right is not None or record.node.attributes.get("transB")
        steps = (k, 1) if dense else (1, n)
        fields = (m, 1, k, n, *[1] * 10, 0, 0, *steps, *record.zero_points)
        ends = (
            BufferArgument(record.sources[0], offset=first * m * k),
            BufferArgument(record.result, written=True, offset=number * m * n),
        )
        how = record.requantise
        calls.append(_call_product(graph, ends, weights, record.bias[0], how, fields))
    return tuple(calls)


def _call_product(
    graph: Graph,
    ends: tuple[BufferArgument, BufferArgument],
    weights: NDArray[Any] | BufferArgument,
    bias: NDArray[np.int64],
    how: RequantiseConstants | None,
    fields: tuple[int, ...],
) -> CCall:
    """Return the call of a product; raise InputError if a number of it is too wide.

    ``ends`` are its input and its result.
    """
    flips = [_flip(graph, one.name) for one in ends]
    second: BufferArgument | ConstantArgument
    if isinstance(weights, BufferArgument):
        second = weights
        flips.insert(1, _flip(graph, weights.name))
        most = np.int64(255 * 255 * fields[2])
    else:
        stored = weights.astype(np.int8)
        second = ConstantArgument(to_bytes(stored))
        flips.insert(1, 0)
        most = np.abs(bias).max() + 255 * np.abs(weights.astype(np.int64)).sum(1).max()
        if (stored != weights).any():
            raise InputError("its weights minus their zero point need more than 8 bits")
    if how is None:
        raise InputError("its results are sums of 32 bits; quantise them")
    if most > np.iinfo(np.int32).max:
        raise InputError("its sums may need more than 32 bits; reduce its bias or its weights")
    scales = how.scales.rounded
    limits = (how.zero_point, how.low, how.high)
    arguments = (
        ends[1],
        ends[0],
        second,
        ConstantArgument(to_bytes(np.broadcast_to(bias, scales.shape).astype("<i4")), "int32_t"),
        ConstantArgument(to_bytes(scales), "float"),
        StructArgument("dla_product", (*fields, *limits, *flips)),
    )
    return CCall("dla_multiply", arguments)


def _normalise(graph: Graph, node: Node, records: tuple[Softmax, ...]) -> tuple[CCall, ...]:
    record = records[0]
    if not record.finite:
        return ()
    source, result = node.inputs[0], node.outputs[0]
    shape = fold_axes(graph.values[source].shape, node.attributes["axes"])
    assert shape is not None
    table = numerics.softmax_table(record.input_scale, record.count)
    arguments: tuple[CArgument, ...] = (
        BufferArgument(result, written=True),
        BufferArgument(source),
        ConstantArgument(to_bytes(table), "float"),
        *(f"{size}u" for size in shape),
        c_float(float(numerics.softmax_factor(record.output_scale))),
        str(record.output_zero_point),
        *(f"{_flip(graph, name)}u" for name in (source, result)),
    )
    return (CCall("dla_softmax", arguments),)


def _flip(graph: Graph, name: str) -> int:
    """Return the bits that differ between a byte and its int8 form on the accelerator."""
    return 0x80 if graph.values[name].dtype == "uint8" else 0


_TRANSLATORS: Mapping[str, Callable[[Graph, Node, Any], tuple[CCall, ...]]] = {
    "convolution": _convolve,
    "matmul": _multiply,
    "softmax": _normalise,
}
"""Functions by operator family; each takes the family's record of a node."""
