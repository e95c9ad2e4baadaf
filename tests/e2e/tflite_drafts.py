"""Random models of one TensorFlow Lite operator each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.tflite.builder import Quantisation, Tensor, TfliteBuilder

Generator = np.random.Generator
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


class Draft:
    """A model that is being drawn."""

    def __init__(self, random: Generator, dtype: str = "int8") -> None:
        self.random = random
        self.builder = TfliteBuilder("drawn")
        self.dtype = dtype
        self._windowed = bool(random.integers(2))

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of them."""
        return choices[int(self.random.integers(len(choices)))]

    def sizes(self, count: int, most: int = 9) -> tuple[int, ...]:
        """So many sizes."""
        return tuple(map(int, self.random.integers(1, most, count)))

    def quantisation(self, low: float = 0.005, high: float = 0.2) -> Quantisation:
        """A scale, one in four a power of two, and a zero point."""
        scale = (
            2.0 ** self.random.integers(-7, -2)
            if self.random.integers(4) == 0
            else self.random.uniform(low, high)
        )
        limits = np.iinfo(self.dtype)
        return Quantisation(
            float(np.float32(scale)), int(self.random.integers(limits.min, limits.max + 1))
        )

    def stored(self, shape: tuple[int, ...]) -> np.ndarray:
        """Any integers of the element type."""
        limits = np.iinfo(self.dtype)
        return self.random.integers(limits.min, limits.max + 1, shape, self.dtype)

    def input(
        self, shape: tuple[int, ...], quantisation: Quantisation | None = None, name: str = "x"
    ) -> Tensor:
        """An input.

        Of planes, half of the time, a window reads it first, so that they lie as such.
        """
        x = self.builder.input(name, shape, quantisation or self.quantisation(), self.dtype)
        return self._window(x) if len(shape) == 4 and self._windowed else x

    def _window(self, x: Tensor) -> Tensor:
        sizes = {"filter_width": 1, "filter_height": 1, "stride_w": 1, "stride_h": 1}
        return self.builder.operator(
            "MAX_POOL_2D", [x], x.quantisation, self.dtype, padding="VALID", **sizes
        )

    def integers(self, name: str, values: Sequence[int] | np.ndarray) -> Tensor:
        """A constant parameter."""
        return self.builder.constant(name, np.array(values, np.int32))

    def result(
        self, kind: str, inputs: Sequence[Tensor], quantisation: Quantisation, **options: Any
    ) -> bytes:
        """The model that ends with an operator.

        The result of planes is read by a window half of the time.
        """
        made = self.builder.operator(kind, inputs, quantisation, self.dtype, **options)
        windowed = len(made.shape) == 4 and self.random.integers(2) and min(made.shape) > 0
        return self.builder.model(self._window(made) if windowed else made)


def _weighted(
    draft: Draft, kind: str, x: Tensor, shape: tuple[int, ...], axis: int, **options: Any
) -> bytes:
    random = draft.random
    count = shape[axis]
    unsigned = draft.dtype == "uint8"
    weights = draft.stored(shape) if unsigned else random.integers(-127, 128, shape, np.int8)
    several = bool(random.integers(4)) and not unsigned
    zero = int(random.integers(100, 156)) if unsigned else 0
    scales = tuple(
        map(float, random.uniform(0.001, 0.02, count if several else 1).astype(np.float32))
    )
    assert x.quantisation is not None
    biases = tuple(
        float(np.float32(x.quantisation.scales[0]) * np.float32(scale)) for scale in scales
    )
    operands = [
        x,
        draft.builder.constant(
            "w", weights, Quantisation(scales if several else scales[0], zero, axis)
        ),
    ]
    # a convolution without a bias LiteRT refuses, or it crashes
    if kind != "FULLY_CONNECTED" or random.integers(5):
        bias = random.integers(-5000, 5000, count).astype(np.int32)
        operands.append(
            draft.builder.constant("b", bias, Quantisation(biases if several else biases[0]))
        )
    scale = float(
        np.float32(np.sqrt(weights.size / count) * 73 * 75 * biases[0] / random.uniform(20, 80))
    )
    quantisation = Quantisation(scale, draft.quantisation().zero_point)
    return draft.result(
        kind, operands, quantisation, fused_activation_function=draft.pick(ACTIVATIONS), **options
    )


