"""Uses of the declaration of a figure: all displays derive from it.

No other module contains its name or unit.
"""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from dla_sim.timing import Timing
from experiments.compare.comparison import FIGURES, OF_RUNS
from experiments.cost.estimate import COLUMNS as COSTS
from experiments.explore.exploration import OBJECTIVES
from experiments.figure import (
    Counts,
    Figure,
    FigureMachine,
    all_figures,
    figures_of,
    measure_figures,
    sum_tables,
)
from experiments.report.run_page import _HEADINGS
from experiments.report.schema import Layer, PointFigures, RunReport, RunTotals
from experiments.report.tables import LAYER_COLUMNS, total_lines
from experiments.sweep.constraints import parse_constraint
from experiments.sweep.results import sign, unit, words
from experiments.sweep.store import COLUMNS
from isa.arch import Arch, PeArray
from isa.errors import InputError
from tests.experiments.reporting import tiny_run

MACHINE = FigureMachine(Arch(pe=PeArray(ic=2, oc=4)), Timing())


@pytest.mark.parametrize("figure", figures_of(PointFigures), ids=lambda figure: figure.name)
def test_a_figure_of_points_is_a_column_with_words_and_no_constraint(figure: Figure) -> None:
    assert COLUMNS[figure.name] == ("REAL" if figure.kind is float else "INTEGER")
    assert (words(figure.name), unit(figure.name)) == (figure.words, figure.unit)
    assert sign(figure.name) == (-1 if figure.better == "more" else 1)
    columns = {objective.column: objective for objective in OBJECTIVES.values()}
    assert (figure.name in columns) == bool(figure.better)
    with pytest.raises(
        InputError, match=rf"'{figure.name} < 5': '{figure.name}' is a figure, and known only when"
    ):
        parse_constraint(f"{figure.name} < 5")


@pytest.mark.parametrize("name", ["estimated_area_um2", "estimated_energy_pj"])
def test_a_constraint_on_an_estimate_says_where_it_is_shown(name: str) -> None:
    with pytest.raises(
        InputError,
        match=rf"'{name}' is estimated by a cost table .* --x {name}' puts it on the front",
    ):
        parse_constraint(f"{name} < 3000000")


def test_figures_of_a_run() -> None:
    known = {figure.name for figure in all_figures(RunReport)}
    assert {
        *RunTotals.model_fields,
        "host_nodes",
        "host_estimated_cycles",
        "end_to_end_cycles",
        *COSTS,
    } <= known
    assert known == OF_RUNS.keys()
    assert set(FIGURES) <= {*RunTotals.model_fields}


def test_every_figure_of_layers_is_a_column_with_a_heading() -> None:
    for figure in figures_of(Layer):
        assert figure.name in LAYER_COLUMNS
        assert _HEADINGS[figure.name][0] == figure.head


def test_every_total_is_told() -> None:
    report = tiny_run()
    text = "\n".join(str(line) for _, line in total_lines(report))
    for figure in figures_of(RunTotals):
        value = getattr(report.totals, figure.name)
        wanted = f"{value:.1%}" if figure.kind is float else f"{value or 0:,}"
        assert not value or wanted in text, figure.name


def test_figures_come_out_of_parts() -> None:
    demand = type("Demand", (), {"compute_cycles": 90, "commands": 0, "apart": (0, 0)})()
    parts = [
        Counts(type("Run", (), {"cycles": cycles, "macs": 8 * cycles // 2})(), sram_peak_bytes=peak,
               once_bytes=0, apart=(0, 0), demand=demand, dram_read_bytes=1, dram_write_bytes=2,
               flash_read_bytes=0, instructions=3)
        for cycles, peak in ((100, 7), (300, 5))
    ]  # fmt: skip
    assert measure_figures(RunTotals, MACHINE, parts) == {
        "cycles": 400, "macs": 1600, "utilization": 0.5, "lower_bound_cycles": 200,
        "roofline_cycles": 240,
        "dram_read_bytes": 2, "dram_write_bytes": 4, "flash_read_bytes": 0, "sram_peak_bytes": 7,
        "instructions": 6,
    }  # fmt: skip
    assert measure_figures(RunTotals, MACHINE, [])["utilization"] == 0.0
    with pytest.raises(AttributeError, match="no count 'tiles' is known"):
        measure_figures(Layer, MACHINE, parts)


def test_tables_of_cycles_add_up() -> None:
    assert sum_tables([{"a": 1, "b": 2}, {"b": 3}], ("c",)) == {"c": 0, "a": 1, "b": 5}


def test_a_record_in_a_record_has_figures_too() -> None:
    found = [
        figure.name
        for figure in all_figures(
            type("Outer", (BaseModel,), {"__annotations__": {"inner": RunTotals}})
        )
    ]
    assert found == list(RunTotals.model_fields)
