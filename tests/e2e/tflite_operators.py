"""Draw models of one TensorFlow Lite operator and compare them with LiteRT's reference kernels.

They have any shapes and scales.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc.frontend.tflite.file import read_tflite
from byoc.importing import tflite_package
from isa.arch import Arch
from tests.e2e.harness import compare
from tests.e2e.tflite_drafts import DRAWN, Draft

FIXED = Arch.model_validate({"isa": "v4", "numerics": "fixed"})


@dataclass(frozen=True)
class Outcome:
    """Results of drawn models of one operator.

    They count the models, the accelerated ones, the compared elements and the different ones.
    """

    kind: str
    cases: int
    accelerated: int
    elements: int
    mismatches: int
    reasons: tuple[str, ...]


def outcome(kind: str, seeds: Sequence[int], arch: Arch = FIXED, dtype: str = "int8") -> Outcome:
    """Draws a model for each seed and compares what leaves its regions."""
    accelerated = elements = mismatches = 0
    reasons: dict[str, None] = {}
    for seed in seeds:
        random = np.random.default_rng([seed, *kind.encode()])
        draft = Draft(random, dtype)
        package = tflite_package(read_tflite(DRAWN[kind](draft), kind), kind)
        graph = package.graph
        feeds = {name: draft.stored(graph.values[name].in_model.shape) for name in graph.inputs}
        found = compare(package, feeds, arch)
        own = [
            place
            for place in found.partition.placement
            if any(kind in name for name in place.onnx_nodes)
        ]
        accelerated += bool(own) and all(place.on == "dla" for place in own)
        reasons |= dict.fromkeys(place.reason for place in own if place.reason)
        elements += found.elements
        mismatches += found.mismatches
    return Outcome(kind, len(seeds), accelerated, elements, mismatches, tuple(reasons))


UNSIGNED = sorted(
    {
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "ADD",
        "SUB",
        "MUL",
        "MINIMUM",
        "MAXIMUM",
        "MAX_POOL_2D",
    }
    | {
        "REDUCE_MAX",
        "LOGISTIC",
        "TANH",
        "LEAKY_RELU",
        "PRELU",
        "RELU",
        "RELU6",
        "QUANTIZE",
        "PAD",
        "MIRROR_PAD",
    }
    | {
        "CONCATENATION",
        "SPLIT",
        "UNPACK",
        "SLICE",
        "STRIDED_SLICE",
        "PACK",
        "RESHAPE",
        "TRANSPOSE",
        "GATHER",
        "TILE",
    }
)
"""Operators whose kernels for uint8 have the rules of those for int8."""


HEADER = "| operator | models | on the accelerator | elements | mismatches |"
"""Where the table of the page begins."""


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of the page, a row for each operator.

    The columns are models drawn, models on the accelerator, elements compared and elements
    different.
    """
    lines = [HEADER, "|---|---|---|---|---|"]
    for one in outcomes:
        lines.append(
            f"| {one.kind} | {one.cases} | {one.accelerated} | {one.elements:,} | "
            f"{one.mismatches} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw models of every operator, or of those chosen; exit status 1 at any mismatch."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.tflite_operators", description=main.__doc__
    )
    parser.add_argument("--cases", type=int, default=100, help="models an operator")
    parser.add_argument("--operator", action="append", choices=sorted(DRAWN))
    parser.add_argument(
        "--output", type=Path, help="a page (docs/inputs.md) whose last table becomes this one"
    )
    chosen = parser.parse_args(arguments)
    outcomes = []
    for kind in sorted(chosen.operator or DRAWN):
        outcomes.append(outcome(kind, range(chosen.cases)))
        print(outcomes[-1], flush=True)
    if chosen.output is not None:
        text = chosen.output.read_text(encoding="utf-8").partition(HEADER)[0]
        chosen.output.write_text(text + table(outcomes), encoding="utf-8")
    return int(any(one.mismatches for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
