"""Bytes of the scratchpad for a person or a file: ``--dump-sram FIRST..END[:FILE]``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from isa.errors import InputError

_RANGE = re.compile(r"(0x[0-9a-fA-F]+|\d+)\.\.(0x[0-9a-fA-F]+|\d+)(?::(.+))?")
_BYTES_A_LINE = 16


@dataclass(frozen=True)
class SramRange:
    """The bytes [first, end), and the file they go to; the screen if None."""

    first: int
    end: int
    file: Path | None


def parse_range(text: str, sram_bytes: int) -> SramRange:
    """``0x100..0x200`` or ``256..512``, half-open, with ``:FILE`` or without. Raises InputError for anything else."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InputError(f"--dump-sram {text}: write it as FIRST..END or FIRST..END:FILE, for example 0x100..0x200")
    first, end = int(match[1], 0), int(match[2], 0)
    if not first < end <= sram_bytes:
        raise InputError(
            f"--dump-sram {text}: the scratchpad has the bytes 0x0 to {sram_bytes:#x}; "
            f"FIRST must lie below END, and END not beyond"
        )
    return SramRange(first, end, Path(match[3]) if match[3] else None)


def hex_lines(first: int, data: bytes) -> Iterator[str]:
    """Address and 16 bytes a line, at multiples of 16; of equal lines in a row the first, then one ``*``."""
    before, repeated = b"", False
    position = 0
    while position < len(data):
        address = first + position
        row = data[position : position + _BYTES_A_LINE - address % _BYTES_A_LINE]
        last = position + len(row) == len(data)
        if row == before and not last:
            if not repeated:
                yield "*"
            repeated = True
        else:
            yield f"{address:08x}  {' '.join(f'{byte:02x}' for byte in row)}"
            repeated = False
        before, position = row, position + len(row)
