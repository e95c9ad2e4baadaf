"""Every guide does what it says, and generated pages are current."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from byoc.frontend.onnx.rewriting.reasons import support_rows
from byoc.operators.registry import markdown
from experiments.cli import run
from experiments.cli.main import main
from tests.docs import device, rewriting
from tests.docs.blocks import blocks
from tests.docs.session import ROOT, Session
from tests.plugins.installation import forget

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=[guide.name for guide in GUIDES])
def test_the_guide_does_what_it_says(guide: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for folder in ("docs", "examples"):
            (tmp_path / folder).symlink_to(ROOT / folder)
        text = guide.read_text(encoding="utf-8")
        if " fewer cycles: " not in text:
            patch.setattr(run, "MOST_INSTRUCTIONS", -1)  # advice compiles for seven more machines
        session = Session(guide, tmp_path, patch)
        try:
            for block in blocks(text):
                if block.needs is not None and shutil.which(block.needs) is None:
                    pytest.skip(f"{block.needs} is not installed")
                session.run(block)
        finally:
            patch.undo()
            forget()


def test_the_tables_of_laws_and_passes_are_current() -> None:
    """Else run ``python -m tests.docs.rewriting``."""
    page = rewriting.PAGE.read_text(encoding="utf-8")
    assert rewriting.written(page) == page


def test_the_tables_of_the_device_are_current() -> None:
    """Else run ``python -m tests.docs.device``."""
    page = device.PAGE.read_text(encoding="utf-8")
    assert device.written(page) == page


def test_the_support_table_is_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else run ``dla support --built-in --format markdown -o docs/support.md``."""
    committed = (ROOT / "docs/support.md").read_text(encoding="utf-8")
    assert committed == markdown(support_rows())
    assert (
        main(["support", "--built-in", "--format", "markdown", "-o", str(tmp_path / "support.md")])
        == 0
    )
    assert (tmp_path / "support.md").read_text(encoding="utf-8") == committed
    capsys.readouterr()
    assert main(["support", "-o", "support.md"]) == 2
    assert (
        capsys.readouterr().err
        == "error: --format table is for the terminal; choose markdown for support.md\n"
    )
