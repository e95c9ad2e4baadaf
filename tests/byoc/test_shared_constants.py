"""Models that share large constants give the same package; the import frees the arrays."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from byoc.frontend.onnx.rewriting.form import widen
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.package.package import load_package, package_bytes
from byoc.quantisation import calibrate
from byoc.quantisation.calibrate import default_feeds, observe_ranges
from byoc.quantisation.quantize import quantise
from byoc.runtimes import pieces, protobuf
from byoc.runtimes.protobuf import (
    SHARED_BYTES,
    array_of,
    copy_model,
    embed_constants,
    free_constants,
    make_tensor,
    move_constants,
    share_constants,
)
from experiments.models import MODELS
from experiments.models.sequences import gpt2


def small_gpt2() -> ModelProto:
    return gpt2(0, 1, 7, width=128, heads=4, words=1024)


def half_autoencoder() -> ModelProto:
    """The autoencoder with numbers of half precision."""
    model = MODELS["autoencoder"].build(0)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            half = array_of(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


NETWORKS: dict[str, Callable[[], ModelProto]] = {
    "resnet-8": lambda: MODELS["resnet-8"].build(0),
    "gpt2": small_gpt2,
    "quantised": lambda: quantise(prepare(small_gpt2())),
    "half": half_autoencoder,
}


@pytest.mark.parametrize("block", [nullcontext, share_constants], ids=["given", "built"])
@pytest.mark.parametrize("name", NETWORKS)
def test_sharing_changes_no_byte_of_a_package(
    name: str, block: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protobuf, "SHARED_BYTES", 1 << 62)
    wanted = import_model(NETWORKS[name]())
    monkeypatch.setattr(protobuf, "SHARED_BYTES", protobuf.LARGE_BYTES + 1)
    made = []
    monkeypatch.setattr(protobuf, "_numbers", iter(lambda: made.append(1) or len(made), 0))
    with block():
        found = import_model(NETWORKS[name]())
    assert made, "no constant was shared"
    assert found.digest == wanted.digest
    large = [v.constant for v in found.graph.values.values() if v.constant is not None]
    weights = np.frombuffer(found.read_member("weights.bin"), np.uint8)
    assert all(np.shares_memory(one, weights) for one in large if one.size >= SHARED_BYTES)
    again = load_package("again", package_bytes(found), trusted=True)
    assert package_bytes(again) == package_bytes(wanted)
    del found, large  # the graph has some of the arrays
    gc.collect()
    assert not protobuf._arrays


def test_a_copy_shares_the_array_until_the_block_ends() -> None:
    array = np.arange(1 << 18, dtype=np.float32)
    model = small_gpt2()
    with share_constants():
        model.graph.initializer.append(make_tensor(array, "large"))
        copies = copy_model(model).graph.initializer[-1], move_constants(model)
        assert all(
            np.shares_memory(array, array_of(one))
            for one in (copies[0], copies[1].graph.initializer[-1])
        )
        with pytest.raises(ValueError, match="read-only"):
            array_of(copies[0])[0] = 1
        whole = embed_constants(model)
        with share_constants():
            make_tensor(array, "inner")
        assert len(protobuf._arrays) == 1
        free_constants(whole)
        assert not protobuf._arrays
    np.testing.assert_array_equal(array_of(whole.graph.initializer[-1]), array)


@pytest.mark.parametrize("name", ["gpt2", "half"])
def test_pieces_by_size_have_the_same_ranges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "SHARED_BYTES", protobuf.LARGE_BYTES + 1)
    model = prepare(widen(NETWORKS[name]()))
    feeds = list(default_feeds(model, 0, 3))
    wanted = observe_ranges(model, feeds)
    opened: list[ModelProto] = []
    session = calibrate.lean_session

    def count_sessions(model: ModelProto, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        opened.append(model)
        return session(model, *arguments, **named)

    monkeypatch.setattr(calibrate, "lean_session", count_sessions)
    monkeypatch.setattr(pieces, "BYTES_PER_PIECE", 1 << 17)
    monkeypatch.setattr(pieces, "KEPT_RUNS", 1)
    assert observe_ranges(model, feeds) == wanted
    count = len({id(model) for model in opened})
    assert count >= 2
    assert len(opened) == 2 * count  # at the first sample, and once for all others


CHILD = """
import numpy as np
from pathlib import Path
from byoc.importing import import_model
from byoc.runtimes.protobuf import array_of, share_constants
from experiments.models.sequences import gpt2

def read(field):
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if field in x)
    return int(line.split()[1]) << 10

def build(width, words):
    return gpt2(0, 2, 7, width=width, heads=4, words=words)

with share_constants():
    import_model(build(64, 64))  # loads the libraries
    weights = sum(array_of(tensor).nbytes for tensor in build(512, 24576).graph.initializer)
before = read("VmRSS")
with share_constants():
    import_model(build(512, 24576))
print((read("VmHWM") - before) / weights)
"""
MOST = 3.8
"""Largest peak of an import over the bytes of the weights, on top of the loaded libraries."""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's process status")
def test_an_import_takes_little_more_memory_than_the_weights() -> None:
    found = subprocess.run(
        [sys.executable, "-c", CHILD], check=True, capture_output=True, text=True
    ).stdout
    assert 1 < float(found) < MOST
