"""The search on made-up grids: it finds fronts, and the same ones every time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from experiments.explore.exploration import OBJECTIVES, costs, format_value, lines, parse_objectives
from experiments.explore.exploring import compare_with_grid, make_exploration
from experiments.explore.search import TOGETHER, EvaluatedPoint, Proposal, search
from experiments.sweep.request import SAMPLERS, SamplerName
from experiments.sweep.results import FlatRow, Pair
from isa.errors import InputError
from tests.rotation import rotate

AXES = {
    "network": ("only",),
    "kind": ("slow", "fast", "odd"),
    "size": (8, 1, 4, 2, 16),
    "width": tuple(range(10)),
}


class Plant:
    """A made-up grid: points with an odd width do not exist, those of 16 do not fit.

    Counts what it is asked.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, choices: Sequence[Proposal]) -> list[FlatRow | None]:
        return [self.row(choice) for choice in choices]

    def row(self, choice: Proposal) -> FlatRow | None:
        assert list(choice) == list(AXES)
        if choice["width"] % 2:
            return None
        key = f"{choice['kind']} {choice['size']} {choice['width']}"
        self.asked.append(key)
        if choice["size"] == 16:
            return {"key": key, "status": "infeasible"}
        speed = {"slow": 1, "fast": 3, "odd": 2}[choice["kind"]] * choice["size"]
        return {
            "key": key,
            "status": "ok",
            "time": 1000.0 / (speed + choice["width"]),
            "price": float(speed * 3),
        }


def pair(row: FlatRow) -> Pair | None:
    return None if row["status"] != "ok" else (row["time"], row["price"])


def keys(found: Sequence[EvaluatedPoint]) -> list[str]:
    return [item.row["key"] for item in found]


def everything() -> list[FlatRow]:
    plant = Plant()
    choices = [
        {"network": "only", "kind": k, "size": s, "width": w}
        for k in AXES["kind"] for s in AXES["size"] for w in AXES["width"]
    ]  # fmt: skip
    return [row for row in plant(choices) if row is not None]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_points_are_distinct_and_of_the_grid(sampler: SamplerName) -> None:
    found = search(AXES, Plant(), pair, points=30, sampler=sampler, seed=1)
    assert len(found) == len(set(keys(found))) == 30
    assert set(keys(found)) <= {row["key"] for row in everything()}


@pytest.mark.parametrize("sampler", rotate(SAMPLERS, 3))
def test_equal_searches_find_the_same_and_longer_ones_begin_with_it(sampler: SamplerName) -> None:
    first = keys(search(AXES, Plant(), pair, points=20, sampler=sampler, seed=3))
    assert keys(search(AXES, Plant(), pair, points=20, sampler=sampler, seed=3)) == first
    assert keys(search(AXES, Plant(), pair, points=40, sampler=sampler, seed=3))[:20] == first
    assert keys(search(AXES, Plant(), pair, points=20, sampler=sampler, seed=4)) != first


