"""``dla golden``: every kind of bad input is one clear line and exit status 2, and the corpus stays as it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.golden.store import open_corpus
from tests.experiments.command_line import dla
from tests.experiments.golden_corpora import contents, small_corpus


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
    index.write_text(index.read_text().replace('"file": "cases/L1/conv', '"file": "cases/../../conv'))


def _replaced(folder: Path, old: str, new: str) -> None:
    """Change a case and its sum in the index, as a later version might have written them."""
    file = _case_file(folder, "L1/conv")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    index = folder / "corpus.json"
    document = json.loads(index.read_text())
    document["cases"]["L1/conv"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    index.write_text(json.dumps(document))


def _unknown_variant(folder: Path) -> None:
    _replaced(folder, 'isa = "v2"', 'isa = "v9"')


def _unknown_timing(folder: Path) -> None:
    _replaced(folder, "bus_bytes = 8", "bus_octets = 8")


def _malformed_case(folder: Path) -> None:
    _replaced(folder, 'description = "', "description = ")


def _malformed_row(folder: Path) -> None:
    _replaced(folder, "OP_DMA_WRITE pop.EX\n'''", "'''")


DAMAGE: dict[Callable[[Path], None], str] = {
    _other_format: "the corpus has format 'dla-golden/7', this version reads 'dla-golden/1'",
    _missing_case: "case L1/conv is missing (cases/L1/conv-",
    _edited_case: "case L1/conv was edited (cases/L1/conv-",
    _missing_pack: "is missing; restore it",
    _damaged_pack: "restore the corpus",
    _damaged_index: "the index of the corpus is damaged",
    _no_index: "no golden corpus here; 'dla golden record",
    _outside: "the index names a file outside the corpus",
    _unknown_variant: "case L1/conv is for a machine that this version does not have: unknown ISA variant 'v9'",
    _unknown_timing: "case L1/conv is for a machine that this version does not have",
    _malformed_case: "case L1/conv: not the text of a golden case",
    _malformed_row: "case L1/conv: not the text of a golden case",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_corpus_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    small_corpus(tmp_path)
    damage(tmp_path)
    before = contents(tmp_path)
    for arguments in (("check", tmp_path), ("bless", tmp_path, "--reason", "why not")):
        outcome = dla(capsys, "golden", *arguments)
        assert outcome.status == 2, outcome
        assert outcome.err.startswith("error: ")
        assert DAMAGE[damage] in outcome.err
        assert outcome.err.count("\n") == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "DIR", "--level", "L3"), "unknown level 'L3'; choose one of L1, L2"),
        (("record", "DIR", "--level", "L3"), "unknown level 'L3'; choose one of L0, L1, L2, L10, networks"),
        (("check", "DIR", "--case", "nobody"), "no case is called 'nobody'"),
        (("check", "DIR/nowhere"), "no golden corpus here"),
        (("bless", "DIR", "--reason", "  "), "--reason is empty"),
        (("add", "DIR", "nowhere.prog", "--name", "own/x"), "nowhere.prog: no such file"),
        (("diff", "default", "isa=v1"), "'default' is a machine; say with --model"),
        (("diff", "nothing", "default", "--model", "digits-cnn"), "'nothing' is no file, no corpus and no machine"),
        (("diff", "schedule=best", "default", "--model", "digits-cnn"), "schedule is 'best'; it is seed or default"),
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
    outcome = dla(capsys, "golden", *(argument.replace("DIR", str(tmp_path)) for argument in arguments))
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


def test_a_corpus_of_another_format_is_not_recorded_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    added = dla(capsys, "golden", "add", target, text, "--name", "own/add", *files, "--set", "bus_bytes=16")
    assert added.status == 0, added.err
    stored = open_corpus(target).case("own/add")
    assert stored.record.outputs == case.record.outputs
    assert stored.timing["bus_bytes"] == 16
    again = dla(capsys, "golden", "add", target, text, "--name", "own/add", *files)
    wrong = dla(capsys, "golden", "add", target, text, "--name", "../add", *files)
    machine = dla(capsys, "golden", "add", target, text, "--name", "own/b", *files, "--set", "pe.ic=4")
    assert "case own/add exists; accept other results with bless" in again.err
    assert "case name '../add' must be LEVEL/name" in wrong.err
    assert "only settings of the timing" in machine.err
    assert dla(capsys, "golden", "check", target, "--level", "own").status == 0
