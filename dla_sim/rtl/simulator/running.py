"""Execution of cases on the hardware, with differences, cycles, outputs and waves as results."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.workload import UNIT_NAMES
from dla_sim.rtl.simulator.case import COUNTED, Case, case_bytes
from dla_sim.rtl.simulator.executable import Executable
from isa.access import SPACE_NAMES
from isa.assembler import command_text
from isa.errors import InputError

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
}
"""Sentence for each kind of difference that ``harness.cpp`` finds."""
