"""How fast: MobileNetV1-224 on the recommended machine, one thread; every figure and ratio from one run.

    python -m benchmarks.mobilenet

Prints ONNX Runtime's latency for the same int8 QDQ model, the simulation of bits and cycles in process and its ratio to
that, the way from package to program, and whole commands in processes of their own with their peak memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import measuring

COLD_RUNS = 5


def cold(*arguments: str) -> tuple[float, float]:
    """Run a whole process; its processor seconds and peak MiB."""
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, cwd=folder) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} exited with status {process.returncode}")
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure_cold() -> str:
    """A line for each whole command. First of all: a child's peak memory counts from its parent's, now still small."""
    lines = [measuring.measured(COLD_RUNS, 1)]
    dla = [sys.executable, "-c", "import sys; from experiments.cli.main import main; sys.exit(main())"]
    for command in (["run", "mobilenet-v1"], ["--help"]):
        seconds, (processor, mebibytes) = measuring.shortest(partial(cold, *dla, *command), COLD_RUNS, 1)
        lines.append(
            f"{'dla ' + ' '.join(command) + ', whole process':43} {seconds:8.2f} s    "
            f"the last: {processor:.2f} s of processor time, {mebibytes:.0f} MiB peak"
        )
    return "\n".join(lines)


def measure_in_process() -> None:
    """Simulation beside ONNX Runtime, and the way from package to program."""
    import onnxruntime

    from byoc.compiler import compile
    from byoc.host.runtime import Runtime, region_inputs
    from byoc.importing import import_model
    from byoc.package.package import load_package, save_package
    from dla_sim.device import Device
    from dla_sim.engine.simulation import simulate
    from dla_sim.presets import load_hardware
    from experiments.models import MODELS

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
    print(f"machine    {measuring.machine(hardware)}")
    print(f"           {len(program.words):,} command words, {default.run(program, tensors).trace.cycles:,} cycles")
    print(f"\n{measuring.measured()}")
    oracle, _ = measuring.shortest(lambda: session.run(None, feed))
    print(f"{'ONNX Runtime, int8 QDQ, one thread':43} {1e3 * oracle:8.2f} ms")
    for label, action in (
        ("simulation, bits and cycles, SimPy engine", lambda: simpy.run(program, tensors)),
        ("simulation, bits and cycles, default engine", lambda: default.run(program, tensors)),
        ("timing only, default engine", lambda: default.run(program, tensors, timing_only=True)),
    ):
        seconds, _ = measuring.shortest(action)
        print(f"{label:43} {1e3 * seconds:8.2f} ms   {seconds / oracle:5.1f} x ONNX Runtime")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mobilenet-v1.dla"
        save_package(package, path)
        load, _ = measuring.shortest(lambda: load_package(path))
        whole, _ = measuring.shortest(lambda: compile(load_package(path), hardware.arch))
    print(f"{'package file to program':43} {1e3 * whole:8.2f} ms   of these {1e3 * load:.2f} ms reading the package")


if __name__ == "__main__":
    commands = measure_cold()
    print(measuring.settings())
    measure_in_process()
    print(f"\n{commands}")
