"""Test cases for the hardware: a program, its inputs, a Timing, expected results, and runs of them.

Expected times come from the event engine, expected bytes from the device's kernels; other tests
check both against the specification. The case file that ``harness.cpp`` reads consists of 64-bit
little-endian numbers and of bytes padded to multiples of eight.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.device import Device, Trace
from dla_sim.engine.workload import UNIT_NAMES
from dla_sim.inspection import Playback
from dla_sim.rtl.simulator.executable import Executable
from dla_sim.timing import Timing
from isa.access import SPACE_NAMES, Access, Bytes
from isa.assembler import command_text
from isa.errors import InputError
from isa.instruction import Command, Machine
from isa.program import Program

Run = tuple[int, Bytes]
"""Consecutive bytes and the address of the first one."""
COUNTED = (
    "queue_empty",
    "busy",
    "dram",
    "flash",
    "bus",
    "sram",
    "token_LD",
    "token_EX",
    "token_ST",
    "drained",
)
"""Causes in the hardware's order of numbers.

``queue_empty`` counts the cycles of ``ports.Cause.IDLE`` before a unit's last command, ``drained``
those after it.
"""


@dataclass(frozen=True, eq=False)
class Write:
    """Bytes that a command is expected to write, row by row, and their memory access."""

    access: Access
    content: Bytes


@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected behaviour of the hardware.

    Attributes:
        trace: times and causes of the run.
        writes: results by command; empty for commands that never execute.
        outputs: output tensors by name.
        stopper: number of the command whose overflow stops the machine, or None.
        until: cycle in which a command with undefined values starts, or None; nothing is expected
            from there on.
    """

    trace: Trace
    writes: tuple[tuple[Write, ...], ...]
    outputs: Mapping[str, NDArray[Any]]
    stopper: int | None = None
    until: int | None = None

    @property
    def causes(self) -> NDArray[np.int64]:
        """Cycles by unit and cause, the latter in the order of :data:`COUNTED`."""
        units = self.trace.units
        return np.array(
            [[units[unit].get(cause, 0) for cause in COUNTED] for unit in UNIT_NAMES],
            dtype=np.int64,
        )


@dataclass(frozen=True, eq=False)
class Preload:
    """Bytes that overwrite the scratchpad and the system memory at reset, each with an address."""

    sram: tuple[Run, ...] = ()
    dram: tuple[Run, ...] = ()

    def lay(self, machine: Machine) -> None:
        """Write the preloaded bytes into the memories of ``machine``, as far as these extend."""
        for memory, runs in ((machine.sram, self.sram), (machine.dram, self.dram)):
            for address, content in runs:
                reached = memory[address : address + content.size]
                reached[:] = content[: reached.size]


NOTHING = Preload()


@dataclass(frozen=True, eq=False)
class Case:
    """Test case for the hardware: a program with inputs and a Timing.

    Attributes:
        name: name of the case.
        program: the program.
        inputs: arrays by input tensor.
        timing: timing of the machine.
        expected: expected behaviour; if None, only outputs and total are returned.
        before: bytes at reset that overwrite zeros, the program's images and the inputs.
    """

    name: str
    program: Program
    inputs: Mapping[str, NDArray[Any]]
    timing: Timing
    expected: Expectation | None = None
    before: Preload = NOTHING


def expect(
    program: Program, inputs: Mapping[str, NDArray[Any]], timing: Timing, before: Preload = NOTHING
) -> Expectation:
    """Return what the simulator does with ``program``, command by command.

    Raises:
        InputError: the simulator rejects the program: illegal words, addresses outside the
            memories, hazards or deadlocks.
    """
    device = Device(program.arch, timing)
    trace = device.run(program, inputs, timing_only=True).trace
    playback = Playback(device, program, inputs, trace)
    before.lay(playback.machine)
    writes: list[tuple[Write, ...]] = [()] * len(trace.commands)
    while (number := playback.find_next(trace.cycles)) is not None:
        try:
            playback.step()
        except OverflowError:
            return Expectation(trace, tuple(writes), {}, stopper=number)
        except (InputError, IndexError, FloatingPointError):
            return Expectation(trace, tuple(writes), {}, until=int(trace.times.start[number]))
        writes[number] = _list_writes(trace.commands[number], playback.machine)
    return Expectation(trace, tuple(writes), outputs_of(program, playback.machine.dram))


