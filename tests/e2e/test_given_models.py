"""Models of users: a run gives what the file defines, and the check reports what it compared.

The files in ``tests/cases`` are the smallest found by trying that once went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import experiments
from byoc import importing
from byoc.checking import fidelity
from byoc.compiler import compile as compile_network
from byoc.frontend.onnx.rewriting import form, linear
from byoc.host.runtime import Runtime
from byoc.host.sessions import PartSession, Tensors, opener
from byoc.package.package import load_package, save_package
from byoc.runtimes.session import OnnxRuntimeSession
from dla_sim.device import Device
from experiments.report.schema import RunReport
from isa.arch import Arch
from isa.errors import InputError
from tests.byoc.float_models import make_model, random_arrays
from tests.e2e.given_models import verdicts
from tests.rotation import rotate

CASES = Path(__file__).parents[1] / "cases"
INPUTS = {
    "preact": "x",
    "gemm": "x4",
    "func": "x",
    "ceil_inner": "x6",
    "double": "all",
    "mixed": "mixed",
}
FLOAT = ("preact", "gemm", "func", "ceil_f", "ceil_inner", "loop", "inout", "soft")
QUANTISED = ("same6", "same_avg", "double", "mixed", "false")
BOUNDED = ("lb_8_2", "lb_64_4", "lb_9_8")


def _report(name: str, **choices: Any) -> RunReport:
    given = CASES / f"{INPUTS[name]}.npy" if name in INPUTS else None
    return experiments.run(CASES / f"{name}.onnx", inputs=given, **choices).report


def _outputs(name: str) -> tuple[list[NDArray[np.generic]], list[NDArray[np.generic]]]:
    """Return the outputs of the simulated machine and of unmodified ONNX Runtime, in order."""
    model = onnx.load(CASES / f"{name}.onnx")
    feed = fidelity.trial_feed(model, 3)
    if name in INPUTS:
        feed = {next(iter(feed)): np.load(CASES / f"{INPUTS[name]}.npy")}
    package = importing.import_model(model, name, calibration=None if name in QUANTISED else [feed])
    run = Runtime(compile_network(package, Arch()), Device(Arch())).run(feed)
    wanted = OnnxRuntimeSession(model, optimised=name in QUANTISED)
    names = [value.name for value in model.graph.output]
    expected = wanted.run(names, feed)
    return list(run.outputs.values()), [expected[output] for output in names]


@pytest.mark.parametrize("name", FLOAT)
def test_a_float_model_gives_what_its_file_says_as_far_as_eight_bits_can(name: str) -> None:
    for found, wanted in zip(*_outputs(name), strict=True):
        assert found.shape == wanted.shape
        spread = float(np.ptp(wanted))
        assert float(np.abs(found - wanted).max()) <= 0.05 * spread


@pytest.mark.parametrize("name", ["same6", "same_avg", "double"])
def test_a_quantised_model_gives_what_its_file_says_to_the_bit(name: str) -> None:
    for found, wanted in zip(*_outputs(name), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_operator_between_two_types_gives_what_its_file_says_but_for_ties() -> None:
    """ONNX Runtime computes it in float, the accelerator on integers."""
    ((found,), (wanted,)) = _outputs("mixed")
    model = onnx.load(CASES / "mixed.onnx")
    (quantize,) = (
        node for node in model.graph.node if node.output[0] == model.graph.output[0].name
    )
    (scale,) = (
        numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.name == quantize.input[1]
    )
    feed = {model.graph.input[0].name: np.load(CASES / "mixed.npy")}
    real = OnnxRuntimeSession(model, optimised=False, further=quantize.input[:1]).run(
        quantize.input[:1], feed
    )
    steps = np.abs(found.astype(np.int32) - wanted.astype(np.int32))
    halves = np.abs(np.abs(real[quantize.input[0]].astype(np.float64)) / scale % 1 - 0.5)
    assert steps.max() == 1
    assert halves[steps > 0].max() <= fidelity.TOLERANCE * 255


@pytest.mark.parametrize("name", [*FLOAT, *QUANTISED, *BOUNDED])
def test_no_false_alarm_and_no_silence(name: str) -> None:
    report = _report(name)
    assert report.check.mismatches == 0
    if name.startswith("same"):  # ONNX Runtime runs such pools as integer operators alone
        assert report.fidelity is None
    else:
        assert report.fidelity is not None
        assert report.fidelity.difference <= fidelity.TOLERANCE
        assert report.fidelity.elements > 0
        ties = (
            name == "mixed" and report.fidelity.file is not None and not report.fidelity.file.beyond
        )
        assert (
            report.fidelity.integer == (0.0 if name in QUANTISED else None)
            or name in BOUNDED
            or ties
        )
    assert report.totals.cycles >= report.totals.lower_bound_cycles
    assert report.check.regions == len(
        {place.region for place in report.placement if place.on == "dla"}
    )


def test_what_the_cpu_computes_otherwise_in_parts_is_counted_and_no_mismatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A float result of a CPU part that rounds differently is counted but is no mismatch."""

    class OffByOneBit:
        """Session of a part whose float results are the next larger floats."""

        def __init__(self, part: PartSession) -> None:
            self._part = part

        def run(self, tensors: Tensors) -> dict[str, NDArray[Any]]:
            found = self._part.run(tensors)
            return {
                name: np.nextafter(one, np.float32(2)) if one.dtype == np.float32 else one
                for name, one in found.items()
            }

    def open_otherwise(*given: Any) -> Callable[..., OffByOneBit]:
        opened = opener(*given)
        return lambda inputs, outputs: OffByOneBit(opened(inputs, outputs))

    monkeypatch.setattr("byoc.host.runtime.opener", open_otherwise)
    source = """<ir_version: 10, opset_import: ["" : 21]>
        ends_in_float (int8[1, 256] x) => (float[1, 256] y) <float scale = {0.01}, int8 zero = {0}>
        { r = DequantizeLinear(x, scale, zero)  p = Relu(r)  q = QuantizeLinear(p, scale, zero)
          s = DequantizeLinear(q, scale, zero)  y = Tanh(s) }"""
    onnx.save(onnx.parser.parse_model(source), tmp_path / "ends.onnx")
    report = experiments.run(tmp_path / "ends.onnx", isa="v3").report
    assert report.check.outputs is not None
    assert report.check.outputs.differences > 0
    assert not report.check.outputs.exact
    assert report.check.mismatches == 0


