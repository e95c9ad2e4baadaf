"""Variants of a running node: other attributes, inputs, outputs and types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, NodeProto, helper

from tests.byoc.node_cases import (
    FLOAT,
    Arrays,
    Case,
    Parameter,
)
from tests.byoc.running_nodes import backend_cases


def variants(case: Case, values: int = 3) -> Iterator[Case]:
    """Yield the case with one attribute, input or output changed, or with one constant computed.

    An attribute, input or output is removed, added or changed.
    """
    for item in case.node.attribute:
        yield case.attribute(item.name, None, f"without {item.name}")
    for name, attribute in case.schema.attributes.items():
        tried = (
            case.attribute(name, value, f"{name} = {value}")
            for value in _values(case, name, attribute)
        )
        yield from islice((other for other in tried if other.outputs is not None), values)
    yield from _other_inputs(case)
    yield from _other_outputs(case)
    yield from _other_types(case)
    for name in case.constants:
        yield _computed(case, name)


def _values(case: Case, name: str, attribute: Any) -> Iterator[Any]:
    """Yield values for an attribute that are not its default.

    Values of other nodes of the operator come first, then other values of its type.
    """
    known = {item.name: item for item in case.node.attribute}
    present = helper.get_attribute_value(known[name]) if name in known else None
    others = chain(
        _values_elsewhere(case.operator, name), _values_of_type(case, attribute, present)
    )
    default = (
        helper.get_attribute_value(attribute.default_value) if _has_default(attribute) else None
    )
    shown = {repr(present), repr(default)}
    for value in others:
        if repr(value) not in shown:
            shown.add(repr(value))
            yield value


def _has_default(attribute: Any) -> bool:
    value = getattr(attribute, "default_value", None)
    return isinstance(value, AttributeProto) and bool(value.type)


def _values_elsewhere(operator: str, name: str) -> Iterator[Any]:
    for case in backend_cases().get(operator, ()):
        for item in case.node.attribute:
            if item.name == name and item.type != AttributeProto.GRAPH:
                yield helper.get_attribute_value(item)


def _values_of_type(case: Case, attribute: Any, present: Any) -> Iterable[Any]:
    kind = str(attribute.type).rpartition(".")[2]
    words = sorted(case.schema.words)
    if kind == "INT":
        return (1, 0, 2, -1, 3, 10)
    if kind == "FLOAT":
        return (0.5, 2.0, 1.0, 0.1)
    if kind == "STRING":
        return words
    if kind == "STRINGS" and isinstance(present, list):
        return ([word] * len(present) for word in words)
    if kind == "INTS":
        bumped = [[number + 1 for number in present]] if isinstance(present, list) else []
        return (*bumped, *([number] * count for number in (1, 2, 0) for count in range(1, 7)))
    if kind == "STRINGS":
        return ([word] * count for word in words for count in (1, 2, 3, 4, 6))
    if kind == "FLOATS":
        return ([number] * count for number in (0.5, 2.0) for count in range(1, 7))
    return ()


def _other_inputs(case: Case) -> Iterator[Case]:
    names = list(case.node.input)
    for index, formal in enumerate(case.schema.inputs):
        present = index < len(names) and bool(names[index])
        if not formal.optional:
            continue
        if present:
            yield _with_inputs(
                case, {index: ""}, {}, (formal.name, names[index]), f"without {formal.name}"
            )
            continue
        arrays = (
            _with_inputs(
                case,
                {index: "added"},
                {"added": array},
                (formal.name, "added"),
                f"{formal.name} {array.dtype} {list(array.shape)}",
            )
            for array in _arrays(case, formal)
        )
        yield from islice((other for other in arrays if other.outputs is not None), 1)


def _with_inputs(
    case: Case, names: Mapping[int, str], more: Arrays, changed: tuple[str, ...], text: str
) -> Case:
    node = NodeProto()
    node.CopyFrom(case.node)
    while len(node.input) <= max(names):
        node.input.append("")
    for index, name in names.items():
        node.input[index] = name
    while node.input and not node.input[-1]:
        del node.input[-1]
    feeds = {name: array for name, array in case.feeds.items() if name in node.input}
    constants = {name: array for name, array in case.constants.items() if name in node.input}
    return replace(
        case, node=node, feeds=feeds, constants={**constants, **more}, changed=changed, text=text
    )


DTYPES = {
    FLOAT: np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
}
MOST_SHAPES = 200


def _arrays(case: Case, formal: Parameter) -> Iterator[NDArray[Any]]:
    """Yield small arrays of the types that a formal input takes.

    Their shapes consist of the node's own dimensions.
    """
    dtype = next((dtype for name, dtype in DTYPES.items() if name in formal.types), None)
    if dtype is None:
        return
    shapes = [
        array.shape
        for array in (*case.feeds.values(), *case.constants.values(), *(case.outputs or ()))
    ]
    sizes = sorted({1, 2, *(size for shape in shapes for size in shape)})
    few = sorted({*sizes, *(factor * size for factor in (2, 3) for size in sizes)})
    drawn = chain(
        [()], shapes, *(product(few if rank < 3 else sizes, repeat=rank) for rank in (1, 2, 3, 4))
    )
    for shape in islice(dict.fromkeys(drawn), MOST_SHAPES):
        yield np.ones(shape, dtype)


def _other_outputs(case: Case) -> Iterator[Case]:
    names = list(case.node.output)
    for index, formal in enumerate(case.schema.outputs):
        if not formal.optional:
            continue
        present = index < len(names) and bool(names[index])
        node = NodeProto()
        node.CopyFrom(case.node)
        while len(node.output) <= index:
            node.output.append("")
        node.output[index] = "" if present else "shown"
        while node.output and not node.output[-1]:
            del node.output[-1]
        if not node.output:
            continue
        changed = (formal.name, names[index] if present else "shown")
        other = replace(
            case,
            node=node,
            changed=changed,
            text=f"{'without' if present else 'with'} {formal.name}",
        )
        if present or other.outputs is not None:  # ONNX Runtime may not find the type of an output
            yield other


def _other_types(case: Case) -> Iterator[Case]:
    """Yield the case with its first operand as float16, double or int32.

    All operands of the same type change with it. ONNX Runtime must accept the type.
    """
    index, name = next((index, name) for index, name in enumerate(case.node.input) if name)
    kind = case.schema.inputs[min(index, len(case.schema.inputs) - 1)].kind
    formal = [
        case.schema.inputs[min(place, len(case.schema.inputs) - 1)]
        for place in range(len(case.node.input))
    ]
    alike = {
        other
        for other, item in zip(case.node.input, formal, strict=True)
        if other and item.kind == kind
    }
    for dtype in (np.float16, np.float64, np.int32):
        feeds, constants = (
            {
                other: array.astype(dtype) if other in alike else array
                for other, array in arrays.items()
            }
            for arrays in (case.feeds, case.constants)
        )
        changed = replace(
            case,
            feeds=feeds,
            constants=constants,
            changed=(np.dtype(dtype).name,),
            text=np.dtype(dtype).name,
        )
        if name in feeds and changed.outputs is not None:
            yield changed


def _computed(case: Case, name: str) -> Case:
    """The case with a constant as an input of the model."""
    places = [index for index, other in enumerate(case.node.input) if other == name]
    formal = case.schema.inputs[min(places[0], len(case.schema.inputs) - 1)].name
    constants = {other: array for other, array in case.constants.items() if other != name}
    feeds = {**case.feeds, name: case.constants[name]}
    return replace(
        case, feeds=feeds, constants=constants, changed=(name, formal), text=f"{formal} computed"
    )
