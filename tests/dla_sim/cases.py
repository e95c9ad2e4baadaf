"""A legal program and a machine as plain data for one comparison of timing models.

They are easy to print and shrink. The data that a program moves have no meaning and only its
addresses are in range: cycles do not depend on data. Any list of steps makes a legal program,
because :func:`legal_steps` removes the pops that no earlier push satisfies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from isa.arch import Arch
from isa.encoding import encode_operation, encode_set
from isa.instruction import Unit
from isa.ops import ALL
from isa.plugins import variant
from isa.program import Program, Provenance, Segment, Tensor
from isa.variants import Variant

DRAM_BYTES = 1 << 18
FLAGS = ("pop_previous", "pop_next", "push_previous", "push_next")
NEIGHBOUR = {
    ("LD", "next"): "EX",
    ("EX", "previous"): "LD",
    ("EX", "next"): "ST",
    ("ST", "previous"): "EX",
}

NO_ROWS: Mapping[str, int] = {
    "dram_row_bytes": 0,
    "dram_row_banks": 8,
    "dram_row_miss": 36,
    "dram_refresh_interval": 0,
    "dram_refresh_cycles": 280,
}
NO_FLASH: Mapping[str, Any] = {
    "flash_bytes": 0,
    "flash_burst_bytes": 128,
    "flash_latency": 64,
    "flash_outstanding_bursts": 2,
    "flash_rate": None,
}


@dataclass(frozen=True)
class Step:
    """One operation: mnemonic, unit, registers, fields, token flags and padding.

    ``padding`` is the number of further SETs before it. A register that is not named keeps its
    value. ``layer`` is the name in the provenance; "" leaves the step out of it. ``kind`` is the
    provenance's, "" for the instruction's.
    """

    mnemonic: str
    unit: str
    registers: Mapping[str, int] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    padding: int = 0
    layer: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Case:
    """One machine and program.

    ``timing`` holds the constants of docs/machine.md section 2 that change cycles.

    ``segments`` and ``tensors`` (inputs of the program) are ranges (address, bytes) of system
    memory.
    """

    arch: Arch
    timing: Mapping[str, Any]
    steps: tuple[Step, ...]
    command_address: int = 0
    segments: tuple[tuple[int, int], ...] = ()
    tensors: tuple[tuple[int, int], ...] = ()

    def describe(self) -> str:
        """Text to print for a failing case: everything that is needed to build it again."""
        lines = [
            f"arch {self.arch.to_json()}",
            f"timing {dict(self.timing)}",
            f"commands at {self.command_address}",
        ]
        lines.append(f"segments {self.segments}, tensors {self.tensors}")
        for step in legal_steps(self.steps):
            flags = " ".join(sorted(step.flags))
            words = f"+{step.padding} SET, layer '{step.layer}' '{step.kind}'"
            lines.append(
                f"  {step.mnemonic} {step.unit} [{flags}] {dict(step.registers)} "
                f"{dict(step.fields)} {words}"
            )
        return "\n".join(lines)


def legal_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps with only the pops that are satisfied in stream order.

    Flags that a unit does not have are removed too.
    """
    tokens: Counter[tuple[str, str]] = Counter()
    legal: list[Step] = []
    for step in steps:
        flags = set()
        for side in ("previous", "next"):
            channel = (NEIGHBOUR.get((step.unit, side), ""), step.unit)
            if f"pop_{side}" in step.flags and tokens[channel]:
                tokens[channel] -= 1
                flags.add(f"pop_{side}")
        for side in ("previous", "next"):
            if f"push_{side}" in step.flags and (step.unit, side) in NEIGHBOUR:
                tokens[step.unit, NEIGHBOUR[step.unit, side]] += 1
                flags.add(f"push_{side}")
        legal.append(replace(step, flags=frozenset(flags)))
    return tuple(legal)


def step_words(step: Step, registers: dict[str, int], isa: Variant) -> list[int]:
    """Return the words of a step: SETs of changed registers, ``padding`` more, and the operation.

    Update ``registers``.
    """
    words = []
    for name, value in step.registers.items():
        if registers[name] != value:
            registers[name] = value
            words.append(encode_set(name, value, isa.register_file))
    words += [encode_set("EX_SHIFT_Y", 0)] * step.padding
    instruction = isa.by_mnemonic[step.mnemonic][0]
    values = {**step.fields, **dict.fromkeys(step.flags, 1)}
    if instruction.unit is None:
        values["unit"] = Unit[step.unit].value
    return [*words, encode_operation(instruction, values)]


def build_program(case: Case) -> Program:
    """The program of a case, ended by ``OP_END``."""
    isa = variant(case.arch.isa)
    registers = dict(isa.register_file.reset)
    words: list[int] = []
    provenance: list[Provenance] = []
    for number, step in enumerate(legal_steps(case.steps)):
        first = len(words)
        words += step_words(step, registers, isa)
        if step.layer:
            kind = step.kind or ALL[step.mnemonic].kind
            provenance.append(
                Provenance(first, len(words), step.layer, kind, step.mnemonic, number)
            )
    words.append(encode_operation(ALL["OP_END"], {}))
    return Program(
        name="random", arch=case.arch, words=np.array(words, dtype=np.uint64),
        tensors=tuple(Tensor(f"x{at}", "input", "int8", (size,), at) for at, size in case.tensors),
        segments=tuple(Segment(at, np.zeros(size, np.uint8)) for at, size in case.segments),
        provenance=tuple(provenance), dram_bytes=DRAM_BYTES, command_address=case.command_address,
    )  # fmt: skip
