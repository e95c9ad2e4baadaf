"""How fast: MobileNetV1-224, 64 processing elements, 512 KiB, one thread; every figure and ratio from one run.

    python benchmarks/mobilenet.py

Prints ONNX Runtime's latency for the same int8 QDQ model, the simulation of bits and cycles in process and its ratio to
that, the way from package to program, and the whole cold commands with their peak memory.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # read when NumPy is imported, which is later

REPEATS = 25


def milliseconds(*actions: Callable[[], Any]) -> list[float]:
    """Median time of each action in ms; the actions take turns, so that all see the same machine."""
    samples: list[list[float]] = [[] for _ in actions]
    for _ in range(REPEATS + 2):
        for action, times in zip(actions, samples, strict=True):
            start = time.perf_counter()
            action()
            times.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(times[2:]) for times in samples]


def cold(*arguments: str) -> tuple[float, float]:
    """Wall seconds and peak MiB of a whole process."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, cwd=folder) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} exited with status {process.returncode}")
        return time.perf_counter() - start, usage.ru_maxrss / 1024


def measure_cold() -> None:
    """The whole commands, while this process is still small: a child's peak memory counts from its parent's."""
    dla = [sys.executable, "-c", "import sys; from experiments.cli.main import main; sys.exit(main())"]
    for command in (["run", "mobilenet-v1"], ["--help"]):
        seconds, mebibytes = min(cold(*dla, *command) for _ in range(3))
        print(f"{'dla ' + ' '.join(command) + ', cold':43} {seconds:8.2f} s    {mebibytes:.0f} MiB peak")


def measure_in_process() -> None:
    """Simulation beside ONNX Runtime, and the way from package to program."""
    import onnxruntime

    from byoc.host.runtime import Runtime, region_inputs
    from byoc.package.package import load_package, save_package
    from byoc.pipeline import compile, import_model
    from dla_sim.device import Device
    from dla_sim.engine.simulation import simulate
    from experiments.models import MODELS
    from experiments.running.hardware import load_hardware

    network, hardware = MODELS["mobilenet-v1"], load_hardware()
    package = import_model(network.build(0), network.name, calibration=network.calibration(0))
    feed = network.sample_input()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = package.model.SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    compiled = compile(package, hardware.arch)
    default, simpy = Device(hardware.arch, hardware.timing), Device(hardware.arch, hardware.timing, engine=simulate)
    program = compiled.programs[0]
    tensors = region_inputs(program, Runtime(compiled, default).run(feed).values)
    oracle, on_simpy, on_default, timing = milliseconds(
        lambda: session.run(None, feed),
        lambda: simpy.run(program, tensors),
        lambda: default.run(program, tensors),
        lambda: default.run(program, tensors, timing_only=True),
    )
    print(f"ONNX Runtime, int8 QDQ, one thread          {oracle:8.2f} ms")
    print(f"simulation, bits and cycles, SimPy engine   {on_simpy:8.2f} ms   {on_simpy / oracle:5.1f} x ONNX Runtime")
    print(
        f"simulation, bits and cycles, default engine {on_default:8.2f} ms   {on_default / oracle:5.1f} x ONNX Runtime"
    )
    print(f"timing only, default engine                 {timing:8.2f} ms   {timing / oracle:5.1f} x ONNX Runtime")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mobilenet-v1.dla"
        save_package(package, path)
        load, whole = milliseconds(lambda: load_package(path), lambda: compile(load_package(path), hardware.arch))
    print(f"package file to program                     {whole:8.2f} ms   of these {load:.2f} ms reading the package")


if __name__ == "__main__":
    measure_cold()
    measure_in_process()
