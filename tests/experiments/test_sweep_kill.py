"""A sweep that ends at any time keeps its rows, repeats none, and finishes in the next run."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from experiments.sweep import driver
from experiments.sweep.driver import Tally
from experiments.sweep.store import Row, Store
from tests.experiments.sweeping import rows_of, run_sweep, spec_of, written

TEXT = """
    networks = "tiny.onnx"
    schedules = ["seed", "default"]
    [arch]
    pe.oc = [2, 4, 8]
    sram_bytes = [8192, 65536]
    [timing]
    dram_latency = { from = 1, to = 100, step = 1 }
"""
POINTS = 2 * 3 * 2 * 100
HANGS = 600
"""Seconds after which a process hangs, on however busy a computer."""
pytestmark = pytest.mark.slow

START = """
import sys
from experiments.cli.main import main
from experiments.sweep.store import Store
add = Store.add
def audited(store, rows):
    rows = list(rows)
    with open("repeated", "a") as file:
        file.writelines(f"{key}\\n" for key in store.find_stored([row[0] for row in rows]))
    return add(store, rows)
Store.add = audited
sys.exit(main(sys.argv[1:]))
"""
"""A sweep that notes every attempt to add a row that is there."""


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    """``dla sweep`` in a process of its own, quiet because a loaded computer prints progress.

    Its workers share its pipes, so these end when all are gone.
    """
    arguments = [
        sys.executable,
        "-W",
        "error",
        "-c",
        START,
        "sweep",
        "grid.toml",
        "-o",
        "results.sqlite",
        "--quiet",
        *more,
    ]
    return subprocess.Popen(
        arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def count(path: Path) -> int:
    """Rows so far."""
    with closing(connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM points").fetchone()[0])


@pytest.mark.parametrize(
    ("seed", "number"), [(1, signal.SIGKILL), (2, signal.SIGKILL), (3, signal.SIGINT)]
)
def test_the_parent_is_ended_at_random_moments(
    tmp_path: Path, seed: int, number: signal.Signals
) -> None:
    written(tmp_path, TEXT)
    results = tmp_path / "results.sqlite"
    with Store(results, create=True):
        pass
    kept: dict[str, dict[str, object]] = {}
    for moment in sorted(random.Random(seed).sample(range(POINTS), 4)):
        with start(tmp_path, "--workers", "2") as process:
            while count(results) <= moment and process.poll() is None:
                time.sleep(0.005)
            process.send_signal(number)
            # ends when the workers have ended, too
            output, errors = process.communicate(timeout=HANGS)
        assert process.returncode in (0, -number, 130) or "KeyboardInterrupt" in errors, errors
        assert process.returncode or "points" in output
        found = rows_of(results)
        assert len(found) > moment
        assert {key: found[key] for key in kept} == kept
        kept = found
    with start(tmp_path, "--workers", "2") as process:
        output, errors = process.communicate(timeout=HANGS)
    assert (process.returncode, errors) == (0, "")
    assert len(rows_of(results)) == POINTS
    assert (tmp_path / "repeated").read_text() == ""


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_are_killed_at_random_moments(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(seed)
    moments = sorted(generator.sample(range(POINTS), 3))
    output = tmp_path / "results.sqlite"
    repeated: list[str] = []
    add = Store.add

    def audited(store: Store, rows: Iterable[Row]) -> list[Row]:
        found = list(rows)
        repeated.extend(store.find_stored([row[0] for row in found]))
        return add(store, found)

    monkeypatch.setattr(Store, "add", audited)

    def report(tally: Tally) -> None:
        workers = [child for child in multiprocessing.active_children() if child.pid is not None]
        if moments and tally.done > moments[0] and workers:
            moments.pop(0)
            os.kill(generator.choice(workers).pid or 0, signal.SIGKILL)

    tally = run_sweep(spec_of(tmp_path, TEXT), output, workers=2, report=report)
    assert tally.new == {"ok": POINTS, "infeasible": 0, "failed": 0}
    assert len(rows_of(output)) == POINTS
    assert not repeated


def test_a_point_that_kills_its_workers_is_recorded_and_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.Driver, "_start", _deadly)
    text = """
        networks = "tiny.onnx"
        arch.sram_bytes = [8192, 16384, 32768]
        timing.dram_latency = { from = 1, to = 100, step = 1 }
    """
    tally = run_sweep(spec_of(tmp_path, text), tmp_path / "results.sqlite", workers=2)
    assert tally.new == {"ok": 200, "infeasible": 0, "failed": 100}
    failed = [
        row for row in rows_of(tmp_path / "results.sqlite").values() if row["status"] == "failed"
    ]
    assert {row["message"] for row in failed} == {
        "its worker died 3 times while nothing else ran: killed, or out of memory"
    }
    assert all('"sram_bytes":16384' in str(row["arch"]) for row in failed)


_begin = driver.Driver._start


def _deadly(self: driver.Driver, task: driver.SweepTask) -> None:
    """Start a task; one for the machine with 16 KiB makes its worker end at once."""
    if task.job.machines[0].arch.sram_bytes != 16384:
        _begin(self, task)
        return
    executor = self._pool._get_started()
    self._running[executor.submit(os._exit, 9)] = task


def test_two_sweeps_write_at_once(tmp_path: Path) -> None:
    written(tmp_path, TEXT)
    with start(tmp_path, "--workers", "1") as one, start(tmp_path, "--workers", "1") as other:
        outputs = [process.communicate(timeout=HANGS) for process in (one, other)]
    assert [process.returncode for process in (one, other)] == [0, 0], outputs
    rows = rows_of(tmp_path / "results.sqlite")
    assert len(rows) == POINTS
    assert {row["status"] for row in rows.values()} == {"ok"}
    made = [
        re.fullmatch(rf"{POINTS} points: (\d+) ok, 0 inf.*", output.splitlines()[0])
        for output, _ in outputs
    ]
    # each point counts once, for the writer of its row
    assert sum(int(found[1]) for found in made if found) == POINTS


@pytest.mark.parametrize("helpers", [1, 2])
def test_control_c_at_the_start_is_heard_by_the_parent_alone(helpers: int, tmp_path: Path) -> None:
    """Only the parent handles Control-C at the start.

    A terminal sends it to all processes, and those that are still importing would each print a
    traceback.
    """
    written(tmp_path, TEXT)
    command = [
        sys.executable,
        "-m",
        "dla",
        "sweep",
        "grid.toml",
        "-o",
        "results.sqlite",
        "--workers",
        "2",
        "--quiet",
    ]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(children.read_text().split()) < helpers:
            time.sleep(0.001)
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        errors = process.communicate(timeout=HANGS)[1]
    assert (process.returncode, errors) == (
        -signal.SIGINT,
        "stopped; the finished points are in results.sqlite, and the same command continues\n",
    )  # fmt: skip


_SEVERED = """
import os, signal, sys
from multiprocessing import forkserver, resource_tracker
from experiments.cli.main import main
from experiments.sweep.pools import LocalPool
submitted = LocalPool._submit_started
jobs = 0
def severed(pool, work, *arguments):
    global jobs
    jobs += 1
    if jobs == int(sys.argv[2]):
        helper = {
            "server": forkserver._forkserver._forkserver_pid,
            "tracker": resource_tracker._resource_tracker._pid,
        }
        os.kill(helper[sys.argv[1]], signal.SIGKILL)
        os.waitid(os.P_PID, helper[sys.argv[1]], os.WEXITED | os.WNOWAIT)
    return submitted(pool, work, *arguments)
LocalPool._submit_started = severed
sys.exit(main(["sweep", "grid.toml", "-o", "results.sqlite", "--workers", "2", "--quiet"]))
"""


@pytest.mark.parametrize("helper", ["server", "tracker"])
@pytest.mark.parametrize("job", [2, 6])
def test_a_helper_that_is_killed_is_said_in_one_line_at_most(
    helper: str, job: int, tmp_path: Path
) -> None:
    """Python has helper processes besides the workers.

    The kind of the killed helper decides whether a line is printed.
    """
    written(tmp_path, TEXT)
    command = [sys.executable, "-c", _SEVERED, helper, str(job)]
    swept = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANGS
    )
    said = "a helper process of the workers was killed; it is started again\n"
    assert swept.stderr in ({said} if helper == "tracker" else {"", said})
    assert (swept.returncode, len(rows_of(tmp_path / "results.sqlite"))) == (0, POINTS)
