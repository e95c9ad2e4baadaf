"""Several machines on one memory equal the tick model, single machines and plain arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest

import byoc
from dla_sim.device import Device
from dla_sim.engine.bus import NEVER, PORTS
from dla_sim.engine.times import DeadlockError, compute_times
from dla_sim.engine.workload import Workload, continue_demands
from dla_sim.prepared import prepare
from dla_sim.systems.machines import MachineEvent, Machines, SharedMemory
from dla_sim.systems.work import Preemptible, _live_ranges, boundaries, expose_memory, leave
from dla_sim.timing import Timing
from experiments.models import MODELS
from isa.access import Access
from isa.arch import Arch, PeArray
from isa.encoding import encode_operation
from isa.instruction import Operands, Unit
from isa.ops.control import OP_END, OP_SYNC
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import COMPUTE, random_case
from tests.dla_sim.systems_comparison import random_system, system_differences


@pytest.mark.parametrize("isa", COMPUTE)
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_systems_equal_the_tick_model(first: int, isa: str) -> None:
    for seed in range(first, first + 10):
        assert system_differences(random_system(seed, isa)) == [], f"seed {seed}"


def _workloads(count: int) -> Iterator[Workload]:
    for seed in range(count):
        case = random_case(seed, memories="rates")
        yield Device(case.arch, Timing(**case.timing)).load(build_program(case)).workload


def test_machines_with_ports_of_their_own_take_the_times_of_one_each() -> None:
    for number, workload in enumerate(_workloads(30)):
        alone = compute_times(workload)
        start = 7 * number
        count = 1 + number % 4
        ports = [
            list(range(len(PORTS) * machine, len(PORTS) * (machine + 1)))
            for machine in range(count)
        ]
        machines = Machines(count, SharedMemory(ports, count))
        for machine in range(count):
            machines.start(machine, workload, start)
        happened = machines.advance(NEVER)
        assert [one.time for one in happened] == [start + alone.total] * count
        for one in happened:
            times = one.running.times()
            np.testing.assert_array_equal(times.start, alone.start + start)
            np.testing.assert_array_equal(times.end, alone.end + start)


def test_asking_at_every_command_costs_nothing() -> None:
    for workload in _workloads(20):
        machines = Machines(1, SharedMemory([range(len(PORTS))], 1))
        machines.start(0, workload, 0, range(len(workload)))
        asked = 0
        while True:
            (one,) = machines.advance(NEVER)
            if one.ended:
                break
            one.running.go_on()
            asked += 1
        assert (asked, one.time) == (len(workload), compute_times(workload).total)


def test_time_may_pass_in_any_steps() -> None:
    """Whoever decides looks in at times of its own; nothing depends on that."""
    rng = random.Random(0)
    for workload in _workloads(10):
        machines = Machines(2, SharedMemory([range(2 * len(PORTS))], 1))
        for machine in range(2):
            machines.start(machine, workload, 5 * machine)
        whole = [(one.running.machine, one.time) for one in _all(machines, NEVER)]
        machines = Machines(2, SharedMemory([range(2 * len(PORTS))], 1))
        for machine in range(2):
            machines.start(machine, workload, 5 * machine)
        assert [
            (one.running.machine, one.time) for one in _all(machines, rng.randint(1, 50))
        ] == whole


def _all(machines: Machines, step: int) -> Iterator[MachineEvent]:
    limit = 0
    while any(machines.running):
        limit = min(limit + step, NEVER)
        yield from machines.advance(limit)


def test_two_loads_on_one_bus_by_hand() -> None:
    """Slots of two requesters on one port alternate.

    On ports of their own both are served, or one a cycle.

    A begins at 10 with 4 slots, B at 12 with 3. One port: A gets 10 and 11, then B (served after A)
    12, A 13, B 14, A 15, B 16: A has ended at 16, B at 17. Two ports and one grant a cycle are the
    same. Two grants: 14 and 15.
    """
    for ports, grants, ends in (
        ([[0, 1]], 1, (16, 17)),
        ([[0], [1]], 1, (16, 17)),
        ([[0], [1]], 2, (14, 15)),
    ):
        memory = SharedMemory(ports, grants)
        known = [NEVER, NEVER]
        memory.announce(1, 12, 3, known, 1, 0)
        memory.announce(0, 10, 4, known, 0, 0)
        while memory.proceed(NEVER):
            pass
        assert tuple(known) == ends


def test_a_program_that_stands_still_says_so() -> None:
    words = [
        encode_operation(OP_SYNC, {"unit": Unit.EX.value, "pop_previous": 1}),
        encode_operation(OP_END, {}),
    ]
    program = replace(
        build_program(random_case(0)), words=np.array(words, dtype=np.uint64), provenance=()
    )
    machines = Machines(1, SharedMemory([range(len(PORTS))], 1))
    machines.start(0, Device(program.arch).load(program).workload, 0)
    with pytest.raises(DeadlockError, match="EX waits at word 0 for a token from LD"):
        machines.advance(NEVER)


@pytest.fixture(scope="module")
def network() -> Program:
    """One region in many tiles."""
    model = MODELS["digits-cnn"]
    package = byoc.import_model(model.build(0), "digits", calibration=model.calibration(0))
    (program,) = byoc.compile(
        package, Arch(pe=PeArray(ic=8, oc=8), sram_bytes=2048)
    ).programs.values()
    return program


def test_a_program_in_pieces_gives_the_bits_of_the_whole(network: Program) -> None:
    """Between pieces the scratchpad is lost: every one starts with garbage in it."""
    rng = random.Random(0)
    stops = boundaries(network, tiles=True)
    preemptible = Preemptible(network, stops)
    assert len(stops) > 10
    size = max(preemptible.piece(stop).resume.dram_bytes for stop in stops)
    feeds = {
        tensor.name: np.random.default_rng(1).integers(-128, 128, tensor.shape).astype(tensor.dtype)
        for tensor in network.inputs
    }
    expected = Device(network.arch).run(network, feeds).outputs
    garbage = Device(network.arch, sram_reset=0xA5)
    for chain in [*([stop] for stop in stops), *(sorted(rng.sample(stops, 3)) for _ in range(10))]:
        memory = _memory(network, feeds, size)
        program = network
        behind = 0
        for stop in chain:
            piece = preemptible.piece(stop)
            memory = _run(garbage, leave(program, stop + behind, piece.save), memory)
            program = piece.resume
            behind = piece.first - stop
        memory = _run(garbage, program, memory)
        for tensor in network.outputs:
            found = memory[tensor.address : tensor.address + tensor.nbytes].reshape(tensor.shape)
            np.testing.assert_array_equal(found, expected[tensor.name])


def test_what_goes_on_costs_what_its_program_says(network: Program) -> None:
    """Demands of a resumed program are combined without reading the program.

    They are those of the restoring commands and of the later commands of the whole program.
    """
    rng = random.Random(0)
    for program in (
        network,
        *(build_program(random_case(seed, memories="rates")) for seed in range(60)),
    ):
        commands = range(len(program.commands) - 1)
        stops = sorted(rng.sample(commands, min(6, len(commands))))
        preemptible = Preemptible(program, stops)
        whole = prepare(program).demands
        for stop in stops:
            piece = preemptible.piece(stop)
            found = continue_demands(prepare(piece.restore).demands, whole, stop)
            expected = prepare(piece.resume).demands
            assert found.transfers.accesses == expected.transfers.accesses
            for field in fields(found):
                if field.name != "transfers":
                    mine, right = (getattr(one, field.name) for one in (found, expected))
                    assert (
                        np.array_equal(mine, right)
                        if isinstance(right, np.ndarray)
                        else mine == right
                    ), field.name


def _memory(program: Program, feeds: dict[str, np.ndarray], size: int) -> np.ndarray:
    memory = np.zeros(size, np.int8)
    for segment in program.segments:
        memory[segment.address : segment.address + segment.data.size] = segment.data.view(np.int8)
    for tensor in program.inputs:
        memory[tensor.address : tensor.address + tensor.nbytes] = feeds[tensor.name].reshape(-1)
    return memory


def _run(device: Device, program: Program, memory: np.ndarray) -> np.ndarray:
    return device.run(expose_memory(program, memory.size), {"memory": memory}).outputs["memory"]


def test_what_is_live_by_hand() -> None:
    """Live ranges of four commands equal those worked out by hand.

    Command 0 writes 0 to 128, 1 writes 128 to 192, 2 reads 0 to 64 and writes 64 to 128, 3 reads 64
    to 192.
    """
    operands = [
        _moves([], [(0, 128)]), _moves([], [(128, 64)]), _moves([(0, 64)], [(64, 64)]),
        _moves([(64, 128)], []),
    ]  # fmt: skip
    live = _live_ranges(operands, [0, 1, 2, 3], 256)
    assert live == {0: (), 1: ((0, 64),), 2: ((0, 64), (128, 192)), 3: ((64, 192),)}


def _moves(reads: list[tuple[int, int]], writes: list[tuple[int, int]]) -> Operands:
    return Operands(
        reads=tuple(Access("sram", *one) for one in reads),
        writes=tuple(Access("sram", *one) for one in writes),
    )
