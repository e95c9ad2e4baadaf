"""Second half of the compiler: a portable package becomes the programs of one machine."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TypedDict, Unpack

from byoc.compiled import CompiledNetwork, Partition, Region
from byoc.emission.region import Compiled, compile_region, fit_operations
from byoc.estimate.bus import DEFAULT_BUS, BusTiming, MemoryBus, bus_of
from byoc.graph import Value
from byoc.operators.onnx_view import BOUNDARIES
from byoc.options import DEFAULTS, Choices, CompileOptions, Grouped, Schedule, target_of
from byoc.package.interface import Interface, connect
from byoc.package.package import Package
from byoc.partitioning.partition import Partitioner
from byoc.scheduling.search_pool import SearchPool, sizeless
from isa.arch import Arch
from isa.errors import InputError
from isa.progress import Progress, report_each, silent

MACHINES_KEPT = 4
"""Number of machines whose searches a pool keeps."""


class CompilerPool:
    """Results that several compilations of one package share.

    A pool never changes a program. It keeps the operations of every node for each target. For the
    last :data:`MACHINES_KEPT` machines it also keeps tile searches and programs; machines that
    differ only in scratchpad size count as one.
    """

    def __init__(self) -> None:
        self._interfaces: dict[bool, tuple[Interface, Partitioner]] = {}
        self._searches = lru_cache(MACHINES_KEPT)(lambda machine, bus: SearchPool[Compiled](bus))

    def interface(self, package: Package, options: CompileOptions) -> tuple[Interface, Partitioner]:
        """Return the package's interface under ``options`` and the partitioner of its graph."""
        if options.integer_io not in self._interfaces:
            found = connect(package, options)
            self._interfaces[options.integer_io] = (
                found,
                Partitioner(found.graph, found.annotations),
            )
        return self._interfaces[options.integer_io]

    def searches(self, arch: Arch, bus: MemoryBus = DEFAULT_BUS) -> SearchPool[Compiled]:
        """Return the tile searches shared by machines that differ only in scratchpad size."""
        return self._searches(sizeless(arch), bus)


def partition_package(
    package: Package,
    arch: Arch,
    options: CompileOptions = DEFAULTS,
    pool: CompilerPool | None = None,
) -> Partition:
    """Return where each node of ``package`` runs on a machine with ``arch``, without compiling.

    The result does not depend on timing. Compilations of the same package can share a ``pool``.
    """
    shared = pool or CompilerPool()
    return partition_graph(
        shared.interface(package, options)[1], arch, options, shared.searches(arch)
    )


def partition_graph(
    nodes: Partitioner,
    arch: Arch,
    options: CompileOptions,
    searches: SearchPool[Compiled] | None = None,
) -> Partition:
    """Return where each node of a graph runs on a machine with ``arch``."""
    pool = searches or SearchPool[Compiled]()
    fit = partial(fit_operations, arch=arch, schedule=options.schedule, pool=pool)
    return nodes.partition(target_of(arch, options), fit)


def compile_regions(
    regions: Iterable[Region],
    values: Mapping[str, Value],
    arch: Arch,
    options: CompileOptions = DEFAULTS,
    *,
    data: bool = True,
    searches: SearchPool[Compiled] | None = None,
) -> tuple[Compiled, ...]:
    """Return a program and its report for each of ``regions``.

    They must be partitioned for ``arch`` and ``options``. ``values`` maps names to tensors of the
    model and contains at least those of the regions. Without ``data`` the constants are zeros that
    take no memory; the cycle counts are the same.
    """
    return tuple(
        compile_region(
            region, values, arch, options.schedule, data=data, pool=searches, choices=options.chosen
        )
        for region in regions
    )


@contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector.

    A compilation makes many objects and leaves few reference cycles. Collections would take up to a
    fifth of its time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class CompileKeywords(TypedDict, total=False):
    """Keywords of a function for the fields of :class:`CompileOptions`."""

    schedule: Schedule
    emulate_depthwise: bool
    grouped: Grouped
    integer_io: bool
    strict: bool
    chosen: Choices


def compile(
    package: Package,
    arch: Arch,
    options: CompileOptions = DEFAULTS,
    *,
    timing: BusTiming | None = None,
    data: bool = True,
    pool: CompilerPool | None = None,
    progress: Progress = silent,
    **choices: Unpack[CompileKeywords],
) -> CompiledNetwork:
    """Compile every region of ``package`` for a machine with ``arch``.

    ``timing``, such as that of a preset, gives the bus for which schedules are chosen; the programs
    also run with any other timing. ``choices`` replace fields of ``options``, as in
    ``compile(package, arch, schedule="seed")``. Without ``data`` the programs have no constants and
    serve only for timing. Compilations of one package for several machines can share a ``pool``.
    ``progress`` is called with the number of regions compiled.

    Raises InputError with ``options.strict`` if any node falls back to the CPU; the message names
    the first such node and the reason.
    """
    options = options.replace_fields(choices)
    chosen = options.chosen
    if chosen:
        chosen.check_made_for(package.digest, arch.digest())
    shared = pool or CompilerPool()
    with pause_collector():
        interface, _ = shared.interface(package, options)
        found = partition_package(package, arch, options, shared)
        if options.strict:
            refuse_fallback(found)
        searches = shared.searches(arch, DEFAULT_BUS if timing is None else bus_of(timing))
        regions = report_each(found.regions, f"compiling {package.source}", progress)
        compiled = compile_regions(
            regions, found.graph.values, arch, options, data=data, searches=searches
        )
    if chosen:
        chosen.check_made([report.choices for _, report in compiled])
    programs = {
        region.index: program for region, (program, _) in zip(found.regions, compiled, strict=True)
    }
    reports = {
        region.index: report for region, (_, report) in zip(found.regions, compiled, strict=True)
    }
    return CompiledNetwork(package, interface, arch, options, found, programs, reports)


def refuse_fallback(found: Partition) -> None:
    """Raise InputError if a node runs on the CPU.

    Quantisation of float inputs and outputs is allowed there.
    """
    fallen = [
        place for place in found.placement if place.on == "cpu" and place.op_type not in BOUNDARIES
    ]
    if fallen:
        first = fallen[0]
        raise InputError(
            f"--strict: {len(fallen)} of {len(found.placement)} nodes run on the CPU; "
            f"the first is {first.op_type} '{first.node}': {first.reason}"
        )
