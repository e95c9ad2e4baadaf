"""Compare simulated cycles and bytes of TinyML networks with estimates by Arm's Vela.

MACs, bus and scratchpad are equal.

    python -m benchmarks.vela [--networks A,B] [--isa v4|v5]
        [--record benchmarks/vela-ours.csv] [--markdown docs/validation.md]
    python -m benchmarks.vela --table benchmarks/vela-ours.csv
    python -m benchmarks.vela --files FOLDER [--keep FOLDER]

``benchmarks/vela.csv`` has Vela's estimates. ``--files`` runs Vela again (``pip install
'.[vela]'``) on the TensorFlow Lite files of the public repositories in ``vela_estimates.py``, which
it finds in a folder by their SHA-256. ``--keep`` keeps Vela's outputs, which include its estimates
of each layer. Our side is measured each time, with the built-in networks of the same shapes and a
softmax if the file has one. ``--record`` writes our points and ``--table`` prints recorded ones.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import measuring  # before NumPy, whose number of threads it sets
from benchmarks.compiler import BUS_BYTES, arch, geometric_mean, write_markdown
from benchmarks.vela_estimates import ACCELERATORS, NETWORKS, find_files, refuse, run_vela
from benchmarks.vela_records import (
    DEDICATED,
    SHARED,
    Estimate,
    Estimates,
    Place,
    Point,
    Points,
    Setting,
    read_record,
    write_record,
)
from byoc.importing import import_model
from byoc.options import DEFAULTS
from byoc.scheduling.search_pool import sizeless
from dla_sim.prepared import prepare
from dla_sim.timing import Timing
from experiments.models import MODELS
from experiments.sweep.tasks import Preparation
from experiments.sweep.worker import compiler_for
from isa.errors import InputError
from isa.program import Program

if TYPE_CHECKING:
    from onnx import ModelProto

RECORD = Path(__file__).with_name("vela.csv")
SIZES = (16, 32, 64, 128, 256, 512)
"""Scratchpads in KiB."""
SHAPES = {
    64: ("4x16", "8x8", "16x4"),
    128: ("4x32", "8x16", "16x8"),
    256: ("8x32", "16x16", "32x8"),
    1024: ("16x64", "32x32", "64x16", "128x8"),
}
"""Array shapes (input by output channels) by number of MACs.

One of each number is chosen for all networks and scratchpads.
"""

TIMING = Timing()
MARKS = "<!-- benchmarks.vela -->", "<!-- /benchmarks.vela -->"


# Our side.
# --------------------------------------------------------------------------------------------------


def model_of(name: str) -> ModelProto:
    """Build the ONNX model of a network, with a softmax if the original file has one."""
    model = MODELS[name].build(0)
    if NETWORKS[name].softmax:
        add_softmax(model)
    return model


def add_softmax(model: ModelProto) -> None:
    """Append a softmax to a model that ends with logits."""
    from onnx import helper

    logits = model.graph.output[0].name
    result = "probabilities"
    model.graph.node.append(helper.make_node("Softmax", [logits], [result], name=result, axis=-1))
    model.graph.output[0].name = result


def ends_of(model: ModelProto) -> int:
    """Return the bytes of a model's inputs and outputs as 8-bit integers."""
    values = (*model.graph.input, *model.graph.output)
    return sum(
        prod(axis.dim_value for axis in value.type.tensor_type.shape.dim) for value in values
    )


