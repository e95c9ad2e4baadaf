"""Parts of a run report about activity over time: scratchpad bytes, and spans of the units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from experiments.report.parts import LARGEST_COUNT, Count, Part, expect

OCCUPANCY_POINTS = 512
"""Maximum number of points in the series of the scratchpad's occupancy."""
TIMELINE_SPANS = 2048
"""Maximum number of spans of a unit on the timeline."""


class Occupancy(Part):
    """Live bytes of the scratchpad over the run, whose regions run in sequence.

    ``dla_sim.inspection`` computes them. Point i covers the cycles from i * ``cycles_per_point`` to
    the next point, or to the end of the run: the largest number of live bytes in any of them, and
    the average, rounded down.
    """

    cycles_per_point: int = Field(ge=1)
    peak_bytes: tuple[Count, ...] = Field(max_length=OCCUPANCY_POINTS)
    mean_bytes: tuple[Count, ...] = Field(max_length=OCCUPANCY_POINTS)


class Spans(Part):
    """Spans of time in which one unit is active, in order of time.

    In a span, ``commands`` execute in ``active`` of the cycles ``[begin, end)``. ``layer`` is the
    index in ``layers`` of the layer that took most of the active cycles; -1 if none.
    """

    begin: tuple[Count, ...] = Field(max_length=TIMELINE_SPANS)
    end: tuple[Count, ...] = Field(max_length=TIMELINE_SPANS)
    active: tuple[Count, ...] = Field(max_length=TIMELINE_SPANS)
    commands: tuple[Count, ...] = Field(max_length=TIMELINE_SPANS)
    layer: tuple[Annotated[int, Field(ge=-1, le=LARGEST_COUNT)], ...] = Field(
        max_length=TIMELINE_SPANS
    )

    @model_validator(mode="after")
    def _consistent(self) -> Spans:
        for name in ("end", "active", "commands", "layer"):
            expect(f"the number of {name} of a timeline", len(getattr(self, name)), len(self.begin))
        last = 0
        for begin, end, active in zip(self.begin, self.end, self.active, strict=True):
            if not last <= begin <= begin + active <= end:
                raise ValueError(
                    f"{active} cycles from {begin} to {end} follow {last} on the timeline"
                )
            last = end
        return self


class Timeline(Part):
    """Activity of each unit over the run, regions one after another.

    A span contains all commands of a unit that begin in one window of ``window`` cycles, counted
    from the start of the run. With a window of 1, each command is a span.
    """

    window: int = Field(ge=1)
    units: Mapping[str, Spans]

    def check(self, working: Mapping[str, int], cycles: int, layers: int) -> None:
        """Check the spans against the ``working`` cycles of each unit, the run and the layers.

        Spans must end within ``cycles``, and their layers must exist.
        """
        expect("the units of the timeline", set(self.units), set(working))
        for unit, spans in self.units.items():
            expect(f"the sum of what {unit} did on the timeline", sum(spans.active), working[unit])
            within = max(spans.end, default=0) <= cycles
            expect(f"{unit}'s end on the timeline within the run", within, True)
            known = max(spans.layer, default=-1) < layers
            expect(f"{unit}'s layers on the timeline", known, True)
