"""Run the built-in networks and record how much runs on the accelerator.

The record includes the cost of the rest on the CPU.

    python -m benchmarks.zoo [--only PATTERN] [--machine balanced-64:sram_bytes=65536] [--record
    benchmarks/zoo.csv] python -m benchmarks.zoo --table benchmarks/zoo.csv

Each network is quantised once and runs on every machine, a preset and settings, in a process of
its own, like ``dla run``. CPU cycles are the host model's estimate. The CPU's share stands
there twice, the second time without the quantisation at the network's ends, as where the
application hands over and takes integers (``dla run --integer-io``). A record has a row a network
and machine, those measured last; ``--table`` prints one as the documents show it.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import measuring

if TYPE_CHECKING:
    from experiments.report.schema import RunReport


@dataclass(frozen=True)
class Outcome:
    """Figures of one run: cycles, CPU share, signal-to-noise ratio, seconds and peak memory.

    ``fallen``: what runs on the CPU with its reason, nodes, and cycles.

    ``interface_cycles`` of the CPU's go where application and network deal in integers.
    ``decibels``: the least signal-to-noise ratio of an output beside float. Wall seconds and peak
    memory of the run.
    """

    macs: int
    regions: int
    cycles: int
    cpu_cycles: int
    all_cycles: int
    interface_cycles: int
    mismatches: int
    decibels: float
    fallen: tuple[tuple[str, int, int], ...]
    seconds: float = 0.0
    gibibytes: float = 0.0

    @property
    def share(self) -> float:
        """Share of all cycles that the CPU takes."""
        return self.cpu_cycles / self.all_cycles

    @property
    def integer_share(self) -> float:
        """CPU's share of the cycles if the network's inputs and outputs are integers."""
        return (self.cpu_cycles - self.interface_cycles) / max(
            self.all_cycles - self.interface_cycles, 1
        )


def run_one(network: str, machines: Sequence[str]) -> Iterator[Outcome]:
    """Run a built-in network in this process on each machine and yield the figures of each run."""
    from experiments.running.inference import run
    from experiments.running.network import load_network

    package = load_network(network).package
    for machine in machines:
        preset, *settings = machine.split(":")
        yield outcome(run(package, preset=preset, settings=settings).report)


def outcome(report: RunReport) -> Outcome:
    """Return the table's figures from the report of a run."""
    whole = report.end_to_end
    assert whole is not None
    return Outcome(
        macs=whole.dla_macs + whole.cpu_macs,
        regions=report.compile.regions,
        cycles=whole.dla_cycles,
        cpu_cycles=whole.cpu_cycles,
        all_cycles=whole.cycles,
        interface_cycles=whole.interface_cycles,
        mismatches=report.check.mismatches,
        decibels=min(report.fidelity.noise.values(), default=0.0) if report.fidelity else 0.0,
        fallen=tuple(
            (f"{item.op_type}: {item.reason}", item.nodes, item.estimated_cycles)
            for item in whole.fallbacks
        ),
    )


def row(title: str, machine: str, found: Outcome | str) -> str:
    """Return the Markdown row of a network on a machine: its figures or an error text."""
    if isinstance(found, str):
        return f"| {title} | {machine} | {found} |"
    figures = (
        f"{found.macs / 1e6:,.1f}",
        f"{found.regions}",
        f"{found.cycles / 1e6:.2f}",
        f"{found.cpu_cycles / max(found.cycles, 1):.3f}",
        f"{found.share:.1%}",
        f"{found.integer_share:.1%}",
        f"{found.mismatches}",
        f"{found.decibels:.0f}",
        f"{found.seconds:.0f}",
        f"{found.gibibytes:.1f}",
    )
    return f"| {title} | {machine} | {' | '.join(figures)} |"


_COLUMNS = (
    *(
        "model",
        "machine",
        "MMAC",
        "regions",
        "DLA Mcycles",
        "CPU : DLA",
        "CPU share of all",
        "with integers",
    ),
    *("mismatches", "dB to float", "s", "GiB"),
)


