"""TensorFlow Lite chains drawn from nothing, most of them valid, some with odd values.

LiteRT decides which operators are valid.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isa.errors import InputError
from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder


class _Chain:
    """TensorFlow Lite operators, each after one that there is.

    ``odd`` is the share of values that nobody would give.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.builder = TfliteBuilder("net")
        self.generator = np.random.default_rng(rng.randrange(1 << 30))
        self.odd = rng.choice((0.0, 0.02, 0.1))
        shape = rng.choice(((1, 6, 6, 3), (1, 5, 7, 4), (2, 6, 6, 2)))
        self.tensors = [self.builder.input("x", shape, self.quantisation())]

    def is_odd(self) -> bool:
        return self.rng.random() < self.odd

    def scale(self) -> float:
        usual = (0.05, 0.02, 0.1)
        return self.rng.choice((1e-30, 1e30, 0.0, -0.1, 1.0) if self.is_odd() else usual)

    def quantisation(self) -> Quantisation:
        scale = self.scale()
        odd = self.is_odd()
        return Quantisation(scale, self.rng.choice((127, -128, 200, -1000) if odd else (0, 3, -5)))

    def weights(self, *shape: int) -> Any:
        return self.generator.integers(-127, 128, shape).astype(np.int8)

    def add(self, number: int) -> None:
        """Add operator ``number`` unless LiteRT cannot prepare it."""
        rng = self.rng
        x = rng.choice((self.tensors[-1], rng.choice(self.tensors)))
        quantisation = self.quantisation()
        outputs = rng.randint(1, 5)
        window = {
            "padding": rng.choice(("SAME", "VALID")),
            "stride_w": rng.choice((1, 2)),
            "stride_h": 1,
        }
        kind = rng.choice(_OPERATORS)
        operands, options = _OPERANDS.get(kind, _no_operands)(
            self, _Site(x, number, outputs, window)
        )
        quantisation = _choose_quantisation(self, kind, x, quantisation)
        with contextlib.suppress(InputError):
            self.tensors.append(
                self.builder.operator(kind, [x, *operands], quantisation, **options)
            )


@dataclass(frozen=True)
class _Site:
    """Input, number, output channels and window of an operator that is added to a chain."""

    x: Tensor
    number: int
    outputs: int
    window: dict[str, Any]


_Operands = tuple[list[Any], dict[str, Any]]
"""Further inputs of an operator, and its options."""


def _no_operands(chain: _Chain, site: _Site) -> _Operands:
    return [], {}


def _conv_operands(chain: _Chain, site: _Site) -> _Operands:
    scales = Quantisation(tuple(chain.scale() for _ in range(site.outputs)))
    weights = chain.weights(site.outputs, 3, 3, site.x.shape[-1])
    return [chain.builder.constant(f"w{site.number}", weights, scales), None], site.window


def _depthwise_operands(chain: _Chain, site: _Site) -> _Operands:
    channels = site.x.shape[-1]
    scales = Quantisation(tuple(chain.scale() for _ in range(channels)), 0, 3)
    values = chain.generator.integers(-9, 9, channels).astype(np.int32)
    bias = chain.builder.constant(f"b{site.number}", values, scales)
    weights = chain.weights(1, 3, 3, channels)
    return [chain.builder.constant(f"w{site.number}", weights, scales), bias], site.window


def _dense_operands(chain: _Chain, site: _Site) -> _Operands:
    weights = chain.weights(site.outputs, site.x.shape[-1])
    scale = Quantisation(chain.scale())
    return [chain.builder.constant(f"w{site.number}", weights, scale), None], {
        "keep_num_dims": True
    }


def _second_tensor(chain: _Chain, site: _Site) -> _Operands:
    shape = site.x.shape
    alike = [one for one in chain.tensors if one.shape == shape]
    weights = chain.weights(shape[-1])
    scale = Quantisation(chain.scale())
    constant = chain.builder.constant(f"k{site.number}", weights, scale)
    return [chain.rng.choice([*alike, constant])], {}


def _pool_options(chain: _Chain, site: _Site) -> _Operands:
    width = chain.rng.choice((1, 2, 3))
    height = chain.rng.choice((1, 2))
    return [], {**site.window, "filter_width": width, "filter_height": height}


