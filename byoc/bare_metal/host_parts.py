"""C calls for the nodes that run on the CPU, with the bits of the project's runtime.

A node is a (de)quantisation, a byte table, a copy of elements, a look-up of rows or an element-wise
float operation. Tables and copies are found by running the node. Others are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

from byoc.bare_metal.calls import (
    BufferArgument,
    CArgument,
    CCall,
    ConstantArgument,
    DimensionsArgument,
    c_float,
    c_type,
    to_bytes,
)
from byoc.bare_metal.integer_parts import translate_integer_node
from byoc.compiled import HostPart
from byoc.frontend.onnx.cutting import Cutter
from byoc.graph import Graph, Node, Value
from byoc.host.sessions import Numerics, OpenPart, PartSession, opener
from byoc.operators.domain import affine
from byoc.operators.onnx_view import (
    ADD,
    DEQUANTIZE,
    DIVIDE,
    GATHER,
    MULTIPLY,
    QUANTIZE,
    SUBTRACT,
)
from byoc.operators.pieces import NOTHING, find_pieces
from byoc.operators.registry import find_family
from byoc.operators.rules import Refusal
from byoc.package.package import Model
from isa.errors import InputError

MAX_COPIES = 64
"""Most strided copies that one node may become."""
_BYTES = ("int8", "uint8", "bool")
_FLOAT_OPERATIONS = {ADD: "+", SUBTRACT: "-", MULTIPLY: "*", DIVIDE: "/"}
_ROUNDED = ("int8", "uint8", "int16", "uint16")
DRAWN_RUNS = 8
"""Runs with drawn numbers that must agree with the copies that a node becomes."""
_ROUNDINGS: Mapping[str, Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[Any]]] = {
    "DLA_DIVIDE": lambda x, scale: np.rint(x / scale),
    "DLA_RECIPROCAL": lambda x, scale: np.rint(x * (np.float32(1) / scale)),
    "DLA_HALF_AWAY": lambda x, scale: np.trunc(
        (x / scale) + np.copysign(0.5, x).astype(np.float64)
    ),
}
"""Rules of quantisation by name in C: ONNX Runtime, XNNPACK and LiteRT's reference kernels."""
Run = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class HostTranslator:
    """Translator of CPU nodes of one network into C calls.

    ``numerics`` are those of the machine.
    """

    model: Model
    graph: Graph
    numerics: Numerics

    def translate_part(self, part: HostPart) -> tuple[CCall, ...]:
        """Return the calls of a part in order.

        Raises InputError that names the first node whose bits C cannot reproduce.
        """
        return tuple(call for node in part.nodes for call in self._translate(node, part))

    def _translate(self, node: Node, part: HostPart) -> tuple[CCall, ...]:
        kind = "integer" if node.integer else "float"
        reason = f"C has no function for this {kind} operator; run it on the accelerator"
        values = self.graph.values
        for name in (*self._list_inputs(node), *node.outputs):
            c_type(values[name])
        if node.op_type == QUANTIZE:
            return (self._quantise(node),)
        if node.op_type == DEQUANTIZE:
            return (self._dequantise(node),)
        if len(node.outputs) == 1:
            exact = self.numerics == "onnxruntime"
            try:
                found = translate_integer_node(self.graph, node) if exact else ()
            except InputError as error:
                raise _refusal(node, str(error)) from error
            found = found or self._trace(node) or self._translate_onnx(node, part)
            if found:
                return found
        family = find_family(self.graph, node)
        raise _refusal(node, str(family) if isinstance(family, Refusal) else reason)

    def _list_inputs(self, node: Node) -> tuple[str, ...]:
        """Return the inputs of a node that are not constants, each once."""
        names = dict.fromkeys(node.inputs)
        return tuple(name for name in names if self.graph.values[name].constant is None)

    def _quantise(self, node: Node) -> CCall:
        source, result = (self.graph.values[names[0]] for names in (node.inputs, node.outputs))
        if source.dtype != "float32" or result.dtype not in _ROUNDED:
            raise _refusal(node, f"it quantises {source.dtype} to {result.dtype}")
        scale, zero, arguments = _scales(node, result)
        session = self._open(node)
        generator = np.random.default_rng(0)
        limits = np.iinfo(result.dtype)
        matching = list(_ROUNDINGS)
        for _ in range(DRAWN_RUNS):
            steps = generator.integers(4 * limits.min, 4 * limits.max, source.shape) / 2
            drawn = ((steps - zero) * scale).astype(np.float32)
            wanted = session.run({source.name: drawn})[result.name]
            for name in tuple(matching):
                found = (_ROUNDINGS[name](drawn, scale) + zero).clip(limits.min, limits.max)
                if (found != wanted).any():
                    matching.remove(name)
        if not matching:
            raise _refusal(node, "its runtime rounds by a rule that C does not have")
        first = (BufferArgument(result.name, "void", written=True), c_type(result))
        second = BufferArgument(source.name, "float")
        return CCall("dla_quantize", (*first, second, *arguments, matching[0]))

    def _dequantise(self, node: Node) -> CCall:
        source, result = (self.graph.values[names[0]] for names in (node.inputs, node.outputs))
        if result.dtype != "float32":
            raise _refusal(node, f"it dequantises {source.dtype} to {result.dtype}")
        arguments = (
            BufferArgument(result.name, "float", written=True),
            BufferArgument(source.name, "void"),
            c_type(source),
            *_scales(node, source)[2],
        )
        return CCall("dla_dequantize", arguments)

    def _trace(self, node: Node) -> tuple[CCall, ...]:
        """Return the calls of byte tables or of copies, found by running the node; else none."""
        sources = [self.graph.values[name] for name in self._list_inputs(node)]
        sources.sort(key=lambda one: one.elements)
        result = self.graph.values[node.outputs[0]]
        if len({source.dtype for source in sources}) != 1:
            return ()
        session = self._open(node)
        ends = np.cumsum([source.elements for source in sources])

        def run(numbers: NDArray[Any]) -> NDArray[Any]:
            parts = np.split(numbers.astype(sources[0].dtype), ends[:-1])
            given = {
                one.name: part.reshape(one.shape) for one, part in zip(sources, parts, strict=True)
            }
            return session.run(given)[result.name]

        first = sources[0]
        in_bytes = first.dtype in _BYTES and result.dtype in _BYTES
        try:
            if in_bytes and len(sources) == 1 and first.elements == result.elements:
                table = _find_table(run, first)
                if table is not None:
                    return (_look_up(first, result, table),)
            if in_bytes and len(sources) == 2 and result.dtype != "bool" != first.dtype:
                pairs = find_pairs(run, sources, result)
                if pairs is not None:
                    return (_look_up_pairs(node, pairs, (*sources, result)),)
            return _copy_pieces(run, sources, result) if first.dtype == result.dtype else ()
        except InputError:  # an input that the operator rejects, such as an index out of range
            return ()

    @cached_property
    def _opener(self) -> OpenPart:
        return opener(self.model, self.graph, numerics=self.numerics)

    def _open(self, node: Node) -> PartSession:
        return self._opener(self._list_inputs(node), node.outputs)

    def _translate_onnx(self, node: Node, part: HostPart) -> tuple[CCall, ...]:
        """Return the calls of a node that is one float operator or Gather of the ONNX model."""
        if not isinstance(self.model, ModelProto):
            return ()
        cut = Cutter(self.model, self.graph).cut(self._list_inputs(node), node.outputs).graph
        if len(cut.node) != 1:
            return ()
        operator = cut.node[0]
        constants = {one.name: numpy_helper.to_array(one) for one in cut.initializer}
        result = self.graph.values[node.outputs[0]]
        if operator.op_type == GATHER:
            axis = {one.name: helper.get_attribute_value(one) for one in operator.attribute}
            return self._gather(operator.input, constants, result, int(axis.get("axis", 0)))
        if operator.op_type in _FLOAT_OPERATIONS and result.dtype == "float32":
            _refuse_fused(node, part)
            return (self._combine(operator.input, constants, result, operator.op_type),)
        return ()

    def _gather(
        self,
        names: Sequence[str],
        constants: Mapping[str, NDArray[Any]],
        result: Value,
        axis: int,
    ) -> tuple[CCall, ...]:
        if names[1] in constants:
            return ()
        index = self.graph.values[names[1]]
        shape = constants[names[0]].shape if names[0] in constants else self._shape(names[0])
        item = np.dtype(result.dtype).itemsize
        axis %= len(shape)
        outer, inner = (int(np.prod(part)) for part in (shape[:axis], shape[axis + 1 :]))
        sizes = (index.elements, outer, shape[axis], inner * item)
        arguments = (
            BufferArgument(result.name, written=True),
            self._operand(names[0], constants),
            BufferArgument(index.name, "void"),
            c_type(index),
            *(f"{size}u" for size in sizes),
        )
        return (CCall("dla_gather", arguments, checked=True),)

    def _combine(
        self,
        names: Sequence[str],
        constants: Mapping[str, NDArray[Any]],
        result: Value,
        op_type: str,
    ) -> CCall:
        shapes = [constants[one].shape if one in constants else self._shape(one) for one in names]
        arguments = (
            BufferArgument(result.name, "float", written=True),
            *(self._operand(name, constants, "float") for name in names),
            f"'{_FLOAT_OPERATIONS[op_type]}'",
            *_walk(shapes, result.shape),
        )
        return CCall("dla_combine", arguments)

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.graph.values[name].in_model.shape

    def _operand(
        self, name: str, constants: Mapping[str, NDArray[Any]], target: str = "uint8_t"
    ) -> BufferArgument | ConstantArgument:
        if name in constants:
            return ConstantArgument(to_bytes(constants[name]), target)
        return BufferArgument(name, target)


