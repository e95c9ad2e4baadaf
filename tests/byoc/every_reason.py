"""Running nodes of every operator that ``dla support`` lists, changed in one attribute, input or output at a time.

``python -m tests.byoc.every_reason`` prints for each operator how many variants run, how many are refused, and how many
stay on the CPU with a reason that names the change. Schemas and the support list say what there is to change.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_state

from byoc.compiler import CompilerPool, partition_package
from byoc.frontend.onnx.file import check_model
from byoc.frontend.onnx.rewriting.reasons import support_rows
from byoc.importing import import_model
from byoc.operators.forms import QLinear
from byoc.operators.onnx_view import BOUNDARIES
from byoc.operators.registry import installed
from byoc.options import DEFAULTS
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from isa.errors import InputError

ARCH = Arch(isa="v4", sram_bytes=1 << 22)
MICROSOFT = "com.microsoft"
Arrays = Mapping[str, NDArray[Any]]
FLOAT = "tensor(float)"
ENDS = frozenset({"runs", "refused", "named"})
"""Right ends of a variant."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """Formal input or output: its name, whether a node may leave it out, and the element types it takes."""

    name: str
    optional: bool
    types: frozenset[str]
    kind: str
    """Name of the type; parameters of one name have one type."""


@dataclass(frozen=True, eq=False)
class Schema:
    """What ONNX or ONNX Runtime declares of an operator."""

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, Any]
    words: frozenset[str]
    """Words of its description: some are names of modes."""

    @classmethod
    def of(cls, operator: str, domain: str, opset: int) -> Schema:
        found = _runtime_schemas()[operator] if domain or not defs.has(operator) else defs.get_schema(operator, opset)
        allowed = {item.type_param_str: item.allowed_type_strs for item in found.type_constraints}

        def parameters(formal: Sequence[Any]) -> tuple[Parameter, ...]:
            return tuple(
                Parameter(
                    item.name,
                    item.option.name == "Optional",
                    frozenset(allowed.get(_type_of(item), [_type_of(item)])),
                    _type_of(item),
                )
                for item in formal
            )

        texts = " ".join([found.doc or "", *(item.description for item in found.attributes.values())])
        words = frozenset(re.findall(r"[A-Za-z_]+", texts))
        return cls(parameters(found.inputs), parameters(found.outputs), dict(found.attributes), words)


def _type_of(formal: Any) -> str:
    return str(formal.type_str if hasattr(formal, "type_str") else formal.typeStr)


@cache
def _runtime_schemas() -> Mapping[str, Any]:
    schemas = runtime_state.get_all_operator_schema()
    return {item.name: item for domain in ("", MICROSOFT) for item in schemas if item.domain == domain}


@dataclass(frozen=True, eq=False)
class Case:
    """One node with its computed operands (``feeds``) and constant ones, by the names of its inputs."""

    operator: str
    node: NodeProto
    feeds: Arrays
    constants: Arrays
    opset: int
    changed: tuple[str, ...] = ()
    """What the variant changes, as reasons may call it; empty for a node as it was."""
    text: str = ""

    @cached_property
    def schema(self) -> Schema:
        return Schema.of(self.operator, self.node.domain, self.opset)

    @property
    def model(self) -> ModelProto:
        """The node as a model; outputs have the types that ONNX Runtime finds, where it finds any."""
        found = self.outputs
        count = sum(1 for name in self.node.output if name)
        kinds = [1] * count if found is None else [helper.np_dtype_to_tensor_dtype(array.dtype) for array in found]
        return self._model(kinds)

    def _model(self, types: Sequence[int]) -> ModelProto:
        names = [name for name in self.node.output if name]
        graph = helper.make_graph(
            [self.node],
            "single",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in self.feeds.items()
            ],
            [
                helper.make_tensor_value_info(name, kind, None) if kind else helper.make_empty_tensor_value_info(name)
                for name, kind in zip(names, types or [0] * len(names), strict=True)
            ],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)

    @cached_property
    def outputs(self) -> Sequence[NDArray[Any]] | None:
        """What ONNX Runtime computes; None where it does not take the model."""
        try:
            check_model(self._model([TensorProto.FLOAT] * len(list(filter(None, self.node.output)))), "single")
            session = OnnxRuntimeSession(self._model([]), optimised=False)
            found = session.run([name for name in self.node.output if name], self.feeds)
        except Exception:  # errors of model, runtime and NumPy have no common class
            return None
        return list(found.values())

    def attribute(self, name: str, value: Any, text: str) -> Case:
        node = NodeProto()
        node.CopyFrom(self.node)
        kept = [item for item in node.attribute if item.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))
        return replace(self, node=node, changed=(name,), text=text)


@dataclass
class Outcome:
    """How one variant ended: ``runs``, ``refused``, ``named``, or a fault."""

    case: Case
    kind: str
    reasons: tuple[str, ...] = ()
    error: str = ""


def place(case: Case) -> Outcome:
    """Import and partition a case, and judge the reasons for what does not run."""
    try:
        check_model(case.model, "single")
        feeds = {
            name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in case.feeds.items()
        }
        package = import_model(case.model, "single", calibration=[feeds])
        found = partition_package(package, ARCH, DEFAULTS, CompilerPool()).placement
    except InputError as error:
        lines = str(error).splitlines()
        return Outcome(case, "refused" if len(lines) == 1 else "many lines", error=str(error))
    except Exception as error:
        return Outcome(case, "traceback", error=f"{type(error).__name__}: {error}")
    fallen = [item for item in found if item.on == "cpu" and item.op_type not in BOUNDARIES]
    reasons = tuple(f"{item.op_type}: {item.reason}" for item in fallen)
    if not fallen:
        return Outcome(case, "runs" if any(item.on == "dla" for item in found) else "nothing to do")
    if any("has no pattern" in reason for reason in reasons):
        return Outcome(case, "no pattern", reasons)
    if any(_has_word(reasons, name) for name in case.changed):
        return Outcome(case, "named", reasons)
    return Outcome(case, "other cause" if _is_other_cause(case, reasons) else "not named", reasons)


def _has_word(reasons: Iterable[str], name: str) -> bool:
    return re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", " ".join(reasons)) is not None


def _is_other_cause(case: Case, reasons: Sequence[str]) -> bool:
    """Whether the reason names another attribute, and the node runs without that one."""
    named = [item.name for item in case.node.attribute if _has_word(reasons, item.name)]
    return any(place(case.attribute(name, None, "")).kind == "runs" for name in named)


# Running nodes. -------------------------------------------------------------------------------------------------------


@cache
def backend_cases() -> Mapping[str, Sequence[Case]]:
    """The onnx package's node tests of one node each, by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        testcases = collect_testcases(None)
    found: dict[str, list[Case]] = defaultdict(list)
    for testcase in testcases:
        assert testcase.model is not None
        nodes = testcase.model.graph.node
        if len(nodes) == 1 and not nodes[0].domain and testcase.data_sets:
            case = _case(testcase.model, testcase.data_sets[0][0])
            if case is not None:
                found[nodes[0].op_type].append(case)
    return found


