"""Claims of Sponner et al.

(2021) about figure 4, decided on the bars of our sweep: configurations with their cycles.

Claims are decided on the EX cycles of CONV, DEPTH and REQUANT, because the paper counts those; the
texts also give the totals with DMA. For words of the paper such as "drastically" and "linearly" the
threshold is ours, and the claim's rule states it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.repro import Claim, ClaimFigure
from isa.plugins import variant

Scenario = Literal["none", "emulated", "native"]
Side = Literal["I", "O"]

SCENARIOS: dict[Scenario, str] = {
    "none": "no depthwise (on the CPU)",
    "emulated": "depthwise emulated on OP_CONV",
    "native": "native OP_DEPTH_CONV",
}
"""The three scenarios of the paper's section 5, in its order, with our words."""
KINDS = ("CONV", "DEPTH", "REQUANT")
"""Subgraph types that are stacked in the published bars."""
KIB = 1 << 10
MIB = 1 << 20
MEMORIES = {256 * KIB: "256 KiB", 512 * KIB: "512 KiB", MIB: "1 MiB", 256 * MIB: "256 MiB"}


@dataclass(frozen=True)
class Bar:
    """Bar of figure 4: cycles of one machine configuration under one schedule.

    ``side`` is input-parallel (I) or output-parallel (O).

    ``ex`` has the cycles in which EX executes, by kind; ``total`` is the whole run with DMA and
    waits. Both are empty if the configuration is impossible; then ``message`` gives the reason.
    """

    scenario: Scenario
    schedule: str
    sram_bytes: int
    pes: int
    side: Side
    ex: Mapping[str, int] = field(default_factory=dict)
    total: int | None = None
    message: str | None = None

    @property
    def ran(self) -> bool:
        return self.total is not None

    @property
    def height(self) -> int:
        """Height of the published bar: EX cycles of CONV, DEPTH and REQUANT together."""
        return sum(self.ex.get(kind, 0) for kind in KINDS)

    @property
    def other(self) -> int:
        """EX cycles of the network's pooling and classifier layers.

        The paper runs both on the CPU; this compiler accelerates them.
        """
        return sum(self.ex.values()) - self.height

    @property
    def memory(self) -> str:
        """Size of the scratchpad memory, as text in the form of the published figure."""
        return MEMORIES.get(self.sram_bytes, f"{self.sram_bytes} B")

    @property
    def label(self) -> str:
        """Label of a bar in the paper's figure: memory, processing elements, side."""
        return f"{self.memory} {self.pes} {self.side}"


class ClaimBars:
    """Bars of figure 4 under one schedule.

    Raises ValueError if two bars have the same configuration.
    """

    def __init__(self, bars: Iterable[Bar]) -> None:
        self._bars: dict[tuple[Scenario, int, int, Side], Bar] = {}
        for bar in bars:
            place = (bar.scenario, bar.sram_bytes, bar.pes, bar.side)
            if place in self._bars:
                raise ValueError(f"two bars {bar.label} in scenario {bar.scenario}")
            self._bars[place] = bar

    def __iter__(self) -> Iterator[Bar]:
        return iter(self._bars.values())

    def get_bar(self, scenario: Scenario, sram_bytes: int, pes: int, side: Side) -> Bar:
        """Return the bar with the given properties; raise KeyError if there is none."""
        return self._bars[scenario, sram_bytes, pes, side]

    def panel(self, scenario: Scenario) -> list[Bar]:
        """Return the bars of one scenario of the figure, in the published order.

        The published figure has the same order.
        """
        shown = [bar for bar in self if bar.scenario == scenario and bar.sram_bytes >= 512 * KIB]
        return sorted(shown, key=lambda bar: (bar.sram_bytes, bar.pes, bar.side))


def bars_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, ClaimBars]:
    """Convert a sweep's rows of results to the bars of figure 4, by schedule.

    The rows have the form of ``experiments.sweep.results.flat_rows``.
    """
    found: dict[str, list[Bar]] = {}
    for row in rows:
        found.setdefault(row["schedule"], []).append(_bar(row))
    return {schedule: ClaimBars(bars) for schedule, bars in found.items()}


