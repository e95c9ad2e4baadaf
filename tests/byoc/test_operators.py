"""One class in one file is all that the compiler needs for an operator.

No other module knows the operator by its name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc import operators
from byoc.importing import import_model
from byoc.operators import registry
from byoc.operators.layer import make_layer
from byoc.operators.operator import Operator
from byoc.operators.records import NUMBERS
from byoc.operators.registry import support_table
from byoc.scheduling.search_pool import SearchPool
from isa.arch import Arch
from tests.byoc import region_cases as cases
from tests.byoc.oracle_check import check_against_onnxruntime, placed
from tests.byoc.small_models import unary_unit
from tests.e2e.harness import compare

ROOT = Path(byoc.__path__[0])
ROOMS = ("operators", "frontend")
FAULTS = "runtimes/runtime_faults.py"
"""The one other file that names operators: those that ONNX Runtime computes wrongly."""


def _elsewhere() -> Iterator[tuple[str, ast.AST]]:
    """Every node of every file of the compiler outside the rooms that may know operators.

    A file that defines a class of operators may ask for it, too: it is one of the rooms.
    """
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if name.parts[0] not in ROOMS:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield str(name), node


def _families() -> set[str]:
    """Names of the operator classes, abstract ones included."""

    def below(cls: type[Operator]) -> Iterator[str]:
        for sub in cls.__subclasses__():
            yield sub.__name__
            yield from below(sub)

    return {*below(Operator), "Operator"}


def test_no_operator_is_known_by_its_name_outside_its_room() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    known |= {
        op_type
        for family in registry.get_built_in_families().families
        for op_type in registry.op_types(family)
    }
    known |= set(registry.get_built_in_families().integer_forms)
    found = [
        f"{name}:{node.lineno} {node.value}"
        for name, node in _elsewhere()
        if isinstance(node, ast.Constant) and node.value in known
    ]
    others = [one for one in found if not one.startswith(FAULTS)]
    assert len(known) > 180
    assert len(others) < len(found)
    assert others == []


def test_nobody_asks_what_class_an_operation_is() -> None:
    classes = _families()
    assert {"Convolution", "Add", "ElementwiseOperator"} <= classes
    found = [
        f"{name}:{node.lineno}"
        for name, node in _elsewhere()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "type")
        for asked in ast.walk(node)
        if isinstance(asked, ast.Name) and asked.id in classes
    ]
    assert found == []


SLOPE = '''
"""PRelu of one slope: a leaky Relu."""

from byoc.operators.activation import Activation
from byoc.operators.forms import Form
from byoc.operators.operator import finding, rule


@rule("the slope of a PRelu is one constant number")
def one_slope(graph, node):
    if "alpha" in node.attributes:
        return None
    return finding("its slope is computed, or has several numbers")


class Slope(Activation):
    family = "slope"
    forms = (Form("PRelu"),)
    inner_types = ()
    requirements = (*Activation.requirements, one_slope)
    functions = {"PRelu": "leaky_relu"}

    @classmethod
    def attributes(cls, written):
        slope = written.view.scalar(written.node.input(1))
        return {} if slope is None else {"alpha": slope}
'''


@pytest.fixture
def slope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more file in the operators' folder."""
    (tmp_path / "slope.py").write_text(SLOPE, encoding="utf-8")
    monkeypatch.setattr(operators, "__path__", [*operators.__path__, str(tmp_path)])
    registry.get_built_in_families.cache_clear()
    registry.load_installed_families.cache_clear()
    yield
    registry.get_built_in_families.cache_clear()
    registry.load_installed_families.cache_clear()


def _prelu(
    dtype: str = "int8", slopes: object = 0.3, after: tuple[float, int] = (0.05, 3)
) -> onnx.ModelProto:
    before = (0.05, 3 if dtype == "int8" else 131)
    return unary_unit("PRelu", (2, 3, 4, 5), dtype, before, after, [(slopes, "float32")])


