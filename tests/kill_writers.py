"""Commands that write, killed at random moments: nothing is half-written, and nothing of anybody else is touched.

``python -m tests.kill_writers --count 200`` prints how many kills left each command's old results and how many its new
ones, and every violation; exit status 1 where there is one.

Each attempt begins in a folder of its own, with results of before, and with files and links of somebody else wherever a
careless writer would put something. Half of the kills come before a step that changes something on the disk, the others
after a part of the time that the command takes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.cli.main import main
from experiments.golden.record import add_case, bless, record_corpus
from experiments.golden.store import INDEX, corpus_to_replace
from experiments.report import html_run, plots  # noqa: F401 - what children need is there before they are forked
from experiments.running import workflow  # noqa: F401
from isa.errors import InputError
from isa.files import is_leftover
from tests.experiments.command_line import save_tiny
from tests.experiments.golden_corpora import rewritten, small_cases

_STEPS = frozenset(
    ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
)
_FOREIGN = "of somebody else"
Contents = Mapping[str, bytes | str]


@dataclass(frozen=True)
class Writer:
    """A command under attack. ``prepare`` makes what is there before in a folder, ``run`` is the command.

    ``corpus`` says that the folder ``corpus`` is one of golden outputs, whose index has steps in between. ``grows``:
    the file that has a line or a row for each part of the work that is done; the next run goes on from there.
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], object]
    corpus: bool = False
    grows: str = ""


def _dla(*words: str) -> Callable[[Path], object]:
    return lambda folder: main([word.replace("DIR", str(folder)) for word in words])


def _no_progress(stage: str) -> None:
    return None


def _model(folder: Path) -> None:
    """A network, its package and a report; and older results of everything, which are to be replaced."""
    save_tiny(folder)
    _dla("compile", "DIR/tiny.onnx", "-o", "DIR/given.dla")(folder)
    _dla("run", "DIR/tiny.onnx", "--json", "DIR/given.json")(folder)
    package = (folder / "given.dla").read_bytes()
    _dla("emit", "DIR/given.dla", "-o", "DIR/given.prog")(folder)
    (folder / "spec.toml").write_text('networks = "given.dla"\ntiming.dram_latency = [10, 20, 30]\n')
    (folder / "system.toml").write_text(
        '[[accelerator]]\nname = "npu"\n[run]\nuntil = "40us"\n[[task]]\nname = "a"\nmodel = "given.dla"\n'
        'period = "20us"\n'
    )
    older = {
        "tiny.dla": package, "kept.dla": package, "page.html": b"<html>", "pages/given.html": b"<html>",
        "pages/roofline.png": b"\x89PNG", "tiny.prog": b"DLAPROG", "run.json": b"{}", "trace.json": b"{}",
    }  # fmt: skip
    for name, content in older.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content + b" older")
        (folder / f"{name}.part").write_text(_FOREIGN)
    (folder / "link.dla").symlink_to("kept.dla")


def _corpus(folder: Path, *, changed: bool = False) -> None:
    """A corpus of the first two cases, and what other people keep in it."""
    record_corpus(folder / "corpus", small_cases()[:2], _no_progress)
    if changed:
        rewritten(folder / "corpus", "L1/conv", "dram_read_bytes = ", "dram_read_bytes = 1")
    (folder / "outside").write_text(_FOREIGN)
    for place in ("notes.txt", "cases/notes.txt", "cases/L1/conv-12345678.toml", "objects/L1-12345678.zip"):
        (folder / "corpus" / place).write_text(_FOREIGN)
    for place in ("corpus.json.part", "cases/link", "objects/link"):
        (folder / "corpus" / place).symlink_to(folder / "outside")


