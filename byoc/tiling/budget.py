"""Budgets: bytes to be spent, and for which of them an answer is the same.

An answer that asks of a budget only whether it holds so many bytes is the answer for all budgets between those that it
held and those that it did not. What is searched again and again, for budgets that differ, is so searched once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


class Budget:
    """So many bytes. Every answer so far is the same for ``least`` bytes and more, but for fewer than ``most``."""

    __slots__ = ("_nbytes", "least", "most")

    def __init__(self, nbytes: int) -> None:
        self._nbytes, self.least, self.most = nbytes, -math.inf, math.inf

    def holds(self, nbytes: int) -> bool:
        """Whether so many bytes fit."""
        if nbytes <= self._nbytes:
            if nbytes > self.least:
                self.least = nbytes
            return True
        if nbytes < self.most:
            self.most = nbytes
        return False

    def left(self, taken: int) -> int:
        """The bytes beside so many others: who uses them says by :meth:`narrow` for which all would be alike."""
        return self._nbytes - taken

    def all(self) -> int:
        """All of the bytes: the answer is for exactly so many."""
        self.narrow(self._nbytes, self._nbytes + 1)
        return self._nbytes

    def narrow(self, least: float, most: float) -> None:
        """An answer was for ``least`` bytes and more, but for fewer than ``most``."""
        self.least, self.most = max(self.least, least), min(self.most, most)


class Room:
    """What others leave of a budget."""

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: Budget, taken: int) -> None:
        self._budget, self._taken = budget, taken

    def holds(self, nbytes: int) -> bool:
        """Whether so many bytes fit."""
        return self._budget.holds(nbytes + self._taken)


class Answers(Generic[Question, Answer]):
    """Answers to questions, each with the budgets for which it is the answer."""

    def __init__(self) -> None:
        self._known: dict[Question, list[tuple[float, float, Answer]]] = {}

    def find(self, question: Question, budget: int, ask: Callable[[Budget], Answer]) -> Answer:
        """What ``ask`` says of a budget; it is asked where no answer to this question is known for so many bytes."""
        return self._find(question, budget, ask)[2]

    def within(self, question: Question, budget: Budget, taken: int, ask: Callable[[Budget], Answer]) -> Answer:
        """The same of what a larger budget leaves beside ``taken`` bytes, as part of an answer about that."""
        least, most, answer = self._find(question, budget.left(taken), ask)
        budget.narrow(least + taken, most + taken)
        return answer

    def _find(self, question: Question, budget: int, ask: Callable[[Budget], Answer]) -> tuple[float, float, Answer]:
        known = self._known.setdefault(question, [])
        for found in known:
            if found[0] <= budget < found[1]:
                return found
        asked = Budget(budget)
        answer = ask(asked)
        known.append((asked.least, asked.most, answer))
        return known[-1]
