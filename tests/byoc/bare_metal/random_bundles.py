"""Count the differences of random small networks on the host build of their bundles.

``python -m tests.byoc.bare_metal.random_bundles --count 1000 --first 0``. The exit status is 1 if
an output or a cycle differs. Networks share a bundle and a library in groups.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from byoc.bare_metal.bundle import FIXED, list_networks, plan_bundle
from byoc.bare_metal.source import NetworkSample, network_header, network_source
from byoc.compiler import compile
from byoc.host.runtime import Runtime
from byoc.importing import import_model
from byoc.options import DEFAULTS
from dla_sim.device import Device
from dla_sim.presets import load_hardware
from isa.errors import InputError
from isa.headers import device_header
from tests.byoc.bare_metal.building import WARNINGS
from tests.byoc.bare_metal.images import HOST_PLATFORM, UNDEFINED, run_command
from tests.byoc.bare_metal.served import Served
from tests.e2e.random_networks import random_network

GROUP = 50
"""Networks in a bundle."""
MACHINES = (("v5", "default"), ("v4", "seed"), ("v3", "seed"), ("v2", "seed"), ("v5", "seed"))
"""Instruction set and schedule of each group in turn; the schedule ``seed`` compiles fastest."""


def add_network(folder: Path, seed: int, isa: str, schedule: str) -> str | None:
    """Add a random network to a bundle; return the reason if it cannot be exported."""
    model, feed = random_network(seed)
    hardware = load_hardware(None, isa=isa)
    package = import_model(model, calibration=[feed])
    options = DEFAULTS.replace_fields({"integer_io": bool(seed % 2), "schedule": schedule})
    try:
        network = compile(package, hardware.arch, options, timing=hardware.timing)
        plan = plan_bundle(network)
    except InputError as error:
        return str(error)
    result = Runtime(network, Device(hardware.arch, hardware.timing)).run(feed)
    given = network.interface.take_arrays(feed)
    outputs = {name: np.asarray(array) for name, array in result.outputs.items()}
    cycles = {index: trace.cycles for index, trace in result.traces.items()}
    samples = [NetworkSample(given, outputs, cycles)]
    name = f"random_{seed}"
    (folder / f"network_{name}.h").write_text(network_header(name, name, plan))
    (folder / f"network_{name}.c").write_text("".join(network_source(name, name, plan, samples)))
    return None


def build_fixed(folder: Path) -> list[Path]:
    """Compile the files that are the same in every bundle."""
    sources = [FIXED / name for name in ("dla_driver.c", "dla_host.c", "main.c")]
    sources.append(folder / "host.c")
    sources[-1].write_text(HOST_PLATFORM)
    (folder / "dla_device.h").write_text(device_header())
    objects = []
    for source in sources:
        objects.append(folder / f"{source.stem}.o")
        options = ("-O1", "-fPIC", *WARNINGS, *UNDEFINED, "-I", FIXED, "-I", folder)
        run_command(["gcc", *options, "-c", source, "-o", objects[-1]])
    return objects


def build_group(folder: Path, fixed: Path, objects: list[Path]) -> Path:
    """Build the networks in ``folder`` as a shared library."""
    sources = sorted(folder.glob("network_*.c"))
    names = [source.stem.removeprefix("network_") for source in sources]
    (folder / "networks.c").write_text(list_networks(names))
    library = folder / "bundle.so"
    options = ("-O0", "-shared", "-fPIC", *WARNINGS, *UNDEFINED, "-I", FIXED, "-I", fixed)
    run_command(["gcc", *options, folder / "networks.c", *sources, *objects, "-o", library])
    return library


def run_group(
    seeds: range, isa: str, schedule: str, fixed: Path, objects: list[Path]
) -> tuple[int, list[str], list[str]]:
    """Return the number of equal networks, the lines of others, and the reasons of refusals."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found = [add_network(folder, seed, isa, schedule) for seed in seeds]
        refused = [reason for reason in found if reason is not None]
        if len(refused) == len(found):
            return 0, [], refused
        run = Served({"isa": isa}).run_library(build_group(folder, fixed, objects))
    lines = run.text.splitlines()
    different = [line for line in lines if ": equal" not in line]
    return len(lines) - len(different), different, refused


def main() -> int:
    """Run many groups and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    equal = 0
    different: list[str] = []
    refused: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        fixed = Path(place)
        objects = build_fixed(fixed)
        for begin in range(given.first, given.first + given.count, GROUP):
            seeds = range(begin, min(begin + GROUP, given.first + given.count))
            machine = MACHINES[begin // GROUP % len(MACHINES)]
            group = run_group(seeds, *machine, fixed, objects)
            equal += group[0]
            different += group[1]
            refused += group[2]
            print(f"{seeds.stop - given.first} networks: {equal} equal, {len(different)} "
                  f"different, {len(refused)} refused", *group[1], flush=True)  # fmt: skip
    print("\n".join((*different, *sorted(set(refused)))))
    return int(bool(different))


if __name__ == "__main__":
    raise SystemExit(main())
