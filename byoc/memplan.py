"""Scratchpad planning: addresses for buffers whose lifetimes are known, and a checker that shares no code with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa.errors import InputError


@dataclass(frozen=True)
class Request:
    """A buffer of ``nbytes`` bytes that is live from step ``first`` to step ``last``, both included."""

    name: str
    nbytes: int
    first: int
    last: int


def plan(requests: Sequence[Request], capacity: int, alignment: int) -> tuple[int, ...] | None:
    """An address for every request, or None where first fit finds no place within ``capacity`` bytes.

    Largest first, each at the lowest aligned address that is free during its whole life. Deterministic.
    """
    order = sorted(range(len(requests)), key=lambda index: (-requests[index].nbytes, requests[index].first, index))
    addresses = [0] * len(requests)
    placed: list[tuple[int, int, int, int]] = []  # address, end, first, last; sorted by address
    for index in order:
        request = requests[index]
        address = _lowest_gap(placed, request, alignment)
        if address + request.nbytes > capacity:
            return None
        addresses[index] = address
        placed.append((address, address + request.nbytes, request.first, request.last))
        placed.sort()
    return tuple(addresses)


def _lowest_gap(placed: list[tuple[int, int, int, int]], request: Request, alignment: int) -> int:
    address = 0
    for start, end, first, last in placed:
        if first > request.last or last < request.first:
            continue
        if address + request.nbytes <= start:
            break
        if end > address:
            address = -(-end // alignment) * alignment
    return address


def peak_bytes(requests: Sequence[Request], addresses: Sequence[int]) -> int:
    """One past the highest byte that a plan uses."""
    return max((address + request.nbytes for request, address in zip(requests, addresses, strict=True)), default=0)


def check_plan(requests: Sequence[Request], addresses: Sequence[int], capacity: int, alignment: int) -> None:
    """Raises InputError naming the buffers when a plan is not aligned, leaves the memory, or overlaps live buffers."""
    if len(requests) != len(addresses):
        raise InputError(f"the plan has {len(addresses)} addresses for {len(requests)} buffers")
    for request, address in zip(requests, addresses, strict=True):
        if address % alignment:
            raise InputError(f"buffer '{request.name}' at {address:#x} is not aligned to {alignment} bytes")
        if address < 0 or address + request.nbytes > capacity:
            raise InputError(f"buffer '{request.name}' at {address:#x} leaves the {capacity} bytes of SRAM")
    by_start = sorted(range(len(requests)), key=lambda index: requests[index].first)
    live: list[int] = []
    for index in by_start:
        request, address = requests[index], addresses[index]
        live = [other for other in live if requests[other].last >= request.first]
        for other in live:
            low = max(address, addresses[other])
            if low < min(address + request.nbytes, addresses[other] + requests[other].nbytes):
                raise InputError(
                    f"buffers '{requests[other].name}' and '{request.name}' are both live at step {request.first} "
                    f"and share byte {low:#x}"
                )
        live.append(index)
