"""Find out why float nodes stay on the CPU: change the node alone and run the passes again.

If a node without one of its attributes, optional inputs or outputs is rewritten or quantised, that
part is the reason. No pass has to state its conditions a second time.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper

from byoc.frontend.onnx.rewriting.constants import fold_constants
from byoc.frontend.onnx.rewriting.form import convert_opset
from byoc.frontend.onnx.rewriting.law import OperatorPass
from byoc.frontend.onnx.rewriting.prepare import ORDER, PassStage
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.frontend.onnx.units import NOT_QUANTISED
from byoc.graph import Node
from byoc.operators.onnx_view import BOUNDARIES, DEQUANTIZE
from byoc.operators.registry import Registry, SupportRow, load_installed_families, support_table
from byoc.runtimes.protobuf import (
    array_of,
    byte_size,
    copy_model,
    embed_constants,
    set_attributes,
    set_items,
    shapes_of,
    standard,
    types_of,
)

LARGEST_BYTES = 1 << 26
"""Size of a node's constants, in bytes, above which it is not tried alone."""


def list_rewritten_operators() -> frozenset[str]:
    """Return the operators that passes rewrite as others, as far as passes declare them."""
    return frozenset(
        name for stage in ORDER for name in _operators(stage) if name not in BOUNDARIES
    )


def support_rows(registry: Registry | None = None) -> tuple[SupportRow, ...]:
    """Return the support table: a row per family, and one for operators that only run rewritten."""
    rows = support_table(registry)
    known = {name for row in rows for name in (*row.operators, *row.closes)}
    rule = "the importer replaces the operator by other operators, which have their own rules"
    return (
        *rows,
        SupportRow("other forms", tuple(sorted(list_rewritten_operators() - known)), (), (rule,)),
    )


def _operators(stage: PassStage) -> Collection[str]:
    return (
        stage.step.operators if isinstance(stage.step, OperatorPass) and not stage.for_cpu else ()
    )


