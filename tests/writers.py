"""Commands that write files or folders, and the files that each may leave behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import dla.__main__
from experiments.golden.record import add_case, bless, record_corpus
from experiments.report import plots, run_page  # noqa: F401 - what children need is there before they are forked
from experiments.running import inference  # noqa: F401
from tests.experiments.command_line import save_tiny
from tests.experiments.golden_corpora import rewritten, small_cases

FOREIGN = "of somebody else"
CLUSTER = "DLA_TEST_CLUSTER"
"""Where the scheduler of a Dask cluster is."""
Contents = Mapping[str, bytes | str]


@dataclass(frozen=True)
class Writer:
    """A command under attack.

    ``prepare`` makes what is there before in a folder, ``run`` is the command.

    ``corpus`` says that the folder ``corpus`` is one of golden outputs, whose index has steps in
    between. ``grows``: the file that has a line or a row for each part of the work that is done;
    the next run goes on from there. ``whole``: the folder whose files are those of before or those
    that were wanted, never some of each.
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], object]
    corpus: bool = False
    grows: str = ""
    whole: str = ""


def _dla(*words: str) -> Callable[[Path], object]:
    """Return a call of ``dla`` with these words, as in a process of its own.

    An interrupt ends it like the signal.
    """
    return lambda folder: dla.__main__.main([
        word.replace("DIR", str(folder)).replace("CLUSTER", os.environ.get(CLUSTER, ""))
        for word in words
    ])  # fmt: skip


def _caching(folder: Path) -> object:
    os.environ.pop("DLA_NO_CACHE", None)
    os.environ["DLA_CACHE_DIR"] = str(folder / "cache")
    return _dla("run", "DIR/tiny.onnx", "--json", "DIR/run.json")(folder)


def _no_progress(stage: str) -> None:
    return None


def _model(folder: Path) -> None:
    """A network, its package and a report.

    And older results of everything, which are to be replaced.
    """
    save_tiny(folder)
    _dla("compile", "DIR/tiny.onnx", "-o", "DIR/given.dla")(folder)
    _dla("run", "DIR/tiny.onnx", "--json", "DIR/given.json")(folder)
    package = (folder / "given.dla").read_bytes()
    _dla("emit", "DIR/given.dla", "-o", "DIR/given.prog")(folder)
    (folder / "spec.toml").write_text(
        'networks = "given.dla"\ntiming.dram_latency = [10, 20, 30]\n'
    )
    (folder / "system.toml").write_text(
        '[[accelerator]]\nname = "npu"\n[run]\nuntil = "40us"\n[[task]]\nname = "a"\nmodel = '
        '"given.dla"\n'
        'period = "20us"\n'
    )
    older = {
        "tiny.dla": package, "kept.dla": package, "page.html": b"<html>",
        "pages/given.html": b"<html>",
        "pages/roofline.png": b"\x89PNG", "tiny.prog": b"DLAPROG", "run.json": b"{}",
        "run.pftrace": b"\xe2\x03",
    }  # fmt: skip
    for name, content in older.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content + b" older")
        (folder / f"{name}.part").write_text(FOREIGN)
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
    """Make a corpus of the first two cases, with files of other owners in it."""
    record_corpus(folder / "corpus", small_cases()[:2], _no_progress)
    if changed:
        rewritten(folder / "corpus", "L1/conv", "dram_read_bytes = ", "dram_read_bytes = 1")
    (folder / "outside").write_text(FOREIGN)
    for place in (
        "notes.txt",
        "cases/notes.txt",
        "cases/L1/conv-12345678.toml",
        "objects/L1-12345678.zip",
    ):
        (folder / "corpus" / place).write_text(FOREIGN)
    for place in ("corpus.json.part", "cases/link", "objects/link"):
        (folder / "corpus" / place).symlink_to(folder / "outside")


