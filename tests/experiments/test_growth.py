"""More memory, elements or bandwidth do not cost cycles.

Longer networks do not cost more work a link.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from onnx import ModelProto

from benchmarks.compiler import Points, measure, slower
from benchmarks.importing import chain, recurrent
from experiments import run

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
    [
        ("activations", 1000),
        ("additions", 1000),
        ("alternating", 800),
        ("outputs", 80),
        ("steps", 32),
    ],
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
