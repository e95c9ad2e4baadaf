"""Compare the cycles of compiled networks with lower bounds, for many arrays and scratchpads.

ISA v4, 8 bytes per cycle.

    python -m benchmarks.compiler [--networks A,B | --zoo] [--arrays 4x16,8x8] [--sizes 64,512]
    [--record FILE.csv] python -m benchmarks.compiler --table benchmarks/compiler.csv [--markdown
    docs/compiler.md] python -m benchmarks.compiler --compile-times python -m benchmarks.compiler
    --growth [--networks A,B] [--sizes 64,512]

Cycles of timing-only runs over the run report's lower bound and over its roofline, beside what they
were over the former before the compiler was made to reach it: benchmarks/compiler-before.csv, of
commit 777f3e2, to whose cycles they are held where the accelerator has the same work. Arrays are
input by output channels, sizes KiB. The fourteen networks are those that the project had then; of
arrays with one input channel three large ones are left out. A record has a row a point, the last
measured one; ``--table`` prints one, and ``--markdown`` puts it into a document. ``--growth`` lists
the machines that are slower than one with less memory, fewer elements in the same form, or a
narrower bus.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import measuring  # before NumPy, whose number of threads it sets
from byoc.compiler import compile as compile_network
from byoc.options import DEFAULTS
from experiments.models import MODELS
from experiments.running.network import load_network
from experiments.sweep.store import FIGURE_COLUMNS, canonical
from experiments.sweep.tasks import Preparation
from experiments.sweep.worker import MachineJob, NetworkJob, outcome_of
from experiments.version import compiler_version
from isa.arch import Arch, PeArray

ARRAYS = ("4x16", "8x8", "16x16", "32x32", "1x64", "1x256")
SIZES = (64, 128, 256, 512, 1024)
FOURTEEN = (
    "digits-cnn", "mobilenet-v1", "resnet-8", "resnet-18", "resnext-11", "light-alexnet",
    "light-densenet121",
    "light-inception-v1", "light-inception-v2", "light-resnet50", "light-shufflenet",
    "light-squeezenet", "light-vgg19",
    "light-zfnet512",
)  # fmt: skip
LARGE = ("light-vgg19", "light-densenet121", "light-zfnet512")
"""Left out where an array has one input channel."""
MORE_NOW = ("light-alexnet", "light-inception-v1", "light-zfnet512")
"""Their LRN ran on the CPU then and is the accelerator's work now: more cycles, which no
compiler can be blamed for.
"""
BUS_BYTES = 8
ROOFLINE = (("4x16", 512), ("4x16", 64), ("32x32", 64))
"""Machines of the table of ratios: array and scratchpad in KiB."""
SMALL = (
    "autoencoder", "keyword-spotting", "visual-wake-words", "resnet-8", "mobilenet-v1",
    "mobilenet-v3-small", "resnet-18", "light-shufflenet", "light-squeezenet", "bert-2-128",
    "wavenet", "lstm-small",
)  # fmt: skip
"""Networks of the table of ratios, which compile in seconds."""
BEFORE = Path(__file__).with_name("compiler-before.csv")
WORSE = 1.05
"""Points that take so many times the cycles of before are listed."""
ASPECTS = (
    ("2x8", "4x16", "8x32", "16x64"),
    ("4x4", "8x8", "16x16", "32x32"),
    ("1x16", "1x64", "1x256"),
)
"""Arrays of one form each, ever larger."""
BUSES = (4, 8, 16, 32)
SLACK = 1.005
"""How much slower a larger machine may be."""
MARKS = "<!-- benchmarks.compiler -->", "<!-- /benchmarks.compiler -->"


class Place(NamedTuple):
    """Measured configuration: PE array, scratchpad in KiB, bus bytes per cycle, network."""

    array: str
    kib: int
    bus_bytes: int
    network: str


@dataclass(frozen=True)
class Point:
    """Cycles, lower bound, roofline and moved bytes of one network on one machine.

    ``roofline`` is None if it was not known yet.
    """

    cycles: int
    lower_bound: int
    roofline: int | None
    moved_bytes: int


Points = dict[Place, Point]


def arch(array: str, kib: int) -> Arch:
    """Return the ISA v4 machine with a given PE array and ``kib`` KiB of scratchpad."""
    ic, oc = (int(size) for size in array.split("x"))
    return Arch(isa="v4", pe=PeArray(ic=ic, oc=oc), sram_bytes=kib * 1024)


def measure(
    network: str, arrays: Iterable[str], sizes: Sequence[int], buses: Sequence[int]
) -> Iterator[Points]:
    """Measure a network on all arrays, scratchpad sizes and buses; yield the results by array.

    Configurations that cannot be compiled are printed and left out.
    """
    preparation = Preparation(load_network(network).package)
    for array in arrays:
        machines = [arch(array, kib) for kib in sizes]
        found: Points = {}
        for kib, machine in zip(sizes, machines, strict=True):
            job = MachineJob(machine, tuple(canonical({"bus_bytes": bus}) for bus in buses))
            prepared = preparation.prepare(machine, DEFAULTS)
            if prepared.misfit is not None:
                print(f"{network} on {array}, {kib} KiB: {prepared.misfit.message}")
                continue
            (outcomes,) = outcome_of(
                NetworkJob(compiler_version(), prepared.regions, DEFAULTS, (job,))
            ).outcomes
            for bus, outcome in zip(buses, outcomes, strict=True):
                if outcome.figures is None:
                    print(f"{network} on {array}, {kib} KiB: {outcome.message}")
                    continue
                figures = dict(zip(FIGURE_COLUMNS, outcome.figures, strict=True))
                found[Place(array, kib, bus, network)] = Point(
                    figures["cycles"], figures["lower_bound_cycles"], figures["roofline_cycles"],
                    figures["dram_read_bytes"] + figures["dram_write_bytes"],
                )  # fmt: skip
        yield found


def read_record(path: Path) -> Points:
    """Read measured cycles from a CSV file; the result is empty if there is no file."""
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {
            Place(row["array"], int(row["kib"]), int(row["bus_bytes"]), row["network"]): Point(
                int(row["cycles"]),
                int(row["lower_bound"]),
                int(row["roofline"] or 0) or None,
                int(row["moved_bytes"]),
            )
            for row in csv.DictReader(file)
        }


def write_record(path: Path, points: Points) -> None:
    """Write measured cycles to a CSV file, sorted by machine and network."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*Place._fields, *(field.name for field in fields(Point))))
        for place in sorted(points, key=_order):
            writer.writerow(
                (*place, *("" if item is None else item for item in asdict(points[place]).values()))
            )


