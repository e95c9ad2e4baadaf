"""Checks of the graph's invariants, after import and after reading a package.

A package can come from any source.
"""

from math import prod
from typing import Any

from byoc.graph import Graph, Node, Value, verify_size
from byoc.operators.domain import FLAGS, INDEX
from byoc.operators.forms import Kinds, flag, integer, numeric, several
from byoc.operators.onnx_view import BOUNDARIES
from byoc.operators.records import MANY
from byoc.operators.registry import get_built_in_families
from isa.errors import InputError


def verify_graph(graph: Graph) -> Graph:
    """Check the invariants of a graph, and return the graph unchanged if they hold.

    Raise :class:`InputError` naming the first node or tensor that breaks an invariant.

    Invariants: node names are unique. Every operand is an input of the graph, a constant, or the
    result of an earlier node. Every tensor has one producer. Constants and quantisations have the
    shape of their tensor. Canonical nodes have the operands and attributes of their operator. All
    values together are within the memory limit.
    """
    for value in graph.values.values():
        _verify_value(value)
    verify_size(graph.values.values())
    known = {
        *graph.inputs,
        *(name for name, value in graph.values.items() if value.constant is not None),
    }
    seen: set[str] = set()
    for node in graph.nodes:
        _require(node.name not in seen, f"two nodes are called '{node.name}'")
        seen.add(node.name)
        for name in node.inputs:
            _require(
                name in known, f"node '{node.name}' reads '{name}', which nothing before it makes"
            )
        for name in node.outputs:
            _require(name not in known, f"node '{node.name}' makes '{name}' a second time")
        known.update(node.outputs)
        _require(
            all(name in graph.values for name in (*node.inputs, *node.outputs)),
            f"node '{node.name}' has no tensors",
        )
        ends = node.op_type not in BOUNDARIES or len(node.outputs) == 1
        _require(ends, f"{node.op_type} '{node.name}' has {len(node.outputs)} outputs")
        if node.integer:
            _verify_canonical(graph, node)
    for name in (*graph.inputs, *graph.outputs):
        _require(name in known and name in graph.values, f"the graph's '{name}' is made by nothing")
    for one in graph.state:
        _require(one.input in graph.inputs, f"the state '{one.name}' is no input")
        _require(
            one.output in {*graph.inputs, *graph.outputs}, f"the state '{one.name}' is no output"
        )
        forms = {
            (value.shape, value.dtype)
            for value in (graph.values[one.input].in_model, graph.values[one.output].in_model)
        }
        _require(
            forms == {(one.initial.shape, one.initial.dtype.name)},
            f"the state '{one.name}' changes its shape or type",
        )
    return graph


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(f"inconsistent graph: {message}")


def _verify_value(value: Value) -> None:
    _require(all(size >= 0 for size in value.shape), f"'{value.name}' has shape {value.shape}")
    layout = value.layout
    if layout is not None:
        fits = sorted(layout.order) == list(range(len(layout.factors))) and not value.open
        fits = fits and prod(layout.shape) == prod(layout.factors) == value.elements
        fits = fits and (
            not layout.dtype or (value.dtype == INDEX and layout.dtype in ("int32", "uint32"))
        )
        _require(fits, f"'{value.name}' of shape {value.shape} has the layout {layout}")
    if value.constant is not None:
        same = value.constant.shape == value.shape and value.constant.dtype.name == value.dtype
        _require(same, f"constant '{value.name}' is not {value.dtype} of shape {value.shape}")
    quantization = value.quantization
    if quantization is not None:
        _require(
            quantization.scale.shape == quantization.zero_point.shape,
            f"'{value.name}' has unequal scales",
        )
        if not quantization.per_tensor:
            axis = quantization.axis
            fits = axis is not None and 0 <= axis < len(value.shape)
            fits = fits and quantization.scale.shape == (value.shape[axis or 0],)
            _require(
                fits,
                f"'{value.name}' of shape {value.shape} has {quantization.scale.size} scales "
                f"along axis {axis}",
            )


def _verify_canonical(graph: Graph, node: Node) -> None:
    # Only built-in operators are checked here; families of plug-ins check their own operands.
    families = get_built_in_families().by_operator.get(node.op_type, ())
    least, most = families[0].arity if families else (1, MANY)
    _require(len(node.outputs) == 1, f"node '{node.name}' has {len(node.outputs)} outputs")
    _require(
        least <= len(node.inputs) <= most,
        f"{node.op_type} '{node.name}' has {len(node.inputs)} operands",
    )
    for form in (
        form for family in families for form in family.forms if form.op_type == node.op_type
    ):
        for key in form.attributes:
            _require(
                key in node.attributes, f"{node.op_type} '{node.name}' has no attribute '{key}'"
            )
    kinds = {
        key: kind for family in families for key, kind in (*family.kinds.items(), *_COMMON.items())
    }
    for key, found in node.attributes.items() if families else ():
        _require(key in kinds, f"nobody reads attribute '{key}' of {node.op_type} '{node.name}'")
        _require(kinds[key](found), f"attribute '{key}' of '{node.name}' is {found!r}")
    misfit = families[0].misfit(graph, node) if families else None
    _require(misfit is None, str(misfit))
    plain = bool(node.attributes.get("plain"))
    for name in () if plain else (*node.inputs[:2], *node.outputs):
        value = graph.values[name]
        real = value.constant is not None and value.dtype == "float32"
        real |= value.dtype in (FLAGS, INDEX)
        _require(
            real or value.quantization is not None, f"'{name}' of '{node.name}' has no quantisation"
        )


def _activation(found: Any) -> bool:
    return found == "Relu" or (
        isinstance(found, tuple) and found[:1] == ("Clip",) and several(numeric, 2)(found[1:])
    )


_COMMON: Kinds = {
    "plain": flag,
    "activation": _activation,
    "zero_points": several(several(integer(-128)), 2),
    "numerics": lambda found: isinstance(found, str),
}
"""Attributes that importers set on nodes of any family."""
