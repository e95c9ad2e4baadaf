"""Every pass on random ONNX models: the result computes the same values and is no copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import helper

from byoc.checking.fidelity import TOLERANCE
from byoc.frontend.onnx.rewriting.prepare import passes
from tests.e2e.given_models import Grower, quantised, run_unfused

QUANTISED = helper.make_model(
    helper.make_graph([helper.make_node("QuantizeLinear", ["x", "s"], ["q"])], "q", [], [])
)
PASSES = tuple(
    dict.fromkeys(
        step.__name__ for model in (onnx.ModelProto(), QUANTISED) for step in passes(model)
    )
)
ELSEWHERE = {
    *("drop_initializer_inputs", "fix_shapes", "drop_unread_outputs"),
    *("move_casts", "decompose_attention", "tabulate_rows", "drop_unit_dilations", "join_biases"),
    *("write_out_sparse", "unroll", "turn_slopes", "dequantise_constants", "restore_operators"),
    *("match_types", "write_out_einsums", "convolve_spectra"),
    *("select_branches", "guard_divisions", "search_in_turn", "multiply_by_indices"),
    *("multiply_by_triangle", "unpack_integers"),
}
"""Passes for which nothing is grown here: tests of their own are."""


class Writer(Grower):
    """Random models that begin with operators which passes rewrite."""

    def grow(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """The model and an input for it."""
        for _ in range(int(self.pick(1, 2, 3))):
            self.pick(
                self.plane,
                self.plane,
                self.resized,
                self.padded,
                self.volume,
                self.rows,
                self.norm,
                self.moved,
            )()
        return super().grow()

    def plane(self) -> str | None:
        """Add an operator on planes that is rewritten as a convolution or product."""
        x = self.some(4)
        if x is None:
            return None
        weights = self.normal(self.values[x].shape[1], 2, 2, 3)
        kind, operands, options = self.pick(
            ("ConvTranspose", (x, self.constant(weights)), {"strides": self.pick([2, 2], [1, 3])}),
            ("AveragePool", (x,), {"kernel_shape": [2, 2], "dilations": [2, 1], "pads": [1] * 4}),
            ("LpPool", (x,), {"kernel_shape": [2, 2], "p": self.pick(1, 2, 3)}),
            ("LRN", (x,), {"size": 3}),
            ("PRelu", (x, self.constant(self.normal(*self.values[x].shape[1:]))), {}),
        )
        return self.add(kind, *operands, **options)

    def resized(self) -> str | None:
        """Add an interpolation."""
        x = self.some(4)
        scales = self.constant([1, 1, *self.pick((2, 2), (1.5, 2), (0.5, 1))])
        return self.add("Resize", x, "", scales, mode=self.pick("linear", "cubic")) if x else None

    def padded(self) -> str | None:
        """Add a convolution of a padded tensor."""
        x = self.some(4)
        padded = x and self.add("Pad", x, self.constant([0, 0, 1, 1, 0, 0, 0, 1], np.int64))
        if not x or not padded:
            return None
        return self.add(
            "Conv", padded, self.constant(self.normal(2, self.values[x].shape[1], 1, 2))
        )

    def volume(self) -> str | None:
        """A window across three dimensions."""
        x = self.some(4)
        deep = x and self.add(
            "Reshape",
            x,
            self.constant([len(self.values[x]), 1, *self.values[x].shape[1:]], np.int64),
        )
        if not deep:
            return None
        kernel = [min(2, size) for size in self.values[deep].shape[2:]]
        if self.random.random() < 0.5:
            return self.add("Conv", deep, self.constant(self.normal(3, 1, *kernel)))
        return self.add(self.pick("MaxPool", "AveragePool"), deep, kernel_shape=kernel)

    def reduced(self, kind: str, x: str, axis: int) -> str | None:
        """A reduction, as its opset has it."""
        if self.opset >= 18:
            return self.add(kind, x, self.constant([axis], np.int64))
        return self.add(kind, x, axes=[axis])

    def rows(self) -> str | None:
        """Functions of rows."""
        x = self.some()
        axis = self.pick(-1, 0)
        if x is None:
            return None
        if self.random.random() < 0.3:
            return self.add("LogSoftmax", x, axis=axis)
        return self.reduced(
            self.pick("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"), x, axis
        )

    def norm(self) -> str | None:
        """A normalisation in elementary operators."""
        x = self.some()
        axis = self.pick(-1, 1)
        mean = x and self.values[x].ndim > 1 and self.reduced("ReduceMean", x, axis)
        if not x or not mean:
            return None
        centred = self.add("Sub", x, mean)
        square = centred and self.add("Mul", centred, centred)
        variance = square and self.reduced("ReduceMean", square, axis)
        safe = variance and self.add("Add", variance, self.constant(1e-3))
        root = safe and self.add("Sqrt", safe)
        return self.add("Div", centred, root) if centred and root else None

    def moved(self) -> str | None:
        """Splits and scatterings."""
        x = self.some()
        if x is None or self.values[x].ndim < 2:
            return None
        shape = self.values[x].shape
        if self.random.random() < 0.5:
            place = self.constant([[int(self.random.integers(-shape[0], shape[0]))]], np.int64)
            return self.add("ScatterND", x, place, self.constant(self.normal(1, *shape[1:])))
        if shape[-1] < 2:
            return None
        names = [f"s{len(self.nodes)}", f"r{len(self.nodes)}"]
        sizes = (
            {"num_outputs": 2}
            if self.opset >= 18
            else {"split": [-(-shape[-1] // 2), shape[-1] // 2]}
        )
        if (self.opset >= 18 and shape[-1] % 2) or 13 <= self.opset < 18:
            return None
        self.nodes.append(helper.make_node("Split", [x], names, axis=-1, **sizes))
        self.values |= run_unfused(
            self._model([self.nodes[-1]], {x: self.values[x]}, names, []), {x: self.values[x]}
        )
        return names[0]


def _models() -> Iterator[tuple[int, onnx.ModelProto, dict[str, np.ndarray]]]:
    """Yield models and inputs by seed: float ones, and some quantised by ONNX Runtime.

    ONNX Runtime runs the quantised ones.
    """
    for seed in range(100):
        yield seed, *(Writer if seed % 4 else Grower)(seed).grow()
    for seed in range(100, 150):
        model, feeds = Writer(seed).grow()
        with suppress(Exception):  # errors of its quantiser and of its models
            made = quantised(model, feeds, seed)
            run_unfused(made, feeds)
            yield seed, made, feeds


@cache
def _changes() -> dict[str, list[str]]:
    """Return, for every pass, the differences of the models that it changed.

    A text is empty, or names the differing output and its model. Both models run on unmodified ONNX
    Runtime with nothing fused, after all earlier passes.
    """
    found: dict[str, list[str]] = {name: [] for name in PASSES}
    for seed, given, feeds in _models():
        model = given
        for step in passes(model) if model.graph.node else ():
            after = step(model)
            if after.SerializeToString(deterministic=True) != model.SerializeToString(
                deterministic=True
            ):
                found[step.__name__].append(_difference(model, after, feeds, seed))
            model = after
    return found


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_changes_nothing_that_the_model_computes(name: str) -> None:
    found = _changes()[name]
    assert (not found) == (name in ELSEWHERE)
    assert not any(found), found


def _difference(
    before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray], seed: int
) -> str:
    wanted = run_unfused(before, feeds)
    found = run_unfused(after, feeds)
    assert len(found) == len(wanted) > 0
    for (name, first), second in zip(wanted.items(), found.values(), strict=True):
        magnitude = max(float(np.nan_to_num(np.abs(first), posinf=0.0).max(initial=0)), 1e-30)
        same = first.shape == second.shape and np.allclose(
            second, first, 0, TOLERANCE * magnitude, equal_nan=True
        )
        if not same:
            return f"{name} of seed {seed}"
    return ""
