"""What the columns of a sweep's results are: axes or figures, their units, and in which direction they are better."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from byoc.options import PROGRAM_OPTIONS
from isa.errors import InputError

AXES = (
    "network", "preset", "isa", *(option.name for option in PROGRAM_OPTIONS), "pe.ic", "pe.oc", "pe.ow", "pe.count",
    "sram_bytes", "sram_banks", "alignment", "row_alignment", "numerics", "post_lanes", "bus_bytes", "burst_bytes",
    "dram_latency", "outstanding_bursts", "queue_depth", "fetch_bytes", "fetch_buffers", "dma_setup", "dma_drain",
    "ex_fill", "ex_drain", "sync_cycles", "sram_read_bytes", "sram_write_bytes", "bank_ports", "clock_hz",
)  # fmt: skip
"""Columns that a specification chooses; further ones come from it, too, where a row of any status has them."""
IGNORED = ("key", "package", "version", "status", "message")
"""Columns that are neither."""
SIZE = "pe_sram"
"""Processing elements times KiB of SRAM: the simplest measure of what a machine costs."""
MORE_IS_BETTER = ("utilization",)

_UNITS = {
    "pe.ic": "PEs", "pe.oc": "PEs", "pe.ow": "PEs", "pe.count": "PEs", SIZE: "PE·KiB", "macs": "MACs",
    "utilization": "0 to 1", "sram_banks": "banks", "post_lanes": "lanes", "bus_bytes": "bytes/cycle",
    "sram_read_bytes": "bytes/cycle", "sram_write_bytes": "bytes/cycle", "dram_latency": "cycles",
    "outstanding_bursts": "bursts", "queue_depth": "commands", "fetch_buffers": "chunks", "dma_setup": "cycles",
    "dma_drain": "cycles", "ex_fill": "cycles", "ex_drain": "cycles", "bank_ports": "ports", "clock_hz": "Hz",
    "alignment": "bytes", "row_alignment": "bytes", "host_nodes": "nodes", "instructions": "instructions",
    "regions": "regions",
}  # fmt: skip
_ENDINGS = {
    "_bytes": "bytes", "_cycles": "cycles", "cycles": "cycles", "_mm2": "mm²", "_um2": "µm²", "_pj": "pJ", "_nj": "nJ",
    "_uj": "µJ", "_mj": "mJ", "_joule": "J", "_seconds": "s", "_mw": "mW",
}  # fmt: skip
_CYCLES = ("kinds.", "ex_cycles.", "LD.", "EX.", "ST.")
_NAMES = {SIZE: "N · SRAM", "pe.count": "N", "utilization": "utilisation"}


def unit(name: str) -> str:
    """The unit of a column; empty for names, counts and whatever is not known."""
    if name in _UNITS:
        return _UNITS[name]
    if name.startswith(_CYCLES):
        return "cycles"
    return next((found for ending, found in _ENDINGS.items() if name.lower().endswith(ending)), "")


def title(name: str) -> str:
    """The title of an axis: what it is and its unit."""
    what, measure = _NAMES.get(name, name), unit(name)
    return f"{what} ({measure})" if measure and measure != what else what


def sign(name: str) -> int:
    """1 where less is better, -1 where more is."""
    return -1 if name in MORE_IS_BETTER else 1


def check_column(option: str, name: str, known: Iterable[str]) -> str:
    """``name``; raises InputError where no such column can be drawn, with the one that was probably meant."""
    names = list(known)
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise InputError(f"{option} {name}: no such column of numbers; {meant}choose one of {', '.join(names)}")
