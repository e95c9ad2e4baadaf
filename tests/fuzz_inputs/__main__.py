"""``python -m tests.fuzz_inputs``: mutate inputs of every kind, count what ends otherwise than bad
input may.

The table says of every kind how many cases ran, were refused, and got past the first check: they
ran, or what refused them is none of the functions that read the file or the values (``Kind.door``).
``--places`` says where they were refused.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import hashlib
import importlib
import io
import itertools
import json
import os
import pkgutil
import random
import shutil
import struct
import sys
import tempfile
import time
import zipfile
import zlib
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
from byoc.package.archive import MANIFEST
from experiments.cli import main
from experiments.running import package_cache
from isa.errors import InputError
from isa.files import archive_bytes
from tests.faults.fault import read_faults
from tests.fuzz_inputs import calls, drawn, drawn_models, materials
from tests.fuzz_inputs.execution import Case, Ending, execute_together
from tests.fuzz_inputs.mutation import (
    NUMBERS,
    TEXTS,
    mutate_bytes,
    mutate_json,
    mutate_model,
    mutate_text,
    mutate_words,
)

Mutator = Callable[[bytes, random.Random], bytes]
WRONG = ("traceback", "hang", "memory", "killed", "lines")


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    ``mutate`` changes it in a folder that holds all materials; one of ``commands`` reads it.

    ``door``: how the names of what reads it begin, as ``module`` or ``module.function``. What they
    refuse did not get past the first check.
    """

    name: str
    mutate: Callable[[Path, random.Random], None]
    commands: tuple[tuple[str, ...], ...]
    door: tuple[str, ...] = ()


def _file(name: str, *mutators: Mutator) -> Callable[[Path, random.Random], None]:
    def mutate(folder: Path, rng: random.Random) -> None:
        place = folder / name
        place.write_bytes(
            rng.choice((mutate_bytes, *mutators, *mutators, *mutators))(place.read_bytes(), rng)
        )

    return mutate


def _package(folder: Path, rng: random.Random) -> None:
    """Bytes of the file, or of a member with the sums made right again."""
    place = folder / "float.dla"
    if rng.random() < 0.1:
        place.write_bytes(mutate_bytes(place.read_bytes(), rng))
        return
    contents = materials.members(place)
    name = rng.choice(
        (
            MANIFEST,
            "graph.json",
            "graph.json",
            "graph.json",
            "model.onnx",
            "model.onnx",
            "weights.bin",
        )
    )
    mutators = {"model.onnx": mutate_model, "weights.bin": mutate_bytes}
    contents[name] = mutators.get(name, mutate_json)(contents[name], rng)
    place.write_bytes(archive_bytes(materials.resummed(contents)))


def _program(folder: Path, rng: random.Random) -> None:
    """The header or the rest of a program, with its sum made right again."""
    place = folder / "net.prog"
    content = place.read_bytes()[:-4]
    magic, length = struct.unpack_from("<8sI", content)
    header = content[12 : 12 + length]
    body = content[12 + length :]
    if rng.random() < 0.5:
        header = mutate_json(header, rng)
    else:
        words = bytearray(body)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(json.loads(header)["words"]) * 8
            words[at : at + 4] = struct.pack("<q", rng.choice(NUMBERS))[:4]
        body = bytes(words) if rng.random() < 0.7 else mutate_bytes(body, rng)
    whole = struct.pack("<8sI", magic, len(header)) + header + body
    place.write_bytes(whole + struct.pack("<I", zlib.crc32(whole)))


def _corpus(folder: Path, rng: random.Random) -> None:
    """The index, a case with its digest made right again, or a pack."""
    index = folder / "corpus" / "corpus.json"
    document = json.loads(index.read_bytes())
    which = rng.randrange(3)
    if which == 0:
        index.write_bytes(rng.choice((mutate_json, mutate_bytes))(index.read_bytes(), rng))
    elif which == 1 or not document["packs"]:
        entry = rng.choice(list(document["cases"].values()))
        place = index.parent / entry["file"]
        content = rng.choice((mutate_text, mutate_text, mutate_bytes))(place.read_bytes(), rng)
        place.write_bytes(content)
        entry["sha256"] = hashlib.sha256(content).hexdigest()
        lines = "".join(
            f"{name} {item['sha256']}\n" for name, item in sorted(document["cases"].items())
        )
        document["digest"] = hashlib.sha256(lines.encode()).hexdigest()[:16]
        index.write_text(json.dumps(document), encoding="utf-8")
    else:
        place = index.parent / rng.choice(document["packs"])
        place.write_bytes(mutate_bytes(place.read_bytes(), rng))


def _npz(name: str) -> Callable[[Path, random.Random], None]:
    """Bytes of the archive, or of an array in it."""

    def mutate(folder: Path, rng: random.Random) -> None:
        place = folder / name
        if rng.random() < 0.3:
            place.write_bytes(mutate_bytes(place.read_bytes(), rng))
            return
        contents = materials.members(place)
        member = rng.choice(list(contents))
        data = contents[member]
        contents[member] = rng.choice((mutate_text, mutate_bytes))(data[:128], rng) + data[128:]
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for kept, content in contents.items():
                archive.writestr(kept, content)

    return mutate


