"""Intermediate tensors share system memory without another command, cycle or bit."""

from __future__ import annotations

import numpy as np
import pytest

from byoc.bare_metal.plan import plan_network
from byoc.compiled import CompiledNetwork
from byoc.compiler import compile
from byoc.emission import emit
from byoc.emission.emit import share_memory
from byoc.host.runtime import Runtime
from dla_sim.device import Device
from dla_sim.presets import load_hardware
from experiments.running.given import Compiling
from experiments.running.network import load
from isa.access import Access
from isa.instruction import Operands
from isa.sanitizer import sanitize

LD, EX, ST = range(3)


def access(address: int, nbytes: int) -> Operands:
    one = Access("dram", address, nbytes)
    return Operands((one,), ())


def test_a_buffer_waits_for_all_accesses_of_another() -> None:
    buffers = [(128, 256), (256, 320), (320, 384)]
    commands = [
        (ST, [0, 0, 1], access(128, 128)),
        (LD, [1, 0, 1], access(128, 128)),
        (ST, [0, 0, 2], access(256, 64)),  # does not wait for the load: no bytes of the first
        (ST, [1, 0, 3], access(320, 64)),
    ]
    move = share_memory(commands, buffers)
    assert [move(at) for at in (127, 128, 255, 256, 319, 320, 383, 384)] == [
        127, 128, 255, 256, 319, 128, 191, 384
    ]  # fmt: skip


def test_a_command_of_two_buffers_keeps_them_apart() -> None:
    one, other = access(0, 64), access(64, 64)
    both = Operands(one.reads, other.reads)
    move = share_memory([(ST, [0, 0, 1], both)], [(0, 64), (64, 128)])
    assert {move(0), move(64)} == {0, 64}


@pytest.mark.parametrize("isa", ["v5", "v4"])
def test_programs_differ_in_addresses_only(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = load_hardware(None, {"sram_bytes": 16 << 10, "dram_latency": 40}, isa=isa)
    package = load(Compiling(model="keyword-spotting")).package

    def measure() -> tuple[CompiledNetwork, dict[str, bytes], list[int]]:
        network = compile(package, hardware.arch, timing=hardware.timing)
        assert not any(sanitize(program) for program in network.programs.values())
        random = np.random.default_rng(0)
        feed = {
            port.name: random.normal(size=port.value.shape).astype(np.float32)
            for port in network.interface.inputs
        }
        done = Runtime(network, Device(hardware.arch, hardware.timing)).run(feed)
        outputs = {name: np.asarray(array).tobytes() for name, array in done.outputs.items()}
        return network, outputs, [trace.cycles for trace in done.traces.values()]

    shared = measure()
    monkeypatch.setattr(emit, "share_memory", lambda commands, buffers: int)
    apart = measure()
    assert shared[1:] == apart[1:]
    for number, program in shared[0].programs.items():
        assert len(program.words) == len(apart[0].programs[number].words)
    assert 2 * plan_network(shared[0]).arena_bytes < plan_network(apart[0]).arena_bytes