def _bar(row: Mapping[str, Any]) -> Bar:
    prefix = "ex_cycles."
    native = "OP_DEPTH_CONV" in variant(row["isa"]).mnemonics
    scenario: Scenario = "native" if native else "emulated" if row["emulate_depthwise"] else "none"
    return Bar(
        scenario=scenario,
        schedule=row["schedule"],
        sram_bytes=row["sram_bytes"],
        pes=row["pe.count"],
        side="O" if row["pe.oc"] > row["pe.ic"] else "I",
        ex={
            name.removeprefix(prefix): value
            for name, value in row.items()
            if name.startswith(prefix) and value
        },
        total=row["cycles"],
        message=row["message"],
    )


SMALL = 512 * KIB
MIDDLE = MIB
LARGE = 256 * MIB
TOO_SMALL = 256 * KIB
PES = (64, 128)
SIDES: tuple[Side, ...] = ("I", "O")
DRASTIC = 10.0
"""Factor by which the EX cycles of DEPTH must grow to count as drastically slower."""
STARVED = 1.5
"""Factor by which the EX cycles of CONV must grow, for the same work, to count as starved."""
BENT = 0.01
"""Distance from the straight line from which a bar counts as not linear.

It is a share of the line's value.
"""


def _judge_sides(bars: ClaimBars) -> tuple[Claim, ...]:
    """Decide the claims that compare output-parallel with input-parallel machines."""
    return (
        Claim(
            "output-parallel-wins-untiled",
            "at 256 MiB, where nothing is tiled, output-parallel beats input-parallel",
            "O takes fewer EX cycles than I for every scenario and number of PEs",
            tuple(
                _faster(bars.get_bar(s, LARGE, n, "O"), bars.get_bar(s, LARGE, n, "I"))
                for s in SCENARIOS
                for n in PES
            ),
        ),
        Claim(
            "input-parallel-wins-tiled",
            "at 512 KiB, where layers are tiled along the output channels, input-parallel wins",
            "I takes fewer EX cycles than O for every scenario and number of PEs",
            tuple(
                _faster(bars.get_bar(s, SMALL, n, "I"), bars.get_bar(s, SMALL, n, "O"))
                for s in SCENARIOS
                for n in PES
            ),
        ),
        Claim(
            "tiles-starve-output-parallel",
            "the reason: tiles of few output channels leave processing elements of the "
            "output-parallel machine idle",
            f"from 256 MiB to 512 KiB, EX cycles of CONV grow by {STARVED:g} x or more for O and "
            "by less for I",
            tuple(_growth(bars, s, n) for s in SCENARIOS for n in PES),
        ),
    )


def evaluate(bars: ClaimBars) -> tuple[Claim, ...]:
    """Decide every claim of the paper on the bars of one schedule.

    Raise KeyError if a bar that decides one is missing.
    """
    fast = bars.get_bar("native", MIDDLE, 128, "O")
    places = [(memory, pes, side) for memory in (SMALL, LARGE) for pes in PES for side in SIDES]
    small = [bars.get_bar(s, SMALL, n, side) for s in SCENARIOS for n in PES for side in SIDES]
    smaller = [
        bars.get_bar(s, TOO_SMALL, n, side) for s in SCENARIOS for n in PES for side in SIDES
    ]
    reasons = "; ".join(
        dict.fromkeys(bar.message or "no reason given" for bar in smaller if not bar.ran)
    )
    return (
        *_judge_sides(bars),
        Claim(
            "128-pes-1-mib-beat-64-pes-256-mib",
            "128 PEs with 1 MiB, output-parallel, can be faster than 64 PEs with 256 MiB",
            "in the native scenario, 1 MiB 128 O takes fewer EX cycles than 256 MiB 64 O, and than "
            "256 MiB 64 I",
            tuple(_faster(fast, bars.get_bar("native", LARGE, 64, side)) for side in ("O", "I")),
        ),
        Claim(
            "emulation-drastically-slower",
            "emulated depthwise convolution is drastically slower than native",
            f"the bar is higher, and EX cycles of DEPTH are at least {DRASTIC:g} times the native "
            "ones, in every pair",
            tuple(
                _slower(bars.get_bar("emulated", *place), bars.get_bar("native", *place))
                for place in places
            ),
        ),
        Claim(
            "512-kib-is-the-smallest",
            "512 KiB is the smallest power of two that tiling along the output channels supports",
            "every configuration runs with 512 KiB and none with 256 KiB",
            (
                ClaimFigure(
                    all(bar.ran for bar in small),
                    f"512 KiB: {_count_run(small)} of {len(small)} configurations run",
                ),
                ClaimFigure(
                    not any(bar.ran for bar in smaller),
                    f"256 KiB: {_count_run(smaller)} of {len(smaller)} configurations run"
                    + (f" ({reasons})" if reasons else ""),
                ),
            ),
        ),
        Claim(
            "not-linear-in-memory",
            "cycles do not scale linearly with the memory",
            "at 1 MiB, EX cycles are off the straight line from 512 KiB to 256 MiB by more than "
            f"{BENT:.0%}",
            tuple(_bend(bars, n, side) for n in PES for side in SIDES),
        ),
    )


