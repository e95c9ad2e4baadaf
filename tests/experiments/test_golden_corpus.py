"""The committed corpus, and how corpora are recorded, read, blessed and kept whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.golden.case import LEVELS, GoldenCase, case_text, parse_case
from experiments.golden.catalogue import NETWORKS, catalogue
from experiments.golden.check import verify
from experiments.golden.record import record_case
from experiments.golden.store import open_corpus
from isa.variants import VARIANTS
from tests.experiments.command_line import dla
from tests.experiments.golden_corpora import contents, small_cases, small_corpus
from tests.golden_cases import SOURCES, level10, made
from tests.rotation import rotate

COMMITTED = Path(__file__).parents[1] / "golden"
LIMIT = 8 << 20


@pytest.mark.slow
def test_the_committed_corpus_is_as_recorded() -> None:
    corpus = open_corpus(COMMITTED)
    outcomes = verify(corpus, corpus.entries, lambda stage: None)
    assert [outcome.name for outcome in outcomes if not outcome.passed] == []


def test_the_committed_corpus_is_small_and_complete() -> None:
    corpus = open_corpus(COMMITTED)
    sizes = [path.stat().st_size for path in COMMITTED.rglob("*") if path.is_file()]
    assert sum(-(-size // 4096) * 4096 for size in sizes) < LIMIT
    assert (
        {name.partition("/")[0] for name in corpus.entries} == set(LEVELS) == {*SOURCES, NETWORKS}
    )
    assert corpus.history[-1].digest == corpus.digest
    needed = {"corpus.json", *corpus.packs, *(entry.file for entry in corpus.entries.values())}
    assert set(contents(COMMITTED)) == needed


def test_level_0_has_every_instruction_of_every_variant_in_both_numerics() -> None:
    names = open_corpus(COMMITTED).entries
    for isa, variant in VARIANTS.items():
        for numerics in ("onnxruntime", "fixed"):
            for item in variant.instructions:
                short = item.mnemonic.removeprefix("OP_").lower().replace("_", "-")
                shared = "sync" if short.startswith("dma") else short
                assert f"L0/{isa}-{numerics}-op-{shared}" in names


def test_what_is_refused_or_stops_is_meant_to() -> None:
    corpus = open_corpus(COMMITTED)
    records = {name: corpus.case(name).record for name in corpus.entries}
    over = {"add-over-its-table", "lut-over-operand", "lut-over-tables", "requant-over-its-operand"}
    over |= {f"permute-over-{place}" for place in ("before", "behind", "same")}
    meant = {name for name in records if "/refuse-" in name} | {f"L2/{name}" for name in over}
    assert {name for name in records if records[name].refused} == meant
    stops = {name.removesuffix("-fixed") for name in records if records[name].stopped}
    overflows = {"L2/matmul-overflow", "L2/wide-left-overflow", "L2/wide-add-overflow"}
    nothing = {"L2/resize-nowhere", "L2/softmax-of-nothing", "L2/layer-norm-without-epsilon"}
    assert stops == overflows | nothing | {"L2/conv-relu-over-limit"}


def test_the_catalogue_makes_what_is_committed() -> None:
    """The catalogue makes exactly the committed cases of level 0 and the random level."""
    corpus = open_corpus(COMMITTED)
    for case in catalogue(("L0", "L10")):
        stored = corpus.case(case.name)
        assert stored.words.tolist() == case.program.words.tolist(), case.name
        assert dict(stored.inputs) == dict(case.inputs), case.name


def test_the_built_in_cases_are_what_their_programs_make() -> None:
    """Nobody changes one without the other: ``python -m tests.golden_cases``."""
    levels = {level: list(made(level)) for level in SOURCES}
    for level, cases in levels.items():
        for built_in, case in zip(catalogue((level,)), cases, strict=True):
            assert _told(built_in) == _told(case), case.name


def _told(case: GoldenCase) -> list[object]:
    program = case.program
    segments = [(one.address, one.data.tobytes()) for one in program.segments]
    words = program.words.tolist(), None if case.words is None else case.words.tolist()
    places = program.dram_bytes, program.command_address, program.tensors, program.provenance
    return [
        case.name,
        case.description,
        case.inputs,
        case.timing,
        program.name,
        program.arch,
        segments,
        words,
        places,
    ]


def test_a_case_reads_back_as_it_was_written() -> None:
    for case in small_cases():
        stored = record_case(case)
        kept: dict[str, bytes] = {}

        def keep(content: bytes, kept: dict[str, bytes] = kept) -> str:
            kept[f"object:{len(kept)}"] = content
            return f"object:{len(kept) - 1}"

        found = parse_case(case_text(stored, keep), kept.__getitem__)
        assert found.record.commands == stored.record.commands
        assert found.record.cycles == stored.record.cycles
        assert dict(found.record.outputs) == dict(stored.record.outputs)
        assert (found.assembly, found.name, found.isa) == (stored.assembly, stored.name, stored.isa)
        assert found.words.tolist() == stored.words.tolist()


def test_equal_recordings_are_equal_files(tmp_path: Path) -> None:
    small_corpus(tmp_path / "a")
    small_corpus(tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_case_and_a_level_can_be_checked_on_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    assert "4 of 4 cases" in dla(capsys, "golden", "check", tmp_path).out
    assert "2 of 2 cases" in dla(capsys, "golden", "check", tmp_path, "--level", "L2").out
    assert "1 of 1 cases" in dla(capsys, "golden", "check", tmp_path, "--case", "conv").out
    outcome = dla(
        capsys,
        "golden",
        "check",
        tmp_path,
        "--case",
        "L1/conv",
        "--level",
        "L2",
        "--json",
        tmp_path / "j",
    )
    assert "3 of 3 cases" in outcome.out
    assert [item["passed"] for item in json.loads((tmp_path / "j").read_text())["cases"]] == [
        True
    ] * 3


def test_recording_again_replaces_the_corpus_and_keeps_its_history(tmp_path: Path) -> None:
    first = small_corpus(tmp_path)
    (tmp_path / "cases" / "L1" / "stray.toml").write_text("of somebody else")
    second = small_corpus(tmp_path)
    assert second.digest == first.digest
    assert [event.action for event in open_corpus(tmp_path).history] == ["record", "record"]
    assert (tmp_path / "cases" / "L1" / "stray.toml").read_text() == "of somebody else"


def test_only_what_is_missing_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    before = {entry.file for entry in open_corpus(tmp_path).entries.values()}
    added = [
        case.name for case in level10.cases() if case.name not in open_corpus(tmp_path).entries
    ]
    assert (
        f"{len(added)} cases added"
        in dla(capsys, "golden", "record", tmp_path, "--missing", "--level", "L10").out
    )
    corpus = open_corpus(tmp_path)
    assert before < {entry.file for entry in corpus.entries.values()}
    assert (corpus.history[-1].action, corpus.history[-1].changed) == ("add", tuple(added))
    kept = contents(tmp_path)
    assert (
        "0 cases added"
        in dla(capsys, "golden", "record", tmp_path, "--missing", "--level", "L10").out
    )
    assert contents(tmp_path) == kept


_RECORD = """
import sys
from pathlib import Path
from tests.golden_cases.level0 import cases
from experiments.golden.record import record_corpus
import experiments.golden.store as store
written = store.write_atomically
steps = []
def slowly(path, content, durable):
    written(path, content, durable=durable)
    steps.append(path.name.partition('-')[0])
    if sys.argv[2:] == [steps[-1], str(steps.count(steps[-1]))]:
        print(flush=True)
        sys.stdin.read()
