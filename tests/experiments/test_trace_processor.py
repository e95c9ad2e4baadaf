"""Perfetto's trace processor opens the timelines, and the SQL of the guide gives their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import DOTALL, MULTILINE, findall
from typing import Any

import numpy as np
import pytest

from dla_sim.systems.simulate import Interval
from dla_sim.systems.spec import parse_system
from experiments.report.schema import WITHIN, RunReport
from experiments.running.inference import run
from experiments.systems.running import run_system, timeline_trace
from tests.e2e.user_tasks import own_network
from tests.experiments.trace_processor import Query, Rows, trace_processor

pytestmark = pytest.mark.slow
GUIDE = Path(__file__).parents[2] / "docs" / "debugging.md"
LAYERS, PARTS, KINDS, CAUSES, WORK, TOTAL = range(6)
"""Positions of the statements in the guide."""


@cache
def _statements() -> list[str]:
    """The SQL of the guide, in order."""
    return findall(r"^```sql\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), DOTALL | MULTILINE)


@dataclass
class _Ran:
    """The report of a run, and what answers questions about its timeline."""

    report: RunReport
    query: Query


@pytest.fixture(scope="module")
def open_trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Query]]:
    with trace_processor(tmp_path_factory.mktemp("processor")) as found:
        yield found


NETWORKS: dict[str, tuple[str | tuple[int, ...], dict[str, Any]]] = {
    "mobilenet-v1": ("mobilenet-v1", {}),
    "two regions": ("digits-cnn", {"isa": "v1"}),
    "banked memory": ("keyword-spotting", {"isa": "v5", "settings": {"sram_banks": 4}}),
    "flash": ("digits-cnn", {"memory_mode": "flash"}),
    "batch": ((3, 3, 16, 16), {}),
    "inferences": ((1, 3, 16, 16), {"inputs": np.zeros((3, 3, 16, 16), np.float32)}),
}
"""Model of each run, or the shape of a model's input, and further arguments."""


@pytest.fixture(scope="module", params=NETWORKS)
def ran(
    request: pytest.FixtureRequest,
    open_trace: Callable[[Path], Query],
    tmp_path_factory: pytest.TempPathFactory,
) -> _Ran:
    folder = tmp_path_factory.mktemp("run")
    model, rest = NETWORKS[request.param]
    network = model if isinstance(model, str) else own_network(folder, shape=model)
    report = run(network, timeline=folder / "run.pftrace", **rest).report
    return _Ran(report, open_trace(folder / "run.pftrace"))


def _present(table: Mapping[str, int]) -> dict[str, int]:
    """The entries that are not 0."""
    return {name: cycles for name, cycles in table.items() if cycles}


def test_the_trace_processor_finds_no_mistake(ran: _Ran) -> None:
    sql = "SELECT name, value FROM stats WHERE severity != 'info' AND value > 0"
    assert ran.query(sql) == []
    assert ran.query("SELECT COUNT(*) FROM flow") > [(0,)]


def test_layers_and_kinds_and_the_total_are_those_of_the_report(ran: _Ran) -> None:
    statements = _statements()
    assert ran.query(statements[TOTAL]) == [(ran.report.totals.cycles,)]
    layers = Counter[str]()
    for layer in ran.report.layers:
        layers[layer.name] += layer.cycles
    assert dict(ran.query(statements[LAYERS])) == dict(+layers)
    assert dict(ran.query(statements[KINDS])) == _present(ran.report.kinds)


def test_the_parts_of_every_layer_are_those_of_the_report(ran: _Ran) -> None:
    statement = _statements()[PARTS]
    assert statement.count("'logits'") == 1
    for layer in ran.report.layers:
        asked = statement.replace("'logits'", f"'{layer.name}'")
        assert dict(ran.query(asked)) == _present(layer.breakdown)
        assert sum(layer.breakdown.values()) == layer.cycles


def test_units_and_waits_are_those_of_the_report(ran: _Ran) -> None:
    statement = _statements()[CAUSES]
    found = _causes(ran.query(statement))
    for unit, causes in ran.report.units.items():
        expected = _present(causes)
        assert found[unit].pop("drained", 0) == 0
        drained = ran.report.totals.cycles - sum(found[unit].values())
        assert found[unit] | {"drained": drained} == expected
    for layer in ran.report.layers:
        named = statement.replace("WHERE ", f"WHERE slice.name = '{layer.name}' AND (")
        found = _causes(ran.query(named.replace("\nGROUP", ")\nGROUP")))
        for unit, stalls in layer.stalls.items():
            found.get(unit, {}).pop("busy", None)
            assert found.get(unit, {}) == _present(stalls)


