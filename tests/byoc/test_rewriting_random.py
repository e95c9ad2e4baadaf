"""Every pass on ONNX models alone, on random models: what it returns computes what it was given, and it is no copy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from byoc.fidelity import TOLERANCE
from byoc.frontend.onnx.rewriting.prepare import passes
from tests.e2e.given_models import Grower, run_unfused

PASSES = tuple(dict.fromkeys(step.__name__ for step in passes(Grower(0).grow()[0])))


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_changes_nothing_that_the_model_computes(name: str) -> None:
    """Before and after, on unmodified ONNX Runtime with nothing fused; passes before it have had their turn."""
    compared, changed = 0, 0
    for seed in range(40):
        model, feeds = Grower(seed).grow()
        if not model.graph.node:
            continue
        for step in passes(model):
            after = step(model)
            if step.__name__ == name:
                before = model.SerializeToString(deterministic=True)
                changed += after.SerializeToString(deterministic=True) != before
                compared += _same(model, after, feeds, seed)
            model = after
    assert compared > 40
    if name in ("fold_affine", "canonicalise_gemm", "remove_identities", "inline_functions", "fold_constants"):
        assert changed > 0


def _same(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray], seed: int) -> int:
    """How many outputs were compared."""
    wanted, found = run_unfused(before, feeds), run_unfused(after, feeds)
    for first, second in zip(wanted.values(), found.values(), strict=True):
        assert first.shape == second.shape
        magnitude = max(float(np.abs(first).max(initial=0)), 1e-30)
        assert float(np.abs(first - second).max(initial=0)) <= 10 * TOLERANCE * magnitude, f"seed {seed}"
    return len(wanted)
