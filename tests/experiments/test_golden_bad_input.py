"""``dla golden``: bad input gives one clear line and exit status 2.

The corpus stays unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.golden.store import open_corpus
from tests.experiments.command_line import dla
from tests.experiments.golden_corpora import contents, rewritten, small_corpus, tampered


def _case_file(folder: Path, name: str) -> Path:
    return folder / open_corpus(folder).entries[name].file


def _other_format(folder: Path) -> None:
    index = folder / "corpus.json"
    index.write_text(index.read_text().replace("dla-golden/1", "dla-golden/7"))


def _missing_case(folder: Path) -> None:
    _case_file(folder, "L1/conv").unlink()


def _edited_case(folder: Path) -> None:
    file = _case_file(folder, "L1/conv")
    file.write_text(file.read_text().replace("EX_PAD_TOP, 1", "EX_PAD_TOP, 0"))


def _missing_pack(folder: Path) -> None:
    (folder / open_corpus(folder).packs[0]).unlink()


def _damaged_pack(folder: Path) -> None:
    file = folder / open_corpus(folder).packs[0]
    raw = bytearray(file.read_bytes())
    raw[60] ^= 0xFF
    file.write_bytes(bytes(raw))


def _damaged_index(folder: Path) -> None:
    (folder / "corpus.json").write_text('{"format": "dla-golden/1"}')


def _no_index(folder: Path) -> None:
    (folder / "corpus.json").unlink()


def _outside(folder: Path) -> None:
    index = folder / "corpus.json"
    index.write_text(
        index.read_text().replace('"file": "cases/L1/conv', '"file": "cases/../../conv')
    )


def _shortened(folder: Path) -> None:
    index = folder / "corpus.json"
    document = json.loads(index.read_text())
    del document["cases"]["L1/conv"]
    index.write_text(json.dumps(document))


def _shortened_with_its_digest(folder: Path) -> None:
    history = json.loads((folder / "corpus.json").read_text())["history"]
    tampered(folder, lambda document: document["cases"].pop("L1/conv"))
    document = json.loads((folder / "corpus.json").read_text())
    (folder / "corpus.json").write_text(json.dumps({**document, "history": history}))


def _emptied(folder: Path) -> None:
    tampered(folder, lambda document: document["cases"].clear())


def _another_sum(folder: Path) -> None:
    index = folder / "corpus.json"
    document = json.loads(index.read_text())
    document["cases"]["L1/conv"]["sha256"] = "g" * 64
    index.write_text(json.dumps(document))


def _escaping_name(folder: Path) -> None:
    rewritten(folder, "L1/conv", 'name = "L1/conv"', 'name = "../../escaped/x"', "../../escaped/x")


def _absolute_place(folder: Path) -> None:
    tampered(folder, lambda document: document["packs"].append("/objects/own-12345678.zip"))


def _pack_among_the_cases(folder: Path) -> None:
    def moved(document: dict[str, Any]) -> None:
        place = document["packs"][0]
        document["packs"][0] = place.replace("objects/", "cases/")
        (folder / place).rename(folder / document["packs"][0])

    tampered(folder, moved)


def _linked_objects(folder: Path) -> None:
    (folder / "objects").rename(folder.with_name("elsewhere"))
    (folder / "objects").symlink_to(folder.with_name("elsewhere"))


def _linked_case(folder: Path) -> None:
    file = _case_file(folder, "L1/conv")
    file.rename(folder.with_name("elsewhere"))
    file.symlink_to(folder.with_name("elsewhere"))


def _linked_index(folder: Path) -> None:
    (folder / "corpus.json").rename(folder.with_name("elsewhere"))
    (folder / "corpus.json").symlink_to(folder.with_name("elsewhere"))


def _deep_index(folder: Path) -> None:
    (folder / "corpus.json").write_text("[" * 100_000)


def _unknown_variant(folder: Path) -> None:
    rewritten(folder, "L1/conv", 'isa = "v2"', 'isa = "v9"')


def _unknown_timing(folder: Path) -> None:
    rewritten(folder, "L1/conv", "bus_bytes = 8", "bus_octets = 8")


def _malformed_case(folder: Path) -> None:
    rewritten(folder, "L1/conv", 'description = "', "description = ")


def _malformed_row(folder: Path) -> None:
    rewritten(folder, "L1/conv", "OP_DMA_WRITE pop.EX\n'''", "'''")


DAMAGE: dict[Callable[[Path], None], str] = {
    _other_format: "the corpus has format 'dla-golden/7', this version reads 'dla-golden/1'",
    _missing_case: "case L1/conv is missing (cases/L1/conv-",
    _edited_case: "case L1/conv was edited (cases/L1/conv-",
    _missing_pack: "is missing; restore it",
    _damaged_pack: "restore the corpus",
    _damaged_index: "the index of the corpus is damaged",
    _no_index: "no golden corpus here; 'dla golden record",
    _outside: "the index names no file of case L1/conv ('cases/../../conv",
    _shortened: "the index was changed: it holds 3 cases of digest",
    _shortened_with_its_digest: "the index was changed: it holds 3 cases of digest",
    _emptied: "the corpus has no cases; 'dla golden record",
    _another_sum: "the index names no file of case L1/conv",
    _escaping_name: "the index names a case '../../escaped/x', which is no name of a case",
    _absolute_place: "the index names a file outside the corpus ('/objects/own-12345678.zip')",
    _pack_among_the_cases: "the index names a file outside the corpus ('cases/L1-",
    _linked_objects: "objects: a link, and a golden corpus consists of files of its own",
    _linked_case: ".toml: a link, and a golden corpus consists of files of its own",
    _linked_index: "corpus.json: a link, and a golden corpus consists of files of its own",
    _deep_index: "nested more than 64 deep; restore it",
    _unknown_variant: "case L1/conv is for a machine that this version does not have: unknown ISA "
    "variant 'v9'",
    _unknown_timing: "case L1/conv is for a machine that this version does not have",
    _malformed_case: "case L1/conv: not the text of a golden case",
    _malformed_row: "case L1/conv: not the text of a golden case",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_corpus_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "corpus"
    small_corpus(folder)
    damage(folder)
    before = contents(tmp_path)
    for arguments in (
        ("check", folder),
        ("bless", folder, "--reason", "why not"),
        ("list", folder),
    ):
        outcome = dla(capsys, "golden", *arguments)
        if arguments[0] == "list" and outcome.status == 0:
            continue  # which reads the index alone
        assert outcome.status == 2, outcome
        assert outcome.err.startswith("error: ")
        assert DAMAGE[damage] in outcome.err
        assert outcome.err.count("\n") == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "DIR", "--level", "L3"), "unknown level 'L3'; choose one of L1, L2"),
        (
            ("record", "DIR", "--level", "L3"),
            "unknown level 'L3'; choose one of L0, L1, L2, L10, networks",
        ),
        (("check", "DIR", "--case", "nobody"), "no case is called 'nobody'"),
        (("check", "DIR/nowhere"), "no golden corpus here"),
        (("bless", "DIR", "--reason", "  "), "--reason is empty"),
        (("add", "DIR", "nowhere.prog", "--name", "own/x"), "nowhere.prog: no such file"),
        (("diff", "default", "isa=v1"), "'default' is a machine; give its model with --model"),
        (
            ("diff", "nothing", "default", "--model", "digits-cnn"),
            "'nothing' is no file and no machine",
        ),
        (
            ("diff", "schedule=best", "default", "--model", "digits-cnn"),
            "schedule is 'best'; it is seed or default",
        ),
        (("diff", "emulate-depthwise=1", "default", "--model", "digits-cnn"), "it is yes or no"),
        (("diff", "colour=3", "default", "--model", "digits-cnn"), "unknown setting 'colour'"),
        (("diff", "isa=v9", "default", "--model", "digits-cnn"), "unknown ISA variant 'v9'"),
        (("diff", "DIR/corpus.json", "DIR"), "not a run report"),
        (("snapshot", "nobody"), "unknown model 'nobody'"),
    ],
)
def test_bad_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    small_corpus(tmp_path)
    before = contents(tmp_path)
    outcome = dla(
        capsys, "golden", *(argument.replace("DIR", str(tmp_path)) for argument in arguments)
    )
    assert outcome.status == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert contents(tmp_path) == before


def test_a_folder_that_holds_something_else_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("my only copy")
    outcome = dla(capsys, "golden", "record", tmp_path, "--level", "L0")
    assert outcome.status == 2
    assert "holds thesis.tex and no golden corpus; choose an empty folder" in outcome.err
    assert contents(tmp_path) == {"thesis.tex": b"my only copy"}


@pytest.fixture
def one_more(tmp_path: Path) -> tuple[str, ...]:
    """Arguments that add a case of one's own, which a corpus elsewhere has."""
    case = small_corpus(tmp_path / "from").case("L2/add")
    (tmp_path / "own.dlasm").write_text(case.assembly)
    words = [str(tmp_path / "own.dlasm"), "--name", "own/add"]
    for name, content in case.inputs.items():
        np.save(tmp_path / f"{name}.npy", np.frombuffer(content, np.int8))
        words += ["--tensor", f"{name}={tmp_path / f'{name}.npy'}"]
    return tuple(words)


