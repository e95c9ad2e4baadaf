"""Every accelerated TensorFlow Lite operator equals LiteRT's reference kernels to the bit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from experiments import run
from isa.arch import Arch
from tests.e2e.tflite_drafts import DRAWN, Draft
from tests.e2e.tflite_operators import FIXED, HEADER, UNSIGNED, outcome
from tests.tflite.builder import Quantisation, TfliteBuilder

DEFAULT = Arch.model_validate({"isa": "v4"})
NOT_ALWAYS = {"SPLIT_V", "SUM", "TRANSPOSE_CONV"}
"""What falls back for some shapes, or always."""


@pytest.mark.parametrize("kind", sorted(DRAWN))
def test_operator_is_as_the_reference_kernels_have_it(kind: str) -> None:
    found = outcome(kind, range(4), FIXED)
    assert found.mismatches == 0
    assert found.accelerated == found.cases or kind in NOT_ALWAYS, found.reasons
    assert found.elements > 0


@pytest.mark.parametrize("kind", sorted(DRAWN))
def test_operator_is_as_the_default_resolver_has_it_or_stays_on_the_cpu(kind: str) -> None:
    found = outcome(kind, range(2), DEFAULT)
    assert found.mismatches == 0
    assert found.accelerated == found.cases or all(found.reasons)


@pytest.mark.parametrize(
    "kind", ["SUB", "RELU", "RELU6", "QUANTIZE", "PRELU", "LEAKY_RELU", "ABS", "MEAN"]
)
def test_scales_far_apart(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales from 2^-27 to 2^27 give LiteRT's results.

    The operator runs on the CPU if LiteRT's int32 could overflow.
    """

    def far(draft: Draft, low: float = 0, high: float = 0) -> Quantisation:
        return Quantisation(
            float(np.float32(2.0 ** draft.random.uniform(-27, 27))),
            int(draft.random.integers(-128, 128)),
        )

    monkeypatch.setattr(Draft, "quantisation", far)
    found = outcome(kind, range(8), FIXED)
    assert found.mismatches == 0
    assert found.accelerated > 0
    assert all("leaves int32" in reason or "scale" in reason for reason in found.reasons)


def test_the_page_is_of_these_operators() -> None:
    """Else run ``python -m tests.e2e.tflite_operators --cases 100 --output docs/inputs.md``."""
    text = (
        (Path(__file__).parents[2] / "docs" / "inputs.md")
        .read_text(encoding="utf-8")
        .partition(HEADER)[2]
    )
    found = re.findall(
        r"^\| ([A-Z0-9_]+) \| (\d+) \| (\d+) \| ([\d,]+) \| (\d+) \|$", text, re.MULTILINE
    )
    assert [line[0] for line in found] == sorted(DRAWN)
    assert {line[4] for line in found} == {"0"}
    assert all(line[1] == line[2] or line[0] in NOT_ALWAYS for line in found)
    assert min(int(line[1]) for line in found) >= 100


@pytest.mark.parametrize("kind", UNSIGNED)
def test_operator_on_uint8(kind: str) -> None:
    found = outcome(kind, range(2), FIXED, "uint8")
    assert found.mismatches == 0
    assert found.accelerated == found.cases, found.reasons


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MEAN"])
def test_uint8_of_another_rule_stays_on_the_cpu(kind: str) -> None:
    found = outcome(kind, range(1), FIXED, "uint8")
    assert (found.accelerated, found.mismatches) == (0, 0)
    assert "LiteRT has another rule for uint8 than for int8" in str(found.reasons)


@pytest.mark.parametrize(
    ("kind", "shape", "types", "zero_point", "reason"),
    [
        (
            "CONV_2D",
            (6, 3, 3, 4),
            (np.uint8, np.int8),
            0,
            "its weights are int8 and its input uint8",
        ),
        (
            "FULLY_CONNECTED",
            (5, 256),
            (np.int8, np.uint8),
            128,
            "its weights are uint8 and its input int8",
        ),
        (
            "DEPTHWISE_CONV_2D",
            (1, 3, 3, 4),
            (np.int8, np.int8),
            7,
            "its int8 weights have a zero point",
        ),
    ],
)
def test_weights_that_kernels_read_otherwise_stay_on_the_cpu(
    kind: str,
    shape: tuple[int, ...],
    types: tuple[type, type],
    zero_point: int,
    reason: str,
    tmp_path: Path,
) -> None:
    """Weights that LiteRT misreads stay on the CPU.

    LiteRT reads their bytes with the input's type and without a zero point, which the check found
    as mismatches.
    """
    given, weights = (np.dtype(each) for each in types)
    make = TfliteBuilder("weights")
    channels = shape[3] if shape[0] == 1 else shape[0]
    x = make.input("x", (1, 8, 8, 4), Quantisation(0.02, 3), given)
    numbers = np.random.default_rng(0).integers(
        np.iinfo(weights).min + 1, np.iinfo(weights).max, shape, weights
    )
    w = make.constant("w", numbers, Quantisation(0.005, zero_point))
    b = make.constant(
        "b",
        np.arange(channels, dtype=np.int32),
        Quantisation(float(np.float32(0.02) * np.float32(0.005))),
    )
    options = {} if kind == "FULLY_CONNECTED" else {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    options |= {"depth_multiplier": 1} if kind == "DEPTHWISE_CONV_2D" else {}
    file = tmp_path / "m.tflite"
    file.write_bytes(
        make.model(make.operator(kind, [x, w, b], Quantisation(0.03, 5), given, **options))
    )
    report = run(file, settings={"numerics": "fixed"}).report
    assert report.check.mismatches == 0
    assert reason in str([one.reason for one in report.placement])
