"""``python -m tests.e2e.tflite_every FILE...``: compare every tensor of models with LiteRT.

Every result becomes an output of the graph, so that it leaves its region. LiteRT keeps every tensor
of the file.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite.file import load_tflite
from byoc.graph import Value
from byoc.importing import tflite_package
from byoc.operators.registry import annotate
from byoc.package.package import Package, build_package
from isa.arch import Arch
from tests.e2e.harness import Comparison, compare


def arch(numerics: str) -> Arch:
    """A machine of the newest variant with 512 KiB."""
    return Arch.model_validate({"isa": "v4", "sram_bytes": 1 << 19, "numerics": numerics})


def drawn(value: Value, random: np.random.Generator) -> NDArray[Any]:
    """Numbers for an input, standard-normal ones where it is float."""
    if value.dtype == "float32":
        return random.standard_normal(value.shape).astype(np.float32)
    limits = np.iinfo(value.dtype)
    return random.integers(limits.min, limits.max + 1, value.shape, value.dtype)


def feeds_of(package: Package, seed: int) -> dict[str, NDArray[Any]]:
    """Numbers for every input, in the shapes of the model."""
    random = np.random.default_rng(seed)
    return {
        name: drawn(package.graph.values[name].in_model, random) for name in package.graph.inputs
    }


def every_tensor(package: Package, seed: int = 0, numerics: str = "fixed") -> Comparison:
    """Every result of a network, held to the kernels that round as these numerics do."""
    names = tuple(dict.fromkeys(name for node in package.graph.nodes for name in node.outputs))
    graph = replace(package.graph, outputs=names)
    whole = build_package(graph, annotate(graph), package.model, 0, package.source)
    return compare(whole, feeds_of(whole, seed), arch(numerics))


def main(files: list[str]) -> int:
    """One line a file; exit status 1 at any mismatch."""
    found = {
        file: every_tensor(tflite_package(load_tflite(file), Path(file).stem)) for file in files
    }
    for file, one in found.items():
        on_cpu = sum(place.on == "cpu" for place in one.partition.placement)
        counts = f"{one.mismatches} of {one.elements:,} elements of {one.tensors} tensors differ"
        print(f"{file}: {counts}; {on_cpu} of {len(one.partition.placement)} nodes on the CPU")
    return int(any(one.mismatches for one in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
