"""The graph's invariants, checked after import and after reading a package that anybody may have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from byoc.graph import Graph, Node, Value
from byoc.patterns.registry import built_in
from isa.errors import InputError

_WINDOW = ("kernel", "strides", "dilations", "pads")
# Canonical operator: least and most operands, attributes it must have.
_OPERATORS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "Conv": (2, 3, (*_WINDOW, "group")),
    "MatMul": (2, 3, ()),
    "MaxPool": (1, 1, _WINDOW),
    "AveragePool": (1, 1, (*_WINDOW, "count_include_pad", "ceil_mode")),
    "Concat": (1, 1 << 16, ("axis",)),
    "Transpose": (1, 1, ("perm",)),
    "LeakyRelu": (1, 1, ("alpha",)),
    "Add": (2, 2, ()),
    "Min": (1, 1 << 16, ()),
    "Max": (1, 1 << 16, ()),
}


def verify_graph(graph: Graph) -> Graph:
    """``graph`` itself. Raises :class:`InputError` that names the first node or tensor which breaks an invariant.

    Invariants: unique node names; every operand is an input of the graph, a constant, or made by an earlier node; every
    tensor is made once; constants and quantisations have the shape of their tensor; canonical nodes have the operands
    and attributes of their operator.
    """
    for value in graph.values.values():
        _verify_value(value)
    known = {*graph.inputs, *(name for name, value in graph.values.items() if value.constant is not None)}
    seen: set[str] = set()
    for node in graph.nodes:
        _require(node.name not in seen, f"two nodes are called '{node.name}'")
        seen.add(node.name)
        for name in node.inputs:
            _require(name in known, f"node '{node.name}' reads '{name}', which nothing before it makes")
        for name in node.outputs:
            _require(name not in known, f"node '{node.name}' makes '{name}' a second time")
        known.update(node.outputs)
        _require(
            all(name in graph.values for name in (*node.inputs, *node.outputs)), f"node '{node.name}' has no tensors"
        )
        if node.integer:
            _verify_canonical(graph, node)
    for name in (*graph.inputs, *graph.outputs):
        _require(name in known and name in graph.values, f"the graph's '{name}' is made by nothing")
    return graph


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(f"inconsistent graph: {message}")


def _verify_value(value: Value) -> None:
    _require(all(size >= 0 for size in value.shape), f"'{value.name}' has shape {value.shape}")
    if value.constant is not None:
        same = value.constant.shape == value.shape and value.constant.dtype.name == value.dtype
        _require(same, f"constant '{value.name}' is not {value.dtype} of shape {value.shape}")
    quantization = value.quantization
    if quantization is not None:
        _require(quantization.scale.shape == quantization.zero_point.shape, f"'{value.name}' has unequal scales")
        if not quantization.per_tensor:
            axis = quantization.axis
            fits = axis is not None and 0 <= axis < len(value.shape)
            fits = fits and quantization.scale.shape == (value.shape[axis or 0],)
            _require(
                fits, f"'{value.name}' of shape {value.shape} has {quantization.scale.size} scales along axis {axis}"
            )


def _verify_canonical(graph: Graph, node: Node) -> None:
    # What an operator of another package wants of its operands its own pattern knows.
    most_if_unlisted = 1 if node.op_type in built_in().by_operator else 1 << 16
    least, most, required = _OPERATORS.get(node.op_type, (1, most_if_unlisted, ()))
    _require(len(node.outputs) == 1, f"node '{node.name}' has {len(node.outputs)} outputs")
    _require(least <= len(node.inputs) <= most, f"{node.op_type} '{node.name}' has {len(node.inputs)} operands")
    for key in required:
        _require(key in node.attributes, f"{node.op_type} '{node.name}' has no attribute '{key}'")
    for key, attribute in node.attributes.items():
        _require(_FORMS.get(key, lambda found: True)(attribute), f"attribute '{key}' of '{node.name}' is {attribute!r}")
    _verify_ranks(graph, node)
    plain = bool(node.attributes.get("plain"))
    for name in () if plain else (*node.inputs[:2], *node.outputs):
        _require(graph.values[name].quantization is not None, f"'{name}' of '{node.name}' has no quantisation")
    _require("zero_points" in node.attributes or not plain or node.op_type not in ("Conv", "MatMul"), f"'{node.name}'")


def _verify_ranks(graph: Graph, node: Node) -> None:
    """Ranks that patterns rely on: windows have a size for every spatial dimension, matrices have columns."""
    source, result = graph.values[node.inputs[0]].shape, graph.values[node.outputs[0]].shape
    attributes = node.attributes
    if "kernel" in attributes:
        spatial = len(source) - 2
        lengths = [len(attributes[key]) for key in _WINDOW]
        fits = lengths == [spatial, spatial, spatial, 2 * spatial] and len(result) == len(source)
        fits = fits and source[0] == result[0] and _windows_fit(attributes, source[2:], result[2:])
        _require(fits, f"the window of '{node.name}' does not fit input {source} and output {result}")
    if node.op_type == "Conv":
        filters = graph.values[node.inputs[1]].shape
        fits = len(filters) == len(source) and filters[2:] == attributes["kernel"]
        fits = fits and filters[1] * attributes["group"] == source[1] and filters[0] == result[1]
        _require(fits, f"the weights of '{node.name}' have shape {filters} for input {source} and output {result}")
    if node.op_type == "MatMul":
        matrix = graph.values[node.inputs[1]].shape
        products = source[-1:] == matrix[:1] and (*source[:-1], *matrix[1:]) == result
        fits = len(matrix) != 2 or products or bool(node.attributes.get("transA"))
        _require(fits, f"the weights of '{node.name}' have shape {matrix} for input {source} and output {result}")
    if "Global" in node.op_type:
        _require(len(source) >= 2 and len(result) == len(source), f"'{node.name}' pools shape {source}")


def _windows_fit(attributes: Mapping[str, Any], source: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether the last window along every dimension ends inside the padded input."""
    rank = len(source)
    for axis, (size, count) in enumerate(zip(source, result, strict=True)):
        reach = (attributes["kernel"][axis] - 1) * attributes["dilations"][axis] + 1
        padded = size + attributes["pads"][axis] + attributes["pads"][rank + axis]
        if (count - 1) * attributes["strides"][axis] + reach > padded:
            return False
    return True


def _integers(least: int) -> Callable[[Any], bool]:
    return lambda found: isinstance(found, tuple) and all(type(n) is int and n >= least for n in found)


def _numbers(found: Any, count: int) -> bool:
    return isinstance(found, tuple) and len(found) == count and all(isinstance(n, (int, float)) for n in found)


def _is_activation(found: Any) -> bool:
    return found == "Relu" or (isinstance(found, tuple) and found[:1] == ("Clip",) and _numbers(found[1:], 2))


_FORMS: Mapping[str, Callable[[Any], bool]] = {
    "kernel": _integers(1),
    "strides": _integers(1),
    "dilations": _integers(1),
    "pads": _integers(0),
    "perm": _integers(0),
    "group": lambda found: type(found) is int and found >= 1,
    "axis": lambda found: type(found) is int and found >= 0,
    "alpha": lambda found: isinstance(found, (int, float)),
    "beta": lambda found: isinstance(found, (int, float)),
    "bounds": lambda found: _numbers(found, 2),
    "activation": _is_activation,
    "zero_points": lambda found: isinstance(found, tuple) and len(found) == 2 and all(map(_integers(-128), found)),
}
