"""What of a program depends neither on data nor on Timing, worked out once: commands, bytes, demands, labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dla_sim.engine.hazards import Footprints
from dla_sim.engine.labels import Labels, label
from dla_sim.engine.workload import Demands, crowds, demands
from dla_sim.memory import check_addresses, highest_byte
from isa.instruction import Command, Operands
from isa.program import Program, Provenance


@dataclass(frozen=True, eq=False)
class Prepared:
    """A program ready to be timed, without the program. All that has an entry a command is without ``OP_END``."""

    commands: tuple[Command, ...]
    sources: tuple[Provenance | None, ...]
    operands: tuple[Operands, ...]
    demands: Demands
    labels: Labels
    footprints: Footprints
    sram_peak_bytes: int


def prepare(program: Program) -> Prepared:
    """Decode ``program``, check its addresses and work out what its commands demand, touch and are.

    Raises InputError for illegal words, addresses outside the memories and unknown kinds.
    """
    commands, sources = program.commands[:-1], program.sources[:-1]
    operands = tuple(command.instruction.operands(command, program.arch) for command in commands)
    check_addresses(program, commands, operands)
    return Prepared(
        commands,
        sources,
        operands,
        demands(commands, operands, program),
        label(commands, operands, sources),
        Footprints(commands, operands, sources),
        highest_byte(operands, "sram"),
    )


def resized(prepared: Prepared, program: Program) -> Prepared:
    """``program`` prepared; ``prepared`` is of one that differs from it in the size of the scratchpad alone.

    What takes time to work out is shared, all of it where the same operands share banks. Raises InputError as
    :func:`prepare` does.
    """
    check_addresses(program, prepared.commands, prepared.operands)
    crowd = crowds(prepared.commands, prepared.operands, program.arch)
    if np.array_equal(crowd, prepared.demands.crowd):
        return prepared
    return replace(prepared, demands=replace(prepared.demands, crowd=crowd))
