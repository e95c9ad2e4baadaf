"""Claims: the statements that Sponner et al. (2021) make about figure 4, decided on bars, each with its figures.

Decided on the EX cycles of CONV, DEPTH and REQUANT, as the paper counts; the totals with DMA stand beside them. Where
the paper uses a word ("drastically", "linearly"), the threshold is ours and stands in the claim's rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.repro.bars import KIB, MIB, SCENARIOS, Bar, Bars, Scenario, Side

SMALL, MIDDLE, LARGE, TOO_SMALL = 512 * KIB, MIB, 256 * MIB, 256 * KIB
PES = (64, 128)
SIDES: tuple[Side, ...] = ("I", "O")
DRASTIC = 10.0
"""How many times the EX cycles of DEPTH must grow to count as drastically slower."""
STARVED = 1.5
"""How many times the EX cycles of CONV must grow, for the same work, to count as starved."""
BENT = 0.01
"""How far from the straight line, as a share of the line's value, a bar must be to count as not linear."""


@dataclass(frozen=True)
class Figure:
    """One comparison: whether it supports the claim, and the figures that say so."""

    supports: bool
    text: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, the rule that decides it, and the figures. It holds when every figure supports it."""

    name: str
    statement: str
    rule: str
    figures: tuple[Figure, ...]

    @property
    def holds(self) -> bool:
        """Whether the statement is true of our numbers."""
        return bool(self.figures) and all(figure.supports for figure in self.figures)


def evaluate(bars: Bars) -> tuple[Claim, ...]:
    """Every claim on the bars of one schedule. Raises KeyError where a bar that decides one is missing."""
    return (
        _output_wins(bars),
        _input_wins(bars),
        _starved(bars),
        _more_elements(bars),
        _emulation(bars),
        _smallest(bars),
        _not_linear(bars),
    )


def _output_wins(bars: Bars) -> Claim:
    return Claim(
        "output-parallel-wins-untiled",
        "at 256 MiB, where nothing is tiled, output-parallel beats input-parallel",
        "O takes fewer EX cycles than I for every scenario and number of PEs",
        tuple(_faster(bars.at(s, LARGE, n, "O"), bars.at(s, LARGE, n, "I")) for s in SCENARIOS for n in PES),
    )


def _input_wins(bars: Bars) -> Claim:
    return Claim(
        "input-parallel-wins-tiled",
        "at 512 KiB, where layers are tiled along the output channels, input-parallel wins",
        "I takes fewer EX cycles than O for every scenario and number of PEs",
        tuple(_faster(bars.at(s, SMALL, n, "I"), bars.at(s, SMALL, n, "O")) for s in SCENARIOS for n in PES),
    )


def _starved(bars: Bars) -> Claim:
    return Claim(
        "tiles-starve-output-parallel",
        "the reason: tiles of few output channels leave processing elements of the output-parallel machine idle",
        f"from 256 MiB to 512 KiB, EX cycles of CONV grow by {STARVED:g} x or more for O and by less for I",
        tuple(_growth(bars, s, n) for s in SCENARIOS for n in PES),
    )


def _more_elements(bars: Bars) -> Claim:
    fast = bars.at("native", MIDDLE, 128, "O")
    return Claim(
        "128-pes-1-mib-beat-64-pes-256-mib",
        "128 PEs with 1 MiB, output-parallel, can be faster than 64 PEs with 256 MiB",
        "in the native scenario, 1 MiB 128 O takes fewer EX cycles than 256 MiB 64 O, and than 256 MiB 64 I",
        tuple(_faster(fast, bars.at("native", LARGE, 64, side)) for side in ("O", "I")),
    )


def _emulation(bars: Bars) -> Claim:
    places = [(memory, pes, side) for memory in (SMALL, LARGE) for pes in PES for side in SIDES]
    return Claim(
        "emulation-drastically-slower",
        "emulated depthwise convolution is drastically slower than native",
        f"the bar is higher, and EX cycles of DEPTH are at least {DRASTIC:g} times the native ones, in every pair",
        tuple(_slower(bars.at("emulated", *place), bars.at("native", *place)) for place in places),
    )


def _smallest(bars: Bars) -> Claim:
    small = [bars.at(s, SMALL, n, side) for s in SCENARIOS for n in PES for side in SIDES]
    smaller = [bars.at(s, TOO_SMALL, n, side) for s in SCENARIOS for n in PES for side in SIDES]
    reasons = "; ".join(dict.fromkeys(bar.message or "no reason given" for bar in smaller if not bar.ran))
    return Claim(
        "512-kib-is-the-smallest",
        "512 KiB is the smallest power of two that tiling along the output channels supports",
        "every configuration runs with 512 KiB and none with 256 KiB",
        (
            Figure(all(bar.ran for bar in small), f"512 KiB: {_ran(small)} of {len(small)} configurations run"),
            Figure(
                not any(bar.ran for bar in smaller),
                f"256 KiB: {_ran(smaller)} of {len(smaller)} configurations run" + (f" ({reasons})" if reasons else ""),
            ),
        ),
    )


def _not_linear(bars: Bars) -> Claim:
    return Claim(
        "not-linear-in-memory",
        "cycles do not scale linearly with the memory",
        f"at 1 MiB, EX cycles are off the straight line from 512 KiB to 256 MiB by more than {BENT:.0%}",
        tuple(_bend(bars, n, side) for n in PES for side in SIDES),
    )


def _faster(fast: Bar, slow: Bar) -> Figure:
    """Supports that ``fast`` takes fewer EX cycles than ``slow``."""
    if not (fast.ran and slow.ran):
        return _missing(fast, slow)
    heights = f"{fast.label} {fast.height:,} {_sign(fast.height, slow.height)} {slow.label} {slow.height:,}"
    totals = f"totals with DMA {fast.total:,} {_sign(fast.total or 0, slow.total or 0)} {slow.total:,}"
    return Figure(fast.height < slow.height, f"{SCENARIOS[fast.scenario]}: {heights}; {totals}")


def _slower(emulated: Bar, native: Bar) -> Figure:
    if not (emulated.ran and native.ran):
        return _missing(emulated, native)
    depth, small = emulated.ex.get("DEPTH", 0), native.ex.get("DEPTH", 0)
    supports = emulated.height > native.height and depth >= DRASTIC * small > 0
    times = f"{depth / small:.1f} x" if small else "no native DEPTH"
    return Figure(
        supports,
        f"{emulated.label}: DEPTH {depth:,} and {small:,} EX cycles ({times}), "
        f"bar {emulated.height:,} and {native.height:,} ({emulated.height / native.height:.2f} x); "
        f"{_totals(emulated, native)}",
    )


def _growth(bars: Bars, scenario: Scenario, pes: int) -> Figure:
    used = [bars.at(scenario, memory, pes, side) for side in ("O", "I") for memory in (SMALL, LARGE)]
    if not all(bar.ran and bar.ex.get("CONV") for bar in used):
        return _missing(*used)
    conv = [bar.ex["CONV"] for bar in used]
    output, input_ = conv[0] / conv[1], conv[2] / conv[3]
    return Figure(
        output >= STARVED and output > input_,
        f"{SCENARIOS[scenario]}: {pes} O CONV {conv[1]:,} to {conv[0]:,} EX cycles ({output:.3f} x), "
        f"{pes} I {conv[3]:,} to {conv[2]:,} ({input_:.3f} x)",
    )


def _bend(bars: Bars, pes: int, side: Side) -> Figure:
    used = [bars.at("native", memory, pes, side) for memory in (SMALL, MIDDLE, LARGE)]
    if not all(bar.ran for bar in used):
        return _missing(*used)
    first, middle, last = (bar.height for bar in used)
    line = first + (last - first) * (MIDDLE - SMALL) / (LARGE - SMALL)
    off = (middle - line) / line
    return Figure(
        abs(off) > BENT,
        f"{pes} {side}: {first:,}, {middle:,}, {last:,} EX cycles at 512 KiB, 1 MiB, 256 MiB; "
        f"the line has {line:,.0f} at 1 MiB ({off:+.1%}); {_totals(*used)}",
    )


def _missing(*bars: Bar) -> Figure:
    absent = ", ".join(f"{bar.label} ({bar.message or 'no cycles'})" for bar in bars if not bar.ran or not bar.ex)
    return Figure(False, f"cannot be decided without {absent or 'cycles of CONV'}")


def _ran(bars: Iterable[Bar]) -> int:
    return sum(bar.ran for bar in bars)


def _sign(left: int, right: int) -> str:
    return "<" if left < right else ">" if left > right else "="


def _totals(*bars: Bar) -> str:
    return "totals with DMA " + ", ".join(f"{bar.total:,}" for bar in bars)
