"""Models that passes must leave alone, and names that they must not take.

Such models compute the same results once imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from byoc.checking.fidelity import trial_feed
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.host.sessions import Oracle
from byoc.importing import import_model
from byoc.runtimes.session import OnnxRuntimeSession
from tests.byoc.float_models import make_model, random_arrays, run
from tests.byoc.small_models import ModelBuilder

node = helper.make_node


def check_imported(model: ModelProto) -> None:
    """The package of a quantised model computes its outputs to the bit.

    It has been held to the model.
    """
    package = import_model(model, "m")
    assert package.fidelity is not None
    assert package.fidelity.difference < 1
    for seed in range(3):
        feeds = trial_feed(model, seed)
        wanted = OnnxRuntimeSession(model).run([value.name for value in model.graph.output], feeds)
        found = Oracle(package.model, package.graph, package.graph.outputs).values(feeds)
        for old, new in zip(wanted.values(), found.values(), strict=True):
            np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("biased", [False, True])
def test_weights_with_leading_ones_become_matrices_under_another_name(biased: bool) -> None:
    """A tensor that keeps its name keeps its shape, because it is compared."""
    builder = ModelBuilder()
    random = np.random.default_rng(0)
    x = builder.dequantize(builder.input("x", (1, 2, 3, 12), "int8"), 0.05, 3)
    y = builder.node(
        "MatMul",
        x,
        builder.weights(random.integers(-127, 128, (1, 1, 12, 4)).astype(np.int8), 0.01),
    )
    y = (
        builder.node("Add", y, builder.constant(random.standard_normal(4), "float32"))
        if biased
        else y
    )
    builder.quantize(y, 0.1, 3, result="y")
    builder.output("y", "int8")
    check_imported(builder.model())


def test_what_stays_float_beside_dequantised_weights_is_not_rounded() -> None:
    """A float product with dequantised weights is not rounded.

    ONNX Runtime's own default rounds its data to 8 bits: 0.09 of numbers around 1.
    """
    builder = ModelBuilder()
    random = np.random.default_rng(0)
    integers = random.integers(-127, 128, (64, 8)).astype(np.int8)
    builder.output(
        builder.node(
            "MatMul", builder.input("x", (4, 64)), builder.weights(integers, 0.01), result="y"
        )
    )
    x = random.standard_normal((4, 64)).astype(np.float32)
    found = OnnxRuntimeSession(builder.model()).run(["y"], {"x": x})["y"]
    np.testing.assert_allclose(found, x @ (integers * np.float32(0.01)), rtol=0, atol=1e-5)


def _padded(first: bool, zero_points: tuple[int, int]) -> ModelProto:
    """Return a Pad between DequantizeLinear and QuantizeLinear, before a Conv.

    The first DequantizeLinear has its zero point if ``first`` is True.
    """
    builder = ModelBuilder()
    scale = builder.constant(0.1, "float32")
    zeros = [builder.constant(zero, "int8") for zero in zero_points]
    real = builder.node(
        "DequantizeLinear", builder.input("x", (1, 2, 6, 6), "int8"), scale, *zeros[:1] * first
    )
    padded = builder.node("Pad", real, builder.constant([0, 0, 1, 1, 0, 0, 1, 1], "int64"))
    again = builder.node(
        "DequantizeLinear", builder.node("QuantizeLinear", padded, scale, zeros[1]), scale, zeros[1]
    )
    weights = np.random.default_rng(0).integers(-127, 128, (3, 2, 3, 3)).astype(np.int8)
    builder.quantize(
        builder.node("Conv", again, builder.weights(weights, 0.01)), 0.5, 0, result="y"
    )
    builder.output("y", "int8")
    return builder.model()


@pytest.mark.parametrize(
    ("first", "zero_points"), [(False, (0, 40)), (False, (0, 0)), (True, (0, 40)), (True, (40, 40))]
)
def test_padding_in_another_quantisation_stays(first: bool, zero_points: tuple[int, int]) -> None:
    check_imported(_padded(first, zero_points))


def _constants(**arrays: Sequence[float]) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(values, np.float32) for name, values in arrays.items()}


_X4 = (1, 4, 8, 8)
_X5 = (1, 2, 4, 5, 6)
_RNG = np.random.default_rng(0)
_KERNEL = {"w": _RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)}
_CUBE = {"w": _RNG.standard_normal((3, 2, 2, 2, 2)).astype(np.float32)}
MADE_UP: dict[str, tuple[tuple[int, ...], list[NodeProto], dict[str, NDArray[Any]]]] = {
    "scatter": (
        (4, 3),
        [node("ScatterND", ["x", "i", "u"], ["y"])],
        {"i": np.array([[2]]), "u": np.ones((1, 3), np.float32)},
    ),
    "resize-products": (_X4, [node("Resize", ["x", "", "s"], ["y"], mode="linear")],
                        _constants(s=[1, 1, 1.5, 2])),
    "resize-taps": (_X4, [node("Resize", ["x", "", "s"], ["y"], mode="linear")],
                    _constants(s=[1, 1, 2, 2])),
    "resize-beyond": (
        _X4,
        [
            node(
                *("Resize", ["x", "r", "s"], ["y"]),
                mode="linear",
                coordinate_transformation_mode="tf_crop_and_resize",
                extrapolation_value=3.0,
            )
        ],
        _constants(s=[1, 1, 2, 2], r=[0, 0, 0, 0, 1, 1, 2, 2]),
    ),
    "average": (_X4, [node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2],
                           pads=[1] * 4)], {}),
    "power": (_X4, [node("LpPool", ["x"], ["y"], kernel_shape=[2, 2], p=3)], {}),
    "sum-of-squares": (_X4, [node("ReduceL2", ["x"], ["y"])], {}),
    "log-softmax": (_X4, [node("LogSoftmax", ["x"], ["y"])], {}),
    "across-channels": (_X4, [node("LRN", ["x"], ["y"], size=3)], {}),
    "slopes": (_X4, [node("PRelu", ["x", "s"], ["y"])],
               {"s": _RNG.standard_normal((4, 8, 8)).astype(np.float32)}),
    "deviation": (
        _X4,
        [node("LayerNormalization", ["x", "g"], ["z", "", "d"]), node("Add", ["z", "d"], ["y"])],
        _constants(g=[1] * 8),
    ),
    "transposed": (_X4, [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])], _KERNEL),
    "transposed-uneven": (_X4, [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 3])], _KERNEL),
    "volume": (_X5, [node("Conv", ["x", "w"], ["y"])], _CUBE),
    "volume-pool": (_X5, [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2, 2])], {}),
    "product": ((1, 3, 8), [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])],
                {"w": np.ones((8, 2), np.float32), "b": np.ones(2, np.float32)}),
    "gemm": ((3, 3), [node("Gemm", ["x", "w", "x"], ["y"], beta=2.0, transA=1)],
             {"w": np.ones((3, 3), np.float32)}),
    "clamps": (_X4, [node("Concat", ["x", "x"], ["c"], axis=1), node("Relu", ["c"], ["y"])], {}),
    "norm": (
        _X4,
        [
            node("ReduceMean", ["x", "axes"], ["m"]),
            node("Sub", ["x", "m"], ["d"]),
            node("Mul", ["d", "d"], ["q"]),
            node("ReduceMean", ["q", "axes"], ["v"]),
            node("Add", ["v", "e"], ["k"]),
            node("Sqrt", ["k"], ["r"]),
            node("Div", ["d", "r"], ["y"]),
        ],
        {"axes": np.array([1]), "e": np.array(1e-5, np.float32)},
    ),
    "lstm": (
        (3, 1, 4),
        [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)],
        {"w": np.ones((1, 8, 4), np.float32), "r": np.ones((1, 8, 2), np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MADE_UP)
def test_names_that_passes_make_up_are_nobodys(case: str) -> None:
    """Passes do not collide with a model that already uses all their generated names.

    Those tensors have other shapes.
    """
    shape, nodes, constants = MADE_UP[case]
    plain = make_model(nodes, shape, constants)
    own = {
        name for each in (*plain.graph.node, *plain.graph.initializer) for name in _made(each)
    } | {"x"}
    made_up = sorted({name for each in prepare(plain).graph.node for name in each.output} - own)
    assert made_up
    others = [node("Neg", [name], [f"{name}!"]) for name in made_up]
    model = make_model(
        [*nodes, *others], shape, constants, outputs=("y", *(f"{name}!" for name in made_up))
    )
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [7]) for name in made_up
    )
    feeds = random_arrays(1, x=shape, **dict.fromkeys(made_up, (7,)))
    for old, new in zip(run(model, feeds), run(prepare(model), feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


def _made(each: NodeProto | TensorProto) -> Sequence[str]:
    return each.output if isinstance(each, NodeProto) else [each.name]


_FLOAT, _DOUBLE, _I32, _I8, _U8 = (
    getattr(TensorProto, n) for n in ("FLOAT", "DOUBLE", "INT32", "INT8", "UINT8")
)
_DOUBLES = {"w": np.arange(8.0).reshape(4, 2), "b": np.arange(6.0).reshape(3, 2)}
_BOTH = {"s": np.array([12, 18])}


def _resize(**attributes: Any) -> NodeProto:
    return node("Resize", ["x", "", "", "s"], ["r"], mode="linear", **attributes)


@pytest.mark.parametrize(
    ("kind", "shape", "made", "constants"),
    [
        *((kind, (1, 2, 6, 6), _resize(axes=[2, 3]), _BOTH) for kind in (_U8, _I8, _I32)),
        *(
            (_FLOAT, (1, 2, 6, 6), _resize(axes=[2, 3], keep_aspect_ratio_policy=policy), _BOTH)
            for policy in ("not_larger", "not_smaller")
        ),
        *(
            (_I32, (2, 8), node(kind, ["x"], ["r"]), {})
            for kind in ("ReduceL1", "ReduceL2", "ReduceLogSumExp")
        ),
        (
            _DOUBLE,
            (2, 8),
            node("LayerNormalization", ["x", "g"], ["r", "", "d"]),
            {"g": np.ones(8)},
        ),
        (
            _DOUBLE,
            (4, 3),
            node("Gemm", ["x", "w", "b"], ["r"], alpha=2.0, beta=3.0, transA=1),
            _DOUBLES,
        ),
    ],
)
def test_what_passes_cannot_write_otherwise_stays(
    kind: int, shape: tuple[int, ...], made: NodeProto, constants: dict[str, NDArray[Any]]
) -> None:
    """Float models that passes cannot rewrite give ONNX Runtime's results.

    Their types are not float32, or they depend on other dimensions.
    """
    ends = [name for name in made.output if name]
    model = make_model(
        [made, *(node("Cast", [name], [f"{name}:real"], to=_FLOAT) for name in ends)],
        shape,
        constants,
        outputs=[f"{name}:real" for name in ends],
    )
    model.graph.input[0].type.tensor_type.elem_type = kind
    feeds = trial_feed(model, 0)
    wanted = run(model, feeds)
    package = import_model(model, "m")
    assert package.fidelity is not None
    assert package.fidelity.left_out == ()
    for old, new in zip(wanted, run(prepare(model), feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6)


def _product(kind: str, behind: Sequence[str], outputs: Sequence[int]) -> ModelProto:
    """Return a quantised Conv or Gemm with a float bias.

    ``behind`` lists the following operators; each ``Q`` quantises the latest value into an output.
    """
    builder = ModelBuilder()
    random = np.random.default_rng(1)
    shape, weights = ((1, 4, 6, 6), (3, 4, 3, 3)) if kind == "Conv" else ((2, 4), (4, 3))
    operands = (
        builder.dequantize(builder.input("x", shape, "int8"), 0.05, 3),
        builder.weights(random.integers(-127, 128, weights).astype(np.int8), 0.01),
        builder.constant(random.standard_normal(3), "float32"),
    )
    values = [builder.node(kind, *operands)]
    for op_type in behind:
        if op_type == "Q":
            q = builder.quantize(values[-1], 0.25 * len(builder.nodes), -128)
            builder.output(q, "int8")
        else:
            values.append(builder.node(op_type, values[-1]))
    for number in outputs:
        builder.output(values[number])
    return builder.model()


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
@pytest.mark.parametrize("behind", [("Q",), ("Relu", "Q")])
def test_a_float_bias_is_rounded_where_onnx_runtime_does(kind: str, behind: Sequence[str]) -> None:
    check_imported(_product(kind, behind, ()))


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
@pytest.mark.parametrize(
    ("behind", "outputs"),
    [
        (("Q",), (0,)),
        *((("Relu", "Q"), outputs) for outputs in ((1,), (0,))),
        *((behind, (0,)) for behind in ((), ("Q", "Q"))),
        *((behind, (1,)) for behind in (("Relu",), ("Q", "Relu"), ("Softmax",))),
    ],
)
def test_a_product_with_a_float_result_gets_a_scale(
    kind: str, behind: Sequence[str], outputs: Sequence[int]
) -> None:
    """The result, which the file leaves in float, is near the file's."""
    model = _product(kind, behind, outputs)
    package = import_model(model)
    assert isinstance(package.model, ModelProto)
    assert package.fidelity is not None
    assert package.fidelity.calibration is not None
    assert package.fidelity.calibration.added is not None
    assert package.fidelity.calibration.added.activations > 0
    feeds = trial_feed(model, 0)
    for wanted, found in zip(run(model, feeds), run(package.model, feeds), strict=True):
        real = wanted.astype(np.float64)
        noise = np.square(real - found.astype(np.float64)).sum()
        assert noise <= np.square(real).sum() / 10**2.5  # 25 dB


