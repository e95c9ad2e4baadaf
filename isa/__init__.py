"""The contract between compiler and device: instructions, registers, encoding, numerics and cycles.

Public names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isa.arch import Arch, PeArray
    from isa.assembler import assemble, disassemble
    from isa.errors import InputError
    from isa.program import Program
    from isa.program_file import load as load_program
    from isa.program_file import save as save_program
else:
    from isa.exports import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Arch": "isa.arch",
            "InputError": "isa.errors",
            "PeArray": "isa.arch",
            "Program": "isa.program",
            "assemble": "isa.assembler",
            "disassemble": "isa.assembler",
            "load_program": "isa.program_file:load",
            "save_program": "isa.program_file:save",
        },
    )

__all__ = [
    "Arch",
    "InputError",
    "PeArray",
    "Program",
    "assemble",
    "disassemble",
    "load_program",
    "save_program",
]
