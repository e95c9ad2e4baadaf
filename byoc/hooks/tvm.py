"""BYOC hook of Apache TVM: run the parts of a Relax module that a machine supports on its device.

:func:`partition` moves supported operators into functions of the accelerator. TVM's pass
``RunCodegen`` calls the registered hook ``relax.ext.dla`` for them, and TVM's virtual machine runs
them. :func:`use_device` says on which device; each is compiled for the device at its first run
there (docs/tvm.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial, reduce
from operator import or_
from typing import Any, Protocol, runtime_checkable

import numpy as np
from onnx import ModelProto

from byoc.compiled import CompiledNetwork
from byoc.compiler import compile, partition_graph
from byoc.estimate.bus import BusTiming
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.relax import OPERATORS, RelaxOperator, require_tvm, to_onnx, unit_to_onnx
from byoc.frontend.tflite.file import TfliteModel
from byoc.host.runtime import NetworkRun, Runtime
from byoc.importing import import_model
from byoc.operators.forms import Form
from byoc.operators.registry import load_installed_families
from byoc.options import DEFAULTS
from byoc.package.package import Package
from byoc.partitioning.partition import Partitioner
from byoc.runtimes.protobuf import set_attributes
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Executor
from isa.typed import check_types

tvm = require_tvm()
relax = tvm.relax

MAX_CONCATENATED = 8
"""Most operands of a concatenation that a pattern matches."""
CODEGEN = "dla"
"""Name of the accelerator in TVM: prefix of patterns, attribute of functions, name of the hook."""
MAX_FUNCTIONS = 1000
"""Most functions of the accelerator in a module.

