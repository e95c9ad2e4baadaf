"""The event-driven engine against the tick model: every difference of a case, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from dla_sim.device import Device, Engine
from dla_sim.engine.accounts import account, explain
from dla_sim.engine.simulation import simulate
from dla_sim.engine.times import compute_times
from dla_sim.timing import Timing
from isa.program import Program
from tests.dla_sim.cases import Case, build_program
from tests.dla_sim.program_generator import ISA, random_case
from tests.dla_sim.shrink import shrink
from tests.dla_sim.tick import TickResult, run_ticks


@dataclass(frozen=True)
class Observed:
    """Observed run: total cycles, cycles by unit and cause, and spans of all commands.

    Zeros and ``OP_END`` are left out.
    """

    total: int
    causes: Mapping[str, Mapping[str, int]]
    spans: tuple[tuple[int, int], ...]
    kinds: Mapping[str, int]
    layers: Mapping[str, int]


ENGINES: Mapping[str, Engine] = {"event": simulate, "recurrence": compute_times}


def observe(engine: Engine, program: Program, timing: Timing) -> Observed:
    """A run of an engine of ``dla_sim`` with the accounts of its trace."""
    loaded = Device(program.arch, timing).load(program)
    times = engine(loaded.workload)
    causes = explain(loaded.workload, times)
    units = {unit: _without_zeros(row) for unit, row in causes.units.items()}
    spans = tuple(zip(times.start.tolist(), times.end.tolist(), strict=True))
    accounts = account(loaded.prepared.labels, causes, times)
    layers = _without_zeros({layer.name: layer.cycles for layer in accounts.layers})
    return Observed(times.total, units, spans, _without_zeros(accounts.kinds), layers)


def _without_zeros(row: Mapping[str, int]) -> dict[str, int]:
    return {name: cycles for name, cycles in row.items() if cycles}


def expectation(result: TickResult) -> Observed:
    """The tick model's result in the same form."""
    kinds: Counter[str] = Counter()
    layers: Counter[str] = Counter()
    for (kind, layer), cycles in result.kinds.items():
        kinds[kind] += cycles
        layers[layer] += cycles
    if len(result.spans) == 1:
        layers.clear()  # a program of OP_END alone has no layers
    return Observed(result.total, result.causes, result.spans[:-1], dict(kinds), dict(layers))


def differences(engine: Engine, program: Program, timing: Timing, expected: Observed) -> list[str]:
    """Return the differences between ``engine`` and the tick model.

    An error that it raises is a difference.
    """
    try:
        observed = observe(engine, program, timing)
    except Exception as error:
        return [f"the engine raises {type(error).__name__}: {error}"]
    found = []
    if observed.total != expected.total:
        found.append(f"total: {observed.total}, tick model {expected.total}")
    for unit, causes in expected.causes.items():
        if observed.causes[unit] != causes:
            found.append(f"causes of {unit}: {observed.causes[unit]}, tick model {causes}")
    for number, (span, right) in enumerate(zip_longest(observed.spans, expected.spans)):
        if span != right:
            found.append(f"command {number}: {span}, tick model {right}")
    if observed.kinds != expected.kinds:
        found.append(f"kinds: {observed.kinds}, tick model {expected.kinds}")
    if observed.layers != expected.layers:
        found.append(f"layers: {observed.layers}, tick model {expected.layers}")
    return found


def case_differences(case: Case) -> tuple[TickResult, list[str]]:
    """The tick model's result of a case, and the differences of all engines from it."""
    program = build_program(case)
    timing = Timing(**case.timing)
    result = run_ticks(program, timing)
    found = []
    for name, engine in ENGINES.items():
        found += [
            f"{name} engine: {text}"
            for text in differences(engine, program, timing, expectation(result))
        ]
    return result, found


def compare_seeds(seeds: Iterable[int], isa: str = ISA) -> Iterable[TickResult]:
    """The tick model's results.

    Raises AssertionError with seed and smallest case at the first that differs.
    """
    for seed in seeds:
        case = random_case(seed, isa)
        expected, found = case_differences(case)
        if found:
            raise AssertionError(explain_failure(seed, case, found))
        yield expected


def explain_failure(seed: int, drawn: Case, found: list[str]) -> str:
    """Report a failing seed: its differences, and the smallest case that still differs.

    The differences of that case follow.
    """
    case = shrink(drawn, lambda candidate: bool(case_differences(candidate)[1]))
    shrunk = case_differences(case)[1]
    return "\n".join(
        [f"seed {seed} differs:", *found, "shrunk to:", case.describe(), "which differs:", *shrunk]
    )
