"""Descriptions of machines: built in, of installed packages, or in a Python file."""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from dla_sim.presets import preset_names
from experiments.machines.description import MachineDescription
from isa.errors import InputError, PluginError, suggest_name
from isa.plugins import MACHINES, PROJECT, load_entry_points
from isa.reading import check_file

BUILT_IN: dict[str, str] = {
    "ethos-u55-256": "experiments.machines.ethos_u55",
    "ethos-u85-256": "experiments.machines.ethos_u85",
    "max78000": "experiments.machines.max78000",
    "max78002": "experiments.machines.max78002",
    "vta": "experiments.machines.vta",
}
"""Modules of the project's descriptions by name; each assigns one description to ``MACHINE``."""


def list_machines() -> dict[str, MachineDescription]:
    """Return all machine descriptions by name: built-in ones first, then installed ones.

    Raises:
        InputError: an installed description cannot be loaded, or two machines have one name.
    """
    found = {name: _load_built_in(name) for name in BUILT_IN}
    owners = dict.fromkeys((*preset_names(), *BUILT_IN), PROJECT)
    for owner, machine in load_entry_points(MACHINES, MachineDescription, "a MachineDescription"):
        if machine.name in owners:
            raise PluginError(
                f"{owner}: machine '{machine.name}' has the name of a machine of "
                f"{owners[machine.name]}; rename it or uninstall one of the two"
            )
        owners[machine.name] = owner
        found[machine.name] = machine
    return found


def find_machine(name_or_path: str) -> MachineDescription:
    """Return the description with a name, or of a Python file.

    A text that ends in ``.py`` is a file.

    Raises:
        InputError: the name is unknown, or the file does not describe one machine.
    """
    if name_or_path.endswith(".py"):
        return _load_file(Path(name_or_path))
    if name_or_path in BUILT_IN:
        return _load_built_in(name_or_path)
    machines = list_machines()
    if name_or_path not in machines:
        known = [*dict.fromkeys((*machines, *preset_names()))]
        raise InputError(
            f"unknown machine '{name_or_path}'; {suggest_name(name_or_path, known)}"
            f"choose one of {', '.join(known)}, or a .py file"
        )
    return machines[name_or_path]


def is_described(name_or_path: str) -> bool:
    """Return whether a text is a Python file, or the name of a described machine."""
    if name_or_path in preset_names() or name_or_path.endswith(".toml"):
        return False
    return name_or_path.endswith(".py") or name_or_path in list_machines()


def _load_built_in(name: str) -> MachineDescription:
    machine = importlib.import_module(BUILT_IN[name]).MACHINE
    assert isinstance(machine, MachineDescription)
    return machine


def _load_file(path: Path) -> MachineDescription:
    """Return the description that a Python file assigns to ``MACHINE``."""
    check_file(path, named=f"machine {path}")
    spec = spec_from_file_location(f"dla_machine_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic and dataclasses look annotations up there
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (Exception, SystemExit) as error:  # of the user's file: the message names the file
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"{path}: {type(error).__name__}: {reason}; correct the file (docs/machines.md)"
        ) from error
    machine = vars(module).get("MACHINE")
    if not isinstance(machine, MachineDescription):
        shown = "no MACHINE" if machine is None else f"a MACHINE of type {type(machine).__name__}"
        raise InputError(f"{path}: {shown}; assign one MachineDescription to MACHINE")
    if machine.name in (*BUILT_IN, *preset_names()):
        raise InputError(
            f"{path}: machine '{machine.name}' has the name of a machine of {PROJECT}; rename it"
        )
    return machine
