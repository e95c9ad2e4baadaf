"""Random systems: the machines of `dla_sim.systems` against the tick model's.

``python -m tests.dla_sim.systems_comparison --count 2000`` runs many seeds.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dla_sim.device import Device
from dla_sim.engine.bus import NEVER, PORTS
from dla_sim.systems.machines import Machines, Running, SharedMemory
from dla_sim.systems.spec import MEMORY_KEYS
from dla_sim.timing import Timing
from isa.arch import PACKED
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import COMPUTE, ISA, random_case
from tests.dla_sim.tick.system import TickSystem, Turn


@dataclass(frozen=True)
class Job:
    """A program that a machine runs from ``release`` on.

    ``stops`` are the commands at which it asks, and whether it may continue there.
    """

    program: Program
    release: int
    stops: dict[int, bool]

    @property
    def cut(self) -> int | None:
        """The first stop at which it may not go on."""
        return next((stop for stop, on in self.stops.items() if not on), None)


@dataclass(frozen=True)
class SystemCase:
    """Machines with their jobs, in order, on a memory whose port p serves ``ports[p]``."""

    jobs: list[list[Job]]
    timings: list[Timing]
    ports: list[list[int]]
    grants: int


def random_system(seed: int, isa: str = ISA) -> SystemCase:
    """Return the system of ``seed``: 1 to 4 machines whose timings agree on the memory.

    A seed always gives the same system. With banked memory the bus fits the narrowest word.
    """
    rng = random.Random(seed)
    count = rng.choice((1, 2, 2, 3, 4))
    donor = random_case(rng.randrange(1 << 30), memories="rates").timing
    shared = {name: donor[name] for name in MEMORY_KEYS if name in donor}
    if isa == PACKED:
        shared |= {name: min(4, shared[name]) for name in ("bus_bytes", "flash_bytes")}
    others = [random_case(rng.randrange(1 << 30), memories="rates").timing for _ in range(count)]
    timings = [
        Timing(**{name: one[name] for name in one if name not in MEMORY_KEYS}, **shared)
        for one in others
    ]
    ports: list[list[int]] = [[] for _ in range(rng.randint(1, count))]
    for machine in range(count):
        rng.choice(ports).append(machine)
    ports = [machines for machines in ports if machines]
    jobs = [[_job(rng, isa) for _ in range(rng.randint(0, 3))] for _ in range(count)]
    return SystemCase(jobs, timings, ports, rng.randint(1, len(ports)))


def _job(rng: random.Random, isa: str) -> Job:
    program = build_program(random_case(rng.randrange(1 << 30), isa, "rates"))
    commands = range(len(program.commands) - 1)
    stops = sorted(rng.sample(commands, rng.randint(0, min(3, len(commands)))))
    return Job(
        program,
        rng.choice((0, 0, rng.randint(0, 400))),
        {stop: rng.random() < 0.6 for stop in stops},
    )


def engine_turns(case: SystemCase) -> list[list[Running]]:
    """Run a system case with the machines of `dla_sim.systems`."""
    ports = [
        [machine * len(PORTS) + port for machine in mine for port in range(len(PORTS))]
        for mine in case.ports
    ]
    machines = Machines(len(case.jobs), SharedMemory(ports, case.grants))
    left = [list(mine) for mine in case.jobs]
    done: list[list[Running]] = [[] for _ in left]
    jobs: dict[int, Job] = {}

    def next_job(machine: int, now: int) -> None:
        if left[machine]:
            job = jobs[machine] = left[machine].pop(0)
            workload = Device(job.program.arch, case.timings[machine]).load(job.program).workload
            machines.start(machine, workload, max(now, job.release), list(job.stops))

    for machine in range(len(left)):
        next_job(machine, 0)
    while any(machines.running):
        for one in machines.advance(NEVER):
            running = one.running
            if one.ended:
                done[running.machine].append(running)
                next_job(running.machine, one.time)
            elif jobs[running.machine].stops[running.stop]:
                running.go_on()
            else:
                running.give_way()
    return done


def system_differences(case: SystemCase) -> list[str]:
    """Describe the differences between the machines and the tick model."""
    turns = [[Turn(job.program, job.release, job.cut) for job in mine] for mine in case.jobs]
    expected = TickSystem(turns, case.timings, case.ports, case.grants).run()
    found = []
    for machine, (mine, right) in enumerate(zip(engine_turns(case), expected, strict=True)):
        for number, (running, turn) in enumerate(zip(mine, right, strict=True)):
            where = f"machine {machine}, program {number}"
            if (running.start, running.end) != (turn.start, turn.end):
                found.append(
                    f"{where}: {running.start} to {running.end}, tick model {turn.start} "
                    f"to {turn.end}"
                )
            for command, span in enumerate(running.spans()):
                if span != turn.spans[command]:
                    found.append(
                        f"{where}, command {command}: {span}, tick model {turn.spans[command]}"
                    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 all equal, 1 otherwise."""
    parser = argparse.ArgumentParser(
        description="Hold systems of several machines to the tick model."
    )
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=2000, help="number of seeds")
    parser.add_argument(
        "--isa", choices=tuple(COMPUTE), default=ISA, help="of machines of words or of others"
    )
    given = parser.parse_args(arguments)
    for seed in range(given.first, given.first + given.count):
        if found := system_differences(random_system(seed, given.isa)):
            print(f"seed {seed} differs:", *found, sep="\n")
            return 1
    print(f"{given.count} systems, all equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
