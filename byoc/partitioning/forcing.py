"""Keep chosen nodes on the CPU although the accelerator could run them (``--cpu``)."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from byoc.graph import Annotation, Graph, Node
from byoc.package.package import Package, build_package
from isa.errors import InputError, suggest_name

FORCED = "forced"
"""Name of the rule that refuses such a node."""
BY_TYPE = "op:"


def keep_on_cpu(package: Package, patterns: Sequence[str]) -> Package:
    """Return ``package`` with the nodes that match any of ``patterns`` on the CPU.

    A pattern has shell syntax (``*``, ``?``, ``[ab]``) and matches names of canonical nodes, or
    types after ``op:``. A node that runs on the CPU anyway keeps its own reason. Raises InputError
    for a pattern that matches no node.
    """
    if not patterns:
        return package
    for pattern in patterns:
        if not any(_is_match(pattern, node) for node in package.graph.nodes):
            raise InputError(f"--cpu {pattern}: no node matches; {_advice(pattern, package.graph)}")
    annotations = tuple(
        _force_node(node, annotation, patterns)
        for node, annotation in zip(package.graph.nodes, package.annotations, strict=True)
    )
    return build_package(
        package.graph,
        annotations,
        package.model,
        package.rewritten_activations,
        package.source,
        package.fidelity,
    )


def _force_node(node: Node, annotation: Annotation, patterns: Sequence[str]) -> Annotation:
    found = next((pattern for pattern in patterns if _is_match(pattern, node)), None)
    if found is None or annotation.family is None:
        return annotation
    return replace(annotation, family=None, reason=f"kept on the CPU by --cpu {found}", rule=FORCED)


def _is_match(pattern: str, node: Node) -> bool:
    if pattern.startswith(BY_TYPE):
        return fnmatchcase(node.op_type, pattern.removeprefix(BY_TYPE))
    return node.name == pattern or fnmatchcase(node.name, pattern)


def _advice(pattern: str, graph: Graph) -> str:
    types = sorted({node.op_type for node in graph.nodes})
    if pattern.startswith(BY_TYPE):
        return f"the types are {', '.join(types)}"
    close = suggest_name(pattern, [node.name for node in graph.nodes])
    return (
        f"{close}'dla partition MODEL' lists them; a type of operator is written "
        f"op:{types[0] if types else 'TYPE'}"
    )
