"""Matrix products with constant weights: Gemm and MatMul."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operations import MatMulOperation, Operand, Operation, Requantise
from byoc.patterns import tensors, weights
from byoc.patterns.base import Pattern
from byoc.patterns.convolution import input_zero_point
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


def parse(graph: Graph, node: Node) -> MatMulRecord:
    """The record of a product that meets every requirement; leading dimensions are folded into M."""
    source, matrix, result = (graph.values[name] for name in (*node.inputs[:2], node.outputs[0]))
    assert matrix.constant is not None
    data = tensors.stored(matrix.constant).reshape(matrix.shape[0], -1)
    bias = graph.values[node.inputs[2]].constant if len(node.inputs) > 2 else None
    sums = data.sum(axis=0, dtype=np.int64)
    flat = None if bias is None else np.broadcast_to(bias.reshape(-1), sums.shape)
    return MatMulRecord(
        node=node,
        source=source.name,
        result=result.name,
        rows=math.prod(source.shape[:-1]),
        weights=data,
        bias=tensors.fold_zero_point(flat, sums, input_zero_point(graph, node)),
        requantise=None
        if result.dtype == "int32"
        else tensors.requantisation(node, source, matrix, result, matrix.shape[1]),
    )


def operations(record: MatMulRecord, target: Target) -> tuple[Operation, ...]:
    """One matrix product."""
    depth, columns = record.weights.shape
    dtype = "int32" if record.requantise is None else "int8"
    return (
        MatMulOperation(
            name=record.node.name,
            kind="MATMUL",
            inputs=(Operand(record.source, (record.rows, depth)),),
            output=Operand(record.result, (record.rows, columns), 0, "int32" if dtype == "int32" else "int8"),
            onnx_nodes=record.node.onnx_nodes,
            weights=record.weights,
            bias=record.bias.astype(np.int32),
            requantise=record.requantise,
        ),
    )


def one_matrix(graph: Graph, node: Node) -> str | None:
    """the weights are one matrix"""
    shape = graph.values[node.inputs[1]].shape
    return None if len(shape) == 2 else f"the weights have shape {shape}"


def plain_gemm(graph: Graph, node: Node) -> str | None:
    """only Gemm with transA = 0 and alpha = beta = 1 runs on the accelerator"""
    has_bias = len(node.inputs) > 2
    for key, wanted in (("transA", 0), ("alpha", 1.0), ("beta", 1.0)):
        actual = node.attributes.get(key, wanted)
        if actual != wanted and (key != "beta" or has_bias):
            return f"{key} is {actual:g}"
    return None


def accumulators_fit(record: MatMulRecord, target: Target) -> str | None:
    """accumulators are int32: |bias| + 128 · Σ|weights| of every output column is at most 2147483647"""
    bound = tensors.largest_accumulator(record.weights.T, record.bias)
    return f"an accumulator could reach {bound}" if bound >= tensors.ACCUMULATOR_LIMIT else None


def fits_fields(record: MatMulRecord, target: Target) -> str | None:
    """rows, depth and columns fit the instruction's fields"""
    return tensors.too_large(((record.rows, *record.weights.shape[:1]), record.weights.shape), target)


PATTERN: Pattern[MatMulRecord] = Pattern(
    name="matmul",
    op_types=("MatMul",),
    requirements=(
        tensors.variable_input,
        weights.constant_weights,
        one_matrix,
        plain_gemm,
        tensors.eight_bit_input,
        tensors.eight_bit_output,
        tensors.per_tensor,
        tensors.usable_scales,
        tensors.not_empty,
        weights.eight_bit_weights,
        weights.symmetric_weights,
        weights.weights_per_output_channel,
        weights.integer_bias,
        weights.bias_in_accumulator_scale,
    ),
    parse=parse,
    constraints=(accumulators_fit, fits_fields),
    operations=operations,
)
