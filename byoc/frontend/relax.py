"""From a function of TVM's Relax to a quantised ONNX model, for the importer of ONNX models.

TVM's ONNX front end keeps quantised units: each is ``dequantize``, an operator and ``quantize``.
:data:`OPERATORS` lists the Relax operators that it makes from ONNX operators, with the inverse of
its conversion. Scales, zero points, weights and biases are constants of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from packaging.specifiers import SpecifierSet

from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from isa.errors import InputError, MissingExtraError
from isa.installation import remedy

SUPPORTED = SpecifierSet(">=0.27,<0.28")
"""Versions of apache-tvm whose interface this module and :mod:`byoc.hooks.tvm` use."""
OPSET = 21


def require_tvm() -> Any:
    """Return the module tvm.

    Raise InputError with the remedy if it is not installed or has another version.
    """
    try:
        found = version("apache-tvm")
    except PackageNotFoundError as error:
        raise MissingExtraError(
            f"the hook needs apache-tvm{SUPPORTED}; install it with: {remedy('tvm')}"
        ) from error
    if not SUPPORTED.contains(found):
        raise InputError(
            f"apache-tvm {found} has another interface, the hook needs {SUPPORTED}; "
            f"install it with: {remedy('tvm')}"
        )
    import tvm

    return tvm


tvm = require_tvm()


class RelaxOperator(NamedTuple):
    """Relax operator that TVM's front end makes from an ONNX operator.

    ``parameters`` counts the arguments after the data; ``constants`` gives the inputs of the ONNX
    node that replace them. With ``tupled`` the data are one tuple.
    """

    name: str
    attributes: Callable[[Any], dict[str, Any]] = lambda call: {}
    parameters: int = 0
    constants: Callable[[Any], tuple[NDArray[Any], ...]] = lambda call: ()
    tupled: bool = False


def _integers(numbers: Iterable[Any]) -> list[int]:
    return [int(number) for number in numbers]


def _read_window(call: Any) -> dict[str, Any]:
    """Return the ONNX attributes of a convolution or pooling; raise InputError for NHWC layouts."""
    given = call.attrs
    pools = hasattr(given, "pool_size")
    layout = given.layout if pools else given.data_layout
    if not layout.startswith("NC") or (not pools and not given.kernel_layout.startswith("OI")):
        raise InputError(f"{call.op.name} has layout {layout}; only channels-first layouts run")
    found = {"strides": given.strides, "pads": given.padding, "dilations": given.dilation}
    if pools:
        found["kernel_shape"] = given.pool_size
    ceiling = {"ceil_mode": int(given.ceil_mode)} if pools else {}
    return ceiling | {key: _integers(numbers) for key, numbers in found.items()}


def _read_mean(call: Any) -> dict[str, Any]:
    """Check that a mean is over all positions of an image; raise InputError for another."""
    rank = len(call.args[0].ty.shape)
    axes = sorted(axis % rank for axis in _integers(call.attrs.axis or ()))
    if axes != list(range(2, rank)) or not call.attrs.keepdims:
        raise InputError(f"mean over axes {axes} is no global average pooling")
    return {}


OPERATORS: Mapping[str, RelaxOperator] = {
    "Conv": RelaxOperator(
        "nn.conv2d", lambda call: {**_read_window(call), "group": int(call.attrs.groups)}
    ),
    "Gemm": RelaxOperator("matmul"),
    "MatMul": RelaxOperator("matmul"),
    "MaxPool": RelaxOperator("nn.max_pool2d", _read_window),
    "AveragePool": RelaxOperator(
        "nn.avg_pool2d",
        lambda call: _read_window(call) | {"count_include_pad": int(call.attrs.count_include_pad)},
    ),
    "GlobalAveragePool": RelaxOperator("mean", _read_mean),
    "Reshape": RelaxOperator(
        "reshape",
        parameters=1,
        constants=lambda call: (np.array(_integers(call.args[1].values), np.int64),),
    ),
    "Transpose": RelaxOperator(
        "permute_dims", lambda call: {"perm": _integers(call.attrs.axes)} if call.attrs.axes else {}
    ),
    "Concat": RelaxOperator(
        "concat", lambda call: {"axis": int(call.attrs.axis or 0)}, tupled=True
    ),
    "Softmax": RelaxOperator("nn.softmax", lambda call: {"axis": int(call.attrs.axis)}),
    "LeakyRelu": RelaxOperator("nn.leakyrelu", lambda call: {"alpha": float(call.attrs.alpha)}),
    "Relu": RelaxOperator("nn.relu"),
    "Add": RelaxOperator("add"),
    "Sub": RelaxOperator("subtract"),
    "Mul": RelaxOperator("multiply"),
    "Div": RelaxOperator("divide"),
    **{
        onnx: RelaxOperator(onnx.lower())
        for onnx in ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Round", "Sigmoid", "Sign",
                     "Sin", "Sqrt", "Tanh")
    },
}  # fmt: skip
"""Relax operators by the ONNX operators that TVM's front end makes them from.

