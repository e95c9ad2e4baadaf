"""Random graphs that grow by nodes, and steps that move elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

OPSET = 23
MOST_ELEMENTS = 4000


@dataclass(frozen=True)
class Tensor:
    """A float tensor of the graph.

    The first dimension is a batch, which no step but views changes.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape))


class GraphDraft:
    """Random choices and a growing graph: every step reads tensors of the graph and adds nodes."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [
            Tensor(f"in{index}", self._shape()) for index in range(int(self.random.integers(1, 3)))
        ]
        self.tensors = list(self.inputs)
        self.numbers: dict[str, NDArray[Any]] = {}
        self.read: set[str] = set()

    def _shape(self) -> tuple[int, ...]:
        batch = self.pick(1, 1, 1, 1, 2, 3)
        rank = self.pick(2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5)
        if rank < 4:
            return (batch, *(int(size) for size in self.random.integers(2, 17, rank - 1)))
        largest = 13 if rank == 4 else 7
        channels = self.below(1, 13 if rank == 4 else 5)
        return (
            batch,
            channels,
            *(int(size) for size in self.random.integers(3, largest, rank - 2)),
        )

    # Choices.
    # ----------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def below(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def tensor(self, *ranks: int) -> Tensor:
        """A tensor of one of the ranks, later ones more often.

        A new view of another one where there is none.
        """
        found = [item for item in self.tensors if not ranks or len(item.shape) in ranks]
        if found:
            weights = np.arange(1, len(found) + 1, dtype=np.float64) ** 2
            return found[int(self.random.choice(len(found), p=weights / weights.sum()))]
        other = self.tensors[-1]
        rank = ranks[0]
        sizes = [1] * (rank - 1) + [other.elements] if rank < 4 else [1, other.elements, 1, 1]
        return self.reshaped(other, tuple(sizes))

    # Nodes.
    # ----------------------------------------------------------------------------------------------

    def constant(self, array: NDArray[Any] | float) -> str:
        values = np.asarray(array)
        name = f"c{len(self.constants)}"
        kept = values if values.dtype.kind == "i" else values.astype(np.float32)
        self.constants.append(numpy_helper.from_array(kept, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        """Normal numbers; now and then the constant of that shape that another node has."""
        known = [
            item.name
            for item in self.constants
            if tuple(item.dims) == shape and item.data_type == 1
        ]
        if known and self.chance(0.1):
            return str(self.pick(*known))
        return self.constant(self.random.standard_normal(shape) * scale)

    def node(
        self, op: str, inputs: list[Tensor | str], *shapes: tuple[int, ...], **attributes: Any
    ) -> list[Tensor]:
        names = [item.name if isinstance(item, Tensor) else item for item in inputs]
        made = [
            Tensor(f"{op.lower()}{len(self.nodes)}_{index}", shape)
            for index, shape in enumerate(shapes)
        ]
        outputs = [item.name for item in made]
        self.nodes.append(
            helper.make_node(op, names, outputs, name=f"{op}_{len(self.nodes)}", **attributes)
        )
        self.read.update(names)
        self.tensors += made
        return made

    def reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.node("Reshape", [x, self.integers(*shape)], shape)[0]

    def axes(self, x: Tensor) -> tuple[int, ...]:
        """One axis or several of a tensor, seldom that of the batch."""
        chosen = tuple(axis for axis in range(1, len(x.shape)) if self.chance(0.4))
        chosen = (0, *chosen) if self.chance(0.05) else chosen
        return chosen or (self.below(1, len(x.shape)),)

    def reduced(self, x: Tensor, axes: tuple[int, ...], keep: bool = True) -> Tensor:
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
        kept = shape if keep else tuple(size for axis, size in enumerate(shape) if axis not in axes)
        common = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum")
        op = self.pick(
            *common, *common, *common, "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"
        )
        return self.node(op, [x, self.integers(*axes)], kept, keepdims=int(keep))[0]


class MovementSteps(GraphDraft):
    """Steps that move elements: views, transpositions, slices, pads, resizes and gathers."""

    def movement(self) -> None:
        moves = (
            self.transpose,
            self.slice,
            self.split,
            self.join,
            self.pad,
            self.resize,
            self.blocks,
            self.gather,
        )
        common = (self.slice, self.split, self.join, self.join, self.view, self.repeat, self.lookup)
        self.pick(*moves, *common, self.rearranged)()

    def transpose(self) -> None:
        x = self.tensor()
        perm = [0, *(1 + int(axis) for axis in self.random.permutation(len(x.shape) - 1))]
        if self.chance(0.1):
            perm = [int(axis) for axis in self.random.permutation(len(x.shape))]
        self.node("Transpose", [x], tuple(x.shape[axis] for axis in perm), perm=perm)

    def view(self) -> None:
        """The same elements under another shape."""
        x = self.tensor()
        kind = self.pick("Flatten", "Unsqueeze", "Squeeze", "Reshape", "Identity", "Dropout")
        if kind == "Flatten":
            axis = self.below(1, len(x.shape))
            self.node(
                kind, [x], (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))), axis=axis
            )
        elif kind == "Unsqueeze" and len(x.shape) < 5:
            axis = self.below(0, len(x.shape) + 1)
            self.node(kind, [x, self.integers(axis)], (*x.shape[:axis], 1, *x.shape[axis:]))
        elif kind == "Squeeze" and 1 in x.shape[1:] and len(x.shape) > 2:
            axis = x.shape.index(1, 1)
            self.node(kind, [x, self.integers(axis)], (*x.shape[:axis], *x.shape[axis + 1 :]))
        elif kind == "Reshape" and len(x.shape) > 2:
            axis = self.below(1, len(x.shape) - 1)
            joined = (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
            self.reshaped(x, self.pick(joined, (x.shape[0], *x.shape[:0:-1])))
        elif kind in ("Identity", "Dropout"):
            self.node(kind, [x], x.shape)

    def repeat(self) -> None:
        x = self.tensor()
        if self.chance(0.5):
            times = [1, *(self.pick(1, 1, 2, 3) for _ in x.shape[1:])]
            shape = tuple(size * again for size, again in zip(x.shape, times, strict=True))
            if int(np.prod(shape)) <= MOST_ELEMENTS:
                self.node("Tile", [x, self.integers(*times)], shape)
        else:
            small = self.reduced(x, self.axes(x))
            self.node("Expand", [small, self.integers(*x.shape)], x.shape)

    def lookup(self) -> None:
        """Rows of a constant table by numbers that are an input."""
        rows = self.below(2, 20)
        width = self.below(1, 13)
        count = self.below(1, 8)
        name = f"rows{len(self.numbers)}"
        self.numbers[name] = self.random.integers(0, rows, (1, count))
        self.node("Gather", [self.normal(rows, width), name], (1, count, width), axis=0)

    def rearranged(self) -> None:
        """Movements by constants that few networks have."""
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        kind = self.pick(
            "Trilu", "GatherElements", "ReverseSequence", "CenterCropPad", "ScatterElements"
        )
        places = self.random.random(x.shape).argsort(axis=axis)
        if kind == "Trilu":
            self.node(kind, [x], x.shape, upper=self.below(0, 2))
        elif kind == "GatherElements":
            self.node(kind, [x, self.constant(places)], x.shape, axis=axis)
        elif kind == "ReverseSequence":
            lengths = self.random.integers(1, x.shape[1] + 1, x.shape[0])
            self.node(
                kind, [x, self.integers(*map(int, lengths))], x.shape, batch_axis=0, time_axis=1
            )
        elif kind == "CenterCropPad":
            shape = tuple(
                self.below(1, 2 * size) if index == axis else size
                for index, size in enumerate(x.shape)
            )
            self.node(kind, [x, self.integers(shape[axis])], shape, axes=[axis])
        else:
            other = self.pick(*(item for item in self.tensors if item.shape == x.shape))
            self.node(kind, [x, self.constant(places), other], x.shape, axis=axis)

    def cut(self, x: Tensor, axis: int, size: int) -> Tensor:
        """The first ``size`` of an axis."""
        shape = tuple(size if index == axis else s for index, s in enumerate(x.shape))
        return self.node(
            "Slice", [x, *(self.integers(number) for number in (0, size, axis, 1))], shape
        )[0]

    def slice(self) -> None:
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        size = x.shape[axis]
        start = self.below(0, size)
        stop = self.below(start + 1, size + 1)
        step = self.pick(1, 1, 2, -1)
        shape = tuple(
            -(-(stop - start) // abs(step)) if index == axis else s
            for index, s in enumerate(x.shape)
        )
        ends = (stop - 1, start - 1 - size) if step < 0 and start == 0 else (stop - 1, start - 1)
        numbers = (*(ends if step < 0 else (start, stop)), axis, step)
        self.node("Slice", [x, *(self.integers(number) for number in numbers)], shape)

    def split(self) -> None:
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        size = x.shape[axis]
        parts = self.pick(2, 2, 3, 4)
        if size < parts:
            return
        cuts = np.sort(self.random.choice(np.arange(1, size), parts - 1, replace=False))
        sizes = [int(part) for part in np.diff([0, *cuts, size])]
        shapes = [
            tuple(part if index == axis else s for index, s in enumerate(x.shape)) for part in sizes
        ]
        self.node("Split", [x, self.integers(*sizes)], *shapes, axis=axis)

    def join(self) -> None:
        """Tensors and now and then a constant, along any axis."""
        x = self.tensor()
        axis = self.below(0 if self.chance(0.1) else 1, len(x.shape))
        rest = [size for index, size in enumerate(x.shape) if index != axis]
        fits = [
            item for item in self.tensors
            if len(item.shape) == len(x.shape)
            and [s for i, s in enumerate(item.shape) if i != axis] == rest
        ]  # fmt: skip
        parts: list[Tensor | str] = [x, *(self.pick(*fits) for _ in range(self.below(1, 3)))]
        total = sum(part.shape[axis] for part in parts if isinstance(part, Tensor))
        if self.chance(0.15):
            parts.append(self.normal(*x.shape))
            total += x.shape[axis]
        if total * int(np.prod(rest)) <= MOST_ELEMENTS:
            shape = tuple(total if index == axis else size for index, size in enumerate(x.shape))
            self.node("Concat", parts, shape, axis=axis)

    def pad(self) -> None:
        x = self.tensor()
        before, after = (
            [0, *(self.below(0, min(3, size)) for size in x.shape[1:])] for _ in range(2)
        )
        shape = tuple(a + size + b for a, size, b in zip(before, x.shape, after, strict=True))
        if int(np.prod(shape)) <= MOST_ELEMENTS:
            mode = self.pick("constant", "constant", "edge", "reflect", "wrap")
            value = (
                [self.constant(float(self.random.normal()))]
                if mode == "constant" and self.chance(0.5)
                else []
            )
            self.node("Pad", [x, self.integers(*before, *after), *value], shape, mode=mode)

    def resize(self) -> None:
        x = self.tensor(4)
        sizes = [self.below(1, 3 * size + 1) for size in x.shape[2:]]
        if self.chance(0.6):
            sizes = [size * self.below(1, 4) for size in x.shape[2:]]
        shape = (*x.shape[:2], *sizes)
        if int(np.prod(shape)) <= MOST_ELEMENTS:
            places = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
            how = {
                "mode": self.pick("nearest", "nearest", "linear", "cubic"),
                "coordinate_transformation_mode": "",
            }
            how["coordinate_transformation_mode"] = self.pick(*places)
            if how["mode"] == "nearest":
                how["nearest_mode"] = self.pick(
                    "floor", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"
                )
            self.node("Resize", [x, "", "", self.integers(*shape)], shape, **how)

    def blocks(self) -> None:
        x = self.tensor(4)
        batch, channels, height, width = x.shape
        size = self.pick(2, 2, 3)
        if channels % size**2 == 0:
            mode = self.pick("DCR", "CRD")
            shape = (batch, channels // size**2, height * size, width * size)
            self.node("DepthToSpace", [x], shape, blocksize=size, mode=mode)
        elif height % size == 0 and width % size == 0:
            self.node(
                "SpaceToDepth",
                [x],
                (batch, channels * size**2, height // size, width // size),
                blocksize=size,
            )

    def gather(self) -> None:
        x = self.tensor()
        axis = self.below(1, len(x.shape))
        if self.chance(0.2):
            shape = tuple(size for index, size in enumerate(x.shape) if index != axis)
            if len(shape) > 1:
                number = self.constant(np.array(self.below(0, x.shape[axis]), np.int64))
                self.node("Gather", [x, number], shape, axis=axis)
            return
        indices = self.random.integers(-x.shape[axis], x.shape[axis], self.below(1, 6))
        shape = tuple(len(indices) if index == axis else size for index, size in enumerate(x.shape))
        self.node("Gather", [x, self.integers(*map(int, indices))], shape, axis=axis)
