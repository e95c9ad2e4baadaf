"""Level 2: edge cases of reductions, softmaxes and normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.golden.case import GoldenCase
from tests.golden_cases.level2 import EVERY
from tests.golden_cases.machines import TABLES, machine
from tests.golden_cases.tensor_operations import OnRows

_TIES = np.array([[0, 1], [0, 3], [0, -1], [-1, -2], [5, 6], [-7, 0]], np.int8)
_LOW = np.full((1, 40), -128, np.int8)
_STEPS = np.tile(EVERY, (4, 1))
_EQUAL = np.array([[9] * 6, [-128] * 6], np.int8)
_SOFTMAX: dict[str, Any] = {"scales": (0.03, 1 / 256), "zeros": (0, -128)}
_NORM: dict[str, Any] = {"fields": {"centred": 1}, "scales": (0.1, 2.0**-6), "zeros": (0, 0)}


def _reductions() -> dict[str, OnRows]:
    """Return reductions of ties, every value and extreme zero points."""
    mean: dict[str, Any] = {"scales": (0.5, 0.5), "zeros": (0, 0)}
    return {
        "mean-ties": OnRows("OP_REDUCE", (6, 2, 1), input=_TIES, **mean),
        "mean-saturates": OnRows(
            "OP_REDUCE", (1, 40, 1), scales=(0.5, 0.01), zeros=(127, 0), input=_LOW
        ),
        "mean-of-one": OnRows("OP_REDUCE", (256, 1, 1), input=EVERY.reshape(256, 1), **mean),
        "sum-far-zeros": OnRows(
            "OP_REDUCE", (4, 256, 1), scales=(1.0, 256.0), zeros=(-32768, 32767), input=_STEPS
        ),
        "largest-of-one": OnRows(
            "OP_REDUCE", (256, 1, 1), {"mode": 1}, (0.5, 0.2), input=EVERY.reshape(256, 1)
        ),
        "smallest-ties": OnRows(
            "OP_REDUCE", (1, 1, 256), {"mode": 2}, (0.5, 1.0), (0, 0), input=EVERY[np.newaxis]
        ),
    }


def _softmaxes() -> dict[str, OnRows]:
    """Return softmaxes of ties, equal elements and long rows whose sum depends on its order."""
    uneven = np.tile(np.arange(-128, 127, 3, dtype=np.int8), (1, 20))
    halves = np.repeat(np.array([[0], [9], [-50]], np.int8), 2, axis=1)
    lowest = np.arange(-128, -88, dtype=np.int8).reshape(2, 20)
    late = np.full((1, 20001), -100, np.int8)
    late[0, 0] = 0  # a sum of one large and many small numbers depends on its order
    narrow = {**_SOFTMAX, "scales": (2.0**-10, 0.5)}
    return {
        "softmax-every": OnRows("OP_SOFTMAX", (1, 256, 1), input=EVERY[np.newaxis], **_SOFTMAX),
        "softmax-equal": OnRows("OP_SOFTMAX", (2, 6, 1), input=_EQUAL, **_SOFTMAX),
        "softmax-ties": OnRows("OP_SOFTMAX", (2, 6, 1), input=np.zeros((2, 6), np.int8), **narrow),
        "softmax-long": OnRows(
            "OP_SOFTMAX",
            (1, uneven.size, 1),
            input=uneven,
            **{**_SOFTMAX, "scales": (0.0003, 2e-5)},
        ),
        "softmax-order": OnRows(
            "OP_SOFTMAX", (1, 20001, 1), scales=(0.105, 3e-5), zeros=(0, -21500), input=late
        ),
        "softmax-low": OnRows(
            "OP_SOFTMAX", (2, 20, 1), input=lowest, **{**_SOFTMAX, "scales": (1.5, 1 / 256)}
        ),
        "softmax-halves": OnRows(
            "OP_SOFTMAX", (3, 2, 1), scales=(0.03, 1 / 43.5), zeros=(0, 0), input=halves
        ),
        "softmax-two": OnRows(
            "OP_SOFTMAX", (1, 2, 256), input=np.stack([EVERY, EVERY[::-1]]), **_SOFTMAX
        ),
    }


def _normalisations() -> dict[str, OnRows]:
    """Return normalisations of ties, equal elements, every value and cancelling sums."""
    unit = np.array([[1.0, 0.0]])
    close = np.where(np.arange(600) % 7 < 2, 127, 126).astype(np.int8)[np.newaxis]
    root: dict[str, Any] = {**_NORM, "fields": {}, "zeros": (-128, 7)}
    fine: dict[str, Any] = {**_NORM, "scales": (0.1, 1 / 8000), "zeros": (0, -12620)}
    return {
        "layer-norm-constant": OnRows(
            "OP_NORM", (2, 6, 1), input=_EQUAL, pairs=np.ones((6, 2)), **_NORM
        ),
        "layer-norm-ties": OnRows(
            "OP_NORM", (6, 2, 1), input=_TIES, pairs=np.repeat(unit, 2, 0) / 128, **_NORM
        ),
        "layer-norm-cancels": OnRows(
            "OP_NORM", (1, 600, 1), input=close, pairs=np.repeat(unit, 600, 0), **fine
        ),
        "layer-norm-every": OnRows(
            "OP_NORM", (4, 256, 1), input=_STEPS, pairs=np.repeat(unit, 256, 0), **_NORM
        ),
        "rms-norm-every": OnRows(
            "OP_NORM", (4, 256, 1), input=_STEPS, pairs=np.repeat(unit, 256, 0), **root
        ),
        "rms-norm-zero": OnRows("OP_NORM", (1, 40, 1), input=_LOW, pairs=np.ones((40, 2)), **root),
    }


def rows() -> Iterator[GoldenCase]:
    """Yield edge cases of operations on rows."""
    for name, on_rows in {**_reductions(), **_softmaxes(), **_normalisations()}.items():
        for suffix, numerics in (("", "onnxruntime"), ("-fixed", "fixed")):
            arch = machine("v4", numerics)
            yield on_rows.case(
                f"L2/{name}{suffix}", f"{on_rows.mnemonic}: {name.replace('-', ' ')}", arch
            )
    bad = OnRows("OP_SOFTMAX", (1, 4, 1), table=np.zeros(256, np.float32), **_SOFTMAX)
    yield bad.case("L2/softmax-of-nothing", "exponentials that are all 0", TABLES)
    flat = {**_NORM, "scales": (1e30, 1.0)}  # epsilon on integers is then 0
    yield OnRows("OP_NORM", (2, 6, 1), input=_EQUAL, **flat).case(
        "L2/layer-norm-without-epsilon", "no variance", TABLES
    )
