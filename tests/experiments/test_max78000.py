"""MAX78000: cycles against the vendor's cases and silicon, limits, and arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.max78000_vectors import insert_zeros
from byoc.graph import Graph, Node, Quantization, Value
from byoc.operators.pieces import find_pieces
from experiments.machines.description import LayerWork, MachineOperation, PoolWork
from experiments.machines.max78000 import MACHINE, OPERATIONS
from experiments.machines.max78000_arithmetic import (
    add_bias,
    combine,
    compute_nodes,
    convolve,
    pool_average,
    pool_maximum,
    shift_sums,
)
from experiments.machines.max78000_figures import (
    ASSERTED,
    CLOCK_MHZ,
    FIFO_US_PER_WORD,
    NETWORKS,
    predict_streamed_time,
    predict_time,
)
from experiments.machines.max78000_passes import (
    PassWork,
    count_cycles,
    count_kernels,
    place_weights,
    plan_layer,
)
from experiments.machines.max78002 import MACHINE as MAX78002
from isa.errors import InputError

PARAMETERS = MACHINE.parameters()


def _operation_of(layer: LayerWork) -> MachineOperation:
    return next(one for one in OPERATIONS if layer.op_types in one.patterns)


def _reasons(layer: LayerWork, machine: Any = PARAMETERS) -> list[str]:
    found = [limit.check(layer, machine) for limit in _operation_of(layer).limits]
    return [reason for reason in found if reason]


def test_the_vendors_asserted_cases_are_equal() -> None:
    rows = [figure for figure in MACHINE.published if figure.role == "asserted"]
    assert len(rows) == 19
    assert {row.network: row.predict() for row in rows} == {row.network: row.value for row in rows}
    assert len({work for _, _, work in ASSERTED}) == 19


SILICON = {
    ("mnist", "nothing fitted"): 0.006,
    ("cifar-10", "nothing fitted"): 0.006,
    ("mnist", "start-up fitted"): 0.001,
    ("cifar-10", "start-up fitted"): 0.001,
    ("cifar-100", "start-up fitted"): 0.001,
    ("kws20_v3", "start-up fitted"): 0.001,
    ("rps", "after loading"): 0.005,
}


@pytest.mark.parametrize(("network", "condition"), SILICON)
def test_silicon_is_met_within_the_claim(network: str, condition: str) -> None:
    (row,) = [
        one for one in MACHINE.published if (one.network, one.condition) == (network, condition)
    ]
    error = abs(row.predict() / row.value - 1)
    assert error <= SILICON[network, condition]
    assert row.claim <= SILICON[network, condition]


def test_the_start_up_is_the_mean_excess_of_the_two_fitted_networks() -> None:
    excess = [
        row.value - row.predict() for row in MACHINE.published if row.condition == "nothing fitted"
    ]
    assert round(sum(excess) / len(excess), 1) * 50 == PARAMETERS.start_cycles


def test_a_network_with_100_channels_takes_the_cycles_of_the_vendors_compiler() -> None:
    """Known from the log of ``ai8xize.py`` for ``networks/kws20-v3-hwc.yaml``."""
    assert predict_time("kws20_v3", 0) * CLOCK_MHZ == 71_782


@pytest.mark.parametrize("network", ["cats-dogs", "faceid"])
def test_streamed_layers_take_the_sum_of_their_rows(network: str) -> None:
    """Each row of the first layer takes the CPU's time or the accelerator's, whichever is more."""
    _, rows, columns = NETWORKS[network][0].inputs[0]
    first, second, *others = [
        sum(count_cycles(plan_layer(layer))) / CLOCK_MHZ for layer in NETWORKS[network]
    ]
    loading = columns * FIFO_US_PER_WORD
    total = 1 / CLOCK_MHZ + sum(others)
    for row in range(rows):
        pooled = second / (rows // 2) if row % 2 else 0.0
        total += max(loading, first / rows + pooled)
    assert predict_streamed_time(network, 0) == pytest.approx(total)


def test_macs_of_the_networks_are_those_that_the_examples_print() -> None:
    """Known from ``SUMMARY OF OPS`` of the examples' ``main.c``."""
    layers = NETWORKS["kws20_v3"]
    weights = [layer.inputs[0][0] * layer.kernel[1] * layer.output[0] for layer in layers]
    macs = [count * layer.output[-1] for count, layer in zip(weights[:-1], layers, strict=False)]
    assert macs[0] == 1_638_400
    assert macs[1] == 3_628_800
    assert macs[7] == 153_600
    assert layers[-1].inputs == ((64, 4),)


