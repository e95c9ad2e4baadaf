"""``dla sweep`` on the command line: output, terminal progress bar, and one line for bad input."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from isa.installation import remedy
from tests.experiments.command_line import dla
from tests.experiments.sweeping import written

TEXT = 'networks = "tiny.onnx"\ntiming.dram_latency = { from = 1, to = 200, step = 1 }\n'


def test_results_go_to_runs_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, TEXT)
    monkeypatch.chdir(tmp_path)
    first = dla(capsys, "sweep", "grid.toml", "--workers", "1")
    assert (first.status, first.err) == (0, "")
    assert first.out == (
        "200 points: 200 ok, 0 infeasible, 0 failed; 101 machines compiled\nresults in "
        "runs/grid.sqlite\n"
    )
    again = dla(capsys, "sweep", "grid.toml", "--workers", "1")
    assert again.out.startswith(
        "200 points: 0 ok, 0 infeasible, 0 failed; 200 had a row before; 0 machines compiled\n"
    )


def test_points_that_failed_are_said_and_where_their_reasons_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 'networks = "tiny.onnx"\ntiming.bus_bytes = [3, 4]\n')
    monkeypatch.chdir(tmp_path)
    swept = dla(capsys, "sweep", "grid.toml", "--workers", "1")
    assert (swept.status, swept.err) == (0, "")
    first = swept.out.splitlines()[0]
    last = swept.out.splitlines()[-1]
    assert first.startswith("2 points: 1 ok, 0 infeasible, 1 failed; ")
    assert last == "why points failed: dla report runs/grid.sqlite --tables"
    reported = dla(capsys, *last.partition(": dla ")[2].split())
    assert "no such machine: bus_bytes is 3; it must be a power of two" in reported.out


def test_a_sweep_without_any_ok_point_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now, and when it is run again and finds nothing to do.

    One ok point, whoever made it, is enough.
    """
    written(tmp_path, 'networks = "tiny.onnx"\ntiming.bus_bytes = [3, 5]\n')
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        swept = dla(capsys, "sweep", "grid.toml", "--workers", "1")
        assert swept.status == 1
        assert swept.err.startswith("no point is ok; 1 of 2 failed: no such machine: bus_bytes is ")
        assert swept.err.count("\n") == 1
    written(tmp_path, 'networks = "tiny.onnx"\ntiming.bus_bytes = [3, 4]\n')
    for _ in range(2):
        assert dla(capsys, "sweep", "grid.toml", "--workers", "1").status == 0


def test_workers_do_not_import_from_the_working_folder(tmp_path: Path) -> None:
    """Workers do not import modules of the user's folder.

    They have the names of the project's modules or of Python's.
    """
    written(tmp_path, TEXT)
    for place in ("isa.py", "experiments/__init__.py", "random.py", "multiprocessing.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("raise SystemExit('imported')\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "experiments.cli.main",
        "sweep",
        "grid.toml",
        "--workers",
        "2",
        "--quiet",
    ]
    swept = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (swept.returncode, swept.stderr) == (0, "")
    assert swept.stdout.startswith(
        "200 points: 200 ok, 0 infeasible, 0 failed; 101 machines compiled\n"
    )


def test_a_terminal_sees_rate_and_time_left(tmp_path: Path) -> None:
    written(tmp_path, TEXT.replace("200", "2000"))
    start = "import sys; from experiments.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = [sys.executable, "-c", start, "sweep", "grid.toml", "--workers", "1"]
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=writer, env=environment, text=True
    ) as process:
        os.close(writer)
        shown = b"".join(iter(lambda: _read(reader), b"")).decode()
        output, _ = process.communicate()
    os.close(reader)
    assert (process.returncode, output.splitlines()[1]) == (0, "results in runs/grid.sqlite")
    assert "importing tiny.onnx" in shown
    assert "running 2000 points" in shown
    assert "2000/2000" in shown
    assert re.search(r"[\d,]+/s", shown)
    assert re.search(r"\d:\d\d:\d\d", shown)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end has closed
        return b""


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            TEXT + "arch.sram = 3\n",
            [],
            "grid.toml: arch.sram: unknown axis; did you mean sram_bytes? choose one of ",
        ),
        (
            TEXT + "arch.sram_bytes = []\n",
            [],
            "grid.toml: sram_bytes: the list is empty, so the grid is; ",
        ),
        (
            'constraints = ["N > 9", "N < 9"]\n' + TEXT,
            [],
            "grid.toml: constraints: 'N < 9' excludes every point, ",
        ),
        ('networks = "none.onnx"\n', [], "none.onnx: no such file"),
        ('networks = "mobilenet"\n', [], "unknown model 'mobilenet'; did you mean mobilenet-v2? "),
        (TEXT, ["-o", "."], ".: cannot be written (Is a directory); choose another place"),
        (TEXT, ["-o", "grid.toml/x"], "grid.toml/x: cannot be written ("),
        (TEXT, ["-o", "tiny.onnx"], "tiny.onnx: is binary data, and the result a database; "),
        (TEXT, ["--workers", "0"], "--workers is 0; it must be 1 or more"),
        (TEXT, ["--export", "table.xls"], "--export table.xls: it must end in .csv or .parquet"),
        (
            TEXT,
            ["--export", "grid.toml/table.csv"],
            "grid.toml/table.csv: cannot be written (grid.toml is a file, ",
        ),
    ],
)
def test_bad_input(
    tmp_path: Path,
    text: str,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    found = dla(capsys, "sweep", "grid.toml", *options)
    assert found.status == 2
    assert found.err.startswith(f"error: {message}"), found.err
    assert found.err.count("\n") == 1
    assert (tmp_path / "tiny.onnx").read_bytes()[:4] != b"SQLi"


def test_pandas_is_optional(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, TEXT)
    monkeypatch.chdir(tmp_path)
    for name in ("pandas", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    assert dla(capsys, "sweep", "grid.toml", "--workers", "1").status == 0
    found = dla(capsys, "sweep", "grid.toml", "--export", "table.csv")
    assert found.err == (
        f"error: tables of results need pandas; install it with: {remedy('sweep')}\n"
    )
    found = dla(capsys, "sweep", "grid.toml", "--scheduler", "tcp://127.0.0.1:1")
    assert found.err == f"error: --scheduler needs Dask; install it with: {remedy('sweep')}\n"
