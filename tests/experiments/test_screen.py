"""The screen of a run: at most 40 lines of 80 columns, with what the report says."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from experiments.report.checks import Accuracy, HardwareCheck, OutputsCheck, Suspicion
from experiments.report.schema import RunReport
from experiments.report.screen import SCREEN_COLUMNS, SCREEN_LINES, WEIGHTS
from experiments.report.shown import Document
from experiments.running.inference import run
from experiments.running.result import RUN
from tests.experiments.command_line import dla, save_tiny
from tests.experiments.reporting import tiny_run, with_layers


@cache
def digits() -> RunReport:
    return run("digits-cnn", cost="horowitz-45nm").report


def shown(report: RunReport) -> list[str]:
    console = Console(width=SCREEN_COLUMNS, file=io.StringIO())
    with console.capture() as capture:
        Document(report, RUN).show(console, "screen")
    return capture.get().splitlines()


def row(lines: list[str], name: str) -> str:
    """The text of a row of the facts, its further lines joined."""
    (place,) = [number for number, text in enumerate(lines) if text.startswith(name + " ")]
    text = lines[place].removeprefix(name).strip()
    for further in lines[place + 1 :]:
        if not further.startswith("  ") or not further.strip():
            return text
        text += " " + further.strip()
    return text


def overfull() -> RunReport:
    """A run about which everything is to be said, at length."""
    report = digits()
    layers = with_layers([f"network/stage.{place}/{'block.' * 9}conv" for place in range(60)])
    check = report.check.model_copy(
        update={
            "mismatches": 1234567,
            "elements": 123456789,
            "oracle": "x " * 200,
            "outputs": OutputsCheck(
                exact=False, tensors=5, elements=12345, differences=1234, max_abs_diff=1.2345
            ),
        }
    )
    warning = Suspicion(kind="saturated", tensor="logits " * 40, figures={"share": 0.123})
    return layers.model_copy(
        update={
            "model": "a-network-with-a-long-name" * 4,
            "check": check,
            "hardware": HardwareCheck(
                programs=1,
                commands=99999,
                cycles=123456789,
                written_bytes=123456789,
                differences=3,
                first="y " * 200,
            ),
            "warnings": (warning,) * 7,
            "accuracy": Accuracy(float_=0.98, int8=0.97, dla=0.96, images=1000, differences=17),
            "fidelity": report.fidelity,
            "cost": report.cost,
            "end_to_end": report.end_to_end,
            "weights": "random",
        }
    )


@pytest.mark.parametrize("make", [digits, tiny_run, overfull])
def test_it_fits_one_screen(make: Callable[[], RunReport]) -> None:
    report = make()
    lines = shown(report)
    # the command prints two more lines, and without RTL two lines of advice
    more = 2 if report.hardware is not None else 4
    assert len(lines) + more <= SCREEN_LINES, "\n".join(lines)
    assert max(len(text.rstrip()) for text in lines) <= SCREEN_COLUMNS


def test_it_says_what_the_report_says() -> None:
    report = digits()
    lines = shown(report)
    found = report.end_to_end
    assert found is not None
    clock = report.timing["clock_hz"]
    assert row(lines, "check").startswith(f"0 mismatches in {report.check.elements} elements")
    time = row(lines, "time")
    assert f"~{found.cycles / clock * 1e3:.4g} ms end to end" in time
    assert f"~{clock / found.cycles:,.0f} inferences a second" in time
    assert f"{report.totals.macs:,}, utilisation {report.totals.utilization:.1%}" in "\n".join(
        lines
    )
    limit = row(lines, "limit")
    assert f"the CPU takes {found.cpu_cycles / found.cycles:.0%} of the time" in limit
    computing = sum(layer.breakdown["compute"] for layer in report.layers)
    assert "the accelerator is compute-bound: it uses" in limit
    assert f"{computing / report.totals.cycles:.0%} of its cycles compute" in limit


def test_the_layers_are_the_most_expensive_ones_of_accelerator_and_cpu() -> None:
    report = digits()
    costs = {layer.name: layer.cycles for layer in report.layers}
    costs |= {layer.node: layer.estimated_cycles for layer in report.host.layers}
    expected = sorted(costs, key=lambda name: -costs[name])[:10]
    lines = shown(report)
    heading = next(place for place, text in enumerate(lines) if text.split()[:1] == ["layer"])
    rows = [text.split() for text in lines[heading + 2 :] if text.strip()]
    assert [cells[0] for cells in rows] == expected
    assert [cells[1].lstrip("~").replace(",", "") for cells in rows] == [
        str(costs[name]) for name in expected
    ]
    for cells in rows:
        layer = next((one for one in report.layers if one.name == cells[0]), None)
        if layer is None:
            assert cells[-3:] == ["on", "the", "CPU"]
        else:
            largest = max(layer.breakdown.values())
            assert cells[-1] == f"{largest / layer.cycles:.0%}"


def test_weights_are_trained_random_or_unknown(tmp_path: Path) -> None:
    assert digits().weights == "trained"
    assert run("micro-speech").report.weights == "random"
    assert tiny_run().weights is None
    for weights, text in WEIGHTS.items():
        report = tiny_run().model_copy(update={"weights": weights})
        assert row(shown(report), "weights") == text


def test_the_last_warning_counts_those_without_room() -> None:
    found = shown(overfull())
    lines = "\n".join(found)
    assert lines.count("\nwarning ") == 2
    assert "(and 5 more: --all)" in " ".join(lines.split())
    assert "more: --all" not in "\n".join(shown(tiny_run()))


def test_all_prints_the_tables_and_one_option_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = save_tiny(tmp_path)
    whole = dla(capsys, "run", model, "--json", "run.json", "--all").out
    tables = dla(capsys, "report", "run.json", "--tables").out
    assert whole == tables + "report written to run.json\n"
    screen = dla(capsys, "run", model, "--json", "run.json").out
    assert "cycles by kind" in whole
    assert "cycles by kind" not in screen
    assert screen.splitlines()[-1] == "report written to run.json"
    found = dla(capsys, "run", model, "--all", "--summary")
    assert (found.status, found.err) == (
        2,
        "error: --all prints the tables and --summary omits them; give one of the two\n",
    )
