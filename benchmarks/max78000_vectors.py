"""Comparison of ``max78000`` with the vendor's simulator on random layers.

``python -m benchmarks.max78000_vectors FOLDER`` draws layers, computes values with
:mod:`experiments.machines.max78000_arithmetic` and cycles with
:mod:`experiments.machines.max78000_passes`, and compares both with the vendor's functions. FOLDER
is a checkout of github.com/analogdevicesinc/ai8x-synthesis; its package ``izer`` needs ``rich``.
The command prints vectors and differences by kind and exits with 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node, Quantization, Value
from experiments.machines.description import LayerWork
from experiments.machines.max78000_arithmetic import (
    Integers,
    add_bias,
    combine,
    compute_nodes,
    convolve,
    pool_average,
    pool_maximum,
    shift_sums,
)
from experiments.machines.max78000_passes import (
    PassWork,
    count_cycles,
    count_kernels,
    count_passes,
    count_processors,
)

Pair = tuple[NDArray[Any], NDArray[Any]]
"""Results of our definition and of the vendor's function."""


def insert_zeros(values: Integers) -> Integers:
    """Return the plane with a zero after each element, for a transposed convolution of stride 2."""
    channels, rows, columns = values.shape
    spread = np.zeros((channels, 2 * rows - 1, 2 * columns - 1), np.int64)
    spread[:, ::2, ::2] = values
    return spread


