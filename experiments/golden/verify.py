"""The check of a corpus, or of a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments.golden.check import check_case, require_variant
from experiments.golden.difference import Outcome
from experiments.golden.store import Corpus


def verify(
    corpus: Corpus, names: Iterable[str], progress: Callable[[str], None], *, fail_fast: bool = False
) -> list[Outcome]:
    """The outcome of each of the cases ``names``; all are read, and their machines known, before the first runs.

    Raises InputError for a case that is missing, edited or damaged, or needs a variant that this machine lacks.
    """
    cases = [corpus.case(name) for name in names]
    for case in cases:
        require_variant(case)
    outcomes = []
    for case in cases:
        progress(f"checking {case.name}")
        outcomes.append(check_case(case))
        if fail_fast and not outcomes[-1].passed:
            break
    return outcomes
