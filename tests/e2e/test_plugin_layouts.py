"""Families of a plug-in that subclass the project's run on both memories with the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byoc.importing import import_model
from byoc.operators.registry import load_installed_families
from byoc.package.package import Package
from experiments.models.builder import NetworkBuilder
from isa.arch import PACKED, Arch, PeArray
from tests.e2e.harness import compare, simulate
from tests.plugins import installation

MODULE = "dla_own_families"
MARK = "own "
Shape = tuple[int, ...]


@pytest.fixture
def own_families(tmp_path: Path) -> Iterator[None]:
    """The package ``dla-own-families``, whose families are asked before the project's."""
    names = (
        "Softmax",
        "Reduction",
        "Normalisation",
        "MatMul",
        "Convolution",
        "Add",
        "MaxPool",
        "AveragePool",
    )
    families = {name.lower(): f"{MODULE}:Own{name}" for name in (*names, "Movement")}
    installation.write_distribution(
        tmp_path,
        "dla-own-families",
        {MODULE: installation.source_of(MODULE)},
        {"dla.operators": families},
    )
    with installation.installed(tmp_path):
        yield


IMAGE = (1, 12, 6, 5)
ROWS = (1, 7, 20)
NETWORKS: Mapping[str, tuple[str, Shape, dict[str, Any], tuple[Shape, ...]]] = {
    "softmax of rows": ("Softmax", ROWS, {"axis": -1}, ()),
    "softmax across": ("Softmax", IMAGE, {"axis": 1}, ()),
    "sum of rows": ("ReduceSum", ROWS, {}, ()),
    "largest of channels": ("ReduceMax", IMAGE, {}, ()),
    "normalisation": ("LayerNormalization", ROWS, {"axis": -1}, ((20,), (20,))),
    "product": ("MatMul", ROWS, {}, ((20, 11),)),
    "product of two": ("MatMul", ROWS, {}, ()),
    "convolution": ("Conv", IMAGE, {"pads": [1] * 4}, ((9, 12, 3, 3),)),
    "depthwise convolution": ("Conv", IMAGE, {"group": 12}, ((12, 1, 3, 3),)),
    "sum": ("Add", IMAGE, {}, ()),
    "sum with channels": ("Add", IMAGE, {}, ((12, 1, 1),)),
    "maximum pool": ("MaxPool", IMAGE, {"kernel_shape": [2, 2]}, ()),
    "average pool": ("AveragePool", IMAGE, {"kernel_shape": [3, 3], "strides": [2, 2]}, ()),
    "transposition": ("Transpose", IMAGE, {"perm": [0, 2, 3, 1]}, ()),
}
AXES = {"ReduceSum": -1, "ReduceMax": 1}
SECOND: Mapping[str, Shape] = {"product of two": (1, 20, 11), "sum": IMAGE}
"""Shapes of a second input."""


def network(name: str) -> tuple[Package, dict[str, Any]]:
    """Return a network of one operator, and its inputs."""
    op_type, shape, attributes, constants = NETWORKS[name]
    random = np.random.default_rng(0)
    built = NetworkBuilder("net", "x", shape, 0)
    feed = {"x": random.standard_normal(shape).astype(np.float32)}
    operands = ["x"]
    if name in SECOND:
        operands.append(built.input("z", SECOND[name]))
        feed["z"] = random.standard_normal(SECOND[name]).astype(np.float32)
    operands += [
        built.constant(f"w{n}", random.standard_normal(one).astype(np.float32))
        for n, one in enumerate(constants)
    ]
    if op_type in AXES:
        operands.append(built.constant("axes", np.array([AXES[op_type]], np.int64)))
    model = built.model(built.node(op_type, "y", *operands, **attributes), None)
    return import_model(model, "net", calibration=[feed]), feed


@pytest.mark.usefixtures("own_families")
@pytest.mark.parametrize("isa", ["v4", PACKED])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_subclass_of_a_family_runs_on_both_memories(name: str, isa: str) -> None:
    package, feed = network(name)
    for array in (PeArray(ic=4, oc=16), PeArray(ic=3, oc=8)):
        found = compare(package, feed, Arch(isa=isa, pe=array))
        placed = [
            place for place in found.partition.placement if place.op_type == NETWORKS[name][0]
        ]
        assert [place.reason for place in placed if place.on == "cpu"] == []
        layers = [
            layer.layer
            for program in found.network.programs.values()
            for layer in program.provenance
        ]
        assert any(layer.startswith(MARK) for layer in layers), layers
        assert found.mismatches == 0
        assert found.elements > 0


@pytest.mark.usefixtures("own_families")
def test_a_subclass_says_how_its_results_end_on_both_memories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package, feed = network("product")
    family = next(one for one in load_installed_families().families if one.family == "own-matmul")
    found = {}
    for highest in (127, 10):
        monkeypatch.setattr(family, "highest", highest)
        for isa in ("v4", PACKED):
            found[highest, isa] = simulate(package, feed, Arch(isa=isa)).run.outputs["y"]
    assert np.array_equal(found[10, "v4"], found[10, PACKED])
    assert not np.array_equal(found[10, "v4"], found[127, "v4"])
