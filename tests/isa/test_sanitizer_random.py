"""Random streams: the sanitizer finds exactly what brute force finds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from isa.instruction import Command, Unit
from isa.program import Program
from isa.sanitizer import inspect
from isa.sanitizer.findings import CommandStream, SanitizerFinding, stream_of
from isa.sanitizer.order import compute_order, pair_tokens
from tests.isa.random_streams import random_stream
from tests.isa.stream_oracle import Truth, completion_order, graph, judge, reachable

SEEDS = 3000
BLOCK = 500
TOKEN_KINDS = {"token underflow", "tokens left over", "token too late"}
NEIGHBOUR = {"previous": -1, "next": 1}


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(BLOCK, SEEDS, BLOCK))],
)
def test_findings_are_those_of_brute_force(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        stream = stream_of(random_stream(seed))
        truth = judge(stream.program, stream.commands, stream.operands)
        findings = inspect(stream)
        met.update({str(finding.kind) for finding in findings} or {"nothing"})
        try:
            _compare(stream, truth, findings, seed)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}: {[finding.text for finding in findings]} {truth}"
            ) from error
    assert len(met) >= 13, met


def _compare(
    stream: CommandStream, truth: Truth, findings: tuple[SanitizerFinding, ...], seed: int
) -> None:
    kinds = {finding.kind for finding in findings}
    assert truth.legal == (not kinds & TOKEN_KINDS)
    assert _order_agrees(stream, truth)
    assert _commands(stream, findings, "out of range") == truth.outside
    assert _commands(stream, findings, "protected write") == truth.protected
    assert _commands(stream, findings, "misaligned") == truth.misaligned
    _compare_races(stream, truth, findings)
    if not truth.races:
        assert _commands(stream, findings, "read of unwritten bytes") == truth.unwritten
        assert bool(truth.missing) == ("output not written" in kinds)
    stands_still = not _ends(stream.commands, 1, seed)
    assert stands_still == bool(kinds & {"deadlock", "token underflow"})
    assert not (truth.legal and stands_still)
    assert _ends(stream.commands, len(stream.commands) + 1, seed) == (not truth.stuck)
    levels = {finding.level for finding in findings}
    assert truth.wrong == ("error" in levels)


def _order_agrees(stream: CommandStream, truth: Truth) -> bool:
    order = compute_order(stream.commands, pair_tokens(stream.commands).givers)
    predecessors = graph(stream.commands)
    able = completion_order(predecessors)
    before = reachable(predecessors, able)
    pairs = [(one, other) for one in able for other in able if one != other]
    return (
        sorted(order.linear) == sorted(able)
        and truth.stuck.isdisjoint(able)
        and all(
            order.is_before(one, other) == bool(before[other] >> one & 1) for one, other in pairs
        )
    )


def _compare_races(
    stream: CommandStream, truth: Truth, findings: tuple[SanitizerFinding, ...]
) -> None:
    """Check that reported races are races and that every other race ends with a reported one."""
    numbers = {command.index: number for number, command in enumerate(stream.commands)}
    races = [finding for finding in findings if finding.kind.endswith("race")]
    reported = {tuple(numbers[site.word] for site in race.sites) for race in races}
    assert reported <= truth.races
    units = [command.unit for command in stream.commands]
    for early, late in truth.races:
        assert any(
            (units[one], units[other]) == (units[early], units[late])
            and one >= early
            and other <= late
            for one, other in reported
        )
    for race in races:
        assert _touches(stream, numbers[race.sites[0].word], race)
        assert _touches(stream, numbers[race.sites[1].word], race)


def _touches(stream: CommandStream, number: int, race: SanitizerFinding) -> bool:
    """Return True if the command touches every byte of the range reported."""
    item = stream.operands[number]
    touched = {
        byte
        for access in (*item.reads, *item.writes)
        if access.space == race.space
        for low, high in access.runs()
        for byte in range(low, high)
    }
    return all(byte in touched for low, high in race.ranges for byte in range(low, high))


def _commands(
    stream: CommandStream, findings: tuple[SanitizerFinding, ...], kind: str
) -> frozenset[int]:
    numbers = {command.index: number for number, command in enumerate(stream.commands)}
    return frozenset(
        numbers[site.word] for finding in findings if finding.kind == kind for site in finding.sites
    )


def _ends(commands: tuple[Command, ...], depth: int, seed: int) -> bool:
    """Return True if a machine with queues of ``depth`` and random moves reaches the end."""
    rng = random.Random(seed)
    queues: dict[Unit, list[Command]] = {unit: [] for unit in Unit}
    tokens: Counter[tuple[int, int]] = Counter()
    fetched = 0
    done = 0
    while True:
        moves: list[Unit | None] = [
            unit for unit, queue in queues.items() if queue and _can_start(queue[0], tokens)
        ]
        if fetched < len(commands) and len(queues[commands[fetched].unit]) < depth:
            moves.append(None)
        if not moves:
            return done == len(commands)
        unit = rng.choice(moves)
        if unit is None:
            queues[commands[fetched].unit].append(commands[fetched])
            fetched += 1
        else:
            _execute(queues[unit].pop(0), tokens)
            done += 1


def _can_start(command: Command, tokens: Counter[tuple[int, int]]) -> bool:
    unit = command.unit.value
    return all(
        tokens[unit + step, unit] > 0
        for side, step in NEIGHBOUR.items()
        if getattr(command, f"pop_{side}")
    )


def _execute(command: Command, tokens: Counter[tuple[int, int]]) -> None:
    unit = command.unit.value
    for side, step in NEIGHBOUR.items():
        tokens[unit + step, unit] -= getattr(command, f"pop_{side}")
        tokens[unit, unit + step] += getattr(command, f"push_{side}")


def test_the_findings_depend_on_the_program_alone() -> None:
    def texts(program: Program) -> list[str]:
        return [finding.text for finding in inspect(stream_of(program))]

    for seed in range(50):
        assert texts(random_stream(seed)) == texts(random_stream(seed))
