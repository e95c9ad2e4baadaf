"""Execution on simulated hardware, of many cases or of a network's regions.

The module also chooses the hardware build for each machine.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

from numpy.typing import NDArray

from dla_sim.device import Trace
from dla_sim.presets import Preset
from dla_sim.rtl.ex.engine import LARGEST_LATENCY
from dla_sim.rtl.ex.engines import ENGINES, find_needed
from dla_sim.rtl.ex.unit import PREPARATION
from dla_sim.rtl.parameters import Limits, limits_of, strap_values
from dla_sim.rtl.simulator.case import Case, Outcome, difference_text, expect, run_cases
from dla_sim.rtl.simulator.executable import Executable, build_executable, find_tools
from dla_sim.rtl.simulator.machine_text import machine_text
from dla_sim.timing import Timing
from experiments.report.checks import HardwareCheck
from isa.arch import Arch
from isa.program import Execution, Program
from isa.progress import Progress, silent

BATCH = 64
"""Cases that one process runs; their data is in files during that time."""
Modules = Mapping[str, str]
"""Verilog that replaces modules of this project with the same name, by file name."""
LEAST_PIPELINE = PREPARATION + LARGEST_LATENCY
"""Least ``ex_fill + ex_drain`` of a machine that hardware with pipeline registers can model."""
EVERY = find_needed([mnemonic for engine in ENGINES for mnemonic in engine.mnemonics])
"""Names of all of the project's engines."""


def _open(
    ic: int,
    oc: int,
    ow: int,
    lanes: int,
    *,
    pipelined: bool = True,
    engines: tuple[str, ...] | None = None,
) -> tuple[Limits, ...]:
    """Return limits of hardware that can be configured as any machine up to a size.

    There is one build for each kind of numerics.
    """
    both = Limits(
        ic, oc, ow, lanes, sram_bytes=8 << 20, bus_bytes=32, queue_depth=8, fetch_bytes=512,
        fetch_buffers=4,
        pipelined=pipelined, engines=engines,
    )  # fmt: skip
    return replace(both, numerics="onnxruntime"), replace(both, numerics="fixed")


CONVOLUTIONS = ("mac",)
NETWORKS = ("elementwise", "mac", "pool")
WITHOUT_ARRAY = tuple(name for name in EVERY if name != "mac")
"""Engines whose hardware does not grow with the array."""
SMALL = _open(2, 2, 2, 4)
"""Hardware that builds fastest."""
UNPIPELINED = _open(2, 2, 2, 4, pipelined=False)
THREE_AXES = _open(4, 2, 3, 24)
BUILDS = (
    *SMALL,
    *UNPIPELINED,
    *THREE_AXES,
    *_open(8, 16, 1, 64, engines=NETWORKS),
    _open(16, 16, 2, 80, engines=WITHOUT_ARRAY)[0],
    *_open(16, 16, 2, 80, engines=("rows",)),
    *_open(16, 16, 2, 64, engines=("permute", "resize")),
    *_open(16, 16, 2, 80, engines=("elementwise", "pool")),
    *_open(64, 1, 1, 64, engines=NETWORKS),
    *_open(8, 8, 1, 64, pipelined=False, engines=("elementwise", "mac", "permute", "rows")),
    *_open(16, 16, 2, 256, engines=CONVOLUTIONS),
    *_open(20, 7, 2, 280, engines=CONVOLUTIONS),
    *_open(1, 128, 1, 128, engines=NETWORKS),
    *_open(8, 16, 1, 128, engines=("rows",)),
    *(
        limits
        for name in ("elementwise", "resize", "rows")
        for limits in _open(16, 16, 2, 256, engines=(name,))
    ),
)
"""Hardware whose configuration is set at run time.

Together these builds cover every machine of the golden corpus and of the random programs. Those
that take long to build come last. Lanes dominate the size, because every engine has its own: the
larger machines have only the engines that some of their programs need.
"""


def is_pipelined(timing: Timing) -> bool:
    """Return True if the unit EX has enough fill and drain cycles for pipeline registers."""
    return timing.ex_fill + timing.ex_drain >= LEAST_PIPELINE


def can_be(limits: Limits, arch: Arch, timing: Timing, engines: Collection[str] = EVERY) -> bool:
    """Return True if hardware with these limits and engines can be configured as a machine."""
    wanted = limits_of(arch, timing, pipelined=is_pipelined(timing))
    sizes = (
        "ic",
        "oc",
        "ow",
        "lanes",
        "sram_bytes",
        "bus_bytes",
        "queue_depth",
        "fetch_bytes",
        "fetch_buffers",
    )
    same = ("numerics", "pipelined", "isa")
    return (
        all(getattr(wanted, name) <= getattr(limits, name) for name in sizes)
        and all(getattr(wanted, name) == getattr(limits, name) for name in same)
        and set(EVERY if limits.engines is None else limits.engines).issuperset(engines)
    )


