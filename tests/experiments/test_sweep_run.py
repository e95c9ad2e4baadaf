"""Running a sweep: figures equal whole runs, shared work is done once, every point is recorded.

No point runs twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from byoc import compiler
from byoc.options import CompileOptions
from byoc.partitioning import partition
from dla_sim.presets import load_hardware
from experiments.report.figures import RegionRun, figures
from experiments.running.inference import infer
from experiments.running.network import load_network, network_feeds
from experiments.sweep import pools, session, tasks, worker
from experiments.sweep.results import flat_rows, load
from experiments.sweep.session import SweepSession
from experiments.version import compiler_version
from isa.errors import InputError
from tests.experiments.sweeping import rows_of, run_sweep, spec_of, statuses, swept


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "open_pool", lambda scheduler, workers: pools.Here())


class Calls:
    """Counts the calls of a function of a module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.count = 0
        inner = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            return inner(*arguments, **options)

        monkeypatch.setattr(module, name, counted)


MIXED = """
    networks = ["digits-cnn"]
    schedules = ["seed", "default"]
    isa = ["v1", "v2"]
    emulate_depthwise = [false, true]
    constraints = ["isa = 'v1' or not emulate_depthwise"]
    [arch]
    pe = [{ ic = 8, oc = 8 }, { ic = 1, oc = 16, ow = 4 }]
    sram_bytes = ["4 KiB", "512 KiB"]
    [timing]
    bus_bytes = [4, 16]
    dram_latency = 400
"""


def test_figures_equal_those_of_whole_runs(tmp_path: Path) -> None:
    swept(tmp_path, MIXED)
    rows = list(flat_rows(tmp_path / "results.sqlite"))
    assert len(rows) == 2 * 3 * 2 * 2 * 2
    assert {row["status"] for row in rows} == {"ok"}
    network = load_network("digits-cnn")
    feeds = network_feeds(network)
    for row in rows:
        keys = ("pe.ic", "pe.oc", "pe.ow", "sram_bytes", "bus_bytes", "dram_latency")
        hardware = load_hardware(None, [f"{key}={row[key]}" for key in keys], row["isa"])
        options = CompileOptions(row["schedule"], row["emulate_depthwise"])
        done = infer(network, hardware, feeds, options)
        programs = done.compiled.programs
        reports = done.compiled.reports
        regions = [
            RegionRun(
                index,
                programs[index],
                trace,
                reports[index].compulsory_bytes,
                reports[index].demand,
            )
            for index, trace in done.result.traces.items()
        ]
        whole = figures(hardware, regions)
        # rows have those of all system memory alone
        totals = whole.totals.model_dump(exclude={"flash_read_bytes"})
        assert {name: row[name] for name in totals} == totals
        assert {kind: row[f"kinds.{kind}"] for kind in whole.kinds} == whole.kinds
        assert {kind: row[f"ex_cycles.{kind}"] for kind in whole.ex_cycles} == whole.ex_cycles
        for unit, causes in whole.units.items():
            assert {cause: row[f"{unit}.{cause}"] for cause in causes} == causes
        assert row["host_nodes"] == sum(
            len(part.nodes) for part in done.compiled.partition.host_parts
        )
        assert (row["regions"], row["package"]) == (len(programs), network.package.digest)


def test_memory_modes_are_presets_and_their_constants_are_axes(tmp_path: Path) -> None:
    """The same machine by a preset file and by axes is the same run.

    A constraint may name what is no axis.
    """
    (tmp_path / "axes").mkdir()
    (tmp_path / "flash.toml").write_text('memory_mode = "flash"\n[arch]\nisa = "v4"\n')
    by_mode = swept(tmp_path, 'networks = "tiny.onnx"\npresets = ["./flash.toml"]\n')
    text = """
        networks = "tiny.onnx"
        isa = "v4"
        constraints = ["flash_latency == 64"]
        [timing]
        dram_latency = 32
        flash_bytes = [0, 1]
        [arch]
        pe = [{ ic = 8, oc = 8 }]
    """
    by_axes = {
        json.loads(str(row["timing"]))["flash_bytes"]: row
        for row in swept(tmp_path / "axes", text).values()
    }
    (named,) = by_mode.values()
    assert named["cycles"] == by_axes[1]["cycles"]
    assert by_axes[0]["cycles"] != by_axes[1]["cycles"]
    for row in (named, by_axes[1]):
        assert json.loads(str(row["units"]))["LD"]["flash"]
    rows = load(tmp_path / "axes" / "results.sqlite", cost="horowitz-45nm").set_index("flash_bytes")
    assert rows["estimated_energy_pj"].isna().to_dict() == {0: False, 1: True}
    assert not rows["estimated_area_um2"].isna().any()


