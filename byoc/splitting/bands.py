"""Nodes of one accelerator whose tensors are stored as bands of rows, and the steps of a split."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from byoc.graph import Node, Value
from byoc.operators.concatenation import make_concatenation
from byoc.operators.sharding import Span
from byoc.splitting.pieces import (
    HEIGHT,
    Group,
    RefusedError,
    SharedNode,
    SplitProgram,
    SplitStep,
    Splitter,
    TensorRange,
    part,
    slice_rows,
    slice_value,
)

Bands = dict[str, list[tuple[str, Span]]]
"""Tensors stored in memory as bands of rows: names and rows of the bands, which may overlap."""


class NodeBand:
    """Nodes that one accelerator runs for a group, including slices and joins of input rows."""

    def __init__(self, splitter: Splitter, bands: Bands, number: int) -> None:
        self.splitter = splitter
        self.bands = bands
        self.number = number
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.reads: dict[str, TensorRange] = {}
        self.made: dict[str, Span] = {}

    def rows(self, name: str, span: Span) -> str:
        """Return a name for rows ``span`` of a tensor; add nodes that gather the rows."""
        if name in self.made:
            return self._take_rows(name, self.made[name], span)
        parts = [
            self._take_rows(part, own, wanted) for part, own, wanted in self._sources(name, span)
        ]
        if len(parts) == 1:
            return parts[0]
        result = f"{name} rows {span[0]}:{span[1]}"
        if result not in self.values:
            self.values[result] = slice_value(
                self.splitter.graph.values[name], result, HEIGHT, span
            )
            self.nodes.append(
                make_concatenation(self.values[parts[0]], tuple(parts), result, HEIGHT)
            )
        return result

    def _sources(self, name: str, span: Span) -> Iterable[tuple[str, Span, Span]]:
        """Yield stored tensors that cover rows of ``name``, with their rows and those used."""
        value = self.splitter.graph.values[name]
        stored = self.bands.get(name, [(name, (0, value.shape[HEIGHT]))])
        at = span[0]
        while at < span[1]:
            part, own = max(
                (one for one in stored if one[1][0] <= at < one[1][1]), key=lambda one: one[1][1]
            )
            self.values[part] = slice_value(value, part, HEIGHT, own)
            self.reads[part] = TensorRange(part)
            yield part, own, (at, min(own[1], span[1]))
            at = own[1]

    def _take_rows(self, name: str, own: Span, span: Span) -> str:
        if own == span:
            return name
        result = f"{name} taken {span[0]}:{span[1]}"
        if result not in self.values:
            inside = span[0] - own[0], span[1] - own[0]
            self.values[result] = slice_value(self.values[name], result, HEIGHT, inside)
            self.nodes.append(slice_rows(self.values[name], result, inside))
        return result

    def add(self, member: SharedNode, span: Span) -> None:
        """Add a node that computes rows ``span`` of the output of a node of the group."""
        node, sharding = member
        graph = self.splitter.graph
        (output,) = node.outputs
        read = sharding.reads(span)
        if read[0] >= read[1]:
            raise RefusedError(f"{node.op_type}: a band has nothing but padding")
        names = []
        for name in node.inputs:
            constant = graph.values[name].constant is not None
            names.append(name if constant else self.rows(name, read))
            if constant:
                self.values[name] = graph.values[name]
        self.values[output] = slice_value(graph.values[output], output, HEIGHT, span)
        self.made[output] = span
        self.nodes.append(part(node, sharding, tuple(names), output, span))

    def whole(self, nodes: Sequence[Node]) -> SplitProgram:
        """Return a program that joins the bands of its inputs and runs ``nodes`` whole."""
        values = self.splitter.graph.values
        inputs, outputs = self.splitter.ends(nodes)
        joined = {
            name: self.rows(name, (0, values[name].shape[HEIGHT]))
            for name in inputs
            if name in self.bands
        }
        for node in nodes:
            self.nodes.append(
                replace(node, inputs=tuple(joined.get(name, name) for name in node.inputs))
            )
            self.values |= {name: values[name] for name in (*node.inputs, *node.outputs)}
        self.reads |= {name: TensorRange(name) for name in inputs if name not in joined}
        return self._piece({name: TensorRange(name) for name in outputs})

    def gather_outputs(self, names: Sequence[str]) -> SplitProgram:
        """Return a program that joins the region's outputs from their bands."""
        values = self.splitter.graph.values
        joined = {
            self.rows(name, (0, values[name].shape[HEIGHT])): TensorRange(name) for name in names
        }
        return self._piece(joined)

    def band(self, outputs: Sequence[str]) -> SplitProgram:
        """Return a program that stores the rows of ``outputs`` computed on this accelerator."""
        return self._piece(
            {
                name: TensorRange(band_name(name, self.number))
                for name in outputs
                if name in self.made
            }
        )

    def _piece(self, writes: Mapping[str, TensorRange]) -> SplitProgram:
        return self.splitter.piece(self.number, self.nodes, self.values, self.reads, writes)


def band_name(name: str, number: int) -> str:
    """Return the name of the band that accelerator ``number`` computes of a tensor."""
    return f"{name} band {number}"


def make_steps(
    splitter: Splitter,
    groups: Sequence[tuple[list[Node], Group | str]],
    pieces_of: Callable[[Splitter, Group], list[SplitProgram]],
    storage: Bands | None = None,
) -> list[SplitStep]:
    """Return the steps of a split region: one per divided group or run of other nodes."""
    steps: list[SplitStep] = []
    waiting: list[Node] = []
    reasons: dict[str, None] = {}

    def run_whole() -> None:
        if waiting:
            nodes = tuple(waiting)
            piece = (
                splitter.whole(nodes)
                if storage is None
                else _first(splitter, storage, lambda band: band.whole(nodes))
            )
            steps.append(
                SplitStep(tuple(node.name for node in waiting), (piece,), "; ".join(reasons))
            )
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
        steps.append(
            SplitStep(
                tuple(node.name for node in nodes),
                tuple(pieces),
                once=_find_single_node(splitter, nodes),
            )
        )
    run_whole()
    in_bands = [name for name in splitter.region.outputs if storage and name in storage]
    if storage and in_bands:
        piece = _first(splitter, storage, lambda band: band.gather_outputs(in_bands))
        steps.append(SplitStep((), (piece,), "joining the bands of the output"))
    return steps


def _find_single_node(splitter: Splitter, nodes: Sequence[Node]) -> int | None:
    try:
        return splitter.whole(nodes).cycles
    except RefusedError:
        return None


def _first(
    splitter: Splitter, bands: Bands, make: Callable[[NodeBand], SplitProgram]
) -> SplitProgram:
    """Return the program that ``make`` builds on the first accelerator that can join bands.

    Raise RefusedError if there is none.
    """
    for number in range(len(splitter.accelerators)):
        try:
            return make(NodeBand(splitter, bands, number))
        except RefusedError as error:
            refusal = error
    raise refusal
