"""Random small float networks with all kinds of convolution, activations, pools and residuals.

They also have concatenations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper


class NetworkBuilder:
    """Grows a network node by node from a seed; every choice comes from the one generator."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape = (
            int(self.random.integers(1, 13)),
            int(self.random.integers(4, 15)),
            int(self.random.integers(4, 15)),
        )
        self.name = "input"

    def constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(
        self, op: str, inputs: list[str], shape: tuple[int, int, int], **attributes: Any
    ) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        self.shape = shape
        return name

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def window(self) -> dict[str, Any]:
        """Kernel, strides, pads (and dilations) that fit the current plane."""
        kernel = [int(self.random.integers(1, min(4, size + 1))) for size in self.shape[1:]]
        strides = [int(self.random.integers(1, 3)) for _ in kernel]
        pads = [int(self.random.integers(0, size)) for size in (*kernel, *kernel)]
        return {"kernel_shape": kernel, "strides": strides, "pads": pads}

    def plane(self, window: dict[str, Any]) -> tuple[int, int]:
        """Rows and columns that a window makes of the current plane."""
        top, left, bottom, right = window["pads"]
        sizes = zip(
            self.shape[1:],
            (top + bottom, left + right),
            window["kernel_shape"],
            window["strides"],
            strict=True,
        )
        height, width = ((size + pad - kernel) // stride + 1 for size, pad, kernel, stride in sizes)
        return height, width

    def convolution(self, x: str) -> str:
        channels = self.shape[0]
        group = self.pick(1, 1, channels, *(g for g in (2, 3, 4, 6) if channels % g == 0))
        outputs = group * int(self.random.integers(1, 5))
        window = self.window()
        scale = 1 / np.sqrt(np.prod(window["kernel_shape"]) * channels / group)
        kernel = (
            self.random.standard_normal((outputs, channels // group, *window["kernel_shape"]))
            * scale
        )
        inputs = [x, self.constant(kernel.astype(np.float32))]
        if self.random.random() < 0.7:
            inputs.append(self.constant(self.random.standard_normal(outputs).astype(np.float32)))
        return self.node("Conv", inputs, (outputs, *self.plane(window)), group=group, **window)

    def activation(self, x: str) -> str:
        op = self.pick("Relu", "LeakyRelu", "Clip", "Abs")
        if op == "Clip":
            limits = [
                self.constant(np.array(limit, np.float32))
                for limit in (0.0, float(self.pick(1.0, 6.0)))
            ]
            return self.node(op, [x, *limits], self.shape)
        return self.node(op, [x], self.shape, **({"alpha": 0.1} if op == "LeakyRelu" else {}))

    def pool(self, x: str) -> str:
        op = self.pick("MaxPool", "AveragePool")
        window = self.window()
        return self.node(op, [x], (self.shape[0], *self.plane(window)), **window)

    def residual(self, x: str) -> str:
        shape = self.shape
        kernel = self.random.standard_normal((shape[0], shape[0], 1, 1)) / np.sqrt(shape[0])
        branch = self.node("Conv", [x, self.constant(kernel.astype(np.float32))], shape)
        return self.node(self.pick("Add", "Sum", "Max", "Min"), [x, branch], shape)

    def concatenation(self, x: str) -> str:
        shape = self.shape
        branch = self.activation(x)
        return self.node("Concat", [x, branch], (2 * shape[0], *shape[1:]), axis=1)

    def classifier(self, x: str) -> str:
        if self.random.random() < 0.5:
            x = self.node("GlobalAveragePool", [x], (self.shape[0], 1, 1))
        x = self.node("Flatten", [x], self.shape)
        depth = int(np.prod(self.shape))
        classes = int(self.random.integers(2, 12))
        weights = (self.random.standard_normal((classes, depth)) / np.sqrt(depth)).astype(
            np.float32
        )
        bias = self.constant(self.random.standard_normal(classes).astype(np.float32))
        return self.node("Gemm", [x, self.constant(weights), bias], self.shape, transB=1)


def random_network(seed: int) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """A float network of three to eight operators and an input for it.

    Every second tensor is an output, too.
    """
    builder = NetworkBuilder(seed)
    shape = (1, *builder.shape)
    x = builder.name
    steps = [
        builder.convolution,
        builder.activation,
        builder.pool,
        builder.residual,
        builder.concatenation,
    ]
    for _ in range(int(builder.random.integers(2, 7))):
        x = builder.pick(builder.convolution, *steps)(x)
    inner = [name for node in builder.nodes for name in node.output]
    x = builder.classifier(x)
    shown = np.random.default_rng([seed, 2])
    outputs = [x, *(name for name in inner if shown.random() < 0.5)]
    graph = helper.make_graph(
        builder.nodes,
        f"random{seed}",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        builder.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"input": builder.random.standard_normal(shape).astype(np.float32)}