def _faster(fast: Bar, slow: Bar) -> ClaimFigure:
    """Return whether the bar ``fast`` takes fewer EX cycles than the bar ``slow``, with both.

    The figure supports the claim if ``fast`` takes fewer EX cycles than ``slow``.
    """
    if not (fast.ran and slow.ran):
        return _make_missing(fast, slow)
    heights = (
        f"{fast.label} {fast.height:,} {_sign(fast.height, slow.height)} {slow.label} "
        f"{slow.height:,}"
    )
    totals = (
        f"totals with DMA {fast.total:,} {_sign(fast.total or 0, slow.total or 0)} {slow.total:,}"
    )
    return ClaimFigure(
        fast.height < slow.height, f"{SCENARIOS[fast.scenario]}: {heights}; {totals}"
    )


def _slower(emulated: Bar, native: Bar) -> ClaimFigure:
    if not (emulated.ran and native.ran):
        return _make_missing(emulated, native)
    depth = emulated.ex.get("DEPTH", 0)
    small = native.ex.get("DEPTH", 0)
    supports = emulated.height > native.height and depth >= DRASTIC * small > 0
    times = f"{depth / small:.1f} x" if small else "no native DEPTH"
    return ClaimFigure(
        supports,
        f"{emulated.label}: DEPTH {depth:,} and {small:,} EX cycles ({times}), "
        f"bar {emulated.height:,} and {native.height:,} ({emulated.height / native.height:.2f} x); "
        f"{_totals(emulated, native)}",
    )


def _growth(bars: ClaimBars, scenario: Scenario, pes: int) -> ClaimFigure:
    used = [
        bars.get_bar(scenario, memory, pes, side)
        for side in ("O", "I")
        for memory in (SMALL, LARGE)
    ]
    if not all(bar.ran and bar.ex.get("CONV") for bar in used):
        return _make_missing(*used)
    conv = [bar.ex["CONV"] for bar in used]
    output = conv[0] / conv[1]
    input_ = conv[2] / conv[3]
    return ClaimFigure(
        output >= STARVED and output > input_,
        f"{SCENARIOS[scenario]}: {pes} O CONV {conv[1]:,} to {conv[0]:,} EX cycles ({output:.3f} "
        "x), "
        f"{pes} I {conv[3]:,} to {conv[2]:,} ({input_:.3f} x)",
    )


def _bend(bars: ClaimBars, pes: int, side: Side) -> ClaimFigure:
    used = [bars.get_bar("native", memory, pes, side) for memory in (SMALL, MIDDLE, LARGE)]
    if not all(bar.ran for bar in used):
        return _make_missing(*used)
    first, middle, last = (bar.height for bar in used)
    line = first + (last - first) * (MIDDLE - SMALL) / (LARGE - SMALL)
    off = (middle - line) / line
    return ClaimFigure(
        abs(off) > BENT,
        f"{pes} {side}: {first:,}, {middle:,}, {last:,} EX cycles at 512 KiB, 1 MiB, 256 MiB; "
        f"the line has {line:,.0f} at 1 MiB ({off:+.1%}); {_totals(*used)}",
    )


def _make_missing(*bars: Bar) -> ClaimFigure:
    absent = ", ".join(
        f"{bar.label} ({bar.message or 'no cycles'})" for bar in bars if not bar.ran or not bar.ex
    )
    return ClaimFigure(False, f"cannot be decided without {absent or 'cycles of CONV'}")


def _count_run(bars: Iterable[Bar]) -> int:
    return sum(bar.ran for bar in bars)


def _sign(left: int, right: int) -> str:
    return "<" if left < right else ">" if left > right else "="


def _totals(*bars: Bar) -> str:
    return "totals with DMA " + ", ".join(f"{bar.total:,}" for bar in bars)