def _snapshot(folder: Path, rng: random.Random) -> None:
    place = folder / "net.snapshot"
    if rng.random() < 0.2:
        place.write_bytes(mutate_bytes(place.read_bytes(), rng))
        return
    contents = materials.members(place)
    name = rng.choice(("snapshot.json", "snapshot.json", *contents))
    contents[name] = (mutate_json if name.endswith(".json") else mutate_bytes)(contents[name], rng)
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in contents.items():
            archive.writestr(member, data)


def _plugin(folder: Path, rng: random.Random) -> None:
    name = rng.choice(("METADATA", "entry_points.txt", "entry_points.txt"))
    _file(f"plugin/theirs-1.0.dist-info/{name}", mutate_text)(folder, rng)


def _nothing(folder: Path, rng: random.Random) -> None:
    return None


_MODELS = ("float.onnx", "tiny.onnx", "qoperator.onnx", "qdq.onnx", "random.onnx")
_IMAGE = ("--image", "0=zeros.bin")
_ONNX = (
    "byoc.frontend.onnx.file.parse_model",
    "byoc.frontend.onnx.file.check_model",
    "byoc.frontend.onnx.file._check_text",
)
_TFLITE = ("byoc.frontend.tflite.file", "byoc.importing.tflite_package")
_PRESET = ("dla_sim.presets._parse", "isa.reading", "isa.files")
_SYSTEM = ("dla_sim.systems.spec.document", "isa.files")
_SPEC = ("experiments.sweep.spec.parse_spec", "experiments.sweep.spec.load_spec", "isa.files")
_LOG = ("byoc.tuning.log._parse_line", "byoc.tuning.log._whole", "byoc.pins", "isa.files")
_INPUT = ("experiments.models.inputs._load", "isa.files")
KINDS = (
    *(
        Kind(name, _file(name, mutate_model),
             (("run", name, "--json", "out.json"), ("partition", name)), _ONNX)
        for name in _MODELS
    ),
    Kind("drawn ONNX", drawn_models.onnx_model, (
        ("run", "drawn.onnx", "--json", "out.json"), ("partition", "drawn.onnx"),
        ("compile", "drawn.onnx", "-o", "out.dla"),
        ("run", "drawn.onnx", "--set", "numerics=fixed"),
    ), _ONNX),
    Kind("TensorFlow Lite", _file("net.tflite", mutate_words), (
        ("run", "net.tflite", "--json", "out.json"),
        ("run", "net.tflite", "--set", "numerics=fixed"),
    ), _TFLITE),
    Kind("drawn TFLite", drawn_models.tflite_model, (
        ("run", "drawn.tflite", "--json", "out.json"),
        ("run", "drawn.tflite", "--set", "numerics=fixed"),
        ("partition", "drawn.tflite"),
    ), _TFLITE),
    Kind("package", _package, (
        ("run", "float.dla", "--json", "out.json"), ("simulate", "float.dla", "--integer-io"),
    ), ("byoc.package.package._make_error", "byoc.package.archive", *_ONNX)),
    Kind(
        "program",
        _program,
        (("simulate", "net.prog", *_IMAGE), ("simulate", "net.prog", "--sanitize", *_IMAGE),
         ("disasm", "net.prog")),
        ("isa.program_file._parse", "isa.program_file._check_header"),
    ),
    Kind("assembly", _file("tiny.s", mutate_text), (("asm", "tiny.s", "-o", "out.prog"),),
         ("isa.assembler",)),
    Kind("drawn assembly", drawn.assembly, (("asm", "drawn.s", "-o", "out.prog"),),
         ("isa.assembler",)),
    Kind("preset", _file("preset.toml", mutate_text),
         (("emit", "tiny.dla", "--preset", "preset.toml"),), _PRESET),
    Kind("settings", _nothing, (("set",),), ("dla_sim.presets._parse", "isa.files")),
    Kind("pins", _file("pins.toml", mutate_text), (("emit", "tiny.dla", "--pins", "pins.toml"),),
         ("byoc.pins",)),
    Kind("drawn pins", drawn.pins, (("emit", "tiny.dla", "--pins", "drawn.toml"),), ("byoc.pins",)),
    Kind("tuning log", _file("tuning.jsonl", mutate_text),
         (("emit", "tiny.dla", "--tuned", "tuning.jsonl"),), _LOG),
    Kind("specification", _file("spec.toml", mutate_text), (("spec",),), _SPEC),
    Kind("drawn sweep", drawn.specification, (
        ("sweep", "drawn.toml", "--workers", "1", "-o", "out.sqlite", "--export", "out.csv"),
        ("grid",),
    ), _SPEC),
    Kind("system", _file("system.toml", mutate_text), (
        ("system", "system.toml", "--until", "20us"),
        ("system", "system.toml", "--until", "20us", "--policy", "jit"),
    ), _SYSTEM),
    Kind("drawn system", drawn.system, (
        ("system", "drawn.toml", "--until", "20us"),
        ("system", "drawn.toml", "--until", "50us", "--json", "out.json", "--trace", "trace.json"),
        ("system", "drawn.toml", "--until", "10us", "--highest-rate"),
        ("system", "drawn.toml", "--until", "20us", "--check"),
        ("system", "drawn.toml", "--until", "20us", "--sweep", "run.policy=fcfs,edf,jit",
         "--csv", "out.csv"),
    ), _SYSTEM),
    Kind("split", drawn.system, tuple(
        ("split", "tiny.dla", "drawn.toml", "--by", way, "--json", "out.json")
        for way in ("batch", "channels", "rows", "pipeline")
    ), _SYSTEM),
    Kind("drawn tuning log", drawn.tuning_log, (
        ("emit", "tiny.dla", "--tuned", "drawn.jsonl"),
        ("tune", "tiny.dla", "--measurements", "3", "--no-model", "--log", "drawn.jsonl"),
        ("tune", "tiny.dla", "--measurements", "3", "--no-model", "--from", "drawn.jsonl",
         "--log", "new.jsonl"),
    ), _LOG),
    Kind("cache", drawn.cache, (
        ("cached", "run", "tiny.onnx", "--json", "out.json"), ("cached", "cache"),
        ("cached", "cache", "--clear"),
    )),
    Kind("RTL preset", drawn.machine, (
        ("rtl", "ports", "--preset", "drawn.toml"), ("emit", "tiny.dla", "--preset", "drawn.toml"),
    ), _PRESET),
    Kind("Python call", _nothing, (("call",),), ("isa.typed",)),
    Kind("cost table", _file("cost.toml", mutate_text),
         (("report", "run.json", "--tables"), ("cost",)), ("experiments.cost.table",)),
    Kind("fault file", _file("faults.toml", mutate_text), (("faults",),), ("tests.faults",)),
    Kind("report", _file("run.json", mutate_json), (
        ("report", "run.json", "--tables"), ("report", "run.json", "-o", "page.html"),
        ("repro", "run.json"),
        ("golden", "diff", "run.json", "run.json"),
    ), ("experiments.report.store",)),
    Kind("results", _file("net.sqlite"), (("report", "net.sqlite", "--tables"),),
         ("experiments.sweep.store",)),
    Kind("corpus", _corpus, (("golden", "check", "corpus"), ("golden", "list", "corpus")),
         ("experiments.golden.store",)),
    Kind("snapshot", _snapshot, (("golden", "diff", "net.snapshot", "net.snapshot"),),
         ("experiments.compare.snapshot_file",)),
    Kind("log", _file("net.log", mutate_text),
         (("simulate", "tiny.prog", *_IMAGE, "--against", "net.log"),),
         ("experiments.debug.commit_log",)),
    Kind("npy", _file("x.npy"), (("run", "tiny.dla", "--input", "x.npy", "--json", "out.json"),),
         _INPUT),
    Kind("npz", _npz("x.npz"), (("run", "tiny.dla", "--input", "x.npz", "--json", "out.json"),),
         _INPUT),
    Kind("calibration", _npz("samples.npz"),
         (("compile", "tiny.onnx", "--calibration", "samples.npz"),),
         ("experiments.running.network.read_samples",)),
    Kind("drawn arrays", drawn.arrays, (
        ("run", "tiny.dla", "--input", "drawn.npy", "--json", "out.json"),
        ("run", "tiny.dla", "--input", "drawn.npz"),
        ("compile", "tiny.onnx", "--calibration", "drawn-samples.npz", "-o", "out.dla"),
        ("run", "tiny.onnx", "--accuracy", "drawn-samples.npz"),
    ), (*_INPUT, "experiments.running.network.read_samples")),
    Kind("picture", _file("x.png"),
         (("run", "tiny.dla", "--input", "x.png", "--json", "out.json"),), _INPUT),
    Kind("entry points", _plugin, (("plugins",),), ("isa.plugins",)),
    Kind("command line", _nothing, (("words",),)),
)  # fmt: skip
_LINES = (
    ("run", "tiny.dla", "--set", "pe.oc=4", "--isa", "v2", "--schedule", "seed", "--seed", "1"),
    ("simulate", "tiny.prog", *_IMAGE, "--break", "3", "--dump-sram", "0..16"),
    ("simulate", "tiny.prog", *_IMAGE, "--until", "100"),
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


_DRAWN_WORDS = {("words",): _words, ("set",): drawn.settings}


def _action(command: tuple[str, ...], rng: random.Random) -> Callable[[], int]:
    """What the child does: a command, or a reader that no command serves alone."""
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
        return lambda: main.main(words) or main.main(["simulate", "out.prog", *_IMAGE])
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
    if kind.mutate is not drawn_models.tflite_model:
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
    """What every child would do anew is done once: build its command, read all the code, count
    all that is frozen.
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
    """Run what children run, once, on whole inputs: what is made when it is first used is there
    before they begin.
    """
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
    """How cases of each kind ended, where they were refused, and what ended as none may.

    Kept in a file as it grows.
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
