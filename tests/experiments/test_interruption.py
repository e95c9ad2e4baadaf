"""Ctrl-C at any moment, even during the first imports: the command ends as by the signal.

It prints no Python message.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.command_line import save_tiny

SCRIPT = (
    "import os, sys; sys.argv[0] = 'dla'; import dla; os.write(1, b'!'); "
    "from dla.__main__ import main; sys.exit(main())"
)
COMMANDS = (
    "run tiny.onnx --json r.json",
    "sweep spec.toml --workers 2 -o s.sqlite",
    "system system.toml --json s.json",
    "tune tiny.onnx --measurements 200",
    "doctor",
)
ROOT = Path(__file__).parents[2]


def interrupt(words: list[str], seconds: float, folder: Path) -> tuple[int, str]:
    """Interrupt a process and its children together; return its exit status and stderr.

    The process writes a byte once it has imported ``dla``, and ``seconds`` later it is interrupted.
    """
    process = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'experiments'}"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.read(1) == "!"
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=600)
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_it_ends_as_of_the_signal(command: str, tmp_path: Path) -> None:
    save_tiny(tmp_path)
    (tmp_path / "spec.toml").write_text(
        'networks = "digits-cnn"\ntiming.dram_latency = [1, 2, 3, 4, 5, 6, 7, 8]\n'
    )
    (tmp_path / "system.toml").write_text(
        '[[accelerator]]\nname = "npu"\n[run]\nuntil = "1s"\n[[task]]\nname = "a"\nmodel = '
        '"digits-cnn"\n'
        'period = "20us"\n'
    )
    words = [sys.executable, "-c", SCRIPT, *command.split()]
    rng = random.Random(command)
    ended = 0
    for number in range(24):
        if number >= 8 and ended:
            break
        begin = time.monotonic()  # measured each time: the load of the computer changes
        subprocess.run(
            [sys.executable, "-c", "import dla"],
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        first = time.monotonic() - begin
        later = 0.3 * number + rng.random() if number < 8 else 0.3 * rng.random()
        status, said = interrupt(words, first * later, tmp_path)
        lines = [line for line in said.splitlines() if line.strip()]
        assert status in (-signal.SIGINT, 0), (status, said)
        assert not any(
            "rror" in line or "Traceback" in line or "bug of dla" in line for line in lines
        ), said
        ended += status < 0
    assert ended, "none was interrupted"


WAITING = """
import os, signal, sys, time
from experiments.interruption import delay_interrupts, end_on_interrupt
try:
    with end_on_interrupt():
        {work}
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
INTERRUPTED = "os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1); print('whole', flush=True)"


@pytest.mark.parametrize(
    "work", ["import whole", f"\n        with delay_interrupts():\n            {INTERRUPTED}"]
)
def test_an_import_or_a_delay_is_finished_first(work: str, tmp_path: Path) -> None:
    """An interrupt waits for an import or a delay of signals to end.

    An exception inside the C++ code of some libraries would end the process by SIGABRT.
    """
    (tmp_path / "whole.py").write_text(f"import os, signal, time\n{INTERRUPTED}\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + WAITING.format(work=work)
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout.split() == ["whole", "interrupted"], done.stderr
    assert done.returncode == -signal.SIGINT


def test_a_second_interrupt_does_not_wait() -> None:
    """A delay or an import may never end."""
    delayed = f"os.kill(os.getpid(), signal.SIGINT); {INTERRUPTED}"
    work = f"\n        with delay_interrupts():\n            {delayed}"
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + WAITING.format(work=work)
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
        timeout=50, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["interrupted"], done.stderr
    assert done.returncode == -signal.SIGINT


def test_an_interrupt_in_a_finaliser_is_repeated() -> None:
    """Python reports an exception of a finaliser and goes on, so the first one has no effect."""
    work = (
        "\n        class Owner:"
        "\n            def __del__(self):"
        "\n                os.kill(os.getpid(), signal.SIGINT)"
        "\n        Owner()"
    )
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + WAITING.format(work=work)
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["interrupted"], "")
    assert done.returncode == -signal.SIGINT
