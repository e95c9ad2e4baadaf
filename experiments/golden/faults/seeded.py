"""All seeded faults, from the TOML files beside this one."""

from __future__ import annotations

import tomllib
from importlib import resources

from experiments.golden.faults.fault import Fault
from isa.errors import InputError

FILES = ("encoding", "semantics", "numerics", "cycles", "kernels", "engine")


def seeded_faults() -> tuple[Fault, ...]:
    """The faults, file by file."""
    faults = []
    for name in FILES:
        file = resources.files(__package__).joinpath(f"{name}.toml")
        faults += [Fault(**item) for item in tomllib.loads(file.read_text(encoding="utf-8"))["fault"]]
    return tuple(faults)


def choose_faults(names: tuple[str, ...]) -> tuple[Fault, ...]:
    """The faults called ``names``, all without any; raises InputError for a name that does not exist."""
    faults = {fault.name: fault for fault in seeded_faults()}
    for name in names:
        if name not in faults:
            raise InputError(f"no fault is called '{name}'; choose from {', '.join(faults)}")
    return tuple(faults[name] for name in names) if names else tuple(faults.values())