def outputs_of(program: Program, dram: Bytes) -> dict[str, NDArray[Any]]:
    """Return copies of the output tensors in system memory, by name."""
    return {
        tensor.name: dram[tensor.address :][: tensor.nbytes]
        .copy()
        .view(tensor.dtype)
        .reshape(tensor.shape)
        for tensor in program.outputs
    }


def _list_writes(command: Command, machine: Machine) -> tuple[Write, ...]:
    operands = command.instruction.operands(command, machine.arch)
    return tuple(Write(access, machine.read(access)) for access in operands.writes if access.total)


def layers_of(program: Program) -> tuple[str, ...]:
    """Return the layers of a program in order of first appearance.

    A layer's number is its index.
    """
    return tuple(dict.fromkeys(source.layer for source in program.sources if source is not None))


_MAGIC = int.from_bytes(b"DLACASE1", "little")
_NONE = (1 << 64) - 1
SLACK = 4096
"""Cycles beyond twice the expected number after which a run is abandoned."""
UNKNOWN_LIMIT = 1 << 33
"""Cycles after which a program with no expected behaviour is abandoned."""


def case_bytes(case: Case, straps: Mapping[str, int], order: Sequence[str]) -> bytes:
    """Return a test case in the file format that a simulator executable reads.

    ``order`` names the open straps of the executable.
    """
    return b"".join(_parts(case, [straps[name] for name in order]))


def _parts(case: Case, straps: Sequence[int]) -> Iterator[bytes]:
    program = case.program
    expected = case.expected
    limit = UNKNOWN_LIMIT if expected is None else 2 * expected.trace.cycles + SLACK
    used = program.arch.sram_bytes
    yield _numbers(_MAGIC, len(straps), *straps)
    yield _numbers(program.command_address, len(program.words), program.dram_bytes, used, limit)
    yield from _runs(images_of(case))
    yield from _runs(case.before.sram)
    yield _pairs(constant_ranges(program))
    yield _pairs((tensor.address, tensor.address + tensor.nbytes) for tensor in program.outputs)
    if expected is None:
        yield _numbers(_NONE, _NONE, _NONE, *[0] * (3 * len(COUNTED)), 0)
        return
    stopper = _NONE if expected.stopper is None else expected.stopper
    until = _NONE if expected.until is None else expected.until
    yield _numbers(expected.trace.cycles, stopper, until, *expected.causes.reshape(-1).tolist())
    yield from _commands(case)


def _commands(case: Case) -> Iterator[bytes]:
    expected = case.expected
    assert expected is not None
    trace = expected.trace
    numbers = {name: number for number, name in enumerate(layers_of(case.program))}
    starts = trace.times.start.tolist()
    ends = trace.times.end.tolist()
    yield _numbers(len(trace.commands))
    for number, command in enumerate(trace.commands):
        source = trace.sources[number]
        layer = (1 << 32) - 1 if source is None else numbers[source.layer]
        yield _numbers(command.unit.value, command.index, layer, starts[number], ends[number])
        yield _numbers(len(expected.writes[number]))
        for write in expected.writes[number]:
            yield from _write(write)


def _write(write: Write) -> Iterator[bytes]:
    access: Access = write.access
    yield _numbers(int(access.space == "dram"), access.address, access.nbytes)
    yield _pairs(access.dims)
    yield from _bytes(write.content)


