"""Parameters of a described machine from texts ``key=value``, with one-line errors."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from dla_sim.presets import Settings, quantity, setting_texts
from experiments.machines.description import (
    MachineDescription,
    MachineParameters,
    describe_invalid,
)
from isa.errors import InputError, suggest_name


def apply_parameters(machine: MachineDescription, settings: Settings) -> MachineParameters:
    """Return the parameters of a machine with settings such as ``clock_hz=100MHz``.

    The last one wins.

    Raises:
        InputError: a key is unknown, or its value is not allowed.
    """
    given: dict[str, Any] = {}
    known = machine.parameters.model_fields
    for setting in setting_texts(settings):
        key, separator, text = (part.strip() for part in setting.partition("="))
        if not separator:
            raise InputError(f"setting '{setting}' is not of the form key=value")
        if key not in known:
            raise InputError(
                f"unknown setting '{key}' of machine {machine.name}; {suggest_name(key, known)}"
                f"choose one of {', '.join(known)}"
            )
        given[key] = quantity(key, text)
    try:
        found = machine.parameters.model_validate(given)
    except ValidationError as error:
        setting, reason = describe_invalid(error)
        raise InputError(f"setting {setting} of machine {machine.name}: {reason}") from error
    clock = getattr(found, machine.clock)
    if not isinstance(clock, int) or clock < 1:
        raise machine.fault(f"{machine.clock} is {clock}; give an int of 1 Hz or more")
    return found
