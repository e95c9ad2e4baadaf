"""Python's door: wrong types are an InputError that names them.

Results go to other processes; repr is a line.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dla

NAME: Any = "digits-cnn"
NESTED: dict[str, Any] = {}
NESTED["task"] = NESTED
LIST: list[Any] = []
LIST.append(LIST)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "seed": (lambda: dla.run(NAME, seed="x"), "seed is 'x' (str); give an integer"),  # type: ignore[arg-type]
    "seed, bool": (lambda: dla.run(NAME, seed=True), "seed is True (bool); give an integer"),
    "seed, negative": (lambda: dla.run(NAME, seed=-1), "seed is -1; it is 0 or more"),
    "masked": (
        lambda: dla.run(NAME, inputs=np.ma.zeros((1, 1, 8, 8), np.float32)),
        "inputs: a masked array, of which ",
    ),
    "masked, by name": (
        lambda: dla.run(NAME, inputs={"image": np.ma.zeros((1, 1, 8, 8), np.float32)}),
        "inputs, 'image': a masked array, of which no network knows the mask; give "
        "array.filled(VALUE)",
    ),
    "nested": (lambda: dla.run(NAME, inputs=LIST), "inputs: cannot be made an array ("),
    "isa": (lambda: dla.run(NAME, isa=4), "isa is 4 (int); give a text or None"),  # type: ignore[arg-type]
    "cpu": (lambda: dla.run(NAME, cpu=[3]), "cpu is [3] (list); give a list of texts"),  # type: ignore[list-item]
    "cpu, letter by letter": (
        lambda: dla.run(NAME, cpu="conv"),
        "cpu is 'conv' (str); give a list of texts",
    ),
    "shapes": (
        lambda: dla.run(NAME, shapes={"image": None}),
        "shapes is {'image': None} (dict); give ",
    ),  # type: ignore[dict-item]
    "cache": (lambda: dla.run(NAME, cache="no"), "cache is 'no' (str); give True or False"),  # type: ignore[arg-type]
    "preset": (lambda: dla.run(NAME, preset=3), "preset is 3 (int); give a text or a path or None"),  # type: ignore[arg-type]
    "timeline": (
        lambda: dla.run(NAME, timeline=3),
        "timeline is 3 (int); give a text or a path or None",
    ),  # type: ignore[arg-type]
    "engine": (
        lambda: dla.run(NAME, engine="rtl"),
        "engine is 'rtl' (str); give a function or None",
    ),  # type: ignore[arg-type]
    "settings": (
        lambda: dla.tune(NAME, settings={3}),
        "settings has 3; give texts such as 'pe.ic=8', or values by key",
    ),  # type: ignore[arg-type]
    "a choice": (
        lambda: dla.run(NAME, emulate_depthwise=np.ma.zeros((2, 2))),
        "emulate_depthwise is masked_array(",
    ),  # type: ignore[arg-type]
    "progress": (lambda: dla.run(NAME, progress=""), "progress is '' (str); give a function"),  # type: ignore[arg-type]
    "progress, a class": (
        lambda: dla.run(NAME, progress=int),
        "progress is <class 'int'> (type); give a function",
    ),  # type: ignore[arg-type]
    "stage": (lambda: dla.tune(NAME, stage={}), "stage is {} (dict); give a function"),  # type: ignore[arg-type]
    "engine, a class": (
        lambda: dla.run(NAME, engine=int),
        "engine is <class 'int'> (type); give a function or None",
    ),  # type: ignore[arg-type]
    "engine, of too few": (lambda: dla.run(NAME, engine=lambda: None), "engine is <function "),  # type: ignore[arg-type, misc]
    "engine, of nothing": (
        lambda: dla.run(NAME, engine=print),
        "engine returns NoneType, which runs no programs; ",
    ),  # type: ignore[arg-type]
    "import": (lambda: dla.import_model(NAME, seed=None), "seed is None; give an integer"),  # type: ignore[arg-type]
    "measurements": (
        lambda: dla.tune(NAME, measurements="9"),
        "measurements is '9' (str); give an integer",
    ),  # type: ignore[arg-type]
    "system": (lambda: dla.system(None), "spec is None; give a text or a path or a table by name"),  # type: ignore[arg-type]
    "system, nested": (
        lambda: dla.system(NESTED),
        "<system>: lists or tables are nested too deep, or in themselves",
    ),
    "until": (
        lambda: dla.system({}, until=1.5),
        "until is 1.5 (float); give an integer or a text or None",
    ),  # type: ignore[arg-type]
    "sweep": (lambda: dla.sweep({}, workers="2"), "workers is '2' (str); give an integer or None"),  # type: ignore[arg-type]
    "explore": (lambda: dla.explore({}, trials=None), "trials is None; give an integer"),  # type: ignore[arg-type]
    "load": (lambda: dla.load(3), "path is 3 (int); give a text or a path"),  # type: ignore[arg-type]
    "load_package": (lambda: dla.load_package(None), "path is None; give a text or a path"),  # type: ignore[arg-type]
    "compile": (lambda: dla.compile("a", "b"), "package is 'a' (str); give a package"),  # type: ignore[arg-type]
    "load_hardware": (lambda: dla.load_hardware(4), "preset is 4 (int); give a text or None"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_types_are_named(case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(dla.InputError) as refused:
        call()
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_right_types_of_others_are_taken() -> None:
    result = dla.run(
        NAME, seed=np.int64(3), cpu=("none-such*",) * 0, settings=iter(["pe.ic=8"]), shapes={}
    )
    assert result.report.seed == 3
    assert dla.load_hardware(settings={"sram_bytes": "64KiB"}).arch.sram_bytes == 65536


@pytest.fixture(scope="module")
def result() -> dla.Result:
    return dla.run(NAME)


def test_a_result_goes_to_another_process(result: dla.Result, tmp_path: Path) -> None:
    (tmp_path / "result").write_bytes(pickle.dumps(result))
    code = (
        "import pickle, sys; r = pickle.load(open(sys.argv[1], 'rb')); print(r.package.digest, "
        "r.report.totals.cycles)"
    )
    home = f"{Path(dla.__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {home!r}); "
                               f"{code}", str(tmp_path / "result")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == f"{result.package.digest} {result.report.totals.cycles}\n", done.stderr
    again = pickle.loads(pickle.dumps(result))
    assert again.report == result.report
    assert all(np.array_equal(again.outputs[name], array) for name, array in result.outputs.items())


def test_everything_shows_itself_in_a_line(result: dla.Result) -> None:
    network = dla.compile(result.package, dla.load_hardware().arch)
    for one in (
        result.package,
        result.package.graph,
        network,
        network.partition,
        network.programs[0],
        result.report,
    ):
        assert "\n" not in repr(one)
        assert len(repr(one)) < 300, type(one)
        assert str(one) == repr(one)


SYSTEM = {
    "accelerator": [{"name": "npu"}], "run": {"until": "20us"},
    "task": [{"name": "a", "cpu": 1000, "period": "5us"}],
}  # fmt: skip


SPECIFICATION = {"networks": NAME, "arch": {"pe.oc": [4, 8]}}
BESIDE = {"accelerator": [{"name": "npu", "count": 2}]}


def test_results_of_every_kind_are_shown_travel_and_are_kept(
    result: dla.Result, tmp_path: Path
) -> None:
    """One way for all: the first line, rows as a table, the file of ``--json``.

    And equal when they have travelled.
    """
    kinds = [
        result, dla.system(SYSTEM), dla.sweep_system(SYSTEM, {"run.policy": ["fcfs", "edf"]}),
        dla.split(NAME, BESIDE, "channels"),
        dla.explore(SPECIFICATION, output=tmp_path / "e.sqlite", trials=2, workers=1),
    ]  # fmt: skip
    without = [
        dla.sweep(SPECIFICATION, output=tmp_path / "s.sqlite", workers=1),
        dla.tune(NAME, measurements=2, learn=False, log=tmp_path / "t.jsonl"),
    ]
    for found in (*kinds, *without):
        again = pickle.loads(pickle.dumps(found))
        assert (repr(again), str(again), again._repr_html_()) == (
            repr(found),
            str(found),
            found._repr_html_(),
        )
        assert repr(found) == found.lines()[0]
    for number, found in enumerate(kinds):
        found.save(tmp_path / f"{number}.json")
        assert json.loads((tmp_path / f"{number}.json").read_text())["schema"].startswith("dla-")
        if not isinstance(found, dla.SplitReport):
            assert len(found.table) == len(found.records()) > 0
    for found in without:
        with pytest.raises(dla.InputError, match="there is no file of it"):
            found.save(tmp_path / "none.json")
    assert len(repr(dla.system(SYSTEM).report)) < 300
