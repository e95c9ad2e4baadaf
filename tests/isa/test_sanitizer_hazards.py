"""Every collision on the device is a reported race, and ordered commands never collide."""

from __future__ import annotations

import re

from dla_sim.device import Device
from dla_sim.prepared import HazardError
from dla_sim.timing import Timing
from isa.program import Program
from isa.sanitizer import sanitize
from isa.sanitizer.findings import SanitizerFinding
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import random_case

SEEDS = range(400)
OWN = "operand overwritten"
WORDS = re.compile(r"at word (\d+)")


def test_every_collision_is_a_race_that_the_sanitizer_implies() -> None:
    collided = 0
    for seed in SEEDS:
        case = random_case(seed)
        program = build_program(case)
        message = _collision(program, Timing(**case.timing))
        if message is not None:
            collided += 1
            assert _implied(program, message), (seed, message)
    assert collided > len(SEEDS) // 10


def _collision(program: Program, timing: Timing) -> str | None:
    try:
        Device(program.arch, timing).run(program, {}, timing_only=True)
    except HazardError as error:
        return str(error)
    return None


def _implied(program: Program, message: str) -> bool:
    """Return True if a reported race ends no sooner than the collision.

    For a command that collides with itself, return True if a finding names that command.
    """
    words = sorted(int(word) for word in WORDS.findall(message))
    if len(words) == 1:
        return any(
            finding.kind == OWN and finding.sites[0].word == words[0]
            for finding in sanitize(program)
        )
    early, late = words
    units = {command.index: command.unit for command in program.commands}
    ends = [
        [site.word for site in finding.sites] for finding in sanitize(program) if _race(finding)
    ]
    return any(
        (units[one], units[other]) == (units[early], units[late]) and one >= early and other <= late
        for one, other in ends
    )


def test_what_has_no_race_collides_under_no_timing() -> None:
    ordered = 0
    for seed in SEEDS:
        program = build_program(random_case(seed))
        if any(_race(finding) for finding in sanitize(program)):
            continue
        ordered += 1
        for other in range(3):
            timing = Timing(**random_case(1000 + 3 * seed + other).timing)
            assert _collision(program, timing) is None
    assert ordered > len(SEEDS) // 10


def _race(finding: SanitizerFinding) -> bool:
    return finding.kind.endswith("race") or finding.kind == OWN
