"""Rewrite linear and cubic resizing as products with one constant matrix each for rows and columns.

ONNX Runtime's Resize of unit vectors gives the matrices, so every coordinate mode is covered.
Enlarging by the same whole factor everywhere is cheaper as a convolution, with one channel per
position within the factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.runtimes.protobuf import attributes, set_attributes
from byoc.runtimes.session import OnnxRuntimeSession

_MODES = (b"linear", b"cubic")
_CROPPED = b"tf_crop_and_resize"
_LARGEST = 4096
"""Maximum rows or columns of a plane; larger matrices would exceed the planes in size."""
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class _ResizeParameters:
    """Constant region, and scales or sizes, of a Resize with four dimensions.

    The scales or sizes are at input ``position``.
    """

    position: int
    numbers: NDArray[np.generic]
    region: NDArray[np.generic]

    def select_axis(self, axis: int) -> _ResizeParameters:
        """Return the parameters of a Resize along ``axis`` only.

        The other spatial axis is resized from one element to two, because ONNX Runtime copies
        tensors whose shape does not change, whatever the scales.
        """
        numbers = np.ones_like(self.numbers)
        region = np.zeros_like(self.region)
        numbers[axis] = self.numbers[axis]
        numbers[5 - axis] = 2
        region[4:] = 1
        region[[axis, 4 + axis]] = self.region[[axis, 4 + axis]]
        return _ResizeParameters(self.position, numbers, region)


@write_operators("Resize")
def expand_resizes(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite an interpolating Resize of (N, C, H, W) as two products or a convolution.

    If positions beyond the edges have a value, it is subtracted first and added afterwards, because
    the matrices have 0 there.
    """
    real = bool(node.input) and graph.types.get(node.input[0]) == TensorProto.FLOAT
    matrices = _matrices(graph, node) if real else None
    if matrices is None:
        return None
    w = NodeWriter(graph, node)
    source = node.input[0]
    channels = graph.shapes[node.input[0]][1]
    beyond = float(w.options.get("extrapolation_value", 0.0))
    if not beyond or w.options.get("coordinate_transformation_mode") != _CROPPED:
        _products(w, source, channels, *matrices)
        return w.finish()
    level = w.constant(np.float32(beyond))
    w.add("Add", _products(w, w.add("Sub", source, level), channels, *matrices), level)
    return w.finish()


def _matrices(graph: GraphView, node: NodeProto) -> tuple[Matrix, Matrix] | None:
    """Return the matrices (H', H) for rows and (W', W) for columns that equal a Resize.

    Returns None if the node is not such a Resize.
    """
    if attributes(node).get("mode") not in _MODES:
        return None
    before, after = (graph.shapes.get(name, ()) for name in (node.input[0], node.output[0]))
    if (
        len(before) != 4
        or len(after) != 4
        or before[:2] != after[:2]
        or max(before + after) > _LARGEST
    ):
        return None
    if before == after:
        return None
    parameters = _parameters(graph, node)
    if parameters is None:
        return None
    rows, columns = (
        _matrix(graph, node, parameters.select_axis(axis), axis, before[axis]) for axis in (2, 3)
    )
    same = rows.shape == (after[2], before[2]) and columns.shape == (after[3], before[3])
    return (rows, columns) if same else None


def _parameters(graph: GraphView, node: NodeProto) -> _ResizeParameters | None:
    """Return the constant parameters of a Resize, extended from its ``axes`` to all dimensions."""
    given = [index for index, name in enumerate(node.input) if name and index >= 2]
    constants = graph.constants
    if (
        len(given) != 1
        or node.input[given[0]] not in constants
        or constants[node.input[given[0]]].ndim != 1
    ):
        return None
    if attributes(node).get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return None  # the size of one dimension depends on the others
    numbers = constants[node.input[given[0]]]
    axes = [int(axis) % 4 for axis in attributes(node).get("axes", ())] or [0, 1, 2, 3]
    region = np.array([0] * 4 + [1] * 4, np.float32)
    if node.input[1] and attributes(node).get("coordinate_transformation_mode") == _CROPPED:
        if node.input[1] not in constants or constants[node.input[1]].size != 2 * len(axes):
            return None
        region[[*axes, *(4 + axis for axis in axes)]] = constants[node.input[1]]
    whole = np.ones(4, numbers.dtype)
    if len(numbers) != len(axes):
        return None
    whole[axes] = numbers
    return _ResizeParameters(given[0], whole, region)


def _matrix(
    graph: GraphView, node: NodeProto, parameters: _ResizeParameters, axis: int, size: int
) -> Matrix:
    """Return the matrix by which a Resize multiplies a vector along ``axis``.

    It contains 0 where the Resize extrapolates.
    """
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[0] = "units"
    copy.input[parameters.position] = "parameter"
    copy.output[0] = "made"
    copy.input[1] = "region"
    set_attributes(copy, "axes", "extrapolation_value")
    shape = [1, 1, 1, 1]
    shape[axis] = size
    alone = helper.make_graph(
        [copy],
        "resize",
        [helper.make_tensor_value_info("units", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("made", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(parameters.numbers, "parameter"),
            numpy_helper.from_array(parameters.region, "region"),
        ],
    )
    session = OnnxRuntimeSession(
        helper.make_model(alone, opset_imports=graph.opsets, ir_version=graph.ir_version),
        optimised=False,
    )
    units = (unit.reshape(shape) for unit in np.eye(size, dtype=np.float32))
    results = [session.run(["made"], {"units": unit})["made"] for unit in units]
    return np.stack([made.take(0, 5 - axis).reshape(-1) for made in results], 1)


def _products(w: NodeWriter, source: str, channels: int, rows: Matrix, columns: Matrix) -> str:
    """Multiply planes by a matrix from the left (rows) and one from the right (columns)."""
    row_taps = _taps(rows)
    column_taps = _taps(columns)
    label = w.node.name
    if row_taps is None or column_taps is None or len(row_taps) != len(column_taps):
        wide = w.add("MatMul", source, w.constant(columns.T))
        return w.add("MatMul", w.constant(rows), wide, label=label)
    factor = len(row_taps)
    kernels = np.einsum("ih,jw->ijhw", row_taps, column_taps).reshape(factor * factor, 1, 3, 3)
    padded = w.add("Pad", source, w.constant([0, 0, 1, 1, 0, 0, 1, 1]), mode="edge")
    weights = w.constant(np.tile(kernels, (channels, 1, 1, 1)))
    phases = w.add("Conv", padded, weights, label=label, group=channels, kernel_shape=[3, 3])
    return w.add("DepthToSpace", phases, blocksize=factor, mode="CRD")


def _taps(matrix: Matrix) -> Matrix | None:
    """Return the interpolation weights of three neighbours for each output phase.

    The shape is (factor, 3): previous, own and next element.
    Returns None if elements have different weights, or if the ends are not repeated.
    """
    large, small = matrix.shape
    if large % small or small < 3:
        return None
    factor = large // small
    taps = matrix[factor : 2 * factor, :3]
    ends = np.pad(np.eye(small, dtype=np.float32), ((0, 0), (1, 1)), mode="edge")
    made = np.concatenate(
        [taps @ np.stack([ends[:, at + shift] for shift in range(3)]) for at in range(small)]
    )
    return taps if np.abs(made - matrix).max() < 1e-6 else None
