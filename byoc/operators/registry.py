"""Registry of all operator families.

Other packages add families by the entry point group ``dla.operators``.

It also creates the support table, which lists what runs on the accelerator. An entry point names a
subclass of :class:`byoc.operators.operator.Operator`::

    [project.entry-points."dla.operators"]
    subtraction = "my_package:Subtraction"

A class in a file of this folder that names its family is registered automatically. Several families
can have the same operator: they are tried in turn, those of other packages first. A family whose
instructions the machine lacks is skipped. Packages cannot change the project's own families.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property, reduce
from operator import or_
from pathlib import Path

import onnx

from byoc import operators
from byoc.graph import Annotation, Graph, Node
from byoc.operators.forms import Closes, Form, IntegerProduct, QLinear
from byoc.operators.onnx_view import BOUNDARIES
from byoc.operators.operator import Operator
from byoc.operators.packing import RULE, pack_operations
from byoc.operators.rules import (
    Finding,
    Refusal,
    finding,
    make_missing_instruction,
    make_unknown_operator,
    open_shape,
)
from byoc.options import Target
from isa.errors import PluginError, suggest_name
from isa.plugins import OPERATORS, PROJECT, load_entry_points


@dataclass(frozen=True, eq=False)
class Registry:
    """Registry of operator families, in the order in which they are tried.

    ``owners`` gives the owner of each family by its name.
    """

    families: tuple[type[Operator], ...]
    owners: Mapping[str, str]

    @cached_property
    def by_operator(self) -> Mapping[str, tuple[type[Operator], ...]]:
        """Operator families by the operator type of the graph nodes that they run."""
        found: dict[str, tuple[type[Operator], ...]] = {}
        for family in self.families:
            for op_type in op_types(family):
                found[op_type] = (*found.get(op_type, ()), family)
        return found

    @cached_property
    def forms(self) -> Mapping[str, tuple[type[Operator], Form]]:
        """Family and form of every float ONNX operator.

        The project's own families have precedence.
        """
        found: dict[str, tuple[type[Operator], Form]] = {}
        for family in self._project_first():
            for form in family.forms:
                found.setdefault(form.onnx, (family, form))
        return found

    @cached_property
    def integer_forms(self) -> Mapping[str, tuple[type[Operator], Form, QLinear | IntegerProduct]]:
        """Family and forms of every integer ONNX operator."""
        found: dict[str, tuple[type[Operator], Form, QLinear | IntegerProduct]] = {}
        for family in self._project_first():
            for form in family.forms:
                for integer in form.integer:
                    found.setdefault(integer.onnx, (family, form, integer))
        return found

    @cached_property
    def closes(self) -> Closes:
        """ONNX operators whose subgraphs can be merged into one node of some family."""
        return reduce(or_, (family.closes for family in self.families))

    def _project_first(self) -> Iterator[type[Operator]]:
        yield from sorted(self.families, key=lambda family: self.owners[family.family] != PROJECT)

    def extend(self, owner: str, family: type[Operator]) -> Registry:
        """Return a registry in which ``family`` is tried before all other operator families.

        Raise InputError naming the owner of a name already in use.
        """
        if family.family in self.owners:
            raise PluginError(
                f"{owner}: operator family {family.family} is taken by "
                f"{self.owners[family.family]}; "
                "choose another name or uninstall one of the two"
            )
        for op_type in op_types(family):
            other = next(
                (item for item in self.by_operator.get(op_type, ()) if not family.instructions),
                None,
            )
            if other is not None:
                raise PluginError(
                    f"{owner}: operator family {family.family} takes operator {op_type} from "
                    f"{other.family} "
                    f"of {self.owners[other.family]}; name the instructions that it needs"
                )
        return Registry((family, *self.families), {**self.owners, family.family: owner})


def op_types(family: type[Operator]) -> tuple[str, ...]:
    """Return the operator types of a family's graph nodes."""
    return tuple(dict.fromkeys((*(form.op_type for form in family.forms), *family.inner_types)))


def rules(family: type[Operator]) -> tuple[str, ...]:
    """Return the texts of all rules that a family's nodes must meet."""
    return (
        *(item.text for item in family.requirements),
        *(item.text for item in family.constraints),
    )


def check(family: type[Operator], graph: Graph, node: Node) -> Refusal | None:
    """Return the first requirement that ``node`` violates, or None.

    The result does not depend on the target.
    """
    for requirement in family.requirements:
        found = requirement(graph, node)
        if found is not None:
            return Refusal(node.name, requirement.name, found, requirement.text)
    return None