WRITERS = (
    Writer("record", _corpus, lambda folder: record_corpus(folder / "corpus", small_cases(), _no_progress), True),
    Writer(
        "first record", _model, lambda folder: record_corpus(folder / "corpus", small_cases()[:2], _no_progress), True
    ),
    Writer("add", _corpus, lambda folder: add_case(folder / "corpus", small_cases()[3]), True),
    Writer(
        "bless",
        lambda folder: _corpus(folder, changed=True),
        lambda folder: bless(folder / "corpus", ["L1/conv"], "counted anew", _no_progress),
        True,
    ),
    Writer("compile", _model, _dla("compile", "DIR/tiny.onnx", "-o", "DIR/tiny.dla")),
    Writer("compile behind a link", _model, _dla("compile", "DIR/tiny.onnx", "-o", "DIR/link.dla")),
    Writer("report", _model, _dla("report", "DIR/given.json", "-o", "DIR/pages")),
    Writer("page", _model, _dla("report", "DIR/given.json", "-o", "DIR/page.html")),
    Writer("emit", _model, _dla("emit", "DIR/given.dla", "-o", "DIR/tiny.prog")),
    Writer("run", _model, _dla("run", "DIR/given.dla", "--json", "DIR/run.json", "--trace", "DIR/trace.json")),
    Writer("run and table", _model, _dla("run", "DIR/given.dla", "--csv", "DIR/table.csv", "--json", "DIR/run.json")),
    Writer("snapshot", _model, _dla("golden", "snapshot", "DIR/given.dla", "-o", "DIR/new.snapshot")),
    Writer("disassembly", _model, _dla("disasm", "DIR/given.prog", "-o", "DIR/tiny.s")),
    Writer("outputs", _model, _dla("simulate", "DIR/given.dla", "-o", "DIR/out.npz", "--log", "DIR/tiny.log")),
    Writer("documents", _model, _dla("isa", "--format", "c", "-o", "DIR/isa.h")),
    Writer(
        "system", _model, _dla("system", "DIR/system.toml", "--json", "DIR/run.json", "--trace", "DIR/trace.json"),
    ),
    Writer(
        "sweep of a system", _model,
        _dla("system", "DIR/system.toml", "--sweep", "run.policy=fcfs,edf", "--json", "DIR/run.json",
             "--csv", "DIR/table.csv"),
    ),
    Writer(
        "sweep", _model, _dla("sweep", "DIR/spec.toml", "--workers", "1", "-o", "DIR/results.sqlite"),
        grows="results.sqlite",
    ),
    Writer(
        "tune", _model,
        _dla("tune", "DIR/given.dla", "--measurements", "4", "--no-model", "--log", "DIR/log.jsonl"), grows="log.jsonl",
    ),
)  # fmt: skip


def contents(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: bytes of files, targets of links; but not what only a killed process leaves."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or (path.is_file() and not is_leftover(path))
    }


