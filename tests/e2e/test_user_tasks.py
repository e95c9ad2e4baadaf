"""Tasks that a user would try, as they would type them: command lines in an empty folder, short Python scripts."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import experiments.models

pytestmark = pytest.mark.slow  # every task starts processes

PROGRAMS = Path(sys.executable).parent
"""Where ``dla`` and ``python`` of this installation are."""


class User:
    """Somebody at a terminal in an empty folder. What they see is standard output and errors, together."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DLA_", "PYTHON"))}
        path = f"{PROGRAMS}{os.pathsep}{kept.get('PATH', '')}"
        self._environment = {**kept, "PATH": path, "DLA_CACHE_DIR": str(cache), "COLUMNS": "120"}

    def types(self, line: str, *, status: int = 0, **environment: str) -> str:
        """What a command line prints; AssertionError where it ends with another status, or a traceback."""
        return self._run(["bash", "-c", line], line, status, environment)

    def runs(self, script: str, *, status: int = 0) -> str:
        """What a Python script prints."""
        (self.folder / "script.py").write_text(script, encoding="utf-8")
        return self._run([str(PROGRAMS / "python"), "script.py"], script, status, {})

    def _run(self, words: list[str], typed: str, status: int, environment: dict[str, str]) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self._environment | environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        seen = done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))
        assert done.returncode == status, f"{typed}\nexit status {done.returncode}\n{seen}"
        assert status == 1 or "Traceback" not in seen, seen
        return seen

    def fails(self, line: str, **environment: str) -> str:
        """The one line of an error, without ``error: ``, of a command line that ends with exit status 2."""
        seen = self.types(line, status=2, **environment)
        assert seen.startswith("error: "), seen
        assert seen.count("\n") == 1, seen
        return seen.removeprefix("error: ").rstrip()

    def has(self, name: str) -> Path:
        """A file that should be there and not empty."""
        assert (self.folder / name).stat().st_size
        return self.folder / name


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def user(tmp_path: Path, cache: Path) -> User:
    return User(tmp_path, cache)


