"""One compiler for every command: sharing between machines and shortcuts change no program."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
import experiments
from byoc.compiler import compile_regions, partition_package
from byoc.emission.region import Compiled
from byoc.options import CompileOptions
from byoc.scheduling import default
from byoc.scheduling.search_pool import SearchPool
from dla_sim.presets import load_hardware
from dla_sim.program_timing import ProgramTiming
from experiments.running.network import load_network
from isa.arch import Arch
from tests.experiments.sweeping import swept

PROJECT = Path(byoc.__file__).parents[1]
AXES = ("bus_bytes", "dram_latency")


def test_a_sweep_compiles_layers_of_one_row_as_a_run_does(tmp_path: Path) -> None:
    """Sweeps left out the step that makes columns of them: three took 18 times the cycles."""
    random = np.random.default_rng(0)
    weights = list[TensorProto]()
    nodes = list[onnx.NodeProto]()
    for number in range(3):
        values = (random.standard_normal((64, 64, 3)) * 0.1).astype("f4")
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        nodes.append(
            helper.make_node("Conv", [f"x{number}", f"w{number}"], [f"x{number + 1}"], pads=[1, 1])
        )
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 512])
        for name in ("x0", "x3")
    ]
    graph = helper.make_graph(nodes, "line", ends[:1], ends[1:], weights)
    path = tmp_path / "line.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    machine = {"pe.ic": 32, "pe.oc": 32, "sram_bytes": 32768}
    done = experiments.run(str(path), settings=[f"{key}={value}" for key, value in machine.items()])
    axes = "\n".join(f'"{key}" = {value}' for key, value in machine.items())
    (row,) = swept(tmp_path, f'networks = "line.onnx"\n[arch]\n{axes}\n').values()
    assert row["cycles"] == done.report.totals.cycles


def test_a_pool_gives_no_program_of_other_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool returns no program of other choices.

    For choices equal to the compiler's first plan, it once returned the better plan found from
    there.
    """
    arch = Arch.model_validate({"isa": "v2", "sram_bytes": 8192, "pe": {"ic": 8, "oc": 8}})
    found = partition_package(load_network("digits-cnn").package, arch)

    def made(options: CompileOptions, pool: SearchPool[Compiled] | None) -> Compiled:
        (one,) = compile_regions(
            found.regions, found.graph.values, arch, options, data=False, searches=pool
        )
        return one

    with monkeypatch.context() as patch:
        patch.setattr(default._Trials, "improve", lambda trials: None)
        first = made(CompileOptions(), None)[1].choices
    pool = SearchPool[Compiled]()
    assert made(CompileOptions(), pool)[1].choices != first
    program, report = made(CompileOptions(chosen=first), pool)
    assert report.choices == first
    assert np.array_equal(program.words, made(CompileOptions(chosen=first), None)[0].words)


@pytest.mark.parametrize(
    ("module", "names", "homes"),
    [
        ("byoc.emission.region", {"compile_region", "fitted"}, {"byoc/compiler.py"}),
        ("byoc.partitioning.partition", {"partition"}, set()),
        (
            "byoc.partitioning.partition",
            {"Partitioner"},
            {"byoc/compiler.py", "byoc/hooks/tvm.py", "byoc/splitting/pieces.py"},
        ),
        ("byoc.scheduling.default", {"schedule_default"}, {"byoc/emission/region.py"}),
        ("byoc.scheduling.fusing", {"fuse"}, {"byoc/emission/region.py"}),
    ],
)
def test_nobody_compiles_past_the_compiler(module: str, names: set[str], homes: set[str]) -> None:
    """A copy of its steps leaves out the step that is added next."""
    users = set()
    for folder in ("byoc", "experiments", "benchmarks"):
        for path in (PROJECT / folder).rglob("*.py"):
            imports = (
                node
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom)
            )
            if any(
                node.module == module and names & {one.name for one in node.names}
                for node in imports
            ):
                users.add(path.relative_to(PROJECT).as_posix())
    assert users == homes


def test_a_sweep_compiles_for_each_bus_as_a_run_does(tmp_path: Path) -> None:
    """So many points that those of other buses follow in tasks with the programs of the first."""
    text = """
        networks = "digits-cnn"
        arch.sram_bytes = 4096
        [timing]
        bus_bytes = [8, 2]
        dram_latency = { from = 61, to = 100, step = 1 }
    """
    rows = swept(tmp_path, text).values()
    cycles = {
        tuple(json.loads(str(row["timing"]))[key] for key in AXES): row["cycles"] for row in rows
    }
    assert len(cycles) == 80
    for bus, latency in ((8, 100), (2, 61), (2, 100)):
        settings = {"sram_bytes": 4096, "bus_bytes": bus, "dram_latency": latency}
        assert (
            cycles[bus, latency]
            == experiments.run("digits-cnn", settings=settings).report.totals.cycles
        )
    network = load_network("digits-cnn")
    hardware = load_hardware(settings=settings)
    programs = byoc.compile(network.package, hardware.arch, data=False).programs.values()
    assert (
        sum(ProgramTiming(program).run(hardware.timing).cycles for program in programs)
        > cycles[2, 100]
    )
