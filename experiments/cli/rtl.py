"""``dla rtl``: Verilog, gate counts and waves of a machine, and comparison with the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import golden, options, results
from experiments.literal import say
from experiments.rtl.design import Design
from experiments.running.given import MachineChoice
from isa.errors import InputError

if TYPE_CHECKING:
    from dla_sim.presets import Preset
    from experiments.rtl.windows import RunWindow

app = typer.Typer(
    help="Build the machine as hardware, compare it with the simulator, and show its waves.",
    no_args_is_help=True,
)

MAXIMUM_VERILOG = 1 << 26
"""Maximum size of a Verilog file, in bytes."""

BuildFolder = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="DIR", help="Write the files to this folder."),
    results.Destination(folder=True),
]
WaveFile = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE.vcd|FILE.fst", help="Write the waves to this file."
    ),
    results.Destination(),
]
CaseFile = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="Write the case to this file."),
    results.Destination(),
]
Replacing = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="FILE.v",
        help="Replace modules with the modules of the same names in this Verilog file. Repeatable.",
    ),
]
Simulated = Annotated[
    bool,
    typer.Option(
        "--executable/--verilog",
        help="Also build the executable, or only write Verilog, which needs no C++ compiler.",
    ),
]


Word = Annotated[
    int | None,
    typer.Option("--command", metavar="WORD", min=0, help="Write the cycles of this command."),
]
LayerName = Annotated[
    str | None, typer.Option("--layer", metavar="NAME", help="Write the cycles of this layer.")
]
CycleRange = Annotated[
    str | None,
    typer.Option("--cycles", metavar="FIRST:END", help="Write this range of cycles, e.g. 100:200."),
]


@app.command("build")
@options.limit_command
@options.expand_options
def build(
    hardware: MachineChoice,
    output: BuildFolder,
    replacing: Replacing = None,
    executable: Simulated = True,
) -> None:
    """Write the Verilog of a machine and an executable that simulates it.

    The folder also contains a model of the scratchpad.
    """
    _require()
    from experiments.rtl.build import write_build

    with options.stages() as progress:
        write_build(_machine(hardware), output, progress, _modules(replacing), simulated=executable)
    say(f"{output}: the machine in Verilog, README.md says what each file is")


@app.command("synth")
@options.limit_command
@options.expand_options
def synth(
    hardware: MachineChoice,
    cost: options.Cost = None,
    json: options.Json = None,
    csv: options.Csv = None,
) -> None:
    """Synthesise a machine with Yosys and count the gates of each component.

    The memories are not synthesised.
    """
    _require()
    from experiments.cost.table import DEFAULT_TABLE, load_table
    from experiments.report.terminal import plain_table, print_parts
    from experiments.rtl import gates

    machine = _machine(hardware)
    table = load_table(cost or DEFAULT_TABLE)
    with options.stages() as progress:
        found = gates.synthesise_hardware(machine, progress=progress)
    rows = gates.component_rows(found)
    results.write_tables(json, csv, gates.synthesis_json(found, machine, table), rows)
    columns = ((name.replace("_", " "), "right") for name in list(rows[0])[1:])
    print_parts(plain_table(("component", "fold"), *columns, rows=gates.list_cells(rows)))
    for line in gates.summary_lines(found, machine, table):
        say(line)


@app.command("ports")
@options.limit_command
@options.expand_options
def ports(hardware: MachineChoice, json: options.Json = None, csv: options.Csv = None) -> None:
    """List the scratchpad ports of a machine, and the operands that each transfers."""
    from experiments.report.terminal import plain_table, print_parts
    from experiments.rtl import word_ports
    from isa.arch import BankedMemory

    machine = _machine(hardware)
    if isinstance(machine.arch.memory, BankedMemory):
        rows = word_ports.port_rows(machine)
        document = word_ports.ports_json(machine)
        lines = word_ports.summary_lines(machine)
    else:
        _require()
        from experiments.rtl import memory_ports

        found = memory_ports.hardware_ports(machine)
        rows = memory_ports.port_rows(found)
        document = memory_ports.ports_json(machine, found)
        lines = memory_ports.summary_lines(machine, found)
    results.write_tables(json, csv, document, rows)
    texts = ("instruction", "operand", "access", "owner", "port", "slots")
    columns = ((name.replace("_", " "), "fold" if name in texts else "right") for name in rows[0])
    cells = (
        [value if isinstance(value, str) else f"{value:,}" for value in row.values()]
        for row in rows
    )
    print_parts(plain_table(*columns, rows=cells))
    for line in lines:
        say(line)


@app.command("check")
@options.limit_command
def check(
    folder: golden.Folder,
    level: golden.Levels = None,
    case: golden.Cases = None,
    replacing: Replacing = None,
    json: options.Json = None,
) -> int:
    """Run a corpus on the hardware and name the first wrong command of every case.

    Exit status 1 at any difference.
    """
    _require()
    from experiments.golden.store import choose, open_corpus
    from experiments.rtl.comparison import comparison_json, corpus_cases, outcome_lines
    from experiments.rtl.hardware import run_each

    corpus = open_corpus(folder)
    modules = _modules(replacing)
    names = choose(corpus.entries, level or (), case or ())
    with options.stages() as progress:
        outcomes = list(run_each(corpus_cases(corpus, names), progress, modules))
    results.write_json(json, comparison_json(outcomes))
    wrong = [outcome for outcome in outcomes if outcome.count]
    given = " ".join((f"--corpus {folder}", *(f"--with {path}" for path in modules)))
    for outcome in wrong:
        for line in outcome_lines(outcome, f"dla rtl waves {outcome.case.name} {given}"):
            say(line)
    cycles, commands = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("cycles", "commands")
    )
    equal = len(outcomes) - len(wrong)
    refused = len(names) - len(outcomes)
    done = (
        f"{equal} of {len(outcomes)} cases equal on the hardware, {commands:,} commands, "
        f"{cycles:,} cycles"
    )
    say(f"{folder}: {done}; {refused} more are refused by every machine")
    if not wrong:
        return 0
    return results.report_difference(f"{wrong[0].case.name} and {len(wrong) - 1} more cases differ")


@app.command("case")
@options.limit_command
@options.expand_options
def case(wanted: golden.Wanted, output: CaseFile) -> None:
    """Write a case and its expected results for the executable of the same machine.

    dla rtl build makes the executable.
    """
    _require()
    from dla_sim.rtl.simulator.case import case_bytes
    from experiments.rtl.comparison import source_case
    from isa.files import write_atomically

    chosen = source_case(golden.export_source(wanted))
    write_atomically(output, case_bytes(chosen, {}, ()))
    say(f"{output}: {chosen.name}, {len(chosen.program.commands) - 1} operations")


@app.command("compare")
@options.limit_command
@options.expand_options
def compare(wanted: golden.Wanted, design: Design, json: options.Json = None) -> int:
    """Run a program on your own RTL and name the first command that differs.

    A command differs if its bytes or cycles are not equal to the simulator's.

    docs/own-rtl.md lists the ports of the RTL. Exit status 1 at any difference.
    """
    _require()
    from experiments.rtl.comparison import comparison_json, outcome_lines, source_case
    from experiments.rtl.cosimulation import check_sources, compare_design

    check_sources(design)
    with options.stages() as progress:
        chosen = source_case(golden.export_source(wanted))
        progress("running the RTL")
        outcome = compare_design(chosen, design)
    results.write_json(json, comparison_json([outcome]))
    if outcome.count:
        for line in outcome_lines(outcome):
            say(line)
        if design.scratchpad is None and outcome.differences[0].kind == "bytes":
            say("  an earlier command may be wrong: --scratchpad PATH compares the scratchpad, too")
        return results.report_difference(f"{chosen.name}: {design.top} differs from the simulator")
    assert chosen.expected is not None
    cycles = f"{outcome.cycles:,} cycles"
    if design.bits_only:
        cycles += f" (simulator: {chosen.expected.trace.cycles:,}; not compared)"
    commands = f"{len(chosen.expected.writes)} commands"
    say(f"{chosen.name}: {design.top} equals the simulator: {commands}, {cycles}")
    if design.scratchpad is None:
        say("compared: system memory; to compare the scratchpad, too: --scratchpad PATH")
    return 0


@app.command("waves")
@options.limit_command
@options.expand_options
def waves(
    wanted: golden.Wanted,
    output: WaveFile,
    command: Word = None,
    layer: LayerName = None,
    cycles: CycleRange = None,
    replacing: Replacing = None,
) -> int:
    """Write the signals of some cycles as VCD or FST.

    The file includes the command and the layer of each unit.
    """
    _require()
    from experiments.rtl.comparison import outcome_lines, source_case
    from experiments.rtl.windows import layers_between, write_window

    window = _window(command, layer, cycles)
    modules = _modules(replacing)
    with options.stages() as progress:
        chosen = source_case(golden.export_source(wanted))
        outcome, first, end = write_window(chosen, window, output, progress, modules)
    say(f"{output}: cycles {first} to {end} of {chosen.name}")
    layers = [f"{number} is '{name}'" for number, name in layers_between(chosen, first, end)]
    say(f"layers: {', '.join(layers)}" if layers else "no command there belongs to a layer")
    for line in outcome_lines(outcome) if outcome.count else ():
        say(line)
    return 1 if outcome.count else 0


def _machine(chosen: MachineChoice) -> Preset:
    from experiments.running.inference import hardware_of

    return hardware_of(chosen)


def _require() -> None:
    from experiments.extras import require_amaranth

    require_amaranth()


def _modules(replacing: list[Path] | None) -> dict[str, str]:
    """Read Verilog files and return their texts by file name."""
    from isa.reading import read_bytes, text_of

    return {
        str(path): text_of(read_bytes(path, MAXIMUM_VERILOG, "Verilog"), str(path))
        for path in replacing or ()
    }


def _window(command: int | None, layer: str | None, cycles: str | None) -> RunWindow:
    from experiments.rtl.windows import RunWindow

    if [command, layer, cycles].count(None) != 2:
        raise InputError("waves need one of --command WORD, --layer NAME and --cycles FIRST:END")
    if cycles is None:
        return RunWindow(command=command, layer=layer)
    first, separator, end = cycles.partition(":")
    if not separator or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise InputError(f"--cycles {cycles}: write it as FIRST:END, for example 1000:1200")
    return RunWindow(cycles=(int(first), int(end)))
