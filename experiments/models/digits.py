"""``digits-cnn``: the small trained network on 8×8 handwritten digits, and its stored data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto

MODEL_FILE = "digits-cnn.onnx"
TFLITE_FILE = "digits-cnn.tflite"
DATA_FILE = "digits-data.npz"


def digits_model() -> ModelProto:
    """Return the trained float network for digits.

    Its input is ``image``, float32 (1, 1, 8, 8) with values 0..1; its output is ``logits`` (1, 10).
    """
    import onnx

    return onnx.load(Path(__file__).parent / MODEL_FILE)


@cache
def _data() -> Mapping[str, NDArray[np.uint8]]:
    with np.load(Path(__file__).parent / DATA_FILE, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _images(name: str) -> NDArray[np.float32]:
    return (_data()[name].astype(np.float32) / 16.0)[:, np.newaxis]


def held_out_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the 450 images that training did not use, and their labels.

    Images are float32 (450, 1, 8, 8) with values 0..1, labels int64 (450,).
    """
    return _images("images"), _data()["labels"].astype(np.int64)


def calibration_digits() -> NDArray[np.float32]:
    """Return 64 training images, float32 (64, 1, 8, 8) with values 0..1."""
    return _images("calibration")
