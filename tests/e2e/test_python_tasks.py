"""Tasks that a user tries from Python, as short scripts."""

from __future__ import annotations

import re

import pytest

from tests.e2e.user_tasks import SWEEP, User, own_network, without

pytestmark = pytest.mark.slow  # every task starts processes


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
    assert seen.splitlines()[-1].startswith(
        "TypeError: unexpected keyword argument 'schedul'; did you mean schedule?"
    )


def test_what_is_there(user: User) -> None:
    names = user.runs("import dla\nprint(*dir(dla))\n").split()
    assert {"run", "load", "Device", "InputError"} <= set(names)
    assert [name for name in names if name.startswith("_")] == ["__version__"]


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
    arch = {"pe.oc": [4, 8, 16], "sram_bytes": ["2 KiB", "4 KiB", "64 KiB"]}
    spec = {"networks": "digits-cnn", "arch": arch}
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
