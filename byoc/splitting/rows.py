"""Split a region by output rows: each accelerator computes a band of them."""

from __future__ import annotations

from functools import partial

from byoc.operators.sharding import Span
from byoc.splitting.bands import Bands, NodeBand, band_name
from byoc.splitting.groups import Group, group_nodes
from byoc.splitting.pieces import HEIGHT, RefusedError, SplitProgram, SplitStep, Splitter
from byoc.splitting.steps import make_steps

MOST_AGAIN = 0.1
"""Maximum share of a group's work that bands may compute twice; with more, a new group begins."""


def split_by_rows(splitter: Splitter) -> list[SplitStep]:
    """Divide the output rows among the accelerators, one band each.

    Within a group the halo rows are computed twice; between groups they are read from memory.
    """
    groups = group_nodes(
        splitter,
        "rows",
        lambda group, other: _compute_repeated_share(splitter, [*group, other]) <= MOST_AGAIN,
    )
    bands = Bands()
    return make_steps(splitter, groups, partial(_row_pieces, bands=bands), bands)


def _compute_repeated_share(splitter: Splitter, group: Group) -> float:
    """Return the fraction of a group's work that overlapping bands compute again.

    The work of a node is its MACs, or the elements of its result if it has none.
    """
    values = splitter.graph.values
    made = [
        _find_computed_rows(splitter, group, number) for number in range(len(splitter.accelerators))
    ]
    once = twice = 0.0
    for node, sharding in group:
        work = node.macs or values[node.outputs[0]].elements
        once += work
        for rows in made:
            start, stop = rows.get(node.outputs[0], (0, 0))
            twice += work * (stop - start) / sharding.size
    return twice / once - 1


def _find_computed_rows(splitter: Splitter, group: Group, number: int) -> dict[str, Span]:
    """Return the rows of each tensor that an accelerator computes.

    These are its band of the tensors with consumers outside the group, and the rows that these
    bands need.
    """
    graph = splitter.graph
    count = len(splitter.accelerators)
    rows: dict[str, Span] = {}

    def want(name: str, span: Span) -> None:
        before = rows.get(name, span)
        rows[name] = min(before[0], span[0]), max(before[1], span[1])

    for name in splitter.ends([node for node, _ in group])[1]:
        height = graph.values[name].shape[HEIGHT]
        band = height * number // count, height * (number + 1) // count
        if band[0] < band[1]:
            want(name, band)
    made = {node.outputs[0] for node, _ in group}
    for node, sharding in reversed(group):
        if node.outputs[0] in rows:
            span = sharding.reads(rows[node.outputs[0]])
            for name in node.inputs:
                if name in made:
                    want(name, span)
    return {name: span for name, span in rows.items() if span[0] < span[1]}


def _row_pieces(splitter: Splitter, group: Group, bands: Bands) -> list[SplitProgram]:
    outputs = splitter.ends([node for node, _ in group])[1]
    pieces = []
    found = Bands()
    for number in range(len(splitter.accelerators)):
        rows = _find_computed_rows(splitter, group, number)
        if not rows:
            continue
        band = NodeBand(splitter, bands, number)
        for member in group:
            if member.node.outputs[0] in rows:
                band.add(member, rows[member.node.outputs[0]])
        pieces.append(band.band(outputs))
        for name in outputs:
            if name in rows:
                found.setdefault(name, []).append((band_name(name, number), rows[name]))
    heights = {name: splitter.graph.values[name].shape[HEIGHT] for name in outputs}
    if len(pieces) < 2 or any(
        stop - start == heights[name] for name in found for _, (start, stop) in found[name]
    ):
        raise RefusedError(f"{group[0].node.op_type}: a band would be the whole output")
    bands |= found
    return pieces
