"""The page on the architecture: its walk leads through files and names that exist, few and each once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
STEP = re.compile(r"^(\d+)\. \[([\w/.]+)\]\(\.\./([\w/.]+)\)(.*)$", re.MULTILINE)
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")


def _defined(path: Path) -> set[str]:
    """Names that a file defines: functions, classes, their methods, constants."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            members = node.body if isinstance(node, ast.ClassDef) else []
            found |= {f"{node.name}.{member.name}" for member in members if isinstance(member, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_one_convolution_comes_through_at_most_35_files_none_twice() -> None:
    steps = STEP.findall(PAGE.read_text(encoding="utf-8"))
    assert [int(number) for number, *_ in steps] == list(range(1, len(steps) + 1))
    files = [shown for _, shown, _, _ in steps]
    assert 25 <= len(files) <= 35
    assert len(set(files)) == len(files)
    for _, shown, linked, text in steps:
        assert shown == linked
        names = NAME.findall(text)
        assert names, f"{shown}: the walk names nothing in it"
        assert names[0] in _defined(ROOT / linked), f"{linked} does not define {names[0]}"


def test_every_folder_and_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:isa|byoc|dla_sim|experiments|tests)/[\w/]*(?:\.py)?)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
