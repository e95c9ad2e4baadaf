"""TVM's hook: placement, programs and bits of networks that TVM's own front end imports.

Oracles: ONNX Runtime on the same ONNX model for bits, and the partition and programs of the
project's own import of that model for placement and cycles.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import dla
from byoc.compiled import CompiledNetwork
from byoc.frontend import relax as frontend
from byoc.host.sessions import Oracle
from byoc.importing import import_model
from byoc.operators.registry import get_built_in_families
from byoc.package.package import Package
from byoc.runtimes.session import OnnxRuntimeSession
from isa.arch import Arch
from isa.errors import InputError, MissingExtraError
from tests.byoc.small_models import ModelBuilder, convolution_unit, unary_unit
from tests.rotation import choose_cases

pytest.importorskip("tvm")
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from byoc.hooks import tvm as hook

Array = NDArray[Any]


def _make_device() -> dla.Device:
    hardware = dla.load_hardware("balanced-64")
    return dla.Device(hardware.arch, hardware.timing)


def _import(model: onnx.ModelProto) -> Any:
    """Return a model imported by TVM's front end, which warns of outputs without a shape."""
    return from_onnx(onnx.shape_inference.infer_shapes(model))


def _build(model: onnx.ModelProto, device: dla.Device) -> tuple[Any, Any]:
    """Return the partitioned Relax module of a model, and its virtual machine."""
    module = hook.partition(_import(model), device.arch)
    executable = tvm.compile(relax.transform.RunCodegen()(module), target="llvm")
    return module, relax.VirtualMachine(executable, tvm.cpu())


def _placed(module: Any) -> Counter[str]:
    """Count the units on the accelerator by the operator of their pattern."""
    found = Counter[str]()
    for _, function in module.functions_items():
        if "Codegen" not in (function.attrs or {}):
            continue
        for block in function.body.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, relax.Function):
                    found[str(binding.value.attrs["Composite"])] += 1
    return found


def _compare(package: Package, images: list[Array]) -> tuple[Any, CompiledNetwork]:
    """Compare a network in TVM with our own path; return the module and our programs."""
    device = _make_device()
    module, machine = _build(hook.write_pads(package), device)
    ours = dla.compile(package, device.arch, timing=device.timing)
    cycles = [device.run(one, {}, timing_only=True).trace.cycles for one in ours.programs.values()]
    compared = [
        dla.compile(
            import_model(frontend.to_onnx(function, "region")), device.arch, timing=device.timing
        )
        for _, function in module.functions_items()
        if "Codegen" in function.attrs
    ]
    programs = [one for network in compared for one in network.programs.values()]
    assert [one.words.tobytes() for one in programs] == [
        one.words.tobytes() for one in ours.programs.values()
    ]
    oracle = Oracle(package.model, package.graph, package.graph.outputs)
    [source] = package.graph.inputs
    for image in images:
        with hook.use_device(device) as runs:
            found = machine["main"](tvm.runtime.tensor(image)).numpy()
        [wanted] = oracle.values({source: image}).values()
        np.testing.assert_array_equal(found, wanted)
        traces = [trace for run in runs for trace in run.traces.values()]
        assert [trace.cycles for trace in traces] == cycles
    return module, ours


def _draw(shape: tuple[int, ...], count: int) -> list[Array]:
    random = np.random.default_rng(1)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize(
    "name",
    [
        "digits-cnn",
        "resnet-8",
        "keyword-spotting",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in choose_cases(["mobilenet-v1", "squeezenet"], 2)
        ),
    ],
)
def test_networks_equal_our_path(name: str) -> None:
    package = dla.import_model(name)
    shape = package.graph.values[package.graph.inputs[0]].shape
    module, ours = _compare(package, _draw(shape, 3))
    placement = [node for node in ours.partition.placement if node.on == "dla"]
    assert _placed(module).total() == len(placement)
    functions = [function.attrs for _, function in module.functions_items()]
    regions = [attributes for attributes in functions if "Codegen" in attributes]
    assert len(regions) == len(ours.partition.regions)


def _binary_unit(op_type: str) -> onnx.ModelProto:
    builder = ModelBuilder()
    operands = [
        builder.dequantize(builder.input(name, (1, 4, 6, 6), "int8"), scale, 3)
        for name, scale in (("x", 0.05), ("z", 0.03))
    ]
    attributes = {"axis": 1} if op_type == "Concat" else {}
    builder.quantize(builder.node(op_type, *operands, **attributes), 0.06, -5, result="y")
    builder.output("y", "int8")
    return builder.model()


