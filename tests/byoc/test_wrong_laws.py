"""Rewrite rules with seeded faults: the proof of each rule must catch its fault."""

from __future__ import annotations

import inspect
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from onnx import ModelProto

from byoc import importing
from byoc.checking import fidelity
from byoc.checking.fidelity import TOLERANCE
from byoc.frontend.onnx.rewriting.law import Law, Pass, make_pass
from byoc.frontend.onnx.rewriting.prepare import passes
from tests.byoc.float_models import operators
from tests.byoc.test_laws import DRAWN, DRAWS, differences

FAULTS = {
    fault["name"]: fault
    for fault in tomllib.loads(
        Path(__file__).with_name("wrong_laws.toml").read_text(encoding="utf-8")
    )["fault"]
}
KINDS = {kind.__name__: kind for kind in DRAWN}


def law_with(fault: str) -> Law:
    """The law with the fault."""
    name, old, new = (FAULTS[fault][key] for key in ("law", "old", "new"))
    source = inspect.getsource(sys.modules[KINDS[name].__module__])
    assert source.count(old) == 1, fault
    module = ModuleType("faulty")
    sys.modules["faulty"] = module  # where dataclasses look themselves up
    exec(compile(source.replace(old, new), "faulty", "exec"), module.__dict__)
    found: Law = vars(module)[name]()
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_law_is_caught_by_its_proof(fault: str) -> None:
    law = law_with(fault)
    assert any(
        _differs(law, DRAWN[KINDS[FAULTS[fault]["law"]]](seed), seed) for seed in range(DRAWS)
    )


def _differs(law: Law, before: ModelProto, seed: int) -> bool:
    try:
        return differences(before, make_pass("law", [law])(before), seed) > (
            0 if law.exact else TOLERANCE
        )
    # what is made is no model any more, as onnx or ONNX Runtime say in errors of their own
    except Exception:
        return True


@pytest.mark.parametrize(
    ("fault", "step"), [("constant-not-turned", "exact_laws"), ("bias-not-scaled", "fold_affine")]
)
def test_a_wrong_law_is_caught_where_models_are_imported(
    fault: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug is named where the law is exact.

    One that may move rounding is left out, which is said.
    """
    model = next(
        model
        for model in map(DRAWN[KINDS[FAULTS[fault]["law"]]], range(DRAWS))
        if _differs(law_with(fault), model, 0) and operators(model)["BatchNormalization"] == 0
    )
    steps, wrong = passes, make_pass(step, [law_with(fault)])

    def with_the_fault(given: ModelProto, shapes: object = None) -> tuple[Pass, ...]:
        return tuple(wrong if each.__name__ == step else each for each in steps(given))

    monkeypatch.setattr(importing, "passes", with_the_fault)
    if law_with(fault).exact:
        with pytest.raises(fidelity.PassError, match=f"the pass {step} changes tensor"):
            importing.import_model(model)
        return
    found = importing.import_model(model).fidelity
    assert found is not None
    assert found.left_out == (step,)
