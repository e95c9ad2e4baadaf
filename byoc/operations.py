"""What the accelerator is asked to do: the records that patterns produce and that lowering and emission consume.

All numbers live in the accelerator's int8 domain: uint8 ONNX tensors have been moved by 128 (values and zero points),
except where a record says that it computes with the original zero point and an ``offset``. Tensors are dense, CHW or
row-major, without a batch dimension: a batch or a group becomes several operations on slices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from byoc.tile import Tile


@dataclass(frozen=True)
class Operand:
    """A dense slice of a value: ``offset`` elements from its start, then ``shape`` elements row-major."""

    value: str
    shape: tuple[int, ...]
    offset: int = 0
    dtype: Literal["int8", "int32"] = "int8"

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def element_bytes(self) -> int:
        """Bytes of one element: 1 for int8, 4 for int32."""
        return 1 if self.dtype == "int8" else 4

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.element_bytes


def _none_a_tile(tile: Tile) -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Via:
    """The instruction that computes an operation, where it is not the one that the back end takes by itself.

    The back end tiles, loads and stores the operation as it does all of its kind. Of the registers and fields that it
    sets for that kind it writes those that the instruction ``mnemonic`` has; ``registers`` and ``fields`` (the same for
    all tiles) and ``tile_registers`` (those of one tile) come on top. A name that the instruction lacks is an error.
    """

    mnemonic: str
    registers: Mapping[str, int] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)
    tile_registers: Callable[[Tile], Mapping[str, int]] = _none_a_tile


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """Common part: ``name`` is the layer, ``kind`` the account of the run report, ``onnx_nodes`` where it came from."""

    name: str
    kind: str
    inputs: tuple[Operand, ...]
    output: Operand
    onnx_nodes: tuple[str, ...] = ()
    via: Via | None = None


@dataclass(frozen=True, eq=False)
class Requantise:
    """int32 accumulator to int8: ``clip(rint(float32(acc) * scale) + zero_point, low, high)``, scale per channel."""

    scale: NDArray[np.float32]
    zero_point: int
    low: int = -128
    high: int = 127


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvOperation(Operation):
    """2-D convolution of one input (C, H, W) to one output (OC, OH, OW).

    ``weights``: int8 (OC, C / groups, KH, KW): output channel o reads the input channels of group
    ``o // (OC // groups)``. ``bias``: int32 (OC,), the input's zero point already folded in
    (``bias - zx * sum(weights)``); padding reads ``input_zero_point``. ``requantise`` None means an int32 output.
    ``pads``: top, left, bottom, right.
    """

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    requantise: Requantise | None
    input_zero_point: int
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1

    @property
    def depthwise(self) -> bool:
        """True when every group has one input channel (and there is more than one)."""
        return self.groups == self.inputs[0].shape[0] > 1


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMulOperation(Operation):
    """Matrix product (M, K) × (K, N) with constant int8 ``weights`` (K, N) and int32 ``bias`` (N,).

    The input's zero point is folded into the bias. ``requantise`` None means an int32 output.
    """

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    requantise: Requantise | None


@dataclass(frozen=True, eq=False, kw_only=True)
class RequantiseOperation(Operation):
    """int32 planes (C, H, W) or matrix (M, N) to int8 of the same shape, one scale a channel or column."""

    requantise: Requantise


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolOperation(Operation):
    """Max or average pooling (C, H, W) → (C, OH, OW); ``global_average`` reduces each plane to one element.

    Average modes compute with ONNX Runtime's rules on original values: ``x + offset`` with zero points
    ``input_zero_point`` and ``output_zero_point`` of the ONNX element type; ``offset`` is 128 for tensors that are
    uint8 in the model, else 0.
    """

    mode: Literal["max", "average", "global_average"]
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    count_include_pad: bool = False
    input_scale: float = 1.0
    output_scale: float = 1.0
    input_zero_point: int = 0
    output_zero_point: int = 0
    offset: int = 0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, eq=False, kw_only=True)
class AddOperation(Operation):
    """Element-wise addition of two rescaled operands (ONNX Runtime's QLinearAdd).

    Scales are float32; zero points are those of the ONNX element type; ``offset`` (0 or 128) is added to the stored
    int8 values of operands and subtracted from the result. ``low`` and ``high`` clamp the stored int8 result.
    """

    scales: tuple[float, float, float]
    zero_points: tuple[int, int, int]
    offset: int = 0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, eq=False, kw_only=True)
class UnaryOperation(Operation):
    """Relu, LeakyRelu, Abs alone: ``rint(g((x - zx) * sx) / sy) + zy`` in float32; ``alpha`` is LeakyRelu's slope."""

    function: Literal["relu", "leaky_relu", "abs"]
    input_scale: float
    output_scale: float
    input_zero_point: int
    output_zero_point: int
    alpha: float = 0.0
    low: int = -128
    high: int = 127


@dataclass(frozen=True, eq=False, kw_only=True)
class MinMaxOperation(Operation):
    """Element-wise minimum or maximum of two int8 tensors of equal shape and quantisation."""

    function: Literal["min", "max"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementwiseOperation(Operation):
    """One or two int8 tensors to one of equal shape, element by element, by the instruction that ``via`` names.

    It finds its operands at EX_INPUT_ADDRESS and EX_OPERAND_ADDRESS, EX_LENGTH elements, its result at
    EX_OUTPUT_ADDRESS.
    """


@dataclass(frozen=True, eq=False, kw_only=True)
class AliasOperation(Operation):
    """Each input's elements are, unchanged, a dense slice of the output: Reshape, Flatten, free Transpose, Concat.

    ``offsets`` gives for each input its first element in the output. Costs nothing where both can share one buffer;
    where they cannot, lowering inserts a :class:`CopyOperation`.
    """

    offsets: tuple[int, ...] = (0,)


@dataclass(frozen=True, eq=False, kw_only=True)
class CopyOperation(Operation):
    """Bytes moved unchanged through the scratchpad by the two DMA units."""


def is_free(operation: Operation) -> bool:
    """True for operations that need no instruction as long as buffers can be shared."""
    return isinstance(operation, AliasOperation)
