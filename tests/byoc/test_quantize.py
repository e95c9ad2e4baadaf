"""The quantiser turns all supported operators into integer ones and does not modify its argument.

It is deterministic and prints nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from byoc import importing
from byoc.compiler import compile as compile_network
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.frontend.onnx.units import is_quantised
from byoc.operators.onnx_view import BOUNDARIES
from byoc.quantisation import calibrate
from byoc.quantisation import samples as samples_of_quantiser
from byoc.quantisation.calibrate import default_feeds, observe_ranges, share_ranges
from byoc.quantisation.power_of_two import PowerOfTwoWriter
from byoc.quantisation.quantize import quantise, quantise_within
from byoc.runtimes import pieces
from byoc.runtimes.session import NotRunError, readable_errors
from isa.arch import Arch
from isa.errors import InputError
from tests.byoc.float_models import fused_operators, make_model, operators, random_arrays, run

node = helper.make_node


def network() -> ModelProto:
    """Return a small network with convolutions, a residual, pooling and a fully connected layer.

    Its activations are Relu, Relu6 and LeakyRelu, and it has a concatenation.
    """
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=8),
        node("Clip", ["c2", "zero", "six"], ["r2"]),
        node("Add", ["r2", "r1"], ["sum"]),
        node("Concat", ["sum", "r1"], ["cat"], axis=1),
        node("MaxPool", ["cat"], ["max"], kernel_shape=[2, 2], strides=[2, 2]),
        node("LeakyRelu", ["max"], ["leak"], alpha=0.1),
        node("AveragePool", ["leak"], ["mean"], kernel_shape=[2, 2]),
        node("GlobalAveragePool", ["mean"], ["pool"]),
        node("Flatten", ["pool"], ["flat"]),
        node("Gemm", ["flat", "w3", "b3"], ["logits"], transB=1),
        node("Softmax", ["logits"], ["y"]),
    ]
    constants = random_arrays(5, w1=[8, 3, 3, 3], b1=[8], w2=[8, 1, 3, 3], w3=[10, 16], b3=[10])
    constants |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    return prepare(make_model(nodes, [1, 3, 8, 8], constants))


def initializers(model: ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def quantisation(model: ModelProto, value: str) -> tuple[float, int]:
    """Return scale and zero point of a value.

    It is the operand of a QuantizeLinear, or the result of that one's DequantizeLinear.
    """
    arrays = initializers(model)
    for item in model.graph.node:
        if item.op_type == "QuantizeLinear" and item.input[0] == value:
            return arrays[item.input[1]].item(), arrays[item.input[2]].item()
    raise AssertionError(f"{value} is not quantised")


def test_a_constant_operand_of_one_sign_has_all_steps_on_its_side_of_zero() -> None:
    """Around zero, as weights are, it would have half of them."""
    constant = np.linspace(1, 3, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    found = initializers(
        quantise(
            prepare(make_model([node("Add", ["x", "c"], ["y"])], [1, 2, 4, 4], {"c": constant}))
        )
    )
    assert found["c_scale"].item() == np.float32(3 / 255)
    assert found["c_zero_point"].item() == -128
    assert found["c_quantized"].reshape(-1)[[0, -1]].tolist() == [85 - 128, 127]


def test_every_supported_group_is_integer(tmp_path: Path) -> None:
    assert fused_operators(quantise(network()), tmp_path) == {
        "QuantizeLinear": 1,
        "QLinearConv": 2,
        "QLinearAdd": 1,
        "QLinearConcat": 1,
        "MaxPool": 1,
        "QLinearLeakyRelu": 1,
        "QLinearAveragePool": 1,
        "QLinearGlobalAveragePool": 1,
        "Flatten": 1,
        "QGemm": 1,
        "DequantizeLinear": 1,
        "QLinearSoftmax": 1,
    }


def test_types_and_symmetry() -> None:
    arrays = initializers(quantise(network()))
    assert arrays["w1_quantized"].dtype == np.int8
    assert arrays["w1_scale"].shape == (8,)
    assert not arrays["w1_zero_point"].any()
    assert arrays["b1_quantized"].dtype == np.int32
    assert arrays["x_zero_point"].dtype == np.int8


def test_ranges_of_activations_begin_at_zero() -> None:
    model = quantise(network())
    assert quantisation(model, "r1")[1] == -128
    assert quantisation(model, "r2")[1] == -128


def test_concatenation_has_one_quantisation() -> None:
    model = quantise(network())
    assert len({quantisation(model, name) for name in ("sum", "r1", "cat", "max")}) == 1


def test_concatenation_does_not_widen_an_activation() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Concat", ["x", "r"], ["y"], axis=1),
    ]
    model = prepare(make_model(nodes, [1, 3, 4, 4], random_arrays(1, w=[4, 3, 1, 1])))
    quantised = quantise(model)
    assert quantisation(quantised, "r")[1] == -128
    assert quantisation(quantised, "x") != quantisation(quantised, "r")


@pytest.mark.parametrize("op_type", ["Min", "Max"])
def test_minimum_and_maximum_share_one_quantisation(op_type: str) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node(op_type, ["x", "c"], ["m"]),
        node("Conv", ["m", "w"], ["y"]),
    ]
    quantised = quantise(prepare(make_model(nodes, [1, 3, 4, 4], random_arrays(1, w=[3, 3, 1, 1]))))
    assert (
        quantisation(quantised, "x") == quantisation(quantised, "c") == quantisation(quantised, "m")
    )


@pytest.mark.parametrize(
    "op_type", ["Abs", "Relu", "LeakyRelu", "MaxPool", "GlobalAveragePool", "Flatten"]
)
def test_lone_operators_are_quantised(op_type: str) -> None:
    options = {"kernel_shape": [2, 2]} if op_type == "MaxPool" else {}
    quantised = quantise(
        prepare(make_model([node(op_type, ["x"], ["y"], **options)], [1, 3, 4, 4], {}))
    )
    assert operators(quantised) == {"QuantizeLinear": 2, "DequantizeLinear": 2, op_type: 1}


def test_activations_of_constants_stay_float() -> None:
    nodes = [
        node("Relu", ["c"], ["y"], name="constant"),
        node("Relu", ["x"], ["z"], name="computed"),
    ]
    model = make_model(nodes, [1, 3], random_arrays(1, c=[2, 3]))
    model.graph.output.extend([helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3])])
    assert operators(quantise(model)) == {"QuantizeLinear": 2, "DequantizeLinear": 2, "Relu": 2}


def test_masks_do_not_widen_the_range_of_what_a_softmax_reads() -> None:
    mask = np.where(np.tri(4, dtype=bool), 0, -np.float32(3e38)).astype(np.float32)
    nodes = [node("Add", ["x", "m"], ["a"]), node("Softmax", ["a"], ["y"])]
    model = prepare(make_model(nodes, [1, 3, 4, 4], {"m": mask}))
    ranges = observe_ranges(model, [{"x": np.ones((1, 3, 4, 4), np.float32)}])
    assert ranges["a"] == (-15, 1)


def test_products_of_computed_values_are_quantised() -> None:
    nodes = [node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["x", "t"], ["y"])]
    quantised = quantise(prepare(make_model(nodes, [1, 3, 4, 4], {})))
    assert [item.op_type for item in quantised.graph.node if "y" in item.output] == [
        "DequantizeLinear"
    ]


def test_a_product_of_a_tensor_without_a_type_keeps_its_bias_in_float() -> None:
    """Shape inference does not know LayerNormalization below opset 17.

    A pass that drops types loses the type of ``t``.
    """
    nodes = [
        node("LayerNormalization", ["x", "g", "h"], ["t"], axis=-1),
        node("Conv", ["t", "w", "b"], ["y"]),
    ]
    constants = random_arrays(1, w=[5, 3, 1, 1], b=[5], g=[4], h=[4])
    prepared = prepare(make_model(nodes, [1, 3, 4, 4], constants, opset=13))
    del prepared.graph.value_info[:]
    quantised = quantise(prepared)
    assert operators(quantised)["Conv"] == 1
    (conv,) = (item for item in quantised.graph.node if item.op_type == "Conv")
    assert conv.input[0] == "t"
    assert "b" in {tensor.name for tensor in quantised.graph.initializer} & set(conv.input)
    feeds = next(iter(default_feeds(prepared, 0)))
    (exact,), (found,) = run(prepared, feeds), run(quantised, feeds)
    assert np.abs(exact - found).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize(("limits", "clamps"), [((-1, 1), 0), ((0, 6), 0), ((0.5, 6), 1)])
def test_limits_on_one_side_of_zero_stay_float(limits: tuple[float, float], clamps: int) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Clip", ["c", "low", "high"], ["k"]),
        node("Conv", ["k", "w"], ["y"]),
    ]
    constants = {
        **random_arrays(1, w=[3, 3, 1, 1]),
        "low": np.float32(limits[0]),
        "high": np.float32(limits[1]),
    }
    quantised = quantise(prepare(make_model(nodes, [1, 3, 4, 4], constants)))
    assert operators(quantised)["Clip"] == clamps


def test_product_with_constant_is_integer(tmp_path: Path) -> None:
    model = prepare(
        make_model([node("MatMul", ["x", "w"], ["y"])], [5, 4], random_arrays(1, w=[4, 3]))
    )
    assert fused_operators(quantise(model), tmp_path)["QLinearMatMul"] == 1


def test_deterministic_quiet_and_without_side_effects(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = network()
    saved = model.SerializeToString(deterministic=True)
    disabled = logging.root.manager.disable
    handlers = list(logging.getLogger().handlers)
    first = quantise(model, seed=3)
    second = quantise(model, seed=3)
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )
    assert model.SerializeToString(deterministic=True) == saved
    assert quantise(model, seed=4).SerializeToString(deterministic=True) != first.SerializeToString(
        deterministic=True
    )
    assert (logging.root.manager.disable, logging.getLogger().handlers) == (disabled, handlers)
    assert not list(tmp_path.iterdir())
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    onnx.checker.check_model(first, full_check=True)


def test_calibration_decides_the_scale() -> None:
    model = prepare(make_model([node("Abs", ["x"], ["y"])], [1, 4], {}))
    feed = {"x": np.array([[-1.0, 0.0, 1.0, 4.1]], np.float32)}
    quantised = quantise(model, [feed])
    scale, zero_point = quantisation(quantised, "x")
    # 255 steps from -1 to 4.1; zero lies 1 / 0.02 = 50 steps above -128.
    assert scale == pytest.approx(0.02)
    assert zero_point == -78
    np.testing.assert_allclose(run(quantised, feed)[0], [[1, 0, 1, 4.1]], atol=0.02)


def test_numbers_are_counted_before_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    monkeypatch.setenv("DLA_MAX_MEMORY", "1K")
    with pytest.raises(
        InputError,
        match=r"numbers for input 'x': too large, it takes about .*a higher --max-memory",
    ):
        next(default_feeds(model, 0))


def test_memory_that_onnxruntime_does_not_get_is_no_fault_of_the_model() -> None:
    error = type("Fail", (Exception,), {"__module__": "onnxruntime.capi"})
    with (
        pytest.raises(
            InputError, match=r"too little memory for the model \(std::bad_alloc\); give a smaller"
        ) as found,
        readable_errors(),
    ):
        raise error(
            "Non-zero status code returned while running Conv node. Status Message: : "
            "std::bad_alloc"
        )
    assert not isinstance(found.value, NotRunError)


def test_large_tensors_are_reduced_to_the_same_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    feeds = list(default_feeds(model, 0))
    ranges = observe_ranges(model, feeds)
    monkeypatch.setattr(calibrate, "SHARED_BYTES", 1)
    assert observe_ranges(model, feeds) == ranges


def test_pieces_return_large_tensors_only_to_other_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other large tensors are only reduced, so that they are not all in memory at once."""
    model = network()
    feeds = list(default_feeds(model, 0))
    ranges = observe_ranges(model, feeds)
    monkeypatch.setattr(calibrate, "SHARED_BYTES", 1)
    monkeypatch.setattr(pieces, "MIN_NODES", 1)
    monkeypatch.setattr(pieces, "NODES_PER_PIECE", 5)
    returned: list[set[str]] = []
    observer = calibrate._observer

    def record(piece: ModelProto, shown: Sequence[ValueInfoProto], *rest: Any) -> pieces.Run:
        returned.append({value.name for value in shown})
        return observer(piece, shown, *rest)

    monkeypatch.setattr(calibrate, "_observer", record)
    assert observe_ranges(model, feeds) == ranges
    assert returned == [{"sum", "r1"}, {"pool"}, {"logits", "y"}]


