"""Split one network over several accelerators: a region becomes steps of concurrent programs.

See section 9 of docs/systems.md. The programs of a step read the results of earlier steps in shared
memory, and a step starts when all programs of the previous step have ended. A step whose nodes
cannot be shared runs as one program, and records the reason.

A node is sliced so that it computes some channels or rows of its output from the parts of its
operands that these need. The slices compute the same elements from the same numbers as the whole
node, so results are bit-exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from math import gcd, inf, lcm, prod
from typing import NamedTuple

import numpy as np

from byoc.compiler import compile_regions, partition_graph
from byoc.emission.region import Compiled, Region
from byoc.estimate.bus import Bus
from byoc.graph import Graph, Node, Quantization, Value
from byoc.operators.concatenation import joined
from byoc.operators.forms import Positions
from byoc.operators.movement import taken
from byoc.operators.operator import Operator, Refusal
from byoc.operators.registry import find_family
from byoc.operators.sharding import AXES, Along, Sharding, Span, is_image
from byoc.options import CompileOptions
from byoc.partitioning.partition import Partitioner, boundary, readers
from byoc.scheduling.default import SearchPool
from isa.arch import Arch
from isa.program import Program

HEIGHT = AXES["rows"]


def sharding_of(graph: Graph, node: Node, along: Along) -> Sharding | str:
    """Return how ``node`` computes some of its channels or rows, or why it cannot."""
    values = [graph.values[name] for name in (*node.inputs, *node.outputs)]
    if len(node.outputs) != 1 or any(value.layout is not None for value in values):
        return f"{node.op_type}: it has several outputs, or tensors that lie otherwise in the model"
    if along == "rows" and not is_image(values[-1]):
        return f"{node.op_type}: its output is not one image of rows"
    found = find_family(graph, node)
    family = Operator if isinstance(found, Refusal) else found
    sharding = family.divide(graph, node, along)
    if isinstance(sharding, str):
        return f"{node.op_type}: {sharding}"
    computed = (axis for axis, value in zip(sharding.axes, values, strict=False) if value.constant is None)
    if along == "rows" and any(axis != HEIGHT for axis in computed):
        return f"{node.op_type}: it reads an operand otherwise than by its rows"
    return sharding


def sliced(value: Value, name: str, axis: int, span: Span) -> Value:
    """Return the elements of ``value`` in ``span`` along ``axis``, with their scales."""
    start, stop = span
    window = (slice(None),) * axis + (slice(start, stop),)
    scales = value.quantization
    if scales is not None and not scales.per_tensor and scales.axis == axis:
        scales = Quantization(scales.scale[start:stop], scales.zero_point[start:stop], axis)
    constant = None if value.constant is None else np.ascontiguousarray(value.constant[window])
    shape = (*value.shape[:axis], stop - start, *value.shape[axis + 1 :])
    return Value(name, shape, value.dtype, scales, constant)


def unit(value: Value, axis: int, burst: int) -> int:
    """Return the fewest elements along ``axis`` whose multiples fill bursts of ``burst`` bytes."""
    return burst // gcd(burst, prod(value.shape[axis + 1 :]))


def part(node: Node, sharding: Sharding, inputs: tuple[str, ...], output: str, span: Span) -> Node:
    """Return ``node`` restricted to a ``span`` of its result, with other tensor names."""
    attributes = {**node.attributes, **sharding.attributes(span)}
    macs = node.macs * (span[1] - span[0]) // sharding.size
    return replace(node, inputs=inputs, outputs=(output,), attributes=attributes, macs=macs)


def slice_rows(value: Value, result: str, span: Span) -> Node:
    """Return a node that copies the rows ``span`` of a tensor."""
    index = np.arange(value.elements).reshape(value.shape)[:, :, span[0] : span[1]]
    return taken(value, result, Positions(index, None))


def join_rows(first: Value, parts: tuple[str, ...], result: str) -> Node:
    """Return a node that concatenates ``parts`` along the rows; ``first`` is the first of them."""
    return joined(first, parts, result, HEIGHT)


WAYS = ("batch", "channels", "rows", "pipeline")
ALIGNMENT = 64
"""Alignment of a program's tensors in bytes; the burst length where bursts are longer."""
MOST_AGAIN = 0.1
"""Maximum share of a group's work that bands may compute twice; with more, a new group begins."""


@dataclass(frozen=True)
class SplitAccelerator:
    """Accelerator of a split: name, machine, bus, and a function that times a program alone."""

    name: str
    arch: Arch
    bus: Bus
    cycles: Callable[[Program], int]


