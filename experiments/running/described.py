"""A run on a machine that a description declares: cycles by formulas, values by the model.

The runtime of the model's format computes the values, because nothing simulates such a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from byoc.compiled import HostPart, Partition, Region
from byoc.compiler import refuse_fallback
from byoc.graph import Graph
from byoc.host.runtime import NetworkRun, Tensors
from byoc.host.sessions import PartSession, opener
from byoc.options import DEFAULTS
from byoc.package.interface import Interface, connect
from dla_sim.presets import DEFAULT_PRESET, preset_names
from experiments.machines.description import (
    Arithmetic,
    MachineDescription,
    MachineDescriptionError,
)
from experiments.machines.discovery import find_machine, is_described
from experiments.machines.evaluate import (
    Evaluation,
    Evaluator,
    call_description,
    partition_evaluated,
)
from experiments.machines.parameters import apply_parameters
from experiments.machines.report import assemble_described
from experiments.models import MODELS
from experiments.report.assemble import port_entries
from experiments.report.checks import Check, Suspicion
from experiments.running.check import (
    find_value_warnings,
    load_labelled_samples,
    measure_accuracy,
)
from experiments.running.declared import command_of, list_declared
from experiments.running.given import AnyMachine, RunRequest
from experiments.running.network import Network, load, network_batch
from experiments.running.result import Result
from isa.errors import InputError

NOT_SIMULATED = "values: integer model, not simulated; 0 elements compared"
OWN_ARITHMETIC = "values: the machine's own arithmetic, not simulated; 0 elements compared"
REFUSED = {
    "isa": "an instruction set",
    "memory_mode": "memory modes",
    "steps": "a place for state between inferences",
    "step_ms": "a place for state between inferences",
    "timeline": "commands",
    "sensitivity": "commands",
    "cost": "areas and energies",
    "engine": "programs",
}
"""Options that need our own machine, and what a described machine lacks for them."""
Request = TypeVar("Request", bound=AnyMachine)
PartOpener = Callable[[tuple[str, ...], tuple[str, ...]], PartSession]
"""Opens the part of the model between given inputs and outputs on the CPU."""


@dataclass(frozen=True, eq=False)
class DescribedNetwork:
    """A network on a described machine: its interface, its evaluation and its partition."""

    network: Network
    interface: Interface
    found: Evaluation
    partition: Partition


def settle_machine(wanted: Request) -> tuple[Request, MachineDescription | None]:
    """Return the request and the described machine that it names, or None for one of ours.

    A preset that ``--machine`` names becomes the request's preset.

    Raises:
        InputError: the machine is unknown, or an option does not apply to it.
    """
    name = wanted.machine
    if name is None:
        if is_described(str(wanted.preset)):
            raise InputError(
                f"--preset {wanted.preset}: not a preset but a described machine; "
                f"use --machine {wanted.preset}"
            )
        return wanted, None
    if str(wanted.preset) != DEFAULT_PRESET:
        raise InputError(
            f"--preset {wanted.preset} and --machine {name} both choose the machine; give one"
        )
    if name in preset_names() or name.endswith(".toml"):
        return replace(wanted, preset=name, machine=None), None
    machine = find_machine(name)
    if machine.kind == "preset":
        return replace(wanted, preset=machine.preset, machine=None), None
    for field, one in list_declared(wanted).items():
        if field in REFUSED and getattr(wanted, field) not in (None, False):
            raise InputError(
                f"{one.word.split()[0]} needs {REFUSED[field]}, which machine {machine.name} does "
                "not have; leave it out"
            )
    plain = replace(wanted.options, integer_io=DEFAULTS.integer_io, strict=DEFAULTS.strict)
    if plain != DEFAULTS:
        raise InputError(
            f"{' '.join(plain.words)} is for our compiler, which machine {machine.name} does not "
            "use; leave it out"
        )
    return wanted, machine


def evaluate_requested(wanted: AnyMachine, machine: MachineDescription) -> DescribedNetwork:
    """Load a network and evaluate it on a described machine with the request's settings."""
    parameters = apply_parameters(machine, wanted.settings)
    network = load(wanted, keep_float=getattr(wanted, "accuracy", None) is not None)
    interface = connect(network.package, wanted.options)
    found = Evaluator(interface.graph, interface.annotations, machine).evaluate(parameters)
    partition = partition_evaluated(interface.graph, found)
    if wanted.options.strict:
        refuse_fallback(partition)
    return DescribedNetwork(network, interface, found, partition)


