"""Random float graphs with the operators of networks since 2018.

They have several sources, fan-out, broadcasting and movement.

``python -m tests.e2e.random_graphs --count N --seed S`` quantises them in one of several ways
(:mod:`tests.e2e.random_quantisation`), runs each on a random machine, holds every tensor that
leaves a region to ONNX Runtime, and prints how many were exact, which operators ran where, and what
fell back for which reason. With numerics fixed ONNX Runtime is no oracle: there the same network on
another machine, under the other schedule, is.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from byoc.operators.onnx_view import BOUNDARIES
from byoc.package.package import Package
from isa.arch import PACKED, Arch, PeArray
from isa.errors import InputError
from tests.banked_machines import either_memory
from tests.e2e.graph_builder import GraphBuilder
from tests.e2e.graph_steps import OPSET
from tests.e2e.harness import Comparison, Simulation, compare, simulate
from tests.e2e.random_quantisation import random_package

_STEPS: tuple[tuple[int, Callable[[GraphBuilder], None]], ...] = (
    (4, GraphBuilder.function), (5, GraphBuilder.binary), (2, GraphBuilder.reduction),
    (5, GraphBuilder.convolution),
    (1, GraphBuilder.transposed), (2, GraphBuilder.pool), (3, GraphBuilder.product),
    (1, GraphBuilder.attention),
    (2, GraphBuilder.normalisation), (6, GraphBuilder.movement), (1, GraphBuilder.recurrent),
)  # fmt: skip


def random_graph(
    seed: int, *, shown: bool = True
) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """A float model of three to ten steps and an input for it; what nothing reads is an output.

    ``shown``: so is every second of the other tensors, and some get up to four readers with windows
    of their own.
    """
    builder = GraphBuilder(seed)
    shares = np.array([share for share, _ in _STEPS], np.float64)
    for _ in range(builder.below(3, 11)):
        _STEPS[int(builder.random.choice(len(_STEPS), p=shares / shares.sum()))][1](builder)
    if shown:
        builder.random = np.random.default_rng([seed, 2])
        planes = [item for item in builder.tensors if len(item.shape) == 4]
        for item in planes[-2:]:
            for _ in range(builder.below(0, 4)):
                builder.convolution(item)
    results = [
        item
        for item in builder.tensors
        if item.name not in builder.read and item not in builder.inputs
    ]
    others = [
        item for item in builder.tensors if item not in builder.inputs and item not in results
    ]
    if shown:
        results += [item for item in others if builder.chance(0.5)]
    elif builder.chance(0.2):
        results += others[:1]
    if not results:
        return random_graph(seed + 1_000_003, shown=shown)
    used = [item for item in builder.inputs if item.name in builder.read]
    rows = [(name, TensorProto.INT64, found.shape) for name, found in builder.numbers.items()]
    graph = helper.make_graph(
        builder.nodes,
        f"graph{seed}",
        [
            *(
                helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.shape)
                for item in used
            ),
            *(helper.make_tensor_value_info(*of_integers) for of_integers in rows),
        ],
        [
            helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.shape)
            for item in results
        ],
        builder.constants,
    )
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    feeds = {
        item.name: builder.random.standard_normal(item.shape).astype(np.float32) for item in used
    }
    return model, {**feeds, **builder.numbers}


def random_machine(seed: int) -> tuple[Arch, str]:
    """Return a machine with a scratchpad small enough for tiling, and a schedule.

    Most machines have the newest instructions. Half of them have banked memory, for which the
    schedule is the default one.
    """
    rng = np.random.default_rng(seed)
    pe = PeArray(**{axis: int(rng.choice([1, 2, 3, 8, 16])) for axis in ("ic", "oc", "ow")})
    sram = int(rng.choice([1 << 10, 1 << 12, 1 << 13, 1 << 16, 1 << 20]))
    lanes = None if rng.random() < 0.5 else int(rng.integers(1, 17))
    alignment = int(rng.choice([4, 8, 64]))
    schedule = "seed" if rng.random() < 0.3 else "default"
    isa = str(rng.choice(["v1", "v2", "v3", *["v4"] * 17]))
    numerics = "fixed" if rng.random() < 0.1 else "onnxruntime"
    ideal = Arch(
        isa=isa, numerics=numerics, pe=pe, sram_bytes=sram, post_lanes=lanes, alignment=alignment
    )
    arch = either_memory(ideal, rng)
    return arch, "default" if arch.words else schedule


def run(seed: int, *, shown: bool = True) -> Comparison:
    """One graph on one machine, held to its oracle at every tensor that leaves a region."""
    model, feeds = random_graph(seed, shown=shown)
    package = random_package(model, feeds, seed)
    arch, schedule = random_machine(seed)
    given = {name: feeds[name] for name in package.graph.inputs}
    if arch.numerics == "fixed":
        return _alike(package, given, arch, schedule)
    return compare(package, given, arch, schedule)


def _alike(
    package: Package, feeds: dict[str, NDArray[Any]], arch: Arch, schedule: str
) -> Comparison:
    """Compare a network with the same network under the other schedule on a large machine.

    If the placement differs there, the machine itself is used. Machines with banked memory have one
    schedule; they are compared with machines that have ideal memory. Results are compared only if
    the same operators run on the CPU, which has other numerics; otherwise nothing is compared.
    """
    found = simulate(package, feeds, arch, schedule)
    other = "default" if schedule == "seed" else "seed"
    ideal = (
        Arch(pe=arch.pe, sram_bytes=arch.sram_bytes, numerics=arch.numerics, isa="v4")
        if arch.words
        else arch
    )
    for machine in (ideal.model_copy(update={"sram_bytes": 1 << 21}), ideal):
        expected = simulate(package, feeds, machine, other)
        if _places(expected) == _places(found):
            return found.comparison(
                {name: expected.run.values[name] for name in found.results & expected.results}
            )
    return found.comparison({})


def _places(found: Simulation) -> list[str]:
    return [placed.on for placed in found.network.partition.placement]


def main() -> int:
    """Run many and print what came of them; exit status 1 where one differed or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tally = Tally()
    for done, seed in enumerate(range(given.seed, given.seed + given.count), start=1):
        tally.add(seed)
        if done % 500 == 0:
            print(f"{done} done, {tally.counts['exact']} exact", file=sys.stderr, flush=True)
    print("\n".join(tally.lines()))
    return 1 if tally.counts["different"] or tally.counts["failed"] else 0


