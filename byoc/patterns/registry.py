"""Every operator family: the project's own, and those of packages outside it (entry point group ``dla.patterns``).

An entry point names a :class:`byoc.patterns.base.Pattern`, or a function without parameters that returns one::

    [project.entry-points."dla.patterns"]
    subtraction = "my_package:PATTERN"

Families of one operator are asked in turn, those of other packages first: each names the instructions that it needs,
and on a machine without them the next one is asked. The project's own families are never altered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from byoc.graph import Graph, Node
from byoc.patterns import activation, add, concatenation, convolution, matmul, minmax, movement, pooling
from byoc.patterns.base import Pattern, Rejection
from isa.errors import InputError

GROUP = "dla.patterns"
PROJECT = "the project"
PATTERNS: tuple[Pattern[Any], ...] = (
    convolution.PATTERN,
    matmul.PATTERN,
    pooling.MAXIMUM,
    pooling.AVERAGE,
    add.PATTERN,
    activation.PATTERN,
    minmax.PATTERN,
    movement.PATTERN,
    concatenation.PATTERN,
)
"""The families of this repository."""


@dataclass(frozen=True, eq=False)
class Registry:
    """Families in the order in which they are asked, and the owner of each by its name."""

    patterns: tuple[Pattern[Any], ...]
    owners: Mapping[str, str]

    @cached_property
    def by_operator(self) -> Mapping[str, tuple[Pattern[Any], ...]]:
        """The families of every operator."""
        found: dict[str, tuple[Pattern[Any], ...]] = {}
        for pattern in self.patterns:
            for op_type in pattern.op_types:
                found[op_type] = (*found.get(op_type, ()), pattern)
        return found

    @cached_property
    def quantised(self) -> Mapping[str, int | None]:
        """ONNX operators that families outside the project want quantised, and how many of their operands."""
        return {op_type: count for pattern in self.patterns for op_type, count in pattern.quantised.items()}

    def extended(self, owner: str, pattern: Pattern[Any]) -> Registry:
        """These families and ``pattern``, asked first; raises InputError naming the owner of what is taken."""
        if pattern.name in self.owners:
            raise InputError(
                f"{owner}: pattern {pattern.name} is taken by {self.owners[pattern.name]}; "
                "choose another name or uninstall one of the two"
            )
        for op_type in pattern.op_types:
            other = next((item for item in self.by_operator.get(op_type, ()) if not pattern.instructions), None)
            if other is not None:
                raise InputError(
                    f"{owner}: pattern {pattern.name} takes operator {op_type} from pattern {other.name} "
                    f"of {self.owners[other.name]}; name the instructions that it needs"
                )
        return Registry((pattern, *self.patterns), {**self.owners, pattern.name: owner})


@cache
def built_in() -> Registry:
    """The families of this repository alone."""
    return Registry(PATTERNS, {pattern.name: PROJECT for pattern in PATTERNS})


@cache
def installed() -> Registry:
    """The families of this repository and of all installed packages.

    Raises InputError naming the entry point and its package when it cannot be loaded or takes what is taken. Computed
    once a process; ``installed.cache_clear()`` makes it look again.
    """
    from isa.plugins import loaded

    registry = built_in()
    for owner, pattern in loaded(GROUP, Pattern, "byoc.patterns.base.Pattern"):
        registry = registry.extended(owner, pattern)
    return registry


def find_pattern(graph: Graph, node: Node) -> Pattern[Any] | Rejection:
    """The first family that can run ``node``, or why none can; depends on the model alone, not on the target."""
    if node.remark:
        return Rejection(f"{node.op_type} stays in float: {node.remark}")
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return Rejection(f"{node.op_type} is where the integer part of the network ends")
    found: Pattern[Any] | Rejection = Rejection(f"operator {node.op_type} has no pattern")
    for pattern in installed().by_operator.get(node.op_type, ()) if node.integer else ():
        found = pattern.check(graph, node) or pattern
        if isinstance(found, Pattern):
            break
    return found
