"""Shape arithmetic of TensorFlow Lite files with a dynamic batch becomes constant."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dla
from byoc.frontend.tflite.file import read_tflite
from byoc.frontend.tflite.folding import fold_shapes
from byoc.runtimes import litert
from tests.tflite.builder import Quantisation, TfliteBuilder

HOW = Quantisation(0.05, 3)


def squeeze_and_excite() -> bytes:
    """A channel's mean, reshaped as Keras does: to the batch of its operand, 1, 1, channels."""
    random = np.random.default_rng(0)
    builder = TfliteBuilder("shapes")
    numbers = {n: builder.constant(f"n{n}", np.array([n], np.int32)) for n in (0, 1)}
    scalars = [builder.constant(f"s{n}", np.array(n, np.int32)) for n in (1, 1, 8)]
    x = builder.input("x", (1, 6, 5, 8), HOW)
    axes = builder.constant("axes", np.array([1, 2], np.int32))
    mean = builder.operator("MEAN", [x, axes], HOW)
    shape = builder.operator("SHAPE", [mean], dtype=np.int32, out_type=2)
    bounds = [numbers[0], numbers[1], numbers[1]]
    batch = builder.operator("STRIDED_SLICE", [shape, *bounds], dtype=np.int32, shrink_axis_mask=1)
    wanted = builder.operator("PACK", [batch, *scalars], dtype=np.int32, values_count=4)
    fixed = builder.constant("fixed", np.array([1, 1, 1, 8], np.int32))
    planes = builder.operator("RESHAPE", [mean, fixed], HOW)
    weights = builder.constant(
        "w", random.integers(-127, 128, (8, 1, 1, 8)).astype(np.int8), Quantisation((0.01,) * 8, 0)
    )
    bias = builder.constant("b", np.zeros(8, np.int32), Quantisation((0.0005,) * 8))
    y = builder.operator("CONV_2D", [planes, weights, bias], HOW, padding="SAME", stride_h=1)
    content = builder.model(builder.operator("MUL", [x, y], Quantisation(0.1)))
    whole = litert.schema().ModelT.InitFromPackedBuf(content, 0)
    (graph,) = whole.subgraphs
    names = [tensor.name.decode() for tensor in graph.tensors]
    for operator in graph.operators:
        operator.inputs = [
            names.index(wanted.name) if names[number] == fixed.name else number
            for number in operator.inputs
        ]
    return litert.pack_model(whole)


def test_reshapes_by_a_computed_shape_run_on_the_accelerator(tmp_path: Path) -> None:
    content = squeeze_and_excite()
    file, package = tmp_path / "net.tflite", tmp_path / "net.dla"
    file.write_bytes(content)
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 5, 8)).astype(np.int8)
    found = dla.run(file, inputs={"x": x}, settings={"numerics": "fixed"}, cache=False)
    assert found.report.check.mismatches == 0
    assert not [place for place in found.report.placement if place.on == "cpu"]
    session = litert.interpreter(content, "reference")
    session.set_tensor(session.get_input_details()[0]["index"], x)
    session.invoke()
    wanted = session.get_tensor(session.get_output_details()[0]["index"])
    (ours,) = found.outputs.values()
    assert np.array_equal(ours, wanted)
    dla.save_package(found.package, package)
    again = dla.run(package, inputs={"x": x}, settings={"numerics": "fixed"})
    assert np.array_equal(next(iter(again.outputs.values())), wanted)


def test_a_model_without_shape_arithmetic_is_unchanged() -> None:
    builder = TfliteBuilder("plain")
    x = builder.input("x", (1, 4), HOW)
    model = read_tflite(
        builder.model(builder.operator("LOGISTIC", [x], Quantisation(1 / 256, -128))), "plain"
    )
    assert fold_shapes(model) is model
