"""Read TensorFlow Lite files and check them completely first; errors are one clear line.

The schema compiler's classes read flatbuffers without checking where offsets lead. This module
checks that every vector is inside the file and that the total number of entries is bounded before
reading. It then checks that tensors, operators and constants are consistent. Only checked models
reach the interpreter.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite import IDENTIFIER
from byoc.graph import Quantization
from byoc.runtimes import litert
from isa import memory
from isa.errors import InputError
from isa.reading import read_bytes

SCHEMA_VERSION = 3
MAXIMUM_FILE = 1 << 31
MAXIMUM_RANK = 8
MAXIMUM_NAME = 4096
MAXIMUM_ITEMS = 1 << 20
"""Maximum number of tensors, operators, dimensions, scales and similar entries of one file."""
REMEDY = "convert or copy it again"
_WRONG = (
    struct.error,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""Exceptions raised by reading a flatbuffer with invalid offsets."""
_DTYPES = {
    "FLOAT32": "float32", "FLOAT16": "float16", "FLOAT64": "float64",
    "BOOL": "bool", "STRING": "str",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "INT4": "int4", "INT2": "int2",
    "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "UINT4": "uint4",
    "COMPLEX64": "complex64", "COMPLEX128": "complex128",
    "RESOURCE": "resource", "VARIANT": "variant", "BFLOAT16": "bfloat16",
}  # fmt: skip
_BITS = {"int4": 4, "uint4": 4, "int2": 2, "bfloat16": 16}
"""Bits per element of types that NumPy lacks; strings, resources and variants have none."""


@dataclass(frozen=True, eq=False)
class TFLiteTensor:
    """Tensor of a TensorFlow Lite model's main subgraph, with a unique name.

    ``constant`` is True if the file contains its data. ``data`` are a constant's elements, None for
    types that NumPy lacks. ``variable`` marks a state that operators keep between inferences.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None
    constant: bool
    data: NDArray[Any] | None
    variable: bool


@dataclass(frozen=True, eq=False)
class TFLiteOperator:
    """Operator of a TensorFlow Lite model's main subgraph.

    ``kind`` is its builtin name, or a ``custom`` one's; ``name`` is kind and index in the file.
    ``inputs`` and ``outputs`` are tensor indices, -1 for omitted ones. ``options`` is the schema
    object with its attributes, or None.
    """

    name: str
    kind: str
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any


@dataclass(frozen=True)
class TFLiteVariable:
    """Variable that a model reads before it assigns it.

    ``before`` and ``after`` are the tensors with its value at the start and at the end of an
    inference, by index. They are equal if the model does not assign the variable. ``inside`` is the
    tensor of a state that an operator reads and writes itself.
    """

    name: str
    before: int
    after: int
    inside: int = -1


@dataclass(frozen=True, eq=False)
class TfliteModel:
    """Checked TensorFlow Lite model: the file's bytes, its main subgraph and the ``others``.

    ``content`` is the file's own unless data follow the flatbuffer, LiteRT would reject the axis
    of a bias's scales, or ``variables`` were removed. These are inputs and outputs of ``content``,
    after those of the file, and ``given`` is the model with its variables.
    """

    content: bytes
    name: str
    tensors: tuple[TFLiteTensor, ...]
    operators: tuple[TFLiteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    others: tuple[TfliteModel, ...] = ()
    variables: tuple[TFLiteVariable, ...] = ()
    given: TfliteModel | None = None

    @property
    def file(self) -> TfliteModel:
        """The model as the user gave it, with its variables."""
        return self.given or self

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Mapping from each tensor's name to its index in the model."""
        return {tensor.name: number for number, tensor in enumerate(self.tensors)}


def load_tflite(path: str | Path) -> TfliteModel:
    """Read and check the TensorFlow Lite model in the file ``path``.

    Raises InputError if it is missing, of another kind or damaged.
    """
    file = Path(path)
    content = read_bytes(
        file, MAXIMUM_FILE, "a TensorFlow Lite model", "give the path of a .tflite file"
    )
    memory.require(2 * len(content), str(file))
    return read_tflite(content, str(file))


