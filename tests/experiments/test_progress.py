"""Progress: percentages for listeners, a bar on a terminal, and nothing in a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import experiments
from experiments.running.given import Given
from experiments.running.network import load
from isa.progress import PARTS, report_each, silent
from tests.experiments.command_line import save_tiny

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
