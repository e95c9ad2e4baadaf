"""``dla.run`` with models, inputs and samples in memory.

Its result: outputs, tables, pictures, a notebook's view.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import onnx
import pytest
from matplotlib import pyplot
from onnx import ModelProto, parser

import dla
from dla_sim.engine.breakdown import PARTS
from experiments.models import MODELS
from experiments.report.tables import calibration_line
from experiments.running import inference
from tests.experiments.command_line import save_tiny, tiny_model

DIGITS = MODELS["digits-cnn"]
TWO = """
<ir_version: 8, opset_import: ["" : 17]>
two (float[1, 4] a, float[2, 4] b) => (float[2, 4] c) { c = Add(a, b) }
"""


def digits() -> tuple[np.ndarray, ...]:
    """Samples of the network, (1, 1, 8, 8) each."""
    return tuple(feed["image"] for feed in DIGITS.calibration(0))


@pytest.fixture(scope="module")
def result() -> dla.Result:
    return dla.run("digits-cnn", settings={"pe.ic": 8, "sram_bytes": "64KiB"})


def test_a_model_in_memory_runs_as_its_file_does(tmp_path: Path) -> None:
    model = tiny_model()
    before = model.SerializeToString()

    @dataclass
    class Exported:
        """A stand-in for the result of ``torch.onnx.export``."""

        model_proto: ModelProto

    package = dla.import_model(model)
    runs = [dla.run(given) for given in (save_tiny(tmp_path), model, Exported(model), package)]
    assert model.SerializeToString() == before
    first, *others = runs
    for other in others:
        assert other.report.totals == first.report.totals
        assert other.report.hashes["programs"] == first.report.hashes["programs"]
        for name, array in first.outputs.items():
            np.testing.assert_array_equal(other.outputs[name], array)
    name = model.graph.name
    commands = [run.report.command for run in others]
    assert commands == [
        f"dla.run '<model {name}>'",
        f"dla.run '<model {name}>'",
        f"dla.run '<package {name}>'",
    ]


def test_a_traced_program_is_exported_by_its_own_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program traced by ``torch.export.export`` is exported by PyTorch.

    PyTorch itself is no dependency of the project.
    """

    @dataclass
    class Traced:
        graph_signature: str = ""
        example_inputs: tuple[()] = ()

    @dataclass
    class Exported:
        model_proto: ModelProto

    torch = ModuleType("torch")
    program = Traced()
    exported = {id(program): Exported(tiny_model())}
    vars(torch).update(onnx=SimpleNamespace(export=lambda given, verbose: exported[id(given)]))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert dla.run(program).report.totals == dla.run(tiny_model()).report.totals


def test_a_model_in_memory_is_checked_like_a_file() -> None:
    model = tiny_model()
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(dla.InputError, match=rf"^{model.graph.name}: inconsistent ONNX model \("):
        dla.run(model)


def test_the_outputs_are_the_networks_own(result: dla.Result) -> None:
    inputs = DIGITS.sample_input()
    assert result.outputs.keys() == {"logits"}
    given = dla.run("digits-cnn", settings=["pe.ic=8", "sram_bytes=64KiB"], inputs=inputs)
    np.testing.assert_array_equal(given.outputs["logits"], result.outputs["logits"])
    assert given.report.hashes == result.report.hashes
    assert (given.report.command, result.report.command) == (
        "dla.run digits-cnn --set pe.ic=8 --set sram_bytes=64KiB --input '<arrays>'",
        "dla run digits-cnn --set pe.ic=8 --set sram_bytes=64KiB",
    )


def test_many_inferences_use_compiled_kernels_with_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[bool] = []

    def open_device(*given: Any, compiled: bool, **further: Any) -> dla.Device:
        used.append(compiled)
        return dla.Device(*given, compiled=compiled, **further)

    monkeypatch.setattr(inference, "Device", open_device)
    images = np.random.default_rng(0).standard_normal((3, 3, 8, 8), np.float32)
    package = dla.import_model(tiny_model())
    (program,) = dla.compile(package, dla.load_hardware().arch).programs.values()
    monkeypatch.setattr(inference, "MANY_COMMANDS", 3 * len(program.commands))
    found = [dla.run(package, inputs=images[:n]).outputs["result"][:2] for n in (2, 3)]
    for _ in range(2):
        session = dla.Session(package)
        found.append(np.concatenate([session.step(one)["result"] for one in images[:2, None]]))
        monkeypatch.setattr(inference, "has_compiled", lambda: False)
    assert used == [False, True, True, False]
    assert all(np.array_equal(one, found[0]) for one in found)


