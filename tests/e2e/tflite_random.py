"""Random TensorFlow Lite networks of operators in any order, on tensors of any rank.

So views follow other views.

``python -m tests.e2e.tflite_random --seed N --count M`` compares every tensor of each with LiteRT.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np

from byoc.frontend.tflite.file import read_tflite
from byoc.importing import tflite_package
from tests.e2e.harness import Comparison
from tests.e2e.tflite_every import every_tensor
from tests.e2e.tflite_networks import PROBABILITY, Maker
from tests.tflite.builder import Quantisation, Tensor

LARGEST = 2048
"""Elements of a tensor that grows no further."""


class Network:
    """A network that is being drawn: any tensor that there is may be an operand again."""

    def __init__(self, seed: int) -> None:
        self.net = Maker(f"random-{seed}", seed)
        self.random = self.net.random
        shape = (1, *map(int, self.random.integers(2, 9, 2)), int(self.random.integers(1, 6)))
        self.tensors = [self.net.input(shape)]

    def integers(self, *numbers: int) -> Tensor:
        """A constant parameter."""
        return self.net.builder.constant(f"n{self.net.count()}", np.array(numbers, np.int32))

    def scale(self) -> Quantisation:
        """Any quantisation that numbers around 1 fit."""
        return Quantisation(
            float(np.float32(self.random.uniform(0.01, 0.03))), int(self.random.integers(-30, 30))
        )

    def same(self, kind: str, operands: Sequence[Tensor], **options: object) -> Tensor:
        """An operator that keeps scales."""
        x = next(operand for operand in operands if operand.quantisation is not None)
        return self.net.builder.operator(kind, operands, x.quantisation, **options)

    def grow(self) -> None:
        """One more operator on one of the last tensors, if it has any use there."""
        x = self.tensors[-1 - int(self.random.integers(min(3, len(self.tensors))))]
        kinds = [kind for kind in STEPS if kind is not _window or len(x.shape) == 4]
        made = kinds[int(self.random.integers(len(kinds)))](self, x)
        if made is not None:
            self.tensors.append(made)


def _window(net: Network, x: Tensor) -> Tensor | None:
    """A convolution or a pool."""
    stride, kernel = (int(net.random.integers(1, 3)) for _ in range(2))
    match net.random.integers(4):
        case 0:
            return net.net.convolution(x, int(net.random.integers(1, 7)), kernel, stride)
        case 1:
            return net.net.depthwise(x, stride, kernel, int(net.random.integers(1, 3)))
        case 2:
            sizes = {
                "filter_width": kernel,
                "filter_height": kernel,
                "stride_w": stride,
                "stride_h": stride,
            }
            return net.same("MAX_POOL_2D", [x], padding="SAME", **sizes)
        case _:
            sizes = {
                "filter_width": kernel,
                "filter_height": kernel,
                "stride_w": stride,
                "stride_h": stride,
            }
            return net.same("AVERAGE_POOL_2D", [x], padding="SAME", **sizes)


def _reshape(net: Network, x: Tensor) -> Tensor | None:
    """Another shape of the same elements."""
    n = x.shape[0]
    c = x.shape[-1]
    total = int(np.prod(x.shape))
    shapes = [
        (n, total // n),
        (1, total // c, c),
        (1, total // c, 1, c),
        (total // c, c),
        (1, 1, total // c, c),
    ]
    shapes += [(1, c, total // c)] * 2
    shape = shapes[int(net.random.integers(len(shapes)))]
    return net.same("RESHAPE", [x, net.integers(*shape)], new_shape=list(shape))


def _transpose(net: Network, x: Tensor) -> Tensor | None:
    """Any order of axes."""
    return net.same("TRANSPOSE", [x, net.integers(*map(int, net.random.permutation(len(x.shape))))])


def _function(net: Network, x: Tensor) -> Tensor | None:
    """A function of one number."""
    match net.random.integers(4):
        case 0:
            return net.net.builder.operator("LOGISTIC", [x], PROBABILITY)
        case 1:
            return net.net.builder.operator("TANH", [x], Quantisation(1 / 128, 0))
        case 2:
            return net.net.builder.operator("QUANTIZE", [x], net.scale())
        case _:
            return net.net.builder.operator("HARD_SWISH", [x], net.scale())


def _pair(net: Network, x: Tensor) -> Tensor | None:
    """Add a sum or product with a tensor of the same shape, or with a constant.

    The constant has the tensor's shape or one number a channel.
    """
    kind = ("ADD", "SUB", "MUL")[int(net.random.integers(3))]
    others = [other for other in net.tensors if other.shape == x.shape and other is not x]
    if others and net.random.integers(3):
        second = others[int(net.random.integers(len(others)))]
    else:
        data = net.random.integers(
            -128, 128, x.shape[-1:] if net.random.integers(2) else x.shape, np.int8
        )
        second = net.net.builder.constant(f"c{net.net.count()}", data, net.scale())
    return net.net.builder.operator(kind, [x, second], net.scale())


def _concatenation(net: Network, x: Tensor) -> Tensor | None:
    """Beside itself or another tensor of its scale, along any axis."""
    others = [
        other
        for other in net.tensors
        if other.shape == x.shape and other.quantisation == x.quantisation
    ]
    if 2 * np.prod(x.shape) > LARGEST:
        return None
    return net.same("CONCATENATION", [x, others[0]], axis=int(net.random.integers(len(x.shape))))


def _slice(net: Network, x: Tensor) -> Tensor | None:
    """A part, with steps."""
    begins = net.random.integers(0, (np.array(x.shape) + 1) // 2)
    ends = np.array(x.shape) - net.random.integers(
        0, np.maximum((np.array(x.shape) - begins) // 2, 1)
    )
    steps = [int(net.random.integers(1, 3)) for _ in x.shape]
    return net.same(
        "STRIDED_SLICE", [x, net.integers(*begins), net.integers(*ends), net.integers(*steps)]
    )


def _pad(net: Network, x: Tensor) -> Tensor | None:
    """Zeros around it."""
    pads = net.random.integers(0, 2, (len(x.shape), 2)).astype(np.int32)
    if np.prod(np.array(x.shape) + pads.sum(1)) > LARGEST:
        return None
    return net.same("PAD", [x, net.net.builder.constant(f"p{net.net.count()}", pads)])


def _rows(net: Network, x: Tensor) -> Tensor | None:
    """Softmax, mean or maximum of rows, or a product with weights."""
    match net.random.integers(5):
        case 0:
            return net.net.softmax(x)
        case 1:
            axis = int(net.random.integers(len(x.shape)))
            keep = bool(net.random.integers(2)) or len(x.shape) == 1
            return net.net.builder.operator(
                "MEAN", [x, net.integers(axis)], net.scale(), keep_dims=keep
            )
        case 2:
            axis = int(net.random.integers(len(x.shape)))
            return net.same("REDUCE_MAX", [x, net.integers(axis)], keep_dims=True)
        case _:
            if len(x.shape) < 2 or np.prod(x.shape[1:]) > 400:
                return None
            return net.net.dense(x, int(net.random.integers(1, 12)), keep=len(x.shape) == 3)


STEPS: tuple[Callable[[Network, Tensor], Tensor | None], ...] = (
    _window, _window, _window, _reshape, _transpose, _function, _pair, _pair, _concatenation,
    _slice, _pad, _rows,
)  # fmt: skip
"""What a network grows by, the more frequent ones more often."""


def content_of(seed: int, steps: int = 12) -> bytes:
    """A network of up to so many operators.

    The last tensor is its output, and every second of the others.
    """
    network = Network(seed)
    while len(network.tensors) == 1:
        network.grow()
    for _ in range(steps):
        network.grow()
    last = network.tensors[-1]
    others = network.tensors[1:-1]
    chosen = [other for other in others if network.random.integers(2) == 0]
    return network.net.builder.model(last, *chosen)


def compared(seed: int, numerics: str = "fixed") -> Comparison:
    """Every tensor of a network, against LiteRT's kernels for these numerics."""
    name = f"random-{seed}"
    return every_tensor(tflite_package(read_tflite(content_of(seed), name), name), seed, numerics)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw networks and compare them; exit status 1 at any mismatch."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.tflite_random", description=main.__doc__
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--numerics", choices=("fixed", "onnxruntime"), default="fixed")
    given = parser.parse_args(arguments)
    totals = np.zeros(3, np.int64)
    for seed in range(given.seed, given.seed + given.count):
        found = compared(seed, given.numerics)
        totals += found.tensors, found.elements, found.mismatches
        if found.mismatches:
            print(
                f"seed {seed}: {found.mismatches} of {found.elements} elements differ", flush=True
            )
    tensors, elements, mismatches = totals.tolist()
    print(
        f"{given.count} networks: {mismatches} of {elements:,} elements of {tensors:,} tensors "
        "differ"
    )
    return int(mismatches > 0)


if __name__ == "__main__":
    sys.exit(main())
