"""A scheduled region: its steps in stream order, and where their scratchpad buffers lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc.emission.emit import lifetimes
from byoc.emission.memplan import Request, check_plan, plan
from byoc.emission.steps import Step
from byoc.scheduling.stream import Memory


@dataclass(frozen=True, eq=False)
class Scheduled:
    """Steps in stream order with the scratchpad plan; ``memory`` holds the constants that they load."""

    steps: tuple[Step, ...]
    memory: Memory
    requests: tuple[Request, ...]
    addresses: tuple[int, ...]


def place(timed: Sequence[tuple[int, Step]], memory: Memory) -> Scheduled | None:
    """The steps, with times as in :func:`lifetimes`, and a checked plan for their buffers; None where it fails."""
    arch = memory.arch
    requests = lifetimes(timed, memory.scratch)
    addresses = plan(requests, arch.sram_bytes, arch.alignment)
    if addresses is None:
        return None
    check_plan(requests, addresses, arch.sram_bytes, arch.alignment)
    return Scheduled(tuple(step for _, step in timed), memory, requests, addresses)
