"""Write random quantised files whose tensors have several consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.e2e.given_models import run_unfused

Array = NDArray[Any]
MOST_READERS = 4
LARGEST = 40_000
"""Elements of a tensor."""
LARGEST_SOFTMAX = 4_000
"""Elements of a tensor of which a softmax is taken."""
SAME = ("MaxPool", "Transpose", "Slice", "Resize", "Reshape", "ReduceMax", "ReduceMin")
"""Operators whose result has their operand's scale."""
AGAIN = "_again"


@dataclass
class Integers:
    """A quantised tensor: its integers for the file's input, scale, zero point and consumers."""

    name: str
    array: Array
    scale: np.float32
    zero_point: Array
    readers: int = 0


@dataclass
class Unit:
    """Operators between what they read and the tensor that they make, boundaries included."""

    nodes: list[onnx.NodeProto]
    sources: tuple[Integers, ...]
    result: Integers


@dataclass
class Writer:
    """A QDQ file that is being written."""

    seed: int
    random: np.random.Generator = field(init=False)
    tensors: list[Integers] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.seed, 25])
        for number in range(int(self.pick(1, 1, 2))):
            shape = (
                self.batch(),
                *(int(size) for size in self.random.integers((1, 8, 6), (25, 41, 41))),
            )
            array = self.random.integers(-128, 128, shape).astype(np.int8)
            self.tensors.append(
                Integers(f"x{number}", array, np.float32(0.02), np.int8(self.pick(0, 3, -128)))
            )
        self.inputs = tuple(self.tensors)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def batch(self) -> int:
        """Return the batch size of an input."""
        return 1

    def groups(self, channels: int) -> int:
        """Draw the number of groups of a convolution."""
        return int(self.pick(1, 1, channels))

    def steps(self) -> tuple[Callable[[], None], ...]:
        """Return the methods that add operators, with repetitions as weights."""
        return (
            *(self.convolution,) * 5,
            self.pool,
            *(self.pair,) * 5,
            self.table,
            self.joined,
            self.moved,
        )

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def source(self, rank: int | None = None) -> Integers | None:
        """A tensor that is not read by four yet: now the last one, now any."""
        free = [
            one
            for one in self.tensors
            if one.readers < MOST_READERS and rank in (None, one.array.ndim)
        ]
        if not free:
            return None
        return (
            free[-1] if self.random.random() < 0.6 else free[int(self.random.integers(len(free)))]
        )

    def dequantised(self, source: Integers, nodes: list[onnx.NodeProto]) -> str:
        name = f"{source.name}_real{len(self.units)}_{len(nodes)}"
        scale = self.constant(source.scale)
        zero = self.constant(source.zero_point, source.zero_point.dtype)
        nodes.append(helper.make_node("DequantizeLinear", [source.name, scale, zero], [name]))
        return name

    def unit(
        self, op: str, sources: Sequence[Integers], further: Sequence[str] = (), **attributes: Any
    ) -> None:
        """Add ``op`` between DequantizeLinear and QuantizeLinear if its result is useful."""
        nodes: list[onnx.NodeProto] = []
        operands = [self.dequantised(source, nodes) for source in sources]
        self.finish(
            nodes,
            sources,
            helper.make_node(op, [*operands, *further], [f"t{len(self.units)}_real"], **attributes),
        )

    def finish(
        self, nodes: list[onnx.NodeProto], sources: Sequence[Integers], last: onnx.NodeProto
    ) -> None:
        """Quantise the result of ``nodes`` and ``last`` with a scale that fits it.

        A Relu follows now and then.
        """
        made = f"t{len(self.units)}"
        (real,) = last.output
        nodes.append(last)
        if last.op_type in ("Conv", "Add") and self.random.random() < 0.3:
            nodes.append(helper.make_node("Relu", [real], [f"{made}_relu"]))
            real = f"{made}_relu"
        read = {source.name: source for source in sources}
        result = [helper.make_tensor_value_info(real, TensorProto.FLOAT, None)]
        graph = helper.make_graph(
            nodes, "unit", [_value(one) for one in read.values()], result, self.used(nodes)
        )
        array = run_unfused(_model(graph), {name: source.array for name, source in read.items()})[
            real
        ]
        if not np.isfinite(array).all() or not 1 < array.size <= LARGEST:
            return
        scale = sources[0].scale
        zero = sources[0].zero_point
        if last.op_type not in SAME:
            low = min(0.0, float(array.min()))
            high = max(0.0, float(array.max()))
            limits = np.iinfo(self.pick(np.int8, np.int8, np.int8, np.uint8))
            scale = np.float32(max(high - low, 1e-3) / 255)
            zero = np.asarray(
                np.clip(limits.min + round(-low / float(scale)), limits.min, limits.max),
                limits.dtype,
            )
        limits = np.iinfo(zero.dtype)
        stored = np.clip(np.rint(array / scale) + np.float32(zero), limits.min, limits.max).astype(
            zero.dtype
        )
        names = self.constant(scale), self.constant(zero, zero.dtype)
        nodes.append(helper.make_node("QuantizeLinear", [real, *names], [made]))
        for source in read.values():
            source.readers += 1
        self.tensors.append(Integers(made, stored, scale, zero))
        self.units.append(Unit(nodes, tuple(read.values()), self.tensors[-1]))

    def used(self, nodes: Sequence[onnx.NodeProto]) -> list[onnx.TensorProto]:
        """The constants that nodes read."""
        names = {name for node in nodes for name in node.input}
        return [tensor for tensor in self.constants if tensor.name in names]

    # Operators.
    # ----------------------------------------------------------------------------------------------

    def window(self, shape: tuple[int, ...]) -> dict[str, Any]:
        skips = bool(self.random.random() < 0.5)
        largest = 3 if skips else 4
        kernel = [int(self.random.integers(1, min(largest, size + 1))) for size in shape[2:]]
        strides = [int(self.pick(2, 3, 3) if skips else self.pick(1, 1, 1, 2)) for _ in kernel]
        pads = [
            int(self.random.integers(0, size)) if self.random.random() < 0.5 else 0
            for size in (*kernel, *kernel)
        ]
        return {"kernel_shape": kernel, "strides": strides, "pads": pads}

    def convolution(self) -> None:
        source = self.source(4)
        if source is None:
            return
        channels = source.array.shape[1]
        window = self.window(source.array.shape)
        group = self.groups(channels)
        outputs = group * int(self.random.integers(1, 13 if group == 1 else 3))
        scales = self.random.uniform(0.005, 0.02, self.pick((), (outputs,))).astype(np.float32)
        weights = self.random.integers(
            -127, 128, (outputs, channels // group, *window["kernel_shape"])
        ).astype(np.int8)
        stored = [
            (weights, scales),
            (self.random.integers(-3000, 3000, outputs, np.int32), scales * source.scale),
        ]
        nodes: list[onnx.NodeProto] = []
        operands = [self.dequantised(source, nodes)]
        for array, scale in stored[: self.pick(1, 2, 2)]:
            operands.append(f"c{len(self.constants)}_real")
            zeros = self.constant(np.zeros(scale.shape), array.dtype)
            inputs = [self.constant(array, array.dtype), self.constant(scale), zeros]
            nodes.append(
                helper.make_node(
                    "DequantizeLinear",
                    inputs,
                    operands[-1:],
                    **({"axis": 0} if scale.shape else {}),
                )
            )
        conv = helper.make_node(
            "Conv", operands, [f"t{len(self.units)}_real"], group=group, **window
        )
        self.finish(nodes, (source,), conv)

    def pool(self) -> None:
        source = self.source(4)
        if source is not None:
            self.unit(
                self.pick("MaxPool", "MaxPool", "AveragePool"),
                (source,),
                **self.window(source.array.shape),
            )

    def pair(self) -> None:
        source = self.source()
        if source is None:
            return
        same = [
            one
            for one in self.tensors
            if one.array.shape == source.array.shape and one.readers < MOST_READERS
        ]
        other = same[int(self.random.integers(len(same)))]
        operands = (source, other) if self.random.random() < 0.5 else (other, source)
        self.unit(self.pick("Add", "Add", "Add", "Mul", "Sub", "Max"), operands)

    def table(self) -> None:
        source = self.source()
        if source is not None:
            self.unit(self.pick("Relu", "LeakyRelu", "Sigmoid", "HardSwish", "Abs"), (source,))

    def joined(self) -> None:
        source = self.source(4)
        if source is None:
            return
        others = [
            one
            for one in self.tensors
            if one.array.shape[2:] == source.array.shape[2:] and one.array.ndim == 4
        ]
        other = others[int(self.random.integers(len(others)))]
        if other.readers < MOST_READERS:
            self.unit("Concat", (source, other), axis=1)

    def moved(self) -> None:
        source = self.source(4)
        if source is None:
            return
        op = self.pick("Transpose", "Slice", "Resize")
        shape = source.array.shape
        if op == "Transpose":
            self.unit(
                op, (source,), perm=[0, *(int(axis) for axis in 1 + self.random.permutation(3))]
            )
        elif op == "Slice":
            axis = int(self.random.integers(1, 4))
            start = int(self.random.integers(0, (shape[axis] + 1) // 2))
            step = int(self.pick(1, 1, 2))
            numbers = [
                self.constant([number], np.int64) for number in (start, shape[axis], axis, step)
            ]
            self.unit(op, (source,), numbers)
        elif source.array.size * 4 <= LARGEST:
            sizes = self.constant([*shape[:2], 2 * shape[2], 2 * shape[3]], np.int64)
            how = {
                "coordinate_transformation_mode": "asymmetric",
                "nearest_mode": "floor",
                "mode": "nearest",
            }
            self.unit(op, (source,), ("", "", sizes), **how)

    def host(self) -> None:
        """Add an operator that runs on the CPU, between regions."""
        source = self.source()
        if source is not None:
            self.unit("CumSum", (source,), (self.constant(source.array.ndim - 1, np.int64),))

    def write(self) -> onnx.ModelProto:
        """Return the model, in which each result of a unit is an output with probability ½.

        Outputs are integers or real numbers.
        """
        steps = self.steps()
        wanted = int(self.random.integers(3, 10))
        for _ in range(4 * wanted):
            if len(self.units) >= wanted:
                break
            (self.host if self.random.random() < 0.04 else self.pick(*steps))()
        nodes = [node for unit in self.units for node in unit.nodes]
        outputs = []
        for unit in self.units:
            made = unit.result
            if made.readers and self.random.random() < 0.5:
                continue
            outputs.append(_value(made))
            if self.random.random() < 0.3:
                shown = self.dequantised(made, nodes)
                outputs[-1] = helper.make_tensor_value_info(
                    shown, TensorProto.FLOAT, made.array.shape
                )
        inputs = [_value(one) for one in self.inputs if one.readers]
        return _model(
            helper.make_graph(nodes, f"shared{self.seed}", inputs, outputs, self.used(nodes))
        )

    def alone(self, known: Mapping[str, Array]) -> tuple[onnx.ModelProto, list[Integers]]:
        """A model of every unit whose operands and result are all ``known``, each on its own.

        And those results.
        """
        units = [
            unit
            for unit in self.units
            if known.keys() >= {unit.result.name, *(one.name for one in unit.sources)}
        ]
        nodes = [
            onnx.NodeProto.FromString(node.SerializeToString())
            for unit in units
            for node in unit.nodes
        ]
        for node in nodes:
            if node.op_type == "QuantizeLinear":
                node.output[0] += AGAIN
        read = {source.name: source for unit in units for source in unit.sources}
        results = [_value(unit.result, AGAIN) for unit in units]
        graph = helper.make_graph(
            nodes, "units", [_value(one) for one in read.values()], results, self.used(nodes)
        )
        return _model(graph), [unit.result for unit in units]


class WideWriter(Writer):
    """A QDQ file that may also have batches, any groups, reductions, products and softmaxes."""

    def batch(self) -> int:
        return int(self.pick(1, 1, 1, 2, 3))

    def groups(self, channels: int) -> int:
        divisors = [size for size in range(1, channels + 1) if channels % size == 0]
        return int(self.pick(1, 1, channels, self.pick(*divisors)))

    def steps(self) -> tuple[Callable[[], None], ...]:
        return (
            *super().steps(),
            *(self.reduction,) * 3,
            *(self.product,) * 2,
            self.reshaped,
            self.softmax,
        )

    def reduction(self) -> None:
        """Add a reduction over any axes but the first, or a global pool."""
        source = self.source()
        if source is None or source.array.ndim < 2:
            return
        if source.array.ndim == 4 and self.random.random() < 0.2:
            self.unit("GlobalAveragePool", (source,))
            return
        axes = [axis for axis in range(1, source.array.ndim) if self.random.random() < 0.5] or [
            source.array.ndim - 1
        ]
        op = self.pick("ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
        self.unit(op, (source,), (self.constant(axes, np.int64),), keepdims=int(self.pick(1, 1, 0)))

    def product(self) -> None:
        """Add a product of a tensor with constant weights or with another tensor."""
        source = self.source()
        if source is None or source.array.ndim < 2:
            return
        shape = source.array.shape
        others = [
            one
            for one in self.tensors
            if one.readers < MOST_READERS
            and one.array.shape[:-2] == shape[:-2]
            and one.array.shape[-2:-1] == shape[-1:]
        ]
        if others and self.random.random() < 0.5:
            self.unit("MatMul", (source, self.pick(*others)))
            return
        weights = self.random.integers(
            -127, 128, (shape[-1], int(self.random.integers(1, 20)))
        ).astype(np.int8)
        nodes: list[onnx.NodeProto] = []
        operands = [self.dequantised(source, nodes), f"c{len(self.constants)}_real"]
        inputs = [self.constant(weights, np.int8), self.constant(0.01), self.constant(0, np.int8)]
        nodes.append(helper.make_node("DequantizeLinear", inputs, operands[1:]))
        self.finish(
            nodes, (source,), helper.make_node("MatMul", operands, [f"t{len(self.units)}_real"])
        )

    def reshaped(self) -> None:
        """Add a Reshape that joins the last two axes, or takes the last one apart."""
        source = self.source()
        if source is None or source.array.ndim < 3:
            return
        shape = source.array.shape
        self.unit(
            "Reshape", (source,), (self.constant([*shape[:-2], shape[-2] * shape[-1]], np.int64),)
        )

    def softmax(self) -> None:
        """Add a softmax over the last axis or the channels."""
        source = self.source()
        if source is not None and source.array.size <= LARGEST_SOFTMAX:
            axis = int(self.pick(-1, -1, 1))
            self.unit("Softmax", (source,), axis=min(axis, source.array.ndim - 1))


def _value(tensor: Integers, suffix: str = "") -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(tensor.array.dtype)
    return helper.make_tensor_value_info(tensor.name + suffix, kind, tensor.array.shape)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
