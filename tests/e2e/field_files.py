"""Small models in the forms in which public reports show them, each drawn from a seed.

``python -m tests.e2e.field_files --count N`` runs N of every kind and prints how many ran in one
region, exactly.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx

import experiments
from tests.byoc.small_models import ModelBuilder
from tests.e2e.saved_networks import saved_network

Draw = Callable[[np.random.Generator], onnx.ModelProto]


def unread_split(random: np.random.Generator) -> onnx.ModelProto:
    """Return a quantised Split with one unread output, like those in fake-quantised graphs."""
    parts = int(random.integers(2, 5))
    unread = int(random.integers(parts))
    axis = int(random.integers(1, 4))
    shape = [1, 4, 5, 6]
    shape[axis] = sum(sizes := [int(size) for size in random.integers(1, 4, parts)])
    b = ModelBuilder()
    source = b.dequantize(b.quantize(b.input("x", shape), 0.05, 3), 0.05, 3)
    x = b.quantize(b.node("Sigmoid", source), 0.05, 3)
    given = b.constant(sizes, "int64")
    names = [f"part{number}" for number in range(parts)]
    b.nodes.append(
        onnx.helper.make_node(
            "Split", [b.dequantize(x, 0.05, 3), given], names, name="split", axis=axis
        )
    )
    for number in set(range(parts)) - {unread}:
        first = b.dequantize(b.quantize(names[number], 0.05, 3), 0.05, 3)
        y = b.quantize(b.node("Relu", first), 0.03, -7, result=f"y{number}")
        b.output(b.dequantize(y, 0.03, -7))
    return b.model()


def sloped(random: np.random.Generator) -> onnx.ModelProto:
    """Return a quantised PRelu with slopes along any one axis.

    The slopes have leading dimensions of 1 or not.
    """
    rank = int(random.integers(2, 5))
    shape = [1, *(int(size) for size in random.integers(2, 8, rank - 1))]
    axis = int(random.integers(1, rank))
    slope = [shape[axis], *[1] * (rank - 1 - axis)]
    slope = [*[1] * int(random.integers(0, axis + 1)), *slope]
    b = ModelBuilder()
    x = b.dequantize(b.quantize(b.input("x", shape), 0.05, 3), 0.05, 3)
    given = b.weights(random.integers(-128, 128, slope).astype(np.int8), 0.01)
    b.output(b.dequantize(b.quantize(b.node("PRelu", x, given, name="op"), 0.05, -5), 0.05, -5))
    return b.model()


def clipped_weights(random: np.random.Generator) -> onnx.ModelProto:
    """Return a convolution in Brevitas' QCDQ form.

    It has float weights, then QuantizeLinear, Clip and DequantizeLinear.
    """
    bits = int(random.integers(2, 8))
    low = -(1 << bits - 1) + int(random.integers(2))
    high = (1 << bits - 1) - 1
    outputs, inputs, kernel = (int(size) for size in random.integers(1, 6, 3))
    scales = random.uniform(0.01, 0.1, outputs).astype(np.float32)
    b = ModelBuilder()
    bounds = [b.constant(bound, "int8") for bound in (low, high)]
    weights = b.constant(random.normal(0, 0.3, (outputs, inputs, kernel, kernel)), "float32")
    parameters = b.constant(scales, "float32"), b.constant(np.zeros(outputs), "int8")
    narrow = b.node("Clip", b.node("QuantizeLinear", weights, *parameters, axis=0), *bounds)
    source = b.node("Clip", b.quantize(b.input("x", [1, inputs, 8, 9]), 0.05), *bounds)
    data = b.dequantize(source, 0.05)
    result = b.node(
        "Conv", data, b.node("DequantizeLinear", narrow, *parameters, axis=0), name="op"
    )
    b.output(b.dequantize(b.node("Clip", b.quantize(result, 0.1), *bounds), 0.1))
    return b.model()


def transposed_tie(random: np.random.Generator) -> onnx.ModelProto:
    """Return two quantised ConvTranspose layers with many sums halfway between quantised values."""
    inputs, inner, outputs = (int(size) for size in random.integers(2, 9, 3))
    scale = float(random.uniform(0.01, 0.1))
    b = ModelBuilder()
    x = b.dequantize(b.quantize(b.input("x", [1, inputs, 9, 7]), scale, 3), scale, 3)
    for layer, shape in enumerate(((inputs, inner, 4, 4), (inner, outputs, 2, 2))):
        weights = b.weights(random.integers(-128, 128, shape).astype(np.int8), 0.01)
        options = {"strides": [2, 2], "pads": [1, 1, 1, 1] if layer == 0 else [0, 0, 0, 0]}
        result = b.node("ConvTranspose", x, weights, name=f"up{layer}", **options)
        after = scale * 0.01 * 2 ** int(random.integers(6, 9))
        x = b.dequantize(b.quantize(result, after, -4), after, -4)
        scale = after
    b.output(x)
    return b.model()


def mixed_types(random: np.random.Generator) -> onnx.ModelProto:
    """Return two layers whose first one has uint8 operands and an int8 result, or the reverse."""
    types = [str(name) for name in random.permutation(["uint8", "int8"])]
    zeros = {"uint8": int(random.integers(100, 156)), "int8": int(random.integers(-28, 28))}
    weights = types[1] if random.random() < 0.3 else "int8"
    kind = str(
        random.choice(
            ["Conv", "MatMul", "Gemm", "GlobalAveragePool", "AveragePool", "Add", "Concat"]
        )
    )
    shape = [int(random.integers(2, 8)), 12] if kind in ("MatMul", "Gemm") else [1, 4, 9, 11]
    b = ModelBuilder()
    x = b.input("x", shape)
    given = [(0.02, types[0]), (0.04, types[int(random.integers(2))])][
        : 2 if kind in ("Add", "Concat") else 1
    ]

    def dequantized(scale: float, dtype: str) -> str:
        return b.dequantize(b.quantize(x, scale, zeros[dtype], dtype), scale, zeros[dtype], dtype)

    def constant(*sizes: int, per_channel: bool = False) -> str:
        limits = np.iinfo(weights)
        numbers = random.integers(limits.min, limits.max + 1, sizes).astype(weights)
        middle = (limits.max + limits.min + 1) // 2
        scales = random.uniform(0.005, 0.02, sizes[0]) if per_channel else 0.01
        return b.weights(numbers, scales, middle)

    def layer(data: str, inputs: int, outputs: int) -> str:
        if len(shape) == 2:
            return b.node("MatMul", data, constant(inputs, outputs))
        return b.node(
            "Conv",
            data,
            constant(outputs, inputs, 3, 3, per_channel=bool(random.integers(2))),
            pads=[1] * 4,
        )

    data = [dequantized(scale, dtype) for scale, dtype in given]
    if kind == "Gemm":
        name = b.node("Gemm", *data, constant(12, 5))
        channels = 5
    elif kind in ("Conv", "MatMul"):
        name = layer(*data, shape[1], 6)
        channels = 6
    else:
        options = {"AveragePool": {"kernel_shape": [2, 3]}, "Concat": {"axis": 1}}.get(kind, {})
        name = b.node(kind, *data, **options)
        channels = 8 if kind == "Concat" else shape[1]
    if kind != "Concat" and random.integers(2):
        name = b.node("Relu", name)
    inner = b.dequantize(
        b.quantize(name, 0.03, zeros[types[1]], types[1]), 0.03, zeros[types[1]], types[1]
    )
    b.output(b.dequantize(b.quantize(layer(inner, channels, 3), 0.1, 5), 0.1, 5))
    return b.model()


def spectra(random: np.random.Generator) -> onnx.ModelProto:
    """Return the power of an STFT of a constant window, or of none, as torch.stft is exported."""
    size = int(random.integers(4, 33))
    hop = int(random.integers(2, 17))
    onesided, windowed, has_channel = (bool(random.integers(2)) for _ in range(3))
    samples = size + hop * int(random.integers(1, 8)) + int(random.integers(hop))
    shape = [int(random.integers(1, 3)), samples, *([1] if has_channel else [])]
    b = ModelBuilder()
    operands = [b.input("x", shape), b.constant(hop, "int64")]
    operands += [
        b.constant(np.hanning(size), "float32") if windowed else "",
        b.constant(size, "int64"),
    ]
    result = b.node("STFT", *operands, name="op", onesided=int(onesided))
    power = b.node("Pow", result, b.constant(2.0, "float32"))
    b.output(b.node("ReduceSum", power, b.constant([3], "int64"), keepdims=0))
    return b.model()


KINDS: Mapping[str, Draw] = {
    "unread split": unread_split,
    "slopes along an axis": sloped,
    "clipped weights": clipped_weights,
    "transposed convolutions on ties": transposed_tie,
    "uint8 and int8 around one operator": mixed_types,
    "saved by ONNX Runtime": saved_network,
    "short-time spectra": spectra,
}
"""What is drawn, by name."""


def failure(kind: str, seed: int) -> str:
    """Run one drawn model; return what is wrong with it, or the empty string."""
    return failure_of(KINDS[kind](np.random.default_rng(seed)))


def failure_of(model: onnx.ModelProto) -> str:
    """Run a model; return why it is not one exact region, or the empty string."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        onnx.save(model, file)
        report = experiments.run(file, cache=False).report
    regions = {placed.region for placed in report.placement if placed.on == "dla"}
    inside = [
        placed for placed in report.placement if "quantizelinear" not in placed.op_type.lower()
    ]
    on_cpu = [f"{placed.op_type}: {placed.reason}" for placed in inside if placed.on == "cpu"]
    if len(regions) != 1 or on_cpu:
        return f"{len(regions)} regions, on the CPU {on_cpu}"
    assert report.check is not None
    return "" if report.check.elements and not report.check.mismatches else f"{report.check}"


def main() -> int:
    """Run many of every kind; return 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    count = parser.parse_args().count
    failed = 0
    for kind in KINDS:
        found = {seed: failure(kind, seed) for seed in range(count)}
        wrong = {seed: text for seed, text in found.items() if text}
        print(
            f"{kind}: {count - len(wrong)} of {count}",
            *(f"  seed {seed}: {text}" for seed, text in wrong.items()),
        )
        failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