def lower(
    family: type[Operator], graph: Graph, node: Node, target: Target
) -> tuple[Operator, ...] | Refusal:
    """Return the operations of a node that passed :func:`check`, or why it is refused.

    The reason is the first constraint that the node violates on ``target``.
    """
    for mnemonic in family.instructions:
        if mnemonic not in target.instructions:
            return Refusal(
                node.name, "instruction_available", make_missing_instruction(mnemonic, target.isa)
            )
    record = family.parse(graph, node)
    for constraint in family.constraints:
        found = constraint(record, target)
        if found is not None:
            return Refusal(node.name, constraint.name, found, constraint.text)
    made = family.operations(record, target)
    if not isinstance(made, tuple):
        raise TypeError(f"operations returned {made!r}, which is no tuple of operators")
    packed = pack_operations(made, graph, target)
    return Refusal(node.name, "packed", packed, RULE) if isinstance(packed, Finding) else packed


@cache
def get_built_in_families() -> Registry:
    """Return the families of this repository, ordered by file and by position in the file."""
    found: list[type[Operator]] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(operators.__path__)):
        for item in vars(importlib.import_module(f"{operators.__name__}.{module}")).values():
            own = (
                isinstance(item, type)
                and issubclass(item, Operator)
                and item.__module__.endswith(f".{module}")
            )
            if own and vars(item).get("family"):
                found.append(item)
    return Registry(tuple(found), {family.family: PROJECT for family in found})


@cache
def load_installed_families() -> Registry:
    """Return the families of this repository and of all installed packages.

    The result is cached per process; ``load_installed_families.cache_clear()`` resets it. Raises
    InputError, naming the entry point and its package, if a family cannot be loaded or uses a name
    already in use.
    """
    registry = get_built_in_families()
    for owner, family in load_entry_points(
        OPERATORS, type, "a subclass of byoc.operators.operator.Operator"
    ):
        if not issubclass(family, Operator) or not family.family:
            raise PluginError(
                f"{owner} gives the class {family.__name__}; it must be a subclass of "
                "byoc.operators.operator.Operator "
                "that names its family"
            )
        _check_spelling(owner, family)
        registry = registry.extend(owner, family)
    return registry


_LIKENESS = 0.85
"""Minimum similarity of a name to the hook that was probably intended."""


def _check_spelling(owner: str, family: type[Operator]) -> None:
    """Raise PluginError for a misspelled or unused declaration in a package's family.

    The family's operators must be operators of ONNX or ONNX Runtime.
    """
    ours = [kind for kind in family.__mro__ if kind.__module__.startswith(f"{operators.__name__}.")]
    hooks = sorted(
        {name for kind in ours for name in (*vars(kind), *vars(kind).get("__annotations__", ()))}
    )
    for kind in set(family.__mro__[:-1]) - set(ours):
        for name in (name for name in vars(kind) if not name.startswith("_") and name not in hooks):
            if close := get_close_matches(name, hooks, n=1, cutoff=_LIKENESS):
                raise PluginError(
                    f"{owner}: {kind.__name__}.{name} is never called; name it "
                    f"{close[0]}, or otherwise"
                )
            if not _is_read(kind, name):
                raise PluginError(
                    f"{owner}: {kind.__name__}.{name} is never used: it is no hook of the "
                    f"compiler; {suggest_name(name, hooks)}remove it, or name it _{name}"
                )
    for form in family.forms:
        _check_operator(owner, form.onnx)


def _is_read(kind: type, name: str) -> bool:
    """Return True if some imported file of a class's package mentions an attribute's name."""
    top = sys.modules[kind.__module__.partition(".")[0]]
    home = Path(top.__file__ or "").parent
    imported = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    own = {
        path
        for path in map(Path, filter(None, imported))
        if path.parent == home or (hasattr(top, "__path__") and home in path.parents)
    }
    pattern = re.compile(rf"[.\"']{name}\b")
    texts = (path.read_text("utf-8", "replace") for path in own if path.is_file())
    return any(pattern.search(text) for text in texts)


def _check_operator(owner: str, name: str) -> None:
    """Raise PluginError for an operator that neither ONNX nor ONNX Runtime has."""
    names = {schema.name.casefold(): schema.name for schema in onnx.defs.get_all_schemas()}
    known = names.get(name.casefold(), name)
    if known == name and name not in names.values():
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

        more = {*names.values(), *(schema.name for schema in get_all_operator_schema())}
        known = name if name in more else next(iter(get_close_matches(name, more, n=1)), "")
    if known != name:
        remedy = f"write {known}" if known else "write the name of one"
        raise PluginError(f"{owner}: no ONNX operator is called {name}; {remedy}")


