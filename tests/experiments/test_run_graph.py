"""Graph of a run's network: places of nodes, lines that cross none, and cycles that add up."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from experiments.report.graph import Edge, lay_out
from experiments.report.run_page import network_graph
from experiments.report.schema import RunReport
from experiments.running.inference import run
from tests.experiments.reporting import tiny_run


def random_graph(seed: int) -> tuple[int, list[Edge]]:
    """A graph of 2 to 120 nodes whose producers are mostly near."""
    random = Random(seed)
    nodes = random.randint(2, 120)
    edges = [
        (random.randrange(max(0, node - random.choice((1, 3, 40))), node), node)
        for node in range(1, nodes)
        for _ in range(random.choice((0, 1, 1, 2, 3)))
    ]
    return nodes, list(dict.fromkeys(edges))


@pytest.mark.parametrize("seed", range(20))
def test_no_line_crosses_a_node_and_no_two_nodes_share_a_place(seed: int) -> None:
    nodes, edges = random_graph(seed)
    found = lay_out(nodes, edges)
    places = set(zip(found.columns, found.lanes, strict=True))
    assert len(places) == nodes
    assert min(found.lanes) >= 0
    passed: dict[tuple[int, int], int] = {}
    for (producer, consumer), lane in zip(edges, found.routes, strict=True):
        assert found.columns[producer] < found.columns[consumer]
        for column in range(found.columns[producer] + 1, found.columns[consumer]):
            assert (column, lane) not in places
            assert passed.setdefault((column, lane), producer) == producer
    assert lay_out(nodes, edges) == found


def test_chains_are_straight_and_a_shortcut_takes_another_lane() -> None:
    chain = list(pairwise(range(6)))
    found = lay_out(6, [*chain, (1, 4)])
    assert found.columns == (0, 1, 2, 3, 4, 5)
    assert set(found.lanes) == {0}
    assert found.routes == (0, 0, 0, 0, 0, 1)


def test_a_thousand_nodes_are_placed() -> None:
    edges = [*pairwise(range(1000)), *((node, node + 3) for node in range(0, 990, 3))]
    found = lay_out(1000, edges)
    assert max(found.columns) == 999
    assert max(found.lanes) <= 2


def cycles_of(box: dict[str, Any]) -> int:
    """Cycles that a box tells; 0 if none."""
    number = box["text"].lstrip("~").split(" ")[0].replace(",", "")
    return int(number) if number.isdigit() else 0


@pytest.mark.parametrize("schedule", ["default", "seed"])
def test_every_node_has_a_box_and_the_cycles_add_up(schedule: Any) -> None:
    report = run("resnet-8", schedule=schedule).report
    found = network_graph(report)
    assert found is not None
    boxes = found["boxes"]
    assert [box["name"] for box in boxes if box["on"]] == [one.node for one in report.placement]
    assert (boxes[0]["kind"], boxes[-1]["kind"]) == (
        "input of the network",
        "output of the network",
    )
    assert report.end_to_end is not None
    whole = report.end_to_end.dla_cycles + report.end_to_end.cpu_cycles
    assert sum(map(cycles_of, boxes)) == whole
    parts = sum(cycles for box in boxes for _, cycles, _ in box["parts"])
    assert parts == report.totals.cycles
    assert len(found["lines"]) == len(report.edges)


def test_a_report_refuses_edges_to_nodes_that_it_lacks() -> None:
    content = tiny_run().model_dump(mode="json", by_alias=True)
    content["edges"][0]["consumer"] = len(content["placement"])
    with pytest.raises(ValueError, match="the edges' nodes"):
        RunReport.model_validate(content)
