"""Compute cycles: the instructions' own formulas (:mod:`isa.ops`), asked for tiles of which no command is there yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from byoc.estimate.constants import COMMAND_OVERHEAD
from byoc.operators.nest import Span, make_tile
from byoc.operators.operator import Geometry
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Instruction, Unit, ceil_div
from isa.registers import RESET


class Demanded(NamedTuple):
    """Compute cycles, without fill and drain, and in how many commands."""

    cycles: int
    commands: int


class _UnknownNumberError(LookupError):
    """A cycle formula reads a register or field whose value no estimate may depend on."""


class _Known(dict[str, int]):
    """Registers or fields of a layer less its numbers: a formula that reads one is an error, not a wrong estimate."""

    def __missing__(self, name: str) -> int:
        raise _UnknownNumberError(name)


class Compute:
    """Compute cycles of tiles of one layer; remembers what it has asked."""

    def __init__(self, geometry: Geometry, arch: Arch) -> None:
        self._geometry, self._arch = geometry, arch
        self._fields = _Known(geometry.fields)
        self._known: dict[tuple[int, int, int], int] = {}
        read = () if geometry.instruction is None else geometry.instruction.registers
        plain = {name: RESET[name] for name in read if name in RESET and name not in geometry.operator.numbers}
        self._base = {**plain, **dict(geometry.registers)}

    def tile(self, channels: int, rows: int, depth: int = 0) -> int:
        """Cycles of one tile, all of its commands, of ``depth`` input channels, 0: of all."""
        if self._geometry.single:
            return channels * (COMMAND_OVERHEAD + self._command_cycles(1, rows))
        return COMMAND_OVERHEAD + self._command_cycles(channels, rows, depth)

    def least(self) -> Demanded:
        """What no tiling of the layer computes in less, nor in fewer commands: its instruction's word."""
        geometry, nest = self._geometry, self._geometry.nest
        instruction = geometry.instruction
        if instruction is None:
            return Demanded(0, 0)
        many, channels = (nest.channels, 1) if geometry.single else (1, nest.channels)
        command = self._command(instruction, channels, nest.rows)
        return Demanded(many * self._asked(instruction.least_cycles, command), many)

    def _command_cycles(self, channels: int, rows: int, depth: int = 0) -> int:
        """Cycles of one compute command, by the instruction's formula."""
        instruction = self._geometry.instruction
        if instruction is None:
            return 0
        key = channels, rows, depth
        if key not in self._known:
            self._known[key] = self._asked(instruction.cycles, self._command(instruction, channels, rows, depth))
        return self._known[key]

    def _command(self, instruction: Instruction, channels: int, rows: int, depth: int = 0) -> Command:
        """The command that computes a tile, as far as cycle formulas may know it."""
        geometry = self._geometry
        tile = make_tile(geometry.nest, Span(0, channels), Span(0, rows), Span(0, depth) if depth else None)
        registers = _Known({**self._base, **geometry.operator.tile_registers(geometry, tile)})
        return Command(0, instruction, Unit.EX, False, False, False, False, self._fields, registers)

    def _asked(self, formula: Callable[[Command, Arch], int], command: Command) -> int:
        """What a cycle formula says of a command; raises InputError where it reads a number."""
        try:
            return formula(command, self._arch)
        except _UnknownNumberError as error:
            raise InputError(
                f"the cycle formula of {command.instruction.mnemonic} reads {error.args[0]}, which is among the "
                f"numbers of operator {self._geometry.operator.__name__}; take it off there"
            ) from error


def copy_cycles(planes: int, nbytes: int, arch: Arch) -> int:
    """Cycles of a copy of so many planes of ``nbytes`` dense bytes each, by OP_PERMUTE.

    A machine without it has a command a plane, of as many cycles.
    """
    return COMMAND_OVERHEAD + planes * ceil_div(nbytes, arch.lanes)


def again_cycles(commands: int) -> int:
    """What a tile takes more in so many commands more."""
    return commands * COMMAND_OVERHEAD