def own_network(folder: Path, *, shape: tuple[int | str, ...] = (1, 3, 16, 16), cumsum: bool = False) -> Path:
    """``mine.onnx``, a small float network as somebody would export it; with ``cumsum`` not all of it is supported."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(8, 3, 3, 3)), "b1": rng.normal(size=8),
        "w2": rng.normal(size=(8, 10)), "b2": rng.normal(size=10),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["s" if cumsum else "scores"], name="classifier"),
    ]
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    if cumsum:
        constants.append(numpy_helper.from_array(np.array(1), "axis"))
        nodes.append(helper.make_node("CumSum", ["s", "axis"], ["scores"], name="running_sum"))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [shape[0], 10])
    graph = helper.make_graph(nodes, "mine", [image], [scores], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), folder / "mine.onnx"
    )
    return folder / "mine.onnx"


def samples(count: int = 4) -> np.ndarray:
    """Images for ``mine.onnx``."""
    return np.random.default_rng(1).normal(size=(count, 1, 3, 16, 16)).astype(np.float32)


# The first minutes.


def test_ask_for_help(user: User) -> None:
    seen = user.types("dla --help")
    assert "run" in seen
    assert "sweep" in seen


def test_which_version_is_this(user: User) -> None:
    assert user.types("dla --version").startswith("dla 0.")


def test_which_networks_are_there(user: User) -> None:
    assert "digits-cnn" in user.types("dla models")


def test_run_a_network_and_look_at_it_again_later(user: User) -> None:
    seen = user.types("dla run digits-cnn")
    assert "0 mismatches" in seen
    assert seen.splitlines()[-1].startswith("report written to runs/digits-cnn-")
    assert "pointwise" in user.types("dla report runs/*.json --tables")


def test_is_it_installed_well(user: User) -> None:
    seen = user.types("dla doctor")
    assert "onnxruntime" in seen
    assert "BLAS" in seen


def test_only_the_totals(user: User) -> None:
    seen = user.types("dla run digits-cnn --summary")
    assert "0 mismatches" in seen
    assert "pointwise" not in seen


def test_short_help_of_a_command(user: User) -> None:
    assert "--preset" in user.types("dla run -h")


def test_complete_in_bash(user: User) -> None:
    asked = {"_DLA_COMPLETE": "complete_bash", "COMP_WORDS": "dla run digits", "COMP_CWORD": "2"}
    assert user.types("dla", **asked).split() == ["digits-cnn"]


def test_what_runs_on_the_accelerator(user: User) -> None:
    assert "Conv" in user.types("dla support | head -20")


def test_which_instructions_are_there(user: User) -> None:
    assert "OP_CONV" in user.types("dla isa")


# Networks of one's own.


def test_run_an_own_network(user: User) -> None:
    own_network(user.folder)
    seen = user.types("dla run mine.onnx")
    assert "0 mismatches" in seen
    assert "random" in seen  # what it was quantised on was drawn, which says nothing of its accuracy


def test_calibrate_with_own_samples(user: User) -> None:
    own_network(user.folder)
    np.savez(user.folder / "samples.npz", image=samples())
    assert "quantised on 4 inputs of samples.npz" in user.types("dla run mine.onnx --calibration samples.npz")


def test_measure_accuracy_on_own_samples(user: User) -> None:
    own_network(user.folder)
    np.savez(user.folder / "held-out.npz", image=samples(), labels=np.array([1, 2, 3, 4]))
    assert "of 4 " in user.types("dla run mine.onnx --accuracy held-out.npz")


def test_run_on_an_own_input(user: User) -> None:
    own_network(user.folder)
    np.save(user.folder / "image.npy", samples()[0])
    assert "0 mismatches" in user.types("dla run mine.onnx --input image.npy")


def test_give_an_open_dimension_a_size(user: User) -> None:
    own_network(user.folder, shape=("batch", 3, 16, 16))
    assert "--shape" in user.fails("dla run mine.onnx")
    assert "0 mismatches" in user.types("dla run mine.onnx --shape image=2,3,16,16")


def test_run_a_tensorflow_lite_file(user: User) -> None:
    source = Path(experiments.models.__file__).parent / "digits-cnn.tflite"
    (user.folder / "mine.tflite").write_bytes(source.read_bytes())
    assert "0 mismatches" in user.types("dla run mine.tflite --set numerics=fixed")


def test_why_is_a_node_on_the_cpu(user: User) -> None:
    own_network(user.folder, cumsum=True)
    assert "running_sum" in user.types("dla partition mine.onnx | grep CumSum")


def test_refuse_anything_on_the_cpu(user: User) -> None:
    own_network(user.folder, cumsum=True)
    assert "running_sum" in user.fails("dla run mine.onnx --strict")


def test_keep_a_layer_on_the_cpu(user: User) -> None:
    seen = user.types("dla run digits-cnn --cpu pool --json run.json")
    assert "0 mismatches" in seen
    report = json.loads(user.has("run.json").read_text(encoding="utf-8"))
    assert "cpu" in {place["on"] for place in report["placement"] if place["node"] == "pool"}


def test_hand_over_integers(user: User) -> None:
    assert "image: int8 [1, 1, 8, 8], scale" in user.types("dla run digits-cnn --integer-io")


def test_keep_a_package_and_run_it(user: User) -> None:
    user.types("dla compile digits-cnn -o net.dla")
    assert "0 mismatches" in user.types("dla run net.dla")


# Machines.


def test_another_machine(user: User) -> None:
    assert "64x1 PEs" in user.types("dla run digits-cnn --preset seed-i64")


def test_sizes_with_units(user: User) -> None:
    assert "4 KiB SRAM" in user.types("dla run digits-cnn --set sram_bytes=4KiB --set clock_hz=800MHz")


def test_weights_in_a_flash(user: User) -> None:
    assert "(flash " in user.types("dla run digits-cnn --memory-mode flash --summary")


def test_which_machines_are_there(user: User) -> None:
    assert "balanced-64 (default)" in user.types("dla presets")


def test_what_can_be_set(user: User) -> None:
    assert "outstanding_bursts" in user.types("dla settings")


def test_change_a_machine_that_is_there(user: User) -> None:
    user.types("dla presets balanced-64 > mine.toml && sed -i 's/^pe.oc = 16/pe.oc = 32/' mine.toml")
    assert "4x32 PEs" in user.types("dla run digits-cnn --preset mine.toml")


def test_a_machine_in_a_file(user: User) -> None:
    (user.folder / "mine.toml").write_text('[arch]\npe = { ic = 4, oc = 8 }\nsram_bytes = "16 KiB"\n')
    assert "4x8 PEs (ic x oc), 16 KiB SRAM" in user.types("dla run digits-cnn --preset mine.toml")


def test_the_published_schedule(user: User) -> None:
    assert "schedule seed" in user.types("dla run digits-cnn --schedule seed --preset seed-o64")


def test_estimate_energy(user: User) -> None:
    assert "energy (estimate)" in user.types("dla run digits-cnn --cost horowitz-45nm")


def test_why_this_tiling(user: User) -> None:
    assert "considered:" in user.types("dla explain digits-cnn conv --set sram_bytes=2KiB")


# Reports.


def test_a_page_to_show_around(user: User) -> None:
    user.types("dla run digits-cnn --json run.json && dla report run.json -o run.html")
    assert "</html>" in user.has("run.html").read_text(encoding="utf-8")


def test_pictures_for_a_paper(user: User) -> None:
    user.types("dla run digits-cnn --json run.json && dla report run.json -o run.html --png pictures")
    user.has("pictures/roofline.png")


def test_compare_two_machines(user: User) -> None:
    user.types("dla run digits-cnn --json big.json && dla run digits-cnn --set sram_bytes=2KiB --json small.json")
    assert "pointwise" in user.types("dla report --compare big.json small.json --tables")


def test_read_the_report_in_a_script(user: User) -> None:
    user.types("dla run digits-cnn --json run.json")
    report = json.loads(user.has("run.json").read_text(encoding="utf-8"))
    assert report["check"]["mismatches"] == 0
    assert sum(layer["cycles"] for layer in report["layers"]) == report["totals"]["cycles"]


def test_pipe_the_report_into_another_program(user: User) -> None:
    seen = user.types(
        "dla run digits-cnn --json - | python -c 'import json, sys; print(json.load(sys.stdin)[\"model\"])'"
    )
    assert "digits-cnn" in seen
    assert not (user.folder / "runs").exists()


def test_open_the_layers_in_a_spreadsheet(user: User) -> None:
    user.types("dla run digits-cnn --csv layers.csv --json run.json")
    with user.has("layers.csv").open(encoding="utf-8", newline="") as file:
        layers = list(csv.DictReader(file))
    report = json.loads(user.has("run.json").read_text(encoding="utf-8"))
    assert sum(int(layer["cycles"]) for layer in layers if layer["on"] == "dla") == report["totals"]["cycles"]


def test_a_timeline_for_perfetto(user: User) -> None:
    user.types("dla run digits-cnn --trace timeline.json")
    assert json.loads(user.has("timeline.json").read_text(encoding="utf-8"))["traceEvents"]


def test_is_an_old_report_still_true(user: User) -> None:
    user.types("dla run digits-cnn --json run.json")
    assert "values equal" in user.types("dla repro run.json")


# Programs.


def test_read_change_and_write_a_program(user: User) -> None:
    user.types("dla emit digits-cnn -o net.prog && dla disasm net.prog -o net.asm && dla asm net.asm -o again.prog")
    assert "OP_CONV" in user.has("net.asm").read_text(encoding="utf-8")
    user.types("cmp net.prog again.prog")


def test_simulate_a_program_alone(user: User) -> None:
    user.types("dla emit digits-cnn -o net.prog")
    np.save(user.folder / "image.npy", np.zeros((1, 1, 8, 8), np.int8))
    assert "--tensor 'image_QuantizeLinear_Output=FILE.npy'" in user.fails("dla simulate net.prog")
    words = "--tensor image_QuantizeLinear_Output=image.npy -o results.npz"
    assert "cycles" in user.types(f"dla simulate net.prog {words}")
    with np.load(user.has("results.npz")) as results:
        assert [array.shape for array in results.values()] == [(1, 10)]


def test_replay_a_program(user: User) -> None:
    said = user.types("dla emit digits-cnn -o net.prog --save-inputs")
    assert "cycles" in user.types(said[said.index("dla simulate") :].splitlines()[0])


def test_stop_at_a_layer(user: User) -> None:
    user.types("dla compile digits-cnn -o net.dla")
    seen = user.types("dla simulate net.dla --break pointwise")
    assert seen.startswith("region 0 at cycle ")
    assert "command processor  next word" in seen


def test_what_did_a_change_change(user: User) -> None:
    assert "classifier" in user.types("dla golden diff pe.oc=16 pe.oc=32 --model digits-cnn")


# Many machines.

SWEEP = """\
networks = "digits-cnn"
[arch]
pe.oc = [8, 16]
sram_bytes = ["4 KiB", "64 KiB"]
[timing]
bus_bytes = [4, 8]
"""


def test_sweep_into_a_table(user: User) -> None:
    (user.folder / "grid.toml").write_text(SWEEP)
    assert "8 points: 8 ok" in user.types("dla sweep grid.toml --workers 1 --export grid.csv")
    assert len(user.has("grid.csv").read_text().splitlines()) == 1 + 8


def test_go_on_with_a_sweep(user: User) -> None:
    (user.folder / "grid.toml").write_text(SWEEP)
    user.types("dla sweep grid.toml --workers 1")
    assert "8 had a row before" in user.types("dla sweep grid.toml --workers 1")


def test_a_page_of_a_sweep(user: User) -> None:
    (user.folder / "grid.toml").write_text(SWEEP)
    user.types("dla sweep grid.toml --workers 1 -o grid.sqlite && dla report grid.sqlite -o grid.html")
    user.has("grid.html")


def test_search_a_space(user: User) -> None:
    (user.folder / "space.toml").write_text(SWEEP)
    assert "4 of 8 points evaluated" in user.types("dla explore space.toml --trials 4 --no-grid --workers 1")


def test_tune_and_run_what_was_found(user: User) -> None:
    user.types("dla tune digits-cnn --set sram_bytes=2KiB --measurements 4 --log log.jsonl")
    assert "0 mismatches" in user.types("dla run digits-cnn --set sram_bytes=2KiB --tuned log.jsonl")


# Mistakes.


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("dla run digit-cnn", "did you mean digits-cnn?"),
        ("dla run nothing.onnx", "nothing.onnx: no such file"),
        ("dla run digits-cnn --preset balanced", "did you mean balanced-64?"),
        ("dla run digits-cnn --set sram=64KiB", "did you mean sram_bytes?"),
        ("dla run digits-cnn --set sram_bytes=64KX", "'KX' is no unit"),
        ("dla run digits-cnn --set pe.oc=0", "pe.oc is 0: should be greater than or equal to 1"),
        ("dla run digits-cnn --set sram_bytes", "is not of the form key=value"),
        ("dla run digits-cnn --isa v9", "choose one of v1, v2, v3, v4"),
        ("dla run", "Missing argument 'MODEL'"),
        ("dla rum digits-cnn", "Did you mean 'run'?"),
        ("dla run digits-cnn --shape image=1,1,9,9", "does not fit: the model's shape is (1, 1, 8, 8)"),
        ("echo text > net.onnx; dla run net.onnx", "net.onnx: not an ONNX model"),
        ("dla report nothing.json", "dla run MODEL --json nothing.json"),
        ("touch runs; dla run digits-cnn", "runs is a file, not a folder"),
        ("dla explain digits-cnn convv", "did you mean 'conv'?"),
        ("dla sweep nothing.toml", "nothing.toml: no such file"),
    ],
)
def test_an_error_says_what_to_do(user: User, line: str, says: str) -> None:
    assert says in user.fails(line)


def test_an_input_of_another_shape(user: User) -> None:
    own_network(user.folder)
    np.save(user.folder / "image.npy", np.zeros((1, 3, 8, 8), np.float32))
    seen = user.fails("dla run mine.onnx --input image.npy")
    assert "expected shape (1, 3, 16, 16), got (1, 3, 8, 8)" in seen


def without(user: User, package: str) -> str:
    """A folder to put first on the path, where ``package`` is, and cannot be imported, as where it is not installed."""
    (user.folder / "missing" / package).mkdir(parents=True)
    text = f"raise ModuleNotFoundError(\"No module named '{package}'\", name={package!r})\n"
    (user.folder / "missing" / package / "__init__.py").write_text(text)
    return str(user.folder / "missing")


@pytest.mark.parametrize(
    ("package", "line", "named"),
    [
        ("ai_edge_litert", "dla run net.tflite", "ai-edge-litert"),
        ("optuna", "dla explore grid.toml --workers 1", "optuna"),
        ("lightgbm", "dla tune digits-cnn --measurements 4", "lightgbm"),
        ("pandas", "dla sweep grid.toml --export grid.csv", "pandas"),
    ],
)
def test_an_extra_is_missing(user: User, package: str, line: str, named: str) -> None:
    (user.folder / "grid.toml").write_text(SWEEP)
    source = Path(experiments.models.__file__).parent / "digits-cnn.tflite"
    (user.folder / "net.tflite").write_bytes(source.read_bytes())
    _, installing, packages = user.fails(line, PYTHONPATH=without(user, package)).partition("-m pip install ")
    assert installing
    assert re.search(rf"\b{named}\b", packages)


def test_an_own_file_called_isa(user: User) -> None:
    for name in ("isa.py", "byoc.py", "onnx.py"):
        (user.folder / name).write_text("raise RuntimeError('the wrong file')\n")
    (user.folder / "experiments").mkdir()
    (user.folder / "grid.toml").write_text(SWEEP)
    assert "8 points: 8 ok" in user.types("dla sweep grid.toml --workers 1")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_terminal_that_knows_no_arrows(user: User, encoding: str) -> None:
    assert "pointwise" in user.types("dla run digits-cnn", PYTHONIOENCODING=encoding)
    assert "?" not in user.types("dla partition digits-cnn", PYTHONIOENCODING=encoding)


def test_look_at_the_first_lines_only(user: User) -> None:
    user.types("set -o pipefail; dla emit digits-cnn && dla disasm digits-cnn.prog | head -3")


def test_where_does_it_keep_things(user: User, cache: Path) -> None:
    assert str(cache) in user.types("dla cache")


# Python.


def test_run_from_python(user: User) -> None:
    seen = user.runs("""
