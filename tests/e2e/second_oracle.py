"""Compare every unit of every region with ``onnx.reference``.

It shares no code with ONNX Runtime. Units may differ by at most one step of their output's scale.

``python -m tests.e2e.second_oracle NETWORK ...`` prints the counts of networks. Units are fed what
the accelerator is fed, so that a step more or less in one does not grow through all that follow.
The evaluator computes in float what lies between DequantizeLinear and QuantizeLinear and rounds
once, so it differs by one step on near ties. Where an instruction has a definition of its own, it
computes the operators of the model, not the definition.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.compiler import partition_package
from byoc.frontend.onnx.cutting import Cutter
from byoc.graph import Node
from byoc.host.sessions import Oracle
from byoc.package.package import Package
from byoc.runtimes.protobuf import read_defined_results
from experiments.running.network import load_network, network_feeds
from isa.arch import Arch

Feeds = Mapping[str, NDArray[Any]]


def steps_apart(package: Package, feeds: Feeds, arch: Arch) -> Counter[int]:
    """Count the elements of units in regions by the number of steps between the two oracles."""
    nodes = [node for region in partition_package(package, arch).regions for node in region.nodes]
    results = [name for node in nodes for name in node.outputs]
    inputs = {
        name
        for node in nodes
        for name in node.inputs
        if package.graph.values[name].constant is None
    }
    names = sorted(inputs.union(results) - set(package.graph.inputs))
    known = {**feeds, **Oracle(package.model, package.graph, names).values(feeds)}
    found: Counter[int] = Counter()
    units = Units(package)
    for node in nodes:
        found.update(_steps(units, node, known))
    return found


class Units:
    """Cuts units out of a package's model."""

    def __init__(self, package: Package) -> None:
        self.graph = package.graph
        self._own = read_defined_results(package.model)
        self._cutter = Cutter(package.model, package.graph)

    def cut(self, node: Node) -> tuple[ModelProto, list[str], list[str]]:
        """Return a unit as a model, its inputs, and its results.

        If the unit has a definition of its own, the results are those of the model's operators.
        """
        sources = [
            name for name in dict.fromkeys(node.inputs) if self.graph.values[name].constant is None
        ]
        results = [self._own.get(name, name) for name in node.outputs]
        return self._cutter.cut(sources, results), sources, results


def _steps(units: Units, node: Node, known: Feeds) -> Counter[int]:
    """The counts of one unit."""
    from onnx.reference import ReferenceEvaluator

    cut, sources, results = units.cut(node)
    if any(item.domain not in ("", "ai.onnx") for item in cut.graph.node):
        return Counter({-1: sum(units.graph.values[name].elements for name in node.outputs)})
    evaluated = ReferenceEvaluator(cut).run(results, {name: known[name] for name in sources})
    found: Counter[int] = Counter()
    for name, result in zip(node.outputs, evaluated, strict=True):
        apart = np.abs(result.astype(np.int64) - known[name].astype(np.int64))
        steps, counts = np.unique(apart, return_counts=True)
        found.update(dict(zip(map(int, steps), map(int, counts), strict=True)))
    return found


def told(found: Counter[int]) -> str:
    """The counts as a line; -1 are elements of operators that only ONNX Runtime knows."""
    words = {0: "equal", 1: "one step apart", -1: "not known to onnx.reference"}
    return ", ".join(
        f"{count:,} {words.get(steps, f'{steps} steps apart')}"
        for steps, count in sorted(found.items())
    )


def main() -> int:
    """Print the counts of networks; exit status 1 where elements are more than one step apart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="+", help="built-in ones, or packages of them")
    worst = 0
    for name in parser.parse_args().networks:
        network = load_network(name)
        found = steps_apart(network.package, network_feeds(network), Arch(isa="v4"))
        print(f"{name}: {told(found)}", flush=True)
        worst = max(worst, *found)
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
