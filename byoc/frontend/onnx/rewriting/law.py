"""Rewrite rules: small classes, and one driver that applies them until none matches any node.

A rule is an equation between graphs, applied from left to right, with the condition under which it
holds and pays. ``exact`` rules change no bit of any tensor and apply to every model. The others may
change rounding and apply only to float models before quantisation, where
:mod:`byoc.checking.fidelity` compares the result with the model as given.

The driver visits nodes in execution order and tries the rules of each node's operator in the order
listed. It repeats until a pass changes nothing. It terminates because every rule reduces its
``measure`` and increases none of a higher rank (the order of :data:`movement.EXACT`). A limit on
the number of applications detects rules that violate this. The model's metadata, and from there
reports, count the applications of each rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial, update_wrapper
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from byoc.operators.onnx_view import BOUNDARIES, QUANTIZE
from byoc.runtimes.protobuf import (
    ConstantArrays,
    all_nodes,
    attributes,
    bodies,
    is_float32,
    make_tensor,
    make_unused_name,
    names_of,
    opset_of,
    remove_initializers,
    separate_names,
    set_items,
    shapes_of,
    standard,
    types_of,
    use_counts,
    use_counts_of,
)

Pass = Callable[[ModelProto], ModelProto]


class OperatorPass:
    """Rewriting pass that is skipped for models without any of its ``operators``.

    With ``rank``, it also needs one whose first operand has that many dimensions; shapes must then
    be inferred.
    """

    __name__: str

    def __init__(self, step: Pass, operators: Collection[str], rank: int | None = None) -> None:
        self._step = step
        self.operators = frozenset(operators)
        self.rank = rank
        update_wrapper(self, step)

    def is_concerned_with(self, model: ModelProto) -> bool:
        found = (node for node in model.graph.node if node.op_type in self.operators)
        if self.rank is None:
            return next(found, None) is not None
        operands = {node.input[0] for node in found if node.input}
        return bool(operands) and any(
            value.name in operands and len(value.type.tensor_type.shape.dim) == self.rank
            for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)
        )

    def __call__(self, model: ModelProto) -> ModelProto:
        return self._step(model) if self.is_concerned_with(model) else model


def look_at(*operators: str, rank: int | None = None) -> Callable[[Pass], OperatorPass]:
    """Return a decorator that skips a pass for models without any of ``operators``."""
    return lambda step: OperatorPass(step, operators, rank)


MOST_A_NODE = 32
"""Maximum average number of applications per original node.

