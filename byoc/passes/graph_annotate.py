"""Annotation: for every node the family that can run it, or why none can; it depends on the model alone."""

from __future__ import annotations

from dataclasses import dataclass

from byoc.graph import Graph
from byoc.patterns.base import Rejection
from byoc.patterns.registry import find_pattern


@dataclass(frozen=True)
class Annotation:
    """``pattern`` names the family, or is None and ``reason`` says why."""

    pattern: str | None
    reason: str | None = None


def annotate(graph: Graph) -> tuple[Annotation, ...]:
    """One annotation a node, in the order of the nodes."""
    found = (find_pattern(graph, node) for node in graph.nodes)
    return tuple(Annotation(None, f.reason) if isinstance(f, Rejection) else Annotation(f.name) for f in found)
