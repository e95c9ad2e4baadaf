"""Group consecutive nodes that accelerators can divide without exchanging results."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from byoc.graph import Node
from byoc.operators.sharding import Along, Sharding
from byoc.splitting.pieces import Splitter, find_sharding


class SharedNode(NamedTuple):
    """Node that several accelerators compute in parts, and its division."""

    node: Node
    sharding: Sharding


Group = list[SharedNode]
"""Consecutive nodes of which each accelerator can compute its part without the others' results."""


def group_nodes(
    splitter: Splitter, along: Along, takes: Callable[[Group, SharedNode], bool]
) -> list[tuple[list[Node], Group | str]]:
    """Group the nodes that accelerators can divide without exchanging results.

    ``takes(group, member)`` returns whether a group accepts another member. A node that cannot be
    divided forms a group of its own with the reason.
    """
    groups: list[tuple[list[Node], Group | str]] = []
    for node in splitter.region.nodes:
        sharding = find_sharding(splitter.graph, node, along)
        last = groups[-1][1] if groups else None
        if isinstance(sharding, str):
            groups.append(([node], sharding))
        elif isinstance(last, list) and takes(last, SharedNode(node, sharding)):
            groups[-1][0].append(node)
            last.append(SharedNode(node, sharding))
        else:
            groups.append(([node], [SharedNode(node, sharding)]))
    return groups