@dataclass(frozen=True, eq=False)
class KeptNodes:
    """Prepared model, with the search for why some of its nodes remain in float.

    ``left_out`` names the passes that were omitted for this model. ``quantised`` is True if the
    file was quantised. ``quantises`` returns True if the quantiser leaves no node of a float model
    in float.
    """

    model: ModelProto
    left_out: Collection[str]
    quantised: bool
    quantises: Callable[[ModelProto], bool]

    def explain(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Return ``nodes`` with known causes in the remarks of nodes that stay in float."""
        protos = {proto.name: proto for proto in self.model.graph.node}
        return tuple(
            replace(node, remark=self.reason(protos[node.name]) or node.remark)
            if node.name in protos and self._is_open(node)
            else node
            for node in nodes
        )

    def _is_open(self, node: Node) -> bool:
        """Return True if a float node's only known cause is that its operands are in float.

        It is also True if no cause is known.
        """
        if node.integer or node.op_type in BOUNDARIES:
            return False
        return not node.remark or (not self.quantised and node.remark.endswith(NOT_QUANTISED))

    def reason(self, node: NodeProto) -> str:
        """Return why no pass rewrites ``node`` and the quantiser leaves it in float.

        The result is empty if no reason is known.
        """
        stages = [stage for stage in ORDER if node.op_type in _operators(stage)]
        known = not self.quantised and node.op_type in _list_quantised_operators()
        alone = self._alone(node) if stages or known else None
        if alone is None:
            return ""
        working = next((stage for stage in stages if _is_rewritten_by(stage, alone)), None)
        if working is not None:
            return self._applicable(working, alone)
        if known and self._is_quantised(alone):
            return ""
        found = _causes(
            alone, lambda model: any(_is_rewritten_by(stage, model) for stage in stages)
        )
        if found:
            return f"it runs in another form, but not with {' and '.join(found)}"
        found = _causes(alone, self._is_quantised) if known else []
        if found:
            return f"it runs quantised, but not with {' and '.join(found)}"
        parts = [part.text for part in _parts(alone.graph.node[0]) if part.field == "attribute"]
        parts += [f"'{value.name}' {_format_value(value)}" for value in alone.graph.input]
        parts += [f"'{item.name}' constant {list(item.dims)}" for item in alone.graph.initializer]
        return (
            f"it runs {'quantised' if known else 'in another form'}, but not with "
            f"{', '.join(parts)}"
        )

    def _is_quantised(self, model: ModelProto) -> bool:
        try:
            return self.quantises(model)
        except Exception:  # any exception, as in _rewrites
            return False

    def _applicable(self, stage: PassStage, alone: ModelProto) -> str:
        """Explain why a pass keeps a node that it would rewrite if the model had no other node."""
        name = stage.step.__name__
        if name in self.left_out:
            parts = [part.text for part in _parts(alone.graph.node[0]) if part.field == "attribute"]
            these = f" ({', '.join(parts)})" if parts else ""
            found = f"pass {name} would write it in another form{these}"
            return f"{found}, and is left out: it moves rounding in this model"
        if stage.models == "float" and self.quantised:
            return (
                "it runs in another form in float models alone: this file gives no scales for the "
                "tensors inside"
            )
        scales = " with the scales that this file gives" if self.quantised else ""
        return f"it runs in another form, but not between the nodes around it here{scales}"

    @cached_property
    def _producers(self) -> Mapping[str, NodeProto]:
        return {name: node for node in self.model.graph.node for name in node.output}

    @cached_property
    def _constants(self) -> Mapping[str, TensorProto]:
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return shapes_of(self.model.graph)

    @cached_property
    def _types(self) -> Mapping[str, int]:
        return types_of(self.model.graph)

    def _alone(self, node: NodeProto) -> ModelProto | None:
        """Return a float model that contains a single node, at the opset of float models.

        Computed operands are inputs. Returns None if a type is unknown or if the constants are too
        large to be copied for every attempt.
        """
        inputs: list[ValueInfoProto] = []
        constants: list[TensorProto] = []
        for name in dict.fromkeys(filter(None, node.input)):
            constant = self._constant(name)
            if constant is not None:
                constants.append(constant)
            elif (source := self._find_dequantised(name)) in self._types:
                inputs.append(self._declare_tensor(name, source))
            else:
                return None
        outputs = [self._declare_tensor(name) for name in node.output if name in self._types]
        if not outputs or sum(map(byte_size, constants)) > LARGEST_BYTES:
            return None
        graph = helper.make_graph([node], "alone", inputs, outputs, constants)
        model = embed_constants(
            helper.make_model(
                graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
            )
        )
        # converting can turn attributes into constant operands
        newest = fold_constants(convert_opset(model))
        return _infer_outputs(newest if len(newest.graph.node) == 1 else model)

    def _declare_tensor(self, name: str, source: str = "") -> ValueInfoProto:
        """Return the declaration of a tensor; a dequantised one has the shape of its ``source``."""
        shape = self._shapes.get(source or name)
        return helper.make_tensor_value_info(name, self._types.get(name, TensorProto.FLOAT), shape)

    def _find_dequantised(self, name: str) -> str:
        """Return the tensor that ``name`` is quantised or dequantised from.

        It is ``name`` itself if its type is known.
        """
        while (
            name not in self._types
            and name in self._producers
            and self._producers[name].op_type in BOUNDARIES
        ):
            name = self._producers[name].input[0]
        return name

    def _constant(self, name: str) -> TensorProto | None:
        """Return the constant that a node reads; None if the operand is computed.

        A dequantised operand is returned as its integers in float, because its values do not
        matter.
        """
        maker = self._producers.get(name)
        stored = (
            self._constants.get(maker.input[0])
            if maker is not None and maker.op_type == DEQUANTIZE
            else None
        )
        if stored is not None:
            return numpy_helper.from_array(array_of(stored).astype(np.float32), name)
        return self._constants.get(name)


def _list_quantised_operators() -> Collection[str]:
    """Return the operators that the quantiser may quantise."""
    registry = load_installed_families()
    return registry.forms.keys() | registry.closes.operators


def _causes(alone: ModelProto, runs: Callable[[ModelProto], bool]) -> list[str]:
    """Return the parts of a node that prevent its rewriting or quantisation.

    These are all parts whose removal alone suffices, else a minimal set.
    """
    parts = list(_parts(alone.graph.node[0]))
    parts += _list_computed_operands(alone)

    def is_quantised_without(removed: Collection[_NodePart]) -> bool:
        return runs(_remove_parts(alone, removed))

    single = [part.text for part in (*parts, *_numbers(alone)) if is_quantised_without([part])]
    if single:  # of "absent" and "constant" for the same operand, keep the latter
        longest = (
            text for text in single if not any(other.startswith(f"{text} ") for other in single)
        )
        return [" or ".join(dict.fromkeys(longest))]
    if not is_quantised_without(parts):
        return []
    removed = parts
    for part in parts:
        fewer = [other for other in removed if other is not part]
        if is_quantised_without(fewer):
            removed = fewer
    return [part.text for part in removed]


@dataclass(frozen=True)
class _NodePart:
    """A removable part of a node: an attribute by name, or an input or output by position.

    The field ``computed`` is an input that could be constant instead; ``number`` is an input that
    could be 0.
    """

    text: str
    field: Literal["attribute", "input", "output", "computed", "number"]
    key: str | int


def _parts(node: NodeProto) -> Iterator[_NodePart]:
    """Yield the removable parts of a node: attributes, optional inputs, further outputs."""
    for item in node.attribute:
        value = helper.get_attribute_value(item)
        plain = [
            part.decode() if isinstance(part, bytes) else part
            for part in (value if _is_list(value) else [value])
        ]
        shown = plain if _is_list(value) else plain[0]
        yield _NodePart(f"attribute {item.name} = {shown}"[:90], "attribute", item.name)
    known = _is_known(node)
    inputs = defs.get_schema(node.op_type).inputs if known else ()
    outputs = defs.get_schema(node.op_type).outputs if known else ()
    for index, name in enumerate(node.output):
        if index and name:
            formal = outputs[index].name if index < len(outputs) else "output"
            yield _NodePart(f"{formal} (output '{name}')", "output", index)
    option = defs.OpSchema.FormalParameterOption.Optional
    for index, name in enumerate(node.input):
        if index and name and (index >= len(inputs) or inputs[index].option == option):
            yield _NodePart(f"{_formal(node, index)} (input '{name}')", "input", index)


def _is_known(node: NodeProto) -> bool:
    """Return True if onnx has a schema of a node's operator."""
    return standard(node) and bool(defs.has(node.op_type))


def _is_list(value: object) -> bool:
    return not isinstance(value, (str, bytes, int, float)) and isinstance(value, Iterable)


def _list_computed_operands(alone: ModelProto) -> Iterator[_NodePart]:
    """Yield a node's operands after the first that are computed at run time."""
    (node,) = alone.graph.node
    computed = {value.name for value in alone.graph.input}
    for index, name in enumerate(node.input):
        if index and name in computed:
            yield _NodePart(
                f"{_formal(node, index)} (input '{name}') computed at run time", "computed", name
            )


def _numbers(alone: ModelProto) -> Iterator[_NodePart]:
    """Yield a node's optional float operands that are absent or computed scalars."""
    (node,) = alone.graph.node
    shapes = shapes_of(alone.graph)
    option = defs.OpSchema.FormalParameterOption.Optional
    constants = {tensor.name for tensor in alone.graph.initializer}
    for index, formal in enumerate(defs.get_schema(node.op_type).inputs if _is_known(node) else ()):
        name = "".join(node.input[index : index + 1])
        if formal.option != option or "tensor(float)" not in formal.types or name in constants:
            continue
        if not name:
            yield _NodePart(f"no {formal.name}", "number", index)
        elif shapes.get(name) == ():
            yield _NodePart(f"{formal.name} (input '{name}') computed at run time", "number", index)


def _formal(node: NodeProto, index: int) -> str:
    """Return the name that an operator's schema gives to an input."""
    inputs = defs.get_schema(node.op_type).inputs if _is_known(node) else ()
    return inputs[index].name if index < len(inputs) else "input"


def _remove_parts(alone: ModelProto, removed: Collection[_NodePart]) -> ModelProto:
    result = copy_model(alone)
    (node,) = result.graph.node
    for part in removed:
        if part.field == "attribute":
            set_attributes(node, str(part.key))
        elif part.field == "computed":
            _make_constant(result, str(part.key))
        elif part.field == "number":
            node.input.extend([""] * (int(part.key) + 1 - len(node.input)))
            node.input[int(part.key)] = "zero"
            result.graph.initializer.append(
                numpy_helper.from_array(np.zeros((), np.float32), "zero")
            )
        else:
            names = node.input if part.field == "input" else node.output
            names[int(part.key)] = ""
    for names in (node.input, node.output):
        while names and not names[-1]:
            del names[-1]
    made = set(node.output)
    set_items(result.graph.output, (value for value in result.graph.output if value.name in made))
    return _infer_outputs(result)


def _infer_outputs(model: ModelProto) -> ModelProto:
    """Return a single-node model with inferred output shapes.

    If inference fails, the shapes are the declared ones.
    """
    plain = copy_model(model)
    for value in plain.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = infer_shapes(plain)
    except Exception:  # any exception, as in _rewrites
        return model
    known = all(value.type.tensor_type.HasField("shape") for value in inferred.graph.output)
    return inferred if known else model


def _make_constant(model: ModelProto, name: str) -> None:
    """Replace a model input of known shape by a constant of ones, in place."""
    shape = shapes_of(model.graph).get(name)
    if shape is None:
        return
    dtype = helper.tensor_dtype_to_np_dtype(types_of(model.graph)[name])
    set_items(model.graph.input, (value for value in model.graph.input if value.name != name))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, dtype), name))


def _is_rewritten_by(stage: PassStage, model: ModelProto) -> bool:
    """Return True if a pass replaces the only node of a model.

    A node with the same operator on the same data does not count as a replacement.
    """
    (node,) = model.graph.node
    try:
        made = stage.step(model)
    # without a part that it needs, the node is invalid, and passes may fail in any way
    except Exception:
        return False
    return not any(
        other.op_type == node.op_type and other.input[:1] == node.input[:1]
        for other in made.graph.node
    )


def _format_value(value: ValueInfoProto) -> str:
    """Return the type and shape of a tensor as text."""
    kind = value.type.tensor_type
    element = helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    if not kind.HasField("shape"):
        return f"{element} of unknown shape"
    return f"{element} {[dim.dim_value or dim.dim_param or '?' for dim in kind.shape.dim]}"
