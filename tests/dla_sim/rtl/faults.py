"""``python -m tests.dla_sim.rtl.faults``: seed faults into the hardware.

Does the golden corpus find them?

Each of ``faults.toml`` replaces a piece of source text in a copy of the packages. The smallest
hardware is built from it, of one kind after the other, and runs the corpus's programs in their
order until one differs. A build takes a minute or two. Exit status 1 if a fault is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from benchmarks.compiler import write_markdown
from dla_sim.rtl.parameters import Limits, strap_values
from dla_sim.rtl.simulator.case import Case, difference_text, run_cases
from dla_sim.rtl.simulator.executable import Executable
from experiments.golden.store import choose, open_corpus
from experiments.rtl.comparison import corpus_cases
from experiments.rtl.hardware import SMALL, UNPIPELINED, batches, build_of
from tests.dla_sim.rtl.small_machines import reduce_to_limits
from tests.faults.fault import Fault, read_faults
from tests.faults.run import copied_packages

FILE = Path(__file__).with_name("faults.toml")
ROOT = Path(__file__).parents[3]
MARKS = "<!-- tests.dla_sim.rtl.faults -->", "<!-- /tests.dla_sim.rtl.faults -->"
HARDWARE = SMALL[0], UNPIPELINED[0], SMALL[1]
"""Where a fault is looked for, one after the other."""
MOST_CYCLES = 20_000
"""Of the programs that look for faults."""
_BUILD = """
import json
from dla_sim.rtl.parameters import Limits
from experiments.rtl.hardware import open_executable
found = open_executable({limits})
print(json.dumps([str(found.path), found.straps]))
"""


@dataclass(frozen=True)
class Finding:
    """First difference of hardware with a fault: the case and its text, or "" if there is none."""

    fault: Fault
    case: str = ""
    text: str = ""


def main() -> int:
    """Seed each fault."""
    parser = argparse.ArgumentParser(
        description="Do the golden programs find faults in the hardware?"
    )
    parser.add_argument("--fault", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--jobs", type=int, default=1, help="builds at a time")
    parser.add_argument("--markdown", type=Path, help="write the table there, between its marks")
    chosen = parser.parse_args()
    faults = [
        fault for fault in read_faults(FILE) if not chosen.fault or fault.name in chosen.fault
    ]
    golden(HARDWARE[0])  # before two threads want them
    findings = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for finding in pool.map(seed, faults):
            findings.append(finding)
            print(f"{finding.fault.name}: {finding.case or 'MISSED'} {finding.text}", flush=True)
    missed = [finding.fault.name for finding in findings if not finding.case]
    print(
        f"{len(findings) - len(missed)} of {len(findings)} found; missed: "
        f"{', '.join(missed) or 'none'}"
    )
    if chosen.markdown:
        write_markdown(chosen.markdown, table(findings), MARKS)
    return 1 if missed else 0


def seed(fault: Fault) -> Finding:
    """Build the smallest hardware with ``fault`` and run the corpus until a program differs."""
    with copied_packages() as folder:
        fault.apply(folder)
        for limits in HARDWARE:
            executable = _built(folder, limits)
            for batch in batches(golden(limits)):
                runs = [(case, strap_values(case.program.arch, case.timing)) for case in batch]
                for outcome in run_cases(executable, runs):
                    if outcome.first is not None:
                        return Finding(
                            fault, outcome.case.name, difference_text(outcome.case, outcome.first)
                        )
    return Finding(fault)


@cache
def golden(limits: Limits) -> Sequence[Case]:
    """The corpus's programs that this hardware runs, in the order of the corpus."""
    corpus = open_corpus(ROOT / "tests/golden")
    cases = corpus_cases(
        corpus, choose(corpus.entries, (), ()), partial(reduce_to_limits, limits=limits)
    )
    return [
        case for case in cases if build_of(case.program, case.timing) == limits and _short(case)
    ]


def _short(case: Case) -> bool:
    return case.expected is not None and case.expected.trace.cycles <= MOST_CYCLES


def _built(folder: Path, limits: Limits) -> Executable:
    """Build the hardware that the packages in ``folder`` describe, in that folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "DLA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _BUILD.format(limits=limits)],
        cwd=folder, env={**environment, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(
            "the hardware cannot be built with this fault; adapt it: "
            f"{done.stderr.splitlines()[-1:]}"
        )
    path, straps = json.loads(done.stdout)
    return Executable(Path(path), tuple(straps), False)


def table(findings: Sequence[Finding]) -> Iterator[str]:
    """A row a fault, as Markdown."""
    found = sum(bool(finding.case) for finding in findings)
    yield (
        f"The golden corpus finds {found} of the {len(findings)} faults that were seeded into the "
        "hardware."
    )
    yield ""
    yield "| fault | file | first case that differs | first difference |"
    yield "|---|---|---|---|"
    for finding in findings:
        file = finding.fault.file.removeprefix("dla_sim/rtl/")
        yield (
            f"| {finding.fault.name} | `{file}` | {finding.case or 'none: MISSED'} | "
            f"{finding.text} |"
        )


if __name__ == "__main__":
    sys.exit(main())
