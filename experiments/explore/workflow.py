"""An exploration from its specification to its front: the workflow behind ``dla explore`` and the public Python API."""

from __future__ import annotations

from experiments.explore.exploration import Exploration
from experiments.explore.run import check
from experiments.explore.run import explore as explore_grid
from experiments.running.door import door
from experiments.sweep.request import ExploreRequest
from experiments.sweep.workflow import going_on_in, results_file, specified


def explore_requested(wanted: ExploreRequest) -> Exploration:
    """Search the grid of a specification for the best compromises of two objectives, as ``dla explore`` does.

    ``spec``, ``output``, ``workers`` and ``scheduler`` are those of a sweep. ``objectives`` are two names
    (docs/sweeps.md), ``trials`` how many points to evaluate, ``sampler`` and ``seed`` how they are proposed, ``cost``
    the cost table of estimates. ``grid``: run the whole grid as well; None for small ones only. ``stage`` is called
    with what goes on, ``report`` with how many points there are. Raises InputError for bad input.
    """
    checked = specified(wanted)
    check(checked, wanted)
    place = results_file(checked, wanted.output)
    with going_on_in(place):
        return explore_grid(checked, place, wanted)


explore = door("explore", ExploreRequest, ExploreRequest, explore_requested)
