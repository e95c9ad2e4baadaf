"""The effects of commands: in which order a device carries them out, and whose it was that stopped the program."""

from __future__ import annotations

import numpy as np

from dla_sim.engine.schedule import Schedule
from dla_sim.engine.workload import Workload
from dla_sim.kernels.dispatch import Kernel
from isa.assembler import command_text
from isa.errors import InputError
from isa.instruction import Command, Machine


def completion_order(workload: Workload, schedule: Schedule) -> list[int]:
    """The commands by completion, ties by unit: the order in which a device carries out their effects."""
    order: list[int] = np.lexsort((workload.demands.unit, schedule.end)).tolist()
    return order


def carry_out(effect: Kernel, command: Command, machine: Machine) -> None:
    """The effect of one command; its InputError or OverflowError names the command: word and assembly."""
    try:
        effect(command, machine)
    except (InputError, OverflowError) as error:
        raise type(error)(f"word {command.index}, {command_text(command)}: {error}") from error
