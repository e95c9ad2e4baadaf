"""Compiled networks and advice in the user's cache.

They depend on a network, a machine, options and the code of the project, and not on the data of a
run. The cache has none for networks in memory and for machines with instructions of other packages.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from byoc.compiled import (
    CompiledNetwork,
    CompileReport,
    Demand,
    HostPart,
    Partition,
    Placement,
    Region,
)
from byoc.options import CompileOptions, from_json, to_json
from byoc.package.interface import connect
from byoc.package.package import Package
from dla_sim.presets import Preset
from experiments.running.given import Compiling
from experiments.running.package_cache import key_of, users_cache
from isa import program_file
from isa.errors import InputError
from isa.variants import VARIANTS

if TYPE_CHECKING:
    from byoc.operators.layer import Shortage

Answer = TypeVar("Answer")
_MAGIC = b"DLAANSW\n"
_COMPILER = ("isa", "byoc", "dla_sim", "experiments/running")
"""Code that compiled networks follow from; dla_sim computes the rates of buses from a Timing."""
_ADVISOR = (
    *_COMPILER,
    "experiments/advise",
    "experiments/cost",
    "experiments/report",
    "experiments/figure.py",
)
"""Code that advice follows from."""


def is_cacheable(wanted: Compiling) -> bool:
    """Return whether a request allows the cache and names a network, which is not in memory."""
    return wanted.cache and isinstance(wanted.model, str | Path)


def find_compiled(
    package: Package,
    hardware: Preset,
    options: CompileOptions,
    make: Callable[[], CompiledNetwork],
) -> CompiledNetwork:
    """Return the network of ``package`` compiled for a machine, from the cache or from ``make``.

    The regions of a network from the cache have no operations, which only the compiler needs.
    """
    return _recall(
        _find_key("compiled", package, hardware, options, _COMPILER),
        make,
        _encode,
        lambda content: _decode(content, package, hardware, options),
    )


def find_advice(
    package: Package,
    hardware: Preset,
    options: CompileOptions,
    run: str,
    make: Callable[[], list[tuple[float, str]]],
) -> list[tuple[float, str]]:
    """Return savings and commands of a run's advice, from the cache or from ``make``.

    ``run`` is the command of the run with its cycles, from which the advice follows as well.
    """
    return _recall(
        _find_key(run, package, hardware, options, _ADVISOR),
        make,
        lambda found: [_MAGIC, json.dumps(found).encode()],
        lambda content: [(saves, command) for saves, command in json.loads(content[len(_MAGIC) :])],
    )


def _find_key(
    kind: str,
    package: Package,
    hardware: Preset,
    options: CompileOptions,
    sources: tuple[str, ...],
) -> str | None:
    """Return the cache key of an answer, or None if it must not be cached."""
    if hardware.arch.isa not in VARIANTS:
        return None
    facts = {
        "kind": kind,
        "package": package.digest,
        "arch": hardware.arch.model_dump(),
        "timing": hardware.timing.model_dump(),
        "memory": hardware.memory_mode,
        "options": asdict(options),
    }
    return key_of(facts, sources)


def _recall(
    key: str | None,
    make: Callable[[], Answer],
    encode: Callable[[Answer], Sequence[bytes | memoryview]],
    decode: Callable[[bytes], Answer],
) -> Answer:
    cache = users_cache()
    if cache is None or key is None:
        return make()
    name = f"{key}.answer"
    content = cache.read(name)
    if content is not None:
        with contextlib.suppress(InputError):  # a program file holds at most 2 GiB of memory
            return decode(content)
    answer = make()
    cache.write(name, encode(answer))
    return answer


def _encode(network: CompiledNetwork) -> list[bytes | memoryview]:
    """Return a compiled network, without its package, as JSON and program files, in parts."""
    positions = {id(node): number for number, node in enumerate(network.graph.nodes)}
    programs = {index: list(program_file.to_parts(one)) for index, one in network.programs.items()}
    document = {
        "parts": [
            {
                "nodes": [positions[id(node)] for node in part.nodes],
                "inputs": part.inputs,
                "outputs": part.outputs,
                "region": None
                if isinstance(part, HostPart)
                else (part.index, part.name, part.guards),
            }
            for part in network.partition.parts
        ],
        "placement": [asdict(one) for one in network.partition.placement],
        "shortages": {name: asdict(one) for name, one in network.partition.shortages.items()},
        "reports": [
            asdict(one) | {"choices": to_json(one.choices)} for one in network.reports.values()
        ],
        "programs": [(index, sum(map(len, parts))) for index, parts in programs.items()],
    }
    head = json.dumps(document, default=int).encode()
    return [_MAGIC, len(head).to_bytes(8, "little"), head, *chain(*programs.values())]


def _decode(
    content: bytes, package: Package, hardware: Preset, options: CompileOptions
) -> CompiledNetwork:
    """Return the compiled network that :func:`_encode` wrote."""
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    document = json.loads(content[start:end])
    interface = connect(package, options)
    nodes = interface.graph.nodes
    parts = list[Region | HostPart]()
    for one in document["parts"]:
        covered = tuple(nodes[number] for number in one["nodes"])
        ends = tuple(one["inputs"]), tuple(one["outputs"])
        if one["region"] is None:
            parts.append(HostPart(covered, *ends))
        else:
            index, name, guards = one["region"]
            parts.append(Region(index, name, covered, *ends, (), tuple(map(tuple, guards))))
    placement = tuple(
        Placement(**{**one, "onnx_nodes": tuple(one["onnx_nodes"])})
        for one in document["placement"]
    )
    shortages = {name: _read_shortage(one) for name, one in document["shortages"].items()}
    programs = {}
    for index, size in document["programs"]:
        programs[index] = program_file.from_bytes(content[end : end + size], "the cache")
        end += size
    reports = dict(zip(programs, map(_read_report, document["reports"]), strict=True))
    partition = Partition(interface.graph, tuple(parts), placement, shortages)
    return CompiledNetwork(package, interface, hardware.arch, options, partition, programs, reports)


def _read_shortage(one: Mapping[str, Any]) -> Shortage:
    from byoc.operators.layer import Shortage  # imported lazily: most networks have no shortage

    return Shortage(tuple(map(tuple, one["buffers"])), one["capacity"])


def _read_report(one: Mapping[str, Any]) -> CompileReport:
    choices = from_json(one["choices"], "the cache")
    return CompileReport(**{**one, "choices": choices, "demand": Demand(**one["demand"])})
