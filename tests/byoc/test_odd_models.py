"""Unusual models of exporters: control flow, inputs that select branches, data-dependent shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.constants import fix_inputs
from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.package.package import load_package, save_package
from byoc.quantisation.resemblance import outputs_of, resemblance
from experiments.report.schema import RunReport
from experiments.running.inference import run
from isa.errors import InputError

node = helper.make_node
info = helper.make_tensor_value_info
IMAGE = info("x", TensorProto.FLOAT, [1, 3, 8, 8])
CONVOLUTION = [
    node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
    node("Relu", ["c"], ["r"], name="relu"),
]


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Any],
    *,
    inputs: Sequence[ValueInfoProto] = (IMAGE,),
    outputs: Sequence[ValueInfoProto] = (info("y", TensorProto.FLOAT, None),),
    opset: int = 17,
) -> ModelProto:
    """Return a model of ``nodes`` with the ``constants`` and a convolution's weights ``w``."""
    arrays = {"w": weights(4, 3, 3, 3), **constants}
    made = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    used = {name for item in nodes for name in item.input} | {
        name for item in nodes for a in item.attribute for inner in a.g.node for name in inner.input
    }
    graph = helper.make_graph(
        nodes, "odd", inputs, outputs, [tensor for tensor in made if tensor.name in used]
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def ran(model: ModelProto, folder: Path, **choices: Any) -> RunReport:
    """The report of a run, checked to the bit."""
    path = folder / "odd.onnx"
    onnx.save(model, path)
    report = run(path, **choices).report
    assert report.check.mismatches == 0
    return report


def on(report: RunReport, place: str) -> Counter[str]:
    return Counter(entry.op_type for entry in report.placement if entry.on == place)


def branch(
    result: str, *nodes: onnx.NodeProto, constants: Mapping[str, Any] | None = None
) -> GraphProto:
    tensors = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in (constants or {}).items()
    ]
    return helper.make_graph(nodes, "branch", [], [info(result, TensorProto.FLOAT, None)], tensors)


def choosing(condition: str, width: int = 4, seed: int = 0) -> onnx.NodeProto:
    """Two branches that name what they make alike, each with a convolution of its own."""
    then = branch(
        "z",
        *(node("Conv", ["r", "k"], ["q"]), node("Relu", ["q"], ["z"])),
        constants={"k": weights(4, 4, 1, 1, seed=seed)},
    )
    wide = {"k": weights(width, 4, 1, 1, seed=seed + 1)}
    otherwise = branch(
        "z", node("Conv", ["r", "k"], ["q"]), node("Tanh", ["q"], ["z"]), constants=wide
    )
    return node("If", [condition], ["i"], name="choice", then_branch=then, else_branch=otherwise)


RANK = [
    node("Shape", ["r"], ["s"]),
    node("Size", ["s"], ["n"]),
    node("Equal", ["n", "four"], ["rank4"]),
]


@pytest.mark.parametrize(("wanted", "taken"), [(4, "Relu"), (3, "Tanh")])
def test_a_branch_that_shapes_decide_about_is_taken(
    wanted: int, taken: str, tmp_path: Path
) -> None:
    second = choosing("rank4", seed=2)
    second.name = "second"
    second.input[0] = "other"
    second.output[0] = "j"
    nodes = [
        *CONVOLUTION,
        *RANK,
        choosing("rank4"),
        node("Shape", ["i"], ["t"]),
        node("Gather", ["t", "one"], ["d"]),
    ]
    nodes += [node("Equal", ["d", "four"], ["other"]), second, node("Add", ["i", "j"], ["y"])]
    model = model_of(nodes, {"four": np.array(wanted), "one": np.array(1)})
    found = Counter(item.op_type for item in prepare(model).graph.node)
    assert "If" not in found
    assert found[taken] == 2 + (taken == "Relu")
    report = ran(model, tmp_path)
    assert on(report, "dla")["Conv"] == 3
    assert "If" not in on(report, "cpu")


