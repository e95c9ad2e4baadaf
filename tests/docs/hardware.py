"""Write contracts and ports of components to docs/hardware.md.

``python -m tests.docs.hardware`` updates them. Widths are those of ``balanced-64`` with
ISA v4. A signal that a component drives is an output, even if it is declared as an input.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from amaranth.hdl import Elaboratable, Fragment, Signal, UnusedElaboratable
from amaranth.lib import wiring

from dla_sim.presets import load_hardware
from dla_sim.rtl.building import Library
from dla_sim.rtl.bus import Arbiter, Slots
from dla_sim.rtl.control import REQUESTERS, CommandQueue, Control, TokenCounter, UnitControl
from dla_sim.rtl.dma import DmaUnit, Transfer
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.ex.engines import ENGINES, engines
from dla_sim.rtl.ex.mac.results import Mac
from dla_sim.rtl.ex.unit import ExUnit
from dla_sim.rtl.fetch import ChunkBuffer, Fetch
from dla_sim.rtl.parameters import Configuration, Limits, limits_of
from dla_sim.rtl.ports import CommandView, ReadPort, WritePort
from dla_sim.rtl.processor import Decoder, Processor
from isa.instruction import Unit

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/hardware.md"
MARK = re.compile(r"(<!-- tests\.docs\.hardware (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Wires = Iterator[tuple[str, Signal]]


def _limits() -> Limits:
    machine = load_hardware("balanced-64", isa="v4")
    return limits_of(machine.arch, machine.timing)


LIMITS = _limits()
CONFIGURATION = Configuration(LIMITS)
LD, EX = (CommandView(LIMITS.variant, unit) for unit in (Unit.LD, Unit.EX))
COMPONENTS: dict[str, Callable[[], Elaboratable]] = {
    "Control": lambda: Control(LIMITS, CONFIGURATION),
    "Fetch": lambda: Fetch(LIMITS, CONFIGURATION),
    "ChunkBuffer": lambda: ChunkBuffer(LIMITS),
    "Slots": lambda: Slots(LIMITS.bus_bytes, "slots"),
    "Decoder": lambda: Decoder(LIMITS),
    "Processor": lambda: Processor(LIMITS),
    "CommandQueue": lambda: CommandQueue(
        LIMITS, CONFIGURATION, Unit.LD, Processor(LIMITS).registers
    ),
    "TokenCounter": TokenCounter,
    "UnitControl": lambda: UnitControl(CONFIGURATION, Unit.LD, LD),
    "Arbiter": lambda: Arbiter(1 + len(REQUESTERS)),
    "DmaUnit": lambda: DmaUnit(LIMITS, CONFIGURATION, LD, Unit.LD),
    "Transfer": lambda: Transfer(LIMITS.bus_bytes, LIMITS.sram_bytes, LD, Unit.LD, "sync"),
    "ExUnit": lambda: ExUnit(LIMITS, CONFIGURATION, []),
}


def interface(
    component: Elaboratable, names: Container[str] | None = None
) -> tuple[list[str], list[str]]:
    """Inputs and outputs of a component, each with its bits unless that is one.

    Only those of ``names`` where given.
    """
    if isinstance(component, wiring.Component):
        members = component.signature.members.items()
        found = [
            (name, len(getattr(component, name)), member.flow is wiring.Out)
            for name, member in members
        ]
    else:
        driven = set(_driven(Fragment.get(component, None)))
        found = [(name, len(wire), id(wire) in driven) for name, wire in _wires(component)]
    if names is not None:
        found = [one for one in found if one[0] in names]
    texts = [
        (f"`{name}`" if bits == 1 else f"`{name}` {bits}", drives) for name, bits, drives in found
    ]
    return [text for text, drives in texts if not drives], [
        text for text, drives in texts if drives
    ]


def _wires(component: object) -> Wires:
    """Yield the public signals of a component that is no ``wiring.Component``.

    Each signal has one name. Signals in parts of the component count too.
    """
    seen: set[int] = set()
    for name, value in vars(component).items():
        if name.startswith("_"):
            continue
        if isinstance(value, Signal):
            several = [(name, value)]
        elif isinstance(value, dict):
            several = [(f"{name}[{getattr(key, 'name', key)}]", one) for key, one in value.items()]
        elif isinstance(value, list) and value and isinstance(value[0], Signal):
            several = [(f"{name}[0..{len(value) - 1}]", value[0])]
        else:
            continue
        for label, one in several:
            if isinstance(one, Signal) and id(one) not in seen:
                seen.add(id(one))
                yield label, one


def _driven(fragment: Fragment) -> Iterator[int]:
    for statements in fragment.statements.values():
        for statement in statements:
            yield from (id(wire) for wire in statement._lhs_signals())
    for part, *_ in fragment.subfragments:
        yield from _driven(part)


def contract(of: type) -> str:
    """The docstring of a component as Markdown."""
    text = re.sub(r":\w+:`([^`]*)`", r"`\1`", inspect.cleandoc(of.__doc__ or ""))
    parts = text.replace("``", "`").split("\n\n")
    return "\n\n".join(_signal_table(part) if part.startswith("- ") else part for part in parts)


def _signal_table(bullets: str) -> str:
    """The lines ``- `signal`: meaning.`` of a docstring as a table."""
    rows = ["| signal | meaning |", "|---|---|"]
    for line in bullets.removeprefix("- ").split("\n- "):
        names, meaning = " ".join(line.split()).rstrip(".").split(": ", 1)
        rows.append(f"| {names} | {meaning} |")
    return "\n".join(rows)


def section(name: str) -> str:
    """Contract and ports of the component of that name, or the table of engines."""
    if name == "engines":
        return f"\n{engine_table()}"
    if name == "Engine":
        return _described(Engine, _smallest_engine())
    component = COMPONENTS[name]()
    return _described(type(component), component)


def _smallest_engine() -> Engine:
    """One that drives all that engines drive."""
    limits = replace(LIMITS, ic=1, oc=1, lanes=1)
    return Mac(limits, Configuration(limits), EX, Library(convert=False))


def _described(of: type, component: Elaboratable) -> str:
    inputs, outputs = interface(
        component, {"advance", "last", "empty", "fault"} if of is Engine else None
    )
    return "\n".join(
        (
            contract(of), "",
            f"| ports of `{of.__name__}` | signals and their bits |", "|---|---|",
            f"| inputs | {', '.join(inputs)} |", f"| outputs | {', '.join(outputs)} |",
        )
    )  # fmt: skip


def engine_table() -> str:
    """Return a table with a row for each engine.

    Its columns are instructions, cycles from a step to its results, and ports as lanes x bytes.
    """
    rows = ["| engine | instructions | latency | reads | writes |", "|---|---|---|---|---|"]
    made = {
        type(engine): engine
        for engine in engines(LIMITS, CONFIGURATION, EX, Library(convert=False))
    }
    for kind in ENGINES:
        engine = made[kind]
        sides = (_ports(side) for side in (engine.read_ports, engine.write_ports))
        names = ", ".join(f"`{name}`" for name in kind.mnemonics)
        rows.append(f"| `{engine.name}` | {names} | {engine.latency} | {' | '.join(sides)} |")
    return "\n".join(rows)


def _ports(ports: Sequence[ReadPort | WritePort]) -> str:
    return ", ".join(f"`{port.name}` {port.lanes} x {port.width}" for port in ports)


def written(page: str) -> str:
    """Return ``page`` with every contract and every table updated."""
    return MARK.sub(lambda found: f"{found[1]}{section(found[2])}\n{found[3]}", page)


if __name__ == "__main__":
    # components are only made for their descriptions
    warnings.simplefilter("ignore", UnusedElaboratable)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
