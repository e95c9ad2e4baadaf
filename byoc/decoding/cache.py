"""Find the cache of a decoder and give the decoder static shapes for one position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto
from onnx.helper import make_node, make_tensor_value_info, tensor_dtype_to_np_dtype

from byoc.frontend.onnx.reading import rows_to_choose
from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs, fix_inputs
from byoc.operators.onnx_view import CONCAT, IDENTITY
from byoc.runtimes.protobuf import add_tensor, copy_model, set_items
from isa.errors import InputError

TOKENS, POSITIONS, MASK = "input_ids", "position_ids", "attention_mask"
"""Inputs of a decoder by the names that exporters give them; the last two may be missing."""
LOGITS = "logits"
Shape = tuple[int, ...]
_PAST_OF_PRESENT = (
    ("present", "past_key_values"),
    ("present", "past"),
    ("present_key_values", "past_key_values"),
    ("new", "past"),
    ("new_cache", "cache"),
    ("cache_out", "cache_in"),
)
"""Words of an output and of its input, by which pairs are found."""


@dataclass(frozen=True)
class CachePair:
    """Cached keys or values of one layer: the input ``past``, and the output ``present``.

    ``axis`` is the axis of positions. ``shape`` has 1 for the batch and 0 for the positions.
    ``new`` is the tensor with the new positions, which the model concatenates to the past.
    """

    past: str
    present: str
    new: str
    axis: int
    shape: Shape

    def make_shape(self, position: int) -> Shape:
        """Return the shape of the past with ``position`` cached positions."""
        return (*self.shape[: self.axis], position, *self.shape[self.axis + 1 :])


@dataclass(frozen=True, eq=False)
class CachedDecoder:
    """Float or quantised ONNX decoder whose cache grows by position.

    ``words`` is the number of words, ``positions`` the most positions (None: unlimited).
    """

    model: ModelProto
    pairs: tuple[CachePair, ...]
    words: int
    positions: int | None

    def make_feeds(self, tokens: Any, past: int, *, mask: bool = False) -> dict[str, NDArray[Any]]:
        """Return the inputs for ``tokens`` behind ``past`` positions, without the cache.

        The attention ``mask`` is an input of the decoder as given, and none of
        :meth:`bind_shapes`.
        """
        row = np.asarray(tokens, np.int64).reshape(1, -1)
        places = past + np.arange(row.size)[np.newaxis]
        found = {TOKENS: row, POSITIONS: np.minimum(places, (self.positions or 1 << 62) - 1)}
        if mask:
            found[MASK] = np.ones((1, past + row.size))
        kinds = {value.name: value.type.tensor_type.elem_type for value in self.model.graph.input}
        return {
            name: array.astype(tensor_dtype_to_np_dtype(kinds[name]))
            for name, array in found.items()
            if name in kinds
        }

    def bind_shapes(self, sequence: int, past: int) -> tuple[ModelProto, dict[str, Shape]]:
        """Return the model for ``sequence`` tokens behind ``past`` positions, and input shapes.

        The new keys and values are outputs. The attention mask is a constant, because no token is
        padding. Without past positions, the model has neither the past nor the present cache.
        """
        names = {value.name for value in self.model.graph.input}
        shapes: dict[str, Shape] = {
            TOKENS: (1, sequence),
            POSITIONS: (1, sequence),
            MASK: (1, past + sequence),
            **{pair.past: pair.make_shape(past) for pair in self.pairs},
        }
        shapes = {name: shape for name, shape in shapes.items() if name in names}
        model = copy_model(self.model)
        shown = {value.name: value for value in model.graph.output}
        for pair in self.pairs:
            if pair.new not in shown:
                kind = shown[pair.present].type.tensor_type.elem_type
                shape = pair.make_shape(sequence)
                model.graph.output.append(make_tensor_value_info(pair.new, kind, shape))
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        if MASK in shapes:
            model = fix_inputs(model, {MASK: 1.0}, {MASK: shapes.pop(MASK)})
        if not past:
            _drop_past(model.graph, self.pairs)
            shapes = {name: shapes[name] for name in shapes.keys() & {TOKENS, POSITIONS}}
        return model, shapes


def find_decoder(model: ModelProto, source: str) -> CachedDecoder:
    """Find inputs, cache and sizes of a decoder.

    Raises InputError for a network without a cache that grows, and for inputs of unknown meaning.
    """
    model = drop_initializer_inputs(model)
    inputs = {value.name: value for value in model.graph.input}
    outputs = {value.name: value for value in model.graph.output}
    producers = {name: node for node in model.graph.node for name in node.output}
    pairs = tuple(_find_pairs(inputs, outputs, producers))
    if not pairs:
        raise InputError(
            f"{source}: no cache of keys and values: no input such as past_key_values.0.key has an "
            "output such as present.0.key; export the decoder with its cache (use_cache=True)"
        )
    if TOKENS not in inputs or LOGITS not in outputs:
        missing = TOKENS if TOKENS not in inputs else LOGITS
        raise InputError(
            f"{source}: there is no '{missing}'; name the tokens input_ids and the result logits"
        )
    known = {TOKENS, POSITIONS, MASK, *(pair.past for pair in pairs)}
    for name in inputs.keys() - known:
        raise InputError(
            f"{source}: the meaning of input '{name}' is unknown; a decoder has {TOKENS}, "
            f"{POSITIONS}, {MASK} and its cache; fix another input with --fix {name}=VALUE"
        )
    rows = rows_to_choose(model)
    last = outputs[LOGITS].type.tensor_type.shape.dim
    words = rows.get(TOKENS) or (last[-1].dim_value if last else 0)
    if not words:
        raise InputError(f"{source}: the number of words is unknown; export logits with a shape")
    return CachedDecoder(model, pairs, words, rows.get(POSITIONS))


def _find_pairs(
    inputs: Mapping[str, ValueInfoProto],
    outputs: Mapping[str, ValueInfoProto],
    producers: Mapping[str, NodeProto],
) -> Iterator[CachePair]:
    for present in outputs:
        past = next(
            (
                name
                for after, before in _PAST_OF_PRESENT
                if (name := present.replace(after, before)) in inputs and name != present
            ),
            None,
        )
        if past is None:
            continue
        dims = [dim.dim_value for dim in inputs[past].type.tensor_type.shape.dim]
        free = [axis for axis, size in enumerate(dims) if axis and not size]
        if len(free) != 1:
            raise InputError(
                f"input '{past}' has {len(free)} free axes behind its batch; export it with one, "
                "the positions of the past"
            )
        maker = producers.get(present)
        joined = maker is not None and maker.op_type == CONCAT and list(maker.input[:1]) == [past]
        if maker is None or not joined or len(maker.input) != 2:
            raise InputError(
                f"output '{present}' is not '{past}' with new positions behind it (a Concat); "
                "export a cache that grows by position"
            )
        shape = tuple(1 if not axis else size for axis, size in enumerate(dims))
        yield CachePair(past, present, maker.input[1], free[0], shape)


def _drop_past(graph: GraphProto, pairs: Sequence[CachePair]) -> None:
    """Remove the cache from a decoder's graph for the first positions, which have no past."""
    pasts, presents = {pair.past for pair in pairs}, {pair.present for pair in pairs}
    for values, gone in ((graph.input, pasts), (graph.output, presents)):
        set_items(values, [value for value in values if value.name not in gone])
    for pair in pairs:  # its shape may still be read
        add_tensor(graph, pair.past, np.zeros(pair.shape, np.float32))
    for node in graph.node:
        if node.output[:1] and node.output[0] in presents:
            node.CopyFrom(make_node(IDENTITY, node.input[1:2], node.output, name=node.name))