import dla

result = dla.run("digits-cnn", settings={"pe.ic": 8, "sram_bytes": "64KiB"})
print(result.report.totals.cycles, result.report.check.mismatches)
print(result)
""")
    assert seen.split()[1] == "0"
    assert "digits-cnn on 8x16 PEs" in seen


def test_run_an_array_and_take_the_answer(user: User) -> None:
    seen = user.runs("""
import numpy as np

import dla

image = np.zeros((1, 1, 8, 8), np.float32)
image[0, 0, :, 3:5] = 1.0
result = dla.run("digits-cnn", inputs=image)
print(result.outputs["logits"].argmax())
""")
    assert seen.strip().isdigit()


def test_run_a_batch(user: User) -> None:
    seen = user.runs("""
import numpy as np

import dla

result = dla.run("digits-cnn", inputs=np.random.default_rng(0).random((5, 1, 1, 8, 8), np.float32))
print(len(result.outputs["logits"]), result.report.check.mismatches)
""")
    assert seen == "5 0\n"


def test_run_a_model_that_a_script_makes(user: User) -> None:
    own_network(user.folder)
    seen = user.runs("""
import numpy as np
import onnx

import dla

model = onnx.load("mine.onnx")
samples = np.random.default_rng(0).normal(size=(8, 1, 3, 16, 16)).astype(np.float32)
result = dla.run(model, calibration=samples, inputs={"image": samples[0]})
print(result.report.check.mismatches, result.outputs["scores"].shape)
""")
    assert seen == "0 (1, 10)\n"


def test_where_do_cycles_go_as_a_table(user: User) -> None:
    seen = user.runs("""
