"""What the sides of ``dla golden diff`` can be: a machine in words, a snapshot, a run report, or a corpus."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from byoc.options import OPTIONS, CompileOptions
from dla_sim.presets import DEFAULT_PRESET
from experiments.golden.case import StoredCase
from experiments.golden.snapshot import LayerSnapshot, Snapshot, take_snapshot
from experiments.golden.snapshot_file import load_snapshot
from experiments.golden.store import INDEX, open_corpus
from experiments.report.store import load_report
from experiments.running import Progress
from experiments.running.hardware import load_hardware
from experiments.running.network import load_network
from isa.errors import InputError

_OPTIONS = ",".join(f"{option.word}={'|'.join(option.texts)}" for option in OPTIONS)
_FORM = f"write it as preset=NAME,isa=v1,{_OPTIONS},KEY=VALUE"


def snapshot_of(side: str, model: str | None, progress: Progress) -> Snapshot:
    """The snapshot that ``side`` names; ``model`` is what a machine in words runs.

    Raises InputError for a side that is nothing of all that, or a machine without a model.
    """
    path = Path(side)
    if (path / INDEX).is_file():
        return corpus_snapshot(path)
    if path.is_file():
        return load_snapshot(path) if zipfile.is_zipfile(path) else report_snapshot(path)
    if "=" not in side and side != "default":
        raise InputError(f"'{side}' is no file, no corpus and no machine; {_FORM}, or 'default'")
    if model is None:
        raise InputError(f"'{side}' is a machine; say with --model what it shall run")
    return machine_snapshot(side, model, progress)


def machine_snapshot(words: str, model: str, progress: Progress) -> Snapshot:
    """Run ``model`` on the machine that ``words`` describe; ``default`` is the default machine and compiler."""
    given = dict(part.partition("=")[::2] for part in words.split(",")) if words != "default" else {}
    preset, isa = given.pop("preset", DEFAULT_PRESET), given.pop("isa", None)
    options = _options(words, given)
    hardware = load_hardware(preset, [f"{key}={value}" for key, value in given.items()], isa)
    progress(f"reading {model}")
    return take_snapshot(load_network(model), hardware, options, words, progress)


def _options(words: str, given: dict[str, str]) -> CompileOptions:
    """The compiler's options among the settings of a machine, which lose them."""
    chosen = [option for option in OPTIONS if option.word in given]
    try:
        return CompileOptions(**{option.name: option.parse(given.pop(option.word)) for option in chosen})
    except InputError as error:
        raise InputError(f"'{words}': {error}") from error


def report_snapshot(path: Path) -> Snapshot:
    """A run report as a snapshot; it holds no values, and instructions only in total."""
    report = load_report(path)
    rows: dict[str, dict[str, int]] = {}
    for layer in report.layers:
        row = rows.setdefault(layer.name.partition(":")[0], {})
        for name in ("cycles", "dram_read_bytes", "dram_write_bytes", "macs"):
            row[name] = row.get(name, 0) + getattr(layer, name)
    totals = report.totals
    figures = {name: getattr(totals, name) for name in ("cycles", "instructions", "macs")}
    figures |= {name: getattr(totals, name) for name in ("dram_read_bytes", "dram_write_bytes")}
    conditions = {"model": report.model, "version": report.version, "schedule": report.schedule, **report.hashes}
    return Snapshot(str(path), conditions, tuple(LayerSnapshot(name, row) for name, row in rows.items()), figures)


def corpus_snapshot(folder: Path) -> Snapshot:
    """A corpus as a snapshot: a case takes the place of a layer, and what its commands write that of its values."""
    corpus = open_corpus(folder)
    layers = tuple(_case_layer(corpus.case(name)) for name in corpus.entries)
    totals = {name: sum(layer.figures.get(name, 0) for layer in layers) for name in layers[0].figures} if layers else {}
    return Snapshot(str(folder), {"corpus": corpus.digest}, layers, totals)


def _case_layer(case: StoredCase) -> LayerSnapshot:
    record = case.record
    names = ("instructions", "dram_read_bytes", "dram_write_bytes", "macs")
    figures = {"cycles": record.cycles.total, **{name: record.totals.get(name, 0) for name in names}}
    sums = [int(part, 16) for row in record.commands for part in (row.writes or "-").split(",") if part != "-"]
    return LayerSnapshot(case.name, figures, {"CRC-32 of what each command writes": np.array(sums, np.int64)})
