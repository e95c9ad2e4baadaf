"""The diagrams are current and readable: no text overlaps another text or the line of a box.

A browser measures them.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from tests.docs.diagrams import DIAGRAMS, FIGURES
from tests.experiments.browser import browser

Edges = tuple[float, float, float, float]
"""Left, top, right and bottom."""
_MEASURED = """[...document.querySelectorAll("svg {}")].map((one) => {{
  const box = one.getBoundingClientRect();
  return [box.left, box.top, box.right, box.bottom];
}})"""


def _meet(one: Edges, other: Edges) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _holds(one: Edges, other: Edges) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one[2] >= other[2] and one[3] >= other[3]


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_diagram_is_current(name: str) -> None:
    """Else run ``python -m tests.docs.diagrams``."""
    assert (FIGURES / name).read_text(encoding="utf-8") == DIAGRAMS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("name", DIAGRAMS)
def test_every_text_has_its_place(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        f'<!DOCTYPE html><html data-drawn="yes"><meta charset="utf-8">{DIAGRAMS[name]()}',
        encoding="utf-8",
    )
    with browser(tmp_path) as shown:
        shown.open(page)
        texts: list[Edges] = [tuple(edges) for edges in shown.run(_MEASURED.format("text"))]
        boxes: list[Edges] = [tuple(edges) for edges in shown.run(_MEASURED.format("rect"))]
    assert len(texts) > 20
    assert [pair for pair in combinations(texts, 2) if _meet(*pair)] == []
    # the first is the ground of the picture
    assert [text for text in texts if not _holds(boxes[0], text)] == []
    assert [
        (text, box) for text in texts for box in boxes if _meet(text, box) and not _holds(box, text)
    ] == []
