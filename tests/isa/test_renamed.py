"""Old names of the public modules."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("byoc.operators.elementwise", "Elementwise", "ElementwiseOperator"),
        ("byoc.operators.arithmetic", "Subtraction", "SubtractionOperator"),
        ("isa.numerics", "rounded_multiplier", "compute_rounded_multiplier"),
    ],
)
def test_an_old_name_still_works_and_tells_the_new_one(module: str, old: str, new: str) -> None:
    found = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(found, old) is getattr(found, new)


def test_an_unknown_name_is_an_attribute_error() -> None:
    numerics = importlib.import_module("isa.numerics")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        numerics.nothing  # noqa: B018
