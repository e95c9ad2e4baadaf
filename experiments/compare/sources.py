"""Sources of snapshots: a network's run, a snapshot file, or a run report.

A text describes the machine of the run. A snapshot file is a zip of ``snapshot.json`` and one array
per tensor; later versions can compare with it.
"""

import json
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from byoc.options import OPTIONS, PROGRAM_OPTIONS, CompileOptions
from byoc.package.package import Package
from dla_sim.presets import DEFAULT_PRESET, Preset, load_hardware
from experiments.compare.comparison import FIGURES, MILLISECONDS, LayerSnapshot, Snapshot
from experiments.figure import SHARE, values_of
from experiments.report.schema import SEPARATE_PART, Layer, RunReport
from experiments.report.store import load_report, npy_bytes
from experiments.running.inference import Inference, infer
from experiments.running.network import Network, load_network, network_feeds
from experiments.version import tool_version
from isa.arch import flat
from isa.errors import InputError
from isa.files import archive_bytes, write_atomically
from isa.progress import Progress
from isa.reading import array_of, file_fault, json_of, open_zip, zip_member

_OPTIONS = ",".join(f"{option.word}={'|'.join(option.texts)}" for option in OPTIONS)
_FORM = f"write it as preset=NAME,isa=v1,memory-mode=flash,{_OPTIONS},KEY=VALUE"


def snapshot_of(side: str, model: str | None, progress: Progress) -> Snapshot:
    """Return the snapshot of results that the command-line text ``side`` names.

    If it describes a machine, run ``model`` on that machine.

    Raises InputError if ``side`` is not a snapshot, report or machine, or if it is a machine and
    there is no model.
    """
    path = Path(side)
    if path.is_file():
        return (
            load_snapshot(path)
            if zipfile.is_zipfile(path)
            else report_snapshot(load_report(path), str(path))
        )
    if "/" in side or ("=" not in side and path.suffix) or path.exists() or path.is_symlink():
        raise InputError(
            f"{side}: {file_fault(path)}; give a snapshot, a report, or a machine ({_FORM})"
        )
    if "=" not in side and side != "default":
        raise InputError(f"'{side}' is no file and no machine; {_FORM}, or 'default'")
    if model is None:
        raise InputError(f"'{side}' is a machine; give its model with --model")
    return machine_snapshot(side, model, progress)


def machine_snapshot(words: str, model: str, progress: Progress) -> Snapshot:
    """Run ``model`` on the machine that ``words`` describe, and return the snapshot.

    ``default`` is the default machine and compiler.
    """
    given = (
        dict(part.partition("=")[::2] for part in words.split(",")) if words != "default" else {}
    )
    preset = given.pop("preset", DEFAULT_PRESET)
    isa = given.pop("isa", None)
    memory_mode = given.pop("memory-mode", None)
    options = _options(words, given)
    hardware = load_hardware(
        preset, [f"{key}={value}" for key, value in given.items()], isa, memory_mode
    )
    progress(f"reading {model}")
    return take_snapshot(load_network(model), hardware, options, words, progress)


def take_snapshot(
    network: Network,
    hardware: Preset,
    options: CompileOptions,
    title: str,
    progress: Progress,
    *,
    seed: int = 0,
) -> Snapshot:
    """Run ``network`` on its input and record the figures and values of all layers.

    Cycles, instructions and bytes are those of the network as it is compiled. For layers whose
    results never leave the scratchpad, the values come from a second compilation, in which every
    layer's result is an output of the network.
    """
    feeds = network_feeds(network, None, seed)
    done = infer(network, hardware, feeds, options, progress=progress)
    progress("running it again with every layer's result as an output")
    exposed = infer(
        replace(network, package=_expose_results(network.package)), hardware, feeds, options
    )
    values = {
        **exposed.result.values,
        **done.result.values,
        **done.compiled.interface.real(done.result.outputs),
    }
    figures, kinds = _figures(done)
    layers = []
    for node in network.package.graph.nodes:
        own = {name: values[name] for name in node.outputs if name in values}
        layers.append(
            LayerSnapshot(
                node.name, figures.pop(node.name, Counter()), own, kinds.get(node.name, ())
            )
        )
    layers += [LayerSnapshot(name, rest, kinds=kinds[name]) for name, rest in figures.items()]
    totals = {name: sum(layer.figures.get(name, 0) for layer in layers) for name in FIGURES}
    # the OP_END of each region belongs to no layer
    totals["instructions"] += len(done.result.traces)
    return Snapshot(title, _conditions(network, hardware, options), tuple(layers), totals)


def _expose_results(package: Package) -> Package:
    """Return the model package with the result of every node as a graph output."""
    graph = package.graph
    names = tuple(dict.fromkeys((*graph.outputs, *graph.producers)))
    return replace(package, graph=replace(graph, outputs=names))


def _figures(done: Inference) -> tuple[dict[str, Counter[str]], dict[str, tuple[str, ...]]]:
    """Return the figures and the operation kinds of each node of a run, by node name.

    A layer that belongs to no node appears under its own name.
    """
    nodes = {node.onnx_nodes: node.name for node in done.compiled.graph.nodes}
    figures: dict[str, Counter[str]] = {}
    kinds: dict[str, tuple[str, ...]] = {}
    for trace in done.result.traces.values():
        names = {layer.name: nodes.get(layer.onnx_nodes, layer.name) for layer in trace.layers}
        for layer in trace.layers:
            name = names[layer.name]
            row = figures.setdefault(name, Counter())
            kinds[name] = tuple(dict.fromkeys((*kinds.get(name, ()), layer.kind)))
            for figure in FIGURES:
                row[figure] += 0 if figure == "instructions" else getattr(layer, figure)
        for source in trace.sources:
            name = source.layer if source is not None else ""
            figures[names[name]]["instructions"] += 1
    return figures, kinds


