"""``dla models``, ``presets``, ``settings``, ``support``, ``isa``, ``cache`` and ``doctor``.

The commands print lists and the state of the installation. Lists of instructions and operators
include installed packages. They are printed as a table or as documentation, and the instruction set
also as headers for C and Verilog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import options, results
from experiments.literal import say
from experiments.report.terminal import line, plain_table, print_lines, print_parts
from isa.errors import InputError, suggest_name
from isa.installation import install_line

if TYPE_CHECKING:
    from byoc.operators.registry import SupportRow
    from dla_sim.presets import Preset
    from experiments.installation import Installation
    from experiments.machines.description import MachineDescription
    from isa.plugins import Table


def models(json: options.Json = None, csv: options.Csv = None) -> None:
    """List the built-in networks."""
    from experiments.models import MODELS
    from experiments.models.decoders import DECODERS

    found = {model.name: model.description for model in MODELS.values()}
    found |= {name: f"{about} (dla generate)" for name, (about, _) in DECODERS.items()}
    rows = [{"model": name, "description": about} for name, about in found.items()]
    results.write_tables(json, csv, found, rows)
    print_parts(plain_table(("name", "left"), ("network", "fold"), rows=found.items()))


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TERM]", help="Word, heading or label in the output of dla."),
]


def explain_word(words: Words = None) -> None:
    """Explain a word in the output of dla, or list all words."""
    from experiments.glossary import find_term, glossary

    if not words:
        known = ", ".join(word for term in glossary() for word in term.words)
        print_parts(f"dla help TERM explains one of: {known}")
        say("dla COMMAND --help explains a command")
        return
    wanted = " ".join(words)
    term = find_term(wanted)
    if term is None:
        close = suggest_name(wanted, [word for entry in glossary() for word in entry.words])
        raise InputError(f"no entry for '{wanted}'; {close}'dla help' lists all words")
    say(f"{', '.join(term.words)}: {term.text}")
    say(f"see {term.places}")


PresetName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME|FILE]",
        help="Preset to print as a file to save and edit, or described machine to show.",
        autocompletion=options.offer_machines,
    ),
]


def presets(name: PresetName = None, json: options.Json = None, csv: options.Csv = None) -> None:
    """List presets, described machines and memory modes.

    With a name, print that preset as a file to edit (docs/sweeps.md), or show the described
    machine: its parameters, units, memories, and operations with limits and sources.
    """
    from dla_sim.presets import load_preset, preset_names, preset_toml
    from experiments.machines.discovery import find_machine, is_described, list_machines
    from experiments.machines.listing import machine_content, machine_tables

    if name is not None and is_described(name):
        machine = find_machine(name)
        content = machine_content(machine)
        results.write_tables(json, csv, content, content["operations"])
        print_parts(*machine_tables(machine, name))
        return
    if name is not None:
        preset = load_preset(name)
        results.write_tables(json, csv, preset.model_dump(mode="json"), [_row(preset)])
        print(preset_toml(preset), end="")
        return
    found = [load_preset(known) for known in preset_names()]
    rows = [_row(preset) for preset in found]
    described = [one for one in list_machines().values() if one.kind != "preset"]
    others = [
        dict.fromkeys(rows[0]) | {"name": one.name, "description": one.summary} for one in described
    ]
    contents = [preset.model_dump(mode="json") for preset in found]
    results.write_tables(json, csv, [*contents, *map(machine_content, described)], [*rows, *others])
    _print_presets(found, described)


def _row(preset: Preset) -> dict[str, object]:
    from isa.arch import flat

    return {"name": preset.name, "description": preset.description} | flat(
        dict(preset.arch) | dict(preset.timing)
    )


def _print_presets(found: list[Preset], described: list[MachineDescription]) -> None:
    from dla_sim.presets import DEFAULT_PRESET, MEMORY_MODES, setting_texts

    columns = (
        ("PEs (ic x oc x ow)", "right"),
        ("SRAM", "right"),
        ("bytes/cycle", "right", 1),
        ("ISA", "left", 2),
    )
    table = plain_table(("preset", "left"), *columns, ("description", "fold"))
    for preset in found:
        arch = preset.arch
        pe = preset.arch.pe
        array = f"{pe.ic} x {pe.oc} x {pe.ow}"
        memory = f"{arch.sram_bytes / 1024:g} KiB"
        default = " (default)" if preset.name == DEFAULT_PRESET else ""
        width = str(preset.timing.bus_bytes)
        table.add_row(preset.name + default, array, memory, width, arch.isa, preset.description)
    modes = plain_table(
        ("memory mode", "left"),
        ("location of the data (--memory-mode)", "fold"),
        rows=(
            (
                mode.name,
                f"{mode.description} ({', '.join(setting_texts(mode.timing))})",
            )
            for mode in MEMORY_MODES
        ),
    )
    machines = plain_table(
        ("described machine (--machine)", "left"),
        ("time", "left"),
        ("validated", "left"),
        ("description", "fold"),
        rows=[
            (one.name, one.kind, "yes" if one.validated else "no", one.summary) for one in described
        ],
    )
    print_parts(
        table,
        *([machines] if described else []),
        modes,
        "dla presets NAME prints one as a file to edit; dla settings lists the keys.",
    )


def settings(json: options.Json = None, csv: options.Csv = None) -> None:
    """List every key of a machine: values, default, unit and meaning.

    Set a key with --set KEY=VALUE or in a preset file.
    """
    from dla_sim.presets import DEFAULT_PRESET, list_settings

    found = list_settings()
    results.write_tables(
        json, csv, [asdict(setting) for setting in found], [asdict(setting) for setting in found]
    )
    table = plain_table(
        ("key", "left"), ("table", "left", 2), ("values", "fold", 1), ("default", "right"),
        ("unit", "fold"), ("meaning", "fold"),
        rows=(
            (
                one.key, one.table, one.values,
                "none" if one.default is None else str(one.default), one.unit, one.meaning,
            )
            for one in found
        ),
    )  # fmt: skip
    print_parts(
        table,
        "Sizes may have a unit: k, M, G, KiB, MiB, GiB, as in --set sram_bytes=64KiB.",
        "Defaults are those of a preset file that leaves a key out; without --preset the machine "
        f"is {DEFAULT_PRESET} ('dla presets {DEFAULT_PRESET}' has its values).",
    )


IsaFormat = StrEnum(
    "IsaFormat",
    {
        "table": "table",
        "markdown": "markdown",
        "c": "c",
        "verilog": "verilog",
        "device_h": "device-h",
    },
)
IsaFormatOption = Annotated[
    IsaFormat,
    typer.Option(
        "--format",
        help="Print a table, or write docs/isa.md, dla_isa.h, dla_isa.vh or dla_device.h.",
    ),
]
BuiltIn = Annotated[
    bool, typer.Option("--built-in", help="Leave out additions of installed packages.")
]


def isa(
    format: IsaFormatOption = IsaFormat.table,
    built_in: BuiltIn = False,
    output: options.Output = None,
) -> None:
    """Show the instruction set, including the instructions of installed packages."""
    from isa import plugins

    found = plugins.get_built_in_table() if built_in else plugins.load_installed_table()
    if format is IsaFormat.table:
        if output is not None:
            raise InputError(
                f"--format table is for the terminal; choose markdown, c, verilog or "
                f"device-h for {output}"
            )
        _print_isa(found)
        return
    results.write_text(output, _isa_text(found, format))


def _isa_text(found: Table, format: IsaFormat) -> str:
    from isa.documentation import markdown
    from isa.headers import c_header, device_header, verilog_header

    if format is IsaFormat.device_h:
        return device_header()
    return {IsaFormat.c: c_header, IsaFormat.verilog: verilog_header}.get(format, markdown)(found)


def _print_isa(found: Table) -> None:

    names = [variant.name for variant in found.variants]
    columns = [("instruction", "left"), ("opcode", "left"), ("unit", "left"), ("kind", "left")]
    shown = plain_table(*columns, *((name, "left") for name in names), ("declared by", "left"))
    for item in found.instructions:
        unit = item.unit.name if item.unit else "any"
        marks = ("yes" if item in variant.instructions else "" for variant in found.variants)
        shown.add_row(
            item.mnemonic,
            f"{item.opcode:#04x}",
            unit,
            item.kind,
            *marks,
            found.owner(item.mnemonic),
        )
    print_parts(
        shown, *(line(f"{variant.name}: {variant.description}") for variant in found.variants)
    )


SupportFormat = StrEnum("SupportFormat", ["table", "markdown"])
SupportFormatOption = Annotated[
    SupportFormat, typer.Option("--format", help="Print a table, or write docs/support.md.")
]


def support(
    format: SupportFormatOption = SupportFormat.table,
    built_in: BuiltIn = False,
    output: options.Output = None,
) -> None:
    """Show which ONNX operators run on the accelerator, and their rules.

    The list includes operators of installed packages.
    """
    from byoc.frontend.onnx.rewriting.reasons import support_rows
    from byoc.operators import registry

    rows = support_rows(
        registry.get_built_in_families() if built_in else registry.load_installed_families()
    )
    if format is SupportFormat.table:
        if output is not None:
            raise InputError(f"--format table is for the terminal; choose markdown for {output}")
        _print_support(rows)
    else:
        results.write_text(output, registry.markdown(rows))


def _print_support(rows: Sequence[SupportRow]) -> None:

    columns = (("pattern", "left"), ("operators", "fold"), ("needs", "fold"))
    cells = (
        (
            row.family,
            ", ".join((*row.operators, *row.closes)),
            ", ".join(row.instructions),
            row.owner,
        )
        for row in rows
    )
    print_parts(
        plain_table(*columns, ("declared by", "left"), rows=cells),
        "The rules that a node must meet: dla support --format markdown",
    )


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all entries.")] = False,
) -> None:
    """Show the cache of models and hardware, or remove its entries.

    DLA_CACHE_DIR=DIR moves the cache; DLA_NO_CACHE=1 turns it off.
    """
    from dla_sim.rtl.simulator import kept
    from experiments.running.package_cache import users_cache

    found = users_cache()
    if found is None:
        say("there is no cache")
    elif clear:
        say(f"{found.folder}: {found.clear() + kept.clear(found.folder)} entries removed")
    else:
        for what, entries, most in (
            ("entries", found.entries(), found.largest),
            ("of hardware", kept.entries(found.folder), kept.LARGEST),
        ):
            sizes = [path.lstat().st_size for path in entries]
            if sizes or what == "entries":
                say(
                    f"{found.folder}: {len(sizes)} {what}, {sum(sizes) / 2**20:.1f} MiB of at most "
                    f"{most >> 20} MiB"
                )


def doctor(json: options.Json = None) -> int:
    """Show installed versions and extras, and how to install what is missing.

    The exit status is 1 if a package is missing that dla always needs.
    """
    from experiments.installation import find_missing, look

    found = look()
    results.write_json(json, asdict(found))
    _print_installation(found)
    lacking = find_missing(found.needed)
    if lacking:
        say(f"needed: {install_line(lacking)}")
    for extra in found.extras:
        if extra.missing:
            say(f"for {extra.purpose}: {install_line(extra.missing)}")
    return 1 if lacking else 0


def _print_installation(found: Installation) -> None:
    from experiments.installation import find_missing

    print_lines(*(f"{name:<9} {text}" for name, text in found.facts))
    needed = (
        (
            one.wanted,
            one.found or "none",
            "" if one.fits else "missing" if not one.found else "does not fit",
        )
        for one in found.needed
    )
    extras = (
        (
            extra.name,
            "missing" if find_missing(extra.packages) else "installed",
            ", ".join(f"{one.wanted} ({one.found or 'none'})" for one in extra.packages),
            extra.purpose,
        )
        for extra in found.extras
    )
    columns = (("extra", "left"), ("", "left"), ("packages", "fold"), ("purpose", "fold", 1))
    print_parts(
        plain_table(("package", "left"), ("version", "left"), ("", "left"), rows=needed),
        plain_table(*columns, rows=extras),
    )
