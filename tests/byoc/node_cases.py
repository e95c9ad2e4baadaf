"""A node with its inputs, and the outcome of its compilation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_state

from byoc.compiler import CompilerPool, partition_package
from byoc.frontend.onnx.file import check_model
from byoc.importing import import_model
from byoc.operators.onnx_view import BOUNDARIES
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
    """Formal input or output of an operator: name, whether it is optional, and element types."""

    name: str
    optional: bool
    types: frozenset[str]
    kind: str
    """Name of the type; parameters of one name have one type."""


@dataclass(frozen=True, eq=False)
class Schema:
    """Declaration of an operator by ONNX or ONNX Runtime."""

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, Any]
    words: frozenset[str]
    """Words of its description: some are names of modes."""

    @classmethod
    def of(cls, operator: str, domain: str, opset: int) -> Schema:
        found = (
            runtime_schemas()[operator]
            if domain or not defs.has(operator)
            else defs.get_schema(operator, opset)
        )
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

        texts = " ".join(
            [found.doc or "", *(item.description for item in found.attributes.values())]
        )
        words = frozenset(re.findall(r"[A-Za-z_]+", texts))
        return cls(
            parameters(found.inputs), parameters(found.outputs), dict(found.attributes), words
        )


def _type_of(formal: Any) -> str:
    return str(formal.type_str if hasattr(formal, "type_str") else formal.typeStr)


@cache
def runtime_schemas() -> Mapping[str, Any]:
    schemas = runtime_state.get_all_operator_schema()
    return {
        item.name: item for domain in ("", MICROSOFT) for item in schemas if item.domain == domain
    }


@dataclass(frozen=True, eq=False)
class Case:
    """One node with its computed operands (``feeds``) and constant ones, by input name."""

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
        """The node as a model.

        Outputs have the types that ONNX Runtime finds, where it finds any.
        """
        found = self.outputs
        count = sum(1 for name in self.node.output if name)
        kinds = (
            [1] * count
            if found is None
            else [helper.np_dtype_to_tensor_dtype(array.dtype) for array in found]
        )
        return self._model(kinds)

    def _model(self, types: Sequence[int]) -> ModelProto:
        names = [name for name in self.node.output if name]
        graph = helper.make_graph(
            [self.node],
            "single",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in self.feeds.items()
            ],
            [
                helper.make_tensor_value_info(name, kind, None)
                if kind
                else helper.make_empty_tensor_value_info(name)
                for name, kind in zip(names, types or [0] * len(names), strict=True)
            ],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10)

    @cached_property
    def outputs(self) -> Sequence[NDArray[Any]] | None:
        """ONNX Runtime's results, or None if it rejects the model."""
        try:
            check_model(
                self._model([TensorProto.FLOAT] * len(list(filter(None, self.node.output)))),
                "single",
            )
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
    """Outcome of one variant: ``runs``, ``refused``, ``named``, or a fault."""

    case: Case
    kind: str
    reasons: tuple[str, ...] = ()
    error: str = ""


def place(case: Case) -> Outcome:
    """Import and partition a case, and judge the reasons for nodes on the CPU."""
    try:
        check_model(case.model, "single")
        feeds = {
            name: array.astype(np.float32) if array.dtype == np.float16 else array
            for name, array in case.feeds.items()
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
    if any("is not supported on the accelerator" in reason for reason in reasons):
        return Outcome(case, "no pattern", reasons)
    if any(_has_word(reasons, name) for name in case.changed):
        return Outcome(case, "named", reasons)
    return Outcome(case, "other cause" if _is_other_cause(case, reasons) else "not named", reasons)


def _has_word(reasons: Iterable[str], name: str) -> bool:
    return re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", " ".join(reasons)) is not None


def _is_other_cause(case: Case, reasons: Sequence[str]) -> bool:
    """Return True if the reason names another attribute, and the node runs without that one."""
    named = [item.name for item in case.node.attribute if _has_word(reasons, item.name)]
    return any(place(case.attribute(name, None, "")).kind == "runs" for name in named)