def _case(model: ModelProto, data: Sequence[Any]) -> Case | None:
    """A node test with the integers that only choose as constants, and all numbers as float32."""
    (node,) = model.graph.node
    opset = max(13, min(model.opset_import[0].version, 24))
    try:
        schema = Schema.of(node.op_type, "", opset)
    except defs.SchemaError:
        return None
    feeds: dict[str, NDArray[Any]] = {}
    constants: dict[str, NDArray[Any]] = {}
    given = {value.name: array for value, array in zip(model.graph.input, data, strict=True)}
    for index, name in enumerate(node.input):
        if not name or name in feeds:
            continue
        array = given.get(name)
        if isinstance(array, TensorProto):
            array = numpy_helper.to_array(array)
        if not isinstance(array, np.ndarray | np.generic):
            return None
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        numbers = array.dtype.kind == "f" or formal.kind in {item.kind for item in schema.outputs}
        if FLOAT in formal.types and numbers and array.dtype.kind in "fiu":
            feeds[name] = np.asarray(np.nan_to_num(np.asarray(array, np.float32), posinf=9, neginf=-9))
        elif array.dtype in (np.float32, np.int8, np.uint8, np.bool_):
            feeds[name] = np.asarray(array)
        else:
            constants[name] = np.asarray(array)
    named = NodeProto()
    named.CopyFrom(node)
    named.name = "op"
    return Case(node.op_type, named, feeds, constants, opset)