import dla

result = dla.run("digits-cnn")
layers = result.layers
print(layers[layers.on == "dla"].cycles.sum() == result.report.totals.cycles)
print(result.stalls.groupby("cause").cycles.sum())
print(result.placement[result.placement.on == "cpu"].node.to_list())
""")
    assert seen.startswith("True\n")
    assert "image_QuantizeLinear" in seen


def test_a_picture_of_the_roofline(user: User) -> None:
    user.runs("""
import dla

result = dla.run("digits-cnn")
result.plot.roofline().figure.savefig("roofline.png")
result.plot.layers().figure.savefig("layers.svg")
result.plot.timeline().figure.savefig("timeline.pdf")
""")
    for name in ("roofline.png", "layers.svg", "timeline.pdf"):
        user.has(name)


def test_two_pictures_side_by_side(user: User) -> None:
    user.runs("""
import matplotlib.pyplot as plt

import dla

_, (left, right) = plt.subplots(1, 2, figsize=(12, 4))
dla.run("digits-cnn").plot.layers(left)
dla.run("digits-cnn", settings={"sram_bytes": "2KiB"}).plot.layers(right)
plt.savefig("both.png")
""")
    user.has("both.png")


def test_what_a_notebook_shows(user: User) -> None:
    seen = user.runs('import dla\nprint(dla.run("digits-cnn")._repr_html_())\n')
    assert "<table>" in seen
    assert "pointwise" in seen


def test_try_machines_in_a_loop(user: User) -> None:
    seen = user.runs("""