More applications mean that rules undo each other.
"""
ANY: frozenset[str] = frozenset()
"""The roots of a rule for every operator."""
FEW = 1024
"""Size, in elements, from which constants are compared by name only."""
_KEY = "law:"


class Law(ABC):
    """A rewrite rule; the docstring of a subclass is its equation and condition, shown in the docs.

    ``roots`` are the operators of the last node of the left side. ``measure`` is the quantity that
    every application reduces.
    """

    name: ClassVar[str]
    roots: ClassVar[frozenset[str]]
    measure: ClassVar[str]
    exact: ClassVar[bool] = True

    @abstractmethod
    def match(self, graph: GraphView, node: NodeProto) -> Any:
        """Return what a rewrite rule needs to replace a node, or why it does not apply.

        Returns None if there is no left side.
        """

    @abstractmethod
    def apply(self, graph: GraphView, node: NodeProto, found: Any) -> Sequence[NodeProto]:
        """Return the nodes, in execution order, that a rewrite rule puts in place of ``node``.

        An Identity among them only renames a tensor, and is removed unless the name is needed
        outside. The driver removes tensors that become unused.
        """


Computation = Callable[["GraphView", NodeProto], Hashable]
"""Function from a node to a key that is equal for nodes that compute the same result."""


class GraphView:
    """A graph during rewriting: producers, consumers, shapes and constants, kept up to date."""

    def __init__(self, model: ModelProto, whole: ModelProto) -> None:
        """Index an ONNX model for rewriting; constants that it lacks come from ``whole``."""
        graph = model.graph
        given = whole.graph
        self.opsets = model.opset_import
        self.ir_version = model.ir_version
        self.opset = opset_of(model)
        self.shapes = shapes_of(given)
        self.types = types_of(given)
        self.constants = ConstantArrays(given, lambda tensor: True)
        self.floats = ConstantArrays(given, is_float32)
        self.made: list[TensorProto] = []
        self.quantised = any(node.op_type in BOUNDARIES for node in graph.node)
        self.quantises = any(node.op_type == QUANTIZE for node in graph.node)
        self.changed = False
        self.slots = [[node] for node in graph.node]
        self._slot: dict[int, int] = {}
        self._makers: dict[str, NodeProto] = {}
        self._readers: dict[str, dict[int, NodeProto]] = {}
        self._alike: dict[Hashable, dict[int, NodeProto]] | None = None
        self._computation: Computation = lambda graph, node: id(node)
        self._shown = {output.name for output in graph.output}
        self.taken = names_of(given) | {
            name for node in all_nodes(graph) for name in (*node.input, *node.output)
        }
        for slot, nodes in enumerate(self.slots):
            for node in nodes:
                self._enter(node, slot)

    def _enter(self, node: NodeProto, slot: int) -> None:
        self._slot[id(node)] = slot
        if any(True for _ in bodies(node)):
            self._shown.update(use_counts_of(node).keys() - set(node.input))
        self._read(node)
        self._makers.update((name, node) for name in node.output if name)

    def _read(self, node: NodeProto) -> None:
        """Record a node as a consumer of the tensors that it and its bodies read."""
        for name in use_counts_of(node):
            self._readers.setdefault(name, {})[id(node)] = node
        if self._alike is not None:
            self._alike.setdefault(self._computation(self, node), {})[id(node)] = node

    def _read_no_more(self, node: NodeProto) -> None:
        for name in use_counts_of(node):
            self._readers[name].pop(id(node), None)
        if self._alike is not None:
            del self._alike[self._computation(self, node)][id(node)]

    def _leave(self, node: NodeProto) -> None:
        slot = self._slot.pop(id(node))
        self.slots[slot] = [other for other in self.slots[slot] if other is not node]
        self._read_no_more(node)
        for name in node.output:
            self._makers.pop(name, None)

    def alike(self, node: NodeProto, computation: Computation) -> Collection[NodeProto]:
        """Return ``node`` and all other nodes to which ``computation`` gives the same key.

        ``computation`` may depend on the names that nodes read.
        """
        if self._alike is None:
            self._alike = {}
            self._computation = computation
            for nodes in self.slots:
                for other in nodes:
                    self._alike.setdefault(computation(self, other), {})[id(other)] = other
        return self._alike[computation(self, node)].values()

    def numbers(self, name: str) -> Hashable:
        """Return a key that is equal for tensors known to be equal.

        For a small constant these are its type, shape and bits; otherwise it is the name.
        """
        if name not in self.constants or prod(self.shapes.get(name, (FEW,))) >= FEW:
            return name
        array = self.constants[name]
        return array.dtype.str, array.shape, array.tobytes()

    def same_numbers(self, one: str, other: str) -> bool:
        """Return True if both names are constants with equal type, shape and numbers.

        Large constants are equal only if the names are.
        """
        known = one in self.constants and other in self.constants
        return known and self.numbers(one) == self.numbers(other)

    def maker(self, name: str, *op_types: str) -> NodeProto | None:
        """Return the standard node, of ``op_types`` if given, that produces tensor ``name``."""
        node = self._makers.get(name)
        if node is None or not standard(node) or (op_types and node.op_type not in op_types):
            return None
        return node

    def readers(self, name: str) -> Collection[NodeProto]:
        """Return the nodes that read tensor ``name``, directly or in bodies, each once."""
        return self._readers.get(name, {}).values()

    def only_reader(self, name: str) -> NodeProto | None:
        """Return the only consumer of tensor ``name``, if it reads the tensor once."""
        readers = self._readers.get(name, {})
        node = next(iter(readers.values())) if len(readers) == 1 else None
        return node if node is not None and list(node.input).count(name) == 1 else None

    def is_shown(self, name: str) -> bool:
        """Return True if tensor ``name`` must be kept: a model output, or read by a body."""
        return name in self._shown

    def is_read(self, name: str) -> bool:
        """Return True if tensor ``name`` is a model output or is read by some node."""
        return self.is_shown(name) or bool(self.readers(name))

    def show(self, name: str) -> None:
        """Mark tensor ``name`` as needed, so that its producer is kept even if unused."""
        self._shown.add(name)

    def alone(self, name: str, reader: NodeProto) -> bool:
        """Return True if ``reader`` is the only consumer of tensor ``name``.

        The result is False for a model output.
        """
        return not self.is_shown(name) and all(node is reader for node in self.readers(name))

    def is_before(self, first: NodeProto, second: NodeProto) -> bool:
        """Return True if ``first`` is known to execute before ``second``."""
        return self._slot[id(first)] < self._slot[id(second)]

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant and return its name: ``name``, or similar if that is taken."""
        unique = make_unused_name(name, self.taken)
        made = np.ascontiguousarray(array).reshape(np.shape(array))
        self.made.append(make_tensor(made, unique))
        self.constants[unique] = made
        self.shapes[unique] = made.shape
        if made.dtype == np.float32:
            self.floats[unique] = made
        return unique

    def name(self, name: str) -> str:
        """Return an unused name, similar to ``name``, for a tensor of unknown shape."""
        return make_unused_name(name, self.taken)

    def tensor(self, name: str, shape: tuple[int, ...]) -> str:
        """Return an unused name, similar to ``name``, and record its tensor's shape."""
        unique = make_unused_name(name, self.taken)
        self.shapes[unique] = shape
        return unique

    def replace(self, node: NodeProto, nodes: Sequence[NodeProto]) -> None:
        """Replace ``node`` by ``nodes`` and remove nodes that become unused."""
        self.changed = True
        slot = self._slot[id(node)]
        kept = list[NodeProto]()
        place = next(index for index, other in enumerate(self.slots[slot]) if other is node)
        self._leave(node)
        for new in nodes:
            if new.op_type == "Identity" and not self.is_shown(new.output[0]):
                self._rename(new.output[0], new.input[0])
                for later in nodes:
                    reads = [
                        new.input[0] if name == new.output[0] else name for name in later.input
                    ]
                    later.input[:] = reads
            else:
                self._enter(new, slot)
                kept.append(new)
        self.slots[slot][place:place] = kept
        self._drop_unread([*node.input, *(name for new in kept for name in new.output)])

    def has(self, node: NodeProto) -> bool:
        return id(node) in self._slot

    def _rename(self, old: str, new: str) -> None:
        for node in list(self.readers(old)):
            self._read_no_more(node)
            for position, name in enumerate(node.input):
                if name == old:
                    node.input[position] = new
            self._read(node)

    def _drop_unread(self, names: Iterable[str]) -> None:
        """Remove the producers of unused tensors among ``names``, and recursively theirs."""
        waiting = list(names)
        while waiting:
            node = self._makers.get(waiting.pop())
            if node is not None and not any(
                self.readers(name) or self.is_shown(name) for name in node.output
            ):
                self._leave(node)
                waiting.extend(node.input)


