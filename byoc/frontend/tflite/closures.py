"""Merge chains of element-wise operators on one 8-bit tensor and constants into 256-entry tables.

LiteRT runs the operators on every possible value, so a table is exact by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite.cutting import cut_model, operators_between
from byoc.frontend.tflite.file import TfliteModel, TFLiteOperator
from byoc.operators.domain import INT8
from byoc.runtimes.litert import Resolver
from byoc.runtimes.litert_process import LiteRTModel
from isa.errors import InputError

_LONE = frozenset({"RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE", "MINIMUM", "MAXIMUM"})
"""Operators with an instruction of their own; a single one of them does not become a table."""
CLOSES = _LONE | {
    "ABS", "ADD", "CEIL", "COS", "DEQUANTIZE", "DIV", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH",
    "LEAKY_RELU", "LOG", "LOGISTIC", "MUL", "NEG", "POW", "PRELU", "RELU_0_TO_1", "ROUND", "RSQRT",
    "SIGN", "SIN", "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "SUB", "TANH",
    "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
    "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NOT_EQUAL", "SELECT", "SELECT_V2",
}  # fmt: skip
"""Operators whose subgraphs can become a table."""


@dataclass(frozen=True)
class TFLiteClosure:
    """Element-wise operators that compute tensor ``result`` from tensor ``source`` alone.

    If ``channels`` is not 1, every channel has a function of its own.
    """

    source: int
    result: int
    operators: tuple[int, ...]
    channels: int


def find_closures(model: TfliteModel) -> tuple[dict[int, TFLiteClosure], frozenset[int]]:
    """Return chains of element-wise operators that become tables, by result tensor.

    The indices of the operators that become unnecessary are returned too.
    """
    origins: dict[int, int] = {}
    for operator in model.operators:
        source = _source(model, operator, origins)
        if source is not None:
            origins[operator.outputs[0]] = source
    needed = set(model.outputs)
    found = dict[int, TFLiteClosure]()
    absorbed = set[int]()
    for number in reversed(range(len(model.operators))):
        operator = model.operators[number]
        if not needed.intersection(operator.outputs):
            absorbed.add(number)
            continue
        closure = (
            _closure(model, operator.outputs[0], origins)
            if operator.outputs[0] in origins
            else None
        )
        if closure is not None:
            found[closure.result] = closure
        needed.update(operator.inputs if closure is None else (closure.source,))
    return found, frozenset(absorbed)


def _source(model: TfliteModel, operator: TFLiteOperator, origins: dict[int, int]) -> int | None:
    """Return the only 8-bit tensor that an element-wise operator's result is computed from.

    Returns None if there is none.
    """
    if operator.kind not in CLOSES or operator.custom or len(operator.outputs) != 1:
        return None
    tensors = model.tensors
    computed = [
        number for number in operator.inputs if number >= 0 and not tensors[number].constant
    ]
    sources = {origins.get(number, number) for number in computed}
    if len(sources) != 1:
        return None
    (source,) = sources
    shape = tensors[source].shape
    if (
        tensors[source].dtype not in INT8
        or not shape
        or tensors[operator.outputs[0]].shape != shape
    ):
        return None
    constants = [
        tensors[number] for number in operator.inputs if number >= 0 and tensors[number].constant
    ]
    lasts = {constant.shape[-1:] for constant in constants} - {(), (1,)}
    along_channels = not lasts or (lasts == {shape[-1:]} and len(shape) in (1, 2, 4))
    single = all(
        constant.data is not None and prod(constant.shape[:-1]) == 1 for constant in constants
    )
    return source if along_channels and single else None


def _closure(model: TfliteModel, result: int, origins: dict[int, int]) -> TFLiteClosure | None:
    if model.tensors[result].dtype not in INT8:
        return None
    source = origins[result]
    chosen = tuple(operators_between(model, [source], [result]))
    if len(chosen) == 1 and model.operators[chosen[0]].kind in _LONE:
        return None
    constants = {
        n
        for place in chosen
        for n in model.operators[place].inputs
        if n >= 0 and model.tensors[n].constant
    }
    several = any(model.tensors[number].shape[-1:] not in ((), (1,)) for number in constants)
    return TFLiteClosure(source, result, chosen, model.tensors[source].shape[-1] if several else 1)


def tabulate(model: TfliteModel, closure: TFLiteClosure) -> tuple[NDArray[np.generic], str]:
    """Return the look-up table of element-wise operators, and the numerics it is valid for.

    The table is in the order of the source type's bytes and has shape (256,) or (channels, 256). If
    LiteRT's reference and default kernels differ, the reference table is returned. Raises
    InputError if neither runs the operators.
    """
    try:
        table = _tabulate(model, closure, "reference")
    except InputError:  # for example ELU, version 1
        return _tabulate(model, closure, "default"), "onnxruntime"
    try:
        same = np.array_equal(table, _tabulate(model, closure, "default"))
    except InputError:
        same = False
    return table, "" if same else "fixed"


def _tabulate(
    model: TfliteModel, closure: TFLiteClosure, resolver: Resolver
) -> NDArray[np.generic]:
    source = model.tensors[closure.source]
    values = np.arange(256, dtype=np.uint8).view(source.dtype)
    flat = len(source.shape) == closure.channels == 1
    shape = (256,) if flat else (256, *(1 for _ in source.shape[1:-1]), closure.channels)
    made = LiteRTModel(cut_model(model, [closure.source], [closure.result]), resolver)
    every = np.ascontiguousarray(
        np.broadcast_to(values.reshape(256, *(1 for _ in shape[1:])), shape)
    )
    found = made.run({closure.source: every}, [closure.result])[closure.result]
    return np.ascontiguousarray(
        found.reshape(256, closure.channels).T if closure.channels > 1 else found.reshape(256)
    )
