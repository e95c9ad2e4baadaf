"""Workshops: regions without weights, compiled and timed for one machine after another that differ little."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from byoc.options import CompileOptions
from byoc.region import compile_region
from byoc.scheduling.pool import SearchPool
from dla_sim.program_timing import ProgramTiming
from experiments.sweep.blank import read_blank
from isa.arch import Arch
from isa.program import Program


@dataclass(frozen=True)
class CompiledProgram:
    """A program without its constants, and the bytes of inputs, outputs and constants that must move at least once."""

    program: Program
    compulsory_bytes: int


class Workshop:
    """The regions of a partition, with what compilations share for machines equal but for the scratchpad's size."""

    def __init__(self, regions: bytes) -> None:
        self._regions, self._values = read_blank(regions)
        self._pool = SearchPool()
        self._timings: dict[int, ProgramTiming] = {}

    def compiled(self, arch: Arch, options: CompileOptions) -> tuple[CompiledProgram, ...]:
        """The regions compiled for ``arch``, without data."""
        found = []
        for region in self._regions:
            program, _ = compile_region(
                region, self._values, arch, options.schedule, options.emulate_depthwise, data=False, pool=self._pool
            )
            constants = sum(int(segment.data.size) for segment in program.segments)
            compulsory = constants + sum(tensor.nbytes for tensor in program.tensors)
            found.append(CompiledProgram(replace(program, segments=()), compulsory))
        return tuple(found)

    def timed(self, programs: tuple[CompiledProgram, ...]) -> tuple[ProgramTiming, ...]:
        """The programs, ready to be timed; what was worked out for the last ones serves again where it can."""
        return tuple(self._timed(number, item.program) for number, item in enumerate(programs))

    def _timed(self, number: int, program: Program) -> ProgramTiming:
        last = self._timings.get(number)
        found = last.resized(program) if last is not None else None
        self._timings[number] = found = found or ProgramTiming(program)
        return found


@lru_cache(maxsize=4)
def workshop_for(regions: bytes, machine: Arch) -> Workshop:
    """The workshop for these regions and machine (its scratchpad's size left open); the last few are kept."""
    return Workshop(regions)
