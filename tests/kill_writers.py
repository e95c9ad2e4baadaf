"""Kill commands that write at random moments and check their files.

Nothing may be half-written, and no file of another owner may change. ``python -m tests.kill_writers
--count 200`` prints how many kills left each command's old results and how many its new ones, and
every violation; the exit status is 1 if there is one. ``--dask N`` adds N kills of sweeps on a Dask
cluster, of the command or of one of its workers.

Each attempt begins in a folder of its own with earlier results, and with files and links of another
owner wherever a careless writer would put something. Half of the kills come before a step that
changes something on the disk, the others after a part of the time that the command takes. Six of
ten use SIGKILL, the others SIGINT and SIGTERM. A command that can resume is run again, and its
result is compared with that of an uninterrupted run.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dla  # noqa: F401 - first, so that all packages come from one folder
from experiments.golden.store import INDEX, corpus_to_replace
from experiments.report import plots, run_page  # noqa: F401 - what children need is there before they are forked
from experiments.running import inference  # noqa: F401
from isa.errors import InputError
from isa.files import is_leftover
from tests.writers import BUSY, CLUSTER, FOREIGN, ON_DASK, WRITERS, Contents, Writer

_STEPS = frozenset(
    (
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.chmod",
        "os.link",
        "os.symlink",
        "os.truncate",
    )
)
_SIGNALS = (signal.SIGKILL,) * 3 + (signal.SIGINT, signal.SIGTERM)


def contents(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: bytes of files, targets of links.

    But not what only a killed process leaves.
    """
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file())
        and not any(map(is_leftover, (path, *path.parents)))
    }


