"""The check of a run: every region output and model output against ONNX Runtime's integer operators.

``numerics = fixed`` computes with other rounding rules than ONNX Runtime, on purpose; nothing here can vouch for it, so
the check then compares nothing and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from byoc.host.oracle import Oracle, oracle_text
from byoc.pipeline import CompiledNetwork
from experiments.check import Comparison, compare
from experiments.report.schema import Check, FirstDifference

Tensors = Mapping[str, NDArray[Any]]
NO_ORACLE = "none (numerics = fixed rounds otherwise than ONNX Runtime)"


def checked_tensors(network: CompiledNetwork) -> tuple[str, ...]:
    """Region outputs in order of execution, then the model's outputs that are computed."""
    outputs = (name for region in network.partition.regions for name in region.outputs)
    computed = (name for name in network.graph.outputs if network.graph.values[name].constant is None)
    return tuple(dict.fromkeys((*outputs, *computed)))


def check_values(network: CompiledNetwork, inputs: Tensors, values: Tensors) -> Check:
    """Compare ``values``, every boundary tensor of one inference on ``inputs``, with the oracle."""
    if any(program.arch.numerics == "fixed" for program in network.programs.values()):
        return as_check(NO_ORACLE, Comparison())
    oracle = Oracle(network.package.model, network.graph, checked_tensors(network))
    return as_check(oracle_text(network.package), compare(values, oracle.values(inputs)))


def as_check(oracle: str, found: Comparison) -> Check:
    """The comparison in the form of the run report."""
    first = found.first and FirstDifference(
        tensor=found.first.tensor,
        coordinates=found.first.coordinates,
        dla=found.first.actual,
        oracle=found.first.expected,
    )
    return Check(
        oracle=oracle,
        tensors=found.tensors,
        elements=found.elements,
        mismatches=found.mismatches,
        max_abs_diff=found.max_abs_diff,
        first=first,
    )
