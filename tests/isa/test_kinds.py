"""A result replaces only what is of its kind."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest

from isa.errors import InputError
from isa.files import check_writable, kind_of, protect_files, whole_file, write_atomically

CASES = Path(__file__).parents[1] / "cases"


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


def _npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.zeros(3))
    return stream.getvalue()


CONTENTS = {
    "JSON": b'{"a": 1}',
    "JSON, a list": b"[\n 1, 2\n]\n",
    "text": b"a,b\n1,2\n",
    "text, TOML": b"[pe]\nic = 4\n",
    "text, tables": b"[[task]]\nname = 'a'\n",
    "text, long": "é".encode() * 3000,
    "a page": b"<!DOCTYPE html>\n<html>",
    "a drawing": b"<?xml version='1.0'?><svg/>",
    "binary data": (CASES / "gemm.onnx").read_bytes(),
    "binary data, not UTF-8": b"\xff" * 40,
    "an array (.npy)": _npy(),
    "arrays (.npz)": _npz(),
    "a database": b"SQLite format 3\0....",
    "a program": b"DLAPROG\x01....",
    "a TensorFlow Lite model": b"\x1c\0\0\0TFL3....",
    "": b"",
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_what_a_file_is_shows_in_how_it_begins(kind: str) -> None:
    assert kind_of(CONTENTS[kind][:4096]) == kind.partition(",")[0]


@pytest.mark.parametrize("there", CONTENTS)
@pytest.mark.parametrize("new", CONTENTS)
def test_only_its_own_kind_is_replaced(there: str, new: str, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(CONTENTS[there])
    if not there or there.partition(",")[0] == (new.partition(",")[0] or "text"):
        write_atomically(place, CONTENTS[new])
        assert place.read_bytes() == CONTENTS[new]
    else:
        said = (
            f"file: is {re.escape(there.partition(',')[0])}, and the result .+; remove it first, "
            "or choose another"
        )
        with pytest.raises(InputError, match=said):
            write_atomically(place, CONTENTS[new])
        with pytest.raises(InputError, match=said), whole_file(place) as other:
            other.write_bytes(CONTENTS[new])
        assert place.read_bytes() == CONTENTS[there]
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize(
    ("name", "content", "ending", "reason"),
    [
        ("notes.md", "# a", ".csv", "is called as Markdown, and the result is a table"),
        ("machine.toml", "[pe]", ".csv", "is called as TOML, and the result is a table"),
        ("tuning.jsonl", "{}", ".json", "is called as a log, and the result is JSON"),
        ("book.ipynb", "{}", ".json", "is called as a notebook, and the result is JSON"),
        ("a.onnx", "\x08\x0a", ".json", "is binary data, and the result JSON"),
    ],
)
def test_names_say_what_a_file_is_before_the_work(
    name: str, content: str, ending: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=reason):
        check_writable(tmp_path / name, ending)
    assert (tmp_path / name).read_text() == content
    (tmp_path / name).unlink()
    if reason.startswith("is called"):
        with pytest.raises(InputError, match=rf"{reason}; name it .*{name.split('.')[0]}\{ending}"):
            check_writable(tmp_path / name, ending)
    (tmp_path / "results.txt").write_text("")
    check_writable(tmp_path / "results.txt", ending)


def test_an_input_is_an_input_under_every_name(tmp_path: Path) -> None:
    given = tmp_path / "given.json"
    given.write_text("{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("given.json")
    (tmp_path / "hard").hardlink_to(given)
    (tmp_path / "other.json").write_text("{}")
    with protect_files([given, tmp_path / "absent"]):
        for name in ("given.json", "link", "hard", "folder/../given.json"):
            for attempt in (lambda path: write_atomically(path, "{}"), check_writable):
                with pytest.raises(
                    InputError, match=f"{name}: the command reads it, and a result never replaces"
                ):
                    attempt(tmp_path / name)
        write_atomically(tmp_path / "other.json", '{"new": 1}')
    write_atomically(given, '{"new": 1}')