HIDDEN = np.triu(np.ones((1, 6, 6), np.float32), 1)
MASKS: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "constant": ([node("Add", ["x", "mask"], ["s"])], {}),
    "subtracted": ([node("Sub", ["x", "minus"], ["s"])], {}),
    "of truths": (
        [node("Where", ["truths", "low", "zero"], ["m"]), node("Add", ["m", "x"], ["s"])],
        {"truths": HIDDEN > 0, "zero": np.float32(0)},
    ),
    "computed": ([node("Mul", ["hide", "low"], ["m"]), node("Add", ["x", "m"], ["s"])], {}),
    "computed and moved": (
        [
            node("Mul", ["hide", "low"], ["h"]),
            node("Transpose", ["h"], ["t"], perm=[0, 2, 1]),
            node("Transpose", ["t"], ["m"], perm=[0, 2, 1]),
            node("Add", ["x", "m"], ["s"]),
            node("Abs", ["x"], ["a"]),
            node("Add", ["m", "a"], ["b"]),
            node("Softmax", ["b"], ["other"]),
        ],
        {},
    ),
}


@pytest.mark.parametrize("low", [-1e4, -1e9, float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize("kind", MASKS)
def test_masks_that_are_added_leave_room_for_what_they_mask(kind: str, low: float) -> None:
    """Scores of -3 to 3 keep steps of at most a tenth, and masked scores vanish.

    The number that the mask uses for infinity makes no difference.
    """
    if "computed" in kind and np.isinf(low):
        low = -1e30  # infinity times 0 is no number
    nodes, more = MASKS[kind]
    with np.errstate(invalid="ignore"):
        mask = np.where(HIDDEN > 0, np.float32(low), np.float32(0))
    constants = {"mask": mask, "minus": -mask, "low": np.float32(low), **more}
    reads = {name for item in nodes for name in item.input}
    outputs = ["y", *(["other"] if "moved" in kind else [])]
    inputs = ["x", *(["hide"] if "hide" in reads else [])]
    used = {name: array for name, array in constants.items() if name in reads}
    nodes = [*nodes, node("Softmax", ["s"], ["y"])]
    model = prepare(make_model(nodes, [1, 6, 6], used, inputs=inputs, outputs=outputs))
    feed = {"x": np.random.default_rng(0).uniform(-3, 3, (1, 6, 6)).astype(np.float32)}
    feed |= {"hide": HIDDEN} if "hide" in inputs else {}
    quantised = quantise(model, [feed])
    assert quantisation(quantised, "s")[0] < 0.1
    for found, wanted in zip(run(quantised, feed), run(model, feed), strict=True):
        np.testing.assert_allclose(found, wanted, atol=0.04)
        assert (found[HIDDEN > 0] == 0).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_element_of_a_large_tensor_that_is_not_finite_is_found(wrong: float) -> None:
    model = prepare(
        make_model([node("Neg", ["x"], ["n"]), node("Abs", ["n"], ["y"])], [1, 1 << 18], {})
    )
    feed = {"x": np.arange(1 << 18, dtype=np.float32).reshape(1, -1)}
    feed["x"][0, 1000] = wrong
    with pytest.raises(
        InputError,
        match=r"tensor 'n' ranges from .* on the calibration data, which int8 cannot hold",
    ):
        observe_ranges(model, [feed])


def test_no_calibration_data_is_an_error() -> None:
    with pytest.raises(ValueError, match="no calibration data: give at least one feed"):
        quantise(network(), [])


def test_empty_ranges_are_widened() -> None:
    model = prepare(make_model([node("Relu", ["x"], ["y"])], [1, 4], {}))
    ranges = observe_ranges(model, [{"x": np.full((1, 4), -2, np.float32)}])
    assert ranges == {"x": (-2.0, 0.0), "y": (0.0, 1.0)}
    assert share_ranges(model, ranges) == ranges


def test_a_concatenation_shares_the_range_of_all_its_operands() -> None:
    model = make_model([node("Concat", ["a", "b"], ["y"], axis=1)], [1, 4], {})
    shared = share_ranges(model, {"a": (-1.0, 3.0), "b": (-2.0, 1.0), "y": (-2.0, 3.0)})
    assert shared == dict.fromkeys(("a", "b", "y"), (-2.0, 3.0))


class _End(float):
    """End of a range; counts how often ends are compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        _End.compared += 1
        return float(self) < float(other)

    def __gt__(self, other: float) -> bool:
        _End.compared += 1
        return float(self) > float(other)


@pytest.mark.parametrize("kinds", [("Flatten", "MaxPool"), ("Max", "Max"), ("Max", "Flatten")])
def test_ranges_of_a_chain_are_shared_in_linear_time(kinds: tuple[str, str]) -> None:
    """Ranges of a chain are shared in linear time.

    A merge that visits every tensor of its group again makes the import of a long LSTM quadratic.
    """
    counts = []
    for length in (50, 200):
        names = [f"t{number}" for number in range(length + 1)]
        nodes = [node(kinds[at % 2], [names[at]], [names[at + 1]]) for at in range(length)]
        ranges = {name: (_End(0), _End(number)) for number, name in enumerate(names)}
        _End.compared = 0
        shared = share_ranges(make_model(nodes, [1, 4], {}), ranges)
        counts.append(_End.compared)
        assert shared == dict.fromkeys(names, (0, length))
    assert counts[1] <= 5 * counts[0]


def test_means_that_cancel_get_steps_that_onnxruntime_accepts() -> None:
    """The mean of cancelling values gets a step that ONNX Runtime accepts.

    A mean of a millionth of the range would get a scale that QLinearGlobalAveragePool rejects.
    """
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Add", ["a", "x"], ["s"]),
        node("Add", ["s", "c"], ["z"]),
    ]
    nodes += [node("GlobalAveragePool", ["z"], ["m"]), node("Flatten", ["m"], ["y"])]
    # z is (0, 2, 6, 0) - 2: its mean is nothing but c's rounding
    plane = np.array([[[[-3, 1], [3, -1]]]], np.float32)
    model = prepare(
        make_model(nodes, [1, 1, 2, 2], {"c": np.full((1, 1, 2, 2), np.float32(-2 + 4e-6))})
    )
    ranges = share_ranges(model, observe_ranges(model, [{"x": plane}]))
    assert ranges["m"] == ranges["y"]
    assert ranges["m"][0] == 0
    assert ranges["m"][1] == np.float32((ranges["z"][1] - ranges["z"][0]) / np.float32(255))
    assert np.isfinite(run(quantise(model, [{"x": plane}]), {"x": plane})[0]).all()


def test_default_feeds_are_seeded() -> None:
    model = network()
    first, second = (list(default_feeds(model, 7)) for _ in range(2))
    assert len(first) == 4
    assert all((a["x"] == b["x"]).all() for a, b in zip(first, second, strict=True))
    assert first[0]["x"].dtype == np.float32


def test_drawn_truths_are_of_both_kinds() -> None:
    model = make_model([helper.make_node("Where", ["m", "x", "x"], ["y"])], (4, 5), {})
    model.graph.input.append(helper.make_tensor_value_info("m", TensorProto.BOOL, (4, 5)))
    assert set(np.unique(next(default_feeds(model, 0))["m"])) == {False, True}


def test_is_quantised() -> None:
    assert not is_quantised(network())
    assert is_quantised(quantise(network()))


def test_a_channel_that_is_all_bias_leaves_room_for_its_sums() -> None:
    """A channel with weights of 1e-9 and a bias of 1 leaves room for its sums.

    The step of its products would bring the bias to the end of int32.
    """
    constants = random_arrays(0, w=(4, 3, 3, 3), b=(4,))
    constants["w"][2] *= np.float32(1e-9)
    constants["b"][2] = 1.0
    model = make_model([helper.make_node("Conv", ["x", "w", "b"], ["y"])], (1, 3, 8, 8), constants)
    integers = [
        array
        for array in initializers(quantise(prepare(model))).values()
        if array.dtype == np.int32
    ]
    assert (
        1 << 28
        < max(abs(int(array.min())) + abs(int(array.max())) for array in integers)
        <= 1 << 30
    )


def test_a_sum_shares_its_power_of_two_through_a_chain_of_clamps() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Add", ["x", "a"], ["sum"]),
        node("Relu", ["sum"], ["r"]),
        node("Clip", ["r", "zero", "six"], ["c"]),
        node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2]),
    ]
    constants = {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    model = make_model(nodes, [1, 2, 4, 4], constants)
    ranges = {
        name: (np.float32(0), np.float32(high))
        for name, high in {"x": 100, "a": 100, "sum": 110, "r": 110, "c": 6, "y": 6}.items()
    }
    found = quantise_within(model, ranges, writer=PowerOfTwoWriter)
    assert quantisation(found, "c") == quantisation(found, "x") == (1, 0)


def test_rows_of_a_table_stay_float() -> None:
    """A table of words stays float.

    Otherwise a run would dequantise all of it for the rows of one sentence.
    """
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("MatMul", ["rows", "w"], ["y"]),
        ],
        "words",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(array, name)
            for name, array in random_arrays(0, table=[50, 8], w=[8, 4]).items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    made = {node.output[0]: node for node in quantise(prepare(model)).graph.node}
    assert made["rows"].input[0] == "table"


def test_large_samples_are_not_kept_for_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [{"x": np.full(4, number, np.float32)} for number in range(5)]
    kept = {}
    for most in (1, 1 << 20):
        monkeypatch.setattr(samples_of_quantiser, "MOST_KEPT_BYTES", most)
        samples = samples_of_quantiser.CalibrationSamples(
            lambda model: iter(drawn), lambda count: None
        )
        samples.first(onnx.ModelProto())
        assert list(samples.all()) == drawn
        kept[most] = samples.kept
    assert kept == {1: drawn[:1], 1 << 20: drawn}


@pytest.mark.parametrize("op_type", ["GroupNormalization", "FastGelu"])
def test_what_onnx_infers_no_shape_of_is_quantised_and_all_behind_it(op_type: str) -> None:
    """Operators whose shape ONNX does not infer are quantised, and so are their consumers.

    Without shapes the quantiser found no scale for a later bias, or never ended its search for that
    of a mean.
    """
    constants = random_arrays(5, gain=[4], bias=[4], w=[3, 4, 1, 1], b=[3])
    known = op_type == "GroupNormalization"
    odd = ["x", "gain", "bias"] if known else ["x"]
    nodes = [
        node(
            op_type, odd, ["odd"], **({"num_groups": 2} if known else {"domain": "com.microsoft"})
        ),
        node("ReduceSum", ["odd", "axes"], ["sum"], keepdims=1),
        node("Conv", ["sum", "w", "b"], ["y"]),
    ]
    model = make_model(nodes, [1, 4, 3, 6], {**constants, "axes": np.array([2])})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    package = importing.import_model(model, op_type)
    types = {item.op_type for item in package.graph.nodes}
    assert {"ReduceSum", "Conv"} < types
    placed = compile_network(package, Arch(isa="v4")).partition.placement
    assert {place.on for place in placed if place.op_type not in BOUNDARIES} == {"dla"}
