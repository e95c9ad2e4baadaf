"""Where an export comes from: a case of a corpus, a case of the catalogue, or a program of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments.golden.catalogue.all import CATALOGUE, catalogue
from experiments.golden.export import Source, case_source
from experiments.golden.own import own_case
from experiments.golden.record import record_case
from experiments.golden.select import choose
from experiments.golden.store import open_corpus
from isa.errors import InputError


def corpus_source(folder: Path, name: str) -> Source:
    """The case ``name`` (its level may be left out) of the corpus in ``folder``, as it was recorded there.

    Raises InputError when there is no such case, or several, and for what cannot be read or run.
    """
    corpus = open_corpus(folder)
    names = choose(corpus.entries, (), (name,))
    if len(names) > 1:
        raise InputError(f"{' and '.join(names)} are both called '{name}'; write the level, too")
    return case_source(corpus.case(names[0]))


def catalogue_source(name: str) -> Source:
    """The built-in case ``name``, recorded now. Without its level the first that is called so, networks left out."""
    level, separator, _ = name.partition("/")
    levels = (level,) if separator else tuple(level for level in CATALOGUE if level != "networks")
    for case in catalogue(levels) if set(levels) <= set(CATALOGUE) else ():
        if name in (case.name, case.name.partition("/")[2]):
            return case_source(record_case(case))
    raise InputError(
        f"no built-in case is called '{name}' and no file either; 'dla golden list' shows those of a corpus (--corpus)"
    )


def program_source(file: Path, tensors: Iterable[str], settings: Iterable[str]) -> Source:
    """The program in ``file`` on ``tensors`` ("NAME=FILE.npy") with ``settings`` of the Timing ("key=value").

    Raises InputError for a file that is no program, and for one that the machine refuses.
    """
    return case_source(record_case(own_case(file, f"own/{file.stem}", tensors, settings)))
