"""Random models as users have them, from the file to the outputs, against unmodified ONNX Runtime.

``python -m tests.e2e.given_models --count N --seed S [--quantised]`` tries many more than the tests
do, and prints how many were right, refused, flagged though right, or wrong in silence. The models
have shared tensors, several outputs, local functions, control flow, odd shapes, extreme scales and
zero points; the quantised ones come from ONNX Runtime's own quantiser, in all of its forms, and are
then disturbed.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from byoc.compiler import compile as compile_network
from byoc.host.runtime import Runtime
from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from dla_sim.device import Device
from experiments.running.check import LEAST_DECIBELS, check_values
from isa.arch import Arch, PeArray
from isa.errors import InputError

Array = NDArray[Any]
OPSETS = (12, 13, 15, 17, 18, 20, 21, 22)


class Grower:
    """Grows a model node by node.

    Every node runs on ONNX Runtime at once, so that what is grown is valid.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = int(self.pick(*OPSETS))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.values: dict[str, Array] = {}
        for number in range(int(self.pick(1, 1, 2))):
            rank = int(self.pick(4, 4, 4, 3, 2))
            sizes = [
                int(self.pick(1, 1, 1, 2)),
                *(int(n) for n in self.random.integers(1, 11, rank - 1)),
            ]
            self.values[f"x{number}"] = self.random.standard_normal(sizes).astype(np.float32)
        self.inputs = tuple(self.values)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def normal(self, *shape: int) -> Array:
        """Numbers of an order of magnitude of their own."""
        return self.random.standard_normal(shape) * 10.0 ** self.pick(0, 0, 0, -2, 2)

    def some(self, rank: int | None = None) -> str | None:
        names = [name for name, array in self.values.items() if rank is None or array.ndim == rank]
        return str(self.pick(*names[-6:])) if names else None

    def add(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str | None:
        """A node, if ONNX Runtime runs it and its result is finite and neither empty nor large.

        Its output's name.
        """
        name = f"t{len(self.nodes)}"
        node = helper.make_node(op_type, inputs, [name], domain=domain, **attributes)
        if not (self.random.random() < 0.2):
            node.name = f"n{len(self.nodes)}"
        feeds = {source: self.values[source] for source in inputs if source in self.values}
        used = [tensor for tensor in self.constants if tensor.name in inputs]
        try:
            array = run_unfused(self._model([node], feeds, [name], used), feeds)[name]
        except Exception:  # ONNX Runtime's own kinds: the node is not valid here
            return None
        if array.dtype != np.float32 or not np.isfinite(array).all() or not 0 < array.size < 5000:
            return None
        self.nodes.append(node)
        self.values[name] = array
        return name

    def _model(
        self,
        nodes: list[onnx.NodeProto],
        feeds: Mapping[str, Array],
        outputs: list[str],
        constants: list[Any],
    ) -> onnx.ModelProto:
        values = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, array.shape)
            for n, array in feeds.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(nodes, "given", values, results, constants)
        domains = [helper.make_opsetid("", self.opset)]
        domains += [helper.make_opsetid("local", 1)] if self.functions else []
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        model.functions.extend(self.functions)
        return model

    def window(self, shape: tuple[int, ...]) -> dict[str, Any]:
        rank = len(shape) - 2
        kernel = [int(self.random.integers(1, min(5, size + 1))) for size in shape[2:]]
        found: dict[str, Any] = {"kernel_shape": kernel}
        if self.random.random() < 0.7:
            found["strides"] = [int(self.random.integers(1, 4)) for _ in range(rank)]
        if self.random.random() < 0.3:
            found["auto_pad"] = self.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        elif self.random.random() < 0.6:
            found["pads"] = [int(self.random.integers(0, size)) for size in (*kernel, *kernel)]
        return found

    def convolution(self) -> str | None:
        x = self.some(self.pick(4, 4, 3))
        if x is None:
            return None
        shape = self.values[x].shape
        group = self.pick(1, 1, shape[1], *(g for g in (2, 3, 4) if shape[1] % g == 0))
        window = self.window(shape)
        weights = self.normal(
            group * int(self.random.integers(1, 4)), shape[1] // group, *window["kernel_shape"]
        )
        inputs = [x, self.constant(weights)]
        if self.random.random() < 0.6:
            inputs.append(self.constant(self.normal(len(weights))))
        y = self.add("Conv", *inputs, group=group, **window)
        if y is not None and self.random.random() < 0.3:
            channels = self.values[y].shape[1]
            parameters = [self.constant(self.normal(channels)) for _ in range(3)]
            parameters.append(self.constant(self.random.uniform(0.1, 2.0, channels)))
            return self.add("BatchNormalization", y, *parameters)
        return y

    def product(self) -> str | None:
        x = self.some(2)
        if x is None:
            return None
        rows, depth = self.values[x].shape
        columns = int(self.random.integers(1, 8))
        transposed = bool(self.random.random() < 0.5)
        weights = self.constant(
            self.normal(*((columns, depth) if transposed else (depth, columns)))
        )
        bias = self.pick(None, (columns,), (1, columns), (rows, 1), (1,), (), (rows, columns))
        inputs = [x, weights] + ([] if bias is None else [self.constant(self.normal(*bias))])
        if self.random.random() < 0.7 or transposed:
            factors = {
                key: float(self.pick(0.5, 2.0))
                for key in ("alpha", "beta")
                if self.random.random() < 0.2
            }
            return self.add("Gemm", *inputs, transB=int(transposed), **factors)
        y = self.add("MatMul", x, weights)
        return (
            y
            if bias is None or y is None
            else self.add("Add", *self.pick((y, inputs[2]), (inputs[2], y)))
        )

    def unary(self) -> str | None:
        x = self.some()
        op = self.pick(
            "Relu",
            "Relu",
            "Clip",
            "LeakyRelu",
            "Abs",
            "Sigmoid",
            "Tanh",
            "Identity",
            "Dropout",
            "Softmax",
        )
        if x is None:
            return None
        if op == "Clip":
            limits = self.pick((0.0, 6.0), (-1.0, 1.0), (0.5, 2.0), (-3.0, -1.0))
            return self.add(op, x, *(self.constant(limit) for limit in limits))
        alpha = {"alpha": float(self.pick(0.1, 0.0, -0.5, 1.5))} if op == "LeakyRelu" else {}
        return self.add(op, x, **alpha)

    def pool(self) -> str | None:
        x = self.some(self.pick(4, 4, 3))
        if x is None:
            return None
        op = self.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
        if op.startswith("Global"):
            return self.add(op, x)
        options = {"ceil_mode": 1} if self.random.random() < 0.4 else {}
        if op == "AveragePool" and self.random.random() < 0.3:
            options["count_include_pad"] = 1
        return self.add(op, x, **self.window(self.values[x].shape), **options)

    def binary(self) -> str | None:
        x = self.some()
        if x is None:
            return None
        same = [name for name, array in self.values.items() if array.shape == self.values[x].shape]
        return self.add(
            self.pick("Add", "Add", "Sum", "Min", "Max", "Mul", "Sub"), x, self.pick(*same)
        )

    def scaled(self) -> str | None:
        x = self.some()
        if x is None:
            return None
        shape = self.values[x].shape
        channels = (1, shape[1], *(1,) * (len(shape) - 2)) if len(shape) > 1 else shape
        other = self.constant(self.normal(*self.pick((), channels, (1,))))
        if self.random.random() < 0.2:
            other = self.add("Neg", other) or other  # a constant that a node makes
        operands = (x, other) if self.random.random() < 0.7 else (other, x)
        return self.add(self.pick("Mul", "Add", "Sub", "Div"), *operands)

    def movement(self) -> str | None:
        x = self.some()
        if x is None:
            return None
        shape = self.values[x].shape
        if not shape:
            return None
        kind = self.pick("Flatten", "Reshape", "Transpose", "Concat", "Unsqueeze")
        if kind == "Flatten":
            return self.add(kind, x, axis=int(self.random.integers(0, len(shape) + 1)))
        if kind == "Reshape":
            return self.add(
                kind,
                x,
                self.constant(self.pick([shape[0], -1], [-1, shape[-1]], [0, -1]), np.int64),
            )
        if kind == "Transpose":
            return self.add(
                kind, x, perm=[int(axis) for axis in self.random.permutation(len(shape))]
            )
        if kind == "Concat":
            alike = [name for name, array in self.values.items() if array.shape == shape]
            return self.add(
                kind, x, self.pick(*alike), axis=int(self.random.integers(0, len(shape)))
            )
        return self.add(kind, x, self.constant([0], np.int64)) if self.opset >= 13 else None

    def function(self) -> str | None:
        """Call a local function that has the name of a standard operator but another meaning."""
        x = self.some()
        if x is None:
            return None
        name = str(self.pick("Identity", "Relu", "Clip", "Dropout", "Mine"))
        if not any(function.name == name for function in self.functions):
            body = [helper.make_node(self.pick("Abs", "Neg", "Relu"), ["a"], ["b"])]
            domains = [helper.make_opsetid("", self.opset)]
            self.functions.append(helper.make_function("local", name, ["a"], ["b"], body, domains))
        return self.add(name, x, domain="local")

    def control(self) -> str | None:
        """An If on a constant, one branch of which reads a tensor from outside."""
        x = self.some()
        if x is None or self.opset < 13:
            return None
        result = [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
        branches = [
            helper.make_graph([helper.make_node(op, [x], ["r"])], f"branch{op}", [], result)
            for op in ("Relu", "Neg")
        ]
        condition = self.constant(bool(self.random.random() < 0.5), np.bool_)
        name = f"t{len(self.nodes)}"
        node = helper.make_node(
            "If", [condition], [name], then_branch=branches[0], else_branch=branches[1]
        )
        feeds = {x: self.values[x]}
        try:
            array = run_unfused(self._model([node], feeds, [name], [self.constants[-1]]), feeds)[
                name
            ]
        except Exception:  # ONNX Runtime's own kinds
            return None
        self.nodes.append(node)
        self.values[name] = array
        return name

    def grow(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The model and an input for it."""
        usual = (
            self.convolution,
            self.convolution,
            self.product,
            self.unary,
            self.unary,
            self.pool,
            self.binary,
        )
        steps = (*usual, self.scaled, self.movement, self.movement)
        wanted = int(self.random.integers(2, 10))
        for _ in range(40):
            rare = self.random.random()
            step = (
                self.function if rare < 0.05 else self.control if rare < 0.08 else self.pick(*steps)
            )
            step()
            if len(self.nodes) >= wanted:
                break
        made = [name for node in self.nodes for name in node.output]
        outputs = (
            [made[-1], *(name for name in made[:-1] if self.random.random() < 0.15)] if made else []
        )
        if self.random.random() < 0.02:
            outputs.append(self.inputs[0])
        feeds = {name: self.values[name] for name in self.inputs}
        return self._model(self.nodes, feeds, outputs, self.constants), feeds


def run_unfused(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return outputs of a model on unmodified ONNX Runtime with nothing fused."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def quantised(model: onnx.ModelProto, feeds: Mapping[str, Array], seed: int) -> onnx.ModelProto:
    """``model`` quantised by ONNX Runtime in one of its forms.

    Some scales and zero points are then disturbed.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [dict(feeds)]

        def get_next(self) -> dict[str, Array] | None:
            return self.left.pop() if self.left else None

    random = np.random.default_rng(seed)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "quantised.onnx"
        quantize_static(
            model,
            target,
            Reader(),
            quant_format=(QuantFormat.QDQ, QuantFormat.QDQ, QuantFormat.QOperator)[
                int(random.integers(3))
            ],
            activation_type=(QuantType.QInt8, QuantType.QUInt8)[int(random.integers(2))],
            weight_type=QuantType.QInt8,
            per_channel=bool(random.integers(2)),
            extra_options={"ActivationSymmetric": bool(random.integers(4) == 0)},
        )
        result = onnx.load(target)
    logging.disable(logging.NOTSET)
    for tensor in result.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.name.endswith("_scale") and array.size == 1 and random.random() < 0.05:
            moved = array * np.float32(10.0 ** random.uniform(-3, 3))
            tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), tensor.name))
        of_activation = (
            tensor.name.endswith("_zero_point")
            and "quantized" not in tensor.name
            and array.size == 1
        )
        if of_activation and array.dtype in (np.int8, np.uint8) and random.random() < 0.05:
            limits = np.iinfo(array.dtype)
            other = np.asarray(random.integers(limits.min, limits.max + 1), array.dtype).reshape(
                array.shape
            )
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    return result