def test_without_a_region_nothing_is_called_checked() -> None:
    report = _report("mixed", cpu=["*"])
    assert (report.check.regions, report.check.tensors, report.check.elements) == (0, 0, 0)


def test_a_wrong_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that takes every Relu for an Identity: the import stops and says which pass it was."""

    def forget_relus(model: onnx.ModelProto) -> onnx.ModelProto:
        result = form.copy_model(model)
        for node in result.graph.node:
            node.op_type = "Identity" if node.op_type == "Relu" else node.op_type
        return result

    _add_pass(monkeypatch, forget_relus)
    with pytest.raises(
        fidelity.PassError,
        match=r"^the pass forget_relus changes tensor 'y' by \d\.\d+ of its range",
    ):
        importing.import_model(CASES / "preact.onnx")


def _add_pass(monkeypatch: pytest.MonkeyPatch, wrong: importing.Pass) -> None:
    """Let a pass be the second of those that models go through."""
    steps = importing.passes

    def with_a_bug(model: onnx.ModelProto, shapes: object = None) -> tuple[importing.Pass, ...]:
        first, *rest = steps(model)
        return (first, wrong, *rest)

    monkeypatch.setattr(importing, "passes", with_a_bug)


@pytest.mark.parametrize("name", ["gemm", "double"])
def test_a_pass_whose_model_does_not_run_is_named_or_left_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that makes a broken model is named, for float and quantised models.

    The user's model is not wrong.
    """

    def misspell(model: onnx.ModelProto) -> onnx.ModelProto:
        result = form.copy_model(model)
        result.graph.node[-1].op_type = "Nothing"
        return result

    _add_pass(monkeypatch, misspell)
    path = CASES / f"{name}.onnx"
    with pytest.raises(
        fidelity.PassError, match=r"^the pass misspell changes tensor '.*' by inf of its range"
    ):
        importing.import_model(path)
    monkeypatch.setattr(fidelity, "ROUNDING", fidelity.ROUNDING | {"misspell"})
    found = importing.import_model(path).fidelity
    assert found is not None
    assert found.left_out == ("misspell",)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([0.0, 4.0, np.nan, np.inf], [0.0, 3.0, np.nan, np.inf], 0.25),
        ([0.0, np.inf], [0.0, -np.inf], np.inf),
        ([1.0, 1 + 2.0**-23], [1 + 2.0**-22, 1 + 2.0**-23], fidelity.TOLERANCE / (1 + 2.0**-23)),
        ([1.0, 1.0], [1.0, 1.5], 0.5),
        ([np.nan, np.nan], [np.nan, np.inf], np.inf),
        ([0.0, 1.0], [0.0, np.nan], np.inf),
        ([0, 10**9], [1, 10**9], fidelity.AT_MOST),
        ([False, True], [True, True], 1.0),
        (["a", "b"], ["a", "b"], 0.0),
        (["a", "b"], ["a", "c"], np.inf),
        (2.0, 3.0, 0.5),
    ],
)
def test_differences_are_shares_of_the_range(before: Any, after: Any, expected: float) -> None:
    assert fidelity.difference(np.asarray(before), np.asarray(after)) == expected


