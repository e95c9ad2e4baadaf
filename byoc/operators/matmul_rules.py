"""Records of matrix products, and the rules that decide whether one runs on the accelerator."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain, product_rules
from byoc.operators.products import RequantiseConstants
from byoc.operators.records import Operand
from byoc.operators.rules import Finding, finding, rule
from byoc.options import Target

DYNAMIC = "OP_DYN_MAT_MUL"
MOST_REMEMBERED = 1 << 23
"""Maximum elements of a constant operand that is cached for the next product."""
MOST_ROWS = 256
"""Maximum rows of a bias that differs by row; each row becomes a separate product."""


@dataclass(frozen=True, eq=False)
class Factor:
    """Constant operand of matrix products: matrices minus their zero points.

    ``stack`` contains the matrices, as int16 if a zero point is not 0. The sum of the int8
    ``parts`` of a matrix is the matrix.
    """

    stack: NDArray[np.int8] | NDArray[np.int16]
    parts: tuple[tuple[NDArray[np.int8], ...], ...]


@dataclass(frozen=True, eq=False)
class MatMulRecord:
    """Data of a node of matrix products (M, K) × (K, N) in the int8 domain.

    There is one product for each pair of operand matrices in ``matrices``. ``sizes`` is (M, K, N).
    ``left`` and ``right`` are constant operands, else None. ``bias`` is int64 (1, N) or (M, N),
    before zero-point correction. ``zero_points`` are those of both operands, 0 for a constant one.
    ``requantise`` has one scale per column, or per row if ``left`` is constant; None gives int32
    results.
    """

    node: Node
    sources: tuple[str, str]
    result: str
    sizes: tuple[int, int, int]
    matrices: tuple[tuple[int, int], ...]
    left: Factor | None
    right: Factor | None
    bias: NDArray[np.int64]
    zero_points: tuple[int, int]
    requantise: RequantiseConstants | None

    def output(self, number: int, rows: int = 0, first: int = 0) -> Operand:
        """Return the operand for some rows of the result of matrix product ``number``.

        The operand has ``rows`` rows (0: all) from row ``first``.
        """
        m, _, n = self.sizes
        return Operand(
            self.result,
            (rows or m, n),
            (number * m + first) * n,
            "int32" if self.requantise is None else "int8",
        )


@rule("one of the operands is computed at run time")
def one_computed(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if both operands of a matrix product are constant, or None."""
    first, second = (graph.values[name] for name in node.inputs[:2])
    if first.constant is None or second.constant is None:
        return None
    return finding("'{first}' and '{second}' are constant", first=first.name, second=second.name)


