"""What points share, worked out once: the package of a network, its partitions, and what of it does not fit where."""

from __future__ import annotations

from dataclasses import dataclass

from byoc.host import estimate_cycles
from byoc.operations import Operation
from byoc.package import Package
from byoc.partition import Partition, partition
from byoc.region import Schedule, shortage
from byoc.target import Target
from experiments.sweep.blank import blank_regions
from isa.arch import Arch
from isa.variants import variant


@dataclass(frozen=True, eq=False)
class Prepared:
    """A partition, ready to be compiled anywhere, and what runs on the CPU beside it (cycles are an estimate)."""

    operations: tuple[Operation, ...]
    regions: bytes
    host_nodes: int
    host_cycles: int


@dataclass(frozen=True)
class Misfit:
    """Why a machine is too small: the operation that misses most, its buffers, and the bytes missing."""

    message: str
    missing_bytes: int


class Preparation:
    """One network. Partitions are made once for each ISA and way to run depthwise convolutions.

    What does not fit depends on the scratchpad, not on the array; every question about it is answered once.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self.partitions = 0
        self._prepared: dict[tuple[str, bool], Prepared] = {}
        self._misfits: dict[object, Misfit | None] = {}

    def prepared(self, arch: Arch, emulate_depthwise: bool) -> Prepared:
        """The partition for machines on which everything fits."""
        key = arch.isa, emulate_depthwise
        if key not in self._prepared:
            self.partitions += 1
            self._prepared[key] = self._prepare(arch, emulate_depthwise)
        return self._prepared[key]

    def _prepare(self, arch: Arch, emulate_depthwise: bool) -> Prepared:
        package = self.package
        target = Target(variant(arch.isa).mnemonics, arch.isa, emulate_depthwise)
        found: Partition = partition(package.graph, target, annotations=package.annotations)
        return Prepared(
            operations=tuple(operation for region in found.regions for operation in region.operations),
            regions=blank_regions(found.regions, package.graph.values),
            host_nodes=sum(len(part.nodes) for part in found.host_parts),
            host_cycles=sum(estimate_cycles(package.graph, part) for part in found.host_parts),
        )

    def misfit(self, arch: Arch, schedule: Schedule, emulate_depthwise: bool) -> Misfit | None:
        """What does not fit into the scratchpad of ``arch``, or None."""
        memory = arch.sram_bytes, arch.alignment, arch.numerics
        key = arch.isa, emulate_depthwise, schedule, memory
        if key not in self._misfits:
            self._misfits[key] = self._find_misfit(arch, schedule, emulate_depthwise)
        return self._misfits[key]

    def _find_misfit(self, arch: Arch, schedule: Schedule, emulate_depthwise: bool) -> Misfit | None:
        found: dict[str, tuple[int, str]] = {}
        for operation in self.prepared(arch, emulate_depthwise).operations:
            missing = shortage(operation, arch, schedule, emulate_depthwise)
            if missing is not None:
                found[operation.name] = missing_bytes(missing), missing
        if not found:
            return None
        worst = max(found, key=lambda name: found[name][0])
        nbytes, message = found[worst]
        count = f"; {len(found)} operations do not fit" if len(found) > 1 else ""
        return Misfit(f"{worst}: {message}{count}", nbytes)


def missing_bytes(shortage_message: str) -> int:
    """The bytes missing, which a message of :func:`byoc.region.shortage` ends with."""
    return int(shortage_message.rsplit(", ", 1)[1].removesuffix(" missing"))