def test_files_of_ones_own_are_no_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_more: tuple[str, ...]
) -> None:
    """Whatever their folders are called: without an index nothing is a corpus's."""
    own = tmp_path / "own"
    for place in ("cases/thesis.tex", "objects/photo.jpg"):
        (own / place).parent.mkdir(parents=True)
        (own / place).write_text("my only copy")
    before = contents(own)
    for words in (("add", str(own), *one_more), ("record", str(own), "--level", "L0")):
        outcome = dla(capsys, "golden", *words)
        assert outcome.status == 2
        assert (
            outcome.err
            == f"error: {own}: holds cases and no golden corpus; choose an empty folder\n"
        )
    assert contents(own) == before


def test_files_of_ones_own_in_a_corpus_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_more: tuple[str, ...]
) -> None:
    folder = tmp_path / "corpus"
    small_corpus(folder)
    own = {
        "cases/notes.txt": b"kept",
        "cases/L1/conv-12345678.toml": b"not listed, whatever its name",
        "objects/L1-12345678.zip": b"nor this",
        "objects/mine/notes.txt": b"kept, too",
    }
    for place, content in own.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    rewritten(folder, "L2/add", "dram_read_bytes = 18", "dram_read_bytes = 19")
    old = {open_corpus(folder).entries["L2/add"].file}
    assert dla(capsys, "golden", "bless", folder, "--reason", "counted anew").status == 0
    assert dla(capsys, "golden", "add", folder, *one_more).status == 0
    after = contents(folder)
    assert own.items() <= after.items()
    assert set(after) == {"corpus.json", *own, *open_corpus(folder).places}
    assert not old & set(after)