store.write_atomically = slowly
chosen = [case for case in cases() if case.name.startswith('L0/v1-fixed')]
record_corpus(Path(sys.argv[1]), chosen, lambda stage: None)
"""


def _killed(folder: Path, stand_still_at: str) -> None:
    """Record into ``folder`` until so many files with such a name are written, and no further."""
    command = [sys.executable, "-c", _RECORD, str(folder), *stand_still_at.split()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("stand_still_at", rotate(["corpus.json 1", "v1 2", "L0 1"], 3))
def test_the_first_recording_that_is_killed_is_made_again(
    tmp_path: Path, stand_still_at: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _killed(tmp_path, stand_still_at)
    outcome = dla(capsys, "golden", "check", tmp_path)
    assert (outcome.status, "the corpus has no cases" in outcome.err) == (2, True)
    small_corpus(tmp_path)
    assert set(contents(tmp_path)) == {"corpus.json", *open_corpus(tmp_path).places}


@pytest.mark.parametrize(
    ("stand_still_at", "new"),
    rotate(
        [
            ("corpus.json 1", False),
            ("v1 1", False),
            ("v1 2", False),
            ("L0 1", False),
            ("corpus.json 2", True),
        ],
        3,
    ),
)
def test_a_recording_that_is_killed_leaves_a_whole_corpus(
    tmp_path: Path, stand_still_at: str, new: bool
) -> None:
    """A recording that is killed leaves a whole corpus.

    Killed before or among the case files it leaves the old one; killed after the objects, the new
    one.
    """
    old = small_corpus(tmp_path)
    _killed(tmp_path, stand_still_at)
    corpus = open_corpus(tmp_path)
    assert (corpus.digest == old.digest) != new
    assert all(outcome.passed for outcome in verify(corpus, corpus.entries, lambda stage: None))
    small_corpus(tmp_path)
    needed = {"corpus.json", *open_corpus(tmp_path).packs}
    needed |= {entry.file for entry in open_corpus(tmp_path).entries.values()}
    assert set(contents(tmp_path)) == needed