def test_integer_interfaces_are_points_of_their_own(tmp_path: Path) -> None:
    """A sweep with real inputs continues with integer ones.

    Nothing runs twice, and the CPU has less to do.
    """
    text = 'networks = "digits-cnn"\n{}\n[arch]\npe.oc = [4, 8]\n'
    before = swept(tmp_path, text.format(""))
    rows = swept(tmp_path, text.format("integer_io = [false, true]"))
    assert (len(before), len(rows)) == (2, 4)
    assert {key: rows[key] for key in before} == before
    by_interface: dict[object, list[tuple[object, ...]]] = {0: [], 1: []}
    for row in sorted(rows.values(), key=lambda row: str(row["arch"])):
        by_interface[row["integer_io"]].append(
            (row["host_nodes"], row["cycles"], row["dram_read_bytes"])
        )
    assert [found[1:] for found in by_interface[0]] == [found[1:] for found in by_interface[1]]
    assert [[found[0] for found in by_interface[kind]] for kind in (0, 1)] == [[2, 2], [0, 0]]


@pytest.mark.usefixtures("in_process")
def test_shared_work_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = Calls(monkeypatch, tasks, "load")
    lowered = list[tuple[object, ...]]()
    inner = partition.lower
    monkeypatch.setattr(
        partition, "lower", lambda *given: lowered.append(given[:1] + given[2:]) or inner(*given)
    )
    compilations = Calls(monkeypatch, compiler, "compile_region")
    text = """
        networks = ["tiny.onnx", "digits-cnn"]
        isa = ["v1", "v2"]
        constraints = ["network = 'tiny.onnx' or isa = 'v2'"]
        [arch]
        pe.oc = [4, 8]
        sram_bytes = [16384, 32768, 65536]
        [timing]
        dram_latency = { from = 1, to = 20, step = 1 }
        ex_fill = [4, 8]
    """
    tally = run_sweep(spec_of(tmp_path, text), tmp_path / "results.sqlite")
    machines = (2 + 1) * 2 * 3
    assert tally.new == {"ok": machines * 40, "infeasible": 0, "failed": 0}
    assert imports.count == 2
    assert len({target for *_, target in lowered}) == 2
    assert lowered
    # for all sizes of the machine
    assert len(lowered) == len({(id(node), target) for _, node, target in lowered})
    assert compilations.count == tally.compilations == machines  # one region each


RECORDS = """
    networks = "tiny.onnx"
    schedules = ["seed", "default"]
    [arch]
    sram_bytes = [512, 65536]
    alignment = [8, 24]
    [timing]
    bus_bytes = [8, 128]
"""


@pytest.mark.usefixtures("in_process")
def test_every_point_ends_as_a_record(tmp_path: Path) -> None:
    rows = swept(tmp_path, RECORDS)
    assert len(rows) == 16
    for row in rows.values():
        arch = json.loads(str(row["arch"]))
        timing = json.loads(str(row["timing"]))
        if arch["alignment"] == 24:
            expected = "failed", "no such machine: alignment is 24; it must be a power of two", None
        elif arch["sram_bytes"] == 512 and row["schedule"] == "seed":
            message = (
                "conv: does not fit in 512 bytes of SRAM: input 256 + output channel 512 + "
                "weights 128 + "
                "channel record 8 + alignment 24 = 928 bytes, 416 missing"
            )
            expected = "infeasible", message, 416
        elif timing["bus_bytes"] == 128:
            expected = (
                "failed",
                "no such machine: burst_bytes 64 must be at least bus_bytes 128",
                None,
            )
        else:
            expected = "ok", None, None
        assert (row["status"], row["message"], row["missing_bytes"]) == expected
        assert (row["cycles"] is None) == (row["status"] != "ok")


