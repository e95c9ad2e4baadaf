"""The glossary's words: each once, in order, with names that exist in the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from tests.docs.glossary import written

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
ROW = re.compile(r"^\| (?P<word>[^|]+) \| (?P<meaning>[^|]+) \| (?P<where>[^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`((?:isa|byoc|dla_sim|experiments)\.[\w.]+)`")


def _rows() -> list[tuple[str, str]]:
    rows = [
        (found["word"], found["where"]) for found in ROW.finditer(PAGE.read_text(encoding="utf-8"))
    ]
    return [row for row in rows if row[0] not in {"word", "---"}]


def _is_there(name: str) -> bool:
    try:
        import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return hasattr(import_module(module), attribute)
    return True


def test_the_page_has_the_words_of_the_glossary() -> None:
    """Else run ``python -m tests.docs.glossary``."""
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page


def test_words_are_in_order_and_each_once() -> None:
    words = [word for word, _ in _rows()]
    assert len(words) > 30
    assert words == sorted(set(words), key=str.casefold)


def test_what_a_word_names_in_the_code_is_there() -> None:
    named = [name for _, where in _rows() for name in NAME.findall(where)]
    assert len(named) > 20
    assert [name for name in named if not _is_there(name)] == []
