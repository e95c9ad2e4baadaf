"""``dla help`` and the tooltips have an entry for every heading and label of ``dla run``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from dla_sim.engine.accounts import CAUSES
from experiments.glossary import explain, find_term, glossary
from experiments.report.checks import HardwareCheck
from experiments.report.run_page import run_page
from experiments.report.schema import UNITS, RunReport
from experiments.report.screen import screen
from experiments.report.tables import HEADINGS, kind_table, report_tables
from experiments.report.terminal import LiteralTable, Printed, ReportTable
from experiments.running.inference import run
from isa.instruction import KINDS
from tests.experiments.command_line import dla
from tests.experiments.reporting import tiny_run

LABELLED = ("cycles by kind", "cycles by cause")
"""First headings of the tables whose rows have labels, not names of layers or operators."""


def everything() -> Iterator[RunReport]:
    """Reports whose lines together are all lines that a run can have."""
    yield tiny_run()
    report = run("digits-cnn", isa="v5", cost="horowitz-45nm", memory_mode="flash").report
    yield report
    found = HardwareCheck(programs=1, commands=1, cycles=1, written_bytes=1, differences=0)
    yield report.model_copy(update={"hardware": found})
    yield run("digits-cnn", memory_mode="sram", integer_io=True).report
    yield run("digits-cnn", settings={"bus_bytes": 32}, schedule="seed").report
    yield run("resnet-8", settings={"sram_bytes": 65536}, cpu=("op:Add",)).report


def words_of(printed: Iterable[Printed]) -> Iterator[str]:
    for one in printed:
        if isinstance(one, ReportTable):
            yield from (column.heading for column in one.columns)
            if one.columns[0].heading in LABELLED:
                yield from (row[0] for row in one.rows)
        elif isinstance(one, LiteralTable):
            yield from (str(cell) for cell in one.columns[0].cells)


def test_every_heading_and_label_of_a_run_has_an_entry() -> None:
    words = {*KINDS, *CAUSES, *UNITS, *HEADINGS.values(), "total", "end to end"}
    for report in everything():
        words |= {*words_of(report_tables(report)), *words_of(screen(report))} - {""}
    assert {"weights", "limit", "util.", "~µJ", "flash", "system SRAM", "bus"} <= words
    assert {"hardware", "with conversions", "input", "CPU", "energy (estimate)"} <= words
    assert sorted(word for word in words if find_term(word) is None) == []


def test_the_collector_of_words_sees_a_missing_one() -> None:
    table = kind_table(tiny_run())
    table.add_row("NOVEL", "1", "")
    assert "NOVEL" in {*words_of([table])}
    assert find_term("NOVEL") is None


def test_a_word_has_one_entry_of_one_phrase() -> None:
    words = [word.casefold() for term in glossary() for word in term.words]
    assert len(words) == len(set(words))
    for term in glossary():
        assert term.text[-1] not in ".;", term.words
        assert "](" not in term.text + term.places, term.words


@pytest.mark.parametrize("words", [["util."], ["utilisation"], ["UTIL."]])
def test_help_prints_the_entry(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dla(capsys, "help", *words).out == (
        "utilisation, util.: computed products divided by the products that the array could have "
        "computed\nsee docs/reports.md\n"
    )


def test_help_of_several_words_and_of_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert dla(capsys, "help", "lower", "bound").out.startswith("lower bound: a number of cycles")
    listed = " ".join(dla(capsys, "help").out.split())
    assert all(word in listed for term in glossary() for word in term.words)


def test_help_of_an_unknown_word_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "help", "rooflin")
    assert (found.status, found.err) == (
        2,
        "error: no entry for 'rooflin'; did you mean roofline? 'dla help' lists all words\n",
    )


def test_the_page_of_a_run_shows_the_same_texts() -> None:
    page = run_page(tiny_run())
    assert f'<th title="{explain("check")}">check</th>' in page
    assert explain("compute") in page
    assert explain("nothing of this name") == ""
