"""Compare the cycles of direct convolutions and im2col matrix products in banked memory.

    python -m benchmarks.layouts [NETWORK ...]

Prints rows of the table in docs/compiler.md: of each network its convolutions of more than one tap,
or with strides, and on each array those that take fewer cycles as a product of matrices, and all of
them so over all of them direct. Cycles are those of EX by the formulas, every operand in a bank of
its own, with a bus of 8 bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from byoc.compiler import partition_package
from byoc.emission.region import layers_of
from byoc.estimate.matrices import Layouts, layouts_of
from byoc.operators.convolution import Convolution
from byoc.options import CompileOptions
from byoc.package.package import Package
from dla_sim.timing import Timing
from experiments.models import MODELS
from experiments.running.network import load_network
from isa.arch import Arch, PeArray
from isa.ops.convolution import MAPPING

ARRAYS = (4, 16), (8, 8), (16, 16), (32, 32)
SRAM_BYTES = 1 << 22


def row_text(name: str) -> str:
    """Return a network's table row, without figures if it has no such convolutions.

    These are convolutions of more than one tap or with strides.
    """
    package = load_network(name).package
    cells = list[str]()
    count = 0
    for inputs, outputs in ARRAYS:
        found = list(
            _estimates(
                package, Arch(isa="v5", pe=PeArray(ic=inputs, oc=outputs), sram_bytes=SRAM_BYTES)
            )
        )
        sums = [
            sum(cycles) for cycles in ([one.direct for one in found], [one.matrix for one in found])
        ]
        least = sum(min(one.direct, one.matrix) for one in found)
        count = len(found)
        better = sum(one.matrix < one.direct for one in found)
        cells.append(f"{better}, {sums[1] / sums[0]:.3f}, {least / sums[0]:.3f}" if found else "-")
    return f"| {name} | {count} | {' | '.join(cells)} |"


def _estimates(package: Package, arch: Arch) -> Iterator[Layouts]:
    timing = Timing()
    partition = partition_package(package, arch, CompileOptions())
    overhead = timing.ex_fill + timing.ex_drain
    for region in partition.regions:
        for layer in layers_of(region, partition.graph.values, arch)[1]:
            fields = dict(layer.geometry.fields)
            if isinstance(layer.operation, Convolution) and MAPPING.name in fields:
                found = layouts_of(layer.operation, fields[MAPPING.name], arch, overhead)
                if found is not None:
                    yield found


def main() -> None:
    """Print the table rows of the networks on the command line, or of all built-in networks."""
    for name in sys.argv[1:] or MODELS:
        print(row_text(name), flush=True)


if __name__ == "__main__":
    main()
