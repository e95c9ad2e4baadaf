"""Check that commands stay inside the memories, are aligned and spare protected bytes.

Bytes can have any address. Accumulators (int32) and channel records (words) have addresses and
plane strides that are multiples of min(4, ``Arch.alignment``); command words have multiples of 8.
The compiler's memory plan also aligns whole buffers to ``Arch.alignment``, but a stream contains
addresses inside buffers, which need not be aligned.
"""

from collections.abc import Iterator

from isa.access import MAXIMUM_TRANSFER, SPACE_NAMES, Access, overlap
from isa.instruction import Command, Operands, find_overwritten
from isa.sanitizer.findings import CommandStream, SanitizerFinding, ranges_text

_COMMAND_ALIGNMENT = 8
_WORDS = ("int32", "float32")


def check_contained(stream: CommandStream) -> tuple[list[SanitizerFinding], tuple[Operands, ...]]:
    """Return findings for accesses outside the memories, and the operands inside them.

    The operands are without these accesses and without empty ones.
    """
    limits = {"sram": stream.program.arch.sram_bytes, "dram": stream.program.dram_bytes}
    findings: list[SanitizerFinding] = []
    kept: list[Operands] = []
    for number, item in enumerate(stream.operands):
        sides = []
        for verb, accesses in (("reads", item.reads), ("writes", item.writes)):
            inside = []
            for access in accesses:
                if not access.total:
                    continue
                if access.end > limits[access.space] or access.total > MAXIMUM_TRANSFER:
                    findings.append(
                        _make_outside_finding(stream, number, verb, access, limits[access.space])
                    )
                else:
                    inside.append(access)
            sides.append(tuple(inside))
        kept.append(Operands(sides[0], sides[1]))
    return findings, tuple(kept)


def _make_outside_finding(
    stream: CommandStream, number: int, verb: str, access: Access, limit: int
) -> SanitizerFinding:
    site = stream.site(number)
    return SanitizerFinding(
        "out of range",
        f"{site} {verb} {access.total} bytes of {SPACE_NAMES[access.space]} from "
        f"{access.address:#x} to "
        f"{access.end:#x}; it has {limit:#x} bytes",
        (site,),
        access.space,
        ((access.address, access.end),),
    )


def check_alignment(stream: CommandStream) -> list[SanitizerFinding]:
    """Return findings for unaligned registers of word operands, and for unaligned command words."""
    findings = [
        _make_misaligned_finding(stream, number, register, granule)
        for granule in (min(4, stream.program.arch.alignment),)
        if granule > 1
        for number, command in enumerate(stream.commands)
        for register in word_registers(command)
        if command.registers[register] % granule
    ]
    address = stream.program.command_address
    if address % _COMMAND_ALIGNMENT:
        message = (
            f"the command words lie at {address:#x}, which is no multiple of {_COMMAND_ALIGNMENT} "
            "bytes"
        )
        findings.append(
            SanitizerFinding(
                "misaligned", message, (), "dram", ((address, address + _COMMAND_ALIGNMENT),)
            )
        )
    return findings


def _make_misaligned_finding(
    stream: CommandStream, number: int, register: str, granule: int
) -> SanitizerFinding:
    site = stream.site(number)
    value = stream.commands[number].registers[register]
    message = f"{site} has {register} = {value:#x}, no multiple of {granule} bytes; words lie there"
    return SanitizerFinding("misaligned", message, (site,), "sram", ((value, value + granule),))


def word_registers(command: Command) -> Iterator[str]:
    """Yield the address registers of ``command`` that must be aligned to words.

    They hold addresses of words or of channel records in the scratchpad. The instruction declares
    by its ``inputs`` and ``outputs`` which operands are words.
    """
    instruction = command.instruction
    if "EX_CHANNEL_ADDRESS" in command.registers:
        yield "EX_CHANNEL_ADDRESS"
    operands = zip(("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS"), instruction.inputs, strict=False)
    yield from (
        name
        for name, kind in operands
        if kind.read_from(command) in _WORDS and name in command.registers
    )
    if any(kind.read_from(command) == "int32" for kind in instruction.outputs):
        yield from (
            name for name in ("EX_OUTPUT_ADDRESS", "EX_OUTPUT_PLANE") if name in command.registers
        )


