"""Sweeps on a Dask cluster: a real scheduler and two workers in processes on loopback."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from isa.errors import InputError
from tests.experiments.command_line import dla
from tests.experiments.sweeping import rows_of, run_sweep, spec_of, written

TEXT = """
    networks = "tiny.onnx"
    schedules = ["seed", "default"]
    isa = "v4"
    [arch]
    pe.oc = [4, 8]
    sram_bytes = [256, 65536]
    [timing]
    dram_latency = { from = 1, to = 100, step = 1 }
"""
pytestmark = pytest.mark.slow

SCHEDULER = (
    "dask_scheduler",
    "--host",
    "127.0.0.1",
    "--port",
    "0",
    "--no-dashboard",
    "--no-show",
    "--no-jupyter",
)
WORKER = ("dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")


def started(
    stack: ExitStack, module: str, *arguments: str, ready: str, folder: Path | None = None
) -> str:
    """Start a process of distributed in ``folder``; return group 1 of ``ready`` in its output.

    It ends with ``stack``.
    """
    command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments]
    process = stack.enter_context(
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    )
    stack.callback(process.stderr.close)
    stack.callback(process.kill)
    lines = []
    for line in process.stderr or ():
        lines.append(line)
        found = re.search(ready, line)
        if found is not None:
            return found[1]
    raise AssertionError(f"{module} ended: {''.join(lines)}")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a scheduler with two workers.

    Their working folder has modules with the names of the project's packages.
    """
    folder = tmp_path_factory.mktemp("dask")
    for place in ("isa.py", "dla_sim.py", "byoc/__init__.py", "experiments/__init__.py"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text("mine = True\n")
    with ExitStack() as stack:
        address = started(stack, *SCHEDULER, ready=r"Scheduler at: *(tcp://\S+)")
        for _ in range(2):
            local = "--local-directory", str(folder)
            started(
                stack, *WORKER, *local, address, ready=r"Registered to: *(tcp://\S+)", folder=folder
            )
        yield address


def test_a_cluster_makes_the_same_rows(
    tmp_path: Path,
    scheduler: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(tmp_path, TEXT)
    monkeypatch.chdir(tmp_path)
    found = dla(capsys, "sweep", "grid.toml", "-o", "cluster.sqlite", "--scheduler", scheduler)
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith(
        "800 points: 600 ok, 200 infeasible, 0 failed; 6 machines compiled\n"
    )
    run_sweep(spec_of(tmp_path, TEXT), tmp_path / "local.sqlite", workers=1)
    assert rows_of(tmp_path / "cluster.sqlite") == rows_of(tmp_path / "local.sqlite")


def test_a_cluster_without_workers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        address = started(stack, *SCHEDULER, ready=r"Scheduler at: *(tcp://\S+)")
        with pytest.raises(InputError) as raised:
            run_sweep(spec_of(tmp_path, TEXT), tmp_path / "results.sqlite", scheduler=address)
    assert str(raised.value) == (
        f"--scheduler {address}: it has no workers; start some with 'dask worker {address}'"
    )


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "127.0.0.1:none"])
def test_no_cluster(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.sweep.pools.CONNECT_SECONDS", 1)
    with pytest.raises(
        InputError, match=f"^--scheduler {address}: no Dask scheduler answers there "
    ):
        run_sweep(spec_of(tmp_path, TEXT), tmp_path / "results.sqlite", scheduler=address)
