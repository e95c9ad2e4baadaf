"""``python -m tests.fuzz_inputs``: run commands on mutated inputs and count how they end.

The table shows for each kind how many cases ran, were refused, and got past the first check: they
ran, or a function that does not read the file or the values (``Kind.door``) refused them.
``--places`` prints the functions that refused them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import typer.main

import byoc
import dla_sim
import experiments
import isa
from experiments.cli import main
from experiments.running import package_cache
from isa.errors import InputError
from tests.faults.fault import read_faults
from tests.fuzz_inputs import calls, drawn_documents, drawn_tflite, materials
from tests.fuzz_inputs.execution import Case, Ending, execute_together
from tests.fuzz_inputs.kinds import IMAGE, KINDS, Kind
from tests.fuzz_inputs.mutation import NUMBERS, TEXTS

WRONG = ("traceback", "hang", "memory", "killed", "lines")
_LINES = (
    ("run", "tiny.dla", "--set", "pe.oc=4", "--isa", "v2", "--schedule", "seed", "--seed", "1"),
    ("simulate", "tiny.prog", *IMAGE, "--break", "3", "--dump-sram", "0..16"),
    ("simulate", "tiny.prog", *IMAGE, "--until", "100"),
    ("emit", "tiny.dla", "--region", "0", "--set", "sram_bytes=65536"),
    ("partition", "tiny.onnx", "--shape", "x=1,3,8,8"),
    ("golden", "diff", "preset=small,isa=v1", "default", "--model", "tiny.dla"),
    ("golden", "check", "corpus", "--level", "L1", "--case", "L2/add"),
    ("isa", "--format", "markdown"),
    ("report", "net.sqlite", "--tables", "--x", "cycles", "--y", "sram_bytes"),
    ("run", "tiny.onnx", "--max-memory", "512M", "--input", "x.npy"),
)


def _words(rng: random.Random) -> list[str]:
    """A command line with a word changed, left out or put elsewhere."""
    words = list(rng.choice(_LINES))
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                del words[at]
            case 1:
                words[at] = (
                    rng.choice((*TEXTS, *map(str, NUMBERS)))
                    .replace("\x00", "")
                    .replace("\ud800", "")
                )
            case 2:
                words.insert(
                    at, rng.choice(("--json", "-o", "--preset", "--help", "x", "-1", "--seed=-1"))
                )
            case _:
                key, equals, _ = words[at].partition("=")
                words[at] = (
                    key + equals + str(rng.choice((*NUMBERS, "x", "", "1,,2")))
                    if equals
                    else key[:-1]
                )
        words = words or ["run"]
    return words


_DRAWN_WORDS = {("words",): _words, ("set",): drawn_documents.settings}


def _action(command: tuple[str, ...], rng: random.Random) -> Callable[[], int]:
    """Return the child's action: a command, or a reader that no command calls alone."""
    special: dict[str, Callable[[], int]] = {
        "spec": partial(_specification, "spec.toml"), "grid": partial(_specification, "drawn.toml"),
        "cost": _cost,
        "faults": _faults, "plugins": _plugins,
    }  # fmt: skip
    if command[0] in special:
        return partial(_clearly, special[command[0]])
    if command[0] == "call":
        return partial(_clearly, partial(calls.call, rng))
    if command[0] == "cached":
        return partial(_cached, list(command[1:]))
    words = list(command)
    if words[0] == "asm":
        return lambda: main.main(words) or main.main(["simulate", "out.prog", *IMAGE])
    return lambda: main.main(words)


def _clearly(read: Callable[[], int]) -> int:
    try:
        return read()
    except InputError as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2


def _specification(name: str) -> int:
    from experiments.sweep.grid import Grid
    from experiments.sweep.spec import load_spec

    spec = load_spec(Path(name))
    for number, _ in enumerate(Grid(spec).batches()):
        if number > 100:
            break
    return 0


def _cost() -> int:
    from experiments.cost.table import load_table

    load_table("cost.toml")
    return 0


def _faults() -> int:
    read_faults(Path("faults.toml"))
    return 0


def _cached(words: list[str]) -> int:
    os.environ.pop("DLA_NO_CACHE", None)
    os.environ["DLA_CACHE_DIR"] = "cache"
    return main.main(words)


def _plugins() -> int:
    sys.path.insert(0, "plugin")
    return main.main(["isa"]) or main.main(["support"])


def cases(seed: int, count: int, chosen: Sequence[str] = ()) -> Iterator[tuple[Kind, int]]:
    """Kinds in turn, each with the seed of its case."""
    kinds = [kind for kind in KINDS if not chosen or kind.name in chosen]
    for number in range(count):
        yield kinds[number % len(kinds)], seed * 1_000_003 + number


