"""``dla run --sensitivity``: the report's changes equal runs of the same programs."""

from __future__ import annotations

import pytest

import dla
from byoc.compiler import compile
from dla_sim.presets import load_hardware
from dla_sim.program_timing import ProgramTiming
from experiments.report.run_page import run_page
from experiments.report.schema import RunReport, report_json
from experiments.report.sensitivity import ChangeEntry
from isa.errors import InputError


@pytest.fixture(scope="module", params=[(), ("depthwise",)], ids=["one region", "two regions"])
def found(request: pytest.FixtureRequest) -> dla.Result:
    return dla.run("digits-cnn", cpu=request.param, sensitivity=True)


def test_parameters_equal_separate_runs(found: dla.Result) -> None:
    """At both ends of each range, and one step after it."""
    hardware = load_hardware()
    programs = compile(found.package, hardware.arch, timing=hardware.timing).programs.values()
    timed = [ProgramTiming(program) for program in programs]

    def run(name: str, value: object) -> int:
        changed = hardware.timing.model_copy(update={name: value})
        return sum(one.run(changed).cycles for one in timed)

    entry = found.report.sensitivity
    assert entry is not None
    total = found.report.totals.cycles
    added = {one.name: one for one in entry.parameters if one.step == "+1"}
    assert {*added} >= {"dram_latency", "dma_setup", "ex_fill", "queue_depth"}
    for name, one in added.items():
        for change, sign in ((one.up, 1), (one.down, -1)):
            if change is not None:
                steps = abs(int(change.until) - int(one.value))
                assert run(name, change.until) == total + steps * change.cycles, name
                if change.final and run_exists(change, sign):
                    following = total + (steps + 1) * change.cycles
                    assert run(name, int(change.until) + sign) != following, name


def run_exists(change: ChangeEntry, sign: int) -> bool:
    """Return whether a next value is within the limits of all parameters."""
    return 1 < int(change.until) < 1 << 20 if sign < 0 else int(change.until) < 1 << 20


def test_every_command_has_an_entry(found: dla.Result) -> None:
    entry = found.report.sensitivity
    assert entry is not None
    assert len(entry.commands) + len({one.region for one in entry.commands}) == (
        found.report.totals.instructions
    )
    assert {one.layer for one in entry.commands} == {one.name for one in found.report.layers}
    assert {one.later.cycles for one in entry.commands if one.later is not None} == {0, 1}


def test_report_and_page_contain_it(found: dla.Result) -> None:
    assert RunReport.model_validate_json(report_json(found.report)) == found.report
    page = run_page(found.report)
    assert "Sensitivity of the cycles" in page
    assert "<td>dram_latency</td>" in page
    plain = found.report.model_copy(update={"sensitivity": None})
    assert "Sensitivity of the cycles" not in run_page(plain)


def test_rates_are_fractions() -> None:
    report = dla.run("digits-cnn", settings={"dram_rate": 0.44}, sensitivity=True).report
    assert report.sensitivity is not None
    (rate,) = (one for one in report.sensitivity.parameters if one.name == "dram_rate")
    assert rate.up is not None
    assert rate.up.until == "22/25"
    assert RunReport.model_validate_json(report_json(report)) == report


def test_described_machine_has_none() -> None:
    with pytest.raises(InputError, match="sensitivity=True needs commands, which machine vta"):
        dla.run("digits-cnn", machine="vta", sensitivity=True)
    assert dla.run("digits-cnn", machine="vta").report.sensitivity is None
