"""Parts of a region that is split over accelerators: slices, nodes, groups of nodes and programs.

The accelerators run the programs at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from byoc.compiled import Region
from byoc.compiler import compile_regions, partition_graph
from byoc.emission.region import Compiled
from byoc.estimate.bus import MemoryBus
from byoc.graph import Graph, Node, Quantization, Value
from byoc.operators.forms import Positions
from byoc.operators.movement import make_gather
from byoc.operators.operator import Operator
from byoc.operators.registry import find_family
from byoc.operators.rules import Refusal
from byoc.operators.sharding import AXES, Along, Sharding, Span, is_image
from byoc.options import CompileOptions
from byoc.partitioning.partition import Partitioner, boundary, readers
from byoc.scheduling.search_pool import SearchPool
from isa.arch import Arch
from isa.program import Program

HEIGHT = AXES["rows"]


def find_sharding(graph: Graph, node: Node, along: Along) -> Sharding | str:
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
    computed = (
        axis for axis, value in zip(sharding.axes, values, strict=False) if value.constant is None
    )
    if along == "rows" and any(axis != HEIGHT for axis in computed):
        return f"{node.op_type}: it reads an operand otherwise than by its rows"
    return sharding


def slice_value(value: Value, name: str, axis: int, span: Span) -> Value:
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
    """Return the part of a node that computes ``span`` of its result, with renamed tensors."""
    attributes = {**node.attributes, **sharding.attributes(span)}
    macs = node.macs * (span[1] - span[0]) // sharding.size
    return replace(node, inputs=inputs, outputs=(output,), attributes=attributes, macs=macs)


def slice_rows(value: Value, result: str, span: Span) -> Node:
    """Return a node that copies the rows ``span`` of a tensor."""
    index = np.arange(value.elements).reshape(value.shape)[:, :, span[0] : span[1]]
    return make_gather(value, result, Positions(index, None))


WAYS = ("batch", "channels", "rows", "pipeline")
ALIGNMENT = 64
"""Alignment of a program's tensors in bytes; the burst length where bursts are longer."""


@dataclass(frozen=True)
class SplitAccelerator:
    """Accelerator of a split: name, machine, bus, and a function that times a program alone."""

    name: str
    arch: Arch
    bus: MemoryBus
    cycles: Callable[[Program], int]


@dataclass(frozen=True)
class TensorRange:
    """Range ``span`` of a tensor in memory along ``axis``.

    Without a ``span``, the range is the whole tensor.
    """

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

    ``whole`` is the reason why there is only one program, for nodes that could not be divided.
    ``once`` is the duration of divided nodes as one program on the first accelerator alone, in
    cycles; None if that accelerator cannot run them all.
    """

    nodes: tuple[str, ...]
    pieces: tuple[SplitProgram, ...]
    whole: str | None = None
    once: int | None = None


class RefusedError(Exception):
    """Error for nodes that several accelerators cannot compute in parts.

    The message gives the reason.
    """


@dataclass(frozen=True, eq=False)
class Splitter:
    """Compiler of a region's nodes to programs of several accelerators."""

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
        """Compile nodes to a program for one accelerator.

        Raise RefusedError if one would run on the CPU.
        """
        machine = self.accelerators[accelerator]
        small = Graph(self.region.name, tuple(reads), tuple(writes), values, tuple(nodes))
        found = partition_graph(Partitioner(small), machine.arch, self.options)
        fallen = next((place for place in found.placement if place.on == "cpu"), None)
        if fallen is not None:
            raise RefusedError(f"{fallen.op_type}: on {machine.name} {fallen.reason}")
        operations = tuple(operation for region in found.regions for operation in region.operations)
        region = Region(
            self.region.index,
            self.region.name,
            small.nodes,
            small.inputs,
            small.outputs,
            operations,
        )
        searches = SearchPool[Compiled](machine.bus)
        ((program, _),) = compile_regions(
            [region], values, machine.arch, self.options, searches=searches
        )
        macs = sum(node.macs for node in nodes)
        return SplitProgram(
            accelerator, program, machine.cycles(program), values, reads, writes, macs
        )

    def whole(self, nodes: Sequence[Node], accelerator: int = 0) -> SplitProgram:
        """Compile consecutive nodes to a program that one accelerator runs on whole tensors."""
        inputs, outputs = self.ends(nodes)
        everything = ({name: TensorRange(name) for name in names} for names in (inputs, outputs))
        return self.piece(accelerator, nodes, self.graph.values, *everything)

    def ends(self, nodes: Sequence[Node]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tensors that consecutive nodes read from memory, and their outputs."""
        return boundary(self.graph, nodes, self._readers)

    @cached_property
    def _readers(self) -> dict[str, set[str]]:
        return readers(self.graph)


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
