"""Integer models of a decoder: one for a prompt, and one for every position behind it.

Both have the same scales. The cache contains integers, and new keys and values are appended to it
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.helper import tensor_dtype_to_np_dtype

from byoc.decoding.cache import LOGITS, CachedDecoder, CachePair
from byoc.decoding.positions import (
    PositionalModel,
    find_varying,
    join_positions,
    make_dynamic,
)
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.constants import fold_constants
from byoc.frontend.onnx.rewriting.definitions import define, integer_clamps
from byoc.frontend.onnx.rewriting.integers import quantise_tables
from byoc.frontend.onnx.rewriting.prepare import apply, passes
from byoc.frontend.onnx.rewriting.shapes import complete_types, fix_shapes, infer_shapes
from byoc.frontend.onnx.units import is_quantised
from byoc.graph import drop_unread
from byoc.importing import package_of
from byoc.operators.registry import annotate
from byoc.package.package import Package
from byoc.quantisation.calibrate import Ranges, observe_ranges
from byoc.quantisation.quantize import quantise_within
from byoc.quantisation.sharing import drop_zero_masks, merge_ranges
from byoc.runtimes.protobuf import array_of, constants, types_of
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError
from isa.progress import Progress, silent

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

    def open_oracle(self, length: int) -> DecoderOracle:
        """Return an oracle for a prompt of ``length`` tokens and the tokens after it."""
        return DecoderOracle(self, length)


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
