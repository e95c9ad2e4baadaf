"""Count the differences of random small networks on the host build of their bundles.

``python -m tests.byoc.bare_metal.random_bundles --count 1000 --first 0``. The exit status is 1 if
an output or a cycle differs. Networks share a bundle and a library in groups.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from byoc.bare_metal.bundle import plan_bundle, write_bundle
from byoc.bare_metal.source import NetworkSample
from byoc.compiler import compile
from byoc.host.runtime import Runtime
from byoc.importing import import_model
from byoc.options import DEFAULTS
from dla_sim.device import Device
from dla_sim.presets import load_hardware
from isa.errors import InputError
from tests.byoc.bare_metal.images import build_bundle
from tests.byoc.bare_metal.served import Served
from tests.e2e.random_networks import random_network

GROUP = 25
"""Networks in a bundle."""
ISAS = ("v5", "v4", "v3", "v2", "v5")


def add_network(folder: Path, seed: int, isa: str) -> str | None:
    """Export a random network into a bundle; return the reason if it cannot be exported."""
    model, feed = random_network(seed)
    hardware = load_hardware(None, isa=isa)
    package = import_model(model, calibration=[feed])
    options = DEFAULTS.replace_fields({"integer_io": bool(seed % 2)})
    try:
        network = compile(package, hardware.arch, options, timing=hardware.timing)
        plan = plan_bundle(network)
    except InputError as error:
        return str(error)
    result = Runtime(network, Device(hardware.arch, hardware.timing)).run(feed)
    given = network.interface.take_arrays(feed)
    outputs = {name: np.asarray(array) for name, array in result.outputs.items()}
    cycles = {index: trace.cycles for index, trace in result.traces.items()}
    write_bundle(folder, f"random-{seed}", plan, [NetworkSample(given, outputs, cycles)])
    return None


def run_group(seeds: range, isa: str) -> tuple[int, list[str], list[str]]:
    """Return the number of equal networks, the lines of others, and the reasons of refusals."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found = [add_network(folder, seed, isa) for seed in seeds]
        refused = [reason for reason in found if reason is not None]
        if len(refused) == len(found):
            return 0, [], refused
        run = Served({"isa": isa}).run_library(build_bundle(folder))
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
    for number, begin in enumerate(range(given.first, given.first + given.count, GROUP)):
        seeds = range(begin, min(begin + GROUP, given.first + given.count))
        group = run_group(seeds, ISAS[number % len(ISAS)])
        equal += group[0]
        different += group[1]
        refused += group[2]
        print(f"{seeds.stop - given.first} networks: {equal} equal, {len(different)} different, "
              f"{len(refused)} refused", flush=True)  # fmt: skip
    print("\n".join((*different, *sorted(set(refused)))))
    return int(bool(different))


if __name__ == "__main__":
    raise SystemExit(main())