def build_for(arch: Arch, timing: Timing, engines: Collection[str] = EVERY) -> Limits:
    """Return the limits of the first of :data:`BUILDS` that can model a machine.

    If there is none, return configurable hardware of exactly the machine's size with all engines.
    """
    exact = limits_of(arch, timing, pipelined=is_pipelined(timing))
    return next((limits for limits in BUILDS if can_be(limits, arch, timing, engines)), exact)


def build_of(program: Program, timing: Timing) -> Limits:
    """Return the limits of hardware for a program's machine and the engines that it needs.

    :func:`build_for` describes the choice.
    """
    return build_for(
        program.arch,
        timing,
        find_needed({command.instruction.mnemonic for command in program.commands}),
    )


def open_executable(limits: Limits, replacing: Modules | None = None) -> Executable:
    """Return the executable of hardware whose configuration is set at run time, by strap inputs."""
    find_tools()  # fail before the Verilog is written, which takes long
    return build_executable(machine_text(limits, None, replacing), quick=True)


def own_text(
    arch: Arch,
    timing: Timing,
    replacing: Modules | None = None,
    engines: tuple[str, ...] | None = None,
) -> str:
    """Return the Verilog text of hardware that models one machine only.

    The hardware has all engines, or those in ``engines``.
    """
    limits = replace(limits_of(arch, timing, pipelined=is_pipelined(timing)), engines=engines)
    return machine_text(limits, strap_values(arch, timing), replacing)


def own_executable(arch: Arch, timing: Timing) -> Executable:
    """Return the simulation executable of hardware for one machine only, which runs fastest."""
    find_tools()
    return build_executable(own_text(arch, timing))


def get_traced_executable(
    program: Program, timing: Timing, replacing: Modules | None = None
) -> Executable:
    """Return a hardware simulation that can write the waves of ``program``.

    Its hardware is for the program's machine and has only the engines that the program needs.
    """
    find_tools()
    engines = find_needed({command.instruction.mnemonic for command in program.commands})
    return build_executable(own_text(program.arch, timing, replacing, engines), traced=True)


def run_each(
    cases: Iterable[Case], progress: Progress = silent, replacing: Modules | None = None
) -> Iterator[Outcome]:
    """Run each case on simulated hardware and yield the outcomes.

    The outcomes come build by build, in the order of the cases within a build.
    """
    groups: dict[Limits, list[Case]] = {}
    for case in cases:
        groups.setdefault(build_of(case.program, case.timing), []).append(case)
    for limits, members in groups.items():
        progress(f"building {limits}")
        executable = open_executable(
            limits if limits in BUILDS else _least(limits, members), replacing
        )
        for number, batch in enumerate(batches(members)):
            progress(f"running case {number * BATCH + 1} of {len(members)}")
            yield from run_cases(
                executable, [(case, strap_values(case.program.arch, case.timing)) for case in batch]
            )


def _least(limits: Limits, cases: Iterable[Case]) -> Limits:
    """Return the hardware's limits with only the engines that the cases need."""
    mnemonics = {
        command.instruction.mnemonic for case in cases for command in case.program.commands
    }
    return replace(limits, engines=find_needed(mnemonics))


def batches(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield batches of hardware cases for one process each; cases are taken on demand."""
    rest = iter(cases)
    while batch := list(islice(rest, BATCH)):
        yield batch


class HardwareDevice:
    """An ``isa.program.Executor`` with the hardware's outputs and the simulator's traces.

    It compares every run.

    The hardware is built, or taken from the cache, when the first program runs.
    """

    def __init__(self, hardware: Preset, progress: Progress = silent) -> None:
        self._hardware = hardware
        self._progress = progress
        self.check = HardwareCheck(programs=0, commands=0, cycles=0, written_bytes=0, differences=0)

    @cached_property
    def _executable(self) -> Executable:
        self._progress(f"building the hardware of {self._hardware.name}")
        return own_executable(self._hardware.arch, self._hardware.timing)

    def run(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Execution[Trace]:
        """Run one program on the simulated hardware from reset.

        Raise InputError as the simulator's device does, and if nothing can be built.
        """
        timing = self._hardware.timing
        case = Case(
            program.name, program, inputs, timing, expected := expect(program, inputs, timing)
        )
        executable = self._executable
        self._progress(f"running {program.name} on the hardware")
        (outcome,) = run_cases(executable, [(case, {})])
        before = self.check
        first = before.first
        if first is None and outcome.first is not None:
            first = f"{program.name}: {difference_text(case, outcome.first)}"
        self.check = HardwareCheck(
            programs=before.programs + 1,
            commands=before.commands + outcome.commands,
            cycles=before.cycles + outcome.cycles,
            written_bytes=before.written_bytes
            + sum(write.content.size for writes in expected.writes for write in writes),
            differences=before.differences + outcome.count,
            first=first,
        )
        return Execution(outcome.outputs, expected.trace)