def test_nested_branches_and_captured_names_are_taken() -> None:
    inner = choosing("rank4")
    inner.output[0] = "q"  # the name that the branches within make, too
    outer = node(
        "If",
        ["rank4"],
        ["y"],
        then_branch=branch("z2", inner, node("Neg", ["q"], ["z2"])),
        else_branch=branch("z3", node("Identity", ["r"], ["z3"])),
    )
    model = model_of([*CONVOLUTION, *RANK, outer], {"four": np.array(4)})
    package = import_model(model)
    assert {item.op_type for item in package.graph.nodes} >= {"Conv"}
    assert package.fidelity is not None
    assert package.fidelity.difference < 1e-5


@pytest.mark.parametrize("width", [4, 5])
def test_branches_of_equal_shape_run_on_the_accelerator(width: int, tmp_path: Path) -> None:
    nodes = [
        *CONVOLUTION,
        node("ReduceMax", ["r"], ["m"], keepdims=0),
        node("Greater", ["m", "limit"], ["big"]),
    ]
    nodes += [choosing("big", width), node("Relu", ["i"], ["y"])]
    report = ran(model_of(nodes, {"limit": np.float32(1)}), tmp_path)
    if width == 4:
        assert "If" not in on(report, "cpu")
        assert on(report, "dla").total() == len(report.placement) - 2
        return
    assert on(report, "cpu")["If"] == 1
    assert on(report, "dla")["Conv"] == 1
    (reason,) = (entry.reason for entry in report.placement if entry.op_type == "If")
    assert str(reason).endswith(
        "where an input decides about it, make that a constant with --fix NAME=VALUE"
    )


def rated(*, rank: int = 0) -> ModelProto:
    """Return a network that an integer input selects; it only runs for the rate 16,000."""
    then = branch("z", node("Conv", ["x", "w"], ["q"]), node("Relu", ["q"], ["z"]))
    otherwise = branch("z", node("Conv", ["x", "k"], ["z"]), constants={"k": weights(4, 5, 1, 1)})
    nodes = [
        node("Equal", ["rate", "sixteen"], ["e"]),
        *([node("Squeeze", ["e"], ["f"])] if rank else [node("Identity", ["e"], ["f"])]),
        node("If", ["f"], ["y"], then_branch=then, else_branch=otherwise),
    ]
    image = info("x", TensorProto.FLOAT, ["n", 3, "h", "w0"])
    rate = info("rate", TensorProto.INT64, ["k"] * rank)
    return model_of(nodes, {"sixteen": np.array(16000)}, inputs=[image, rate])


def test_an_input_that_chooses_can_be_fixed(tmp_path: Path) -> None:
    shapes = {"x": (1, 3, 8, 8)}
    with pytest.raises(
        InputError, match=r"ONNX Runtime cannot run the model .*fixed=\{'NAME': VALUE\}"
    ):
        ran(rated(), tmp_path, shapes=shapes)
    report = ran(rated(), tmp_path, shapes=shapes, fixed={"rate": 16000})
    assert on(report, "dla")["Conv"] == 1
    assert report.command.endswith("--shape x=1,3,8,8 --fix rate=16000")
    assert (
        ran(rated(rank=1), tmp_path, shapes={**shapes, "rate": (1,)}, fixed={"rate": 16000}).totals
        == report.totals
    )


