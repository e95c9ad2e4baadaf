"""Work that the points of a sweep share.

It is a network's package, its operations, and one partition per machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from byoc.compiler import CompilerPool, partition_package
from byoc.host.sessions import estimate_cycles
from byoc.options import CompileOptions
from byoc.package.package import Package
from byoc.partitioning.partition import Partition
from experiments.running.network import load
from experiments.sweep.spec import Spec
from experiments.sweep.worker import blank_regions
from isa.arch import Arch
from isa.progress import Progress, silent


@dataclass(frozen=True)
class Misfit:
    """Reason why a machine is too small for a network.

    It names the node with the largest shortage, its buffers, and the missing bytes.
    """

    message: str
    missing_bytes: int


@dataclass(frozen=True)
class PreparedPartition:
    """Partition that is ready to be compiled in any worker, and the nodes that stay on the CPU.

    ``host_cycles`` is an estimate.
    """

    regions: bytes
    host_nodes: int
    host_cycles: int
    misfit: Misfit | None


class Preparation:
    """Network that is partitioned for one machine after another.

    Work that depends on no machine is done once.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self._pool = CompilerPool()
        self._last: PreparedPartition | None = None

    def prepare(self, arch: Arch, options: CompileOptions) -> PreparedPartition:
        """Return the network's partition for a machine.

        A partition equal to the previous one is the same object.
        """
        found = _prepare_partition(partition_package(self.package, arch, options, self._pool))
        if found != self._last:
            self._last = found
        return self._last


def _prepare_partition(found: Partition) -> PreparedPartition:
    return PreparedPartition(
        regions=blank_regions(found.regions, found.graph.values),
        host_nodes=sum(len(part.nodes) for part in found.host_parts),
        host_cycles=sum(estimate_cycles(found.graph, part) for part in found.host_parts),
        misfit=_misfit(found),
    )


def _misfit(found: Partition) -> Misfit | None:
    """Return the largest shortage of scratchpad space, or None if everything fits."""
    if not found.shortages:
        return None
    worst = max(found.shortages, key=lambda name: found.shortages[name].missing)
    count = f"; {len(found.shortages)} operations do not fit" if len(found.shortages) > 1 else ""
    return Misfit(f"{worst}: {found.shortages[worst]}{count}", found.shortages[worst].missing)


def prepare_networks(spec: Spec, stage: Progress = silent) -> dict[str, Preparation]:
    """Import and quantise every network of a specification, once."""
    networks: dict[str, Preparation] = {}
    for name in spec.networks:
        stage(f"importing {name}")
        networks[name] = Preparation(load(spec.network(name)).package)
    return networks
