"""The mutation proof on samples: no mutant is missed, no stream is wrongly rejected.

Every surviving mutant has an explanation.

All mutants: ``python -m tests.e2e.mutation_proof``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from isa.encoding import encode_operation, encode_set
from isa.instruction import Command
from isa.ops import ALL
from isa.program import Program, Provenance
from isa.sanitizer import inspect, sanitize
from isa.sanitizer.findings import CommandStream, SanitizerFinding
from tests.e2e.mutants import FAMILIES, FLAGS, changes
from tests.e2e.mutation_proof import (
    FAILURES,
    PROGRAMS,
    Proof,
    compiled,
    reasons,
    sampled,
    table,
    verdicts,
)
from tests.rotation import choose_cases

SAMPLES = {"digits-cnn": 60, "mobilenet-v1": 12, "modern": 30}
SEED = 3


@pytest.mark.slow
@pytest.mark.parametrize(("model", "schedule"), choose_cases(PROGRAMS, 3))
def test_mutants_are_found_exactly_where_they_are_wrong(
    model: str, schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verdicts(model, schedule, SAMPLES[model], SEED)
    with capsys.disabled():
        print(
            "\n"
            + "\n".join([*table(f"{model}, schedule {schedule}, a sample", found), *reasons(found)])
        )
    assert [verdict for verdict in found if verdict.outcome in FAILURES] == []
    assert all(verdict.why for verdict in found)
    assert {verdict.family for verdict in found} == set(FAMILIES)
    outcomes = Counter(verdict.outcome for verdict in found)
    assert outcomes["killed"] > len(found) // 2
    tokens = [verdict.outcome for verdict in found if verdict.family == "token pair"]
    assert tokens.count("killed") >= 0.9 * len(tokens)


def test_missing_tokens_change_outputs_in_some_legal_order() -> None:
    """Missing tokens change outputs in some legal order, which confirms the findings.

    A data race gives wrong outputs as soon as an order allows it.
    """
    proof = Proof(compiled("digits-cnn", "default"))
    pairs = [change.make() for change in changes(proof.stream) if change.family == "token pair"]
    assert len(pairs) >= 6
    for number, mutant in enumerate(pairs):
        assert proof.verdict(mutant, number).outcome == "killed"
        assert proof.witnessed(mutant, number)


def test_a_program_gives_the_same_outputs_in_every_order() -> None:
    for schedule in ("default", "seed"):
        proof = Proof(compiled("digits-cnn", schedule))
        assert len(proof.results(proof.stream, 7, 30)) == 1


@pytest.mark.parametrize("schedule", ["default", "seed"])
def test_mutants_are_what_their_words_say(schedule: str) -> None:
    """Mutated commands, encoded and decoded again, have the same findings as the commands."""
    proof = Proof(compiled("digits-cnn", schedule))
    for _, change in sampled(changes(proof.stream), 25, SEED):
        stream = change.make().stream
        assert _facts(sanitize(encoded(stream))) == _facts(inspect(stream))


def _facts(findings: Sequence[SanitizerFinding]) -> Counter[tuple[object, ...]]:
    return Counter(
        (
            finding.kind,
            finding.space,
            finding.ranges,
            tuple((site.mnemonic, site.layer) for site in finding.sites),
        )
        for finding in findings
        if "command words" not in finding.message  # their number differs
    )


def encoded(stream: CommandStream) -> Program:
    """The program whose words are the commands of ``stream``."""
    old = stream.program
    registers = dict(old.variant.register_file.reset)
    words: list[int] = []
    provenance: list[Provenance] = []
    for command, source in zip(stream.commands, stream.sources, strict=True):
        first = len(words)
        words += _sets(command, registers, old)
        flags = {flag: int(getattr(command, flag)) for flag in FLAGS}
        words.append(encode_operation(command.instruction, {**command.fields, **flags}))
        if source is not None:
            provenance.append(replace(source, first=first, last=len(words)))
    words.append(encode_operation(ALL["OP_END"], {}))
    size = max(old.dram_bytes, old.command_address + 8 * len(words))
    return replace(
        old, words=np.array(words, np.uint64), provenance=tuple(provenance), dram_bytes=size
    )


def _sets(command: Command, registers: dict[str, int], program: Program) -> list[int]:
    """SETs of the registers that the command reads with other values than they hold."""
    changed = {name: value for name, value in command.registers.items() if registers[name] != value}
    registers.update(changed)
    return [
        encode_set(name, value, program.variant.register_file) for name, value in changed.items()
    ]
