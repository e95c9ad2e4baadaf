"""Graph of a run's network for the page: a box for each node, input and output, with its cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dla_sim.engine.breakdown import PARTS
from experiments.report.charts.model import KINDS, PLACES, UNKNOWN
from experiments.report.charts.model import PARTS as STYLES
from experiments.report.graph import GraphEdge, lay_out
from experiments.report.run_charts import PART_NAMES
from experiments.report.schema import SEPARATE_PART, Layer, RunReport

Box = dict[str, Any]
_Key = tuple[str, int | str]
"""A node by its index in the placement, or an input or output by its name."""


def network_graph(report: RunReport) -> dict[str, Any] | None:
    """Return boxes and lines of the network's graph with their places; None for older reports."""
    if not report.edges:
        return None
    numbers = {key: number for number, key in enumerate(dict.fromkeys(_order(report)))}
    edges = [(numbers[_producer(edge)], numbers[_consumer(edge)]) for edge in report.edges]
    places = lay_out(len(numbers), edges)
    boxes = list(_boxes(report, numbers))
    for box, column, lane in zip(boxes, places.columns, places.lanes, strict=True):
        box |= {"column": column, "lane": lane}
    lines = [
        {"from": producer, "to": consumer, "lane": lane, "tip": _describe_tensor(edge)}
        for (producer, consumer), lane, edge in zip(edges, places.routes, report.edges, strict=True)
    ]
    return {"boxes": boxes, "lines": lines}


def _producer(edge: GraphEdge) -> _Key:
    return ("input", edge.tensor) if edge.producer is None else ("node", edge.producer)


def _consumer(edge: GraphEdge) -> _Key:
    return ("output", edge.tensor) if edge.consumer is None else ("node", edge.consumer)


def _order(report: RunReport) -> Iterator[_Key]:
    """Yield what the graph has boxes for: inputs before their first consumers, outputs last."""
    inputs: dict[int, list[_Key]] = {}
    for edge in report.edges:
        if edge.producer is None and edge.consumer is not None:
            inputs.setdefault(edge.consumer, []).append(_producer(edge))
    for number in range(len(report.placement)):
        yield from inputs.get(number, [])
        yield "node", number
    for edge in report.edges:
        yield _producer(edge)
        yield _consumer(edge)


def _boxes(report: RunReport, keys: Iterable[_Key]) -> Iterator[Box]:
    """Yield name, kind, cycles and tooltip of each box.

    ``text`` tells the cycles, ``parts`` has their parts and colours. ``layer`` is the number of
    the node's layer; -1 if none.
    """
    members: dict[tuple[int | None, str], list[int]] = {}
    for number, layer in enumerate(report.layers):
        key = layer.region, layer.name.removesuffix(SEPARATE_PART)
        members.setdefault(key, []).append(number)
    estimates = {layer.node: layer.estimated_cycles for layer in report.host.layers}
    whole = report.totals.cycles if report.end_to_end is None else report.end_to_end.cycles
    for what, name in keys:
        if not isinstance(name, int):
            box = Box(name=name, kind=f"{what} of the network", on="", layer=-1, text="", parts=[])
            yield box | {"tip": [], "color": UNKNOWN.color, "group": None}
            continue
        entry = report.placement[name]
        numbers = members.get((entry.region, entry.node), [])
        layers = [report.layers[number] for number in numbers]
        cycles = estimates.get(entry.node, 0) + sum(layer.cycles for layer in layers)
        text = f"{cycles:,} cycles, {cycles / whole:.1%}" if cycles else "no cycles of its own"
        place, style = PLACES[entry.on]
        yield {
            "name": entry.node,
            "kind": f"{entry.op_type}, {place}",
            "on": entry.on,
            "layer": numbers[0] if numbers else -1,
            "text": f"~{text}" if entry.on == "cpu" and cycles else text,
            "parts": _parts(layers),
            "tip": [entry.reason] if entry.reason else [],
            "color": KINDS.get(layers[0].kind, UNKNOWN).color if layers else style.color,
            "group": layers[0].group if layers else None,
        }


def _parts(layers: Sequence[Layer]) -> list[tuple[str, int, str]]:
    """Return the parts of the layers' cycles: name, cycles and colour."""
    parts = Counter[str]()
    for layer in layers:
        parts.update(layer.breakdown)
    return [(PART_NAMES[part], parts[part], STYLES[part].color) for part in PARTS if parts[part]]


def _describe_tensor(edge: GraphEdge) -> str:
    return f"{edge.tensor}: {edge.dtype} [{', '.join(map(str, edge.shape))}]"
