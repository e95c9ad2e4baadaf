"""Progress: percentages for listeners, a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import experiments
from experiments.cli import options
from experiments.running.given import Given
from experiments.running.network import load
from isa.progress import PARTS, report_each, silent
from tests.experiments.command_line import dla, save_tiny

DEFAULT_SECONDS = options.PROGRESS_SECONDS
Told = list[tuple[str, int, int]]


def listener() -> tuple[Told, Callable[..., None]]:
    told: Told = []

    def hear(said: str, done: int = 0, total: int = 0) -> None:
        told.append((said, done, total))

    return told, hear


@pytest.mark.parametrize("count", [0, 1, 2, 99, 100, 101, 1000, 12345])
def test_every_step_goes_by_and_few_are_told(count: int) -> None:
    told, hear = listener()
    assert list(report_each(range(count), "counting", hear)) == list(range(count))
    assert len(told) <= 2 * PARTS
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})
    assert all(total == count and 0 <= done < total for _, done, total in told)
    assert bool(told) == (count > 1)  # of one step there is nothing to tell
    assert list(report_each(range(count), "counting", silent)) == list(range(count))


def test_a_run_tells_of_every_stage(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "samples.npz",
        image=np.random.default_rng(3).standard_normal((7, 1, 3, 8, 8)).astype(np.float32),
    )
    told, hear = listener()
    model = str(save_tiny(tmp_path))
    with_progress = experiments.run(
        model, calibration=tmp_path / "samples.npz", progress=hear, cache=False
    )
    stages = list(dict.fromkeys(said for said, _, _ in told))
    ranges = [f"finding the ranges of tiny, sample {number}" for number in range(1, 8)]
    assert stages[:2] == [f"reading {model}", "preparing tiny"]
    assert stages[2:9] == ranges
    assert [(done, total) for said, done, total in told if said in ranges] == [
        (number, 7) for number in range(7)
    ]
    assert stages[9:13] == [
        "quantising tiny",
        "comparing tiny in int8 and in float",
        "compiling tiny",
        "simulating tiny",
    ]
    without = experiments.run(model, calibration=tmp_path / "samples.npz", cache=False)
    assert with_progress.report == without.report


def test_simulation_tells_of_its_commands_and_accuracy_of_its_images() -> None:
    told, hear = listener()
    experiments.run("digits-cnn", progress=hear)
    totals = {said: total for said, _, total in told if total}
    assert (
        totals["measuring accuracy of the accelerator"]
        == totals["measuring accuracy of int8"]
        == 450
    )
    assert totals["simulating region0"] > 1


def test_samples_that_are_drawn_are_counted_too(tmp_path: Path) -> None:
    told, hear = listener()
    load(Given(str(save_tiny(tmp_path))), hear)
    assert [total for said, _, total in told if said.startswith("finding")] == [4] * 4


def on_a_terminal(*words: str, folder: Path, encoding: str) -> tuple[str, bytes]:
    """Return a command's display on a terminal as its standard error, and its output."""
    ours, theirs = pty.openpty()
    program = f"import sys; from experiments.cli.main import main; sys.exit(main({list(words)!r}))"
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the other end is closed
            pass
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode(encoding), printed


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_a_terminal_shows_stages_and_percentages(encoding: str, tmp_path: Path) -> None:
    save_tiny(tmp_path)
    shown, printed = on_a_terminal(
        "run", "digits-cnn", "--json", "-", folder=tmp_path, encoding=encoding
    )
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "measuring accuracy" in text
    assert re.search(r"\d+%", text)
    assert "\\u" not in text
    assert printed.startswith(b"{")


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print a line of progress every 20 ms."""
    monkeypatch.setattr(options, "PROGRESS_SECONDS", 0.02)


@pytest.mark.usefixtures("short_pauses")
def test_a_pipe_gets_the_last_stage_at_fixed_times(capsys: pytest.CaptureFixture[str]) -> None:
    with options.stages() as progress:
        time.sleep(0.1)
        progress("counting\n", 1234, 5678)
        time.sleep(0.1)
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert set(lines) == {"0 s: starting", "0 s: counting\\n: 1,234 of 5,678"}
    assert sorted(lines, reverse=True) == lines  # each stage as long as it was the last one
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_short_command_prints_no_progress(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DEFAULT_SECONDS == 10
    monkeypatch.setattr(options, "PROGRESS_SECONDS", 60.0)
    done = dla(capsys, "run", "digits-cnn", "--json", tmp_path / "run.json")
    assert (done.status, done.err) == (0, "")


SWEEP = """\
networks = "digits-cnn"
[arch]
pe.oc = [4, 8, 16]
"""


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("command", ["run", "tune", "sweep", "explore"])
def test_long_commands_print_progress_unless_they_are_quiet(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SWEEP)
    lines = {
        "run": ["run", "digits-cnn", "--no-cache", "--json"],
        "tune": ["tune", "digits-cnn", "--measurements", "3", "--no-model", "--log"],
        "sweep": ["sweep", "spec.toml", "--workers", "1", "--output"],
        "explore": ["explore", "spec.toml", "--workers", "1", "--trials", "3", "--output"],
    }
    endings = {"run": "json", "tune": "jsonl", "sweep": "sqlite", "explore": "sqlite"}
    files = [f"{name}.{endings[command]}" for name in ("first", "second")]
    told, quiet = (
        dla(capsys, *lines[command], file, *more)
        for file, more in zip(files, ([], ["--quiet"]), strict=True)
    )
    assert told.status == quiet.status == 0
    assert re.match(r"\d+ s: ", told.err)
    assert quiet.err == ""
    kept = [line for line in told.out.splitlines() if not line.startswith("more: ")]
    assert quiet.out.replace("second.", "first.").splitlines() == kept


def test_quiet_ends_with_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert dla(capsys, "presets", "-q").status == 0
    assert not options.is_quiet()
    refused = dla(capsys, "run", "nothing.onnx", "--quiet")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.startswith("error: nothing.onnx: ")
