"""Replace the variables of a TensorFlow Lite model by inputs and outputs of its main subgraph.

LiteRT keeps a variable from one inference to the next. The rewritten model reads the old value from
an input and returns the new value as an output, so that all other modules see a model without
state. Tensors keep their indices. The state inside a fused operator, such as SVDF, is copied from
an input before the operator and to an output after it.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from byoc.frontend.tflite.file import TfliteModel, TFLiteOperator, TFLiteVariable, read_tflite
from byoc.runtimes import litert
from isa.errors import InputError

KINDS = frozenset({"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"})
"""Operators on variables."""
REMEDY = "convert the model with its state as inputs and outputs"


def remove_variables(model: TfliteModel) -> TfliteModel:
    """Return a model with an input and an output instead of each variable.

    A model without variables is returned unchanged. Raises InputError for a variable that another
    operator or subgraph uses, or that changes its shape or type.
    """
    _check_subgraphs(model)
    tensors = model.tensors
    read = dict.fromkeys(n for one in model.operators for n in one.inputs if n >= 0)
    fused = tuple(n for n in read if tensors[n].variable and n not in model.inputs)
    if not fused and not any(operator.kind in KINDS for operator in model.operators):
        return model
    variables, same = _trace_variables(model)
    for one in variables:
        _check_form(model, one)
    inputs = [one.before for one in variables]
    after = (one.after for one in variables)
    outputs = [same.get(number, number) for number in model.outputs]
    outputs += [n for n in dict.fromkeys(after) if n not in (*outputs, *inputs, *model.inputs)]
    chosen = [n for n, one in enumerate(model.operators) if one.kind not in KINDS]
    content = rewrite_model(model.content, chosen, (*model.inputs, *inputs), outputs, same)
    content = _copy_states(content, fused)
    variables += tuple(
        TFLiteVariable(tensors[n].name, len(tensors) + 2 * place, len(tensors) + 2 * place + 1, n)
        for place, n in enumerate(fused)
    )
    return replace(read_tflite(content, model.name), variables=variables, given=model)


def _copy_states(content: bytes, fused: Sequence[int]) -> bytes:
    """Return a model with an input and an output for each state inside an operator.

    Their indices follow those of all other tensors, in pairs. A CONCATENATION of one operand copies
    them: XNNPACK, which knows nothing of states, runs no such operator and so moves none.
    """
    schema = litert.schema()
    whole = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = whole.subgraphs[0]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CONCATENATION
    code.version = 3
    whole.operatorCodes.append(code)
    for number in fused:
        readers = [n for n, one in enumerate(graph.operators) if number in one.inputs]
        first = len(graph.tensors)
        for place, pair in ((readers[-1] + 1, [number, first + 1]), (readers[0], [first, number])):
            copy = schema.OperatorT()
            copy.opcodeIndex = len(whole.operatorCodes) - 1
            copy.inputs, copy.outputs = pair[:1], pair[1:]
            copy.builtinOptionsType = schema.BuiltinOptions.ConcatenationOptions
            copy.builtinOptions = schema.ConcatenationOptionsT()
            graph.operators.insert(place, copy)
        for part in ("before", "after"):
            tensor = deepcopy(graph.tensors[number])
            tensor.isVariable, tensor.name = False, f"{tensor.name.decode()}:{part}"
            graph.tensors.append(tensor)
        graph.inputs = [*graph.inputs, first]
        ends = (first + 1 if n == number else n for n in (*graph.outputs, number))
        graph.outputs = list(dict.fromkeys(ends))
    return litert.pack_model(whole) if fused else content


def _check_subgraphs(model: TfliteModel) -> None:
    """Raise InputError for a variable that is used outside the main subgraph and CALL_ONCE."""
    once = {one.options.initSubgraphIndex for one in model.operators if one.kind == "CALL_ONCE"}
    for number, graph in enumerate(model.others, start=1):
        kinds = KINDS.intersection(operator.kind for operator in graph.operators)
        if kinds and number not in once:
            raise InputError(
                f"subgraph {number} uses variables ({min(kinds)}), which only the main subgraph "
                f"and those of CALL_ONCE may; {REMEDY}"
            )


def _trace_variables(model: TfliteModel) -> tuple[tuple[TFLiteVariable, ...], dict[int, int]]:
    """Return the variables whose values pass from one inference to the next.

    The second result maps tensors to the tensor with the same value that replaces them.
    """
    keys: dict[int, str] = {}
    before: dict[str, int] = {}
    now: dict[str, int] = {}
    same: dict[int, int] = {}
    for operator in model.operators:
        if operator.kind == "VAR_HANDLE":
            shared = (operator.options.sharedName or b"").decode(errors="replace")
            keys[operator.outputs[0]] = shared or model.tensors[operator.outputs[0]].name
        elif operator.kind == "READ_VARIABLE":
            key, result = _key(operator, keys, 1), operator.outputs[0]
            if key in now:
                same[result] = now[key]
            else:
                before[key] = now[key] = result
        elif operator.kind == "ASSIGN_VARIABLE":
            number = operator.inputs[1]
            now[_key(operator, keys, 2)] = same.get(number, number)
        elif keys.keys() & {*operator.inputs}:
            raise InputError(f"{operator.name} takes a variable, which is not supported; {REMEDY}")
    return tuple(TFLiteVariable(key, number, now[key]) for key, number in before.items()), same


def _key(operator: TFLiteOperator, keys: Mapping[int, str], inputs: int) -> str:
    """Return the name of the variable that an operator with ``inputs`` inputs reads or assigns."""
    if len(operator.inputs) != inputs or operator.inputs[0] not in keys:
        raise InputError(
            f"{operator.name} names no variable of the main subgraph; convert it again"
        )
    return keys[operator.inputs[0]]


def _check_form(model: TfliteModel, one: TFLiteVariable) -> None:
    old, new = (model.tensors[number] for number in (one.before, one.after))
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        raise InputError(
            f"variable '{one.name}' has shape {list(old.shape)} and type {old.dtype}, and the "
            f"model assigns shape {list(new.shape)} and type {new.dtype}; {REMEDY}"
        )


def rewrite_model(
    content: bytes,
    operators: Iterable[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    same: Mapping[int, int],
) -> bytes:
    """Return a model with some operators, and with the tensors in ``same`` replaced."""
    whole = select_operators(content, operators, inputs, outputs)
    for operator in whole.subgraphs[0].operators:
        if operator.inputs is not None:
            operator.inputs = [same.get(int(number), int(number)) for number in operator.inputs]
    return litert.pack_model(whole)


def select_operators(
    content: bytes, operators: Iterable[int], inputs: Sequence[int], outputs: Sequence[int]
) -> Any:
    """Return a ``ModelT`` with some of the main subgraph's operators, and its inputs and outputs.

    Tensors keep their indices.
    """
    whole = litert.schema().ModelT.InitFromPackedBuf(content, 0)
    graph = whole.subgraphs[0]
    graph.operators = [graph.operators[number] for number in operators]
    graph.inputs, graph.outputs = list(inputs), list(outputs)
    whole.signatureDefs = None
    return whole
