"""What a kernel is to the dispatcher, in two steps: what depends on the command alone, then the work on memories."""

from __future__ import annotations

from collections.abc import Callable

from dla_sim.kernels.scratch import Scratch
from isa.arch import Arch
from isa.instruction import Command, Machine

Attempt = Callable[[Machine, Scratch], bool]
"""Executes one command; False, with nothing written, where the memories' contents leave it to the semantics."""
Prepare = Callable[[Command, Arch], Attempt | None]
"""The attempt of a command; None where the command's registers leave it to the semantics."""


def at_once(kernel: Callable[[Command, Machine, Scratch], bool]) -> Prepare:
    """A kernel that prepares nothing."""

    def prepare(command: Command, arch: Arch) -> Attempt:
        return lambda machine, scratch: kernel(command, machine, scratch)

    return prepare
