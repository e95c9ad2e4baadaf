"""Run mutated bundles on the host build with the address and undefined sanitizers.

``python -m tests.byoc.bare_metal.mutated_images --count 1000 --first 0`` changes command words,
constants, program descriptors, tables and inputs of a bundle's networks in memory, runs each
mutated network, and prints how the runs ended. A run must end with a status of the driver, the
device must write only into the arena, and the sanitizers must find nothing: else the exit status is
1, with the number of the case. Strides and shapes in arguments of host parts are code, and stay.

With ``--device random`` the registers belong to a device that ends runs at random: busy, done, any
fault, random bytes in the activations. The C code must accept that, too, and it takes less time.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dla_sim.mapped import BUSY, DONE, FAULT, DeviceBus, MappedDevice
from experiments.cli.main import main as run_dla
from isa.device import DEVICE_REGISTERS, IDENTITY, MAP_VERSION, FaultReason
from tests.byoc.bare_metal.building import SANITIZERS, WARNINGS
from tests.byoc.bare_metal.images import HOST_PLATFORM, list_common, run_command
from tests.byoc.bare_metal.random_bundles import add_network
from tests.byoc.bare_metal.served import ADDRESS, READ, WRITE, Port, Served
from tests.byoc.bare_metal.test_host_parts import save_model

RUN_ONE = """
#include "dla_network.h"
int run_one(const struct dla_port *given, uint32_t number);
int run_one(const struct dla_port *given, uint32_t number) {
    const struct dla_network *network = dla_networks[number];
    network->reset(dla_arena);
    for (uint32_t n = 0; n < network->input_count; n++) {
        const struct dla_tensor *input = &network->inputs[n];
        memcpy(dla_arena + input->offset, network->samples[0].inputs[n], input->bytes);
    }
    return (int)network->run(given, dla_arena, dla_region_counters);
}
"""
STATUSES = {
    0: "OK",
    1: "ID",
    2: "VERSION",
    3: "BUSY",
    5: "PROGRAM",
    6: "INDEX",
    **{32 + reason.value: reason.name for reason in FaultReason if reason},
}
"""Status of the driver after a mutation, by number."""
DEVICES = ("simulator", "random", "both")
NAMES = {one.offset: name for name, one in DEVICE_REGISTERS.items()}
CONTROL = DEVICE_REGISTERS["CONTROL"].offset
MUTABLE = re.compile(
    r"^static const (?:uint8_t|uint64_t|struct dla_program) "
    r"(network_(\w+?)_(?:words|constants|program|data|state|sample0_inputs)\d+)\b",
    re.MULTILINE,
)


def write_networks(folder: Path, random_networks: int = 6) -> None:
    """Export a small network, two with parts on the CPU, and random ones; build the bundle."""
    for seed in range(random_networks):
        assert add_network(folder, seed, "v5", "seed") is None
    save_model(folder / "parts.onnx")
    np.save(folder / "index.npy", np.array([[0, 9, -1, 3, 3]]))
    words = [str(folder / "parts.onnx"), "--input", str(folder / "index.npy")]
    for node in ("op:Table", "op:Concat", "op:Slice", "op:Pad", "op:Transpose"):
        words += ["--cpu", node]
    cpu = ["digits-cnn", "--cpu", "depthwise", "--name", "digits-cpu"]
    for each in (words, ["digits-cnn"], cpu):
        assert run_dla(["export", "--bare-metal", *each, "-o", str(folder), "--quiet"]) == 0

    build(folder)


def build(folder: Path) -> None:
    """Build the bundle as a shared library; the sanitizers see every array of it."""
    (folder / "host.c").write_text(HOST_PLATFORM + RUN_ONE)
    plain = [f"-DDLA_{name}=__attribute__((aligned(64)))" for name in
             ("CONSTANTS", "COMMANDS", "ARENA")]  # fmt: skip
    run_command(
        ["gcc", *WARNINGS, *SANITIZERS, "-fsanitize=float-cast-overflow", "-shared", "-fPIC",
         *plain, *list_common(folder), folder / "host.c", "-o", folder / "bundle.so"]
    )  # fmt: skip


class RandomDevice:
    """Registers of a device whose runs end at random and that writes random activations."""

    def __init__(self, bus: DeviceBus, arena: range) -> None:
        self.bus, self.arena = bus, arena
        self.rng = random.Random(0)
        self.values: dict[str, int] = {}
        self.ends: list[int] = []

    def read32(self, offset: int) -> int:
        name = NAMES.get(offset, "")
        if self.rng.random() < 0.0005:
            return self.rng.getrandbits(32) & ~BUSY
        if name == "STATUS":
            return self.ends.pop(0) if self.ends else 0
        known = {"ID": IDENTITY, "MAP_VERSION": MAP_VERSION}
        return known.get(name, self.rng.randrange(14))

    def write32(self, offset: int, value: int) -> None:
        self.values[NAMES[offset]] = value
        if offset == CONTROL:
            last = self.rng.choice((DONE, DONE, FAULT, DONE | FAULT))
            self.ends = [BUSY] * self.rng.randrange(4) + [last]
            low = min(max(self.values["ACTIVATION_BASE"], self.arena.start), self.arena.stop)
            high = min(low + self.values["ACTIVATION_BYTES"], self.arena.stop)
            self.bus.write(low, self.rng.randbytes(high - low))


class MutableBundle:
    """A bundle's library in memory, with the device of the default machine or a random one."""

    def __init__(self, folder: Path, *, is_random: bool = False) -> None:
        library = folder / "bundle.so"
        self.code = ctypes.CDLL(str(library))
        symbols = {}
        for line in run_command(["nm", "-S", library]).splitlines():
            fields = line.split()
            if len(fields) == 4:
                symbols[fields[3]] = (int(fields[0], 16), int(fields[1], 16))
        arena = ctypes.addressof(ctypes.c_uint8.in_dll(self.code, "dla_arena"))
        self.base = arena - symbols["dla_arena"][0]  # where the library was loaded
        files = sorted(folder.glob("network_*.c"))
        self.names = [path.stem.removeprefix("network_") for path in files]
        self.places: list[list[tuple[int, int]]] = []
        memories = [symbols["dla_arena"]]
        for path in files:
            found = {match[1] for match in MUTABLE.finditer(path.read_text())}
            self.places.append([symbols[name] for name in sorted(found & symbols.keys())])
            memories += [symbols[name] for name in sorted(found & symbols.keys())
                         if re.search(r"_(words|constants)\d+$", name)]  # fmt: skip
        for at, size in (place for places in self.places for place in places):
            self.unprotect(self.base + at, size)
        self.arena = range(symbols["dla_arena"][0], sum(symbols["dla_arena"]))
        self.errors: list[BaseException] = []
        ranges = tuple((at, at + size) for at, size in memories)
        bus = DeviceBus(self.load, self.store, ranges)
        self.device = RandomDevice(bus, self.arena) if is_random else Served().open(bus)
        self.port = Port(
            READ(lambda _, offset: self.device.read32(offset)), WRITE(self.write),
            None, 0, None, None, None, None, ADDRESS(self.find_address),
        )  # fmt: skip

    def unprotect(self, address: int, size: int) -> None:
        """Make read-only memory of the library writable."""
        page = address & ~4095
        length = address + size - page
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(length), 3) == 0

    def load(self, at: int, count: int) -> bytes:
        return ctypes.string_at(self.base + at, count)

    def store(self, at: int, data: bytes) -> None:
        assert at in self.arena
        assert at + len(data) <= self.arena.stop
        ctypes.memmove(self.base + at, data, len(data))

    def write(self, _: object, offset: int, value: int) -> None:
        """Write a register; keep an exception, which ctypes would only print."""
        try:
            self.device.write32(offset, value)
        except BaseException as error:
            self.errors.append(error)

    def find_address(self, _: object, pointer: int | None) -> int:
        return ((pointer or 0) - self.base) % (1 << 32)

    def run(self, number: int) -> int:
        """Run a network on its sample; return the status."""
        status = int(self.code.run_one(ctypes.byref(self.port), number))
        if self.errors:
            raise self.errors[0]
        return status

    @contextmanager
    def mutate(self, number: int, rng: random.Random) -> Iterator[None]:
        """Change bytes of a network; restore them at the end."""
        saved = []
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            place, size = rng.choice(self.places[number])
            width = min(size, rng.choice((1, 1, 1, 4, 8)))
            at = place + rng.randrange(size - width + 1)
            if width > 1:
                at -= (at - place) % width
            before = self.load(at, width)
            saved.append((at, before))
            old = int.from_bytes(before, "little")
            new = rng.choice(
                (old ^ 1 << rng.randrange(8 * width), old + rng.choice((1, -1, 8, 64, -64)),
                 rng.getrandbits(8 * width), 0, (1 << 8 * width) - 1)
            )  # fmt: skip
            data = (new % (1 << 8 * width)).to_bytes(width, "little")
            ctypes.memmove(self.base + at, data, width)
        try:
            yield
        finally:
            for at, before in reversed(saved):
                ctypes.memmove(self.base + at, before, len(before))