def test_a_channel_has_a_range_of_its_own() -> None:
    """A channel's own range counts a tenth.

    Differences in channels a fortieth as large as the tensor may be rounding of the large values.
    """
    before = np.zeros((2, 3, 4), np.float32)
    before[:, 0, 0] = 100.0
    before[:, 1, 0] = 4.0
    before[:, 2, 0] = 1e-4
    for channel, share in ((0, 1e-5), (1, fidelity.CHANNEL * 1e-3 / 4)):
        after = before.copy()
        after[1, channel, 3] += 1e-3
        assert fidelity.difference(before, after) == pytest.approx(share, rel=1e-3)
    after = before.copy()
    after[1, 2, 3] += 1e-5
    assert fidelity.difference(before, after) == pytest.approx(
        1e-5 / (100 * fidelity.LAST_BITS / fidelity.TOLERANCE)
    )


def test_what_differs_by_the_most_that_is_ever_allowed_is_wrong() -> None:
    """Indices that differ in one place of a thousand, in a tensor that moves by itself."""
    for shares in (fidelity.AT_MOST, [0.0]), (0.0, [fidelity.AT_MOST]):
        most = fidelity.Difference(shares[0], np.array(shares[1]))
        half = fidelity.Difference(most.tensor / 2, most.channels / 2)
        assert fidelity._worst({"i": most}, {"i": most}) == ("i", fidelity.AT_MOST)
        assert fidelity._worst({"i": half}, {"i": most}) is None