Reshape also stands for Flatten, Squeeze and Unsqueeze, and Gemm for a matrix product with a bias.
"""
_ONNX = {f"relax.{found.name}": onnx for onnx, found in OPERATORS.items()}


def to_onnx(function: Any, name: str) -> ModelProto:
    """Return a Relax function, with the functions that it calls, as an ONNX model.

    Raise InputError for an operator or layout that cannot be converted.
    """
    translator = _Translator({})
    inputs = [translator.add_input(var) for var in function.params]
    result = translator.call(function, inputs)
    return translator.finish(name, [result] if isinstance(result, str) else result)


def unit_to_onnx(bindings: Mapping[Any, Any], result: Any) -> ModelProto:
    """Return the Relax expressions ``bindings``, by variable, as an ONNX model.

    ``result`` is the variable of its output. Raise InputError as :func:`to_onnx` does.
    """
    translator = _Translator(bindings)
    return translator.finish("unit", [translator.read(result)])


class _Translator:
    """Translator of Relax expressions to the nodes of one ONNX model.

    An expression becomes the name of its tensor, or a list of names for a tuple. Variables that
    nothing defines become inputs.
    """

    def __init__(self, bindings: Mapping[Any, Any]) -> None:
        self._bindings = bindings
        self._scope: dict[Any, Any] = {}
        self._inputs: list[ValueInfoProto] = []
        self._nodes: dict[str, NodeProto] = {}
        self._numbers = count()
        self._types: dict[str, Any] = {}
        self._constants: dict[str, NDArray[Any]] = {}

    def add_input(self, var: Any) -> str:
        """Return the name of a new input of the model with the type of ``var``."""
        name = f"input{len(self._inputs)}"
        self._inputs.append(_describe(name, var.ty))
        return name

    def call(self, function: Any, arguments: Sequence[Any]) -> Any:
        """Return the result of a function."""
        self._scope.update(zip(function.params, arguments, strict=True))
        for block in function.body.blocks:
            for binding in block.bindings:
                self._scope[binding.var] = self.read(binding.value)
        return self.read(function.body.body)

    def read(self, expression: Any) -> Any:
        """Return the name of an expression's tensor, a list of names, or a local function."""
        if isinstance(expression, tvm.relax.Var):
            if expression not in self._scope:
                defined = self._bindings.get(expression)
                self._scope[expression] = (
                    self.add_input(expression) if defined is None else self.read(defined)
                )
            return self._scope[expression]
        if isinstance(expression, tvm.ir.GenericConst):
            return self._add_constant(expression.value.numpy())
        if isinstance(expression, tvm.relax.Tuple):
            return [self.read(one) for one in expression.fields]
        if isinstance(expression, tvm.relax.TupleGetItem):
            return self.read(expression.tuple_value)[expression.index]
        if not isinstance(expression, tvm.relax.Call):
            return expression
        if isinstance(expression.op, tvm.relax.Var):
            return self.call(self.read(expression.op), list(map(self.read, expression.args)))
        return self._add_call(expression)

    def finish(self, name: str, outputs: Sequence[str]) -> ModelProto:
        """Return the model with the tensors ``outputs``."""
        used = {name for node in self._nodes.values() for name in node.input}
        graph = helper.make_graph(
            list(self._nodes.values()),
            name,
            [one for one in self._inputs if one.name in used],
            [_describe(output, self._types[output]) for output in outputs],
            [
                numpy_helper.from_array(array, key)
                for key, array in self._constants.items()
                if key in used
            ],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
        )

    def _add_constant(self, array: NDArray[Any]) -> str:
        name = f"constant{len(self._constants)}"
        self._constants[name] = array
        return name

    def _add_call(self, call: Any) -> str:
        """Return the result of a node for a Relax operator."""
        kind = call.op.name
        if kind in ("relax.quantize", "relax.dequantize"):
            onnx, read = QUANTIZE if kind == "relax.quantize" else DEQUANTIZE, call.args
            operator = RelaxOperator(kind, lambda call: {"axis": int(call.attrs.axis)})
        elif kind in _ONNX:
            onnx = _ONNX[kind]
            operator = OPERATORS[onnx]
            read = call.args[: len(call.args) - operator.parameters]
            if operator.tupled:
                read = read[0].fields if isinstance(read[0], tvm.relax.Tuple) else read
        else:
            raise InputError(f"{kind} has no ONNX operator in byoc/frontend/relax.py")
        operands = list(map(self.read, read))
        folded = self._fold(onnx, operands, call)
        if folded is not None:
            return folded
        extra = map(self._add_constant, operator.constants(call))
        return self._add_node(onnx, [*operands, *extra], call.ty, **operator.attributes(call))

    def _add_node(self, onnx: str, inputs: Sequence[str], ty: Any, **attributes: Any) -> str:
        name = f"{onnx}{next(self._numbers)}"
        self._nodes[name] = helper.make_node(onnx, inputs, [name], name, **attributes)
        self._types[name] = ty
        return name

    def _fold(self, onnx: str, operands: Sequence[str], call: Any) -> str | None:
        """Return the result of a call that an ONNX node contains, or None.

        These are transposed weights, and the shape and the addition of a bias.
        """
        node = self._nodes.get(operands[0])
        if node is None:
            return None
        if onnx == "Add":
            return self._add_bias(node, *operands)
        if node.op_type != DEQUANTIZE or node.input[0] not in self._constants:
            return None
        array = self._constants[node.input[0]]
        axis = next(one.i for one in node.attribute)
        if onnx == "Transpose" and _integers(call.attrs.axes or (1, 0)) == [1, 0]:
            moved = np.ascontiguousarray(array.T)
            axis = 1 - axis % 2
        elif onnx == "Reshape" and array.ndim == 1:
            moved = array  # a bias: the product's node broadcasts it
        else:
            return None
        inputs = [self._add_constant(moved), *node.input[1:]]
        return self._add_node(DEQUANTIZE, inputs, call.ty, axis=axis)

    def _add_bias(self, node: NodeProto, product: str, bias: str) -> str | None:
        """Return the result of a product to which its constant bias has been added, or None.

        Raise InputError for a constant that has no element for each channel.
        """
        source = self._nodes.get(bias)
        if node.op_type not in ("Conv", "MatMul") or len(node.input) > 2 or source is None:
            return None
        constant = self._constants.get(source.input[0])
        if constant is None or constant.ndim != 1:
            return None
        matrix = node.op_type == "MatMul"
        result, shape = (_integers(self._types[name].shape) for name in (product, bias))
        aligned = [1] * (len(result) - len(shape)) + shape
        if (matrix and len(result) != 2) or aligned != [1, result[1], *(1 for _ in result[2:])]:
            raise InputError(f"a constant of shape {shape} is no bias of shape {result}")
        del self._nodes[product]
        kept = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        kind = "Gemm" if matrix else node.op_type
        return self._add_node(kind, [*node.input, bias], self._types[product], **kept)


def _describe(name: str, ty: Any) -> ValueInfoProto:
    """Return the ONNX type of a tensor; raise InputError if a dimension is not known."""
    try:
        shape = _integers(ty.shape)
    except (TypeError, ValueError) as error:
        raise InputError(f"a tensor has the shape {ty.shape}; bind its dimensions first") from error
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(str(ty.dtype))), shape
    )