RunCodegen needs a name for each. A process that loads an exported library has registered these.
"""


@runtime_checkable
class SimulatedDevice(Executor[Any], Protocol):
    """Device that programs are compiled for at their first run, such as a ``dla.Device``."""

    @property
    def arch(self) -> Arch:
        """The machine as programs see it."""

    @property
    def timing(self) -> BusTiming:
        """Constants that affect cycles only; schedules are chosen for their bus."""


_RUN = f"{CODEGEN}.run"
_device: ContextVar[tuple[SimulatedDevice, list[NetworkRun[Any]]] | None] = ContextVar(
    "device", default=None
)


@contextmanager
def use_device(device: SimulatedDevice) -> Iterator[list[NetworkRun[Any]]]:
    """Run accelerator functions on ``device`` inside the context; yield the list of their runs."""
    check_types({"device": SimulatedDevice}, {"device": device})
    runs: list[NetworkRun[Any]] = []
    token = _device.set((device, runs))
    try:
        yield runs
    finally:
        _device.reset(token)


def write_pads(package: Package) -> ModelProto:
    """Return the quantised ONNX model of a package with ``pads`` in place of ``auto_pad``.

    TVM's front end makes a loop nest of automatic padding, which no pattern matches. Raise
    InputError for a TensorFlow Lite model.
    """
    check_types({"package": Package}, {"package": package})
    if isinstance(package.model, TfliteModel):
        raise InputError(
            f"{package.source} is a TensorFlow Lite model; TVM's hook reads ONNX models"
        )
    model = ModelProto()
    model.CopyFrom(package.model)
    known = {one: node.attributes for node in package.graph.nodes for one in node.onnx_nodes}
    for node in model.graph.node:
        automatic = any(one.name == "auto_pad" and one.s[:4] == b"SAME" for one in node.attribute)
        if automatic and node.name in known:
            set_attributes(node, "auto_pad", pads=known[node.name]["pads"])
    return model


# From operator families to patterns.


def make_patterns(arch: Arch) -> list[Any]:
    """Return TVM's fusion patterns of all operators of the operator families.

    A match is accepted if a machine with ``arch`` runs the whole unit. Call :func:`embed_models`
    after the passes that use them.
    """
    check_types({"arch": Arch}, {"arch": arch})
    families = load_installed_families()
    tables = {name: Form(name) for name in sorted(families.closes.functions)}
    forms = tables | {name: form for name, (_, form) in families.forms.items()}
    check = partial(_is_supported, arch)
    return [
        relax.transform.FusionPattern(
            f"{CODEGEN}.{name}", _make_pattern(form, OPERATORS[name]), {}, check
        )
        for name, form in forms.items()
        if name in OPERATORS
    ]


def _make_pattern(form: Form, operator: RelaxOperator) -> Any:
    """Return the pattern of a quantised operator, or of one on bare integers.

    Operands are dequantised and the result is quantised, with constant parameters. Weights may be
    transposed. A bias may be added to products, and an activation may follow.
    """
    dpl = relax.dpl

    def dequantize() -> Any:
        return dpl.is_op("relax.dequantize")(dpl.wildcard(), dpl.is_const(), dpl.is_const())

    def apply(make: Callable[[], Any]) -> Any:
        function = dpl.is_op(f"relax.{operator.name}")
        parameters = [dpl.wildcard() for _ in range(operator.parameters)]
        if operator.tupled:
            counts = range(2, MAX_CONCATENATED + 1)
            packed = [dpl.is_tuple([make() for _ in range(count)]) for count in counts]
            return reduce(or_, [function(one, *parameters) for one in packed])
        operands = [make() for _ in range(2 if form.weights else form.operands or 2)]
        if form.weights == "columns":
            operands[1] |= dpl.is_op("relax.permute_dims")(make())
        return function(*operands, *parameters)

    found = apply(dequantize)
    if form.weights and form.operands == 3:
        shaped = dpl.is_op("relax.reshape")(dequantize(), dpl.wildcard())
        found |= dpl.is_op("relax.add")(found, dequantize() | shaped)
    if form.activation:
        found |= dpl.is_op("relax.nn.relu")(found)
    found = dpl.is_op("relax.quantize")(found, dpl.is_const(), dpl.is_const())
    return found | apply(dpl.wildcard) if form.plain else found


def _is_supported(arch: Arch, context: Any) -> bool:
    """Return True if a machine with ``arch`` runs all of a matched unit."""
    result = context.value_to_bound_var[context.matched_expr]
    try:
        graph = import_graph(unit_to_onnx(context.matched_bindings, result))
    except InputError:
        return False
    placement = partition_graph(Partitioner(graph), arch, DEFAULTS).placement
    return all(node.on == "dla" for node in placement)


# From a Relax module to one with functions of the accelerator.


def partition(module: Any, arch: Arch) -> Any:
    """Return a Relax module whose supported operators are functions of the accelerator.

    Neighbouring operators share a function. All other operators stay as they are.
    """
    check_types({"module": tvm.IRModule}, {"module": module})
    functions = {
        var: _split_dequantize(function)
        for var, function in module.functions_items()
        if isinstance(function, relax.Function)
    }
    module = tvm.IRModule({**dict(module.functions_items()), **functions}, module.attrs)
    passes = [
        relax.transform.DeadCodeElimination(),
        relax.transform.FuseOpsByPattern(make_patterns(arch)),
        relax.transform.MergeCompositeFunctions(),
    ]
    return embed_models(tvm.transform.Sequential(passes)(module))


def embed_models(module: Any) -> Any:
    """Return a module that passes each function of the accelerator its ONNX model as a constant.

    An exported library of the module therefore contains all that a run needs.
    """
    check_types({"module": tvm.IRModule}, {"module": module})
    functions = {
        var: function
        for var, function in module.functions_items()
        if isinstance(function, relax.Function)
    }
    ours = {
        var: function
        for var, function in functions.items()
        if (function.attrs or {}).get("Codegen") == CODEGEN
        and not str(function.attrs["global_symbol"]).startswith(_RUN)  # has its model already
    }
    if len(ours) > MAX_FUNCTIONS:
        raise InputError(
            f"the module has {len(ours)} functions of the accelerator, {MAX_FUNCTIONS} are "
            "possible; divide the module"
        )
    module = tvm.IRModule(dict(module.functions_items()), module.attrs)
    models: dict[Any, Any] = {}
    for number, (var, function) in enumerate(ours.items()):
        symbol = f"{_RUN}{number}"
        model = to_onnx(function, symbol).SerializeToString(deterministic=True)
        models[var] = relax.const(np.frombuffer(model, np.uint8))
        params = [relax.Var("model", models[var].ty), *function.params]
        changed = relax.Function(
            params, function.body, function.ret_ty, function.is_pure, function.attrs
        )
        module.update_func(var, changed.with_attr("global_symbol", symbol))
    mutator = _ModelPasser(models)
    for var, function in functions.items():
        if var not in ours:
            module.update_func(var, mutator.visit_expr(function))
    return module


@relax.expr_functor.mutator
class _ModelPasser(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    """Adds the model of a called function of the accelerator as the first argument."""

    def __init__(self, models: Mapping[Any, Any]) -> None:
        super().__init__()
        self._models = models

    def visit_call_(self, call: Any) -> Any:
        """Return the call with the model, if the accelerator's function has one."""
        call = super().visit_call_(call)
        model = self._models.get(call.op)
        return call if model is None else _copy_call(call, [model, *call.args])