def _draw(kind: Kind, folder: Path, seed: int) -> None:
    """Write the case of ``seed``, or of the first behind it that can be written.

    In a child where a library that models are built with may end its process (LiteRT does, on
    shapes that it cannot add).
    """
    if kind.mutate is not drawn_tflite.tflite_model:
        kind.mutate(folder, random.Random(seed))
        return
    for again in itertools.count():
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                kind.mutate(folder, random.Random(seed + (again << 40)))
                status = 0
            os._exit(status)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert not os.WEXITSTATUS(status), f"{kind.name}, seed {seed}: the case cannot be drawn"
            return


def run_case(kind: Kind, seed: int, originals: Path) -> tuple[tuple[str, ...], Ending]:
    """One case in a folder of its own; the command and how it ended."""
    return run_together([(kind, seed)], originals)[0]


def run_together(
    chosen: Sequence[tuple[Kind, int]], originals: Path
) -> list[tuple[tuple[str, ...], Ending]]:
    """Run cases one after the other in one child, each in a folder of its own.

    Their commands and how they ended.
    """
    commands: list[tuple[str, ...]] = []
    given: list[Case] = []
    with contextlib.ExitStack() as folders:
        for kind, seed in chosen:
            folder = Path(folders.enter_context(tempfile.TemporaryDirectory(prefix="dla-fuzz-")))
            shutil.copytree(originals, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
            (folder / "cache").chmod(0o700)
            _draw(kind, folder, seed)
            rng = random.Random(~seed)
            command = rng.choice(kind.commands)
            commands.append(
                tuple(_DRAWN_WORDS[command](rng)) if command in _DRAWN_WORDS else command
            )
            given.append((_action(commands[-1], rng), folder))
        with _made_once():
            return list(zip(commands, execute_together(given), strict=True))


_get_command, _application = (
    functools.cache(typer.main.get_command),
    functools.cache(main.application),
)
_sources_digest = functools.cache(package_cache.sources_digest)


@contextlib.contextmanager
def _made_once() -> Iterator[None]:
    """Do the common work of all children once.

    They build a command, read all the code and count all frozen objects.
    """
    with (
        patch.object(typer.main, "get_command", _get_command),
        patch.object(main, "application", lambda words=(): _application(tuple(words[:1]))),
        patch.object(package_cache, "sources_digest", _sources_digest),
        patch.object(gc, "get_freeze_count", lambda: 1),
    ):
        yield


def prepare(folder: Path) -> Path:
    """The materials in ``folder``.

    What commands import when they run is imported here, once for all children.
    """
    for package in (isa, byoc, dla_sim, experiments):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name == "experiments.dla":  # it is installed as dla, and says so
                continue
            importlib.import_module(module.name)
    for name in (
        "onnxruntime",
        "onnx.checker",
        "onnx.reference",
        "onnx.shape_inference",
        "PIL.Image",
        "rich.table",
    ):
        importlib.import_module(name)
    folder.mkdir(exist_ok=True)
    materials.write_all(folder)
    (folder / "cost.toml").write_bytes(materials.cost_table())
    (folder / "faults.toml").write_bytes(materials.fault_file())
    with _made_once():
        _warm(folder)
    gc.collect()
    gc.freeze()  # a child that collects does not copy what it never touches
    return folder


def _warm(originals: Path) -> None:
    """Run the children's commands once on intact inputs, to fill all caches before they start."""
    usual = {"drawn.jsonl": "tuning.jsonl", "new.jsonl": "warm.jsonl"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="dla-fuzz-") as name:
        shutil.copytree(originals, name, dirs_exist_ok=True)
        os.chdir(name)
        try:
            for kind in KINDS:
                for command in kind.commands:
                    files = {"system": "system", "split": "system", "sweep": "spec"}
                    drawn_file = (
                        "pins.toml"
                        if "--pins" in command
                        else files.get(command[0], "preset") + ".toml"
                    )
                    if any(
                        word.startswith("drawn") and word not in ("drawn.toml", "drawn.jsonl")
                        for word in command
                    ):
                        continue  # there is none yet
                    words = [
                        usual.get(word, word).replace("drawn.toml", drawn_file) for word in command
                    ]
                    with (
                        contextlib.redirect_stdout(io.StringIO()),
                        contextlib.redirect_stderr(io.StringIO()),
                    ):
                        if words[0] in main.COMMANDS and words[0] != "sweep":
                            main.main(words)
        finally:
            os.chdir(before)


@dataclass
class Counts:
    """Counts of cases by kind and end, the places that rejected them, and wrong ends.

    They are written to a file as they grow.
    """

    log: Path | None
    ends: dict[str, Counter[str]]
    places: dict[str, Counter[str]]
    findings: list[str]

    def add(self, kind: Kind, ending: Ending) -> None:
        """One case."""
        past = ending.status in (0, 1) or (
            ending.status == 2 and not ending.place.startswith(kind.door or ("?",))
        )
        self.ends[kind.name].update(
            ("cases", ending.wrong or ("refused" if ending.status == 2 else "ran"))
        )
        self.ends[kind.name]["past"] += past and not ending.wrong
        if ending.status == 2:
            self.places[kind.name][ending.place or "the command line"] += 1

    def write(self) -> None:
        """All, as JSON."""
        if self.log is not None:
            whole = {"ends": self.ends, "findings": self.findings, "places": self.places}
            self.log.write_text(json.dumps(whole, indent=1), encoding="utf-8")

    def show(self, places: bool) -> bool:
        """Print them; whether a case ended as none may."""
        columns = ("cases", "ran", "refused", "past", *WRONG)
        self.ends["all"] = sum(self.ends.values(), Counter())
        print(f"{'kind':18}" + "".join(f"{column:>10}" for column in columns))
        for name, row in self.ends.items():
            print(f"{name:18}" + "".join(f"{row[column]:10}" for column in columns))
            for place, times in self.places[name].most_common() if places else ():
                print(f"{times:28} {place}")
        return any(self.ends["all"][column] for column in WRONG)


ALONE = ("cache", "entry points")
"""Kinds whose cases leave something in the process that reads them."""


def _groups(
    drawn_cases: Iterator[tuple[Kind, int]], together: int
) -> Iterator[list[tuple[Kind, int]]]:
    """Yield the cases in groups of one kind, each with at most so many that one child runs."""
    waiting: dict[str, list[tuple[Kind, int]]] = defaultdict(list)
    for kind, seed in drawn_cases:
        waiting[kind.name].append((kind, seed))
        if len(waiting[kind.name]) >= together or kind.name in ALONE:
            yield waiting.pop(kind.name)
    yield from waiting.values()


def _try_all(
    groups: Iterator[list[tuple[Kind, int]]], originals: Path, counts: Counts, until: float
) -> None:
    """Run cases, count how they end, and print those that end as none may."""
    for group in groups:
        for (kind, seed), (command, ending) in zip(
            group, run_together(group, originals), strict=True
        ):
            counts.add(kind, ending)
            if ending.wrong:
                lines = ending.message.splitlines()
                shown = " | ".join([*lines[:1], *lines[1:][-5:]])[-900:]
                counts.findings.append(
                    f"{ending.wrong}: {kind.name}, seed {seed}, dla {' '.join(command)}: {shown}"
                )
                print(counts.findings[-1], flush=True)
        counts.write()
        if time.monotonic() > until:
            break


def fuzz(arguments: Sequence[str] | None = None) -> int:
    """Mutate inputs and print a table; exit status 1 where a case ended as none may."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_inputs", description=fuzz.__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop behind the case of this second"
    )
    parser.add_argument("--log", type=Path, help="also write the counts to this file, as they grow")
    parser.add_argument(
        "--together",
        type=int,
        default=1,
        help="so many cases of a kind in one process, which is quicker",
    )
    parser.add_argument("--places", action="store_true", help="say where cases were refused")
    parser.add_argument("--kind", action="append", default=[], help="only this kind; repeatable")
    parser.add_argument(
        "--case", type=int, metavar="SEED", help="only this case of --kind, with all that it prints"
    )
    given = parser.parse_args(arguments)
    counts = Counts(given.log, defaultdict(Counter), defaultdict(Counter), [])
    if os.access("/dev/shm", os.W_OK):  # thousands of folders are made and removed
        tempfile.tempdir = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="dla-fuzz-") as name:
        originals = prepare(Path(name) / "originals")
        if given.case is not None:
            kind = next(kind for kind in KINDS if kind.name in given.kind)
            command, ending = run_case(kind, given.case, originals)
            print(
                f"dla {' '.join(command)}: exit status {ending.status}, "
                f"{ending.place}\n{ending.message}"
            )
            return int(bool(ending.wrong))
        with contextlib.suppress(KeyboardInterrupt):  # what was tried counts
            groups = _groups(cases(given.seed, given.count, given.kind), given.together)
            _try_all(groups, originals, counts, time.monotonic() + given.seconds)
    counts.write()
    return int(counts.show(given.places))


if __name__ == "__main__":
    sys.exit(fuzz())
