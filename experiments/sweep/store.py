"""The results file: one SQLite database (write-ahead log), a row a point, that survives whatever ends a sweep.

Rows appear in whole transactions and are never changed by a later sweep, so several processes may write at once and any
of them may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from byoc.options import PROGRAM_OPTIONS
from isa.errors import InputError

SCHEMA_VERSION = 1
APPLICATION = 0x444C4153
"""Identifies the file as a results file: the letters DLAS."""
COLUMNS: dict[str, str] = {
    **dict.fromkeys(("key", "network", "package", "preset"), "TEXT"),
    **{option.name: "INTEGER" if option.switch else "TEXT" for option in PROGRAM_OPTIONS},
    **dict.fromkeys(("arch", "timing", "version", "status", "message"), "TEXT"),
    **dict.fromkeys(("missing_bytes", "host_nodes", "host_estimated_cycles", "cycles", "macs"), "INTEGER"),
    "utilization": "REAL",
    **dict.fromkeys(("lower_bound_cycles", "dram_read_bytes", "dram_write_bytes", "sram_peak_bytes"), "INTEGER"),
    **dict.fromkeys(("sram_moved_bytes", "instructions", "register_writes", "regions"), "INTEGER"),
    **dict.fromkeys(("kinds", "ex_cycles", "units"), "TEXT"),
}
"""Columns of a point. ``arch``, ``timing``, ``kinds``, ``ex_cycles`` and ``units`` are JSON texts."""
_WAIT_SECONDS = 60.0
_DECLARED = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
_TABLES = (
    f"CREATE TABLE points ({_DECLARED}, PRIMARY KEY (key)) WITHOUT ROWID",
    "CREATE TABLE manifests (digest TEXT PRIMARY KEY, content TEXT) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)

Row = tuple[Any, ...]


def canonical(values: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts, to be compared, hashed and stored."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


class Store:
    """An open results file; a context manager. Every method raises InputError in one line that names the file."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open ``path``; with ``create`` make it and its folder where there is none."""
        self.path = path
        if not create and not path.is_file():
            raise InputError(f"{path}: no such file; 'dla sweep SPEC.toml --output {path}' makes results")
        with self._clearly():
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            with self._clearly():
                self._prepare(create)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *reason: object) -> None:
        self._connection.close()

    def _prepare(self, create: bool) -> None:
        connection = self._connection
        if create:
            _use_log(connection)
            with self._writing():
                if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    for statement in _TABLES:
                        connection.execute(statement)
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise InputError(f"{self.path}: not a results file of dla sweep; choose another place")
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{self.path}: a results file of version {version}, this tool reads version {SCHEMA_VERSION}; "
                f"write to another file"
            )

    def stored(self, keys: Sequence[str]) -> set[str]:
        """Those of ``keys`` that have a row."""
        found: set[str] = set()
        with self._clearly():
            for start in range(0, len(keys), 500):
                some = keys[start : start + 500]
                marks = ",".join("?" * len(some))
                found |= {
                    key for (key,) in self._connection.execute(f"SELECT key FROM points WHERE key IN ({marks})", some)
                }
        return found

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows (values in the order of :data:`COLUMNS`), all or none; a row whose key is there already stays."""
        with self._clearly(), self._writing():
            marks = ",".join("?" * len(COLUMNS))
            self._connection.executemany(f"INSERT OR IGNORE INTO points VALUES ({marks})", rows)

    def forget(self, status: str) -> int:
        """Remove the rows with this status, so that they are tried again; how many there were."""
        with self._clearly(), self._writing():
            return self._connection.execute("DELETE FROM points WHERE status = ?", (status,)).rowcount

    def rows(self) -> Iterator[Row]:
        """All rows by key."""
        with self._clearly():
            yield from self._connection.execute("SELECT * FROM points ORDER BY key")

    def row(self, key: str) -> dict[str, Any] | None:
        """The row with this key by column, or None."""
        with self._clearly():
            found = self._connection.execute("SELECT * FROM points WHERE key = ?", (key,)).fetchone()
        return None if found is None else dict(zip(COLUMNS, found, strict=True))

    def counts(self) -> dict[str, int]:
        """Rows by status."""
        with self._clearly():
            return dict(self._connection.execute("SELECT status, count(*) FROM points GROUP BY status"))

    def add_manifest(self, digest: str, content: str) -> None:
        """Add a manifest (JSON text) unless it is there."""
        with self._clearly(), self._writing():
            self._connection.execute("INSERT OR IGNORE INTO manifests VALUES (?, ?)", (digest, content))

    def manifests(self) -> list[str]:
        """All manifests, as JSON texts, by digest."""
        with self._clearly():
            return [text for (text,) in self._connection.execute("SELECT content FROM manifests ORDER BY digest")]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: everything within or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _clearly(self) -> Iterator[None]:
        """SQLite's errors as InputErrors."""
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror}); choose another place") from error
        except sqlite3.Error as error:
            raise InputError(f"{self.path}: {_explained(error)}") from error


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait for others here, so this does."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _explained(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _FULL:
        return f"the disk is full or failing ({error}); what was finished is kept: make room and run the sweep again"
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return f"cannot be written ({error}); choose another place"
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return f"not a results file of dla sweep ({error}); choose another place"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process has held the file for {_WAIT_SECONDS:.0f} seconds; run the sweep again"
    return str(error)
