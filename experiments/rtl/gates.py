"""Synthesis of a machine's hardware into gates, compared with a cost table's estimate.

Gates are counted per component.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from dla_sim.presets import Preset
from dla_sim.rtl.machine import NAME
from dla_sim.rtl.parameters import limits_of, strap_values
from dla_sim.rtl.simulator.machine_text import machine_text
from dla_sim.rtl.synthesis import Synthesis, synthesise
from experiments.cost.estimate import SQUARE_MILLIMETRE, area
from experiments.cost.table import CostTable
from experiments.rtl.build import split_text
from experiments.rtl.hardware import is_pipelined
from isa.progress import Progress, silent

SCHEMA = "dla-rtl-synthesis/1"
MEASURED_IS = (
    "measured: data path and control of the whole machine, registers included; no memories, no "
    "wires"
)
ESTIMATED_IS = (
    "estimated: a multiplier and an accumulating adder for each processing element, nothing else"
)


def synthesise_hardware(hardware: Preset, *, progress: Progress = silent) -> Synthesis:
    """Synthesise a machine's hardware into gates, with its configuration tied to constants.

    Raise InputError as ``synthesise`` does.
    """
    arch = hardware.arch
    timing = hardware.timing
    progress("writing Verilog")
    text = machine_text(
        limits_of(arch, timing, pipelined=is_pipelined(timing)), strap_values(arch, timing)
    )
    return synthesise(*split_text(text), NAME, progress=progress)


def component_rows(found: Synthesis) -> list[dict[str, Any]]:
    """Return a row of gate counts per hardware component, the largest first.

    ``gates`` and the later columns are those of one instance without its subcomponents.
    ``all_gates`` is the sum over all instances.
    """
    counts = found.counts()
    rows = [
        {
            "component": name, "times": counts[name], "cells": sum(component.cells.values()),
            "registers": component.registers, "gates": round(component.gates),
            "all_gates": round(component.gates * counts[name]), "levels": component.levels,
            "memory_bits": component.memory_bits,
        }
        for name, component in found.components.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row["all_gates"], row["component"]))


def synthesis_json(found: Synthesis, hardware: Preset, table: CostTable) -> dict[str, Any]:
    """Return the result of a synthesis as JSON values, with the cells of each type."""
    cells = {name: dict(component.cells) for name, component in found.components.items()}
    return {
        "schema": SCHEMA,
        "machine": {
            "arch": hardware.arch.model_dump(mode="json"),
            "timing": hardware.timing.model_dump(mode="json"),
        },
        "components": [
            {**row, "cells_by_type": cells[row["component"]]} for row in component_rows(found)
        ],
        "total": {name: round(found.total(name)) for name in ("gates", "registers", "memory_bits")},
        "deepest": {"component": found.deepest.name, "levels": found.deepest.levels},
        "measured_logic_um2": _square_micrometres(found, table),
        "estimated_pe_um2": area(table, hardware.arch).pe,
        "cost_table": table.name,
    }


def summary_lines(found: Synthesis, hardware: Preset, table: CostTable) -> Iterator[str]:
    """Yield text lines on the gates of a synthesised machine and its area estimate."""
    deepest = found.deepest
    bits = found.total("memory_bits")
    yield (
        f"{found.total('gates'):,.0f} gate equivalents, of them {found.total('registers'):,.0f} "
        "flip-flops of 4 gates"
    )
    yield f"longest path within a component: {deepest.levels} levels of logic, in {deepest.name}"
    yield (
        f"not in them: {bits:,.0f} bits of small memories, {hardware.arch.sram_bytes:,} bytes of "
        "scratchpad"
    )
    measured = _square_micrometres(found, table)
    if measured is not None:
        yield f"{measured / SQUARE_MILLIMETRE:.3f} mm² by {table.name}; {MEASURED_IS}"
    yield (
        f"{area(table, hardware.arch).pe / SQUARE_MILLIMETRE:.3f} mm² by {table.name}; "
        f"{ESTIMATED_IS}"
    )


def _square_micrometres(found: Synthesis, table: CostTable) -> float | None:
    return (
        None
        if table.area.gate is None
        else found.total("gates") * table.area.gate.square_micrometres
    )


def list_cells(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        yield row["component"], *(f"{row[name]:,}" for name in row if name != "component")