def _conditions(network: Network, hardware: Preset, options: CompileOptions) -> dict[str, str]:
    conditions = {
        "model": network.name,
        "package": network.package.digest[:16],
        "version": tool_version(),
    }
    machine = {"arch": hardware.arch.model_dump(), "timing": hardware.timing.model_dump()}
    return (
        conditions
        | _texts(machine)
        | {option.word: str(getattr(options, option.name)) for option in PROGRAM_OPTIONS}
    )


def _options(words: str, given: dict[str, str]) -> CompileOptions:
    """Remove the compiler's options from a list of machine settings and return them."""
    chosen = [option for option in OPTIONS if option.word in given]
    try:
        return CompileOptions(
            **{option.name: option.parse(given.pop(option.word)) for option in chosen}
        )
    except InputError as error:
        raise InputError(f"'{words}': {error}") from error


def report_snapshot(report: RunReport, title: str) -> Snapshot:
    """Convert a run report to a snapshot without values; instructions are known only in total.

    A layer and its separate requantisation count as one layer, as in schedules that fuse them.
    """
    parts: dict[str, list[Layer]] = {}
    for layer in report.layers:
        parts.setdefault(layer.name.removesuffix(SEPARATE_PART), []).append(layer)
    hashes = {name: report.hashes[name] for name in ("package", "input") if name in report.hashes}
    conditions = {"model": report.model, "version": report.version}
    conditions |= {} if report.schedule is None else {"schedule": report.schedule}
    found = report.machine
    described = {} if found is None else {"machine": {"name": found.name, **found.parameters}}
    conditions |= {
        "seed": str(report.seed),
        **_texts({"arch": report.arch, "timing": report.timing, **described}),
        **hashes,
    }
    layers = tuple(_report_layer(name, layers) for name, layers in parts.items())
    return Snapshot(title, conditions, layers, _report_totals(report), report.kinds, report.command)


def _report_layer(name: str, parts: list[Layer]) -> LayerSnapshot:
    figures = {
        key: sum(values)
        for key in FIGURES
        if key != "instructions" and None not in (values := [getattr(part, key) for part in parts])
    }
    return LayerSnapshot(name, figures, kinds=tuple(dict.fromkeys(part.kind for part in parts)))


def _report_totals(report: RunReport) -> dict[str, float]:
    """Return every figure of the run, with fractions in per cent, and the time."""
    totals = {figure.name: value for figure, value in values_of(report.totals)}
    totals[MILLISECONDS] = 1e3 * report.totals.cycles / report.clock_hz
    for figure, value in values_of(report):
        known = figure.unit == SHARE and value is not None
        totals[figure.name] = 100 * value if known else value
    return totals


def _texts(machine: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in flat(machine).items()}


FORMAT = "dla-snapshot/1"
_REMEDY = "'dla golden snapshot' makes one"


def save_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot to a file; equal snapshots give equal bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    layers = []
    for layer in snapshot.layers:
        places = {}
        for name, value in (layer.values or {}).items():
            places[name] = f"values/{len(arrays)}.npy"
            arrays[places[name]] = value
        known = layer.values is not None
        layers.append(
            {
                "name": layer.name,
                "figures": dict(layer.figures),
                "values": places if known else None,
            }
        )
    document = {
        "format": FORMAT,
        "title": snapshot.title,
        "conditions": dict(snapshot.conditions),
        "totals": dict(snapshot.totals),
        "layers": layers,
    }
    contents = {"snapshot.json": json.dumps(document, indent=1, ensure_ascii=False).encode()}
    contents |= {place: npy_bytes(value) for place, value in arrays.items()}
    write_atomically(path, archive_bytes(contents, zipfile.ZIP_DEFLATED))


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot.

    Raise InputError for a file that is no snapshot, is damaged, or has another format version.
    """
    try:
        wrong = f"{path}: not a snapshot of 'dla golden snapshot'"
        with open_zip(path, wrong) as archive:
            document = json_of(zip_member(archive, "snapshot.json", wrong), wrong, "a snapshot")
            found = document.get("format") if isinstance(document, dict) else None
            if found != FORMAT:
                raise InputError(
                    f"{path}: format {found!r}, this version reads {FORMAT!r}; take "
                    "the snapshot again"
                )
            layers = tuple(_layer(item, archive) for item in document["layers"])
            totals = {
                name: int(document["totals"][name])
                for name in FIGURES
                if name in document["totals"]
            }
            conditions = document["conditions"]
            if not isinstance(conditions, dict) or not all(
                isinstance(text, str) for text in conditions.values()
            ):
                raise InputError(f"{path}: its conditions are not a table of texts; {_REMEDY}")
            return Snapshot(str(document["title"]), conditions, layers, totals)
    except InputError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{path}: not a snapshot of 'dla golden snapshot' ({type(error).__name__})"
        ) from error


def _layer(item: dict[str, Any], archive: zipfile.ZipFile) -> LayerSnapshot:
    values = item["values"]
    if values is not None:
        source = f"layer {item['name']}"
        values = {
            name: array_of(zip_member(archive, place, source, _REMEDY), f"{source}, {place}")
            for name, place in values.items()
        }
    return LayerSnapshot(
        str(item["name"]), {name: int(value) for name, value in item["figures"].items()}, values
    )
