"""Packages: round trips, equal bytes, and one clear line for every kind of damage."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from byoc.importing import package_of
from byoc.package.archive import members
from byoc.package.package import Package, load_package, save_package
from byoc.partitioning.partition import partition
from isa.errors import InputError
from tests.byoc.oracle_check import V2
from tests.byoc.small_models import convolution_unit


@pytest.fixture(scope="module")
def package() -> Package:
    weights = np.arange(-108, 108, dtype=np.int8).reshape(6, 4, 3, 3)
    scales = np.linspace(0.01, 0.02, 6)
    bias = np.arange(6, dtype=np.int32)
    model = convolution_unit(
        weights,
        (1, 4, 5, 6),
        weight_scale=scales,
        bias=bias,
        activation=("Clip",),
        bounds=(-1.0, 2.0),
    )
    return package_of(model, "conv.onnx")


@pytest.fixture
def path(package: Package, tmp_path: Path) -> Path:
    file = tmp_path / "net.dla"
    save_package(package, file)
    return file


def test_round_trip(package: Package, path: Path) -> None:
    loaded = load_package(path)
    assert loaded.digest == package.digest
    assert loaded.source == "conv.onnx"
    assert loaded.annotations == package.annotations
    assert loaded.rewritten_activations == 1
    assert loaded.model == package.model
    for name, value in package.graph.values.items():
        other = loaded.graph.values[name]
        assert (other.shape, other.dtype) == (value.shape, value.dtype)
        if value.quantization is None:
            assert other.quantization is None
        else:
            assert other.quantization is not None
            assert other.quantization.same_as(value.quantization)
        assert (other.constant is None) == (value.constant is None)
        np.testing.assert_array_equal(other.constant, value.constant)
    fields = (
        "name",
        "op_type",
        "inputs",
        "outputs",
        "attributes",
        "onnx_nodes",
        "remark",
        "macs",
        "integer",
    )
    for node, other_node in zip(package.graph.nodes, loaded.graph.nodes, strict=True):
        assert all(getattr(node, key) == getattr(other_node, key) for key in fields)
    assert partition(loaded.graph, V2, annotations=loaded.annotations).placement[0].on == "dla"


def test_equal_packages_have_equal_bytes(package: Package, path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.dla"
    save_package(load_package(path), again)
    assert again.read_bytes() == path.read_bytes()


def test_saving_leaves_nothing_else_behind(path: Path) -> None:
    assert [file.name for file in path.parent.iterdir()] == ["net.dla"]


def test_members_are_stored_and_dated_alike(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert [entry.filename for entry in archive.infolist()] == [
            "manifest.json",
            *members("model.onnx"),
        ]
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def _contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(path: Path, contents: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)


def _expect(path: Path, message: str) -> None:
    with pytest.raises(
        InputError, match=f"^{re.escape(f'{path}: {message}; compile the model again')}$"
    ):
        load_package(path)


def test_missing_file(tmp_path: Path) -> None:
    _expect(tmp_path / "no.dla", "cannot be read (No such file or directory)")


@pytest.mark.parametrize("keep", [0, 10, 500, -30])
def test_truncated_file(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    _expect(path, "not a package, or a truncated or damaged one")


def test_every_flipped_byte_is_noticed_or_harmless(package: Package, path: Path) -> None:
    original = path.read_bytes()
    for position in range(0, len(original), 97):
        path.write_bytes(
            original[:position] + bytes([original[position] ^ 0x10]) + original[position + 1 :]
        )
        try:
            loaded = load_package(path)
            model = loaded.model
        except InputError:
            continue
        assert (loaded.digest, model) == (package.digest, package.model)


def test_damaged_member(path: Path) -> None:
    contents = _contents(path)
    contents["weights.bin"] = b"\1" + contents["weights.bin"][1:]
    _write(path, contents)
    _expect(path, "weights.bin is damaged (its SHA-256 differs from the manifest's)")


def test_damaged_model_is_noticed_when_it_is_needed(path: Path) -> None:
    contents = _contents(path)
    contents["model.onnx"] = contents["model.onnx"][:-1] + b"?"
    _write(path, contents)
    loaded = load_package(path)
    message = (
        f"{path}: model.onnx is damaged (its SHA-256 differs from the manifest's); compile the "
        "model again"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        _ = loaded.model


def test_members_outside_the_list(path: Path) -> None:
    _write(path, {**_contents(path), "../evil": b""})
    expected = "../evil, graph.json, manifest.json, model.onnx, weights.bin"
    _expect(path, f"its members are {expected}; those of a package are expected")


def test_compressed_members(path: Path) -> None:
    _write(path, {**_contents(path), "weights.bin": bytes(1 << 20)}, zipfile.ZIP_DEFLATED)
    _expect(path, "manifest.json is compressed or encrypted; members of a package are stored")


def _edit_manifest(path: Path, **changes: Any) -> None:
    contents = _contents(path)
    contents["manifest.json"] = json.dumps(
        {**json.loads(contents["manifest.json"]), **changes}
    ).encode()
    _write(path, contents)


def test_other_format_version(path: Path) -> None:
    _edit_manifest(path, version=99)
    _expect(path, "it has format version 99, this tool reads version 1")


def test_other_format(path: Path) -> None:
    _edit_manifest(path, format="tar")
    _expect(path, "its manifest is not that of a package")


def test_a_comparison_that_nobody_can_have_made(path: Path) -> None:
    calibration = {"samples": 1, "random": False, "agreement": {"y": 2.0}}
    _edit_manifest(
        path, fidelity={"tensors": 1, "elements": 1, "difference": 0.0, "calibration": calibration}
    )
    _expect(
        path,
        "its manifest says in a wrong form how the model was compared (calibration.agreement.y)",
    )


def test_incomplete_manifest(path: Path) -> None:
    _edit_manifest(path, sha256={})
    _expect(path, "its manifest is incomplete")


def _edit_graph(path: Path, change: Callable[[Any], None]) -> None:
    """Change graph.json and correct its digest in the manifest."""
    import hashlib

    contents = _contents(path)
    document = json.loads(contents["graph.json"])
    change(document)
    contents["graph.json"] = json.dumps(document).encode()
    manifest = json.loads(contents["manifest.json"])
    manifest["sha256"]["graph.json"] = hashlib.sha256(contents["graph.json"]).hexdigest()
    contents["manifest.json"] = json.dumps(manifest).encode()
    _write(path, contents)


def _value(document: Any, name: str) -> Any:
    return next(value for value in document["values"] if value["name"] == name)


FORGERIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "outside": (
        lambda d: _value(d, "w")["constant"].update(start=1 << 40),
        "an array of 216 elements at 1099511627776 lies outside the weights",
    ),
    "negative": (
        lambda d: _value(d, "w")["constant"].update(start=-64),
        "an array of 216 elements at -64 lies outside the weights",
    ),
    "huge": (
        lambda d: _value(d, "w")["constant"].update(shape=[1 << 40]),
        "an array of 1099511627776 elements at 64 lies outside the weights",
    ),
    "object": (
        lambda d: _value(d, "w")["constant"].update(dtype="object"),
        "element type 'object' is not one a package holds",
    ),
    "missing": (
        lambda d: d.pop("nodes"),
        "graph.json has an entry of a wrong form (KeyError: 'nodes')",
    ),
    "not text": (lambda d: d.update(name=3), "3 is not text"),
    "unknown tensor": (
        lambda d: d["nodes"][0].update(inputs=["nobody", "w"]),
        "inconsistent graph: node 'op' reads 'nobody', which nothing before it makes",
    ),
    "cycle": (
        lambda d: d["nodes"][0].update(inputs=["y", "w"]),
        "inconsistent graph: node 'op' reads 'y', which nothing before it makes",
    ),
    "attribute": (
        lambda d: d["nodes"][0]["attributes"].update(group=0),
        "inconsistent graph: attribute 'group' of 'op' is 0",
    ),
    "attribute of another": (
        lambda d: d["nodes"][0]["attributes"].update(transA=1),
        "inconsistent graph: nobody reads attribute 'transA' of Conv 'op'",
    ),
    "strides": (
        lambda d: d["nodes"][0]["attributes"].update(strides=["first", 1]),
        "inconsistent graph: attribute 'strides' of 'op' is ('first', 1)",
    ),
    "no attribute": (
        lambda d: d["nodes"][0]["attributes"].pop("pads"),
        "inconsistent graph: Conv 'op' has no attribute 'pads'",
    ),
    "weights": (
        lambda d: _value(d, "x").update(shape=[1, 5, 5, 6]),
        "inconsistent graph: "
        "the weights of 'op' have shape (6, 4, 3, 3) for input (1, 5, 5, 6) and output (1, 6, 3, "
        "4)",
    ),
    "groups": (
        lambda d: (
            _value(d, "x").update(shape=[1, 16, 5, 6]),
            d["nodes"][0]["attributes"].update(group=4),
        ),
        "inconsistent graph: "
        "the weights of 'op' have shape (6, 4, 3, 3) for input (1, 16, 5, 6) and output (1, 6, 3, "
        "4)",
    ),
    "planes": (
        lambda d: (
            _value(d, "y").update(shape=[1, 3, 3, 4]),
            d["nodes"][0].update(op_type="MaxPool", inputs=["x"]),
            d["nodes"][0]["attributes"].pop("group"),
        ),
        "inconsistent graph: 'op' pools shape (1, 4, 5, 6) to shape (1, 3, 3, 4)",
    ),
}


def _moved(attributes: dict[str, Any], op_type: str = "Slice") -> Callable[[Any], None]:
    """A change that makes the node a movement of 72 of the 120 elements."""
    return lambda d: d["nodes"][0].update(op_type=op_type, inputs=["x"], attributes=attributes)


FORGERIES |= {
    "pieces of text": (
        _moved({"pieces": ["0"]}),
        "inconsistent graph: attribute 'pieces' of 'op' is ('0',)",
    ),
    "pieces without strides": (
        _moved({"pieces": [[0, 0, 72, 1]]}),
        "inconsistent graph: 'op' has pieces of a wrong form",
    ),
    "pieces backwards": (
        _moved({"pieces": [[0, 71, 72, 1, -1]]}),
        "inconsistent graph: 'op' has pieces of a wrong form",
    ),
    "pieces from behind the end": (
        _moved({"pieces": [[49, 0, 72, 1, 1]]}),
        "inconsistent graph: 'op' moves what 'x' of shape (1, 4, 5, 6) does not have",
    ),
    "pieces of too many": (
        _moved({"pieces": [[0, 0, 1 << 40, 0, 1]]}),
        "inconsistent graph: 'op' moves what 'x' of shape (1, 4, 5, 6) does not have",
    ),
    "pieces twice": (
        _moved({"pieces": [[0, 0, 36, 1, 1], [0, 30, 36, 1, 1]]}),
        "inconsistent graph: 'op' does not make every element of 'y' once",
    ),
    "pieces that miss some": (
        _moved({"pieces": [[0, 0, 71, 1, 1]]}),
        "inconsistent graph: 'op' does not make every element of 'y' once",
    ),
    "permutation": (
        _moved({"perm": [0, 0, 1, 2]}, "Transpose"),
        "inconsistent graph: 'op' permutes (1, 4, 5, 6) by (0, 0, 1, 2)",
    ),
    "activation": (
        _moved({}, "Relu"),
        "inconsistent graph: 'op' makes (1, 6, 3, 4) of (1, 4, 5, 6)",
    ),
    "concatenation": (
        _moved({"axis": 1}, "Concat"),
        "inconsistent graph: 'op' joins [(1, 4, 5, 6)] to (1, 6, 3, 4) along axis 1",
    ),
    "concatenation along no axis": (
        _moved({"axis": 9}, "Concat"),
        "inconsistent graph: 'op' joins [(1, 4, 5, 6)] to (1, 6, 3, 4) along axis 9",
    ),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_forged_graph(path: Path, case: str) -> None:
    change, message = FORGERIES[case]
    _edit_graph(path, change)
    _expect(path, message)


@pytest.mark.parametrize("name", ["nonsense", "movement"])
def test_a_forged_annotation_changes_nothing(path: Path, name: str) -> None:
    """The patterns that know the operator are asked at load.

    What a package says of itself is not trusted.
    """
    honest = partition(load_package(path).graph, V2)
    _edit_graph(path, lambda document: document["nodes"][0].update(pattern=name))
    loaded = load_package(path)
    forged = partition(loaded.graph, V2, annotations=loaded.annotations)
    assert forged.placement == honest.placement
    assert [region.nodes[0].name for region in forged.regions] == [
        region.nodes[0].name for region in honest.regions
    ]


def test_a_forged_graph_meets_the_requirements_again(path: Path) -> None:
    _edit_graph(path, lambda document: _value(document, "x").update(dtype="int16"))
    loaded = load_package(path)
    placement = partition(loaded.graph, V2, annotations=loaded.annotations).placement
    assert placement[0].reason == (
        "input 'x' has element type int16: quantise it to 8 bits; "
        "only int8, uint8 and bool tensors run on the accelerator"
    )


def test_a_graph_of_values_beyond_all_memory(path: Path) -> None:
    _edit_graph(
        path, lambda document: _value(document, "x").update(shape=[1, 2147483647, 8192, 8192])
    )
    with pytest.raises(
        InputError, match=r"the largest of them 'x': too large, it takes about 131072\.0 TiB"
    ):
        load_package(path)


def test_deeply_nested_graph(path: Path) -> None:
    _edit_graph(
        path, lambda document: document["nodes"][0]["attributes"].update(kernel=[[[[[[1]]]]]])
    )
    _expect(path, "[[1]] is not an attribute")


def test_directory_that_cannot_exist(package: Package, path: Path) -> None:
    file = path / "net.dla"
    with pytest.raises(
        InputError,
        match=f"^{re.escape(str(file))}: cannot be written \\(.*\\); choose another place$",
    ):
        save_package(package, file)
