"""``dla tune`` and ``dla explain``: logs, exact replay, the cost model, donors, and bad input."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import byoc
from byoc.compiler import partition_package
from byoc.operators.layer import BufferSlots, Tiling
from byoc.options import DEFAULTS, Choices, CompileOptions, GroupChoice, LayerChoice, place_groups
from byoc.tuning.log import LoggedSite, load_tuned, mend, read_log
from byoc.tuning.subject import Measurement, State, TuningSubject, state_of
from byoc.tuning.transfer import Donor, choose_donor, schedules_of, shares_of
from dla_sim.presets import Preset, load_hardware
from dla_sim.program_timing import ProgramTiming
from experiments.running.network import Network, load_network
from experiments.tune.explain import explain, list_chosen_schedules
from experiments.tune.request import SearchOptions
from experiments.tune.tuning import clock_of, model_file, tune_network
from experiments.version import compiler_version
from isa.errors import InputError
from tests.experiments.command_line import dla
from tests.rotation import rotate

SETTINGS = ["sram_bytes=6144", "pe.ic=16"]


@cache
def digits() -> Network:
    return load_network("digits-cnn")


@cache
def machine() -> Preset:
    return load_hardware(settings=SETTINGS)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a search."""
    path = tmp_path_factory.mktemp("tune") / "digits.jsonl"
    tune_network(digits(), machine(), DEFAULTS, path, SearchOptions(measurements=16))
    return path


def test_every_schedule_is_replayed_exactly(log: Path) -> None:
    found = read_log(log)
    best = load_tuned(log, DEFAULTS, compiler_version())
    assert (best.layers, best.residents, best.groups) == (
        found.best.choices.layers, found.best.choices.residents, found.best.choices.groups,
    )  # fmt: skip
    placed = [record for record in found.records if record.measurement.cycles is not None]
    assert len({record.measurement.cycles for record in placed}) > 3
    assert (found.best.measurement.cycles or 0) < (placed[0].measurement.cycles or 0)
    for choices, measured in [
        (DEFAULTS.chosen, placed[0]),
        *((record.choices, record) for record in placed),
    ]:
        network = byoc.compile(digits().package, machine().arch, CompileOptions(chosen=choices))
        timings = [
            ProgramTiming(program).run(machine().timing) for program in network.programs.values()
        ]
        assert sum(timing.cycles for timing in timings) == measured.measurement.cycles
        assert sum(measured.measurement.sites) == measured.measurement.cycles