@dataclass(frozen=True)
class Verdict:
    """Verdict on one model: right, refused, alarm, silent or bug.

    ``text`` explains it, and ``regions`` counts the regions that it ran in. ``reference`` is True
    if onnx's reference evaluator, which shares no code with ONNX Runtime, gives the same results;
    None if it cannot run the model.
    """

    seed: int
    kind: str
    text: str = ""
    regions: int = 0
    reference: bool | None = None


def judge(seed: int, *, integer: bool) -> Verdict:
    """Import, compile and simulate one model, and compare it with its file on ONNX Runtime.

    ONNX Runtime is unmodified.
    """
    random = np.random.default_rng(seed)
    model, feeds = Grower(seed).grow()
    if not model.graph.node:
        return Verdict(seed, "right")
    if integer:
        try:
            model = quantised(model, feeds, seed)
            OnnxRuntimeSession(model).run([value.name for value in model.graph.output], feeds)
        # the quantiser or ONNX Runtime does not take it: not ours to judge
        except Exception as error:
            return Verdict(seed, "foreign", str(error)[:100])
    arch = Arch(
        pe=PeArray(ic=int(random.choice([1, 4])), oc=int(random.choice([2, 16])), ow=1),
        sram_bytes=int(random.choice([4096, 65536])),
        isa=str(random.choice(["v2", "v3"])),
    )
    try:
        package = import_model(model, "given", calibration=[feeds])
        network = compile_network(package, arch, schedule=str(random.choice(["default", "seed"])))
        run = Runtime(network, Device(arch)).run(feeds)
        check = check_values(network, feeds, run)
    except InputError as error:
        return Verdict(seed, "refused", str(error)[:150])
    except Exception as error:  # any other error is a bug of the project
        return Verdict(seed, "bug", f"{type(error).__name__}: {error}"[:150])
    regions = len(network.partition.regions)
    if check.mismatches:
        return Verdict(seed, "alarm", f"{check.first}", regions)
    # some is alive in it
    integer = integer and (package.fidelity is None or package.fidelity.integer is not None)
    names = [value.name for value in model.graph.output]
    try:
        wanted = (
            OnnxRuntimeSession(model).run(names, feeds) if integer else run_unfused(model, feeds)
        )
    # ONNX Runtime runs only the fused model: there is nothing to compare with
    except Exception as error:
        return Verdict(seed, "foreign", str(error)[:100], regions)
    found = list(run.outputs.values())
    for name, array in zip(names, found, strict=True):
        problem = _differs(array, wanted[name], package, check, integer)
        if problem:
            return Verdict(seed, "silent", f"{name}: {problem}", regions)
    return Verdict(seed, "right", "", regions, _reference_agrees(model, feeds, wanted))


