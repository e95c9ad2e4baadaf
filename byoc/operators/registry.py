"""Every operator family: the project's own, and those of packages outside it (entry point group ``dla.operators``);
and the support table, which says what runs on the accelerator.

An entry point names a subclass of :class:`byoc.operators.operator.Operator`::

    [project.entry-points."dla.operators"]
    subtraction = "my_package:Subtraction"

The project's own need no list: a class in a file of this folder that names its family is one.

Families of one operator are asked in turn, those of other packages first: each names the instructions that it needs,
and on a machine without them the next one is asked. The project's own families are never altered.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property, reduce
from operator import or_

import onnx

from byoc import operators
from byoc.graph import Graph, Node
from byoc.operators.forms import Closes, Form, IntegerProduct, QLinear
from byoc.operators.onnx_view import BOUNDARIES
from byoc.operators.operator import (
    Finding,
    Operator,
    Refusal,
    finding,
    missing_instruction,
    open_shape,
    unknown_operator,
)
from byoc.operators.packing import RULE, packed_operations
from byoc.options import Target
from isa.errors import InputError
from isa.plugins import OPERATORS, loaded

PROJECT = "the project"


@dataclass(frozen=True, eq=False)
class Registry:
    """Families in the order in which they are asked, and the owner of each by its name."""

    families: tuple[type[Operator], ...]
    owners: Mapping[str, str]

    @cached_property
    def by_operator(self) -> Mapping[str, tuple[type[Operator], ...]]:
        """The families of every canonical type."""
        found: dict[str, tuple[type[Operator], ...]] = {}
        for family in self.families:
            for op_type in op_types(family):
                found[op_type] = (*found.get(op_type, ()), family)
        return found

    @cached_property
    def forms(self) -> Mapping[str, tuple[type[Operator], Form]]:
        """The family and form of every float ONNX operator; what the project knows it reads itself."""
        found: dict[str, tuple[type[Operator], Form]] = {}
        for family in self._project_first():
            for form in family.forms:
                found.setdefault(form.onnx, (family, form))
        return found

    @cached_property
    def integer_forms(self) -> Mapping[str, tuple[type[Operator], Form, QLinear | IntegerProduct]]:
        """The family and forms of every integer ONNX operator."""
        found: dict[str, tuple[type[Operator], Form, QLinear | IntegerProduct]] = {}
        for family in self._project_first():
            for form in family.forms:
                for integer in form.integer:
                    found.setdefault(integer.onnx, (family, form, integer))
        return found

    @cached_property
    def closes(self) -> Closes:
        """ONNX operators of which whole subgraphs can be one node of some family."""
        return reduce(or_, (family.closes for family in self.families))

    def _project_first(self) -> Iterator[type[Operator]]:
        yield from sorted(self.families, key=lambda family: self.owners[family.family] != PROJECT)

    def extended(self, owner: str, family: type[Operator]) -> Registry:
        """These families and ``family``, asked first; raises InputError naming the owner of what is taken."""
        if family.family in self.owners:
            raise InputError(
                f"{owner}: operator family {family.family} is taken by {self.owners[family.family]}; "
                "choose another name or uninstall one of the two"
            )
        for op_type in op_types(family):
            other = next((item for item in self.by_operator.get(op_type, ()) if not family.instructions), None)
            if other is not None:
                raise InputError(
                    f"{owner}: operator family {family.family} takes operator {op_type} from {other.family} "
                    f"of {self.owners[other.family]}; name the instructions that it needs"
                )
        return Registry((family, *self.families), {**self.owners, family.family: owner})


def op_types(family: type[Operator]) -> tuple[str, ...]:
    """Types of a family's canonical nodes."""
    return tuple(dict.fromkeys((*(form.op_type for form in family.forms), *family.inner_types)))


def rules(family: type[Operator]) -> tuple[str, ...]:
    """Every rule that a family's nodes must meet, as the user reads it."""
    return (*(item.text for item in family.requirements), *(item.text for item in family.constraints))


def check(family: type[Operator], graph: Graph, node: Node) -> Refusal | None:
    """The first requirement that ``node`` misses; None where it matches. Does not depend on the target."""
    for requirement in family.requirements:
        found = requirement(graph, node)
        if found is not None:
            return Refusal(node.name, requirement.name, found, requirement.text)
    return None


def lower(family: type[Operator], graph: Graph, node: Node, target: Target) -> tuple[Operator, ...] | Refusal:
    """Operations of a node that passed :func:`check`, or the first constraint that it misses on ``target``."""
    for mnemonic in family.instructions:
        if mnemonic not in target.instructions:
            return Refusal(node.name, "instruction_available", missing_instruction(mnemonic, target.isa))
    record = family.parse(graph, node)
    for constraint in family.constraints:
        found = constraint(record, target)
        if found is not None:
            return Refusal(node.name, constraint.name, found, constraint.text)
    packed = packed_operations(family.operations(record, target), graph, target)
    return Refusal(node.name, "packed", packed, RULE) if isinstance(packed, Finding) else packed


@cache
def built_in() -> Registry:
    """The families of this repository alone: the classes of this folder that name one, by file, as they stand there."""
    found: list[type[Operator]] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(operators.__path__)):
        for item in vars(importlib.import_module(f"{operators.__name__}.{module}")).values():
            own = isinstance(item, type) and issubclass(item, Operator) and item.__module__.endswith(f".{module}")
            if own and vars(item).get("family"):
                found.append(item)
    return Registry(tuple(found), {family.family: PROJECT for family in found})