def _product_unit(op_type: str, biased: bool) -> onnx.ModelProto:
    random = np.random.default_rng(2)
    builder = ModelBuilder()
    x = builder.dequantize(builder.input("x", (3, 12), "int8"), 0.05, 3)
    transposed = {"transB": 1} if op_type == "Gemm" else {}
    weights = random.integers(-127, 128, (7, 12) if transposed else (12, 7)).astype(np.int8)
    operands = [x, builder.weights(weights, 0.02)]
    if biased:
        bias = random.integers(-3000, 3000, 7).astype(np.int32)
        operands.append(builder.weights(bias, np.float32(0.05) * np.float32(0.02)))
    builder.quantize(builder.node(op_type, *operands, **transposed), 0.3, -5, result="y")
    builder.output("y", "int8")
    return builder.model()


def _convolution(dtype: str = "int8", **how: Any) -> onnx.ModelProto:
    random = np.random.default_rng(3)
    weights = random.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)
    bias = random.integers(-3000, 3000, 6).astype(np.int32)
    scales = (0.01 * (1 + random.random(6))).astype(np.float32)
    return convolution_unit(
        weights, (1, 4, 9, 9), dtype=dtype, weight_scale=scales, bias=bias,
        pads=[1, 1, 1, 1], strides=[2, 2], **how,
    )  # fmt: skip


SHAPE = (1, 4, 6, 6)
WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
TABLES = sorted(get_built_in_families().closes.functions & frontend.OPERATORS.keys())
POSITIVE = {"before": (0.05, -128)}
UNITS = {
    **{
        name: unary_unit(name, SHAPE, **(POSITIVE if name in ("Log", "Sqrt") else {}))
        for name in TABLES
    },
    **{name: _binary_unit(name) for name in ("Add", "Sub", "Mul", "Div", "Concat")},
    "MaxPool": unary_unit("MaxPool", SHAPE, **WINDOW),
    "AveragePool": unary_unit("AveragePool", SHAPE, **WINDOW),
    "GlobalAveragePool": unary_unit("GlobalAveragePool", SHAPE, after=(0.04, 9)),
    "Reshape": unary_unit("Reshape", SHAPE, extra=[([4, 36], "int64")]),
    "Transpose": unary_unit("Transpose", SHAPE, perm=[0, 2, 3, 1]),
    "Softmax": unary_unit("Softmax", (5, 12), after=(1 / 256, -128), axis=-1),
    "MatMul": _product_unit("MatMul", False),
    "Gemm": _product_unit("Gemm", True),
    "Gemm without bias": _product_unit("Gemm", False),
    "Conv": _convolution(),
    "Conv of uint8": _convolution("uint8", before=(0.05, 117), after=(0.1, 130)),
    "Conv and Relu": _convolution(activation=("Relu",), after=(0.1, -128)),
}


def test_units_name_all_operators() -> None:
    assert {name.split()[0] for name in UNITS} == frontend.OPERATORS.keys()


@pytest.mark.parametrize("name", UNITS)
def test_units_equal_onnx_runtime(name: str) -> None:
    model = UNITS[name]
    package = import_model(model)
    device = _make_device()
    module, machine = _build(model, device)
    assert _placed(module).total() == 1
    random = np.random.default_rng(4)
    inputs = {
        name: random.integers(0, 256, package.graph.values[name].shape)
        .astype(np.uint8)
        .view(package.graph.values[name].dtype)
        for name in package.graph.inputs
    }
    with hook.use_device(device) as runs:
        found = machine["main"](*map(tvm.runtime.tensor, inputs.values())).numpy()
    assert len(runs) == 1
    [wanted] = Oracle(package.model, package.graph, ["y"]).values(inputs).values()
    np.testing.assert_array_equal(found, wanted)


def _float_between() -> onnx.ModelProto:
    """Return x → Conv → float Floor → Conv → y; only the quantised parts are int8."""
    random = np.random.default_rng(5)
    builder = ModelBuilder()
    found = builder.dequantize(builder.input("x", (1, 4, 6, 6), "int8"), 0.05)
    for number in range(2):
        weights = random.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)
        found = builder.node("Conv", found, builder.weights(weights, 0.01), pads=[1, 1, 1, 1])
        found = builder.quantize(found, 0.1, result="" if number == 0 else "y")
        if number == 0:
            found = builder.dequantize(found, 0.1)
            found = builder.node("Floor", builder.node("Floor", found))
            found = builder.dequantize(builder.quantize(found, 0.1), 0.1)
    builder.output("y", "int8")
    return builder.model()