class NodeWriter:
    """Builder of the nodes, in execution order, that replace one node."""

    def __init__(self, graph: GraphView, node: NodeProto, name: str = "") -> None:
        """Start an empty list of nodes that will replace ``node``.

        New names begin with ``name``, by default its first output.
        """
        self.graph = graph
        self.node = node
        self.name = name or node.output[0]
        self.options: dict[str, Any] = attributes(node)
        self.nodes: list[NodeProto] = []

    def input(self, index: int) -> str:
        """Return the name of a node's input by position; empty if it is absent."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def output(self, index: int) -> str:
        """Return the name of a node's output by position; empty if it is absent."""
        return self.node.output[index] if index < len(self.node.output) else ""

    def constant(
        self, values: ArrayLike, dtype: DTypeLike | None = None, part: str = "constant"
    ) -> str:
        return self.graph.constant(f"{self.name}_{part}", np.asarray(values, dtype))

    def tensor(self, part: str) -> str:
        """Return an unused name for a tensor of unknown shape."""
        return self.graph.name(f"{self.name}_{part}")

    def add(
        self, op_type: str, *operands: str, result: str = "", label: str = "", **options: Any
    ) -> str:
        """Add a node to the replacement and return the name of its result.

        ``label`` is the node's name.
        """
        name = result or self.tensor(f"{op_type.lower()}{len(self.nodes)}")
        self.nodes.append(
            helper.make_node(op_type, list(operands), [name], label or name, **options)
        )
        return name

    def finish(self) -> list[NodeProto]:
        """Return the written nodes; the last produces the first output of the replaced node."""
        self.nodes[-1].output[0] = self.node.output[0]
        return self.nodes


def make_pass(name: str, laws: Sequence[Law]) -> Pass:
    """Return the pass ``name`` that applies ``laws`` until none matches; needs inferred shapes.

    It returns the model itself if no rule matches.
    """

    def step(model: ModelProto) -> ModelProto:
        result = remove_initializers(model)
        graph = GraphView(result, model)
        counts = _apply_all(graph, laws)
        if not counts:
            return model
        _fill(result, model, graph)
        _record(result, counts)
        return result

    step.__name__ = name
    roots = [law.roots for law in laws]
    return step if ANY in roots else OperatorPass(step, frozenset().union(*roots))


Write = Callable[[GraphView, NodeProto], Sequence[NodeProto] | None]
"""Function that returns the nodes that replace a node, or None if the node stays."""


