"""The timeline follows the Trace Event Format, agrees with the trace, and suits viewers."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from dla_sim.inspection import token_pairs
from dla_sim.timing import Timing
from experiments.report.figures import RegionRun, timeline
from experiments.report.schema import UNITS, Layer
from experiments.report.timeline import TRACKS, microseconds, timeline_json
from experiments.running.simulate import SimulatedRegion
from isa.arch import PACKED
from isa.errors import InputError
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import ISA, random_case
from tests.experiments.command_line import dla
from tests.experiments.debug_runs import digits_regions, program_region


class _Event(BaseModel):
    """Fields that the format requires of every event.

    Times are microseconds, and no key is the project's own.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(min_length=1)]
    pid: int


class _Metadata(_Event):
    ph: Literal["M"]
    tid: int | None = None
    args: dict[Literal["name", "sort_index"], str | int]


class _Complete(_Event):
    ph: Literal["X"]
    cat: str
    tid: int
    ts: Annotated[float, Field(ge=0)]
    dur: Annotated[float, Field(gt=0)]
    args: dict[str, Any]


class _FlowStart(_Event):
    ph: Literal["s"]
    cat: str
    id: int
    tid: int
    ts: Annotated[float, Field(ge=0)]


class _FlowEnd(_Event):
    ph: Literal["f"]
    bp: Literal["e"]
    cat: str
    id: int
    tid: int
    ts: Annotated[float, Field(ge=0)]


class _Counter(_Event):
    ph: Literal["C"]
    ts: Annotated[float, Field(ge=0)]
    args: Annotated[dict[str, int | float], Field(min_length=1)]


_EVENTS = TypeAdapter(
    list[
        Annotated[
            _Metadata | _Complete | _FlowStart | _FlowEnd | _Counter, Field(discriminator="ph")
        ]
    ]
)


def _events(runs: Sequence[RegionRun]) -> list[Any]:
    """The validated events, times in cycles."""
    content = json.loads(timeline_json(runs))
    assert content.keys() == {"displayTimeUnit", "traceEvents"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    events = _EVENTS.validate_python(content["traceEvents"])
    for event in events:
        for key in ("ts", "dur"):
            if hasattr(event, key):
                setattr(event, key, floor(getattr(event, key) * 1000.0))
    return events


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
        for event in _events((region,)):
            if event.ph == "X" and event.args.get("cycles", {}).get("sram"):
                compute = event.tid == 2 + TRACKS.index("EX")
                assert (
                    len({"waits for bank", "waits for port"} & event.args.keys()) == 1
                ) == compute
                waiting += compute
                if compute:
                    assert (
                        3 * sum(event.args["words of it"].values()) >= event.args["cycles"]["sram"]
                    )
    assert waiting > 10


@given(st.integers(0, 10**12))
def test_times_survive_readers_that_cut_off_and_readers_that_round(cycle: int) -> None:
    assert int(microseconds(cycle) * 1000.0) == cycle == round(microseconds(cycle) * 1000.0)


def test_enough_random_programs_have_a_run() -> None:
    regions = _random_regions(range(120))
    assert sum(len(token_pairs(region.trace.workload)) for region in regions) > 20
    assert len(regions) > 40


@pytest.mark.parametrize("isa", ["v1", "v2"])
def test_slices_are_the_commands_one_after_another(isa: str) -> None:
    _, regions = digits_regions(isa)
    events = _events(regions)
    names = {event.tid: event.args["name"] for event in events if event.name == "thread_name"}
    assert tuple(names.values()) == TRACKS
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
        event for event in events if event.ph == "X" and names[event.tid] in ("LD", "EX", "ST")
    ]
    found = [(names[s.tid], s.args["word"], s.name, s.ts, s.ts + s.dur) for s in slices]
    assert sorted(found) == sorted(expected)
    programs = [event for event in events if event.ph == "X" and names[event.tid] == "program"]
    assert sum(event.dur for event in programs) == offset