@pytest.mark.usefixtures("slope")
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_one_file_is_all_that_an_operator_on_existing_instructions_takes(dtype: str) -> None:
    for after in ((0.05, 3), (0.037, 90)):
        model = _prelu(dtype, after=after)
        assert placed(check_against_onnxruntime(model)) == {"op": "dla"}
        feed = {"x": np.random.default_rng(5).integers(0, 256, (2, 3, 4, 5), np.uint8).view(dtype)}
        found = compare(import_model(model, "slope"), feed, Arch())
        assert (found.mismatches, found.elements) == (0, 120)
        assert {c.instruction.mnemonic for c in found.network.programs[0].commands} >= {
            "OP_ACT_LRELU"
        }


@pytest.mark.usefixtures("slope")
def test_its_rules_speak_for_it_and_so_does_the_support_table() -> None:
    assert placed(check_against_onnxruntime(_prelu(slopes=[[[0.1]], [[0.2]], [[0.3]]])))["op"] == (
        "its slope is computed, or has several numbers; the slope of a PRelu is one constant number"
    )
    row = next(row for row in support_table() if row.family == "slope")
    assert row.operators == ("PRelu",)
    assert "the slope of a PRelu is one constant number" in row.rules


def test_without_the_file_it_runs_on_the_cpu() -> None:
    assert placed(check_against_onnxruntime(_prelu()))["op"] == (
        "OP_LUT is not in ISA v2; choose an ISA that has it (dla isa)"
    )


def test_layers_share_a_search_exactly_where_nothing_that_a_tiling_depends_on_differs() -> None:
    """Numbers and weights do not matter; every size, the window and the instruction do."""
    random = np.random.default_rng(3)
    arch = Arch()
    pool = SearchPool[None]()
    x = cases.operand("x", 8, 12, 12)
    plain = cases.convolution(random, x, "y", 8, pads=(1, 1, 1, 1))
    other_numbers = replace(
        plain, weights=-plain.weights, input_zero_point=plain.input_zero_point + 1
    )
    different = [
        plain,
        cases.convolution(random, x, "y", 9, pads=(1, 1, 1, 1)),
        cases.convolution(random, x, "y", 8, pads=(1, 0, 1, 2)),
        cases.convolution(random, x, "y", 8, kernel=(3, 5), pads=(1, 2, 1, 2)),
        cases.convolution(random, x, "y", 8, pads=(1, 1, 1, 1), wide=True),
        cases.convolution(random, x, "y", 8, pads=(1, 1, 1, 1), depthwise=True),
        cases.convolution(random, x, "y", 8, pads=(1, 1, 1, 1), depthwise=True, emulated=True),
        replace(cases.pool(x, "y", "max"), kernel=(2, 2)),
        replace(cases.pool(x, "y", "max"), dilations=(1, 2)),
        cases.pool(x, "y", "average"),
    ]
    layers = [make_layer(operation, arch) for operation in (*different, other_numbers)]
    searches = pool.searches(layers, arch)
    assert searches[-1] is searches[0]
    assert len({id(search) for search in searches}) == len(different)
    assert all(name not in NUMBERS for layer in layers for name, _ in layer.geometry.registers)


ORDER = (
    "graph",
    "options",
    "operators",
    "estimate",
    "layout",
    "scheduling",
    "compiled",
    "emission",
    "partitioning",
)
BESIDE = {
    "runtimes": ("operators",),
    "frontend": ("graph", "options", "operators", "runtimes"),
    "compiled": ("package",),
    "partitioning": ("package",),
}
"""What a folder imports besides those before it in the order."""


def test_the_rooms_import_each_other_in_the_order_in_which_data_flows() -> None:
    """Each folder of the compiler, and ``compiled``, imports those before it.

    The front end imports operators and sessions.
    """
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).with_suffix("").parts[0]
        if room not in (*ORDER, *BESIDE):
            continue
        before = ORDER[: ORDER.index(room)] if room in ORDER else ()
        allowed = (*before, room, *BESIDE.get(room, ()))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("byoc."):
                assert (node.module or "").split(".")[1] in allowed, (
                    f"{path.name} imports {node.module}"
                )
