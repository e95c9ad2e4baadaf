"""Constraints of a sweep: a small language of comparisons between machine keys.

The text is parsed by ``ast`` and evaluated by this module, never by Python itself. Examples::

    pe.count in [64, 128]
    N = 64 or 128
    sram_bytes >= 512 KiB
    schedule == "seed" or bus_bytes > 8

Names are the keys of ``Arch`` and ``Timing``, ``pe.count`` (also ``N``), ``network``, ``preset``,
and the compiler options that change programs, such as ``schedule``. A single ``=`` compares. A bare
value after ``or`` is one more alternative for the preceding comparison.
"""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from byoc.options import PROGRAM_OPTIONS
from experiments.cost.estimate import COLUMNS as ESTIMATES
from experiments.figure import all_figures
from experiments.report.schema import Host, PointFigures
from experiments.sweep.axes import ARCH_KEYS, TIMING_KEYS
from experiments.sweep.store import FIGURE_COLUMNS
from experiments.sweep.units import UNITS
from isa.errors import InputError

Values = Mapping[str, Any]
_Evaluate = Callable[[Values], Any]

OTHER_NAMES = (
    "network",
    "preset",
    "isa",
    *(option.name for option in PROGRAM_OPTIONS),
    "pe.count",
    "N",
)
SWITCHES = frozenset(option.name for option in PROGRAM_OPTIONS if option.switch)
NAMES: tuple[str, ...] = (*OTHER_NAMES, *ARCH_KEYS, *TIMING_KEYS)
MAXIMUM_LENGTH = 1000
_CONSTANTS = {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "true": True,
    "false": False,
    "none": None,
}
RESULTS: tuple[str, ...] = (
    *UNITS,
    *(figure.name for figure in all_figures(PointFigures)),
    *(figure.name for figure in all_figures(Host)),
    *ESTIMATES,
)
"""Figures that limits of a joint sweep can use besides :data:`NAMES`."""
_WRITTEN = re.compile(
    r"""(?P<text>"[^"]*"|'[^']*')|(?<![\w.])(?P<size>[\d.]+)\s*(?P<unit>[KMG]iB)\b"""
    r"""|(?<![<>=!])=(?!=)"""
)
"""A text, a size such as ``512 KiB``, or a single ``=``."""
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, items: item in items, ast.NotIn: lambda item,
    items: item not in items,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Constraint:
    """Parsed constraint: its text, the names that it reads, and its evaluation.

    ``key`` is the key of the specification that states it.
    """

    text: str
    names: frozenset[str]
    evaluate: _Evaluate
    key: str = "constraints"

    def is_satisfied(self, values: Values) -> bool:
        """Return True if a point with these values satisfies the constraint.

        ``values`` has an entry for every name of the constraint.

        Raises:
            InputError: the expression is undefined for the values, e.g. a division by zero or a
                comparison of types.
        """
        try:
            return bool(self.evaluate(values))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            given = ", ".join(f"{name} = {values[name]!r}" for name in sorted(self.names))
            raise InputError(
                f"{self.key}: '{self.text}' cannot be decided where {given} ({error})"
            ) from error


def _spell(found: re.Match[str]) -> str:
    """Return a match of :data:`_WRITTEN` as Python spells it."""
    if found["size"]:
        return f"({found['size']}*{found['unit']})"
    return found["text"] or "=="