import dla

for name in dla.preset_names()[:2]:
    print(name, dla.run("digits-cnn", preset=name).report.totals.cycles)
""")
    assert "balanced-64" in seen


def test_save_from_python_and_look_at_it_on_the_terminal(user: User) -> None:
    user.runs('import dla\ndla.run("digits-cnn").save("run.json")\n')
    assert "pointwise" in user.types("dla report run.json --tables")


def test_step_by_step(user: User) -> None:
    seen = user.runs("""
import numpy as np

import dla

package = dla.import_model("digits-cnn")
arch = dla.load_hardware("balanced-64", {"pe.ic": 16, "pe.oc": 4, "sram_bytes": "64KiB"}).arch
network = dla.compile(package, arch)
program = network.programs[0]
tensors = {t.name: np.zeros(t.shape, t.dtype) for t in program.inputs}
execution = dla.Device(arch, dla.Timing(bus_bytes=16)).run(program, tensors)
print(execution.trace.cycles, execution.trace.units["EX"])
""")
    assert int(seen.split()[0]) > 0


def test_results_of_a_sweep_in_pandas(user: User) -> None:
    (user.folder / "grid.toml").write_text(SWEEP)
    user.types("dla sweep grid.toml --workers 1 -o grid.sqlite")
    seen = user.runs("""
