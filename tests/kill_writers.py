"""Commands that write, killed at random moments: nothing is half-written, and nothing of anybody else is touched.

``python -m tests.kill_writers --count 200`` prints how many kills left each command's old results and how many its new
ones, and every violation; exit status 1 where there is one. ``--dask N``: so many kills beside them of sweeps on a Dask
cluster, of the command or of one of its workers.

Each attempt begins in a folder of its own, with results of before, and with files and links of somebody else wherever a
careless writer would put something. Half of the kills come before a step that changes something on the disk, the others
after a part of the time that the command takes; six of ten by SIGKILL, the others by SIGINT and SIGTERM. What goes on
where it stopped is run again, and compared with what nobody killed.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dla.__main__
from experiments.golden.record import add_case, bless, record_corpus
from experiments.golden.store import INDEX, corpus_to_replace
from experiments.report import plots, run_page  # noqa: F401 - what children need is there before they are forked
from experiments.running import inference  # noqa: F401
from isa.errors import InputError
from isa.files import is_leftover
from tests.experiments.command_line import save_tiny
from tests.experiments.golden_corpora import rewritten, small_cases

_STEPS = frozenset(
    ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
)
_FOREIGN = "of somebody else"
_SIGNALS = (signal.SIGKILL,) * 3 + (signal.SIGINT, signal.SIGTERM)
_CLUSTER = "DLA_TEST_CLUSTER"
"""Where the scheduler of a Dask cluster is."""
Contents = Mapping[str, bytes | str]


@dataclass(frozen=True)
class Writer:
    """A command under attack. ``prepare`` makes what is there before in a folder, ``run`` is the command.

    ``corpus`` says that the folder ``corpus`` is one of golden outputs, whose index has steps in between. ``grows``:
    the file that has a line or a row for each part of the work that is done; the next run goes on from there.
    ``whole``: the folder whose files are those of before or those that were wanted, never some of each.
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], object]
    corpus: bool = False
    grows: str = ""
    whole: str = ""


def _dla(*words: str) -> Callable[[Path], object]:
    """``dla`` with these words, as a process of its own: an interrupt ends it as the signal does."""
    return lambda folder: dla.__main__.main([
        word.replace("DIR", str(folder)).replace("CLUSTER", os.environ.get(_CLUSTER, "")) for word in words
    ])  # fmt: skip


def _caching(folder: Path) -> object:
    os.environ.pop("DLA_NO_CACHE", None)
    os.environ["DLA_CACHE_DIR"] = str(folder / "cache")
    return _dla("run", "DIR/tiny.onnx", "--json", "DIR/run.json")(folder)


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
    (folder / "pair.toml").write_text('[[accelerator]]\nname = "npu"\ncount = 2\n')
    _dla("disasm", "DIR/given.prog", "-o", "DIR/given.s")(folder)


def _cache(folder: Path) -> None:
    """The same, and a cache that has its secret and no entry yet."""
    _model(folder)
    _caching(folder)
    for entry in (folder / "cache").glob("*.package"):
        entry.unlink()


def _exported(folder: Path) -> None:
    """The same, and an export of another case."""
    _model(folder)
    _dla("golden", "export", "L1/relu", "-o", "DIR/exported")(folder)


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
        "kept sweep of a system", _model,
        _dla("system", "DIR/system.toml", "--sweep", "run.policy=fcfs,edf,jit", "-o", "DIR/results.sqlite"),
        grows="results.sqlite",
    ),
    Writer("cache", _cache, _caching),
    Writer("split", _model, _dla("split", "DIR/given.dla", "DIR/pair.toml", "--by", "rows", "--json", "DIR/run.json")),
    Writer("explanation", _model, _dla("explain", "DIR/given.dla", "--json", "DIR/run.json")),
    Writer("partition", _model, _dla("partition", "DIR/given.dla", "--json", "DIR/run.json")),
    Writer("comparison", _model,
           _dla("golden", "diff", "DIR/given.json", "DIR/given.json", "--html", "DIR/page.html")),
    Writer("assembly", _model, _dla("asm", "DIR/given.s", "-o", "DIR/tiny.prog")),
    Writer("export", _exported, _dla("golden", "export", "L1/add", "-o", "DIR/exported"), whole="exported"),
    Writer("first export", _model, _dla("golden", "export", "L1/relu", "-o", "DIR/exported"), whole="exported"),
    Writer("case for hardware", _model, _dla("rtl", "case", "L1/add", "-o", "DIR/tiny.case")),
    Writer("pictures", _model, _dla("report", "DIR/given.json", "--png", "DIR/pages")),
    Writer(
        "sweep", _model, _dla("sweep", "DIR/spec.toml", "--workers", "1", "-o", "DIR/results.sqlite"),
        grows="results.sqlite",
    ),
    Writer(
        "exported sweep", _model,
        _dla("sweep", "DIR/spec.toml", "--workers", "1", "-o", "DIR/results.sqlite", "--export", "DIR/results.csv"),
        grows="results",
    ),
    Writer(
        "explore", _model,
        _dla("explore", "DIR/spec.toml", "--trials", "3", "--workers", "1", "-o", "DIR/results.sqlite",
             "--json", "DIR/run.json"),
        grows="results.sqlite",
    ),
    Writer(
        "tune", _model,
        _dla("tune", "DIR/given.dla", "--measurements", "4", "--no-model", "--log", "DIR/log.jsonl"), grows="log.jsonl",
    ),
)  # fmt: skip


