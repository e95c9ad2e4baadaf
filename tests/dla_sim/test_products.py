"""Integer products are exact at the extremes, or not taken.

Kernels that need numba say so where it is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dla_sim.device import Device
from dla_sim.kernels import products
from dla_sim.kernels.attempt import Workspace, bind_once
from dla_sim.kernels.compiled import load_compiled
from isa.errors import InputError
from tests.dla_sim.kernel_bench import integer_ways

SCRATCH = Workspace()
LONGEST = products.IntegerProducts.longest


@pytest.mark.parametrize("kind", ["chosen", "int8", "uint8"])
@pytest.mark.parametrize(
    "zero_points", [(0, 0), (-128, 127), (127, -128), (-128, -128), (127, 127)]
)
@pytest.mark.parametrize("count", [1, 3, LONGEST - 1, LONGEST])
def test_extremes(kind: str, zero_points: tuple[int, int], count: int) -> None:
    """Multiply sums of the largest products: only exact products are chosen."""
    way = integer_ways()[kind]
    values = np.array([-128, 127, -128, 127, 0], np.int8)
    left = np.repeat(values[:, np.newaxis], count, axis=1)
    left[4] = np.where(np.arange(count) % 2, 127, -128)
    right = np.repeat(values[np.newaxis, :], count, axis=0)
    right[:, 4] = left[4]
    expected = (left.astype(np.int64) - zero_points[0]) @ (right.astype(np.int64) - zero_points[1])
    found = way.multiply(
        way.prepare_left(left, SCRATCH), way.right(right, SCRATCH), SCRATCH, zero_points
    )
    assert found.dtype == np.int32
    if kind == "int8" and not products.is_exact(way):
        assert integer_ways()["chosen"].kind != kind
        return
    np.testing.assert_array_equal(found, expected)


def saturating(feed: dict[str, Any]) -> Any:
    """Compute like a processor without integer dot products, which adds pairs in 16 bits."""
    left = feed["a"].astype(np.int64)
    right = feed["b"].astype(np.int64)
    if feed["b"].dtype == np.uint8:  # these are widened before they are multiplied
        pairs = left @ right
    else:
        left = np.pad(left, ((0, 0), (0, left.shape[1] % 2)))
        right = np.pad(right, ((0, len(right) % 2), (0, 0)))
        products_ = left[:, :, np.newaxis] * right[np.newaxis]
        sums = products_[:, 0::2] + products_[:, 1::2]
        pairs = np.clip(sums, -(1 << 15), (1 << 15) - 1).sum(axis=1)
    zeros = int(feed.get("za", 128)), int(feed.get("zb", 128 if feed["b"].dtype == np.uint8 else 0))
    corrections = zeros[1] * left.sum(axis=1)[:, np.newaxis] + zeros[0] * right.sum(axis=0)
    return pairs - corrections + zeros[0] * zeros[1] * feed["a"].shape[1]


class Saturating:
    """A session of such a processor."""

    def run(self, names: None, feed: dict[str, Any]) -> list[Any]:
        return [saturating(feed).astype(np.int32)]


def test_a_processor_that_saturates_gets_the_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "session", lambda kind: Saturating())
    found = products.integer_products.__wrapped__()
    assert found is not None
    assert found.kind == "uint8"


def test_products_that_are_never_exact_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Saturating, "run", lambda self, names, feed: [saturating(feed).astype(np.int32) + 1]
    )
    monkeypatch.setattr(products, "session", lambda kind: Saturating())
    assert products.integer_products.__wrapped__() is None


def test_without_exact_integer_products_products_are_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "integer_products", lambda: None)
    assert isinstance(products.products(1 << 40), products.FloatProducts)


def test_without_numba_compiled_kernels_are_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    load_compiled.cache_clear()
    with pytest.raises(
        InputError,
        match=r"compiled kernels need numba; install it with: .+ -m pip install 'numba>=",
    ):
        Device(compiled=True)


def test_views_are_made_again_for_other_memories_and_larger_buffers() -> None:
    made = []

    def bind(size: object, scratch: Workspace) -> Callable[[], int]:
        made.append(size)
        array = scratch.array("values", (8,), np.int8)
        return lambda: array.nbytes

    run = bind_once(bind)
    one, other, scratch = object(), object(), Workspace()
    for given in (one, one, other):
        assert run(given, scratch) == 8
    scratch.array("others", (8,), np.int8)
    assert run(other, scratch) == 8
    assert made == [one, other]
    scratch.array("values", (1 << 20,), np.int8)
    assert run(other, scratch) == run(other, scratch) == 8
    assert run(other, Workspace()) == 8
    assert made == [one, other, other, other]