def images_of(case: Case) -> Iterator[Run]:
    """Yield the pieces of system memory's initial content; later ones overwrite earlier ones."""
    program = case.program
    yield from ((segment.address, segment.data) for segment in program.segments)
    yield program.command_address, program.words.astype("<u8").view(np.uint8)
    for tensor in program.inputs:
        yield (
            tensor.address,
            np.ascontiguousarray(case.inputs[tensor.name]).view(np.uint8).reshape(-1),
        )
    yield from case.before.dram


def constant_ranges(program: Program) -> list[tuple[int, int]]:
    """Return half-open address ranges of the constants in system memory.

    Constants are the bytes of the program's segments that are in none of its tensors.
    """
    edges = {
        address for first, end in _segments(program) + _tensors(program) for address in (first, end)
    }
    found: list[tuple[int, int]] = []
    ordered = sorted(edges)
    for first, end in pairwise(ordered):
        inside = [
            any(low <= first < high for low, high in ranges)
            for ranges in (_segments(program), _tensors(program))
        ]
        if inside == [True, False]:
            found.append((first, end))
    return found


def _segments(program: Program) -> list[tuple[int, int]]:
    return [(segment.address, segment.address + segment.data.size) for segment in program.segments]


def _tensors(program: Program) -> list[tuple[int, int]]:
    return [(tensor.address, tensor.address + tensor.nbytes) for tensor in program.tensors]


def _numbers(*values: int) -> bytes:
    return np.array(values, dtype="<u8").tobytes()


def _pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    listed = list(pairs)
    return _numbers(len(listed), *(number for pair in listed for number in pair))


def _runs(runs: Iterable[Run]) -> Iterator[bytes]:
    listed = list(runs)
    yield _numbers(len(listed))
    for address, content in listed:
        yield _numbers(address)
        yield from _bytes(content)


def _bytes(content: Bytes | NDArray[Any]) -> Iterator[bytes]:
    yield _numbers(content.size)
    yield np.ascontiguousarray(content).tobytes()
    yield bytes(-content.size % 8)


Straps = Mapping[str, int]
"""Configuration values by name."""


@dataclass(frozen=True)
class HardwareDifference:
    """A difference between the hardware's behaviour and the simulator's.

    Attributes:
        kind: kind of difference.
        command: number of the command, or None if no command is involved.
        details: values from the harness: cycles or bytes, expected and actual.
    """

    kind: str
    command: int | None
    details: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Outcome:
    """Result of running a test case on the simulated hardware.

    Attributes:
        case: the case.
        ended: how the run ended.
        cycles: cycles until the interrupt, or until the run ended otherwise.
        seconds: duration of the simulation.
        commands: number of completed commands.
        units: cycles by unit and cause, as in a trace.
        outputs: output tensors by name.
        count: number of differences.
        differences: the first differences.
    """

    case: Case
    ended: str
    cycles: int
    seconds: float
    commands: int
    units: Mapping[str, Mapping[str, int]]
    outputs: Mapping[str, NDArray[Any]]
    count: int
    differences: tuple[HardwareDifference, ...]

    @property
    def first(self) -> HardwareDifference | None:
        """First difference between hardware and simulator in the order of cycles, or None."""
        return self.differences[0] if self.differences else None


def run_cases(
    executable: Executable, cases: Sequence[tuple[Case, Straps]], *, seed: int | None = None
) -> list[Outcome]:
    """Run every case with values for the machine's configuration inputs, in one process.

    Args:
        executable: the hardware.
        cases: cases with their configuration values, run one after another.
        seed: seed (1 to 2^31 - 1) of the random bits in registers and memories before the first
            reset; None means zeros.

    Raises:
        InputError: the harness cannot continue, for example because a case does not fit the build.
    """
    with tempfile.TemporaryDirectory(prefix="dla-cases-") as folder:
        files = [Path(folder) / f"{number}.case" for number in range(len(cases))]
        for file, (case, straps) in zip(files, cases, strict=True):
            file.write_bytes(case_bytes(case, straps, executable.straps))
        results = Path(folder) / "outputs"
        drawn = () if seed is None else ("+verilator+rand+reset+2", f"+verilator+seed+{seed}")
        lines = _call([str(executable.path), str(results), *map(str, files), *drawn])
        content = memoryview(results.read_bytes())
        return list(_outcomes([case for case, _ in cases], lines, content))


