"""``dla.load`` reads every file that ``dla`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dla
from byoc.options import Choices
from byoc.tuning.log import TuningLog
from dla_sim.presets import Preset
from dla_sim.systems.spec import System
from experiments.cli.main import main
from experiments.cost.table import CostTable
from experiments.golden.store import Corpus
from experiments.sweep.spec import Spec
from isa.program import Program
from tests.docs.session import ROOT
from tests.e2e.user_tasks import SWEEP

SYSTEM = """\
[[accelerator]]
name = "npu"
count = 2
[[task]]
name = "digits"
model = "digits-cnn"
period = "1ms"
"""
TOML: dict[str, tuple[str, type]] = {
    "machine.toml": ("[arch]\npe = { ic = 4, oc = 8 }\n", Preset),
    "sweep.toml": (SWEEP, Spec),
    "system.toml": (SYSTEM, System),
    "pins.toml": ("[layers.conv]\nrows = 2\n", Choices),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, (text, _) in TOML.items():
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", TOML)
@pytest.mark.usefixtures("folder")
def test_toml_files(name: str) -> None:
    assert type(dla.load(name)) is TOML[name][1]


def test_cost_tables_and_golden_cases() -> None:
    assert isinstance(dla.load(ROOT / "experiments/cost/horowitz-45nm.toml"), CostTable)
    assert isinstance(dla.load(ROOT / "tests/golden"), Corpus)


WRITTEN: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "run": (
        "run digits-cnn --json x.json --no-advice",
        "x.json",
        lambda found: isinstance(found, dla.RunReport),
    ),
    "timeline": (
        "run digits-cnn --json x.json --no-advice --trace t.pftrace",
        "t.pftrace",
        lambda found: len(found.packet) > 10,
    ),
    "system": (
        "system system.toml --until 2ms --json s.json",
        "s.json",
        lambda found: isinstance(found, dla.SystemReport),
    ),
    "split": (
        "split digits-cnn system.toml --by batch --json p.json",
        "p.json",
        lambda found: isinstance(found, dla.SplitReport),
    ),
    "package": ("compile digits-cnn -o d.dla", "d.dla", lambda p: isinstance(p, dla.Package)),
    "program": ("emit digits-cnn -o d.prog", "d.prog", lambda p: isinstance(p, Program)),
    "tuning": (
        "tune digits-cnn --no-model --measurements 2 --set sram_bytes=2KiB --log t.jsonl",
        "t.jsonl",
        lambda found: isinstance(found, TuningLog),
    ),
    "sweep": (
        "sweep sweep.toml --workers 1 -o s.sqlite",
        "s.sqlite",
        lambda found: len(found) == 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.usefixtures("folder")
def test_results(kind: str) -> None:
    line, file, is_right = WRITTEN[kind]
    assert main(line.split()) == 0
    assert is_right(dla.load(file))


def test_other_files_are_rejected(folder: Path) -> None:
    np.savez("a.npz", x=np.arange(3))
    assert dla.load("a.npz")["x"].tolist() == [0, 1, 2]
    Path("x.toml").write_text("a = 1\n", encoding="utf-8")
    Path("x.json").write_text(json.dumps({"schema": "other/1"}), encoding="utf-8")
    Path("x.pftrace").write_bytes(b"no trace")
    for file, said in (
        ("nothing.json", "nothing.json: no such file"),
        ("x.toml", "x.toml: no machine, system, sweep, schedule or cost table"),
        ("x.pftrace", "x.pftrace: no timeline, or a damaged one; write it again"),
        ("x.json", "x.json: not a run report of schema dla-run/1"),
    ):
        with pytest.raises(dla.InputError, match=f"^{said}"):
            dla.load(file)
    with pytest.raises(dla.InputError, match=r"^pins.toml: not results of a sweep; leave cost out"):
        dla.load("pins.toml", cost="horowitz-45nm")
