"""The tables of a report as data: a row a layer, a row a node, with plain numbers under the same names everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dla_sim.engine.breakdown import PARTS
from experiments.figure import figures_of
from experiments.report.schema import Figures, HostLayer, Layer, PlacementEntry, RunReport

Row = dict[str, Any]
LAYER_FIGURES = figures_of(Layer)
HOST_FIGURES = ("cycles", "macs")
"""Those that nodes on the CPU have, too."""
LAYER_COLUMNS = ("layer", "on", "region", "kind", *(figure.name for figure in LAYER_FIGURES), *PARTS)
"""Names of the values of :func:`layer_rows`, in their order."""


def layer_rows(report: RunReport) -> list[Row]:
    """A row a layer in the network's order: a region stands where its first node stands.

    Cycles of nodes on the CPU are estimates. ``utilization`` is a fraction, the parts of ``cycles``
    (``dla_sim.engine.breakdown.PARTS``) are cycles, ``energy_pj`` is an estimate, and None is what is not known.
    """
    return [_host_row(one) if isinstance(one, HostLayer) else _layer_row(one) for one in in_order(report)]


def figure_rows(figures: Figures) -> list[Row]:
    """A row a layer of what the machine did, as of :func:`layer_rows`."""
    return [_layer_row(layer) for layer in figures.layers]


def placement_rows(placement: Sequence[PlacementEntry]) -> list[Row]:
    """A row a node: where it runs, and on the CPU the reason."""
    return [entry.model_dump() for entry in placement]


def in_order(report: RunReport) -> Iterator[Layer | HostLayer]:
    """Layers of the accelerator and nodes on the CPU in the network's order."""
    host = {layer.node: layer for layer in report.host.layers}
    seen: set[int] = set()
    for entry in report.placement:
        if entry.on == "cpu" and entry.node in host:
            yield host[entry.node]
        elif entry.region is not None and entry.region not in seen:
            seen.add(entry.region)
            yield from (layer for layer in report.layers if layer.region == entry.region)


def _layer_row(layer: Layer) -> Row:
    said = {"layer": layer.name, "on": "dla", "region": layer.region, "kind": layer.kind}
    known = said | {figure.name: getattr(layer, figure.name) for figure in LAYER_FIGURES} | dict(layer.breakdown)
    return {name: known.get(name) for name in LAYER_COLUMNS}


def _host_row(layer: HostLayer) -> Row:
    known = {
        "layer": layer.node, "on": "cpu", "kind": layer.op_type, "cycles": layer.estimated_cycles, "macs": layer.macs,
    }  # fmt: skip
    return {name: known.get(name) for name in LAYER_COLUMNS}
