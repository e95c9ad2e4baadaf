"""Rewrite composite operators as elementary ones before quantisation; unknown forms stay unchanged.

Attention and RotaryEmbedding of ONNX become matrix products, sums and softmaxes. So do Attention,
MultiHeadAttention, RotaryEmbedding, FusedMatMul, BiasGelu, SkipLayerNormalization and FastGelu of
ONNX Runtime. Reductions of functions, LogSoftmax, PRelu with a slope per element, LRN, and the mean
and deviation outputs of LayerNormalization become elementary operators.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from onnx import ModelProto, NodeProto, TensorProto

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, look_at, write_operators
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.runtimes.protobuf import standard

MASKED = -1e4
"""Number added to masked scores: it makes their weights smaller than e^-9000 of any other."""
_MICROSOFT = "com.microsoft"


class _CompositeWriter(NodeWriter):
    """Writer of elementary nodes that replace one composite operator such as Attention."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self.graph.shapes

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return self.graph.constants

    def constant(
        self, values: ArrayLike, dtype: DTypeLike | None = np.float32, part: str = "constant"
    ) -> str:
        return super().constant(values, dtype, part)

    def reshape(self, name: str, shape: Sequence[int], result: str = "") -> str:
        """Add a Reshape of tensor ``name``, unless it already has that shape.

        Add the node in any case if ``result`` is given.
        """
        if self.shapes.get(name) == tuple(shape) and not result:
            return name
        made = self.add("Reshape", name, self.constant(shape, np.int64), result=result)
        self.shapes[made] = tuple(shape)
        return made

    def transpose(self, name: str, order: Sequence[int], result: str = "") -> str:
        """Add a Transpose of tensor ``name``, unless its axes already have that order.

        If ``result`` is given, the node is always added.
        """
        if list(order) == list(range(len(order))) and not result:
            return name
        made = self.add("Transpose", name, perm=list(order), result=result)
        if name in self.shapes:
            self.shapes[made] = tuple(self.shapes[name][axis] for axis in order)
        return made


def _attend(
    writer: _CompositeWriter,
    q: str,
    k: str,
    v: str,
    sizes: tuple[int, int, int],
    scale: float | None,
    masks: Sequence[str],
    attending: str = "",
) -> str:
    """Write the attention softmax(q k^T · scale + masks) v and return its name.

    Shapes are (B, H, S, d) of the result, (B, H, S, d') of q, (B, G, d', L) of k and (B, G, L, d)
    of v; ``sizes`` are H, S and L. If G is less than H, groups of consecutive heads share k and v.
    ``attending`` names factors of the rows, 0 for those that attend to nothing.
    """
    heads, rows, columns = sizes
    batch, groups, depth, _ = writer.shapes[k]
    width = writer.shapes[v][-1]
    together = heads // groups * rows
    scores = writer.add("MatMul", writer.reshape(q, (batch, groups, together, depth)), k)
    writer.shapes[scores] = (batch, groups, together, columns)
    factor = depth**-0.5 if scale is None else scale
    if factor != 1:
        scaled = writer.add("Mul", scores, writer.constant(factor))
        writer.shapes[scaled] = writer.shapes[scores]
        scores = scaled
    scores = writer.reshape(scores, (batch, heads, rows, columns))
    cap = writer.options.get("softcap", 0.0)
    if cap:
        limit = writer.constant(cap)
        scores = writer.add("Mul", writer.add("Tanh", writer.add("Div", scores, limit)), limit)
    for mask in masks:
        scores = writer.add("Add", scores, mask)
    weights = writer.add("Softmax", scores, axis=-1)
    if attending:
        weights = writer.add("Mul", weights, attending)
    writer.shapes[weights] = (batch, heads, rows, columns)
    mixed = writer.add("MatMul", writer.reshape(weights, (batch, groups, together, columns)), v)
    writer.shapes[mixed] = (batch, groups, together, width)
    return writer.reshape(mixed, (batch, heads, rows, width))


