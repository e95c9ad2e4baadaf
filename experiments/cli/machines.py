"""``dla presets`` and ``dla settings``: the machines that there are, and every key of one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli import completion, options, results

if TYPE_CHECKING:
    from dla_sim.presets import Preset

PresetName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME|FILE.toml]",
        help="Print this one as a file to save and edit.",
        autocompletion=completion.presets,
    ),
]


def presets(name: PresetName = None, json: options.Json = None, csv: options.Csv = None) -> None:
    """List machines to start from, and memory modes; with a name, print it as a file to edit (docs/presets.md)."""
    from dla_sim.presets import load_preset, preset_names, preset_toml

    if name is not None:
        preset = load_preset(name)
        results.write_json(json, preset.model_dump(mode="json"))
        results.write_csv(csv, [_row(preset)])
        print(preset_toml(preset), end="")
        return
    found = [load_preset(known) for known in preset_names()]
    results.write_json(json, [preset.model_dump(mode="json") for preset in found])
    results.write_csv(csv, [_row(preset) for preset in found])
    _print_presets(found)


def _row(preset: Preset) -> dict[str, object]:
    """Every key of a machine in one row."""
    from isa.arch import flat

    return {"name": preset.name, "description": preset.description} | flat(
        preset.arch.model_dump() | dict(preset.timing)
    )


def _print_presets(found: list[Preset]) -> None:
    from dla_sim.presets import DEFAULT_PRESET
    from dla_sim.presets.modes import MEMORY_MODES
    from experiments.report.terminal import plain_table, report_console

    columns = ("PEs (ic x oc x ow)", "right"), ("SRAM", "right"), ("bytes/cycle", "right", 1), ("ISA", "left", 2)
    table = plain_table(("preset", "left"), *columns, ("what it is", "fold"))
    for preset in found:
        arch, pe = preset.arch, preset.arch.pe
        array, memory = f"{pe.ic} x {pe.oc} x {pe.ow}", f"{arch.sram_bytes / 1024:g} KiB"
        default = " (default)" if preset.name == DEFAULT_PRESET else ""
        width = str(preset.timing.bus_bytes)
        table.add_row(preset.name + default, array, memory, width, arch.isa, preset.description)
    modes = plain_table(("memory mode", "left"), ("where data lie (--memory-mode)", "fold"))
    for mode in MEMORY_MODES:
        changes = ", ".join(f"{key}={value}" for key, value in mode.timing.items())
        modes.add_row(mode.name, f"{mode.description} ({changes})")
    console = report_console()
    console.print(table)
    console.print(modes)
    console.print("dla presets NAME prints one as a file to edit; dla settings lists the keys.")


def settings(json: options.Json = None, csv: options.Csv = None) -> None:
    """List every key of a machine, for --set KEY=VALUE and preset files: values, default, unit and meaning."""
    from dla_sim.presets import DEFAULT_PRESET
    from dla_sim.presets.keys import declared_settings
    from experiments.report.terminal import plain_table, report_console

    found = declared_settings()
    results.write_json(json, [asdict(setting) for setting in found])
    results.write_csv(csv, [asdict(setting) for setting in found])
    table = plain_table(
        ("key", "left"), ("table", "left", 2), ("values", "fold", 1), ("default", "right"), ("unit", "fold"),
        ("meaning", "fold"),
    )  # fmt: skip
    for setting in found:
        default = "none" if setting.default is None else str(setting.default)
        table.add_row(setting.key, setting.table, setting.values, default, setting.unit, setting.meaning)
    console = report_console()
    console.print(table)
    console.print("Sizes may have a unit: k, M, G, KiB, MiB, GiB, as in --set sram_bytes=64KiB.")
    console.print(
        f"Defaults are those of a preset file that leaves a key out; without --preset the machine is {DEFAULT_PRESET}"
        f" ('dla presets {DEFAULT_PRESET}' has its values)."
    )