def _window(draft: Draft) -> dict[str, Any]:
    height, width = draft.sizes(2, 4)
    return {"padding": draft.pick(("SAME", "VALID")), "stride_h": height, "stride_w": width}


def convolution(draft: Draft) -> bytes:
    """Any window; groups at times."""
    height, width = draft.sizes(2, 4)
    groups, depth, per_group = int(draft.random.integers(1, 3)), *draft.sizes(2, 6)
    x = draft.input((draft.pick((1, 1, 2)), height + 6, width + 7, groups * depth))
    dilated = (
        {"dilation_h_factor": 2, "dilation_w_factor": draft.pick((1, 2))}
        if draft.random.integers(4) == 0
        else {}
    )
    options = {**_window(draft), **({"dilation_h_factor": 1, "dilation_w_factor": 1} | dilated)}
    if dilated:
        options |= {"stride_h": 1, "stride_w": 1}
    return _weighted(draft, "CONV_2D", x, (groups * per_group, height, width, depth), 0, **options)


def depthwise(draft: Draft) -> bytes:
    """Any multiplier."""
    height, width = draft.sizes(2, 4)
    channels = int(draft.random.integers(1, 9))
    multiplier = draft.pick((1, 1, 2, 3))
    x = draft.input((1, height + 5, width + 6, channels))
    stride = draft.pick((1, 1, 2))
    options = {
        **_window(draft),
        "stride_h": stride,
        "stride_w": stride,
        "depth_multiplier": multiplier,
    }
    options |= {"dilation_h_factor": 1, "dilation_w_factor": 1}
    return _weighted(
        draft, "DEPTHWISE_CONV_2D", x, (1, height, width, channels * multiplier), 3, **options
    )


def fully_connected(draft: Draft) -> bytes:
    """Rows of any rank; planes, whose elements are in another order here."""
    shape = draft.sizes(draft.pick((2, 3, 4)), 7)
    x = draft.input(shape)
    keep = bool(draft.random.integers(2)) and len(shape) < 4
    depth = shape[-1] if keep else int(np.prod(shape[1:]))
    features = int(draft.random.integers(1, 20))
    return _weighted(draft, "FULLY_CONNECTED", x, (features, depth), 0, keep_num_dims=keep)


def batch_matmul(draft: Draft) -> bytes:
    """Two computed matrices."""
    batch, m, k, n = draft.sizes(4, 6)
    heads = draft.sizes(1, 4) if draft.random.integers(2) else ()
    turned = bool(draft.random.integers(2))
    flipped = draft.random.integers(4) == 0
    x = draft.input((batch, *heads, k, m) if flipped else (batch, *heads, m, k))
    y = draft.input((batch, *heads, n, k) if turned else (batch, *heads, k, n), name="y")
    assert x.quantisation is not None
    assert y.quantisation is not None
    scale = x.quantisation.scales[0] * y.quantisation.scales[0] * 75 * 75 * np.sqrt(k) / 60
    quantisation = Quantisation(float(np.float32(scale)), int(draft.random.integers(-128, 128)))
    return draft.result("BATCH_MATMUL", [x, y], quantisation, adj_y=turned, adj_x=flipped)


