"""Normalisations written in elementary operators, in random ways of exporters."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike

from tests.byoc.small_models import ModelBuilder


class NormalisationWriter:
    """Writes a normalisation in elementary operators, in one of the ways of exporters."""

    def __init__(self, rng: np.random.Generator, centred: bool) -> None:
        self.builder = ModelBuilder()
        self.rng = rng
        self.centred = centred
        self.shape = tuple(int(size) for size in rng.integers(2, 9, rng.integers(2, 5)))
        rank = len(self.shape)
        keep = int(rng.integers(1, rank))
        self.axes = (
            tuple(range(keep, rank))
            if rng.integers(2)
            else tuple(sorted(rng.permutation(rank)[keep:].tolist()))
        )
        self.along = self.builder.constant(
            np.array(self.axes) - rank * int(rng.integers(2)), "int64"
        )
        self.x = self.builder.input("x", self.shape)

    def pick(self, *ways: Any) -> Any:
        return ways[self.rng.integers(len(ways))]

    def number(self, value: ArrayLike) -> str:
        return self.builder.constant(value, "float32")

    def product(self, a: str, b: str) -> str:
        return self.builder.node("Mul", *self.pick([a, b], [b, a]))

    def mean(self, data: str) -> str:
        """Write a mean as a mean or as a sum over its length.

        It keeps its dimensions or gets them back.
        """
        builder = self.builder
        keepdims = int(self.rng.integers(2))
        kind = self.pick("ReduceMean", "ReduceSum")
        total = builder.node(kind, data, self.along, keepdims=keepdims)
        if builder.nodes[-1].op_type == "ReduceSum":
            count = np.prod([self.shape[axis] for axis in self.axes])
            total = self.pick(
                self.product(total, self.number(1 / count)),
                builder.node("Div", total, self.number(count)),
            )
        if keepdims:
            return total
        stays = [1 if axis in self.axes else size for axis, size in enumerate(self.shape)]
        return builder.node("Reshape", total, builder.constant(stays, "int64"))

    def square(self, data: str) -> str:
        builder = self.builder
        return self.pick(
            builder.node("Mul", data, data), builder.node("Pow", data, self.number(2.0))
        )

    def deviation(self) -> str:
        return self.builder.node("Sub", self.x, self.mean(self.x)) if self.centred else self.x

    def variance(self, data: str) -> str:
        """Write the variance of ``data``, the deviations, and epsilon."""
        builder = self.builder
        variance = self.mean(self.square(self.pick(data, self.deviation())))
        if self.centred and self.rng.integers(2):
            x = self.x
            variance = builder.node("Sub", self.mean(self.square(x)), self.square(self.mean(x)))
            pair = self.pick([variance, self.number(0)], [self.number(0), variance])
            variance = self.pick(variance, builder.node("Max", *pair))
        total = [variance, self.number(1e-2)]
        return builder.node("Add", *self.pick(total, total[::-1]))

    def scaled(self, data: str, variance: str) -> str:
        """Write the division by the root of the variance, the gain and the bias."""
        builder = self.builder
        pick = self.pick
        root = pick(builder.node("Sqrt", variance), builder.node("Pow", variance, self.number(0.5)))
        inverse = pick(
            builder.node("Reciprocal", root), builder.node("Div", self.number(1.0), root)
        )
        inverse = pick(inverse, builder.node("Pow", variance, self.number(-0.5)))
        row = [size if axis in self.axes else 1 for axis, size in enumerate(self.shape)]
        gain, bias = (self.number(self.rng.normal(1, 0.3, pick(row, row, (1,)))) for _ in range(2))
        way = int(self.rng.integers(4 if self.centred else 3))
        if way == 0:
            y = pick(builder.node("Div", data, root), self.product(data, inverse))
        elif way == 1:
            divided = pick(builder.node("Div", data, root), self.product(data, inverse))
            y = self.product(divided, gain)
        else:
            y = self.product(data, self.product(inverse, gain))
        if way == 3:
            factor = pick(inverse, self.product(inverse, gain))
            rest = builder.node("Sub", bias, self.product(self.mean(self.x), factor))
            parts = pick([self.product(self.x, factor), rest], [rest, self.product(self.x, factor)])
            return builder.node("Add", *parts)
        if self.centred and self.rng.integers(2):
            return builder.node("Add", *pick([y, bias], [bias, y]))
        return y


def written_out(rng: np.random.Generator, centred: bool) -> onnx.ModelProto:
    """Return a normalisation in elementary operators."""
    writer = NormalisationWriter(rng, centred)
    data = writer.deviation()
    y = writer.scaled(data, writer.variance(data))
    writer.builder.node("Identity", y, result="y")
    writer.builder.output("y")
    return writer.builder.model()