def _refusal(node: Node, reason: str) -> InputError:
    return InputError(
        f"node '{node.name}' ({node.op_type}) runs on the CPU and cannot be exported: {reason}"
    )


def _scales(
    node: Node, value: Value
) -> tuple[NDArray[np.float32], NDArray[np.int32], tuple[CArgument, ...]]:
    """Return the scales and zero points of an integer tensor, and the arguments for them.

    The arrays broadcast to the tensor. The arguments are its elements, the scales, the zero points,
    their number, and the elements between two of them.
    """
    if value.quantization is None:
        raise _refusal(node, "its scales are computed at run time; make them constants")
    scale, zero = value.quantization.scale, value.quantization.zero_point
    axis = value.quantization.axis or 0
    behind = len(value.shape) - axis - 1 if scale.size > 1 else 0
    zeros = np.broadcast_to(zero, scale.shape)
    numbers = (value.elements, scale.size, int(np.prod(value.shape[axis + 1 :])))
    count, channels, inner = (f"{number}u" for number in numbers)
    shape = (-1, *[1] * behind)
    arguments = (
        count,
        ConstantArgument(to_bytes(scale), "float"),
        ConstantArgument(to_bytes(zeros.astype("<i4")), "int32_t"),
        channels,
        inner,
    )
    return scale.reshape(shape), zeros.reshape(shape), arguments