def _pair(draft: Draft, *, alike: bool = False) -> tuple[list[Tensor], Quantisation]:
    """Two operands that broadcast, one of them constant at times."""
    shape = draft.sizes(draft.pick((1, 2, 3, 4, 4, 4)))
    quantisation = draft.quantisation()
    first = draft.input(shape, quantisation if alike else None)
    other = tuple(1 if draft.random.integers(5) == 0 else size for size in shape)
    other = (
        other[int(draft.random.integers(len(shape))) :] if draft.random.integers(4) == 0 else other
    )
    other = shape if draft.random.integers(2) else other
    own = quantisation if alike else draft.quantisation()
    if draft.random.integers(4) == 0:
        second = draft.builder.constant("c", draft.stored(other), own)
    else:
        second = draft.input(other, own, "y")
    operands = [first, second] if draft.random.integers(3) else [second, first]
    return operands, quantisation if alike else draft.quantisation()


def arithmetic(kind: str, draft: Draft) -> bytes:
    """ADD, SUB, MUL, SQUARED_DIFFERENCE."""
    operands, quantisation = _pair(draft)
    if kind == "MUL":
        scales = [one.quantisation.scales[0] for one in operands if one.quantisation]
        quantisation = Quantisation(
            float(np.float32(np.prod(scales) * draft.random.uniform(20, 90))), 3
        )
    fused = (
        {}
        if kind == "SQUARED_DIFFERENCE"
        else {"fused_activation_function": draft.pick(ACTIVATIONS)}
    )
    return draft.result(kind, operands, quantisation, **fused)


def extreme(kind: str, draft: Draft) -> bytes:
    """MINIMUM, MAXIMUM."""
    operands, quantisation = _pair(draft, alike=True)
    return draft.result(kind, operands, quantisation)


def pool(kind: str, draft: Draft) -> bytes:
    """Any window."""
    height, width = draft.sizes(2, 5)
    x = draft.input((1, height + 4, width + 3, int(draft.random.integers(1, 9))))
    sizes = {"filter_height": height, "filter_width": width}
    assert x.quantisation is not None
    activation = draft.pick(ACTIVATIONS) if kind == "AVERAGE_POOL_2D" else "NONE"
    options = {**_window(draft), **sizes, "fused_activation_function": activation}
    return draft.result(kind, [x], x.quantisation, **options)


def reduction(kind: str, draft: Draft) -> bytes:
    """Along any axes that lie side by side."""
    shape = draft.sizes(draft.pick((2, 3, 4, 4)))
    x = draft.input(shape)
    rank = len(shape)
    axes = draft.pick([[rank - 1], [-1], [1, 2] if rank > 2 else [1], [1], list(range(1, rank))])
    quantisation = (
        x.quantisation
        if kind == "REDUCE_MAX" or draft.random.integers(3) == 0
        else draft.quantisation()
    )
    assert quantisation is not None
    if kind == "SUM":
        assert x.quantisation is not None
        quantisation = Quantisation(x.quantisation.scales[0] * 4, quantisation.zero_point)
    return draft.result(
        kind,
        [x, draft.integers("axes", axes)],
        quantisation,
        keep_dims=bool(draft.random.integers(2)),
    )


def softmax(draft: Draft) -> bytes:
    """Rows of any length."""
    x = draft.input(draft.sizes(draft.pick((2, 3, 4)), 30), draft.quantisation(0.01, 0.3))
    beta = draft.pick((1.0, 1.0, float(np.float32(draft.random.uniform(0.2, 3)))))
    return draft.result("SOFTMAX", [x], Quantisation(1 / 256, -128), beta=beta)


def function(kind: str, draft: Draft) -> bytes:
    """A function of one number."""
    x = draft.input(draft.sizes(draft.pick((1, 2, 4))), draft.quantisation(0.01, 0.08))
    quantisation = draft.quantisation(0.01, 0.08)
    options = {}
    middle = 128 if draft.dtype == "uint8" else 0
    if kind == "LOGISTIC":
        quantisation = Quantisation(1 / 256, middle - 128)
    elif kind == "TANH":
        quantisation = Quantisation(1 / 128, middle)
    elif kind == "LEAKY_RELU":
        options = {"alpha": float(draft.pick((0.1, 0.25, -0.3)))}
    elif kind in ("ABS", "NEG") and x.quantisation is not None:
        quantisation = x.quantisation
    elif kind in ("LOG", "RSQRT", "SQRT") and x.quantisation is not None:
        x = draft.input(draft.sizes(3), Quantisation(x.quantisation.scales[0], -128), "positive")
    return draft.result(kind, [x], quantisation, **options)