@pytest.mark.parametrize(
    ("rank", "fixed", "message"),
    [
        (0, {"speed": 1}, "--fix names 'speed', which is no input: the inputs are x, rate"),
        (0, {"rate": 0.5}, "--fix rate=0.5: the input is int64, which does not hold that"),
        (
            1,
            {"rate": 16000},
            "--fix rate=16000: the shape of the input is open; fix it as well, with --shape",
        ),
    ],
)
def test_what_cannot_be_fixed_is_refused(
    rank: int, fixed: Mapping[str, float], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        fix_inputs(rated(rank=rank), fixed)
    assert str(caught.value) == message


def test_a_number_beyond_float32_is_not_fixed() -> None:
    with pytest.raises(
        InputError, match=r"--fix x=1e\+39: the input is float32, which does not hold that"
    ):
        fix_inputs(rated(), {"x": 1e39}, {"x": (1, 3, 8, 8)})


def test_numbers_of_a_fixed_input_are_counted_before_they_are_written_out() -> None:
    with pytest.raises(
        InputError, match=r"--fix x=1, written out: too large, it takes about 36.0 TiB of memory"
    ):
        fix_inputs(rated(), {"x": 1}, {"x": (1, 3, 1 << 40, 1)})


def test_calibration_may_hold_inputs_without_dimensions(tmp_path: Path) -> None:
    rates = np.array([16000, 16000])
    np.savez(tmp_path / "samples.npz", x=weights(2, 1, 3, 8, 8), rate=rates)
    np.savez(tmp_path / "input.npz", x=weights(1, 3, 8, 8), rate=rates[0])
    nodes = [*CONVOLUTION, node("Cast", ["rate"], ["f"], to=1), node("Mul", ["r", "f"], ["y"])]
    model = model_of(nodes, {}, inputs=[IMAGE, info("rate", TensorProto.INT64, [])])
    samples = tmp_path / "samples.npz"
    file = tmp_path / "input.npz"
    assert on(ran(model, tmp_path, calibration=samples, inputs=file), "dla")["Conv"] == 1


@pytest.mark.parametrize(
    ("operator", "attributes", "weight_rank"),
    [
        *((name, {"kernel_shape": [2]}, None) for name in ("MaxPool", "AveragePool")),
        *(
            (name, {}, None)
            for name in ("GlobalAveragePool", "GlobalMaxPool", "Softmax", "Flatten")
        ),
        *(
            (name, {}, rank)
            for name in ("Conv", "MatMul", "Gemm", "Add", "MatMulInteger")
            for rank in range(4)
        ),
    ],
)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_any_rank_is_imported_or_refused(
    operator: str, attributes: Mapping[str, Any], weight_rank: int | None, rank: int
) -> None:
    operands = ("x",) if weight_rank is None else ("x", "k")
    kind, dtype = (
        (TensorProto.UINT8, np.uint8) if "Integer" in operator else (TensorProto.FLOAT, np.float32)
    )
    inputs = [
        info("x", kind, [f"d{axis}" for axis in range(rank)]),
        info("other", TensorProto.FLOAT, ["n"]),
    ]
    nodes = [node(operator, operands, ["y"], **attributes), node("Neg", ["other"], ["z"])]
    outputs = [
        info("y", TensorProto.INT32 if "Integer" in operator else TensorProto.FLOAT, None),
        info("z", TensorProto.FLOAT, None),
    ]
    model = model_of(
        nodes, {"k": np.ones([2] * (weight_rank or 0), dtype)}, inputs=inputs, outputs=outputs
    )
    with suppress(InputError):
        assert import_model(model, shapes={"x": (2,) * rank, "other": (3,)}).graph.outputs == (
            "y",
            "z",
        )


BOXES = [
    node("Reshape", ["r", "rows"], ["b"], name="rows"),
    node("ReduceMax", ["b"], ["best"], axes=[2], keepdims=0),
    node("Unsqueeze", ["best", "second"], ["scores"]),
    node(
        "NonMaxSuppression", ["b", "scores", "most", "overlap", "least"], ["selected"], name="nms"
    ),
    node("Gather", ["selected", "last"], ["index"], axis=1),
    node("Gather", ["b", "index"], ["chosen"], axis=1, name="choose"),
]
BOX_CONSTANTS = {
    "rows": np.array([1, -1, 4]),
    "second": np.array([1]),
    "most": np.array([5]),
    "overlap": np.array([0.5], np.float32),
    "least": np.array([0], np.float32),
    "last": np.array(2),
}
DEPENDING = {
    "as an output": ([node("NonZero", ["r"], ["y"])], TensorProto.INT64, {}),
    "chosen boxes": ([*BOXES, node("Relu", ["chosen"], ["y"])], TensorProto.FLOAT, BOX_CONSTANTS),
    "summed": (
        [
            node("NonZero", ["r"], ["n"]),
            node("Cast", ["n"], ["f"], to=1),
            node("ReduceSum", ["f"], ["y"], keepdims=1),
        ],
        TensorProto.FLOAT,
        {},
    ),
    "convolved": (
        [
            node("NonZero", ["r"], ["n"]),
            node("Cast", ["n"], ["f"], to=1),
            node("Unsqueeze", ["f", "first"], ["e"]),
            node("Conv", ["e", "k"], ["y"], name="late"),
        ],
        TensorProto.FLOAT,
        {"first": np.array([0]), "k": weights(2, 4, 1)},
    ),
    "a sequence": (
        [
            node("SequenceConstruct", ["r", "r"], ["q"]),
            node("ConcatFromSequence", ["q"], ["y"], axis=1),
        ],
        TensorProto.FLOAT,
        {},
    ),
}


@pytest.mark.parametrize("name", DEPENDING)
def test_shapes_that_data_decide_about_stay_on_the_cpu(name: str, tmp_path: Path) -> None:
    nodes, kind, constants = DEPENDING[name]
    report = ran(
        model_of([*CONVOLUTION, *nodes], constants, outputs=[info("y", kind, None)]), tmp_path
    )
    assert on(report, "dla")["Conv"] == 1
    assert report.check.outputs is not None
    late = [entry.reason for entry in report.placement if entry.node == "late"]
    assert late in ([], [f"the shape of '{CAST}' depends on the data"])


CAST = "e_QuantizeLinear_Output"


def test_a_package_keeps_that_a_shape_is_open(tmp_path: Path) -> None:
    nodes, kind, constants = DEPENDING["convolved"]
    package = import_model(
        model_of([*CONVOLUTION, *nodes], constants, outputs=[info("y", kind, None)])
    )
    save_package(package, tmp_path / "odd.dla")
    values = load_package(tmp_path / "odd.dla").graph.values
    assert {name for name, value in values.items() if value.open} >= {"n", "f", "e", "y"}
    assert not values["x"].open
    assert run(tmp_path / "odd.dla").report.check.mismatches == 0


def test_a_sequence_cannot_be_an_output() -> None:
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    model = model_of(
        [*CONVOLUTION, node("SequenceConstruct", ["r", "r"], ["y"])], {}, outputs=[sequence]
    )
    with pytest.raises(
        InputError, match="output 'y' is no tensor but a sequence; export the model with tensors"
    ):
        import_model(model)


def test_a_window_that_does_not_fit_names_its_attribute(tmp_path: Path) -> None:
    image = info("x", TensorProto.FLOAT, [1, 1, 3000])
    model = model_of(
        [node("Conv", ["x", "k"], ["y"], name="conv")], {"k": weights(2, 1, 2048)}, inputs=[image]
    )
    (reason,) = (entry.reason for entry in ran(model, tmp_path).placement if entry.node == "conv")
    assert reason is not None
    assert reason.startswith("kernel_shape (width) 2048 does not fit a field below")


SEQUENCE = info("x", TensorProto.FLOAT, [7, 2, 6])
CONVOLVING = branch("z", node("Conv", ["c", "k"], ["q"]), node("Relu", ["q"], ["z"]))
WORK = {
    "LSTM both ways": (
        [
            node(
                "LSTM",
                ["x", "iw", "ir"],
                ["y"],
                hidden_size=5,
                direction="bidirectional",
                name="work",
            )
        ],
        {"iw": weights(2, 20, 6), "ir": weights(2, 20, 5)},
        7 * 2 * 2 * 20 * (6 + 5),
    ),
    "GRU": (
        [node("GRU", ["x", "iw", "ir"], ["y"], hidden_size=5, name="work")],
        {"iw": weights(1, 15, 6), "ir": weights(1, 15, 5)},
        7 * 2 * 15 * (6 + 5),
    ),
    "RNN": (
        [node("RNN", ["x", "iw", "ir"], ["y"], hidden_size=5, name="work")],
        {"iw": weights(1, 5, 6), "ir": weights(1, 5, 5)},
        7 * 2 * 5 * (6 + 5),
    ),
    "activations by activations": (
        [
            node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
            node("MatMul", ["x", "t"], ["y"], name="work"),
        ],
        {},
        7 * 2 * 6 * 2,
    ),
    "the dearer branch": (
        [
            node("ReduceMax", ["x"], ["m"], keepdims=0),
            node("Greater", ["m", "zero"], ["b"]),
            node("Reshape", ["x", "plane"], ["c"]),
            node(
                "If",
                ["b"],
                ["y"],
                name="work",
                then_branch=CONVOLVING,
                else_branch=branch("z", node("Identity", ["c"], ["z"])),
            ),
        ],
        {"zero": np.float32(0), "plane": np.array([1, 4, 3, 7]), "k": weights(4, 4, 1, 1)},
        3 * 7 * 4 * 4,
    ),
    "three times": (
        [
            node("Reshape", ["x", "plane"], ["c"]),
            node(
                "Loop",
                ["three", "yes", "c"],
                ["y"],
                name="work",
                body=helper.make_graph(
                    [node("Conv", ["s", "k"], ["s2"]), node("Identity", ["go"], ["on"])],
                    "body",
                    [
                        info("i", TensorProto.INT64, []),
                        info("go", TensorProto.BOOL, []),
                        info("s", TensorProto.FLOAT, None),
                    ],
                    [info("on", TensorProto.BOOL, []), info("s2", TensorProto.FLOAT, None)],
                ),
            ),
        ],
        {
            "three": np.array(3),
            "yes": np.array(True),
            "plane": np.array([1, 4, 3, 7]),
            "k": weights(4, 4, 1, 1),
        },
        3 * 3 * 7 * 4 * 4,
    ),
    "along an axis": (
        [
            node(
                "Scan",
                ["x"],
                ["y"],
                name="work",
                num_scan_inputs=1,
                body=helper.make_graph(
                    [node("MatMul", ["row", "k"], ["out"])],
                    "body",
                    [info("row", TensorProto.FLOAT, [2, 6])],
                    [info("out", TensorProto.FLOAT, [2, 3])],
                ),
            ),
        ],
        {"k": weights(6, 3)},
        7 * 2 * 6 * 3,
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_work_on_the_cpu_is_counted(name: str) -> None:
    nodes, constants, expected = WORK[name]
    graph = import_graph(model_of(nodes, constants, inputs=[SEQUENCE]))
    assert {found.name: found.macs for found in graph.nodes}["work"] == expected


def test_quantised_values_that_bodies_read_do_not_end_the_process(tmp_path: Path) -> None:
    """Branches that read quantised values do not end the process.

    ONNX Runtime moves the DequantizeLinear behind the Squeeze and then fails at the branches.
    """
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Squeeze", ["d", "axis"], ["r"], name="squeeze"),
        node(
            "If",
            ["c"],
            ["i"],
            name="choice",
            then_branch=branch("a", node("Hardmax", ["r"], ["a"])),
            else_branch=branch("b", node("Neg", ["r"], ["b"])),
        ),
        node("QuantizeLinear", ["i", "s", "z"], ["q2"]),
        node("DequantizeLinear", ["q2", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.1), "z": np.int8(0), "axis": np.array([1])}
    inputs = [info("x", TensorProto.FLOAT, [2, 1, 4]), info("c", TensorProto.BOOL, [])]
    report = ran(model_of(nodes, constants, inputs=inputs), tmp_path)
    assert on(report, "cpu")["If"] == 1
    assert report.fidelity is not None
    assert report.fidelity.integer == 0


def test_a_recurrent_layer_of_a_shape_that_folding_finds_is_written_as_its_steps() -> None:
    nodes = [
        node("Abs", ["minus"], ["shape"]),
        node("Reshape", ["x", "shape"], ["s"]),
        node("Concat", ["half", "half"], ["iw"], axis=1),
        node("LSTM", ["s", "iw", "ir"], ["y"], hidden_size=5),
    ]
    constants = {
        "minus": np.array([-4, -1, -21]),
        "half": weights(1, 10, 21),
        "ir": weights(1, 20, 5),
    }
    found = Counter(
        item.op_type for item in prepare(model_of(nodes, constants, inputs=[SEQUENCE])).graph.node
    )
    assert "LSTM" not in found
    assert found["Tanh"] == 8


@pytest.mark.parametrize(("divisor", "level"), [(1, 200.0), (2, 6.0), (0, -200.0)])
def test_an_output_that_is_infinite_is_all_noise(divisor: float, level: float) -> None:
    """So that no report holds what is no number."""
    exact, other = (
        model_of([node("Div", ["x", "d"], ["y"])], {"d": np.float32(by)}) for by in (1, divisor)
    )
    feeds = [{"x": weights(1, 3, 8, 8)}]
    noise, agreement = resemblance(outputs_of(exact, feeds), other, feeds)
    assert (noise, agreement) == ({"y": level}, {})
