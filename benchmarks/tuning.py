"""Measure how few cycles schedule tuning reaches after a number of measurements.

With the learned model, without it, and from another network's log.

Every search has a log in a folder; a benchmark that is started again goes on where it was. The best
known schedule is the best of all logs in the folder that are of the same network, machine and
compiler, longer ones among them. Figures count measurements and cycles, no seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from byoc.options import DEFAULTS
from byoc.tuning.log import TuningHeader, TuningLog, read_log
from dla_sim.presets import Preset, load_hardware
from experiments.running.network import Network, load_network
from experiments.tune.request import SearchOptions
from experiments.tune.tuning import tune_network

GOAL = 0.95
"""Share of the best known gain that is to be reached."""
SHORT = 0.05
"""Share of the measurements of a full tuning that transfer-tuning may make."""


def best_so_far(log: TuningLog, measurements: int) -> list[int]:
    """Return the fewest cycles found after each of the first ``measurements`` measurements."""
    found: list[int] = []
    for record in log.records[:measurements]:
        cycles = record.measurement.cycles
        found.append(min(found[-1:] + ([cycles] if cycles is not None else [])))
    return found


def needed(curve: Sequence[int], goal: float) -> str:
    """Return as text how many measurements it takes to reach at most ``goal`` cycles."""
    reached = next((number for number, cycles in enumerate(curve, start=1) if cycles <= goal), None)
    return f"more than {len(curve)}" if reached is None else str(reached)


def row(*cells: object) -> str:
    """Return the Markdown table row of some cells."""
    return f"| {' | '.join(map(str, cells))} |"


def best_known(folder: Path, header: TuningHeader) -> int:
    """Return the fewest cycles in all tuning logs of a folder for one network and machine.

    Logs of other compilers do not count.
    """
    found = [read_log(path) for path in sorted(folder.glob("*.jsonl"))]
    alike = [
        log for log in found if log.header.model_copy(update={"search": header.search}) == header
    ]
    return min(log.best.measurement.cycles or 0 for log in alike)


def search_table(
    network: Network,
    machine: Preset,
    seeds: Sequence[int],
    plain: Sequence[int],
    measurements: int,
    folder: Path,
) -> None:
    """Print how fast tuning finds good schedules with the learned model and without it."""
    searches = [
        (seed, model) for model, chosen in ((True, seeds), (False, plain)) for seed in chosen
    ]
    paths = [
        folder / f"{network.name}-{seed}-{'model' if model else 'plain'}.jsonl"
        for seed, model in searches
    ]
    logs = [
        tune_network(
            network,
            machine,
            DEFAULTS,
            path,
            SearchOptions(measurements=measurements, search_seed=search[0], learn=search[1]),
        ).log
        for path, search in zip(paths, searches, strict=True)
    ]
    curves = {
        search: best_so_far(log, measurements) for search, log in zip(searches, logs, strict=True)
    }
    own = next(iter(curves.values()))[0]
    best = best_known(folder, logs[0].header)
    goal = own - GOAL * (own - best)
    print(
        f"{network.name}: {own:,} cycles by the compiler, {best:,} best known "
        f"({best / own - 1:+.2%})\n"
    )
    print(
        row(
            "seed",
            "search",
            *(f"after {count}" for count in (20, 50, 100, measurements)),
            f"to {GOAL:.0%}",
        )
    )
    print(row(*["---"] * 7))
    for (seed, model), curve in curves.items():
        gains = (
            f"{(own - curve[min(count, measurements) - 1]) / max(own - best, 1):.0%}"
            for count in (20, 50, 100)
        )
        last = f"{(own - curve[-1]) / max(own - best, 1):.0%}"
        print(row(seed, "model" if model else "no model", *gains, last, needed(curve, goal)))
    print()


def transfer_table(
    names: tuple[str, str],
    machine: Preset,
    measurements: int,
    donor_measurements: int,
    folder: Path,
) -> None:
    """Print how fast tuning is for a network alone and starting from another network's log."""
    target, donor = (load_network(name) for name in names)
    lent = folder / f"{donor.name}-donor.jsonl"
    tune_network(donor, machine, DEFAULTS, lent, SearchOptions(measurements=donor_measurements))
    full = tune_network(
        target,
        machine,
        DEFAULTS,
        folder / f"{target.name}-full.jsonl",
        SearchOptions(measurements=measurements),
    )
    few = max(round(SHORT * measurements), 1)
    taken = tune_network(
        target,
        machine,
        DEFAULTS,
        folder / f"{target.name}-from.jsonl",
        SearchOptions(measurements=few, donors=(lent,)),
    )
    curve = best_so_far(full.log, measurements)
    short = best_so_far(taken.log, few)
    own = curve[0]
    print(
        f"{target.name} from {donor.name} ({donor_measurements} measurements): {own:,} cycles by "
        "the compiler\n"
    )
    print(row("tuning", "measurements", "cycles", "of full tuning's gain"))
    print(row(*["---"] * 4))
    counts = sorted({max(few // 2, 1), few})
    for name, count, cycles in (
        ("full", measurements, curve[-1]),
        *((f"from {donor.name}", count, short[min(count, len(short)) - 1]) for count in counts),
        *(("full, cut short", count, curve[count - 1]) for count in counts),
    ):
        print(row(name, count, f"{cycles:,}", f"{(own - cycles) / max(own - curve[-1], 1):.0%}"))
    print()


def main() -> None:
    """Print the benchmark tables of docs/tuning.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="mobilenet-v1")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument(
        "--plain-seeds",
        type=int,
        nargs="*",
        default=[0, 1, 2],
        help="of searches without the model",
    )
    parser.add_argument("--measurements", type=int, default=200)
    parser.add_argument(
        "--set", action="append", default=None, help="as of dla run; default {16,16}, 128 KiB"
    )
    parser.add_argument(
        "--transfer",
        nargs=2,
        metavar=("TARGET", "DONOR"),
        help="instead: from another network's log",
    )
    parser.add_argument("--donor-measurements", type=int, default=200)
    parser.add_argument("--logs", type=Path, default=Path("runs/tuning"))
    given = parser.parse_args()
    machine = load_hardware(settings=given.set or ["pe.ic=16", "pe.oc=16", "sram_bytes=131072"])
    if given.transfer:
        names = given.transfer[0], given.transfer[1]
        transfer_table(names, machine, given.measurements, given.donor_measurements, given.logs)
    else:
        network = load_network(given.network)
        search_table(
            network, machine, given.seeds, given.plain_seeds, given.measurements, given.logs
        )


if __name__ == "__main__":
    main()
