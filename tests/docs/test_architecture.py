"""The page on the architecture names the files that a run of one convolution enters."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.entered import MOST, entered

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
STEP = re.compile(r"^\| (\d+) \| \[([\w/.]+)\]\(\.\./([\w/.]+)\)(.*)$", re.MULTILINE)
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")


def _defined(path: Path) -> set[str]:
    """Names that a file defines: functions, classes, their methods, constants."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            members = node.body if isinstance(node, ast.ClassDef) else []
            found |= {
                f"{node.name}.{member.name}"
                for member in members
                if isinstance(member, ast.FunctionDef)
            }
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_walk_of_one_convolution_leads_through_files_that_it_enters() -> None:
    steps = STEP.findall(PAGE.read_text(encoding="utf-8"))
    assert [int(number) for number, *_ in steps] == list(range(1, len(steps) + 1))
    files = [shown for _, shown, _, _ in steps]
    assert len(files) >= 25
    assert len(set(files)) == len(files)
    ran = entered("convolution")["all"]
    for _, shown, linked, text in steps:
        assert shown == linked
        names = NAME.findall(text)
        assert names, f"{shown}: the walk names nothing in it"
        assert names[0] in _defined(ROOT / linked), f"{linked} does not define {names[0]}"
        assert linked in ran, f"{linked}: one convolution does not enter it"
        runs = any(name == names[0] or name.startswith(f"{names[0]}.") for name in ran[linked])
        assert runs or names[0].isupper(), f"{linked}: one convolution does not run {names[0]}"


@pytest.mark.parametrize(
    "subject", ["convolution", pytest.param("mobilenet", marks=pytest.mark.slow)]
)
def test_no_more_files_are_entered_than_the_page_says(subject: str) -> None:
    """No more files are entered than the page states.

    A new file on the way should replace another. If it is one more idea, update the page and raise
    the figure.
    """
    found = entered(subject)["all"]
    assert len(found) <= MOST[subject], sorted(found)
    words = {
        "convolution": "one float convolution runs code in {} files",
        "mobilenet": "`dla run mobilenet-v1` runs code in {}.",
    }
    assert words[subject].format(MOST[subject]) in PAGE.read_text(encoding="utf-8")


def test_every_folder_and_file_that_the_page_names_exists() -> None:
    named = re.findall(
        r"`((?:isa|byoc|dla_sim|experiments|tests)/[\w/]*(?:\.py)?)`",
        PAGE.read_text(encoding="utf-8"),
    )
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
