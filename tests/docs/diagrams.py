"""Draw the two diagrams of docs/figures from declarations: ``python -m tests.docs.diagrams``.

``machine.svg`` shows units, queues, token counters and bus ports with their keys of Arch and
Timing. ``compile-flow.svg`` shows the functions that a model passes through, and how many passes
and rewrite rules there are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from byoc.compiler import compile as compile_package
from byoc.emission.emit import derive_tokens, emit
from byoc.frontend.onnx.file import load_model
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.rewriting.prepare import LAWS, ORDER, prepare
from byoc.frontend.tflite.importer import READERS, import_tflite
from byoc.importing import import_model
from byoc.operators.registry import annotate
from byoc.operators.registry import get_built_in_families as families
from byoc.options import SCHEDULES
from byoc.package.package import build_package
from byoc.partitioning.partition import partition
from byoc.quantisation.quantize import quantise
from byoc.scheduling.default import schedule_default
from byoc.scheduling.fusing import fuse
from byoc.scheduling.lowering import lower
from byoc.scheduling.memplan import plan
from byoc.scheduling.tile_search import TileSearch
from dla_sim.device import Device
from dla_sim.engine.accounts import account
from dla_sim.engine.bus import PORTS
from dla_sim.engine.simulation import simulate
from dla_sim.engine.workload import TOKEN_QUEUES, UNIT_NAMES, Workload
from dla_sim.kernels.convolution import convolution
from dla_sim.prepared import prepare as decode
from dla_sim.timing import Timing
from experiments.report.assemble import assemble
from experiments.running.check import check_values
from isa.arch import Arch, PeArray
from isa.instruction import Unit
from isa.plugins import get_built_in_table

FIGURES = Path(__file__).parents[2] / "docs/figures"
INK = "#1b1b1b"
PALE = "#eaf2fb"
STORE = "#fff4d6"
FLOW = "#0b5394"
LINE = 18
LETTER = 7.5
CAPITAL = 8.7
"""Height of a line of text, and width of a letter of it, small or not, generously, in pixels."""

Point = tuple[float, float]


class Box(NamedTuple):
    """Place of an element, in pixels from the upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def at(self, across: float, down: float) -> Point:
        """The point at these shares of its width and height."""
        return self.x + across * self.width, self.y + down * self.height

    @property
    def bottom(self) -> float:
        """Vertical coordinate of the lower edge."""
        return self.y + self.height


def _wrapped(lines: Sequence[str], width: float) -> list[str]:
    room = width - 16
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, int(room / (CAPITAL if line.isupper() else LETTER)))
    ]


def _height(lines: Sequence[str], width: float) -> float:
    """That of a box with a heading and ``lines``."""
    return LINE * (len(_wrapped(lines, width)) + 1) + 12