@cache
def installed() -> Registry:
    """The families of this repository and of all installed packages.

    Raises InputError naming the entry point and its package when it cannot be loaded or takes what is taken. Computed
    once a process; ``installed.cache_clear()`` makes it look again.
    """
    registry = built_in()
    for owner, family in loaded(OPERATORS, type, "a subclass of byoc.operators.operator.Operator"):
        if not issubclass(family, Operator) or not family.family:
            raise InputError(
                f"{owner} gives the class {family.__name__}; it must be a subclass of byoc.operators.operator.Operator "
                "that names its family"
            )
        _check_spelling(owner, family)
        registry = registry.extended(owner, family)
    return registry


_LIKENESS = 0.85
"""Of a name and the hook that was probably meant."""


def _check_spelling(owner: str, family: type[Operator]) -> None:
    """Raise InputError for a hook or an ONNX operator that a package's family spells as nothing that is looked for."""
    ours = [kind for kind in family.__mro__ if kind.__module__.startswith(f"{operators.__name__}.")]
    hooks = {name for kind in ours for name in (*vars(kind), *vars(kind).get("__annotations__", ()))}
    for kind in set(family.__mro__[:-1]) - set(ours):
        for name in (name for name in vars(kind) if not name.startswith("_") and name not in hooks):
            if close := get_close_matches(name, hooks, n=1, cutoff=_LIKENESS):
                raise InputError(f"{owner}: {kind.__name__}.{name} is never called; name it {close[0]}, or otherwise")
    names = {schema.name.casefold(): schema.name for schema in onnx.defs.get_all_schemas()}
    for form in family.forms:
        known = names.get(form.onnx.casefold(), form.onnx)
        if known != form.onnx:
            raise InputError(f"{owner}: no ONNX operator is called {form.onnx}; write {known}")


@dataclass(frozen=True)
class Annotation:
    """What a node can run on, whatever the machine: the name of a family, or None, the ``reason`` and its ``rule``."""

    family: str | None
    reason: str | None = None
    rule: str = ""


def annotate(graph: Graph) -> tuple[Annotation, ...]:
    """One annotation a node, in the order of the nodes; depends on the model alone."""
    found = (find_family(graph, node) for node in graph.nodes)
    return tuple(Annotation(None, str(f), f.rule) if isinstance(f, Refusal) else Annotation(f.family) for f in found)


def find_family(graph: Graph, node: Node) -> type[Operator] | Refusal:
    """The first family that can run ``node``, or why none can; depends on the model alone, not on the target."""
    kind = node.op_type
    if node.remark:
        floats = any(graph.values[name].dtype.startswith("float") for name in node.outputs)
        where = "in float" if floats else "on the CPU"
        found = finding("{operator} stays {where}: {remark}", operator=kind, where=where, remark=node.remark)
        return Refusal(node.name, "integer", found)
    if kind in BOUNDARIES:
        found = finding("{operator} is where the integer part of the network ends", operator=kind)
        return Refusal(node.name, "boundary", found)
    open_tensor = open_shape(graph, node)
    if open_tensor is not None:
        return open_tensor
    outcome: type[Operator] | Refusal = unknown_operator(node)
    for family in installed().by_operator.get(kind, ()) if node.integer else ():
        outcome = check(family, graph, node) or family
        if not isinstance(outcome, Refusal):
            break
    return outcome


@dataclass(frozen=True)
class SupportRow:
    """One row of the support table: a family, its ONNX operators, and the rules a node must meet.

    Operators without ``QLinear`` or ``Integer`` in their names run quantised: between DequantizeLinear and
    QuantizeLinear, or where ``plain`` lists them, on bare integers as well. ``instructions`` are those without which
    the family is not asked; ``owner`` is who declared it; ``closes`` are those of which whole subgraphs run as one.
    """

    family: str
    operators: tuple[str, ...]
    plain: tuple[str, ...]
    rules: tuple[str, ...]
    instructions: tuple[str, ...] = ()
    owner: str = PROJECT
    closes: tuple[str, ...] = ()


def support_table(registry: Registry | None = None) -> tuple[SupportRow, ...]:
    """The rows of the support table, a family each; of the project's own families unless told otherwise."""
    registry = registry or built_in()
    rows = []
    for family in registry.families:
        floats = tuple(form.onnx for form in family.forms)
        integers = tuple(integer.onnx for form in family.forms for integer in form.integer)
        plain = tuple(form.onnx for form in family.forms if form.plain)
        owner = registry.owners[family.family]
        known = (*floats, *integers)
        instructions = family.instructions
        closed = tuple(sorted(family.closes.operators))
        rows.append(SupportRow(family.family, known, plain, rules(family), instructions, owner, closed))
    return tuple(rows)


def markdown(rows: Sequence[SupportRow]) -> str:
    """The support table as a Markdown page."""
    lines = [
        "# What runs on the accelerator",
        "",
        "Generated by `dla support --format markdown`; do not edit. A node runs on the accelerator when it meets every",
        "rule of its operator's family; otherwise on the CPU, and `dla partition MODEL` gives the reason with the",
        "actual values. Operators with `QLinear` or `Integer` in their names are read as they are; the others run",
        "quantised, between DequantizeLinear and QuantizeLinear. What quantisation cannot reach stays in float on the",
        "CPU. Further families come from installed packages (docs/adding-an-instruction.md).",
    ]
    for row in rows:
        lines += ["", f"## {row.family}"]
        for text, names in (
            ("Operators: {}.", row.operators),
            ("Whatever is computed by these from one 8-bit tensor and constants: {}.", row.closes),
            ("On bare integers as well: {}.", row.plain),
            ("Needs {}.", row.instructions),
        ):
            lines += ["", text.format(", ".join(f"`{name}`" for name in names))] if names else []
        if row.owner != PROJECT:
            lines += ["", f"Added by {row.owner}."]
        lines += ["", *(f"- {rule}" for rule in row.rules)]
    return "\n".join(lines) + "\n"