def _head(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"


HEAD = _head(_COLUMNS)


def in_a_process(network: str, options: argparse.Namespace) -> Iterator[Outcome | str]:
    """Run a network in a new process and yield the figures of its runs.

    After the last, what the process said last, if it failed.
    """
    words = [sys.executable, "-m", "benchmarks.zoo", "--one", network]
    words += [f"--machine={machine}" for machine in options.machine]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        yield f"more than {options.timeout:.0f} s"
        return
    for line in done.stdout.splitlines():
        values = json.loads(line)
        yield Outcome(**values | {"fallen": tuple(map(tuple, values["fallen"]))})
    if done.returncode:
        yield (done.stderr.strip().splitlines() or ["no word"])[-1][:200]


def alone(options: argparse.Namespace) -> None:
    """Run one network in this process; print each run's figures, time and peak memory."""
    begun = time.perf_counter()
    for found in run_one(options.one, options.machine):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
        now = time.perf_counter()
        print(json.dumps(asdict(replace(found, seconds=now - begun, gibibytes=peak))), flush=True)
        begun = now


# The record, a file of comma-separated values with a row a network and machine.
# --------------------------------------

RECORDED = (
    "macs",
    "regions",
    "cycles",
    "cpu_cycles",
    "interface_cycles",
    "all_cycles",
    "mismatches",
    "decibels",
)
Record = dict[tuple[str, str], dict[str, int]]


def read_record(file: Path) -> Record:
    """Read recorded figures by (network, machine); empty if there is no file."""
    if not file.is_file():
        return {}
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {
        (row["network"], row["machine"]): {name: int(row[name]) for name in RECORDED}
        for row in rows
    }


def write_record(file: Path, record: Record) -> None:
    """Write recorded figures to a CSV file in the order of first measurement."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("network", "machine", *RECORDED))
        writer.writerows((*key, *figures.values()) for key, figures in record.items())


def recorded(found: Outcome) -> dict[str, int]:
    """Return the figures of a run that depend only on the code, rounded to integers."""
    return {name: round(getattr(found, name)) for name in RECORDED}


def table(record: Record) -> str:
    """Return a Markdown table with a row per network and a column per machine.

    Columns have the accelerator's cycles and the CPU's share of all, without edges, too.
    """
    machines = tuple(dict.fromkeys(machine for _, machine in record))
    lines = [_head(("network", "MMAC", "dB to float", "regions", "mismatches", *machines))]
    for network in dict.fromkeys(network for network, _ in record):
        rows = {
            machine: record[network, machine]
            for machine in machines
            if (network, machine) in record
        }
        first = next(iter(rows.values()))
        regions = "-".join(
            str(count) for count in sorted({row["regions"] for row in rows.values()})
        )
        wrong = sum(row["mismatches"] for row in rows.values())
        cells = [_cell(rows[machine]) if machine in rows else "" for machine in machines]
        figures = (
            f"`{network}`",
            f"{first['macs'] / 1e6:,.1f}",
            f"{first['decibels']}",
            regions,
            f"{wrong}",
        )
        lines.append(f"| {' | '.join((*figures, *cells))} |")
    return "\n".join(lines)


def _cell(row: Mapping[str, int]) -> str:
    found = Outcome(**row, fallen=())
    return (
        f"{found.cycles / 1e6:,.{2 if found.cycles > 1e5 else 4}f} ({found.share:.1%}, "
        f"{found.integer_share:.1%})"
    )


def main() -> None:
    """Run the networks and print the table and the operators that fell back to the CPU.

    Those have their cycles.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="networks whose name matches this expression")
    parser.add_argument(
        "--machine", action="append", help="preset[:KEY=VALUE...]; several times (balanced-64)"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a network")
    parser.add_argument("--markdown", type=Path, help="where the table goes as well")
    parser.add_argument("--record", type=Path, help="a record that gets the rows measured")
    parser.add_argument("--table", type=Path, help="print this record, and measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.machine = options.machine or ["balanced-64"]
    if options.one:
        alone(options)
    elif options.table:
        print(table(read_record(options.table)))
    else:
        from experiments.models import MODELS

        measure([name for name in MODELS if re.search(options.only, name)], options)


def measure(networks: Sequence[str], options: argparse.Namespace) -> None:
    """Measure networks; print a table row of each, then what runs on the CPU."""
    print(measuring.settings(), HEAD, sep="\n\n")
    rows = [HEAD]
    lists = []
    record = read_record(options.record) if options.record else {}
    for network in networks:
        for machine, found in zip(options.machine, in_a_process(network, options), strict=False):
            rows.append(row(network, machine, found))
            print(rows[-1], flush=True)
            if isinstance(found, Outcome):
                fallen = [
                    f"- {cycles:,} cycles, {nodes} × {reason}"
                    for reason, nodes, cycles in found.fallen
                ]
                lists.append("\n".join([f"\n{network}, {machine}: on the CPU\n", *fallen]))
                record[network, machine] = recorded(found)
        if options.markdown:
            options.markdown.write_text("\n".join([*rows, *lists]) + "\n")
        if options.record:
            write_record(options.record, record)
    print(*lists, sep="\n")


if __name__ == "__main__":
    main()
