"""``dla schema KIND``: JSON schema of a TOML file, for editors and for checks in other programs."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from experiments.literal import say
from isa.errors import InputError, suggest_name

Schema = dict[str, Any]
_QUANTITY = r"^\s*[0-9]+\s*[A-Za-z]*\s*$"
"""Pattern of a number with a unit, such as "64 KiB"."""


def _describe_machine() -> Schema:
    from dla_sim.presets import Preset

    found: Schema = _allow_units(Preset.model_json_schema())
    found.pop("required")  # the name is that of the file
    return found


def _allow_units(schema: Any) -> Any:
    """Return a schema in which numbers may be texts with a unit."""
    if isinstance(schema, list):
        return [_allow_units(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _allow_units(value) for key, value in schema.items()}
    if schema.get("type") != "integer":
        return changed
    return {"anyOf": [changed, {"type": "string", "pattern": _QUANTITY}]}


def _describe_sweep() -> Schema:
    from experiments.sweep.axes import ARCH_KEYS, TIMING_KEYS
    from experiments.sweep.spec import WrittenSpecification

    found = WrittenSpecification.model_json_schema()
    for table, keys in (("arch", (*ARCH_KEYS, "pe")), ("timing", TIMING_KEYS)):
        found["properties"][table]["propertyNames"] = {"enum": [*keys]}
    return found


def _describe_machine_sweep() -> Schema:
    from experiments.sweep.described import WrittenMachineSweep

    return WrittenMachineSweep.model_json_schema()


def _describe_system() -> Schema:
    from dla_sim.systems.spec import WrittenSystem

    return WrittenSystem.model_json_schema()


def _describe_schedule() -> Schema:
    from pydantic import TypeAdapter

    from byoc.options import GroupChoice, LayerChoice

    layer, group = (TypeAdapter(one).json_schema() for one in (LayerChoice, GroupChoice))
    del layer["properties"]["layer"], layer["required"]  # the name of the table
    for one in (layer, group):
        one["additionalProperties"] = False
    return {
        "title": "Schedule",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "layers": {"type": "object", "additionalProperties": layer},
            "groups": {"type": "array", "items": group},
            "residents": {"type": "array", "items": {"type": "string"}},
        },
    }


def _describe_costs() -> Schema:
    from experiments.cost.table import CostTable

    found = CostTable.model_json_schema()
    found["required"].remove("name")  # the name is that of the file
    return found


KINDS: Mapping[str, Callable[[], Schema]] = {
    "machine": _describe_machine,
    "sweep": _describe_sweep,
    "machine-sweep": _describe_machine_sweep,
    "system": _describe_system,
    "schedule": _describe_schedule,
    "cost": _describe_costs,
}
"""Functions that return the schema of a TOML file, by its kind."""
Kind = Annotated[str, typer.Argument(metavar="|".join(KINDS), help="Kind of the TOML file.")]


def command(kind: Kind) -> None:
    """Print the JSON schema of a TOML file.

    A schedule is a file for --pins, and a cost table one for --cost.
    """
    if kind not in KINDS:
        close = suggest_name(kind, KINDS)
        raise InputError(f"unknown kind '{kind}'; {close}choose one of {', '.join(KINDS)}")
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    for line in json.dumps(dialect | KINDS[kind](), indent=2).splitlines():
        say(line)