import dla

rows = dla.load("grid.sqlite")
print(rows.pivot_table(values="cycles", index="sram_bytes", columns="pe.count"))
""")
    assert "65536" in seen


def test_catch_a_mistake(user: User) -> None:
    seen = user.runs("""
import dla

try:
    dla.run("digits-cnn", settings={"sram": "64KiB"})
except dla.InputError as error:
    print(error)
""")
    assert "did you mean sram_bytes?" in seen


def test_misspell_an_argument(user: User) -> None:
    seen = user.runs('import dla\n\ndla.run("digits-cnn", schedul="seed")\n', status=1)
    assert seen.splitlines()[-1].startswith("TypeError: unexpected keyword argument 'schedul'; did you mean schedule?")


def test_what_is_there(user: User) -> None:
    names = user.runs("import dla\nprint(*dir(dla))\n").split()
    assert {"run", "load", "Device", "InputError"} <= set(names)
    assert not [name for name in names if name.startswith("_")]


def test_no_pandas(user: User) -> None:
    without(user, "pandas")
    seen = user.runs("""
import sys

sys.path.insert(0, "missing")
import dla

result = dla.run("digits-cnn")
print(result.report.totals.cycles)
try:
    result.layers
except dla.InputError as error:
    print(error)
""")
    assert re.search(r"-m pip install .*\bpandas\b", seen)


def test_own_files_beside_a_script(user: User) -> None:
    for name in ("isa.py", "byoc.py", "experiments.py", "dla_sim.py"):
        (user.folder / name).write_text("raise RuntimeError('the wrong file')\n")
    assert user.runs('import dla\nprint(dla.run("digits-cnn").report.check.mismatches)\n') == "0\n"


def test_without_the_script_on_the_path(user: User) -> None:
    assert "0 mismatches" in user.types("python -m dla run digits-cnn --summary")


def test_sweep_from_python(user: User) -> None:
    seen = user.runs("""
import dla

if __name__ == "__main__":
    spec = {"networks": "digits-cnn", "arch": {"pe.oc": [8, 16], "sram_bytes": ["4 KiB", "64 KiB"]}}
    swept = dla.sweep(spec, output="grid.sqlite", workers=1)
    print(swept)
    print(swept.table.nsmallest(1, "cycles")[["pe.oc", "sram_bytes"]])
""")
    assert seen.startswith("4 points: 4 ok")
    assert "4 had a row before" in user.runs((user.folder / "script.py").read_text())


def test_search_from_python(user: User) -> None:
    seen = user.runs("""
import dla

if __name__ == "__main__":
    spec = {"networks": "digits-cnn", "arch": {"pe.oc": [4, 8, 16], "sram_bytes": ["2 KiB", "4 KiB", "64 KiB"]}}
    found = dla.explore(spec, objectives="cycles,area", trials=5, grid=False, workers=1)
    print(found.table[found.table.front].cycles.is_unique)
""")
    assert seen == "True\n"


def test_tune_from_python(user: User) -> None:
    seen = user.runs("""
import dla

small = {"sram_bytes": "2KiB"}
tuned = dla.tune("digits-cnn", settings=small, measurements=4, log="log.jsonl")
result = dla.run("digits-cnn", settings=small, options=tuned.best_options)
print(result.report.check.mismatches)
""")
    assert seen == "0\n"
