"""Cycles of random networks on random machines as each command reports them; all must be equal.

``python -m tests.e2e.cycles_of_commands --pairs 500 --seed 0`` prints a line for each pair
(network, machine) on which commands differ, and how many were equal. Machines of one network share
a sweep, so that its pools are shared as well.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import byoc
import experiments
from byoc import import_model
from byoc.options import CompileOptions, Schedule
from byoc.package.package import save_package
from dla_sim.presets import Preset, load_hardware
from dla_sim.program_timing import ProgramTiming
from dla_sim.systems.spec import parse_system
from experiments.advise.bench import Bench
from experiments.compare.sources import take_snapshot
from experiments.cost.table import DEFAULT_TABLE, load_table
from experiments.explore.exploring import explore
from experiments.running.network import Network, load_network
from experiments.sweep import pools
from experiments.sweep.results import flat_rows
from experiments.sweep.spec import parse_spec
from experiments.systems.plans import PlanMaker
from experiments.tune.explain import compare_cycles, compile_package
from experiments.tune.request import SearchOptions
from experiments.tune.tuning import tune_network
from isa.errors import InputError
from isa.reading import toml_text
from tests.e2e.random_graphs import random_graph
from tests.e2e.random_networks import random_network
from tests.e2e.random_quantisation import random_package
from tests.experiments.sweeping import run_sweep

MACHINES = 5
"""Machines of one network."""
Random = np.random.Generator
Cycles = dict[str, int | str]
"""Cycles by command.