def run_described(wanted: RunRequest, machine: MachineDescription) -> Result:
    """Return the report and the outputs of a run on a described machine."""
    done = evaluate_requested(wanted, machine)
    network = done.network
    batch = network_batch(network, wanted.inputs, wanted.seed, wanted.options)
    samples = None if wanted.accuracy is None else Path(wanted.accuracy)
    labelled = load_labelled_samples(network, samples)
    opened = cache(opener(network.package.model, done.interface.graph))
    computed = [compute_values(done, feeds, opened) for feeds in batch.feeds]
    runs = [run for run, _ in computed]
    warnings: dict[tuple[str, str], Suspicion] = {}
    for feeds, run in zip(batch.feeds, runs, strict=True):
        for one in find_value_warnings(network.package, done.interface, feeds, run):
            warnings.setdefault((one.kind, one.tensor), one)
    told = " ".join(dict.fromkeys(text for _, text in computed))
    own = (
        (lambda feeds: compute_values(done, feeds, opened)[0].outputs)
        if told == OWN_ARITHMETIC
        else None
    )
    counts = {"tensors": 0, "elements": 0, "mismatches": 0, "max_abs_diff": 0}
    builtin = MODELS.get(wanted.model) if isinstance(wanted.model, str) else None
    report = assemble_described(
        done.found,
        done.partition,
        network.package,
        wanted.options,
        batch.join_results(batch.feeds),
        {
            "seed": wanted.seed,
            "weights": builtin and ("trained" if builtin.trained else "random"),
            "command": command_of("run", wanted),
            "model": network.name,
            "interface": port_entries(done.interface),
            "check": Check(oracle=told, **counts),
            "accuracy": labelled
            and measure_accuracy(network, done.interface, own, labelled, wanted.progress),
            "warnings": tuple(warnings.values()),
        },
    )
    return Result(report, batch.join_results([run.outputs for run in runs]), network.package)


def compute_values(
    done: DescribedNetwork, feeds: Tensors, opened: PartOpener
) -> tuple[NetworkRun[None], str]:
    """Return the outputs of one inference, and the text of a report about their source.

    The machine's own arithmetic computes its regions. The integer model computes the nodes on the
    CPU, or all nodes if the machine runs none, or has no arithmetic that applies to the network.
    """
    graph, interface = done.interface.graph, done.interface
    given = dict(interface.arrange_arrays(interface.take_arrays(feeds)))
    told = NOT_SIMULATED
    if done.found.machine.arithmetic is not None and done.partition.regions:
        try:
            values = _compute_parts(done, given, done.found.machine.arithmetic, opened)
            return NetworkRun(interface.restore_arrays(values), values, {}), OWN_ARITHMETIC
        except MachineDescriptionError:
            raise
        except InputError as error:
            told = f"{NOT_SIMULATED}; the machine's own arithmetic does not apply: {error}"
    names = tuple(name for name in graph.outputs if graph.values[name].constant is None)
    values = {**given, **_take_constants(graph), **opened(graph.inputs, names).run(given)}
    return NetworkRun(interface.restore_arrays(values), values, {}), told


def _take_constants(graph: Graph) -> Tensors:
    """Return the outputs of a network that are constants."""
    known = {name: graph.values[name].constant for name in graph.outputs}
    return {name: constant for name, constant in known.items() if constant is not None}


def _compute_parts(
    done: DescribedNetwork,
    given: Tensors,
    compute: Arithmetic,
    opened: PartOpener,
) -> Tensors:
    """Return all tensors of an inference: regions by the machine's arithmetic, the rest by the CPU.

    Raises:
        InputError: the machine's arithmetic does not apply to a region.
        MachineDescriptionError: the machine's arithmetic fails, or a result is missing or wrong.
    """
    graph, machine = done.interface.graph, done.found.machine
    values = {**given, **_take_constants(graph)}
    for part in done.partition.parts:
        if isinstance(part, HostPart):
            values |= opened(part.inputs, part.outputs).run(values)
            continue
        found = call_description(machine, "arithmetic", _apply, compute, graph, part, values)
        if isinstance(found, InputError):
            raise found
        values |= found
    return values


def _apply(
    compute: Arithmetic, graph: Graph, part: Region, values: Tensors
) -> Tensors | InputError:
    """Return the results of a region's nodes, or the error of arithmetic that does not apply."""
    try:
        found = dict(compute(graph, part.nodes, values))
    except InputError as error:
        return error
    for name in part.outputs:
        value, array = graph.values[name], found[name]
        if (array.shape, str(array.dtype)) != (value.shape, value.dtype):
            raise ValueError(
                f"{name} is {array.dtype} {array.shape}, not {value.dtype} {value.shape}"
            )
    return found
