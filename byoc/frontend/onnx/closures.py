"""Find closures: subgraphs of element-wise nodes from one tensor and constants to one result.

The result is a function of one value. In a quantised model, from one tensor of 8 bits or flags to
another, it becomes a table of 256 results; ONNX Runtime runs the nodes once on every value to fill
it. In a float model, a closure is quantised only at its ends.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper

from byoc.frontend.onnx.units import IntegerUnit, recognise
from byoc.operators import domain
from byoc.operators.onnx_view import BOUNDARIES, DEQUANTIZE, QUANTIZE, OnnxNode, OnnxView
from byoc.operators.registry import load_installed_families
from byoc.operators.table import channels_of
from byoc.runtimes.pieces import Run, find_unfused, run_in_pieces
from byoc.runtimes.session import OnnxRuntimeSession

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_CONSTANT = ""
"""Origin of constants and of tensors computed from constants alone."""
Origins = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Closure:
    """Connected element-wise nodes that compute tensor ``result`` from tensor ``source`` alone.

    ``origins`` names, for other tensors too, the one tensor that they are computed from.
    """

    source: str
    result: str
    nodes: tuple[OnnxNode, ...]
    origins: Origins


def integer_closures(view: OnnxView) -> dict[str, Closure]:
    """Return the closures from 8-bit tensors or flags to QuantizeLinear or flags, by result.

    Only closures whose result is used outside are returned. A node that a family other than tables
    can run by itself does not become a table: closures end before it and start after it where
    possible.
    """

    def is_begin(name: str) -> bool:
        return (
            view.element_type(name) in domain.STORED
            and name not in view.constants
            and _has_one_meaning(view, name)
        )

    whole = _origins(view, is_begin, ())

    def alone(node: OnnxNode) -> bool:
        return node.op_type == QUANTIZE and _is_unit(view, node, whole)

    def is_end(node: OnnxNode) -> bool:
        return node.op_type == QUANTIZE or (_is_elementwise(node) and _is_flag_operator(view, node))

    return _closures(view, is_begin, is_end, alone, whole=True)


def float_closures(view: OnnxView) -> dict[str, Closure]:
    """Return the float32 and flag closures whose results are used outside them.

    They are in execution order.
    """

    def is_begin(name: str) -> bool:
        return view.element_type(name) in ("float32", domain.FLAGS) and name not in view.constants

    def alone(node: OnnxNode) -> bool:
        found = load_installed_families().forms.get(node.op_type)
        variable = [name for name in node.reads if name not in view.constants]
        if (
            found is None
            or not node.standard
            or not found[1].quantise
            or found[0].must_stay_float(node, view.constants)
        ):
            return False
        return found[1].operands == 1 and len(variable) == 1

    found = _closures(view, is_begin, _is_elementwise, alone, whole=False)
    return dict(reversed(found.items()))


def find_absorbed(view: OnnxView, closures: Mapping[str, Closure]) -> set[str]:
    """Return the names of the nodes that are not needed once tables replace ``closures``."""
    needed = set(view.outputs)
    unneeded = set()
    for node in reversed(view.nodes):
        if not needed.intersection(node.outputs):
            unneeded.add(node.name)
        elif node.outputs[0] in closures:
            needed.add(closures[node.outputs[0]].source)
        else:
            needed.update(node.reads)
    return unneeded


def tabulate(
    model: ModelProto, view: OnnxView, closure: Closure, protos: Mapping[str, NodeProto]
) -> NDArray[Any]:
    """Run a closure's nodes on every value of its source and return the look-up table.

    The shape is (256,), in the order of the source type's bytes, or (channels, 256) if every
    channel has its own function. For flags, entry 0 is the result of False and the 255 others are
    that of True. The nodes, ``protos`` by first output, run as in the whole model, together with
    all other nodes that are computed from the source.
    """
    siblings = _find_computed_from(view, closure.origins, closure.source)
    results = dict.fromkeys(
        (
            closure.result,
            *(node.outputs[0] for node in siblings if _has_outside_uses(view, closure, node)),
        )
    )
    chosen = _find_between(view, closure.source, results)
    names = dict.fromkeys(name for node in chosen for name in node.reads if name in view.constants)
    dtype = np.dtype(view.element_type(closure.source))
    octets = np.arange(256, dtype=np.uint8)
    shape = view.shape(closure.source)
    values = octets.astype(dtype) if dtype == np.bool_ else octets.view(dtype)
    several = [
        any(_is_per_channel(view, node, name, shape) for name in node.reads) for node in chosen
    ]
    channels = channels_of(shape) if any(several) else 1
    rank = len(shape)
    if rank == 1 and any(several):
        rank = 2  # one row of channels
    # The 256 values are adjacent in every channel's plane, or in rows if there are no planes.
    lying = (1, 1, 256, *(1 for _ in shape[3:])) if rank > 2 else (256, 1)[: max(rank, 1)]
    whole = np.broadcast_shapes(lying, (1, channels, *(1 for _ in shape[2:])) if rank > 1 else ())
    every = np.ascontiguousarray(np.broadcast_to(values.reshape(lying), whole))
    part = helper.make_graph(
        [protos[node.outputs[0]] for node in chosen],
        "table",
        [
            helper.make_tensor_value_info(
                closure.source, helper.np_dtype_to_tensor_dtype(dtype), every.shape
            )
        ],
        [_information(view, name) for name in results],
        [numpy_helper.from_array(view.constants[name], name) for name in names],
    )
    cut = helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
    table = _make_run(view, cut)({closure.source: every})[closure.result]
    rows = np.ascontiguousarray(table.reshape(channels, 256) if rank != 2 else table.T)
    own = any(
        _is_per_channel(view, node, name, shape) for node in closure.nodes for name in node.reads
    )
    return rows if own else rows[0]


def _make_run(view: OnnxView, model: ModelProto) -> Run:
    """Return a function that runs a closure's nodes, in pieces if none of them can be fused."""
    names = {name for node in model.graph.node for name in node.output}
    plain = names <= find_unfused(model.graph)
    if plain:
        inner = names - {value.name for value in model.graph.output}
        model.graph.value_info.extend(_information(view, name) for name in sorted(inner))

    def make_run(piece: ModelProto) -> Run:
        ends = [value.name for value in piece.graph.output]
        return partial(OnnxRuntimeSession(piece, optimised=not plain).run, ends)

    return run_in_pieces(model, [], names if plain else [], make_run)


