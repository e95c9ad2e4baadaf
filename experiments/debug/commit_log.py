"""Commit log: one line per command in order of completion.

An RTL log can be compared with it (docs/debugging.md).
"""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dla_sim.device import Trace
from dla_sim.inspection import Playback
from isa import program_file
from isa.access import Access
from isa.assembler import command_text
from isa.errors import InputError
from isa.instruction import Machine
from isa.program import Program
from isa.reading import read_bytes

FORMAT = "dla-log 1"
MAXIMUM_BYTES = 1 << 30
COLUMNS = ("end", "start", "unit", "word", "reads", "writes", "assembly")
_LAYOUT = "{:>10} {:>10} {:<4} {:>7} {:<35} {:<8} {}"


def header(region: int, program: Program) -> Iterator[str]:
    """Yield the two comment lines that precede a region's commands in a commit log.

    The first has the format and the hashes of program and Arch, the second has the column names.
    """
    digest = hashlib.sha256(program_file.to_bytes(program)).hexdigest()[:16]
    yield f"# {FORMAT} region {region} program {digest} arch {program.arch.digest()}"
    yield "# " + _LAYOUT.format(*COLUMNS)[2:]


def lines(playback: Playback, program: Program, trace: Trace, until: int) -> Iterator[str]:
    """Execute the commands that complete by cycle ``until``, and yield a log line for each.

    The commands run on ``playback``. The log of a whole run ends with ``OP_END``, which the command
    processor executes (unit CP).
    """
    start = trace.times.start
    end = trace.times.end
    while (number := playback.find_next(until)) is not None:
        command = trace.commands[number]
        operands = command.instruction.operands(command, program.arch)
        reads = checksums(operands.reads, playback.machine)
        playback.step()
        writes = checksums(operands.writes, playback.machine)
        texts = (command.unit.name, command.index, reads, writes, command_text(command))
        yield _LAYOUT.format(end[number], start[number], *texts)
    if until >= trace.cycles:
        last = program.commands[-1]
        yield _LAYOUT.format(
            trace.cycles, trace.cycles - 1, "CP", last.index, "-", "-", command_text(last)
        )


def checksums(accesses: Sequence[Access], machine: Machine) -> str:
    """Return the CRC-32 of each operand as text, separated by commas.

    Each checksum has 8 hexadecimal digits. The text is ``-`` if there is no operand.
    """
    return ",".join(f"{zlib.crc32(machine.read(access).data):08x}" for access in accesses) or "-"


@dataclass(frozen=True)
class LogDifference:
    """First difference of two commit logs: ``line`` counts command lines from 1.

    A missing line is ``""``.
    """

    line: int
    columns: tuple[str, ...]
    found: str
    expected: str

    def message(self, source: str) -> str:
        """Return one line of text on the difference from the commit log ``source``."""
        if not self.found or not self.expected:
            which, rest = (source, self.found) if self.found else ("this run", self.expected)
            return f"command {self.line}: {which} ends before '{' '.join(rest.split())}'"
        word = _values(self.found)[3]
        assembly = _values(self.found)[6]
        differences = []
        for name in self.columns:
            column = COLUMNS.index(name)
            found = _values(self.found)[column]
            expected = _values(self.expected)[column]
            differences.append(f"{name} {found} here, {expected} there")
        return f"command {self.line}, word {word} {assembly}: {'; '.join(differences)} ({source})"


def first_difference(found: str, expected: str) -> LogDifference | None:
    """Return the first command line in which two commit logs differ, or None.

    Comments and spacing are ignored.
    """
    ours = _commands(found)
    theirs = _commands(expected)
    for number in range(max(len(ours), len(theirs))):
        one = ours[number] if number < len(ours) else ""
        other = theirs[number] if number < len(theirs) else ""
        if one.split() != other.split():
            pairs = zip(COLUMNS, _values(one), _values(other), strict=False)
            columns = tuple(name for name, left, right in pairs if left != right)
            return LogDifference(number + 1, columns, one, other)
    return None


def read(file: Path) -> str:
    """Read a commit log from a file and return its text.

    Raise InputError if the file is missing or is no log of this format.
    """
    content = read_bytes(
        file, MAXIMUM_BYTES, "a commit log", f"'dla simulate ... --log {file}' makes a log"
    )
    text = content.decode(errors="replace")
    if not text.startswith(f"# {FORMAT} "):
        raise InputError(f"{file}: not a commit log (its first line must start with '# {FORMAT} ')")
    for line in _commands(text):
        if len(_values(line)) != len(COLUMNS):
            raise InputError(
                f"{file}: a line needs the columns {', '.join(COLUMNS)}; this has "
                f"fewer: '{line[:60]}'"
            )
    return text


def _commands(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _values(line: str) -> list[str]:
    """Split a line of a commit log into its columns.

    The last column, assembly, contains spaces.
    """
    return " ".join(line.split()).split(" ", len(COLUMNS) - 1)