def run_cases(bundle: MutableBundle, first: int, count: int, log: Path) -> Counter[str]:
    """Run cases and return the number of runs by status; ``log`` gets each case before it runs."""
    ends: Counter[str] = Counter()
    with log.open("wb", buffering=0) as file:
        for seed in range(first, first + count):
            os.pwrite(file.fileno(), b"%12d" % seed, 0)
            rng = random.Random(seed)
            number = rng.randrange(len(bundle.names))
            with bundle.mutate(number, rng):
                status = bundle.run(number)
            ends[STATUSES.get(status, "UNKNOWN")] += 1
            bundle.code.dla_status_text(status)
    if isinstance(bundle.device, MappedDevice):
        assert "UNKNOWN" not in ends
        assert all(bundle.run(number) == 0 for number in range(len(bundle.names)))
    return ends


def run_protected(count: int, first: int, folder: Path, device: str) -> Counter[str]:
    """Run cases in a process with GCC's sanitizer for addresses from its start.

    Raises AssertionError with the case and the sanitizer's report if the process fails.
    """
    sanitizer = run_command(["gcc", "-print-file-name=libasan.so"]).strip()
    options = {"LD_PRELOAD": sanitizer, "ASAN_OPTIONS": "detect_leaks=0"}
    words = [sys.executable, "-m", "tests.byoc.bare_metal.mutated_images", "--inside", str(folder)]
    words += ["--count", str(count), "--first", str(first), "--device", device]
    environment = {**os.environ, **options}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    case = (folder / "case").read_text() if (folder / "case").exists() else ""
    assert done.returncode == 0, f"case {case}\n{done.stdout}{done.stderr}"
    pairs = (one.split("=") for one in done.stdout.split())
    return Counter({name: int(number) for name, number in pairs})


def main() -> int:
    """Run the cases in shards, each in a process of its own, and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--shard", type=int, default=5000)
    parser.add_argument("--device", choices=DEVICES, default="simulator")
    parser.add_argument("--inside", type=Path)
    given = parser.parse_args()
    if given.inside is not None:
        ends: Counter[str] = Counter()
        for device in DEVICES[:2] if given.device == "both" else (given.device,):
            bundle = MutableBundle(given.inside, is_random=device == "random")
            ends += run_cases(bundle, given.first, given.count, given.inside / "case")
        print(" ".join(f"{name}={number}" for name, number in sorted(ends.items())))
        return 0
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_networks(folder)
        for begin in range(given.first, given.first + given.count, given.shard):
            count = min(given.shard, given.first + given.count - begin)
            total += run_protected(count, begin, folder, given.device)
            print(f"{sum(total.values())} runs: {dict(sorted(total.items()))}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
