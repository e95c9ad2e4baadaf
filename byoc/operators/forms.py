"""ONNX forms: operators of a model that belong to a family, and the roles of their inputs.

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
"""Check of a canonical node's attribute, which may come from any source."""
Kinds = Mapping[str, Kind]


def numeric(found: Any) -> bool:
    """Return True for a number, including infinity and NaN."""
    return isinstance(found, (int, float))


def flag(found: Any) -> bool:
    """Return True for 0, 1, False or True."""
    return found in (0, 1)


def integer(least: int) -> Kind:
    """Return a check for an integer of at least ``least``."""
    return lambda found: type(found) is int and found >= least


def several(kind: Kind, count: int | None = None) -> Kind:
    """Return a check for a tuple of ``count`` elements of one kind.

    By default the tuple may have any number of elements.
    """
    return lambda found: (
        isinstance(found, tuple) and count in (None, len(found)) and all(map(kind, found))
    )


@dataclass(frozen=True)
class QLinear:
    """ONNX operator on integers that takes its scales and zero points as inputs.

    ``operands`` are input positions (tensor, scale, zero point), ``result`` the positions (scale,
    zero point) of the result, ``bias`` the position of an int32 bias. With ``repeats`` the last
    triple repeats until the inputs end.
    """

    onnx: str
    operands: tuple[tuple[int, int, int], ...]
    result: tuple[int, int]
    bias: int | None = None
    repeats: bool = False

    def triples(self, inputs: int) -> tuple[tuple[int, int, int], ...]:
        """Return positions (tensor, scale, zero point) of the inputs for every operand.

        The node has ``inputs`` inputs.
        """
        if not self.repeats:
            return self.operands
        *first, last = self.operands
        return (
            *first,
            *((last[0] + s, last[1] + s, last[2] + s) for s in range(0, inputs - last[0], 3)),
        )


@dataclass(frozen=True)
class IntegerProduct:
    """ONNX product of integers without scales, with an int32 result.

    ``zero_points`` are the positions of the optional inputs with the operands' zero points.
    """

    onnx: str
    zero_points: tuple[int, int] = (2, 3)


@dataclass(frozen=True)
class Closes:
    """ONNX operators of the subgraphs that can be merged into one node.

    The subgraph depends on one tensor and constants only.

    Attributes:
        operators: all mergeable operators.
        channel_seconds: operators whose second operand may have one number per channel.
        channel_floats: operators with an operand of one unquantised float number per channel.
        vectors: operators whose operands, except the first, are vectors with one number per
            channel.
        functions: functions of the real numbers of their first operand, with parameters.
        arithmetic: operators of real operands that broadcast.
    """

    operators: frozenset[str] = frozenset()
    channel_seconds: frozenset[str] = frozenset()
    channel_floats: frozenset[str] = frozenset()
    vectors: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    arithmetic: frozenset[str] = frozenset()

    @property
    def elementwise(self) -> frozenset[str]:
        """ONNX operators that apply the same function to every element of their operands."""
        return self.functions | self.arithmetic

    def __or__(self, other: Closes) -> Closes:
        return Closes(
            *(getattr(self, each.name) | getattr(other, each.name) for each in fields(Closes))
        )


Carried = Literal["", "integers", "reals"]


