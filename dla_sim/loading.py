"""Loading a program onto a device: everything about it that does not depend on inputs or time is worked out once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.demands import demands
from dla_sim.engine.hazards import Footprints
from dla_sim.engine.labels import Labels, label
from dla_sim.engine.roles import roles
from dla_sim.engine.workload import Workload
from dla_sim.kernels import Kernel, Kernels
from dla_sim.memory import SystemMemory, check_addresses, highest_byte
from dla_sim.timing import Timing
from isa.instruction import Command
from isa.program import Program, Provenance, Tensor


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """A program on a device. It holds no results: every run simulates time and data anew.

    ``effects[i]`` executes ``commands[i]`` on the memories: its kernel, or its semantics. ``commands`` is without
    ``OP_END``.
    """

    commands: tuple[Command, ...]
    sources: tuple[Provenance | None, ...]
    tensors: tuple[Tensor, ...]
    workload: Workload
    footprints: Footprints
    labels: Labels
    roles: NDArray[np.int64]
    effects: tuple[Kernel, ...]
    memory: SystemMemory
    sram_peak_bytes: int


def load(program: Program, timing: Timing, kernels: Kernels) -> LoadedProgram:
    """Decode ``program``, check its addresses, cost its commands and lay out its system memory.

    Raises InputError for illegal words, addresses outside the memories and unknown kinds.
    """
    commands, sources = program.commands[:-1], program.sources[:-1]
    effects = {command.instruction.mnemonic: kernels.kernel_for(command.instruction.mnemonic) for command in commands}
    operands = tuple(command.instruction.operands(command, program.arch) for command in commands)
    check_addresses(program, commands, operands)
    return LoadedProgram(
        commands,
        sources,
        program.tensors,
        Workload(demands(commands, operands, program.arch, len(program.words), program.command_address), timing),
        Footprints(commands, operands, sources),
        label(commands, operands, sources),
        roles(program, commands, operands),
        tuple(effects[command.instruction.mnemonic] for command in commands),
        SystemMemory(program, operands),
        highest_byte(operands, "sram"),
    )
