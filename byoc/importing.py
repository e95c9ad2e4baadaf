"""Import: an ONNX model becomes a package, folded and, where it is float, quantised first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from onnx import ModelProto

from byoc.fidelity import integer_difference, noise, prepared_faithfully, trial_feed
from byoc.frontend.onnx.file import load_model
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.branches import fix_inputs
from byoc.frontend.onnx.rewriting.clamps import integer_clamps
from byoc.frontend.onnx.rewriting.dynamic import dynamic_operators, with_static_ranges
from byoc.frontend.onnx.rewriting.integers import integer_biases
from byoc.frontend.onnx.rewriting.prepare import Pass, apply, passes
from byoc.frontend.onnx.rewriting.widening import widen
from byoc.frontend.onnx.units import is_quantised
from byoc.operators.registry import annotate
from byoc.package.package import Fidelity, Package, build_package
from byoc.quantisation.calibrate import Feeds, default_feeds
from byoc.quantisation.quantize import quantise
from isa.errors import InputError


@np.errstate(all="ignore")  # what is not finite is refused where it is used; a warning would only say it twice
def import_model(
    model: ModelProto | str | Path,
    source: str | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fixed: Mapping[str, float] | None = None,
    calibration: Iterable[Feeds] | None = None,
    seed: int = 0,
) -> Package:
    """Package of an ONNX model (or of the file that holds one): folded and, where it is float, quantised first.

    ``source`` is the name it goes by in reports: by default the file's, or that of the model's graph. ``shapes``
    gives dynamic inputs their dimensions; ``fixed`` makes inputs constants; ``calibration`` are the feeds of the
    quantiser, seeded standard-normal ones by default. Raises InputError for a model that cannot be imported.
    """
    if isinstance(model, str | Path):
        source, model = source or Path(model).stem, load_model(model)
    model = fix_inputs(model, fixed or {}, shapes)
    shapes = {key: dims for key, dims in (shapes or {}).items() if key not in (fixed or {})}
    with _advice(model):
        return _imported(model, source or model.graph.name, shapes, calibration, seed)


@contextmanager
def _advice(model: ModelProto) -> Iterator[None]:
    """Says what may help where a model with branches cannot be imported."""
    try:
        yield
    except InputError as error:
        if all(node.op_type != "If" for node in model.graph.node):
            raise
        raise InputError(f"{error}; where an input chooses between branches, fix it with --fix NAME=VALUE") from error


def _imported(
    model: ModelProto,
    name: str,
    shapes: Mapping[str, Sequence[int]],
    calibration: Iterable[Feeds] | None,
    seed: int,
) -> Package:
    given, model = model, widen(model)
    widened = model is not given
    feeds = None if calibration is None else iter(calibration)
    made_static = dynamic_operators(model)
    if made_static:
        given = apply(passes(model, shapes), model)
        observed = list(default_feeds(given, seed) if feeds is None else feeds)
        model, shapes, feeds = with_static_ranges(given, observed), {}, iter(observed)
    steps = passes(model, shapes)
    if is_quantised(apply(steps, model)):
        return _as_it_is(model, steps, name, seed)
    samples: list[Feeds] = []

    def first(prepared: ModelProto) -> Feeds:
        if not samples:
            found = next(default_feeds(prepared, seed) if feeds is None else feeds, None)
            if found is None:
                raise InputError("there are no calibration samples; give at least one")
            samples.append(found)
        return samples[0]

    prepared, fidelity = prepared_faithfully(model, steps, first)
    calibrated = default_feeds(prepared, seed) if feeds is None else chain(samples, feeds)
    quantised = quantise(prepared, calibrated, seed)
    fidelity = replace(fidelity, widened=widened, made_static=made_static)
    if quantised.graph.node:
        fidelity = replace(fidelity, noise=noise(given if made_static else prepared, quantised, samples[0]))
    return package_of(quantised, name, fidelity)


def _as_it_is(model: ModelProto, steps: Sequence[Pass], source: str, seed: int) -> Package:
    """Package of a model that came quantised; not compared where it does not take numbers drawn from ``seed``."""
    try:
        prepared, fidelity = prepared_faithfully(model, steps, lambda m: trial_feed(m, seed))
        prepared = integer_biases(prepared)
        integer = integer_difference(model, prepared, trial_feed(prepared, seed))
    except InputError:
        return package_of(integer_biases(apply(steps, model)), source)
    return package_of(prepared, source, replace(fidelity, integer=integer))


def package_of(model: ModelProto, source: str, fidelity: Fidelity | None = None) -> Package:
    """Package of a quantised, prepared model; ``source`` is the name it goes by in reports. Deterministic."""
    graph = import_graph(model)
    embedded, rewritten = integer_clamps(model, graph)
    return build_package(graph, annotate(graph), embedded, rewritten, source, fidelity)
