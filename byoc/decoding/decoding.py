"""Integer models of a decoder: one for a prompt, and one for every position behind it.

A decoder has a cache of keys and values and gets static shapes for one position. All its models
have the same scales. The cache contains integers, and new keys and values are appended to it
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto
from onnx.helper import make_node, make_tensor_value_info, tensor_dtype_to_np_dtype

from byoc.decoding.positions import PositionalModel, find_varying, join_positions, make_dynamic
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.reading import rows_to_choose
from byoc.frontend.onnx.rewriting.constants import (
    drop_initializer_inputs,
    fix_inputs,
    fold_constants,
)
from byoc.frontend.onnx.rewriting.definitions import define, integer_clamps
from byoc.frontend.onnx.rewriting.integers import quantise_tables
from byoc.frontend.onnx.rewriting.prepare import apply, passes
from byoc.frontend.onnx.rewriting.shapes import complete_types, fix_shapes, infer_shapes
from byoc.frontend.onnx.units import is_quantised
from byoc.graph import drop_unread
from byoc.importing import package_of
from byoc.operators.onnx_view import ADD, CONCAT, IDENTITY
from byoc.operators.registry import annotate
from byoc.package.package import Package
from byoc.quantisation.calibrate import Ranges, observe_ranges, share_ranges
from byoc.quantisation.quantize import quantise_within
from byoc.runtimes.protobuf import (
    ConstantArrays,
    add_tensor,
    array_of,
    constants,
    copy_model,
    is_float32,
    keep_nodes,
    set_items,
    shapes_of,
    types_of,
)
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError
from isa.progress import Progress, silent


def drop_zero_masks(model: ModelProto) -> ModelProto:
    """Remove additions of zeros, such as the mask of a token that sees all others.

    ``model`` has static shapes.
    """
    result = copy_model(model)
    graph = result.graph
    shapes = shapes_of(graph)
    constants = ConstantArrays(graph, is_float32)
    renamed: dict[str, str] = {}
    shown = {value.name for value in graph.output}
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        if node.op_type == ADD and node.output[0] not in shown:
            zeros = [name for name in node.input if name in constants and not constants[name].any()]
            others = [name for name in node.input if name not in zeros]
            if len(others) == 1 and shapes[others[0]] == shapes[node.output[0]]:
                renamed[node.output[0]] = others[0]
    keep_nodes(graph, lambda node: node.output[0] not in renamed)
    return result


def merge_ranges(
    models: Sequence[ModelProto], observed: Sequence[Ranges], groups: Sequence[Sequence[str]]
) -> Ranges:
    """Return one range for each tensor of several models, from the ranges observed in each.

    Tensors of a group share a range. So do tensors that share a range in any of the models.
    """
    merged: Ranges = {}
    for _ in range(2):  # what one model shares can widen what another shares
        for ranges in observed:
            for name, limits in ranges.items():
                merged[name] = merge_limits(limits, merged.get(name, limits))
        tie_ranges(merged, groups)
        observed = [
            share_ranges(model, {name: merged[name] for name in ranges})
            for model, ranges in zip(models, observed, strict=True)
        ]
    for ranges in observed:
        merged |= ranges
    return merged


def merge_limits(
    first: tuple[np.float32, np.float32], second: tuple[np.float32, np.float32]
) -> tuple[np.float32, np.float32]:
    """Return the smallest range that contains two ranges."""
    return min(first[0], second[0]), max(first[1], second[1])


def tie_ranges(ranges: Ranges, groups: Sequence[Sequence[str]]) -> None:
    """Give, in place, the tensors of each group their common range; ignore unknown tensors.

    For state: an output that is an input of the next inference has that input's scale.
    """
    for group in groups:
        known = [name for name in group if name in ranges]
        if known:
            common = ranges[known[0]]
            for name in known[1:]:
                common = merge_limits(common, ranges[name])
            ranges.update(dict.fromkeys(known, common))


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


Arrays = dict[str, NDArray[Any]]
LEAST_STEPS = 3
"""Least number of tokens to generate for calibration, so that it has two positions."""


def generate_in_float(
    decoder: CachedDecoder, prompts: Iterable[Sequence[int]], count: int
) -> list[tuple[list[int], list[Arrays]]]:
    """Generate ``count`` tokens after each prompt with the float decoder on ONNX Runtime.

    A token is the one with the largest logit. With the tokens of a prompt, the result has the
    inputs of its first, second and last inference, for calibration.
    """
    session = OnnxRuntimeSession(decoder.model)
    names = [LOGITS, *(pair.present for pair in decoder.pairs)]
    kinds = {name: tensor_dtype_to_np_dtype(k) for name, k in types_of(decoder.model.graph).items()}
    generated = []
    for prompt in prompts:
        cache = {pair.past: np.zeros(pair.shape, kinds[pair.past]) for pair in decoder.pairs}
        tokens: list[int] = []
        samples: list[Arrays] = []
        row, past = list(prompt), 0
        for _ in range(count):
            sample = {**decoder.make_feeds(row, past), **(cache if past else {})}
            samples = [*samples[:2], sample]
            found = session.run(names, {**decoder.make_feeds(row, past, mask=True), **cache})
            cache = {pair.past: found[pair.present] for pair in decoder.pairs}
            tokens.append(int(found[LOGITS][0, -1].argmax()))
            row, past = [tokens[-1]], past + len(row)
        generated.append((tokens, samples))
    return generated


@dataclass(frozen=True, eq=False)
class IntegerDecoder:
    """Quantised decoder.

    ``prompts`` are the packages for prompts by length. ``steps`` is the integer model of one token
    at any position, ``first`` its package at the first position, and ``varying`` names constants of
    its embedded model that depend on the position.
    """

    pairs: tuple[CachePair, ...]
    prompts: Mapping[int, Package]
    steps: PositionalModel
    first: Package
    varying: tuple[str, ...]

    def bind(self, position: int) -> tuple[Package, ModelProto]:
        """Return package and embedded model for one token behind ``position`` others.

        The package has no outputs with the present cache, because its inputs contain the past and
        its outputs the new keys and values.
        """
        model = self.steps.bind(position)
        graph = import_graph(model)
        embedded = define(integer_clamps(model, graph)[0], graph)
        gone = {pair.present for pair in self.pairs}
        outputs = tuple(name for name in graph.outputs if name not in gone)
        nodes = tuple(drop_unread(graph.nodes, outputs))
        used = {*graph.inputs, *outputs}
        used.update(name for node in nodes for name in (*node.inputs, *node.outputs))
        values = {name: value for name, value in graph.values.items() if name in used}
        graph = replace(graph, outputs=outputs, nodes=nodes, values=values)
        return replace(self.first, graph=graph, annotations=annotate(graph)), embedded


class DecoderOracle:
    """ONNX Runtime on the integer model, with a dynamic past and a cache of its own."""

    def __init__(self, decoder: IntegerDecoder, length: int) -> None:
        self._decoder = decoder
        self._prompt: OnnxRuntimeSession | None = OnnxRuntimeSession(_onnx(decoder.prompts[length]))
        self._steps = OnnxRuntimeSession(make_dynamic(_onnx(decoder.first), decoder.varying))
        self._cache: Arrays = {}

    def run(self, feeds: Mapping[str, NDArray[Any]], embedded: ModelProto | None = None) -> Arrays:
        """Return logits, and new keys and values, of the next inference.

        ``embedded`` is the model of the position; None for the prompt.
        """
        pairs = self._decoder.pairs
        news = [pair.new for pair in pairs]
        if embedded is None:
            assert self._prompt is not None
            found = self._prompt.run([LOGITS, *news], feeds)
            self._cache = {pair.past: found[pair.new] for pair in pairs}
            return found
        self._prompt = None
        tensors = constants(embedded.graph)
        varying = {name: array_of(tensors[name]) for name in self._decoder.varying}
        names = [LOGITS, *news, *(pair.present for pair in pairs)]
        found = self._steps.run(names, {**feeds, **self._cache, **varying})
        self._cache = {pair.past: found.pop(pair.present) for pair in pairs}
        return found


def quantise_decoder(
    decoder: CachedDecoder,
    samples: Sequence[Sequence[Arrays]],
    lengths: Sequence[int],
    source: str,
    progress: Progress = silent,
) -> IntegerDecoder:
    """Quantise a float decoder on the samples of :func:`generate_in_float`.

    ``lengths`` are those of the prompts to prepare; the first is that of the samples. Raises
    InputError for a decoder that is quantised, or that differs from position to position.
    """
    length, *others = lengths
    pair = decoder.pairs[0]
    positions = [sample[pair.past].shape[pair.axis] for sample in samples[0][1:]]
    progress(f"preparing {source}")
    steps = join_positions([_prepare(decoder, 1, past, source) for past in positions], positions)
    prompt = _prepare(decoder, length, 0, source)
    progress(f"finding the ranges of {source}")
    ends = [complete_types(infer_shapes(steps.bind(past))) for past in positions]
    models = [prompt, *ends]
    observed = list(map(observe_ranges, models, zip(*samples, strict=True)))
    groups = [(pair.past, pair.new, pair.present) for pair in decoder.pairs]
    ranges = merge_ranges(models, observed, groups)
    progress(f"quantising {source}")
    prompts = {length: _package(prompt, ranges, source)}
    del prompt, steps, models
    for other in others:
        prompts[other] = _package(_prepare(decoder, other, 0, source), ranges, source)
    models = [quantise_tables(quantise_within(ends.pop(0), ranges)) for _ in positions]
    joint = join_positions(models, positions)
    packages = [package_of(models.pop(0), source) for _ in positions]
    varying = find_varying([_onnx(package) for package in packages])
    return IntegerDecoder(decoder.pairs, prompts, joint, packages[0], varying)


def _prepare(decoder: CachedDecoder, sequence: int, past: int, source: str) -> ModelProto:
    model, shapes = decoder.bind_shapes(sequence, past)
    # Masks and sizes become constants first, so that all shapes are known.
    model = fold_constants(infer_shapes(fix_shapes(model, shapes)))
    prepared = drop_zero_masks(apply(passes(model, shapes), model))
    if is_quantised(prepared):
        raise InputError(f"{source}: the decoder is quantised already; give the float decoder")
    return prepared


def _package(prepared: ModelProto, ranges: Ranges, source: str) -> Package:
    return package_of(quantise_tables(quantise_within(prepared, ranges)), source)


def _onnx(package: Package) -> ModelProto:
    model = package.model
    assert isinstance(model, ModelProto)
    return model
