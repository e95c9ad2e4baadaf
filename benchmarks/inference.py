"""Compare the time of one simulated inference with ONNX Runtime, on one thread.

The machine is the recommended one.

All ratios from one run.

    python -m benchmarks.inference [NETWORK ...] [--runs 30] [--ratios]

For each built-in network, by default MobileNetV1-224: ONNX Runtime's time for the same int8 model,
with the settings that checks use and with its own, which may change integers by a unit; the time of
the simulation of bits and cycles in this process, and how many times the shorter of those two it
is; the way from package to program; ``dla run`` in a process of its own, from the float model to
the checked report and from the cache of imported models, and its peak memory. Simulation is timed
with NumPy's kernels and, where numba is installed, with those that it compiles (their loading is
not counted: half a second once a process). Left out is what a user's program does beside.

``--ratios`` prints only ratios to ONNX Runtime with its own settings, which takes turns with the
simulator, by default for six networks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import measuring

if TYPE_CHECKING:
    from onnx import ModelProto

    from byoc.package.package import Package
    from dla_sim.device import Device
    from dla_sim.presets import Preset
    from isa.program import Program

COLD_RUNS = 5
SMALL = ("autoencoder", "keyword-spotting", "visual-wake-words", "resnet-8")
"""Networks of MLPerf Tiny; the autoencoder detects anomalies."""
LARGE = ("mobilenet-v1", "light-resnet50")
DLA = (sys.executable, "-c", "import sys; from experiments.cli.main import main; sys.exit(main())")


def cold(*arguments: str) -> tuple[float, float]:
    """Run a command in a new process; return its processor seconds and peak memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, cwd=folder) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} exited with status {process.returncode}")
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure_cold(networks: list[str], runs: int) -> str:
    """Measure whole ``dla`` commands in new processes and return a line of text for each.

    This comes first: a child's peak memory counts from its parent's, which is still small.

    First of all: a child's peak memory counts from its parent's, now still small.
    """
    lines = [measuring.measured(runs, 1)]
    whole = [(["run", network, "--no-cache"], "") for network in networks]
    kept = [(["run", network], ", imported before") for network in networks]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DLA_CACHE_DIR"] = os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        for command, how in (*whole, *kept, (["--help"], "")):
            best, middle, (processor, mebibytes) = measuring.timed(
                partial(cold, *DLA, *command), runs, 1
            )
            lines.append(
                f"{'dla ' + ' '.join(command) + how:43} {best:8.2f} s    median {middle:.2f} s; "
                f"the last: {processor:.2f} s of processor time, {mebibytes:.0f} MiB peak"
            )
    return "\n".join(lines)


def open_oracles(model: ModelProto) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """Return functions that run a model in ONNX Runtime with two settings, on one thread."""
    import onnxruntime

    from byoc.runtimes.session import OnnxRuntimeSession

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    plain = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    exact = OnnxRuntimeSession(model)
    names = [value.name for value in model.graph.output]
    return {
        "ONNX Runtime, int8, settings of the checks": partial(exact.run, names),
        "ONNX Runtime, int8, its own settings": partial(plain.run, names),
    }


class OpenNetwork(NamedTuple):
    """Network on the recommended machine: package, device, programs with inputs, and an input."""

    package: Package
    hardware: Preset
    device: Device
    programs: Sequence[tuple[Program, Mapping[str, Any]]]
    feed: Mapping[str, Any]


def open_network(name: str) -> OpenNetwork:
    """Import and compile a built-in network, and run it once for the inputs of its programs."""
    from byoc.compiler import compile
    from byoc.host.runtime import Runtime, region_inputs
    from byoc.importing import import_model
    from dla_sim.device import Device
    from dla_sim.presets import load_hardware
    from experiments.models import MODELS

    network = MODELS[name]
    package = import_model(network.build(0), network.name, calibration=network.calibration(0))
    feed = network.sample_input()
    hardware = load_hardware()
    compiled = compile(package, hardware.arch, timing=hardware.timing)
    device = Device(hardware.arch, hardware.timing)
    values = Runtime(compiled, device).run(feed).values
    programs = [(one, region_inputs(one, values)) for one in compiled.programs.values()]
    return OpenNetwork(package, hardware, device, programs, feed)