ON_DASK = Writer(
    "sweep on Dask", _model,
    _dla("sweep", "DIR/spec.toml", "--scheduler", "CLUSTER", "-o", "DIR/results.sqlite"), grows="results.sqlite",
)  # fmt: skip
BUSY = frozenset(("sweep", "exported sweep", "explore"))
"""Those that make processes, which takes seconds: every fifth time."""


def contents(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: bytes of files, targets of links; but not what only a killed process leaves."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and not any(map(is_leftover, (path, *path.parents)))
    }


def apart(
    action: Callable[[], object],
    stop_at: int | None = None,
    seconds: float | None = None,
    number: int = signal.SIGKILL,
    victim: Callable[[int], int] = lambda child: child,
) -> tuple[int, int]:
    """Do ``action`` in a process that is killed before step ``stop_at`` or after ``seconds``; (status, steps).

    Steps are what changes something on the disk. The status is negative where it was killed. ``number`` is the signal;
    ``victim`` says which process hears it, where it is another one than the child.
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
    except KeyboardInterrupt:  # before the command began, or in what is no command
        status = 130
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
    parts = _parts(_growing(writer, folder)) if writer.grows else frozenset[tuple[object, ...]]()
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


def violations(writer: Writer, folder: Path, known: Rehearsal, tidy: bool = False) -> list[str]:
    """What a killed command did that it must not do, and whether the next run makes up for it.

    ``tidy``: it was interrupted, so that it could take away what was not whole.
    """
    found = contents(folder)
    left = [str(path.relative_to(folder)) for path in folder.rglob("*") if tidy and is_leftover(path)]
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
            {place: content for place, content in one.items() if place.startswith(f"{writer.whole}/")}
            for one in (found, known.before, known.after)
        )
        said += [] if made in known_ones else [f"{writer.whole} is neither whole as before nor as wanted"]
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
    """Whether what is done is lost, and whether the next run ends as one that was never killed."""
    before = _parts(_growing(writer, folder))
    status, _ = apart(lambda: writer.run(folder))
    after = _parts(_growing(writer, folder))
    if status or after != known.parts:
        return [f"the next run ends with {status} and {len(after)} parts, not with those of one never killed"]
    return [] if before <= after else ["parts that were done are not those of a run that was never killed"]


def _growing(writer: Writer, folder: Path) -> Path:
    place = folder / writer.grows
    return place if place.suffix else place.with_suffix(".sqlite")


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


def attack(count: int, seed: int, on_dask: int = 0, only: str = "", seconds: float = float("inf")) -> int:
    """Kill so many commands, print what came of it, and return how many violations there were."""
    generator, until = random.Random(seed), time.monotonic() + seconds
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
    """Kills one after the other, and what came of them."""

    def __init__(self, root: Path, generator: random.Random) -> None:
        self._root, self._generator = root, generator
        self._known: dict[str, Rehearsal] = {}
        self.outcomes: dict[str, Counter[str]] = {}
        self.violated = 0

    def once(self, writer: Writer, workers: Callable[[], list[int]] | None = None) -> None:
        """One kill: of the command, or of one of the ``workers`` that there are at that moment."""
        generator, original, folder = self._generator, self._root / f"{writer.name} before", self._root / "folder"
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
        victim = {} if workers is None else {"victim": lambda child: generator.choice(_some(workers))}
        status, _ = apart(lambda: writer.run(folder), **moment, **victim)
        state = contents(folder)
        kind = "as before" if state == known.before else "as wanted" if state == known.after else "between"
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
    """A Dask cluster of two workers whose nanny starts another one for each that dies; says which ones there are."""
    import distributed  # noqa: F401 - children have it from here

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    begin = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    host, port = address.split(":")
    started = [
        subprocess.Popen([*begin, "scheduler", "--host", host, "--port", port, "--no-dashboard"], **quiet),
        subprocess.Popen(
            [*begin, "worker", f"tcp://{address}", "--nworkers", "2", "--nthreads", "1", "--no-dashboard"], **quiet
        ),
    ]
    os.environ[_CLUSTER] = f"tcp://{address}"

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
    parser.add_argument("--dask", type=int, default=0, help="kills of sweeps on a Dask cluster beside them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop behind the kill of this second")
    parser.add_argument("--only", default="", help="only commands whose names have this in them")
    chosen = parser.parse_args()
    sys.exit(1 if attack(chosen.count, chosen.seed, chosen.dask, chosen.only, chosen.seconds) else 0)
