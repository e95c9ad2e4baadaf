"""Data movement on the device: what ONNX Runtime moves, moved to the bit, in scratchpads large and small."""

from __future__ import annotations

import pytest

from tests.e2e.movements import ARCHS, KINDS, reasons, run


@pytest.mark.parametrize("schedule", ["default", "seed"])
@pytest.mark.parametrize("kind", KINDS)
def test_movements_equal_onnx_runtime(kind: str, schedule: str) -> None:
    for seed, arch in enumerate(ARCHS):
        found = run(seed, kind, arch, schedule)
        assert found.mismatches == 0, (seed, arch)
        assert found.elements > 0
        assert reasons(found) == [] or arch == "small", (seed, arch)
