"""A scheduled region: its steps in stream order, and where their scratchpad buffers lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from byoc.choices import NOTHING, Choices
from byoc.scheduling.memplan import Request, check_plan, plan
from byoc.scheduling.steps import Step
from byoc.scheduling.stream import Memory


@dataclass(frozen=True, eq=False)
class Scheduled:
    """Steps in stream order with the scratchpad plan; ``memory`` holds the constants that they load.

    ``choices``: all that was chosen, so that the same choices make the same steps; nothing by the published schedule.
    ``cycles``: an estimate; ``layers``: of each layer, by name. The published schedule has none.
    """

    steps: tuple[Step, ...]
    memory: Memory
    requests: tuple[Request, ...]
    addresses: tuple[int, ...]
    choices: Choices = NOTHING
    cycles: int = 0
    layers: Mapping[str, int] = field(default_factory=dict)


def place(timed: Sequence[tuple[int, Step]], memory: Memory) -> Scheduled | None:
    """The steps, with times as in :func:`lifetimes`, and a checked plan for their buffers; None where it fails."""
    arch = memory.arch
    requests = lifetimes(timed, memory.scratch)
    addresses = plan(requests, arch.sram_bytes, arch.alignment)
    if addresses is None:
        return None
    check_plan(requests, addresses, arch.sram_bytes, arch.alignment)
    return Scheduled(tuple(step for _, step in timed), memory, requests, addresses)


def lifetimes(timed: Iterable[tuple[int, Step]], sizes: Sequence[tuple[str, int]]) -> tuple[Request, ...]:
    """The planning request of every scratchpad buffer, (name, bytes) each, live from its first to its last step.

    ``timed``: steps in stream order with a time that never falls. Buffers of steps of one time never share memory.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, step in timed:
        for pointer in step.pointers.values():
            first.setdefault(pointer.buffer, position)
            last[pointer.buffer] = position
    return tuple(
        Request(name, nbytes, first.get(index, 0), last.get(index, 0)) for index, (name, nbytes) in enumerate(sizes)
    )
