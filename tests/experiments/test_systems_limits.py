"""The work of a system is counted before it is done: what would have no end, or no room, is a line.

The texts are the cases ``big/*.toml``, ``system_3`` and ``system_217`` that had no end, or a
traceback.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dla_sim.systems.spec import check_work, estimate_releases, parse_system
from experiments.systems.running import run_system
from isa import memory
from isa.errors import InputError
from tests.experiments.command_line import dla, save_tiny

HEAD = '[[accelerator]]\nname = "npu"\n'
TASK = '[[task]]\nname = "a"\n'
MOST = "and at most 10,000,000 are run; give a shorter run.until or longer periods"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[run]\nuntil = "1s"\n' + TASK + "cpu = 1000\nperiod = 1\n", "about 1,000,000,001 jobs "
                                                                      f".*, {MOST}"),
        ('[run]\nuntil = '
         '"99999999999s"\n' + TASK + 'cpu = "1s"\nperiod = "2s"\n', "run.until is '9999"),
        ('[cpu]\nspeed = 5e-324\n' + TASK + 'cpu = 10\nperiod = "1us"\n', "cpu.speed is 5e-324: "),
        (
            TASK + 'variants = [{model = "tiny.onnx", quality = nan}, {model = '
                   '"tiny.onnx"}]\nperiod = "100us"\n',
            "task 'a': variants.0.quality is nan: .*finite number",
        ),
        ('[cpu]\nspeed = nan\n' + TASK + 'cpu = 10\nperiod = "1us"\n', "cpu.speed is nan: "),
    ],
)  # fmt: skip
def test_it_is_said_before_the_work(
    text: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path)
    (tmp_path / "s.toml").write_text(HEAD + text)
    found = dla(capsys, "system", "s.toml")
    assert (found.status, found.out) == (2, "")
    assert re.match(f"error: s.toml: {said}", found.err), found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("cycles", [10**18, 10**18 + 1, 9 * 10**18, -1])
def test_long_times_are_few_jobs_or_refused(cycles: int) -> None:
    """Long times give few jobs or are rejected.

    Times later than the representation of "never" once had no end.
    """
    text = f"[run]\nuntil = {cycles}\n{TASK}cpu = 10\nperiod = {cycles}\njitter = {cycles}\n"
    if cycles == 10**18:
        assert run_system(parse_system(HEAD + text)).cycles == cycles
    else:
        said = f"period is {cycles}, {cycles} cycles; give 0 or more, and at most {10**18}"
        with pytest.raises(InputError, match=said):
            parse_system(HEAD + text)


def test_jobs_are_counted_with_those_that_come_after() -> None:
    text = TASK + 'cpu = 1\nperiod = 10\noffset = 5\n[[task]]\nname = "b"\ncpu = 1\nafter = "a"\n'
    system = parse_system(f"{HEAD}[run]\nuntil = 100\n{text}")
    report = run_system(system)
    assert estimate_releases(system) == sum(task.released for task in report.tasks) == 20


def test_the_limit_on_memory_holds_for_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait, as the run goes on; the times of all, before it."""
    waiting = parse_system(f'{HEAD}[run]\nuntil = "1ms"\n{TASK}cpu = "1s"\nperiod = 20\n')
    many = parse_system(f'{HEAD}[run]\nuntil = "1s"\n{TASK}cpu = 1\nperiod = 1000\n')
    with memory.limit_memory("4M"):
        with pytest.raises(
            InputError,
            match=r"system: .* jobs that wait for others: too large, .*higher --max-memory",
        ):
            run_system(waiting)
        with pytest.raises(
            InputError, match=r"system: times of 1,000,001 jobs: too large, .*higher --max-memory"
        ):
            check_work(many)


def test_how_far_it_is_is_shown() -> None:
    heard: list[tuple[int, int]] = []
    system = parse_system(f'{HEAD}[run]\nuntil = "1ms"\n{TASK}cpu = 1\nperiod = 50\n')
    run_system(system, progress=lambda said, done=0, total=0: heard.append((done, total)))
    assert len(heard) > 5
    assert heard == sorted(heard)
    assert {total for _, total in heard} == {1_000_000}
