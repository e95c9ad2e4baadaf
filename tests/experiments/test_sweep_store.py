"""The results file: whole transactions, several writers, other files and full disks refused in one line."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from experiments.sweep.store import COLUMNS, Row, Store
from isa.errors import InputError
from tests.experiments.sweeping import rows_of, written


def row(key: str, status: str = "ok") -> Row:
    """A row with a long message."""
    values = dict.fromkeys(COLUMNS) | {"key": key, "status": status, "message": "x" * 1000}
    return tuple(values.values())


def test_rows_stay_as_they_are(tmp_path: Path) -> None:
    with Store(tmp_path / "new" / "a.sqlite", create=True) as store:
        store.add([row("a"), row("b")])
        store.add([row("b", "failed"), row("c")])
        assert store.stored(["a", "c", "d"]) == {"a", "c"}
        assert [found[0] for found in store.rows()] == ["a", "b", "c"]
        assert store.counts() == {"ok": 3}
        assert store.row("d") is None
        assert store.forget("ok") == 3


def test_many_keys_are_looked_up_at_once(tmp_path: Path) -> None:
    keys = [f"{number:05}" for number in range(3000)]
    with Store(tmp_path / "a.sqlite", create=True) as store:
        store.add(row(key) for key in keys[::2])
        assert store.stored(keys) == set(keys[::2])


def test_a_transaction_is_whole_or_nothing(tmp_path: Path) -> None:
    def broken() -> object:
        yield row("a")
        raise KeyboardInterrupt

    with Store(tmp_path / "a.sqlite", create=True) as store:
        with pytest.raises(KeyboardInterrupt):
            store.add(broken())
        assert store.counts() == {}
        store.add([row("b")])
        assert store.counts() == {"ok": 1}


def test_another_version_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path, create=True) as store:
        store.add([row("a")])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")
    for create in (False, True):
        with pytest.raises(InputError) as raised:
            Store(path, create=create)
        assert str(raised.value) == (
            f"{path}: a results file of version 7, this tool reads version 1; write to another file"
        )


def test_other_files_are_errors(tmp_path: Path) -> None:
    text, database = tmp_path / "text", tmp_path / "database"
    text.write_text("not a database, but long enough to be taken for one " * 40)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE points (name TEXT)")
    for path, why in ((text, r"file is not a database"), (database, "")):
        for create in (False, True):
            with pytest.raises(InputError, match=rf"^{path}: not a results file of dla sweep.*{why}"):
                Store(path, create=create)
    assert text.read_text().startswith("not a database")
    with pytest.raises(InputError, match=r"none: no such file; 'dla sweep SPEC.toml --output .*none' makes results"):
        Store(tmp_path / "none")


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "a.sqlite", Path("/proc/none/a.sqlite")):
        with pytest.raises(InputError, match=rf"^{path}: cannot be written \(.*\); choose another place$"):
            Store(path, create=True)


def test_a_full_database_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path, create=True) as store:
        store.add([row("a")])
        store._connection.execute("PRAGMA max_page_count = 10")
        with pytest.raises(InputError) as raised:
            store.add(row(f"b{number}") for number in range(100))
        assert str(raised.value) == (
            f"{path}: the disk is full or failing (database or disk is full); what was finished is kept: "
            "make room and run the sweep again"
        )
    with Store(path) as store:
        assert store.counts() == {"ok": 1}


LIMITED = """
import resource, signal, sys
from pathlib import Path
from experiments.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[1])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(main(["sweep", "grid.toml", "-o", "results.sqlite", "--workers", "1"]))
"""


@pytest.mark.slow
def test_a_full_disk_stops_a_sweep_and_loses_nothing(tmp_path: Path) -> None:
    """The limit on the size of files stands for the disk: writes beyond it fail in the middle of the sweep."""
    written(tmp_path, 'networks = "tiny.onnx"\ntiming.dram_latency = { from = 1, to = 600, step = 1 }\n')

    def sweep(limit: int) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-c", LIMITED, str(limit)]
        return subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)

    stopped = sweep(400_000)
    assert (stopped.returncode, stopped.stdout) == (2, "")
    assert re.fullmatch(
        r"error: results.sqlite: the disk is full or failing \(.*\); what was .* again\n", stopped.stderr
    )
    kept = rows_of(tmp_path / "results.sqlite")
    assert 0 < len(kept) < 600
    finished = sweep(0)
    assert finished.returncode == 0
    assert f"600 points: {600 - len(kept)} ok, 0 infeasible, 0 failed; {len(kept)} had a row before" in finished.stdout
    rows = rows_of(tmp_path / "results.sqlite")
    assert len(rows) == 600
    assert {key: rows[key] for key in kept} == kept
