"""Import: an ONNX model becomes a package, folded and, where it is float, quantised first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from onnx import ModelProto

from byoc.fidelity import check_fidelity, noise, trial_feed
from byoc.frontend.onnx.file import load_model
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.clamps import integer_clamps
from byoc.frontend.onnx.rewriting.prepare import Pass, apply, passes
from byoc.frontend.onnx.units import is_quantised
from byoc.operators.registry import annotate
from byoc.package.package import Fidelity, Package, build_package
from byoc.quantisation.calibrate import Feeds, default_feeds
from byoc.quantisation.quantize import quantise
from isa.errors import InputError


def import_model(
    model: ModelProto | str | Path,
    source: str | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    calibration: Iterable[Feeds] | None = None,
    seed: int = 0,
) -> Package:
    """Package of an ONNX model (or of the file that holds one): folded and, where it is float, quantised first.

    ``source`` is the name it goes by in reports: by default the file's, or that of the model's graph.
    ``shapes`` gives dynamic inputs their dimensions; ``calibration`` are the feeds of the quantiser, seeded
    standard-normal ones by default. Raises InputError for a model that cannot be imported.
    """
    if isinstance(model, str | Path):
        source, model = source or Path(model).stem, load_model(model)
    steps = passes(model, shapes)
    prepared = apply(steps, model)
    if is_quantised(prepared):
        return package_of(prepared, source or model.graph.name, _unchanged(model, prepared, steps, seed))
    feeds = default_feeds(prepared, seed) if calibration is None else iter(calibration)
    first = next(iter(feeds), None)
    if first is None:
        raise InputError("there are no calibration samples; give at least one")
    fidelity = check_fidelity(model, prepared, steps, first, quantised=False)
    quantised = quantise(prepared, chain([first], feeds), seed)
    if quantised.graph.node:
        fidelity = replace(fidelity, noise=noise(prepared, quantised, first))
    return package_of(quantised, source or model.graph.name, fidelity)


def _unchanged(model: ModelProto, prepared: ModelProto, steps: Sequence[Pass], seed: int) -> Fidelity | None:
    """The comparison of a model that came quantised, on numbers drawn from ``seed``; None if it does not take them."""
    try:
        return check_fidelity(model, prepared, steps, trial_feed(prepared, seed), quantised=True)
    except InputError:
        return None


def package_of(model: ModelProto, source: str, fidelity: Fidelity | None = None) -> Package:
    """Package of a quantised, prepared model; ``source`` is the name it goes by in reports. Deterministic."""
    graph = import_graph(model)
    embedded, rewritten = integer_clamps(model, graph)
    return build_package(graph, annotate(graph), embedded, rewritten, source, fidelity)
