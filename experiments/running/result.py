"""What a run gives back in Python, the report, the outputs, tables and pictures, and how it is presented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from byoc.package.package import Package
from dla_sim.engine.breakdown import PARTS
from experiments.report.schema import PlacementEntry, RunReport, report_json
from experiments.report.shown import Presentation, Shown, data_frame
from experiments.report.tables import (
    HOST_FIGURES,
    LAYER_COLUMNS,
    LAYER_FIGURES,
    layer_rows,
    placement_rows,
    report_tables,
    summary_lines,
)

if TYPE_CHECKING:
    import pandas

    from experiments.report.charts.model import Chart


# What draws is loaded when something is drawn. ------------------------------------------------------------------------


def _charts(report: RunReport) -> tuple[Chart, ...]:
    from experiments.report.run_charts import run_charts

    return run_charts(report)


def _page(report: RunReport) -> str:
    from experiments.report.run_page import run_page

    return run_page(report)


def _notebook(report: RunReport) -> str:
    from experiments.report.run_page import layers_html

    return layers_html(report)


RUN = Presentation(
    lines=summary_lines,
    tables=report_tables,
    brief=partial(report_tables, summary=True),
    records=layer_rows,
    json=report_json,
    charts=_charts,
    drawn={
        "whole": "end-to-end", "layers": "layer-cycles", "utilization": "layer-utilization", "roofline": "roofline",
        "traffic": "layer-traffic", "timeline": "unit-timeline", "occupancy": "sram-occupancy", "causes": "unit-causes",
    },
    nothing=lambda report: f"{report.model}: no layer runs on the accelerator; there is nothing to draw",
    page=_page,
    notebook=_notebook,
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown):
    """One run: ``print`` tells it in a few lines, a notebook shows its largest layers, ``plot`` has its pictures.

    ``report`` is the model of the JSON file of ``dla run``, ``outputs`` the network's outputs by name. Of a batch,
    outputs have the samples along the first axis, and the report's check counts all of them; its cycles are those of
    one inference. ``package`` is what was compiled.
    """

    report: RunReport
    outputs: Mapping[str, NDArray[Any]]
    package: Package

    @property
    def presented(self) -> tuple[Any, Presentation]:
        return self.report, RUN

    @property
    def layers(self) -> pandas.DataFrame:
        """The table of ``dla run --csv``: a row a layer in the network's order, those on the CPU with estimates.

        ``cycles`` are the sum of the columns of what they went into (compute, weights, ...). Raises InputError where
        pandas is not installed, as the other tables do.
        """
        known = [figure for figure in LAYER_FIGURES if figure.name not in HOST_FIGURES]
        whole = ["region", *(figure.name for figure in known if figure.kind is int), *PARTS]
        table = data_frame(layer_rows(self.report), LAYER_COLUMNS, whole)
        # all of a column may be missing
        return table.astype({figure.name: "float64" for figure in known if figure.kind is float})

    @property
    def stalls(self) -> pandas.DataFrame:
        """A row for each layer, unit and cause for which the unit's commands of the layer waited, in cycles."""
        rows = [
            {"layer": layer.name, "region": layer.region, "unit": unit, "cause": cause, "cycles": cycles}
            for layer in self.report.layers
            for unit, causes in layer.stalls.items()
            for cause, cycles in causes.items()
            if cycles
        ]
        return data_frame(rows, ("layer", "region", "unit", "cause", "cycles"), ("region", "cycles"))

    @property
    def placement(self) -> pandas.DataFrame:
        """A row a node: where it runs and, on the CPU, the reason."""
        return data_frame(placement_rows(self.report.placement), tuple(PlacementEntry.model_fields), ("region",))