def listed() -> tuple[str, ...]:
    """Every operator that the support table lists, but for those that are not drawn."""
    names = dict.fromkeys(name for row in support_rows() for name in (*row.operators, *row.closes))
    return tuple(name for name in names if name not in UNDRAWN)


MOST_TRIED = 12


@cache
def running_nodes(operator: str, count: int = 2) -> tuple[Case, ...]:
    """Nodes of an operator that run, each with another set of attributes and operands, the richest first.

    Each stands twice, with as few of its operands constant as can be and as many, where both run.
    """
    found: dict[Any, list[Case]] = {}
    for case in islice(_candidates(operator), 40):
        key = frozenset(item.name for item in case.node.attribute), len(case.node.input), len(case.node.output)
        if key in found:
            continue
        choices = list(_constant_operands(case))
        first = next((other for other in choices if place(other).kind == "runs"), None)
        if first is not None:
            last = next(other for other in reversed(choices) if other is first or place(other).kind == "runs")
            found[key] = [first] if first is last else [first, last]
    ranked = sorted(found.values(), key=lambda cases: -len(cases[0].node.attribute) - len(cases[0].node.input))
    return tuple(case for cases in ranked[:count] for case in cases)


def _candidates(operator: str) -> Iterator[Case]:
    known = installed().integer_forms.get(operator)
    if operator in _GIVEN:
        yield _given(operator)
    elif operator == "If":
        yield _branches()
    elif operator in backend_cases():
        yield from backend_cases()[operator]
    elif known is not None and isinstance(known[2], QLinear):
        for case in running_nodes(known[1].onnx, 4):
            yield from _quantised(operator, case, known[2])
    elif operator.startswith("QLinear"):
        for case in running_nodes(operator.removeprefix("QLinear"), 4):
            yield from _quantised(operator, case, QLinear(operator, ((0, 1, 2),), (3, 4)))
    else:
        yield from _drawn(operator)


_GIVEN: Mapping[str, tuple[int, Mapping[str, tuple[int, ...]], Mapping[str, NDArray[Any]], Mapping[str, Any]]] = {
    "Mod": (21, {"x": (4, 5)}, {"y": np.array(1.5, np.float32)}, {"fmod": 1}),
    "FusedGemm": (21, {"A": (4, 5)}, {"B": np.eye(5, 3, dtype=np.float32)}, {"activation": "Relu"}),
    "NhwcMaxPool": (21, {"x": (1, 6, 6, 4)}, {}, {"kernel_shape": [2, 2]}),
    "SimplifiedLayerNormalization": (21, {"X": (2, 3, 8)}, {"scale": np.ones(8, np.float32)}, {"axis": -1}),
    "Upsample": (9, {"X": (1, 2, 3, 3)}, {"scales": np.array([1, 1, 2, 2], np.float32)}, {"mode": "nearest"}),
}
"""Opsets, computed operands, constants and attributes of nodes that no node test has and that are not drawn."""
UNDRAWN = dict.fromkeys(("ReorderInput", "ReorderOutput"), "it computes nothing alone: ONNX Runtime writes it in pairs")
"""Operators of which no single node runs, and why."""


def _given(operator: str) -> Case:
    opset, shapes, constants, options = _GIVEN[operator]
    feeds: dict[str, NDArray[Any]] = {}
    for name, shape in shapes.items():
        numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        bytes_only = FLOAT not in Schema.of(operator, _domain_of(operator), opset).inputs[0].types
        feeds[name] = np.clip(np.rint(40 * numbers) + 128, 0, 255).astype(np.uint8) if bytes_only else numbers
    node = helper.make_node(operator, [*feeds, *constants], ["result"], "op", domain=_domain_of(operator), **options)
    return Case(operator, node, feeds, constants, opset)


def _domain_of(operator: str) -> str:
    """Return ONNX's domain, or that in which ONNX Runtime has an operator that ONNX has not."""
    return "" if defs.has(operator) else str(_runtime_schemas()[operator].domain)


def _branches() -> Case:
    """A condition about two bodies, which read the one operand."""
    bodies = {
        name: helper.make_graph(
            [helper.make_node(kind, ["x"], ["z"])], name, [], [helper.make_tensor_value_info("z", 1, [4, 5])]
        )
        for name, kind in (("then_branch", "Relu"), ("else_branch", "Sigmoid"))
    }
    node = helper.make_node("If", ["cond"], ["y"], "op", **bodies)
    numbers = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    return Case("If", node, {"x": numbers, "cond": np.array(True)}, {}, 21)


