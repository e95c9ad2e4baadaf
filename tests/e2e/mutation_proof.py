"""Prove that the sanitizer rejects a mutant of a compiled program exactly if it is wrong.

``python -m tests.e2e.mutation_proof [--sample N] [--jobs N]`` makes all mutants (or N of each
family) of MobileNetV1, ``digits-cnn`` and a network with the instructions of ``v4``
(``modern_network.py``) under both schedules, judges each by brute force
(``tests/isa/stream_oracle.py``) and by execution in adversarial orders (``linear_runs.py``), prints
the tables of ``docs/verification.md`` and every disagreement, and ends with status 1 if there is
one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from byoc.compiler import compile
from byoc.importing import import_model
from experiments.models import MODELS
from isa.arch import Arch
from isa.instruction import Unit
from isa.program import Program
from isa.sanitizer import inspect
from isa.sanitizer.findings import CommandStream, SanitizerFinding, stream_of
from tests.e2e.linear_runs import Outputs, Runner, orders
from tests.e2e.modern_network import modern_network
from tests.e2e.mutants import FAMILIES, Change, Family, Mutant, changes
from tests.isa.stream_oracle import completion_order, graph, judge, reachable

PROGRAMS = (
    ("digits-cnn", "default"),
    ("digits-cnn", "seed"),
    ("mobilenet-v1", "default"),
    ("mobilenet-v1", "seed"),
    ("modern", "default"),
    ("modern", "seed"),
)
RESETS = (0, 0xA5)
PARTS = 16
"""Pieces of the work on one program, so that progress can be shown."""
Outcome = Literal[
    "killed", "suspected", "equivalent", "functional", "missed", "false alarm", "unsettled"
]
FAILURES: tuple[Outcome, ...] = ("missed", "false alarm", "unsettled")
ORDER = (
    "deadlock",
    "token underflow",
    "token too late",
    "tokens left over",
    "out of range",
    "misaligned",
    "protected write",
    "operand overwritten",
    "read-after-write race",
    "write-after-read race",
    "write-after-write race",
    "read of unwritten bytes",
    "output not written",
    "layout mismatch",
    "unused result",
    "unset register",
)
"""Findings by severity: a mutant counts under the first."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a mutant.

    ``why`` is the gravest finding, or the reason that there is none; ``text`` gives details.
    """

    family: Family
    name: str
    outcome: Outcome
    why: str
    text: str


@cache
def compiled(model: str, schedule: str) -> Program:
    """The longest program of a network: a built-in one, or that of the instructions of ``v4``."""
    if model == "modern":
        built, feed = modern_network()
        package = import_model(built, model, calibration=[feed])
        arch = Arch(isa="v4", sram_bytes=1 << 13)
    else:
        builtin = MODELS[model]
        package = import_model(builtin.build(0), model, calibration=builtin.calibration(0))
        arch = Arch()
    programs = compile(package, arch, schedule=schedule).programs.values()
    return max(programs, key=lambda program: len(program.words))


class Proof:
    """Judges mutants of one program. Outputs are compared on inputs drawn from a fixed seed."""

    def __init__(self, program: Program) -> None:
        self.stream = stream_of(program)
        generator = np.random.default_rng(0)
        inputs = {
            t.name: generator.integers(-128, 128, t.shape).astype(t.dtype) for t in program.inputs
        }
        self._runner = Runner(program, inputs)
        (golden,) = self.results(self.stream, 0, 8)
        self._golden = golden

    def results(self, stream: CommandStream, seed: int, count: int) -> set[Outputs]:
        """Return the different outputs under ``count`` orders.

        Runs start from different bytes in the scratchpad.
        """
        units = [command.unit.value for command in stream.commands]
        found = orders(graph(stream.commands), units, seed, count)
        return {self._runner.outputs(stream, order, RESETS[n % 2]) for n, order in enumerate(found)}

    def verdict(self, mutant: Mutant, seed: int, count: int = 2) -> Verdict:
        """The sanitizer's findings against brute force.

        Survivors are executed in ``count`` orders.
        """
        stream = mutant.stream
        truth = judge(stream.program, stream.commands, stream.operands)
        findings = inspect(stream)
        accused = any(finding.level == "error" for finding in findings)
        if accused != truth.wrong:
            texts = "; ".join(finding.text for finding in findings)
            return Verdict(
                mutant.family,
                mutant.name,
                "false alarm" if accused else "missed",
                "",
                texts or str(truth),
            )
        if findings:
            first = gravest(findings)
            outcome: Outcome = "killed" if accused else "suspected"
            return Verdict(mutant.family, mutant.name, outcome, first.kind, first.text)
        results = self.results(stream, seed, count)
        if len(results) > 1:
            return Verdict(
                mutant.family,
                mutant.name,
                "unsettled",
                "",
                "outputs depend on the order of completion",
            )
        if results != {self._golden}:
            return Verdict(
                mutant.family, mutant.name, "functional", *_functional(mutant, next(iter(results)))
            )
        return Verdict(mutant.family, mutant.name, "equivalent", *_equivalent(mutant))

    def witnessed(self, mutant: Mutant, seed: int, count: int = 8) -> bool:
        """Return True if some legal order of a mutant gives outputs other than the program's."""
        return self.results(mutant.stream, seed, count) != {self._golden}


def gravest(findings: Iterable[SanitizerFinding]) -> SanitizerFinding:
    """The first finding by :data:`ORDER`."""
    return min(findings, key=lambda finding: ORDER.index(finding.kind))


