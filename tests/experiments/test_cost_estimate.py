"""Estimates: hand-worked sums.

The same counts from a run as from a sweep's row; marked wherever they appear.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from byoc import compile
from dla_sim import Device
from dla_sim.presets import load_hardware
from experiments import load, run
from experiments.cost.estimate import (
    COLUMNS,
    NOT_COUNTED,
    UNPRICED,
    EnergyEvents,
    Estimate,
    add_costs,
    cost_lines,
    estimate,
    layer_activities,
    row_activity,
    run_activity,
)
from experiments.cost.table import Area, CostTable, find_measured, load_table, read_measured
from experiments.report.schema import report_json
from experiments.report.store import load_report
from experiments.running.network import load_network
from experiments.sweep.results import flat_rows
from isa.arch import Arch, PeArray
from tests.experiments.command_line import dla, save_tiny
from tests.experiments.sweeping import swept, written
from tests.rotation import rotate

GRID = """
    networks = ["tiny.onnx"]
    [arch]
    pe = [{ ic = 4, oc = 16 }]
    sram_banks = 2
    sram_bytes = ["512 KiB", 64]
"""
SYNTHESISED = """
    networks = ["tiny.onnx"]
    isa = "v4"
    [arch]
    pe = [{ ic = 2, oc = 2 }, { ic = 2, oc = 3 }]
