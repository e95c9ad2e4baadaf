"""Rewrite rules for data movement and common subexpressions; exact, for every model."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from byoc.frontend.onnx.rewriting.law import ANY, GraphView, Law, make_pass
from byoc.frontend.onnx.rewriting.paddings import PadIntoConv, PadIntoPool
from byoc.operators.registry import load_installed_families
from byoc.runtimes.protobuf import attributes, bodies, copy_node

Shape = tuple[int, ...]
KEEPERS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that change a tensor's shape and keep the order of its elements."""
CHAINED = KEEPERS | {"Transpose"}
CLAMPS = frozenset({"Relu", "Clip"})


# Chains of reshapes and transposes.


@dataclass(frozen=True)
class _Factor:
    """Factor of a dimension's size, with its stride in elements of the source tensor."""

    size: int
    stride: int


def _factors(shape: Shape) -> list[list[_Factor]]:
    """Return the dimensions of a tensor as factors with strides, in row-major order."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [
        [_Factor(size, stride)] if size > 1 else []
        for size, stride in zip(shape, strides, strict=True)
    ]


def _regroup_factors(factors: Iterable[_Factor], shape: Shape) -> list[list[_Factor]] | None:
    """Regroup factors into dimensions of ``shape``; None if that splits a factor unevenly."""
    waiting = list(factors)[::-1]
    dims = []
    for size in shape:
        dim: list[_Factor] = []
        while size > 1:
            factor = waiting.pop()
            if factor.size > size:
                if factor.size % size:
                    return None
                inner = factor.size // size
                waiting.append(_Factor(inner, factor.stride))
                factor = _Factor(size, factor.stride * inner)
            elif size % factor.size:
                return None
            dim.append(factor)
            size //= factor.size
        dims.append(dim)
    return dims


def _join_factors(factors: Iterable[_Factor]) -> list[_Factor]:
    """Merge neighbouring factors whose strides allow one larger factor."""
    found: list[_Factor] = []
    for factor in factors:
        if found and found[-1].stride == factor.size * factor.stride:
            found[-1] = _Factor(found[-1].size * factor.size, factor.stride)
        else:
            found.append(factor)
    return found


@dataclass(frozen=True)
class _MovementPlan:
    """Reshape, Transpose and Reshape that replace a chain of data movement nodes."""

    source: str
    before: Shape
    perm: tuple[int, ...]
    after: Shape
    whole: Shape

    @property
    def moves(self) -> bool:
        """True if the movement changes the order of elements, so that it needs a Transpose."""
        return bool(self.perm)

    @property
    def nodes(self) -> int:
        if not self.moves:
            return int(self.whole != self.after)
        return (
            1
            + (self.before != self.whole)
            + (tuple(self.before[axis] for axis in self.perm) != self.after)
        )

    @property
    def cost(self) -> tuple[int, int]:
        """Cost of a movement: first the number of copying nodes, then the number of nodes."""
        return int(self.moves), self.nodes


def _plan(
    source: str, whole: Shape, dims: Sequence[Sequence[_Factor]], after: Shape
) -> _MovementPlan:
    """Return the data movement with the fewest nodes from shape ``whole`` to ``after``.

    ``dims`` are the dimensions of the result in factors of the source.
    """
    factors = _join_factors(factor for dim in dims for factor in dim)
    if len(factors) < 2:
        return _MovementPlan(source, whole, (), after, whole)
    plans = [
        _plan_permutation(
            source, whole, [factor.size for factor in _sort_factors(factors)], factors, after
        )
    ]
    single = [_join_factors(dim) for dim in dims]
    # The permutation may end in the shape ``after`` itself.
    if all(len(dim) < 2 for dim in single):
        apart = [factor for dim in single for factor in dim]
        ones = [1] * (len(after) - len(apart))
        plans.append(
            _plan_permutation(
                source,
                whole,
                [*ones, *(factor.size for factor in _sort_factors(apart))],
                apart,
                after,
            )
        )
    own = [factor for dim in _factors(whole) for factor in dim]
    parts = [
        [f for f in own if factor.stride <= f.stride < factor.stride * factor.size]
        for factor in factors
    ]
    if all(
        prod(f.size for f in part) == factor.size
        for part, factor in zip(parts, factors, strict=True)
    ):
        # The permutation may start from the shape ``whole``.
        plans.append(
            _plan_permutation(source, whole, whole, [f for part in parts for f in part], after)
        )
    return min(plans, key=lambda plan: plan.nodes)


def _sort_factors(factors: Iterable[_Factor]) -> list[_Factor]:
    """Sort factors of dimensions into the element order of the source tensor."""
    return sorted(factors, key=lambda factor: -factor.stride)


def _plan_permutation(
    source: str, whole: Shape, before: Sequence[int], factors: Sequence[_Factor], after: Shape
) -> _MovementPlan:
    """Return the plan that permutes the dimensions ``before`` into the order of ``factors``.

    Dimensions of size 1 go to the positions where ``after`` has them if the counts match, else to
    the front.
    """
    axes = [axis for axis, size in enumerate(before) if size > 1]
    ones = [axis for axis, size in enumerate(before) if size == 1]
    place = dict(zip(_sort_factors(factors), axes, strict=True))
    moved = [place[factor] for factor in factors]
    perm: list[int] = []
    if len(after) == len(before) and after.count(1) == len(ones):
        perm = [ones.pop(0) if size == 1 else moved.pop(0) for size in after]
    return _MovementPlan(source, tuple(before), (*perm, *ones, *moved), after, whole)


class ComposeMovement(Law):
    """`R₁(T₁(R₂(T₂(x))))` = `R(T(R'(x)))`: merge movements into one Transpose between reshapes.

    The chain consists of Reshape, Flatten, Squeeze, Unsqueeze and Transpose; the result may have
    fewer nodes still. Holds if no reshape splits a dimension unevenly. Pays if it takes fewer
    copies, or as many copies and fewer nodes.
    """

    name = "compose-movement"
    roots = CHAINED
    measure = "movements that copy, then movements"

    def match(self, graph: GraphView, node: NodeProto) -> _MovementPlan | str | None:
        """Return the cheapest movement that replaces a chain of data movement nodes."""
        result = graph.shapes.get(node.output[0])
        chain = _chain(graph, node)
        if result is None or 0 in result or not chain:
            return None
        best = None
        reason = None
        spent = (0, 0)
        gone = True
        for length, mover in enumerate(chain, start=1):
            if gone:
                copies = mover.op_type == "Transpose" and _is_copy(graph, mover)
                spent = (spent[0] + copies, spent[1] + 1)
            source = mover.input[0]
            dims = _follow_chain(graph, chain[:length])
            if dims is None:
                reason = "a reshape cuts a dimension unevenly"
                break
            plan = _plan(source, graph.shapes[source], dims, result)
            if plan.cost < spent and (best is None or plan.cost <= best.cost):
                best = plan
            gone = gone and graph.alone(source, mover)
        return best or reason

    def apply(self, graph: GraphView, node: NodeProto, found: _MovementPlan) -> Sequence[NodeProto]:
        """Return up to three movement nodes; an Identity if no movement remains."""
        name = node.output[0]
        nodes = list[NodeProto]()
        source = found.source
        if found.moves and found.before != found.whole:
            source = _reshape(
                graph, nodes, source, graph.tensor(f"{name}_factors", found.before), found.before
            )
        if found.moves:
            turned = tuple(found.before[axis] for axis in found.perm)
            last = turned == found.after
            target = name if last else graph.tensor(f"{name}_moved", turned)
            nodes.append(
                helper.make_node("Transpose", [source], [target], node.name, perm=found.perm)
            )
            source = target
        if not found.moves and found.whole == found.after:
            nodes.append(helper.make_node("Identity", [source], [name], node.name))
        elif source != name:
            _reshape(graph, nodes, source, name, found.after)
            nodes[-1].name = node.name if not found.moves else ""
        return nodes


def _reshape(
    graph: GraphView, nodes: list[NodeProto], source: str, target: str, shape: Shape
) -> str:
    numbers = graph.constant(f"{target}_shape", np.array(shape, np.int64))
    nodes.append(helper.make_node("Reshape", [source, numbers], [target]))
    return target


def _chain(graph: GraphView, node: NodeProto) -> list[NodeProto]:
    """Return the chain of data movement nodes that ends with ``node``, last one first."""
    found: list[NodeProto] = []
    current: NodeProto | None = node
    while current is not None and _is_known(graph, current):
        found.append(current)
        current = graph.maker(current.input[0], *CHAINED)
    return found


def _is_known(graph: GraphView, node: NodeProto) -> bool:
    source, result = (graph.shapes.get(name) for name in (node.input[0], node.output[0]))
    return (
        source is not None
        and result is not None
        and 0 not in source
        and prod(source) == prod(result)
    )


def _order(node: NodeProto, rank: int) -> tuple[int, ...]:
    """Return the axis permutation of a Transpose node."""
    return tuple(attributes(node).get("perm", range(rank)[::-1]))


def _is_copy(graph: GraphView, node: NodeProto) -> bool:
    """Return True if a Transpose changes the order of elements."""
    shape = graph.shapes[node.input[0]]
    moved = [axis for axis in _order(node, len(shape)) if shape[axis] > 1]
    return moved != sorted(moved)


def _follow_chain(graph: GraphView, chain: Sequence[NodeProto]) -> list[list[_Factor]] | None:
    """Return the dimensions after a chain of movements, in factors of its source."""
    dims: list[list[_Factor]] | None = _factors(graph.shapes[chain[-1].input[0]])
    for node in reversed(chain):
        if dims is not None and node.op_type == "Transpose":
            dims = [dims[axis] for axis in _order(node, len(dims))]
        elif dims is not None:
            dims = _regroup_factors(
                (factor for dim in dims for factor in dim), graph.shapes[node.output[0]]
            )
    return dims


# Element-wise operators before movement.

REARRANGERS = CHAINED | {"DepthToSpace", "SpaceToDepth"}


class ComputeBeforeMoving(Law):
    """`f(M(x), M(y), c)` = `M(f(x, y, c'))`: compute before moving.

    `f` is an element-wise operator and `c` are constants. `M` is one movement: Reshape and similar,
    Transpose, DepthToSpace or SpaceToDepth. Holds if `c` is one number, varies only along
    dimensions that a reshape keeps, or can be transposed. If `M` copies, its results must have no
    other consumers. Pays because `f` is then adjacent to the producer of `x`, and movements become
    adjacent.
    """

    name = "compute-before-moving"
    roots = ANY  # the element-wise ones, which operator families know
    measure = "movements on the longest path to each element-wise operator"

    def match(self, graph: GraphView, node: NodeProto) -> _Unmoved | str | None:
        """Return the movement that can follow an element-wise operator instead."""
        if node.op_type not in (
            CLAMPS if graph.quantised else load_installed_families().closes.elementwise
        ):
            return None
        moved = [name for name in dict.fromkeys(node.input) if name and name not in graph.constants]
        movers = [mover for name in moved if (mover := graph.maker(name, *REARRANGERS)) is not None]
        if (
            not movers
            or len(movers) < len(moved)
            or not all(_is_known(graph, mover) for mover in movers)
        ):
            return None
        if len({graph.shapes.get(name) for name in (*moved, node.output[0])}) > 1:
            return "an operand repeats"
        if len({(graph.shapes[mover.input[0]], _movement(graph, mover)) for mover in movers}) > 1:
            return "its operands are moved differently"
        free = movers[0].op_type in KEEPERS and not graph.quantised
        if not free and not all(graph.alone(name, node) for name in moved):
            return "others read what is moved"
        given = [
            name
            for name in dict.fromkeys(node.input)
            if name in graph.constants
            and node.op_type in load_installed_families().closes.arithmetic
        ]
        constants = {name: _undo_move(graph.constants[name], graph, movers[0]) for name in given}
        known = {name: numbers for name, numbers in constants.items() if numbers is not None}
        if len(known) < len(constants):
            return "its constant is moved, too"
        return _Unmoved(
            movers[0], dict(zip(moved, (mover.input[0] for mover in movers), strict=True)), known
        )

    def apply(self, graph: GraphView, node: NodeProto, found: _Unmoved) -> Sequence[NodeProto]:
        """Return the operator on the unmoved operands, then the movement of its result."""
        before = copy_node(node)
        after = copy_node(found.mover)
        computed = graph.tensor(f"{node.output[0]}_unmoved", graph.shapes[found.mover.input[0]])
        names = dict(found.sources)
        for name, numbers in found.constants.items():
            if not np.array_equal(numbers, graph.constants[name]):
                names[name] = graph.constant(f"{node.output[0]}_constant", numbers)
        before.input[:] = [names.get(name, name) for name in node.input]
        before.output[0] = computed
        after.input[0] = computed
        after.output[0] = node.output[0]
        after.name = ""
        return before, after


@dataclass(frozen=True)
class _Unmoved:
    """Movement of all operands of an operator, with operands and constants before it."""

    mover: NodeProto
    sources: Mapping[str, str]
    constants: Mapping[str, NDArray[Any]]


def _movement(graph: GraphView, node: NodeProto) -> tuple[Any, ...]:
    """Return a key that is equal for movement nodes that move tensors of one shape equally."""
    if node.op_type in KEEPERS:
        return ("keep",)
    if node.op_type == "Transpose":
        return node.op_type, _order(node, len(graph.shapes[node.input[0]]))
    return node.op_type, tuple(
        sorted((name, str(value)) for name, value in attributes(node).items())
    )


def _undo_move(numbers: NDArray[Any], graph: GraphView, mover: NodeProto) -> NDArray[Any] | None:
    """Convert a constant that broadcasts to a mover's result for use on the mover's operand.

    Returns None if there is no such constant.
    """
    if numbers.size == 1:
        return numbers.reshape(())
    source = graph.shapes[mover.input[0]]
    result = graph.shapes[mover.output[0]]
    if numbers.ndim > len(result):
        return None
    if mover.op_type == "Transpose":
        order = _order(mover, len(source))
        whole = numbers.reshape((1,) * (len(result) - numbers.ndim) + numbers.shape)
        return np.ascontiguousarray(whole.transpose(np.argsort(order)))
    kept = 0
    while kept < min(len(source), len(result)) and source[-1 - kept] == result[-1 - kept]:
        kept += 1
    ones = next((axis for axis, size in enumerate(numbers.shape) if size > 1), 0)
    inner = numbers.reshape(numbers.shape[ones:])
    return inner if mover.op_type in KEEPERS and inner.ndim <= kept else None


class ClampBeforeChoice(Law):
    """`clamp(C(x, y))` = `C(clamp(x), clamp(y))`: clamp before a Concat or MaxPool `C`.

    The clamp is a Relu, or a Clip with constant limits. Holds because a clamp is monotone. Pays
    because the clamp then belongs to the producer of `x`, where it is free. The result of `C` must
    have no other consumers, and no operand of a Concat may be constant.
    """

    name = "clamp-before-choice"
    roots = CLAMPS
    measure = "choices on the longest path to each clamp"

    def match(self, graph: GraphView, node: NodeProto) -> NodeProto | str | None:
        """Return the Concat or MaxPool whose result ``node`` clamps, or why it stays."""
        choice = graph.maker(node.input[0], "Concat", "MaxPool")
        if choice is None or len([name for name in choice.output if name]) != 1:
            return None
        if any(name and name not in graph.constants for name in node.input[1:]):
            return "its limits are computed"
        if choice.op_type == "Concat" and any(name in graph.constants for name in choice.input):
            return "an operand is constant"
        options = attributes(choice)
        if max(options.get("dilations", (1,))) > 1 and any(options.get("pads", ())):
            return "a window may see nothing but padding, which no clamp reaches"
        return choice if graph.alone(node.input[0], node) else "others read what it clamps"

    def apply(self, graph: GraphView, node: NodeProto, found: NodeProto) -> Sequence[NodeProto]:
        """Return a clamp for each operand, and the Concat or MaxPool of the clamped operands."""
        choice = copy_node(found)
        clamps = []
        for position, name in enumerate(found.input):
            clamp = copy_node(node)
            suffix = f"_{position}" if len(found.input) > 1 else ""
            made = f"{node.output[0]}_before_{found.op_type}{suffix}"
            clamp.name = f"{node.name}{suffix}" if node.name else ""
            clamp.input[0] = name
            clamp.output[0] = graph.tensor(made, graph.shapes.get(name, ()))
            choice.input[position] = clamp.output[0]
            clamps.append(clamp)
        choice.output[0] = node.output[0]
        return *clamps, choice


# Common subexpressions.

_NOT_SHARED = frozenset(
    {"Dropout", "Identity", "RandomNormal", "RandomUniform", "RandomNormalLike"}
)
_NOT_SHARED |= {"RandomUniformLike", "Bernoulli", "Multinomial"}


class ShareEqual(Law):
    """`y = f(x)`, `z = f(x)` = `z = y = f(x)`: keep one of two equal operators.

    Holds for operators without random numbers and bodies, in float models only. In quantised models
    every operator has its own quantisations, with which ONNX Runtime fuses it into one operator.
    """

    name = "share-equal"
    roots = ANY
    measure = "nodes that compute or copy"

    def match(self, graph: GraphView, node: NodeProto) -> NodeProto | None:
        """Return an earlier node that computes the same results from the same operands."""
        if graph.quantised or node.op_type in _NOT_SHARED or any(True for _ in bodies(node)):
            return None
        if all(name in graph.constants for name in node.input if name):
            return None
        return next(
            (other for other in graph.alike(node, _computation) if graph.is_before(other, node)),
            None,
        )

    def apply(self, graph: GraphView, node: NodeProto, found: NodeProto) -> Sequence[NodeProto]:
        """Return Identity nodes that copy an equal, earlier node's results to new names."""
        pairs = zip(found.output, node.output, strict=True)
        return [helper.make_node("Identity", [one], [other]) for one, other in pairs if other]


def _computation(graph: GraphView, node: NodeProto) -> Hashable:
    """Return a key that is equal for nodes that compute equal results."""
    options = tuple(sorted(item.SerializeToString(deterministic=True) for item in node.attribute))
    reads = tuple(graph.numbers(name) for name in node.input)
    return node.op_type, node.domain, options, reads, tuple(map(bool, node.output))


EXACT: tuple[Law, ...] = (
    PadIntoConv(),
    PadIntoPool(),
    ClampBeforeChoice(),
    ComputeBeforeMoving(),
    ComposeMovement(),
    ShareEqual(),
)
"""The exact rules in the order in which they are tried.

Each reduces the first quantity in this list that it changes: paddings, choices on the longest path
to each clamp, movements that copy, movements on the longest path to each element-wise operator,
movements, nodes.
"""
fold_pads = make_pass("fold_pads", EXACT[:2])
exact_laws = make_pass("exact_laws", EXACT)