def _copy_call(call: Any, arguments: Sequence[Any]) -> Any:
    return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span, call.ty)


def _split_dequantize(function: Any) -> Any:
    """Return a function in which no two expressions share the result of a dequantize.

    A pattern cannot match an expression that is used outside of the match.
    """
    sources: dict[Any, Any] = {}
    bindings: list[Any] = []

    def own(expression: Any) -> Any:
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([own(one) for one in expression.fields])
        if not isinstance(expression, relax.Var) or expression not in sources:
            return expression
        var = relax.DataflowVar(expression.name, expression.ty)
        source = sources[expression]
        bindings.append(relax.VarBinding(var, _copy_call(source, source.args)))
        return var

    blocks = []
    for block in function.body.blocks:
        bindings.clear()
        for binding in block.bindings:
            value = binding.value
            if isinstance(block, relax.DataflowBlock) and isinstance(value, relax.Call):
                if getattr(value.op, "name", "") == "relax.dequantize":
                    sources[binding.var] = value
                else:
                    arguments = [own(one) for one in value.args]
                    binding = relax.VarBinding(binding.var, _copy_call(value, arguments))
            bindings.append(binding)
        blocks.append(type(block)(list(bindings)))
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


# From functions of the accelerator to packages, and their programs on a device.


def _generate(functions: Sequence[Any], options: Any, names: Any) -> list[Any]:
    """Return no modules: the names of the functions are registered, and calls pass the models."""
    for symbol in (str(function.attrs["global_symbol"]) for function in functions):
        if not symbol.startswith(_RUN):
            raise InputError(f"{symbol} has no model; call embed_models before RunCodegen")
    return []


@cache
def _read_package(model: bytes) -> tuple[Package, dict[Any, CompiledNetwork]]:
    """Return the package of an embedded model, and its programs by Arch and timing."""
    return import_model(ModelProto.FromString(model)), {}


def _compile(package: Package, device: SimulatedDevice) -> CompiledNetwork:
    try:
        return compile(package, device.arch, timing=device.timing, strict=True)
    except InputError as error:
        raise InputError(
            f"{package.source} was partitioned for another machine than the device; call "
            f"partition(module, device.arch): {error}"
        ) from error


def _run(model: Any, *tensors: Any) -> None:
    """Run an embedded model on the device in use.

    ``tensors`` are the inputs, then the outputs that it writes.
    """
    package, networks = _read_package(model.numpy().tobytes())
    chosen = _device.get()
    if chosen is None:
        raise InputError(
            f"{package.source} has no device; call the virtual machine in use_device(device)"
        )
    device, runs = chosen
    key = device.arch, device.timing
    if key not in networks:
        networks[key] = _compile(package, device)
    ports = networks[key].interface
    given = {port.name: tensor.numpy() for port, tensor in zip(ports.inputs, tensors, strict=False)}
    runs.append(Runtime(networks[key], device).run(given))
    for port, tensor in zip(ports.outputs, tensors[len(given) :], strict=True):
        tensor.copyfrom(runs[-1].outputs[port.name])


tvm.register_global_func(f"relax.ext.{CODEGEN}", _generate, override=True)
for _number in range(MAX_FUNCTIONS):
    tvm.register_global_func(f"{_RUN}{_number}", _run, override=True)
tvm.error.register_error("InputError", InputError)