def test_a_batch_is_one_inference_after_another() -> None:
    package = dla.import_model(tiny_model())
    samples = np.random.default_rng(1).standard_normal((3, 1, 3, 8, 8)).astype(np.float32)
    alone = [dla.run(package, inputs=sample) for sample in samples]
    wanted = np.stack([one.outputs["result"] for one in alone])
    for batch, shape in [
        (samples[:, 0], (3, 4, 8, 8)),
        ({"image": samples[:, 0]}, (3, 4, 8, 8)),
        (samples, (3, 1, 4, 8, 8)),
        (list(samples), (3, 1, 4, 8, 8)),
        ([{"image": sample} for sample in samples], (3, 1, 4, 8, 8)),
    ]:
        done = dla.run(package, inputs=batch)
        assert done.outputs["result"].shape == shape
        np.testing.assert_array_equal(done.outputs["result"].reshape(wanted.shape), wanted)
        check = done.report.check
        first = alone[0].report.check
        assert (check.mismatches, check.elements) == (0, 3 * first.elements)
        assert check.outputs is not None
        assert first.outputs is not None
        assert check.outputs.elements == 3 * first.outputs.elements
        assert done.report.totals == alone[0].report.totals


def test_inputs_by_name(tmp_path: Path) -> None:
    model = parser.parse_model(TWO)
    draw = np.random.default_rng(0).standard_normal
    a = draw((3, 1, 4)).astype(np.float32)
    b = draw((3, 2, 4)).astype(np.float32)
    together = dla.run(model, inputs={"a": a, "b": b}).outputs["c"]
    assert together.shape == (3, 2, 4)
    for number in range(3):
        one = dla.run(model, inputs={"a": a[number], "b": b[number]}).outputs["c"]
        np.testing.assert_array_equal(together[number], one)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            np.zeros((1, 4), np.float32),
            "inputs: one array, and the network's inputs are a, b; give a dict of arrays",
        ),
        (
            {"a": np.zeros((3, 1, 4), np.float32), "b": np.zeros((2, 4), np.float32)},
            "inputs: the arrays have {'a': 3, 'b': 1} samples; give all of them the same number, "
            "at least one",
        ),
        (
            {"a": np.zeros((1, 4), np.float32)},
            "input 'b' is missing; it has shape [2, 4] and type float32",
        ),
        (
            {"a": np.zeros((1, 4)), "b": np.zeros((2, 4))},
            "input 'a' has shape [1, 4] and type float64; the model wants shape [1, 4] and type "
            "float32",
        ),
    ],
)
def test_inputs_that_do_not_fit(inputs: Any, message: str) -> None:
    with pytest.raises(dla.InputError) as caught:
        dla.run(parser.parse_model(TWO), inputs=inputs)
    assert str(caught.value) == message


def test_samples_to_quantise_on(tmp_path: Path) -> None:
    """Samples give the same package in every form.

    They are in a file, in one array, by input, single, or in batches of a data loader.
    """
    model = DIGITS.build(0)
    samples = digits()

    def one_by_one() -> Iterator[np.ndarray]:
        yield from samples

    np.savez(tmp_path / "samples.npz", image=np.stack(samples))
    from_file = dla.import_model(model, calibration=tmp_path / "samples.npz")
    whole = np.concatenate(samples)
    batches = np.split(np.concatenate(samples), 4)
    arrays = np.stack(samples), whole, {"image": np.stack(samples)}, one_by_one(), list(samples)
    loaders = batches, ([batch] for batch in batches), ({"image": batch} for batch in batches)
    for calibration in (*arrays, *loaders):
        package = dla.import_model(model, calibration=calibration)
        assert package.model.SerializeToString() == from_file.model.SerializeToString()
        assert package.fidelity is not None
        assert package.fidelity.calibration is not None
        assert package.fidelity.calibration.origin == "the arrays given"


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (
            np.zeros((2, 1, 9, 9), np.float32),
            "calibration, sample 0: 'image' is of shape [1, 9, 9] and type float32; ",
        ),
        (
            [np.zeros((1, 1, 8, 8))],
            "calibration, sample 0: 'image' is of shape [1, 1, 8, 8] and type float64; ",
        ),
        ([{"picture": 1}], "calibration, sample 0: it has picture; the inputs are image"),
        ([], "there are no calibration samples; give at least one"),
        (
            np.float32(1),
            "calibration: the arrays have {'image': 0} samples; give all of them the same number",
        ),
        (
            7,
            "calibration is 7 (int); give a text or a path or an array or a table by name or a "
            "list of ",
        ),
    ],
)
def test_samples_that_do_not_fit(calibration: Any, message: str) -> None:
    with pytest.raises(dla.InputError) as caught:
        dla.run(DIGITS.build(0), calibration=calibration)
    assert str(caught.value).startswith(message)