def prelu(draft: Draft) -> bytes:
    """A slope a channel."""
    x = draft.input(draft.sizes(4))
    slopes = draft.stored((1, 1, x.shape[3]))
    return draft.result(
        "PRELU",
        [x, draft.builder.constant("a", slopes, draft.quantisation())],
        draft.quantisation(),
    )


def rescale(draft: Draft) -> bytes:
    """Another scale."""
    return draft.result(
        "QUANTIZE", [draft.input(draft.sizes(draft.pick((2, 4))))], draft.quantisation()
    )


def pad(kind: str, draft: Draft) -> bytes:
    """Any number of elements before and behind."""
    x = draft.input(draft.sizes(draft.pick((2, 3, 4)), 7))
    assert x.quantisation is not None
    most = [min(3, size) if kind == "MIRROR_PAD" else 3 for size in x.shape]
    pads = np.stack([draft.random.integers(0, most), draft.random.integers(0, most)], 1).astype(
        np.int32
    )
    operands = [x, draft.integers("pads", pads)]
    if kind == "PADV2":
        operands.append(draft.builder.constant("fill", draft.stored((1,)), x.quantisation))
    options = {"mode": draft.pick(("REFLECT", "SYMMETRIC"))} if kind == "MIRROR_PAD" else {}
    return draft.result(kind, operands, x.quantisation, **options)


def concatenation(draft: Draft) -> bytes:
    """Several operands along any axis, one of them constant at times."""
    shape = draft.sizes(draft.pick((2, 3, 4)))
    quantisation = draft.quantisation()
    axis = int(draft.random.integers(len(shape)))
    operands = []
    for number in range(int(draft.random.integers(2, 4))):
        own = (*shape[:axis], int(draft.random.integers(1, 5)), *shape[axis + 1 :])
        if number and draft.random.integers(5) == 0:
            operands.append(draft.builder.constant("c", draft.stored(own), quantisation))
            break
        operands.append(draft.input(own, quantisation, f"x{number}"))
    return draft.result(
        "CONCATENATION", operands, quantisation, axis=axis - draft.pick((0, len(shape)))
    )


def pack(draft: Draft) -> bytes:
    """Along a new axis."""
    shape = draft.sizes(draft.pick((1, 2, 3)))
    quantisation = draft.quantisation()
    operands = [
        draft.input(shape, quantisation, f"x{number}")
        for number in range(int(draft.random.integers(1, 4)))
    ]
    axis = int(draft.random.integers(len(shape) + 1))
    return draft.result("PACK", operands, quantisation, axis=axis, values_count=len(operands))


def several(kind: str, draft: Draft) -> bytes:
    """SPLIT, SPLIT_V, UNPACK: all results."""
    shape = list(draft.sizes(draft.pick((2, 3, 4))))
    axis = int(draft.random.integers(len(shape)))
    count = int(draft.random.integers(1, 4))
    shape[axis] = count * (int(draft.random.integers(1, 4)) if kind != "UNPACK" else 1)
    x = draft.input(tuple(shape))
    if kind == "SPLIT":
        operands = [draft.integers("axis", np.array(axis)), x]
        options = {"num_splits": count}
    elif kind == "SPLIT_V":
        sizes = draft.random.multinomial(shape[axis] - count, [1 / count] * count) + 1
        operands = [x, draft.integers("sizes", sizes), draft.integers("axis", np.array(axis))]
        options = {"num_splits": count}
    else:
        operands = [x]
        options = {"num": count, "axis": axis}
    return draft.builder.model(
        *draft.builder.operators(kind, operands, [x.quantisation] * count, draft.dtype, **options)
    )


