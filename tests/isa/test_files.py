"""Files that appear whole or not at all, wherever they are asked for."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from isa import files
from isa.errors import InputError
from isa.files import (
    check_distinct,
    check_writable,
    folder_beside,
    is_stream,
    replace_folder,
    whole_file,
    write_atomically,
)


@pytest.mark.parametrize("place", ["/", "", ".", "folder"])
def test_a_folder_is_no_place_for_a_file(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for attempt in (lambda path: write_atomically(path, "x"), check_writable):
        with pytest.raises(InputError) as refusal:
            attempt(Path(place))
        assert (
            str(refusal.value)
            == f"{Path(place)}: cannot be written (Is a directory); choose another place"
        )
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "text", "é")
    assert (tmp_path / "a" / "b" / "text").read_bytes() == "é".encode()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["text"]


def test_what_another_program_writes_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a" / "waves") as place:
        place.write_text("half")
        assert not (tmp_path / "a" / "waves").exists()
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "a" / "waves") as place:
        (place.write_text("less"), Path("absent").read_text())
    assert [path.read_text() for path in (tmp_path / "a").iterdir()] == ["half"]


def test_below_a_file_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for attempt in (lambda path: write_atomically(path, "x"), check_writable):
        with pytest.raises(
            InputError, match=r"inside: cannot be written \(.+\); choose another place$"
        ):
            attempt(tmp_path / "file" / "inside")
    assert (tmp_path / "file").read_text() == "kept"


def test_asking_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    check_writable(tmp_path / "a" / "b" / "c")
    check_writable(tmp_path / "c" / "a")
    assert [path.name for path in tmp_path.rglob("*")] == ["c"]
    with pytest.raises(InputError, match=r"cannot be written \(Is a directory\)"):
        check_writable(tmp_path / "c")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_link_that_leads_to_itself_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    check_distinct(json=tmp_path / "loop")
    for attempt in (lambda path: write_atomically(path, "x"), check_writable):
        with pytest.raises(
            InputError, match=r"loop: cannot be written \(Too many levels of symbolic links\)"
        ):
            attempt(tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, "through")
    reader.join()
    assert found == [b"through"]
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("place", "stream"),
    [("/dev/null", True), ("/dev/stdout", True), ("/proc/self/fd/1", True), ("/", False)],
)
def test_devices_are_streams(place: str, stream: bool) -> None:
    """Asked, not tried: a mistake would replace a device of the machine that runs the tests."""
    assert is_stream(Path(place)) is stream


def test_files_are_no_streams(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not is_stream(tmp_path / "file")
    assert not is_stream(tmp_path / "missing")


def test_two_options_get_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_distinct(json=Path("a"), trace=Path("b"), log=None, output=None)
    check_distinct(json=Path("/dev/stdout"), log=Path("/dev/stdout"))
    with pytest.raises(InputError) as refusal:
        check_distinct(json=Path("a"), trace=Path("x/../a"))
    assert str(refusal.value) == "--json and --trace both write x/../a; give each a file of its own"


def test_nobody_elses_file_is_touched(tmp_path: Path) -> None:
    """An incomplete file has a name of its own, so no other file is overwritten.

    Files with guessable names stay.
    """
    other = tmp_path / "result.json.part"
    other.write_text("of somebody else")
    write_atomically(tmp_path / "result.json", "{}")
    check_writable(tmp_path / "result.json")
    assert other.read_text() == "of somebody else"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "result.json.part"]


def test_a_link_at_a_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_text("kept")
    monkeypatch.setattr("secrets.token_hex", lambda count: "guessed")
    (tmp_path / ".guessed.part").symlink_to("victim")
    for attempt in (lambda path: write_atomically(path, "x"), check_writable):
        with pytest.raises(InputError, match=r"cannot be written \(File exists\)"):
            attempt(tmp_path / "file")
    assert (tmp_path / "victim").read_text() == "kept"
    assert (tmp_path / ".guessed.part").is_symlink()


@pytest.mark.parametrize(("existing", "durable"), [(False, False), (True, False), (False, True)])
def test_a_file_is_on_the_disk_before_it_replaces_another(
    existing: bool, durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    if existing:
        target.write_text("old")
    found: list[str | None] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: found.append(target.read_text() if target.exists() else None),
    )
    write_atomically(target, "new", durable=durable)
    before = "old" if existing else None
    # first the file, then the name in its folder
    assert found == ([before, "new"] if existing or durable else [])


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o600)
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_an_interrupt_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_an_interrupt_as_a_file_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.open

    def interrupted(*given: Any, **named: Any) -> int:
        os.close(really(*given, **named))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "page.html", "<html>")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_as_a_file_is_taken_away_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Path.unlink
    heard = []

    def interrupted(path: Path, missing_ok: bool = False) -> None:
        if not heard:
            heard.append(path)
            raise KeyboardInterrupt
        really(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            check_writable(tmp_path / "page.html")
    assert heard
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_as_a_folder_is_taken_away_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = os.unlink

    def interrupted(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(os, "unlink", remove)
        raise KeyboardInterrupt

    def make() -> None:
        with folder_beside(tmp_path / "made") as passing:
            (passing / "one").write_text("one")
            monkeypatch.setattr(os, "unlink", interrupted)

    with pytest.raises(KeyboardInterrupt):
        make()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_has_another_in_its_place_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:
        monkeypatch.setattr(files, "_try_exchange", lambda one, other: False)
    place = tmp_path / "a" / "made"
    for content in ("one", "two"):
        with folder_beside(place) as passing:
            (passing / "new").mkdir()
            (passing / "new" / content).write_text(content)
            replace_folder(passing / "new", place)
        assert [path.name for path in place.iterdir()] == [content]
        assert list(place.parent.iterdir()) == [place]