class Drawing:
    """Drawing of boxes and arrows on a white ground, readable on pages of any colour.

    ``title`` and ``words`` describe it to readers who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str, words: str) -> None:
        self._size = width, height
        self._title = title
        self._words = words
        self._parts: list[str] = []

    def box(self, where: Box, heading: str, lines: Sequence[str] = (), fill: str = PALE) -> Box:
        """A box with a heading and lines of text; AssertionError where they do not fit."""
        assert max(where.x + where.width - self._size[0], where.bottom - self._size[1]) <= 0, (
            f"{heading}: outside"
        )
        wrapped = _wrapped(lines, where.width)
        assert len(heading) * CAPITAL <= where.width - 8, f"{heading}: too wide"
        assert _height(lines, where.width) <= where.height, (
            f"{heading}: {len(wrapped)} lines are too many"
        )
        x, y, width, height = where
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="6" fill="{fill}"/>'
        )
        self._text((x + 8, y + LINE + 2), heading, "heading")
        for number, line in enumerate(wrapped, start=2):
            self._text((x + 8, y + 2 + LINE * number), line)
        return where

    def arrow(self, *points: Point, both: bool = False) -> None:
        """A line through ``points`` with a head at the end, or at both."""
        heads = 'marker-end="url(#head)"' + ' marker-start="url(#head)"' * both
        self._line(points, heads)

    def gap(self, at: Point) -> None:
        """End the lines on both sides of ``at``, so that the next line crosses them as a bridge."""
        self._line(((at[0], at[1] - 8), (at[0], at[1] + 8)), 'class="gap"')

    def _line(self, points: Sequence[Point], how: str) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" {how}/>')

    def label(self, at: Point, text: str, kind: str = "") -> None:
        """Text in the middle of ``at``."""
        self._text(at, text, f"label {kind}".rstrip())

    def _text(self, at: Point, text: str, kind: str = "") -> None:
        style = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{at[0]:g}" y="{at[1]:g}"{style}>{escape(text)}</text>')

    def svg(self) -> str:
        """The file."""
        width, height = self._size
        body = "\n".join(self._parts)
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" aria-labelledby="title words">
<title id="title">{escape(self._title)}</title>
<desc id="words">{escape(self._words)}</desc>
<style>
text {{ font: 14px sans-serif; fill: {INK}; }}
.heading {{ font-weight: bold; font-size: 15px; }}
.label {{ text-anchor: middle; }}
rect {{ stroke: {INK}; }}
polyline {{ fill: none; stroke: {FLOW}; stroke-width: 2; }}
.gap {{ stroke: #ffffff; stroke-width: 10; }}
</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" \
orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{FLOW}"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff" style="stroke: none"/>
{body}
</svg>
"""


KEYS: dict[str, tuple[str, ...]] = {
    "main memory": ("dram_latency", "outstanding_bursts", "burst_bytes", "dram_rate"),
    "flash": (
        "flash_bytes",
        "flash_latency",
        "flash_outstanding_bursts",
        "flash_burst_bytes",
        "flash_rate",
    ),
    "bus": ("bus_bytes",),
    "command fetch": ("fetch_bytes", "fetch_buffers"),
    "queue": ("queue_depth",),
    "DMA": ("dma_setup", "dma_drain"),
    "EX": (
        "pe.ic",
        "pe.oc",
        "pe.ow",
        "post_lanes",
        "accumulators",
        "dividers",
        "divide_cycles",
        "ex_fill",
        "ex_drain",
    ),
    "scratchpad": (
        "sram_bytes",
        "sram_banks",
        "bank_ports",
        "sram_read_bytes",
        "sram_write_bytes",
        "word_bytes",
        "atom",
    ),
}
"""The keys of Arch and Timing that say something of one part.

All others are the whole machine's.
"""


def _others() -> list[str]:
    known = [name for name in Arch.model_fields if name != "pe"]
    known += [*(f"pe.{name}" for name in PeArray.model_fields), *Timing.model_fields]
    placed = {key for keys in KEYS.values() for key in keys}
    assert placed <= set(known), f"no keys of a machine: {sorted(placed - set(known))}"
    return [key for key in known if key not in placed]


def _keys(part: str) -> str:
    return "keys: " + ", ".join(KEYS[part])


def _instructions(unit: Unit) -> list[str]:
    return sorted(item.mnemonic for item in get_built_in_table().instructions if item.unit is unit)