def test_other_operators_stay_with_tvm() -> None:
    """Two functions, and between them float operators whose chain no pattern matches."""
    device = _make_device()
    module, machine = _build(_float_between(), device)
    assert _placed(module) == {"dla.Conv": 2}
    package = import_model(_float_between())
    x = np.random.default_rng(6).integers(-128, 128, SHAPE).astype(np.int8)
    with hook.use_device(device) as runs:
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
    assert len(runs) == 2
    [wanted] = Oracle(package.model, package.graph, ["y"]).values({"x": x}).values()
    np.testing.assert_array_equal(found, wanted)


def test_placement_depends_on_the_machine() -> None:
    """Without a depthwise instruction, TVM computes the depthwise convolution of digits."""
    package = dla.import_model("digits-cnn")
    arch = Arch(isa="v1")
    ours = dla.compile(package, arch).partition.placement
    kinds = Counter(f"dla.{node.op_type}" for node in ours if node.on == "dla")
    found = _placed(hook.partition(_import(package.model), arch))
    assert found.total() == kinds.total() == 5
    assert found["dla.Conv"] == kinds["dla.Conv"] == 2


def _constant_unit(op_type: str, shape: tuple[int, ...], perm: tuple[int, ...]) -> onnx.ModelProto:
    """Return a product of 6 × 6 weights, transposed by ``perm``, plus a constant of ``shape``."""
    random = np.random.default_rng(8)
    builder = ModelBuilder()
    conv = op_type == "Conv"
    x = builder.dequantize(builder.input("x", (1, 6, 6, 6) if conv else (6, 6), "int8"), 0.05, 3)
    values = random.integers(-127, 128, (6, 6, 1, 1) if conv else (6, 6)).astype(np.int8)
    weights = builder.weights(values, 0.01)
    if perm:
        weights = builder.node("Transpose", weights, perm=perm)
    found = builder.node(op_type, x, weights)
    if shape:
        values = random.integers(-3000, 3000, 6).astype(np.int32)
        added = builder.weights(values, np.float32(0.05) * np.float32(0.01))
        added = builder.node("Reshape", added, builder.constant(np.array(shape), "int64"))
        found = builder.node("Add", found, added)
    builder.quantize(found, 0.1, -5, result="y")
    builder.output("y", "int8")
    return builder.model()


@pytest.mark.parametrize(
    ("op_type", "shape", "perm", "units"),
    [
        ("Conv", (1, 6, 1, 1), (), 1),
        ("Conv", (6,), (), 0),
        ("Conv", (1, 1, 1, 6), (), 0),
        ("MatMul", (1, 6), (1, 0), 1),
        ("MatMul", (6, 1), (), 0),
        ("MatMul", (), (1, 0), 1),
        ("MatMul", (), (0, 1), 0),
    ],
)
def test_constants_keep_their_axes(
    op_type: str, shape: tuple[int, ...], perm: tuple[int, ...], units: int
) -> None:
    """A constant along another axis than the channels is no bias, and not every permutation swaps.

    The oracle is ONNX Runtime on the model itself; TVM's float addition may round otherwise.
    """
    model = _constant_unit(op_type, shape, perm)
    device = _make_device()
    module, machine = _build(model, device)
    assert _placed(module).total() == units
    size = (1, 6, 6, 6) if op_type == "Conv" else (6, 6)
    x = np.random.default_rng(9).integers(-128, 128, size).astype(np.int8)
    with hook.use_device(device):
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
    [wanted] = OnnxRuntimeSession(model).run(["y"], {"x": x}).values()
    assert np.abs(found.astype(int) - wanted).max() <= (0 if units else 1)


def test_write_pads_changes_only_automatic_padding() -> None:
    """More explicit pads would count in the means of a window that passes the edge."""
    ceiled = {**WINDOW, "ceil_mode": 1, "count_include_pad": 1}
    for attributes in (ceiled, {**WINDOW, "auto_pad": "NOTSET"}):
        model = unary_unit("AveragePool", (1, 4, 7, 6), **attributes)
        [node] = [one for one in model.graph.node if one.op_type == "AveragePool"]
        written = hook.write_pads(import_model(model)).graph.node
        [found] = [one for one in written if one.op_type == "AveragePool"]
        assert sorted(map(str, found.attribute)) == sorted(map(str, node.attribute))


