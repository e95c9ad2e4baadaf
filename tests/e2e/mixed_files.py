"""ONNX files that mix float and quantised parts, as exporters and quantisers write them.

``FILES`` are fixed files, one per form. ``python -m tests.e2e.mixed_files --count 500 --seed 0``
draws random mixtures. Every file is compared with ONNX Runtime: its integer model bit by bit, and
its outputs within the noise that the report states.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ml_dtypes import int4, uint4
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dla
from isa.errors import InputError

Array = NDArray[Any]
WORDS = 60
CONTRIB = "com.microsoft"


class Net:
    """Writer of one model: float operators, and quantised forms of weights and activations."""

    def __init__(self, seed: int = 0, opset: int = 21) -> None:
        self.rng = np.random.default_rng([seed, 47])
        self.graph = onnx.GraphProto(name="mixed")
        self.opset = opset
        self._count = 0

    def name(self, part: str) -> str:
        """Return an unused name."""
        self._count += 1
        return f"{part}_{self._count}"

    def input(self, shape: Sequence[int], kind: int = TensorProto.FLOAT, name: str = "x") -> str:
        """Add a network input."""
        self.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, array: Array, name: str = "c") -> str:
        """Add a constant."""
        name = self.name(name)
        if array.dtype in (int4, uint4):
            kind = TensorProto.INT4 if array.dtype == int4 else TensorProto.UINT4
            self.graph.initializer.append(
                helper.make_tensor(name, kind, array.shape, array.astype(np.int32).reshape(-1))
            )
        else:
            self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op_type: str, *inputs: str, outputs: int = 1, **options: Any) -> str:
        """Add a node and return the name of its first result."""
        names = [self.name(op_type.lower()) for _ in range(outputs)]
        self.graph.node.append(
            helper.make_node(op_type, list(inputs), names, self.name(op_type), **options)
        )
        return names[0]

    def draw(self, *shape: int, size: float | None = None) -> Array:
        """Draw float weights whose products keep the size of their operands."""
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        size = size or 1.4 / np.sqrt(fan)
        return (self.rng.standard_normal(shape) * size).astype(np.float32)

    def weights(self, array: Array, form: str, axis: int) -> str:
        """Add weights: float, tensor, channel, uint8, or int4 and uint4 in blocks of 16."""
        if form == "float":
            return self.constant(array, "w")
        blocks = form in ("int4", "uint4")
        axis %= array.ndim
        if blocks:
            axis = array.ndim - 2 if array.ndim == 2 else 1
            if array.shape[axis] % 16:
                return self.weights(array, "channel", 0)
            shape = [*array.shape[:axis], array.shape[axis] // 16, 16, *array.shape[axis + 1 :]]
            parts = array.reshape(shape)
            peak = np.abs(parts).max(axis=axis + 1, keepdims=True)
        elif form == "tensor":
            parts, peak = array, np.abs(array).max().reshape([1] * array.ndim)
        else:
            others = tuple(each for each in range(array.ndim) if each != axis)
            parts, peak = array, np.abs(array).max(axis=others, keepdims=True)
        dtype, most, zero = {
            "int4": (int4, 7, 0),
            "uint4": (uint4, 7, 8),
            "uint8": (np.uint8, 127, 128),
        }.get(form, (np.int8, 127, 0))
        scale = (np.maximum(peak, 1e-3) / most).astype(np.float32)
        if form == "int4":  # as ONNX Runtime's quantiser: the largest number of a block is -8
            above = parts.max(axis=axis + 1, keepdims=True) == peak
            scale *= np.where(above, -7 / 8, 7 / 8).astype(np.float32)
        integers = np.rint(parts / scale).clip(-127 if most > 7 else -8, most) + zero
        integers = integers.astype(np.int32).astype(dtype)
        scale = scale.squeeze(axis + 1) if blocks else scale.reshape(-1)
        if form == "tensor":
            scale = scale.reshape(())
        operands = [
            self.constant(integers.reshape(array.shape), "wq"),
            self.constant(scale, "ws"),
            self.constant(np.full(scale.shape, zero).astype(dtype), "wz"),
        ]
        options = (
            {} if form == "tensor" else {"axis": axis} | ({"block_size": 16} if blocks else {})
        )
        return self.add("DequantizeLinear", *operands, **options)

    def pair(self, name: str, size: float = 4.0, kind: str = "int8", clip: bool = False) -> str:
        """Quantise an activation with a given scale and dequantise it again."""
        dtype = np.dtype(kind)
        span = int(np.iinfo(dtype).max) - int(np.iinfo(dtype).min)
        zero = (int(np.iinfo(dtype).max) + int(np.iinfo(dtype).min) + 1) // 2
        operands = [
            self.constant(np.float32(2 * size / span), "s"),
            self.constant(np.array(zero, dtype), "z"),
        ]
        integers = self.add("QuantizeLinear", name, *operands)
        if clip:
            ends = (self.constant(np.array(end, dtype), "end") for end in (zero - 127, zero + 127))
            integers = self.add("Clip", integers, *ends)
        return self.add("DequantizeLinear", integers, *operands)

    def finish(self, *outputs: str) -> onnx.ModelProto:
        """Return the model with the given outputs."""
        for name in outputs:
            self.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        sets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(self.graph, opset_imports=sets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


Around = Callable[[Net, str], str]
"""Writer of the quantisation of a product's operand or result; the identity leaves it in float."""


