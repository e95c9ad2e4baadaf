"""Comparison of hardware with the simulator: its cases, and the report of the first wrong command.

Cases come from a corpus, programs of the user, or the regions of a network.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dla_sim.device import Device
from dla_sim.inspection import Playback
from dla_sim.rtl.parameters import has_hardware
from dla_sim.rtl.simulator.case import Case, Outcome, difference_text, expect
from experiments.golden.check import require_variant, runnable, timing_of
from experiments.golden.observe import tensors
from experiments.golden.store import Corpus
from experiments.rtl.export import ExportSource
from isa.access import SPACE_NAMES
from isa.arch import Arch

SCHEMA = "dla-rtl-check/1"
SHOWN_DIFFERENCES = 4
SHOWN_BYTES = 16


def corpus_cases(
    corpus: Corpus, names: Iterable[str], within: Callable[[Arch], Arch] | None = None
) -> Iterator[Case]:
    """Yield the golden cases of a corpus that the hardware can run.

    The cases run on their own machines, or on those that ``within`` returns. Programs that the
    machine must reject are left out, and machines with banked memory, for which no hardware exists.
    Raises InputError for a case that needs an ISA variant that this version lacks.
    """
    for name in names:
        stored = corpus.case(name)
        require_variant(stored)
        if stored.record.refused is not None:
            continue
        program = runnable(stored)
        timing = timing_of(stored)
        if has_hardware(program.arch):
            program = program if within is None else replace(program, arch=within(program.arch))
            inputs = tensors(program, stored.inputs)
            yield Case(name, program, inputs, timing, expect(program, inputs, timing))


def source_case(source: ExportSource) -> Case:
    """Convert the source of an export to a case for the hardware, with expected results."""
    program = source.program
    timing = source.timing
    inputs = tensors(program, source.inputs)
    return Case(source.name, program, inputs, timing, expect(program, inputs, timing))


def outcome_lines(outcome: Outcome, waves: str | None = None) -> Iterator[str]:
    """Yield text lines about the differences of hardware and simulator in one case.

    They name the case, its first differences, and the first wrong command with its registers and
    operands. ``waves`` is the command line that shows cycles of the case; it adds a last line on
    how to see this command.
    """
    yield f"{outcome.case.name}: {outcome.count} difference{'s' * (outcome.count != 1)}"
    for difference in outcome.differences[:SHOWN_DIFFERENCES]:
        yield f"  {difference_text(outcome.case, difference)}"
    number = next((item.command for item in outcome.differences if item.command is not None), None)
    if number is not None:
        yield from _command_lines(outcome.case, number, waves)


def _command_lines(case: Case, number: int, waves: str | None) -> Iterator[str]:
    assert case.expected is not None
    command = case.expected.trace.commands[number]
    source = case.expected.trace.sources[number]
    if source is not None:
        yield f"  layer {source.layer}"
    reset = case.program.variant.register_file.reset
    registers = [
        f"{name}={value}" for name, value in command.registers.items() if value != reset[name]
    ]
    yield f"  registers of word {command.index}: {' '.join(registers) or 'as after reset'}"
    for space, address, total, content in _reads(case, number):
        more = " ..." if total > SHOWN_BYTES else ""
        yield f"  reads {total} bytes of the {space} from {address:#x}: {content.hex(' ')}{more}"
    if waves is not None:
        yield f"  to see it: {waves} --command {command.index} -o FILE.vcd"


def _reads(case: Case, number: int) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield memory, address, size and first bytes of each operand that a command reads.

    The bytes are those at the start of the command.
    """
    assert case.expected is not None
    trace = case.expected.trace
    playback = Playback(Device(case.program.arch, case.timing), case.program, case.inputs, trace)
    case.before.lay(playback.machine)
    playback.run(int(trace.times.start[number]))
    command = trace.commands[number]
    for access in command.instruction.operands(command, case.program.arch).reads:
        if access.total:
            content = playback.machine.read(access)[:SHOWN_BYTES].tobytes()
            yield SPACE_NAMES[access.space], access.address, access.total, content


def comparison_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return every compared hardware case with all its differences as JSON values."""
    cases = [
        {
            "name": outcome.case.name,
            "ended": outcome.ended,
            "cycles": outcome.cycles,
            "commands": outcome.commands,
            "units": outcome.units,
            "differences": outcome.count,
            "first": [
                {"kind": item.kind, "text": difference_text(outcome.case, item), **item.details}
                for item in outcome.differences
            ],
        }
        for outcome in outcomes
    ]
    return {"schema": SCHEMA, "cases": cases}
