"""Tables at every width keep all names and figures, and report what has no room."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from rich.console import Console

from experiments.cli.main import main
from experiments.report import terminal
from experiments.report.store import load_report
from experiments.report.terminal import FOLDED, ReportTable, plain_table
from tests.experiments.command_line import dla


def printed(table: ReportTable, width: int) -> list[str]:
    """The lines of a table on a terminal of that width."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def example() -> ReportTable:
    table = plain_table(
        ("layer", "fold"), ("where", "left", 2), ("cycles", "right"), ("DRAM bytes", "right", 1)
    )
    table.add_row("a_layer_of_a_long_name_that_folds", "dla 0", "123,456,789", "98,765")
    table.add_section()
    table.add_row("total", "", "123,456,789")
    return table


def test_a_wide_terminal_has_everything_on_one_line() -> None:
    text = printed(example(), 80)
    assert text[1].split() == ["layer", "where", "cycles", "DRAM", "bytes"]
    assert text[3].split() == [
        "a_layer_of_a_long_name_that_folds",
        "dla",
        "0",
        "123,456,789",
        "98,765",
    ]


@pytest.mark.parametrize(
    ("width", "missing"),
    [(80, ()), (40, ()), (39, ("where",)), (33, ("where",)), (32, ("where", "DRAM bytes"))],
)
def test_columns_are_left_out_by_their_rank(width: int, missing: tuple[str, ...]) -> None:
    text = printed(example(), width)
    said = [one for one in text if one.startswith("no room for: ")]
    assert said == ([f"no room for: {', '.join(missing)}"] if missing else [])
    assert any("123,456,789" in one for one in text)
    assert ("98,765" in "".join(text)) == ("DRAM bytes" not in missing)


def test_headings_take_a_line_a_word_before_a_column_goes() -> None:
    table = plain_table(("wait weights", "right", 1), ("wait store", "right", 1))
    table.add_row("1", "2")
    assert [one.split() for one in printed(table, 20) if one.strip()][:2] == [
        ["wait", "wait"],
        ["weights", "store"],
    ]


def test_no_width_loses_a_name_or_a_figure_of_rank_0() -> None:
    generator = random.Random(11)
    for _ in range(200):
        names = [
            "".join(generator.choices("abcdefgh", k=generator.randint(1, 40))) for _ in range(3)
        ]
        figures = [f"{generator.randint(0, 10**12):,}" for _ in range(3)]
        others = [("of no use", "right", rank) for rank in range(1, generator.randint(1, 6))]
        table = plain_table(("name", "fold"), ("figure", "right"), *others)
        for name, figure in zip(names, figures, strict=True):
            table.add_row(name, figure, *("7,654,321" for _ in others))
        width = generator.randint(FOLDED + 20, 120)
        text = printed(table, width)
        assert max(map(len, text)) <= width
        assert all(any(figure in one for one in text) for figure in figures), (width, text)
        shown = "".join(one.split()[0] for one in text if one.strip() and one.split()[0].isalpha())
        assert all(name in shown for name in names), (width, text)


def test_what_is_too_wide_for_any_column_folds() -> None:
    table = plain_table(("a", "right"), ("b", "right"))
    table.add_row("123456789012345", "abcdefghijklmno")
    text = "".join(printed(table, 20)).replace(" ", "")
    assert "12345" in text
    assert "mno" in text


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two reports of a network."""
    folder = tmp_path_factory.mktemp("reports")
    for name, settings in (
        ("a", []),
        ("b", ["--set", "sram_bytes=16KiB", "--cost", "horowitz-45nm"]),
    ):
        assert (
            main(
                ["run", "resnet-8", *settings, "--json", str(folder / f"{name}.json"), "--summary"]
            )
            == 0
        )
    return folder


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_narrow_terminal_has_every_layer_with_its_cycles(
    name: str,
    width: int,
    reports: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(terminal, "PIPED_WIDTH", width)
    report = load_report(reports / f"{name}.json")
    lines = dla(capsys, "report", reports / f"{name}.json", "--tables").out.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    for layer in report.layers:
        rows = [line for line in lines if line.split() and layer.name.startswith(line.split()[0])]
        assert sum(f"{layer.cycles:,}" in row for row in rows) >= 2, (
            layer.name
        )  # tables of layers and of causes


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    "words", [["settings"], ["presets"], ["models"], ["isa"], ["support"], ["doctor"]]
)
def test_lists_fit_every_terminal(
    words: list[str],
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(terminal, "PIPED_WIDTH", width)
    lines = dla(capsys, *words).out.splitlines()
    rules = [line for line in lines if set(line.strip()) == {"─"}]
    assert rules
    assert max(map(len, rules)) <= width
    assert "…" not in "".join(lines)


def test_settings_keep_all_but_their_table_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PIPED_WIDTH", 80)
    out = dla(capsys, "settings").out
    assert [line for line in out.splitlines() if line.startswith("no room for: ")] == [
        "no room for: table"
    ]