@pytest.mark.parametrize(("channel", "share"), [(0, 3e-5), (1, 2e-4)])
def test_what_moves_by_itself_excuses_its_like_alone(
    channel: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly equal inputs make the last channel small and noisy, which excuses no other channel.

    It excuses no other tensor either.
    """

    def wrong(model: onnx.ModelProto) -> onnx.ModelProto:
        result = form.copy_model(model)
        for tensor in (each for each in result.graph.initializer if each.name == "scale"):
            scale = numpy_helper.to_array(tensor).copy()
            scale[0, channel] *= 1 + share
            tensor.CopyFrom(numpy_helper.from_array(scale, "scale"))
        return result

    weights = np.array([[1, 0, 0], [0, 0, 1], [1, 0, 1], [1, -1, 0]], np.float32)[..., None, None]
    scale = np.array([1, 1e-2, 1, 1], np.float32).reshape(1, 4, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Mul", ["c", "scale"], ["y"]),
    ]
    model = make_model(nodes, [1, 3, 8, 8], {"w": weights, "scale": scale})
    samples = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    samples[:, 1] = samples[:, 0] + 1e-2 * samples[:, 1]
    _add_pass(monkeypatch, wrong)
    monkeypatch.setattr(fidelity, "ROUNDING", fidelity.ROUNDING | {"wrong"})
    found = importing.import_model(model, calibration=[{"x": samples}]).fidelity
    assert found is not None
    assert found.left_out == ("wrong",)


def test_what_is_constant_but_for_rounding_leaves_nothing_out() -> None:
    """The mean of a Softmax is the same number everywhere, its range no more than its last bits."""
    nodes = [
        helper.make_node("LogSoftmax", ["x"], ["l"], axis=-1),
        helper.make_node("Exp", ["l"], ["p"]),
        helper.make_node("ReduceMean", ["p", "last"], ["m"]),
        helper.make_node("Mul", ["x", "m"], ["y"]),
    ]
    model = make_model(nodes, [1, 4, 6, 6], {"last": np.array([-1])})
    found = importing.import_model(model).fidelity
    assert found is not None
    assert found.left_out == ()


def test_what_is_tried_chooses_rows_of_tables_and_is_any_byte() -> None:
    """Words that are all the first one, or black pictures, would show little."""
    constants = {"table": np.arange(40, dtype=np.int8).reshape(20, 2), "s": np.float32(0.1)}
    nodes = [
        helper.make_node("DequantizeLinear", ["table", "s"], ["real"]),
        helper.make_node("Gather", ["real", "ids"], ["y"]),
    ]
    inputs = [
        ("ids", TensorProto.INT64),
        ("bytes", TensorProto.UINT8),
        ("signed", TensorProto.INT8),
    ]
    model = make_model(nodes, [1, 500], constants)
    del model.graph.input[:]
    model.graph.input.extend(
        helper.make_tensor_value_info(name, kind, [1, 500]) for name, kind in inputs
    )
    feed = fidelity.trial_feed(model, 0)
    assert {name: (array.min(), array.max(), array.dtype.name) for name, array in feed.items()} == {
        "ids": (0, 19, "int64"),
        "bytes": (0, 255, "uint8"),
        "signed": (-128, 127, "int8"),
    }


@pytest.mark.parametrize(("moves", "left_out"), [(fidelity.OWN_MOVES, ()), (0, ("fold_affine",))])
def test_a_fold_may_move_what_the_last_bits_of_the_input_move(
    moves: int, left_out: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range at the end of a sigmoid is small enough that all earlier rounding shows.

    This happens with and without folding.
    """
    constants = random_arrays(0, w=[4, 3, 3, 3], gamma=[4], beta=[4], mean=[4])
    constants |= {"variance": np.ones(4, np.float32), "low": np.array(-30, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["n"]),
        helper.make_node("Add", ["n", "low"], ["m"]),
        helper.make_node("Sigmoid", ["m"], ["y"]),
    ]
    for limit in ("OWN_MOVES", "CHANNEL_MOVES"):
        monkeypatch.setattr(fidelity, limit, moves)
    found = importing.import_model(make_model(nodes, [1, 3, 8, 8], constants)).fidelity
    assert found is not None
    assert found.left_out == left_out


def test_where_only_integers_come_in_the_constants_move_in_their_last_bits() -> None:
    """Words far from 0: the difference of their moments has lost most of its bits."""
    constants = {"table": random_arrays(0, table=[20, 6])["table"] + np.float32(30)}
    constants |= {
        "axis": np.array([-1]),
        "length": np.array(1 / 6, np.float32),
        "epsilon": np.array(1e-3, np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("ReduceSum", ["x", "axis"], ["x_sum"]),
        helper.make_node("Mul", ["x_sum", "length"], ["mean"]),
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "axis"], ["squares_sum"]),
        helper.make_node("Mul", ["squares_sum", "length"], ["moment"]),
        helper.make_node("Mul", ["mean", "mean"], ["mean_squared"]),
        helper.make_node("Sub", ["moment", "mean_squared"], ["variance"]),
        helper.make_node("Add", ["variance", "epsilon"], ["safe"]),
        helper.make_node("Sqrt", ["safe"], ["root"]),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "root"], ["y"]),
    ]
    model = make_model(nodes, [1, 5], constants)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 5]))
    found = importing.import_model(model).fidelity
    assert found is not None
    assert found.left_out == ()