CONVOLUTION = LayerWork(
    "c", ("Conv",), (), ((16, 32, 32),), (20, 32, 32), (3, 3), padding=(1, 1, 1, 1)
)
SEQUENCE = LayerWork("s", ("Conv",), (), ((5, 211),), (11, 197), (1, 3), dilation=(1, 7))
POOL = PoolWork("MaxPool", (2, 2), (2, 2), (0, 0, 0, 0), (16, 16, 16))
ADDITION = LayerWork("a", ("Add",), (), ((4, 12, 12),) * 2, (4, 12, 12))


def test_a_dilated_sequence_is_folded_into_a_plane() -> None:
    assert plan_layer(SEQUENCE) == PassWork((31, 7), 11, (3, 3), (1, 1))
    near = replace(SEQUENCE, dilation=(1, 4), output=(11, 203))
    assert plan_layer(near) == PassWork((211, 1), 11, (9, 1))


def test_a_transposed_convolution_reads_a_plane_with_zeros() -> None:
    layer = LayerWork(
        "t",
        ("Conv", "DepthToSpace"),
        (),
        ((3, 7, 9),),
        (64, 14, 18),
        (2, 2),
        padding=(0, 0, 1, 1),
    )
    assert 1 + sum(count_cycles(plan_layer(layer))) == 16_837
    assert not _reasons(layer)
    assert _reasons(replace(layer, kernel=(3, 3)))


def test_operands_and_a_pool_behind_them() -> None:
    assert 1 + sum(count_cycles(plan_layer(ADDITION))) == 721
    pool = PoolWork("MaxPool", (2, 2), (2, 2), (0, 0, 0, 0), (8, 8, 8))
    layer = LayerWork("p", ("Add", "MaxPool"), (), ((8, 17, 17),) * 2, (8, 8, 8), pool=pool)
    assert 1 + sum(count_cycles(plan_layer(layer))) == 705


