"""The device as a process: C on the host runs programs on it through the socket."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dla_sim.device import Device
from dla_sim.device_server import REPLY, REQUEST, RequestKind, answer
from dla_sim.mapped import MappedDevice, make_bus
from experiments.rtl.device import main
from isa.device import COUNTED_CAUSES, COUNTED_UNITS, to_image
from isa.program import Program
from tests.byoc.bare_metal.building import DRIVER, build
from tests.dla_sim.mapped_systems import compile_digits, random_inputs, small_program

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="the Debian package gcc is not installed"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [HERE / "socket_check.c", DRIVER / "dla_socket.c"]
    return build(tmp_path_factory.mktemp("client"), sources)


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Path]:
    """A device in another process, at the socket that is returned; it buffers its output."""
    place = folder / "device"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "experiments.rtl.device", str(place), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready at {place}\n"
        yield place
    finally:
        process.terminate()
        process.communicate()


def image_bytes(program: Program, inputs: dict[str, np.ndarray], *, hash0: int = 0) -> bytes:
    """The file that socket_check.c reads."""
    image = to_image(program)
    activations = bytearray(image.activation_bytes)
    for tensor in program.inputs:
        activations[tensor.address : tensor.address + tensor.nbytes] = inputs[tensor.name].tobytes()
    numbers = [image.arch_hash[0] ^ hash0, *image.arch_hash[1:], len(image.words)]
    numbers += [image.command_start, image.constants.size, image.constant_start]
    numbers += [image.activation_bytes, image.activation_start, 0, 0]
    head = struct.pack("<12I", *numbers)
    return head + image.words.tobytes() + image.constants.tobytes() + bytes(activations)


@pytest.mark.parametrize("mode", ["poll", "interrupt"])
def test_c_on_the_host_gets_the_bits_and_the_counters(
    mode: str, client: Path, tmp_path: Path
) -> None:
    program = compile_digits()
    inputs = random_inputs(program)
    (tmp_path / "image").write_bytes(image_bytes(program, inputs))
    (tmp_path / "wrong").write_bytes(image_bytes(program, inputs, hash0=1))
    with served(tmp_path, "--memory", "1M") as place:
        words = [str(client), str(place), "image", "result", mode]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok, word 0\n", "")
        words[2:4] = "wrong", "faulty"
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout.startswith("fault: the program is for another machine")
        assert done.returncode == 1
    expected = Device(program.arch).run(program, inputs)
    content = (tmp_path / "result").read_bytes()
    counters = np.frombuffer(content[:248], "<u8")
    assert counters[0] == expected.trace.cycles
    units = [
        expected.trace.units[unit].get(cause, 0)
        for unit in COUNTED_UNITS
        for cause in COUNTED_CAUSES
    ]
    assert counters[1:].tolist() == units
    for tensor in program.outputs:
        found = content[248 + tensor.address :][: tensor.nbytes]
        assert found == expected.outputs[tensor.name].tobytes()


def test_too_little_memory_and_no_device_are_errors(client: Path, tmp_path: Path) -> None:
    program = compile_digits()
    (tmp_path / "image").write_bytes(image_bytes(program, random_inputs(program)))
    words = [str(client), str(tmp_path / "device"), "image", "result", "poll"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "No such file" in done.stderr) == (2, True)
    with served(tmp_path, "--memory", "1K"):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "the run was stopped before its end, word 0\n")


def test_bad_options_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").touch()
    for words, message in (
        (["x", "--preset", "none"], "preset 'none'"),
        (["x", "--memory", "much"], "--memory much: not a size"),
        (["x", "--engine", "rtl", "--set", "isa=v5"], "isa v5: dla writes hardware only for"),
        ([str(tmp_path / "taken")], "Address already in use; choose another path"),
    ):
        assert main(words) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("error: ")
        assert printed.count("\n") == 1
        assert message in printed


def test_random_requests_get_replies() -> None:
    rng = random.Random(0)
    memory = bytearray(4096)
    bus = make_bus(memory, 0x1000)
    device = MappedDevice(Device(small_program().arch), bus, deferred=True)
    for _ in range(3000):
        kind = rng.choice([*RequestKind, 0, 99])
        address = rng.choice([rng.randrange(0x200), rng.randrange(0x800, 0x2800), 0xFFFFFFFF])
        value = rng.choice([rng.randrange(64), rng.randrange(8192), 0xFFFFFFFF])
        try:
            reply = answer(device, bus, kind, address, value, lambda count: bytes(count))
        except ConnectionAbortedError:
            assert kind == RequestKind.WRITE
            assert address < 0x1000 or address + value > 0x2000
            continue
        read = kind == RequestKind.READ and address >= 0x1000 and address + value <= 0x2000
        assert len(reply) == REPLY.size + (value if read else 0)
    assert len(memory) == 4096
    assert REQUEST.size == 9