def cut(kind: str, draft: Draft) -> bytes:
    """SLICE, STRIDED_SLICE."""
    x = draft.input(draft.sizes(draft.pick((2, 3, 4))))
    assert x.quantisation is not None
    begins = draft.random.integers(0, x.shape)
    ends = draft.random.integers(begins + 1, np.array(x.shape) + 1)
    if kind == "SLICE":
        sizes = draft.integers("size", ends - begins)
        return draft.result(kind, [x, draft.integers("begin", begins), sizes], x.quantisation)
    steps = draft.random.integers(1, 4, len(x.shape))
    operands = [
        x,
        *(
            draft.integers(name, what)
            for name, what in zip("bes", (begins, ends, steps), strict=True)
        ),
    ]
    masks = {name: int(draft.random.integers(4)) for name in ("begin_mask", "end_mask")}
    return draft.result(kind, operands, x.quantisation, **masks)


def shaped(kind: str, draft: Draft) -> bytes:
    """RESHAPE, SQUEEZE, EXPAND_DIMS: planes become rows, rows planes."""
    shape = draft.sizes(draft.pick((2, 3, 4)))
    shape = tuple(1 if kind == "SQUEEZE" and draft.random.integers(2) else size for size in shape)
    x = draft.input(shape)
    assert x.quantisation is not None
    if kind == "SQUEEZE":
        return draft.result(
            kind,
            [x],
            x.quantisation,
            squeeze_dims=[n for n, size in enumerate(shape) if size == 1][:1],
        )
    if kind == "EXPAND_DIMS":
        where = int(draft.random.integers(len(shape) + 1)) if len(shape) < 4 else 0
        return draft.result(kind, [x, draft.integers("axis", np.array(where))], x.quantisation)
    n = shape[0]
    c = shape[-1]
    new = draft.pick([(n, -1), (-1, c), (n, -1, c), (1, n, -1, c), (n, 1, 1, -1), (-1,)])
    total = int(np.prod(shape))
    known = -int(np.prod(new))
    whole = [total // known if size == -1 else size for size in new]
    return draft.result(kind, [x, draft.integers("shape", whole)], x.quantisation, new_shape=whole)


def transpose(draft: Draft) -> bytes:
    """Any permutation."""
    x = draft.input(draft.sizes(draft.pick((2, 3, 4))))
    assert x.quantisation is not None
    order = draft.random.permutation(len(x.shape))
    return draft.result("TRANSPOSE", [x, draft.integers("order", order)], x.quantisation)


def gather(draft: Draft) -> bytes:
    """By constant indices."""
    x = draft.input(draft.sizes(draft.pick((2, 3, 4))))
    assert x.quantisation is not None
    axis = int(draft.random.integers(len(x.shape)))
    indices = draft.integers(
        "indices", draft.random.integers(0, x.shape[axis], int(draft.random.integers(1, 6)))
    )
    return draft.result("GATHER", [x, indices], x.quantisation, axis=axis)


def tile(draft: Draft) -> bytes:
    """Repeated along every axis."""
    x = draft.input(draft.sizes(draft.pick((2, 3, 4)), 5))
    assert x.quantisation is not None
    return draft.result(
        "TILE",
        [x, draft.integers("times", draft.random.integers(1, 3, len(x.shape)))],
        x.quantisation,
    )


def resize(kind: str, draft: Draft) -> bytes:
    """Larger and smaller."""
    x = draft.input((1, *draft.sizes(3)))
    assert x.quantisation is not None
    corners = draft.pick(({}, {"half_pixel_centers": True}, {"align_corners": True}))
    return draft.result(
        kind, [x, draft.integers("size", draft.sizes(2, 16))], x.quantisation, **corners
    )


def search(draft: Draft) -> bytes:
    """Draft a search for the index of the largest element."""
    x = draft.input(draft.sizes(draft.pick((2, 3, 4))))
    axis = draft.integers("axis", np.array(draft.pick((-1, 1))))
    kind = draft.pick(("int32", "int64"))
    made = draft.builder.operator("ARG_MAX", [x, axis], None, kind, output_type=kind.upper())
    return draft.builder.model(made)


def transposed_convolution(draft: Draft) -> bytes:
    """Any window and stride."""
    height, width, stride, channels, outputs = draft.sizes(5, 4)
    x = draft.input((1, *draft.sizes(2, 6), channels))
    same = draft.random.integers(2)
    sizes = [
        size * stride if same else (size - 1) * stride + kernel
        for size, kernel in zip(x.shape[1:3], (height, width), strict=True)
    ]
    weights = draft.random.integers(-127, 128, (outputs, height, width, channels), np.int8)
    scales = tuple(map(float, draft.random.uniform(0.001, 0.02, outputs).astype(np.float32)))
    assert x.quantisation is not None
    biases = tuple(
        float(np.float32(x.quantisation.scales[0]) * np.float32(scale)) for scale in scales
    )
    shape = draft.integers("shape", [1, *sizes, outputs])
    operands = [shape, draft.builder.constant("w", weights, Quantisation(scales)), x]
    if draft.random.integers(2):
        bias = draft.random.integers(-5000, 5000, outputs).astype(np.int32)
        operands.append(draft.builder.constant("b", bias, Quantisation(biases)))
    scale = float(
        np.float32(
            np.sqrt(height * width * channels) * 73 * 75 * biases[0] / draft.random.uniform(20, 80)
        )
    )
    options = {"padding": "SAME" if same else "VALID", "stride_h": stride, "stride_w": stride}
    return draft.result("TRANSPOSE_CONV", operands, Quantisation(scale, 3), **options)


def blocks(kind: str, draft: Draft) -> bytes:
    """SPACE_TO_DEPTH, DEPTH_TO_SPACE."""
    block = draft.pick((2, 3))
    height, width, channels = draft.sizes(3, 5)
    shape = (1, height * block, width * block, channels)
    x = draft.input(
        shape if kind == "SPACE_TO_DEPTH" else (1, height, width, channels * block * block)
    )
    assert x.quantisation is not None
    return draft.result(kind, [x], x.quantisation, block_size=block)


def _of(make: Callable[[str, Draft], bytes], *kinds: str) -> dict[str, Callable[[Draft], bytes]]:
    return {kind: lambda draft, kind=kind: make(kind, draft) for kind in kinds}


DRAWN: dict[str, Callable[[Draft], bytes]] = {
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": fully_connected,
    "BATCH_MATMUL": batch_matmul,
    **_of(arithmetic, "ADD", "SUB", "MUL", "SQUARED_DIFFERENCE"),
    **_of(extreme, "MINIMUM", "MAXIMUM"),
    **_of(pool, "AVERAGE_POOL_2D", "MAX_POOL_2D"),
    **_of(reduction, "MEAN", "SUM", "REDUCE_MAX"),
    "SOFTMAX": softmax,
    **_of(
        function,
        "RELU",
        "RELU6",
        "RELU_N1_TO_1",
        "LOGISTIC",
        "TANH",
        "HARD_SWISH",
        "GELU",
        "LEAKY_RELU",
        "ABS",
        "NEG",
    ),
    **_of(function, "EXP", "LOG", "RSQRT"),
    "PRELU": prelu,
    "QUANTIZE": rescale,
    **_of(pad, "PAD", "PADV2", "MIRROR_PAD"),
    "CONCATENATION": concatenation,
    **_of(several, "SPLIT", "SPLIT_V", "UNPACK"),
    **_of(cut, "SLICE", "STRIDED_SLICE"),
    "PACK": pack,
    **_of(shaped, "RESHAPE", "SQUEEZE", "EXPAND_DIMS"),
    "TRANSPOSE": transpose,
    "GATHER": gather,
    "TILE": tile,
    **_of(resize, "RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"),
    "ARG_MAX": search,
    "TRANSPOSE_CONV": transposed_convolution,
    **_of(blocks, "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
}
"""A maker of models for every operator."""
