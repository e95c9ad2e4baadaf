"""Import a quantised TensorFlow Lite model as a canonical graph.

Every integer operator becomes canonical nodes with the names of operator families, and a chain of
element-wise operators on one tensor becomes a table that LiteRT computes. Other operators become
host nodes with the schema's names. Window operators read channels first, by a view: weights, axes
and shapes are transposed here, so the network has the same cycles as its NCHW version.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite import elementwise, movement, products, reductions
from byoc.frontend.tflite.cutting import cut_model, operators_between, read_initial_values
from byoc.frontend.tflite.file import TfliteModel, TFLiteOperator
from byoc.frontend.tflite.unit import (
    PLANES,
    Collection,
    KeptOnCpuError,
    Reader,
    TensorView,
    UnitContext,
    natural,
    planes,
)
from byoc.graph import Graph, Node, StatePair, drop_unread
from byoc.operators import domain
from byoc.operators.domain import INT8
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.operators.table import TABLE
from byoc.operators.verify import verify_graph
from byoc.runtimes.litert import Resolver
from byoc.runtimes.litert_process import LiteRTModel, get_session
from isa.errors import InputError

_LONE = frozenset({"RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE", "MINIMUM", "MAXIMUM"})
"""Operators with an instruction of their own; a single one of them does not become a table."""
CLOSES = _LONE | {
    "ABS", "ADD", "CEIL", "COS", "DEQUANTIZE", "DIV", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH",
    "LEAKY_RELU", "LOG", "LOGISTIC", "MUL", "NEG", "POW", "PRELU", "RELU_0_TO_1", "ROUND", "RSQRT",
    "SIGN", "SIN", "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "SUB", "TANH",
    "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
    "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NOT_EQUAL", "SELECT", "SELECT_V2",
}  # fmt: skip
"""Operators whose subgraphs can become a table."""


@dataclass(frozen=True)
class TFLiteClosure:
    """Element-wise operators that compute tensor ``result`` from tensor ``source`` alone.

    If ``channels`` is not 1, every channel has a function of its own.
    """

    source: int
    result: int
    operators: tuple[int, ...]
    channels: int


def find_closures(model: TfliteModel) -> tuple[dict[int, TFLiteClosure], frozenset[int]]:
    """Return chains of element-wise operators that become tables, by result tensor.

    The indices of the operators that become unnecessary are returned too.
    """
    origins: dict[int, int] = {}
    for operator in model.operators:
        source = _source(model, operator, origins)
        if source is not None:
            origins[operator.outputs[0]] = source
    needed = set(model.outputs)
    found = dict[int, TFLiteClosure]()
    absorbed = set[int]()
    for number in reversed(range(len(model.operators))):
        operator = model.operators[number]
        if not needed.intersection(operator.outputs):
            absorbed.add(number)
            continue
        closure = (
            _closure(model, operator.outputs[0], origins)
            if operator.outputs[0] in origins
            else None
        )
        if closure is not None:
            found[closure.result] = closure
        needed.update(operator.inputs if closure is None else (closure.source,))
    return found, frozenset(absorbed)


def _source(model: TfliteModel, operator: TFLiteOperator, origins: dict[int, int]) -> int | None:
    """Return the only 8-bit tensor that an element-wise operator's result is computed from.

    Returns None if there is none.
    """
    if operator.kind not in CLOSES or operator.custom or len(operator.outputs) != 1:
        return None
    tensors = model.tensors
    computed = [
        number for number in operator.inputs if number >= 0 and not tensors[number].constant
    ]
    sources = {origins.get(number, number) for number in computed}
    if len(sources) != 1:
        return None
    (source,) = sources
    shape = tensors[source].shape
    if (
        tensors[source].dtype not in INT8
        or not shape
        or tensors[operator.outputs[0]].shape != shape
    ):
        return None
    constants = [
        tensors[number] for number in operator.inputs if number >= 0 and tensors[number].constant
    ]
    lasts = {constant.shape[-1:] for constant in constants} - {(), (1,)}
    along_channels = not lasts or (lasts == {shape[-1:]} and len(shape) in (1, 2, 4))
    single = all(
        constant.data is not None and prod(constant.shape[:-1]) == 1 for constant in constants
    )
    return source if along_channels and single else None


def _closure(model: TfliteModel, result: int, origins: dict[int, int]) -> TFLiteClosure | None:
    if model.tensors[result].dtype not in INT8:
        return None
    source = origins[result]
    chosen = tuple(operators_between(model, [source], [result]))
    if len(chosen) == 1 and model.operators[chosen[0]].kind in _LONE:
        return None
    constants = {
        n
        for place in chosen
        for n in model.operators[place].inputs
        if n >= 0 and model.tensors[n].constant
    }
    several = any(model.tensors[number].shape[-1:] not in ((), (1,)) for number in constants)
    return TFLiteClosure(source, result, chosen, model.tensors[source].shape[-1] if several else 1)


def tabulate(model: TfliteModel, closure: TFLiteClosure) -> tuple[NDArray[np.generic], str]:
    """Return the look-up table of element-wise operators, and the numerics it is valid for.

    The table is in the order of the source type's bytes and has shape (256,) or (channels, 256). If
    LiteRT's reference and default kernels differ, the reference table is returned. Raises
    InputError if neither runs the operators.
    """
    try:
        table = _tabulate(model, closure, "reference")
    except InputError:  # for example ELU, version 1
        return _tabulate(model, closure, "default"), "onnxruntime"
    try:
        same = np.array_equal(table, _tabulate(model, closure, "default"))
    except InputError:
        same = False
    return table, "" if same else "fixed"


def _tabulate(
    model: TfliteModel, closure: TFLiteClosure, resolver: Resolver
) -> NDArray[np.generic]:
    source = model.tensors[closure.source]
    values = np.arange(256, dtype=np.uint8).view(source.dtype)
    flat = len(source.shape) == closure.channels == 1
    shape = (256,) if flat else (256, *(1 for _ in source.shape[1:-1]), closure.channels)
    made = LiteRTModel(cut_model(model, [closure.source], [closure.result]), resolver)
    every = np.ascontiguousarray(
        np.broadcast_to(values.reshape(256, *(1 for _ in shape[1:])), shape)
    )
    found = made.run({closure.source: every}, [closure.result])[closure.result]
    return np.ascontiguousarray(
        found.reshape(256, closure.channels).T if closure.channels > 1 else found.reshape(256)
    )


READERS: dict[str, Reader] = {
    **products.READERS,
    **elementwise.READERS,
    **reductions.READERS,
    **movement.READERS,
}
_WINDOWS = frozenset(
    {
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "AVERAGE_POOL_2D",
        "MAX_POOL_2D",
        "RESIZE_NEAREST_NEIGHBOR",
        "RESIZE_BILINEAR",
    }
    | {"TRANSPOSE_CONV", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"}
)
"""Operators that read planes."""
_INDIFFERENT = frozenset(
    {
        *elementwise.READERS,
        "PAD",
        "PADV2",
        "MIRROR_PAD",
        "CONCATENATION",
        "SLICE",
        "STRIDED_SLICE",
        "SPLIT",
        "SPLIT_V",
    }
    | {
        "TILE",
        "PRELU",
        "LOGISTIC",
        "TANH",
        "HARD_SWISH",
        "GELU",
        "LEAKY_RELU",
        "ELU",
        "ABS",
        "NEG",
        "EXP",
        "LOG",
    }
    | {"RSQRT", "SQRT", "DEQUANTIZE"}
)
"""Operators whose results can have the layout of their operands."""
_SEARCHES = frozenset({"ARG_MAX", "ARG_MIN"})
"""Operators that compute indices."""
_INT8_ALONE = frozenset({"AVERAGE_POOL_2D", "MEAN", "SOFTMAX", "RESIZE_BILINEAR"})
"""Operators whose uint8 kernels round differently from the int8 kernels."""
REASONS = {
    "SVDF": "its state and its time weights are int16",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "its state and its gates are int16",
    "DIV": "LiteRT has it in float only",
    "LOG_SOFTMAX": "its rule is LiteRT's own",
}
"""Reasons why well-known operators are not supported."""
_DATA_DEPENDENT = frozenset(
    {"WHERE", "UNIQUE", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "RANGE"}
)
"""Operators whose result's shape depends on the data."""
_SHAPED = frozenset(
    {
        "RESHAPE",
        "SLICE",
        "STRIDED_SLICE",
        "PAD",
        "PADV2",
        "MIRROR_PAD",
        "TILE",
        "BROADCAST_TO",
        "FILL",
        "SPLIT_V",
    }
    | {
        "RESIZE_NEAREST_NEIGHBOR",
        "RESIZE_BILINEAR",
        "TRANSPOSE_CONV",
        "EXPAND_DIMS",
        "TRANSPOSE",
        "MEAN",
        "SUM",
    }
)
"""Operators whose result has a data-dependent shape if an integer parameter is computed."""