def read_tflite(content: bytes, source: str, remedy: str = REMEDY) -> TfliteModel:
    """Read and check the TensorFlow Lite model in the bytes ``content``.

    ``source`` is its name in messages. Raises InputError.
    """
    if content[4:8] != IDENTIFIER:
        raise InputError(f"{source}: not a TensorFlow Lite model, or a truncated one; {remedy}")
    schema = litert.schema()
    try:
        reader = _Reader(content, schema)
        model = reader.model()
        if reader.misnamed or reader.behind:
            return replace(model, content=_rewrite_inline(content, schema))
        return model
    except InputError as error:
        raise InputError(f"{source}: {error}; {remedy}") from error
    except _WRONG as error:
        raise InputError(
            f"{source}: a damaged TensorFlow Lite model (its offsets lead nowhere); {remedy}"
        ) from error


def _rewrite_inline(content: bytes, schema: Any) -> bytes:
    """Rewrite a TensorFlow Lite file so that all its data is inside the flatbuffer.

    Scales of one-axis tensors are on that axis. Some quantisers write data after the flatbuffer.
    LiteRT 2.3 rejects other axes, which older converters wrote.
    """
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for buffer in (buffer for buffer in model.buffers if buffer.offset > 1):
        buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
        if tensor.quantization is not None and tensor.shape is not None and len(tensor.shape) == 1:
            tensor.quantization.quantizedDimension = 0
    return litert.pack_model(model)