def _constant_operands(case: Case) -> Iterator[Case]:
    """The case with as many of its operands computed as can be, and with all but the first constant."""
    arrays = {**case.feeds, **case.constants}
    names = [name for name in dict.fromkeys((*case.node.input, *case.feeds)) if name in arrays]
    feeds, count = [name for name in names if name in case.feeds], len(case.feeds)
    choices = [feeds, *(feeds[:kept] for kept in range(count - 1, 1, -1)), names[:1], names[-1:]]
    for computed in choices:
        yield replace(
            case,
            feeds={name: arrays[name] for name in computed},
            constants={name: arrays[name] for name in arrays if name not in computed},
        )


def _quantised(operator: str, case: Case, form: QLinear) -> Iterator[Case]:
    """The integer operator that computes what a float node does."""
    schema = _runtime_schemas().get(operator)
    domain = MICROSOFT if schema is not None else ""
    for dtype in (np.uint8, np.int8):
        arrays: dict[int, NDArray[Any]] = {}
        operands = [(name, case.feeds.get(name, case.constants.get(name))) for name in case.node.input]
        count = len(operands)
        flags = sum(1 for _, array in operands if array is not None and array.dtype == np.bool_)
        places = form.triples(flags + 3 * (count - flags) + 2)
        if flags + len(places) != count and form.bias is None:
            continue
        for index in range(flags):
            arrays[index] = operands[index][1]  # type: ignore[assignment]
        computed = set(range(flags))
        for (_, array), (tensor, scale, zero_point) in zip(operands[flags:], places, strict=False):
            if array is None:
                break
            arrays[tensor] = np.clip(np.rint(array / 0.05), 0, 100).astype(dtype)
            arrays[scale] = np.array(0.05, np.float32)
            arrays[zero_point] = np.array(0, dtype)
            computed.add(tensor)
        arrays[form.result[0]] = np.array(0.1, np.float32)
        arrays[form.result[1]] = np.array(3, dtype)
        names = {index: f"i{index}" for index in arrays}
        attributes = {item.name for item in schema.attributes.values()} if schema is not None else set()
        node = helper.make_node(
            operator,
            [names.get(index, "") for index in range(max(names) + 1)],
            ["y"],
            "op",
            domain=domain,
            **{item.name: helper.get_attribute_value(item) for item in case.node.attribute if item.name in attributes},
        )
        feeds = {names[index]: arrays[index] for index in sorted(computed)}
        constants = {names[index]: arrays[index] for index in arrays if index not in computed}
        for extra in _required(operator, domain, case.opset, node):
            yield Case(operator, extra, feeds, constants, case.opset)


def _required(operator: str, domain: str, opset: int, node: NodeProto) -> Iterator[NodeProto]:
    """The node with a few values of the attributes that it must have and has not."""
    schema = Schema.of(operator, domain, opset)
    missing = [
        item
        for item in schema.attributes.values()
        if item.required and item.name not in {attribute.name for attribute in node.attribute}
    ]
    for values in product((1, 2, 0), repeat=len(missing)):
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.attribute.extend(
            helper.make_attribute(item.name, float(value) if "FLOAT" in str(item.type) else value)
            for item, value in zip(missing, values, strict=True)
        )
        yield copy


SHAPES = ((1, 4, 8), (8,), (8, 8), (8, 8, 8), (1, 8, 4))


def _drawn(operator: str) -> Iterator[Case]:
    """Nodes of whatever shapes ONNX Runtime takes."""
    domain = _domain_of(operator)
    schema = Schema.of(operator, domain, 21)
    random = np.random.default_rng(0)
    required = [item for item in schema.inputs if not item.optional]
    count = max(len(required), 1)
    for number in range(count, min(count + 3, len(schema.inputs) + 1)):
        found = 0
        for shapes in product(SHAPES, repeat=number):
            names = [item.name for item in schema.inputs[:number]]
            arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
            plain = helper.make_node(operator, names, ["y"], "op", domain=domain)
            for node in _required(operator, domain, 21, plain):
                case = Case(operator, node, dict(zip(names, arrays, strict=True)), {}, 21)
                if case.outputs is not None:
                    found += 1
                    yield case
                    break
            if found == 4:
                break