def apart(action: Callable[[], object], stop_at: int | None = None, seconds: float | None = None) -> tuple[int, int]:
    """Do ``action`` in a process that is killed before step ``stop_at`` or after ``seconds``; (status, steps).

    Steps are what changes something on the disk. The status is negative where it was killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _do(action, stop_at, writer)
    os.close(writer)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    with open(reader, "rb") as pipe:
        steps = len(pipe.read())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), steps


def _do(action: Callable[[], object], stop_at: int | None, said: int) -> None:
    """What a child does, and its end."""
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
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(said, b".")

    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        sys.addaudithook(step)
        outcome = action()
        status = outcome if isinstance(outcome, int) else 0
    finally:
        os._exit(status)


@dataclass(frozen=True)
class Rehearsal:
    """What a command does to a folder when nobody kills it, in how many steps and seconds."""

    before: Contents
    after: Contents
    digests: tuple[str, str]
    steps: int
    seconds: float
    parts: frozenset[tuple[object, ...]]


def rehearse(writer: Writer, original: Path, folder: Path) -> Rehearsal:
    """Make ``original`` as it is before every attempt, and run the command once on a copy in ``folder``."""
    original.mkdir()
    status, _ = apart(lambda: writer.prepare(original))
    assert status == 0, f"{writer.name}: not prepared"
    before, old = contents(original), _digest(original)
    _copied(original, folder)
    begun = time.monotonic()
    status, steps = apart(lambda: writer.run(folder))
    assert status == 0, f"{writer.name}: fails without a kill"
    seconds, after = time.monotonic() - begun, contents(folder)
    touched = [place for place, found in before.items() if _is_foreign(found) and after.get(place) != found]
    assert not touched, f"{writer.name}: touches {touched} without a kill"
    parts = _parts(folder / writer.grows) if writer.grows else frozenset[tuple[object, ...]]()
    return Rehearsal(before, after, (old, _digest(folder)), steps, seconds, parts)


def _is_foreign(found: bytes | str) -> bool:
    """A file of somebody else, or a link."""
    return isinstance(found, str) or found == _FOREIGN.encode()


def _copied(original: Path, folder: Path) -> None:
    """The same links and files, each time at the same place, for some links are absolute."""
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(original, folder, symlinks=True)


def _digest(folder: Path) -> str:
    """Of the corpus of a folder, read to the last case; raises InputError where it is not whole."""
    if not (folder / "corpus").exists():
        return "none"
    corpus = corpus_to_replace(folder / "corpus")
    for name in corpus.entries:
        corpus.case(name)
    return corpus.digest if corpus.entries else "none"


def violations(writer: Writer, folder: Path, known: Rehearsal) -> list[str]:
    """What a killed command did that it must not do, and whether the next run makes up for it."""
    found = contents(folder)
    wrong = [
        place
        for place in {*found, *known.before, *known.after}
        if found.get(place) not in (known.before.get(place), known.after.get(place))
        and not (writer.corpus and place == f"corpus/{INDEX}")
        and not (writer.grows and place.startswith(writer.grows))
    ]
    said = [f"{place} is neither as before nor as wanted" for place in sorted(wrong)]
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
    """Whether what is done is lost, and whether the next run ends as one that was never killed."""
    before = _parts(folder / writer.grows)
    status, _ = apart(lambda: writer.run(folder))
    after = _parts(folder / writer.grows)
    if status or after != known.parts:
        return [f"the next run ends with {status} and {len(after)} parts, not with those of one never killed"]
    return [] if before <= after else ["parts that were done are not those of a run that was never killed"]


def _parts(path: Path) -> frozenset[tuple[object, ...]]:
    """What was done: the points of a sweep with their results, or the whole lines of a log."""
    if not path.exists() or not path.stat().st_size:
        return frozenset()
    if path.suffix != ".sqlite":
        return frozenset((line,) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return frozenset(connection.execute("SELECT key, status, cycles FROM points"))
    except sqlite3.OperationalError:  # it ended before there was a table
        return frozenset()


def attack(count: int, seed: int) -> int:
    """Kill so many commands, print what came of it, and return how many violations there were."""
    generator = random.Random(seed)
    outcomes: dict[str, Counter[str]] = {writer.name: Counter() for writer in WRITERS}
    violated = 0
    with tempfile.TemporaryDirectory() as root:
        known: dict[str, Rehearsal] = {}
        for number in range(count):
            writer = WRITERS[number % len(WRITERS)]
            original, folder = Path(root) / f"{writer.name} before", Path(root) / "folder"
            if writer.name not in known:
                known[writer.name] = rehearse(writer, original, folder)
            rehearsal = known[writer.name]
            _copied(original, folder)
            if generator.random() < 0.5:
                moment: dict[str, Any] = {"stop_at": generator.randint(1, rehearsal.steps)}
            else:
                moment = {"seconds": generator.uniform(0, rehearsal.seconds)}
            status, _ = apart(lambda: writer.run(folder), **moment)  # noqa: B023 - called at once
            state = contents(folder)
            kind = "as before" if state == rehearsal.before else "as wanted" if state == rehearsal.after else "between"
            outcomes[writer.name][kind if status else "ended before"] += 1
            for violation in violations(writer, folder, rehearsal):
                violated += 1
                print(f"{writer.name}, {json.dumps(moment)}: {violation}")
    for name, counted in outcomes.items():
        if counted:
            print(f"{name}: {', '.join(f'{times} {kind}' for kind, times in sorted(counted.items()))}")
    print(f"{count} kills, {violated} violations")
    return violated


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill commands that write at random moments.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    sys.exit(1 if attack(chosen.count, chosen.seed) else 0)
