"""The operators' base asks few questions, and each of them has several answers."""

from __future__ import annotations

from collections.abc import Iterator

from byoc.operators.forms import Reading
from byoc.operators.operator import Operator
from byoc.operators.registry import get_built_in_families

MOST_ALONE = 2
"""Questions of the operators' base that one family alone answers."""
MOST_ASKED = 18
"""Questions that the operators' base asks in all; what is declared as data does not count."""


def test_what_one_family_answers_is_its_own() -> None:
    assert get_built_in_families().families
    classes = list(_subclasses(Operator))
    bases = (Operator, Reading)
    questions = [question for base in bases for question in vars(base).items()]
    hooks = {name for name, item in questions if not name.startswith("_") and _is_hook(item)}
    hooks |= {
        name
        for base in bases
        for name, kind in base.__annotations__.items()
        if str(kind).startswith("ClassVar")
    }
    answers = {name: {item.__name__ for item in classes if name in vars(item)} for name in hooks}
    alone = {name: found for name, found in answers.items() if len(found) == 1}
    assert len(alone) <= MOST_ALONE, alone
    asked = {name for name, item in questions if name in hooks and answers[name] and _is_hook(item)}
    assert len(asked) <= MOST_ASKED, asked


def _is_hook(item: object) -> bool:
    return callable(item) or isinstance(item, classmethod | property)


def _subclasses(family: type[Operator]) -> Iterator[type[Operator]]:
    """The project's classes below ``family``."""
    for each in family.__subclasses__():
        if each.__module__.startswith("byoc."):
            yield each
        yield from _subclasses(each)
