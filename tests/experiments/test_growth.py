"""More memory, elements or bandwidth do not cost cycles.

Longer networks do not cost more work a link.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.compiler import Points, measure, slower
from benchmarks.importing import SHAPE, chain, recurrent
from byoc.checking import fidelity
from byoc.frontend.onnx import closures
from byoc.importing import import_model
from byoc.operators.onnx_view import UNFUSED
from byoc.package.package import Package, package_bytes
from byoc.runtimes import pieces
from experiments import run
from tests.rotation import choose_cases

OWN = {"byoc", "dla_sim", "experiments", "isa"}


def test_larger_machines_are_not_slower() -> None:
    """A network takes no more cycles with more memory.

    It once did, because its resident tensors were chosen for one plan alone.
    """
    points: Points = {}
    for part in measure("resnext-11", ("4x4", "8x8", "16x16"), (64, 128, 256, 512), (4, 8)):
        points |= part
    assert len(points) == 3 * 4 * 2
    assert list(slower(points)) == []


def lines(model: ModelProto, folder: Path) -> int:
    """Count the executed lines of project code that import, compile and run a network.

    They measure work without a clock.
    """
    file = folder / f"{model.graph.name}.onnx"
    file.write_bytes(model.SerializeToString())
    counted = 0

    def line(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        nonlocal counted
        counted += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
        return line if OWN.intersection(Path(frame.f_code.co_filename).parts) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        run(file)
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "length"),
    choose_cases(
        [
            ("steps", 32),
            ("alternating", 800),
            ("outputs", 80),
            ("additions", 1000),
            ("activations", 1000),
        ],
        2,
    ),
)
def test_a_link_of_a_longer_chain_takes_no_more_work(
    kind: str, length: int, tmp_path: Path
) -> None:
    """The second half of a long chain takes no more work than the first half.

    Chains of Relu, recurrent networks and similar models once took minutes. Work is lines executed:
    neither ONNX Runtime's work nor NumPy's work within a line is counted.
    """
    model = recurrent if kind == "steps" else partial(chain, kind)
    lines(model(length // 8), tmp_path)
    quarter, half, whole = (lines(model(length // part), tmp_path) for part in (4, 2, 1))
    assert whole - half <= 1.2 * 2 * (half - quarter)


class _CountedSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """ONNX Runtime session that records its number of nodes if it optimises them."""

    nodes: ClassVar[list[int]] = []

    def __init__(
        self,
        model: bytes,
        options: onnxruntime.SessionOptions,
        *further: object,
        **settings: object,
    ) -> None:
        if options.graph_optimization_level != onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
            self.nodes.append(len(onnx.load_from_string(model).graph.node))
        super().__init__(model, options, *further, **settings)


def import_counted(model: ModelProto) -> tuple[Package, list[int]]:
    """Import a model; also return the number of nodes of each session that optimises."""
    _CountedSession.nodes.clear()
    package = import_model(model)
    return package, [*_CountedSession.nodes]


@pytest.mark.parametrize("kind", ["convolutions", "additions", "alternating", "outputs", "steps"])
def test_long_models_are_optimised_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is run in pieces gives the same package.

    ONNX Runtime's time to optimise a model grows faster than its number of nodes.
    """
    monkeypatch.setattr(onnxruntime, "InferenceSession", _CountedSession)
    model = recurrent(12) if kind == "steps" else chain(kind, 60)
    whole, nodes = import_counted(model)
    monkeypatch.setattr(pieces, "MIN_NODES", 50)
    monkeypatch.setattr(pieces, "NODES_PER_PIECE", 20)
    monkeypatch.setattr(fidelity, "TENSORS_AT_A_TIME", 20)
    cut, fewer = import_counted(model)
    assert package_bytes(cut) == package_bytes(whole)
    assert len(fewer) > len(nodes)
    assert kind in ("outputs", "steps") or max(fewer) < 40 < max(nodes)


def sums(seed: int) -> ModelProto:
    """Return a float model of up to five operators that ONNX Runtime fuses with no other."""
    generator = np.random.default_rng(seed)
    names, nodes, constants = ["x"], [], []
    for number in range(generator.integers(1, 6)):
        op_type = str(generator.choice(sorted(UNFUSED)))
        array = generator.normal(size=(1, SHAPE[1], 1, 1)).astype(np.float32)
        constants.append(numpy_helper.from_array(array, f"c{number}"))
        operands = [names[-1], str(generator.choice([*names, f"c{number}"]))]
        names.append(f"t{number}")
        unary = op_type in ("Abs", "Neg")
        nodes.append(helper.make_node(op_type, operands[: 1 if unary else 2], names[-1:]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", names[-1])
    ]
    graph = helper.make_graph(nodes, "sums", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_sums_are_tabulated_without_optimisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of operators that are never fused equals the table of the optimised operators."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", _CountedSession)
    monkeypatch.setattr(closures, "find_unfused", lambda graph: set[str]())
    optimised = [import_counted(sums(seed)) for seed in range(30)]
    monkeypatch.undo()
    monkeypatch.setattr(onnxruntime, "InferenceSession", _CountedSession)
    plain = [import_counted(sums(seed)) for seed in range(30)]
    for (package, _), (other, _) in zip(optimised, plain, strict=True):
        assert package_bytes(package) == package_bytes(other)
    fewer = sum(
        len(one) > len(other) for (_, one), (_, other) in zip(optimised, plain, strict=True)
    )
    assert fewer > 10
