"""Files that mix float and quantised parts run in one region, near to the file's own results."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

import dla
from experiments.report.tables import calibration_line
from tests.e2e.mixed_files import (
    FILES,
    Net,
    check_file,
    conv,
    count_regions,
    draw_samples,
    pairs,
    random_file,
    silu,
)
from tests.rotation import choose_cases

QUICK = ("weights_channel", "weights_packed", "brevitas", "islands_qoperator", "sixteen_bits")
ENDS = {"QuantizeLinear", "DequantizeLinear", "Gather", "Add"}
"""Operators on the CPU: quantisation, table look-ups, and the last bias, which the files leave."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name)
        for name in FILES
    ],
)
def test_mixed_files_run_in_one_region(name: str) -> None:
    result, level = check_file(FILES[name](), 0)
    assert count_regions(result) == 1
    on_cpu = [place.op_type for place in result.report.placement if place.on == "cpu"]
    assert set(on_cpu) <= ENDS
    assert on_cpu.count("Add") <= 1
    assert level >= 25


@pytest.mark.parametrize(
    "seed",
    [
        *range(4),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in choose_cases(range(4, 24), 3)),
    ],
)
def test_random_mixtures_are_exact(seed: int) -> None:
    """``python -m tests.e2e.mixed_files --count 500`` draws many more."""
    result, level = check_file(random_file(seed), seed)
    assert count_regions(result) == 1
    assert level > 15


def test_given_scales_and_weights_stay() -> None:
    """Scales of the file reappear in the package, and so do its int8 weights."""
    model = FILES["islands_cnn"]()
    package = dla.import_model(model)
    made = {tensor.name: tensor for tensor in package.model.graph.initializer}
    nodes = [node for node in package.model.graph.node if node.op_type == "QuantizeLinear"]
    scales = {numpy_helper.to_array(made[node.input[1]]).item() for node in nodes}
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            assert arrays[node.input[1]].item() in scales
    weights = {
        tensor.raw_data
        for tensor in made.values()
        if tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 4
    }
    given = [array for array in arrays.values() if array.dtype == np.int8 and array.ndim == 4]
    assert len(given) == 4
    assert {array.tobytes() for array in given} <= weights


@pytest.mark.parametrize("form", ["tensor", "channel"])
def test_weight_only_integers_come_back(form: str) -> None:
    """The quantiser finds the integers of the file, also where their largest is not 127."""
    net = Net(3)
    weights = net.rng.integers(-50, 51, (8, 3, 3, 3)).astype(np.int8)
    scale = np.full((), 0.01) if form == "tensor" else net.rng.uniform(0.01, 0.02, 8)
    operands = net.constant(weights), net.constant(scale.astype(np.float32))
    options = {} if form == "tensor" else {"axis": 0}
    real = net.add("DequantizeLinear", *operands, **options)
    package = dla.import_model(net.finish(net.add("Conv", net.input((1, 3, 8, 8)), real)))
    made = [numpy_helper.to_array(tensor) for tensor in package.model.graph.initializer]
    assert any(np.array_equal(array, weights) for array in made)


def test_a_scale_that_saturates_stays_with_its_own_consumer() -> None:
    """A residual tensor is not cut to the range in which the file quantises its other copy."""
    net = Net(5)
    x = conv(net, net.input((1, 3, 12, 12)), 3, 16, "channel", pairs())
    x = net.add("Mul", silu(net, x), net.constant(np.float32(8)))
    y = conv(net, x, 16, 16, "channel", pairs(size=1.0))
    model = net.finish(net.add("Relu", conv(net, net.add("Add", x, y), 16, 4, "float", pairs())))
    _, level = check_file(model, 5)
    assert level > 20


def test_report_counts_given_and_added_tensors() -> None:
    model = FILES["brevitas"]()
    result = dla.run(model, calibration=draw_samples(model, 0))
    fidelity = result.report.fidelity
    assert fidelity is not None
    found = fidelity.calibration
    assert found is not None
    assert found.given is not None
    assert found.added is not None
    assert (found.samples, found.random) == (4, False)
    assert (found.given.activations, found.given.weights) == (10, 5)
    assert found.added.activations > 0
    assert found.added.weights == 0
    assert fidelity.integer == 0
    assert calibration_line(found).startswith("10 activations and 5 weights as the file quantises")


def test_a_mask_that_two_attentions_share_is_clipped() -> None:
    """Infinity in a constant of the mask gets no scale, as Softmax takes it for a small number."""
    net = Net(9)
    x, mask = net.input((1, 8, 16)), net.input((1, 8), TensorProto.BOOL, "mask")
    low, zeros = net.constant(np.float32(-np.inf)), net.constant(np.zeros((1, 8), np.float32))
    bias = net.add("Where", net.add("Not", mask), low, zeros)
    bias = net.add("Reshape", bias, net.constant(np.array([1, 1, 8])))
    for _ in range(2):
        scores = net.add("MatMul", x, net.add("Transpose", x, perm=[0, 2, 1]))
        shares = net.add("Softmax", net.add("Add", scores, bias), axis=-1)
        x = net.add("MatMul", shares, net.add("MatMul", x, net.constant(net.draw(16, 16))))
    feeds = {
        "x": np.random.default_rng(9).standard_normal((4, 1, 8, 16)).astype(np.float32),
        "mask": np.arange(8)[None, None] < np.arange(4, 8)[:, None, None],
    }
    inputs = {name: array[0] for name, array in feeds.items()}
    report = dla.run(net.finish(x), calibration=feeds, inputs=inputs, cache=False).report
    assert report.check.mismatches == 0
    assert report.fidelity is not None
    assert min(report.fidelity.noise.values()) > 25