class _Reader:
    """Reader of one TensorFlow Lite file that limits the number of entries read."""

    def __init__(self, content: bytes, schema: Any) -> None:
        self._content = content
        self._schema = schema
        self._left = MAXIMUM_ITEMS
        self.misnamed = self.behind = False
        """Whether scales of a one-axis tensor name another axis; whether data are outside.

        Data outside follow the flatbuffer. Some files give a bias the scale axis of its filters.
        """
        self._tensor_types = _names(self._schema.TensorType)
        self._kinds = _names(self._schema.BuiltinOperator)
        self._options = _names(self._schema.BuiltinOptions)

    def model(self) -> TfliteModel:
        root = self._schema.Model.GetRootAs(self._content, 0)
        if root.Version() != SCHEMA_VERSION:
            raise InputError(
                f"it has schema version {root.Version()}, this tool reads version {SCHEMA_VERSION}"
            )
        buffers = list(self._items(root, "Buffers"))
        codes = [self._code(code) for code in self._items(root, "OperatorCodes")]
        graphs = list(self._items(root, "Subgraphs"))
        if not graphs:
            raise InputError("it has no subgraph")
        main, *others = (self._subgraph(graph, buffers, codes) for graph in graphs)
        return replace(main, others=tuple(others))

    def _items(self, table: Any, name: str) -> Iterator[Any]:
        """Return the entries of a flatbuffer vector after checking its position and length."""
        count = self._count(table, name)
        read = getattr(table, name)
        return (read(number) for number in range(count))

    def _count(self, table: Any, name: str, element: int = 4) -> int:
        """Return the number of entries of a flatbuffer vector after checking it.

        Each entry has ``element`` bytes.
        """
        count = getattr(table, f"{name}Length")()
        self._left -= count
        if count < 0 or element * count > len(self._content) or self._left < 0:
            raise InputError(
                f"a damaged TensorFlow Lite model ({name} of {count} entries do not fit its size)"
            )
        return int(count)

    def _integers(self, table: Any, name: str) -> tuple[int, ...]:
        return tuple(map(int, self._items(table, name))) if self._count(table, name, 4) else ()

    def _text(self, found: bytes | None, what: str) -> str:
        text = (found or b"").decode()
        if len(text) > MAXIMUM_NAME:
            raise InputError(
                f"{what} has a name of {len(text)} characters; names have at most {MAXIMUM_NAME}"
            )
        return text

    def _code(self, code: Any) -> tuple[str, bool]:
        """Return the name of an operator code, and True if the operator is custom."""
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind = self._kinds.get(number, f"BUILTIN_{number}")
        if kind != "CUSTOM":
            return kind, False
        return self._text(code.CustomCode(), "a custom operator") or "CUSTOM", True

    def _subgraph(
        self, graph: Any, buffers: list[Any], codes: list[tuple[str, bool]]
    ) -> TfliteModel:
        raw = list(self._items(graph, "Tensors"))
        inputs, outputs = (self._integers(graph, name) for name in ("Inputs", "Outputs"))
        names = _unique(
            [self._text(tensor.Name(), "a tensor") for tensor in raw], {*inputs, *outputs}
        )
        tensors = tuple(
            self._tensor(tensor, name, buffers) for tensor, name in zip(raw, names, strict=True)
        )
        operators = tuple(
            self._operator(each, n, codes) for n, each in enumerate(self._items(graph, "Operators"))
        )
        model = TfliteModel(
            self._content,
            self._text(graph.Name(), "the subgraph") or "network",
            tensors,
            operators,
            inputs,
            outputs,
        )
        _check_order(model)
        return model

    # Tensors.

    def _tensor(self, tensor: Any, name: str, buffers: list[Any]) -> TFLiteTensor:
        number = tensor.Type()
        dtype = _DTYPES.get(self._tensor_types.get(number, ""))
        if dtype is None:
            raise InputError(f"tensor '{name}' has element type {number}, which is not known")
        shape = self._integers(tensor, "Shape")
        signature = self._integers(tensor, "ShapeSignature")
        if len(shape) > MAXIMUM_RANK or min(shape, default=0) < 0 or prod(shape) >= 1 << 40:
            raise InputError(f"tensor '{name}' has the shape {list(shape[:MAXIMUM_RANK])}")
        if signature and len(signature) != len(shape):
            raise InputError(
                f"tensor '{name}' of shape {list(shape)} has the signature {list(signature)}"
            )
        place = tensor.Buffer()
        if place >= len(buffers):
            raise InputError(f"tensor '{name}' has its data in buffer {place} of {len(buffers)}")
        raw = self._data(buffers[place], name)
        constant = raw.size > 0 or (place > 0 and not prod(shape))
        variable = bool(tensor.IsVariable())
        sparse = tensor.Sparsity() is not None
        data = None if not constant or sparse else _array(raw, name, shape, dtype)
        quantization = self._quantization(tensor, name, shape, dtype)
        return TFLiteTensor(
            name,
            shape,
            f"sparse {dtype}" if sparse else dtype,
            quantization,
            constant,
            data,
            variable,
        )

    def _data(self, buffer: Any, name: str) -> NDArray[np.uint8]:
        if buffer.Offset() > 1:
            begin = buffer.Offset()
            nbytes = buffer.Size()
            if begin + nbytes > len(self._content):
                raise InputError(f"the data of tensor '{name}' end behind the file")
            self.behind = True
            return np.frombuffer(self._content, np.uint8, nbytes, begin)
        count = buffer.DataLength()
        if not 0 <= count <= len(self._content):
            raise InputError(f"the data of tensor '{name}' end behind the file")
        if not count:
            return np.zeros(0, np.uint8)
        found: NDArray[np.uint8] = buffer.DataAsNumpy()
        return found

    def _quantization(
        self, tensor: Any, name: str, shape: tuple[int, ...], dtype: str
    ) -> Quantization | None:
        found = tensor.Quantization()
        if found is None or not found.ScaleLength():
            return None
        count = self._count(found, "Scale")
        zeros = self._count(found, "ZeroPoint", 8)
        axis = found.QuantizedDimension()
        if len(shape) == 1 and count > 1 and axis:
            axis = 0
            self.misnamed = True
        fits = count == 1 or (0 <= axis < len(shape) and count == shape[axis])
        if not fits or zeros not in (0, 1, count):
            raise InputError(
                f"tensor '{name}' of shape {list(shape)} has {count} scales and {zeros} zero "
                f"points on axis {axis}"
            )
        scale = np.array(found.ScaleAsNumpy(), np.float32)
        points = np.array(found.ZeroPointAsNumpy(), np.int64) if zeros else np.zeros(1, np.int64)
        wrong = scale[~(np.isfinite(scale) & (scale > 0))]
        if wrong.size:
            raise InputError(
                f"tensor '{name}' has the scale {float(wrong[0]):g}; scales are positive and finite"
            )
        limits = np.iinfo(dtype if dtype in ("int8", "uint8", "int16") else np.int32)
        beyond = points[(points < limits.min) | (points > limits.max)]
        if beyond.size:
            raise InputError(
                f"tensor '{name}' has the zero point {beyond[0]}; {limits.dtype} holds none such"
            )
        zero_point = np.broadcast_to(points.astype(np.int32), scale.shape).copy()
        if count == 1:
            return Quantization(scale.reshape(()), zero_point.reshape(()))
        return Quantization(scale, zero_point, axis)

    # Operators.

    def _operator(
        self, operator: Any, number: int, codes: list[tuple[str, bool]]
    ) -> TFLiteOperator:
        place = operator.OpcodeIndex()
        if place >= len(codes):
            raise InputError(f"operator {number} has the code {place} of {len(codes)}")
        kind, custom = codes[place]
        inputs = self._integers(operator, "Inputs")
        outputs = self._integers(operator, "Outputs")
        options = None if custom else self._options_of(operator, litert.options_name(kind))
        return TFLiteOperator(f"{kind}:{number}", kind, custom, inputs, outputs, options)

    def _options_of(self, operator: Any, wanted: str) -> Any:
        """Return the schema object of an operator's attributes.

        If the file has another operator's attributes, the result has the defaults, as in LiteRT.
        """
        name = self._options.get(operator.BuiltinOptionsType(), "NONE")
        table = operator.BuiltinOptions()
        kind = getattr(self._schema, f"{wanted}T", None)
        if kind is None or name != wanted or table is None:
            return None if kind is None else kind()
        options = getattr(self._schema, name)()
        options.Init(table.Bytes, table.Pos)
        for vector in (
            key.removesuffix("Length") for key in dir(options) if key.endswith("Length")
        ):
            self._count(options, vector)
        return kind.InitFromObj(options)