def _plain(net: Net, name: str) -> str:
    return name


def pairs(kind: str = "int8", clip: bool = False, size: float = 6.0) -> Around:
    """Return a writer of given quantisations."""
    return lambda net, name: net.pair(name, size, kind, clip)


def conv(net: Net, x: str, ic: int, oc: int, form: str, around: Around, **options: Any) -> str:
    """Add a convolution between given quantisations, if there are any."""
    k = options.pop("k", 3)
    w = net.weights(net.draw(oc, ic, k, k), form, 0)
    bias = net.constant(net.draw(oc, size=0.1), "b")
    x = net.add("Conv", around(net, x), w, bias, pads=[k // 2] * 4, **options)
    return around(net, x)


def linear(net: Net, x: str, n: int, m: int, form: str, around: Around) -> str:
    """Add a matrix product and its bias."""
    w = net.weights(net.draw(n, m), form, 1)
    x = around(net, net.add("MatMul", around(net, x), w))
    return net.add("Add", x, net.constant(net.draw(m, size=0.1), "b"))


def silu(net: Net, x: str) -> str:
    """Add x * sigmoid(x) in float."""
    return net.add("Mul", x, net.add("Sigmoid", x))


def cnn(
    form: str, around: Around = _plain, *, seed: int = 0, half: bool = False
) -> onnx.ModelProto:
    """Return a small residual CNN with SiLU."""
    net = Net(seed)
    x = net.input((1, 3, 24, 24))
    x = silu(net, conv(net, x, 3, 16, form, around, strides=[2, 2]))
    y = conv(net, silu(net, conv(net, x, 16, 16, form, around)), 16, 16, form, around)
    x = net.add("Relu", net.add("Add", x, y))
    x = conv(net, x, 16, 32, form, around, k=1)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.finish(linear(net, x, 32, 10, form, around))


def layer_norm(net: Net, x: str, n: int) -> str:
    """Add a LayerNormalization in float."""
    ones = net.constant(1 + net.draw(n, size=0.1), "gain")
    return net.add("LayerNormalization", x, ones, net.constant(net.draw(n, size=0.1)), axis=-1)


def gelu(net: Net, x: str) -> str:
    """Add GELU with Erf in float, as PyTorch exports it."""
    inner = net.add("Erf", net.add("Div", x, net.constant(np.float32(2**0.5))))
    y = net.add("Mul", x, net.add("Add", inner, net.constant(np.float32(1))))
    return net.add("Mul", y, net.constant(np.float32(0.5)))


def block(net: Net, x: str, form: str, around: Around, n: int = 32, words: int = 8) -> str:
    """Add a transformer block with four heads."""
    heads = net.constant(np.array([1, words, 4, n // 4]))

    def split(name: str, order: Sequence[int]) -> str:
        return net.add("Transpose", net.add("Reshape", name, heads), perm=order)

    y = layer_norm(net, x, n)
    q, k, v = (linear(net, y, n, n, form, around) for _ in range(3))
    q, k, v = split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1)), split(v, (0, 2, 1, 3))
    scores = net.add("MatMul", around(net, q), around(net, k))
    scores = net.add("Mul", scores, net.constant(np.float32((n // 4) ** -0.5)))
    shares = net.add("Softmax", scores, axis=-1)
    shares = shares if around is _plain else net.pair(shares, 1.0)
    y = net.add("MatMul", shares, around(net, v))
    y = net.add("Transpose", y, perm=[0, 2, 1, 3])
    y = net.add("Reshape", y, net.constant(np.array([1, words, n])))
    x = net.add("Add", x, linear(net, y, n, n, form, around))
    y = gelu(net, linear(net, layer_norm(net, x, n), n, 2 * n, form, around))
    return net.add("Add", x, linear(net, y, 2 * n, n, form, around))


def transformer(form: str, around: Around = _plain, *, seed: int = 0) -> onnx.ModelProto:
    """Return a transformer block and a classifier of its mean."""
    net = Net(seed)
    x = block(net, net.input((1, 8, 32)), form, around)
    x = net.add("ReduceMean", x, net.constant(np.array([1])), keepdims=0)
    return net.finish(linear(net, x, 32, 10, form, around))


def tagger(form: str, *, table: str = "float", lstm: bool = True, seed: int = 0) -> onnx.ModelProto:
    """Return a text tagger: an embedding, an LSTM or a block, and scores for each word."""
    net = Net(seed)
    rows = net.weights(net.draw(WORDS, 32, size=1.0), table, 0)
    x = net.add("Gather", rows, net.input((1, 8), TensorProto.INT64, "ids"))
    if lstm:
        x = net.add("Transpose", x, perm=[1, 0, 2])
        w = net.weights(net.draw(1, 64, 32, size=0.25), form, 1)
        r = net.weights(net.draw(1, 64, 16, size=0.25), form, 1)
        b = net.constant(net.draw(1, 128, size=0.1))
        x = net.add("Transpose", net.add("Squeeze", net.add("LSTM", x, w, r, b, hidden_size=16),
                    net.constant(np.array([1]))), perm=[1, 0, 2])  # fmt: skip
    else:
        x = block(net, x, form, _plain)
    return net.finish(linear(net, x, 16 if lstm else 32, 12, form, _plain))


def islands_after_float(seed: int = 0) -> onnx.ModelProto:
    """Return a CNN whose first half is quantised and whose second half is float."""
    net = Net(seed)
    x = conv(net, net.input((1, 3, 24, 24)), 3, 16, "channel", pairs(), strides=[2, 2])
    x = conv(net, x, 16, 16, "channel", pairs())
    x = silu(net, conv(net, x, 16, 32, "float", _plain, strides=[2, 2]))
    x = net.add("Flatten", net.add("GlobalAveragePool", conv(net, x, 32, 32, "float", _plain)))
    return net.finish(linear(net, x, 32, 10, "float", _plain))


def packed(seed: int = 0) -> onnx.ModelProto:
    """Return a network of MatMulNBits, 4-bit weights in blocks, as for language models."""
    net = Net(seed)
    x = net.input((1, 8, 32))
    for n, m in ((32, 64), (64, 32)):
        x = layer_norm(net, x, n)
        real = net.draw(m, n).reshape(m, n // 16, 16)
        scale = (np.abs(real).max(axis=-1) / 7).astype(np.float32)
        integers = (np.rint(real / scale[..., None]) + 8).astype(np.uint8)
        data = integers[..., ::2] | integers[..., 1::2] << 4
        operands = net.constant(data, "wq"), net.constant(scale.reshape(-1), "ws")
        sizes = {"K": n, "N": m, "bits": 4, "block_size": 16, "domain": CONTRIB}
        x = net.add("MatMulNBits", x, *operands, **sizes)
        x = gelu(net, x)
    return net.finish(linear(net, x, 32, 10, "float", _plain))


def packed_tagger(seed: int = 0) -> onnx.ModelProto:
    """Return a text tagger whose table and products have 4-bit numbers in blocks."""
    net = Net(seed)
    integers = net.constant(net.rng.integers(0, 256, (WORDS, 16)).astype(np.uint8), "wq")
    scales = net.constant(net.rng.uniform(0.1, 0.2, (WORDS, 2)).astype(np.float32), "ws")
    zeros = net.constant(net.rng.integers(0, 256, (WORDS, 1)).astype(np.uint8) | 0x66, "wz")
    options = {"bits": 4, "block_size": 16, "domain": CONTRIB}
    ids = net.input((1, 8), TensorProto.INT64, "ids")
    x = net.add("GatherBlockQuantized", integers, ids, scales, zeros, **options)
    return net.finish(linear(net, block(net, x, "int4", _plain), 32, 12, "uint4", _plain))


def convolutional_tagger(seed: int = 0) -> onnx.ModelProto:
    """Return a text tagger with a convolution right after the embedding."""
    net = Net(seed)
    rows = net.constant(net.draw(WORDS, 32, size=1.0), "rows")
    x = net.add("Gather", rows, net.input((1, 8), TensorProto.INT64, "ids"))
    x = net.add("Transpose", x, perm=[0, 2, 1])
    w, b = net.constant(net.draw(32, 32, 3), "w"), net.constant(net.draw(32, size=0.1), "b")
    x = net.add("Transpose", net.add("Conv", x, w, b, pads=[1, 1]), perm=[0, 2, 1])
    return net.finish(linear(net, net.add("Relu", x), 32, 12, "float", _plain))


def half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose float activations and scales are in half precision."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*result.graph.input, *result.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    del result.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(result)


def dynamic(model: onnx.ModelProto, kinds: Sequence[str]) -> onnx.ModelProto:
    """Return a float model as ``quantize_dynamic`` of ONNX Runtime writes it."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        quantize_dynamic(source, target, op_types_to_quantize=kinds, weight_type=QuantType.QInt8)
        return onnx.load(target)


def static(
    model: onnx.ModelProto, kinds: Sequence[str], form: str, seed: int = 0
) -> onnx.ModelProto:
    """Return a float model whose operators ``kinds`` ONNX Runtime's static quantiser quantised."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            rng = np.random.default_rng(seed)
            (value,) = model.graph.input
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            self._feeds = iter(
                [{value.name: rng.standard_normal(shape).astype(np.float32)} for _ in range(8)]
            )

        def get_next(self) -> Any:
            return next(self._feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        options: dict[str, Any] = {
            "quant_format": QuantFormat.QDQ if form.startswith("QDQ") else QuantFormat.QOperator,
            "activation_type": QuantType.QInt16 if form == "QDQ16" else QuantType.QUInt8,
            "weight_type": QuantType.QInt8,
            "op_types_to_quantize": list(kinds),
        }
        quantize_static(source, target, Reader(), **options)
        return onnx.load(target)


FILES: dict[str, Callable[[], onnx.ModelProto]] = {
    "weights_tensor": lambda: cnn("tensor"),
    "weights_channel": lambda: cnn("channel"),
    "weights_uint8": lambda: transformer("uint8"),
    "weights_int4": lambda: transformer("int4"),
    "weights_uint4": lambda: transformer("uint4"),
    "weights_packed": packed,
    "table_packed": packed_tagger,
    "weights_lstm": lambda: tagger("channel"),
    "dynamic_block": lambda: dynamic(tagger("float", lstm=False), ["MatMul", "Gather"]),
    "dynamic_table": lambda: dynamic(
        convolutional_tagger(), ["Gather", "Transpose", "Conv", "MatMul"]
    ),
    "dynamic_lstm": lambda: dynamic(tagger("float"), ["MatMul", "Gather", "LSTM"]),
    "dynamic_conv": lambda: dynamic(cnn("float"), ["Conv", "MatMul"]),
    "table_int8": lambda: tagger("channel", table="tensor", lstm=False),
    "brevitas": lambda: cnn("channel", pairs(clip=True)),
    "islands_cnn": lambda: cnn("channel", pairs()),
    "islands_block": lambda: transformer("channel", pairs("uint8")),
    "islands_static": lambda: static(transformer("float"), ["MatMul"], "QDQ"),
    "islands_qoperator": lambda: static(cnn("float"), ["Conv", "MatMul"], "QOperator"),
    "sixteen_bits": lambda: static(cnn("float"), ["Conv", "MatMul"], "QDQ16"),
    "half_cnn": lambda: half(cnn("channel")),
    "half_block": lambda: half(transformer("tensor")),
    "islands_then_float": islands_after_float,
}
"""Files of every form, by name."""


FORMS = ("float", "tensor", "channel", "uint8", "int4", "uint4")


def _draw_around(rng: np.random.Generator) -> Around:
    kind = str(rng.choice(["float", "float", "int8", "uint8", "clip", "int16"]))
    if kind == "float":
        return _plain
    return pairs("int8" if kind == "clip" else kind, kind == "clip", float(rng.uniform(3, 8)))


def _draw_function(net: Net, x: str, around: Around) -> str:
    """Add a float function, with given quantisations around it in one of two cases."""
    kind = str(net.rng.choice(["silu", "Relu", "Tanh", "Clip", "gelu", "none"]))
    if kind == "none":
        return x
    x = around(net, x)
    if kind == "Clip":
        y = net.add("Clip", x, *(net.constant(np.float32(end)) for end in (-1, 2)))
    else:
        y = {"silu": silu, "gelu": gelu}.get(kind, lambda net, x: net.add(kind, x))(net, x)
    return around(net, y) if net.rng.random() < 0.5 else y


def random_file(seed: int) -> onnx.ModelProto:
    """Return a network of float and quantised parts in a random mixture."""
    net = Net(seed)
    rng = net.rng
    if rng.random() < 0.5:
        channels = 16
        x = conv(net, net.input((1, 3, 12, 12)), 3, 16, "float", _draw_around(rng), strides=[2, 2])
        for _ in range(rng.integers(1, 4)):
            form, around = str(rng.choice(FORMS)), _draw_around(rng)
            y = conv(net, x, channels, channels, form, around, k=int(rng.choice([1, 3])))
            y = _draw_function(net, y, _draw_around(rng))
            x = net.add("Add", x, y) if rng.random() < 0.6 else net.add("Concat", x, y, axis=1)
            channels = channels if net.graph.node[-1].op_type == "Add" else 2 * channels
            if rng.random() < 0.3:
                x = _draw_around(rng)(net, net.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4))
        x = net.add("Flatten", net.add("GlobalAveragePool", x))
    else:
        channels = 32
        if rng.random() < 0.4:
            rows = net.weights(net.draw(WORDS, 32, size=1.0), str(rng.choice(FORMS[:3])), 0)
            x = net.add("Gather", rows, net.input((1, 8), TensorProto.INT64, "ids"))
        else:
            x = net.input((1, 8, 32))
        for _ in range(rng.integers(1, 3)):
            form, around = str(rng.choice(FORMS)), _draw_around(rng)
            if rng.random() < 0.4:
                x = block(net, x, form, around)
            else:
                y = linear(net, layer_norm(net, x, 32), 32, 32, form, around)
                x = net.add("Add", x, _draw_function(net, y, _draw_around(rng)))
    return net.finish(linear(net, x, channels, 10, str(rng.choice(FORMS)), _draw_around(rng)))


def draw_samples(model: onnx.ModelProto, seed: int, count: int = 4) -> list[dict[str, Array]]:
    """Return random inputs of a model: standard-normal numbers, and word numbers."""
    rng = np.random.default_rng([seed, 48])
    samples = []
    for _ in range(count):
        feed: dict[str, Array] = {}
        for value in model.graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            words = np.issubdtype(dtype, np.integer)
            feed[value.name] = np.asarray(
                rng.integers(0, WORDS, shape) if words else rng.standard_normal(shape), dtype
            )
        samples.append(feed)
    return samples


def run_file(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Array]:
    """Return the first output of a file on ONNX Runtime without any optimisation."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [session.run(None, dict(feed))[0].astype(np.float64) for feed in feeds]


def check_file(model: onnx.ModelProto, seed: int) -> tuple[dla.Result, float]:
    """Run a file on one of its calibration samples and compare the results with the file's own.

    Returns the result and the reported signal-to-noise ratio, infinite if nothing was quantised.
    Raises AssertionError if an integer differs from ONNX Runtime's, or if the output's error on the
    sample exceeds the error that the report states for all samples.
    """
    samples = draw_samples(model, seed)
    wide = [
        {
            name: array.astype(np.float32) if array.dtype == np.float16 else array
            for name, array in feed.items()
        }
        for feed in samples
    ]
    result = dla.run(model, inputs=wide[0], calibration=wide)
    report = result.report
    assert report.check is not None
    assert report.check.mismatches == 0, report.check
    assert report.fidelity is not None
    exact = run_file(model, samples)
    (found,) = result.outputs.values()
    error = float(np.square(found.astype(np.float64) - exact[0]).sum())
    noise = report.fidelity.noise
    level = min(noise.values(), default=float("inf"))
    signal = sum(float(np.square(array).sum()) for array in exact)
    if noise:
        # ties may round the other way than in the session that measured the noise
        assert error <= 1.1 * signal / 10 ** (level / 10) + 1e-9, (level, error / signal)
    else:
        assert report.fidelity.file is not None
        assert not report.fidelity.file.beyond or report.fidelity.file.ties, report.fidelity.file
    return result, level


def count_regions(result: dla.Result) -> int:
    """Return the number of regions of a run."""
    return len({place.region for place in result.report.placement if place.on == "dla"})


def main() -> int:
    """Draw random files and print what came of them; the status is 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    regions: Counter[int] = Counter()
    levels: list[float] = []
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            result, level = check_file(random_file(seed), seed)
        except (AssertionError, InputError, RuntimeError) as error:
            wrong += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            continue
        regions[count_regions(result)] += 1
        levels.append(level)
        if regions.total() % 50 == 0:
            print(f"{regions.total()} files right", flush=True)
    print(
        f"{options.count} files, {wrong} wrong; files by regions: {dict(sorted(regions.items()))}"
    )
    if levels:
        print(f"signal to noise: least {min(levels):.1f}, median {np.median(levels):.1f} dB")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
