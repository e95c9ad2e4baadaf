"""Random quantised files whose tensors have several consumers and may be outputs.

A tensor has up to four consumers with different strides and windows. ``python -m
tests.e2e.shared_tensors --count N --seed S`` writes the files as QDQ models, imports them as a
user's file, and runs them on random machines under random schedules. It compares every tensor that
leaves a region with ONNX Runtime's integer operators to the bit. An output that depends on outputs
alone must also equal the unoptimised file within a step of its scale. With ``--banked`` every
machine has banked memory, the networks also have batches, groups, reductions and products, and a
rejected network is compiled for the same machine with ideal memory.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.compiler import compile as compile_network
from byoc.compiler import partition_package
from byoc.host.runtime import Runtime
from byoc.importing import import_model
from byoc.options import NOTHING, Choices, CompileOptions
from byoc.package.package import Package
from byoc.tuning.subject import TuningSubject
from dla_sim.device import Device
from dla_sim.timing import Timing
from experiments.running.check import check_values
from experiments.tune.tuning import clock_of
from isa.arch import Arch, PeArray
from isa.errors import InputError
from tests.banked_machines import either_memory, with_banked_memory
from tests.e2e.given_models import run_unfused
from tests.e2e.random_schedules import drawn_choices
from tests.e2e.shared_tensor_files import AGAIN, WideWriter, Writer


def machine(random: np.random.Generator, *, banked: bool = False) -> Arch:
    """Draw a machine, mostly of v4, with room for some of the tensors.

    Half or all have banked memory.
    """
    pe = PeArray(**{axis: int(random.choice([1, 2, 4, 8, 16])) for axis in ("ic", "oc", "ow")})
    sram = 1 << int(random.integers(12, 20))
    isa = str(random.choice(["v1", "v2", "v3", *["v4"] * 7]))
    ideal = Arch(isa=isa, pe=pe, sram_bytes=sram, alignment=int(random.choice([4, 8, 64])))
    return with_banked_memory(ideal, random) if banked else either_memory(ideal, random)


def runs_with_ideal_memory(package: Package, arch: Arch) -> bool:
    """Return True if a v4 machine with the array and memory size of ``arch`` runs a network."""
    ideal = arch.model_dump(include={"pe", "sram_bytes", "alignment", "numerics", "post_lanes"})
    try:
        compile_network(package, Arch(**ideal, isa="v4"))
    except InputError:
        return False
    return True


def chosen(package: Package, arch: Arch, random: np.random.Generator) -> Choices:
    """Draw an unusual schedule."""
    partition = partition_package(package, arch, CompileOptions())
    subject = TuningSubject(partition.regions, partition.graph.values, arch, clock_of(Timing()))
    return drawn_choices(subject, arch, random) if subject.sites else NOTHING


@dataclass(frozen=True)
class Outcome:
    """Result of a file: ``wrong`` describes the error, if any.

    ``elements`` were compared, ``alone`` of them with the file. ``shown`` counts outputs that have
    consumers too. ``without``: a drawn schedule could not be placed.
    """

    wrong: str = ""
    elements: int = 0
    alone: int = 0
    shown: int = 0
    regions: int = 0
    without: bool = False


def outcome(seed: int, *, banked: bool = False, published: bool = False) -> Outcome:
    """Write, import, compile, run and compare one file; raises InputError where it is refused.

    Where ``banked``, the file is a wide one and the machine has banked memory; a refusal is wrong
    if v4 runs the file. Where ``published``, the schedule is "seed"; otherwise it is so for one
    file in twenty.
    """
    writer = WideWriter(seed) if banked else Writer(seed)
    model = writer.write()
    random = np.random.default_rng([seed, 26])
    if not writer.units:
        return Outcome()
    arch = machine(random, banked=banked)
    way = random.random()
    package = import_model(model)
    way = 0.0 if published else way
    options: dict[str, Any] = (
        {"schedule": "seed"} if way < 0.05 and (banked or not arch.words) else {}
    )
    without = False
    try:
        drawn = chosen(package, arch, random) if way > 0.75 else NOTHING
        network = compile_network(package, arch, chosen=drawn, **options)
    except InputError as error:
        if way <= 0.75:
            if banked and runs_with_ideal_memory(package, arch):
                return Outcome(f"refused, though v4 runs it: {error}")
            raise
        network = compile_network(package, arch)
        without = True
    given = {
        value.name: random.integers(-128, 128, writer_shape(value)).astype(np.int8)
        for value in model.graph.input
    }
    run = Runtime(network, Device(arch)).run(given)
    check = check_values(network, given, run)
    shown = sum(unit.result.readers > 0 for unit in writer.units if unit.result.name in run.outputs)
    found = {
        "elements": check.elements,
        "shown": shown,
        "regions": check.regions or 0,
        "without": without,
    }
    if check.mismatches:
        return Outcome(f"{check.mismatches} of {check.elements} differ, {check.first}", **found)
    if check.outputs is not None and check.outputs.exact and check.outputs.differences:
        return Outcome(f"{check.outputs.differences} of the outputs' elements differ", **found)
    outputs = {name: array for name, array in run.outputs.items() if array.dtype != np.float32}
    wrong, alone = compare_with_file(writer, {**given, **outputs})
    return Outcome(wrong, alone=alone, **found)


def compare_with_file(writer: Writer, known: dict[str, NDArray[Any]]) -> tuple[str, int]:
    """Compare outputs that depend on outputs alone with the unoptimised file.

    Return the first difference of more than a step, or "", and the number of compared elements.
    """
    units, results = writer.alone(known)
    if not results:
        return "", 0
    again = run_unfused(units, {value.name: known[value.name] for value in units.graph.input})
    for result in results:
        gap = np.abs(again[f"{result.name}{AGAIN}"].astype(np.int64) - known[result.name])
        if gap.max(initial=0) > 1:
            where = tuple(int(index) for index in np.unravel_index(int(gap.argmax()), gap.shape))
            return f"{result.name} at {where} is {gap.max()} steps from the file", 0
    return "", sum(result.array.size for result in results)


def writer_shape(value: onnx.ValueInfoProto) -> list[int]:
    """The shape of a declared tensor."""
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def main() -> int:
    """Run many and print what came of them; exit status 1 where one was wrong or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--banked",
        action="store_true",
        help="draw wide networks on machines with banked memory alone",
    )
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for number, seed in enumerate(range(given.seed, given.seed + given.count)):
        if number and number % 100 == 0:
            print(f"{number} of {given.count}: {counts['right']} right", flush=True)
        try:
            found = outcome(seed, banked=given.banked)
        except InputError as error:
            counts["refused"] += 1
            print(f"{seed} refused: {error}", flush=True)
            continue
        except Exception as error:
            counts["failed"] += 1
            print(f"{seed} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        counts["wrong" if found.wrong else "right"] += 1
        counts["elements held to integer operators"] += found.elements
        counts["elements held to the file unoptimised"] += found.alone
        counts["outputs that are read, too"] += found.shown
        counts["regions"] += found.regions
        counts["drawn schedules without a place"] += found.without
        if found.wrong:
            print(f"{seed}: {found.wrong}", flush=True)
    print("\n".join(f"{count:13,} {what}" for what, count in counts.items()))
    return 1 if counts["wrong"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
