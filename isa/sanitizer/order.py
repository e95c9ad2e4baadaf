"""Order of commands under all latencies and queue depths; checks of tokens and races.

Two rules order commands: each unit executes its commands in order, and a pop waits for the
completion of the command that pushes its token. Stream order only says when commands enter their
queues. A vector clock counts the completed commands of each unit; a count identifies a set, because
each unit is in order.

A token counter between two units has one giver and one taker, both in order: the n-th pop takes the
n-th push. A stream is legal if every pop comes after its push and no push is left over. It then
never deadlocks at any queue depth, because the oldest unfinished command can always run. Pops and
pushes without a partner, pops before their push, and cycles of waits are findings.

A race: two commands of different units access a common byte, at least one writes it, and they are
not ordered. Clocks only grow along a unit, so the commands of another unit that are unordered with
a command are contiguous in its queue. Pairs from these ranges are first tested by hulls, over whole
arrays, and exactly if the hulls overlap.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isa.access import Access, Hulls, Int64, Range, overlap
from isa.instruction import NEXT, PREVIOUS, Command, Operands, Unit
from isa.sanitizer.findings import CommandStream, Kind, SanitizerFinding, Site, ranges_text

Queue = tuple[Unit, Unit]


def list_awaited_units(command: Command) -> tuple[Unit, ...]:
    return _sides(command, command.pop_previous, command.pop_next)


def list_notified_units(command: Command) -> tuple[Unit, ...]:
    """Return the units to which a command pushes a token when it completes."""
    return _sides(command, command.push_previous, command.push_next)


def _sides(command: Command, previous: bool, following: bool) -> tuple[Unit, ...]:
    sides = (previous, PREVIOUS), (following, NEXT)
    return tuple(neighbours[command.unit] for present, neighbours in sides if present)


MISSING = -1
"""Stands for the command that pushes a token if no command pushes it."""


@dataclass(frozen=True, eq=False)
class Pairing:
    """Partners of token pushes and pops between commands.

    ``givers[i]`` are the commands that push the tokens that command i pops; ``left`` are unmatched
    pushes by counter.
    """

    givers: tuple[tuple[int, ...], ...]
    left: dict[Queue, list[int]]


def pair_tokens(commands: Sequence[Command]) -> Pairing:
    """Match each token pop with its push; also return the pushes without a pop."""
    pushes: dict[Queue, list[int]] = defaultdict(list)
    for number, command in enumerate(commands):
        for taker in list_notified_units(command):
            pushes[command.unit, taker].append(number)
    taken: dict[Queue, int] = defaultdict(int)
    givers: list[tuple[int, ...]] = []
    for command in commands:
        found = []
        for giver in list_awaited_units(command):
            queue = giver, command.unit
            given = pushes[queue]
            position = taken[queue]
            found.append(given[position] if position < len(given) else MISSING)
            taken[queue] += 1
        givers.append(tuple(found))
    left = {
        queue: given[taken[queue] :] for queue, given in pushes.items() if taken[queue] < len(given)
    }
    return Pairing(tuple(givers), left)


def check_tokens(stream: CommandStream, pairing: Pairing) -> list[SanitizerFinding]:
    """Return findings for tokens that are missing, arrive late or remain at the end.

    A token is late if its push comes after its pop in the stream.
    """
    findings: list[SanitizerFinding] = []
    for number, givers in enumerate(pairing.givers):
        units = list_awaited_units(stream.commands[number])
        for unit, giver in zip(units, givers, strict=True):
            if giver == MISSING:
                findings.append(_underflow(stream, number, unit))
            elif giver > number:
                findings.append(_too_late(stream, number, giver))
    findings += [
        _make_left_over_finding(stream, queue, pushes) for queue, pushes in pairing.left.items()
    ]
    end = stream.program.commands[-1]
    if list_awaited_units(end) or list_notified_units(end):
        findings.append(
            SanitizerFinding(
                "token on OP_END", f"OP_END at word {end.index} exchanges tokens; it has no unit"
            )
        )
    return findings


def _underflow(stream: CommandStream, number: int, unit: Unit) -> SanitizerFinding:
    site = stream.site(number)
    return SanitizerFinding(
        "token underflow",
        f"{site} waits for a token from {unit.name} that no command gives; the program would never "
        "end",
        (site,),
    )


def _too_late(stream: CommandStream, number: int, giver: int) -> SanitizerFinding:
    taker = stream.site(number)
    given_by = stream.site(giver)
    return SanitizerFinding(
        "token too late",
        f"{taker} waits for the token of {given_by}, which comes later in the stream",
        (taker, given_by),
    )


def _make_left_over_finding(
    stream: CommandStream, queue: Queue, pushes: Sequence[int]
) -> SanitizerFinding:
    giver, taker = queue
    sites = tuple(stream.site(number) for number in pushes)
    return SanitizerFinding(
        "tokens left over",
        f"{len(pushes)} tokens from {giver.name} to {taker.name} are left at the end; the first "
        "that nobody waits for "
        f"is that of {sites[0]}",
        sites,
    )


@dataclass(frozen=True)
class Standstill:
    """State of a command stream in which no unit can proceed.

    ``heads[u]`` is the command that fills the queue of unit u, None if it is idle; ``blocked`` is
    the command that the command processor cannot enqueue, None if all are enqueued; ``done`` are
    the completed commands.
    """

    heads: tuple[int | None, ...]
    blocked: int | None
    done: frozenset[int]


def check_deadlock(
    stream: CommandStream, pairing: Pairing, stuck_at_any_depth: bool
) -> list[SanitizerFinding]:
    """Return a finding for a deadlock of the stream with queues of depth 1.

    The finding is the cycle of waits.

    None if it completes.

    Every queue contains one command. A counter has one giver and one taker, so the completed
    commands do not depend on the order of steps, and deeper queues can only complete more. A wait
    for a token that no command pushes is not a cycle; another check reports it.
    """
    if all(
        giver < number
        for number, givers in enumerate(pairing.givers)
        for giver in givers
        if giver != MISSING
    ):
        return []
    units = [command.unit.value for command in stream.commands]
    end = run_with_single_entries(units, pairing.givers)
    cycle = next(
        (
            found
            for head in end.heads
            if head is not None
            for found in [_cycle(units, pairing, end, head)]
        ),
        [],
    )
    if not cycle:
        return []
    sites = [stream.site(number) for number in cycle]
    depth = "queues of any depth" if stuck_at_any_depth else "queues of depth 1"
    waits = "; ".join(
        _wait_text(units, pairing, end, cycle, sites, place) for place in range(len(cycle))
    )
    return [SanitizerFinding("deadlock", f"with {depth}: {waits}", tuple(sites))]


def run_with_single_entries(units: Sequence[int], givers: Sequence[Sequence[int]]) -> Standstill:
    """Execute a command stream with one entry per queue until no unit can proceed."""
    heads: list[int | None] = [None, None, None]
    done: set[int] = set()
    fetched = 0
    moved = True
    while moved:
        moved = False
        while fetched < len(units) and heads[units[fetched]] is None:
            heads[units[fetched]] = fetched
            fetched += 1
            moved = True
        for unit, head in enumerate(heads):
            if head is not None and all(giver in done for giver in givers[head]):
                done.add(head)
                heads[unit] = None
                moved = True
    return Standstill(tuple(heads), fetched if fetched < len(units) else None, frozenset(done))


def _cycle(units: Sequence[int], pairing: Pairing, end: Standstill, start: int) -> list[int]:
    """Follow the waits of blocked commands from ``start`` and return the cycle that they reach.

    Return an empty list if they reach none.
    """
    path: list[int] = []
    current = start
    while current not in path:
        path.append(current)
        following = _find_awaited(units, pairing, end, current)
        if following is None:
            return []
        current = following
    return path[path.index(current) :]


def _find_awaited(
    units: Sequence[int], pairing: Pairing, end: Standstill, number: int
) -> int | None:
    """Return the command that a blocked command waits for.

    It is the giver of a token, the blocked word, or the head of its queue.
    """
    if number in end.heads:
        missing = [giver for giver in pairing.givers[number] if giver not in end.done]
        return None if MISSING in missing else missing[0]
    return end.heads[units[number]] if number == end.blocked else end.blocked


def _wait_text(
    units: Sequence[int],
    pairing: Pairing,
    end: Standstill,
    cycle: Sequence[int],
    sites: Sequence[Site],
    place: int,
) -> str:
    number = sites[place]
    following = sites[(place + 1) % len(sites)]
    if cycle[place] in end.heads:
        return f"{number} waits for the token of word {following.word}"
    if cycle[place] == end.blocked:
        return f"{number} waits for room in the queue of {number.unit} behind word {following.word}"
    return f"{number} waits behind word {following.word} in the stream"


_PAIRS_AT_ONCE = 1 << 20
_UNIT_PAIRS = ((0, 1), (0, 2), (1, 2))
_SIDES: tuple[tuple[Kind, str, str, str], ...] = (
    ("read-after-write race", "writes", "reads", "reads {} that {} writes"),
    ("write-after-read race", "reads", "writes", "writes {} that {} reads"),
    ("write-after-write race", "writes", "writes", "writes {} that {} writes too"),
)
"""Kind, access of the earlier command, access of the later one, and message about the later one."""


@dataclass(frozen=True, eq=False)
class Order:
    """Happens-before of the commands that can complete with queues of any depth.

    ``linear`` contains them in an order that respects happens-before, which is stream order for a
    legal stream. ``unit`` and ``ordinal`` (from 1) give every command's position in its unit's
    queue. ``known[i, u]`` is the number of commands of unit u that are complete when command i
    starts. ``members[u]`` are the commands of unit u that can complete, in order.
    """

    linear: tuple[int, ...]
    unit: Int64
    ordinal: Int64
    known: Int64
    members: tuple[Int64, ...]

    def is_before(self, first: int, second: int) -> bool:
        """Return True if command ``first`` always completes before command ``second`` starts.

        Both must be able to complete.
        """
        return bool(self.known[second, self.unit[first]] >= self.ordinal[first])


def compute_order(commands: Sequence[Command], givers: Sequence[Sequence[int]]) -> Order:
    """Return the order of commands that holds under all timings.

    ``givers`` push the tokens that each command pops.
    """
    units = [command.unit.value for command in commands]
    queues: tuple[list[int], ...] = ([], [], [])
    ordinal = [0] * len(units)
    for number, unit in enumerate(units):
        queues[unit].append(number)
        ordinal[number] = len(queues[unit])
    known = [[0, 0, 0] for _ in units]
    linear = _complete(queues, ordinal, givers, known)
    done = [sum(1 for number in linear if units[number] == unit) for unit in range(3)]
    members = tuple(
        np.array(queue[:count], dtype=np.int64) for queue, count in zip(queues, done, strict=True)
    )
    table = np.array(known, dtype=np.int64).reshape(-1, 3)
    return Order(
        tuple(linear), np.array(units, np.int64), np.array(ordinal, np.int64), table, members
    )


def _complete(
    queues: Sequence[Sequence[int]],
    ordinal: Sequence[int],
    givers: Sequence[Sequence[int]],
    known: list[list[int]],
) -> list[int]:
    """Complete all commands that can complete, in stream order if possible.

    Fill in the clocks ``known`` and return the order.
    """
    linear: list[int] = []
    heads = [0, 0, 0]
    finished: dict[int, list[int]] = {}  # clock at completion
    current = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
    while True:
        ready = [
            (queue[head], unit)
            for unit, (queue, head) in enumerate(zip(queues, heads, strict=True))
            if head < len(queue)
            and all(giver != MISSING and giver in finished for giver in givers[queue[head]])
        ]
        if not ready:
            return linear
        number, unit = min(ready)
        clock = current[unit]
        for giver in givers[number]:
            clock = [max(pair) for pair in zip(clock, finished[giver], strict=True)]
        known[number] = clock
        finished[number] = current[unit] = [*clock[:unit], ordinal[number], *clock[unit + 1 :]]
        heads[unit] += 1
        linear.append(number)


def check_races(
    stream: CommandStream, operands: Sequence[Operands], order: Order
) -> list[SanitizerFinding]:
    """Return findings for races between commands without a defined order.

    Ordering the reported pairs orders every pair.

    Of racing pairs with the same kind and units, a pair that encloses another in the stream is
    omitted: ordering the inner pair also orders the outer one.
    """
    hulls = Hulls([item.reads for item in operands], [item.writes for item in operands])
    suspects: list[tuple[int, int]] = []
    for first, second in _UNIT_PAIRS:
        for left, right in _find_unordered(order, first, second):
            hit = hulls.meet(left, right)
            suspects += zip(left[hit].tolist(), right[hit].tolist(), strict=True)
    latest: dict[tuple[Kind, int, int], int] = {}
    findings = []
    pairs = sorted(
        ((min(pair), max(pair)) for pair in suspects), key=lambda pair: (pair[1], -pair[0])
    )
    for early, late in pairs:
        for kind, before, after, words in _SIDES:
            queue = kind, int(order.unit[early]), int(order.unit[late])
            if latest.get(queue, -1) >= early:
                continue
            found = _first_overlap(getattr(operands[early], before), getattr(operands[late], after))
            if found is not None:
                latest[queue] = early
                findings.append(_race(stream, kind, words, early, late, *found))
    return findings


def _find_unordered(order: Order, first: int, second: int) -> Iterator[tuple[Int64, Int64]]:
    """Yield all unordered pairs of commands of two units, in parts."""
    left = order.members[first]
    right = order.members[second]
    # commands of `second` that are complete before each of `left` starts
    low = order.known[left, second]
    # those it precedes
    high = np.searchsorted(order.known[right, first], np.arange(1, len(left) + 1), side="left")
    counts = high - low
    ends = np.cumsum(counts)
    start = 0
    while start < len(left):
        stop = max(
            start + 1, int(np.searchsorted(ends, ends[start] + _PAIRS_AT_ONCE, side="right"))
        )
        part = counts[start:stop]
        offsets = np.arange(part.sum()) - np.repeat(np.cumsum(part) - part, part)
        yield np.repeat(left[start:stop], part), right[np.repeat(low[start:stop], part) + offsets]
        start = stop


def _first_overlap(early: Sequence[Access], late: Sequence[Access]) -> tuple[Access, Range] | None:
    for access in early:
        for other in late:
            found = overlap(access, other)
            if found is not None:
                return access, found
    return None


def _race(
    stream: CommandStream,
    kind: Kind,
    words: str,
    early: int,
    late: int,
    access: Access,
    found: Range,
) -> SanitizerFinding:
    one = stream.site(early)
    other = stream.site(late)
    bytes_text = ranges_text(access.space, [found])
    message = f"{other} {words.format(bytes_text, one)}; neither waits for the other"
    return SanitizerFinding(kind, message, (one, other), access.space, (found,))
