"""The results file: whole transactions, several writers, and errors of one line.

Errors are those for other files and full disks.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from experiments.sweep.results import flat_rows
from experiments.sweep.store import COLUMNS, Row, Store
from isa.errors import InputError
from tests.experiments.sweeping import rows_of, statuses, written


def row(key: str, status: str = "ok") -> Row:
    """A row with a long message."""
    values = dict.fromkeys(COLUMNS) | {"key": key, "status": status, "message": "x" * 1000}
    return tuple(values.values())


def test_rows_stay_as_they_are(tmp_path: Path) -> None:
    with Store(tmp_path / "new" / "a.sqlite", create=True) as store:
        store.add([row("a"), row("b")])
        assert store.add([row("b", "failed"), row("c")]) == [row("c")]
        assert store.find_stored(["a", "c", "d"]) == {"a": "ok", "c": "ok"}
        assert [found[0] for found in store.rows()] == ["a", "b", "c"]
        assert statuses(store) == {"ok": 3}
        assert store.row("d") is None
        assert store.forget("ok") == 3


def test_many_keys_are_looked_up_at_once(tmp_path: Path) -> None:
    keys = [f"{number:05}" for number in range(3000)]
    with Store(tmp_path / "a.sqlite", create=True) as store:
        store.add(row(key) for key in keys[::2])
        assert store.find_stored(keys) == dict.fromkeys(keys[::2], "ok")


def test_a_transaction_is_whole_or_nothing(tmp_path: Path) -> None:
    def broken() -> object:
        yield row("a")
        raise KeyboardInterrupt

    with Store(tmp_path / "a.sqlite", create=True) as store:
        with pytest.raises(KeyboardInterrupt):
            store.add(broken())
        assert statuses(store) == {}
        store.add([row("b")])
        assert statuses(store) == {"ok": 1}


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
            f"{path}: a results file of version 7, this tool reads version 2; write to another file"
        )


def test_other_files_are_errors(tmp_path: Path) -> None:
    text = tmp_path / "text"
    database = tmp_path / "database"
    text.write_text("not a database, but long enough to be taken for one " * 40)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE points (name TEXT)")
    for path, why in ((text, r"file is not a database"), (database, "")):
        for create in (False, True):
            with pytest.raises(
                InputError, match=rf"^{path}: not a results file of dla sweep.*{why}"
            ):
                Store(path, create=create)
    assert text.read_text().startswith("not a database")
    with pytest.raises(
        InputError, match=r"none: no such file; 'dla sweep SPEC.toml --output .*none' makes results"
    ):
        Store(tmp_path / "none")


def made(path: Path, *statements: str) -> bytes:
    """Make a results file with a row, apply foreign statements, and return its bytes."""
    with Store(path, create=True) as store:
        store.add([row("a")])
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("CREATE VIEW more AS SELECT * FROM points", "more"),
        ("CREATE TRIGGER more AFTER INSERT ON points BEGIN DELETE FROM manifests; END", "more"),
        ("CREATE INDEX more ON points (cycles)", "more"),
        ("CREATE TABLE more (key TEXT)", "more"),
        ("ALTER TABLE points ADD COLUMN more TEXT", "points"),
        ("ALTER TABLE manifests RENAME TO more", "manifests|more"),
    ],
)
def test_tables_are_ours_alone(statement: str, name: str, tmp_path: Path) -> None:
    """A view or a trigger is rejected: it is a program that runs at each read or write."""
    path = tmp_path / "a.sqlite"
    before = made(path, statement)
    for create in (False, True):
        with pytest.raises(
            InputError,
            match=rf"^{path}: '({name})' in it is not as dla sweep makes it; write to an",
        ):
            Store(path, create=create)
    assert path.read_bytes() == before


def test_a_view_in_the_place_of_a_table(tmp_path: Path) -> None:
    made(
        tmp_path / "a.sqlite",
        "DROP TABLE points",
        "CREATE VIEW points AS SELECT digest AS key FROM manifests",
    )
    with pytest.raises(InputError, match="'points' in it is not as dla sweep makes it"):
        Store(tmp_path / "a.sqlite")


def test_a_database_of_somebody_else_is_not_even_switched_to_our_log(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(InputError, match="not a results file of dla sweep; choose another place"):
        Store(path, create=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("cycles = 'many'", "cycles of point a is 'many'"),
        ("utilization = 9e999", "utilization of point a is inf"),
        ("arch = 'no JSON'", "point a: Expecting value"),
        ("arch = '[]'", "point a: 'list' object"),
        ('arch = \'{"pe":{"ic":"<b>"}}\'', "point a: arch has pe.ic = '<b>'"),
        ("arch = '{\"cycles\":1}'", "point a: arch has cycles = 1"),
        ("timing = '{\"bus_bytes\":1e999}'", "point a: timing has bus_bytes = inf"),
        ("network = NULL", "point a: one of network, package, "),
        ("status = 'perfect'", "point a: status is 'perfect'"),
        ("status = 'ok'", "point a: status is 'ok'"),
        ("arch = printf('%.*c', 100000, '[')", "point a: "),
    ],
)
def test_damaged_values_are_errors(change: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    given = dict(zip(COLUMNS, row("a", "infeasible"), strict=True))
    given |= dict.fromkeys(("network", "package", "preset", "schedule", "grouped", "version"), "x")
    given |= {"emulate_depthwise": 0, "integer_io": 0, "arch": "{}", "timing": "{}"}
    with Store(path, create=True) as store:
        store.add([tuple(given.values())])
    assert [found["network"] for found in flat_rows(path)] == ["x"]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE points SET {change}")
        connection.commit()
    with pytest.raises(InputError) as raised:
        list(flat_rows(path))
    assert str(raised.value).startswith(f"{path}: damaged results ({why}")
    assert str(raised.value).endswith("); run the sweep again into another file")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"command": 1}'])
def test_damaged_manifests_are_errors(text: str, tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite", create=True) as store:
        store.add_manifest("d", text)
    with (
        Store(tmp_path / "a.sqlite") as store,
        pytest.raises(InputError, match="damaged results \\(manifest 'd' is"),
    ):
        store.manifests()


def test_reading_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a # b?.sqlite"
    made(path)
    tmp_path.chmod(0o500)
    try:
        with Store(path) as store:
            assert [found[0] for found in store.rows()] == ["a"]
            assert [item.name for item in tmp_path.iterdir()] == [path.name]
    finally:
        tmp_path.chmod(0o700)


def test_reading_while_a_sweep_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path, create=True) as writer:
        writer.add([row("a")])
        with Store(path) as store:
            writer.add([row("b")])
            assert [found[0] for found in store.rows()] == ["a", "b"]


def test_a_sweep_that_begins_to_write_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    made(path)
    with Store(path) as store:
        with Store(path, create=True) as writer:
            writer.add(row(f"b{number}") for number in range(100))
        with pytest.raises(InputError, match="a sweep wrote to it while it was read; try again"):
            list(store.rows())


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "a.sqlite", Path("/proc/none/a.sqlite")):
        with pytest.raises(
            InputError, match=rf"^{path}: cannot be written \(.*\); choose another place$"
        ):
            Store(path, create=True)


def test_a_full_database_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path, create=True) as store:
        store.add([row("a")])
        store._connection.execute("PRAGMA max_page_count = 10")
        with pytest.raises(InputError) as raised:
            store.add(row(f"b{number}") for number in range(1000))
        assert str(raised.value) == (
            f"{path}: the disk is full or failing (database or disk is full); what was finished is "
            "kept: "
            "make room and run the sweep again"
        )
    with Store(path) as store:
        assert statuses(store) == {"ok": 1}


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
    """A full disk stops a sweep and loses nothing.

    A limit on file sizes replaces the disk: writes beyond it fail in the middle of the sweep.
    """
    written(
        tmp_path, 'networks = "tiny.onnx"\ntiming.dram_latency = { from = 1, to = 600, step = 1 }\n'
    )

    def sweep(limit: int) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-c", LIMITED, str(limit)]
        return subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)

    stopped = sweep(400_000)
    assert (stopped.returncode, stopped.stdout) == (2, "")
    assert re.fullmatch(
        r"error: results.sqlite: the disk is full or failing \(.*\); what was .* again\n",
        stopped.stderr,
    )
    kept = rows_of(tmp_path / "results.sqlite")
    assert 0 < len(kept) < 600
    finished = sweep(0)
    assert finished.returncode == 0
    assert (
        f"600 points: {600 - len(kept)} ok, 0 infeasible, 0 failed; {len(kept)} had a row before"
        in finished.stdout
    )
    rows = rows_of(tmp_path / "results.sqlite")
    assert len(rows) == 600
    assert {key: rows[key] for key in kept} == kept


def test_half_a_character_names_no_results() -> None:
    """A surrogate without its partner, which no file system takes."""
    with pytest.raises(InputError, match="no name that a file can have; choose another place"):
        Store(Path("\ud800"), create=True)
