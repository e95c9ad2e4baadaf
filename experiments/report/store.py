"""Run reports on disk: default path, atomic writing, and reading.

For an invalid file, reading fails with one clear line.
"""

import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from experiments.report.parts import Part
from experiments.report.schema import SCHEMA, RunReport
from isa.errors import InputError
from isa.files import archive_bytes, write_atomically
from isa.reading import json_of, read_bytes

DEFAULT_FOLDER = "runs"
MAXIMUM_BYTES = 1 << 28
Kind = TypeVar("Kind", bound=Part)


def default_path(report: RunReport, text: str) -> Path:
    """Return the default path of a run report, ``runs/<model>-<hash>.json``.

    The hash is the first 8 digits of the SHA-256 of the report's JSON ``text``.
    """
    model = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(report.model).stem or report.model)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Path(DEFAULT_FOLDER) / f"{model}-{digest}.json"


def page_path(report: Path, name: str) -> Path:
    """Return the default path of a page: ``<name>-report/<name>.html`` next to a saved report."""
    return report.with_name(f"{name}-report") / f"{name}.html"


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays as a ``.npz`` file; equal arrays give equal bytes, and every name is allowed."""
    write_atomically(
        path, archive_bytes({f"{name}.npy": npy_bytes(array) for name, array in arrays.items()})
    )


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Return an array as the content of a ``.npy`` file."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def load_report(path: str | Path) -> RunReport:
    """Read a run report from a file.

    Raise InputError if the file is missing or is not a valid report of this version.
    """
    return run_report(read_saved(Path(path)), Path(path))


def run_report(content: Any, path: Path) -> RunReport:
    """Return the content of the file ``path`` as a run report.

    Raise InputError if it is not one of this version.
    """
    return validate_report(content, path, RunReport, SCHEMA, "run report", "dla run")


def read_saved(path: Path) -> Any:
    """Return the content of a saved report of any schema.

    Raise InputError if the file is missing or not JSON.
    """
    remedy = f"'dla run MODEL --json {path}' makes a report"
    return json_of(
        read_bytes(path, MAXIMUM_BYTES, "a run report", remedy), str(path), "a run report", remedy
    )


def schema_of(content: Any) -> Any:
    """Return the schema that a saved report declares; None if it declares none."""
    return content.get("schema") if isinstance(content, dict) else None


def validate_report(
    content: Any, path: Path, kind: type[Kind], schema: str, what: str, command: str
) -> Kind:
    """Validate the content of the file ``path`` as a report of ``schema``.

    Raise InputError if it is not.

    ``command`` is the command that makes such a report; the error names it.
    """
    found = schema_of(content)
    if found != schema:
        raise InputError(
            f"{path}: not a {what} of schema {schema} (schema is {found!r}); run '{command}' again"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "report"
        raise InputError(
            f"{path}: damaged {what} ({where}: {first['msg']}); run '{command}' again"
        ) from error
