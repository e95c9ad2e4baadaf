"""Check that programs preempted and resumed in pieces give the same bits as whole programs.

A job has its own tensors, and no other program uses the machine while one runs. Other programs can
change only the scratchpad in between, so every piece here starts on a scratchpad full of garbage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device
from dla_sim.systems.simulate import Ways
from dla_sim.systems.work import Preemptible, ProgramWork, expose_memory, leave
from isa.program import Program

GARBAGE = 0xA5


@dataclass(frozen=True)
class PreemptionCheck:
    """Result of comparing preempted programs with uninterrupted ones.

    ``ways`` counts the distinct ways in which programs ran in pieces, ``elements`` the elements of
    their outputs, ``mismatches`` those that differ.

    ``first`` names the first job with a mismatch, or is None.
    """

    ways: int
    elements: int
    mismatches: int
    first: str | None


def check_preemption(found: Ways, seed: int = 0) -> PreemptionCheck:
    """Run every program in preempted pieces and compare the bits with an uninterrupted run.

    Input tensors are drawn from ``seed``. ``first`` of the result is the first job, in the order of
    ``found``, whose program differs.
    """
    elements = 0
    mismatches = 0
    first = None
    wholes: dict[ProgramWork, Mapping[str, NDArray[Any]]] = {}
    for (work, cuts), job in found.items():
        program = work.program
        feeds = _make_feeds(program, seed)
        if work not in wholes:
            wholes[work] = Device(program.arch).run(program, feeds).outputs
        memory = _run_in_pieces(Preemptible(program, cuts), cuts, feeds)
        for tensor in program.outputs:
            raw = memory[tensor.address : tensor.address + tensor.nbytes]
            whole = wholes[work][tensor.name]
            wrong = int((raw.view(tensor.dtype).reshape(tensor.shape) != whole).sum())
            elements = elements + whole.size
            mismatches = mismatches + wrong
            if wrong and first is None:
                first = job
    return PreemptionCheck(len(found), elements, mismatches, first)


def _make_feeds(program: Program, seed: int) -> dict[str, NDArray[Any]]:
    generator = np.random.default_rng(seed)
    return {
        one.name: generator.integers(-128, 128, one.shape).astype(one.dtype)
        for one in program.inputs
    }


def _run_in_pieces(
    preemptible: Preemptible, cuts: tuple[int, ...], feeds: dict[str, NDArray[Any]]
) -> NDArray[np.int8]:
    """Return the system memory after a run that was preempted before each command in ``cuts``."""
    program = preemptible.program
    pieces = [preemptible.piece(cut) for cut in cuts]
    memory = np.zeros(max(piece.resume.dram_bytes for piece in pieces), np.int8)
    for segment in program.segments:
        memory[segment.address : segment.address + segment.data.size] = segment.data.view(np.int8)
    for tensor in program.inputs:
        raw = np.ascontiguousarray(feeds[tensor.name]).view(np.int8).reshape(-1)
        memory[tensor.address : tensor.address + tensor.nbytes] = raw
    device = Device(program.arch, sram_reset=GARBAGE)
    here = program
    shift = 0
    for piece in pieces:
        memory = _run(device, leave(here, piece.stop + shift, piece.save), memory)
        here = piece.resume
        shift = piece.first - piece.stop
    return _run(device, here, memory)


def _run(device: Device, program: Program, memory: NDArray[np.int8]) -> NDArray[np.int8]:
    found: NDArray[np.int8] = device.run(
        expose_memory(program, memory.size), {"memory": memory}
    ).outputs["memory"]
    return found
