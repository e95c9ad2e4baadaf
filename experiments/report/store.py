"""Run reports on disk: where they go, written whole or not at all, and read back with one clear line for bad files."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from experiments.report.schema import SCHEMA, Part, RunReport, report_json
from isa.errors import InputError
from isa.files import archive_bytes, write_atomically
from isa.reading import json_of, read_bytes

DEFAULT_FOLDER = "runs"
MAXIMUM_BYTES = 1 << 28
Kind = TypeVar("Kind", bound=Part)


def default_path(report: RunReport) -> Path:
    """``runs/<model>-<hash>.json`` in the current folder, hash: first 8 digits of the SHA-256 of the report."""
    model = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(report.model).stem or report.model)
    digest = hashlib.sha256(report_json(report).encode()).hexdigest()[:8]
    return Path(DEFAULT_FOLDER) / f"{model}-{digest}.json"


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays as a ``.npz`` file; equal arrays give equal bytes, and every name is allowed."""
    write_atomically(path, archive_bytes({f"{name}.npy": npy_bytes(array) for name, array in arrays.items()}))


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Return the content of a ``.npy`` file."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def load_report(path: str | Path) -> RunReport:
    """Read a report; raises InputError when the file is missing or no valid report of this version."""
    return run_report(saved_content(Path(path)), Path(path))


def run_report(content: Any, path: Path) -> RunReport:
    """What the file ``path`` holds as a report of a run; raises InputError where it is none of this version."""
    return as_report(content, path, RunReport, SCHEMA, "run report", "dla run")


def saved_content(path: Path) -> Any:
    """What a saved report holds, of whatever schema; raises InputError when the file is missing or no JSON."""
    remedy = f"'dla run MODEL --json {path}' makes a report"
    return json_of(read_bytes(path, MAXIMUM_BYTES, "a run report", remedy), str(path), "a run report", remedy)


def schema_of(content: Any) -> Any:
    """The schema that saved content says it is of; None where it says nothing."""
    return content.get("schema") if isinstance(content, dict) else None


def as_report(content: Any, path: Path, kind: type[Kind], schema: str, what: str, command: str) -> Kind:
    """``content`` of the file ``path`` as a report of ``schema``, which ``command`` makes; raises InputError if not."""
    found = schema_of(content)
    if found != schema:
        raise InputError(f"{path}: not a {what} of schema {schema} (schema is {found!r}); run '{command}' again")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "report"
        raise InputError(f"{path}: damaged {what} ({where}: {first['msg']}); run '{command}' again") from error