@pytest.mark.parametrize("sampler", rotate(SAMPLERS, 3))
def test_a_whole_grid_is_found_if_it_is_wanted(sampler: SamplerName) -> None:
    total = everything()
    found = search(AXES, Plant(), pair, points=1000, sampler=sampler, seed=0)
    assert sorted(keys(found)) == sorted(row["key"] for row in total)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_the_front_is_found_with_a_part_of_the_grid(sampler: SamplerName) -> None:
    grid = [pair(row) for row in everything()]
    found = search(AXES, Plant(), pair, points=len(grid) // 2, sampler=sampler, seed=0)
    ended = [item for item in grid if item is not None]
    reference = 1.1 * max(p[0] for p in ended), 1.1 * max(p[1] for p in ended)
    compared = compare_with_grid(found, grid, reference)
    assert compared.share > 0.95
    assert (compared.points, compared.ok) == (75, 60)
    assert compared.by_chance is not None


def test_what_is_known_is_not_proposed_without_end() -> None:
    plant = Plant()
    found = search(AXES, plant, pair, points=60, seed=0)
    assert len(found) == 60
    assert len(plant.asked) < 200


def test_progress_is_reported() -> None:
    heard: list[int] = []
    search(AXES, Plant(), pair, points=12, seed=0, report=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == 12
    assert len(heard) >= 12 // TOGETHER


def test_a_grid_of_one_point_needs_no_search() -> None:
    axes = {name: values[:1] for name, values in AXES.items()}
    assert keys(search(axes, Plant(), pair, points=5)) == ["slow 8 0"]


def test_a_grid_in_which_nothing_runs_has_no_front() -> None:
    axes = {**AXES, "size": (16,)}
    objectives = parse_objectives("cycles,sram")
    found = search(axes, Plant(), pair, points=4)
    result = make_exploration({"cost_table": "t"}, objectives, ("width",), found, 15, None)
    assert (len(result.found), result.front, result.reference, result.comparison) == (
        4,
        (),
        None,
        None,
    )
    assert list(lines(result)) == ["4 of 15 points evaluated (26.7%), 0 ok; 0 on the front"]


def row_of(key: str, **values: Any) -> EvaluatedPoint:
    row = {"key": key, "status": "ok", "host_nodes": 1, "utilization": 0.5, **values}
    return EvaluatedPoint(row, costs(parse_objectives("cycles,utilization"), row))


def test_an_exploration_says_what_it_found() -> None:
    objectives = parse_objectives("cycles,utilization")
    found = [
        row_of("a", cycles=100),
        row_of("b", cycles=50, utilization=0.25),
        row_of("c", cycles=200, host_nodes=3),
    ]
    grid = [*(item.costs for item in found), (40.0, -0.5), None]
    result = make_exploration({"cost_table": "t"}, objectives, (), found, 5, grid)
    assert [item.row["key"] for item in result.front] == ["b", "a"]
    assert result.reference == (220.00000000000003, 0.0)
    # b covers (220 - 50) * 0.25, a another (220 - 100) * 0.25; the grid's best covers (220 - 40) *
    # 0.5
    assert result.comparison is not None
    assert result.comparison.share == pytest.approx((170 * 0.25 + 120 * 0.25) / (180 * 0.5))
    said = list(lines(result))
    assert said[0] == "3 of 5 points evaluated (60.0%), 3 ok; 2 on the front"
    assert said[1] == "the front reaches 80.56% of the hypervolume of the whole grid (4 points ok)"
    assert said[2].startswith("99% of it was not reached with 3 points; in random order it takes 3")
    content = result.content()
    assert content["front"][0] == {"key": "b", "status": "ok", "cycles": 50.0, "utilization": 0.25}
    assert content["grid"]["points_needed"] is None


def test_a_front_that_leaves_different_work_to_the_cpu_is_noted() -> None:
    objectives = parse_objectives("cycles,utilization")
    found = [row_of("a", cycles=100), row_of("b", cycles=50, utilization=0.25, host_nodes=4)]
    said = list(lines(make_exploration({"cost_table": "t"}, objectives, (), found, 2, None)))
    assert (
        said[-1]
        == "note: points of the front leave 1 or 4 nodes to the CPU, whose time is in none of the "
        "cycles"
    )
    assert said[1] == "not compared with the grid of 2 points; --grid runs all of it"


def test_values_are_shown_as_people_read_them() -> None:
    assert [format_value(value) for value in (1234567.0, 0.123456, 12345.678)] == [
        "1,234,567",
        "0.1235",
        "12,345.7",
    ]
    assert [objective.title for objective in parse_objectives("cycles, energy")] == [
        "cycles",
        "energy (µJ, estimate)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cycles", "--objectives is 'cycles'; name two different ones, such as cycles,area"),
        (
            "cycles,cycles",
            "--objectives is 'cycles,cycles'; name two different ones, such as cycles,area",
        ),
        (
            "cycles,area,energy",
            "--objectives is 'cycles,area,energy'; name two different ones, such as cycles,area",
        ),
        (
            "cycles,aera",
            "--objectives: unknown 'aera'; did you mean area? choose two "
            "of " + ", ".join(OBJECTIVES),
        ),
        ("", "--objectives: unknown ''; choose two of " + ", ".join(OBJECTIVES)),
    ],
)
def test_bad_objectives_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_objectives(text)
    assert str(caught.value) == message
