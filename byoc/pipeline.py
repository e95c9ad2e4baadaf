"""The compiler from end to end: ONNX model → package (portable) → programs for one machine (at load)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc.emission.report import CompileReport
from byoc.graph import Graph
from byoc.options import DEFAULTS, CompileOptions
from byoc.package.package import Package, build_package
from byoc.partition import Partition, partition
from byoc.region import compile_region, shortage
from byoc.target import target_of
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Program

if TYPE_CHECKING:
    from onnx import ModelProto

    from byoc.quantisation.calibrate import Feeds


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """A package compiled for one Arch: its partition, and a program and a compile report for each region by index."""

    package: Package
    arch: Arch
    options: CompileOptions
    partition: Partition
    programs: Mapping[int, Program]
    reports: Mapping[int, CompileReport]

    @property
    def graph(self) -> Graph:
        """The canonical graph of the package."""
        return self.package.graph


def import_model(
    model: ModelProto | str | Path,
    source: str | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    calibration: Iterable[Feeds] | None = None,
    seed: int = 0,
) -> Package:
    """Package of an ONNX model (or of the file that holds one): folded and, where it is float, quantised first.

    ``source`` is the name it goes by in reports: by default the file's, or that of the model's graph.
    ``shapes`` gives dynamic inputs their dimensions; ``calibration`` are the feeds of the quantiser, seeded
    standard-normal ones by default. Raises InputError for a model that cannot be imported.
    """
    from byoc.frontend.onnx_file import load_model
    from byoc.passes.onnx_prepare import prepare
    from byoc.quantisation.quantize import is_quantised, quantise

    if isinstance(model, str | Path):
        source, model = source or Path(model).stem, load_model(model)
    prepared = prepare(model, shapes)
    if not is_quantised(prepared):
        prepared = quantise(prepared, calibration, seed)
    return build_package(prepared, source or model.graph.name)


def partition_package(package: Package, arch: Arch, options: CompileOptions = DEFAULTS) -> Partition:
    """What of ``package`` runs where on a machine with ``arch``, without compiling it."""
    missing = partial(shortage, arch=arch, schedule=options.schedule, emulate_depthwise=options.emulate_depthwise)
    return partition(package.graph, target_of(arch, options), missing, package.annotations)


def compile(package: Package, arch: Arch, options: CompileOptions = DEFAULTS, **choices: Any) -> CompiledNetwork:
    """Programs for every region of ``package`` on a machine with ``arch``.

    ``choices`` replace fields of ``options``, as in ``compile(package, arch, schedule="seed")``. Raises InputError with
    ``options.strict`` when any node falls back to the CPU, naming the first and its reason.
    """
    options = replace(options, **choices)
    found = partition_package(package, arch, options)
    if options.strict:
        refuse_fallback(found)
    programs: dict[int, Program] = {}
    reports: dict[int, CompileReport] = {}
    for region in found.regions:
        programs[region.index], reports[region.index] = compile_region(
            region, package.graph.values, arch, options.schedule, options.emulate_depthwise
        )
    return CompiledNetwork(package, arch, options, found, programs, reports)


def refuse_fallback(found: Partition) -> None:
    """Raises InputError when a node other than the quantisation of a float input or output runs on the CPU."""
    edges = {"QuantizeLinear", "DequantizeLinear"}
    fallen = [place for place in found.placement if place.on == "cpu" and place.op_type not in edges]
    if fallen:
        first = fallen[0]
        raise InputError(
            f"--strict: {len(fallen)} of {len(found.placement)} nodes run on the CPU; "
            f"the first is {first.op_type} '{first.node}': {first.reason}"
        )