@rule("transA is 0 and alpha is positive; with a bias beta is 1, and with a float bias alpha is 1")
def plain_gemm(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if transA, alpha or beta of a Gemm is not supported, or None."""
    has_bias = len(node.inputs) > 2
    if not 0 < node.attributes.get("alpha", 1.0) < math.inf:
        return finding("alpha is {actual:g}", actual=node.attributes["alpha"])
    for key, wanted in (("transA", 0), ("beta", 1.0), ("alpha", 1.0)):
        actual = node.attributes.get(key, wanted)
        exempt = key == "beta" and not has_bias
        exempt |= key == "alpha" and (not has_bias or bool(node.attributes.get("scaled_bias")))
        if actual != wanted and not exempt:
            return finding("{key} is {actual:g}", key=key, actual=actual)
    return None


@rule("a constant operand has one scale; a constant second operand may have one scale per column")
def scales_of_columns(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a matrix operand has several scales, or None.

    A constant second operand that is one matrix may have one scale per column.
    """
    for number, name in enumerate(node.inputs[:2]):
        value = graph.values[name]
        found = value.quantization
        if found is None or found.per_tensor:
            continue
        last = len(value.shape) - 1
        if (
            number == 0
            or value.constant is None
            or found.axis != last
            or value.elements != math.prod(value.shape[-2:])
        ):
            return finding(
                "'{name}' has several scales along axis {axis}", name=name, axis=found.axis
            )
    return None


@rule("the bias is a constant int32 tensor that fits the result, and the weights are constant")
def bias_of_columns(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if channel records cannot express a product's bias, or None."""
    if len(node.inputs) < 3:
        return None
    bias = graph.values[node.inputs[2]]
    result = graph.values[node.outputs[0]].shape
    if bias.constant is None:
        return finding("bias '{name}' is computed at run time", name=bias.name)
    if bias.dtype != "int32":
        return finding("bias '{name}' has element type {type}", name=bias.name, type=bias.dtype)
    if graph.values[node.inputs[1]].constant is None:
        return finding("bias '{name}' is added to a product of computed weights", name=bias.name)
    fits = len(bias.shape) <= 2 and np.broadcast_shapes(bias.shape, (1, 1)) in _broadcast_to(result)
    several = len(bias.shape) == 2 and bias.shape[0] > 1
    if not fits or (several and (len(result) != 2 or bias.shape[0] > MOST_ROWS)):
        return finding(
            "bias '{name}' has shape {shape} for a result {result}",
            name=bias.name,
            shape=bias.shape,
            result=result,
        )
    return None


def _broadcast_to(shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return the shapes of all matrices that broadcast to a matrix of ``shape``."""
    rows = math.prod(shape[:-1])
    columns = shape[-1] if shape else 1
    return {(first, last) for first in (1, rows) for last in (1, columns)}


@rule(f"products of two computed operands run on {DYNAMIC}: use --isa v4")
def dynamic_available(record: MatMulRecord, target: Target) -> Finding | None:
    """Return a finding if the ISA lacks the product of two computed operands, or None."""
    if record.left is not None or record.right is not None or DYNAMIC in target.instructions:
        return None
    return finding("{mnemonic} is not in ISA {isa}", mnemonic=DYNAMIC, isa=target.isa)


@rule(
    "accumulators fit int32: the largest sum (with constant weights |bias| + 128 · Σ|weights|) is "
    "at most 2147483647"
)
def accumulators_fit(record: MatMulRecord, target: Target) -> Finding | None:
    """Return a finding if an accumulator of a matrix product can overflow int32, or None."""
    return product_rules.too_wide(compute_largest_sum(record))


@rule(domain.FIXED)
def scales_in_int32(record: MatMulRecord, target: Target) -> Finding | None:
    """Return a finding if requantising an accumulator overflows int32, or None."""
    if record.requantise is None:
        return None
    if record.left is None and record.right is None:
        return domain.check_int32(
            compute_largest_sum(record), float(record.requantise.scales.exact[0]), target
        )
    found = (
        product_rules.check_accumulator(*channels, record.requantise, target)
        for channels in list_channel_factors(record)
    )
    return next((one for one in found if one is not None), None)


def compute_largest_sum(record: MatMulRecord) -> int:
    if record.left is None and record.right is None:
        first, second = (128 + abs(zero_point) for zero_point in record.zero_points)
        return record.sizes[1] * first * second
    return max(product_rules.largest(*channels) for channels in list_channel_factors(record))


def list_channel_factors(
    record: MatMulRecord,
) -> Iterator[tuple[NDArray[np.integer], NDArray[np.int64]]]:
    """Yield constant matrices as weights (channels, K) with the channels' corrected biases."""
    factor = record.right or record.left
    assert factor is not None
    stack = factor.stack if record.right is None else np.moveaxis(factor.stack, 1, 2)
    zero_point = record.zero_points[0 if record.right is not None else 1]
    for weights in stack:
        folded = -zero_point * weights.sum(axis=1, dtype=np.int64)
        for bias in record.bias if record.right is not None else (0,):
            yield weights, bias + folded


@rule("rows, depth and columns fit the instruction's fields")
def fits_fields(record: MatMulRecord, target: Target) -> Finding | None:
    """Return a finding if a size of a matrix product exceeds its register field, or None."""
    m, k, n = record.sizes
    plane = ((k, 1, n),) if record.left is not None else ()
    return domain.too_large(((m, k), (k, n), *plane), target)
