"""Reproduction of published figures: their names, and the claims that our figures decide."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FIGURES: dict[str, str] = {
    "li2022-table5": "Li et al. (2022), table 5: six applications under five ways of scheduling "
    "(docs/validation.md)",
    "sponner2021-fig4": "Sponner et al. (TinyML 2021), figure 4: MobileNetV1 on 28 configurations "
    "(docs/validation.md)",
}
"""Published figures that can be reproduced, by name."""


@dataclass(frozen=True)
class ClaimFigure:
    """One comparison of figures: whether it supports a paper's claim, and its text."""

    supports: bool
    text: str


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, the rule that decides it, and the figures that it depends on.

    It holds if every figure supports it.
    """

    name: str
    statement: str
    rule: str
    figures: tuple[ClaimFigure, ...]

    @property
    def holds(self) -> bool:
        """True if there are figures and all of them support the paper's statement."""
        return bool(self.figures) and all(figure.supports for figure in self.figures)


def claim_lines(claims: Iterable[Claim]) -> Iterator[str]:
    """Yield the text lines of a paper's claims, with every figure that decides them.

    Each figure has its own line, and an empty line follows each claim.
    """
    for claim in claims:
        yield f"[{'holds' if claim.holds else 'DOES NOT HOLD'}] {claim.statement}"
        yield f"    decided by: {claim.rule}"
        yield from (
            f"    {'+' if figure.supports else '-'} {figure.text}" for figure in claim.figures
        )
        yield ""
