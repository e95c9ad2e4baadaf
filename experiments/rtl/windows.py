"""Waves of a part of a run: the cycles of a command, of a layer, or a given range."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dla_sim.device import Trace
from dla_sim.rtl.parameters import strap_values
from dla_sim.rtl.simulator.case import Case, Outcome, layers_of, write_waves
from experiments.rtl.hardware import Modules, get_traced_executable
from isa.errors import InputError
from isa.files import check_writable, whole_file
from isa.progress import Progress, silent

MARGIN = 8
"""Cycles before and after a command or a layer."""


@dataclass(frozen=True)
class RunWindow:
    """Part of a run to write waves of, chosen by command, by layer or by cycles.

    ``command`` is the word of a command, ``layer`` a name, ``cycles`` a pair (first, end). Exactly
    one of them is given.
    """

    command: int | None = None
    layer: str | None = None
    cycles: tuple[int, int] | None = None

    def find_cycles(self, trace: Trace) -> tuple[int, int]:
        """Return the range of cycles of the chosen part of a run; its end is excluded.

        Raise InputError if the run has no such command, layer or cycles.
        """
        if self.cycles is not None:
            if self.cycles[0] >= trace.cycles:
                raise InputError(
                    f"cycle {self.cycles[0]} is not in the run; it has the cycles 0 "
                    f"to {trace.cycles - 1}"
                )
            return self.cycles
        numbers = [
            number for number in range(len(trace.commands)) if self._is_wanted(trace, number)
        ]
        if not numbers:
            raise InputError(self._absent(trace))
        first = min(trace.times.start[numbers].tolist())
        end = max(trace.times.end[numbers].tolist())
        return max(0, first - MARGIN), min(end + MARGIN, trace.cycles)

    def _is_wanted(self, trace: Trace, number: int) -> bool:
        source = trace.sources[number]
        if self.command is not None:
            return trace.commands[number].index == self.command
        return source is not None and source.layer == self.layer

    def _absent(self, trace: Trace) -> str:
        if self.command is not None:
            words = [str(command.index) for command in trace.commands[:8]]
            return f"no command is at word {self.command}; the first ones are at {', '.join(words)}"
        layers = dict.fromkeys(source.layer for source in trace.sources if source is not None)
        return f"no layer is called '{self.layer}'; there are {', '.join(layers) or 'none'}"


def write_window(
    case: Case,
    window: RunWindow,
    file: Path,
    progress: Progress = silent,
    replacing: Modules | None = None,
) -> tuple[Outcome, int, int]:
    """Write the waves of a part of a run to ``file``, and return the outcome and the cycles.

    The cycles are the first one and the end of the window. The format is FST if the file name ends
    in ``.fst``, else VCD. The file appears completely or not at all. Raises InputError for an
    invalid window, a file that cannot be written, and missing tools.
    """
    assert case.expected is not None
    first, end = window.find_cycles(case.expected.trace)
    compressor = _compressor(file) if file.suffix.lower() == ".fst" else None
    check_writable(file)
    progress("building the hardware with waves")
    executable = get_traced_executable(case.program, case.timing, replacing)
    progress(f"running {case.name}")
    straps = strap_values(case.program.arch, case.timing)
    with whole_file(file) as place:
        if compressor is None:
            return write_waves(executable, case, straps, place, first, end), first, end
        with tempfile.TemporaryDirectory(prefix="dla-waves-") as folder:
            waves = Path(folder) / "waves.vcd"
            outcome = write_waves(executable, case, straps, waves, first, end)
            done = subprocess.run(
                [compressor, str(waves), str(place)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise InputError(
                    f"{file}: vcd2fst failed "
                    f"({done.stderr.strip() or done.returncode}); name a FILE.vcd"
                )
    return outcome, first, end


def layers_between(case: Case, first: int, end: int) -> Iterator[tuple[int, str]]:
    """Yield (number in the waves, name) of each layer with a command in cycles [first, end)."""
    assert case.expected is not None
    trace = case.expected.trace
    times = zip(trace.times.start.tolist(), trace.times.end.tolist(), trace.sources, strict=True)
    there = {
        source.layer
        for start, stop, source in times
        if source is not None and start < end and stop > first
    }
    return ((number, name) for number, name in enumerate(layers_of(case.program)) if name in there)


def _compressor(file: Path) -> str:
    """Return the path of the program that converts waves from VCD to FST."""
    found = shutil.which("vcd2fst")
    if found is None:
        raise InputError(
            f"{file}: FST is made by vcd2fst of GTKWave (Debian: apt install "
            "gtkwave); or name a FILE.vcd"
        )
    return found
