"""LiteRT in a process of its own: what ends it refuses one model, and the others go on."""

from __future__ import annotations

import os

import numpy as np
import pytest

from byoc.runtimes import litert_process
from byoc.runtimes.litert_process import LiteRTModel
from isa.errors import InputError
from tests.tflite.builder import Quantisation, TfliteBuilder


def _table() -> bytes:
    builder = TfliteBuilder("table")
    x = builder.input("x", (2, 3), Quantisation(0.1))
    return builder.model(builder.operator("LOGISTIC", [x], Quantisation(1 / 256, -128)))


def _crash() -> bytes:
    """LiteRT's optimised kernel of a depthwise convolution reads a bias that is not there."""
    builder = TfliteBuilder("crash")
    x = builder.input("x", (1, 6, 8, 2), Quantisation(0.1))
    w = builder.constant("w", np.ones((1, 2, 2, 4), np.int8), Quantisation((0.1,) * 4, axis=3))
    return builder.model(
        builder.operator("DEPTHWISE_CONV_2D", [x, w], Quantisation(0.2), depth_multiplier=2)
    )


GIVEN = np.array([[-128, -1, 0], [1, 50, 127]], np.int8)
WANTED = [[-128, -6, 0], [6, 126, 127]]


def test_a_session_outlives_the_process_that_another_ends() -> None:
    session = LiteRTModel(_table(), "reference")
    assert session.run({0: GIVEN}, [1])[1].tolist() == WANTED
    other = LiteRTModel(_crash(), "builtin", thing="net.tflite")
    with pytest.raises(
        InputError, match=r"^LiteRT ended its process on net\.tflite \(exit status -\d+\); correct"
    ):
        other.run({0: np.zeros((1, 6, 8, 2), np.int8)}, [2])
    assert session.run({0: GIVEN}, [1])[1].tolist() == WANTED


def test_inputs_may_have_another_size() -> None:
    session = LiteRTModel(_table(), "default")
    assert session.shapes[1] == (2, 3)
    assert session.run({0: GIVEN[:1]}, [1])[1].tolist() == WANTED[:1]
    assert session.run({0: GIVEN}, [1])[1].tolist() == WANTED


def test_what_litert_refuses_is_refused() -> None:
    with pytest.raises(InputError, match=r"^LiteRT cannot run net\.tflite "):
        LiteRTModel(_table()[:100], "reference", thing="net.tflite")


def test_a_process_that_was_forked_off_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    session = LiteRTModel(_table(), "reference")
    before = litert_process._last()[0]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert session.run({0: GIVEN}, [1])[1].tolist() == WANTED
    (own,) = litert_process._last()
    assert own is not before
    own.end()
    monkeypatch.undo()
    assert before.there
    before.end()
    assert LiteRTModel(_table(), "reference").run({0: GIVEN}, [1])[1].tolist() == WANTED