LIMITS: dict[str, tuple[LayerWork, str]] = {
    "channels": (
        replace(CONVOLUTION, inputs=((1025, 4, 4),), output=(4, 4, 4)),
        "1,025 channels exceed 1,024",
    ),
    "sides": (replace(SEQUENCE, inputs=((5, 1024),)), "1,024 rows or columns exceed 1,023"),
    "kernel": (replace(CONVOLUTION, kernel=(5, 5)), "kernel 5 x 5 is not 1 x 1 or 3 x 3"),
    "length": (replace(SEQUENCE, kernel=(1, 10), dilation=(1, 1)), "kernel 10 exceeds 9"),
    "stride": (replace(CONVOLUTION, stride=(2, 2)), "stride 2 x 2 is not 1"),
    "groups": (replace(CONVOLUTION, groups=16), "16 groups are not 1"),
    "padding": (
        replace(CONVOLUTION, padding=(0, 0, 1, 1)),
        "padding 0, 0, 1, 1 is not equal on both sides",
    ),
    "folded": (
        replace(SEQUENCE, padding=(0, 1, 0, 1)),
        "dilation 7 has no padding",
    ),
    "window": (
        replace(CONVOLUTION, op_types=("MaxPool", "Conv"), pool=replace(POOL, kernel=(17, 17))),
        "window 17 x 17 exceeds 16",
    ),
    "passes": (
        LayerWork(
            "p",
            ("MaxPool",),
            (),
            ((65, 4, 4),),
            (65, 2, 2),
            pool=replace(POOL, output=(65, 2, 2)),
        ),
        "65 channels without a convolution exceed 64",
    ),
    "shapes": (
        replace(ADDITION, inputs=((4, 12, 12), (4, 1, 1))),
        "operands (4, 12, 12) and (4, 1, 1) have different shapes",
    ),
    "data": (
        replace(CONVOLUTION, inputs=((16, 100, 100),), output=(20, 100, 100)),
        "output of 100 x 100 pixels takes 40,000 bytes of the data memory of processors 0 to 3",
    ),
    "weights": (
        replace(CONVOLUTION, inputs=((128, 4, 4),), output=(512, 4, 4)),
        "1,024 kernels of 9 bytes exceed the 768 of processor 63",
    ),
    "matrix": (
        LayerWork("m", ("MatMul",), (), ((8, 64),), (8, 10)),
        "8 rows of a product; a fully connected layer has one",
    ),
    "flattened": (
        LayerWork("m", ("Flatten", "MatMul"), (), ((64, 17, 16),), (10,)),
        "64 x 17 x 16 inputs exceed 16,384",
    ),
    "pixels": (
        LayerWork("m", ("Reshape", "MatMul"), (), ((8, 17, 16),), (10,)),
        "17 x 16 pixels exceed 256",
    ),
    "batch": (replace(CONVOLUTION, inputs=((2, 16, 32, 32),)), "a tensor of 4 axes"),
    "reshaped": (LayerWork("r", ("Reshape",), (), ((8, 4, 4),), (2, 64)), "(8, 4, 4) changes"),
    "joined": (
        LayerWork("j", ("Concat",), (), ((6, 4, 4), (8, 4, 4)), (14, 4, 4)),
        "channels of (6, 4, 4) and (8, 4, 4) are not multiples of four",
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_gives_its_reason(name: str) -> None:
    layer, reason = LIMITS[name]
    assert any(text.startswith(reason) for text in _reasons(layer)), _reasons(layer)


def test_layers_within_the_limits_have_no_reason() -> None:
    pooled = replace(CONVOLUTION, op_types=("MaxPool", "Conv"), output=(20, 16, 16), pool=POOL)
    joined = LayerWork("j", ("Concat",), (), ((8, 4, 4), (6, 4, 4)), (14, 4, 4))
    for layer in (CONVOLUTION, SEQUENCE, ADDITION, pooled, joined):
        assert not _reasons(layer)
    for layer in (layer for name in ("mnist", "cifar-100") for layer in NETWORKS[name]):
        assert not _reasons(layer)


def test_four_bit_weights_take_half_of_the_memory() -> None:
    layer, _ = LIMITS["weights"]
    assert not _reasons(replace(layer, weight_bits=4))


VENDOR_KERNELS = (
    ((64, 4, 4), (64, 4, 4), 3, (64, 32, 16, 8)),
    ((128, 8, 8), (13, 8, 8), 3, (26, 14, 8, 5)),
    ((17, 8, 8), (13, 8, 8), 1, (2, 1, 1, 1)),
    ((3, 3, 3), (64,), 0, (64, 32, 16, 8)),
    ((192, 3, 3), (13,), 0, (39, 20, 10, 6)),
    ((64, 8, 8), (100, 8, 8), 3, (104, 52, 26, 14)),
    ((3, 3, 3), (100,), 0, (101, 50, 25, 13)),
)
"""Input, output and kernel of a layer, and the kernels that the vendor's compiler stores with 8, 4,
2 and 1 bits."""


@pytest.mark.parametrize(("source", "result", "taps", "kernels"), VENDOR_KERNELS)
def test_kernels_of_narrow_weights_are_the_vendors(
    source: tuple[int, ...], result: tuple[int, ...], taps: int, kernels: tuple[int, ...]
) -> None:
    kinds = ("Conv",) if taps else ("Flatten", "MatMul")
    layer = LayerWork("c", kinds, (), (source,), result, (taps or 1,) * 2)
    found = [count_kernels(replace(layer, weight_bits=bits)) for bits in (8, 4, 2, 1)]
    assert tuple(found) == kernels


def test_weights_of_all_layers_share_the_processors() -> None:
    wide = replace(CONVOLUTION, inputs=((64, 8, 8),), output=(300, 8, 8))
    layers = [replace(wide, name=f"layer {index}") for index in range(3)]
    assert place_weights(layers[:2], 768) == {}
    assert place_weights(layers, 768) == {
        "layer 2": "300 kernels of 9 bytes do not fit: processor 0 has 168 of 768 free"
    }
    narrow = replace(wide, inputs=((16, 8, 8),), output=(700, 8, 8))
    halves = [replace(narrow, name=f"layer {index}") for index in range(5)]
    assert list(place_weights(halves, 768)) == ["layer 4"]
    assert not place_weights(halves[:4], 768)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_weights_of_the_examples_fit(network: str) -> None:
    assert not place_weights(NETWORKS[network], PARAMETERS.kernels)


def test_max78002_has_the_larger_memories() -> None:
    parameters = MAX78002.parameters()
    for name in ("data", "weights", "channels", "sides", "passes"):
        assert not _reasons(LIMITS[name][0], parameters)
    assert not MAX78002.validated


def test_shift_rounds_halves_up_and_saturates() -> None:
    sums = np.array([-193, -192, -191, -64, 0, 63, 64, 16_383, -16_448, -16_449])
    assert shift_sums(sums, 0).tolist() == [-2, -1, -1, 0, 0, 0, 1, 127, -128, -128]
    for shift, total in product(range(-8, 9), range(-300, 300, 7)):
        exact = np.floor(total * 2.0**shift / 128 + 0.5)
        assert shift_sums(np.array([total]), shift)[0] == np.clip(exact, -128, 127)


def _sum_convolution(
    values: np.ndarray, weights: np.ndarray, padding: int, row: int, column: int, output: int
) -> int:
    """Return one sum of a 3 x 3 convolution, term by term."""
    total = 0
    channels, rows, columns = values.shape
    for channel, down, right in product(range(channels), range(3), range(3)):
        y = row + down - padding
        x = column + right - padding
        if 0 <= y < rows and 0 <= x < columns:
            total += int(values[channel, y, x]) * int(weights[output, channel, down, right])
    return total


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_convolution_is_the_sum_of_its_products(padding: int) -> None:
    random = np.random.default_rng(padding)
    values = random.integers(-128, 128, (2, 4, 5))
    weights = random.integers(-128, 128, (3, 2, 3, 3))
    sums = convolve(values, weights, (padding,) * 4, (1, 1))
    assert sums.shape == (3, 2 + 2 * padding, 3 + 2 * padding)
    for output, row, column in np.ndindex(sums.shape):
        expected = _sum_convolution(values, weights, padding, row, column, output)
        assert sums[output, row, column] == expected


def test_a_transposed_convolution_scatters_its_inputs() -> None:
    random = np.random.default_rng(3)
    values = random.integers(-128, 128, (1, 3, 2))
    weights = random.integers(-128, 128, (1, 1, 3, 3))
    sums = convolve(insert_zeros(values), weights, (1, 1, 2, 2), (1, 1))
    expected = np.zeros((8, 6), np.int64)
    for row, column, down, right in np.ndindex(3, 2, 3, 3):
        tap = weights[0, 0, 2 - down, 2 - right]
        expected[2 * row + down, 2 * column + right] += values[0, row, column] * tap
    assert (sums[0] == expected[1:7, 1:5]).all()


def test_dilation_spaces_the_taps_of_a_sequence() -> None:
    values = np.arange(12).reshape(1, 12)
    weights = np.array([[[1, 10, 100]]])
    sums = convolve(values, weights, (0, 0), (3,))
    assert sums[0].tolist() == [value + 10 * (value + 3) + 100 * (value + 6) for value in range(6)]


def test_a_bias_counts_128_times() -> None:
    sums = add_bias(np.zeros((2, 1, 1), np.int64), np.array([3, -2]))
    assert sums.reshape(-1).tolist() == [384, -256]


def test_pools_leave_incomplete_windows_out_and_round_towards_zero() -> None:
    values = np.array([[[-1, -2, 9], [-4, 0, 9], [9, 9, 9]]])
    assert pool_average(values, (2, 2), (2, 2)).tolist() == [[[-1]]]
    assert pool_maximum(values, (2, 2), (1, 1)).tolist() == [[[0, 9], [9, 9]]]
    assert pool_average(np.array([[5, 2, -5, -2]]), (2,), (2,)).tolist() == [[3, -3]]


BITS: dict[str, Callable[[int, int], int]] = {
    "Add": lambda left, right: min(max(left + right, -128), 127),
    "Sub": lambda left, right: min(max(left - right, -128), 127),
    "Or": lambda left, right: left | right,
    "Xor": lambda left, right: left ^ right,
}


@pytest.mark.parametrize("operation", BITS)
def test_element_wise_operations(operation: str) -> None:
    left, right = np.meshgrid(np.arange(-128, 128, 5), np.arange(-128, 128, 3))
    found = combine(operation, left, right)
    expected = [BITS[operation](int(a), int(b)) for a, b in zip(left.flat, right.flat, strict=True)]
    assert found.reshape(-1).tolist() == expected


def _value(name: str, shape: tuple[int, ...], exponent: int, constant: Any = None) -> Value:
    scale = Quantization(np.array(2.0**exponent, np.float32), np.zeros((), np.int32))
    dtype = "int32" if name == "bias" else "int8"
    stored = None if constant is None else constant.astype(dtype)
    return Value(name, shape, dtype, scale, stored)


ATTRIBUTES = {"strides": (1, 1), "dilations": (1, 1), "group": 1}


def _network(random: np.random.Generator, exponent: int = -7, bias: int = 128) -> Graph:
    """Return conv, max pool, add of itself, and a fully connected layer."""
    weights = random.integers(-128, 128, (4, 2, 3, 3))
    biases = random.integers(-128, 128, 4) * bias
    matrix = random.integers(-8, 8, (16, 5))
    values = (
        _value("x", (1, 2, 4, 4), -7),
        _value("weights", (4, 2, 3, 3), exponent, weights),
        _value("bias", (4,), -14, biases),
        _value("conv", (1, 4, 4, 4), -5),
        _value("pool", (1, 4, 2, 2), -5),
        _value("sum", (1, 4, 2, 2), -5),
        _value("flat", (1, 16), -5),
        _value("matrix", (16, 5), -7, matrix),
        _value("y", (1, 5), -3),
    )
    padded = {**ATTRIBUTES, "kernel": (3, 3), "pads": (1, 1, 1, 1), "activation": "Relu"}
    pooled = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0)}
    nodes = (
        Node("c", "Conv", ("x", "weights", "bias"), ("conv",), padded, integer=True),
        Node("p", "MaxPool", ("conv",), ("pool",), pooled, integer=True),
        Node("a", "Add", ("pool", "pool"), ("sum",), integer=True),
        Node("f", "Flatten", ("sum",), ("flat",), integer=True),
        Node("m", "MatMul", ("flat", "matrix"), ("y",), integer=True),
    )
    return Graph("small", ("x",), ("y",), {value.name: value for value in values}, nodes)