def measure(name: str, isa: str = "v5") -> Points:
    """Measure a network on all arrays and scratchpads that it fits into, timing only.

    The machines have the instruction set ``isa``.
    """
    preparation = Preparation(
        import_model(model_of(name), name, calibration=MODELS[name].calibration(0))
    )
    points: Points = {}
    for shape in chain(*SHAPES.values()):
        for kib in SIZES:
            machine = arch(shape, kib).model_copy(update={"isa": isa})
            prepared = preparation.prepare(machine, DEFAULTS)
            if prepared.misfit is not None:
                print(f"{name}, {shape}, {kib} KiB: {prepared.misfit.message}", file=sys.stderr)
                continue
            compiler = compiler_for(prepared.regions, sizeless(machine))
            try:
                programs = compiler.compile(machine, DEFAULTS)
            except InputError as error:
                print(f"{name}, {shape}, {kib} KiB: {error}", file=sys.stderr)
                continue
            timed = compiler.prepare_timings(programs)
            demands = [one.demand for one in programs]
            points[Place(name, shape, kib)] = Point(
                cycles=sum(one.run(TIMING).cycles for one in timed),
                overlapped=sum(overlapped_cycles(one.program) for one in programs),
                roofline=sum(
                    TIMING.least_cycles(one.compute_cycles, one.commands, one.apart)
                    for one in demands
                ),
                moved_bytes=sum(one.dram_read_bytes + one.dram_write_bytes for one in timed),
            )
    return points