def _refuse_fused(node: Node, part: HostPart) -> None:
    """Raise InputError if ONNX Runtime would fuse a float node with its (de)quantisations."""
    made = {name for one in part.nodes if one.op_type == DEQUANTIZE for name in one.outputs}
    rounded = {name for one in part.nodes if one.op_type == QUANTIZE for name in one.inputs}
    if made.intersection(node.inputs) and rounded.intersection(node.outputs):
        raise _refusal(node, "ONNX Runtime fuses it with its quantisation and rounds otherwise")


def _broadcast_steps(shape: Sequence[int], result: Sequence[int]) -> tuple[int, ...]:
    """Return the step of an operand along each dimension of a broadcast result, in elements."""
    found = []
    step = 1
    for place in range(len(result)):
        size = shape[-1 - place] if place < len(shape) else 1
        found.append(0 if size == 1 else step)
        step *= size
    return tuple(found[::-1])


def _look_up(source: Value, result: Value, table: NDArray[np.uint8]) -> CCall:
    arguments = (
        BufferArgument(result.name, written=True),
        BufferArgument(source.name),
        f"{source.elements}u",
        ConstantArgument(table),
    )
    return CCall("dla_look_up", arguments)


def _draw_inputs(dtype: np.dtype[Any], count: int) -> Iterator[NDArray[Any]]:
    """Yield inputs that tell a table or a copy from other operators.

    Bytes have every value at every place, and then drawn values. Wider numbers are drawn: integers
    from all of the type, floats of every size, and negative zeros.
    """
    generator = np.random.default_rng(0)
    if dtype.itemsize == 1:
        limit = 2 if dtype == np.bool_ else 256
        rising = ((np.arange(count) + shift) % limit for shift in range(limit))
        drawn = (generator.integers(0, limit, count) for _ in range(2))
        for codes in chain(rising, drawn):
            yield codes.astype(np.uint8).view(dtype)
    elif dtype.kind == "f":
        yield np.full(count, -0.0, dtype)
        for _ in range(DRAWN_RUNS):
            sizes = 10.0 ** generator.integers(-30, 30, count)
            yield (generator.normal(size=count) * sizes).astype(dtype)
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        for _ in range(DRAWN_RUNS):
            yield generator.integers(low, high, count, dtype, endpoint=True)


