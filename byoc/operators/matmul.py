"""Matrix products with constant weights: Gemm and MatMul."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain, products
from byoc.operators.forms import Form, IntegerProduct, QLinear, Written
from byoc.operators.nest import Nest, Tile
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import ChannelConstants, Constraint, Geometry, Operand, Operator, Registers, Requirement
from byoc.operators.products import Product
from byoc.operators.requantisation import Requantise, requantisation
from byoc.operators.rules import Finding, finding, rule
from byoc.target import Target


@dataclass(frozen=True, eq=False)
class MatMulRecord:
    """One (M, K) × (K, N) product in the int8 domain; ``bias`` is int64 (N,) with the zero point folded in."""

    node: Node
    source: str
    result: str
    rows: int
    weights: NDArray[np.int8]
    bias: NDArray[np.int64]
    requantise: Requantise | None


@rule("the weights are one matrix")
def one_matrix(graph: Graph, node: Node) -> Finding | None:
    """The weights have two dimensions."""
    shape = graph.values[node.inputs[1]].shape
    return None if len(shape) == 2 else finding("the weights have shape {shape}", shape=shape)


@rule("only Gemm with transA = 0 and alpha = beta = 1 runs on the accelerator")
def plain_gemm(graph: Graph, node: Node) -> Finding | None:
    """Nothing is transposed or scaled at run time."""
    has_bias = len(node.inputs) > 2
    for key, wanted in (("transA", 0), ("alpha", 1.0), ("beta", 1.0)):
        actual = node.attributes.get(key, wanted)
        if actual != wanted and (key != "beta" or has_bias):
            return finding("{key} is {actual:g}", key=key, actual=actual)
    return None


@rule("accumulators are int32: |bias| + 128 · Σ|weights| of every output column is at most 2147483647")
def accumulators_fit(record: MatMulRecord, target: Target) -> Finding | None:
    """No accumulator overflows."""
    return products.overflow(record.weights.T, record.bias)


@rule(domain.FIXED)
def scales_in_int32(record: MatMulRecord, target: Target) -> Finding | None:
    """No accumulator overflows on its way to int8."""
    return products.leaves_int32(record.weights.T, record.bias, record.requantise, target)


@rule("rows, depth and columns fit the instruction's fields")
def fits_fields(record: MatMulRecord, target: Target) -> Finding | None:
    """Every size fits its register."""
    return domain.too_large(((record.rows, *record.weights.shape[:1]), record.weights.shape), target)


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMul(Product):
    """Matrix product (M, K) × (K, N) with constant int8 ``weights`` (K, N) and int32 ``bias`` (N,)."""

    family: ClassVar[str] = "matmul"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "MatMul",
            operands=2,
            activation=True,
            integer=(
                QLinear("QLinearMatMul", ((0, 1, 2), (3, 4, 5)), (6, 7)),
                IntegerProduct("MatMulInteger"),
            ),
        ),
        Form(
            "Gemm",
            canonical="MatMul",
            operands=3,
            activation=True,
            integer=(QLinear("QGemm", ((0, 1, 2), (3, 4, 5)), (7, 8), bias=6),),
        ),
    )
    requirements: ClassVar[tuple[Requirement, ...]] = (
        domain.variable_input,
        products.constant_weights,
        one_matrix,
        plain_gemm,
        products.eight_bit_input,
        domain.eight_bit_output,
        products.per_tensor,
        domain.usable_scales,
        domain.not_empty,
        *products.WEIGHTS,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (accumulators_fit, scales_in_int32, fits_fields)

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """The factors of a Gemm, and whether it transposes its data."""
        if written.form.onnx != "Gemm":
            return {}
        source = written.node.attributes
        return {
            "alpha": float(source.get("alpha", 1.0)),
            "beta": float(source.get("beta", 1.0)),
            "transA": int(source.get("transA", 0)),
        }

    @classmethod
    def channel_axis(cls, node: OnnxNode, rank: int) -> int:
        """Columns of the weights, rows where they are transposed."""
        return 0 if cls.transposes(node) else rank - 1

    @classmethod
    def transposes(cls, node: OnnxNode) -> bool:
        """A Gemm may hold its weights transposed."""
        return bool(node.attributes.get("transB", 0))

    @classmethod
    def stays_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Products of two computed values, and those that add a matrix of several rows, which is no bias."""
        if super().stays_float(node, constants):
            return True
        bias = constants[node.input(2)] if node.input(2) else None
        return bias is not None and bias.ndim > 1 and bias.shape[0] > 1

    @classmethod
    def macs(cls, written: Written) -> int:
        """M·K·N."""
        left = written.operand_shape()
        depth = left[0] if written.node.attributes.get("transA") else left[-1]
        return math.prod(written.result_shape) * depth

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Zero points, and a matrix that fits input and output."""
        other = super().misfit(graph, node)
        if other is not None:
            return other
        source, result = graph.values[node.inputs[0]].shape, graph.values[node.outputs[0]].shape
        matrix = graph.values[node.inputs[1]].shape
        multiply = source[-1:] == matrix[:1] and (*source[:-1], *matrix[1:]) == result
        if len(matrix) != 2 or multiply or node.attributes.get("transA"):
            return None
        return f"the weights of '{node.name}' have shape {matrix} for input {source} and output {result}"

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> MatMulRecord:
        """The record of a product that meets every requirement; leading dimensions are folded into M."""
        source, matrix, result = (graph.values[name] for name in (*node.inputs[:2], node.outputs[0]))
        assert matrix.constant is not None
        data = domain.stored(matrix.constant).reshape(matrix.shape[0], -1)
        bias = graph.values[node.inputs[2]].constant if len(node.inputs) > 2 else None
        sums = data.sum(axis=0, dtype=np.int64)
        flat = None if bias is None else np.broadcast_to(bias.reshape(-1), sums.shape)
        return MatMulRecord(
            node=node,
            source=source.name,
            result=result.name,
            rows=math.prod(source.shape[:-1]),
            weights=data,
            bias=products.fold_zero_point(flat, sums, products.input_zero_point(graph, node)),
            requantise=None
            if result.dtype == "int32"
            else requantisation(node, source, matrix, result, matrix.shape[1]),
        )

    @classmethod
    def operations(cls, record: MatMulRecord, target: Target) -> tuple[Operator, ...]:
        """One matrix product."""
        depth, columns = record.weights.shape
        return (
            cls(
                name=record.node.name,
                kind="MATMUL",
                inputs=(Operand(record.source, (record.rows, depth)),),
                output=Operand(
                    record.result, (record.rows, columns), 0, "int32" if record.requantise is None else "int8"
                ),
                onnx_nodes=record.node.onnx_nodes,
                weights=record.weights,
                bias=record.bias.astype(np.int32),
                requantise=record.requantise,
            ),
        )

    @property
    def mnemonic(self) -> str:
        """The one instruction."""
        return "OP_MAT_MUL"

    def nest(self) -> Nest:
        """Rows of a matrix whose channels are its columns."""
        rows, depth = self.inputs[0].shape
        return Nest(self.output.shape[1], rows, 1, depth, rows, 1, matrix=True)

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Rows, depth and columns."""
        return {
            "EX_ROWS": tile.output.rows.size,
            "EX_INPUT_CHANNELS": tile.input.channels.size,
            "EX_OUTPUT_CHANNELS": tile.output.channels.size,
        }

    def constants(self) -> ChannelConstants:
        """Columns, in memory row by row (K, columns of the tile)."""
        return ChannelConstants(self.bias, self.channel_scales, self.weights.T, by_row=True)