LEFT_OUT = "passes left out"


class Tally:
    """Outcomes of the graphs that ran."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._placed: dict[str, Counter[str]] = {"dla": Counter(), "cpu": Counter()}
        self._reasons: Counter[tuple[str, str]] = Counter()

    def add(self, seed: int) -> None:
        """Runs the graph of ``seed``; what is not exact is printed."""
        try:
            done = run(seed)
        except InputError as error:
            self.counts["refused"] += 1
            print(f"{seed} refused: {error}", flush=True)
            return
        except Exception as error:
            self.counts["failed"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(
                f"{seed} failed: {type(error).__name__}: {error} ({where.filename}:{where.lineno})",
                flush=True,
            )
            return
        if done.mismatches:
            print(f"{seed}: {done.mismatches} mismatches", flush=True)
        self.counts["different" if done.mismatches else "exact"] += 1
        self.counts["regions"] += len(done.partition.regions)
        self.counts["elements checked"] += done.elements
        fidelity = done.network.package.fidelity
        for name in () if fidelity is None else fidelity.left_out:
            self.counts[LEFT_OUT] += 1
            print(f"{seed}: {name} moves rounding too far and is left out", flush=True)
        newest = random_machine(seed)[0].isa in ("v4", PACKED)
        for placed in done.partition.placement:
            if not newest or placed.op_type in BOUNDARIES:
                continue
            self._placed[placed.on][placed.op_type] += 1
            if placed.on == "cpu":
                self._reasons[placed.op_type, _rule(placed.reason or "")] += 1

    @property
    def share_on_cpu(self) -> float:
        """Share of the operators on the CPU, for machines with the newest instructions."""
        here, there = (counter.total() for counter in self._placed.values())
        return there / max(1, here + there)

    def lines(self) -> Iterator[str]:
        """All that was counted.

        Where operators ran, and why on the CPU, of machines with the newest instructions.
        """
        yield from (f"{count:9} {name}" for name, count in self.counts.items())
        here, there = (self._placed[on] for on in ("dla", "cpu"))
        yield (
            f"{here.total():9} operators on the accelerator, {there.total()} on the CPU "
            f"({self.share_on_cpu:.2%})"
        )
        for op_type in sorted({*here, *there}):
            yield f"{here[op_type]:9} {op_type} on the accelerator, {there[op_type]} on the CPU"
        yield from (
            f"{count:9} {op_type}: {reason}"
            for (op_type, reason), count in self._reasons.most_common()
        )


def _rule(reason: str) -> str:
    """A reason without its numbers."""
    return re.sub(r"\d+", "N", reason.split("; ")[-1].partition(" of SRAM: ")[0])[:110]


if __name__ == "__main__":
    sys.exit(main())