def test_cycles_of_a_slice_are_explained_and_so_are_those_before_it() -> None:
    for (region,) in (runs for runs in _all_runs() if len(runs) == 1):
        ends: dict[int, int] = defaultdict(int)
        for event in _events([region]):
            if event.ph == "X" and "word" in event.args:
                assert sum(event.args["cycles"].values()) == event.dur
                assert sum(event.args["waited before"].values()) == event.ts - ends[event.tid]
                ends[event.tid] = event.ts + event.dur


def test_events_are_in_order_and_slices_of_a_track_never_overlap() -> None:
    for runs in _all_runs():
        timed = [event for event in _events(runs) if event.ph != "M"]
        assert all(before.ts <= after.ts for before, after in pairwise(timed))
        tracks: dict[int, list[Any]] = defaultdict(list)
        for event in timed:
            if event.ph == "X":
                tracks[event.tid].append(event)
        for events in tracks.values():
            assert all(before.ts + before.dur <= after.ts for before, after in pairwise(events))


def test_a_viewer_binds_every_token_to_the_command_that_pushes_and_the_one_that_pops() -> None:
    for runs in _all_runs():
        bound = _read_flows(_events(runs))
        expected = []
        for run in runs:
            words = [command.index for command in run.trace.commands]
            pairs = token_pairs(run.trace.workload)
            expected += [(words[pusher], words[popper]) for _, pusher, popper in pairs]
        assert sorted(bound) == sorted(expected)


def _read_flows(events: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the words of the slices that each flow leaves and enters.

    A flow binds to the open slice of its track.
    """
    opened: dict[int, Any] = {}
    leaving: dict[int, Any] = {}
    found = []
    for event in events:
        if event.ph == "X":
            opened[event.tid] = event
        elif event.ph in ("s", "f"):
            enclosing = opened[event.tid]
            assert enclosing.ts <= event.ts < enclosing.ts + enclosing.dur
            if event.ph == "s":
                assert event.id not in leaving
                leaving[event.id] = event, enclosing
            else:
                start, pusher = leaving.pop(event.id)
                assert (start.name, start.cat) == (event.name, event.cat)
                assert start.ts < event.ts
                found.append((pusher.args["word"], enclosing.args["word"]))
    assert not leaving
    return found


def test_counters_stay_within_the_machine_and_end_at_nothing() -> None:
    for runs in _all_runs():
        last: dict[str, Any] = {}
        for event in (event for event in _events(runs) if event.ph == "C"):
            if event.name == "bus":
                assert event.args.keys() == {"fetch", "LD", "ST"}
                assert sum(event.args.values()) == pytest.approx(100, abs=0.2) or not any(
                    event.args.values()
                )
            else:
                assert event.name == "SRAM live bytes"
                assert 0 <= event.args["bytes"] <= max(run.trace.sram_peak_bytes for run in runs)
            last[event.name] = event.args
        assert last == {
            "bus": {"fetch": 0.0, "LD": 0.0, "ST": 0.0},
            "SRAM live bytes": {"bytes": 0},
        }


def test_live_bytes_of_the_digits_network() -> None:
    """Its first load is 272 bytes of weights and records, its last read the 10 logits."""
    counts = [
        event.args["bytes"]
        for event in _events(digits_regions()[1])
        if event.name == "SRAM live bytes"
    ]
    assert counts[:2] == [0, 272]
    assert counts[-2:] == [10, 0]


def test_equal_runs_give_equal_text_of_modest_size() -> None:
    _, regions = digits_regions()
    text = timeline_json(regions)
    assert text == timeline_json(regions)
    assert len(text) < 1000 * len(regions[0].trace.commands)


def test_the_commands_run_and_simulate_write_the_same_timeline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0
    assert dla(capsys, "simulate", "digits.dla", "--trace", "one.json").out.endswith(" cycles\n")
    ran = dla(capsys, "run", "digits-cnn", "--json", "run.json", "--trace", "two.json")
    assert ran.out.endswith("report written to run.json, timeline to two.json\n")
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()
    assert Path("one.json").read_text() == timeline_json(digits_regions()[1])
    nowhere = dla(capsys, "simulate", "digits.dla", "--trace", "digits.dla/x.json")
    assert nowhere.status == 2
    assert nowhere.err.startswith("error: digits.dla/x.json: cannot be written")


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
