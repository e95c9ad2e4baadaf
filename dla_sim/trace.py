"""Trace: the device's account of one run - when every command ran, and why every cycle went by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import Accounts, Labels, LayerAccount, account
from dla_sim.engine.breakdown import break_down
from dla_sim.engine.causes import Causes
from dla_sim.engine.times import CommandTimes
from dla_sim.engine.workload import Workload
from dla_sim.prepared import Prepared
from isa.instruction import Command
from isa.program import Provenance


@dataclass(frozen=True, eq=False)
class Trace:
    """One run. ``times`` holds arrival, start and end of each command, ``causes.commands`` its cycles by cause.

    ``roles`` is the part of a layer's cycles that each command is (``dla_sim.engine.breakdown.PARTS``).
    """

    prepared: Prepared
    workload: Workload
    roles: NDArray[np.int64]
    times: CommandTimes
    causes: Causes

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands in stream order, without ``OP_END``."""
        return self.prepared.commands

    @property
    def sources(self) -> tuple[Provenance | None, ...]:
        """The provenance of each command, or None."""
        return self.prepared.sources

    @property
    def labels(self) -> Labels:
        """Kind, layer, work and traffic of each command."""
        return self.prepared.labels

    @property
    def sram_peak_bytes(self) -> int:
        """One past the highest byte of the scratchpad that any command touches."""
        return self.prepared.sram_peak_bytes

    @property
    def cycles(self) -> int:
        """Cycles of the whole run."""
        return self.times.total

    @property
    def units(self) -> Mapping[str, Mapping[str, int]]:
        """For LD, EX and ST: cycles by cause, each summing to ``cycles``."""
        return self.causes.units

    @cached_property
    def accounts(self) -> Accounts:
        """Cycles by kind and by layer."""
        return account(self.labels, self.causes, self.times)

    @property
    def kinds(self) -> Mapping[str, int]:
        """Cycles of the run by kind, summing to ``cycles``."""
        return self.accounts.kinds

    @property
    def ex_cycles(self) -> Mapping[str, int]:
        """Cycles in which EX executes, by kind."""
        return self.accounts.ex_cycles

    @property
    def layers(self) -> tuple[LayerAccount, ...]:
        """The layers in order of first appearance; their cycles sum to ``cycles``."""
        return self.accounts.layers

    @cached_property
    def breakdown(self) -> tuple[Mapping[str, int], ...]:
        """For each of ``layers``, its cycles by part (``dla_sim.engine.breakdown.PARTS``): what they went into.

        Each layer's sum to its ``cycles``; an AssertionError if they do not.
        """
        parts = break_down(self.workload, self.labels, self.roles, self.times, self.causes)
        if [sum(part.values()) for part in parts] != [layer.cycles for layer in self.layers]:
            raise AssertionError("the parts of a layer's cycles do not add up to its cycles")
        return parts

    @property
    def command_words(self) -> int:
        """Words of the command stream, SETs and ``OP_END`` included."""
        return self.workload.word_count

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all commands, padded taps included."""
        return int(self.labels.macs.sum())

    @property
    def dram_read_bytes(self) -> int:
        """Bytes that LD read from system memory, rows counted as often as they were read; without command fetch."""
        return int(self.labels.read.sum())

    @property
    def flash_read_bytes(self) -> int:
        """Those of ``dram_read_bytes`` that came from the flash; 0 of a machine without one."""
        return int((self.labels.read * self.workload.columns["flash"]).sum())

    @property
    def dram_write_bytes(self) -> int:
        """Bytes that ST wrote to system memory."""
        return int(self.labels.write.sum())

    @property
    def sram_moved_bytes(self) -> int:
        """Bytes that EX, LD and ST read from and wrote to the scratchpad; EX each operand and each result once."""
        return self.workload.demands.ex_bytes + self.dram_read_bytes + self.dram_write_bytes

    @property
    def register_writes(self) -> int:
        """Configuration registers written: the SETs of the command stream."""
        return self.command_words - self.instructions

    @property
    def fetch_bytes(self) -> int:
        """Bytes of command words that the command fetch read."""
        return 8 * self.command_words

    @property
    def instructions(self) -> int:
        """Operations executed, ``OP_END`` included; ``command_words`` counts the SETs as well."""
        return len(self.commands) + 1