@dataclass(frozen=True)
class TensorRange:
    """Range ``span`` of a tensor in memory along ``axis``; the whole tensor if ``span`` is None."""

    tensor: str
    axis: int = 0
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class SplitProgram:
    """Program on the accelerator with index ``accelerator``.

    ``reads`` and ``writes`` map the program's tensors to parts of tensors in shared memory.
    ``cycles`` is its duration when it runs alone.
    """

    accelerator: int
    program: Program
    cycles: int
    values: Mapping[str, Value]
    reads: Mapping[str, TensorRange]
    writes: Mapping[str, TensorRange]
    macs: int


@dataclass(frozen=True, eq=False)
class SplitStep:
    """Programs that run at the same time.

    ``whole`` is the reason why there is only one program, for nodes that could not be shared.
    ``once`` is the duration of shared nodes as one program on the first accelerator alone, in
    cycles; None if that accelerator cannot run them all.
    """

    nodes: tuple[str, ...]
    pieces: tuple[SplitProgram, ...]
    whole: str | None = None
    once: int | None = None


class RefusedError(Exception):
    """Nodes cannot be shared; the message gives the reason."""


@dataclass(frozen=True, eq=False)
class Splitter:
    """Builder of the pieces of one region of ``graph``."""

    graph: Graph
    region: Region
    accelerators: Sequence[SplitAccelerator]
    options: CompileOptions

    def piece(
        self,
        accelerator: int,
        nodes: Sequence[Node],
        values: Mapping[str, Value],
        reads: Mapping[str, TensorRange],
        writes: Mapping[str, TensorRange],
    ) -> SplitProgram:
        """Compile nodes for an accelerator; raise RefusedError if one would run on the CPU."""
        machine = self.accelerators[accelerator]
        small = Graph(self.region.name, tuple(reads), tuple(writes), values, tuple(nodes))
        found = partition_graph(Partitioner(small), machine.arch, self.options)
        fallen = next((place for place in found.placement if place.on == "cpu"), None)
        if fallen is not None:
            raise RefusedError(f"{fallen.op_type}: on {machine.name} {fallen.reason}")
        operations = tuple(operation for region in found.regions for operation in region.operations)
        region = Region(self.region.index, self.region.name, small.nodes, small.inputs, small.outputs, operations)
        searches = SearchPool[Compiled](machine.bus)
        ((program, _),) = compile_regions([region], values, machine.arch, self.options, searches=searches)
        macs = sum(node.macs for node in nodes)
        return SplitProgram(accelerator, program, machine.cycles(program), values, reads, writes, macs)

    def whole(self, nodes: Sequence[Node], accelerator: int = 0) -> SplitProgram:
        """Compile consecutive nodes unsliced, between whole tensors."""
        inputs, outputs = self.ends(nodes)
        everything = ({name: TensorRange(name) for name in names} for names in (inputs, outputs))
        return self.piece(accelerator, nodes, self.graph.values, *everything)

    def ends(self, nodes: Sequence[Node]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tensors that consecutive nodes read from memory, and their outputs."""
        return boundary(self.graph, nodes, self._readers)

    @cached_property
    def _readers(self) -> dict[str, set[str]]:
        return readers(self.graph)


def by_pipeline(splitter: Splitter) -> list[SplitStep]:
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
    return [SplitStep(tuple(node.name for node in nodes[start:stop]), (one,)) for start, stop, one in pieces if one]


Cost = Callable[[int, int, int], float]
"""Cost of the parts from ``start`` to ``stop`` (at least one) in group ``number``."""


def best_cuts(count: int, parts: int, cost: Cost) -> list[int]:
    """Return where to cut ``parts`` into ``count`` groups so that the most expensive costs least.

    The result is 0, the cuts, ``parts``. Groups may be empty and then cost nothing. The cuts are
    optimal if adding a part never makes a group cheaper, which holds for nearly all programs. The
    search needs only few costs.
    """
    cuts: list[int] | None = [0, *[parts] * count]
    while cuts is not None:
        best = cuts
        dearest = max(cost(number, *ends) for number, ends in enumerate(pairwise(best)) if ends[0] < ends[1])
        cuts = _cuts_below(dearest, count, parts, cost)
    return best


def _cuts_below(limit: float, count: int, parts: int, cost: Cost) -> list[int] | None:
    """Return cuts with every group below ``limit``, each as long as possible, or None."""
    cuts = [0]
    for number in range(count):
        start = cuts[-1]
        stops = range(start + 1, parts + 1)
        cuts.append(start + bisect_left(stops, limit, key=partial(cost, number, start)))
    return cuts if cuts[-1] == parts else None


# Shared nodes. ------------------------------------------------------------------------------------------------------


class SharedNode(NamedTuple):
    """Node of a group, and how it is shared."""

    node: Node
    sharding: Sharding


Group = list[SharedNode]
"""Consecutive nodes of which each accelerator can compute its part without the others' results."""


def _groups(
    splitter: Splitter, along: Along, takes: Callable[[Group, SharedNode], bool]
) -> list[tuple[list[Node], Group | str]]:
    """Group the nodes of the region.

    ``takes(group, member)`` says whether a group accepts another member. A node that cannot be
    shared forms a group of its own with the reason.
    """
    groups: list[tuple[list[Node], Group | str]] = []
    for node in splitter.region.nodes:
        sharding = sharding_of(splitter.graph, node, along)
        last = groups[-1][1] if groups else None
        if isinstance(sharding, str):
            groups.append(([node], sharding))
        elif isinstance(last, list) and takes(last, SharedNode(node, sharding)):
            groups[-1][0].append(node)
            last.append(SharedNode(node, sharding))
        else:
            groups.append(([node], [SharedNode(node, sharding)]))
    return groups


# Channels. ----------------------------------------------------------------------------------------------------------


def by_channels(splitter: Splitter) -> list[SplitStep]:
    """Give each accelerator a share of the output channels, which are contiguous in memory."""
    return _steps(splitter, _groups(splitter, "channels", partial(_takes_shares, splitter)), _channel_pieces)


def _takes_shares(splitter: Splitter, group: Group, other: SharedNode) -> bool:
    """Return True if a node can use the group's shares of channels without fewer shares."""
    made = {member.node.outputs[0]: member.sharding.axis for member in group}
    read = zip(other.node.inputs, other.sharding.axes, strict=True)
    if group[0].sharding.size != other.sharding.size or any(made.get(name, axis) != axis for name, axis in read):
        return False
    count = len(splitter.accelerators)
    return min(count, _shares(splitter, [*group, other])) == min(count, _shares(splitter, group))


def _unit(splitter: Splitter, group: Group) -> int:
    """Return the number of channels whose multiples start at bursts in all cut tensors."""
    values = splitter.graph.values
    burst = max(ALIGNMENT, *(one.bus.burst_bytes for one in splitter.accelerators))
    cut = [
        (values[name], axis)
        for node, sharding in group
        for name, axis in zip((*node.outputs, *node.inputs), (sharding.axis, *sharding.axes), strict=True)
        if axis is not None and values[name].constant is None
    ]
    return lcm(*(unit(value, axis, burst) for value, axis in cut))


def _shares(splitter: Splitter, group: Group) -> int:
    """Return the maximum number of accelerators that can have channels of the group."""
    return -(-group[0].sharding.size // _unit(splitter, group))


def _channel_pieces(splitter: Splitter, group: Group) -> list[SplitProgram]:
    count, channels = len(splitter.accelerators), group[0].sharding.size
    unit, shares = _unit(splitter, group), _shares(splitter, group)
    if shares < 2:
        raise RefusedError(
            f"{group[0].node.op_type}: {channels} channels; a share begins at whole bursts, every {unit}"
        )
    ends = [min(channels, unit * (shares * number // count)) for number in range(count)] + [channels]
    spans = [(number, span) for number, span in enumerate(pairwise(ends)) if span[0] < span[1]]
    return [_channel_piece(splitter, group, number, span) for number, span in spans]


def _channel_piece(splitter: Splitter, group: Group, number: int, span: Span) -> SplitProgram:
    graph, values, made = splitter.graph, dict[str, Value](), dict[str, int]()
    reads, nodes = dict[str, TensorRange](), []
    for node, sharding in group:
        names = []
        for name, axis in zip(node.inputs, sharding.axes, strict=True):
            value = graph.values[name]
            if name in made:
                names.append(name)
                continue
            local = name if axis is None else f"{name}[{span[0]}:{span[1]}]"
            values[local] = value if axis is None else sliced(value, local, axis, span)
            if value.constant is None:
                reads[local] = TensorRange(name, axis or 0, None if axis is None else span)
            names.append(local)
        (output,) = node.outputs
        values[output] = sliced(graph.values[output], output, sharding.axis, span)
        made[output] = sharding.axis
        nodes.append(part(node, sharding, tuple(names), output, span))
    writes = {name: TensorRange(name, made[name], span) for name in splitter.ends([node for node, _ in group])[1]}
    return splitter.piece(number, nodes, values, reads, writes)


# Rows. --------------------------------------------------------------------------------------------------------------


Bands = dict[str, list[tuple[str, Span]]]
"""Tensors stored in memory as bands of rows: names and rows of the bands, which may overlap."""


def by_rows(splitter: Splitter) -> list[SplitStep]:
    """Give each accelerator a band of the output rows.

    Within a group the halo rows are computed twice; between groups they are read from memory.
    """
    groups = _groups(splitter, "rows", lambda group, other: _again(splitter, [*group, other]) <= MOST_AGAIN)
    bands = Bands()
    return _steps(splitter, groups, partial(_row_pieces, bands=bands), bands)


def _again(splitter: Splitter, group: Group) -> float:
    """Return the share of the group's MACs (elements, for nodes without MACs) that bands repeat."""
    values = splitter.graph.values
    made = [_rows_made(splitter, group, number) for number in range(len(splitter.accelerators))]
    once = twice = 0.0
    for node, sharding in group:
        work = node.macs or values[node.outputs[0]].elements
        once += work
        for rows in made:
            start, stop = rows.get(node.outputs[0], (0, 0))
            twice += work * (stop - start) / sharding.size
    return twice / once - 1


def _rows_made(splitter: Splitter, group: Group, number: int) -> dict[str, Span]:
    """Return the rows of each tensor that an accelerator computes.

    These are its band of the tensors with consumers outside the group, and the rows that these
    bands need.
    """
    graph, count = splitter.graph, len(splitter.accelerators)
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


class _NodeBand:
    """Nodes that one accelerator runs for a group, including slices and joins of input rows."""

    def __init__(self, splitter: Splitter, bands: Bands, number: int) -> None:
        self.splitter, self.bands, self.number = splitter, bands, number
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.reads: dict[str, TensorRange] = {}
        self.made: dict[str, Span] = {}

    def rows(self, name: str, span: Span) -> str:
        """Return the local name of rows ``span`` of a tensor; add the nodes that gather them."""
        if name in self.made:
            return self._taken(name, self.made[name], span)
        parts = [self._taken(part, own, wanted) for part, own, wanted in self._sources(name, span)]
        if len(parts) == 1:
            return parts[0]
        result = f"{name} rows {span[0]}:{span[1]}"
        if result not in self.values:
            self.values[result] = sliced(self.splitter.graph.values[name], result, HEIGHT, span)
            self.nodes.append(join_rows(self.values[parts[0]], tuple(parts), result))
        return result

    def _sources(self, name: str, span: Span) -> Iterable[tuple[str, Span, Span]]:
        """Yield tensors in memory that cover rows of ``name``, their rows, and the rows used."""
        value = self.splitter.graph.values[name]
        stored = self.bands.get(name, [(name, (0, value.shape[HEIGHT]))])
        at = span[0]
        while at < span[1]:
            part, own = max((one for one in stored if one[1][0] <= at < one[1][1]), key=lambda one: one[1][1])
            self.values[part] = sliced(value, part, HEIGHT, own)
            self.reads[part] = TensorRange(part)
            yield part, own, (at, min(own[1], span[1]))
            at = own[1]

    def _taken(self, name: str, own: Span, span: Span) -> str:
        if own == span:
            return name
        result = f"{name} taken {span[0]}:{span[1]}"
        if result not in self.values:
            inside = span[0] - own[0], span[1] - own[0]
            self.values[result] = sliced(self.values[name], result, HEIGHT, inside)
            self.nodes.append(slice_rows(self.values[name], result, inside))
        return result

    def add(self, member: SharedNode, span: Span) -> None:
        """Add a node that computes the rows ``span`` of a member's output."""
        node, sharding = member
        graph, (output,) = self.splitter.graph, node.outputs
        read = sharding.reads(span)
        if read[0] >= read[1]:
            raise RefusedError(f"{node.op_type}: a band has nothing but padding")
        names = []
        for name in node.inputs:
            constant = graph.values[name].constant is not None
            names.append(name if constant else self.rows(name, read))
            if constant:
                self.values[name] = graph.values[name]
        self.values[output] = sliced(graph.values[output], output, HEIGHT, span)
        self.made[output] = span
        self.nodes.append(part(node, sharding, tuple(names), output, span))

    def whole(self, nodes: Sequence[Node]) -> SplitProgram:
        """Return unsliced nodes whose inputs are joined from bands first."""
        values = self.splitter.graph.values
        inputs, outputs = self.splitter.ends(nodes)
        joined = {name: self.rows(name, (0, values[name].shape[HEIGHT])) for name in inputs if name in self.bands}
        for node in nodes:
            self.nodes.append(replace(node, inputs=tuple(joined.get(name, name) for name in node.inputs)))
            self.values |= {name: values[name] for name in (*node.inputs, *node.outputs)}
        self.reads |= {name: TensorRange(name) for name in inputs if name not in joined}
        return self._piece({name: TensorRange(name) for name in outputs})

    def gathered(self, names: Sequence[str]) -> SplitProgram:
        """Return a piece that joins the region's outputs from their bands."""
        values = self.splitter.graph.values
        joined = {self.rows(name, (0, values[name].shape[HEIGHT])): TensorRange(name) for name in names}
        return self._piece(joined)

    def band(self, outputs: Sequence[str]) -> SplitProgram:
        """Return the piece that stores this accelerator's rows of ``outputs``."""
        return self._piece({name: TensorRange(band_name(name, self.number)) for name in outputs if name in self.made})

    def _piece(self, writes: Mapping[str, TensorRange]) -> SplitProgram:
        return self.splitter.piece(self.number, self.nodes, self.values, self.reads, writes)


def band_name(name: str, number: int) -> str:
    """Return the name of the band that accelerator ``number`` computes of a tensor."""
    return f"{name} band {number}"


def _row_pieces(splitter: Splitter, group: Group, bands: Bands) -> list[SplitProgram]:
    outputs = splitter.ends([node for node, _ in group])[1]
    pieces, found = [], Bands()
    for number in range(len(splitter.accelerators)):
        rows = _rows_made(splitter, group, number)
        if not rows:
            continue
        band = _NodeBand(splitter, bands, number)
        for member in group:
            if member.node.outputs[0] in rows:
                band.add(member, rows[member.node.outputs[0]])
        pieces.append(band.band(outputs))
        for name in outputs:
            if name in rows:
                found.setdefault(name, []).append((band_name(name, number), rows[name]))
    heights = {name: splitter.graph.values[name].shape[HEIGHT] for name in outputs}
    if len(pieces) < 2 or any(stop - start == heights[name] for name in found for _, (start, stop) in found[name]):
        raise RefusedError(f"{group[0].node.op_type}: a band would be the whole output")
    bands |= found
    return pieces


# Steps. -------------------------------------------------------------------------------------------------------------


def _steps(
    splitter: Splitter,
    groups: Sequence[tuple[list[Node], Group | str]],
    pieces_of: Callable[[Splitter, Group], list[SplitProgram]],
    storage: Bands | None = None,
) -> list[SplitStep]:
    """Return a step for each shared group, and a whole one for each run of other nodes."""
    steps: list[SplitStep] = []
    waiting: list[Node] = []
    reasons: dict[str, None] = {}

    def run_whole() -> None:
        if waiting:
            nodes = tuple(waiting)
            piece = (
                splitter.whole(nodes) if storage is None else _first(splitter, storage, lambda band: band.whole(nodes))
            )
            steps.append(SplitStep(tuple(node.name for node in waiting), (piece,), "; ".join(reasons)))
            waiting.clear()
            reasons.clear()

    for nodes, shared in groups:
        try:
            if isinstance(shared, str):
                raise RefusedError(shared)
            pieces = pieces_of(splitter, shared)
        except RefusedError as error:
            waiting += nodes
            reasons[str(error)] = None
            continue
        run_whole()
        steps.append(SplitStep(tuple(node.name for node in nodes), tuple(pieces), once=_once(splitter, nodes)))
    run_whole()
    in_bands = [name for name in splitter.region.outputs if storage and name in storage]
    if storage and in_bands:
        piece = _first(splitter, storage, lambda band: band.gathered(in_bands))
        steps.append(SplitStep((), (piece,), "joining the bands of the output"))
    return steps


def _once(splitter: Splitter, nodes: Sequence[Node]) -> int | None:
    try:
        return splitter.whole(nodes).cycles
    except RefusedError:
        return None


def _first(splitter: Splitter, bands: Bands, make: Callable[[_NodeBand], SplitProgram]) -> SplitProgram:
    """Return the piece on the first accelerator that can join bands; raise RefusedError if none."""
    for number in range(len(splitter.accelerators)):
        try:
            return make(_NodeBand(splitter, bands, number))
        except RefusedError as error:
            refusal = error
    raise refusal