def overlapped_cycles(program: Program) -> int:
    """Return a program's cycles as Vela counts them.

    Every layer takes the larger of its computation and its bytes on the bus, no fill, no latency.
    """
    prepared = prepare(program)
    labels = prepared.labels
    compute = [0] * len(labels.layers)
    nbytes = [0] * len(labels.layers)
    amounts = (labels.layer, prepared.demands.compute, labels.read + labels.write)
    for layer, cycles, moved in zip(*(items.tolist() for items in amounts), strict=True):
        compute[layer] += cycles
        nbytes[layer] += moved
    return sum(
        max(cycles, -(-moved // BUS_BYTES)) for cycles, moved in zip(compute, nbytes, strict=True)
    )


def chosen_shapes(points: Points) -> dict[int, str]:
    """Return for each number of MACs the array shape with the fewest cycles on average.

    The average is the geometric mean over all that was measured.
    """
    return {
        macs: min(
            shapes,
            key=lambda shape: geometric_mean(
                p.cycles for at, p in points.items() if at.array == shape
            ),
        )
        for macs, shapes in SHAPES.items()
    }


# Tables.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Theirs:
    """Vela's best cycles and fewest bytes for one network on one machine.

    ``mode`` is the one of the best cycles; bytes are as moved and with weights uncompressed.
    """

    mode: str
    cycles: int
    moved_bytes: int
    unpacked_bytes: int
    compression: float


@dataclass(frozen=True)
class Pair:
    """Results of one network on our machine and on Vela's accelerator."""

    network: str
    accelerator: str
    kib: int
    array: str
    ours: Point
    theirs: Theirs

    @property
    def cycles(self) -> float:
        """Ratio of our cycles to Vela's."""
        return self.ours.cycles / self.theirs.cycles

    @property
    def overlapped(self) -> float:
        """Ratio of our cycles, counted as Vela counts, to Vela's."""
        return self.ours.overlapped / self.theirs.cycles

    @property
    def bytes(self) -> float:
        """Ratio of the bytes that we move to those that Vela moves."""
        return self.ours.moved_bytes / self.theirs.moved_bytes

    @property
    def unpacked_bytes(self) -> float:
        """Ratio of the bytes that we move to Vela's with uncompressed weights."""
        return self.ours.moved_bytes / self.theirs.unpacked_bytes


def pairs(points: Points, estimates: Estimates, names: Iterable[str]) -> list[Pair]:
    """Return the networks and machines for which both we and Vela have results.

    Those where Vela wants more scratchpad in both modes are left out.
    """
    arrays = chosen_shapes(points)
    found = []
    for name in names:
        ends = ends_of(model_of(name))
        for accelerator, macs in ACCELERATORS.items():
            for kib in SIZES:
                settings = (Setting(name, accelerator, kib, mode) for mode in (DEDICATED, SHARED))
                fitting = {one.mode: estimates[one] for one in settings if _fits(one, estimates)}
                ours = points.get(Place(name, arrays[macs], kib))
                if fitting and ours is not None:
                    found.append(
                        Pair(name, accelerator, kib, arrays[macs], ours, best(fitting, ends))
                    )
    return found


def _fits(setting: Setting, estimates: Estimates) -> bool:
    return setting in estimates and estimates[setting].sram_bytes <= setting.kib * 1024


def best(modes: Mapping[str, Estimate], ends: int) -> Theirs:
    """Return the best of each of Vela's figures over its memory modes.

    In the shared one it finds inputs in the scratchpad and leaves outputs there, which we load and
    store: their bytes, ``ends``, and the cycles that these take, are added.
    """
    extra = {mode: ends if mode == SHARED else 0 for mode in modes}
    cycles = {mode: one.cycles + -(-extra[mode] // BUS_BYTES) for mode, one in modes.items()}
    mode = min(cycles, key=lambda mode: cycles[mode])
    return Theirs(
        mode=mode,
        cycles=cycles[mode],
        moved_bytes=min(one.moved_bytes + extra[key] for key, one in modes.items()),
        unpacked_bytes=min(one.unpacked_bytes + extra[key] for key, one in modes.items()),
        compression=modes[mode].weights / modes[mode].encoded_weights,
    )


def tables(found: Sequence[Pair]) -> Iterator[str]:
    """Yield Markdown tables that compare our results with Vela's.

    Means over the networks, every network, and what is lost and why.
    """
    sizes = sorted({pair.kib for pair in found})
    head = f"{' | '.join(f'{kib} KiB' for kib in sizes)} |"
    yield from (f"| over Vela's | array | {head}", f"|---|---|{'---|' * len(sizes)}")
    for title, ratio in (
        ("cycles", lambda pair: pair.cycles),
        ("cycles, both as Vela counts", lambda pair: pair.overlapped),
        ("bytes", lambda pair: pair.bytes),
        ("bytes, its weights unpacked", lambda pair: pair.unpacked_bytes),
    ):
        for accelerator in ACCELERATORS:
            of = [pair for pair in found if pair.accelerator == accelerator]
            groups = ([ratio(pair) for pair in of if pair.kib == kib] for kib in sizes)
            means = (_bold(geometric_mean(group)) if group else "-" for group in groups)
            yield (
                f"| {title}, {accelerator} | {{{of[0].array.replace('x', ', ')}}} | "
                f"{' | '.join(means)} |"
            )
    yield from ("", f"| network | Vela machine | {head}", f"|---|---|{'---|' * len(sizes)}")
    for (name, accelerator), of in _grouped(found).items():
        cells = {
            pair.kib: f"{_bold(pair.cycles)}, {_bold(pair.unpacked_bytes)}{_mark(pair)}"
            for pair in of
        }
        yield f"| {name} | {accelerator} | {' | '.join(cells.get(kib, '-') for kib in sizes)} |"
    yield from ("", *lost(found))


def lost(found: Sequence[Pair]) -> Iterator[str]:
    """Yield Markdown lines on where we take more cycles or move more bytes than Vela, and why.

    Bytes are compared from 32 KiB on, with Vela's weights unpacked.
    """
    slower = [pair for pair in found if pair.cycles > 1]
    yield (
        f"Our machines take fewer cycles than Vela estimates in {len(found) - len(slower)} of "
        f"{len(found)} comparisons of a network on a machine. The table shows the others. The "
        "cycles and the reason in a row are those of its scratchpad size with the largest ratio:"
    )
    yield from (
        "",
        "| network | Vela machine | KiB | cycles | Vela's | because |",
        "|---|---|---|---|---|---|",
    )
    for (name, accelerator), of in _grouped(slower).items():
        worst = max(of, key=lambda pair: pair.cycles)
        counts = f"{_listed(of)} | {worst.ours.cycles:,} | {worst.theirs.cycles:,}"
        yield f"| {name} | {accelerator} | {counts} | {because(worst)} |"
    large = [pair for pair in found if pair.kib >= 32]
    more = [pair for pair in large if pair.unpacked_bytes > 1]
    yield from (
        "",
        "With 32 KiB of scratchpad or more, our machines move no more bytes than Vela with "
        f"uncompressed weights in {len(large) - len(more)} of {len(large)} comparisons. The table "
        "shows the other comparisons:",
    )
    yield from (
        "",
        "| network | Vela machine | KiB | bytes | Vela's, unpacked |",
        "|---|---|---|---|---|",
    )
    for (name, accelerator), of in _grouped(more).items():
        worst = max(of, key=lambda pair: pair.unpacked_bytes)
        counts = f"{_listed(of)} | {worst.ours.moved_bytes:,} | {worst.theirs.unpacked_bytes:,}"
        yield f"| {name} | {accelerator} | {counts} |"


def because(pair: Pair) -> str:
    """Return the first reason that alone explains why we take more cycles than Vela."""
    ours = pair.ours
    theirs = pair.theirs
    roofline = pair.ours.roofline
    bus = -(-ours.moved_bytes // BUS_BYTES)
    unpacked = -(-theirs.unpacked_bytes // BUS_BYTES)
    if min(unpacked, roofline) >= theirs.cycles:
        times = f"Vela compresses these weights {theirs.compression:.2f} times"
        return (
            f"{times}: unpacked, its bytes alone take {unpacked:,}; no schedule of ours has fewer "
            f"than {roofline:,}"
        )
    if roofline >= theirs.cycles:
        return f"no schedule has fewer than {roofline:,} on this array and bus"
    if ours.overlapped <= theirs.cycles:
        return f"as Vela counts, without latencies and waits, ours are {ours.overlapped:,}"
    if bus >= theirs.cycles:
        return f"bytes: they alone take {bus:,}, Vela's {-(-theirs.moved_bytes // BUS_BYTES):,}"
    return (
        f"as Vela counts, ours are {ours.overlapped:,}; bytes alone take {bus:,}, and the roofline "
        f"is {roofline:,}"
    )


def _grouped(found: Iterable[Pair]) -> dict[tuple[str, str], list[Pair]]:
    """Return comparisons grouped by network and accelerator, in order of appearance."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in found:
        groups.setdefault((pair.network, pair.accelerator), []).append(pair)
    return groups


def _listed(of: Iterable[Pair]) -> str:
    return ", ".join(str(pair.kib) for pair in of)


def _bold(ratio: float) -> str:
    return f"**{ratio:.2f}**" if ratio > 1 else f"{ratio:.2f}"


def _mark(pair: Pair) -> str:
    return " s" if pair.theirs.mode == SHARED else ""


def main() -> None:
    """Run the Vela comparison that the command line asks for and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks", default=",".join(NETWORKS), help="names with commas between them"
    )
    parser.add_argument("--isa", choices=("v4", "v5"), default="v5", help="variant of our machines")
    parser.add_argument(
        "--files", type=Path, help="folder with TensorFlow Lite files: run Vela, keep its estimates"
    )
    parser.add_argument("--keep", type=Path, help="folder for Vela's outputs")
    parser.add_argument("--record", type=Path, help="CSV for our points")
    parser.add_argument("--table", type=Path, help="print this record, measure nothing")
    parser.add_argument(
        "--markdown", type=Path, help="document that has the tables between two marks"
    )
    chosen = parser.parse_args()
    names = chosen.networks.split(",")
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        refuse(f"--networks {unknown[0]}: the networks are {', '.join(NETWORKS)}")
    if chosen.table and not chosen.table.is_file():
        refuse(f"--table {chosen.table}: no such file")
    estimates = read_record(RECORD, Setting, Estimate)
    if chosen.files:
        if importlib.util.find_spec("ethosu") is None:
            refuse("Vela is not installed; install the project with the extra 'vela'")
        estimates |= run_vela(find_files(chosen.files, names), SIZES, chosen.keep)
        write_record(RECORD, estimates)
    print(measuring.settings(), end="\n\n")
    points: Points = read_record(chosen.table, Place, Point) if chosen.table else {}
    for name in () if chosen.table else names:
        points |= measure(name, chosen.isa)
    if chosen.record:
        write_record(chosen.record, points)
    lines = tuple(tables(pairs(points, estimates, names)))
    print(*lines, sep="\n")
    if chosen.markdown:
        write_markdown(chosen.markdown, lines, MARKS)


if __name__ == "__main__":
    main()
