"""What a run gives back in Python: the report, the outputs, tables and pictures, and itself in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from byoc.package.package import Package
from dla_sim.engine.breakdown import PARTS
from experiments.extras import require_pandas
from experiments.report.rows import HOST_FIGURES, LAYER_COLUMNS, LAYER_FIGURES, layer_rows, placement_rows
from experiments.report.schema import PlacementEntry, RunReport
from experiments.report.shown import Presentation, Shown
from experiments.report.store import save_report
from experiments.report.summary import RUN

if TYPE_CHECKING:
    import pandas


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
        """The report, presented."""
        return self.report, RUN

    @property
    def layers(self) -> pandas.DataFrame:
        """The table of ``dla run --csv``: a row a layer in the network's order, those on the CPU with estimates.

        ``cycles`` are the sum of the columns of what they went into (compute, weights, ...). Raises InputError where
        pandas is not installed, as the other tables do.
        """
        known = [figure for figure in LAYER_FIGURES if figure.name not in HOST_FIGURES]
        whole = ["region", *(figure.name for figure in known if figure.kind is int), *PARTS]
        table = _table(layer_rows(self.report), LAYER_COLUMNS, whole)
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
        return _table(rows, ("layer", "region", "unit", "cause", "cycles"), ("region", "cycles"))

    @property
    def placement(self) -> pandas.DataFrame:
        """A row a node: where it runs and, on the CPU, the reason."""
        return _table(placement_rows(self.report.placement), tuple(PlacementEntry.model_fields), ("region",))

    def save(self, path: str | Path) -> None:
        """Write the report as ``dla run --json`` does, for ``dla report``."""
        save_report(self.report, Path(path))


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], whole: Sequence[str]) -> pandas.DataFrame:
    """``rows`` as a table; the columns ``whole`` are integers, with gaps."""
    table: pandas.DataFrame = require_pandas().DataFrame(rows, columns=list(columns))
    return table.astype(dict.fromkeys(whole, "Int64"))
