"""Data of compiled networks: regions, host parts, partitions, reports of the compiler, programs.

Compiler passes make them. Runs and reports use them without importing a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from byoc.graph import Graph, Node
from byoc.options import Choices, CompileOptions
from byoc.package.interface import Interface
from byoc.package.package import Package, summary_html
from isa.arch import Arch
from isa.program import Program

if TYPE_CHECKING:
    from byoc.operators.layer import Shortage
    from byoc.operators.operator import Operator


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes of a model that the accelerator runs as one program.

    ``inputs`` and ``outputs`` are names of integer tensors, in order. ``guards`` are conditions and
    their values for which the results are used; for others the host does not run the region.
    """

    index: int
    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operator, ...]
    guards: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True)
class Demand:
    """Lower bounds of a region's cycles, commands and bytes, for any schedule or mapping.

    ``compute_cycles`` excludes fill and drain; ``commands`` is the number of EX commands.
    ``nbytes`` counts inputs that are read, outputs, and constants without gaps and look-up tables,
    each byte once and without intermediates. ``constants`` is the constants' part of ``nbytes``.
    """

    compute_cycles: int
    commands: int
    nbytes: int
    constants: int

    @property
    def apart(self) -> tuple[int, int]:
        """Bytes of inputs and outputs, and bytes of constants, which may be in two memories."""
        return self.nbytes - self.constants, self.constants


@dataclass(frozen=True)
class CompileReport:
    """Report of one compilation.

    It has command words before and after elision, peak SRAM, and tiles of each layer.
    ``compulsory_bytes`` counts inputs that are read, outputs, and constants as stored by this
    program, each byte once. ``demand`` is the minimum of any program. ``choices`` is the complete
    schedule; compiling with it again gives the same program. ``estimates`` are the expected cycles
    by layer. With schedule ``seed`` both are empty.
    """

    words_before_elision: int
    words: int
    sram_peak_bytes: int
    tiles: Mapping[str, int]
    compulsory_bytes: int
    demand: Demand
    choices: Choices
    estimates: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class HostPart:
    """Nodes that run on the CPU together, between tensors named as in the embedded ONNX model."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Placement of one canonical node; ``reason`` and ``rule`` explain a node on the CPU.

    ``region`` is the index of its region. ``rule`` names the general rule, ``reason`` explains
    this case.
    """

    node: str
    op_type: str
    on: Literal["dla", "cpu"]
    region: int | None
    reason: str | None
    onnx_nodes: tuple[str, ...]
    rule: str | None = None


@dataclass(frozen=True, eq=False)
class Partition:
    """Parts of a graph in execution order, and the placement of nodes in graph order.

    ``shortages`` has, by node name, the buffers that do not fit the machine's memory.
    """

    graph: Graph
    parts: tuple[Region | HostPart, ...]
    placement: tuple[Placement, ...]
    shortages: Mapping[str, Shortage] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Partition of {self.graph!r} into {len(self.parts)} parts>"

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(part for part in self.parts if isinstance(part, Region))

    @property
    def host_parts(self) -> tuple[HostPart, ...]:
        return tuple(part for part in self.parts if isinstance(part, HostPart))


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """Package compiled for one Arch: partition, and program and report for each region by index.

    ``interface`` declares the tensors that the application passes in and gets back.
    """

    package: Package
    interface: Interface
    arch: Arch
    options: CompileOptions
    partition: Partition
    programs: Mapping[int, Program]
    reports: Mapping[int, CompileReport]

    def __repr__(self) -> str:
        return (
            f"<CompiledNetwork {self.package.source!r}: {len(self.programs)} programs for "
            f"{self.arch.digest()}>"
        )

    def _repr_html_(self) -> str:
        ours = sum(len(region.nodes) for region in self.partition.regions)
        rows = {
            "machine": repr(self.arch),
            "compiled with": " ".join(self.options.words) or "the defaults",
            "on the accelerator": f"{ours} of {len(self.graph.nodes)} nodes in "
            f"{len(self.programs)} regions",
            "words": ", ".join(f"{len(program.words):,}" for program in self.programs.values()),
        }
        return summary_html(repr(self), rows)

    @property
    def graph(self) -> Graph:
        """Canonical graph between the ports of the interface."""
        return self.interface.graph
