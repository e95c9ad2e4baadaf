"""All results are shown in one way: a line, lines, notebook, tables, records, page and images."""

from __future__ import annotations

import io
import pickle
from typing import Literal

import matplotlib
import pytest
from matplotlib import pyplot
from rich.console import Console

import dla
from experiments.compare.comparison import comparison_json
from experiments.compare.presentation import COMPARISON
from experiments.explore.exploration import EXPLORATION
from experiments.report.shown import Document, Presentation, Shown, html_table
from experiments.report.terminal import plain_table
from experiments.running.result import RUN
from experiments.sweep.presentation import FRONT
from experiments.systems.result import SYSTEM
from isa.errors import InputError
from tests.experiments.reporting import compared, grid, tiny_run

DOCUMENTS = {
    "run": lambda: Document(tiny_run(), RUN),
    "comparison": lambda: Document(compared(tiny_run("seed"), tiny_run()), COMPARISON),
    "sweep": lambda: Document((grid(), grid().objectives(None, None)), FRONT),
}


def printed(shown: Shown, form: Literal["tables", "brief", "screen"] = "tables") -> str:
    console = Console(width=150, file=io.StringIO())
    with console.capture() as capture:
        shown.show(console, form)
    return capture.get()


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_line_all_lines_a_notebook_records_and_a_page(kind: str) -> None:
    shown = DOCUMENTS[kind]()
    assert "\n" not in repr(shown)
    assert str(shown).splitlines()[0] == repr(shown)
    assert shown._repr_html_().startswith(f"<div><p>{repr(shown).replace('<', '&lt;')}")
    assert "<table>" in shown._repr_html_()
    assert len(printed(shown).splitlines()) > 5
    assert shown.records()
    assert shown.page().startswith("<!DOCTYPE html>")


def test_of_a_run_the_whole_alone() -> None:
    brief = printed(DOCUMENTS["run"](), "brief")
    assert "0 mismatches" in brief
    assert "cycles by kind" not in brief
    assert "cycles by kind" in printed(DOCUMENTS["run"]())


@pytest.mark.parametrize("kind", [RUN, SYSTEM, EXPLORATION], ids=["run", "system", "exploration"])
def test_pictures_have_names_that_a_method_can_have(kind: Presentation) -> None:
    assert kind.drawn
    assert all(name.isidentifier() for name in kind.drawn)


def test_every_chart_of_a_run_is_a_method_of_plot() -> None:
    matplotlib.use("agg")
    shown = DOCUMENTS["run"]()
    assert {chart.identity for chart in RUN.charts(tiny_run())} == {*RUN.drawn.values()}
    assert dir(shown.plot) == sorted(RUN.drawn)
    for name in RUN.drawn:
        axes = getattr(shown.plot, name)()
        assert axes.get_title(loc="left")
        pyplot.close(axes.figure)
    with pytest.raises(AttributeError, match="no chart is called layer; there are whole, layers, "):
        _ = shown.plot.layer


def test_what_such_results_do_not_have_is_one_line() -> None:
    bare = Document("x", Presentation(lambda subject: [f"just {subject}", "and more"]))
    assert (repr(bare), str(bare), printed(bare)) == (
        "just x",
        "just x\nand more",
        "just x\nand more\n",
    )
    assert bare._repr_html_() == "<div><p>just x<br>and more</p></div>"
    for ask, what in ((bare.records, "table"), (bare.page, "page")):
        with pytest.raises(InputError, match=f"^just x: there is no {what} of it$"):
            ask()


def test_a_notebook_has_the_first_rows_of_a_long_table() -> None:
    table = plain_table(("<name>", "left"))
    for number in range(40):
        table.add_row(f"<{number}>")
    text = html_table(table)
    assert text.startswith(
        "<table><thead><tr><th>&lt;name&gt;</th></tr></thead><tbody><tr><td>&lt;0&gt;</td></tr>"
    )
    assert text.endswith("</table><p>10 more rows.</p>")


def test_a_notebook_shows_a_summary_of_what_is_large() -> None:
    result = dla.run("digits-cnn")
    network = dla.compile(result.package, dla.load_hardware().arch)
    for one, facts in (
        (result.package, ("Conv", "image float32 [1, 1, 8, 8]", "logits float32 [1, 10]")),
        (network, ("in 1 regions", "the defaults")),
        (result.report, (f"{result.report.totals.cycles:,} cycles", "0 of ", "dla run")),
    ):
        page = one._repr_html_()
        assert page.startswith("<div><p>")
        assert all(fact in page for fact in facts), page
        assert len(page) < 4000


def test_a_comparison_comes_back_from_another_process() -> None:
    found = compared(tiny_run("seed"), tiny_run())
    again = pickle.loads(pickle.dumps(found))
    assert again.layers == found.layers
    assert comparison_json(again) == comparison_json(found)