def machine() -> str:
    """docs/figures/machine.svg."""
    tokens = [(UNIT_NAMES[one], UNIT_NAMES[other]) for one, other in TOKEN_QUEUES]
    words = (
        "The bus joins system memory, that is main memory and a flash where there is one, with the "
        "command fetch, LD "
        "and ST. The command fetch feeds the command processor, "
        f"which puts commands into a queue for each of {', '.join(UNIT_NAMES)}. LD writes the "
        "scratchpad, EX reads and "
        "writes it, ST reads it. Token "
        "counters: " + ", ".join(f"{one} to {other}" for one, other in tokens) + "."
    )
    picture = Drawing(1000, 886, "The machine", words)
    holds = "tensors (without a flash, everything); "
    main = picture.box(Box(16, 12, 440, 86), "main memory", [holds + _keys("main memory")], STORE)
    holds = "constants, command words; "
    flash = picture.box(
        Box(476, 12, 508, 86), "flash, where there is one", [holds + _keys("flash")], STORE
    )
    turns = f"a slot a cycle, round robin: {', '.join(PORTS)}; "
    bus = picture.box(Box(16, 124, 968, 54), "bus", [turns + _keys("bus")])
    picture.arrow(main.at(0.5, 1), (main.at(0.5, 1)[0], bus.y), both=True)
    picture.arrow(flash.at(0.5, 1), (flash.at(0.5, 1)[0], bus.y))
    fetch = picture.box(Box(16, 206, 210, 68), "command fetch", [_keys("command fetch")])
    words_in = (
        "a word a cycle: SET writes a register, OP_END waits for all units, the others are queued "
        "with a copy "
    )
    processor = picture.box(
        Box(16, 300, 210, 140), "command processor", [words_in + "of the registers they read"]
    )
    picture.box(
        Box(16, 650, 210, 220), "the whole machine", ["keys: " + ", ".join(_others())], "#f3f3f3"
    )
    picture.arrow((121, bus.bottom), fetch.at(0.5, 0))
    picture.arrow(fetch.at(0.5, 1), processor.at(0.5, 0))
    boxes = _units(picture, processor)
    scratchpad = picture.box(
        Box(254, 804, 730, 66), "scratchpad (SRAM)", [_keys("scratchpad")], STORE
    )
    _ports(picture, bus, boxes, scratchpad)
    for number, (one, other) in enumerate(tokens):
        level = 0.3 + 0.4 * (number % 2)
        left_to_right = boxes[one].x < boxes[other].x
        ends = boxes[one].at(left_to_right, level), boxes[other].at(not left_to_right, level)
        picture.arrow(*ends)
        picture.label(((ends[0][0] + ends[1][0]) / 2, ends[0][1] - 8), "tokens")
    return picture.svg()


COMMANDS = 312
"""Where the line from the command processor to the queues runs."""


def _units(picture: Drawing, processor: Box) -> dict[str, Box]:
    """The units with their queues, and the way of commands to these."""
    facts = {
        Unit.LD: (Box(254, 430, 150, 326), ["system memory → scratchpad", _keys("DMA")]),
        Unit.EX: (Box(466, 430, 306, 326), [_keys("EX")]),
        Unit.ST: (Box(834, 430, 150, 326), ["scratchpad → system memory", _keys("DMA")]),
    }
    found: dict[str, Box] = {}
    for unit in Unit:
        where, lines = facts[unit]
        queue = picture.box(Box(where.x, 332, 108, 68), "queue", ["queue_depth", "commands"])
        unit_box = picture.box(where, unit.name, [", ".join(_instructions(unit)), *lines])
        picture.arrow(
            (processor.at(1, 0)[0], COMMANDS), (queue.at(0.5, 0)[0], COMMANDS), queue.at(0.5, 0)
        )
        picture.arrow(queue.at(0.5, 1), (queue.at(0.5, 1)[0], where.y))
        found[unit.name] = unit_box
    return found


def _ports(picture: Drawing, bus: Box, units: dict[str, Box], scratchpad: Box) -> None:
    """Draw the DMA units' ports on the bus, and all ports on the scratchpad."""
    load, execute, store = (units[name] for name in UNIT_NAMES)
    picture.gap((load.x + 130, COMMANDS))
    picture.arrow((load.x + 130, bus.bottom), (load.x + 130, load.y))
    picture.arrow((store.x + 130, store.y), (store.x + 130, bus.bottom))
    picture.arrow(load.at(0.5, 1), (load.at(0.5, 1)[0], scratchpad.y))
    picture.arrow((execute.x + 80, scratchpad.y), (execute.x + 80, execute.bottom))
    picture.label((execute.x + 40, scratchpad.y - 20), "operands")
    picture.arrow((execute.x + 170, execute.bottom), (execute.x + 170, scratchpad.y))
    picture.label((execute.x + 205, scratchpad.y - 20), "results")
    picture.arrow((store.at(0.5, 1)[0], scratchpad.y), store.at(0.5, 1))