def _causes(rows: Rows) -> dict[str, dict[str, int]]:
    """Cycles by unit and cause."""
    found: dict[str, dict[str, int]] = {}
    for unit, key, cycles in rows:
        _, when, cause = key.split(".")
        assert (cause in WITHIN) == (when == "cycles")
        found.setdefault(unit, {})[cause] = cycles
    return found


def test_work_and_bytes_are_those_of_the_report(ran: _Ran) -> None:
    rows = ran.query(_statements()[WORK])
    found = {layer: figures for layer, _, *figures in rows}
    for layer in ran.report.layers:
        figures = [layer.macs, layer.dram_read_bytes, layer.dram_write_bytes]
        assert found[layer.name] == figures
    totals = ran.report.totals
    commands, macs, read, written = (sum(column) for column in list(zip(*rows, strict=True))[1:])
    regions = len({layer.region for layer in ran.report.layers})
    assert commands + regions == totals.instructions
    assert (macs, read, written) == (
        totals.macs, totals.dram_read_bytes, totals.dram_write_bytes
    )  # fmt: skip


def test_the_area_of_the_counter_of_conflicts_is_the_waits_of_the_report(ran: _Ran) -> None:
    rows = ran.query("""
        SELECT track.name, SUM(value * dur) / 100
        FROM (SELECT track_id, value, LEAD(ts) OVER (PARTITION BY track_id ORDER BY ts) - ts AS dur
              FROM counter) AS step JOIN track ON step.track_id = track.id
        WHERE track.name GLOB 'bank conflicts*' GROUP BY track.name
    """)
    waits = {f"bank conflicts {unit}": of["sram"] for unit, of in ran.report.units.items()}
    assert {name: area or 0 for name, area in rows} == pytest.approx(waits)
    if ran.report.arch["sram_banks"] == 4:
        assert any(waits.values())


def test_where_the_cycles_of_logits_went(
    open_trace: Callable[[Path], Query], tmp_path: Path
) -> None:
    """The answer of the guide's statement, as it stands there."""
    report = run("mobilenet-v1", isa="v4", timeline=tmp_path / "run.pftrace").report
    (logits,) = (layer for layer in report.layers if layer.name == "logits")
    part, cycles = open_trace(tmp_path / "run.pftrace")(_statements()[PARTS])[0]
    assert part == "weights"
    assert cycles == logits.breakdown["weights"] > 0.8 * logits.cycles


SYSTEM = """
[[accelerator]]
name = "npu"
count = 2
[cpu]
cores = 1
[[task]]
name = "digits"
model = "digits-cnn"
period = "20us"
[[task]]
name = "words"
model = "keyword-spotting"
period = "100us"
[[task]]
name = "plan"
cpu = "5us"
after = ["digits"]
[run]
until = "300us"
policy = "edf"
preempt = "tile"
"""


def test_the_timeline_of_a_system_gives_the_figures_of_its_report(
    open_trace: Callable[[Path], Query], tmp_path: Path
) -> None:
    intervals: list[Interval] = []
    report = run_system(parse_system(SYSTEM), watch=intervals.append)
    (tmp_path / "system.pftrace").write_bytes(timeline_trace(report, intervals))
    query = open_trace(tmp_path / "system.pftrace")
    busy = query("""
        SELECT track.name, SUM(slice.dur) FROM slice JOIN track ON slice.track_id = track.id
        GROUP BY track.name
    """)
    assert dict(busy) == {unit.name: unit.busy for unit in report.units if unit.busy}
    assert len(busy) == 3
    jobs = query("""
        SELECT category, COUNT(DISTINCT EXTRACT_ARG(arg_set_id, 'debug.job')) FROM slice
        GROUP BY category
    """)
    for task in report.tasks:
        assert task.ended <= dict(jobs)[task.name] <= task.released
    assert query("SELECT COUNT(*) FROM stats WHERE severity != 'info' AND value > 0") == [(0,)]
