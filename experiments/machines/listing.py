"""Tables about a described machine: parameters, units, memories and operations with limits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from experiments.machines.description import MachineDescription
from experiments.report.terminal import Printed, line, plain_table


def machine_content(machine: MachineDescription) -> dict[str, Any]:
    """Return a description as plain data."""
    return {
        "name": machine.name,
        "description": machine.summary,
        "kind": machine.kind,
        "validated": machine.validated,
        "preset": machine.preset or None,
        "parameters": machine.parameters().model_dump(mode="json"),
        "units": {unit.name: unit.text for unit in machine.units},
        "memories": [
            {"name": one.name, "capacity": one.capacity, "rate": one.rate, "unit": one.unit}
            for one in machine.memories
        ],
        "operations": [
            {
                "name": one.name,
                "patterns": [list(pattern) for pattern in one.patterns],
                "limits": {limit.name: limit.text for limit in one.limits},
                "source": one.source,
            }
            for one in machine.operations
        ],
        "layouts": list(machine.layouts),
        "quantisation": list(machine.quantisation),
        "sources": list(machine.sources),
    }


def machine_tables(machine: MachineDescription, place: str) -> Iterator[Printed]:
    """Yield the tables that describe a machine; ``place`` is its name or its file."""
    state = "validated" if machine.validated else "not validated"
    yield line(f"{machine.name}: {machine.summary}", style="bold")
    yield line(f"{machine.kind}, {state}; dla run MODEL --machine {shlex.quote(place)}")
    fields = machine.parameters.model_fields.items()
    yield plain_table(
        ("parameter (--set)", "left"),
        ("default", "right"),
        ("unit", "left"),
        ("meaning", "fold"),
        rows=[
            (name, str(field.default), _unit_of(field.json_schema_extra), field.description or "")
            for name, field in fields
        ],
    )
    yield plain_table(
        ("unit", "left"), ("size", "fold"), rows=[(unit.name, unit.text) for unit in machine.units]
    )
    yield plain_table(
        ("memory", "left"),
        ("bytes", "right"),
        ("bytes/cycle", "right"),
        ("moved by", "left"),
        rows=[
            (one.name, _value(machine, one.capacity), _value(machine, one.rate), one.unit)
            for one in machine.memories
        ],
    )
    yield plain_table(
        ("operation", "left"),
        ("operators", "fold"),
        ("limits", "fold"),
        ("source", "fold"),
        rows=[
            (
                one.name,
                "; ".join(", ".join(pattern) for pattern in one.patterns),
                "; ".join(limit.text for limit in one.limits),
                one.source,
            )
            for one in machine.operations
        ],
    )
    for text in (*machine.layouts, *machine.quantisation):
        yield line(text)
    for source in machine.sources:
        yield line(f"source: {source}")


def _unit_of(extra: Any) -> str:
    return str(extra["unit"]) if isinstance(extra, dict) else ""


def _value(machine: MachineDescription, value: float | str | None) -> str:
    """Format the capacity or rate of a memory; a text is the name of the parameter with it."""
    if isinstance(value, str):
        value = machine.parameters.model_fields[value].default
    return "" if value is None else f"{value:,}"