def write_waves(
    executable: Executable, case: Case, straps: Straps, file: Path, first: int, end: int
) -> Outcome:
    """Run a test case on a traced executable and write its signals to ``file`` (VCD).

    The signals of the cycles [first, end) are written.
    """
    with tempfile.TemporaryDirectory(prefix="dla-cases-") as folder:
        place = Path(folder) / "0.case"
        results = Path(folder) / "outputs"
        place.write_bytes(case_bytes(case, straps, executable.straps))
        words = [str(executable.path), str(results), str(place), str(file), str(first), str(end)]
        (outcome,) = _outcomes([case], _call(words), memoryview(results.read_bytes()))
        return outcome


def _call(words: Sequence[str]) -> list[str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.splitlines()
        raise InputError(
            f"the simulation of the hardware stopped: {lines[-1] if lines else done.returncode}"
        )
    return done.stdout.splitlines()


def _outcomes(
    cases: Sequence[Case], lines: Sequence[str], content: memoryview
) -> Iterator[Outcome]:
    at = 0
    for case, line in zip(cases, lines, strict=True):
        found = json.loads(line)
        outputs = {}
        for tensor in case.program.outputs:
            raw = np.frombuffer(content[at : at + tensor.nbytes], np.uint8).copy()
            outputs[tensor.name] = raw.view(tensor.dtype).reshape(tensor.shape)
            at += tensor.nbytes
        units = {
            unit: dict(zip(COUNTED, row, strict=True))
            for unit, row in zip(UNIT_NAMES, found["causes"], strict=True)
        }
        differences = tuple(
            HardwareDifference(item.pop("kind"), item.pop("command", None), item)
            for item in found["differences"]
        )
        numbers = found["cycles"], found["seconds"], found["commands"]
        yield Outcome(case, found["ended"], *numbers, units, outputs, found["count"], differences)


def difference_text(case: Case, difference: HardwareDifference) -> str:
    """Return the difference in one line that names the command by word, with its assembly."""
    details = {**difference.details}
    kind = (
        "spurious"
        if difference.kind in ("start", "end") and difference.command is None
        else difference.kind
    )
    if "cause" in details:
        details["cause"] = COUNTED[details["cause"]]
    if "space" in details:
        details["space"] = SPACE_NAMES[details["space"]]
    text = _SAY[kind].format(**details)
    if difference.command is None or case.expected is None:
        return text
    command = case.expected.trace.commands[difference.command]
    return f"word {command.index}, {command.unit.name} {command_text(command)}: {text}"


_SAY = {
    "start": "starts at {actual}, expected {expected}",
    "end": "ends at {actual}, expected {expected}",
    "spurious": "{unit} starts or ends a command in cycle {actual} that the program does not have",
    "bytes": "{differing} of {of} bytes differ, the first in {space} at {address:#x} (byte "
    "{offset} of the result): "
    "{actual}, expected {expected}",
    "total": "{actual} cycles, expected {expected}",
    "cause": "{unit} has {actual} cycles of {cause}, expected {expected}",
    "never": "no interrupt in {cycles} cycles",
    "fault": "fault in cycle {cycle}; expected: {expected}",
    "stop": "the machine stopped in cycle {cycle}, not while this command executed",
    "missing": "never ended",
    "stray": "{space} byte {address:#x} is {actual} at the end and should be {expected}; no "
    "command writes it so",
    "outside": "{access} of {count} bytes at {address:#x} in cycle {cycle}, outside the memory",
    "wide": "{access} of {count} bytes at {address:#x} in cycle {cycle}, wider than the data port",
    "unknown": "port {port} has unknown bits (x or z) in cycle {cycle}",
}
"""Sentence for each kind of difference that ``harness.cpp`` or the cocotb agent finds."""