_MOVERS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "DepthToSpace": ((), {"blocksize": 2}),
    "SpaceToDepth": ((), {"blocksize": 2}),
    "Pad": (([0, 0, 1, 1, 0, 0, 1, 1],), {}),
    "Slice": (([0], [2], [-1]), {}),
    "Tile": (([1, 2, 1, 2],), {}),
}


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("mover", _MOVERS)
def test_integers_of_any_width_are_moved_or_stay(mover: str, dtype: str, up: bool) -> None:
    builder = ModelBuilder()
    (constants, attributes) = _MOVERS[mover]
    shape = (1, 4, 4, 4)
    parameters = [builder.constant(values, "int64") for values in constants]
    if up:
        moved = builder.node(mover, builder.input("x", shape), *parameters, **attributes)
        builder.quantize(moved, 0.05, 3, dtype, result="y")
    else:
        real = builder.dequantize(builder.input("x", shape, dtype), 0.05, 3, dtype)
        builder.node("Neg", builder.node(mover, real, *parameters, **attributes), result="y")
    builder.output("y", dtype if up else "float32")
    check_imported(builder.model())


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "zero_points", [(True, True), (True, False), (False, True), (False, False)]
)
def test_functions_of_integers_may_go_without_zero_points(
    dtype: str, zero_points: tuple[bool, bool]
) -> None:
    builder = ModelBuilder()
    operands = [builder.input("x", (2, 8), dtype)]
    for scale, given in zip((0.05, 1 / 256), zero_points, strict=True):
        operands += [
            builder.constant(scale, "float32"),
            builder.constant(3, dtype) if given else "",
        ]
    builder.node("QLinearSigmoid", *operands, domain="com.microsoft", result="y")
    builder.output("y", dtype)
    check_imported(builder.model())
