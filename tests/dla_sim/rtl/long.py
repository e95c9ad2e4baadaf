"""``python -m tests.dla_sim.rtl.long``: all that the hardware is compared on, part by part.

It may be stopped any time.

The golden corpus, each case on hardware with its own array; 2,000 random programs; whole networks
on the hardware of one machine. What was compared stands in a file of results, a line of JSON a
program, under the sum of the hardware's Verilog and that of the program with all that it must do:
what is there is not compared again. Exit status 1 at any difference.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.compiler import write_markdown
from dla_sim.presets import load_hardware
from dla_sim.rtl.parameters import Limits, limits_of, strap_values
from dla_sim.rtl.simulator.case import Case, Outcome, case_bytes, difference_text, run_cases
from dla_sim.rtl.simulator.executable import build_executable
from dla_sim.rtl.simulator.machine_text import machine_text
from experiments.golden.check import runnable, timing_of
from experiments.golden.store import choose, open_corpus
from experiments.rtl.comparison import corpus_cases
from experiments.rtl.hardware import BUILDS, SMALL, THREE_AXES, batches, build_of, is_pipelined
from experiments.running.inference import infer
from experiments.running.network import load_network, network_feeds
from tests.dla_sim.rtl.compare import network_cases
from tests.dla_sim.rtl.random_programs import has_long_pipeline, random_cases
from tests.dla_sim.rtl.small_machines import reduce_to_limits

CORPUS = Path(__file__).parents[3] / "tests/golden"
RESULTS = Path("runs/rtl-long.jsonl")
MARKS = "<!-- tests.dla_sim.rtl.long -->", "<!-- /tests.dla_sim.rtl.long -->"
SEEDS = (
    (range(1000), SMALL[0]),
    ([seed for seed in range(1000, 3000) if has_long_pipeline(seed)], THREE_AXES[0]),
)
"""Of the random programs, and how large their machines are at most: 2,000, a quarter without
pipeline registers.
"""
NETWORKS = "digits-cnn", "resnet-8", "mobilenet-v1"
PRESETS = "balanced-64", "nvdla-small-like"

MOST_CYCLES = 400_000
"""Of the corpus's programs on a smaller array."""

Line = Mapping[str, Any]
"""Of the results: what was compared, and how it came out."""


@dataclass(frozen=True)
class Part:
    """Programs of one kind on one hardware: that of ``limits``, open or tied to ``values``."""

    what: str
    hardware: str
    limits: Limits
    values: Mapping[str, int] | None
    cases: Callable[[], Iterable[Case]]


def main() -> int:
    """Compare what is not among the results; say how all of it compared, part by part."""
    parser = argparse.ArgumentParser(
        description="Compare the hardware with the simulator on everything."
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="what was compared: read, and added to"
    )
    parser.add_argument(
        "--only", default="", help="a regular expression: only parts with such names"
    )
    parser.add_argument(
        "--tell", action="store_true", help="compare nothing: only say what the results are"
    )
    parser.add_argument("--markdown", type=Path, help="write the table there, between its marks")
    chosen = parser.parse_args()
    rows = []
    for part in parts():
        if re.search(chosen.only, f"{part.what}, {part.hardware}"):
            rows.append((part, list(compared(part, chosen.results, tell=chosen.tell))))
            print(_row(*rows[-1]), flush=True)
    wrong = [line for _, lines in rows for line in lines if line and line["differences"]]
    for line in wrong:
        print(f"{line['name']}: {line['differences']} differences: {line['first']}")
    if chosen.markdown:
        write_markdown(chosen.markdown, table(rows), MARKS)
    return 1 if wrong else 0


# Cases to compare.


def parts() -> Iterator[Part]:
    """All of them, those whose hardware is there soonest first."""
    own = _golden(None)
    cut = _golden(SMALL[0])
    drawn = _drawn()
    for limits in dict.fromkeys((*BUILDS, *own, *drawn)):
        sets = (
            ("golden corpus", own),
            ("golden corpus, on a smaller array", cut),
            ("random programs", drawn),
        )
        for what, found in sets:
            if limits in found:
                yield Part(what, _label(limits), limits, None, found[limits])
    for preset in PRESETS:
        for numerics in ("onnxruntime", "fixed"):
            yield _networks(preset, numerics)


def _label(limits: Limits) -> str:
    array = f"{{{limits.ic}, {limits.oc}, {limits.ow}}}, {limits.lanes} lanes, `{limits.numerics}`"
    registers = "" if limits.pipelined else ", no pipeline registers"
    return (
        array
        + registers
        + (f", {' and '.join(limits.engines)} alone" if limits.engines is not None else "")
    )


def _golden(most: Limits | None) -> dict[Limits, Callable[[], Iterator[Case]]]:
    """Return the golden cases that are programs, by the hardware that they run on.

    With ``most``, only machines with an array and lanes of at most that size count: those that it
    makes smaller, with programs that are short on them.
    """
    corpus = open_corpus(CORPUS)
    found = dict[Limits, list[str]]()
    for name in choose(corpus.entries, (), ()):
        stored = corpus.case(name)
        if stored.record.refused is None and (
            most is None or stored.record.cycles.total <= MOST_CYCLES
        ):
            program = runnable(stored)
            if program.arch.words:
                continue
            small = (
                program
                if most is None
                else replace(program, arch=reduce_to_limits(program.arch, most))
            )
            if most is None or (small.arch.pe, small.arch.lanes) != (
                program.arch.pe,
                program.arch.lanes,
            ):
                found.setdefault(build_of(small, timing_of(stored)), []).append(name)
    smaller = None if most is None else partial(reduce_to_limits, limits=most)
    return {
        limits: partial(corpus_cases, corpus, names, smaller) for limits, names in found.items()
    }