def check_protected(
    stream: CommandStream, operands: tuple[Operands, ...]
) -> list[SanitizerFinding]:
    """Return findings for writes over system memory that a command must not change.

    These are command words, constants, and inputs that are not also outputs.
    """
    protected = _list_protected(stream)
    findings: list[SanitizerFinding] = []
    for number, item in enumerate(operands):
        for access in item.writes:
            if access.space == "dram":
                hits = [(name, overlap(access, other)) for name, other in protected]
                findings += [
                    _make_overwritten_finding(stream, number, name, found)
                    for name, found in hits
                    if found
                ]
    return findings


def check_own_operands(stream: CommandStream) -> list[SanitizerFinding]:
    """Return findings for results that overwrite operands that the same command still reads.

    The rule is that of :func:`isa.instruction.find_overwritten`.
    """
    findings = []
    for number, (command, item) in enumerate(zip(stream.commands, stream.operands, strict=True)):
        found = find_overwritten(command, item)
        if found is not None:
            site = stream.site(number)
            message = (
                f"{site} writes {ranges_text('sram', [found])}, over an operand that it may still "
                "have to read"
            )
            findings.append(
                SanitizerFinding("operand overwritten", message, (site,), "sram", (found,))
            )
    return findings


def _list_protected(stream: CommandStream) -> list[tuple[str, Access]]:
    program = stream.program
    outputs = [Access("dram", tensor.address, tensor.nbytes) for tensor in program.outputs]
    found = [("the command words", Access("dram", program.command_address, 8 * len(program.words)))]
    found += [
        ("constants", Access("dram", segment.address, segment.data.size))
        for segment in program.segments
    ]
    for tensor in program.inputs:
        access = Access("dram", tensor.address, tensor.nbytes)
        if not any(overlap(access, output) for output in outputs):
            found.append((f"input '{tensor.name}'", access))
    return found


def _make_overwritten_finding(
    stream: CommandStream, number: int, name: str, found: tuple[int, int]
) -> SanitizerFinding:
    site = stream.site(number)
    message = f"{site} writes {ranges_text('dram', [found])}, over {name}"
    return SanitizerFinding("protected write", message, (site,), "dram", (found,))


def check_image(stream: CommandStream) -> list[SanitizerFinding]:
    """Return findings for the addresses of a program's tensors, constants and command words.

    They must be inside system memory, and the others must not overlap the command words.
    """
    program = stream.program
    words = Access("dram", program.command_address, 8 * len(program.words))
    parts = [
        (f"{tensor.role} '{tensor.name}'", tensor.address, tensor.nbytes)
        for tensor in program.tensors
    ]
    parts += [
        ("a segment of constants", segment.address, segment.data.size)
        for segment in program.segments
    ]
    findings = []
    for name, address, nbytes in [*parts, ("the command words", words.address, words.nbytes)]:
        if nbytes and (address < 0 or address + nbytes > program.dram_bytes):
            message = (
                f"{name}: bytes {address:#x} to {address + nbytes:#x} leave the system memory of "
            )
            message += f"{program.dram_bytes:#x} bytes"
            findings.append(
                SanitizerFinding(
                    "out of range", message, (), "dram", ((address, address + nbytes),)
                )
            )
    for name, address, nbytes in parts:
        found = overlap(Access("dram", address, nbytes), words)
        if found:
            message = f"{name} and the command words share {ranges_text('dram', [found])}"
            findings.append(SanitizerFinding("protected write", message, (), "dram", (found,)))
    return findings
