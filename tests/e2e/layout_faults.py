"""Seed layout faults into v5 programs and count those that the sanitizer finds.

It must find every fault that changes results.

``python -m tests.e2e.layout_faults [--count N] [--first SEED]`` draws a network, a machine and a
fault for every seed until ``N`` faulty programs gave wrong outputs. It prints how many of these the
sanitizer finds, by family and finding.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from byoc.compiler import compile
from isa.arch import Arch, PeArray
from isa.errors import InputError
from isa.instruction import Command, Unit
from isa.ops.convolution import MAPPING
from isa.ops.movement import DIMENSIONS
from isa.program import Program
from isa.sanitizer import inspect
from isa.sanitizer.findings import CommandStream, stream_of
from tests.e2e.linear_runs import Outputs, Runner
from tests.e2e.mutation_proof import gravest
from tests.e2e.random_graphs import random_graph
from tests.e2e.random_quantisation import random_package

Family = Literal["wrong atom", "wrong layout", "no padding", "wrong channels", "swapped strides"]
Outcome = Literal["found", "suspected", "missed", "stopped", "equivalent", "none"]


class Fault(NamedTuple):
    """New values of some registers and fields of one command."""

    family: Family
    number: int
    registers: Mapping[str, int]
    fields: Mapping[str, int] = {}


@dataclass(frozen=True)
class Verdict:
    """Outcome of a faulty program, and the gravest finding."""

    seed: int
    outcome: Outcome
    family: str = ""
    change: str = ""
    kind: str = ""
    text: str = ""


def faults(stream: CommandStream) -> Iterator[Fault]:
    """All faults of one command of ``stream``."""
    words = stream.program.arch.words
    assert words is not None
    for number, command in enumerate(stream.commands):
        for family, registers in _changes(command, words.atom):
            kept = {name: value for name, value in registers.items() if value != command[name]}
            if kept and all(0 < value < 1 << 32 for value in kept.values()):
                yield Fault(family, number, kept)
        mapping = command.fields.get(MAPPING.name)
        if (
            mapping is not None
            and command.registers.get("EX_GROUPS", 1) == 1
            and command["EX_INPUT_CHANNELS"] <= 4
        ):
            yield Fault("wrong atom", number, {}, {MAPPING.name: 0 if mapping == 3 else 3})


def _changes(command: Command, atom: int) -> Iterator[tuple[Family, dict[str, int]]]:
    at = command.registers
    for name in ("EX_INPUT_CHANNELS", "EX_OUTPUT_CHANNELS"):
        if name in at:
            up = -(-at[name] // atom) * atom
            yield from (
                ("wrong channels", {name: value})
                for value in (at[name] - 1, at[name] + 1, up)
                if value > 0
            )
    for name in ("EX_INPUT_PLANE", "EX_OUTPUT_PLANE"):
        if at.get(name):
            yield "wrong atom", {name: at[name] // 2}
            yield "swapped strides", {name: at[name] + atom}
    if at.get("EX_INPUT_PLANE", 0) != at.get("EX_OUTPUT_PLANE", 0):
        planes = at.get("EX_INPUT_PLANE", 0), at.get("EX_OUTPUT_PLANE", 0)
        yield "swapped strides", {"EX_INPUT_PLANE": planes[1], "EX_OUTPUT_PLANE": planes[0]}
    if command.instruction.mnemonic == "OP_PERMUTE":
        yield from _moved(at, atom)
    elif "LD_BYTES" in at or "ST_BYTES" in at:
        yield from _transferred(at, atom)


def _moved(at: Mapping[str, int], atom: int) -> Iterator[tuple[Family, dict[str, int]]]:
    used = [n for n in DIMENSIONS if at[f"EX_COUNT_{n}"] > 1]
    strides = {side: [f"EX_{side}_STRIDE_{n}" for n in used] for side in ("INPUT", "OUTPUT")}
    for names in strides.values():
        for name in names:
            if at[name] and at[name] % atom == 0:
                yield "wrong atom", {name: at[name] // 2}
                yield "wrong atom", {name: at[name] * 2}
            if at[name] == atom:
                yield from (("no padding", {name: atom - less}) for less in (1, 2, 3))
        for one, other in pairwise(names):
            yield "swapped strides", {one: at[other], other: at[one]}
    if used:
        yield (
            "wrong layout",
            {
                new: at[old]
                for pair in zip(*strides.values(), strict=True)
                for new, old in (pair, pair[::-1])
            },
        )
        dense = 1
        steps = dict[str, int]()
        for n in used:
            steps |= {f"EX_INPUT_STRIDE_{n}": dense, f"EX_OUTPUT_STRIDE_{n}": dense}
            dense *= at[f"EX_COUNT_{n}"]
        yield "wrong layout", steps


def _transferred(at: Mapping[str, int], atom: int) -> Iterator[tuple[Family, dict[str, int]]]:
    unit = "LD" if "LD_BYTES" in at else "ST"
    nbytes = f"{unit}_BYTES"
    used = [n for n in (1, 2, 3) if at[f"{unit}_COUNT_{n}"] > 1]
    sides = [[f"{unit}_{side}_STRIDE_{n}" for n in used] for side in ("DRAM", "SRAM")]
    for names in sides:
        for name in names:
            yield "wrong atom", {name: at[name] // 2}
            yield "no padding", {name: at[name] // atom * (atom - 1)}
        for one, other in pairwise(names):
            yield "swapped strides", {one: at[other], other: at[one]}
    if used:
        yield (
            "swapped strides",
            {new: at[old] for pair in zip(*sides, strict=True) for new, old in (pair, pair[::-1])},
        )
        yield "wrong atom", {name: at[name] // 2 for name in (nbytes, *sides[0], *sides[1])}
    yield "no padding", {nbytes: at[nbytes] // atom * (atom - 1)}


def with_fault(stream: CommandStream, fault: Fault) -> CommandStream:
    """``stream`` with the new values; raises InputError where the command has no meaning."""
    number = fault.number
    old = stream.commands[fault.number]
    new = replace(
        old, registers={**old.registers, **fault.registers}, fields={**old.fields, **fault.fields}
    )
    commands = (*stream.commands[:number], new, *stream.commands[number + 1 :])
    touched = new.instruction.operands(new, stream.program.arch)
    operands = (*stream.operands[:number], touched, *stream.operands[number + 1 :])
    return replace(stream, commands=commands, operands=operands)


def drawn_fault(stream: CommandStream, rng: random.Random) -> Fault | None:
    """A fault: first what kind of command has it, then its family, then one of these."""
    kinds: dict[str, dict[str, list[Fault]]] = {}
    for fault in faults(stream):
        kinds.setdefault(kind_of(stream, fault), {}).setdefault(fault.family, []).append(fault)
    if not kinds:
        return None
    families = kinds[rng.choice(sorted(kinds))]
    return rng.choice(families[rng.choice(sorted(families))])


def kind_of(stream: CommandStream, fault: Fault) -> str:
    """``transfer``, ``movement`` (of single bytes) or ``computation``."""
    command = stream.commands[fault.number]
    if command.unit is not Unit.EX:
        return "transfer"
    return "movement" if command.instruction.mnemonic == "OP_PERMUTE" else "computation"


def drawn_program(seed: int) -> Program | None:
    """Return the longest program of a random network on a random machine.

    Return None if all operators run on the CPU.
    """
    rng = np.random.default_rng([seed, 44])
    model, feeds = random_graph(seed)
    array = PeArray(
        ic=int(rng.choice([1, 3, 8, 16])),
        oc=int(rng.choice([2, 8, 16])),
        ow=int(rng.choice([1, 2])),
    )
    arch = Arch(
        isa="v5", pe=array, sram_bytes=int(rng.choice([1 << 14, 1 << 16, 1 << 20])), sram_banks=4
    )
    programs = compile(random_package(model, feeds, seed), arch).programs.values()
    return max(programs, key=lambda program: len(program.words), default=None)


class Trial:
    """A program, its outputs on several random inputs, and those of the program with a fault."""

    INPUTS = 3

    def __init__(self, program: Program) -> None:
        self.stream = stream_of(program)
        rng = np.random.default_rng(0)
        drawn = [
            {t.name: rng.integers(-128, 128, t.shape).astype(t.dtype) for t in program.inputs}
            for _ in range(self.INPUTS)
        ]
        self._runners = [Runner(program, inputs) for inputs in drawn]
        self.golden = self._results(self.stream)

    def _results(self, stream: CommandStream) -> list[Outputs]:
        order = range(len(stream.commands))
        return [runner.outputs(stream, order, 0xA5) for runner in self._runners]

    def verdict(self, seed: int, fault: Fault) -> Verdict:
        """Outcome of one faulty program."""
        old = self.stream.commands[fault.number]
        new = {**fault.registers, **fault.fields}
        before = {**old.registers, **old.fields}
        change = f"word {old.index}, {old.instruction.mnemonic}: "
        change += ", ".join(f"{name} {before[name]} → {new[name]}" for name in new)
        known = Verdict(
            seed, "equivalent", f"{kind_of(self.stream, fault)}, {fault.family}", change
        )
        try:
            stream = with_fault(self.stream, fault)
        except InputError as error:
            return replace(known, outcome="stopped", kind="refused", text=str(error))
        results = self._results(stream)
        if any(len(one) == 1 and one[0].isalpha() for one in results):
            return replace(known, outcome="stopped", kind="stops")
        findings = inspect(stream)
        if results == self.golden:
            return replace(known, kind=gravest(findings).kind if findings else "")
        if not findings:
            return replace(known, outcome="missed")
        first = gravest(findings)
        return replace(
            known,
            outcome="found" if first.level == "error" else "suspected",
            kind=first.kind,
            text=first.text,
        )


def verdict(seed: int) -> Verdict:
    """Draw a program and a fault from ``seed`` and judge it."""
    try:
        program = drawn_program(seed)
    except InputError:
        program = None
    if program is None:
        return Verdict(seed, "none")
    trial = Trial(program)
    fault = drawn_fault(trial.stream, random.Random(seed))
    return trial.verdict(seed, fault) if fault else Verdict(seed, "none")


def main() -> int:
    """Draw programs until enough were wrong; print figures and those that were missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--count", type=int, default=1000, help="programs whose fault changes results"
    )
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    verdicts = list[Verdict]()
    wrong = 0
    seed = arguments.first
    while wrong < arguments.count:
        one = verdict(seed)
        verdicts.append(one)
        wrong += one.outcome in ("found", "suspected", "missed")
        if one.outcome in ("missed", "suspected"):
            print(one, flush=True)
        seed += 1
    for name in sorted({one.family for one in verdicts}):
        print(name, dict(Counter(one.outcome for one in verdicts if one.family == name)))
    print(Counter(one.outcome for one in verdicts))
    for (outcome, kind), count in sorted(
        Counter((one.outcome, one.kind) for one in verdicts).items()
    ):
        print(f"| {outcome} | {kind} | {count} |")
    return int(any(one.outcome in ("missed", "suspected") for one in verdicts))


if __name__ == "__main__":
    sys.exit(main())