FOUND = "same outputs in every order: golden outputs find it"
MOVED = {
    "LD_DRAM_ADDRESS": "loads other bytes that hold data",
    "LD_SRAM_ADDRESS": "loads to where nothing is needed, its reader finds older data",
    "EX_OUTPUT_ADDRESS": "computes to where nothing is needed, its reader finds older data",
    "ST_DRAM_ADDRESS": "stores to other bytes, which hold data already",
}
"""What a shifted address register does where neither order nor contents are at fault.

Others: :data:`READS`.
"""
READS = "reads other bytes that hold data"
EXCHANGED = {
    Unit.LD: "two loads into one place exchanged: their readers wait for the right one and find "
    "the other's data",
    Unit.EX: "two computations exchanged: each waits for its operands, which hold older data",
    Unit.ST: "two stores exchanged: each waits for its data and finds others",
}
"""What two commands of one unit do in each other's place where neither order nor contents are at
fault.
"""


def _functional(mutant: Mutant, outputs: Outputs) -> tuple[str, str]:
    if len(outputs) == 1 and outputs[0].isalpha():
        return "stops with an error in every order: any run finds it", outputs[0].decode()
    if mutant.family == "address":
        register = mutant.name.split()[2]
        return f"{MOVED.get(register, READS)}; {FOUND}", ""
    command = mutant.stream.commands[mutant.ends[0]]
    return f"{EXCHANGED[command.unit]}; {FOUND}", ""


def _equivalent(mutant: Mutant) -> tuple[str, str]:
    """Why nothing is lost: for tokens the path that still orders their ends."""
    if mutant.family == "address":
        return "the bytes that differ have no influence on the outputs", ""
    if mutant.pair is None:
        return "the two commands are independent: same outputs in every order", ""
    path = _path(graph(mutant.stream.commands), mutant.pair.giver, mutant.pair.taker)
    if path:
        words = " → ".join(str(mutant.stream.commands[number].index) for number in path)
        return "the order is implied by other tokens", f"words {words}"
    return "nothing that loses its order touches a common byte with a write", ""


def _path(predecessors: Sequence[Sequence[int]], first: int, last: int) -> list[int]:
    """A shortest way from ``first`` to ``last``, or nothing."""
    before = reachable(predecessors, completion_order(predecessors))
    if not before[last] >> first & 1:
        return []
    ways = [[last]]
    while True:
        way = ways.pop(0)
        if way[0] == first:
            return way
        ways += [
            [giver, *way]
            for giver in predecessors[way[0]]
            if giver == first or before[giver] >> first & 1
        ]


def sampled(everything: Sequence[Change], count: int | None, seed: int) -> list[tuple[int, Change]]:
    """All changes with their numbers, or ``count`` of each family drawn from ``seed``."""
    numbered = list(enumerate(everything))
    if count is None:
        return numbered
    rng = random.Random(seed)
    chosen: list[tuple[int, Change]] = []
    for family in FAMILIES:
        members = [item for item in numbered if item[1].family == family]
        chosen += rng.sample(members, min(count, len(members)))
    return chosen


def verdicts(
    model: str, schedule: str, count: int | None, seed: int, part: int = 0, parts: int = 1
) -> list[Verdict]:
    """Verdicts on every ``parts``-th of the (sampled) mutants of one program."""
    proof = Proof(compiled(model, schedule))
    chosen = sampled(changes(proof.stream), count, seed)[part::parts]
    return [proof.verdict(change.make(), number) for number, change in chosen]


def table(title: str, found: Sequence[Verdict]) -> Iterator[str]:
    """Markdown lines: outcomes by family."""
    yield f"**{title}**"
    yield ""
    yield "| family | mutants | killed | suspected | equivalent | functional | disagreements |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for family in (*FAMILIES, "all"):
        members = [verdict for verdict in found if family in (verdict.family, "all")]
        counts = Counter(verdict.outcome for verdict in members)
        failures = sum(counts[outcome] for outcome in FAILURES)
        cells = [counts[name] for name in ("killed", "suspected", "equivalent", "functional")]
        yield f"| {family} | {len(members)} | {' | '.join(map(str, cells))} | {failures} |"
    yield ""


def reasons(found: Iterable[Verdict]) -> Iterator[str]:
    """Markdown lines: how many mutants of each outcome for which reason."""
    counts = Counter((verdict.outcome, verdict.family, verdict.why) for verdict in found)
    yield "| outcome | family | reason | mutants |"
    yield "|---|---|---|---:|"
    for (outcome, family, why), count in sorted(
        counts.items(), key=lambda item: (item[0][:2], -item[1])
    ):
        yield f"| {outcome} | {family} | {why} | {count} |"
    yield ""


def main() -> int:
    """Run the proof and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sample", type=int, help="mutants of each family and program (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a built-in network")
    parser.add_argument("--schedule", help="default or seed; both unless given")
    arguments = parser.parse_args()
    everything: list[Verdict] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for model, schedule in PROGRAMS:
            if arguments.only not in (None, model) or arguments.schedule not in (None, schedule):
                continue
            parts = [
                pool.submit(
                    verdicts, model, schedule, arguments.sample, arguments.seed, part, PARTS
                )
                for part in range(PARTS)
            ]
            found = []
            for done, part in enumerate(parts, start=1):
                found += part.result()
                print(
                    f"{model}, {schedule}: {done} of {PARTS} parts done",
                    file=sys.stderr,
                    flush=True,
                )
            print("\n".join(table(f"{model}, schedule `{schedule}`", found)), flush=True)
            everything += found
    print("\n".join(reasons(everything)))
    failures = [verdict for verdict in everything if verdict.outcome in FAILURES]
    for verdict in failures:
        print(f"{verdict.outcome}: {verdict.family}: {verdict.name}: {verdict.text}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