def test_the_same_search_writes_the_same_bytes(log: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    tune_network(digits(), machine(), DEFAULTS, again, SearchOptions(measurements=16))
    assert again.read_bytes() == log.read_bytes()
    models = [
        [file.read_bytes() for file in (model_file(one),) if file.exists()] for one in (again, log)
    ]
    assert models[0] == models[1]  # none where a few samples only were measured
    tune_network(
        digits(),
        machine(),
        DEFAULTS,
        tmp_path / "other.jsonl",
        SearchOptions(measurements=10, search_seed=1),
    )
    other = (tmp_path / "other.jsonl").read_bytes().split(b"\n")
    assert other[1] == log.read_bytes().split(b"\n")[1]  # the compiler's own schedule
    assert other[2:11] != log.read_bytes().split(b"\n")[2:11]


def test_a_log_that_was_cut_off_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    whole = '{"a":1}\n{"b":"é"}\n\n{"c":3}\n'.encode()
    path = tmp_path / "cut.jsonl"
    for place in range(len(whole) + 1):
        path.write_bytes(whole[:place])
        kept = whole[: whole.rfind(b"\n", 0, place) + 1]
        mend(path)
        assert path.read_bytes() == kept


@pytest.mark.parametrize("share", rotate([0.0, 0.01, 0.55, 0.999, 1.0], 3))
def test_a_search_that_was_killed_goes_on_where_it_was(
    log: Path, tmp_path: Path, share: float
) -> None:
    whole = log.read_bytes()
    path = tmp_path / "cut.jsonl"
    path.write_bytes(whole[: int(len(whole) * share)])
    measured: list[int] = []
    found = tune_network(
        digits(),
        machine(),
        DEFAULTS,
        path,
        SearchOptions(measurements=16),
        lambda count, cycles: measured.append(count),
    )
    assert path.read_bytes() == whole
    assert measured == list(range(1, 17))
    assert found.kept == max(whole[: int(len(whole) * share)].count(b"\n") - 1, 0)


def test_what_the_log_has_is_not_measured_again(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TuningSubject, "measure", None)
    assert (
        tune_network(digits(), machine(), DEFAULTS, log, SearchOptions(measurements=16)).kept == 16
    )
    assert (
        tune_network(digits(), machine(), DEFAULTS, log, SearchOptions(measurements=10)).kept == 10
    )


def test_without_the_model(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    path = tmp_path / "plain.jsonl"
    with pytest.raises(
        InputError,
        match=r"needs LightGBM; search with --no-model, or install it with: .+ 'lightgbm>=",
    ):
        tune_network(digits(), machine(), DEFAULTS, path, SearchOptions(measurements=3))
    assert not path.exists()
    tune_network(digits(), machine(), DEFAULTS, path, SearchOptions(measurements=3, learn=False))
    assert not model_file(path).exists()


def test_nothing_is_proposed_after_the_last_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # schedules for other memories, proposed second
    monkeypatch.setattr(TuningSubject, "others", None)
    search = SearchOptions(measurements=1, learn=False)
    assert (
        len(tune_network(digits(), machine(), DEFAULTS, tmp_path / "one.jsonl", search).log.records)
        == 1
    )


@pytest.mark.parametrize("model", [True, False])
@pytest.mark.parametrize("seed", rotate(range(2), 2))
def test_a_poor_schedule_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, model: bool
) -> None:
    """The search improves a poor schedule.

    It has single rows in single buffers, and no resident tensors or groups.
    """
    names = "conv", "depthwise", "pointwise", "pool", "classifier"
    layers = tuple(LayerChoice(name, rows=1, slots=(1, 1, 1)) for name in names)
    chosen = CompileOptions(chosen=Choices(layers, (), ()))
    poor = byoc.compile(digits().package, machine().arch, chosen).reports[0].choices
    monkeypatch.setattr(TuningSubject, "own", lambda self: poor)
    found = tune_network(
        digits(),
        machine(),
        DEFAULTS,
        tmp_path / "log.jsonl",
        SearchOptions(measurements=16, search_seed=seed, learn=model),
    ).log
    assert found.records[0].choices == poor
    assert (found.best.measurement.cycles or 0) < 0.8 * (found.records[0].measurement.cycles or 0)


def test_shares_and_schedules(log: Path) -> None:
    found = partition_package(digits().package, machine().arch)
    subject = TuningSubject(
        found.regions, found.graph.values, machine().arch, clock_of(machine().timing)
    )
    assert [site.kind for site in subject.sites] == [
        "OP_CONV",
        "OP_DEPTH_CONV",
        "OP_CONV",
        "OP_POOL",
        "OP_CONV",
    ]
    shares = shares_of(subject.sites, (30, 20, 40, 5, 5))
    assert shares == {"OP_CONV": 0.75, "OP_DEPTH_CONV": 0.2, "OP_POOL": 0.05}
    donor = read_log(log)
    assert schedules_of(donor) == {"OP_CONV": 3, "OP_DEPTH_CONV": 1, "OP_POOL": 1}
    assert choose_donor([donor], shares) is donor
    resident, budget = subject.room(subject.sites[0], frozenset())
    tilings = list(Donor(subject, donor).tilings(0, resident, budget))
    assert tilings
    assert len(set(tilings)) == len(tilings)


def test_schedules_are_transferred(log: Path, tmp_path: Path) -> None:
    """A log of the same layers has its best schedule measured second.

    Others are offered layer by layer.
    """
    lines = log.read_text().splitlines(keepends=True)
    wanted = next(
        record
        for record in reversed(read_log(log).records)
        if record.measurement.cycles is not None
    )
    number = read_log(log).records.index(wanted) + 1
    lines[number] = replace(wanted, measurement=replace(wanted.measurement, cycles=1)).text(number)
    donor = tmp_path / "donor.jsonl"
    path = tmp_path / "again.jsonl"
    donor.write_text("".join(lines))
    found = tune_network(
        digits(),
        machine(),
        DEFAULTS,
        path,
        SearchOptions(measurements=8, search_seed=3, donors=(donor,)),
    )
    assert found.donor == donor
    assert found.log.records[1] == wanted
    other = load_hardware(settings=["sram_bytes=4096", "pe.ic=16"])
    tune_network(
        digits(),
        other,
        DEFAULTS,
        tmp_path / "other.jsonl",
        SearchOptions(measurements=6, donors=(log,)),
    )
    # a machine that fuses less
    text = "".join(lines).replace('"residents":[', '"residents":["elsewhere",')
    donor.write_text(text.replace('"groups":[]', '"groups":[{"layers":["classifier"],"rows":0}]'))
    path = tmp_path / "less.jsonl"
    less = tune_network(
        digits(),
        machine(),
        DEFAULTS,
        path,
        SearchOptions(measurements=3, search_seed=3, donors=(donor,)),
    )
    assert less.log.records[1] == wanted


def test_logs_that_are_refused(log: Path, tmp_path: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    path = tmp_path / "bad.jsonl"

    def refused(text: str, message: str) -> None:
        path.write_text(text)
        with pytest.raises(InputError, match=message) as caught:
            read_log(path)
        assert "\n" not in str(caught.value)

    refused("", "has not one whole line; give a file that 'dla tune' wrote")
    refused("{}\n", "line 1: schema: Field required")
    refused("[1]\n", "line 1: ")
    refused(
        lines[0].replace("dla-tune/1", "dla-tune/9"), "line 1: schema: Input should be 'dla-tune/1'"
    )
    refused(lines[0] + "?\n", "line 2: not a line of a tuning log")
    refused(lines[0] + lines[2], "line 2: not measurement 1; remove this line and all that follow")
    refused(
        lines[0] + lines[1].replace('"conv"', '"vonc"'),
        "line 2: its schedule is not of all layers in line 1",
    )
    refused(
        lines[0] + lines[1].replace('"rows":8', '"rows":0'),
        "line 2: layer 'conv': rows is 0; write a number",
    )
    path.write_text(lines[0])
    with pytest.raises(InputError, match="nothing was measured yet"):
        load_tuned(path, DEFAULTS, compiler_version())


def test_searches_that_do_not_go_on(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(log.read_bytes())
    mine = tmp_path / "mine.txt"
    for text in ("nothing of a log, nor a whole line", "a line\nand another"):
        mine.write_text(text)
        with pytest.raises(InputError, match="give a file that 'dla tune' wrote"):
            tune_network(digits(), machine(), DEFAULTS, mine, SearchOptions(measurements=1))
        assert mine.read_text() == text
    with pytest.raises(
        InputError, match=r"made with other conditions \(seed was 0 and is 1\); give another --log"
    ):
        tune_network(
            digits(), machine(), DEFAULTS, path, SearchOptions(measurements=30, search_seed=1)
        )
    with pytest.raises(InputError, match=r"made with other conditions \(machine was "):
        tune_network(digits(), load_hardware(), DEFAULTS, path, SearchOptions(measurements=30))
    lines = path.read_text().splitlines(keepends=True)
    changed = json.loads(lines[2])
    changed["schedule"]["layers"][0]["rows"] = 1
    path.write_text("".join((*lines[:2], json.dumps(changed) + "\n")))
    with pytest.raises(
        InputError, match="line 3: the search does not try this schedule; remove this line"
    ):
        tune_network(digits(), machine(), DEFAULTS, path, SearchOptions(measurements=30))
    with pytest.raises(
        InputError, match=f"--from {path} is the log itself; leave it out, or give another --log"
    ):
        tune_network(
            digits(), machine(), DEFAULTS, path, SearchOptions(measurements=30, donors=(path,))
        )
    with pytest.raises(InputError, match=f"{tmp_path}: a directory; give a file as --log"):
        tune_network(digits(), machine(), DEFAULTS, tmp_path, SearchOptions(measurements=1))
    with pytest.raises(InputError, match="--measurements is 0; it must be 1 or more"):
        tune_network(digits(), machine(), DEFAULTS, path, SearchOptions(measurements=0))
    with pytest.raises(InputError, match="a tuning chooses the whole schedule; leave --schedule"):
        tune_network(
            digits(),
            machine(),
            CompileOptions(schedule="seed"),
            path,
            SearchOptions(measurements=1),
        )


def test_states_and_choices() -> None:
    layers = tuple(LayerChoice(name, 1, 2, 0, "rows", (1, 2, 3)) for name in "abbcd")
    groups = GroupChoice(("b", "c"), 2), GroupChoice(("a", "b"), 1)
    found = state_of(Choices(layers, ("t",), groups))
    assert found == State(
        (Tiling(1, 2, False, BufferSlots(1, 2, 3)),) * 5,
        frozenset("t"),
        ((0, groups[1]), (2, groups[0])),
    )
    assert found.tiled == ((4, 4),)


def test_a_group_is_where_its_layers_can_be_one() -> None:
    """Copies of a batch have one name; a group of them is not always the first ones."""
    group = GroupChoice(("a", "a"), 2)
    assert place_groups("aaab", [group]) == ((0, group),)
    assert place_groups("aaab", [group], lambda first, last: first > 0) == ((1, group),)
    assert place_groups("aaab", [group], lambda first, last: False) == ((0, group),)
    assert place_groups("aaaab", [group, group], lambda first, last: first != 1) == (
        (0, group),
        (2, group),
    )


def test_sites_are_logged(log: Path) -> None:
    """Channels and inputs are atoms of 8: 32 channels of 16."""
    site = read_log(log).header.layers[2]
    assert site == LoggedSite(layer="pointwise", kind="OP_CONV", channels=4, rows=8, inputs=2)


@pytest.mark.parametrize("layer", ["conv", "depthwise", "pointwise", "pool", "classifier"])
@pytest.mark.parametrize("sram", rotate([2048, 4096, 1 << 16], 3))
def test_the_winner_is_what_the_compiler_chose(layer: str, sram: int) -> None:
    arch = load_hardware(settings=[f"sram_bytes={sram}"]).arch
    network = byoc.compile(digits().package, arch)
    chosen = {
        one.layer: one for report in network.reports.values() for one in report.choices.layers
    }
    found = explain(digits().package, layer, arch, DEFAULTS)
    assert found.winner.choice == chosen[layer]
    assert found.winner.missing == 0
    assert found.winner.working_set_bytes <= found.budget_bytes
    assert all(one.missing == one.working_set_bytes - found.budget_bytes for one in found.misfits)
    assert all(one.working_set_bytes <= found.budget_bytes for one in found.others)
    assert found.fitting >= len(found.others)
    estimates = [one.estimated_cycles for one in found.others]
    assert estimates == sorted(estimates)


def test_bytes_are_those_of_the_program() -> None:
    arch = load_hardware(settings=["sram_bytes=2048"]).arch
    alone = CompileOptions(chosen=Choices(groups=()))
    timing = ProgramTiming(byoc.compile(digits().package, arch, alone).programs[0])
    (chosen,) = list_chosen_schedules(digits().package, arch, alone)
    winners = [explain(digits().package, one.layer, arch, alone).winner for one in chosen.layers]
    assert (
        sum(winner.moved_bytes for winner in winners)
        == timing.dram_read_bytes + timing.dram_write_bytes
    )


def test_the_commands(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    mine = tmp_path / "mine.jsonl"
    found = dla(capsys, "tune", "digits-cnn", *settings, "--measurements", "16", "--log", mine)
    assert (found.status, found.err) == (0, "")
    assert mine.read_bytes() == log.read_bytes()
    best = read_log(log).best.measurement.cycles
    assert f"{best:,} tuned" in found.out
    report = tmp_path / "run.json"
    found = dla(capsys, "run", "digits-cnn", *settings, "--tuned", mine, "--json", report)
    assert found.status == 0
    saved = json.loads(report.read_text())
    assert saved["totals"]["cycles"] == best
    assert saved["check"]["mismatches"] == 0
    assert saved["hashes"]["choices"]
    assert dla(capsys, "run", "digits-cnn", "--tuned", mine).err.startswith("error: --tuned ")
    given = ("--tuned", mine, "--grouped", "cpu")
    assert (
        "tuned with the options '', these are '--grouped cpu'"
        in dla(capsys, "run", "digits-cnn", *given).err
    )
    found = dla(
        capsys,
        "explain",
        "digits-cnn",
        "conv",
        *settings,
        "--tuned",
        mine,
        "--json",
        tmp_path / "e.json",
    )
    assert "chosen by --tuned" in found.out
    assert json.loads((tmp_path / "e.json").read_text())["schema"] == "dla-explain/1"
    assert "classifier" in dla(capsys, "explain", "digits-cnn", *settings).out
    assert dla(capsys, "explain", "digits-cnn", "cnov").err == (
        "error: no layer of the accelerator is called 'cnov'; did you mean 'conv'?\n"
    )
    seeded = dla(capsys, "explain", "digits-cnn", "conv", "--schedule", "seed")
    assert (seeded.status, seeded.err.count("\n")) == (2, 1)


def test_pins_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = tmp_path / "pins.toml"
    pins.write_text("[layers.conv]\nrows = 2\n")
    report = tmp_path / "run.json"
    found = dla(capsys, "run", "digits-cnn", "--pins", pins, "--json", report)
    assert found.status == 0
    saved = json.loads(report.read_text())
    assert saved["command"].endswith(f"--pins {pins}")
    assert next(layer["tiles"] for layer in saved["layers"] if layer["name"] == "conv") == 4
    assert dla(capsys, "partition", "digits-cnn", "--pins", pins).status == 0
    assert "chosen by --pins" in dla(capsys, "explain", "digits-cnn", "conv", "--pins", pins).out
    both = dla(capsys, "run", "digits-cnn", "--pins", pins, "--tuned", pins)
    assert both.err == "error: --pins and --tuned both choose a schedule; give one of them\n"
    for text, message in (
        ('residents = ["input"]\n', "'input' is no tensor that can stay in the scratchpad; "),
        (
            '[[groups]]\nlayers = ["conv", "pool"]\nrows = 1\n',
            "group 'conv' to 'pool': these layers do not follow one ",
        ),
    ):
        pins.write_text(text)
        for command in (
            ("run", "digits-cnn"),
            ("explain", "digits-cnn"),
            ("explain", "digits-cnn", "conv"),
        ):
            found = dla(capsys, *command, "--pins", pins)
            assert (found.status, found.err.count("\n")) == (2, 1)
            assert found.err.startswith(f"error: --pins {pins}: {message}")
    pins.write_text("[layers.conv]\nrows = 20\n")
    assert dla(capsys, "run", "digits-cnn", "--pins", pins).err == (
        f"error: --pins {pins}: layer 'conv': rows is 20; it is 1 to 8\n"
    )


def test_who_interrupts_is_told_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = TuningSubject.measure
    whole = tmp_path / "whole.jsonl"
    left = iter(range(4))

    def measure(self: TuningSubject, choices: Choices) -> Measurement:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return measured(self, choices)

    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    words = ("tune", "digits-cnn", *settings, "--measurements", "6", "--log")
    monkeypatch.setattr(TuningSubject, "measure", measure)
    path = tmp_path / "cut.jsonl"
    found = dla(capsys, *words, path)
    assert (found.status, found.err) == (
        130, f"stopped; the measurements are in {path}, and the same command continues\n",
    )  # fmt: skip
    assert len(read_log(path).records) == 4
    monkeypatch.setattr(TuningSubject, "measure", measured)
    assert dla(capsys, *words, path).status == dla(capsys, *words, whole).status == 0
    assert path.read_bytes() == whole.read_bytes()


def test_cycles_of_a_log_are_one_at_least(log: Path, tmp_path: Path) -> None:
    """Shares of none were divided by."""
    lines = log.read_text().splitlines(keepends=True)
    measured = json.loads(lines[1])
    (tmp_path / "none.jsonl").write_text(lines[0] + json.dumps({**measured, "cycles": 0}) + "\n")
    with pytest.raises(InputError, match=r"none.jsonl, line 2"):
        read_log(tmp_path / "none.jsonl")


@pytest.mark.slow
def test_sizes_that_make_other_layers_say_nothing_of_these() -> None:
    """Sizes that give other layers are no schedules for this network.

    With 75 % of 64 KiB `lstm-small` has 172 layers instead of 202, which once was a ValueError.
    """
    hardware = load_hardware("balanced-64", {"pe.ic": 16, "pe.oc": 16, "sram_bytes": 65536})
    found = partition_package(load_network("lstm-small").package, hardware.arch)
    subject = TuningSubject(
        found.regions, found.graph.values, hardware.arch, clock_of(hardware.timing)
    )
    for other in (subject.own(), *subject.others((75, 125))):
        assert tuple(choice.layer for choice in other.layers) == subject.names