def _find_table(run: Run, source: Value) -> NDArray[np.uint8] | None:
    """Return the byte that an operator makes of each byte, or None if it is not element-wise."""
    table = np.full(256, -1, np.int64)
    for given in _draw_inputs(np.dtype(source.dtype), source.elements):
        codes = given.view(np.uint8)
        found = run(given).reshape(-1).view(np.uint8)
        known = table[codes]
        table[codes] = found
        if ((known >= 0) & (known != found)).any() or (table[codes] != found).any():
            return None
    return table.clip(0).astype(np.uint8)


def find_pairs(run: Run, sources: Sequence[Value], result: Value) -> NDArray[np.uint8] | None:
    """Return the byte that an operator makes of each pair of bytes, or None.

    None means that it is not element-wise, or repeats elements of the second operand. The table has
    the shape (256, 256).
    """
    shapes = [one.shape for one in sources]
    sizes = zip(shapes[0][::-1], result.shape[::-1], strict=False)
    if shapes[1] != result.shape or any(one not in (1, size) for one, size in sizes):
        return None

    def run_pair(*codes: NDArray[Any]) -> NDArray[np.uint8]:
        given = np.concatenate([some.ravel() for some in codes]).astype(np.uint8)
        return run(given.view(sources[0].dtype)).view(np.uint8)

    table = np.zeros((256, 256), np.uint8)
    rising = np.arange(result.elements).reshape(result.shape)
    for code, begin in product(range(256), range(0, 256, rising.size)):
        codes = (rising + begin) % 256
        table[code, codes] = run_pair(np.full(shapes[0], code), codes)
    generator = np.random.default_rng(0)
    for _ in range(DRAWN_RUNS):
        drawn = [generator.integers(0, 256, shape) for shape in shapes]
        if (table[drawn[0], drawn[1]] != run_pair(*drawn)).any():
            return None
    return table


def _look_up_pairs(node: Node, table: NDArray[np.uint8], values: tuple[Value, ...]) -> CCall:
    """Return the call of a function of two bytes; ``values`` are both operands and the result."""
    result = values[2]
    arguments = (
        BufferArgument(result.name, written=True),
        *(BufferArgument(one.name) for one in values[:2]),
        *_shorten_pairs(node, table, values),
        *_walk([one.shape for one in values[:2]], result.shape),
    )
    return CCall("dla_combine_bytes", arguments)


def _walk(shapes: Sequence[Sequence[int]], result: Sequence[int]) -> tuple[CArgument, ...]:
    """Return the arguments for the steps of two operands along each dimension of a result."""
    steps = [_broadcast_steps(shape, result) for shape in shapes]
    return DimensionsArgument(tuple(zip(result, *steps, strict=True))), f"{len(result)}u"


