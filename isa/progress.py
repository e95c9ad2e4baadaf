"""Callbacks that report the progress of long work."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")
PARTS = 100
"""Maximum number of progress reports for the steps of one operation."""


class Progress(Protocol):
    """Callback that reports the progress of some work.

    It gets a description of the current work, and the steps done and in total (0: unknown).
    """

    def __call__(self, said: str, done: int = 0, total: int = 0) -> None: ...


def silent(said: object, done: int = 0, total: int = 0) -> None:
    """Ignore reports of progress."""


def report_each(items: Sequence[Item], said: str, progress: Progress) -> Iterator[Item]:
    """Yield ``items`` and report to ``progress`` how many are done."""
    total = len(items)
    every = max(total // PARTS, 1)
    for number, item in enumerate(items):
        if number % every == 0 and total > 1:
            progress(said, number, total)
        yield item