WRITERS = (
    Writer("record", _corpus,
           lambda folder: record_corpus(folder / "corpus", small_cases(), _no_progress), True),
    Writer(
        "first record", _model,
        lambda folder: record_corpus(folder / "corpus", small_cases()[:2], _no_progress), True
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
    Writer("run", _model, _dla("run", "DIR/given.dla", "--json", "DIR/run.json",
                               "--trace", "DIR/run.pftrace")),
    Writer("run and table", _model,
           _dla("run", "DIR/given.dla", "--csv", "DIR/table.csv", "--json", "DIR/run.json")),
    Writer("snapshot", _model, _dla("golden", "snapshot", "DIR/given.dla",
                                    "-o", "DIR/new.snapshot")),
    Writer("disassembly", _model, _dla("disasm", "DIR/given.prog", "-o", "DIR/tiny.s")),
    Writer("outputs", _model, _dla("simulate", "DIR/given.dla", "-o", "DIR/out.npz",
                                   "--log", "DIR/tiny.log")),
    Writer("documents", _model, _dla("isa", "--format", "c", "-o", "DIR/isa.h")),
    Writer(
        "system", _model,
        _dla("system", "DIR/system.toml", "--json", "DIR/run.json", "--trace", "DIR/run.pftrace"),
    ),
    Writer(
        "sweep of a system", _model,
        _dla("system", "DIR/system.toml", "--sweep", "run.policy=fcfs,edf",
             "--json", "DIR/run.json", "--csv", "DIR/table.csv"),
    ),
    Writer(
        "kept sweep of a system", _model,
        _dla("system", "DIR/system.toml", "--sweep", "run.policy=fcfs,edf,jit",
             "-o", "DIR/results.sqlite"),
        grows="results.sqlite",
    ),
    Writer("cache", _cache, _caching),
    Writer("split", _model, _dla("split", "DIR/given.dla", "DIR/pair.toml", "--by", "rows",
                                 "--json", "DIR/run.json")),
    Writer("explanation", _model, _dla("explain", "DIR/given.dla", "--json", "DIR/run.json")),
    Writer("partition", _model, _dla("partition", "DIR/given.dla", "--json", "DIR/run.json")),
    Writer("comparison", _model,
           _dla("golden", "diff", "DIR/given.json", "DIR/given.json", "--html", "DIR/page.html")),
    Writer("assembly", _model, _dla("asm", "DIR/given.s", "-o", "DIR/tiny.prog")),
    Writer("export", _exported, _dla("golden", "export", "L1/add", "-o", "DIR/exported"),
           whole="exported"),
    Writer("first export", _model, _dla("golden", "export", "L1/relu", "-o", "DIR/exported"),
           whole="exported"),
    Writer("case for hardware", _model, _dla("rtl", "case", "L1/add", "-o", "DIR/tiny.case")),
    Writer("pictures", _model, _dla("report", "DIR/given.json", "--png", "DIR/pages")),
    Writer(
        "sweep", _model,
        _dla("sweep", "DIR/spec.toml", "--workers", "1", "-o", "DIR/results.sqlite"),
        grows="results.sqlite",
    ),
    Writer(
        "exported sweep", _model,
        _dla("sweep", "DIR/spec.toml", "--workers", "1", "-o", "DIR/results.sqlite",
             "--export", "DIR/results.csv"),
        grows="results",
    ),
    Writer(
        "explore", _model,
        _dla("explore", "DIR/spec.toml", "--trials", "3", "--workers", "1",
             "-o", "DIR/results.sqlite", "--json", "DIR/run.json"),
        grows="results.sqlite",
    ),
    Writer(
        "tune", _model,
        _dla("tune", "DIR/given.dla", "--measurements", "4", "--no-model",
             "--log", "DIR/log.jsonl"),
        grows="log.jsonl",
    ),
)  # fmt: skip
ON_DASK = Writer(
    "sweep on Dask", _model,
    _dla("sweep", "DIR/spec.toml", "--scheduler", "CLUSTER", "-o", "DIR/results.sqlite"),
    grows="results.sqlite",
)  # fmt: skip
BUSY = frozenset(("sweep", "exported sweep", "explore"))
"""Those that make processes, which takes seconds: every fifth time."""
