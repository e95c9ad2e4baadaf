"""How far something is, for whoever wants to know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")
PARTS = 100
"""Of the steps of something, so many are told at most."""


class Progress(Protocol):
    """Is called with what is going on, and with how many of how many steps of it are done; of 0: nobody knows."""

    def __call__(self, said: str, done: int = 0, total: int = 0) -> None: ...


def silent(said: object, done: int = 0, total: int = 0) -> None:
    """Hears, and says nothing."""


def followed(items: Sequence[Item], said: str, progress: Progress) -> Iterator[Item]:
    """``items`` one after another, while ``progress`` hears how many are done."""
    total = len(items)
    every = max(total // PARTS, 1)
    for number, item in enumerate(items):
        if number % every == 0 and total > 1:
            progress(said, number, total)
        yield item