def import_tflite(model: TfliteModel) -> Graph:
    """Return the canonical graph of a quantised model, with nodes in topological order.

    Raises InputError for models without integer operators or with unknown shapes.
    """
    _refuse_float(model)
    return _TFLiteBuilder(model).graph()


def _refuse_float(model: TfliteModel) -> None:
    """Raise InputError for a model without 8-bit operators, which must be converted again."""
    tensors = model.tensors
    made = [n for operator in model.operators for n in operator.outputs]
    read = [
        n
        for operator in model.operators
        for n in operator.inputs
        if n >= 0 and not tensors[n].constant
    ]
    if any(tensors[number].dtype in domain.INT8 for number in (*made, *read)):
        return
    kinds = sorted({tensors[number].dtype for number in made})
    raise InputError(
        f"its operators make {', '.join(kinds) or 'nothing'}, no 8-bit integers: convert it with "
        "full integer quantisation (a representative dataset, and TFLITE_BUILTINS_INT8)"
    )


def _remove_custom(model: TfliteModel) -> bytes:
    """Return a model without its custom operators, which LiteRT may lack.

    Their results become inputs.
    """
    custom = [operator for operator in model.operators if operator.custom]
    if not custom:
        return model.content
    made = [number for operator in custom for number in operator.outputs]
    read = [
        n
        for operator in custom
        for n in operator.inputs
        if n >= 0 and not model.tensors[n].constant
    ]
    sources = [*model.inputs, *made]
    wanted = [number for number in dict.fromkeys((*model.outputs, *read)) if number not in sources]
    return cut_model(model, sources, wanted)


