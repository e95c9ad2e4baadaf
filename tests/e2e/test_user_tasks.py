"""Tasks of a user, as command lines in an empty folder and short Python scripts."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import experiments.models
from tests.e2e.user_tasks import SWEEP, User, own_network, samples, without
from tests.experiments.trace_reader import read_trace

pytestmark = pytest.mark.slow  # tasks compile networks or start processes


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
    # what it was quantised on was drawn, which says nothing of its accuracy
    assert "random" in seen


def test_calibrate_with_own_samples(user: User) -> None:
    own_network(user.folder)
    np.savez(user.folder / "samples.npz", image=samples())
    assert "quantised on 4 inputs of samples.npz" in user.types(
        "dla run mine.onnx --calibration samples.npz"
    )


def test_measure_accuracy_on_own_samples(user: User) -> None:
    own_network(user.folder)
    np.savez(user.folder / "held-out.npz", image=samples(), labels=np.array([1, 2, 3, 4]))
    assert "of 4 " in user.types("dla run mine.onnx --accuracy held-out.npz")


def test_run_on_an_own_input(user: User) -> None:
    own_network(user.folder)
    np.save(user.folder / "image.npy", samples()[0])
    assert "0 mismatches" in user.types("dla run mine.onnx --input image.npy")


def test_give_an_open_dimension_a_size(user: User) -> None:
    own_network(user.folder, shape=("batch", 3, "rows", 16))
    assert "--shape" in user.fails("dla run mine.onnx")
    assert "0 mismatches" in user.types("dla run mine.onnx --shape image=2,3,16,16")


def test_run_a_tensorflow_lite_file(user: User) -> None:
    source = Path(experiments.models.__file__).parent / "digits-cnn.tflite"
    (user.folder / "mine.tflite").write_bytes(source.read_bytes())
    assert "0 mismatches" in user.types("dla run mine.tflite --set numerics=fixed")


def test_why_is_a_node_on_the_cpu(user: User) -> None:
    own_network(user.folder, unsupported=True)
    assert "largest" in user.types("dla partition mine.onnx | grep Hardmax")


def test_refuse_anything_on_the_cpu(user: User) -> None:
    own_network(user.folder, unsupported=True)
    assert "largest" in user.fails("dla run mine.onnx --strict")


def test_keep_a_layer_on_the_cpu(user: User) -> None:
    seen = user.types("dla run digits-cnn --cpu pool --json run.json")
    assert "0 mismatches" in seen
    report = json.loads(user.has("run.json").read_text(encoding="utf-8"))
    assert "cpu" in {place["on"] for place in report["placement"] if place["node"] == "pool"}


def test_hand_over_integers(user: User) -> None:
    assert "image: int8 [1, 1, 8, 8], scale" in user.types("dla run digits-cnn --integer-io --all")


def test_keep_a_package_and_run_it(user: User) -> None:
    user.types("dla compile digits-cnn -o net.dla")
    assert "0 mismatches" in user.types("dla run net.dla")


# Machines.


def test_another_machine(user: User) -> None:
    assert "64x1 PEs" in user.types("dla run digits-cnn --preset seed-i64")


def test_sizes_with_units(user: User) -> None:
    assert "4 KiB SRAM" in user.types(
        "dla run digits-cnn --set sram_bytes=4KiB --set clock_hz=800MHz"
    )


def test_weights_in_a_flash(user: User) -> None:
    assert "(flash " in user.types("dla run digits-cnn --memory-mode flash --summary")


def test_which_machines_are_there(user: User) -> None:
    assert "balanced-64 (default)" in user.types("dla presets")


def test_what_can_be_set(user: User) -> None:
    assert "outstanding_bursts" in user.types("dla settings")


def test_change_a_machine_that_is_there(user: User) -> None:
    user.types(
        "dla presets balanced-64 > mine.toml && sed -i 's/^pe.oc = 16/pe.oc = 32/' mine.toml"
    )
    assert "4x32 PEs" in user.types("dla run digits-cnn --preset mine.toml")


def test_a_machine_in_a_file(user: User) -> None:
    (user.folder / "mine.toml").write_text(
        '[arch]\npe = { ic = 4, oc = 8 }\nsram_bytes = "16 KiB"\n'
    )
    assert "4x8 PEs (ic x oc), 16 KiB SRAM" in user.types("dla run digits-cnn --preset mine.toml")


def test_the_published_schedule(user: User) -> None:
    assert "schedule seed" in user.types("dla run digits-cnn --schedule seed --preset seed-o64")


def test_estimate_energy(user: User) -> None:
    seen = user.types("dla run digits-cnn --cost horowitz-45nm")
    assert "estimates without bus and CPU" in seen
    seen = user.types("dla run digits-cnn --cost horowitz-45nm --summary")
    assert "energy (estimate)" in seen


def test_why_this_tiling(user: User) -> None:
    assert "considered:" in user.types("dla explain digits-cnn conv --set sram_bytes=2KiB")


# Reports.


def test_a_page_to_show_around(user: User) -> None:
    user.types("dla run digits-cnn --json run.json && dla report run.json -o run.html")
    assert "</html>" in user.has("run.html").read_text(encoding="utf-8")


def test_pictures_for_a_paper(user: User) -> None:
    user.types(
        "dla run digits-cnn --json run.json && dla report run.json -o run.html --png pictures"
    )
    user.has("pictures/roofline.png")


def test_compare_two_machines(user: User) -> None:
    user.types(
        "dla run digits-cnn --json big.json && dla run digits-cnn --set sram_bytes=2KiB "
        "--json small.json"
    )
    assert "pointwise" in user.types("dla report big.json small.json --tables")


def test_read_the_report_in_a_script(user: User) -> None:
    user.types("dla run digits-cnn --json run.json")
    report = json.loads(user.has("run.json").read_text(encoding="utf-8"))
    assert report["check"]["mismatches"] == 0
    assert sum(layer["cycles"] for layer in report["layers"]) == report["totals"]["cycles"]


def test_pipe_the_report_into_another_program(user: User) -> None:
    seen = user.types(
        "dla run digits-cnn --json - | python -c 'import json, sys; "
        'print(json.load(sys.stdin)["model"])\''
    )
    assert "digits-cnn" in seen
    assert not (user.folder / "runs").exists()


def test_open_the_layers_in_a_spreadsheet(user: User) -> None:
    user.types("dla run digits-cnn --csv layers.csv --json run.json")
    with user.has("layers.csv").open(encoding="utf-8", newline="") as file:
        layers = list(csv.DictReader(file))
    report = json.loads(user.has("run.json").read_text(encoding="utf-8"))
    assert (
        sum(int(layer["cycles"]) for layer in layers if layer["on"] == "dla")
        == report["totals"]["cycles"]
    )


def test_a_timeline_for_perfetto(user: User) -> None:
    user.types("dla run digits-cnn --json run.json --trace timeline.pftrace")
    report = json.loads(user.has("run.json").read_text(encoding="utf-8"))
    timeline = read_trace(user.has("timeline.pftrace").read_bytes())
    (program,) = timeline.of("program")
    assert program.duration == report["totals"]["cycles"]


def test_is_an_old_report_still_true(user: User) -> None:
    user.types("dla run digits-cnn --json run.json")
    assert "values equal" in user.types("dla repro run.json")


# Programs.


def test_read_change_and_write_a_program(user: User) -> None:
    user.types(
        "dla emit digits-cnn -o net.prog && dla disasm net.prog -o net.asm && dla asm "
        "net.asm -o again.prog"
    )
    assert "OP_CONV" in user.has("net.asm").read_text(encoding="utf-8")
    user.types("cmp net.prog again.prog")


def test_simulate_a_program_alone(user: User) -> None:
    user.types("dla emit digits-cnn -o net.prog")
    np.save(user.folder / "image.npy", np.zeros((1, 64, 1), np.int8))  # one surface of atoms
    assert "--tensor 'image_QuantizeLinear_Output=FILE.npy'" in user.fails("dla simulate net.prog")
    words = "--tensor image_QuantizeLinear_Output=image.npy -o results.npz"
    assert "cycles" in user.types(f"dla simulate net.prog {words}")
    with np.load(user.has("results.npz")) as results:
        assert [array.shape for array in results.values()] == [(2, 1, 8)]  # ten, in atoms of 8


def test_replay_a_program(user: User) -> None:
    said = user.types("dla emit digits-cnn -o net.prog --save-inputs")
    assert "cycles" in user.types(said[said.index("dla simulate") :].splitlines()[0])


def test_stop_at_a_layer(user: User) -> None:
    user.types("dla compile digits-cnn -o net.dla")
    seen = user.types("dla simulate net.dla --break pointwise")
    assert seen.startswith("region 0 at cycle ")
    assert "executes word 31 OP_DMA_READ push.EX (layer 'pointwise'" in seen


def test_what_did_a_change_change(user: User) -> None:
    assert "classifier" in user.types("dla golden diff pe.oc=16 pe.oc=32 --model digits-cnn")


# Many machines.


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
    user.types(
        "dla sweep grid.toml --workers 1 -o grid.sqlite && dla report grid.sqlite -o grid.html"
    )
    user.has("grid.html")


def test_search_a_space(user: User) -> None:
    (user.folder / "space.toml").write_text(SWEEP)
    assert "4 of 8 points evaluated" in user.types(
        "dla explore space.toml --trials 4 --no-grid --workers 1"
    )


def test_tune_and_run_what_was_found(user: User) -> None:
    user.types("dla tune digits-cnn --set sram_bytes=2KiB --measurements 4 --log log.jsonl")
    assert "0 mismatches" in user.types(
        "dla run digits-cnn --set sram_bytes=2KiB --tuned log.jsonl"
    )


# What was run before.


def test_list_what_was_run_with_the_newest_first(user: User) -> None:
    user.types("dla run digits-cnn && sleep 0.1 && dla run digits-cnn --set pe.oc=32")
    lines = [line for line in user.types("dla runs").splitlines() if "digits-cnn" in line]
    assert ["4x32 PEs" in line for line in lines] == [True, False]
    assert all(" right " in line for line in lines)


def test_list_the_runs_of_one_project_for_a_spreadsheet(user: User) -> None:
    user.types("dla run digits-cnn && dla run digits-cnn --set pe.oc=8 --json project/small.json")
    rows = list(csv.DictReader(user.types("dla runs project --csv -").splitlines()))
    assert [(row["file"], row["network"], row["check"]) for row in rows] == [
        ("project/small.json", "digits-cnn", "right")
    ]
    report = json.loads(user.has("project/small.json").read_text(encoding="utf-8"))
    milliseconds = report["end_to_end"]["cycles"] / report["timing"]["clock_hz"] * 1e3
    assert float(rows[0]["milliseconds"]) == pytest.approx(milliseconds)


def test_find_out_which_file_of_many_is_damaged(user: User) -> None:
    user.types("dla run digits-cnn && head -c 999 runs/*.json > runs/half.json")
    seen = user.types("dla runs")
    assert seen.count("digits-cnn") == 2  # network and file of the run that is whole
    assert "not listed: runs/half.json: not a run report (it is not JSON)" in seen


def test_a_report_of_what_was_run_last(user: User) -> None:
    assert "runs: no such folder" in user.fails("dla report")
    user.types("dla run digits-cnn && sleep 0.1 && dla run digits-cnn --set pe.oc=32")
    seen = user.types("dla report")
    assert "4x32 PEs" in seen
    (name,) = re.findall(r"page written to (\S+)", seen)
    user.has(name)


def test_compare_three_machines_at_once(user: User) -> None:
    sizes = (8, 16, 32)
    for size in sizes:
        user.types(f"dla run digits-cnn --set pe.oc={size} --json {size}.json")
    seen = user.types("dla report 8.json 16.json 32.json -o three.html")
    expected = [
        json.loads(user.has(f"{size}.json").read_text(encoding="utf-8"))["totals"]["cycles"]
        for size in sizes
    ]
    (line,) = (line for line in seen.splitlines() if line.startswith(" cycles  ") and "," in line)
    assert [int(word.replace(",", "")) for word in line.split()[1::2]] == expected
    assert "</html>" in user.has("three.html").read_text(encoding="utf-8")


def test_a_page_at_once(user: User) -> None:
    (name,) = re.findall(r"page written to (\S+)", user.types("dla run digits-cnn --html"))
    assert "</html>" in user.has(name).read_text(encoding="utf-8")


def test_nothing_but_the_result_for_a_script(user: User) -> None:
    user.types("dla run digits-cnn --quiet > out.txt 2> err.txt")
    assert (user.folder / "err.txt").read_text() == ""
    assert "more:" not in user.has("out.txt").read_text()
    assert "limit" in user.has("out.txt").read_text()
    assert user.fails("dla run nothing.onnx -q").startswith("nothing.onnx: no such file")


LONG_SWEEP = """\
networks = ["mobilenet-v1", "resnet-8"]
[arch]
pe.ic = [1, 2, 4, 8, 16]
pe.oc = [4, 8, 16, 32, 64]
sram_bytes = ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB"]
"""


def test_see_in_a_log_how_far_a_sweep_is(user: User) -> None:
    (user.folder / "long.toml").write_text(LONG_SWEEP)
    user.types("timeout -s INT 14 dla sweep long.toml --workers 1 2> log.txt", status=124)
    log = user.has("log.txt").read_text()
    assert re.match(r"1\d s: points: \d+ of 250\n", log)
    assert "the same command continues" in log
    assert re.search(r" mobilenet-v1, resnet-8 +\d+ of 250 +not running ", user.types("dla runs"))


SERVED = """
import re, signal, subprocess, urllib.request
server = subprocess.Popen(["dla", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
address = re.search("at (http://127.0.0.1:[0-9]+)/;", server.stdout.readline())[1]
def opened(link):
    return urllib.request.urlopen(address + link).read().decode()
print(re.findall("<td>[0-9,]+ of [0-9,]+</td><td>[a-z ]+</td>", opened("/")))
for link in re.findall('href="(/report/[^"]*)"', opened("/")):
    print(link, len(opened(link)) > 1000000)
port = address.rpartition(":")[2]
taken = subprocess.run(["dla", "serve", "--port", port], capture_output=True, text=True)
print(taken.returncode, taken.stderr.strip().replace(port, "PORT"))
server.send_signal(signal.SIGINT)
print(server.wait())
"""


def test_look_at_all_results_in_a_browser(user: User) -> None:
    (user.folder / "grid.toml").write_text(SWEEP)
    user.types("dla run digits-cnn --json runs/run.json && dla sweep grid.toml --workers 1")
    assert user.runs(SERVED).splitlines() == [
        "['<td>8 of 8</td><td>complete</td>']",
        "/report/grid.sqlite True",
        "/report/run.json True",
        "2 error: port PORT of 127.0.0.1 is in use; choose another one with --port, or any free "
        "one with --port 0",
        "-2",
    ]


def test_serve_a_folder_that_is_not_there(user: User) -> None:
    assert "results: no such folder" in user.fails("dla serve results")


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
        (
            "dla run digits-cnn --shape image=1,1,9,9",
            "does not fit: the model's shape is (1, 1, 8, 8)",
        ),
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
    _, installing, packages = user.fails(line, PYTHONPATH=without(user, package)).partition(
        "-m pip install "
    )
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
