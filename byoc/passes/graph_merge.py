"""Merging nodes into parts: waves of Kahn's algorithm that alternate between the two sides, then connected components.

A wave takes every node of its side that is ready, again and again until none is left, then the other side has its turn.
A node of a wave depends only on earlier waves and on its own, so no path leaves a wave and comes back: every wave, and
every component of it, is convex, and the order of the waves is an order of execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from byoc.graph import Node


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes of one side that run together, in topological order."""

    accelerated: bool
    nodes: tuple[Node, ...]


def merge(nodes: Sequence[Node], accelerated: Iterable[str]) -> tuple[Group, ...]:
    """Groups in an order of execution: a wave of host nodes is one group, one of the accelerator a group a component.

    ``accelerated`` names the nodes of the accelerator. Nodes must be in topological order; every node is in exactly one
    group.
    """
    chosen = frozenset(accelerated)
    producer = {name: node.name for node in nodes for name in node.outputs}
    needs = {node.name: {producer[name] for name in node.inputs if name in producer} for node in nodes}
    waiting, done, groups = list(nodes), set[str](), list[Group]()
    side = False
    while waiting:
        wave, waiting = _wave(waiting, side, chosen, needs, done)
        if wave and side:
            groups += [Group(True, component) for component in _components(wave, needs)]
        elif wave:
            groups.append(Group(False, tuple(wave)))
        side = not side
    return tuple(groups)


def _wave(
    waiting: list[Node], side: bool, chosen: frozenset[str], needs: Mapping[str, set[str]], done: set[str]
) -> tuple[list[Node], list[Node]]:
    """Nodes of ``side`` that can run now, one after another, and the rest; adds the former to ``done``."""
    wave, rest = [], []
    for node in waiting:  # topological order: one walk finds everything that becomes ready
        if (node.name in chosen) == side and needs[node.name] <= done:
            wave.append(node)
            done.add(node.name)
        else:
            rest.append(node)
    return wave, rest


def _components(wave: list[Node], needs: Mapping[str, set[str]]) -> list[tuple[Node, ...]]:
    """Weakly connected components of a wave, by their first node; each keeps the order of the nodes."""
    parent = {node.name: node.name for node in wave}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for node in wave:
        for needed in needs[node.name]:
            if needed in parent:
                parent[root(needed)] = root(node.name)
    members: dict[str, list[Node]] = {}
    for node in wave:
        members.setdefault(root(node.name), []).append(node)
    return [tuple(component) for component in members.values()]