def _find_delegated(model: TfliteModel, content: bytes) -> set[int]:
    """Return the indices of operators that XNNPACK runs; empty for a model that it rejects."""
    try:
        taken = LiteRTModel(content, "default").delegated
    except InputError:
        return set()
    return {number for part in taken for number in operators_between(model, *part)}


def _check_shapes(model: TfliteModel, shapes: Mapping[int, tuple[int, ...]]) -> None:
    """Raise InputError if LiteRT computes a tensor of another shape than the model declares."""
    for operator in model.operators:
        for number in operator.outputs:
            declared = model.tensors[number].shape
            if number in shapes and shapes[number] != declared:
                raise InputError(
                    f"{operator.name} makes '{model.tensors[number].name}' of shape "
                    f"{list(shapes[number])}, and the model declares {list(declared)}; convert it "
                    "again"
                )


class _TFLiteBuilder:
    """Builder of a canonical graph in one pass over a TensorFlow Lite model's operators."""

    def __init__(self, model: TfliteModel) -> None:
        self._model = model
        self._made = Collection(model)
        self._wanted = _find_window_tensors(model)
        self._open: set[int] = set()
        content = _remove_custom(model)
        _check_shapes(model, get_session(content).shapes)
        self._delegated = _find_delegated(model, content)
        self._closures, self._absorbed = find_closures(model)
        self._states = {one.inside: one for one in model.variables if one.inside >= 0}
        # the operator of a state also runs the copies of it
        ends = [(one.before, one.inside, one.after) for one in self._states.values()]
        copies = {((old,), (new,)) for one in ends for old, new in pairwise(one)}
        self._absorbed |= {
            number
            for number, operator in enumerate(model.operators)
            if (operator.inputs, operator.outputs) in copies
        }

    def graph(self) -> Graph:
        model = self._model
        made = self._made
        inputs = tuple(made.add_computed(number, self._free(number)) for number in model.inputs)
        for number, operator in enumerate(model.operators):
            if number not in self._absorbed:
                self._visit(operator, number in self._delegated)
        ends = {number: self._output(number) for number in dict.fromkeys(model.outputs)}
        outputs = tuple(made.name_as_in_file(ends))
        nodes = drop_unread(made.nodes, outputs)
        named = {
            *inputs,
            *outputs,
            *(name for node in nodes for name in (*node.inputs, *node.outputs)),
        }
        values = {name: value for name, value in made.values.items() if name in named}
        return verify_graph(
            Graph(model.name, inputs, outputs, values, tuple(nodes), self._state(inputs, ends))
        )

    def _state(self, inputs: Sequence[str], ends: Iterable[int]) -> tuple[StatePair, ...]:
        """Return the model's variables as pairs of an input and an output."""
        model = self._model
        if not model.variables:
            return ()
        initial = read_initial_values(model)
        names = dict(zip(model.inputs, inputs, strict=True))
        names |= {number: model.tensors[number].name for number in ends}
        return tuple(
            StatePair(one.name, names[one.before], names[one.after], initial[one.before])
            for one in model.variables
        )

    def _free(self, number: int) -> TensorView:
        """Return the preferred layout of a tensor that the CPU or the application writes.

        Both can provide any layout.
        """
        tensor = self._model.tensors[number]
        return planes(tensor.shape) if number in self._wanted else natural(tensor.shape)

    def _visit(self, operator: TFLiteOperator, delegated: bool) -> None:
        closure = self._closures.get(operator.outputs[0]) if operator.outputs else None
        if closure is not None:
            self._table(closure, operator)
            return
        try:
            self._check(operator)
            READERS[operator.kind](UnitContext(self._made, operator, self._wanted, delegated))
        except KeptOnCpuError as reason:
            self._host(operator, str(reason))

    def _check(self, operator: TFLiteOperator) -> None:
        """Raise KeptOnCpuError for an operator that does not run on 8-bit integers.

        The reason is empty if the operator's kind explains it.
        """
        if operator.custom:
            raise KeptOnCpuError("it is a custom operator")
        if operator.kind not in {*READERS, *CLOSES} or (
            operator.kind in REASONS and operator.kind not in READERS
        ):
            raise KeptOnCpuError(REASONS.get(operator.kind, ""))
        tensors = self._model.tensors
        for number in (*operator.inputs, *operator.outputs):
            if number < 0 or tensors[number].data is not None:
                continue
            tensor = tensors[number]
            if tensor.constant:
                raise KeptOnCpuError(
                    f"constant '{tensor.name}' is of type {tensor.dtype}: only 8-bit ones run on "
                    "the accelerator"
                )
            if tensor.variable:
                raise KeptOnCpuError(f"'{tensor.name}' is a state that it keeps")
            if number in self._open:
                raise KeptOnCpuError(f"the shape of '{tensor.name}' depends on the data")
            if number in operator.outputs and operator.kind in _SEARCHES:
                continue
            if tensor.dtype == "bool" and operator.kind not in READERS:
                continue
            if tensor.dtype not in domain.INT8:
                raise KeptOnCpuError(
                    f"'{tensor.name}' has element type {tensor.dtype}: quantise it to 8 bits"
                )
            if tensor.quantization is None:
                raise KeptOnCpuError(f"'{tensor.name}' has no scale")
            if tensor.dtype == "uint8" and operator.kind in _INT8_ALONE:
                raise KeptOnCpuError(
                    "LiteRT has another rule for uint8 than for int8: convert the model to int8"
                )
        if all(tensors[number].constant for number in operator.inputs if number >= 0):
            raise KeptOnCpuError("all its operands are constant")
        if operator.kind not in READERS:
            raise KeptOnCpuError("it is no function of one tensor and a constant a channel")

    def _table(self, closure: TFLiteClosure, operator: TFLiteOperator) -> None:
        """Add a table look-up that replaces a chain of element-wise operators.

        Its numerics are limited if LiteRT's kernels give different tables.
        """
        made = self._made
        table, numerics = tabulate(self._model, closure)
        result = self._model.tensors[closure.result]
        view = made.view(closure.source)
        if closure.channels > 1:
            view, table = _order_by_channel(view, table)
        constant = made.add_constant(f"{result.name}:table", table, result.quantization)
        operands = made.value(closure.source, view, operator.name), constant
        nodes = tuple(self._model.operators[number].name for number in closure.operators)
        attributes = {"numerics": numerics} if numerics else {}
        made.nodes.append(
            Node(
                operator.name,
                TABLE,
                operands,
                (made.add_computed(closure.result, view),),
                attributes,
                nodes,
                integer=True,
            )
        )

    def _host(self, operator: TFLiteOperator, remark: str) -> None:
        """Add a node for an operator that LiteRT runs on the CPU.

        A quantisation of float tensors gets the operator type that the interface knows.
        """
        made = self._made
        tensors = self._model.tensors
        computed = (
            n
            for n in operator.inputs
            if n >= 0 and not (tensors[n].constant or tensors[n].variable)
        )
        states = [self._states[n] for n in operator.inputs if n in self._states]
        inputs = dict.fromkeys((*computed, *(one.before for one in states)))
        outputs = (*operator.outputs, *(one.after for one in states))
        computed_shape = operator.kind in _SHAPED and any(
            tensors[n].dtype in ("int32", "int64") for n in inputs
        )
        if (
            operator.kind in _DATA_DEPENDENT
            or computed_shape
            or any(n in self._open for n in inputs)
        ):
            self._open.update(operator.outputs)
        sources = tuple(made.value(number, made.view(number), operator.name) for number in inputs)
        results = tuple(made.add_computed(n, self._free(n), open=n in self._open) for n in outputs)
        kind = _boundary(self._model, operator)
        node = Node(operator.name, kind or operator.kind, sources, results, {}, (operator.name,))
        made.nodes.append(
            replace(node, remark="" if kind else remark, macs=_macs(self._model, operator))
        )

    def _output(self, number: int) -> str:
        """Return the name of a model output in the model's layout, or with channels first."""
        made = self._made
        tensor = self._model.tensors[number]
        if tensor.constant:
            return made.value(number, natural(tensor.shape), tensor.name)
        view = made.view(number)
        known = not view.moved or view == planes(tensor.shape)
        return made.value(number, view if known else natural(tensor.shape), tensor.name)


