"""An exploration in words and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.explore.result import GOAL
from experiments.report.terminal import plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from experiments.explore.objectives import Objective
    from experiments.explore.result import Exploration
    from experiments.explore.search import Found


def front_table(found: Exploration) -> Table:
    """The points of the front by the first objective, with the settings that make them."""
    headings = [(objective.title, "right") for objective in found.objectives]
    table = plain_table(*headings, *((name, "right") for name in found.settings))
    for point in found.front:
        table.add_row(*_values(found, point), *(_shown(point.row.get(name)) for name in found.settings))
    return table


def _values(found: Exploration, point: Found) -> Iterator[str]:
    return (shown_value(objective, objective.value(point.row)) for objective in found.objectives)


def shown_value(objective: Objective, value: float) -> str:
    """Whole numbers whole, others with four digits."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else "" if value is None else str(value)


def lines(found: Exploration) -> Iterator[str]:
    """What there is to say below the table."""
    total, ended = len(found.found), sum(point.costs is not None for point in found.found)
    share = total / found.grid_points
    yield f"{total} of {found.grid_points} points evaluated ({share:.1%}), {ended} ok; {len(found.front)} on the front"
    yield from _comparison(found)
    if any(objective.column.startswith("estimated_") for objective in found.objectives):
        yield f"energy and area are estimates by the cost table {found.conditions['cost_table']} (docs/energy.md)"
    hosts = {point.row["host_nodes"] for point in found.front}
    if len(hosts) > 1:
        counts = " or ".join(str(count) for count in sorted(hosts))
        yield f"note: points of the front leave {counts} nodes to the CPU, whose time is in none of the cycles"


def _comparison(found: Exploration) -> Iterator[str]:
    compared = found.comparison
    if compared is None:
        if found.front:
            yield f"not held against the grid of {found.grid_points} points; --grid runs all of it"
        return
    yield f"the front reaches {compared.share:.2%} of the hypervolume of the whole grid ({compared.ok} points ok)"
    chance = "" if compared.by_chance is None else f"; in random order it takes {compared.by_chance:g} (median)"
    if compared.needed is None:
        yield f"{GOAL:.0%} of it was not reached with {len(found.found)} points{chance}"
    else:
        share = compared.needed / compared.points
        yield f"{GOAL:.0%} of it took {compared.needed} points, {share:.1%} of the grid{chance}"