@pytest.mark.parametrize("linked", ["objects", "cases", "cases/own"])
def test_nothing_is_written_through_a_link(
    linked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_more: tuple[str, ...]
) -> None:
    folder = tmp_path / "corpus"
    target = tmp_path / "target"
    small_corpus(folder)
    if (folder / linked).exists():
        os.rename(folder / linked, target)
    else:
        target.mkdir()
    (target / "photo.jpg").write_text("my only copy")
    (folder / linked).symlink_to(target)
    before = contents(tmp_path)
    outcome = dla(capsys, "golden", "add", folder, *one_more)
    assert outcome.status == 2
    assert outcome.err.endswith(
        f"{linked}: a link, and a golden corpus consists of files of its own; remove it\n"
    )
    assert contents(tmp_path) == before


def test_what_stands_in_the_way_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_more: tuple[str, ...]
) -> None:
    """A file at the place of a new case that the index does not name."""
    folder = tmp_path / "corpus"
    small_corpus(folder)
    assert dla(capsys, "golden", "add", tmp_path / "other", *one_more).status == 0
    place = open_corpus(tmp_path / "other").entries["own/add"].file
    (folder / place).parent.mkdir()
    (folder / place).write_text("my only copy")
    before = contents(folder)
    outcome = dla(capsys, "golden", "add", folder, *one_more)
    assert outcome.status == 2
    assert outcome.err.endswith(f"{place}: in the way, and not the corpus's; move it elsewhere\n")
    assert contents(folder) == before


def test_a_corpus_of_another_format_is_not_recorded_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_corpus(tmp_path)
    _other_format(tmp_path)
    before = contents(tmp_path)
    outcome = dla(capsys, "golden", "record", tmp_path, "--level", "L0")
    assert outcome.status == 2
    assert "has format 'dla-golden/7'" in outcome.err
    assert contents(tmp_path) == before


def test_own_programs_become_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = small_corpus(tmp_path / "from")
    text = tmp_path / "own.dlasm"
    case = corpus.case("L2/add")
    text.write_text(case.assembly)
    files = []
    for name, content in case.inputs.items():
        np.save(tmp_path / f"{name}.npy", np.frombuffer(content, np.int8))
        files += ["--tensor", f"{name}={tmp_path / f'{name}.npy'}"]
    target = tmp_path / "to"
    added = dla(
        capsys, "golden", "add", target, text, "--name", "own/add", *files, "--set", "bus_bytes=16"
    )
    assert added.status == 0, added.err
    stored = open_corpus(target).case("own/add")
    assert stored.record.outputs == case.record.outputs
    assert stored.timing["bus_bytes"] == 16
    again = dla(capsys, "golden", "add", target, text, "--name", "own/add", *files)
    wrong = dla(capsys, "golden", "add", target, text, "--name", "../add", *files)
    machine = dla(
        capsys, "golden", "add", target, text, "--name", "own/b", *files, "--set", "pe.ic=4"
    )
    assert "case own/add exists; accept other results with bless" in again.err
    assert "case name '../add' must be LEVEL/name" in wrong.err
    assert "only settings of the timing" in machine.err
    assert dla(capsys, "golden", "check", target, "--level", "own").status == 0
