"""Uses of a results file: tables, exports with manifests, and repetitions that compare."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas
import pytest

import experiments
from experiments.version import compiler_version
from tests.experiments.command_line import dla
from tests.experiments.sweeping import rows_of, run_sweep, written

TEXT = """
    networks = "tiny.onnx"
    schedules = ["seed", "default"]
    [arch]
    pe.oc = [4, 8]
    sram_bytes = [512, 65536]
    [timing]
    bus_bytes = [8, 128]
"""
POINTS = 16


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results file with ok, infeasible and failed points."""
    from experiments.sweep.spec import load_spec

    folder = tmp_path_factory.mktemp("results")
    output = folder / "results.sqlite"
    run_sweep(load_spec(written(folder, TEXT)), output, workers=1, command="dla sweep grid.toml")
    return output


def test_load_gives_typed_columns(results: Path) -> None:
    table = experiments.load(results)
    assert len(table) == POINTS
    assert list(table["key"]) == sorted(table["key"])
    assert dict(table["status"].value_counts()) == {"ok": 6, "failed": 6, "infeasible": 4}
    types = {
        name: str(table[name].dtype)
        for name in ("sram_bytes", "pe.count", "cycles", "kinds.CONV", "utilization")
    }
    assert types == {
        "sram_bytes": "int64", "pe.count": "int64", "cycles": "Int64", "kinds.CONV": "Int64",
        "utilization": "float64",
    }  # fmt: skip
    assert table["emulate_depthwise"].dtype == bool
    ok = table[table["status"] == "ok"]
    kinds = [name for name in table if name.startswith("kinds.")]
    assert (ok[kinds].sum(axis=1) == ok["cycles"]).all()
    assert (
        ok[[name for name in table if name.startswith("LD.")]].sum(axis=1) == ok["cycles"]
    ).all()
    assert table[table["status"] == "infeasible"]["missing_bytes"].notna().all()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_export(
    results: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / f"table.{ending}"
    found = dla(capsys, "sweep", results.parent / "grid.toml", "-o", results, "--export", target)
    assert (found.status, found.err) == (0, "")
    assert found.out.splitlines()[1:] == [f"results in {results}", f"{target}: {POINTS} rows"]
    table = pandas.read_csv(target) if ending == "csv" else pandas.read_parquet(target)
    loaded = experiments.load(results)
    assert list(table.columns) == list(loaded.columns)
    assert list(table["key"]) == list(loaded["key"])
    assert list(table["cycles"].fillna(0)) == list(loaded["cycles"].fillna(0))
    manifests = json.loads(target.with_name(target.name + ".manifest.json").read_text())
    first = manifests[0]
    assert (first["points"], first["versions"]["dla-byoc-simulator"]) == (
        POINTS,
        compiler_version(),
    )
    assert first["packages"] == {"tiny.onnx": loaded["package"][0]}
    assert first["specification"] == (results.parent / "grid.toml").read_text()


def test_repro_finds_nothing(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "repro", results, "--workers", "1")
    assert (found.status, found.err) == (0, "")
    assert found.out == f"{results}: {POINTS} points repeated, all figures equal\n"
    found = dla(capsys, "repro", results, "--points", "5", "--seed", "3", "--workers", "1")
    assert (found.status, found.out) == (0, f"{results}: 5 points repeated, all figures equal\n")


def test_repro_finds_every_change(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(results)
    ok = min(key for key, row in rows.items() if row["status"] == "ok")
    infeasible = min(key for key, row in rows.items() if row["status"] == "infeasible")
    changed = tmp_path / "changed.sqlite"
    with closing(sqlite3.connect(results)) as source, closing(sqlite3.connect(changed)) as target:
        source.backup(target)
        target.execute("UPDATE points SET cycles = cycles + 1 WHERE key = ?", (ok,))
        target.execute("UPDATE points SET missing_bytes = 1 WHERE key = ?", (infeasible,))
        target.execute(
            'UPDATE manifests SET content = replace(content, \'"numpy": "\', \'"numpy": "0.\')'
        )
        target.commit()
    found = dla(capsys, "repro", changed, "--workers", "1")
    cycles = rows[ok]["cycles"]
    missing = rows[infeasible]["missing_bytes"]
    assert isinstance(cycles, int)
    assert found.status == 1
    assert sorted(found.err.splitlines()) == sorted(
        [
            f"difference: point {ok}: cycles is {cycles + 1} in the file and {cycles} repeated",
            f"difference: point {infeasible}: missing_bytes is 1 in the file and {missing} "
            "repeated",
        ]
    )
    assert "note: numpy was 0." in found.out
    assert found.out.endswith(f"{changed}: 2 of {POINTS} points differ\n")


def test_repro_of_what_cannot_be_repeated(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from experiments.sweep.store import Store

    with Store(tmp_path / "empty.sqlite", create=True):
        pass
    (tmp_path / "text").write_text("x" * 5000)
    for name, message in (
        (
            "empty.sqlite",
            "empty.sqlite: it holds no results that can be repeated; run 'dla sweep' first",
        ),
        (
            "text",
            "text: not a results file of dla sweep (file is not a database); choose another place",
        ),
    ):
        found = dla(capsys, "repro", tmp_path / name)
        assert (found.status, found.out, found.err) == (2, "", f"error: {tmp_path}/{message}\n")
    found = dla(capsys, "repro", tmp_path / "none")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith(f"error: {tmp_path}/none: no such file")
    found = dla(capsys, "repro", results, "--points", "0")
    assert (found.status, found.err) == (2, "error: --points is 0; it must be 1 or more\n")