def _drawn() -> dict[Limits, Callable[[], list[Case]]]:
    """The random programs by the hardware that they run on."""
    found = dict[Limits, list[Case]]()
    for seeds, largest in SEEDS:
        for case in random_cases(seeds, largest):
            found.setdefault(build_of(case.program, case.timing), []).append(case)
    return {limits: partial(list, cases) for limits, cases in found.items()}


def _networks(preset: str, numerics: str) -> Part:
    hardware = load_hardware(preset, (f"numerics={numerics}",), "v4")
    arch = hardware.arch
    timing = hardware.timing

    def cases() -> Iterator[Case]:
        for name in NETWORKS:
            network = load_network(name)
            yield from network_cases(infer(network, hardware, network_feeds(network, None, 0)))

    limits = limits_of(arch, timing, pipelined=is_pipelined(timing))
    return Part(
        ", ".join(NETWORKS), f"`{preset}`, `{numerics}`", limits, strap_values(arch, timing), cases
    )


# Comparison.


def compared(part: Part, results: Path, *, tell: bool = False) -> Iterator[Line | None]:
    """Yield a line for each program of the part, from ``results`` or from a run.

    New lines are added to ``results``. With ``tell`` no program runs, and missing lines are None.
    """
    before = [line for line in _lines(results) if line["hardware"] == part.hardware]
    if tell and not before:  # its Verilog, which takes long to write, would say no more
        yield from (None for _ in part.cases())
        return
    text = machine_text(part.limits, part.values)
    build = hashlib.sha256(text.encode()).hexdigest()[:16]
    known = {line["program"]: line for line in before if line["build"] == build}
    for batch in batches(part.cases()):
        sums = {_sum(case): case for case in batch}
        missing = {name: case for name, case in sums.items() if name not in known}
        if missing and not tell:
            executable = build_executable(text, quick=part.values is None)
            straps = [_straps(case) if part.values is None else {} for case in missing.values()]
            outcomes = run_cases(executable, list(zip(missing.values(), straps, strict=True)))
            made = [
                _line(part, build, name, outcome)
                for name, outcome in zip(missing, outcomes, strict=True)
            ]
            _add(results, made)
            known |= {line["program"]: line for line in made}
        yield from (known.get(name) for name in sums)


def _straps(case: Case) -> Mapping[str, int]:
    return strap_values(case.program.arch, case.timing)


def _sum(case: Case) -> str:
    straps = _straps(case)
    return hashlib.sha256(case.name.encode() + case_bytes(case, straps, tuple(straps))).hexdigest()[
        :16
    ]


def _line(part: Part, build: str, program: str, outcome: Outcome) -> Line:
    first = "" if outcome.first is None else difference_text(outcome.case, outcome.first)
    return {
        "hardware": part.hardware, "build": build, "program": program, "name": outcome.case.name,
        "ended": outcome.ended, "commands": outcome.commands, "cycles": outcome.cycles,
        "seconds": outcome.seconds,
        "differences": outcome.count, "first": first,
    }  # fmt: skip


def _lines(results: Path) -> Iterator[Line]:
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):  # the last one of a process that was killed
            yield json.loads(line)


def _add(results: Path, lines: Iterable[Line]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))


# Results.


def table(rows: Sequence[tuple[Part, Sequence[Line | None]]]) -> Iterator[str]:
    """A row a part, and one of all of them, as Markdown.

    Then how programs ended that do not run to their interrupt.
    """
    yield "| programs of | hardware | programs | commands | cycles | programs that differ |"
    yield "|---|---|---|---|---|---|"
    for part, lines in rows:
        yield _row(part, lines)
    whole = [line for _, lines in rows for line in lines]
    yield f"| all | | {_numbers(whole)} |"
    ended = Counter(line["ended"] for line in whole if line)
    yield ""
    yield (
        f"Of the programs in the comparison, {ended['interrupt']:,} run to their interrupt, and "
        f"{ended['fault']:,} stop on an overflow, as expected. The other {ended['until']:,} are "
        "compared up to a command with undefined results."
    )


def _row(part: Part, lines: Sequence[Line | None]) -> str:
    return f"| {part.what} | {part.hardware} | {_numbers(lines)} |"


def _numbers(lines: Sequence[Line | None]) -> str:
    done = [line for line in lines if line]
    if not done:
        return f"0 of {len(lines):,} | | | not compared"
    count = f"{len(done):,}" if len(done) == len(lines) else f"{len(done):,} of {len(lines):,}"
    commands, cycles = (sum(line[key] for line in done) for key in ("commands", "cycles"))
    return (
        f"{count} | {commands:,} | {cycles:,} | {sum(bool(line['differences']) for line in done)}"
    )


if __name__ == "__main__":
    sys.exit(main())