def _reference_agrees(
    model: onnx.ModelProto, feeds: Mapping[str, Array], wanted: Mapping[str, Array]
) -> bool | None:
    """Return True if onnx's reference evaluator gives the wanted outputs.

    Outputs may differ by a part in a thousand. Return None if the evaluator cannot run the model.
    """
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            others = ReferenceEvaluator(model).run(None, dict(feeds))
    except Exception:  # it does not know all operators, nor all of their forms
        return None
    for other, theirs in zip(others, wanted.values(), strict=True):
        if other.shape != theirs.shape:
            return False
        power = float(np.square(other, dtype=np.float64).sum())
        if float(np.square(other.astype(np.float64) - theirs).sum()) > 1e-6 * power:
            return False
    return True


def _differs(found: Array, wanted: Array, package: Any, check: Any, integer: bool) -> str:
    """Describe an unreported error of an output; empty if it is right or reported."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{found.shape} for {wanted.dtype}{wanted.shape}"
    if integer:
        said = (
            package.rewritten_activations > 0 or not check.outputs.exact or package.fidelity.integer
        )
        wrong = int(np.count_nonzero(found != wanted))
        return "" if said or not wrong else f"{wrong} of {found.size} elements differ"
    noise = float(np.square(found.astype(np.float64) - wanted).sum())
    signal = float(np.square(wanted, dtype=np.float64).sum())
    said = min(package.fidelity.noise.values(), default=200.0) < LEAST_DECIBELS
    poor = noise > signal / 10 ** (LEAST_DECIBELS / 10)
    return "" if said or not poor else f"noise {noise:.3g} on a signal of {signal:.3g}"


def verdicts(count: int, seed: int, *, integer: bool) -> Iterator[Verdict]:
    """One verdict a model."""
    for number in range(count):
        yield judge(seed + number, integer=integer)


def main() -> None:
    """Print the verdicts' counts and all failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quantised", action="store_true")
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    examples: dict[str, int] = {}
    regions = 0
    reference: Counter[bool | None] = Counter()
    for verdict in verdicts(chosen.count, chosen.seed, integer=chosen.quantised):
        counts[verdict.kind] += 1
        regions += verdict.regions
        reference[verdict.reference] += verdict.kind == "right"
        if verdict.reference is False:
            print(verdict.seed, "ONNX Runtime and the reference evaluator disagree", flush=True)
        if verdict.kind == "refused":
            refused[verdict.text[:60]] += 1
            examples.setdefault(verdict.text[:60], verdict.seed)
        elif verdict.kind not in ("right", "foreign"):
            print(verdict.seed, verdict.kind, verdict.text, flush=True)
    print(
        ", ".join(f"{count} {kind}" for kind, count in counts.most_common()), f"; {regions} regions"
    )
    print(
        f"reference evaluator: {reference[True]} agree, {reference[False]} do not, "
        f"{reference[None]} it cannot run"
    )
    for text, count in refused.most_common(12):
        print(f"  refused {count}, such as seed {examples[text]}: {text}")
    raise SystemExit(bool(counts["silent"] + counts["alarm"] + counts["bug"]))


if __name__ == "__main__":
    main()
