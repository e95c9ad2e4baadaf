"""``dla.load``: any file that ``dla`` writes or reads, as the object that it contains."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from byoc.options import load_pins
from byoc.package.package import load_package
from byoc.tuning.log import read_log
from dla_sim.presets import load_preset
from dla_sim.systems.spec import read_system
from experiments.compare.sources import load_snapshot
from experiments.cost.table import load_table
from experiments.golden.store import INDEX, open_corpus
from experiments.report.store import read_saved, run_report, schema_of, validate_report
from experiments.sweep.results import load as load_results
from experiments.sweep.spec import load_spec
from experiments.systems.report import system_report
from experiments.systems.split import SplitReport
from isa.errors import InputError
from isa.program_file import load as load_program
from isa.reading import check_file, first_bytes, read_bytes, read_npz, toml_of

MAXIMUM_BYTES = 1 << 20
MAXIMUM_TRACE_BYTES = 1 << 28
_SQLITE = b"SQLite format 3"
_ZIP = b"PK\x03\x04"
_SPLIT = "dla-split/1"
_TOML: Mapping[str, Callable[[Path], Any]] = {
    "accelerator": read_system,
    "networks": load_spec,
    "layers": load_pins,
    "groups": load_pins,
    "residents": load_pins,
    "energy": lambda path: load_table(str(path)),
    "arch": lambda path: load_preset(str(path)),
    "timing": lambda path: load_preset(str(path)),
}
"""Readers of a TOML file by a key that only files of one kind have."""
_ENDINGS: Mapping[str, Callable[[Path], Any]] = {
    ".prog": load_program,
    ".pftrace": lambda path: _load_trace(path),
    ".jsonl": read_log,
    ".npz": lambda path: read_npz(path, str(path)),
    ".dla": lambda path: load_package(path),
}


def load(path: str | Path, cost: str | None = None) -> Any:
    """Load a file that ``dla`` writes or reads.

    The type of the result depends on the file:

    - results of a sweep (``.sqlite``): a DataFrame, one row a point; ``cost`` is the name or file
      of a cost table and adds estimates of energy and area;
    - reports (``.json``): a ``RunReport``, ``SystemReport`` or ``SplitReport``;
    - timelines (``.pftrace``): a message ``Trace`` of the package ``perfetto``;
    - ``.dla``: a ``Package``; ``.prog``: a program; ``.npz``: arrays by name;
    - tuning logs (``.jsonl``), a folder of golden cases, a snapshot of ``dla golden snapshot``;
    - TOML files: a machine (``Preset``), system, sweep, schedule (pins) or cost table.

    Raises InputError for any other file, and for ``cost`` with a file that is not a sweep's.
    """
    place = Path(path)
    if (place / INDEX).is_file():
        return open_corpus(place)
    check_file(place)
    if first_bytes(place, len(_SQLITE)) == _SQLITE or place.suffix == ".sqlite":
        return load_results(place, cost)
    if cost is not None:
        raise InputError(f"{place}: not results of a sweep; leave --cost out")
    if place.suffix in _ENDINGS:
        return _ENDINGS[place.suffix](place)
    if place.suffix == ".toml":
        return _load_toml(place)
    if first_bytes(place, len(_ZIP)) == _ZIP:
        return load_snapshot(place)
    return _load_json(place)


def _load_trace(place: Path) -> Any:
    content = read_bytes(place, MAXIMUM_TRACE_BYTES, "a timeline")
    try:
        return Trace.FromString(content)
    except Exception as error:  # protobuf's DecodeError has no type information to catch it by
        raise InputError(f"{place}: no timeline, or a damaged one; write it again") from error


def _load_toml(place: Path) -> Any:
    content = toml_of(read_bytes(place, MAXIMUM_BYTES, "a TOML file"), str(place))
    reader = next((_TOML[key] for key in _TOML if key in content), None)
    if reader is None:
        raise InputError(f"{place}: no machine, system, sweep, schedule or cost table")
    return reader(place)


def _load_json(place: Path) -> Any:
    content = read_saved(place)
    schema = schema_of(content) or ""
    if schema == _SPLIT:
        return validate_report(content, place, SplitReport, _SPLIT, "split report", "dla split")
    reader = system_report if str(schema).startswith("dla-system") else run_report
    return reader(content, place)