Step = tuple[Callable[..., Any], str]


def _passes(models: str) -> int:
    return sum(stage.models in ("all", models) for stage in ORDER)


def _lanes() -> Iterator[tuple[str, tuple[Step, ...], str]]:
    """Yield the four parts of the flow: function, steps and result."""
    counts = (
        f"{_passes('float')} passes on float models, {_passes('quantised')} on quantised ones; "
        f"{len(LAWS)} laws"
    )
    yield (
        f"byoc.{import_model.__name__}",
        (
            (load_model, "an ONNX file, every byte checked"),
            (prepare, counts),
            (quantise, "float models: scales from samples"),
            (import_graph, "which integer operations it means"),
            (import_tflite, f"instead of these four for TensorFlow Lite: {len(READERS)} operators"),
            (annotate, f"what {len(families().families)} families of operators could run"),
            (build_package, "graph, weights, the model itself"),
        ),
        "Package (a .dla file)",
    )
    yield (
        f"byoc.{compile_package.__name__}",
        (
            (partition, "regions for this Arch; CPU parts, with reasons"),
            (fuse, "functions become last steps"),
            (lower, "which values share memory"),
            (TileSearch, "the cut that takes fewest cycles"),
            (schedule_default, f"schedules: {', '.join(SCHEDULES)}"),
            (plan, "addresses in the scratchpad"),
            (derive_tokens, "who waits for whom"),
            (emit, "command words"),
        ),
        "Programs, one a region",
    )
    yield (
        "dla_sim.Device",
        (
            (decode, "decoded once, executed often"),
            (convolution, "kernels: values, to the bit"),
            (Workload, "what each command costs"),
            (simulate, "when each begins and ends"),
            (account, "a cause for every cycle"),
            (Device.run, "tensors and Trace"),
        ),
        "Trace",
    )
    yield (
        "experiments",
        (
            (
                check_values,
                "every tensor that leaves a region, against ONNX Runtime or LiteRT; no tolerance",
            ),
            (assemble, "layers, causes, traffic, placement"),
        ),
        "report, tables, pages",
    )


LANE = 224
"""Width of a part of the way."""


def compile_flow() -> str:
    """docs/figures/compile-flow.svg."""
    lanes = list(_lanes())
    said = "; ".join(
        f"{who}: {', '.join(f'{step.__module__}.{step.__qualname__}' for step, _ in steps)}"
        for who, steps, _ in lanes
    )
    picture = Drawing(1000, 790, "From a model to a report", f"{said}.")
    came: Point | None = None
    for number, (who, steps, result) in enumerate(lanes):
        left = 16 + number * (LANE + 24)
        picture.label((left + LANE / 2, 28), who, "heading")
        above = (
            picture.box(Box(left, 44, LANE, 36), "model: .onnx, .tflite", fill=STORE)
            if not number
            else None
        )
        top = 44.0 if above is None else above.bottom + 16
        for step, does in steps:
            box = picture.box(
                Box(left, top, LANE, _height([does], LANE)), step.__qualname__, [does]
            )
            if above is not None:
                picture.arrow(above.at(0.5, 1), box.at(0.5, 0))
            elif came is not None:
                between = left - 11
                picture.arrow(
                    came, (between, came[1]), (between, box.at(0, 0.5)[1]), box.at(0, 0.5)
                )
            above = box
            top = box.bottom + 16
        assert above is not None
        end = picture.box(Box(left, top, LANE, 36), result, fill=STORE)
        picture.arrow(above.at(0.5, 1), end.at(0.5, 0))
        came = end.at(1, 0.5)
    return picture.svg()


DIAGRAMS: dict[str, Callable[[], str]] = {"machine.svg": machine, "compile-flow.svg": compile_flow}


if __name__ == "__main__":
    for _name, _drawn in DIAGRAMS.items():
        (FIGURES / _name).write_text(_drawn(), encoding="utf-8")
