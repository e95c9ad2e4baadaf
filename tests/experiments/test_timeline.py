"""The timeline is a trace in Perfetto's format that agrees with the run, and suits viewers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dla_sim.engine.accounts import CAUSES, SRAM
from dla_sim.inspection import bus_usage, token_pairs
from dla_sim.timing import Timing
from experiments.report.figures import RegionRun, timeline
from experiments.report.schema import UNITS, Layer
from experiments.report.timeline import COUNTERS, TRACKS, timeline_trace
from experiments.running.simulate import SimulatedRegion
from isa.arch import PACKED
from isa.errors import InputError
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import ISA, random_case
from tests.experiments.command_line import dla
from tests.experiments.debug_runs import digits_regions, program_region
from tests.experiments.trace_reader import ReadSlice, ReadTrace, read_trace


def _read(runs: Sequence[RegionRun]) -> ReadTrace:
    return read_trace(timeline_trace(runs))


@cache
def _random_regions(seeds: range, isa: str = ISA) -> list[SimulatedRegion]:
    regions = []
    for seed in seeds:
        case = random_case(seed, isa)
        try:
            regions.append(program_region(build_program(case), Timing(**case.timing)))
        except InputError:  # a race between commands: there is no such run
            continue
    return regions


def _all_runs() -> list[tuple[SimulatedRegion, ...]]:
    return [
        digits_regions()[1],
        digits_regions("v1")[1],
        *((region,) for region in _random_regions(range(120))),
    ]


def test_waits_for_banks_of_words_are_named() -> None:
    waiting = 0
    for region in _random_regions(range(40), PACKED):
        for one in _read((region,)).of(*UNITS):
            if one.arguments["cycles"].get("sram"):
                compute = one.track == "EX"
                assert (len({"bank", "port"} & one.arguments.keys()) == 1) == compute
                waiting += compute
                if compute:
                    words = sum(one.arguments["words"].values())
                    assert 3 * words >= one.arguments["cycles"]["sram"]
    assert waiting > 10


def test_enough_random_programs_have_a_run() -> None:
    regions = _random_regions(range(120))
    assert sum(len(token_pairs(region.trace.workload)) for region in regions) > 20
    assert len(regions) > 40


@pytest.mark.parametrize("isa", ["v1", "v2"])
def test_slices_are_the_commands_one_after_another(isa: str) -> None:
    _, regions = digits_regions(isa)
    found = _read(regions)
    group, *names = found.tracks.values()
    assert "1 ns = 1 cycle" in group
    assert names == [*TRACKS, *COUNTERS]
    assert len(regions) == {"v1": 2, "v2": 1}[isa]
    offset = 0
    expected = []
    for region in regions:
        times = region.trace.times
        for number, command in enumerate(region.trace.commands):
            source = region.trace.sources[number]
            assert source is not None
            span = (offset + int(times.start[number]), offset + int(times.end[number]))
            expected.append((command.unit.name, command.index, source.layer, *span))
        offset += region.trace.cycles
    slices = [
        (one.track, one.arguments["word"], one.name, one.begin, one.end) for one in found.of(*UNITS)
    ]
    assert sorted(slices) == sorted(expected)
    assert sum(one.duration for one in found.of("program")) == offset


def test_cycles_of_a_slice_are_explained_and_so_are_those_before_it() -> None:
    for (region,) in (runs for runs in _all_runs() if len(runs) == 1):
        ends: dict[str, int] = defaultdict(int)
        for one in _read([region]).of(*UNITS):
            assert sum(one.arguments["cycles"].values()) == one.duration
            assert sum(one.arguments["waits"].values()) == one.begin - ends[one.track]
            ends[one.track] = one.end


def test_work_and_traffic_of_the_slices_are_those_of_the_run() -> None:
    for runs in _all_runs():
        slices = _read(runs).of(*UNITS)
        for run in runs:
            mine = [one.arguments for one in slices if one.arguments["region"] == run.region]
            for key, total in (
                ("macs", run.trace.macs),
                ("read_bytes", run.trace.dram_read_bytes),
                ("write_bytes", run.trace.dram_write_bytes),
            ):
                assert sum(arguments[key] for arguments in mine) == total


def test_layers_cover_every_cycle_and_their_parts_are_the_breakdown() -> None:
    for runs in _all_runs():
        slices = _read(runs).of("layers")
        layers = [one for one in slices if one.outer is None]
        assert all(before.end == after.begin for before, after in pairwise(layers))
        found = Counter[tuple[int, str, str]]()
        kinds = Counter[str]()
        for one in slices:
            if one.outer is not None:
                assert one.outer.begin <= one.begin < one.end <= one.outer.end
                key = one.outer.arguments["region"], one.outer.name, one.name
                found[key] += one.duration
                kinds[one.category] += one.duration
        expected = Counter[tuple[int, str, str]]()
        for run in runs:
            rows = zip(run.trace.layers, run.trace.breakdown, strict=True)
            for layer, parts in rows:
                for part, cycles in parts.items():
                    expected[run.region, layer.name or "no layer", part] += cycles
            if run.trace.commands:
                kinds.subtract(run.trace.kinds)
        assert found == +expected
        assert not any(kinds.values())


def test_events_are_in_order_and_slices_of_a_track_never_overlap() -> None:
    for runs in _all_runs():
        found = _read(runs)
        assert found.times == sorted(found.times)
        for track in TRACKS:
            slices = [one for one in found.of(track) if one.outer is None]
            assert all(one.duration > 0 for one in slices)
            assert all(before.end <= after.begin for before, after in pairwise(slices))
            assert track == "layers" or slices == found.of(track)


def test_every_token_is_a_flow_from_the_command_that_pushes_it_to_the_one_that_pops_it() -> None:
    for runs in _all_runs():
        leaving: dict[int, ReadSlice] = {}
        bound = []
        for one in sorted(_read(runs).slices, key=lambda found: found.begin):
            for flow in one.entering:
                pusher = leaving.pop(flow)
                assert pusher.end <= one.begin
                bound.append((pusher.arguments["word"], one.arguments["word"]))
            assert not leaving.keys() & set(one.leaving)
            leaving |= dict.fromkeys(one.leaving, one)
        assert not leaving
        expected = []
        for run in runs:
            words = [command.index for command in run.trace.commands]
            pairs = token_pairs(run.trace.workload)
            expected += [(words[pusher], words[popper]) for _, pusher, popper in pairs]
        assert sorted(bound) == sorted(expected)


def test_counters_stay_within_the_machine_and_end_at_nothing() -> None:
    for runs in _all_runs():
        found = _read(runs)
        assert found.counters.keys() == set(COUNTERS)
        for name, values in found.counters.items():
            most = max(run.trace.sram_peak_bytes for run in runs) if "SRAM" in name else 100
            assert all(before[0] < after[0] for before, after in pairwise(values))
            assert all(0 <= value <= most for _, value in values)
            assert values[-1][1] == 0


def test_areas_of_counters_are_the_slots_of_the_bus_and_the_waits_for_the_scratchpad() -> None:
    waits = 0
    packed = [(region,) for region in _random_regions(range(20), PACKED)]
    for runs in _all_runs() + packed:
        found = _read(runs)
        expected = Counter[str]()
        for run in runs:
            for stretch in bus_usage(run.trace.workload).stretches:
                for port, slots in zip(("fetch", "LD", "ST"), stretch.granted, strict=True):
                    expected[f"bus {port}"] += slots
            for unit, causes in run.trace.units.items():
                expected[f"bank conflicts {unit}"] += causes[CAUSES[SRAM]]
                waits += causes[CAUSES[SRAM]]
        for name, area in expected.items():
            values = found.counters[name]
            steps = ((after[0] - before[0]) * before[1] for before, after in pairwise(values))
            assert sum(steps) / 100 == pytest.approx(area)
    assert waits > 100


def test_live_bytes_of_the_digits_network() -> None:
    """Its first load is 272 bytes of weights and records, its last read the 10 logits."""
    counts = [value for _, value in _read(digits_regions()[1]).counters["SRAM live bytes"]]
    assert counts[:2] == [0, 272]
    assert counts[-2:] == [10, 0]


def test_equal_runs_give_equal_bytes_of_modest_size() -> None:
    _, regions = digits_regions()
    content = timeline_trace(regions)
    assert content == timeline_trace(regions)
    assert len(content) < 1000 * len(regions[0].trace.commands)


def test_the_commands_run_and_simulate_write_the_same_timeline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0
    alone = dla(capsys, "simulate", "digits.dla", "--trace", "one.pftrace")
    assert alone.out.endswith(" cycles\n")
    ran = dla(capsys, "run", "digits-cnn", "--json", "run.json", "--trace", "two.pftrace")
    assert ran.out.endswith("report written to run.json, timeline to two.pftrace\n")
    assert Path("one.pftrace").read_bytes() == Path("two.pftrace").read_bytes()
    assert Path("one.pftrace").read_bytes() == timeline_trace(digits_regions("v5")[1])
    nowhere = dla(capsys, "simulate", "digits.dla", "--trace", "digits.dla/x.pftrace")
    assert nowhere.status == 2
    assert nowhere.err.startswith("error: digits.dla/x.pftrace: cannot be written")


def _layers(runs: Sequence[RegionRun]) -> list[Layer]:
    """The layers of a report, in an order that is not that of time.

    Only their names matter here.
    """
    figures = dict.fromkeys(("cycles", "macs", "dram_read_bytes", "dram_write_bytes", "tiles"), 0)
    rest: dict[str, Any] = {"onnx_nodes": (), "utilization": 0.0, "stalls": {}, **figures}
    found = [(run.region, layer) for run in runs for layer in run.trace.layers]
    return [
        Layer(name=layer.name, kind=layer.kind, region=region, **rest)
        for region, layer in reversed(found)
    ]


def test_spans_of_a_report_are_the_commands_where_there_is_room() -> None:
    for runs in _all_runs():
        layers = _layers(runs)
        found = timeline(runs, layers)
        assert found.window == 1
        for number, unit in enumerate(UNITS):
            expected = []
            offset = 0
            for run in runs:
                for member in run.trace.workload.demands.by_unit[number].tolist():
                    source = run.trace.sources[member]
                    name = "" if source is None else source.layer
                    place = [(layer.region, layer.name) for layer in layers].index(
                        (run.region, name)
                    )
                    begin, end = (
                        offset + int(at[member])
                        for at in (run.trace.times.start, run.trace.times.end)
                    )
                    expected.append((begin, end, end - begin, 1, place))
                offset += run.trace.cycles
            spans = found.units[unit]
            columns = (spans.begin, spans.end, spans.active, spans.commands, spans.layer)
            assert list(zip(*columns, strict=True)) == expected


@pytest.mark.parametrize("most", [1, 5, 40])
def test_spans_of_a_report_are_few_and_lose_no_cycle(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.report.figures.TIMELINE_SPANS", most)
    for runs in _all_runs():
        layers = _layers(runs)
        few = timeline(runs, layers)
        monkeypatch.setattr("experiments.report.figures.TIMELINE_SPANS", 10**6)
        every = timeline(runs, layers)
        monkeypatch.setattr("experiments.report.figures.TIMELINE_SPANS", most)
        assert few.window & (few.window - 1) == 0
        for unit, spans in few.units.items():
            single = every.units[unit]
            assert len(spans.begin) <= most
            assert sum(spans.active) == sum(single.active)
            assert sum(spans.commands) == len(single.begin)
            assert len({begin // few.window for begin in spans.begin}) == len(spans.begin)
            for begin, end, active, layer in zip(
                spans.begin, spans.end, spans.active, spans.layer, strict=True
            ):
                members = [place for place, at in enumerate(single.begin) if begin <= at < end]
                cycles = Counter[int]()
                for place in members:
                    cycles[single.layer[place]] += single.active[place]
                assert (single.begin[members[0]], single.end[members[-1]]) == (begin, end)
                assert sum(cycles.values()) == active
                assert cycles[layer] == max(cycles.values())