def annotate(graph: Graph) -> tuple[Annotation, ...]:
    """Return one annotation per node, in node order.

    The annotations depend on the model alone.
    """
    found = (find_family(graph, node) for node in graph.nodes)
    return tuple(
        Annotation(None, str(f), f.rule) if isinstance(f, Refusal) else Annotation(f.family)
        for f in found
    )


def find_family(graph: Graph, node: Node) -> type[Operator] | Refusal:
    """Return the first family that can run ``node``, or the reason why none can.

    The result does not depend on the target.
    """
    kind = node.op_type
    if node.remark:
        floats = any(graph.values[name].dtype.startswith("float") for name in node.outputs)
        where = "in float" if floats else "on the CPU"
        found = finding(
            "{operator} stays {where}: {remark}", operator=kind, where=where, remark=node.remark
        )
        return Refusal(node.name, "integer", found)
    if kind in BOUNDARIES:
        found = finding(
            "{operator} is at the border between float and integer tensors", operator=kind
        )
        return Refusal(node.name, "boundary", found)
    open_tensor = open_shape(graph, node)
    if open_tensor is not None:
        return open_tensor
    outcome: type[Operator] | Refusal = make_unknown_operator(node)
    for family in load_installed_families().by_operator.get(kind, ()) if node.integer else ():
        outcome = check(family, graph, node) or family
        if not isinstance(outcome, Refusal):
            break
    return outcome


@dataclass(frozen=True)
class SupportRow:
    """Row of the support table: a family, its ONNX operators, and the rules that a node must meet.

    Operators without ``QLinear`` or ``Integer`` in their names run quantised, between
    DequantizeLinear and QuantizeLinear; those in ``plain`` also run on bare integers. The family is
    only used with all ``instructions``. ``owner`` is the package that declares it. Subgraphs of the
    operators in ``closes`` run as one node.
    """

    family: str
    operators: tuple[str, ...]
    plain: tuple[str, ...]
    rules: tuple[str, ...]
    instructions: tuple[str, ...] = ()
    owner: str = PROJECT
    closes: tuple[str, ...] = ()


def support_table(registry: Registry | None = None) -> tuple[SupportRow, ...]:
    """Return the rows of the support table, one per family.

    By default, these are the project's own families.
    """
    registry = registry or get_built_in_families()
    rows = []
    for family in registry.families:
        floats = tuple(form.onnx for form in family.forms)
        integers = tuple(integer.onnx for form in family.forms for integer in form.integer)
        plain = tuple(form.onnx for form in family.forms if form.plain)
        owner = registry.owners[family.family]
        known = (*floats, *integers)
        instructions = family.instructions
        closed = tuple(sorted(family.closes.operators))
        rows.append(
            SupportRow(family.family, known, plain, rules(family), instructions, owner, closed)
        )
    return tuple(rows)


def markdown(rows: Sequence[SupportRow]) -> str:
    """Return the support table as a Markdown page."""
    lines = [
        "# What runs on the accelerator",
        "",
        "`dla support --format markdown` writes this page; do not edit it. Each section lists the",
        "rules of one operator family.",
        "",
        "A node runs on the accelerator if it meets every rule of its operator's family, otherwise",
        "on the CPU. `dla partition MODEL` gives the reason with the actual values.",
        "",
        "Operators with `QLinear` or `Integer` in their names run as the model contains them. All",
        "other operators run quantised, between DequantizeLinear and QuantizeLinear. Operators",
        "that cannot be quantised run in float on the CPU.",
        "",
        "Installed packages can add operator families ([guide](adding-an-instruction.md)).",
    ]
    for row in rows:
        lines += ["", f"## {row.family}"]
        for text, names in (
            ("Operators: {}.", row.operators),
            (
                "Runs as one node: any expression of one 8-bit tensor and constants with the "
                "operators {}.",
                row.closes,
            ),
            ("Also on integers without scales: {}.", row.plain),
            ("Needs {}.", row.instructions),
        ):
            lines += ["", text.format(", ".join(f"`{name}`" for name in names))] if names else []
        if row.owner != PROJECT:
            lines += ["", f"Added by {row.owner}."]
        lines += ["", *(f"- {rule}" for rule in row.rules)]
    return "\n".join(lines) + "\n"