def ratios(
    names: Sequence[str] = (*SMALL, *LARGE), rounds: int = 10
) -> Iterator[measuring.RatioRow]:
    """Yield the times of simulated inferences over ONNX Runtime with its own settings.

    ONNX Runtime and the simulator take turns in this process, on one thread. A time is the shortest
    processor time of ``rounds`` calls after two that do not count. The simulator computes all bits
    and cycles, with NumPy and, where numba is installed, with compiled kernels.
    """
    from dla_sim.device import Device

    for name in names:
        package, hardware, plain, programs, feed = open_network(name)
        devices = {"NumPy": plain}
        if find_spec("numba") is not None:
            devices["numba"] = Device(hardware.arch, hardware.timing, compiled=True)
        oracle = open_oracles(package.model)["ONNX Runtime, int8, its own settings"]
        works = [
            partial(oracle, feed),
            *(partial(run_programs, one, programs) for one in devices.values()),
        ]
        measuring.in_turns(works, 2)
        base, *taken = measuring.in_turns(works, rounds)
        for variant, seconds in zip(devices, taken, strict=True):
            yield measuring.RatioRow(f"`{name}`, {variant}", "ONNX Runtime", seconds / base)


def run_programs(device: Device, programs: Sequence[tuple[Program, Mapping[str, Any]]]) -> None:
    """Run the programs of a network on their inputs."""
    for program, inputs in programs:
        device.run(program, inputs)


def measure_in_process(name: str, runs: int) -> None:
    """Print the compilation, simulation and ONNX Runtime times of one network.

    All run in this process.
    """
    from byoc.compiler import compile
    from byoc.package.package import load_package, save_package
    from dla_sim.device import Device

    package, hardware, device, programs, feed = open_network(name)
    words = sum(len(program.words) for program, _ in programs)
    cycles = sum(device.run(program, {}, timing_only=True).trace.cycles for program, _ in programs)
    print(
        f"\n{name}, {len(programs)} regions, {words:,} command words, {cycles:,} cycles; "
        f"{measuring.measured(runs)}"
    )
    oracle = float("inf")
    for label, action in open_oracles(package.model).items():
        seconds, middle, _ = measuring.timed(partial(action, feed), runs)
        print(f"{label:43} {1e3 * seconds:8.2f} ms   median {1e3 * middle:.2f} ms")
        oracle = min(oracle, seconds)
    ways = [("simulation, bits and cycles", device, False), ("timing only", device, True)]
    if find_spec("numba") is not None:
        fast = Device(hardware.arch, hardware.timing, compiled=True)
        ways.insert(1, ("simulation, compiled kernels", fast, False))
    for label, machine, timing_only in ways:
        seconds, middle, _ = measuring.timed(
            lambda machine=machine, only=timing_only: [
                machine.run(*given, timing_only=only) for given in programs
            ],
            runs,
        )
        ratio = f"{seconds / oracle:5.1f} x ONNX Runtime"
        print(f"{label:43} {1e3 * seconds:8.2f} ms   median {1e3 * middle:.2f} ms, {ratio}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.dla"
        save_package(package, path)
        load, _ = measuring.shortest(lambda: load_package(path), runs)
        whole, _ = measuring.shortest(
            lambda: compile(load_package(path), hardware.arch, timing=hardware.timing), runs
        )
    print(
        f"{'package file to program':43} {1e3 * whole:8.2f} ms   of these {1e3 * load:.2f} ms "
        "reading the package"
    )


def main() -> None:
    """Measure whole commands first, then single steps in this process, and print the times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument(
        "--runs", type=int, default=measuring.RUNS, help="in one process; of processes at most 5"
    )
    parser.add_argument(
        "--ratios", action="store_true", help="print only ratios, by turns, of processor time"
    )
    options = parser.parse_args()
    if options.ratios:
        print(measuring.settings())
        for one in ratios(options.networks or (*SMALL, *LARGE), options.runs):
            print(f"{one.measured:30} {one.ratio:6.2f} x ONNX Runtime", flush=True)
        return
    options.networks = options.networks or ["mobilenet-v1"]
    commands = measure_cold(options.networks, min(options.runs, COLD_RUNS))
    print(measuring.settings())
    from dla_sim.presets import load_hardware

    print(f"machine    {measuring.machine(load_hardware())}")
    for name in options.networks:
        measure_in_process(name, options.runs)
    print(f"\n{commands}")


if __name__ == "__main__":
    main()
