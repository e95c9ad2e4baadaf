"""Comparison of machine descriptions with the figures that others published.

:func:`compare_machines` predicts every published figure of the descriptions. The result says for
each figure whether the vendor asserts it, a parameter was fitted to it, or it was held out, and
:func:`summarize` gives the errors of each machine. ``dla validate`` prints both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.machines.description import MachineDescription, PublishedFigure, Role
from isa.progress import Progress, silent


@dataclass(frozen=True)
class FigureComparison:
    """Published figure of a machine, and the value that the description predicts.

    ``ours`` is None if nothing was predicted: the figure is not comparable, or slow and left out.
    """

    machine: str
    figure: PublishedFigure
    ours: float | None

    @property
    def error(self) -> float | None:
        """Relative error of the prediction, negative if it is too small."""
        return None if self.ours is None else self.ours / self.figure.value - 1

    @property
    def is_within_claim(self) -> bool:
        """True if the error is at most ``claim``, or if nothing was predicted."""
        return self.error is None or abs(self.error) <= self.figure.claim

    def to_row(self) -> dict[str, Any]:
        """Return the comparison as a row of JSON and CSV."""
        values = dict(vars(self.figure))
        del values["predict"], values["slow"]
        return {
            "machine": self.machine,
            **values,
            "ours": self.ours,
            "error": self.error,
            "within_claim": self.is_within_claim,
        }


@dataclass(frozen=True)
class MachineErrors:
    """Errors of a machine's predictions of one role.

    Attributes:
        machine: name of the machine.
        role: role of the figures.
        compared: number of predicted figures.
        mean: mean absolute relative error.
        worst: largest absolute relative error.
        network: network with the largest error.
        fitted: parameters that were fitted to these figures.
    """

    machine: str
    role: Role
    compared: int
    mean: float
    worst: float
    network: str
    fitted: tuple[str, ...]


def compare_machines(
    machines: Iterable[MachineDescription], *, quick: bool = False, stage: Progress = silent
) -> Iterator[FigureComparison]:
    """Predict the published figures of machines.

    Args:
        machines: descriptions with published figures.
        quick: leave out slow predictions, so that the result contains only the others.
        stage: receives the name of each figure before it is predicted.
    """
    for machine in machines:
        for figure in machine.published:
            if figure.role == "not comparable":
                yield FigureComparison(machine.name, figure, None)
            elif not (quick and figure.slow):
                stage(f"{machine.name}: {figure.network}, {figure.condition}")
                yield FigureComparison(machine.name, figure, figure.predict())


def summarize(
    rows: Sequence[FigureComparison], machines: Iterable[MachineDescription]
) -> list[MachineErrors]:
    """Return the errors of each machine by the role of the figures."""
    found = []
    fitted = {machine.name: machine.fitted for machine in machines}
    groups: dict[tuple[str, Role], list[tuple[float, str]]] = {}
    for row in rows:
        if row.error is not None:
            group = groups.setdefault((row.machine, row.figure.role), [])
            group.append((abs(row.error), row.figure.network))
    for (machine, role), errors in groups.items():
        worst, network = max(errors)
        found.append(
            MachineErrors(
                machine=machine,
                role=role,
                compared=len(errors),
                mean=sum(error for error, _ in errors) / len(errors),
                worst=worst,
                network=network,
                fitted=fitted[machine] if role == "fitted" else (),
            )
        )
    return found
