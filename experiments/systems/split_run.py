"""A split network, run: its programs timed, and on the memory that all share, on data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.compiler import CompiledNetwork
from byoc.graph import Value
from byoc.host.runtime import from_device, to_device
from byoc.splitting import Accelerator, Piece, Step
from dla_sim.device import Device
from dla_sim.presets import Preset
from dla_sim.systems.jobs import Job
from dla_sim.systems.spec import System
from dla_sim.systems.work import Piecework
from isa.program import Execution, Program

Tensors = dict[str, NDArray[Any]]


class TimedPrograms:
    """The programs of a split, each timed once, on the accelerator that it was compiled for."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._works: dict[Program, Piecework] = {}
        self.accelerators = tuple(
            Accelerator(one.name, machine.arch, machine.timing.burst_bytes, partial(self._alone, machine))
            for one in system.accelerators
            for machine in (one.hardware,)
        )

    def _alone(self, hardware: Preset, program: Program) -> int:
        work = self._works[program] = Piecework(program, hardware)
        return work.alone

    def of(self, piece: Piece) -> Piecework:
        """The program of a piece."""
        return self._works[piece.program]

    def jobs_of_steps(self, steps: Sequence[Step]) -> list[Job]:
        """Every step behind all of the one before."""
        jobs: list[Job] = []
        before: tuple[int, ...] = ()
        for step in steps:
            first = len(jobs)
            jobs += [Job(piece.accelerator, self.of(piece), before, step.whole is not None) for piece in step.pieces]
            before = tuple(range(first, len(jobs)))
        return jobs

    def jobs_of_stages(self, steps: Sequence[Step], images: int) -> list[Job]:
        """Images one behind the other through stages; each image has tensors of its own between them."""
        pieces = [step.pieces[0] for step in steps]
        return [
            Job(piece.accelerator, self.of(piece), (image * len(pieces) + number - 1,) if number else ())
            for image in range(images)
            for number, piece in enumerate(pieces)
        ]


class SplitExecutor:
    """Runs a region's program in its pieces instead, and as a whole as well: ``mismatches`` are elements that differ.

    An executor as the host runtime wants it, so that the CPU parts and the check of a run are the ordinary ones.
    """

    def __init__(self, compiled: CompiledNetwork, steps: Mapping[int, Sequence[Sequence[Step]]]) -> None:
        """``steps``: by region, all the ways in which it runs on data."""
        self._values = compiled.graph.values
        self._steps = {compiled.programs[index].name: ways for index, ways in steps.items()}
        self.mismatches = 0
        self.elements = 0

    def run(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Execution[None]:
        """What the pieces make, of the last way; every way is compared with the whole program."""
        whole = Device(program.arch).run(program, inputs).outputs
        found: Tensors = {}
        for steps in self._steps[program.name]:
            memory = {name: from_device(array, self._values[name]) for name, array in inputs.items()}
            for step in steps:
                for piece in step.pieces:
                    run_piece(piece, memory, self._values)
            found = {one.name: to_device(memory[one.name], one) for one in program.outputs}
            self.elements += sum(array.size for array in found.values())
            self.mismatches += sum(int(np.count_nonzero(found[name] != whole[name])) for name in found)
        return Execution(found, None)


def run_piece(piece: Piece, memory: Tensors, values: Mapping[str, Value]) -> None:
    """Run a program on what it reads of the tensors in memory, and put what it makes in its place."""
    program = piece.program
    feeds = {}
    for tensor in program.inputs:
        window = piece.reads[tensor.name]
        feeds[tensor.name] = to_device(memory[window.tensor][_index(window.axis, window.span)], tensor)
    for name, array in Device(program.arch).run(program, feeds).outputs.items():
        window, value = piece.writes[name], piece.values[name]
        made = from_device(array, value)
        if window.span is None:
            memory[window.tensor] = made
            continue
        whole = values[window.tensor]
        memory.setdefault(window.tensor, np.zeros(whole.shape, whole.dtype))[_index(window.axis, window.span)] = made


def _index(axis: int, span: tuple[int, int] | None) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(None) if span is None else slice(*span),)