Of a command that refuses the pair ``refused``, of a point that is infeasible that word.
"""
TINY = (512, 1024, 2048, 4096, 8192)
SIZES = (1 << 14, 1 << 15, 1 << 16, 1 << 18, 1 << 20)
MAX_TENSOR_IN_SCRATCHPADS = 8
"""Size of the largest tensor in scratchpads: at forty, a pair takes minutes, all of them for
emitting tiles.
"""


class _Layers:
    """Float layers one after another on a tensor of shape (1, channels, ...)."""

    def __init__(self, random: Random, *shape: int) -> None:
        self.random = random
        self.shape = shape
        self.here = "x0"
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def constant(self, *shape: int) -> str:
        values = (self.random.standard_normal(shape) * 0.2).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def node(self, kind: str, *others: str, outputs: int = 1, **attributes: Any) -> str:
        made = [f"{kind.lower()}{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, [self.here, *others], made, name=made[0], **attributes)
        )
        self.here = made[0]
        return self.here

    def model(self) -> onnx.ModelProto:
        ends = [
            helper.make_tensor_value_info("x0", TensorProto.FLOAT, self.shape),
            helper.make_tensor_value_info(self.here, TensorProto.FLOAT, None),
        ]
        graph = helper.make_graph(self.nodes, "layers", ends[:1], ends[1:], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def _one_row(random: Random) -> _Layers:
    channels = int(random.choice([4, 16, 40, 64]))
    length = int(random.choice([32, 100, 512, 1500]))
    layers = _Layers(random, 1, channels, length)
    for _ in range(random.integers(1, 4)):
        kernel = int(random.choice([1, 3, 5]))
        step = int(random.integers(1, 4))
        pads = [step * (kernel // 2)] * 2
        layers.node(
            "Conv", layers.constant(channels, channels, kernel), dilations=[step], pads=pads
        )
        if random.random() < 0.5:
            layers.node(str(random.choice(["Relu", "Tanh", "Sigmoid"])))
    return layers


def _recurrent(random: Random) -> _Layers:
    kind, gates = (("LSTM", 4), ("GRU", 3))[int(random.integers(2))]
    steps = int(random.integers(2, 5))
    width = int(random.integers(3, 17))
    hidden = int(random.integers(3, 17))
    layers = _Layers(random, steps, 1, width)
    layers.node(
        kind,
        layers.constant(1, gates * hidden, width),
        layers.constant(1, gates * hidden, hidden),
        layers.constant(1, 2 * gates * hidden),
        hidden_size=hidden,
        **({"linear_before_reset": 1} if kind == "GRU" else {}),
    )
    return layers


def _attention(random: Random) -> _Layers:
    tokens = int(random.integers(4, 33))
    width = int(random.choice([8, 16, 24]))
    layers = _Layers(random, 1, tokens, width)
    query, key, value = (_projected(layers, width) for _ in range(3))
    layers.here = key
    turned = layers.node("Transpose", perm=[0, 2, 1])
    layers.here = query
    layers.node("MatMul", turned)
    layers.node("Softmax", axis=-1)
    layers.node("MatMul", value)
    return layers


def _projected(layers: _Layers, width: int) -> str:
    layers.here = "x0"
    return layers.node("MatMul", layers.constant(width, width))


def _pooled(random: Random) -> _Layers:
    channels = int(random.choice([3, 8, 20]))
    size = int(random.integers(8, 33))
    layers = _Layers(random, 1, channels, size, size)
    layers.node("Conv", layers.constant(16, channels, 3, 3), pads=[1, 1, 1, 1])
    layers.node(str(random.choice(["MaxPool", "AveragePool"])), kernel_shape=[2, 2], strides=[2, 2])
    if random.random() < 0.5:
        layers.node("Conv", layers.constant(16, 1, 3, 3), group=16, pads=[1, 1, 1, 1])
    layers.node("GlobalAveragePool")
    layers.node("Flatten")
    layers.node("Gemm", layers.constant(16, 10))
    return layers


_KINDS: tuple[Callable[[Random], _Layers], ...] = (_one_row, _recurrent, _attention, _pooled)


def draw_network(seed: int, path: Path) -> Network:
    """Return a random network whose package is saved at ``path``.

    It has one kind of layers, or is a random graph.
    """
    random = np.random.default_rng((seed, 1))
    kind = int(random.integers(len(_KINDS) + 2))
    if kind < len(_KINDS):
        layers = _KINDS[kind](random)
        feeds = [{"x0": random.standard_normal(layers.shape).astype(np.float32)} for _ in range(2)]
        package = import_model(layers.model(), "drawn", calibration=iter(feeds))
    else:
        model, feed = (
            random_graph(seed, shown=False) if kind == len(_KINDS) else random_network(seed)
        )
        package = random_package(model, feed, seed)
    save_package(package, path)
    return load_network(str(path), cache=False)


def draw_machines(seed: int, largest: int) -> Iterator[dict[str, Any]]:
    """Yield machines as the content of preset files; some differ in the scratchpad size alone.

    Args:
        seed: what to draw them from.
        largest: elements of the largest tensor that they have to compute.
    """
    least = 1 << max(largest // MAX_TENSOR_IN_SCRATCHPADS - 1, 0).bit_length()
    random = np.random.default_rng((seed, 2))
    sizes = TINY + SIZES[:2] if random.random() < 0.4 else SIZES
    machine: dict[str, Any] = {}
    for number in range(MACHINES):
        if number in (0, 3):
            machine = _machine(random)
        # no two are equal: each has a row
        timing = {**machine["timing"], "dram_latency": 10 * number}
        size = int(random.choice(sizes))
        # every bank of v5 holds a word
        size = max(size, least, 1024 if machine["arch"]["isa"] == "v5" else 0)
        yield {"timing": timing, "arch": {**machine["arch"], "sram_bytes": size}}


def _machine(random: Random) -> dict[str, Any]:
    isa = f"v{random.integers(1, 6)}"
    ic, oc = (
        int(size) for size in random.choice([(4, 16), (8, 8), (16, 16), (32, 32), (1, 64), (3, 5)])
    )
    arch: dict[str, Any] = {
        "isa": isa,
        "pe": {"ic": ic, "oc": oc, "ow": int(random.choice([1, 1, 2]))},
    }
    if isa == "v5":
        arch["pe"] = {"ic": int(random.choice([8, 16])), "oc": int(random.choice([8, 16])), "ow": 1}
        arch |= random.choice(
            [{}, {"accumulators": 8}, {"dividers": 1, "divide_cycles": 7}, {"word_bytes": 64}]
        )
    if random.random() < 0.3:
        arch |= {"sram_banks": int(random.choice([4, 8]))}
    if random.random() < 0.3:
        arch |= {"post_lanes": int(random.choice([1, 8, 32]))}
    timing = {
        "bus_bytes": int(random.choice([4, 8, 16])),
        "dram_latency": int(random.choice([0, 20, 100])),
    }
    return {"arch": arch, "timing": timing}


@dataclass(frozen=True)
class Pair:
    """A network on a machine: what each command reports."""

    text: str
    cycles: Cycles

    @property
    def equal(self) -> bool:
        """True if all commands report the same.

        An infeasible point must be one for which a run leaves a node out.
        """
        return len({str(cycles) for cycles in self.cycles.values()} - {"infeasible"}) <= 1


def pairs_of(seed: int, *, explored: bool = True) -> list[Pair]:
    """The pairs of one drawn network."""
    random = np.random.default_rng((seed, 3))
    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(pools, "open_pool", lambda *_: pools.Here()),
    ):
        folder = Path(name)
        network = draw_network(seed, folder / "net.dla")
        machines = list(
            draw_machines(
                seed, max(value.elements for value in network.package.graph.values.values())
            )
        )
        # the seed schedule is for ideal memory
        packed = any(machine["arch"]["isa"] == "v5" for machine in machines)
        options = CompileOptions(
            schedule="seed" if random.random() < 0.15 and not packed else "default"
        )
        hardware = []
        for number, machine in enumerate(machines):
            path = folder / f"m{number}.toml"
            path.write_text(toml_text(machine, "machine"))
            hardware.append(load_hardware(str(path)))
        of_rows = {"sweep": _swept(folder, options.schedule)}
        if explored:
            of_rows["explore"] = _explored(folder, options.schedule)
        bench = Bench(network.package, options, load_table(DEFAULT_TABLE))
        found = []
        for number, one in enumerate(hardware):
            cycles: Cycles = {}
            cycles |= {command: rows[f"m{number}"] for command, rows in of_rows.items()}
            for command, measure in _commands(folder, number, network, one, options, bench).items():
                try:
                    cycles[command] = measure()
                except InputError:
                    cycles[command] = "refused"
            _check_infeasible(network, one, options, cycles)
            found.append(
                Pair(
                    f"seed {seed}, machine {number}, {options.schedule}: {machines[number]}", cycles
                )
            )
        return found


def _check_infeasible(
    network: Network, hardware: Preset, options: CompileOptions, cycles: Cycles
) -> None:
    """Record a disagreement between a sweep and the compiler about what fits.

    A sweep calls a network infeasible exactly if the compiler leaves an operator out.
    """
    if "sweep" in cycles and cycles["run"] != "refused":
        short = bool(
            byoc.compile(network.package, hardware.arch, options, data=False).partition.shortages
        )
        if short != (cycles["sweep"] == "infeasible"):
            cycles["shortages"] = "differ"


def _rows(path: Path) -> dict[str, int | str]:
    """The cycles of a results file by preset."""
    found: dict[str, int | str] = {}
    for row in flat_rows(path):
        status = "refused" if row["status"] == "failed" else row["status"]
        found[Path(str(row["preset"])).stem] = row["cycles"] if status == "ok" else status
    return found


def _specification(schedule: Schedule) -> str:
    presets = [f"./m{number}.toml" for number in range(MACHINES)]
    return f'networks = "net.dla"\npresets = {presets}\nschedules = ["{schedule}"]\n'


def _swept(folder: Path, schedule: Schedule) -> dict[str, int | str]:
    run_sweep(
        parse_spec(_specification(schedule), folder, "grid.toml"), folder / "s.sqlite", workers=1
    )
    return _rows(folder / "s.sqlite")


def _explored(folder: Path, schedule: Schedule) -> dict[str, int | str]:
    spec = parse_spec(_specification(schedule), folder, "grid.toml")
    place = folder / "e.sqlite"
    explore(spec, output=place, trials=MACHINES, grid=True, workers=1)
    return _rows(place)


def _commands(
    folder: Path,
    number: int,
    network: Network,
    hardware: Preset,
    options: CompileOptions,
    bench: Bench,
) -> dict[str, Callable[[], int]]:
    """Return the functions that measure the cycles, by command.

    Explain, tune and system know the default schedule alone.
    """
    package = network.package
    arch = hardware.arch
    timing = hardware.timing
    preset = str(folder / f"m{number}.toml")
    log = folder / f"t{number}.jsonl"

    def emitted() -> int:
        programs = byoc.compile(package, arch, options, timing=timing).programs.values()
        return sum(ProgramTiming(program).run(timing).cycles for program in programs)

    def explained() -> int:
        made = compile_package(package, arch, options, timing)
        return sum(one.cycles for region in made for one in compare_cycles(region, timing).values())

    def tuned() -> int:
        search = SearchOptions(measurements=1, learn=False)
        return int(
            tune_network(network, hardware, options, log, search).log.records[0].measurement.cycles
            or 0
        )

    def planned() -> int:
        text = (
            f'[[accelerator]]\nname = "npu"\npreset = "{preset}"\n[[task]]\nname = "t"\nmodel = '
            f'"{folder}/net.dla"\n'
        )
        (plan,) = PlanMaker(cache=False).plans(parse_system(text + 'period = "1s"\n')).values()
        return sum(stage.work.alone for stage in plan.stages if stage.work is not None)

    found: dict[str, Callable[[], int]] = {
        "emit": emitted,
        "run": lambda: (
            experiments.run(package, preset=preset, schedule=options.schedule).report.totals.cycles
        ),
        "advise": lambda: bench.point(hardware).cycles,
        "compare": lambda: take_snapshot(network, hardware, options, "a", lambda *_: None).totals[
            "cycles"
        ],
    }
    known = options.schedule == "default" and bool(network.package.graph.nodes)
    return found | ({"explain": explained, "tune": tuned, "system": planned} if known else {})


def main() -> int:
    """Compare many pairs; return 1 where commands differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for seed in itertools.count(given.seed):
        for pair in pairs_of(seed):
            counts["equal" if pair.equal else "different"] += 1
            if not pair.equal:
                print(f"{pair.text}: {pair.cycles}", flush=True)
        if counts.total() >= given.pairs:
            break
    print(dict(counts))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