def _order_by_channel(
    view: TensorView, table: NDArray[np.generic]
) -> tuple[TensorView, NDArray[np.generic]]:
    """Return a view with channels second, or alone, and a per-channel table in that order."""
    shape = view.shape
    channels = len(table)
    if len(shape) == 4:
        return planes(shape), table
    if prod(shape) == channels and view.lies == shape:
        return view, table[
            view.arrange(np.arange(channels).reshape(shape)).reshape(-1).astype(np.int64)
        ]
    return natural(shape), table


def _boundary(model: TfliteModel, operator: TFLiteOperator) -> str:
    """Return QUANTIZE or DEQUANTIZE for an operator that converts between float and integers.

    The result is empty for other operators.
    """
    if len(operator.inputs) != 1 or len(operator.outputs) != 1:
        return ""
    before, after = (model.tensors[number] for number in (operator.inputs[0], operator.outputs[0]))
    if operator.kind == "QUANTIZE" and before.dtype == "float32" and after.quantization is not None:
        return QUANTIZE
    return DEQUANTIZE if operator.kind == "DEQUANTIZE" and before.quantization is not None else ""


def _macs(model: TfliteModel, operator: TFLiteOperator) -> int:
    """Return how many multiply-accumulates (MACs) an operator on the CPU computes."""
    shapes = [model.tensors[number].shape if number >= 0 else () for number in operator.inputs]
    made = prod(model.tensors[operator.outputs[0]].shape) if operator.outputs else 0
    if operator.kind in ("CONV_2D", "FULLY_CONNECTED"):
        return made * prod(shapes[1][1:])
    if operator.kind == "DEPTHWISE_CONV_2D":
        return made * prod(shapes[1][1:3])
    if operator.kind == "TRANSPOSE_CONV":
        return prod(shapes[2]) * prod(shapes[1][:3])
    if operator.kind == "BATCH_MATMUL":
        return made * shapes[0][-2 if operator.options.adjX else -1]
    if operator.kind.endswith("SEQUENCE_LSTM"):
        steps = prod(shapes[0][:-1])
        return steps * sum(prod(shape) for shape in shapes[1:] if len(shape) == 2 and shape[0] != 1)
    return 0


def _find_window_tensors(model: TfliteModel) -> frozenset[int]:
    """Return tensors that window operators read, directly or through layout-keeping operators."""
    found: set[int] = set()
    for operator in reversed(model.operators):
        reads = operator.kind in _WINDOWS
        if reads or (operator.kind in _INDIFFERENT and found.intersection(operator.outputs)):
            found.update(
                n for n in operator.inputs if n >= 0 and len(model.tensors[n].shape) == len(PLANES)
            )
    return frozenset(number for number in found if not model.tensors[number].constant)
