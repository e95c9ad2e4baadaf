"""Random scales, shapes and data, and models of one operator with expected results.

The results follow from the operator's rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.runtimes import litert
from isa import numerics
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

Int8 = NDArray[np.int8]
Random = np.random.Generator
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
LIMITS = {
    "RELU": (0.0, np.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


@dataclass(frozen=True, eq=False)
class Case:
    """A model of one operator, its inputs, and its results by the rules of `isa.numerics`."""

    content: bytes
    feeds: tuple[NDArray[Any], ...]
    expected: tuple[NDArray[Any], ...]

    def results(self) -> list[NDArray[Any]]:
        """Return the results of LiteRT's reference kernels."""
        made = litert.interpreter(self.content, "reference")
        for detail, feed in zip(made.get_input_details(), self.feeds, strict=True):
            made.set_tensor(detail["index"], feed)
        made.invoke()
        return [np.array(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


def draw_scale(random: Random, low: int = -8, high: int = 0) -> float:
    """Any float32, a power of two, or a small multiple of one: ties are frequent in the latter."""
    power = 2.0 ** int(random.integers(low, high + 1))
    factor = (float(random.uniform(0.5, 1)), 1.0, float(random.integers(3, 8)) / 4)[
        int(random.integers(3))
    ]
    return float(np.float32(power * factor))


def draw_quantisation(random: Random, low: int = -8, high: int = 0) -> Quantisation:
    return Quantisation(
        draw_scale(random, low, high),
        int(random.choice([-128, 0, 127, random.integers(-128, 128)])),
    )


def draw_shape(random: Random, rank: int = 4, largest: int = 7) -> tuple[int, ...]:
    return tuple(int(size) for size in random.integers(1, largest + 1, rank))


def draw_data(random: Random, shape: Sequence[int]) -> Int8:
    return random.integers(-128, 128, tuple(shape), np.int8)


def scale_and_zero(tensor: Tensor) -> tuple[float, int]:
    assert tensor.quantisation is not None
    return tensor.quantisation.scales[0], tensor.quantisation.zero_point


def centre(data: Int8, tensor: Tensor) -> NDArray[np.int64]:
    return data.astype(np.int64) - scale_and_zero(tensor)[1]


def activation_limits(activation: str, tensor: Tensor) -> tuple[int, int]:
    scale, zero_point = scale_and_zero(tensor)
    steps = numerics.activation_steps(LIMITS.get(activation, (-np.inf, np.inf)), scale)
    low, high = (int(np.clip(step + zero_point, -128, 127)) for step in steps)
    return low, high


class ModelDraft:
    """A model of one operator under construction.

    Inputs get their data when they are declared.
    """

    def __init__(self, name: str) -> None:
        self.builder = TfliteBuilder(name.lower())
        self.feeds: list[NDArray[Any]] = []

    def input(self, data: NDArray[Any], quantisation: Quantisation | None) -> Tensor:
        self.feeds.append(data)
        return self.builder.input(f"input_{len(self.feeds)}", data.shape, quantisation, data.dtype)

    def numbers(self, name: str, *values: int) -> Tensor:
        return self.builder.constant(name, np.array(values, np.int32))

    def case(self, outputs: Sequence[Tensor], *expected: NDArray[Any]) -> Case:
        return Case(self.builder.model(*outputs), tuple(self.feeds), expected)
