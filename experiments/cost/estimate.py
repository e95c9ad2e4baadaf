"""Estimates of energy and area from a cost table and the activity of a run or sweep point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from experiments.figure import Figure, all_figures, values_of
from isa.arch import Arch, PeArray

if TYPE_CHECKING:
    from dla_sim.device import Trace
    from experiments.cost.table import CostTable, Sourced


NOT_COUNTED = (
    "not counted: leakage, clock tree, control, registers and wires between processing elements, "
    "requantisation, activation and pooling arithmetic, the bus, the CPU"
)
"""Note in every estimate: contributions that no cost table contains."""

UNPRICED = (
    "not counted: {:,} bytes of flash, or of SRAM next to the accelerator; no table has a figure "
    "for them"
)
"""Note on bytes of memories other than DRAM, for which no table has a figure."""

Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class EnergyEvents:
    """Counts of the events of a run that cost energy.

    ``sram_bytes`` counts bytes of the scratchpad: for EX, each operand read once and each result
    written once, and for DMA. ``dram_bytes`` counts bytes that LD, ST and the command fetch moved
    from or to DRAM. ``unpriced_bytes`` counts the bytes that they moved from or to a flash or an
    SRAM next to the accelerator instead. ``register_writes`` counts the SETs executed.
    """

    macs: int
    sram_bytes: int
    dram_bytes: int
    register_writes: int
    unpriced_bytes: int = 0

    def __add__(self, other: EnergyEvents) -> EnergyEvents:
        return EnergyEvents(
            self.macs + other.macs,
            self.sram_bytes + other.sram_bytes,
            self.dram_bytes + other.dram_bytes,
            self.register_writes + other.register_writes,
            self.unpriced_bytes + other.unpriced_bytes,
        )


MICROJOULE = 1e6
"""Picojoules per microjoule."""
SQUARE_MILLIMETRE = 1e6
"""Square micrometres per square millimetre."""
_ENERGY = Figure(
    "estimated energy", "pJ", "less", name="estimated_energy_pj", goal="energy",
    shown=("µJ", 1 / MICROJOULE),
    estimate=True,
)  # fmt: skip
_AREA = Figure(
    "estimated area", "µm²", "less", name="estimated_area_um2", goal="area",
    shown=("mm²", 1 / SQUARE_MILLIMETRE),
    estimate=True,
)  # fmt: skip


class _CostPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class EnergyParts(_CostPart):
    """Energy of the whole run by component, in picojoules."""

    mac: Positive
    sram: Positive
    dram: Positive
    register_write: Positive
    total: Annotated[Positive, _ENERGY]


class AreaParts(_CostPart):
    """Area of the machine by component, in square micrometres."""

    pe: Positive
    sram: Positive
    total: Annotated[Positive, _AREA]


class MeasuredLogic(_CostPart):
    """Gates of a machine's data path and control, counted by synthesis, and their area.

    ``gates`` are gate equivalents; memories are not included. ``machine`` is the synthesised
    machine, which has the same array, lanes and numerics.
    """

    machine: str
    gates: Annotated[int, Figure("measured gates", name="measured_gates")]
    square_micrometres: Annotated[
        Positive, Figure("measured logic", "µm²", name="measured_logic_um2")
    ]


class Estimate(_CostPart):
    """Energy of a run and area of its machine, estimated with a cost table.

    ``sources`` gives the publication and the process node of every figure used. Only ``logic`` is
    measured; it is None if no machine with that array was synthesised, or if the table has no price
    for gates.
    """

    estimate: Literal[True] = True
    table: str
    energy_pj: EnergyParts
    area_um2: AreaParts
    logic: MeasuredLogic | None = None
    counts: Mapping[str, int]
    notes: tuple[str, ...]
    sources: Mapping[str, str]


def estimate(table: CostTable, arch: Arch, activity: EnergyEvents) -> Estimate:
    """Estimate the energy of ``activity`` and the area of a machine with ``arch``, by ``table``."""
    byte = table.energy.sram.byte(arch.sram_bytes // arch.sram_banks)
    logic = find_measured_logic(table, arch)
    notes = (NOT_COUNTED,) if byte.note is None else (byte.note, NOT_COUNTED)
    unpriced = {"unpriced_bytes": activity.unpriced_bytes} if activity.unpriced_bytes else {}
    if unpriced:
        notes = (UNPRICED.format(activity.unpriced_bytes), *notes)
    return Estimate(
        table=table.name,
        energy_pj=_energy(table, activity, byte.picojoules),
        area_um2=area(table, arch),
        logic=logic,
        counts={
            "macs": activity.macs,
            "sram_bytes": activity.sram_bytes,
            "dram_bytes": activity.dram_bytes,
            "register_writes": activity.register_writes,
            "pes": arch.pe.count,
            "sram_capacity_bytes": arch.sram_bytes,
            **unpriced,
        },
        notes=notes,
        sources=_sources(table, logic),
    )


def _energy(table: CostTable, activity: EnergyEvents, sram_byte: float) -> EnergyParts:
    parts = {
        "mac": activity.macs * table.energy.mac.picojoules,
        "sram": activity.sram_bytes * sram_byte,
        "dram": activity.dram_bytes * table.energy.dram.picojoules,
        "register_write": activity.register_writes * table.energy.register_write.picojoules,
    }
    return EnergyParts(**parts, total=sum(parts.values()))


def area(table: CostTable, arch: Arch) -> AreaParts:
    """Return the estimated area of a machine, which does not depend on a run."""
    pe = arch.pe.count * table.area.pe.square_micrometres
    sram = arch.sram_bytes / 1024 * table.area.sram.square_micrometres
    return AreaParts(pe=pe, sram=sram, total=pe + sram)


def find_measured_logic(table: CostTable, arch: Arch) -> MeasuredLogic | None:
    """Return the synthesised gate count of a machine and its area, or None if unknown.

    It is None if the machine was not synthesised or ``table`` has no price for gates.
    """
    from experiments.cost.table import find_measured

    found = find_measured(arch)
    if found is None or table.area.gate is None:
        return None
    price = table.area.gate.square_micrometres
    return MeasuredLogic(
        machine=found.machine, gates=found.gates, square_micrometres=found.gates * price
    )


def _sources(table: CostTable, logic: MeasuredLogic | None) -> dict[str, str]:
    figures: dict[str, Sourced | None] = {f"energy.{name}": figure for name, figure in table.energy}
    figures |= {
        f"area.{name}": figure for name, figure in table.area if name != "gate" or logic is not None
    }
    return {
        name: f"{figure.node}: {figure.source}"
        for name, figure in figures.items()
        if figure is not None
    }


COMMAND_WORD_BYTES = 8
COLUMNS = tuple(figure.name for figure in all_figures(Estimate))
"""Columns that a cost table adds to the rows of a sweep.