class VendorSimulator:
    """The vendor's package ``izer``, and layers drawn for it."""

    def __init__(self, folder: str, seed: int) -> None:
        sys.path.insert(0, folder)
        devices = import_module("izer.tornadocnn")
        devices.dev = devices.get_device(85)
        self.layers = import_module("izer.simulate")
        self.latency = import_module("izer.latency")
        self.codes = import_module("izer.op")
        self.kernels = import_module("izer.kernels")
        state = import_module("izer.state")
        state.output_layer = [False]
        state.bypass = [False]
        state.calcx4 = [False]
        state.first_layer_used = 0
        state.block_mode = True
        state.display_progress = False
        self.random = np.random.default_rng(seed)

    def _draw(self, shape: tuple[int, ...], bits: int = 8) -> Integers:
        """Return integers; one in four arrays has only the two extremes."""
        limit = 1 << (bits - 1)
        drawn = self.random.integers(-limit, limit, shape)
        extreme = np.where(drawn < 0, -limit, limit - 1)
        return np.asarray(extreme if self.random.random() < 0.25 else drawn, np.int64)

    def _pick(self, *choices: int) -> int:
        return int(self.random.choice(choices))

    def _shape(self, sides: int, least: int) -> tuple[int, ...]:
        lengths = self.random.integers(least, least + 9, sides)
        return (self._pick(1, 3, 17, 64, 100), *map(int, lengths))

    def _convolve(self, kind: str) -> Pair:
        sides = 1 if kind == "conv1d" else 2
        taps = self._pick(1, 2, 3, 5, 9) if sides == 1 else self._pick(1, 3)
        if kind == "convtranspose2d":
            taps = 3
        padding = self._pick(0, 1, 2)
        dilation = self._pick(1, 2) if kind == "conv1d" else 1
        shape = self._shape(sides, 2 * taps)
        outputs = self._pick(1, 4, 13)
        values = self._draw(shape)
        bits = self._pick(1, 2, 4, 8)
        weights = self._draw((outputs, shape[0], *(taps,) * sides), bits)
        bias = self._draw((outputs,)) if self.random.random() < 0.5 else None
        shift = self._pick(*range(-7, 8))
        activation = self._pick(0, self.codes.ACT_RELU)
        wide = self.random.random() < 0.1
        source = values
        around = [padding] * 2 * sides
        if kind == "convtranspose2d":
            source = insert_zeros(values)
            around = [2 - padding, 2 - padding, 3 - padding, 3 - padding]
        sums = convolve(source, weights, around, [dilation] * sides)
        sums = sums if bias is None else add_bias(sums, bias)
        ours = sums if wide else shift_sums(sums, shift)
        if activation and not wide:
            ours = np.maximum(ours, 0)
        many: Callable[[int], Any] = (lambda one: one) if sides == 1 else (lambda one: [one, one])
        stride = {"fractional_stride": [2, 2], "output_padding": [1, 1]}
        theirs, _ = getattr(self.layers, f"{kind}_layer")(
            0,
            list(shape),
            many(taps),
            shift,
            outputs,
            many(padding),
            many(dilation),
            activation=None if wide or not activation else activation,
            kernel=weights,
            bias=bias,
            data=values,
            output_width=32 if wide else 8,
            **(stride if kind == "convtranspose2d" else {"stride": many(1)}),
        )
        return ours, np.asarray(theirs).reshape(ours.shape)

    def _compute(self, kind: str) -> Pair:
        """Return the results of a convolution of a network, with weights of the bits in its name.

        The vendor's compiler adds ``8 - bits`` to the output shift of the file, from -15 to 15
        together.
        """
        bits = int(kind.split("-", maxsplit=1)[0])
        taps = self._pick(1, 3)
        padding = self._pick(0, 1) if taps > 1 else 0
        shape = self._shape(2, 3)
        outputs = self._pick(1, 4, 13)
        values = self._draw(shape)
        weights = self._draw((outputs, shape[0], taps, taps), bits)
        bias = self._draw((outputs,))
        shift = self._pick(*range(-7, 8)) if self.random.random() < 0.8 else self._pick(-15, 15)
        activation = self._pick(0, self.codes.ACT_RELU)
        theirs, size = self.layers.conv2d_layer(
            0,
            list(shape),
            [taps, taps],
            shift,
            outputs,
            [padding, padding],
            [1, 1],
            [1, 1],
            activation=activation or None,
            kernel=weights,
            bias=bias,
            data=values,
        )
        exponents = {"x": -7, "weights": 1 - bits, "bias": -6 - bits}
        arrays = {"weights": weights.astype(np.int8), "bias": (bias << 7).astype(np.int32)}
        result = (1, outputs, *size[1:])
        named = {"x": (1, *shape), "weights": weights.shape, "bias": bias.shape, "y": result}
        tensors = {
            name: Value(
                name,
                sides,
                str(arrays[name].dtype) if name in arrays else "int8",
                Quantization(
                    np.exp2(np.float32(exponents.get(name, 1 - bits - shift))),
                    np.zeros((), np.int32),
                ),
                arrays.get(name),
            )
            for name, sides in named.items()
        }
        attributes = {"pads": (padding,) * 4, "dilations": (1, 1)}
        node = Node(
            "layer",
            "Conv",
            ("x", "weights", "bias"),
            ("y",),
            attributes | ({"activation": "Relu"} if activation else {}),
            integer=True,
        )
        graph = Graph("layer", ("x",), ("y",), tensors, (node,))
        ours = compute_nodes(graph, graph.nodes, {"x": values[np.newaxis]})["y"][0]
        return ours, np.asarray(theirs).reshape(ours.shape)

    def _count_kernels(self, kind: str) -> Pair:
        """Return the kernels of 9 bytes that a processor stores."""
        bits = self._pick(1, 2, 4, 8)
        taps = self._pick(1, 3)
        side = self._pick(0, 0, 1, 2, 3)
        taps = 1 if side else taps
        channels = self._pick(1, 3, 17, 64, 128, 192)
        outputs = self._pick(1, 4, 13, 64, 100)
        written = count_processors(outputs)
        passes = -(-channels // 64)
        used = channels // passes
        layer = LayerWork(
            "layer",
            ("Flatten", "MatMul") if side else ("Conv",),
            (),
            ((channels, side or 8, side or 8),),
            (outputs,) if side else (outputs, 8, 8),
            (taps, taps),
            padding=(taps // 2,) * 4,
            weight_bits=bits,
        )
        passes *= side**2 or 1
        _, kernels, *_ = self.kernels.load(
            True,
            MagicMock(),
            1,
            [self.codes.CONV2D],
            [self._draw((outputs * passes * used, taps, taps), bits)],
            [[taps, taps]],
            [bits],
            [(1 << used) - 1],
            [(1 << written) - 1],
            [channels],
            [outputs],
            [count_passes(outputs)],
            [written],
            [passes],
            [used],
            [1],
            [side > 1],
        )
        return np.array(count_kernels(layer)), np.array(kernels[0])

    def _pool(self, kind: str) -> Pair:
        sides = self._pick(1, 2)
        window = [self._pick(2, 3, 4) for _ in range(sides)]
        stride = [self._pick(1, 2, 3)] * sides
        values = self._draw(self._shape(sides, 4))
        pool = pool_average if kind == "average" else pool_maximum
        operation = self.codes.CONV1D if sides == 1 else self.codes.CONV2D
        theirs, _ = self.layers.pooling_layer(
            0,
            list(values.shape),
            [*window, 1][:2],
            [*stride, 1][:2],
            kind == "average",
            values[np.newaxis],
            operation=operation,
        )
        return pool(values, window, stride), theirs[0]

    def _combine(self, kind: str) -> Pair:
        values = self._draw((2, *self._shape(2, 1)))
        code = getattr(self.codes, f"ELTWISE_{kind.upper()}")
        theirs, _ = self.layers.eltwise_layer(code, 0, values[0].shape, 0, values, operands=2)
        return combine(kind, values[0], values[1]), theirs

    def _count(self, _: str) -> Pair:
        """Return the cycles of a layer with and without a convolution."""
        alone = self.random.random() < 0.2
        window = [self._pick(1, 2, 3) for _ in range(2)]
        pool_first = window == [1, 1] or self.random.random() < 0.7
        operands = self._pick(1, 2)
        passes = self._pick(1, 2, 3, 16)
        taps = (1, 1) if alone else (self._pick(1, 3), self._pick(1, 3))
        padding = tuple(self._pick(*range(min(one, 3))) for one in taps)
        size = tuple(int(side) for side in self.random.integers(3, 60, 2))
        outputs = self._pick(1, 2, 64, 100)
        result = [
            one - tap + 1 + 2 * pad for one, tap, pad in zip(size, taps, padding, strict=True)
        ]
        slots = self._pick(1, 4) if alone else 0
        flattened = self._pick(0, 1) if not alone else 0
        work = PassWork(
            (size[0], size[1]),
            outputs,
            taps,
            (padding[0], padding[1]),
            window[0] * window[1],
            passes,
            operands,
            pool_first,
            slots,
            flattened,
        )
        theirs, _ = self.latency.calculate(
            input_chan=1,
            input_dim=size,
            pool=window,
            pool_stride=window,
            pooled_dim=size,
            multipass=passes,
            output_chan=outputs,
            output_dim=result,
            kernel_size=taps,
            padding=padding,
            num_elements=operands,
            pool_first=pool_first,
            passthrough=alone,
            pass_out_chan=slots,
            flatten=bool(flattened),
            streaming=False,
            kern_offs=0,
        )
        return np.array(sum(count_cycles(work))), np.array(theirs)

    def compare(self, vectors: int) -> dict[str, Counter[str]]:
        """Return vectors, elements and differing elements of each kind of layer."""
        kinds: dict[str, Callable[[str], Pair]] = {
            **dict.fromkeys(("conv2d", "conv1d", "convtranspose2d"), self._convolve),
            **dict.fromkeys(("average", "maximum"), self._pool),
            **dict.fromkeys(("Add", "Sub", "Or", "Xor"), self._combine),
            **dict.fromkeys([f"{bits}-bit network" for bits in (1, 2, 4, 8)], self._compute),
            "kernels": self._count_kernels,
            "cycles": self._count,
        }
        found = {}
        for kind, draw in kinds.items():
            counts: Counter[str] = Counter()
            for _ in range(vectors):
                ours, theirs = draw(kind)
                counts["elements"] += ours.size
                counts["differences"] += int((ours != theirs).sum())
            found[kind] = counts
        return found


def main() -> int:
    """Print the comparison and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="checkout of the vendor's ai8x-synthesis")
    parser.add_argument("--vectors", type=int, default=200, help="layers of each kind")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = VendorSimulator(given.folder, given.seed).compare(given.vectors)
    for kind, counts in found.items():
        print(
            f"{kind:16}{given.vectors:6} vectors {counts['elements']:9} elements "
            f"{counts['differences']:4} differences"
        )
    return int(any(counts["differences"] for counts in found.values()))


if __name__ == "__main__":
    sys.exit(main())
