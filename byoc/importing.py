"""Import: an ONNX model becomes a package, folded and, where it is float, quantised first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from onnx import ModelProto

from byoc.frontend.onnx.file import load_model
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.clamps import integer_clamps
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.frontend.onnx.units import is_quantised
from byoc.operators.registry import annotate
from byoc.package.package import Package, build_package
from byoc.quantisation.calibrate import Feeds
from byoc.quantisation.quantize import quantise


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
    prepared = prepare(model, shapes)
    if not is_quantised(prepared):
        prepared = quantise(prepared, calibration, seed)
    return package_of(prepared, source or model.graph.name)


def package_of(model: ModelProto, source: str) -> Package:
    """Package of a quantised, prepared model; ``source`` is the name it goes by in reports. Deterministic."""
    graph = import_graph(model)
    embedded, rewritten = integer_clamps(model, graph)
    return build_package(graph, annotate(graph), embedded, rewritten, source)
