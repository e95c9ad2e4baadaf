"""Scratchpad planning: addresses for buffers with known lifetimes, and a checker of plans.

The checker is independent of the planner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import NamedTuple

from byoc.estimate.constants import ATTEMPTS, NEIGHBOURS, REQUESTS, SPAN
from isa.errors import InputError


@dataclass(frozen=True)
class Request:
    """Scratchpad buffer of ``nbytes`` bytes with a lifetime.

    The buffer is live from step ``first`` to step ``last``, inclusive. ``apart``: commands read the
    buffer together with four other operands, but a bank serves only four (docs/machine.md, section
    2). ``beside``: indices of the requests that the same commands access; used if a bank serves one
    operand at a time (section 12). ``alone``: such a request prefers banks without live buffers.
    ``split``: offset of the second of two operands of a command in the buffer, such as of weights
    after their records; the request prefers an address where the second begins a bank. 0: none.
    """

    name: str
    nbytes: int
    first: int
    last: int
    apart: bool = False
    beside: frozenset[int] = frozenset()
    alone: bool = False
    split: int = 0


def plan(
    requests: Sequence[Request],
    capacity: int,
    alignment: int,
    bank: int = 0,
    *,
    one_operand: bool = False,
) -> tuple[int, ...] | None:
    """Return an address for every request, or None if the requests do not fit.

    Several orders are tried; None means that none of them fits ``capacity`` bytes. Requests are
    placed largest first, each at the lowest aligned address that is free during its whole life. A
    request ``apart`` prefers a bank that few live buffers use. A request with ``beside`` prefers
    banks that none of those buffers uses. If a request finds no place, it moves to the front of the
    order and placement starts over.

    Args:
        requests: the buffers.
        capacity: bytes of the scratchpad.
        alignment: bytes; addresses are multiples of it.
        bank: bytes of a bank; 0 ignores banks.
        one_operand: whether a bank serves one operand at a time.
    """
    found = plan_apart(requests, capacity, alignment, bank, one_operand=one_operand)
    if found is None:
        found = plan_together(requests, capacity, alignment, bank, one_operand=one_operand)
    return found


def plan_apart(
    requests: Sequence[Request], capacity: int, alignment: int, bank: int, *, one_operand: bool
) -> tuple[int, ...] | None:
    """Return addresses that keep the operands of a command in separate banks, or None.

    The plan is otherwise made as by :func:`plan`. None if no request is ``apart`` or has a
    ``beside``, or if the requests do not fit.
    """
    if not bank or not any(request.apart or request.beside for request in requests):
        return None
    return _plan(requests, capacity, alignment, _Banks(bank, True, one_operand))


def plan_together(
    requests: Sequence[Request], capacity: int, alignment: int, bank: int, *, one_operand: bool
) -> tuple[int, ...] | None:
    """Return addresses that may put operands of one command in the same bank, or None."""
    return _plan(requests, capacity, alignment, _Banks(bank, False, one_operand))


class _Banks(NamedTuple):
    """Scratchpad banks of ``nbytes`` bytes each, and the rules for sharing a bank.

    With 0 bytes, banks are ignored. ``alone``: other buffers avoid the banks of a buffer that is
    ``apart``. ``one_operand``: a bank serves one operand at a time.
    """

    nbytes: int
    alone: bool
    one_operand: bool

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Numbers of buffers that may share a bank with one that is ``apart``, best first."""
        return NEIGHBOURS if self.alone else NEIGHBOURS[-1:]

    def find_begin(self, request: Request, end: int, capacity: int) -> int:
        """Return where a buffer may begin after another buffer that ends at address ``end``.

        A buffer that is ``apart`` reserves the rest of its last bank, because the smaller operands
        of the same commands are placed after it and would share that bank. Where a bank serves one
        operand, only a buffer larger than a bank reserves it; :func:`own_gap` separates the others.
        """
        if not (self.alone and request.apart and self.nbytes):
            return end
        keeps = request.nbytes > self.nbytes or not self.one_operand
        return min(-(-end // self.nbytes) * self.nbytes, capacity) if keeps else end


def _plan(
    requests: Sequence[Request], capacity: int, alignment: int, banks: _Banks
) -> tuple[int, ...] | None:
    order = sorted(
        range(len(requests)),
        key=lambda index: (-requests[index].nbytes, requests[index].first, index),
    )
    addresses: list[int | None] = [None] * len(requests)
    steps = 1 + max((request.last for request in requests), default=0)
    front: tuple[int, ...] = ()  # the requests moved to the front, which determine the order
    tried = {front}
    for _ in range(max(ATTEMPTS, len(requests) // REQUESTS)):
        failed = _first_fit(requests, order, steps, capacity, alignment, banks, addresses)
        if failed is None:
            return tuple([address for address in addresses if address is not None])
        front = (failed, *(index for index in front if index != failed))
        if front in tried or failed == order[0]:
            return None  # the orders that follow repeat
        tried.add(front)
        order.remove(failed)
        order.insert(0, failed)
    return None


def _first_fit(
    requests: Sequence[Request],
    order: Sequence[int],
    steps: int,
    capacity: int,
    alignment: int,
    banks: _Banks,
    addresses: list[int | None],
) -> int | None:
    """Assign addresses to requests in ``order``; return the first that does not fit, or None.

    ``addresses`` are those of the previous order, which differs only in its first request; None if
    unknown. A request keeps its address if no request that is live at the same time has changed
    before it. ``steps``: the number of steps in which requests live.
    """
    placed = _Placed()
    changed = bytearray(steps)  # a flag for each step
    for number, index in enumerate(order):
        request = requests[index]
        first, end = request.first, request.last + 1
        known = address = addresses[index]
        if address is None or changed.find(1, first, end) >= 0:
            address = _gap(request, placed, capacity, alignment, banks)
        if address + request.nbytes > capacity:
            for later in order[number:]:
                addresses[later] = None
            return index
        if address != known:
            addresses[index] = address
            changed[first:end] = b"\1" * (end - first)
        behind = banks.find_begin(request, address + request.nbytes, capacity)
        placed.add(Taken(address, behind, first, request.last, index))
    return None


def _gap(request: Request, placed: _Placed, capacity: int, alignment: int, banks: _Banks) -> int:
    """Return a free address for a requested buffer among the buffers already placed.

    It may exceed the capacity.
    """
    nearby = placed.list_around(request.first, request.last)
    address = lowest_gap(nearby, request.nbytes, request.first, request.last, alignment)
    if request.beside and banks.alone and banks.nbytes:
        return own_gap(nearby, request, capacity, alignment, banks.nbytes, address)
    if request.apart and banks.nbytes:
        return _quiet_gap(nearby, request, capacity, alignment, banks, address)
    return address


class Taken(NamedTuple):
    """Scratchpad bytes that buffer ``buffer`` occupies from step ``first`` to step ``last``."""

    address: int
    end: int
    first: int
    last: int
    buffer: int


class _Placed:
    """Placed scratchpad buffers, sorted by address and indexed by span of steps.

    The index saves time because most buffers live for few steps.
    """

    def __init__(self) -> None:
        self._all: list[Taken] = []
        self._spans: dict[int, list[Taken]] = {}

    def add(self, taken: Taken) -> None:
        insort(self._all, taken)
        for span in range(taken.first // SPAN, taken.last // SPAN + 1):
            insort(self._spans.setdefault(span, []), taken)

    def list_around(self, first: int, last: int) -> Sequence[Taken]:
        """Return placed buffers that include all that are live from step ``first`` to ``last``."""
        start = first // SPAN
        end = last // SPAN
        if start == end:
            return self._spans.get(start, ())
        if end - start >= len(self._all):
            return self._all
        spans = [self._spans[span] for span in range(start, end + 1) if span in self._spans]
        if len(self._all) <= sum(map(len, spans)):
            return self._all
        return sorted(set().union(*spans))


def lowest_gap(
    taken: Sequence[Taken], nbytes: int, first: int, last: int, alignment: int, address: int = 0
) -> int:
    """Return the lowest aligned address with ``nbytes`` bytes free from ``first`` to ``last``.

    The address is at or above ``address``. ``taken`` is sorted by address. ``address`` may be the
    end of a bank, which need not be aligned.
    """
    address = -(-address // alignment) * alignment
    for start, end, born, died, _ in taken:
        if born > last or died < first:
            continue
        if address + nbytes <= start:
            break
        if end > address:
            address = -(-end // alignment) * alignment
    return address


def _quiet_gap(
    placed: Sequence[Taken],
    request: Request,
    capacity: int,
    alignment: int,
    banks: _Banks,
    lowest: int,
) -> int:
    """Return the lowest free scratchpad address in banks that few live buffers use.

    If there is none, return ``lowest``.
    """
    lives = [one for one in placed if one.first <= request.last and one.last >= request.first]
    bank = banks.nbytes
    for most in banks.neighbours:
        address = lowest
        while address + request.nbytes <= capacity:
            start = address // bank * bank
            end = -(-(address + request.nbytes) // bank) * bank
            if sum(one.address < end and start < one.end for one in lives) <= most:
                return address
            address = lowest_gap(
                placed, request.nbytes, request.first, request.last, alignment, end
            )
    return lowest


def own_gap(
    taken: Sequence[Taken], request: Request, capacity: int, alignment: int, bank: int, lowest: int
) -> int:
    """Return the lowest free address in banks that no buffer of ``request.beside`` uses.

    A request with ``split`` gets one where byte ``split`` begins a bank, if there are any; a
    request ``alone`` gets one in banks that no live buffer uses, if there are any. ``split`` counts
    before ``alone``. If there is no such address, return ``lowest``.
    """
    aligned = request.split % alignment == bank % alignment == 0
    splits = (request.split, 0) if aligned else (0,)
    lives = _Lives(taken, request)
    for split, alone in dict.fromkeys(product(splits, (request.alone, False))):
        ends = lives.find_banks(bank, None if alone else request.beside)
        address = _split_gap(lives, request, alignment, bank, split, lowest)
        while address + request.nbytes <= capacity:
            banks = range(address // bank, -(-(address + request.nbytes) // bank))
            behind = max([ends.get(one, 0) for one in banks], default=0)
            if not behind:
                return address
            while behind in ends and not split:
                behind = ends[behind]
            address = _split_gap(lives, request, alignment, bank, split, behind * bank)
    return lowest


class _Lives:
    """Buffers that are live at the same time as a request, for many searches of a gap."""

    def __init__(self, taken: Sequence[Taken], request: Request) -> None:
        self._lives = [
            (address, end, buffer)
            for address, end, first, last, buffer in taken
            if first <= request.last and last >= request.first
        ]
        # the largest end of the first n buffers: those up to an address are skipped
        self._ends = list(accumulate([end for _, end, _ in self._lives], max))

    def find_banks(self, bank: int, buffers: Collection[int] | None) -> dict[int, int]:
        """Return the banks that ``buffers`` use (None: all), and the bank after each buffer.

        If several buffers use a bank, it is the last one.
        """
        found: dict[int, int] = {}
        for address, end, buffer in self._lives:
            if buffers is None or buffer in buffers:
                behind = -(-end // bank)
                for one in range(address // bank, behind):
                    found[one] = max(found.get(one, 0), behind)
        return found

    def find_gap(self, nbytes: int, alignment: int, address: int) -> int:
        """Return the address that :func:`lowest_gap` returns for the request."""
        address = -(-address // alignment) * alignment
        for place in range(bisect_right(self._ends, address), len(self._lives)):
            start, end, _ = self._lives[place]
            if address + nbytes <= start:
                break
            if end > address:
                address = -(-end // alignment) * alignment
        return address


def _split_gap(
    lives: _Lives, request: Request, alignment: int, bank: int, split: int, address: int
) -> int:
    """Return the lowest free address for a request at or above ``address``.

    With ``split`` > 0, byte ``split`` of the buffer begins a bank.
    """
    while True:
        start = -(-(address + split) // bank) * bank - split if split else address
        address = lives.find_gap(request.nbytes, alignment, start)
        if not split or address == start:
            return address


def peak_bytes(requests: Sequence[Request], addresses: Sequence[int]) -> int:
    """Return the end of the highest buffer of a plan, in bytes."""
    return max(
        (address + request.nbytes for request, address in zip(requests, addresses, strict=True)),
        default=0,
    )


def check_plan(
    requests: Sequence[Request], addresses: Sequence[int], capacity: int, alignment: int
) -> None:
    """Raise InputError naming the buffer if a plan is invalid.

    A plan is invalid if a buffer is misaligned, leaves the memory or overlaps a live buffer.
    """
    if len(requests) != len(addresses):
        raise InputError(f"the plan has {len(addresses)} addresses for {len(requests)} buffers")
    for request, address in zip(requests, addresses, strict=True):
        if address % alignment:
            raise InputError(
                f"buffer '{request.name}' at {address:#x} is not aligned to {alignment} bytes"
            )
        if address < 0 or address + request.nbytes > capacity:
            raise InputError(
                f"buffer '{request.name}' at {address:#x} leaves the {capacity} bytes of SRAM"
            )
    sized = [index for index, request in enumerate(requests) if request.nbytes]
    ending = sorted(sized, key=lambda index: requests[index].last, reverse=True)
    live: list[tuple[int, int]] = []  # sorted addresses and indices of live buffers, all disjoint
    for index in sorted(sized, key=lambda index: requests[index].first):
        request = requests[index]
        address = addresses[index]
        while requests[ending[-1]].last < request.first:
            ended = ending.pop()
            del live[bisect_left(live, (addresses[ended], ended))]
        place = bisect_left(live, (address, index))
        for start, other in live[max(place - 1, 0) : place + 1]:
            low = max(address, start)
            if low < min(address + request.nbytes, start + requests[other].nbytes):
                raise InputError(
                    f"buffers '{requests[other].name}' and '{request.name}' are both live at step "
                    f"{request.first} "
                    f"and share byte {low:#x}"
                )
        live.insert(place, (address, index))