def _mean_operands(chain: _Chain, site: _Site) -> _Operands:
    axes = np.array(chain.rng.choice(([1], [1, 2], [3], [-1])), np.int32)
    keep = chain.rng.random() < 0.5
    return [chain.builder.constant(f"a{site.number}", axes)], {"keep_dims": keep}


def _reshape_operands(chain: _Chain, site: _Site) -> _Operands:
    shape = np.array(chain.rng.choice(([-1], [1, -1], site.x.shape[::-1])), np.int32)
    return [chain.builder.constant(f"s{site.number}", shape)], {}


def _concatenation_operands(chain: _Chain, site: _Site) -> _Operands:
    shape = site.x.shape
    other = chain.rng.choice([one for one in chain.tensors if one.shape == shape])
    return [other], {"axis": chain.rng.randrange(-len(shape), len(shape))}


def _transpose_operands(chain: _Chain, site: _Site) -> _Operands:
    rank = len(site.x.shape)
    order = np.array(chain.rng.sample(range(rank), rank), np.int32)
    return [chain.builder.constant(f"p{site.number}", order)], {}


def _pad_operands(chain: _Chain, site: _Site) -> _Operands:
    pads = [[chain.rng.choice((0, 0, 1)) for _ in range(2)] for _ in site.x.shape]
    return [chain.builder.constant(f"p{site.number}", np.array(pads, np.int32))], {}


def _resize_operands(chain: _Chain, site: _Site) -> _Operands:
    size = np.array([chain.rng.randint(1, 12), chain.rng.randint(1, 12)], np.int32)
    return [chain.builder.constant(f"z{site.number}", size)], {}


_OPERATORS = (
    "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "SUB", "MAX_POOL_2D",
    "AVERAGE_POOL_2D",
    "LOGISTIC", "TANH", "SOFTMAX", "RELU", "RELU6", "MEAN", "RESHAPE", "CONCATENATION",
    "TRANSPOSE", "PAD",
    "MAXIMUM", "HARD_SWISH", "LOG_SOFTMAX", "ABS", "NEG", "LEAKY_RELU", "SQUEEZE",
    "RESIZE_NEAREST_NEIGHBOR",
)  # fmt: skip
_OPERANDS: dict[str, Callable[[_Chain, _Site], _Operands]] = {
    "CONV_2D": _conv_operands,
    "DEPTHWISE_CONV_2D": _depthwise_operands,
    "FULLY_CONNECTED": _dense_operands,
    **dict.fromkeys(("ADD", "MUL", "SUB", "MAXIMUM"), _second_tensor),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pool_options),
    "MEAN": _mean_operands,
    "RESHAPE": _reshape_operands,
    "CONCATENATION": _concatenation_operands,
    "TRANSPOSE": _transpose_operands,
    "PAD": _pad_operands,
    "RESIZE_NEAREST_NEIGHBOR": _resize_operands,
}
_SAME_SCALE = ("RESHAPE", "TRANSPOSE", "PAD", "MAX_POOL_2D", "CONCATENATION", "SQUEEZE", "RELU")
"""Operators whose results have the quantisation of their input."""
_OWN_SCALES = {
    "LOGISTIC": Quantisation(1 / 256, -128),
    "SOFTMAX": Quantisation(1 / 256, -128),
    "TANH": Quantisation(1 / 128, 0),
    "LOG_SOFTMAX": Quantisation(16 / 256, 127),
}
"""Quantisation that TensorFlow Lite prescribes for the results of an operator."""


def _choose_quantisation(chain: _Chain, kind: str, x: Tensor, drawn: Quantisation) -> Quantisation:
    """Return the quantisation of the results that fits the operator, or now and then ``drawn``."""
    if kind in _SAME_SCALE and not chain.is_odd():
        return x.quantisation or drawn
    if kind in _OWN_SCALES and not chain.is_odd():
        return _OWN_SCALES[kind]
    return drawn


def tflite_model(folder: Path, rng: random.Random) -> None:
    """Write ``drawn.tflite``: a chain of up to six operators that LiteRT prepares."""
    chain = _Chain(rng)
    for number in range(rng.choice((1, 2, 3, 6))):
        chain.add(number)
    tensors = chain.tensors
    outputs = [one for one in tensors[1:-1] if rng.random() < 0.3]
    (folder / "drawn.tflite").write_bytes(chain.builder.model(*outputs, tensors[-1]))