# Variants. ------------------------------------------------------------------------------------------------------------


def variants(case: Case, values: int = 3) -> Iterator[Case]:
    """The case with one attribute, input or output removed, added or changed, or one constant computed."""
    for item in case.node.attribute:
        yield case.attribute(item.name, None, f"without {item.name}")
    for name, attribute in case.schema.attributes.items():
        tried = (case.attribute(name, value, f"{name} = {value}") for value in _values(case, name, attribute))
        yield from islice((other for other in tried if other.outputs is not None), values)
    yield from _other_inputs(case)
    yield from _other_outputs(case)
    yield from _other_types(case)
    for name in case.constants:
        yield _computed(case, name)


def _values(case: Case, name: str, attribute: Any) -> Iterator[Any]:
    """Values for an attribute: those of other nodes of the operator, then ones of its type that are not the default."""
    known = {item.name: item for item in case.node.attribute}
    present = helper.get_attribute_value(known[name]) if name in known else None
    others = chain(_values_elsewhere(case.operator, name), _values_of_type(case, attribute, present))
    default = helper.get_attribute_value(attribute.default_value) if _has_default(attribute) else None
    shown = {repr(present), repr(default)}
    for value in others:
        if repr(value) not in shown:
            shown.add(repr(value))
            yield value


def _has_default(attribute: Any) -> bool:
    value = getattr(attribute, "default_value", None)
    return isinstance(value, AttributeProto) and bool(value.type)


def _values_elsewhere(operator: str, name: str) -> Iterator[Any]:
    for case in backend_cases().get(operator, ()):
        for item in case.node.attribute:
            if item.name == name and item.type != AttributeProto.GRAPH:
                yield helper.get_attribute_value(item)


def _values_of_type(case: Case, attribute: Any, present: Any) -> Iterable[Any]:
    kind = str(attribute.type).rpartition(".")[2]
    words = sorted(case.schema.words)
    if kind == "INT":
        return (1, 0, 2, -1, 3, 10)
    if kind == "FLOAT":
        return (0.5, 2.0, 1.0, 0.1)
    if kind == "STRING":
        return words
    if kind == "STRINGS" and isinstance(present, list):
        return ([word] * len(present) for word in words)
    if kind == "INTS":
        bumped = [[number + 1 for number in present]] if isinstance(present, list) else []
        return (*bumped, *([number] * count for number in (1, 2, 0) for count in range(1, 7)))
    if kind == "STRINGS":
        return ([word] * count for word in words for count in (1, 2, 3, 4, 6))
    if kind == "FLOATS":
        return ([number] * count for number in (0.5, 2.0) for count in range(1, 7))
    return ()


def _other_inputs(case: Case) -> Iterator[Case]:
    names = list(case.node.input)
    for index, formal in enumerate(case.schema.inputs):
        present = index < len(names) and bool(names[index])
        if not formal.optional:
            continue
        if present:
            yield _with_inputs(case, {index: ""}, {}, (formal.name, names[index]), f"without {formal.name}")
            continue
        arrays = (
            _with_inputs(
                case,
                {index: "added"},
                {"added": array},
                (formal.name, "added"),
                f"{formal.name} {array.dtype} {list(array.shape)}",
            )
            for array in _arrays(case, formal)
        )
        yield from islice((other for other in arrays if other.outputs is not None), 1)


def _with_inputs(case: Case, names: Mapping[int, str], more: Arrays, changed: tuple[str, ...], text: str) -> Case:
    node = NodeProto()
    node.CopyFrom(case.node)
    while len(node.input) <= max(names):
        node.input.append("")
    for index, name in names.items():
        node.input[index] = name
    while node.input and not node.input[-1]:
        del node.input[-1]
    feeds = {name: array for name, array in case.feeds.items() if name in node.input}
    constants = {name: array for name, array in case.constants.items() if name in node.input}
    return replace(case, node=node, feeds=feeds, constants={**constants, **more}, changed=changed, text=text)


DTYPES = {
    FLOAT: np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
}
MOST_SHAPES = 200


