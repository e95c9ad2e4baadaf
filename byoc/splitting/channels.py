"""Split a region by output channels: each accelerator computes some of them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import lcm

from byoc.graph import Value
from byoc.operators.sharding import Span
from byoc.splitting.groups import Group, SharedNode, group_nodes
from byoc.splitting.pieces import (
    ALIGNMENT,
    RefusedError,
    SplitProgram,
    SplitStep,
    Splitter,
    TensorRange,
    part,
    slice_value,
    unit,
)
from byoc.splitting.steps import make_steps


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
