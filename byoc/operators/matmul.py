"""Matrix products: Gemm and MatMul.

The weights are constant, or both operands are computed at run time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Value
from byoc.operators import domain, product_rules, products
from byoc.operators.convolution import Convolution
from byoc.operators.forms import Form, IntegerProduct, Kinds, QLinear, Written, flag, numeric
from byoc.operators.geometry import Geometry
from byoc.operators.matmul_rules import (
    DYNAMIC,
    MOST_REMEMBERED,
    Factor,
    MatMulRecord,
    accumulators_fit,
    bias_of_columns,
    dynamic_available,
    fits_fields,
    one_computed,
    plain_gemm,
    scales_in_int32,
    scales_of_columns,
)
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Layouts, Operator
from byoc.operators.products import ProductOperator, requantisation
from byoc.operators.records import ChannelConstants, Loops, Operand, Registers, Settings, Traits
from byoc.operators.rules import Constraint, Finding, Requirement
from byoc.operators.sharding import Along, Sharding
from byoc.options import Target
from isa import numerics
from isa.arch import PACKED, Arch
from isa.layout import Layout
from isa.numerics import float32_bits
from isa.variants import VARIANTS

# Operator

TRANSPOSED = "transB"
"""Attribute of a Gemm that says that its weights are transposed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMul(ProductOperator):
    """Matrix product (M, K) × (K, N) of an activation and constant int8 weights.

    ``weights`` has shape (K, N), and the int32 ``bias`` has shape (N,). ``shared`` identifies
    constants that several products may have in common.
    """

    family: ClassVar[str] = "matmul"
    traits: ClassVar[Traits] = Traits(mnemonic="OP_MAT_MUL")
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "MatMul",
            operands=2,
            weights="columns",
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
            weights="columns",
            transposed=TRANSPOSED,
            activation=True,
            integer=(QLinear("QGemm", ((0, 1, 2), (3, 4, 5)), (7, 8), bias=6),),
        ),
    )
    requirements: ClassVar[tuple[Requirement, ...]] = (
        one_computed,
        plain_gemm,
        product_rules.eight_bit_operands,
        product_rules.known_zero_points,
        domain.eight_bit_output,
        product_rules.per_tensor,
        domain.usable_scales,
        domain.not_empty,
        scales_of_columns,
        bias_of_columns,
        product_rules.bias_in_accumulator_scale,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (
        dynamic_available,
        accumulators_fit,
        scales_in_int32,
        fits_fields,
    )

    kinds: ClassVar[Kinds] = {
        **dict.fromkeys(("alpha", "beta"), numeric),
        **dict.fromkeys(("transA", "transB", "scaled_bias", "pairwise"), flag),
    }

    shared: tuple[Hashable, ...] | None = None

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Divide a one-row matrix product among machines by columns, with their constants."""
        if along == "rows":
            return super().divide(graph, node, along)
        _, *constants = (graph.values[name] for name in node.inputs)
        shape = graph.values[node.outputs[0]].shape
        constant = 1 <= len(constants) <= 2 and all(
            value.constant is not None for value in constants
        )
        if not constant or len(constants[0].shape) != 2 or math.prod(shape[:-1]) != 1:
            return "it is no product of one row by a constant matrix"
        if any(value.shape[-1] != shape[-1] for value in constants):
            return "its constants are not by output channel"
        axes = (None, *(len(value.shape) - 1 for value in constants))
        return Sharding(len(shape) - 1, shape[-1], axes)

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any]:
        """Return the factors of a Gemm node and the flags of its transposed operands.

        The operands are the data and a computed second operand.
        """
        node = written.node
        if written.form.onnx != "Gemm":
            return {}
        found: dict[str, Any] = {
            "alpha": float(node.attributes.get("alpha", 1.0)),
            "beta": float(node.attributes.get("beta", 1.0)),
            "transA": int(bool(node.attributes.get("transA", 0))),
        }
        if node.attributes.get(TRANSPOSED, 0) and not written.view.is_constant(written.operands[1]):
            found["transB"] = 1
        if node.op_type != "Gemm":
            found["scaled_bias"] = 1
        return found

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return True for Gemm nodes that stay in float because of their bias.

        The bias is computed, has several rows, or belongs to computed weights.
        """
        weights, bias = (node.input(number) for number in (1, 2))
        if not bias:
            return False
        return (
            bias not in constants
            or weights not in constants
            or constants[bias].shape[:-1] not in ((), (1,))
        )

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if zero points, operand shapes or the result's shape do not match."""
        other = super().misfit(graph, node)
        if other is not None:
            return other
        left, right, result = (
            graph.values[name].shape for name in (*node.inputs[:2], node.outputs[0])
        )
        if (
            node.attributes.get("transA")
            or _result_shape(left, right, bool(node.attributes.get("transB"))) == result
        ):
            return None
        return f"'{node.name}' makes {result} of operands {left} and {right}"

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> MatMulRecord:
        """Return the data of a matrix product whose node meets every requirement.

        Leading dimensions are folded into M if the second operand is one matrix.
        """
        left, right, result = (graph.values[name] for name in (*node.inputs[:2], node.outputs[0]))
        first = left.shape if len(left.shape) > 1 else (1, *left.shape)
        second = right.shape
        second = second if len(second) > 1 else (*second, 1)
        if node.attributes.get("transB"):
            second = _transpose_shape(second)
        m = first[-2]
        k = first[-1]
        n = second[-1]
        matrices = _matrices(first[:-2], second[:-2])
        if math.prod(second[:-2]) == 1:
            m = math.prod(first[:-1])
            matrices = ((0, 0),)
        zero_points = [product_rules.zero_points(graph, node, number) for number in (0, 1)]
        data = [
            None if value.constant is None else _cache_factor(value, tuple(zeros.tolist()), shape)
            for value, zeros, shape in (
                (left, zero_points[0], (m, k)),
                (right, zero_points[1], (k, n)),
            )
        ]
        bias = graph.values[node.inputs[2]].constant if len(node.inputs) > 2 else None
        return MatMulRecord(
            node=node,
            sources=(left.name, right.name),
            result=result.name,
            sizes=(m, k, n),
            matrices=matrices,
            left=data[0],
            right=data[1],
            bias=_matrix(bias, n),
            zero_points=(
                int(zero_points[0][0]) if data[0] is None else 0,
                int(zero_points[1][0]) if data[1] is None else 0,
            ),
            requantise=None
            if result.dtype == "int32"
            else requantisation(
                node,
                left,
                right,
                result,
                n if data[0] is None else m,
                "dense" if any(data) and not node.attributes.get("pairwise") else "activations",
            ),
        )

    @classmethod
    def operations(cls, record: MatMulRecord, target: Target) -> tuple[Operator, ...]:
        """Return the operations of a node of matrix products, one for each product.

        A product takes several operations if its weights need several int8 parts or its rows have
        different biases.
        """
        if record.right is not None:
            return tuple(
                part
                for whole, parts in cls._constant(record)
                for part in products.split_weights(whole, parts, target)
            )
        if record.left is not None:
            return tuple(
                part
                for whole, parts in _filters(record)
                for part in products.split_weights(whole, parts, target)
            )
        m, k, n = record.sizes
        transposed = bool(record.node.attributes.get("transB"))
        return tuple(
            DynamicMatMul(
                name=record.node.name,
                kind="MATMUL",
                inputs=(
                    Operand(record.sources[0], (m, k), first * m * k),
                    Operand(record.sources[1], (n, k) if transposed else (k, n), second * k * n),
                ),
                output=record.output(number),
                onnx_nodes=record.node.onnx_nodes,
                transposed=transposed,
                zero_points=record.zero_points,
                requantise=record.requantise,
            )
            for number, (first, second) in enumerate(record.matrices)
        )

    @classmethod
    def _constant(
        cls, record: MatMulRecord
    ) -> Iterator[tuple[MatMul, tuple[NDArray[np.int8], ...]]]:
        """Yield the matrix products with constant weights, each with all parts of its weights.

        A product has the first part as its weights.
        """
        assert record.right is not None
        m, k, _ = record.sizes
        each = 1 if len(record.bias) > 1 else m
        how = record.requantise
        for number, (first, second) in enumerate(record.matrices):
            parts = record.right.parts[second]
            correction = record.zero_points[0] * record.right.stack[second].sum(
                axis=0, dtype=np.int64
            )
            scales = (
                None if how is None else (how.scales.rounded.tobytes(), how.scales.exact.tobytes())
            )
            same = record.zero_points[0], scales
            plain = len(parts) == len(record.bias) == 1
            for row in range(0, m, each):
                yield (
                    cls(
                        name=record.node.name,
                        kind="MATMUL",
                        inputs=(Operand(record.sources[0], (each, k), (first * m + row) * k),),
                        output=record.output(number, each, row),
                        onnx_nodes=record.node.onnx_nodes,
                        weights=parts[0],
                        bias=(record.bias[row if len(record.bias) > 1 else 0] - correction).astype(
                            np.int32
                        ),
                        requantise=how,
                        shared=(*record.node.inputs[1:], second, same) if plain else None,
                    ),
                    parts,
                )

    @property
    def loops(self) -> Loops:
        """Loops of a matrix product: over its rows, with its columns as channels."""
        rows, depth = self.inputs[0].shape
        return Loops(LoopNest(self.output.shape[1], rows, 1, depth, rows, 1, matrix=True))

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        return {
            "EX_ROWS": tile.output.rows.size,
            "EX_INPUT_CHANNELS": tile.input.channels.size,
            "EX_OUTPUT_CHANNELS": tile.output.channels.size,
        }

    def on_channels(self) -> Operator:
        """Return a matrix product as a 1 × 1 convolution of K channels at M positions.

        Its bands of positions are not contiguous. A family with its own instruction returns itself.
        """
        if self.mnemonic != MatMul.traits.mnemonic:
            return self
        (source,) = self.inputs
        result = self.output
        return _MatrixConvolution(
            name=self.name,
            kind=self.kind,
            onnx_nodes=self.onnx_nodes,
            tables=self.tables,
            inputs=(replace(source, shape=(source.shape[1], source.shape[0], 1)),),
            output=replace(result, shape=(result.shape[1], result.shape[0], 1)),
            weights=self.weights.T[:, :, np.newaxis, np.newaxis],
            bias=self.bias,
            requantise=self.requantise,
            input_zero_point=0,
            shared=self.shared,
            product=self,
        )

    def constants(self) -> ChannelConstants:
        """Return the biases, scales and transposed weights of a matrix product.

        Memory contains the weights row by row (K, columns of the tile).
        """
        return ChannelConstants(
            self.bias, self.channel_scales, self.weights.T, by_row=True, shared=self.shared
        )


_MAX_TAPS = VARIANTS[PACKED].register_file.by_name["EX_KERNEL_WIDTH"].maximum


@dataclass(frozen=True, eq=False, kw_only=True)
class _MatrixConvolution(Convolution):
    """Matrix product in banked memory that is computed as a convolution.

    ``product`` defines its requantisation.
    """

    product: MatMul

    def settings(self, arch: Arch) -> Settings:
        """Return the settings of a convolution with the requantisation of the product."""
        registers, fields = super().settings(arch)
        own = replace(self.product, requantise=self.requantise).settings(arch)
        return Settings({**registers, **own.registers}, {**fields, **own.fields})


def to_plane(operation: Operator, layout: Layout) -> Operator:
    """Convert a product of one row of flattened channels to a convolution of all positions.

    Other operations are returned unchanged.
    """
    (source, *_) = operation.inputs
    shape = (layout.channels, 1, layout.positions)
    if not isinstance(operation, _MatrixConvolution) or layout.positions > _MAX_TAPS:
        return operation
    if source.shape[1:] != (1, 1) or source.elements != layout.elements:
        return operation
    return replace(
        operation,
        inputs=(replace(source, shape=shape, assigned=layout),),
        weights=operation.weights.reshape(len(operation.weights), *shape),
        shared=None if operation.shared is None else (operation.shared, layout.positions),
    )


def _result_shape(
    left: tuple[int, ...], right: tuple[int, ...], transposed: bool
) -> tuple[int, ...] | None:
    """Return the shape of a product by NumPy's rules; None if the operands do not match."""
    right = _transpose_shape(right) if transposed else right
    if not left or not right or left[-1] != (right[-2] if len(right) > 1 else right[0]):
        return None
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        return None
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def _transpose_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of matrices with their last two dimensions, or their only one, exchanged."""
    return (*shape[:-2], *shape[-2:][::-1])


def _matrices(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the operand matrices of each product of a stack, as pairs of numbers.

    Leading dimensions broadcast.
    """
    numbers = (np.arange(math.prod(shape)).reshape(shape) for shape in (left, right))
    first, second = np.broadcast_arrays(*numbers)
    return tuple(zip(first.reshape(-1).tolist(), second.reshape(-1).tolist(), strict=True))


def _matrix(bias: NDArray[Any] | None, columns: int) -> NDArray[np.int64]:
    """Return a bias as a matrix with one row, or with several if its rows differ."""
    wide = (
        np.zeros((1, columns), np.int64)
        if bias is None
        else bias.astype(np.int64).reshape(-1, (1, *bias.shape)[-1])
    )
    return np.broadcast_to(wide, (len(wide), columns))


def _cache_factor(value: Value, zeros: tuple[int, ...], shape: tuple[int, int]) -> Factor:
    """Return a constant operand of a matrix product, cached unless it is very large.

    The steps of recurrent layers have the same operand.
    """
    return (_remembered if value.elements <= MOST_REMEMBERED else _factor)(value, zeros, shape)


def _factor(value: Value, zeros: tuple[int, ...], shape: tuple[int, int]) -> Factor:
    """Return a constant operand of a matrix product as matrices of ``shape``."""
    assert value.constant is not None
    stored = domain.to_stored_integers(value.constant)
    moved = stored - np.array(zeros, np.int16) if any(zeros) else stored
    stack = moved.reshape(-1, *shape)
    return Factor(stack, tuple(products.int8_parts(matrix) for matrix in stack))


_remembered = lru_cache(maxsize=2)(_factor)


def _filters(record: MatMulRecord) -> Iterator[tuple[Convolution, tuple[NDArray[np.int8], ...]]]:
    """Yield products of a constant and a computed matrix as 1 × 1 convolutions.

    The product is (M, K) × (K, N): K planes of N pixels are convolved by M filters.
    """
    assert record.left is not None
    m, k, n = record.sizes
    for number, (first, second) in enumerate(record.matrices):
        parts = tuple(part.reshape(m, k, 1, 1) for part in record.left.parts[first])
        sums = record.left.stack[first].sum(axis=1, dtype=np.int64)
        output = record.output(number)
        yield (
            Convolution(
                name=record.node.name,
                kind="CONV",
                inputs=(Operand(record.sources[1], (k, 1, n), second * k * n),),
                output=replace(output, shape=(m, 1, n)),
                onnx_nodes=record.node.onnx_nodes,
                weights=parts[0],
                bias=(-record.zero_points[1] * sums).astype(np.int32),
                requantise=record.requantise,
                input_zero_point=record.zero_points[1],
                strides=(1, 1),
                dilations=(1, 1),
                pads=(0, 0, 0, 0),
            ),
            parts,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class DynamicMatMul(products.Requantised):
    """Matrix product of two activations: (M, K) × (K, N), or (N, K) if ``transposed``.

    ``zero_points`` are those of the two activations. All scales of ``requantise`` are equal; None
    gives an int32 result.
    """

    traits: ClassVar[Traits] = Traits(mnemonic=DYNAMIC)

    transposed: bool
    zero_points: tuple[int, int]

    def layouts(self, atom: int) -> Layouts | Finding:
        """Return layouts in banked memory for matrices whose rows are positions of channels."""
        shapes = (*(operand.shape for operand in self.inputs), self.output.shape)
        return tuple(
            Layout(channels, positions, atom, by_row=True) for positions, channels in shapes
        )

    @property
    def loops(self) -> Loops:
        """Loops of a product of two computed matrices.

        Channels are the columns of the second operand (its rows if transposed).
        """
        rows, depth = self.inputs[0].shape
        nest = LoopNest(self.output.shape[1], rows, 1, depth, rows, 1, matrix=True)
        return Loops(nest, "rows" if self.transposed else "columns")

    def settings(self, arch: Arch) -> Settings:
        """Return the registers for zero points and requantisation of a matrix product."""
        registers = {
            "EX_INPUT_ZERO_POINT": self.zero_points[0],
            "EX_OPERAND_ZERO_POINT": self.zero_points[1],
        }
        fields = {
            "transposed": int(self.transposed),
            "requantise": int(self.requantise is not None),
        }
        if self.requantise is None:
            return Settings(registers, fields)
        how = self.requantise
        registers |= {
            "EX_OUTPUT_ZERO_POINT": how.zero_point,
            "EX_CLAMP_LOW": how.low,
            "EX_CLAMP_HIGH": how.high,
        }
        if arch.numerics == "fixed":
            registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(
                float(how.scales.exact[0])
            )
        else:
            registers["EX_SCALE_A"] = float32_bits(how.scales.rounded[0])
        return Settings(registers, fields)

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        return MatMul.tile_registers(geometry, tile)
