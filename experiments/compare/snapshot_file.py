"""Snapshots on disk: a zip of ``snapshot.json`` and one array a tensor, for versions to come to compare with."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.compare.comparison import FIGURES, LayerSnapshot, Snapshot
from isa.errors import InputError
from isa.files import write_atomically
from isa.reading import array_of, json_of, open_zip, zip_member

FORMAT = "dla-snapshot/1"
_REMEDY = "'dla golden snapshot' makes one"


def save_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot; equal ones give equal bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    layers = []
    for layer in snapshot.layers:
        places = {}
        for name, value in (layer.values or {}).items():
            places[name] = f"values/{len(arrays)}.npy"
            arrays[places[name]] = value
        known = layer.values is not None
        layers.append({"name": layer.name, "figures": dict(layer.figures), "values": places if known else None})
    document = {
        "format": FORMAT,
        "title": snapshot.title,
        "conditions": dict(snapshot.conditions),
        "totals": dict(snapshot.totals),
        "layers": layers,
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        _add(archive, "snapshot.json", json.dumps(document, indent=1, ensure_ascii=False).encode())
        for place, value in arrays.items():
            member = io.BytesIO()
            np.save(member, value, allow_pickle=False)
            _add(archive, place, member.getvalue())
    write_atomically(path, content.getvalue())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)


def load_snapshot(path: Path) -> Snapshot:
    """Read a snapshot; raises InputError for a file that is none, is damaged, or has another format version."""
    try:
        wrong = f"{path}: not a snapshot of 'dla golden snapshot'"
        with open_zip(path, wrong) as archive:
            document = json_of(zip_member(archive, "snapshot.json", wrong), wrong, "a snapshot")
            found = document.get("format") if isinstance(document, dict) else None
            if found != FORMAT:
                raise InputError(f"{path}: format {found!r}, this version reads {FORMAT!r}; take the snapshot again")
            layers = tuple(_layer(item, archive) for item in document["layers"])
            totals = {name: int(document["totals"][name]) for name in FIGURES if name in document["totals"]}
            conditions = document["conditions"]
            if not isinstance(conditions, dict) or not all(isinstance(text, str) for text in conditions.values()):
                raise InputError(f"{path}: its conditions are not texts by name; {_REMEDY}")
            return Snapshot(str(document["title"]), conditions, layers, totals)
    except InputError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: not a snapshot of 'dla golden snapshot' ({type(error).__name__})") from error


def _layer(item: dict[str, Any], archive: zipfile.ZipFile) -> LayerSnapshot:
    values = item["values"]
    if values is not None:
        source = f"layer {item['name']}"
        values = {
            name: array_of(zip_member(archive, place, source, _REMEDY), f"{source}, {place}")
            for name, place in values.items()
        }
    return LayerSnapshot(str(item["name"]), {name: int(value) for name, value in item["figures"].items()}, values)