def _names(enumeration: Any) -> dict[int, str]:
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}


def _unique(names: list[str], ends: Collection[int]) -> list[str]:
    """Make tensor names unique by appending the tensor's index to empty and repeated ones.

    Of tensors with one name, the only input or output keeps it.
    """
    counts = Counter(names)
    kept = Counter(names[number] for number in ends if number < len(names))
    found = [
        name
        if name and (counts[name] == 1 or (number in ends and kept[name] == 1))
        else f"{name}#{number}"
        for number, name in enumerate(names)
    ]
    if len(set(found)) < len(found):
        raise InputError("its tensors have names that cannot be told apart")
    return found


def _array(
    raw: NDArray[np.uint8], name: str, shape: tuple[int, ...], dtype: str
) -> NDArray[Any] | None:
    """Return the elements of a constant tensor; None for types that NumPy lacks."""
    if dtype in ("str", "resource", "variant"):
        return None
    bits = _BITS.get(dtype) or 8 * np.dtype(dtype).itemsize
    wanted = -(-prod(shape) * bits // 8)
    if raw.size != wanted:
        raise InputError(
            f"constant '{name}' of shape {list(shape)} has {raw.size} of {wanted} bytes"
        )
    if dtype in _BITS:
        return None
    if dtype == "bool":
        flags: NDArray[np.bool_] = raw != 0
        return flags.reshape(shape)
    found: NDArray[Any] = raw.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)
    return found


def _check_order(model: TfliteModel) -> None:
    """Check that every tensor exists, has one producer at most, and is produced before it is read.

    Constants and inputs have no producer. An operator may write a state once.
    """
    count = len(model.tensors)
    constants = (n for n, tensor in enumerate(model.tensors) if tensor.constant)
    states = {n for n, tensor in enumerate(model.tensors) if tensor.variable}
    known = {*model.inputs, *constants, *states}
    for where in (model.inputs, model.outputs):
        for number in where:
            _check_number(number, count, "the subgraph")
    if len(set(model.inputs)) < len(model.inputs):
        raise InputError("a tensor is an input of the model twice")
    for number in model.inputs:
        if model.tensors[number].constant:
            raise InputError(f"input '{model.tensors[number].name}' is a constant")
    for operator in model.operators:
        for number in operator.inputs:
            if number == -1:
                continue
            _check_number(number, count, operator.name)
            if number not in known:
                raise InputError(
                    f"{operator.name} reads '{model.tensors[number].name}', which "
                    "nothing before it makes"
                )
        for number in operator.outputs:
            _check_number(number, count, operator.name)
            if number in known and number not in states:
                raise InputError(
                    f"{operator.name} makes '{model.tensors[number].name}', which is there already"
                )
            known.add(number)
            states.discard(number)
    for number in model.outputs:
        if number not in known:
            raise InputError(f"output '{model.tensors[number].name}' is made by nothing")


def _check_number(number: int, count: int, where: str) -> None:
    if not 0 <= number < count:
        raise InputError(f"{where} names tensor {number} of {count}")