def test_what_moves_one_tensor_excuses_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold with an error of a ten-thousandth is left out, despite a very sensitive sine.

    The last bits of the input move the sine far.
    """
    constants = random_arrays(0, w=[4, 3, 3, 3], gamma=[4], beta=[4], mean=[4])
    constants |= {"variance": np.ones(4, np.float32), "many": np.array(1e4, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Mul", ["x", "many"], ["turns"]),
        helper.make_node("Sin", ["turns"], ["wave"]),
        helper.make_node("Concat", ["r", "wave"], ["y"], axis=1),
    ]
    model = make_model(nodes, [1, 3, 8, 8], constants)

    def fold_affine(given: onnx.ModelProto) -> onnx.ModelProto:
        made = linear.fold_affine(given)
        for tensor in made.graph.initializer:
            if tensor.name.endswith("folded_bias"):
                tensor.CopyFrom(
                    numpy_helper.from_array(
                        numpy_helper.to_array(tensor) * np.float32(0.9999), tensor.name
                    )
                )
        return made

    steps = importing.passes

    def with_a_bug(model: onnx.ModelProto, shapes: object = None) -> tuple[importing.Pass, ...]:
        return tuple(
            fold_affine if step.__name__ == "fold_affine" else step for step in steps(model)
        )

    for chosen, left_out in ((steps, ()), (with_a_bug, ("fold_affine",))):
        monkeypatch.setattr(importing, "passes", chosen)
        found = importing.import_model(model).fidelity
        assert found is not None
        assert found.left_out == left_out


def test_the_comparison_travels_with_the_package(tmp_path: Path) -> None:
    package = importing.import_model(CASES / "preact.onnx")
    save_package(package, tmp_path / "p.dla")
    assert load_package(tmp_path / "p.dla").fidelity == package.fidelity
    assert package.fidelity is not None
    assert set(package.fidelity.noise) == {"p", "y"}
    assert min(package.fidelity.noise.values()) > 30


def _model(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1).standard_normal
    weights = numpy_helper.from_array(draw((8, 3, 3, 3)).astype(np.float32), "w")
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16)),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "c")], "g", values[:1], values[1:], [weights]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "m.onnx",
    )
    return tmp_path / "m.onnx"


def _suspicions(
    tmp_path: Path, factor: float, calibration: float | None = None
) -> dict[str, dict[str, float]]:
    model = _model(tmp_path)
    draw = np.random.default_rng(2).standard_normal
    np.save(tmp_path / "x.npy", (draw((1, 3, 16, 16)) * factor).astype(np.float32))
    samples = None
    if calibration is not None:
        samples = tmp_path / "samples.npz"
        np.savez(samples, x=(draw((4, 1, 3, 16, 16)) * calibration).astype(np.float32))
    report = experiments.run(model, inputs=tmp_path / "x.npy", calibration=samples).report
    assert report.check.mismatches == 0
    for suspicion in report.warnings:
        assert suspicion.tensor in suspicion.message()
    found = {suspicion.kind: dict(suspicion.figures) for suspicion in report.warnings}
    assert (found.pop("uncalibrated", None) == {"samples": 4}) == (calibration is None)
    return found


def test_a_run_on_inputs_like_those_of_the_calibration_warns_of_nothing(tmp_path: Path) -> None:
    assert _suspicions(tmp_path, 1.0) == {}


def test_inputs_beyond_the_calibrated_range_are_counted(tmp_path: Path) -> None:
    found = _suspicions(tmp_path, 100.0)
    assert set(found) == {"outside", "saturated"}
    assert found["outside"]["share"] > 0.9
    assert found["outside"]["most"] > found["outside"]["high"] > 2


def test_a_constant_output_is_shown(tmp_path: Path) -> None:
    found = _suspicions(tmp_path, 1.0, calibration=1e4)
    assert found["constant"] == {"elements": 8 * 14 * 14, "value": 0.0}


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_input_that_is_no_number_is_refused(number: float, tmp_path: Path) -> None:
    array = np.zeros((1, 3, 16, 16), np.float32)
    array[0, 1, 2, 3] = number
    np.save(tmp_path / "x.npy", array)
    message = (
        "input 'x' has 1 elements that are infinite or no number, the first at \\[0, 1, 2, 3\\]; "
        "correct the input"
    )
    with pytest.raises(InputError, match=f"^{message}"):
        experiments.run(_model(tmp_path), inputs=tmp_path / "x.npy")


def test_a_negative_slope_runs_with_integers_alone_as_in_tensorflow_lite() -> None:
    """LeakyRelu of -0.5 on equal scales keeps positive values.

    It halves, rounds and negates negative ones.
    """
    model = onnx.load(CASES / "neg.onnx")
    every = np.arange(-128, 128, dtype=np.int8).reshape(
        [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    )
    network = compile_network(importing.import_model(model, "neg"), Arch(numerics="fixed"))
    assert [place.on for place in network.partition.placement] == ["dla"]
    found = Runtime(network, Device(Arch(numerics="fixed"))).run({model.graph.input[0].name: every})
    (result,) = found.outputs.values()
    # Ties of x * 0.5 go upwards in the high multiply, and the sign is turned behind it.
    wanted = [x if x >= 0 else -((x + 1) // 2) for x in range(-128, 128)]
    assert result.reshape(-1).tolist() == wanted


def test_what_integers_alone_cannot_scale_runs_on_the_cpu_with_the_reason() -> None:
    report = experiments.run(CASES / "big.onnx", settings=["numerics=fixed"]).report
    reasons = [place.reason for place in report.placement if place.on == "cpu"]
    assert reasons == [
        "a value of 1074561024 is to be multiplied by 2; with numerics fixed, "
        "no value overflows int32 when its scale changes: choose numerics "
        "onnxruntime"
    ]


@pytest.mark.parametrize("integer", rotate([False, True], 2))
def test_random_models_are_right_or_refused(integer: bool) -> None:
    """Many more by ``python -m tests.e2e.given_models``."""
    found = list(verdicts(60, 7, integer=integer))
    assert [
        verdict for verdict in found if verdict.kind not in ("right", "refused", "foreign")
    ] == []
    assert sum(verdict.kind == "right" for verdict in found) > 40
    assert sum(verdict.regions for verdict in found) > 30
