"""Random graphs: steps that compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from tests.e2e.graph_steps import MOST_ELEMENTS, MovementSteps, Tensor


class GraphBuilder(MovementSteps):
    """Grow a graph from a seed by steps that compute or move."""

    # Steps.
    # ----------------------------------------------------------------------------------------------

    def function(self) -> None:
        """Add an element-wise function of one tensor and constants."""
        x = self.tensor()
        kinds = (
            self.plain,
            self.plain,
            self.plain,
            self.gated,
            self.hard_swish,
            self.gelu,
            self.scalar,
        )
        self.pick(
            *kinds,
            self.channel,
            self.channel,
            self.positive,
            self.clipped,
            self.chosen,
            self.compared,
        )(x)

    def plain(self, x: Tensor) -> None:
        common = (
            "Relu",
            "LeakyRelu",
            "Sigmoid",
            "Tanh",
            "HardSigmoid",
            "HardSwish",
            "Elu",
            "Softplus",
            "Abs",
            "Neg",
        )
        others = (
            "Gelu",
            "Mish",
            "Selu",
            "Erf",
            "Celu",
            "Ceil",
            "Floor",
            "Round",
            "Sign",
            "Sin",
            "Cos",
            "Exp",
        )
        kind = self.pick(
            *common,
            *common,
            *others,
            "Softsign",
            "ThresholdedRelu",
            "QuickGelu",
            "FastGelu",
            "Identity",
        )
        domain = {"domain": "com.microsoft"} if kind in ("QuickGelu", "FastGelu") else {}
        self.node(kind, [x], x.shape, **domain)

    def gated(self, x: Tensor) -> None:
        (gate,) = self.node(self.pick("Sigmoid", "Sigmoid", "HardSigmoid", "Tanh"), [x], x.shape)
        self.node("Mul", self.pick([x, gate], [gate, x]), x.shape)

    def hard_swish(self, x: Tensor) -> None:
        (moved,) = self.node("Add", [x, self.constant(3.0)], x.shape)
        (cut,) = self.node("Clip", [moved, self.constant(0.0), self.constant(6.0)], x.shape)
        (product,) = self.node("Mul", [x, cut], x.shape)
        self.node("Div", [product, self.constant(6.0)], x.shape)

    def gelu(self, x: Tensor) -> None:
        (scaled,) = self.node("Div", [x, self.constant(np.sqrt(2.0))], x.shape)
        (erf,) = self.node("Erf", [scaled], x.shape)
        (moved,) = self.node("Add", [erf, self.constant(1.0)], x.shape)
        (product,) = self.node("Mul", [x, moved], x.shape)
        self.node("Mul", [product, self.constant(0.5)], x.shape)

    def scalar(self, x: Tensor) -> None:
        op = self.pick("Add", "Sub", "Mul", "Div", "Min", "Max", "Pow")
        number = self.constant(
            float(self.pick(2, 3)) if op == "Pow" else float(self.random.normal() + 2.0)
        )
        self.node(
            op,
            [x, number] if op in ("Div", "Pow") else self.pick([x, number], [number, x]),
            x.shape,
        )

    def channel(self, x: Tensor) -> None:
        """One number a channel, or an element of the last axis."""
        op = self.pick("Add", "Mul", "Sub", "Div", "PRelu", "Min", "Max")
        sizes = (x.shape[-1],) if self.chance(0.3) else (x.shape[1], *(1 for _ in x.shape[2:]))
        numbers = self.normal(*sizes)
        if op == "Div":
            array = numpy_helper.to_array(
                next(item for item in self.constants if item.name == numbers)
            )
            numbers = self.constant(np.where(array < 0, array - 0.5, array + 0.5))
        first = op in ("Div", "PRelu") or self.chance(0.7)
        self.node(op, [x, numbers] if first else [numbers, x], x.shape)

    def positive(self, x: Tensor) -> None:
        """Add a function that is defined for positive numbers."""
        (size,) = self.node("Abs", [x], x.shape)
        (moved,) = self.node("Add", [size, self.constant(self.pick(0.1, 1.0))], x.shape)
        op = self.pick("Log", "Sqrt", "Reciprocal", "Pow")
        self.node(op, [moved, self.constant(0.5)] if op == "Pow" else [moved], x.shape)

    def clipped(self, x: Tensor) -> None:
        low = float(self.random.normal() - 1.0)
        self.node(
            "Clip", [x, self.constant(low), self.constant(low + self.pick(0.5, 1.0, 6.0))], x.shape
        )

    def chosen(self, x: Tensor) -> None:
        op = self.pick("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
        (condition,) = self.node(op, [x, self.constant(float(self.random.normal() * 0.5))], x.shape)
        self.tensors.pop()  # of booleans
        if self.chance(0.3):
            self.node("Cast", [condition], x.shape, to=TensorProto.FLOAT)
        else:
            number = self.constant(float(self.random.normal()))
            self.node("Where", [condition, *self.pick([x, number], [number, x])], x.shape)

    def compared(self, x: Tensor) -> None:
        """Add a choice by flags of two tensors, or the flags themselves as numbers."""
        other = self.pick(*(item for item in self.tensors if item.shape == x.shape))
        kinds = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
        flags = [self.node(self.pick(*kinds), [x, other], x.shape)[0]]
        flags += self.node("Less", [other, self.constant(float(self.random.normal()))], x.shape)
        flags += self.node(self.pick("And", "Or", "Xor"), list(flags), x.shape)
        flags += self.node("Not", flags[2:], x.shape) if self.chance(0.3) else []
        del self.tensors[-len(flags) :]
        if self.chance(0.3):
            self.node("Cast", flags[-1:], x.shape, to=TensorProto.FLOAT)
        else:
            self.node("Where", [flags[-1], *self.pick([x, other], [other, x])], x.shape)

    def binary(self) -> None:
        """Two tensors or more, alike or one repeated along some axes, or both."""
        a = self.tensor()
        same = [item for item in self.tensors if item.shape == a.shape]
        op = self.pick("Add", "Mul", "Sub", "Min", "Max", "Mul", "Add", "Div", "Sum")
        b = self.pick(*same)
        if op in ("Min", "Max", "Sum") and self.chance(0.4):
            self.node(op, [a, b, self.pick(*same)], a.shape)
            return
        how = self.pick("alike", "alike", "squeezed", "repeated", "repeated", "both", "constant")
        if how == "squeezed" and len(a.shape) == 4:
            (b,) = self.node("GlobalAveragePool", [b], (*a.shape[:2], 1, 1))
        elif how in ("repeated", "both"):
            b = self.reduced(b, self.axes(a))
            if how == "both":
                a = self.reduced(a, self.axes(a))
        if how == "constant":
            sizes = [
                size if self.chance(0.6) else 1 for size in a.shape[self.below(0, len(a.shape)) :]
            ]
            self.node(op, [a, self.normal(*sizes)], a.shape)
            return
        if op == "Div":
            (b,) = self.node("Sigmoid", [b], b.shape)
        shape = tuple(map(max, a.shape, b.shape))
        self.node(op, [a, b] if op == "Div" else self.pick([a, b], [b, a]), shape)

    def reduction(self) -> None:
        x = self.tensor()
        if self.chance(0.1):
            axis = self.below(1, len(x.shape))
            shape = tuple(1 if index == axis else size for index, size in enumerate(x.shape))
            places = self.node(self.pick("ArgMax", "ArgMin"), [x], shape, axis=axis)
            self.tensors.pop()  # of integers
            self.node("Cast", list(places), shape, to=TensorProto.FLOAT)
            return
        axes = self.axes(x)
        self.reduced(x, axes, keep=self.chance(0.6) or 0 in axes or len(x.shape) - len(axes) < 2)

    def window(self, x: Tensor, dilated: bool = True) -> tuple[dict[str, Any], tuple[int, ...]]:
        sizes = x.shape[2:]
        kernel = [self.below(1, min(4, size + 1)) for size in sizes]
        strides = [self.below(1, 4) for _ in sizes]
        pads = [self.below(0, size) for size in (*kernel, *kernel)]
        dilations = [
            1 if not dilated or self.chance(0.8) or 2 * k > s else 2
            for k, s in zip(kernel, sizes, strict=True)
        ]
        plane = tuple(
            (size + pads[axis] + pads[axis + len(sizes)] - (kernel[axis] - 1) * dilations[axis] - 1)
            // strides[axis]
            + 1
            for axis, size in enumerate(sizes)
        )
        found = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        return {**found, **({"dilations": dilations} if dilated else {})}, plane

    def convolution(self, x: Tensor | None = None) -> None:
        x = x or self.tensor(4, 4, 4, 3, 5)
        batch, channels = x.shape[:2]
        group = self.pick(1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0))
        outputs = group * self.below(1, 5)
        window, plane = self.window(x)
        kernel = window["kernel_shape"]
        scale = 1 / np.sqrt(np.prod(kernel) * channels / group)
        inputs: list[Tensor | str] = [
            x,
            self.normal(outputs, channels // group, *kernel, scale=scale),
        ]
        inputs += [self.normal(outputs)] if self.chance(0.7) else []
        (made,) = self.node("Conv", inputs, (batch, outputs, *plane), group=group, **window)
        if self.chance(0.3):
            self.gated(made)
        elif self.chance(0.3):
            self.pick(self.plain, self.clipped, self.channel)(made)

    def transposed(self) -> None:
        x = self.tensor(4, 4, 3)
        batch, channels, *sizes = x.shape
        group = self.pick(1, 1, *(g for g in (2, 3, channels) if channels % g == 0))
        outputs = self.below(1, 5)
        strides = [self.below(1, 4) for _ in sizes]
        kernel = [self.below(1, stride + 2) for stride in strides]
        pads = [self.below(0, (size + 1) // 2) for size in (*kernel, *kernel)]
        more = [self.below(0, stride) if self.chance(0.3) else 0 for stride in strides]
        plane = tuple(
            (size - 1) * strides[axis]
            + kernel[axis]
            + more[axis]
            - pads[axis]
            - pads[axis + len(sizes)]
            for axis, size in enumerate(sizes)
        )
        if min(plane) < 1 or batch * group * outputs * int(np.prod(plane)) > MOST_ELEMENTS:
            return
        inputs: list[Tensor | str] = [
            x,
            self.normal(channels, outputs, *kernel, scale=1 / np.sqrt(channels)),
        ]
        inputs += [self.normal(group * outputs)] if self.chance(0.5) else []
        how = {"strides": strides, "pads": pads, "output_padding": more, "group": group}
        self.node("ConvTranspose", inputs, (batch, group * outputs, *plane), **how)

    def pool(self) -> None:
        x = self.tensor(4, 4, 4, 3, 5)
        common = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
        op = self.pick(*common, *common, "LpPool", *(("LRN",) if len(x.shape) == 4 else ()))
        if op == "LRN":
            self.node(op, [x], x.shape, size=self.pick(1, 3, 5))
            return
        if op.startswith("Global"):
            self.node(op, [x], (*x.shape[:2], *(1 for _ in x.shape[2:])))
            return
        window, plane = self.window(x, dilated=op == "MaxPool" and self.chance(0.3))
        if op == "AveragePool" and self.chance(0.5):
            window["count_include_pad"] = 1
        self.node(op, [x], (*x.shape[:2], *plane), **window)

    def product(self) -> None:
        """A constant matrix on either side, one a batch, as Gemm in all of its forms."""
        x = self.tensor(3, 3, 2, 4)
        columns = self.below(1, 13)
        depth = x.shape[-1]
        kind = self.pick("plain", "plain", "left", "stacked", "gemm", "gemm", "einsum")
        if kind == "gemm":
            self.gemm(x, columns)
        elif kind == "einsum" and len(x.shape) == 3:
            weights = self.normal(depth, columns, scale=1 / np.sqrt(depth))
            self.node("Einsum", [x, weights], (*x.shape[:-1], columns), equation="bik,kj->bij")
        elif kind == "left":
            rows = x.shape[-2]
            weights = self.normal(columns, rows, scale=1 / np.sqrt(rows))
            self.node("MatMul", [weights, x], (*x.shape[:-2], columns, depth))
        else:
            ones = (1,) * self.below(0, len(x.shape) - 1) if kind == "stacked" else ()
            weights = self.normal(*ones, depth, columns, scale=1 / np.sqrt(depth))
            (made,) = self.node("MatMul", [x, weights], (*x.shape[:-1], columns))
            if self.chance(0.6):
                self.node("Add", [made, self.normal(columns)], made.shape)

    def gemm(self, x: Tensor, columns: int) -> None:
        x = x if len(x.shape) == 2 else self.reshaped(x, (x.elements // x.shape[-1], x.shape[-1]))
        turned = self.chance(0.3)
        rows, depth = x.shape[::-1] if turned else x.shape
        transposed = self.chance(0.5)
        weights = self.normal(
            *((columns, depth) if transposed else (depth, columns)), scale=1 / np.sqrt(depth)
        )
        inputs: list[Tensor | str] = [x, weights]
        inputs += (
            [self.normal(*self.pick((columns,), (1, columns), (rows, columns), (1,)))]
            if self.chance(0.7)
            else []
        )
        how: dict[str, Any] = {"transA": int(turned), "transB": int(transposed)}
        how |= {"alpha": 0.5} if self.chance(0.2) else {}
        how |= {"beta": 2.0} if self.chance(0.2) else {}
        self.node("Gemm", inputs, (rows, columns), **how)

    def attention(self) -> None:
        """One head written out, the operator of several heads, or products of two tensors alone."""
        x = self.tensor(3)
        batch, count, width = x.shape
        kind = self.pick("written", "written", "operator", "product", "product")
        if kind == "operator":
            heads = self.pick(*(number for number in (1, 2, 3, 4) if width % number == 0))
            self.node("Attention", [x, x, x], x.shape, q_num_heads=heads, kv_num_heads=heads)
            return
        (keys,) = self.node("Transpose", [x], (batch, width, count), perm=[0, 2, 1])
        (scores,) = self.node("MatMul", [x, keys], (batch, count, count))
        if kind == "product":
            return
        (scaled,) = self.node("Mul", [scores, self.constant(1 / np.sqrt(width))], scores.shape)
        (shares,) = self.node("Softmax", [scaled], scores.shape, axis=-1)
        self.node("MatMul", [shares, x], x.shape)

    def recurrent(self) -> None:
        """Few steps of a small recurrent layer; its states are results, too."""
        x = self.tensor(3)
        x = self.cut(x, 0, 3) if x.shape[0] > 3 else x
        steps, batch, width = x.shape
        op = self.pick("LSTM", "GRU", "RNN")
        both = self.pick(1, 1, 2)
        hidden = self.below(1, 5)
        if batch > 6 or width > 8:
            return
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * hidden
        weights = [self.normal(both, gates, size, scale=0.5) for size in (width, hidden)]
        inputs: list[Tensor | str] = [x, *weights]
        inputs += [self.normal(both, 2 * gates, scale=0.2)] if self.chance(0.7) else []
        shapes = [(steps, both, batch, hidden), (both, batch, hidden), (both, batch, hidden)]
        how: dict[str, Any] = {
            "hidden_size": hidden,
            "direction": "bidirectional" if both == 2 else "forward",
        }
        how |= {"linear_before_reset": 1} if op == "GRU" and self.chance(0.5) else {}
        self.node(op, inputs, *shapes[: 3 if op == "LSTM" else 2], **how)

    def normalisation(self) -> None:
        self.pick(
            self.shares,
            self.shares,
            self.layer_norm,
            self.layer_norm,
            self.channel_norm,
            self.batch_norm,
        )()

    def shares(self) -> None:
        x = self.tensor()
        self.node(
            self.pick("Softmax", "Softmax", "LogSoftmax"),
            [x],
            x.shape,
            axis=self.below(-1, len(x.shape)),
        )

    def layer_norm(self) -> None:
        x = self.tensor(3, 4)
        op = self.pick("LayerNormalization", "LayerNormalization", "RMSNormalization")
        axis = -1
        if self.chance(0.2):
            axis = -2
        inputs: list[Tensor | str] = [x, self.normal(*x.shape[axis:])]
        inputs += (
            [self.normal(*x.shape[axis:])]
            if op == "LayerNormalization" and self.chance(0.7)
            else []
        )
        self.node(op, inputs, x.shape, axis=axis)

    def channel_norm(self) -> None:
        x = self.tensor(3, 4)
        channels = x.shape[1]
        inputs = [x, self.normal(channels), self.normal(channels)]
        if self.chance(0.5):
            self.node("InstanceNormalization", inputs, x.shape)
        else:
            groups = self.pick(
                *(number for number in (1, 2, 3, channels) if channels % number == 0)
            )
            self.node("GroupNormalization", inputs, x.shape, num_groups=groups)

    def batch_norm(self) -> None:
        x = self.tensor(3, 4)
        channels = x.shape[1]
        variance = self.constant(self.random.uniform(0.5, 2.0, channels))
        self.node(
            "BatchNormalization", [x, *(self.normal(channels) for _ in range(3)), variance], x.shape
        )
