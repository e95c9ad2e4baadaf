"""A builder of TensorFlow Lite models with the flatbuffer object API.

It adds tensors with their quantisation, and operators:

    builder = TfliteBuilder("two-layers")
    x = builder.input("x", (1, 8, 8, 3), Quantisation(0.05, -3))
    weights = builder.constant("w", filters, Quantisation(scales, 0, axis=0))
    y = builder.operator(
        "CONV_2D", [x, weights, bias], Quantisation(0.1, 4), padding="SAME", stride_w=2
    )
    content = builder.model(y)

LiteRT computes the shapes of results: it prepares each operator alone as it is added, so a mistake
is rejected where it is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from byoc.runtimes import litert
from isa.errors import InputError

SCHEMA_VERSION = 3
ENUMERATIONS = {
    "padding": "Padding",
    "fused_activation_function": "ActivationFunctionType",
    "mode": "MirrorPadMode",
    "output_type": "TensorType",
}
"""Options whose values are given by name, and the enumeration that knows it."""

VERSIONS = {
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "POW", "SHAPE"), 1),
    "CONV_2D": 3,
    "DEPTH_TO_SPACE": 1,
    "DEPTHWISE_CONV_2D": 3,
    "ELU": 1,
    "EXPAND_DIMS": 1,
    **dict.fromkeys(("FLOOR", "CEIL", "ROUND", "SQUARE", "SIN", "COS", "CUMSUM"), 1),
    "FULLY_CONNECTED": 4,
    "HARD_SWISH": 1,
    "NEG": 1,
    "PRELU": 1,
    "RELU_0_TO_1": 1,
    "RELU_N1_TO_1": 1,
    "RESHAPE": 1,
    "SQUEEZE": 1,
    "TRANSPOSE_CONV": 3,
}
"""The version of an operator that int8 came with, where it is not 2. Kernels do not look at it."""


ONES = ("strideW", "strideH", "depthMultiplier", "beta")
"""Options that are 1 where nothing is said; the schema's own 0 means nothing."""


@dataclass(frozen=True)
class Quantisation:
    """``real = scale * (stored - zero_point)``, with one scale for all or one for each channel.

    Channels are the places along ``axis``.
    """

    scale: float | tuple[float, ...]
    zero_point: int = 0
    axis: int = 0

    @property
    def scales(self) -> tuple[float, ...]:
        """The scales, one or one a channel."""
        return self.scale if isinstance(self.scale, tuple) else (self.scale,)


@dataclass(frozen=True)
class Tensor:
    """A tensor of the model: its number, name, shape, NumPy dtype and quantisation."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    quantisation: Quantisation | None = None


@dataclass(frozen=True)
class _Stored:
    tensor: Tensor
    data: NDArray[Any] | None = None
    is_variable: bool = False


@dataclass(frozen=True)
class _Operator:
    kind: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    options: dict[str, Any]
    intermediates: tuple[Tensor, ...] = ()


class TfliteBuilder:
    """Collects tensors and operators of one subgraph; `model` writes them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tensors: list[_Stored] = []
        self._inputs: list[Tensor] = []
        self._operators: list[_Operator] = []

    def input(
        self,
        name: str,
        shape: Sequence[int],
        quantisation: Quantisation | None = None,
        dtype: DTypeLike = np.int8,
    ) -> Tensor:
        """One more input of the model."""
        tensor = self._tensor(name, tuple(shape), dtype, quantisation)
        self._inputs.append(tensor)
        return tensor

    def constant(
        self, name: str, array: NDArray[Any], quantisation: Quantisation | None = None
    ) -> Tensor:
        """Add a tensor with data: the stored integers or floats, with their dtype."""
        return self._tensor(
            name, array.shape, array.dtype, quantisation, np.ascontiguousarray(array)
        )

    def variable(
        self,
        name: str,
        shape: Sequence[int],
        quantisation: Quantisation,
        dtype: DTypeLike = np.int8,
    ) -> Tensor:
        """A state that an operator reads and writes (the two of an LSTM); it starts at zero."""
        return self._tensor(name, tuple(shape), dtype, quantisation, is_variable=True)

    def operator(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        quantisation: Quantisation | None = None,
        dtype: DTypeLike = np.int8,
        name: str = "",
        intermediates: Sequence[Tensor] = (),
        **options: Any,
    ) -> Tensor:
        """Add the operator ``kind`` with one result and return its tensor.

        ``kind`` is a name of ``BuiltinOperator``.

        ``options``: the schema's, in snake case, enumerations by name (``padding="SAME"``), `ONES`
        unless said otherwise; ``None`` among ``inputs`` is one left out; ``intermediates`` (of
        :meth:`variable`) have the scales that an LSTM computes with inside. Raises InputError for
        an unknown kind or option, and for what LiteRT does not prepare.
        """
        return self.operators(kind, inputs, [quantisation], dtype, name, intermediates, **options)[
            0
        ]

    def operators(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        quantisations: Sequence[Quantisation | None],
        dtype: DTypeLike = np.int8,
        name: str = "",
        intermediates: Sequence[Tensor] = (),
        **options: Any,
    ) -> list[Tensor]:
        """`operator` with one result for each of ``quantisations`` (SPLIT, UNPACK)."""
        first = len(self._tensors)
        stem = name or f"{kind.lower()}_{len(self._operators)}"
        names = (
            [stem]
            if len(quantisations) == 1
            else [f"{stem}_{place}" for place in range(len(quantisations))]
        )
        sizes = self._tensors[inputs[2].index].data if kind == "SLICE" and inputs[2] else None
        shape = (1,) if sizes is None else tuple(map(int, sizes))  # SLICE wants to be told
        unknown = [
            Tensor(first + place, one, shape, np.dtype(dtype), quantisation)
            for place, (one, quantisation) in enumerate(zip(names, quantisations, strict=True))
        ]
        inside = tuple(intermediates)
        shapes = self._prepared(_Operator(kind, tuple(inputs), tuple(unknown), options, inside))
        made = [
            self._tensor(one.name, found, dtype, one.quantisation)
            for one, found in zip(unknown, shapes, strict=True)
        ]
        self._operators.append(_Operator(kind, tuple(inputs), tuple(made), options, inside))
        return made

    def model(self, *outputs: Tensor) -> bytes:
        """The file: a flatbuffer with the identifier TFL3."""
        return _written(self._name, self._tensors, self._inputs, outputs, self._operators)

    def _tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        quantisation: Quantisation | None,
        data: NDArray[Any] | None = None,
        *,
        is_variable: bool = False,
    ) -> Tensor:
        tensor = Tensor(
            len(self._tensors), name, tuple(map(int, shape)), np.dtype(dtype), quantisation
        )
        self._tensors.append(_Stored(tensor, data, is_variable))
        return tensor

    def _prepared(self, operator: _Operator) -> list[tuple[int, ...]]:
        """The shapes of the results, from LiteRT, which is given this operator alone."""
        tensors = [*self._tensors, *(_Stored(tensor) for tensor in operator.outputs)]
        given = [
            one for one in operator.inputs if one is not None and _is_data(self._tensors[one.index])
        ]
        content = _written(self._name, tensors, given, operator.outputs, [operator], only_used=True)
        made = litert.interpreter(
            content, "builtin", thing=f"{operator.kind} of '{operator.outputs[0].name}'"
        )
        return [tuple(map(int, one["shape"])) for one in made.get_output_details()]


