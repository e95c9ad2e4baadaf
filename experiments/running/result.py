"""Result of a run in Python: report, outputs, tables and charts, and their presentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from byoc.package.package import Package
from dla_sim.engine.breakdown import PARTS
from experiments.report.schema import PlacementEntry, RunReport, report_json
from experiments.report.screen import screen
from experiments.report.shown import Presentation, Shown, data_frame
from experiments.report.tables import (
    HOST_FIGURES,
    LAYER_COLUMNS,
    LAYER_FIGURES,
    layer_rows,
    list_layer_columns,
    placement_rows,
    report_tables,
    summary_lines,
)

if TYPE_CHECKING:
    import pandas

    from experiments.report.charts.model import Chart


# Functions that draw; they import what they use when something is drawn.


def _charts(report: RunReport) -> tuple[Chart, ...]:
    from experiments.report.run_charts import run_charts

    return run_charts(report)


def _page(report: RunReport) -> str:
    from experiments.report.run_page import run_page

    return run_page(report)


RUN = Presentation(
    lines=summary_lines,
    tables=report_tables,
    brief=partial(report_tables, summary=True),
    screen=screen,
    records=layer_rows,
    json=report_json,
    charts=_charts,
    drawn={
        "whole": "end-to-end", "layers": "layer-cycles", "utilization": "layer-utilization",
        "roofline": "roofline",
        "traffic": "layer-traffic", "timeline": "unit-timeline", "occupancy": "sram-occupancy",
        "memory": "memory-map",
        "causes": "unit-causes",
    },
    nothing=lambda report: f"{report.model}: no layer runs on the accelerator; there is nothing to "
                           "show in a chart",
    page=_page,
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown):
    """Result of one run, with its report, outputs and package.

    ``print`` shows a few lines, a notebook shows the layers, and ``plot`` draws the charts.
    ``report`` has the content of the JSON file of ``dla run``; ``outputs`` are the network's
    outputs by name. For a batch, the outputs have the samples along the first axis, and the
    report's check counts all of them; its cycles are those of one inference. ``package`` is the
    package that was compiled.
    """

    report: RunReport
    outputs: Mapping[str, NDArray[Any]]
    package: Package

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self.report, RUN

    @property
    def layers(self) -> pandas.DataFrame:
        """Table of ``dla run --csv``: a row per layer in network order.

        Nodes on the CPU have estimates.

        ``cycles`` is the sum of the columns of its parts (compute, weights, ...). Raises InputError
        if pandas is not installed, as the other tables do.
        """
        known = [figure for figure in LAYER_FIGURES if figure.name not in HOST_FIGURES]
        whole = ["region", *(figure.name for figure in known if figure.kind is int), *PARTS]
        columns = list_layer_columns(self.report)
        parts = [name for name in columns if name not in LAYER_COLUMNS]
        whole = [name for name in whole if name in columns] + parts
        table = data_frame(layer_rows(self.report), columns, whole)
        # a column without values has no float type
        real = {one.name: "float64" for one in known if one.kind is float and one.name in columns}
        return table.astype(real)

    @property
    def stalls(self) -> pandas.DataFrame:
        """Table of the cycles that commands waited: a row for each layer, unit and cause."""
        rows = [
            {
                "layer": layer.name,
                "region": layer.region,
                "unit": unit,
                "cause": cause,
                "cycles": cycles,
            }
            for layer in self.report.layers
            for unit, causes in layer.stalls.items()
            for cause, cycles in causes.items()
            if cycles
        ]
        return data_frame(
            rows, ("layer", "region", "unit", "cause", "cycles"), ("region", "cycles")
        )

    @property
    def placement(self) -> pandas.DataFrame:
        """Table with a row per node: where it runs and, on the CPU, the reason."""
        return data_frame(
            placement_rows(self.report.placement), tuple(PlacementEntry.model_fields), ("region",)
        )
