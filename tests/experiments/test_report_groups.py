"""Groups of layers in the run report: every layer names its group, and the text lists them."""

from __future__ import annotations

import pytest
from rich.console import Console

from experiments.report.schema import LayerGroup, RunReport, report_json
from experiments.report.shown import Document
from experiments.report.tables import MOST_GROUPS, groups_line
from experiments.running.inference import run
from experiments.running.result import RUN


def _small_resnext() -> RunReport:
    return run("resnext-11", isa="v4", settings=["sram_bytes=65536"]).report


def test_layers_name_their_groups(capsys: pytest.CaptureFixture[str]) -> None:
    report = _small_resnext()
    groups = report.compile.groups
    assert groups
    assert RunReport.model_validate_json(report_json(report)) == report
    for layer in report.layers:
        inside = [number for number, group in enumerate(groups) if layer.name in group.layers]
        assert [layer.group] == (inside or [None])
        assert inside == [] or groups[inside[0]].region == layer.region
    assert sum(layer.cycles for layer in report.layers) <= report.totals.cycles
    assert report.check.mismatches == 0
    Document(report, RUN).show(Console(width=200))
    printed = " ".join(capsys.readouterr().out.split())
    first = groups[0]
    assert f"{first.layers[0]} to {first.layers[-1]} ({first.rows} row" in printed


def test_only_the_first_groups_are_named() -> None:
    groups = tuple(
        LayerGroup(region=0, layers=(f"a{n}", f"b{n}"), rows=1 + n, kept=()) for n in range(9)
    )
    text = groups_line(groups)
    assert text.startswith("18 layers fused in bands: a0 to b0 (1 row), a1 to b1 (2 rows), ")
    assert text.endswith(
        f"a{MOST_GROUPS - 1} to b{MOST_GROUPS - 1} ({MOST_GROUPS} rows), {9 - MOST_GROUPS} more"
    )