def _arrays(case: Case, formal: Parameter) -> Iterator[NDArray[Any]]:
    """Small arrays of the types that a formal input takes, of shapes made of the node's own dimensions."""
    dtype = next((dtype for name, dtype in DTYPES.items() if name in formal.types), None)
    if dtype is None:
        return
    shapes = [array.shape for array in (*case.feeds.values(), *case.constants.values(), *(case.outputs or ()))]
    sizes = sorted({1, 2, *(size for shape in shapes for size in shape)})
    few = sorted({*sizes, *(factor * size for factor in (2, 3) for size in sizes)})
    drawn = chain([()], shapes, *(product(few if rank < 3 else sizes, repeat=rank) for rank in (1, 2, 3, 4)))
    for shape in islice(dict.fromkeys(drawn), MOST_SHAPES):
        yield np.ones(shape, dtype)


def _other_outputs(case: Case) -> Iterator[Case]:
    names = list(case.node.output)
    for index, formal in enumerate(case.schema.outputs):
        if not formal.optional:
            continue
        present = index < len(names) and bool(names[index])
        node = NodeProto()
        node.CopyFrom(case.node)
        while len(node.output) <= index:
            node.output.append("")
        node.output[index] = "" if present else "shown"
        while node.output and not node.output[-1]:
            del node.output[-1]
        if not node.output:
            continue
        changed = (formal.name, names[index] if present else "shown")
        other = replace(case, node=node, changed=changed, text=f"{'without' if present else 'with'} {formal.name}")
        if present or other.outputs is not None:  # ONNX Runtime may not find the type of an output
            yield other


def _other_types(case: Case) -> Iterator[Case]:
    """The case with its first operand, and all of the same type, as double or int32 where ONNX Runtime takes them."""
    index, name = next((index, name) for index, name in enumerate(case.node.input) if name)
    kind = case.schema.inputs[min(index, len(case.schema.inputs) - 1)].kind
    formal = [case.schema.inputs[min(place, len(case.schema.inputs) - 1)] for place in range(len(case.node.input))]
    alike = {other for other, item in zip(case.node.input, formal, strict=True) if other and item.kind == kind}
    for dtype in (np.float16, np.float64, np.int32):
        feeds, constants = (
            {other: array.astype(dtype) if other in alike else array for other, array in arrays.items()}
            for arrays in (case.feeds, case.constants)
        )
        changed = replace(
            case, feeds=feeds, constants=constants, changed=(np.dtype(dtype).name,), text=np.dtype(dtype).name
        )
        if name in feeds and changed.outputs is not None:
            yield changed


def _computed(case: Case, name: str) -> Case:
    """The case with a constant as an input of the model."""
    places = [index for index, other in enumerate(case.node.input) if other == name]
    formal = case.schema.inputs[min(places[0], len(case.schema.inputs) - 1)].name
    constants = {other: array for other, array in case.constants.items() if other != name}
    feeds = {**case.feeds, name: case.constants[name]}
    return replace(case, feeds=feeds, constants=constants, changed=(name, formal), text=f"{formal} computed")


def judged(operator: str, values: int = 3, nodes: int = 2) -> Iterator[Outcome]:
    """How every variant of the running nodes of an operator ends."""
    seen: set[bytes] = set()
    for case in running_nodes(operator, nodes):
        for variant in variants(case, values):
            key = variant.model.SerializeToString(deterministic=True)
            if key not in seen and variant.feeds:  # a file without inputs is refused
                seen.add(key)
                outcome = place(variant)
                if variant.outputs is None and outcome.kind in ("not named", "no pattern", "named", "runs"):
                    outcome.kind = f"invalid, yet {outcome.kind}"
                yield outcome


def main() -> int:
    """Print how the variants of every operator end; return 1 where one ended otherwise than it should."""
    wanted = sys.argv[1:] or listed()
    total: Counter[str] = Counter()
    for operator in wanted:
        nodes = running_nodes(operator)
        outcomes = list(judged(operator))
        counts = Counter(outcome.kind for outcome in outcomes)
        total += counts
        print(f"{operator:26} {len(nodes)} nodes, {len(outcomes)} variants: {dict(counts)}", flush=True)
        for outcome in outcomes:
            if outcome.kind not in ENDS:
                print(f"    {outcome.kind}: {outcome.case.text}: {'; '.join(outcome.reasons) or outcome.error}"[:400])
    print(f"{len(wanted)} operators, {total.total()} variants: {dict(total)}")
    return int(not total.keys() <= ENDS)


if __name__ == "__main__":
    sys.exit(main())