def test_a_network_with_powers_of_two_computes_layer_after_layer() -> None:
    random = np.random.default_rng(5)
    graph = _network(random)
    constants = {name: value.constant for name, value in graph.values.items()}
    values = random.integers(-128, 128, (1, 2, 4, 4), np.int8)
    found = compute_nodes(graph, graph.nodes, {"x": values})["y"]
    sums = np.zeros((4, 4, 4), np.int64)
    for output, row, column in np.ndindex(sums.shape):
        total = _sum_convolution(values[0], constants["weights"], 1, row, column, output)
        sums[output, row, column] = total + int(constants["bias"][output])
    shifted = np.clip(np.floor(sums / 512 + 0.5), 0, 127)  # 2**-14 to 2**-5
    largest = shifted.reshape(4, 2, 2, 2, 2).max(axis=(2, 4))
    flat = np.minimum(2 * largest, 127).reshape(16)
    expected = np.floor(flat @ constants["matrix"] / 512 + 0.5)  # 2**-12 to 2**-3
    assert found.dtype == np.int8
    assert found.tolist() == [np.clip(expected, -128, 127).tolist()]
    assert len(set(found[0])) > 1


def test_a_bias_that_the_hardware_cannot_store_is_refused() -> None:
    graph = _network(np.random.default_rng(5), bias=100)
    with pytest.raises(InputError, match="c: a bias is not an int8 times 128"):
        compute_nodes(graph, graph.nodes, {"x": np.zeros((1, 2, 4, 4), np.int8)})


