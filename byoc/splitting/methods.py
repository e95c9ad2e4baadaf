"""Split a region by output channels, by output rows, or into consecutive groups of nodes.

Each accelerator computes some channels, a band of rows, or one group.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from math import inf, lcm

from byoc.graph import Value
from byoc.operators.sharding import Span
from byoc.splitting.bands import Bands, NodeBand, band_name, make_steps
from byoc.splitting.pieces import (
    ALIGNMENT,
    HEIGHT,
    Group,
    RefusedError,
    SharedNode,
    SplitProgram,
    SplitStep,
    Splitter,
    TensorRange,
    group_nodes,
    part,
    slice_value,
    unit,
)


def split_by_channels(splitter: Splitter) -> list[SplitStep]:
    """Divide output channels, contiguous in memory, among the accelerators."""
    return make_steps(
        splitter,
        group_nodes(splitter, "channels", partial(_can_use_shares, splitter)),
        _channel_pieces,
    )


def _can_use_shares(splitter: Splitter, group: Group, other: SharedNode) -> bool:
    """Return True if a node can be divided like the group, over as many accelerators."""
    made = {member.node.outputs[0]: member.sharding.axis for member in group}
    read = zip(other.node.inputs, other.sharding.axes, strict=True)
    if group[0].sharding.size != other.sharding.size or any(
        made.get(name, axis) != axis for name, axis in read
    ):
        return False
    count = len(splitter.accelerators)
    return min(count, _shares(splitter, [*group, other])) == min(count, _shares(splitter, group))


def _unit(splitter: Splitter, group: Group) -> int:
    """Return the channel count whose multiples begin bursts in all divided tensors."""
    values = splitter.graph.values
    burst = max(ALIGNMENT, *(one.bus.burst_bytes for one in splitter.accelerators))
    cut = [
        (values[name], axis)
        for node, sharding in group
        for name, axis in zip(
            (*node.outputs, *node.inputs), (sharding.axis, *sharding.axes), strict=True
        )
        if axis is not None and values[name].constant is None
    ]
    return lcm(*(unit(value, axis, burst) for value, axis in cut))


def _shares(splitter: Splitter, group: Group) -> int:
    """Return the maximum number of accelerators that can divide a group's channels."""
    return -(-group[0].sharding.size // _unit(splitter, group))


def _channel_pieces(splitter: Splitter, group: Group) -> list[SplitProgram]:
    count = len(splitter.accelerators)
    channels = group[0].sharding.size
    unit = _unit(splitter, group)
    shares = _shares(splitter, group)
    if shares < 2:
        raise RefusedError(
            f"{group[0].node.op_type}: {channels} channels; a share begins at whole bursts, every "
            f"{unit}"
        )
    ends = [min(channels, unit * (shares * number // count)) for number in range(count)] + [
        channels
    ]
    spans = [(number, span) for number, span in enumerate(pairwise(ends)) if span[0] < span[1]]
    return [_channel_piece(splitter, group, number, span) for number, span in spans]


def _channel_piece(splitter: Splitter, group: Group, number: int, span: Span) -> SplitProgram:
    graph = splitter.graph
    values = dict[str, Value]()
    made = dict[str, int]()
    reads = dict[str, TensorRange]()
    nodes = []
    for node, sharding in group:
        names = []
        for name, axis in zip(node.inputs, sharding.axes, strict=True):
            value = graph.values[name]
            if name in made:
                names.append(name)
                continue
            local = name if axis is None else f"{name}[{span[0]}:{span[1]}]"
            values[local] = value if axis is None else slice_value(value, local, axis, span)
            if value.constant is None:
                reads[local] = TensorRange(name, axis or 0, None if axis is None else span)
            names.append(local)
        (output,) = node.outputs
        values[output] = slice_value(graph.values[output], output, sharding.axis, span)
        made[output] = sharding.axis
        nodes.append(part(node, sharding, tuple(names), output, span))
    writes = {
        name: TensorRange(name, made[name], span)
        for name in splitter.ends([node for node, _ in group])[1]
    }
    return splitter.piece(number, nodes, values, reads, writes)


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


def split_by_pipeline(splitter: Splitter) -> list[SplitStep]:
    """Split the nodes into consecutive groups, one per accelerator.

    The cuts minimise the duration of the slowest group, with its program running alone. An
    accelerator gets no nodes if it would only make that group slower.
    """
    nodes = splitter.region.nodes

    @cache
    def group(number: int, start: int, stop: int) -> SplitProgram | None:
        try:
            return splitter.whole(nodes[start:stop], number)
        except RefusedError:
            return None

    def cost(number: int, start: int, stop: int) -> float:
        piece = group(number, start, stop)
        return inf if piece is None else piece.cycles

    cuts = best_cuts(len(splitter.accelerators), len(nodes), cost)
    places = [(number, *ends) for number, ends in enumerate(pairwise(cuts)) if ends[0] < ends[1]]
    pieces = [(start, stop, group(number, start, stop)) for number, start, stop in places]
    return [
        SplitStep(tuple(node.name for node in nodes[start:stop]), (one,))
        for start, stop, one in pieces
        if one
    ]


Cost = Callable[[int, int, int], float]
"""Cost of the parts from ``start`` to ``stop`` (at least one) in group ``number``."""


def best_cuts(count: int, parts: int, cost: Cost) -> list[int]:
    """Cut a sequence into ``count`` groups so that the most expensive group costs least.

    The result is 0, the cuts, ``parts``. Groups may be empty and then cost nothing. The cuts are
    optimal if adding a part never makes a group cheaper, which holds for nearly all programs. The
    search needs only few costs.
    """
    cuts: list[int] | None = [0, *[parts] * count]
    while cuts is not None:
        best = cuts
        dearest = max(
            cost(number, *ends) for number, ends in enumerate(pairwise(best)) if ends[0] < ends[1]
        )
        cuts = _cuts_below(dearest, count, parts, cost)
    return best


def _cuts_below(limit: float, count: int, parts: int, cost: Cost) -> list[int] | None:
    """Return cuts that keep the cost of every group below ``limit``, or None.

    Each group is as long as possible.
    """
    cuts = [0]
    for number in range(count):
        start = cuts[-1]
        stops = range(start + 1, parts + 1)
        cuts.append(start + bisect_left(stops, limit, key=partial(cost, number, start)))
    return cuts if cuts[-1] == parts else None