def parse_constraint(
    text: str, results: Collection[str] = (), key: str = "constraints"
) -> Constraint:
    """Parse the text of a sweep constraint.

    ``results`` are figures of points that it can use besides :data:`NAMES`. ``key`` is the key of
    the specification that states it.

    Raise InputError that names the constraint and the part that the language does not allow.
    """
    if len(text) > MAXIMUM_LENGTH:
        raise InputError(
            f"{key}: one has {len(text)} characters; at most {MAXIMUM_LENGTH} are read"
        )
    # Python's parser reads a name such as ms.digits-cnn as a difference.
    odd = [name for name in results if not name.replace(".", "").isidentifier()]
    spelled = {f"_{number}_": name for number, name in enumerate(odd)}
    written = text
    for word, name in sorted(spelled.items(), key=lambda item: -len(item[1])):
        written = written.replace(name, word)
    try:
        tree = ast.parse(_WRITTEN.sub(_spell, written.strip()), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InputError(
            f"{key}: '{text}' is not an expression such as pe.count in [64, 128]"
        ) from error
    builder = _ConstraintBuilder(text, results, key, spelled)
    evaluate = builder.condition(tree)
    if not builder.names:
        raise InputError(f"{key}: '{text}' names no key; choose from {', '.join(NAMES)}")
    return Constraint(text, frozenset(builder.names), evaluate, key)


class _ConstraintBuilder:
    """Translator of a syntax tree into functions of the values.

    It collects the names that they read.
    """

    def __init__(
        self, text: str, results: Collection[str], key: str, spelled: Mapping[str, str]
    ) -> None:
        self._text = text
        self._key = key
        self._known = dict.fromkeys((*NAMES, *results))
        self._spelled = spelled
        self.names: set[str] = set()

    def condition(self, node: ast.expr) -> _Evaluate:
        """Return a function that evaluates comparisons combined by and, or and not.

        A condition can also be the name of a switch.
        """
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(part) for part in self._alternatives(node)]
            every = isinstance(node.op, ast.And)
            return lambda values: (all if every else any)(part(values) for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            return lambda values: not inner(values)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Name) and node.id in SWITCHES:
            return self.value(node)
        raise self._make_refusal(node, "compares nothing")

    def _alternatives(self, node: ast.BoolOp) -> list[ast.expr]:
        """Return the operands of ``or``; ``N == 6 or 8`` is read as ``N == 6 or N == 8``."""
        parts: list[ast.expr] = []
        for part in node.values:
            before = parts[-1] if parts else None
            if (
                isinstance(node.op, ast.Or)
                and isinstance(part, ast.Constant)
                and isinstance(before, ast.Compare)
            ):
                part = ast.Compare(before.left, before.ops, [part])
            parts.append(part)
        return parts

    def _comparison(self, node: ast.Compare) -> _Evaluate:
        operands = [self.value(part) for part in (node.left, *node.comparators)]
        kinds = [_COMPARE.get(type(kind)) for kind in node.ops]
        steps = list(zip(kinds, operands[:-1], operands[1:], strict=True))
        if None in kinds:
            raise self._make_refusal(node, "uses a comparison that is not known")
        return lambda values: all(
            kind(left(values), right(values)) for kind, left, right in steps if kind
        )

    def value(self, node: ast.expr) -> _Evaluate:
        """Return a function that evaluates an operand of a comparison.

        An operand is a number, a text, a name, a list of these, or arithmetic on them.
        """
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            constant = node.value
            return lambda values: constant
        if isinstance(node, ast.Name | ast.Attribute):
            return self._name(node)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = [self.value(item) for item in node.elts]
            return lambda values: [item(values) for item in items]
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right, apply = (
                self.value(node.left),
                self.value(node.right),
                _ARITHMETIC[type(node.op)],
            )
            return lambda values: apply(_number(left(values)), _number(right(values)))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand)
            return lambda values: -inner(values)
        raise self._make_refusal(node, "is not in the language of constraints")

    def _name(self, node: ast.expr) -> _Evaluate:
        name = self._spelled.get(ast.unparse(node), ast.unparse(node))
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda values: constant
        if name not in self._known:
            raise self._make_unknown(name)
        self.names.add(name)
        return lambda values: values[name]

    def _make_unknown(self, name: str) -> InputError:
        """Return the error for a name that the constraint cannot use."""
        choose = f"choose one of {', '.join(self._known)}"
        why = f"unknown key '{name}'; {choose}"
        if name in ESTIMATES:
            why = (
                f"'{name}' is estimated by a cost table when points have run; 'dla report RESULTS "
                f"--cost TABLE --x {name}' puts it on the front, and with joint = true it is a "
                f"limit; else {choose}"
            )
        elif name in (*RESULTS, *FIGURE_COLUMNS):
            why = (
                f"'{name}' is a figure, and known only when a point has run; with joint = true it "
                f"is a limit (docs/sweeps.md); else {choose}"
            )
        return InputError(f"{self._key}: '{self._text}': {why}")

    def _make_refusal(self, node: ast.expr, why: str) -> InputError:
        example = "write comparisons such as pe.count in [64, 128]"
        return InputError(f"{self._key}: '{self._text}': '{ast.unparse(node)}' {why}; {example}")


def _number(value: Any) -> int | float:
    """Return ``value`` if it is a number; else raise TypeError."""
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value
