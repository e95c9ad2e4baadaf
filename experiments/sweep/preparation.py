"""What points share, worked out once: the package of a network, its partitions, and what of it does not fit where."""

from __future__ import annotations

from dataclasses import dataclass

from byoc.emission.region import shortage
from byoc.host.sessions import estimate_cycles
from byoc.interface import Interface, connect
from byoc.operators.layer import Shortage
from byoc.operators.operator import Operator
from byoc.options import CompileOptions, Target, target_of
from byoc.package.package import Package
from byoc.partition import Partition, partition
from experiments.running.network import load
from experiments.sweep.spec import Spec
from experiments.sweep.worker import blank_regions
from isa.arch import Arch
from isa.progress import Progress, silent


@dataclass(frozen=True, eq=False)
class Prepared:
    """A partition, ready to be compiled anywhere, and what runs on the CPU beside it (cycles are an estimate)."""

    operations: tuple[Operator, ...]
    regions: bytes
    host_nodes: int
    host_cycles: int


@dataclass(frozen=True)
class Misfit:
    """Why a machine is too small: the operation that misses most, its buffers, and the bytes missing."""

    message: str
    missing_bytes: int


class Preparation:
    """One network. Partitions are made once for each target and interface: what the machine has and the options say.

    What does not fit depends on the scratchpad, not on the array; every question about it is answered once.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self.partitions = 0
        self._prepared: dict[tuple[Target, bool], Prepared] = {}
        self._misfits: dict[object, Misfit | None] = {}

    def prepared(self, arch: Arch, options: CompileOptions) -> Prepared:
        """The partition for machines on which everything fits."""
        key = target_of(arch, options), options.integer_io
        if key not in self._prepared:
            self.partitions += 1
            self._prepared[key] = _prepare(connect(self.package, options), key[0])
        return self._prepared[key]

    def misfit(self, prepared: Prepared, arch: Arch, options: CompileOptions) -> Misfit | None:
        """What of a partition does not fit into the scratchpad of ``arch``, or None."""
        key = prepared, options, arch.sram_bytes, arch.alignment
        if key not in self._misfits:
            self._misfits[key] = _find_misfit(prepared, arch, options)
        return self._misfits[key]


def _prepare(interface: Interface, target: Target) -> Prepared:
    graph = interface.graph
    found: Partition = partition(graph, target, annotations=interface.annotations)
    return Prepared(
        operations=tuple(operation for region in found.regions for operation in region.operations),
        regions=blank_regions(found.regions, graph.values),
        host_nodes=sum(len(part.nodes) for part in found.host_parts),
        host_cycles=sum(estimate_cycles(graph, part) for part in found.host_parts),
    )


def _find_misfit(prepared: Prepared, arch: Arch, options: CompileOptions) -> Misfit | None:
    found: dict[str, Shortage] = {}
    for operation in prepared.operations:
        missing = shortage(operation, arch, options.schedule)
        if missing is not None:
            found[operation.name] = missing
    if not found:
        return None
    worst = max(found, key=lambda name: found[name].missing)
    count = f"; {len(found)} operations do not fit" if len(found) > 1 else ""
    return Misfit(f"{worst}: {found[worst]}{count}", found[worst].missing)


def prepare_networks(spec: Spec, stage: Progress = silent) -> dict[str, Preparation]:
    """Import and quantise every network of a specification, once."""
    networks: dict[str, Preparation] = {}
    for name in spec.networks:
        stage(f"importing {name}")
        networks[name] = Preparation(load(spec.network(name)).package)
    return networks