def apart(
    action: Callable[[], object],
    stop_at: int | None = None,
    seconds: float | None = None,
    number: int = signal.SIGKILL,
    victim: Callable[[int], int] = lambda child: child,
) -> tuple[int, int]:
    """Do ``action`` in a process that is killed before step ``stop_at`` or after ``seconds``.

    Return (status, steps). Steps change something on the disk. The status is negative if the
    process was killed. ``number`` is the signal; ``victim`` returns the process that gets it, by
    default the child.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _do(action, stop_at, number, writer)
    os.close(writer)
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim(child), number)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(reader, False)  # what it started may hold the pipe a little longer
    with open(reader, "rb") as pipe:
        return status, len(pipe.read() or b"")


def _do(action: Callable[[], object], stop_at: int | None, number: int, said: int) -> None:
    """Run the action of a child and end the process."""
    steps = 0

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal steps
        if event == "open":
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            changes = bool(flags & (os.O_WRONLY | os.O_RDWR)) and isinstance(arguments[0], str)
        else:
            changes = event in _STEPS
        if changes:
            steps += 1
            if steps == stop_at:
                os.kill(os.getpid(), number)
            os.write(said, b".")

    status = 1
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        sys.addaudithook(step)
        outcome = action()
        status = outcome if isinstance(outcome, int) else 0
    except KeyboardInterrupt:  # before the command began, or outside a command
        status = 130
    finally:
        os._exit(status)


@dataclass(frozen=True)
class Rehearsal:
    """Result of a command that runs to its end, with its number of steps and seconds."""

    before: Contents
    after: Contents
    digests: tuple[str, str]
    steps: int
    seconds: float
    parts: frozenset[tuple[object, ...]]


def rehearse(writer: Writer, original: Path, folder: Path) -> Rehearsal:
    """Make ``original`` as before every attempt, and run the command once on a copy.

    The copy is in ``folder``.
    """
    original.mkdir()
    status, _ = apart(lambda: writer.prepare(original))
    assert status == 0, f"{writer.name}: not prepared"
    before = contents(original)
    old = _digest(original)
    _copied(original, folder)
    begun = time.monotonic()
    status, steps = apart(lambda: writer.run(folder))
    assert status == 0, f"{writer.name}: fails without a kill"
    seconds = time.monotonic() - begun
    after = contents(folder)
    touched = [
        place for place, found in before.items() if _is_foreign(found) and after.get(place) != found
    ]
    assert not touched, f"{writer.name}: touches {touched} without a kill"
    parts = _parts(_growing(writer, folder)) if writer.grows else frozenset[tuple[object, ...]]()
    return Rehearsal(before, after, (old, _digest(folder)), steps, seconds, parts)


def _is_foreign(found: bytes | str) -> bool:
    """Return True for a file or a link of another owner."""
    return isinstance(found, str) or found == FOREIGN.encode()


def _copied(original: Path, folder: Path) -> None:
    """The same links and files, each time at the same place, for some links are absolute."""
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(original, folder, symlinks=True)


def _digest(folder: Path) -> str:
    """Return the digest of a folder's corpus, read to the last case.

    Raises InputError if it is not whole.
    """
    if not (folder / "corpus").exists():
        return "none"
    corpus = corpus_to_replace(folder / "corpus")
    for name in corpus.entries:
        corpus.case(name)
    return corpus.digest if corpus.entries else "none"


def violations(writer: Writer, folder: Path, known: Rehearsal, tidy: bool = False) -> list[str]:
    """Return the violations of a killed command, and of the next run.

    ``tidy``: it was interrupted, so it could remove incomplete files.
    """
    found = contents(folder)
    left = [
        str(path.relative_to(folder)) for path in folder.rglob("*") if tidy and is_leftover(path)
    ]
    wrong = [
        place
        for place in {*found, *known.before, *known.after}
        if found.get(place) not in (known.before.get(place), known.after.get(place))
        and not (writer.corpus and place == f"corpus/{INDEX}")
        and not (writer.grows and place.startswith(writer.grows))
    ]
    said = [f"{place} is neither as before nor as wanted" for place in sorted(wrong)]
    if writer.whole:
        made, *known_ones = (
            {
                place: content
                for place, content in one.items()
                if place.startswith(f"{writer.whole}/")
            }
            for one in (found, known.before, known.after)
        )
        said += (
            []
            if made in known_ones
            else [f"{writer.whole} is neither whole as before nor as wanted"]
        )
    said += [f"{place} was left by an interrupt" for place in left]
    if writer.grows:
        return said + _unfinished(writer, folder, known)
    if not writer.corpus:
        return said
    try:
        digest = _digest(folder)
    except InputError as error:
        return [*said, str(error)]
    if digest not in known.digests:
        said.append(f"the corpus has digest {digest}, not one of {known.digests}")
    if digest != known.digests[1]:
        status, _ = apart(lambda: writer.run(folder))
        again = contents(folder)
        again[f"corpus/{INDEX}"] = known.after[f"corpus/{INDEX}"]
        if status or _digest(folder) != known.digests[1] or again != known.after:
            said.append("the next run does not end as one that was never killed")
    return said


def _unfinished(writer: Writer, folder: Path, known: Rehearsal) -> list[str]:
    """Return errors if finished parts are lost or the next run is not like an unkilled one."""
    before = _parts(_growing(writer, folder))
    status, _ = apart(lambda: writer.run(folder))
    after = _parts(_growing(writer, folder))
    if status or after != known.parts:
        return [
            f"the next run ends with {status} and {len(after)} parts, not with those of one "
            "never killed"
        ]
    return (
        []
        if before <= after
        else ["parts that were done are not those of a run that was never killed"]
    )


def _growing(writer: Writer, folder: Path) -> Path:
    place = folder / writer.grows
    return place if place.suffix else place.with_suffix(".sqlite")


def _parts(path: Path) -> frozenset[tuple[object, ...]]:
    """Return the finished parts: points of a sweep with their results, or whole lines of a log."""
    if not path.exists() or not path.stat().st_size:
        return frozenset()
    if path.suffix != ".sqlite":
        return frozenset(
            (line,) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
        )
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return frozenset(connection.execute("SELECT key, status, cycles FROM points"))
    except sqlite3.OperationalError:  # it ended before there was a table
        return frozenset()


def attack(
    count: int, seed: int, on_dask: int = 0, only: str = "", seconds: float = float("inf")
) -> int:
    """Kill so many commands, print what came of it, and return how many violations there were."""
    generator = random.Random(seed)
    until = time.monotonic() + seconds
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as root:
        fight = _Fight(Path(root), generator)
        tried = [writer for writer in WRITERS if only in writer.name]
        for number in range(count):
            if time.monotonic() > until:
                break
            writer = tried[number % len(tried)]
            if writer.name in BUSY and generator.random() < 0.8:
                writer = generator.choice([one for one in tried if one.name not in BUSY] or tried)
            fight.once(writer)
        if on_dask:
            with cluster() as workers:
                for _ in range(on_dask):
                    if time.monotonic() > until:
                        break
                    fight.once(ON_DASK, workers if generator.random() < 0.5 else None)
    for name, counted in fight.outcomes.items():
        print(f"{name}: {', '.join(f'{times} {kind}' for kind, times in sorted(counted.items()))}")
    print(f"{sum(map(Counter.total, fight.outcomes.values()))} kills, {fight.violated} violations")
    return fight.violated


class _Fight:
    """Kills one after the other, and their outcomes."""

    def __init__(self, root: Path, generator: random.Random) -> None:
        self._root = root
        self._generator = generator
        self._known: dict[str, Rehearsal] = {}
        self.outcomes: dict[str, Counter[str]] = {}
        self.violated = 0

    def once(self, writer: Writer, workers: Callable[[], list[int]] | None = None) -> None:
        """One kill: of the command, or of one of the ``workers`` that there are at that moment."""
        generator = self._generator
        original = self._root / f"{writer.name} before"
        folder = self._root / "folder"
        if writer.name not in self._known:
            if folder.exists():
                shutil.rmtree(folder)
            self._known[writer.name] = rehearse(writer, original, folder)
        known = self._known[writer.name]
        _copied(original, folder)
        number = generator.choice(_SIGNALS) if workers is None else signal.SIGKILL
        moment: dict[str, Any] = {"number": number}
        if workers is None and generator.random() < 0.5:
            moment["stop_at"] = generator.randint(1, known.steps)
        else:
            moment["seconds"] = generator.uniform(0, known.seconds)
        victim = (
            {} if workers is None else {"victim": lambda child: generator.choice(_some(workers))}
        )
        status, _ = apart(lambda: writer.run(folder), **moment, **victim)
        state = contents(folder)
        kind = (
            "as before"
            if state == known.before
            else "as wanted"
            if state == known.after
            else "between"
        )
        if workers is not None:
            kind = "a worker gone"
        ended = "ended before" if status in (0, 1) and workers is None else kind
        self.outcomes.setdefault(writer.name, Counter())[ended] += 1
        found = violations(writer, folder, known, tidy=number == signal.SIGINT)
        if workers is not None and status:
            found.append(f"ends with {status} where a worker was killed")
        for violation in found:
            self.violated += 1
            print(f"{writer.name}, {json.dumps(moment)}, status {status}: {violation}", flush=True)


def _some(workers: Callable[[], list[int]]) -> list[int]:
    """The workers, as soon as there is one."""
    while not (found := workers()):
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def cluster() -> Iterator[Callable[[], list[int]]]:
    """A Dask cluster of two workers whose nanny starts another one for each that dies.

    Says which ones there are.
    """
    import distributed  # noqa: F401 - children have it from here

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    begin = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    host, port = address.split(":")
    started = [
        subprocess.Popen(
            [*begin, "scheduler", "--host", host, "--port", port, "--no-dashboard"], **quiet
        ),
        subprocess.Popen(
            [
                *begin,
                "worker",
                f"tcp://{address}",
                "--nworkers",
                "2",
                "--nthreads",
                "1",
                "--no-dashboard",
            ],
            **quiet,
        ),
    ]
    os.environ[CLUSTER] = f"tcp://{address}"

    def workers() -> list[int]:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == started[1].pid and b"spawn_main" in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
        return found

    try:
        deadline = time.monotonic() + 120
        while len(workers()) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(5)
        yield workers
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill commands that write at random moments.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--dask", type=int, default=0, help="kills of sweeps on a Dask cluster beside them"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop behind the kill of this second"
    )
    parser.add_argument("--only", default="", help="only commands whose names have this in them")
    chosen = parser.parse_args()
    sys.exit(
        1 if attack(chosen.count, chosen.seed, chosen.dask, chosen.only, chosen.seconds) else 0
    )
