"""Exports: contents of the files, whole writes, and cases that cannot be exported."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.cli.main import main
from experiments.golden.case import StoredCase
from experiments.golden.store import open_corpus
from experiments.rtl.export import Export, build_export, case_source, export_files, write_export
from isa.errors import InputError
from isa.instruction import Unit
from tests.rtl.bench import ROOT

CORPUS = ROOT / "tests/golden"
CASES = (
    "L1/unfused",
    "L1/write-boxes",
    "L1/pipeline-narrow-ports",
    "L1/few-lanes-add",
    "L1/tokens-all-ways",
)


def case(name: str) -> StoredCase:
    return open_corpus(CORPUS).case(name)


def export(name: str) -> Export:
    return build_export(case_source(case(name)))


def loaded(memory: bytearray, text: bytes) -> bytearray:
    """Load a memory of bytes like $readmemh."""
    at = 0
    for word in text.decode().split():
        if word.startswith("@"):
            at = int(word[1:], 16)
        else:
            memory[at] = int(word, 16)
            at += 1
    return memory


@pytest.mark.parametrize("name", CASES)
def test_files_say_what_the_manifest_says(name: str) -> None:
    files = export_files(export(name))
    assert files == export_files(export(name))
    manifest: dict[str, Any] = json.loads(files["manifest.json"])
    memories = {}
    for memory in manifest["memories"]:
        content = loaded(bytearray(memory["words"]), files[memory["file"]])
        assert f"{zlib.crc32(content):08x}" == memory["crc32"]
        memories[memory["space"], memory["when"]] = content
    for operation in manifest["operations"]:
        for write in operation["writes"]:
            loaded(memories[write["space"], "before"], files[write["file"]])
    for space in ("sram", "dram"):
        assert memories[space, "before"] == memories[space, "after"]
    words = [int(line, 16) for line in files["commands.hex"].split()]
    assert len(words) == manifest["commands"]["words"]
    assert f"{zlib.crc32(np.array(words, '<u8').tobytes()):08x}" == manifest["commands"]["crc32"]
    at = manifest["commands"]["dram_address"]
    assert memories["dram", "after"][at : at + 8 * len(words)] == np.array(words, "<u8").tobytes()


@pytest.mark.parametrize("name", CASES)
def test_cycles_are_the_documented_sum(name: str) -> None:
    exported = export(name)
    timing = exported.source.timing
    for item in exported.operations:
        if item.command.unit is Unit.EX and item.command.instruction.mnemonic != "OP_SYNC":
            phases = timing.ex_fill + item.compute_cycles + item.waits + timing.ex_drain
            assert item.end - item.start == phases
        else:
            assert item.compute_cycles == 0


def test_a_stopped_case_ends_with_the_operation_that_stops_it() -> None:
    exported = export("L2/wide-add-overflow")
    assert exported.stopped == "OverflowError at word 8"
    assert [item.stops for item in exported.operations] == [False, False, True]
    assert export_files(exported)["operations.hex"].split()[-1].endswith(b"00000004")


def test_an_export_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "export"
    write_export(export("L1/add"), folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.name == "testbench.sv":
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        InputError,
        match=r"export: cannot be written \(No space left on device\); choose another place",
    ):
        write_export(export("L1/relu"), folder)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.undo()
    write_export(export("L1/relu"), folder)
    assert json.loads((folder / "manifest.json").read_text())["name"] == "L1/relu"
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(
        InputError,
        match=re.escape(f"{tmp_path}: holds notes.txt, which no export put there; choose"),
    ):
        write_export(export("L1/add"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("place", ["notes.txt", "writes/notes.txt", "more/000000_sram.hex"])
def test_what_somebody_put_beside_an_export_is_left_alone(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    write_export(export("L1/add"), folder)
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_text("mine")
    for other in ("export.part", "export.old"):
        (tmp_path / other).mkdir()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"which no export put there; choose another folder"):
        write_export(export("L1/relu"), folder)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / place).unlink()
    if place.startswith("more"):
        (folder / "more").rmdir()
    write_export(export("L1/relu"), folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "export",
        "export.old",
        "export.part",
    ]


def test_a_link_is_no_export(tmp_path: Path) -> None:
    write_export(export("L1/add"), tmp_path / "export")
    (tmp_path / "link").symlink_to("export")
    with pytest.raises(InputError, match=r"link: holds something else, which no export put there"):
        write_export(export("L1/relu"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()


def test_a_case_that_is_not_as_recorded() -> None:
    stored = case("L1/add")
    rows = list(stored.record.commands)
    rows[2] = replace(rows[2], end=rows[2].end + 1)
    source = case_source(replace(stored, record=replace(stored.record, commands=tuple(rows))))
    with pytest.raises(
        InputError,
        match=f"case L1/add is not as recorded from word {rows[2].word} on; 'dla golden che",
    ):
        build_export(source)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["golden", "export", "L1/add"]) == 0
    assert main(["golden", "export", "add", "--corpus", str(CORPUS), "-o", "recorded"]) == 0
    assert capsys.readouterr().out == (
        "runs/rtl/L1-add: L1/add, 4 operations, 513 cycles\nrecorded: L1/add, 4 operations, 513 "
        "cycles\n"
    )
    built_in = Path("runs/rtl/L1-add")
    recorded = Path("recorded")
    names = sorted(str(path.relative_to(recorded)) for path in recorded.rglob("*"))
    assert sorted(str(path.relative_to(built_in)) for path in built_in.rglob("*")) == names
    assert all(
        (built_in / name).read_bytes() == (recorded / name).read_bytes()
        for name in names
        if "." in name
    )


def test_a_program_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "own.asm"
    data = tmp_path / "input.npy"
    program.write_text(case("L1/relu").assembly)
    np.save(data, np.arange(-50, 50, dtype=np.int8))
    words = [
        "golden",
        "export",
        str(program),
        "--tensor",
        f"input={data}",
        "-o",
        str(tmp_path / "own"),
    ]
    assert main([*words, "--set", "ex_fill=20"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'own'}: own/own, 3 operations, 394 cycles\n"
    text = (tmp_path / "own/testbench.sv").read_text()
    assert "parameter EX_FILL = 20; " in text
    assert not re.search("@[A-Z_]+@", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["unheard-of"], "no built-in case is called 'unheard-of' and no file either; 'dla golden "
                         "list' shows those of "
                         "a corpus (--corpus)"),
        (["L3/add"], "no built-in case is called 'L3/add' and no file either; 'dla golden list' "
                     "shows those of a "
                     "corpus (--corpus)"),
        (["unheard-of", "--corpus", str(CORPUS)], "no case is called 'unheard-of'; 'dla golden "
                                                  "list' shows all of a "
                                                  "corpus"),
        (["add", "--corpus", "/nowhere"], "/nowhere: no golden corpus here; 'dla golden record "
                                          "/nowhere' makes one"),
        (["L2/refuse-end-twice"], "case L2/refuse-end-twice is a program that the machine refuses "
                                  "(InputError at 0); "
                                  "nothing runs, so there is nothing to export"),
        (["L1/add", "--set", "ex_fill=1"], "L1/add: a case has its inputs and its timing; --tensor "
                                           "and --set are for "
                                           "programs"),
    ],
)  # fmt: skip
def test_bad_input(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    assert main(["golden", "export", *words, "-o", str(target)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"error: {message}\n")
    assert not target.exists()