def test_a_shift_that_the_hardware_does_not_have_is_refused() -> None:
    graph = _network(np.random.default_rng(5), exponent=-30)
    with pytest.raises(InputError, match=r"c: the scales .* need an output shift of -25"):
        compute_nodes(graph, graph.nodes, {"x": np.zeros((1, 2, 4, 4), np.int8)})


def test_a_scale_that_is_no_power_of_two_is_refused() -> None:
    graph = _network(np.random.default_rng(5))
    scale = Quantization(np.array(0.01, np.float32), np.zeros((), np.int32))
    values = {**graph.values, "x": replace(graph.values["x"], quantization=scale)}
    message = "c: x has scale 0.01 and zero point 0; the machine needs one power of two and 0"
    with pytest.raises(InputError, match=message):
        compute_nodes(
            replace(graph, values=values), graph.nodes, {"x": np.zeros((1, 2, 4, 4), np.int8)}
        )


def test_the_form_of_a_transposed_convolution_moves_depth_to_space() -> None:
    """The pieces are those that the importer makes from 8 channels of 2 x 3 pixels."""
    values = np.arange(48).reshape(8, 2, 3)
    index = values.reshape(2, 2, 2, 2, 3).transpose(2, 3, 0, 4, 1).reshape(-1)
    pieces = [
        (piece.source, piece.target, *(number for dim in piece.dims for number in dim))
        for piece in find_pieces(index)
    ]
    value = _value("x", (1, 8, 2, 3), -7)
    made = _value("y", (1, 2, 4, 6), -7)
    node = Node("d", "DepthToSpace", ("x",), ("y",), {"pieces": pieces}, integer=True)
    graph = Graph("d", ("x",), ("y",), {"x": value, "y": made}, (node,))
    found = compute_nodes(graph, graph.nodes, {"x": values[np.newaxis].astype(np.int8)})["y"]
    assert found.reshape(-1).tolist() == index.tolist()


def test_rows_of_a_sequence_are_moved_and_added_but_not_pooled() -> None:
    """The first axis of an LSTM's tensors is the step, and no batch of one."""
    left, right = np.arange(6, dtype=np.int8).reshape(2, 3), np.ones((2, 3), np.int8)
    expected = {
        "Concat": np.concatenate([left, right], axis=0),
        "Reshape": left.reshape(3, 2),
        "Add": left + right,
    }
    for kind, result in expected.items():
        names = ("a",) if kind == "Reshape" else ("a", "b")
        values = {name: _value(name, (2, 3), -7) for name in names}
        values["y"] = _value("y", result.shape, -7)
        attributes = {"axis": 0} if kind == "Concat" else {}
        node = Node("n", kind, names, ("y",), attributes, integer=True)
        graph = Graph("n", names, ("y",), values, (node,))
        given = {"a": left, "b": right}
        assert compute_nodes(graph, graph.nodes, given)["y"].tolist() == result.tolist()
        pool = replace(graph, nodes=(replace(node, op_type="GlobalMaxPool"),))
        with pytest.raises(InputError, match="n: a batch of 2; the machine computes one image"):
            compute_nodes(pool, pool.nodes, given)