def _information(view: OnnxView, name: str) -> Any:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(view.element_type(name))), None
    )


def _has_outside_uses(view: OnnxView, closure: Closure, node: OnnxNode) -> bool:
    """Return True if a node is a QuantizeLinear whose result is used outside its closure."""
    name = node.outputs[0]
    users = view.consumers.get(name, ())
    outside = any(closure.origins.get(user.outputs[0]) != closure.source for user in users)
    return node.op_type == QUANTIZE and (outside or name in view.outputs)


def _has_one_meaning(view: OnnxView, name: str) -> bool:
    """Return True if all DequantizeLinear nodes of a tensor have equal scale and zero point."""
    readers = [
        node
        for node in view.consumers.get(name, ())
        if node.op_type == DEQUANTIZE and node.inputs[0] == name
    ]
    found = [view.quantization_of(node) for node in readers]
    return all(one is not None and found[0] is not None and one.same_as(found[0]) for one in found)


def _is_unit(view: OnnxView, node: OnnxNode, origins: Origins) -> bool:
    """Return True if a QuantizeLinear ends an integer unit that is better than a table.

    Such a unit runs on more machines than tables do. No operand may be constant. A unit of several
    operands that needs its own instruction does not count if all operands are computed from one
    tensor: x · sigmoid(x) is one table.
    """
    maker = view.producer.get(node.inputs[0])
    if maker is None:
        return False
    found = recognise(view, node if maker.op_type == DEQUANTIZE else maker)
    if not isinstance(found, IntegerUnit) or found.result != node.outputs[0]:
        return False
    if not _is_elementwise(found.node):
        return True
    result = node.outputs[0]
    later = found.family is not None and bool(found.family.instructions)
    if later and len(found.operands) > 1 and origins.get(result, result) != result:
        return False
    return not any(name in view.constants for name in found.operands)


def _is_elementwise(node: OnnxNode) -> bool:
    known = node.op_type in load_installed_families().closes.operators and node.domain in _DOMAINS
    return known and len(node.outputs) == 1 and not node.captured


def _is_flag_operator(view: OnnxView, node: OnnxNode) -> bool:
    return view.element_type(node.outputs[0]) == domain.FLAGS


def _closures(
    view: OnnxView,
    begins: Callable[[str], bool],
    ends: Callable[[OnnxNode], bool],
    alone: Callable[[OnnxNode], bool],
    whole: bool,
) -> dict[str, Closure]:
    """Return the closures that end at nodes accepted by ``ends``, by result, last one first.

    With ``whole``, no tensor inside a closure may have other consumers. Closures start as early as
    possible, but not before a node that can run ``alone``, unless that node is inside a diamond.
    """
    apart = {node.outputs[0] for node in view.nodes if alone(node)}
    anew = _origins(view, begins, apart)
    deepest = _origins(view, begins, ())
    needed = set(view.outputs)
    found = dict[str, Closure]()
    for node in reversed(view.nodes):
        if not needed.intersection(node.outputs):
            continue
        name = node.outputs[0]
        for origins in (anew, deepest) if ends(node) and name not in apart else ():
            source = origins.get(name, _CONSTANT)
            # After a diamond with a node that could run alone, a second closure would end: both
            # become one.
            between = source not in apart and deepest.get(source) != source
            if source in (_CONSTANT, name) or between:
                continue
            nodes = _find_between(view, source, (name,))
            if not whole or all(_is_kept_inside(view, origins, source, inner) for inner in nodes):
                found[name] = Closure(source, name, nodes, origins)
                break
        needed.update((found[name].source,) if name in found else node.reads)
    return found


