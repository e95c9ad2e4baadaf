"""Glossary: the words of the project and of the output of ``dla run``, from ``glossary.toml``.

``dla help``, the tooltips of a run's page and ``docs/glossary.md`` show the same texts.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)[^)]*\)")


@dataclass(frozen=True)
class Term:
    """Entry of the glossary: words with one meaning, and the pages and classes that define it.

    ``meaning`` and ``defined`` are Markdown.
    """

    words: tuple[str, ...]
    meaning: str
    defined: str

    @property
    def text(self) -> str:
        """Meaning of a term without Markdown."""
        return self.meaning.replace("`", "")

    @property
    def places(self) -> str:
        """Files, classes and modules that define a term."""
        return _LINK.sub(r"docs/\1", self.defined).replace("`", "")


@cache
def glossary() -> tuple[Term, ...]:
    """Return all terms in alphabetical order of their first words."""
    text = (files("experiments") / "glossary.toml").read_text(encoding="utf-8")
    terms = (
        Term(tuple(one["words"]), one["meaning"], one["defined"])
        for one in tomllib.loads(text)["term"]
    )
    return tuple(sorted(terms, key=lambda term: ", ".join(term.words).casefold()))


def find_term(word: str) -> Term | None:
    """Return the entry of a word, a column heading or a row label; None if there is none.

    Capitals, colons and the mark ``~`` of estimates do not matter.
    """
    return _index_words().get(_key(word))


@cache
def _index_words() -> dict[str, Term]:
    return {_key(word): term for term in glossary() for word in term.words}


def _key(word: str) -> str:
    return " ".join(word.casefold().lstrip("~").replace(":", "").split())


def explain(word: str) -> str:
    """Return the text of a tooltip for a heading or label; empty if it has no entry."""
    found = find_term(word)
    return "" if found is None else found.text