"""


def table() -> CostTable:
    """Round figures: a MAC 2 pJ, a byte of SRAM 3, of DRAM 5, a register 7.

    A PE 11 um2, a KiB 13.
    """
    said = {"node": "n", "source": "s"}
    sizes = ({"bytes": 1024, "picojoules": 3.0},)
    return CostTable.model_validate(
        {
            "name": "round",
            "description": "",
            "energy": {
                "mac": {**said, "picojoules": 2.0},
                "sram": {**said, "between": "power-law", "sizes": sizes},
                "dram": {**said, "picojoules": 5.0},
                "register_write": {**said, "picojoules": 7.0},
            },
            "area": {
                "pe": {**said, "square_micrometres": 11.0},
                "sram": {**said, "square_micrometres": 13.0},
            },
        }
    )


def test_energy_and_area_worked_by_hand() -> None:
    arch = Arch(pe=PeArray(ic=2, oc=3, ow=4), sram_bytes=16 * 1024, sram_banks=16)
    found = estimate(
        table(), arch, EnergyEvents(macs=100, sram_bytes=20, dram_bytes=10, register_writes=4)
    )
    assert found.energy_pj.model_dump() == {
        "mac": 200.0, "sram": 60.0, "dram": 50.0, "register_write": 28.0, "total": 338.0,
    }  # fmt: skip
    assert found.area_um2.model_dump() == {"pe": 24 * 11.0, "sram": 16 * 13.0, "total": 472.0}
    assert found.estimate is True
    assert found.notes == (NOT_COUNTED,)
    assert found.sources["energy.mac"] == "n: s"


def test_bytes_of_flash_and_of_system_sram_are_left_out_and_said_to_be() -> None:
    """6,640 bytes of weights and records, 64 of input, 16 of output; 93 words."""
    reports = [
        run("digits-cnn", memory_mode=mode, settings=settings, cost="horowitz-45nm").report
        for mode, settings in (
            ("dram", ()),
            ("dram", ["flash_bytes=1"]),
            ("flash", ()),
            ("sram", ()),
        )
    ]
    runs = [report.cost for report in reports]
    moved = 6704 + 16 + 744
    flash = 6640 + 744
    found = [
        (one.counts["dram_bytes"], one.counts.get("unpriced_bytes", 0))
        for one in runs
        if one is not None
    ]
    assert found == [(moved, 0), (moved - flash, flash), (0, moved), (0, moved)]
    for report, one in zip(reports, runs, strict=True):
        assert one is not None
        assert sum(layer.energy_pj or 0 for layer in report.layers) == pytest.approx(
            one.energy_pj.total
        )
    notes = [one.notes[0] for one in runs if one is not None]
    assert notes[0] != UNPRICED.format(moved)
    assert notes[1:] == [UNPRICED.format(count) for count in (flash, moved, moved)]


def test_a_bank_that_the_table_does_not_have_is_noted() -> None:
    arch = Arch(sram_bytes=32 * 1024, sram_banks=16)
    found = estimate(table(), arch, EnergyEvents(0, 1, 0, 0))
    assert found.notes[0].startswith("SRAM banks of 2048 bytes are larger than any in the table")
    assert found.notes[1] == NOT_COUNTED


def test_lines_say_that_they_are_estimates() -> None:
    arch = Arch(pe=PeArray(ic=2, oc=3, ow=4), sram_bytes=16 * 1024, sram_banks=16)
    lines = list(
        cost_lines(
            estimate(table(), arch, EnergyEvents(100 * 10**6, 20 * 10**6, 10 * 10**6, 4 * 10**6))
        )
    )
    assert lines[0] == (
        "energy (estimate)",
        "338.0 µJ by round: MACs 59.2%, SRAM 17.8%, DRAM 14.8%, registers 8.3%",
    )  # fmt: skip
    assert lines[1] == ("area (estimate)", "0.000 mm² by round: PEs 55.9%, SRAM 44.1%")
    nothing = list(cost_lines(estimate(table(), arch, EnergyEvents(0, 0, 0, 0))))
    assert nothing[0][1] == "0.0 µJ by round: MACs 0, SRAM 0, DRAM 0, registers 0"


def test_logic_is_measured_where_its_array_was_synthesised() -> None:
    bare = table()
    row = read_measured()[0]
    gate = Area(node="n", source="a gate", square_micrometres=0.5)
    priced = bare.model_copy(update={"area": bare.area.model_copy(update={"gate": gate})})
    preset, *settings = row.machine.split()
    same, other = (
        load_hardware(preset, [*settings, *more], "v4").arch for more in ((), ("post_lanes=63",))
    )
    found = estimate(priced, same, EnergyEvents(0, 0, 0, 0))
    assert found.logic is not None
    assert (found.logic.machine, found.logic.gates) == (row.machine, row.gates)
    assert found.logic.square_micrometres == row.gates / 2
    assert found.sources["area.gate"] == "n: a gate"
    millimetres = f"{row.gates / 2 / 1e6:.3f} mm² by round"
    said = f"{millimetres}: {row.gates:,} gate equivalents of {row.machine}; no memories in it"
    assert ("logic (measured)", said) in list(cost_lines(found))
    for without in (
        estimate(priced, other, EnergyEvents(0, 0, 0, 0)),
        estimate(bare, same, EnergyEvents(0, 0, 0, 0)),
    ):
        assert without.logic is None
        assert "area.gate" not in without.sources
        assert not any("measured" in name for name, _ in cost_lines(without))


def test_every_measured_machine_is_found_by_its_sizes() -> None:
    rows = read_measured()
    assert rows
    for row in rows:
        preset, *settings = row.machine.split()
        assert find_measured(load_hardware(preset, settings, "v4").arch) == row
        assert find_measured(load_hardware(preset, settings, "v5").arch) is None


def test_a_run_and_the_row_of_a_sweep_did_the_same(tmp_path: Path) -> None:
    swept(tmp_path, GRID)
    row = next(row for row in flat_rows(tmp_path / "results.sqlite") if row["status"] == "ok")
    settings = ("pe.ic=4", "pe.oc=16", "sram_bytes=524288", "sram_banks=2")
    report = run(save_tiny(tmp_path), settings=settings, cost="horowitz-45nm").report
    activity = row_activity(row)
    assert report.cost is not None
    assert report.cost.counts == {
        "macs": activity.macs, "sram_bytes": activity.sram_bytes, "dram_bytes": activity.dram_bytes,
        "register_writes": activity.register_writes, "pes": 64, "sram_capacity_bytes": 524288,
    }  # fmt: skip
    assert activity.macs == report.totals.macs
    assert activity.register_writes == report.compile.sets
    moved = report.totals.dram_read_bytes + report.totals.dram_write_bytes
    assert activity.dram_bytes == moved + 8 * report.compile.words
    costs = next(row for row in add_costs([row], load_table()))
    assert costs["estimated_energy_pj"] == report.cost.energy_pj.total
    assert costs["estimated_area_um2"] == report.cost.area_um2.total


def test_scratchpad_bytes_worked_by_hand(tmp_path: Path) -> None:
    """Scratchpad bytes of one untiled convolution equal a count by hand.

    EX reads the input, weights and records and writes the result. DMA moves the same bytes. On
    ideal memory, no operand has padding.
    """
    swept(tmp_path, f'isa = "v4"\n{GRID}')
    row = next(row for row in flat_rows(tmp_path / "results.sqlite") if row["status"] == "ok")
    operands = 3 * 8 * 8 + 4 * 3 * 3 * 3 + 4 * 8
    result = 4 * 8 * 8
    assert (row["dram_read_bytes"], row["dram_write_bytes"]) == (operands, result)
    assert row["sram_moved_bytes"] == 2 * (operands + result)


def test_a_report_keeps_its_estimate(tmp_path: Path) -> None:
    report = run(save_tiny(tmp_path), cost="horowitz-45nm").report
    assert report.command.endswith("--cost horowitz-45nm")
    (tmp_path / "run.json").write_text(report_json(report))
    assert load_report(tmp_path / "run.json").cost == report.cost
    assert isinstance(report.cost, Estimate)
    assert run(save_tiny(tmp_path)).report.cost is None


def test_tables_of_sweeps_have_columns_of_estimates(tmp_path: Path) -> None:
    swept(tmp_path, GRID)
    frame = load(tmp_path / "results.sqlite", cost="horowitz-45nm")
    by_status = frame.set_index("status")
    energy, area = COLUMNS[:2]
    assert by_status.loc["ok", energy] > 0
    assert by_status.loc["ok", area] == pytest.approx(64 * 419 + 512 * 2834.432)
    assert by_status.loc[["infeasible"], [energy, area]].isna().all(axis=None)
    assert energy not in load(tmp_path / "results.sqlite").columns


def test_tables_of_sweeps_have_measured_logic_beside_the_estimates(tmp_path: Path) -> None:
    swept(tmp_path, SYNTHESISED)
    frame = load(tmp_path / "results.sqlite", cost="horowitz-45nm").set_index("pe.oc")
    known = find_measured(Arch(pe=PeArray(ic=2, oc=2)))
    assert known is not None
    assert frame.loc[2, "measured_gates"] == known.gates
    assert frame.loc[2, "measured_logic_um2"] == pytest.approx(known.gates * 0.798)
    assert frame.loc[[3], ["measured_gates", "measured_logic_um2"]].isna().all(axis=None)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = written(tmp_path, GRID)
    target = tmp_path / "rows.csv"
    options = ("--output", tmp_path / "r.sqlite", "--workers", "1", "--cost", "horowitz-45nm")
    assert dla(capsys, "sweep", spec, *options, "--export", target).status == 0
    assert (
        ",estimated_energy_pj,estimated_area_um2,measured_gates,measured_logic_um2"
        in target.read_text().splitlines()[0]
    )
    assert dla(capsys, "sweep", spec, *options) == (
        2, "",
        "error: --cost horowitz-45nm: it adds estimates to the table of --export FILE.csv and to "
        "a joint sweep; add one of them\n",
    )  # fmt: skip
    outcome = dla(
        capsys, "run", save_tiny(tmp_path), "--json", tmp_path / "r.json", "--cost", "horowitz-45nm"
    )
    assert outcome.status == 0
    assert "mm², estimates without bus and CPU" in outcome.out
    assert re.search(r"cost +energy [\d.]+ µJ, area [\d.]+ mm²", outcome.out)
    assert dla(capsys, "run", save_tiny(tmp_path), "--cost", "free") == (
        2, "", "error: free: no such cost table; give a .toml file or one of horowitz-45nm\n",
    )  # fmt: skip


@pytest.mark.parametrize("model", rotate(["digits-cnn", "resnet-8", "keyword-spotting"], 3))
@pytest.mark.parametrize("settings", [(), ("sram_bytes=16KiB",)])
def test_the_energy_of_the_layers_is_that_of_the_run(model: str, settings: tuple[str, ...]) -> None:
    report = run(model, settings=settings, cost="horowitz-45nm").report
    assert report.cost is not None
    energies = [layer.energy_pj for layer in report.layers]
    assert all(energy is not None and energy > 0 for energy in energies)
    assert sum(energy or 0 for energy in energies) == pytest.approx(
        report.cost.energy_pj.total, rel=1e-12
    )
    assert all(layer.energy_pj is None for layer in run(model, settings=settings).report.layers)


def test_what_layers_did_is_all_that_the_run_did() -> None:
    """Words of the stream belong to the command behind them, the end of it to the last one."""
    program = compile(load_network("digits-cnn").package, Arch(isa="v4")).programs[0]
    trace = Device(program.arch).run(program, {}, timing_only=True).trace
    activities = layer_activities(trace)
    assert sum(activities, EnergyEvents(0, 0, 0, 0)) == run_activity([trace])
    words = Counter[str]()
    commands = Counter[str]()
    before = -1
    for command, source in zip(trace.commands, trace.sources, strict=True):
        assert source is not None
        words[source.layer] += command.index - before
        commands[source.layer] += 1
        before = command.index
    words[source.layer] += len(program.words) - 1 - before
    commands[source.layer] += 1
    for activity, layer in zip(activities, trace.layers, strict=True):
        moved = layer.dram_read_bytes + layer.dram_write_bytes
        assert activity.macs == layer.macs
        assert activity.dram_bytes == moved + 8 * words[layer.name]
        assert activity.register_writes == words[layer.name] - commands[layer.name]


def test_energy_stands_beside_cycles_where_a_table_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    heading = next(
        line
        for line in dla(capsys, "run", "digits-cnn", "--all").out.splitlines()
        if "cycles" in line and "kind" in line
    )
    assert "µJ" not in heading
    words = ("--cost", "horowitz-45nm", "--json", "run.json", "--all")
    text = dla(capsys, "run", "digits-cnn", *words).out
    heading = next(line for line in text.splitlines() if "cycles" in line and "kind" in line)
    assert heading.split()[3:5] == ["cycles", "~µJ"]
    rows = dla(capsys, "report", "run.json", "--tables", "--csv", "-").out.splitlines()
    assert "energy_pj" in rows[0].split(",")