# Tables.
# --------------------------------------------------------------------------------------------------


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers."""
    listed = list(values)
    return math.exp(sum(map(math.log, listed)) / len(listed))


def tables(points: Points, before: Points) -> Iterator[str]:
    """Yield Markdown tables of cycle ratios of the fourteen networks and of all others.

    Below them, what became worse.
    """
    for heading, ours in (
        ("the fourteen networks of commit 777f3e2", True),
        ("the other built-in networks", False),
    ):
        chosen = {
            place: point for place, point in points.items() if (place.network in FOURTEEN) == ours
        }
        if chosen:
            count = len({place.network for place in chosen})
            yield f"Cycles divided by a bound, for {heading} ({count} measured):"
            yield from ("", *_table(chosen, before), "")
    same = (place for place in points if place in before and place.network not in MORE_NOW)
    both = {place: points[place].cycles / before[place].cycles for place in same}
    if both:
        worse = sorted(
            (place for place in both if both[place] > WORSE), key=lambda place: -both[place]
        )
        yield (
            "The comparison with the compiler at commit 777f3e2 has "
            f"{len(both)} pairs of a network and a machine. "
            f"{len(worse)} of them take more than {WORSE} times the earlier cycles."
        )
        yield f"The geometric mean is {geometric_mean(both.values()):.2f} times the earlier cycles."
        yield from (
            f"- {line(place)}: {before[place].cycles:,} → {points[place].cycles:,}"
            for place in worse
        )


def _table(points: Points, before: Points) -> Iterator[str]:
    """Yield a Markdown table of cycle ratios by PE array and scratchpad size.

    A row per array and kind of ratio.
    """
    sizes = sorted({place.kib for place in points})
    yield f"| PEs | cycles over | {' | '.join(f'{kib} KiB' for kib in sizes)} |"
    yield f"|---|---|{'---|' * len(sizes)}"
    for array in dict.fromkeys(place.array for place in sorted(points, key=_order)):
        groups = [
            {p: points[p] for p in points if (p.array, p.kib) == (array, kib)} for kib in sizes
        ]
        for name, cells in _rows(groups, before).items():
            if set(cells) != {"-"}:
                yield f"| {{{array.replace('x', ', ')}}} | {name} | {' | '.join(cells)} |"


def _order(place: Place) -> tuple[int, Place]:
    """Return the sort key of a configuration: its array's place in :data:`ARRAYS`.

    Other arrays come last.
    """
    return ARRAYS.index(place.array) if place.array in ARRAYS else len(ARRAYS), place


def _rows(groups: Sequence[Mapping[Place, Point]], before: Points) -> dict[str, list[str]]:
    """Return the table cells of each kind of cycle ratio, one cell per group of configurations.

    Before and after are of the same work.
    """
    rows: dict[str, list[str]] = {}
    for group in groups:
        same = [place for place in group if place in before and place.network not in MORE_NOW]
        near = {
            place: point.cycles / point.roofline for place, point in group.items() if point.roofline
        }
        worst = max(near, key=lambda place: near[place], default=None)
        cells = {
            "lower bound, before": _mean(
                before[place].cycles / before[place].lower_bound for place in same
            ),
            "lower bound, same work": _mean(
                group[place].cycles / group[place].lower_bound for place in same
            ),
            "lower bound": _mean(point.cycles / point.lower_bound for point in group.values()),
            "roofline": _mean(near.values()),
            "roofline, worst": "-" if worst is None else f"{near[worst]:.2f} {worst.network}",
        }
        for name, cell in cells.items():
            rows.setdefault(name, []).append(cell)
    return rows


def _mean(ratios: Iterable[float]) -> str:
    """Return the geometric mean of ratios as a table cell, or "-" if there are none."""
    listed = list(ratios)
    return f"{geometric_mean(listed):.2f}" if listed else "-"


def ratios(networks: Sequence[str] = SMALL) -> Iterator[measuring.RatioRow]:
    """Yield the cycles of networks over their rooflines: mean and worst of each machine."""
    points: Points = {}
    for network in networks:
        for array, kib in ROOFLINE:
            for found in measure(network, (array,), (kib,), (BUS_BYTES,)):
                points |= found
    for array, kib in ROOFLINE:
        near = {
            place.network: point.cycles / point.roofline
            for place, point in points.items()
            if (place.array, place.kib) == (array, kib) and point.roofline
        }
        machine = f"on {{{array.replace('x', ', ')}}}, {kib} KiB"
        worst = max(near, key=lambda name: near[name])
        for label, value in (
            (
                f"cycles {machine}, geometric mean of {len(near)} networks",
                geometric_mean(near.values()),
            ),
            (f"cycles {machine}, worst of these: {worst}", near[worst]),
        ):
            yield measuring.RatioRow(label, "roofline", value)


def line(place: Place) -> str:
    """Return a one-line description of a measured network and machine."""
    return (
        f"{place.network} on {{{place.array.replace('x', ', ')}}}, {place.kib} KiB, "
        f"{place.bus_bytes} bytes/cycle"
    )


def write_markdown(path: Path, lines: Iterable[str], marks: tuple[str, str] = MARKS) -> None:
    """Replace the text between two marker lines of a document, with a blank line at both ends."""
    begin, end = marks
    head, _, rest = path.read_text().partition(begin)
    _, _, tail = rest.partition(end)
    path.write_text("\n".join((head + begin, "", *lines, "", end + tail)))


# Growth.
# --------------------------------------------------------------------------------------------------


def slower(points: Points) -> Iterator[tuple[float, Place, Place]]:
    """Yield machines that are slower than a smaller machine, as (ratio, smaller, larger)."""
    for place, point in points.items():
        smaller = min(_smaller(place, points), key=lambda other: points[other].cycles, default=None)
        if smaller is not None and point.cycles > SLACK * points[smaller].cycles:
            yield point.cycles / points[smaller].cycles, smaller, place


def _smaller(place: Place, points: Points) -> Iterator[Place]:
    """Yield configurations that have less than ``place`` in exactly one respect."""
    forms = {
        array: (number, step)
        for number, form in enumerate(ASPECTS)
        for step, array in enumerate(form)
    }
    for other in points:
        if other.network != place.network:
            continue
        less = (
            other.kib < place.kib,
            other.bus_bytes < place.bus_bytes,
            forms[other.array][0] == forms[place.array][0]
            and forms[other.array] < forms[place.array],
        )
        same = (
            other.kib == place.kib,
            other.bus_bytes == place.bus_bytes,
            other.array == place.array,
        )
        if sum(same) == len(same) - 1 and any(less):
            yield other


def growth(networks: Iterable[str], sizes: Sequence[int]) -> None:
    """Measure machines of all sizes and print those slower than a smaller machine.

    Sizes are array shapes, scratchpads and buses.
    """
    count = 0
    found = 0
    for network in networks:
        points: Points = {}
        for part in measure(network, (array for form in ASPECTS for array in form), sizes, BUSES):
            points |= part
        broken = sorted(slower(points), reverse=True)
        count = count + len(points)
        found = found + len(broken)
        print(
            f"{network}: {len(broken)} of {len(points)} points are slower than a smaller machine",
            flush=True,
        )
        for ratio, smaller, larger in broken:
            print(
                f"  {ratio:.3f} x {points[smaller].cycles:,} cycles of {line(smaller)}: "
                f"{line(larger)}",
                flush=True,
            )
    print(f"{found} of {count} points take more than {SLACK} times the cycles of a smaller machine")


def compile_times(networks: Iterable[str]) -> Iterator[str]:
    """Yield a Markdown table of the seconds to compile each network for a {4, 16} array.

    Nothing is cached before.
    """
    yield "| compile time, {4, 16} | 512 KiB | 64 KiB |"
    yield "|---|---|---|"
    for network in networks:
        package = load_network(network).package
        cells = []
        for kib in (512, 64):
            work = partial(compile_network, package, arch("4x16", kib))
            once, _ = measuring.shortest(work, 1, 0)
            best = measuring.shortest(work, 4, 0)[0] if once < 2 else once
            cells.append(f"{best:.3f} s")
        yield f"| {network} | {' | '.join(cells)} |"


def main() -> None:
    """Run the compiler benchmark that the command line asks for and print its results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", help="names with commas between them; default: the fourteen")
    parser.add_argument("--zoo", action="store_true", help="all other built-in networks")
    parser.add_argument("--arrays", default=",".join(ARRAYS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="KiB")
    parser.add_argument("--record", type=Path, help="CSV to which the points are added")
    parser.add_argument("--table", type=Path, help="print this record, measure nothing")
    parser.add_argument(
        "--markdown", type=Path, help="document that has the table between two marks"
    )
    parser.add_argument("--compile-times", action="store_true")
    parser.add_argument("--growth", action="store_true")
    chosen = parser.parse_args()
    others = tuple(name for name in MODELS if name not in FOURTEEN)
    networks = chosen.networks.split(",") if chosen.networks else others if chosen.zoo else FOURTEEN
    sizes = tuple(map(int, chosen.sizes.split(",")))
    print(measuring.settings(), end="\n\n")
    if chosen.growth:
        growth(networks, sizes)
    elif chosen.compile_times:
        for text in compile_times(networks):
            print(text, flush=True)
    else:
        points = (
            read_record(chosen.table)
            if chosen.table
            else measured(networks, chosen.arrays.split(","), sizes, chosen.record)
        )
        lines = tuple(tables(points, read_record(BEFORE)))
        print(*lines, sep="\n")
        if chosen.markdown:
            write_markdown(chosen.markdown, lines)


def measured(
    networks: Iterable[str], arrays: Sequence[str], sizes: Sequence[int], record: Path | None
) -> Points:
    """Measure networks on arrays and return the cycles by configuration.

    A ``record`` gets those of each array at once, and keeps its others.
    """
    points: Points = {}
    for network in networks:
        chosen = [array for array in arrays if not (array.startswith("1x") and network in LARGE)]
        start = time.perf_counter()
        for found in measure(network, chosen, sizes, (BUS_BYTES,)):
            points |= found
            if record is not None:
                write_record(record, read_record(record) | found)
        print(f"{network}: {time.perf_counter() - start:.1f} s", flush=True)
    return points


if __name__ == "__main__":
    main()
