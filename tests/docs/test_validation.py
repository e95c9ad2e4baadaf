"""The errors on docs/validation.md are current, else run ``python -m tests.docs.validation``.

The record has the predictions that compile networks; the others are made again here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.machines.discovery import list_machines
from experiments.machines.validate import compare_machines
from tests.docs import machine_layers, validation

RECORDED = validation.RECORD.read_text(encoding="utf-8")


def test_the_record_has_every_published_figure() -> None:
    rows = validation.read_record(RECORDED)
    assert validation.record(rows) == RECORDED
    assert all(row.is_within_claim for row in rows)


def test_quick_predictions_are_those_of_the_record() -> None:
    recorded = {(row.machine, row.figure): row.ours for row in validation.read_record(RECORDED)}
    for row in compare_machines(list_machines().values(), quick=True):
        assert row.ours == recorded[row.machine, row.figure], row.to_row()


@pytest.mark.slow
def test_all_predictions_are_those_of_the_record() -> None:
    assert validation.record(compare_machines(list_machines().values())) == RECORDED


def test_the_page_and_the_chart_are_current(tmp_path: Path) -> None:
    rows = validation.read_record(RECORDED)
    page = validation.PAGE.read_text(encoding="utf-8")
    assert validation.written(page, rows) == page
    chart = validation.CHART.read_text(encoding="utf-8")
    assert validation.digest(RECORDED) in chart
    drawn = tmp_path / "drawn.svg"
    validation.draw(rows, drawn, validation.digest(RECORDED))
    assert drawn.read_text(encoding="utf-8").startswith("<?xml")


def test_the_layers_of_ethos_u85_add_up_to_the_recorded_predictions() -> None:
    recorded = {
        row.figure.condition.split()[-2]: row.ours
        for row in validation.read_record(RECORDED)
        if row.figure.condition.endswith("MiB")
    }
    totals = machine_layers.total_streams()
    assert totals
    for (_, size), times in totals.items():
        assert times["ours"] == pytest.approx(recorded[str(size)], abs=1e-3)
        # each smaller budget of SRAM leaves more weights to be read again
        assert times["staged"] <= times["1536 KiB"] <= times["1024 KiB"]
