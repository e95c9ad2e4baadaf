"""Tables at every width: no name and no figure is lost, and what has no room is said."""

from __future__ import annotations

import io
import random

import pytest
from rich.console import Console

from experiments.report.terminal import FOLDED, ReportTable, plain_table


def printed(table: ReportTable, width: int) -> list[str]:
    """The lines of a table on a terminal of that width."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def example() -> ReportTable:
    table = plain_table(("layer", "fold"), ("where", "left", 2), ("cycles", "right"), ("DRAM bytes", "right", 1))
    table.add_row("a_layer_of_a_long_name_that_folds", "dla 0", "123,456,789", "98,765")
    table.add_section()
    table.add_row("total", "", "123,456,789")
    return table


def test_a_wide_terminal_has_everything_on_one_line() -> None:
    text = printed(example(), 80)
    assert text[1].split() == ["layer", "where", "cycles", "DRAM", "bytes"]
    assert text[3].split() == ["a_layer_of_a_long_name_that_folds", "dla", "0", "123,456,789", "98,765"]


@pytest.mark.parametrize(
    ("width", "missing"),
    [(80, ()), (42, ()), (41, ("where",)), (36, ("where",)), (35, ("where",)), (33, ("where", "DRAM bytes"))],
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
    assert [one.split() for one in printed(table, 20) if one.strip()][:2] == [["wait", "wait"], ["weights", "store"]]


def test_no_width_loses_a_name_or_a_figure_of_rank_0() -> None:
    generator = random.Random(11)
    for _ in range(200):
        names = ["".join(generator.choices("abcdefgh", k=generator.randint(1, 40))) for _ in range(3)]
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
