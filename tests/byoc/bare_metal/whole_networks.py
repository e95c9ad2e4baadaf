"""Run whole networks from their bundles on the host and on emulated microcontrollers.

``python -m tests.byoc.bare_metal.whole_networks [NAME ...]`` prints a line for each network and
processor. The exit status is 1 if an output or a cycle differs from ``dla run``, or if the driver
does not report a fault on purpose. ``--engine rtl`` runs the programs on the RTL's executable. The
processor ``socket`` is this computer with the device as a process; the processors of QEMU are in
:mod:`tests.byoc.bare_metal.qemu`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from experiments.cli.main import main as run_dla
from isa.device import DEVICE_REGISTERS
from tests.byoc.bare_metal.images import MACHINES, build_bundle, build_image, run_command
from tests.byoc.bare_metal.qemu import QEMU_MACHINES, build_qemu_image, run_qemu
from tests.byoc.bare_metal.served import REGISTERS, MainRun, Served

NETWORKS = {
    "digits-cnn": (), "autoencoder": (), "keyword-spotting": (), "resnet-8": (),
    "visual-wake-words": (), "mobilenet-v1": (),
    "shufflenet-v2": ("--cpu", "stage2_0_shuffle"),  # a transposition on the CPU
    "gpt2-1": (),
}  # fmt: skip
"""Networks of the list of issue 49, with further options of the export."""
TOO_LARGE = {("qemu-cortex-m4", "gpt2-1"): "46 MB of constants in 16 MiB of memory"}
PRINT = f"-DDLA_PRINT={REGISTERS + 0x1000:#x}u"
WRONG_SIZE = {DEVICE_REGISTERS["ACTIVATION_BYTES"].offset: 1 << 31}
"""Change of a register that makes every run end with a fault."""


def check_socket(folder: Path, engine: str) -> MainRun:
    """Run ``make check`` of a bundle."""
    device = f"DEVICE={sys.executable} -m experiments.rtl.device --engine {engine}"
    text = run_command(["make", "-s", "-C", folder, "check", "CC=gcc", device])
    return MainRun(0, text.split("\n", 1)[1])


def run_processor(
    processor: str, folder: Path, served: Served, *, interrupts: bool = False
) -> MainRun:
    """Build a bundle for a processor of this module and run it."""
    if processor == "host":
        return served.run_library(build_bundle(folder))
    if processor in MACHINES:
        flags = (PRINT, *(["-DDLA_INTERRUPT=11"] if interrupts else []))
        image = build_image(processor, folder, *flags)
        return served.run_image(processor, image, interrupts=interrupts)
    machine = QEMU_MACHINES[processor]
    flags = ("-DQEMU_INTERRUPT",) if interrupts else ()
    return run_qemu(served, machine, build_qemu_image(machine, folder, *flags))


def run_network(
    name: str, processors: list[str], engine: str = "simulator", **settings: int
) -> bool:
    """Export a network once and run it on every processor; return whether all are equal."""
    passed = True
    machine = {"isa": "v4" if engine == "rtl" else "v5", "settings": settings}
    served = Served(machine, hardware=engine == "rtl")
    faulty = Served(machine, corrupt=WRONG_SIZE)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = ["export", "--bare-metal", name, *NETWORKS[name], "-o", place, "--quiet"]
        words += ["--isa", str(machine["isa"])]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        if run_dla(words) != 0:
            return False
        for processor in processors:
            if (processor, name) in TOO_LARGE:
                print(f"{processor:14} {name}: not run, {TOO_LARGE[processor, name]}", flush=True)
                continue
            if processor == "socket":
                print(f"{processor:14} {check_socket(folder, engine).text.strip()}", flush=True)
                continue
            for interrupts in (False, True)[: 1 + (processor != "host")]:
                found = run_processor(processor, folder, served, interrupts=interrupts)
                how = f" ({found.waits} interrupts)" if interrupts else ""
                print(f"{processor:14} {found.text.strip()}{how}", flush=True)
                passed &= found.status == 0 and bool(found.waits) == interrupts
            found = run_processor(processor, folder, faulty)
            print(f"{processor:14} {found.text.strip()}, on purpose", flush=True)
            passed &= found.status == 1 and ": fault: " in found.text
    return passed


def main() -> int:
    """Run the networks that the command line names, by default all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    known = ["host", "socket", *MACHINES, *QEMU_MACHINES]
    parser.add_argument("--processors", nargs="+", default=["host", *MACHINES], choices=known)
    parser.add_argument("--engine", choices=("simulator", "rtl"), default="simulator")
    given = parser.parse_args()
    passed = [run_network(name, given.processors, given.engine) for name in given.names]
    return int(not all(passed))


if __name__ == "__main__":
    raise SystemExit(main())
