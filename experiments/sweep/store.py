"""Results file of a sweep: one SQLite database with a write-ahead log and one row per point.

Rows appear in whole transactions, and later sweeps never change them. Several processes may write
at once, and each may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from byoc.options import PROGRAM_OPTIONS
from experiments.figure import figures_of
from experiments.report.schema import Host, PointFigures
from isa.errors import InputError
from isa.reading import check_file, file_fault

SCHEMA_VERSION = 2
APPLICATION = 0x444C4153
"""SQLite application ID of a results file: the letters DLAS."""
COLUMNS: dict[str, str] = {
    **dict.fromkeys(("key", "network", "package", "preset"), "TEXT"),
    **{option.name: "INTEGER" if option.switch else "TEXT" for option in PROGRAM_OPTIONS},
    **dict.fromkeys(("arch", "timing", "version", "status", "message"), "TEXT"),
    "missing_bytes": "INTEGER",
    **{
        one.name: "REAL" if one.kind is float else "INTEGER"
        for one in (*figures_of(Host), *figures_of(PointFigures))
    },
    **dict.fromkeys(("kinds", "ex_cycles", "units"), "TEXT"),
}
"""Columns of a point.

``arch``, ``timing``, ``kinds``, ``ex_cycles`` and ``units`` are JSON texts.
"""
FIGURE_COLUMNS = (*(one.name for one in figures_of(PointFigures)), "kinds", "ex_cycles", "units")
"""Columns with the results of a point that is ok."""
STATUSES = ("ok", "infeasible", "failed")
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Kind:
    """Kind of points in a results file, with the columns and their SQL types.

    ``subjects`` names the points in plain words. ``key`` is the first column; ``status`` and
    ``message`` are among the others.
    """

    subjects: str
    columns: Mapping[str, str]

    @cached_property
    def status_index(self) -> int:
        """Index of the status in a row."""
        return tuple(self.columns).index("status")

    @property
    def tables(self) -> dict[str, str]:
        """SQL of all tables in a results file.

        No other object is accepted: views, triggers and indexes could run SQL of an untrusted
        author.
        """
        declared = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        return {
            "points": f"CREATE TABLE points ({declared}, PRIMARY KEY (key)) WITHOUT ROWID",
            "manifests": "CREATE TABLE manifests (digest TEXT PRIMARY KEY, content TEXT) WITHOUT "
            "ROWID",
        }


NETWORKS = Kind("networks", COLUMNS)
SYSTEMS = Kind(
    "systems",
    dict.fromkeys(("key", "network", "version", "status", "message", "axes", "figures"), "TEXT"),
)
"""``network`` is the name of the system; ``axes`` and ``figures`` are JSON texts."""
_KINDS = {"TEXT": str, "INTEGER": int, "REAL": float | int}
_MAXIMUM_TEXT = 1 << 26
"""Size limit of one text, in bytes: the specification in a manifest, or a message."""
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)

Row = tuple[Any, ...]


def canonical(values: Mapping[str, Any]) -> str:
    """Convert a value to JSON with sorted keys and no spaces.

    Equal values give equal texts, which can be compared, hashed and stored.
    """
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def is_finite(value: object) -> bool:
    """Return True if ``value`` is neither infinite nor NaN."""
    return not isinstance(value, float) or math.isfinite(value)


class Store:
    """Results file of a sweep, opened for reading or writing; a context manager.

    Every method raises InputError in one line that names the file.
    """

    def __init__(self, path: Path, *, create: bool = False, kind: Kind = NETWORKS) -> None:
        """Open the results file ``path`` for reading.

        With ``create`` also for writing, and create the file and its folder if missing.

        ``kind`` applies to a file that is written; a file that is read has its own kind. Reading
        creates no other files, so a results file in a read-only folder can be read.
        """
        self.path = path
        self.kind = kind
        self._state = None if create else self._find_file_state()
        with self._clearly():
            if create:
                if path.exists() and (fault := file_fault(path)):
                    raise InputError(f"{path}: cannot be written ({fault}); choose another place")
                path.parent.mkdir(parents=True, exist_ok=True)
                place = str(path)
            else:
                place = f"{path.absolute().as_uri()}?mode=ro" + (
                    "&immutable=1" if self._state else ""
                )
            self._connection = sqlite3.connect(
                place, timeout=_WAIT_SECONDS, isolation_level=None, uri=not create
            )
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

    def _find_file_state(self) -> tuple[int, int] | None:
        """Return size and modification time of a results file that has no writer.

        The result is None if the file has a write-ahead log, which must be read as well.
        """
        check_file(self.path, f"'dla sweep SPEC.toml --output {self.path}' makes results")
        log = self.path.with_name(self.path.name + "-wal")
        return None if log.exists() and log.stat().st_size else self._size_and_time()

    def _size_and_time(self) -> tuple[int, int]:
        now = self.path.stat()
        return now.st_size, now.st_mtime_ns

    def _prepare(self, create: bool) -> None:
        connection = self._connection
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAXIMUM_TEXT)
        connection.execute("PRAGMA trusted_schema = OFF")
        if create and not _schema(connection):
            # in small pages, a row of 1.3 KB would need an overflow page
            connection.execute("PRAGMA page_size = 16384")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION:
            raise InputError(f"{self.path}: not a results file of dla sweep; choose another place")
        if create:
            _use_log(connection)
            # 32 MiB, because keys are hashes and a row may belong into any page
            connection.execute("PRAGMA cache_size = -32768")
            with self._begin_transaction():
                if not _schema(connection):
                    for statement in self.kind.tables.values():
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{self.path}: a results file of version {version}, this tool reads version "
                f"{SCHEMA_VERSION}; "
                f"write to another file"
            )
        found = _schema(connection)
        kind = SYSTEMS if found == SYSTEMS.tables else NETWORKS
        if create and found == kind.tables and kind is not self.kind:
            raise InputError(
                f"{self.path}: has results of {kind.subjects}; write those of {self.kind.subjects} "
                "elsewhere"
            )
        self.kind = kind
        for name in {*found, *kind.tables}:
            if found.get(name) != kind.tables.get(name):
                raise InputError(
                    f"{self.path}: {name!r} in it is not as dla sweep makes it; write to another "
                    "file, and read this "
                    "one with the version that wrote it"
                )

    def find_stored(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the status of each key in ``keys`` that has a row."""
        with self._clearly():
            return self._find_stored(keys)

    def _find_stored(self, keys: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            marks = ",".join("?" * len(some))
            chosen = f"SELECT key, status FROM points WHERE key IN ({marks})"
            found |= dict(self._connection.execute(chosen, some))
        return found

    def add(self, rows: Iterable[Row]) -> list[Row]:
        """Add rows to the results file, all or none, and return the added ones.

        The values of a row are in column order, and its key differs from those of the other rows.

        A key that exists keeps its row.
        """
        insert = f"INSERT INTO points VALUES ({','.join('?' * len(self.kind.columns))})"
        with self._clearly(), self._begin_transaction():
            given = sorted(rows, key=itemgetter(0))  # neighbours share pages
            known = self._find_stored([row[0] for row in given])
            added = [row for row in given if row[0] not in known]
            self._connection.executemany(insert, added)
            return added

    def count_statuses(self) -> dict[str, int]:
        """Return the number of points with each status."""
        with self._clearly():
            counts = "SELECT status, count(*) FROM points GROUP BY status ORDER BY status"
            return dict(self._connection.execute(counts))

    def forget(self, status: str) -> int:
        """Remove the results rows with the given status and return their number.

        The next sweep runs their points again.
        """
        with self._clearly(), self._begin_transaction():
            return self._connection.execute(
                "DELETE FROM points WHERE status = ?", (status,)
            ).rowcount

    def require_version(self, version: str) -> None:
        """Raise InputError if another compiler version made a row: its cycles may differ."""
        chosen = (
            "SELECT DISTINCT version FROM points WHERE version IS NOT ? ORDER BY version LIMIT 1"
        )
        with self._clearly():
            other = self._connection.execute(chosen, (version,)).fetchone()
        if other is not None:
            raise InputError(
                f"{self.path}: has results of version {other[0]}, this is version {version}, whose "
                "cycles may differ; "
                "write to another file with --output"
            )

    def rows(self) -> Iterator[Row]:
        """Yield all results rows by key; raise InputError for a value of the wrong type."""
        with self._clearly():
            for row in self._connection.execute("SELECT * FROM points ORDER BY key"):
                for value, (name, kind) in zip(row, self.kind.columns.items(), strict=True):
                    if value is not None and not (
                        isinstance(value, _KINDS[kind]) and is_finite(value)
                    ):
                        raise self._make_damaged_error(f"{name} of point {row[0]} is {value!r:.40}")
                yield row
        self._check_unchanged()

    def row(self, key: str) -> dict[str, Any] | None:
        """Return the results row with the given key by column, or None."""
        with self._clearly():
            found = self._connection.execute(
                "SELECT * FROM points WHERE key = ?", (key,)
            ).fetchone()
        return None if found is None else dict(zip(self.kind.columns, found, strict=True))

    def status_of(self, row: Row) -> str:
        """Return the status with which the point of a results row ended."""
        found: str = row[self.kind.status_index]
        return found

    def add_manifest(self, digest: str, content: str) -> None:
        """Add a manifest (JSON text), or replace the one with the same digest."""
        with self._clearly(), self._begin_transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO manifests VALUES (?, ?)", (digest, content)
            )

    def manifests(self) -> list[dict[str, Any]]:
        """Return all manifests, read from their JSON, in the order of their digests.

        Raises InputError for a manifest that no sweep wrote.
        """
        with self._clearly():
            rows = self._connection.execute(
                "SELECT digest, content FROM manifests ORDER BY digest"
            ).fetchall()
        self._check_unchanged()
        return [self._manifest(digest, text) for digest, text in rows]

    def _manifest(self, digest: object, text: object) -> dict[str, Any]:
        """Parse a manifest and check the fields that this project reads."""
        try:
            found: dict[str, Any] = json.loads(str(text))
            texts = [found["specification"], found["folder"], found["command"]]
            for name in ("versions", "packages"):
                texts += [*found[name], *found[name].values()]
            numbers = (found["points"], found.get("serial", 0))
            sound = all(isinstance(item, int) for item in numbers) and all(
                isinstance(item, str) for item in texts
            )
            tomllib.loads(texts[0])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            sound = False
        if not sound:
            raise self._make_damaged_error(f"manifest {digest!r:.40} is none")
        return found

    def _make_damaged_error(self, what: str) -> InputError:
        return InputError(
            f"{self.path}: damaged results ({what}); run the sweep again into another file"
        )

    def _check_unchanged(self) -> None:
        """Raise InputError if a file that was opened as having no writer has changed since."""
        if self._state not in (None, self._size_and_time()):
            raise InputError(f"{self.path}: a sweep wrote to it while it was read; try again")

    @contextlib.contextmanager
    def _begin_transaction(self) -> Iterator[None]:
        """Run a ``with`` block as one transaction of the database."""
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
        """Convert the errors of SQLite and the file system to InputErrors."""
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}); choose another place"
            ) from error
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.path}: no name that a file can have; choose another place"
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}: not a results file of dla sweep ({error}); choose another place"
            ) from error
        except sqlite3.Error as error:
            self._check_unchanged()
            raise InputError(f"{self.path}: {_explain_error(error)}") from error


def _schema(connection: sqlite3.Connection) -> dict[str, str | None]:
    """Return the SQL statement that made each object in a file, by name."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_master"))


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, and wait for other processes.

    SQLite itself does not wait here.
    """
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


def _explain_error(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _FULL:
        return (
            f"the disk is full or failing ({error}); what was finished is kept: make room and run "
            "the sweep again"
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return f"cannot be written ({error}); choose another place"
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return f"not a results file of dla sweep ({error}); choose another place"
    if code == sqlite3.SQLITE_TOOBIG:
        return (
            f"not a results file of dla sweep (a text of more than {_MAXIMUM_TEXT} bytes); choose "
            "another place"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"another process has held the file for {_WAIT_SECONDS:.0f} seconds; run the sweep "
            "again"
        )
    return str(error)
