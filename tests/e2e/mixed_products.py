"""Draw networks of uint8 and int8 products and compare them with integer definitions.

Operands are at the ends of their ranges. The definitions in NumPy share no code with the compiler
and need no runtime.

``python -m tests.e2e.mixed_products --count 2000`` draws many and prints what came of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.importing import import_model
from experiments.running.check import check_values
from isa.arch import Arch
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import simulate

CONTRIB = "com.microsoft"
PAIRS = (
    ("uint8", "int8"),
    ("uint8", "int8"),
    ("uint8", "uint8"),
    ("int8", "int8"),
    ("int8", "uint8"),
)
"""Types of both operands; most often those whose products saturate in pairs without VNNI."""


@dataclass(frozen=True, eq=False)
class Integers:
    """A quantised tensor: its name in the model, its integers, scale and zero point."""

    name: str
    values: NDArray[np.int64]
    dtype: str
    scale: NDArray[np.float32]
    zero: int

    @property
    def centred(self) -> NDArray[np.int64]:
        """The integers less their zero point."""
        return self.values - self.zero


class MixedNetwork:
    """A network of one to three products, its inputs, and the expected integers of every product.

    With ``exact`` scales, powers of two, products that ONNX Runtime computes in float have the same
    integers.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 43])
        self._exact = bool(self._rng.random() < 0.4)
        self._builder = ModelBuilder()
        self.feeds: dict[str, NDArray[Any]] = {}
        self.expected: dict[str, NDArray[np.int64]] = {}
        self.mixed = 0
        images = self._rng.random() < 0.5
        shape = (
            (1, int(self._rng.integers(1, 9)), *self._sizes(3, 8, 2))
            if images
            else self._sizes(1, 97, 2)
        )
        x = self._input("x", shape, str(self._rng.choice(["uint8", "uint8", "int8"])))
        for _ in range(self._rng.integers(1, 4)):
            if min(x.values.shape[2:], default=3) < 3:
                break
            x = self._convolution(x) if images else self._product(x)
            if x.dtype == "int32":
                break
        self._finish(x)

    @property
    def model(self) -> onnx.ModelProto:
        """The model that is drawn."""
        return self._builder.model()

    def _sizes(self, low: int, high: int, count: int) -> tuple[int, ...]:
        return tuple(int(size) for size in self._rng.integers(low, high, count))

    def _scale(self, size: int | None = None, around: float = 0.02) -> NDArray[np.float32]:
        found = np.asarray(around * self._rng.uniform(0.5, 2.0, size))
        return np.asarray(2.0 ** np.round(np.log2(found)) if self._exact else found, np.float32)

    def _zero(self, dtype: str, *, weights: bool = False) -> int:
        limits = np.iinfo(dtype)
        middle = 0 if dtype == "int8" else 128
        choices = (
            [middle, middle, middle + 3]
            if weights
            else [limits.min, middle, int(self._rng.integers(limits.max))]
        )
        return int(self._rng.choice(choices))

    def _drawn(self, shape: tuple[int, ...], dtype: str) -> NDArray[np.int64]:
        """Draw integers, most of them at one end of their range.

        Sums of pairs then exceed 16 bits.
        """
        limits = np.iinfo(dtype)
        ends = self._rng.choice([limits.min, limits.max], shape, p=[0.15, 0.85])
        others = self._rng.integers(limits.min, limits.max + 1, shape)
        return np.asarray(np.where(self._rng.random(shape) < 0.8, ends, others), np.int64)

    def _input(self, name: str, shape: tuple[int, ...], dtype: str) -> Integers:
        """Add an input of integers, or of real numbers that a QuantizeLinear rounds.

        The QuantizeLinear has two or three inputs.
        """
        values = self._drawn(shape, dtype)
        scale = self._scale()
        zero = self._zero(dtype)
        if self._rng.random() < 0.4:
            self.feeds[name] = values.astype(dtype)
            return Integers(self._builder.input(name, shape, dtype), values, dtype, scale, zero)
        real = self._builder.input(name, shape)
        constant = self._builder.constant(scale, "float32")
        operands = [real, constant]
        if dtype == "uint8" and self._rng.random() < 0.5:
            zero = 0
        else:
            operands.append(self._builder.constant(zero, dtype))
        self.feeds[name] = ((values - zero) * scale).astype(np.float32)
        return Integers(self._builder.node("QuantizeLinear", *operands), values, dtype, scale, zero)

    def _other_type(self, x: Integers, *, any_pair: bool) -> str:
        pairs = [
            other
            for one, other in PAIRS
            if one == x.dtype and (any_pair or (one, other) != ("int8", "uint8"))
        ]
        found = str(self._rng.choice(pairs))
        self.mixed += found != x.dtype
        return found

    def _weights(
        self, x: Integers, shape: tuple[int, ...], filters: int, *, any_pair: bool
    ) -> Integers:
        """Constant weights, with a scale for the tensor or for each of its filters."""
        dtype = self._other_type(x, any_pair=any_pair)
        values = self._drawn(shape, dtype)
        scale = self._scale(filters if self._rng.random() < 0.5 else None, 0.01)
        name = self._builder.constant(values, dtype)
        return Integers(name, values, dtype, scale, self._zero(dtype, weights=True))

    def _pair(self, tensor: Integers) -> tuple[str, str]:
        """The names of a scale and a zero point."""
        zeros = np.full(tensor.scale.shape, tensor.zero)
        return self._builder.constant(tensor.scale, "float32"), self._builder.constant(
            zeros, tensor.dtype
        )

    def _dequantized(self, tensor: Integers, axis: int = 0) -> str:
        """A dequantised tensor; where its zero point is 0 it may be left away."""
        scale, zero = self._pair(tensor)
        operands = (scale,) if tensor.zero == 0 and self._rng.random() < 0.5 else (scale, zero)
        options = {"axis": axis} if tensor.scale.ndim else {}
        return self._builder.node("DequantizeLinear", tensor.name, *operands, **options)

    def _result(
        self, x: Integers, w: Integers, sums: NDArray[np.int64], columns: tuple[int, ...]
    ) -> Integers:
        """The requantised sums, by the rule of ONNX Runtime's integer operators.

        Its name is not known yet.
        """
        scale = np.float32(x.scale) * w.scale
        spread = float(np.abs(sums * scale.astype(np.float64).reshape(columns or ())).max()) / 128
        y_scale = self._scale(around=max(spread, 1e-4))
        zero = self._zero(x.dtype)
        factor = (scale / y_scale).astype(np.float32).reshape(columns or ())
        limits = np.iinfo(x.dtype)
        real = np.rint(sums.astype(np.float32) * factor).astype(np.int64) + zero
        return Integers("", np.clip(real, limits.min, limits.max), x.dtype, y_scale, zero)

    def _named(self, result: Integers, name: str) -> Integers:
        self.expected[name] = result.values
        return Integers(name, result.values, result.dtype, result.scale, result.zero)

    def _integer_operator(
        self,
        op_type: str,
        x: Integers,
        w: Integers,
        result: Integers,
        bias: str = "",
        **options: Any,
    ) -> Integers:
        operands = [x.name, *self._pair(x), w.name, *self._pair(w)]
        scales = self._pair(result)
        if op_type == "QGemm":
            name = self._builder.node(op_type, *operands, bias, *scales, domain=CONTRIB, **options)
        else:
            name = self._builder.node(
                op_type, *operands, *scales, *([bias] if bias else []), **options
            )
        return self._named(result, name)

    def _quantized(self, result: Integers, name: str) -> Integers:
        return self._named(result, self._builder.node("QuantizeLinear", name, *self._pair(result)))

    def _sums(
        self, op_type: str, x: Integers, w: Integers, sums: NDArray[np.int64], **options: Any
    ) -> Integers:
        """An operator that gives its int32 sums, the last of a network."""
        zeros = (self._builder.constant(tensor.zero, tensor.dtype) for tensor in (x, w))
        name = self._builder.node(op_type, x.name, w.name, *zeros, **options)
        return self._named(Integers("", sums, "int32", np.float32(1), 0), name)

    def _product(self, x: Integers) -> Integers:
        kind = str(
            self._rng.choice(["QLinearMatMul", "MatMul", "Gemm", "QGemm", "MatMulInteger", "two"])
        )
        depth = x.values.shape[1]
        columns = int(self._rng.integers(1, 20))
        float_form = kind in ("MatMul", "Gemm")
        any_pair = kind == "MatMulInteger" or (float_form and self._exact)
        if kind == "two":
            w = self._input(
                f"b{len(self.feeds)}", (depth, columns), self._other_type(x, any_pair=False)
            )
            kind = str(self._rng.choice(["QLinearMatMul", "MatMul"]))
        else:
            w = self._weights(x, (depth, columns), columns, any_pair=any_pair)
        sums = x.centred @ w.centred
        if kind == "MatMulInteger":
            return self._sums(kind, x, w, sums)
        bias = (
            self._bias(x, w, columns)
            if kind in ("Gemm", "QGemm") and self._rng.random() < 0.5
            else None
        )
        sums = sums if bias is None else sums + bias.values
        result = self._result(x, w, sums, w.scale.shape)
        if kind == "MatMul":
            return self._quantized(
                result, self._builder.node(kind, self._dequantized(x), self._dequantized(w, 1))
            )
        if kind == "QLinearMatMul":
            return self._integer_operator(kind, x, w, result)
        if kind == "QGemm":
            return self._integer_operator(kind, x, w, result, "" if bias is None else bias.name)
        operands = [
            self._dequantized(x),
            self._dequantized(w, 1),
            *([] if bias is None else [self._dequantized(bias)]),
        ]
        return self._quantized(result, self._builder.node(kind, *operands))

    def _bias(self, x: Integers, w: Integers, count: int) -> Integers:
        values = self._rng.integers(-3000, 3001, count)
        scale = np.asarray(np.float32(x.scale) * w.scale, np.float32)
        return Integers(self._builder.constant(values, "int32"), values, "int32", scale, 0)

    def _convolution(self, x: Integers) -> Integers:
        kind = str(self._rng.choice(["QLinearConv", "QLinearConv", "Conv", "Conv", "ConvInteger"]))
        channels = x.values.shape[1]
        groups = int(self._rng.choice([1, 1, channels])) if kind != "ConvInteger" else 1
        filters = groups * int(self._rng.integers(1, 8 // groups + 2))
        pad = int(self._rng.integers(2))
        any_pair = kind == "ConvInteger" or (kind == "Conv" and self._exact)
        w = self._weights(x, (filters, channels // groups, 3, 3), filters, any_pair=any_pair)
        options = {"group": groups, "pads": [pad] * 4, "kernel_shape": [3, 3]}
        sums = _convolved(
            np.pad(x.centred, ((0, 0), (0, 0), (pad, pad), (pad, pad))), w.centred, groups
        )
        if kind == "ConvInteger":
            return self._sums(kind, x, w, sums, **options)
        bias = self._bias(x, w, filters) if self._rng.random() < 0.5 else None
        sums = sums if bias is None else sums + bias.values.reshape(1, -1, 1, 1)
        result = self._result(x, w, sums, (1, -1, 1, 1) if w.scale.ndim else ())
        if kind == "QLinearConv":
            return self._integer_operator(
                kind, x, w, result, "" if bias is None else bias.name, **options
            )
        operands = [
            self._dequantized(x),
            self._dequantized(w),
            *([] if bias is None else [self._dequantized(bias)]),
        ]
        return self._quantized(result, self._builder.node(kind, *operands, **options))

    def _finish(self, x: Integers) -> None:
        if x.dtype != "int32" and self._rng.random() < 0.3:
            self._builder.output(self._dequantized(x))
        else:
            self._builder.output(x.name, x.dtype)


def _convolved(x: NDArray[np.int64], w: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Sums of a 3 × 3 convolution of a padded image."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    parts = zip(np.split(windows, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate(
        [np.einsum("nchwij,fcij->nfhw", part, filters) for part, filters in parts], 1
    )


def wrong_values(seed: int) -> list[str]:
    """Return the errors of a drawn network that runs.

    They are wrong values, and right values that the checks report as wrong.
    """
    network = MixedNetwork(seed)
    package = import_model(network.model, "mixed")
    arch = Arch(isa="v4") if seed % 2 else Arch()
    found = simulate(package, network.feeds, arch)
    values = found.run.values
    wrong = []
    for name, expected in network.expected.items():
        if name in values and not np.array_equal(
            package.graph.values[name].restore(values[name]), expected
        ):
            wrong.append(f"{name} has other values than its definition")
    check = check_values(found.network, network.feeds, found.run)
    if check.mismatches or (check.outputs is not None and check.outputs.differences):
        wrong.append("a right value is reported as a mismatch")
    file = None if package.fidelity is None else package.fidelity.file
    if file is not None and file.beyond and not file.ties:
        wrong.append(f"{file.beyond} values are reported as off the file")
    return wrong


def main() -> int:
    """Run many and print what came of them.

    Exit status 1 where a value was wrong or an alarm false.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        try:
            wrong = wrong_values(seed)
        except InputError as error:
            counts["refused"] += 1
            print(f"{seed} refused: {error}", flush=True)
            continue
        counts["mixed products"] += MixedNetwork(seed).mixed
        counts["wrong" if wrong else "right"] += 1
        for text in wrong:
            print(f"{seed}: {text}", flush=True)
    print(dict(counts))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
