"""Quantise with scales that are powers of two and zero points of 0, as machines that shift need."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from byoc.operators.onnx_view import ADD, CONCAT, SUBTRACT
from byoc.quantisation.quantize import BIAS, BoundaryWriter, Scale, Scaling, TensorParameters
from isa.errors import InputError, suggest_name
from isa.numerics import steps
from isa.numerics.requantising import INT8_HIGH

_JOINED = frozenset({ADD, SUBTRACT, CONCAT})
"""Operators whose operands and results share a scale."""
BIAS_STEP = 128
"""Step of a bias, in products of an activation and a weight of 1."""
NO_BITS: Mapping[str, int] = MappingProxyType({})
WIDTHS = 1, 2, 4, 8
"""Bits that a weight can have."""
MAX_NAMES = 8
"""Number of node names in an error."""
_FINER = 4
"""Number of halvings of the largest weight scale that the writer tries for narrow weights."""


class PowerOfTwoWriter(BoundaryWriter):
    """Writer of a quantised model whose scales are powers of two, one for each tensor.

    Zero points are 0, so Relu and Clip stay. Operands and results of sums and concatenations share
    a scale. Biases are int8 multiples of :data:`BIAS_STEP` products. ``weight_bits`` has the bits
    of the weights by pattern of node names; the last pattern that matches a node counts.
    """

    def __init__(self, *given: Any, weight_bits: Mapping[str, int] = NO_BITS) -> None:
        super().__init__(*given)
        plan = self._plan
        bits = _assign_bits(
            {
                node.name: node.input[position]
                for node in self._given.graph.node
                for position in range(2)
                if plan.scalings.get((node.name, position), Scaling(symmetric=False)).symmetric
            },
            weight_bits,
        )
        self._tensors |= {
            name: _round_up(high)
            for name, high in self._join_highs().items()
            if name not in plan.given
        }
        plan.absorbed.clear()
        plan.scalings = dict.fromkeys(plan.scalings, Scaling())
        self._weights = {
            (name, Scaling()): _fit_scale(plan.constants[name], bits.get(name, 8))
            for name, _ in self._weights
        }

    def _join_highs(self) -> Mapping[str, float]:
        """Return the largest magnitude of every quantised tensor, equal where a scale is shared."""
        plan = self._plan
        highs = {name: float(max(map(abs, plan.ranges[name]))) for name in {*plan.roots.values()}}
        joined = []
        for node in self._given.graph.node:
            if node.op_type in _JOINED:
                names = map(plan.find_result, (*node.input, *node.output))
                joined.append({plan.roots[name] for name in names if name in plan.roots})
        before: dict[str, float] = {}
        while before != highs:
            before = dict(highs)
            for group in joined:
                highs |= dict.fromkeys(group, max((highs[name] for name in group), default=0.0))
        return highs

    def _leave_room(self, node: NodeProto) -> None:
        """Coarsen a weight scale until the bias is at most an int8 number of its steps."""
        if node.name in self._plan.biases and (node.name, 1) in self._plan.scalings:
            weights = self._parameters(node, 1, node.input[1])
            first = float(self._parameters(node, 0, node.input[0]).scale)
            largest = float(np.abs(self._plan.constants[node.input[BIAS]]).max(initial=0))
            least = _round_up(largest / (BIAS_STEP * first)).scale
            weights.scale = np.maximum(weights.scale, least) if largest else weights.scale

    def _round_bias(self, bias: NDArray[np.float32], scale: Scale) -> NDArray[np.int32]:
        rounded = steps(bias.astype(np.float64), BIAS_STEP * scale.astype(np.float64), 0, np.int8)
        return rounded.astype(np.int32) * BIAS_STEP


def _assign_bits(weights: Mapping[str, str], patterns: Mapping[str, int]) -> Mapping[str, int]:
    """Return the bits of each constant; ``weights`` has the constants by name of the node.

    Raises InputError for a pattern without a node, and for a width that is not supported.
    """
    found: dict[str, int] = {}
    for pattern, bits in patterns.items():
        names = [name for name in weights if name == pattern or fnmatchcase(name, pattern)]
        if bits not in WIDTHS:
            raise InputError(f"--weight-bits {pattern}={bits}: choose 1, 2, 4 or 8 bits")
        if not names:
            shown = ", ".join([*weights][:MAX_NAMES]) + ", ..." * (len(weights) > MAX_NAMES)
            raise InputError(
                f"--weight-bits {pattern}={bits}: no product with constant weights has this name; "
                f"{suggest_name(pattern, weights)}names are {shown}"
            )
        found |= dict.fromkeys((weights[name] for name in names), bits)
    return found


def _fit_scale(weights: NDArray[np.float32], bits: int) -> TensorParameters:
    """Return the scale of weights; below 8 bits, the scale with the least squared error."""
    found = _round_up(float(np.abs(weights).max(initial=0)))
    half = 1 << bits - 1

    def measure_error(scale: NDArray[np.float32]) -> float:
        rounded = np.clip(np.rint(weights / scale), -half, half - 1)
        return float(np.square(rounded * scale - weights).sum())

    if bits < WIDTHS[-1]:
        coarsest = found.scale * (1 << WIDTHS[-1] - bits)
        found.scale = min((coarsest / 2**step for step in range(_FINER)), key=measure_error)
        found.bits = bits
    return found


def _round_up(high: float) -> TensorParameters:
    """Return the smallest power of two with which int8 reaches ``high``; 1 for 0."""
    exponent = np.ceil(np.log2(high / INT8_HIGH)) if high else 0.0
    return TensorParameters(np.asarray(np.exp2(exponent), np.float32), np.asarray(0, np.int8))