def _shorten_pairs(
    node: Node, table: NDArray[np.uint8], values: tuple[Value, ...]
) -> tuple[CArgument, ...]:
    """Return the arguments of ``dla_combine_bytes`` that describe a table of pairs.

    For the sums and products of ONNX Runtime these are two tables of 256 numbers. The expression is
    compared with all entries; where it differs, the arguments are the table itself.
    """
    numbers = table.view(values[2].dtype).astype(np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    if node.integer and node.op_type in (ADD, MULTIPLY):
        operands = sorted(values[:2], key=lambda value: node.inputs.index(value.name))
        one, other, last = map(affine, (*operands, values[2]))
        a, b = (np.arange(256, dtype=np.uint8).view(value.dtype) * 1.0 for value in operands)
        sign, zero = _FLOAT_OPERATIONS[node.op_type], 0
        factors: list[NDArray[np.floating[Any]]]
        if node.op_type == ADD:
            first, second = np.float32(one.scale / last.scale), np.float32(other.scale / last.scale)
            moved = np.float32(second * np.float32(other.zero_point))
            inner = np.float32(float(first) * one.zero_point + float(moved))
            shift = np.float32(last.zero_point) - inner
            factors = [a * first, (b * second + shift).astype(np.float32)]
        else:
            zero = last.zero_point
            scale = np.float32(np.float32(one.scale * other.scale) / last.scale)
            factors = [a - one.zero_point, (b - other.zero_point) * scale]
        both = np.stack(factors[:: 1 if operands[0] is values[0] else -1])
        found = both[0][:, None] + both[1] if sign == "+" else both[0][:, None] * both[1]
        found = found.astype(np.float32) + np.float32(zero)
        if (np.rint(found).clip(low, high) == numbers).all():
            data = ConstantArgument(to_bytes(both), "double")
            return "NULL", data, f"'{sign}'", c_float(zero), str(low), str(high)
    return ConstantArgument(table.reshape(-1)), "NULL", "0", "0.0f", "0", "0"


def _copy_pieces(run: Run, sources: Sequence[Value], result: Value) -> tuple[CCall, ...]:
    """Return strided copies equal to an operator that only moves elements, else none.

    Positions count through the elements of all sources.
    """
    count = sum(source.elements for source in sources)
    dtype = np.dtype(result.dtype)
    first, fills = _run_positions(run, dtype, np.arange(count))
    constant = first == _run_positions(run, dtype, np.arange(1, count + 1))[0]
    moved = first[~constant]
    if moved.size and (moved.min() < 0 or moved.max() >= count):
        return ()
    different = np.unique(fills[constant].view(f"u{dtype.itemsize}"))
    if different.size > 1:
        return ()
    wanted = fills.copy()
    for given in _draw_inputs(dtype, count):
        wanted[~constant] = given[moved]
        if run(given).tobytes() != wanted.tobytes():
            return ()
    calls = []
    if different.size:
        target = BufferArgument(result.name, written=True)
        fill = ConstantArgument(to_bytes(different))
        sizes = (f"{result.elements}u", f"{dtype.itemsize}u")
        calls.append(CCall("dla_fill", (target, fill, *sizes)))
    begin = 0
    for source in sources:
        inside = ~constant & (first >= begin) & (first < begin + source.elements)
        index = np.where(inside, first - begin, NOTHING).reshape(result.shape)
        for piece in find_pieces(index):
            dims = tuple((dim.size, dim.source, dim.target) for dim in piece.dims)
            starts = (piece.target, piece.source)
            calls.append(copy_call(result.name, source.name, dims, dtype.itemsize, starts))
        begin += source.elements
    return tuple(calls) if len(calls) <= MAX_COPIES else ()


def copy_call(
    to: str,
    source: str,
    dims: tuple[tuple[int, int, int], ...],
    item: int,
    starts: tuple[int, int] = (0, 0),
) -> CCall:
    """Return a strided copy of elements of ``item`` bytes; ``starts`` are positions in elements.

    ``dims`` has (count, source step, target step) of each dimension, and ``starts`` the target's
    first element and the source's.
    """
    arguments = (
        BufferArgument(to, written=True, offset=starts[0] * item),
        BufferArgument(source, offset=starts[1] * item),
        DimensionsArgument(dims),
        f"{len(dims)}u",
        f"{item}u",
    )
    return CCall("dla_copy", arguments)


def _run_positions(
    run: Run, dtype: np.dtype[Any], positions: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Run an operator on coded positions.

    Return the decoded result, and the result of the first run. Types of 8 bits need a run for each
    digit of the positions. A number that is no position is decoded as a large negative one.
    """
    if dtype.itemsize > 1:
        made = run(positions).reshape(-1)
        bits = made.view(f"i{made.itemsize}").astype(np.int64)
        whole = (made == np.rint(made)) & ~((made == 0) & np.signbit(made))
        return np.where(whole, made, bits - (1 << 62)).astype(np.int64), made
    base = 2 if dtype == np.bool_ else 256
    digits = range(max(1, math.ceil(math.log(len(positions) + 1, base))))
    runs = [
        run((positions // base**digit % base).astype(np.uint8).view(dtype)).reshape(-1)
        for digit in digits
    ]
    total = np.zeros(runs[0].shape, np.int64)
    for digit, made in zip(digits, runs, strict=True):
        total += base**digit * made.view(np.uint8).astype(np.int64)
    return total, runs[0]