IMPORTER = """
import sys
import numpy as np
import tvm
import dla
from byoc.hooks import tvm as hook
hardware = dla.load_hardware("balanced-64", {"isa": "v1"})
device = dla.Device(hardware.arch, hardware.timing)
machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
with hook.use_device(device) as runs:
    found = machine["main"](tvm.runtime.tensor(np.load(sys.argv[2]))).numpy()
cycles = [trace.cycles for run in runs for trace in run.traces.values()]
np.savez(sys.argv[3], found=found, cycles=cycles)
"""


def test_an_exported_library_runs_in_another_process(tmp_path: Path) -> None:
    """On ISA v1 digits has two functions, and TVM computes an operator between them."""
    package = dla.import_model("digits-cnn")
    hardware = dla.load_hardware("balanced-64", {"isa": "v1"})
    device = dla.Device(hardware.arch, hardware.timing)
    module = hook.partition(_import(package.model), device.arch)
    executable = tvm.compile(relax.transform.RunCodegen()(module), target="llvm")
    executable.export_library(str(tmp_path / "digits.so"))
    [image] = _draw((1, 1, 8, 8), 1)
    np.save(tmp_path / "image.npy", image)
    files = [tmp_path / name for name in ("digits.so", "image.npy", "found.npz")]
    subprocess.run([sys.executable, "-c", IMPORTER, *files], check=True)
    found = np.load(files[-1])
    oracle = Oracle(package.model, package.graph, package.graph.outputs)
    [wanted] = oracle.values({"image": image}).values()
    np.testing.assert_array_equal(found["found"], wanted)
    ours = dla.compile(package, device.arch, timing=device.timing)
    cycles = [device.run(one, {}, timing_only=True).trace.cycles for one in ours.programs.values()]
    assert found["cycles"].tolist() == cycles


def test_functions_need_their_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of one's own must end with embed_models; a second call changes nothing."""
    arch = Arch()
    patterns = hook.make_patterns(arch)
    module = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(
        _import(_product_unit("MatMul", False))
    )
    with pytest.raises(InputError, match=r"has no model; call embed_models before RunCodegen$"):
        relax.transform.RunCodegen()(module)
    embedded = hook.embed_models(hook.embed_models(module))
    [function] = [
        function for _, function in embedded.functions_items() if "Codegen" in function.attrs
    ]
    assert function.attrs["global_symbol"] == "dla.run0"
    assert len(function.params) == 2
    monkeypatch.setattr(hook, "MAX_FUNCTIONS", 0)
    with pytest.raises(InputError, match=r"has 1 functions .*, 0 are possible; divide the module$"):
        hook.embed_models(module)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hook.partition(UNITS["Conv"], Arch()), "^module is .*; give IRModule$"),
        (
            lambda: hook.partition(_import(UNITS["Conv"]), "v4"),
            r"^arch is 'v4' \(str\); give Arch$",
        ),
        (lambda: hook.make_patterns(_make_device()), r"^arch is .* \(Device\); give Arch$"),
        (lambda: hook.embed_models(None), "^module is None; give IRModule$"),
        (lambda: hook.write_pads(UNITS["Conv"]), "^package is .*; give a package$"),
        (lambda: hook.use_device(Arch()).__enter__(), r"^device is .* \(Arch\); give a device$"),
    ],
)
def test_a_wrong_type_is_one_error(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_a_run_needs_a_device_of_the_machine() -> None:
    _, machine = _build(dla.import_model("digits-cnn").model, _make_device())
    image = tvm.runtime.tensor(np.zeros((1, 1, 8, 8), np.float32))
    with pytest.raises(
        InputError, match=r"^dla.run0 has no device; call the .* use_device\(device\)$"
    ):
        machine["main"](image)
    with (
        pytest.raises(InputError, match=r"another machine.*partition\(module, device.arch\)"),
        hook.use_device(dla.Device(Arch(isa="v1"))),
    ):
        machine["main"](image)


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "version", lambda name: "0.26.0")
    with pytest.raises(InputError, match=r"^apache-tvm 0.26.0 .*; install it with: .* install "):
        frontend.require_tvm()

    def lack(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(frontend, "version", lack)
    with pytest.raises(MissingExtraError, match=r"^the hook needs apache-tvm.* install "):
        frontend.require_tvm()