def _is_kept_inside(view: OnnxView, origins: Origins, source: str, node: OnnxNode) -> bool:
    """Return True if only nodes of the same closure read the result of one of its nodes.

    ONNX Runtime then fuses it in the part as in the whole model. Flags do not count, because ONNX
    Runtime never fuses them. Dequantised tensors do not count, because it gives every consumer a
    DequantizeLinear of its own.
    """
    name = node.outputs[0]
    if (
        node.op_type in BOUNDARIES
        or origins.get(name) == _CONSTANT
        or _is_flag_operator(view, node)
    ):
        return True
    users = view.consumers.get(name, ())
    return name not in view.outputs and all(
        origins.get(user.outputs[0]) == source for user in users
    )


def _find_between(view: OnnxView, source: str, results: Collection[str]) -> tuple[OnnxNode, ...]:
    """Return the nodes that ``results`` depend on, stopping at ``source``."""
    waiting = [name for name in results if name != source]
    chosen = dict[int, OnnxNode]()
    while waiting:
        node = view.producer.get(waiting.pop())
        if node is not None and (place := view.places[node.name]) not in chosen:
            chosen[place] = node
            waiting += [name for name in node.reads if name != source]
    return tuple(chosen[place] for place in sorted(chosen))


def _find_computed_from(view: OnnxView, origins: Origins, source: str) -> tuple[OnnxNode, ...]:
    """Return the producer of tensor ``source`` and the nodes computed from ``source`` alone."""
    maker = view.producer.get(source)
    waiting = [source]
    found = {} if maker is None else {view.places[maker.name]: maker}
    while waiting:
        for node in view.consumers.get(waiting.pop(), ()):
            place = view.places[node.name]
            if place not in found and origins.get(node.outputs[0]) == source:
                found[place] = node
                waiting += node.outputs
    return tuple(found[place] for place in sorted(found))


def _origins(view: OnnxView, begins: Callable[[str], bool], apart: Collection[str]) -> Origins:
    """Map each tensor computed element by element from a single tensor to that tensor.

    Tensors ``apart`` are their own origin.
    """
    found = dict.fromkeys(view.constants, _CONSTANT)
    found |= {name: name for name in view.inputs if begins(name)}
    for node in view.nodes:
        origin = _origin(view, node, found)
        for name in node.outputs:
            if origin is not None and name not in apart:
                found[name] = origin
            elif name and begins(name):
                found[name] = name
    return found


def _origin(view: OnnxView, node: OnnxNode, found: Origins) -> str | None:
    """Return the only tensor that an element-wise node's result is computed from.

    Returns None if there is none or if the shape changes.
    """
    if node.op_type in BOUNDARIES:
        quantization = view.quantization_of(node)
        if quantization is None or not quantization.per_tensor:
            return None
    elif not _is_elementwise(node):
        return None
    if any(name not in found for name in node.reads):
        return None
    sources = {found[name] for name in node.reads} - {_CONSTANT}
    if len(sources) != 1:
        return None if sources else _CONSTANT
    source = sources.pop()
    shape = view.shape(source)
    for name in (*node.reads, *node.outputs):
        if found.get(name) == _CONSTANT:
            fits = int(np.prod(view.shape(name))) == 1 or _is_per_channel(view, node, name, shape)
        else:
            fits = view.shape(name) == shape
        if not fits:
            return None
    return source


def _is_per_channel(view: OnnxView, node: OnnxNode, name: str, shape: tuple[int, ...]) -> bool:
    """Return True if a constant operand has one number per channel of the data."""
    own = view.shape(name)
    if node.op_type in load_installed_families().closes.vectors:
        return name in node.inputs[1:] and own == shape[1:2]
    whole = (1,) * (max(len(shape), 2) - len(own)) + own
    channels = channels_of(shape)
    second = (
        node.op_type in load_installed_families().closes.channel_seconds and node.input(1) == name
    )
    beside = node.op_type in load_installed_families().closes.channel_floats and view.quantised
    beside = beside and name in view.constants and view.element_type(name) == "float32"
    return (second or beside) and whole == (1, channels, *(1 for _ in shape[2:]))