def _heads(writer: _CompositeWriter, name: str, heads: int, *, last: bool = False) -> str:
    """Split a (B, S, heads · d) tensor into heads: (B, heads, S, d).

    With ``last`` the result has shape (B, heads, d, S).
    A tensor with four dimensions is already split.
    """
    shape = writer.shapes[name]
    if len(shape) == 4:
        return writer.transpose(name, (0, 1, 3, 2)) if last else name
    split = writer.reshape(name, (*shape[:2], heads, shape[2] // heads))
    return writer.transpose(split, (0, 2, 3, 1) if last else (0, 2, 1, 3))


def _join(writer: _CompositeWriter, mixed: str, result: str) -> None:
    """Merge the heads of an attention result: (B, heads, S, d) becomes (B, S, heads · d)."""
    batch, heads, rows, width = writer.shapes[mixed]
    turned = writer.transpose(mixed, (0, 2, 1, 3))
    writer.reshape(turned, (batch, rows, heads * width), result)


def _causal(writer: _CompositeWriter, rows: int, columns: int, past: int = 0) -> str:
    allowed = np.tri(rows, columns, past, dtype=bool)
    return writer.constant(np.where(allowed, 0, MASKED).reshape(1, 1, rows, columns))


def _padding(writer: _CompositeWriter, mask: str, filter_value: float) -> str | None:
    """Turn a (B, L) integer padding mask into a tensor to add to attention scores.

    Returns None for other masks.
    """
    shape = writer.shapes.get(mask, ())
    if len(shape) != 2:
        return None
    if mask in writer.arrays:
        found = (1 - writer.arrays[mask].astype(np.float32)) * np.float32(filter_value)
        return writer.constant(found.reshape(shape[0], 1, 1, shape[1]))
    number = writer.add("Cast", mask, to=1)
    missing = writer.add(
        "Mul", writer.add("Sub", writer.constant(1), number), writer.constant(filter_value)
    )
    return writer.add("Reshape", missing, writer.constant((shape[0], 1, 1, shape[1]), np.int64))


def _standard_attention(writer: _CompositeWriter) -> bool:
    """Write Attention of ONNX opset 23 and later as elementary operators."""
    options = writer.options
    names = [writer.input(index) for index in range(6)]
    if not all(name in writer.shapes for name in (*names[:3], *filter(None, names[3:]))):
        return False
    windows = (options.get("left_window_size", -1), options.get("right_window_size", -1))
    if writer.input(6) or writer.output(3) or windows != (-1, -1):
        return False
    q, k, v = names[:3]
    four = len(writer.shapes[q]) == 4
    q_heads = writer.shapes[q][1] if four else options.get("q_num_heads", 0)
    kv_heads = writer.shapes[k][1] if four else options.get("kv_num_heads", 0)
    if not q_heads or not kv_heads or q_heads % kv_heads:
        return False
    q = _heads(writer, q, q_heads)
    v = _heads(writer, v, kv_heads)
    past = 0
    if names[4] or writer.output(1) or writer.output(2):
        k = _heads(writer, k, kv_heads)
        if names[4]:
            past = writer.shapes[names[4]][2]
            k, v = (_append_past(writer, *pair) for pair in ((names[4], k), (names[5], v)))
        for index, name in ((1, k), (2, v)):
            if writer.output(index):
                writer.add("Identity", name, result=writer.output(index))
        k = writer.transpose(k, (0, 1, 3, 2))
    else:
        k = _heads(writer, k, kv_heads, last=True)
    rows = writer.shapes[q][2]
    columns = writer.shapes[k][3]
    masks = [_causal(writer, rows, columns, past)] if options.get("is_causal", 0) == 1 else []
    if names[3]:
        found = _write_given_mask(writer, names[3], columns)
        if found is None:
            return False
        masks.append(found)
    attending = _write_attending_factors(writer, names[3])
    mixed = _attend(
        writer, q, k, v, (q_heads, rows, columns), options.get("scale"), masks, attending
    )
    if four:
        writer.reshape(mixed, writer.shapes[mixed], writer.node.output[0])
    else:
        _join(writer, mixed, writer.node.output[0])
    return True


def _append_past(writer: _CompositeWriter, past: str, new: str) -> str:
    joined = writer.add("Concat", past, new, axis=2)
    first = writer.shapes[past]
    second = writer.shapes[new]
    writer.shapes[joined] = (*first[:2], first[2] + second[2], first[3])
    return joined


def _write_given_mask(writer: _CompositeWriter, mask: str, columns: int) -> str | None:
    """Turn a float or boolean attention mask into a tensor to add to attention scores.

    Returns None if the mask has too few columns.
    """
    if writer.shapes[mask][-1] not in (1, columns):
        return None
    if writer.graph.types.get(mask) != TensorProto.BOOL:
        return mask
    if mask in writer.arrays:
        return writer.constant(np.where(writer.arrays[mask], 0, MASKED))
    return writer.add("Where", mask, writer.constant(0), writer.constant(MASKED))


def _write_attending_factors(writer: _CompositeWriter, mask: str) -> str:
    """Return one factor per row of a boolean attention mask: 0 for fully masked rows, else 1.

    The result is empty if all rows attend to something.
    """
    if writer.graph.types.get(mask) != TensorProto.BOOL:
        return ""
    if mask in writer.arrays:
        rows = writer.arrays[mask].any(-1, keepdims=True)
        return "" if rows.all() else writer.constant(rows)
    numbers = writer.add("Cast", mask, to=TensorProto.FLOAT)
    return writer.add("ReduceMax", numbers, writer.constant([-1], np.int64))


def _write_packed_attention(writer: _CompositeWriter) -> bool:
    """Write ONNX Runtime's Attention, which has one weight matrix for q, k and v."""
    data, weights, bias = (writer.input(index) for index in range(3))
    heads = writer.options["num_heads"]
    options = writer.options
    shape = writer.shapes.get(data, ())
    if (
        writer.input(4)
        or writer.output(1)
        or options.get("do_rotary", 0)
        or weights not in writer.arrays
    ):
        return False
    if len(shape) != 3 or (bias and bias not in writer.arrays):
        return False
    matrix = writer.arrays[weights]
    widths = options.get("qkv_hidden_sizes") or [matrix.shape[1] // 3] * 3
    ends = np.cumsum(widths)[:2]
    rows = [None] * 3 if not bias else np.split(writer.arrays[bias], ends)
    parts = []
    for own, row, width in zip(np.split(matrix, ends, axis=1), rows, widths, strict=True):
        part = writer.add("MatMul", data, writer.constant(own))
        part = part if row is None else writer.add("Add", part, writer.constant(row))
        writer.shapes[part] = (*shape[:2], int(width))
        parts.append(part)
    return _multi_head(writer, parts, heads, mask=writer.input(3), added=writer.input(5))


def _multi_head_attention(writer: _CompositeWriter) -> bool:
    parts = [writer.input(index) for index in range(3)]
    bias = writer.input(3)
    if (
        any(len(writer.shapes.get(name, ())) not in (3, 4) for name in parts)
        or len(writer.shapes[parts[0]]) != 3
    ):
        return False
    if any(writer.input(index) for index in range(6, 10)) or any(
        writer.output(index) for index in range(1, 4)
    ):
        return False
    if bias:
        if bias not in writer.arrays or any(len(writer.shapes[name]) != 3 for name in parts):
            return False
        ends = np.cumsum([writer.shapes[name][-1] for name in parts])[:2]
        for index, row in enumerate(np.split(writer.arrays[bias], ends)):
            moved = writer.add("Add", parts[index], writer.constant(row))
            writer.shapes[moved] = writer.shapes[parts[index]]
            parts[index] = moved
    return _multi_head(
        writer, parts, writer.options["num_heads"], mask=writer.input(4), added=writer.input(5)
    )


def _multi_head(
    writer: _CompositeWriter, parts: Sequence[str], heads: int, mask: str, added: str
) -> bool:
    q, v = (_heads(writer, name, heads) for name in (parts[0], parts[2]))
    k = _heads(writer, parts[1], heads, last=True)
    rows = writer.shapes[q][2]
    columns = writer.shapes[k][3]
    masks = [_causal(writer, rows, columns)] if writer.options.get("unidirectional", 0) == 1 else []
    if mask:
        padding = _padding(writer, mask, writer.options.get("mask_filter_value", -10000.0))
        if padding is None:
            return False
        masks.append(padding)
    masks += [added] if added else []
    scale = writer.options.get("scale", 0.0) or None
    _join(
        writer,
        _attend(writer, q, k, v, (heads, rows, columns), scale, masks),
        writer.node.output[0],
    )
    return True


def _write_fused_product(writer: _CompositeWriter) -> bool:
    """Write FusedMatMul as Transposes, a MatMul and a multiplication by its factor."""
    names = [writer.input(0), writer.input(1)]
    options = writer.options
    if options.get("transBatchA", 0) or options.get("transBatchB", 0):
        return False
    if any(len(writer.shapes.get(name, ())) < 2 for name in names):
        return False
    for index, key in enumerate(("transA", "transB")):
        if options.get(key, 0):
            order = list(range(len(writer.shapes[names[index]])))
            names[index] = writer.transpose(names[index], [*order[:-2], order[-1], order[-2]])
    alpha = options.get("alpha", 1.0)
    result = writer.add("MatMul", *names, result=writer.node.output[0] if alpha == 1 else "")
    if alpha != 1:
        writer.add("Mul", result, writer.constant(alpha), result=writer.node.output[0])
    return True


def _skip_normalization(writer: _CompositeWriter) -> bool:
    """Write SkipLayerNormalization: the normalised sum of two operands and an optional bias."""
    if writer.output(1) or writer.output(2):
        return False
    total = writer.add("Add", writer.input(0), writer.input(1))
    if writer.input(4):
        total = writer.add("Add", total, writer.input(4))
    if writer.output(3):
        writer.add("Identity", total, result=writer.output(3))
    operands = [total, *filter(None, (writer.input(2), writer.input(3)))]
    epsilon = writer.options.get("epsilon", 1e-12)
    writer.add(
        "LayerNormalization", *operands, axis=-1, epsilon=epsilon, result=writer.node.output[0]
    )
    return True


def _make_biased_gelu(approximate: str) -> Callable[[_CompositeWriter], bool]:
    def write(writer: _CompositeWriter) -> bool:
        name = writer.input(0)
        if writer.input(1):
            name = writer.add("Add", name, writer.input(1))
        writer.add("Gelu", name, approximate=approximate, result=writer.node.output[0])
        return True

    return write


def _rotary(writer: _CompositeWriter) -> bool:
    """Write RotaryEmbedding of ONNX opset 23 as elementary operators."""
    data, cosine, sine, positions = (writer.input(index) for index in range(4))
    return _rotate(writer, data, positions, (cosine, sine))


def _write_fused_rotary(writer: _CompositeWriter) -> bool:
    """Write ONNX Runtime's RotaryEmbedding as elementary operators.

    A single position belongs to the first token.
    """
    data, positions, cosine, sine = (writer.input(index) for index in range(4))
    options = writer.options
    if (
        options.get("is_packed_batching", 0)
        or options.get("scale", 1.0) != 1
        or data not in writer.shapes
    ):
        return False
    if writer.shapes.get(positions) == (1,):
        rows = writer.shapes[data][-2]
        if positions not in writer.arrays:
            return False
        first = int(writer.arrays[positions].item())
        positions = writer.constant(
            np.tile(np.arange(rows) + first, (writer.shapes[data][0], 1)), np.int64
        )
    return _rotate(writer, data, positions, (cosine, sine))


def _rotate(writer: _CompositeWriter, data: str, positions: str, caches: tuple[str, str]) -> bool:
    """Write a rotary embedding: x · cos + (x with each pair exchanged) · (-sin, sin)."""
    shape = writer.shapes.get(data, ())
    options = writer.options
    heads = options.get("num_heads", 0)
    if len(shape) not in (3, 4) or any(name not in writer.shapes for name in caches):
        return False
    half = writer.shapes[caches[0]][-1]
    if len(shape) == 3:
        width = shape[2] // heads if heads else options.get("rotary_embedding_dim", 0) or 2 * half
        data = writer.reshape(data, (*shape[:2], shape[2] // width, width))
    width = writer.shapes[data][-1]
    size = 2 * half
    if options.get("rotary_embedding_dim", 0) not in (0, size) or size > width:
        return False
    first = np.arange(half)
    second = np.arange(half, size)
    columns = np.tile(first, 2)
    pairs = np.concatenate([second, first])
    signs = np.repeat([-1, 1], half)
    if options.get("interleaved", 0):
        columns = np.repeat(first, 2)
        pairs = np.arange(size) ^ 1
        signs = np.tile([-1, 1], half)
    factors = [_factors(writer, name, positions, columns, len(shape)) for name in caches]
    factors[1] = writer.add("Mul", factors[1], writer.constant(signs))
    rotated, others = (data, "") if size == width else _split_columns(writer, data, size)
    exchanged = writer.add("Gather", rotated, writer.constant(pairs, np.int64), axis=-1)
    products = [
        writer.add("Mul", *pair) for pair in zip((rotated, exchanged), factors, strict=True)
    ]
    result = writer.add("Add", *products)
    if others:
        result = writer.add("Concat", result, others, axis=-1)
    writer.reshape(result, shape, writer.node.output[0])
    return True


def _factors(
    writer: _CompositeWriter, cache: str, positions: str, columns: NDArray[np.int64], rank: int
) -> str:
    """Return the rotary factors of ``columns`` for each token, with a heads axis of size 1."""
    rows = writer.add("Gather", cache, positions, axis=0) if positions else cache
    chosen = writer.add("Gather", rows, writer.constant(columns, np.int64), axis=-1)
    return writer.add("Unsqueeze", chosen, writer.constant([1 if rank == 4 else 2], np.int64))


def _split_columns(writer: _CompositeWriter, data: str, size: int) -> list[str]:
    """Return the first ``size`` columns of a tensor, and the remaining columns."""
    bounds = [writer.constant([bound], np.int64) for bound in (0, size, np.iinfo(np.int64).max, -1)]
    return [
        writer.add("Slice", data, start, end, bounds[3]) for start, end in (bounds[:2], bounds[1:3])
    ]


KNOWN: Mapping[tuple[str, str], Callable[[_CompositeWriter], bool]] = {
    ("", "Attention"): _standard_attention,
    ("", "RotaryEmbedding"): _rotary,
    (_MICROSOFT, "Attention"): _write_packed_attention,
    (_MICROSOFT, "MultiHeadAttention"): _multi_head_attention,
    (_MICROSOFT, "RotaryEmbedding"): _write_fused_rotary,
    (_MICROSOFT, "FusedMatMul"): _write_fused_product,
    (_MICROSOFT, "SkipLayerNormalization"): _skip_normalization,
    (_MICROSOFT, "BiasGelu"): _make_biased_gelu("none"),
    (_MICROSOFT, "FastGelu"): _make_biased_gelu("tanh"),
}


@write_operators(*{op_type for _, op_type in KNOWN}, foreign=True)
def _decompose(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite composite operators with known shapes, such as Attention, in one pass.

    Shapes after operators of other domains are still unknown.
    """
    write = KNOWN.get(("" if standard(node) else node.domain, node.op_type))
    writer = _CompositeWriter(graph, node)
    return writer.nodes if write is not None and write(writer) else None


@look_at(*_decompose.operators)
def decompose_attention(model: ModelProto) -> ModelProto:
    """Rewrite composite operators as elementary ones; needs inferred shapes and folded constants.

    Shapes after operators of other domains are only inferred pass by pass, so passes repeat until
    nothing changes.
    """
    made = _decompose(model)
    return model if made is model else decompose_attention(infer_shapes(made))