def _is_data(stored: _Stored) -> bool:
    return stored.data is None and not stored.is_variable


def _written(
    name: str,
    tensors: Sequence[_Stored],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    operators: Sequence[_Operator],
    *,
    only_used: bool = False,
) -> bytes:
    """The flatbuffer; with ``only_used`` without tensors that no operator touches."""
    schema = litert.schema()
    read = (
        one
        for operator in operators
        for one in (*operator.inputs, *operator.outputs, *operator.intermediates)
    )
    used = {one.index for one in read if one is not None}
    kept = [one for one in tensors if not only_used or one.tensor.index in used]
    places = {one.tensor.index: place for place, one in enumerate(kept)}
    buffers: list[Any] = [schema.BufferT()]
    subgraph = schema.SubGraphT()
    subgraph.name = name
    subgraph.tensors = [_tensor(schema, one, buffers) for one in kept]
    subgraph.inputs = [places[one.index] for one in dict.fromkeys(inputs)]
    subgraph.outputs = [places[one.index] for one in outputs]
    kinds = sorted({operator.kind for operator in operators})
    subgraph.operators = [
        _operator(schema, one, kinds.index(one.kind), places) for one in operators
    ]
    model = schema.ModelT()
    model.version = SCHEMA_VERSION
    model.description = name
    model.operatorCodes = [_code(schema, kind) for kind in kinds]
    model.subgraphs = [subgraph]
    model.buffers = buffers
    return litert.pack_model(model)


def _member(schema: Any, enumeration: str, name: str) -> int:
    """The number of ``name``. Raises InputError for one that the schema does not have."""
    number = getattr(getattr(schema, enumeration), name, None)
    if not isinstance(number, int):
        raise InputError(
            f"TensorFlow Lite's {enumeration} has no '{name}'; choose one of the schema's names"
        )
    return number


def _code(schema: Any, kind: str) -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode = _member(schema, "BuiltinOperator", kind)
    code.deprecatedBuiltinCode = min(
        code.builtinCode, schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
    )
    code.version = VERSIONS.get(kind, 2)
    return code


def _tensor(schema: Any, stored: _Stored, buffers: list[Any]) -> Any:
    tensor = stored.tensor
    made = schema.TensorT()
    made.name = tensor.name
    made.shape = np.array(tensor.shape, np.int32)
    made.type = _member(schema, "TensorType", tensor.dtype.name.upper())
    made.isVariable = stored.is_variable
    if stored.data is not None:
        made.buffer = len(buffers)
        buffers.append(schema.BufferT(data=np.frombuffer(stored.data.tobytes(), np.uint8)))
    if tensor.quantisation is not None:
        scales = tensor.quantisation.scales
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale = np.array(scales, np.float32)
        made.quantization.zeroPoint = np.full(len(scales), tensor.quantisation.zero_point, np.int64)
        made.quantization.quantizedDimension = tensor.quantisation.axis
    return made


def _operator(schema: Any, operator: _Operator, code: int, places: dict[int, int]) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex = code
    made.inputs = [-1 if one is None else places[one.index] for one in operator.inputs]
    made.outputs = [places[one.index] for one in operator.outputs]
    made.intermediates = [places[one.index] for one in operator.intermediates]
    name = litert.options_name(operator.kind)
    kind = getattr(schema, f"{name}T", None)
    if kind is None and operator.options:
        raise InputError(
            f"{operator.kind} has no options; leave out '{next(iter(operator.options))}'"
        )
    if kind is not None:
        made.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        made.builtinOptions = kind()
        for field in ONES:
            if hasattr(made.builtinOptions, field):
                setattr(made.builtinOptions, field, 1)
    for key, value in operator.options.items():
        field = re.sub(r"_(\w)", lambda match: match[1].upper(), key)
        if not hasattr(made.builtinOptions, field):
            raise InputError(
                f"{operator.kind} has no option '{key}'; see {name} of TensorFlow Lite's schema"
            )
        number = _member(schema, ENUMERATIONS[key], value) if isinstance(value, str) else value
        setattr(made.builtinOptions, field, number)
    return made