They are None in rows whose status is not ok. The columns of measured logic are None for arrays that
were not synthesised.
"""

FlatRow = Mapping[str, Any]


MainMemory = Literal["DRAM", "SRAM"]


def run_activity(traces: Iterable[Trace], main_memory: MainMemory = "DRAM") -> EnergyEvents:
    """Return the counts of energy-consuming events of all regions of a run together."""
    total = EnergyEvents(0, 0, 0, 0)
    for trace in traces:
        moved = trace.dram_read_bytes + trace.dram_write_bytes + trace.fetch_bytes
        flash = trace.flash_read_bytes + (
            trace.fetch_bytes if trace.workload.timing.flash is not None else 0
        )
        dram = moved - flash if main_memory == "DRAM" else 0
        total += EnergyEvents(
            trace.macs, trace.sram_moved_bytes, dram, trace.register_writes, moved - dram
        )
    return total


def layer_activities(trace: Trace, main_memory: MainMemory = "DRAM") -> tuple[EnergyEvents, ...]:
    """Return the counts of energy-consuming events of each layer of a trace, in order.

    Their sum is the activity of the run.

    The words of a command are its own word and the register writes before it. ``OP_END`` counts for
    the last command.
    """
    labels = trace.labels
    demands = trace.workload.demands
    if not trace.layers:
        return ()
    words = np.diff(demands.word, prepend=-1)
    words[-1] += trace.command_words - words.sum()
    writes = words - 1
    writes[-1] -= 1
    moved = labels.read + labels.write
    fetched = COMMAND_WORD_BYTES * words
    flash = moved * trace.workload.columns["flash"] + fetched * (
        trace.workload.timing.flash is not None
    )
    dram = (moved + fetched - flash) * (main_memory == "DRAM")
    columns = (
        labels.macs,
        demands.reads + demands.writes + moved,
        dram,
        writes,
        moved + fetched - dram,
    )
    sums = np.zeros((len(columns), len(labels.layers)), dtype=np.int64)
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, labels.layer, column)
    return tuple(EnergyEvents(*map(int, one)) for one in sums.T)


def layer_energies(
    table: CostTable, arch: Arch, traces: Mapping[int, Trace], main_memory: MainMemory = "DRAM"
) -> dict[tuple[int, str], float]:
    """Estimate the energy of every layer in picojoules, by region and layer name.

    The sum is the energy of the run.
    """
    byte = table.energy.sram.byte(arch.sram_bytes // arch.sram_banks).picojoules
    return {
        (region, layer.name): _energy(table, activity, byte).total
        for region, trace in traces.items()
        for layer, activity in zip(trace.layers, layer_activities(trace, main_memory), strict=True)
    }


def row_activity(row: FlatRow) -> EnergyEvents:
    """Return the counts of energy-consuming events of a sweep point from its row of results.

    ``row`` is a row of ``experiments.sweep.results.flat_rows`` with status ok.
    """
    words = row["instructions"] + row["register_writes"]
    return EnergyEvents(
        macs=row["macs"],
        sram_bytes=row["sram_moved_bytes"],
        dram_bytes=row["dram_read_bytes"] + row["dram_write_bytes"] + COMMAND_WORD_BYTES * words,
        register_writes=row["register_writes"],
    )


def add_costs(rows: Iterable[FlatRow], table: CostTable) -> Iterator[dict[str, Any]]:
    """Yield the rows of a sweep with the columns :data:`COLUMNS`, priced with ``table``.

    The energy is None for machines with a flash, because rows do not record how many bytes came
    from the flash.
    """
    for row in rows:
        values: dict[str, Any] = dict.fromkeys(COLUMNS)
        if row["status"] == "ok":
            found = estimate(table, _arch(row), row_activity(row))
            values |= {figure.name: value for figure, value in values_of(found)}
        if row.get("flash_bytes"):
            values[COLUMNS[0]] = None
        yield {**row, **values}


def _arch(row: FlatRow) -> Arch:
    pe = PeArray(**{name: row[f"pe.{name}"] for name in PeArray.model_fields})
    names = ("sram_bytes", "sram_banks", "numerics", "post_lanes")
    return Arch(pe=pe, **{name: row[name] for name in names if row.get(name) is not None})


_OF_ENERGY = {"mac": "MACs", "sram": "SRAM", "dram": "DRAM", "register_write": "registers"}
_OF_AREA = {"pe": "PEs", "sram": "SRAM"}


def cost_lines(found: Estimate) -> Iterator[tuple[str, str]]:
    """Yield the name and text of every line of an energy and area estimate.

    The lines are about energy, area, measured logic and notes.
    """
    energy = found.energy_pj
    area = found.area_um2
    parts = ", ".join(
        _share(name, getattr(energy, key), energy.total) for key, name in _OF_ENERGY.items()
    )
    yield "energy (estimate)", f"{energy.total / MICROJOULE:,.1f} µJ by {found.table}: {parts}"
    parts = ", ".join(
        _share(name, getattr(area, key), area.total) for key, name in _OF_AREA.items()
    )
    yield "area (estimate)", f"{area.total / SQUARE_MILLIMETRE:.3f} mm² by {found.table}: {parts}"
    if (logic := found.logic) is not None:
        millimetres = logic.square_micrometres / SQUARE_MILLIMETRE
        said = f"{logic.gates:,} gate equivalents of {logic.machine}; no memories in it"
        yield "logic (measured)", f"{millimetres:.3f} mm² by {found.table}: {said}"
    for note in found.notes:
        yield "", note


def _share(name: str, value: float, total: float) -> str:
    return f"{name} {value / total:.1%}" if total else f"{name} 0"
