"""The claims about figure 4 decide what they say, on figures made up for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from experiments.repro.claims import (
    KIB,
    MIB,
    SCENARIOS,
    SIDES,
    Bar,
    Claim,
    ClaimBars,
    bars_of,
    evaluate,
)
from experiments.repro.figure4 import COLUMNS, claims_text, table

MEMORIES = (256 * KIB, 512 * KIB, MIB, 256 * MIB)


def conv_cycles(sram_bytes: int, pes: int, side: str) -> int:
    """Return cycles for which every claim holds.

    Machine I takes about 12 and 8 with any memory; small memories starve machine O.
    """
    by_memory = {512 * KIB: (30, 26), MIB: (12, 7), 256 * MIB: (9, 5)}
    pair = (
        by_memory[sram_bytes]
        if side == "O"
        else (12 + (sram_bytes == 512 * KIB), 8 + (sram_bytes == 512 * KIB))
    )
    return pair[pes == 128] * 1000


def good() -> dict[tuple[str, int, int, str], Bar]:
    bars: dict[tuple[str, int, int, str], Bar] = {}
    for scenario, memory, pes, side in product(SCENARIOS, MEMORIES, (64, 128), SIDES):
        if memory == MIB and scenario != "native":
            continue
        bar = Bar(scenario, "seed", memory, pes, side)
        if memory == 256 * KIB:
            bars[scenario, memory, pes, side] = replace(
                bar, message="input does not fit, 7 missing"
            )
            continue
        depth = {"none": 0, "emulated": 5000, "native": 100}[scenario]
        ex = {"CONV": conv_cycles(memory, pes, side), "DEPTH": depth, "REQUANT": 10, "POOL": 3}
        bars[scenario, memory, pes, side] = replace(bar, ex=ex, total=2 * sum(ex.values()))
    return bars


def claims(bars: Mapping[tuple[str, int, int, str], Bar]) -> dict[str, Claim]:
    return {claim.name: claim for claim in evaluate(ClaimBars(bars.values()))}


def with_ex(bar: Bar, **cycles: int) -> Bar:
    return replace(bar, ex={**bar.ex, **cycles})


def failing(bars: Mapping[tuple[str, int, int, str], Bar]) -> set[str]:
    return {name for name, claim in claims(bars).items() if not claim.holds}


def test_every_claim_holds_on_figures_made_to_fit() -> None:
    assert failing(good()) == set()
    assert len(claims(good())) == 7


def test_a_bar_counts_conv_depth_and_requant_alone() -> None:
    bar = good()["native", 512 * KIB, 64, "I"]
    assert bar.height == 13_000 + 100 + 10
    assert bar.other == 3
    assert bar.label == "512 KiB 64 I"


def test_output_parallel_must_win_everywhere_without_tiling() -> None:
    bars = good()
    place = ("emulated", 256 * MIB, 128, "O")
    bars[place] = with_ex(bars[place], CONV=8000)  # as much as I: equal is not faster
    assert failing(bars) == {"output-parallel-wins-untiled"}
    claim = claims(bars)["output-parallel-wins-untiled"]
    assert [figure.supports for figure in claim.figures] == [True, True, True, False, True, True]
    assert claim.figures[3].text == (
        "depthwise emulated on OP_CONV: 256 MiB 128 O 13,010 = 256 MiB 128 I 13,010; totals with "
        "DMA 20,026 < 26,026"
    )


def test_input_parallel_must_win_everywhere_with_tiling() -> None:
    bars = good()
    for pes in (64, 128):
        place = ("none", 512 * KIB, pes, "I")
        bars[place] = with_ex(bars[place], CONV=40_000)
    found = failing(bars)
    assert "input-parallel-wins-tiled" in found
    text = claims(bars)["input-parallel-wins-tiled"].figures[0].text
    assert "512 KiB 64 I 40,010 > 512 KiB 64 O 30,010" in text


def test_starving_needs_growth_of_the_output_parallel_machine() -> None:
    bars = good()
    place = ("none", 256 * MIB, 64, "O")
    bars[place] = with_ex(bars[place], CONV=20_001)  # 30,000 is 1.49993 times as much
    assert "tiles-starve-output-parallel" in failing(bars)
    bars[place] = with_ex(bars[place], CONV=20_000)
    assert "tiles-starve-output-parallel" not in failing(bars)


def test_starving_needs_less_growth_of_the_input_parallel_machine() -> None:
    bars = good()
    place = ("native", 512 * KIB, 128, "I")
    bars[place] = with_ex(bars[place], CONV=8000 * 6)  # O grows 5.2 times
    assert "tiles-starve-output-parallel" in failing(bars)


@pytest.mark.parametrize("side", ["I", "O"])
def test_more_elements_must_beat_both_machines(side: str) -> None:
    bars = good()
    place = ("native", 256 * MIB, 64, side)
    bars[place] = with_ex(bars[place], CONV=1000)
    assert "128-pes-1-mib-beat-64-pes-256-mib" in failing(bars)


def test_drastically_means_ten_times() -> None:
    bars = good()
    place = ("native", 512 * KIB, 64, "I")
    bars[place] = with_ex(bars[place], DEPTH=500)
    assert failing(bars) == set()
    bars[place] = with_ex(bars[place], DEPTH=501)
    assert failing(bars) == {"emulation-drastically-slower"}


def test_without_native_depth_emulation_is_not_slower() -> None:
    bars = good()
    place = ("native", 512 * KIB, 64, "I")
    bars[place] = with_ex(bars[place], DEPTH=0)
    assert "emulation-drastically-slower" in failing(bars)


def test_the_smallest_memory_is_decided_by_what_runs() -> None:
    bars = good()
    place = ("native", 256 * KIB, 64, "O")
    bars[place] = replace(bars[place], ex={"CONV": 1}, total=2, message=None)
    assert failing(bars) == {"512-kib-is-the-smallest"}
    figures = claims(bars)["512-kib-is-the-smallest"].figures
    assert figures[1].text == "256 KiB: 1 of 12 configurations run (input does not fit, 7 missing)"


def test_what_does_not_run_supports_nothing() -> None:
    bars = good()
    place = ("none", 512 * KIB, 64, "O")
    bars[place] = replace(bars[place], ex={}, total=None, message="too big")
    found = claims(bars)
    assert not found["input-parallel-wins-tiled"].holds
    assert (
        found["input-parallel-wins-tiled"].figures[0].text
        == "cannot be decided without 512 KiB 64 O (too big)"
    )
    assert not found["512-kib-is-the-smallest"].holds


def test_a_straight_line_is_linear() -> None:
    bars = good()
    for place in [("native", memory, 64, "I") for memory in MEMORIES[1:]]:
        line = 20_000 - 4000 * (place[1] - 512 * KIB) // (256 * MIB - 512 * KIB)
        bars[place] = with_ex(bars[place], CONV=line - 110, DEPTH=100, REQUANT=10)
    assert "not-linear-in-memory" in failing(bars)
    place = ("native", MIB, 64, "I")
    bars[place] = with_ex(bars[place], CONV=19_992 - 110 - 201)
    assert "not-linear-in-memory" not in failing(bars)


def test_two_bars_in_one_place_are_an_error() -> None:
    bar = Bar("none", "seed", MIB, 64, "I")
    with pytest.raises(ValueError, match="two bars 1 MiB 64 I in scenario none"):
        ClaimBars([bar, bar])


def test_rows_of_a_sweep_become_bars() -> None:
    row = {
        "schedule": "seed", "isa": "v1", "emulate_depthwise": True, "sram_bytes": MIB,
        "pe.count": 128, "pe.ic": 1,
        "pe.oc": 128, "cycles": 50, "message": None, "ex_cycles.CONV": 20, "ex_cycles.POOL": 0,
        "kinds.CONV": 30,
    }  # fmt: skip
    found = bars_of([row, {**row, "schedule": "default", "isa": "v2", "emulate_depthwise": False}])
    assert list(found) == ["seed", "default"]
    assert found["seed"].get_bar("emulated", MIB, 128, "O") == Bar(
        "emulated", "seed", MIB, 128, "O", {"CONV": 20}, 50
    )
    assert found["default"].get_bar("native", MIB, 128, "O").total == 50


def test_the_table_has_a_row_a_configuration() -> None:
    lines = table({"seed": ClaimBars(good().values())}).splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 1 + len(good())
    assert (
        'seed,none,figure 4a,256 KiB,262144,64,I,infeasible,,,,,,,"input does not fit, 7 missing"'
        in lines
    )
    assert "seed,native,figure 4e,1 MiB,1048576,128,O,ok,7000,100,10,7110,3,14226," in lines


def test_the_text_shows_what_does_not_hold() -> None:
    bars = good()
    bars["emulated", 256 * MIB, 128, "O"] = with_ex(
        bars["emulated", 256 * MIB, 128, "O"], CONV=9000
    )
    text = claims_text({"seed": evaluate(ClaimBars(bars.values()))})
    assert text.startswith("schedule seed (the published system's): 6 of 7 statements hold\n")
    assert (
        "[DOES NOT HOLD] at 256 MiB, where nothing is tiled, output-parallel beats input-parallel"
        in text
    )
    assert (
        "    - depthwise emulated on OP_CONV: 256 MiB 128 O 14,010 > 256 MiB 128 I 13,010;" in text
    )
