"""The builder of TensorFlow Lite models: LiteRT reads what it writes, and mistakes are named."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from byoc.runtimes import litert
from isa.errors import InputError
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

PROBABILITY = Quantisation(1 / 256, -128)


def _network() -> tuple[TfliteBuilder, list[Tensor]]:
    random = np.random.default_rng(7)
    builder = TfliteBuilder("small")
    x = builder.input("x", (1, 9, 8, 3), Quantisation(0.05, -3))
    state = builder.input("state", (1, 5, 4, 4), Quantisation(0.1, 4))
    scales = (0.01, 0.02, 0.03, 0.005)
    weights = builder.constant(
        "w", random.integers(-127, 128, (4, 3, 3, 3), np.int8), Quantisation(scales)
    )
    bias = builder.constant(
        "b", np.arange(4, dtype=np.int32), Quantisation(tuple(0.05 * scale for scale in scales))
    )
    fields = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU6"}
    y = builder.operator(
        "CONV_2D", [x, weights, bias], Quantisation(0.1, 4), name="first", **fields
    )
    total = builder.operator("ADD", [y, state], Quantisation(0.2, 1))
    axis = builder.constant("axis", np.array(3, np.int32))
    halves = builder.operators("SPLIT", [axis, total], [Quantisation(0.2, 1)] * 2, num_splits=2)
    return builder, [builder.operator("LOGISTIC", [halves[0]], PROBABILITY), halves[1]]


def test_litert_reads_what_was_said() -> None:
    builder, outputs = _network()
    made = litert.interpreter(builder.model(*outputs))
    details = {one["name"]: one for one in made.get_tensor_details()}
    assert [one["name"] for one in made.get_input_details()] == ["x", "state"]
    assert [tuple(one["shape"]) for one in made.get_output_details()] == [
        one.shape for one in outputs
    ]
    assert outputs[1].shape == (1, 5, 4, 2)
    found = details["first"]
    assert (tuple(found["shape"]), found["quantization"]) == (
        (1, 5, 4, 4),
        (float(np.float32(0.1)), 4),
    )
    channels = details["w"]["quantization_parameters"]
    assert channels["scales"].tolist() == np.array([0.01, 0.02, 0.03, 0.005], np.float32).tolist()
    assert channels["quantized_dimension"] == 0
    assert made.get_tensor(details["b"]["index"]).tolist() == [0, 1, 2, 3]


def test_constants_are_aligned_and_bytes_repeat() -> None:
    content, again = (builder.model(*outputs) for builder, outputs in (_network(), _network()))
    assert content == again
    assert content[4:8] == b"TFL3"
    start = np.frombuffer(content, np.uint8).ctypes.data
    model = litert.schema().Model.GetRootAs(content)
    buffers = [model.Buffers(index) for index in range(model.BuffersLength())]
    places = [one.DataAsNumpy().ctypes.data - start for one in buffers if one.DataLength()]
    assert len(places) == 3
    assert [place % 16 for place in places] == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("SOFTMAX", {"gamma": 1.0}, "SOFTMAX has no option 'gamma'"),
        ("LOGISTIC", {"beta": 1.0}, "LOGISTIC has no options; leave out 'beta'"),
        ("SOFTMAXX", {}, "BuiltinOperator has no 'SOFTMAXX'"),
        ("AVERAGE_POOL_2D", {"padding": "SAMY"}, "Padding has no 'SAMY'"),
        ("CONV_2D", {}, "LiteRT cannot run CONV_2D of 'conv_2d_0'"),
    ],
)
def test_mistakes_are_named(kind: str, options: dict[str, Any], message: str) -> None:
    builder = TfliteBuilder("wrong")
    x = builder.input("x", (1, 4, 4, 2), PROBABILITY)
    with pytest.raises(InputError, match=message):
        builder.operator(kind, [x], PROBABILITY, **options)


def test_without_the_extra_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    monkeypatch.delitem(sys.modules, "ai_edge_litert.schema_py_generated", raising=False)
    monkeypatch.delitem(sys.modules, "ai_edge_litert.interpreter", raising=False)
    for needed in (litert.schema, lambda: litert.interpreter(b"")):
        with pytest.raises(
            InputError, match=r"install it with: .+ -m pip install 'ai-edge-litert>="
        ):
            needed()
