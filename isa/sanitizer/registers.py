"""Unset registers: an operation on a size that no SET has given.

A stream leaves out a SET of the value that a register holds already, its reset value included: address 0 and one
channel are as good unset as set. A size of 0 is not, for then the operation does nothing.
"""

from __future__ import annotations

from isa.encoding import decode_set
from isa.sanitizer.findings import Finding, Stream

SIZES = ("LD_BYTES", "ST_BYTES", "EX_LENGTH")
"""The registers whose reset value makes no sense: bytes of a row, elements of an operation."""


def check_registers(stream: Stream) -> list[Finding]:
    """Commands that read a register of :data:`SIZES` before the first SET of it."""
    readers = [
        (number, register)
        for number, command in enumerate(stream.commands)
        for register in SIZES
        if command.registers.get(register) == 0
    ]
    if not readers:
        return []
    first = _first_sets(stream)
    findings = []
    for number, register in readers:
        site = stream.site(number)
        if site.word < first.get(register, len(stream.program.words)):
            message = f"{site} reads {register}, which no SET has written; its reset value 0 makes it do nothing"
            findings.append(Finding("unset register", message, (site,)))
    return findings


def _first_sets(stream: Stream) -> dict[str, int]:
    """The word of the first SET of each register that is set."""
    first: dict[str, int] = {}
    operations = {command.index for command in stream.program.commands}
    file = stream.program.variant.register_file
    for index, word in enumerate(stream.program.words.tolist()):
        if index not in operations:
            first.setdefault(decode_set(word, index, file)[0], index)
    return first
