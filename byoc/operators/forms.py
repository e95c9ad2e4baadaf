"""ONNX forms: in which operators a family appears in models, and which of their inputs play which role.

Sources: the ONNX operator documentation and ONNX Runtime's contrib operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from byoc.operators.onnx_view import OnnxNode, OnnxView

Kind = Callable[[Any], bool]
"""Whether an attribute of a canonical node is what it should be: anybody may have written it."""
Kinds = Mapping[str, Kind]


def numeric(found: Any) -> bool:
    """A number, infinite or none perhaps."""
    return isinstance(found, (int, float))


def flag(found: Any) -> bool:
    """0 or 1, False or True."""
    return found in (0, 1)


def integer(least: int) -> Kind:
    """An integer, ``least`` or more."""
    return lambda found: type(found) is int and found >= least


def several(kind: Kind, count: int | None = None) -> Kind:
    """A tuple of so many of a kind, any number of them by default."""
    return lambda found: isinstance(found, tuple) and count in (None, len(found)) and all(map(kind, found))


@dataclass(frozen=True)
class QLinear:
    """An operator on integers that carries its quantisations as inputs.

    ``operands`` are (tensor, scale, zero point) input positions, ``result`` (scale, zero point) of the result,
    ``bias`` that of an int32 bias. ``repeats``: the last triple is repeated until the inputs end.
    """

    onnx: str
    operands: tuple[tuple[int, int, int], ...]
    result: tuple[int, int]
    bias: int | None = None
    repeats: bool = False

    def triples(self, inputs: int) -> tuple[tuple[int, int, int], ...]:
        """(tensor, scale, zero point) input positions of every operand of a node with so many inputs."""
        if not self.repeats:
            return self.operands
        *first, last = self.operands
        return (*first, *((last[0] + s, last[1] + s, last[2] + s) for s in range(0, inputs - last[0], 3)))


@dataclass(frozen=True)
class IntegerProduct:
    """A product of bare integers with an int32 result; ``zero_points`` are the optional inputs of both operands."""

    onnx: str
    zero_points: tuple[int, int] = (2, 3)


@dataclass(frozen=True)
class Closes:
    """ONNX operators of which a whole subgraph, computed from one tensor and constants, can be one node.

    ``channel_seconds``: those whose second operand may be one number a channel; ``channel_floats``: those of which any
    operand may be one float number a channel that nobody has quantised; ``vectors``: those of which all operands but
    the first are vectors of one number a channel; ``functions``: those of the real numbers of their first operand, and
    parameters; ``arithmetic``: those of real operands that spread over each other.
    """

    operators: frozenset[str] = frozenset()
    channel_seconds: frozenset[str] = frozenset()
    channel_floats: frozenset[str] = frozenset()
    vectors: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    arithmetic: frozenset[str] = frozenset()

    @property
    def elementwise(self) -> frozenset[str]:
        """Operators that compute each element of a tensor alike, of elements in its place."""
        return self.functions | self.arithmetic

    def __or__(self, other: Closes) -> Closes:
        return Closes(*(getattr(self, each.name) | getattr(other, each.name) for each in fields(Closes)))


Carried = Literal["", "integers", "reals"]


@dataclass(frozen=True)
class Form:
    """One float ONNX operator that the family computes between DequantizeLinear and QuantizeLinear.

    ``canonical`` is the type of the node in the graph, that of the ONNX operator by default. The first ``operands``
    inputs are tensors of data (None: all), the rest parameters; those at ``parameters`` are constant real numbers and
    operands as such, which the quantiser leaves alone. ``attributes`` are those that a canonical node must
    have. The first ``flags`` operands are flags, which have no quantisation, as the result has none where it
    is ``bare``. ``alone``: the canonical type where there is one operand only. ``activation``: a Relu or Clip between
    the operator and its QuantizeLinear is absorbed. ``plain``: it works on bare integers as well. ``integer``: integer
    operators of the same meaning. ``traced``: it copies elements, which ones is found by running it. ``weights``: it
    multiplies; constants at its second operand have a scale for each of the ``filters`` along their first axis, or of
    the ``columns``, and a constant third one is a bias in the scale of the products. ``transposed``: the attribute that
    says that its second operand is the transpose of what the canonical node wants. ``carried``: what ONNX Runtime
    moves between DequantizeLinear and QuantizeLinear; of ``reals`` come the same numbers as of integers.

    For the quantiser: ``quantise``, whether it is asked to quantise the operator at all; ``passive``: the operator
    is not worth quantising for itself, and stays in float among float operators; ``ranges``: its result has a range
    of its own, or that of its first operand, or one with all its operands; ``clamps``: at which ends the result's
    range is the operator's own limit; ``range_ratio``: how many times its operand's range may be as wide as its
    result's (0: any); ``limits``: its result has that range whatever is observed.
    """

    onnx: str
    operands: int | None = 1
    canonical: str = ""
    parameters: tuple[int, ...] = ()
    attributes: tuple[str, ...] = ()
    flags: int = 0
    bare: bool = False
    alone: str = ""
    activation: bool = False
    plain: bool = False
    integer: tuple[QLinear | IntegerProduct, ...] = ()
    quantise: bool = True
    passive: bool = False
    ranges: Literal["own", "first", "all"] = "own"
    clamps: tuple[Literal["low", "high"], ...] = ()
    range_ratio: int = 0
    limits: tuple[float, float] | None = None
    traced: bool = False
    weights: Literal["", "filters", "columns"] = ""
    transposed: str = ""
    carried: Carried = ""

    @property
    def op_type(self) -> str:
        return self.canonical or self.onnx

    def channel_axis(self, node: OnnxNode, rank: int) -> int | None:
        """The axis of a second operand of this rank along which its scales run; None where it has one scale only.

        Columns of weights are rows where they are transposed; stacks of matrices have one scale.
        """
        if self.weights == "filters":
            return 0
        if self.weights == "columns":
            return None if rank != 2 else 1 - int(bool(node.attributes.get(self.transposed, 0)))
        return rank - 1


@dataclass(frozen=True, eq=False)
class Positions:
    """Where each element of a result comes from: positions in the flat operand, or -1, which stands for ``fill``.

    ``index`` is int64 and has the result's shape; ``fill`` is a real number, or the integer itself of bare integers.
    """

    index: NDArray[np.int64]
    fill: float | None


@dataclass(frozen=True, eq=False)
class Written:
    """An operator as a model writes it: its ``form``, and the tensors that are its data, not parameters, by name.

    ``positions`` of a form that is traced; text, why they are not known.
    """

    view: OnnxView
    node: OnnxNode
    form: Form
    operands: tuple[str, ...]
    result: str
    positions: Positions | str | None = None

    def operand_shape(self, index: int = 0) -> tuple[int, ...]:
        return self.view.shape(self.operands[index])

    @property
    def op_type(self) -> str:
        """Type of the canonical node: what copies elements is movement, whatever else the form may mean."""
        if isinstance(self.positions, Positions):
            return self.form.onnx
        return self.form.alone if self.form.alone and len(self.operands) == 1 else self.form.op_type

    @property
    def macs(self) -> int:
        """Multiply-accumulates, padded taps included: of the elements of the result, each of as many as it reads."""
        if not self.form.weights:
            return 0
        if self.form.weights == "filters":
            return prod(self.result_shape) * prod(self.operand_shape(1)[1:])
        left = self.operand_shape()
        return prod(self.result_shape) * (left[0] if self.node.attributes.get("transA") else left[-1])

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self.view.shape(self.result)


_PLAIN = (str, int, float, tuple)
Limits = tuple[float, float]
"""The smallest and the largest number of a float tensor."""


class Reading:
    """How models write a family: its ``forms``, and what it says of a node that is written in one of them.

    ``closes``: ONNX operators of which a whole subgraph can be one node of the family.
    """

    forms: ClassVar[tuple[Form, ...]] = ()
    closes: ClassVar[Closes] = Closes()

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Attributes of the canonical node: Python numbers, text and tuples only, nothing that depends on the opset.

        As written in the model, unless the family says otherwise. Text: why they cannot be read, as where shapes are of
        another rank than they have.
        """
        return {key: found for key, found in written.node.attributes.items() if isinstance(found, _PLAIN)}

    @classmethod
    def stays_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Whether the quantiser must leave a float ``node`` alone."""
        return False

    @classmethod
    def useful(cls, node: OnnxNode, position: int, ranges: Sequence[Limits | None], result: Limits) -> Limits | None:
        """Beyond which numbers an operand makes no difference to a result that is cut to ``result``; None: no such.

        So numbers that stand for infinity, and infinity itself, leave room for others, and have a scale. ``ranges``: of
        all operands, None where that is not known.
        """
        return None
