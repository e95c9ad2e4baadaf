"""Few docstrings, comments and paragraphs of docs have marks of sentences that are hard to read.

A mark is a hint, not a verdict. The ceilings keep what was gained; a sentence that is rearranged to
escape a pattern is still hard to read.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from experiments.cli.main import application

ROOT = Path(__file__).parents[1]
PACKAGES = ("isa", "byoc", "dla_sim", "experiments")
OTHERS = ("benchmarks", "examples", "tests")
GENERATED = {"isa.md", "support.md"}
MARKS = (
    # a question in place of a noun or a verb
    r"^(?:What|Which|Whether|How|Where|Who|Whose|Of|As)\b",
    r"\b(?:of|from|with|by|for|on|in|to|and|or|as|than|not|is|are) (?:what|whatever|whoever|who)\b",
    r"\b(?:nobody|somebody|anybody|everybody|whoever|whatever|whom)\b",  # an actor without a name
    r"\b(?:beside|anew|dearest|dearer|at will|hands? on|holds? to|is held to|are held to|"
    r"as it is|as they are)\b",
    r"\b(?:lies?|stands?) (?:at|in|on|apart|there|dense|behind|beside|within|where|upright)\b",
    r"\b(?:is|are) (?:told|said|so)\b",
)
CEILINGS = {
    "docstrings": 0.02,
    "comments": 0.03,
    "docstrings of tests": 0.02,
    "comments of tests": 0.03,
    "docs": 0.03,
    "README": 0.0,
    "help": 0.0,
}
"""Share of marked texts that each kind may have."""


@cache
def _all_texts() -> tuple[tuple[str, str, str], ...]:
    """Return all texts; files are read once for all tests."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str, str]]:
    """Yield (kind, place, text) of docstrings, comments, help texts and paragraphs of docs.

    Only the first paragraph of a docstring counts.
    """
    for place, text in _help_texts(typer.main.get_command(application()), "dla"):
        yield "help", place, text
    yield from _python_texts(PACKAGES, "")
    yield from _python_texts(OTHERS, " of tests")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        prose = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
        for paragraph in () if path.name in GENERATED else re.split(r"\n\s*\n|\n(?=- )", prose):
            if len(paragraph) > 40 and not paragraph.startswith(("|", "#", "![")):
                yield (
                    "README" if path.name == "README.md" else "docs",
                    path.name,
                    paragraph.lstrip("- "),
                )


def _python_texts(folders: Iterable[str], suffix: str) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, place, text) of docstrings and comments; kinds end with ``suffix``."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node)
                if text:
                    place = f"{name}:{getattr(node, 'lineno', 1)}"
                    yield f"docstrings{suffix}", place, text.split("\n\n")[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not re.match(
                r"# (?:type|fmt|noqa)", token.string
            ):
                place = f"{name}:{token.start[0]}"
                yield f"comments{suffix}", place, token.string.lstrip("# ")


def _help_texts(command: Any, words: str) -> Iterator[tuple[str, str]]:
    """Yield (command line, text) of a command, its options and its arguments.

    All commands below it follow.
    """
    yield words, (command.help or "").split("\n\n")[0]
    for parameter in command.params:
        yield f"{words} {parameter.opts[0]}", getattr(parameter, "help", None) or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from _help_texts(below, f"{words} {name}")


def _is_marked(text: str) -> bool:
    plain = re.sub(r"`[^`]*`", "X", " ".join(text.split()))
    return any(re.search(mark, plain) for mark in MARKS)


def test_marks_find_sentences_without_an_actor() -> None:
    assert _is_marked("What enters lies dense behind the one before it.")
    assert _is_marked("The copy is for whoever wants it otherwise.")
    assert not _is_marked("Return the layouts of a region's tensors.")


VERBS = (
    "Build Change Check Choose Compare Copy Divide Draw End Estimate Evaluate Exit Explain Fail "
    "Find Give Install Leave"
    " Make Measure Minimise Name Print Quantise Rank Read Record Remove Repeat Replace Run Search "
    "Set Show Start State"
    " Stop Store Take Time Use Write"
)
"""First words of help texts. Add a verb if a new option needs it."""


def test_help_texts_of_options_start_with_a_verb() -> None:
    texts = {place: text for kind, place, text in _all_texts() if kind == "help" and " -" in place}
    assert len(texts) > 100
    starts = {
        place: re.sub(r"^(?:With --sweep: |Also )", "", text).split()[0]
        for place, text in texts.items()
    }
    assert {
        place: word for place, word in starts.items() if word.capitalize() not in VERBS.split()
    } == {}


@pytest.mark.parametrize("kind", CEILINGS)
def test_few_texts_have_marks(kind: str) -> None:
    texts = [(place, text) for found, place, text in _all_texts() if found == kind]
    marked = [(place, text) for place, text in texts if _is_marked(text)]
    assert texts
    assert len(marked) <= CEILINGS[kind] * len(texts), marked