def test_what_is_quantised_needs_no_samples() -> None:
    package = dla.import_model("digits-cnn")
    samples = np.zeros((2, 1, 1, 8, 8), np.float32)
    with pytest.raises(dla.InputError, match=r"quantised already"):
        dla.run(package, calibration=samples)
    result = dla.run(onnx.load_from_string(package.model.SerializeToString()), calibration=samples)
    assert result.report.fidelity is not None
    assert result.report.fidelity.calibration is not None
    assert calibration_line(result.report.fidelity.calibration) == (
        "the file quantises every part of the model; the arrays given not used"
    )


def test_tables_have_the_numbers_of_the_report(result: dla.Result) -> None:
    report = result.report
    layers = result.layers
    stalls = result.stalls
    placement = result.placement
    mine = layers[layers["on"] == "dla"]
    assert list(mine["layer"]) == [layer.name for layer in report.layers]
    assert mine["cycles"].sum() == report.totals.cycles
    assert layers["cycles"].sum() == report.totals.cycles + report.host.estimated_cycles
    assert (mine[list(PARTS)].sum(axis=1) == mine["cycles"]).all()
    waited = sum(
        sum(causes.values()) for layer in report.layers for causes in layer.stalls.values()
    )
    assert stalls["cycles"].sum() == waited
    assert (stalls["cycles"] > 0).all()
    assert list(placement["node"]) == [entry.node for entry in report.placement]
    assert placement.loc[placement["on"] == "dla", "region"].eq(0).all()
    assert layers["energy_pj"].dtype == "float64"  # not requested
    assert layers["energy_pj"].isna().all()


def test_tables_of_nothing() -> None:
    result = dla.run(
        parser.parse_model(TWO.replace("Add(a, b)", "Hardmax(b)").replace("float[1, 4] a, ", ""))
    )
    assert (list(result.layers["on"]), len(result.stalls)) == (["cpu"], 0)
    with pytest.raises(
        dla.InputError,
        match=r"^two: no layer runs on the accelerator; there is nothing to show in a chart$",
    ):
        result.plot.layers()
    assert "<td>cpu</td>" in result._repr_html_()


def test_without_pandas_one_line_says_what_to_install(
    result: dla.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for table in ("layers", "stalls", "placement"):
        with pytest.raises(
            dla.InputError,
            match=r"^tables of results need pandas; install it with: "
            r".* -m pip install .*\bpandas\b.*$",
        ):
            getattr(result, table)


def test_a_notebook_shows_a_few_lines_and_a_table(result: dla.Result) -> None:
    text = str(result)
    page = result._repr_html_()
    assert repr(result) == text.splitlines()[0]
    assert text.startswith("digits-cnn on 8x16 PEs (ic x oc), 64 KiB SRAM, ")
    assert f"cycles: {result.report.totals.cycles:,} (" in text
    assert "0 mismatches in " in text
    assert len(text.splitlines()) <= 6
    for layer in result.report.layers:
        row = f"<td>{layer.name}</td><td>dla 0</td><td>{layer.kind}</td><td>{layer.cycles:,}</td>"
        assert row in page


def test_names_of_a_model_are_no_elements_of_the_page() -> None:
    model = tiny_model()
    model.graph.name = "<script>"
    page = dla.run(model)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt; on " in page


@pytest.mark.parametrize("picture", ["layers", "roofline", "timeline"])
def test_pictures_are_axes(
    result: dla.Result, picture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib.use("agg")
    axes = getattr(result.plot, picture)()
    assert axes.get_title(loc="left")
    axes.figure.savefig(io.BytesIO())
    pyplot.close(axes.figure)
    _, mine = pyplot.subplots()
    assert getattr(result.plot, picture)(mine) is mine
    pyplot.close(mine.figure)


def test_a_result_is_saved_as_the_command_does(result: dla.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "run.json")
    assert dla.load_report(tmp_path / "run.json") == result.report
