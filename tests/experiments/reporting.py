"""Helpers for tests of reports: small cached runs, and reports with any number of layers.

Layers may have any name.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from experiments.compare.comparison import RunComparison, compare
from experiments.compare.sources import report_snapshot
from experiments.report.schema import RunReport
from experiments.running.inference import run
from experiments.sweep.results import Sweep, load_sweep
from experiments.sweep.spec import parse_spec
from tests.experiments.command_line import save_tiny
from tests.experiments.sweeping import run_sweep

Value = TypeVar("Value")

GRID = """
networks = ["tiny.onnx"]
schedules = ["default", "seed"]
[arch]
pe.oc = [4, 8, 16]
sram_bytes = [512, "1 KiB", "2 KiB", "64 KiB"]
[timing]
bus_bytes = [4, 8]
"""
"""Points with and without room for the network."""


@cache
def folder() -> Path:
    """A folder with ``tiny.onnx`` for as long as the tests run."""
    path = Path(tempfile.mkdtemp(prefix="reports-"))
    atexit.register(shutil.rmtree, path)
    save_tiny(path, softmax=True)
    return path


@cache
def tiny_run(schedule: Literal["seed", "default"] = "default") -> RunReport:
    """A run with a convolution on the accelerator and a Hardmax that falls back.

    On ideal memory, where the schedule ``seed`` requantises in an operation of its own.
    """
    return run(folder() / "tiny.onnx", schedule=schedule, isa="v4").report


@cache
def grid_file() -> Path:
    """The results of :data:`GRID`."""
    path = folder() / "grid.sqlite"
    run_sweep(parse_spec(GRID, folder()), path, workers=1, command="dla sweep grid.toml")
    return path


@cache
def grid() -> Sweep:
    """The same, read."""
    return load_sweep(grid_file())


def with_layers(names: list[str]) -> RunReport:
    """The small run with its layer repeated under ``names``, the figures adding up."""
    content = tiny_run().model_dump(mode="json", by_alias=True)
    times = len(names)
    (layer,) = content["layers"]
    content["layers"] = [{**layer, "name": name} for name in names]
    for table in (
        content["totals"],
        content["kinds"],
        content["ex_cycles"],
        *content["units"].values(),
    ):
        for key in table:
            table[key] = (
                table[key] if key in ("utilization", "sram_peak_bytes") else table[key] * times
            )
    whole = content["end_to_end"]
    whole["cycles"] += (times - 1) * whole["dla_cycles"]
    whole["dla_cycles"] *= times
    for segment in whole["segments"]:
        segment["cycles"] *= times if segment["on"] == "dla" else 1
    content["occupancy"] = content["timeline"] = None
    return RunReport.model_validate(content)


SCRIPT = (
    "</script><script>document.documentElement.dataset.ran='yes'</script>"
    "<img src=none onerror=\"document.documentElement.dataset.ran='yes'\"><b>bold</b> \\\"'`$y$ "
    "{{a}} [/c] \x1b[31m"
)
"""What a script or an element would be if anything took it for one."""


def with_scripts(value: Value) -> Value:
    """Return ``value`` with :data:`SCRIPT` in place of every text in it, at any depth.

    The texts pass no check.
    """
    found: Any = value
    if isinstance(value, str):
        found = SCRIPT
    elif isinstance(value, BaseModel):
        kept = {"on", "schema_", "kind", "role"}
        found = value.model_copy(
            update={key: with_scripts(item) for key, item in value if key not in kept}
        )
    elif is_dataclass(value) and not isinstance(value, type):
        found = replace(
            value, **{item.name: with_scripts(getattr(value, item.name)) for item in fields(value)}
        )
    elif isinstance(value, Mapping):
        found = {key: with_scripts(item) for key, item in value.items()}
    elif isinstance(value, tuple | list):
        found = type(value)(map(with_scripts, value))
    return found


def compared(before: RunReport, after: RunReport) -> RunComparison:
    """Two runs side by side, called one and other."""
    return compare(report_snapshot(before, "one"), report_snapshot(after, "other"))


class Page(HTMLParser):
    """Parsed HTML: ``links`` are its references, ``ids`` its anchors, ``text`` the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found: dict[str, Any] = dict(attrs)
        self._within.append(tag)
        self.links += [found[name] for name in ("src", "href", "action") if name in found]
        self.ids += [found["id"]] if "id" in found else []

    def handle_endtag(self, tag: str) -> None:
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._within):
            self.text += data