@pytest.mark.usefixtures("in_process")
def test_points_with_a_row_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, RECORDS)
    output = tmp_path / "results.sqlite"
    first = run_sweep(spec, output)
    rows = rows_of(output)
    compilations = Calls(monkeypatch, compiler, "compile_region")
    again = run_sweep(spec, output)
    assert (again.stored, again.done, compilations.count) == (first.done, first.done, 0)
    retried = run_sweep(spec, output, retry_failed=True)
    assert retried.new == {"ok": 0, "infeasible": 0, "failed": first.new["failed"]}
    assert rows_of(output) == rows


@pytest.mark.usefixtures("in_process")
def test_equal_machines_under_two_names_run_once(tmp_path: Path) -> None:
    (tmp_path / "same.toml").write_text("[arch]\npe = { ic = 64, oc = 1 }\n")
    text = """
        networks = "tiny.onnx"
        presets = ["seed-i64", "same.toml"]
        timing.dram_latency = { from = 1, to = 100, step = 1 }
    """
    tally = run_sweep(spec_of(tmp_path, text), tmp_path / "results.sqlite")
    assert (tally.new["ok"], tally.stored, tally.compilations) == (100, 100, 1)


@pytest.mark.usefixtures("in_process")
def test_what_goes_wrong_in_a_worker_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the sums\ndiffer")

    monkeypatch.setattr(compiler, "compile_region", broken)
    text = """
        networks = "tiny.onnx"
        arch.sram_bytes = [32768, 65536]
        timing.dram_latency = { from = 1, to = 150, step = 1 }
    """
    rows = swept(tmp_path, text)
    assert len(rows) == 300
    assert {(row["status"], row["message"]) for row in rows.values()} == {
        ("failed", "AssertionError: the sums differ")
    }


@pytest.mark.usefixtures("in_process")
def test_workers_of_another_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "compiler_version", lambda: "0.0.1")
    with pytest.raises(InputError) as raised:
        swept(tmp_path, 'networks = "tiny.onnx"')
    message = (
        f"a worker has version 0.0.1 and this sweep {compiler_version()}; install the same on all "
        "machines"
    )
    assert str(raised.value) == message


@pytest.mark.usefixtures("in_process")
def test_results_of_another_version_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another compiler may give other cycles, even where the version's number is the same."""
    text = 'networks = "tiny.onnx"'
    path = tmp_path / "results.sqlite"
    for module in (worker, session, tasks):
        monkeypatch.setattr(module, "compiler_version", lambda: "0.1.0+before")
    before = swept(tmp_path, text)
    monkeypatch.undo()
    monkeypatch.setattr(pools, "open_pool", lambda scheduler, workers: pools.Here())
    with pytest.raises(InputError) as raised:
        swept(tmp_path, text)
    assert str(raised.value) == (
        f"{path}: has results of version 0.1.0+before, this is version {compiler_version()}, whose "
        "cycles may differ; "
        "write to another file with --output"
    )
    assert rows_of(path) == before


@pytest.mark.usefixtures("in_process")
def test_a_session_runs_what_it_is_asked_for(tmp_path: Path) -> None:
    text = """
        networks = "tiny.onnx"
        constraints = "N <= 64"
        arch.pe.oc = [4, 8, 64]
        timing.bus_bytes = [8, 16]
    """
    with SweepSession(spec_of(tmp_path, text), tmp_path / "results.sqlite") as session:
        found = session.evaluate(
            [{"pe.oc": 8, "bus_bytes": 16}, {"pe.oc": 64}, {"pe.oc": 8, "bus_bytes": 16}]
        )
        assert found[1] is None
        assert found[0] is not None
        assert found[0] == found[2]
        assert (
            found[0]["pe.oc"],
            found[0]["bus_bytes"],
            found[0]["pe.count"],
            found[0]["status"],
        ) == (8, 16, 32, "ok")
        assert statuses(session.store) == {"ok": 1}
