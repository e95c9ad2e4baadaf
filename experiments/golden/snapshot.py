"""A snapshot: what a network did on one machine - per layer its values, cycles, instructions and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from byoc.options import PROGRAM_OPTIONS, CompileOptions
from dla_sim.presets import Preset
from experiments.running import Progress
from experiments.running.network import Network, network_feeds
from experiments.running.workflow import Inference, infer
from experiments.version import tool_version

if TYPE_CHECKING:
    from byoc.package.package import Package

FIGURES = ("cycles", "instructions", "dram_read_bytes", "dram_write_bytes", "macs")
"""What is known of a layer and of the whole beside values."""


@dataclass(frozen=True, eq=False)
class LayerSnapshot:
    """One layer: ``figures`` by name (those of :data:`FIGURES` that are known) and its output tensors by name.

    ``values`` is None where the source of the snapshot does not hold them.
    """

    name: str
    figures: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A network or a corpus on a machine. ``conditions`` say what was run: equal texts mean equal conditions."""

    title: str
    conditions: Mapping[str, str]
    layers: tuple[LayerSnapshot, ...]
    totals: Mapping[str, int]


def take_snapshot(
    network: Network, hardware: Preset, options: CompileOptions, title: str, progress: Progress, *, seed: int = 0
) -> Snapshot:
    """Run ``network`` on its input and keep everything.

    Cycles, instructions and bytes are those of the network as it is compiled. Values of layers whose results never
    leave the scratchpad are those of a second compilation in which every layer's result is an output of the network.
    """
    feeds = network_feeds(network, None, seed)
    done = infer(network, hardware, feeds, options, progress=progress)
    progress("running it again with every layer's result as an output")
    exposed = infer(replace(network, package=_exposed(network.package)), hardware, feeds, options)
    values = {**exposed.result.values, **done.result.values}
    figures = _figures(done)
    layers = []
    for node in network.package.graph.nodes:
        own = {name: values[name] for name in node.outputs if name in values}
        layers.append(LayerSnapshot(node.name, figures.pop(node.name, Counter()), own))
    layers += [LayerSnapshot(name, rest) for name, rest in figures.items()]
    totals = {name: sum(layer.figures.get(name, 0) for layer in layers) for name in FIGURES}
    totals["instructions"] += len(done.result.traces)  # the OP_END of each region belongs to no layer
    return Snapshot(title, _conditions(network, hardware, options), tuple(layers), totals)


def _exposed(package: Package) -> Package:
    """The package with the result of every node as an output of its graph."""
    graph = package.graph
    made = (name for node in graph.nodes for name in node.outputs)
    return replace(package, graph=replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *made)))))


def _figures(done: Inference) -> dict[str, Counter[str]]:
    """Figures by the name of the graph's node; what belongs to no node by the layer's own name."""
    nodes = {node.onnx_nodes: node.name for node in done.compiled.graph.nodes}
    figures: dict[str, Counter[str]] = {}
    for trace in done.result.traces.values():
        names = {layer.name: nodes.get(layer.onnx_nodes, layer.name) for layer in trace.layers}
        for layer in trace.layers:
            row = figures.setdefault(names[layer.name], Counter())
            for name in FIGURES:
                row[name] += getattr(layer, name, 0)
        for source in trace.sources:
            name = source.layer if source is not None else ""
            figures[names[name]]["instructions"] += 1
    return figures


def _conditions(network: Network, hardware: Preset, options: CompileOptions) -> dict[str, str]:
    conditions = {"model": network.name, "package": network.package.digest[:16], "version": tool_version()}
    conditions |= {f"arch.{name}": str(value) for name, value in _flat(hardware.arch.model_dump()).items()}
    conditions |= {f"timing.{name}": str(value) for name, value in hardware.timing.model_dump().items()}
    return conditions | {option.word: str(getattr(options, option.name)) for option in PROGRAM_OPTIONS}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    pe = values["pe"]
    return {**{k: v for k, v in values.items() if k != "pe"}, **{f"pe.{axis}": size for axis, size in pe.items()}}
