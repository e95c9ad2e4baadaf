"""Sweep of described machines: a specification with ``machine`` and a table ``parameters``.

Every combination of network, machine and parameters is a point. The formulas give its figures in
this process, without workers. The rows have the form of a sweep of systems: axes and figures.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from byoc.package.package import Package
from dla_sim.presets import preset_names
from experiments.machines.description import MachineDescription
from experiments.machines.discovery import find_machine
from experiments.machines.evaluate import Evaluation, Evaluator
from experiments.machines.parameters import apply_parameters
from experiments.running.network import load
from experiments.sweep.axes import axis_values
from experiments.sweep.driver import Report, Tally
from experiments.sweep.spec import GIVEN_KEYS, Spec, find_problem, list_keywords, place_file
from experiments.sweep.store import Row, Store, canonical
from experiments.version import compiler_version
from isa.errors import InputError
from isa.progress import Progress
from isa.reading import toml_of, toml_text
from isa.several import Several

_KEYS = ("machine", "networks", "parameters", *GIVEN_KEYS)
_ROWS = 1000
"""Rows that are stored at a time."""


class _WrittenMachines(BaseModel):
    """Keys of a specification of described machines, without those of all networks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    machine: Annotated[list[str], Several()] = Field(min_length=1)
    networks: Annotated[list[str], Several()] = Field(min_length=1)
    parameters: dict[str, Any] = {}


WrittenMachineSweep = create_model("WrittenMachineSweep", __base__=_WrittenMachines, **GIVEN_KEYS)


@dataclass(frozen=True, eq=False)
class MachineSpec:
    """Checked specification of a sweep of described machines.

    ``networks`` supplies networks, files and source as in an ordinary sweep. ``axes`` has the
    values of ``machine`` and of every parameter that is given.
    """

    networks: Spec
    machines: Mapping[str, MachineDescription]
    axes: Mapping[str, tuple[Any, ...]]

    @property
    def source(self) -> str:
        """File of the specification, for the command that repeats the sweep."""
        return self.networks.source

    @property
    def points(self) -> int:
        """Number of points of the grid."""
        return len(self.networks.networks) * prod(map(len, self.axes.values()))


def is_of_machines(text: str, source: str) -> bool:
    """Return whether the text of a specification has described machines."""
    return "machine" in toml_of(text, source)


def parse_machines(text: str, folder: Path, source: str) -> MachineSpec:
    """Return the specification of a TOML text with the key ``machine``.

    Raises:
        InputError: a key, a machine or a value is not valid; the message begins with ``source``.
    """
    try:
        written = WrittenMachineSweep.model_validate(toml_of(text, source))
        found = [_find_described(name, folder) for name in dict.fromkeys(written.machine)]
        machines = {machine.name: machine for machine in found}
        axes = {key: axis_values(key, value, _accept) for key, value in written.parameters.items()}
        for machine in machines.values():
            for key, values in axes.items():
                for value in values:
                    apply_parameters(machine, {key: value})
    except ValidationError as error:
        raise InputError(f"{source}: {find_problem(error, _KEYS)}") from error
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    networks = Spec(
        tuple(dict.fromkeys(written.networks)), {}, {}, list_keywords(written, folder), (), {}, {},
        text, source, folder,
    )  # fmt: skip
    return MachineSpec(networks, machines, {"machine": tuple(machines), **axes})


def _find_described(name: str, folder: Path) -> MachineDescription:
    """Return a described machine; raise InputError for a preset, which has a key of its own."""
    ours = name in preset_names()
    found = None if ours else find_machine(place_file(name, folder, (".py",)))
    if found is None or found.kind == "preset":
        preset = name if found is None else found.preset
        raise InputError(f"machine: {name} is a preset; write presets = '{preset}' instead")
    return found


def _accept(key: str, value: Any) -> Any:
    """Return the value of a parameter; the description checks it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"{key} is {value!r}; it must be a number or a text")
    return value


def load_packages(spec: MachineSpec, stage: Progress) -> dict[str, Package]:
    """Import and quantise every network of a specification, once."""
    packages: dict[str, Package] = {}
    for name in spec.networks.networks:
        stage(f"importing {name}")
        packages[name] = load(spec.networks.network(name)).package
    return packages


def run_machines(
    spec: MachineSpec, packages: Mapping[str, Package], store: Store, report: Report
) -> Tally:
    """Give every point of a specification a row in a results file, and return the tally."""
    tally = Tally()
    points = _list_points(spec, packages)
    while some := dict(itertools.islice(points, _ROWS)):
        known = store.find_stored(list(some))
        tally.stored += len(known)
        tally.stored_ok += sum(status == "ok" for status in known.values())
        rows = [one.make_row(key) for key, one in some.items() if key not in known]
        for row in store.add(rows):
            tally.new[store.status_of(row)] += 1
        report(tally)
    return tally


@dataclass(frozen=True, eq=False)
class _MachinePoint:
    """Point of a sweep: a network's evaluator on a machine, and the values on the axes."""

    network: str
    machine: MachineDescription
    evaluator: Evaluator
    axes: Mapping[str, Any]

    def make_row(self, key: str) -> Row:
        """Return the row of the point, with its figures or with the error."""
        begin = (key, self.network, compiler_version())
        values = {name: value for name, value in self.axes.items() if name != "machine"}
        try:
            found = self.evaluator.evaluate(apply_parameters(self.machine, values))
        except InputError as error:
            return (*begin, "failed", str(error), canonical(self.axes), None)
        return (*begin, "ok", None, canonical(self.axes), canonical(_list_figures(found)))


def _list_figures(found: Evaluation) -> dict[str, Any]:
    """Return the figures of a point by column."""
    macs = sum(layer.work.macs for layer in found.layers if layer.work is not None)
    return {
        "cycles": found.cycles,
        "ms": found.milliseconds,
        "macs": macs,
        "host_nodes": len(found.refused),
        "host_estimated_cycles": found.host_cycles,
    }


def _list_points(
    spec: MachineSpec, packages: Mapping[str, Package]
) -> Iterator[tuple[str, _MachinePoint]]:
    """Yield key and point of the grid in order: networks, machines, parameters."""
    parameters = {key: values for key, values in spec.axes.items() if key != "machine"}
    for network, package in packages.items():
        for name, machine in spec.machines.items():
            evaluator = Evaluator(package.graph, package.annotations, machine)
            facts = package.digest, _sum_description(machine), compiler_version()
            for values in itertools.product(*parameters.values()):
                axes = {"machine": name, **dict(zip(parameters, values, strict=True))}
                whole = canonical({"axes": axes, "facts": facts})
                key = hashlib.sha256(whole.encode()).hexdigest()[:32]
                yield key, _MachinePoint(network, machine, evaluator, axes)


def _sum_description(machine: MachineDescription) -> str:
    """Return a hash of the file that declares a machine's parameters and formulas."""
    file = getattr(sys.modules.get(machine.parameters.__module__), "__file__", None)
    content = Path(file).read_bytes() if file else machine.name.encode()
    return hashlib.sha256(content).hexdigest()[:16]


def specification_text(spec: MachineSpec) -> str:
    """Return the specification as a manifest stores it, with the axes in the table ``sweep``."""
    written = {"networks": list(spec.networks.networks), "sweep": dict(spec.axes)}
    return toml_text(json.loads(json.dumps(written)), spec.networks.source)