@dataclass(frozen=True)
class Form:
    """A float ONNX operator that the family computes between DequantizeLinear and QuantizeLinear.

    Attributes:
        onnx: type of the ONNX operator.
        operands: number of leading inputs that are data (None: all); the others are parameters.
        canonical: type of the node in the graph; by default that of the ONNX operator.
        parameters: positions of inputs that are constant real numbers; they are operands that the
            quantiser does not change.
        attributes: attributes that a canonical node must have.
        flags: number of leading operands that are flags, without quantisation.
        bare: the result has no quantisation.
        alone: canonical type if there is only one operand.
        activation: a Relu or Clip between the operator and its QuantizeLinear is fused.
        plain: the operator also works on bare integers.
        integer: integer operators with the same meaning.
        quantise: the quantiser quantises the operator.
        passive: the operator alone does not justify quantisation; among float operators it stays
            float.
        ranges: the result has its own range, that of the first operand, or one common range with
            all operands.
        clamps: ends at which the operator itself limits the result's range.
        range_ratio: maximum ratio of the operand's range to the result's (0: any).
        limits: fixed range of the result, regardless of calibration.
        traced: the operator copies elements; running it shows which ones.
        weights: the operator multiplies. A constant second operand has one scale for each of its
            ``filters`` (first axis) or ``columns``; a constant third operand is a bias in the scale
            of the products.
        transposed: attribute that says that the second operand is transposed relative to the
            canonical node.
        carried: elements that ONNX Runtime moves between DequantizeLinear and QuantizeLinear;
            ``reals`` give the same numbers as integers.
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
        """Return the axis of the second operand along which scales may differ, or None.

        The result is None if the operand has only one scale. Columns of transposed weights are
        rows; stacks of matrices have one scale. ``rank`` is that of the operand.
        """
        if self.weights == "filters":
            return 0
        if self.weights == "columns":
            return None if rank != 2 else 1 - int(bool(node.attributes.get(self.transposed, 0)))
        return rank - 1


@dataclass(frozen=True, eq=False)
class Positions:
    """Source position in the flat operand of each result element of a data movement.

    ``index`` is int64, has the result's shape, and is -1 for ``fill``; ``fill`` is a real number,
    or an integer for bare integers.
    """

    index: NDArray[np.int64]
    fill: float | None


@dataclass(frozen=True, eq=False)
class Written:
    """Node of an ONNX model that matches a :class:`Form`, with its data tensors.

    Parameters are not among these tensors. ``positions``, for a traced form, are the copied
    elements, or a text that says why they are unknown.
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
        """Operator type of the graph node that represents an ONNX operator.

        A node that copies elements is a movement even if its form has another type.
        """
        if isinstance(self.positions, Positions):
            return self.form.onnx
        return self.form.alone if self.form.alone and len(self.operands) == 1 else self.form.op_type

    @property
    def macs(self) -> int:
        """Multiply-accumulates, including padding: results times elements per result."""
        if not self.form.weights:
            return 0
        if self.form.weights == "filters":
            return prod(self.result_shape) * prod(self.operand_shape(1)[1:])
        left = self.operand_shape()
        return prod(self.result_shape) * (
            left[0] if self.node.attributes.get("transA") else left[-1]
        )

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self.view.shape(self.result)


_PLAIN = (str, int, float, tuple)
Limits = tuple[float, float]
"""Smallest and largest number of a float tensor."""


class Reading:
    """Rules for reading the nodes of an operator family from ONNX models.

    ``forms`` lists its forms; the methods interpret a node in one of them. ``closes`` lists ONNX
    operators whose subgraphs can be merged into one node of the family.
    """

    forms: ClassVar[tuple[Form, ...]] = ()
    closes: ClassVar[Closes] = Closes()

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return the attributes of the graph node of an ONNX operator, for any opset.

        Values are Python numbers, text and tuples. By default these are the attributes in the
        model. A text is the reason why they cannot be read, for example a shape of unexpected rank.
        """
        return {
            key: found
            for key, found in written.node.attributes.items()
            if isinstance(found, _PLAIN)
        }

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return True if the quantiser must leave a float ``node`` unchanged."""
        return False

    @classmethod
    def useful(
        cls, node: OnnxNode, position: int, ranges: Sequence[Limits | None], result: Limits
    ) -> Limits | None:
        """Return the range of operand values that can change a clamped result.

        The result is clamped to ``result``. None means no limits. The limits keep infinity, and
        large numbers that represent it, from consuming the operand's range, so the operand has a
        usable scale. ``ranges`` are those of all operands; None if unknown.
        """
        return None