def write_operators(
    *operators: str, rank: int | None = None, foreign: bool = False
) -> Callable[[Write], OperatorPass]:
    """Return a decorator that turns a function into a pass which rewrites ``operators``.

    The pass visits the model's nodes once, in execution order. Shapes must be inferred. ``rank`` is
    as in :func:`look_at`; ``foreign`` includes operators of other domains.
    """

    def make_operator_pass(write: Write) -> OperatorPass:
        def is_wanted(node: NodeProto) -> bool:
            return node.op_type in operators and (foreign or standard(node))

        def step(model: ModelProto) -> ModelProto:
            return walk_model(model, lambda graph: partial(write, graph), is_wanted)

        update_wrapper(step, write)
        return OperatorPass(step, operators, rank)

    return make_operator_pass


def walk_model(
    model: ModelProto,
    start: Callable[[GraphView], Callable[[NodeProto], Sequence[NodeProto] | None]],
    wanted: Callable[[NodeProto], bool] = standard,
    upwards: bool = False,
) -> ModelProto:
    """Replace the ``wanted`` nodes of a model by the results of a writer, in one pass.

    ``start`` makes the writer from the model's view. Nodes are visited in execution order, or in
    reverse with ``upwards``; nodes that were removed meanwhile are skipped. If the writer returns
    None, the node stays. Returns the model itself if nothing changes.
    """
    result = remove_initializers(model)
    graph = GraphView(result, model)
    write = start(graph)
    nodes = [node for node in result.graph.node if wanted(node)]
    for node in reversed(nodes) if upwards else nodes:
        made = write(node) if graph.has(node) else None
        if made is not None:
            graph.replace(node, made)
    if not graph.changed:
        return model
    _fill(result, model, graph)
    return result


def count_applied(given: ModelProto, model: ModelProto) -> dict[str, int]:
    """Return how often each rewrite rule was applied between two states of a model."""
    before = _read_recorded(given)
    counts = _read_recorded(model)
    counts.subtract(before)
    return dict(sorted((+counts).items()))


def _read_recorded(model: ModelProto) -> Counter[str]:
    entries = {
        entry.key: entry.value for entry in model.metadata_props if entry.key.startswith(_KEY)
    }
    return Counter(
        {key.removeprefix(_KEY): int(count) for key, count in entries.items() if count.isdecimal()}
    )


def _fill(result: ModelProto, model: ModelProto, graph: GraphView) -> None:
    """Copy a rewritten graph's nodes and the constants they use to the model ``result``."""
    set_items(result.graph.node, (node for nodes in graph.slots for node in nodes))
    separate_names(result.graph)
    used = use_counts(result.graph)
    result.graph.initializer.extend(
        tensor for tensor in (*model.graph.initializer, *graph.made) if used[tensor.name]
    )


def _apply_all(graph: GraphView, laws: Sequence[Law]) -> Counter[str]:
    """Apply rewrite rules to a graph until none matches; return each rule's number of uses."""
    roots = {node.op_type for nodes in graph.slots for node in nodes}.union(
        *(law.roots for law in laws)
    )
    by_root = {
        root: [law for law in laws if root in law.roots or law.roots == ANY] for root in roots
    }
    counts: Counter[str] = Counter()
    most = MOST_A_NODE * (len(graph.slots) + 1)
    while True:
        before = counts.total()
        for slot in range(len(graph.slots)):
            while (law := _apply_first(graph, slot, by_root)) is not None:
                counts[law.name] += 1
                if counts.total() > most:
                    raise RuntimeError(
                        f"the laws {dict(counts)} run in a circle; please report it with the model"
                    )
        if counts.total() == before:
            return counts


def _apply_first(graph: GraphView, slot: int, laws: Mapping[str, Sequence[Law]]) -> Law | None:
    """Apply the first rewrite rule that matches a node of ``slot``, and return the rule.

    Returns None if none matches.
    """
    for node in graph.slots[slot]:
        for law in laws.get(node.op_type, ()) if standard(node) else ():
            found = law.match(graph, node)
            if found is not None and not isinstance(found, str):
                graph.replace(node, law.apply(graph, node, found))
                return law
    return None


def _record(model: ModelProto, counts: Mapping[str, int]) -> None:
    """Add counts of applied rewrite rules to those in a model's metadata."""
    totals = _read_recorded(model)
    totals.update(counts)
    entries = model.metadata_props
    set_items(entries, (entry for entry in entries if not entry.key.startswith(_KEY)))
    for name in sorted(totals):
        model.metadata_props.add(key=f"{_KEY}{name}", value=str(totals[name]))
