"""Random float graphs with the operators of networks since 2018: several sources, fan-out, broadcasting, movement.

``python -m tests.e2e.random_graphs --count N --seed S`` quantises them, runs each on a random machine, holds every
tensor that leaves a region to ONNX Runtime, and prints how many were exact and what fell back for which reason.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from byoc.importing import import_model
from isa.arch import Arch, PeArray
from isa.errors import InputError
from tests.e2e.harness import Comparison, compare

OPSET = 21
MOST_ELEMENTS = 4000


@dataclass(frozen=True)
class Tensor:
    """A float tensor of the graph; the first dimension is a batch of 1."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape))


class GraphBuilder:
    """Grows a graph from a seed: every step reads tensors that are there and adds one or more."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [Tensor(f"in{index}", self._shape()) for index in range(int(self.random.integers(1, 3)))]
        self.tensors = list(self.inputs)
        self.read: set[str] = set()

    def _shape(self) -> tuple[int, ...]:
        if self.chance(0.3):
            return (1, *(int(size) for size in self.random.integers(2, 17, 2)))
        return (1, int(self.random.integers(1, 13)), *(int(size) for size in self.random.integers(3, 13, 2)))

    # Choices. -------------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def below(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def tensor(self, *ranks: int) -> Tensor:
        """A tensor of one of the ranks, later ones more often; a new view of another one where there is none."""
        found = [item for item in self.tensors if not ranks or len(item.shape) in ranks]
        if found:
            weights = np.arange(1, len(found) + 1, dtype=np.float64) ** 2
            return found[int(self.random.choice(len(found), p=weights / weights.sum()))]
        other, rank = self.tensors[-1], ranks[0]
        sizes = [1] * (rank - 1) + [other.elements] if rank < 4 else [1, other.elements, 1, 1]
        return self.reshaped(other, tuple(sizes))

    # Nodes. ---------------------------------------------------------------------------------------------------------

    def constant(self, array: NDArray[Any] | float) -> str:
        values = np.asarray(array)
        name = f"c{len(self.constants)}"
        kept = values if values.dtype.kind == "i" else values.astype(np.float32)
        self.constants.append(numpy_helper.from_array(kept, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(self.random.standard_normal(shape) * scale)

    def node(self, op: str, inputs: list[Tensor | str], *shapes: tuple[int, ...], **attributes: Any) -> list[Tensor]:
        names = [item.name if isinstance(item, Tensor) else item for item in inputs]
        made = [Tensor(f"{op.lower()}{len(self.nodes)}_{index}", shape) for index, shape in enumerate(shapes)]
        outputs = [item.name for item in made]
        self.nodes.append(helper.make_node(op, names, outputs, name=f"{op}_{len(self.nodes)}", **attributes))
        self.read.update(names)
        self.tensors += made
        return made

    def reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.node("Reshape", [x, self.integers(*shape)], shape)[0]

    # Steps. ---------------------------------------------------------------------------------------------------------

    def function(self) -> None:
        x = self.tensor()
        kind = self.pick("plain", "plain", "silu", "hardswish", "gelu", "scalar", "channel")
        if kind == "plain":
            plain = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Softplus", "Abs")
            self.node(self.pick(*plain, "Gelu", "Mish", "Selu", "Erf", "Neg"), [x], x.shape)
        elif kind == "silu":
            (gate,) = self.node("Sigmoid", [x], x.shape)
            self.node("Mul", self.pick([x, gate], [gate, x]), x.shape)
        elif kind == "hardswish":
            (moved,) = self.node("Add", [x, self.constant(3.0)], x.shape)
            (cut,) = self.node("Clip", [moved, self.constant(0.0), self.constant(6.0)], x.shape)
            (product,) = self.node("Mul", [x, cut], x.shape)
            self.node("Div", [product, self.constant(6.0)], x.shape)
        elif kind == "gelu":
            (scaled,) = self.node("Div", [x, self.constant(np.sqrt(2.0))], x.shape)
            (erf,) = self.node("Erf", [scaled], x.shape)
            (moved,) = self.node("Add", [erf, self.constant(1.0)], x.shape)
            (product,) = self.node("Mul", [x, moved], x.shape)
            self.node("Mul", [product, self.constant(0.5)], x.shape)
        elif kind == "scalar":
            op = self.pick("Add", "Sub", "Mul", "Div")
            number = self.constant(float(self.random.normal() + 2.0))
            self.node(op, self.pick([x, number], [number, x]) if op != "Div" else [x, number], x.shape)
        else:
            shape = (1, x.shape[1], *(1 for _ in x.shape[2:]))
            op = self.pick("Add", "Mul", "Sub", "PRelu")
            self.node(op, [x, self.normal(*(shape[1:] if op == "PRelu" else shape))], x.shape)

    def binary(self) -> None:
        a = self.tensor()
        same = [item for item in self.tensors if item.shape == a.shape]
        b = self.pick(*same)
        if self.chance(0.5) and len(a.shape) == 4:
            (b,) = self.node("GlobalAveragePool", [self.pick(*same)], (*a.shape[:2], 1, 1))
        elif self.chance(0.3):
            b = self.pooled(self.pick(*same))
        op = self.pick("Add", "Mul", "Sub", "Min", "Max", "Mul")
        self.node(op, self.pick([a, b], [b, a]), a.shape)

    def pooled(self, x: Tensor) -> Tensor:
        axis = self.below(1, len(x.shape))
        shape = tuple(1 if index == axis else size for index, size in enumerate(x.shape))
        op = self.pick("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum")
        return self.node(op, [x, self.integers(axis)], shape, keepdims=1)[0]

    def reduction(self) -> None:
        self.pooled(self.tensor())

    def window(self, x: Tensor) -> tuple[dict[str, Any], tuple[int, ...]]:
        sizes = x.shape[2:]
        kernel = [self.below(1, min(4, size + 1)) for size in sizes]
        strides = [self.below(1, 3) for _ in sizes]
        pads = [self.below(0, size) for size in (*kernel, *kernel)]
        plane = tuple(
            (size + pads[axis] + pads[axis + len(sizes)] - kernel[axis]) // strides[axis] + 1
            for axis, size in enumerate(sizes)
        )
        return {"kernel_shape": kernel, "strides": strides, "pads": pads}, plane

    def convolution(self) -> None:
        x = self.tensor(4, 3)
        channels = x.shape[1]
        group = self.pick(1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0))
        outputs = group * self.below(1, 5)
        window, plane = self.window(x)
        kernel = window["kernel_shape"]
        scale = 1 / np.sqrt(np.prod(kernel) * channels / group)
        inputs: list[Tensor | str] = [x, self.normal(outputs, channels // group, *kernel, scale=scale)]
        inputs += [self.normal(outputs)] if self.chance(0.7) else []
        (made,) = self.node("Conv", inputs, (1, outputs, *plane), group=group, **window)
        if self.chance(0.3):
            (gate,) = self.node("Sigmoid", [made], made.shape)
            self.node("Mul", [made, gate], made.shape)

    def transposed(self) -> None:
        x = self.tensor(4)
        channels, outputs, stride = x.shape[1], self.below(1, 5), self.below(1, 4)
        kernel = self.below(stride, stride + 2)
        plane = tuple((size - 1) * stride + kernel for size in x.shape[2:])
        weights = self.normal(channels, outputs, kernel, kernel, scale=1 / np.sqrt(channels))
        self.node("ConvTranspose", [x, weights], (1, outputs, *plane), strides=[stride, stride])

    def pool(self) -> None:
        x = self.tensor(4)
        window, plane = self.window(x)
        self.node(self.pick("MaxPool", "AveragePool"), [x], (*x.shape[:2], *plane), **window)

    def product(self) -> None:
        x = self.tensor(3, 2)
        columns, depth = self.below(1, 13), x.shape[-1]
        weights = self.normal(depth, columns, scale=1 / np.sqrt(depth))
        (made,) = self.node("MatMul", [x, weights], (*x.shape[:-1], columns))
        if self.chance(0.6):
            self.node("Add", [made, self.normal(columns)], made.shape)

    def attention(self) -> None:
        x = self.tensor(3)
        turned = (x.shape[0], x.shape[2], x.shape[1])
        (keys,) = self.node("Transpose", [x], turned, perm=[0, 2, 1])
        (scores,) = self.node("MatMul", [x, keys], (x.shape[0], x.shape[1], x.shape[1]))
        (scaled,) = self.node("Mul", [scores, self.constant(1 / np.sqrt(x.shape[2]))], scores.shape)
        (shares,) = self.node("Softmax", [scaled], scores.shape, axis=-1)
        self.node("MatMul", [shares, x], x.shape)

    def normalisation(self) -> None:
        op = self.pick("LayerNormalization", "Softmax", "InstanceNormalization", "BatchNormalization")
        x = self.tensor() if op == "Softmax" else self.tensor(3, 4)
        if op == "Softmax":
            self.node(op, [x], x.shape, axis=self.pick(-1, -1, len(x.shape) - 2))
        elif op == "LayerNormalization":
            self.node(op, [x, self.normal(x.shape[-1]), self.normal(x.shape[-1])], x.shape, axis=-1)
        elif op == "InstanceNormalization":
            self.node(op, [x, self.normal(x.shape[1]), self.normal(x.shape[1])], x.shape)
        else:
            channels = x.shape[1]
            variance = self.constant(self.random.uniform(0.5, 2.0, channels))
            parameters = [self.normal(channels), self.normal(channels), self.normal(channels), variance]
            self.node(op, [x, *parameters], x.shape)

    def movement(self) -> None:
        moves = (self.transpose, self.slice, self.split, self.join, self.pad, self.resize, self.blocks, self.gather)
        self.pick(*moves)()

    def transpose(self) -> None:
        x = self.tensor()
        perm = [0, *(1 + int(axis) for axis in self.random.permutation(len(x.shape) - 1))]
        self.node("Transpose", [x], tuple(x.shape[axis] for axis in perm), perm=perm)

    def slice(self) -> None:
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        size = x.shape[axis]
        start = self.below(0, size)
        stop, step = self.below(start + 1, size + 1), self.pick(1, 1, 2)
        shape = tuple(-(-(stop - start) // step) if index == axis else s for index, s in enumerate(x.shape))
        self.node("Slice", [x, *(self.integers(number) for number in (start, stop, axis, step))], shape)

    def split(self) -> None:
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        size = x.shape[axis]
        if size < 2:
            return
        first = self.below(1, size)
        shapes = [
            tuple(part if index == axis else s for index, s in enumerate(x.shape)) for part in (first, size - first)
        ]
        self.node("Split", [x, self.integers(first, size - first)], *shapes, axis=axis)

    def join(self) -> None:
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        rest = [size for index, size in enumerate(x.shape) if index != axis]
        fits = [
            item for item in self.tensors
            if len(item.shape) == len(x.shape) and [s for i, s in enumerate(item.shape) if i != axis] == rest
        ]  # fmt: skip
        parts = [x, *(self.pick(*fits) for _ in range(self.below(1, 3)))]
        total = sum(part.shape[axis] for part in parts)
        if total * int(np.prod(rest)) <= MOST_ELEMENTS:
            shape = tuple(total if index == axis else size for index, size in enumerate(x.shape))
            self.node("Concat", list(parts), shape, axis=axis)

    def pad(self) -> None:
        x = self.tensor()
        before, after = ([0, *(self.below(0, min(3, size)) for size in x.shape[1:])] for _ in range(2))
        shape = tuple(a + size + b for a, size, b in zip(before, x.shape, after, strict=True))
        if int(np.prod(shape)) <= MOST_ELEMENTS:
            self.node("Pad", [x, self.integers(*before, *after)], shape, mode=self.pick("constant", "edge", "reflect"))

    def resize(self) -> None:
        x = self.tensor(4)
        up, across = self.below(1, 4), self.below(1, 4)
        shape = (*x.shape[:2], x.shape[2] * up, x.shape[3] * across)
        if int(np.prod(shape)) <= MOST_ELEMENTS:
            scales = self.constant(np.array([1, 1, up, across], np.float32))
            how = {"mode": self.pick("nearest", "nearest", "linear"), "coordinate_transformation_mode": "asymmetric"}
            self.node("Resize", [x, "", scales], shape, **how, nearest_mode="floor")

    def blocks(self) -> None:
        x = self.tensor(4)
        _, channels, height, width = x.shape
        if channels % 4 == 0:
            mode = self.pick("DCR", "CRD")
            self.node("DepthToSpace", [x], (1, channels // 4, height * 2, width * 2), blocksize=2, mode=mode)
        elif height % 2 == 0 and width % 2 == 0:
            self.node("SpaceToDepth", [x], (1, channels * 4, height // 2, width // 2), blocksize=2)

    def gather(self) -> None:
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        indices = self.random.integers(0, x.shape[axis], self.below(1, 6))
        shape = tuple(len(indices) if index == axis else size for index, size in enumerate(x.shape))
        self.node("Gather", [x, self.integers(*map(int, indices))], shape, axis=axis)


_STEPS: tuple[tuple[int, Callable[[GraphBuilder], None]], ...] = (
    (4, GraphBuilder.function), (4, GraphBuilder.binary), (1, GraphBuilder.reduction), (5, GraphBuilder.convolution),
    (1, GraphBuilder.transposed), (1, GraphBuilder.pool), (2, GraphBuilder.product), (1, GraphBuilder.attention),
    (1, GraphBuilder.normalisation), (5, GraphBuilder.movement),
)  # fmt: skip


def random_graph(seed: int) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """A float model of three to ten steps and an input for it; what nothing reads is an output."""
    builder = GraphBuilder(seed)
    shares = np.array([share for share, _ in _STEPS], np.float64)
    for _ in range(builder.below(3, 11)):
        _STEPS[int(builder.random.choice(len(_STEPS), p=shares / shares.sum()))][1](builder)
    results = [item for item in builder.tensors if item.name not in builder.read and item not in builder.inputs]
    if builder.chance(0.2):
        shown = [item for item in builder.tensors if item not in builder.inputs and item not in results]
        results += shown[:1]
    if not results:
        return random_graph(seed + 1_000_003)
    used = [item for item in builder.inputs if item.name in builder.read]
    graph = helper.make_graph(
        builder.nodes,
        f"graph{seed}",
        [helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.shape) for item in used],
        [helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.shape) for item in results],
        builder.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    feeds = {item.name: builder.random.standard_normal(item.shape).astype(np.float32) for item in used}
    return model, feeds


def random_machine(seed: int) -> tuple[Arch, str]:
    """A machine with the newest instructions, its scratchpad small enough to tile in, and a schedule."""
    rng = np.random.default_rng(seed)
    pe = PeArray(**{axis: int(rng.choice([1, 2, 3, 8, 16])) for axis in ("ic", "oc", "ow")})
    sram = int(rng.choice([1 << 10, 1 << 12, 1 << 13, 1 << 16, 1 << 20]))
    lanes = None if rng.random() < 0.5 else int(rng.integers(1, 17))
    arch = Arch(isa="v4", pe=pe, sram_bytes=sram, post_lanes=lanes, alignment=int(rng.choice([4, 8, 64])))
    return arch, "seed" if rng.random() < 0.3 else "default"


def run(seed: int) -> Comparison:
    """One graph on one machine, held to ONNX Runtime at every tensor that leaves a region."""
    model, feeds = random_graph(seed)
    package = import_model(model, f"graph{seed}", calibration=[feeds])
    return compare(package, feeds, *random_machine(seed))


def main() -> int:
    """Run many and print what came of them; exit status 1 where one differed or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        try:
            done = run(seed)
        except InputError as error:
            counts["refused"] += 1
            print(f"{seed} refused: {error}", flush=True)
            continue
        except Exception as error:
            counts["failed"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{seed} failed: {type(error).__name__}: {error} ({where.filename}:{where.lineno})", flush=True)
            continue
        if done.mismatches:
            print(f"{seed}: {done.mismatches} mismatches", flush=True)
        counts["different" if done.mismatches else "exact"] += 1
        counts["regions"] += len(done.partition.regions)
        counts["elements checked"] += done.elements
        for placed in done.partition.placement:
            counts[f"nodes on the {placed.on}"] += 1
            if placed.on == "cpu" and "Linear" not in placed.op_type:
                reasons[placed.op_type, _short(placed.reason)] += 1
    for name, count in counts.items():
        print(f"{count:9} {name}")
    for (op_type, reason), count in reasons.most_common(60):
        print(f"{count:9} {op_type}: {reason}")
    return 1 if counts["different"] or counts["failed"] else 0


def _short(reason: str | None) -> str:
    return (reason or "").split("; ")[-1][:110]


if __name__ == "__main__":
    sys.exit(main())
