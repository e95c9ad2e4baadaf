"""Build the steps of a region that is split over several accelerators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc.graph import Node
from byoc.splitting.bands import Bands, NodeBand
from byoc.splitting.groups import Group
from byoc.splitting.pieces import RefusedError, SplitProgram, SplitStep, Splitter


def make_steps(
    splitter: Splitter,
    groups: Sequence[tuple[list[Node], Group | str]],
    pieces_of: Callable[[Splitter, Group], list[SplitProgram]],
    storage: Bands | None = None,
) -> list[SplitStep]:
    """Return the steps of a split region: one per divided group or run of other nodes."""
    steps: list[SplitStep] = []
    waiting: list[Node] = []
    reasons: dict[str, None] = {}

    def run_whole() -> None:
        if waiting:
            nodes = tuple(waiting)
            piece = (
                splitter.whole(nodes)
                if storage is None
                else _first(splitter, storage, lambda band: band.whole(nodes))
            )
            steps.append(
                SplitStep(tuple(node.name for node in waiting), (piece,), "; ".join(reasons))
            )
            waiting.clear()
            reasons.clear()

    for nodes, shared in groups:
        try:
            if isinstance(shared, str):
                raise RefusedError(shared)
            pieces = pieces_of(splitter, shared)
        except RefusedError as error:
            waiting += nodes
            reasons[str(error)] = None
            continue
        run_whole()
        steps.append(
            SplitStep(
                tuple(node.name for node in nodes),
                tuple(pieces),
                once=_find_single_node(splitter, nodes),
            )
        )
    run_whole()
    in_bands = [name for name in splitter.region.outputs if storage and name in storage]
    if storage and in_bands:
        piece = _first(splitter, storage, lambda band: band.gather_outputs(in_bands))
        steps.append(SplitStep((), (piece,), "joining the bands of the output"))
    return steps


def _find_single_node(splitter: Splitter, nodes: Sequence[Node]) -> int | None:
    try:
        return splitter.whole(nodes).cycles
    except RefusedError:
        return None


def _first(
    splitter: Splitter, bands: Bands, make: Callable[[NodeBand], SplitProgram]
) -> SplitProgram:
    """Return the program that ``make`` builds on the first accelerator that can join bands.

    Raise RefusedError if there is none.
    """
    for number in range(len(splitter.accelerators)):
        try:
            return make(NodeBand(splitter, bands, number))
        except RefusedError as error:
            refusal = error
    raise refusal
