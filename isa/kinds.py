"""What a file is, by how it begins and how it is called, so that a result replaces only what is of its kind."""

from __future__ import annotations

import re

HEAD = 4096
"""Bytes that are looked at."""
JSON, PAGE, DRAWING, PICTURE, TEXT, DATA = "JSON", "a page", "a drawing", "a PNG picture", "text", "binary data"
ARRAY, ARRAYS, DATABASE, PARQUET = "an array (.npy)", "arrays (.npz)", "a database", "a Parquet table"
PACKAGE, PROGRAM, SNAPSHOT, TFLITE = "a package", "a program", "a snapshot", "a TensorFlow Lite model"

_BEGINNINGS = {
    b"\x89PNG": PICTURE,
    b"\x93NUMPY": ARRAY,
    b"DLAPROG": PROGRAM,
    b"DLACASE": "a case",
    b"SQLite format 3": DATABASE,
    b"PAR1": PARQUET,
}
_ARCHIVES = {b"manifest.json": PACKAGE, b"snapshot.json": SNAPSHOT}
"""By their first member."""
_ENDINGS = {
    ".json": (JSON, JSON), ".jsonl": ("a log", JSON), ".ipynb": ("a notebook", JSON), ".csv": ("a table", TEXT),
    ".html": (PAGE, PAGE), ".svg": (DRAWING, DRAWING), ".png": (PICTURE, PICTURE), ".toml": ("TOML", TEXT),
    ".md": ("Markdown", TEXT), ".py": ("Python", TEXT), ".s": ("assembly", TEXT), ".onnx": ("an ONNX model", DATA),
    ".tflite": (TFLITE, TFLITE), ".dla": (PACKAGE, PACKAGE), ".prog": (PROGRAM, PROGRAM), ".npy": (ARRAY, ARRAY),
    ".npz": (ARRAYS, ARRAYS), ".snapshot": (SNAPSHOT, SNAPSHOT), ".sqlite": (DATABASE, DATABASE),
    ".parquet": (PARQUET, PARQUET),
}  # fmt: skip
"""What a file that is called so is, and how it begins."""
_TABLE_OF_TOML = re.compile(r"\[\[?\s*[A-Za-z_][\w.\- ]*\]")


def kind_of(head: bytes) -> str:
    """What begins with these bytes, in words: as many as :data:`HEAD`, or all that there are; empty for none."""
    if not head:
        return ""
    if head.startswith(b"PK\x03\x04"):
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return ARRAYS if name.endswith(b".npy") else _ARCHIVES.get(name, "a zip archive")
    if head[4:8] == b"TFL3":
        return TFLITE
    return next((kind for beginning, kind in _BEGINNINGS.items() if head.startswith(beginning)), "") or _text(head)


def _text(head: bytes) -> str:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(head) < HEAD or error.start < HEAD - 4:  # else a character goes on behind the end
            return DATA
        text = head[: error.start].decode()
    if re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text):
        return DATA
    first = text.lstrip()
    if first.startswith("{") or (first.startswith("[") and not _TABLE_OF_TOML.match(first)):
        return JSON
    return (PAGE if "<html" in text.lower() else DRAWING) if first.startswith("<") else TEXT


def named_as(ending: str) -> tuple[str, str] | None:
    """What a file with this ending, such as ``.json``, is in words, and how it begins; None where it does not say."""
    return _ENDINGS.get(ending.lower())
