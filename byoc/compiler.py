"""The compiler, at load: a package (portable) becomes programs for one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from byoc.emission.region import CompileReport, compile_region, fitted
from byoc.graph import Graph
from byoc.interface import Interface, connect
from byoc.operators.onnx_view import BOUNDARIES
from byoc.options import DEFAULTS, CompileOptions, target_of
from byoc.package.package import Package, summary_html
from byoc.partition import Partition, partition
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Program
from isa.progress import Progress, followed, silent


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """A package compiled for one Arch: its partition, and a program and a compile report for each region by index.

    ``interface`` says what the application hands over and takes.
    """

    package: Package
    interface: Interface
    arch: Arch
    options: CompileOptions
    partition: Partition
    programs: Mapping[int, Program]
    reports: Mapping[int, CompileReport]

    def __repr__(self) -> str:
        return f"<CompiledNetwork {self.package.source!r}: {len(self.programs)} programs for {self.arch.digest()}>"

    def _repr_html_(self) -> str:
        ours = sum(len(region.nodes) for region in self.partition.regions)
        rows = {
            "machine": repr(self.arch),
            "compiled with": " ".join(self.options.words) or "the defaults",
            "on the accelerator": f"{ours} of {len(self.graph.nodes)} nodes in {len(self.programs)} regions",
            "words": ", ".join(f"{len(program.words):,}" for program in self.programs.values()),
        }
        return summary_html(repr(self), rows)

    @property
    def graph(self) -> Graph:
        """The canonical graph between the ports of the interface."""
        return self.interface.graph


def partition_package(package: Package, arch: Arch, options: CompileOptions = DEFAULTS) -> Partition:
    """What of ``package`` runs where on a machine with ``arch``, without compiling it."""
    return _partition(connect(package, options), arch, options)


def _partition(interface: Interface, arch: Arch, options: CompileOptions) -> Partition:
    fit = partial(fitted, arch=arch, schedule=options.schedule)
    return partition(interface.graph, target_of(arch, options), fit, interface.annotations)


def compile(
    package: Package,
    arch: Arch,
    options: CompileOptions = DEFAULTS,
    *,
    progress: Progress = silent,
    **choices: Any,
) -> CompiledNetwork:
    """Programs for every region of ``package`` on a machine with ``arch``.

    ``choices`` replace fields of ``options``, as in ``compile(package, arch, schedule="seed")``. ``progress``
    hears how many regions are done. Raises InputError with
    ``options.strict`` when any node falls back to the CPU, naming the first and its reason.
    """
    options = options.replaced(choices)
    chosen = options.chosen
    if chosen:
        chosen.check_made_for(package.digest, arch.digest())
    interface = connect(package, options)
    found = _partition(interface, arch, options)
    if options.strict:
        refuse_fallback(found)
    programs: dict[int, Program] = {}
    reports: dict[int, CompileReport] = {}
    for region in followed(found.regions, f"compiling {package.source}", progress):
        programs[region.index], reports[region.index] = compile_region(
            region, interface.graph.values, arch, options.schedule, choices=chosen
        )
    if chosen:
        chosen.check_made([report.choices for report in reports.values()])
    return CompiledNetwork(package, interface, arch, options, found, programs, reports)


def refuse_fallback(found: Partition) -> None:
    """Raises InputError when a node other than the quantisation of a float input or output runs on the CPU."""
    fallen = [place for place in found.placement if place.on == "cpu" and place.op_type not in BOUNDARIES]
    if fallen:
        first = fallen[0]
        raise InputError(
            f"--strict: {len(fallen)} of {len(found.placement)} nodes run on the CPU; "
            f"the first is {first.op_type} '{first.node}': {first.reason}"
        )
